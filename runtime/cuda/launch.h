/*
 * Launching a kernel on a problem: the steps of its recipe, one after the other. Used by the
 * runtime's plans and by the tuner's worker, so that what is measured is what will run.
 */
#ifndef FA2I_CUDA_LAUNCH_H
#define FA2I_CUDA_LAUNCH_H

#include "runtime/cuda/loaded.h"
#include "runtime/ops/op.h"

/* Launch on a stream, and do not wait. grid: the operation's, of this device, recipe and problem; the
 * arguments were checked with it, and are such that the kernel serves them (fa2i_maps_serve); the device's context is
 * current. Steps that the grid gives no blocks are skipped. FA2_E_CUDA. Takes no lock and allocates nothing. */
fa2_status fa2i_launch(const fa2i_device *device, const fa2i_loaded *loaded, const fa2i_grid *grid,
                       const fa2_problem *problem, const void *args, CUstream stream);

#endif
