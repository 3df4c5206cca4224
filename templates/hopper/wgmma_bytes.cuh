#pragma once
#include "lib/types.cuh"

// ---- wgmma of bytes, as in wgmma_lists.cu.in, which instantiates these: a depth of 32, which is contiguous ----------

// s += a b: integers of 8 bits, summed in 32 bits.
template <int kColumns> struct WgmmaS8;

// d = a b, or d += a b: e4m3 numbers, a in registers.
template <int kColumns> struct WgmmaE4m3;

#define FA2I_INTEGERS(n) "+r"(s[n][0]), "+r"(s[n][1]), "+r"(s[n][2]), "+r"(s[n][3])

// a0 ... a5: numbers of the asm operands after the accumulator.
#define FA2I_WGMMA_S8(columns, a0, a1, ...)                                                                            \
    template <> struct WgmmaS8<columns> {                                                                              \
        static __device__ __forceinline__ void add(uint32 (&s)[columns / 8][4], uint64 a, uint64 b)                    \
        {                                                                                                              \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns "k32.s32.s8.s8 {" FA2I_NAMES_##columns           \
                         "}, %" #a0 ", %" #a1 ", 1;"                                                                   \
                         : FA2I_TILES_##columns(FA2I_INTEGERS)                                                         \
                         : "l"(a), "l"(b));                                                                            \
        }                                                                                                              \
    }

#define FA2I_WGMMA_E4M3(columns, a0, a1, a2, a3, a4, a5, ...)                                                          \
    template <> struct WgmmaE4m3<columns> {                                                                            \
        template <int kTiles>                                                                                          \
        static __device__ __forceinline__ void multiply(float (&d)[1][kTiles][4], const uint32 (&a)[4], uint64 b,      \
                                                        int add)                                                       \
        {                                                                                                              \
            constexpr int kFirst = 0;                                                                                  \
            asm volatile("{\n"                                                                                         \
                         "    .reg .pred add;\n"                                                                       \
                         "    setp.ne.s32 add, %" #a5 ", 0;\n"                                                         \
                         "    wgmma.mma_async.sync.aligned.m64n" #columns "k32.f32.e4m3.e4m3 {" FA2I_NAMES_##columns   \
                         "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #a4 ", add, 1, 1;\n"                         \
                         "}"                                                                                           \
                         : FA2I_TILES_##columns(FA2I_TILE)                                                             \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                              \
        }                                                                                                              \
    }
