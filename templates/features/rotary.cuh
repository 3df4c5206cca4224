#pragma once
#include "features/params.cuh"
#include "lib/mma.cuh"

// ---- rotary: rotates pairs of columns by angles that grow with the position --------------------------------
//
// (a, b) becomes (a cos - b sin, b cos + a sin), in the first kRotaryDim columns. Angle t of a position belongs to
// columns 2 t and 2 t + 1 (interleaved), or to columns t and t + kRotaryDim / 2 (halves).

__device__ __forceinline__ uint4 load_chunk(const char *row, int chunk)
{
    return __ldg(reinterpret_cast<const uint4 *>(row) + chunk);
}

static_assert(kRotaryDim % 16 == 0 && kRotaryDim <= kHeadDim, "whole chunks of pairs");

// Returns eight columns of a row, rotated. A position after the tables' end counts as the last one.
__device__ __forceinline__ uint4 rotated_chunk(const Params &p, const char *row, int chunk, int position)
{
    const uint4 own = load_chunk(row, chunk);
    if (chunk >= kRotaryDim / 8)
        return own;
    const int64 angles = int64(min(position, p.features.rotary_rows - 1)) * (kRotaryDim / 2 * kElemBytes);
    const uint32 x[4] = {own.x, own.y, own.z, own.w};
    uint32 out[4];
    if constexpr (kInterleaved) {
        const uint2 cos = __ldg(reinterpret_cast<const uint2 *>(p.features.rotary_cos + angles) + chunk);
        const uint2 sin = __ldg(reinterpret_cast<const uint2 *>(p.features.rotary_sin + angles) + chunk);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 pair = unpack2(x[i]);
            const float2 c2 = unpack2(i < 2 ? cos.x : cos.y), s2 = unpack2(i < 2 ? sin.x : sin.y);
            const float c = i % 2 == 0 ? c2.x : c2.y, s = i % 2 == 0 ? s2.x : s2.y;
            out[i] = pack2(pair.x * c - pair.y * s, pair.y * c + pair.x * s);
        }
    } else {
        constexpr int kHalf = kRotaryDim / 16;  // half of the rotated columns, in chunks
        const bool second = chunk >= kHalf;
        const uint4 partner = load_chunk(row, second ? chunk - kHalf : chunk + kHalf);
        const int of_half = second ? chunk - kHalf : chunk;
        const uint4 cos = load_chunk(p.features.rotary_cos + angles, of_half);
        const uint4 sin = load_chunk(p.features.rotary_sin + angles, of_half);
        const uint32 y[4] = {partner.x, partner.y, partner.z, partner.w};
        const uint32 c[4] = {cos.x, cos.y, cos.z, cos.w}, s[4] = {sin.x, sin.y, sin.z, sin.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 a = unpack2(x[i]), b = unpack2(y[i]), c2 = unpack2(c[i]);
            float2 s2 = unpack2(s[i]);
            s2.x = second ? s2.x : -s2.x;
            s2.y = second ? s2.y : -s2.y;
            out[i] = pack2(a.x * c2.x + b.x * s2.x, a.y * c2.y + b.y * s2.y);
        }
    }
    return uint4{out[0], out[1], out[2], out[3]};
}
