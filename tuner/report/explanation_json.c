/*
 * One object for programs. tuner/README.md lists its members. Unknown values are null.
 */
#include "tuner/report/explanation.h"

#include "runtime/base/status.h"
#include "tuner/report/rejections.h"
#include "tuner/report/table.h"

static void print_text_json(FILE *out, const char *name, const char *text)
{
    fprintf(out, "\"%s\":", name);
    fa2i_json_string(out, text);
    fputc(',', out);
}

/* Prints a member and a comma. A time of 0 is unknown. */
static void print_us_json(FILE *out, const char *name, double us)
{
    if (us > 0)
        fprintf(out, "\"%s\":%.3f,", name, us);
    else
        fprintf(out, "\"%s\":null,", name);
}

static void print_decision_json(const fa2i_explained *e, FILE *out)
{
    const fa2i_decision *d = &e->predicted.decision;
    const fa2i_runner_up *next = &e->predicted.runner_up;
    const bool chosen = d->rule != FA2_RULE_DEFAULT;
    char shape[FA2I_PROBLEM_CHARS], reason[FA2I_REASON_CHARS];
    fa2i_explained_reason(e, reason);
    print_text_json(out, "rule", fa2_rule_string(d->rule));
    print_text_json(out, "reason", reason);
    if (chosen)
        fa2i_problem_format(&d->problem, shape, sizeof shape);
    print_text_json(out, "tuned_for", chosen ? shape : NULL);
    print_text_json(out, "tuned_on", chosen ? d->device : NULL);
    fprintf(out, "\"distance\":%.6f,\"measured\":%s,", d->distance, d->measured ? "true" : "false");
    print_us_json(out, "median_us", d->median_us);
    print_us_json(out, "estimate_us", d->estimate_us);
    print_text_json(out, "runner_up", next->text[0] == '\0' ? NULL : next->text);
    print_text_json(out, "runner_up_but", next->but);
    print_us_json(out, "runner_up_us", next->us);
}

static void print_part_json(FILE *out, const char *part, size_t bytes)
{
    char text[FA2I_MESSAGE_BYTES];
    snprintf(text, sizeof text, "%.*s", (int)bytes, part);
    fa2i_json_string(out, text);
}

static void print_rejected_json(const fa2i_explained *e, FILE *out)
{
    fa2i_rejection next;
    const char *separator = "";
    fputs("\"rejected\":[", out);
    for (const char *text = e->rejected; fa2i_rejection_next(&text, &next); separator = ",") {
        fprintf(out, "%s\n{\"variant\":", separator);
        print_part_json(out, next.variant, next.variant_bytes);
        fputs(",\"why\":", out);
        print_part_json(out, next.why, next.why_bytes);
        fputc('}', out);
    }
    fputc(']', out);
}

static void print_options_json(const fa2i_predicted *f, FILE *out)
{
    const char *separator = "\n{";
    fputs("\"candidates\":[", out);
    for (size_t i = 0; i < f->option_count; i++) {
        const fa2i_option *o = &f->options[i];
        const fa2i_fate *fate = &f->fates[i];
        if (fate->refuted)
            continue;
        fputs(separator, out);
        separator = ",\n{";
        print_text_json(out, "variant", o->text);
        print_text_json(out, "rests_on", fa2i_explained_rests(o->rests));
        fprintf(out, "\"estimate_us\":%.3f,\"model_us\":%.3f,\"code\":%s,\"damaged\":%s,\"unusable\":", o->us,
                o->model_us, fate->code ? "true" : "false", fate->damaged ? "true" : "false");
        fa2i_json_string(out, fate->usable ? NULL : fate->why);
        fputc('}', out);
    }
    fputs("],\n", out);
}

static void print_kernel_json(const fa2i_explained *e, FILE *out)
{
    const fa2i_predicted *f = &e->predicted;
    const fa2i_decision *d = &f->decision;
    const fa2i_step *step = fa2i_recipe_main(&f->variant.recipe);
    print_text_json(out, "variant", f->variant.text);
    fprintf(out, "\"threads\":%d,\"smem_bytes\":%d,\"compiled\":%s,\"lost\":%s,\"refused\":%s,", step->threads,
            step->smem_bytes, f->compiled ? "true" : "false", f->lost ? "true" : "false",
            f->refused ? "true" : "false");
    print_text_json(out, "code_in", f->file);
    if (f->registers > 0)
        fprintf(out, "\"registers\":%d,\"spill_bytes\":%d,", f->registers, f->spill_bytes);
    else
        fputs("\"registers\":null,\"spill_bytes\":null,", out);
    fprintf(out, "\"model_us\":%.3f,\n", f->variant.cost_us);
    print_text_json(out, "not_taken", d->passed_count > 0 ? d->passed_over : NULL);
    print_text_json(out, "not_taken_why", d->passed_count > 0 ? d->why : NULL);
    fprintf(out, "\"not_taken_count\":%zu,\"replaces_winner\":%s,\"needs_nvrtc\":%s,", d->passed_count,
            d->replaces ? "true" : "false", f->supposed ? "true" : "false");
}

void fa2i_explained_print_json(const fa2i_explained *e, FILE *out)
{
    const fa2i_predicted *f = &e->predicted;
    char shape[FA2I_PROBLEM_CHARS];
    fa2i_problem_format(e->problem, shape, sizeof shape);
    fputc('{', out);
    print_text_json(out, "problem", shape);
    fa2i_problem_format(&f->asked, shape, sizeof shape);
    print_text_json(out, "estimated_for", shape);
    print_text_json(out, "device", e->card->name);
    fprintf(out, "\"sm\":%d,", e->card->arch);
    print_text_json(out, "status", fa2_status_string(f->status));
    print_text_json(out, "message", f->status == FA2_OK ? NULL : f->message);
    if (f->status == FA2_OK) {
        print_decision_json(e, out);
        print_kernel_json(e, out);
    } else {
        fputs("\"rule\":null,\"variant\":null,\n", out);
    }
    print_options_json(f, out);
    print_rejected_json(e, out);
    fputc('}', out);
}
