#include "runtime/cuda/rounding.h"

#include <math.h>
#include "runtime/base/alloc.h"
#include "runtime/ops/forward.h"

#define INTEGER_MOST 127.0f

/* scales, counts: of a key head, tile by tile. A tile that was not rounded has counts of 0, and any scales. */
static fa2_rounding add_up(const fa2i_int8_layout *layout, const float *scales, const uint32_t *counts)
{
    fa2_rounding out = {0};
    for (size_t tile = 0; tile < layout->tiles; tile++) {
        uint64_t values = 0;
        for (size_t i = 0; i < layout->warps; i++) {
            const uint32_t count = counts[tile * layout->warps + i];
            values += count >> 16;
            out.zeros += count & 0xffff;
        }
        out.values += values;
        for (size_t i = 0; i < layout->scales && values > 0; i++) {
            const float largest = scales[tile * layout->scales + i] * INTEGER_MOST;
            if (!(largest <= out.largest) && !isnan(out.largest)) /* a NaN stays */
                out.largest = largest;
        }
    }
    return out;
}

fa2_status fa2i_rounding_read(const fa2i_device *device, const fa2i_recipe *recipe, const fa2_problem *problem,
                              const void *workspace, CUstream stream, fa2_rounding *ret_heads)
{
    const fa2i_int8_layout layout = fa2i_forward_int8_layout(recipe, problem);
    const size_t heads = (size_t)problem->heads_kv, scales = heads * layout.tiles * layout.scales;
    const size_t bytes = scales * sizeof(float) + heads * layout.tiles * layout.warps * sizeof(uint32_t);
    fa2_status st = FA2_OK;
    float *read = NULL;
    FA2_TRY(fa2i_new(&read, bytes, 1));
    FA2_TRY(fa2i_cuda_check(
        device->cuda,
        device->cuda->memcpy_dtoh_async(read, (CUdeviceptr)(uintptr_t)workspace + layout.scales_at, bytes, stream),
        "cuMemcpyDtoHAsync (fa2_rounding)"));
    FA2_TRY(
        fa2i_cuda_check(device->cuda, device->cuda->stream_synchronize(stream), "cuStreamSynchronize (fa2_rounding)"));
    const uint32_t *counts = (const uint32_t *)(const void *)(read + scales);
    for (size_t h = 0; h < heads; h++)
        ret_heads[h] =
            add_up(&layout, read + h * layout.tiles * layout.scales, counts + h * layout.tiles * layout.warps);
done:
    fa2i_free(read);
    return st;
}
