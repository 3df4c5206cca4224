#include "tuner/search/findings.h"

#include <string.h>
#include "runtime/base/alloc.h"

void fa2i_findings_done(fa2i_findings *found)
{
    for (size_t i = 0; i < found->kernel_count; i++)
        fa2i_kernel_done(&found->kernels[i].kernel);
    for (size_t i = 0; i < found->problem_count; i++) {
        fa2i_free(found->problems[i].candidates);
        fa2i_free(found->problems[i].predictions);
    }
    fa2i_free(found->kernels);
    fa2i_text_index_done(&found->places);
    fa2i_free(found->refutations);
    fa2i_free(found->problems);
    *found = (fa2i_findings){0};
}

static fa2_status add_kernel(fa2i_findings *found, const fa2i_variant *variant, const fa2i_key *key, size_t *ret_index)
{
    const fa2_status st = FA2I_GROW(found->kernels, found->kernel_count + 1, found->kernel_capacity);
    if (st != FA2_OK)
        return st;
    found->kernels[found->kernel_count] = (fa2i_tune_kernel){.kernel.variant = *variant, .kernel.key = *key};
    *ret_index = found->kernel_count++;
    return FA2_OK;
}

static const char *kernel_text(const void *of, size_t place)
{
    return ((const fa2i_findings *)of)->kernels[place].kernel.variant.text;
}

fa2_status fa2i_findings_add(fa2i_findings *found, const fa2i_variant *variant, const fa2i_key *key, size_t *ret_index)
{
    const ptrdiff_t place = fa2i_text_index_find(&found->places, found, variant->text);
    if (place != FA2I_NO_PLACE) {
        *ret_index = (size_t)place;
        return FA2_OK;
    }
    found->places.text_at = kernel_text;
    const fa2_status st = add_kernel(found, variant, key, ret_index);
    return st == FA2_OK ? fa2i_text_index_add(&found->places, found, *ret_index) : st;
}

size_t fa2i_findings_count(const fa2i_findings *found, fa2i_problem_state state)
{
    size_t count = 0;
    for (size_t i = 0; i < found->problem_count; i++)
        count += found->problems[i].state == state;
    return count;
}

size_t fa2i_findings_count_lost(const fa2i_findings *found)
{
    size_t count = 0;
    for (size_t i = 0; i < found->problem_count; i++)
        count += found->problems[i].lost;
    return count;
}

void fa2i_findings_mark_needed(fa2i_findings *found)
{
    for (size_t i = 0; i < found->kernel_count; i++)
        found->kernels[i].needed = false;
    for (size_t i = 0; i < found->problem_count; i++) {
        const fa2i_tune_problem *p = &found->problems[i];
        for (size_t j = 0; p->state == FA2I_PROBLEM_OPEN && j < p->count; j++)
            if (!p->predictions[j].hopeless && !found->kernels[p->candidates[j]].refuted)
                found->kernels[p->candidates[j]].needed = true;
        if (p->lost)
            found->kernels[p->winner_place].needed = true;
    }
}

const fa2i_refutation *fa2i_findings_refutation(const fa2i_findings *found, const fa2i_key *key)
{
    for (size_t i = 0; i < found->refutation_count; i++)
        if (memcmp(&found->refutations[i].kernel, key, sizeof *key) == 0)
            return &found->refutations[i];
    return NULL;
}

bool fa2i_findings_usable(const fa2i_findings *found, const fa2i_tune_problem *problem, size_t kernel)
{
    const fa2i_tune_kernel *k = &found->kernels[kernel];
    bool all_spill = true;
    for (size_t i = 0; i < problem->count && all_spill; i++) {
        const fa2i_tune_kernel *other = &found->kernels[problem->candidates[i]];
        all_spill = other->refuted || other->kernel.outcome != FA2I_OUTCOME_OK;
    }
    bool runs = k->kernel.outcome == FA2I_OUTCOME_OK || (all_spill && k->kernel.outcome == FA2I_OUTCOME_SPILLED);
    return k->known && runs && (!k->verified || k->verification.outcome == FA2I_OUTCOME_OK);
}
