/*
 * A field report: facts about one card, its kernels and the cost model there, in a file to send. The file is an export
 * (cache/transfer/export.c), which import accepts, followed by lines {"fa2_report":KIND, ...}:
 *
 *     about      fa2's version, the card, driver and NVRTC, clocks and temperature if NVML has them
 *     ceiling    the limits of the card (ceilings.h)
 *     problem    rank correlation, loss of the model's first choice, regret (accuracy.h)
 *     summary    the same over all problems of an operation
 *
 * It contains no name of a person or a machine, no path and no address.
 *
 * Errors: FA2_E_IO, and errors of the cache and the generator. Not thread-safe.
 */
#pragma once

#include <stdio.h>
#include "tuner/bench/accuracy.h"
#include "tuner/bench/ceilings.h"
#include "tuner/bench/nvml.h"

enum { FA2I_FIELD_PROBLEMS = 20, FA2I_FIELD_SEED = 0xf1e1d };

/* Makes the problems on which choices are tested. They are random, but the same everywhere: prefill, decode and chunks
 * of a prefill, fp16, D = 64 and 128. small: for a software device. */
void fa2i_field_problems(bool small, fa2_problem problems[FA2I_FIELD_PROBLEMS], size_t *ret_count);

/* A summary over all problems of an operation. */
typedef struct fa2i_field_summary {
    fa2_op op;
    size_t problems, unknown; /* problems in all; problems whose regret is not known */
    double rank_correlation;  /* median */
    double first_loss_mean, first_loss_worst, regret_mean, regret_worst;
} fa2i_field_summary;

fa2_status fa2i_field_summarize(fa2_op op, const fa2i_accuracy *list, size_t count, fa2i_field_summary *ret_summary);

/* Print lines of a report. */
void fa2i_field_print_about(const fa2i_gpu *gpu, const fa2i_nvml *nvml, const fa2i_conditions *seen, FILE *out);
void fa2i_field_print_ceiling(const fa2i_ceiling *ceiling, FILE *out);
void fa2i_field_print_problem(const fa2i_accuracy *problem, FILE *out);
void fa2i_field_print_summary(const fa2i_field_summary *summary, FILE *out);

/* Prints for people the problems on which the model's first choice lost most, over all operations' lists, at most
 * FA2I_FIELD_MISSES. FA2_E_MEMORY. */
enum { FA2I_FIELD_MISSES = 5 };
fa2_status fa2i_field_print_misses(fa2i_accuracy *const *lists, const size_t *counts, size_t list_count, FILE *out);

/* Compares the summaries in a file with those computed here (count of them). Prints the different ones and counts them
 * in *ret_different. FA2_E_IO. FA2_E_INVALID: the file has no summaries. */
fa2_status fa2i_field_compare(const char *path, const fa2i_field_summary *summaries, size_t count, FILE *out,
                              size_t *ret_different);
