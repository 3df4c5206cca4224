#pragma once
#include "features/params.cuh"
#include "lib/mma.cuh"
#include "lib/ptx.cuh"

// ---- dropout: some elements of P become 0, the others are scaled up ----------------------------------------------
//
// The decision to keep an element depends only on seed, offset, batch, head, row and column (runtime/ops/dropout.h). A
// call may be a part of a larger one, the whole: then head, row and column are those of the whole.
// Philox makes a key of sixteen bytes for each row, and one for each pair of neighbouring columns. The tensor cores
// multiply both keys; the product has a byte for each of the two columns. An element is kept if its byte is not below a
// threshold. So a lane calls Philox once per 32 rows or 64 columns, not once per sixteen elements.
//
// A byte has only 256 values, so a fraction of the elements uses the next threshold. This choice is made outside loops
// over keys.

// Computes both halves of a product with one instruction. With C++ code, ptxas adds a useless 0 to the upper half.
__device__ __forceinline__ void multiply(uint32 x, uint32 y, uint32 &low, uint32 &high)
{
    asm("{\n"
        "    .reg .b64 product;\n"
        "    mul.wide.u32 product, %2, %3;\n"
        "    mov.b64 {%0, %1}, product;\n"
        "}"
        : "=r"(low), "=r"(high)
        : "r"(x), "r"(y));
}

constexpr uint32 kPhilox[] = {0xd2511f53u, 0xcd9e8d57u}, kPhiloxKey[] = {0x9e3779b9u, 0xbb67ae85u};

// Returns x as a value that ptxas does not know, in a separate register for each i. A known constant would be copied
// for each use.
__device__ __forceinline__ uint32 opaque(uint32 x, int i)
{
    return x + (thread_index() >> (10 + i));
}

// Returns the factors of two neighbours, 1 or 0 in fp16. The selector takes their bytes from x and y and puts 0x64
// above each: in fp16 that is 1024 + byte. Adding bound, twice 1 - 1024 - threshold, and saturating gives 1 or 0. This
// runs on the fp16 units, which are idle here, while bit operations all share another unit.
__device__ __forceinline__ uint32 keep_pair(uint32 x, uint32 y, int selector, uint32 bound)
{
    uint32 keep;
    asm("{\n"
        "    .reg .b32 numbers;\n"
        "    prmt.b32 numbers, %1, %2, %3;\n"
        "    add.sat.f16x2 %0, numbers, %4;\n"
        "}"
        : "=r"(keep)
        : "r"(x), "r"(y), "r"(selector), "r"(bound));
    return keep;
}

// Returns the bound for keep_pair. word: last word of the key of the first of 32 rows; rows: which of four pairs in
// each eight; column: of eight. The bound of the next threshold is 1 less. It is negative, and fp16 numbers from 1024
// on are 1 apart, so its bits are 1 more.
__device__ __forceinline__ uint32 choose_bound(const FeatureParams &f, uint32 word, int rows, int column)
{
    const uint32 bound = f.drop_bound, next = max(bound + 0x10001u, 0xe400e400u);
    return word + (((column ^ rows * 2) * 4 + rows) << 27) < uint32(f.drop_part) ? next : bound;
}

// Returns the bounds of two neighbouring columns; the first one is even.
__device__ __forceinline__ uint32 choose_bounds(const FeatureParams &f, uint32 word, int rows, int column)
{
    return __byte_perm(choose_bound(f, word, rows, column), choose_bound(f, word, rows, column + 1), 0x5410);
}

// Multiplies two elements of P by the factors of keep_pair: by 0, or by what 1 in fp16 is as an element.
__device__ __forceinline__ uint32 keep_elements(uint32 p, uint32 keep)
{
    return Elem::multiply(p, keep);
}

// The factor of kept elements, applied at the end.
__device__ __forceinline__ float keep_scale(const Params &p)
{
    return p.features.keep_scale * (1.0f / Elem::kOneOfFp16);
}

// Converts two factors, 1 or 0, to fp32.
__device__ __forceinline__ float2 keep_factors(uint32 keep)
{
    return fp16::unpack(keep);
}

struct DropoutSeed {
    uint32 keys[2], offset[2];
    uint32 first_row, first_pair;  // of the call in the whole

    __device__ __forceinline__ explicit DropoutSeed(const FeatureParams &f)
        : first_row(f.drop_row), first_pair(f.drop_pair)
    {
        const int64 seed = f.seed_at != nullptr ? *f.seed_at : f.seed;
        const int64 at = f.offset + (f.offset_at != nullptr ? *f.offset_at : 0);
        keys[0] = uint32(seed);
        keys[1] = uint32(seed >> 32);
        offset[0] = uint32(at);
        offset[1] = uint32(at >> 32);
    }

    __device__ __forceinline__ uint32 key(int i, int round) const
    {
        return keys[i] + round * kPhiloxKey[i];
    }
};

// Philox with seven rounds. x: receives the four words made from the counter (offset, index, of).
__device__ __forceinline__ void philox(uint32 (&x)[4], const DropoutSeed &seed, uint32 index, uint32 of)
{
    x[0] = seed.offset[0];
    x[1] = seed.offset[1];
    x[2] = index;
    x[3] = of;
#pragma unroll
    for (int round = 0; round < 7; round++) {
        uint32 a[2], b[2];  // lower and upper half of the two products of the round
        multiply(x[0], kPhilox[0], a[0], a[1]);
        multiply(x[2], kPhilox[1], b[0], b[1]);
        x[0] = b[1] ^ x[1] ^ seed.key(0, round);
        x[1] = b[0];
        x[2] = a[1] ^ x[3] ^ seed.key(1, round);
        x[3] = a[0];
    }
}

// The number of a head among all batches and heads of the whole.
__device__ __forceinline__ int head_of_whole(const Params &p, int batch, int head)
{
    return batch * p.features.drop_heads + p.features.drop_head + head;
}

// Makes word t = lane % 4 of the keys of rows 32 * rows32 + 8 * n + g, with g = lane / 4. head: of the whole.
// The first byte of a row key is odd.
__device__ __forceinline__ void row_keys(uint32 (&x)[4], const DropoutSeed &seed, int head, int rows32, int lane)
{
    philox(x, seed, rows32 * 32 + (lane + seed.first_row), head);
#pragma unroll
    for (int n = 0; n < 4; n++)
        x[n] |= lane % 4 == 0;
}

// Makes word t of the keys of column pairs 32 * pairs32 + 8 * n + pair. The second byte of a column key is odd.
__device__ __forceinline__ void column_keys(uint32 (&x)[4], const DropoutSeed &seed, int pairs32, int pair, int t)
{
    philox(x, seed, pairs32 * 32 + (pair * 4 + t + seed.first_pair), 0xffffffffu);
#pragma unroll
    for (int n = 0; n < 4; n++)
        x[n] |= (t == 0) << 8;
}

__device__ __forceinline__ uint32 one_of(const uint32 (&x)[4], int n)
{
    const uint32 lower = n % 2 == 1 ? x[1] : x[0], upper = n % 2 == 1 ? x[3] : x[2];
    return n >= 2 ? upper : lower;
}

// Returns the last word of the key of the first row. x: keys of 32 rows made by this warp.
__device__ __forceinline__ uint32 word_of_rows(const uint32 (&x)[4])
{
    return __shfl_sync(0xffffffffu, x[0], 3);
}

// Makes the keys of sixteen rows in the layout of the product: words of rows g and g + 8. sixteen: index of the sixteen
// rows. Returns word_of_rows.
__device__ __forceinline__ uint32 keys_of_rows(uint32 (&words)[2], const DropoutSeed &seed, int head, int sixteen,
                                               int lane)
{
    uint32 x[4];
    row_keys(x, seed, head, sixteen / 2, lane);
#pragma unroll
    for (int h = 0; h < 2; h++)
        words[h] = sixteen % 2 == 1 ? x[2 + h] : x[h];
    return word_of_rows(x);
}

// Returns the pair, of eight pairs of columns, whose key this lane has if rows are queries. The products of pairs 2 t
// and 2 t + 1 then come to lanes that have columns 2 t and 2 t + 1 of either half of sixteen.
__device__ __forceinline__ int lane_pair(int lane)
{
    const int g = lane / 4;
    return g % 2 * 4 + g / 2;
}
