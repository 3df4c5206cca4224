/*
 * Choices among estimates, on cards of three SMs. Knowledge of one problem must not make another one's choice worse,
 * and must help its neighbours.
 *
 * The true times here are the cost model's, times a factor for each kernel that the model does not know. Choices are
 * compared with a ranking of all candidates by true times.
 */
#include <math.h>
#include "cache/content/evidence.h"
#include "generator_fixture.h"
#include "runtime/base/alloc.h"
#include "runtime/ops/steps.h"

enum { KERNELS_MAX = 400, LENGTHS = 4096 };

static const int archs[] = {75, 86, 89}; /* T4, RTX 3060, L4 */

static fa2i_generator *generator;
static fa2i_card card;
static double spread; /* range of the factors: exp(-spread) ... exp(spread) */

/* Returns a kernel's true time. Its factor depends only on its parameters. */
static double true_us(const char *text, const fa2_problem *problem)
{
    double us = 0;
    uint32_t hash = 2166136261u;
    for (const char *at = text; *at != '\0'; at++)
        hash = (hash ^ (uint8_t)*at) * 16777619u;
    const double factor = exp(spread * ((double)(hash >> 8 & 0xffff) / 32768 - 1));
    CHECK_EQ(fa2i_generator_cost(generator, text, problem, &card, 0, &us), FA2_OK);
    return us * factor;
}

/* A database in which these problems were tuned: every candidate was timed, and its code is kept. */
typedef struct tuned {
    fa2i_known_kernel kernels[KERNELS_MAX];
    fa2i_known_set sets[4];
    fa2i_known_time times[KERNELS_MAX];
    fa2i_evidence evidence;
} tuned;

static size_t find_kernel(tuned *t, const fa2i_variant *variant)
{
    fa2i_evidence *e = &t->evidence;
    for (size_t i = 0; i < e->kernel_count; i++)
        if (strcmp(t->kernels[i].text, variant->text) == 0)
            return i;
    fa2i_known_kernel *kernel = &t->kernels[e->kernel_count];
    *kernel = (fa2i_known_kernel){.has_code = true};
    memcpy(kernel->text, variant->text, sizeof kernel->text);
    memcpy(kernel->class_key, variant->class_key, sizeof kernel->class_key);
    return e->kernel_count++;
}

static void tune(tuned *t, const fa2_problem *problem)
{
    fa2i_evidence *e = &t->evidence;
    fa2i_variant *variants = NULL;
    size_t count = 0;
    CHECK_EQ(fa2i_generator_candidates(generator, problem, &card, &variants, &count), FA2_OK);
    fa2i_known_set *set = &t->sets[e->set_count++];
    *set = (fa2i_known_set){.problem = *problem, .card = card, .real = true, .measured = true, .first = e->time_count};
    for (size_t i = 0; i < count && e->time_count < KERNELS_MAX; i++) {
        t->times[e->time_count++] =
            (fa2i_known_time){.kernel = find_kernel(t, &variants[i]), .us = true_us(variants[i].text, problem)};
        set->count++;
    }
    fa2i_free(variants);
}

/* Clears the database, then tunes these problems. */
static void know(tuned *t, const fa2_problem *problems, size_t count)
{
    *t = (tuned){.evidence = {.kernels = t->kernels, .sets = t->sets, .times = t->times}};
    for (size_t i = 0; i < count; i++)
        tune(t, &problems[i]);
    CHECK_EQ(fa2i_generator_learn(generator, FA2_OP_FORWARD, &t->evidence, &card), FA2_OK);
}

/* Returns the true time of the first choice. */
static double chosen_us(const fa2_problem *problem, fa2i_option *ret_chosen)
{
    fa2i_option *options = NULL;
    size_t count = 0;
    const fa2_problem asked = fa2i_problem_asked(problem, card.sm_count);
    CHECK_EQ(fa2i_generator_rank(generator, &asked, &card, &options, &count), FA2_OK);
    const double us = true_us(options[0].text, problem);
    CHECK(options[0].us > 0);
    if (ret_chosen != NULL)
        *ret_chosen = options[0];
    fa2i_free(options);
    return us;
}

static double best_us(const fa2_problem *problem)
{
    fa2i_variant *variants = NULL;
    size_t count = 0;
    double best = INFINITY;
    CHECK_EQ(fa2i_generator_candidates(generator, problem, &card, &variants, &count), FA2_OK);
    for (size_t i = 0; i < count; i++)
        best = fmin(best, true_us(variants[i].text, problem));
    fa2i_free(variants);
    return best;
}

static fa2_problem shape(int32_t batch, int32_t heads_kv, int32_t seq_q, int32_t seq_k)
{
    return (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                         .batch = batch,
                         .heads_q = 8,
                         .heads_kv = heads_kv,
                         .seq_q = seq_q,
                         .seq_k = seq_k,
                         .head_dim = 64,
                         .causal = 1};
}

/* A tuned problem gets its fastest kernel by the exact rule. With exact times, its neighbours' choices are slower than
 * their best by at most the gain that justifies compiling. */
static void test_known(tuned *t)
{
    const fa2_problem problems[] = {shape(2, 8, 1024, 1024), shape(8, 2, 1, 4096)};
    fa2i_option option;
    know(t, problems, 2);
    for (size_t i = 0; i < 2; i++) {
        const double us = chosen_us(&problems[i], &option);
        CHECK(us <= best_us(&problems[i]) * 1.0001);
        CHECK_EQ(option.rests, FA2I_RESTS_MEASURED);
        CHECK_EQ(option.set, i);
        CHECK(!option.compile);
        CHECK(fabs(option.us / us - 1) < 1e-6);
    }
    const fa2_problem near = shape(2, 8, 1100, 1100);
    (void)chosen_us(&near, &option);
    CHECK_EQ(option.rests, FA2I_RESTS_NEARBY);
    CHECK_EQ(option.set, 0);
    const fa2_problem far = shape(1, 8, 16, 16);
    (void)chosen_us(&far, &option);
    CHECK_EQ(option.rests, FA2I_RESTS_MODEL);
}

/* Where kernels were timed on the very problem, one that was not timed must promise more than chance does. from: the
 * timed ones are this much slower than the best one, by the model. */
static bool takes_timed(tuned *t, const fa2_problem *problem, double from)
{
    fa2i_variant *variants = NULL;
    size_t count = 0;
    double best = INFINITY;
    fa2i_option option;
    fa2i_evidence *e = &t->evidence;
    CHECK_EQ(fa2i_generator_candidates(generator, problem, &card, &variants, &count), FA2_OK);
    for (size_t i = 0; i < count; i++)
        best = fmin(best, variants[i].cost_us);
    *t = (tuned){.evidence = {.kernels = t->kernels, .sets = t->sets, .times = t->times, .set_count = 1}};
    t->sets[0] = (fa2i_known_set){.problem = *problem, .card = card, .real = true, .measured = true};
    for (size_t i = 0; i < count; i++)
        if (variants[i].cost_us >= from * best)
            t->times[e->time_count++] =
                (fa2i_known_time){.kernel = find_kernel(t, &variants[i]), .us = variants[i].cost_us};
    t->sets[0].count = e->time_count;
    fa2i_free(variants);
    if (e->time_count == 0)
        return false; /* an SM without such kernels */
    CHECK_EQ(fa2i_generator_learn(generator, FA2_OP_FORWARD, e, &card), FA2_OK);
    (void)chosen_us(problem, &option);
    return option.rests == FA2I_RESTS_MEASURED;
}

static void test_untimed(tuned *t)
{
    const fa2_problem problem = shape(2, 8, 1024, 1024);
    CHECK(takes_timed(t, &problem, 1.0001));
    CHECK(!takes_timed(t, &problem, 1.3));
}

/* A class that was never tuned uses its neighbours' corrections of families, and says whose measurements they are. Far
 * from all neighbours there is no correction. */
static void test_other_classes(tuned *t)
{
    const fa2_problem plain = shape(2, 8, 1024, 1024);
    fa2_problem asked[6], far = shape(1, 8, 16, 16);
    fa2i_option option;
    for (size_t i = 0; i < 6; i++)
        asked[i] = plain;
    asked[0].alibi = 1;
    asked[1].softcap = 1;
    asked[2].seqused = 1;
    asked[3].varlen = 1;
    asked[3].total_q = asked[3].total_k = 2048;
    asked[4].seqused = asked[4].paged = 1;
    asked[4].page = 16;
    asked[5].dropout = 1;
    far.alibi = 1;
    know(t, &plain, 1);
    for (size_t i = 0; i < 6; i++) {
        (void)chosen_us(&asked[i], &option);
        CHECK_EQ(option.rests, FA2I_RESTS_MODEL);
        CHECK_EQ(option.set, FA2I_NONE);
        CHECK_EQ(option.neighbour, 0);
    }
    (void)chosen_us(&far, &option);
    CHECK_EQ(option.neighbour, FA2I_NONE);
    (void)chosen_us(&plain, &option);
    CHECK_EQ(option.neighbour, FA2I_NONE); /* its own measurements */
    know(t, NULL, 0);
    (void)chosen_us(&asked[0], &option);
    CHECK_EQ(option.neighbour, FA2I_NONE);
}

/* Returns the estimate's correction of the model for an option. */
static double correction(const fa2i_option *option, const fa2_problem *problem)
{
    double us = 0;
    CHECK_EQ(fa2i_generator_cost(generator, option->text, problem, &card, 0, &us), FA2_OK);
    return option->us / us;
}

/* Factors that may be chance do not affect single kernels of another class: kernels of a family keep the model's
 * order. */
static void test_single_kernels(tuned *t)
{
    const fa2_problem plain = shape(2, 8, 1024, 1024);
    fa2_problem asked = plain;
    fa2i_option *options = NULL;
    size_t count = 0, alike = 0;
    asked.softcap = 1;
    spread = 0.06;
    know(t, &plain, 1);
    CHECK_EQ(fa2i_generator_rank(generator, &asked, &card, &options, &count), FA2_OK);
    const size_t family = strcspn(options[0].text, " ") + 1;
    for (size_t i = 1; i < count; i++) {
        if (strncmp(options[i].text, options[0].text, family) != 0)
            continue;
        alike++;
        CHECK(fabs(correction(&options[i], &asked) / correction(&options[0], &asked) - 1) < 1e-6);
    }
    CHECK(alike > 2);
    fa2i_free(options);
}

/* A database older than a family does not exclude its kernels: near a tuned problem they are considered. If all
 * families were tuned, only known kernels are considered. */
static void test_new_family(tuned *t)
{
    const fa2_problem known = shape(8, 2, 1, 4096), near = shape(8, 2, 1, 4200);
    static const char name[] = "fwd_splitkv";
    for (int older = 0; older <= 1; older++) {
        fa2i_option *options = NULL;
        size_t count = 0, kept = 0, compiled = 0;
        know(t, &known, 1);
        for (size_t i = 0; i < t->evidence.time_count; i++)
            if (!older || strncmp(t->kernels[t->times[i].kernel].text, name, strlen(name)) != 0)
                t->times[kept++] = t->times[i];
        CHECK(kept >= 8);
        CHECK_EQ(kept < t->evidence.time_count, older);
        t->sets[0].count = t->evidence.time_count = kept;
        kept = 0;
        for (size_t i = 0; i < t->evidence.time_count; i++) { /* keep one time per kernel */
            t->kernels[kept] = t->kernels[t->times[i].kernel];
            t->times[i].kernel = kept++;
        }
        t->evidence.kernel_count = kept;
        CHECK_EQ(fa2i_generator_learn(generator, FA2_OP_FORWARD, &t->evidence, &card), FA2_OK);
        CHECK_EQ(fa2i_generator_rank(generator, &near, &card, &options, &count), FA2_OK);
        for (size_t i = 0; i < count; i++)
            compiled += options[i].compile;
        CHECK_EQ(compiled > 0, older);
        CHECK_EQ(strncmp(options[0].text, name, strlen(name)), 0); /* the right family for a decode */
        fa2i_free(options);
    }
}

/* Kernels with the same text from different compilers count as one for a neighbour's estimate, by the best of them, in
 * any order. */
static void test_twins(tuned *t)
{
    const fa2_problem known = shape(2, 8, 1024, 1024), near = shape(2, 8, 1150, 1150);
    fa2i_option alone, first, last;
    know(t, &known, 1);
    (void)chosen_us(&known, &alone);
    for (int reversed = 0; reversed <= 1; reversed++) {
        know(t, &known, 1);
        fa2i_evidence *e = &t->evidence;
        const size_t best = alone.kernel, twin = e->kernel_count++;
        t->kernels[twin] = t->kernels[best];
        t->times[e->time_count++] = (fa2i_known_time){.kernel = twin, .us = 3 * alone.us};
        t->sets[0].count++;
        if (reversed) {
            t->times[e->time_count - 1].kernel = best;
            t->times[best].kernel = twin;
        }
        /* A third one without measurements, and the only one with code. */
        t->kernels[e->kernel_count++] = t->kernels[best];
        t->kernels[best].has_code = t->kernels[twin].has_code = false;
        CHECK_EQ(fa2i_generator_learn(generator, FA2_OP_FORWARD, e, &card), FA2_OK);
        (void)chosen_us(&near, reversed ? &last : &first);
    }
    CHECK_STR(first.text, alone.text);
    CHECK_STR(last.text, alone.text);
    CHECK(fabs(first.us / last.us - 1) < 1e-9);
}

/* Measurements far away do not count, nor the registers there, nor the presence of code: the first choice is the same
 * as with an empty database. */
static void test_far_away(tuned *t)
{
    const fa2_problem known = shape(2, 8, 1024, 1024);
    const fa2_problem asked[] = {shape(1, 8, 16, 16), shape(8, 2, 1, 4096), shape(64, 8, 8192, 8192)};
    fa2i_option none, far;
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        know(t, NULL, 0);
        (void)chosen_us(&asked[i], &none);
        know(t, &known, 1);
        for (size_t kernel = 0; kernel < t->evidence.kernel_count; kernel++)
            t->kernels[kernel].registers = kernel % 2 == 0 ? 128 : 64;
        CHECK_EQ(fa2i_generator_learn(generator, FA2_OP_FORWARD, &t->evidence, &card), FA2_OK);
        (void)chosen_us(&asked[i], &far);
        CHECK_STR(far.text, none.text);
        CHECK(fabs(far.us / none.us - 1) < 1e-9);
    }
}

/* One tuned prefill, one decode, or both. Where the model is right, no problem gets worse by more than 5 %. Where it is
 * wrong, choices are better on the whole. */
static void test_any_database(tuned *t)
{
    const fa2_problem asked[] = {shape(1, 8, 700, 700),   shape(4, 2, 2000, 2000), shape(16, 8, 1, 3000),
                                 shape(1, 2, 1, 300),     shape(2, 1, 1, 20000),   shape(1, 8, 100, 5000),
                                 shape(2, 2, 4, 8192),    shape(3, 8, 1300, 1300), shape(32, 4, 1, 1000),
                                 shape(1, 8, 4096, 4096), shape(6, 2, 1, 4500),    shape(2, 8, 900, 900)};
    enum { ASKED = sizeof asked / sizeof asked[0] };
    const fa2_problem known[] = {shape(2, 8, 1024, 1024), shape(8, 2, 1, 4096)};
    const struct {
        size_t first, count;
    } databases[] = {{0, 1}, {1, 1}, {0, 2}};
    double none[ASKED], sum = 0, worst = 0;
    know(t, NULL, 0);
    for (size_t i = 0; i < ASKED; i++)
        none[i] = chosen_us(&asked[i], NULL);
    for (size_t d = 0; d < 3; d++) {
        know(t, &known[databases[d].first], databases[d].count);
        for (size_t i = 0; i < ASKED; i++) {
            const double ratio = chosen_us(&asked[i], NULL) / none[i];
            sum += log(ratio);
            worst = fmax(worst, ratio);
        }
    }
    printf("sm_%d, factors up to %.2f: any database against none, geometric mean %.3f, worst %.3f\n", card.arch,
           exp(spread), exp(sum / (3 * ASKED)), worst);
    CHECK(sum <= (spread > 0 ? 0 : 3 * ASKED * log(1.005)));
    if (spread <= 0) /* otherwise the model may be lucky among equal candidates */
        CHECK(worst <= 1.05);
}

/* A decode that grows, where only a prefill was tuned, never gets a kernel that is slow for it. */
static void test_growing(tuned *t)
{
    const fa2_problem prefill = shape(4, 2, 2048, 2048);
    double worst = 0;
    fa2_problem last = {.struct_bytes = sizeof(fa2_problem), .batch = 0};
    know(t, &prefill, 1);
    for (int length = 1; length <= LENGTHS; length++) {
        const fa2_problem problem = shape(4, 2, 1, length), asked = fa2i_problem_asked(&problem, card.sm_count);
        if (memcmp(&asked, &last, sizeof last) != 0)
            worst = fmax(worst, chosen_us(&asked, NULL) / best_us(&asked));
        last = asked;
    }
    printf("sm_%d: %d growing lengths beside a tuned prefill, worst %.3f of the best\n", card.arch, LENGTHS, worst);
    CHECK(worst <= 1.01); /* the least gain over the model's choice, which is the truth here */
}

/* Calls have any lengths, and one question to the model serves many of them. By the model, which is the truth here, the
 * kernel for the rounded lengths is hardly slower than the best for the real ones. */
static void test_own_lengths(tuned *t)
{
    const fa2_problem asked[] = {shape(2, 8, 523, 523), shape(3, 2, 782, 9001), shape(5, 2, 789, 789),
                                 shape(33, 8, 1, 915),  shape(17, 2, 1, 2531),  shape(1, 8, 1170, 1170),
                                 shape(4, 1, 45, 5500), shape(9, 4, 516, 516),  shape(53, 1, 1, 2531),
                                 shape(2, 1, 353, 632), shape(7, 8, 4, 652),    shape(1, 2, 2577, 2577)};
    enum { ASKED = sizeof asked / sizeof asked[0] };
    double sum = 0, worst = 1;
    know(t, NULL, 0);
    for (size_t i = 0; i < ASKED; i++) {
        const double ratio = chosen_us(&asked[i], NULL) / best_us(&asked[i]);
        sum += log(ratio);
        worst = fmax(worst, ratio);
    }
    printf("sm_%d: %d problems by the ends of their steps, geometric mean %.4f, worst %.3f\n", card.arch, (int)ASKED,
           exp(sum / ASKED), worst);
    CHECK(sum <= ASKED * log(1.01));
    CHECK(worst <= 1.05);
}

/* 782 queries: their packed rows just fill two waves of an H200. If the lengths were rounded up further, the choice
 * would be another kernel, 1.6 times as slow. */
static void test_filled_waves(tuned *t)
{
    fa2_problem problem = shape(2, 4, 782, 29867);
    fa2i_option chosen;
    CHECK_EQ(fa2i_generator_card(generator, 90, &card), FA2_OK);
    card.generic = false;
    problem.heads_q = 32;
    problem.head_dim = 40;
    know(t, NULL, 0);
    const double ratio = chosen_us(&problem, &chosen) / best_us(&problem);
    CHECK(ratio <= 1.01);
    CHECK_CONTAINS(chosen.text, "pack=1");
}

int main(void)
{
    static tuned t;
    generator_path(NULL);
    generator = open_generator();
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        CHECK_EQ(fa2i_generator_card(generator, archs[i], &card), FA2_OK);
        spread = 0;
        test_known(&t);
        test_untimed(&t);
        test_other_classes(&t);
        test_any_database(&t);
        test_growing(&t);
        test_own_lengths(&t);
        test_far_away(&t);
        test_new_family(&t);
        test_twins(&t);
        test_single_kernels(&t);
        spread = 0.15;
        test_known(&t);
        test_any_database(&t);
    }
    spread = 0;
    test_filled_waves(&t);
    fa2i_generator_destroy(generator);
    return check_done();
}
