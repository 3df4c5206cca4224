/*
 * A tuning goes in stages, so that the first problems' measurements save work on later ones. A stage takes the next
 * open problems, compiles and verifies the kernels that they want, and measures them.
 *
 * - With a budget, or if calls are known, problems come in the order of what tuning them is expected to save. Each
 *   stage sorts them anew. Problems with nothing to save are sorted by the time of all their calls. Otherwise problems
 *   come as they were given, and all of a class together.
 * - A stage compiles enough kernels to keep all threads busy most of the time.
 */
#include <stdlib.h>
#include "tuner/search/tune.h"

enum { KERNELS_PER_THREAD = 4 };

static int larger_first(double a, double b)
{
    return a > b ? -1 : a < b;
}

static double worth(const fa2i_tune_problem *problem)
{
    return problem->worth_us < FA2I_TUNE_WORTH_US ? 0 : problem->worth_us;
}

static int by_worth(const void *left, const void *right)
{
    const fa2i_tune_problem *a = left, *b = right;
    const int of_worth = larger_first(worth(a), worth(b));
    const int of_calls = larger_first(a->calls_us, b->calls_us);
    if (of_worth != 0 || of_calls != 0)
        return of_worth != 0 ? of_worth : of_calls;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

bool fa2i_tune_is_ordered(const fa2i_tune_request *request, const fa2i_budget *budget)
{
    bool ordered = budget->seconds > 0;
    for (size_t i = 0; i < request->shapes->count; i++)
        ordered = ordered || request->shapes->calls[i] > 0;
    return ordered;
}

static bool is_waiting(const fa2i_tune_problem *problem)
{
    return problem->state == FA2I_PROBLEM_OPEN && !problem->staged;
}

fa2_status fa2i_tune_order(fa2i_tune *tune)
{
    for (size_t i = 0; i < tune->found.problem_count; i++) {
        fa2i_tune_problem *p = &tune->found.problems[i];
        const fa2_status st = is_waiting(p) ? fa2i_tune_judge(tune, p) : FA2_OK;
        if (st != FA2_OK)
            return st;
    }
    if (fa2i_tune_is_ordered(tune->request, tune->budget))
        qsort(tune->found.problems, tune->found.problem_count, sizeof *tune->found.problems, by_worth);
    return FA2_OK;
}

/* There is nothing left to find out about a refuted kernel. */
static void take_refuted(fa2i_tune *tune, fa2i_tune_kernel *k)
{
    k->known = k->verified = true;
    tune->found.outcomes[k->verification.outcome]++;
    fa2i_note(&tune->progress, "%s: %s: %s", fa2i_outcome_string(k->verification.outcome), k->kernel.variant.text,
              k->verification.detail);
}

/* Takes a problem into the stage. Returns how many kernels come with it that are not known yet. */
static size_t take(fa2i_tune *tune, fa2i_tune_problem *problem)
{
    size_t unknown = 0;
    problem->staged = true;
    for (size_t i = 0; i < problem->count; i++) {
        fa2i_tune_kernel *k = &tune->found.kernels[problem->candidates[i]];
        if (problem->predictions[i].hopeless || k->staged)
            continue;
        k->staged = true;
        if (k->refuted)
            take_refuted(tune, k);
        unknown += !k->known;
    }
    return unknown;
}

static bool is_of_stage(const fa2i_findings *found, size_t before)
{
    for (size_t i = 0; i < before; i++)
        if (found->problems[i].state == FA2I_PROBLEM_OPEN && found->problems[i].staged &&
            fa2i_problem_same_class(&found->problems[i].problem, &found->problems[before].problem))
            return true;
    return false;
}

fa2_status fa2i_tune_next_stage(fa2i_tune *tune, bool *ret_any)
{
    const fa2_status st = fa2i_tune_order(tune);
    const size_t enough = KERNELS_PER_THREAD * (size_t)tune->request->threads;
    const bool whole_classes = !fa2i_tune_is_ordered(tune->request, tune->budget);
    size_t unknown = 0;
    *ret_any = false;
    for (size_t i = 0; st == FA2_OK && i < tune->found.problem_count; i++) {
        fa2i_tune_problem *p = &tune->found.problems[i];
        if (!is_waiting(p) || (unknown >= enough && !(whole_classes && is_of_stage(&tune->found, i))))
            continue;
        unknown += take(tune, p);
        *ret_any = true;
    }
    return st;
}
