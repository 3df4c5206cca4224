// fwd_sm80 d=128 dtype=bf16 causal=1 br=64 bc=64 warps=4 kstages=2 vstages=2 layout=swizzle q=reg fill=whole
// op=forward abi=2 rows=64 keys=64; fwd_sm80 role=main threads=128 smem=65536 blocks=row_tiles
// fwd_sm80: attention forward on SM 8.0 and newer. fp16 or bf16, mma m16n8k16, tiles filled by cp.async.
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
constexpr int kTeams = 1;          // groups of warps that share the rows and divide the keys
constexpr int kMaxSplits = 1;      // blocks that divide the keys of a row tile, at most
constexpr int kAppendThreads = 256;  // of a block that writes new keys and values
constexpr int kCombineWarps = 1;   // of a block of the combining kernel, a row each
constexpr int kKStages = 2;        // K tiles in shared memory
constexpr int kVStages = 2;        // V tiles in shared memory
constexpr bool kCausal = 1 == 1;  // query i sees keys <= i + seq_k - seq_q
constexpr bool kSwizzle = true;     // rows of a tile: 16-byte chunks permuted by row; else a chunk of padding after each
constexpr bool kQInRegisters = true;  // Q is read from shared memory once; else its fragments again for every tile
constexpr bool kSpreadFill = false;  // copies of the next tile: a share in each step of S = Q K^T; else all in one
constexpr bool kPagesTold = false;  // lanes that copy a row divide the look-ups of pages
constexpr int kGeneratorSmemBytes = 65536;

// ---- the element, the SM and the features: what a kernel lacks costs nothing -------------------------------------
constexpr bool kBf16 = true;        // elements are bf16; else fp16
constexpr bool kTuring = false;      // products are m16n8k8, tiles pass through registers
constexpr bool kWgmma = false;       // products are those of warpgroups

// Which members the parameters have (features/params.cuh).
#define FA2_BACKWARD     false  // those of the kernels of gradients
#define FA2_SCORE_PARAMS false  // those of softcap and window
#define FA2_FEATURES     false  // those of all other features

enum class Window { kNone, kSliding, kPrefix, kChunks };
enum class BiasKind { kNone, kFp16, kBf16, kFp32, kBool };
constexpr Window kWindow = Window::kNone;  // which keys a query sees beside the causal mask
constexpr BiasKind kBias = BiasKind::kNone;  // elements of a bias that is added to scores
constexpr bool kSoftcap = false;      // scores pass through a tanh
constexpr bool kAlibi = false;        // they get less the farther the key is
constexpr bool kSinks = false;        // the softmax has a column more
constexpr bool kDropout = false;      // some of P is 0
constexpr bool kVarlen = false;       // sequences are packed
constexpr bool kSeqused = false;      // device memory says how many keys each sequence has
constexpr bool kLeftpad = false;      // the first keys are padding
constexpr bool kLengths = kVarlen || kSeqused || kLeftpad;
constexpr bool kPaged = false;        // K and V lie in pages
constexpr bool kCacheRows = false;    // sequences name their rows of K and V
constexpr bool kAppend = false;       // new keys and values are written into K and V first
constexpr bool kRotary = false;       // new keys, and queries, are rotated before
constexpr bool kInterleaved = false;  // by pairs of neighbouring columns
constexpr int kRotaryDim = 0;     // columns that are rotated
constexpr bool kWide = false;         // a lane has eight neighbouring keys, to read their bias at once
constexpr bool kAlibiOffsets = false;  // terms of ALiBi that a row shares go into the softmax
constexpr bool kAlibiMma = false;      // slope times column comes with the product of Q and K

// ---- what follows from the variant -----------------------------------------------------------------------------
constexpr int kThreads = kWarps * 32;
constexpr int kTeamThreads = kThreads / kTeams;
constexpr int kRowTiles = kBr * kTeams * kParts / (16 * kWarps);  // m16 row tiles per warp
constexpr int kColTiles = kBc / 8;                                // n8 column tiles of S
constexpr int kUnit = 16 * kParts;                                // columns of a step of all warps that share rows
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

// A constant that a generic lambda takes as an argument.
template <bool kValue> struct Bool {
    static constexpr bool value = kValue;
};

__device__ __forceinline__ float minus_infinity()
{
    return __int_as_float(0xff800000);
}

// Of two types the first one if kFirst.
template <bool kFirst, class A, class B> struct Either {
    using Type = A;
};
template <class A, class B> struct Either<false, A, B> {
    using Type = B;
};

// ---- tiles in shared memory -----------------------------------------------------------------------
//
// A tile is [rows][kColumns] elements, addressed in chunks of 16 bytes (8 elements). A warp's
// ldmatrix reads one chunk of eight rows at a time, so these eight must lie in different banks, as must
// any eight consecutive chunks that a fill writes.
//
// Swizzle: chunk c of row r is stored at c ^ swizzle(r). Let p be the largest power of two, at most 8,
// that divides the chunks of a row. Rows r and r + 8 / p begin in the same banks; XOR with
// (r / (8 / p)) % p tells them apart, and permutes only within aligned groups of p chunks, so that
// eight consecutive chunks still cover every bank once.
// Padding: one chunk behind each row makes the pitch an odd number of chunks.

template <int kColumns> struct TileForm {
    static constexpr int kChunks = kColumns / 8;                                       // 16-byte chunks per row
    static constexpr int kPitch = (kSwizzle ? kChunks : kChunks + 1) * 16;             // bytes per row
    static constexpr int kPermuted = kChunks % 8 == 0 ? 8 : kChunks % 4 == 0 ? 4 : 2;  // p above
    static_assert(kColumns % 16 == 0, "fragments are 16 columns wide");

    // Depends on row % 8 only.
    static __device__ __forceinline__ int swizzle(int row)
    {
        return kSwizzle ? row / (8 / kPermuted) % kPermuted : 0;
    }

    // Byte offset of a chunk in its tile.
    static __device__ __forceinline__ uint32 chunk_offset(int row, int chunk)
    {
        return row * kPitch + (chunk ^ swizzle(row)) * 16;
    }

    // The same for a lane whose offset for chunk `odd` (0 or 1) of its row is known: chunk
    // 2 * pair + odd. pair is a constant after unrolling, so this is one XOR and one immediate.
    static __device__ __forceinline__ uint32 pair_offset(uint32 lane_offset, int pair)
    {
        const int chunk = 2 * pair;
        if constexpr (kSwizzle)
            return (lane_offset ^ (chunk % kPermuted * 16)) + chunk / kPermuted * kPermuted * 16;
        else
            return lane_offset + chunk * 16;
    }

    // Where a lane points ldmatrix.x4 for a 16x16 block: its quarters in the order top left, bottom
    // left, top right, bottom right (A; B of a transposed tile) ...
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

// Rows of the tensors: kHeadDimPadded columns.
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

// ---- the areas of shared memory -------------------------------------------------------------------
//
// Rows of V, and of O at the end. If V is the first columns of K, its tiles are those of K.
using ValueTile = TileForm<kVInK ? kHeadDimPadded : kHeadDimVPadded>;
constexpr int kQTileBytes = kBr * kPitch;
constexpr int kKvTileBytes = kBc * kPitch;
constexpr int kVTileBytes = kVInK ? 0 : kBc * ValueTile::kPitch;

// Offsets of the areas. Q in registers is read once, so its tile shares space with V.
constexpr int kQArea = kQInRegisters ? kTeams * kKStages * kKvTileBytes : 0;
constexpr int kKArea = kQInRegisters ? 0 : kQTileBytes;
constexpr int kVArea = kKArea + kTeams * kKStages * kKvTileBytes;
constexpr int kVBytes = kTeams * kVStages * kVTileBytes;
// What each warp has of S, in fp32, where warps divide columns (sum_scores.cuh).
constexpr int kSumArea = kVArea + (kQInRegisters && kQTileBytes > kVBytes ? kQTileBytes : kVBytes);
constexpr int kTileBytes = kSumArea + (kParts > 1 ? kTeams * kParts * kBr * kBc * 4 : 0);
// Afterwards the teams' results: rows of O in fp32 (epilogue_partial.cuh), maxima and sums.
constexpr int kMergeBytes = kTeams * kBr * (kHeadDimV * 4 + (160 - kHeadDimV * 4 % 128) % 128 + 8);
constexpr int kSmemBytes = kSplit && kMergeBytes > kTileBytes ? kMergeBytes : kTileBytes;
static_assert(kSmemBytes == kGeneratorSmemBytes, "the generator computed another size");

// Where keys are divided, short kernels wait for memory once: Q passes through the one V tile of the first team that no
// copy is on its way to yet, so that the others are on theirs before it is read.
constexpr bool kQBehind = kSplit && kQInRegisters && kJoint && kQTileBytes <= kVTileBytes;

// Where a tile of K or V lies while it is in shared memory. A team's tiles are kTeams apart.
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

// ---- softcap: scores stay between -softcap and softcap ------------------------------------------------
//
// s = softcap * tanh(softmax_scale / softcap * (q k)). The factor before the tanh is p.softcap_rate; the one
// after it is that of the exponent: the host sets p.scale_log2 to softcap * log2(e).

// One instruction; its error is at most 2^-11 of the result (PTX ISA).
__device__ __forceinline__ float tanh_approx(float x)
{
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Tiles of products become the tanh.
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

// How fast the score grows with the product, over softmax_scale; t: the tanh.
__device__ __forceinline__ float cap_slope(float t)
{
    return fmaf(-t, t, 1.0f);
}

// ---- parameters ---------------------------------------------------------------------------------------------------
//
// Lists of members (params.def) are expanded with FA2I_MEMBER; with FA2I_CONSTANT where a kernel has no such
// parameters: constants of the same names, so that text which is compiled out still has types.
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

// The parameters of features, which all kernels with a feature have.
#define FA2I_PARAM FA2I_MEMBER
struct FeatureParams {
/*
 * What kernels with features are given beside their operation's parameters, member by member: a struct at
 * the end of both operations' parameter blocks, of the runtime and of the templates. Plain C preprocessor
 * text, without template lines. A launch passes as many bytes as a kernel declares, so new members go to
 * the end; what a problem does not ask for is 0.
 *
 * kind: as in forward/params.def; INT64; INT64S: 64-bit integers in device memory; STEPS: three 32-bit integers, from
 *       page to page, from row to row, and the bytes that both count
 */
/* alibi: the slope of head h in batch b is alibi_slopes[b * alibi_stride + h]. */
FA2I_PARAM(FLOATS, alibi_slopes)
FA2I_PARAM(INT64, alibi_stride)
/* sinks: [Hq] */
FA2I_PARAM(FLOATS, sinks)
/* Terms that are added to scores, in the units of q k: divided by the scale. */
FA2I_PARAM(FLOAT, inverse_scale)
/* seqused, varlen or leftpad, in a kernel that divides keys: blocks of a key head (features/shares.cuh) */
FA2I_PARAM(INT, slots)
/* seqused: [B], keys of each sequence, of which seq_k at most are there */
FA2I_PARAM(INTS, seqused_k)
/* bias: of query i and key j of head h in batch b, at the sum of each times its stride, in elements. */
FA2I_PARAM(INPUT, bias)
FA2I_PARAM(INT64, bias_batch)
FA2I_PARAM(INT64, bias_head)
FA2I_PARAM(INT64, bias_query)
FA2I_PARAM(INT64, bias_key)
/* dropout: an element is kept if its byte is at least a threshold, or the next one, and multiplied by keep_scale. */
FA2I_PARAM(INT64, seed)
FA2I_PARAM(INT64, offset)
FA2I_PARAM(INT64S, seed_at)   /* the seed, or null */
FA2I_PARAM(INT64S, offset_at) /* added to the offset, or null */
FA2I_PARAM(INT, drop_bound)   /* 1 - 1024 - threshold, twice in fp16 */
FA2I_PARAM(INT, drop_part)    /* of 2^32 choices, those of the next threshold; unsigned */
FA2I_PARAM(FLOAT, keep_scale)
FA2I_PARAM(INT, bias_side) /* bias: neighbours that can be read at once: 1, 2 or 8 */
FA2I_PARAM(FLOATS, dsinks) /* backward: [Hq], written; or null: not wanted */
/* varlen: [B + 1], sequence b has rows cu_seqlens[b] ... cu_seqlens[b + 1] - 1 of the packed tensors. */
FA2I_PARAM(INTS, cu_seqlens_q)
FA2I_PARAM(INTS, cu_seqlens_k)
FA2I_PARAM(INT, total_q) /* rows of packed Q and O */
FA2I_PARAM(INT, total_k) /* rows of packed K and V */
/* paged: page j of sequence b is block_table[b * table_stride + j], one of so many. */
FA2I_PARAM(INTS, block_table)
FA2I_PARAM(INT64, table_stride)
FA2I_PARAM(INT, pages)
FA2I_PARAM(INT, page_shift) /* a page has 2^page_shift rows */
/* leftpad: [B], keys of each sequence that are padding; cache_rows: [B], its row of K and V, one of so many. */
FA2I_PARAM(INTS, leftpad)
FA2I_PARAM(INTS, cache_rows)
FA2I_PARAM(INT, cache_row_count)
/* append: [B, new_count, Hkv, D], or packed as Q is (new_count is 0 then), to be written into K and V */
FA2I_PARAM(INT, new_count)
FA2I_PARAM(INPUT, new_k)
FA2I_PARAM(INPUT, new_v)
FA2I_PARAM(STRIDES, new_k_stride)
FA2I_PARAM(STRIDES, new_v_stride)
/* rotary: [rotary_rows, rotary_dim / 2]; Q as the caller has it */
FA2I_PARAM(INPUT, rotary_cos)
FA2I_PARAM(INPUT, rotary_sin)
FA2I_PARAM(INPUT, raw_q)
FA2I_PARAM(STRIDES, raw_q_stride)
FA2I_PARAM(INT, rotary_rows)
FA2I_PARAM(INT, reserved) /* whole 8 bytes */
/* backward, a bias with a gradient: of query i and key j of head h in batch b, at the sum of each times its stride,
 * in elements */
FA2I_PARAM(FLOATS, dbias)
FA2I_PARAM(INT64, dbias_batch)
FA2I_PARAM(INT64, dbias_head)
FA2I_PARAM(INT64, dbias_query)
FA2I_PARAM(INT64, dbias_key)
/* paged: row r of page j begins (j * page + r * row) * bytes behind the first one, of K and of V. */
FA2I_PARAM(STEPS, k_steps)
FA2I_PARAM(STEPS, v_steps)
};

// One flat struct: with parts as bases, ptxas chooses other registers (gate.py).
#if FA2_SCORE_PARAMS
#define FA2I_FEATURE_PARAM FA2I_MEMBER
#else
#define FA2I_FEATURE_PARAM FA2I_CONSTANT
#endif
struct Params {
#if FA2_BACKWARD
/*
 * The parameter block of the backward kernels, member by member: the runtime's struct and the templates'
 * are both made from this list. Plain C preprocessor text, without template lines. Kinds, and how it may
 * grow: templates/forward/params.def. Dv: columns of V, O and their gradients.
 *
 * FA2I_PARAM(kind, name)           every kernel's: ABI 1, 320 bytes
 * FA2I_FEATURE_PARAM(kind, name)   behind them, of kernels with a feature
 */
FA2I_PARAM(INPUT, q)    /* [B, Sq, Hq, D] */
FA2I_PARAM(INPUT, k)    /* [B, Sk, Hkv, D] */
FA2I_PARAM(INPUT, v)    /* [B, Sk, Hkv, Dv] */
FA2I_PARAM(INPUT, o)    /* [B, Sq, Hq, Dv], what forward gave */
FA2I_PARAM(INPUT, d_o)  /* [B, Sq, Hq, Dv] */
FA2I_PARAM(OUTPUT, dq)  /* [B, Sq, Hq, D]; or null: not wanted */
FA2I_PARAM(OUTPUT, dk)  /* [B, Sk, Hkv, D]; or null */
FA2I_PARAM(OUTPUT, dv)  /* [B, Sk, Hkv, Dv]; or null */
FA2I_PARAM(FLOATS, lse) /* [B, Hq, Sq], natural logarithm, what forward gave */
/* Workspace, behind parts of dK and dV where splits > 1: [2] planes of [B, Hq, q_tiles * Br], LSE in log2 units
 * and delta. */
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
FA2I_PARAM(FLOAT, scale)      /* softmax scale: of dQ and dK */
FA2I_PARAM(FLOAT, scale_log2) /* log2(e) * that, or * the softcap: of scores in the exponent */
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
/* window: query i sees the keys p - window_left ... p + window_right, p = i + seq_k - seq_q. Unbounded is
 * 2^30; causal is a window_right of 0. */
FA2I_FEATURE_PARAM(INT, window_left)
FA2I_FEATURE_PARAM(INT, window_right)
FA2I_FEATURE_PARAM(INT, reserved_feature) /* whole 16 bytes */
#else
/*
 * The parameter block of the forward kernels, member by member: the runtime's struct and the templates'
 * are both made from this list. Plain C preprocessor text, without template lines.
 *
 * FA2I_PARAM(kind, name)           every kernel's: ABI 2, 192 bytes that never change, so that kernels of
 *                                  older databases go on working
 * FA2I_FEATURE_PARAM(kind, name)   behind them, of kernels with a feature; a launch passes as many bytes
 *                                  as a kernel declares, so new ones go to the end
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
FA2I_PARAM(FLOAT, scale)      /* of scores in the exponent: the softmax scale, or the softcap */
FA2I_PARAM(FLOAT, scale_log2) /* scale * log2(e): exp(scale * s) = exp2(scale_log2 * s) */
FA2I_PARAM(INT, seq_q)
FA2I_PARAM(INT, seq_k)
FA2I_PARAM(INT, heads_q)
FA2I_PARAM(INT, group)   /* query heads per key/value head */
FA2I_PARAM(INT, q_tiles) /* row tiles: ceil(rows / rows of a block) */
FA2I_PARAM(INT, splits)  /* blocks that divide the keys of a row tile; 1 unless the family splits */
FA2I_PARAM(INT, batch)
FA2I_PARAM(INT, reserved)
FA2I_PARAM(FLOATS, partial)     /* [splits, B, Hq, Sq, D], each normalised; used when splits > 1 */
FA2I_PARAM(FLOATS, partial_lse) /* [splits, B, Hq, Sq] */

/* softcap: scores in the exponent are softcap * tanh(softcap_rate * (q k)). */
FA2I_FEATURE_PARAM(FLOAT, softcap_rate) /* softmax scale / softcap */
/* window: query i sees the keys p - window_left ... p + window_right, p = i + seq_k - seq_q. Unbounded is
 * 2^30; causal is a window_right of 0. */
FA2I_FEATURE_PARAM(INT, window_left)
FA2I_FEATURE_PARAM(INT, window_right)
FA2I_FEATURE_PARAM(INT, reserved_feature) /* whole 16 bytes */
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

// ---- products of warps, and the conversions around them ----------------------------------------------------
//
// SM 7.5 (kTuring) has no m16n8k16, no bf16 and no packed conversion.

// c += a b: a is 16x8 row-major, b is 8x8 column-major, fp32 accumulation.
__device__ __forceinline__ void mma_k8(float (&c)[4], uint32 a0, uint32 a1, uint32 b0)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(b0));
}

// c += a b: a is 16x16 row-major, b is 16x8 column-major, fp32 accumulation. SM 7.5 does it in two halves, on the
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

// c = a b + from, of bytes: a is 16x16 row-major, of which this lane has a word of either half's row, b is 16x8
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

// Two elements in one register, rounded to nearest even; lo in the lower half.
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

// Both fp16 numbers of a register.
__device__ __forceinline__ float2 unpack_fp16(uint32 x)
{
    float2 y;
    asm("{\n\t.reg .b16 l, h;\n\t"
        "mov.b32 {l, h}, %2;\n\tcvt.f32.f16 %0, l;\n\tcvt.f32.f16 %1, h;\n\t}"
        : "=f"(y.x), "=f"(y.y)
        : "r"(x));
    return y;
}

// Both elements of a register.
__device__ __forceinline__ float2 unpack2(uint32 x)
{
    if constexpr (kBf16)
        return {__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)};
    else
        return unpack_fp16(x);
}

// ---- one function per PTX instruction: SM 7.5 and newer -------------------------------------------

// threadIdx.x, read again at each call: what is computed from it is not kept in registers.
__device__ __forceinline__ int thread_index()
{
    int index;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
    return index;
}

// Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void ldmatrix_x4(uint32 (&r)[4], uint32 smem)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem)
                 : "memory");
}

// The same, each matrix transposed on the way.
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

// 2^x; 0 for -infinity.
__device__ __forceinline__ float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Barrier `id` (0 is __syncthreads) for `threads` threads, whole warps.
__device__ __forceinline__ void named_barrier(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// A counter in memory goes up by one; what it was.
__device__ __forceinline__ uint32 take_ticket(uint32 *gmem)
{
    uint32 ticket;
    asm volatile("atom.global.add.u32 %0, [%1], 1;" : "=r"(ticket) : "l"(gmem) : "memory");
    return ticket;
}

// The same; whoever sees it finds what this thread did before, and what barriers brought to it, done.
__device__ __forceinline__ void count_up(uint32 *gmem)
{
    asm volatile("fence.acq_rel.gpu;\n\tred.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(gmem) : "memory");
}

// What other blocks have counted; past the L1 cache.
__device__ __forceinline__ uint32 load_counter(const uint32 *gmem)
{
    uint32 x;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(gmem) : "memory");
    return x;
}

// One number, or four that lie side by side, added in memory; nothing comes back. Four need SM 9.0.
__device__ __forceinline__ void add_global_4(float *gmem, float x)
{
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(gmem), "f"(x) : "memory");
}

__device__ __forceinline__ void add_global_16(float *gmem, const float (&x)[4])
{
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(gmem), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
}

// ---- dropout: some of P is 0, the rest is larger ---------------------------------------------------------------
//
// Whether an element is kept is a function of seed, offset, batch, head, row and column alone
// (runtime/ops/dropout.h): a row has a key of sixteen bytes, two neighbouring columns have one, made by Philox, and the
// product of both keys, as the tensor cores compute it, has a byte for either column. An element is kept if its byte is
// not below a threshold. So a lane calls Philox once for 32 rows or 64 columns, and not for each sixteen elements.
// A byte has 256 values only, so a part of the elements has the next threshold. No loop over keys asks which ones.

// Both halves of a product in one instruction: to the upper half of one in C++ ptxas adds 0.
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

// A constant in a register of its own for each i: of constants that it knows ptxas makes copies, for each use of them.
__device__ __forceinline__ uint32 opaque(uint32 x, int i)
{
    return x + (thread_index() >> (10 + i));
}

// For two neighbours, whose bytes the selector takes from x and y, 0x64 behind each: 1 or 0 in fp16. A byte behind 0x64
// is 1024 more in fp16; bound, twice 1 - 1024 - threshold, makes that at least 1 or at most 0. On the units of fp16,
// which have little to do here, while all that is done to bits shares another one.
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

// The bound of keep_pair. word: the last of the key of the first of 32 rows; rows: which of four pairs of each eight;
// column: of eight. The next threshold's bound is 1 less: from 1024 on numbers of fp16 are 1 apart.
__device__ __forceinline__ uint32 choose_bound(const FeatureParams &f, uint32 word, int rows, int column)
{
    const uint32 bound = f.drop_bound, next = max(bound + 0x10001u, 0xe400e400u);
    return word + (((column ^ rows * 2) * 4 + rows) << 27) < uint32(f.drop_part) ? next : bound;
}

// Two bounds: of two neighbouring columns, the first of which is even.
__device__ __forceinline__ uint32 choose_bounds(const FeatureParams &f, uint32 word, int rows, int column)
{
    return __byte_perm(choose_bound(f, word, rows, column), choose_bound(f, word, rows, column + 1), 0x5410);
}

// Two elements of P times what keep_pair says.
__device__ __forceinline__ uint32 keep_elements(uint32 p, uint32 keep)
{
    uint32 kept;
    if constexpr (kBf16)  // 1 in fp16 is 2^-7 in bf16
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(kept) : "r"(p), "r"(keep), "r"(0x80008000u));
    else
        asm("mul.f16x2 %0, %1, %2;" : "=r"(kept) : "r"(p), "r"(keep));
    return kept;
}

// What is kept of P is multiplied by this at the end: in bf16 its elements are 2^-7 of what they would be.
__device__ __forceinline__ float keep_scale(const Params &p)
{
    return kBf16 ? p.features.keep_scale * 128.0f : p.features.keep_scale;
}

// 1 or 0 of two neighbours in fp32.
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

// x: the counter's four words, and what Philox makes of them in seven rounds.
__device__ __forceinline__ void philox(uint32 (&x)[4], const DropoutSeed &seed, uint32 index, uint32 of)
{
    x[0] = seed.offset[0];
    x[1] = seed.offset[1];
    x[2] = index;
    x[3] = of;
#pragma unroll
    for (int round = 0; round < 7; round++) {
        uint32 a[2], b[2];  // lower and upper half of the round's two products
        multiply(x[0], kPhilox[0], a[0], a[1]);
        multiply(x[2], kPhilox[1], b[0], b[1]);
        x[0] = b[1] ^ x[1] ^ seed.key(0, round);
        x[1] = b[0];
        x[2] = a[1] ^ x[3] ^ seed.key(1, round);
        x[3] = a[0];
    }
}

// Of rows 32 * rows32 + 8 * n + g, g = lane / 4, the word t = lane % 4 of their keys. plane: batch * heads + head. The
// first byte of a key is odd.
__device__ __forceinline__ void row_keys(uint32 (&x)[4], const DropoutSeed &seed, int plane, int rows32, int lane)
{
    philox(x, seed, rows32 * 32 + lane, plane);
#pragma unroll
    for (int n = 0; n < 4; n++)
        x[n] |= lane % 4 == 0;
}

// The same of pairs of columns 32 * pairs32 + 8 * n + pair. Their second byte is odd.
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

// The last word of the first row's key, of 32 rows that a warp has made keys of.
__device__ __forceinline__ uint32 word_of_rows(const uint32 (&x)[4])
{
    return __shfl_sync(0xffffffffu, x[0], 3);
}

// Of sixteen rows' keys what products take: of rows g and g + 8. sixteen: which ones. Returns word_of_rows.
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

// Of eight pairs of columns the one whose key this lane has where rows are queries: the products of pairs 2 t and
// 2 t + 1 come to lanes that have columns 2 t, 2 t + 1 of either half of sixteen.
__device__ __forceinline__ int lane_pair(int lane)
{
    const int g = lane / 4;
    return g % 2 * 4 + g / 2;
}

// ---- cache rows: which row of K and V a sequence has -----------------------------------------------------
//
// A number that is no row's counts as the last one's.

__device__ __forceinline__ int cache_row_of(const Params &p, int batch)
{
    return min(uint32(__ldg(p.features.cache_rows + batch)), p.features.cache_row_count - 1u);
}

// x, kept between two bounds.
__device__ __forceinline__ int between(int least, int x, int most)
{
    return max(least, min(x, most));
}

// ---- append: new keys and values, which are written into the cache before attention -----------------------

// The keys that a sequence with room for so many has before its new ones come; padding counts among them.
__device__ __forceinline__ int keys_before(const Params &p, int batch, int room, int new_count)
{
    if constexpr (kSeqused)
        return between(0, __ldg(p.features.seqused_k + batch), room);
    else
        return max(0, room - new_count);
}

// ---- lengths: what device memory says of a sequence ------------------------------------------------------
//
// Whatever stands there, a sequence is kept within the tensors.

// Keys of a sequence, with those that come in this call.
__device__ __forceinline__ int keys_used(const Params &p, int batch)
{
    if constexpr (kAppend)
        return min(keys_before(p, batch, p.seq_k, p.features.new_count) + p.features.new_count, p.seq_k);
    else
        return between(0, __ldg(p.features.seqused_k + batch), p.seq_k);
}

// Rows of a packed sequence that begins with row `first`: none where it ends before. The end is kept within the tensor
// before anything is taken off it, as it may be any number.
__device__ __forceinline__ int rows_between(int first, int end, int total, int most)
{
    return between(0, between(0, end, total) - first, most);
}

// The keys of a sequence. first_k: its keys begin with this row of its row of K and V.
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

// Of a packed sequence also its queries, and its rows of the packed tensors, which begin with first_q and first_k.
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

// before: keys that it has before the new ones come, which are as many as its queries.
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

// The last sequence whose first(sequence) is at most `at`, if they do not fall; some sequence if they do. By the
// lanes of a warp together, which look at 32 sequences at a time.
template <class First> __device__ __forceinline__ int last_sequence(const Params &p, int at, First first)
{
    int low = 0, count = p.batch;  // it is one of so many
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

// Tiles of `rows` rows of all sequences are numbered: those of sequence b begin here. So each has room for its
// rows, wherever they begin, and at most one tile too many: blocks come in proportion to rows, without a table.
__device__ __forceinline__ int first_tile(const int *cu_seqlens, int total, int rows, int batch)
{
    return between(0, __ldg(cu_seqlens + batch), total) / rows + batch;
}

__device__ __forceinline__ int sequence_of_row(const Params &p, int packed_row)
{
    return last_sequence(p, packed_row, [&](int b) { return __ldg(p.features.cu_seqlens_q + b); });
}

// Calls clear(row, part) for each of the parts of rows that no sequence has: rows before the first bound and from the
// last one on. A block of kBlock threads looks at rows first ... end - 1 of a packed tensor. Tile n of a head looks at
// rows n * kRows ... : there are numbers enough, one more than whole tiles at least (first_tile).
template <int kBlock, class Clear>
__device__ __forceinline__ void clear_unused(const int *cu_seqlens, int batch, int total, int64 first, int64 end,
                                             int parts, Clear clear)
{
    const int used_from = __ldg(cu_seqlens), used_to = __ldg(cu_seqlens + batch);
    end = min(end, int64(total));
    if (first >= end || (first >= used_from && end <= used_to))
        return;                                  // nearly always
    const int count = int(end - first) * parts;  // a block's few rows: no 64-bit division, which would branch
    for (int i = threadIdx.x; i < count; i += kBlock) {
        const int row = int(first) + i / parts;
        if (row < used_from || row >= used_to)
            clear(row, i % parts);
    }
}

// ---- shares: the keys of sequences of different lengths, divided among blocks ------------------------------
//
// A step is what the teams of a block take at a time. The steps of all row tiles, of a key head, are divided by
// p.splits: no share has more, so that long sequences have many shares and short ones one. A block has one
// share; its number, its slot, counts the sequences' row tiles, and the shares of each. Every warp works this
// out for itself, 32 sequences at a time: there is nothing to prepare, and nothing that a launch leaves behind.

constexpr int kStepKeys = kBc * kTeams;

__device__ __forceinline__ int ceil_div(int a, int b)
{
    return a / b + (a % b > 0);
}

// Of a sequence.
struct SequenceWork {
    int row_tiles, steps;

    __device__ __forceinline__ SequenceWork(const Params &p, int batch)
    {
        const Sequence sequence(p, batch);
        int keys = sequence.seq_k;
        row_tiles = ceil_div((kVarlen ? sequence.seq_q : p.seq_q) * p.group, kBr);
        if constexpr (kWindow == Window::kSliding || kWindow == Window::kChunks) {
            // What the rows of a tile see, wherever they stand.
            const int64 seen = int64(p.window_left) + p.window_right + kBr + kStepKeys;
            keys = min(int64(keys), seen);
        }
        steps = ceil_div(keys, kStepKeys);
    }
};

class Shares
{
    int most;  // steps of a share

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

    // Of a row tile: at least one, and no more than the combining kernel has room for.
    __device__ __forceinline__ int count(const SequenceWork &work) const
    {
        const int share = max(most, ceil_div(work.steps, kMaxSplits));
        return max(1, ceil_div(work.steps, share));
    }
};

// Blocks of a key head whose results are combined. Their row tiles have more than `most` steps each, and all row tiles
// have p.splits * most at most: there are fewer such tiles than p.splits, and fewer such blocks than twice as many.
__device__ __forceinline__ int part_slots(const Params &p)
{
    return min(p.features.slots, 2 * p.splits);
}

// The slots of one sequence.
struct Slots {
    int batch;       // -1: there are no more sequences
    int first;       // of its slots
    int shares;      // of each of its row tiles
    int first_part;  // of its blocks, among those whose results are combined, where sequences are packed

    // stop(batch, end): whether this is the sequence that is looked for; end: the slot behind its last one.
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

// ---- where a block works --------------------------------------------------------------------------------------

// What a kernel keeps of the sequence, and of the row of K and V that it names, if it has such. A member more, though
// nothing reads it, may give ptxas other registers.
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

// The sequence of a block.
struct SequencePlace : Either<kLengths, KeptSequence, NoSequence>::Type,
                       Either<kCacheRows, KeptCacheRow, NoCacheRow>::Type {
    int batch;  // -1: there is nothing to do

    __device__ __forceinline__ int seq_q(const Params &p) const
    {
        return kVarlen ? sequence.seq_q : p.seq_q;
    }

    __device__ __forceinline__ int seq_k(const Params &p) const
    {
        return kLengths ? sequence.seq_k : p.seq_k;
    }

    // The batch of K and V.
    __device__ __forceinline__ int key_batch() const
    {
        return kCacheRows ? cache_row : batch;
    }

    __device__ __forceinline__ int64 slot() const
    {
        return 0;
    }

    // Keys of its row of K and V, or of its pages, that are before the sequence's first one.
    __device__ __forceinline__ int padding() const
    {
        return kLeftpad ? sequence.first_k : 0;
    }
};

// The work of a block, a block for each: a row tile, and the head of all batches, or the split, key head and batch.
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

// kBr query rows of one head.
struct RowsOfHead : SequencePlace {
    int first_row, rows;  // of the block; of the tensor
    int head;
    static constexpr int split = 0, part = -1;

    // Heavy tiles first when causal: the last rows see the most keys. In a window all see as many, but for
    // the first ones.
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

    // Position in the sequence of a row: what the causal mask compares.
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

    // Blocks that divide the keys of its rows.
    __device__ __forceinline__ int splits(const Params &) const
    {
        return 1;
    }

    // Rows of O that are no sequence's become 0, and LSE of them -infinity. By all threads of a block.
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

// kBr packed rows, and a part of the keys if blocks divide them (kSplit). The query heads that share a key head are
// rows of one matrix: row = query * group + head in the group, so that K and V are read once for all of them. The
// visible tiles of a row tile are divided among p.splits blocks; those of sequences with lengths of their own as
// features/shares.cuh says.
struct RowsOfGroup : SequencePlace {
    int first_row, rows;  // of the block; there are
    int split, key_head;
    int own_splits;  // blocks that divide the keys of the row tile, where sequences have lengths of their own
    int part;        // where this one's part goes, where they are packed; -1: it writes O

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
                first_row = (kCausal ? p.q_tiles - 1 - tile : tile) * kBr;  // heavy ones first
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

    // Position in the sequence of a row: what the causal mask compares.
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

    // The slot that its part goes to, if other blocks have keys of its rows.
    __device__ __forceinline__ int64 slot() const
    {
        return kVarlen ? int64(part) : int64(blockIdx.x);
    }

    // Queries that are no sequence's: rows of O become 0, and LSE of them -infinity. By all threads of a block.
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

// What P is without dropout.
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

// What is kept of this lane's elements of P, 16 columns at a time.
struct PhiloxDropout {
    const Params &p;
    const DropoutSeed seed;
    const int lane;
    const uint32 exponents;
    uint32 rows[kRowTiles][2];                 // words of the keys of rows g, g + 8
    uint32 columns[4];                         // and of four times eight pairs of columns
    uint32 numbers[kRowTiles][4];              // of sixteen columns: [half of rows][half of columns]
    uint32 bounds[kSplit ? kRowTiles : 1][2];  // of keep_pair, for rows g, g + 8; bounds[0][0] for all unless kSplit
    static_assert(kSplit || kRowTiles <= 2, "a warp's rows are in 32 that choose thresholds together");

    // first_row: of this warp.
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

    // Columns from 16 * step on of the tile come next.
    __device__ __forceinline__ void begin_step(int tile, int step)
    {
        const int sixteen = tile * (kBc / 16) + step;
        if (step == 0 || sixteen % 4 == 0)
            column_keys(columns, seed, sixteen / 4, lane_pair(lane), lane % 4);
        multiply_by(kBc % 64 == 0 ? columns[step % 4] : one_of(columns, sixteen % 4));
    }

    // word: of this lane's pair of the sixteen columns that come next.
    __device__ __forceinline__ void multiply_by(uint32 word)
    {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
            mma_bytes(numbers[m], rows[m][0], rows[m][1], word, {0, 0, 0, 0});
    }

    // What two elements, of half h of row tile m, in the columns' half n, are multiplied by.
    __device__ __forceinline__ uint32 keep(int m, int h, int n) const
    {
        return keep_pair(numbers[m][2 * h + n], exponents, 0x4140, kSplit ? bounds[m][h] : bounds[0][0]);
    }

    // What is left of these two elements.
    __device__ __forceinline__ uint32 apply(uint32 elements, int m, int h, int n) const
    {
        return keep_elements(elements, keep(m, h, n));
    }
};

using Dropout = Either<kDropout, PhiloxDropout, NoDropout>::Type;

// What O is multiplied by at the end.
__device__ __forceinline__ float kept_scale(const Params &p)
{
    return kDropout ? keep_scale(p) : 1.0f;
}

// ---- warps that share rows -------------------------------------------------------------------------------
//
// kParts warps, one after the other, have the same rows: of Q and K each multiplies every kParts-th 16 columns, and
// of O each computes every kParts-th 16 columns. Between the products all add up what they have of S, in an
// order that gives each the same; softmax, masks and features are as in a warp that has rows for itself.
// Warpgroups that share rows each compute S of all keys, and their columns of O: they exchange no S.

__device__ __forceinline__ int own_part()
{
    if constexpr (kParts == 1)
        return 0;
    else if constexpr (kWgmma)
        return threadIdx.x / 128;
    else
        return threadIdx.x / 32 % kParts;
}

// Which chunk of a row of O this warp's column tile n is.
__device__ __forceinline__ int own_chunk(int n)
{
    if constexpr (kParts == 1)
        return n;
    else if constexpr (kWgmma)
        return own_part() * kOutTiles + n;
    else
        return (n / 2 * kParts + own_part()) * 2 + n % 2;
}

// ---- bias: a number for each query and key, or a mask ------------------------------------------------------

// Whether it is numbers, of 16 bits.
constexpr bool kBiasNumbers = kBias != BiasKind::kNone && kBias != BiasKind::kBool;
constexpr bool kBiasHalf = kBias == BiasKind::kFp16 || kBias == BiasKind::kBf16;

// An element, and two neighbours that are loaded together.
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

// What is added to a score, before it is divided by the scale.
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

// Numbers that are added to scores may hide keys: -infinity, -1e9 and their like. A row's maximum begins with the least
// score that counts, and does not fall below: P of hidden keys is 0 then, also where a row has no others (fa2.h).
// Scores so far from 0 still tell keys apart, to 1/16.
constexpr float kLeastScore = -0x1p19f;  // scaled, with all that is added

// The maximum of a row that has seen no key, in the units of q k.
__device__ __forceinline__ float least_maximum(const Params &p)
{
    if constexpr (kBiasNumbers)
        return kLeastScore * p.features.inverse_scale;
    else
        return minus_infinity();
}

// ---- sinks: one column more, without a value ------------------------------------------------------------

// How a row ends whose columns gave this maximum, of scores times scale, and this sum, 0 if no key was visible: what O
// is multiplied by, and LSE. sink may be -infinity.
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

// ---- fragments and the online softmax ---------------------------------------------------------------
//
// Fragments (PTX ISA, mma.m16n8k16), lane = 4 * quad_row + quad_lane: an accumulator holds, of a 16x8
// tile, row quad_row columns 2 * quad_lane, + 1 in c[0], c[1] and row quad_row + 8 in c[2], c[3]. Two
// neighbouring accumulator tiles of S are laid out like one 16x16 A fragment: P goes into the second
// product without leaving its lane. A row is shared by the four lanes of a quad.

// Rescale O only when a row's maximum has grown by more than this, in log2 units: the row keeps a stale
// maximum, P stays below 2^8 and far from overflow in fp16, and nearly all rescaling is skipped
// (as in FlashAttention-4). Where P is made by the maxima so far it may be larger: hopper/guess.cuh.
constexpr float kLazyRescale = 8.0f;

// Per row of this lane; [row tile][rows quad_row, quad_row + 8].
struct RowSums {
    float max[kRowTiles][2];  // of raw scores, possibly stale; least_maximum() before the first visible key
    float sum[kRowTiles][2];  // of this lane's columns only; reduced over the quad at the end
};

struct RowSumsAndSink : RowSums {
    float sink;  // of the head: read early, because a row would wait for it at its end
};

// A member more, though nothing reads it, may give ptxas other registers.
using RowState = Either<kSinks && kWgmma, RowSumsAndSink, RowSums>::Type;

// How a row begins: it has seen no key.
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

// How a row ends, all of its columns seen: what O is multiplied by, and LSE. sum is 0 if no key was visible.
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

// Whether some rows may have seen no key yet: their maximum is -infinity, as numbers of a bias do not let it be.
template <bool kMasked> constexpr bool kMayBeUnseen = !kBiasNumbers && (kBias == BiasKind::kBool || kMasked);

// Maxima of this lane's columns. True if one has grown so much that O has to be rescaled. offset: what has to be added
// to all scores of a row, if kOffsets.
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

// A row takes the maximum of all of its columns, tile_max being this lane's. Returns what its sum and O are to be
// multiplied by.
template <bool kUnseen>
__device__ __forceinline__ float raise_maximum(float &row_max, float &tile_max, float scale_log2)
{
    tile_max = fmaxf(row_max, quad_max(tile_max));
    // -infinity minus itself: no key yet, nothing to rescale.
    const bool none = kUnseen && tile_max == minus_infinity();
    const float alpha = none ? 1.0f : exp2_approx((row_max - tile_max) * scale_log2);
    row_max = tile_max;
    return alpha;
}

// S becomes P = 2^(scale_log2 * (S - max)); the sums grow.
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

// On mma.sync: S becomes P, the sums grow, and O is rescaled if a maximum has grown enough. kUnseen: some rows may have
// seen no key yet.
template <bool kUnseen>
__device__ __forceinline__ void softmax_tile(float (&s)[kRowTiles][kColTiles][4], RowState &row,
                                             float (&o)[kRowTiles][kOutTiles][4], float scale_log2)
{
    constexpr float kNoOffset[kRowTiles][2] = {};
    float tile_max[kRowTiles][2];  // of this lane's columns, until a row needs it
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

// On wgmma: what O is to be multiplied by, once the product that adds to it is done.
struct Rescale {
    float by[kRowTiles][2];
    bool wanted;  // by any row of the warp; by is not set otherwise

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

// The same, but what this means to O is returned. offset: what has to be added to all scores of a row, if kOffsets.
template <bool kUnseen, bool kOffsets = true>
__device__ __forceinline__ Rescale softmax_tile(float (&s)[kRowTiles][kColTiles][4], RowState &row, float scale_log2,
                                                const float (&offset)[kRowTiles][2])
{
    Rescale rescale;
    float tile_max[kRowTiles][2];  // of this lane's columns, until a row needs it
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

template <class Row> __device__ __forceinline__ float sink_of(const Params &p, const BlockPlace &place, const Row &row)
{
    if constexpr (kWgmma)
        return row.sink;
    else
        return p.features.sinks[place.query_head(p, 0)];
}

// Normalise O and put it into shared memory; write LSE. warp_row: this warp's first row in the block. address(r, n): of
// the chunk of row r of the warp that column tile n is.
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

// Form: of rows of O in shared memory. 16 bytes per lane are written, through this warp's rows.
template <class Form>
__device__ __forceinline__ void write_rows_as(const Params &p, const BlockPlace &place,
                                              const float (&o)[kRowTiles][kOutTiles][4], const RowState &row,
                                              uint32 smem, int warp_row, int lane)
{
    if constexpr (kQInRegisters)
        __syncthreads();  // every warp has read its last K and V before O comes into their place
    else
        __syncwarp();  // the rows are this warp's own: its loads of Q before O comes into their place
    const uint32 o_smem = smem + (kQInRegisters ? 0 : kQArea) + warp_row * kPitch;
    constexpr int kWarpRows = 16 * kRowTiles;
    normalise_rows(p, place, o, row, warp_row, lane,
                   [&](int r, int n) { return o_smem + Form::chunk_offset(r, own_chunk(n)); });
    if constexpr (kParts > 1)
        __syncthreads();  // columns of a row are several warps': their stores before the loads
    else
        __syncwarp();  // the rows are this warp's own: its stores before its loads

#pragma unroll
    for (int i = own_part() * 32 + lane; i < kWarpRows * Form::kChunks; i += kParts * 32) {
        const int r = i / Form::kChunks, chunk = i % Form::kChunks;  // padding too: eight lanes read without a gap
        const int block_row = place.first_row + warp_row + r;
        if (chunk < kHeadDimV / 8 && block_row < place.rows)
            *reinterpret_cast<uint4 *>(p.o + place.offset(p, p.o_stride, block_row) * 2 + chunk * 16) =
                load_shared_16(o_smem + Form::chunk_offset(r, chunk));
    }
}

// ---- epilogue of a block whose teams, or which with other blocks, shared the keys of its rows -------------
//
// Partial results of one row over disjoint keys, each O_i normalised or not, merge as
// O = sum(w_i O_i), w_i = exp(m_i - max m): first among a block's teams in shared memory; then, if p.splits > 1,
// among blocks by the combining kernel (combine.cuh) over p.partial [splits, B, Hq, Sq, D] and p.partial_lse
// [splits, B, Hq, Sq]; where sequences have lengths of their own, [Hkv, slots, kBr, D] and [Hkv, slots, kBr]; where
// they are packed, only slots whose results are combined count (part_slots).

// Teams put O, maxima and sums here in fp32. The pitch is 32 bytes modulo 128: lanes of a quad store 8 bytes
// each, and four quads fill the banks once.
constexpr int kMergePitch = kHeadDimV * 4 + (160 - kHeadDimV * 4 % 128) % 128;
constexpr int kMergeStates = kTeams * kBr * kMergePitch;  // float2 {max, sum} [team][row]
// Lanes that read a row, 16 bytes each: whole groups of eight, so that no group crosses rows, whose
// beginnings share banks with the ends of others.
constexpr int kMergeLanes = (kHeadDimV / 4 + 7) / 8 * 8;
static_assert(kMergeStates + kTeams * kBr * 8 == kMergeBytes, "O, maxima and sums of all teams fill kMergeBytes");

// All threads that compute.
__device__ __forceinline__ void block_sync()
{
    if constexpr (kWgmma)
        named_barrier(0, kThreads);  // without those that copy, which have ended
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
            // One lane for each of the two: a store of 8 bytes takes two wavefronts.
            if (lane % 4 < 2 && own_part() == 0)
                store_shared_4(smem + kMergeStates + r * 8 + lane % 4 * 4,
                               __float_as_uint(lane % 4 == 0 ? row.max[m][h] : sum));
        }
    }
}

// One row of the block, merged: 4 columns of O, the maximum of the scores and the sum.
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

    // The sink has come on top: of a row that no other block has keys of.
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

// A row that no other block has keys of.
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
        if (kVarlen ? place.part < 0 : place.splits(p) == 1) {  // no other block has keys of its rows
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
// Query i stands at p = i + seq_k - seq_q.
// Sliding: it sees the keys p - window_left ... p + window_right. What is unbounded is larger than any length, and a
//   causal mask is a window_right of 0: the host sees to both.
// Prefix: it sees the keys up to p, as with a causal mask, and those before window_left.
// Chunks: it sees the keys of the same window_left, p / window_left.
constexpr int kUnbounded = 1 << 30;

// Keys [run_begin, run_end) that a query sees at a position, and the positions first_at ... last_at from which a
// key is seen. None of them falls where its argument grows.
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

// Keys [begin, end) that some query sees of those that stand at first ... last; [begin_of_all, end_of_all) that
// each of them sees, if any.
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
// Of column tile n of S a lane has two neighbouring keys: lane % 4 * kLaneKeys + key_column(n) and the next one, counted
// from the tile's first key. If kWide, the rows of K are permuted (keys.cuh) so that it has eight neighbours of 32.
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
// Masks come after what transforms scores (softcap), which would turn -infinity into a number.

// Set scores to -infinity where the key is beyond the tensor's end or outside the row's window. first_row: of this warp.
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

// The same where the key is beyond the tensor's end or, if causal, the row's own position.
__device__ __forceinline__ void mask_after_end(float (&s)[kRowTiles][kColTiles][4], const Params &p,
                                               const BlockPlace &place, int first_row, int tile, int lane)
{
    int limit[kRowTiles][2];  // last visible column, from this lane's first one
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

// ---- where K and V lie -----------------------------------------------------------------------------------
//
// A head of K or V that a block reads begins at a head pointer: row 0, of page 0 if it lies in pages.
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

// The rows of a tile, one after the other.
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

// K and V in pages: a page has 2^page_shift rows of every head, [pages, page, Hkv, D]. Key j of a sequence is row
// j % page of page table[j / page], and a number that is no page's counts as the last one's.
// Where pages are as long as a tile at least, it lies in one: a single look-up, whose latency the rows share. Not where
// padding, which has any length, comes first.
struct PagedRows {
    const Params &p;
    const int *table;
    const int first_key, last_key;  // of the tile; of the sequence
    bool one;
    uint32 page;  // that one

    __device__ __forceinline__ PagedRows(const Params &p, const BlockPlace &place, int tile)
        : p(p), table(p.features.block_table + place.batch * p.features.table_stride),
          first_key(place.padding() + tile * kBc), last_key(place.padding() + place.seq_k(p) - 1),
          one(!kLeftpad && (kBc & (kBc - 1)) == 0 && kBc >> p.features.page_shift <= 1), page(0)
    {
        if (one)
            page = look_up(key(0));
    }

    // Of row r; where a tile is that will not be read, or a row beyond the sequence's end, some key of its row of the
    // table.
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

// The key of a row of a tile, where a lane is to have eight neighbours of 32 keys (kWide): of column tile n, columns 2 t
// and 2 t + 1 are keys 8 t + 2 n and the next one. Nothing is after the last key: rows repeat it, and are masked.
__device__ __forceinline__ int wide_key(int r, int last)
{
    return min(r / 32 * 32 + r / 2 % 4 * 8 + r / 8 % 4 * 2 + r % 2, last);
}

// ---- cp.async: copies from global to shared memory that a thread need not wait for; SM 8.0 and newer --------

// 16 bytes from global to shared memory, past the L1 cache, if wanted: a predicate, where a branch would
// part the instructions around it.
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

// The same, but 16 zero bytes unless keep; gmem is not read then.
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

// Wait until at most kPending of this thread's committed groups are unfinished.
template <int kPending> __device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- filling a tile of shared memory from global memory ------------------------------------------------------
//
// A thread always copies the same chunk column, of rows kRowStep apart: neighbouring lanes take neighbouring chunks.
// Chunks beyond the tensor's columns and rows beyond its end become zeros.

// The passes of a fill that are issued at once: part `part` of `parts`, if wanted.
struct Share {
    int part, parts;
    bool wanted;
};
constexpr Share kWhole = {0, 1, true};

// V has a form of its own if it has fewer columns.
template <int kColumns> using FormOf = TileForm<kColumns == kHeadDimV ? kHeadDimVPadded : kHeadDimPadded>;

// Which chunks of a [kRows][kColumns] tile a thread copies, of kCount that share the work. Nothing of it is kept
// between tiles: thread_index() cannot be moved out of the loop, so these addresses are computed again for each tile,
// which costs a few instructions and saves the registers that the accumulators need.
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

    // In shared memory, from the tile's start.
    __device__ __forceinline__ uint32 offset(int pass) const
    {
        if constexpr (kRowStep % 8 == 0)  // the swizzle is the same in every pass
            return Form::chunk_offset(first_row, chunk) + pass * kRowStep * kPitch;
        else
            return Form::chunk_offset(row(pass), chunk);
    }
};

// kStaged: through registers, as SM 7.5 does it. The loads are issued early and land in registers; store() puts them
// into shared memory when the tile that was there is no longer read.
template <int kRows, int kCount, int kColumns = kHeadDim, bool kStaged = kTuring> struct Fill {
    using Plan = FillPlan<kRows, kCount, kColumns>;
    uint4 staged[Plan::kPasses];

    // Start loading a tile, always all of it: spread over a product, the loads would keep its registers
    // waiting. address(row): where its row begins in global memory; rows from valid_rows on are zeros.
    // kFull: all rows are valid.
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

// By cp.async.
template <int kRows, int kCount, int kColumns> struct Fill<kRows, kCount, kColumns, false> {
    using Plan = FillPlan<kRows, kCount, kColumns>;

    // Start copying a share of a tile to smem. address(row): where its row begins in global memory; rows
    // from valid_rows on are zeros. kFull: all rows are valid.
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

    // Nothing is left to do once the copies have landed.
    __device__ __forceinline__ void store(uint32)
    {
    }
};

// Loads into registers are ordered by their use: there is nothing to commit or to wait for.
__device__ __forceinline__ void fill_commit()
{
    if constexpr (!kTuring)
        cp_async_commit();
}

// Wait until at most kPending committed fills of this thread are in flight. A barrier must follow before
// other threads' chunks are read.
template <int kPending> __device__ __forceinline__ void fill_wait()
{
    if constexpr (!kTuring)
        cp_async_wait<kPending>();
}

// ---- pages whose numbers lanes tell each other (kPagesTold) -----------------------------------------------------
//
// The lanes that copy a row copy the same rows in all passes of a fill: each looks up the pages of some passes, works
// out where these rows begin, and tells the others.

// The pages of the tiles that are copied next.
template <class Plan> struct PageNumbers {
    static constexpr int kOwn = (Plan::kPasses + kChunks - 1) / kChunks;  // passes of a lane
    static constexpr int kTiles = kJoint ? kKStages - 1 : 2;              // V of a tile after K, K of the next with it
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

    // Of this lane's pass; where a tile is that will not be read, or a row beyond the sequence's end, some key of its
    // row of the table.
    __device__ __forceinline__ int key(const Plan &plan, int tile, int i) const
    {
        return max(0, min(first_key + tile * kBc + plan.row(plan.chunk + i * kChunks), last_key));
    }

    // Look up those of the tile that is `ahead` tiles after the next one, long before they are wanted.
    __device__ __forceinline__ void find(int ahead, int tile)
    {
        const Plan plan;
#pragma unroll
        for (int i = 0; i < kOwn; i++)
            own[ahead][i] = __ldg(table + (key(plan, tile, i) >> p.features.page_shift));
    }

    // At first: the tile, and those that are copied right after it.
    __device__ __forceinline__ void find_first(int tile)
    {
        find(0, tile);
        if constexpr (kJoint)
#pragma unroll
            for (int ahead = 1; ahead < kKStages - 1; ahead++)
                find(ahead, tile - ahead * kTeams);
    }

    // While S of a tile is computed: those of the tile that is copied after the next ones.
    __device__ __forceinline__ void find_next(int tile)
    {
        if constexpr (kJoint)
            find(0, tile - (kKStages - 1) * kTeams);
        else
            find(1, tile - kTeams);
    }

    // The next tile is copied.
    __device__ __forceinline__ void pass()
    {
#pragma unroll
        for (int ahead = 1; ahead < kTiles; ahead++)
#pragma unroll
            for (int i = 0; i < kOwn; i++)
                own[ahead - 1][i] = own[ahead][i];
    }
};

// The same where no page is told.
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

// Where the rows of the next tile begin, in K or V: 32 bits, that one instruction makes an address of.
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

// The rows of the tile that is copied next.
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
// after_step(step) is called after the instructions of each k16 step: what it issues is under way while
// the tensor cores work. Warps that share rows take every kParts-th pair of chunks.

// S becomes 0.
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

// S += Q K^T for one tile. q_frag is used when Q is in registers, q_smem (this warp's rows) when not.
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

// ---- S of warps that divide columns: each adds up what all have of it --------------------------------------
constexpr int kWarpSumBytes = kRowTiles * kColTiles * 32 * 16;  // [row tile][column tile][lane]
static_assert(kParts == 1 || kSumArea + kWarps * kWarpSumBytes == kTileBytes, "each warp has a place for its S");

// What a lane has of a column tile of S, in the area of a warp of the same rows.
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

// A barrier must have come after put_scores.
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

// ---- alibi: a key costs the more the farther it is from the query -------------------------------------
//
// Scores get -slope |p - j|, p = query + seq_k - seq_q. Here it is in the units of q k, divided by the scale.

__device__ __forceinline__ float alibi_slope(const Params &p, int batch, int head)
{
    return p.features.alibi_slopes[batch * p.features.alibi_stride + head] * p.features.inverse_scale;
}

// The term at p - j = base + step; step is a constant after unrolling. kBefore: that is not negative.
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

// This lane's first column in tile 0, where ALiBi comes with the product.
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
    float slope[kRowTiles][2], position[kRowTiles][2];  // position: p less this lane's first column in tile 0

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

    // The term of a score: row tile m, half h, column tile n, column e of this lane. kBefore: no key of the tile
    // stands after a row's own position.
    template <bool kBefore> __device__ __forceinline__ float term(int tile, int m, int h, int n, int e) const
    {
        return alibi_term<kBefore>(slope[m][h], position[m][h] - float(tile * kBc), -float(key_column(n) + e));
    }

    // The same in two parts, where no key of the tile stands after a row's own position: of a row ...
    __device__ __forceinline__ float offset(int tile, int m, int h) const
    {
        if constexpr (kAlibiMma)
            return -slope[m][h] * (position[m][h] + first_column - float(tile * kBc));
        else
            return -slope[m][h] * (position[m][h] - float(tile * kBc));
    }

    // ... and, on top of the score, of a column.
    __device__ __forceinline__ float added(float score, int m, int h, int n, int e) const
    {
        if constexpr (kAlibiMma)
            return fmaf(slope[m][h], first_column + float(key_column(n) + e), score);
        else
            return fmaf(slope[m][h], float(key_column(n) + e), score);
    }

    // kAlibiMma: slope * column comes with the product if 16 bits hold it. If not, it is added here.
    __device__ __forceinline__ bool in_product(int m, int h) const
    {
        return kBf16 || fabsf(slope[m][h]) <= 65504.0f;
    }
};

using Alibi = Either<kAlibi, AlibiOfRows, NoAlibi>::Type;

// Neighbours of a row that a lane has, and so reads at once.
constexpr int kTogether = kWide ? 8 : 2;

// kTogether neighbours that lie side by side, aligned.
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
    int columns;  // before the tensor's end, from this lane's first one
    int seq_k;
    float inverse_scale;
    bool side;  // kTogether neighbours lie side by side, aligned

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

    // Whether neighbours are read at once in a tile: none is beyond the tensor's end.
    template <bool kMasked> __device__ __forceinline__ bool reads_side(int tile) const
    {
        return side && (!kMasked || (tile + 1) * kBc <= seq_k);
    }

    // kTogether neighbours of a row; those beyond the tensor's end are not read. kSide: they lie side by side, aligned,
    // and none is beyond it.
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

// ---- terms: what is added to scores ------------------------------------------------------------------------
//
// On mma.sync, scores begin as the terms, and the product comes on top of them: accumulators have to begin as
// something. After a transform (softcap), and where warps divide columns, the terms are added. So is a bias in 16
// bits, whose words are read before the product, which hides their way. On wgmma: hopper/fwd_consumer.cuh.
constexpr bool kTerms = kAlibi || kBias != BiasKind::kNone;
constexpr bool kBiasAhead = kBiasHalf && !kWgmma;
constexpr bool kTermsFirst = kTerms && !kSoftcap && kParts == 1 && !kBiasAhead && !kWgmma;
constexpr bool kSkips = kBias == BiasKind::kBool && kTermsFirst;  // a warp may skip a tile of which it sees no key

// No key of a tile stands after a row's own position.
template <bool kMasked> constexpr bool kNoKeyAfter = kCausal && !kMasked;

// Bases and not members: an empty member takes a place, and ptxas other registers.
struct Terms : Alibi, Bias {
    // first_row: of this warp.
    __device__ __forceinline__ Terms(const Params &p, const BlockPlace &place, int first_row, int lane)
        : Alibi(p, place, first_row, lane), Bias(p, place, first_row, lane)
    {
    }

    // Scores of a tile begin as their terms; kAdd: these are added. False where no key of the tile is seen by any
    // row of this warp.
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

    // ALiBi added where nothing is masked, but for what all scores of a row get, which is left to the softmax; with
    // kAlibiMma also but for what the product has.
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

    // A bias in 16 bits, for add(): two neighbours of a row a word.
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

    // The same of a bias, with ALiBi if there is one.
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

// ---- the tiles of K and V that a block visits: [first, count) ------------------------------------------------------

struct AnyFirstTile {
    int first;
};

struct FirstTileIs0 {
    static constexpr int first = 0;
};

struct TileRange : Either<kSplit || kWindow != Window::kNone, AnyFirstTile, FirstTileIs0>::Type {
    int count;
    int unmasked;  // tiles from this one on need a mask
    int plain;     // in a window, so do those before this one

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
        int keys = place.seq_k(p), keys_of_all = place.seq_k(p);  // seen by some row of the block, by every row
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

    // Of the blocks that divide the keys, each has one share.
    template <class Range>
    static __device__ __forceinline__ void take_share(Range &range, const Params &p, const BlockPlace &place)
    {
        const int share = (range.count - range.first + place.splits(p) - 1) / place.splits(p);
        range.first = min(range.first + place.split * share, range.count);
        range.count = min(range.first + share, range.count);
    }
};
// ---- a step that begins while the one before it is at work: SM 9.0 and newer --------------------------------
//
// A launch that says so (runtime/cuda/launch.c) is on its way when all blocks of the step before have called
// let_next_step_begin, or have ended, and there is room; elsewhere steps follow each other, and these do nothing.

__device__ __forceinline__ void let_next_step_begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The step before has ended, and what it wrote is there. All threads wait, so that this step ends behind it.
__device__ __forceinline__ void await_step_before()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- forward ----------------------------------------------------------------------------------------
//
// One block computes kBr rows of O. K and V tiles are visited from the last to the first, so the tiles that
// need a mask (the tensor's end, the causal diagonal) come first and the loop over the others has no
// compare code. A window has a beginning, too: there are tiles to mask at both ends.
//
// What features change has its place: which tiles are visited (tiles.cuh) and which keys a row sees (mask.cuh); where a
// row of K or V lies (keys.cuh); what is added to scores (terms.cuh); what is left of P (dropout.cuh), which product_pv
// alone reads; how a row begins and ends (softmax.cuh). Features that a kernel lacks are compiled out.
//
// A step of tile t, with what is copied meanwhile. K and V of a tile are one stage (kJoint, two or three stages):
//
//   wait K, V (t) | S = Q K^T                            softmax   O += P V
//                 | copy K, V (t - 1, or t - 2 with three stages) ........
//
// or they are apart, with two barriers a step (one or two stages of K):
//
//   wait K (t) | S = Q K^T        | wait V (t) | softmax   O += P V
//              | copy V (t) ..... |            | copy K (t - 1), into its one stage
//              | copy K (t - 1), with two stages of K .............
//
// Barriers per tile: one if kJoint, else two. What each orders is said where it stands. A team of warps visits every
// kTeams-th tile and waits only for its own members.

// Orders what the threads of one team do.
__device__ __forceinline__ void team_sync()
{
    if constexpr (kTeams == 1)
        __syncthreads();
    else if constexpr (kTeamThreads == 32)
        __syncwarp();
    else
        named_barrier(1 + threadIdx.x / kTeamThreads, kTeamThreads);
}

// V that comes with K.
struct NoFill {
    template <bool kFull, class Plan, class Address>
    __device__ __forceinline__ void issue(const Plan &, Share, uint32, int, Address)
    {
    }

    __device__ __forceinline__ void store(uint32) const
    {
    }
};

// V has a plan of its own if it has another form than K.
constexpr bool kOwnValuePlan = kHeadDimV < kHeadDim || kParts > 1;

// The kernel, of kThreads threads.
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

        // A share of a tile of K, or of V. full: all of its rows are before the tensor's end.
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

        // Only the first tile that is visited can reach beyond the tensor's end.
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
                __syncthreads();  // Q is read before V comes into its place
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
            __syncthreads();  // Q is complete: all threads filled it, and teams wait only for themselves
        }

        auto visit = [&](auto masked) {
            constexpr bool kMasked = decltype(masked)::value;
            const uint32 k_smem = k_stage(smem, team, tile), v_smem = v_stage(smem, team, tile);
            float s[kRowTiles][kColTiles][4];
            uint32 bias_words[kRowTiles][2][kColTiles];
            bool seen = true;

            numbers.find_next(tile);  // on their way while S is computed
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

            // Copies run meanwhile: of the next tile, and of V of this one unless it came with K.
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
                if (!seen) {  // by no row of this warp: it takes part in copies and barriers alone
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
            // One loop: a third one after the two would take registers that spill elsewhere.
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
