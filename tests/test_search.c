/*
 * The search on simulated kernels: how much slower than the best kernel is its choice, with noise, outliers and a
 * drifting clock; and each of its rules.
 */
#include <math.h>
#include <stdlib.h>
#include "check.h"
#include "tuner/judge/case.h"
#include "tuner/search/prediction.h"
#include "tuner/search/search.h"

enum { VARIANTS = 300, REPEATS = 40 };

/* Kernels with known times, and disturbances of the measurements. */
typedef struct bench {
    double true_us[VARIANTS];
    size_t count;
    double noise, outliers, drift; /* relative; probability; relative */
    uint64_t random;
    double clock_us; /* simulated time */
    long samples;
    int stop_after;    /* calls of the sampler; 0: never */
    uint32_t failing;  /* this contender fails */
    int fail_at_round; /* in this call of the sampler; 0: never */
    int calls;
    int max_launches;
    bool order_differs; /* two sweeps of a round had different orders */
} bench;

static double uniform(bench *b)
{
    return (double)(fa2i_random(&b->random) >> 11) * 0x1p-53;
}

static double normal(bench *b)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += uniform(b);
    return sum;
}

static double take_one(bench *b, uint32_t contender)
{
    double us = b->true_us[contender] * (1 + b->noise * normal(b));
    if (uniform(b) < b->outliers)
        us *= 1.05 + 0.35 * uniform(b);
    us *= 1 + b->drift * sin(b->clock_us / 2e5);
    b->clock_us += us + 50;
    return us;
}

static fa2_status sample(void *user, fa2i_sample *samples, size_t count, int launches, double best_us)
{
    bench *b = user;
    b->calls++;
    CHECK(b->calls == 1 ? best_us == 0 : best_us > 0);
    b->max_launches = launches > b->max_launches ? launches : b->max_launches;
    for (size_t i = 0; i < count; i++) {
        if (b->stop_after > 0 && b->calls > b->stop_after)
            return FA2_OK;
        samples[i].taken = true;
        if (b->fail_at_round > 0 && b->calls >= b->fail_at_round && samples[i].contender == b->failing)
            samples[i].outcome = FA2I_OUTCOME_FAULT;
        samples[i].us = take_one(b, samples[i].contender);
        b->samples++;
    }
    for (size_t i = 0; count > 2 && b->calls == 2 && i < count / 4; i++)
        b->order_differs |= samples[i].contender != samples[i + count / 4].contender;
    return FA2_OK;
}

static void make_bench(bench *b, uint64_t seed, size_t count, double fastest_us)
{
    *b = (bench){.count = count, .noise = 0.008, .outliers = 0.03, .drift = 0.015, .random = seed};
    for (size_t i = 0; i < count; i++)
        b->true_us[i] = fastest_us * (1 + 1.5 * pow(uniform(b), 1.5));
}

static fa2i_contender *make_contenders(const bench *b)
{
    static char texts[VARIANTS][32];
    fa2i_contender *contenders = calloc(b->count, sizeof *contenders);
    for (size_t i = 0; i < b->count; i++) {
        snprintf(texts[i], sizeof texts[i], "variant %03zu", i);
        contenders[i].text = texts[i];
        contenders[i].smem_bytes = 1024 * (int)(1 + i % 5);
        contenders[i].registers = 100;
    }
    return contenders;
}

static size_t search_once(bench *b, uint64_t seed, fa2i_contender *contenders, fa2i_search *ret_search)
{
    fa2i_search search = {.sample = sample, .user = b, .seed = seed};
    CHECK_EQ(fa2i_search_run(&search, contenders, b->count), FA2_OK);
    *ret_search = search;
    return fa2i_search_pick(contenders, b->count, 0);
}

static double regret_of(const bench *b, size_t winner)
{
    double best = INFINITY;
    for (size_t i = 0; i < b->count; i++)
        best = fmin(best, b->true_us[i]);
    return b->true_us[winner] / best - 1;
}

/* Exact times: each kernel is launched once, and the best one wins. */
static void test_exact(void)
{
    bench b;
    make_bench(&b, 1, VARIANTS, 10);
    b.noise = b.outliers = b.drift = 0;
    fa2i_contender *contenders = make_contenders(&b);
    fa2i_search search = {.sample = sample, .user = &b, .seed = 1, .exact = true};
    CHECK_EQ(fa2i_search_run(&search, contenders, b.count), FA2_OK);
    CHECK(search.complete && !search.stopped);
    CHECK_EQ(b.samples, VARIANTS);
    CHECK_EQ(b.max_launches, 1);
    CHECK(regret_of(&b, fa2i_search_pick(contenders, b.count, 0)) < FA2I_SEARCH_TIE - 1);
    free(contenders);
}

/* The tie rule may give away 0.5 %. The search itself must lose almost nothing. */
static void test_regret(void)
{
    double sum = 0, worst = 0;
    long samples = 0;
    for (uint64_t seed = 1; seed <= REPEATS; seed++) {
        bench b;
        fa2i_search search;
        make_bench(&b, seed, VARIANTS, 100);
        fa2i_contender *contenders = make_contenders(&b);
        size_t winner = search_once(&b, seed, contenders, &search);
        CHECK(winner < b.count && search.complete && !search.stopped);
        CHECK_EQ(search.launches, 1);
        CHECK(b.order_differs);
        CHECK(contenders[0].finalist); /* the default */
        sum += regret_of(&b, winner);
        worst = fmax(worst, regret_of(&b, winner));
        samples += b.samples;
        free(contenders);
    }
    fprintf(stderr, "mean regret %.3f %%, worst %.3f %%, %ld samples each\n", 100 * sum / REPEATS, 100 * worst,
            samples / REPEATS);
    CHECK(sum / REPEATS < 0.003);
    CHECK(worst < 0.012);
    CHECK(samples / REPEATS < 2000);
}

static void test_deterministic(void)
{
    bench a, b;
    fa2i_search search;
    make_bench(&a, 5, 60, 100);
    make_bench(&b, 5, 60, 100);
    fa2i_contender *first = make_contenders(&a), *second = make_contenders(&b);
    CHECK_EQ(search_once(&a, 9, first, &search), search_once(&b, 9, second, &search));
    CHECK_EQ(memcmp(first, second, 60 * sizeof *first), 0);
    free(first);
    free(second);
}

/* Short kernels are sampled in batches from the second probe on, slow ones never. */
static void test_batches(void)
{
    bench b;
    fa2i_search search;
    make_bench(&b, 3, 30, 6);
    fa2i_contender *contenders = make_contenders(&b);
    CHECK(regret_of(&b, search_once(&b, 1, contenders, &search)) < 0.012);
    CHECK_EQ(search.launches, FA2I_SEARCH_BATCH);
    CHECK_EQ(b.max_launches, FA2I_SEARCH_BATCH);
    free(contenders);
}

/* A contender that fails at any point is removed, and the search goes on. */
static void test_failures(void)
{
    for (int call = 1; call <= 5; call++) {
        bench b;
        fa2i_search search;
        make_bench(&b, 4, 12, 100);
        b.true_us[3] = 50; /* the best by a small margin, so that all rounds are run */
        b.true_us[5] = 50.1;
        b.failing = 3;
        b.fail_at_round = call;
        fa2i_contender *contenders = make_contenders(&b);
        size_t winner = search_once(&b, 1, contenders, &search);
        CHECK_EQ(contenders[3].outcome, FA2I_OUTCOME_FAULT);
        CHECK(winner < 12 && winner != 3 && search.complete);
        free(contenders);
    }
    bench b;
    fa2i_search search;
    make_bench(&b, 4, 1, 100);
    b.fail_at_round = 1;
    fa2i_contender *contenders = make_contenders(&b);
    CHECK_EQ(search_once(&b, 1, contenders, &search), 1); /* nobody is left */
    free(contenders);
}

static void test_stop(void)
{
    for (int call = 1; call <= 4; call++) {
        bench b;
        fa2i_search search;
        make_bench(&b, 6, 20, 100);
        b.stop_after = call;
        fa2i_contender *contenders = make_contenders(&b);
        search_once(&b, 1, contenders, &search);
        CHECK(search.stopped && !search.complete);
        CHECK_EQ(b.calls, call + 1);
        free(contenders);
    }
}

static bool spent_at_once(void *user)
{
    (void)user;
    return true;
}

/* If there is no time for even one round, the probe decides. */
static void test_spent(void)
{
    bench b;
    make_bench(&b, 8, 20, 100);
    fa2i_contender *contenders = make_contenders(&b);
    fa2i_search search = {.sample = sample, .spent = spent_at_once, .user = &b, .seed = 1};
    CHECK_EQ(fa2i_search_run(&search, contenders, b.count), FA2_OK);
    CHECK(!search.complete && !search.stopped);
    CHECK_EQ(b.calls, 1);
    CHECK(regret_of(&b, fa2i_search_pick(contenders, b.count, 0)) < 0.1);
    free(contenders);
}

static fa2i_contender finished(const char *text, double median_us, int smem_bytes, int registers)
{
    return (fa2i_contender){
        .text = text,
        .smem_bytes = smem_bytes,
        .registers = registers,
        .finalist = true,
        .count = 60,
        .statistics = {.min = median_us * 0.99, .q1 = median_us * 0.995, .median = median_us, .q3 = median_us * 1.005}};
}

/* A kernel that differs clearly from the others is found with fewer samples. Near ties get all rounds. */
static void test_decided_early(void)
{
    for (int apart = 0; apart < 2; apart++) {
        bench b;
        fa2i_search search;
        make_bench(&b, 7, 30, 100);
        b.noise = 0.002;
        b.outliers = b.drift = 0;
        for (size_t i = 0; i < b.count; i++)
            b.true_us[i] = 100 + (double)i * 0.1;
        b.true_us[17] = apart ? 90 : 99.9;
        fa2i_contender *contenders = make_contenders(&b);
        const size_t winner = search_once(&b, 7, contenders, &search);
        CHECK(search.complete);
        CHECK_EQ(search.early, apart);
        CHECK(!apart || (winner == 17 && contenders[17].count == FA2I_SEARCH_FIRST_ROUND));
        CHECK(apart || contenders[winner].count > 2 * FA2I_SEARCH_FIRST_ROUND);
        free(contenders);
    }
}

static fa2i_prediction prediction_of(double us, double doubt, double known)
{
    return (fa2i_prediction){.judgement = {.us = us, .doubt = doubt, .known = known}};
}

/* A contender is hopeless if it is behind by more than both uncertainties. */
static void test_hopeless(void)
{
    fa2i_prediction p[] = {prediction_of(100, 0.05, 1), prediction_of(118, 0.05, 1), prediction_of(121, 0.05, 1),
                           prediction_of(121, 0.09, 1), prediction_of(300, 0.05, 0), prediction_of(0, 0, 0)};
    fa2i_predictions_sort_out(p, 6);
    for (size_t i = 0; i < 6; i++)
        CHECK_EQ(p[i].hopeless, i == 2);
    p[0].judgement.known = 0; /* now the second is the best known one */
    fa2i_predictions_sort_out(p, 6);
    for (size_t i = 0; i < 6; i++)
        CHECK(!p[i].hopeless);
    fa2i_predictions_sort_out(p, 0);
}

/* The expected gain of measuring: the expected minimum of two normal variables is known. */
static void test_gain(void)
{
    const double sure = 1e-9, alike = 1 - exp(-0.1 / sqrt(acos(-1)));
    const fa2i_prediction one[] = {prediction_of(100, 0.1, 0)},
                          two[] = {prediction_of(100, 0.1, 0), prediction_of(100, 0.1, 0)},
                          far[] = {prediction_of(300, 0.1, 0), prediction_of(100, 0.1, 0)},
                          certain[] = {prediction_of(100, sure, 1), prediction_of(101, sure, 1)},
                          none[] = {prediction_of(0, 0, 0)};
    CHECK(fabs(fa2i_predictions_gain(one, 1)) < 1e-4);
    CHECK(fabs(fa2i_predictions_gain(two, 2) - alike) < 1e-4);
    CHECK(fabs(fa2i_predictions_gain(far, 2)) < 1e-4);
    CHECK(fabs(fa2i_predictions_gain(certain, 2)) < 1e-4);
    CHECK(fa2i_predictions_gain(none, 1) <= 0);
    CHECK(fabs(fa2i_predictions_us(far, 2) - 100) < 1e-9);
    CHECK(fa2i_predictions_us(none, 1) <= 0);
}

static void test_ties(void)
{
    /* The default is slow, so the ties of the first three checks do not concern it. */
    fa2i_contender c[4] = {finished("default", 200, 1, 1), finished("b", 100, 4096, 90), finished("a", 100.4, 2048, 90),
                           finished("c", 100.6, 1024, 90)};
    CHECK_EQ(fa2i_search_pick(c, 4, 0), 2); /* tied within 0.5 %: less shared memory; c is too slow */
    c[2].smem_bytes = 4096;
    c[2].registers = 80;
    CHECK_EQ(fa2i_search_pick(c, 4, 0), 2); /* fewer registers */
    c[2].registers = 90;
    CHECK_EQ(fa2i_search_pick(c, 4, 0), 2); /* text order */
    c[2].text = "bb";
    CHECK_EQ(fa2i_search_pick(c, 4, 0), 1);
    c[2].smem_bytes = 1024;
    c[2].statistics.min = 100.6; /* the intervals do not overlap: no tie */
    CHECK_EQ(fa2i_search_pick(c, 4, 0), 1);
    /* A tie must not make the winner slower than the default. */
    c[2].statistics.min = 99;
    c[0] = finished("default", 100, 8192, 120);
    CHECK_EQ(fa2i_search_pick(c, 4, 0), 1);
    /* Finalists precede faster contenders that were dropped. If there are no finalists, those count. */
    c[3] = finished("fast", 50, 1024, 50);
    c[3].finalist = false;
    CHECK_EQ(fa2i_search_pick(c, 4, 0), 1);
    c[0].outcome = c[1].outcome = c[2].outcome = FA2I_OUTCOME_WRONG;
    CHECK_EQ(fa2i_search_pick(c, 4, 0), 3);
    c[3].outcome = FA2I_OUTCOME_WRONG;
    CHECK_EQ(fa2i_search_pick(c, 4, 0), 4);
}

static void test_statistics(void)
{
    double samples[] = {5, 1, 4, 2, 3};
    fa2i_statistics s = fa2i_statistics_of(samples, 5);
    CHECK(s.min == 1 && s.q1 == 2 && s.median == 3 && s.q3 == 4);
    double two[] = {2, 1};
    s = fa2i_statistics_of(two, 2);
    CHECK(s.min == 1 && s.q1 == 1.25 && s.median == 1.5 && s.q3 == 1.75);
    s = fa2i_statistics_of(two, 0);
    CHECK(s.min == 0 && s.median == 0);
}

int main(void)
{
    test_exact();
    test_statistics();
    test_regret();
    test_deterministic();
    test_batches();
    test_failures();
    test_stop();
    test_spent();
    test_decided_early();
    test_hopeless();
    test_gain();
    test_ties();
    return check_done();
}
