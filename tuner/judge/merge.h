/*
 * Outputs that a launch merges (FA2_PARTIAL_MERGE): what they hold before it, and what is expected after it.
 *
 * Before a launch, O and the gradients are nearly normal numbers. LSE is near the LSE of ordinary keys. Unless the case is
 * timed, some rows have no result yet: their LSE is -infinity, and their O is NaN, which no launch may read.
 *
 * Pure functions; thread-safe.
 */
#pragma once

#include "tuner/judge/judge.h"

/* An fa2i_operand.fill: of LSE, and of all other outputs that are merged. */
fa2_status fa2i_merged_fill(const fa2i_case *c, int operand, size_t count, void *out);

/* Turns the expected values of a row of forward into those after merging. lse: of the row, in and out. own: whether
 * the row belongs to a sequence. Otherwise the old values are expected; with carry such a row is written as always, or
 * left alone. size: the mean magnitude of the row's scores. An error of LSE changes the weights with which two results
 * are mixed, so outputs->allowed grows. */
void fa2i_merge_forward(const fa2i_case *c, const fa2i_inputs *inputs, int o, int lse_operand, fa2i_wanted *outputs,
                        size_t row, double size, double *lse, bool own);

/* Adds the old values to the expected values of a gradient. Rows that no launch writes keep them. */
void fa2i_merge_gradient(const fa2i_case *c, const fa2i_inputs *inputs, fa2i_wanted *gradient);
