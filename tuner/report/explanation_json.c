/*
 * One object for programs. tuner/README.md lists its members. Unknown values are null.
 */
#include "tuner/report/explanation.h"

#include "runtime/base/status.h"
#include "tuner/report/rejections.h"
#include "tuner/report/table.h"

static void print_decision_json(const fa2i_explained *e, FILE *out)
{
    const fa2i_decision *d = &e->predicted.decision;
    const fa2i_runner_up *next = &e->predicted.runner_up;
    const bool chosen = d->rule != FA2_RULE_DEFAULT;
    char reason[FA2I_REASON_CHARS];
    fa2i_explained_reason(e, reason);
    fa2i_json_write(out, "'rule':%s,'reason':%s,", fa2_rule_string(d->rule), reason);
    fa2i_json_write(out, "'tuned_for':%s,'tuned_on':%s,",
                    chosen ? fa2i_problem_shape(&d->problem).text : fa2i_json_null,
                    chosen ? d->device : fa2i_json_null);
    fa2i_json_write(out, "'distance':%.6f,'measured':%i,'median_us':%.3f,'estimate_us':%.3f,", d->distance, d->measured,
                    fa2i_json_known(d->median_us), fa2i_json_known(d->estimate_us));
    fa2i_json_write(out, "'runner_up':%s,'runner_up_but':%s,'runner_up_us':%.3f,",
                    next->text[0] == '\0' ? fa2i_json_null : next->text, next->but, fa2i_json_known(next->us));
}

static void print_rejected_json(const fa2i_explained *e, FILE *out)
{
    fa2i_rejection next;
    const char *separator = "";
    fputs("\"rejected\":[", out);
    for (const char *text = e->rejected; fa2i_rejection_next(&text, &next); separator = ",") {
        fprintf(out, "%s\n", separator);
        fa2i_json_write(out, "{'variant':%.*s,'why':%.*s}", (int)next.variant_bytes, next.variant, (int)next.why_bytes,
                        next.why);
    }
    fputc(']', out);
}

static void print_options_json(const fa2i_predicted *f, FILE *out)
{
    const char *separator = "\n";
    fputs("\"candidates\":[", out);
    for (size_t i = 0; i < f->option_count; i++) {
        const fa2i_option *o = &f->options[i];
        const fa2i_fate *fate = &f->fates[i];
        if (fate->refuted)
            continue;
        fputs(separator, out);
        separator = ",\n";
        fa2i_json_write(out,
                        "{'variant':%s,'rests_on':%s,'estimate_us':%.3f,'model_us':%.3f,'code':%i,'damaged':%i,"
                        "'unusable':%s}",
                        o->text, fa2i_explained_rests(o->rests), o->us, o->model_us, fate->code, fate->damaged,
                        fate->usable ? fa2i_json_null : fate->why);
    }
    fputs("],\n", out);
}

static void print_kernel_json(const fa2i_explained *e, FILE *out)
{
    const fa2i_predicted *f = &e->predicted;
    const fa2i_decision *d = &f->decision;
    const fa2i_step *step = fa2i_recipe_main(&f->variant.recipe);
    fa2i_json_write(out, "'variant':%s,'threads':%d,'smem_bytes':%d,'compiled':%i,'lost':%i,'refused':%i,'code_in':%s,",
                    f->variant.text, step->threads, step->smem_bytes, f->compiled, f->lost, f->refused, f->file);
    if (f->registers > 0)
        fa2i_json_write(out, "'registers':%d,'spill_bytes':%d,", f->registers, f->spill_bytes);
    else
        fa2i_json_write(out, "'registers':null,'spill_bytes':null,");
    fa2i_json_write(out, "'model_us':%.3f,\n", f->variant.cost_us);
    fa2i_json_write(out,
                    "'not_taken':%s,'not_taken_why':%s,'not_taken_count':%zu,'replaces_winner':%i,'needs_nvrtc':%i,",
                    d->passed_count > 0 ? d->passed_over : fa2i_json_null,
                    d->passed_count > 0 ? d->why : fa2i_json_null, d->passed_count, d->replaces, f->supposed);
}

void fa2i_explained_print_json(const fa2i_explained *e, FILE *out)
{
    const fa2i_predicted *f = &e->predicted;
    fa2i_json_write(out, "{'problem':%s,'estimated_for':%s,'device':%s,'sm':%d,'status':%s,'message':%s,",
                    fa2i_problem_shape(e->problem).text, fa2i_problem_shape(&f->asked).text, e->card->name,
                    e->card->arch, fa2_status_string(f->status), f->status == FA2_OK ? fa2i_json_null : f->message);
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
