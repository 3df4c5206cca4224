/*
 * The text for people. Lines fold at the terminal's width, and the first few kernels are shown as a table.
 */
#include "tuner/report/explanation.h"

#include <stdlib.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "runtime/base/text.h"
#include "runtime/ops/op.h"
#include "tuner/report/rejections.h"
#include "tuner/report/table.h"

enum { CANDIDATES_SHOWN = 10, LABEL = 10, EXAMPLE = 8 /* columns */ };

void fa2i_explained_done(fa2i_explained *explained)
{
    fa2i_predicted_done(&explained->predicted);
    fa2i_free(explained->rejected);
    *explained = (fa2i_explained){0};
}

/* Adds a line, in the generator's format. */
static void add_rejected(fa2i_text *text, const char *variant, const char *why)
{
    fa2i_shown_add(text, variant);
    fa2i_text_add(text, ": ");
    fa2i_shown_add(text, why);
    fa2i_text_add(text, "\n");
}

/* Variants that failed their verification count as rejected, too. */
static fa2_status add_refuted(fa2i_explained *e, const char *rejected)
{
    const fa2i_predicted *f = &e->predicted;
    fa2i_text text = {0};
    for (size_t i = 0; i < f->option_count; i++)
        if (f->fates[i].refuted)
            add_rejected(&text, f->options[i].text, f->fates[i].why);
    fa2i_text_add(&text, "%s", rejected);
    const fa2_status st = fa2i_text_take(&text, &e->rejected);
    fa2i_text_done(&text);
    return st;
}

bool fa2i_explained_is_unserved(const fa2i_explained *e)
{
    return e->predicted.status == FA2_E_UNSUPPORTED && e->predicted.option_count == 0;
}

fa2_status fa2i_explained_make(fa2i_predictor *predictor, const fa2_problem *problem, fa2i_explained *ret_explained)
{
    fa2i_explained e = {.problem = problem, .card = &predictor->device.card};
    fa2_status st = FA2_OK;
    char *rejected = NULL;
    FA2_TRY(fa2i_predict(predictor, problem, &e.predicted));
    FA2_TRY(fa2i_predict_fates(predictor, &e.predicted));
    if (!fa2i_explained_is_unserved(&e))
        FA2_TRY(fa2i_generator_rejected(predictor->generator, &e.predicted.asked, e.card, &rejected));
    FA2_TRY(add_refuted(&e, rejected == NULL ? "" : rejected));
    *ret_explained = e;
    e = (fa2i_explained){0}; /* the caller owns it now */
done:
    fa2i_free(rejected);
    fa2i_explained_done(&e);
    return st;
}

static double tflops(const fa2_problem *problem, double us)
{
    return fa2i_problem_flop(problem) / us * 1e-6;
}

/* Says whether the estimates are for other lengths than the problem's. */
static bool is_rounded(const fa2i_explained *e)
{
    return memcmp(&e->predicted.asked, e->problem, sizeof *e->problem) != 0;
}

/* ---- text ---- */

/* Prints better kernels that cannot be used. */
static void print_passed_over(const fa2i_decision *d, FILE *out)
{
    if (d->passed_count == 0)
        return;
    fa2i_shown_print(out, "not taken %s%s%s: %s", d->replaces ? "the problem's winner" : "",
                     d->replaces && d->passed_over[0] != '\0' ? ", " : "", d->passed_over, d->why);
    if (d->passed_count > 1)
        fprintf(out, "; and %zu more", d->passed_count - 1);
    fputc('\n', out);
}

void fa2i_explained_reason(const fa2i_explained *e, char out[FA2I_REASON_CHARS])
{
    const fa2i_decision *d = &e->predicted.decision;
    if (d->rule == FA2_RULE_DEFAULT)
        snprintf(out, FA2I_REASON_CHARS,
                 "no problem near this one is tuned for sm_%d with this kernel: the cost model's choice",
                 e->card->arch);
    else
        snprintf(out, FA2I_REASON_CHARS, "%s %s on %.128s", d->measured ? "tuned for" : "the cost model chose it for",
                 fa2i_problem_shape(&d->problem).text, d->device);
}

/* Returns what the rule means for this decision. */
static const char *meaning(const fa2i_decision *d)
{
    static const char *const meanings[] = {
        [FA2_RULE_EXACT] = "tuned on this device for this very problem",
        [FA2_RULE_NEAREST] = "the best estimate, carried over from problems tuned on this device",
        [FA2_RULE_ARCH] = "the best estimate, carried over from another card of this SM or offline",
        [FA2_RULE_SHIPPED] = "the best estimate, by measurements that come with fa2",
        [FA2_RULE_DEFAULT] =
            "the best estimate, by the cost model: no problem near this one was measured with this kernel",
    };
    if (d->corrected)
        return "the best estimate, by the cost model as measurements of other kinds correct it";
    if (d->rule == FA2_RULE_EXACT && d->passed_count > 0)
        return d->measured ? "the fastest that can be used of those tuned on this device for this very problem"
                           : "the first that can be used of those that the cost model ranked for this very problem";
    if (d->rule == FA2_RULE_EXACT && !d->measured)
        return "the cost model's choice for this very problem on this device, not measured";
    if (d->rule == FA2_RULE_NEAREST && !d->measured)
        return "the best estimate, carried over from what the cost model chose for this device";
    return meanings[d->rule];
}

static void print_rule(const fa2i_explained *e, FILE *out)
{
    const fa2i_decision *d = &e->predicted.decision;
    fprintf(out, "rule      %s: %s\n", fa2_rule_string(d->rule), meaning(d));
    print_passed_over(d, out);
    if (d->corrected) {
        fprintf(out, "corrected by %s, the nearest of another kind\n", fa2i_problem_shape(&d->neighbour).text);
    }
    fprintf(out, "estimate  " FA2I_US " us, %.2f TFLOPS", d->estimate_us, tflops(&e->predicted.asked, d->estimate_us));
    const fa2i_runner_up *next = &e->predicted.runner_up;
    if (next->text[0] != '\0')
        fa2i_shown_print(out, "; " FA2I_US " us for the next, %s%s%s", next->us, next->text,
                         next->but == NULL ? "" : ", ", next->but == NULL ? "" : next->but);
    fputc('\n', out);
    if (d->rule == FA2_RULE_DEFAULT)
        return;
    char reason[FA2I_REASON_CHARS];
    fa2i_explained_reason(e, reason);
    fa2i_shown_print(out, "reason    %s", reason);
    if (d->rule != FA2_RULE_EXACT)
        fprintf(out, " (distance %.2f)", d->distance);
    if (d->measured)
        fprintf(out, "\nmeasured  " FA2I_US " us there, %.2f TFLOPS\n", d->median_us,
                tflops(&d->problem, d->median_us));
    else
        fprintf(out, "\nmeasured  no: ranked by the cost model, or on a software device\n");
}

static void print_kernel(const fa2i_explained *e, FILE *out)
{
    const fa2i_predicted *f = &e->predicted;
    const fa2i_variant *v = &f->variant;
    const fa2i_step *step = fa2i_recipe_main(&v->recipe);
    fa2i_shown_print(out, "kernel    %s\n", v->text);
    fprintf(out, "          %d threads per block, tiles of %d query rows x %d keys, %d bytes of shared memory",
            step->threads, v->recipe.rows, v->recipe.keys, step->smem_bytes);
    if (f->compiled && f->registers > 0)
        fprintf(out, ", %d registers, %d bytes spilled", f->registers, f->spill_bytes);
    else if (f->compiled)
        fputs(", registers - (it is PTX, which the driver compiles)", out);
    if (f->compiled)
        fa2i_shown_print(out, "\ncode      in %s\n",
                         f->file != NULL ? f->file : "a database that was changed meanwhile");
    else
        fprintf(out, "\ncode      %scompiled %sat the first call, and %s%s\n",
                f->lost      ? "lost: "
                : f->refused ? "the driver refuses what the database has: "
                             : "",
                f->lost || f->refused ? "again " : "", e->kept,
                f->supposed ? "; that needs NVRTC, which is not here" : "");
    fprintf(out, "model     " FA2I_US " us, %.2f TFLOPS for %s\n", v->cost_us, tflops(e->problem, v->cost_us),
            is_rounded(e) ? "the problem itself, not rounded" : "this problem");
}

const char *fa2i_explained_rests(fa2i_rests rests)
{
    static const char *const texts[] = {[FA2I_RESTS_MEASURED] = "measured",
                                        [FA2I_RESTS_NEARBY] = "nearby",
                                        [FA2I_RESTS_ELSEWHERE] = "elsewhere",
                                        [FA2I_RESTS_MODEL] = "model"};
    return texts[rests];
}

/* Kernels that failed their verification are no candidates. */
static size_t candidate_count(const fa2i_predicted *f)
{
    size_t count = 0;
    for (size_t i = 0; i < f->option_count; i++)
        count += !f->fates[i].refuted;
    return count;
}

static const char *code_text(const fa2i_fate *fate)
{
    return fate->code ? "yes" : fate->damaged ? "damaged" : fate->usable ? "" : "none";
}

static fa2_status print_options(const fa2i_explained *e, FILE *out)
{
    const fa2i_predicted *f = &e->predicted;
    static const char *const titles[] = {"", "us", "TFLOPS", "rests on", "model us", "code", "variant"};
    fa2i_table table;
    fa2i_table_init(&table, "lrrlrll", titles);
    const size_t count = candidate_count(f);
    size_t shown = 0;
    for (size_t i = 0; i < f->option_count && shown < CANDIDATES_SHOWN; i++) {
        const fa2i_option *o = &f->options[i];
        const fa2i_fate *fate = &f->fates[i];
        if (fate->refuted)
            continue;
        shown++;
        const bool corrected = o->rests == FA2I_RESTS_MODEL && o->neighbour != FA2I_NONE;
        const bool taken = f->status == FA2_OK && strcmp(o->text, f->variant.text) == 0;
        fa2i_table_row(&table, "%s\t" FA2I_US "\t%.2f\t%s\t" FA2I_US "\t%s\t%s", taken ? "*" : "", o->us,
                       tflops(&f->asked, o->us), corrected ? "model, corrected" : fa2i_explained_rests(o->rests),
                       o->model_us, code_text(fate), fa2i_variant_brief(o->text).text);
    }
    char heading[FA2I_PROBLEM_CHARS + 80];
    snprintf(heading, sizeof heading, "\nkernels by their estimates for %s (%zu%s)\n",
             fa2i_problem_shape(&f->asked).text, count, f->status == FA2_OK ? "; * is the kernel above" : "");
    fa2i_terminal_print_lines(out, heading, LABEL);
    const fa2_status st = fa2i_table_print(&table, out);
    if (st == FA2_OK && count > shown)
        fprintf(out, "... and %zu more\n", count - shown);
    fa2i_table_done(&table);
    return st;
}

static void print_rejected(const fa2i_explained *e, FILE *out)
{
    fa2i_rejections_print(e->rejected, out);
}

static void print_decision(const fa2i_explained *explained, FILE *out)
{
    const fa2i_card *card = explained->card;
    fa2i_shown_print(out, "problem   %s\ncard      %s (sm_%d): %d SMs, %d bytes of shared memory per block\n",
                     fa2i_problem_shape(explained->problem).text, card->name, card->arch, card->sm_count,
                     card->smem_block_bytes);
    if (explained->predicted.status != FA2_OK) {
        fprintf(out, "rule      none: the call fails, %s\nmessage   %s\n",
                fa2_status_string(explained->predicted.status), explained->predicted.message);
        return;
    }
    if (is_rounded(explained))
        fprintf(out, "rounded   to %s, for which estimates are made: a few answers serve all lengths\n",
                fa2i_problem_shape(&explained->predicted.asked).text);
    print_rule(explained, out);
    print_kernel(explained, out);
}

/* Prints lines, folded if the terminal is too narrow. */
static fa2_status print_lines(const fa2i_explained *explained, void (*print)(const fa2i_explained *e, FILE *out),
                              size_t indent, FILE *out)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *lines = open_memstream(&text, &bytes);
    if (lines != NULL)
        print(explained, lines);
    const bool failed = lines == NULL || fclose(lines) != 0;
    if (!failed)
        fa2i_terminal_print_lines(out, text, indent);
    free(text);
    return failed ? fa2i_fail(FA2_E_MEMORY, "no memory for an explanation") : FA2_OK;
}

fa2_status fa2i_explained_print(const fa2i_explained *explained, FILE *out)
{
    fa2_status st = FA2_OK;
    FA2_TRY(print_lines(explained, print_decision, LABEL, out));
    if (fa2i_explained_is_unserved(explained))
        goto done; /* the message says why, family by family */
    FA2_TRY(print_options(explained, out));
    FA2_TRY(print_lines(explained, print_rejected, EXAMPLE, out));
done:
    return st;
}
