#pragma once
#include "hopper/softmax.cuh"
#include "lib/mma.cuh"
#include "lib/ptx.cuh"

// ---- exchange of P between the two consumer warpgroups ----------------------------------------------------------
//
// Each thread gives P of its half of the keys to the thread of the other warpgroup that has the same rows.

constexpr int kOwnSteps = kOwnKeys / 16;  // k16 steps of O += P V

__device__ __forceinline__ void scale_packed(uint32 (&x)[kOwnSteps][4], const float (&by)[2])
{
    each_of<kOwnSteps, 4>([&](int step, int e) {
        const float2 y = unpack2(x[step][e]);
        x[step][e] = pack2(y.x * by[e % 2], y.y * by[e % 2]);
    });
}

// A barrier for the two warps that have the same rows. The first one orders writes before reads; after a second one the
// area is free again.
__device__ __forceinline__ void pair_sync()
{
    named_barrier(1 + threadIdx.x / 32 % 4, 64);
}

// Address of chunk i of P from a thread of warpgroup `part`. Two numbers of the thread's rows are stored after all of
// P.
__device__ __forceinline__ uint32 given(uint32 smem, int part, int i)
{
    return smem + kExchange + ((i * kParts + part) * 128 + threadIdx.x % 128) * 16;
}

__device__ __forceinline__ uint32 given_of_rows(uint32 smem, int part)
{
    return smem + kExchange + kOwnSteps * kThreads * 16 + (part * 128 + threadIdx.x % 128) * 8;
}

// Exchanges P and the maxima. Both take the larger maximum. If it has grown, which is rare, what was computed with the
// smaller one is rescaled.
__device__ __forceinline__ void exchange(uint32 smem, int part, uint32 (&own)[kOwnSteps][4],
                                         uint32 (&other)[kOwnSteps][4], RowState &row,
                                         float (&o)[kRowTiles][kOutTiles][4], float scale_log2)
{
#pragma unroll
    for (int step = 0; step < kOwnSteps; step++)
        store_shared_16(given(smem, part, step), {own[step][0], own[step][1], own[step][2], own[step][3]});
    store_shared_8(given_of_rows(smem, part), row.max[0][0], row.max[0][1]);
    pair_sync();
#pragma unroll
    for (int step = 0; step < kOwnSteps; step++) {
        const uint4 x = load_shared_16(given(smem, 1 - part, step));
        other[step][0] = x.x, other[step][1] = x.y, other[step][2] = x.z, other[step][3] = x.w;
    }
    const float2 theirs = load_shared_8(given_of_rows(smem, 1 - part));
    pair_sync();  // the exchange area is free
    const float max[2] = {theirs.x, theirs.y};
    if (!__any_sync(0xffffffffu, max[0] != row.max[0][0] || max[1] != row.max[0][1]))
        return;
    float own_by[2], other_by[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float both = fmaxf(row.max[0][h], max[h]);
        own_by[h] = row.max[0][h] == both ? 1.0f : rescaling(row.max[0][h], both, scale_log2);
        other_by[h] = max[h] == both ? 1.0f : rescaling(max[h], both, scale_log2);
        row.max[0][h] = both;
        row.sum[0][h] *= own_by[h];
    }
    scale_packed(own, own_by);
    scale_packed(other, other_by);
    Rescale{{{own_by[0], own_by[1]}}, true}.apply(o);
}

// Adds the sums of the other half of the keys.
__device__ __forceinline__ void add_sums(uint32 smem, int part, RowState &row)
{
    store_shared_8(given_of_rows(smem, part), row.sum[0][0], row.sum[0][1]);
    pair_sync();
    const float2 theirs = load_shared_8(given_of_rows(smem, 1 - part));
    row.sum[0][0] += theirs.x;
    row.sum[0][1] += theirs.y;
}
