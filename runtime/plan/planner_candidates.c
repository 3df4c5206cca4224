/*
 * - What the generator learned about an operation comes from one reading of the database, and serves all classes.
 * - With fa2_config.arch the database's kernels are not considered, because they were made for the device's own SM.
 *   Shipped files, which stand in for a database, are not considered either.
 */
#include "runtime/plan/planner_candidates.h"

#include <string.h>
#include "cache/shipped/shipped.h"
#include "runtime/ops/op.h"
#include "runtime/ops/steps.h"
#include "runtime/plan/share.h"

fa2_status fa2i_planner_generator(fa2i_planner *planner)
{
    return planner->generator != NULL ? FA2_OK : fa2i_generator_create(&planner->generator);
}

fa2i_card fa2i_planner_card(const fa2i_planner *planner)
{
    fa2i_card card = planner->device->card;
    if (planner->arch != 0) {
        card.generic = card.generic || card.arch != planner->arch;
        card.arch = planner->arch;
    }
    return card;
}

/* Reads the shipped files about an operation, once, when an estimate is first needed. Faults in them are logged with
 * the first operation. */
static fa2_status read_shipped(fa2i_planner *planner, fa2_op op)
{
    fa2i_calibration *calibration = &planner->calibrations[op];
    if (calibration->knows_shipped || planner->arch != 0)
        return FA2_OK;
    const fa2_status st =
        fa2i_share_read(planner->share, &planner->device->card, op, planner->told_share ? NULL : fa2i_planner_hear,
                        planner, &calibration->shipped);
    calibration->knows_shipped = planner->told_share = st == FA2_OK;
    if (st != FA2_OK)
        fa2i_evidence_done(&calibration->shipped); /* drops files read before the failure: all are read again */
    return st;
}

static bool is_same_evidence(const fa2i_evidence *a, const fa2i_evidence *b)
{
    return a->kernel_count == b->kernel_count && a->set_count == b->set_count && a->time_count == b->time_count &&
           (a->kernel_count == 0 || memcmp(a->kernels, b->kernels, a->kernel_count * sizeof *a->kernels) == 0) &&
           (a->set_count == 0 || memcmp(a->sets, b->sets, a->set_count * sizeof *a->sets) == 0) &&
           (a->time_count == 0 || memcmp(a->times, b->times, a->time_count * sizeof *a->times) == 0);
}

static bool has_times(const fa2i_planner *planner)
{
    return planner->cache != NULL || planner->share != NULL || planner->layers.count > 0;
}

/* Updates the generator's evidence to the version that the class's winners have. An unreadable database is logged and
 * is no error. Earlier evidence stays; if there was none, only the shipped times count. */
static fa2_status calibrate(fa2i_planner *planner, fa2i_class *of, const fa2_problem *problem)
{
    const fa2i_card *card = &planner->device->card;
    fa2i_calibration *calibration = &planner->calibrations[problem->op];
    fa2i_evidence evidence = {0};
    fa2_status st = FA2_OK;
    if (planner->arch != 0 || (!has_times(planner) && !calibration->is_calibrated) ||
        (calibration->is_calibrated && !calibration->is_partial && calibration->version == of->winners.version))
        return FA2_OK;
    FA2_TRY(read_shipped(planner, problem->op));
    if (planner->cache != NULL)
        st = fa2i_cache_evidence(planner->cache, card, problem->op, fa2i_op_of(problem)->abi, &evidence);
    if (st == FA2_E_MEMORY)
        goto done;
    const bool unread = st != FA2_OK;
    if (unread)
        fa2i_planner_unreadable(planner, of);
    st = FA2_OK;
    if (unread && calibration->is_calibrated)
        goto done;
    FA2_TRY(fa2i_layers_add_evidence(planner->cache, &planner->layers, card, problem->op, fa2i_op_of(problem)->abi,
                                     &evidence));
    FA2_TRY(fa2i_shipped_merge(&calibration->shipped, card, &evidence));
    /* The evidence often stays the same: other processes wrote only notes, or kernels of other operations. */
    if (!calibration->is_calibrated || !is_same_evidence(&evidence, &calibration->evidence)) {
        FA2_TRY(fa2i_generator_learn(planner->generator, problem->op, &evidence, card));
        fa2i_evidence_done(&calibration->evidence);
        calibration->evidence = evidence;
        evidence = (fa2i_evidence){0}; /* ownership has moved to the planner */
    }
    calibration->is_calibrated = true;
    calibration->is_partial = unread;
    calibration->version = of->winners.version;
done:
    fa2i_evidence_done(&evidence);
    return st;
}

fa2_status fa2i_planner_learn(fa2i_planner *planner, fa2i_class *of, const fa2_problem *problem)
{
    const fa2_status st = fa2i_planner_generator(planner);
    return st == FA2_OK ? calibrate(planner, of, problem) : st;
}

fa2_status fa2i_planner_rank(fa2i_planner *planner, fa2i_class *of, const fa2_problem *problem,
                             fa2i_option **ret_options, size_t *ret_count)
{
    fa2_status st = FA2_OK;
    const fa2i_card card = fa2i_planner_card(planner);
    FA2_TRY(fa2i_planner_learn(planner, of, problem));
    FA2_TRY(fa2i_generator_rank(planner->generator, problem, &card, ret_options, ret_count));
done:
    return st;
}

fa2_problem fa2i_planner_asked(const fa2i_planner *planner, const fa2i_plan *plan)
{
    return plan->unrounded ? plan->problem : fa2i_problem_asked(&plan->problem, planner->device->card.sm_count);
}

fa2_status fa2i_planner_options(fa2i_planner *planner, const fa2i_plan *plan, fa2i_option **ret_options,
                                size_t *ret_count)
{
    const fa2_problem asked = fa2i_planner_asked(planner, plan);
    fa2i_class *of = fa2i_planner_class(planner, &asked);
    return of == NULL ? FA2_E_MEMORY : fa2i_planner_rank(planner, of, &asked, ret_options, ret_count);
}
