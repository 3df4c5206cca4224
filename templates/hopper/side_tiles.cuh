#pragma once
#include "hopper/stages.cuh"
#include "hopper/tma.cuh"
#include "lib/ptx.cuh"

// ---- tiles loaded beside K and V, in stages of their own (the bias) ------------------------------------------------
//
// A warp of the producer warpgroup loads them. A TMA load or the lanes of that warp arrive at `full`; every warp that
// has read the stage arrives at `empty`.
template <int kCount, int kBytes> struct TilesBeside {
    uint32 area, barriers;
    StageOf<kCount> stage;

    __device__ __forceinline__ TilesBeside(uint32 area, uint32 barriers) : area(area), barriers(barriers) {}

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

    // loads, readers: number of arrivals at `full` and at `empty`.
    __device__ __forceinline__ void init(int loads, int readers) const
    {
        for (int i = 0; i < kCount; i++) {
            barrier_init(barriers + i * 16, loads);
            barrier_init(barriers + i * 16 + 8, readers);
        }
        barrier_init_fence();
    }

    // By a warp that loads, before it loads a stage.
    __device__ __forceinline__ void wait_empty() const
    {
        barrier_wait(empty(), stage.parity ^ 1);
    }

    __device__ __forceinline__ void wait_full() const
    {
        barrier_wait(full(), stage.parity);
    }

    // By a warp that reads, after it has read a stage.
    __device__ __forceinline__ void release()
    {
        __syncwarp();  // all lanes have read
        barrier_arrive_by(threadIdx.x % 32, empty());
        stage.advance();
    }
};

// The index of the consumer warpgroup that this producer warp loads for.
__device__ __forceinline__ int served_group()
{
    return thread_index() / 32 - kGroups * 4 - 1;
}

// The stages of one consumer warpgroup, for its scores.
struct SideTiles : TilesBeside<kSideStages, kSideTileBytes> {
    __device__ __forceinline__ SideTiles(uint32 smem, int group)
        : TilesBeside(smem + kSideArea + group * kSideStages * kSideTileBytes,
                      smem + kSideBarrierArea + group * kSideStages * 16)
    {
    }
};
