/*
 * K and V in 8 bits on the software device: how exact the results are, and what bad scales do.
 *
 *     test_kv8
 *
 * - Relative L1 distance of O from fp64 attention of the numbers before they were rounded, with 1024 keys and a scale for
 *   each row: for normal numbers, for K whose columns have means, and for numbers with outliers. Most of it is the
 *   rounding of the cache, which no kernel can undo.
 * - A scale that is NaN or infinite: a query that sees its key gets NaN. A query that sees it not has the same bits as
 *   before. A scale of 0 makes the row 0.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/check.h"
#include "tests/sim/one_kernel.h"
#include "tuner/judge/number.h"

enum { D = 64, QUERIES = 128, KEYS = 1024, BAD = KEYS - QUERIES + 70 };

typedef struct cache {
    double exact[KEYS][D];
    int8_t bytes[KEYS][D];
    float scales[KEYS];
    CUdeviceptr bytes_at, scales_at;
} cache;

static fa2i_device device;
static fa2i_loaded plain, causal;
static cache k, v;
static uint16_t q[QUERIES][D], o[QUERIES][D];
static CUdeviceptr q_at, o_at;

/* ---- the kernel ---- */

static void load(fa2i_generator *generator, int is_causal, fa2i_loaded *ret_loaded)
{
    char text[256];
    const bool turing = device.card.arch == 75;
    snprintf(
        text, sizeof text,
        "fwd_sm%d d=%d dtype=fp16 causal=%d kv=int8 br=64 bc=32 warps=4 kstages=%d vstages=%d layout=swizzle q=reg "
        "fill=whole",
        turing ? 75 : 80, D, is_causal, turing ? 1 : 2, turing ? 1 : 2);
    one_load(&device, generator, text, ret_loaded);
}

static void upload(const cache *c)
{
    must_be(cuMemcpyHtoD(c->bytes_at, c->bytes, sizeof c->bytes) == CUDA_SUCCESS &&
                cuMemcpyHtoD(c->scales_at, c->scales, sizeof c->scales) == CUDA_SUCCESS,
            "cuMemcpyHtoD");
}

static void launch(const fa2i_loaded *loaded)
{
    const fa2_problem problem = {.struct_bytes = sizeof problem,
                                 .batch = 1,
                                 .heads_q = 1,
                                 .heads_kv = 1,
                                 .seq_q = QUERIES,
                                 .seq_k = KEYS,
                                 .head_dim = D,
                                 .causal = loaded == &causal,
                                 .kv = FA2_KV_INT8};
    fa2i_grid grid = {0};
    must(fa2i_op_of(&problem)->grid(&device.card, &loaded->variant.recipe, &problem, &grid), "the grid");
    const fa2_forward_args args = {.struct_bytes = sizeof args,
                                   .q = {(void *)q_at, 0, D, D},
                                   .k = {(void *)k.bytes_at, 0, D, D},
                                   .v = {(void *)v.bytes_at, 0, D, D},
                                   .o = {(void *)o_at, 0, D, D},
                                   .k_scale = {(const float *)k.scales_at, 0, 1, 0},
                                   .v_scale = {(const float *)v.scales_at, 0, 1, 0}};
    upload(&k);
    upload(&v);
    must_be(cuMemcpyHtoD(q_at, q, sizeof q) == CUDA_SUCCESS, "cuMemcpyHtoD");
    must(fa2i_op_of(&problem)->check_args(&problem, &args, &grid), "the arguments");
    must(fa2i_launch(&device, loaded, &grid, &problem, &args, NULL), "the launch");
    must_be(cuCtxSynchronize() == CUDA_SUCCESS && cuMemcpyDtoH(o, o_at, sizeof o) == CUDA_SUCCESS, "the results");
}

/* ---- numbers ---- */

static uint64_t state = 5;

typedef enum numbers { NORMAL, MEANS, OUTLIERS } numbers;

static double draw(numbers which)
{
    return one_normal(&state) + (which == OUTLIERS && one_uniform(&state) < 1e-3 ? 10 * one_normal(&state) : 0);
}

static void draw_cache(cache *c, numbers which)
{
    double means[D] = {0};
    for (int i = 0; which == MEANS && c == &k && i < D; i++)
        means[i] = i == 17 ? 12 : i == 50 ? -9 : 2 * one_normal(&state);
    for (int j = 0; j < KEYS; j++) {
        double most = 0;
        for (int i = 0; i < D; i++) {
            c->exact[j][i] = draw(which) + means[i];
            most = fmax(most, fabs(c->exact[j][i]));
        }
        c->scales[j] = (float)(most / 127);
        for (int i = 0; i < D; i++)
            c->bytes[j][i] = (int8_t)lrint(c->exact[j][i] / (double)c->scales[j]);
    }
}

static void draw_all(numbers which)
{
    for (int r = 0; r < QUERIES; r++)
        for (int i = 0; i < D; i++)
            q[r][i] = fa2i_to_bits(FA2_FP16, (float)draw(which));
    draw_cache(&k, which);
    draw_cache(&v, which);
}

static double output(int row, int column)
{
    return (double)fa2i_from_bits(FA2_FP16, o[row][column]);
}

/* ---- tests ---- */

static void exact_row(int row, double out[D])
{
    double sum = 0;
    memset(out, 0, D * sizeof *out);
    for (int j = 0; j < KEYS; j++) {
        double score = 0;
        for (int i = 0; i < D; i++)
            score += (double)fa2i_from_bits(FA2_FP16, q[row][i]) * k.exact[j][i] / sqrt(D);
        const double weight = exp(score - 20);
        sum += weight;
        for (int i = 0; i < D; i++)
            out[i] += weight * v.exact[j][i];
    }
    for (int i = 0; i < D; i++)
        out[i] /= sum;
}

static void test_accuracy(numbers which, const char *name, double most)
{
    double distance = 0, size = 0;
    draw_all(which);
    launch(&plain);
    for (int row = 0; row < QUERIES; row++) {
        double exact[D];
        exact_row(row, exact);
        for (int i = 0; i < D; i++) {
            distance += fabs(output(row, i) - exact[i]);
            size += fabs(exact[i]);
        }
    }
    printf("%s: O differs by %.2f %% (at most %.1f)\n", name, 100 * distance / size, 100 * most);
    CHECK(distance <= most * size);
}

/* Query i sees the keys up to KEYS - QUERIES + i. A bad scale of V also reaches queries of the same 64, whose weight for
 * the key is 0. */
static void test_bad_scale(float *scale, float bad, int first_reached)
{
    static uint16_t good[QUERIES][D];
    const float kept = *scale;
    launch(&causal);
    memcpy(good, o, sizeof good);
    *scale = bad;
    launch(&causal);
    *scale = kept;
    for (int i = 0; i < QUERIES; i++) {
        if (KEYS - QUERIES + i >= BAD)
            CHECK(isnan(output(i, 0)) && isnan(output(i, D - 1)));
        else if (i < first_reached)
            CHECK(memcmp(o[i], good[i], sizeof o[i]) == 0);
    }
}

/* A value whose scale is 0 is 0, and a key's scores are. */
static void test_zero_scale(void)
{
    static uint16_t with[QUERIES][D];
    k.scales[BAD] = v.scales[BAD] = 0;
    launch(&plain);
    memcpy(with, o, sizeof with);
    memset(k.bytes[BAD], 0, sizeof k.bytes[BAD]);
    memset(v.bytes[BAD], 0, sizeof v.bytes[BAD]);
    k.scales[BAD] = v.scales[BAD] = 1;
    launch(&plain);
    CHECK(memcmp(with, o, sizeof with) == 0);
}

int main(void)
{
    fa2i_generator *generator = NULL;
    cache *const caches[] = {&k, &v};
    must(fa2i_device_open(1, &device), "the device");
    must(fa2i_device_enter(&device), "the context");
    must(fa2i_generator_create(&generator), "the generator");
    load(generator, 0, &plain);
    load(generator, 1, &causal);
    q_at = one_allocate(sizeof q);
    o_at = one_allocate(sizeof o);
    for (int i = 0; i < 2; i++) {
        caches[i]->bytes_at = one_allocate(sizeof caches[i]->bytes);
        caches[i]->scales_at = one_allocate(sizeof caches[i]->scales);
    }
    test_accuracy(NORMAL, "normal numbers", 0.013);
    test_accuracy(MEANS, "K with means", 0.035);
    test_accuracy(OUTLIERS, "outliers", 0.035);
    draw_all(NORMAL);
    test_bad_scale(&k.scales[BAD], NAN, QUERIES);
    test_bad_scale(&k.scales[BAD], INFINITY, QUERIES);
    test_bad_scale(&v.scales[BAD], NAN, 64);
    test_bad_scale(&v.scales[BAD], -INFINITY, 64);
    test_zero_scale();
    for (int i = 0; i < 2; i++) {
        cuMemFree(caches[i]->bytes_at);
        cuMemFree(caches[i]->scales_at);
    }
    cuMemFree(q_at);
    cuMemFree(o_at);
    fa2i_unload(&device, &plain);
    fa2i_unload(&device, &causal);
    fa2i_generator_destroy(generator);
    fa2i_device_leave(&device);
    fa2i_device_close(&device);
    return check_done();
}
