#pragma once
#include "forward/place.cuh"
#include "features/bias.cuh"
#include "hopper/fwd_maps.cuh"
#include "hopper/side_tiles.cuh"
#include "hopper/wgmma.cuh"
#include "lib/mma.cuh"
#include "lib/ptx.cuh"

// ---- a bias in 16 bits, through shared memory ---------------------------------------------------------------
//
// It comes by a tensor map where there is one of it. Else a warp that loads copies 16 bytes at a time where these lie
// side by side and aligned, else 4, else single numbers.

// Scores begin as what mma.sync makes of the words of a bias, and Q K^T comes on top. Infinity times 0 is NaN: an
// infinity, which hides a key, or NaN, which a mask may hide, makes NaN of all others of its row in eight columns. The
// sums of P show it (guess.cuh), and where S is made again, words are converted and multiplied one by one. To
// look before Q K^T costs 4 % of the time: all that a row has to do then waits for it.

// A number as a bias has it, rounded to nearest even.
__device__ __forceinline__ uint32 bias_bits(float x)
{
    uint32 bits;
    if constexpr (kBias == BiasKind::kBf16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(0.0f), "f"(x));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(0.0f), "f"(x));
    return bits;
}

// 1 / scale is a power of two where the scale is the usual one, 1 / sqrt(D): 16 bits hold all of it.
constexpr bool kScaleIsExact = kHeadDim == 16 || kHeadDim == 64 || kHeadDim == 256;

// What a bias is multiplied by to be in the unit of products, 1 / scale, on the diagonal of a matrix, and what 16 bits
// leave of it on that of another one: so the products of the words of a column tile with both are the bias.
struct ScoreUnit {
    float of_bias;
    uint32 most, rest;  // this lane's of the two matrices
    bool by_product;

    __device__ __forceinline__ explicit ScoreUnit(const Params &p) : of_bias(p.features.inverse_scale)
    {
        const uint32 bits = bias_bits(of_bias);
        const float left = of_bias - bias_number(BiasElem(bits));
        most = on_diagonal(bits);
        rest = on_diagonal(bias_bits(left));
        by_product = of_bias >= 0x1p-8f && of_bias <= 0x1p15f && (!kScaleIsExact || left == 0.0f);
    }

    // A column tile, from its words of either row.
    __device__ __forceinline__ void multiply(float (&c)[4], uint32 low, uint32 high) const
    {
        begin_product(c, low, high);
        if (!kScaleIsExact)
            add_product(c, low, high);
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

    __device__ __forceinline__ void add_product(float (&c)[4], uint32 low, uint32 high) const
    {
        if constexpr (kBias == BiasKind::kBf16)
            asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
                "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                : "r"(low), "r"(high), "r"(rest));
        else
            asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                : "r"(low), "r"(high), "r"(rest));
    }

    static __device__ __forceinline__ uint32 on_diagonal(uint32 bits)
    {
        const int column = threadIdx.x % 32 / 4, row = threadIdx.x % 4 * 2;
        return row == column ? bits : row + 1 == column ? bits << 16 : 0;
    }
};

// Whether it comes by a tensor map: its keys lie side by side, aligned, and it has rows of its own for queries.
__device__ __forceinline__ bool bias_is_mapped(const Params &p)
{
    return p.features.bias_side >= 8 && p.features.bias_query > 0;
}

struct BiasTiles : SideTiles {
    using SideTiles::SideTiles;

    // Pages of 64 columns, whose chunks of 16 bytes are permuted by row as tensor maps' loads do it.
    __device__ __forceinline__ uint32 at(int row, int key) const
    {
        const uint32 plain = tile() + key / kPageColumns * kQPageBytes + row * kPageRowBytes + key % kPageColumns * 2;
        return plain ^ (plain >> 3 & 0x70);
    }

    // By a warp of the group: scores begin as their bias, in the unit of the product to come.
    // Those of a tile with a mask are converted: they are few, and nothing looks for NaN there, maxima pass over it.
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

    // On top of S that a warp has made again. The row tile's others begin as converted words, too: a bias that hides
    // some keys hides more.
    __device__ __forceinline__ void add(float (&s)[kRowTiles][kColTiles][4], ScoreUnit &unit) const
    {
        unit.by_product = false;
        each_number([&](int n, int e, float number) { s[0][n][e] = fmaf(number, unit.of_bias, s[0][n][e]); });
    }

    // By a warp of the group: two neighbours of a row a word.
    __device__ __forceinline__ void read(uint32 (&words)[kRowTiles][2][kColTiles])
    {
        wait_full();
        each_pair([&](int n, const uint32(&x)[4]) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                words[0][i % 2][n + i / 2] = x[i];
        });
        release_to_loads();
        release();
    }

private:
    // use(n, x): of two column tiles from n on, the words of either row.
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

    // use(n, e, x): of column tile n, the lane's number e.
    template <typename Use> __device__ __forceinline__ void each_number(const Use &use) const
    {
        each_pair([&](int n, const uint32(&x)[4]) {
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    use(n + i / 2, i % 2 * 2 + e, bias_number(BiasElem(x[i] >> 16 * e)));
        });
        release_to_loads();
    }
};

// ---- how a warp loads it ------------------------------------------------------------------------------------
//
// Of the rows of a group. What is behind the last key or query is zeros, or, in packed sequences by a map, what the
// bias holds there: keys are masked, and nobody writes O of queries.

// The group's first row, in the sequence.
__device__ __forceinline__ int served_row(const BlockPlace &place)
{
    return place.first_row + served_group() * kGroupRows;
}

__device__ __forceinline__ const BiasElem *bias_of(const Params &p, const BlockPlace &place)
{
    return reinterpret_cast<const BiasElem *>(p.features.bias) + place.batch * p.features.bias_batch +
           place.query_head(p, 0) * p.features.bias_head + served_row(place) * p.features.bias_query;
}

// By a map, one lane.
struct BiasPages {
    const TensorMap &map;
    int row, head, batch;

    __device__ __forceinline__ BiasPages(const Params &p, const TensorMaps &maps, const BlockPlace &place)
        : map(maps.bias), row(served_row(place)), head(coordinate(place.query_head(p, 0), p.features.bias_head)),
          batch(coordinate(place.batch, p.features.bias_batch))
    {
    }

    __device__ __forceinline__ void load(const Params &, const BiasTiles &side, int first_key) const
    {
        if (thread_index() % 32 == 0) {
            barrier_expect(side.full(), kSideTileBytes);
#pragma unroll
            for (int page = 0; page < kSidePages; page++)
                load_page(side.tile() + page * kQPageBytes, map, side.full(), first_key + page * kPageColumns, row,
                          head, batch);
        }
        __syncwarp();  // no lane is two phases behind
    }
};

// By copies of kSide neighbours each.
template <int kSide> struct BiasCopies {
    const BiasElem *first;
    int rows, keys;

    __device__ __forceinline__ BiasCopies(const Params &p, const TensorMaps &, const BlockPlace &place)
        : first(bias_of(p, place)), rows(place.rows - served_row(place)), keys(place.seq_k(p))
    {
    }

    __device__ __forceinline__ void load(const Params &p, const BiasTiles &side, int first_key) const
    {
        constexpr int kLanes = kBc / kSide < 32 ? kBc / kSide : 32, kStep = 32 / kLanes;  // lanes for a row
        const int lane = thread_index() % 32;
        const int64 step = kSide == 8 ? 0 : p.features.bias_query;  // with another, eight neighbours come by a map
#pragma unroll 1
        for (int key = lane % kLanes * kSide; key < kBc; key += 32 * kSide) {
            const int bytes = max(0, min(keys - first_key - key, kSide)) * 2;
            const BiasElem *from = first + first_key + key + lane / kLanes * step;
#pragma unroll 1
            for (int row = lane / kLanes; row < kGroupRows; row += kStep, from += kStep * step)
                if (kSide == 8)
                    copy_16_or_less(side.at(row, key), from, row < rows ? bytes : 0);
                else
                    copy_4_or_less(side.at(row, key), from, row < rows ? bytes : 0);
        }
        barrier_arrive_behind_copies(side.full());
    }
};

// Number by number, two a lane.
struct BiasNumbers {
    const BiasElem *first;
    int rows, keys;

    __device__ __forceinline__ BiasNumbers(const Params &p, const TensorMaps &, const BlockPlace &place)
        : first(bias_of(p, place)), rows(place.rows - served_row(place)), keys(place.seq_k(p))
    {
    }

    __device__ __forceinline__ void load(const Params &p, const BiasTiles &side, int first_key) const
    {
#pragma unroll 1
        for (int key = thread_index() % 32 * 2; key < kBc; key += 64) {
            const BiasElem *from = first + (first_key + key) * p.features.bias_key;
            const int left = keys - first_key - key;
#pragma unroll 1
            for (int row = 0; row < kGroupRows; row++, from += p.features.bias_query) {
                const uint32 low = row < rows && left > 0 ? __ldg(from) : 0;
                const uint32 high = row < rows && left > 1 ? __ldg(from + p.features.bias_key) : 0;
                store_shared_4(side.at(row, key), low | high << 16);
            }
        }
        barrier_arrive(side.full());  // what was stored is seen behind it; the other one waits for copies alone
    }
};
