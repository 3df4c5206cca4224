/*
 * Is a kernel right? The adversarial cases that each kernel must pass before it is timed, what a
 * case should give, and the verdict over what a kernel gave. No GPU here: tuner/worker/worker.h runs the
 * kernels.
 *
 * Errors: FA2_E_MEMORY. Thread-safe: no state.
 */
#ifndef FA2I_VERIFY_H
#define FA2I_VERIFY_H

#include "cache/cache.h"
#include "tuner/judge/case.h"
#include "tuner/judge/reference.h"

enum { FA2I_VERIFY_CASES_MAX = 16, FA2I_VERIFY_ROWS = 32 };

typedef struct fa2i_verify_case {
    const char *name; /* static */
    fa2i_case c;
} fa2i_verify_case;

/* The cases for all kernels of a problem's compile-time part (op, dtype, head_dim, causal). Returns
 * how many. */
size_t fa2i_verify_cases(const fa2_problem *problem, fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX]);

/* What a case should give, in all its rows or in some. */
typedef struct fa2i_expected {
    fa2i_case c;
    bool all;       /* rows are all of them, in the order batch, head, row: that of LSE */
    fa2i_row *rows; /* owned */
    size_t row_count;
    fa2i_reference reference;
    size_t output_bytes; /* of what a kernel gives: see fa2i_worker_check */
} fa2i_expected;

/* All rows. On FA2_OK *ret_expected belongs to the caller (fa2i_expected_done). */
fa2_status fa2i_expected_all(const fa2i_case *c, int threads, fa2i_expected *ret_expected);

/* FA2I_VERIFY_ROWS rows of a few heads, chosen by the seed; the first and the last row are among
 * them. */
fa2_status fa2i_expected_sampled(const fa2i_case *c, uint64_t seed, int threads,
                                 fa2i_expected *ret_expected);
void fa2i_expected_done(fa2i_expected *expected); /* zeroed objects are fine */

/* Judge what a kernel gave (output_bytes, as the worker sends it): OK or WRONG, the largest error
 * over its bound, and where. overwritten: words around the outputs that it changed; in GAPPED
 * layouts the gaps between rows are looked at, too. name: of the case, for the detail. */
fa2_status fa2i_expected_judge(const fa2i_expected *expected, const char *name, const void *output,
                               uint32_t overwritten, fa2i_verification *ret_verdict);

#endif
