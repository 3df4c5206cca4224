/* The host of the scripts: golden configurations, determinism, overrides by FA2_GEN_PATH, wrong answers, and failing
 * allocations. FA2_UPDATE_GOLDEN=1 rewrites the golden files. */
#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>
#include "generator_fixture.h"
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "runtime/lua/surveys.h"

static const int archs[] = {75, 80, 86, 87, 89, 90};
enum { ARCHS = sizeof archs / sizeof archs[0], LATE_FAILURES = 150 };

/* Checks that a file holds exactly this text. With FA2_UPDATE_GOLDEN it writes the file instead. */
static void check_golden(const char *name, const char *text)
{
    const char *source = getenv("FA2_SOURCE_DIR");
    char path[1024], golden[32768];
    snprintf(path, sizeof path, "%s/tests/golden/%s", source == NULL ? "." : source, name);
    const bool update = getenv("FA2_UPDATE_GOLDEN") != NULL;
    FILE *file = fopen(path, update ? "wb" : "rb");
    CHECK(file != NULL);
    if (file == NULL)
        return;
    if (update) {
        CHECK(fputs(text, file) >= 0);
    } else {
        golden[fread(golden, 1, sizeof golden - 1, file)] = '\0';
        CHECK_STR(text, golden);
    }
    fclose(file);
}

/* The configurations of a few variants alone: the root templates in tests/golden/templates include nothing else. */
static void test_golden(void)
{
    static const char *const cases[][2] = {
        {"sm75_d40.cu", "fwd_sm75 d=40 dtype=fp16 causal=0 br=64 bc=32 warps=4 kstages=1 vstages=1 "
                        "layout=swizzle q=reg fill=whole"},
        {"sm80_d64.cu", good},
        {"sm80_d128_bf16_causal.cu", "fwd_sm80 d=128 dtype=bf16 causal=1 br=64 bc=48 warps=4 "
                                     "kstages=3 vstages=3 layout=pad q=reg fill=spread"},
        {"splitkv_sm80_d128.cu", "fwd_splitkv_sm80 d=128 dtype=fp16 causal=0 br=16 bc=32 warps=4 "
                                 "teams=4 kstages=3 vstages=3 waves=1 layout=swizzle q=smem"},
        {"sm90_d128_bf16_causal.cu", "fwd_sm90 d=128 dtype=bf16 causal=1 groups=2 bc=128 stages=2 pingpong=1"},
    };
    generator_path("tests/golden");
    fa2i_generator *generator = open_generator();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = NULL;
        CHECK_EQ(fa2i_generator_source(generator, cases[i][1], &text), FA2_OK);
        if (text != NULL)
            check_golden(cases[i][0], text);
        fa2i_free(text);
    }
    fa2i_generator_destroy(generator);
    generator_path(NULL);
}

/* Two generators give the same bytes in any locale. A changed file gives another generator id. */
static void test_determinism(void)
{
    fa2i_generator *first = open_generator();
    setlocale(LC_ALL, "de_DE.UTF-8"); /* decimal comma, where it is installed */
    fa2i_generator *second = open_generator();
    fa2i_card card;
    char *sources[2] = {NULL, NULL}, *rejected[2] = {NULL, NULL};
    const fa2_problem problem = problem_of(96, FA2_BF16, 1, 300);
    CHECK_STR(fa2i_generator_id(first), fa2i_generator_id(second));
    CHECK_EQ(strlen(fa2i_generator_id(first)), 16);
    for (int i = 0; i < 2; i++) {
        fa2i_generator *generator = i == 0 ? first : second;
        CHECK_EQ(fa2i_generator_card(generator, 80, &card), FA2_OK);
        CHECK_EQ(fa2i_generator_source(generator, good, &sources[i]), FA2_OK);
        CHECK_EQ(fa2i_generator_rejected(generator, &problem, &card, &rejected[i]), FA2_OK);
    }
    CHECK_STR(sources[0], sources[1]);
    CHECK_STR(rejected[0], rejected[1]);
    generator_path("tests/families");
    fa2i_generator *third = open_generator();
    CHECK(strcmp(fa2i_generator_id(first), fa2i_generator_id(third)) != 0);
    generator_path(NULL);
    setlocale(LC_ALL, "C");
    for (int i = 0; i < 2; i++) {
        fa2i_free(sources[i]);
        fa2i_free(rejected[i]);
    }
    fa2i_generator_destroy(first);
    fa2i_generator_destroy(second);
    fa2i_generator_destroy(third);
}

/* FA2_GEN_PATH adds families to the embedded ones. An empty folder is an error. */
static void test_override(void)
{
    const fa2_problem problem = problem_of(256, FA2_FP16, 1, 1);
    generator_path("tests/families");
    fa2i_generator *generator = open_generator();
    for (size_t a = 0; a < ARCHS; a++) {
        fa2i_card card;
        fa2i_variant *list = NULL;
        size_t count = 0, faults = 0, hangs = 0;
        CHECK_EQ(fa2i_generator_card(generator, archs[a], &card), FA2_OK);
        CHECK_EQ(fa2i_generator_candidates(generator, &problem, &card, &list, &count), FA2_OK);
        for (size_t i = 0; i < count; i++) {
            const bool fault = strncmp(list[i].text, "test_fault ", 11) == 0;
            const bool hang = strncmp(list[i].text, "test_hang ", 10) == 0;
            char *source = NULL;
            faults += fault;
            hangs += hang;
            CHECK(i > 0 || (!fault && !hang));
            if (!fault && !hang)
                continue;
            CHECK_EQ(fa2i_generator_source(generator, list[i].text, &source), FA2_OK);
            CHECK_CONTAINS(source, fault ? "test_fault(const Params p)" : "test_hang(const Params p)");
            fa2i_free(source);
        }
        CHECK_EQ(faults, 1);
        CHECK_EQ(hangs, 1);
        fa2i_free(list);
    }
    fa2i_generator_destroy(generator);
    generator = NULL;
    generator_path("tests/golden/templates");
    CHECK_EQ(fa2i_generator_create(&generator), FA2_E_GENERATOR);
    CHECK_CONTAINS(fa2_last_message(), "has neither gen/ nor templates/");
    CHECK(generator == NULL);
    generator_path(NULL);
}

/* A family refuses an unknown feature by name. The others serve the problem. */
static void test_unknown_feature(void)
{
    fa2_problem problem = problem_of(64, FA2_FP16, 1, 512);
    fa2i_card card;
    char *text = NULL;
    problem.softcap = 1;
    generator_path("tests/families");
    fa2i_generator *generator = open_generator();
    CHECK_EQ(fa2i_generator_card(generator, 80, &card), FA2_OK);
    CHECK_EQ(fa2i_generator_rejected(generator, &problem, &card, &text), FA2_OK);
    CHECK(strstr(text, "does not know") == NULL);
    fa2i_free(text);
    problem.window = 1;
    problem.window_left = 100;
    problem.window_right = -1;
    CHECK_EQ(fa2i_generator_rejected(generator, &problem, &card, &text), FA2_OK);
    CHECK_CONTAINS(text, "\ntest_fault: it does not know window\n");
    fa2i_free(text);
    fa2i_generator_destroy(generator);
    generator_path(NULL);
}

#define TEXT    "text = 'v'"
#define RECIPE  "recipe = 'op=forward abi=2 rows=64 keys=64; v role=main threads=32 smem=0 blocks=row_tiles'"
#define KIND(x) "kind = {op = 'forward', dtype = 'fp16', head_dim = 64" x "}"

/* The scripts' answers are checked, so that no launch relies on wrong ones. */
static void test_bad_answers(void)
{
    static const char *const cases[][2] = {
        {"{" RECIPE ", " KIND("") "}", "field 'text' is no string"},
        {"{" TEXT ", " KIND("") "}", "field 'recipe' is no string"},
        {"{" TEXT ", " RECIPE "}", "field 'kind' is no table"},
        {"{" TEXT ", recipe = 'op=forward abi=2', " KIND("") "}", "v: recipe 'op=forward abi=2': "},
        {"{" TEXT ", recipe = ('x'):rep(1000), " KIND("") "}", "no string of at most 639 bytes"},
        {"{" TEXT ", " RECIPE ", " KIND(", seq_q = 1") "}", "'seq_q' is no field that is compiled"},
        {"{" TEXT ", " RECIPE ", " KIND(", colour = 1") "}", "'colour' is no field that is compiled"},
        {"{" TEXT ", " RECIPE ", " KIND(", [1] = 1") "}", "a key that is no string"},
        {"{" TEXT ", " RECIPE ", " KIND(", causal = 'yes'") "}", "field 'causal' is no integer"},
        {"{" TEXT ", " RECIPE ", " KIND(", causal = 2") "}", "causal is 2; it must be 0 or 1"},
        {"{" TEXT ", " RECIPE ", kind = {}}", "head_dim is 0; it must be a multiple of 8"},
        {"{" TEXT ", " RECIPE ", kind = {head_dim = 64, dtype = 'fp8'}}", "'fp8' is no dtype"},
        {"nil, 'no such thing'", "no such thing"},
    };
    static char folder[] = "/tmp/fa2-answers-XXXXXX";
    char path[64], script[640];
    fa2i_variant v;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/gen", folder);
    CHECK_EQ(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/gen/init.lua", folder);
    setenv("FA2_GEN_PATH", folder, 1);
    for (size_t i = 0; i <= sizeof cases / sizeof cases[0]; i++) {
        const bool good_one = i == sizeof cases / sizeof cases[0];
        snprintf(script, sizeof script, "return {variant = function() return %s end}",
                 good_one ? "{" TEXT ", " RECIPE ", " KIND(", window = 1") "}" : cases[i][0]);
        FILE *file = fopen(path, "wb");
        CHECK(file != NULL && fputs(script, file) >= 0 && fclose(file) == 0);
        fa2i_generator *generator = open_generator();
        const bool none = !good_one && strcmp(cases[i][0], "nil, 'no such thing'") == 0;
        CHECK_EQ(fa2i_generator_variant(generator, "v", &v), good_one ? FA2_OK
                                                             : none   ? FA2_E_NOT_FOUND
                                                                      : FA2_E_GENERATOR);
        if (!good_one)
            CHECK_CONTAINS(fa2_last_message(), cases[i][1]);
        fa2i_generator_destroy(generator);
    }
    CHECK_STR(v.class_key, "D=64 dtype=fp16 causal=0 window=1");
    CHECK_EQ(v.recipe.rows, 64);
    CHECK_EQ(remove(path), 0);
    snprintf(path, sizeof path, "%s/gen", folder);
    CHECK(rmdir(path) == 0 && rmdir(folder) == 0);
    generator_path(NULL);
}

/* Uses every function of the generator once. The only possible failure is FA2_E_MEMORY. */
static fa2_status use_all(void)
{
    fa2_status st = FA2_OK;
    fa2i_generator *generator = NULL;
    fa2i_variant *list = NULL;
    size_t count = 0;
    char *source = NULL, *rejected = NULL;
    fa2i_card card;
    const fa2_problem problem = problem_of(256, FA2_FP16, 0, 64);
    fa2i_surveys_forget();
    FA2_TRY(fa2i_generator_create(&generator));
    FA2_TRY(fa2i_generator_card(generator, 75, &card));
    FA2_TRY(fa2i_generator_candidates(generator, &problem, &card, &list, &count));
    FA2_TRY(fa2i_generator_rejected(generator, &problem, &card, &rejected));
    FA2_TRY(fa2i_generator_source(generator, list[0].text, &source));
done:
    fa2i_free(source);
    fa2i_free(rejected);
    fa2i_free(list);
    fa2i_generator_destroy(generator);
    return st;
}

static void test_no_memory(void)
{
    generator_path("tests/golden");
    fa2i_alloc_fail_at(0);
    CHECK_EQ(use_all(), FA2_OK);
    const long requests = fa2i_alloc_fail_at(0);
    int failures = 0;
    CHECK(requests > 1000);
    /* Lua collects garbage and retries, so late failures are survived. All early ones are tried. Of the late ones,
     * LATE_FAILURES are tried, or one in 101 with FA2_TEST_ALL. */
    const long apart = getenv("FA2_TEST_ALL") != NULL ? 101 : requests / LATE_FAILURES + 1;
    for (long nth = 1; nth <= requests; nth += nth < 300 ? 1 : apart) {
        fa2i_alloc_fail_at(nth);
        const fa2_status st = use_all();
        fa2i_alloc_fail_at(0);
        CHECK(st == FA2_OK || st == FA2_E_MEMORY);
        failures += st != FA2_OK;
    }
    CHECK(failures > 10);
    generator_path(NULL);
}

/* The candidates by a generator that begins anew, and how many requests of memory these took. */
static long ask_anew(const fa2_problem *problem, fa2i_variant **ret_list, size_t *ret_count)
{
    fa2i_card card;
    fa2i_generator *generator = open_generator();
    CHECK_EQ(fa2i_generator_card(generator, 80, &card), FA2_OK);
    (void)fa2i_alloc_fail_at(0);
    CHECK_EQ(fa2i_generator_candidates(generator, problem, &card, ret_list, ret_count), FA2_OK);
    const long requests = fa2i_alloc_fail_at(0);
    fa2i_generator_destroy(generator);
    return requests;
}

/* A class is surveyed once in a process, as long as the scripts are the same, and all get the same candidates. */
static void test_surveyed_once(void)
{
    const fa2_problem problem = problem_of(72, FA2_BF16, 1, 700);
    fa2i_variant *list[3] = {NULL};
    size_t count[3];
    long requests[3];
    for (int i = 0; i < 3; i++) {
        generator_path(i < 2 ? NULL : "tests/families");
        requests[i] = ask_anew(&problem, &list[i], &count[i]);
    }
    generator_path(NULL);
    CHECK(count[0] > 20 && count[1] == count[0]);
    CHECK(count[1] == count[0] && memcmp(list[0], list[1], count[0] * sizeof *list[0]) == 0);
    CHECK(requests[1] * 4 < requests[0]);
    CHECK(requests[2] > requests[1] * 4);
    fa2i_surveys_forget();
    fa2i_free(list[1]);
    CHECK(ask_anew(&problem, &list[1], &count[1]) * 2 > requests[0]);
    for (int i = 0; i < 3; i++)
        fa2i_free(list[i]);
}

int main(void)
{
    generator_path(NULL);
    test_surveyed_once();
    test_golden();
    test_determinism();
    test_override();
    test_unknown_feature();
    test_bad_answers();
    test_no_memory();
    return check_done();
}
