/*
 * The planner makes the decision. This file adds the kernel's record and the runner-up. If the card is not here, and
 * there is no NVRTC here, it also decides as a machine with NVRTC would.
 */
#include "tuner/report/predict.h"

#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/shown.h"
#include "runtime/ops/op.h"
#include "runtime/plan/database.h"
#include "runtime/plan/planner_candidates.h"
#include "runtime/plan/planner_kernels.h"

void fa2i_predicted_done(fa2i_predicted *predicted)
{
    fa2i_free(predicted->options);
    fa2i_free(predicted->fates);
    fa2i_free(predicted->file);
    *predicted = (fa2i_predicted){0};
}

/* ---- the planner ---- */

/* An fa2i_log_fn. */
static void say(void *user, const char *message)
{
    (void)user;
    fa2i_shown_print(stderr, "fa2-tune: %s\n", message);
}

fa2_status fa2i_predictor_init(fa2i_predictor *f, fa2i_generator *generator, fa2i_cache *cache, const char *path,
                               const fa2i_card *card)
{
    fa2_status st = FA2_OK;
    const fa2i_cuda_table *cuda = NULL;
    bool software = false;
    *f = (fa2i_predictor){.generator = generator, .device.card = *card};
    f->planner = (fa2i_planner){.device = &f->device,
                                .log = say,
                                .cache = cache,
                                .read_only = true,
                                .predicts = true,
                                .generator = generator,
                                .kernels = {.device = &f->device}};
    if (path != NULL && (f->planner.database = fa2i_strdup(path)) == NULL)
        FA2_TRY(fa2i_fail(FA2_E_MEMORY, "no memory for the path of the database"));
    if (fa2i_cuda_get(&cuda) == FA2_OK)
        FA2_TRY(fa2i_cuda_is_software(cuda, &software));
    f->planner.as_ptx = software;
done:
    return st;
}

fa2_status fa2i_predictor_find_share(fa2i_predictor *f)
{
    return fa2i_planner_find_files(&f->planner);
}

void fa2i_predictor_be_here(fa2i_predictor *f)
{
    char target[16];
    f->here = true;
    snprintf(target, sizeof target, "sm_%d", f->device.card.arch);
    if (f->planner.as_ptx)
        fa2i_kernels_note_refused(&f->planner.kernels, target, 0, CUDA_ERROR_NO_BINARY_FOR_GPU);
}

void fa2i_predictor_done(fa2i_predictor *f)
{
    fa2i_generator_destroy(f->supposing);
    f->planner.generator = NULL; /* borrowed, as is the database */
    f->planner.cache = NULL;
    fa2i_planner_done(&f->planner);
    *f = (fa2i_predictor){0};
}

/* Reports kernels of another version: they are learned from, but never used. */
static fa2_status say_unknown(fa2i_predictor *f, fa2_op op)
{
    char text[128];
    fa2i_variant variant;
    size_t unknown = 0;
    const fa2i_evidence *shipped = &f->planner.calibrations[op].shipped;
    if (f->told_unknown[op])
        return FA2_OK;
    for (size_t i = 0; i < shipped->kernel_count; i++) {
        const fa2_status st = fa2i_generator_variant(f->generator, shipped->kernels[i].text, &variant);
        if (st != FA2_OK && st != FA2_E_NOT_FOUND)
            return st;
        unknown += st == FA2_E_NOT_FOUND;
    }
    snprintf(text, sizeof text,
             "%zu of the %zu kernels that come with fa2 are unknown to this version, and count for nothing", unknown,
             shipped->kernel_count);
    if (unknown > 0)
        say(NULL, text);
    f->told_unknown[op] = true;
    return FA2_OK;
}

/* ---- a problem ---- */

static void take_plan(const fa2i_plan *plan, fa2i_predicted *out)
{
    const fa2i_slot *slot = plan->ready.slot;
    out->decision = plan->decision;
    out->variant = slot->loaded.variant;
    out->compiled = plan->origin == FA2I_ORIGIN_STORED;
    out->lost = plan->origin == FA2I_ORIGIN_REMADE;
    out->refused = plan->origin == FA2I_ORIGIN_REFUSED;
    if (out->compiled)
        out->key = slot->key;
    out->registers = slot->loaded.registers;
    out->spill_bytes = slot->spill_bytes;
}

static fa2_status find_file(const fa2i_planner *planner, const fa2_problem *problem, fa2i_predicted *out)
{
    if (!out->compiled)
        return FA2_OK;
    const fa2_status st =
        fa2i_layers_find_code(planner->cache, &planner->layers, &out->key, fa2i_op_abi(problem), &out->file);
    return st == FA2_E_MEMORY ? st : FA2_OK;
}

/* Asks the planner. The result is a plan, or the call's failure. */
static fa2_status decide(fa2i_planner *planner, const fa2_problem *problem, fa2i_plan *ret_plan, fa2i_predicted *out)
{
    fa2_status st = FA2_OK;
    out->status = fa2i_planner_make(planner, problem, false, ret_plan);
    if (out->status == FA2_E_MEMORY || out->status == FA2_E_GENERATOR)
        return out->status;
    if (out->status != FA2_OK) {
        snprintf(out->message, sizeof out->message, "%s", fa2_last_message());
    } else {
        take_plan(ret_plan, out);
        FA2_TRY(find_file(planner, problem, out));
        st = fa2i_planner_find_runner_up(planner, ret_plan, &out->runner_up);
    }
done:
    return st;
}

/* Decides as a machine with NVRTC would, if a kernel cannot be had without. It uses another planner and another
 * generator, because what they find out and learn is true only there. */
static fa2_status suppose(fa2i_predictor *f, const fa2_problem *problem, fa2i_predicted *out)
{
    fa2_status st = FA2_OK;
    fa2i_plan plan;
    fa2i_predictor there = {0};
    fa2i_target *target = &there.planner.target;
    if (f->supposing == NULL)
        FA2_TRY(fa2i_generator_create(&f->supposing));
    FA2_TRY(fa2i_predictor_init(&there, f->supposing, f->planner.cache, f->planner.database, &f->device.card));
    there.planner.log = NULL; /* everything was logged already */
    if (f->planner.share != NULL)
        FA2_TRY(fa2i_predictor_find_share(&there));
    snprintf(target->name, sizeof target->name, "sm_%d", f->device.card.arch);
    FA2_TRY(decide(&there.planner, problem, &plan, out));
    out->supposed = out->status == FA2_OK;
done:
    fa2i_predictor_done(&there);
    return st;
}

static fa2_status see_kernel(fa2i_predictor *f, const fa2_problem *problem, fa2i_predicted *out)
{
    fa2_status st = FA2_OK;
    if (out->status == FA2_E_NO_NVRTC && !f->here)
        FA2_TRY(suppose(f, problem, out));
    if (out->status == FA2_OK)
        FA2_TRY(fa2i_generator_cost(f->generator, out->variant.text, problem, &f->device.card, out->registers,
                                    &out->variant.cost_us));
done:
    return st;
}

/* If no family serves the problem, there are no options. */
static fa2_status list_options(fa2i_predictor *f, const fa2i_plan *plan, fa2i_predicted *out)
{
    const fa2_status st = fa2i_planner_options(&f->planner, plan, &out->options, &out->option_count);
    return st == FA2_E_UNSUPPORTED && out->status == st ? FA2_OK : st;
}

fa2_status fa2i_predict(fa2i_predictor *f, const fa2_problem *problem, fa2i_predicted *ret_predicted)
{
    fa2_status st = FA2_OK;
    fa2i_predicted out = {0};
    fa2i_plan plan;
    FA2_TRY(decide(&f->planner, problem, &plan, &out));
    out.asked = fa2i_planner_asked(&f->planner, &plan);
    FA2_TRY(list_options(f, &plan, &out));
    FA2_TRY(say_unknown(f, problem->op));
    FA2_TRY(see_kernel(f, problem, &out));
    *ret_predicted = out;
    out = (fa2i_predicted){0}; /* the caller owns it now */
done:
    fa2i_predicted_done(&out);
    return st;
}

fa2_status fa2i_predict_fates(fa2i_predictor *f, fa2i_predicted *predicted)
{
    const fa2i_evidence *evidence = &f->planner.calibrations[predicted->asked.op].evidence;
    fa2i_fate *fates = NULL;
    fa2_status st = FA2I_NEW(fates, predicted->option_count);
    for (size_t i = 0; st == FA2_OK && i < predicted->option_count; i++) {
        const fa2i_option *option = &predicted->options[i];
        fa2i_attempt attempt = {0};
        st = fa2i_planner_look(&f->planner, &predicted->asked, option, &attempt);
        const bool usable = attempt.slot != NULL;
        fates[i] = (fa2i_fate){.usable = usable,
                               .code = usable && attempt.origin == FA2I_ORIGIN_STORED,
                               .refuted = attempt.refuted != FA2I_OUTCOME_OK};
        fates[i].damaged =
            !fates[i].code && attempt.lost && option->kernel != FA2I_NONE && evidence->kernels[option->kernel].has_code;
        memcpy(fates[i].why, attempt.why, sizeof fates[i].why);
    }
    predicted->fates = fates;
    return st;
}
