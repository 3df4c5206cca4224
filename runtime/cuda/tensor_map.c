/*
 * A map's dimensions begin with the fastest: column, sequence, head, batch. A load takes a box of 64 columns, which are
 * the 128 bytes that the swizzle permutes, and some rows of one head. Elements beyond the end of a dimension arrive as
 * zeros.
 *
 * Checked arguments meet all requirements of cuTensorMapEncodeTiled except one. Strides are multiples of 16 bytes and
 * extents are below 2^31, but a stride can be 2^40 bytes or more. So all strides together are tested before a launch,
 * because hardly any call has such a stride.
 *
 * The key of a map is its contents. Kept maps are in sets that a hash selects; in each set the oldest map is replaced.
 * This works because the tensors of a layer come again with the next step, and a layer has three.
 */
#include "runtime/cuda/tensor_map.h"

#include <stdatomic.h>
#include <string.h>
#include "runtime/base/alloc.h"

enum {
    RANK = 4,
    BOX_COLUMNS = 64,
    ELEM_BYTES = 2,
    ANY_STRIDE_BYTES = 16,
    SET_BITS = 6,
    WAYS = 4 /* 256 maps, 51 KB */
};

enum { BATCH, SEQ, HEAD };

#define STRIDE_END_BYTES (UINT64_C(1) << 40)

/* A key has no padding, because keys are compared as bytes. */
typedef struct map_key {
    cuuint64_t address, extents[RANK], strides[RANK - 1]; /* strides: bytes */
    cuuint32_t rows, type;                                /* rows: of a box; type: a CUtensorMapDataType */
} map_key;
_Static_assert(sizeof(map_key) == 9 * sizeof(cuuint64_t), "a key has no padding");

/* Stored instead of CUtensorMap, because allocations lack the alignment that CUtensorMap needs. */
typedef struct map_bytes {
    unsigned char bytes[sizeof(CUtensorMap)];
} map_bytes;

typedef struct map_set {
    map_bytes maps[WAYS];
    map_key keys[WAYS]; /* address 0: empty */
    unsigned oldest;
} map_set;

struct fa2i_kept_maps {
    atomic_flag busy;
    map_set sets[1 << SET_BITS];
};

fa2i_kept_maps *fa2i_kept_maps_create(void)
{
    fa2i_kept_maps *kept = fa2i_alloc(sizeof *kept);
    if (kept == NULL)
        (void)fa2i_fail(FA2_E_MEMORY, "no memory for the tensor maps of a kernel");
    else
        atomic_flag_clear(&kept->busy);
    return kept;
}

void fa2i_kept_maps_destroy(fa2i_kept_maps *kept)
{
    fa2i_free(kept);
}

/* Batches or heads with stride 0 share memory. The map has one of them, and kernels know that. */
static cuuint64_t extent(const fa2i_view *view, int dimension)
{
    return view->strides[dimension] == 0 ? 1 : (cuuint64_t)view->extents[dimension];
}

/* The stride of a dimension of extent 1 is never used, and may be anything. The driver still checks it. */
static cuuint64_t stride_bytes(const fa2i_view *view, int dimension)
{
    return extent(view, dimension) == 1 ? ANY_STRIDE_BYTES : (cuuint64_t)view->strides[dimension] * ELEM_BYTES;
}

static bool has_map(const fa2i_view *view)
{
    return stride_bytes(view, BATCH) < STRIDE_END_BYTES && stride_bytes(view, SEQ) < STRIDE_END_BYTES &&
           stride_bytes(view, HEAD) < STRIDE_END_BYTES;
}

/* Returns whether all operands that the kernel reads by maps have them. This looks at the parameters that the kernel
 * would get. */
static bool have_maps(const fa2i_recipe *recipe, const fa2i_grid *grid, const fa2_problem *problem, const void *args)
{
    const fa2i_op *op = fa2i_op_of(problem);
    bool all = true;
    fa2i_params params;
    op->fill(grid, problem, args, &params);
    for (int i = 0; i < recipe->map_count; i++) {
        fa2i_view view;
        op->view(problem, &params, recipe->maps[i].operand, &view);
        all &= view.columns == 0 || has_map(&view);
    }
    return all;
}

static bool maps_bias(const fa2i_recipe *recipe)
{
    bool does = false;
    for (int i = 0; i < recipe->map_count; i++)
        does |= recipe->maps[i].operand == FA2I_MAPPED_BIAS;
    return does;
}

fa2i_maps_service fa2i_maps_serve(const fa2i_recipe *recipe, const fa2i_grid *grid, const fa2_problem *problem,
                                  const void *args)
{
    if (recipe->map_count == 0)
        return FA2I_MAPS_SERVE;
    const fa2i_op *op = fa2i_op_of(problem);
    if (op->strides(problem, args) >= STRIDE_END_BYTES / ELEM_BYTES && !have_maps(recipe, grid, problem, args))
        return FA2I_MAPS_DO_NOT_SERVE;
    if (op->is_scattered != NULL && op->is_scattered(problem, args) && maps_bias(recipe))
        return FA2I_MAPS_SERVE_SLOWLY;
    return FA2I_MAPS_SERVE;
}

static map_key key_of(const fa2_problem *problem, const fa2i_view *view, int rows)
{
    return (map_key){
        .address = view->address,
        .extents = {(cuuint64_t)view->columns, extent(view, SEQ), extent(view, HEAD), extent(view, BATCH)},
        .strides = {stride_bytes(view, SEQ), stride_bytes(view, HEAD), stride_bytes(view, BATCH)},
        .rows = (cuuint32_t)rows,
        .type = problem->dtype == FA2_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    };
}

/* Selects a set by address and shape. Tensors of a model differ in address; views of one tensor may differ only in
 * extents and strides. */
static map_set *set_of(fa2i_kept_maps *kept, const map_key *key)
{
    static const uint64_t spread = UINT64_C(0x9e3779b97f4a7c15); /* 2^64 / golden ratio */
    const uint64_t shape = key->extents[1] ^ key->strides[0] << 20 ^ key->strides[2] << 32;
    return &kept->sets[((key->address ^ shape) * spread) >> (64 - SET_BITS)];
}

static CUresult encode(const fa2i_cuda_table *cuda, const map_key *key, CUtensorMap *map)
{
    const cuuint32_t box[RANK] = {BOX_COLUMNS, key->rows, 1, 1};
    static const cuuint32_t every[RANK] = {1, 1, 1, 1};
    return cuda->tensor_map_encode_tiled(map, (CUtensorMapDataType)key->type, RANK, (void *)(uintptr_t)key->address,
                                         key->extents, key->strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                         CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

/* Finds or encodes a map. The calling thread owns the table. A map that fails is not kept. */
static CUresult find_or_encode(const fa2i_cuda_table *cuda, fa2i_kept_maps *kept, const map_key *key, CUtensorMap *map)
{
    map_set *set = set_of(kept, key);
    for (int i = 0; i < WAYS; i++) {
        if (memcmp(&set->keys[i], key, sizeof *key) == 0) {
            memcpy(map, &set->maps[i], sizeof *map);
            return CUDA_SUCCESS;
        }
    }
    const CUresult result = encode(cuda, key, map);
    if (result == CUDA_SUCCESS) {
        memcpy(&set->maps[set->oldest], map, sizeof *map);
        set->keys[set->oldest] = *key;
        set->oldest = (set->oldest + 1) % WAYS;
    }
    return result;
}

fa2_status fa2i_maps_get(const fa2i_cuda_table *cuda, fa2i_kept_maps *kept, const fa2i_recipe *recipe,
                         const fa2_problem *problem, const fa2i_params *params, CUtensorMap maps[FA2I_RECIPE_MAPS])
{
    CUresult result = CUDA_SUCCESS;
    int i = 0;
    const bool mine = kept != NULL && !atomic_flag_test_and_set_explicit(&kept->busy, memory_order_acquire);
    for (; i < recipe->map_count && result == CUDA_SUCCESS; i++) {
        fa2i_view view;
        fa2i_op_of(problem)->view(problem, params, recipe->maps[i].operand, &view);
        if (view.columns == 0) {
            memset(&maps[i], 0, sizeof maps[i]);
            continue;
        }
        const map_key key = key_of(problem, &view, recipe->maps[i].rows);
        result = mine ? find_or_encode(cuda, kept, &key, &maps[i]) : encode(cuda, &key, &maps[i]);
    }
    if (mine)
        atomic_flag_clear_explicit(&kept->busy, memory_order_release);
    if (result == CUDA_SUCCESS)
        return FA2_OK;
    const fa2_status st = fa2i_cuda_check(cuda, result, "cuTensorMapEncodeTiled");
    return fa2i_fail_prefix(st, "a tensor map of %s", fa2i_mapped_word(recipe->maps[i - 1].operand));
}
