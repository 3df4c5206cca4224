// bwd_sm80 d=64 dtype=bf16 causal=1 br=64 bc=128 warps=4 qwarps=1 parts=2 stages=1 barriers=2 order=early dq=red dqbc=0 rows=prepared layout=swizzle
// op=backward abi=1 rows=64 keys=128 columns=64 workspace=rows_and_dq; bwd_sm80_prepare role=prepare threads=256 smem=0 blocks=padded_rows/32; bwd_sm80 role=main threads=128 smem=66048 blocks=key_tiles; bwd_sm80_convert role=convert threads=128 smem=0 blocks=padded_rows/32
// bwd_sm80: attention backward on SM 8.0 and newer. fp16 or bf16, mma m16n8k16, tiles filled by cp.async.
// ---- the variant -------------------------------------------------------------------------------
constexpr int kHeadDim = 64;            // D: columns of Q, K and their gradients
constexpr int kHeadDimV = 64;           // columns of V, O and their gradients
constexpr int kBr = 64;                // query rows per tile
constexpr int kBc = 128;                // key rows per block
constexpr int kWarps = 4;
constexpr int kQueryWarps = 1;    // S^T, dP^T: warps that divide the queries; the rest divide keys
constexpr int kRowWarps = 2;      // dQ: warps that divide its rows; the rest divide its columns
constexpr int kParts = 2;          // of a warp's queries in a tile: one at a time is in registers
constexpr int kDqParts = 1;      // of a warp's rows of dQ in a tile: one at a time is in registers
constexpr int kStages = 1;        // tiles of Q and dO in shared memory
constexpr int kBarriers = 2;    // per tile: 1 lets warps run apart by a tile, and needs more room
constexpr bool kFillLater = false;        // they do while dQ is computed
constexpr bool kLate = false;             // dV is added to between them
constexpr bool kCausal = 1 == 1;  // query i sees keys <= i + seq_k - seq_q
constexpr bool kHeavyFirst = kCausal;     // blocks with the most work come first, of all heads
constexpr bool kApart = false;            // dQ is summed by the blocks that compute dK and dV
constexpr unsigned kTogether = 512;       // tiles of keys, of several heads, that are dealt out in turn
constexpr bool kTurns = false;
constexpr bool kSwizzle = true;           // rows of a tile: 16-byte chunks permuted by row

// ---- the element, the SM and the features: what a kernel lacks costs nothing -------------------------------------
constexpr bool kBf16 = true;        // elements are bf16; else fp16
constexpr bool kTuring = false;      // products are m16n8k8, tiles pass through registers
constexpr bool kWgmma = false;       // products are those of warpgroups

// Which members the parameters have (features/params.cuh).
#define FA2_BACKWARD     true  // those of the kernels of gradients
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

// ---- what follows from it ----------------------------------------------------------------------
constexpr int kThreads = kWarps * 32;
constexpr int kKeyWarps = kWarps / kQueryWarps;
constexpr int kColWarps = kWarps / kRowWarps;
constexpr int kHeadDimPadded = (kHeadDim + 16 * kQueryWarps - 1) / (16 * kQueryWarps) * (16 * kQueryWarps);
constexpr int kDepth = kHeadDimPadded / 16;            // k16 steps of S and dP; column pairs of dK, dV, dQ
constexpr int kKeyTiles = kBc / (16 * kKeyWarps);      // m16 tiles of keys per warp
constexpr int kWarpQueries = kBr / kQueryWarps;        // per tile and warp
constexpr int kQueryTiles = kWarpQueries / (8 * kParts);  // n8 tiles of queries per part
constexpr int kQuerySteps = kQueryTiles / 2;           // k16 steps of dK and dV per part
constexpr int kOutPairs = kDepth / kQueryWarps;        // 16-column pairs of n8 tiles of dK and dV per warp
constexpr int kHeadDimVPadded = (kHeadDimV + 16 * kQueryWarps - 1) / (16 * kQueryWarps) * (16 * kQueryWarps);
constexpr int kValuePairs = kHeadDimVPadded / (16 * kQueryWarps);  // of dV; kDepth and kOutPairs are of Q and K
constexpr int kDqRowTiles = kBr / (16 * kRowWarps);    // m16 tiles of dQ per warp
constexpr int kDqPartTiles = kDqRowTiles / kDqParts;   // of them at a time
constexpr int kDqPairs = kDepth / kColWarps;           // 16-column pairs of dQ per warp

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
// ---- types that every template uses --------------------------------------------------------------------
using int64 = long long;
using uint32 = unsigned int;

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
constexpr int kQTileBytes = kBr * kPitch;
constexpr int kKvTileBytes = kBc * kPitch;

// dS^T [keys][queries]: all of it, for dQ, which needs what every warp has computed.
using ScoreTile = TileForm<kBr>;
constexpr int kScoreBytes = kBc * ScoreTile::kPitch;

// P^T as fragments, for the warps that have the same keys: [key warp][query warp][step][m16 tile][lane].
constexpr int kFragmentBytes = 32 * 16;
constexpr int kWarpFragments = kParts * kQuerySteps * kKeyTiles;
constexpr int kSharedPBytes = kQueryWarps > 1 ? kWarps * kWarpFragments * kFragmentBytes : 0;

// With one barrier per tile, a tile's P^T and dS^T are still read while those of the next are written.
constexpr int kScoreStages = kBarriers == 1 ? 2 : 1;

// LSE in log2 units and delta of the rows of a tile.
constexpr int kRowBytes = 2 * kBr * 4;

constexpr int kKArea = 0;
constexpr int kVArea = kKArea + kKvTileBytes;
constexpr int kQArea = kVArea + kKvTileBytes;
constexpr int kDoArea = kQArea + kStages * kQTileBytes;
constexpr int kScoreArea = kDoArea + kStages * kQTileBytes;
constexpr int kSharedPArea = kScoreArea + kScoreStages * kScoreBytes;
constexpr int kRowArea = kSharedPArea + kScoreStages * kSharedPBytes;
constexpr int kKeyBlockBytes = kRowArea + kStages * kRowBytes;
constexpr int kSmemBytes = kKeyBlockBytes;
static_assert(kSmemBytes == 66048, "the generator computed another size");

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
// ---- what the softmax of a row left behind ----------------------------------------------------------

// LSE in log2 units, +infinity for rows that saw no key and for those behind the tensor: their P is 0.
__device__ __forceinline__ float row_lse(const Params &p, int64 plane, int row)
{
    const float lse = row < p.seq_q ? __ldg(p.lse + plane * p.seq_q + row) : minus_infinity();
    const bool none = lse == minus_infinity();
    return none ? -minus_infinity() : lse * 1.4426950408889634f;
}

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

// kRowLanes neighbouring lanes share a row, 8 elements each.
constexpr int kRowChunks = kHeadDim / 8;
constexpr int kRowLanes =
    kRowChunks > 16 ? 32 : kRowChunks > 8 ? 16 : kRowChunks > 4 ? 8 : kRowChunks > 2 ? 4 : kRowChunks;

// delta = rowsum(dO * O), in all lanes of the row; 0 behind the tensor. All lanes of the warp take part.
__device__ __forceinline__ float row_delta(const Params &p, int64 batch, int head, int row, int lane)
{
    float delta = 0.0f;
    if (row < p.seq_q && lane < kRowChunks) {
        const char *o =
            p.o + (batch * p.o_stride.batch + head * p.o_stride.head + row * p.o_stride.seq) * 2;
        const char *d_o =
            p.d_o + (batch * p.do_stride.batch + head * p.do_stride.head + row * p.do_stride.seq) * 2;
        delta = dot_8(__ldg(reinterpret_cast<const uint4 *>(o) + lane),
                      __ldg(reinterpret_cast<const uint4 *>(d_o) + lane));
    }
#pragma unroll
    for (int lanes = kRowLanes / 2; lanes > 0; lanes /= 2)
        delta += __shfl_xor_sync(0xffffffffu, delta, lanes);
    return delta;
}

// LSE and delta of rows first_row ... first_row + kRows - 1 into shared memory, one behind the other.
template <int kRows>
__device__ __forceinline__ void put_rows(const Params &p, int batch, int head, int first_row, uint32 smem)
{
    constexpr int kTogether = kThreads / kRowLanes;
    const int64 plane = int64(batch) * p.heads_q + head;
    const int thread = thread_index();
#pragma unroll
    for (int pass = 0; pass < (kRows + kTogether - 1) / kTogether; pass++) {
        const int r = pass * kTogether + thread / kRowLanes;
        const int row = r < kRows ? first_row + r : p.seq_q;
        const float delta = row_delta(p, batch, head, row, thread % kRowLanes);
        if (r < kRows && thread % kRowLanes == 0) {
            store_shared_4(smem + r * 4, __float_as_uint(row_lse(p, plane, row)));
            store_shared_4(smem + (kRows + r) * 4, __float_as_uint(delta));
        }
    }
}
// LSE and delta of a tile's rows, 16 bytes per thread. The workspace has whole tiles.
struct RowFill {
    __device__ __forceinline__ void issue(const Params &p, int batch, int head, int tile, uint32 smem)
    {
        constexpr int kQuarters = kBr / 4;
        static_assert(2 * kQuarters <= kThreads, "a thread copies 16 bytes at most");
        const int64 plane = int64(batch) * p.heads_q + head;
        const int i = thread_index();
        const int64 plane_rows = int64(p.q_tiles) * kBr;
        const int64 planes = int64(p.batch) * p.heads_q;
        const int64 from = (i < kQuarters ? plane : planes + plane) * plane_rows + tile * kBr;
        cp_async_16(smem + i * 16, reinterpret_cast<const char *>(p.rows + from + i % kQuarters * 4),
                    i < 2 * kQuarters);
    }

    __device__ __forceinline__ void store(uint32)
    {
    }
};
// ---- products ---------------------------------------------------------------------------------------
//
// Tiles of c are m16n8. load_a(step, a) puts the A fragments of a k16 step into a.

template <int kM, int kN> __device__ __forceinline__ void clear(float (&c)[kM][kN][4])
{
#pragma unroll
    for (int m = 0; m < kM; m++)
#pragma unroll
        for (int n = 0; n < kN; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                c[m][n][e] = 0.0f;
}

// A fragments of 16 * kM rows of a tile, one k16 step.
template <int kM>
__device__ __forceinline__ void load_rows(uint32 (&a)[kM][4], uint32 smem, uint32 lane_rows, int step)
{
#pragma unroll
    for (int m = 0; m < kM; m++)
        ldmatrix_x4(a[m], smem + pair_offset(lane_rows, step) + m * 16 * kPitch);
}

// c += A B^T over the columns of two tiles of rows; B is 8 * kN rows from b_smem on.
template <int kM, int kN, class LoadA>
__device__ __forceinline__ void product_of_rows(float (&c)[kM][kN][4], LoadA load_a, uint32 b_smem,
                                                uint32 lane_cols)
{
#pragma unroll
    for (int step = 0; step < kDepth; step++) {
        uint32 a[kM][4];
        load_a(step, a);
#pragma unroll
        for (int n = 0; n < kN; n += 2) {
            uint32 b[4];  // rows n * 8 ... + 15: b[0], b[1] of the first n8 tile, b[2], b[3] of the next
            ldmatrix_x4(b, b_smem + pair_offset(lane_cols, step) + n * 8 * kPitch);
#pragma unroll
            for (int m = 0; m < kM; m++) {
                mma_k16(c[m][n], a[m], b[0], b[1]);
                mma_k16(c[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// c += A B, B being kSteps * 16 rows of a tile from b_smem on. Columns are dealt out to kShares warps in
// pairs of n8 tiles: this one has pairs first, first + kShares, ...; b_lane is lane_offset_rows at pair
// `first`. (Dealt out like this, the XOR of a swizzle composes: the bits of first and of kShares differ.)
template <int kShares, int kSteps, int kM, int kN, class LoadA>
__device__ __forceinline__ void product_of_columns(float (&c)[kM][kN][4], LoadA load_a, uint32 b_smem,
                                                   uint32 b_lane)
{
    static_assert((kShares & (kShares - 1)) == 0, "the bits of first and of kShares differ");
#pragma unroll
    for (int step = 0; step < kSteps; step++) {
        uint32 a[kM][4];
        load_a(step, a);
#pragma unroll
        for (int pair = 0; pair < kN / 2; pair++) {
            uint32 b[4];
            ldmatrix_x4_trans(b, b_smem + pair_offset(b_lane, pair * kShares) + step * 16 * kPitch);
#pragma unroll
            for (int m = 0; m < kM; m++) {
                mma_k16(c[m][2 * pair], a[m], b[0], b[1]);
                mma_k16(c[m][2 * pair + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// Two neighbouring accumulator tiles are laid out like one 16x16 A fragment.
__device__ __forceinline__ void pack_fragment(uint32 (&a)[4], const float (&left)[4],
                                              const float (&right)[4])
{
    a[0] = pack2(left[0], left[1]);
    a[1] = pack2(left[2], left[3]);
    a[2] = pack2(right[0], right[1]);
    a[3] = pack2(right[2], right[3]);
}
// ---- P^T and dS^T ------------------------------------------------------------------------------------
//
// Scores are transformed, made P, masked; dP less delta is multiplied by P and by what the transform's
// derivative is.
//
// Fragments (PTX ISA, mma.m16n8k16), lane = 4 * quad_row + quad_lane: an accumulator holds, of a 16x8
// tile, row quad_row columns 2 * quad_lane, + 1 in c[0], c[1] and row quad_row + 8 in c[2], c[3]. Rows
// are keys, columns are queries: what varies by query comes in pairs from shared memory.

using Scores = float[kKeyTiles][kQueryTiles][4];

// S^T becomes P^T = 2^(scale_log2 * S - lse). lse_smem: of this lane's first query.
__device__ __forceinline__ void scores_to_p(Scores &s, uint32 lse_smem, float scale_log2)
{
#pragma unroll
    for (int n = 0; n < kQueryTiles; n++) {
        const float2 lse = load_shared_8(lse_smem + n * 8 * 4);
#pragma unroll
        for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[m][n][e] = exp2_approx(fmaf(s[m][n][e], scale_log2, e % 2 ? -lse.y : -lse.x));
    }
}

using Fragments = uint32[kQuerySteps][kKeyTiles][4];  // A fragments of dV and dK

__device__ __forceinline__ void pack_scores(Fragments &a, const Scores &s)
{
#pragma unroll
    for (int step = 0; step < kQuerySteps; step++)
#pragma unroll
        for (int m = 0; m < kKeyTiles; m++)
            pack_fragment(a[step][m], s[m][2 * step], s[m][2 * step + 1]);
}

// Put P^T where warps with the same keys find it. smem: of this lane.
__device__ __forceinline__ void store_p(const Fragments &a, uint32 smem)
{
#pragma unroll
    for (int step = 0; step < kQuerySteps; step++)
#pragma unroll
        for (int m = 0; m < kKeyTiles; m++)
            store_shared_16(smem + (step * kKeyTiles + m) * kFragmentBytes,
                            uint4{a[step][m][0], a[step][m][1], a[step][m][2], a[step][m][3]});
}

// P^T = 0 where the query is before the first one that sees the key, which counts from this lane's first
// one: queries are constants after unrolling.
__device__ __forceinline__ void mask_p(Scores &s, const Params &p, int first_key, int first_query)
{
    int first[kKeyTiles][2];
#pragma unroll
    for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int key = first_key + m * 16 + h * 8;
            const int sees = kCausal ? key - (p.seq_k - p.seq_q) : 0;
            first[m][h] = key < p.seq_k ? sees - first_query : kBr;
        }
#pragma unroll
    for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
        for (int n = 0; n < kQueryTiles; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (n * 8 + e % 2 < first[m][e / 2])
                    s[m][n][e] = 0.0f;
}

// dP^T becomes dS^T = P^T * (dP^T - delta), without the softmax scale. p: times a transform's derivative.
__device__ __forceinline__ void dp_to_ds(Scores &dp, const Scores &p, uint32 delta_smem)
{
#pragma unroll
    for (int n = 0; n < kQueryTiles; n++) {
        const float2 delta = load_shared_8(delta_smem + n * 8 * 4);
#pragma unroll
        for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                dp[m][n][e] = p[m][n][e] * (dp[m][n][e] - (e % 2 ? delta.y : delta.x));
    }
}

// Put dS^T into its tile.
__device__ __forceinline__ void store_ds(const Fragments &a, uint32 score_smem, int first_key,
                                         int first_query, int lane)
{
#pragma unroll
    for (int step = 0; step < kQuerySteps; step++)
#pragma unroll
        for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                store_shared_4(score_smem +
                                   ScoreTile::chunk_offset(first_key + m * 16 + i % 2 * 8 + lane / 4,
                                                           first_query / 8 + 2 * step + i / 2) +
                                   lane % 4 * 4,
                               a[step][m][i]);
}
// ---- where a block works: kBc key rows of one key head --------------------------------------------------

struct BlockPlace {
    int first_key;
    int kv_head, batch;

    // Heavy tiles first when causal, of all heads: the first keys are seen by the most queries. In a window
    // all are seen by as many, but for the last ones.
    __device__ __forceinline__ BlockPlace(const Params &p, unsigned block)
    {
        const unsigned kv_heads = p.heads_q / p.group;
        const unsigned planes = kv_heads * p.batch;
        // Blocks that begin together have keys of several heads, as those of one head add to the same dQ; not
        // of all heads, so that what they read stays in the L2 cache.
        const unsigned most = kHeavyFirst ? planes : max(8u, kTogether / p.k_tiles);
        const unsigned first_plane = block / (most * p.k_tiles) * most;
        const unsigned together = min(most, planes - first_plane);
        const unsigned tile = block % (most * p.k_tiles) / together;
        const unsigned plane = first_plane + block % (most * p.k_tiles) % together;
        first_key = tile * kBc;
        kv_head = plane % kv_heads;
        batch = plane / kv_heads;
    }
};

// The tiles of queries that a block visits, for each head of its group: from first to end(p); those before
// unmasked need a mask.
struct TileRange {
    int first, unmasked;

    __device__ __forceinline__ int end(const Params &p) const
    {
        return p.q_tiles;
    }

    __device__ __forceinline__ TileRange(const Params &p, const BlockPlace &place)
    {
        // The first query that sees some key of the block, and that sees all of them.
        int query = 0, query_of_all = 0;
        if (kCausal) {
            const int offset = p.seq_k - p.seq_q;
            query = max(0, place.first_key - offset);
            query_of_all = max(0, place.first_key + kBc - 1 - offset);
        }
        first = min(query / kBr, p.q_tiles);
        unmasked = (query_of_all + kBr - 1) / kBr;
        if (place.first_key + kBc > p.seq_k)  // keys behind the tensor's end are seen by nobody
            unmasked = p.q_tiles;
    }
};
// ---- dQ: sums over blocks in fp32 ------------------------------------------------------------------------
//
// A tile of dQ in the workspace is in the order of the fragments of the warps that add to it, so that every
// addition of a warp fills whole sectors: [warp][m16 tile][n8 tile] of 128 numbers, these [lane][4] where
// four can be added at once, else [4][lane].
#if __CUDA_ARCH__ >= 900
constexpr bool kAddFour = true;
#else
constexpr bool kAddFour = false;
#endif
constexpr int kDqFragment = 128;
constexpr int kDqWarpPart = kDqRowTiles * kDqPairs * 2 * kDqFragment;
constexpr int kDqTile = kWarps * kDqWarpPart;

using DqTile = float[kDqPartTiles][2 * kDqPairs][4];

// sum: of the first fragment.
__device__ __forceinline__ void add_dq(float *sum, const DqTile &dq, int lane)
{
#pragma unroll
    for (int m = 0; m < kDqPartTiles; m++) {
#pragma unroll
        for (int n = 0; n < 2 * kDqPairs; n++) {
            float *fragment = sum + (m * 2 * kDqPairs + n) * kDqFragment;
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
// ---- the result of a block -----------------------------------------------------------------------------

// Scale rows of dK or dV and write them, 16 bytes per lane, through shared memory, which is free.
__device__ __forceinline__ void write_rows(char *out, const Strides &stride, const Params &p,
                                           const BlockPlace &place,
                                           const float (&x)[kKeyTiles][2 * kOutPairs][4], float scale,
                                           uint32 smem, int warp_key, int query_warp, int lane)
{
    if (out == nullptr)
        return;
#pragma unroll
    for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int n = 0; n < 2 * kOutPairs; n++) {
                const int chunk = (n / 2 * kQueryWarps + query_warp) * 2 + n % 2;
                store_shared_4(smem + chunk_offset(warp_key + m * 16 + h * 8 + lane / 4, chunk) +
                                   lane % 4 * 4,
                               pack2(x[m][n][2 * h] * scale, x[m][n][2 * h + 1] * scale));
            }
    __syncthreads();  // the rows are complete: warps wrote parts of each

    out += (place.batch * stride.batch + place.kv_head * stride.head +
            place.first_key * stride.seq) * 2;
#pragma unroll
    for (int i = threadIdx.x; i < kBc * kChunks; i += kThreads) {
        const int r = i / kChunks, chunk = i % kChunks;  // padding too: eight lanes read without a gap
        if (chunk < kHeadDim / 8 && place.first_key + r < p.seq_k)
            *reinterpret_cast<uint4 *>(out + r * stride.seq * 2 + chunk * 16) =
                load_shared_16(smem + chunk_offset(r, chunk));
    }
}
// ---- backward -----------------------------------------------------------------------------------------
//
// One block computes kBc rows of dK and dV, which stay in registers, and adds to dQ, over all queries that
// see its keys. Per tile of kBr queries:
//
//     S^T = K Q^T      P^T = 2^(S^T - lse)          dV += P^T dO
//     dP^T = V dO^T    dS^T = P^T * (dP^T - delta)  dK += dS^T Q     dQ += dS K
//
// Keys are rows of S^T, so that P^T and dS^T are A fragments of dV and dK where they were computed. Warps
// are kKeyWarps x kQueryWarps over S^T and over (keys, columns) of dK and dV: those with the same keys
// exchange what they computed, P^T as fragments and dS^T through the tile that dQ needs as well.
//
// Barriers per tile: with two, all warps begin a tile together; with one, they may be a tile apart. What
// each orders is said where it stands.
//
// What features change has its place, here and in the blocks of dQ alone (bwd_query.cu.in): which tiles are
// visited and which are masked (TileRange and the loop over it); compute_p, where scores are transformed,
// made P^T and masked; what dV alone is of, and is dropped, when P^T is packed; dP^T likewise, before it
// becomes dS^T; and the derivative of the transform, which dS^T alone is times. How a row begins and ends is
// in its LSE and delta (delta.cu.in).

// A tile of queries of a head of the group, in the order in which they are visited.
struct Cursor {
    int head, tile;

    __device__ __forceinline__ void advance(int first, int end)
    {
        if (++tile == end) {
            tile = first;
            head++;
        }
    }
};

__device__ __forceinline__ void key_block(const Params &p, uint32 smem, unsigned block)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int key_warp = warp / kQueryWarps, query_warp = warp % kQueryWarps;
    const int row_warp = warp / kColWarps, col_warp = warp % kColWarps;
    const int warp_key = key_warp * 16 * kKeyTiles;      // this warp's first key in the block
    const int warp_query = query_warp * kWarpQueries;     // and first query in a tile
    const BlockPlace place(p, block);
    const TileRange tiles(p, place);

    const uint32 lane_rows = RowTile::lane_offset_rows(lane);
    const uint32 lane_cols = RowTile::lane_offset_cols(lane);

    float dk[kKeyTiles][2 * kOutPairs][4] = {}, dv[kKeyTiles][2 * kOutPairs][4] = {};

    if (tiles.first < tiles.end(p)) {
        const int first_head = place.kv_head * p.group;
        Fill<kBr, kThreads> q_fill, do_fill;
        RowFill row_fill;
        auto issue_q = [&](const Cursor &to, int stage) {
            const char *tile = p.q + (place.batch * p.q_stride.batch +
                                      (first_head + to.head) * p.q_stride.head +
                                      int64(to.tile) * kBr * p.q_stride.seq) * 2;
            q_fill.template issue<false>(FillPlan<kBr, kThreads>(), kWhole,
                                         smem + kQArea + stage * kQTileBytes,
                                         p.seq_q - to.tile * kBr,
                                         [&](int r) { return tile + r * p.q_stride.seq * 2; });
        };
        auto issue_do = [&](const Cursor &to, int stage) {
            const char *tile = p.d_o + (place.batch * p.do_stride.batch +
                                        (first_head + to.head) * p.do_stride.head +
                                        int64(to.tile) * kBr * p.do_stride.seq) * 2;
            do_fill.template issue<false>(FillPlan<kBr, kThreads>(), kWhole,
                                          smem + kDoArea + stage * kQTileBytes,
                                          p.seq_q - to.tile * kBr,
                                          [&](int r) { return tile + r * p.do_stride.seq * 2; });
        };
        auto issue_rows = [&](const Cursor &to, int stage) {
            row_fill.issue(p, place.batch, first_head + to.head, to.tile,
                           smem + kRowArea + stage * kRowBytes);
        };

        Fill<kBc, kThreads> k_fill, v_fill;
        const char *k_tile = p.k + (place.batch * p.k_stride.batch +
                                    place.kv_head * p.k_stride.head +
                                    place.first_key * p.k_stride.seq) * 2;
        const char *v_tile = p.v + (place.batch * p.v_stride.batch +
                                    place.kv_head * p.v_stride.head +
                                    place.first_key * p.v_stride.seq) * 2;
        k_fill.template issue<false>(FillPlan<kBc, kThreads>(), kWhole, smem + kKArea,
                                     p.seq_k - place.first_key,
                                     [&](int r) { return k_tile + r * p.k_stride.seq * 2; });
        if constexpr (kFillLater)
            k_fill.store(smem + kKArea);
        v_fill.template issue<false>(FillPlan<kBc, kThreads>(), kWhole, smem + kVArea,
                                     p.seq_k - place.first_key,
                                     [&](int r) { return v_tile + r * p.v_stride.seq * 2; });
        if constexpr (!kFillLater)
            k_fill.store(smem + kKArea);
        v_fill.store(smem + kVArea);
        Cursor at{0, kTurns ? tiles.end(p) - 1 : tiles.first};
        int stage = 0, score_stage = 0;
        auto issue_ahead = [&](const Cursor &ahead, int to_stage) {
            if (!kFillLater && ahead.head < p.group) {
                issue_q(ahead, to_stage);
                issue_do(ahead, to_stage);
                issue_rows(ahead, to_stage);
            }
            fill_commit();
        };
        auto store_ahead = [&](const Cursor &ahead, int to_stage) {
            if (ahead.head < p.group) {
                if constexpr (kFillLater)
                    issue_q(ahead, to_stage);
                q_fill.store(smem + kQArea + to_stage * kQTileBytes);
                if constexpr (kFillLater) {
                    issue_do(ahead, to_stage);
                    issue_rows(ahead, to_stage);
                }
                do_fill.store(smem + kDoArea + to_stage * kQTileBytes);
                row_fill.store(smem + kRowArea + to_stage * kRowBytes);
            }
        };
        // The tile that is copied while one is visited.
        auto ahead = [&](int tiles_ahead) {
            Cursor cursor = at;
            for (int i = 0; i < tiles_ahead; i++)
                cursor.advance(tiles.first, tiles.end(p));
            return cursor;
        };
        constexpr int kAhead = kBarriers == 1 ? 2 : 1;
        issue_ahead(at, 0);
        store_ahead(at, 0);
        if constexpr (kBarriers == 1) {
            issue_ahead(ahead(1), 1);
            store_ahead(ahead(1), 1);
            fill_wait<1>();
            __syncthreads();  // K, V and the first tile are complete
        }

        auto visit = [&](auto masked) {
            constexpr bool kMasked = decltype(masked)::value;
            const uint32 q_smem = smem + kQArea + stage * kQTileBytes;
            const uint32 do_smem = smem + kDoArea + stage * kQTileBytes;
            const uint32 row_smem = smem + kRowArea + stage * kRowBytes + lane % 4 * 2 * 4;
            const uint32 score_smem = smem + kScoreArea + score_stage * kScoreBytes;
            const uint32 shared_p = smem + kSharedPArea + score_stage * kSharedPBytes + lane * 16;
            const uint32 out_lane = pair_offset(lane_rows, query_warp);
            const int other_stage = kStages > 1 ? stage ^ 1 : 0;

            if constexpr (kBarriers == 2) {
                fill_wait<0>();
                // Q, dO and their rows are complete (K and V too). The tile before is read: its stage,
                // P^T and dS^T are free.
                __syncthreads();
                if constexpr (kStages == 2)
                    issue_ahead(ahead(kAhead), other_stage);
            }

#pragma unroll 1
            for (int part = 0; part < kParts; part++) {
                const int query = warp_query + part * 8 * kQueryTiles;  // first one in the tile
                Scores s, dp;
                auto compute_s = [&] {
                    clear(s);
                    product_of_rows(s, [&](int step, uint32(&a)[kKeyTiles][4]) {
                        load_rows(a, smem + kKArea + warp_key * kPitch, lane_rows, step);
                    }, q_smem + query * kPitch, lane_cols);
                };
                auto compute_p = [&] {
                    scores_to_p(s, row_smem + query * 4, p.scale_log2);
                    if constexpr (kMasked)
                        mask_p(s, p, place.first_key + warp_key + lane / 4,
                               at.tile * kBr + query + lane % 4 * 2);
                };
                auto compute_dp = [&] {
                    clear(dp);
                    product_of_rows(dp, [&](int step, uint32(&a)[kKeyTiles][4]) {
                        load_rows(a, smem + kVArea + warp_key * kPitch, lane_rows, step);
                    }, do_smem + query * kPitch, lane_cols);
                };
                Fragments frag;
                auto add_to = [&](auto &sum, uint32 tile_smem) {
                    product_of_columns<kQueryWarps, kQuerySteps>(
                        sum,
                        [&](int step, uint32(&a)[kKeyTiles][4]) {
#pragma unroll
                            for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
                                for (int i = 0; i < 4; i++)
                                    a[m][i] = frag[step][m][i];
                        },
                        tile_smem + query * kPitch, out_lane);
                };
                compute_s();
                if constexpr (kLate)
                    compute_dp();
                compute_p();
                pack_scores(frag, s);
                if constexpr (kQueryWarps > 1)
                    store_p(frag, shared_p + (warp * kParts + part) * kQuerySteps * kKeyTiles *
                                                 kFragmentBytes);
                add_to(dv, do_smem);
                if constexpr (!kLate)
                    compute_dp();
                dp_to_ds(dp, s, row_smem + (kBr + query) * 4);
                pack_scores(frag, dp);
                if constexpr (!kApart || kQueryWarps > 1)
                    store_ds(frag, score_smem, warp_key, query, lane);
                add_to(dk, q_smem);
            }
            if constexpr (kBarriers == 1)
                fill_wait<0>();
            // P^T and dS^T are complete; with one query warp, Q and dO are read. With one barrier: the next
            // tile is complete, the one before and its P^T and dS^T are read.
            __syncthreads();
            if constexpr (kBarriers == 1)
                issue_ahead(ahead(kAhead), kStages == 2 ? stage : stage == 0 ? 2 : stage - 1);

#pragma unroll
            for (int other = 1; other < kQueryWarps; other++) {
                const int from = query_warp ^ other;
                const int from_query = from * kWarpQueries;
                const uint32 theirs =
                    shared_p + (key_warp * kQueryWarps + from) * kWarpFragments * kFragmentBytes;
                product_of_columns<kQueryWarps, kParts * kQuerySteps>(
                    dv,
                    [&](int step, uint32(&a)[kKeyTiles][4]) {
#pragma unroll
                        for (int m = 0; m < kKeyTiles; m++) {
                            const uint4 x =
                                load_shared_16(theirs + (step * kKeyTiles + m) * kFragmentBytes);
                            a[m][0] = x.x, a[m][1] = x.y, a[m][2] = x.z, a[m][3] = x.w;
                        }
                    },
                    do_smem + from_query * kPitch, out_lane);
                product_of_columns<kQueryWarps, kParts * kQuerySteps>(
                    dk,
                    [&](int step, uint32(&a)[kKeyTiles][4]) {
#pragma unroll
                        for (int m = 0; m < kKeyTiles; m++)
                            ldmatrix_x4(a[m], score_smem + ScoreTile::chunk_offset(
                                                               warp_key + m * 16 + lane % 16,
                                                               from_query / 8 + 2 * step + lane / 16));
                    },
                    q_smem + from_query * kPitch, out_lane);
            }
            if constexpr (kStages == 1) {
                if constexpr (kQueryWarps > 1)
                    __syncthreads();  // Q and dO are read before the next come into their place
                issue_ahead(ahead(kAhead), 0);
            }

            if (!kApart && p.dq != nullptr) {
                const int64 plane = int64(place.batch) * p.heads_q + first_head + at.head;
                float *sum =
                    p.dq_sum + (plane * p.q_tiles + at.tile) * kDqTile + warp * kDqWarpPart;
#pragma unroll 1
                for (int part = 0; part < kDqParts; part++) {
                    const int first = row_warp * kDqRowTiles + part * kDqPartTiles;  // m16 tile
                    constexpr int kPartSize = kDqWarpPart / kDqParts;
                    DqTile dq;
                    clear(dq);
                    product_of_columns<kColWarps, kBc / 16>(
                        dq,
                        [&](int step, uint32(&a)[kDqPartTiles][4]) {
#pragma unroll
                            for (int m = 0; m < kDqPartTiles; m++)
                                ldmatrix_x4_trans(
                                    a[m], score_smem + ScoreTile::chunk_offset(
                                                           step * 16 + lane % 8 + lane / 16 * 8,
                                                           (first + m) * 2 + lane / 8 % 2));
                        },
                        smem + kKArea, pair_offset(lane_rows, col_warp));
                    add_dq(sum + part * kPartSize, dq, lane);
                }
            }
            store_ahead(ahead(kAhead),
                        kBarriers == 1 ? (kStages == 2 ? stage : stage == 0 ? 2 : stage - 1) : other_stage);
            at.advance(tiles.first, tiles.end(p));
            stage = stage + 1 == kStages ? 0 : stage + 1;
            if constexpr (kScoreStages == 2)
                score_stage ^= 1;
        };

#pragma unroll 1
        while (at.head < p.group) {
            const int head = at.head;
#pragma unroll 1
            while (at.head == head && at.tile < tiles.unmasked)
                visit(Bool<true>{});
#pragma unroll 1
            while (at.head == head)
                visit(Bool<false>{});
        }
    }
    __syncthreads();  // every warp has read its last K and V before dK and dV come into their place
    write_rows(p.dk, p.dk_stride, p, place, dk, p.scale, smem + kKArea, warp_key, query_warp, lane);
    write_rows(p.dv, p.dv_stride, p, place, dv, 1.0f, smem + kVArea, warp_key, query_warp, lane);
}
extern "C" __global__ void __launch_bounds__(kThreads) bwd_sm80(const __grid_constant__ Params p)
{
    extern __shared__ __align__(128) char shared[];
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    key_block(p, smem, blockIdx.x);
}
// ---- before: LSE in log2 units and delta of all rows, a dQ of zeros for those that add to it ---------

constexpr int kPrepareThreads = 256;
constexpr int kPrepareRows = kPrepareThreads / kRowLanes;  // per block

extern "C" __global__ void __launch_bounds__(kPrepareThreads)
    bwd_sm80_prepare(const __grid_constant__ Params p)
{
    const int64 plane_rows = int64(p.q_tiles) * kBr;
    const int64 all_rows = int64(p.batch) * p.heads_q * plane_rows;
    const int64 index = int64(blockIdx.x) * kPrepareRows + threadIdx.x / kRowLanes;
    const int64 plane = index / plane_rows;
    const int row = index < all_rows ? int(index % plane_rows) : p.seq_q;
    const float delta =
        row_delta(p, plane / p.heads_q, plane % p.heads_q, row, threadIdx.x % kRowLanes);
    if (index < all_rows && threadIdx.x % kRowLanes == 0) {
        p.rows[index] = row_lse(p, plane, row);
        p.rows[all_rows + index] = delta;
    }
    if (kApart || p.dq == nullptr)
        return;
    // As many numbers of dQ as this block has rows.
    constexpr int kRowQuarters = kDqTile / kBr / 4;
    constexpr int kQuarters = kRowQuarters * kPrepareRows;
    float4 *sum = reinterpret_cast<float4 *>(p.dq_sum) + int64(blockIdx.x) * kQuarters;
    const int64 left = all_rows * kRowQuarters - int64(blockIdx.x) * kQuarters;
#pragma unroll
    for (int i = threadIdx.x; i < kQuarters; i += kPrepareThreads)
        if (i < left)
            sum[i] = float4{0.0f, 0.0f, 0.0f, 0.0f};
}
// ---- after: dQ in its type --------------------------------------------------------------------------------
//
// A lane has a quad's part of a fragment: rows quad_row and quad_row + 8 of an m16 tile, 8 columns.

constexpr int kConvertRows = 32;  // per block
constexpr int kConvertParts = kConvertRows * kHeadDimPadded / 16;  // of 16 numbers
constexpr int kConvertThreads = kConvertParts > 256 ? 256 : kConvertParts;
static_assert(kBr % kConvertRows == 0, "tiles are whole blocks");

extern "C" __global__ void __launch_bounds__(kConvertThreads)
    bwd_sm80_convert(const __grid_constant__ Params p)
{
    constexpr int kSlices = kBr / kConvertRows;  // of a tile's parts, whatever their rows are
    const int64 tile = blockIdx.x / kSlices;
    const int64 plane = tile / p.q_tiles;
    const int head = plane % p.heads_q;
    const int64 batch = plane / p.heads_q;
    const float *from_tile = p.dq_sum + tile * kDqTile;
    char *out = p.dq + (batch * p.dq_stride.batch + head * p.dq_stride.head) * 2;
    const float scale = p.scale;

#pragma unroll
    for (int i = threadIdx.x; i < kConvertParts; i += kConvertThreads) {
        const int part = blockIdx.x % kSlices * kConvertParts + i;
        // Eight lanes take the rows of a fragment; the next eight, the next fragment.
        const int quad_row = part % 8, fragment = part / 8;
        const float *from = from_tile + fragment * kDqFragment;
        const int warp = fragment / (kDqRowTiles * 2 * kDqPairs);
        const int m = fragment / (2 * kDqPairs) % kDqRowTiles, n = fragment % (2 * kDqPairs);
        const int64 row =
            tile % p.q_tiles * kBr + (warp / kColWarps * kDqRowTiles + m) * 16 + quad_row;
        const int chunk = (n / 2 * kColWarps + warp % kColWarps) * 2 + n % 2;
        if (chunk >= kHeadDim / 8)
            continue;
        float4 x[4];  // of lane 4 * quad_row + i, or element i of four lanes
#pragma unroll
        for (int e = 0; e < 4; e++)
            x[e] = __ldg(reinterpret_cast<const float4 *>(from) +
                         (kAddFour ? quad_row * 4 + e : e * 8 + quad_row));
        uint4 upper, lower;
        if constexpr (kAddFour) {
            upper = {pack2(x[0].x * scale, x[0].y * scale), pack2(x[1].x * scale, x[1].y * scale),
                     pack2(x[2].x * scale, x[2].y * scale), pack2(x[3].x * scale, x[3].y * scale)};
            lower = {pack2(x[0].z * scale, x[0].w * scale), pack2(x[1].z * scale, x[1].w * scale),
                     pack2(x[2].z * scale, x[2].w * scale), pack2(x[3].z * scale, x[3].w * scale)};
        } else {
            upper = {pack2(x[0].x * scale, x[1].x * scale), pack2(x[0].y * scale, x[1].y * scale),
                     pack2(x[0].z * scale, x[1].z * scale), pack2(x[0].w * scale, x[1].w * scale)};
            lower = {pack2(x[2].x * scale, x[3].x * scale), pack2(x[2].y * scale, x[3].y * scale),
                     pack2(x[2].z * scale, x[3].z * scale), pack2(x[2].w * scale, x[3].w * scale)};
        }
        char *to = out + row * p.dq_stride.seq * 2 + chunk * 16;
        if (row < p.seq_q)
            *reinterpret_cast<uint4 *>(to) = upper;
        if (row + 8 < p.seq_q)
            *reinterpret_cast<uint4 *>(to + 8 * p.dq_stride.seq * 2) = lower;
    }
}
