#pragma once
#include "features/lengths.cuh"
#include "features/rotary.cuh"

// ---- the rows that the kernel before the main one writes: append.cuh, kv8_append.cuh -------------------------------

constexpr int kRowChunks = kHeadDim / 8, kValueChunks = kHeadDimV / 8;
constexpr int kGrowing = kVInK ? 1 : 2;  // tensors that grow: K, and V unless it is part of K

// The new rows of a sequence: keys before them, the end of the keys that are written, and its rows in packed tensors.
struct NewRows {
    const int batch;
    Sequence sequence;  // if packed
    int before, end;

    __device__ __forceinline__ NewRows(const Params &p, int batch) : batch(batch)
    {
        if constexpr (kVarlen) {
            sequence = Sequence(p, batch);
            before = sequence.before;
            end = sequence.seq_k;
        } else {
            before = keys_before(p, batch, p.seq_k, p.features.new_count);
            end = p.seq_k;
        }
    }

    // Element offset of row i of the new keys, or of the queries.
    __device__ __forceinline__ int64 offset(const Strides &stride, int head, int i) const
    {
        if constexpr (kVarlen)
            return (sequence.first_q + i) * stride.seq + head * stride.head;
        else
            return batch * stride.batch + i * stride.seq + head * stride.head;
    }
};

// Address of row `key` in the cache. Null if the page or the cache row does not exist: then nothing is written. kBytes:
// of an element of `tensor`, which may also have the scales of rows.
template <int kBytes = kKvBytes>
__device__ __forceinline__ char *cache_at(const Params &p, const char *tensor, const Strides &stride,
                                          const NewRows &rows, int head, int key)
{
    int64 own = rows.batch;
    bool is_there = true;
    if constexpr (kPaged) {
        const int shift = p.features.page_shift;
        const uint32 page = __ldg(p.features.block_table + rows.batch * p.features.table_stride + (key >> shift));
        own = page;
        is_there = page < uint32(p.features.pages);
        key &= (1 << shift) - 1;
    } else if constexpr (kVarlen) {
        own = 0;
        key += rows.sequence.first_k;
    } else if constexpr (kCacheRows) {
        const uint32 row = __ldg(p.features.cache_rows + rows.batch);
        own = row;
        is_there = row < uint32(p.features.cache_row_count);
    }
    const int64 at = own * stride.batch + key * stride.seq + head * stride.head;
    return is_there ? const_cast<char *>(tensor) + at * kBytes : nullptr;
}

// New row i of K or V of a sequence, and its address in the cache, which may be null.
struct NewRow {
    const char *from;
    char *to;

    __device__ __forceinline__ NewRow(const Params &p, bool is_key, const NewRows &rows, int head, int i)
    {
        const Strides &stride = is_key ? p.features.new_k_stride : p.features.new_v_stride;
        from = (is_key ? p.features.new_k : p.features.new_v) + rows.offset(stride, head, i) * kElemBytes;
        to = is_key ? cache_at(p, p.k, p.k_stride, rows, head, rows.before + i)
                    : cache_at(p, p.v, p.v_stride, rows, head, rows.before + i);
    }
};

// Rotates one chunk of a row of Q into the workspace, where p.q points. If a query sees all keys regardless of its
// position, all queries use the position of the first new key.
__device__ __forceinline__ void rotate_query(const Params &p, const NewRows &rows, int head, int query, int chunk)
{
    const int position = kCausal || kWindow != Window::kNone ? rows.before + query : rows.before;
    const char *row = p.features.raw_q + rows.offset(p.features.raw_q_stride, head, query) * kElemBytes;
    char *out = const_cast<char *>(p.q) + rows.offset(p.q_stride, head, query) * kElemBytes;
    reinterpret_cast<uint4 *>(out)[chunk] = rotated_chunk(p, row, chunk, position);
}
