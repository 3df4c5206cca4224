#pragma once
#include "backward/fragment.cuh"
#include "features/dropout.cuh"

// Dropout for this lane's elements of S^T, whose rows are keys. Keys (columns of S) come in pairs: the product with a
// pair's column key is computed twice, and each key of the pair takes its byte of it.
struct PhiloxDropout {
    const DropoutSeed seed;
    uint32 exponents[4];                     // added to the bytes of numbers, to put 0x64 above each
    uint32 columns[kKeyTiles][2];            // words of the column keys of this lane's pairs of keys
    uint32 keep[kKeyTiles][kQueryTiles][2];  // factors of two neighbouring queries, for either half of the rows

    static_assert(kKeyTiles <= 2, "a warp's keys are in 64 that one call of Philox has pairs of");

    // first_key: of this warp; each tile of keys begins at a multiple of 16.
    __device__ __forceinline__ PhiloxDropout(const Params &p, int first_key, int lane) : seed(p.features)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            exponents[i] = opaque(0x64000000u, i);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32 x[4];
            column_keys(x, seed, first_key / 64, h * 4 + lane / 8, lane % 4);
#pragma unroll
            for (int m = 0; m < kKeyTiles; m++)
                columns[m][h] = one_of(x, first_key / 16 % 4 + m);
        }
    }

    // Computes the factors of a tile of queries. first_query: of this warp; each step begins at a multiple of 16.
    __device__ __forceinline__ void begin(const Params &p, int batch, int head, int first_query, int lane)
    {
        const int of_whole = head_of_whole(p, batch, head);
        constexpr int kSteps = kQuerySteps % 2 == 0 ? 2 : 1;  // steps per call of Philox
        const int selector = 0x7430 + lane / 4 % 2 * 0x0101;
#pragma unroll
        for (int step = 0; step < kQuerySteps; step += kSteps) {
            const int sixteen = first_query / 16 + step;
            uint32 x[4];
            row_keys(x, seed, of_whole, sixteen / 2, lane);
            const uint32 bound = choose_bound(p.features, word_of_rows(x), lane % 4, lane / 4);
#pragma unroll
            for (int n = 0; n < 2 * kSteps; n++) {
                const uint32 row = kSteps == 1 && sixteen % 2 == 1 ? x[2 + n % 2] : x[n];
#pragma unroll
                for (int m = 0; m < kKeyTiles; m++) {
                    uint32 numbers[4];
                    mma_bytes(numbers, columns[m][0], columns[m][1], row, exponents);
#pragma unroll
                    for (int h = 0; h < 2; h++)
                        keep[m][2 * step + n][h] = keep_pair(numbers[2 * h], numbers[2 * h + 1], selector, bound);
                }
            }
        }
    }

    // Applies dropout to P^T, for dV.
    __device__ __forceinline__ void mask(Fragments &a) const
    {
        each_element(
            a, [&](uint32 &x, int step, int m, int i) { x = keep_elements(x, keep[m][2 * step + i / 2][i % 2]); });
    }

    // Marks dropped elements of P^T by a negative sign.
    __device__ __forceinline__ void mark(Scores &p) const
    {
        each_element(p, [&](float &x, int m, int n, int e) {
            if ((keep[m][n][e / 2] & 0x2000 << e % 2 * 16) == 0)
                x = -x;
        });
    }

    // Applies dropout to dP^T. It is a product, which fuses with the subtraction after it into one FMA; so dropped
    // elements must be finite.
    __device__ __forceinline__ void mask(Scores &dp) const
    {
#pragma unroll
        for (int m = 0; m < kKeyTiles; m++)
            each_of<kQueryTiles, 2>([&](int n, int h) {
                const float2 factors = keep_factors(keep[m][n][h]);
                dp[m][n][2 * h] *= factors.x;
                dp[m][n][2 * h + 1] *= factors.y;
            });
    }
};

using Dropout = PhiloxDropout;

// The factor of dV at the end.
__device__ __forceinline__ float value_scale(const Params &p)
{
    return keep_scale(p);
}
