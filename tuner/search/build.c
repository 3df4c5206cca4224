/*
 * The problems of one class form a group, because they can share kernels. A group has the candidates of all its
 * problems, best rank first, so that each problem's favourites come early. They are tried in rounds of ROUND_SIZE per
 * group. All groups share a round, to keep every processor busy. A group takes part in the next round only if none of
 * its variants compiled without spills so far.
 *
 * - The first `tried` candidates of a group are compiled, or read from the database.
 * - When winners are chosen, a group whose candidates all spill has tried all of them. A kernel that spills is better
 *   than no kernel.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/cuda/cuda_api.h"
#include "tuner/search/build.h"
#include "tuner/search/compile_all.h"
#include "tuner/search/text_index.h"
#include "tuner/report/progress.h"

enum { ROUND_SIZE = 12 };

typedef struct candidate {
    fa2i_variant variant;
    size_t rank;  /* its best place in the cost model's order, over the group's problems */
    size_t order; /* order of arrival; decides between equal ranks */
    fa2i_key key;
    bool compiles;              /* false until it is tried */
    int registers, spill_bytes; /* per thread, as compiled */
    int spills;                 /* fa2i_kernel_spills */
} candidate;

typedef struct group {
    fa2_problem first; /* one of its problems */
    candidate *candidates;
    size_t count, capacity, tried;
    fa2i_text_index places; /* finds candidates by the texts of their variants, until they are sorted */
} group;

typedef struct work {
    const fa2i_build *build;
    fa2i_target target; /* the compiler that is here, or another one if nothing has to be compiled */
    int64_t device, session;
    group *groups; /* at most one per shape */
    size_t group_count;
    fa2i_compile_job *jobs; /* of this round */
    candidate **pending;    /* pending[i] is the candidate of jobs[i] */
    size_t job_count, job_capacity;
    fa2i_progress progress;
    fa2i_build_result result;
} work;

void fa2i_build_result_done(fa2i_build_result *result)
{
    fa2i_free(result->winners);
    result->winners = NULL;
    result->winner_count = 0;
}

static void drop_jobs(work *w)
{
    for (size_t i = 0; i < w->job_count; i++)
        fa2i_free(w->jobs[i].source);
    w->job_count = 0;
}

static void work_done(work *w)
{
    drop_jobs(w);
    fa2i_free(w->jobs);
    fa2i_free(w->pending);
    for (size_t i = 0; i < w->group_count; i++) {
        fa2i_free(w->groups[i].candidates);
        fa2i_text_index_done(&w->groups[i].places);
    }
    fa2i_free(w->groups);
    fa2i_build_result_done(&w->result);
}

/* ---- groups and their candidates ---- */

static group *find_group(const work *w, const fa2_problem *problem)
{
    for (size_t i = 0; i < w->group_count; i++)
        if (fa2i_problem_same_class(&w->groups[i].first, problem))
            return &w->groups[i];
    return NULL;
}

static const char *candidate_text(const void *of, size_t place)
{
    return ((const group *)of)->candidates[place].variant.text;
}

static fa2_status add_candidate(group *g, const fa2i_variant *variant, size_t rank)
{
    const ptrdiff_t place = fa2i_text_index_find(&g->places, g, variant->text);
    if (place != FA2I_NO_PLACE) {
        if (rank < g->candidates[place].rank)
            g->candidates[place].rank = rank;
        return FA2_OK;
    }
    const fa2_status st = FA2I_GROW(g->candidates, g->count + 1, g->capacity);
    if (st != FA2_OK)
        return st;
    g->candidates[g->count] = (candidate){.variant = *variant, .rank = rank, .order = g->count};
    g->places.text_at = candidate_text;
    return fa2i_text_index_add(&g->places, g, g->count++);
}

static int compare_candidates(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

/* Puts one problem's candidates into its group. If no family serves the problem, notes and counts it. */
static fa2_status add_problem(work *w, const fa2_problem *problem)
{
    fa2i_variant *variants = NULL;
    size_t count = 0;
    fa2_status st = fa2i_generator_candidates(w->build->generator, problem, &w->result.card, &variants, &count);
    if (st == FA2_E_UNSUPPORTED) {
        fa2i_note(&w->progress, "%s: %s", fa2i_problem_shape(problem).text, fa2_last_message());
        w->result.unserved++;
        return FA2_OK;
    }
    group *g = find_group(w, problem);
    if (st == FA2_OK && g == NULL) {
        g = &w->groups[w->group_count++];
        g->first = *problem;
    }
    for (size_t i = 0; st == FA2_OK && i < count; i++)
        st = add_candidate(g, &variants[i], i);
    fa2i_free(variants);
    return st;
}

static fa2_status make_groups(work *w)
{
    const fa2i_shapes *shapes = w->build->shapes;
    fa2_status st;
    FA2_TRY(FA2I_NEW(w->groups, shapes->count));
    for (size_t i = 0; i < shapes->count; i++)
        FA2_TRY(add_problem(w, &shapes->items[i]));
    for (size_t i = 0; i < w->group_count; i++)
        qsort(w->groups[i].candidates, w->groups[i].count, sizeof(candidate), compare_candidates);
done:
    return st;
}

/* ---- compiling ---- */

static bool compiles(const fa2i_kernel *kernel)
{
    return kernel->outcome == FA2I_OUTCOME_OK || kernel->outcome == FA2I_OUTCOME_SPILLED;
}

static void record_outcome(work *w, candidate *c, const fa2i_kernel *kernel)
{
    c->compiles = compiles(kernel);
    c->registers = kernel->registers;
    c->spill_bytes = kernel->spill_bytes;
    c->spills = fa2i_kernel_spills(kernel);
    w->result.spilled += c->compiles && c->spills > 0;
    w->result.failed += kernel->outcome == FA2I_OUTCOME_COMPILE_ERROR;
}

/* A kernel that compiles is reused only with its image, because a winner without one is useless. */
static fa2_status find_stored(work *w, candidate *c, bool *ret_found)
{
    fa2i_kernel kernel = {0};
    fa2_status st = fa2i_cache_get_kernel(w->build->cache, &c->key, c->variant.recipe.abi, false, &kernel);
    if (st == FA2_OK && compiles(&kernel)) {
        fa2i_kernel_done(&kernel);
        st = fa2i_cache_get_kernel(w->build->cache, &c->key, c->variant.recipe.abi, true, &kernel);
    }
    *ret_found = st == FA2_OK;
    if (st == FA2_OK)
        record_outcome(w, c, &kernel);
    fa2i_kernel_done(&kernel);
    return st == FA2_E_NOT_FOUND ? FA2_OK : st;
}

static fa2_status reserve_job(work *w)
{
    size_t capacity = w->job_capacity;
    const fa2_status st = FA2I_GROW(w->jobs, w->job_count + 1, capacity);
    return st != FA2_OK ? st : FA2I_GROW(w->pending, w->job_count + 1, w->job_capacity);
}

/* Reuses the candidate's kernel, or makes a job for it. */
static fa2_status try_candidate(work *w, candidate *c)
{
    fa2_status st = FA2_OK;
    char *source = NULL;
    bool found = false;
    FA2_TRY(fa2i_generator_source(w->build->generator, c->variant.text, &source));
    fa2i_compile_key_of(&c->variant, source, &w->target, w->target.nvrtc, &c->key);
    FA2_TRY(find_stored(w, c, &found));
    w->result.reused += found;
    if (found)
        goto done;
    FA2_TRY(reserve_job(w));
    w->pending[w->job_count] = c;
    w->jobs[w->job_count++] = (fa2i_compile_job){.variant = c->variant, .source = source, .target = w->target};
    source = NULL; /* the job owns it now */
done:
    fa2i_free(source);
    return st;
}

static bool has_unspilled(const group *g)
{
    for (size_t i = 0; i < g->tried; i++)
        if (g->candidates[i].compiles && g->candidates[i].spills == 0)
            return true;
    return false;
}

/* Makes jobs for every group that has no kernel without spills yet. */
static fa2_status plan_round(work *w)
{
    for (size_t i = 0; i < w->group_count; i++) {
        group *g = &w->groups[i];
        if (has_unspilled(g))
            continue;
        for (size_t tries = 0; tries < ROUND_SIZE && g->tried < g->count; tries++) {
            const fa2_status st = try_candidate(w, &g->candidates[g->tried]);
            if (st != FA2_OK)
                return st;
            g->tried++;
        }
    }
    return FA2_OK;
}

static fa2_status store_kernel(void *user, size_t index, const fa2i_kernel *kernel, bool found)
{
    work *w = user;
    candidate *c = w->pending[index];
    record_outcome(w, c, kernel);
    w->result.compiled += !found;
    w->result.reused += found;
    /* Only the first error is printed in full, because the others are likely to say the same. */
    if (kernel->outcome == FA2I_OUTCOME_COMPILE_ERROR && w->result.failed == 1)
        fa2i_note(&w->progress, "does not compile: %s\n%s", c->variant.text, kernel->log == NULL ? "" : kernel->log);
    fa2i_progress_step(&w->progress, c->variant.text);
    return found ? FA2_OK : fa2i_cache_put_kernel(w->build->cache, kernel);
}

static bool stopped(const work *w)
{
    return *w->build->stop != 0;
}

static bool wants_round(const work *w)
{
    for (size_t i = 0; i < w->group_count; i++)
        if (!has_unspilled(&w->groups[i]) && w->groups[i].tried < w->groups[i].count)
            return true;
    return false;
}

static fa2_status compile_rounds(work *w)
{
    char what[48];
    snprintf(what, sizeof what, "compiling for %s", w->target.name);
    fa2_status st = FA2_OK;
    while (st == FA2_OK && wants_round(w) && !stopped(w)) {
        st = plan_round(w);
        if (st != FA2_OK || w->job_count == 0)
            continue; /* everything was in the database */
        fa2i_progress_begin(&w->progress, what, w->job_count);
        st = fa2i_compile_all(w->jobs, w->job_count, w->build->cache, w->build->jobs,
                              fa2i_generator_id(w->build->generator), w->build->stop, store_kernel, w);
        fa2i_progress_end(&w->progress);
        drop_jobs(w);
    }
    return st;
}

/* ---- winners ---- */

/* Finds the candidate that spills least, as a call without a tuned kernel does (runtime/plan/choose.h). Among
 * candidates that spill alike, mostly not at all, it takes the one that the cost model ranks best for this problem.
 * NULL: no candidate compiles. */
static fa2_status rank_candidates(const work *w, const group *g, const fa2_problem *problem, const candidate **ret_best,
                                  double *ret_us)
{
    *ret_best = NULL;
    for (size_t i = 0; i < g->tried; i++) {
        const candidate *c = &g->candidates[i];
        double us = 0;
        if (!c->compiles || (*ret_best != NULL && c->spills > (*ret_best)->spills))
            continue;
        const fa2_status st =
            fa2i_generator_cost(w->build->generator, c->variant.text, problem, &w->result.card, c->registers, &us);
        if (st != FA2_OK)
            return st;
        if (*ret_best == NULL || c->spills < (*ret_best)->spills || us < *ret_us) {
            *ret_best = c;
            *ret_us = us;
        }
    }
    return FA2_OK;
}

static fa2_status store_winner(work *w, const fa2_problem *problem)
{
    const group *g = find_group(w, problem);
    const candidate *best = NULL;
    fa2i_winner winner = {.measured = false};
    fa2_status st = FA2_OK;
    int64_t problem_id = 0;
    if (g == NULL)
        return FA2_OK; /* unserved: noted when the groups were made */
    FA2_TRY(rank_candidates(w, g, problem, &best, &winner.model_us));
    if (best == NULL) {
        w->result.without++;
        return FA2_OK;
    }
    winner.kernel = best->key;
    FA2_TRY(fa2i_cache_problem(w->build->cache, problem, &problem_id));
    st = fa2i_cache_put_winner(w->build->cache, w->session, w->device, problem_id, &winner);
    if (st == FA2_E_NOT_FOUND) {
        fa2i_note(&w->progress, "forgotten meanwhile, and wins nothing: %s", best->variant.text);
        return FA2_OK;
    }
    if (st != FA2_OK)
        goto done;
    fa2i_built *built = &w->result.winners[w->result.winner_count++];
    built->problem = *problem;
    built->registers = best->registers;
    built->spill_bytes = best->spill_bytes;
    built->model_us = winner.model_us;
    memcpy(built->variant, best->variant.text, sizeof built->variant);
done:
    return st;
}

static fa2_status store_winners(work *w)
{
    const fa2i_shapes *shapes = w->build->shapes;
    fa2_status st = FA2I_NEW(w->result.winners, shapes->count);
    for (size_t i = 0; st == FA2_OK && i < shapes->count; i++)
        st = store_winner(w, &shapes->items[i]);
    return st;
}

static fa2_status find_target(work *w)
{
    const fa2_status st = fa2i_target_for(w->result.card.arch, false, &w->target);
    memcpy(w->result.target, w->target.name, sizeof w->result.target);
    return st;
}

/* Without NVRTC, takes the compiler of the last build, so that its keys find what is built already. Returns
 * FA2_E_NO_NVRTC if nothing is built. */
static fa2_status find_target_without(work *w)
{
    char name[sizeof w->target.name];
    int nvrtc = 0;
    fa2_status st = find_target(w);
    if (st != FA2_E_NO_NVRTC)
        return st;
    st = fa2i_cache_device(w->build->cache, &w->result.card, false, &w->device);
    if (st == FA2_OK)
        st = fa2i_cache_get_compiler(w->build->cache, w->device, &nvrtc, name);
    if (st != FA2_OK)
        return find_target(w); /* its message says what is missing */
    fa2i_target_of(name, nvrtc, &w->target);
    memcpy(w->result.target, w->target.name, sizeof w->result.target);
    return FA2_OK;
}

static fa2_status begin_session(work *w)
{
    fa2i_cache *cache = w->build->cache;
    fa2i_session session = {.origin = "build", .modelled = true};
    fa2_status st = FA2_OK;
    session.nvrtc = w->target.nvrtc;
    FA2_TRY(fa2i_cache_device(cache, &w->result.card, false, &w->device));
    session.device = w->device;
    snprintf(session.generator, sizeof session.generator, "%s", fa2i_generator_id(w->build->generator));
    FA2_TRY(fa2i_cache_session_begin(cache, &session, &w->session));
done:
    return st;
}

fa2_status fa2i_build_arch(const fa2i_build *build, const fa2i_card *card, fa2i_build_result *ret_result)
{
    const double started = fa2i_now_s();
    work w = {.build = build, .result = {.card = *card}};
    fa2_status st = FA2_OK;
    FA2_TRY(find_target(&w));
    FA2_TRY(begin_session(&w));
    FA2_TRY(make_groups(&w));
    FA2_TRY(compile_rounds(&w));
    if (!stopped(&w))
        FA2_TRY(store_winners(&w));
    FA2_TRY(fa2i_cache_session_end(build->cache, w.session));
    w.result.seconds = fa2i_now_s() - started;
    *ret_result = w.result;
    w.result = (fa2i_build_result){0}; /* the caller owns it now */
done:
    work_done(&w);
    return st;
}

fa2_status fa2i_build_predict(const fa2i_build *build, const fa2i_card *card, fa2i_build_result *ret_result,
                              size_t *ret_threads)
{
    work w = {.build = build, .result = {.card = *card}};
    fa2_status st = FA2_OK;
    const fa2i_nvrtc_table *nvrtc = NULL;
    FA2_TRY(find_target_without(&w));
    FA2_TRY(make_groups(&w));
    FA2_TRY(plan_round(&w));
    if (w.job_count > 0)
        FA2_TRY(fa2i_nvrtc_get(&nvrtc)); /* without NVRTC the run would fail at once */
    *ret_threads = fa2i_compile_threads(build->jobs, w.job_count);
    w.result.compiled = w.job_count;
    for (size_t i = 0; i < w.job_count; i++)
        w.result.seconds += fa2i_compile_about_s(w.jobs[i].variant.recipe.op) / (double)*ret_threads;
    *ret_result = w.result;
done:
    work_done(&w);
    return st;
}
