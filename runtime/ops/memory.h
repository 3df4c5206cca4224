/*
 * The memory that an argument stands for: rows of so many bytes, at strides in three dimensions.
 * Checks of a tensor, and whether two arguments share a byte.
 *
 * Addresses are below 2^60, which is checked, so that sums of a few of them fit 64 bits. Pure;
 * thread-safe. Errors: FA2_E_INVALID naming argument, member and limit.
 */
#ifndef FA2I_OPS_MEMORY_H
#define FA2I_OPS_MEMORY_H

#include <stdbool.h>
#include "fa2.h"

#define FA2I_ADDRESS_END (INT64_C(1) << 60)

typedef struct fa2i_memory {
    const char *name;   /* borrowed: "q" */
    int64_t begin, end; /* addresses of the first byte, and of the one behind the last */
    int64_t row_bytes;
    int64_t strides[3]; /* bytes: batch, seq, head; without a meaning where the extent is 1 */
    int32_t extents[3];
} fa2i_memory;

/* What a tensor of 16-bit elements takes; extents: batch, seq, heads. Its pointer is a multiple of 16
 * bytes and its strides are multiples of 8 elements; a stride that is never used (extent 1) may be
 * anything. A tensor that is read may repeat batches and heads (stride 0); of one that is written, no
 * two rows share a byte. writer: who writes it, for messages; NULL: it is read. */
fa2_status fa2i_memory_of_tensor(const char *name, const fa2_tensor *tensor,
                                 const int32_t extents[3], int32_t head_dim, const char *writer,
                                 fa2i_memory *ret_memory);

/* What a contiguous array takes, which is a multiple of align bytes. */
fa2_status fa2i_memory_of_array(const char *name, const void *data, size_t bytes, size_t align,
                                fa2i_memory *ret_memory);

/* Whether two elements of so many bytes share one, at strides in bytes, which are 0 where the extent is 1; those of a
 * dimension whose stride is 0 are one element. (Where this would take long to find out: no.) */
bool fa2i_memory_elements_meet(const int64_t strides[4], const int32_t extents[4],
                               int64_t elem_bytes);

/* FA2_E_INVALID when an output and another argument share a byte. Rows that lie between each other
 * share none: Q, K, V and O may be slices of one packed tensor. (Strides can be such that this would
 * take long to find out; then it is the caller's word.) */
fa2_status fa2i_memory_check_apart(const fa2i_memory *output, const fa2i_memory *other);

#endif
