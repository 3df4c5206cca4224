#include "asynchronous.h"
#include <stdio.h>

static const char head[] = ".version 8.0\n.target sm_90a\n.address_size 64\n"
                           ".extern .shared .align 1024 .b8 smem[];\n"
                           ".visible .entry k(.param .align 64 .b8 map[128], .param .u64 in, .param .u64 out)\n%s{\n"
                           ".reg .pred %%p<16>;\n.reg .b32 %%r<64>;\n.reg .b64 %%rd<16>;\n"
                           "ld.param.u64 %%rd1, [in];\nld.param.u64 %%rd2, [out];\nmov.u32 %%r0, %%tid.x;\n"
                           "mul.wide.u32 %%rd3, %%r0, 4;\nadd.s64 %%rd2, %%rd2, %%rd3;\nmov.b64 %%rd4, map;\n"
                           "cvta.param.u64 %%rd4, %%rd4;\nmov.u32 %%r20, smem;\nadd.s32 %%r21, %%r20, 4096;\n"
                           "add.s32 %%r22, %%r20, 4104;\nshl.b32 %%r23, %%r0, 2;\nadd.s32 %%r23, %%r20, %%r23;\n"
                           "ld.global.u32 %%r24, [%%rd1+800];\nld.global.u32 %%r25, [%%rd1+804];\n"
                           "ld.global.u32 %%r26, [%%rd1+808];\nld.global.u32 %%r27, [%%rd1+812];\n"
                           "setp.eq.u32 %%p1, %%r0, 0;\nsetp.gt.u32 %%p5, %%r0, 31;\nmov.u32 %%r10, 0;\n%s\n"
                           "st.global.u32 [%%rd2], %%r10;\nret;\n}\n";

static CUresult launch(const async_run *r, CUfunction function)
{
    CUtensorMap none = {{0}};
    CUdeviceptr in = 0, out = 0;
    void *params[] = {r->map != NULL ? (void *)(uintptr_t)r->map : &none, &in, &out};
    CUresult result = cuMemAlloc(&in, ASYNC_IN_WORDS * 4);
    if (result == CUDA_SUCCESS)
        result = cuMemAlloc(&out, ASYNC_THREADS_MAX * 4);
    if (result == CUDA_SUCCESS)
        result = cuMemcpyHtoD(in, r->in, ASYNC_IN_WORDS * 4);
    if (result == CUDA_SUCCESS)
        result = cuLaunchKernel(function, 1, 1, 1, r->threads, 1, 1, 4096 + 16, NULL, params, NULL);
    if (result == CUDA_SUCCESS)
        result = cuCtxSynchronize();
    if (result == CUDA_SUCCESS)
        result = cuMemcpyDtoH(r->out, out, r->threads * 4);
    return result;
}

CUresult async_launch(const async_run *r)
{
    static char text[8192];
    CUmodule module = NULL;
    CUfunction function = NULL;
    snprintf(text, sizeof text, head, r->bounds == NULL ? "" : r->bounds, r->body);
    CUresult result = cuModuleLoadDataEx(&module, text, 0, NULL, NULL);
    if (result == CUDA_SUCCESS)
        result = cuModuleGetFunction(&function, module, "k");
    if (result == CUDA_SUCCESS)
        result = launch(r, function);
    if (module != NULL)
        (void)cuModuleUnload(module); /* memory is released when the device is opened again */
    return result;
}

void async_fill(uint32_t in[ASYNC_IN_WORDS])
{
    for (uint32_t i = 0; i < ASYNC_IN_WORDS; i++)
        in[i] = 7 * i + 1;
}
