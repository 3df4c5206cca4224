/*
 * The numbers that a call has in device memory, bounds, lengths, pages and rows of a cache, against what fa2.h says of
 * them. A kernel takes one that is out of range for another; this is for callers who want to know of it
 * (fa2_config.check_numbers). They come as copies in host memory: who makes these is in cuda/check_numbers.c.
 *
 * Pure, but for memory; thread-safe. Errors: FA2_E_INVALID naming operand, place, value and range; FA2_E_MEMORY.
 */
#ifndef FA2I_OPS_NUMBERS_H
#define FA2I_OPS_NUMBERS_H

#include "runtime/ops/features.h"

/* Those with a number for each sequence. X(operand, the field of problems that asks for it, numbers behind the last
 * sequence's). The order is that of checks: what a check relies on is before it. */
#define FA2I_NUMBERS(X)                                                                            \
    X(cu_seqlens_q, varlen, 1)                                                                     \
    X(cu_seqlens_k, varlen, 1)                                                                     \
    X(seqused_k, seqused, 0)                                                                       \
    X(leftpad, leftpad, 0)                                                                         \
    X(cache_rows, cache_rows, 0)

/* NULL: the problem does not ask for it. */
typedef struct fa2i_numbers {
#define FA2I_NUMBERS_MEMBER(name, field, more) int32_t *name;
    FA2I_NUMBERS(FA2I_NUMBERS_MEMBER)
#undef FA2I_NUMBERS_MEMBER
    int32_t *block_table; /* fa2i_numbers_pages of each sequence, without anything between them */
} fa2i_numbers;

/* Whether a call of the problem has any. */
bool fa2i_numbers_asked(const fa2_problem *problem);

/* All but the block table, which is not read. args: of a call, checked. */
fa2_status fa2i_numbers_check(const fa2_problem *problem, const fa2i_feature_args *args,
                              const fa2i_numbers *numbers);

/* How many pages of a sequence come before the end of its keys: those of padding alone count, and are not checked.
 * The other numbers were checked. */
int32_t fa2i_numbers_pages(const fa2_problem *problem, const fa2i_feature_args *args,
                           const fa2i_numbers *numbers, int32_t sequence);

/* The block table; the other numbers were checked. */
fa2_status fa2i_numbers_check_table(const fa2_problem *problem, const fa2i_feature_args *args,
                                    const fa2i_numbers *numbers);

#endif
