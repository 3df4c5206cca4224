/*
 * Checks the numbers that a call has in device memory against fa2.h: bounds, lengths, pages and cache rows. A kernel
 * replaces a number that is out of range. This check is for callers who want to know about it
 * (fa2_config.check_numbers). The numbers come as copies in host memory, which cuda/check_numbers.c makes.
 *
 * Thread-safe; the only side effect is allocating memory. Errors: FA2_E_INVALID naming operand, place, value and range;
 * FA2_E_MEMORY.
 */
#pragma once

#include "runtime/ops/operands.h"

/* Operands with one number for each sequence. X(operand, the problem's field that asks for it, additional numbers at
 * the end). They are checked in this order, because a check relies on operands before it. */
#define FA2I_NUMBERS(X)                                                                                                \
    X(cu_seqlens_q, varlen, 1)                                                                                         \
    X(cu_seqlens_k, varlen, 1)                                                                                         \
    X(seqused_k, seqused, 0)                                                                                           \
    X(leftpad, leftpad, 0)                                                                                             \
    X(cache_rows, cache_rows, 0)

/* Copies of the numbers. NULL if the problem does not ask for an operand. */
typedef struct fa2i_numbers {
#define FA2I_NUMBERS_MEMBER(name, field, more) int32_t *name;
    FA2I_NUMBERS(FA2I_NUMBERS_MEMBER)
#undef FA2I_NUMBERS_MEMBER
    int32_t *block_table; /* the pages of each sequence (fa2i_numbers_pages), without gaps */
} fa2i_numbers;

/* Returns whether a call of the problem has any of these numbers. */
bool fa2i_numbers_asked(const fa2_problem *problem);

/* Checks everything except the block table, which is not read. args: of a call; checked. */
fa2_status fa2i_numbers_check(const fa2_problem *problem, const void *args, const fa2i_numbers *numbers);

/* Returns how many pages of a sequence begin before the end of its keys. Pages of padding alone count, but are not
 * checked. The other numbers were checked. */
int32_t fa2i_numbers_pages(const fa2_problem *problem, const void *args, const fa2i_numbers *numbers, int32_t sequence);

/* Checks the block table. The other numbers were checked. */
fa2_status fa2i_numbers_check_table(const fa2_problem *problem, const void *args, const fa2i_numbers *numbers);
