// fwd_sm90 d=128 dtype=bf16 causal=1 groups=3 bc=64 stages=2 pingpong=1 persistent=1 order=weight
// op=forward abi=2 rows=192 keys=64 suffix=a maps=q/64,k/64,v/64,o/16; fwd_sm90 role=main threads=512 smem=163952 blocks=resident_row_tiles
// fwd_sm90, fwd_bytes_sm90: attention forward on SM 9.0. wgmma of fp16 or bf16, or of 8 bits; tiles loaded by TMA.

// ---- the problem, the element, the SM and the features; a feature that is off costs nothing ----------------------
constexpr int kHeadDim = 128;         // D: columns of Q and K
constexpr int kHeadDimV = 128;        // columns of V and O
constexpr bool kCausal = 1 == 1;   // query i sees keys <= i + seq_k - seq_q
constexpr int kGeneratorSmemBytes = 163952;
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
constexpr int kBc = 64;                       // key and value rows per tile
constexpr float kLazyRescale = 8;  // growth of a maximum, in log2, up to which O is not rescaled
// ---- the variant -------------------------------------------------------------------------------
constexpr int kGroups = 3;  // consumer warpgroups, 64 query rows each
constexpr int kStages = 2;  // stages of K, and as many of V
constexpr bool kPingPong = 1 == 1;  // ping-pong: warpgroups start their products in turn
constexpr bool kPackedHeads = false;  // rows are all query heads of a group
constexpr int kPersistent = 1;  // 0: one work tile per block; 1: a fixed share; 2: from a counter
constexpr bool kByWeight = true;  // row tiles that see the most keys come first
constexpr bool kOwnOPlace = true;  // O has an area in shared memory beside Q
constexpr bool kBiasInAccumulator = false;  // the accumulator of S begins as a bias in 16 bits
constexpr int kSideStages = 2;  // stages of bias tiles, for each warpgroup
enum class DropoutForm { none, beside, early };
constexpr DropoutForm kDropoutForm = DropoutForm::none;
constexpr bool kDropsBeside = kDropoutForm == DropoutForm::beside;  // applied to P while the next S is computed
constexpr bool kKeepsEarly = kDropoutForm == DropoutForm::early;    // factors are made while S is computed
constexpr bool kRounded = kQuantThreads > 0;  // Q and K become 8-bit integers, and P and V e4m3 numbers
constexpr int kLoadRegisters = 32, kGroupRegisters = 160;

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

// ---- sequences: all have the tensors' lengths ----------------------------------------------------------------------
//
// Policy of kernels without lengths of sequences and cache rows; the others have sequences.cuh.

struct SequenceCoord {
    struct {
        int first_q, first_k;
    } static constexpr sequence{};
    int batch;

    static __device__ __forceinline__ void find_sequence(const Params &, int) {}

    static __device__ __forceinline__ void find_cache_row(const Params &, int) {}

    static __device__ __forceinline__ int seq_q(const Params &p)
    {
        return p.seq_q;
    }

    static __device__ __forceinline__ int seq_k(const Params &p)
    {
        return p.seq_k;
    }

    // The batch index into K and V.
    __device__ __forceinline__ int key_batch() const
    {
        return batch;
    }

    static __device__ __forceinline__ int64 slot()
    {
        return 0;
    }

    static __device__ __forceinline__ int padding()
    {
        return 0;
    }
};

__device__ __forceinline__ void clear_unused_rows(const Params &) {}

// Coordinates of a block with kBr query rows of one head.
struct RowsOfHead : SequenceCoord {
    int first_row, rows;  // first row of the block; rows of the tensor
    int head;
    static constexpr int split = 0, part = -1;

    // Heavy tiles first when causal: the last rows see the most keys. With a window all rows but the first ones see
    // equally many.
    template <class Work> __device__ __forceinline__ RowsOfHead(const Params &p, const Work &work) : rows(p.seq_q)
    {
        if constexpr (kVarlen) {
            find_packed_tile(*this, p, work);
        } else {
            const unsigned tile = work.tile(p), batch_head = work.batch_head(p);
            first_row = (kCausal ? p.q_tiles - 1 - tile : tile) * kBr;
            head = batch_head % p.heads_q;
            batch = batch_head / p.heads_q;
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

    // Number of blocks that divide the keys of its rows.
    __device__ __forceinline__ int splits(const Params &) const
    {
        return 1;
    }
};

using BlockCoord = PlacedRows<RowsOfHead>;

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

// The empty policy: K and V are loaded as they are.
__device__ __forceinline__ const char *rounded_keys(const Params &, int64)
{
    return nullptr;
}

__device__ __forceinline__ const char *rounded_values(const Params &, int64)
{
    return nullptr;
}

template <class... Any> __device__ __forceinline__ int64 number_of_tile(const Any &...)
{
    return 0;
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

// The empty policy: no dropout, so no column keys.
__device__ __forceinline__ const char *column_keys_at(const Params &, int)
{
    return nullptr;
}

template <int kBlockThreads> __device__ __forceinline__ void prepare_column_keys(const Params &) {}

struct ColumnKeyTile {
    __device__ __forceinline__ ColumnKeyTile(uint32, const Stage &) {}
};

__device__ __forceinline__ void make_keeps(uint32 (&)[kBc / 16][4], Dropout &, ColumnKeyTile) {}

__device__ __forceinline__ void drop(uint32 (&)[kBc / 16][4], Dropout &, ColumnKeyTile) {}

__device__ __forceinline__ void drop(uint32 (&)[kBc / 16][4], const uint32 (&)[kBc / 16][4]) {}

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

// ---- the mbarriers of the forward kernel in shared memory -----------------------------------------------------
//
// Named barriers are used, too: from 1 on, one for each consumer warpgroup's turn (ping-pong), then one for its rows of
// Q, and one that all share, for rows of V that are cleared.

// Warps that arrive at q(group).empty: the four of a consumer warpgroup, and the warp that loads its bias if work tiles
// come from the counter.
constexpr int kQReaders = kBiasStaged && kCounted ? 5 : 4;

struct Barriers {
    uint32 smem;

    __device__ __forceinline__ StageBarriers q(int group) const
    {
        const uint32 full = smem + kBarrierArea + group * 16;
        return {full, full + 8};
    }

    __device__ __forceinline__ StageBarriers k(int stage) const
    {
        const uint32 full = smem + kBarrierArea + kGroups * 16 + stage * 32;
        return {full, full + 8};
    }

    __device__ __forceinline__ StageBarriers v(int stage) const
    {
        const uint32 before = k(stage).full;
        return {before + 16, before + 24};
    }

    // The number of the work tile that the rows of Q belong to (kCounted).
    __device__ __forceinline__ uint32 number(int group) const
    {
        return smem + kNumberArea + group * 4;
    }

    // Returns the number of the work tile after the one with this parity. Called by whole warps.
    __device__ __forceinline__ unsigned next_number(int group, uint32 parity) const
    {
        barrier_wait(q(group).full, parity ^ 1);
        const unsigned next = __float_as_uint(load_shared_4(number(group)));
        __syncwarp();  // all lanes have read it before one of them releases it
        return next;
    }

    __device__ __forceinline__ void init() const
    {
        for (int group = 0; group < kGroups; group++) {
            barrier_init(q(group).full, 1);
            barrier_init(q(group).empty, kQReaders);
        }
        for (int stage = 0; stage < kStages; stage++) {
            barrier_init(k(stage).full, 1);
            barrier_init(v(stage).full, 1);
            barrier_init(k(stage).empty, kGroups * 4);
            barrier_init(v(stage).empty, kGroups * 4);
        }
        barrier_init_fence();
    }
};

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

struct NoMapsOfKeys {
    static constexpr TensorMap k{}, v{};
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
                    Either<kRounded, NoMapsOfKeys, MapsOfKeys>::Type,
                    Either<kOByMap, MapOfO, NoMapOfO>::Type,
                    Either<kBiasStaged, MapOfBias, NoMapOfBias>::Type {
};
static_assert(sizeof(TensorMaps) == sizeof(TensorMap) * (2 * !kRounded + !kPackedHeads + kOByMap + kBiasStaged),
              "what the runtime passes");

struct ScoreUnit {
    __device__ __forceinline__ explicit ScoreUnit(const Params &) {}
};

// The empty policy: no bias in shared memory.
struct NoBiasTiles {
    __device__ __forceinline__ NoBiasTiles(uint32, int) {}

    __device__ __forceinline__ void begin(float (&)[kRowTiles][kColTiles][4], const ScoreUnit &, bool) const {}

    __device__ __forceinline__ void add(float (&)[kRowTiles][kColTiles][4], const ScoreUnit &) const {}

    __device__ __forceinline__ void read(uint32 (&)[kRowTiles][2][kColTiles]) const {}

    __device__ __forceinline__ void release() const {}
};

using BiasStages = NoBiasTiles;

__device__ __forceinline__ void init_bias_tiles(const Params &, uint32) {}

__device__ __forceinline__ void produce_bias(const Params &, const TensorMaps &, const Barriers &) {}

// The empty policy: no term is a part of S = Q K^T.
__device__ __forceinline__ void put_extra_k_columns(uint32) {}

__device__ __forceinline__ uint64 extra_k_columns(uint32)
{
    return 0;
}

template <class AnyTerms> __device__ __forceinline__ void slope_columns(const AnyTerms &, int, uint32 (&)[4]) {}

__device__ __forceinline__ void add_slopes(float (&)[kRowTiles][kColTiles][4], const uint32 (&)[4]) {}

constexpr bool kSpeculatesMax = false;

// The empty policy: the maximum of each tile is searched for.
template <class AnyRows> __device__ __forceinline__ void speculative_p(AnyRows &) {}
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

// ---- epilogue of O that is fp32 or merged: it is written from registers, with LSE ----------------------------------

template <class Row> __device__ __forceinline__ float sink_of(const Params &p, const BlockCoord &coord, const Row &row)
{
    if constexpr (kWgmma)
        return row.sink;
    else
        return sink_at(p, coord, 0);
}

// How a row ends: the factor of O, and LSE.
struct RowEnd {
    float inverse, lse;

    __device__ __forceinline__ RowEnd(const Params &p, const BlockCoord &coord, const RowState &row, int m, int h)
    {
        const float sum = quad_sum(row.sum[m][h]), divisor = divisor_of(row.max[m][h], sum, p.scale_log2);
        const float exponent = natural_exponent(row.max[m][h], p);
        if constexpr (kSinks) {
            const SinkEnd end(exponent, sum, divisor, sink_of(p, coord, row));
            inverse = end.inverse;
            lse = end.lse;
        } else {
            inverse = row_inverse(divisor);
            lse = row_lse(exponent, sum);
        }
        inverse *= kept_scale(p);
    }
};

// Reads the LSE in memory of this lane's rows, before a warp with the same rows overwrites it. One lane of a quad reads
// for all: it is the one that writes.
__device__ __forceinline__ void read_old(float (&old)[kRowTiles][2], const Params &p, const BlockCoord &coord,
                                         int first_row, int lane)
{
    each_of<kRowTiles, 2>([&](int m, int h) {
        const int block_row = first_row + m * 16 + h * 8;
        const bool reads = lane % 4 == 0 && block_row < coord.rows;
        old[m][h] = reads ? p.lse[coord.index(p, block_row)] : minus_infinity();
        old[m][h] = __shfl_sync(0xffffffffu, old[m][h], lane / 4 * 4);
    });
    if constexpr (kParts > 1)
        __syncthreads();  // several warps have columns of a row: their loads before the stores of LSE
}

// Tiles of columns that are read before any is written. The compiler moves no read before a write of the same memory,
// so each would wait for the latency of memory.
constexpr int kReadAtOnce = 8;

// Writes some columns of a row of O: n8 tiles from `first`. from: the row before.
__device__ __forceinline__ void write_columns(const Merge &merge, char *to, const char *from,
                                              const float (&o)[kOutTiles][4], int h, int first, float inverse, int lane)
{
    float2 before[kReadAtOnce] = {};
#pragma unroll
    for (int i = 0; i < kReadAtOnce; i++)
        if (const int n = first + i; kMerges && n < kOutTiles && own_chunk(n) < kHeadDimV / 8)
            before[i] = merge.read<float2>(from + own_chunk(n) * 32 + lane % 4 * 8);
#pragma unroll
    for (int i = 0; i < kReadAtOnce; i++)
        if (const int n = first + i; n < kOutTiles && own_chunk(n) < kHeadDimV / 8)
            merge.put(to + own_chunk(n) * kChunkBytes + lane % 4 * 2 * kOutBytes, before[i],
                      float2{o[n][2 * h] * inverse, o[n][2 * h + 1] * inverse});
}

// Writes O and LSE from registers. In fp32 the four lanes of a quad fill a sector.
__device__ __forceinline__ void write_rows_from_registers(const Params &p, const BlockCoord &coord,
                                                          const float (&o)[kRowTiles][kOutTiles][4],
                                                          const RowState &row, int warp_row, int lane)
{
    const int first_row = coord.first_row + warp_row + lane / 4;
    float old[kRowTiles][2];
    if constexpr (kMerges)
        read_old(old, p, coord, first_row, lane);
    each_of<kRowTiles, 2>([&](int m, int h) {
        const RowEnd end(p, coord, row, m, h);
        const int block_row = first_row + m * 16 + h * 8;
        if (block_row >= coord.rows)
            return;
        const Merge merge(end.lse, kMerges ? old[m][h] : minus_infinity());
        char *const to = p.o + coord.offset(p, p.o_stride, block_row) * kOutBytes;
        const char *const from =
            old_row(p, to, [&](const Strides &stride) { return coord.offset(p, stride, block_row); });
#pragma unroll
        for (int first = 0; first < kOutTiles; first += kReadAtOnce)
            write_columns(merge, to, from, o[m], h, first, end.inverse, lane);
        if (p.lse != nullptr && lane % 4 == 0 && own_part() == 0)
            p.lse[coord.index(p, block_row)] = merge.lse;
    });
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

// ---- epilogue: O of a block is normalised and written, with LSE -------------------------------------------------
//
// Called at the end of the kernels of fwd.cuh and hopper/fwd.cuh.

// Normalises O and writes it to shared memory; writes LSE. warp_row: the warp's first row in the block. address(r, n):
// the chunk of row r of the warp for column tile n.
template <class Address>
__device__ __forceinline__ void normalise_rows(const Params &p, const BlockCoord &coord,
                                               const float (&o)[kRowTiles][kOutTiles][4], const RowState &row,
                                               int warp_row, int lane, Address address)
{
    const int quad_row = lane / 4, quad_lane = lane % 4;
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float sum = quad_sum(row.sum[m][h]), divisor = divisor_of(row.max[m][h], sum, p.scale_log2);
            const float exponent = natural_exponent(row.max[m][h], p);
            float inverse, lse;
            if constexpr (kSinks) {
                const SinkEnd end(exponent, sum, divisor, sink_of(p, coord, row));
                inverse = end.inverse;
                lse = end.lse;
            } else {
                inverse = row_inverse(divisor);
            }
            inverse *= kept_scale(p);
            const int r = m * 16 + h * 8 + quad_row;
#pragma unroll
            for (int n = 0; n < kOutTiles; n++)
                store_shared_4(address(r, n) + quad_lane * 4,
                               pack2(o[m][n][2 * h] * inverse, o[m][n][2 * h + 1] * inverse));
            const int block_row = coord.first_row + warp_row + r;
            if (p.lse != nullptr && quad_lane == 0 && own_part() == 0 && block_row < coord.rows) {
                if constexpr (!kSinks)
                    lse = row_lse(exponent, sum);
                p.lse[coord.index(p, block_row)] = lse;
            }
        }
    }
}

// Writes O, 16 bytes per lane, through this warp's rows in shared memory. Form: the layout of rows of O there.
template <class Form>
__device__ __forceinline__ void write_rows(const Params &p, const BlockCoord &coord,
                                           const float (&o)[kRowTiles][kOutTiles][4], const RowState &row, uint32 smem,
                                           int warp_row, int lane)
{
    if constexpr (kPartial || kCarry) {
        write_rows_from_registers(p, coord, o, row, warp_row, lane);
        return;
    }
    if constexpr (kQInRegisters)
        __syncthreads();  // every warp has read its last K and V before O comes into their place
    else
        __syncwarp();  // the rows are this warp's own: its reads of Q before O comes into their place
    const uint32 o_smem = smem + (kQInRegisters ? 0 : kQArea) + warp_row * kPitch;
    constexpr int kWarpRows = 16 * kRowTiles;
    normalise_rows(p, coord, o, row, warp_row, lane,
                   [&](int r, int n) { return o_smem + Form::chunk_offset(r, own_chunk(n)); });
    if constexpr (kParts > 1)
        __syncthreads();  // several warps have columns of a row: their stores before the loads
    else
        __syncwarp();  // the rows are this warp's own: its stores before its loads

#pragma unroll
    for (int i = own_part() * 32 + lane; i < kWarpRows * Form::kChunks; i += kParts * 32) {
        const int r = i / Form::kChunks, chunk = i % Form::kChunks;  // includes padding: lanes read without gaps
        const int block_row = coord.first_row + warp_row + r;
        if (chunk < kHeadDimV / 8 && block_row < coord.rows)
            *reinterpret_cast<uint4 *>(p.o + coord.offset(p, p.o_stride, block_row) * kElemBytes + chunk * 16) =
                load_shared_16(o_smem + Form::chunk_offset(r, chunk));
    }
}

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

// ---- the state of a consumer warpgroup, kept from one work tile to the next -------------------------------------

// Ping-pong: the order in which warpgroups start their products (kPingPong).
struct PingPong {
    int group;
    bool may_start;  // the first warpgroup starts first, without a wait

    __device__ __forceinline__ explicit PingPong(int group) : group(group), may_start(group == 0) {}

    // Waits until the warpgroup before this one has started its products.
    __device__ __forceinline__ void take()
    {
        if (kPingPong && !may_start)
            named_barrier(1 + group, 256);
        may_start = false;
    }

    __device__ __forceinline__ void pass()
    {
        int next = group + 1;
        if constexpr (kBiasInAccumulator)
            asm volatile("" : "+r"(next));  // computed again, because no register is left to keep it
        if (kPingPong)
            named_barrier_arrive(1 + next % kGroups, 256);
    }

    // At the end: takes the turn that the last warpgroup passed on, so that the barrier is balanced.
    __device__ __forceinline__ void finish()
    {
        if (group == 0 && !may_start)
            take();
    }
};

// The state of a consumer warpgroup.
struct Group {
    int index, lane, warp_row;  // warp_row: this warp's first row in the block
    Stage k, v;
    PingPong ping_pong;
    BiasStages side;

    __device__ __forceinline__ Group(int index, uint32 smem)
        : index(index), lane(threadIdx.x % 32), warp_row(threadIdx.x / 32 * 16), ping_pong(index), side(smem, index)
    {
    }

    __device__ __forceinline__ void release_q(const Barriers &barriers) const
    {
        barrier_arrive_by(lane, barriers.q(index).empty);
    }
};

// ---- the products of a warpgroup: S = Q K^T and O += P V ------------------------------------------------------------

// Starts S = Q K^T. If kSloped, one more k16 step adds slope * column from `slopes` and `columns`
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
                                   b + (step / 4 * kTilePageBytes + step % 4 * 32) / 16,
                                   kBiasInAccumulator ? 1 : step > 0);
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

// ---- the softmax of kernels on wgmma ----------------------------------------------------------------------------

// Packs P to 16 bits: two column tiles of an accumulator have the layout of a 16-column A fragment.
__device__ __forceinline__ void pack_scores(const float (&s)[1][kColTiles][4], uint32 (&p)[kColTiles / 2][4])
{
    each_of<kColTiles / 2, 4>([&](int step, int e) {
        p[step][e] = pack2(s[0][2 * step + e / 2][e % 2 * 2], s[0][2 * step + e / 2][e % 2 * 2 + 1]);
    });
}

// The factors of O, which are applied once the product that adds to O is done.
struct Rescale {
    float by[kRowTiles][2];
    bool wanted;  // some row of the warp needs rescaling; `by` is set only then

    __device__ __forceinline__ void apply(float (&o)[kRowTiles][kOutTiles][4]) const
    {
        if (wanted)
            each_element(o, [&](float &x, int m, int, int e) { x *= by[m][e / 2]; });
    }
};

// As softmax_tile for mma.sync, but returns how O must be rescaled.
template <bool kUnseen, class Scores = ScoresThemselves>
__device__ __forceinline__ Rescale softmax_tile(float (&s)[kRowTiles][kColTiles][4], RowState &row, float scale_log2,
                                                const Scores &scores = {})
{
    Rescale rescale;
    float tile_max[kRowTiles][2];  // of this lane's columns; reduced over the quad only if a row needs it
    const bool grown = find_maxima(s, scores, row, scale_log2, tile_max);
    rescale.wanted = __any_sync(0xffffffffu, grown);
    if (rescale.wanted)
        each_of<kRowTiles, 2>([&](int m, int h) {
            rescale.by[m][h] = raise_maximum<kUnseen>(row.max[m][h], tile_max[m][h], scale_log2);
            row.sum[m][h] *= rescale.by[m][h];
        });
    make_p_of<kUnseen, Exp2P>(s, scores, row, scale_log2);
    return rescale;
}

// ---- consumer: a warpgroup that computes 64 rows of O ---------------------------------------------------------------
//
// compute_rows has the loop over tiles, from the last to the first; Rows::step is one step of it. A step starts S of
// its tile j, and then O += P V of the tile before, j + 1. The softmax runs while the tensor cores compute that second
// product:
//
//     start S(j) | start O += P(j+1) V(j+1) | wait for S(j) | softmax | wait for O | pack P | rescale O
//     kSpeculatesMax, without a mask:
//         ... | P by speculative maxima | wait for O | pack P | rarely S again, softmax, rescale O
//
// With kPingPong, warpgroups start these two products in turn: one computes its softmax while the tensor cores work for
// another.

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

// The steps of the mainloop. The struct holds references only: with arrays as members, ptxas keeps them in memory until
// loops are unrolled, and chooses other registers.
struct Rows {
    const Params &p;
    const BlockCoord &coord;
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
    ScoreUnit &unit;  // of an S that begins as the bias (bias_tiles.cuh)
    const Terms &terms;
    const uint32 (&slopes)[4];  // columns of Q for a term in the product (kAlibiMma)
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
        if constexpr (kBiasInAccumulator)
            group.side.begin(s, unit, kMasked);
        barrier_wait(barriers.k(group.k.index).full, group.k.parity);
        group.ping_pong.take();
        start_scores<kAlibiMma && !kMasked>(s, q_smem, k_smem(), slopes, extra_k_columns(smem));
        if constexpr (kKeepsEarly)
            make_keeps(keeps, dropped, ColumnKeyTile(smem, group.k));
    }

    // Waits for V, then starts O += P V of the tile before.
    __device__ __forceinline__ void start_o()
    {
        barrier_wait(barriers.v(group.v.index).full, group.v.parity);
        if constexpr (kDropsBeside)
            drop(probabilities, dropped, ColumnKeyTile(smem, group.v));  // runs while the next S, if any, is computed
        start_output(o, probabilities, v_smem());
    }

    // Converts P to 16-bit A fragments, with dropout applied unless start_o does it.
    __device__ __forceinline__ void pack()
    {
        pack_scores(s, probabilities);
        if constexpr (kKeepsEarly) {
            drop(probabilities, keeps);
        } else if constexpr (kDropout && !kDropsBeside) {
            // V of this tile: that of the tile before has been given back
            barrier_wait(barriers.v(group.v.index).full, group.v.parity);
            drop(probabilities, dropped, ColumnKeyTile(smem, group.v));
        }
    }

    __device__ __forceinline__ void release_k()
    {
        if constexpr (kBiasInAccumulator)
            group.side.release();
        barrier_arrive_by(group.lane, barriers.k(group.k.index).empty);
        group.k.advance();
    }

    __device__ __forceinline__ void release_v()
    {
        barrier_arrive_by(group.lane, barriers.v(group.v.index).empty);
        group.v.advance();
    }

    // Modifies S, and applies terms and mask. Adds to `offset` what all scores of a row have in common; the softmax
    // takes it into account (kAlibiOffsets).
    template <bool kMasked> __device__ __forceinline__ void add_terms(float (&offset)[kRowTiles][2])
    {
        modify_scores(s, p);
        if constexpr (kAlibiOffsets && kCausal && !kMasked) {
            terms.add_columns(s, offset, tile);
        } else if constexpr (kBiasStaged && !kBiasInAccumulator) {
            if constexpr (!kBiasEarly)
                group.side.read(words);
            terms.template add<kMasked>(s, words, tile);
        } else if constexpr (kTerms && !kBiasInAccumulator) {
            terms.template apply<kMasked, true>(s, tile);
        }
        if constexpr (kMasked)
            mask_scores(s, p, coord, coord.first_row + group.warp_row, tile, group.lane);
    }

    // Turns S into P; returns how O must be rescaled.
    template <bool kMasked> __device__ __forceinline__ Rescale softmax()
    {
        float offset[kRowTiles][2] = {};
        add_terms<kMasked>(offset);
        if constexpr (kAlibiOffsets)
            return softmax_tile<kMayBeUnseen<kMasked>>(s, row, p.scale_log2, ScoresWithOffset{offset});
        else
            return softmax_tile<kMayBeUnseen<kMasked>>(s, row, p.scale_log2);
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

    // One step: S and P of the tile, and O += P V of the tile before.
    template <bool kMasked> __device__ __forceinline__ void step()
    {
        start_s<kMasked>();
        start_o();
        group.ping_pong.pass();
        if constexpr (kBiasEarly)
            group.side.read(words);
        wgmma_wait<1>();  // S is there
        pin(s);
        if constexpr (kSpeculatesMax && !kMasked)
            speculative_p(*this);
        else
            make_p_by_maxima<kMasked>();
        pin(o);
    }

    // First step: the tile with the highest keys; O has nothing to add yet.
    __device__ __forceinline__ void begin()
    {
        start_s<true>();
        group.ping_pong.pass();
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
        const int valid_rows = coord.seq_k(p) - tile * kBc;
        if (valid_rows < kBc) {
            barrier_wait(barriers.v(group.v.index).full, group.v.parity);
            clear_rows(v_smem(), valid_rows);
            fence_products();
            named_barrier(1 + 2 * kGroups, kGroups * 128);  // zeros are there before any warpgroup's product reads
        }
    }

    // Last step: O += P V of the tile with the lowest keys.
    __device__ __forceinline__ void end()
    {
        if constexpr (kOwnOPlace)
            group.release_q(barriers);
        group.ping_pong.take();
        start_o();
        group.ping_pong.pass();
        finish_o();
        if constexpr (!kOwnOPlace)
            named_barrier(1 + kGroups + group.index, 128);  // Q of this warpgroup is read: O comes into its place
    }
};

// Computes O of 64 rows that see at least one key. O is not yet divided by the row sums.
__device__ __forceinline__ void compute_rows(const Params &p, const BlockCoord &coord, const TileRange &tiles,
                                             const Barriers &barriers, Group &group,
                                             float (&o)[kRowTiles][kOutTiles][4], RowState &row)
{
    const uint32 smem = barriers.smem, q_smem = smem + kQArea + group.index * kGroupBytes;
    float s[kRowTiles][kColTiles][4];
    uint32 probabilities[kBc / 16][4], words[kRowTiles][2][kColTiles], keeps[kBc / 16][4], slopes[4];
    int tile = tiles.count - 1;
    const int first_row = coord.first_row + group.warp_row;
    Dropout dropped(p, coord, first_row, group.lane);
    if constexpr (kKeepsEarly)
        each_of<kBc / 16, 4>([&](int step, int i) { keeps[step][i] = 0; });
    const Terms terms(p, coord, first_row, group.lane);
    if constexpr (kAlibiMma)
        slope_columns(terms, group.lane, slopes);
    ScoreUnit unit(p);
    Rows rows{p,     coord, barriers, group, smem,  q_smem, o,   row, s, probabilities,
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

// ---- epilogue: O of a warpgroup is normalised and written, with LSE ------------------------------------------------

// Normalises O and stores it by TMA, in pages of 64 columns; writes LSE.
__device__ __forceinline__ void write_rows_by_map(const Params &p, const BlockCoord &coord,
                                                  const float (&o)[kRowTiles][kOutTiles][4], const RowState &row,
                                                  uint32 smem, int warp_row, int lane, const TensorMap &map)
{
    if (lane == 0)
        wait_stores_read();
    __syncwarp();  // earlier stores have read these rows, and this warp's reads of Q are done
    const uint32 o_smem = smem + warp_row % kGroupRows * kPageRowBytes;
    normalise_rows(p, coord, o, row, warp_row, lane, [&](int r, int n) {
        return o_smem + n / 8 * kQPageBytes + r * kPageRowBytes + (n % 8 ^ r % 8) * 16;
    });
    fence_products();  // this lane's rows of O are seen by what stores them
    __syncwarp();
    if (lane == 0) {
#pragma unroll
        for (int page = 0; page < kPages; page++)
            store_page(map, o_smem + page * kQPageBytes, page * kPageColumns, coord.first_row + warp_row,
                       coord.query_head(p, 0), coord.batch);
        commit_stores();
    }
}

// ---- work tiles: which rows a block computes --------------------------------------------------------------------

// Dynamic work: a block that is free takes the next work tile from a counter in the workspace. The kernel before has
// set it to 0. The producer thread takes the number, and tells the others when the Q of that work tile comes.
struct CountedWork {
    unsigned number = blockIdx.x;

    __device__ __forceinline__ void take_over(unsigned next)
    {
        number = next;
    }
};

struct FixedWork {
    static constexpr unsigned number = 0;

    __device__ __forceinline__ void take_over(unsigned) {}
};

// A work tile: a row tile of one head of a batch (see BlockCoord). batch_head: b * heads + h.
struct Work : Either<kCounted, CountedWork, FixedWork>::Type {
    unsigned own_tile, own_batch_head, round = 0;

    __device__ __forceinline__ explicit Work(const Params &p)
    {
        find(p);
    }

    __device__ __forceinline__ unsigned tile(const Params &) const
    {
        return own_tile;
    }

    __device__ __forceinline__ unsigned batch_head(const Params &) const
    {
        return own_batch_head;
    }

    __device__ __forceinline__ unsigned index() const
    {
        if constexpr (kCounted)
            return number;
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
            own_batch_head = index() / p.q_tiles;
        }
        if constexpr (kBiasStaged)
            if (p.features.bias_batch == 0 && p.features.bias_head != 0)  // batches share a bias, so batch varies first
                own_batch_head = own_batch_head % p.batch * p.heads_q + own_batch_head / p.batch;
    }

private:
    // Order by weight: the heaviest row tiles come first, within a section of as many heads as have their K and V in
    // L2.
    __device__ __forceinline__ void find_by_weight(const Params &p)
    {
        const unsigned batch_heads = p.heads_q * p.batch;
        int seq_k = p.seq_k;
        if constexpr (kDropout)
            asm volatile("" : "+r"(seq_k));  // computed again each time, because no register is left for it
        const unsigned section = min(max(kSectionRows / seq_k, 1) * unsigned(p.group), batch_heads);
        const unsigned before = index() / (section * p.q_tiles) * section, rest = index() - before * p.q_tiles;
        const unsigned here = min(section, batch_heads - before);
        own_tile = rest / here;
        own_batch_head = before + rest % here;
    }
};

// ---- producer: the warpgroup that loads -----------------------------------------------------------------------------
//
// One thread loads Q, K and V by TMA (Loads; the loop over work tiles is in fwd.cuh). With a bias in shared memory,
// other warps load its tiles (bias_producer.cuh).

// The batch coordinate in a tensor map: packed sequences are one batch.
__device__ __forceinline__ int map_batch(const BlockCoord &coord)
{
    return kVarlen ? 0 : coord.batch;
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
    __device__ __forceinline__ void load_tile(const BlockCoord &coord, int kv_head, int tile, const TensorMap &map,
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
                      coord.sequence.first_k + tile * kBc, coordinate(kv_head, stride.head),
                      coordinate(map_batch(coord), stride.batch));
    }

    // Waits until the stage is empty, then loads a tile that the step before has rounded.
    template <int kBytes>
    __device__ __forceinline__ void load_bytes_tile(const char *tile, const Stage &stage, uint32 empty, uint32 full,
                                                    uint32 area)
    {
        barrier_wait(empty, stage.parity ^ 1);
        barrier_expect(full, kBytes);
        load_bytes(area + stage.index * kBytes, tile, kBytes, full);
    }

    __device__ __forceinline__ void load_k(const BlockCoord &coord, int kv_head, int tile, const Stage &k)
    {
        if constexpr (kRounded)
            load_bytes_tile<kTileBytes>(rounded_keys(p, number_of_tile(p, coord.batch, kv_head, tile)), k,
                                        barriers.k(k.index).empty, barriers.k(k.index).full, barriers.smem + kKArea);
        else
            load_tile(coord, kv_head, tile, maps.k, p.k_stride, k, barriers.k(k.index).empty, barriers.k(k.index).full,
                      barriers.smem + kKArea);
    }

    __device__ __forceinline__ void load_v(const BlockCoord &coord, int kv_head, int tile, const Stage &v)
    {
        if constexpr (kRounded)
            load_bytes_tile<kVTileBytes>(rounded_values(p, number_of_tile(p, coord.batch, kv_head, tile)), v,
                                         barriers.v(v.index).empty, barriers.v(v.index).full, barriers.smem + kVArea);
        else
            load_tile(coord, kv_head, tile, maps.v, p.v_stride, v, barriers.v(v.index).empty, barriers.v(v.index).full,
                      barriers.smem + kVArea);
    }

    __device__ __forceinline__ void load_q(const BlockCoord &coord, int group, unsigned number)
    {
        const uint32 full = barriers.q(group).full;
        if constexpr (kStays)
            barrier_wait(barriers.q(group).empty, q_parity);
        if constexpr (kCounted)
            store_shared_4(barriers.number(group), number);
        barrier_expect(full, kGroupBytes);
#pragma unroll
        for (int page = 0; page < kPages; page++)
            load_page(barriers.smem + kQArea + group * kGroupBytes + page * kQPageBytes, maps.q, full,
                      page * kPageColumns, coord.sequence.first_q + coord.first_row + group * kGroupRows,
                      coordinate(coord.query_head(p, 0), p.q_stride.head),
                      coordinate(map_batch(coord), p.q_stride.batch));
    }

    // Loads a work tile. Q is loaded and waited for even if no key is seen, because O may be written into its area
    // next.
    __device__ __forceinline__ void load_work_tile(const BlockCoord &coord, const TileRange &tiles, unsigned number)
    {
        const bool any = tiles.count > tiles.first;
        int kv_head = coord.kv_head(p);
        asm volatile("" : "+r"(kv_head));  // divide here once, not for each tile
        if (any)
            load_k(coord, kv_head, tiles.count - 1, stage);
        if constexpr (!kPackedHeads) {
#pragma unroll
            for (int group = 0; group < kGroups; group++)
                load_q(coord, group, number);
            q_parity ^= 1;
        }
#pragma unroll 1
        for (int tile = tiles.count - 2; tile >= tiles.first; tile--) {
            stage.advance();
            load_k(coord, kv_head, tile, stage);
            load_v(coord, kv_head, tile + 1, stage.before());
        }
        if (any) {
            load_v(coord, kv_head, tiles.first, stage);
            stage.advance();
        }
    }

    // Tells the consumers that the counter has no more work tiles.
    __device__ __forceinline__ void finish(unsigned number)
    {
#pragma unroll
        for (int group = 0; group < kGroups; group++) {
            barrier_wait(barriers.q(group).empty, q_parity);
            store_shared_4(barriers.number(group), number);
            barrier_arrive(barriers.q(group).full);
        }
    }
};

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

// Copies the Q of one warpgroup by its own threads: with kPackedHeads its rows belong to several heads.
__device__ __forceinline__ void copy_rows(const Params &p, const BlockCoord &coord, uint32 smem, int group)
{
    const int first_row = coord.first_row + group * kGroupRows;
    fill_pages<kGroupRows, 128>(smem, coord.rows - first_row,
                                [&](int r) { return p.q + coord.offset(p, p.q_stride, first_row + r) * kElemBytes; });
    cp_async_commit();
    cp_async_wait<0>();
    fence_products();
    named_barrier(1 + kGroups + group, 128);  // this warpgroup's rows of Q are complete
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
// The kernel of fwd_sm90 and fwd_bytes_sm90 (fwd_sm90.cu.in calls `forward`). A block computes kBr rows of O per work
// tile (work.cuh).
// Each consumer warpgroup computes 64 of these rows (fwd_consumer.cuh, bytes_consumer.cuh); the last warpgroup is the
// producer (fwd_producer.cuh). The mainloop goes through the tiles of K and V from the last to the first, so the tiles
// that need a mask come first (forward/tiles.cuh).
//
//     producer    wait until a stage is empty | load K(j) | load V(j+1) | ...
//     consumers   (of 16 bits; bytes_consumer.cuh has its own order)
//                 wait for Q | S(n-1) | ... S(j), O += P(j+1) V(j+1) ... | O += P(0) V(0) | write O
//
// Each stage of K and of V, and each warpgroup's rows of Q, have two mbarriers (fwd_barriers.cuh). The loads arrive at
// `full`; every warp that has read the stage arrives at `empty`. Unless O has an area of its own in shared memory
// (kOwnOPlace), O is stored through the area of Q, which has been read by then.

// Prologue: initialises the barriers, and writes what stays in shared memory for the whole kernel.
__device__ __forceinline__ void prologue(const Params &p, const Barriers &barriers)
{
    if (threadIdx.x == 0)
        barriers.init();
    init_bias_tiles(p, barriers.smem);
    if constexpr (kAlibiMma)
        put_extra_k_columns(barriers.smem);
    __syncthreads();  // the barriers are there
}

// Waits for the warpgroup's rows of Q.
__device__ __forceinline__ void await_q(const Params &p, const BlockCoord &coord, const Barriers &barriers,
                                        const Work &work, int index)
{
    if constexpr (kPackedHeads)
        copy_rows(p, coord, barriers.smem + kQArea + index * kGroupBytes, index);
    else
        barrier_wait(barriers.q(index).full, work.parity());
}

// Writes O of a warpgroup. If O went through the area of Q, gives that area back to the producer.
__device__ __forceinline__ void epilogue(const Params &p, const BlockCoord &coord, const TensorMaps &maps,
                                         const Barriers &barriers, const Group &group,
                                         const float (&o)[kRowTiles][kOutTiles][4], const RowState &row)
{
    const uint32 o_smem = barriers.smem + kOArea;
    if constexpr (kOByMap)
        write_rows_by_map(p, coord, o, row, o_smem + group.index * kGroupBytes, group.warp_row, group.lane, maps.o);
    else
        // write_rows adds warp_row * kPitch, which counts the rows of earlier warpgroups, too: subtracted here
        write_rows<RowTile>(p, coord, o, row, o_smem + group.index * (kGroupBytes - kGroupRows * kPitch),
                            group.warp_row, group.lane);
    if constexpr (kStays && !kOwnOPlace) {
        if constexpr (kOByMap) {
            if (group.lane == 0)
                wait_stores_read();
        } else {
            fence_products();  // orders this lane's accesses to O before the load of the next Q
        }
        __syncwarp();
        group.release_q(barriers);
    }
}

template <class Row> __device__ __forceinline__ void read_sink(Row &row, const Params &p, const BlockCoord &coord)
{
    if constexpr (kSinks)
        row.sink = sink_at(p, coord, 0);
}

// The kernel; kThreads threads.
__device__ __forceinline__ void forward(const Params &p, const TensorMaps &maps)
{
    extern __shared__ __align__(1024) char shared[];
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    const Barriers barriers{smem};
    const int index = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if constexpr (kVarlen) {
        clear_unused_rows(p);
        if (BlockCoord(p, Work(p)).batch < 0)
            return;
    }
    prologue(p, barriers);
    if constexpr (kRounded)
        await_step_before();  // K and V are rounded
    if (index == kGroups) {
        give_registers<kLoadRegisters>();
        Loads loads(p, maps, barriers);
        if constexpr (kVarlen) {
            if (threadIdx.x < kGroups * 128 + 32) {  // the whole warp searches for the sequence
                const BlockCoord coord(p, Work(p));
                if (threadIdx.x == kGroups * 128)
                    loads.load_work_tile(coord, TileRange(p, coord), 0);
            }
        } else if (threadIdx.x == kGroups * 128) {
            Work work(p);
            while (work.is_left(p)) {
                const BlockCoord coord(p, work);
                loads.load_work_tile(coord, TileRange(p, coord), work.number);
                if constexpr (kCounted)
                    work.advance(p, work.take(p));
                else
                    work.advance(p);
            }
            if constexpr (kCounted)
                loads.finish(work.number);
        }
        produce_bias(p, maps, barriers);
        return;
    }
    take_registers<kGroupRegisters>();
    Group group(index, barriers.smem);
    auto advance = [&](Work &work) {
        if constexpr (kCounted)
            work.advance(p, barriers.next_number(index, work.parity()));
        else
            work.advance(p);
    };
    for (Work work(p); work.is_left(p); advance(work)) {
        const BlockCoord coord(p, work);
        const TileRange tiles(p, coord);
        float o[kRowTiles][kOutTiles][4] = {};
        RowState row;
        begin_rows(row, p);
        read_sink(row, p, coord);
        await_q(p, coord, barriers, work, index);
        if (tiles.count > tiles.first)
            compute_rows(p, coord, tiles, barriers, group, o, row);
        else if constexpr (kOwnOPlace)
            group.release_q(barriers);
        epilogue(p, coord, maps, barriers, group, o, row);
    }
    group.ping_pong.finish();
    if constexpr (kOByMap)
        if (group.lane == 0)
            wait_stores_read();
}

// The kernel that runs before the main one. Sets the counter of work tiles to 0, and with dropout makes the column
// keys.
template <int kBlockThreads> __device__ __forceinline__ void prepare(const Params &p)
{
    if constexpr (kDropout)
        prepare_column_keys<kBlockThreads>(p);
    if (kCounted && (!kDropout || blockIdx.x == 0) && threadIdx.x == 0)
        *reinterpret_cast<unsigned *>(p.partial) = 0;
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    fwd_sm90(const __grid_constant__ Params p, const __grid_constant__ TensorMaps maps)
{
    forward(p, maps);
}
// ---- entry points of the kernels before and after the main one: each function gets the threads of a block ----------
