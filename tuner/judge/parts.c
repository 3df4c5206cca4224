/*
 * Merging partial results: operands, cases, data, reference, call.
 *
 * Partial result i of batch b is batch i * B + b of one tensor. With the pattern EMPTY some rows saw no key, in one
 * partial result or in all: their LSE is -infinity, and their O is NaN, which must not count.
 */
#include <math.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "tuner/judge/judge.h"
#include "tuner/judge/number.h"

enum { PARTS, PART_LSE, O, LSE, OPERANDS };

static fa2_status fill(const fa2i_case *c, int operand, size_t count, void *out);
static const fa2i_operand operands[OPERANDS] = {
    [PARTS] = {"parts", FA2I_SHAPE_PARTS, .patterned = true, .fill = fill},
    [PART_LSE] = {"parts_lse", FA2I_SHAPE_PART_STATISTICS, .patterned = true, .fill = fill},
    [O] = {"O", FA2I_SHAPE_OUTPUTS, .output = true},
    [LSE] = {"LSE", FA2I_SHAPE_STATISTICS, .output = true, .optional = true},
};

/* ---- cases ---- */

static const struct plan {
    const char *name;
    int32_t batch, heads, seq, count;
    fa2i_layout layout;
    int32_t want_lse;
    float magnitude; /* standard deviation of LSE */
} plans[] = {
    {"two, rows that fill blocks", 1, 2, 256, 2, FA2I_LAYOUT_BSHD, 1, 1},
    {"two, without LSE", 2, 3, 67, 2, FA2I_LAYOUT_BHSD, 0, 1},
    {"one", 1, 2, 33, 1, FA2I_LAYOUT_BSHD, 1, 1},
    {"eight, gaps", 2, 2, 45, 8, FA2I_LAYOUT_GAPPED, 1, 4},
    {"more than are loaded together", 3, 5, 7, 19, FA2I_LAYOUT_BSHD, 1, 1},
    /* exp of a difference overflows, or is 0. */
    {"LSE far apart", 1, 3, 40, 5, FA2I_LAYOUT_BHSD, 1, 300},
    {"one row each", 4, 7, 1, 3, FA2I_LAYOUT_GAPPED, 1, 1},
    {"one row", 1, 1, 1, 2, FA2I_LAYOUT_BSHD, 1, 1},
};

_Static_assert(sizeof plans / sizeof *plans <= FA2I_VERIFY_CASES_MAX, "room for every case");

static size_t list_cases(const fa2_problem *class, int sm_count, fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX])
{
    size_t count = 0;
    (void)sm_count; /* no kernel divides its work by it */
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        const struct plan *plan = &plans[i];
        fa2i_case c = {.problem = *class,
                       .layout = plan->layout,
                       .want_lse = plan->want_lse,
                       .pattern = FA2I_PATTERN_EMPTY,
                       .q_magnitude = plan->magnitude,
                       .seed = 3000 + i};
        c.problem.batch = plan->batch;
        c.problem.heads_q = c.problem.heads_kv = plan->heads;
        c.problem.seq_q = plan->seq;
        c.problem.seq_k = plan->count;
        cases[count++] = (fa2i_verify_case){.name = plan->name, .c = c};
    }
    return count;
}

/* ---- data ---- */

/* What a row of a partial result is. NAN_OF_QUERY: of a query with a NaN; all others of the row are empty. */
typedef enum part_row { FULL, EMPTY, NAN_OF_QUERY } part_row;

/* place.batch counts the batches of all partial results. */
static part_row kind_of(const fa2i_case *c, const fa2i_place *place)
{
    const int32_t batch = place->batch % c->problem.batch, part = place->batch / c->problem.batch;
    const int32_t number = place->row + 3 * place->head + 5 * batch;
    if (c->pattern != FA2I_PATTERN_EMPTY)
        return FULL;
    if (number % 14 == 9 && part == number % c->problem.seq_k)
        return NAN_OF_QUERY;
    return number % 7 == 2 || (number + part) % 4 == 1 ? EMPTY : FULL;
}

static fa2_status fill(const fa2i_case *c, int operand, size_t count, void *out)
{
    const fa2i_extent e = fa2i_case_extent(c, operand);
    const uint32_t poison = FA2I_POISON; /* NaN; and what lies between rows */
    const fa2i_layout layout = operand == PARTS ? c->layout : FA2I_LAYOUT_BHSD;
    float *numbers = out;
    fa2i_case_fill_fp32(c, operand, count, numbers);
    for (size_t i = 0; i < count; i++) {
        int32_t column;
        const fa2i_place place = fa2i_extent_place(&e, layout, (int64_t)i, &column);
        const part_row kind = kind_of(c, &place);
        if (operand == PART_LSE)
            numbers[i] = kind == NAN_OF_QUERY ? NAN : kind == EMPTY ? -INFINITY : c->q_magnitude * numbers[i];
        else if (column >= e.width || kind != FULL)
            memcpy(&numbers[i], &poison, sizeof poison);
    }
    return FA2_OK;
}

/* ---- expected results ---- */

/* Returns an element of a partial result. */
static double element(const fa2i_case *c, const fa2i_inputs *inputs, int operand, const fa2i_place *place, int32_t part,
                      int column)
{
    const fa2i_extent e = fa2i_case_extent(c, operand);
    const int32_t batch = part * c->problem.batch + place->batch;
    const int64_t at = fa2i_extent_at(&e, batch, place->head, place->row) + column;
    const float *numbers = inputs->data[operand];
    return (double)numbers[(size_t)at % inputs->period[operand]];
}

/* Computes a row of O. Returns its LSE. Both are NaN if some LSE is. */
static double merge_row(const fa2i_case *c, const fa2i_inputs *inputs, const fa2i_place *place, int width, double *o)
{
    const int32_t count = c->problem.seq_k;
    double most = -INFINITY, sum = 0;
    bool has_nan = false;
    for (int32_t i = 0; i < count; i++) {
        const double lse = element(c, inputs, PART_LSE, place, i, 0);
        most = fmax(most, lse);
        has_nan |= isnan(lse) != 0;
    }
    for (int d = 0; d < width; d++)
        o[d] = has_nan ? NAN : 0;
    if (has_nan)
        return NAN;
    for (int32_t i = 0; i < count && !isinf(most); i++) {
        const double lse = element(c, inputs, PART_LSE, place, i, 0), weight = isinf(lse) ? 0 : exp(lse - most);
        sum += weight;
        for (int d = 0; d < width && !isinf(lse); d++)
            o[d] += weight * element(c, inputs, PARTS, place, i, d);
    }
    for (int d = 0; d < width && sum > 0; d++)
        o[d] /= sum;
    return sum > 0 ? most + log(sum) : -INFINITY;
}

/* Half a unit of the last place, and roundings of fp32: of sums of normal numbers, and of exp, whose error grows with
 * its argument. */
static fa2i_bound bound_of(const fa2_problem *p)
{
    const double unit = p->partial ? 0 : fa2i_half_unit(p->dtype, 1.0);
    return (fa2i_bound){.absolute = 2e-5, .relative = 1.01 * unit};
}

static fa2_status compute(const fa2i_case *c, const fa2i_inputs *inputs, int threads, fa2i_wanted *outputs)
{
    fa2_status st = FA2_OK;
    fa2i_wanted *o = &outputs[0], *lse = fa2i_case_has_lse(c) ? &outputs[1] : NULL;
    (void)threads; /* there is little to compute */
    FA2_TRY(fa2i_wanted_reserve(o));
    if (lse != NULL)
        FA2_TRY(fa2i_wanted_reserve(lse));
    o->bound = bound_of(&c->problem);
    for (size_t i = 0; i < o->row_count; i++) {
        const double row_lse = merge_row(c, inputs, &o->places[i], o->width, o->values + i * (size_t)o->width);
        o->exact[i] = !isfinite(row_lse);
        if (lse == NULL)
            continue;
        lse->values[i] = row_lse;
        lse->exact[i] = o->exact[i];
    }
    if (lse != NULL)
        lse->bound = (fa2i_bound){.absolute = 1e-5, .relative = 1e-6};
done:
    return st;
}

/* ---- the call ---- */

/* The distance of partial results of a tensor: the batches of one. */
static int64_t step_of(const fa2i_case *c, int operand)
{
    const fa2i_extent e = fa2i_case_extent(c, operand);
    return e.stride_batch * c->problem.batch;
}

static fa2i_arguments make_arguments(const fa2i_case *c, const uint64_t addresses[FA2I_OPERANDS_MAX],
                                     uint64_t workspace, size_t workspace_bytes)
{
    return (fa2i_arguments){.merge = {.struct_bytes = sizeof(fa2_merge_args),
                                      .parts = fa2i_case_tensor(c, addresses, PARTS),
                                      .parts_stride = step_of(c, PARTS),
                                      .parts_lse = (const float *)(uintptr_t)addresses[PART_LSE],
                                      .parts_lse_stride = step_of(c, PART_LSE),
                                      .o = fa2i_case_tensor(c, addresses, O),
                                      .lse = (float *)(uintptr_t)addresses[LSE],
                                      .workspace = (void *)(uintptr_t)workspace,
                                      .workspace_bytes = workspace_bytes}};
}

const fa2i_judge fa2i_judge_merge = {.operands = operands,
                                     .operand_count = OPERANDS,
                                     .first_feature = OPERANDS,
                                     .cases = list_cases,
                                     .reference = compute,
                                     .arguments = make_arguments};
