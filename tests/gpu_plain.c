/*
 * The kernel reads and writes dense fp32, so that it needs no dtypes or layouts; the host converts. It is PTX for the
 * oldest SM, which the driver compiles.
 */
#include "tests/gpu_plain.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/cuda/cuda_api.h"
#include "runtime/ops/call.h"

enum { WARPS = 4 };

/* The kernel's one parameter; `source` repeats it. */
typedef struct plain_params {
    CUdeviceptr q, k, v, o, lse;
    int32_t rows, heads_q, group, seq_q, seq_k, head_dim, causal, left, right;
    float scale, softcap;
} plain_params;

/* left, right: the window; -1: unbounded. The maximum of a row is the maximum so far. When it grows, the sums are
 * rescaled. */
static const char source[] =
    "struct Params { const float *q, *k, *v; float *o, *lse;\n"
    "    int rows, heads_q, group, seq_q, seq_k, head_dim, causal, left, right;\n"
    "    float scale, softcap; };\n"
    "extern \"C\" __global__ void plain(Params p) {\n"
    "    const int row = blockIdx.x * blockDim.y + threadIdx.y, lane = threadIdx.x;\n"
    "    if (row >= p.rows) return;\n" /* [batch, seq, head] */
    "    const int h = row % p.heads_q, i = row / p.heads_q % p.seq_q, b = row / p.heads_q / "
    "p.seq_q;\n"
    "    const int heads_kv = p.heads_q / p.group, at = i + p.seq_k - p.seq_q;\n"
    "    int first = 0, last = p.seq_k - 1;\n"
    "    if (p.causal && at < last) last = at;\n"
    "    if (p.left >= 0 && at - p.left > first) first = at - p.left;\n"
    "    if (p.right >= 0 && at + p.right < last) last = at + p.right;\n"
    "    float q[8], o[8] = {}, top = -1.0f / 0.0f, sum = 0;\n"
    "    for (int n = 0; n < 8; n++)\n"
    "        q[n] = lane + 32 * n < p.head_dim ? p.q[(long long)row * p.head_dim + lane + 32 * n] "
    ": 0;\n"
    "    for (int j = first; j <= last; j++) {\n"
    "        const long long key =\n"
    "            (((long long)b * p.seq_k + j) * heads_kv + h / p.group) * p.head_dim + lane;\n"
    "        float s = 0;\n"
    "        for (int n = 0; n < 8; n++)\n"
    "            if (lane + 32 * n < p.head_dim) s += q[n] * p.k[key + 32 * n];\n"
    "        for (int step = 16; step > 0; step /= 2) s += __shfl_xor_sync(~0u, s, step);\n"
    "        s *= p.scale;\n"
    "        if (p.softcap > 0) s = p.softcap * (1 - 2 / (expf(2 * s / p.softcap) + 1)); // tanh\n"
    "        const float before = top;\n"
    "        top = fmaxf(top, s);\n"
    "        const float keep = expf(before - top), weight = expf(s - top);\n"
    "        sum = sum * keep + weight;\n"
    "        for (int n = 0; n < 8; n++)\n"
    "            if (lane + 32 * n < p.head_dim) o[n] = o[n] * keep + weight * p.v[key + 32 * n];\n"
    "    }\n"
    "    for (int n = 0; n < 8; n++)\n"
    "        if (lane + 32 * n < p.head_dim)\n"
    "            p.o[(long long)row * p.head_dim + lane + 32 * n] = sum > 0 ? o[n] / sum : 0;\n"
    "    if (lane == 0)\n"
    "        p.lse[((long long)b * p.heads_q + h) * p.seq_q + i] = top + logf(sum);\n"
    "}\n";

static void nvrtc_must(nvrtcResult result, const char *what)
{
    if (result == NVRTC_SUCCESS)
        return;
    fprintf(stderr, "%s: NVRTC error %d\n", what, (int)result);
    exit(1);
}

static CUfunction load(const fa2i_device *device)
{
    static const char *const options[] = {"--gpu-architecture=compute_75"};
    const fa2i_nvrtc_table *nvrtc = NULL;
    nvrtcProgram program = NULL;
    CUmodule module = NULL;
    CUfunction function = NULL;
    size_t bytes = 0;
    gpu_must_fa2(fa2i_nvrtc_get(&nvrtc), "NVRTC");
    nvrtc_must(nvrtc->create_program(&program, source, "plain.cu", 0, NULL, NULL), "create");
    nvrtc_must(nvrtc->compile_program(program, 1, options), "the plain kernel");
    nvrtc_must(nvrtc->get_ptx_size(program, &bytes), "size");
    char *ptx = gpu_host(bytes, 1);
    nvrtc_must(nvrtc->get_ptx(program, ptx), "PTX");
    nvrtc->destroy_program(&program);
    gpu_must(device, device->cuda->module_load_data_ex(&module, ptx, 0, NULL, NULL), "cuModuleLoadDataEx");
    gpu_must(device, device->cuda->module_get_function(&function, module, "plain"), "cuModuleGetFunction");
    fa2i_free(ptx);
    return function;
}

static CUfunction the_kernel(const fa2i_device *device)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static CUfunction function;
    pthread_mutex_lock(&mutex);
    if (function == NULL)
        function = load(device);
    pthread_mutex_unlock(&mutex);
    return function;
}

static CUdeviceptr reserve(const fa2i_device *device, size_t elems)
{
    CUdeviceptr memory = 0;
    gpu_must(device, device->cuda->mem_alloc(&memory, elems * sizeof(float)), "cuMemAlloc");
    return memory;
}

/* Uploads an array, converted to fp32. */
static CUdeviceptr upload(const fa2i_device *device, fa2_dtype dtype, const uint16_t *bits, size_t elems)
{
    float *numbers = gpu_host(elems, sizeof *numbers);
    const CUdeviceptr memory = reserve(device, elems);
    fa2i_get_numbers(dtype, bits, 0, elems, numbers);
    gpu_must(device, device->cuda->memcpy_htod(memory, numbers, elems * sizeof *numbers), "cuMemcpyHtoD");
    fa2i_free(numbers);
    return memory;
}

static void download(const fa2i_device *device, CUdeviceptr memory, size_t elems, float *numbers)
{
    gpu_must(device, device->cuda->memcpy_dtoh(numbers, memory, elems * sizeof *numbers), "cuMemcpyDtoH");
}

void gpu_plain_forward(const fa2i_device *device, const fa2_problem *problem, const uint16_t *q, const uint16_t *k,
                       const uint16_t *v, float softmax_scale, float softcap, CUstream stream, uint16_t *o, float *lse)
{
    const fa2_problem *p = problem;
    const size_t of_q = gpu_o_elems(p), rows = gpu_lse_elems(p),
                 of_k = of_q / (size_t)p->heads_q / (size_t)p->seq_q * (size_t)p->heads_kv * (size_t)p->seq_k;
    plain_params params = {.q = upload(device, p->dtype, q, of_q),
                           .k = upload(device, p->dtype, k, of_k),
                           .v = upload(device, p->dtype, v, of_k),
                           .o = reserve(device, of_q),
                           .lse = reserve(device, rows),
                           .rows = (int32_t)rows,
                           .heads_q = p->heads_q,
                           .group = p->heads_q / p->heads_kv,
                           .seq_q = p->seq_q,
                           .seq_k = p->seq_k,
                           .head_dim = p->head_dim,
                           .causal = p->causal,
                           .left = p->window ? p->window_left : -1,
                           .right = p->window ? p->window_right : -1,
                           .scale = (float)fa2i_softmax_scale(p, softmax_scale),
                           .softcap = softcap};
    void *arguments[] = {&params};
    float *numbers = gpu_host(of_q, sizeof *numbers);
    gpu_must(device,
             device->cuda->launch_kernel(the_kernel(device), (unsigned)((rows + WARPS - 1) / WARPS), 1, 1, 32, WARPS, 1,
                                         0, stream, arguments, NULL),
             "cuLaunchKernel");
    gpu_must(device, device->cuda->stream_synchronize(stream), "cuStreamSynchronize");
    download(device, params.o, of_q, numbers);
    download(device, params.lse, rows, lse);
    for (size_t i = 0; i < of_q; i++)
        o[i] = fa2i_to_bits(p->dtype, numbers[i]);
    fa2i_free(numbers);
    const CUdeviceptr memory[] = {params.q, params.k, params.v, params.o, params.lse};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        gpu_must(device, device->cuda->mem_free(memory[i]), "cuMemFree");
}
