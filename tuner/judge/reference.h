/*
 * The expected results of attention forward in fp64 on the CPU, and how far a kernel may be from them.
 *
 * Shapes and layout: as in fa2.h, with host copies of Q, K and V as bits of the dtype. The caller lists the rows that
 * it wants, so that samples of a large problem can be checked.
 *
 * The bound is FlashAttention-2's own test rule. The largest error of O over all compared rows must not exceed 2 x the
 * largest error of a plain implementation in the same precision, plus 1e-5. The plain implementation works as follows:
 * - Scores are rounded to the dtype. Capping them and adding to them rounds each step to the dtype.
 * - P of the softmax is rounded to the dtype. P V is summed in fp32. O is rounded to the dtype.
 * - An element's error counts as at least half a unit in the last place, because a few rows may all be rounded well by
 *   luck.
 * Kernels that use a permission for fp16 sums (fa2_sums) have the same bound: their errors are 1.0 to 1.9 times as large
 * as with fp32 sums (tests/sim/test_precision.c). If the problem permits rounded scores, each row is allowed more:
 * int8_scores.h.
 *
 * With fp32 nothing is rounded. The plain implementation sums products of Q K^T and P V in fp32, one after the other.
 * Kernels sum three products for one (templates/fp32/tf32.cuh), so 3 x the plain error is allowed. The floor is 2e-6.
 *
 * With FA2_PARTIAL_WRITE or FA2_PARTIAL_MERGE, O is fp32: only P is rounded, by half a unit of its own at most. That of
 * a row's only key is rounded by kernels with whole exponents alone (templates/forward/row_ends.cuh). Errors
 * of the scores in fp32 count then (FA2I_SCORE_ERROR), and so do those of the weights of merged results.
 *
 * LSE never leaves fp32, so it has its own bound, fa2i_lse_bound. Where a score and what is added to it nearly cancel,
 * the bound is relative to the larger of them. NaN and infinity in O are always wrong. A row that
 * sees no key must be exactly 0, with LSE = -infinity, or the sink.
 *
 * Errors: FA2_E_MEMORY. Thread-safe: no state.
 */
#pragma once

#include <stdbool.h>
#include "tuner/judge/attention.h"
#include "tuner/judge/features.h"
#include "tuner/judge/judge.h"
#include "tuner/judge/number.h"
#include "tuner/judge/rotary.h"
#include "tuner/judge/rows.h"

typedef struct fa2i_row {
    int32_t batch, head, row; /* head: of Q */
} fa2i_row;

typedef struct fa2i_reference_request {
    fa2_problem problem;
    fa2i_factors factors;
    fa2i_features features;
    fa2i_host_tensor q, k, v;
    fa2i_host_tensor new_k, new_v; /* of a problem that appends: [batch, new keys, heads_kv, head_dim] */
    fa2i_angles angles;            /* of a problem that rotates */
    fa2i_said said;                /* of a problem whose sequences have lengths */
    const fa2i_row *rows;          /* borrowed; fastest when rows of one head are neighbours */
    size_t row_count;
    int threads; /* <= 1: in the calling thread */
} fa2i_reference_request;

typedef struct fa2i_reference {
    size_t row_count;
    int head_dim_v;
    fa2i_factors factors;
    double *o;                       /* [row_count, head_dim_v] */
    double *lse;                     /* [row_count], natural logarithm */
    bool *empty;                     /* [row_count]: the row sees no key */
    double *sizes;                   /* [row_count], mean magnitude of the scores and of what is added to them */
    double *allowed_o, *allowed_lse; /* [row_count], beyond the bounds; allowed_o may be NULL: nothing */
    double plain_error;              /* the plain implementation's largest error in O */
    double times_plain;              /* how many times that an element of O may be wrong */
    double floor;                    /* and by how much more */
} fa2i_reference;

/* On FA2_OK the caller owns *ret_reference (fa2i_reference_done). It costs about 2 * row_count * seq_k * (head_dim +
 * head_dim_v) multiplications. Each thread needs 4 * seq_k * (head_dim + head_dim_v) bytes. It uses as many threads as
 * fit into 1 GiB, at least one. */
fa2_status fa2i_reference_compute(const fa2i_reference_request *request, fa2i_reference *ret_reference);
void fa2i_reference_done(fa2i_reference *reference); /* accepts zeroed objects */

/* The bound of O. allowed_o is the error that the problem's precision allows beyond it. */
fa2i_bound fa2i_reference_bound(const fa2i_reference *reference);

/* The bound of LSE: 2e-4 for the sum of the exponentials (fp32, approximate exp2), and 2e-5 of the value for the fp32
 * scores. With fp32 elements both are 1/16 of that. Capped scores also have tanh.approx's
 * error (fa2i_score_error). */
fa2i_bound fa2i_lse_bound(fa2_dtype dtype, const fa2i_factors *factors);
