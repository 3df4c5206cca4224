/*
 * O and LSE of sampled rows against the reference (tuner/judge/reference.h).
 */
#pragma once

#include <math.h>
#include "tuner/judge/attention.h"
#include "tuner/judge/judge.h"
#include "tuner/judge/number.h"
#include "tuner/judge/reference.h"

typedef struct reference_comparison {
    double error;     /* largest error over its bound, in O and LSE: <= 1 is right */
    size_t worst_row; /* index into the rows */
    bool worst_is_lse;
    double worst_value, worst_expected;
} reference_comparison;

static void note_error(reference_comparison *comparison, size_t row, bool is_lse, double value, double expected,
                       double error)
{
    if (error <= comparison->error)
        return;
    *comparison = (reference_comparison){
        .error = error, .worst_row = row, .worst_is_lse = is_lse, .worst_value = value, .worst_expected = expected};
}

/* Compares O ([row_count, head_dim_v] elements, rows in the order of the request) and LSE ([row_count]; NULL: not
 * computed) with the reference. */
static void reference_compare(const fa2i_reference *reference, fa2_dtype dtype, const void *o, const float *lse,
                              reference_comparison *ret_comparison)
{
    reference_comparison comparison = {0};
    const size_t columns = (size_t)reference->head_dim_v;
    for (size_t i = 0; i < reference->row_count; i++) {
        const fa2i_bound bound = fa2i_bound_of_row(fa2i_reference_bound(reference), reference->allowed_o, i);
        const fa2i_bound lse_bound =
            fa2i_bound_of_row(fa2i_lse_bound(dtype, &reference->factors), reference->allowed_lse, i);
        for (size_t d = 0; d < columns; d++) {
            double value = fa2i_get_number(dtype, o, i * columns + d);
            double expected = reference->o[i * columns + d];
            note_error(&comparison, i, false, value, expected,
                       fa2i_error_of(value, expected, bound, reference->empty[i]));
        }
        if (lse != NULL)
            note_error(&comparison, i, true, lse[i], reference->lse[i],
                       fa2i_error_of(lse[i], reference->lse[i], lse_bound, isinf(reference->lse[i]) != 0));
    }
    *ret_comparison = comparison;
}
