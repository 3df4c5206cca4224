/*
 * How far results may be from exact ones if a problem permits 8-bit integers in Q K^T (FA2_SCORES_INT8).
 *
 * The model: a query has one step, its largest absolute value / 127. K without its mean key has one step per sequence
 * and head, likewise; kernels have smaller ones, for fewer keys. Rounding changes each number by up to half a step,
 * evenly distributed and independently. So the variance of a change is step^2 / 12, and scores and results change by
 * sums of many such changes:
 *
 *     variance of a score   scale^2 (step_q^2 |k - mean|^2 + step_k^2 |q|^2 + D step_q^2 step_k^2 / 12) / 12
 *     variance of O         sum over keys of (P (V - O))^2 times the score's variance
 *     variance of LSE       at most the sum over keys of P times the score's variance
 *
 * Data of large problems repeats (case.h). Changes of equal keys are equal, so a variance is multiplied by how often a
 * key occurs.
 *
 * The allowance is FA2I_INT8_SIGMAS standard deviations, which a normal number exceeds once in 10^9. Right kernels stay
 * below, because their steps are for fewer keys. Planted bugs exceed it: the scale of another group of keys 10 times, a
 * product with the mean key that is left out 6 times (tests/sim/bugs_int8.c).
 *
 * Pure functions; thread-safe.
 */
#pragma once

#include <stdint.h>

#define FA2I_INT8_SIGMAS 6.0

/* The keys of a head of a sequence. */
typedef struct fa2i_int8_keys {
    double step;     /* of K without its mean */
    double *squares; /* [seq_k]: |k - mean|^2; borrowed */
} fa2i_int8_keys;

/* Measures keys [count, head_dim]. Writes keys->squares. */
void fa2i_int8_measure(const float *k, int32_t count, int head_dim, fa2i_int8_keys *keys);

/* The part of a score's variance that all keys of a query share, and the factor of a key's square. */
typedef struct fa2i_int8_query {
    double shared, per_square;
} fa2i_int8_query;

fa2i_int8_query fa2i_int8_query_of(const float *q, int head_dim, double scale, const fa2i_int8_keys *keys);

/* Returns the variance of the score of a query and key j. */
static inline double fa2i_int8_variance(const fa2i_int8_query *query, const fa2i_int8_keys *keys, int32_t j)
{
    return query->shared + query->per_square * keys->squares[j];
}
