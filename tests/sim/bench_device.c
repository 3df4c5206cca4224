#include "bench_device.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "half.h"

static const char head[] = ".version 8.0\n.target sm_%d%s\n.address_size 64\n"
                           ".extern .shared .align 16 .b8 smem[];\n"
                           ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
                           ".reg .pred %%p<16>;\n.reg .b16 %%h<16>;\n.reg .b32 %%r<64>;\n.reg .f32 %%f<64>;\n"
                           ".reg .b64 %%rd<32>;\n"
                           "ld.param.u64 %%rd1, [in];\nld.param.u64 %%rd2, [out];\n"
                           "mov.u32 %%r0, %%tid.x;\nand.b32 %%r50, %%r0, 31;\nmul.wide.u32 %%rd3, %%r50, 4;\n"
                           "add.s64 %%rd1, %%rd1, %%rd3;\nmov.u32 %%r51, %%ctaid.x;\nmov.u32 %%r52, %%ntid.x;\n"
                           "mad.lo.s32 %%r53, %%r51, %%r52, %%r0;\nmul.wide.u32 %%rd4, %%r53, 4;\n"
                           "add.s64 %%rd2, %%rd2, %%rd4;\nld.global.u32 %%r1, [%%rd1];\n"
                           "ld.global.u32 %%r2, [%%rd1+128];\nld.global.u32 %%r3, [%%rd1+256];\n"
                           "ld.global.u32 %%r4, [%%rd1+384];\nmov.u32 %%r10, 0;\nmov.u32 %%r11, 0;\nmov.u32 %%r12, 0;\n"
                           "mov.u32 %%r13, 0;\n%s\nst.global.u32 [%%rd2], %%r10;\nst.global.u32 [%%rd2+%u], %%r11;\n"
                           "st.global.u32 [%%rd2+%u], %%r12;\nst.global.u32 [%%rd2+%u], %%r13;\nret;\n}\n";

static CUcontext context;

void bench_open(const char *card)
{
    setenv("FA2_SIM_CARD", card, 1);
    if (cuInit(0) == CUDA_SUCCESS)
        fa2_sim_reset();
    if (cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS || cuCtxPushCurrent(context) != CUDA_SUCCESS) {
        fprintf(stderr, "the software device does not start as %s\n", card);
        exit(1);
    }
}

const char *bench_start_refused(void)
{
    fprintf(stderr, "expected: "); /* the device prints why it does not start */
    fa2_sim_reset();
    return cuInit(0) == CUDA_ERROR_NO_DEVICE ? fa2_sim_message() : "";
}

typedef struct shape {
    unsigned blocks, threads, shared_bytes;
    size_t in_words, out_words;
} shape;

static CUresult launch(CUfunction function, const shape *s, CUdeviceptr in, CUdeviceptr out)
{
    void *params[] = {&in, &out};
    CUresult result = CUDA_SUCCESS;
    if (s->shared_bytes > 48 * 1024)
        result = cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)s->shared_bytes);
    if (result == CUDA_SUCCESS)
        result = cuLaunchKernel(function, s->blocks, 1, 1, s->threads, 1, 1, s->shared_bytes, NULL, params, NULL);
    return result != CUDA_SUCCESS ? result : cuCtxSynchronize();
}

static CUresult run_module(const char *ptx, const shape *s, const uint32_t *in_data, uint32_t *out_data)
{
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUdeviceptr in = 0, out = 0;
    CUresult result = cuModuleLoadDataEx(&module, ptx, 0, NULL, NULL);
    if (result == CUDA_SUCCESS)
        result = cuModuleGetFunction(&function, module, "k");
    if (result == CUDA_SUCCESS)
        result = cuMemAlloc(&in, s->in_words * 4);
    if (result == CUDA_SUCCESS)
        result = cuMemAlloc(&out, s->out_words * 4);
    if (result == CUDA_SUCCESS && in_data == NULL)
        result = cuMemsetD32Async(in, 0, s->in_words, NULL);
    if (result == CUDA_SUCCESS && in_data != NULL)
        result = cuMemcpyHtoD(in, in_data, s->in_words * 4);
    if (result == CUDA_SUCCESS)
        result = launch(function, s, in, out);
    if (result == CUDA_SUCCESS && out_data != NULL)
        result = cuMemcpyDtoH(out_data, out, s->out_words * 4);
    if (in != 0)
        (void)cuMemFree(in);
    if (out != 0)
        (void)cuMemFree(out);
    if (module != NULL)
        (void)cuModuleUnload(module);
    return result;
}

CUresult bench_launch(const bench_run *run)
{
    const shape s = {.blocks = run->blocks > 0 ? run->blocks : 1,
                     .threads = run->threads > 0 ? run->threads : SIM_LANES,
                     .shared_bytes = run->shared_bytes,
                     .in_words = BENCH_IN_WORDS,
                     .out_words = 4 * (size_t)(run->blocks > 0 ? run->blocks : 1) *
                                  (run->threads > 0 ? run->threads : SIM_LANES)};
    const unsigned step = s.blocks * s.threads * 4;
    const size_t bytes = sizeof head + strlen(run->body) + 64;
    char *ptx = malloc(bytes);
    if (ptx == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    snprintf(ptx, bytes, head, run->target > 0 ? run->target : 80, run->target == 90 ? "a" : "", run->body, step,
             2 * step, 3 * step);
    const CUresult result = run_module(ptx, &s, run->in, run->out);
    free(ptx);
    return result;
}

CUresult bench_module(const char *ptx, unsigned blocks, unsigned threads, unsigned shared_bytes, size_t in_words,
                      size_t out_words)
{
    const shape s = {blocks, threads, shared_bytes, in_words, out_words};
    return run_module(ptx, &s, NULL, NULL);
}

CUresult bench_module_of(const char *ptx, unsigned threads, unsigned shared_bytes, const uint32_t *in, size_t in_words,
                         uint32_t *out, size_t out_words)
{
    const shape s = {1, threads, shared_bytes, in_words, out_words};
    return run_module(ptx, &s, in, out);
}

/* ---- numbers ---- */

static uint32_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

/* -2 ... 2, never tiny */
static float number(uint64_t *state)
{
    const uint32_t bits = next(state);
    const float size = 0.25f + (float)(bits & 0xffff) / 65536.0f * 1.75f;
    return bits >> 31 ? -size : size;
}

void bench_bits(uint32_t out[BENCH_IN_WORDS], uint64_t seed)
{
    for (int i = 0; i < BENCH_IN_WORDS; i++)
        out[i] = next(&seed);
}

void bench_floats(uint32_t out[BENCH_IN_WORDS], uint64_t seed)
{
    for (int i = 0; i < BENCH_IN_WORDS; i++)
        out[i] = sim_float_bits(number(&seed));
}

void bench_halves(uint32_t out[BENCH_IN_WORDS], bool bf16, uint64_t seed)
{
    for (int i = 0; i < BENCH_IN_WORDS; i++) {
        const float low = number(&seed), high = number(&seed);
        out[i] = bf16 ? sim_float_to_bfloat(high) << 16 | sim_float_to_bfloat(low)
                      : sim_float_to_half(high) << 16 | sim_float_to_half(low);
    }
}

double bench_half_value(uint32_t bits, bool bf16)
{
    const int sign = bits >> 15 ? -1 : 1, wide = bf16 ? 7 : 10, bias = bf16 ? 127 : 15;
    const int exponent = (int)(bits >> wide & (bf16 ? 255u : 31u));
    return sign * ldexp(1.0 + (bits & ((1u << wide) - 1)) / ldexp(1.0, wide), exponent - bias);
}
