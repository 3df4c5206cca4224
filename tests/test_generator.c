/* What the generator says: candidates of every SM, costs, cards, canonical texts. */
#include "generator_fixture.h"
#include "runtime/base/alloc.h"

static const int archs[] = {75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121};
static const int head_dims[] = {8, 16, 32, 40, 64, 72, 80, 96, 128, 160, 192, 256};
enum {
    ARCHS = sizeof archs / sizeof archs[0],
    HEAD_DIMS = sizeof head_dims / sizeof head_dims[0],
};

/* The value of " key=" in a canonical text; -1 when it is not there. */
static int value_of(const char *text, const char *key)
{
    char word[32];
    snprintf(word, sizeof word, " %s=", key);
    const char *found = strstr(text, word);
    return found == NULL ? -1 : (int)strtol(found + strlen(word), NULL, 10);
}

static bool is_split(const fa2i_variant *v)
{
    return strncmp(v->text, "fwd_splitkv_", 12) == 0;
}

/* Warpgroups of 64 rows, tiles loaded through tensor maps. */
static bool is_wgmma(const fa2i_variant *v)
{
    return strncmp(v->text, "fwd_sm90 ", 9) == 0;
}

static int max_of(int a, int b)
{
    return a > b ? a : b;
}

/* The sizes of a candidate follow from its text: the templates assert this sum, too. */
static void check_sizes(const fa2i_variant *v, const fa2_problem *problem)
{
    const int br = value_of(v->text, "br"), bc = value_of(v->text, "bc");
    const int d = problem->head_dim, teams = is_split(v) ? value_of(v->text, "teams") : 1;
    const int pitch = (d + 15) / 16 * 16 + (strstr(v->text, "layout=pad") != NULL ? 8 : 0);
    const int k_rows = teams * value_of(v->text, "kstages") * bc;
    const int v_rows = teams * value_of(v->text, "vstages") * bc;
    const int merged = is_split(v) ? teams * br * (d * 4 + (160 - d * 4 % 128) % 128 + 8) : 0;
    const fa2i_step *step = fa2i_recipe_main(&v->recipe);
    int rows = br + k_rows + v_rows;
    if (strstr(v->text, "q=reg") != NULL)
        rows = k_rows + max_of(v_rows, br);
    CHECK_EQ(step->smem_bytes, max_of(2 * pitch * rows, merged));
    CHECK_EQ(v->recipe.rows, br);
    CHECK_EQ(step->threads, 32 * value_of(v->text, "warps"));
    CHECK_EQ(v->recipe.keys, bc * teams);
    CHECK_EQ(v->recipe.waves, is_split(v) ? value_of(v->text, "waves") : 0);
}

/* The same of one on wgmma: pages of 64 columns, and barriers behind them. */
static void check_wgmma_sizes(const fa2i_variant *v, const fa2_problem *problem)
{
    const int bc = value_of(v->text, "bc"), groups = value_of(v->text, "groups");
    const int stages = value_of(v->text, "stages"), pages = (problem->head_dim + 63) / 64;
    const int rows = 64 * groups + 2 * stages * bc, barriers = 8 * (2 * groups + 4 * stages);
    const int bytes = pages * 128 * rows + barriers, with_o = bytes + pages * 128 * 64 * groups;
    const bool persistent = strstr(v->text, " persistent=1") != NULL;
    const fa2i_step *step = fa2i_recipe_main(&v->recipe);
    const int blocks = step->block_rows;
    const bool has_room = blocks * (with_o + 1024) <= 233472; /* of an SM */
    CHECK_EQ(step->smem_bytes, persistent && has_room ? with_o : bytes);
    CHECK_EQ(step->blocks, persistent ? FA2I_BLOCKS_RESIDENT_ROW_TILES : FA2I_BLOCKS_ROW_TILES);
    CHECK(blocks * (step->smem_bytes + 1024) <= 233472);
    CHECK_EQ(step->threads, 128 * (groups + 1));
    CHECK_EQ(v->recipe.rows, 64 * groups);
    CHECK_EQ(v->recipe.keys, bc);
    CHECK_STR(v->recipe.suffix, "a");
    CHECK(v->recipe.map_count == 3 && v->recipe.maps[0].rows == 64 && v->recipe.maps[2].rows == bc);
}

static const char *family_of(const fa2i_variant *v, const fa2i_card *card)
{
    if (is_split(v))
        return card->arch == 75 ? "fwd_splitkv_sm75 " : "fwd_splitkv_sm80 ";
    if (is_wgmma(v))
        return card->arch == 90 && !card->generic ? "fwd_sm90 " : "none";
    return card->arch == 75 ? "fwd_sm75 " : "fwd_sm80 ";
}

static void check_candidate(const fa2i_variant *v, const fa2i_card *card,
                            const fa2_problem *problem)
{
    const char *family = family_of(v, card);
    const fa2i_step *step = fa2i_recipe_main(&v->recipe);
    if (is_wgmma(v))
        check_wgmma_sizes(v, problem);
    else
        check_sizes(v, problem);
    CHECK(step->smem_bytes <= card->smem_block_bytes);
    CHECK(step->threads <= (is_split(v) || is_wgmma(v) ? 512 : 256));
    CHECK_EQ(value_of(v->text, "d"), problem->head_dim);
    CHECK_EQ(value_of(v->text, "causal"), problem->causal);
    CHECK(v->cost_us > 0 && v->cost_us < 1e9);
    CHECK_EQ(strncmp(v->text, family, strlen(family)), 0);
}

/* Check the candidates of a problem; *ret_split: how many divide the keys. */
static void check_class(fa2i_generator *generator, const fa2i_card *card,
                        const fa2_problem *problem, size_t *ret_split)
{
    fa2i_variant *list = NULL;
    size_t count = 0, split = 0, wgmma = 0;
    CHECK_EQ(fa2i_generator_candidates(generator, problem, card, &list, &count), FA2_OK);
    for (size_t i = 0; i < count; i++) {
        check_candidate(&list[i], card, problem);
        split += is_split(&list[i]);
        wgmma += is_wgmma(&list[i]);
        CHECK(
            i == 0 || list[i - 1].cost_us < list[i].cost_us ||
            (list[i - 1].cost_us == list[i].cost_us && strcmp(list[i - 1].text, list[i].text) < 0));
    }
    CHECK(split <= 24);
    CHECK(count - split - wgmma >= 1 && count - split - wgmma <= 40);
    CHECK(card->arch == 90 && !card->generic && problem->seq_q >= 64 ? wgmma >= 1 && wgmma <= 16
                                                                     : wgmma == 0);
    *ret_split = split;
    fa2i_free(list);
}

/* bf16 has the tiles of fp16, cards beyond sm_90 have those of sm_90, and those from sm_80 on are one
 * family's: a part of them is enough. All where FA2_TEST_ALL is set. */
static bool is_sampled(size_t arch, size_t d, int kind)
{
    const bool first_of_its_tiles = kind / 2 == FA2_FP16 && archs[arch] <= 90;
    if (getenv("FA2_TEST_ALL") != NULL || (first_of_its_tiles && archs[arch] == 75))
        return true;
    return (d + arch + (size_t)kind) % (first_of_its_tiles ? 2 : 4) == 0;
}

/* Each class with a problem that fills any card, and with decoding, which fills none. */
static void test_every_class(void)
{
    fa2i_generator *generator = open_generator();
    for (size_t a = 0; a < ARCHS; a++) {
        fa2i_card card;
        CHECK_EQ(fa2i_generator_card(generator, archs[a], &card), FA2_OK);
        CHECK_EQ(card.arch, archs[a]);
        for (size_t d = 0; d < HEAD_DIMS; d++)
            for (int kind = 0; kind < 4; kind++) {
                if ((card.arch == 75 && kind / 2 == FA2_BF16) || !is_sampled(a, d, kind))
                    continue;
                fa2_problem problem =
                    problem_of(head_dims[d], (fa2_dtype)(kind / 2), kind % 2, 4096);
                size_t split = 0;
                check_class(generator, &card, &problem, &split);
                CHECK_EQ(split, 0);
                problem.seq_q = 1;
                problem.heads_kv = 2;
                check_class(generator, &card, &problem, &split);
                CHECK(split >= 2);
            }
    }
    fa2i_generator_destroy(generator);
}

/* A device that takes no code for one SM alone has no family that is such code. */
static void test_generic_card(void)
{
    fa2i_generator *generator = open_generator();
    const fa2_problem problem = problem_of(128, FA2_FP16, 1, 4096);
    fa2i_card card;
    size_t split = 0;
    CHECK_EQ(fa2i_generator_card(generator, 90, &card), FA2_OK);
    CHECK(!card.generic);
    card.generic = true;
    check_class(generator, &card, &problem, &split);
    fa2i_generator_destroy(generator);
}

/* Each text of a list comes through the parser, whole: it has a source or, here, a cost; and the
 * cost is the one that the list says. */
static void test_round_trip(void)
{
    fa2i_generator *generator = open_generator();
    const fa2_problem problem = problem_of(128, FA2_BF16, 1, 77);
    fa2i_card card;
    fa2i_variant *list = NULL;
    size_t count = 0, split = 0;
    CHECK_EQ(fa2i_generator_card(generator, 86, &card), FA2_OK);
    CHECK_EQ(fa2i_generator_candidates(generator, &problem, &card, &list, &count), FA2_OK);
    for (size_t i = 0; i < count; i++) {
        double us = 0;
        split += is_split(&list[i]);
        CHECK_EQ(fa2i_generator_cost(generator, list[i].text, &problem, &card, 0, &us), FA2_OK);
        CHECK(us == list[i].cost_us);
        fa2i_variant again;
        CHECK_EQ(fa2i_generator_variant(generator, list[i].text, &again), FA2_OK);
        CHECK_STR(again.text, list[i].text);
        CHECK_STR(again.recipe.text, list[i].recipe.text);
        CHECK_STR(again.class_key, "D=128 dtype=bf16 causal=1");
    }
    fa2i_variant none = {.cost_us = 7};
    CHECK_EQ(fa2i_generator_variant(generator, "fwd_sm80 d=64", &none), FA2_E_GENERATOR);
    CHECK(none.cost_us == 7);
    CHECK(split > 0 && split < count);
    fa2i_free(list);
    fa2i_generator_destroy(generator);
}

/* One compilation serves every sequence length: the lists of a class differ only in what is too
 * tall. */
static void test_sharing(void)
{
    fa2i_generator *generator = open_generator();
    fa2i_card card;
    fa2i_variant *all = NULL, *some = NULL;
    size_t all_count = 0, some_count = 0;
    const fa2_problem large = problem_of(64, FA2_FP16, 0, 8192);
    fa2_problem small = problem_of(64, FA2_FP16, 0, 80);
    small.batch = 64; /* enough blocks without splitting keys */
    CHECK_EQ(fa2i_generator_card(generator, 90, &card), FA2_OK);
    CHECK_EQ(fa2i_generator_candidates(generator, &large, &card, &all, &all_count), FA2_OK);
    CHECK_EQ(fa2i_generator_candidates(generator, &small, &card, &some, &some_count), FA2_OK);
    CHECK(some_count < all_count);
    for (size_t i = 0; i < some_count; i++) {
        size_t at = 0;
        while (at < all_count && strcmp(all[at].text, some[i].text) != 0)
            at++;
        CHECK(at < all_count);
        CHECK(some[i].recipe.rows <= 128);
    }
    int pads = 0, registers = 0, spread = 0, heights = 0;
    for (size_t i = 0; i < all_count; i++) {
        pads += strstr(all[i].text, "layout=pad") != NULL;
        registers += strstr(all[i].text, "q=reg") != NULL;
        spread += strstr(all[i].text, "fill=spread") != NULL;
        heights |= all[i].recipe.rows;
    }
    CHECK(pads > 0 && pads < (int)all_count / 2);
    CHECK(registers > 0);
    CHECK(spread > 0 && spread < (int)all_count / 2);
    CHECK_EQ(heights, 32 | 64 | 128 | 256);
    fa2i_free(all);
    fa2i_free(some);
    fa2i_generator_destroy(generator);
}

/* What the compiler says about registers counts: more of them, fewer resident blocks. */
static void test_cost(void)
{
    fa2i_generator *generator = open_generator();
    const fa2_problem problem = problem_of(64, FA2_FP16, 0, 4096),
                      causal = problem_of(64, FA2_FP16, 1, 4096);
    fa2i_card card;
    double lean = 0, fat = 0, half = 0;
    CHECK_EQ(fa2i_generator_card(generator, 90, &card), FA2_OK);
    CHECK_EQ(fa2i_generator_cost(generator, good, &problem, &card, 128, &lean), FA2_OK);
    CHECK_EQ(fa2i_generator_cost(generator, good, &problem, &card, 254, &fat), FA2_OK);
    CHECK(fa2i_generator_cost(generator, "naive d=64 dtype=fp16 causal=0", &problem, &card, 0,
                              &half) != FA2_OK);
    CHECK_CONTAINS(fa2_last_message(), "it has no model");
    CHECK(lean < fat);
    CHECK_EQ(fa2i_generator_cost(generator, good, &causal, &card, 254, &half), FA2_OK);
    CHECK(half > 0.5 * fat && half < 0.8 * fat);
    fa2i_generator_destroy(generator);
}

/* Decoding goes to a family that packs the heads of a group and splits the keys; a problem with
 * blocks enough does not, and is told why. */
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
        problem.batch = batch; /* 80 or 128 blocks for 132 SMs, unless keys are split */
        snprintf(text, sizeof text, form, 1);
        CHECK_EQ(fa2i_generator_cost(generator, text, &problem, &card, 0, &one), FA2_OK);
        snprintf(text, sizeof text, form, 2);
        CHECK_EQ(fa2i_generator_cost(generator, text, &problem, &card, 0, &two), FA2_OK);
        CHECK(batch == 10 ? two < one : one < two);
    }
    fa2i_generator_destroy(generator);
}

/* Variants that differ in how they are launched alone have one source. */
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

static double best_us(fa2i_generator *generator, const fa2i_card *card, const fa2_problem *problem,
                      const char *words)
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

/* Every family serves every combination of the features, on each code path; texts name those that are asked
 * for, and the model knows what they cost and save. */
static void test_features(void)
{
    static const char *const words[] = {
        " br=", " softcap=1 br=", " window=1 br=", " softcap=1 window=1 br="};
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

/* The other features, one at a time: every family serves them, texts and the model know them. */
static void test_more_features(void)
{
    static const struct {
        fa2_problem asked;
        const char *words;
        double most; /* of what it costs, as a share */
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

/* A window that ends nowhere costs what no window costs, or a causal mask does; a wider one more. */
static void test_windows(void)
{
    static const char form[] =
        "fwd_sm80 d=64 dtype=fp16 causal=%d%s br=128 bc=64 warps=4 kstages=2 "
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

static void test_cards(void)
{
    fa2i_generator *generator = open_generator();
    fa2i_card card, untouched = {.arch = 1};
    fa2i_variant *list = NULL;
    size_t count = 0;
    const fa2_problem bf16 = problem_of(64, FA2_BF16, 0, 512),
                      fp16 = problem_of(256, FA2_FP16, 0, 512);
    CHECK_EQ(fa2i_generator_card(generator, 75, &card), FA2_OK);
    CHECK_EQ(card.smem_block_bytes, 65536);
    CHECK_EQ(fa2i_generator_candidates(generator, &bf16, &card, &list, &count), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "bf16 needs compute capability 8.0");
    card.arch = 70;
    CHECK_EQ(fa2i_generator_candidates(generator, &fp16, &card, &list, &count), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "sm_70 is older than sm_75");
    CHECK(list == NULL);
    CHECK_EQ(fa2i_generator_card(generator, 61, &untouched), FA2_E_INVALID);
    CHECK_CONTAINS(
        fa2_last_message(),
        "sm_75, sm_80, sm_86, sm_87, sm_89, sm_90, sm_100, sm_103, sm_110, sm_120, sm_121");
    CHECK_EQ(untouched.arch, 1);
    /* A card newer than all that are known: the newest family, its own limits. */
    CHECK_EQ(fa2i_generator_card(generator, 89, &card), FA2_OK);
    card.arch = 130;
    CHECK_EQ(fa2i_generator_candidates(generator, &fp16, &card, &list, &count), FA2_OK);
    for (size_t i = 0; i < count; i++)
        check_candidate(&list[i], &card, &fp16);
    fa2i_free(list);
    /* GeForce sums at half the rate of the server card beside it. */
    double server = 0, geforce = 0;
    card.arch = 89;
    CHECK_EQ(fa2i_generator_cost(generator, good, &bf16, &card, 0, &server), FA2_OK);
    snprintf(card.name, sizeof card.name, "NVIDIA GeForce RTX 4090");
    CHECK_EQ(fa2i_generator_cost(generator, good, &bf16, &card, 0, &geforce), FA2_OK);
    CHECK(geforce > server);
    fa2i_generator_destroy(generator);
}

#define SPLIT "fwd_splitkv_sm80 d=64 dtype=fp16 causal=0 br=16 "

/* Texts of databases that are older than the key "fill" still name a variant. */
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

static void test_bad_texts(void)
{
    static const char *const cases[][2] = {
        {"", "there is no family ''"},
        {"fwd_sm81 d=64", "there is no family 'fwd_sm81'"},
        {"fwd_sm80", "has no 'd='"},
        {"fwd_sm80 dtype=fp16 d=64", "'dtype=fp16' where 'd=' is expected"},
        {"fwd_sm80 d=064", "'d=064' is not a plain integer"},
        {"fwd_sm80 d=-8", "'d=-8' is not a plain integer"},
        {"fwd_sm80  d=64", "where 'd=' is expected"},
        {"fwd_sm80 d=64 dtype=fp16 causal=0 softcap=0 br=128",
         "'softcap=0' is not softcap=1, which is left out otherwise"},
        {"fwd_sm80 d=64 dtype=fp16 causal=0 window=1 softcap=1 br=128",
         "'softcap=1' where 'br=' is expected"},
        {"fwd_sm80 d=64 dtype=fp16 causal=0 softcap=yes br=128", "'softcap=yes' is not softcap=1"},
        {"fwd_sm80 d=64 dtype=fp16 causal=0 window=yes br=128",
         "'window=yes' is not a plain integer below 100000"},
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
         "bc is none of 16, 32, 48, 64, 80, 96, 112, 128"},
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
        {SPLIT "bc=48 warps=4 teams=4 kstages=2 vstages=2 waves=1 layout=swizzle q=smem",
         "bc is none of 16, 32, 64"},
        {SPLIT "bc=32 warps=2 teams=4 kstages=2 vstages=2 waves=1 layout=swizzle q=smem",
         "no such br, warps and teams"},
        {SPLIT "bc=32 warps=4 teams=4 kstages=2 vstages=1 waves=1 layout=swizzle q=smem",
         "kstages and vstages differ"},
        {SPLIT "bc=32 warps=4 teams=4 kstages=2 vstages=2 waves=3 layout=swizzle q=smem",
         "waves is none of 1, 2, 4"},
        {SPLIT "bc=32 warps=4 teams=4 kstages=2 vstages=2 waves=1 layout=pad q=smem",
         "'layout=pad' is not one of swizzle"},
        {"fwd_sm75 d=64 dtype=bf16 causal=0 br=128 bc=64 warps=4 kstages=1 vstages=1 "
         "layout=swizzle q=smem fill=whole",
         "bf16 needs compute capability 8.0"},
    };
    fa2i_generator *generator = open_generator();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *source = NULL;
        CHECK_EQ(fa2i_generator_source(generator, cases[i][0], &source), FA2_E_GENERATOR);
        CHECK_CONTAINS(fa2_last_message(), cases[i][1]);
        CHECK(source == NULL);
    }
    fa2i_generator_destroy(generator);
}

static void test_rejected(void)
{
    fa2i_generator *generator = open_generator();
    const fa2_problem problem = problem_of(256, FA2_FP16, 0, 32);
    fa2i_card card;
    char *text = NULL;
    CHECK_EQ(fa2i_generator_card(generator, 75, &card), FA2_OK);
    CHECK_EQ(fa2i_generator_rejected(generator, &problem, &card, &text), FA2_OK);
    CHECK_CONTAINS(text, "bytes of shared memory, a block has 65536\n");
    CHECK_CONTAINS(text, "registers too many\n");
    CHECK_EQ(strncmp(text, "fwd_sm75 d=256 dtype=fp16 causal=0 ", 35), 0);
    fa2i_free(text);
    fa2i_generator_destroy(generator);
}

int main(void)
{
    generator_path(NULL);
    test_every_class();
    test_generic_card();
    test_round_trip();
    test_sharing();
    test_cost();
    test_splitting();
    test_waves();
    test_launch_axes();
    test_features();
    test_more_features();
    test_windows();
    test_cards();
    test_older_texts();
    test_bad_texts();
    test_rejected();
    return check_done();
}
