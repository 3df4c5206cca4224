// fwd_sm75 d=64 dtype=fp16 causal=0 br=128 bc=64 warps=4 kstages=2 vstages=2 layout=swizzle q=reg fill=whole
// op=forward abi=2 rows=128 keys=64; fwd_sm75 role=main threads=128 smem=32768 blocks=row_tiles
// fwd_sm75: attention forward on Turing. fp16, two mma m16n8k8 per k16 step, tiles loaded through registers.

// ---- the problem, the element, the SM and the features; a feature that is off costs nothing ----------------------
constexpr int kHeadDim = 64;         // D: columns of Q and K
constexpr int kHeadDimV = 64;        // columns of V and O
constexpr bool kCausal = 0 == 1;   // query i sees keys <= i + seq_k - seq_q
constexpr int kGeneratorSmemBytes = 32768;
enum class Products { mma_k8, mma_k16, wgmma };
constexpr Products kProducts = Products::mma_k8;  // the instruction of products
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
using Elem = fp16;  // the type of Q, K, V, P and O, and of gradients
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
constexpr int kMaxSplits = 1;  // most blocks that divide the keys of a row tile
// ---- the variant -------------------------------------------------------------------------------
constexpr int kWarps = 4;
constexpr bool kSwizzle = true;  // 16-byte chunks of a row are permuted; else each row is padded
constexpr bool kVInK = false;              // V is the first columns of K
constexpr int kParts = 1;              // warps that share rows, and divide their columns
constexpr int kBr = 128;                 // query rows per block. A warp owns whole rows: no softmax across warps
constexpr bool kSplit = kMaxSplits > 1;  // teams and blocks divide the keys
constexpr bool kPackedHeads = kSplit;    // rows are those of all query heads of a group
constexpr int kTeams = 1;              // teams: groups of warps that share the rows and divide the keys
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

// ---- addresses of rows of K and V -------------------------------------------------------------------------
//
// Policy of kernels without a paged cache. A block reads a head of K or V from a head pointer: its row 0. The scales of
// rows in 8 bits lie likewise, with strides of their own. kBytes: of an element.
template <int kBytes = kKvBytes>
__device__ __forceinline__ const char *key_head(const char *tensor, const Strides &stride, const SequenceCoord &coord,
                                                int head)
{
    if constexpr (kVarlen)
        return tensor + (coord.sequence.first_k * stride.seq + head * stride.head) * kBytes;
    else if constexpr (kLeftpad)
        return tensor +
               (coord.key_batch() * stride.batch + coord.sequence.first_k * stride.seq + head * stride.head) * kBytes;
    else
        return tensor + (coord.key_batch() * stride.batch + head * stride.head) * kBytes;
}

// A tile whose rows are contiguous in memory.
struct ContiguousRows {
    const int tile;

    __device__ __forceinline__ ContiguousRows(const Params &, const SequenceCoord &, int tile) : tile(tile) {}

    template <int kBytes = kKvBytes>
    __device__ __forceinline__ const char *at(const char *batch_head, const Strides &stride, int r) const
    {
        return batch_head + (int64(tile) * kBc + r) * stride.seq * kBytes;
    }
};

using KeyRows = ContiguousRows;

constexpr bool kPagesExchanged = false;

// The empty policy: lanes exchange no page numbers.
struct NoPageNumbers {
    const Params &p;
    const BlockCoord &coord;

    __device__ __forceinline__ NoPageNumbers(const Params &p, const BlockCoord &coord) : p(p), coord(coord) {}

    __device__ __forceinline__ void find_first(int) {}

    __device__ __forceinline__ void find_next(int) {}

    __device__ __forceinline__ void pass() {}
};

template <class Plan>
__device__ __forceinline__ KeyRows rows_of(const NoPageNumbers &numbers, const Plan &, int tile, const PageSteps &)
{
    return KeyRows(numbers.p, numbers.coord, tile);
}

// The scale of row r of a tile.
template <class Plan>
__device__ __forceinline__ const char *scale_at(const NoPageNumbers &, const KeyRows &rows, const Plan &, int, int,
                                                int r, const char *batch_head, const Strides &stride)
{
    return rows.template at<kRowScaleBytes>(batch_head, stride, r);
}

template <class> using PageNumbersOf = NoPageNumbers;

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

extern "C" __global__ void __launch_bounds__(kThreads) fwd_sm75(const __grid_constant__ Params p)
{
    forward(p);
}
// ---- entry points of the kernels before and after the main one: each function gets the threads of a block ----------
