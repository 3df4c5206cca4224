/*
 * K and V in 8 bits: test data, and rows of a reference.
 *
 * A case's K is the K that it would have in 16 bits, rounded: each row has its largest absolute value / 127 (e4m3:
 * 448) as its scale, times 1 to 4, which differs from row to row. So a kernel that takes another row's scale is found.
 * Element indexes count in the 16-bit tensor. Scales lie in the order of the rows in memory.
 *
 * Pure functions; thread-safe. Errors: FA2_E_MEMORY.
 */
#pragma once

#include "tuner/judge/features.h"
#include "tuner/judge/judge.h"
#include "tuner/judge/rows.h"

/* Write the first `count` elements of K or V, or of its scales. operand: K or V. */
fa2_status fa2i_kv8_fill(const fa2i_case *c, int operand, size_t count, int8_t *out);
fa2_status fa2i_kv8_fill_scales(const fa2i_case *c, int operand, size_t count, void *out);

/* Rounds a new row to 8 bits as a launch does. Returns its scale. */
float fa2i_kv8_round(const fa2_problem *problem, int columns, const float *row, int8_t *bytes);

/* Returns the number that a byte means, without its scale. */
float fa2i_kv8_number(fa2_kv kv, int8_t byte);

/* Reads a row of K or V, times its scale. batch, row: in the tensor. id: the operand of its scales. */
void fa2i_kv8_row(const fa2_problem *problem, const fa2i_host_tensor *tensor, const fa2i_features *features, int id,
                  int64_t batch, int64_t row, int32_t head, int columns, float *out);
