#pragma once
#include "forward/columns.cuh"
#include "forward/fp8_p.cuh"
#include "forward/int8_keys.cuh"
#include "lib/mma.cuh"

// ---- the step before: V becomes e4m3 numbers, and is transposed -----------------------------------------------------
//
// A tile of V has one scale, which takes its largest magnitude to 448, the largest e4m3 number. A thread reads eight
// columns of four keys, and has a word of four keys for each of these columns. Its neighbour reads the next eight.
//
// A row of the result is a column of V. Its keys are permuted within 16, as the columns of K are: byte 4 t + i is key
// 2 t + i % 2 + i / 2 * 8. So a lane has the four keys of a word in its accumulator of S, and P needs no shuffles.
//
// Where the result lies is a policy: hopper/bytes_tiles.cuh, fp8_columns.cuh.

constexpr int kValueWords = kBc / 4;  // words of a row
constexpr int kValueParts = kValueWords * (kHeadDim / 8);
constexpr int kValuePasses = (kValueParts + kQuantThreads - 1) / kQuantThreads;
constexpr float kMostE4m3 = 448.0f, kLeastOfValues = 0x1p-100f;

// Packs four numbers; larger ones become 448.
__device__ __forceinline__ uint32 pack_e4m3(float a, float b, float c, float d)
{
    uint32 word;
    asm("{\n"
        "    .reg .b16 low, high;\n"
        "    cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
        "    cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
        "    mov.b32 %0, {low, high};\n"
        "}"
        : "=r"(word)
        : "f"(a), "f"(b), "f"(c), "f"(d));
    return word;
}

// This thread's numbers of a tile: eight columns of four keys, two elements in each word.
struct ValuePart {
    uint32 bits[4][4];
    int word, column;

    // Reads them; zeros after the last key.
    __device__ __forceinline__ void read(const Params &p, const SequenceCoord &keys, const char *head, int tile,
                                         int part)
    {
        word = part / 2 % kValueWords;
        column = part / (2 * kValueWords) * 16 + part % 2 * 8;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = word / 4 * 16 + word % 4 * 2 + i % 2 + i / 2 * 8, key = kWide ? wide_key(r, kBc) : r;
            const bool is_there = part < kValueParts && tile * kBc + key < keys.seq_k(p);
            uint4 x{};
            if (is_there)
                x = __ldg(reinterpret_cast<const uint4 *>(KeyRows(p, keys, tile).at(head, p.v_stride, key)) +
                          column / 8);
            bits[i][0] = x.x;
            bits[i][1] = x.y;
            bits[i][2] = x.z;
            bits[i][3] = x.w;
        }
    }

    // Returns the bits of the largest finite magnitude.
    __device__ __forceinline__ uint32 most() const
    {
        uint32 most = 0;
        each_of<4, 4>([&](int i, int c) {
            const float2 pair = unpack2(bits[i][c]);
            most = max(most, max(finite_bits(pair.x), finite_bits(pair.y)));
        });
        return most;
    }

    // Writes them, times a factor.
    __device__ __forceinline__ void write(char *out, float factor) const
    {
#pragma unroll
        for (int c = 0; c < 8; c++) {
            float x[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 pair = unpack2(bits[i][c / 2]);
                x[i] = c % 2 == 0 ? pair.x : pair.y;
                x[i] = fmaf(x[i], 0.0f, x[i] * factor);  // an infinity becomes NaN instead of 448
            }
            *reinterpret_cast<uint32 *>(out + ValueBytes::place(column + c, word * 4)) =
                pack_e4m3(x[0], x[1], x[2], x[3]);
        }
    }

private:
    static __device__ __forceinline__ uint32 finite_bits(float x)
    {
        return absolute_bits(x) < 0x7f800000u ? absolute_bits(x) : 0;
    }
};

// A tile of V. The steps of quantise.cuh for K and V take turns, so that their loads are under way together.
struct Values {
    static constexpr int kWords = 16 * kValuePasses;
    ValuePart parts[kValuePasses];
    uint32 *most_of_warp;

    __device__ __forceinline__ void read(const Params &p, const SequenceCoord &keys, int kv_head, int tile)
    {
        const char *head = key_head(p.v, p.v_stride, keys, kv_head);
#pragma unroll
        for (int pass = 0; pass < kValuePasses; pass++)
            parts[pass].read(p, keys, head, tile, pass * kQuantThreads + threadIdx.x);
    }

    // Puts the largest magnitude of each warp into shared memory, where `write` finds it after a barrier. turn: 0 and 1
    // for one tile and the next. They have places of their own, and there are barriers between a tile and the one after
    // the next.
    __device__ __forceinline__ void measure(int turn)
    {
        __shared__ uint32 memory[2][kQuantThreads / 32];
        uint32 most = 0;
#pragma unroll
        for (int pass = 0; pass < kValuePasses; pass++)
            most = max(most, parts[pass].most());
#pragma unroll
        for (int apart = 16; apart > 0; apart /= 2)
            most = max(most, __shfl_xor_sync(0xffffffffu, most, apart));
        most_of_warp = memory[turn];
        if (threadIdx.x % 32 == 0)
            most_of_warp[threadIdx.x / 32] = most;
    }

    // Reads, measures and writes a tile.
    __device__ __forceinline__ void round(const Params &p, const SequenceCoord &keys, int kv_head, int tile, int turn,
                                          int64 at)
    {
        read(p, keys, kv_head, tile);
        measure(turn);
        __syncthreads();  // the largest values of all warps are there
        write(p, at);
    }

    // Rounds and writes them. at: the tile's number among all tiles of all heads.
    __device__ __forceinline__ void write(const Params &p, int64 at) const
    {
        uint32 most = 0;
#pragma unroll
        for (int warp = 0; warp < kQuantThreads / 32; warp++)
            most = max(most, most_of_warp[warp]);
        const float largest = fmaxf(__uint_as_float(most), kLeastOfValues);
        if (threadIdx.x == 0)
            *value_scale(p, at) = largest * (kUnshift / kMostE4m3);
        char *out = rounded_values(p, at);
        write_sum_rows(out);
#pragma unroll
        for (int pass = 0; pass < kValuePasses; pass++)
            if (pass * kQuantThreads + int(threadIdx.x) < kValueParts)
                parts[pass].write(out, kMostE4m3 / largest);
    }
};
