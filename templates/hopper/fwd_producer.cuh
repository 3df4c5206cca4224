#pragma once
#include "forward/tiles.cuh"
#include "hopper/fwd_barriers.cuh"
#include "hopper/fwd_maps.cuh"
#include "hopper/work.cuh"
#include "hopper/stages.cuh"

// ---- producer: the warpgroup that loads -----------------------------------------------------------------------------
//
// One thread loads Q, K and V by TMA (Loads; the loop over work tiles is in fwd.cuh). With a bias in shared memory,
// other warps load its tiles (bias_producer.cuh).

// The batch coordinate in a tensor map: packed sequences are one batch.
__device__ __forceinline__ int map_batch(const BlockCoord &coord)
{
    return kVarlen ? 0 : coord.batch;
}

// The loads of Q, K and V; used by one thread.
struct Loads {
    const Params &p;
    const TensorMaps &maps;
    const Barriers &barriers;
    Stage stage;  // stage of the next tile; its K is loaded first
    uint32 q_parity = 1;

    __device__ __forceinline__ Loads(const Params &p, const TensorMaps &maps, const Barriers &barriers)
        : p(p), maps(maps), barriers(barriers)
    {
    }

    // Waits until the stage is empty, then loads a tile of K or V.
    __device__ __forceinline__ void load_tile(const BlockCoord &coord, int kv_head, int tile, const TensorMap &map,
                                              const Strides &stride, const Stage &stage, uint32 empty, uint32 full,
                                              uint32 area)
    {
        barrier_wait(empty, stage.parity ^ 1);
        if constexpr (kDropout) {
            // The column keys of dropout come with K if kKeepsEarly, else with V.
            const int key_bytes = area == barriers.smem + (kKeepsEarly ? kKArea : kVArea) ? kKeyTileBytes : 0;
            barrier_expect(full, kTileBytes + key_bytes);
            if (key_bytes > 0)
                load_bytes(barriers.smem + kKeysArea + stage.index * kKeyTileBytes, column_keys_at(p, tile * kBc),
                           kKeyTileBytes, full);
        } else {
            barrier_expect(full, kTileBytes);
        }
#pragma unroll
        for (int page = 0; page < kPages; page++)
            load_page(area + stage.index * kTileBytes + page * kTilePageBytes, map, full, page * kPageColumns,
                      coord.sequence.first_k + tile * kBc, coordinate(kv_head, stride.head),
                      coordinate(map_batch(coord), stride.batch));
    }

    // Waits until the stage is empty, then loads a tile that the step before has rounded.
    template <int kBytes>
    __device__ __forceinline__ void load_bytes_tile(const char *tile, const Stage &stage, uint32 empty, uint32 full,
                                                    uint32 area)
    {
        barrier_wait(empty, stage.parity ^ 1);
        barrier_expect(full, kBytes);
        load_bytes(area + stage.index * kBytes, tile, kBytes, full);
    }

    __device__ __forceinline__ void load_k(const BlockCoord &coord, int kv_head, int tile, const Stage &k)
    {
        if constexpr (kRounded)
            load_bytes_tile<kTileBytes>(rounded_keys(p, number_of_tile(p, coord.batch, kv_head, tile)), k,
                                        barriers.k(k.index).empty, barriers.k(k.index).full, barriers.smem + kKArea);
        else
            load_tile(coord, kv_head, tile, maps.k, p.k_stride, k, barriers.k(k.index).empty, barriers.k(k.index).full,
                      barriers.smem + kKArea);
    }

    __device__ __forceinline__ void load_v(const BlockCoord &coord, int kv_head, int tile, const Stage &v)
    {
        if constexpr (kRounded)
            load_bytes_tile<kVTileBytes>(rounded_values(p, number_of_tile(p, coord.batch, kv_head, tile)), v,
                                         barriers.v(v.index).empty, barriers.v(v.index).full, barriers.smem + kVArea);
        else
            load_tile(coord, kv_head, tile, maps.v, p.v_stride, v, barriers.v(v.index).empty, barriers.v(v.index).full,
                      barriers.smem + kVArea);
    }

    __device__ __forceinline__ void load_q(const BlockCoord &coord, int group, unsigned number)
    {
        const uint32 full = barriers.q(group).full;
        if constexpr (kStays)
            barrier_wait(barriers.q(group).empty, q_parity);
        if constexpr (kCounted)
            store_shared_4(barriers.number(group), number);
        barrier_expect(full, kGroupBytes);
#pragma unroll
        for (int page = 0; page < kPages; page++)
            load_page(barriers.smem + kQArea + group * kGroupBytes + page * kQPageBytes, maps.q, full,
                      page * kPageColumns, coord.sequence.first_q + coord.first_row + group * kGroupRows,
                      coordinate(coord.query_head(p, 0), p.q_stride.head),
                      coordinate(map_batch(coord), p.q_stride.batch));
    }

    // Loads a work tile. Q is loaded and waited for even if no key is seen, because O may be written into its area
    // next.
    __device__ __forceinline__ void load_work_tile(const BlockCoord &coord, const TileRange &tiles, unsigned number)
    {
        const bool any = tiles.count > tiles.first;
        int kv_head = coord.kv_head(p);
        asm volatile("" : "+r"(kv_head));  // divide here once, not for each tile
        if (any)
            load_k(coord, kv_head, tiles.count - 1, stage);
        if constexpr (!kPackedHeads) {
#pragma unroll
            for (int group = 0; group < kGroups; group++)
                load_q(coord, group, number);
            q_parity ^= 1;
        }
#pragma unroll 1
        for (int tile = tiles.count - 2; tile >= tiles.first; tile--) {
            stage.advance();
            load_k(coord, kv_head, tile, stage);
            load_v(coord, kv_head, tile + 1, stage.before());
        }
        if (any) {
            load_v(coord, kv_head, tiles.first, stage);
            stage.advance();
        }
    }

    // Tells the consumers that the counter has no more work tiles.
    __device__ __forceinline__ void finish(unsigned number)
    {
#pragma unroll
        for (int group = 0; group < kGroups; group++) {
            barrier_wait(barriers.q(group).empty, q_parity);
            store_shared_4(barriers.number(group), number);
            barrier_arrive(barriers.q(group).full);
        }
    }
};
