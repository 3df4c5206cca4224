/*
 * The effect of features on scores and on P, in fp64, as fa2.h defines them. All references use these functions. Pure;
 * thread-safe.
 */
#pragma once

#include "runtime/ops/call.h"
#include "runtime/ops/operands.h"

/* Operands by their line in operands.def, in host memory, borrowed. Operands that the problem does not ask for are
 * not read. */
typedef struct fa2i_features {
    const void *data[FA2I_OPERAND_COUNT];
    int64_t period[FA2I_OPERAND_COUNT];                     /* element i is data[i % period] */
    int64_t strides[FA2I_OPERAND_COUNT][FA2I_OPERAND_RANK]; /* as a call gets them */
    fa2_dropout dropout;                                    /* with the seed and the offset that a launch reads */
    fa2_dropout_origin origin;                              /* of dropout */
    float distance_shift;
    int32_t bias_first; /* the bias column of the sequence's first key, after padding */
} fa2i_features;

/* ---- scores ---- */

/* Returns a scaled score as the factors of the call change it. */
double fa2i_score_modified(double score, const fa2i_factors *factors);

/* The inverse of fa2i_score_modified, for scores that it can yield. */
double fa2i_score_before(double modified, const fa2i_factors *factors);

/* Returns a score as the plain implementation computes it, rounded after each step. *ret_slope: the derivative, from
 * numbers rounded likewise. */
float fa2i_plain_score(fa2_dtype dtype, double score, const fa2i_factors *factors, float *ret_slope);

/* The derivative of fa2i_score_modified, and how far kernels may be from it, because they compute with the
 * approximations of PTX: p_error, relative, in the exponential of the score; slope_error in the derivative. */
typedef struct fa2i_slope {
    double slope, p_error, slope_error;
} fa2i_slope;

fa2i_slope fa2i_score_slope(double score, const fa2i_factors *factors);

/* Returns the error of a modified score that these approximations guarantee. */
double fa2i_score_error(const fa2i_factors *factors);

/* ---- terms and P ---- */

/* Returns the number that is added to a scaled and modified score; -INFINITY hides the key. */
double fa2i_score_term(const fa2_problem *problem, const fa2i_features *features, int32_t batch, int32_t head,
                       int32_t query, int32_t key, double score);

/* Returns the score of the sink column; -INFINITY: there is none. */
double fa2i_sink_score(const fa2_problem *problem, const fa2i_features *features, int32_t head);

/* Returns the factor of an element of P: 0 if it is dropped, else the factor of kept elements. */
double fa2i_kept(const fa2_problem *problem, const fa2i_features *features, int32_t batch, int32_t head, int32_t query,
                 int32_t key);
