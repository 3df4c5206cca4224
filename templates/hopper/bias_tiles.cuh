#pragma once
#include "features/bias.cuh"
#include "hopper/side_tiles.cuh"
#include "hopper/wgmma.cuh"
#include "lib/mma.cuh"
#include "lib/ptx.cuh"

// ---- a bias in 16 bits, through shared memory ---------------------------------------------------------------
//
// The warps of the producer load the bias tiles (bias_producer.cuh), consumers add them to S.

// With kBiasInAccumulator the accumulator of S is initialised with the bias, converted by mma.sync, and Q K^T is
// added. A bias of infinity (which hides a key) or NaN (which a mask may hide) breaks this: infinity times 0 is NaN, so
// eight columns of its row become NaN. The sums of P show the NaN (speculative_max.cuh). S is then computed again, and
// the bias is converted element by element. To look for such values before Q K^T costs 4 % of the time, because the row
// then waits for the check.

using BiasType = Either<kBias == BiasKind::kBf16, bf16, fp16>::Type;

// If the scale is the usual 1 / sqrt(D), 1 / scale is a power of two for these D, and 16 bits hold it exactly.
constexpr bool kScaleIsExact = kHeadDim == 16 || kHeadDim == 64 || kHeadDim == 256;

// Converts a bias to the unit of Q K^T, that is, multiplies it by 1 / scale. It does so by mma.sync with two diagonal
// matrices: `most` has 1 / scale rounded to 16 bits, `rest` has the remainder. The sum of both products is the bias of
// a column tile.
struct ScoreUnit {
    float of_bias;
    uint32 most, rest;  // this lane's fragments of the two matrices
    bool by_product;

    __device__ __forceinline__ explicit ScoreUnit(const Params &p) : of_bias(p.features.inverse_scale)
    {
        const uint32 bits = BiasType::pack(of_bias, 0.0f);
        const float left = of_bias - bias_number(BiasElem(bits));
        most = on_diagonal(bits);
        rest = on_diagonal(BiasType::pack(left, 0.0f));
        by_product = of_bias >= 0x1p-8f && of_bias <= 0x1p15f && (!kScaleIsExact || left == 0.0f);
    }

    // c = converted bias of a column tile. low, high: the bias of rows quad_row and quad_row + 8.
    __device__ __forceinline__ void multiply(float (&c)[4], uint32 low, uint32 high) const
    {
        begin_product(c, low, high);
        if (!kScaleIsExact)
            Mma<BiasType>::k8(c, low, high, rest);
    }

private:
    __device__ __forceinline__ void begin_product(float (&c)[4], uint32 low, uint32 high) const
    {
        if constexpr (kBias == BiasKind::kBf16)
            asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
                "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
                : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
                : "r"(low), "r"(high), "r"(most), "f"(0.0f));
        else
            asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
                : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
                : "r"(low), "r"(high), "r"(most), "f"(0.0f));
    }

    static __device__ __forceinline__ uint32 on_diagonal(uint32 bits)
    {
        const int column = threadIdx.x % 32 / 4, row = threadIdx.x % 4 * 2;
        return row == column ? bits : row + 1 == column ? bits << 16 : 0;
    }
};

// True if the bias is loaded by a tensor map: its keys are contiguous and aligned, and it has a row for each query.
__device__ __forceinline__ bool bias_is_mapped(const Params &p)
{
    return p.features.bias_side >= 8 && p.features.bias_query > 0;
}

struct BiasTiles : SideTiles {
    using SideTiles::SideTiles;

    // Address of an element: pages of 64 columns with the 128-byte swizzle of TMA.
    __device__ __forceinline__ uint32 at(int row, int key) const
    {
        const uint32 plain = tile() + key / kPageColumns * kQPageBytes + row * kPageRowBytes +
                             key % kPageColumns * int(sizeof(BiasElem));
        return plain ^ (plain >> 3 & 0x70);
    }

    // Initialises the accumulator of S with the bias, in the unit of Q K^T. Called by each consumer warp. Tiles with a
    // mask are converted element by element: they are few, and the maxima there do not show NaN.
    __device__ __forceinline__ void begin(float (&s)[kRowTiles][kColTiles][4], const ScoreUnit &unit, bool masked) const
    {
        wait_full();
        if (unit.by_product && !masked)
            each_pair([&](int n, const uint32(&x)[4]) {
                unit.multiply(s[0][n], x[0], x[1]);
                unit.multiply(s[0][n + 1], x[2], x[3]);
            });
        else
            convert(s, unit);
        pin(s);
    }

    // Adds the bias to an S that a warp has computed again. Later tiles of this row tile are converted element by
    // element, too: a bias that hides some keys usually hides more.
    __device__ __forceinline__ void add(float (&s)[kRowTiles][kColTiles][4], ScoreUnit &unit) const
    {
        unit.by_product = false;
        each_number([&](int n, int e, float number) { s[0][n][e] = fmaf(number, unit.of_bias, s[0][n][e]); });
    }

    // Reads the bias of this warp's rows, two neighbours per word. Called by each consumer warp.
    __device__ __forceinline__ void read(uint32 (&words)[kRowTiles][2][kColTiles])
    {
        wait_full();
        each_pair([&](int n, const uint32(&x)[4]) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                words[0][i % 2][n + i / 2] = x[i];
        });
        fence_products();
        release();
    }

private:
    // Calls use(n, x) for column tiles n and n + 1; x: words of rows quad_row and quad_row + 8 of both.
    template <typename Use> __device__ __forceinline__ void each_pair(const Use &use) const
    {
        const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
        const uint32 first = at(row, lane / 16 * 8);
#pragma unroll
        for (int n = 0; n < kColTiles; n += 2) {
            uint32 x[4];
            ldmatrix_x4(x, (first ^ n % 8 * 16) + n / 8 * kQPageBytes);
            use(n, x);
        }
    }
    __device__ __forceinline__ void convert(float (&s)[kRowTiles][kColTiles][4], const ScoreUnit &unit) const
    {
        each_number([&](int n, int e, float number) { s[0][n][e] = number * unit.of_bias; });
    }

    // Calls use(n, e, x) for element e of column tile n.
    template <typename Use> __device__ __forceinline__ void each_number(const Use &use) const
    {
        each_pair([&](int n, const uint32(&x)[4]) {
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    use(n + i / 2, i % 2 * 2 + e, bias_number(BiasElem(x[i] >> 16 * e)));
        });
        fence_products();
    }
};

// Initialises the barriers of the bias tiles of all warpgroups. Called by all threads of a block.
__device__ __forceinline__ void init_bias_tiles(const Params &p, uint32 smem)
{
    if (threadIdx.x < kGroups)
        BiasTiles(smem, threadIdx.x).init(bias_is_mapped(p) ? 1 : 32, 4);
}

using BiasStages = BiasTiles;
