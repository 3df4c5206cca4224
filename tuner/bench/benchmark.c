/*
 * Kernels are numbered as they are met; the number is also the id in the worker, which asks for their
 * images again when it had to be started anew. So they live as long as the worker.
 */
#include "tuner/bench/benchmark.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/ops/op.h"
#include "tuner/judge/verify.h"
#include "tuner/report/foresee.h"
#include "tuner/search/tune.h"

enum { LAUNCHES_MAX = 256, PILOTS = 3, ROUNDS_AT_ONCE = 10 };

/* A problem under work. */
typedef struct work {
    fa2i_benchmarks *all;
    fa2i_benchmark *out;
    uint32_t ids[FA2I_BENCHMARK_KERNELS_MAX];
    fa2i_failure failures[FA2I_BENCHMARK_KERNELS_MAX];
    double *samples[FA2I_BENCHMARK_KERNELS_MAX]; /* owned */
    size_t sample_count[FA2I_BENCHMARK_KERNELS_MAX];
    uint64_t random;
} work;

/* ---- kernels ---- */

static const fa2i_kernel *kernel_of(void *user, uint32_t id)
{
    const fa2i_benchmarks *all = user;
    return &all->kernels[id];
}

static fa2_status ensure_worker(fa2i_benchmarks *all)
{
    if (all->worker != NULL)
        return FA2_OK;
    fa2_status st = fa2i_worker_create(all->gpu.ordinal, all->gpu.modelled, kernel_of, all,
                                       all->stop, &all->worker);
    if (st == FA2_OK)
        fa2i_worker_keep_warm(all->worker, !all->cold);
    return st;
}

void fa2i_benchmarks_done(fa2i_benchmarks *all)
{
    fa2i_worker_destroy(all->worker);
    for (size_t i = 0; i < all->kernel_count; i++)
        fa2i_kernel_done(&all->kernels[i]);
    fa2i_free(all->kernels);
    all->worker = NULL;
    all->kernels = NULL;
    all->kernel_count = 0;
}

/* From the database by its key, if it is there; else compiled. */
static fa2_status get_kernel(fa2i_benchmarks *all, const fa2i_variant *variant, const fa2i_key *key,
                             fa2i_kernel *ret_kernel)
{
    static const fa2i_key none;
    char *source = NULL;
    fa2_status st = FA2_OK;
    if (all->cache != NULL && memcmp(key, &none, sizeof none) != 0) {
        st = fa2i_cache_get_kernel(all->cache, key, variant->recipe.abi, true, ret_kernel);
        if (st != FA2_E_NOT_FOUND)
            return st;
    }
    if (!all->gpu.compiles)
        return fa2i_fail(FA2_E_NO_NVRTC, "%s must be compiled, and there is no NVRTC",
                         variant->text);
    FA2_TRY(fa2i_generator_source(all->generator, variant->text, &source));
    FA2_TRY(fa2i_compile(variant, source, &all->gpu.target, fa2i_generator_id(all->generator),
                         ret_kernel));
done:
    fa2i_free(source);
    return st;
}

/* The number of a variant's kernel. */
static fa2_status find_kernel(fa2i_benchmarks *all, const fa2i_variant *variant,
                              const fa2i_key *key, uint32_t *ret_id)
{
    for (size_t i = 0; i < all->kernel_count; i++) {
        if (strcmp(all->kernels[i].variant.text, variant->text) == 0) {
            *ret_id = (uint32_t)i;
            return FA2_OK;
        }
    }
    fa2i_kernel *kernels =
        fa2i_realloc(all->kernels, (all->kernel_count + 1) * sizeof *all->kernels);
    if (kernels == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for %zu kernels", all->kernel_count + 1);
    all->kernels = kernels;
    fa2i_kernel kernel = {0};
    const fa2_status st = get_kernel(all, variant, key, &kernel);
    if (st != FA2_OK)
        return st;
    *ret_id = (uint32_t)all->kernel_count;
    all->kernels[all->kernel_count++] = kernel;
    return FA2_OK;
}

/* ---- who takes part ---- */

/* Let a variant take part. One that does not compile is a result. */
static fa2_status enter(work *w, const char *role, fa2_rule rule, const fa2i_variant *variant,
                        const fa2i_key *key)
{
    fa2_status st = FA2_OK;
    fa2i_benchmark *out = w->out;
    fa2i_timed *t = &out->timed[out->count];
    fa2i_grid grid = {0};
    *t = (fa2i_timed){.role = role, .rule = rule};
    memcpy(t->variant, variant->text, sizeof t->variant);
    FA2_TRY(find_kernel(w->all, variant, key, &w->ids[out->count]));
    const fa2i_kernel *kernel = &w->all->kernels[w->ids[out->count]];
    if (kernel->outcome == FA2I_OUTCOME_COMPILE_ERROR) {
        t->outcome = kernel->outcome;
        snprintf(t->detail, sizeof t->detail, "%.*s", (int)sizeof t->detail - 1,
                 kernel->log == NULL ? "" : kernel->log);
    }
    FA2_TRY(fa2i_op_of(&out->problem)
                ->grid(&w->all->gpu.card, &kernel->variant.recipe, &out->problem, &grid));
    t->workspace_bytes = grid.workspace_bytes;
    out->count++;
done:
    return st;
}

static const char *role_of(fa2_rule rule)
{
    return rule == FA2_RULE_EXACT ? "tuned" : rule == FA2_RULE_DEFAULT ? "default" : "chosen";
}

/* What the runtime takes with the database, and without. */
static fa2_status enter_choices(work *w)
{
    fa2_status st = FA2_OK;
    const fa2i_benchmarks *all = w->all;
    const fa2_problem *problem = &w->out->problem;
    fa2i_foreseen with = {0}, without = {0};
    FA2_TRY(fa2i_foresee(all->generator, NULL, &all->gpu.card, problem, &without));
    if (all->cache != NULL) {
        FA2_TRY(fa2i_foresee(all->generator, all->cache, &all->gpu.card, problem, &with));
        w->out->same = strcmp(with.variant.text, without.variant.text) == 0;
        FA2_TRY(
            enter(w, role_of(with.decision.rule), with.decision.rule, &with.variant, &with.key));
    }
    if (!w->out->same)
        FA2_TRY(enter(w, "default", FA2_RULE_DEFAULT, &without.variant, &without.key));
done:
    fa2i_foreseen_done(&with);
    fa2i_foreseen_done(&without);
    return st;
}

/* ---- check ---- */

static void fail(work *w, size_t i)
{
    fa2i_timed *t = &w->out->timed[i];
    t->outcome = w->failures[i].outcome;
    memcpy(t->detail, w->failures[i].detail, sizeof t->detail);
}

static fa2_status check_kernel(work *w, size_t i, const fa2i_expected *expected, void *output)
{
    uint32_t overwritten = 0;
    fa2i_verification verdict = {0};
    fa2i_failure *failure = &w->failures[i];
    const fa2_status st =
        fa2i_worker_check(w->all->worker, w->ids[i], expected->places, expected->place_count,
                          output, expected->output_bytes, &overwritten, failure);
    if (st != FA2_OK)
        return st;
    if (failure->outcome != FA2I_OUTCOME_OK && failure->blame == FA2I_BLAME_IMAGE)
        return fa2i_worker_misfit(failure->detail);
    if (failure->outcome == FA2I_OUTCOME_OK) {
        fa2i_expected_judge(expected, "this problem", output, overwritten, &verdict);
        w->out->timed[i].errors = fa2i_expected_errors(expected, output);
        failure->outcome = verdict.outcome;
        memcpy(failure->detail, verdict.detail, sizeof failure->detail);
    }
    fail(w, i);
    return FA2_OK;
}

static bool stopped(const work *w)
{
    return w->all->stop != NULL && *w->all->stop != 0;
}

static bool takes_part(const work *w, size_t i)
{
    return w->out->timed[i].outcome == FA2I_OUTCOME_OK;
}

/* Each kernel once, sampled rows against the reference. */
static fa2_status check_all(work *w, const fa2i_case *c)
{
    fa2_status st = FA2_OK;
    fa2i_expected expected = {0};
    void *output = NULL;
    FA2_TRY(fa2i_expected_sampled(c, FA2I_BENCHMARK_SEED + 1, w->all->threads, &expected));
    output = fa2i_alloc(expected.output_bytes);
    if (output == NULL)
        FA2_TRY(fa2i_fail(FA2_E_MEMORY, "no memory for sampled rows"));
    for (size_t i = 0; i < w->out->count && !stopped(w); i++)
        if (takes_part(w, i))
            FA2_TRY(check_kernel(w, i, &expected, output));
done:
    fa2i_free(output);
    fa2i_expected_done(&expected);
    return st;
}

/* ---- time ---- */

/* Each kernel's turn, and whether it counts. */
static size_t make_round(work *w, bool timed, fa2i_sample *samples, bool *counts)
{
    size_t order[FA2I_BENCHMARK_KERNELS_MAX], count = 0, made = 0;
    for (size_t i = 0; i < w->out->count; i++)
        if (takes_part(w, i))
            order[count++] = i;
    for (size_t i = count; i > 1; i--) {
        const size_t j = (size_t)(fa2i_random(&w->random) % i), last = order[i - 1];
        order[i - 1] = order[j];
        order[j] = last;
    }
    for (size_t i = 0; i < count; i++) {
        /* The run before warms L2 and clocks, which another kernel had. */
        for (int run = w->all->cold || !timed || w->all->gpu.modelled; run < 2; run++) {
            counts[made] = timed && run == 1;
            samples[made++] = (fa2i_sample){.contender = (uint32_t)order[i]};
        }
    }
    return made;
}

/* Take these samples, keep those that count. */
static fa2_status take(work *w, fa2i_sample *samples, const bool *counts, size_t count,
                       int launches, double best_us)
{
    const fa2_status st =
        fa2i_worker_sample(w->all->worker, samples, count, w->ids, launches, best_us, w->failures);
    for (size_t i = 0; st == FA2_OK && i < w->out->count; i++)
        if (takes_part(w, i) && w->failures[i].outcome != FA2I_OUTCOME_OK)
            fail(w, i);
    for (size_t i = 0; st == FA2_OK && i < count; i++) {
        const fa2i_sample *s = &samples[i];
        if (counts[i] && s->taken && s->outcome == FA2I_OUTCOME_OK)
            w->samples[s->contender][w->sample_count[s->contender]++] = s->us;
    }
    return st;
}

static fa2_status run_rounds(work *w, size_t rounds, bool timed, int launches, double best_us)
{
    fa2_status st = FA2_OK;
    while (rounds > 0 && st == FA2_OK && !stopped(w)) {
        fa2i_sample samples[ROUNDS_AT_ONCE * FA2I_BENCHMARK_KERNELS_MAX * 2];
        bool counts[sizeof samples / sizeof *samples];
        size_t count = 0, now = rounds < ROUNDS_AT_ONCE ? rounds : ROUNDS_AT_ONCE;
        rounds -= now;
        for (; now > 0; now--)
            count += make_round(w, timed, samples + count, counts + count);
        if (count > 0)
            st = take(w, samples, counts, count, launches, best_us);
    }
    return st;
}

/* How many launches make a run, by the fastest kernel; *ret_us: its time. */
static fa2_status choose_launches(work *w, int *ret_launches, double *ret_us)
{
    double least = INFINITY;
    const fa2_status st = run_rounds(w, PILOTS, true, 1, 0);
    for (size_t i = 0; i < w->out->count; i++) {
        for (size_t j = 0; j < w->sample_count[i]; j++)
            least = fmin(least, w->samples[i][j]);
        w->sample_count[i] = 0;
    }
    const double wanted = FA2I_BENCHMARK_SAMPLE_US / fmax(least, 1e-3);
    *ret_launches =
        w->all->cold || !isfinite(least) ? 1 : (int)fmax(1, fmin(LAUNCHES_MAX, ceil(wanted)));
    *ret_us = isfinite(least) ? least : 0;
    return st;
}

static fa2_status time_all(work *w)
{
    fa2_status st = FA2_OK;
    fa2i_benchmark *out = w->out;
    double best_us = 0;
    out->runs = w->all->gpu.modelled ? 1 : w->all->runs > 0 ? w->all->runs : FA2I_BENCHMARK_RUNS;
    out->launches = 1;
    for (size_t i = 0; i < out->count; i++) {
        w->samples[i] = fa2i_alloc_array(out->runs + PILOTS, sizeof *w->samples[i]);
        if (w->samples[i] == NULL)
            return fa2i_fail(FA2_E_MEMORY, "no memory for %zu samples", out->runs);
    }
    if (!w->all->gpu.modelled) {
        FA2_TRY(choose_launches(w, &out->launches, &best_us));
        FA2_TRY(run_rounds(w, FA2I_BENCHMARK_WARMUP, false, out->launches, best_us));
    }
    FA2_TRY(run_rounds(w, out->runs, true, out->launches, best_us));
    for (size_t i = 0; i < out->count; i++)
        out->timed[i].us = fa2i_summary_of(w->samples[i], w->sample_count[i]);
done:
    return st;
}

/* ---- a problem ---- */

static void describe(const fa2_problem *problem, fa2i_benchmark *out)
{
    const fa2i_op *op = fa2i_op_of(problem);
    const fa2i_case c = fa2i_tune_case(problem);
    const fa2i_judge *judge = fa2i_judge_of(problem->op);
    *out = (fa2i_benchmark){
        .problem = *problem, .flop = op->flop(problem), .bytes = op->bytes(problem)};
    for (int i = 0; i < judge->operand_count; i++)
        out->tensor_bytes += (double)fa2i_case_operand_bytes(&c, i);
    /* Two bytes of each pair of a query and a key, masked or not; of which forward computes 4 D. */
    out->square_bytes = 2 * fa2i_forward_flop_unmasked(problem) / (4.0 * problem->head_dim);
}

/* Statuses that are about this problem alone. */
static bool is_of_problem(fa2_status status)
{
    return status == FA2_E_UNSUPPORTED || status == FA2_E_CUDA;
}

fa2_status fa2i_benchmark_run(fa2i_benchmarks *all, const fa2_problem *problem,
                              fa2i_benchmark *ret_benchmark)
{
    fa2_status st = FA2_OK;
    work w = {.all = all, .out = ret_benchmark, .random = FA2I_BENCHMARK_SEED};
    const fa2i_case c = fa2i_tune_case(problem);

    describe(problem, ret_benchmark);
    FA2_TRY(ensure_worker(all));
    FA2_TRY(enter_choices(&w));
    FA2_TRY(fa2i_worker_case(all->worker, &c));
    FA2_TRY(check_all(&w, &c));
    FA2_TRY(time_all(&w));
done:
    for (size_t i = 0; i < FA2I_BENCHMARK_KERNELS_MAX; i++)
        fa2i_free(w.samples[i]);
    if (!is_of_problem(st) || all->worker == NULL)
        return st;
    ret_benchmark->count = 0;
    snprintf(ret_benchmark->message, sizeof ret_benchmark->message, "%s", fa2_last_message());
    return FA2_OK;
}
