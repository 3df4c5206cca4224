#include "tuner/worker/gpu.h"

#include "runtime/cuda/device.h"

static fa2_status read_driver(fa2i_gpu *gpu)
{
    fa2_status st = FA2_OK;
    const fa2i_cuda_table *cuda = NULL;
    CUdevice handle = 0;
    FA2_TRY(fa2i_cuda_get(&cuda));
    FA2_TRY(fa2i_device_card(cuda, gpu->ordinal, &gpu->card));
    FA2_TRY(fa2i_cuda_check(cuda, cuda->driver_get_version(&gpu->driver), "cuDriverGetVersion"));
    FA2_TRY(fa2i_cuda_check(cuda, cuda->device_get(&handle, gpu->ordinal), "cuDeviceGet"));
    FA2_TRY(fa2i_cuda_check(cuda, cuda->device_total_mem(&gpu->memory_bytes, handle), "cuDeviceTotalMem"));
    if (cuda->device_get_uuid != NULL)
        gpu->has_uuid = cuda->device_get_uuid((CUuuid *)gpu->uuid, handle) == CUDA_SUCCESS;
    FA2_TRY(fa2i_cuda_is_software(cuda, &gpu->modelled));
done:
    return st;
}

fa2_status fa2i_gpu_read(int ordinal, fa2i_gpu *ret_gpu)
{
    fa2_status st = FA2_OK;
    fa2i_gpu gpu = {.ordinal = ordinal};
    const fa2i_nvrtc_table *nvrtc = NULL;
    FA2_TRY(read_driver(&gpu));
    st = fa2i_nvrtc_get(&nvrtc);
    gpu.compiles = st == FA2_OK;
    if (gpu.compiles)
        st = fa2i_target_for(gpu.card.arch, gpu.modelled, &gpu.target);
    else if (st == FA2_E_NO_NVRTC) /* kernels of a database need no NVRTC */
        st = FA2_OK;
    FA2_TRY(st);
    *ret_gpu = gpu;
done:
    return st;
}
