#pragma once
#include "features/bias.cuh"
#include "forward/columns.cuh"
#include "forward/coord.cuh"

// Neighbours of a row that a lane has, and reads with one load.
constexpr int kTogether = kWide ? 8 : 2;

// A load of kTogether contiguous, aligned neighbours.
template <BiasKind kKind>
__device__ __forceinline__ void load_neighbours(const typename BiasTypes<kKind>::Number *at,
                                                typename BiasTypes<kKind>::Number (&x)[kTogether])
{
    using Number = typename BiasTypes<kKind>::Number;
    if constexpr (!kWide) {
        const auto pair = __ldg(reinterpret_cast<const typename BiasTypes<kKind>::Pair *>(at));
        if constexpr (kKind == BiasKind::kFp32) {
            x[0] = pair.x;
            x[1] = pair.y;
        } else {
            x[0] = pair & ((1 << 8 * sizeof(Number)) - 1);
            x[1] = pair >> 8 * sizeof(Number);
        }
    } else if constexpr (kKind == BiasKind::kFp32) {
        const float4 *quads = reinterpret_cast<const float4 *>(at);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float4 quad = __ldg(quads + i);
            x[4 * i] = quad.x;
            x[4 * i + 1] = quad.y;
            x[4 * i + 2] = quad.z;
            x[4 * i + 3] = quad.w;
        }
    } else {
        constexpr int kOfWord = 4 / sizeof(Number);
        uint32 words[kTogether / kOfWord];
        if constexpr (kKind == BiasKind::kBool) {
            const uint2 all = __ldg(reinterpret_cast<const uint2 *>(at));
            words[0] = all.x, words[1] = all.y;
        } else {
            const uint4 all = __ldg(reinterpret_cast<const uint4 *>(at));
            words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
        }
#pragma unroll
        for (int i = 0; i < kTogether; i++)
            x[i] = Number(words[i / kOfWord] >> i % kOfWord * 8 * sizeof(Number));
    }
}

// The bias of this lane's rows.
struct BiasOfRows {
    const BiasElem *row[kRowTiles][2];  // at this lane's first column in tile 0
    int64 key_stride;
    int columns;  // columns before the tensor's end, relative to this lane's first one
    int seq_k;
    float inverse_scale;
    bool side;  // kTogether neighbours are contiguous and aligned

    __device__ __forceinline__ BiasOfRows(const Params &p, const BlockCoord &coord, int first_row, int lane)
        : key_stride(p.features.bias_key), columns(coord.seq_k(p) - lane % 4 * kLaneKeys), seq_k(coord.seq_k(p))
    {
        const BiasElem *bias = reinterpret_cast<const BiasElem *>(p.features.bias) +
                               coord.batch * p.features.bias_batch + coord.padding() * key_stride +
                               lane % 4 * kLaneKeys * key_stride;
        each_of<kRowTiles, 2>([&](int m, int h) {
            const int r = min(first_row + m * 16 + h * 8 + lane / 4, coord.rows - 1);
            row[m][h] =
                bias + coord.query_head(p, r) * p.features.bias_head + coord.query(p, r) * p.features.bias_query;
        });
        inverse_scale = p.features.inverse_scale;
        side = p.features.bias_side >= kTogether && coord.padding() % kTogether == 0;
    }

    // True if neighbours of a tile are read with one load: none is beyond the tensor's end.
    template <bool kMasked> __device__ __forceinline__ bool reads_side(int tile) const
    {
        return side && (!kMasked || (tile + 1) * kBc <= seq_k);
    }

    // Reads kTogether neighbours of a row, but none beyond the tensor's end. kSide: they are contiguous, aligned, and
    // before the end.
    template <bool kMasked, bool kSide>
    __device__ __forceinline__ void load(int m, int h, int column, BiasElem (&x)[kTogether]) const
    {
        if constexpr (kSide) {
            load_neighbours<kBias>(row[m][h] + column, x);
        } else {
            const BiasElem *at = row[m][h] + column * key_stride;
#pragma unroll
            for (int i = 0; i < kTogether; i++)
                x[i] = !kMasked || column + i < columns ? __ldg(at + i * key_stride) : BiasElem(0);
        }
    }
};

using Bias = BiasOfRows;
