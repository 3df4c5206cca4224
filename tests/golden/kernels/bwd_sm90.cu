// bwd_sm90 d=128 dtype=bf16 causal=1 br=64
// op=backward abi=1 rows=64 keys=128 columns=128 workspace=rows_and_dq suffix=a maps=q/64,k/128,v/128,do/64; bwd_sm90_prepare role=prepare threads=256 smem=0 blocks=padded_rows/16; bwd_sm90 role=main threads=384 smem=164944 blocks=key_tiles; bwd_sm90_convert role=convert threads=256 smem=0 blocks=padded_rows/32
// bwd_sm90: attention backward on SM 9.0. fp16 or bf16, wgmma, tiles loaded by TMA.
// ---- the variant -------------------------------------------------------------------------------
constexpr int kHeadDim = 128;            // D: columns of Q, K, V, O and their gradients
constexpr int kGroups = 2;             // warpgroups that compute
constexpr int kBr = 64;                // query rows per tile
constexpr int kStages = 2;             // tiles of Q and dO in shared memory
constexpr bool kCausal = 1 == 1;  // query i sees keys <= i + seq_k - seq_q
constexpr bool kHeavyFirst = false;       // blocks with the most work come first among those dealt out in turn
constexpr unsigned kTogether = 128;       // tiles of keys, of several heads, that are dealt out in turn
constexpr bool kTurns = false;
constexpr bool kApart = false;            // dQ is summed by the blocks that compute dK and dV
constexpr bool kSwizzle = true;           // rows of a tile: 16-byte chunks permuted by row

// ---- the element, the SM and the features: what a kernel lacks costs nothing -------------------------------------
constexpr bool kBf16 = true;        // elements are bf16; else fp16
constexpr bool kTuring = false;      // products are m16n8k8, tiles pass through registers
constexpr bool kWgmma = true;       // products are those of warpgroups

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
constexpr int kGroupKeys = 64;                 // of wgmma
constexpr int kBc = 128;                     // key rows per block
constexpr int kWarps = 4 * kGroups;            // that compute
constexpr int kReaders = 8;                    // of them, that read a tile of Q, and as many one of dO
constexpr int kWorkers = 32 * kWarps;
constexpr int kThreads = kWorkers + 128;       // the last warpgroup loads
constexpr int kHeadDimPadded = (kHeadDim + 15) / 16 * 16;
constexpr int kDepth = kHeadDimPadded / 16;    // k16 steps of S and dP
constexpr int kPages = (kHeadDim + 63) / 64;   // 64 columns of a tile lie together
constexpr int kKeyTiles = 1, kQueryWarps = 1;  // m16 tiles of keys per warp, which has all queries of a tile
constexpr int kQueryTiles = kBr / 8;           // n8 tiles of queries
constexpr int kQuerySteps = kBr / 16;          // k16 steps of dK and dV
constexpr int kOutPairs = kDepth;              // 16-column pairs of n8 tiles of dK and dV

// dQ: warpgroups divide its rows by 64, and then its columns.
constexpr int kRowGroups = kBr / 64, kColWarps = kGroups / kRowGroups;
constexpr int kDqRowTiles = 1, kDqPartTiles = 1;        // m16 tiles per warp
constexpr int kDqColumns = 64;                       // of a warpgroup, or at a time
constexpr int kDqPairs = kDqColumns / 16;

// Registers: the block is launched with even shares; then the loading warpgroup gives some of its own to
// the others.
constexpr int kLoadRegisters = 24;
constexpr int kGroupRegisters = 240;
constexpr int kAllRegisters = kLoadRegisters + kGroups * kGroupRegisters;
static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 128, "D is a multiple of 8 up to 128");
static_assert(kBr % 64 == 0 && kGroups % kRowGroups == 0, "warpgroups divide dQ evenly");
static_assert(kBc == kGroups * kGroupKeys && kReaders == kWarps, "and keys, and read all of Q and dO");
static_assert(kColWarps * kDqColumns >= kHeadDimPadded, "all of dQ is computed");
static_assert(kAllRegisters <= (kGroups + 1) * (65536 / kThreads / 8 * 8),
              "warpgroups would wait for registers that nobody gives");

// ---- shared memory -----------------------------------------------------------------------------
//
// Tiles are pages of 64 columns, [page][row][64], rows of 128 bytes whose 16-byte chunks are permuted by
// row % 8: the 128-byte swizzle that TMA writes and wgmma reads. So is dS^T [keys][queries].
constexpr int kPageColumns = 64, kPageRowBytes = 128;
constexpr int kQPageBytes = kBr * kPageRowBytes;
constexpr int kQTileBytes = kPages * kQPageBytes;
constexpr int kKvPageBytes = kBc * kPageRowBytes;
constexpr int kKvTileBytes = kPages * kKvPageBytes;
constexpr int kDqStep = kDqColumns == kPageColumns ? kKvPageBytes : kDqColumns * 2;  // columns of K to those behind
constexpr int kScoreBytes = kRowGroups * kKvPageBytes;
constexpr int kScoreStages = 2;      // of dS^T: one is written while others may still read the one before
constexpr int kRowBytes = kBr * 4;   // LSE in log2 units, or delta, of the rows of a tile
constexpr int kKArea = 0;
constexpr int kVArea = kKArea + kKvTileBytes;
constexpr int kQArea = kVArea + kKvTileBytes;
constexpr int kDoArea = kQArea + kStages * kQTileBytes;
constexpr int kScoreArea = kDoArea + kStages * kQTileBytes;
constexpr int kLseArea = kScoreArea + kScoreStages * kScoreBytes;
constexpr int kDeltaArea = kLseArea + kStages * kRowBytes;
constexpr int kBarrierArea = kDeltaArea + kStages * kRowBytes;
constexpr int kSmemBytes = kBarrierArea + (2 + 4 * kStages) * 8;
static_assert(kSmemBytes == 164944, "the generator computed another size");
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
// ---- barriers in shared memory, and loads that arrive at them -------------------------------------------
//
// A barrier's phase ends when all of its arrivals are there, and all bytes that were announced. A wait names
// the parity of the phase: 0 for the first one. Before that has begun, a wait for parity 1 returns at once.

// A tensor map, as the driver encodes it.
struct alignas(64) TensorMap {
    char opaque[128];
};

// Those of Q, K, V and dO: [batch, head, seq, column], boxes of rows x 64 columns. What is behind the end of a
// sequence or a row is zeros.
struct TensorMaps {
    TensorMap q;
    TensorMap k, v, d_o;
};

__device__ __forceinline__ void barrier_init(uint32 barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Barriers that this thread made are seen by what the tensor maps' loads go through.
__device__ __forceinline__ void barrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32 barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// The same by one lane of a warp, without a branch: in one the compiler would compute shared memory's address anew, and
// take all that follows from it, descriptors of products among that, for different in the lanes.
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

// Arrive, and announce bytes that are to come.
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

// A coordinate of a tensor map. Where batches or heads are the same memory, the map has one of them.
__device__ __forceinline__ int coordinate(int index, int64 stride)
{
    return stride == 0 ? 0 : index;
}

// Rows from `row` on of 64 columns from `column` on, into a page of a tile.
__device__ __forceinline__ void load_page(uint32 smem, const TensorMap &map, uint32 barrier, int column, int row,
                                          int head, int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(smem),
                 "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch)
                 : "memory");
}

// Bytes that lie one after the other, multiples of 16.
__device__ __forceinline__ void load_bytes(uint32 smem, const void *gmem, int bytes, uint32 barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem),
                 "l"(gmem), "r"(bytes), "r"(barrier)
                 : "memory");
}

// What this thread did to shared memory is done before loads that come into the same place, behind a barrier.
__device__ __forceinline__ void release_to_loads()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// ---- places of tiles in shared memory, filled in turn ----------------------------------------------------------
//
// A barrier's phase of a stage ends once for each tile that comes there, so its parity changes from round to round.

// Counts tiles through so many stages.
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
};
using Stage = StageOf<kStages>;
// ---- products of a warpgroup ------------------------------------------------------------------------------
//
// wgmma runs beside the threads that issued it. A fence orders what they did with its registers before; a
// commit closes a group; a wait for groups makes their registers readable, and what they read of shared memory
// free. Accumulators are laid out as mma's: 16 rows a warp, n8 column tiles. pin() keeps the compiler from
// moving uses of registers over the asm around it.

using uint64 = unsigned long long;

__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// What this thread wrote to shared memory, and waited for, is seen by products, behind a barrier of theirs.
__device__ __forceinline__ void fence_products()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Wait until at most kPending committed groups are unfinished.
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

// How wgmma finds a tile in shared memory, 128-byte swizzle; addresses count 16 bytes. page_bytes: from one page
// of 64 columns to the next, where a product reads several at a time (V).
__device__ __forceinline__ uint64 tile_descriptor(uint32 smem, int page_bytes)
{
    constexpr uint64 kSwizzle128 = uint64(1) << 62, kRowsOf8 = uint64(8 * kPageRowBytes / 16) << 32;
    return kSwizzle128 | kRowsOf8 | uint64(page_bytes / 16) << 16 | smem / 16;
}

// The products clobber no memory for the compiler: what they read of shared memory came by loads of which it
// knows nothing, and the barriers that order these, like fence, commit and wait around the products, do. With a clobber
// each of the products in a row would end what the compiler keeps in registers.

// s = a b^T, or s += a b^T: 16 columns of 64 rows of K or V, and of the rows of a tile of Q or dO.
__device__ __forceinline__ void wgmma_scores(float (&d)[1][kQueryTiles][4], uint64 a, uint64 b, int add)
{
    asm volatile("{\n"
                 "    .reg .pred add;\n"
                 "    setp.ne.s32 add, %34, 0;\n"
                 "    wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "%32, %33, add, 1, 1, 0, 0;\n"
                 "}"
                 : "+f"(d[0][0][0]), "+f"(d[0][0][1]), "+f"(d[0][0][2]), "+f"(d[0][0][3]), "+f"(d[0][1][0]), "+f"(d[0][1][1]), "+f"(d[0][1][2]), "+f"(d[0][1][3]), "+f"(d[0][2][0]), "+f"(d[0][2][1]), "+f"(d[0][2][2]), "+f"(d[0][2][3]), "+f"(d[0][3][0]), "+f"(d[0][3][1]), "+f"(d[0][3][2]), "+f"(d[0][3][3]), "+f"(d[0][4][0]), "+f"(d[0][4][1]), "+f"(d[0][4][2]), "+f"(d[0][4][3]), "+f"(d[0][5][0]), "+f"(d[0][5][1]), "+f"(d[0][5][2]), "+f"(d[0][5][3]), "+f"(d[0][6][0]), "+f"(d[0][6][1]), "+f"(d[0][6][2]), "+f"(d[0][6][3]), "+f"(d[0][7][0]), "+f"(d[0][7][1]), "+f"(d[0][7][2]), "+f"(d[0][7][3])
                 : "l"(a), "l"(b), "r"(add));
}

// A warpgroup's registers change hands; all of its warps do it together.
template <int kRegisters> __device__ __forceinline__ void give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters> __device__ __forceinline__ void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// named_barrier, but these threads only arrive: they do not wait for the others.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
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
// Two neighbouring accumulator tiles are laid out like one 16x16 A fragment.
__device__ __forceinline__ void pack_fragment(uint32 (&a)[4], const float (&left)[4],
                                              const float (&right)[4])
{
    a[0] = pack2(left[0], left[1]);
    a[1] = pack2(left[2], left[3]);
    a[2] = pack2(right[0], right[1]);
    a[3] = pack2(right[2], right[3]);
}
// ---- the products of a tile -----------------------------------------------------------------------------

// Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void stmatrix_x4(uint32 smem, const uint32 (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem), "r"(r[0]), "r"(r[1]),
                 "r"(r[2]), "r"(r[3])
                 : "memory");
}

// dS^T in shared memory.
struct ScoreTile {
    static __device__ __forceinline__ uint32 chunk_offset(int key, int chunk)
    {
        return chunk / 8 * kKvPageBytes + TileForm<kPageColumns>::chunk_offset(key, chunk % 8);
    }
};

// Put dS^T of a warp into its tile.
__device__ __forceinline__ void store_ds(const uint32 (&a)[kQuerySteps][1][4], uint32 score_smem, int first_key,
                                         int lane)
{
#pragma unroll
    for (int step = 0; step < kQuerySteps; step++)
        stmatrix_x4(score_smem + ScoreTile::chunk_offset(first_key + lane % 16, 2 * step + lane / 16), a[step][0]);
}

using Sums = float[1][2 * kOutPairs][4];  // of 64 rows of dK or dV

// sums += a b: 16 columns of P^T or dS^T, which are in registers, and 16 rows of a tile of dO or Q.
__device__ __forceinline__ void wgmma_sums(Sums &d, const uint32 (&a)[4], uint64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
                 : "+f"(d[0][0][0]), "+f"(d[0][0][1]), "+f"(d[0][0][2]), "+f"(d[0][0][3]), "+f"(d[0][1][0]), "+f"(d[0][1][1]), "+f"(d[0][1][2]), "+f"(d[0][1][3]), "+f"(d[0][2][0]), "+f"(d[0][2][1]), "+f"(d[0][2][2]), "+f"(d[0][2][3]), "+f"(d[0][3][0]), "+f"(d[0][3][1]), "+f"(d[0][3][2]), "+f"(d[0][3][3]), "+f"(d[0][4][0]), "+f"(d[0][4][1]), "+f"(d[0][4][2]), "+f"(d[0][4][3]), "+f"(d[0][5][0]), "+f"(d[0][5][1]), "+f"(d[0][5][2]), "+f"(d[0][5][3]), "+f"(d[0][6][0]), "+f"(d[0][6][1]), "+f"(d[0][6][2]), "+f"(d[0][6][3]), "+f"(d[0][7][0]), "+f"(d[0][7][1]), "+f"(d[0][7][2]), "+f"(d[0][7][3]), "+f"(d[0][8][0]), "+f"(d[0][8][1]), "+f"(d[0][8][2]), "+f"(d[0][8][3]), "+f"(d[0][9][0]), "+f"(d[0][9][1]), "+f"(d[0][9][2]), "+f"(d[0][9][3]), "+f"(d[0][10][0]), "+f"(d[0][10][1]), "+f"(d[0][10][2]), "+f"(d[0][10][3]), "+f"(d[0][11][0]), "+f"(d[0][11][1]), "+f"(d[0][11][2]), "+f"(d[0][11][3]), "+f"(d[0][12][0]), "+f"(d[0][12][1]), "+f"(d[0][12][2]), "+f"(d[0][12][3]), "+f"(d[0][13][0]), "+f"(d[0][13][1]), "+f"(d[0][13][2]), "+f"(d[0][13][3]), "+f"(d[0][14][0]), "+f"(d[0][14][1]), "+f"(d[0][14][2]), "+f"(d[0][14][3]), "+f"(d[0][15][0]), "+f"(d[0][15][1]), "+f"(d[0][15][2]), "+f"(d[0][15][3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// dq = a b, or dq += a b: 16 keys of dS, which is there as dS^T, and 16 rows of K.
__device__ __forceinline__ void wgmma_dq(float (&d)[1][2 * kDqPairs][4], uint64 a, uint64 b, int add)
{
    asm volatile("{\n"
                 "    .reg .pred add;\n"
                 "    setp.ne.s32 add, %34, 0;\n"
                 "    wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "%32, %33, add, 1, 1, 1, 1;\n"
                 "}"
                 : "+f"(d[0][0][0]), "+f"(d[0][0][1]), "+f"(d[0][0][2]), "+f"(d[0][0][3]), "+f"(d[0][1][0]), "+f"(d[0][1][1]), "+f"(d[0][1][2]), "+f"(d[0][1][3]), "+f"(d[0][2][0]), "+f"(d[0][2][1]), "+f"(d[0][2][2]), "+f"(d[0][2][3]), "+f"(d[0][3][0]), "+f"(d[0][3][1]), "+f"(d[0][3][2]), "+f"(d[0][3][3]), "+f"(d[0][4][0]), "+f"(d[0][4][1]), "+f"(d[0][4][2]), "+f"(d[0][4][3]), "+f"(d[0][5][0]), "+f"(d[0][5][1]), "+f"(d[0][5][2]), "+f"(d[0][5][3]), "+f"(d[0][6][0]), "+f"(d[0][6][1]), "+f"(d[0][6][2]), "+f"(d[0][6][3]), "+f"(d[0][7][0]), "+f"(d[0][7][1]), "+f"(d[0][7][2]), "+f"(d[0][7][3])
                 : "l"(a), "l"(b), "r"(add));
}

// S^T = K Q^T or dP^T = V dO^T of a warpgroup: started. rows_smem: its 64 rows of K or V.
__device__ __forceinline__ void start_scores(float (&s)[1][kQueryTiles][4], uint32 rows_smem, uint32 tile_smem)
{
    const uint64 a = tile_descriptor(rows_smem, 0), b = tile_descriptor(tile_smem, 0);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kDepth; step++)
        wgmma_scores(s, a + (step / 4 * kKvPageBytes + step % 4 * 32) / 16,
                     b + (step / 4 * kQPageBytes + step % 4 * 32) / 16, step > 0);
    wgmma_commit();
}

// dV += P^T dO or dK += dS^T Q of a warpgroup: started.
__device__ __forceinline__ void start_sums(Sums &sums, const uint32 (&a)[kQuerySteps][1][4], uint32 tile_smem)
{
    const uint64 b = tile_descriptor(tile_smem, kQPageBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kQuerySteps; step++)
        wgmma_sums(sums, a[step][0], b + step * 16 * kPageRowBytes / 16);
    wgmma_commit();
}

// dQ = dS K of a warpgroup's rows and columns: started. All keys of the block take part.
__device__ __forceinline__ void start_dq(float (&dq)[1][2 * kDqPairs][4], uint32 score_smem, uint32 k_smem)
{
    const uint64 a = tile_descriptor(score_smem, 0), b = tile_descriptor(k_smem, kKvPageBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kBc / 16; step++)
        wgmma_dq(dq, a + step * 16 * kPageRowBytes / 16, b + step * 16 * kPageRowBytes / 16, step > 0);
    wgmma_commit();
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
    named_barrier(1, kWorkers);  // the rows are complete: warps wrote parts of each

    out += (place.batch * stride.batch + place.kv_head * stride.head +
            place.first_key * stride.seq) * 2;
#pragma unroll
    for (int i = threadIdx.x; i < kBc * kChunks; i += kWorkers) {
        const int r = i / kChunks, chunk = i % kChunks;  // padding too: eight lanes read without a gap
        if (chunk < kHeadDim / 8 && place.first_key + r < p.seq_k)
            *reinterpret_cast<uint4 *>(out + r * stride.seq * 2 + chunk * 16) =
                load_shared_16(smem + chunk_offset(r, chunk));
    }
}
// ---- backward -----------------------------------------------------------------------------------------
//
// One block computes kBc rows of dK and dV, 64 in each of its warpgroups but the last, which loads, and adds
// to dQ, over all queries that see its keys. Per tile of kBr queries:
//
//     S^T = K Q^T      P^T = 2^(S^T - lse)          dV += P^T dO
//     dP^T = V dO^T    dS^T = P^T * (dP^T - delta)  dK += dS^T Q     dQ += dS K
//
// Keys are rows of S^T, so that P^T and dS^T are operands of dV and dK in the registers where they were computed.
// dS^T goes through shared memory for dQ alone, of which each warpgroup computes a part from all keys.
//
// Products run beside what is computed of scores:
//
//     start S, dP | wait for S, P | start dV | wait for dP, dS | others' dS is there | start dQ, dK |
//     wait for dQ, add it | wait for dK
//
// Each stage of Q (with LSE) and of dO (with delta) has two barriers: `full`, at which the loads arrive, and
// `empty`, at which every warp arrives that has read it.

// Where the barriers are.
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

    __device__ __forceinline__ uint32 q_full(int stage) const
    {
        return smem + kBarrierArea + 16 + stage * 32;
    }

    __device__ __forceinline__ uint32 q_empty(int stage) const
    {
        return q_full(stage) + 8;
    }

    __device__ __forceinline__ uint32 do_full(int stage) const
    {
        return q_full(stage) + 16;
    }

    __device__ __forceinline__ uint32 do_empty(int stage) const
    {
        return q_full(stage) + 24;
    }

    __device__ __forceinline__ void init() const
    {
        barrier_init(k_full(), 1);
        barrier_init(v_full(), 1);
        for (int stage = 0; stage < kStages; stage++) {
            barrier_init(q_full(stage), 1);
            barrier_init(do_full(stage), 1);
            barrier_init(q_empty(stage), kReaders);
            barrier_init(do_empty(stage), kReaders);
        }
        barrier_init_fence();
    }
};

// A tile of queries of a head of the group, in the order in which they are visited.
struct Cursor {
    int head, tile;

    __device__ __forceinline__ void advance(const TileRange &tiles, int end)
    {
        if (kTurns && --tile < tiles.first) {
            tile = end - 1;
            head++;
        } else if (!kTurns && ++tile == end) {
            tile = tiles.first;
            head++;
        }
    }
};

// One thread's: everything that a block reads.
struct Loads {
    const Params &p;
    const TensorMaps &maps;
    const Barriers &barriers;
    const BlockPlace &place;

    template <int kPageBytes>
    __device__ __forceinline__ void load_tile(uint32 area, const TensorMap &map, const Strides &stride, uint32 full,
                                              int row, int head) const
    {
#pragma unroll
        for (int page = 0; page < kPages; page++)
            load_page(area + page * kPageBytes, map, full, page * kPageColumns, row, coordinate(head, stride.head),
                      coordinate(place.batch, stride.batch));
    }

    __device__ __forceinline__ void load_keys(uint32 area, const TensorMap &map, const Strides &stride,
                                              uint32 full) const
    {
        barrier_expect(full, kKvTileBytes);
        load_tile<kKvPageBytes>(barriers.smem + area, map, stride, full, place.first_key, place.kv_head);
    }

    // A tile of Q or dO, and LSE or delta of its rows.
    __device__ __forceinline__ void load_queries(uint32 area, const TensorMap &map, const Strides &stride,
                                                 uint32 row_area, const float *rows, uint32 full,
                                                 const Cursor &at) const
    {
        const int head = place.kv_head * p.group + at.head;
        const int64 plane = int64(place.batch) * p.heads_q + head;
        barrier_expect(full, kQTileBytes + kRowBytes);
        load_tile<kQPageBytes>(barriers.smem + area, map, stride, full, at.tile * kBr, head);
        load_bytes(barriers.smem + row_area, rows + (plane * p.q_tiles + at.tile) * kBr, kRowBytes, full);
    }

    __device__ __forceinline__ void load_all(const TileRange &tiles, Cursor at, int visits) const
    {
        const int64 all_rows = int64(p.batch) * p.heads_q * p.q_tiles * kBr;
        Stage stage;
        load_keys(kKArea, maps.k, p.k_stride, barriers.k_full());
        bool first = true;
#pragma unroll 1
        for (; visits > 0; visits--) {
            const int i = stage.index;
            barrier_wait(barriers.q_empty(i), stage.parity ^ 1);
            load_queries(kQArea + i * kQTileBytes, maps.q, p.q_stride, kLseArea + i * kRowBytes, p.rows,
                         barriers.q_full(i), at);
            if (first)
                load_keys(kVArea, maps.v, p.v_stride, barriers.v_full());
            first = false;
            barrier_wait(barriers.do_empty(i), stage.parity ^ 1);
            load_queries(kDoArea + i * kQTileBytes, maps.d_o, p.do_stride, kDeltaArea + i * kRowBytes,
                         p.rows + all_rows, barriers.do_full(i), at);
            stage.advance();
            at.advance(tiles, tiles.end(p));
        }
    }
};

// S^T of a warp's 16 keys becomes P^T; first_key: of the warp, in the block; row_smem: LSE of this lane's first query.
__device__ __forceinline__ void make_p(Scores &s, const Params &p, const BlockPlace &place,
                                       const TileRange &tiles, const Cursor &at, int first_key, uint32 row_smem,
                                       int lane)
{
    const int key = place.first_key + first_key + lane / 4, query = at.tile * kBr + lane % 4 * 2;
    const bool masked = at.tile < tiles.unmasked;
    scores_to_p(s, row_smem, p.scale_log2);
    if (masked)
        mask_p(s, p, key, query);
}

// dK and dV of 64 keys, and what they add to dQ: of so many tiles of queries from a first one on.
__device__ __forceinline__ void compute_rows(const Params &p, const BlockPlace &place, const TileRange &tiles,
                                             Cursor at, int visits, const Barriers &barriers, int group, Sums &dk,
                                             Sums &dv)
{
    const uint32 smem = barriers.smem;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32 k_rows = smem + kKArea + group * kGroupKeys * kPageRowBytes, v_rows = k_rows + kVArea - kKArea;
    const int row_group = group / kColWarps, col_group = group % kColWarps;
    const int first_head = place.kv_head * p.group;
    Stage stage;
    uint32 score_stage = 0;
    Scores s, dp;

    barrier_wait(barriers.k_full(), 0);
    barrier_wait(barriers.v_full(), 0);
#pragma unroll 1
    for (; visits > 0; visits--) {
        const uint32 q_smem = smem + kQArea + stage.index * kQTileBytes;
        const uint32 do_smem = smem + kDoArea + stage.index * kQTileBytes;
        const uint32 row_smem = smem + kLseArea + stage.index * kRowBytes + lane % 4 * 2 * 4;
        const uint32 score_smem = smem + kScoreArea + score_stage * kScoreBytes;
        Fragments p_frag, ds_frag;
        float dq[1][2 * kDqPairs][4];

        barrier_wait(barriers.q_full(stage.index), stage.parity);
        start_scores(s, k_rows, q_smem);
        barrier_wait(barriers.do_full(stage.index), stage.parity);
        start_scores(dp, v_rows, do_smem);
        const int64 plane = int64(place.batch) * p.heads_q + first_head + at.head;
        wgmma_wait<1>();  // S^T is there
        pin(s);
        make_p(s, p, place, tiles, at, warp * 16, row_smem, lane);
        pack_scores(p_frag, s);
        start_sums(dv, p_frag, do_smem);
        wgmma_wait<1>();  // dP^T is, too
        pin(dp);
        dp_to_ds(dp, s, row_smem + kDeltaArea - kLseArea);
        pack_scores(ds_frag, dp);
        store_ds(ds_frag, score_smem, warp * 16, lane);
        fence_products();
        named_barrier(1, kWorkers);  // all of dS^T is there; that of the tile before is read
        start_dq(dq, score_smem + row_group * kKvPageBytes, smem + kKArea + col_group * kDqStep);
        start_sums(dk, ds_frag, q_smem);
        wgmma_wait<1>();  // dV and dQ are there
        pin(dv);
        pin(dq);
        if (lane == 0)
            barrier_arrive(barriers.do_empty(stage.index));
        if (p.dq != nullptr) {
            float *sum = p.dq_sum + (plane * p.q_tiles + at.tile) * kDqTile;
            add_dq(sum + ((row_group * 4 + warp % 4) * kColWarps + col_group) * kDqWarpPart, dq, lane);
        }
        wgmma_wait<0>();
        pin(dk);
        if (lane == 0)
            barrier_arrive(barriers.q_empty(stage.index));
        at.advance(tiles, tiles.end(p));
        stage.advance();
        score_stage ^= 1;
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    bwd_sm90(const __grid_constant__ Params p, const __grid_constant__ TensorMaps maps)
{
    extern __shared__ __align__(1024) char shared[];
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    const Barriers barriers{smem};
    const int index = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    const unsigned block = blockIdx.x;
    const BlockPlace place(p, block);
    const TileRange tiles(p, place);
    const Cursor begin{0, kTurns ? tiles.end(p) - 1 : tiles.first};
    const int visits = max(tiles.end(p) - tiles.first, 0) * p.group;

    if (threadIdx.x == 0)
        barriers.init();
    __syncthreads();  // the barriers are there

    if (index == kGroups) {
        give_registers<kLoadRegisters>();
        if (threadIdx.x == kWorkers && visits > 0)
            Loads{p, maps, barriers, place}.load_all(tiles, begin, visits);
        return;
    }
    take_registers<kGroupRegisters>();
    Sums dk = {}, dv = {};
    if (visits > 0)
        compute_rows(p, place, tiles, begin, visits, barriers, index, dk, dv);
    named_barrier(1, kWorkers);  // every warp has read its last K and V before dK and dV come into their place
    const int lane = threadIdx.x % 32, warp_key = threadIdx.x / 32 * 16;
    write_rows(p.dk, p.dk_stride, p, place, dk, p.scale, smem + kKArea, warp_key, 0, lane);
    write_rows(p.dv, p.dv_stride, p, place, dv, 1.0f, smem + kVArea, warp_key, 0, lane);
}
// ---- before: LSE in log2 units and delta of all rows, a dQ of zeros for those that add to it ---------

constexpr int kPrepareThreads = 256;
constexpr int kPrepareRows = kPrepareThreads / kRowLanes;  // per block

extern "C" __global__ void __launch_bounds__(kPrepareThreads)
    bwd_sm90_prepare(const __grid_constant__ Params p)
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
constexpr int kConvertParts = kConvertRows * 128 / 16;  // of 16 numbers
constexpr int kConvertThreads = kConvertParts > 256 ? 256 : kConvertParts;
static_assert(kBr % kConvertRows == 0, "tiles are whole blocks");

extern "C" __global__ void __launch_bounds__(kConvertThreads)
    bwd_sm90_convert(const __grid_constant__ Params p)
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
        const int chunk = warp % kColWarps * 2 * kDqPairs + n;
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
