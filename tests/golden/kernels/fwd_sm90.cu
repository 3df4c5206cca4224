// fwd_sm90 d=128 dtype=bf16 causal=1 groups=3 bc=64 stages=2 turns=1 persistent=1 order=weight
// op=forward abi=2 rows=192 keys=64 suffix=a maps=q/64,k/64,v/64,o/16; fwd_sm90 role=main threads=512 smem=163952 blocks=resident_row_tiles
// fwd_sm90: attention forward on SM 9.0. fp16 or bf16, wgmma, tiles loaded by TMA.
// ---- the variant -------------------------------------------------------------------------------
constexpr int kHeadDim = 128;  // D: columns of Q, K, V and O
constexpr int kGroups = 3;  // consumer warpgroups, 64 query rows each
constexpr int kBc = 64;  // key and value rows per tile
constexpr int kStages = 2;  // stages of K, and as many of V
constexpr bool kCausal = 1 == 1;  // query i sees keys <= i + seq_k - seq_q
constexpr bool kTurns = 1 == 1;  // ping-pong: warpgroups start their products in turn
constexpr bool kPackedHeads = 0 == 1;  // rows are all query heads of a group
constexpr int kPersistent = 1;  // 0: one work tile per block; 1: a fixed share; 2: from a counter
constexpr bool kByWeight = true;  // row tiles that see the most keys come first
constexpr bool kOwnOPlace = true;  // O has an area in shared memory beside Q
constexpr bool kOByMap = true;  // O is stored by TMA
constexpr bool kGuesses = false;  // tiles without a mask use the speculative maximum (guess.cuh)
constexpr bool kBegun = false;  // the accumulator of S begins as a bias in 16 bits
constexpr int kSideStages = 2;  // stages of bias tiles, for each warpgroup
constexpr bool kDropsBeside = false;  // dropout is applied to P while the next S is computed
constexpr bool kKeepsEarly = false;  // dropout's factors are made while S is computed
constexpr int kKeysOfBlock = 256;  // columns per block of the kernel that makes the column keys
constexpr int kBlocksPerSm = 1;
constexpr int kLoadRegisters = 32, kGroupRegisters = 160;
constexpr int kGeneratorSmemBytes = 163952;

// ---- the element, the SM and the features; a feature that is off costs nothing -------------------------------------
constexpr bool kBf16 = true;        // elements are bf16; else fp16
constexpr bool kTuring = false;      // Turing: products are m16n8k8, tiles pass through registers
constexpr bool kWgmma = true;       // products are wgmma

// Which members the parameters have (features/params.cuh).
#define FA2_BACKWARD     false  // members of the backward kernels
#define FA2_SCORE_PARAMS false  // members of softcap and window
#define FA2_FEATURES     false  // members of all other features

enum class Window { kNone, kSliding, kPrefix, kChunks };
enum class BiasKind { kNone, kFp16, kBf16, kFp32, kBool };
constexpr Window kWindow = Window::kNone;  // which keys a query sees, in addition to the causal mask
constexpr BiasKind kBias = BiasKind::kNone;  // type of the bias
constexpr bool kSoftcap = false;      // scores pass through a tanh
constexpr bool kAlibi = false;        // scores decrease with the distance of the key
constexpr bool kSinks = false;        // the softmax has one more column, without a value
constexpr bool kDropout = false;      // some elements of P are dropped
constexpr bool kVarlen = false;       // sequences are packed
constexpr bool kSeqused = false;      // number of keys per sequence is read from device memory
constexpr bool kLeftpad = false;      // the first keys are padding
constexpr bool kLengths = kVarlen || kSeqused || kLeftpad;
constexpr bool kPaged = false;        // K and V are paged
constexpr bool kCacheRows = false;    // each sequence names its row of the K/V cache
constexpr bool kAppend = false;       // new keys and values are first written into K and V
constexpr bool kRotary = false;       // new keys, and queries, are rotated first
constexpr bool kInterleaved = false;  // rotary rotates pairs of neighbouring columns
constexpr int kRotaryDim = 0;     // columns that are rotated
constexpr bool kWide = false;         // a lane has eight neighbouring keys, so it reads their bias with one load
constexpr bool kAlibiOffsets = false;  // the part of ALiBi that a row has in common goes to the softmax
constexpr bool kAlibiMma = false;      // slope * column is computed by the product Q K^T
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

__device__ __forceinline__ float minus_infinity()
{
    return __int_as_float(0xff800000);
}

// Either<kFirst, A, B>::Type is A if kFirst, else B.
template <bool kFirst, class A, class B> struct Either {
    using Type = A;
};
template <class A, class B> struct Either<false, A, B> {
    using Type = B;
};

// ---- derived constants -----------------------------------------------------------------------------------------
constexpr int kHeadDimV = kHeadDim;
constexpr bool kSplit = false, kVInK = false;
constexpr int kTeams = 1, kParts = 1, kMaxSplits = 1;
constexpr bool kStays = kPersistent > 0, kCounted = kPersistent == 2;
constexpr int kGroupRows = 64;                                     // M of wgmma
constexpr int kBr = kGroupRows * kGroups;                          // query rows per block
constexpr int kThreads = (kGroups + 1) * 128;                      // the last warpgroup loads
constexpr int kPrepareThreads = kDropout ? kKeysOfBlock / 2 : 32;  // of the kernel that runs before
constexpr int kRowTiles = 1;                                       // m16 row tiles per warp
constexpr int kColTiles = kBc / 8;                                 // n8 column tiles of S
constexpr int kOutTiles = kHeadDim / 8;                            // n8 column tiles of O
constexpr int kHeadDimPadded = (kHeadDim + 15) / 16 * 16;          // columns that S = Q K^T sums over, padded
constexpr int kDepth = kHeadDimPadded / 16;                        // k16 steps of S = Q K^T
constexpr int kPages = (kHeadDim + 63) / 64;                       // pages of 64 columns per tile
constexpr bool kSwizzle = true;        // rows of O in shared memory: 16-byte chunks permuted by row
constexpr bool kQInRegisters = false;  // O may use the area of Q, so its rows must be read first

// A bias in 16 bits comes through shared memory (bias_tiles.cuh). Its words are read while S is computed, unless other
// work is done at that time.
constexpr bool kBiasStaged = kBias == BiasKind::kFp16 || kBias == BiasKind::kBf16;
constexpr bool kBiasEarly = kBiasStaged && !kBegun && !kDropout;

// Rows of K and V, over all heads that are worked on at a time (kByWeight): 32 MiB, which L2 holds beside Q and O.
constexpr int kSectionRows = (32 << 20) / (2 * 2 * kHeadDim);

static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 256, "D is a multiple of 8 up to 256");
static_assert(kBc % 16 == 0 && kBc <= 256, "S is one wgmma wide; P V runs in k16 steps");
// All warpgroups are launched with the same number of registers; then the producer gives some to the consumers.
static_assert(kLoadRegisters + kGroups * kGroupRegisters <= (kGroups + 1) * (65536 / (kBlocksPerSm * kThreads) / 8 * 8),
              "warpgroups would wait for registers that nobody gives");

// ---- shared memory -----------------------------------------------------------------------------
//
// Tiles are pages of 64 columns, [page][row][64]: rows of 128 bytes, whose 16-byte chunks are permuted by row % 8. This
// is the 128-byte swizzle that TMA writes and wgmma reads. Q has separate pages for each warpgroup, so O of one
// warpgroup can use its pages while others still read theirs.
constexpr int kPageColumns = 64, kPageRowBytes = 128;
constexpr int kQPageBytes = kGroupRows * kPageRowBytes;
constexpr int kGroupBytes = kPages * kQPageBytes;
constexpr int kTilePageBytes = kBc * kPageRowBytes;
constexpr int kTileBytes = kPages * kTilePageBytes;
constexpr int kQArea = 0;
constexpr int kKArea = kGroups * kGroupBytes;
constexpr int kVArea = kKArea + kStages * kTileBytes;
constexpr int kTilesEnd = kVArea + kStages * kTileBytes;
constexpr int kOArea = kOwnOPlace ? kTilesEnd : kQArea;
// Bias tiles of each warpgroup, in the same pages (side_tiles.cuh).
constexpr int kSideArea = kTilesEnd + (kOwnOPlace ? kGroups * kGroupBytes : 0);
constexpr int kSidePages = kBc / kPageColumns;
constexpr int kSideTileBytes = kSidePages * kQPageBytes;
constexpr int kSideBytes = kBiasStaged ? kSideStages * kGroups * kSideTileBytes : 0;
static_assert(!kBiasStaged || kBc % kPageColumns == 0, "pages of a tile beside those of K are full");
constexpr int kColumnArea = kSideArea + kSideBytes;  // sixteen more columns of K (slopes.cuh)
constexpr int kBarrierArea = kColumnArea + (kAlibiMma ? kBc * 32 : 0);
constexpr int kSideBarrierArea = kBarrierArea + (2 * kGroups + 4 * kStages) * 8;
constexpr int kKeysArea = kSideBarrierArea + (kBiasStaged ? kSideStages * kGroups * 16 : 0);
constexpr int kKeyTileBytes = kBc * 8;  // column keys of a tile (column_keys.cuh)
static_assert(!kDropout || (kKeysArea % 16 == 0 && kBc % 32 == 0),
              "words of 32 columns are read at once, and copied whole");
constexpr int kPieceArea = kKeysArea + (kDropout ? kStages * kKeyTileBytes : 0);
constexpr int kSmemBytes = kPieceArea + (kCounted ? kGroups * 4 : 0);  // 4 bytes per warpgroup
static_assert(kSmemBytes == kGeneratorSmemBytes, "the generator computed another size");
// ---- generated text: wgmma names each register of its accumulator, which C++ cannot express -------------------------
//
// Wgmma<kColumns> multiplies 64 rows by kColumns columns with a depth of 16, into n8 column tiles of the accumulator d
// from kFirst on. A matrix in shared memory is given by a descriptor (wgmma.cuh). kLiesA, kLiesB: 0 if the depth is
// contiguous, 1 if the rows of a (or the columns of b) are.
//
// The asm has no "memory" clobber. Barriers, fence, commit and wait order its reads of shared memory. A clobber would
// force the compiler to reload values from memory between the products of a row.
#define FA2I_ELEMENT "bf16"
#define FA2I_TILE(n)                                                                                                   \
    "+f"(d[0][kFirst + n][0]), "+f"(d[0][kFirst + n][1]), "+f"(d[0][kFirst + n][2]), "+f"(d[0][kFirst + n][3])
#define FA2I_TILES_1 FA2I_TILE(0)
#define FA2I_NAMES_1 "%0, %1, %2, %3"
#define FA2I_TILES_2 FA2I_TILES_1, FA2I_TILE(1)
#define FA2I_NAMES_2 FA2I_NAMES_1 ", %4, %5, %6, %7"
#define FA2I_TILES_3 FA2I_TILES_2, FA2I_TILE(2)
#define FA2I_NAMES_3 FA2I_NAMES_2 ", %8, %9, %10, %11"
#define FA2I_TILES_4 FA2I_TILES_3, FA2I_TILE(3)
#define FA2I_NAMES_4 FA2I_NAMES_3 ", %12, %13, %14, %15"
#define FA2I_TILES_5 FA2I_TILES_4, FA2I_TILE(4)
#define FA2I_NAMES_5 FA2I_NAMES_4 ", %16, %17, %18, %19"
#define FA2I_TILES_6 FA2I_TILES_5, FA2I_TILE(5)
#define FA2I_NAMES_6 FA2I_NAMES_5 ", %20, %21, %22, %23"
#define FA2I_TILES_7 FA2I_TILES_6, FA2I_TILE(6)
#define FA2I_NAMES_7 FA2I_NAMES_6 ", %24, %25, %26, %27"
#define FA2I_TILES_8 FA2I_TILES_7, FA2I_TILE(7)
#define FA2I_NAMES_8 FA2I_NAMES_7 ", %28, %29, %30, %31"
#define FA2I_TILES_9 FA2I_TILES_8, FA2I_TILE(8)
#define FA2I_NAMES_9 FA2I_NAMES_8 ", %32, %33, %34, %35"
#define FA2I_TILES_10 FA2I_TILES_9, FA2I_TILE(9)
#define FA2I_NAMES_10 FA2I_NAMES_9 ", %36, %37, %38, %39"
#define FA2I_TILES_11 FA2I_TILES_10, FA2I_TILE(10)
#define FA2I_NAMES_11 FA2I_NAMES_10 ", %40, %41, %42, %43"
#define FA2I_TILES_12 FA2I_TILES_11, FA2I_TILE(11)
#define FA2I_NAMES_12 FA2I_NAMES_11 ", %44, %45, %46, %47"
#define FA2I_TILES_13 FA2I_TILES_12, FA2I_TILE(12)
#define FA2I_NAMES_13 FA2I_NAMES_12 ", %48, %49, %50, %51"
#define FA2I_TILES_14 FA2I_TILES_13, FA2I_TILE(13)
#define FA2I_NAMES_14 FA2I_NAMES_13 ", %52, %53, %54, %55"
#define FA2I_TILES_15 FA2I_TILES_14, FA2I_TILE(14)
#define FA2I_NAMES_15 FA2I_NAMES_14 ", %56, %57, %58, %59"
#define FA2I_TILES_16 FA2I_TILES_15, FA2I_TILE(15)
#define FA2I_NAMES_16 FA2I_NAMES_15 ", %60, %61, %62, %63"

// a0 ... a6: numbers of the asm operands after the accumulator.
#define FA2I_WGMMA(columns, tiles, a0, a1, a2, a3, a4, a5, a6)                                                         \
    template <> struct Wgmma<columns> {                                                                                \
        /* d = a b, or d += a b */                                                                                     \
        template <int kLiesA, int kLiesB, int kFirst = 0, int kTiles>                                                  \
        static __device__ __forceinline__ void multiply(float (&d)[1][kTiles][4], uint64 a, uint64 b, int add)         \
        {                                                                                                              \
            asm volatile("{\n"                                                                                         \
                         "    .reg .pred add;\n"                                                                       \
                         "    setp.ne.s32 add, %" #a2 ", 0;\n"                                                         \
                         "    wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." FA2I_ELEMENT "." FA2I_ELEMENT     \
                         " {" FA2I_NAMES_##tiles "}, %" #a0 ", %" #a1 ", add, 1, 1, %" #a3 ", %" #a4 ";\n"             \
                         "}"                                                                                           \
                         : FA2I_TILES_##tiles                                                                          \
                         : "l"(a), "l"(b), "r"(add), "n"(kLiesA), "n"(kLiesB));                                        \
        }                                                                                                              \
                                                                                                                       \
        /* the same, a in registers */                                                                                 \
        template <int kLiesB, int kFirst = 0, int kTiles>                                                              \
        static __device__ __forceinline__ void multiply(float (&d)[1][kTiles][4], const uint32 (&a)[4], uint64 b,      \
                                                        int add)                                                       \
        {                                                                                                              \
            asm volatile("{\n"                                                                                         \
                         "    .reg .pred add;\n"                                                                       \
                         "    setp.ne.s32 add, %" #a5 ", 0;\n"                                                         \
                         "    wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." FA2I_ELEMENT "." FA2I_ELEMENT     \
                         " {" FA2I_NAMES_##tiles "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #a4                  \
                         ", add, 1, 1, %" #a6 ";\n"                                                                    \
                         "}"                                                                                           \
                         : FA2I_TILES_##tiles                                                                          \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(kLiesB));                 \
        }                                                                                                              \
                                                                                                                       \
        /* d += a b, a in registers */                                                                                 \
        template <int kLiesB, int kFirst = 0, int kTiles>                                                              \
        static __device__ __forceinline__ void add(float (&d)[1][kTiles][4], const uint32 (&a)[4], uint64 b)           \
        {                                                                                                              \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." FA2I_ELEMENT "." FA2I_ELEMENT         \
                         " {" FA2I_NAMES_##tiles "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #a4                  \
                         ", 1, 1, 1, %" #a5 ";"                                                                        \
                         : FA2I_TILES_##tiles                                                                          \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kLiesB));                           \
        }                                                                                                              \
    }

template <int kColumns> struct Wgmma;
FA2I_WGMMA(64, 8, 32, 33, 34, 35, 36, 37, 38);
FA2I_WGMMA(128, 16, 64, 65, 66, 67, 68, 69, 70);

// ---- softcap: limits scores to -softcap ... softcap -----------------------------------------------------------
//
// s = softcap * tanh(softmax_scale / softcap * (q k)). p.softcap_rate is the factor inside the tanh. The factor outside
// is part of the exponent: the host sets p.scale_log2 to softcap * log2(e).

// One instruction; its relative error is at most 2^-11 (PTX ISA).
__device__ __forceinline__ float tanh_approx(float x)
{
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Replaces scores by tanh(rate * score).
template <int kM, int kN> __device__ __forceinline__ void cap_scores(float (&s)[kM][kN][4], float rate)
{
#pragma unroll
    for (int m = 0; m < kM; m++)
#pragma unroll
        for (int n = 0; n < kN; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[m][n][e] = tanh_approx(s[m][n][e] * rate);
}

// Returns the derivative of the score with respect to the product, divided by softmax_scale. t: the tanh.
__device__ __forceinline__ float cap_slope(float t)
{
    return fmaf(-t, t, 1.0f);
}

// ---- parameters ---------------------------------------------------------------------------------------------------
//
// The lists of members (params.def) are expanded with FA2I_MEMBER. If a kernel lacks such parameters, they are expanded
// with FA2I_CONSTANT to constants of the same names, so that code which is compiled out still has types.
struct PageSteps {
    uint32 page, row, bytes;
};

// clang-format off
#define FA2I_INPUT   const char *
#define FA2I_OUTPUT  char *
#define FA2I_FLOATS  float *
#define FA2I_STRIDES Strides
#define FA2I_FLOAT   float
#define FA2I_INT     int
#define FA2I_INT64   int64
#define FA2I_INT64S  const int64 *
#define FA2I_INTS    const int *
#define FA2I_STEPS   PageSteps
#define FA2I_MEMBER(kind, name)   FA2I_##kind name;
#define FA2I_CONSTANT(kind, name) static constexpr FA2I_##kind name{};
// clang-format on

// The parameters of features; present in all kernels with a feature.
#define FA2I_PARAM FA2I_MEMBER
struct FeatureParams {
/*
 * The parameters of kernels with features, member by member. They are a struct at the end of both operations' parameter
 * blocks, in the runtime and in the templates. This is plain C preprocessor text, without template lines. A launch
 * passes as many bytes as a kernel declares, so new members go to the end. Members of features that a problem does not
 * use are 0.
 *
 * kind: as in forward/params.def, and
 *       INT64    64 bits
 *       INT64S   64-bit integers in device memory
 *       STEPS    three 32-bit integers: distance from page to page, from row to row, and their unit in bytes
 */
/* alibi: the slope of head h in batch b is alibi_slopes[b * alibi_stride + h]. */
FA2I_PARAM(FLOATS, alibi_slopes)
FA2I_PARAM(INT64, alibi_stride)
/* sinks: [Hq] */
FA2I_PARAM(FLOATS, sinks)
/* The factor that brings terms into the unit of Q K^T: 1 / scale. */
FA2I_PARAM(FLOAT, inverse_scale)
/* seqused, varlen or leftpad, in a kernel that divides keys: number of blocks per key head (features/shares.cuh) */
FA2I_PARAM(INT, slots)
/* seqused: [B], keys of each sequence; at most seq_k of them are used */
FA2I_PARAM(INTS, seqused_k)
/* bias: the element of query i and key j of head h in batch b is at the sum of each index times its stride, in
 * elements. */
FA2I_PARAM(INPUT, bias)
FA2I_PARAM(INT64, bias_batch)
FA2I_PARAM(INT64, bias_head)
FA2I_PARAM(INT64, bias_query)
FA2I_PARAM(INT64, bias_key)
/* dropout: an element is kept if its byte is at least a threshold (or the next one), and multiplied by keep_scale. */
FA2I_PARAM(INT64, seed)
FA2I_PARAM(INT64, offset)
FA2I_PARAM(INT64S, seed_at)   /* the seed, or null */
FA2I_PARAM(INT64S, offset_at) /* added to the offset, or null */
FA2I_PARAM(INT, drop_bound)   /* 1 - 1024 - threshold, twice in fp16 */
FA2I_PARAM(INT, drop_part)    /* how many of 2^32 choices use the next threshold; unsigned */
FA2I_PARAM(FLOAT, keep_scale)
FA2I_PARAM(INT, bias_side) /* bias: neighbours that can be read at once: 1, 2 or 8 */
FA2I_PARAM(FLOATS, dsinks) /* backward: [Hq], written; or null: not wanted */
/* varlen: [B + 1]; sequence b has rows cu_seqlens[b] ... cu_seqlens[b + 1] - 1 of the packed tensors. */
FA2I_PARAM(INTS, cu_seqlens_q)
FA2I_PARAM(INTS, cu_seqlens_k)
FA2I_PARAM(INT, total_q) /* rows of packed Q and O */
FA2I_PARAM(INT, total_k) /* rows of packed K and V */
/* paged: page j of sequence b is block_table[b * table_stride + j], in a cache of so many pages. */
FA2I_PARAM(INTS, block_table)
FA2I_PARAM(INT64, table_stride)
FA2I_PARAM(INT, pages)
FA2I_PARAM(INT, page_shift) /* a page has 2^page_shift rows */
/* leftpad: [B], number of padding keys of each sequence; cache_rows: [B], its row of K and V, of so many rows. */
FA2I_PARAM(INTS, leftpad)
FA2I_PARAM(INTS, cache_rows)
FA2I_PARAM(INT, cache_row_count)
/* append: [B, new_count, Hkv, D], to be written into K and V; or packed like Q, and new_count is 0 */
FA2I_PARAM(INT, new_count)
FA2I_PARAM(INPUT, new_k)
FA2I_PARAM(INPUT, new_v)
FA2I_PARAM(STRIDES, new_k_stride)
FA2I_PARAM(STRIDES, new_v_stride)
/* rotary: [rotary_rows, rotary_dim / 2]; Q as the caller passed it */
FA2I_PARAM(INPUT, rotary_cos)
FA2I_PARAM(INPUT, rotary_sin)
FA2I_PARAM(INPUT, raw_q)
FA2I_PARAM(STRIDES, raw_q_stride)
FA2I_PARAM(INT, rotary_rows)
FA2I_PARAM(INT, reserved) /* pads to 8 bytes */
/* backward, gradient of a bias: the element of query i and key j of head h in batch b is at the sum of each index times
 * its stride, in elements */
FA2I_PARAM(FLOATS, dbias)
FA2I_PARAM(INT64, dbias_batch)
FA2I_PARAM(INT64, dbias_head)
FA2I_PARAM(INT64, dbias_query)
FA2I_PARAM(INT64, dbias_key)
/* paged: row r of page j begins (j * page + r * row) * bytes after the first row, of K and of V. */
FA2I_PARAM(STEPS, k_steps)
FA2I_PARAM(STEPS, v_steps)
};

// One flat struct: with its parts as base classes, ptxas chooses other registers (gate.py).
#if FA2_SCORE_PARAMS
#define FA2I_FEATURE_PARAM FA2I_MEMBER
#else
#define FA2I_FEATURE_PARAM FA2I_CONSTANT
#endif
struct Params {
#if FA2_BACKWARD
/*
 * The parameter block of the backward kernels, member by member. The runtime's struct and the templates' are both
 * generated from this list. It is plain C preprocessor text, without template lines. For kinds, and how the list may
 * grow, see templates/forward/params.def. Dv: columns of V, O and their gradients.
 *
 * FA2I_PARAM(kind, name)           of every kernel: ABI 1, 320 bytes
 * FA2I_FEATURE_PARAM(kind, name)   after them, of kernels with a feature
 */
FA2I_PARAM(INPUT, q)    /* [B, Sq, Hq, D] */
FA2I_PARAM(INPUT, k)    /* [B, Sk, Hkv, D] */
FA2I_PARAM(INPUT, v)    /* [B, Sk, Hkv, Dv] */
FA2I_PARAM(INPUT, o)    /* [B, Sq, Hq, Dv], output of forward */
FA2I_PARAM(INPUT, d_o)  /* [B, Sq, Hq, Dv] */
FA2I_PARAM(OUTPUT, dq)  /* [B, Sq, Hq, D]; or null: not wanted */
FA2I_PARAM(OUTPUT, dk)  /* [B, Sk, Hkv, D]; or null */
FA2I_PARAM(OUTPUT, dv)  /* [B, Sk, Hkv, Dv]; or null */
FA2I_PARAM(FLOATS, lse) /* [B, Hq, Sq], natural logarithm, output of forward */
/* Workspace, after the parts of dK and dV if splits > 1: [2] arrays of [B, Hq, q_tiles * Br], LSE in log2 units and
 * delta. */
FA2I_PARAM(FLOATS, rows)
FA2I_PARAM(FLOATS,
           dq_sum) /* workspace: [B, Hq, q_tiles] tiles of dQ in fp32, in the order of fragments */
FA2I_PARAM(STRIDES, q_stride)
FA2I_PARAM(STRIDES, k_stride)
FA2I_PARAM(STRIDES, v_stride)
FA2I_PARAM(STRIDES, o_stride)
FA2I_PARAM(STRIDES, do_stride)
FA2I_PARAM(STRIDES, dq_stride)
FA2I_PARAM(STRIDES, dk_stride)
FA2I_PARAM(STRIDES, dv_stride)
FA2I_PARAM(FLOAT, scale)      /* softmax scale: factor of dQ and dK */
FA2I_PARAM(FLOAT, scale_log2) /* log2(e) * scale, or log2(e) * softcap: factor of scores in the exponent */
FA2I_PARAM(INT, seq_q)
FA2I_PARAM(INT, seq_k)
FA2I_PARAM(INT, heads_q)
FA2I_PARAM(INT, group) /* query heads per key/value head */
FA2I_PARAM(INT, batch)
FA2I_PARAM(INT, q_tiles) /* ceil(seq_q / Br) */
FA2I_PARAM(INT, k_tiles) /* ceil(seq_k / Bc) */
FA2I_PARAM(INT, splits) /* blocks that share the queries of a tile of keys */

/* softcap: scores in the exponent are softcap * tanh(softcap_rate * (q k)). */
FA2I_FEATURE_PARAM(FLOAT, softcap_rate) /* softmax scale / softcap */
/* window: query i sees the keys p - window_left ... p + window_right, where p = i + seq_k - seq_q. 2^30 means
 * unbounded; causal is window_right = 0. */
FA2I_FEATURE_PARAM(INT, window_left)
FA2I_FEATURE_PARAM(INT, window_right)
FA2I_FEATURE_PARAM(INT, reserved_feature) /* pads to 16 bytes */
#else
/*
 * The parameter block of the forward kernels, member by member. The runtime's struct and the templates' are both
 * generated from this list. It is plain C preprocessor text, without template lines.
 *
 * FA2I_PARAM(kind, name)           of every kernel: ABI 2, 192 bytes that never change, so kernels of older
 *                                  databases continue to work
 * FA2I_FEATURE_PARAM(kind, name)   after them, of kernels with a feature; a launch passes as many bytes as a
 *                                  kernel declares, so new members go to the end
 *
 * kind: INPUT, OUTPUT   elements of the problem's dtype in device memory, read or written
 *       FLOATS          fp32 in device memory
 *       STRIDES         three 64-bit integers, in elements: batch, sequence, head; head_dim is contiguous
 *       FLOAT, INT      32 bits
 */
FA2I_PARAM(INPUT, q)         /* [B, Sq, Hq, D] */
FA2I_PARAM(INPUT, k)         /* [B, Sk, Hkv, D] */
FA2I_PARAM(INPUT, v)         /* [B, Sk, Hkv, D] */
FA2I_PARAM(OUTPUT, o)        /* [B, Sq, Hq, D] */
FA2I_PARAM(FLOATS, lse)      /* [B, Hq, Sq], natural logarithm; or null */
FA2I_PARAM(STRIDES, q_stride)
FA2I_PARAM(STRIDES, k_stride)
FA2I_PARAM(STRIDES, v_stride)
FA2I_PARAM(STRIDES, o_stride)
FA2I_PARAM(FLOAT, scale)      /* factor of scores in the exponent: the softmax scale, or the softcap */
FA2I_PARAM(FLOAT, scale_log2) /* scale * log2(e): exp(scale * s) = exp2(scale_log2 * s) */
FA2I_PARAM(INT, seq_q)
FA2I_PARAM(INT, seq_k)
FA2I_PARAM(INT, heads_q)
FA2I_PARAM(INT, group)   /* query heads per key/value head */
FA2I_PARAM(INT, q_tiles) /* row tiles: ceil(rows / rows per block) */
FA2I_PARAM(INT, splits)  /* blocks that divide the keys of a row tile; 1 unless the family splits */
FA2I_PARAM(INT, batch)
FA2I_PARAM(INT, reserved)
FA2I_PARAM(FLOATS, partial)     /* [splits, B, Hq, Sq, D], each normalised; used when splits > 1 */
FA2I_PARAM(FLOATS, partial_lse) /* [splits, B, Hq, Sq] */

/* softcap: scores in the exponent are softcap * tanh(softcap_rate * (q k)). */
FA2I_FEATURE_PARAM(FLOAT, softcap_rate) /* softmax scale / softcap */
/* window: query i sees the keys p - window_left ... p + window_right, where p = i + seq_k - seq_q. 2^30 means
 * unbounded; causal is window_right = 0. */
FA2I_FEATURE_PARAM(INT, window_left)
FA2I_FEATURE_PARAM(INT, window_right)
FA2I_FEATURE_PARAM(INT, reserved_feature) /* pads to 16 bytes */
#endif
#if FA2_FEATURES
    FeatureParams features;
#else
    static constexpr FeatureParams features{};
#endif
};
static_assert(sizeof(Params) ==
                  (FA2_BACKWARD ? 320 : 192) + (FA2_SCORE_PARAMS ? 16 : 0) + (FA2_FEATURES ? sizeof(FeatureParams) : 0),
              "what the runtime passes");

// ---- mma.sync: products of warps, and conversions ------------------------------------------------------------

// c += a b: a is 16x8 row-major, b is 8x8 column-major, fp32 accumulation.
__device__ __forceinline__ void mma_k8(float (&c)[4], uint32 a0, uint32 a1, uint32 b0)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(b0));
}

// c += a b: a is 16x16 row-major, b is 16x8 column-major, fp32 accumulation. SM 7.5 does it with two m16n8k8 on the
// same fragments.
__device__ __forceinline__ void mma_k16(float (&c)[4], const uint32 (&a)[4], uint32 b0, uint32 b1)
{
    if constexpr (kTuring) {
        mma_k8(c, a[0], a[1], b0);
        mma_k8(c, a[2], a[3], b1);
    } else if constexpr (kBf16) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
}

// c = a b + from, on bytes: a is 16x16 row-major (this lane has a word of a row in either half), b is 16x8
// column-major.
__device__ __forceinline__ void mma_bytes(uint32 (&c)[4], uint32 a0, uint32 a1, uint32 b, const uint32 (&from)[4])
{
    if constexpr (kTuring) {
        asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%0, %1}, {%2}, {%3}, {%4, %5};"
            : "=r"(c[0]), "=r"(c[1])
            : "r"(a0), "r"(b), "r"(from[0]), "r"(from[1]));
        asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%0, %1}, {%2}, {%3}, {%4, %5};"
            : "=r"(c[2]), "=r"(c[3])
            : "r"(a1), "r"(b), "r"(from[2]), "r"(from[3]));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
            : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
            : "r"(a0), "r"(a1), "r"(b), "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3]));
    }
}

// Packs two elements into one register, rounded to nearest even; lo is in the lower half.
__device__ __forceinline__ uint32 pack2(float lo, float hi)
{
    uint32 x;
    if constexpr (kTuring)
        asm("{\n\t.reg .b16 l, h;\n\t"
            "cvt.rn.f16.f32 l, %1;\n\tcvt.rn.f16.f32 h, %2;\n\tmov.b32 %0, {l, h};\n\t}"
            : "=r"(x)
            : "f"(lo), "f"(hi));
    else if constexpr (kBf16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(hi), "f"(lo));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(hi), "f"(lo));
    return x;
}

// Returns both fp16 numbers of a register.
__device__ __forceinline__ float2 unpack_fp16(uint32 x)
{
    float2 y;
    asm("{\n\t.reg .b16 l, h;\n\t"
        "mov.b32 {l, h}, %2;\n\tcvt.f32.f16 %0, l;\n\tcvt.f32.f16 %1, h;\n\t}"
        : "=f"(y.x), "=f"(y.y)
        : "r"(x));
    return y;
}

// Returns both elements of a register.
__device__ __forceinline__ float2 unpack2(uint32 x)
{
    if constexpr (kBf16)
        return {__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)};
    else
        return unpack_fp16(x);
}

// ---- one function per PTX instruction: SM 7.5 and newer -------------------------------------------

// Returns threadIdx.x, read again at each call, so that values computed from it are not kept in registers.
__device__ __forceinline__ int thread_index()
{
    int index;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
    return index;
}

// Loads four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void ldmatrix_x4(uint32 (&r)[4], uint32 smem)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem)
                 : "memory");
}

// The same, with each matrix transposed.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32 (&r)[4], uint32 smem)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem)
                 : "memory");
}

__device__ __forceinline__ void store_shared_16(uint32 smem, const uint4 &x)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(smem), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
}

__device__ __forceinline__ void store_shared_4(uint32 smem, uint32 x)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(smem), "r"(x) : "memory");
}

__device__ __forceinline__ void store_shared_8(uint32 smem, float x, float y)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(smem), "f"(x), "f"(y) : "memory");
}

__device__ __forceinline__ void store_shared_floats(uint32 smem, const float (&x)[4])
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(smem), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
}

__device__ __forceinline__ float load_shared_4(uint32 smem)
{
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(smem) : "memory");
    return x;
}

__device__ __forceinline__ float2 load_shared_8(uint32 smem)
{
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(smem) : "memory");
    return x;
}

__device__ __forceinline__ float4 load_shared_floats(uint32 smem)
{
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(smem)
                 : "memory");
    return x;
}

__device__ __forceinline__ uint4 load_shared_16(uint32 smem)
{
    uint4 x;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(smem)
                 : "memory");
    return x;
}

// Returns 2^x; 0 for -infinity.
__device__ __forceinline__ float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Barrier `id` (0 is __syncthreads) for `threads` threads, which are whole warps.
__device__ __forceinline__ void named_barrier(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Increments a counter in memory; returns its old value.
__device__ __forceinline__ uint32 take_ticket(uint32 *gmem)
{
    uint32 ticket;
    asm volatile("atom.global.add.u32 %0, [%1], 1;" : "=r"(ticket) : "l"(gmem) : "memory");
    return ticket;
}

// Increments a counter with release semantics: a thread that sees it also sees what this thread did before, and what
// barriers have made visible to this thread.
__device__ __forceinline__ void count_up(uint32 *gmem)
{
    asm volatile("fence.acq_rel.gpu;\n\tred.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(gmem) : "memory");
}

// Reads a counter that other blocks increment, bypassing L1.
__device__ __forceinline__ uint32 load_counter(const uint32 *gmem)
{
    uint32 x;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(gmem) : "memory");
    return x;
}

// Adds one number, or four contiguous ones, in memory, without a result. Four need SM 9.0.
__device__ __forceinline__ void add_global_4(float *gmem, float x)
{
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(gmem), "f"(x) : "memory");
}

__device__ __forceinline__ void add_global_16(float *gmem, const float (&x)[4])
{
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(gmem), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
}

// ---- dropout: some elements of P become 0, the others are scaled up ----------------------------------------------
//
// The decision to keep an element depends only on seed, offset, batch, head, row and column (runtime/ops/dropout.h).
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

// Multiplies two elements of P by the factors of keep_pair.
__device__ __forceinline__ uint32 keep_elements(uint32 p, uint32 keep)
{
    uint32 kept;
    if constexpr (kBf16)  // 1 in fp16 is 2^-7 in bf16
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(kept) : "r"(p), "r"(keep), "r"(0x80008000u));
    else
        asm("mul.f16x2 %0, %1, %2;" : "=r"(kept) : "r"(p), "r"(keep));
    return kept;
}

// The factor of kept elements, applied at the end. With bf16, keep_elements has multiplied them by 2^-7.
__device__ __forceinline__ float keep_scale(const Params &p)
{
    return kBf16 ? p.features.keep_scale * 128.0f : p.features.keep_scale;
}

// Converts two factors, 1 or 0, to fp32.
__device__ __forceinline__ float2 keep_factors(uint32 keep)
{
    return unpack_fp16(keep);
}

struct DropoutSeed {
    uint32 keys[2], offset[2];

    __device__ __forceinline__ explicit DropoutSeed(const FeatureParams &f)
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

// Makes word t = lane % 4 of the keys of rows 32 * rows32 + 8 * n + g, with g = lane / 4. plane: batch * heads + head.
// The first byte of a row key is odd.
__device__ __forceinline__ void row_keys(uint32 (&x)[4], const DropoutSeed &seed, int plane, int rows32, int lane)
{
    philox(x, seed, rows32 * 32 + lane, plane);
#pragma unroll
    for (int n = 0; n < 4; n++)
        x[n] |= lane % 4 == 0;
}

// Makes word t of the keys of column pairs 32 * pairs32 + 8 * n + pair. The second byte of a column key is odd.
__device__ __forceinline__ void column_keys(uint32 (&x)[4], const DropoutSeed &seed, int pairs32, int pair, int t)
{
    philox(x, seed, pairs32 * 32 + pair * 4 + t, 0xffffffffu);
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
__device__ __forceinline__ uint32 keys_of_rows(uint32 (&words)[2], const DropoutSeed &seed, int plane, int sixteen,
                                               int lane)
{
    uint32 x[4];
    row_keys(x, seed, plane, sixteen / 2, lane);
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

// ---- cache rows: which row of the K/V cache a sequence uses ---------------------------------------------
//
// An invalid row number counts as the last row.

__device__ __forceinline__ int cache_row_of(const Params &p, int batch)
{
    return min(uint32(__ldg(p.features.cache_rows + batch)), p.features.cache_row_count - 1u);
}

// Returns x, limited to [least, most].
__device__ __forceinline__ int between(int least, int x, int most)
{
    return max(least, min(x, most));
}

// ---- append: new keys and values are written into the cache before attention -------------------------------

// Returns the number of keys that a sequence has before its new ones, padding included. room: rows of the cache for the
// sequence.
__device__ __forceinline__ int keys_before(const Params &p, int batch, int room, int new_count)
{
    if constexpr (kSeqused)
        return between(0, __ldg(p.features.seqused_k + batch), room);
    else
        return max(0, room - new_count);
}

// ---- lengths of sequences, which are read from device memory ---------------------------------------------
//
// Any values are possible there; a sequence is always limited to the tensors.

// Returns the number of keys of a sequence, including those that this call appends.
__device__ __forceinline__ int keys_used(const Params &p, int batch)
{
    if constexpr (kAppend)
        return min(keys_before(p, batch, p.seq_k, p.features.new_count) + p.features.new_count, p.seq_k);
    else
        return between(0, __ldg(p.features.seqused_k + batch), p.seq_k);
}

// Returns the number of rows of a packed sequence that begins with row `first`; 0 if it ends before. `end` may be any
// number, so it is limited to the tensor before the subtraction.
__device__ __forceinline__ int rows_between(int first, int end, int total, int most)
{
    return between(0, between(0, end, total) - first, most);
}

// The keys of a sequence. first_k: the row of its first key, in its row of the cache.
struct UsedSequence {
    int seq_k;
    static constexpr int seq_q = 0, first_q = 0, first_k = 0, before = 0;

    UsedSequence() = default;
    __device__ __forceinline__ UsedSequence(const Params &p, int batch) : seq_k(keys_used(p, batch))
    {
    }
};

struct PaddedSequence {
    int seq_k, first_k;
    static constexpr int seq_q = 0, first_q = 0, before = 0;

    PaddedSequence() = default;
    __device__ __forceinline__ PaddedSequence(const Params &p, int batch)
        : seq_k(p.seq_k), first_k(between(0, __ldg(p.features.leftpad + batch), p.seq_k))
    {
        if constexpr (kSeqused)
            seq_k = keys_used(p, batch);
        seq_k = max(0, seq_k - first_k);
    }
};

// A packed sequence: keys, queries, and first_q and first_k, its first rows in the packed tensors.
struct PackedSequence {
    int seq_k, seq_q, first_q, first_k;
    static constexpr int before = 0;

    PackedSequence() = default;
    __device__ __forceinline__ PackedSequence(const Params &p, int batch)
    {
        first_q = between(0, __ldg(p.features.cu_seqlens_q + batch), p.features.total_q);
        first_k = between(0, __ldg(p.features.cu_seqlens_k + batch), p.features.total_k);
        seq_q = rows_between(first_q, __ldg(p.features.cu_seqlens_q + batch + 1), p.features.total_q, p.seq_q);
        seq_k = rows_between(first_k, __ldg(p.features.cu_seqlens_k + batch + 1), p.features.total_k, p.seq_k);
        if constexpr (kSeqused && !kAppend)
            seq_k = between(0, __ldg(p.features.seqused_k + batch), seq_k);
    }
};

// A sequence whose keys grow: `before` keys in the cache, and as many new keys as queries.
struct GrowingSequence : PackedSequence {
    int before;

    GrowingSequence() = default;
    __device__ __forceinline__ GrowingSequence(const Params &p, int batch) : PackedSequence(p, batch)
    {
        before = keys_before(p, batch, seq_k, seq_q);
        seq_k = min(before + seq_q, seq_k);
    }
};

using Sequence = Either<kVarlen, Either<kAppend, GrowingSequence, PackedSequence>::Type,
                        Either<kLeftpad, PaddedSequence, UsedSequence>::Type>::Type;

// Returns the last sequence whose first(sequence) is at most `at`. If these values decrease (invalid), returns some
// sequence. All lanes of a warp call it together; they look at 32 sequences at a time.
template <class First> __device__ __forceinline__ int last_sequence(const Params &p, int at, First first)
{
    int low = 0, count = p.batch;  // it is one of the `count` sequences from `low` on
    while (count > 1) {
        const int step = (count + 31) / 32, own = threadIdx.x % 32 * step;
        const int from = first(low + min(own, count - 1));
        const uint32 passed_by = __ballot_sync(0xffffffffu, (own < count) & (from <= at));
        const int passed = __popc(passed_by);
        const int skipped = max(0, passed - 1) * step;
        low += skipped;
        count = min(step, count - skipped);
    }
    return low;
}

// Returns the number of the first tile of sequence `batch`, where tiles of `rows` rows of all sequences are numbered.
// Each sequence has room for its rows, wherever they begin, and at most one tile too many. So the number of blocks is
// proportional to the rows, and no table is needed.
__device__ __forceinline__ int first_tile(const int *cu_seqlens, int total, int rows, int batch)
{
    return between(0, __ldg(cu_seqlens + batch), total) / rows + batch;
}

__device__ __forceinline__ int sequence_of_row(const Params &p, int packed_row)
{
    return last_sequence(p, packed_row, [&](int b) { return __ldg(p.features.cu_seqlens_q + b); });
}

// Calls clear(row, part) for each part of each row that belongs to no sequence: rows before the first bound and from
// the last bound on. A block of kBlock threads looks at rows first ... end - 1 of a packed tensor. If tile n of a head
// looks at rows n * kRows ..., all rows are covered, because there is at least one tile more than whole tiles
// (first_tile).
template <int kBlock, class Clear>
__device__ __forceinline__ void clear_unused(const int *cu_seqlens, int batch, int total, int64 first, int64 end,
                                             int parts, Clear clear)
{
    const int used_from = __ldg(cu_seqlens), used_to = __ldg(cu_seqlens + batch);
    end = min(end, int64(total));
    if (first >= end || (first >= used_from && end <= used_to))
        return;                                  // nearly always
    const int count = int(end - first) * parts;  // few rows per block, so no 64-bit division, which would branch
    for (int i = threadIdx.x; i < count; i += kBlock) {
        const int row = int(first) + i / parts;
        if (row < used_from || row >= used_to)
            clear(row, i % parts);
    }
}

// ---- work partition: blocks divide the keys of sequences of different lengths --------------------------------
//
// The unit is a step: the keys that the teams of a block process at a time. The steps of all row tiles of a key head
// are divided by p.splits; no share has more steps. So long sequences have many shares and short ones have one. A block
// has one share. Its number is its slot; slots are numbered by sequence, row tile and share. Every warp computes this
// by itself, 32 sequences at a time, so nothing has to be prepared and nothing is left after a launch.

constexpr int kStepKeys = kBc * kTeams;

__device__ __forceinline__ int ceil_div(int a, int b)
{
    return a / b + (a % b > 0);
}

// Row tiles of a sequence, and steps of each.
struct SequenceWork {
    int row_tiles, steps;

    __device__ __forceinline__ SequenceWork(const Params &p, int batch)
    {
        const Sequence sequence(p, batch);
        int keys = sequence.seq_k;
        row_tiles = ceil_div((kVarlen ? sequence.seq_q : p.seq_q) * p.group, kBr);
        if constexpr (kWindow == Window::kSliding || kWindow == Window::kChunks) {
            // The most keys that the rows of a tile can see.
            const int64 seen = int64(p.window_left) + p.window_right + kBr + kStepKeys;
            keys = min(int64(keys), seen);
        }
        steps = ceil_div(keys, kStepKeys);
    }
};

class Shares
{
    int most;  // most steps of a share

public:
    __device__ __forceinline__ explicit Shares(const Params &p) : most(0x7fffffff)
    {
        if (p.splits == 1)
            return;
        int64 sum = 0;
        for (int b = threadIdx.x % 32; b < p.batch; b += 32) {
            const SequenceWork work(p, b);
            sum += int64(work.row_tiles) * work.steps;
        }
        for (int lanes = 16; lanes > 0; lanes /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
        most = min(max((sum + p.splits - 1) / p.splits, int64(1)), int64(0x7fffffff));
    }

    // Returns the number of shares of a row tile: at least one, and no more than the combining kernel has room for.
    __device__ __forceinline__ int count(const SequenceWork &work) const
    {
        const int share = max(most, ceil_div(work.steps, kMaxSplits));
        return max(1, ceil_div(work.steps, share));
    }
};

// The limit of slots per key head whose results are combined. Their row tiles have more than `most` steps each, and all
// row tiles together have at most p.splits * most. So there are fewer than p.splits such tiles, and fewer than 2 *
// p.splits such slots.
__device__ __forceinline__ int part_slots(const Params &p)
{
    return min(p.features.slots, 2 * p.splits);
}

// The slots of one sequence.
struct Slots {
    int batch;       // -1: no sequence was found
    int first;       // the sequence's first slot
    int shares;      // shares of each of its row tiles
    int first_part;  // packed sequences: its first slot, counting only slots whose results are combined

    // Finds the first sequence for which stop(batch, end) is true. end: one past its last slot.
    template <class Stop> __device__ __forceinline__ Slots(const Params &p, Stop stop) : batch(-1)
    {
        const Shares all(p);
        const int lane = threadIdx.x % 32;
        first = 0;
        for (int begin = 0; begin < p.batch; begin += 32) {
            const int b = begin + lane;
            int own = 0, of_tile = 0, end = 0;
            if (b < p.batch) {
                const SequenceWork work(p, b);
                of_tile = all.count(work);
                own = work.row_tiles * of_tile;
            }
            end = own;
            for (int lanes = 1; lanes < 32; lanes *= 2) {
                const int before = __shfl_up_sync(0xffffffffu, end, lanes);
                end += lane >= lanes ? before : 0;
            }
            const uint32 found = __ballot_sync(0xffffffffu, b < p.batch && stop(b, first + end));
            if (found != 0) {
                const int at = 31 - __clz(found & -found);  // the first lane
                batch = begin + at;
                first += __shfl_sync(0xffffffffu, end - own, at);
                shares = __shfl_sync(0xffffffffu, of_tile, at);
                if constexpr (kVarlen)
                    first_part = shares > 1 ? parts_before(p, all) : 0;
                return;
            }
            first += __shfl_sync(0xffffffffu, end, 31);
        }
    }

private:
    __device__ __forceinline__ int parts_before(const Params &p, const Shares &all) const
    {
        int parts = 0;
        for (int b = threadIdx.x % 32; b < batch; b += 32) {
            const SequenceWork work(p, b);
            const int of_tile = all.count(work);
            parts += of_tile > 1 ? work.row_tiles * of_tile : 0;
        }
        for (int lanes = 16; lanes > 0; lanes /= 2)
            parts += __shfl_xor_sync(0xffffffffu, parts, lanes);
        return parts;
    }
};

// ---- block coordinates: which rows and which sequence a block has --------------------------------------------------

// The sequence of a block, and its row in the K/V cache. Only kernels with lengths have these members: an unused member
// may change ptxas's register allocation.
struct KeptSequence {
    Sequence sequence;

    __device__ __forceinline__ void find_sequence(const Params &p, int batch)
    {
        sequence = Sequence(p, batch);
    }
};

struct NoSequence {
    struct {
        int seq_k, seq_q, first_q, first_k, before;
    } static constexpr sequence{};

    __device__ __forceinline__ void find_sequence(const Params &, int)
    {
    }
};

struct KeptCacheRow {
    int cache_row;

    __device__ __forceinline__ void find_cache_row(const Params &p, int batch)
    {
        cache_row = cache_row_of(p, batch);
    }
};

struct NoCacheRow {
    static constexpr int cache_row = 0;

    __device__ __forceinline__ void find_cache_row(const Params &, int)
    {
    }
};

// The batch or sequence of a block, with its lengths.
struct SequencePlace : Either<kLengths, KeptSequence, NoSequence>::Type,
                       Either<kCacheRows, KeptCacheRow, NoCacheRow>::Type {
    int batch;  // -1: the block has nothing to do

    __device__ __forceinline__ int seq_q(const Params &p) const
    {
        return kVarlen ? sequence.seq_q : p.seq_q;
    }

    __device__ __forceinline__ int seq_k(const Params &p) const
    {
        return kLengths ? sequence.seq_k : p.seq_k;
    }

    // The batch index into K and V.
    __device__ __forceinline__ int key_batch() const
    {
        return kCacheRows ? cache_row : batch;
    }

    __device__ __forceinline__ int64 slot() const
    {
        return 0;
    }

    // Keys of the cache row (or of its pages) before the sequence's first key.
    __device__ __forceinline__ int padding() const
    {
        return kLeftpad ? sequence.first_k : 0;
    }
};

// Work of a block from the grid, one block per work tile: the row tile, and either the head and batch, or the split,
// key head and batch.
struct WorkOfGrid {
    static __device__ __forceinline__ unsigned tile(const Params &p)
    {
        return blockIdx.x % p.q_tiles;
    }

    static __device__ __forceinline__ unsigned plane(const Params &p)
    {
        return blockIdx.x / p.q_tiles;
    }
};

// Coordinates of a block with kBr query rows of one head.
struct RowsOfHead : SequencePlace {
    int first_row, rows;  // first row of the block; rows of the tensor
    int head;
    static constexpr int split = 0, part = -1;

    // Heavy tiles first when causal: the last rows see the most keys. With a window all rows but the first ones see
    // equally many.
    template <class Work> __device__ __forceinline__ RowsOfHead(const Params &p, const Work &work) : rows(p.seq_q)
    {
        if constexpr (kVarlen) {
            const int tile = blockIdx.x % p.q_tiles;
            head = blockIdx.x / p.q_tiles;
            auto first = [&](int b) { return first_tile(p.features.cu_seqlens_q, p.features.total_q, kBr, b); };
            batch = last_sequence(p, tile, first);
            find_sequence(p, batch);
            rows = sequence.seq_q;
            const int own = tile - first(batch), tiles = (rows + kBr - 1) / kBr;
            first_row = (kCausal ? tiles - 1 - own : own) * kBr;
            if (own < 0 || own >= tiles)
                batch = -1;  // nothing to do
        } else {
            const unsigned tile = work.tile(p), plane = work.plane(p);
            first_row = (kCausal ? p.q_tiles - 1 - tile : tile) * kBr;
            head = plane % p.heads_q;
            batch = plane / p.heads_q;
            find_sequence(p, batch);
            find_cache_row(p, batch);
        }
    }

    __device__ __forceinline__ int kv_head(const Params &p) const
    {
        return head / p.group;
    }

    __device__ __forceinline__ int query_head(const Params &, int) const
    {
        return head;
    }

    // Position of a row in the sequence; the causal mask compares it with keys.
    __device__ __forceinline__ int query(const Params &, int row) const
    {
        return row;
    }

    // Element offset of a row of Q or O.
    __device__ __forceinline__ int64 offset(const Params &, const Strides &stride, int row) const
    {
        if constexpr (kVarlen)
            return head * stride.head + (sequence.first_q + row) * stride.seq;
        else
            return batch * stride.batch + head * stride.head + row * stride.seq;
    }

    // Index of a row in LSE.
    __device__ __forceinline__ int64 index(const Params &p, int row) const
    {
        if constexpr (kVarlen)
            return int64(head) * p.features.total_q + sequence.first_q + row;
        else
            return (int64(batch) * p.heads_q + head) * p.seq_q + row;
    }

    // Number of blocks that divide the keys of its rows.
    __device__ __forceinline__ int splits(const Params &) const
    {
        return 1;
    }

    // Sets rows of O that belong to no sequence to 0, and their LSE to -infinity. Called by all threads of a block.
    static __device__ __forceinline__ void clear_unused_rows(const Params &p)
    {
        const int head = blockIdx.x / p.q_tiles;
        const int64 first = int64(blockIdx.x % p.q_tiles) * kBr;
        clear_unused<kThreads>(p.features.cu_seqlens_q, p.batch, p.features.total_q, first, first + kBr, kHeadDimV / 8,
                               [&](int row, int chunk) {
                                   *reinterpret_cast<uint4 *>(
                                       p.o + (head * p.o_stride.head + row * p.o_stride.seq) * 2 + chunk * 16) =
                                       uint4{};
                                   if (chunk == 0 && p.lse != nullptr)
                                       p.lse[int64(head) * p.features.total_q + row] = minus_infinity();
                               });
    }
};

// Coordinates of a block with kBr packed rows, and a part of the keys if blocks divide them (kSplit). The query heads
// of a group are rows of one matrix, row = query * group + head in the group, so K and V are read once for all of them.
// The visible tiles of a row tile are divided among p.splits blocks. If sequences have their own lengths,
// features/shares.cuh divides them.
struct RowsOfGroup : SequencePlace {
    int first_row, rows;  // first row of the block; number of packed rows
    int split, key_head;
    int own_splits;  // blocks that divide the keys of this row tile, if sequences have their own lengths
    int part;        // index of this block's partial result if sequences are packed; -1: it writes O

    template <class Work>
    __device__ __forceinline__ RowsOfGroup(const Params &p, const Work &work) : rows(p.seq_q * p.group)
    {
        if constexpr (kLengths) {
            const int slot = blockIdx.x % p.features.slots;
            const Slots slots(p, [=](int, int end) { return slot < end; });
            key_head = blockIdx.x / p.features.slots;
            batch = slots.batch;
            if (batch < 0)  // nothing to do
                return;
            own_splits = slots.shares;
            split = (slot - slots.first) % own_splits;
            first_row = (slot - slots.first) / own_splits * kBr;
            find_sequence(p, batch);
            if constexpr (kVarlen) {
                part = slots.first_part + slot - slots.first;
                part = own_splits > 1 && part < part_slots(p) ? key_head * part_slots(p) + part : -1;
                rows = sequence.seq_q * p.group;
            }
        } else {
            const unsigned tile = work.tile(p);
            unsigned rest = work.plane(p);
            if constexpr (kSplit) {
                first_row = tile * kBr;
                split = rest % p.splits;
                rest /= p.splits;
            } else {
                first_row = (kCausal ? p.q_tiles - 1 - tile : tile) * kBr;  // heavy tiles first
            }
            const unsigned key_heads = p.heads_q / p.group;
            key_head = rest % key_heads;
            batch = rest / key_heads;
        }
        find_cache_row(p, batch);
    }

    __device__ __forceinline__ int kv_head(const Params &) const
    {
        return key_head;
    }

    __device__ __forceinline__ int query_head(const Params &p, int row) const
    {
        return key_head * p.group + row % p.group;
    }

    // Position of a row in the sequence; the causal mask compares it with keys.
    __device__ __forceinline__ int query(const Params &p, int row) const
    {
        return row / p.group;
    }

    // Element offset of a row of Q or O.
    __device__ __forceinline__ int64 offset(const Params &p, const Strides &stride, int row) const
    {
        if constexpr (kVarlen)
            return query_head(p, row) * stride.head + (sequence.first_q + query(p, row)) * stride.seq;
        else
            return batch * stride.batch + query_head(p, row) * stride.head + query(p, row) * stride.seq;
    }

    // Index of a row in LSE.
    __device__ __forceinline__ int64 index(const Params &p, int row) const
    {
        if constexpr (kVarlen)
            return int64(query_head(p, row)) * p.features.total_q + sequence.first_q + query(p, row);
        else
            return (int64(batch) * p.heads_q + query_head(p, row)) * p.seq_q + query(p, row);
    }

    __device__ __forceinline__ int splits(const Params &p) const
    {
        return kLengths ? own_splits : p.splits;
    }

    // The slot of its partial result, if other blocks share its rows.
    __device__ __forceinline__ int64 slot() const
    {
        return kVarlen ? int64(part) : int64(blockIdx.x);
    }

    // Sets rows of O of queries that belong to no sequence to 0, and their LSE to -infinity. Called by all threads of a
    // block.
    static __device__ __forceinline__ void clear_unused_rows(const Params &p)
    {
        constexpr int kRowChunks = kHeadDimV / 8;
        const int64 slot = blockIdx.x % p.features.slots;
        const int first_head = blockIdx.x / p.features.slots * p.group;
        clear_unused<kThreads>(p.features.cu_seqlens_q, p.batch, p.features.total_q, slot * kBr / p.group,
                               (slot + 1) * kBr / p.group, p.group * kRowChunks, [&](int row, int part) {
                                   const int head = first_head + part / kRowChunks, chunk = part % kRowChunks;
                                   *reinterpret_cast<uint4 *>(
                                       p.o + (head * p.o_stride.head + row * p.o_stride.seq) * 2 + chunk * 16) =
                                       uint4{};
                                   if (chunk == 0 && p.lse != nullptr)
                                       p.lse[int64(head) * p.features.total_q + row] = minus_infinity();
                               });
    }
};

using BlockPlace = Either<kPackedHeads, RowsOfGroup, RowsOfHead>::Type;

// The empty policy: P without dropout.
struct NoDropout {
    __device__ __forceinline__ NoDropout(const Params &, const BlockPlace &, int, int)
    {
    }

    __device__ __forceinline__ void begin_step(int, int)
    {
    }

    __device__ __forceinline__ uint32 apply(uint32 elements, int, int, int) const
    {
        return elements;
    }
};

// Dropout for this lane's elements of P, 16 columns at a time.
struct PhiloxDropout {
    const Params &p;
    const DropoutSeed seed;
    const int lane;
    const uint32 exponents;
    uint32 rows[kRowTiles][2];                 // words of the row keys of rows g, g + 8
    uint32 columns[4];                         // words of the column keys, for four times eight pairs of columns
    uint32 numbers[kRowTiles][4];              // bytes for sixteen columns: [half of rows][half of columns]
    uint32 bounds[kSplit ? kRowTiles : 1][2];  // of keep_pair, rows g, g + 8; bounds[0][0] for all unless kSplit
    static_assert(kSplit || kRowTiles <= 2, "a warp's rows are in 32 that choose thresholds together");

    // first_row: the warp's first row.
    __device__ __forceinline__ PhiloxDropout(const Params &p, const BlockPlace &place, int first_row, int lane)
        : p(p), seed(p.features), lane(lane), exponents(opaque(0x64646464u, 0))
    {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++) {
            if constexpr (kSplit) {
                // Neighbouring rows are heads.
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int row = first_row + m * 16 + h * 8 + lane / 4, query = place.query(p, row);
                    uint32 x[4];
                    row_keys(x, seed, place.batch * p.heads_q + place.query_head(p, row), query / 32,
                             query % 8 * 4 + lane % 4);
                    rows[m][h] = one_of(x, query / 8 % 4);
                    row_keys(x, seed, place.batch * p.heads_q + place.query_head(p, row), query / 32, 3);
                    bounds[m][h] = choose_bounds(p.features, x[0], query / 2 % 4, lane % 4 * 2);
                }
            } else {
                const uint32 word = keys_of_rows(rows[m], seed, place.batch * p.heads_q + place.query_head(p, 0),
                                                 first_row / 16 + m, lane);
                bounds[0][0] = choose_bounds(p.features, word, lane / 8, lane % 4 * 2);
            }
        }
    }

    // Prepares columns 16 * step ... of the tile.
    __device__ __forceinline__ void begin_step(int tile, int step)
    {
        const int sixteen = tile * (kBc / 16) + step;
        if (step == 0 || sixteen % 4 == 0)
            column_keys(columns, seed, sixteen / 4, lane_pair(lane), lane % 4);
        multiply_by(kBc % 64 == 0 ? columns[step % 4] : one_of(columns, sixteen % 4));
    }

    // Multiplies the row keys by the column keys. word: this lane's column key of the sixteen columns.
    __device__ __forceinline__ void multiply_by(uint32 word)
    {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
            mma_bytes(numbers[m], rows[m][0], rows[m][1], word, {0, 0, 0, 0});
    }

    // The factors of two elements of P: half h of row tile m, half n of the columns.
    __device__ __forceinline__ uint32 keep(int m, int h, int n) const
    {
        return keep_pair(numbers[m][2 * h + n], exponents, 0x4140, kSplit ? bounds[m][h] : bounds[0][0]);
    }

    // Applies dropout to two packed elements.
    __device__ __forceinline__ uint32 apply(uint32 elements, int m, int h, int n) const
    {
        return keep_elements(elements, keep(m, h, n));
    }
};

using Dropout = Either<kDropout, PhiloxDropout, NoDropout>::Type;

// The factor of O at the end.
__device__ __forceinline__ float kept_scale(const Params &p)
{
    return kDropout ? keep_scale(p) : 1.0f;
}

// ---- windows: which keys a query sees -----------------------------------------------------------------------
//
// Query i is at position p = i + seq_k - seq_q.
//
// Sliding: it sees keys p - window_left ... p + window_right. Unbounded is a number larger than any length, and
//          a causal mask is window_right = 0; the host sets both.
// Prefix:  it sees the keys up to p, as with a causal mask, and all keys before window_left.
// Chunks:  it sees keys j with j / window_left = p / window_left.
constexpr int kUnbounded = 1 << 30;

// Keys [run_begin, run_end) are those that a query at a position sees. Positions first_at ... last_at are those from
// which a key is seen. All four are non-decreasing functions.
__device__ __forceinline__ int run_begin(const Params &p, int at)
{
    if constexpr (kWindow == Window::kPrefix)
        return 0;
    else if constexpr (kWindow == Window::kChunks)
        return at < 0 ? 0 : at / p.window_left * p.window_left;
    else
        return at - p.window_left;
}

__device__ __forceinline__ int run_end(const Params &p, int at)
{
    if constexpr (kWindow == Window::kPrefix)
        return max(at + 1, p.window_left);
    else if constexpr (kWindow == Window::kChunks)
        return at < 0 ? 0 : kCausal ? at + 1 : run_begin(p, at) + p.window_left;
    else
        return at + p.window_right + 1;
}

__device__ __forceinline__ int first_at(const Params &p, int key)
{
    if constexpr (kWindow == Window::kPrefix)
        return key < p.window_left ? -kUnbounded : key;
    else if constexpr (kWindow == Window::kChunks)
        return kCausal ? key : run_begin(p, key);
    else
        return key - p.window_right;
}

__device__ __forceinline__ int last_at(const Params &p, int key)
{
    if constexpr (kWindow == Window::kPrefix)
        return kUnbounded;
    else if constexpr (kWindow == Window::kChunks)
        return run_begin(p, key) + p.window_left - 1;
    else
        return key + p.window_left;
}

// Keys [begin, end) that some query at positions first ... last sees, and [begin_of_all, end_of_all) that each of them
// sees, if any.
struct WindowKeys {
    int begin, end, begin_of_all, end_of_all;

    __device__ __forceinline__ WindowKeys(const Params &p, int seq_k, int first, int last)
    {
        end = max(0, min(seq_k, run_end(p, last)));
        begin = max(0, min(end, run_begin(p, first)));  // before end, unless there are no keys
        end_of_all = max(0, min(end, run_end(p, first)));
        begin_of_all = max(0, run_begin(p, last));
    }
};

// ---- the keys of a lane ------------------------------------------------------------------------------------------
//
// In column tile n of S a lane has two neighbouring keys: lane % 4 * kLaneKeys + key_column(n), relative to the tile's
// first key, and the next one. If kWide, the rows of K are permuted (keys.cuh) so that a lane has eight neighbours of
// 32 keys.
constexpr int kLaneKeys = kWide ? 8 : 2;

__device__ __forceinline__ int key_column(int n)
{
    if constexpr (kWide)
        return n / 4 * 32 + n % 4 * 2;
    else if constexpr (kWgmma && kSplit)  // each warpgroup computes S of its own keys
        return threadIdx.x / 128 * (kBc / kParts) + n * 8;
    else
        return n * 8;
}

// ---- masks: which keys a row sees ----------------------------------------------------------------------------------
//
// The mainloops of fwd.cuh, hopper/fwd_consumer.cuh and hopper/split_consumer.cuh call mask_scores for tiles that need
// a mask. Masks are applied after softcap, which would turn -infinity into a finite number.

// Sets scores to -infinity if the key is beyond the tensor's end or outside the row's window. first_row: the warp's
// first row.
__device__ __forceinline__ void mask_outside_window(float (&s)[kRowTiles][kColTiles][4], const Params &p,
                                                    const BlockPlace &place, int first_row, int tile, int lane)
{
    const int lane_key = tile * kBc + lane % 4 * kLaneKeys;  // this lane's first column
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int query = place.query(p, first_row + m * 16 + h * 8 + lane / 4);
            const int at = query + place.seq_k(p) - place.seq_q(p);
            const int last = min(place.seq_k(p), run_end(p, at)) - 1 - lane_key;
            const int first = run_begin(p, at) - lane_key;
#pragma unroll
            for (int n = 0; n < kColTiles; n++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    if (key_column(n) + e > last || key_column(n) + e < first)
                        s[m][n][2 * h + e] = minus_infinity();
        }
}

// Sets scores to -infinity if the key is beyond the tensor's end or, if causal, after the row's own position.
__device__ __forceinline__ void mask_after_end(float (&s)[kRowTiles][kColTiles][4], const Params &p,
                                               const BlockPlace &place, int first_row, int tile, int lane)
{
    int limit[kRowTiles][2];  // last visible column, relative to this lane's first column
    const int seen = place.seq_k(p) - 1 - tile * kBc - lane % 4 * kLaneKeys;
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = first_row + m * 16 + h * 8 + lane / 4;
            limit[m][h] = kCausal ? min(seen, seen + place.query(p, r) + 1 - place.seq_q(p)) : seen;
        }
        // Columns are constants after unrolling.
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
        for (int n = 0; n < kColTiles; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (key_column(n) + e % 2 > limit[m][e / 2])
                    s[m][n][e] = minus_infinity();
}

__device__ __forceinline__ void mask_scores(float (&s)[kRowTiles][kColTiles][4], const Params &p,
                                            const BlockPlace &place, int first_row, int tile, int lane)
{
    if constexpr (kWindow != Window::kNone)
        mask_outside_window(s, p, place, first_row, tile, lane);
    else
        mask_after_end(s, p, place, first_row, tile, lane);
}

// ---- bias: a number, or a mask bit, for each query and key ------------------------------------------------------

// True if the bias is numbers (fp16, bf16 or fp32); false without a bias, or if it is a mask.
constexpr bool kBiasNumbers = kBias != BiasKind::kNone && kBias != BiasKind::kBool;
constexpr bool kBiasHalf = kBias == BiasKind::kFp16 || kBias == BiasKind::kBf16;

// The type of an element, and of two neighbours that are loaded together.
template <BiasKind kKind> struct BiasTypes {
    using Elem = unsigned short;
    using Pair = uint32;
};
template <> struct BiasTypes<BiasKind::kFp32> {
    using Elem = float;
    using Pair = float2;
};
template <> struct BiasTypes<BiasKind::kBool> {
    using Elem = unsigned char;
    using Pair = unsigned short;
};
using BiasElem = BiasTypes<kBias>::Elem;
using BiasPair = BiasTypes<kBias>::Pair;

// Returns what is added to a score, before the division by the scale.
template <class Elem> __device__ __forceinline__ float bias_number(Elem x)
{
    if constexpr (kBias == BiasKind::kFp16) {
        float y;
        asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
        return y;
    } else if constexpr (kBias == BiasKind::kBf16) {
        return __uint_as_float(uint32(x) << 16);
    } else if constexpr (kBias == BiasKind::kFp32) {
        return x;
    } else {
        return x != 0 ? 0.0f : minus_infinity();
    }
}

// A bias may hide keys by numbers such as -infinity or -1e9. The maximum of a row begins with the least score that
// counts, and never falls below it. So P of hidden keys is 0, even in a row without other keys (fa2.h). Scores near
// this limit are still precise to 1/16.
constexpr float kLeastScore = -0x1p19f;  // a scaled score, with all terms

// The maximum of a row that has seen no key, in the unit of Q K^T.
__device__ __forceinline__ float least_maximum(const Params &p)
{
    if constexpr (kBiasNumbers)
        return kLeastScore * p.features.inverse_scale;
    else
        return minus_infinity();
}

// ---- sinks: one more column in the softmax, without a value ---------------------------------------------------

// Ends a row with a sink: gives the factor of O, and LSE. max: maximum of scores times scale; sum: of the row, 0 if it
// saw no key. sink may be -infinity.
struct SinkEnd {
    float inverse, lse;

    __device__ __forceinline__ SinkEnd(float max, float sum, float sink)
    {
        // The sink may be below the least score.
        const float most = kBiasNumbers && sum == 0.0f ? sink : fmaxf(max, sink);
        const float weight = sum == 0.0f ? 0.0f : expf(max - most);
        const float all = weight * sum + (sink == minus_infinity() ? 0.0f : expf(sink - most));
        inverse = all == 0.0f ? 0.0f : weight / all;
        lse = all == 0.0f ? minus_infinity() : most + logf(all);
    }
};

// ---- fragments, and the online softmax ------------------------------------------------------------------------
//
// Fragments (PTX ISA, mma.m16n8k16), with lane = 4 * quad_row + quad_lane. An accumulator holds columns 2 * quad_lane
// and 2 * quad_lane + 1 of a 16x8 tile: of row quad_row in c[0], c[1], and of row quad_row + 8 in c[2], c[3]. Two
// neighbouring accumulator tiles of S have the layout of one 16x16 A fragment, so P enters the second product without
// leaving its lane. The four lanes of a quad share a row.

// O is rescaled only when a row's maximum has grown by more than this, in log2 units. Until then the row keeps a stale
// maximum: P stays below 2^8, far from overflow in fp16, and nearly all rescaling is skipped (as in FlashAttention-4).
// With the speculative maximum P may be larger: hopper/guess.cuh.
constexpr float kLazyRescale = 8.0f;

// State of this lane's rows; [row tile][rows quad_row, quad_row + 8].
struct RowSums {
    float max[kRowTiles][2];  // of raw scores, possibly stale; least_maximum() before the first visible key
    float sum[kRowTiles][2];  // of this lane's columns only; reduced over the quad at the end
};

struct RowSumsAndSink : RowSums {
    float sink;  // of the head; loaded early to hide the latency at the end of the row
};

// Only wgmma kernels with sinks have the member `sink`: an unused member may change ptxas's register allocation.
using RowState = Either<kSinks && kWgmma, RowSumsAndSink, RowSums>::Type;

// The initial state of rows: no key seen.
__device__ __forceinline__ void begin_rows(RowState &row, const Params &p)
{
    const float least = least_maximum(p);
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            row.max[m][h] = least;
            row.sum[m][h] = 0.0f;
        }
}

// Ends a row: returns the factor of O, and LSE. sum is 0 if the row saw no key.
__device__ __forceinline__ float row_inverse(float sum)
{
    return sum == 0.0f ? 0.0f : 1.0f / sum;
}

__device__ __forceinline__ float row_lse(float max, float sum, float scale)
{
    return sum == 0.0f ? minus_infinity() : max * scale + logf(sum);
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

// Computes the maxima of this lane's columns. Returns true if one has grown so much that O must be rescaled. offset:
// added to all scores of a row, if kOffsets.
template <bool kOffsets>
__device__ __forceinline__ bool find_maxima(const float (&s)[kRowTiles][kColTiles][4], const RowState &row,
                                            float scale_log2, const float (&offset)[kRowTiles][2],
                                            float (&tile_max)[kRowTiles][2])
{
    bool grown = false;
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float x = fmaxf(s[m][0][2 * h], s[m][0][2 * h + 1]);
#pragma unroll
            for (int n = 1; n < kColTiles; n++)
                x = fmaxf(x, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
            if constexpr (kOffsets)
                x += offset[m][h];
            tile_max[m][h] = x;
            grown |= (x - row.max[m][h]) * scale_log2 > kLazyRescale;
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
    const float alpha = none ? 1.0f : exp2_approx((row_max - tile_max) * scale_log2);
    row_max = tile_max;
    return alpha;
}

// Turns S into P = 2^(scale_log2 * (S - max)), and adds to the sums.
template <bool kUnseen, bool kOffsets>
__device__ __forceinline__ void make_p_of(float (&s)[kRowTiles][kColTiles][4], RowState &row, float scale_log2,
                                          const float (&offset)[kRowTiles][2])
{
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const bool none = kUnseen && row.max[m][h] == minus_infinity();
            const float max = kOffsets ? row.max[m][h] - offset[m][h] : row.max[m][h];
            const float shift = none ? 0.0f : max * scale_log2;
#pragma unroll
            for (int n = 0; n < kColTiles; n++) {
#pragma unroll
                for (int e = 2 * h; e < 2 * h + 2; e++) {
                    s[m][n][e] = exp2_approx(fmaf(s[m][n][e], scale_log2, -shift));
                    row.sum[m][h] += s[m][n][e];
                }
            }
        }
    }
}

// For mma.sync: turns S into P, adds to the sums, and rescales O if a maximum has grown enough. kUnseen: some rows may
// have seen no key yet.
template <bool kUnseen>
__device__ __forceinline__ void softmax_tile(float (&s)[kRowTiles][kColTiles][4], RowState &row,
                                             float (&o)[kRowTiles][kOutTiles][4], float scale_log2)
{
    constexpr float kNoOffset[kRowTiles][2] = {};
    float tile_max[kRowTiles][2];  // of this lane's columns; reduced over the quad only if a row needs it
    const bool grown = find_maxima<false>(s, row, scale_log2, kNoOffset, tile_max);
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
    make_p_of<kUnseen, false>(s, row, scale_log2, kNoOffset);
}

// For wgmma: the factors of O, which are applied once the product that adds to O is done.
struct Rescale {
    float by[kRowTiles][2];
    bool wanted;  // some row of the warp needs rescaling; `by` is set only then

    __device__ __forceinline__ void apply(float (&o)[kRowTiles][kOutTiles][4]) const
    {
        if (!wanted)
            return;
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
#pragma unroll
            for (int n = 0; n < kOutTiles; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    o[m][n][e] *= by[m][e / 2];
    }
};

// For wgmma: as above, but returns how O must be rescaled. offset: added to all scores of a row, if kOffsets.
template <bool kUnseen, bool kOffsets = true>
__device__ __forceinline__ Rescale softmax_tile(float (&s)[kRowTiles][kColTiles][4], RowState &row, float scale_log2,
                                                const float (&offset)[kRowTiles][2])
{
    Rescale rescale;
    float tile_max[kRowTiles][2];  // of this lane's columns; reduced over the quad only if a row needs it
    const bool grown = find_maxima<kOffsets>(s, row, scale_log2, offset, tile_max);
    rescale.wanted = __any_sync(0xffffffffu, grown);
    if (rescale.wanted) {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                rescale.by[m][h] = raise_maximum<kUnseen>(row.max[m][h], tile_max[m][h], scale_log2);
                row.sum[m][h] *= rescale.by[m][h];
            }
        }
    }
    make_p_of<kUnseen, kOffsets>(s, row, scale_log2, offset);
    return rescale;
}

template <bool kUnseen>
__device__ __forceinline__ Rescale softmax_tile(float (&s)[kRowTiles][kColTiles][4], RowState &row, float scale_log2)
{
    constexpr float kNoOffset[kRowTiles][2] = {};
    return softmax_tile<kUnseen, false>(s, row, scale_log2, kNoOffset);
}

// ---- alibi: a bias that decreases linearly with the distance of the key from the query ------------------------
//
// Scores get -slope |p - j|, where p = query + seq_k - seq_q is the query's position and j the key. Here the term is in
// the unit of Q K^T, that is, divided by the scale.

__device__ __forceinline__ float alibi_slope(const Params &p, int batch, int head)
{
    return p.features.alibi_slopes[batch * p.features.alibi_stride + head] * p.features.inverse_scale;
}

// The term for p - j = base + step; step is a constant after unrolling. kBefore: base + step is not negative.
template <bool kBefore> __device__ __forceinline__ float alibi_term(float slope, float base, float step)
{
    if constexpr (kBefore)
        return fmaf(-slope, step, -slope * base);
    else
        return -slope * fabsf(base + step);
}

struct NoAlibi {
    __device__ __forceinline__ NoAlibi(const Params &, const BlockPlace &, int, int)
    {
    }

    template <bool kBefore> __device__ __forceinline__ float term(int, int, int, int, int) const
    {
        return 0.0f;
    }

    __device__ __forceinline__ float offset(int, int, int) const
    {
        return 0.0f;
    }

    __device__ __forceinline__ float added(float score, int, int, int, int) const
    {
        return score;
    }

    __device__ __forceinline__ bool in_product(int, int) const
    {
        return false;
    }
};

// This lane's first column in tile 0, kept if ALiBi is computed by the product (kAlibiMma).
struct KeptColumn {
    float first_column;

    __device__ __forceinline__ explicit KeptColumn(int lane) : first_column(float(lane % 4 * kLaneKeys))
    {
    }
};

struct NoColumn {
    static constexpr float first_column = 0.0f;

    __device__ __forceinline__ explicit NoColumn(int)
    {
    }
};

using FirstColumn = Either<kAlibiMma, KeptColumn, NoColumn>::Type;

// ALiBi for this lane's rows.
struct AlibiOfRows : FirstColumn {
    float slope[kRowTiles][2], position[kRowTiles][2];  // position: p minus this lane's first column in tile 0

    __device__ __forceinline__ AlibiOfRows(const Params &p, const BlockPlace &place, int first_row, int lane)
        : FirstColumn(lane)
    {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int row = min(first_row + m * 16 + h * 8 + lane / 4, place.rows - 1);
                slope[m][h] = alibi_slope(p, place.batch, place.query_head(p, row));
                position[m][h] = float(place.query(p, row) + place.seq_k(p) - place.seq_q(p) - lane % 4 * kLaneKeys);
            }
    }

    // The ALiBi term of a score: row tile m, half h, column tile n, column e of this lane. kBefore: no key of the tile
    // is after a row's own position.
    template <bool kBefore> __device__ __forceinline__ float term(int tile, int m, int h, int n, int e) const
    {
        return alibi_term<kBefore>(slope[m][h], position[m][h] - float(tile * kBc), -float(key_column(n) + e));
    }

    // The term in two parts, if no key of the tile is after a row's own position: the part of the row ...
    __device__ __forceinline__ float offset(int tile, int m, int h) const
    {
        if constexpr (kAlibiMma)
            return -slope[m][h] * (position[m][h] + first_column - float(tile * kBc));
        else
            return -slope[m][h] * (position[m][h] - float(tile * kBc));
    }

    // ... and the part of the column, added to the score.
    __device__ __forceinline__ float added(float score, int m, int h, int n, int e) const
    {
        if constexpr (kAlibiMma)
            return fmaf(slope[m][h], first_column + float(key_column(n) + e), score);
        else
            return fmaf(slope[m][h], float(key_column(n) + e), score);
    }

    // kAlibiMma: true if 16 bits hold the slope, so that the product contains slope * column. If false, it is added
    // here.
    __device__ __forceinline__ bool in_product(int m, int h) const
    {
        return kBf16 || fabsf(slope[m][h]) <= 65504.0f;
    }
};

using Alibi = Either<kAlibi, AlibiOfRows, NoAlibi>::Type;

// Neighbours of a row that a lane has, and reads with one load.
constexpr int kTogether = kWide ? 8 : 2;

// A load of kTogether contiguous, aligned neighbours.
template <BiasKind kKind>
__device__ __forceinline__ void load_neighbours(const typename BiasTypes<kKind>::Elem *at,
                                                typename BiasTypes<kKind>::Elem (&x)[kTogether])
{
    using Elem = typename BiasTypes<kKind>::Elem;
    if constexpr (!kWide) {
        const auto pair = __ldg(reinterpret_cast<const typename BiasTypes<kKind>::Pair *>(at));
        if constexpr (kKind == BiasKind::kFp32) {
            x[0] = pair.x;
            x[1] = pair.y;
        } else {
            x[0] = pair & ((1 << 8 * sizeof(Elem)) - 1);
            x[1] = pair >> 8 * sizeof(Elem);
        }
    } else if constexpr (kKind == BiasKind::kFp32) {
        const float4 *quads = reinterpret_cast<const float4 *>(at);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float4 quad = __ldg(quads + i);
            x[4 * i] = quad.x;
            x[4 * i + 1] = quad.y;
            x[4 * i + 2] = quad.z;
            x[4 * i + 3] = quad.w;
        }
    } else {
        constexpr int kOfWord = 4 / sizeof(Elem);
        uint32 words[kTogether / kOfWord];
        if constexpr (kKind == BiasKind::kBool) {
            const uint2 all = __ldg(reinterpret_cast<const uint2 *>(at));
            words[0] = all.x, words[1] = all.y;
        } else {
            const uint4 all = __ldg(reinterpret_cast<const uint4 *>(at));
            words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
        }
#pragma unroll
        for (int i = 0; i < kTogether; i++)
            x[i] = Elem(words[i / kOfWord] >> i % kOfWord * 8 * sizeof(Elem));
    }
}

struct NoBias {
    static constexpr float inverse_scale = 1.0f;

    __device__ __forceinline__ NoBias(const Params &, const BlockPlace &, int, int)
    {
    }

    template <bool kMasked> __device__ __forceinline__ bool reads_side(int) const
    {
        return true;
    }

    template <bool kMasked, bool kSide>
    __device__ __forceinline__ void load(int, int, int, BiasElem (&)[kTogether]) const
    {
    }
};

// The bias of this lane's rows.
struct BiasOfRows {
    const BiasElem *row[kRowTiles][2];  // at this lane's first column in tile 0
    int64 key_stride;
    int columns;  // columns before the tensor's end, relative to this lane's first one
    int seq_k;
    float inverse_scale;
    bool side;  // kTogether neighbours are contiguous and aligned

    __device__ __forceinline__ BiasOfRows(const Params &p, const BlockPlace &place, int first_row, int lane)
        : key_stride(p.features.bias_key), columns(place.seq_k(p) - lane % 4 * kLaneKeys), seq_k(place.seq_k(p))
    {
        const BiasElem *bias = reinterpret_cast<const BiasElem *>(p.features.bias) +
                               place.batch * p.features.bias_batch + place.padding() * key_stride +
                               lane % 4 * kLaneKeys * key_stride;
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int r = min(first_row + m * 16 + h * 8 + lane / 4, place.rows - 1);
                row[m][h] =
                    bias + place.query_head(p, r) * p.features.bias_head + place.query(p, r) * p.features.bias_query;
            }
        inverse_scale = p.features.inverse_scale;
        side = p.features.bias_side >= kTogether && place.padding() % kTogether == 0;
    }

    // True if neighbours of a tile are read with one load: none is beyond the tensor's end.
    template <bool kMasked> __device__ __forceinline__ bool reads_side(int tile) const
    {
        return side && (!kMasked || (tile + 1) * kBc <= seq_k);
    }

    // Reads kTogether neighbours of a row, but none beyond the tensor's end. kSide: they are contiguous, aligned, and
    // before the end.
    template <bool kMasked, bool kSide>
    __device__ __forceinline__ void load(int m, int h, int column, BiasElem (&x)[kTogether]) const
    {
        if constexpr (kSide) {
            load_neighbours<kBias>(row[m][h] + column, x);
        } else {
            const BiasElem *at = row[m][h] + column * key_stride;
#pragma unroll
            for (int i = 0; i < kTogether; i++)
                x[i] = !kMasked || column + i < columns ? __ldg(at + i * key_stride) : BiasElem(0);
        }
    }
};

using Bias = Either<kBias != BiasKind::kNone, BiasOfRows, NoBias>::Type;

// ---- score modifiers: ALiBi and bias, which are added to scores -----------------------------------------------
//
// On mma.sync the accumulator of S is initialised with the terms, and Q K^T is added: an accumulator must be
// initialised anyway. After a transform (softcap), and if warps divide columns, the terms are added afterwards. A bias
// in 16 bits is also added afterwards: its words are read before the product, which hides their latency. On wgmma:
// hopper/fwd_consumer.cuh.
constexpr bool kTerms = kAlibi || kBias != BiasKind::kNone;
constexpr bool kBiasAhead = kBiasHalf && !kWgmma;
constexpr bool kTermsFirst = kTerms && !kSoftcap && kParts == 1 && !kBiasAhead && !kWgmma;
constexpr bool kSkips = kBias == BiasKind::kBool && kTermsFirst;  // a warp may skip a tile if it sees none of its keys

// No key of the tile is after a row's own position.
template <bool kMasked> constexpr bool kNoKeyAfter = kCausal && !kMasked;

// Base classes instead of members: an empty member takes space and changes ptxas's registers.
struct Terms : Alibi, Bias {
    // first_row: the warp's first row.
    __device__ __forceinline__ Terms(const Params &p, const BlockPlace &place, int first_row, int lane)
        : Alibi(p, place, first_row, lane), Bias(p, place, first_row, lane)
    {
    }

    // Sets the scores of a tile to their terms, or adds these if kAdd. Returns false if no row of this warp sees a key
    // of the tile.
    template <bool kMasked, bool kAdd>
    __device__ __forceinline__ bool apply(float (&s)[kRowTiles][kColTiles][4], int tile) const
    {
        if constexpr (kBias != BiasKind::kNone)
            return Bias::reads_side<kMasked>(tile) ? apply_bias<kMasked, kAdd, true>(s, tile)
                                                   : apply_bias<kMasked, kAdd, false>(s, tile);
        else if constexpr (kAlibi)
            apply_alibi<kMasked, kAdd>(s, tile);
        return true;
    }

    // Adds ALiBi to a tile without a mask. The part that is the same for all scores of a row goes to `offset` instead,
    // for the softmax. With kAlibiMma the product already contains slope * column.
    __device__ __forceinline__ void add_columns(float (&s)[kRowTiles][kColTiles][4], float (&offset)[kRowTiles][2],
                                                int tile) const
    {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                offset[m][h] = Alibi::offset(tile, m, h);
                if (kAlibiMma && Alibi::in_product(m, h))
                    continue;
#pragma unroll
                for (int n = 0; n < kColTiles; n++)
#pragma unroll
                    for (int e = 0; e < 2; e++)
                        s[m][n][2 * h + e] = Alibi::added(s[m][n][2 * h + e], m, h, n, e);
            }
    }

    // Reads a bias in 16 bits for add(), two neighbours of a row per word.
    template <bool kMasked>
    __device__ __forceinline__ void load(uint32 (&words)[kRowTiles][2][kColTiles], int tile) const
    {
        if (Bias::reads_side<kMasked>(tile))
            load_all<kMasked, true>(words, tile);
        else
            load_all<kMasked, false>(words, tile);
    }

    template <bool kMasked>
    __device__ __forceinline__ void add(float (&s)[kRowTiles][kColTiles][4],
                                        const uint32 (&words)[kRowTiles][2][kColTiles], int tile) const
    {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int n = 0; n < kColTiles; n++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        float &score = s[m][n][2 * h + e];
                        score = fmaf(bias_number(BiasElem(words[m][h][n] >> 16 * e)), inverse_scale, score);
                        if constexpr (kAlibi)
                            score += Alibi::term<kNoKeyAfter<kMasked>>(tile, m, h, n, e);
                    }
    }

private:
    template <bool kMasked, bool kSide>
    __device__ __forceinline__ void load_all(uint32 (&words)[kRowTiles][2][kColTiles], int tile) const
    {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int n = 0; n < kColTiles; n += kTogether / 2) {
                    BiasElem x[kTogether];
                    Bias::load<kMasked, kSide>(m, h, tile * kBc + key_column(n), x);
#pragma unroll
                    for (int i = 0; i < kTogether; i += 2)
                        words[m][h][n + i / 2] = x[i] | uint32(x[i + 1]) << 16;
                }
    }

    // Adds a bias that read() has read, with ALiBi if there is any.
    template <bool kMasked, bool kAdd, bool kSide>
    __device__ __forceinline__ bool apply_bias(float (&s)[kRowTiles][kColTiles][4], int tile) const
    {
        uint32 seen = 0;
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int n = 0; n < kColTiles; n += kTogether / 2) {
                    BiasElem x[kTogether];
                    Bias::load<kMasked, kSide>(m, h, tile * kBc + key_column(n), x);
#pragma unroll
                    for (int i = 0; i < kTogether; i++) {
                        float &score = s[m][n + i / 2][2 * h + i % 2];
                        if constexpr (kBias == BiasKind::kBool)
                            seen |= uint32(x[i]);
                        float term = bias_number(x[i]);
                        if constexpr (kBias != BiasKind::kBool)
                            term *= inverse_scale;
                        if constexpr (kAlibi)
                            term += Alibi::term<kNoKeyAfter<kMasked>>(tile, m, h, n + i / 2, i % 2);
                        score = kAdd ? score + term : term;
                    }
                }
        return kBias != BiasKind::kBool || __any_sync(0xffffffffu, seen != 0);
    }

    template <bool kMasked, bool kAdd>
    __device__ __forceinline__ void apply_alibi(float (&s)[kRowTiles][kColTiles][4], int tile) const
    {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int n = 0; n < kColTiles; n++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        float &score = s[m][n][2 * h + e];
                        const float term = Alibi::term<kNoKeyAfter<kMasked>>(tile, m, h, n, e);
                        score = kAdd ? score + term : term;
                    }
    }
};

// ---- the range of tiles of K and V that a block processes: [first, count) -------------------------------------------

struct AnyFirstTile {
    int first;
};

struct FirstTileIs0 {
    static constexpr int first = 0;
};

struct TileRange : Either<kSplit || kWindow != Window::kNone, AnyFirstTile, FirstTileIs0>::Type {
    int count;
    int unmasked;  // tiles from this one on need a mask
    int plain;     // with a window, tiles before this one need a mask, too

    __device__ __forceinline__ TileRange(const Params &p, const BlockPlace &place)
    {
        if constexpr (kWindow != Window::kNone)
            find_window(*this, p, place);
        else
            find_all(*this, p, place);
        if constexpr (kSplit)
            take_share(*this, p, place);
    }

private:
    template <class Range>
    static __device__ __forceinline__ void find_window(Range &range, const Params &p, const BlockPlace &place)
    {
        const int last_row = min(place.first_row + kBr, place.rows) - 1;
        const WindowKeys keys(p, place.seq_k(p), place.query(p, place.first_row) + place.seq_k(p) - place.seq_q(p),
                              place.query(p, last_row) + place.seq_k(p) - place.seq_q(p));
        range.first = keys.begin / kBc;
        range.count = (keys.end + kBc - 1) / kBc;
        range.unmasked = keys.end_of_all / kBc;
        range.plain = (keys.begin_of_all + kBc - 1) / kBc;
    }

    template <class Range>
    static __device__ __forceinline__ void find_all(Range &range, const Params &p, const BlockPlace &place)
    {
        int keys = place.seq_k(p), keys_of_all = place.seq_k(p);  // seen by some row of the block; by every row
        if (kCausal) {
            const int offset = place.seq_k(p) - place.seq_q(p);
            const int last_row = min(place.first_row + kBr, place.rows) - 1;
            keys = max(0, min(keys, place.query(p, last_row) + 1 + offset));
            keys_of_all = max(0, min(keys, place.query(p, place.first_row) + 1 + offset));
        }
        if constexpr (kSplit)
            range.first = 0;
        range.count = (keys + kBc - 1) / kBc;
        range.unmasked = keys_of_all / kBc;
    }

    // Reduces the range to this block's share if several blocks divide the keys.
    template <class Range>
    static __device__ __forceinline__ void take_share(Range &range, const Params &p, const BlockPlace &place)
    {
        const int share = (range.count - range.first + place.splits(p) - 1) / place.splits(p);
        range.first = min(range.first + place.split * share, range.count);
        range.count = min(range.first + share, range.count);
    }
};

// ---- a ring of stages in shared memory -------------------------------------------------------------------------
//
// The phase of a stage's mbarrier ends once per tile, so the parity to wait for flips at each round.

// A position in a ring of kCount stages.
template <int kCount> struct StageOf {
    int index = 0;
    uint32 parity = 0;

    __device__ __forceinline__ void advance()
    {
        index++;
        if (index == kCount) {
            index = 0;
            parity ^= 1;
        }
    }

    __device__ __forceinline__ StageOf before() const
    {
        StageOf other;
        other.index = (index == 0 ? kCount : index) - 1;
        other.parity = index == 0 ? parity ^ 1 : parity;
        return other;
    }
};
using Stage = StageOf<kStages>;

// ---- column keys of dropout ---------------------------------------------------------------------------------------
//
// The column keys are the same for all rows, heads and batches. The kernel before the main one makes them and stores
// them in the workspace, in the order in which lanes need them. The keys of a tile are loaded into shared memory
// together with its K if kKeepsEarly, else with its V.

constexpr int kKeysAt = 128;  // offset in the workspace, after the counter of work tiles

__device__ __forceinline__ char *column_keys_at(const Params &p, int column)
{
    return reinterpret_cast<char *>(p.partial) + kKeysAt + int64(column) * 8;
}

// Makes the column keys; the kernel that runs before, with kKeysOfBlock / 2 threads per block. One Philox call of a
// warp makes the keys of 64 columns.
__device__ __forceinline__ void prepare_column_keys(const Params &p)
{
    const int lane = threadIdx.x % 32, sixty_four = blockIdx.x * (kKeysOfBlock / 64) + threadIdx.x / 32;
    uint2 *words = reinterpret_cast<uint2 *>(column_keys_at(p, sixty_four * 64)) + lane;
    uint32 x[4];
    column_keys(x, DropoutSeed(p.features), sixty_four, lane_pair(lane), lane % 4);
    words[0] = uint2{x[0], x[1]};
    words[32] = uint2{x[2], x[3]};
}

// The column keys of a tile: one word per lane for each 16 columns; the words of 32 columns are neighbours.
struct KeyTile {
    uint32 first;  // address of this lane's first word

    __device__ __forceinline__ KeyTile(uint32 smem, const Stage &stage)
        : first(smem + kKeysArea + stage.index * kKeyTileBytes + thread_index() % 32 * 8)
    {
    }

    // The words of 32 columns, from column 16 * step on.
    __device__ __forceinline__ float2 words(int step) const
    {
        return load_shared_8(first + step * 128);
    }
};

// Calls use(step, i) for each word i of the A fragment of P of a k16 step, after dropout has computed its bytes.
template <class Dropped, class Use>
__device__ __forceinline__ void each_word_of_p(Dropped &dropout, KeyTile keys, const Use &use)
{
#pragma unroll
    for (int step = 0; step < kBc / 16; step += 2) {
        const float2 words = keys.words(step);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            dropout.multiply_by(__float_as_uint(half == 0 ? words.x : words.y));
#pragma unroll
            for (int i = 0; i < 4; i++)
                use(step + half, i);
        }
    }
    __syncwarp();  // all lanes have read before one gives the tile back
}

// Computes the factors of P of a tile while the tensor cores compute S. The branch is always taken (a bound is never
// 0): without it ptxas moves this work after the wait for S.
template <class Dropped>
__device__ __forceinline__ void make_keeps(uint32 (&keep)[kBc / 16][4], Dropped &dropout, KeyTile keys)
{
    if (dropout.p.features.drop_bound == 0)
        return;
    each_word_of_p(dropout, keys, [&](int step, int i) { keep[step][i] = dropout.keep(0, i % 2, i / 2); });
}

// Applies dropout to P, which is packed to 16 bits: dropped elements become 0.
template <class Dropped> __device__ __forceinline__ void drop(uint32 (&p)[kBc / 16][4], Dropped &dropout, KeyTile keys)
{
    each_word_of_p(dropout, keys, [&](int step, int i) { p[step][i] = dropout.apply(p[step][i], 0, i % 2, i / 2); });
}

// Applies dropout to P with factors that were made early.
__device__ __forceinline__ void drop(uint32 (&p)[kBc / 16][4], const uint32 (&keep)[kBc / 16][4])
{
#pragma unroll
    for (int step = 0; step < kBc / 16; step++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            p[step][i] = keep_elements(p[step][i], keep[step][i]);
}

// ---- cp.async: asynchronous copies from global to shared memory; SM 8.0 and newer ---------------------------

// Copies 16 bytes from global to shared memory, bypassing L1, if wanted. It uses a predicate, because a branch would
// separate the instructions around it.
__device__ __forceinline__ void cp_async_16(uint32 smem, const char *gmem, bool wanted)
{
    asm volatile("{\n"
                 "    .reg .pred wanted;\n"
                 "    setp.ne.s32 wanted, %2, 0;\n"
                 "    @wanted cp.async.cg.shared.global.L2::128B [%0], [%1], 16;\n"
                 "}" ::"r"(smem),
                 "l"(gmem), "r"(int(wanted))
                 : "memory");
}

// As above, but writes 16 zero bytes if keep is false; gmem is not read then.
__device__ __forceinline__ void cp_async_16_or_zero(uint32 smem, const char *gmem, bool wanted, bool keep)
{
    asm volatile("{\n"
                 "    .reg .pred wanted;\n"
                 "    setp.ne.s32 wanted, %2, 0;\n"
                 "    @wanted cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %3;\n"
                 "}" ::"r"(smem),
                 "l"(gmem), "r"(int(wanted)), "r"(keep ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most kPending of this thread's committed groups are unfinished.
template <int kPending> __device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- copies of rows by threads, in the layout of TMA ------------------------------------------------------------

// Starts copying kRows rows into pages. Rows from valid_rows on, and columns after the last, become zeros.
// address(row): start of a row in global memory. kCount threads share the work; eight lanes copy 128 bytes of a row.
template <int kRows, int kCount, class Address>
__device__ __forceinline__ void fill_pages(uint32 smem, int valid_rows, Address address)
{
    const int thread = thread_index() % kCount, chunk = thread % 8, first_row = thread / 8;
    constexpr int kRowStep = kCount / 8;
    const uint32 first = smem + first_row * kPageRowBytes + (chunk ^ first_row % 8) * 16;
#pragma unroll
    for (int pass = 0; pass < kRows / kRowStep; pass++) {
        const int row = first_row + pass * kRowStep;
        const char *src = address(row) + chunk * 16;
#pragma unroll
        for (int page = 0; page < kPages; page++)
            cp_async_16_or_zero(first + (page * kRows + pass * kRowStep) * kPageRowBytes, src + page * kPageRowBytes,
                                true, row < valid_rows && (kHeadDim % 64 == 0 || page * 64 + chunk * 8 < kHeadDim));
    }
}

// ---- mbarriers, and TMA loads that arrive at them -----------------------------------------------------------------
//
// A phase of an mbarrier ends when all arrivals and all announced bytes have come. A wait names the parity of a phase,
// 0 for the first one. A wait for parity 1 on a fresh barrier returns at once.

// A tensor map as the driver encodes it: [batch, head, seq, column], in boxes of rows x 64 columns. Elements after the
// end of a sequence or a row are loaded as zeros.
struct alignas(64) TensorMap {
    char opaque[128];
};

__device__ __forceinline__ void barrier_init(uint32 barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes the barriers that this thread initialised visible to the async proxy (TMA).
__device__ __forceinline__ void barrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32 barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// barrier_arrive by lane 0 of a warp, with a predicate instead of a branch. In a branch the compiler would compute the
// shared-memory address anew, and treat all values derived from it, such as wgmma descriptors, as different in each
// lane.
__device__ __forceinline__ void barrier_arrive_by(int lane, uint32 barrier)
{
    asm volatile("{\n"
                 "    .reg .pred first;\n"
                 "    setp.eq.s32 first, %1, 0;\n"
                 "    @first mbarrier.arrive.shared::cta.b64 _, [%0];\n"
                 "}" ::"r"(barrier),
                 "r"(lane)
                 : "memory");
}

// Arrives, and announces bytes that will come.
__device__ __forceinline__ void barrier_expect(uint32 barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32 barrier, uint32 parity)
{
    asm volatile("{\n"
                 "    .reg .pred done;\n"
                 "again:\n"
                 "    mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "    @!done bra again;\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

// Arrives when the cp.async copies that this lane has issued are complete. The barrier counts this arrival (noinc).
__device__ __forceinline__ void barrier_arrive_behind_copies(uint32 barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Copies 16 or 4 bytes from global to shared memory; only the first `bytes` are read, the rest becomes zeros.
__device__ __forceinline__ void copy_16_or_less(uint32 smem, const void *gmem, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem), "l"(gmem), "r"(bytes) : "memory");
}

__device__ __forceinline__ void copy_4_or_less(uint32 smem, const void *gmem, int bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(smem), "l"(gmem), "r"(bytes) : "memory");
}

// A coordinate in a tensor map. If batches or heads share memory (stride 0), the map has only one of them.
__device__ __forceinline__ int coordinate(int index, int64 stride)
{
    return stride == 0 ? 0 : index;
}

// Loads rows from `row` on of 64 columns from `column` on into a page of a tile.
__device__ __forceinline__ void load_page(uint32 smem, const TensorMap &map, uint32 barrier, int column, int row,
                                          int head, int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(smem),
                 "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch)
                 : "memory");
}

// Loads contiguous bytes, a multiple of 16.
__device__ __forceinline__ void load_bytes(uint32 smem, const void *gmem, int bytes, uint32 barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem),
                 "l"(gmem), "r"(bytes), "r"(barrier)
                 : "memory");
}

// Orders this thread's accesses to shared memory before TMA accesses to the same area that follow a barrier.
__device__ __forceinline__ void release_to_loads()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Stores rows of a page to global memory, clipped to the tensor's rows and columns.
__device__ __forceinline__ void store_page(const TensorMap &map, uint32 smem, int column, int row, int head, int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
                 "r"(smem), "r"(column), "r"(row), "r"(head), "r"(batch)
                 : "memory");
}

__device__ __forceinline__ void commit_stores()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until this thread's TMA stores have read shared memory.
__device__ __forceinline__ void wait_stores()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// ---- the tensor maps of a launch, in the order of the recipe -----------------------------------------------------
struct MapOfQ {
    TensorMap q;
};

struct NoMapOfQ {
    static constexpr TensorMap q{};
};

struct MapsOfKeys {
    TensorMap k, v;
};

struct MapOfO {
    TensorMap o;
};

struct NoMapOfO {
    static constexpr TensorMap o{};
};

struct MapOfBias {
    TensorMap bias;
};

struct NoMapOfBias {
    static constexpr TensorMap bias{};
};

struct TensorMaps : Either<kPackedHeads, NoMapOfQ, MapOfQ>::Type,
                    MapsOfKeys,
                    Either<kOByMap, MapOfO, NoMapOfO>::Type,
                    Either<kBiasStaged, MapOfBias, NoMapOfBias>::Type {
};
static_assert(sizeof(TensorMaps) == sizeof(TensorMap) * (2 + !kPackedHeads + kOByMap + kBiasStaged),
              "what the runtime passes");

// ---- tiles loaded beside K and V, in stages of their own (the bias) ------------------------------------------------
//
// A warp of the producer warpgroup loads them. A TMA load or the lanes of that warp arrive at `full`; every warp that
// has read the stage arrives at `empty`.
template <int kCount, int kBytes> struct TilesBeside {
    uint32 area, barriers;
    StageOf<kCount> stage;

    __device__ __forceinline__ TilesBeside(uint32 area, uint32 barriers) : area(area), barriers(barriers)
    {
    }

    __device__ __forceinline__ uint32 full() const
    {
        return barriers + stage.index * 16;
    }

    __device__ __forceinline__ uint32 empty() const
    {
        return full() + 8;
    }

    __device__ __forceinline__ uint32 tile() const
    {
        return area + stage.index * kBytes;
    }

    // loads, readers: number of arrivals at `full` and at `empty`.
    __device__ __forceinline__ void init(int loads, int readers) const
    {
        for (int i = 0; i < kCount; i++) {
            barrier_init(barriers + i * 16, loads);
            barrier_init(barriers + i * 16 + 8, readers);
        }
        barrier_init_fence();
    }

    // By a warp that loads, before it loads a stage.
    __device__ __forceinline__ void wait_empty() const
    {
        barrier_wait(empty(), stage.parity ^ 1);
    }

    __device__ __forceinline__ void wait_full() const
    {
        barrier_wait(full(), stage.parity);
    }

    // By a warp that reads, after it has read a stage.
    __device__ __forceinline__ void release()
    {
        __syncwarp();  // all lanes have read
        barrier_arrive_by(threadIdx.x % 32, empty());
        stage.advance();
    }
};

// The index of the consumer warpgroup that this producer warp loads for.
__device__ __forceinline__ int served_group()
{
    return thread_index() / 32 - kGroups * 4 - 1;
}

// The stages of one consumer warpgroup, for its scores.
struct SideTiles : TilesBeside<kSideStages, kSideTileBytes> {
    __device__ __forceinline__ SideTiles(uint32 smem, int group)
        : TilesBeside(smem + kSideArea + group * kSideStages * kSideTileBytes,
                      smem + kSideBarrierArea + group * kSideStages * 16)
    {
    }
};

// ---- wgmma: products of a warpgroup -----------------------------------------------------------------------------
//
// wgmma runs asynchronously to the threads that issue it. wgmma_fence orders earlier register accesses before it;
// wgmma_commit closes a group; wgmma_wait makes the registers of a group readable and its shared memory reusable.
// Accumulators have the layout of mma: 16 rows per warp, n8 column tiles. pin() keeps the compiler from moving uses of
// the accumulator across the asm around it.

__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Makes this thread's writes to shared memory, including copies that it waited for, visible to wgmma and TMA (async
// proxy). A barrier must follow.
__device__ __forceinline__ void fence_products()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Waits until at most kPending committed groups are unfinished.
template <int kPending> __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

template <int kN> __device__ __forceinline__ void pin(float (&x)[1][kN][4])
{
#pragma unroll
    for (int n = 0; n < kN; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            asm volatile("" : "+f"(x[0][n][e])::"memory");
}

// The wgmma descriptor of a tile in shared memory with 128-byte swizzle; addresses are in units of 16 bytes.
// page_bytes: the distance of pages of 64 columns, if a product reads several (V).
__device__ __forceinline__ uint64 tile_descriptor(uint32 smem, int page_bytes)
{
    constexpr uint64 kSwizzle128 = uint64(1) << 62, kRowsOf8 = uint64(8 * kPageRowBytes / 16) << 32;
    return kSwizzle128 | kRowsOf8 | uint64(page_bytes / 16) << 16 | smem / 16;
}

// Lowers (give) or raises (take) the registers per thread of a warpgroup to kRegisters. All of its warps must call it.
template <int kRegisters> __device__ __forceinline__ void give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters> __device__ __forceinline__ void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Arrives at a named barrier without waiting.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- a bias in 16 bits, through shared memory ---------------------------------------------------------------
//
// The warps of the producer load the bias tiles, consumers add them to S. The fastest way that the layout allows is
// used: a tensor map; else cp.async of 16 bytes, if keys are contiguous and aligned; else of 4 bytes; else single
// elements.

// With kBegun the accumulator of S is initialised with the bias, converted by mma.sync, and Q K^T is added. A bias of
// infinity (which hides a key) or NaN (which a mask may hide) breaks this: infinity times 0 is NaN, so eight columns of
// its row become NaN. The sums of P show the NaN (guess.cuh); S is then computed again, and the bias is converted
// element by element. To look for such values before Q K^T costs 4 % of the time, because the row then waits for the
// check.

// Rounds x to the type of the bias, to nearest even.
__device__ __forceinline__ uint32 bias_bits(float x)
{
    uint32 bits;
    if constexpr (kBias == BiasKind::kBf16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(0.0f), "f"(x));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(0.0f), "f"(x));
    return bits;
}

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
        const uint32 bits = bias_bits(of_bias);
        const float left = of_bias - bias_number(BiasElem(bits));
        most = on_diagonal(bits);
        rest = on_diagonal(bias_bits(left));
        by_product = of_bias >= 0x1p-8f && of_bias <= 0x1p15f && (!kScaleIsExact || left == 0.0f);
    }

    // c = converted bias of a column tile. low, high: the bias of rows quad_row and quad_row + 8.
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
        const uint32 plain = tile() + key / kPageColumns * kQPageBytes + row * kPageRowBytes + key % kPageColumns * 2;
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
        release_to_loads();
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
        release_to_loads();
    }
};

// ---- loads of a bias tile, by one warp of the producer --------------------------------------------------------------
//
// Elements after the last key or query are zeros. With packed sequences and a tensor map they are what the bias holds
// there; that does no harm, because the keys are masked and O of the queries is not written.

// The first row of the served warpgroup, in its sequence.
__device__ __forceinline__ int served_row(const BlockPlace &place)
{
    return place.first_row + served_group() * kGroupRows;
}

__device__ __forceinline__ const BiasElem *bias_of(const Params &p, const BlockPlace &place)
{
    return reinterpret_cast<const BiasElem *>(p.features.bias) + place.batch * p.features.bias_batch +
           place.query_head(p, 0) * p.features.bias_head + served_row(place) * p.features.bias_query;
}

// Load by a tensor map; one lane issues it.
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
        __syncwarp();  // keeps lanes within one phase of each other
    }
};

// Load by cp.async of kSide neighbouring elements.
template <int kSide> struct BiasCopies {
    const BiasElem *first;
    int rows, keys;

    __device__ __forceinline__ BiasCopies(const Params &p, const TensorMaps &, const BlockPlace &place)
        : first(bias_of(p, place)), rows(place.rows - served_row(place)), keys(place.seq_k(p))
    {
    }

    __device__ __forceinline__ void load(const Params &p, const BiasTiles &side, int first_key) const
    {
        constexpr int kLanes = kBc / kSide < 32 ? kBc / kSide : 32, kStep = 32 / kLanes;  // lanes per row
        const int lane = thread_index() % 32;
        const int64 step = kSide == 8 ? 0 : p.features.bias_query;  // not 0: eight neighbours come by a map
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

// Load element by element, two per lane.
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
        barrier_arrive(side.full());  // makes the stores visible; barrier_arrive_behind_copies waits for cp.async only
    }
};

// ---- the mbarriers of the forward kernel in shared memory -----------------------------------------------------

// Warps that arrive at q_empty: the four of a consumer warpgroup, and the warp that loads its bias if work tiles come
// from the counter.
constexpr int kQReaders = kBiasStaged && kCounted ? 5 : 4;

struct Barriers {
    uint32 smem;

    __device__ __forceinline__ uint32 q_full(int group) const
    {
        return smem + kBarrierArea + group * 16;
    }

    __device__ __forceinline__ uint32 q_empty(int group) const
    {
        return q_full(group) + 8;
    }

    __device__ __forceinline__ uint32 k_full(int stage) const
    {
        return smem + kBarrierArea + kGroups * 16 + stage * 32;
    }

    __device__ __forceinline__ uint32 k_empty(int stage) const
    {
        return k_full(stage) + 8;
    }

    __device__ __forceinline__ uint32 v_full(int stage) const
    {
        return k_full(stage) + 16;
    }

    __device__ __forceinline__ uint32 v_empty(int stage) const
    {
        return k_full(stage) + 24;
    }

    // The number of the work tile that the rows of Q belong to (kCounted).
    __device__ __forceinline__ uint32 piece(int group) const
    {
        return smem + kPieceArea + group * 4;
    }

    // Returns the number of the work tile after the one with this parity. Called by whole warps.
    __device__ __forceinline__ unsigned next_piece(int group, uint32 parity) const
    {
        barrier_wait(q_full(group), parity ^ 1);
        const unsigned next = __float_as_uint(load_shared_4(piece(group)));
        __syncwarp();  // all lanes have read it before one of them releases it
        return next;
    }

    __device__ __forceinline__ void init() const
    {
        for (int group = 0; group < kGroups; group++) {
            barrier_init(q_full(group), 1);
            barrier_init(q_empty(group), kQReaders);
        }
        for (int stage = 0; stage < kStages; stage++) {
            barrier_init(k_full(stage), 1);
            barrier_init(v_full(stage), 1);
            barrier_init(k_empty(stage), kGroups * 4);
            barrier_init(v_empty(stage), kGroups * 4);
        }
        barrier_init_fence();
    }
};

// ---- the state of a consumer warpgroup, kept from one work tile to the next -------------------------------------

// Ping-pong: the order in which warpgroups start their products (kTurns).
struct Turns {
    int group;
    bool may_start;  // the first warpgroup starts first, without a wait

    __device__ __forceinline__ explicit Turns(int group) : group(group), may_start(group == 0)
    {
    }

    // Waits until the warpgroup before this one has started its products.
    __device__ __forceinline__ void take()
    {
        if (kTurns && !may_start)
            named_barrier(1 + group, 256);
        may_start = false;
    }

    __device__ __forceinline__ void pass()
    {
        int next = group + 1;
        if constexpr (kBegun)
            asm volatile("" : "+r"(next));  // computed again, because no register is left to keep it
        if (kTurns)
            named_barrier_arrive(1 + next % kGroups, 256);
    }

    // At the end: takes the turn that the last warpgroup passed on, so that the barrier is balanced.
    __device__ __forceinline__ void finish()
    {
        if (group == 0 && !may_start)
            take();
    }
};

// The empty policy: no bias in shared memory.
struct NoBiasTiles {
    __device__ __forceinline__ NoBiasTiles(uint32, int)
    {
    }

    __device__ __forceinline__ void begin(float (&)[kRowTiles][kColTiles][4], const ScoreUnit &, bool) const
    {
    }

    __device__ __forceinline__ void add(float (&)[kRowTiles][kColTiles][4], const ScoreUnit &) const
    {
    }

    __device__ __forceinline__ void read(uint32 (&)[kRowTiles][2][kColTiles]) const
    {
    }

    __device__ __forceinline__ void release() const
    {
    }
};

// The state of a consumer warpgroup.
struct Group {
    int index, lane, warp_row;  // warp_row: this warp's first row in the block
    Stage k, v;
    Turns turns;
    Either<kBiasStaged, BiasTiles, NoBiasTiles>::Type side;

    __device__ __forceinline__ Group(int index, uint32 smem)
        : index(index), lane(threadIdx.x % 32), warp_row(threadIdx.x / 32 * 16), turns(index), side(smem, index)
    {
    }

    __device__ __forceinline__ void release_q(const Barriers &barriers) const
    {
        barrier_arrive_by(lane, barriers.q_empty(index));
    }
};

// ---- ALiBi by one more step of S = Q K^T ---------------------------------------------------------------------------
//
// If no key of a tile is after the row's own position, the ALiBi term is linear in the key. Its part that is the same
// for all keys of the tile goes to the softmax (forward/terms.cuh); slope * column remains. It is computed by one more
// k16 step: three extra columns of Q hold the slope in 16-bit parts, three of K hold the column number. So ALiBi needs
// no instruction per score. The three are columns 0, 1 and 8 of the sixteen, which belong to one lane of each row.

static_assert(!kAlibiMma || kBc <= 256, "columns of a tile are numbers in 16 bits");

// Writes the extra columns of K, once per block. Eight keys of eight columns are contiguous (128 bytes); the other
// eight columns follow them.
__device__ __forceinline__ void put_key_columns(uint32 smem)
{
    for (int key = threadIdx.x; key < kBc; key += kThreads) {
        const uint32 to = smem + kColumnArea + key / 8 * 256 + key % 8 * 16, both = pack2(float(key), float(key));
        store_shared_16(to, uint4{both, 0, 0, 0});
        store_shared_16(to + 128, uint4{both & 0xffff, 0, 0, 0});
    }
    fence_products();
}

__device__ __forceinline__ uint64 key_columns(uint32 smem)
{
    constexpr uint64 kColumnsOf8 = uint64(128 / 16) << 16, kRowsOf8 = uint64(256 / 16) << 32;
    return kRowsOf8 | kColumnsOf8 | (smem + kColumnArea) / 16;
}

// Computes the extra columns of Q for this lane's rows.
template <class AnyAlibi> __device__ __forceinline__ void slope_columns(const AnyAlibi &alibi, int lane, uint32 (&a)[4])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float slope = alibi.in_product(0, h) ? alibi.slope[0][h] : 0.0f;
        const float most = unpack2(pack2(slope, 0.0f)).x, rest = slope - most;
        const float more = unpack2(pack2(rest, 0.0f)).x;
        a[h] = lane % 4 == 0 ? pack2(most, more) : 0;
        a[2 + h] = lane % 4 == 0 ? pack2(rest - more, 0.0f) : 0;
    }
}

// Adds slope * column to an S that a warp has computed by itself.
__device__ __forceinline__ void add_slopes(float (&s)[kRowTiles][kColTiles][4], const uint32 (&slopes)[4])
{
    const int lane = thread_index() % 32;
    const bool has = lane % 4 == 0;
#pragma unroll
    for (int n = 0; n < kColTiles; n++) {
        const float key = float(n * 8 + lane / 4);
        mma_k16(s[0][n], slopes, has ? pack2(key, key) : 0, has ? pack2(key, 0.0f) : 0);
    }
}

// ---- the products of a warpgroup: S = Q K^T and O += P V ------------------------------------------------------------

// Starts S = Q K^T. If kSloped, one more k16 step adds slope * column of ALiBi from `slopes` and `columns`
// (slopes.cuh).
template <bool kSloped>
__device__ __forceinline__ void start_scores(float (&s)[1][kColTiles][4], uint32 q_smem, uint32 k_smem,
                                             const uint32 (&slopes)[4], uint64 columns)
{
    const uint64 a = tile_descriptor(q_smem, 0), b = tile_descriptor(k_smem, 0);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kDepth; step++)
        Wgmma<kBc>::multiply<0, 0>(s, a + (step / 4 * kQPageBytes + step % 4 * 32) / 16,
                                   b + (step / 4 * kTilePageBytes + step % 4 * 32) / 16, kBegun ? 1 : step > 0);
    if constexpr (kSloped)
        Wgmma<kBc>::multiply<0>(s, slopes, columns, 1);
    wgmma_commit();
}

// Starts O += P V. P is in registers.
__device__ __forceinline__ void start_output(float (&o)[1][kOutTiles][4], const uint32 (&p)[kBc / 16][4], uint32 v_smem)
{
    const uint64 b = tile_descriptor(v_smem, kTilePageBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kBc / 16; step++)
        Wgmma<kHeadDim>::add<1>(o, p[step], b + step * 16 * kPageRowBytes / 16);
    wgmma_commit();
}

// Packs P to 16 bits: two column tiles of an accumulator have the layout of a 16-column A fragment.
__device__ __forceinline__ void pack_scores(const float (&s)[1][kColTiles][4], uint32 (&p)[kBc / 16][4])
{
#pragma unroll
    for (int step = 0; step < kBc / 16; step++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            p[step][e] = pack2(s[0][2 * step + e / 2][e % 2 * 2], s[0][2 * step + e / 2][e % 2 * 2 + 1]);
}

// ---- the speculative maximum: P without a search for the maximum of the tile -----------------------------------
//
// Once a row has seen a tile, its maximum hardly grows, and P may exceed 1 by as much as 16 bits can hold. So for tiles
// without a mask, P is computed with the maxima that the rows have so far. The row sums, which are needed anyway, show
// if a maximum was too small. This is rare. The warp then computes S again by itself and takes the usual way: S cannot
// be recovered from P, which may be infinite.

// The limit for a lane's sum of P in a row, and so for each element. fp16 can hold twice as much. fp32 then has room
// for O if values of V are below 2^60.
constexpr float kMostGuessed = kBf16 ? 0x1p40f : 0x1p15f;

// Turns S into P with the speculative maxima, and adds to the sums. Returns false, in all lanes of the warp, if a sum
// is too large: then S is lost and nothing else has changed.
__device__ __forceinline__ bool guess_tile(float (&s)[kRowTiles][kColTiles][4], RowState &row, float scale_log2,
                                           const float (&offset)[kRowTiles][2])
{
    constexpr int m = 0;
    float sum[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float max = kAlibiOffsets ? row.max[m][h] - offset[m][h] : row.max[m][h];
        const float shift = max * scale_log2;
#pragma unroll
        for (int n = 0; n < kColTiles; n++)
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; e++) {
                s[m][n][e] = exp2_approx(fmaf(s[m][n][e], scale_log2, -shift));
                sum[h] = n == 0 && e == 2 * h ? s[m][n][e] : sum[h] + s[m][n][e];
            }
    }
    // The comparison is false for NaN, so NaN counts as wrong.
    const bool right = __all_sync(0xffffffffu, sum[0] <= kMostGuessed && sum[1] <= kMostGuessed);
    if (right)
#pragma unroll
        for (int h = 0; h < 2; h++)
            row.sum[m][h] += sum[h];
    return right;
}

__device__ __forceinline__ void clear_scores(float (&s)[kRowTiles][kColTiles][4])
{
#pragma unroll
    for (int n = 0; n < kColTiles; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[0][n][e] = 0.0f;
}

// s += Q K^T for this warp's 16 rows, by mma.sync of this warp alone. q_smem: the 64 rows of its warpgroup.
__device__ __forceinline__ void add_products(float (&s)[kRowTiles][kColTiles][4], uint32 q_smem, uint32 k_smem)
{
    const int thread = thread_index(), lane = thread % 32;  // computed here, because they are rarely needed
    const int row = thread % 128 / 32 * 16 + lane % 16, key = lane / 16 * 8 + lane % 8;
    q_smem += row * kPageRowBytes + (lane / 16 ^ row % 8) * 16;
    k_smem += key * kPageRowBytes + (lane / 8 % 2 ^ key % 8) * 16;
#pragma unroll 1
    for (int step = 0; step < kDepth; step++) {
        const uint32 chunk = step % 4 * 32;
        uint32 a[4], b[4];
        ldmatrix_x4(a, (q_smem ^ chunk) + step / 4 * kQPageBytes);
#pragma unroll
        for (int n = 0; n < kColTiles; n += 2) {
            ldmatrix_x4(b, (k_smem ^ chunk) + step / 4 * kTilePageBytes + n * 8 * kPageRowBytes);
            mma_k16(s[0][n], a, b[0], b[1]);
            mma_k16(s[0][n + 1], a, b[2], b[3]);
        }
    }
    pin(s);  // K's values are used before its stage is given back
}

// ---- consumer: a warpgroup that computes 64 rows of O ---------------------------------------------------------------
//
// compute_rows has the loop over tiles; Rows::step is one step of it. A step starts S of its tile, and then O += P V of
// the tile before. The softmax runs while the tensor cores compute that second product:
//
//     start S(j) | start O += P(j-1) V(j-1) | wait for S(j) | softmax | wait for O | rescale O
//     kGuesses, without a mask: ... | P by speculative maxima | wait for O | rarely S again, softmax, rescale O
//
// With kTurns, warpgroups start these two products in turn (ping-pong): one computes its softmax while the tensor cores
// work for another.

// Sets V to 0 after a packed sequence's end. The rows there belong to the next sequence and may hold NaN. P is 0 for
// them, but 0 * NaN is NaN. All consumer warpgroups share the work.
__device__ __forceinline__ void clear_rows(uint32 tile, int valid_rows)
{
#pragma unroll 1
    for (int i = valid_rows * 8 + threadIdx.x; i < kBc * 8; i += kGroups * 128)
#pragma unroll
        for (int page = 0; page < kPages; page++)
            store_shared_16(tile + page * kTilePageBytes + i * 16, uint4{0, 0, 0, 0});
}

// Copies the Q of one warpgroup by its own threads: with kPackedHeads its rows belong to several heads.
__device__ __forceinline__ void copy_rows(const Params &p, const BlockPlace &place, uint32 smem, int group)
{
    const int first_row = place.first_row + group * kGroupRows;
    fill_pages<kGroupRows, 128>(smem, place.rows - first_row,
                                [&](int r) { return p.q + place.offset(p, p.q_stride, first_row + r) * 2; });
    cp_async_commit();
    cp_async_wait<0>();
    fence_products();
    named_barrier(1 + kGroups + group, 128);  // this warpgroup's rows of Q are complete
}

// The steps of the mainloop. The struct holds references only: with arrays as members, ptxas keeps them in memory until
// loops are unrolled, and chooses other registers.
struct Rows {
    const Params &p;
    const BlockPlace &place;
    const Barriers &barriers;
    Group &group;
    const uint32 smem, q_smem;
    float (&o)[kRowTiles][kOutTiles][4];
    RowState &row;
    float (&s)[kRowTiles][kColTiles][4];
    uint32 (&probabilities)[kBc / 16][4];
    uint32 (&words)[kRowTiles][2][kColTiles];  // words of the bias, read while products run (kBiasEarly)
    uint32 (&keeps)[kBc / 16][4];              // factors of P from dropout (kKeepsEarly)
    Dropout &dropped;
    ScoreUnit &unit;
    const Terms &terms;
    const uint32 (&slopes)[4];  // ALiBi's columns of Q (kAlibiMma)
    int &tile;

    __device__ __forceinline__ uint32 k_smem() const
    {
        return smem + kKArea + group.k.index * kTileBytes;
    }

    __device__ __forceinline__ uint32 v_smem() const
    {
        return smem + kVArea + group.v.index * kTileBytes;
    }

    // Waits for K, then starts S = Q K^T.
    template <bool kMasked> __device__ __forceinline__ void start_s()
    {
        if constexpr (kBegun)
            group.side.begin(s, unit, kMasked);
        barrier_wait(barriers.k_full(group.k.index), group.k.parity);
        group.turns.take();
        start_scores<kAlibiMma && !kMasked>(s, q_smem, k_smem(), slopes, key_columns(smem));
        if constexpr (kKeepsEarly)
            make_keeps(keeps, dropped, KeyTile(smem, group.k));
    }

    // Waits for V, then starts O += P V of the tile before.
    __device__ __forceinline__ void start_o()
    {
        barrier_wait(barriers.v_full(group.v.index), group.v.parity);
        if constexpr (kDropsBeside)
            drop(probabilities, dropped, KeyTile(smem, group.v));  // runs while the next S, if any, is computed
        start_output(o, probabilities, v_smem());
    }

    // Converts P to 16-bit A fragments, with dropout applied unless start_o does it.
    __device__ __forceinline__ void pack()
    {
        pack_scores(s, probabilities);
        if constexpr (kKeepsEarly) {
            drop(probabilities, keeps);
        } else if constexpr (kDropout && !kDropsBeside) {
            barrier_wait(barriers.v_full(group.v.index), group.v.parity);
            drop(probabilities, dropped, KeyTile(smem, group.v));
        }
    }

    __device__ __forceinline__ void release_k()
    {
        if constexpr (kBegun)
            group.side.release();
        barrier_arrive_by(group.lane, barriers.k_empty(group.k.index));
        group.k.advance();
    }

    __device__ __forceinline__ void release_v()
    {
        barrier_arrive_by(group.lane, barriers.v_empty(group.v.index));
        group.v.advance();
    }

    // Applies softcap, ALiBi, bias and mask to S. Adds to `offset` what all scores of a row have in common; the softmax
    // takes it into account (kAlibiOffsets).
    template <bool kMasked> __device__ __forceinline__ void add_terms(float (&offset)[kRowTiles][2])
    {
        if constexpr (kSoftcap)
            cap_scores(s, p.softcap_rate);
        if constexpr (kAlibiOffsets && kCausal && !kMasked) {
            terms.add_columns(s, offset, tile);
        } else if constexpr (kBiasStaged && !kBegun) {
            if constexpr (!kBiasEarly)
                group.side.read(words);
            terms.template add<kMasked>(s, words, tile);
        } else if constexpr (kTerms && !kBegun) {
            terms.template apply<kMasked, true>(s, tile);
        }
        if constexpr (kMasked)
            mask_scores(s, p, place, place.first_row + group.warp_row, tile, group.lane);
    }

    // Turns S into P; returns how O must be rescaled.
    template <bool kMasked> __device__ __forceinline__ Rescale softmax()
    {
        float offset[kRowTiles][2] = {};
        add_terms<kMasked>(offset);
        return softmax_tile<kMayBeUnseen<kMasked>, kAlibiOffsets>(s, row, p.scale_log2, offset);
    }

    __device__ __forceinline__ void finish_o()
    {
        wgmma_wait<0>();
        pin(o);
        release_v();
    }

    template <bool kMasked> __device__ __forceinline__ void make_p_by_maxima()
    {
        release_k();
        const Rescale rescale = softmax<kMasked>();
        finish_o();
        pack();
        rescale.apply(o);
    }

    // Computes S again, by this warp alone.
    __device__ __forceinline__ void make_again()
    {
        clear_scores(s);
        add_products(s, q_smem, k_smem());
        if constexpr (kAlibiMma)
            add_slopes(s, slopes);
        else if constexpr (kBegun)
            group.side.add(s, unit);
    }

    // Makes P with the speculative maxima (guess.cuh); for tiles without a mask.
    __device__ __forceinline__ void guess_p()
    {
        float offset[kRowTiles][2] = {};
        add_terms<false>(offset);
        const bool right = guess_tile(s, row, p.scale_log2, offset);
        finish_o();
        pack();
        if (!right) {
            make_again();
            softmax<false>().apply(o);
            pack();
        }
        release_k();  // K is needed until here, because S may have to be computed again
    }

    // One step: S and P of the tile, and O += P V of the tile before.
    template <bool kMasked> __device__ __forceinline__ void step()
    {
        start_s<kMasked>();
        start_o();
        group.turns.pass();
        if constexpr (kBiasEarly)
            group.side.read(words);
        wgmma_wait<1>();  // S is there
        pin(s);
        if constexpr (kGuesses && !kMasked)
            guess_p();
        else
            make_p_by_maxima<kMasked>();
        pin(o);
    }

    // First step: the last tile of keys; O has nothing to add yet.
    __device__ __forceinline__ void begin()
    {
        start_s<true>();
        group.turns.pass();
        if constexpr (kBiasEarly)
            group.side.read(words);
        wgmma_wait<0>();
        pin(s);
        release_k();
        softmax<true>();  // no rescaling: O is 0
        pack();
        if constexpr (kVarlen)
            clear_values();
    }

    // Clears the rows of V after a sequence's end (clear_rows).
    __device__ __forceinline__ void clear_values()
    {
        const int valid_rows = place.sequence.seq_k - tile * kBc;
        if (valid_rows < kBc) {
            barrier_wait(barriers.v_full(group.v.index), group.v.parity);
            clear_rows(v_smem(), valid_rows);
            fence_products();
            named_barrier(1 + 2 * kGroups, kGroups * 128);  // zeros are there before any warpgroup's product reads
        }
    }

    // Last step: O += P V of the last tile.
    __device__ __forceinline__ void end()
    {
        if constexpr (kOwnOPlace)
            group.release_q(barriers);
        group.turns.take();
        start_o();
        group.turns.pass();
        finish_o();
        if constexpr (!kOwnOPlace)
            named_barrier(1 + kGroups + group.index, 128);  // Q of this warpgroup is read: O comes into its place
    }
};

// Computes O of 64 rows that see at least one key. O is not yet divided by the row sums.
__device__ __forceinline__ void compute_rows(const Params &p, const BlockPlace &place, const TileRange &tiles,
                                             const Barriers &barriers, Group &group,
                                             float (&o)[kRowTiles][kOutTiles][4], RowState &row)
{
    const uint32 smem = barriers.smem, q_smem = smem + kQArea + group.index * kGroupBytes;
    float s[kRowTiles][kColTiles][4];
    uint32 probabilities[kBc / 16][4], words[kRowTiles][2][kColTiles], keeps[kBc / 16][4], slopes[4];
    int tile = tiles.count - 1;
    const int first_row = place.first_row + group.warp_row;
    Dropout dropped(p, place, first_row, group.lane);
    if constexpr (kKeepsEarly)
#pragma unroll
        for (int step = 0; step < kBc / 16; step++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                keeps[step][i] = 0;
    const Terms terms(p, place, first_row, group.lane);
    if constexpr (kAlibiMma)
        slope_columns(terms, group.lane, slopes);
    ScoreUnit unit(p);
    Rows rows{p,     place, barriers, group, smem,  q_smem, o,   row, s, probabilities,
              words, keeps, dropped,  unit,  terms, slopes, tile};
    rows.begin();
    tile--;
    if constexpr (kWindow != Window::kNone) {
#pragma unroll 1
        for (; tile >= tiles.first; tile--)
            if (tile >= tiles.unmasked || tile < tiles.plain)
                rows.template step<true>();
            else
                rows.template step<false>();
    } else {
#pragma unroll 1
        for (; tile >= max(tiles.unmasked, tiles.first); tile--)
            rows.template step<true>();
#pragma unroll 1
        for (; tile >= tiles.first; tile--)
            rows.template step<false>();
    }
    rows.end();
}

// ---- column parts: warps that share rows -------------------------------------------------------------------------
//
// kParts consecutive warps have the same rows. Each multiplies every kParts-th 16 columns of Q and K, and computes
// every kParts-th 16 columns of O. Between the products each warp sums the S of all of them, in an order that gives all
// the same result. Softmax, masks and features work as in a warp that has its rows alone.
//
// Warpgroups that share rows (hopper/split.cuh) divide keys for S and columns for O. They exchange P, and no S.

__device__ __forceinline__ int own_part()
{
    if constexpr (kParts == 1)
        return 0;
    else if constexpr (kWgmma)
        return threadIdx.x / 128;
    else
        return threadIdx.x / 32 % kParts;
}

// The chunk of a row of O that column tile n of this warp is.
__device__ __forceinline__ int own_chunk(int n)
{
    if constexpr (kParts == 1)
        return n;
    else if constexpr (kWgmma)
        return own_part() * kOutTiles + n;
    else
        return (n / 2 * kParts + own_part()) * 2 + n % 2;
}

// ---- layout of tiles in shared memory ----------------------------------------------------------------------------
//
// A tile is [rows][kColumns] elements, addressed in chunks of 16 bytes (8 elements). A warp's ldmatrix reads one chunk
// of eight rows at a time, so these eight chunks must be in different banks. The same holds for eight consecutive
// chunks that a load writes.
//
// Swizzle: chunk c of row r is stored at c ^ swizzle(r). Let p be the largest power of two, at most 8, that divides the
// number of chunks of a row. Rows r and r + 8 / p begin in the same banks; the XOR with (r / (8 / p)) % p separates
// them. It permutes only within aligned groups of p chunks, so eight consecutive chunks still cover every bank once.
//
// Padding: one chunk after each row makes the pitch an odd number of chunks.

template <int kColumns> struct TileForm {
    static constexpr int kChunks = kColumns / 8;                                       // 16-byte chunks per row
    static constexpr int kPitch = (kSwizzle ? kChunks : kChunks + 1) * 16;             // bytes per row
    static constexpr int kPermuted = kChunks % 8 == 0 ? 8 : kChunks % 4 == 0 ? 4 : 2;  // p above
    static_assert(kColumns % 16 == 0, "fragments are 16 columns wide");

    // Depends only on row % 8.
    static __device__ __forceinline__ int swizzle(int row)
    {
        return kSwizzle ? row / (8 / kPermuted) % kPermuted : 0;
    }

    // Byte offset of a chunk in its tile.
    static __device__ __forceinline__ uint32 chunk_offset(int row, int chunk)
    {
        return row * kPitch + (chunk ^ swizzle(row)) * 16;
    }

    // The byte offset of chunk 2 * pair + odd of a row. lane_offset: the offset of chunk `odd` (0 or 1) of the row.
    // pair is a constant after unrolling, so this is one XOR and one immediate.
    static __device__ __forceinline__ uint32 pair_offset(uint32 lane_offset, int pair)
    {
        const int chunk = 2 * pair;
        if constexpr (kSwizzle)
            return (lane_offset ^ (chunk % kPermuted * 16)) + chunk / kPermuted * kPermuted * 16;
        else
            return lane_offset + chunk * 16;
    }

    // This lane's ldmatrix.x4 offset for a 16x16 block, with its quarters in the order top left, bottom left, top
    // right, bottom right (A; B of a transposed tile) ...
    static __device__ __forceinline__ uint32 lane_offset_rows(int lane)
    {
        return chunk_offset(lane % 16, lane / 16);
    }

    // ... or top left, top right, bottom left, bottom right (B; A of a transposed tile).
    static __device__ __forceinline__ uint32 lane_offset_cols(int lane)
    {
        return chunk_offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    }
};

// The layout of rows of the tensors: kHeadDimPadded columns.
using RowTile = TileForm<kHeadDimPadded>;
constexpr int kChunks = RowTile::kChunks;
constexpr int kPitch = RowTile::kPitch;

__device__ __forceinline__ uint32 chunk_offset(int row, int chunk)
{
    return RowTile::chunk_offset(row, chunk);
}

__device__ __forceinline__ uint32 pair_offset(uint32 lane_offset, int pair)
{
    return RowTile::pair_offset(lane_offset, pair);
}

// ---- epilogue: O of a block is normalised and written, with LSE -------------------------------------------------
//
// Called at the end of the kernels of fwd.cuh and hopper/fwd.cuh.

template <class Row> __device__ __forceinline__ float sink_of(const Params &p, const BlockPlace &place, const Row &row)
{
    if constexpr (kWgmma)
        return row.sink;
    else
        return p.features.sinks[place.query_head(p, 0)];
}

// Normalises O and writes it to shared memory; writes LSE. warp_row: the warp's first row in the block. address(r, n):
// the chunk of row r of the warp for column tile n.
template <class Address>
__device__ __forceinline__ void normalise_rows(const Params &p, const BlockPlace &place,
                                               const float (&o)[kRowTiles][kOutTiles][4], const RowState &row,
                                               int warp_row, int lane, Address address)
{
    const int quad_row = lane / 4, quad_lane = lane % 4;
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float sum = quad_sum(row.sum[m][h]);
            float inverse, lse;
            if constexpr (kSinks) {
                const SinkEnd end(row.max[m][h] * p.scale, sum, sink_of(p, place, row));
                inverse = end.inverse;
                lse = end.lse;
            } else {
                inverse = row_inverse(sum);
            }
            inverse *= kept_scale(p);
            const int r = m * 16 + h * 8 + quad_row;
#pragma unroll
            for (int n = 0; n < kOutTiles; n++)
                store_shared_4(address(r, n) + quad_lane * 4,
                               pack2(o[m][n][2 * h] * inverse, o[m][n][2 * h + 1] * inverse));
            const int block_row = place.first_row + warp_row + r;
            if (p.lse != nullptr && quad_lane == 0 && own_part() == 0 && block_row < place.rows) {
                if constexpr (!kSinks)
                    lse = row_lse(row.max[m][h], sum, p.scale);
                p.lse[place.index(p, block_row)] = lse;
            }
        }
    }
}

// Writes O, 16 bytes per lane, through this warp's rows in shared memory. Form: the layout of rows of O there.
template <class Form>
__device__ __forceinline__ void write_rows_as(const Params &p, const BlockPlace &place,
                                              const float (&o)[kRowTiles][kOutTiles][4], const RowState &row,
                                              uint32 smem, int warp_row, int lane)
{
    if constexpr (kQInRegisters)
        __syncthreads();  // every warp has read its last K and V before O comes into their place
    else
        __syncwarp();  // the rows are this warp's own: its reads of Q before O comes into their place
    const uint32 o_smem = smem + (kQInRegisters ? 0 : kQArea) + warp_row * kPitch;
    constexpr int kWarpRows = 16 * kRowTiles;
    normalise_rows(p, place, o, row, warp_row, lane,
                   [&](int r, int n) { return o_smem + Form::chunk_offset(r, own_chunk(n)); });
    if constexpr (kParts > 1)
        __syncthreads();  // several warps have columns of a row: their stores before the loads
    else
        __syncwarp();  // the rows are this warp's own: its stores before its loads

#pragma unroll
    for (int i = own_part() * 32 + lane; i < kWarpRows * Form::kChunks; i += kParts * 32) {
        const int r = i / Form::kChunks, chunk = i % Form::kChunks;  // includes padding: lanes read without gaps
        const int block_row = place.first_row + warp_row + r;
        if (chunk < kHeadDimV / 8 && block_row < place.rows)
            *reinterpret_cast<uint4 *>(p.o + place.offset(p, p.o_stride, block_row) * 2 + chunk * 16) =
                load_shared_16(o_smem + Form::chunk_offset(r, chunk));
    }
}

// ---- epilogue: O of a warpgroup is normalised and written, with LSE ------------------------------------------------

// Normalises O and stores it by TMA, in pages of 64 columns; writes LSE.
__device__ __forceinline__ void write_rows_by_map(const Params &p, const BlockPlace &place,
                                                  const float (&o)[kRowTiles][kOutTiles][4], const RowState &row,
                                                  uint32 smem, int warp_row, int lane, const TensorMap &map)
{
    if (lane == 0)
        wait_stores();
    __syncwarp();  // earlier stores have read these rows, and this warp's reads of Q are done
    const uint32 o_smem = smem + warp_row % kGroupRows * kPageRowBytes;
    normalise_rows(p, place, o, row, warp_row, lane, [&](int r, int n) {
        return o_smem + n / 8 * kQPageBytes + r * kPageRowBytes + (n % 8 ^ r % 8) * 16;
    });
    release_to_loads();  // this lane's rows of O are seen by what stores them
    __syncwarp();
    if (lane == 0) {
#pragma unroll
        for (int page = 0; page < kPages; page++)
            store_page(map, o_smem + page * kQPageBytes, page * kPageColumns, place.first_row + warp_row,
                       place.query_head(p, 0), place.batch);
        commit_stores();
    }
}

// ---- work tiles: which rows a block computes --------------------------------------------------------------------

// Dynamic work: a block that is free takes the next work tile from a counter in the workspace. The kernel before has
// set it to 0. The producer thread takes the number, and tells the others when the Q of that work tile comes.
struct CountedPiece {
    unsigned piece = blockIdx.x;

    __device__ __forceinline__ void take_over(unsigned next)
    {
        piece = next;
    }
};

struct NoPiece {
    static constexpr unsigned piece = 0;

    __device__ __forceinline__ void take_over(unsigned)
    {
    }
};

// A work tile: a row tile of one plane, where a plane is a head of a batch (see BlockPlace).
struct Work : Either<kCounted, CountedPiece, NoPiece>::Type {
    unsigned own_tile, own_plane, round = 0;

    __device__ __forceinline__ explicit Work(const Params &p)
    {
        find(p);
    }

    __device__ __forceinline__ unsigned tile(const Params &) const
    {
        return own_tile;
    }

    __device__ __forceinline__ unsigned plane(const Params &) const
    {
        return own_plane;
    }

    __device__ __forceinline__ unsigned index() const
    {
        if constexpr (kCounted)
            return piece;
        else if constexpr (kStays)  // odd rounds go through the blocks backwards, because work gets lighter
            return round * gridDim.x + (round % 2 == 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
        else
            return blockIdx.x;
    }

    __device__ __forceinline__ bool is_left(const Params &p) const
    {
        if constexpr (kStays)
            return index() < unsigned(p.q_tiles) * p.heads_q * p.batch;
        else
            return round == 0;
    }

    // Takes the next work tile from the counter. Called by one thread for the block.
    __device__ __forceinline__ unsigned take(const Params &p) const
    {
        return gridDim.x + atomicAdd(reinterpret_cast<unsigned *>(p.partial), 1u);
    }

    __device__ __forceinline__ void advance(const Params &p)
    {
        round++;
        find(p);
    }

    __device__ __forceinline__ void advance(const Params &p, unsigned next)
    {
        this->take_over(next);
        advance(p);
    }

    // The parity of this work tile's barriers: its number within the block, modulo 2.
    __device__ __forceinline__ uint32 parity() const
    {
        return round % 2;
    }

    __device__ __forceinline__ void find(const Params &p)
    {
        if constexpr (kByWeight) {
            find_by_weight(p);
        } else {
            own_tile = index() % p.q_tiles;
            own_plane = index() / p.q_tiles;
        }
        if constexpr (kBiasStaged)
            if (p.features.bias_batch == 0 && p.features.bias_head != 0)  // batches share a bias, so batch varies first
                own_plane = own_plane % p.batch * p.heads_q + own_plane / p.batch;
    }

private:
    // Order by weight: the heaviest row tiles come first, within a section of as many planes as have their K and V in
    // L2.
    __device__ __forceinline__ void find_by_weight(const Params &p)
    {
        const unsigned planes = p.heads_q * p.batch;
        int seq_k = p.seq_k;
        if constexpr (kDropout)
            asm volatile("" : "+r"(seq_k));  // computed again each time, because no register is left for it
        const unsigned section = min(max(kSectionRows / seq_k, 1) * unsigned(p.group), planes);
        const unsigned before = index() / (section * p.q_tiles) * section, rest = index() - before * p.q_tiles;
        const unsigned here = min(section, planes - before);
        own_tile = rest / here;
        own_plane = before + rest % here;
    }
};

// ---- producer: the warpgroup that loads -----------------------------------------------------------------------------
//
// One thread loads Q, K and V by TMA (Loads; the loop over work tiles is in fwd.cuh). With a bias in shared memory,
// other warps load its tiles, one warp per consumer warpgroup (produce_bias).

// The batch coordinate in a tensor map: packed sequences are one batch.
__device__ __forceinline__ int map_batch(const BlockPlace &place)
{
    return kVarlen ? 0 : place.batch;
}

// The loads of Q, K and V; used by one thread.
struct Loads {
    const Params &p;
    const TensorMaps &maps;
    const Barriers &barriers;
    Stage stage;  // stage of the next tile; its K is loaded first
    uint32 q_parity = 1;

    __device__ __forceinline__ Loads(const Params &p, const TensorMaps &maps, const Barriers &barriers)
        : p(p), maps(maps), barriers(barriers)
    {
    }

    // Waits until the stage is empty, then loads a tile of K or V.
    __device__ __forceinline__ void load_tile(const BlockPlace &place, int kv_head, int tile, const TensorMap &map,
                                              const Strides &stride, const Stage &stage, uint32 empty, uint32 full,
                                              uint32 area)
    {
        barrier_wait(empty, stage.parity ^ 1);
        if constexpr (kDropout) {
            // The column keys of dropout come with K if kKeepsEarly, else with V.
            const int key_bytes = area == barriers.smem + (kKeepsEarly ? kKArea : kVArea) ? kKeyTileBytes : 0;
            barrier_expect(full, kTileBytes + key_bytes);
            if (key_bytes > 0)
                load_bytes(barriers.smem + kKeysArea + stage.index * kKeyTileBytes, column_keys_at(p, tile * kBc),
                           kKeyTileBytes, full);
        } else {
            barrier_expect(full, kTileBytes);
        }
#pragma unroll
        for (int page = 0; page < kPages; page++)
            load_page(area + stage.index * kTileBytes + page * kTilePageBytes, map, full, page * kPageColumns,
                      place.sequence.first_k + tile * kBc, coordinate(kv_head, stride.head),
                      coordinate(map_batch(place), stride.batch));
    }

    __device__ __forceinline__ void load_k(const BlockPlace &place, int kv_head, int tile, const Stage &k)
    {
        load_tile(place, kv_head, tile, maps.k, p.k_stride, k, barriers.k_empty(k.index), barriers.k_full(k.index),
                  barriers.smem + kKArea);
    }

    __device__ __forceinline__ void load_v(const BlockPlace &place, int kv_head, int tile, const Stage &v)
    {
        load_tile(place, kv_head, tile, maps.v, p.v_stride, v, barriers.v_empty(v.index), barriers.v_full(v.index),
                  barriers.smem + kVArea);
    }

    __device__ __forceinline__ void load_q(const BlockPlace &place, int group, unsigned piece)
    {
        const uint32 full = barriers.q_full(group);
        if constexpr (kStays)
            barrier_wait(barriers.q_empty(group), q_parity);
        if constexpr (kCounted)
            store_shared_4(barriers.piece(group), piece);
        barrier_expect(full, kGroupBytes);
#pragma unroll
        for (int page = 0; page < kPages; page++)
            load_page(barriers.smem + kQArea + group * kGroupBytes + page * kQPageBytes, maps.q, full,
                      page * kPageColumns, place.sequence.first_q + place.first_row + group * kGroupRows,
                      coordinate(place.query_head(p, 0), p.q_stride.head),
                      coordinate(map_batch(place), p.q_stride.batch));
    }

    // Loads a work tile. Q is loaded and waited for even if no key is seen, because O may be written into its area
    // next.
    __device__ __forceinline__ void load_rows(const BlockPlace &place, const TileRange &tiles, unsigned piece)
    {
        const bool any = tiles.count > tiles.first;
        int kv_head = place.kv_head(p);
        asm volatile("" : "+r"(kv_head));  // divide here once, not for each tile
        if (any)
            load_k(place, kv_head, tiles.count - 1, stage);
        if constexpr (!kPackedHeads) {
#pragma unroll
            for (int group = 0; group < kGroups; group++)
                load_q(place, group, piece);
            q_parity ^= 1;
        }
#pragma unroll 1
        for (int tile = tiles.count - 2; tile >= tiles.first; tile--) {
            stage.advance();
            load_k(place, kv_head, tile, stage);
            load_v(place, kv_head, tile + 1, stage.before());
        }
        if (any) {
            load_v(place, kv_head, tiles.first, stage);
            stage.advance();
        }
    }

    // Tells the consumers that the counter has no more work tiles.
    __device__ __forceinline__ void finish(unsigned piece)
    {
#pragma unroll
        for (int group = 0; group < kGroups; group++) {
            barrier_wait(barriers.q_empty(group), q_parity);
            store_shared_4(barriers.piece(group), piece);
            barrier_arrive(barriers.q_full(group));
        }
    }
};

// Returns the number of the work tile after this one. Called by a warp that loads bias tiles for a warpgroup.
__device__ __forceinline__ unsigned piece_beside(const Barriers &barriers, int group, const Work &work)
{
    // Wait until Q of this work tile is there: before that, a wait for the next parity would return at once.
    barrier_wait(barriers.q_full(group), work.parity());
    __syncwarp();  // all lanes have passed the wait
    barrier_arrive_by(threadIdx.x % 32, barriers.q_empty(group));
    return barriers.next_piece(group, work.parity());
}

// A warp's loop: loads all bias tiles of one warpgroup. Source: how the rows of a work tile are loaded.
template <typename Source>
__device__ __forceinline__ void load_sides(const Params &p, const TensorMaps &maps, const Barriers &barriers)
{
    StageOf<kSideStages> stage;
    for (Work work(p); work.is_left(p);) {
        const BlockPlace place(p, work);
        const TileRange tiles(p, place);
        const Source source(p, maps, place);
#pragma unroll 1
        for (int tile = tiles.count - 1; tile >= tiles.first; tile--) {
            BiasTiles side(barriers.smem, served_group());  // computed again, because these warps have few registers
            side.stage = stage;
            side.wait_empty();
            source.load(p, side, tile * kBc);
            stage.advance();
        }
        if constexpr (kCounted)
            work.advance(p, piece_beside(barriers, served_group(), work));
        else
            work.advance(p);
    }
}

// Loads the bias tiles by the fastest way that the layout of the bias allows.
__device__ __forceinline__ void produce_bias(const Params &p, const TensorMaps &maps, const Barriers &barriers)
{
    if (bias_is_mapped(p))
        load_sides<BiasPages>(p, maps, barriers);
    else if (p.features.bias_side >= 8)
        load_sides<BiasCopies<8>>(p, maps, barriers);
    else if (p.features.bias_side >= 2)
        load_sides<BiasCopies<2>>(p, maps, barriers);
    else
        load_sides<BiasNumbers>(p, maps, barriers);
    cp_async_wait<0>();  // a warp must not end before its copies have
}

// ---- forward ----------------------------------------------------------------------------------------
//
// The kernel of fwd_sm90 (fwd_sm90.cu.in calls `forward`). A block computes kBr rows of O per work tile (work.cuh).
// Each consumer warpgroup computes 64 of these rows (fwd_consumer.cuh); the last warpgroup is the producer
// (fwd_producer.cuh). The mainloop goes through the tiles of K and V from the last to the first, so the tiles that need
// a mask come first (forward/tiles.cuh).
//
//     producer    wait until a stage is empty | load K(j) | load V(j+1) | ...
//     consumers   wait for Q | S(n-1) | ... S(j), O += P(j+1) V(j+1) ... | O += P(0) V(0) | write O
//
// Each stage of K and of V, and each warpgroup's rows of Q, have two mbarriers (fwd_barriers.cuh). The loads arrive at
// `full`; every warp that has read the stage arrives at `empty`. Unless O has an area of its own in shared memory
// (kOwnOPlace), O is stored through the area of Q, which has been read by then.

// Prologue: initialises the barriers, and writes what stays in shared memory for the whole kernel.
__device__ __forceinline__ void prologue(const Params &p, const Barriers &barriers)
{
    if (threadIdx.x == 0)
        barriers.init();
    if constexpr (kBiasStaged)
        if (threadIdx.x < kGroups)
            SideTiles(barriers.smem, threadIdx.x).init(bias_is_mapped(p) ? 1 : 32, 4);
    if constexpr (kAlibiMma)
        put_key_columns(barriers.smem);
    __syncthreads();  // the barriers are there
}

// Waits for the warpgroup's rows of Q.
__device__ __forceinline__ void await_q(const Params &p, const BlockPlace &place, const Barriers &barriers,
                                        const Work &work, int index)
{
    if constexpr (kPackedHeads)
        copy_rows(p, place, barriers.smem + kQArea + index * kGroupBytes, index);
    else
        barrier_wait(barriers.q_full(index), work.parity());
}

// Writes O of a warpgroup. If O went through the area of Q, gives that area back to the producer.
__device__ __forceinline__ void epilogue(const Params &p, const BlockPlace &place, const TensorMaps &maps,
                                         const Barriers &barriers, const Group &group,
                                         const float (&o)[kRowTiles][kOutTiles][4], const RowState &row)
{
    const uint32 o_smem = barriers.smem + kOArea;
    if constexpr (kOByMap)
        write_rows_by_map(p, place, o, row, o_smem + group.index * kGroupBytes, group.warp_row, group.lane, maps.o);
    else
        write_rows_as<RowTile>(p, place, o, row, o_smem + group.index * (kGroupBytes - kGroupRows * kPitch),
                               group.warp_row, group.lane);
    if constexpr (kStays && !kOwnOPlace) {
        if constexpr (kOByMap) {
            if (group.lane == 0)
                wait_stores();
        } else {
            release_to_loads();  // orders this lane's accesses to O before the load of the next Q
        }
        __syncwarp();
        group.release_q(barriers);
    }
}

template <class Row> __device__ __forceinline__ void read_sink(Row &row, const Params &p, const BlockPlace &place)
{
    if constexpr (kSinks)
        row.sink = p.features.sinks[place.query_head(p, 0)];
}

// The kernel; kThreads threads.
__device__ __forceinline__ void forward(const Params &p, const TensorMaps &maps)
{
    extern __shared__ __align__(1024) char shared[];
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    const Barriers barriers{smem};
    const int index = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if constexpr (kVarlen) {
        BlockPlace::clear_unused_rows(p);
        if (BlockPlace(p, Work(p)).batch < 0)
            return;
    }
    prologue(p, barriers);
    if (index == kGroups) {
        give_registers<kLoadRegisters>();
        Loads loads(p, maps, barriers);
        if constexpr (kVarlen) {
            if (threadIdx.x < kGroups * 128 + 32) {  // the whole warp searches for the sequence
                const BlockPlace place(p, Work(p));
                if (threadIdx.x == kGroups * 128)
                    loads.load_rows(place, TileRange(p, place), 0);
            }
        } else if (threadIdx.x == kGroups * 128) {
            Work work(p);
            while (work.is_left(p)) {
                const BlockPlace place(p, work);
                loads.load_rows(place, TileRange(p, place), work.piece);
                if constexpr (kCounted)
                    work.advance(p, work.take(p));
                else
                    work.advance(p);
            }
            if constexpr (kCounted)
                loads.finish(work.piece);
        }
        if constexpr (kBiasStaged)
            if (served_group() >= 0 && served_group() < kGroups)
                produce_bias(p, maps, barriers);
        return;
    }
    take_registers<kGroupRegisters>();
    Group group(index, barriers.smem);
    auto advance = [&](Work &work) {
        if constexpr (kCounted)
            work.advance(p, barriers.next_piece(index, work.parity()));
        else
            work.advance(p);
    };
    for (Work work(p); work.is_left(p); advance(work)) {
        const BlockPlace place(p, work);
        const TileRange tiles(p, place);
        float o[kRowTiles][kOutTiles][4] = {};
        RowState row;
        begin_rows(row, p);
        read_sink(row, p, place);
        await_q(p, place, barriers, work, index);
        if (tiles.count > tiles.first)
            compute_rows(p, place, tiles, barriers, group, o, row);
        else if constexpr (kOwnOPlace)
            group.release_q(barriers);
        epilogue(p, place, maps, barriers, group, o, row);
    }
    group.turns.finish();
    if constexpr (kOByMap)
        if (group.lane == 0)
            wait_stores();
}

// The kernel that runs before the main one. Sets the counter of work tiles to 0, and with dropout makes the column
// keys.
__device__ __forceinline__ void prepare(const Params &p)
{
    if constexpr (kDropout)
        prepare_column_keys(p);
    if (kCounted && (!kDropout || blockIdx.x == 0) && threadIdx.x == 0)
        *reinterpret_cast<unsigned *>(p.partial) = 0;
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    fwd_sm90(const __grid_constant__ Params p, const __grid_constant__ TensorMaps maps)
{
    forward(p, maps);
}
