// fwd_splitkv_sm80 d=128 dtype=bf16 causal=0 seqused=1 paged=1 br=16 bc=16 warps=4 teams=4 kstages=2 vstages=2 waves=2 layout=swizzle q=reg
// op=forward abi=2 rows=16 keys=64 pack=1 waves=2 splits=256 workspace=partials; fwd_splitkv_sm80 role=main threads=128 smem=65536 blocks=row_tiles; fwd_splitkv_sm80_combine role=combine threads=128 smem=0 early=1 blocks=rows/4
// fwd_splitkv_sm80: attention forward for few query rows or few blocks, on SM 8.0 and newer. fp16 or bf16, mma
// m16n8k16, tiles loaded by cp.async. The query heads of a group are rows of one tile; teams of warps and blocks divide
// the keys.

// ---- the problem, the element, the SM and the features; a feature that is off costs nothing ----------------------
constexpr int kHeadDim = 128;         // D: columns of Q and K
constexpr int kHeadDimV = 128;        // columns of V and O
constexpr bool kCausal = 0 == 1;   // query i sees keys <= i + seq_k - seq_q
constexpr int kGeneratorSmemBytes = 65536;
enum class Products { mma_k8, mma_k16, wgmma };
constexpr Products kProducts = Products::mma_k16;  // the instruction of products
constexpr bool kTuring = kProducts == Products::mma_k8;  // tiles pass through registers, too
constexpr bool kWgmma = kProducts == Products::wgmma;
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

// ---- element types ----------------------------------------------------------------------------------------------
//
// The configuration chooses one (`using Elem = bf16;`). A type says how many bytes it has. One of 16 bits converts two
// neighbouring elements of a register, and Mma<Elem> multiplies them (lib/mma.cuh).

struct fp16 {
    static constexpr int kBytes = 2;
    static constexpr bool kHasRangeOfFp32 = false;  // numbers beyond 65504 are infinite
    static constexpr float kOneOfFp16 = 1.0f;       // the number whose bits are those of 1 in fp16

    // Returns two elements in one register, rounded to nearest even; lo is in the lower half.
    static __device__ __forceinline__ uint32 pack(float lo, float hi)
    {
        uint32 x;
        if constexpr (kTuring)
            asm("{\n\t.reg .b16 l, h;\n\t"
                "cvt.rn.f16.f32 l, %1;\n\tcvt.rn.f16.f32 h, %2;\n\tmov.b32 %0, {l, h};\n\t}"
                : "=r"(x)
                : "f"(lo), "f"(hi));
        else
            asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(hi), "f"(lo));
        return x;
    }

    // Returns both elements of a register.
    static __device__ __forceinline__ float2 unpack(uint32 x)
    {
        float2 y;
        asm("{\n\t.reg .b16 l, h;\n\t"
            "mov.b32 {l, h}, %2;\n\tcvt.f32.f16 %0, l;\n\tcvt.f32.f16 %1, h;\n\t}"
            : "=f"(y.x), "=f"(y.y)
            : "r"(x));
        return y;
    }

    // Multiplies two elements by two others.
    static __device__ __forceinline__ uint32 multiply(uint32 x, uint32 y)
    {
        uint32 product;
        asm("mul.f16x2 %0, %1, %2;" : "=r"(product) : "r"(x), "r"(y));
        return product;
    }
};

// SM 8.0 and newer.
struct bf16 {
    static constexpr int kBytes = 2;
    static constexpr bool kHasRangeOfFp32 = true;
    static constexpr float kOneOfFp16 = 0x1p-7f;

    static __device__ __forceinline__ uint32 pack(float lo, float hi)
    {
        uint32 x;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(hi), "f"(lo));
        return x;
    }

    static __device__ __forceinline__ float2 unpack(uint32 x)
    {
        return {__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)};
    }

    // SM 8.0 has no multiplication alone; adding -0 changes no product.
    static __device__ __forceinline__ uint32 multiply(uint32 x, uint32 y)
    {
        uint32 product;
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(x), "r"(y), "r"(0x80008000u));
        return product;
    }
};

// P and V may be rounded to such numbers (forward/fp8_p.cuh).
struct e4m3 {
    static constexpr int kBytes = 1;
};

// Kernels of fp32 (fp32/fwd.cuh) keep one element in a register, and convert nothing.
struct fp32 {
    static constexpr int kBytes = 4;
    static constexpr bool kHasRangeOfFp32 = true;
};
using Elem = bf16;  // the type of Q, K, V, P and O, and of gradients
constexpr int kElemBytes = Elem::kBytes;
// 0: O, or the gradients, are elements; 1: fp32; 2: fp32, and merged; 3: O is elements, and merged (carry)
#define FA2_PARTIAL 0
constexpr bool kPartial = FA2_PARTIAL == 1 || FA2_PARTIAL == 2;
constexpr bool kMerges = FA2_PARTIAL > 1;  // with O in memory, or with a result that is carried on
constexpr int kOutBytes = kPartial ? 4 : kElemBytes;   // of an element of O, or of a gradient
constexpr int kChunkBytes = 8 * kOutBytes;   // of eight of them

// Which members the parameters have (features/params.cuh).
#define FA2_SCORE_PARAMS true  // members of the cap and of the window
#define FA2_KV_PARAMS    0  // members of K and V in 8 bits: integers (1, 3) or e4m3 numbers (2, 4)
#define FA2_CARRY_PARAMS (FA2_PARTIAL == 3)

enum class Window { kNone, kSliding, kPrefix, kChunks };
enum class BiasKind { kNone, kFp16, kBf16, kFp32, kBool };
constexpr Window kWindow = Window::kNone;  // which keys a query sees, in addition to the causal mask
constexpr BiasKind kBias = BiasKind::kNone;  // type of the bias
constexpr bool kBiasNumbers = kBias != BiasKind::kNone && kBias != BiasKind::kBool;  // false: none, or a mask
constexpr bool kBiasHalf = kBias == BiasKind::kFp16 || kBias == BiasKind::kBf16;
// Each feature that is on or off, and how (gen/features/list.lua).
constexpr bool kSoftcap = false;  // scores are capped by a tanh
constexpr bool kAlibi = false;  // -slope * |distance of query and key| is added to scores
constexpr bool kSinks = false;  // the softmax has one more column, without a value
constexpr bool kDropout = false;  // elements of P are dropped at random
constexpr bool kSeqused = true;  // each sequence has its own number of keys
constexpr bool kVarlen = false;  // sequences are packed one after the other
constexpr bool kPaged = true;  // K and V lie in pages, which a table names
constexpr bool kLeftpad = false;  // the first keys of a sequence are padding
constexpr bool kCacheRows = false;  // a table names each sequence's row of K and V
constexpr bool kAppend = false;  // new keys are written into K and V first
constexpr bool kCarry = false;  // O is merged with a result in fp32 over other keys
constexpr bool kInterleaved = false;  // rotary rotates pairs of neighbouring columns
constexpr bool kLengths = kVarlen || kSeqused || kLeftpad;
constexpr int kRotaryDim = 0;     // columns of new keys, and of queries, that are rotated first
constexpr bool kRotary = kRotaryDim > 0;
constexpr bool kKv8 = FA2_KV_PARAMS != 0;  // K and V are in 8 bits, with a scale for each row
constexpr bool kFp8 = kKv8 && FA2_KV_PARAMS % 2 == 0;  // as e4m3 numbers; else as integers
constexpr int kKvBytes = kKv8 ? 1 : kElemBytes;  // of an element of K and V in memory
constexpr bool kHalfScales = FA2_KV_PARAMS > 2;  // their scales in memory are fp16; else fp32
constexpr int kRowScaleBytes = kHalfScales ? 2 : 4;  // of such a scale
constexpr bool kWide = false;         // a lane has eight neighbouring keys, so it reads their bias with one load
constexpr bool kAlibiMma = false;      // slope * column is computed by the product Q K^T
// The members of all other features: FA2_FEATURES is true if there are any.

// ---- parameters ---------------------------------------------------------------------------------------------------
//
// The lists of members (params.def) are expanded with FA2I_MEMBER. If a kernel lacks the parameters of cap and
// window, or the last ones of the features, these are expanded with FA2I_CONSTANT to constants of the same names. So
// code which is compiled out still has types. Policies: FeatureParams (feature_params.cuh, no_feature_params.cuh), and
// Params of the operation.
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

#ifndef FA2_DROPOUT_PARAMS
#define FA2_DROPOUT_PARAMS false
#endif
#define FA2I_PARAM FA2I_MEMBER
#if FA2_SCORE_PARAMS
#define FA2I_FEATURE_PARAM FA2I_MEMBER
#else
#define FA2I_FEATURE_PARAM FA2I_CONSTANT
#endif
// A kernel with some members has those before them, too.
#if FA2_KV_PARAMS || FA2_CARRY_PARAMS || FA2_DROPOUT_PARAMS
#define FA2I_KV_PARAM FA2I_MEMBER
#else
#define FA2I_KV_PARAM FA2I_CONSTANT
#endif
#if FA2_CARRY_PARAMS || FA2_DROPOUT_PARAMS
#define FA2I_CARRY_PARAM FA2I_MEMBER
#else
#define FA2I_CARRY_PARAM FA2I_CONSTANT
#endif
#if FA2_DROPOUT_PARAMS
#define FA2I_DROPOUT_PARAM FA2I_MEMBER
#else
#define FA2I_DROPOUT_PARAM FA2I_CONSTANT
#endif
#define FA2_FEATURES true

// The parameters of features; present in all kernels with a feature.
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
/* The slope of head h in batch b is alibi_slopes[b * alibi_stride + h]. */
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
/* added to the queries' positions before distances to keys are taken */
FA2I_PARAM(FLOAT, distance_shift)
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
/* kv in 8 bits: [batches, rows, Hkv] of K, and of V. Kernels without it lack these members, which therefore stay the
 * last ones but for those of carry and dropout: new members go before them. */
FA2I_KV_PARAM(FLOATS, k_scale)
FA2I_KV_PARAM(STRIDES, k_scale_stride)
FA2I_KV_PARAM(FLOATS, v_scale)
FA2I_KV_PARAM(STRIDES, v_scale_stride)
/* carry: O over other keys, fp32, [B, Sq, Hq, Dv]. Kernels without it lack these members. */
FA2I_CARRY_PARAM(FLOATS, carried)
FA2I_CARRY_PARAM(STRIDES, carried_stride)
/* dropout: where the call lies in the whole: its first row, its first column / 2, its first head, and heads of the
 * whole. Kernels without it lack these members. */
FA2I_DROPOUT_PARAM(INT, drop_row)
FA2I_DROPOUT_PARAM(INT, drop_pair)
FA2I_DROPOUT_PARAM(INT, drop_head)
FA2I_DROPOUT_PARAM(INT, drop_heads)
};

// One flat struct: with its parts as base classes, ptxas chooses other registers (gate.py).
struct Params {
/*
 * The parameter block of the forward kernels, member by member. The runtime's struct and the templates' are both
 * generated from this list. It is plain C preprocessor text, without template lines.
 *
 * FA2I_PARAM(kind, name)           of every kernel: ABI 2, bytes that never change, so kernels of older
 *                                  databases continue to work
 * FA2I_FEATURE_PARAM(kind, name)   after them, of kernels with a feature; a launch passes as many bytes as a
 *                                  kernel declares, so new members go to the end
 *
 * kind: INPUT, OUTPUT   elements of the problem's dtype in device memory, read or written
 *       FLOATS          fp32 in device memory
 *       STRIDES         three 64-bit integers, in elements: batch, sequence, head; head_dim is contiguous
 *       FLOAT, INT      32 bits
 */
#define FA2I_EVERY_BYTES 192 /* of FA2I_PARAM */
#define FA2I_SCORE_BYTES 16  /* of FA2I_FEATURE_PARAM */
FA2I_PARAM(INPUT, q)         /* [B, Sq, Hq, D] */
FA2I_PARAM(INPUT, k)         /* [B, Sk, Hkv, D] */
FA2I_PARAM(INPUT, v)         /* [B, Sk, Hkv, D] */
FA2I_PARAM(OUTPUT, o)        /* [B, Sq, Hq, D] */
FA2I_PARAM(FLOATS, lse)      /* [B, Hq, Sq], natural logarithm; or null */
FA2I_PARAM(STRIDES, q_stride)
FA2I_PARAM(STRIDES, k_stride)
FA2I_PARAM(STRIDES, v_stride)
FA2I_PARAM(STRIDES, o_stride)
FA2I_PARAM(FLOAT, scale)      /* factor of scores in the exponent: the softmax scale, or the cap */
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

FA2I_FEATURE_PARAM(FLOAT, softcap_rate) /* factor of q k inside the tanh of a cap: softmax scale / cap */
/* window: query i sees the keys p - window_left ... p + window_right, where p = i + seq_k - seq_q. 2^30 means
 * unbounded; causal is window_right = 0. */
FA2I_FEATURE_PARAM(INT, window_left)
FA2I_FEATURE_PARAM(INT, window_right)
FA2I_FEATURE_PARAM(INT, reserved_feature) /* pads to 16 bytes */
#if FA2_FEATURES
    FeatureParams features;
#else
    static constexpr FeatureParams features{};
#endif
};
static_assert(sizeof(Params) == FA2I_EVERY_BYTES + (FA2_SCORE_PARAMS ? FA2I_SCORE_BYTES : 0) +
                                    (FA2_FEATURES ? sizeof(FeatureParams) : 0),
              "what the runtime passes");
// ---- configuration of all forward families ---------------------------------------------------------------------
using TypeOfP = Elem;  // that P is rounded to. fp32: K, or Q and K, are in 8 bits. e4m3: so is V
constexpr bool kFp8Values = kSame<TypeOfP, e4m3>;  // P and V are rounded to e4m3 numbers
constexpr int kQuantThreads = 0;  // of a block that rounds keys
constexpr int kQuantTiles = 0;      // tiles of keys of such a block
constexpr bool kHopper = __CUDA_ARCH__ == 900;
constexpr int kBc = 16;                       // key and value rows per tile
constexpr float kLazyRescale = 8;  // growth of a maximum, in log2, up to which O is not rescaled
constexpr int kMaxSplits = 256;  // most blocks that divide the keys of a row tile
// ---- the variant -------------------------------------------------------------------------------
constexpr int kWarps = 4;
constexpr bool kSwizzle = true;  // 16-byte chunks of a row are permuted; else each row is padded
constexpr bool kVInK = false;              // V is the first columns of K
constexpr int kParts = 1;              // warps that share rows, and divide their columns
constexpr int kBr = 16;                 // query rows per block. A warp owns whole rows: no softmax across warps
constexpr bool kSplit = kMaxSplits > 1;  // teams and blocks divide the keys
constexpr bool kPackedHeads = kSplit;    // rows are those of all query heads of a group
constexpr int kTeams = 4;              // teams: groups of warps that share the rows and divide the keys
constexpr int kKStages = 2;            // stages of K
constexpr int kVStages = 2;            // stages of V
constexpr bool kQInRegisters = true;      // Q is read from shared memory once; else again for every tile
constexpr bool kSpreadFill = false;  // copies are spread over the steps of S = Q K^T; else all in one
constexpr bool kInt8Scores = kQuantThreads > 0;  // Q and K are rounded to 8-bit integers

// ---- derived constants -----------------------------------------------------------------------------------------
constexpr int kThreads = kWarps * 32;
constexpr int kTeamThreads = kThreads / kTeams;
constexpr int kRowTiles = kBr * kTeams * kParts / (16 * kWarps);  // m16 row tiles per warp
constexpr int kColTiles = kBc / 8;                                // n8 column tiles of S
constexpr int kUnit = 16 * kParts;                                // columns per k16 step of all warps that share rows
constexpr int kHeadDimPadded = (kHeadDim + kUnit - 1) / kUnit * kUnit;  // columns in shared memory, zero-filled
constexpr int kHeadDimVPadded = (kHeadDimV + kUnit - 1) / kUnit * kUnit;
constexpr int kOutTiles = kParts > 1 ? kHeadDimVPadded / (8 * kParts) : kHeadDimV / 8;  // n8 column tiles of O
constexpr int kDepth = kHeadDimPadded / kUnit;                                          // k16 steps of S = Q K^T
constexpr bool kJoint = kKStages == kVStages && kKStages > 1;  // K and V of a tile are one stage

static_assert(kHeadDim % 8 == 0 && kHeadDimV % 8 == 0 && kHeadDimV >= 8, "columns are multiples of 8");
static_assert(!kVInK || kKStages == kVStages, "K and V of a tile are one");
static_assert(kHeadDimV <= kHeadDim, "rows of O come into the place of rows of Q");
static_assert(kParts > 1 || kHeadDim <= 256, "more columns are for several warps");
static_assert(kWarps % (kTeams * kParts) == 0, "teams are of one size");
static_assert(kBr * kTeams * kParts % (16 * kWarps) == 0, "a warp owns whole m16 row tiles");
static_assert(kBc % 16 == 0, "P V runs in k16 steps");
static_assert(kJoint || !kSpreadFill, "V is waited for right after S");
static_assert(kJoint || kVStages == 1, "V is double-buffered only together with K");

// ---- layout of tiles in shared memory ----------------------------------------------------------------------------
//
// A tile is [rows][kColumns] elements, addressed in chunks of 16 bytes. A warp's ldmatrix reads one chunk
// of eight rows at a time, so these eight chunks must be in different banks. The same holds for eight consecutive
// chunks that a load writes.
//
// Swizzle: chunk c of row r is stored at c ^ swizzle(r). Let p be the largest power of two, at most 8, that divides the
// number of chunks of a row. Rows r and r + 8 / p begin in the same banks; the XOR with (r / (8 / p)) % p separates
// them. It permutes only within aligned groups of p chunks, so eight consecutive chunks still cover every bank once.
//
// Padding: one chunk after each row makes the pitch an odd number of chunks.

template <int kColumns> struct TileForm {
    static constexpr int kChunks = kColumns * kElemBytes / 16;                         // 16-byte chunks per row
    static constexpr int kPitch = (kSwizzle ? kChunks : kChunks + 1) * 16;             // bytes per row
    static constexpr int kPermuted = kChunks % 8 == 0 ? 8 : kChunks % 4 == 0 ? 4 : 2;  // p above
    static_assert(kColumns * kElemBytes % 32 == 0, "fragments are two chunks wide");

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

// The layout of a tile: V has its own if it has fewer columns, and so have rows of 8-bit integers.
template <int kColumns>
using FormOf = TileForm<kColumns == kHeadDimV  ? kHeadDimVPadded
                        : kColumns == kHeadDim ? kHeadDimPadded
                                               : (kColumns + 15) / 16 * 16>;

// ---- areas of shared memory -----------------------------------------------------------------------------------
//
// KeyTile: rows of K. If they are 8-bit integers, a column here is two of them, and whole k32 steps are filled.
// ValueTile: rows of V, likewise. If V is the first columns of K, its tiles are the tiles of K. If V is rounded to e4m3
// numbers, rows are columns of the tensor.
// OutputForm: rows of O at the end.
constexpr int kKeyColumns = kInt8Scores ? (kHeadDim + 31) / 32 * 16 : kHeadDim * kKvBytes / kElemBytes;
constexpr int kValueColumns = kFp8Values ? kBc / kElemBytes : kHeadDimV * kKvBytes / kElemBytes;
constexpr int kValueRows = kFp8Values ? kHeadDimV : kBc;
using KeyTile = FormOf<kKeyColumns>;
using ValueTile = Either<kVInK, RowTile, FormOf<kValueColumns>>::Type;
using OutputForm = TileForm<kVInK ? kHeadDimPadded : kHeadDimVPadded>;
// After the rows of a tile of K or V in 8 bits come their scales, with a gap after each 32 (kv8_scales.cuh).
constexpr int kScalesGap =
    KeyTile::kChunks < 32 ? (32 / KeyTile::kChunks + 3) / 4 * 4 : 4;  // the rows that a warp copies at once, at least 4
constexpr int kScaleBytes = kKv8 ? (kBc + (kBc - 1) / 32 * kScalesGap) * 4 : 0;
constexpr int kQTileBytes = kBr * kPitch;
constexpr int kKvTileBytes = kBc * KeyTile::kPitch + kScaleBytes;
constexpr int kVTileBytes = kVInK ? 0 : kValueRows * ValueTile::kPitch + kScaleBytes;

// Offsets of the areas. If Q is kept in registers, its tile is read once and shares space with V.
constexpr int kQArea = kQInRegisters ? kTeams * kKStages * kKvTileBytes : 0;
constexpr int kKArea = kQInRegisters ? 0 : kQTileBytes;
constexpr int kVArea = kKArea + kTeams * kKStages * kKvTileBytes;
constexpr int kVBytes = kTeams * kVStages * kVTileBytes;
// Partial sums of S of each warp, in fp32, if warps divide columns (sum_scores.cuh).
constexpr int kSumArea = kVArea + (kQInRegisters && kQTileBytes > kVBytes ? kQTileBytes : kVBytes);
// Products of the rows and the mean key, if K is rounded (int8_scores.cuh).
constexpr int kMeanArea = kSumArea + (kParts > 1 ? kTeams * kParts * kBr * kBc * 4 : 0);
constexpr int kTileBytes = kMeanArea + (kInt8Scores ? kBr * 4 : 0);
// After the mainloop: the teams' rows of O in fp32 (epilogue_partial.cuh), maxima and sums.
constexpr int kMergeBytes = kBr * (kTeams * (kHeadDimV * 4 + (160 - kHeadDimV * 4 % 128) % 128 + 8) + kMerges * 4);
constexpr int kSmemBytes = kSplit && kMergeBytes > kTileBytes ? kMergeBytes : kTileBytes;
static_assert(kSmemBytes == kGeneratorSmemBytes, "the generator computed another size");

// If keys are divided, kernels are short and should wait for memory once. So Q is loaded through the one V tile of the
// first team that no copy uses yet, and the other copies are issued before Q is read.
constexpr bool kQBehind = kSplit && kQInRegisters && kJoint && kQTileBytes <= kVTileBytes;

// Address of the stage of a tile of K or V. A team's tiles are kTeams apart.
__device__ __forceinline__ uint32 k_stage(uint32 smem, int team, int tile)
{
    return smem + kKArea + (team * kKStages + tile / kTeams % kKStages) * kKvTileBytes;
}

__device__ __forceinline__ uint32 v_stage(uint32 smem, int team, int tile)
{
    if constexpr (kVInK)
        return k_stage(smem, team, tile);
    else
        return smem + kVArea + (team * kVStages + tile / kTeams % kVStages) * kVTileBytes;
}

// ---- what the features of the variant do; without a feature, an empty policy ----------------------------------------

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
    __device__ __forceinline__ UsedSequence(const Params &p, int batch) : seq_k(keys_used(p, batch)) {}
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

__device__ __forceinline__ Sequence sequence_of(const Params &p, int batch)
{
    return Sequence(p, batch);
}

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

// Return the maximum and the sum over the lanes of a warp.
__device__ __forceinline__ float warp_max(float x)
{
    for (int lanes = 16; lanes > 0; lanes /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}

template <class Number> __device__ __forceinline__ Number warp_sum(Number x)
{
    for (int lanes = 16; lanes > 0; lanes /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
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
        sum = warp_sum(sum);
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
        return warp_sum(parts);
    }
};

// The slots of sequence `batch`.
__device__ __forceinline__ Slots slots_of(const Params &p, int batch)
{
    return Slots(p, [=](int b, int) { return b == batch; });
}

// ---- block coordinates: which rows and which sequence a block has --------------------------------------------------
//
// Policies: SequenceCoord (batches.cuh, sequences.cuh), and BlockCoord, which is one with rows (rows_of_head.cuh,
// rows_of_group.cuh) and their places in tensors.

// Adds to a policy of rows where a row lies in Q, O and LSE.
template <class Rows> struct PlacedRows : Rows {
    using Rows::Rows;

    // Element offset of a row of Q or O.
    __device__ __forceinline__ int64 offset(const Params &p, const Strides &stride, int row) const
    {
        if constexpr (kVarlen)
            return this->query_head(p, row) * stride.head + (this->sequence.first_q + this->query(p, row)) * stride.seq;
        else
            return this->batch * stride.batch + this->query_head(p, row) * stride.head +
                   this->query(p, row) * stride.seq;
    }

    // Index of a row in LSE.
    __device__ __forceinline__ int64 index(const Params &p, int row) const
    {
        if constexpr (kVarlen)
            return int64(this->query_head(p, row)) * p.features.total_q + this->sequence.first_q + this->query(p, row);
        else
            return (int64(this->batch) * p.heads_q + this->query_head(p, row)) * p.seq_q + this->query(p, row);
    }
};

// Work of a block from the grid, one block per work tile: the row tile, and either the head and batch, or the split,
// key head and batch.
struct WorkOfGrid {
    static __device__ __forceinline__ unsigned tile(const Params &p)
    {
        return blockIdx.x % p.q_tiles;
    }

    static __device__ __forceinline__ unsigned batch_head(const Params &p)
    {
        return blockIdx.x / p.q_tiles;
    }
};

// ---- sequences: each has its own lengths, or its own row of the cache -----------------------------------------------
//
// Policy of kernels with lengths of sequences or cache rows; the others have batches.cuh.

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

    __device__ __forceinline__ void find_sequence(const Params &, int) {}
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

    __device__ __forceinline__ void find_cache_row(const Params &, int) {}
};

// The batch or sequence of a block, with its lengths.
struct SequenceCoord : Either<kLengths, KeptSequence, NoSequence>::Type,
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

// Packed sequences: finds the row tile of a block of RowsOfHead. Coord: RowsOfHead.
template <class Coord, class Work>
__device__ __forceinline__ void find_packed_tile(Coord &coord, const Params &p, const Work &)
{
    const int tile = blockIdx.x % p.q_tiles;
    coord.head = blockIdx.x / p.q_tiles;
    auto first = [&](int b) { return first_tile(p.features.cu_seqlens_q, p.features.total_q, kBr, b); };
    coord.batch = last_sequence(p, tile, first);
    coord.find_sequence(p, coord.batch);
    coord.rows = coord.sequence.seq_q;
    const int own = tile - first(coord.batch), tiles = (coord.rows + kBr - 1) / kBr;
    coord.first_row = (kCausal ? tiles - 1 - own : own) * kBr;
    if (own < 0 || own >= tiles)
        coord.batch = -1;  // nothing to do
}

// Finds the share of a block of RowsOfGroup (features/shares.cuh). Returns false if it has nothing to do.
template <class Coord, class Work>
__device__ __forceinline__ bool find_share(Coord &coord, const Params &p, const Work &)
{
    const int slot = blockIdx.x % p.features.slots;
    const Slots slots(p, [=](int, int end) { return slot < end; });
    coord.key_head = blockIdx.x / p.features.slots;
    coord.batch = slots.batch;
    if (coord.batch < 0)
        return false;
    coord.own_splits = slots.shares;
    coord.split = (slot - slots.first) % coord.own_splits;
    coord.first_row = (slot - slots.first) / coord.own_splits * kBr;
    coord.find_sequence(p, coord.batch);
    if constexpr (kVarlen) {
        coord.part = slots.first_part + slot - slots.first;
        coord.part =
            coord.own_splits > 1 && coord.part < part_slots(p) ? coord.key_head * part_slots(p) + coord.part : -1;
        coord.rows = coord.sequence.seq_q * p.group;
    }
    return true;
}

// Sets row `row` of O to 0, one chunk of it, and its LSE to -infinity. A kernel that merges in place leaves it alone.
__device__ __forceinline__ void clear_chunk(const Params &p, int head, int row, int chunk)
{
    if constexpr (kMerges && !kCarry)
        return;
    char *const to = p.o + (head * p.o_stride.head + row * p.o_stride.seq) * kOutBytes + chunk * kChunkBytes;
    *reinterpret_cast<uint4 *>(to) = uint4{};
    if constexpr (kPartial)
        *reinterpret_cast<uint4 *>(to + 16) = uint4{};
    if (chunk == 0 && p.lse != nullptr)
        p.lse[int64(head) * p.features.total_q + row] = minus_infinity();
}

// Packed sequences: clears rows of O that belong to no sequence. Called by all threads of a block.
__device__ __forceinline__ void clear_unused_rows(const Params &p)
{
    constexpr int kRowChunks = kHeadDimV / 8;
    const auto &f = p.features;
    if constexpr (kPackedHeads) {
        const int64 slot = blockIdx.x % f.slots;
        const int first_head = blockIdx.x / f.slots * p.group;
        clear_unused<kThreads>(
            f.cu_seqlens_q, p.batch, f.total_q, slot * kBr / p.group, (slot + 1) * kBr / p.group, p.group * kRowChunks,
            [&](int row, int part) { clear_chunk(p, first_head + part / kRowChunks, row, part % kRowChunks); });
    } else {
        const int head = blockIdx.x / p.q_tiles;
        const int64 first = int64(blockIdx.x % p.q_tiles) * kBr;
        clear_unused<kThreads>(f.cu_seqlens_q, p.batch, f.total_q, first, first + kBr, kRowChunks,
                               [&](int row, int chunk) { clear_chunk(p, head, row, chunk); });
    }
}

// Coordinates of a block with kBr packed rows, and a part of the keys if blocks divide them (kSplit). The query heads
// of a group are rows of one matrix, row = query * group + head in the group, so K and V are read once for all of them.
// The visible tiles of a row tile are divided among p.splits blocks. If sequences have their own lengths,
// features/shares.cuh divides them.
struct RowsOfGroup : SequenceCoord {
    int first_row, rows;  // first row of the block; number of packed rows
    int split, key_head;
    int own_splits;  // blocks that divide the keys of this row tile, if sequences have their own lengths
    int part;        // index of this block's partial result if sequences are packed; -1: it writes O

    template <class Work>
    __device__ __forceinline__ RowsOfGroup(const Params &p, const Work &work) : rows(p.seq_q * p.group)
    {
        if constexpr (kLengths) {
            if (!find_share(*this, p, work))
                return;
        } else {
            const unsigned tile = work.tile(p);
            unsigned rest = work.batch_head(p);
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

    __device__ __forceinline__ int splits(const Params &p) const
    {
        return kLengths ? own_splits : p.splits;
    }

    // The slot of its partial result, if other blocks share its rows.
    __device__ __forceinline__ int64 slot() const
    {
        return kVarlen ? int64(part) : int64(blockIdx.x);
    }
};

using BlockCoord = PlacedRows<RowsOfGroup>;

// ---- the keys of a lane ------------------------------------------------------------------------------------------
//
// In column tile n of S a lane has two neighbouring keys: lane % 4 * kLaneKeys + key_column(n), relative to the tile's
// first key, and the next one. If kWide, the rows of K are permuted (wide_key) so that a lane has eight neighbours of
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

// Returns the key of row r of a tile, so that a lane has eight neighbours of 32 keys (kWide). Columns 2 t and 2 t + 1
// of column tile n are keys 8 t + 2 n and 8 t + 2 n + 1. Rows after the last key repeat it, and are masked.
__device__ __forceinline__ int wide_key(int r, int last)
{
    return min(r / 32 * 32 + r / 2 % 4 * 8 + r / 8 % 4 * 2 + r % 2, last);
}

// ---- no window: which tiles a block processes, and which keys of them a row sees -----------------------------------
//
// Policy of kernels without a window; the others have window.cuh. The mainloops of fwd.cuh, hopper/fwd_consumer.cuh and
// hopper/split_consumer.cuh call mask_scores for tiles that need a mask. Masks are applied to modified scores: a cap
// would turn -infinity into a finite number.

// Sets range to the tiles that rows of the block see.
template <class Range>
__device__ __forceinline__ void find_tiles(Range &range, const Params &p, const BlockCoord &coord)
{
    int keys = coord.seq_k(p), keys_of_all = coord.seq_k(p);  // seen by some row of the block; by every row
    if (kCausal) {
        const int offset = coord.seq_k(p) - coord.seq_q(p);
        const int last_row = min(coord.first_row + kBr, coord.rows) - 1;
        keys = max(0, min(keys, coord.query(p, last_row) + 1 + offset));
        keys_of_all = max(0, min(keys, coord.query(p, coord.first_row) + 1 + offset));
    }
    if constexpr (kSplit)
        range.first = 0;
    range.count = (keys + kBc - 1) / kBc;
    range.unmasked = keys_of_all / kBc;
}

// Sets scores to -infinity if the key is beyond the tensor's end or, if causal, after the row's own position.
__device__ __forceinline__ void mask_scores(float (&s)[kRowTiles][kColTiles][4], const Params &p,
                                            const BlockCoord &coord, int first_row, int tile, int lane)
{
    int limit[kRowTiles][2];  // last visible column, relative to this lane's first column
    const int seen = coord.seq_k(p) - 1 - tile * kBc - lane % 4 * kLaneKeys;
    each_of<kRowTiles, 2>([&](int m, int h) {
        const int r = first_row + m * 16 + h * 8 + lane / 4;
        limit[m][h] = kCausal ? min(seen, seen + coord.query(p, r) + 1 - coord.seq_q(p)) : seen;
    });
    each_element(s, [&](float &x, int m, int n, int e) {
        if (key_column(n) + e % 2 > limit[m][e / 2])  // the column is a constant after unrolling
            x = minus_infinity();
    });
}

// The empty policy: P without dropout.
struct NoDropout {
    __device__ __forceinline__ NoDropout(const Params &, const BlockCoord &, int, int) {}

    __device__ __forceinline__ void begin_step(int, int) {}

    __device__ __forceinline__ uint32 apply(uint32 elements, int, int, int) const
    {
        return elements;
    }
};

using Dropout = NoDropout;

__device__ __forceinline__ float kept_scale(const Params &)
{
    return 1.0f;
}

// ---- terms: none --------------------------------------------------------------------------------------------------
constexpr bool kTerms = false, kBiasAhead = false, kTermsFirst = false, kSkips = false;

// The empty policy: nothing is added to scores.
struct Terms {
    __device__ __forceinline__ Terms(const Params &, const BlockCoord &, int, int) {}

    template <bool kMasked, bool kAdd, class... Any> __device__ __forceinline__ bool apply(const Any &...) const
    {
        return true;
    }

    template <bool kMasked, class... Any> __device__ __forceinline__ void load(const Any &...) const {}

    template <bool kMasked, class... Any> __device__ __forceinline__ void add(const Any &...) const {}

    template <class... Any> __device__ __forceinline__ void add_columns(const Any &...) const {}
};

// ---- addresses of rows of K and V in pages ------------------------------------------------------------------
//
// Policy of kernels with a paged cache; the others have keys.cuh. A block reads a head of K or V from a head pointer:
// its row 0 in page 0. The scales of rows in 8 bits lie likewise, with strides of their own. kBytes: of an element.
template <int kBytes = kKvBytes>
__device__ __forceinline__ const char *key_head(const char *tensor, const Strides &stride, const SequenceCoord &,
                                                int head)
{
    return tensor + head * stride.head * kBytes;
}

// A page has 2^page_shift rows of every head, [pages, page, Hkv, D]. Key j of a sequence is row j % page
// of page table[j / page]. An invalid page number counts as the last page. If a page is at least as long as a tile, the
// tile lies in one page: one look-up, whose latency all rows share. This does not hold after left padding, which has
// any length.
struct PagedRows {
    const Params &p;
    const int *table;
    const int first_key, last_key;  // of the tile; of the sequence
    bool one;
    uint32 page;  // the page, if there is one for the tile

    __device__ __forceinline__ PagedRows(const Params &p, const SequenceCoord &coord, int tile)
        : p(p), table(p.features.block_table + coord.batch * p.features.table_stride),
          first_key(coord.padding() + tile * kBc), last_key(coord.padding() + coord.seq_k(p) - 1),
          one(!kLeftpad && (kBc & (kBc - 1)) == 0 && kBc >> p.features.page_shift <= 1), page(0)
    {
        if (one)
            page = look_up(key(0));
    }

    // The key of row r. For a row beyond the sequence's end or a tile that will not be read: any key whose table entry
    // exists.
    __device__ __forceinline__ int key(int r) const
    {
        return max(0, min(first_key + r, last_key));
    }

    __device__ __forceinline__ uint32 look_up(int key) const
    {
        return min(uint32(__ldg(table + (key >> p.features.page_shift))), p.features.pages - 1u);
    }

    template <int kBytes = kKvBytes>
    __device__ __forceinline__ const char *at(const char *batch_head, const Strides &stride, int r) const
    {
        const int own = key(r), in_page = own & ((1 << p.features.page_shift) - 1);
        const uint32 own_page = one ? page : look_up(own);
        return batch_head + (own_page * stride.batch + in_page * stride.seq) * kBytes;
    }
};

using KeyRows = PagedRows;

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

// Copies 4 bytes through L1, if wanted; zeros if keep is false.
__device__ __forceinline__ void cp_async_4_or_zero(uint32 smem, const char *gmem, bool wanted, bool keep)
{
    asm volatile("{\n"
                 "    .reg .pred wanted;\n"
                 "    setp.ne.s32 wanted, %2, 0;\n"
                 "    @wanted cp.async.ca.shared.global [%0], [%1], 4, %3;\n"
                 "}" ::"r"(smem),
                 "l"(gmem), "r"(int(wanted)), "r"(keep ? 4 : 0)
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

// ---- loads of a tile from global to shared memory -------------------------------------------------------------
//
// A thread always copies the same chunk column, in rows that are kRowStep apart; neighbouring lanes take neighbouring
// chunks. Chunks beyond the tensor's columns and rows beyond its end become zeros.

// The passes of a load that are issued at once: part `part` of `parts`, if wanted.
struct Share {
    int part, parts;
    bool wanted;
};
constexpr Share kWhole = {0, 1, true};

// The chunks of a [kRows][kColumns] tile that a thread copies; kCount threads share the work. Addresses are computed
// again for each tile, because thread_index() cannot be moved out of the loop. That costs a few instructions, and saves
// registers that the accumulators need.
template <int kRows, int kCount, int kColumns = kHeadDim> struct FillPlan {
    using Form = FormOf<kColumns>;
    static constexpr int kChunks = Form::kChunks, kPitch = Form::kPitch;
    static constexpr int kRowStep = kCount / kChunks;  // rows per pass
    static constexpr int kPasses = (kRows + kRowStep - 1) / kRowStep;
    static constexpr bool kAllThreads = kRowStep * kChunks == kCount;
    static constexpr bool kAllRows = kRows % kRowStep == 0;
    static constexpr bool kAllColumns = kColumns * kElemBytes == kChunks * 16;

    const int first_row, chunk;

    __device__ __forceinline__ FillPlan() : FillPlan(kCount < kThreads ? thread_index() % kCount : thread_index()) {}

    __device__ __forceinline__ explicit FillPlan(int thread) : first_row(thread / kChunks), chunk(thread % kChunks) {}

    static __device__ __forceinline__ constexpr int begin(Share share)
    {
        return share.part * kPasses / share.parts;
    }

    static __device__ __forceinline__ constexpr int end(Share share)
    {
        return (share.part + 1) * kPasses / share.parts;
    }

    __device__ __forceinline__ int row(int pass) const
    {
        return first_row + pass * kRowStep;
    }

    __device__ __forceinline__ bool has_row(int pass) const
    {
        return (kAllThreads || first_row < kRowStep) && (kAllRows || row(pass) < kRows);
    }

    __device__ __forceinline__ bool in_columns() const
    {
        return kAllColumns || chunk < kColumns * kElemBytes / 16;
    }

    // Byte offset in shared memory from the tile's start.
    __device__ __forceinline__ uint32 offset(int pass) const
    {
        if constexpr (kRowStep % 8 == 0)  // the swizzle is the same in every pass
            return Form::chunk_offset(first_row, chunk) + pass * kRowStep * kPitch;
        else
            return Form::chunk_offset(row(pass), chunk);
    }
};

// kStaged: the load goes through registers, for SM 7.5. Global loads are issued early; store() writes the registers to
// shared memory when the tile there is no longer read.
template <int kRows, int kCount, int kColumns = kHeadDim, bool kStaged = kTuring> struct Fill {
    using Plan = FillPlan<kRows, kCount, kColumns>;
    uint4 staged[Plan::kPasses];

    // Starts loading a tile, always all of it, because loads that are spread over a product would keep its registers
    // waiting. address(row): start of a row in global memory. Rows from valid_rows on become zeros. kFull: all rows are
    // valid.
    template <bool kFull, class Address>
    __device__ __forceinline__ void issue(const Plan &plan, Share, uint32, int valid_rows, Address address)
    {
#pragma unroll
        for (int pass = 0; pass < Plan::kPasses; pass++) {
            staged[pass] = uint4{0, 0, 0, 0};
            if (plan.has_row(pass) && plan.in_columns() && (kFull || plan.row(pass) < valid_rows))
                staged[pass] = __ldg(reinterpret_cast<const uint4 *>(address(plan.row(pass)) + plan.chunk * 16));
        }
    }

    __device__ __forceinline__ void store(uint32 smem)
    {
        const Plan plan;
#pragma unroll
        for (int pass = 0; pass < Plan::kPasses; pass++)
            if (plan.has_row(pass))
                store_shared_16(smem + plan.offset(pass), staged[pass]);
    }
};

// The load by cp.async.
template <int kRows, int kCount, int kColumns> struct Fill<kRows, kCount, kColumns, false> {
    using Plan = FillPlan<kRows, kCount, kColumns>;

    // Starts copying a share of a tile to smem. address(row): start of a row in global memory. Rows from valid_rows on
    // become zeros. kFull: all rows are valid.
    template <bool kFull, class Address>
    __device__ __forceinline__ void issue(const Plan &plan, Share share, uint32 smem, int valid_rows, Address address)
    {
#pragma unroll
        for (int pass = plan.begin(share); pass < plan.end(share); pass++) {
            if (!plan.has_row(pass))
                continue;
            const char *src = address(plan.row(pass)) + plan.chunk * 16;
            if (kFull && Plan::kAllColumns)
                cp_async_16(smem + plan.offset(pass), src, share.wanted);
            else
                cp_async_16_or_zero(smem + plan.offset(pass), src, share.wanted,
                                    plan.in_columns() && (kFull || plan.row(pass) < valid_rows));
        }
    }

    // Does nothing: cp.async has written shared memory.
    __device__ __forceinline__ void store(uint32) {}
};

// Loads into registers are ordered by their use, so there is nothing to commit or to wait for.
__device__ __forceinline__ void fill_commit()
{
    if constexpr (!kTuring)
        cp_async_commit();
}

// Waits until at most kPending committed loads of this thread are in flight. A barrier must follow before other
// threads' chunks are read.
template <int kPending> __device__ __forceinline__ void fill_wait()
{
    if constexpr (!kTuring)
        cp_async_wait<kPending>();
}

constexpr bool kPagesExchanged = true;

// ---- page numbers exchanged between lanes (kPagesExchanged) -------------------------------------------------------
//
// The lanes that copy a row copy the same rows in all passes of a load. So each lane looks up the pages of some passes,
// computes where their rows begin, and passes these offsets to the other lanes by shuffles.

// The pages of the tiles that are copied next.
template <class Plan> struct PageNumbers {
    static constexpr int kChunks = Plan::kChunks;
    static constexpr int kOwn = (Plan::kPasses + kChunks - 1) / kChunks;  // passes that a lane looks up
    static constexpr int kTiles = kJoint ? kKStages - 1 : 2;              // V of a tile after K, and K of the next tile
    static_assert(32 % kChunks == 0 && Plan::kAllThreads && kBc % Plan::kRowStep * kChunks % 32 == 0,
                  "a warp copies whole rows, and all of it takes part in a pass or none");

    const Params &p;
    const int *table;
    const int first_key;  // after the padding
    const int last_key;   // of the sequence
    uint32 own[kTiles][kOwn];

    __device__ __forceinline__ PageNumbers(const Params &p, const BlockCoord &coord)
        : p(p), table(p.features.block_table + coord.batch * p.features.table_stride), first_key(coord.padding()),
          last_key(coord.padding() + coord.seq_k(p) - 1)
    {
    }

    // The key of the row of this lane's pass i. For a row beyond the sequence's end or a tile that will not be read:
    // any key whose table entry exists.
    __device__ __forceinline__ int key(const Plan &plan, int tile, int i) const
    {
        return max(0, min(first_key + tile * kBc + plan.row(plan.chunk + i * kChunks), last_key));
    }

    // Looks up the pages of the tile that is `ahead` tiles after the next one, long before they are needed.
    __device__ __forceinline__ void find(int ahead, int tile)
    {
        const Plan plan;
#pragma unroll
        for (int i = 0; i < kOwn; i++)
            own[ahead][i] = __ldg(table + (key(plan, tile, i) >> p.features.page_shift));
    }

    // In the prologue: looks up the tile and those that are copied right after it.
    __device__ __forceinline__ void find_first(int tile)
    {
        find(0, tile);
        if constexpr (kJoint)
#pragma unroll
            for (int ahead = 1; ahead < kKStages - 1; ahead++)
                find(ahead, tile - ahead * kTeams);
    }

    // While S of a tile is computed: looks up the tile to be copied after the next ones.
    __device__ __forceinline__ void find_next(int tile)
    {
        if constexpr (kJoint)
            find(0, tile - (kKStages - 1) * kTeams);
        else
            find(1, tile - kTeams);
    }

    // Advances to the next tile to be copied.
    __device__ __forceinline__ void pass()
    {
#pragma unroll
        for (int ahead = 1; ahead < kTiles; ahead++)
#pragma unroll
            for (int i = 0; i < kOwn; i++)
                own[ahead - 1][i] = own[ahead][i];
    }
};

// Offsets of the rows of the next tile in K or V: 32 bits, which one instruction turns into an address.
template <class Plan> struct ExchangedRows {
    using Numbers = PageNumbers<Plan>;
    static constexpr int kChunks = Plan::kChunks;
    const int first_row;  // of this lane's rows
    const uint32 bytes;   // of a step
    uint32 own[Numbers::kOwn];

    __device__ __forceinline__ ExchangedRows(const Numbers &numbers, const Plan &plan, int tile, const PageSteps &steps)
        : first_row(plan.first_row), bytes(steps.bytes)
    {
        const auto &features = numbers.p.features;
#pragma unroll
        for (int i = 0; i < Numbers::kOwn; i++) {
            const uint32 page = min(numbers.own[0][i], features.pages - 1u);
            const int in_page = numbers.key(plan, tile, i) & ((1 << features.page_shift) - 1);
            own[i] = page * steps.page + in_page * steps.row;
        }
    }

    __device__ __forceinline__ const char *at(const char *batch_head, const Strides &, int r) const
    {
        const int pass = (r - first_row) / Plan::kRowStep;  // a constant after unrolling
        return batch_head + int64(__shfl_sync(0xffffffffu, own[pass / kChunks], pass % kChunks, kChunks)) * bytes;
    }
};

// The scale of a row of the tile that is copied next: the i-th of those whose pages this lane has looked up.
template <class Plan>
__device__ __forceinline__ const char *scale_at(const PageNumbers<Plan> &numbers, const ExchangedRows<Plan> &,
                                                const Plan &plan, int tile, int i, int, const char *batch_head,
                                                const Strides &stride)
{
    const auto &features = numbers.p.features;
    const uint32 page = min(numbers.own[0][i], features.pages - 1u);
    const int in_page = numbers.key(plan, tile, i) & ((1 << features.page_shift) - 1);
    return batch_head + (page * stride.batch + in_page * stride.seq) * kRowScaleBytes;
}

// Returns the rows of the tile that is copied next.
template <class Plan>
__device__ __forceinline__ ExchangedRows<Plan> rows_of(const PageNumbers<Plan> &numbers, const Plan &plan, int tile,
                                                       const PageSteps &steps)
{
    return ExchangedRows<Plan>(numbers, plan, tile, steps);
}

template <class Plan> using PageNumbersOf = PageNumbers<Plan>;

// Returns the head pointer of the rows of V that are loaded. Policy of kernels that load V as it is; the others have
// fp8_columns.cuh.
__device__ __forceinline__ const char *loaded_values(const Params &p, const BlockCoord &coord, int kv_head)
{
    return key_head(p.v, p.v_stride, coord, kv_head);
}
/* The least score that counts, scaled and with all terms, of kernels and of the judge. Plain C preprocessor text. */
#define FA2I_LEAST_SCORE (-0x1p19f)

// A bias may hide keys by numbers such as -infinity or -1e9. The maximum of a row begins with the least score that
// counts, and never falls below it. So P of hidden keys is 0, even in a row without other keys (fa2.h). Scores near
// this limit are still precise to 1/16.
constexpr float kLeastScore = FA2I_LEAST_SCORE;

// The maximum of a row that has seen no key, in the unit of Q K^T.
__device__ __forceinline__ float least_maximum(const Params &p)
{
    if constexpr (kBiasNumbers)
        return kLeastScore * p.features.inverse_scale;
    else
        return minus_infinity();
}

// ---- sinks: one more column in the softmax, without a value ---------------------------------------------------

// Returns the sink of a head. A kernel without sinks lacks the parameter: templates look it up later.
template <class P> __device__ __forceinline__ float sink_of_head(const P &p, int head)
{
    return p.features.sinks[head];
}

// Returns the sink of a row's head. row: of the block.
template <class P, class Coord> __device__ __forceinline__ float sink_at(const P &p, const Coord &coord, int row)
{
    return p.features.sinks[coord.query_head(p, row)];
}

// Ends a row with a sink: gives the factor of O, and LSE. exponent: of the sum, in the unit of the sink; sum: of
// the row, 0 if it saw no key; divisor: the sum by which O is divided. sink may be -infinity.
struct SinkEnd {
    float inverse, lse;

    __device__ __forceinline__ SinkEnd(float exponent, float sum, float divisor, float sink)
    {
        // The sink may be below the least score.
        const float most = kBiasNumbers && sum == 0.0f ? sink : fmaxf(exponent, sink);
        const float weight = sum == 0.0f ? 0.0f : expf(exponent - most);
        const float own = sink == minus_infinity() ? 0.0f : expf(sink - most), all = weight * sum + own;
        inverse = all == 0.0f ? 0.0f : weight / (weight * divisor + own);
        lse = all == 0.0f ? minus_infinity() : most + logf(all);
    }
};

// ---- fragments, and the online softmax ------------------------------------------------------------------------
//
// Fragments (PTX ISA, mma.m16n8k16), with lane = 4 * quad_row + quad_lane. An accumulator holds columns 2 * quad_lane
// and 2 * quad_lane + 1 of a 16x8 tile: of row quad_row in c[0], c[1], and of row quad_row + 8 in c[2], c[3]. Two
// neighbouring accumulator tiles of S have the layout of one 16x16 A fragment, so P enters the second product without
// leaving its lane. The four lanes of a quad share a row.

// O is rescaled only when a row's maximum has grown by more than kLazyRescale, in log2 units. Until then the row keeps
// a stale maximum, and nearly all rescaling is skipped (as in FlashAttention-4). P stays at most 2^kLazyRescale: 2^8 in
// general, far from overflow in fp16; less with fp16 sums (product_pv_fp16.cuh) or in e4m3 numbers (fp8_p.cuh). With
// the speculative maximum P may be larger: hopper/speculative_max.cuh.

// P of a score is 2^(scale_log2 * score - exponent). The exponent is the row's maximum, possibly stale, times
// scale_log2, or that product rounded up to a whole number. Calls that see other keys of a row have other maxima. With
// whole exponents their P of a score differs by a power of two, and so does P rounded to 16 bits. Thus merged results
// have the bits of one call, but for the order of fp32 sums. This takes 1 to 3 % of the time of fwd_sm80
// (tests/bench/results/tried.md), so older SMs round exponents only where keys are divided anyway.
constexpr bool kWholeExponents = TypeOfP::kBytes == 2 && (kSplit || kHopper);

// State of this lane's rows; [row tile][rows quad_row, quad_row + 8].
struct RowSums {
    float max[kRowTiles][2];  // of raw scores, possibly stale; least_maximum() before the first visible key
    float sum[kRowTiles][2];  // of this lane's columns only; reduced over the quad at the end
};

struct RowSumsAndSink : RowSums {
    float sink;  // of the head; loaded early to hide the latency at the end of the row
};

// Only wgmma kernels with a sink have the member `sink`: an unused member may change ptxas's register allocation.
using RowState = Either<kSinks && kWgmma, RowSumsAndSink, RowSums>::Type;

// The initial state of rows: no key seen.
__device__ __forceinline__ void begin_rows(RowState &row, const Params &p)
{
    const float least = least_maximum(p);
    each_of<kRowTiles, 2>([&](int m, int h) {
        row.max[m][h] = least;
        row.sum[m][h] = 0.0f;
    });
}

// Returns the exponent that belongs to a maximum of raw scores.
__device__ __forceinline__ float exponent_of(float max, float scale_log2)
{
    if constexpr (!kWholeExponents)
        return max * scale_log2;
    // Numbers near 1.5 * 2^23 have no bits after the point, so adding it rounds. A conversion would take the unit that
    // computes exp2, which limits kernels with wgmma.
    constexpr float kToWhole = 0x1.8p23f;
    return __fmaf_ru(max, scale_log2, kToWhole) - kToWhole;
}

// Returns the factor of what was computed with one maximum, if another takes its place.
__device__ __forceinline__ float rescaling(float from, float to, float scale_log2)
{
    if constexpr (kWholeExponents)
        return exp2_approx(exponent_of(from, scale_log2) - exponent_of(to, scale_log2));
    else
        return exp2_approx((from - to) * scale_log2);
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

// ---- how scores are made of accumulators: for row tile m, its rows quad_row (h = 0) and quad_row + 8, and each of
// kGroups groups of column tiles ----

// P is 2^(accumulator * factor - shift).
struct Exponent {
    float factor, shift;
};

// The accumulators are the scores.
struct ScoresThemselves {
    static constexpr bool kScaled = false;
    static constexpr int kGroups = 1;

    __device__ __forceinline__ float score(int, int, int, float x) const
    {
        return x;
    }

    __device__ __forceinline__ Exponent exponent(int, int, int, float scale_log2, float max) const
    {
        return {scale_log2, exponent_of(max, scale_log2)};
    }
};

// A score is the accumulator plus its row's offset.
struct ScoresWithOffset {
    static constexpr bool kScaled = false;
    static constexpr int kGroups = 1;

    const float (&offset)[kRowTiles][2];

    __device__ __forceinline__ float score(int m, int h, int, float x) const
    {
        return x + offset[m][h];
    }

    __device__ __forceinline__ Exponent exponent(int m, int h, int, float scale_log2, float max) const
    {
        return {scale_log2, fmaf(-offset[m][h], scale_log2, exponent_of(max, scale_log2))};
    }
};

// A score is the accumulator, less `start`, times a factor of its row and group.
template <int kCount> struct ScaledScores {
    static constexpr bool kScaled = true;  // no accumulator is infinite or NaN
    static constexpr int kGroups = kCount;

    float factor[kGroups][kRowTiles][2], start;

    __device__ __forceinline__ float score(int m, int h, int group, float x) const
    {
        return fmaf(x, factor[group][m][h], -start * factor[group][m][h]);
    }

    __device__ __forceinline__ Exponent exponent(int m, int h, int group, float scale_log2, float max) const
    {
        const float of_number = factor[group][m][h] * scale_log2;
        return {of_number, fmaf(start, of_number, exponent_of(max, scale_log2))};
    }
};

// Computes the maxima of this lane's scores. Returns true if one has grown so much that O must be rescaled.
template <class Scores>
__device__ __forceinline__ bool find_maxima(const float (&s)[kRowTiles][kColTiles][4], const Scores &scores,
                                            const RowState &row, float scale_log2, float (&tile_max)[kRowTiles][2])
{
    bool grown = false;
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            constexpr int kTiles = kColTiles / Scores::kGroups;  // of a group
            float most;
#pragma unroll
            for (int group = 0; group < Scores::kGroups; group++) {
                const int first = group * kTiles;
                float x = fmaxf(s[m][first][2 * h], s[m][first][2 * h + 1]);
#pragma unroll
                for (int n = first + 1; n < first + kTiles; n++)
                    x = fmaxf(x, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
                x = scores.score(m, h, group, x);
                most = group == 0 ? x : fmaxf(most, x);
            }
            tile_max[m][h] = most;
            grown |= (most - row.max[m][h]) * scale_log2 > kLazyRescale;
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
    const float alpha = none ? 1.0f : rescaling(row_max, tile_max, scale_log2);
    row_max = tile_max;
    return alpha;
}

// How P is made of a score: by exp2. Another way: Fp8P (fp8_p.cuh).
template <class Scores> struct Exp2P {
    const Exponent exponent;

    __device__ __forceinline__ Exp2P(const Exponent &exponent, float &) : exponent(exponent) {}

    // Turns a score into P, and adds it to the row's sum.
    __device__ __forceinline__ void make(float &x, float &sum) const
    {
        x = exp2_approx(fmaf(x, exponent.factor, -exponent.shift));
        sum += x;
    }
};

// Turns S into P, and adds to the sums.
template <bool kUnseen, template <class> class P, class Scores>
__device__ __forceinline__ void make_p_of(float (&s)[kRowTiles][kColTiles][4], const Scores &scores, RowState &row,
                                          float scale_log2)
{
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const bool none = kUnseen && row.max[m][h] == minus_infinity();
            constexpr int kTiles = kColTiles / Scores::kGroups;  // of a group
#pragma unroll
            for (int group = 0; group < Scores::kGroups; group++) {
                const Exponent exponent = scores.exponent(m, h, group, scale_log2, row.max[m][h]);
                const P<Scores> p({exponent.factor, none ? 0.0f : exponent.shift}, row.sum[m][h]);
#pragma unroll
                for (int n = group * kTiles; n < (group + 1) * kTiles; n++)
#pragma unroll
                    for (int e = 2 * h; e < 2 * h + 2; e++)
                        p.make(s[m][n][e], row.sum[m][h]);
            }
        }
    }
}

// For mma.sync: turns S into P, adds to the sums, and rescales O if a maximum has grown enough. kUnseen: some rows may
// have seen no key yet. P: how it is made.
template <bool kUnseen, template <class> class P = Exp2P, class Scores = ScoresThemselves>
__device__ __forceinline__ void softmax_tile(float (&s)[kRowTiles][kColTiles][4], RowState &row,
                                             float (&o)[kRowTiles][kOutTiles][4], float scale_log2,
                                             const Scores &scores = {})
{
    float tile_max[kRowTiles][2];  // of this lane's columns; reduced over the quad only if a row needs it
    const bool grown = find_maxima(s, scores, row, scale_log2, tile_max);
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
    make_p_of<kUnseen, P>(s, scores, row, scale_log2);
}

// ---- O in fp32 (kPartial), merged with the partial result in memory (kMerges), or merged and written in 16 bits
// (kCarry) -----------------------------------------------------------------------------------------------------------
//
// Two results of one row over disjoint keys, each normalised, are merged as
//
//     lse = max + ln(sum of w_i)    O = sum of w_i O_i / sum of w_i    w_i = exp(lse_i - max)    max: of both lse_i
//
// A result whose LSE is -infinity has no weight, and its O is not read: it may hold anything.

// Returns the row of O before. offset(strides): the row's first element; to: the row of O.
template <class AnyParams, class Offset>
__device__ __forceinline__ const char *old_row(const AnyParams &p, const char *to, Offset offset)
{
    if constexpr (kCarry)
        return reinterpret_cast<const char *>(p.features.carried + offset(p.features.carried_stride));
    else
        return to;
}

// Elements of 32 bits have no pack.
template <class Half> __device__ __forceinline__ void put_16_bits(char *to, float2 x)
{
    *reinterpret_cast<uint32 *>(to) = Half::pack(x.x, x.y);
}

template <class Half> __device__ __forceinline__ void put_16_bits(char *to, float4 x)
{
    *reinterpret_cast<uint2 *>(to) = uint2{Half::pack(x.x, x.y), Half::pack(x.z, x.w)};
}

// The weights of one row: of the result of this launch, and of the one in memory.
struct Merge {
    float own, old, lse;

    __device__ __forceinline__ Merge(float own_lse, float old_lse) : own(1.0f), old(0.0f), lse(own_lse)
    {
        if constexpr (kMerges) {
            const float most = fmaxf(own_lse, old_lse);
            if (old_lse == minus_infinity())
                return;
            own = expf(own_lse - most);
            old = expf(old_lse - most);
            const float sum = own + old;
            lse = most + logf(sum);
            own /= sum;
            old /= sum;
        }
    }

    // Returns columns before, in fp32, of a row in memory. Numbers: float2 or float4.
    template <class Numbers> __device__ __forceinline__ Numbers read(const char *from) const
    {
        return old == 0.0f ? Numbers{} : *reinterpret_cast<const Numbers *>(from);
    }

    // Writes columns of O, normalised, and merged if the kernel merges. y: what read returned.
    __device__ __forceinline__ void put(char *to, float2 y, float2 x) const
    {
        if constexpr (kMerges)
            x = float2{own * x.x + old * y.x, own * x.y + old * y.y};
        if constexpr (kCarry)
            put_16_bits<Elem>(to, x);
        else
            *reinterpret_cast<float2 *>(to) = x;
    }

    // The same for four columns.
    __device__ __forceinline__ void put(char *to, float4 y, float4 x) const
    {
        if constexpr (kMerges)
            x = float4{own * x.x + old * y.x, own * x.y + old * y.y, own * x.z + old * y.z, own * x.w + old * y.w};
        if constexpr (kCarry)
            put_16_bits<Elem>(to, x);
        else
            *reinterpret_cast<float4 *>(to) = x;
    }
};

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

// ---- mma.sync: products of warps ------------------------------------------------------------------------------

// Products of elements, with fp32 accumulation: c += a b. k16: a is 16x16 row-major, b is 16x8 column-major.
template <class E> struct Mma;

template <> struct Mma<fp16> {
    // a is 16x8, b is 8x8.
    static __device__ __forceinline__ void k8(float (&c)[4], uint32 a0, uint32 a1, uint32 b0)
    {
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a0), "r"(a1), "r"(b0));
    }

    // SM 7.5 multiplies the same fragments twice with half of the depth.
    static __device__ __forceinline__ void k16(float (&c)[4], const uint32 (&a)[4], uint32 b0, uint32 b1)
    {
        if constexpr (kTuring) {
            k8(c, a[0], a[1], b0);
            k8(c, a[2], a[3], b1);
        } else {
            asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
        }
    }
};

template <> struct Mma<bf16> {
    static __device__ __forceinline__ void k8(float (&c)[4], uint32 a0, uint32 a1, uint32 b0)
    {
        asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a0), "r"(a1), "r"(b0));
    }

    static __device__ __forceinline__ void k16(float (&c)[4], const uint32 (&a)[4], uint32 b0, uint32 b1)
    {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

__device__ __forceinline__ void mma_k16(float (&c)[4], const uint32 (&a)[4], uint32 b0, uint32 b1)
{
    Mma<Elem>::k16(c, a, b0, b1);
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

// Packs two elements into one register; lo is in the lower half.
__device__ __forceinline__ uint32 pack2(float lo, float hi)
{
    return Elem::pack(lo, hi);
}

// Returns both elements of a register.
__device__ __forceinline__ float2 unpack2(uint32 x)
{
    return Elem::unpack(x);
}

// ---- epilogue of a block that shares the keys of its rows: with its own teams, or with other blocks -----------------
//
// The kernels of fwd.cuh (if kSplit) and hopper/split.cuh call write_rows.
//
// Partial results O_i of one row over disjoint keys, normalised or not, are merged as O = sum(w_i O_i), w_i = exp(m_i -
// max m). First the teams of a block are merged in shared memory. Then, if p.splits > 1, the combining kernel
// (combine.cuh) merges the results of blocks:
//
//     lengths        p.partial                  p.partial_lse
//     all equal      [splits, B, Hq, Sq, D]     [splits, B, Hq, Sq]
//     one each       [Hkv, slots, kBr, D]       [Hkv, slots, kBr]
//     packed         as above; only slots that are combined count (part_slots)

// Teams store O, maxima and sums here in fp32. The pitch is 32 bytes modulo 128: lanes of a quad store 8 bytes each, so
// four quads cover all banks once.
constexpr int kMergePitch = kHeadDimV * 4 + (160 - kHeadDimV * 4 % 128) % 128;
constexpr int kMergeStates = kTeams * kBr * kMergePitch;  // float2 {max, sum} [team][row]
constexpr int kOldLse = kMergeStates + kTeams * kBr * 8;  // with kMerges: LSE in memory [row]
// Lanes that read a row, 16 bytes each. Their number is a multiple of eight, so no group of eight crosses rows: the
// beginning of a row shares banks with the end of others.
constexpr int kMergeLanes = (kHeadDimV / 4 + 7) / 8 * 8;
static_assert(kOldLse + kMerges * kBr * 4 == kMergeBytes, "O, maxima and sums of all teams fill kMergeBytes");
static_assert(kBr <= kThreads, "a thread has a row whose LSE it merges");

// A barrier for all threads that compute.
__device__ __forceinline__ void block_sync()
{
    if constexpr (kWgmma)
        named_barrier(0, kThreads);  // without the producer's threads, which have ended
    else
        __syncthreads();
}

__device__ __forceinline__ void store_team(uint32 smem, const float (&o)[kRowTiles][kOutTiles][4], const RowState &row,
                                           int team, int team_row, int lane)
{
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = team * kBr + team_row + m * 16 + h * 8 + lane / 4;
            const float sum = quad_sum(row.sum[m][h]);
#pragma unroll
            for (int n = 0; n < kOutTiles; n++)
                if (kParts == 1 || kHeadDimV == kHeadDimVPadded || own_chunk(n) < kHeadDimV / 8)
                    store_shared_8(smem + r * kMergePitch + own_chunk(n) * 32 + lane % 4 * 8, o[m][n][2 * h],
                                   o[m][n][2 * h + 1]);
            // Two lanes store one value each, because a store of 8 bytes takes two wavefronts.
            if (lane % 4 < 2 && own_part() == 0)
                store_shared_4(smem + kMergeStates + r * 8 + lane % 4 * 4,
                               __float_as_uint(lane % 4 == 0 ? row.max[m][h] : sum));
        }
    }
}

// One merged row of the block: 4 columns of O, the maximum of the scores and the sum.
struct MergedRow {
    float4 o;
    float max, sum, divisor;

    __device__ __forceinline__ MergedRow(uint32 smem, int r, int column, float scale_log2)
        : o{0.0f, 0.0f, 0.0f, 0.0f}, max(minus_infinity()), sum(0.0f)
    {
        float2 state[kTeams];
#pragma unroll
        for (int team = 0; team < kTeams; team++) {
            state[team] = load_shared_8(smem + kMergeStates + (team * kBr + r) * 8);
            max = fmaxf(max, state[team].x);
        }
#pragma unroll
        for (int team = 0; team < kTeams; team++) {
            if (state[team].x == minus_infinity())
                continue;  // this team saw no key
            const float weight = rescaling(state[team].x, max, scale_log2);
            const float4 x = load_shared_floats(smem + (team * kBr + r) * kMergePitch + column * 4);
            sum += weight * state[team].y;
            o.x += weight * x.x;
            o.y += weight * x.y;
            o.z += weight * x.z;
            o.w += weight * x.w;
        }
        divisor = divisor_of(max, sum, scale_log2);
        multiply(row_inverse(divisor));
    }

    // Adds the sink to a row. Only for a row whose keys all belong to this block.
    __device__ __forceinline__ float add_sink(const Params &p, float sink)
    {
        const SinkEnd end(natural_exponent(max, p), sum, divisor, sink);
        multiply(divisor * end.inverse);
        return end.lse;
    }

    __device__ __forceinline__ void multiply(float factor)
    {
        o.x *= factor;
        o.y *= factor;
        o.z *= factor;
        o.w *= factor;
    }

    __device__ __forceinline__ float lse(const Params &p) const
    {
        return row_lse(natural_exponent(max, p), sum);
    }
};

// Writes columns of a row whose keys all belong to this block, and LSE unless write_merged_lse does it. old: address of
// the row's LSE before.
__device__ __forceinline__ void write_whole(const Params &p, const BlockCoord &coord, MergedRow &merged, int block_row,
                                            int64 index, int column, uint32 old)
{
    float lse;
    if constexpr (kSinks)
        lse = merged.add_sink(p, sink_at(p, coord, block_row));
    else if constexpr (kMerges)
        lse = merged.lse(p);
    char *const row = p.o + coord.offset(p, p.o_stride, block_row) * kOutBytes, *const out = row + column * kOutBytes;
    if constexpr (kMerges) {
        const char *const from =
            old_row(p, row, [&](const Strides &stride) { return coord.offset(p, stride, block_row); });
        const Merge merge(lse, load_shared_4(old));
        merge.put(out, merge.read<float4>(from + column * 4), merged.o);
        return;
    }
    if constexpr (kPartial)
        *reinterpret_cast<float4 *>(out) = merged.o;
    else
        *reinterpret_cast<uint2 *>(out) = uint2{pack2(merged.o.x, merged.o.y), pack2(merged.o.z, merged.o.w)};
    if (p.lse != nullptr && column == 0) {
        if constexpr (!kSinks)
            lse = merged.lse(p);
        p.lse[index] = lse;
    }
}

// LSE of a row that is merged: one thread reads and writes it, and gives the old one to those that have columns of O.
__device__ __forceinline__ void share_old_lse(const Params &p, const BlockCoord &coord, uint32 smem)
{
    const int r = threadIdx.x, block_row = coord.first_row + r;
    if (r < kBr && block_row < coord.rows)
        store_shared_4(smem + kOldLse + r * 4, __float_as_uint(p.lse[coord.index(p, block_row)]));
}

// The row's sum over all teams; max: their maximum.
__device__ __forceinline__ float sum_of_teams(uint32 smem, int r, float scale_log2, float &max)
{
    float sum = 0.0f;
    max = minus_infinity();
#pragma unroll
    for (int team = 0; team < kTeams; team++)
        max = fmaxf(max, load_shared_8(smem + kMergeStates + (team * kBr + r) * 8).x);
#pragma unroll
    for (int team = 0; team < kTeams; team++) {
        const float2 state = load_shared_8(smem + kMergeStates + (team * kBr + r) * 8);
        sum += state.x == minus_infinity() ? 0.0f : rescaling(state.x, max, scale_log2) * state.y;
    }
    return sum;
}

__device__ __forceinline__ void write_merged_lse(const Params &p, const BlockCoord &coord, uint32 smem)
{
    const int r = threadIdx.x, block_row = coord.first_row + r;
    if (r >= kBr || block_row >= coord.rows)
        return;
    float max;
    const float sum = sum_of_teams(smem, r, p.scale_log2, max), exponent = natural_exponent(max, p);
    float lse = row_lse(exponent, sum);
    if constexpr (kSinks)
        lse = SinkEnd(exponent, sum, sum, sink_at(p, coord, block_row)).lse;
    p.lse[coord.index(p, block_row)] = Merge(lse, load_shared_4(smem + kOldLse + r * 4)).lse;
}

// Returns true if no other block has keys of the block's rows.
__device__ __forceinline__ bool has_all_keys(const Params &p, const BlockCoord &coord)
{
    if constexpr (kVarlen)
        return coord.part < 0;
    else
        return coord.splits(p) == 1;
}

// Writes the rows of a block, or its partial results. The layout of rows in shared memory is that of fp32.
template <class>
__device__ __forceinline__ void write_rows(const Params &p, const BlockCoord &coord,
                                           const float (&o)[kRowTiles][kOutTiles][4], const RowState &row, uint32 smem,
                                           int warp_row, int lane)
{
    block_sync();  // every warp has read its last Q, K and V before O comes into their place
    store_team(smem, o, row, threadIdx.x / kTeamThreads, warp_row, lane);
    if constexpr (kMerges)
        if (has_all_keys(p, coord))
            share_old_lse(p, coord, smem);
    block_sync();  // all teams' results are there

    const int64 all_rows = int64(gridDim.x) / (p.q_tiles * p.splits) * p.group * p.seq_q;
    for (int i = threadIdx.x; i < kBr * kMergeLanes; i += kThreads) {
        const int r = i / kMergeLanes, column = i % kMergeLanes * 4;
        const int block_row = coord.first_row + r;
        if (block_row >= coord.rows)
            break;
        if (column >= kHeadDimV)
            continue;
        MergedRow merged(smem, r, column, p.scale_log2);
        if constexpr (kDropout)
            merged.multiply(kept_scale(p));
        const int64 index = coord.index(p, block_row);
        if (has_all_keys(p, coord)) {
            write_whole(p, coord, merged, block_row, index, column, smem + kOldLse + r * 4);
        } else {
            const int64 at = kLengths ? coord.slot() * kBr + r : coord.split * all_rows + index;
            *reinterpret_cast<float4 *>(p.partial + at * kHeadDimV + column) = merged.o;
            if (column == 0)
                p.partial_lse[at] = merged.lse(p);
        }
    }
    if constexpr (kMerges)
        if (has_all_keys(p, coord))
            write_merged_lse(p, coord, smem);
}

// O += P V for one tile; P is what softmax_tile left in s. A step of the mainloop of fwd.cuh calls it. after_step: see
// products.cuh.
template <class Scale, class AfterStep>
__device__ __forceinline__ void
product_pv(float (&o)[kRowTiles][kOutTiles][4], const float (&s)[kRowTiles][kColTiles][4], RowState &, const Scale &,
           Dropout &dropout, int tile, uint32 v_smem, uint32 lane_values, AfterStep after_step)
{
#pragma unroll
    for (int step = 0; step < kBc / 16; step++) {
        uint32 a[kRowTiles][4];
        dropout.begin_step(tile, step);
#pragma unroll
        for (int m = 0; m < kRowTiles; m++) {
            const float(&left)[4] = s[m][2 * step];
            const float(&right)[4] = s[m][2 * step + 1];
            a[m][0] = pack2(left[0], left[1]);
            a[m][1] = pack2(left[2], left[3]);
            a[m][2] = pack2(right[0], right[1]);
            a[m][3] = pack2(right[2], right[3]);
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[m][i] = dropout.apply(a[m][i], m, i % 2, i / 2);
        }
#pragma unroll
        for (int n = 0; n < kOutTiles; n += 2) {
            uint32 b[4];
            ldmatrix_x4_trans(b, v_smem + ValueTile::pair_offset(lane_values, n / 2 * kParts) +
                                     step * 16 * ValueTile::kPitch);
#pragma unroll
            for (int m = 0; m < kRowTiles; m++) {
                mma_k16(o[m][n], a[m], b[0], b[1]);
                if (n + 1 < kOutTiles)  // an odd count: the last columns are padding
                    mma_k16(o[m][n + 1], a[m], b[2], b[3]);
            }
        }
        after_step(step);
    }
}

template <class Scores> using MadeP = Exp2P<Scores>;

// O needs no more than the division by the sums.
__device__ __forceinline__ void finish_output(const float (&)[kRowTiles][kOutTiles][4], RowState &, float) {}

// The empty policy: a warp has all columns of its rows.
__device__ __forceinline__ void put_scores(uint32, const float (&)[kRowTiles][kColTiles][4]) {}

__device__ __forceinline__ void add_scores(uint32, float (&)[kRowTiles][kColTiles][4]) {}

// The empty policy: rows of K and V have no scales.
struct ScaleHeads {
    __device__ __forceinline__ ScaleHeads(const Params &, const BlockCoord &, int) {}
};

struct ScaleFills {
    template <bool kFull, class... Any> __device__ __forceinline__ void issue_k_scales(const Any &...) {}

    template <bool kFull, class... Any> __device__ __forceinline__ void issue_v_scales(const Any &...) {}

    __device__ __forceinline__ void store_k_scales(uint32) {}

    __device__ __forceinline__ void store_v_scales(uint32) {}
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

    __device__ __forceinline__ TileRange(const Params &p, const BlockCoord &coord)
    {
        find_tiles(*this, p, coord);
        if constexpr (kSplit)
            take_share(*this, p, coord);
    }

private:
    // Reduces the range to this block's share if several blocks divide the keys.
    template <class Range>
    static __device__ __forceinline__ void take_share(Range &range, const Params &p, const BlockCoord &coord)
    {
        const int share = (range.count - range.first + coord.splits(p) - 1) / coord.splits(p);
        range.first = min(range.first + coord.split * share, range.count);
        range.count = min(range.first + share, range.count);
    }
};

// ---- loads: Q once, tiles of K and V --------------------------------------------------------------------------------
//
// fwd.cuh calls these in its prologue and in each step (step.cuh). issue_k is in key_rows.cuh and int8_scores.cuh. A
// team of warps processes every kTeams-th tile. Policies: ScaleHeads, ScaleFills (kv8_scales.cuh, no_scales.cuh).

using QueryFragments = uint32[kRowTiles][kDepth][4];
using QueryFill = Fill<kBr, kThreads>;
using ValueFill = Fill<kValueRows, kTeamThreads, kValueColumns>;
using KeyPlan = FillPlan<kBc, kTeamThreads, kKv8 ? kKeyColumns : kHeadDim>;

// The empty policy: V is loaded with K.
struct NoFill {
    template <bool kFull, class... Any> __device__ __forceinline__ void issue(const Any &...) {}

    __device__ __forceinline__ void store(uint32) const {}
};

// V has its own load plan if its rows and the rows of K differ.
constexpr bool kOwnValuePlan = kHeadDimV < kHeadDim || kParts > 1;

// The loads of tiles of K and V that are under way while another tile is processed.
struct KeyFills : ScaleFills {
    Fill<kBc, kTeamThreads, kKeyColumns> k;
    Either<kVInK, NoFill, ValueFill>::Type v;
};

using Pages = PageNumbersOf<KeyPlan>;

// Where a team's tiles of K and V come from and go to.
struct KeyStream : ScaleHeads {
    const char *k, *v;  // head pointers
    uint32 smem;
    int team;
};

// Starts copying a share of a tile of V, unless it is part of K.
template <bool kFull, class Plan>
__device__ __forceinline__ void issue_v_by(KeyFills &fills, const Pages &pages, const Params &p,
                                           const BlockCoord &coord, const KeyStream &to, const Plan &plan, Share share,
                                           int tile)
{
    const int last = coord.seq_k(p) - 1 - tile * kBc;
    const auto rows = rows_of(pages, plan, tile, p.features.v_steps);
    fills.v.template issue<kWide || kFull>(
        plan, share, v_stage(to.smem, to.team, tile), kWide ? kBc : coord.seq_k(p) - tile * kBc,
        [&](int r) { return rows.at(to.v, p.v_stride, kWide ? wide_key(r, last) : r); });
    fills.template issue_v_scales<kWide || kFull>(p, to, v_stage(to.smem, to.team, tile), pages, rows, plan, share,
                                                  tile, coord.seq_k(p) - tile * kBc,
                                                  [&](int r) { return kWide ? wide_key(r, last) : r; });
}

// Writes the scales of a tile from registers to shared memory, where they pass through registers.
__device__ __forceinline__ void store_scales(KeyFills &fills, const KeyStream &to, int tile)
{
    fills.store_k_scales(k_stage(to.smem, to.team, tile));
    fills.store_v_scales(v_stage(to.smem, to.team, tile));
}

template <bool kFull>
__device__ __forceinline__ void issue_v(KeyFills &fills, const Pages &pages, const Params &p, const BlockCoord &coord,
                                        const KeyStream &to, const KeyPlan &plan, Share share, int tile)
{
    if constexpr (kVInK)
        return;
    else if constexpr (kFp8Values)  // a tile takes as many bytes in the workspace as one of K
        fills.v.template issue<true>(ValueFill::Plan(), share, v_stage(to.smem, to.team, tile), kValueRows, [&](int r) {
            return to.v + int64(tile) * (kBc * kKeyColumns * kElemBytes) + r * kBc;
        });
    else if constexpr (kOwnValuePlan)
        issue_v_by<kFull>(fills, pages, p, coord, to, FillPlan<kBc, kTeamThreads, kValueColumns>(), share, tile);
    else
        issue_v_by<kFull>(fills, pages, p, coord, to, plan, share, tile);
}

// ---- loads of K as it is in memory, for exact_scores.cuh and kv8_scores.cuh ----------------------------------------

// The head pointer of the rows of K that are loaded.
__device__ __forceinline__ const char *loaded_keys(const Params &p, const BlockCoord &coord, int kv_head)
{
    return key_head(p.k, p.k_stride, coord, kv_head);
}

// Starts copying a share of a tile of K. kFull: all rows of the tile are before the tensor's end.
template <bool kFull>
__device__ __forceinline__ void issue_k(KeyFills &fills, const Pages &pages, const Params &p, const BlockCoord &coord,
                                        const KeyStream &to, const KeyPlan &plan, Share share, int tile)
{
    const int last = coord.seq_k(p) - 1 - tile * kBc;
    const auto rows = rows_of(pages, plan, tile, p.features.k_steps);
    fills.k.template issue<kWide || kFull>(
        plan, share, k_stage(to.smem, to.team, tile), kWide ? kBc : coord.seq_k(p) - tile * kBc,
        [&](int r) { return rows.at(to.k, p.k_stride, kWide ? wide_key(r, last) : r); });
    fills.template issue_k_scales<kWide || kFull>(p, to, k_stage(to.smem, to.team, tile), pages, rows, plan, share,
                                                  tile, coord.seq_k(p) - tile * kBc,
                                                  [&](int r) { return kWide ? wide_key(r, last) : r; });
}

// ---- S = Q K^T of the elements as they are ---------------------------------------------------------------------
//
// Policy of kernels that multiply 16-bit elements of Q and K as they are in memory. Others: int8_scores.cuh,
// kv8_scores.cuh.
using Queries = QueryFragments;

template <bool kInSoftmax>
__device__ __forceinline__ const Queries &make_queries(const QueryFragments &q_frag, const Params &, const BlockCoord &,
                                                       uint32, int)
{
    return q_frag;
}

// Products need no scale.
struct KeyScale {
    __device__ __forceinline__ KeyScale(const Queries &, int) {}
};

template <bool kInSoftmax, bool kMasked, class... Any>
__device__ __forceinline__ ScoresThemselves scale_scores(const Any &...)
{
    return {};
}

template <bool kInSoftmax, class... Any> __device__ __forceinline__ void end_scores(const Any &...) {}

// ---- what turns products of Q and K into scores, before terms are added and keys are hidden --------------------
//
// softcap: s = softcap * tanh(softmax_scale / softcap * (q k)). p.softcap_rate is the factor inside the tanh. The
// factor outside is part of the exponent: the host sets p.scale_log2 to softcap * log2(e).
constexpr bool kModified = kSoftcap;

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
    each_element(s, [=](float &x, int, int, int) { x = tanh_approx(x * rate); });
}

// Returns the derivative of the score with respect to the product, divided by softmax_scale. t: the tanh.
__device__ __forceinline__ float cap_slope(float t)
{
    return fmaf(-t, t, 1.0f);
}

// Modifies a tile of products.
template <int kM, int kN> __device__ __forceinline__ void modify_scores(float (&s)[kM][kN][4], const Params &p)
{
    if constexpr (kSoftcap)
        cap_scores(s, p.softcap_rate);
}

// Returns the derivative with respect to the product, divided by softmax_scale. score: as modified.
__device__ __forceinline__ float modifier_derivative(float score)
{
    return kSoftcap ? cap_slope(score) : 1.0f;
}

// ---- the two products of a tile ---------------------------------------------------------------------
//
// O += P V is a policy: product_pv.cuh, or product_pv_fp16.cuh with fp16 sums.
//
// A step of the mainloop of fwd.cuh calls both. after_step(step) is called after the instructions of each k16 step, so
// the copies that it issues run while the tensor cores work. Warps that share rows take every kParts-th pair of chunks.

// S += Q K^T for one tile. q_frag is used if Q is in registers, else q_smem (this warp's rows).
template <class AfterStep>
__device__ __forceinline__ void product_qk(float (&s)[kRowTiles][kColTiles][4],
                                           const uint32 (&q_frag)[kRowTiles][kDepth][4], uint32 q_smem, uint32 k_smem,
                                           uint32 lane_rows, uint32 lane_cols, AfterStep after_step)
{
#pragma unroll
    for (int step = 0; step < kDepth; step++) {
        uint32 a[kRowTiles][4];
#pragma unroll
        for (int m = 0; m < kRowTiles; m++) {
            if constexpr (kQInRegisters) {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    a[m][e] = q_frag[m][step][e];
            } else {
                ldmatrix_x4(a[m], q_smem + pair_offset(lane_rows, step * kParts) + m * 16 * kPitch);
            }
        }
#pragma unroll
        for (int n = 0; n < kColTiles; n += 2) {
            uint32 b[4];  // columns n * 8 ... + 15: b[0], b[1] of the first n8 tile, b[2], b[3] of the next
            ldmatrix_x4(b, k_smem + pair_offset(lane_cols, step * kParts) + n * 8 * kPitch);
#pragma unroll
            for (int m = 0; m < kRowTiles; m++) {
                mma_k16(s[m][n], a[m], b[0], b[1]);
                mma_k16(s[m][n + 1], a[m], b[2], b[3]);
            }
        }
        after_step(step);
    }
}

// ---- the mainloop's step: what a warp does with a tile of keys ------------------------------------------------------
//
// fwd.cuh calls mainloop_step for each tile, and has the timeline.

using ScoreTile = float[kRowTiles][kColTiles][4];
using OutputTile = float[kRowTiles][kOutTiles][4];
using BiasWords = uint32[kRowTiles][2][kColTiles];

constexpr int kSteps = kInt8Scores || kKv8 ? KeyTile::kChunks / 2 : kDepth;  // of S = Q K^T
constexpr bool kTermsBefore = kTermsFirst && !kInt8Scores && !kKv8;  // S begins with its terms; 8-bit S begins with 0

// A barrier for the threads of one team.
__device__ __forceinline__ void team_sync()
{
    if constexpr (kTeams == 1)
        __syncthreads();
    else if constexpr (kTeamThreads == 32)
        __syncwarp();
    else
        named_barrier(1 + threadIdx.x / kTeamThreads, kTeamThreads);
}

// Where a warp's rows are, and this lane's ldmatrix offsets.
struct WarpRows {
    uint32 q_smem;
    uint32 rows, cols, values;
    int first_row;  // of the warp, in the tensor
    int lane;
};

// With three stages, scales that pass through registers belong to the tile after the awaited one.
constexpr int kScalesAhead = kHalfScales && kKStages > 2 ? kKStages - 2 : 0;

// Waits for K of the tile, and for V if they are one stage.
__device__ __forceinline__ void await_k(KeyFills &fills, uint32 k_smem, uint32 v_smem)
{
    fills.k.store(k_smem);
    if constexpr (kScalesAhead == 0)
        fills.store_k_scales(k_smem);
    if constexpr (kJoint) {
        fills.v.store(v_smem);
        if constexpr (kScalesAhead == 0)
            fills.store_v_scales(v_smem);
        fill_wait<kKStages - 2>();
        team_sync();  // K and V are complete; the tile before is read, its stage is free
    } else {
        fill_wait<0>();
        team_sync();  // K is complete; V of the tile before is read, and Q if V takes its area; so V can be loaded
    }
}

// Waits for V of the tile.
__device__ __forceinline__ void await_v(KeyFills &fills, uint32 v_smem)
{
    fills.v.store(v_smem);
    fills.store_v_scales(v_smem);
    fill_wait<kKStages - 1>();
}

// Starts the copies that run during the step: the next tile, and V of this tile unless it came with K.
template <bool kMasked>
__device__ __forceinline__ void issue_whole(KeyFills &fills, Pages &pages, const Params &p, const BlockCoord &coord,
                                            const KeyStream &to, int tile, int next, bool has_next)
{
    if constexpr (!kJoint) {  // only a masked tile can reach beyond the end
        issue_v<!kMasked>(fills, pages, p, coord, to, KeyPlan(), kWhole, tile);
        fill_commit();
        pages.pass();  // to K of the next tile
    }
    if (kKStages > 1 && has_next) {
        const KeyPlan plan;
        issue_k<true>(fills, pages, p, coord, to, plan, kWhole, next);
        if constexpr (kJoint)
            issue_v<true>(fills, pages, p, coord, to, plan, kWhole, next);
    }
}

// S = Q K^T of the tile, with the copies that run meanwhile.
template <bool kMasked>
__device__ __forceinline__ void compute_s(ScoreTile &s, const Queries &queries, KeyFills &fills, Pages &pages,
                                          const Params &p, const BlockCoord &coord, const KeyStream &to,
                                          const WarpRows &own, uint32 k_smem, int tile, int next, bool has_next)
{
    if constexpr (!kTermsBefore)
        clear(s);
    if constexpr (kSpreadFill) {
        const KeyPlan plan;
        product_qk(s, queries, own.q_smem, k_smem, own.rows, own.cols, [&](int step) {
            issue_k<true>(fills, pages, p, coord, to, plan, {step, kSteps, has_next}, next);
            issue_v<true>(fills, pages, p, coord, to, plan, {step, kSteps, has_next}, next);
        });
    } else {
        constexpr int kFillStep = kJoint ? kSteps - 1 : 0;  // if not kJoint, V of this tile is waited for after S
        product_qk(s, queries, own.q_smem, k_smem, own.rows, own.cols, [&](int step) {
            if (step == kFillStep)
                issue_whole<kMasked>(fills, pages, p, coord, to, tile, next, has_next);
        });
    }
}

// Sums S over the warps that share rows (sum_scores.cuh).
__device__ __forceinline__ void sum_parts(ScoreTile &s, KeyFills &fills, uint32 smem, uint32 v_smem)
{
    put_scores(smem, s);
    if constexpr (!kJoint)
        await_v(fills, v_smem);
    team_sync();  // all of S is there; unless they are one stage, V is complete, and K is read
    add_scores(smem, s);
}

// Modifies S, and applies the terms that are added after the product.
template <bool kMasked>
__device__ __forceinline__ void modify(ScoreTile &s, const Params &p, const Terms &terms, const BiasWords &words,
                                       int tile)
{
    modify_scores(s, p);
    if constexpr (kBiasAhead)
        terms.template add<kMasked>(s, words, tile);
    else if constexpr (kTerms && !kTermsBefore)
        terms.template apply<kMasked, true>(s, tile);
}

// True if only a mask comes between products and softmax: then the softmax scales the products itself.
constexpr bool kScaledInSoftmax = !kModified && !kTerms;

// Softmax of a tile, and O += P V. The next K is copied meanwhile if it has one stage of its own.
template <bool kMasked, class Scores>
__device__ __forceinline__ void compute_o(ScoreTile &s, const Scores &scores, const KeyScale &scale, OutputTile &o,
                                          RowState &row, Dropout &dropped, KeyFills &fills, const Pages &pages,
                                          const Params &p, const BlockCoord &coord, const KeyStream &to,
                                          const WarpRows &own, uint32 v_smem, int tile, int next, bool has_next)
{
    if constexpr (kMasked)
        mask_scores(s, p, coord, own.first_row, tile, own.lane);
    softmax_tile<kMayBeUnseen<kMasked>, MadeP>(s, row, o, p.scale_log2, scores);
    product_pv(o, s, row, scale, dropped, tile, v_smem, own.values, [&](int step) {
        if (!kVInK && kKStages == 1 && step == 0 && has_next)
            issue_k<true>(fills, pages, p, coord, to, KeyPlan(), kWhole, next);
    });
}

// One step of the mainloop.
template <bool kMasked>
__device__ __forceinline__ void mainloop_step(OutputTile &o, RowState &row, const Queries &queries, Dropout &dropped,
                                              const Terms &terms, KeyFills &fills, Pages &pages, const Params &p,
                                              const BlockCoord &coord, const TileRange &tiles, const KeyStream &to,
                                              const WarpRows &own, const int &tile)
{
    const uint32 k_smem = k_stage(to.smem, to.team, tile), v_smem = v_stage(to.smem, to.team, tile);
    ScoreTile s;
    BiasWords words;
    bool seen = true;  // false: no row of this warp sees a key of the tile; it takes part in copies and barriers only
    pages.find_next(tile);  // the look-ups run while S is computed
    if constexpr (kTermsBefore)
        seen = terms.template apply<kMasked, false>(s, tile);
    else if constexpr (kBiasAhead)
        terms.template load<kMasked>(words, tile);
    const KeyScale scale(queries, tile);
    if (kScalesAhead > 0 && tile - kScalesAhead * kTeams >= tiles.first)
        store_scales(fills, to, tile - kScalesAhead * kTeams);
    await_k(fills, k_smem, v_smem);
    const int next = tile - (kKStages > 1 ? kKStages - 1 : 1) * kTeams;
    const bool has_next = next >= tiles.first;
    if (!kSkips || seen)
        compute_s<kMasked>(s, queries, fills, pages, p, coord, to, own, k_smem, tile, next, has_next);
    else
        issue_whole<kMasked>(fills, pages, p, coord, to, tile, next, has_next);
    if constexpr (kKStages > 1)
        fill_commit();
    if constexpr (kParts > 1)
        sum_parts(s, fills, to.smem, v_smem);
    const auto scores = scale_scores<kScaledInSoftmax, kMasked>(s, queries, scale, k_smem, own.lane);
    modify<kMasked>(s, p, terms, words, tile);
    if constexpr (kParts == 1 && !kJoint) {
        await_v(fills, v_smem);
        team_sync();  // V is complete; K is read, so it is free
    }
    if (!kSkips || seen)
        compute_o<kMasked>(s, scores, scale, o, row, dropped, fills, pages, p, coord, to, own, v_smem, tile, next,
                           has_next);
    if constexpr (kVInK && kKStages == 1)
        team_sync();  // V is read: the next K comes into its place
    if (kKStages == 1 && has_next && (kVInK || (kSkips && !seen)))
        issue_k<true>(fills, pages, p, coord, to, KeyPlan(), kWhole, next);
    if constexpr (kKStages == 1)
        fill_commit();
}
// ---- programmatic dependent launch: a kernel starts while the one before it runs; SM 9.0 and newer -------------
//
// A launch with this attribute (runtime/cuda/launch.c) starts when all blocks of the kernel before have called
// let_next_step_begin, or have ended, and there is room. Elsewhere kernels follow each other, and these functions do
// nothing.

__device__ __forceinline__ void let_next_step_begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the kernel before has ended and its writes are visible. All threads must wait, so that this kernel ends
// after it.
__device__ __forceinline__ void await_step_before()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- forward ----------------------------------------------------------------------------------------
//
// The kernel of fwd_sm75, fwd_sm80 and fwd_bytes_sm89, and of the families that split keys (entry.cu.in calls
// `forward`). One block computes kBr rows of O. The mainloop goes through the tiles of K and V from the last to the
// first; `mainloop_step` of step.cuh is one step. So the tiles that need a mask (the tensor's end, the causal diagonal)
// come first, and the loop over the others has no compare code. With a window, there are tiles to mask at both ends.
//
// Each feature changes one place. Features that a kernel lacks are compiled out.
//
//     which tiles are processed           tiles.cuh, full.cuh, window.cuh
//     which keys a row sees               full.cuh, window.cuh
//     where a row of K or V lies          keys.cuh, pages.cuh
//     whether Q, K are rounded to int8    exact_scores.cuh, int8_scores.cuh
//     whether P, V are rounded to e4m3    product_pv.cuh, product_pv_fp8.cuh; fp8_p.cuh
//     K and V in 8 bits                   kv8_scores.cuh, kv8_values.cuh
//     what is added to scores             terms.cuh
//     what dropout leaves of P            dropout.cuh; only product_pv reads it
//     how a row begins and ends           softmax.cuh, row_ends.cuh
//
// Timeline of the step of tile t, with the copies that run meanwhile. K and V of a tile are one stage (kJoint, two or
// three stages):
//
//   wait K, V (t) | S = Q K^T    softmax   O += P V
//                            | copy K, V (t - 1, or t - 2 with three stages) ........
//
// The copies are issued with the last part of S, or divided among its parts (kSpreadFill).
//
// or K and V have separate stages, with two barriers per step (one or two stages of K):
//
//   wait K (t) | S = Q K^T        | wait V (t) | softmax   O += P V
//              | copy V (t) ..... |            | copy K (t - 1), into its one stage
//              | copy K (t - 1), with two stages of K .............
//
// Barriers per tile: one if kJoint, else two. The comment at each barrier says what it orders. A team of warps
// processes every kTeams-th tile and waits only for its own members.

// Reads this warp's rows of Q into registers.
__device__ __forceinline__ void read_q(QueryFragments &q_frag, const WarpRows &own)
{
    __syncthreads();  // Q is complete before it is read
    each_of<kRowTiles, kDepth>([&](int m, int step) {
        ldmatrix_x4(q_frag[m][step], own.q_smem + pair_offset(own.rows, step * kParts) + m * 16 * kPitch);
    });
    if constexpr (kJoint || kTeams > 1)
        __syncthreads();  // Q is read before V is loaded into its area
}

// Loads Q, and the first tiles of K and V.
__device__ __forceinline__ void prologue(QueryFragments &q_frag, QueryFill &q_fill, KeyFills &fills, Pages &pages,
                                         const Params &p, const BlockCoord &coord, const TileRange &tiles,
                                         const KeyStream &to, const WarpRows &own, uint32 q_area, const int &tile)
{
    // Only the first tile that is processed can reach beyond the tensor's end.
    q_fill.template issue<false>(FillPlan<kBr, kThreads>(), kWhole, q_area, coord.rows - coord.first_row, [&](int r) {
        return p.q + coord.offset(p, p.q_stride, coord.first_row + r) * kElemBytes;
    });
    if (kTeams == 1 || tile >= tiles.first)
        issue_k<false>(fills, pages, p, coord, to, KeyPlan(), kWhole, tile);
    fill_commit();
    q_fill.store(q_area);
    if constexpr (kQInRegisters && !kQBehind) {
        fill_wait<0>();
        read_q(q_frag, own);
    }
    if constexpr (kJoint) {
        if (kTeams == 1 || tile >= tiles.first)
            issue_v<false>(fills, pages, p, coord, to, KeyPlan(), kWhole, tile);
        fill_commit();
#pragma unroll
        for (int ahead = 1; ahead < kKStages - 1; ahead++) {
            pages.pass();  // to this tile
            if (kScalesAhead > 0 && (kTeams == 1 || tile >= tiles.first))
                store_scales(fills, to, tile - (ahead - 1) * kTeams);
            if (tile - ahead * kTeams >= tiles.first) {
                issue_k<true>(fills, pages, p, coord, to, KeyPlan(), kWhole, tile - ahead * kTeams);
                issue_v<true>(fills, pages, p, coord, to, KeyPlan(), kWhole, tile - ahead * kTeams);
            }
            fill_commit();
        }
    }
    if constexpr (kQBehind) {  // Q came through the area of V (tile.cuh)
        fill_wait<kKStages - 1>();
        read_q(q_frag, own);
    }
    if constexpr (kTeams > 1 && !kQInRegisters) {
        fill_wait<kJoint ? kKStages - 1 : 0>();
        __syncthreads();  // Q is complete: all threads loaded it, but a team's barrier covers the team only
    }
}

// The kernel; kThreads threads.
__device__ __forceinline__ void forward(const Params &p)
{
    extern __shared__ __align__(128) char shared[];
    if constexpr (kSplit)
        let_next_step_begin();
    if constexpr (kInt8Scores)
        await_step_before();  // K, and V if it is rounded, are written before they are read
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    const int lane = threadIdx.x % 32;
    const int team = kTeams > 1 ? threadIdx.x / kTeamThreads : 0;
    const int team_warp = threadIdx.x / 32 - team * (kTeamThreads / 32);
    const int warp_row = team_warp / kParts * (16 * kRowTiles);  // this warp's first row in the block
    const BlockCoord coord(p, WorkOfGrid());
    if constexpr (kVarlen)
        clear_unused_rows(p);
    if constexpr (kVarlen || (kSplit && kLengths))
        if (coord.batch < 0)
            return;
    const TileRange tiles(p, coord);

    const uint32 lane_rows = pair_offset(RowTile::lane_offset_rows(lane), own_part());
    const uint32 lane_cols = KeyTile::pair_offset(KeyTile::lane_offset_cols(lane), own_part());
    const uint32 lane_of_values = kFp8Values ? ValueTile::lane_offset_cols(lane) : ValueTile::lane_offset_rows(lane);
    const uint32 lane_values = ValueTile::pair_offset(lane_of_values, own_part());
    const uint32 q_area = kQBehind ? v_stage(smem, 0, tiles.count - 1 + kTeams) : smem + kQArea;
    const WarpRows own{q_area + warp_row * kPitch, lane_rows, lane_cols, lane_values, coord.first_row + warp_row, lane};

    OutputTile o = {};
    RowState row;
    begin_rows(row, p);

    QueryFragments q_frag;
    if (tiles.count > tiles.first) {
        QueryFill q_fill;
        KeyFills fills;
        const int kv_head = coord.kv_head(p);
        const char *k_head = loaded_keys(p, coord, kv_head);
        const char *v_head = loaded_values(p, coord, kv_head);
        const KeyStream to{ScaleHeads(p, coord, kv_head), k_head, v_head, smem, team};
        int tile = tiles.count - 1 - team;
        Pages pages(p, coord);
        pages.find_first(tile);
        Dropout dropped(p, coord, coord.first_row + warp_row, lane);
        const Terms terms(p, coord, coord.first_row + warp_row, lane);
        prologue(q_frag, q_fill, fills, pages, p, coord, tiles, to, own, q_area, tile);
        const uint32 means = smem + kMeanArea + warp_row * 4;
        const auto &queries = make_queries<kScaledInSoftmax>(q_frag, p, coord, means, lane);
        auto step = [&](auto masked) {
            mainloop_step<decltype(masked)::value>(o, row, queries, dropped, terms, fills, pages, p, coord, tiles, to,
                                                   own, tile);
        };
        if constexpr (kWindow != Window::kNone) {
            // A single loop over the remaining tiles: a third loop after the two would take registers, which spill
            // elsewhere.
#pragma unroll 1
            for (; tile >= tiles.first; tile -= kTeams)
                if (tile >= tiles.unmasked || tile < tiles.plain)
                    step(Bool<true>{});
                else
                    step(Bool<false>{});
        } else {
#pragma unroll 1
            for (; tile >= max(tiles.unmasked, tiles.first); tile -= kTeams)
                step(Bool<true>{});
#pragma unroll 1
            for (; tile >= tiles.first; tile -= kTeams)
                step(Bool<false>{});
        }
        end_scores<kScaledInSoftmax>(row, means, lane);
    }
    // Epilogue.
    finish_output(o, row, p.scale_log2);
    write_rows<OutputForm>(p, coord, o, row, smem, warp_row, lane);
}

// ---- the kernel after the main one: combines the splits of a row --------------------------------------------
//
// The entry points are in entry.cu.in and hopper/fwd_splitkv_sm90.cu.in.
//
// One warp per row of O. Lanes divide the splits to compute their weights, and then the columns. The time of this
// kernel is latency: of its loads, so the first parts are loaded while the weights are computed; and of instruction
// fetch, so the code is short.

constexpr int kPartsAhead = 16;  // parts of a row that are loaded at once
static_assert(kMaxSplits % kPartsAhead == 0, "there are weights for whole steps");

// The partial results of a row of O. All row tiles have the same number of them; if sequences have their own lengths, a
// row has one per share of its row tile.
struct RowParts {
    int splits;
    int64 first, step;  // index of the first part, and distance to the next

    template <class AnyParams>
    __device__ __forceinline__ RowParts(const AnyParams &p, int64 row, int64 rows, int batch, int head, int query)
        : splits(p.splits), first(row), step(rows)
    {
        if constexpr (kLengths) {
            const auto slots = slots_of(p, batch);
            const int r = query * p.group + head % p.group, all_slots = kVarlen ? part_slots(p) : p.features.slots;
            const int slot = (kVarlen ? slots.first_part : slots.first) + r / kBr * slots.shares;
            // If cu_seqlens decreases (invalid), there would be more slots than memory: such rows are skipped.
            splits = slot + slots.shares <= all_slots ? slots.shares : 1;
            first = (int64(head / p.group) * all_slots + slot) * kBr + r % kBr;
            step = kBr;
        }
    }
};

// Returns the first element of a row. row: among all packed rows, or of its batch.
__device__ __forceinline__ int64 offset_of(const Strides &stride, int batch, int head, int row)
{
    if constexpr (kVarlen)
        return head * stride.head + row * stride.seq;
    else
        return batch * stride.batch + head * stride.head + row * stride.seq;
}

// Writes this lane's columns of O, if it has any. from: those before. Returns LSE to be written.
__device__ __forceinline__ float put_partial(char *to, const char *from, int own_splits, const float4 &x, float inverse,
                                             const Merge &merge)
{
    if (own_splits > 0)
        merge.put(to, merge.read<float4>(from), float4{x.x * inverse, x.y * inverse, x.z * inverse, x.w * inverse});
    return merge.lse;
}

// The kernel.
template <int kBlockThreads, class AnyParams> __device__ __forceinline__ void combine(const AnyParams &p)
{
    constexpr int kBlockWarps = kBlockThreads / 32;
    __shared__ __align__(16) float weights[kBlockWarps][kMaxSplits];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64 rows = kVarlen ? int64(p.heads_q) * p.features.total_q : int64(p.batch) * p.heads_q * p.seq_q;
    const int64 row = int64(blockIdx.x) * kBlockWarps + warp;
    int head, query, batch, packed;
    if constexpr (kVarlen) {
        head = row / p.features.total_q;
        packed = row % p.features.total_q;
    } else {
        query = row % p.seq_q;
        const int64 batch_head = row / p.seq_q;
        head = batch_head % p.heads_q;
        batch = batch_head / p.heads_q;
    }
    await_step_before();
    if (row >= rows)
        return;
    if constexpr (kVarlen) {
        batch = sequence_of_row(p, packed);
        const auto sequence = sequence_of(p, batch);
        query = packed - sequence.first_q;
        if (query < 0 || query >= sequence.seq_q)
            return;  // the row belongs to no sequence
    }
    auto offset = [&](const Strides &stride) { return offset_of(stride, batch, head, kVarlen ? packed : query); };
    char *const o = p.o + offset(p.o_stride) * kOutBytes;
    const char *const old_o = old_row(p, o, offset);
    const RowParts row_parts(p, row, rows, batch, head, query);
    if (kLengths && row_parts.splits == 1)
        return;  // its only block has written it
    const int splits = row_parts.splits;
    const float *const lse_parts = p.partial_lse + row_parts.first;
    const int64 step = row_parts.step;
    const float own_lse = kMerges && lane == 0 ? p.lse[row] : minus_infinity();  // lane 0 also writes it
    const float old_lse = kMerges ? __shfl_sync(0xffffffffu, own_lse, 0) : own_lse;

    float most = lane < splits ? lse_parts[lane * step] : minus_infinity();  // used after the loads of parts are issued
    float sum = 0.0f;
    auto find_weights = [&] {
#pragma unroll 1
        for (int split = lane + 32; split < splits; split += 32)
            most = fmaxf(most, lse_parts[split * step]);
        most = warp_max(most);
#pragma unroll 1
        for (int split = lane; split < (splits + kPartsAhead - 1) / kPartsAhead * kPartsAhead; split += 32) {
            const bool any = split < splits && most != minus_infinity();
            const float weight = any ? expf(lse_parts[split * step] - most) : 0.0f;
            weights[warp][split] = weight;
            sum += weight;
        }
        sum = warp_sum(sum);
        __syncwarp();  // the weights are this warp's own: its stores before its loads
    };
#pragma unroll 1
    for (int begin = 0; begin < kHeadDimV; begin += 128) {
        const int column = begin + lane * 4;
        const int own_splits = column < kHeadDimV ? splits : 0;
        const float *at = p.partial + row_parts.first * kHeadDimV + column;
        float4 x{0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
        for (int first = 0; first < splits; first += kPartsAhead) {
            float4 part[kPartsAhead];
#pragma unroll
            for (int i = 0; i < kPartsAhead; i++) {
                part[i] = float4{0.0f, 0.0f, 0.0f, 0.0f};
                if (first + i < own_splits)
                    part[i] = *reinterpret_cast<const float4 *>(at);
                at += step * kHeadDimV;
            }
            if (begin + first == 0)
                find_weights();
#pragma unroll
            for (int i = 0; i < kPartsAhead; i++) {
                const float weight = weights[warp][first + i];
                x.x += weight * part[i].x;
                x.y += weight * part[i].y;
                x.z += weight * part[i].z;
                x.w += weight * part[i].w;
            }
        }
        float inverse = row_inverse(sum), lse = row_lse(most, sum);
        if constexpr (kSinks) {
            const SinkEnd end(most, sum, sum, sink_of_head(p, head));
            inverse = end.inverse;
            lse = end.lse;
        }
        if constexpr (kPartial || kCarry)
            lse = put_partial(o + column * kOutBytes, old_o + column * 4, own_splits, x, inverse, Merge(lse, old_lse));
        else if (own_splits > 0)
            *reinterpret_cast<uint2 *>(o + column * kElemBytes) =
                uint2{pack2(x.x * inverse, x.y * inverse), pack2(x.z * inverse, x.w * inverse)};
        if (p.lse != nullptr && begin + lane == 0)
            p.lse[row] = lse;
    }
}

extern "C" __global__ void __launch_bounds__(kThreads) fwd_splitkv_sm80(const __grid_constant__ Params p)
{
    forward(p);
}
// ---- entry points of the kernels before and after the main one: each function gets the threads of a block ----------
extern "C" __global__ void __launch_bounds__(128) fwd_splitkv_sm80_combine(const __grid_constant__ Params p)
{
    combine<128>(p);
}
