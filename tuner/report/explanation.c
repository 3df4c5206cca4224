/*
 * How: the decision names a kernel by key, its record in the database gives variant and registers;
 * for the default rule the kernel is the cheapest candidate of the rounded problem.
 *
 * Rejections are many and alike: as text they are counted by reason, where reasons that differ in
 * their numbers only are one; each comes with an example.
 */
#include <ctype.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "runtime/ops/op.h"
#include "tuner/commands/database.h"
#include "tuner/report/explanation.h"
#include "tuner/report/table.h"

enum { CANDIDATES_SHOWN = 10, REASONS_MAX = 32 };

void fa2i_explained_done(fa2i_explained *explained)
{
    fa2i_free(explained->candidates);
    fa2i_free(explained->rejected);
    *explained = (fa2i_explained){0};
}

/* Variant, registers and spills of the chosen kernel. */
static fa2_status find_kernel(fa2i_cache *cache, fa2i_explained *e)
{
    if (e->decision.rule == FA2_RULE_DEFAULT) {
        e->variant = e->candidates[0];
        return FA2_OK;
    }
    fa2i_kernel kernel = {0};
    const fa2_status st = fa2i_cache_get_kernel(cache, &e->decision.choice.winner.kernel,
                                                fa2i_op_of(e->problem)->abi, false, &kernel);
    if (st != FA2_OK)
        return st;
    e->variant = kernel.variant;
    e->compiled = true;
    e->registers = kernel.registers;
    e->spill_bytes = kernel.spill_bytes;
    fa2i_kernel_done(&kernel);
    return FA2_OK;
}

fa2_status fa2i_explained_make(fa2i_generator *generator, fa2i_cache *cache, const fa2i_card *card,
                               const fa2_problem *problem, fa2i_explained *ret_explained)
{
    fa2i_explained e = {.problem = problem, .card = card, .asked = fa2i_problem_rounded(problem)};
    fa2_status st = FA2_OK;
    FA2_TRY(
        fa2i_generator_candidates(generator, &e.asked, card, &e.candidates, &e.candidate_count));
    FA2_TRY(fa2i_choose(cache, card, problem, &e.decision));
    FA2_TRY(find_kernel(cache, &e));
    FA2_TRY(fa2i_generator_cost(generator, e.variant.text, problem, card, e.registers,
                                &e.variant.cost_us));
    FA2_TRY(fa2i_generator_rejected(generator, &e.asked, card, &e.rejected));
    *ret_explained = e;
    e = (fa2i_explained){0}; /* the caller's now */
done:
    fa2i_explained_done(&e);
    return st;
}

static double tflops(const fa2_problem *problem, double us)
{
    return fa2i_problem_flop(problem) / us * 1e-6;
}

/* ---- text ---- */

static void print_rule(const fa2i_explained *e, FILE *out)
{
    const fa2i_choice *choice = &e->decision.choice;
    static const char *const meanings[] = {
        [FA2_RULE_EXACT] = "tuned on this device for this very problem",
        [FA2_RULE_NEAREST] = "tuned on this device for the nearest problem",
        [FA2_RULE_ARCH] = "chosen for this SM, on another card or offline",
        [FA2_RULE_DEFAULT] =
            "nothing tuned fits: first choice of the cost model, compiled when needed",
    };
    fprintf(out, "rule      %s: %s\n", fa2_rule_string(e->decision.rule),
            meanings[e->decision.rule]);
    if (e->decision.rule == FA2_RULE_DEFAULT)
        return;
    char shape[FA2I_PROBLEM_CHARS];
    fa2i_problem_format(&choice->problem, shape, sizeof shape);
    fprintf(out, "tuned for %s on %s", shape, choice->device);
    if (e->decision.rule != FA2_RULE_EXACT)
        fprintf(out, " (distance %.2f)", e->decision.distance);
    if (choice->winner.measured)
        fprintf(out, "\nmeasured  %.2f us there, %.2f TFLOPS\n", choice->winner.median_us,
                tflops(&choice->problem, choice->winner.median_us));
    else
        fprintf(out, "\nmeasured  no: ranked by the cost model, %.2f us there\n",
                choice->winner.model_us);
}

static void print_kernel(const fa2i_explained *e, FILE *out)
{
    const fa2i_variant *v = &e->variant;
    const fa2i_step *step = fa2i_recipe_main(&v->recipe);
    fprintf(out, "kernel    %s\n", v->text);
    fprintf(out,
            "          %d threads per block, tiles of %d query rows x %d keys, %d bytes of shared "
            "memory",
            step->threads, v->recipe.rows, v->recipe.keys, step->smem_bytes);
    if (e->compiled)
        fprintf(out, ", %d registers, %d bytes spilled", e->registers, e->spill_bytes);
    fprintf(out, "\nmodel     %.2f us, %.2f TFLOPS for this problem\n", v->cost_us,
            tflops(e->problem, v->cost_us));
}

static fa2_status print_candidates(const fa2i_explained *e, FILE *out)
{
    static const char *const titles[] = {"", "model us", "TFLOPS", "threads", "smem B", "variant"};
    fa2i_table table;
    fa2i_table_init(&table, "lrrrrl", titles);
    for (size_t i = 0; i < e->candidate_count && i < CANDIDATES_SHOWN; i++) {
        const fa2i_variant *v = &e->candidates[i];
        const fa2i_step *step = fa2i_recipe_main(&v->recipe);
        char us[32], rate[32], threads[16], smem[16], brief[FA2I_VARIANT_CHARS];
        snprintf(us, sizeof us, "%.2f", v->cost_us);
        snprintf(rate, sizeof rate, "%.2f", tflops(&e->asked, v->cost_us));
        snprintf(threads, sizeof threads, "%d", step->threads);
        snprintf(smem, sizeof smem, "%d", step->smem_bytes);
        fa2i_variant_brief(v->text, brief, sizeof brief);
        const char *mark = strcmp(v->text, e->variant.text) == 0 ? "*" : "";
        fa2i_table_add(&table, (const char *[]){mark, us, rate, threads, smem, brief});
    }
    char shape[FA2I_PROBLEM_CHARS];
    fa2i_problem_format(&e->asked, shape, sizeof shape);
    fprintf(
        out,
        "\ncandidates by the cost model before compiling, for %s (%zu; * is the kernel above)\n",
        shape, e->candidate_count);
    const fa2_status st = fa2i_table_print(&table, out);
    if (st == FA2_OK && e->candidate_count > CANDIDATES_SHOWN)
        fprintf(out, "... and %zu more\n", e->candidate_count - CANDIDATES_SHOWN);
    fa2i_table_done(&table);
    return st;
}

/* ---- rejections ---- */

typedef struct line {
    const char *variant, *why; /* borrowed from the text */
    size_t variant_bytes, why_bytes;
} line;

/* Cut the next line off *text; false at the end. */
static bool next_line(const char **text, line *ret_line)
{
    const size_t bytes = strcspn(*text, "\n");
    if (bytes == 0)
        return false;
    const char *colon = memchr(*text, ':', bytes);
    const char *end = *text + bytes;
    *ret_line = (line){.variant = *text, .variant_bytes = bytes, .why = end};
    if (colon != NULL) {
        ret_line->variant_bytes = (size_t)(colon - *text);
        ret_line->why = colon + 1 + (colon + 1 < end && colon[1] == ' ');
        ret_line->why_bytes = (size_t)(end - ret_line->why);
    }
    *text = end + (*end == '\n');
    return true;
}

/* Equal but for their numbers. */
static bool same_reason(const line *a, const line *b)
{
    size_t i = 0, j = 0;
    while (i < a->why_bytes && j < b->why_bytes) {
        const bool digit = isdigit((unsigned char)a->why[i]) && isdigit((unsigned char)b->why[j]);
        if (!digit && a->why[i] != b->why[j])
            return false;
        i++;
        j++;
        while (digit && i < a->why_bytes && isdigit((unsigned char)a->why[i]))
            i++;
        while (digit && j < b->why_bytes && isdigit((unsigned char)b->why[j]))
            j++;
    }
    return i == a->why_bytes && j == b->why_bytes;
}

static void print_rejected(const fa2i_explained *e, FILE *out)
{
    line examples[REASONS_MAX], next;
    size_t counts[REASONS_MAX] = {0};
    size_t reasons = 0, total = 0;
    for (const char *text = e->rejected; next_line(&text, &next); total++) {
        size_t i = 0;
        while (i < reasons && !same_reason(&examples[i], &next))
            i++;
        if (i == REASONS_MAX)
            continue; /* counted in the total */
        if (i == reasons)
            examples[reasons++] = next;
        counts[i]++;
    }
    fprintf(out, "\nrejected (%zu)%s\n", total,
            total == 0 ? "" : ", by reason, with an example each");
    for (size_t i = 0; i < reasons; i++)
        fprintf(out, "%6zu  %.*s\n        %.*s\n", counts[i], (int)examples[i].why_bytes,
                examples[i].why, (int)examples[i].variant_bytes, examples[i].variant);
}

fa2_status fa2i_explained_print(const fa2i_explained *explained, FILE *out)
{
    const fa2i_card *card = explained->card;
    char shape[FA2I_PROBLEM_CHARS];
    fa2i_problem_format(explained->problem, shape, sizeof shape);
    fprintf(out,
            "problem   %s\ncard      %s (sm_%d): %d SMs, %d bytes of shared memory per block\n",
            shape, card->name, card->arch, card->sm_count, card->smem_block_bytes);
    print_rule(explained, out);
    print_kernel(explained, out);
    const fa2_status st = print_candidates(explained, out);
    if (st == FA2_OK)
        print_rejected(explained, out);
    return st;
}

/* ---- JSON ---- */

static void print_text_json(FILE *out, const char *name, const char *text)
{
    fprintf(out, "\"%s\":", name);
    fa2i_json_string(out, text);
    fputc(',', out);
}

static void print_decision_json(const fa2i_explained *e, FILE *out)
{
    const fa2i_choice *choice = &e->decision.choice;
    const bool chosen = e->decision.rule != FA2_RULE_DEFAULT;
    char shape[FA2I_PROBLEM_CHARS];
    print_text_json(out, "rule", fa2_rule_string(e->decision.rule));
    if (chosen)
        fa2i_problem_format(&choice->problem, shape, sizeof shape);
    print_text_json(out, "tuned_for", chosen ? shape : NULL);
    print_text_json(out, "tuned_on", chosen ? choice->device : NULL);
    fprintf(out, "\"distance\":%.6f,\"measured\":%s,\"median_us\":%.3f,", e->decision.distance,
            choice->winner.measured ? "true" : "false", choice->winner.median_us);
}

static void print_rejected_json(const fa2i_explained *e, FILE *out)
{
    line next;
    const char *separator = "";
    fputs("\"rejected\":[", out);
    for (const char *text = e->rejected; next_line(&text, &next); separator = ",") {
        /* Variants and reasons are the generator's own words, without quotes or backslashes. */
        fprintf(out, "%s\n{\"variant\":\"%.*s\",\"why\":\"%.*s\"}", separator,
                (int)next.variant_bytes, next.variant, (int)next.why_bytes, next.why);
    }
    fputc(']', out);
}

void fa2i_explained_print_json(const fa2i_explained *explained, FILE *out)
{
    const fa2i_explained *e = explained;
    const fa2i_step *step = fa2i_recipe_main(&e->variant.recipe);
    char shape[FA2I_PROBLEM_CHARS];
    fa2i_problem_format(e->problem, shape, sizeof shape);
    fputc('{', out);
    print_text_json(out, "problem", shape);
    print_text_json(out, "device", e->card->name);
    fprintf(out, "\"sm\":%d,", e->card->arch);
    print_decision_json(e, out);
    print_text_json(out, "variant", e->variant.text);
    fprintf(out,
            "\"threads\":%d,\"smem_bytes\":%d,\"compiled\":%s,\"registers\":%d,"
            "\"spill_bytes\":%d,\"model_us\":%.3f,\n\"candidates\":[",
            step->threads, step->smem_bytes, e->compiled ? "true" : "false", e->registers,
            e->spill_bytes, e->variant.cost_us);
    for (size_t i = 0; i < e->candidate_count; i++) {
        fputs(i == 0 ? "\n{" : ",\n{", out);
        print_text_json(out, "variant", e->candidates[i].text);
        fprintf(out, "\"model_us\":%.3f}", e->candidates[i].cost_us);
    }
    fputs("],\n", out);
    print_rejected_json(e, out);
    fputc('}', out);
}
