/*
 * What attention forward should give: fp64 on the CPU, and how far from it a kernel may be.
 *
 * Shapes and layout: as in fa2.h, with host copies of Q, K and V as fp16 or bf16 bits. The rows
 * that are wanted are listed, so a large problem can be checked on samples.
 *
 * The bound is FlashAttention-2's own test rule: the largest error of O over all rows compared must
 * not exceed 2 x the largest error of a plain implementation in the same precision, plus 1e-5.
 * Plain means: scores rounded to the dtype, capped and added to with every step rounded to the dtype, softmax, P
 * rounded to the dtype, P V accumulated in fp32, O rounded to the dtype; an element's error counts as half a
 * unit in the last place at least, as on a few rows all may happen to be rounded well. LSE never leaves fp32, so it
 * has a bound of its own, fa2i_lse_bound. NaN and infinity in O are always wrong; a row that sees no
 * key must be exactly 0, with LSE = -infinity, or the sink.
 *
 * Errors: FA2_E_MEMORY. Thread-safe: no state.
 */
#ifndef FA2I_REFERENCE_H
#define FA2I_REFERENCE_H

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
    float softmax_scale; /* 0: 1 / sqrt(head_dim) */
    float softcap;       /* of a problem that has one; else 0 */
    fa2i_features features;
    fa2i_host_tensor q, k, v;
    fa2i_host_tensor new_k,
        new_v;            /* of a problem that appends: [batch, new keys, heads_kv, head_dim] */
    fa2i_angles angles;   /* of one that rotates */
    fa2i_said said;       /* of a problem whose sequences have lengths */
    const fa2i_row *rows; /* borrowed; fastest when rows of one head are neighbours */
    size_t row_count;
    int threads; /* <= 1: in the calling thread */
} fa2i_reference_request;

typedef struct fa2i_reference {
    size_t row_count;
    int head_dim_v;
    float softcap;      /* 0: none */
    double *o;          /* [row_count, head_dim_v] */
    double *lse;        /* [row_count], natural logarithm */
    bool *empty;        /* [row_count]: it sees no key */
    double plain_error; /* the plain implementation's largest error in O */
} fa2i_reference;

/* On FA2_OK *ret_reference belongs to the caller (fa2i_reference_done). Costs about
 * 2 * row_count * seq_k * (head_dim + head_dim_v) multiplications, and 4 * seq_k * (head_dim + head_dim_v) bytes
 * per thread: as
 * many threads as fit into 1 GiB, at least one. */
fa2_status fa2i_reference_compute(const fa2i_reference_request *request,
                                  fa2i_reference *ret_reference);
void fa2i_reference_done(fa2i_reference *reference); /* zeroed objects are fine */

/* Of O. */
fa2i_bound fa2i_reference_bound(const fa2i_reference *reference);

/* Of LSE: 2e-4 for the sum of the exponentials (fp32, approximate exp2) and 2e-5 of the value for the
 * fp32 scores; capped scores, which softcap bounds (0: none are), have tanh.approx's relative error of
 * 2^-11. */
fa2i_bound fa2i_lse_bound(float softcap);

/* A score as the plain implementation has it: rounded behind each step. *ret_tanh, of a score that is
 * capped: it over softcap, before that. */
float fa2i_plain_score(fa2_dtype dtype, double score, float softcap, float *ret_tanh);

typedef struct fa2i_comparison {
    double error;     /* largest error over its bound, of O and LSE: <= 1 is right */
    size_t worst_row; /* index into the rows */
    bool worst_is_lse;
    double worst_value, worst_expected;
} fa2i_comparison;

/* Compare O ([row_count, head_dim_v] bits, rows in the order of the request) and LSE ([row_count],
 * NULL: not computed) with the reference. */
void fa2i_reference_compare(const fa2i_reference *reference, fa2_dtype dtype, const uint16_t *o,
                            const float *lse, fa2i_comparison *ret_comparison);

#endif
