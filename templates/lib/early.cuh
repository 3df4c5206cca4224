#pragma once
// ---- programmatic dependent launch: a kernel starts while the one before it runs; SM 9.0 and newer -------------
//
// A launch with this attribute (runtime/cuda/launch.c) starts when all blocks of the kernel before have called
// let_next_step_begin, or have ended, and there is room. Elsewhere kernels follow each other, and these functions do
// nothing.

__device__ __forceinline__ void let_next_step_begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the kernel before has ended and its writes are visible. All threads must wait, so that this kernel ends
// after it.
__device__ __forceinline__ void await_step_before()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
