/* The generator's answers about variants: their costs, their features, their canonical texts. */
#include "generator_fixture.h"
#include "runtime/base/alloc.h"
#include "runtime/ops/op.h"

/* The compiler's number of registers counts: more of them allow fewer resident blocks. */
static void test_cost(void)
{
    fa2i_generator *generator = open_generator();
    const fa2_problem problem = problem_of(64, FA2_FP16, 0, 4096), causal = problem_of(64, FA2_FP16, 1, 4096);
    fa2i_card card;
    double lean = 0, fat = 0, half = 0;
    CHECK_EQ(fa2i_generator_card(generator, 90, &card), FA2_OK);
    CHECK_EQ(fa2i_generator_cost(generator, good, &problem, &card, 128, &lean), FA2_OK);
    CHECK_EQ(fa2i_generator_cost(generator, good, &problem, &card, 254, &fat), FA2_OK);
    CHECK(fa2i_generator_cost(generator, "naive d=64 dtype=fp16 causal=0", &problem, &card, 0, &half) != FA2_OK);
    CHECK_CONTAINS(fa2_last_message(), "it has no model");
    CHECK(lean < fat);
    CHECK_EQ(fa2i_generator_cost(generator, good, &causal, &card, 254, &half), FA2_OK);
    CHECK(half > 0.5 * fat && half < 0.8 * fat);
    fa2i_generator_destroy(generator);
}

/* Decoding uses a family that packs the heads of a group and splits the keys. A problem with enough blocks does not,
 * and the generator says why. */
static void test_splitting(void)
{
    fa2i_generator *generator = open_generator();
    fa2_problem problem = problem_of(128, FA2_FP16, 0, 4096);
    fa2i_card card;
    fa2i_variant *list = NULL;
    size_t count = 0;
    char *text = NULL;
    CHECK_EQ(fa2i_generator_card(generator, 90, &card), FA2_OK);
    CHECK_EQ(fa2i_generator_rejected(generator, &problem, &card, &text), FA2_OK);
    CHECK_CONTAINS(text, "\nfwd_splitkv_sm80: the card has enough blocks without splitting keys\n");
    fa2i_free(text);
    problem.seq_q = 1;
    problem.heads_kv = 2;
    problem.seq_k = 200;
    CHECK_EQ(fa2i_generator_rejected(generator, &problem, &card, &text), FA2_OK);
    CHECK_CONTAINS(text, ": half of a block's rows would be empty\n");
    CHECK_CONTAINS(text, ": there are fewer tiles than teams\n");
    CHECK_CONTAINS(text, ": fewer waves split the keys alike\n");
    fa2i_free(text);
    problem.seq_k = 65536;
    CHECK_EQ(fa2i_generator_candidates(generator, &problem, &card, &list, &count), FA2_OK);
    CHECK(count > 0 && is_split(&list[0]) && list[0].recipe.rows == 16);
    CHECK(list[0].cost_us < list[count - 1].cost_us / 4);
    fa2i_free(list);
    fa2i_generator_destroy(generator);
}

/* The generator and the library agree on a class's version, with each feature that raises it. */
static void test_versions(void)
{
    fa2i_generator *generator = open_generator();
    static const int sms[] = {75, 80, 90};
    static const fa2_bias biases[] = {FA2_BIAS_NONE, FA2_BIAS_BOOL, FA2_BIAS_FP32};
    for (size_t i = 0; i < 3; i++)
        for (int asked = 0; asked < 12; asked++) {
            fa2i_card card;
            fa2i_variant *list = NULL;
            size_t count = 0;
            fa2_problem problem = problem_of(64, FA2_FP16, 1, 512);
            problem.op = asked % 2 == 0 ? FA2_OP_FORWARD : FA2_OP_BACKWARD;
            problem.dropout = asked / 2 % 2;
            problem.bias = biases[asked / 4];
            CHECK_EQ(fa2i_generator_card(generator, sms[i], &card), FA2_OK);
            CHECK_EQ(fa2i_generator_candidates(generator, &problem, &card, &list, &count), FA2_OK);
            CHECK(count > 0);
            CHECK_EQ(fa2i_op_abi(&problem), fa2i_op_of(&problem)->abi + 3 * problem.dropout + asked / 8);
            for (size_t j = 0; j < count; j++)
                CHECK_EQ(list[j].recipe.abi, fa2i_op_abi(&problem));
            fa2i_free(list);
        }
    fa2i_generator_destroy(generator);
}

/* More blocks help as long as SMs are idle, and cost a combining kernel. */
static void test_waves(void)
{
    static const char form[] = "fwd_splitkv_sm80 d=128 dtype=fp16 causal=0 br=16 bc=32 warps=4 "
                               "teams=4 kstages=2 vstages=2 waves=%d layout=swizzle q=smem";
    fa2i_generator *generator = open_generator();
    fa2i_card card;
    fa2_problem problem = problem_of(128, FA2_FP16, 0, 16384);
    double one = 0, two = 0;
    CHECK_EQ(fa2i_generator_card(generator, 90, &card), FA2_OK);
    problem.seq_q = 1;
    for (int batch = 10; batch <= 16; batch += 6) {
        char text[256];
        problem.batch = batch; /* 80 or 128 blocks for 132 SMs, unless the keys are split */
        snprintf(text, sizeof text, form, 1);
        CHECK_EQ(fa2i_generator_cost(generator, text, &problem, &card, 0, &one), FA2_OK);
        snprintf(text, sizeof text, form, 2);
        CHECK_EQ(fa2i_generator_cost(generator, text, &problem, &card, 0, &two), FA2_OK);
        CHECK(batch == 10 ? two < one : one < two);
    }
    fa2i_generator_destroy(generator);
}

/* Variants that differ only in how they are launched have one source. */
static void test_launch_axes(void)
{
    static const char form[] = "fwd_splitkv_sm80 d=128 dtype=fp16 causal=0 br=16 bc=32 warps=4 "
                               "teams=4 kstages=2 vstages=2 waves=%d layout=swizzle q=%s";
    fa2i_generator *generator = open_generator();
    fa2i_variant variants[3];
    char *sources[3] = {NULL};
    for (int i = 0; i < 3; i++) {
        char text[256];
        snprintf(text, sizeof text, form, i == 0 ? 1 : 4, i == 2 ? "reg" : "smem");
        CHECK_EQ(fa2i_generator_variant(generator, text, &variants[i]), FA2_OK);
        CHECK_EQ(fa2i_generator_source(generator, text, &sources[i]), FA2_OK);
    }
    CHECK_STR(sources[0], sources[1]);
    CHECK(strcmp(sources[1], sources[2]) != 0);
    CHECK_CONTAINS(variants[0].recipe.text, " waves=1 splits=256 ");
    CHECK_CONTAINS(variants[1].recipe.text, " waves=4 splits=256 ");
    CHECK_CONTAINS(sources[0], "kMaxSplits = 256;");
    const fa2i_step *combine = fa2i_recipe_step(&variants[0].recipe, FA2I_STEP_COMBINE);
    CHECK_EQ(combine->threads, 32 * combine->block_rows);
    for (int i = 0; i < 3; i++)
        fa2i_free(sources[i]);
    fa2i_generator_destroy(generator);
}

static const int archs[] = {75, 80}; /* one card for each code path */

/* Returns the cost of the first candidate. All candidates must contain these words. */
static double best_us(fa2i_generator *generator, const fa2i_card *card, const fa2_problem *problem, const char *words)
{
    fa2i_variant *list = NULL;
    char class_key[FA2I_CLASS_CHARS];
    size_t count = 0;
    double us = 0;
    CHECK_EQ(fa2i_generator_candidates(generator, problem, card, &list, &count), FA2_OK);
    fa2i_problem_class(problem, class_key);
    for (size_t i = 0; i < count; i++) {
        CHECK_STR(list[i].class_key, class_key);
        CHECK_CONTAINS(list[i].text, words);
    }
    CHECK(count > 0);
    us = count > 0 ? list[0].cost_us : 0;
    fa2i_free(list);
    return us;
}

/* Every family supports every combination of these features, on each code path. Texts name the features of the problem,
 * and the model includes their costs and savings. */
static void test_features(void)
{
    static const char *const words[] = {" br=", " softcap=1 br=", " window=1 br=", " softcap=1 window=1 br="};
    fa2i_generator *generator = open_generator();
    for (size_t a = 0; a < 2; a++)
        for (int causal = 0; causal < 2; causal++)
            for (int decode = 0; decode < 2; decode++) {
                fa2i_card card;
                double us[4];
                CHECK_EQ(fa2i_generator_card(generator, archs[a], &card), FA2_OK);
                for (int asked = 0; asked < 4; asked++) {
                    fa2_problem problem = problem_of(128, FA2_FP16, causal, 16384);
                    char expected[48];
                    problem.softcap = asked & 1;
                    problem.window = asked >> 1;
                    problem.window_left = problem.window_right = problem.window ? 256 : 0;
                    if (decode) {
                        problem.seq_q = 1;
                        problem.heads_kv = 2;
                    }
                    snprintf(expected, sizeof expected, " causal=%d%s", causal, words[asked]);
                    us[asked] = best_us(generator, &card, &problem, expected);
                }
                CHECK(us[1] >= us[0] && us[1] < 1.5 * us[0]);
                CHECK(us[2] < us[0] * (decode ? 0.9 : 0.2));
                CHECK(us[3] >= us[2] && us[3] < us[1]);
            }
    fa2i_generator_destroy(generator);
}

/* The other features one by one: every family supports them, and texts and the model include them. */
static void test_more_features(void)
{
    static const struct {
        fa2_problem asked;
        const char *words;
        double most; /* limit of the extra cost, as a fraction */
    } features[] = {
        {{.alibi = 1}, " alibi=1 br=", 1.3},
        {{.sinks = 1}, " sinks=1 br=", 1},
        {{.dropout = 1}, " dropout=1 br=", 1.6},
        {{.bias = FA2_BIAS_FP16}, " bias=fp16 br=", 1.6},
        {{.bias = FA2_BIAS_BOOL}, " bias=bool br=", 1.6},
    };
    fa2i_generator *generator = open_generator();
    for (size_t n = 0; n < 8 * sizeof features / sizeof *features; n++) {
        fa2i_card card;
        fa2_problem plain = problem_of(64, FA2_FP16, n & 1, 4096), problem;
        if (n & 2) {
            plain.seq_q = 1;
            plain.heads_kv = 2;
        }
        problem = plain;
        for (int field = 0; field < FA2I_FIELD_COUNT; field++)
            if (fa2i_field_get(&features[n / 8].asked, field) != 0)
                fa2i_field_set(&problem, field, fa2i_field_get(&features[n / 8].asked, field));
        CHECK_EQ(fa2i_generator_card(generator, archs[n / 4 % 2], &card), FA2_OK);
        const double before = best_us(generator, &card, &plain, " br=");
        const double us = best_us(generator, &card, &problem, features[n / 8].words);
        CHECK(us >= before && us <= features[n / 8].most * before);
    }
    fa2i_generator_destroy(generator);
}

/* An unbounded window costs as much as none, or as a causal mask. A wider window costs more. */
static void test_windows(void)
{
    static const char form[] = "fwd_sm80 d=64 dtype=fp16 causal=%d%s br=128 bc=64 warps=4 kstages=2 "
                               "vstages=2 layout=swizzle q=smem fill=whole";
    fa2i_generator *generator = open_generator();
    fa2i_card card;
    CHECK_EQ(fa2i_generator_card(generator, 90, &card), FA2_OK);
    for (int causal = 0; causal < 2; causal++) {
        fa2_problem problem = problem_of(64, FA2_FP16, causal, 4096);
        char plain[192], windowed[192];
        double without = 0, before = 0;
        snprintf(plain, sizeof plain, form, causal, "");
        snprintf(windowed, sizeof windowed, form, causal, " window=1");
        CHECK_EQ(fa2i_generator_cost(generator, plain, &problem, &card, 0, &without), FA2_OK);
        problem.window = 1;
        for (int width = 64; width <= 16384; width *= 4) {
            double us = 0;
            problem.window_left = problem.window_right = width;
            CHECK_EQ(fa2i_generator_cost(generator, windowed, &problem, &card, 0, &us), FA2_OK);
            CHECK(us >= before);
            before = us;
        }
        problem.window_left = problem.window_right = -1;
        CHECK_EQ(fa2i_generator_cost(generator, windowed, &problem, &card, 0, &before), FA2_OK);
        CHECK(before == without);
    }
    fa2i_generator_destroy(generator);
}

#define SPLIT "fwd_splitkv_sm80 d=64 dtype=fp16 causal=0 br=16 "

/* Texts from databases that are older than the key "fill" still name a variant. */
static void test_older_texts(void)
{
    static const char older[] = "fwd_sm80 d=64 dtype=fp16 causal=0 br=128 bc=64 warps=4 kstages=2 "
                                "vstages=2 layout=swizzle q=smem";
    fa2i_generator *generator = open_generator();
    char *now = NULL, *then = NULL;
    CHECK_EQ(fa2i_generator_source(generator, good, &now), FA2_OK);
    CHECK_EQ(fa2i_generator_source(generator, older, &then), FA2_OK);
    if (now != NULL && then != NULL)
        CHECK_STR(then, now);
    fa2i_free(now);
    fa2i_free(then);
    fa2i_generator_destroy(generator);
}

static const char *const bad_texts[][2] = {
    {"", "there is no family ''"},
    {"fwd_sm81 d=64", "there is no family 'fwd_sm81'"},
    {"fwd_sm80", "has no 'd='"},
    {"fwd_sm80 dtype=fp16 d=64", "'dtype=fp16' where 'd=' is expected"},
    {"fwd_sm80 d=064", "'d=064' is not a plain integer"},
    {"fwd_sm80 d=-8", "'d=-8' is not a plain integer"},
    {"fwd_sm80  d=64", "where 'd=' is expected"},
    {"fwd_sm80 d=64 dtype=fp16 causal=0 softcap=0 br=128", "'softcap=0' is not softcap=1, which is left out otherwise"},
    {"fwd_sm80 d=64 dtype=fp16 causal=0 window=1 softcap=1 br=128", "'softcap=1' where 'br=' is expected"},
    {"fwd_sm80 d=64 dtype=fp16 causal=0 softcap=yes br=128", "'softcap=yes' is not softcap=1"},
    {"fwd_sm80 d=64 dtype=fp16 causal=0 window=yes br=128", "'window=yes' is not a plain integer below 100000"},
    {"fwd_sm80 d=64 dtype=fp32", "'dtype=fp32' is not one of fp16, bf16"},
    {"fwd_sm80 d=64 dtype=fp16 causal=0 br=128 bc=64 warps=4 kstages=2 vstages=2 "
     "layout=swizzle q=smem fill=whole ",
     "goes on after its last key"},
    {"fwd_sm80 d=64 dtype=fp16 causal=2 br=128 bc=64 warps=4 kstages=2 vstages=2 "
     "layout=swizzle q=smem fill=whole",
     "causal is none of 0, 1"},
    {"fwd_sm80 d=60 dtype=fp16 causal=0 br=128 bc=64 warps=4 kstages=2 vstages=2 "
     "layout=swizzle q=smem fill=whole",
     "d is not a multiple of 8"},
    {"fwd_sm80 d=64 dtype=fp16 causal=0 br=128 bc=40 warps=4 kstages=2 vstages=2 "
     "layout=swizzle q=smem fill=whole",
     "bc is none of 16, 32, 48, 64, 80, 96, 128"},
    {"fwd_sm80 d=64 dtype=fp16 causal=0 br=96 bc=64 warps=4 kstages=2 vstages=2 "
     "layout=swizzle q=smem fill=whole",
     "br is none of 32, 64, 128, 256"},
    {"fwd_sm80 d=64 dtype=fp16 causal=0 br=256 bc=64 warps=4 kstages=2 vstages=2 "
     "layout=swizzle q=smem fill=whole",
     "no such pair of br and warps"},
    {"fwd_sm75 d=64 dtype=fp16 causal=0 br=128 bc=64 warps=4 kstages=3 vstages=3 "
     "layout=swizzle q=smem fill=whole",
     "no such pair of kstages and vstages"},
    {"fwd_sm80 d=64 dtype=fp16 causal=0 br=128 bc=64 warps=4 kstages=2 vstages=1 "
     "layout=swizzle q=smem fill=spread",
     "V is waited for behind S"},
    {"fwd_sm80 d=16 dtype=fp16 causal=0 br=128 bc=64 warps=4 kstages=2 vstages=2 "
     "layout=swizzle q=smem fill=spread",
     "S is computed in one step"},
    {"fwd_splitkv_sm80 d=64 dtype=fp16 causal=0 br=16 bc=32 warps=4 kstages=2 vstages=2 "
     "layout=swizzle q=smem",
     "'kstages=2' where 'teams=' is expected"},
    {SPLIT "bc=48 warps=4 teams=4 kstages=2 vstages=2 waves=1 layout=swizzle q=smem", "bc is none of 16, 32, 64"},
    {SPLIT "bc=32 warps=2 teams=4 kstages=2 vstages=2 waves=1 layout=swizzle q=smem", "no such br, warps and teams"},
    {SPLIT "bc=32 warps=4 teams=4 kstages=2 vstages=1 waves=1 layout=swizzle q=smem", "kstages and vstages differ"},
    {SPLIT "bc=32 warps=4 teams=4 kstages=2 vstages=2 waves=3 layout=swizzle q=smem", "waves is none of 1, 2, 4"},
    {SPLIT "bc=32 warps=4 teams=4 kstages=2 vstages=2 waves=1 layout=pad q=smem", "'layout=pad' is not one of swizzle"},
    {"fwd_sm75 d=64 dtype=bf16 causal=0 br=128 bc=64 warps=4 kstages=1 vstages=1 "
     "layout=swizzle q=smem fill=whole",
     "bf16 needs compute capability 8.0"},
};

static void test_bad_texts(void)
{
    fa2i_generator *generator = open_generator();
    for (size_t i = 0; i < sizeof bad_texts / sizeof bad_texts[0]; i++) {
        char *source = NULL;
        CHECK_EQ(fa2i_generator_source(generator, bad_texts[i][0], &source), FA2_E_GENERATOR);
        CHECK_CONTAINS(fa2_last_message(), bad_texts[i][1]);
        CHECK(source == NULL);
    }
    fa2i_generator_destroy(generator);
}

int main(void)
{
    generator_path(NULL);
    test_cost();
    test_splitting();
    test_waves();
    test_versions();
    test_launch_axes();
    test_features();
    test_more_features();
    test_windows();
    test_older_texts();
    test_bad_texts();
    return check_done();
}
