// bwd_sm80 d=64 dtype=bf16 causal=1 br=64 bc=128 warps=4 qwarps=1 parts=2 stages=1 barriers=2 order=early dq=atomic dqbc=0 rows=prepared layout=swizzle
// op=backward abi=1 rows=64 keys=128 columns=64 workspace=rows_and_dq; bwd_sm80_prepare role=prepare threads=256 smem=0 blocks=padded_rows/32; bwd_sm80 role=main threads=128 smem=66048 blocks=key_tiles; bwd_sm80_convert role=convert threads=128 smem=0 blocks=padded_rows/32
// bwd_sm80: attention backward on SM 8.0 and newer. fp16 or bf16, mma m16n8k16, tiles loaded by cp.async.

// ---- the problem, the element, the SM and the features; a feature that is off costs nothing ----------------------
constexpr int kHeadDim = 64;         // D: columns of Q and K
constexpr int kHeadDimV = 64;        // columns of V and O
constexpr bool kCausal = 1 == 1;   // query i sees keys <= i + seq_k - seq_q
constexpr int kGeneratorSmemBytes = 66048;
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
constexpr int kStages = 1;               // stages of Q and dO in shared memory
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
constexpr int kWriters = 128;           // threads that write a tile of dK, or of dV
constexpr int kConvertRows = 32;  // rows of dQ of a block that converts it
// ---- the variant -------------------------------------------------------------------------------
constexpr int kWarps = 4;
constexpr bool kSwizzle = true;  // 16-byte chunks of a row are permuted; else each row is padded
constexpr int kRowWarps = 2;      // dQ: warps that divide its rows; the rest divide its columns
constexpr int kParts = 2;          // parts of a warp's queries in a tile; one part at a time is in registers
constexpr int kDqParts = 1;      // parts of a warp's rows of dQ in a tile; one part at a time is in registers
constexpr int kBarriers = 2;    // barriers per tile: with 1, warps may be a tile apart; more shared memory
constexpr bool kFillLater = false;     // SM 7.5: Q and dO pass through registers one by one, after dQ
constexpr int kDqBc = 0;            // key rows per tile of the separate blocks of dQ

// ---- derived constants -----------------------------------------------------------------------------------------
constexpr int kThreads = kWarps * 32;
constexpr int kKeyWarps = kWarps / kQueryWarps;
constexpr int kColWarps = kWarps / kRowWarps;
constexpr int kHeadDimPadded = (kHeadDim + 16 * kQueryWarps - 1) / (16 * kQueryWarps) * (16 * kQueryWarps);
constexpr int kHeadDimVPadded = (kHeadDimV + 16 * kQueryWarps - 1) / (16 * kQueryWarps) * (16 * kQueryWarps);
constexpr int kDepth = kHeadDimPadded / 16;                        // k16 steps of S; 16-column pairs of dK and dQ
constexpr int kKeyTiles = kBc / (16 * kKeyWarps);                  // m16 tiles of keys per warp
constexpr int kWarpQueries = kBr / kQueryWarps;                    // queries per tile and warp
constexpr int kQueryTiles = kWarpQueries / (8 * kParts);           // n8 tiles of queries per part
constexpr int kQuerySteps = kQueryTiles / 2;                       // k16 steps of dK and dV per part
constexpr int kOutPairs = kDepth / kQueryWarps;                    // 16-column pairs of n8 tiles of dK per warp
constexpr int kValuePairs = kHeadDimVPadded / (16 * kQueryWarps);  // 16-column pairs of n8 tiles of dV per warp
constexpr int kDqRowTiles = kBr / (16 * kRowWarps);                // m16 tiles of dQ per warp
constexpr int kDqPartTiles = kDqRowTiles / kDqParts;               // m16 tiles of dQ per warp at a time
constexpr int kDqPairs = kDepth / kColWarps;                       // 16-column pairs of dQ per warp
// One loop processes tiles with and without a mask. Measured with 21 causal kernels that add to dQ in order, D = 128:
// 14 spill with two loops, and 6 with one. With D = 64 the fastest kernels spill with one loop.
constexpr bool kOneLoop = kWindow != Window::kNone || kSplit || (kDqInOrder && kCausal && kHeadDim > 64);
constexpr unsigned kTogether = 512;  // tiles of keys, over several heads, that are interleaved
constexpr unsigned kLeastHeads = 8;  // the least number of heads that are interleaved
// Blocks with the most work come first, over all heads; else blocks are in the order of their keys.
constexpr bool kHeavyFirst = kCausal && kWindow == Window::kNone;

static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 256, "D is a multiple of 8 up to 256");
static_assert(kHeadDimV % 8 == 0 && kHeadDimV >= 8 && kHeadDimV <= 256, "so are the columns of V");
static_assert(kWarps % kQueryWarps == 0 && kWarps % kRowWarps == 0, "warps divide both ways evenly");
static_assert(kBc % (16 * kKeyWarps) == 0, "a warp owns whole m16 tiles of keys");
static_assert(kWarpQueries % (16 * kParts) == 0, "a part of the queries is whole k16 steps of dK and dV");
static_assert(kBr % (16 * kRowWarps) == 0, "a warp owns whole m16 tiles of dQ");
static_assert(kBarriers == 2 ? kStages <= 2 : kStages == (kQueryWarps > 1 ? 3 : 2),
              "with one barrier a tile is read until the next but one is copied");
static_assert(kDqRowTiles % kDqParts == 0, "parts of dQ are whole m16 tiles");
static_assert(!kFillLater || kStages == 1, "there is one stage, which has been read by then");
static_assert(kDepth % kColWarps == 0, "a warp owns whole pairs of n8 tiles of dQ");

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

// ---- areas of shared memory -----------------------------------------------------------------------------------
//
// ValueTile: rows of V, O and their gradients.
using ValueTile = TileForm<kHeadDimVPadded>;
constexpr int kQTileBytes = kBr * kPitch;
constexpr int kKTileBytes = kBc * kPitch;
constexpr int kDoTileBytes = kBr * ValueTile::kPitch;
constexpr int kVTileBytes = kBc * ValueTile::kPitch;

// dS^T [keys][queries] of the whole tile: dQ needs the results of every warp.
using ScoreTile = TileForm<kBr>;
constexpr int kScoreBytes = kBc * ScoreTile::kPitch;

// P^T as fragments, for the warps that have the same keys: [key warp][query warp][step][m16 tile][lane].
constexpr int kFragmentBytes = 32 * 16;
constexpr int kWarpFragments = kParts * kQuerySteps * kKeyTiles;
constexpr int kSharedPBytes = kQueryWarps > 1 ? kWarps *kWarpFragments *kFragmentBytes : 0;

// With one barrier per tile, a tile's P^T and dS^T are still read while the next tile's are written.
constexpr int kScoreStages = kBarriers == 1 ? 2 : 1;

// LSE in log2 units and delta of the rows of a tile.
constexpr int kRowBytes = 2 * kBr * 4;

constexpr int kKArea = 0;
constexpr int kVArea = kKArea + kKTileBytes;
constexpr int kQArea = kVArea + kVTileBytes;
constexpr int kDoArea = kQArea + kStages * kQTileBytes;
constexpr int kScoreArea = kDoArea + kStages * kDoTileBytes;
constexpr int kSharedPArea = kScoreArea + kScoreStages * kScoreBytes;
constexpr int kRowArea = kSharedPArea + kScoreStages * kSharedPBytes;
constexpr int kKeyBlockBytes = kRowArea + kStages * kRowBytes;

// Separate blocks of dQ: 16 rows of Q and dO per warp, two tiles of K and V, LSE and delta.
constexpr int kDqRows = 16 * kWarps;
constexpr int kDqKBytes = kDqBc * kPitch;
constexpr int kDqVBytes = kDqBc * ValueTile::kPitch;
constexpr int kDqDoArea = kDqRows * kPitch;
constexpr int kDqKArea = kDqDoArea + kDqRows * ValueTile::kPitch;
constexpr int kDqVArea = kDqKArea + 2 * kDqKBytes;
constexpr int kDqStatArea = kDqVArea + 2 * kDqVBytes;
constexpr int kQueryBlockBytes = kDqStatArea + 2 * kDqRows * 4;

constexpr int kSmemBytes = kDqSeparate && kQueryBlockBytes > kKeyBlockBytes ? kQueryBlockBytes : kKeyBlockBytes;
static_assert(kSmemBytes == kGeneratorSmemBytes, "the generator computed another size");

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

// The empty policy: blocks of other keys add to dQ, too.
__device__ __forceinline__ void clear_sums(const Params &, unsigned) {}

__device__ __forceinline__ void write_dq(const Params &, int, int, int, int, int, const DqTile &, int) {}

__device__ __forceinline__ void clear_unseen(const Params &, int, int, int, int) {}

constexpr bool kBiasGradient = false;

// The empty policy: the gradient of a bias is not wanted.
__device__ __forceinline__ void add_dbias(const Scores &, const Params &, int64, int, int, int) {}

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

// The layout of a tile: V has its own if it has fewer columns, and so have rows of 8-bit integers.
template <int kColumns>
using FormOf = TileForm<kColumns == kHeadDimV  ? kHeadDimVPadded
                        : kColumns == kHeadDim ? kHeadDimPadded
                                               : (kColumns + 15) / 16 * 16>;

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

// ---- loads of LSE and delta of a tile's rows into shared memory -------------------------------------------------

// Policy: each block computes them.
struct ComputedRows {
    __device__ __forceinline__ void issue(const Params &p, int batch, int head, int tile, int, uint32 smem)
    {
        put_rows<kBr>(p, batch, head, tile * kBr, smem);
    }

    __device__ __forceinline__ void store(uint32) {}
};

// Policy: loaded from the workspace, 16 bytes per thread. The workspace has whole tiles; with packed sequences, rows of
// others follow a sequence's last rows.
constexpr int kRowQuarters = kBr / 4;  // 16-byte loads of LSE; delta has as many
static_assert(2 * kRowQuarters <= kThreads, "a thread copies 16 bytes at most");

// Index of the first row that thread i loads, of LSE or delta of a tile. first: first row of the sequence.
__device__ __forceinline__ int64 prepared_row(const Params &p, int64 batch_head, int tile, int first, int i)
{
    const int64 rows = rows_of_batch_head(p);
    const int64 batch_heads = int64(batches(p)) * p.heads_q;
    return (i < kRowQuarters ? batch_head : batch_heads + batch_head) * rows + first + tile * kBr;
}

// Loaded through registers.
struct StagedRows {
    uint4 staged;

    __device__ __forceinline__ void issue(const Params &p, int batch, int head, int tile, int first, uint32)
    {
        const int64 batch_head = int64(batch) * p.heads_q + head;
        const int i = thread_index();
        const int64 from = prepared_row(p, batch_head, tile, first, i);
        if (kVarlen && tile * kBr + i % kRowQuarters * 4 >= p.seq_q)
            staged = no_rows(i < kRowQuarters);
        else if (i < 2 * kRowQuarters)
            staged = __ldg(reinterpret_cast<const uint4 *>(p.rows + from + i % kRowQuarters * 4));
    }

    __device__ __forceinline__ void store(uint32 smem)
    {
        const int i = thread_index();
        if (i < 2 * kRowQuarters)
            store_shared_16(smem + i * 16, staged);
    }
};

// Loaded by cp.async.
struct CopiedRows {
    __device__ __forceinline__ void issue(const Params &p, int batch, int head, int tile, int first, uint32 smem)
    {
        const int64 batch_head = int64(batch) * p.heads_q + head;
        const int i = thread_index();
        const int64 from = prepared_row(p, batch_head, tile, first, i);
        if (kVarlen && tile * kBr + i % kRowQuarters * 4 >= p.seq_q) {
            if (i < 2 * kRowQuarters)
                store_shared_16(smem + i * 16, no_rows(i < kRowQuarters));
            return;
        }
        cp_async_16(smem + i * 16, reinterpret_cast<const char *>(p.rows + from + i % kRowQuarters * 4),
                    i < 2 * kRowQuarters);
    }

    __device__ __forceinline__ void store(uint32) {}
};

using RowFill = Either<kPrepared, Either<kTuring, StagedRows, CopiedRows>::Type, ComputedRows>::Type;

// ---- loads: K and V once, tiles of Q and dO with LSE and delta of their rows -----------------------------------
//
// Called by the kernel of bwd.cuh: load_keys and begin_queries in its prologue, issue_queries and store_queries in each
// step.

// Loads kBc rows of K and V. If later tiles pass through registers one by one (kFillLater), there are registers for
// only one tile here, too.
__device__ __forceinline__ void load_keys(const Params &p, const BlockCoord &coord, uint32 smem)
{
    Fill<kBc, kThreads> k_fill;
    Fill<kBc, kThreads, kHeadDimV> v_fill;
    const char *k_tile =
        p.k + (coord.batch * p.k_stride.batch + coord.kv_head * p.k_stride.head + coord.first_key * p.k_stride.seq) *
                  kElemBytes;
    const char *v_tile =
        p.v + (coord.batch * p.v_stride.batch + coord.kv_head * p.v_stride.head + coord.first_key * p.v_stride.seq) *
                  kElemBytes;
    k_fill.template issue<false>(FillPlan<kBc, kThreads>(), kWhole, smem + kKArea, p.seq_k - coord.first_key,
                                 [&](int r) { return k_tile + r * p.k_stride.seq * kElemBytes; });
    if constexpr (kFillLater)
        k_fill.store(smem + kKArea);
    v_fill.template issue<false>(FillPlan<kBc, kThreads, kHeadDimV>(), kWhole, smem + kVArea, p.seq_k - coord.first_key,
                                 [&](int r) { return v_tile + r * p.v_stride.seq * kElemBytes; });
    if constexpr (!kFillLater)
        k_fill.store(smem + kKArea);
    v_fill.store(smem + kVArea);
}

// The loads of a tile of queries, which are under way while another tile is processed.
struct QueryFills {
    Fill<kBr, kThreads> q;
    Fill<kBr, kThreads, kHeadDimV> d_o;
    RowFill rows;
};

__device__ __forceinline__ void issue_q(QueryFills &fills, const Params &p, const BlockCoord &coord, int first_head,
                                        uint32 smem, const Cursor &to, int stage)
{
    const char *tile = p.q + (coord.batch * p.q_stride.batch + (first_head + to.head) * p.q_stride.head +
                              int64(to.tile) * kBr * p.q_stride.seq) *
                                 kElemBytes;
    fills.q.template issue<false>(FillPlan<kBr, kThreads>(), kWhole, smem + kQArea + stage * kQTileBytes,
                                  p.seq_q - to.tile * kBr,
                                  [&](int r) { return tile + r * p.q_stride.seq * kElemBytes; });
}

__device__ __forceinline__ void issue_do(QueryFills &fills, const Params &p, const BlockCoord &coord, int first_head,
                                         uint32 smem, const Cursor &to, int stage)
{
    const char *tile = p.d_o + (coord.batch * p.do_stride.batch + (first_head + to.head) * p.do_stride.head +
                                int64(to.tile) * kBr * p.do_stride.seq) *
                                   kElemBytes;
    fills.d_o.template issue<false>(FillPlan<kBr, kThreads, kHeadDimV>(), kWhole, smem + kDoArea + stage * kDoTileBytes,
                                    p.seq_q - to.tile * kBr,
                                    [&](int r) { return tile + r * p.do_stride.seq * kElemBytes; });
}

__device__ __forceinline__ void issue_rows(QueryFills &fills, const Params &p, const BlockCoord &coord, int first_head,
                                           uint32 smem, const Cursor &to, int stage)
{
    fills.rows.issue(p, coord.batch, first_head + to.head, to.tile, coord.first_prepared,
                     smem + kRowArea + stage * kRowBytes);
}

// Starts to copy a tile of queries.
__device__ __forceinline__ void issue_queries(QueryFills &fills, const Params &p, const BlockCoord &coord,
                                              const QueryRange &range, int first_head, uint32 smem, const Cursor &to,
                                              int stage)
{
    if (!kFillLater && range.has(p, to)) {
        issue_q(fills, p, coord, first_head, smem, to, stage);
        issue_do(fills, p, coord, first_head, smem, to, stage);
        issue_rows(fills, p, coord, first_head, smem, to, stage);
    }
    fill_commit();
}

// Finishes the copy, when the stage is no longer read.
__device__ __forceinline__ void store_queries(QueryFills &fills, const Params &p, const BlockCoord &coord,
                                              const QueryRange &range, int first_head, uint32 smem, const Cursor &to,
                                              int stage)
{
    if (range.has(p, to)) {
        if constexpr (kFillLater)
            issue_q(fills, p, coord, first_head, smem, to, stage);
        fills.q.store(smem + kQArea + stage * kQTileBytes);
        if constexpr (kFillLater) {
            issue_do(fills, p, coord, first_head, smem, to, stage);
            issue_rows(fills, p, coord, first_head, smem, to, stage);
        }
        fills.d_o.store(smem + kDoArea + stage * kDoTileBytes);
        fills.rows.store(smem + kRowArea + stage * kRowBytes);
    }
}

constexpr int kAhead = kBarriers == 1 ? 2 : 1;  // how many tiles the copy is ahead of the tile that is processed

// The stage of that tile.
__device__ __forceinline__ int stage_ahead(int stage)
{
    if constexpr (kBarriers == 2)
        return kStages == 2 ? stage ^ 1 : 0;
    else if constexpr (kStages == 2)
        return stage;
    else
        return stage == 0 ? 2 : stage - 1;
}

// Prologue: loads the first tiles, from `at` on.
__device__ __forceinline__ void begin_queries(QueryFills &fills, const Params &p, const BlockCoord &coord,
                                              const TileRange &tiles, const QueryRange &range, int first_head,
                                              uint32 smem, const Cursor &at)
{
    issue_queries(fills, p, coord, range, first_head, smem, at, 0);
    store_queries(fills, p, coord, range, first_head, smem, at, 0);
    if constexpr (kBarriers == 1) {
        issue_queries(fills, p, coord, range, first_head, smem, after(at, 1, p, tiles), 1);
        store_queries(fills, p, coord, range, first_head, smem, after(at, 1, p, tiles), 1);
        fill_wait<1>();
        __syncthreads();  // K, V and the first tile are complete
    }
}

// ---- exchange of P^T and dS^T between warps, through shared memory --------------------------------------------

// Stores P^T for the warps with the same keys. smem: this lane's address.
__device__ __forceinline__ void store_p(const Fragments &a, uint32 smem)
{
    each_of<kQuerySteps, kKeyTiles>([&](int step, int m) {
        store_shared_16(smem + (step * kKeyTiles + m) * kFragmentBytes,
                        uint4{a[step][m][0], a[step][m][1], a[step][m][2], a[step][m][3]});
    });
}

// Stores dS^T into its tile.
__device__ __forceinline__ void store_ds(const Fragments &a, uint32 score_smem, int first_key, int first_query,
                                         int lane)
{
#pragma unroll
    for (int step = 0; step < kQuerySteps; step++)
        each_of<kKeyTiles, 4>([&](int m, int i) {
            store_shared_4(score_smem +
                               ScoreTile::chunk_offset(first_key + m * 16 + i % 2 * 8 + lane / 4,
                                                       first_query / 8 + 2 * step + i / 2) +
                               lane % 4 * 4,
                           a[step][m][i]);
        });
}

// ---- products of tiles in shared memory --------------------------------------------------------------------------
//
// Tiles of c are m16n8. load_a(step, a) loads the A fragments of a k16 step into a. Form: layout of the tiles' rows.

// Loads the A fragments of 16 * kM rows of a tile for one k16 step.
template <class Form = RowTile, int kM>
__device__ __forceinline__ void load_rows(uint32 (&a)[kM][4], uint32 smem, uint32 lane_rows, int step)
{
#pragma unroll
    for (int m = 0; m < kM; m++)
        ldmatrix_x4(a[m], smem + Form::pair_offset(lane_rows, step) + m * 16 * Form::kPitch);
}

// c += A B^T over the columns of two tiles of rows. B: 8 * kN rows from b_smem on.
template <class Form = RowTile, int kM, int kN, class LoadA>
__device__ __forceinline__ void product_of_rows(float (&c)[kM][kN][4], LoadA load_a, uint32 b_smem, uint32 lane_cols)
{
#pragma unroll
    for (int step = 0; step < Form::kChunks / 2; step++) {
        uint32 a[kM][4];
        load_a(step, a);
#pragma unroll
        for (int n = 0; n < kN; n += 2) {
            uint32 b[4];  // rows n * 8 ... + 15: b[0], b[1] of the first n8 tile, b[2], b[3] of the next
            ldmatrix_x4(b, b_smem + Form::pair_offset(lane_cols, step) + n * 8 * Form::kPitch);
#pragma unroll
            for (int m = 0; m < kM; m++) {
                mma_k16(c[m][n], a[m], b[0], b[1]);
                mma_k16(c[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// c += A B. B: kSteps * 16 rows of a tile from b_smem on. Columns are dealt out to kShares warps in pairs of n8 tiles:
// this warp has pairs first, first + kShares, ... b_lane: lane_offset_rows at pair `first`. Dealt out in this way, the
// XOR of a swizzle composes, because the bits of `first` and of kShares differ.
template <int kShares, int kSteps, int kM, int kN, class LoadA>
__device__ __forceinline__ void product_of_columns(float (&c)[kM][kN][4], LoadA load_a, uint32 b_smem, uint32 b_lane)
{
    static_assert((kShares & (kShares - 1)) == 0, "the bits of first and of kShares differ");
    using Form = TileForm<8 * kN * kShares>;
#pragma unroll
    for (int step = 0; step < kSteps; step++) {
        uint32 a[kM][4];
        load_a(step, a);
#pragma unroll
        for (int pair = 0; pair < kN / 2; pair++) {
            uint32 b[4];
            ldmatrix_x4_trans(b, b_smem + Form::pair_offset(b_lane, pair * kShares) + step * 16 * Form::kPitch);
#pragma unroll
            for (int m = 0; m < kM; m++) {
                mma_k16(c[m][2 * pair], a[m], b[0], b[1]);
                mma_k16(c[m][2 * pair + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// ---- warp and lane coordinates, and addresses of the tiles ------------------------------------------------------

// The warp's part of S^T and dP^T, and of dQ.
struct WarpCoord {
    int lane, warp;
    int key_warp, query_warp;
    int row_warp, col_warp;
    int key;    // its first key in the block
    int query;  // and first query in a tile

    __device__ __forceinline__ WarpCoord()
        : lane(threadIdx.x % 32), warp(threadIdx.x / 32), key_warp(warp / kQueryWarps), query_warp(warp % kQueryWarps),
          row_warp(warp / kColWarps), col_warp(warp % kColWarps), key(key_warp * 16 * kKeyTiles),
          query(query_warp * kWarpQueries)
    {
    }
};

// This lane's ldmatrix offsets in tiles of Q and K, and of dO and V.
struct LaneOffsets {
    uint32 rows, cols, value_rows, value_cols;

    __device__ __forceinline__ explicit LaneOffsets(int lane)
        : rows(RowTile::lane_offset_rows(lane)), cols(RowTile::lane_offset_cols(lane)),
          value_rows(ValueTile::lane_offset_rows(lane)), value_cols(ValueTile::lane_offset_cols(lane))
    {
    }
};

// Addresses in shared memory for one tile of queries.
struct TileAreas {
    uint32 q, d_o;
    uint32 rows;            // LSE and delta, at this lane's first query
    uint32 scores;          // dS^T
    uint32 shared_p;        // P^T as fragments, of this lane
    uint32 out, value_out;  // this lane's ldmatrix addresses for its columns of dK and dV

    __device__ __forceinline__ TileAreas(uint32 smem, int stage, int score_stage, const WarpCoord &own,
                                         const LaneOffsets &offsets)
        : q(smem + kQArea + stage * kQTileBytes), d_o(smem + kDoArea + stage * kDoTileBytes),
          rows(smem + kRowArea + stage * kRowBytes + own.lane % 4 * 2 * 4),
          scores(smem + kScoreArea + score_stage * kScoreBytes),
          shared_p(smem + kSharedPArea + score_stage * kSharedPBytes + own.lane * 16),
          out(pair_offset(offsets.rows, own.query_warp)),
          value_out(ValueTile::pair_offset(offsets.value_rows, own.query_warp))
    {
    }
};

// ---- the mainloop's steps: what a warp does with a tile of queries --------------------------------------------------
//
// `step` of bwd.cuh calls step_of_part for each part of its queries, then add_others; bwd.cuh has the timeline. In a
// part:
//
//     kLate    S^T | dP^T | P^T | dV += P^T dO | dS^T | dK += dS^T Q
//     else     S^T | P^T | dV += P^T dO | dP^T | dS^T | dK += dS^T Q
//
// P^T and dS^T stay in registers as A fragments. They are also stored: P^T for warps with the same keys, dS^T for those
// warps and for dQ (dq_step.cuh).

using SumOfKeys = float[kKeyTiles][2 * kOutPairs][4];      // dK of a warp
using SumOfValues = float[kKeyTiles][2 * kValuePairs][4];  // dV of a warp

// Computes S^T = K Q^T or dP^T = V dO^T. Form: layout of the rows; row_smem: this warp's keys; tile_smem: the queries;
// rows, cols: this lane's ldmatrix offsets.
template <class Form>
__device__ __forceinline__ void compute_scores(Scores &s, uint32 tile_smem, uint32 cols, uint32 row_smem, uint32 rows)
{
    clear(s);
    product_of_rows<Form>(
        s, [&](int step, uint32(&a)[kKeyTiles][4]) { load_rows<Form>(a, row_smem, rows, step); }, tile_smem, cols);
}

// Turns S^T into P^T. capped: receives S^T as modified, without terms; query: this warp's first query in the tile `at`.
template <bool kMasked>
__device__ __forceinline__ void compute_p(Scores &s, Scores &capped, const Params &p, const BlockCoord &coord,
                                          const Terms &terms, const WarpCoord &own, const Cursor &at, int query,
                                          TileAreas areas)
{
    if constexpr (kModified) {
        modify_scores(s, p);
        copy_scores(capped, s);
    }
    if constexpr (kTerms)
        add_terms<kCausal && !kMasked>(s, p, terms, coord.first_key + own.key + own.lane / 4,
                                       at.tile * kBr + query + own.lane % 4 * 2);
    scores_to_p(s, areas.rows + query * 4, p.scale_log2);
    if constexpr (kMasked)
        mask_p(s, p, coord.first_key + own.key + own.lane / 4, at.tile * kBr + query + own.lane % 4 * 2);
}

// sum += P^T dO, or dS^T Q. tile_smem: the queries of these fragments.
template <int kTiles>
__device__ __forceinline__ void add_product(float (&sum)[kKeyTiles][kTiles][4], const Fragments &frag, uint32 tile_smem,
                                            uint32 lane_offset)
{
    product_of_columns<kQueryWarps, kQuerySteps>(
        sum,
        [&](int step, uint32(&a)[kKeyTiles][4]) {
            each_of<kKeyTiles, 4>([&](int m, int i) { a[m][i] = frag[step][m][i]; });
        },
        tile_smem, lane_offset);
}

// Processes a part of the queries of a tile: S^T, P^T, dV, dP^T, dS^T, dK.
template <bool kMasked>
__device__ __forceinline__ void step_of_part(const Params &p, const BlockCoord &coord, const Terms &terms,
                                             Dropout &dropout, const WarpCoord &own, const LaneOffsets &offsets,
                                             TileAreas areas, const Cursor &at, int first_head, uint32 smem, int part,
                                             SumOfKeys &dk, SumOfValues &dv)
{
    const int query = own.query + part * 8 * kQueryTiles;  // first query in the tile
    Scores s, dp;
    Scores capped;
    Fragments frag;
    compute_scores<RowTile>(s, areas.q + query * kPitch, offsets.cols, smem + kKArea + own.key * kPitch, offsets.rows);
    if constexpr (kLate)
        compute_scores<ValueTile>(dp, areas.d_o + query * ValueTile::kPitch, offsets.value_cols,
                                  smem + kVArea + own.key * ValueTile::kPitch, offsets.value_rows);
    compute_p<kMasked>(s, capped, p, coord, terms, own, at, query, areas);
    pack_scores(frag, s);
    dropout.begin(p, coord.sequence(), first_head + at.head, at.tile * kBr + query, own.lane);
    dropout.mask(frag);
    if constexpr (kModified && !kBiasGradient)
        multiply_derivatives(s, capped);
    if constexpr (kQueryWarps > 1)
        store_p(frag, areas.shared_p + (own.warp * kParts + part) * kQuerySteps * kKeyTiles * kFragmentBytes);
    add_product(dv, frag, areas.d_o + query * ValueTile::kPitch, areas.value_out);
    if constexpr (!kLate)
        compute_scores<ValueTile>(dp, areas.d_o + query * ValueTile::kPitch, offsets.value_cols,
                                  smem + kVArea + own.key * ValueTile::kPitch, offsets.value_rows);
    dropout.mask(dp);
    dp_to_ds(dp, s, areas.rows + (kBr + query) * 4);
    if constexpr (kBiasGradient) {
        add_dbias(dp, p, coord.sequence(), first_head + at.head, coord.first_key + own.key + own.lane / 4,
                  at.tile * kBr + query + own.lane % 4 * 2);
        if constexpr (kModified)
            multiply_derivatives(dp, capped);  // so far this is the gradient of the capped scores
    }
    pack_scores(frag, dp);
    if constexpr (!kDqSeparate || kQueryWarps > 1)
        store_ds(frag, areas.scores, own.key, query, own.lane);
    add_product(dk, frag, areas.q + query * kPitch, areas.out);
}

// Adds what other warps with the same keys computed for their queries: dV += P^T dO, dK += dS^T Q.
__device__ __forceinline__ void add_others(const WarpCoord &own, const LaneOffsets &offsets, TileAreas areas,
                                           SumOfKeys &dk, SumOfValues &dv)
{
#pragma unroll
    for (int other = 1; other < kQueryWarps; other++) {
        const int from = own.query_warp ^ other;
        const int from_query = from * kWarpQueries;
        const uint32 theirs = areas.shared_p + (own.key_warp * kQueryWarps + from) * kWarpFragments * kFragmentBytes;
        product_of_columns<kQueryWarps, kParts * kQuerySteps>(
            dv,
            [&](int step, uint32(&a)[kKeyTiles][4]) {
#pragma unroll
                for (int m = 0; m < kKeyTiles; m++) {
                    const uint4 x = load_shared_16(theirs + (step * kKeyTiles + m) * kFragmentBytes);
                    a[m][0] = x.x, a[m][1] = x.y, a[m][2] = x.z, a[m][3] = x.w;
                }
            },
            areas.d_o + from_query * ValueTile::kPitch, areas.value_out);
        product_of_columns<kQueryWarps, kParts * kQuerySteps>(
            dk,
            [&](int step, uint32(&a)[kKeyTiles][4]) {
#pragma unroll
                for (int m = 0; m < kKeyTiles; m++)
                    ldmatrix_x4(a[m],
                                areas.scores + ScoreTile::chunk_offset(own.key + m * 16 + own.lane % 16,
                                                                       from_query / 8 + 2 * step + own.lane / 16));
            },
            areas.q + from_query * kPitch, areas.out);
    }
}

// ---- the dQ step: dQ += dS K of a tile of queries -----------------------------------------------------------------
//
// Called by `step` of bwd.cuh after the barrier that completes dS^T. A warp has some rows and columns of the tile, and
// all keys of the block. Its result is added to the sums in the workspace (dq_sums.cuh); if the block has all keys of a
// head, and they are one tile, it is written at once. counter: with kDqInOrder, receives the counter of the tile.
__device__ __forceinline__ void add_tile_to_dq(const Params &p, const BlockCoord &coord, const WarpCoord &own,
                                               const LaneOffsets &offsets, TileAreas areas, const Cursor &at,
                                               int first_head, uint32 smem, uint32 *&counter)
{
    const int64 batch_head = int64(coord.batch) * p.heads_q + first_head + at.head;
    float *sum = p.dq_sum + (batch_head * p.q_tiles + at.tile) * kDqTile + own.warp * kDqWarpPart;
    uint32 before = 0, seen = 0;
    if constexpr (kDqInOrder) {
        counter = turn_counter(p, coord, batch_head, at.tile);
        before = blocks_before(p, coord, at.tile);
        seen = own.lane == 0 ? load_counter(counter) : 0;
    }
#pragma unroll 1
    for (int part = 0; part < kDqParts; part++) {
        const int first = own.row_warp * kDqRowTiles + part * kDqPartTiles;  // m16 tile
        constexpr int kPartSize = kDqWarpPart / kDqParts;
        DqTile dq;
        clear(dq);
        product_of_columns<kColWarps, kBc / 16>(
            dq,
            [&](int step, uint32(&a)[kDqPartTiles][4]) {
#pragma unroll
                for (int m = 0; m < kDqPartTiles; m++)
                    ldmatrix_x4_trans(a[m], areas.scores +
                                                ScoreTile::chunk_offset(step * 16 + own.lane % 8 + own.lane / 16 * 8,
                                                                        (first + m) * 2 + own.lane / 8 % 2));
            },
            smem + kKArea, pair_offset(offsets.rows, own.col_warp));
        if (kDqInOrder && part == 0)
            await_turn(counter, seen, before, own.lane);
        if (kDqBlock && p.k_tiles == 1)
            write_dq(p, coord.batch, first_head + at.head, at.tile, first, own.col_warp, dq, own.lane);
        else if constexpr (kVarlen)
            add_dq(dq_sums(p, coord, batch_head, at.tile, first, own.col_warp), dq, own.lane,
                   p.seq_q - at.tile * kBr - first * 16, own.col_warp);
        else
            add_dq(sum + part * kPartSize, dq, own.lane);
    }
}

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

// ---- backward -----------------------------------------------------------------------------------------
//
// The kernel of bwd_sm75 and bwd_sm80 (entry.cu.in calls `backward`). One block computes kBc rows of dK and dV, which
// stay in registers, over all queries that see its keys, and adds to dQ. Per tile of kBr queries:
//
//     S^T = K Q^T      P^T = 2^(S^T - lse)          dV += P^T dO
//     dP^T = V dO^T    dS^T = P^T * (dP^T - delta)  dK += dS^T Q     dQ += dS K
//
// Variants:
//
//     kSplit       several blocks have the same keys, and each a part of these queries (split.cuh)
//     kDqBlock     a block does all tiles of keys of a head, one after the other (dq_block.cuh)
//     kDqSeparate  separate blocks compute dQ (dq_separate.cuh)
//
// Keys are rows of S^T, so P^T and dS^T are A fragments of dV and dK where they were computed. Warps are arranged as
// kKeyWarps x kQueryWarps, over S^T and over (keys, columns) of dK and dV. Warps with the same keys exchange results:
// P^T as fragments, and dS^T through the tile that dQ needs as well.
//
// The prologue loads K, V and the first tiles (loads.cuh). The step of tile t (`step`) is in mainloop.cuh and
// dq_step.cuh; the next tile is copied meanwhile. With two barriers all warps begin a tile together:
//
//   wait, barrier | S^T P^T dV dP^T dS^T dK, part by part | barrier | others' dV, dK |           dQ | store t + 1
//   two stages:   | copy Q, dO (t + 1) ........................................................
//   one stage:                                                                 barrier | copy ....
//
// With one barrier, warps may be a tile apart:
//
//   S^T P^T dV dP^T dS^T dK, part by part | wait, barrier | others' dV, dK | dQ | store t + 2
//                                                         | copy Q, dO (t + 2) ....
//
// "store": tiles that pass through registers (SM 7.5) go to shared memory; by cp.async there is nothing to store. With
// one stage, the barrier before the copy is there only if kQueryWarps > 1.
//
// "others'" means of the warps with the same keys. The comment at each barrier says what it orders. The epilogue writes
// dK and dV (epilogue.cuh).
//
// Each feature changes one place, here and in the separate blocks of dQ:
//
//     which tiles are processed, which are masked    tiles.cuh, and the loop over them
//     how scores become P^T                          compute_p
//     what is dropped: of P^T for dV, and of dP^T    dropout.cuh
//     the derivative of the scores                   a factor of dS^T only
//     how a row begins and ends                      its LSE and delta (delta.cuh)

// Writes dK and dV, or this block's partial sums of them.
__device__ __forceinline__ void write_keys(const Params &p, const BlockCoord &coord, const WarpCoord &own,
                                           const SumOfKeys &dk, const SumOfValues &dv, unsigned block, uint32 smem)
{
    if constexpr (kSplit)
        if (p.splits > 1) {
            put_part(p, coord, block % p.splits, 0, dk);
            put_part(p, coord, block % p.splits, 1, dv);
            return;
        }
    write_rows(p.dk, p.dk_stride, p, coord, dk, p.scale, smem + kKArea, own.key, own.query_warp, own.lane);
    write_rows<ValueTile, kHeadDimV>(p.dv, p.dv_stride, p, coord, dv, value_scale(p), smem + kVArea, own.key,
                                     own.query_warp, own.lane);
}

__device__ __forceinline__ void key_block(const Params &all, uint32 smem, unsigned block)
{
    const WarpCoord own;
    if constexpr (kDqInOrder)
        block = block_ticket(all, smem);
    const BlockCoord coord(all, kSplit ? block / all.splits : block);
    uint32 *counter = nullptr;  // with kDqInOrder: counter of the dQ tile that was added to last
    clear_unused_keys(all, coord);
    if (coord.is_empty())
        return;
    OwnParams p = coord.params(all);  // lengths and addresses are those of the block's sequence
    const TileRange tiles(p, coord);
    const QueryRange range(p, tiles, kSplit ? block % p.splits : 0);

    const LaneOffsets offsets(own.lane);
    SumOfKeys dk = {};
    SumOfValues dv = {};

    if (range.has_some(p, tiles)) {
        const int first_head = coord.kv_head * p.group;
        QueryFills fills;
        load_keys(p, coord, smem);
        Cursor at = range.start(p, tiles);
        int stage = 0, score_stage = 0;
        begin_queries(fills, p, coord, tiles, range, first_head, smem, at);
        Dropout dropout(p, coord.first_key + own.key, own.lane);
        auto step = [&](auto masked) {
            constexpr bool kMasked = decltype(masked)::value;
            const TileAreas areas(smem, stage, score_stage, own, offsets);
            const int next_stage = stage_ahead(stage);
            if constexpr (kBarriers == 2) {
                fill_wait<0>();
                __syncthreads();  // Q, dO and rows are complete (K and V too); the areas of the tile before are free
                if constexpr (kStages == 2)
                    issue_queries(fills, p, coord, range, first_head, smem, after(at, kAhead, p, tiles), next_stage);
            }

            const Terms terms(p, coord.batch, first_head + at.head);
#pragma unroll 1
            for (int part = 0; part < kParts; part++)
                step_of_part<kMasked>(p, coord, terms, dropout, own, offsets, areas, at, first_head, smem, part, dk,
                                      dv);
            if constexpr (kBarriers == 1)
                fill_wait<0>();
            // P^T and dS^T are complete; with one query warp, Q and dO are read. With one barrier per tile: the next
            // tile is complete; the tile before, its P^T and dS^T are read.
            __syncthreads();
            if (kDqInOrder && counter != nullptr && threadIdx.x == 0)
                count_up(counter);  // all warps have added to dQ of the tile before
            if constexpr (kBarriers == 1)
                issue_queries(fills, p, coord, range, first_head, smem, after(at, kAhead, p, tiles), next_stage);

            add_others(own, offsets, areas, dk, dv);
            if constexpr (kStages == 1) {
                if constexpr (kQueryWarps > 1)
                    __syncthreads();  // Q and dO are read before the next come into their place
                issue_queries(fills, p, coord, range, first_head, smem, after(at, kAhead, p, tiles), next_stage);
            }

            if (!kDqSeparate && p.dq != nullptr)
                add_tile_to_dq(p, coord, own, offsets, areas, at, first_head, smem, counter);
            store_queries(fills, p, coord, range, first_head, smem, after(at, kAhead, p, tiles), next_stage);
            at.advance(tiles, tiles.end(p));
            stage = stage + 1 == kStages ? 0 : stage + 1;
            if constexpr (kScoreStages == 2)
                score_stage ^= 1;
        };

        if constexpr (kOneLoop) {
            // A third loop, or a separate second one, would take registers, which spill.
#pragma unroll 1
            while (range.has(p, at))
                if (at.tile < tiles.unmasked || (kWindow != Window::kNone && at.tile >= tiles.masked))
                    step(Bool<true>{});
                else
                    step(Bool<false>{});
        } else {
#pragma unroll 1
            while (at.head < p.group) {
                const int head = at.head;
#pragma unroll 1
                while (at.head == head && (kLastTileFirst ? at.tile >= tiles.unmasked : at.tile < tiles.unmasked))
                    step(Bool<!kLastTileFirst>{});
#pragma unroll 1
                while (at.head == head)
                    step(Bool<kLastTileFirst>{});
            }
        }
    }
    if constexpr (kDqBlock)
        for (int head = 0; head < p.group; head++)
            clear_unseen(p, coord.batch, coord.kv_head * p.group + head, tiles.first, tiles.end(p));
    __syncthreads();  // every warp has read its last K and V before dK and dV come into their place
    if (kDqInOrder && counter != nullptr && threadIdx.x == 0)
        count_up(counter);
    write_keys(p, coord, own, dk, dv, block, smem);
}

// The kernel if dQ has no separate blocks; kThreads threads.
__device__ __forceinline__ void backward(const Params &p)
{
    extern __shared__ __align__(128) char shared[];
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    if constexpr (kDqBlock) {
        clear_sums(p, blockIdx.x);
#pragma unroll 1
        for (int tile = 0; tile < p.k_tiles; tile++) {
            if (tile > 0)
                __syncthreads();  // dK and dV are written: K and V are loaded into the same area
            key_block(p, smem, blockIdx.x * p.k_tiles + tile);
        }
    } else {
        key_block(p, smem, blockIdx.x);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads) bwd_sm80(const __grid_constant__ Params p)
{
    backward(p);
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
extern "C" __global__ void __launch_bounds__(256) bwd_sm80_prepare(const __grid_constant__ Params p)
{
    prepare<256>(p);
}
extern "C" __global__ void __launch_bounds__(128) bwd_sm80_convert(const __grid_constant__ Params p)
{
    convert<128>(p);
}
