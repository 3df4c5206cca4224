/*
 * Is a kernel right? The expected results of a case, and the verdict on a kernel's results, for any operation
 * (tuner/judge/judge.h has the cases). Nothing here uses the GPU: tuner/worker/worker.h runs the kernels.
 *
 * Errors: FA2_E_MEMORY. Thread-safe: no state.
 */
#pragma once

#include "cache/cache.h"
#include "tuner/judge/judge.h"

enum { FA2I_VERIFY_ROWS = 32 };

/* The expected results of a case, for all its rows or for some. */
typedef struct fa2i_expected {
    fa2i_case c;
    bool all;           /* outputs are judged as they lie on the device; else the places alone, packed */
    fa2i_place *places; /* owned; output by output, in the order of the operands */
    size_t place_count;
    fa2i_wanted outputs[FA2I_OPERANDS_MAX];
    int output_count;
    size_t output_bytes; /* of a kernel's results: see fa2i_worker_check */
} fa2i_expected;

/* Expects all rows, in the order batch, head, row. On FA2_OK the caller owns *ret_expected (fa2i_expected_done). */
fa2_status fa2i_expected_all(const fa2i_case *c, int threads, fa2i_expected *ret_expected);

/* Expects FA2I_VERIFY_ROWS rows from a few heads of each output. The seed chooses them; the first and the last row are
 * among them. */
fa2_status fa2i_expected_sampled(const fa2i_case *c, uint64_t seed, int threads, fa2i_expected *ret_expected);
void fa2i_expected_done(fa2i_expected *expected); /* accepts zeroed objects */

/* Judges a kernel's results (output_bytes, as the worker sends them): OK or WRONG, the largest error over its bound,
 * and where. overwritten: words around the outputs that the kernel changed. GAPPED layouts also have the gaps between
 * rows checked. name: of the case, for the detail. */
void fa2i_expected_judge(const fa2i_expected *expected, const char *name, const void *output, uint32_t overwritten,
                         fa2i_verification *ret_verdict);

/* Returns the distance of a kernel's results from the expected ones, over all numbers of all outputs that should be
 * finite. A number that is not finite, but should be, counts as FA2I_ERROR_NOT_FINITE. */
typedef struct fa2i_errors {
    double max, mean; /* of |value - expected| */
    double relative;  /* the sum of these over the sum of |expected| */
} fa2i_errors;
fa2i_errors fa2i_expected_errors(const fa2i_expected *expected, const void *output);
