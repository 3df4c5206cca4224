/*
 * The list of operations, and errors over their bounds.
 */
#include "tuner/judge/judge.h"

#include <assert.h>
#include <math.h>
#include "runtime/base/alloc.h"

const fa2i_judge *fa2i_judge_of(fa2_op op)
{
    static const fa2i_judge *const judges[] = {[FA2_OP_FORWARD] = &fa2i_judge_forward,
                                               [FA2_OP_BACKWARD] = &fa2i_judge_backward,
                                               [FA2_OP_MERGE] = &fa2i_judge_merge};
    assert((size_t)op < sizeof judges / sizeof *judges);
    return judges[op];
}

int fa2i_case_feature(const fa2i_case *c, fa2i_operand_id id)
{
    return fa2i_judge_of(c->problem.op)->first_feature + (int)id;
}

fa2_status fa2i_wanted_reserve(fa2i_wanted *wanted)
{
    const fa2_status st = FA2I_NEW(wanted->values, wanted->row_count * (size_t)wanted->width);
    return st != FA2_OK ? st : FA2I_NEW(wanted->exact, wanted->row_count);
}

void fa2i_wanted_done(fa2i_wanted *wanted)
{
    fa2i_free(wanted->values);
    fa2i_free(wanted->exact);
    fa2i_free(wanted->allowed);
    *wanted = (fa2i_wanted){0};
}

fa2i_bound fa2i_bound_of_row(fa2i_bound bound, const double *allowed, size_t row)
{
    bound.absolute += allowed == NULL ? 0 : allowed[row];
    return bound;
}

double fa2i_error_of(double value, double expected, fa2i_bound bound, bool exact)
{
    if (isnan(expected))
        return isnan(value) ? 0 : FA2I_ERROR_NOT_FINITE;
    if (exact)
        return value == expected ? 0 : FA2I_ERROR_NOT_FINITE;
    const double error = fabs(value - expected) / (bound.absolute + bound.relative * fabs(expected));
    return isfinite(error) ? error : FA2I_ERROR_NOT_FINITE;
}
