#pragma once
#include "hopper/fwd_epilogue.cuh"
#include "hopper/fwd_producer.cuh"
#include "hopper/fwd_queries.cuh"
#include "lib/early.cuh"

// ---- forward ----------------------------------------------------------------------------------------
//
// The kernel of fwd_sm90 and fwd_bytes_sm90 (fwd_sm90.cu.in calls `forward`). A block computes kBr rows of O per work
// tile (work.cuh).
// Each consumer warpgroup computes 64 of these rows (fwd_consumer.cuh, bytes_consumer.cuh); the last warpgroup is the
// producer (fwd_producer.cuh). The mainloop goes through the tiles of K and V from the last to the first, so the tiles
// that need a mask come first (forward/tiles.cuh).
//
//     producer    wait until a stage is empty | load K(j) | load V(j+1) | ...
//     consumers   (of 16 bits; bytes_consumer.cuh has its own order)
//                 wait for Q | S(n-1) | ... S(j), O += P(j+1) V(j+1) ... | O += P(0) V(0) | write O
//
// Each stage of K and of V, and each warpgroup's rows of Q, have two mbarriers (fwd_barriers.cuh). The loads arrive at
// `full`; every warp that has read the stage arrives at `empty`. Unless O has an area of its own in shared memory
// (kOwnOPlace), O is stored through the area of Q, which has been read by then.

// Prologue: initialises the barriers, and writes what stays in shared memory for the whole kernel.
__device__ __forceinline__ void prologue(const Params &p, const Barriers &barriers)
{
    if (threadIdx.x == 0)
        barriers.init();
    init_bias_tiles(p, barriers.smem);
    if constexpr (kAlibiMma)
        put_extra_k_columns(barriers.smem);
    __syncthreads();  // the barriers are there
}

// Waits for the warpgroup's rows of Q.
__device__ __forceinline__ void await_q(const Params &p, const BlockCoord &coord, const Barriers &barriers,
                                        const Work &work, int index)
{
    if constexpr (kPackedHeads)
        copy_rows(p, coord, barriers.smem + kQArea + index * kGroupBytes, index);
    else
        barrier_wait(barriers.q(index).full, work.parity());
}

// Writes O of a warpgroup. If O went through the area of Q, gives that area back to the producer.
__device__ __forceinline__ void epilogue(const Params &p, const BlockCoord &coord, const TensorMaps &maps,
                                         const Barriers &barriers, const Group &group,
                                         const float (&o)[kRowTiles][kOutTiles][4], const RowState &row)
{
    const uint32 o_smem = barriers.smem + kOArea;
    if constexpr (kOByMap)
        write_rows_by_map(p, coord, o, row, o_smem + group.index * kGroupBytes, group.warp_row, group.lane, maps.o);
    else
        // write_rows adds warp_row * kPitch, which counts the rows of earlier warpgroups, too: subtracted here
        write_rows<RowTile>(p, coord, o, row, o_smem + group.index * (kGroupBytes - kGroupRows * kPitch),
                            group.warp_row, group.lane);
    if constexpr (kStays && !kOwnOPlace) {
        if constexpr (kOByMap) {
            if (group.lane == 0)
                wait_stores_read();
        } else {
            fence_products();  // orders this lane's accesses to O before the load of the next Q
        }
        __syncwarp();
        group.release_q(barriers);
    }
}

template <class Row> __device__ __forceinline__ void read_sink(Row &row, const Params &p, const BlockCoord &coord)
{
    if constexpr (kSinks)
        row.sink = sink_at(p, coord, 0);
}

// The kernel; kThreads threads.
__device__ __forceinline__ void forward(const Params &p, const TensorMaps &maps)
{
    extern __shared__ __align__(1024) char shared[];
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    const Barriers barriers{smem};
    const int index = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if constexpr (kVarlen) {
        clear_unused_rows(p);
        if (BlockCoord(p, Work(p)).batch < 0)
            return;
    }
    prologue(p, barriers);
    if constexpr (kRounded)
        await_step_before();  // K and V are rounded
    if (index == kGroups) {
        give_registers<kLoadRegisters>();
        Loads loads(p, maps, barriers);
        if constexpr (kVarlen) {
            if (threadIdx.x < kGroups * 128 + 32) {  // the whole warp searches for the sequence
                const BlockCoord coord(p, Work(p));
                if (threadIdx.x == kGroups * 128)
                    loads.load_work_tile(coord, TileRange(p, coord), 0);
            }
        } else if (threadIdx.x == kGroups * 128) {
            Work work(p);
            while (work.is_left(p)) {
                const BlockCoord coord(p, work);
                loads.load_work_tile(coord, TileRange(p, coord), work.number);
                if constexpr (kCounted)
                    work.advance(p, work.take(p));
                else
                    work.advance(p);
            }
            if constexpr (kCounted)
                loads.finish(work.number);
        }
        produce_bias(p, maps, barriers);
        return;
    }
    take_registers<kGroupRegisters>();
    Group group(index, barriers.smem);
    auto advance = [&](Work &work) {
        if constexpr (kCounted)
            work.advance(p, barriers.next_number(index, work.parity()));
        else
            work.advance(p);
    };
    for (Work work(p); work.is_left(p); advance(work)) {
        const BlockCoord coord(p, work);
        const TileRange tiles(p, coord);
        float o[kRowTiles][kOutTiles][4] = {};
        RowState row;
        begin_rows(row, p);
        read_sink(row, p, coord);
        await_q(p, coord, barriers, work, index);
        if (tiles.count > tiles.first)
            compute_rows(p, coord, tiles, barriers, group, o, row);
        else if constexpr (kOwnOPlace)
            group.release_q(barriers);
        epilogue(p, coord, maps, barriers, group, o, row);
    }
    group.ping_pong.finish();
    if constexpr (kOByMap)
        if (group.lane == 0)
            wait_stores_read();
}

// The kernel that runs before the main one. Sets the counter of work tiles to 0, and with dropout makes the column
// keys.
template <int kBlockThreads> __device__ __forceinline__ void prepare(const Params &p)
{
    if constexpr (kDropout)
        prepare_column_keys<kBlockThreads>(p);
    if (kCounted && (!kDropout || blockIdx.x == 0) && threadIdx.x == 0)
        *reinterpret_cast<unsigned *>(p.partial) = 0;
}
