#pragma once
// ---- a step that begins while the one before it is at work: SM 9.0 and newer --------------------------------
//
// A launch that says so (runtime/cuda/launch.c) is on its way when all blocks of the step before have called
// let_next_step_begin, or have ended, and there is room; elsewhere steps follow each other, and these do nothing.

__device__ __forceinline__ void let_next_step_begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The step before has ended, and what it wrote is there. All threads wait, so that this step ends behind it.
__device__ __forceinline__ void await_step_before()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
