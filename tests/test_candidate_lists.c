/*
 * Candidates listed by several threads equal those of one generator, with the keys of their sources. A problem that no
 * family supports has its own reason.
 */
#include "generator_fixture.h"
#include "runtime/base/alloc.h"
#include "runtime/ops/steps.h"
#include "tuner/input/shapes.h"
#include "tuner/search/candidates.h"
#include "tuner/search/text_index.h"

static void check_like(fa2i_generator *generator, const fa2i_candidates_for *asked, const fa2_problem *problem,
                       const fa2i_candidates *list)
{
    const fa2_problem rounded = fa2i_problem_asked(problem, asked->card->sm_count);
    fa2i_variant *wanted = NULL;
    size_t wanted_count = 0;
    const fa2_status st = fa2i_generator_candidates(generator, &rounded, asked->card, &wanted, &wanted_count);
    char said[512];
    snprintf(said, sizeof said, "%s", st == FA2_OK ? "" : fa2_last_message());
    CHECK_EQ(fa2i_candidates_check(list), st);
    if (st != FA2_OK)
        CHECK_STR(fa2_last_message(), said);
    CHECK_EQ(list->count, wanted_count);
    for (size_t i = 0; i < list->count && i < wanted_count; i++) {
        char *source = NULL;
        fa2i_key key;
        CHECK_STR(list->variants[i].text, wanted[i].text);
        if (i % 8 != 0) /* a source takes milliseconds */
            continue;
        CHECK_EQ(fa2i_generator_source(generator, wanted[i].text, &source), FA2_OK);
        fa2i_compile_key_of(&wanted[i], source, &asked->target, asked->target.nvrtc, &key);
        CHECK(memcmp(&list->keys[i], &key, sizeof key) == 0);
        fa2i_free(source);
    }
    fa2i_free(wanted);
}

/* ---- the index of texts ---- */

enum { TEXTS = 3000 };

typedef struct numbered {
    char text[16];
} numbered;

static const char *text_of(const void *of, size_t place)
{
    return ((const numbered *)of)[place].text;
}

/* Every text is found at its place, and no other text, even while the index grows. */
static void test_text_index(void)
{
    static numbered texts[TEXTS];
    fa2i_text_index index = {.text_at = text_of};
    int wrong = 0;
    CHECK_EQ(fa2i_text_index_find(&index, texts, "0"), FA2I_NO_PLACE);
    for (int i = 0; i < TEXTS; i++) {
        snprintf(texts[i].text, sizeof texts[i].text, "%d", i);
        wrong += fa2i_text_index_find(&index, texts, texts[i].text) != FA2I_NO_PLACE;
        CHECK_EQ(fa2i_text_index_add(&index, texts, (size_t)i), FA2_OK);
        wrong += fa2i_text_index_find(&index, texts, texts[i / 2].text) != i / 2;
    }
    for (int i = 0; i < TEXTS; i++)
        wrong += fa2i_text_index_find(&index, texts, texts[i].text) != i;
    CHECK_EQ(wrong, 0);
    CHECK_EQ(index.count, TEXTS);
    CHECK_EQ(fa2i_text_index_find(&index, texts, ""), FA2I_NO_PLACE);
    CHECK_EQ(fa2i_text_index_find(&index, texts, "3000"), FA2I_NO_PLACE);
    fa2i_text_index_done(&index);
    fa2i_text_index_done(&index);
}

/* Without memory to grow, the index is unchanged. */
static void test_text_index_memory(void)
{
    static numbered texts[TEXTS];
    fa2i_text_index index = {.text_at = text_of};
    size_t count = 0;
    fa2_status st = FA2_OK;
    fa2i_alloc_fail_at(2);
    for (; st == FA2_OK && count < TEXTS; count += st == FA2_OK) {
        snprintf(texts[count].text, sizeof texts[count].text, "%zu", count);
        st = fa2i_text_index_add(&index, texts, count);
    }
    fa2i_alloc_fail_at(0);
    CHECK_EQ(st, FA2_E_MEMORY);
    CHECK(count > 0);
    CHECK_EQ(index.count, count);
    CHECK_EQ(fa2i_text_index_find(&index, texts, "0"), 0);
    CHECK_EQ(fa2i_text_index_add(&index, texts, count), FA2_OK);
    CHECK_EQ(fa2i_text_index_find(&index, texts, texts[count].text), count);
    fa2i_text_index_done(&index);
}

/* ---- lists ---- */

/* One problem whose sources are divided among threads. */
static void test_one_problem(fa2i_generator *generator)
{
    fa2i_shapes shapes = {0};
    fa2i_card card = {0};
    CHECK_EQ(fa2i_generator_card(generator, 90, &card), FA2_OK);
    CHECK_EQ(fa2i_shapes_add_text(&shapes, "Hq=8,Sq=2048,D=128"), FA2_OK);
    for (int threads = 1; threads <= 5; threads += 4) {
        fa2i_candidates *lists = NULL;
        const fa2i_candidates_for asked = {
            .card = &card, .target = {.name = "sm_90", .nvrtc = 12040}, .threads = threads};
        CHECK_EQ(fa2i_candidates_list(shapes.items, 1, &asked, &lists), FA2_OK);
        CHECK(lists[0].count > 64);
        check_like(generator, &asked, &shapes.items[0], &lists[0]);
        fa2i_candidates_free(lists, 1);
    }
    fa2i_shapes_done(&shapes);
}

static void test_many_problems(fa2i_generator *generator)
{
    static const char *const texts[] = {
        "Hq=2,Sq=100,D=16",           "op=backward,Hq=2,Sq=1001,D=16", "Hq=2,Sq=1,Sk=999,D=16",
        "Hq=2,Sq=64,D=16,dtype=bf16", "Hq=2,Sq=100,D=16,causal=1",
    };
    enum { FIRST = sizeof texts / sizeof *texts, COUNT = FIRST + 18 };
    fa2i_shapes shapes = {0};
    fa2i_card card = {0};
    CHECK_EQ(fa2i_generator_card(generator, 75, &card), FA2_OK); /* it has no bf16 */
    for (int i = 0; i < FIRST; i++)
        CHECK_EQ(fa2i_shapes_add_text(&shapes, texts[i]), FA2_OK);
    for (int i = FIRST; i < COUNT; i++) { /* more of one class than a thread takes at once */
        char text[64];
        snprintf(text, sizeof text, "Hq=2,Sq=%d,D=16", 100 + 10 * i);
        CHECK_EQ(fa2i_shapes_add_text(&shapes, text), FA2_OK);
    }
    for (int threads = 1; threads <= 3; threads += 2) {
        fa2i_candidates *lists = NULL;
        const fa2i_candidates_for asked = {
            .card = &card, .target = {.name = "sm_75", .nvrtc = 12040}, .threads = threads};
        CHECK_EQ(fa2i_candidates_list(shapes.items, COUNT, &asked, &lists), FA2_OK);
        for (int i = 0; i < COUNT; i++)
            check_like(generator, &asked, &shapes.items[i], &lists[i]);
        CHECK_EQ(lists[0].status, FA2_OK);
        CHECK_EQ(lists[3].status, FA2_E_UNSUPPORTED);
        fa2i_candidates_free(lists, COUNT);
    }
    fa2i_shapes_done(&shapes);
}

/* A combination of features that needs too many registers still has kernels, which spill. */
static void test_crowded(fa2i_generator *generator)
{
    static const char *const features[] = {"seqused=1,page=16",
                                           "alibi=1,seqused=1",
                                           "alibi=1,cache_rows=1",
                                           "bias=fp32,seqused=1",
                                           "bias=bool,cache_rows=1",
                                           "alibi=1,varlen=1,Tq=900,Tk=900",
                                           "bias=fp16,varlen=1,Tq=900,Tk=900"};
    fa2i_card card = {0};
    CHECK_EQ(fa2i_generator_card(generator, 75, &card), FA2_OK);
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        char text[96];
        fa2i_shapes shapes = {0};
        fa2i_variant *list = NULL;
        size_t count = 0;
        snprintf(text, sizeof text, "B=4,Hq=2,Sq=400,D=256,%s", features[i]);
        CHECK_EQ(fa2i_shapes_add_text(&shapes, text), FA2_OK);
        CHECK_EQ(fa2i_generator_candidates(generator, shapes.items, &card, &list, &count), FA2_OK);
        CHECK(count > 8);
        fa2i_free(list);
        fa2i_shapes_done(&shapes);
    }
}

int main(void)
{
    fa2i_generator *generator = open_generator();
    test_text_index();
    test_text_index_memory();
    test_many_problems(generator);
    test_one_problem(generator);
    test_crowded(generator);
    fa2i_generator_destroy(generator);
    return check_done();
}
