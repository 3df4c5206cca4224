/*
 * Tables that show how times grow with one size: makes problems that differ only in it, and prints them. Pure except
 * for the printing; not thread-safe.
 */
#pragma once

#include <stdio.h>
#include "tuner/bench/benchmark.h"
#include "tuner/input/shapes.h"

/* S: the keys, and also the queries if there are as many. */
typedef enum fa2i_scale { FA2I_SCALE_S, FA2I_SCALE_B, FA2I_SCALE_D, FA2I_SCALES } fa2i_scale;

/* Parses the letter of an axis. Returns false for any other text. */
bool fa2i_scale_parse(const char *text, fa2i_scale *ret_scale);

/* Appends, for each problem, those that differ from it in one of these axes (bits 1 << fa2i_scale): S from a quarter to
 * four times it, B up to sixteen times it, D = 32, 64, 128 and 256. Invalid problems are left out. */
fa2_status fa2i_scaling_extend(fa2i_shapes *shapes, unsigned axes);

/* Prints, for each axis, one table per set of problems that differ only in it, in the order of its values. Problems
 * without a time are left out. FA2_E_MEMORY. */
fa2_status fa2i_scaling_print(const fa2i_benchmark *list, size_t count, FILE *out);
