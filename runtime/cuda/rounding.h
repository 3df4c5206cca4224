/*
 * Reads from the workspace of a call what the step that rounds K has lost (fa2_rounding). Waits for the stream.
 * Thread-safe. Errors: FA2_E_CUDA, FA2_E_MEMORY.
 */
#pragma once

#include "runtime/base/recipe.h"
#include "runtime/cuda/device.h"

/* Adds up the counts of each key head. The recipe rounds; its context is current. ret_heads: [heads_kv]. */
fa2_status fa2i_rounding_read(const fa2i_device *device, const fa2i_recipe *recipe, const fa2_problem *problem,
                              const void *workspace, CUstream stream, fa2_rounding *ret_heads);
