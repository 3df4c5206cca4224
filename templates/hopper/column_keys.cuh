#pragma once
#include "forward/dropout.cuh"
#include "hopper/stages.cuh"

// ---- column keys of dropout ---------------------------------------------------------------------------------------
//
// The column keys are the same for all rows, heads and batches. The kernel before the main one makes them and stores
// them in the workspace, in the order in which lanes need them. The keys of a tile are loaded into shared memory
// together with its K if kKeepsEarly, else with its V.

constexpr int kKeysAt = 128;  // offset in the workspace, after the counter of work tiles

__device__ __forceinline__ char *column_keys_at(const Params &p, int column)
{
    return reinterpret_cast<char *>(p.partial) + kKeysAt + int64(column) * 8;
}

// Makes the column keys, in the kernel that runs before. One Philox call of a warp makes the keys of 64 columns.
template <int kBlockThreads> __device__ __forceinline__ void prepare_column_keys(const Params &p)
{
    const int lane = threadIdx.x % 32, sixty_four = blockIdx.x * (kBlockThreads / 32) + threadIdx.x / 32;
    uint2 *words = reinterpret_cast<uint2 *>(column_keys_at(p, sixty_four * 64)) + lane;
    uint32 x[4];
    column_keys(x, DropoutSeed(p.features), sixty_four, lane_pair(lane), lane % 4);
    words[0] = uint2{x[0], x[1]};
    words[32] = uint2{x[2], x[3]};
}

// The column keys of a tile: one word per lane for each 16 columns; the words of 32 columns are neighbours.
struct ColumnKeyTile {
    uint32 first;  // address of this lane's first word

    __device__ __forceinline__ ColumnKeyTile(uint32 smem, const Stage &stage)
        : first(smem + kKeysArea + stage.index * kKeyTileBytes + thread_index() % 32 * 8)
    {
    }

    // The words of 32 columns, from column 16 * step on.
    __device__ __forceinline__ float2 words(int step) const
    {
        return load_shared_8(first + step * 128);
    }
};

// Calls use(step, i) for each word i of the A fragment of P of a k16 step, after dropout has computed its bytes.
template <class Use>
__device__ __forceinline__ void each_word_of_p(Dropout &dropout, ColumnKeyTile keys, const Use &use)
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
    __syncwarp();  // all lanes have read before one gives the tile back
}

// Computes the factors of P of a tile while the tensor cores compute S. The branch is always taken (a bound is never
// 0): without it ptxas moves this work after the wait for S.
__device__ __forceinline__ void make_keeps(uint32 (&keep)[kBc / 16][4], Dropout &dropout, ColumnKeyTile keys)
{
    if (dropout.p.features.drop_bound == 0)
        return;
    each_word_of_p(dropout, keys, [&](int step, int i) { keep[step][i] = dropout.keep(0, i % 2, i / 2); });
}

// Applies dropout to P, which is packed to 16 bits: dropped elements become 0.
__device__ __forceinline__ void drop(uint32 (&p)[kBc / 16][4], Dropout &dropout, ColumnKeyTile keys)
{
    each_word_of_p(dropout, keys, [&](int step, int i) { p[step][i] = dropout.apply(p[step][i], 0, i % 2, i / 2); });
}

// Applies dropout to P with factors that were made early.
__device__ __forceinline__ void drop(uint32 (&p)[kBc / 16][4], const uint32 (&keep)[kBc / 16][4])
{
    each_of<kBc / 16, 4>([&](int step, int i) { p[step][i] = keep_elements(p[step][i], keep[step][i]); });
}
