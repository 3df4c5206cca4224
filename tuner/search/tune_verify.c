/*
 * Verification on the device. For each class of problems, it runs case by case every kernel of the class that has no
 * verdict yet. The loop over cases is the outer one, because the tensors and the reference of a case are expensive and
 * a launch is cheap.
 *
 * A kernel that fails is out, and its verdict is stored at once. The kernels that pass are stored when the last case is
 * done. A kernel that may only be slow leaves this run without a verdict, and a later run tries it again.
 */
#include <stdio.h>
#include "runtime/base/alloc.h"
#include "tuner/search/tune.h"

/* The kernels of one class that are still to be verified. */
typedef struct group {
    const fa2_problem *problem; /* one of its problems */
    size_t first;               /* index of that problem */
    size_t *kernels;
    size_t count;
    bool done;
} group;

/* Moves a kernel that failed its verification from the count of its compile outcome to the count of the verdict. */
static void take_verdict(fa2i_findings *found, fa2i_tune_kernel *k)
{
    k->verified = true;
    if (k->verification.outcome == FA2I_OUTCOME_OK)
        return;
    found->outcomes[k->kernel.outcome]--;
    found->outcomes[k->verification.outcome]++;
}

static fa2_status store_verdict(fa2i_tune *tune, size_t index, const fa2i_verification *verdict)
{
    fa2i_tune_kernel *k = &tune->found.kernels[index];
    k->verification = *verdict;
    take_verdict(&tune->found, k);
    tune->found.verified++;
    if (verdict->outcome != FA2I_OUTCOME_OK)
        fa2i_note(&tune->progress, "%s: %s: %s%s", fa2i_outcome_string(verdict->outcome), k->kernel.variant.text,
                  verdict->detail, k->unsettled ? "; it may only be slow, so that is not stored" : "");
    return k->unsettled ? FA2_OK : fa2i_tune_put_verdict(tune, k, verdict);
}

/* Runs one kernel on the present case. *ret_blame: the cause of a bad verdict. */
static fa2_status verify_kernel(fa2i_tune *tune, const fa2i_expected *expected, const char *name, size_t index,
                                void *output, fa2i_verification *ret_verdict, fa2i_blame *ret_blame)
{
    fa2i_failure failure = {0};
    uint32_t overwritten = 0;
    fa2_status st = fa2i_worker_check(tune->worker, (uint32_t)index, NULL, 0, output, expected->output_bytes,
                                      &overwritten, &failure);
    if (st != FA2_OK)
        return st;
    *ret_blame = FA2I_BLAME_KERNEL;
    if (failure.outcome == FA2I_OUTCOME_OK) {
        fa2i_expected_judge(expected, name, output, overwritten, ret_verdict);
        return FA2_OK;
    }
    *ret_blame = failure.blame;
    *ret_verdict = (fa2i_verification){.outcome = failure.outcome};
    snprintf(ret_verdict->detail, sizeof ret_verdict->detail, "%s: %.200s", name, failure.detail);
    return FA2_OK;
}

static bool is_for(const fa2i_verify_case *c, const fa2i_findings *found, size_t kernel)
{
    return !c->divided || found->kernels[kernel].kernel.variant.recipe.waves > 0;
}

/* Runs all kernels of the group on the present case. A kernel that fails leaves the group, and so the cases that are
 * left. If the driver refuses a kernel's image before it has accepted any, the kernel stays, and the next case decides.
 * If the driver refuses all images, the driver itself is to blame. */
static fa2_status verify_all(fa2i_tune *tune, group *g, const fa2i_verify_case *c, const fa2i_expected *expected,
                             size_t left, void *output, fa2i_verification *worst)
{
    fa2i_verification refused = {0};
    size_t kept = 0, tried = 0, refusals = 0;
    for (size_t i = 0; i < g->count; i++) {
        size_t index = g->kernels[i];
        fa2i_verification verdict = {0};
        fa2i_blame blame = FA2I_BLAME_KERNEL;
        if (fa2i_budget_is_spent(tune->budget))
            return FA2_OK;
        if (!is_for(c, &tune->found, index)) {
            fa2i_progress_drop(&tune->progress, 1);
            g->kernels[kept++] = index;
            continue;
        }
        tried++;
        fa2_status st = verify_kernel(tune, expected, c->name, index, output, &verdict, &blame);
        if (st != FA2_OK || blame == FA2I_BLAME_STOP)
            return st;
        fa2i_progress_step(&tune->progress, tune->found.kernels[index].kernel.variant.text);
        tune->found.kernels[index].unsettled = blame == FA2I_BLAME_SLOW;
        if (verdict.outcome != FA2I_OUTCOME_OK && blame != FA2I_BLAME_IMAGE) {
            fa2i_progress_drop(&tune->progress, left);
            st = store_verdict(tune, index, &verdict);
            if (st != FA2_OK)
                return st;
            continue;
        }
        g->kernels[kept++] = index;
        if (blame == FA2I_BLAME_IMAGE) {
            refused = verdict;
            refusals++;
        } else if (verdict.max_error >= worst[index].max_error) {
            worst[index] = verdict;
        }
    }
    if (refusals > 0 && refusals == tried)
        return fa2i_worker_misfit(refused.detail);
    g->count = kept;
    return FA2_OK;
}

/* Runs one case for the kernels of the group to which it applies. left: the number of cases after it. worst: per kernel
 * of tune. */
static fa2_status verify_case(fa2i_tune *tune, group *g, const fa2i_verify_case *c, size_t left,
                              fa2i_verification *worst)
{
    fa2_status st = FA2_OK;
    fa2i_expected expected = {0};
    void *output = NULL;
    bool wanted = false;
    for (size_t i = 0; i < g->count; i++)
        wanted = wanted || is_for(c, &tune->found, g->kernels[i]);
    if (!wanted) {
        fa2i_progress_drop(&tune->progress, g->count);
        return FA2_OK;
    }
    FA2_TRY(fa2i_worker_case(tune->worker, &c->c));
    FA2_TRY(fa2i_expected_all(&c->c, tune->request->threads, &expected));
    FA2_TRY(fa2i_new(&output, expected.output_bytes, 1));
    FA2_TRY(verify_all(tune, g, c, &expected, left, output, worst));
done:
    fa2i_free(output);
    fa2i_expected_done(&expected);
    return st;
}

static fa2_status verify_cases(fa2i_tune *tune, group *g)
{
    fa2_status st = FA2_OK;
    fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX];
    size_t count = fa2i_judge_of(g->problem->op)->cases(g->problem, tune->gpu->card.sm_count, cases);
    fa2i_verification *worst = NULL;
    FA2_TRY(FA2I_NEW(worst, tune->found.kernel_count));
    for (size_t i = 0; i < count && g->count > 0 && !fa2i_budget_is_spent(tune->budget); i++)
        FA2_TRY(verify_case(tune, g, &cases[i], count - i - 1, worst));
    for (size_t i = 0; i < g->count && !fa2i_budget_is_spent(tune->budget); i++)
        FA2_TRY(store_verdict(tune, g->kernels[i], &worst[g->kernels[i]]));
done:
    fa2i_free(worst);
    return st;
}

/* *ret_wants: the kernel needs a verdict. Takes the verdict of an earlier run if one is stored. */
static fa2_status wants_verdict(fa2i_tune *tune, const fa2i_tune_problem *problem, size_t index, bool *ret_wants)
{
    fa2i_tune_kernel *k = &tune->found.kernels[index];
    *ret_wants = false;
    if (k->verified || !fa2i_findings_usable(&tune->found, problem, index))
        return FA2_OK;
    fa2_status st = fa2i_cache_get_verification(tune->cache, tune->device, &k->kernel.key, &k->verification);
    if (st == FA2_OK)
        take_verdict(&tune->found, k);
    *ret_wants = st == FA2_E_NOT_FOUND;
    return st == FA2_E_NOT_FOUND ? FA2_OK : st;
}

static bool contains(const group *g, size_t index)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->kernels[i] == index)
            return true;
    return false;
}

/* Lists the kernels to verify for all open problems of the class of problems[first]. */
static fa2_status make_group(fa2i_tune *tune, size_t first, group *g)
{
    g->problem = &tune->found.problems[first].problem;
    g->first = first;
    g->count = 0;
    for (size_t i = first; i < tune->found.problem_count; i++) {
        const fa2i_tune_problem *p = &tune->found.problems[i];
        if (p->state != FA2I_PROBLEM_OPEN || !fa2i_problem_same_class(&p->problem, g->problem))
            continue;
        for (size_t j = 0; j < p->count; j++) {
            bool wants = false;
            fa2_status st = wants_verdict(tune, p, p->candidates[j], &wants);
            if (st != FA2_OK)
                return st;
            if (wants && !contains(g, p->candidates[j]))
                g->kernels[g->count++] = p->candidates[j];
        }
    }
    return FA2_OK;
}

static bool first_of_class(const fa2i_findings *found, size_t index)
{
    const fa2i_tune_problem *p = &found->problems[index];
    for (size_t i = 0; i < index; i++)
        if (found->problems[i].state == FA2I_PROBLEM_OPEN &&
            fa2i_problem_same_class(&found->problems[i].problem, &p->problem))
            return false;
    return p->state == FA2I_PROBLEM_OPEN;
}

/* Verifies a group, except kernels that another tuner has verified meanwhile. *ret_others: another tuner is verifying
 * it, and wait is false. */
static fa2_status verify_group(fa2i_tune *tune, group *g, bool wait, bool *ret_others)
{
    fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX];
    const size_t count = fa2i_judge_of(g->problem->op)->cases(g->problem, tune->gpu->card.sm_count, cases);
    const size_t before = g->count;
    *ret_others = !fa2i_tune_claim(tune, "verify", g->problem, wait);
    if (*ret_others)
        return FA2_OK;
    fa2_status st = make_group(tune, g->first, g);
    if (before > g->count)
        fa2i_progress_drop(&tune->progress, (before - g->count) * count);
    if (st == FA2_OK && g->count > 0) {
        fa2i_tune_begin_launches(tune);
        st = verify_cases(tune, g);
        fa2i_tune_end_launches(tune);
    }
    fa2i_tune_unclaim(tune, "verify", g->problem);
    return st;
}

/* Groups that no other tuner is verifying come first, then the others. */
static fa2_status verify_groups(fa2i_tune *tune, group *groups, size_t count)
{
    fa2_status st = FA2_OK;
    for (int wait = 0; wait < 2; wait++)
        for (size_t i = 0; i < count && st == FA2_OK && !fa2i_budget_is_spent(tune->budget); i++) {
            bool others = false;
            if (!groups[i].done)
                st = verify_group(tune, &groups[i], wait != 0, &others);
            groups[i].done = !others;
        }
    return st;
}

fa2_status fa2i_tune_verify(fa2i_tune *tune)
{
    fa2_status st = FA2_OK;
    group *groups = NULL;
    fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX];
    size_t group_count = 0, total = 0; /* launches: each kernel on each case */
    FA2_TRY(FA2I_NEW(groups, tune->found.problem_count));
    for (size_t i = 0; i < tune->found.problem_count; i++) {
        if (!first_of_class(&tune->found, i))
            continue;
        group *g = &groups[group_count++];
        FA2_TRY(FA2I_NEW(g->kernels, tune->found.kernel_count));
        FA2_TRY(make_group(tune, i, g));
        total += g->count * fa2i_judge_of(g->problem->op)->cases(g->problem, tune->gpu->card.sm_count, cases);
    }
    if (total > 0) {
        FA2_TRY(fa2i_tune_worker(tune));
        fa2i_progress_begin(&tune->progress, "verifying", total);
        st = verify_groups(tune, groups, group_count);
        fa2i_progress_end(&tune->progress);
    }
done:
    for (size_t i = 0; i < group_count; i++)
        fa2i_free(groups[i].kernels);
    fa2i_free(groups);
    return st;
}
