/* The generator's texts about candidates: parsing them, parts that lists share, and reasons for rejection. */
#include "generator_fixture.h"
#include "runtime/base/alloc.h"

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
    CHECK_EQ(fa2i_generator_variant(generator, "fwd_sm80 d=64", &none), FA2_E_NOT_FOUND);
    CHECK(none.cost_us == 7);
    CHECK(split > 0 && split < count);
    fa2i_free(list);
    fa2i_generator_destroy(generator);
}

/* One compilation serves every sequence length: the lists of a class differ only by tiles that are too tall. */
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
    test_round_trip();
    test_sharing();
    test_rejected();
    return check_done();
}
