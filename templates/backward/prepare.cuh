#pragma once
#include "backward/delta.cuh"

// ---- the kernel before the main one: LSE in log2 units and delta of all rows; zeros for the dQ sums ------
//
// Its entry point is in steps.cu.in.

// The kernel.
template <int kBlockThreads, class AnyParams> __device__ __forceinline__ void prepare(const AnyParams &p)
{
    constexpr int kBlockRows = kBlockThreads / kRowLanes;
    const int64 rows = rows_of_batch_head(p);
    const int64 all_rows = int64(batches(p)) * p.heads_q * rows;
    const int64 index = int64(blockIdx.x) * kBlockRows + threadIdx.x / kRowLanes;
    const int64 batch_head = index / rows;
    int row;
    if constexpr (kVarlen) {
        const int at = packed_row(p, index % rows);
        row = index < all_rows ? at : p.features.total_q;
    } else {
        row = index < all_rows ? int(index % rows) : p.seq_q;
    }
    const float delta =
        row_delta<true>(p, batch_head / p.heads_q, batch_head % p.heads_q, row, threadIdx.x % kRowLanes);
    if (index < all_rows && threadIdx.x % kRowLanes == 0) {
        p.rows[index] = row_lse<true>(p, batch_head, row);
        p.rows[all_rows + index] = delta;
    }
    if constexpr (kHeadBlocks)
        clear_parts<kBlockThreads>(p);
    if (kDqSeparate || p.dq == nullptr)
        return;
    clear_dq<kBlockThreads, kBlockRows, kRowLanes>(p, batch_head, row, threadIdx.x % kRowLanes,
                                                   int64(blockIdx.x) * kBlockRows, rows, all_rows);
    if constexpr (kDqInOrder) {
        const int64 counters = kVarlen ? int64(p.heads_q) * p.q_tiles : all_rows / kBr;
        if (index <= counters && threadIdx.x % kRowLanes == 0)
            turn_counters(p)[index] = 0;
    }
    if constexpr (kDqDirect)
        return;
    // The block clears as many numbers of dQ as belong to its rows.
    constexpr int kRowSums = kDqWidth / 4;
    constexpr int kQuarters = kRowSums * kBlockRows;
    float4 *sum = reinterpret_cast<float4 *>(p.dq_sum) + int64(blockIdx.x) * kQuarters;
    const int64 left = dq_rows(p, all_rows) * kRowSums - int64(blockIdx.x) * kQuarters;
#pragma unroll
    for (int i = threadIdx.x; i < kQuarters; i += kBlockThreads)
        if (i < left)
            sum[i] = float4{0.0f, 0.0f, 0.0f, 0.0f};
}
