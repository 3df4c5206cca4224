/*
 * Attention over keys in two calls, whose results are merged, against one call, on the software device: elements have
 * the same bits, or neighbouring ones. The first call writes partial results (FA2_PARTIAL_WRITE), the second one
 * carries them on (fa2_problem.carry). All have kernels with whole exponents (templates/forward/softmax.cuh). With one
 * key O is V.
 *
 *     test_merged_bits
 *
 * FA2_SIM_CARD names the card.
 */
#include <cuda.h>
#include <string.h>
#include "tests/check.h"
#include "tests/sim/must.h"
#include "tuner/judge/number.h"

enum { HEADS = 2, COLUMNS = 64 };

static bool is_hopper; /* all kernels have whole exponents */

typedef struct shape {
    const char *family;          /* of the kernel of one call */
    int32_t seq_q, seq_k, first; /* first: the keys of the first call */
    fa2_dtype dtype;
} shape;

static fa2_tensor tensor_of(int32_t rows, size_t element_bytes)
{
    CUdeviceptr memory = 0;
    const size_t bytes = (size_t)rows * HEADS * COLUMNS * element_bytes;
    must_be(cuMemAlloc(&memory, bytes) == CUDA_SUCCESS, "cuMemAlloc");
    cuMemsetD32Async(memory, 0, bytes / 4, NULL);
    return (fa2_tensor){(void *)memory, (int64_t)rows * HEADS * COLUMNS, HEADS * COLUMNS, COLUMNS};
}

/* size: of the numbers, which are the same in each run. */
static fa2_tensor random_tensor(int32_t rows, fa2_dtype dtype, float size, uint32_t *state)
{
    const size_t count = (size_t)rows * HEADS * COLUMNS;
    const fa2_tensor tensor = tensor_of(rows, sizeof(uint16_t));
    uint16_t *bits = calloc(count, sizeof *bits);
    must_be(bits != NULL, "memory");
    for (size_t i = 0; i < count; i++) {
        *state = *state * 1664525u + 1013904223u;
        bits[i] = fa2i_to_bits(dtype, size * ((float)(*state >> 8) / 0x1p23f - 1));
    }
    cuMemcpyHtoD((CUdeviceptr)tensor.data, bits, count * sizeof *bits);
    free(bits);
    return tensor;
}

/* family: of the kernel. */
static void forward(fa2_context *context, const fa2_problem *problem, const char *family, fa2_forward_args args)
{
    CUdeviceptr workspace = 0;
    fa2_explanation e = {.struct_bytes = sizeof e};
    must(fa2_explain(context, problem, &e), "fa2_explain");
    CHECK(strncmp(e.variant, family, strlen(family)) == 0);
    must(fa2_workspace_size(context, problem, &args.workspace_bytes), "fa2_workspace_size");
    if (args.workspace_bytes > 0)
        must_be(cuMemAlloc(&workspace, args.workspace_bytes) == CUDA_SUCCESS, "cuMemAlloc");
    args.workspace = (void *)workspace;
    must(fa2_forward(context, problem, &args, NULL), "fa2_forward");
    must_be(cuCtxSynchronize() == CUDA_SUCCESS, "cuCtxSynchronize");
    cuMemFree(workspace);
}

/* The bits of neighbours of one sign differ by 1. Others, and 0 with both signs, count as far apart. */
static bool are_neighbours(uint16_t a, uint16_t b)
{
    return a == b || a + 1 == b || b + 1 == a;
}

static uint16_t *fetch(const fa2_tensor *tensor, size_t count)
{
    uint16_t *bits = calloc(count, sizeof *bits);
    must_be(bits != NULL, "memory");
    must_be(cuMemcpyDtoH(bits, (CUdeviceptr)tensor->data, count * sizeof *bits) == CUDA_SUCCESS, "cuMemcpyDtoH");
    return bits;
}

static void compare(const fa2_tensor *one, const fa2_tensor *merged, const shape *s)
{
    const size_t count = (size_t)s->seq_q * HEADS * COLUMNS;
    uint16_t *a = fetch(one, count), *b = fetch(merged, count);
    size_t equal = 0, near = 0;
    for (size_t i = 0; i < count; i++) {
        equal += a[i] == b[i];
        near += are_neighbours(a[i], b[i]);
    }
    printf("%s, Sq=%d Sk=%d: of %zu elements %zu are equal, %zu neighbours\n", s->family, s->seq_q, s->seq_k, count,
           equal, near - equal);
    CHECK(equal >= count * 99 / 100);
    CHECK(near >= count - count / 1000); /* an element whose terms nearly cancel may be farther away */
    free(a);
    free(b);
}

/* Attention of one call over all keys. Fills *problem and *args. */
static void run_whole(fa2_context *context, const shape *s, fa2_problem *problem, fa2_forward_args *args)
{
    uint32_t state = 7;
    *problem = (fa2_problem){.struct_bytes = sizeof *problem,
                             .op = FA2_OP_FORWARD,
                             .dtype = s->dtype,
                             .batch = 1,
                             .heads_q = HEADS,
                             .heads_kv = HEADS,
                             .seq_q = s->seq_q,
                             .seq_k = s->seq_k,
                             .head_dim = COLUMNS};
    *args = (fa2_forward_args){.struct_bytes = sizeof *args,
                               .q = random_tensor(s->seq_q, s->dtype, 3, &state),
                               .k = random_tensor(s->seq_k, s->dtype, 3, &state),
                               .v = random_tensor(s->seq_k, s->dtype, 1, &state),
                               .o = tensor_of(s->seq_q, sizeof(uint16_t))};
    forward(context, problem, s->family, *args);
}

/* The keys of two calls. */
static void run_merged(fa2_context *context, const shape *s)
{
    fa2_problem problem;
    fa2_forward_args args;
    CUdeviceptr lse = 0;
    run_whole(context, s, &problem, &args);
    const fa2_tensor one = args.o;

    must_be(cuMemAlloc(&lse, sizeof(float) * HEADS * (size_t)s->seq_q) == CUDA_SUCCESS, "cuMemAlloc");
    args.lse = (float *)lse;
    args.o = tensor_of(s->seq_q, sizeof(float));
    problem.seq_k = s->first;
    problem.partial = FA2_PARTIAL_WRITE;
    forward(context, &problem, is_hopper ? "fwd_" : s->family, args);

    const size_t row = HEADS * COLUMNS * sizeof(uint16_t), skipped = (size_t)s->first * row;
    args.carried = args.o;
    args.o = tensor_of(s->seq_q, sizeof(uint16_t));
    args.k.data = (char *)args.k.data + skipped;
    args.v.data = (char *)args.v.data + skipped;
    problem.seq_k = s->seq_k - s->first;
    problem.partial = FA2_PARTIAL_NONE;
    problem.carry = 1;
    forward(context, &problem, is_hopper ? "fwd_" : s->family, args);
    compare(&one, &args.o, s);
}

/* One key: rows of O are the row of V, to the bit. */
static void run_only_key(fa2_context *context, const shape *s)
{
    const size_t row = HEADS * COLUMNS;
    fa2_problem problem;
    fa2_forward_args args;
    run_whole(context, s, &problem, &args);
    uint16_t *o = fetch(&args.o, row * (size_t)s->seq_q), *v = fetch(&args.v, row);
    for (int32_t i = 0; i < s->seq_q; i++)
        CHECK(memcmp(o + row * (size_t)i, v, row * sizeof *v) == 0);
    free(o);
    free(v);
}

int main(void)
{
    static const shape shapes[] = {{"fwd_sm90", 192, 448, 192, FA2_BF16},  {"fwd_sm90", 128, 320, 64, FA2_FP16},
                                   {"fwd_splitkv", 3, 700, 300, FA2_BF16}, {"fwd_splitkv", 2, 900, 128, FA2_FP16},
                                   {"fwd_", 192, 1, 0, FA2_BF16},          {"fwd_", 1, 1, 0, FA2_BF16}};
    const char *card = getenv("FA2_SIM_CARD");
    is_hopper = card != NULL && strcmp(card, "h200") == 0;
    const fa2_config config = {.struct_bytes = sizeof config, .database = "", .device_plus_one = 1};
    fa2_context *context = NULL;
    must(fa2_context_create(&config, &context), "fa2_context_create");
    CUcontext primary = NULL;
    cuDevicePrimaryCtxRetain(&primary, 0);
    cuCtxPushCurrent(primary);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (shapes[i].seq_k == 1)
            run_only_key(context, &shapes[i]);
        else if (is_hopper || strcmp(shapes[i].family, "fwd_splitkv") == 0)
            run_merged(context, &shapes[i]);
    fa2_context_destroy(context);
    return check_done();
}
