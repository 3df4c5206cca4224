#include "tuner/bench/precisions.h"

#include <string.h>
#include "runtime/base/alloc.h"
#include "tuner/report/table.h"

/* The fields of a problem's precision. kv_scales goes with kv. */
static const int fields[] = {FA2I_FIELD_sums, FA2I_FIELD_scores, FA2I_FIELD_pv, FA2I_FIELD_kv};
enum { FIELDS = sizeof fields / sizeof *fields };

typedef struct precision {
    const char *name;
    int32_t values[FIELDS];
} precision;

/* The first one is exact. */
static const precision precisions[] = {
    {"exact", {FA2_SUMS_FP32, FA2_SCORES_EXACT, FA2_PV_EXACT, FA2_KV_DTYPE}},
    {"sums=fast", {FA2_SUMS_FAST, FA2_SCORES_EXACT, FA2_PV_EXACT, FA2_KV_DTYPE}},
    {"scores=int8", {FA2_SUMS_FP32, FA2_SCORES_INT8, FA2_PV_EXACT, FA2_KV_DTYPE}},
    {"sums=fast scores=int8", {FA2_SUMS_FAST, FA2_SCORES_INT8, FA2_PV_EXACT, FA2_KV_DTYPE}},
    {"scores=int8 pv=fp8", {FA2_SUMS_FP32, FA2_SCORES_INT8, FA2_PV_FP8, FA2_KV_DTYPE}},
    {"kv=int8", {FA2_SUMS_FP32, FA2_SCORES_EXACT, FA2_PV_EXACT, FA2_KV_INT8}},
    {"kv=fp8", {FA2_SUMS_FP32, FA2_SCORES_EXACT, FA2_PV_EXACT, FA2_KV_FP8}},
};
enum { PRECISIONS = sizeof precisions / sizeof *precisions };

static void set(fa2_problem *problem, const precision *to)
{
    for (int i = 0; i < FIELDS; i++)
        fa2i_field_set(problem, fields[i], to->values[i]);
}

static bool is_of(const fa2_problem *problem, const precision *one)
{
    bool same = true;
    for (int i = 0; i < FIELDS; i++)
        same = same && fa2i_field_get(problem, fields[i]) == one->values[i];
    return same;
}

bool fa2i_precisions_apply(const fa2_problem *problem)
{
    return problem->op == FA2_OP_FORWARD && !problem->append && problem->partial != FA2_PARTIAL_MERGE;
}

fa2_problem fa2i_precisions_exact(const fa2_problem *problem)
{
    fa2_problem exact = *problem;
    set(&exact, &precisions[0]);
    exact.kv_scales = FA2_SCALES_FP32;
    return exact;
}

/* ---- problems ---- */

static bool has(const fa2i_shapes *shapes, const fa2_problem *problem)
{
    for (size_t i = 0; i < shapes->count; i++)
        if (memcmp(&shapes->items[i], problem, sizeof *problem) == 0)
            return true;
    return false;
}

/* Finds out whether the card has kernels for a problem. Few round V: without one, pv=fp8 is scores=int8 once more. */
static fa2_status find_served(fa2i_generator *generator, const fa2i_card *card, const fa2_problem *problem,
                              bool *ret_served)
{
    fa2i_variant *list = NULL;
    size_t count = 0;
    *ret_served = problem->pv == FA2_PV_EXACT;
    if (*ret_served)
        return FA2_OK;
    const fa2_status st = fa2i_generator_candidates(generator, problem, card, &list, &count);
    for (size_t i = 0; i < count; i++)
        *ret_served = *ret_served || fa2i_recipe_rounds_values(&list[i].recipe);
    fa2i_free(list);
    return st == FA2_E_UNSUPPORTED ? FA2_OK : st;
}

fa2_status fa2i_precisions_extend(fa2i_generator *generator, const fa2i_card *card, fa2i_shapes *shapes)
{
    fa2_status st = FA2_OK;
    const size_t given = shapes->count;
    for (size_t i = 0; i < given; i++) {
        for (int j = 1; j < PRECISIONS && fa2i_precisions_apply(&shapes->items[i]); j++) {
            fa2_problem p = fa2i_precisions_exact(&shapes->items[i]);
            bool served = false;
            set(&p, &precisions[j]);
            if (fa2i_problem_check(&p) == FA2_OK && !has(shapes, &p))
                FA2_TRY(find_served(generator, card, &p, &served));
            if (served)
                FA2_TRY(fa2i_shapes_add(shapes, &p, 0));
        }
    }
done:
    return st;
}

/* ---- tables ---- */

static const char *name_of(const fa2_problem *problem)
{
    for (int i = 0; i < PRECISIONS; i++)
        if (is_of(problem, &precisions[i]))
            return precisions[i].name;
    return "several";
}

static bool is_timed(const fa2i_benchmark *b)
{
    return b->count > 0 && b->timed[0].outcome == FA2I_OUTCOME_OK && b->timed[0].us.n > 0;
}

static const char *format_error(double error, char out[32])
{
    snprintf(out, 32, error < 0 ? "-" : error > 1e3 ? "not finite" : "%.3g %%", 100 * error);
    return out;
}

static void add_row(fa2i_table *table, const fa2i_benchmark *b, double exact_us)
{
    char gain[32], errors[FA2I_NUMBERS][32];
    const fa2i_timed *t = &b->timed[0];
    _Static_assert(FA2I_NUMBERS == 4, "the row has a column for each");
    snprintf(gain, sizeof gain, exact_us > 0 ? "%.3f" : "-", exact_us / t->us.order.median);
    fa2i_table_row(table, "%s%s\t%.3f\t%s\t%s\t%s\t%s\t%s", name_of(&b->problem),
                   b->problem.kv_scales == FA2_SCALES_FP16 ? " fp16" : "", t->us.order.median, gain,
                   format_error(t->relative[0], errors[0]), format_error(t->relative[1], errors[1]),
                   format_error(t->relative[2], errors[2]), format_error(t->relative[3], errors[3]));
}

fa2_status fa2i_precisions_print(const fa2i_benchmark *list, size_t count, FILE *out)
{
    static const char *titles[] = {"precision",    "median us", "exact / it",    "normal",
                                   "K with means", "outliers",  "a column x 100"};
    fa2_status st = FA2_OK;
    for (size_t first = 0; first < count && st == FA2_OK; first++) {
        const fa2_problem exact = fa2i_precisions_exact(&list[first].problem);
        fa2i_table table;
        double exact_us = 0;
        bool is_new = fa2i_precisions_apply(&exact);
        for (size_t i = 0; i < count; i++) {
            const fa2_problem other = fa2i_precisions_exact(&list[i].problem);
            is_new = is_new && (i >= first || memcmp(&exact, &other, sizeof exact) != 0);
            if (is_timed(&list[i]) && memcmp(&exact, &list[i].problem, sizeof exact) == 0)
                exact_us = list[i].timed[0].us.order.median;
        }
        if (!is_new)
            continue;
        fa2i_table_init(&table, "lrrrrrr", titles);
        for (size_t i = first; i < count; i++) {
            const fa2_problem other = fa2i_precisions_exact(&list[i].problem);
            if (is_timed(&list[i]) && memcmp(&exact, &other, sizeof exact) == 0)
                add_row(&table, &list[i], exact_us);
        }
        fprintf(out, "\nby precision: %s; errors of O, relative to fp64\n", fa2i_problem_shape(&exact).text);
        st = fa2i_table_end(&table, out);
    }
    return st;
}
