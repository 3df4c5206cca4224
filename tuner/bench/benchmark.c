/*
 * Kernels are numbered in the order of their first use. The number is also the id in the worker, which asks for their
 * images again after a restart. So kernels live as long as the worker.
 */
#include "tuner/bench/benchmark.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "runtime/base/alloc.h"
#include "runtime/ops/op.h"
#include "tuner/bench/precisions.h"
#include "tuner/judge/verify.h"
#include "tuner/search/search.h"

enum { LAUNCHES_MAX = 256, PILOTS = 3, ROUNDS_AT_ONCE = 10 };

/* The problem that is being measured. */
typedef struct work {
    fa2i_benchmarks *all;
    fa2i_benchmark *out;
    uint32_t ids[FA2I_BENCHMARK_KERNELS_MAX];
    fa2i_failure failures[FA2I_BENCHMARK_KERNELS_MAX];
    double *samples[FA2I_BENCHMARK_KERNELS_MAX]; /* owned */
    size_t sample_count[FA2I_BENCHMARK_KERNELS_MAX];
    size_t every[FA2I_BENCHMARK_KERNELS_MAX]; /* it takes part in every n-th round; 0: in all */
    size_t rounds;                            /* so far */
    uint64_t random;
} work;

/* ---- state of all problems ---- */

static fa2i_warmth warmth_of(const fa2i_benchmarks *all)
{
    return all->cold ? FA2I_WARMTH_COLD : all->gpu.modelled ? FA2I_WARMTH_WARM : FA2I_WARMTH_BUSY;
}

/* The runtime's choice is what it can use here. The untuned choice is only a comparison. If it would have to be
 * compiled, and cannot be, it is left out. */
static fa2_status open_predictors(fa2i_benchmarks *all)
{
    fa2_status st = FA2_OK;
    const fa2i_kernel_list *list = &all->kernels;
    const fa2i_card *card = &all->gpu.card;
    const char *path = list->cache == NULL ? NULL : fa2i_cache_path(list->cache);
    FA2_TRY(fa2i_generator_create(&all->uncalibrated));
    FA2_TRY(fa2i_predictor_init(&all->untuned, all->uncalibrated, NULL, NULL, card));
    FA2_TRY(fa2i_predictor_init(&all->tuned, list->generator, list->cache, path, card));
    FA2_TRY(fa2i_predictor_find_share(&all->tuned));
    fa2i_predictor_be_here(&all->tuned);
done:
    return st;
}

fa2_status fa2i_benchmarks_open(fa2i_benchmarks *all)
{
    fa2_status st = FA2_OK;
    FA2_TRY(open_predictors(all));
    if (all->gpu.has_uuid && !all->gpu.modelled)
        fa2i_nvml_open(all->gpu.uuid, &all->nvml);
    FA2_TRY(fa2i_worker_create(all->gpu.ordinal, all->gpu.modelled, fa2i_kernel_list_get, &all->kernels, all->stop,
                               &all->worker));
    FA2_TRY(fa2i_ceilings_measure(&all->kernels, all->worker, all->stop, NULL, NULL, all->ceilings));
done:
    return st;
}

void fa2i_benchmarks_done(fa2i_benchmarks *all)
{
    fa2i_worker_destroy(all->worker);
    all->worker = NULL;
    fa2i_predictor_done(&all->tuned);
    fa2i_predictor_done(&all->untuned);
    fa2i_generator_destroy(all->uncalibrated);
    all->uncalibrated = NULL;
    fa2i_kernel_list_done(&all->kernels);
    fa2i_nvml_close(&all->nvml);
}

/* ---- the kernels of a problem ---- */

/* Records why a kernel has no time. */
static void leave_out(fa2i_timed *t, fa2i_outcome outcome, const char *why)
{
    t->outcome = outcome;
    snprintf(t->detail, sizeof t->detail, "%s", why == NULL ? "" : why);
}

/* Leaves a kernel out that needs more memory than the device has. The S x S matrix of a naive kernel may. */
static void check_memory(const fa2i_benchmarks *all, const fa2i_benchmark *b, fa2i_timed *t)
{
    const double needed = b->tensor_bytes + (double)t->workspace_bytes;
    char why[128];
    if (needed < 0.9 * (double)all->gpu.memory_bytes)
        return;
    snprintf(why, sizeof why, "needs %.1f GiB of device memory; there are %.1f", needed / 0x1p30,
             (double)all->gpu.memory_bytes / 0x1p30);
    leave_out(t, FA2I_OUTCOME_LAUNCH_ERROR, why);
    t->left_out = true;
}

/* Adds a variant. If it does not compile, or cannot be compiled here, that is a result. */
static fa2_status enter(work *w, const char *role, fa2_rule rule, const fa2i_variant *variant, const fa2i_key *key)
{
    fa2i_benchmark *out = w->out;
    fa2i_timed *t = &out->timed[out->count];
    fa2i_grid grid = {0};
    *t = (fa2i_timed){.role = role, .rule = rule};
    for (int i = 0; i < FA2I_NUMBERS; i++)
        t->relative[i] = -1;
    memcpy(t->variant, variant->text, sizeof t->variant);
    fa2_status st = fa2i_kernel_list_find(&w->all->kernels, variant, key, &w->ids[out->count]);
    if (st == FA2_E_NO_NVRTC) {
        leave_out(t, FA2I_OUTCOME_COMPILE_ERROR, fa2_last_message());
        t->left_out = true;
        out->count++;
        return FA2_OK;
    }
    if (st != FA2_OK)
        return st;
    const fa2i_kernel *kernel = fa2i_kernel_list_get(&w->all->kernels, w->ids[out->count]);
    if (kernel->outcome == FA2I_OUTCOME_COMPILE_ERROR)
        leave_out(t, kernel->outcome, kernel->log);
    st = fa2i_op_of(&out->problem)->grid(&w->all->gpu.card, &kernel->variant.recipe, &out->problem, &grid);
    if (st != FA2_OK)
        return st;
    t->workspace_bytes = grid.workspace_bytes;
    check_memory(w->all, out, t);
    out->count++;
    return FA2_OK;
}

static const char *role_of(fa2_rule rule)
{
    return rule == FA2_RULE_EXACT ? "tuned" : rule == FA2_RULE_DEFAULT ? "default" : "chosen";
}

/* Adds the runtime's choice with the database or the records that come with fa2, and its choice without both. */
static fa2_status enter_choices(work *w)
{
    fa2_status st = FA2_OK;
    const fa2_problem *problem = &w->out->problem;
    fa2i_predicted with = {0}, without = {0};
    FA2_TRY(fa2i_predict(&w->all->untuned, problem, &without));
    FA2_TRY(fa2i_predict(&w->all->tuned, problem, &with));
    if (with.status != FA2_OK || without.status != FA2_OK)
        FA2_TRY(fa2i_fail(with.status != FA2_OK ? with.status : without.status, "%s",
                          with.status != FA2_OK ? with.message : without.message));
    w->out->same = strcmp(with.variant.text, without.variant.text) == 0;
    FA2_TRY(enter(w, role_of(with.decision.rule), with.decision.rule, &with.variant, &with.key));
    if (!w->out->same)
        FA2_TRY(enter(w, "default", FA2_RULE_DEFAULT, &without.variant, &without.key));
done:
    fa2i_predicted_done(&with);
    fa2i_predicted_done(&without);
    return st;
}

/* Adds textbook attention if it supports the problem: it has no features and no backward. */
static fa2_status enter_naive(work *w)
{
    fa2i_variant variant;
    const fa2_problem *problem = &w->out->problem;
    char text[FA2I_VARIANT_CHARS];
    snprintf(text, sizeof text, "naive d=%d dtype=%s causal=%d", (int)problem->head_dim,
             fa2i_dtype_string(problem->dtype), (int)problem->causal);
    fa2_status st = fa2i_generator_variant(w->all->kernels.generator, text, &variant);
    if (st == FA2_OK)
        st = fa2i_generator_check_class(problem, &variant);
    if (st != FA2_OK)
        return st == FA2_E_UNSUPPORTED || st == FA2_E_NOT_FOUND ? FA2_OK : st;
    return enter(w, "naive", FA2_RULE_DEFAULT, &variant, NULL);
}

/* ---- check ---- */

static void fail(work *w, size_t i)
{
    fa2i_timed *t = &w->out->timed[i];
    t->outcome = w->failures[i].outcome;
    memcpy(t->detail, w->failures[i].detail, sizeof t->detail);
}

/* The driver refused its image, and has accepted none so far. Other kernels will show which is to blame. */
static bool is_undecided(const work *w, size_t i)
{
    return w->failures[i].outcome != FA2I_OUTCOME_OK && w->failures[i].blame == FA2I_BLAME_IMAGE;
}

static fa2_status check_kernel(work *w, size_t i, const fa2i_expected *expected, void *output)
{
    uint32_t overwritten = 0;
    fa2i_verification verdict = {0};
    fa2i_failure *failure = &w->failures[i];
    *failure = (fa2i_failure){.outcome = FA2I_OUTCOME_OK};
    const fa2_status st = fa2i_worker_check(w->all->worker, w->ids[i], expected->places, expected->place_count, output,
                                            expected->output_bytes, &overwritten, failure);
    if (st == FA2_E_CUDA && strcmp(w->out->timed[i].role, "naive") == 0) {
        /* Memory is short, perhaps because others use the device. If the device is lost, the next kernels fail. */
        leave_out(&w->out->timed[i], FA2I_OUTCOME_LAUNCH_ERROR, fa2_last_message());
        w->out->timed[i].left_out = true;
        return FA2_OK;
    }
    if (st != FA2_OK)
        return st;
    if (is_undecided(w, i))
        return FA2_OK;
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

/* Runs each kernel once, and compares sampled rows with the reference. Kernels that were refused before the driver
 * accepted any are tried again. */
static fa2_status check_all(work *w, const fa2i_case *c)
{
    fa2_status st = FA2_OK;
    fa2i_expected expected = {0};
    void *output = NULL;
    FA2_TRY(fa2i_expected_sampled(c, FA2I_BENCHMARK_SEED + 1, w->all->threads, &expected));
    FA2_TRY(fa2i_new(&output, expected.output_bytes, 1));
    for (size_t i = 0; i < w->out->count && !stopped(w); i++)
        if (takes_part(w, i))
            FA2_TRY(check_kernel(w, i, &expected, output));
    for (size_t i = 0; i < w->out->count && !stopped(w); i++) {
        if (is_undecided(w, i))
            FA2_TRY(check_kernel(w, i, &expected, output));
        if (is_undecided(w, i))
            FA2_TRY(fa2i_worker_misfit(w->failures[i].detail));
    }
done:
    fa2i_free(output);
    fa2i_expected_done(&expected);
    return st;
}

/* ---- errors of precisions ---- */

/* Stores the error of a kernel's O. Leaves it if the kernel cannot be run. */
static fa2_status find_error(work *w, size_t i, const fa2i_expected *expected, void *output, double *ret_relative)
{
    uint32_t overwritten = 0;
    fa2i_failure failure = {.outcome = FA2I_OUTCOME_OK};
    const fa2_status st = fa2i_worker_check(w->all->worker, w->ids[i], expected->places, expected->place_count, output,
                                            expected->output_bytes, &overwritten, &failure);
    if (st == FA2_OK && failure.outcome == FA2I_OUTCOME_OK)
        *ret_relative = fa2i_expected_errors(expected, output).relative;
    return st;
}

/* Measures the errors of all kernels with one kind of numbers. What is expected is exact: of the same elements without
 * the problem's permissions, and of K and V before they were rounded to 8 bits. */
static fa2_status find_errors(work *w, int kind)
{
    fa2_status st = FA2_OK;
    fa2i_case c = fa2i_case_of(&w->out->problem, FA2I_TUNE_SEED), exact;
    fa2i_expected expected = {0};
    void *output = NULL;
    c.pattern = (fa2i_pattern)(FA2I_PATTERN_NORMAL + kind);
    exact = c;
    exact.problem = fa2i_precisions_exact(&c.problem);
    FA2_TRY(fa2i_worker_case(w->all->worker, &c));
    FA2_TRY(fa2i_expected_sampled(&exact, FA2I_BENCHMARK_SEED + 1, w->all->threads, &expected));
    FA2_TRY(fa2i_new(&output, expected.output_bytes, 1));
    for (size_t i = 0; i < w->out->count && !stopped(w); i++)
        if (takes_part(w, i))
            FA2_TRY(find_error(w, i, &expected, output, &w->out->timed[i].relative[kind]));
done:
    fa2i_free(output);
    fa2i_expected_done(&expected);
    return st;
}

/* ---- time ---- */

/* Lists the kernels of a round in random order. */
static size_t make_round(work *w, fa2i_sample *samples)
{
    size_t order[FA2I_BENCHMARK_KERNELS_MAX], count = 0;
    for (size_t i = 0; i < w->out->count; i++)
        if (takes_part(w, i) && (w->every[i] == 0 || w->rounds % w->every[i] == 0))
            order[count++] = i;
    w->rounds++;
    for (size_t i = count; i > 1; i--) {
        const size_t j = (size_t)(fa2i_random(&w->random) % i), last = order[i - 1];
        order[i - 1] = order[j];
        order[j] = last;
    }
    for (size_t i = 0; i < count; i++)
        samples[i] = (fa2i_sample){.contender = (uint32_t)order[i]};
    return count;
}

/* Takes these samples, and keeps them if timed is set. */
static fa2_status take(work *w, fa2i_sample *samples, size_t count, bool timed, int launches, double best_us)
{
    const fa2_status st = fa2i_worker_sample(w->all->worker, samples, count, w->ids, launches, best_us, w->failures);
    for (size_t i = 0; st == FA2_OK && i < w->out->count; i++)
        if (takes_part(w, i) && w->failures[i].outcome != FA2I_OUTCOME_OK)
            fail(w, i);
    for (size_t i = 0; st == FA2_OK && i < count; i++) {
        const fa2i_sample *s = &samples[i];
        if (timed && s->taken && s->outcome == FA2I_OUTCOME_OK)
            w->samples[s->contender][w->sample_count[s->contender]++] = s->us;
    }
    return st;
}

/* Idles, so that a card at its power limit recovers its clocks. */
static void rest(const work *w)
{
    const long ms = w->all->rest_ms;
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    if (ms > 0)
        (void)nanosleep(&time, NULL); /* a signal ends it, because the user stops */
}

static fa2_status run_rounds(work *w, size_t rounds, bool timed, int launches, double best_us)
{
    fa2_status st = FA2_OK;
    while (rounds > 0 && st == FA2_OK && !stopped(w)) {
        fa2i_sample samples[ROUNDS_AT_ONCE * FA2I_BENCHMARK_KERNELS_MAX];
        const size_t most = w->all->rest_ms > 0 ? 1 : ROUNDS_AT_ONCE;
        size_t count = 0, now = rounds < most ? rounds : most;
        rounds -= now;
        rest(w);
        for (; now > 0; now--)
            count += make_round(w, samples + count);
        if (count > 0)
            st = take(w, samples, count, timed, launches, best_us);
        fa2i_nvml_look(&w->all->nvml, &w->out->conditions);
    }
    return st;
}

static double least_sample(const work *w, size_t i)
{
    double least = INFINITY;
    for (size_t j = 0; j < w->sample_count[i]; j++)
        least = fmin(least, w->samples[i][j]);
    return least;
}

/* Finds how many launches make a run, from the fastest kernel; *ret_us is its time. Also finds the kernels that are so
 * slow that they skip rounds. */
static fa2_status choose_launches(work *w, int *ret_launches, double *ret_us)
{
    double us[FA2I_BENCHMARK_KERNELS_MAX], least = INFINITY;
    const fa2_status st = run_rounds(w, PILOTS, true, 1, 0);
    for (size_t i = 0; i < w->out->count; i++) {
        us[i] = least_sample(w, i);
        least = fmin(least, us[i]);
        w->sample_count[i] = 0;
    }
    *ret_us = isfinite(least) ? least : 0;
    *ret_launches = w->all->cold || !isfinite(least)
                        ? 1
                        : (int)fmax(1, fmin(LAUNCHES_MAX, ceil(FA2I_BENCHMARK_SAMPLE_US / fmax(least, 1e-3))));
    for (size_t i = 0; i < w->out->count; i++)
        if (isfinite(us[i]))
            w->every[i] = (size_t)fmin((double)w->out->runs / FA2I_BENCHMARK_RUNS_LEAST,
                                       us[i] * *ret_launches / FA2I_BENCHMARK_SLOW_US);
    w->rounds = 0;
    return st;
}

/* Measures the energy of consecutive launches, for each kernel by itself. */
static fa2_status count_energy(work *w)
{
    fa2_status st = FA2_OK;
    const int launches = w->out->launches;
    for (size_t i = 0; i < w->out->count && st == FA2_OK && !stopped(w); i++) {
        uint64_t before = 0, after = 0;
        const double us = w->out->timed[i].us.order.median * launches;
        if (!takes_part(w, i) || us <= 0 || !fa2i_nvml_energy(&w->all->nvml, &before))
            continue;
        const size_t count = (size_t)fmin(1 << 16, ceil(FA2I_BENCHMARK_ENERGY_US / us));
        fa2i_sample *samples = fa2i_alloc_array(count, sizeof *samples);
        if (samples == NULL)
            return fa2i_fail(FA2_E_MEMORY, "no memory for %zu samples", count);
        for (size_t j = 0; j < count; j++)
            samples[j].contender = (uint32_t)i;
        st = fa2i_worker_sample(w->all->worker, samples, count, w->ids, launches, w->out->timed[i].us.order.median,
                                w->failures);
        if (st == FA2_OK && w->failures[i].outcome == FA2I_OUTCOME_OK && samples[count - 1].taken &&
            fa2i_nvml_energy(&w->all->nvml, &after))
            w->out->timed[i].mj = (double)(after - before) / ((double)count * launches);
        fa2i_free(samples);
    }
    return st;
}

static fa2_status time_all(work *w)
{
    fa2_status st = FA2_OK;
    fa2i_benchmark *out = w->out;
    double best_us = 0;
    out->runs = w->all->gpu.modelled ? 1 : w->all->runs;
    out->launches = 1;
    for (size_t i = 0; i < out->count; i++)
        FA2_TRY(FA2I_NEW(w->samples[i], out->runs + PILOTS));
    if (!w->all->gpu.modelled) {
        FA2_TRY(choose_launches(w, &out->launches, &best_us));
        FA2_TRY(run_rounds(w, FA2I_BENCHMARK_WARMUP, false, out->launches, best_us));
    }
    FA2_TRY(run_rounds(w, out->runs, true, out->launches, best_us));
    for (size_t i = 0; i < out->count; i++)
        out->timed[i].us = fa2i_summary_of(w->samples[i], w->sample_count[i]);
    if (!w->all->cold) { /* the flush uses energy, too */
        fa2i_worker_set_warmth(w->all->worker, FA2I_WARMTH_WARM);
        FA2_TRY(count_energy(w));
    }
done:
    return st;
}

/* ---- a problem ---- */

static void describe(const fa2_problem *problem, fa2i_benchmark *out)
{
    const fa2i_op *op = fa2i_op_of(problem);
    const fa2i_case c = fa2i_case_of(problem, FA2I_TUNE_SEED);
    const fa2i_judge *judge = fa2i_judge_of(problem->op);
    *out = (fa2i_benchmark){.problem = *problem, .flop = op->flop(problem), .bytes = op->bytes(problem)};
    const bool counted = fa2i_case_bytes(&c) != SIZE_MAX; /* otherwise the worker refuses it */
    for (int i = 0; counted && i < judge->operand_count; i++)
        out->tensor_bytes += (double)fa2i_case_operand_bytes(&c, i);
    /* Two bytes per pair of query and key, masked or not. Forward counts 2 (D + Dv) operations per pair. */
    out->square_bytes =
        2 * fa2i_forward_flop_unmasked(problem) / (2.0 * (problem->head_dim + fa2i_head_dim_v(problem)));
}

static bool is_of_problem(fa2_status status)
{
    return status == FA2_E_UNSUPPORTED || status == FA2_E_CUDA || status == FA2_E_NO_NVRTC;
}

fa2_status fa2i_benchmark_run(fa2i_benchmarks *all, const fa2_problem *problem, fa2i_benchmark *ret_benchmark)
{
    fa2_status st = FA2_OK;
    work w = {.all = all, .out = ret_benchmark, .random = FA2I_BENCHMARK_SEED};
    const fa2i_case c = fa2i_case_of(problem, FA2I_TUNE_SEED);
    describe(problem, ret_benchmark);
    FA2_TRY(enter_choices(&w));
    FA2_TRY(enter_naive(&w));
    fa2i_worker_set_warmth(all->worker, warmth_of(all));
    FA2_TRY(fa2i_worker_case(all->worker, &c));
    FA2_TRY(check_all(&w, &c));
    if (all->precisions && fa2i_precisions_apply(problem)) {
        for (int i = 0; i < FA2I_NUMBERS && !stopped(&w); i++)
            FA2_TRY(find_errors(&w, i));
        FA2_TRY(fa2i_worker_case(all->worker, &c));
    }
    FA2_TRY(time_all(&w));
done:
    for (size_t i = 0; i < FA2I_BENCHMARK_KERNELS_MAX; i++)
        fa2i_free(w.samples[i]);
    if (!is_of_problem(st))
        return st;
    ret_benchmark->count = 0;
    snprintf(ret_benchmark->message, sizeof ret_benchmark->message, "%s", fa2_last_message());
    return FA2_OK;
}
