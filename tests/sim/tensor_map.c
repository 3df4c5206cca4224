/*
 * The rules come from the driver API's reference for cuTensorMapEncodeTiled. Valid maps that are not implemented here
 * give CUDA_ERROR_NOT_SUPPORTED: interleave, packed types, element strides, swizzles of other atoms, NaN for elements
 * outside.
 */
#include "tensor_map.h"
#include <string.h>
#include "driver.h"

#define MARK UINT64_C(0x70616d2d32616673)

_Static_assert(sizeof(sim_tensor_map) <= sizeof(CUtensorMap), "a map has room in the opaque bytes");
_Static_assert(sizeof(CUtensorMap) == SIM_MAP_BYTES, "which are so many");

enum { CHUNK_BYTES = 16, BOX_MAX = 256, STEP_MAX = 8, BOX_BYTES_MAX = 256 * 1024 };

bool sim_tensor_map_read(const uint8_t bytes[SIM_MAP_BYTES], sim_tensor_map *ret_map)
{
    memcpy(ret_map, bytes, sizeof *ret_map);
    return ret_map->mark == MARK;
}

/* Returns the bytes of an element, 0 for a packed or unknown type. */
static unsigned bytes_of(CUtensorMapDataType type)
{
    static const uint8_t bytes[] = {
        [CU_TENSOR_MAP_DATA_TYPE_UINT8] = 1,        [CU_TENSOR_MAP_DATA_TYPE_UINT16] = 2,
        [CU_TENSOR_MAP_DATA_TYPE_UINT32] = 4,       [CU_TENSOR_MAP_DATA_TYPE_INT32] = 4,
        [CU_TENSOR_MAP_DATA_TYPE_UINT64] = 8,       [CU_TENSOR_MAP_DATA_TYPE_INT64] = 8,
        [CU_TENSOR_MAP_DATA_TYPE_FLOAT16] = 2,      [CU_TENSOR_MAP_DATA_TYPE_FLOAT32] = 4,
        [CU_TENSOR_MAP_DATA_TYPE_FLOAT64] = 8,      [CU_TENSOR_MAP_DATA_TYPE_BFLOAT16] = 2,
        [CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ] = 4,  [CU_TENSOR_MAP_DATA_TYPE_TFLOAT32] = 4,
        [CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ] = 4,
    };
    return (unsigned)type < sizeof bytes ? bytes[type] : 0;
}

/* Returns the bytes of a box's row that a swizzle permutes, 0 for an unsupported swizzle. */
static unsigned span_of(CUtensorMapSwizzle swizzle)
{
    switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_32B:
        return 32;
    case CU_TENSOR_MAP_SWIZZLE_64B:
        return 64;
    case CU_TENSOR_MAP_SWIZZLE_128B:
        return 128;
    default:
        return 0;
    }
}

static bool dimensions_fit(const sim_tensor_map *map, const cuuint64_t *extents, const cuuint64_t *strides,
                           const cuuint32_t *box, const cuuint32_t *steps)
{
    for (unsigned i = 0; i < map->rank; i++) {
        if (extents[i] < 1 || extents[i] > UINT64_C(1) << 32 || box[i] < 1 || box[i] > BOX_MAX ||
            (i > 0 && (steps[i] < 1 || steps[i] > STEP_MAX)))
            return false;
        if (i > 0 && (strides[i - 1] % CHUNK_BYTES != 0 || strides[i - 1] >= UINT64_C(1) << 40))
            return false;
    }
    return true;
}

static void fill_in(sim_tensor_map *map, const cuuint64_t *extents, const cuuint64_t *strides, const cuuint32_t *box)
{
    for (unsigned i = 0; i < map->rank; i++) {
        map->last[i] = (uint32_t)(extents[i] - 1);
        map->box[i] = (uint16_t)box[i];
        if (i > 0)
            map->strides[i - 1] = strides[i - 1];
    }
}

static bool known_steps(unsigned rank, const cuuint32_t *steps)
{
    for (unsigned i = 1; i < rank; i++)
        if (steps[i] != 1)
            return false;
    return true;
}

static uint64_t box_bytes(unsigned rank, const cuuint32_t *box, unsigned elem_bytes)
{
    uint64_t bytes = elem_bytes;
    for (unsigned i = 0; i < rank; i++)
        bytes *= box[i]; /* each at most 256, in five dimensions */
    return bytes;
}

SIM_API CUresult CUDAAPI cuTensorMapEncodeTiled(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank,
                                                void *address, const cuuint64_t *extents, const cuuint64_t *strides,
                                                const cuuint32_t *box, const cuuint32_t *steps,
                                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    CUresult result = sim_enter(true);
    const unsigned elem_bytes = bytes_of(type), span = span_of(swizzle);
    sim_tensor_map map = {.mark = MARK,
                          .address = (uintptr_t)address,
                          .rank = (uint8_t)rank,
                          .elem_bytes = (uint8_t)elem_bytes,
                          .swizzled = (uint8_t)(span / CHUNK_BYTES - (span > 0))};
    if (result == CUDA_SUCCESS && sim_here()->card->sm < 90)
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (result != CUDA_SUCCESS)
        return sim_leave(result);
    if ((uintptr_t)out % SIM_MAP_ALIGN != 0 || rank < 1 || rank > SIM_MAP_RANK || map.address % CHUNK_BYTES != 0 ||
        promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B || !dimensions_fit(&map, extents, strides, box, steps))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || elem_bytes == 0 ||
        (span == 0 && swizzle != CU_TENSOR_MAP_SWIZZLE_NONE) || !known_steps(rank, steps) ||
        fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
        return sim_leave(CUDA_ERROR_NOT_SUPPORTED);
    const unsigned row_bytes = box[0] * elem_bytes;
    if (row_bytes % CHUNK_BYTES != 0 || (span > 0 && row_bytes > span))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    /* The layout of rows shorter than the swizzle's span is unknown here. A larger box fits no block. */
    if ((span > 0 && row_bytes < span) || box_bytes(rank, box, elem_bytes) > BOX_BYTES_MAX)
        return sim_leave(CUDA_ERROR_NOT_SUPPORTED);
    fill_in(&map, extents, strides, box);
    memset(out, 0, sizeof *out);
    memcpy(out, &map, sizeof map);
    return sim_leave(CUDA_SUCCESS);
}
