#pragma once
// ---- types that every template uses --------------------------------------------------------------------
using int64 = long long;
using uint32 = unsigned int;
using uint64 = unsigned long long;

// Strides in elements: batch, sequence, head. head_dim is contiguous.
struct Strides {
    int64 batch, seq, head;
};

// A compile-time constant, to be passed to a generic lambda.
template <bool kValue> struct Bool {
    static constexpr bool value = kValue;
};

constexpr int kUnbounded = 1 << 30;  // larger than any length

__device__ __forceinline__ float minus_infinity()
{
    return __int_as_float(0xff800000);
}

// Calls use(x, m, n, e) for each element x of m16n8 tiles of accumulators.
template <class Number, int kM, int kN, class Use>
__device__ __forceinline__ void each_element(Number (&c)[kM][kN][4], Use use)
{
#pragma unroll
    for (int m = 0; m < kM; m++)
#pragma unroll
        for (int n = 0; n < kN; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                use(c[m][n][e], m, n, e);
}

// Calls use(a, b) for all numbers a below kA and b below kB: for instance the m16 tiles of a lane and their two rows.
template <int kA, int kB, class Use> __device__ __forceinline__ void each_of(Use use)
{
#pragma unroll
    for (int a = 0; a < kA; a++)
#pragma unroll
        for (int b = 0; b < kB; b++)
            use(a, b);
}

// Sets m16n8 tiles of accumulators to 0.
template <int kM, int kN> __device__ __forceinline__ void clear(float (&c)[kM][kN][4])
{
    each_element(c, [](float &x, int, int, int) { x = 0.0f; });
}

// True if both are the same type.
template <class A, class B> constexpr bool kSame = false;
template <class A> constexpr bool kSame<A, A> = true;

// Either<kFirst, A, B>::Type is A if kFirst, else B.
template <bool kFirst, class A, class B> struct Either {
    using Type = A;
};
template <class A, class B> struct Either<false, A, B> {
    using Type = B;
};
