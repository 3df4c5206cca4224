/*
 * Launches a kernel on a problem: the steps of its recipe, one after the other. The run time's plans and the tuner's
 * worker use it, so the tuner measures what will run.
 */
#pragma once

#include "runtime/cuda/loaded.h"
#include "runtime/ops/op.h"

/* Launches on a stream, and does not wait. grid: from the operation, for this device, recipe and problem. The arguments
 * were checked with it, and the kernel serves them (fa2i_maps_serve). The device's context is current. Steps for which
 * the grid has no blocks are skipped. FA2_E_CUDA. Takes no lock and allocates nothing. */
fa2_status fa2i_launch(const fa2i_device *device, const fa2i_loaded *loaded, const fa2i_grid *grid,
                       const fa2_problem *problem, const void *args, CUstream stream);
