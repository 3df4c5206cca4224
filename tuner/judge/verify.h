/*
 * Is a kernel right? What a case should give, and the verdict over what a kernel gave, for any
 * operation (tuner/judge/judge.h has the cases). No GPU here: tuner/worker/worker.h runs the kernels.
 *
 * Errors: FA2_E_MEMORY. Thread-safe: no state.
 */
#ifndef FA2I_VERIFY_H
#define FA2I_VERIFY_H

#include "cache/cache.h"
#include "tuner/judge/judge.h"

enum { FA2I_VERIFY_ROWS = 32 };

/* What a case should give, in all its rows or in some. */
typedef struct fa2i_expected {
    fa2i_case c;
    bool all;           /* outputs are judged as they lie on the device; else the places, packed */
    fa2i_place *places; /* owned; output by output, in the order of the operands */
    size_t place_count;
    fa2i_wanted outputs[FA2I_OPERANDS_MAX];
    int output_count;
    size_t output_bytes; /* of what a kernel gives: see fa2i_worker_check */
} fa2i_expected;

/* All rows, in the order batch, head, row. On FA2_OK *ret_expected belongs to the caller
 * (fa2i_expected_done). */
fa2_status fa2i_expected_all(const fa2i_case *c, int threads, fa2i_expected *ret_expected);

/* FA2I_VERIFY_ROWS rows of a few heads of each output, chosen by the seed; the first and the last row
 * are among them. */
fa2_status fa2i_expected_sampled(const fa2i_case *c, uint64_t seed, int threads,
                                 fa2i_expected *ret_expected);
void fa2i_expected_done(fa2i_expected *expected); /* zeroed objects are fine */

/* What to ask a worker for: the places, or none where it is all rows. */
static inline size_t fa2i_expected_asked(const fa2i_expected *expected)
{
    return expected->all ? 0 : expected->place_count;
}

/* Judge what a kernel gave (output_bytes, as the worker sends it): OK or WRONG, the largest error
 * over its bound, and where. overwritten: words around the outputs that it changed; in GAPPED
 * layouts the gaps between rows are looked at, too. name: of the case, for the detail. */
void fa2i_expected_judge(const fa2i_expected *expected, const char *name, const void *output,
                         uint32_t overwritten, fa2i_verification *ret_verdict);

/* How far what a kernel gave is from what is expected, over all numbers of all outputs that are finite
 * there. One that is not finite where it should be counts as FA2I_ERROR_NOT_FINITE. */
typedef struct fa2i_errors {
    double max, mean; /* of |value - expected| */
} fa2i_errors;
fa2i_errors fa2i_expected_errors(const fa2i_expected *expected, const void *output);

#endif
