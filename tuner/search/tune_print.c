/*
 * The output of a run: results on stdout (as JSON at the end, if asked for), everything else on stderr.
 */
#include <stdio.h>
#include <string.h>
#include "runtime/base/text.h"
#include "runtime/ops/op.h"
#include "tuner/report/table.h"
#include "tuner/search/search.h"
#include "tuner/search/tune.h"

static const char *const phase_names[FA2I_PHASE_COUNT] = {"plan", "compile", "verify", "time"};

static const char *const state_names[] = {"open", "settled", "measured", "unserved", "failed"};

/* All commands call a software device's times modelled. */
static const char *state_name(const fa2i_tune *tune, fa2i_problem_state state)
{
    return state == FA2I_PROBLEM_MEASURED && tune->gpu->modelled ? "modelled" : state_names[state];
}

static size_t count_needed(const fa2i_findings *found)
{
    size_t count = 0;
    for (size_t i = 0; i < found->kernel_count; i++)
        count += found->kernels[i].needed;
    return count;
}

static bool has_winner(const fa2i_tune_problem *problem)
{
    return problem->state == FA2I_PROBLEM_SETTLED || problem->state == FA2I_PROBLEM_MEASURED;
}

/* Returns the winner's measured time, or 0 if it is modelled. Modelled times give no rates and gains, as in `list`. */
static double measured_us(const fa2i_tune_problem *problem)
{
    return problem->winner.measured ? problem->winner.median_us : 0;
}

static double tflops(const fa2i_tune_problem *problem)
{
    const double us = measured_us(problem);
    return us > 0 ? fa2i_problem_flop(&problem->problem) / us * 1e-6 : 0;
}

/* Returns how many times faster it is than the default variant; 0: unknown. */
static double gain(const fa2i_tune_problem *problem)
{
    const double us = measured_us(problem);
    return us > 0 ? problem->winner.default_us / us : 0;
}

/* Formats a number with so many decimals and a suffix, or "-" unless it is positive: then it is not known. */
static const char *format_known(double number, int decimals, const char *suffix, char out[32])
{
    snprintf(out, 32, number > 0 ? "%.*f%s" : "-", decimals, number, suffix);
    return out;
}

void fa2i_tune_print_start(const fa2i_tune *tune)
{
    fa2i_shown_print(stderr, "device %d: %s, sm_%d, %d SMs; driver for CUDA %d.%d, %sNVRTC %d.%d, code for %s\n",
                     tune->request->device, tune->gpu->card.name, tune->gpu->card.arch, tune->gpu->card.sm_count,
                     tune->gpu->driver / 1000, tune->gpu->driver % 1000 / 10,
                     tune->gpu->compiles ? "" : "no NVRTC here; compiled by ", tune->target.nvrtc / 1000,
                     tune->target.nvrtc % 1000 / 10, tune->target.name);
    fa2i_shown_print(stderr, "database %s, seed %d\n", fa2i_cache_path(tune->cache), FA2I_TUNE_SEED);
    fprintf(stderr, "%zu problem%s, %zu tuned already; %zu variant%s, %zu wanted now\n", tune->found.problem_count,
            fa2i_plural(tune->found.problem_count), fa2i_findings_count(&tune->found, FA2I_PROBLEM_SETTLED),
            tune->found.kernel_count, fa2i_plural(tune->found.kernel_count), count_needed(&tune->found));
}

void fa2i_tune_print_problem(fa2i_tune *tune, const fa2i_tune_problem *problem)
{
    char us[32], rate[32], times[32];
    const fa2i_shape shape = fa2i_problem_shape(&problem->problem);
    if (!has_winner(problem)) {
        fa2i_note(&tune->progress, "fa2-tune: %s: %s: %s", shape.text, state_name(tune, problem->state),
                  problem->message);
        return;
    }
    if (tune->request->json)
        return;
    if (tune->progress.line_open) /* the terminal may show both streams */
        fputs("\r\033[K", stderr);
    snprintf(us, sizeof us, FA2I_US, problem->winner.median_us);
    printf("%-60s %10s us%s %7s TFLOPS %6s default  %s%s\n", shape.text, us, problem->winner.measured ? "" : " (model)",
           format_known(tflops(problem), 1, "", rate), format_known(gain(problem), 2, "x", times),
           fa2i_variant_brief(problem->variant).text,
           problem->lost       ? "  (its code is lost: to compile again)"
           : problem->complete ? ""
                               : "  (not finished)");
    fflush(stdout);
}

/* Prints one line for all problems that cannot be tuned for the same reason, when the first one comes. */
static void print_without(fa2i_tune *tune, size_t index)
{
    const fa2i_tune_problem *first = &tune->found.problems[index];
    size_t count = 0;
    for (size_t i = 0; i < tune->found.problem_count; i++) {
        const fa2i_tune_problem *p = &tune->found.problems[i];
        if (p->state != first->state || strcmp(p->message, first->message) != 0)
            continue;
        if (i < index)
            return;
        count++;
    }
    if (count == 1) {
        fa2i_tune_print_problem(tune, first);
        return;
    }
    fa2i_note(&tune->progress, "fa2-tune: %zu problems %s, the first %s: %s", count, state_name(tune, first->state),
              fa2i_problem_shape(&first->problem).text, first->message);
}

void fa2i_tune_print_planned(fa2i_tune *tune)
{
    for (size_t i = 0; i < tune->found.problem_count; i++) {
        const fa2i_tune_problem *p = &tune->found.problems[i];
        if (has_winner(p))
            fa2i_tune_print_problem(tune, p);
        else if (p->state != FA2I_PROBLEM_OPEN)
            print_without(tune, i);
    }
}

/* Prints an operation's problems, and the variants that are known. Prints nothing if there are no problems. */
static void print_op(const fa2i_findings *found, fa2_op op)
{
    size_t problems = 0, variants = 0, known = 0, spilled = 0, usable = 0;
    for (size_t i = 0; i < found->problem_count; i++)
        problems += found->problems[i].problem.op == op;
    for (size_t i = 0; i < found->kernel_count; i++) {
        const fa2i_tune_kernel *k = &found->kernels[i];
        if (k->kernel.variant.recipe.op != op)
            continue;
        variants++;
        known += k->known;
        spilled += k->known && k->kernel.outcome == FA2I_OUTCOME_SPILLED;
        usable += k->known && k->kernel.outcome == FA2I_OUTCOME_OK &&
                  (!k->verified || k->verification.outcome == FA2I_OUTCOME_OK);
    }
    if (problems == 0)
        return;
    fprintf(stderr, "%s: %zu problem%s, %zu variant%s", fa2i_field_word(FA2I_FIELD_op, (int32_t)op), problems,
            fa2i_plural(problems), variants, fa2i_plural(variants));
    if (known > 0 && known < variants)
        fprintf(stderr, ", %zu of them looked at", known);
    if (known > 0)
        fprintf(stderr, ", %zu of them usable, %zu spilled", usable, spilled);
    fputs("\n", stderr);
}

/* Adds the reason if it cannot be tuned. */
static void print_message_json(const fa2i_tune_problem *problem)
{
    if (problem->message[0] != '\0')
        fa2i_json_write(stdout, ",'message':%s", problem->message);
}

static void print_work_json(const fa2i_tune *tune, const fa2i_tune_work *work)
{
    fa2i_json_write(stdout,
                    "{'device':%s,'to_compile':%zu,'to_verify':%zu,'to_measure':%zu,'threads':%d,'seconds':%.1f",
                    tune->gpu->card.name, work->compile, work->verify, work->measure, tune->request->threads,
                    tune->gpu->modelled ? (double)NAN : fa2i_json_known(work->seconds));
    if (tune->budget->seconds > 0)
        fa2i_json_write(stdout, ",'budget':%g,'fit':%zu", tune->budget->seconds, work->fit);
    fputs(",\"problems\":[", stdout);
    for (size_t i = 0; i < tune->found.problem_count; i++) {
        const fa2i_tune_problem *p = &tune->found.problems[i];
        fputs(i > 0 ? ",\n" : "\n", stdout);
        fa2i_json_write(stdout, "{'problem':%s,'state':%s,'model_us':%.3f,'variants':%zu",
                        fa2i_problem_shape(&p->problem).text, state_name(tune, p->state), p->model_us, p->count);
        if (p->state == FA2I_PROBLEM_OPEN)
            fa2i_json_write(stdout, ",'calls':%.0f,'gain_us':%.3f,'fits':%i", p->calls, p->worth_us, p->fits);
        else if (p->lost)
            fa2i_json_write(stdout, ",'lost':true");
        else
            print_message_json(p);
        fputs("}", stdout);
    }
    fputs("]}\n", stdout);
}

/* Prints the gain that decides its rank, and whether the budget reaches it. */
static void print_prediction(const fa2i_tune *tune, const fa2i_tune_problem *p)
{
    if (fa2i_tune_is_ordered(tune->request, tune->budget) && p->worth_us < FA2I_TUNE_WORTH_US)
        printf(", nothing to gain expected");
    else if (fa2i_tune_is_ordered(tune->request, tune->budget))
        printf(", " FA2I_US " us to gain in %.0f call%s", p->worth_us, p->calls, p->calls > 1 ? "s" : "");
    printf("%s\n", p->fits ? "" : "; beyond the budget");
}

void fa2i_tune_print_work(const fa2i_tune *tune, const fa2i_tune_work *work)
{
    const double budget_s = tune->budget->seconds;
    if (tune->request->json) {
        print_work_json(tune, work);
        return;
    }
    char us[32];
    for (size_t i = 0; i < tune->found.problem_count; i++) {
        const fa2i_tune_problem *p = &tune->found.problems[i];
        if (p->state != FA2I_PROBLEM_OPEN)
            continue;
        snprintf(us, sizeof us, FA2I_US, p->model_us);
        printf("%-60s %10s us by the model, %zu variant%s", fa2i_problem_shape(&p->problem).text, us, p->count,
               fa2i_plural(p->count));
        print_prediction(tune, p);
    }
    printf("to compile: %zu, to verify: %zu, problems to measure: %zu", work->compile, work->verify, work->measure);
    if (work->seconds > 0)
        printf("; %sabout %.0f s with %d thread%s%s", tune->gpu->modelled ? "modelled: on such a card " : "",
               work->seconds + 1, tune->request->threads, fa2i_plural((size_t)tune->request->threads),
               tune->gpu->modelled ? "; this device is software, and takes as long as it likes" : "");
    if (budget_s > 0 && work->measure > 0)
        printf("; the budget of %g s is about enough for %zu of %zu problem%s", budget_s, work->fit, work->measure,
               fa2i_plural(work->measure));
    printf("\n");
}

static void print_dropped(const fa2i_findings *found)
{
    fprintf(stderr, "variants: %zu compiled, %zu reused, %zu verified", found->compiled, found->reused,
            found->verified);
    for (size_t i = FA2I_OUTCOME_OK + 1; i < FA2I_OUTCOME_COUNT; i++)
        if (found->outcomes[i] > 0)
            fprintf(stderr, ", %zu %s", found->outcomes[i], fa2i_outcome_string((fa2i_outcome)i));
    fprintf(stderr, "\nmeasurements: %zu taken, %zu of them failed", found->timed, found->failed);
    if (found->spared > 0 || found->early > 0)
        fprintf(stderr,
                "; %zu left out because of earlier problems (and %zu variant%s not compiled), "
                "%zu problem%s decided early",
                found->spared, found->uncompiled, fa2i_plural(found->uncompiled), found->early,
                fa2i_plural(found->early));
    fputc('\n', stderr);
}

void fa2i_tune_print_summary(const fa2i_tune *tune)
{
    fprintf(stderr, "problems: %zu %s, %zu tuned already, %zu not reached, %zu not served by this device, %zu failed\n",
            fa2i_findings_count(&tune->found, FA2I_PROBLEM_MEASURED), state_name(tune, FA2I_PROBLEM_MEASURED),
            fa2i_findings_count(&tune->found, FA2I_PROBLEM_SETTLED) - fa2i_findings_count_lost(&tune->found),
            fa2i_findings_count(&tune->found, FA2I_PROBLEM_OPEN) + fa2i_findings_count_lost(&tune->found),
            fa2i_findings_count(&tune->found, FA2I_PROBLEM_UNSERVED),
            fa2i_findings_count(&tune->found, FA2I_PROBLEM_FAILED));
    if (tune->found.by_others > 0)
        fprintf(stderr, "of those tuned already, another fa2-tune measured %zu meanwhile\n", tune->found.by_others);
    for (int op = 0; op <= fa2i_fields[FA2I_FIELD_op].most; op++)
        print_op(&tune->found, (fa2_op)op);
    print_dropped(&tune->found);
    fprintf(stderr, "took %.1f s:", fa2i_now_s() - tune->budget->started_s);
    for (size_t i = 0; i < FA2I_PHASE_COUNT; i++)
        fprintf(stderr, " %s %.1f s%s", phase_names[i], tune->found.phase_s[i], i + 1 < FA2I_PHASE_COUNT ? "," : "\n");
}

static void print_problem_json(const fa2i_tune *tune, const fa2i_tune_problem *problem)
{
    fa2i_json_write(stdout, "{'problem':%s,'state':%s", fa2i_problem_shape(&problem->problem).text,
                    state_name(tune, problem->state));
    if (has_winner(problem))
        fa2i_json_write(stdout,
                        ",'variant':%s,'median_us':%.3f,'model_us':%.3f,'tflops':%.3f,'speedup_vs_default':%.4f,"
                        "'complete':%i",
                        problem->variant, fa2i_json_known(measured_us(problem)),
                        fa2i_json_known(problem->winner.model_us), fa2i_json_known(tflops(problem)),
                        fa2i_json_known(gain(problem)), problem->complete);
    else
        print_message_json(problem);
    if (problem->lost)
        fa2i_json_write(stdout, ",'lost':true");
    fputs("}", stdout);
}

void fa2i_tune_print_json(const fa2i_tune *tune)
{
    const fa2i_findings *found = &tune->found;
    fa2i_json_write(stdout, "{'device':%s,'arch':'sm_%d','sm_count':%d,'driver':%d,'nvrtc':%d,'database':%s,",
                    tune->gpu->card.name, tune->gpu->card.arch, tune->gpu->card.sm_count, tune->gpu->driver,
                    tune->target.nvrtc, fa2i_cache_path(tune->cache));
    fa2i_json_write(stdout,
                    "'seed':%d,'compiled':%zu,'reused':%zu,'verified':%zu,'timed':%zu,'failed_while_timed':%zu,"
                    "'left_out':%zu,'not_compiled':%zu,'decided_early':%zu,'outcomes':{",
                    FA2I_TUNE_SEED, found->compiled, found->reused, found->verified, found->timed, found->failed,
                    found->spared, found->uncompiled, found->early);
    for (size_t i = 0; i < FA2I_OUTCOME_COUNT; i++)
        fa2i_json_write(stdout, i == 0 ? "%s:%zu" : ",%s:%zu", fa2i_outcome_string((fa2i_outcome)i),
                        found->outcomes[i]);
    fputs("},\"seconds\":{", stdout);
    for (size_t i = 0; i < FA2I_PHASE_COUNT; i++)
        fa2i_json_write(stdout, "%s:%.3f,", phase_names[i], found->phase_s[i]);
    fa2i_json_write(stdout, "'total':%.3f},'problems':[", fa2i_now_s() - tune->budget->started_s);
    for (size_t i = 0; i < tune->found.problem_count; i++) {
        fputs(i == 0 ? "\n" : ",\n", stdout);
        print_problem_json(tune, &tune->found.problems[i]);
    }
    fputs("]}\n", stdout);
}
