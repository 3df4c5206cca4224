/*
 * A failure of the environment is a status. It never becomes an outcome, because outcomes are stored for ever.
 */
#include "tuner/worker/blame.h"

#include <cuda.h>
#include <stdio.h>
#include "runtime/base/status.h"

void fa2i_failure_set(fa2i_failure *failure, fa2i_outcome outcome, fa2i_blame blame, const char *detail)
{
    failure->outcome = outcome;
    failure->blame = blame;
    snprintf(failure->detail, sizeof failure->detail, "%s", detail);
}

/* Returns the cause of a driver's error after which the worker goes on. runtime/plan/kernels.c has the same rule, but
 * stores nothing. Here, errors that say that the driver accepts no such code at all are blamed on no kernel. */
static fa2i_blame blame_for_error(bool takes_images, int32_t result)
{
    switch (result) {
    case CUDA_SUCCESS:             /* the driver reported no error: a launch was refused */
    case CUDA_ERROR_INVALID_VALUE: /* the launch needs more shared memory than the device grants */
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
    case CUDA_ERROR_NOT_FOUND: /* the image lacks the entry point */
        return FA2I_BLAME_KERNEL;
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_INVALID_SOURCE:
        return takes_images ? FA2I_BLAME_KERNEL : FA2I_BLAME_IMAGE;
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_JIT_COMPILATION_DISABLED:
        return FA2I_BLAME_MISFIT;
    default: /* for example, device memory is short */
        return FA2I_BLAME_ENVIRONMENT;
    }
}

fa2i_blame fa2i_blame_for(bool takes_images, const fa2i_message *answer)
{
    if (answer->state == FA2I_ANSWER_BROKEN)
        return answer->result == CUDA_ERROR_NO_DEVICE || answer->result == CUDA_ERROR_ECC_UNCORRECTABLE
                   ? FA2I_BLAME_ENVIRONMENT
                   : FA2I_BLAME_KERNEL;
    switch ((fa2_status)answer->status) {
    case FA2_E_UNSUPPORTED: /* it fits on no SM, or in no grid */
        return FA2I_BLAME_KERNEL;
    case FA2_E_CUDA:
        return blame_for_error(takes_images, answer->result);
    default:
        return FA2I_BLAME_ENVIRONMENT;
    }
}

fa2_status fa2i_worker_misfit(const char *detail)
{
    return fa2i_fail(FA2_E_CUDA,
                     "the driver does not take the code of this NVRTC, so that no kernel can be "
                     "judged; update the driver or use an older NVRTC (FA2_NVRTC_LIBRARY): %s",
                     detail);
}

fa2_status fa2i_failure_status(const fa2i_failure *failure)
{
    if (failure->outcome == FA2I_OUTCOME_OK)
        return FA2_OK;
    if (failure->blame == FA2I_BLAME_MISFIT)
        return fa2i_worker_misfit(failure->detail);
    if (failure->blame == FA2I_BLAME_ENVIRONMENT)
        return fa2i_fail(FA2_E_CUDA, "%s", failure->detail);
    return FA2_OK;
}
