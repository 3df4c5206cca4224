/*
 * What references are computed with: rows of tensors on the host, and threads for parts of the work.
 *
 * Thread-safe: no state.
 */
#ifndef FA2I_ROWS_H
#define FA2I_ROWS_H

#include <stddef.h>
#include "fa2.h"

/* A host tensor; strides in elements, head_dim contiguous. Borrowed. */
typedef struct fa2i_host_tensor {
    const uint16_t *data;
    int64_t stride_batch, stride_seq, stride_head;
    int64_t period_elems; /* 0: data is the whole tensor; n: element i is data[i % n] */
} fa2i_host_tensor;

static inline int64_t fa2i_host_row_at(const fa2i_host_tensor *tensor, int32_t batch, int32_t head,
                                       int32_t row)
{
    return batch * tensor->stride_batch + head * tensor->stride_head + row * tensor->stride_seq;
}

/* The row that begins at this element. */
void fa2i_host_row(const fa2i_host_tensor *tensor, fa2_dtype dtype, int64_t offset, int head_dim,
                   float *out);

/* `count` rows of a head from the first one on, one behind the other, unless they are there already: *at is where
 * they begin, -1 while there are none. */
void fa2i_host_head(const fa2i_host_tensor *tensor, fa2_dtype dtype, int batch, int head,
                    int32_t first, int32_t count, int head_dim, float *out, int64_t *at);

/* Products of two fp16 or bf16 numbers are exact in fp64. count is a multiple of 8. */
double fa2i_dot(const float *a, const float *b, int count);

enum { FA2I_PARTS_MAX = 64 };

/* How many parts to make of so many rows: one for each thread, but no more than there are rows, and fewer
 * if part_bytes for each take more than 1 GiB; at least one. */
size_t fa2i_count_parts(int threads, size_t row_count, size_t part_bytes);

/* run(part) for each of them, each in a thread of its own; where a thread cannot be had, in this one. */
void fa2i_run_parts(void *(*run)(void *), void *parts, size_t part_bytes, size_t count);

#endif
