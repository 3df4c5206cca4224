/*
 * Attention over keys in two calls, whose results are merged, against one call, on the software device: elements have
 * the same bits, or neighbouring ones. The first call writes partial results (FA2_PARTIAL_WRITE), the second one
 * carries them on (fa2_problem.carry). All have kernels with whole exponents (templates/forward/softmax.cuh). With one
 * key O is V. With ALiBi, scores are nearly the same in fp32, too, although tiles and calls add it in other ways.
 *
 *     test_merged_bits
 *
 * FA2_SIM_CARD names the card.
 */
#include <cuda.h>
#include <math.h>
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

/* Fills *problem and *args for attention of one call over all keys. size: of the numbers of Q and K. */
static void make_whole(const shape *s, float size, fa2_problem *problem, fa2_forward_args *args)
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
                               .q = random_tensor(s->seq_q, s->dtype, size, &state),
                               .k = random_tensor(s->seq_k, s->dtype, size, &state),
                               .v = random_tensor(s->seq_k, s->dtype, 1, &state),
                               .o = tensor_of(s->seq_q, sizeof(uint16_t))};
}

static void run_whole(fa2_context *context, const shape *s, fa2_problem *problem, fa2_forward_args *args)
{
    make_whole(s, 3, problem, args);
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

/* ---- ALiBi: half of the rows of causal sequences, over their own keys and then over the other half's ---- */

typedef struct alibi_case {
    const char *family;         /* of the kernel of one call */
    int32_t batch, rows, every; /* every: 1: the rows are the second half. 2: every second row */
    fa2_dtype dtype;
} alibi_case;

/* Returns where row i of the half is among all rows. */
static int32_t row_in_one(const alibi_case *c, int32_t i)
{
    return c->every == 2 ? 2 * i + 1 : c->rows / 2 + i;
}

static fa2_tensor of_sequences(fa2_tensor tensor, int32_t batch)
{
    tensor.stride_batch /= batch;
    return tensor;
}

static fa2_tensor rows_of(const alibi_case *c, fa2_tensor tensor, int32_t first)
{
    tensor.data = (char *)tensor.data + (size_t)(first * tensor.stride_seq) * sizeof(uint16_t);
    tensor.stride_seq *= c->every;
    return tensor;
}

/* first_k: the place of the first key. */
static void forward_half(fa2_context *context, const alibi_case *c, fa2_problem problem, fa2_forward_args args,
                         int32_t first_k)
{
    problem.seq_q = problem.seq_k = c->rows / 2;
    problem.causal = c->every == 2 || first_k == row_in_one(c, 0);
    args.q = rows_of(c, args.q, row_in_one(c, 0));
    args.k = rows_of(c, args.k, first_k);
    args.v = rows_of(c, args.v, first_k);
    args.distance_shift = (float)(row_in_one(c, 0) - first_k) / (float)c->every;
    forward(context, &problem, is_hopper ? "fwd_" : c->family, args);
}

/* Prints how many elements differ, and by how many roundings: of their own size, or of the head's ordinary one (its
 * root mean square) if that is larger. */
static void compare_alibi(const alibi_case *c, const fa2_tensor *one, const fa2_tensor *halves)
{
    const size_t rows = (size_t)(c->batch * c->rows), row = HEADS * COLUMNS, half = (size_t)c->rows / 2;
    uint16_t *whole = fetch(one, rows * row), *parts = fetch(halves, rows / 2 * row);
    size_t differ = 0;
    double most = 0;
    for (size_t head = 0; head < HEADS; head++) {
        double squares = 0;
        for (size_t i = 0; i < rows * COLUMNS; i++)
            squares += pow(fa2i_from_bits(c->dtype, whole[i / COLUMNS * row + head * COLUMNS + i % COLUMNS]), 2);
        const double ordinary = sqrt(squares / (double)(rows * COLUMNS));
        for (size_t i = 0; i < rows / 2 * COLUMNS; i++) {
            const size_t at = i / COLUMNS, in_row = head * COLUMNS + i % COLUMNS;
            const size_t in_one = at / half * 2 * half + (size_t)row_in_one(c, (int32_t)(at % half));
            const double x = fa2i_from_bits(c->dtype, whole[in_one * row + in_row]);
            const double y = fa2i_from_bits(c->dtype, parts[at * row + in_row]);
            const double size = fmax(ordinary, fmax(fabs(x), fabs(y)));
            differ += x != y;
            most = fmax(most, fabs(x - y) / (2 * fa2i_half_unit(c->dtype, size)));
        }
    }
    printf("%s, ALiBi, %d * %d rows, every %d: of %zu elements %zu differ, by %.2f roundings at most\n", c->family,
           c->batch, c->rows, c->every, rows / 2 * row, differ, most);
    CHECK(differ <= rows / 2 * row / 500);
    CHECK(most <= 1);
    free(whole);
    free(parts);
}

/* LSE shows how precisely scores are the same: to one or two roundings of fp32. */
static void compare_lse(const alibi_case *c, const float *one, const float *halves)
{
    const int32_t rows = c->rows, half = rows / 2;
    double most = 0;
    for (int32_t i = 0; i < c->batch * HEADS * half; i++)
        most = fmax(most, fabs(one[i / half * rows + row_in_one(c, i % half)] - halves[i]));
    printf("    LSE differs by %.2f * 2^-22 at most\n", most * 0x1p22);
    CHECK(most <= 0x1p-20);
}

static float *fetch_lse(const float *lse, size_t count)
{
    float *numbers = calloc(count, sizeof *numbers);
    must_be(numbers != NULL, "memory");
    must_be(cuMemcpyDtoH(numbers, (CUdeviceptr)lse, count * sizeof *numbers) == CUDA_SUCCESS, "cuMemcpyDtoH");
    return numbers;
}

/* Fills *problem and *args for attention of one call. */
static void make_alibi(const alibi_case *c, fa2_problem *problem, fa2_forward_args *args)
{
    CUdeviceptr lse = 0, slopes = 0;
    const float of_heads[2][HEADS] = {{0.9f, 0.13f}, {1.8f, 0.26f}}; /* the second ones for every second row */
    const int32_t rows = c->batch * c->rows;
    make_whole(&(shape){c->family, rows, rows, 0, c->dtype}, 1.7f, problem, args);
    problem->seq_q = problem->seq_k = c->rows;
    problem->batch = c->batch;
    problem->causal = problem->alibi = 1;
    fa2_tensor *const tensors[] = {&args->q, &args->k, &args->v, &args->o};
    for (size_t i = 0; i < 4; i++)
        *tensors[i] = of_sequences(*tensors[i], c->batch);
    must_be(cuMemAlloc(&slopes, sizeof of_heads) == CUDA_SUCCESS, "cuMemAlloc");
    must_be(cuMemAlloc(&lse, sizeof(float) * HEADS * (size_t)rows) == CUDA_SUCCESS, "cuMemAlloc");
    cuMemcpyHtoD(slopes, of_heads, sizeof of_heads);
    args->alibi.slopes = (const float *)slopes;
    args->lse = (float *)lse;
}

static void run_alibi(fa2_context *context, const alibi_case *c)
{
    fa2_problem problem;
    fa2_forward_args args;
    const int32_t rows = c->batch * c->rows;
    make_alibi(c, &problem, &args);
    forward(context, &problem, c->family, args);
    const fa2_tensor one = args.o;
    float *lse_of_one = fetch_lse(args.lse, HEADS * (size_t)rows);

    args.o = of_sequences(tensor_of(rows / 2, sizeof(float)), c->batch);
    args.alibi.slopes += (c->every - 1) * HEADS;
    problem.partial = FA2_PARTIAL_WRITE;
    forward_half(context, c, problem, args, row_in_one(c, 0));
    args.carried = args.o;
    args.o = of_sequences(tensor_of(rows / 2, sizeof(uint16_t)), c->batch);
    problem.partial = FA2_PARTIAL_NONE;
    problem.carry = 1;
    forward_half(context, c, problem, args, 0);
    float *lse_of_halves = fetch_lse(args.lse, HEADS * (size_t)rows / 2);
    compare_alibi(c, &one, &args.o);
    compare_lse(c, lse_of_one, lse_of_halves);
    free(lse_of_one);
    free(lse_of_halves);
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
    static const alibi_case alibi_cases[] = {
        {"fwd_sm90", 12, 512, 1, FA2_BF16},    {"fwd_sm90", 12, 512, 2, FA2_BF16},
        {"fwd_sm90", 12, 512, 1, FA2_FP16},    {"fwd_sm90", 12, 512, 2, FA2_FP16},
        {"fwd_splitkv", 1, 1024, 1, FA2_BF16}, {"fwd_splitkv", 1, 1024, 2, FA2_FP16}};
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
    for (size_t i = 0; i < sizeof alibi_cases / sizeof *alibi_cases; i++)
        if (is_hopper || strcmp(alibi_cases[i].family, "fwd_splitkv") == 0)
            run_alibi(context, &alibi_cases[i]);
    fa2_context_destroy(context);
    return check_done();
}
