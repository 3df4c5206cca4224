#pragma once
#include "hopper/stages.cuh"
#include "hopper/tma.cuh"
#include "lib/ptx.cuh"

// ---- tiles beside K and V -------------------------------------------------------------------------------------
//
// In stages of their own, filled by a warp of the warpgroup that loads. A stage has the barriers `full`, at which a
// tensor map's load or the lanes of that warp arrive, and `empty`, at which every warp arrives that has read it.
template <int kCount, int kBytes> struct TilesBeside {
    uint32 area, barriers;
    StageOf<kCount> stage;

    __device__ __forceinline__ TilesBeside(uint32 area, uint32 barriers) : area(area), barriers(barriers)
    {
    }

    __device__ __forceinline__ uint32 full() const
    {
        return barriers + stage.index * 16;
    }

    __device__ __forceinline__ uint32 empty() const
    {
        return full() + 8;
    }

    __device__ __forceinline__ uint32 tile() const
    {
        return area + stage.index * kBytes;
    }

    // Arrivals at either barrier.
    __device__ __forceinline__ void init(int loads, int readers) const
    {
        for (int i = 0; i < kCount; i++) {
            barrier_init(barriers + i * 16, loads);
            barrier_init(barriers + i * 16 + 8, readers);
        }
        barrier_init_fence();
    }

    // By a warp that loads, before it fills a stage; and by one that reads it, before ...
    __device__ __forceinline__ void wait_empty() const
    {
        barrier_wait(empty(), stage.parity ^ 1);
    }

    __device__ __forceinline__ void wait_full() const
    {
        barrier_wait(full(), stage.parity);
    }

    // ... and behind it.
    __device__ __forceinline__ void release()
    {
        __syncwarp();  // all of it have read
        barrier_arrive_by(threadIdx.x % 32, empty());
        stage.advance();
    }
};

// The warpgroup that this warp works for, if it loads.
__device__ __forceinline__ int served_group()
{
    return thread_index() / 32 - kGroups * 4 - 1;
}

// What belongs to the scores of one warpgroup.
struct SideTiles : TilesBeside<kSideStages, kSideTileBytes> {
    __device__ __forceinline__ SideTiles(uint32 smem, int group)
        : TilesBeside(smem + kSideArea + group * kSideStages * kSideTileBytes,
                      smem + kSideBarrierArea + group * kSideStages * 16)
    {
    }
};
