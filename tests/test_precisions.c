/* Problems that differ in precision: which ones a card gets, and their names in the table. */
#include "check.h"
#include "tuner/bench/precisions.h"

static fa2_problem problem(int32_t head_dim, fa2_dtype dtype)
{
    return (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                         .dtype = dtype,
                         .batch = 1,
                         .heads_q = 16,
                         .heads_kv = 16,
                         .seq_q = 4096,
                         .seq_k = 4096,
                         .head_dim = head_dim};
}

/* Returns how many problems there are. *ret_fp8: how many permit e4m3 numbers in P V; all of them beside 8-bit scores. */
static size_t extended(fa2i_generator *generator, int arch, fa2_problem exact, size_t *ret_fp8)
{
    fa2i_shapes shapes = {0};
    fa2i_card card;
    *ret_fp8 = 0;
    CHECK_EQ(fa2i_generator_card(generator, arch, &card), FA2_OK);
    CHECK_EQ(fa2i_shapes_add(&shapes, &exact, 0), FA2_OK);
    CHECK_EQ(fa2i_precisions_extend(generator, &card, &shapes), FA2_OK);
    const size_t count = shapes.count;
    CHECK_EQ(fa2i_precisions_extend(generator, &card, &shapes), FA2_OK); /* all of them are there already */
    CHECK_EQ(shapes.count, count);
    for (size_t i = 0; i < count; i++) {
        const fa2_problem *p = &shapes.items[i], back = fa2i_precisions_exact(p);
        CHECK(memcmp(&back, &exact, sizeof exact) == 0);
        CHECK(p->pv == FA2_PV_EXACT || p->scores == FA2_SCORES_INT8);
        *ret_fp8 += p->pv == FA2_PV_FP8;
    }
    fa2i_shapes_done(&shapes);
    return count;
}

/* pv=fp8 is compared where kernels use it. */
static void test_extend(void)
{
    static const struct {
        int arch;
        int32_t head_dim;
        fa2_dtype dtype;
        size_t count, fp8;
    } cases[] = {{90, 128, FA2_FP16, 7, 1}, {90, 64, FA2_BF16, 7, 1},  {90, 96, FA2_FP16, 6, 0},
                 {89, 128, FA2_FP16, 7, 1}, {80, 256, FA2_BF16, 6, 0}, {90, 64, FA2_FP32, 4, 0}};
    fa2i_generator *generator = NULL;
    CHECK_EQ(fa2i_generator_create(&generator), FA2_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t fp8;
        CHECK_EQ(extended(generator, cases[i].arch, problem(cases[i].head_dim, cases[i].dtype), &fp8), cases[i].count);
        CHECK_EQ(fp8, cases[i].fp8);
    }
    fa2i_generator_destroy(generator);
}

static fa2i_benchmark measured(fa2_problem p, double us, double error)
{
    fa2i_benchmark b = {.problem = p, .count = 1};
    b.timed[0] = (fa2i_timed){.us = {.n = 1, .order.median = us}, .relative = {error, -1, -1, -1}};
    return b;
}

static void test_table(void)
{
    static const char wanted[] =
        "\nby precision: B=1 Hq=16 Hkv=16 Sq=4096 Sk=4096 D=128 dtype=fp16 causal=0; errors of O, "
        "relative to fp64\n"
        "precision           median us  exact / it  normal  K with means  outliers  a column x 100\n"
        "-----------------------------------------------------------------------------------------\n"
        "exact                  30.000       1.000  0.02 %             -         -               -\n"
        "scores=int8 pv=fp8     20.000       1.500     4 %             -         -               -\n"
        "several                15.000       2.000     5 %             -         -               -\n";
    const fa2_problem exact = problem(128, FA2_FP16);
    fa2_problem fp8 = exact, several;
    fp8.scores = FA2_SCORES_INT8;
    fp8.pv = FA2_PV_FP8;
    several = fp8;
    several.sums = FA2_SUMS_FAST;
    const fa2i_benchmark list[] = {measured(exact, 30, 0.0002), measured(fp8, 20, 0.04), measured(several, 15, 0.05)};
    char text[2048] = "";
    FILE *out = fmemopen(text, sizeof text, "w");
    CHECK_EQ(fa2i_precisions_print(list, 3, out), FA2_OK);
    fclose(out);
    CHECK_STR(text, wanted);
}

int main(void)
{
    test_extend();
    test_table();
    return check_done();
}
