/*
 * Q K^T in 8-bit integers on the software device: how exact the results are, and what NaN does.
 *
 *     test_int8
 *
 * - Queries and keys that have one column each: a query must find the key that has the same column.
 * - Relative L1 distance of O from fp64 with 2048 keys, and the largest error of LSE: for normal numbers, for K whose
 *   columns have means, and for numbers with outliers. The same rounding with numbers in fp64, by another program, gave
 *   1.03 to 1.07 % and, with outliers, 2.7 to 3.2 %.
 * - What fa2_read_rounding counts: all numbers of K, those that become 0, the largest one. The same from the host's
 *   numbers. Also for K with a column 100 times as large, of which most numbers become 0.
 * - A key with a NaN: a query that sees it gets NaN. A query that sees none of the keys of its scale does not.
 */
#include <stdlib.h>
#include <string.h>
#include "runtime/cuda/rounding.h"
#include "tests/check.h"
#include "tests/sim/one_kernel.h"
#include "tuner/judge/number.h"

enum { D = 128, QUERIES = 256, KEYS = 2048, Q_ELEMS = QUERIES * D, K_ELEMS = KEYS * D };

typedef struct buffer {
    CUdeviceptr at;
    uint16_t host[K_ELEMS];
} buffer;

static fa2i_device device;
static fa2i_loaded plain, causal;
static buffer q, k, v, o;
static CUdeviceptr lse_at;
static float lse[QUERIES];
static fa2_rounding lost; /* by the last launch */

/* ---- the kernel ---- */

static void load(fa2i_generator *generator, int is_causal, fa2i_loaded *ret_loaded)
{
    char text[256];
    const bool turing = device.card.arch == 75;
    snprintf(text, sizeof text,
             "fwd_sm%d d=%d dtype=fp16 causal=%d scores=int8 br=64 bc=64 warps=4 kstages=%d vstages=%d layout=swizzle "
             "q=reg fill=whole qk=int8",
             turing ? 75 : 80, D, is_causal, turing ? 1 : 2, turing ? 1 : 2);
    one_load(&device, generator, text, ret_loaded);
}

static fa2_tensor tensor(const buffer *b)
{
    return (fa2_tensor){(void *)b->at, 0, D, D};
}

static void launch(const fa2i_loaded *loaded, int32_t keys)
{
    const fa2_problem problem = {.struct_bytes = sizeof problem,
                                 .batch = 1,
                                 .heads_q = 1,
                                 .heads_kv = 1,
                                 .seq_q = QUERIES,
                                 .seq_k = keys,
                                 .head_dim = D,
                                 .causal = loaded == &causal,
                                 .scores = FA2_SCORES_INT8};
    fa2i_grid grid = {0};
    must(fa2i_op_of(&problem)->grid(&device.card, &loaded->variant.recipe, &problem, &grid), "the grid");
    const CUdeviceptr workspace = one_allocate(grid.workspace_bytes);
    const fa2_forward_args args = {.struct_bytes = sizeof args,
                                   .q = tensor(&q),
                                   .k = tensor(&k),
                                   .v = tensor(&v),
                                   .o = tensor(&o),
                                   .lse = (float *)lse_at,
                                   .workspace = (void *)workspace,
                                   .workspace_bytes = grid.workspace_bytes};
    must_be(cuMemcpyHtoD(q.at, q.host, sizeof(uint16_t) * Q_ELEMS) == CUDA_SUCCESS &&
                cuMemcpyHtoD(k.at, k.host, sizeof k.host) == CUDA_SUCCESS &&
                cuMemcpyHtoD(v.at, v.host, sizeof v.host) == CUDA_SUCCESS,
            "cuMemcpyHtoD");
    must(fa2i_op_of(&problem)->check_args(&problem, &args, &grid), "the arguments");
    must(fa2i_launch(&device, loaded, &grid, &problem, &args, NULL), "the launch");
    must(fa2i_rounding_read(&device, &loaded->variant.recipe, &problem, args.workspace, NULL, &lost), "the counts");
    must_be(cuCtxSynchronize() == CUDA_SUCCESS &&
                cuMemcpyDtoH(o.host, o.at, sizeof(uint16_t) * Q_ELEMS) == CUDA_SUCCESS &&
                cuMemcpyDtoH(lse, lse_at, sizeof lse) == CUDA_SUCCESS && cuMemFree(workspace) == CUDA_SUCCESS,
            "the results");
}

/* ---- numbers ---- */

static uint64_t state = 5;

static double number(const buffer *b, int row, int column)
{
    return (double)fa2i_from_bits(FA2_FP16, b->host[row * D + column]);
}

static void put(buffer *b, int row, int column, double x)
{
    b->host[row * D + column] = fa2i_to_bits(FA2_FP16, (float)x);
}

typedef enum numbers { NORMAL, MEANS, OUTLIERS } numbers;

static void draw(buffer *b, numbers which, int rows)
{
    double means[D] = {0};
    for (int c = 0; which == MEANS && b == &k && c < D; c++)
        means[c] = c == 17 ? 12 : c == 90 ? -9 : 2 * one_normal(&state);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < D; c++)
            put(b, r, c,
                one_normal(&state) + means[c] +
                    (which == OUTLIERS && one_uniform(&state) < 1e-3 ? 10 * one_normal(&state) : 0));
}

/* ---- tests ---- */

static void test_columns(void)
{
    memset(q.host, 0, sizeof q.host);
    memset(k.host, 0, sizeof k.host);
    draw(&v, NORMAL, KEYS);
    for (int i = 0; i < QUERIES; i++)
        put(&q, i, i % D, 400);
    for (int c = 0; c < D; c++)
        put(&k, c, c, 1);
    launch(&plain, D);
    for (int i = 0; i < QUERIES; i++)
        for (int c = 0; c < D; c++)
            CHECK(fabs(number(&o, i, c) - number(&v, i % D, c)) < 1e-3);
}

/* Computes a row in fp64. Returns its LSE. */
static double exact_row(int row, double out[D])
{
    static double scores[KEYS];
    double largest = -INFINITY, sum = 0;
    for (int j = 0; j < KEYS; j++) {
        scores[j] = 0;
        for (int c = 0; c < D; c++)
            scores[j] += number(&q, row, c) * number(&k, j, c) / sqrt(D);
        largest = fmax(largest, scores[j]);
    }
    memset(out, 0, D * sizeof *out);
    for (int j = 0; j < KEYS; j++) {
        const double weight = exp(scores[j] - largest);
        sum += weight;
        for (int c = 0; c < D; c++)
            out[c] += weight * number(&v, j, c);
    }
    for (int c = 0; c < D; c++)
        out[c] /= sum;
    return largest + log(sum);
}

static void test_accuracy(numbers which, const char *name, double most, double most_lse)
{
    double distance = 0, size = 0, of_lse = 0;
    draw(&q, which, QUERIES);
    draw(&k, which, KEYS);
    draw(&v, which, KEYS);
    launch(&plain, KEYS);
    for (int row = 0; row < QUERIES; row++) {
        double exact[D];
        of_lse = fmax(of_lse, fabs(exact_row(row, exact) - (double)lse[row]));
        for (int c = 0; c < D; c++) {
            distance += fabs(number(&o, row, c) - exact[c]);
            size += fabs(exact[c]);
        }
    }
    printf("%s: O differs by %.2f %% (at most %.1f), LSE by %.2g (at most %.2g)\n", name, 100 * distance / size,
           100 * most, of_lse, most_lse);
    CHECK(distance <= most * size);
    CHECK(of_lse <= most_lse);
}

/* Compares the counts of the last launch with those of the host's K, less the mean of 128 keys. A scale has keys j of a
 * tile of 64 with equal j % 8 / 2. */
static void check_lost(const char *name, double least, double most)
{
    enum { SAMPLED = 128, TILE = 64 };
    double means[D] = {0}, largest = 0;
    uint64_t zeros = 0;
    for (int i = 0; i < SAMPLED; i++)
        for (int c = 0; c < D; c++)
            means[c] += number(&k, i * (KEYS / SAMPLED), c) / SAMPLED;
    for (int group = 0; group < KEYS / TILE * 4; group++) {
        double of_group = 0;
        for (int turn = 0; turn < 2; turn++)
            for (int i = 0; i < TILE / 4; i++)
                for (int c = 0; c < D; c++) {
                    const int key = group / 4 * TILE + i / 2 * 8 + group % 4 * 2 + i % 2;
                    const double x = fabs(number(&k, key, c) - means[c]);
                    of_group = turn == 0 ? fmax(of_group, x) : of_group;
                    zeros += turn == 1 && x < of_group / 254;
                }
        largest = fmax(largest, of_group);
    }
    printf("%s: %.2f %% of K became 0\n", name, 100 * (double)lost.zeros / (double)lost.values);
    CHECK_EQ(lost.values, (uint64_t)K_ELEMS);
    CHECK(fabs((double)lost.zeros - (double)zeros) <= 1e-4 * K_ELEMS);
    CHECK(fabs((double)lost.largest / largest - 1) < 1e-4);
    CHECK((double)lost.zeros >= least * K_ELEMS && (double)lost.zeros <= most * K_ELEMS);
}

static void test_lost(void)
{
    draw(&q, NORMAL, QUERIES);
    draw(&k, NORMAL, KEYS);
    draw(&v, NORMAL, KEYS);
    launch(&plain, KEYS);
    check_lost("normal numbers", 0.005, 0.03);
    for (int j = 0; j < KEYS; j++)
        put(&k, j, 11, 100 * number(&k, j, 11));
    launch(&plain, KEYS);
    check_lost("a column 100 times as large", 0.5, 1);
}

/* Query i sees the keys up to KEYS - QUERIES + i. A scale has keys j of a tile of 64 with equal j % 8 / 2. */
static void test_nan(void)
{
    enum { BAD = KEYS - QUERIES + 37 };
    draw(&q, NORMAL, QUERIES);
    draw(&k, NORMAL, KEYS);
    draw(&v, NORMAL, KEYS);
    k.host[BAD * D + 3] = 0x7e00;
    launch(&causal, KEYS);
    for (int i = 0; i < QUERIES; i++) {
        const bool sees_scale = i >= BAD % 8 / 2 * 2;
        CHECK_EQ(isnan(number(&o, i, 0)) != 0, sees_scale);
        CHECK_EQ(isnan(lse[i]) != 0, sees_scale);
    }
    CHECK(isnan(lost.largest));
    draw(&k, NORMAL, KEYS);
    q.host[5 * D + 9] = 0x7c00; /* a query with an infinity is NaN, and no other one */
    launch(&causal, KEYS);
    for (int i = 0; i < QUERIES; i++)
        CHECK_EQ(isnan(number(&o, i, 0)) != 0, i == 5);
}

/* An exact kernel has nothing to read. */
static void test_exact(void)
{
    const fa2_config config = {.struct_bytes = sizeof config, .database = "", .device_plus_one = 1};
    const fa2_problem problem = {.struct_bytes = sizeof problem,
                                 .batch = 1,
                                 .heads_q = 1,
                                 .heads_kv = 1,
                                 .seq_q = QUERIES,
                                 .seq_k = KEYS,
                                 .head_dim = D};
    const fa2_forward_args args = {
        .struct_bytes = sizeof args, .q = tensor(&q), .k = tensor(&k), .v = tensor(&v), .o = tensor(&o)};
    fa2_context *context = NULL;
    must(fa2_context_create(&config, &context), "the context");
    CHECK_EQ(fa2_read_rounding(context, &problem, &args, NULL, NULL), FA2_E_INVALID);
    CHECK_EQ(fa2_read_rounding(context, &problem, &args, NULL, &lost), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "does not round K");
    CUstream stream = NULL;
    CUgraph graph = NULL;
    must_be(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS, "a stream");
    must_be(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS, "capture");
    CHECK_EQ(fa2_read_rounding(context, &problem, &args, stream, &lost), FA2_E_CAPTURE);
    CHECK_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS); /* the capture goes on */
    (void)cuGraphDestroy(graph);
    (void)cuStreamDestroy(stream);
    fa2_context_destroy(context);
}

int main(void)
{
    fa2i_generator *generator = NULL;
    buffer *const all[] = {&q, &k, &v, &o};
    must(fa2i_device_open(1, &device), "the device");
    must(fa2i_device_enter(&device), "the context");
    must(fa2i_generator_create(&generator), "the generator");
    load(generator, 0, &plain);
    load(generator, 1, &causal);
    for (int i = 0; i < 4; i++)
        all[i]->at = one_allocate(sizeof all[i]->host);
    lse_at = one_allocate(sizeof lse);
    test_columns();
    test_accuracy(NORMAL, "normal numbers", 0.013, 0.02);
    test_accuracy(MEANS, "K with means", 0.013, 0.02);
    test_accuracy(OUTLIERS, "outliers", 0.035, 0.3);
    test_lost();
    test_nan();
    test_exact();
    for (int i = 0; i < 4; i++)
        cuMemFree(all[i]->at);
    cuMemFree(lse_at);
    fa2i_unload(&device, &plain);
    fa2i_unload(&device, &causal);
    fa2i_generator_destroy(generator);
    fa2i_device_leave(&device);
    fa2i_device_close(&device);
    return check_done();
}
