/*
 * The order of a tuning: lost code first, then stage by stage compiling, verifying and timing.
 */
#include "tuner/search/tune.h"

#include <stdio.h>

static fa2_status run_phase(fa2i_tune *tune, fa2i_phase phase, fa2_status (*run)(fa2i_tune *tune))
{
    if (fa2i_budget_is_stopped(tune->budget) || (phase != FA2I_PHASE_PLAN && fa2i_budget_is_spent(tune->budget)))
        return FA2_OK;
    const double started_s = fa2i_now_s();
    const fa2_status st = run(tune);
    tune->found.phase_s[phase] += fa2i_now_s() - started_s;
    return st;
}

fa2_status fa2i_tune_prepare(fa2i_tune *tune)
{
    return run_phase(tune, FA2I_PHASE_PLAN, fa2i_tune_plan);
}

static fa2_status begin_session(fa2i_tune *tune)
{
    fa2i_session session = {.device = tune->device,
                            .driver = tune->gpu->driver,
                            .nvrtc = tune->target.nvrtc,
                            .origin = "tune",
                            .modelled = tune->gpu->modelled};
    snprintf(session.generator, sizeof session.generator, "%s", fa2i_generator_id(tune->generator));
    return fa2i_cache_session_begin(tune->cache, &session, &tune->session);
}

/* Waits for the device, and looks up what others did meanwhile. */
static fa2_status begin_turn(fa2i_tune *tune)
{
    fa2_status st = FA2_OK;
    fa2i_tune_begin_turn(tune);
    for (size_t i = 0; i < tune->found.problem_count && st == FA2_OK; i++)
        st = fa2i_tune_look_again(tune, &tune->found.problems[i]);
    return st;
}

static fa2_status run_stages(fa2i_tune *tune)
{
    fa2_status st = FA2_OK;
    bool any = true;
    for (bool first = true; !fa2i_budget_is_spent(tune->budget); first = false) {
        const double started_s = fa2i_now_s();
        FA2_TRY(fa2i_tune_next_stage(tune, &any));
        tune->found.phase_s[FA2I_PHASE_PLAN] += fa2i_now_s() - started_s;
        if (!any)
            break;
        FA2_TRY(run_phase(tune, FA2I_PHASE_COMPILE, fa2i_tune_compile));
        if (first)
            FA2_TRY(begin_turn(tune));
        FA2_TRY(run_phase(tune, FA2I_PHASE_VERIFY, fa2i_tune_verify));
        FA2_TRY(run_phase(tune, FA2I_PHASE_TIME, fa2i_tune_time));
    }
    FA2_TRY(run_phase(tune, FA2I_PHASE_TIME, fa2i_tune_time_rest));
done:
    return st;
}

fa2_status fa2i_tune_run(fa2i_tune *tune)
{
    fa2_status st = FA2_OK;
    FA2_TRY(run_phase(tune, FA2I_PHASE_COMPILE, fa2i_tune_mend));
    if (fa2i_findings_count(&tune->found, FA2I_PROBLEM_OPEN) == 0)
        goto done;
    FA2_TRY(begin_session(tune));
    FA2_TRY(run_stages(tune));
    FA2_TRY(fa2i_cache_session_end(tune->cache, tune->session));
done:
    return st;
}

void fa2i_tune_done(fa2i_tune *tune)
{
    fa2i_worker_destroy(tune->worker);
    fa2i_turn_give_back(&tune->launches);
    fa2i_turn_give_back(&tune->turn);
    fa2i_findings_done(&tune->found);
    fa2i_generator_destroy(tune->generator);
    fa2i_cache_close(tune->cache);
}
