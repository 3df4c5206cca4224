/*
 * Shared by the GPU tests: the device, random inputs, and calls with guarded tensors.
 *
 * A gpu_tensor is a [batch, seq, heads, head_dim] tensor with guards before and after it, and in GPU_PADDED with gaps
 * between its rows. All memory outside the tensor holds GPU_POISON, a NaN in fp16 and in bf16. A kernel that uses a
 * value from there gets NaN into its output. A kernel that writes there changes the poison. Outputs are poisoned, too,
 * before each launch.
 *
 * "Dense" host arrays are [batch, seq, heads, head_dim] bits, contiguous.
 *
 * Errors of the CUDA driver and of host memory end the test with a message, because results after them mean nothing.
 * Thread-safe as long as threads use their own objects.
 */
#pragma once

#include "runtime/cuda/device.h"
#include "tuner/judge/reference.h"

enum { GPU_POISON = 0x7fa5, GPU_POISON_WORD = GPU_POISON << 16 | GPU_POISON };

typedef enum gpu_layout {
    GPU_BSHD,   /* [batch, seq, heads, head_dim] */
    GPU_BHSD,   /* [batch, heads, seq, head_dim] */
    GPU_PADDED, /* as BSHD, but a part of wider rows, as after a fused projection of Q, K and V */
    GPU_LAYOUTS
} gpu_layout;

/* Opens device 0 and makes it current in this thread. Returns 0; or CHECK_SKIP after saying what is missing; or 1 after
 * saying what is broken. */
int gpu_open(fa2i_device *ret_device);

/* End the test unless the call succeeded. */
void gpu_must(const fa2i_device *device, CUresult result, const char *what);
void gpu_must_fa2(fa2_status status, const char *what);
void *gpu_host(size_t count, size_t size); /* zeroed; fa2i_free */

/* Returns the same numbers for the same seed on every machine. */
uint64_t gpu_random(uint64_t *state);

/* Returns `count` elements of the dtype: roughly normal numbers, standard deviation `magnitude`. Free by fa2i_free. */
uint16_t *gpu_random_bits(size_t count, fa2_dtype dtype, float magnitude, uint64_t *state);

/* Dense host inputs of a problem: roughly normal numbers. */
typedef struct gpu_inputs {
    uint16_t *q, *k, *v;
} gpu_inputs;

void gpu_inputs_init(const fa2_problem *problem, float magnitude, uint64_t seed, gpu_inputs *ret_inputs);
void gpu_inputs_done(gpu_inputs *inputs);

/* Computes the reference of the listed rows in this thread. softcap counts only if the problem has one. */
void gpu_reference(const fa2_problem *problem, const gpu_inputs *inputs, float softmax_scale, float softcap,
                   const fa2i_row *rows, size_t row_count, fa2i_reference *ret_reference);

typedef struct gpu_tensor {
    int32_t batch, seq, heads, head_dim;
    fa2_tensor view;                /* the argument for fa2 */
    uint16_t *image;                /* host copy of the memory, with the guards */
    size_t image_elems, first_elem; /* size of the image; where the tensor begins in it */
    CUdeviceptr memory;
} gpu_tensor;

/* The tensor has the problem's batch and head_dim. */
void gpu_tensor_init(const fa2i_device *device, gpu_layout layout, int32_t seq, int32_t heads,
                     const fa2_problem *problem, gpu_tensor *ret_tensor);
void gpu_tensor_done(const fa2i_device *device, gpu_tensor *tensor);

/* Uploads a dense array. NULL: poison everywhere. */
void gpu_tensor_put(const fa2i_device *device, gpu_tensor *tensor, const uint16_t *dense);

/* Poisons the tensor and its guards, in the stream. */
void gpu_tensor_poison(const fa2i_device *device, gpu_tensor *tensor, CUstream stream);

/* Downloads the tensor. Returns how many elements around it were changed. */
size_t gpu_tensor_get(const fa2i_device *device, gpu_tensor *tensor, uint16_t *dense);

/* The tensors of one problem on the device. The workspace has the size that fa2_workspace_size says. */
typedef struct gpu_call {
    const fa2i_device *device; /* borrowed */
    fa2_problem problem;
    gpu_tensor q, k, v, o;
    CUdeviceptr lse_memory; /* 0: no LSE wanted */
    CUdeviceptr workspace;
    fa2_forward_args args;
} gpu_call;

/* Prepares the problem. Returns the status of fa2_workspace_size. On an error *ret_call owns nothing. */
fa2_status gpu_call_init(const fa2i_device *device, fa2_context *context, const fa2_problem *problem, gpu_layout layout,
                         bool with_lse, gpu_call *ret_call);
void gpu_call_done(gpu_call *call);

/* Uploads the inputs and poisons the outputs. Waits. */
void gpu_call_put(gpu_call *call, const gpu_inputs *inputs);

/* Downloads O (dense), and the LSE if wanted. The launch must be finished. Returns how many elements outside of O and
 * LSE were changed. */
size_t gpu_call_get(gpu_call *call, uint16_t *o, float *lse);

/* A call of fa2_backward whose values do not matter: dense tensors of ones. Workspace as in gpu_call. */
typedef struct gpu_gradients {
    const fa2i_device *device; /* borrowed */
    fa2_backward_args args;
} gpu_gradients;

fa2_status gpu_gradients_init(const fa2i_device *device, fa2_context *context, const fa2_problem *problem,
                              gpu_gradients *ret_gradients);
void gpu_gradients_done(gpu_gradients *gradients);

size_t gpu_o_elems(const fa2_problem *problem);
size_t gpu_lse_elems(const fa2_problem *problem);
