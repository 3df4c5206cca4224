/*
 * Runs one forward launch on the software device and judges it: the device's errors, the numbers, the traffic.
 */
#pragma once

#include "runtime/cuda/launch.h"
#include "tests/sim/sim.h"
#include "tuner/judge/verify.h"

enum { FORWARD_WHY_BYTES = 1200 };

/* Returns the keys of a tile: the variant's bc, or without that axis the keys of a block. */
int forward_tile_keys(const fa2i_variant *variant);

/* Launches on newly made tensors of the case. Outputs are poisoned. Each tensor, and the workspace, is an allocation of
 * its own that ends with its last element. If their layout allows it, K and V begin with the first row of the first
 * tile that a window lets a block see. Returns false if something is wrong; `why` says what. *ret_splits (may be NULL):
 * the number of parts into which the keys were divided. The device's context must be current. */
bool forward_launch(const fa2i_device *device, const fa2i_loaded *loaded, const fa2i_expected *expected,
                    char why[FORWARD_WHY_BYTES], int32_t *ret_splits);
