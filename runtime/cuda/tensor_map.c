/*
 * A map counts dimensions from the fastest: column, sequence, head, batch. A load takes 64 columns, the
 * 128 bytes that the swizzle permutes, of so many rows of one head; what is behind the end of a
 * dimension arrives as zeros.
 */
#include "runtime/cuda/tensor_map.h"

enum { RANK = 4, BOX_COLUMNS = 64, ELEM_BYTES = 2, ANY_STRIDE_BYTES = 16 };

enum { BATCH, SEQ, HEAD };

/* Batches or heads that are the same memory are one to the map, and kernels know it. */
static cuuint64_t extent(const fa2i_view *view, int dimension)
{
    return view->strides[dimension] == 0 ? 1 : (cuuint64_t)view->extents[dimension];
}

/* A stride that is never used may be anything, which the driver does not know. */
static cuuint64_t stride_bytes(const fa2i_view *view, int dimension)
{
    return extent(view, dimension) == 1 ? ANY_STRIDE_BYTES
                                        : (cuuint64_t)view->strides[dimension] * ELEM_BYTES;
}

static CUresult encode(const fa2i_cuda_table *cuda, const fa2_problem *problem,
                       const fa2i_view *view, int rows, CUtensorMap *map)
{
    const cuuint64_t extents[RANK] = {(cuuint64_t)view->columns, extent(view, SEQ),
                                      extent(view, HEAD), extent(view, BATCH)};
    const cuuint64_t strides[RANK - 1] = {stride_bytes(view, SEQ), stride_bytes(view, HEAD),
                                          stride_bytes(view, BATCH)};
    const cuuint32_t box[RANK] = {BOX_COLUMNS, (cuuint32_t)rows, 1, 1};
    static const cuuint32_t every[RANK] = {1, 1, 1, 1};
    return cuda->tensor_map_encode_tiled(
        map,
        problem->dtype == FA2_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                   : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        RANK, (void *)view->address, extents, strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

fa2_status fa2i_maps_encode(const fa2i_cuda_table *cuda, const fa2i_recipe *recipe,
                            const fa2_problem *problem, const fa2i_params *params,
                            CUtensorMap maps[FA2I_RECIPE_MAPS])
{
    for (int i = 0; i < recipe->map_count; i++) {
        fa2i_view view;
        fa2i_op_of(problem)->view(problem, params, recipe->maps[i].operand, &view);
        const CUresult result = encode(cuda, problem, &view, recipe->maps[i].rows, &maps[i]);
        if (result != CUDA_SUCCESS)
            return fa2i_fail_prefix(fa2i_cuda_check(cuda, result, "cuTensorMapEncodeTiled"),
                                    "a tensor map of %s",
                                    fa2i_mapped_word(recipe->maps[i].operand));
    }
    return FA2_OK;
}
