/*
 * The worker of a tuning. A kernel's index is its id there.
 */
#include "tuner/search/tune.h"

static const fa2i_kernel *worker_kernel(void *user, uint32_t id)
{
    const fa2i_findings *found = user;
    return &found->kernels[id].kernel;
}

fa2_status fa2i_tune_worker(fa2i_tune *tune)
{
    if (tune->worker != NULL)
        return FA2_OK;
    return fa2i_worker_create(tune->request->device, tune->gpu->modelled, worker_kernel, &tune->found,
                              tune->budget->stop, &tune->worker);
}
