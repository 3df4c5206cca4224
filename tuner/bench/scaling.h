/*
 * How times grow with one size: problems that differ in it alone, made and shown as a table. Pure but for the
 * printing; not thread-safe.
 */
#ifndef FA2I_SCALING_H
#define FA2I_SCALING_H

#include <stdio.h>
#include "tuner/bench/benchmark.h"
#include "tuner/input/shapes.h"

/* S: the keys, and the queries where there are as many. */
typedef enum fa2i_scale { FA2I_SCALE_S, FA2I_SCALE_B, FA2I_SCALE_D, FA2I_SCALES } fa2i_scale;

/* The letter of an axis; false for any other. */
bool fa2i_scale_parse(const char *text, fa2i_scale *ret_scale);

/* Put behind each problem those that differ from it in these axes (bits 1 << fa2i_scale), one at a time: S from
 * a quarter to four times it, B up to sixteen times it, D = 32, 64, 128 and 256. Those that cannot be are left
 * out. */
fa2_status fa2i_scaling_extend(fa2i_shapes *shapes, unsigned axes);

/* For each axis, a table for each set of problems that differ in it alone, in the order of its values. Problems
 * without a time are left out. FA2_E_MEMORY. */
fa2_status fa2i_scaling_print(const fa2i_benchmark *list, size_t count, FILE *out);

#endif
