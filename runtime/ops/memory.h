/*
 * The memory of an argument: rows of so many bytes, at strides in three dimensions. Checks of a tensor, and of two
 * arguments that must not share a byte.
 *
 * Addresses are below 2^60, which is checked, so that sums of a few of them fit 64 bits. Pure functions; thread-safe.
 * Errors: FA2_E_INVALID naming argument, member and limit.
 */
#pragma once

#include <stdbool.h>
#include "runtime/base/problem.h"

#define FA2I_ADDRESS_END (INT64_C(1) << 60)

typedef struct fa2i_memory {
    const char *name;   /* borrowed, for example "q" */
    int64_t begin, end; /* addresses of the first byte, and of the byte after the last one */
    int64_t row_bytes;
    int64_t strides[3]; /* bytes: batch, seq, head; meaningless if the extent is 1 */
    int32_t extents[3];
} fa2i_memory;

/* Checks and locates a tensor of elements of 1, 2 or 4 bytes. extents: batch, seq, heads. Its pointer and its strides
 * are multiples of 16 bytes. A stride of extent 1 is never used, and may be anything. A tensor that is read may repeat
 * batches and heads (stride 0). No two rows of a tensor that is written share a byte. writer: the function that writes it, for messages; NULL: it is read. */
fa2_status fa2i_memory_of_rows(const char *name, const fa2_tensor *tensor, const int32_t extents[3], int32_t head_dim,
                               int32_t elem_bytes, const char *writer, fa2i_memory *ret_memory);

/* The same for a tensor of the dtype that is read. */
static inline fa2_status fa2i_memory_of_tensor(fa2_dtype dtype, const char *name, const fa2_tensor *tensor,
                                               const int32_t extents[3], int32_t head_dim, fa2i_memory *ret_memory)
{
    return fa2i_memory_of_rows(name, tensor, extents, head_dim, fa2i_elem_bytes(dtype), NULL, ret_memory);
}

/* Checks and locates a contiguous array, which is a multiple of align bytes. */
fa2_status fa2i_memory_of_array(const char *name, const void *data, size_t bytes, size_t align,
                                fa2i_memory *ret_memory);

/* Returns whether two elements of elem_bytes bytes share a byte. Strides are in bytes, and 0 if the extent is 1.
 * Elements along a stride of 0 are one element. Returns false if finding out would take long. */
bool fa2i_memory_elements_meet(const int64_t strides[4], const int32_t extents[4], int64_t elem_bytes);

/* Returns FA2_E_INVALID if an output and another argument share a byte. Rows that lie between each other share no byte:
 * Q, K, V and O may be slices of one packed tensor. If strides are so irregular that finding out would take long, the
 * check passes, and the caller is responsible. */
fa2_status fa2i_memory_check_apart(const fa2i_memory *output, const fa2i_memory *other);
