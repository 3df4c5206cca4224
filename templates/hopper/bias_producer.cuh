#pragma once
#include "forward/tiles.cuh"
#include "hopper/bias_tiles.cuh"
#include "hopper/fwd_barriers.cuh"
#include "hopper/fwd_maps.cuh"
#include "hopper/work.cuh"
#include "lib/cp_async.cuh"

// ---- producer of bias tiles: a warp for each consumer warpgroup -----------------------------------------------------
//
// The fastest way that the layout allows is used: a tensor map; else cp.async of 16 bytes, if keys are contiguous and
// aligned; else of 4 bytes; else single elements.
//
// Elements after the last key or query are zeros. With packed sequences and a tensor map they are what the bias holds
// there; that does no harm, because the keys are masked and O of the queries is not written.

// The first row of the served warpgroup, in its sequence.
__device__ __forceinline__ int served_row(const BlockCoord &coord)
{
    return coord.first_row + served_group() * kGroupRows;
}

__device__ __forceinline__ const BiasElem *bias_of(const Params &p, const BlockCoord &coord)
{
    return reinterpret_cast<const BiasElem *>(p.features.bias) + coord.batch * p.features.bias_batch +
           coord.query_head(p, 0) * p.features.bias_head + served_row(coord) * p.features.bias_query;
}

// Load by a tensor map; one lane issues it.
struct BiasPages {
    const TensorMap &map;
    int row, head, batch;

    __device__ __forceinline__ BiasPages(const Params &p, const TensorMaps &maps, const BlockCoord &coord)
        : map(maps.bias), row(served_row(coord)), head(coordinate(coord.query_head(p, 0), p.features.bias_head)),
          batch(coordinate(coord.batch, p.features.bias_batch))
    {
    }

    __device__ __forceinline__ void load(const Params &, const BiasTiles &side, int first_key) const
    {
        if (thread_index() % 32 == 0) {
            barrier_expect(side.full(), kSideTileBytes);
#pragma unroll
            for (int page = 0; page < kSidePages; page++)
                load_page(side.tile() + page * kQPageBytes, map, side.full(), first_key + page * kPageColumns, row,
                          head, batch);
        }
        __syncwarp();  // keeps lanes within one phase of each other
    }
};

// Load by cp.async of kSide neighbouring elements.
template <int kSide> struct BiasCopies {
    const BiasElem *first;
    int rows, keys;

    __device__ __forceinline__ BiasCopies(const Params &p, const TensorMaps &, const BlockCoord &coord)
        : first(bias_of(p, coord)), rows(coord.rows - served_row(coord)), keys(coord.seq_k(p))
    {
    }

    __device__ __forceinline__ void load(const Params &p, const BiasTiles &side, int first_key) const
    {
        constexpr int kLanes = kBc / kSide < 32 ? kBc / kSide : 32, kStep = 32 / kLanes;  // lanes per row
        const int lane = thread_index() % 32;
        const int64 step = kSide == 8 ? 0 : p.features.bias_query;  // not 0: eight neighbours come by a map
#pragma unroll 1
        for (int key = lane % kLanes * kSide; key < kBc; key += 32 * kSide) {
            const int bytes = max(0, min(keys - first_key - key, kSide)) * int(sizeof(BiasElem));
            const BiasElem *from = first + first_key + key + lane / kLanes * step;
#pragma unroll 1
            for (int row = lane / kLanes; row < kGroupRows; row += kStep, from += kStep * step)
                if (kSide == 8)
                    copy_16_or_less(side.at(row, key), from, row < rows ? bytes : 0);
                else
                    copy_4_or_less(side.at(row, key), from, row < rows ? bytes : 0);
        }
        barrier_arrive_after_copies(side.full());
    }
};

// Load element by element, two per lane.
struct BiasNumbers {
    const BiasElem *first;
    int rows, keys;

    __device__ __forceinline__ BiasNumbers(const Params &p, const TensorMaps &, const BlockCoord &coord)
        : first(bias_of(p, coord)), rows(coord.rows - served_row(coord)), keys(coord.seq_k(p))
    {
    }

    __device__ __forceinline__ void load(const Params &p, const BiasTiles &side, int first_key) const
    {
#pragma unroll 1
        for (int key = thread_index() % 32 * 2; key < kBc; key += 64) {
            const BiasElem *from = first + (first_key + key) * p.features.bias_key;
            const int left = keys - first_key - key;
#pragma unroll 1
            for (int row = 0; row < kGroupRows; row++, from += p.features.bias_query) {
                const uint32 low = row < rows && left > 0 ? __ldg(from) : 0;
                const uint32 high = row < rows && left > 1 ? __ldg(from + p.features.bias_key) : 0;
                store_shared_4(side.at(row, key), low | high << 16);
            }
        }
        barrier_arrive(side.full());  // makes the stores visible; barrier_arrive_after_copies waits for cp.async only
    }
};

// Returns the number of the work tile after this one. Called by a warp that loads bias tiles for a warpgroup.
__device__ __forceinline__ unsigned number_beside(const Barriers &barriers, int group, const Work &work)
{
    // Wait until Q of this work tile is there: before that, a wait for the next parity would return at once.
    barrier_wait(barriers.q(group).full, work.parity());
    __syncwarp();  // all lanes have passed the wait
    barrier_arrive_by(threadIdx.x % 32, barriers.q(group).empty);
    return barriers.next_number(group, work.parity());
}

// A warp's loop: loads all bias tiles of one warpgroup. Source: how the rows of a work tile are loaded.
template <typename Source>
__device__ __forceinline__ void load_sides(const Params &p, const TensorMaps &maps, const Barriers &barriers)
{
    StageOf<kSideStages> stage;
    for (Work work(p); work.is_left(p);) {
        const BlockCoord coord(p, work);
        const TileRange tiles(p, coord);
        const Source source(p, maps, coord);
#pragma unroll 1
        for (int tile = tiles.count - 1; tile >= tiles.first; tile--) {
            BiasTiles side(barriers.smem, served_group());  // computed again, because these warps have few registers
            side.stage = stage;
            side.wait_empty();
            source.load(p, side, tile * kBc);
            stage.advance();
        }
        if constexpr (kCounted)
            work.advance(p, number_beside(barriers, served_group(), work));
        else
            work.advance(p);
    }
}

// Loads the bias tiles by the fastest way that the layout of the bias allows.
__device__ __forceinline__ void produce_bias(const Params &p, const TensorMaps &maps, const Barriers &barriers)
{
    if (served_group() < 0 || served_group() >= kGroups)
        return;
    if (bias_is_mapped(p))
        load_sides<BiasPages>(p, maps, barriers);
    else if (p.features.bias_side >= 8)
        load_sides<BiasCopies<8>>(p, maps, barriers);
    else if (p.features.bias_side >= 2)
        load_sides<BiasCopies<2>>(p, maps, barriers);
    else
        load_sides<BiasNumbers>(p, maps, barriers);
    cp_async_wait<0>();  // a warp must not end before its copies have
}
