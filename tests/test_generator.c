/* The candidates that the generator lists for every class and SM: their sizes and their order. */
#include "generator_fixture.h"
#include "runtime/base/alloc.h"

static const int archs[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
static const int head_dims[] = {8, 16, 32, 40, 64, 72, 80, 96, 128, 160, 192, 256};
enum {
    ARCHS = sizeof archs / sizeof archs[0],
    HEAD_DIMS = sizeof head_dims / sizeof head_dims[0],
};

/* Returns the value of " key=" in a canonical text, -1 if it is missing. */
static int value_of(const char *text, const char *key)
{
    char word[32];
    snprintf(word, sizeof word, " %s=", key);
    const char *found = strstr(text, word);
    return found == NULL ? -1 : (int)strtol(found + strlen(word), NULL, 10);
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

/* Checks a candidate's sizes, computed from its text. The templates assert the same sum. */
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

/* The same for a candidate on wgmma: pages of 64 columns, with barriers after them. */
static void check_wgmma_sizes(const fa2i_variant *v, const fa2_problem *problem)
{
    const int bc = value_of(v->text, "bc"), groups = value_of(v->text, "groups");
    const int stages = value_of(v->text, "stages"), pages = (problem->head_dim + 63) / 64;
    const int rows = 64 * groups + 2 * stages * bc, barriers = 8 * (2 * groups + 4 * stages);
    const bool staged = problem->bias == FA2_BIAS_FP16 || problem->bias == FA2_BIAS_BF16;
    const int side = staged ? 64 * 2 * bc + 16 : 0; /* including two barriers */
    const bool counted = strstr(v->text, " persistent=2") != NULL;
    const bool persistent = counted || strstr(v->text, " persistent=1") != NULL;
    const bool stores = persistent && groups > 1;                /* O is stored by a tensor map */
    const bool sloped = strstr(v->text, " alibi_mma=1") != NULL; /* sixteen more columns of K, for ALiBi */
    const int keys = problem->dropout ? stages * 8 * bc : 0;     /* dropout keys of columns */
    const int bytes =
        pages * 128 * rows + barriers + (counted ? 4 * groups : 0) + groups * side + (sloped ? 32 * bc : 0) + keys;
    const int with_o = bytes + pages * 128 * 64 * groups;
    const fa2i_step *step = fa2i_recipe_main(&v->recipe);
    const int blocks = step->block_rows;
    const bool has_room = blocks * (with_o + 1024) <= 233472; /* shared memory of an SM */
    const int held = persistent && has_room ? with_o : bytes;
    const int more = held + (stages - 1) * groups * side; /* if there are as many bias tiles as tiles of K */
    CHECK_EQ(step->smem_bytes, blocks * (more + 1024) <= 233472 ? more : held);
    CHECK_EQ(step->blocks, persistent ? FA2I_BLOCKS_RESIDENT_ROW_TILES : FA2I_BLOCKS_ROW_TILES);
    CHECK(blocks * (step->smem_bytes + 1024) <= 233472);
    CHECK_EQ(step->threads, 128 * (groups + 1));
    CHECK_EQ(v->recipe.rows, 64 * groups);
    CHECK_EQ(v->recipe.keys, bc);
    CHECK_STR(v->recipe.suffix, "a");
    const int k = v->recipe.pack ? 0 : 1; /* packed rows of several heads need no map of Q */
    CHECK_EQ(v->recipe.pack, strstr(v->text, " pack=1") != NULL);
    CHECK(v->recipe.map_count == k + 2 + stores + staged && (k == 0 || v->recipe.maps[0].rows == 64));
    CHECK(v->recipe.maps[k + 1].rows == bc && (!stores || v->recipe.maps[k + 2].rows == 16));
    CHECK(!staged || v->recipe.maps[k + 2 + stores].operand == FA2I_MAPPED_BIAS);
    CHECK_EQ(v->recipe.step_count, 1 + (counted || keys > 0));
    CHECK_EQ(v->recipe.workspace, keys > 0  ? FA2I_WORKSPACE_COLUMN_KEYS
                                  : counted ? FA2I_WORKSPACE_COUNTER
                                            : FA2I_WORKSPACE_NONE);
}

static const char *family_of(const fa2i_variant *v, const fa2i_card *card)
{
    if (is_split(v))
        return card->arch == 75 ? "fwd_splitkv_sm75 " : "fwd_splitkv_sm80 ";
    if (is_wgmma(v))
        return card->arch == 90 && !card->generic ? "fwd_sm90 " : "none";
    return card->arch == 75 ? "fwd_sm75 " : "fwd_sm80 ";
}

static void check_candidate(const fa2i_variant *v, const fa2i_card *card, const fa2_problem *problem)
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

/* Checks the candidates of a problem. *ret_split: the number that divide the keys. */
static void check_class(fa2i_generator *generator, const fa2i_card *card, const fa2_problem *problem, size_t *ret_split)
{
    fa2i_variant *list = NULL;
    size_t count = 0, split = 0, wgmma = 0;
    CHECK_EQ(fa2i_generator_candidates(generator, problem, card, &list, &count), FA2_OK);
    for (size_t i = 0; i < count; i++) {
        check_candidate(&list[i], card, problem);
        split += is_split(&list[i]);
        wgmma += is_wgmma(&list[i]);
        CHECK(i == 0 || list[i - 1].cost_us < list[i].cost_us ||
              (list[i - 1].cost_us == list[i].cost_us && strcmp(list[i - 1].text, list[i].text) < 0));
    }
    CHECK(split <= 24);
    CHECK(count - split - wgmma >= 1 && count - split - wgmma <= 40);
    const int rows = problem->seq_q * (problem->heads_q / problem->heads_kv); /* with packed heads */
    CHECK(card->arch == 90 && !card->generic && rows >= 64 ? wgmma >= 1 && wgmma <= 19 : wgmma == 0);
    *ret_split = split;
    fa2i_free(list);
}

/* Returns true for a sufficient part of all classes: bf16 has fp16's tiles, cards beyond sm_90 have those of sm_90, and
 * cards from sm_80 on share a family. With FA2_TEST_ALL it is always true. */
static bool is_sampled(size_t arch, size_t d, int kind)
{
    const bool first_of_its_tiles = kind / 2 == FA2_FP16 && archs[arch] <= 90;
    if (getenv("FA2_TEST_ALL") != NULL || (first_of_its_tiles && archs[arch] == 75))
        return true;
    return (d + arch + (size_t)kind) % (first_of_its_tiles ? 2 : 4) == 0;
}

/* Each class with a problem that fills any card, and with decoding, which fills no card. */
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
                fa2_problem problem = problem_of(head_dims[d], (fa2_dtype)(kind / 2), kind % 2, 4096);
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

/* Writes the first words of a class's candidates, each family once. */
static void families_of(fa2i_generator *generator, int arch, const fa2_problem *problem, char out[256])
{
    fa2i_card card;
    fa2i_variant *list = NULL;
    size_t count = 0;
    out[0] = '\0';
    CHECK_EQ(fa2i_generator_card(generator, arch, &card), FA2_OK);
    CHECK_EQ(fa2i_generator_candidates(generator, problem, &card, &list, &count), FA2_OK);
    for (size_t i = 0; i < count; i++) {
        char family[64];
        snprintf(family, sizeof family, "%.*s ", (int)strcspn(list[i].text, " "), list[i].text);
        if (strstr(out, family) == NULL)
            strcat(out, family);
    }
    fa2i_free(list);
}

/* A permission takes no family away. */
static void test_permissions(void)
{
    static const int archs_of[] = {75, 80, 90};
    fa2i_generator *generator = open_generator();
    for (int i = 0; i < 6; i++) {
        char exact[256], permitted[256];
        fa2_problem problem = problem_of(128, FA2_FP16, 1, 4096);
        problem.seq_q = i % 2 == 0 ? problem.seq_q : 1;
        families_of(generator, archs_of[i / 2], &problem, exact);
        CHECK(strstr(exact, "fwd_") != NULL);
        problem.sums = FA2_SUMS_FAST;
        problem.scores = FA2_SCORES_INT8;
        families_of(generator, archs_of[i / 2], &problem, permitted);
        CHECK_STR(permitted, exact);
    }
    fa2i_generator_destroy(generator);
}

/* Returns how many of the plain families' candidates round Q and K, and how many do not. */
static void count_rounded(fa2i_generator *generator, int arch, const fa2_problem *problem, int *rounded, int *exact)
{
    fa2i_card card;
    fa2i_variant *list = NULL;
    size_t count = 0;
    *rounded = *exact = 0;
    CHECK_EQ(fa2i_generator_card(generator, arch, &card), FA2_OK);
    CHECK_EQ(fa2i_generator_candidates(generator, problem, &card, &list, &count), FA2_OK);
    for (size_t i = 0; i < count; i++) {
        const bool is_rounded = strstr(list[i].text, " qk=int8") != NULL;
        *rounded += is_rounded;
        *exact += !is_rounded && !is_split(&list[i]);
        CHECK_EQ(strstr(list[i].recipe.text, "workspace=int8_keys") != NULL, is_rounded);
        CHECK(!is_rounded || strstr(list[i].text, " q=reg") != NULL);
    }
    fa2i_free(list);
}

/* Only problems that permit 8-bit scores have such candidates, beside exact ones. The step that rounds K costs time. */
static void test_int8_scores(void)
{
    static const int archs_of[] = {75, 80, 89}, columns[] = {64, 128, 256};
    fa2i_generator *generator = open_generator();
    int rounded, exact;
    for (int a = 0; a < 3; a++)
        for (int d = 0; d < 3; d++) {
            fa2_problem problem = problem_of(columns[d], FA2_FP16, 1, 4096);
            count_rounded(generator, archs_of[a], &problem, &rounded, &exact);
            CHECK(rounded == 0 && exact > 0);
            problem.scores = FA2_SCORES_INT8;
            count_rounded(generator, archs_of[a], &problem, &rounded, &exact);
            CHECK((archs_of[a] == 75 && columns[d] == 256 ? rounded == 0 : rounded >= 5) && exact > 0);
            problem.append = 1;
            count_rounded(generator, archs_of[a], &problem, &rounded, &exact);
            CHECK(rounded == 0);
        }
    fa2i_generator_destroy(generator);
}

/* A device that takes no code for one SM alone (sm_90a) has no family with such code. */
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

/* Decoding of latent attention uses wgmma if V lies in K and a group has more rows than half a block. */
static void test_latent(void)
{
    fa2i_generator *generator = open_generator();
    fa2_problem problem = problem_of(576, FA2_BF16, 0, 8192);
    fa2i_card card;
    fa2i_variant *list = NULL;
    size_t count = 0;
    problem.batch = 32;
    problem.head_dim_v = 512;
    problem.v_in_k = 1;
    problem.heads_q = 128;
    problem.heads_kv = 1;
    problem.seq_q = 1;
    CHECK_EQ(fa2i_generator_card(generator, 90, &card), FA2_OK);
    for (int generic = 0; generic < 2; generic++) {
        card.generic = generic == 1;
        CHECK_EQ(fa2i_generator_candidates(generator, &problem, &card, &list, &count), FA2_OK);
        CHECK(count > 0);
        CHECK_EQ(strncmp(list[0].text, "fwd_splitkv_sm90 ", 17) == 0, generic == 0);
        CHECK_STR(list[0].recipe.suffix, generic == 0 ? "a" : "");
        CHECK(fa2i_recipe_main(&list[0].recipe)->smem_bytes <= card.smem_block_bytes);
        fa2i_free(list);
    }
    fa2i_generator_destroy(generator);
}

/* Numbers of fwd_sm90's candidates: all, those that pack query heads, those with ALiBi's columns in the product. */
typedef struct wgmma_counts {
    int all, packed, sloped;
} wgmma_counts;

static wgmma_counts count_wgmma(fa2i_generator *generator, const fa2_problem *problem)
{
    wgmma_counts counts = {0};
    fa2i_card card;
    fa2i_variant *list = NULL;
    size_t count = 0;
    CHECK_EQ(fa2i_generator_card(generator, 90, &card), FA2_OK);
    CHECK_EQ(fa2i_generator_candidates(generator, problem, &card, &list, &count), FA2_OK);
    CHECK(count > 0);
    for (size_t i = 0; i < count; i++) {
        if (!is_wgmma(&list[i]))
            continue;
        check_wgmma_sizes(&list[i], problem);
        counts.all++;
        counts.packed += list[i].recipe.pack;
        counts.sloped += strstr(list[i].text, " alibi_mma=1") != NULL;
    }
    fa2i_free(list);
    return counts;
}

/* Candidates pack the query heads of a key head if there are few queries of several heads, and no feature per head
 * except ALiBi. ALiBi is part of the product if the problem is causal and ALiBi is added to the product itself. */
static void test_wgmma_forward(void)
{
    fa2i_generator *generator = open_generator();
    fa2_problem problem = problem_of(128, FA2_BF16, 1, 4096);
    wgmma_counts counts = count_wgmma(generator, &problem);
    CHECK(counts.all > 0 && counts.packed == 0);
    problem.seq_q = 16;
    CHECK_EQ(count_wgmma(generator, &problem).all, 0);
    problem.heads_kv = problem.heads_q / 4;
    counts = count_wgmma(generator, &problem);
    CHECK(counts.packed > 0 && counts.packed == counts.all);
    problem.batch = 32; /* enough blocks to fill the card without dividing keys */
    CHECK(count_wgmma(generator, &problem).packed > 0);
    problem.batch = 1;
    problem.seq_q = 15; /* 60 rows of four heads */
    CHECK_EQ(count_wgmma(generator, &problem).all, 0);
    problem.seq_q = 300;
    problem.alibi = 1;
    counts = count_wgmma(generator, &problem);
    CHECK(counts.packed > 0 && counts.packed < counts.all);
    CHECK(counts.sloped > 0 && counts.sloped < counts.all);
    problem.softcap = 1;
    CHECK_EQ(count_wgmma(generator, &problem).sloped, 0);
    problem.softcap = 0;
    problem.sinks = 1;
    CHECK_EQ(count_wgmma(generator, &problem).packed, 0);
    problem.sinks = 0;
    problem.seq_q = 4096; /* one head has enough rows */
    CHECK_EQ(count_wgmma(generator, &problem).packed, 0);
    problem.dropout = 1;
    CHECK(count_wgmma(generator, &problem).all > 0);
    problem.bias = FA2_BIAS_BF16;
    CHECK(count_wgmma(generator, &problem).all > 0);
    fa2i_generator_destroy(generator);
}

/* Returns the number of candidates of backward on wgmma. Checks their recipes. */
static size_t count_wgmma_backward(fa2i_generator *generator, const fa2_problem *problem, const fa2i_card *card)
{
    fa2i_variant *list = NULL;
    size_t count = 0, found = 0;
    CHECK_EQ(fa2i_generator_candidates(generator, problem, card, &list, &count), FA2_OK);
    CHECK(count > 0);
    for (size_t i = 0; i < count; i++) {
        const fa2i_recipe *recipe = &list[i].recipe;
        if (strncmp(list[i].text, "bwd_sm90 ", 9) != 0)
            continue;
        found++;
        CHECK_EQ(recipe->rows, value_of(list[i].text, "br"));
        CHECK(recipe->map_count == 4 && recipe->maps[0].rows == recipe->rows && recipe->maps[1].rows == recipe->keys &&
              recipe->maps[3].rows == recipe->rows);
        CHECK(recipe->columns >= problem->head_dim && recipe->columns % 16 == 0);
        CHECK_STR(recipe->suffix, "a");
        CHECK_EQ(recipe->workspace,
                 problem->deterministic ? FA2I_WORKSPACE_ROWS_DQ_AND_TURNS : FA2I_WORKSPACE_ROWS_AND_DQ);
        CHECK(fa2i_recipe_main(recipe)->smem_bytes <= card->smem_block_bytes);
    }
    /* As measured, it is the fastest if the products are divided, or scores have a bias. */
    CHECK(found == 0 || (problem->head_dim <= 128 && problem->bias == 0) || strncmp(list[0].text, "bwd_sm90 ", 9) == 0);
    fa2i_free(list);
    return found;
}

/* The problems that backward on wgmma supports. */
static void test_wgmma_backward(void)
{
    static const struct {
        fa2_problem problem;
        bool served;
    } cases[] = {
        {{.head_dim = 8}, true},
        {{.head_dim = 64, .alibi = 1, .dropout = 1}, true},
        {{.head_dim = 128, .deterministic = 1}, true},
        {{.head_dim = 72, .softcap = 1, .sinks = 1, .causal = 1, .window = 1, .window_left = 256, .window_right = -1},
         true},
        {{.head_dim = 136}, true},
        {{.head_dim = 256, .causal = 1, .dropout = 1, .deterministic = 1}, true},
        {{.head_dim = 136, .varlen = 1, .total_q = 2048, .total_k = 2048}, false},
        {{.head_dim = 128, .head_dim_v = 64}, false},
        {{.head_dim = 128, .causal = 1, .bias = FA2_BIAS_FP16}, true},
        {{.head_dim = 128, .alibi = 1, .bias = FA2_BIAS_FP16}, false},
        {{.head_dim = 64, .bias = FA2_BIAS_FP32}, false},
        {{.head_dim = 128, .bias = FA2_BIAS_BOOL}, false},
    };
    fa2i_generator *generator = open_generator();
    fa2i_card card;
    CHECK_EQ(fa2i_generator_card(generator, 90, &card), FA2_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fa2_problem problem = cases[i].problem;
        problem.op = FA2_OP_BACKWARD;
        problem.batch = problem.heads_q = problem.heads_kv = 8;
        problem.seq_q = problem.seq_k = 1024;
        card.generic = false;
        CHECK_EQ(count_wgmma_backward(generator, &problem, &card) > 0, cases[i].served);
        card.generic = true;
        if (i == 0)
            CHECK_EQ(count_wgmma_backward(generator, &problem, &card), 0);
    }
    fa2i_generator_destroy(generator);
}

/* The parser accepts each text of a list in full: it has a source or, here, a cost, which equals the list's cost. */
static void test_cards(void)
{
    fa2i_generator *generator = open_generator();
    fa2i_card card, untouched = {.arch = 1};
    fa2i_variant *list = NULL;
    size_t count = 0;
    const fa2_problem bf16 = problem_of(64, FA2_BF16, 0, 512), fp16 = problem_of(256, FA2_FP16, 0, 512);
    CHECK_EQ(fa2i_generator_card(generator, 75, &card), FA2_OK);
    CHECK_EQ(card.smem_block_bytes, 65536);
    CHECK_EQ(fa2i_generator_candidates(generator, &bf16, &card, &list, &count), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "bf16 needs compute capability 8.0, and this is 7.5");
    card.arch = 70;
    CHECK_EQ(fa2i_generator_candidates(generator, &fp16, &card, &list, &count), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "sm_70 is older than sm_75");
    CHECK(list == NULL);
    CHECK_EQ(fa2i_generator_card(generator, 61, &untouched), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(),
                   "sm_75, sm_80, sm_86, sm_87, sm_88, sm_89, sm_90, sm_100, sm_103, sm_110, sm_120, sm_121");
    CHECK_EQ(untouched.arch, 1);
    /* A card newer than all known ones gets the newest family, with the card's own limits. */
    CHECK_EQ(fa2i_generator_card(generator, 89, &card), FA2_OK);
    card.arch = 130;
    CHECK_EQ(fa2i_generator_candidates(generator, &fp16, &card, &list, &count), FA2_OK);
    for (size_t i = 0; i < count; i++)
        check_candidate(&list[i], &card, &fp16);
    fa2i_free(list);
    /* GeForce has half the matrix rate of the server card of the same SM. */
    double server = 0, geforce = 0;
    card.arch = 89;
    CHECK_EQ(fa2i_generator_cost(generator, good, &bf16, &card, 0, &server), FA2_OK);
    snprintf(card.name, sizeof card.name, "NVIDIA GeForce RTX 4090");
    CHECK_EQ(fa2i_generator_cost(generator, good, &bf16, &card, 0, &geforce), FA2_OK);
    CHECK(geforce > server);
    fa2i_generator_destroy(generator);
}

int main(void)
{
    generator_path(NULL);
    test_every_class();
    test_permissions();
    test_int8_scores();
    test_generic_card();
    test_latent();
    test_wgmma_forward();
    test_wgmma_backward();
    test_cards();
    return check_done();
}
