/*
 * Outputs that a launch merges.
 */
#include "tuner/judge/merge.h"

#include <math.h>
#include <string.h>
#include "tuner/judge/number.h"

/* LSE of ordinary keys: exp of normal scores, over about a hundred keys. */
#define USUAL_LSE 5.0f

/* Says whether a row has no result before the launch. */
static bool is_empty(const fa2i_case *c, const fa2i_place *place)
{
    return !c->timed && (place->row + 3 * place->head + 5 * place->batch) % 5 == 2;
}

static fa2_status fill_statistics(const fa2i_case *c, int operand, size_t count, float *out)
{
    const fa2i_extent e = fa2i_case_extent(c, operand);
    fa2i_case_fill_fp32(c, operand, count, out);
    for (size_t i = 0; i < count; i++) {
        int32_t column;
        const fa2i_place place = fa2i_extent_place(&e, FA2I_LAYOUT_BHSD, (int64_t)i, &column);
        out[i] = is_empty(c, &place) ? -INFINITY : USUAL_LSE + out[i];
    }
    return FA2_OK;
}

fa2_status fa2i_merged_fill(const fa2i_case *c, int operand, size_t count, void *out)
{
    const fa2i_judge *judge = fa2i_judge_of(c->problem.op);
    const fa2i_extent e = fa2i_case_extent(c, operand);
    float *numbers = out;
    if (judge->operands[operand].shape == FA2I_SHAPE_STATISTICS)
        return fill_statistics(c, operand, count, numbers);
    const uint32_t poison = FA2I_POISON; /* NaN; and what lies between rows */
    const bool of_rows = c->problem.op == FA2_OP_FORWARD;
    fa2i_case_fill_fp32(c, operand, count, numbers);
    for (size_t i = 0; i < count; i++) {
        int32_t column;
        const fa2i_place place = fa2i_extent_place(&e, c->layout, (int64_t)i, &column);
        if (column >= e.width || (of_rows && is_empty(c, &place)))
            memcpy(&numbers[i], &poison, sizeof poison);
    }
    return FA2_OK;
}

/* Returns what element `column` of a row of an output was before the launch. */
static double old_value(const fa2i_case *c, const fa2i_inputs *inputs, int operand, const fa2i_place *place, int column)
{
    const fa2i_extent e = fa2i_case_extent(c, operand);
    const int64_t at = fa2i_extent_at(&e, place->batch, place->head, place->row) + column;
    const float *numbers = inputs->data[operand];
    return (double)numbers[(size_t)at % inputs->period[operand]];
}

void fa2i_merge_forward(const fa2i_case *c, const fa2i_inputs *inputs, int o, int lse_operand, fa2i_wanted *outputs,
                        size_t row, double size, double *lse, bool own)
{
    const fa2i_place *place = &outputs->places[row];
    const double old_lse = old_value(c, inputs, lse_operand, place, 0);
    if (c->problem.carry && !own) {
        *lse = isnan(*lse) ? old_lse : *lse; /* of a row that is left alone */
        return;
    }
    const double own_lse = own ? *lse : -INFINITY;
    const double most = fmax(own_lse, old_lse);
    const double own_weight = isinf(own_lse) ? 0 : exp(own_lse - most);
    const double old_weight = isinf(old_lse) ? 0 : exp(old_lse - most), sum = own_weight + old_weight;
    double *values = outputs->values + row * (size_t)outputs->width, apart = 0, rounding = 0;
    for (int d = 0; d < outputs->width; d++) {
        const double old = old_weight > 0 || !own ? old_value(c, inputs, o, place, d) : 0;
        if (own_weight > 0 && old_weight > 0)
            apart = fmax(apart, fabs(values[d] - old));
        values[d] = !own || own_weight == 0 ? old : (own_weight * values[d] + old_weight * old) / sum;
        if (c->problem.carry && own_weight == 0)
            values[d] = (double)fa2i_rounded(c->problem.dtype, (float)values[d]);
        else if (c->problem.carry)
            rounding = fmax(rounding, fa2i_half_unit(c->problem.dtype, values[d]));
    }
    outputs->allowed[row] += rounding;
    if (own_weight > 0 && old_weight > 0) /* else nothing is mixed */
        outputs->allowed[row] +=
            FA2I_SCORE_ERROR * (size + fabs(old_lse)) * apart * own_weight * old_weight / (sum * sum);
    outputs->exact[row] = own_weight == 0 || (outputs->exact[row] && old_weight == 0);
    *lse = sum == 0 ? -INFINITY : most + log(sum);
}

void fa2i_merge_gradient(const fa2i_case *c, const fa2i_inputs *inputs, fa2i_wanted *gradient)
{
    for (size_t row = 0; row < gradient->row_count; row++) {
        const fa2i_place *place = &gradient->places[row];
        double *values = gradient->values + row * (size_t)gradient->width;
        for (int d = 0; d < gradient->width; d++) {
            const double old = old_value(c, inputs, place->operand, place, d);
            gradient->exact[row] |= isnan(values[d]) != 0;
            values[d] = isnan(values[d]) ? old : values[d] + old;
        }
    }
}
