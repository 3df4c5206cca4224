/*
 * One forward launch on the software device, judged: the device's errors, the numbers, the traffic.
 */
#ifndef SIM_FORWARD_H
#define SIM_FORWARD_H

#include "runtime/cuda/launch.h"
#include "tests/sim/sim.h"
#include "tuner/judge/verify.h"

enum { FORWARD_WHY_BYTES = 1200 };

/* Keys of a tile: the variant's bc; without that axis, those of a block. */
int forward_tile_keys(const fa2i_variant *variant);

/* Launch on the tensors of the case, which are made for it: outputs poisoned, each tensor an
 * allocation of its own that ends with its last element, the workspace too; K and V begin with the
 * first row of the first tile that a window lets a block see, if their layout allows it. false: why says what is
 * wrong. *ret_splits (may be NULL): into how many the keys were divided. The device's context is
 * current. */
bool forward_launch(const fa2i_device *device, const fa2i_loaded *loaded,
                    const fa2i_expected *expected, char why[FORWARD_WHY_BYTES],
                    int32_t *ret_splits);

#endif
