#pragma once
#include "features/lengths.cuh"
#include "features/rotary.cuh"

// ---- the kernel before the main one: appends new keys and values to the cache, and rotates -------------------
//
// The entry points are in entry.cu.in and hopper/fwd_splitkv_sm90.cu.in.
//
// Rows of K, of V and, with rotary, of Q are processed alike, 16 bytes per thread. Q is rotated once here, into the
// workspace, and not when the main kernel loads its tile, for two reasons. Several blocks load the same rows if keys
// are divided. And a tile copied by cp.async would have to be waited for, changed, and waited for again. So the main
// kernel is the same on all SMs and knows nothing of angles.

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

// Address of row `key` in the cache. Null if the page or the cache row does not exist: then nothing is written.
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
    return is_there ? const_cast<char *>(tensor) + at * kElemBytes : nullptr;
}

// Writes one chunk of new row i of K or V of a sequence.
__device__ __forceinline__ void append_chunk(const Params &p, bool is_key, const NewRows &rows, int head, int i,
                                             int chunk)
{
    const int position = rows.before + i;
    if (position >= rows.end || (!is_key && chunk >= kValueChunks))
        return;  // no room for the key; or V has fewer columns
    const Strides &from = is_key ? p.features.new_k_stride : p.features.new_v_stride;
    const char *row = (is_key ? p.features.new_k : p.features.new_v) + rows.offset(from, head, i) * kElemBytes;
    char *to = is_key ? cache_at(p, p.k, p.k_stride, rows, head, position)
                      : cache_at(p, p.v, p.v_stride, rows, head, position);
    if (to == nullptr)
        return;
    const uint4 x = kRotary && is_key ? rotated_chunk(p, row, chunk, position) : load_chunk(row, chunk);
    reinterpret_cast<uint4 *>(to)[chunk] = x;
}

// Rotates one chunk of a row of Q into the workspace, where p.q points. If a query sees all keys regardless of its
// position, all queries use the position of the first new key.
__device__ __forceinline__ void rotate_query(const Params &p, const NewRows &rows, int head, int query, int chunk)
{
    const int position = kCausal || kWindow != Window::kNone ? rows.before + query : rows.before;
    const char *row = p.features.raw_q + rows.offset(p.features.raw_q_stride, head, query) * kElemBytes;
    char *out = const_cast<char *>(p.q) + rows.offset(p.q_stride, head, query) * kElemBytes;
    reinterpret_cast<uint4 *>(out)[chunk] = rotated_chunk(p, row, chunk, position);
}

// Packed sequences: a warp takes one packed row of one head at a time, so it searches for one sequence.
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
            continue;  // the row belongs to no sequence
        for (int chunk = lane; chunk < kRowChunks; chunk += 32)
            if (kRotary && head >= growing)
                rotate_query(p, rows, head - growing, i, chunk);
            else
                append_chunk(p, head < heads_kv, rows, head % heads_kv, i, chunk);
    }
}

// Sequences with a batch each. The host ensures that all rows can be counted in 32 bits, so the divisions are short.
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
            const uint32 coord = row / heads_q;
            rotate_query(p, NewRows(p, coord / seq_q), row % heads_q, coord % seq_q, chunk);
            continue;
        }
        const bool is_key = row < new_rows;
        row -= is_key ? 0 : new_rows;
        const uint32 coord = row / heads_kv;
        append_chunk(p, is_key, NewRows(p, coord / new_count), row % heads_kv, coord % new_count, chunk);
    }
}

// The kernel; kAppendThreads threads per block.
__device__ __forceinline__ void prepare(const Params &p)
{
    if constexpr (kVarlen)
        append_packed(p);
    else
        append_batches(p);
}
