#pragma once
#include "features/hidden.cuh"
#include "features/sinks.cuh"
#include "lib/ptx.cuh"

// ---- fragments, and the online softmax ------------------------------------------------------------------------
//
// Fragments (PTX ISA, mma.m16n8k16), with lane = 4 * quad_row + quad_lane. An accumulator holds columns 2 * quad_lane
// and 2 * quad_lane + 1 of a 16x8 tile: of row quad_row in c[0], c[1], and of row quad_row + 8 in c[2], c[3]. Two
// neighbouring accumulator tiles of S have the layout of one 16x16 A fragment, so P enters the second product without
// leaving its lane. The four lanes of a quad share a row.

// O is rescaled only when a row's maximum has grown by more than kLazyRescale, in log2 units. Until then the row keeps
// a stale maximum, and nearly all rescaling is skipped (as in FlashAttention-4). P stays at most 2^kLazyRescale: 2^8 in
// general, far from overflow in fp16; less with fp16 sums (product_pv_fp16.cuh) or in e4m3 numbers (fp8_p.cuh). With
// the speculative maximum P may be larger: hopper/speculative_max.cuh.

// P of a score is 2^(scale_log2 * score - exponent). The exponent is the row's maximum, possibly stale, times
// scale_log2, or that product rounded up to a whole number. Calls that see other keys of a row have other maxima. With
// whole exponents their P of a score differs by a power of two, and so does P rounded to 16 bits. Thus merged results
// have the bits of one call, but for the order of fp32 sums. This takes 1 to 3 % of the time of fwd_sm80
// (tests/bench/results/tried.md), so older SMs round exponents only where keys are divided anyway.
constexpr bool kWholeExponents = TypeOfP::kBytes == 2 && (kSplit || kHopper);

// State of this lane's rows; [row tile][rows quad_row, quad_row + 8].
struct RowSums {
    float max[kRowTiles][2];  // of raw scores, possibly stale; least_maximum() before the first visible key
    float sum[kRowTiles][2];  // of this lane's columns only; reduced over the quad at the end
};

struct RowSumsAndSink : RowSums {
    float sink;  // of the head; loaded early to hide the latency at the end of the row
};

// Only wgmma kernels with a sink have the member `sink`: an unused member may change ptxas's register allocation.
using RowState = Either<kSinks && kWgmma, RowSumsAndSink, RowSums>::Type;

// The initial state of rows: no key seen.
__device__ __forceinline__ void begin_rows(RowState &row, const Params &p)
{
    const float least = least_maximum(p);
    each_of<kRowTiles, 2>([&](int m, int h) {
        row.max[m][h] = least;
        row.sum[m][h] = 0.0f;
    });
}

// Returns the exponent that belongs to a maximum of raw scores.
__device__ __forceinline__ float exponent_of(float max, float scale_log2)
{
    if constexpr (!kWholeExponents)
        return max * scale_log2;
    // Numbers near 1.5 * 2^23 have no bits after the point, so adding it rounds. A conversion would take the unit that
    // computes exp2, which limits kernels with wgmma.
    constexpr float kToWhole = 0x1.8p23f;
    return __fmaf_ru(max, scale_log2, kToWhole) - kToWhole;
}

// Returns the factor of what was computed with one maximum, if another takes its place.
__device__ __forceinline__ float rescaling(float from, float to, float scale_log2)
{
    if constexpr (kWholeExponents)
        return exp2_approx(exponent_of(from, scale_log2) - exponent_of(to, scale_log2));
    else
        return exp2_approx((from - to) * scale_log2);
}

__device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// True if some rows may have seen no key yet. Then their maximum is -infinity; with a bias of numbers it never is.
template <bool kMasked> constexpr bool kMayBeUnseen = !kBiasNumbers && (kBias == BiasKind::kBool || kMasked);

// ---- how scores are made of accumulators: for row tile m, its rows quad_row (h = 0) and quad_row + 8, and each of
// kGroups groups of column tiles ----

// P is 2^(accumulator * factor - shift).
struct Exponent {
    float factor, shift;
};

// The accumulators are the scores.
struct ScoresThemselves {
    static constexpr bool kScaled = false;
    static constexpr int kGroups = 1;

    __device__ __forceinline__ float score(int, int, int, float x) const
    {
        return x;
    }

    __device__ __forceinline__ Exponent exponent(int, int, int, float scale_log2, float max) const
    {
        return {scale_log2, exponent_of(max, scale_log2)};
    }
};

// A score is the accumulator plus its row's offset.
struct ScoresWithOffset {
    static constexpr bool kScaled = false;
    static constexpr int kGroups = 1;

    const float (&offset)[kRowTiles][2];

    __device__ __forceinline__ float score(int m, int h, int, float x) const
    {
        return x + offset[m][h];
    }

    __device__ __forceinline__ Exponent exponent(int m, int h, int, float scale_log2, float max) const
    {
        return {scale_log2, fmaf(-offset[m][h], scale_log2, exponent_of(max, scale_log2))};
    }
};

// A score is the accumulator, less `start`, times a factor of its row and group.
template <int kCount> struct ScaledScores {
    static constexpr bool kScaled = true;  // no accumulator is infinite or NaN
    static constexpr int kGroups = kCount;

    float factor[kGroups][kRowTiles][2], start;

    __device__ __forceinline__ float score(int m, int h, int group, float x) const
    {
        return fmaf(x, factor[group][m][h], -start * factor[group][m][h]);
    }

    __device__ __forceinline__ Exponent exponent(int m, int h, int group, float scale_log2, float max) const
    {
        const float of_number = factor[group][m][h] * scale_log2;
        return {of_number, fmaf(start, of_number, exponent_of(max, scale_log2))};
    }
};

// Computes the maxima of this lane's scores. Returns true if one has grown so much that O must be rescaled.
template <class Scores>
__device__ __forceinline__ bool find_maxima(const float (&s)[kRowTiles][kColTiles][4], const Scores &scores,
                                            const RowState &row, float scale_log2, float (&tile_max)[kRowTiles][2])
{
    bool grown = false;
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            constexpr int kTiles = kColTiles / Scores::kGroups;  // of a group
            float most;
#pragma unroll
            for (int group = 0; group < Scores::kGroups; group++) {
                const int first = group * kTiles;
                float x = fmaxf(s[m][first][2 * h], s[m][first][2 * h + 1]);
#pragma unroll
                for (int n = first + 1; n < first + kTiles; n++)
                    x = fmaxf(x, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
                x = scores.score(m, h, group, x);
                most = group == 0 ? x : fmaxf(most, x);
            }
            tile_max[m][h] = most;
            grown |= (most - row.max[m][h]) * scale_log2 > kLazyRescale;
        }
    }
    return grown;
}

// Updates the maximum of a row from all of its columns; tile_max: maximum of this lane's columns. Returns the factor of
// the row's sum and of O.
template <bool kUnseen>
__device__ __forceinline__ float raise_maximum(float &row_max, float &tile_max, float scale_log2)
{
    tile_max = fmaxf(row_max, quad_max(tile_max));
    // No key seen yet: nothing to rescale, and -infinity minus itself would be NaN.
    const bool none = kUnseen && tile_max == minus_infinity();
    const float alpha = none ? 1.0f : rescaling(row_max, tile_max, scale_log2);
    row_max = tile_max;
    return alpha;
}

// How P is made of a score: by exp2. Another way: Fp8P (fp8_p.cuh).
template <class Scores> struct Exp2P {
    const Exponent exponent;

    __device__ __forceinline__ Exp2P(const Exponent &exponent, float &) : exponent(exponent) {}

    // Turns a score into P, and adds it to the row's sum.
    __device__ __forceinline__ void make(float &x, float &sum) const
    {
        x = exp2_approx(fmaf(x, exponent.factor, -exponent.shift));
        sum += x;
    }
};

// Turns S into P, and adds to the sums.
template <bool kUnseen, template <class> class P, class Scores>
__device__ __forceinline__ void make_p_of(float (&s)[kRowTiles][kColTiles][4], const Scores &scores, RowState &row,
                                          float scale_log2)
{
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const bool none = kUnseen && row.max[m][h] == minus_infinity();
            constexpr int kTiles = kColTiles / Scores::kGroups;  // of a group
#pragma unroll
            for (int group = 0; group < Scores::kGroups; group++) {
                const Exponent exponent = scores.exponent(m, h, group, scale_log2, row.max[m][h]);
                const P<Scores> p({exponent.factor, none ? 0.0f : exponent.shift}, row.sum[m][h]);
#pragma unroll
                for (int n = group * kTiles; n < (group + 1) * kTiles; n++)
#pragma unroll
                    for (int e = 2 * h; e < 2 * h + 2; e++)
                        p.make(s[m][n][e], row.sum[m][h]);
            }
        }
    }
}

// For mma.sync: turns S into P, adds to the sums, and rescales O if a maximum has grown enough. kUnseen: some rows may
// have seen no key yet. P: how it is made.
template <bool kUnseen, template <class> class P = Exp2P, class Scores = ScoresThemselves>
__device__ __forceinline__ void softmax_tile(float (&s)[kRowTiles][kColTiles][4], RowState &row,
                                             float (&o)[kRowTiles][kOutTiles][4], float scale_log2,
                                             const Scores &scores = {})
{
    float tile_max[kRowTiles][2];  // of this lane's columns; reduced over the quad only if a row needs it
    const bool grown = find_maxima(s, scores, row, scale_log2, tile_max);
    if (__any_sync(0xffffffffu, grown)) {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float alpha = raise_maximum<kUnseen>(row.max[m][h], tile_max[m][h], scale_log2);
                row.sum[m][h] *= alpha;
#pragma unroll
                for (int n = 0; n < kOutTiles; n++) {
                    o[m][n][2 * h] *= alpha;
                    o[m][n][2 * h + 1] *= alpha;
                }
            }
        }
    }
    make_p_of<kUnseen, P>(s, scores, row, scale_log2);
}
