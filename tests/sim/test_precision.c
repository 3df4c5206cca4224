/*
 * How exact kernels are that use a permission, on the software device, on $FA2_SIM_CARD.
 *
 * - The error is the relative L1 error of O against fp64: the sum of |O - exact| over the sum of |exact|. Inputs: 2048
 *   keys, D = 128, normal numbers; K with column means; V with a mean of 3.
 * - FlashAttention's rule is the bar: at most twice the error of the kernel without the permission. This rule is also
 *   the judge's (tuner/judge/reference.h), so classes with a permission need no other bound.
 * - V of bf16 beyond 65504 makes its own column infinite, and no other. V at the limit that fa2.h states is summed.
 */
#include <stdlib.h>
#include <string.h>
#include "runtime/base/problem.h"
#include "tests/check.h"
#include "tests/sim/one_kernel.h"
#include "tuner/judge/judge.h"
#include "tuner/judge/number.h"

enum { D = 128, KEYS = 2048, QUERIES = 64, COLUMN = 7 };

typedef struct tensor {
    CUdeviceptr at;
    int rows;
    uint16_t bits[KEYS * D];
} tensor;

static fa2i_device device;
static fa2i_generator *generator;
static fa2_dtype dtype;
static int tile_keys;
static tensor q = {.rows = QUERIES}, k = {.rows = KEYS}, v = {.rows = KEYS}, o = {.rows = QUERIES};

static size_t bytes_of(const tensor *t)
{
    return (size_t)t->rows * D * sizeof *t->bits;
}

static double value(const tensor *t, int row, int column)
{
    return fa2i_from_bits(dtype, t->bits[row * D + column]);
}

static void put(tensor *t, int row, int column, double x)
{
    t->bits[row * D + column] = fa2i_to_bits(dtype, (float)x);
}

static void upload(const tensor *t)
{
    must_be(cuMemcpyHtoD(t->at, t->bits, bytes_of(t)) == CUDA_SUCCESS, "cuMemcpyHtoD");
}

/* ---- inputs ---- */

typedef struct input {
    const char *name;
    bool k_has_means;
    double v_mean;
} input;

static const input inputs[] = {{"normal", false, 0}, {"columns of K with means", true, 0}, {"V with a mean", false, 3}};

static void draw(const input *from)
{
    uint64_t state = 20;
    double mean[D];
    for (int column = 0; column < D; column++)
        mean[column] = !from->k_has_means ? 0 : column == 3 ? 12 : column == 70 ? -9 : 2 * one_normal(&state);
    for (int row = 0; row < KEYS; row++)
        for (int column = 0; column < D; column++) {
            put(&k, row, column, one_normal(&state) + mean[column]);
            put(&v, row, column, one_normal(&state) + from->v_mean);
            if (row < QUERIES)
                put(&q, row, column, one_normal(&state));
        }
}

/* ---- kernels ---- */

static fa2_tensor argument(const tensor *t)
{
    return (fa2_tensor){(void *)t->at, 0, D, D};
}

/* Loads a kernel with tiles of this many keys. The caller unloads it. */
static void load(fa2_sums sums, fa2i_loaded *ret_loaded)
{
    const int sm = device.card.arch;
    char text[256];
    snprintf(text, sizeof text,
             "fwd_sm%d d=%d dtype=%s causal=0%s br=%d bc=%d warps=4 kstages=1 vstages=1 layout=swizzle q=smem "
             "fill=whole%s",
             sm < 80 ? 75 : 80, D, fa2i_dtype_string(dtype), sums == FA2_SUMS_FAST ? " sums=fast" : "", QUERIES,
             tile_keys, sums == FA2_SUMS_FAST ? " pv=fp16" : "");
    one_load(&device, generator, text, ret_loaded);
}

static void launch(fa2_sums sums)
{
    const fa2_problem p = {.struct_bytes = sizeof p,
                           .dtype = dtype,
                           .batch = 1,
                           .heads_q = 1,
                           .heads_kv = 1,
                           .seq_q = QUERIES,
                           .seq_k = KEYS,
                           .head_dim = D,
                           .sums = sums};
    fa2i_loaded loaded = {0};
    fa2i_grid grid = {0};
    load(sums, &loaded);
    must(fa2i_op_of(&p)->grid(&device.card, &loaded.variant.recipe, &p, &grid), "the grid");
    upload(&q), upload(&k), upload(&v);
    const fa2i_arguments arguments = {.forward = {.struct_bytes = sizeof(fa2_forward_args),
                                                  .q = argument(&q),
                                                  .k = argument(&k),
                                                  .v = argument(&v),
                                                  .o = argument(&o)}};
    must(fa2i_launch(&device, &loaded, &grid, &p, &arguments, NULL), "the launch");
    must_be(cuMemcpyDtoH(o.bits, o.at, bytes_of(&o)) == CUDA_SUCCESS, "the launch");
    fa2i_unload(&device, &loaded);
}

/* ---- errors ---- */

static double exact_o[QUERIES][D];

static void compute_exact(void)
{
    for (int row = 0; row < QUERIES; row++) {
        static double p[KEYS];
        double largest = -INFINITY, sum = 0;
        for (int key = 0; key < KEYS; key++) {
            p[key] = 0;
            for (int column = 0; column < D; column++)
                p[key] += value(&q, row, column) * value(&k, key, column) / sqrt(D);
            largest = fmax(largest, p[key]);
        }
        memset(exact_o[row], 0, sizeof exact_o[row]);
        for (int key = 0; key < KEYS; key++) {
            p[key] = exp(p[key] - largest);
            sum += p[key];
            for (int column = 0; column < D; column++)
                exact_o[row][column] += p[key] * value(&v, key, column);
        }
        for (int column = 0; column < D; column++)
            exact_o[row][column] /= sum;
    }
}

static double relative_error(void)
{
    double error = 0, size = 0;
    for (int row = 0; row < QUERIES; row++)
        for (int column = 0; column < D; column++) {
            error += fabs(value(&o, row, column) - exact_o[row][column]);
            size += fabs(exact_o[row][column]);
        }
    return error / size;
}

static void check_errors(const input *from)
{
    draw(from);
    compute_exact();
    launch(FA2_SUMS_FP32);
    const double plain = relative_error();
    launch(FA2_SUMS_FAST);
    const double fast = relative_error();
    printf("%s, tiles of %d keys, %s: fp32 sums %.2e, fp16 sums %.2e, ratio %.2f\n", fa2i_dtype_string(dtype),
           tile_keys, from->name, plain, fast, fast / plain);
    CHECK(plain > 0 && plain < (dtype == FA2_BF16 ? 3e-3 : 4e-4));
    CHECK(fast > 0 && fast <= 2 * plain);
}

/* ---- large values ---- */

/* 99840 is a number of bf16 beyond fp16. A key that all queries see has it in one column. */
static void check_beyond_fp16(void)
{
    static uint16_t before[QUERIES * D];
    draw(&inputs[0]);
    launch(FA2_SUMS_FAST);
    memcpy(before, o.bits, sizeof before);
    put(&v, 5, COLUMN, 99840);
    launch(FA2_SUMS_FAST);
    for (int row = 0; row < QUERIES; row++)
        for (int column = 0; column < D; column++)
            if (column == COLUMN)
                CHECK(isinf(value(&o, row, column)) != 0);
            else
                CHECK_EQ(o.bits[row * D + column], before[row * D + column]);
}

/* All values are the limit for tiles of 128 keys. Kernels process the last keys first. In log2 units, the scores of the
 * first half of keys are larger by 1.9, so that O is not rescaled, or by 7.9, which overflows without rescaling. */
static void check_limit(void)
{
    const double growth = 7.9, q_value = 8;
    draw(&inputs[0]);
    for (int key = 0; key < KEYS; key++)
        for (int column = 0; column < D; column++) {
            put(&v, key, column, 127);
            put(&k, key, column, column == 0 && key < KEYS / 2 ? growth * log(2) * sqrt(D) / q_value : 0);
        }
    for (int row = 0; row < QUERIES; row++)
        put(&q, row, 0, row < QUERIES / 2 ? q_value * 1.9 / growth : q_value);
    launch(FA2_SUMS_FAST);
    for (int i = 0; i < QUERIES * D; i++)
        CHECK(fabs(value(&o, i / D, i % D) - 127) <= 1);
}

static void check_kernels(void)
{
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        check_errors(&inputs[i]);
    check_limit();
    if (dtype == FA2_BF16)
        check_beyond_fp16();
}

int main(void)
{
    tensor *const all[] = {&q, &k, &v, &o};
    must(fa2i_device_open(1, &device), "the device");
    must(fa2i_device_enter(&device), "the context");
    must(fa2i_generator_create(&generator), "the generator");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        must_be(cuMemAlloc(&all[i]->at, bytes_of(all[i])) == CUDA_SUCCESS, "memory");
    const bool is_turing = device.card.arch < 80; /* has no bf16, and fp16 sums of at most 64 keys */
    for (tile_keys = 64; tile_keys <= (is_turing ? 64 : 128); tile_keys *= 2)
        for (dtype = FA2_FP16; dtype <= (is_turing ? FA2_FP16 : FA2_BF16); dtype++)
            check_kernels();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cuMemFree(all[i]->at);
    fa2i_generator_destroy(generator);
    fa2i_device_leave(&device);
    fa2i_device_close(&device);
    return check_done();
}
