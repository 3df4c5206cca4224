/*
 * Problems that differ only in precision: makes them, and prints a table of their times and errors. Pure except for the
 * printing; not thread-safe.
 */
#pragma once

#include <stdio.h>
#include "runtime/lua/generator.h"
#include "tuner/bench/benchmark.h"
#include "tuner/input/shapes.h"

/* Returns whether a problem's precision can be compared: forward, whose O is the product of its operands alone. */
bool fa2i_precisions_apply(const fa2_problem *problem);

/* Returns the problem without permissions, and with K and V of the dtype. */
fa2_problem fa2i_precisions_exact(const fa2_problem *problem);

/* Appends, for each exact problem, those with fp16 sums, with 8-bit scores, with both, with 8-bit scores and e4m3 numbers
 * in P V where the card has kernels for them, and with K and V in 8 bits. Invalid problems are left out, and those that
 * are there already. */
fa2_status fa2i_precisions_extend(fa2i_generator *generator, const fa2i_card *card, fa2i_shapes *shapes);

/* Prints a table for each exact problem of the list. FA2_E_MEMORY. */
fa2_status fa2i_precisions_print(const fa2i_benchmark *list, size_t count, FILE *out);
