/*
 * Forward with Q and K in 8-bit integers and P and V in e4m3 numbers, on the software device: fwd_bytes_sm90 with a
 * Hopper card, else fwd_bytes_sm89.
 *
 *     test_bytes
 *
 * - Relative L1 distance of O from fp64, and the largest error of LSE, for each head_dim: normal numbers, K whose columns
 *   have means, numbers with outliers. Causal or not, query heads that share key heads, lengths that fill no tile.
 * - P must find the right keys and columns: with one key of score 50 above the others, O is that key's V.
 * - A NaN in V makes its column NaN in rows that see its tile, and no other column.
 * - fa2_read_rounding counts every number of K.
 */
#include <stdlib.h>
#include <string.h>
#include "runtime/cuda/rounding.h"
#include "tests/check.h"
#include "tests/sim/one_kernel.h"
#include "tuner/judge/number.h"

enum { D_MOST = 256, ROWS_MOST = 2048, ELEMS = 4 * ROWS_MOST * D_MOST };

/* Axes of fwd_bytes_sm89: K and V of a tile are one stage. */
#define JOINT(br, warps, bc, stages)                                                                                   \
    "br=" br " bc=" bc " warps=" warps " kstages=" stages " vstages=" stages " layout=swizzle q=reg"

typedef struct buffer {
    CUdeviceptr at;
    uint16_t host[ELEMS]; /* [row][head][D] */
} buffer;

/* A kernel and the sizes that it is launched with. */
typedef struct trial {
    const char *axes;
    int d, causal, queries, keys, heads_q, heads_kv;
    bool bf16;
} trial;

static fa2i_device device;
static fa2i_generator *generator;
static buffer q, k, v, o;
static CUdeviceptr lse_at;
static float lse[4 * ROWS_MOST];
static fa2_rounding lost[4];
static uint64_t state = 5;

static bool is_hopper(void)
{
    return device.card.arch == 90;
}

static const char *family(void)
{
    return is_hopper() ? "fwd_bytes_sm90" : "fwd_bytes_sm89";
}

static fa2_dtype type_of(const trial *t)
{
    return t->bf16 ? FA2_BF16 : FA2_FP16;
}

static double number(const trial *t, const buffer *b, int heads, int head, int row, int column)
{
    return (double)fa2i_from_bits(type_of(t), b->host[(row * heads + head) * t->d + column]);
}

static void put(const trial *t, buffer *b, int heads, int head, int row, int column, double x)
{
    b->host[(row * heads + head) * t->d + column] = fa2i_to_bits(type_of(t), (float)x);
}

static fa2_tensor tensor(const trial *t, const buffer *b, int heads)
{
    return (fa2_tensor){(void *)b->at, 0, heads * t->d, t->d};
}

static void load(const trial *t, fa2i_loaded *ret_loaded)
{
    char text[256];
    snprintf(text, sizeof text, "%s d=%d dtype=%s causal=%d scores=int8 values=fp8 %s", family(), t->d,
             t->bf16 ? "bf16" : "fp16", t->causal, t->axes);
    one_load(&device, generator, text, ret_loaded);
}

static void launch(const trial *t)
{
    const fa2_problem problem = {.struct_bytes = sizeof problem,
                                 .dtype = type_of(t),
                                 .batch = 1,
                                 .heads_q = t->heads_q,
                                 .heads_kv = t->heads_kv,
                                 .seq_q = t->queries,
                                 .seq_k = t->keys,
                                 .head_dim = t->d,
                                 .causal = t->causal,
                                 .scores = FA2_SCORES_INT8,
                                 .pv = FA2_PV_FP8};
    fa2i_loaded loaded;
    fa2i_grid grid = {0};
    load(t, &loaded);
    must(fa2i_op_of(&problem)->grid(&device.card, &loaded.variant.recipe, &problem, &grid), "the grid");
    const CUdeviceptr workspace = one_allocate(grid.workspace_bytes);
    const fa2_forward_args args = {.struct_bytes = sizeof args,
                                   .q = tensor(t, &q, t->heads_q),
                                   .k = tensor(t, &k, t->heads_kv),
                                   .v = tensor(t, &v, t->heads_kv),
                                   .o = tensor(t, &o, t->heads_q),
                                   .lse = (float *)lse_at,
                                   .workspace = (void *)workspace,
                                   .workspace_bytes = grid.workspace_bytes};
    must_be(cuMemcpyHtoD(q.at, q.host, sizeof q.host) == CUDA_SUCCESS &&
                cuMemcpyHtoD(k.at, k.host, sizeof k.host) == CUDA_SUCCESS &&
                cuMemcpyHtoD(v.at, v.host, sizeof v.host) == CUDA_SUCCESS,
            "cuMemcpyHtoD");
    must(fa2i_op_of(&problem)->check_args(&problem, &args, &grid), "the arguments");
    must(fa2i_launch(&device, &loaded, &grid, &problem, &args, NULL), "the launch");
    must(fa2i_rounding_read(&device, &loaded.variant.recipe, &problem, args.workspace, NULL, lost), "the counts");
    must_be(cuCtxSynchronize() == CUDA_SUCCESS && cuMemcpyDtoH(o.host, o.at, sizeof o.host) == CUDA_SUCCESS &&
                cuMemcpyDtoH(lse, lse_at, sizeof lse) == CUDA_SUCCESS && cuMemFree(workspace) == CUDA_SUCCESS,
            "the results");
    fa2i_unload(&device, &loaded);
}

/* ---- numbers ---- */

typedef enum numbers { NORMAL, MEANS, OUTLIERS } numbers;

static void draw(const trial *t, buffer *b, int heads, int rows, numbers which)
{
    for (int h = 0; h < heads; h++) {
        double means[D_MOST] = {0};
        for (int c = 0; which == MEANS && b == &k && c < t->d; c++)
            means[c] = c == 17 ? 12 : c == 40 ? -9 : 2 * one_normal(&state);
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < t->d; c++)
                put(t, b, heads, h, r, c,
                    one_normal(&state) + means[c] +
                        (which == OUTLIERS && one_uniform(&state) < 1e-3 ? 10 * one_normal(&state) : 0));
    }
}

static void draw_all(const trial *t, numbers which)
{
    draw(t, &q, t->heads_q, t->queries, which);
    draw(t, &k, t->heads_kv, t->keys, which);
    draw(t, &v, t->heads_kv, t->keys, which);
}

/* Computes a row in fp64. Returns its LSE. */
static double exact_row(const trial *t, int head, int row, double out[D_MOST])
{
    static double scores[ROWS_MOST];
    const int kv_head = head / (t->heads_q / t->heads_kv);
    const int seen = t->causal ? row + 1 + t->keys - t->queries : t->keys;
    double largest = -INFINITY, sum = 0;
    for (int j = 0; j < seen; j++) {
        scores[j] = 0;
        for (int c = 0; c < t->d; c++)
            scores[j] += number(t, &q, t->heads_q, head, row, c) * number(t, &k, t->heads_kv, kv_head, j, c);
        scores[j] /= sqrt(t->d);
        largest = fmax(largest, scores[j]);
    }
    memset(out, 0, D_MOST * sizeof *out);
    for (int j = 0; j < seen; j++) {
        const double weight = exp(scores[j] - largest);
        sum += weight;
        for (int c = 0; c < t->d; c++)
            out[c] += weight * number(t, &v, t->heads_kv, kv_head, j, c);
    }
    for (int c = 0; c < t->d; c++)
        out[c] /= sum;
    return largest + log(sum);
}

/* ---- tests ---- */

static void test_accuracy(const trial *t, numbers which, double most, double most_lse)
{
    static const char *const names[] = {"normal numbers", "K with means", "outliers"};
    double distance = 0, size = 0, of_lse = 0;
    draw_all(t, which);
    launch(t);
    for (int head = 0; head < t->heads_q; head++)
        for (int row = 0; row < t->queries; row++) {
            double exact[D_MOST];
            if (t->causal && row + t->keys < t->queries) { /* it sees no key */
                CHECK(isinf(lse[head * t->queries + row]) && number(t, &o, t->heads_q, head, row, 0) == 0);
                continue;
            }
            of_lse = fmax(of_lse, fabs(exact_row(t, head, row, exact) - (double)lse[head * t->queries + row]));
            for (int c = 0; c < t->d; c++) {
                distance += fabs(number(t, &o, t->heads_q, head, row, c) - exact[c]);
                size += fabs(exact[c]);
            }
        }
    printf("d=%d causal=%d %s, %s: O differs by %.2f %% (at most %.1f), LSE by %.2g (at most %.2g)\n", t->d, t->causal,
           t->axes, names[which], 100 * distance / size, 100 * most, of_lse, most_lse);
    CHECK(distance <= most * size);
    CHECK(of_lse <= most_lse);
    for (int head = 0; head < t->heads_kv; head++)
        CHECK_EQ(lost[head].values, (uint64_t)(t->keys * t->d));
}

static void test_distributions(void)
{
    const trial t = {.axes = is_hopper() ? "groups=2 bc=128 persistent=0" : JOINT("64", "4", "64", "2"),
                     .d = 128,
                     .queries = 128,
                     .keys = 2048,
                     .heads_q = 1,
                     .heads_kv = 1};
    test_accuracy(&t, NORMAL, 0.045, 0.02);
    test_accuracy(&t, MEANS, 0.045, 0.03);
    test_accuracy(&t, OUTLIERS, 0.05, 0.3);
}

/* Each axis, and lengths that fill no tile. */
static void test_shapes(void)
{
    static const trial all[] = {
        {"groups=2 bc=128 persistent=0", 64, 0, 200, 333, 2, 1, false},
        {"groups=3 bc=128 persistent=1", 64, 1, 300, 470, 4, 2, true},
        {"groups=2 bc=192 persistent=1", 64, 1, 250, 250, 1, 1, false},
        {"groups=2 bc=96 persistent=0", 128, 1, 100, 231, 2, 2, false},
        {"groups=2 bc=96 persistent=1", 128, 0, 130, 65, 4, 1, true},
        {"groups=3 bc=96 persistent=1", 64, 1, 400, 333, 1, 1, false},
        {"groups=2 bc=128 persistent=0", 256, 1, 200, 300, 2, 1, false},
        {"groups=2 bc=96 persistent=1", 256, 0, 70, 129, 1, 1, true},
        {"groups=2 bc=96 persistent=0", 192, 1, 65, 190, 2, 1, false},
        {"groups=2 bc=256 persistent=1", 128, 1, 300, 700, 2, 1, false},
        {"groups=2 bc=256 persistent=1", 64, 1, 300, 500, 1, 1, true},
    };
    static const trial on_mma_sync[] = {
        {JOINT("64", "4", "64", "2"), 64, 0, 200, 333, 2, 1, false},
        {JOINT("128", "4", "32", "2"), 64, 1, 300, 470, 4, 2, true},
        {JOINT("64", "4", "128", "2"), 80, 1, 250, 250, 1, 1, false},
        {"br=128 bc=96 warps=8 kstages=1 vstages=1 layout=swizzle q=reg", 128, 1, 100, 231, 2, 2, false},
        {"br=128 bc=32 warps=4 kstages=2 vstages=1 layout=swizzle q=reg", 128, 0, 130, 65, 4, 1, true},
        {"br=64 bc=64 warps=4 kstages=2 vstages=2 layout=swizzle q=reg", 48, 1, 400, 333, 1, 1, false},
        {JOINT("64", "4", "32", "2"), 256, 1, 200, 300, 2, 1, false},
        {JOINT("64", "4", "64", "1"), 192, 0, 70, 129, 1, 1, true},
    };
    const trial *const list = is_hopper() ? all : on_mma_sync;
    const size_t count = is_hopper() ? sizeof all / sizeof *all : sizeof on_mma_sync / sizeof *on_mma_sync;
    for (size_t i = 0; i < count; i++)
        test_accuracy(&list[i], NORMAL, 0.055, 0.05);
}

static trial small = {.d = 64, .queries = 128, .keys = 192, .heads_q = 1, .heads_kv = 1};

/* Each query finds one key: the score of its key is 50 above the others. */
static void test_one_key(void)
{
    memset(q.host, 0, sizeof q.host);
    memset(k.host, 0, sizeof k.host);
    draw(&small, &v, 1, small.keys, NORMAL);
    for (int i = 0; i < small.queries; i++)
        put(&small, &q, 1, 0, i, i % 64, 400);
    for (int c = 0; c < 64; c++)
        put(&small, &k, 1, 0, 3 * c, c, 1);
    launch(&small);
    for (int i = 0; i < small.queries; i++)
        for (int c = 0; c < 64; c++) {
            const double expected = number(&small, &v, 1, 0, i % 64 * 3, c);
            CHECK(fabs(number(&small, &o, 1, 0, i, c) - expected) <= fmax(fabs(expected) / 15, 0.005));
        }
}

/* A column so large that an integer step of Q K^T is a large step of the score: P must stay a number. */
static void test_coarse_scores(void)
{
    for (double large = 100; large < 1000; large *= 1.3) {
        draw_all(&small, NORMAL);
        for (int i = 0; i < small.queries; i++)
            put(&small, &q, 1, 0, i, 9, large * (1 + 0.01 * i));
        for (int j = 0; j < small.keys; j++)
            put(&small, &k, 1, 0, j, 9, j % 3 == 0 ? large + j : -large);
        launch(&small);
        for (int i = 0; i < small.queries; i++)
            for (int c = 0; c < 64; c++)
                CHECK(fabs(number(&small, &o, 1, 0, i, c)) < 6);
    }
}

/* A NaN and an infinity in V. */
static void test_nan(void)
{
    draw_all(&small, NORMAL);
    v.host[70 * 64 + 9] = 0x7e00;
    v.host[150 * 64 + 33] = 0xfc00;
    launch(&small);
    for (int i = 0; i < small.queries; i++)
        for (int c = 0; c < 64; c++)
            CHECK_EQ(isnan(number(&small, &o, 1, 0, i, c)) != 0, c == 9 || c == 33);
    draw_all(&small, NORMAL);
    q.host[5 * 64 + 9] = 0x7c00; /* a query with an infinity is NaN, and no other one */
    launch(&small);
    for (int i = 0; i < small.queries; i++)
        CHECK_EQ(isnan(number(&small, &o, 1, 0, i, 0)) != 0, i == 5);
}

int main(void)
{
    buffer *const all[] = {&q, &k, &v, &o};
    must(fa2i_device_open(1, &device), "the device");
    must(fa2i_device_enter(&device), "the context");
    must(fa2i_generator_create(&generator), "the generator");
    for (int i = 0; i < 4; i++)
        all[i]->at = one_allocate(sizeof all[i]->host);
    lse_at = one_allocate(sizeof lse);
    small.axes = is_hopper() ? "groups=2 bc=96 persistent=0" : JOINT("64", "4", "96", "2");
    test_distributions();
    test_shapes();
    test_one_key();
    test_coarse_scores();
    test_nan();
    for (int i = 0; i < 4; i++)
        cuMemFree(all[i]->at);
    cuMemFree(lse_at);
    fa2i_generator_destroy(generator);
    fa2i_device_leave(&device);
    fa2i_device_close(&device);
    return check_done();
}
