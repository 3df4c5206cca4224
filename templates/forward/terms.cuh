#pragma once
#include "features/modifier.cuh"
#include "forward/alibi.cuh"
#include "forward/columns.cuh"
#include "forward/coord.cuh"

// ---- terms: ALiBi and bias, which are added to scores --------------------------------------------------------
//
// On mma.sync the accumulator of S is initialised with the terms, and Q K^T is added: an accumulator must be
// initialised anyway. The terms are added afterwards if scores are capped (kModified), if Q or K has 8 bits
// (kTermsBefore), if warps divide columns, and for a bias in 16 bits: its words are read before the product, which
// hides their latency. On wgmma: hopper/fwd_consumer.cuh.
constexpr bool kTerms = true;
constexpr bool kBiasAhead = kBiasHalf && !kWgmma;
constexpr bool kTermsFirst = !kModified && kParts == 1 && !kBiasAhead && !kWgmma;
constexpr bool kSkips = kBias == BiasKind::kBool && kTermsFirst;  // a warp may skip a tile if it sees none of its keys

// No key of the tile is after a row's own position.
template <bool kMasked> constexpr bool kNoKeyAfter = kCausal && !kMasked;

// Base classes instead of members: an empty member takes space and changes ptxas's registers.
struct Terms : Alibi, Bias {
    // first_row: the warp's first row.
    __device__ __forceinline__ Terms(const Params &p, const BlockCoord &coord, int first_row, int lane)
        : Alibi(p, coord, first_row, lane), Bias(p, coord, first_row, lane)
    {
    }

    // Sets the scores of a tile to their terms, or adds these if kAdd. Returns false if no row of this warp sees a key
    // of the tile.
    template <bool kMasked, bool kAdd>
    __device__ __forceinline__ bool apply(float (&s)[kRowTiles][kColTiles][4], int tile) const
    {
        if constexpr (kBias != BiasKind::kNone)
            return Bias::reads_side<kMasked>(tile) ? apply_bias<kMasked, kAdd, true>(s, tile)
                                                   : apply_bias<kMasked, kAdd, false>(s, tile);
        else if constexpr (kAlibi)
            apply_alibi<kMasked, kAdd>(s, tile);
        return true;
    }

    // Adds ALiBi to a tile without a mask. The part that is the same for all scores of a row goes to `offset` instead,
    // for the softmax. With kAlibiMma the product already contains slope * column.
    __device__ __forceinline__ void add_columns(float (&s)[kRowTiles][kColTiles][4], float (&offset)[kRowTiles][2],
                                                int tile) const
    {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                offset[m][h] = Alibi::offset(tile, m, h);
                if (kAlibiMma && Alibi::in_product(m, h))
                    continue;
#pragma unroll
                for (int n = 0; n < kColTiles; n++)
#pragma unroll
                    for (int e = 0; e < 2; e++)
                        s[m][n][2 * h + e] = Alibi::added(s[m][n][2 * h + e], m, h, n, e);
            }
    }

    // Reads a bias in 16 bits for add(), two neighbours of a row per word.
    template <bool kMasked>
    __device__ __forceinline__ void load(uint32 (&words)[kRowTiles][2][kColTiles], int tile) const
    {
        if (Bias::reads_side<kMasked>(tile))
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
                            score += Alibi::term<kNoKeyAfter<kMasked>>(tile, m, h, n, e);
                    }
    }

private:
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
                    Bias::load<kMasked, kSide>(m, h, tile * kBc + key_column(n), x);
#pragma unroll
                    for (int i = 0; i < kTogether; i += 2)
                        words[m][h][n + i / 2] = x[i] | uint32(x[i + 1]) << 16;
                }
    }

    // Reads the bias of a tile, and sets the scores to it or adds it, with ALiBi if there is any. See apply.
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
                    Bias::load<kMasked, kSide>(m, h, tile * kBc + key_column(n), x);
#pragma unroll
                    for (int i = 0; i < kTogether; i++) {
                        float &score = s[m][n + i / 2][2 * h + i % 2];
                        if constexpr (kBias == BiasKind::kBool)
                            seen |= uint32(x[i]);
                        float term = bias_number(x[i]);
                        if constexpr (kBias != BiasKind::kBool)
                            term *= inverse_scale;
                        if constexpr (kAlibi)
                            term += Alibi::term<kNoKeyAfter<kMasked>>(tile, m, h, n + i / 2, i % 2);
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
                        const float term = Alibi::term<kNoKeyAfter<kMasked>>(tile, m, h, n, e);
                        score = kAdd ? score + term : term;
                    }
    }
};
