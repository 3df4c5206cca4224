/*
 * --dry-run: what a tuning would do. A kernel that several problems want is counted for the first of them.
 */
#include "runtime/ops/op.h"
#include "tuner/search/compile_all.h"
#include "tuner/search/tune.h"

/* Seconds for a kernel's verification, and for a problem's plan and measurements. They come from ten tunings on an H200
 * with 16 threads, with 4 to 52 problems and 23 to 423 kernels to compile. These took 22 to 56 s, which is 0.6 to 1.3
 * of the estimate by these numbers and fa2i_compile_about_s. Other machines were not tried. */
#define VERIFY_S  0.012
#define MEASURE_S 0.26

/* Adds the work for a kernel to *work, and the time that it takes to *seconds. */
static fa2_status add_kernel(fa2i_tune *tune, fa2i_tune_kernel *k, fa2i_tune_work *work, double *seconds)
{
    fa2i_kernel kernel = {0};
    fa2i_verification verdict;
    bool found = false;
    if (k->staged || k->refuted)
        return FA2_OK;
    k->staged = true;
    fa2_status st = fa2i_tune_find_stored(tune->cache, k, &kernel, &found);
    if (st != FA2_OK)
        return st;
    const bool runs = !found || kernel.outcome == FA2I_OUTCOME_OK;
    fa2i_kernel_done(&kernel);
    work->compile += !found;
    if (!found)
        *seconds += fa2i_compile_about_s(k->kernel.variant.recipe.op) / tune->request->threads;
    st = fa2i_cache_get_verification(tune->cache, tune->device, &k->kernel.key, &verdict);
    if (runs && st == FA2_E_NOT_FOUND) {
        work->verify++;
        *seconds += VERIFY_S;
    }
    return st == FA2_E_NOT_FOUND ? FA2_OK : st;
}

static fa2_status add_problem(fa2i_tune *tune, fa2i_tune_problem *p, fa2i_tune_work *work)
{
    fa2_status st = FA2_OK;
    p->about_s = 0;
    if (p->lost)
        st = add_kernel(tune, &tune->found.kernels[p->winner_place], work, &p->about_s);
    for (size_t i = 0; st == FA2_OK && p->state == FA2I_PROBLEM_OPEN && i < p->count; i++)
        if (!p->predictions[i].hopeless)
            st = add_kernel(tune, &tune->found.kernels[p->candidates[i]], work, &p->about_s);
    if (p->state == FA2I_PROBLEM_OPEN)
        p->about_s += MEASURE_S;
    return st;
}

fa2_status fa2i_tune_estimate(fa2i_tune *tune, fa2i_tune_work *ret_work)
{
    fa2i_tune_work work = {0};
    const double budget_s = tune->budget->seconds;
    for (int lost = 1; lost >= 0; lost--) /* lost code is compiled first */
        for (size_t i = 0; i < tune->found.problem_count; i++) {
            fa2i_tune_problem *p = &tune->found.problems[i];
            if (p->lost != (lost == 1))
                continue;
            const fa2_status st = add_problem(tune, p, &work);
            if (st != FA2_OK)
                return st;
            work.seconds += p->about_s;
            p->fits = budget_s <= 0 || work.seconds <= budget_s;
            work.measure += p->state == FA2I_PROBLEM_OPEN;
            work.fit += p->state == FA2I_PROBLEM_OPEN && p->fits;
        }
    *ret_work = work;
    return FA2_OK;
}
