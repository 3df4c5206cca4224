#line 1 "templates/features/config.cu.in"

// ---- the problem, the element, the SM and the features; a feature that is off costs nothing ----------------------
constexpr int kHeadDim = 40;         // D: columns of Q and K
constexpr int kHeadDimV = 40;        // columns of V and O
constexpr bool kCausal = 0 == 1;   // query i sees keys <= i + seq_k - seq_q
constexpr int kGeneratorSmemBytes = 9216;
enum class Products { mma_k8, mma_k16, wgmma };
constexpr Products kProducts = Products::mma_k8;  // the instruction of products
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
constexpr int kBc = 32;                       // key and value rows per tile
constexpr float kLazyRescale = 8;  // growth of a maximum, in log2, up to which O is not rescaled
#line 2 "templates/forward/splits_config.cu.in"
constexpr int kMaxSplits = 1;  // most blocks that divide the keys of a row tile
#line 2 "templates/forward/config.cu.in"
// ---- the variant -------------------------------------------------------------------------------
#line 1 "templates/lib/mma_config.cu.in"
constexpr int kWarps = 4;
constexpr bool kSwizzle = true;  // 16-byte chunks of a row are permuted; else each row is padded
#line 4 "templates/forward/config.cu.in"
constexpr bool kVInK = false;              // V is the first columns of K
constexpr int kParts = 1;              // warps that share rows, and divide their columns
constexpr int kBr = 64;                 // query rows per block. A warp owns whole rows: no softmax across warps
constexpr bool kSplit = kMaxSplits > 1;  // teams and blocks divide the keys
constexpr bool kPackedHeads = kSplit;    // rows are those of all query heads of a group
constexpr int kTeams = 1;              // teams: groups of warps that share the rows and divide the keys
constexpr int kKStages = 1;            // stages of K
constexpr int kVStages = 1;            // stages of V
constexpr bool kQInRegisters = true;      // Q is read from shared memory once; else again for every tile
constexpr bool kSpreadFill = false;  // copies are spread over the steps of S = Q K^T; else all in one
constexpr bool kInt8Scores = kQuantThreads > 0;  // Q and K are rounded to 8-bit integers
#line 2 "templates/forward/shape.cuh"

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
#line 3 "templates/lib/tile.cuh"

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
#line 3 "templates/lib/form.cuh"

// The layout of a tile: V has its own if it has fewer columns, and so have rows of 8-bit integers.
template <int kColumns>
using FormOf = TileForm<kColumns == kHeadDimV  ? kHeadDimVPadded
                        : kColumns == kHeadDim ? kHeadDimPadded
                                               : (kColumns + 15) / 16 * 16>;
#line 3 "templates/forward/tile.cuh"

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
