#line 1 "templates/features/config.cu.in"

// ---- the problem, the element, the SM and the features; a feature that is off costs nothing ----------------------
constexpr int kHeadDim = 128;         // D: columns of Q and K
constexpr int kHeadDimV = 128;        // columns of V and O
constexpr bool kCausal = 1 == 1;   // query i sees keys <= i + seq_k - seq_q
constexpr int kGeneratorSmemBytes = 163936;
enum class Products { mma_k8, mma_k16, wgmma };
constexpr Products kProducts = Products::wgmma;  // the instruction of products
constexpr bool kTuring = kProducts == Products::mma_k8;  // tiles pass through registers, too
constexpr bool kWgmma = kProducts == Products::wgmma;
#line 2 "templates/lib/types.cuh"
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
#line 3 "templates/lib/elements.cuh"

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
#line 12 "templates/features/config.cu.in"
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
#line 34 "templates/features/config.cu.in"
constexpr bool kSoftcap = false;  // scores are capped by a tanh
#line 34 "templates/features/config.cu.in"
constexpr bool kAlibi = false;  // -slope * |distance of query and key| is added to scores
#line 34 "templates/features/config.cu.in"
constexpr bool kSinks = false;  // the softmax has one more column, without a value
#line 34 "templates/features/config.cu.in"
constexpr bool kDropout = false;  // elements of P are dropped at random
#line 34 "templates/features/config.cu.in"
constexpr bool kSeqused = false;  // each sequence has its own number of keys
#line 34 "templates/features/config.cu.in"
constexpr bool kVarlen = false;  // sequences are packed one after the other
#line 34 "templates/features/config.cu.in"
constexpr bool kPaged = false;  // K and V lie in pages, which a table names
#line 34 "templates/features/config.cu.in"
constexpr bool kLeftpad = false;  // the first keys of a sequence are padding
#line 34 "templates/features/config.cu.in"
constexpr bool kCacheRows = false;  // a table names each sequence's row of K and V
#line 34 "templates/features/config.cu.in"
constexpr bool kAppend = false;  // new keys are written into K and V first
#line 34 "templates/features/config.cu.in"
constexpr bool kCarry = false;  // O is merged with a result in fp32 over other keys
#line 34 "templates/features/config.cu.in"
constexpr bool kInterleaved = false;  // rotary rotates pairs of neighbouring columns
#line 36 "templates/features/config.cu.in"
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
#line 3 "templates/features/params.cuh"

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
#line 3 "templates/features/no_feature_params.cuh"
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
#line 3 "templates/forward/params.cuh"

// One flat struct: with its parts as base classes, ptxas chooses other registers (gate.py).
struct Params {
#line 1 "templates/forward/params.def"
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
#line 7 "templates/forward/params.cuh"
#if FA2_FEATURES
    FeatureParams features;
#else
    static constexpr FeatureParams features{};
#endif
};
static_assert(sizeof(Params) == FA2I_EVERY_BYTES + (FA2_SCORE_PARAMS ? FA2I_SCORE_BYTES : 0) +
                                    (FA2_FEATURES ? sizeof(FeatureParams) : 0),
              "what the runtime passes");
#line 2 "templates/forward/shared_config.cu.in"
// ---- configuration of all forward families ---------------------------------------------------------------------
using TypeOfP = Elem;  // that P is rounded to. fp32: K, or Q and K, are in 8 bits. e4m3: so is V
constexpr bool kFp8Values = kSame<TypeOfP, e4m3>;  // P and V are rounded to e4m3 numbers
constexpr int kQuantThreads = 0;  // of a block that rounds keys
constexpr int kQuantTiles = 0;      // tiles of keys of such a block
constexpr bool kHopper = __CUDA_ARCH__ == 900;
constexpr int kBc = 128;                       // key and value rows per tile
constexpr float kLazyRescale = 8;  // growth of a maximum, in log2, up to which O is not rescaled
#line 2 "templates/hopper/fwd_config.cu.in"
// ---- the variant -------------------------------------------------------------------------------
constexpr int kGroups = 2;  // consumer warpgroups, 64 query rows each
constexpr int kStages = 2;  // stages of K, and as many of V
constexpr bool kPingPong = 1 == 1;  // ping-pong: warpgroups start their products in turn
constexpr bool kPackedHeads = false;  // rows are all query heads of a group
constexpr int kPersistent = 0;  // 0: one work tile per block; 1: a fixed share; 2: from a counter
constexpr bool kByWeight = false;  // row tiles that see the most keys come first
constexpr bool kOwnOPlace = false;  // O has an area in shared memory beside Q
constexpr bool kBiasInAccumulator = false;  // the accumulator of S begins as a bias in 16 bits
constexpr int kSideStages = 2;  // stages of bias tiles, for each warpgroup
enum class DropoutForm { none, beside, early };
constexpr DropoutForm kDropoutForm = DropoutForm::none;
constexpr bool kDropsBeside = kDropoutForm == DropoutForm::beside;  // applied to P while the next S is computed
constexpr bool kKeepsEarly = kDropoutForm == DropoutForm::early;    // factors are made while S is computed
constexpr bool kRounded = kQuantThreads > 0;  // Q and K become 8-bit integers, and P and V e4m3 numbers
constexpr int kLoadRegisters = 24, kGroupRegisters = 240;
#line 3 "templates/hopper/fwd_shape.cuh"

// ---- derived constants -----------------------------------------------------------------------------------------
constexpr bool kSplit = false, kVInK = false;
constexpr int kTeams = 1, kParts = 1, kMaxSplits = 1;
// The part of a term that all scores of a row share goes to the softmax.
constexpr bool kAlibiOffsets = kAlibi && kBias == BiasKind::kNone;
constexpr int kKeyColumns = kHeadDim / kElemBytes;  // of rounded K, as if its bytes were elements
constexpr bool kStays = kPersistent > 0, kCounted = kPersistent == 2;
constexpr bool kOByMap = kStays && kGroups > 1 && !kPartial && !kCarry;  // O is stored by TMA
constexpr int kBlocksPerSm = kGroups == 1 ? 2 : 1;
constexpr int kGroupRows = 64;                             // M of wgmma
constexpr int kBr = kGroupRows * kGroups;                  // query rows per block
constexpr int kThreads = (kGroups + 1) * 128;              // the last warpgroup loads
constexpr int kRowTiles = 1;                               // m16 row tiles per warp
constexpr int kColTiles = kBc / 8;                         // n8 column tiles of S
constexpr int kOutTiles = kHeadDim / 8;                    // n8 column tiles of O
constexpr int kHeadDimPadded = (kHeadDim + 15) / 16 * 16;  // columns that S = Q K^T sums over, padded
constexpr int kDepth = kHeadDimPadded / 16;                // k16 steps of S = Q K^T
constexpr int kPages = (kHeadDim + 63) / 64;               // pages of 64 columns per tile
constexpr bool kSwizzle = true;                            // rows of O in shared memory: 16-byte chunks permuted by row
constexpr bool kQInRegisters = false;                      // O may use the area of Q, so its rows must be read first

// A bias in 16 bits comes through shared memory (bias_tiles.cuh). Its words are read while S is computed, unless other
// work is done at that time.
constexpr bool kBiasStaged = kBias == BiasKind::kFp16 || kBias == BiasKind::kBf16;
constexpr bool kBiasEarly = kBiasStaged && !kBiasInAccumulator && !kDropout;

// Rows of K and V, over all heads that are worked on at a time (kByWeight): 32 MiB, which L2 holds beside Q and O.
constexpr int kSectionRows = (32 << 20) / (2 * kElemBytes * kHeadDim);

static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 256, "D is a multiple of 8 up to 256");
static_assert(kBc % (kRounded ? 32 : 16) == 0 && kBc <= 256, "S is one wgmma wide; P V runs in whole steps");
// All warpgroups are launched with the same number of registers; then the producer gives some to the consumers.
static_assert(kLoadRegisters + kGroups * kGroupRegisters <= (kGroups + 1) * (65536 / (kBlocksPerSm * kThreads) / 8 * 8),
              "all warpgroups together have no more registers than at launch");

// ---- shared memory -----------------------------------------------------------------------------
//
// Tiles are pages of 64 columns, [page][row][64]: rows of 128 bytes, whose 16-byte chunks are permuted by row % 8. This
// is the 128-byte swizzle that TMA writes and wgmma reads. Q has separate pages for each warpgroup, so O of one
// warpgroup can use its pages while others still read theirs.
constexpr int kPageRowBytes = 128, kPageColumns = kPageRowBytes / kElemBytes;
constexpr int kQPageBytes = kGroupRows * kPageRowBytes;
constexpr int kGroupBytes = kPages * kQPageBytes;
constexpr int kTilePageBytes = kBc * kPageRowBytes;
constexpr int kSumColumns = 8;  // of rounded V, besides its own: P V has the row sums (bytes_tiles.cuh)
constexpr int kTileBytes = kRounded ? kBc * kHeadDim : kPages * kTilePageBytes;
constexpr int kVTileBytes = kRounded ? (kBc * (kHeadDim + kSumColumns) + 1023) / 1024 * 1024 : kTileBytes;
constexpr int kQArea = 0;
constexpr int kKArea = kGroups * kGroupBytes;
constexpr int kVArea = kKArea + kStages * kTileBytes;
constexpr int kTilesEnd = kVArea + kStages * kVTileBytes;
constexpr int kOArea = kOwnOPlace ? kTilesEnd : kQArea;
// Bias tiles of each warpgroup, in the same pages (side_tiles.cuh).
constexpr int kSideArea = kTilesEnd + (kOwnOPlace ? kGroups * kGroupBytes : 0);
constexpr int kSidePages = kBc / kPageColumns;
constexpr int kSideTileBytes = kSidePages * kQPageBytes;
constexpr int kSideBytes = kBiasStaged ? kSideStages * kGroups * kSideTileBytes : 0;
static_assert(!kBiasStaged || kBc % kPageColumns == 0, "pages of a tile beside those of K are full");
constexpr int kExtraKArea = kSideArea + kSideBytes;  // sixteen more columns of K (slopes.cuh)
constexpr int kBarrierArea = kExtraKArea + (kAlibiMma ? kBc * 32 : 0);
constexpr int kSideBarrierArea = kBarrierArea + (2 * kGroups + 4 * kStages) * 8;
constexpr int kKeysArea = kSideBarrierArea + (kBiasStaged ? kSideStages * kGroups * 16 : 0);
constexpr int kKeyTileBytes = kBc * 8;  // column keys of a tile (column_keys.cuh)
static_assert(!kDropout || (kKeysArea % 16 == 0 && kBc % 32 == 0),
              "words of 32 columns are read at once, and copied whole");
constexpr int kNumberArea = kKeysArea + (kDropout ? kStages * kKeyTileBytes : 0);
constexpr int kSmemBytes = kNumberArea + (kCounted ? kGroups * 4 : 0);  // 4 bytes per warpgroup
static_assert(kSmemBytes == kGeneratorSmemBytes, "the generator computed another size");
#line 1 "templates/hopper/wgmma_lists.cu.in"
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
#line 16 "templates/hopper/wgmma_lists.cu.in"
#define FA2I_TILES_16(T) FA2I_TILES_8(T), T(1)
#define FA2I_NAMES_16 FA2I_NAMES_8 ", %4, %5, %6, %7"
#line 16 "templates/hopper/wgmma_lists.cu.in"
#define FA2I_TILES_24(T) FA2I_TILES_16(T), T(2)
#define FA2I_NAMES_24 FA2I_NAMES_16 ", %8, %9, %10, %11"
#line 16 "templates/hopper/wgmma_lists.cu.in"
#define FA2I_TILES_32(T) FA2I_TILES_24(T), T(3)
#define FA2I_NAMES_32 FA2I_NAMES_24 ", %12, %13, %14, %15"
#line 16 "templates/hopper/wgmma_lists.cu.in"
#define FA2I_TILES_40(T) FA2I_TILES_32(T), T(4)
#define FA2I_NAMES_40 FA2I_NAMES_32 ", %16, %17, %18, %19"
#line 16 "templates/hopper/wgmma_lists.cu.in"
#define FA2I_TILES_48(T) FA2I_TILES_40(T), T(5)
#define FA2I_NAMES_48 FA2I_NAMES_40 ", %20, %21, %22, %23"
#line 16 "templates/hopper/wgmma_lists.cu.in"
#define FA2I_TILES_56(T) FA2I_TILES_48(T), T(6)
#define FA2I_NAMES_56 FA2I_NAMES_48 ", %24, %25, %26, %27"
#line 16 "templates/hopper/wgmma_lists.cu.in"
#define FA2I_TILES_64(T) FA2I_TILES_56(T), T(7)
#define FA2I_NAMES_64 FA2I_NAMES_56 ", %28, %29, %30, %31"
#line 16 "templates/hopper/wgmma_lists.cu.in"
#define FA2I_TILES_72(T) FA2I_TILES_64(T), T(8)
#define FA2I_NAMES_72 FA2I_NAMES_64 ", %32, %33, %34, %35"
#line 16 "templates/hopper/wgmma_lists.cu.in"
#define FA2I_TILES_80(T) FA2I_TILES_72(T), T(9)
#define FA2I_NAMES_80 FA2I_NAMES_72 ", %36, %37, %38, %39"
#line 16 "templates/hopper/wgmma_lists.cu.in"
#define FA2I_TILES_88(T) FA2I_TILES_80(T), T(10)
#define FA2I_NAMES_88 FA2I_NAMES_80 ", %40, %41, %42, %43"
#line 16 "templates/hopper/wgmma_lists.cu.in"
#define FA2I_TILES_96(T) FA2I_TILES_88(T), T(11)
#define FA2I_NAMES_96 FA2I_NAMES_88 ", %44, %45, %46, %47"
#line 16 "templates/hopper/wgmma_lists.cu.in"
#define FA2I_TILES_104(T) FA2I_TILES_96(T), T(12)
#define FA2I_NAMES_104 FA2I_NAMES_96 ", %48, %49, %50, %51"
#line 16 "templates/hopper/wgmma_lists.cu.in"
#define FA2I_TILES_112(T) FA2I_TILES_104(T), T(13)
#define FA2I_NAMES_112 FA2I_NAMES_104 ", %52, %53, %54, %55"
#line 16 "templates/hopper/wgmma_lists.cu.in"
#define FA2I_TILES_120(T) FA2I_TILES_112(T), T(14)
#define FA2I_NAMES_120 FA2I_NAMES_112 ", %56, %57, %58, %59"
#line 16 "templates/hopper/wgmma_lists.cu.in"
#define FA2I_TILES_128(T) FA2I_TILES_120(T), T(15)
#define FA2I_NAMES_128 FA2I_NAMES_120 ", %60, %61, %62, %63"
#line 19 "templates/hopper/wgmma_lists.cu.in"

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
#line 68 "templates/hopper/wgmma_lists.cu.in"
FA2I_WGMMA
(128, 64, 65, 66, 67, 68, 69, 70);
