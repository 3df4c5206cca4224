// fwd_sm80 d=128 dtype=bf16 causal=1 br=64 bc=64 warps=4 kstages=2 vstages=2 layout=swizzle q=reg fill=whole
// op=forward abi=2 rows=64 keys=64; fwd_sm80 role=main threads=128 smem=65536 blocks=row_tiles
// fwd_sm80: attention forward on SM 8.0 and newer. fp16 or bf16, mma m16n8k16, tiles loaded by cp.async.
// ---- the variant -------------------------------------------------------------------------------
constexpr int kHeadDim = 128;        // D: columns of Q and K
constexpr int kHeadDimV = 128;       // columns of V and O
constexpr bool kVInK = false;      // V is the first columns of K
constexpr int kParts = 1;          // warps that share rows, and divide their columns
constexpr int kBr = 64;            // query rows per block
constexpr int kBc = 64;            // key and value rows per tile
constexpr int kWarps = 4;          // a warp owns whole rows: no softmax across warps
constexpr bool kSplit = false;     // teams and blocks divide the keys
constexpr bool kPackedHeads = false;  // rows are those of all query heads of a group
constexpr int kTeams = 1;          // teams: groups of warps that share the rows and divide the keys
constexpr int kMaxSplits = 1;      // most blocks that divide the keys of a row tile
constexpr int kAppendThreads = 256;  // of a block that appends new keys and values
constexpr int kCombineWarps = 1;   // rows, one per warp, of a block of the combining kernel
constexpr int kKStages = 2;        // stages of K
constexpr int kVStages = 2;        // stages of V
constexpr bool kCausal = 1 == 1;  // query i sees keys <= i + seq_k - seq_q
constexpr bool kSwizzle = true;     // 16-byte chunks of a row are permuted; else each row is padded
constexpr bool kQInRegisters = true;  // Q is read from shared memory once; else again for every tile
constexpr bool kSpreadFill = false;  // copies are spread over the steps of S = Q K^T; else all in one
constexpr bool kPagesTold = false;  // lanes that copy a row divide the look-ups of pages and exchange them
constexpr int kGeneratorSmemBytes = 65536;

// ---- the element, the SM and the features; a feature that is off costs nothing -------------------------------------
constexpr bool kBf16 = true;        // elements are bf16; else fp16
constexpr bool kTuring = false;      // Turing: products are m16n8k8, tiles pass through registers
constexpr bool kWgmma = false;       // products are wgmma

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

// ---- areas of shared memory -----------------------------------------------------------------------------------
//
// ValueTile: rows of V, and of O at the end. If V is the first columns of K, its tiles are the tiles of K.
using ValueTile = TileForm<kVInK ? kHeadDimPadded : kHeadDimVPadded>;
constexpr int kQTileBytes = kBr * kPitch;
constexpr int kKvTileBytes = kBc * kPitch;
constexpr int kVTileBytes = kVInK ? 0 : kBc * ValueTile::kPitch;

// Offsets of the areas. If Q is kept in registers, its tile is read once and shares space with V.
constexpr int kQArea = kQInRegisters ? kTeams * kKStages * kKvTileBytes : 0;
constexpr int kKArea = kQInRegisters ? 0 : kQTileBytes;
constexpr int kVArea = kKArea + kTeams * kKStages * kKvTileBytes;
constexpr int kVBytes = kTeams * kVStages * kVTileBytes;
// Partial sums of S of each warp, in fp32, if warps divide columns (sum_scores.cuh).
constexpr int kSumArea = kVArea + (kQInRegisters && kQTileBytes > kVBytes ? kQTileBytes : kVBytes);
constexpr int kTileBytes = kSumArea + (kParts > 1 ? kTeams * kParts * kBr * kBc * 4 : 0);
// After the mainloop: the teams' rows of O in fp32 (epilogue_partial.cuh), maxima and sums.
constexpr int kMergeBytes = kTeams * kBr * (kHeadDimV * 4 + (160 - kHeadDimV * 4 % 128) % 128 + 8);
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

// ---- epilogue of a block that shares the keys of its rows: with its own teams, or with other blocks -----------------
//
// The kernels of fwd.cuh (if kSplit) and hopper/split.cuh call write_merged.
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
// Lanes that read a row, 16 bytes each. Their number is a multiple of eight, so no group of eight crosses rows: the
// beginning of a row shares banks with the end of others.
constexpr int kMergeLanes = (kHeadDimV / 4 + 7) / 8 * 8;
static_assert(kMergeStates + kTeams * kBr * 8 == kMergeBytes, "O, maxima and sums of all teams fill kMergeBytes");

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
    float max, sum;

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
            const float weight = exp2_approx((state[team].x - max) * scale_log2);
            const float4 x = load_shared_floats(smem + (team * kBr + r) * kMergePitch + column * 4);
            sum += weight * state[team].y;
            o.x += weight * x.x;
            o.y += weight * x.y;
            o.z += weight * x.z;
            o.w += weight * x.w;
        }
        multiply(row_inverse(sum));
    }

    // Adds the sink to a row. Only for a row whose keys all belong to this block.
    __device__ __forceinline__ float add_sink(float scale, float sink)
    {
        const SinkEnd end(max * scale, sum, sink);
        multiply(sum * end.inverse);
        return end.lse;
    }

    __device__ __forceinline__ void multiply(float factor)
    {
        o.x *= factor;
        o.y *= factor;
        o.z *= factor;
        o.w *= factor;
    }

    __device__ __forceinline__ float lse(float scale) const
    {
        return row_lse(max, sum, scale);
    }
};

// Writes a row whose keys all belong to this block.
__device__ __forceinline__ void write_whole(const Params &p, const BlockPlace &place, MergedRow &merged, int block_row,
                                            int64 index, int column)
{
    float lse;
    if constexpr (kSinks)
        lse = merged.add_sink(p.scale, p.features.sinks[place.query_head(p, block_row)]);
    char *out = p.o + place.offset(p, p.o_stride, block_row) * 2 + column * 2;
    *reinterpret_cast<uint2 *>(out) = uint2{pack2(merged.o.x, merged.o.y), pack2(merged.o.z, merged.o.w)};
    if (p.lse != nullptr && column == 0) {
        if constexpr (!kSinks)
            lse = merged.lse(p.scale);
        p.lse[index] = lse;
    }
}

__device__ __forceinline__ void write_merged(const Params &p, const BlockPlace &place,
                                             const float (&o)[kRowTiles][kOutTiles][4], const RowState &row,
                                             uint32 smem, int warp_row, int lane)
{
    block_sync();  // every warp has read its last Q, K and V before O comes into their place
    store_team(smem, o, row, threadIdx.x / kTeamThreads, warp_row, lane);
    block_sync();  // all teams' results are there

    const int64 all_rows = int64(gridDim.x) / (p.q_tiles * p.splits) * p.group * p.seq_q;
    for (int i = threadIdx.x; i < kBr * kMergeLanes; i += kThreads) {
        const int r = i / kMergeLanes, column = i % kMergeLanes * 4;
        const int block_row = place.first_row + r;
        if (block_row >= place.rows)
            break;
        if (column >= kHeadDimV)
            continue;
        MergedRow merged(smem, r, column, p.scale_log2);
        if constexpr (kDropout)
            merged.multiply(keep_scale(p));
        const int64 index = place.index(p, block_row);
        if (kVarlen ? place.part < 0 : place.splits(p) == 1) {  // this block has all keys of its rows
            write_whole(p, place, merged, block_row, index, column);
        } else {
            const int64 at = kLengths ? place.slot() * kBr + r : place.split * all_rows + index;
            *reinterpret_cast<float4 *>(p.partial + at * kHeadDimV + column) = merged.o;
            if (column == 0)
                p.partial_lse[at] = merged.lse(p.scale);
        }
    }
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

// ---- addresses of rows of K and V -------------------------------------------------------------------------
//
// A block reads a head of K or V from a head pointer: its row 0, in page 0 if the cache is paged.
__device__ __forceinline__ const char *key_plane(const char *tensor, const Strides &stride, const BlockPlace &place,
                                                 int head)
{
    if constexpr (kPaged)
        return tensor + head * stride.head * 2;
    else if constexpr (kVarlen)
        return tensor + (place.sequence.first_k * stride.seq + head * stride.head) * 2;
    else if constexpr (kLeftpad)
        return tensor +
               (place.key_batch() * stride.batch + place.sequence.first_k * stride.seq + head * stride.head) * 2;
    else
        return tensor + (place.key_batch() * stride.batch + head * stride.head) * 2;
}

// A tile whose rows are contiguous in memory.
struct ContiguousRows {
    const int tile;

    __device__ __forceinline__ ContiguousRows(const Params &, const BlockPlace &, int tile) : tile(tile)
    {
    }

    __device__ __forceinline__ const char *at(const char *plane, const Strides &stride, int r) const
    {
        return plane + (int64(tile) * kBc + r) * stride.seq * 2;
    }
};

// Paged K and V. A page has 2^page_shift rows of every head, [pages, page, Hkv, D]. Key j of a sequence is row j % page
// of page table[j / page]. An invalid page number counts as the last page. If a page is at least as long as a tile, the
// tile lies in one page: one look-up, whose latency all rows share. This does not hold after left padding, which has
// any length.
struct PagedRows {
    const Params &p;
    const int *table;
    const int first_key, last_key;  // of the tile; of the sequence
    bool one;
    uint32 page;  // the page, if there is one for the tile

    __device__ __forceinline__ PagedRows(const Params &p, const BlockPlace &place, int tile)
        : p(p), table(p.features.block_table + place.batch * p.features.table_stride),
          first_key(place.padding() + tile * kBc), last_key(place.padding() + place.seq_k(p) - 1),
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

    __device__ __forceinline__ const char *at(const char *plane, const Strides &stride, int r) const
    {
        const int own = key(r), in_page = own & ((1 << p.features.page_shift) - 1);
        const uint32 own_page = one ? page : look_up(own);
        return plane + (own_page * stride.batch + in_page * stride.seq) * 2;
    }
};

using KeyRows = Either<kPaged, PagedRows, ContiguousRows>::Type;

// Returns the key of row r of a tile, so that a lane has eight neighbours of 32 keys (kWide). Columns 2 t and 2 t + 1
// of column tile n are keys 8 t + 2 n and 8 t + 2 n + 1. Rows after the last key repeat it, and are masked.
__device__ __forceinline__ int wide_key(int r, int last)
{
    return min(r / 32 * 32 + r / 2 % 4 * 8 + r / 8 % 4 * 2 + r % 2, last);
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

// The layout of a tile: V has its own if it has fewer columns.
template <int kColumns> using FormOf = TileForm<kColumns == kHeadDimV ? kHeadDimVPadded : kHeadDimPadded>;

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
    static constexpr bool kAllColumns = kColumns == kChunks * 8;

    const int first_row, chunk;

    __device__ __forceinline__ FillPlan() : FillPlan(kCount < kThreads ? thread_index() % kCount : thread_index())
    {
    }

    __device__ __forceinline__ explicit FillPlan(int thread) : first_row(thread / kChunks), chunk(thread % kChunks)
    {
    }

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
        return kAllColumns || chunk < kColumns / 8;
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
    __device__ __forceinline__ void store(uint32)
    {
    }
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

// ---- page numbers exchanged between lanes (kPagesTold) -----------------------------------------------------------
//
// The lanes that copy a row copy the same rows in all passes of a load. So each lane looks up the pages of some passes,
// computes where their rows begin, and passes these offsets to the other lanes by shuffles.

// The pages of the tiles that are copied next.
template <class Plan> struct PageNumbers {
    static constexpr int kOwn = (Plan::kPasses + kChunks - 1) / kChunks;  // passes that a lane looks up
    static constexpr int kTiles = kJoint ? kKStages - 1 : 2;              // V of a tile after K, and K of the next tile
    static_assert(32 % kChunks == 0 && Plan::kAllThreads && kBc % Plan::kRowStep * kChunks % 32 == 0,
                  "a warp copies whole rows, and all of it takes part in a pass or none");

    const Params &p;
    const int *table;
    const int first_key;  // after the padding
    const int last_key;   // of the sequence
    uint32 own[kTiles][kOwn];

    __device__ __forceinline__ PageNumbers(const Params &p, const BlockPlace &place)
        : p(p), table(p.features.block_table + place.batch * p.features.table_stride), first_key(place.padding()),
          last_key(place.padding() + place.seq_k(p) - 1)
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

// The empty policy: lanes exchange no page numbers.
struct NoPageNumbers {
    const Params &p;
    const BlockPlace &place;

    __device__ __forceinline__ NoPageNumbers(const Params &p, const BlockPlace &place) : p(p), place(place)
    {
    }

    __device__ __forceinline__ void find_first(int)
    {
    }

    __device__ __forceinline__ void find_next(int)
    {
    }

    __device__ __forceinline__ void pass()
    {
    }
};

// Offsets of the rows of the next tile in K or V: 32 bits, which one instruction turns into an address.
template <class Plan> struct ToldRows {
    using Numbers = PageNumbers<Plan>;
    const int first_row;  // of this lane's rows
    const uint32 bytes;   // of a step
    uint32 own[Numbers::kOwn];

    __device__ __forceinline__ ToldRows(const Numbers &numbers, const Plan &plan, int tile, const PageSteps &steps)
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

    __device__ __forceinline__ const char *at(const char *plane, const Strides &, int r) const
    {
        const int pass = (r - first_row) / Plan::kRowStep;  // a constant after unrolling
        return plane + int64(__shfl_sync(0xffffffffu, own[pass / kChunks], pass % kChunks, kChunks)) * bytes;
    }
};

// Returns the rows of the tile that is copied next.
template <class Plan>
__device__ __forceinline__ ToldRows<Plan> rows_of(const PageNumbers<Plan> &numbers, const Plan &plan, int tile,
                                                  const PageSteps &steps)
{
    return ToldRows<Plan>(numbers, plan, tile, steps);
}

template <class Plan>
__device__ __forceinline__ KeyRows rows_of(const NoPageNumbers &numbers, const Plan &, int tile, const PageSteps &)
{
    return KeyRows(numbers.p, numbers.place, tile);
}

// ---- the two products of a tile ---------------------------------------------------------------------
//
// A step of the mainloop of fwd.cuh calls both. after_step(step) is called after the instructions of each k16 step, so
// the copies that it issues run while the tensor cores work. Warps that share rows take every kParts-th pair of chunks.

__device__ __forceinline__ void clear_scores(float (&s)[kRowTiles][kColTiles][4])
{
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
        for (int n = 0; n < kColTiles; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[m][n][e] = 0.0f;
}

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

// O += P V for one tile; P is what softmax_tile left in s.
template <class AfterStep>
__device__ __forceinline__ void product_pv(float (&o)[kRowTiles][kOutTiles][4],
                                           const float (&s)[kRowTiles][kColTiles][4], Dropout &dropout, int tile,
                                           uint32 v_smem, uint32 lane_values, AfterStep after_step)
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

// ---- sum of S over warps that divide columns (kParts) --------------------------------------------------------
constexpr int kWarpSumBytes = kRowTiles * kColTiles * 32 * 16;  // [row tile][column tile][lane]
static_assert(kParts == 1 || kSumArea + kWarps * kWarpSumBytes == kTileBytes, "each warp has a place for its S");

// Where a lane puts its part of a column tile of S, in the area of warp `part` of the same rows.
__device__ __forceinline__ uint32 sum_place(uint32 smem, int part, int m, int n)
{
    const int warp = threadIdx.x / 32 / kParts * kParts + part;
    return smem + kSumArea + warp * kWarpSumBytes + ((m * kColTiles + n) * 32 + threadIdx.x % 32) * 16;
}

__device__ __forceinline__ void put_scores(uint32 smem, const float (&s)[kRowTiles][kColTiles][4])
{
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
        for (int n = 0; n < kColTiles; n++)
            store_shared_16(sum_place(smem, own_part(), m, n),
                            uint4{__float_as_uint(s[m][n][0]), __float_as_uint(s[m][n][1]), __float_as_uint(s[m][n][2]),
                                  __float_as_uint(s[m][n][3])});
}

// Sums S over all parts. A barrier must come after put_scores.
__device__ __forceinline__ void add_scores(uint32 smem, float (&s)[kRowTiles][kColTiles][4])
{
    const int part = own_part();
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
        for (int n = 0; n < kColTiles; n++) {
            const float4 x = load_shared_floats(sum_place(smem, part ^ 1, m, n));
            s[m][n][0] += x.x;
            s[m][n][1] += x.y;
            s[m][n][2] += x.z;
            s[m][n][3] += x.w;
            if constexpr (kParts == 4) {
                const float4 y = load_shared_floats(sum_place(smem, part ^ 2, m, n));
                const float4 z = load_shared_floats(sum_place(smem, part ^ 3, m, n));
                s[m][n][0] += y.x + z.x;
                s[m][n][1] += y.y + z.y;
                s[m][n][2] += y.z + z.z;
                s[m][n][3] += y.w + z.w;
            }
        }
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
// The kernel of fwd_sm75 and fwd_sm80, and of the families that split keys (entry.cu.in calls `forward`). One block
// computes kBr rows of O. The mainloop (`visit` is one step) goes through the tiles of K and V from the last to the
// first. So the tiles that need a mask (the tensor's end, the causal diagonal) come first, and the loop over the others
// has no compare code. With a window, there are tiles to mask at both ends.
//
// Each feature changes one place. Features that a kernel lacks are compiled out.
//
//     which tiles are processed           tiles.cuh
//     which keys a row sees               mask.cuh
//     where a row of K or V lies          keys.cuh
//     what is added to scores             terms.cuh
//     what dropout leaves of P            dropout.cuh; only product_pv reads it
//     how a row begins and ends           softmax.cuh
//
// Timeline of the step of tile t, with the copies that run meanwhile. K and V of a tile are one stage (kJoint, two or
// three stages):
//
//   wait K, V (t) | S = Q K^T                            softmax   O += P V
//                 | copy K, V (t - 1, or t - 2 with three stages) ........
//
// or K and V have separate stages, with two barriers per step (one or two stages of K):
//
//   wait K (t) | S = Q K^T        | wait V (t) | softmax   O += P V
//              | copy V (t) ..... |            | copy K (t - 1), into its one stage
//              | copy K (t - 1), with two stages of K .............
//
// Barriers per tile: one if kJoint, else two. The comment at each barrier says what it orders. A team of warps
// processes every kTeams-th tile and waits only for its own members.

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

// The empty policy: V is loaded with K.
struct NoFill {
    template <bool kFull, class Plan, class Address>
    __device__ __forceinline__ void issue(const Plan &, Share, uint32, int, Address)
    {
    }

    __device__ __forceinline__ void store(uint32) const
    {
    }
};

// V has its own load plan if its rows and the rows of K differ.
constexpr bool kOwnValuePlan = kHeadDimV < kHeadDim || kParts > 1;

// The kernel; kThreads threads.
__device__ __forceinline__ void forward(const Params &p)
{
    extern __shared__ __align__(128) char shared[];
    if constexpr (kSplit)
        let_next_step_begin();
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    const int lane = threadIdx.x % 32;
    const int team = kTeams > 1 ? threadIdx.x / kTeamThreads : 0;
    const int team_warp = threadIdx.x / 32 - team * (kTeamThreads / 32);
    const int warp_row = team_warp / kParts * (16 * kRowTiles);  // this warp's first row in the block
    const BlockPlace place(p, WorkOfGrid());
    if constexpr (kVarlen)
        BlockPlace::clear_unused_rows(p);
    if constexpr (kVarlen || (kSplit && kLengths))
        if (place.batch < 0)
            return;
    const TileRange tiles(p, place);

    const uint32 lane_rows = pair_offset(RowTile::lane_offset_rows(lane), own_part());
    const uint32 lane_cols = pair_offset(RowTile::lane_offset_cols(lane), own_part());
    const uint32 lane_values = ValueTile::pair_offset(ValueTile::lane_offset_rows(lane), own_part());
    const uint32 q_area = kQBehind ? v_stage(smem, 0, tiles.count - 1 + kTeams) : smem + kQArea;
    const uint32 q_smem = q_area + warp_row * kPitch;

    float o[kRowTiles][kOutTiles][4] = {};
    RowState row;
    begin_rows(row, p);

    uint32 q_frag[kRowTiles][kDepth][4];
    if (tiles.count > tiles.first) {
        using Plan = FillPlan<kBc, kTeamThreads>;
        Fill<kBr, kThreads> q_fill;
        Fill<kBc, kTeamThreads> k_fill;
        Either<kVInK, NoFill, Fill<kBc, kTeamThreads, kHeadDimV>>::Type v_fill;
        const int kv_head = place.kv_head(p);
        const char *k_plane = key_plane(p.k, p.k_stride, place, kv_head);
        const char *v_plane = key_plane(p.v, p.v_stride, place, kv_head);
        int tile = tiles.count - 1 - team;
        Either<kPagesTold, PageNumbers<Plan>, NoPageNumbers>::Type numbers(p, place);
        numbers.find_first(tile);

        // Starts copying a share of a tile of K, or of V. full: all rows of the tile are before the tensor's end.
        auto issue_k = [&](auto full, const Plan &plan, Share share, int tile) {
            const int last = place.seq_k(p) - 1 - tile * kBc;
            const auto rows = rows_of(numbers, plan, tile, p.features.k_steps);
            k_fill.template issue<kWide || decltype(full)::value>(
                plan, share, k_stage(smem, team, tile), kWide ? kBc : place.seq_k(p) - tile * kBc,
                [&](int r) { return rows.at(k_plane, p.k_stride, kWide ? wide_key(r, last) : r); });
        };
        auto issue_v_by = [&](auto full, const auto &plan, Share share, int tile) {
            const int last = place.seq_k(p) - 1 - tile * kBc;
            const auto rows = rows_of(numbers, plan, tile, p.features.v_steps);
            v_fill.template issue<kWide || decltype(full)::value>(
                plan, share, v_stage(smem, team, tile), kWide ? kBc : place.seq_k(p) - tile * kBc,
                [&](int r) { return rows.at(v_plane, p.v_stride, kWide ? wide_key(r, last) : r); });
        };
        auto issue_v = [&](auto full, const auto &plan, Share share, int tile) {
            if constexpr (kVInK)
                return;
            else if constexpr (kOwnValuePlan)
                issue_v_by(full, FillPlan<kBc, kTeamThreads, kHeadDimV>(), share, tile);
            else
                issue_v_by(full, plan, share, tile);
        };
        Dropout dropped(p, place, place.first_row + warp_row, lane);
        const Terms terms(p, place, place.first_row + warp_row, lane);

        // Only the first tile that is processed can reach beyond the tensor's end.
        q_fill.template issue<false>(FillPlan<kBr, kThreads>(), kWhole, q_area, place.rows - place.first_row,
                                     [&](int r) { return p.q + place.offset(p, p.q_stride, place.first_row + r) * 2; });
        if (kTeams == 1 || tile >= tiles.first)
            issue_k(Bool<false>{}, Plan(), kWhole, tile);
        fill_commit();
        q_fill.store(q_area);
        auto read_q = [&] {
            __syncthreads();  // Q is complete before it is read
#pragma unroll
            for (int m = 0; m < kRowTiles; m++)
#pragma unroll
                for (int step = 0; step < kDepth; step++)
                    ldmatrix_x4(q_frag[m][step], q_smem + pair_offset(lane_rows, step * kParts) + m * 16 * kPitch);
            if constexpr (kJoint || kTeams > 1)
                __syncthreads();  // Q is read before V is loaded into its area
        };
        if constexpr (kQInRegisters && !kQBehind) {
            fill_wait<0>();
            read_q();
        }
        if constexpr (kJoint) {
            if (kTeams == 1 || tile >= tiles.first)
                issue_v(Bool<false>{}, Plan(), kWhole, tile);
            fill_commit();
#pragma unroll
            for (int ahead = 1; ahead < kKStages - 1; ahead++) {
                numbers.pass();  // to this tile
                if (tile - ahead * kTeams >= tiles.first) {
                    issue_k(Bool<true>{}, Plan(), kWhole, tile - ahead * kTeams);
                    issue_v(Bool<true>{}, Plan(), kWhole, tile - ahead * kTeams);
                }
                fill_commit();
            }
        }
        if constexpr (kQBehind) {
            fill_wait<kKStages - 1>();
            read_q();
        }
        if constexpr (kTeams > 1 && !kQInRegisters) {
            fill_wait<kJoint ? kKStages - 1 : 0>();
            __syncthreads();  // Q is complete: all threads loaded it, but a team's barrier covers the team only
        }

        auto visit = [&](auto masked) {
            constexpr bool kMasked = decltype(masked)::value;
            const uint32 k_smem = k_stage(smem, team, tile), v_smem = v_stage(smem, team, tile);
            float s[kRowTiles][kColTiles][4];
            uint32 bias_words[kRowTiles][2][kColTiles];
            bool seen = true;

            numbers.find_next(tile);  // the look-ups run while S is computed
            if constexpr (kTermsFirst)
                seen = terms.template apply<kMasked, false>(s, tile);
            else if constexpr (kBiasAhead)
                terms.template load<kMasked>(bias_words, tile);
            k_fill.store(k_smem);
            if constexpr (kJoint) {
                v_fill.store(v_smem);
                fill_wait<kKStages - 2>();
                team_sync();  // K and V are complete; the tile before is read, its stage is free
            } else {
                fill_wait<0>();
                team_sync();  // K is complete; V of the tile before is read (Q too), V is free
            }

            // Copies that run meanwhile: the next tile, and V of this tile unless it came with K.
            constexpr int kAhead = kKStages > 1 ? kKStages - 1 : 1;
            constexpr int kFillStep = kJoint ? kDepth - 1 : 0;  // this V is waited for after S
            const int next = tile - kAhead * kTeams;
            const bool has_next = next >= tiles.first;
            auto issue_whole = [&] {
                if constexpr (!kJoint) {  // only a masked tile can reach beyond the end
                    issue_v(Bool<!kMasked>{}, Plan(), kWhole, tile);
                    fill_commit();
                    numbers.pass();  // to K of the next tile
                }
                if (kKStages > 1 && has_next) {
                    const Plan plan;
                    issue_k(Bool<true>{}, plan, kWhole, next);
                    if constexpr (kJoint)
                        issue_v(Bool<true>{}, plan, kWhole, next);
                }
            };
            if constexpr (kSkips)
                if (!seen) {  // no row of this warp sees a key of the tile: it only takes part in copies and barriers
                    if constexpr (kSpreadFill) {
                        const Plan plan;
                        issue_k(Bool<true>{}, plan, {0, 1, has_next}, next);
                        issue_v(Bool<true>{}, plan, {0, 1, has_next}, next);
                    } else {
                        issue_whole();
                    }
                    if constexpr (kKStages > 1)
                        fill_commit();
                    if constexpr (!kJoint) {
                        v_fill.store(v_smem);
                        fill_wait<kKStages - 1>();
                        team_sync();  // V is complete; K is read
                    }
                    if constexpr (kVInK && kKStages == 1)
                        team_sync();  // V is read
                    if (kKStages == 1 && has_next)
                        issue_k(Bool<true>{}, Plan(), kWhole, next);
                    if constexpr (kKStages == 1)
                        fill_commit();
                    return;
                }
            auto compute_s = [&](auto after_step) {
                if constexpr (!kTermsFirst)
                    clear_scores(s);
                product_qk(s, q_frag, q_smem, k_smem, lane_rows, lane_cols, after_step);
            };
            if constexpr (kSpreadFill) {
                const Plan plan;
                compute_s([&](int step) {
                    issue_k(Bool<true>{}, plan, {step, kDepth, has_next}, next);
                    issue_v(Bool<true>{}, plan, {step, kDepth, has_next}, next);
                });
            } else {
                compute_s([&](int step) {
                    if (step == kFillStep)
                        issue_whole();
                });
            }
            if constexpr (kKStages > 1)
                fill_commit();
            if constexpr (kParts > 1) {
                put_scores(smem, s);
                if constexpr (!kJoint) {
                    v_fill.store(v_smem);
                    fill_wait<kKStages - 1>();
                }
                team_sync();  // all of S is there; unless they are one stage, V is complete, and K is read
                add_scores(smem, s);
            }
            if constexpr (kSoftcap)
                cap_scores(s, p.softcap_rate);
            if constexpr (kBiasAhead)
                terms.template add<kMasked>(s, bias_words, tile);
            else if constexpr (kTerms && !kTermsFirst)
                terms.template apply<kMasked, true>(s, tile);
            if constexpr (kParts == 1 && !kJoint) {
                v_fill.store(v_smem);
                fill_wait<kKStages - 1>();
                team_sync();  // V is complete; K is read, so it is free
            }

            if constexpr (kMasked)
                mask_scores(s, p, place, place.first_row + warp_row, tile, lane);
            softmax_tile<kMayBeUnseen<kMasked>>(s, row, o, p.scale_log2);
            product_pv(o, s, dropped, tile, v_smem, lane_values, [&](int step) {
                if (!kVInK && kKStages == 1 && step == 0 && has_next)
                    issue_k(Bool<true>{}, Plan(), kWhole, next);
            });
            if constexpr (kVInK && kKStages == 1) {
                team_sync();  // V is read: the next K comes into its place
                if (has_next)
                    issue_k(Bool<true>{}, Plan(), kWhole, next);
            }
            if constexpr (kKStages == 1)
                fill_commit();
        };

        if constexpr (kWindow != Window::kNone) {
            // A single loop over the remaining tiles: a third loop after the two would take registers, which spill
            // elsewhere.
#pragma unroll 1
            for (; tile >= tiles.first; tile -= kTeams)
                if (tile >= tiles.unmasked || tile < tiles.plain)
                    visit(Bool<true>{});
                else
                    visit(Bool<false>{});
        } else {
#pragma unroll 1
            for (; tile >= max(tiles.unmasked, tiles.first); tile -= kTeams)
                visit(Bool<true>{});
#pragma unroll 1
            for (; tile >= tiles.first; tile -= kTeams)
                visit(Bool<false>{});
        }
    }
    if constexpr (kSplit)
        write_merged(p, place, o, row, smem, warp_row, lane);
    else
        write_rows_as<ValueTile>(p, place, o, row, smem, warp_row, lane);
}

extern "C" __global__ void __launch_bounds__(kThreads) fwd_sm80(const __grid_constant__ Params p)
{
    forward(p);
}
