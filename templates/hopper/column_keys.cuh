#pragma once
#include "features/dropout.cuh"
#include "hopper/stages.cuh"

// ---- keys of columns ----------------------------------------------------------------------------------------------
//
// All rows, heads and batches have the same keys of columns. The step before the main one puts them into the workspace,
// as lanes want them; those of a tile come into shared memory with its K where what P is multiplied by is made early,
// else with its V.

constexpr int kKeysAt = 128;  // in the workspace, which begins with the counter of work

__device__ __forceinline__ char *column_keys_at(const Params &p, int column)
{
    return reinterpret_cast<char *>(p.partial) + kKeysAt + int64(column) * 8;
}

// The step before, of kKeysOfBlock / 2 threads. A warp's call of Philox makes the keys of 64 columns.
__device__ __forceinline__ void prepare_column_keys(const Params &p)
{
    const int lane = threadIdx.x % 32, sixty_four = blockIdx.x * (kKeysOfBlock / 64) + threadIdx.x / 32;
    uint2 *words = reinterpret_cast<uint2 *>(column_keys_at(p, sixty_four * 64)) + lane;
    uint32 x[4];
    column_keys(x, DropoutSeed(p.features), sixty_four, lane_pair(lane), lane % 4);
    words[0] = uint2{x[0], x[1]};
    words[32] = uint2{x[2], x[3]};
}

// Those of a tile: a lane's word for each 16 columns, the words of 32 columns next to each other.
struct KeyTile {
    uint32 first;  // of this lane

    __device__ __forceinline__ KeyTile(uint32 smem, const Stage &stage)
        : first(smem + kKeysArea + stage.index * kKeyTileBytes + thread_index() % 32 * 8)
    {
    }

    // Of 32 columns, from 16 * step on.
    __device__ __forceinline__ float2 words(int step) const
    {
        return load_shared_8(first + step * 128);
    }
};

// Calls use(step, i) for each word of P, when dropout has its numbers: step: of 16 columns; i: as pack_scores has it.
template <class Dropped, class Use>
__device__ __forceinline__ void each_word_of_p(Dropped &dropout, KeyTile keys, const Use &use)
{
#pragma unroll
    for (int step = 0; step < kBc / 16; step += 2) {
        const float2 words = keys.words(step);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            dropout.multiply_by(__float_as_uint(half == 0 ? words.x : words.y));
#pragma unroll
            for (int i = 0; i < 4; i++)
                use(step + half, i);
        }
    }
    __syncwarp();  // all of it have read, before one gives the tile back
}

// What P of a tile is multiplied by. Made while the tensor cores compute S: in a branch, though it is taken always,
// because ptxas moves what is not in one behind the wait for S, where the row waits for it. No bound is 0.
template <class Dropped>
__device__ __forceinline__ void make_keeps(uint32 (&keep)[kBc / 16][4], Dropped &dropout, KeyTile keys)
{
    if (dropout.p.features.drop_bound == 0)
        return;
    each_word_of_p(dropout, keys, [&](int step, int i) { keep[step][i] = dropout.keep(0, i % 2, i / 2); });
}

// What is dropped of P, which is in elements, becomes 0.
template <class Dropped> __device__ __forceinline__ void drop(uint32 (&p)[kBc / 16][4], Dropped &dropout, KeyTile keys)
{
    each_word_of_p(dropout, keys, [&](int step, int i) { p[step][i] = dropout.apply(p[step][i], 0, i % 2, i / 2); });
}

// The same by what was made early.
__device__ __forceinline__ void drop(uint32 (&p)[kBc / 16][4], const uint32 (&keep)[kBc / 16][4])
{
#pragma unroll
    for (int step = 0; step < kBc / 16; step++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            p[step][i] = keep_elements(p[step][i], keep[step][i]);
}
