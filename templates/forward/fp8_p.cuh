#pragma once
#include "forward/softmax.cuh"
#include "lib/elements.cuh"

// ---- P in e4m3 numbers, without exp2 --------------------------------------------------------------------------------
//
// The e4m3 number with the bits 8 e + m is 2^(e - 7) * (1 + m / 8), where m < 8. So the bits of the number nearest to
// 2^x are nearly 8 (x + 7), rounded: P's bits are the score's, in steps of 1/8. This number is larger than 2^x by a
// factor of 1 to 1.062, besides its rounding by up to 1/16. The factor that all P of a row share cancels in O, because
// the row sums are of the same numbers. The rest has a standard deviation of 1.8 %, and rounding one of 2.5 %. LSE is
// corrected by the mean. (Schraudolph, "A fast, compact approximation of the exponential function", 1999, has the idea
// for fp64.) It takes about half of the instructions, and does not need the unit for exp2, which would limit kernels.
//
// Scores are in units of kMostBits steps: P has the bits kMostBits * (score - maximum + kOne). So a saturated number
// gives the largest e4m3 number. Large scales make scores so coarse that rounding alone may go beyond it.
constexpr int kMostBits = 126;
constexpr float kStep = 8.0f / kMostBits;  // a power of two of P

// P is multiplied by 2^kShift, so that fewer numbers are below the smallest e4m3 number. The scales of V undo it.
constexpr int kShift = 7;
constexpr float kUnshift = 1.0f / (1 << kShift);

// P of the maximum is 1.25 * 2^kShift, which is 1.05 times 2^x. The mean factor is 1.04: the integral of
// (1 + f) / 2^f for f from 0 to 1, or 2^kLog2OfMean.
constexpr float kQuarter = 0.25f, kOne = (7 + kShift + kQuarter) * kStep, kLog2OfMean = 0.0575f;
static_assert(8 * (7 + kShift + kQuarter + kLazyRescale) <= kMostBits, "no exact score is saturated");

constexpr uint32 kFourOnes = 0x38383838;  // e4m3 numbers

// Returns the bits of P in the bytes 0 and 2 of a word. x: two fp16 numbers from 0 to 1.
__device__ __forceinline__ uint32 p_bits(uint32 x)
{
    constexpr uint32 kMostOf128 = 0x3be03be0;  // 126 / 128
    constexpr uint32 kEight = 0x48004800;      // fp16 numbers from 8 to 9 are multiples of 1/128
    uint32 bits;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(bits) : "r"(x), "r"(kMostOf128), "r"(kEight));
    return bits;
}

// How P is made of a score: a number from 0 to 1, of which p_bits makes P. The row's sum is added up later.
template <class Scores> struct Fp8P {
    const float factor, term;

    // A factor that is not finite makes the row's sum NaN, because a saturated NaN is 0.
    __device__ __forceinline__ Fp8P(const Exponent &exponent, float &sum)
        : factor(exponent.factor * kStep), term(fmaf(-exponent.shift, kStep, kOne))
    {
        if constexpr (Scores::kScaled)
            sum = fmaf(factor, 0.0f, sum);
    }

    __device__ __forceinline__ void make(float &x, float &) const
    {
        const float y = fmaf(x, factor, term);
        x = !Scores::kScaled && y != y ? y : __saturatef(y);
    }
};

// Returns a row's maximum less the factor by which its P are too large, for LSE.
__device__ __forceinline__ float maximum_for_lse(float max, float scale_log2)
{
    return max - (kQuarter + kLog2OfMean) / scale_log2;
}
