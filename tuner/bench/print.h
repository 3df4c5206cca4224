/*
 * Prints a benchmark. For people: text, for each problem when it is measured. For programs: CSV with a row per kernel
 * and problem, or one JSON object. Times are us, sizes bytes. Not thread-safe.
 */
#pragma once

#include <stdio.h>
#include "tuner/bench/benchmark.h"

typedef enum fa2i_format { FA2I_FORMAT_TEXT, FA2I_FORMAT_CSV, FA2I_FORMAT_JSON } fa2i_format;

/* Print the begin, one problem, and the end. index: how many problems were printed before. FA2_E_MEMORY. */
void fa2i_bench_print_begin(const fa2i_benchmarks *all, fa2i_format format, FILE *out);
fa2_status fa2i_bench_print(const fa2i_benchmarks *all, const fa2i_benchmark *b, size_t index, fa2i_format format,
                            FILE *out);
void fa2i_bench_print_end(fa2i_format format, FILE *out);
