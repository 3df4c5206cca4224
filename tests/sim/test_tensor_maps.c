/*
 * Tensor copies in both directions, with each swizzle and across all ends of a tensor; forbidden copies; and maps that
 * cuTensorMapEncodeTiled refuses.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/check.h"
#include "tests/sim/asynchronous.h"

/* ---- tensors ---- */

/* A tensor of 16-bit numbers. The box has 1024 bytes, a word for each of 256 threads. */
typedef struct tensor_case {
    CUtensorMapSwizzle swizzle;
    unsigned chunks;      /* that the swizzle permutes; 1: none */
    unsigned box_columns; /* the box has as many rows as there is room for */
    int32_t at[4];
} tensor_case;

static const tensor_case tensor_cases[] = {
    {CU_TENSOR_MAP_SWIZZLE_NONE, 1, 64, {0, 0, 0, 0}},
    {CU_TENSOR_MAP_SWIZZLE_128B, 8, 64, {0, 0, 0, 0}},
    {CU_TENSOR_MAP_SWIZZLE_64B, 4, 32, {0, 0, 1, 0}},
    {CU_TENSOR_MAP_SWIZZLE_32B, 2, 16, {0, 0, 0, 1}},
    {CU_TENSOR_MAP_SWIZZLE_128B, 8, 64, {32, 3, 1, 1}}, /* over the ends of rows and columns */
    {CU_TENSOR_MAP_SWIZZLE_128B, 8, 64, {-5, -2, 1, 0}},
    {CU_TENSOR_MAP_SWIZZLE_64B, 4, 32, {8, 2, 2, 0}}, /* all outside */
    {CU_TENSOR_MAP_SWIZZLE_128B, 8, 64, {0, 0, 0, -1}},
};
enum { COLUMNS = 40, ROWS = 6, HEADS = 2, BATCHES = 2, PITCH = 48, BOX_WORDS = 256 };
enum { ELEMENTS = BATCHES * HEADS * ROWS * PITCH };

static CUresult encode(const tensor_case *c, CUdeviceptr tensor, CUtensorMap *map)
{
    const cuuint64_t extents[] = {COLUMNS, ROWS, HEADS, BATCHES};
    const cuuint64_t strides[] = {PITCH * 2, ROWS * PITCH * 2, HEADS * ROWS * PITCH * 2};
    const cuuint32_t box[] = {c->box_columns, 2 * BOX_WORDS / c->box_columns, 1, 1};
    const cuuint32_t every[] = {1, 1, 1, 1};
    return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, (void *)(uintptr_t)tensor, extents, strides,
                                  box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, c->swizzle,
                                  CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

/* Returns the place of a box's element in shared memory, in elements. */
static unsigned place_of(const tensor_case *c, unsigned row, unsigned column)
{
    const unsigned byte = (row * c->box_columns + column) * 2, line = byte / 128;
    return (byte ^ (line % c->chunks * 16)) / 2;
}

/* Returns its place in the tensor, -1 if it is outside. */
static int element_of(const tensor_case *c, unsigned row, unsigned column)
{
    const int x = c->at[0] + (int)column, y = c->at[1] + (int)row;
    const bool inside = x >= 0 && x < COLUMNS && y >= 0 && y < ROWS && c->at[2] >= 0 && c->at[2] < HEADS &&
                        c->at[3] >= 0 && c->at[3] < BATCHES;
    return inside ? ((c->at[3] * HEADS + c->at[2]) * ROWS + y) * PITCH + x : -1;
}

static CUresult run_tensor(const tensor_case *c, const char *body, uint16_t tensor[ELEMENTS],
                           uint32_t out[ASYNC_THREADS_MAX])
{
    uint32_t in[ASYNC_IN_WORDS];
    CUtensorMap map;
    CUdeviceptr memory = 0;
    async_fill(in);
    memcpy(in + 200, c->at, sizeof c->at);
    bench_open("h200");
    CUresult result = cuMemAlloc(&memory, ELEMENTS * 2);
    if (result == CUDA_SUCCESS)
        result = cuMemcpyHtoD(memory, tensor, ELEMENTS * 2);
    if (result == CUDA_SUCCESS)
        result = encode(c, memory, &map);
    if (result == CUDA_SUCCESS)
        result = async_launch(&(async_run){.body = body, .threads = BOX_WORDS, .map = &map, .in = in, .out = out});
    if (result == CUDA_SUCCESS)
        result = cuMemcpyDtoH(tensor, memory, ELEMENTS * 2);
    return result;
}

#define LOAD_BOX                                                                                                       \
    "@%p1 cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "                           \
    "[%r20], [%rd4, {%r24, %r25, %r26, %r27}], [%r21];"
#define STORE_BOX                                                                                                      \
    "@%p1 cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group "                                                 \
    "[%rd4, {%r24, %r25, %r26, %r27}], [%r20];"
#define COMMIT     "@%p1 cp.async.bulk.commit_group;"
#define WAIT_READ  "@%p1 cp.async.bulk.wait_group.read 0;"
#define FILLED_BOX WRITE FENCE "bar.sync 0;"

static void test_tensor_loads(void)
{
    for (size_t i = 0; i < sizeof tensor_cases / sizeof *tensor_cases; i++) {
        const tensor_case *c = &tensor_cases[i];
        uint16_t tensor[ELEMENTS], box[2 * BOX_WORDS];
        uint32_t out[ASYNC_THREADS_MAX];
        int wrong = 0;
        for (int e = 0; e < ELEMENTS; e++)
            tensor[e] = (uint16_t)(e + 1);
        CHECK_EQ(run_tensor(c, MAKE("1") EXPECT("1024") LOAD_BOX WAIT("0") READ, tensor, out), CUDA_SUCCESS);
        memcpy(box, out, sizeof box);
        for (unsigned e = 0; e < 2 * BOX_WORDS; e++) {
            const unsigned row = e / c->box_columns, column = e % c->box_columns;
            const int from = element_of(c, row, column);
            wrong += box[place_of(c, row, column)] != (from < 0 ? 0 : tensor[from]);
        }
        CHECK_EQ(wrong, 0);
    }
}

static void test_tensor_stores(void)
{
    for (size_t i = 0; i < sizeof tensor_cases / sizeof *tensor_cases; i++) {
        const tensor_case *c = &tensor_cases[i];
        uint16_t tensor[ELEMENTS], wanted[ELEMENTS], box[2 * BOX_WORDS];
        uint32_t out[ASYNC_THREADS_MAX];
        memset(tensor, 0x5a, sizeof tensor);
        memcpy(wanted, tensor, sizeof tensor);
        for (uint32_t word = 0; word < BOX_WORDS; word++)
            memcpy(box + 2 * word, &word, 4);
        for (unsigned e = 0; e < 2 * BOX_WORDS; e++) {
            const unsigned row = e / c->box_columns, column = e % c->box_columns;
            const int to = element_of(c, row, column);
            if (to >= 0)
                wanted[to] = box[place_of(c, row, column)];
        }
        CHECK_EQ(run_tensor(c, FILLED_BOX STORE_BOX COMMIT WAIT_READ, tensor, out), CUDA_SUCCESS);
        CHECK(memcmp(tensor, wanted, sizeof tensor) == 0);
    }
}

static void test_tensor_rules(void)
{
    static const struct {
        const char *body;
        CUresult error;
        const char *said;
    } wrong[] = {
        {WRITE "bar.sync 0;" STORE_BOX COMMIT WAIT_READ, CUDA_ERROR_LAUNCH_FAILED,
         "proxy: it reads shared memory at offset 0"},
        {FILLED_BOX STORE_BOX COMMIT, CUDA_ERROR_LAUNCH_FAILED, "early: the thread ends"},
        {FILLED_BOX STORE_BOX WAIT_READ, CUDA_ERROR_LAUNCH_FAILED, "early: the thread ends"},
        {FILLED_BOX STORE_BOX COMMIT "@%p1 " WRITE WAIT_READ, CUDA_ERROR_LAUNCH_FAILED,
         "race: it writes shared memory at offset 0, read"},
        {FILLED_BOX STORE_BOX COMMIT WAIT_READ "bar.sync 0;" WRITE, CUDA_SUCCESS, ""},
        {STORE_BOX COMMIT WAIT_READ, CUDA_ERROR_LAUNCH_FAILED, "uninitialised"},
        {MAKE("1") "add.s32 %r20, %r20, 64;" EXPECT("1024") LOAD_BOX WAIT("0"), CUDA_ERROR_MISALIGNED_ADDRESS,
         "the destination"},
        {MAKE("1") "add.s64 %rd4, %rd4, 8;" EXPECT("1024") LOAD_BOX WAIT("0"), CUDA_ERROR_MISALIGNED_ADDRESS,
         "the address of the tensor map"},
        {MAKE("1") "mov.b64 %rd4, %rd1;" EXPECT("1024") LOAD_BOX WAIT("0"), CUDA_ERROR_NOT_SUPPORTED,
         "no parameter of the kernel"},
        {MAKE("1") "add.s64 %rd4, %rd4, 64;" EXPECT("1024") LOAD_BOX WAIT("0"), CUDA_ERROR_LAUNCH_FAILED,
         "there is no tensor map of rank 4"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint16_t tensor[ELEMENTS] = {0};
        uint32_t out[ASYNC_THREADS_MAX];
        CHECK_EQ(run_tensor(&tensor_cases[1], wrong[i].body, tensor, out), wrong[i].error);
        CHECK_CONTAINS(fa2_sim_message(), wrong[i].said);
    }
}

/* ---- maps ---- */

/* A valid map, and maps with one error each. */
static void test_maps(void)
{
    enum {
        RIGHT,
        ADDRESS,
        RANK_0,
        RANK_6,
        EXTENT_0,
        EXTENT,
        STRIDE,
        STRIDE_LARGE,
        BOX_0,
        BOX_LARGE,
        BOX_ROW,
        BOX_SPAN,
        STEP_0,
        MAP,
        PACKED,
        STEP,
        INTERLEAVE,
        FILL,
        ROW_SHORT,
        CASES
    };
    for (int wrong = RIGHT; wrong < CASES; wrong++) {
        _Alignas(64) unsigned char place[256];
        cuuint64_t extents[] = {40, (cuuint64_t)1 << 32}, strides[] = {96};
        cuuint32_t box[] = {64, 256}, steps[] = {1, 1};
        extents[0] = wrong == EXTENT_0 ? 0 : extents[0];
        extents[1] += wrong == EXTENT;
        strides[0] = wrong == STRIDE ? 104 : wrong == STRIDE_LARGE ? (cuuint64_t)1 << 40 : 96;
        box[0] = wrong == BOX_ROW ? 60 : wrong == BOX_SPAN ? 72 : wrong == ROW_SHORT ? 32 : 64;
        box[1] = wrong == BOX_0 ? 0 : wrong == BOX_LARGE ? 257 : 256;
        steps[1] = wrong == STEP_0 ? 0 : wrong == STEP ? 2 : 1;
        bench_open("h200");
        const CUresult result = cuTensorMapEncodeTiled(
            (CUtensorMap *)(void *)(place + (wrong == MAP ? 32 : 0)),
            wrong == PACKED ? CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            wrong == RANK_0   ? 0
            : wrong == RANK_6 ? 6
                              : 2,
            (void *)(uintptr_t)(wrong == ADDRESS ? 1032 : 1024), extents, strides, box, steps,
            wrong == INTERLEAVE ? CU_TENSOR_MAP_INTERLEAVE_16B : CU_TENSOR_MAP_INTERLEAVE_NONE,
            CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            wrong == FILL ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        CHECK_EQ(result, wrong == RIGHT   ? CUDA_SUCCESS
                         : wrong < PACKED ? CUDA_ERROR_INVALID_VALUE
                                          : CUDA_ERROR_NOT_SUPPORTED);
    }
    CUtensorMap map;
    bench_open("a100");
    CHECK_EQ(encode(&tensor_cases[0], 1024, &map), CUDA_ERROR_NOT_SUPPORTED);
}

int main(void)
{
    test_tensor_loads();
    test_tensor_stores();
    test_tensor_rules();
    test_maps();
    return check_done();
}
