/*
 * Candidates listed by several threads are those that one generator gives; a problem that nobody serves
 * has its own reason.
 */
#include "generator_fixture.h"
#include "runtime/base/alloc.h"
#include "tuner/input/shapes.h"
#include "tuner/search/candidates.h"

static void check_like(fa2i_generator *generator, const fa2i_card *card, const fa2_problem *problem,
                       const fa2i_candidates *list)
{
    const fa2_problem rounded = fa2i_problem_rounded(problem);
    const fa2i_variant *listed = NULL;
    fa2i_variant *wanted = NULL;
    size_t count = 0, wanted_count = 0;
    const fa2_status st =
        fa2i_generator_candidates(generator, &rounded, card, &wanted, &wanted_count);
    char said[512];
    snprintf(said, sizeof said, "%s", st == FA2_OK ? "" : fa2_last_message());
    CHECK_EQ(fa2i_candidates_get(list, &listed, &count), st);
    if (st != FA2_OK)
        CHECK_STR(fa2_last_message(), said);
    CHECK_EQ(count, wanted_count);
    for (size_t i = 0; i < count && i < wanted_count; i++)
        CHECK_STR(listed[i].text, wanted[i].text);
    fa2i_free(wanted);
}

int main(void)
{
    static const char *const texts[] = {
        "Hq=2,Sq=100,D=16",           "op=backward,Hq=2,Sq=1001,D=16", "Hq=2,Sq=1,Sk=999,D=16",
        "Hq=2,Sq=64,D=16,dtype=bf16", "Hq=2,Sq=100,D=16,causal=1",
    };
    enum { COUNT = sizeof texts / sizeof *texts };
    fa2i_generator *generator = open_generator();
    fa2i_shapes shapes = {0};
    fa2i_card card = {0};
    CHECK_EQ(fa2i_generator_card(generator, 75, &card), FA2_OK); /* which has no bf16 */
    for (int i = 0; i < COUNT; i++)
        CHECK_EQ(fa2i_shapes_add_text(&shapes, texts[i]), FA2_OK);
    for (int threads = 1; threads <= 3; threads += 2) {
        fa2i_candidates *lists = NULL;
        CHECK_EQ(fa2i_candidates_list(shapes.items, COUNT, &card, threads, NULL, &lists), FA2_OK);
        for (int i = 0; i < COUNT; i++)
            check_like(generator, &card, &shapes.items[i], &lists[i]);
        CHECK_EQ(lists[0].status, FA2_OK);
        CHECK_EQ(lists[3].status, FA2_E_UNSUPPORTED);
        fa2i_candidates_free(lists, COUNT);
    }
    fa2i_shapes_done(&shapes);
    fa2i_generator_destroy(generator);
    return check_done();
}
