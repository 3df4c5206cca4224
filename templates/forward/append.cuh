#pragma once
#include "features/lengths.cuh"
#include "features/rotary.cuh"

// ---- before: new keys and values go into the cache --------------------------------------------------------
//
// Rows of K, of V and, where there are angles, of Q are worked on alike, 16 bytes per thread. Q is rotated
// once here, into the workspace, and not where its tile is filled: several blocks fill the same rows where keys are
// divided, and copies that bypass registers would have to be waited for, changed and waited for again; so the main
// kernel is the same on all SMs, and knows nothing of angles.

constexpr int kRowChunks = kHeadDim / 8, kValueChunks = kHeadDimV / 8;
constexpr int kGrowing = kVInK ? 1 : 2;  // tensors that grow: K, and V unless it lies in K

// A sequence's: how many keys it has before they come, where those end that are written, its rows of packed tensors.
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

    // Of row i of new keys, or of queries.
    __device__ __forceinline__ int64 offset(const Strides &stride, int head, int i) const
    {
        if constexpr (kVarlen)
            return (sequence.first_q + i) * stride.seq + head * stride.head;
        else
            return batch * stride.batch + i * stride.seq + head * stride.head;
    }
};

// Row `key` of the cache; null where a page or a row of the cache is none: nothing is written then.
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
    return is_there ? const_cast<char *>(tensor) + at * 2 : nullptr;
}

// One chunk of a new row of K or V: i-th of a sequence's.
__device__ __forceinline__ void append_chunk(const Params &p, bool is_key, const NewRows &rows, int head, int i,
                                             int chunk)
{
    const int position = rows.before + i;
    if (position >= rows.end || (!is_key && chunk >= kValueChunks))
        return;  // there is no room for it; V may have fewer columns
    const Strides &from = is_key ? p.features.new_k_stride : p.features.new_v_stride;
    const char *row = (is_key ? p.features.new_k : p.features.new_v) + rows.offset(from, head, i) * 2;
    char *to = is_key ? cache_at(p, p.k, p.k_stride, rows, head, position)
                      : cache_at(p, p.v, p.v_stride, rows, head, position);
    if (to == nullptr)
        return;
    const uint4 x = kRotary && is_key ? rotated_chunk(p, row, chunk, position) : load_chunk(row, chunk);
    reinterpret_cast<uint4 *>(to)[chunk] = x;
}

// One chunk of a row of Q, to the workspace, where p.q is. Where a query sees all keys whatever its place is, all
// stand at the first new key.
__device__ __forceinline__ void rotate_query(const Params &p, const NewRows &rows, int head, int query, int chunk)
{
    const int position = kCausal || kWindow != Window::kNone ? rows.before + query : rows.before;
    const char *row = p.features.raw_q + rows.offset(p.features.raw_q_stride, head, query) * 2;
    char *out = const_cast<char *>(p.q) + rows.offset(p.q_stride, head, query) * 2;
    reinterpret_cast<uint4 *>(out)[chunk] = rotated_chunk(p, row, chunk, position);
}

// Of packed sequences: a warp has a packed row of one head at a time, and so one sequence to look for.
__device__ __forceinline__ void append_packed(const Params &p)
{
    constexpr int kAppendWarps = kAppendThreads / 32;
    const int lane = threadIdx.x % 32, heads_kv = p.heads_q / p.group, growing = kGrowing * heads_kv;
    const int heads = kRotary ? growing + p.heads_q : growing;
    const int64 count = int64(p.features.total_q) * heads, step = int64(gridDim.x) * kAppendWarps;
    for (int64 at = int64(blockIdx.x) * kAppendWarps + threadIdx.x / 32; at < count; at += step) {
        const int packed = at / heads, head = at % heads;
        const NewRows rows(p, sequence_of_row(p, packed));
        const int i = packed - rows.sequence.first_q;
        if (i < 0 || i >= rows.sequence.seq_q)
            continue;  // nobody's row
        for (int chunk = lane; chunk < kRowChunks; chunk += 32)
            if (kRotary && head >= growing)
                rotate_query(p, rows, head - growing, i, chunk);
            else
                append_chunk(p, head < heads_kv, rows, head % heads_kv, i, chunk);
    }
}

// Of sequences that have a batch each. The host sees to it that all rows can be counted in 32 bits: their divisions are
// short then.
__device__ __forceinline__ void append_batches(const Params &p)
{
    const uint32 heads_kv = p.heads_q / p.group, new_count = p.features.new_count;
    const uint32 new_rows = p.batch * new_count * heads_kv;
    const uint32 heads_q = p.heads_q, seq_q = p.seq_q;
    const uint32 rows = kGrowing * new_rows + (kRotary ? p.batch * seq_q * heads_q : 0);
    const int64 step = int64(gridDim.x) * kAppendThreads;
    for (int64 i = int64(blockIdx.x) * kAppendThreads + threadIdx.x; i < int64(rows) * kRowChunks; i += step) {
        const int chunk = i % kRowChunks;
        uint32 row = i / kRowChunks;
        if (kRotary && row >= kGrowing * new_rows) {
            row -= kGrowing * new_rows;
            const uint32 place = row / heads_q;
            rotate_query(p, NewRows(p, place / seq_q), row % heads_q, place % seq_q, chunk);
            continue;
        }
        const bool is_key = row < new_rows;
        row -= is_key ? 0 : new_rows;
        const uint32 place = row / heads_kv;
        append_chunk(p, is_key, NewRows(p, place / new_count), row % heads_kv, place % new_count, chunk);
    }
}

// The step's kernel, of kAppendThreads threads.
__device__ __forceinline__ void append(const Params &p)
{
    if constexpr (kVarlen)
        append_packed(p);
    else
        append_batches(p);
}
