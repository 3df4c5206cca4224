#pragma once
#include "forward/alibi.cuh"
#include "forward/bias.cuh"

// ---- terms: what is added to scores ------------------------------------------------------------------------
//
// On mma.sync, scores begin as the terms, and the product comes on top of them: accumulators have to begin as
// something. After a transform (softcap), and where warps divide columns, the terms are added. So is a bias in 16
// bits, whose words are read before the product, which hides their way. On wgmma: hopper/fwd_rows.cu.in.
constexpr bool kTerms = kAlibi || kBias != BiasKind::kNone;
constexpr bool kBiasAhead = kBiasHalf && !kWgmma;
constexpr bool kTermsFirst = kTerms && !kSoftcap && kParts == 1 && !kBiasAhead && !kWgmma;
constexpr bool kSkips = kBias == BiasKind::kBool && kTermsFirst;  // a warp may skip a tile of which it sees no key

struct Terms {
    Alibi alibi;
    Bias bias;
    float inverse_scale;
    bool side;  // neighbours of a bias can be read at once

    // first_row: of this warp.
    __device__ __forceinline__ Terms(const Params &p, const BlockPlace &place, int first_row, int lane)
        : alibi(p, place, first_row, lane), bias(p, place, first_row, lane), inverse_scale(p.features.inverse_scale),
          side(p.features.bias_side >= kTogether && place.padding() % kTogether == 0)
    {
    }

    // Scores of a tile begin as their terms; kAdd: these are added. False where no key of the tile is seen by any
    // row of this warp.
    template <bool kMasked, bool kAdd>
    __device__ __forceinline__ bool apply(float (&s)[kRowTiles][kColTiles][4], int tile) const
    {
        if constexpr (kBias != BiasKind::kNone)
            return reads_side<kMasked>(tile) ? apply_bias<kMasked, kAdd, true>(s, tile)
                                             : apply_bias<kMasked, kAdd, false>(s, tile);
        else if constexpr (kAlibi)
            apply_alibi<kMasked, kAdd>(s, tile);
        return true;
    }

    // ALiBi added where nothing is masked, but for what all scores of a row get, which is left to the softmax; with
    // kAlibiMma also but for what the product has.
    __device__ __forceinline__ void add_columns(float (&s)[kRowTiles][kColTiles][4], float (&offset)[kRowTiles][2],
                                                int tile) const
    {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                offset[m][h] = alibi.offset(tile, m, h);
                if (kAlibiMma && alibi.in_product(m, h))
                    continue;
#pragma unroll
                for (int n = 0; n < kColTiles; n++)
#pragma unroll
                    for (int e = 0; e < 2; e++)
                        s[m][n][2 * h + e] = alibi.added(s[m][n][2 * h + e], m, h, n, e);
            }
    }

    // A bias in 16 bits, for add(): two neighbours of a row a word.
    template <bool kMasked>
    __device__ __forceinline__ void load(uint32 (&words)[kRowTiles][2][kColTiles], int tile) const
    {
        if (reads_side<kMasked>(tile))
            load_all<kMasked, true>(words, tile);
        else
            load_all<kMasked, false>(words, tile);
    }

    template <bool kMasked>
    __device__ __forceinline__ void add(float (&s)[kRowTiles][kColTiles][4],
                                        const uint32 (&words)[kRowTiles][2][kColTiles], int tile) const
    {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int n = 0; n < kColTiles; n++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        float &score = s[m][n][2 * h + e];
                        score = fmaf(bias_number(BiasElem(words[m][h][n] >> 16 * e)), inverse_scale, score);
                        if constexpr (kAlibi)
                            score += alibi.template term < kCausal && !kMasked > (tile, m, h, n, e);
                    }
    }

private:
    // Neighbours at once: where they are aligned, and none is beyond the tensor's end.
    template <bool kMasked> __device__ __forceinline__ bool reads_side(int tile) const
    {
        return side && (!kMasked || bias.has(tile));
    }

    template <bool kMasked, bool kSide>
    __device__ __forceinline__ void load_all(uint32 (&words)[kRowTiles][2][kColTiles], int tile) const
    {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int n = 0; n < kColTiles; n += kTogether / 2) {
                    BiasElem x[kTogether];
                    bias.template load<kMasked, kSide>(m, h, tile * kBc + key_column(n), x);
#pragma unroll
                    for (int i = 0; i < kTogether; i += 2)
                        words[m][h][n + i / 2] = x[i] | uint32(x[i + 1]) << 16;
                }
    }

    // The same of a bias, with ALiBi if there is one.
    template <bool kMasked, bool kAdd, bool kSide>
    __device__ __forceinline__ bool apply_bias(float (&s)[kRowTiles][kColTiles][4], int tile) const
    {
        uint32 seen = 0;
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int n = 0; n < kColTiles; n += kTogether / 2) {
                    BiasElem x[kTogether];
                    bias.template load<kMasked, kSide>(m, h, tile * kBc + key_column(n), x);
#pragma unroll
                    for (int i = 0; i < kTogether; i++) {
                        float &score = s[m][n + i / 2][2 * h + i % 2];
                        if constexpr (kBias == BiasKind::kBool)
                            seen |= uint32(x[i]);
                        float term = bias_number(x[i]);
                        if constexpr (kBias != BiasKind::kBool)
                            term *= inverse_scale;
                        if constexpr (kAlibi)
                            term += alibi.template term < kCausal && !kMasked > (tile, m, h, n + i / 2, i % 2);
                        score = kAdd ? score + term : term;
                    }
                }
        return kBias != BiasKind::kBool || __any_sync(0xffffffffu, seen != 0);
    }

    template <bool kMasked, bool kAdd>
    __device__ __forceinline__ void apply_alibi(float (&s)[kRowTiles][kColTiles][4], int tile) const
    {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int n = 0; n < kColTiles; n++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        float &score = s[m][n][2 * h + e];
                        const float term = alibi.template term < kCausal && !kMasked > (tile, m, h, n, e);
                        score = kAdd ? score + term : term;
                    }
    }
};
