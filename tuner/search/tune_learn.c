/*
 * Estimates before a problem is measured, and what its measurements teach. The estimates are the runtime's own
 * (gen/core/estimate.lua), in this process's generator. They use the database as it was at the start, and everything
 * that this process measured since. They do not use what other processes measure meanwhile.
 */
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/ops/op.h"
#include "tuner/search/tune.h"

static fa2_status learn_stored(const fa2i_tune *tune, const fa2_problem *problem)
{
    const fa2_op op = (fa2_op)problem->op;
    fa2i_evidence evidence = {0};
    fa2_status st = fa2i_cache_evidence(tune->cache, &tune->gpu->card, op, fa2i_op_of(problem)->abi, &evidence);
    if (st == FA2_OK)
        st = fa2i_generator_learn(tune->generator, op, &evidence, &tune->gpu->card);
    fa2i_evidence_done(&evidence);
    return st;
}

fa2_status fa2i_tune_learn_stored(const fa2i_tune *tune)
{
    bool learned[FA2I_OPS] = {false};
    for (size_t i = 0; i < tune->found.problem_count; i++) {
        const fa2i_tune_problem *p = &tune->found.problems[i];
        if (p->state != FA2I_PROBLEM_OPEN || learned[p->problem.op])
            continue;
        const fa2_status st = learn_stored(tune, &p->problem);
        if (st != FA2_OK)
            return st;
        learned[p->problem.op] = true;
    }
    return FA2_OK;
}

bool fa2i_tune_is_winner(const fa2i_tune *tune, const fa2i_tune_problem *problem, size_t kernel)
{
    return problem->winner.measured != tune->gpu->modelled &&
           memcmp(&problem->winner.kernel, &tune->found.kernels[kernel].kernel.key, sizeof(fa2i_key)) == 0;
}

fa2_status fa2i_tune_judge(const fa2i_tune *tune, fa2i_tune_problem *problem)
{
    fa2_status st = FA2_OK;
    const size_t count = problem->count;
    const char **texts = NULL;
    fa2i_judgement *judgements = NULL;
    FA2_TRY(FA2I_NEW(texts, count));
    FA2_TRY(FA2I_NEW(judgements, count));
    for (size_t i = 0; i < count; i++)
        texts[i] = tune->found.kernels[problem->candidates[i]].kernel.variant.text;
    FA2_TRY(fa2i_generator_judge(tune->generator, &problem->problem, &tune->gpu->card, texts, count, judgements));
    for (size_t i = 0; i < count; i++) /* a refuted kernel must not count as fast */
        problem->predictions[i].judgement =
            tune->found.kernels[problem->candidates[i]].refuted ? (fa2i_judgement){0} : judgements[i];
    fa2i_predictions_sort_out(problem->predictions, count);
    const bool all = tune->request->force || tune->request->all || problem->all_wanted;
    for (size_t i = 0; i < count; i++) {
        fa2i_prediction *prediction = &problem->predictions[i];
        if (all || i == 0 || fa2i_tune_is_winner(tune, problem, problem->candidates[i]))
            prediction->hopeless = false;
    }
    problem->calls_us = problem->calls * fa2i_predictions_us(problem->predictions, count);
    problem->worth_us = problem->calls_us * fa2i_predictions_gain(problem->predictions, count);
done:
    fa2i_free(texts);
    fa2i_free(judgements);
    return st;
}

fa2_status fa2i_tune_learn(const fa2i_tune *tune, const fa2_problem *problem, const size_t *kernels, const double *us,
                           size_t count)
{
    fa2_status st = FA2_OK;
    fa2i_known_set set = {.problem = *problem, .card = tune->gpu->card, .real = true, .measured = !tune->gpu->modelled};
    fa2i_evidence evidence = {.sets = &set, .set_count = 1};
    FA2_TRY(FA2I_NEW(evidence.kernels, count));
    FA2_TRY(FA2I_NEW(evidence.times, count));
    for (size_t i = 0; i < count; i++) {
        const fa2i_kernel *from = &tune->found.kernels[kernels[i]].kernel;
        fa2i_known_kernel *to = &evidence.kernels[i];
        *to = (fa2i_known_kernel){.key = from->key,
                                  .registers = from->registers,
                                  .spilled = from->outcome == FA2I_OUTCOME_SPILLED,
                                  .has_code = true};
        memcpy(to->text, from->variant.text, sizeof to->text);
        memcpy(to->class_key, from->variant.class_key, sizeof to->class_key);
        evidence.times[i] = (fa2i_known_time){.kernel = i, .us = us[i]};
    }
    evidence.kernel_count = evidence.time_count = set.count = count;
    st = fa2i_generator_learn_more(tune->generator, (fa2_op)problem->op, &evidence, &tune->gpu->card);
done:
    fa2i_free(evidence.kernels);
    fa2i_free(evidence.times);
    return st;
}
