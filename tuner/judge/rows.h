/*
 * Helpers of the references: rows of tensors on the host, and threads for parts of the work.
 *
 * Thread-safe: no state.
 */
#pragma once

#include <stddef.h>
#include "fa2.h"

/* A tensor in host memory, borrowed. Strides are in elements; head_dim is contiguous. */
typedef struct fa2i_host_tensor {
    const void *data;
    int64_t stride_batch, stride_seq, stride_head;
    int64_t period_elems; /* 0: data is the whole tensor; n: element i is data[i % n] */
} fa2i_host_tensor;

/* Returns how often a row is repeated among `rows` rows of a head. */
int64_t fa2i_host_repeats(const fa2i_host_tensor *tensor, int64_t rows);

static inline int64_t fa2i_host_row_at(const fa2i_host_tensor *tensor, int32_t batch, int32_t head, int32_t row)
{
    return batch * tensor->stride_batch + head * tensor->stride_head + row * tensor->stride_seq;
}

/* Converts the row that begins at element `offset`. */
void fa2i_host_row(const fa2i_host_tensor *tensor, fa2_dtype dtype, int64_t offset, int head_dim, float *out);

/* Converts `count` rows of a head from row `first` on, without gaps, unless they are there already. *at is where they
 * begin, or -1 while there are none. */
void fa2i_host_head(const fa2i_host_tensor *tensor, fa2_dtype dtype, int batch, int head, int32_t first, int32_t count,
                    int head_dim, float *out, int64_t *at);

/* Sums in fp64, where products of two numbers of fp32 or less are exact. count is a multiple of 8. */
double fa2i_dot(const float *a, const float *b, int count);

/* Sums in fp32, one product after the other. */
float fa2i_plain_dot(const float *a, const float *b, int count);

enum { FA2I_PARTS_MAX = 64 };

/* Returns the number of parts for so many rows: one per thread, but at most row_count. Fewer if part_bytes for each
 * would take more than 1 GiB. At least one. */
size_t fa2i_count_parts(int threads, size_t row_count, size_t part_bytes);

/* Calls run(part) for each part, each in a thread of its own. Parts for which no thread can be created run in this
 * one. */
void fa2i_run_parts(void *(*run)(void *), void *parts, size_t part_bytes, size_t count);
