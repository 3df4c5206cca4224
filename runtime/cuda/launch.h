/*
 * A kernel on the device: loading an artifact, and launching it on a problem. Used by the runtime's
 * plans and by the tuner's worker, so that what is measured is what will run.
 */
#ifndef FA2I_LAUNCH_H
#define FA2I_LAUNCH_H

#include "runtime/cuda/device.h"
#include "runtime/ops/grid.h"

/* Version of the parameter block below; stored with kernels, so that an older library never
 * launches a kernel whose parameters it does not know. */
enum { FA2I_LAUNCH_ABI = 2 };

/* The kernel's one parameter, by value. Mirrors `struct Params` in templates/forward/params.cu.in: change
 * both, and FA2I_LAUNCH_ABI. Strides in elements. */
typedef struct fa2i_forward_params {
    uint64_t q, k, v, o;                                        /* device pointers */
    uint64_t lse;                                               /* or 0 */
    int64_t q_stride[3], k_stride[3], v_stride[3], o_stride[3]; /* batch, seq, head */
    float scale;                                                /* softmax scale */
    float scale_log2; /* softmax scale * log2(e): exp(scale * s) = exp2(scale_log2 * s) */
    int32_t seq_q, seq_k;
    int32_t heads_q, group; /* group = heads_q / heads_kv */
    int32_t q_tiles;        /* fa2i_grid.row_tiles */
    int32_t splits;
    int32_t batch;
    int32_t reserved;
    uint64_t partial, partial_lse; /* device pointers into the workspace; 0 when splits is 1 */
} fa2i_forward_params;

typedef struct fa2i_loaded {
    CUmodule module;
    CUfunction function;
    CUfunction combine; /* NULL unless the family splits */
    fa2i_variant variant;
    int registers;     /* as the driver reports them */
    int local_bytes;   /* per thread: spills and stack */
    int blocks_per_sm; /* resident */
} fa2i_loaded;

/* Load an artifact into the device's context and make it ready to launch (shared-memory opt-in,
 * code finalised). FA2_E_CUDA, with the driver's own error; *ret_driver_result (may be NULL) gets
 * its number, so that callers can tell CUDA_ERROR_NO_BINARY_FOR_GPU apart. A kernel that no SM can
 * hold is FA2_E_UNSUPPORTED. */
fa2_status fa2i_load(const fa2i_device *device, const fa2i_kernel *kernel, fa2i_loaded *ret_loaded,
                     CUresult *ret_driver_result);
void fa2i_unload(const fa2i_device *device, fa2i_loaded *loaded); /* zeroed objects are fine */

/* Check pointers, strides, scale and workspace: FA2_E_INVALID names argument and limit. */
fa2_status fa2i_forward_args_check(const fa2_problem *problem, const fa2_forward_args *args);

/* Launch; arguments are checked already, the workspace has grid->workspace_bytes, the device's
 * context is current. grid: fa2i_grid_of this device, variant and problem. Does not wait. */
fa2_status fa2i_launch_forward(const fa2i_device *device, const fa2i_loaded *loaded,
                               const fa2i_grid *grid, const fa2_problem *problem,
                               const fa2_forward_args *args, CUstream stream);

#endif
