#pragma once
#include "backward/cursor.cuh"
#include "hopper/bwd_barriers.cuh"
#include "hopper/stages.cuh"
#include "hopper/tma.cuh"

// ---- producer: a thread that loads ----------------------------------------------------------------------------------
//
// hopper/bwd.cuh calls Loads::load_all in the last warpgroup.

// The tensor maps of a launch, in the order of the recipe.
struct TensorMaps {
    TensorMap q, k, v, d_o;
};

// The first row of the block's sequence in the tensors.
template <class Coord> __device__ __forceinline__ int first_key_row(const Coord &coord)
{
    if constexpr (kVarlen)
        return coord.own.sequence.first_k;
    else
        return 0;
}

template <class Coord> __device__ __forceinline__ int first_query_row(const Coord &coord)
{
    if constexpr (kVarlen)
        return coord.own.sequence.first_q;
    else
        return 0;
}

// All loads of a block; used by one thread.
struct Loads {
    const Params &p;
    const TensorMaps &maps;
    const Barriers &barriers;
    const BlockCoord &coord;

    template <int kPageBytes>
    __device__ __forceinline__ void load_tile(uint32 area, const TensorMap &map, const Strides &stride, uint32 full,
                                              int row, int head) const
    {
#pragma unroll
        for (int page = 0; page < kPages; page++)
            load_page(area + page * kPageBytes, map, full, page * kPageColumns, row, coordinate(head, stride.head),
                      coordinate(kVarlen ? 0 : coord.batch, stride.batch));
    }

    __device__ __forceinline__ void load_keys(uint32 area, const TensorMap &map, const Strides &stride,
                                              uint32 full) const
    {
        barrier_expect(full, kKvTileBytes);
        load_tile<kKvPageBytes>(barriers.smem + area, map, stride, full, first_key_row(coord) + coord.first_key,
                                coord.kv_head);
    }

    // Loads a tile of Q or dO, and LSE or delta of its rows.
    __device__ __forceinline__ void load_queries(uint32 area, const TensorMap &map, const Strides &stride,
                                                 uint32 row_area, const float *rows, uint32 full,
                                                 const Cursor &at) const
    {
        const int head = coord.kv_head * p.group + at.head;
        const int64 batch_head = int64(coord.batch) * p.heads_q + head;
        int row_bytes = kRowBytes;
        if constexpr (kVarlen)  // rows of other sequences follow the last rows of this one
            row_bytes = min(kRowBytes, (p.seq_q - at.tile * kBr + 3) / 4 * 16);
        barrier_expect(full, kQTileBytes + row_bytes);
        load_tile<kQPageBytes>(barriers.smem + area, map, stride, full, first_query_row(coord) + at.tile * kBr, head);
        if constexpr (kVarlen)
            load_bytes(barriers.smem + row_area,
                       rows + batch_head * rows_of_batch_head(p) + coord.first_prepared + at.tile * kBr, row_bytes,
                       full);
        else
            load_bytes(barriers.smem + row_area, rows + (batch_head * p.q_tiles + at.tile) * kBr, row_bytes, full);
    }

    // The first head of queries that the block has: b * heads + h.
    __device__ __forceinline__ int64 first_head() const
    {
        return int64(coord.batch) * p.heads_q + coord.kv_head * p.group;
    }

    // Counts the block for a tile that all warps have given back, so that they have added to its dQ (dq_order.cuh).
    // This thread does it because a fence would hold up the products of a consumer.
    __device__ __forceinline__ void count_tile(const TileRange &tiles, Cursor &at, Stage &stage) const
    {
        if (p.dq != nullptr)
            count_up(turn_counter(p, coord, first_head() + at.head, at.tile));
        stage.advance();
        at.advance(tiles, tiles.end(p));
    }

    // Counts all tiles, and gives the stages of dS^T back. For a thread that does nothing else (kCountsApart): the
    // fence of a count takes as long as additions do to reach memory, which would hold up loads, or the next dQ.
    __device__ __forceinline__ void count_all(const TileRange &tiles, Cursor at, int steps) const
    {
        uint32 *const counters = turn_counters(p) + first_head() * p.q_tiles + coord.first_q_tile;
        const int end = tiles.end(p);
        Stage stage;
#pragma unroll 1
        for (; steps > 0; steps--) {
            barrier_wait(barriers.dq_added(stage.index), stage.parity);
            barrier_arrive(barriers.ds(stage.index).empty);
            count_up(counters + at.head * p.q_tiles + at.tile);
            stage.advance();
            at.advance(tiles, end);
        }
    }

    // Lets the copy engine add dQ of all tiles, each when it is the block's turn, and counts them (kAddsApart).
    __device__ __forceinline__ void add_all(const TileRange &tiles, Cursor at, int steps) const
    {
        static_assert(!kAddsApart || kWarps * kDqPartBytes == kDqTile * 4, "a tile of dQ is contiguous");
        uint32 *const counters = turn_counters(p) + first_head() * p.q_tiles + coord.first_q_tile;
        float *const sums = p.dq_sum + first_head() * p.q_tiles * kDqTile;
        const int end = tiles.end(p);
        uint32 parity = 0;
#pragma unroll 1
        for (; steps > 0; steps--, parity ^= 1) {
            const int tile = at.head * p.q_tiles + at.tile;
            const uint32 before = blocks_before(p, coord, at.tile);
            while (load_counter(counters + tile) < before) {
            }
            barrier_wait(barriers.exchange().full, parity);
            add_bytes(sums + int64(tile) * kDqTile, barriers.smem + kDqArea, kWarps * kDqPartBytes);
            commit_stores();
            wait_stores_read();
            barrier_arrive(barriers.exchange().empty);
            wait_stores_done();
            count_up(counters + tile);
            at.advance(tiles, end);
        }
    }

    // What another thread does if blocks add to dQ in order.
    __device__ __forceinline__ void order_dq(const TileRange &tiles, const Cursor &begin, int steps) const
    {
        if constexpr (kAddsApart)
            add_all(tiles, begin, steps);
        else
            count_all(tiles, begin, steps);
    }

    __device__ __forceinline__ void load_all(const TileRange &tiles, Cursor at, int steps) const
    {
        constexpr bool kCounts = kDqInOrder && !kByProduct && !kCountsApart && !kAddsApart;
        Cursor counted = at;
        Stage counted_stage;
        int left = steps;  // tiles that are to be counted
        const int64 batch_heads = int64(batches(p)) * p.heads_q;
        const int64 all_rows = kVarlen ? batch_heads * rows_of_batch_head(p) : batch_heads * p.q_tiles * kBr;
        Stage stage;
        load_keys(kKArea, maps.k, p.k_stride, barriers.k_full());
        bool first = true;
#pragma unroll 1
        for (; steps > 0; steps--) {
            const int i = stage.index;
            barrier_wait(barriers.q(i).empty, stage.parity ^ 1);
            // p.rows: LSE of all rows, then delta of all rows.
            load_queries(kQArea + i * kQTileBytes, maps.q, p.q_stride, kLseArea + i * kRowBytes, p.rows,
                         barriers.q(i).full, at);
            if (first)
                load_keys(kVArea, maps.v, p.v_stride, barriers.v_full());
            first = false;
            barrier_wait(barriers.d_o(i).empty, stage.parity ^ 1);
            load_queries(kDoArea + i * kQTileBytes, maps.d_o, p.do_stride, kDeltaArea + i * kRowBytes,
                         p.rows + all_rows, barriers.d_o(i).full, at);
            stage.advance();
            at.advance(tiles, tiles.end(p));
            if (kCounts && left - steps >= kStages) {  // the tile that was in this stage: see q(i).empty above
                count_tile(tiles, counted, counted_stage);
                left--;
            }
        }
        if constexpr (kCounts)
            for (; left > 0; left--) {
                barrier_wait(barriers.q(counted_stage.index).empty, counted_stage.parity);
                count_tile(tiles, counted, counted_stage);
            }
    }
};
