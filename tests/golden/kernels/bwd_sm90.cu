// bwd_sm90 d=128 dtype=bf16 causal=1 br=64
// op=backward abi=1 rows=64 keys=128 columns=128 workspace=rows_and_dq suffix=a maps=q/64,k/128,v/128,do/64; bwd_sm90_prepare role=prepare threads=256 smem=0 blocks=padded_rows/16; bwd_sm90 role=main threads=384 smem=164944 blocks=key_tiles; bwd_sm90_convert role=convert threads=256 smem=0 blocks=padded_rows/32
// bwd_sm90: attention backward on SM 9.0. fp16 or bf16, wgmma, tiles loaded by TMA.

// ---- the problem, the element, the SM and the features; a feature that is off costs nothing ----------------------
constexpr int kHeadDim = 128;         // D: columns of Q and K
constexpr int kHeadDimV = 128;        // columns of V and O
constexpr bool kCausal = 1 == 1;   // query i sees keys <= i + seq_k - seq_q
constexpr int kGeneratorSmemBytes = 164944;
enum class Products { mma_k8, mma_k16, wgmma };
constexpr Products kProducts = Products::wgmma;  // the instruction of products
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
#define FA2_SCORE_PARAMS false  // members of the cap and of the window
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
constexpr bool kSeqused = false;  // each sequence has its own number of keys
constexpr bool kVarlen = false;  // sequences are packed one after the other
constexpr bool kPaged = false;  // K and V lie in pages, which a table names
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
#define FA2_FEATURES false

// Constants instead of parameters, for kernels without features: those that code which is compiled out reads.
struct FeatureParams {
    static constexpr const float *carried = nullptr;
    static constexpr Strides carried_stride{};
    static constexpr float inverse_scale = 0.0f, keep_scale = 0.0f;
    static constexpr int slots = 0, total_q = 0, drop_bound = 0;
    static constexpr int64 bias_batch = 0, bias_head = 0;
    static constexpr PageSteps k_steps{}, v_steps{};
};

// One flat struct: with its parts as base classes, ptxas chooses other registers (gate.py).
struct Params {
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
FA2I_PARAM(FLOAT, scale_log2) /* log2(e) * scale, or log2(e) * the cap: factor of scores in the exponent */
FA2I_PARAM(INT, seq_q)
FA2I_PARAM(INT, seq_k)
FA2I_PARAM(INT, heads_q)
FA2I_PARAM(INT, group) /* query heads per key/value head */
FA2I_PARAM(INT, batch)
FA2I_PARAM(INT, q_tiles) /* ceil(seq_q / Br) */
FA2I_PARAM(INT, k_tiles) /* ceil(seq_k / Bc) */
FA2I_PARAM(INT, splits) /* blocks that share the queries of a tile of keys */

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
static_assert(sizeof(Params) == 320 + (FA2_SCORE_PARAMS ? 16 : 0) + (FA2_FEATURES ? sizeof(FeatureParams) : 0),
              "what the runtime passes");
// ---- configuration of all backward families --------------------------------------------------------------------
constexpr int kBr = 64;                  // query rows per tile
constexpr int kBc = 128;                  // key rows per block
constexpr int kQueryWarps = 1;   // warps that divide the queries of S^T and dP^T, and the columns of dK and dV
constexpr int kStages = 2;               // stages of Q and dO in shared memory
// The order of products. mma.sync: dP is computed before P (mainloop.cuh). wgmma: dV is started after dS
// (hopper/bwd_key_rows.cuh).
constexpr bool kLate = false;
enum class Dq { atomic, separate, block, bulk, group };  // how blocks sum dQ:
constexpr Dq kDq = Dq::atomic;
constexpr bool kDqSeparate = kDq == Dq::separate;  // separate blocks compute it, and S and dP again
constexpr bool kDqBlock = kDq == Dq::block;        // a block has all keys of a head, one tile after the other
constexpr bool kDqBulk = kDq == Dq::bulk;          // the copy engine adds it; else warps do, from registers
constexpr bool kDqWarpgroup = kDq == Dq::group;    // a warpgroup computes it alone
constexpr int kDqOrder = 0;            // blocks add to dQ in any order (0), in that of keys, or reversed (2)
constexpr bool kDqInOrder = kDqOrder > 0, kLastKeysFirst = kDqOrder == 2;  // see dq_order.cuh
constexpr bool kLastTileFirst = kDqInOrder && !kLastKeysFirst;             // order of tiles of queries (tiles.cuh)
constexpr bool kPrepared = true;        // a kernel before computes LSE and delta; else each block does
constexpr int kSplitBy = 0;          // 1, 2: several blocks share the queries of a tile of keys
constexpr bool kSplit = kSplitBy > 0;
constexpr bool kHeadBlocks = kSplitBy == 2;  // they have some query heads of a group each, and add to dK and dV
constexpr bool kByProduct = kWgmma && kHeadDim > 128;  // warpgroups divide the products of a tile, not its keys
constexpr int kWriters = 256;           // threads that write a tile of dK, or of dV
constexpr int kConvertRows = 32;  // rows of dQ of a block that converts it
// ---- the variant -------------------------------------------------------------------------------
constexpr int kGroups = 2;         // consumer warpgroups
constexpr int kDqColumns = 64;  // columns of dQ per warpgroup, or at a time

// ---- derived constants -----------------------------------------------------------------------------------------
constexpr bool kDvLate = kLate;      // dV is started after dS is made
constexpr bool kHeavyFirst = false;  // blocks with the most work first, within kTogether
constexpr unsigned kTogether = 128;  // tiles of keys, over several heads, that are interleaved
// The least number of heads that are interleaved. If blocks of a head add to dQ in the order of their keys, each starts
// a little after the one before. With more heads, fewer blocks of each head run at a time, and the last of them starts
// sooner.
constexpr unsigned kLeastHeads = kLastKeysFirst ? 1 : kDqInOrder ? 16 : 8;
constexpr bool kAlways = kByProduct && kDropout;  // dV and dK are computed even if not wanted
constexpr bool kSwizzle = true;                   // rows of a tile: 16-byte chunks permuted by row
constexpr int kGroupKeys = 64;                    // M of wgmma
constexpr int kWarps = 4 * kGroups;               // consumer warps
constexpr int kReaders = 8;                       // consumer warps that read a stage of Q, and that read one of dO
constexpr int kWorkers = 32 * kWarps;
constexpr int kKeyGroups = kDqWarpgroup ? kGroups - 1 : kGroups;  // warpgroups with rows of S^T (not kByProduct)
constexpr int kKeyWorkers = 128 * kKeyGroups;
constexpr bool kDsBarriers = kByProduct || kDqWarpgroup || kDqBulk;  // dS^T has mbarriers
// If blocks add in a fixed order, a thread of the producer does what would hold up others (bwd_producer.cuh).
constexpr bool kCountsApart = kDqWarpgroup && kDqInOrder;       // it counts tiles and gives the stages of dS^T back
constexpr bool kAddsApart = kDqBulk && kDqInOrder;              // it lets the copy engine add dQ, and counts
constexpr int kScoreWriters = kByProduct ? 4 : 4 * kKeyGroups;  // warps that write a stage of dS^T
constexpr int kScoreReaders = kDqBulk ? kWarps : kCountsApart ? 1 : 4;  // arrivals for a stage that was read
constexpr int kThreads = kWorkers + 128;                                // the last warpgroup is the producer
constexpr int kHeadDimPadded = (kHeadDim + 15) / 16 * 16;
constexpr int kHeadDimVPadded = kHeadDimPadded;
constexpr bool kHoldsKeys = kDqWarpgroup && kDvLate && kHeadDimPadded <= 64;  // K and V are in registers
constexpr int kDepth = kHeadDimPadded / 16;                                   // k16 steps of S and dP
constexpr int kPages = (kHeadDim + 63) / 64;                                  // pages of 64 columns per tile
constexpr int kKeyTiles = 1;                                                  // m16 tiles of keys per warp
constexpr int kQueryTiles = kBr / 8;                                          // n8 tiles of queries
constexpr int kQuerySteps = kBr / 16;                                         // k16 steps of dK and dV
constexpr int kOutPairs = kDepth;  // 16-column pairs of n8 tiles of dK and dV
// How warps divide dQ. kByProduct: one warpgroup computes it, 64 columns at a time. kDqWarpgroup: one warpgroup
// computes all columns. Else each warpgroup has 64 rows, and warpgroups with the same rows divide the columns.
constexpr int kRowGroups = kBr / 64, kColWarps = kByProduct     ? kPages
                                                 : kDqWarpgroup ? (kHeadDimPadded + kDqColumns - 1) / kDqColumns
                                                                : kGroups / kRowGroups;
constexpr int kDqRowTiles = 1, kDqPartTiles = 1;  // m16 tiles per warp
constexpr int kDqPairs = kDqColumns / 16;

static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 256 && kByProduct == (kHeadDim > 128),
              "D is a multiple of 8 up to 256; warpgroups divide the products of more than 128 columns");
static_assert(kByProduct ? kBr == 64 && kBc == kGroupKeys && kGroups == 3
                         : kBr % 64 == 0 && (kDqWarpgroup ? kBr == 64 : kGroups % kRowGroups == 0) &&
                               kBc == kKeyGroups * kGroupKeys && kReaders == 4 * kKeyGroups,
              "each warpgroup has a product of 64 queries and keys; or they divide dQ and keys evenly, and read all");
static_assert(kColWarps * kDqColumns >= kHeadDimPadded, "all of dQ is computed");
// All warpgroups are launched with the same number of registers. Then the producer, and the warpgroup that computes dQ
// alone, give some to those that have scores.
constexpr int kLoadRegisters = 24, kGroupRegisters = kGroups == 3 ? 208 : 240;
constexpr int kAllRegisters = (kGroups + 1) * (65536 / kThreads / 8 * 8);
constexpr int kDqRegisters = kAllRegisters - kLoadRegisters - 2 * kGroupRegisters;
static_assert(kDqRegisters >= (kByProduct || kDqWarpgroup ? 24 : 0),
              "all warpgroups together have no more registers than at launch");

// ---- shared memory -----------------------------------------------------------------------------
//
// Tiles are pages of 64 columns, [page][row][64]: rows of 128 bytes, whose 16-byte chunks are permuted by row % 8. This
// is the 128-byte swizzle that TMA writes and wgmma reads. dS^T [keys][queries] has the same layout.
constexpr int kPageRowBytes = 128, kPageColumns = kPageRowBytes / kElemBytes;
constexpr int kQPageBytes = kBr * kPageRowBytes;
constexpr int kQTileBytes = kPages * kQPageBytes;
constexpr int kKvPageBytes = kBc * kPageRowBytes;
constexpr int kKvTileBytes = kPages * kKvPageBytes;
// Distance in a tile of K from the columns of one part of dQ to those of the next.
constexpr int kDqColumnBytes = kDqColumns == kPageColumns ? kKvPageBytes : kDqColumns * kElemBytes;
constexpr int kScoreBytes = kRowGroups * kKvPageBytes;
// Stages of dS^T: one is written while others may still read the one before.
constexpr int kScoreStages = kStages;
constexpr int kRowBytes = kBr * 4;  // LSE in log2 units, or delta, of the rows of a tile
constexpr int kKArea = 0;
constexpr int kVArea = kKArea + kKvTileBytes;
constexpr int kQArea = kVArea + kKvTileBytes;
constexpr int kDoArea = kQArea + kStages * kQTileBytes;
constexpr int kScoreArea = kDoArea + kStages * kQTileBytes;
constexpr int kPArea = kScoreArea + kScoreStages * kScoreBytes;  // P^T in fp32, in accumulator layout (kByProduct)
constexpr int kPTileBytes = 32 * 16;                             // 16 keys, 8 queries
constexpr int kLseArea = kPArea + (kByProduct ? 4 * kQueryTiles * kPTileBytes : 0);
constexpr int kDeltaArea = kLseArea + kStages * kRowBytes;
constexpr int kBarrierArea = kDeltaArea + kStages * kRowBytes;
constexpr int kExchangeArea = kBarrierArea + (2 + 4 * kStages) * 8;  // mbarriers of P^T and dS^T
constexpr int kExchangeBytes = kDsBarriers ? (2 + (kCountsApart ? 3 : 2) * kScoreStages) * 8 : 0;
// kDqBulk: a part of dQ for each warp, [n8 tile][lane][4] numbers.
constexpr int kDqArea = (kExchangeArea + kExchangeBytes + 127) / 128 * 128, kDqPartBytes = 16 * kDqColumns * 4;
constexpr int kSmemBytes = kDqBulk ? kDqArea + kWarps * kDqPartBytes : kExchangeArea + kExchangeBytes;
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
// T: FA2I_TILE, or what else lists the registers of a column tile.
#define FA2I_TILES_8(T) T(0)
#define FA2I_NAMES_8 "%0, %1, %2, %3"
#define FA2I_TILES_16(T) FA2I_TILES_8(T), T(1)
#define FA2I_NAMES_16 FA2I_NAMES_8 ", %4, %5, %6, %7"
#define FA2I_TILES_24(T) FA2I_TILES_16(T), T(2)
#define FA2I_NAMES_24 FA2I_NAMES_16 ", %8, %9, %10, %11"
#define FA2I_TILES_32(T) FA2I_TILES_24(T), T(3)
#define FA2I_NAMES_32 FA2I_NAMES_24 ", %12, %13, %14, %15"
#define FA2I_TILES_40(T) FA2I_TILES_32(T), T(4)
#define FA2I_NAMES_40 FA2I_NAMES_32 ", %16, %17, %18, %19"
#define FA2I_TILES_48(T) FA2I_TILES_40(T), T(5)
#define FA2I_NAMES_48 FA2I_NAMES_40 ", %20, %21, %22, %23"
#define FA2I_TILES_56(T) FA2I_TILES_48(T), T(6)
#define FA2I_NAMES_56 FA2I_NAMES_48 ", %24, %25, %26, %27"
#define FA2I_TILES_64(T) FA2I_TILES_56(T), T(7)
#define FA2I_NAMES_64 FA2I_NAMES_56 ", %28, %29, %30, %31"
#define FA2I_TILES_72(T) FA2I_TILES_64(T), T(8)
#define FA2I_NAMES_72 FA2I_NAMES_64 ", %32, %33, %34, %35"
#define FA2I_TILES_80(T) FA2I_TILES_72(T), T(9)
#define FA2I_NAMES_80 FA2I_NAMES_72 ", %36, %37, %38, %39"
#define FA2I_TILES_88(T) FA2I_TILES_80(T), T(10)
#define FA2I_NAMES_88 FA2I_NAMES_80 ", %40, %41, %42, %43"
#define FA2I_TILES_96(T) FA2I_TILES_88(T), T(11)
#define FA2I_NAMES_96 FA2I_NAMES_88 ", %44, %45, %46, %47"
#define FA2I_TILES_104(T) FA2I_TILES_96(T), T(12)
#define FA2I_NAMES_104 FA2I_NAMES_96 ", %48, %49, %50, %51"
#define FA2I_TILES_112(T) FA2I_TILES_104(T), T(13)
#define FA2I_NAMES_112 FA2I_NAMES_104 ", %52, %53, %54, %55"
#define FA2I_TILES_120(T) FA2I_TILES_112(T), T(14)
#define FA2I_NAMES_120 FA2I_NAMES_112 ", %56, %57, %58, %59"
#define FA2I_TILES_128(T) FA2I_TILES_120(T), T(15)
#define FA2I_NAMES_128 FA2I_NAMES_120 ", %60, %61, %62, %63"

// a0 ... a6: numbers of the asm operands after the accumulator.
#define FA2I_WGMMA(columns, a0, a1, a2, a3, a4, a5, a6)                                                                \
    template <> struct Wgmma<columns> {                                                                                \
        /* d = a b, or d += a b */                                                                                     \
        template <int kLiesA, int kLiesB, int kFirst = 0, int kTiles>                                                  \
        static __device__ __forceinline__ void multiply(float (&d)[1][kTiles][4], uint64 a, uint64 b, int add)         \
        {                                                                                                              \
            asm volatile("{\n"                                                                                         \
                         "    .reg .pred add;\n"                                                                       \
                         "    setp.ne.s32 add, %" #a2 ", 0;\n"                                                         \
                         "    wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." FA2I_ELEMENT "." FA2I_ELEMENT     \
                         " {" FA2I_NAMES_##columns "}, %" #a0 ", %" #a1 ", add, 1, 1, %" #a3 ", %" #a4 ";\n"           \
                         "}"                                                                                           \
                         : FA2I_TILES_##columns(FA2I_TILE)                                                             \
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
                         " {" FA2I_NAMES_##columns "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #a4                \
                         ", add, 1, 1, %" #a6 ";\n"                                                                    \
                         "}"                                                                                           \
                         : FA2I_TILES_##columns(FA2I_TILE)                                                             \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(kLiesB));                 \
        }                                                                                                              \
                                                                                                                       \
        /* d += a b, a in registers */                                                                                 \
        template <int kLiesB, int kFirst = 0, int kTiles>                                                              \
        static __device__ __forceinline__ void add(float (&d)[1][kTiles][4], const uint32 (&a)[4], uint64 b)           \
        {                                                                                                              \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." FA2I_ELEMENT "." FA2I_ELEMENT         \
                         " {" FA2I_NAMES_##columns "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #a4                \
                         ", 1, 1, 1, %" #a5 ";"                                                                        \
                         : FA2I_TILES_##columns(FA2I_TILE)                                                             \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kLiesB));                           \
        }                                                                                                              \
    }

template <int kColumns> struct Wgmma;
FA2I_WGMMA
(64, 32, 33, 34, 35, 36, 37, 38);
FA2I_WGMMA
(128, 64, 65, 66, 67, 68, 69, 70);

// ---- what the features of the variant do; without a feature, an empty policy ----------------------------------------

// ---- sequences: all have the tensors' lengths ----------------------------------------------------------------------
//
// Policy of kernels without packed sequences; the others have sequences.cuh.

__device__ __forceinline__ int batches(const Params &p)
{
    return p.batch;
}

// Rows of LSE and delta per head in the workspace: whole tiles.
__device__ __forceinline__ int64 rows_of_batch_head(const Params &p)
{
    return int64(p.q_tiles) * kBr;
}

using OwnParams = const Params &;

struct SequenceCoord {
    static constexpr int first_q_tile = 0, first_prepared = 0;

    static __device__ __forceinline__ void find(const Params &, unsigned, int &) {}

    static __device__ __forceinline__ bool is_empty()
    {
        return false;
    }

    static __device__ __forceinline__ int q_tiles(const Params &p)
    {
        return p.q_tiles;
    }

    static __device__ __forceinline__ const Params &params(const Params &all)
    {
        return all;
    }
};

template <class Coord> __device__ __forceinline__ void clear_unused_keys(const Params &, const Coord &) {}

template <int kBlock> __device__ __forceinline__ void clear_unused_queries(const Params &, int, int64, int64) {}

// ---- block coordinates: kBc key rows of one key head --------------------------------------------------------------
//
// Policy: SequenceCoord (batches.cuh, sequences.cuh).

struct BlockCoord : SequenceCoord {
    int first_key;
    int kv_head, batch;
    int split;             // with kHeadBlocks, the number of the block among those that share its keys
    bool last_keys_first;  // with kLastKeysFirst: the order in which blocks add to dQ of this head (dq_order.cuh)

    // Under a causal mask the heavy tiles of all heads come first: most queries see the first keys. With a window,
    // equally many queries see all but the last keys. splits: with kHeadBlocks, blocks that share a tile of keys. They
    // are placed as if each had a key head of its own, so that blocks that begin together read the same queries.
    __device__ __forceinline__ BlockCoord(const Params &p, unsigned block, unsigned splits = 1) : last_keys_first(false)
    {
        const unsigned kv_heads = p.heads_q / p.group;
        unsigned tile, batch_head;
        if constexpr (kDqBlock) {  // one block processes all tiles, one after the other
            tile = block % p.k_tiles;
            batch_head = block / p.k_tiles;
        } else {
            const unsigned batch_heads = kv_heads * batches(p) * splits;
            // Blocks that begin together have keys of several heads, because blocks of one head add to the same dQ.
            // They do not have keys of all heads, so that what they read stays in the L2 cache.
            const unsigned most = kHeavyFirst ? batch_heads : max(kLeastHeads, kTogether / p.k_tiles);
            const unsigned first_batch_head = block / (most * p.k_tiles) * most;
            const unsigned together = min(most, batch_heads - first_batch_head);
            tile = block % (most * p.k_tiles) / together;
            batch_head = first_batch_head + block % (most * p.k_tiles) % together;
            if constexpr (kLastKeysFirst) {  // but the last heads have the first keys first
                last_keys_first = batch_heads - first_batch_head > most;
                tile = last_keys_first ? p.k_tiles - 1 - tile : tile;
            }
        }
        if constexpr (kHeadBlocks) {  // blocks that add to the same keys begin one after the other
            split = batch_head / (kv_heads * batches(p));
            batch_head %= kv_heads * batches(p);
        } else {
            split = 0;
        }
        first_key = tile * kBc;
        kv_head = batch_head % kv_heads;
        batch = batch_head / kv_heads;
        find(p, tile, first_key);
    }

    // The batch number for dropout.
    __device__ __forceinline__ int sequence() const
    {
        return sequence_of(*this);
    }

private:
    template <class Coord> static __device__ __forceinline__ int sequence_of(const Coord &coord)
    {
        if constexpr (kVarlen)
            return coord.own.index;
        else
            return coord.batch;
    }
};

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

// ---- P^T and dS^T ------------------------------------------------------------------------------------
//
// Scores are capped, get their terms, are turned into P, and masked. dS is P times (dP - delta) times the derivative of
// the cap.
//
// Fragments (PTX ISA, mma.m16n8k16), with lane = 4 * quad_row + quad_lane. An accumulator holds columns 2 * quad_lane
// and 2 * quad_lane + 1 of a 16x8 tile: of row quad_row in c[0], c[1], and of row quad_row + 8 in c[2], c[3]. Rows are
// keys and columns are queries, so values per query are read in pairs from shared memory.

using Scores = float[kKeyTiles][kQueryTiles][4];

// Turns S^T into P^T = 2^(scale_log2 * S - lse). lse_smem: LSE of this lane's first query.
__device__ __forceinline__ void scores_to_p(Scores &s, uint32 lse_smem, float scale_log2)
{
#pragma unroll
    for (int n = 0; n < kQueryTiles; n++) {
        const float2 lse = load_shared_8(lse_smem + n * 8 * 4);
        each_of<kKeyTiles, 4>(
            [&](int m, int e) { s[m][n][e] = exp2_approx(fmaf(s[m][n][e], scale_log2, e % 2 ? -lse.y : -lse.x)); });
    }
}

__device__ __forceinline__ void copy_scores(Scores &to, const Scores &from)
{
    each_element(to, [&](float &x, int m, int n, int e) { x = from[m][n][e]; });
}

// Multiplies P^T by the derivative of the scores. capped: S^T as modified.
__device__ __forceinline__ void multiply_derivatives(Scores &p, const Scores &capped)
{
    each_element(p, [&](float &x, int m, int n, int e) { x *= modifier_derivative(capped[m][n][e]); });
}

// Turns dP^T into dS^T = P^T * (dP^T - delta), without the softmax scale. p: P^T, already times the derivative of the
// scores; with kBiasGradient the caller multiplies dS^T instead.
__device__ __forceinline__ void dp_to_ds(Scores &dp, const Scores &p, uint32 delta_smem)
{
#pragma unroll
    for (int n = 0; n < kQueryTiles; n++) {
        const float2 delta = load_shared_8(delta_smem + n * 8 * 4);
        each_of<kKeyTiles, 4>(
            [&](int m, int e) { dp[m][n][e] = p[m][n][e] * (dp[m][n][e] - (e % 2 ? delta.y : delta.x)); });
    }
}

// ---- no window: which tiles of queries a block processes, and which queries of them see a key -----------------------
//
// Policy of kernels without a window; the others have window.cuh.

struct SequenceTiles {
    int first, unmasked;
    static constexpr int masked = kUnbounded;
    int stop;
};

struct AllTiles {
    int first, unmasked;
    static constexpr int masked = kUnbounded;
};

using Tiles = Either<kVarlen, SequenceTiles, AllTiles>::Type;

template <class Range>
__device__ __forceinline__ void find_tiles(Range &range, const Params &p, const BlockCoord &coord)
{
    // The first query that sees some key of the block, and the first that sees all of them.
    int query = 0, query_of_all = 0;
    if (kCausal) {
        const int offset = p.seq_k - p.seq_q;
        query = max(0, coord.first_key - offset);
        query_of_all = max(0, coord.first_key + kBc - 1 - offset);
    }
    range.first = min(query / kBr, coord.q_tiles(p));
    range.unmasked = (query_of_all + kBr - 1) / kBr;
    if (coord.first_key + kBc > p.seq_k)  // keys after the tensor's end must be masked for every query
        range.unmasked = coord.q_tiles(p);
    if constexpr (kVarlen)
        range.stop = coord.q_tiles(p);
}

// Sets P^T to 0 if the query is before the first one that sees the key; there is no last one.
__device__ __forceinline__ void mask_p(Scores &s, const Params &p, int first_key, int first_query)
{
    int first[kKeyTiles][2];
    each_of<kKeyTiles, 2>([&](int m, int h) {
        const int key = first_key + m * 16 + h * 8;
        const int sees = kCausal ? key - (p.seq_k - p.seq_q) : 0;
        first[m][h] = key < p.seq_k ? sees - first_query : kBr;
    });
    each_element(s, [&](float &x, int m, int n, int e) {
        if (n * 8 + e % 2 < first[m][e / 2])
            x = 0.0f;
    });
}

// Returns how many blocks add to a tile of queries before this one (dq_order.cuh).
__device__ __forceinline__ uint32 blocks_before(const Params &p, const BlockCoord &coord, int query_tile)
{
    const int key_tile = coord.first_key / kBc;
    if (coord.last_keys_first) {  // blocks with later keys that some query of the tile sees
        const int last_key = query_tile * kBr + kBr - 1 + p.seq_k - p.seq_q;
        return min((p.seq_k + kBc - 1) / kBc - 1, last_key / kBc) - key_tile;
    }
    return key_tile;
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

// ---- the product of eight elements of O and dO, of 16 bits ----------------------------------------------------------
//
// Policy; the other one is fp32/dot.cuh.

__device__ __forceinline__ float dot_8(const uint4 &a, const uint4 &b)
{
    float sum = 0.0f;
    const uint32 x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 u = unpack2(x[i]), v = unpack2(y[i]);
        sum = fmaf(u.x, v.x, fmaf(u.y, v.y, sum));
    }
    return sum;
}

// The same of eight elements of two rows, from element 8 * chunk on.
__device__ __forceinline__ float dot_8(const char *a, const char *b, int chunk)
{
    return dot_8(__ldg(reinterpret_cast<const uint4 *>(a) + chunk), __ldg(reinterpret_cast<const uint4 *>(b) + chunk));
}

// ---- dQ sums: fp32 sums over blocks, in the workspace -----------------------------------------------------------
//
// A tile of dQ is stored in the order of the fragments of the warps that add to it, so each addition of a warp fills
// whole sectors. A fragment has 128 numbers: [lane][4] if four numbers can be added at once, else [4][lane]. One file
// alone knows the rows and columns of a fragment and the order of fragments: backward/dq_fragments.cuh, or
// hopper/dq_columns.cuh if warps compute dQ transposed. It also has the place of what a thread converts (SummedPart).
//
// Packed sequences share the workspace: each has exactly its own rows, in groups of kDqGroupRows. A group that the
// sequence's end cuts is [row][column].
#if __CUDA_ARCH__ >= 900
constexpr bool kAddFour = true;
#else
constexpr bool kAddFour = false;
#endif
constexpr int kDqFragment = 128;
constexpr int kDqWidth = 16 * kDqPairs * kColWarps;  // numbers per row
constexpr int kDqTile = kBr * kDqWidth;

constexpr bool kDqDirect = false;  // sums are in the workspace

template <int kBlockThreads, int kBlockRows, int kLanes, class... Any>
__device__ __forceinline__ void clear_dq(const Any &...)
{
}

// Rows of the sums over all heads.
__device__ __forceinline__ int64 dq_rows(const Params &p, int64 all_rows)
{
    return kVarlen ? int64(p.heads_q) * p.features.total_q : all_rows;
}

// 16 sums in the registers of the thread that converts them: 8 columns of two rows.
struct DqNumbers {
    float upper[8], lower[8];
};

// ---- order of the dQ sums: fragments of m16 tiles of rows -----------------------------------------------------------
//
// Policy; the other one is hopper/dq_columns.cuh. A fragment has 16 rows and 8 columns; a lane has two columns of rows
// lane / 4 and lane / 4 + 8. A tile is [warp][m16 tile][n8 tile] of fragments.
//
// Packed sequences: the m16 tiles of a sequence are contiguous, [m16 tile][column warp][n8 tile] of fragments. An m16
// tile that the sequence's end cuts has its columns in the same order.
constexpr bool kDqTransposed = false;
constexpr int kDqGroupRows = 16;
constexpr int kDqWarpPart = kDqRowTiles * kDqPairs * 2 * kDqFragment;
constexpr int kDqTileStep = kVarlen ? 2 * kDqPairs * kColWarps : 2 * kDqPairs;  // fragments from m16 tile to m16 tile

using DqTile = float[kDqPartTiles][2 * kDqPairs][4];

// Packed sequences: address of a warp's first fragment in m16 tile `first` of a tile of queries.
template <class Coord>
__device__ __forceinline__ float *dq_sums(const Params &p, const Coord &coord, int64 batch_head, int tile, int first,
                                          int col_warp)
{
    const int64 row = batch_head * p.features.total_q + coord.own.sequence.first_q + tile * kBr + first * 16;
    return p.dq_sum + row * kDqWidth + col_warp * 2 * kDqPairs * kDqFragment;
}

// Adds to an m16 tile with fewer than 16 rows. sum: address of this warp's columns.
__device__ __forceinline__ void add_cut_rows(float *sum, const float (&dq)[2 * kDqPairs][4], int rows, int lane)
{
    each_of<2 * kDqPairs, 4>([&](int n, int e) {
        const int row = lane / 4 + e / 2 * 8;
        if (row < rows)
            add_global_4(sum + row * kDqWidth + n * 8 + lane % 4 * 2 + e % 2, dq[n][e]);
    });
}

// Adds a warp's m16 tiles. sum: address of the first fragment; rows: with packed sequences, rows from there to the
// sequence's end.
__device__ __forceinline__ void add_dq(float *sum, const DqTile &dq, int lane, int rows = 0, int col_warp = 0)
{
#pragma unroll
    for (int m = 0; m < kDqPartTiles; m++) {
        if (kVarlen && rows - m * 16 < 16) {
            constexpr int kNarrower = 2 * kDqPairs * (kDqFragment - 8);  // columns of a warp than their fragments
            add_cut_rows(sum + m * 16 * kDqWidth - col_warp * kNarrower, dq[m], rows - m * 16, lane);
            continue;
        }
#pragma unroll
        for (int n = 0; n < 2 * kDqPairs; n++) {
            float *fragment = sum + (m * kDqTileStep + n) * kDqFragment;
            if constexpr (kAddFour) {
                add_global_16(fragment + lane * 4, dq[m][n]);
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    add_global_4(fragment + e * 32 + lane, dq[m][n][e]);
            }
        }
    }
}

// The place of 16 sums that a thread converts, 8 columns of rows quad_row and quad_row + 8 of an m16 tile. Eight lanes
// take the rows of one fragment; the next eight lanes take the next fragment.
struct SummedPart {
    static constexpr int kRowsApart = 8;  // from the upper row to the lower one

    int quad_row;  // the upper row in the m16 tile
    const float *from;
    int64 row;   // the upper one
    int chunk;   // of 8 columns of dQ
    int column;  // the first of these, in a group of rows that is cut

    // index: of the part, from from_tile and its row on.
    template <class Row> __device__ __forceinline__ SummedPart(int index, const float *from_tile, Row tile_row)
    {
        quad_row = index % 8;
        const int fragment = index / 8;
        from = from_tile + fragment * kDqFragment;
        constexpr int kTileFragments = kDqWidth / 8;  // of an m16 tile (kVarlen)
        int warp, m;
        if constexpr (kVarlen) {
            m = fragment / kTileFragments;
            warp = fragment % kTileFragments / (2 * kDqPairs);
        } else {
            warp = fragment / (kDqRowTiles * 2 * kDqPairs);
            m = fragment / (2 * kDqPairs) % kDqRowTiles;
        }
        const int n = fragment % (2 * kDqPairs);
        if constexpr (kVarlen)
            row = tile_row + m * 16 + quad_row;
        else
            row = tile_row + (warp / kColWarps * kDqRowTiles + m) * 16 + quad_row;
        if constexpr (kWgmma)
            chunk = warp % kColWarps * 2 * kDqPairs + n;
        else
            chunk = (n / 2 * kColWarps + warp % kColWarps) * 2 + n % 2;
        column = fragment % kTileFragments * 8;
    }

    // The first row of the group that is stored together.
    __device__ __forceinline__ int64 group_row() const
    {
        return row - quad_row;
    }

    // Reads the sums; not of a group that is cut.
    __device__ __forceinline__ DqNumbers read() const
    {
        const float4 *const quarters = reinterpret_cast<const float4 *>(from);
        float4 x[4];  // numbers of lane 4 * quad_row + i; or element i of four lanes
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = __ldg(quarters + (kAddFour ? quad_row * 4 + i : i * 8 + quad_row));
        if constexpr (kAddFour)
            return {{x[0].x, x[0].y, x[1].x, x[1].y, x[2].x, x[2].y, x[3].x, x[3].y},
                    {x[0].z, x[0].w, x[1].z, x[1].w, x[2].z, x[2].w, x[3].z, x[3].w}};
        else
            return {{x[0].x, x[1].x, x[0].y, x[1].y, x[0].z, x[1].z, x[0].w, x[1].w},
                    {x[2].x, x[3].x, x[2].y, x[3].y, x[2].z, x[3].z, x[2].w, x[3].w}};
    }
};

// The empty policy: blocks add to dQ in any order.
__device__ __forceinline__ uint32 *turn_counters(const Params &)
{
    return nullptr;
}

template <class Coord> __device__ __forceinline__ uint32 *turn_counter(const Params &, const Coord &, int64, int)
{
    return nullptr;
}

__device__ __forceinline__ uint32 block_ticket(const Params &, uint32)
{
    return 0;
}

__device__ __forceinline__ void await_turn(const uint32 *, uint32, uint32, int) {}

// ---- the tiles of queries that a block processes, for each head of its group ----------------------------------

// The order of the tiles: from the last to the first, or ascending (dq_order.cuh). Policies: one order, or the block's.
struct OneOrder {
    __device__ __forceinline__ explicit OneOrder(const BlockCoord &) {}

    static __device__ __forceinline__ bool last_tile_first()
    {
        return kLastTileFirst;
    }
};

struct BlockOrder {
    bool ascending;

    __device__ __forceinline__ explicit BlockOrder(const BlockCoord &coord) : ascending(coord.last_keys_first) {}

    __device__ __forceinline__ bool last_tile_first() const
    {
        return !ascending;
    }
};

using TileOrder = Either<kLastKeysFirst, BlockOrder, OneOrder>::Type;

// The range of tiles, from `first` to end(p). Those before `unmasked` need a mask.
struct TileRange : Tiles, TileOrder {
    // p: parameters of the block's sequence.
    __device__ __forceinline__ TileRange(const Params &p, const BlockCoord &coord) : TileOrder(coord)
    {
        find_tiles(*this, p, coord);
    }

    __device__ __forceinline__ int end(const Params &p) const
    {
        return end_of(*this, p);
    }

private:
    template <class Range> static __device__ __forceinline__ int end_of(const Range &range, const Params &p)
    {
        if constexpr (kWindow != Window::kNone || kVarlen)
            return range.stop;
        else
            return p.q_tiles;
    }
};

// A position in the order of processing: a tile of queries of one head of the group.
struct Cursor {
    int head, tile;

    __device__ __forceinline__ void advance(const TileRange &tiles, int end)
    {
        if (tiles.last_tile_first()) {
            if (--tile < tiles.first) {
                tile = end - 1;
                head++;
            }
        } else {
            if (++tile == end) {
                tile = tiles.first;
                head++;
            }
        }
    }
};

// Returns the position `count` tiles after `at`.
__device__ __forceinline__ Cursor after(const Cursor &at, int count, const Params &p, const TileRange &tiles)
{
    Cursor cursor = at;
    for (int i = 0; i < count; i++)
        cursor.advance(tiles, tiles.end(p));
    return cursor;
}

// The range of a block that has its keys alone: all tiles.
struct WholeRange {
    __device__ __forceinline__ WholeRange(const Params &, const TileRange &, int) {}

    static __device__ __forceinline__ Cursor start(const Params &p, const TileRange &tiles)
    {
        return {0, tiles.last_tile_first() ? tiles.end(p) - 1 : tiles.first};
    }

    static __device__ __forceinline__ bool has(const Params &p, const Cursor &at)
    {
        return at.head < p.group;
    }

    static __device__ __forceinline__ bool has_some(const Params &p, const TileRange &tiles)
    {
        return tiles.first < tiles.end(p);
    }
};

using QueryRange = WholeRange;

template <class... Any> __device__ __forceinline__ void put_part(const Any &...) {}

template <int kBlock> __device__ __forceinline__ void clear_parts(const Params &) {}

__device__ __forceinline__ uint32 *key_ticket(const Params &)
{
    return nullptr;
}

// Packs two neighbouring accumulator tiles, which have the layout of one 16x16 A fragment.
__device__ __forceinline__ void pack_fragment(uint32 (&a)[4], const float (&left)[4], const float (&right)[4])
{
    a[0] = pack2(left[0], left[1]);
    a[1] = pack2(left[2], left[3]);
    a[2] = pack2(right[0], right[1]);
    a[3] = pack2(right[2], right[3]);
}

using Fragments = uint32[kQuerySteps][kKeyTiles][4];  // A fragments of dV and dK

__device__ __forceinline__ void pack_scores(Fragments &a, const Scores &s)
{
    each_of<kQuerySteps, kKeyTiles>(
        [&](int step, int m) { pack_fragment(a[step][m], s[m][2 * step], s[m][2 * step + 1]); });
}

struct NoDropout {
    __device__ __forceinline__ NoDropout(const Params &, int, int) {}

    static __device__ __forceinline__ void begin(const Params &, int, int, int, int) {}

    static __device__ __forceinline__ void mask(Fragments &) {}

    static __device__ __forceinline__ void mask(Scores &) {}
};

using Dropout = NoDropout;

__device__ __forceinline__ float value_scale(const Params &)
{
    return 1.0f;
}

// ---- terms: none --------------------------------------------------------------------------------------------------
constexpr bool kTerms = false;

struct Terms {
    __device__ __forceinline__ Terms(const Params &, int, int) {}

    template <bool kBefore> __device__ __forceinline__ float term(const Params &, float, int, int, int) const
    {
        return 0.0f;
    }
};

template <bool kBefore> __device__ __forceinline__ void add_terms(Scores &, const Params &, const Terms &, int, int) {}
// ---- the mainloop of the consumers: bwd_by_keys, bwd_dq_bulk, bwd_dq_group or bwd_by_product ------------------------
// (chosen in gen/ops/backward_sm90.lua)

// ---- numbers of a gradient: elements, or fp32 (kPartial), which may be added to what is in memory (kMerges) ---------

// Adds what is in memory to two or four neighbouring numbers, if the kernel merges. Callers do so for many numbers
// before they write any: the compiler moves no read before a write of the same memory, so each would wait for its
// latency.
__device__ __forceinline__ void add_old(float2 &x, const char *from)
{
    if constexpr (kMerges) {
        const float2 old = *reinterpret_cast<const float2 *>(from);
        x = float2{x.x + old.x, x.y + old.y};
    }
}

__device__ __forceinline__ void add_old(float4 &x, const char *from)
{
    if constexpr (kMerges) {
        const float4 old = *reinterpret_cast<const float4 *>(from);
        x = float4{x.x + old.x, x.y + old.y, x.z + old.z, x.w + old.w};
    }
}

// Writes four neighbouring numbers in fp32.
__device__ __forceinline__ void put_fp32(char *to, float4 x)
{
    add_old(x, to);
    *reinterpret_cast<float4 *>(to) = x;
}

// Eight neighbouring numbers in fp32.
struct Fp32Chunk {
    float4 left, right;

    __device__ __forceinline__ void add_old(const char *from)
    {
        ::add_old(left, from);
        ::add_old(right, from + 16);
    }

    __device__ __forceinline__ void write(char *to) const
    {
        reinterpret_cast<float4 *>(to)[0] = left;
        reinterpret_cast<float4 *>(to)[1] = right;
    }
};

// Scales an m16 tile of this warp and writes its rows before `end` in fp32, from registers: the four lanes of a quad
// fill a sector. head: element offset of the head in `out`; row: the tile's first row, in the head; chunk(n): where n8
// tile n lies in a row of kColumns.
template <int kColumns, int kTiles, class Chunk>
__device__ __forceinline__ void put_fp32_tile(char *out, int64 head, const Strides &stride, int row, int end,
                                              const float (&x)[kTiles][4], float scale, int lane, Chunk chunk)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int64 own = row + h * 8 + lane / 4;
        if (own >= end)
            continue;
        char *const to = out + (head + own * stride.seq) * 4 + lane % 4 * 8;
        float2 y[kTiles];
#pragma unroll
        for (int n = 0; n < kTiles; n++) {
            y[n] = float2{x[n][2 * h] * scale, x[n][2 * h + 1] * scale};
            if (chunk(n) < kColumns / 8)
                add_old(y[n], to + chunk(n) * 32);
        }
#pragma unroll
        for (int n = 0; n < kTiles; n++)
            if (chunk(n) < kColumns / 8)
                *reinterpret_cast<float2 *>(to + chunk(n) * 32) = y[n];
    }
}

// Sets a chunk of eight numbers to 0. Nothing is to be added there if the kernel merges.
__device__ __forceinline__ void clear_chunk(char *to)
{
    if constexpr (kMerges)
        return;
    *reinterpret_cast<uint4 *>(to) = uint4{};
    if constexpr (kPartial)
        *reinterpret_cast<uint4 *>(to + 16) = uint4{};
}

// ---- the threads that write dK and dV: all of a block; on wgmma the consumers, or one warpgroup of them --------

__device__ __forceinline__ unsigned writer()
{
    return kByProduct ? threadIdx.x % kWriters : threadIdx.x;
}

// A barrier for these threads.
__device__ __forceinline__ void writers_meet()
{
    if constexpr (kByProduct)
        named_barrier(2 + threadIdx.x / kWriters, kWriters);
    else if constexpr (kWgmma)
        named_barrier(1, kWriters);
    else
        __syncthreads();
}

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

// ---- epilogue: writes dK and dV of a block ------------------------------------------------------------------------
//
// Called at the end of the kernels of bwd.cuh, hopper/bwd.cuh and hopper/bwd_by_product.cuh.

// Scales rows of dK or dV and writes them, 16 bytes per lane, through shared memory, which must be free. Form: layout
// of the rows there; kColumns: columns of the tensor.
template <class Form = RowTile, int kColumns = kHeadDim, int kTiles>
__device__ __forceinline__ void write_rows(char *out, const Strides &stride, const Params &p, const BlockCoord &coord,
                                           const float (&x)[kKeyTiles][kTiles][4], float scale, uint32 smem,
                                           int warp_key, int query_warp, int lane)
{
    if (out == nullptr)
        return;
    if constexpr (kPartial) {
        const int64 head = coord.batch * stride.batch + coord.kv_head * stride.head;
#pragma unroll
        for (int m = 0; m < kKeyTiles; m++)
            put_fp32_tile<kColumns>(out, head, stride, coord.first_key + warp_key + m * 16, p.seq_k, x[m], scale, lane,
                                    [&](int n) { return (n / 2 * kQueryWarps + query_warp) * 2 + n % 2; });
        return;
    }
#pragma unroll
    for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int n = 0; n < kTiles; n++) {
                const int chunk = (n / 2 * kQueryWarps + query_warp) * 2 + n % 2;
                store_shared_4(smem + Form::chunk_offset(warp_key + m * 16 + h * 8 + lane / 4, chunk) + lane % 4 * 4,
                               pack2(x[m][n][2 * h] * scale, x[m][n][2 * h + 1] * scale));
            }
    writers_meet();  // the rows are complete: several warps wrote parts of each

    out += (coord.batch * stride.batch + coord.kv_head * stride.head + coord.first_key * stride.seq) * kElemBytes;
#pragma unroll
    for (int i = writer(); i < kBc * Form::kChunks; i += kWriters) {
        const int r = i / Form::kChunks, chunk = i % Form::kChunks;  // includes padding: lanes read without gaps
        if (chunk < kColumns / 8 && coord.first_key + r < p.seq_k)
            *reinterpret_cast<uint4 *>(out + r * stride.seq * kElemBytes + chunk * 16) =
                load_shared_16(smem + Form::chunk_offset(r, chunk));
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

// Addresses of the two mbarriers of a stage. full: its data are there; empty: they are read.
struct StageBarriers {
    uint32 full, empty;
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
__device__ __forceinline__ void barrier_arrive_after_copies(uint32 barrier)
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

// Adds contiguous fp32 numbers to those in global memory; bytes: a multiple of 16.
__device__ __forceinline__ void add_bytes(float *gmem, uint32 smem, int bytes)
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(gmem), "r"(smem),
                 "r"(bytes)
                 : "memory");
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

// Waits until this thread's TMA stores and additions have been done in global memory.
__device__ __forceinline__ void wait_stores_done()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Waits until this thread's TMA stores and additions have read shared memory, which may then be written.
__device__ __forceinline__ void wait_stores_read()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// ---- the mbarriers of the backward kernel in shared memory ----------------------------------------------------------
//
// Named barriers are used, too (0 is __syncthreads):
//
//     1    dS^T of all warps is there; rows after a sequence's end are cleared; the rows of dK or dV to write are there
//     3    every warp has read its last K and V
//
// kByProduct: 1, every warp has read its last K and V; 2 and 3, the rows of dV and of dK to write are there; 4, all
// warps have added to dQ of a tile.

struct Barriers {
    uint32 smem;

    __device__ __forceinline__ uint32 k_full() const
    {
        return smem + kBarrierArea;
    }

    __device__ __forceinline__ uint32 v_full() const
    {
        return smem + kBarrierArea + 8;
    }

    __device__ __forceinline__ StageBarriers q(int stage) const
    {
        const uint32 full = smem + kBarrierArea + 16 + stage * 32;
        return {full, full + 8};
    }

    __device__ __forceinline__ StageBarriers d_o(int stage) const
    {
        const uint32 of_q = q(stage).full;
        return {of_q + 16, of_q + 24};
    }

    // kByProduct: of P^T; kAddsApart: of dQ in shared memory.
    __device__ __forceinline__ StageBarriers exchange() const
    {
        return {smem + kExchangeArea, smem + kExchangeArea + 8};
    }

    // kDsBarriers: of the stages of dS^T.
    __device__ __forceinline__ StageBarriers ds(int stage) const
    {
        const uint32 full = smem + kExchangeArea + 16 + stage * 16;
        return {full, full + 8};
    }

    // kCountsApart: all warps have added dQ of the tile in this stage to its sums.
    __device__ __forceinline__ uint32 dq_added(int stage) const
    {
        return ds(kScoreStages).full + stage * 8;
    }

    __device__ __forceinline__ void init() const
    {
        barrier_init(k_full(), 1);
        barrier_init(v_full(), 1);
        if constexpr (kByProduct) {
            barrier_init(exchange().full, 4);
            barrier_init(exchange().empty, 4);
        }
        if constexpr (kAddsApart) {
            barrier_init(exchange().full, kWarps);
            barrier_init(exchange().empty, 1);
        }
        for (int stage = 0; stage < kStages; stage++) {
            barrier_init(q(stage).full, 1);
            barrier_init(d_o(stage).full, 1);
            barrier_init(q(stage).empty, kReaders);
            barrier_init(d_o(stage).empty, kReaders);
            if constexpr (kDsBarriers) {
                barrier_init(ds(stage).full, kScoreWriters);
                barrier_init(ds(stage).empty, kScoreReaders);
            }
            if constexpr (kCountsApart)
                barrier_init(dq_added(stage), 4);
        }
        barrier_init_fence();
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

// Orders this thread's accesses to shared memory before those of wgmma and TMA (async proxy), so these see its writes,
// including copies that it waited for. A barrier must follow.
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

// ---- the wgmma products of a tile ------------------------------------------------------------------------------

// Stores four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void stmatrix_x4(uint32 smem, const uint32 (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem), "r"(r[0]), "r"(r[1]),
                 "r"(r[2]), "r"(r[3])
                 : "memory");
}

// The layout of dS^T in shared memory.
struct ScoreTile {
    static __device__ __forceinline__ uint32 chunk_offset(int key, int chunk)
    {
        return chunk / 8 * kKvPageBytes + TileForm<kPageColumns>::chunk_offset(key, chunk % 8);
    }
};

// Stores a warp's dS^T into the tile.
__device__ __forceinline__ void store_ds(const uint32 (&a)[kQuerySteps][1][4], uint32 score_smem, int first_key,
                                         int lane)
{
#pragma unroll
    for (int step = 0; step < kQuerySteps; step++)
        stmatrix_x4(score_smem + ScoreTile::chunk_offset(first_key + lane % 16, 2 * step + lane / 16), a[step][0]);
}

// Address of a lane's rows of a warp's dS^T in a tile, for steps 0 and 1 of store_ds_at.
__device__ __forceinline__ int ds_place(int first_key, int lane)
{
    return ScoreTile::chunk_offset(first_key + lane % 16, lane / 16);
}

// store_ds with one address for all steps. A step has the next two 16-byte chunks of a row, whose numbers are permuted
// by exclusive or.
__device__ __forceinline__ void store_ds_at(const uint32 (&a)[kQuerySteps][1][4], uint32 place)
{
#pragma unroll
    for (int step = 0; step < kQuerySteps; step++)
        stmatrix_x4((place ^ step % 4 * 32) + step / 4 * kKvPageBytes, a[step][0]);
}

using Sums = float[1][2 * kOutPairs][4];  // of 64 rows of dK or dV

// Most columns of one product: it must not name more registers than a thread has at launch.
constexpr int kMostSummed = 128;

// sums += a b, from column kFirst on. a: 16 columns of P^T or dS^T in registers; b: 16 rows of a tile of dO or Q.
template <int kFirst = 0> __device__ __forceinline__ void add_to_sums(Sums &d, const uint32 (&a)[4], uint64 b)
{
    constexpr int kLeft = kHeadDimPadded - kFirst, kColumns = kLeft < kMostSummed ? kLeft : kMostSummed;
    Wgmma<kColumns>::template add<1, kFirst / 8>(d, a, b + kFirst / 64 * kQPageBytes / 16);
    if constexpr (kColumns < kLeft)
        add_to_sums<kFirst + kColumns>(d, a, b);
}

// Starts S^T = K Q^T or dP^T = V dO^T of a warpgroup. rows_smem: its 64 rows of K or V.
__device__ __forceinline__ void start_scores(float (&s)[1][kQueryTiles][4], uint32 rows_smem, uint32 tile_smem)
{
    const uint64 a = tile_descriptor(rows_smem, 0), b = tile_descriptor(tile_smem, 0);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kDepth; step++)
        Wgmma<kBr>::multiply<0, 0>(s, a + (step / 4 * kKvPageBytes + step % 4 * 32) / 16,
                                   b + (step / 4 * kQPageBytes + step % 4 * 32) / 16, step > 0);
    wgmma_commit();
}

// K or V of a warpgroup as the left operand of S^T or dP^T: in shared memory, or of each warp's 16 keys in registers.
template <bool kHeld> struct KeyOperand {
    uint32 rows_smem;

    __device__ __forceinline__ KeyOperand(uint32 rows, int, int) : rows_smem(rows) {}

    __device__ __forceinline__ void start_scores(float (&s)[1][kQueryTiles][4], uint32 tile_smem) const
    {
        ::start_scores(s, rows_smem, tile_smem);
    }
};

// With 64 queries, the left operand in shared memory has as many bytes as the right one, and the tensor cores read
// both as fast as shared memory can give them. So copies of other data wait.
template <> struct KeyOperand<true> {
    uint32 fragments[kDepth][4];

    __device__ __forceinline__ KeyOperand(uint32 rows_smem, int warp, int lane)
    {
        const int row = warp % 4 * 16 + lane % 16;
#pragma unroll
        for (int step = 0; step < kDepth; step++)
            ldmatrix_x4(fragments[step], rows_smem + step / 4 * kKvPageBytes +
                                             TileForm<kPageColumns>::chunk_offset(row, step % 4 * 2 + lane / 16));
    }

    __device__ __forceinline__ void start_scores(float (&s)[1][kQueryTiles][4], uint32 tile_smem) const
    {
        const uint64 b = tile_descriptor(tile_smem, 0);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < kDepth; step++)
            Wgmma<kBr>::multiply<0>(s, fragments[step], b + (step / 4 * kQPageBytes + step % 4 * 32) / 16, step > 0);
        wgmma_commit();
    }
};

// Starts dV += P^T dO or dK += dS^T Q of a warpgroup; steps of 16 queries from kFrom to kTo.
template <int kFrom = 0, int kTo = kQuerySteps>
__device__ __forceinline__ void start_sums(Sums &sums, const uint32 (&a)[kQuerySteps][1][4], uint32 tile_smem)
{
    const uint64 b = tile_descriptor(tile_smem, kQPageBytes);
    wgmma_fence();
#pragma unroll
    for (int step = kFrom; step < kTo; step++)
        add_to_sums(sums, a[step][0], b + step * 16 * kPageRowBytes / 16);
    wgmma_commit();
}

// Starts dQ = dS K of a warpgroup's rows and columns, over all keys of the block.
__device__ __forceinline__ void start_dq(float (&dq)[1][2 * kDqPairs][4], uint32 score_smem, uint32 k_smem)
{
    const uint64 a = tile_descriptor(score_smem, 0), b = tile_descriptor(k_smem, kKvPageBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kBc / 16; step++)
        Wgmma<kDqColumns>::multiply<1, 1>(dq, a + step * 16 * kPageRowBytes / 16, b + step * 16 * kPageRowBytes / 16,
                                          step > 0);
    wgmma_commit();
}

// ---- S^T becomes P^T ------------------------------------------------------------------------------------------------

// Hides rows after a sequence's end: sets LSE to infinity and delta to 0, so their P and dS are 0. The barrier in
// clear_rows orders these stores, too.
__device__ __forceinline__ void hide_rows(uint32 lse, uint32 delta, int valid_rows)
{
    for (int i = valid_rows + threadIdx.x; i < kBr; i += kKeyWorkers) {
        store_shared_4(lse + i * 4, __float_as_uint(-minus_infinity()));
        store_shared_4(delta + i * 4, 0);
    }
}

// Clears rows of two tiles after a sequence's end. They belong to the next sequence and may hold NaN. P and dS are 0
// there, but 0 * NaN is NaN. All consumer warps share the work.
template <int kRows> __device__ __forceinline__ void clear_rows(uint32 tile, uint32 other, int valid_rows)
{
#pragma unroll 1
    for (int i = valid_rows * 8 + threadIdx.x; i < kRows * 8; i += kKeyWorkers)
#pragma unroll
        for (int page = 0; page < kPages; page++) {
            store_shared_16(tile + page * kRows * kPageRowBytes + i * 16, uint4{0, 0, 0, 0});
            store_shared_16(other + page * kRows * kPageRowBytes + i * 16, uint4{0, 0, 0, 0});
        }
    fence_products();
    named_barrier(1, kKeyWorkers);  // the zeros are there
}

// LSE or delta of this lane's queries, two in each n8 tile.
struct RowValues {
    float2 of[kQueryTiles];
};

__device__ __forceinline__ void load_row_values(RowValues &x, uint32 smem)
{
#pragma unroll
    for (int n = 0; n < kQueryTiles; n++)
        x.of[n] = load_shared_8(smem + n * 8 * 4);
}

// scores_to_p and dp_to_ds (backward/scores.cuh) with LSE and delta in registers.
__device__ __forceinline__ void scores_to_p(Scores &s, const RowValues &lse, float scale_log2)
{
    each_element(s, [&](float &x, int, int n, int e) {
        x = exp2_approx(fmaf(x, scale_log2, e % 2 ? -lse.of[n].y : -lse.of[n].x));
    });
}

__device__ __forceinline__ void dp_to_ds(Scores &dp, const Scores &p, const RowValues &delta)
{
    each_element(
        dp, [&](float &x, int m, int n, int e) { x = p[m][n][e] * (x - (e % 2 ? delta.of[n].y : delta.of[n].x)); });
}

// Turns S^T of a warp's 16 keys into P^T. first_key: of the warp, within the block; lse: of this lane's queries, or its
// address in shared memory; capped: receives S^T as modified, without terms.
template <class Lse>
__device__ __forceinline__ void make_p(Scores &s, Scores &capped, const Params &p, const BlockCoord &coord,
                                       const TileRange &tiles, const Cursor &at, int first_key, Lse lse, int lane)
{
    const int key = coord.first_key + first_key + lane / 4, query = at.tile * kBr + lane % 4 * 2;
    const bool masked = at.tile < tiles.unmasked || (kWindow != Window::kNone && at.tile >= tiles.masked);
    if constexpr (kModified) {
        modify_scores(s, p);
        copy_scores(capped, s);
    }
    if constexpr (kTerms) {
        const Terms terms(p, coord.batch, coord.kv_head * p.group + at.head);
        if (masked)
            add_terms<false>(s, p, terms, key, query);
        else
            add_terms<kCausal>(s, p, terms, key, query);
    }
    scores_to_p(s, lse, p.scale_log2);
    if (masked)
        mask_p(s, p, key, query);
}

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

// ---- what a consumer warpgroup of 64 keys does with a tile of queries ----------------------------------------------
//
// The loops of bwd_dq_group.cuh and bwd_dq_bulk.cuh consist of these steps; bwd_by_keys.cuh has some of its own.
//
// If a warp has issued wgmma, its accesses to shared memory and to mbarriers wait until the tensor cores have taken
// these. So each step reads what it needs from there before its products are started. dS^T may wait
// (bwd_dq_group.cuh).

// Clears the rows of Q, dO, LSE and delta after a packed sequence's end, before the tile is read.
__device__ __forceinline__ void clear_after_end(const Params &p, const Barriers &barriers, const Stage &stage,
                                                const Cursor &at, uint32 q_smem, uint32 do_smem)
{
    const uint32 smem = barriers.smem;
    const int rows = p.seq_q - at.tile * kBr;
    if (rows < kBr) {
        barrier_wait(barriers.d_o(stage.index).full, stage.parity);
        hide_rows(smem + kLseArea + stage.index * kRowBytes, smem + kDeltaArea + stage.index * kRowBytes, rows);
        clear_rows<kBr>(q_smem, do_smem, rows);
    }
}

// Arrives at an mbarrier when all lanes of the warp have written or read the stage.
__device__ __forceinline__ void hand_over(uint32 barrier, int lane)
{
    __syncwarp();
    barrier_arrive_by(lane, barrier);
}

// Keeps a value in its register. Otherwise the compiler reads the thread's number again in the loop, and that read
// waits.
__device__ __forceinline__ void keep(int &x)
{
    asm volatile("" : "+r"(x));
}

// What a thread keeps in registers for its 64 keys. Members are read once, before the loop.
struct OwnKeys {
    uint32 k_rows, v_rows;  // the warpgroup's rows of K and V
    int warp, lane;
    int place;  // of the lane in a tile of dS^T

    __device__ __forceinline__ OwnKeys(uint32 smem, int group)
        : k_rows(smem + kKArea + group * kGroupKeys * kPageRowBytes), v_rows(k_rows + kVArea - kKArea),
          warp(threadIdx.x / 32), lane(threadIdx.x % 32), place(ds_place(warp * 16, lane))
    {
        keep(lane);
        keep(place);
    }
};

// Waits for K and V.
__device__ __forceinline__ void await_keys(const Params &p, const BlockCoord &coord, const Barriers &barriers)
{
    barrier_wait(barriers.k_full(), 0);
    barrier_wait(barriers.v_full(), 0);
    if constexpr (kVarlen)
        clear_rows<kBc>(barriers.smem + kKArea, barriers.smem + kVArea, p.seq_k - coord.first_key);
}

// Begins dropout of a tile, beside its products. ptxas moves code that is not in a branch after the wait for these.
__device__ __forceinline__ void begin_dropout(Dropout &dropout, const Params &p, const BlockCoord &coord, int head,
                                              const Cursor &at, int lane)
{
    if constexpr (kDropout)
        if (p.features.drop_bound != 0)  // always true
            dropout.begin(p, coord.sequence(), head, at.tile * kBr, lane);
}

// Waits for a tile of Q and dO.
__device__ __forceinline__ void await_tile(const Params &p, const Barriers &barriers, const Stage &stage,
                                           const Cursor &at)
{
    const uint32 smem = barriers.smem;
    barrier_wait(barriers.q(stage.index).full, stage.parity);
    barrier_wait(barriers.d_o(stage.index).full, stage.parity);
    if constexpr (kVarlen)
        clear_after_end(p, barriers, stage, at, smem + kQArea + stage.index * kQTileBytes,
                        smem + kDoArea + stage.index * kQTileBytes);
}

// Turns S^T, which is there, into P^T; and dP^T, which is under way, into dS^T. Starts dV between them, or leaves it to
// the caller (kDvLate). rows: receives delta in place of LSE.
__device__ __forceinline__ void make_scores(Scores &s, Scores &dp, RowValues &rows, Fragments &p_frag,
                                            Fragments &ds_frag, Sums &dv, const Dropout &dropout, const Params &p,
                                            const BlockCoord &coord, const TileRange &tiles, const Cursor &at, int warp,
                                            int lane, uint32 row_smem, uint32 do_smem)
{
    Scores capped;
    make_p(s, capped, p, coord, tiles, at, warp * 16, rows, lane);
    pack_scores(p_frag, s);
    dropout.mask(p_frag);
    load_row_values(rows, row_smem + kDeltaArea - kLseArea);
    if constexpr (!kDvLate)
        start_sums(dv, p_frag, do_smem);
    wgmma_wait<kDvLate ? 0 : 1>();  // dP^T is there, and dK of the tile before
    pin(dp);
    if constexpr (kModified)
        multiply_derivatives(s, capped);
    dropout.mask(dp);
    dp_to_ds(dp, s, rows);
    pack_scores(ds_frag, dp);
}

// Puts dS^T of a warp's keys into its stage. place: of the lane in the tile.
__device__ __forceinline__ void put_ds(const Fragments &ds, const Barriers &barriers, const Stage &stage, int place,
                                       int lane)
{
    barrier_wait(barriers.ds(stage.index).empty, stage.parity ^ 1);
    store_ds_at(ds, barriers.smem + kScoreArea + stage.index * kScoreBytes + place);
    fence_products();
    hand_over(barriers.ds(stage.index).full, lane);
}

// The empty policy: these kernels do not divide the products (bwd_by_product.cuh).
template <class... Any> __device__ __forceinline__ void compute_by_product(const Any &...) {}

// The empty policy: no warpgroup computes dQ alone (bwd_dq_group.cuh). Where warpgroups divide the products, compute_dq
// in bwd_by_product.cuh does it.
template <class... Any> __device__ __forceinline__ void compute_dq_alone(const Any &...) {}

// ---- consumer: a warpgroup that computes dK and dV of 64 keys, and its part of dQ -----------------------------------
//
// compute_rows is the loop over tiles of queries (bwd.cuh has its timeline). dS^T has two stages, which take turns, so
// one barrier for each tile is enough: warps write dS^T of a tile while others still read that of the tile before.

// Turns S^T into P^T and starts dV; then turns dP^T into dS^T, for dK and dQ.
__device__ __forceinline__ void make_scores(Scores &s, Scores &dp, Fragments &p_frag, Fragments &ds_frag, Sums &dv,
                                            const Dropout &dropout, const Params &p, const BlockCoord &coord,
                                            const TileRange &tiles, const Cursor &at, int warp, int lane,
                                            uint32 row_smem, uint32 do_smem)
{
    wgmma_wait<1>();  // S^T is there
    pin(s);
    Scores capped;
    make_p(s, capped, p, coord, tiles, at, warp * 16, row_smem, lane);
    pack_scores(p_frag, s);
    dropout.mask(p_frag);
    start_sums(dv, p_frag, do_smem);
    wgmma_wait<1>();  // dP^T is there
    pin(dp);
    if constexpr (kModified)
        multiply_derivatives(s, capped);
    dropout.mask(dp);
    dp_to_ds(dp, s, row_smem + kDeltaArea - kLseArea);
    pack_scores(ds_frag, dp);
}

// Waits for Q and dO, and starts S^T = K Q^T and dP^T = V dO^T.
__device__ __forceinline__ void start_products(Scores &s, Scores &dp, const Params &p, const Barriers &barriers,
                                               const Stage &stage, const Cursor &at, uint32 k_rows, uint32 v_rows,
                                               uint32 q_smem, uint32 do_smem)
{
    barrier_wait(barriers.q(stage.index).full, stage.parity);
    if constexpr (kVarlen)
        clear_after_end(p, barriers, stage, at, q_smem, do_smem);
    start_scores(s, k_rows, q_smem);
    barrier_wait(barriers.d_o(stage.index).full, stage.parity);
    start_scores(dp, v_rows, do_smem);
}

// Adds a warp's part of dQ of the tile `at` to the sums over all blocks. seen: with kDqInOrder, the counter of the tile
// as lane 0 has read it earlier. The producer counts the tile when all warps have given its Q back (bwd_producer.cuh).
__device__ __forceinline__ void add_dq_of(const Params &p, const BlockCoord &coord, const Cursor &at, int64 batch_head,
                                          const DqTile &dq, uint32 seen, int row_group, int col_group, int warp,
                                          int lane)
{
    float *tile_sum = kVarlen ? nullptr : p.dq_sum + (batch_head * p.q_tiles + at.tile) * kDqTile;
    if constexpr (kDqInOrder)
        await_turn(turn_counter(p, coord, batch_head, at.tile), seen, blocks_before(p, coord, at.tile), lane);
    const int m = row_group * 4 + warp % 4;
    if constexpr (kVarlen)
        add_dq(dq_sums(p, coord, batch_head, at.tile, m, col_group), dq, lane, p.seq_q - at.tile * kBr - m * 16,
               col_group);
    else
        add_dq(tile_sum + (m * kColWarps + col_group) * kDqWarpPart, dq, lane);
}

// Computes dK and dV of 64 keys, and adds to dQ, over `steps` tiles of queries beginning at `at`.
__device__ __forceinline__ void compute_rows(const Params &p, const BlockCoord &coord, const TileRange &tiles,
                                             Cursor at, int steps, const Barriers &barriers, int group, Sums &dk,
                                             Sums &dv)
{
    const uint32 smem = barriers.smem;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32 k_rows = smem + kKArea + group * kGroupKeys * kPageRowBytes, v_rows = k_rows + kVArea - kKArea;
    const int row_group = group / kColWarps, col_group = group % kColWarps;
    const int first_head = coord.kv_head * p.group;
    Stage stage;
    uint32 score_stage = 0;
    Scores s, dp;
    Dropout dropout(p, coord.first_key + warp * 16, lane);

    await_keys(p, coord, barriers);
#pragma unroll 1
    for (; steps > 0; steps--) {
        const uint32 q_smem = smem + kQArea + stage.index * kQTileBytes;
        const uint32 do_smem = smem + kDoArea + stage.index * kQTileBytes;
        const uint32 row_smem = smem + kLseArea + stage.index * kRowBytes + lane % 4 * 2 * 4;
        const uint32 score_smem = smem + kScoreArea + score_stage * kScoreBytes;
        Fragments p_frag, ds_frag;
        DqTile dq;

        start_products(s, dp, p, barriers, stage, at, k_rows, v_rows, q_smem, do_smem);
        const int64 batch_head = int64(coord.batch) * p.heads_q + first_head + at.head;
        uint32 seen = 0;
        if (kDqInOrder && p.dq != nullptr && lane == 0)
            seen = load_counter(turn_counter(p, coord, batch_head, at.tile));
        begin_dropout(dropout, p, coord, first_head + at.head, at, lane);
        make_scores(s, dp, p_frag, ds_frag, dv, dropout, p, coord, tiles, at, warp, lane, row_smem, do_smem);
        store_ds(ds_frag, score_smem, warp * 16, lane);
        fence_products();
        named_barrier(1, kWorkers);  // all of dS^T is there; dS^T of the tile before is read
        start_dq(dq, score_smem + row_group * kKvPageBytes, smem + kKArea + col_group * kDqColumnBytes);
        start_sums(dk, ds_frag, q_smem);
        wgmma_wait<1>();  // dV and dQ are there
        pin(dv);
        pin(dq);
        if (lane == 0)
            barrier_arrive(barriers.d_o(stage.index).empty);
        if (p.dq != nullptr)
            add_dq_of(p, coord, at, batch_head, dq, seen, row_group, col_group, warp, lane);
        wgmma_wait<0>();
        pin(dk);
        if constexpr (kDqInOrder)
            __syncwarp();  // all lanes have added to dQ
        if (lane == 0)
            barrier_arrive(barriers.q(stage.index).empty);
        at.advance(tiles, tiles.end(p));
        stage.advance();
        score_stage ^= 1;
    }
}

// ---- blocks that add to sums in a fixed order -----------------------------------------------------------------------
//
// Each sum has a counter of the blocks that have added to it. A block waits until the counter has reached the number of
// blocks that come before it. Which block comes first is decided by tickets: a block draws one when it begins, and the
// ticket determines its work. A block with a lower ticket has begun earlier, so it is running or done when others wait
// for it.

// Draws the block's ticket and returns it in all threads. counter(): address of the counter, computed by one thread.
// smem: 4 bytes that nothing uses yet. No TMA load may write there later: that would need a fence after this store.
template <class Counter> __device__ __forceinline__ uint32 draw_ticket(Counter counter, uint32 smem)
{
    if (threadIdx.x == 0)
        store_shared_4(smem, take_ticket(counter()));
    __syncthreads();  // the ticket is there
    const uint32 ticket = __float_as_uint(load_shared_4(smem));
    __syncthreads();  // and read, before anything else comes into its place
    return ticket;
}

// Waits until `before` blocks have added. seen: the counter as lane 0 has read it earlier. No fence is needed after the
// wait, because what follows are additions, which are issued when the loop has ended.
__device__ __forceinline__ void await_count(const uint32 *counter, uint32 seen, uint32 before, int lane)
{
    if (lane == 0)
        while (seen < before)
            seen = load_counter(counter);
    __syncwarp();  // no lane adds before it is the block's turn
}

// ---- producer: a thread that loads ----------------------------------------------------------------------------------
//
// hopper/bwd.cuh calls Loads::load_all in the last warpgroup.

// The tensor maps of a launch, in the order of the recipe.
struct TensorMaps {
    TensorMap q, k, v, d_o;
};

// The first row of the block's sequence in the tensors.
template <class Coord> __device__ __forceinline__ int first_key_row(const Coord &coord)
{
    if constexpr (kVarlen)
        return coord.own.sequence.first_k;
    else
        return 0;
}

template <class Coord> __device__ __forceinline__ int first_query_row(const Coord &coord)
{
    if constexpr (kVarlen)
        return coord.own.sequence.first_q;
    else
        return 0;
}

// All loads of a block; used by one thread.
struct Loads {
    const Params &p;
    const TensorMaps &maps;
    const Barriers &barriers;
    const BlockCoord &coord;

    template <int kPageBytes>
    __device__ __forceinline__ void load_tile(uint32 area, const TensorMap &map, const Strides &stride, uint32 full,
                                              int row, int head) const
    {
#pragma unroll
        for (int page = 0; page < kPages; page++)
            load_page(area + page * kPageBytes, map, full, page * kPageColumns, row, coordinate(head, stride.head),
                      coordinate(kVarlen ? 0 : coord.batch, stride.batch));
    }

    __device__ __forceinline__ void load_keys(uint32 area, const TensorMap &map, const Strides &stride,
                                              uint32 full) const
    {
        barrier_expect(full, kKvTileBytes);
        load_tile<kKvPageBytes>(barriers.smem + area, map, stride, full, first_key_row(coord) + coord.first_key,
                                coord.kv_head);
    }

    // Loads a tile of Q or dO, and LSE or delta of its rows.
    __device__ __forceinline__ void load_queries(uint32 area, const TensorMap &map, const Strides &stride,
                                                 uint32 row_area, const float *rows, uint32 full,
                                                 const Cursor &at) const
    {
        const int head = coord.kv_head * p.group + at.head;
        const int64 batch_head = int64(coord.batch) * p.heads_q + head;
        int row_bytes = kRowBytes;
        if constexpr (kVarlen)  // rows of other sequences follow the last rows of this one
            row_bytes = min(kRowBytes, (p.seq_q - at.tile * kBr + 3) / 4 * 16);
        barrier_expect(full, kQTileBytes + row_bytes);
        load_tile<kQPageBytes>(barriers.smem + area, map, stride, full, first_query_row(coord) + at.tile * kBr, head);
        if constexpr (kVarlen)
            load_bytes(barriers.smem + row_area,
                       rows + batch_head * rows_of_batch_head(p) + coord.first_prepared + at.tile * kBr, row_bytes,
                       full);
        else
            load_bytes(barriers.smem + row_area, rows + (batch_head * p.q_tiles + at.tile) * kBr, row_bytes, full);
    }

    // The first head of queries that the block has: b * heads + h.
    __device__ __forceinline__ int64 first_head() const
    {
        return int64(coord.batch) * p.heads_q + coord.kv_head * p.group;
    }

    // Counts the block for a tile that all warps have given back, so that they have added to its dQ (dq_order.cuh).
    // This thread does it because a fence would hold up the products of a consumer.
    __device__ __forceinline__ void count_tile(const TileRange &tiles, Cursor &at, Stage &stage) const
    {
        if (p.dq != nullptr)
            count_up(turn_counter(p, coord, first_head() + at.head, at.tile));
        stage.advance();
        at.advance(tiles, tiles.end(p));
    }

    // Counts all tiles, and gives the stages of dS^T back. For a thread that does nothing else (kCountsApart): the
    // fence of a count takes as long as additions do to reach memory, which would hold up loads, or the next dQ.
    __device__ __forceinline__ void count_all(const TileRange &tiles, Cursor at, int steps) const
    {
        uint32 *const counters = turn_counters(p) + first_head() * p.q_tiles + coord.first_q_tile;
        const int end = tiles.end(p);
        Stage stage;
#pragma unroll 1
        for (; steps > 0; steps--) {
            barrier_wait(barriers.dq_added(stage.index), stage.parity);
            barrier_arrive(barriers.ds(stage.index).empty);
            count_up(counters + at.head * p.q_tiles + at.tile);
            stage.advance();
            at.advance(tiles, end);
        }
    }

    // Lets the copy engine add dQ of all tiles, each when it is the block's turn, and counts them (kAddsApart).
    __device__ __forceinline__ void add_all(const TileRange &tiles, Cursor at, int steps) const
    {
        static_assert(!kAddsApart || kWarps * kDqPartBytes == kDqTile * 4, "a tile of dQ is contiguous");
        uint32 *const counters = turn_counters(p) + first_head() * p.q_tiles + coord.first_q_tile;
        float *const sums = p.dq_sum + first_head() * p.q_tiles * kDqTile;
        const int end = tiles.end(p);
        uint32 parity = 0;
#pragma unroll 1
        for (; steps > 0; steps--, parity ^= 1) {
            const int tile = at.head * p.q_tiles + at.tile;
            const uint32 before = blocks_before(p, coord, at.tile);
            while (load_counter(counters + tile) < before) {
            }
            barrier_wait(barriers.exchange().full, parity);
            add_bytes(sums + int64(tile) * kDqTile, barriers.smem + kDqArea, kWarps * kDqPartBytes);
            commit_stores();
            wait_stores_read();
            barrier_arrive(barriers.exchange().empty);
            wait_stores_done();
            count_up(counters + tile);
            at.advance(tiles, end);
        }
    }

    // What another thread does if blocks add to dQ in order.
    __device__ __forceinline__ void order_dq(const TileRange &tiles, const Cursor &begin, int steps) const
    {
        if constexpr (kAddsApart)
            add_all(tiles, begin, steps);
        else
            count_all(tiles, begin, steps);
    }

    __device__ __forceinline__ void load_all(const TileRange &tiles, Cursor at, int steps) const
    {
        constexpr bool kCounts = kDqInOrder && !kByProduct && !kCountsApart && !kAddsApart;
        Cursor counted = at;
        Stage counted_stage;
        int left = steps;  // tiles that are to be counted
        const int64 batch_heads = int64(batches(p)) * p.heads_q;
        const int64 all_rows = kVarlen ? batch_heads * rows_of_batch_head(p) : batch_heads * p.q_tiles * kBr;
        Stage stage;
        load_keys(kKArea, maps.k, p.k_stride, barriers.k_full());
        bool first = true;
#pragma unroll 1
        for (; steps > 0; steps--) {
            const int i = stage.index;
            barrier_wait(barriers.q(i).empty, stage.parity ^ 1);
            // p.rows: LSE of all rows, then delta of all rows.
            load_queries(kQArea + i * kQTileBytes, maps.q, p.q_stride, kLseArea + i * kRowBytes, p.rows,
                         barriers.q(i).full, at);
            if (first)
                load_keys(kVArea, maps.v, p.v_stride, barriers.v_full());
            first = false;
            barrier_wait(barriers.d_o(i).empty, stage.parity ^ 1);
            load_queries(kDoArea + i * kQTileBytes, maps.d_o, p.do_stride, kDeltaArea + i * kRowBytes,
                         p.rows + all_rows, barriers.d_o(i).full, at);
            stage.advance();
            at.advance(tiles, tiles.end(p));
            if (kCounts && left - steps >= kStages) {  // the tile that was in this stage: see q(i).empty above
                count_tile(tiles, counted, counted_stage);
                left--;
            }
        }
        if constexpr (kCounts)
            for (; left > 0; left--) {
                barrier_wait(barriers.q(counted_stage.index).empty, counted_stage.parity);
                count_tile(tiles, counted, counted_stage);
            }
    }
};

// ---- backward -----------------------------------------------------------------------------------------
//
// The kernel of bwd_sm90 (bwd_sm90.cu.in calls `backward`). One block computes kBc rows of dK and dV over all queries
// that see its keys, and adds to dQ. Each consumer warpgroup has 64 of these rows; the last warpgroup is the producer.
// Per tile of kBr queries:
//
//     S^T = K Q^T      P^T = 2^(S^T - lse)          dV += P^T dO
//     dP^T = V dO^T    dS^T = P^T * (dP^T - delta)  dK += dS^T Q     dQ += dS K
//
// Keys are rows of S^T, so P^T and dS^T are operands of dV and dK in the registers where they were computed. dS^T goes
// through shared memory for dQ only: each warpgroup computes a part of dQ from all keys.
//
// Timeline of a step; products run while the threads compute P and dS:
//
//     start S, dP | wait for S, P | start dV | wait for dP, dS | barrier: dS of all warps | start dQ, dK |
//     wait for dQ, add it | wait for dK
//
// Each stage of Q (with LSE) and of dO (with delta) has two mbarriers. The loads arrive at `full`; every warp that has
// read the stage arrives at `empty`.
//
// That is the form with dq=atomic (bwd_by_keys.cuh). With dq=bulk the copy engine adds dQ (bwd_dq_bulk.cuh), and with
// dq=group a third warpgroup computes it (bwd_dq_group.cuh). If rows have more than 128 columns, warpgroups divide the
// products instead (bwd_by_product.cuh).

// Number of tiles of queries that the block processes.
template <class Range>
__device__ __forceinline__ int steps_of(const Range &range, const Params &p, const TileRange &tiles)
{
    if constexpr (kSplit)
        return range.steps;
    else
        return max(tiles.end(p) - tiles.first, 0) * p.group;
}

// Returns a number that determines the block's work. If blocks wait for others, it is a ticket. smem: see draw_ticket.
__device__ __forceinline__ unsigned block_number(const Params &p, uint32 smem)
{
    if (kHeadBlocks && p.splits > 1)
        return draw_ticket([&] { return key_ticket(p); }, smem);
    return kDqInOrder ? block_ticket(p, smem) : blockIdx.x;
}

// The kernel; kThreads threads.
__device__ __forceinline__ void backward(const Params &all, const TensorMaps &maps)
{
    extern __shared__ __align__(1024) char shared[];
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    const Barriers barriers{smem};
    const int index = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    unsigned block = blockIdx.x;
    if constexpr (kHeadBlocks || kDqInOrder)
        block = block_number(all, smem + kScoreArea);
    const BlockCoord coord(all, kSplit && !kHeadBlocks ? block / all.splits : block, kHeadBlocks ? all.splits : 1);
    if (!kHeadBlocks || coord.split == 0)
        clear_unused_keys(all, coord);
    if (coord.is_empty())
        return;
    OwnParams p = coord.params(all);  // lengths and addresses are those of the block's sequence
    const TileRange tiles(p, coord);
    // Computed where it is needed, so that it takes no register in the mainloop.
    auto split = [&] { return kHeadBlocks ? unsigned(coord.split) : block % p.splits; };
    const QueryRange range(p, tiles, kSplit ? split() : 0);
    const Cursor begin = range.start(p, tiles);
    const int steps = steps_of(range, p, tiles);

    if (threadIdx.x == 0)
        barriers.init();
    __syncthreads();  // the barriers are there

    if (index == kGroups) {
        give_registers<kLoadRegisters>();
        const Loads loads{p, maps, barriers, coord};
        if constexpr (kCountsApart || kAddsApart) {
            // The same for all lanes, as the compiler knows: else loads spill.
            const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
            if (warp == kWarps + 1) {
                if (threadIdx.x % 32 == 0 && p.dq != nullptr)
                    loads.order_dq(tiles, begin, steps);
                return;
            }
        }
        if (threadIdx.x == kWorkers && steps > 0)
            loads.load_all(tiles, begin, steps);
        return;
    }
    if constexpr (kByProduct) {
        compute_by_product(p, coord, tiles, begin, steps, barriers, index, split());
    } else {
        if constexpr (kDqWarpgroup)
            if (index == kKeyGroups) {
                give_registers<kDqRegisters>();
                if (steps > 0 && p.dq != nullptr)
                    compute_dq_alone(p, coord, tiles, begin, steps, barriers);
                named_barrier_arrive(3, kWorkers);  // its warps have read their last K; clear_rows may use barrier 1
                return;
            }
        take_registers<kGroupRegisters>();
        Sums dk = {}, dv = {};
        if (steps > 0)
            compute_rows(p, coord, tiles, begin, steps, barriers, index, dk, dv);
        named_barrier(3, kWorkers);  // every warp has read its last K and V before dK and dV come into their place
        if (kSplit && p.splits > 1) {
            put_part(p, coord, split(), 0, dk);
            put_part(p, coord, split(), 1, dv);
            return;
        }
        const int lane = threadIdx.x % 32, warp_key = threadIdx.x / 32 * 16;
        write_rows(p.dk, p.dk_stride, p, coord, dk, p.scale, smem + kKArea, warp_key, 0, lane);
        write_rows(p.dv, p.dv_stride, p, coord, dv, value_scale(p), smem + kVArea, warp_key, 0, lane);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    bwd_sm90(const __grid_constant__ Params p, const __grid_constant__ TensorMaps maps)
{
    backward(p, maps);
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

// ---- LSE and delta of rows --------------------------------------------------------------------------------------

// Rows of a head: of p, or of all packed sequences if kOfAll.
template <bool kOfAll> __device__ __forceinline__ int head_rows(const Params &p)
{
    return kOfAll && kVarlen ? p.features.total_q : p.seq_q;
}

// Returns LSE in log2 units; +infinity for rows that saw no key and for rows after the tensor's end, so that their P is
// 0.
template <bool kOfAll = false> __device__ __forceinline__ float row_lse(const Params &p, int64 batch_head, int row)
{
    const float lse =
        row < head_rows<kOfAll>(p) ? __ldg(p.lse + batch_head * head_rows<true>(p) + row) : minus_infinity();
    bool none;
    if constexpr (kBiasNumbers)
        none = lse < kLeastScore - 128.0f;  // lower only if no key was visible, or if the sink is that low
    else
        none = lse == minus_infinity();
    return none ? -minus_infinity() : lse * 1.4426950408889634f;
}

// LSE or delta of four rows beyond the end.
__device__ __forceinline__ uint4 no_rows(bool lse)
{
    const uint32 x = lse ? __float_as_uint(-minus_infinity()) : 0;
    return {x, x, x, x};
}

// kRowLanes neighbouring lanes share a row, 8 elements each.
constexpr int kRowChunks = kHeadDimV / 8;
constexpr int kRowLanes = kRowChunks > 16  ? 32
                          : kRowChunks > 8 ? 16
                          : kRowChunks > 4 ? 8
                          : kRowChunks > 2 ? 4
                                           : kRowChunks;

// Returns delta = rowsum(dO * O), in all lanes of the row; 0 after the tensor's end. All lanes of the warp must call
// it.
template <bool kOfAll = false>
__device__ __forceinline__ float row_delta(const Params &p, int64 batch, int head, int row, int lane)
{
    float delta = 0.0f;
    if (row < head_rows<kOfAll>(p) && lane < kRowChunks) {
        const char *o = p.o + (batch * p.o_stride.batch + head * p.o_stride.head + row * p.o_stride.seq) * kElemBytes;
        const char *d_o =
            p.d_o + (batch * p.do_stride.batch + head * p.do_stride.head + row * p.do_stride.seq) * kElemBytes;
        delta = dot_8(o, d_o, lane);
    }
#pragma unroll
    for (int lanes = kRowLanes / 2; lanes > 0; lanes /= 2)
        delta += __shfl_xor_sync(0xffffffffu, delta, lanes);
    // dP is not multiplied by keep_scale (dQ and dK are, at the end), so delta is divided by it.
    return kDropout ? delta / p.features.keep_scale : delta;
}

// Writes LSE and delta of rows first_row ... first_row + kRows - 1 to shared memory, contiguously. One pass of all
// threads of a block.
constexpr int kRowsAtOnce = kThreads / kRowLanes;

template <int kRows>
__device__ __forceinline__ void put_some_rows(const Params &p, int batch, int head, int first_row, uint32 smem,
                                              int pass, int64 batch_head, int thread)
{
    const int r = pass * kRowsAtOnce + thread / kRowLanes;
    const int row = r < kRows ? first_row + r : p.seq_q;
    const float delta = row_delta(p, batch, head, row, thread % kRowLanes);
    if (r < kRows && thread % kRowLanes == 0) {
        store_shared_4(smem + r * 4, __float_as_uint(row_lse(p, batch_head, row)));
        store_shared_4(smem + (kRows + r) * 4, __float_as_uint(delta));
    }
}

// All passes of the block.
template <int kRows>
__device__ __forceinline__ void put_rows(const Params &p, int batch, int head, int first_row, uint32 smem)
{
    constexpr int kPasses = (kRows + kRowsAtOnce - 1) / kRowsAtOnce;
    const int64 batch_head = int64(batch) * p.heads_q + head;
    const int thread = thread_index();
    if constexpr (kDqBlock) {
#pragma unroll 2  // no deeper unrolling: the sums of dK and dV hold registers meanwhile
        for (int pass = 0; pass < kPasses; pass++)
            put_some_rows<kRows>(p, batch, head, first_row, smem, pass, batch_head, thread);
    } else {
#pragma unroll
        for (int pass = 0; pass < kPasses; pass++)
            put_some_rows<kRows>(p, batch, head, first_row, smem, pass, batch_head, thread);
    }
}

// ---- the kernel before the main one: LSE in log2 units and delta of all rows; zeros for the dQ sums ------
//
// Its entry point is in steps.cu.in.

// The kernel.
template <int kBlockThreads, class AnyParams> __device__ __forceinline__ void prepare(const AnyParams &p)
{
    constexpr int kBlockRows = kBlockThreads / kRowLanes;
    const int64 rows = rows_of_batch_head(p);
    const int64 all_rows = int64(batches(p)) * p.heads_q * rows;
    const int64 index = int64(blockIdx.x) * kBlockRows + threadIdx.x / kRowLanes;
    const int64 batch_head = index / rows;
    int row;
    if constexpr (kVarlen) {
        const int at = packed_row(p, index % rows);
        row = index < all_rows ? at : p.features.total_q;
    } else {
        row = index < all_rows ? int(index % rows) : p.seq_q;
    }
    const float delta =
        row_delta<true>(p, batch_head / p.heads_q, batch_head % p.heads_q, row, threadIdx.x % kRowLanes);
    if (index < all_rows && threadIdx.x % kRowLanes == 0) {
        p.rows[index] = row_lse<true>(p, batch_head, row);
        p.rows[all_rows + index] = delta;
    }
    if constexpr (kHeadBlocks)
        clear_parts<kBlockThreads>(p);
    if (kDqSeparate || p.dq == nullptr)
        return;
    clear_dq<kBlockThreads, kBlockRows, kRowLanes>(p, batch_head, row, threadIdx.x % kRowLanes,
                                                   int64(blockIdx.x) * kBlockRows, rows, all_rows);
    if constexpr (kDqInOrder) {
        const int64 counters = kVarlen ? int64(p.heads_q) * p.q_tiles : all_rows / kBr;
        if (index <= counters && threadIdx.x % kRowLanes == 0)
            turn_counters(p)[index] = 0;
    }
    if constexpr (kDqDirect)
        return;
    // The block clears as many numbers of dQ as belong to its rows.
    constexpr int kRowSums = kDqWidth / 4;
    constexpr int kQuarters = kRowSums * kBlockRows;
    float4 *sum = reinterpret_cast<float4 *>(p.dq_sum) + int64(blockIdx.x) * kQuarters;
    const int64 left = dq_rows(p, all_rows) * kRowSums - int64(blockIdx.x) * kQuarters;
#pragma unroll
    for (int i = threadIdx.x; i < kQuarters; i += kBlockThreads)
        if (i < left)
            sum[i] = float4{0.0f, 0.0f, 0.0f, 0.0f};
}

// ---- the kernel after the main one: converts dQ from fp32 sums ------------------------------------------------
//
// Its entry point is in steps.cu.in. A thread has 8 columns of two rows; SummedPart knows where their sums are
// (dq_fragments.cuh, or hopper/dq_columns.cuh).

constexpr int kConvertParts = kConvertRows * kDqWidth / 16;  // parts of 16 numbers
constexpr int kConvertThreads = kConvertParts > 256 ? 256 : kConvertParts;
static_assert(kBr % kConvertRows == 0, "tiles are whole blocks");

// Both rows of a part, as elements.
struct ElementRows {
    uint4 upper, lower;

    __device__ __forceinline__ ElementRows(const DqNumbers &x, float scale)
    {
        upper = {pack2(x.upper[0] * scale, x.upper[1] * scale), pack2(x.upper[2] * scale, x.upper[3] * scale),
                 pack2(x.upper[4] * scale, x.upper[5] * scale), pack2(x.upper[6] * scale, x.upper[7] * scale)};
        lower = {pack2(x.lower[0] * scale, x.lower[1] * scale), pack2(x.lower[2] * scale, x.lower[3] * scale),
                 pack2(x.lower[4] * scale, x.lower[5] * scale), pack2(x.lower[6] * scale, x.lower[7] * scale)};
    }

    // Writes both rows. p: parameters of the sequence alone; to: address of the upper row; row: its index.
    __device__ __forceinline__ void write(const Params &p, char *to, int64 row) const
    {
        if (row < p.seq_q)
            *reinterpret_cast<uint4 *>(to) = upper;
        if (row + SummedPart::kRowsApart < p.seq_q)
            *reinterpret_cast<uint4 *>(to + SummedPart::kRowsApart * p.dq_stride.seq * kElemBytes) = lower;
    }
};

// The same in fp32.
struct Fp32Rows {
    Fp32Chunk upper, lower;

    __device__ __forceinline__ Fp32Rows(const DqNumbers &x, float scale)
    {
        upper = {{x.upper[0] * scale, x.upper[1] * scale, x.upper[2] * scale, x.upper[3] * scale},
                 {x.upper[4] * scale, x.upper[5] * scale, x.upper[6] * scale, x.upper[7] * scale}};
        lower = {{x.lower[0] * scale, x.lower[1] * scale, x.lower[2] * scale, x.lower[3] * scale},
                 {x.lower[4] * scale, x.lower[5] * scale, x.lower[6] * scale, x.lower[7] * scale}};
    }

    __device__ __forceinline__ void write(const Params &p, char *to, int64 row)
    {
        char *const to_lower = to + SummedPart::kRowsApart * p.dq_stride.seq * 4;
        if (row < p.seq_q)
            upper.add_old(to);
        if (row + SummedPart::kRowsApart < p.seq_q)
            lower.add_old(to_lower);
        if (row < p.seq_q)
            upper.write(to);
        if (row + SummedPart::kRowsApart < p.seq_q)
            lower.write(to_lower);
    }
};
using ConvertedRows = Either<kPartial, Fp32Rows, ElementRows>::Type;

__device__ __forceinline__ void convert_batches(const Params &p)
{
    constexpr int kSlices = kBr / kConvertRows;  // blocks per tile; they divide its parts, not its rows
    const int64 tile = blockIdx.x / kSlices;
    const int64 batch_head = tile / p.q_tiles;
    const int head = batch_head % p.heads_q;
    const int64 batch = batch_head / p.heads_q;
    const float *from_tile = p.dq_sum + tile * kDqTile;
    char *out = p.dq + (batch * p.dq_stride.batch + head * p.dq_stride.head) * kOutBytes;
    const float scale = p.scale;

#pragma unroll
    for (int i = threadIdx.x; i < kConvertParts; i += kConvertThreads) {
        const SummedPart part(blockIdx.x % kSlices * kConvertParts + i, from_tile, tile % p.q_tiles * kBr);
        if (part.chunk >= kHeadDim / 8)
            continue;
        ConvertedRows rows(part.read(), scale);
        rows.write(p, out + part.row * p.dq_stride.seq * kOutBytes + part.chunk * kChunkBytes, part.row);
    }
}

// The kernel.
template <int kBlockThreads, class AnyParams> __device__ __forceinline__ void convert(const AnyParams &p)
{
    static_assert(kBlockThreads == kConvertThreads, "the block has the threads that divide its parts");
    if constexpr (kVarlen)
        convert_packed(p);
    else
        convert_batches(p);
}
// ---- entry points of the kernels before and after the main one: each function gets the threads of a block ----------
extern "C" __global__ void __launch_bounds__(256) bwd_sm90_prepare(const __grid_constant__ Params p)
{
    prepare<256>(p);
}
extern "C" __global__ void __launch_bounds__(256) bwd_sm90_convert(const __grid_constant__ Params p)
{
    convert<256>(p);
}
