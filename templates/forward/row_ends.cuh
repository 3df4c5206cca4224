#pragma once
#include "forward/softmax.cuh"

// ---- the end of a row: by what O is divided, and LSE ---------------------------------------------------------------

// Returns the exponent of a row's sum, in the unit of LSE.
__device__ __forceinline__ float natural_exponent(float max, const Params &p)
{
    constexpr float kLn2 = 0.6931471805599453f;
    return kWholeExponents ? exponent_of(max, p.scale_log2) * kLn2 : max * p.scale;
}

// sum: 0 if the row saw no key.
__device__ __forceinline__ float row_lse(float exponent, float sum)
{
    return sum == 0.0f ? minus_infinity() : exponent + logf(sum);
}

__device__ __forceinline__ float row_inverse(float sum)
{
    return sum == 0.0f ? 0.0f : 1.0f / sum;
}

// Returns the divisor of O. O is the sum of rounded P times V, and LSE needs the sum of P before rounding. If one key
// has nearly all of the weight, such as in a row that sees no other, O shows how its P was rounded. Then its P is
// rounded in the divisor, too. Partial results keep that rounding, because one call with all keys of a row has it. If
// exponents are not whole, P of the maximum is 1 and is not rounded.
template <class E = TypeOfP> __device__ __forceinline__ float divisor_of(float max, float sum, float scale_log2)
{
    if constexpr (kWholeExponents && !kPartial && !kMerges) {
        const float most = exp2_approx(fmaf(max, scale_log2, -exponent_of(max, scale_log2)));
        if (fabsf(sum - most) <= 0x1p-7f * most)  // false if the row saw no key
            return sum + (E::unpack(E::pack(most, most)).x - most);
    }
    return sum;
}
