// fwd_splitkv_sm80 d=128 dtype=bf16 causal=0 seqused=1 paged=1 br=16 bc=16 warps=4 teams=4 kstages=2 vstages=2 waves=2 layout=swizzle q=reg
// op=forward abi=2 rows=16 keys=64 pack=1 waves=2 splits=256 workspace=partials; fwd_splitkv_sm80 role=main threads=128 smem=65536 blocks=row_tiles; fwd_splitkv_sm80_combine role=combine threads=128 smem=0 early=1 blocks=rows/4
// fwd_splitkv_sm80: attention forward for few query rows or few blocks, on SM 8.0 and newer. fp16 or
// bf16, mma m16n8k16, tiles filled by cp.async.
// The query heads of a group are rows of one tile; teams of warps and blocks divide the keys.
// ---- the variant -------------------------------------------------------------------------------
constexpr int kHeadDim = 128;            // D: columns of Q, K, V and O
constexpr int kBr = 16;                // query rows per block
constexpr int kBc = 16;                // key and value rows per tile
constexpr int kWarps = 4;          // a warp owns whole rows: no softmax across warps
constexpr int kTeams = 4;          // groups of warps that share the rows and divide the keys
constexpr int kKStages = 2;      // K tiles in shared memory
constexpr int kVStages = 2;      // V tiles in shared memory
constexpr bool kCausal = 0 == 1;  // query i sees keys <= i + seq_k - seq_q
constexpr bool kBf16 = true;              // elements are bf16
constexpr bool kSwizzle = true;           // rows of a tile: 16-byte chunks permuted by row
constexpr bool kQInRegisters = true;      // Q is read from shared memory once

constexpr bool kSpreadFill = false;       // all of them behind one step: their addresses live shorter

// ---- what follows from it ----------------------------------------------------------------------
constexpr int kThreads = kWarps * 32;
constexpr int kTeamThreads = kThreads / kTeams;
constexpr int kRowTiles = kBr * kTeams / (16 * kWarps);  // m16 row tiles per warp
constexpr int kColTiles = kBc / 8;                    // n8 column tiles of S
constexpr int kOutTiles = kHeadDim / 8;               // n8 column tiles of O
constexpr int kHeadDimPadded = (kHeadDim + 15) / 16 * 16;  // columns in shared memory, zero-filled
constexpr int kDepth = kHeadDimPadded / 16;           // k16 steps of S = Q K^T
constexpr bool kJoint = kKStages == kVStages && kKStages > 1;  // K and V of a tile are one stage

static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 256, "D is a multiple of 8 up to 256");
static_assert(kWarps % kTeams == 0, "teams are of one size");
static_assert(kBr * kTeams % (16 * kWarps) == 0, "a warp owns whole m16 row tiles");
static_assert(kBc % 16 == 0, "P V runs in k16 steps");
static_assert(kJoint || !kSpreadFill, "V is waited for right behind S");
static_assert(kJoint || kVStages == 1, "V is double-buffered only together with K");
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

// The members of a parameter block, params.def: FA2I_PARAM(kind, name).
#define FA2I_INPUT   const char *
#define FA2I_OUTPUT  char *
#define FA2I_FLOATS  float *
#define FA2I_STRIDES Strides
#define FA2I_FLOAT   float
#define FA2I_INT     int
#define FA2I_PARAM(kind, name) FA2I_##kind name;

// ---- parameters ------------------------------------------------------------------------------------
#define FA2I_INT64   int64
#define FA2I_INT64S  const int64 *
#define FA2I_INTS    const int *
#define FA2I_STEPS   PageSteps
struct PageSteps {
    uint32 page, row, bytes;
};
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
/* seqused, varlen or leftpad, in a kernel that divides keys: blocks of a key head (features/shares.cu.in) */
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
#define FA2I_FEATURE_PARAM(kind, name) FA2I_##kind name;
constexpr int kParamBytes = 208 + sizeof(FeatureParams);
struct Params {
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
    FeatureParams features;
};
static_assert(sizeof(Params) == kParamBytes, "what the runtime passes");
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
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(smem), "r"(x.x), "r"(x.y),
                 "r"(x.z), "r"(x.w)
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

// One number, or four that lie side by side, added in memory; nothing comes back. Four need SM 9.0.
__device__ __forceinline__ void add_global_4(float *gmem, float x)
{
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(gmem), "f"(x) : "memory");
}

__device__ __forceinline__ void add_global_16(float *gmem, const float (&x)[4])
{
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(gmem), "f"(x[0]), "f"(x[1]),
                 "f"(x[2]), "f"(x[3])
                 : "memory");
}
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
// ---- SM 8.0 and newer -----------------------------------------------------------------------------

// c += a b: a is 16x16 row-major, b is 16x8 column-major, fp32 accumulation.
__device__ __forceinline__ void mma_k16(float (&c)[4], const uint32 (&a)[4], uint32 b0, uint32 b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two elements in one register, rounded to nearest even; lo in the lower half.
__device__ __forceinline__ uint32 pack2(float lo, float hi)
{
    uint32 x;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(hi), "f"(lo));
    return x;
}

// Both elements of a register.
__device__ __forceinline__ float2 unpack2(uint32 x)
{
    return {__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)};
}

// 16 bytes from global to shared memory, past the L1 cache, if wanted: a predicate, where a branch would
// part the instructions around it.
__device__ __forceinline__ void cp_async_16(uint32 smem, const char *gmem, bool wanted)
{
    asm volatile(
        "{\n"
        "    .reg .pred wanted;\n"
        "    setp.ne.s32 wanted, %2, 0;\n"
        "    @wanted cp.async.cg.shared.global.L2::128B [%0], [%1], 16;\n"
        "}" ::"r"(smem),
        "l"(gmem), "r"(int(wanted))
        : "memory");
}

// The same, but 16 zero bytes unless keep; gmem is not read then.
__device__ __forceinline__ void cp_async_16_or_zero(uint32 smem, const char *gmem, bool wanted,
                                                    bool keep)
{
    asm volatile(
        "{\n"
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
    static constexpr int kChunks = kColumns / 8;  // 16-byte chunks per row
    static constexpr int kPitch = (kSwizzle ? kChunks : kChunks + 1) * 16;  // bytes per row
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

// Offsets of the areas. Q in registers is read once, so its tile shares space with V.
constexpr int kQArea = kQInRegisters ? kTeams * kKStages * kKvTileBytes : 0;
constexpr int kKArea = kQInRegisters ? 0 : kQTileBytes;
constexpr int kVArea = kKArea + kTeams * kKStages * kKvTileBytes;
constexpr int kVBytes = kTeams * kVStages * kKvTileBytes;
constexpr int kTileBytes =
    kVArea + (kQInRegisters && kQTileBytes > kVBytes ? kQTileBytes : kVBytes);
// Afterwards the teams' results: rows of O in fp32 (write_split.cu.in), maxima and sums.
constexpr int kMergeBytes = kTeams * kBr * (kHeadDim * 4 + (160 - kHeadDim * 4 % 128) % 128 + 8);
constexpr int kSmemBytes = kTileBytes > kMergeBytes ? kTileBytes : kMergeBytes;
static_assert(kSmemBytes == 65536, "the generator computed another size");

// Where keys are divided, short kernels wait for memory once: Q passes through the one V tile of the first team that no
// copy is on its way to yet, so that the others are on theirs before it is read.
constexpr bool kQBehind = true && kQInRegisters && kJoint && kQTileBytes <= kKvTileBytes;

// Where a tile of K or V lies while it is in shared memory. A team's tiles are kTeams apart.
__device__ __forceinline__ uint32 k_stage(uint32 smem, int team, int tile)
{
    return smem + kKArea + (team * kKStages + tile / kTeams % kKStages) * kKvTileBytes;
}

__device__ __forceinline__ uint32 v_stage(uint32 smem, int team, int tile)
{
    return smem + kVArea + (team * kVStages + tile / kTeams % kVStages) * kKvTileBytes;
}
// ---- filling a tile from global memory: cp.async ----------------------------------------------------
//
// A thread always copies the same chunk column, of rows kRowStep apart: neighbouring lanes take
// neighbouring chunks. Chunks behind kHeadDim and rows behind the tensor become zeros.

// The passes of a fill that are issued at once: part `part` of `parts`, if wanted.
struct Share {
    int part, parts;
    bool wanted;
};
constexpr Share kWhole = {0, 1, true};

// Which chunks of a [kRows][kHeadDimPadded] tile a thread copies, of kCount that share the work. Nothing
// of it is kept between tiles: thread_index() cannot be moved out of the loop, so these addresses are
// computed again for each tile, which costs a few instructions and saves the registers that the
// accumulators need.
template <int kRows, int kCount> struct FillPlan {
    static constexpr int kRowStep = kCount / kChunks;  // rows per pass
    static constexpr int kPasses = (kRows + kRowStep - 1) / kRowStep;
    static constexpr bool kAllThreads = kRowStep * kChunks == kCount;
    static constexpr bool kAllRows = kRows % kRowStep == 0;
    static constexpr bool kAllColumns = kHeadDim == kHeadDimPadded;

    const int first_row, chunk;

    __device__ __forceinline__ FillPlan()
        : FillPlan(kCount < kThreads ? thread_index() % kCount : thread_index())
    {
    }

    __device__ __forceinline__ explicit FillPlan(int thread)
        : first_row(thread / kChunks), chunk(thread % kChunks)
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
        return kAllColumns || chunk < kHeadDim / 8;
    }

    // In shared memory, from the tile's start.
    __device__ __forceinline__ uint32 offset(int pass) const
    {
        if constexpr (kRowStep % 8 == 0)  // the swizzle is the same in every pass
            return chunk_offset(first_row, chunk) + pass * kRowStep * kPitch;
        else
            return chunk_offset(row(pass), chunk);
    }
};

template <int kRows, int kCount> struct Fill {
    using Plan = FillPlan<kRows, kCount>;

    // Start copying a share of a tile to smem. address(row): where its row begins in global memory; rows
    // from valid_rows on are zeros. kFull: all rows are valid.
    template <bool kFull, class Address>
    __device__ __forceinline__ void issue(const Plan &plan, Share share, uint32 smem,
                                          int valid_rows, Address address)
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

__device__ __forceinline__ void fill_commit()
{
    cp_async_commit();
}

// Wait until at most kPending committed fills of this thread are in flight. A barrier must follow before
// other threads' chunks are read.
template <int kPending> __device__ __forceinline__ void fill_wait()
{
    cp_async_wait<kPending>();
}
// ---- fragments and the online softmax ---------------------------------------------------------------
//
// Fragments (PTX ISA, mma.m16n8k16), lane = 4 * quad_row + quad_lane: an accumulator holds, of a 16x8
// tile, row quad_row columns 2 * quad_lane, + 1 in c[0], c[1] and row quad_row + 8 in c[2], c[3]. Two
// neighbouring accumulator tiles of S are laid out like one 16x16 A fragment: P goes into the second
// product without leaving its lane. A row is shared by the four lanes of a quad.

// Rescale O only when a row's maximum has grown by more than this, in log2 units: the row keeps a stale
// maximum, P stays below 2^8 and far from overflow in fp16, and nearly all rescaling is skipped
// (as in FlashAttention-4). Where P is made by the maxima so far it may be larger: hopper/guess.cu.in.
constexpr float kLazyRescale = 8.0f;

// Per row of this lane; [row tile][rows quad_row, quad_row + 8].
struct RowState {
    float max[kRowTiles][2];  // of raw scores, possibly stale; -infinity before the first key
    float sum[kRowTiles][2];  // of this lane's columns only; reduced over the quad at the end
};

// How a row begins: it has seen no key.
__device__ __forceinline__ void begin_rows(RowState &row)
{
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            row.max[m][h] = minus_infinity();
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

// S becomes P = 2^(scale_log2 * (S - max)); the sums grow; O is rescaled if a maximum has grown enough.
// kUnseen: some rows may have seen no key yet, their maximum is -infinity.
template <bool kUnseen>
__device__ __forceinline__ void softmax_tile(float (&s)[kRowTiles][kColTiles][4], RowState &row,
                                             float (&o)[kRowTiles][kOutTiles][4], float scale_log2)
{
    float tile_max[kRowTiles][2];  // of this lane's columns, until a row needs it
    bool grown = false;
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float x = fmaxf(s[m][0][2 * h], s[m][0][2 * h + 1]);
#pragma unroll
            for (int n = 1; n < kColTiles; n++)
                x = fmaxf(x, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
            tile_max[m][h] = x;
            grown |= (x - row.max[m][h]) * scale_log2 > kLazyRescale;
        }
    }

    if (__any_sync(0xffffffffu, grown)) {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                tile_max[m][h] = fmaxf(row.max[m][h], quad_max(tile_max[m][h]));
                // -infinity minus itself: no key yet, nothing to rescale.
                const bool none = kUnseen && tile_max[m][h] == minus_infinity();
                const float alpha =
                    none ? 1.0f : exp2_approx((row.max[m][h] - tile_max[m][h]) * scale_log2);
                row.max[m][h] = tile_max[m][h];
                row.sum[m][h] *= alpha;
#pragma unroll
                for (int n = 0; n < kOutTiles; n++) {
                    o[m][n][2 * h] *= alpha;
                    o[m][n][2 * h + 1] *= alpha;
                }
            }
        }
    }

#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const bool none = kUnseen && row.max[m][h] == minus_infinity();
            const float shift = none ? 0.0f : row.max[m][h] * scale_log2;
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
// ---- the two products of a tile ---------------------------------------------------------------------
//
// behind_step(step) is called behind the instructions of each k16 step: what it issues is under way while
// the tensor cores work.

// S = Q K^T for one tile. q_frag is used when Q is in registers, q_smem (this warp's rows) when not.
template <class BehindStep>
__device__ __forceinline__ void product_qk(float (&s)[kRowTiles][kColTiles][4],
                                           const uint32 (&q_frag)[kRowTiles][kDepth][4],
                                           uint32 q_smem, uint32 k_smem, uint32 lane_rows,
                                           uint32 lane_cols, BehindStep behind_step)
{
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
        for (int n = 0; n < kColTiles; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[m][n][e] = 0.0f;

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
                ldmatrix_x4(a[m], q_smem + pair_offset(lane_rows, step) + m * 16 * kPitch);
            }
        }
#pragma unroll
        for (int n = 0; n < kColTiles; n += 2) {
            uint32 b[4];  // columns n * 8 ... + 15: b[0], b[1] of the first n8 tile, b[2], b[3] of the next
            ldmatrix_x4(b, k_smem + pair_offset(lane_cols, step) + n * 8 * kPitch);
#pragma unroll
            for (int m = 0; m < kRowTiles; m++) {
                mma_k16(s[m][n], a[m], b[0], b[1]);
                mma_k16(s[m][n + 1], a[m], b[2], b[3]);
            }
        }
        behind_step(step);
    }
}

// O += P V for one tile; P is what softmax_tile left in s.
template <class BehindStep>
__device__ __forceinline__ void product_pv(float (&o)[kRowTiles][kOutTiles][4],
                                           const float (&s)[kRowTiles][kColTiles][4],
                                           uint32 v_smem, uint32 lane_rows, BehindStep behind_step)
{
#pragma unroll
    for (int step = 0; step < kBc / 16; step++) {
        uint32 a[kRowTiles][4];
#pragma unroll
        for (int m = 0; m < kRowTiles; m++) {
            const float(&left)[4] = s[m][2 * step];
            const float(&right)[4] = s[m][2 * step + 1];
            a[m][0] = pack2(left[0], left[1]);
            a[m][1] = pack2(left[2], left[3]);
            a[m][2] = pack2(right[0], right[1]);
            a[m][3] = pack2(right[2], right[3]);
        }
#pragma unroll
        for (int n = 0; n < kOutTiles; n += 2) {
            uint32 b[4];
            ldmatrix_x4_trans(b, v_smem + pair_offset(lane_rows, n / 2) + step * 16 * kPitch);
#pragma unroll
            for (int m = 0; m < kRowTiles; m++) {
                mma_k16(o[m][n], a[m], b[0], b[1]);
                if (n + 1 < kOutTiles)  // an odd count: the last columns are padding
                    mma_k16(o[m][n + 1], a[m], b[2], b[3]);
            }
        }
        behind_step(step);
    }
}
// ---- lengths: what device memory says of a sequence ------------------------------------------------------
//
// Whatever stands there, a sequence is kept within the tensors.

__device__ __forceinline__ int between(int least, int x, int most)
{
    return max(least, min(x, most));
}

// Keys of a sequence.
__device__ __forceinline__ int keys_used(const Params &p, int batch)
{
    return between(0, __ldg(p.features.seqused_k + batch), p.seq_k);
}

struct Sequence {
    int seq_k;  // its keys

    Sequence() = default;
    __device__ __forceinline__ Sequence(const Params &p, int batch)
        : seq_k(keys_used(p, batch))
    {
    }
};
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
struct Work {
    int row_tiles, steps;

    __device__ __forceinline__ Work(const Params &p, int batch)
    {
        const Sequence sequence(p, batch);
        int keys = sequence.seq_k;
        row_tiles = ceil_div(p.seq_q * p.group, kBr);
        steps = ceil_div(keys, kStepKeys);
    }
};

class Shares {
    int most;  // steps of a share

public:
    __device__ __forceinline__ explicit Shares(const Params &p) : most(0x7fffffff)
    {
        if (p.splits == 1)
            return;
        int64 sum = 0;
        for (int b = threadIdx.x % 32; b < p.batch; b += 32) {
            const Work work(p, b);
            sum += int64(work.row_tiles) * work.steps;
        }
        for (int lanes = 16; lanes > 0; lanes /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
        most = min(max((sum + p.splits - 1) / p.splits, int64(1)), int64(0x7fffffff));
    }

    // Of a row tile: at least one, and no more than the combining kernel has room for.
    __device__ __forceinline__ int count(const Work &work) const
    {
        const int share = max(most, ceil_div(work.steps, 256));
        return max(1, ceil_div(work.steps, share));
    }
};

// The slots of one sequence.
struct Slots {
    int batch;   // -1: there are no more sequences
    int first;   // of its slots
    int shares;  // of each of its row tiles

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
                const Work work(p, b);
                of_tile = all.count(work);
                own = work.row_tiles * of_tile;
            }
            end = own;
            for (int lanes = 1; lanes < 32; lanes *= 2) {
                const int before = __shfl_up_sync(0xffffffffu, end, lanes);
                end += lane >= lanes ? before : 0;
            }
            const uint32 found =
                __ballot_sync(0xffffffffu, b < p.batch && stop(b, first + end));
            if (found != 0) {
                const int at = 31 - __clz(found & -found);  // the first lane
                batch = begin + at;
                first += __shfl_sync(0xffffffffu, end - own, at);
                shares = __shfl_sync(0xffffffffu, of_tile, at);
                return;
            }
            first += __shfl_sync(0xffffffffu, end, 31);
        }
    }
};

// ---- where a block works: kBr packed rows, a part of the keys ---------------------------------------------
//
// The query heads that share a key head are rows of one matrix: row = query * group + head in the group,
// so that K and V are read once for all of them. The visible tiles of a row tile are divided among
// p.splits blocks; those of sequences with lengths of their own as shares.cu.in says.

struct BlockPlace {
    int first_row, rows;  // of the block; there are
    int split, key_head, batch;
    int splits;  // blocks that divide the keys of the row tile
    Sequence sequence;

    __device__ __forceinline__ explicit BlockPlace(const Params &p) : rows(p.seq_q * p.group)
    {
        const int slot = blockIdx.x % p.features.slots;
        const Slots slots(p, [=](int, int end) { return slot < end; });
        key_head = blockIdx.x / p.features.slots;
        batch = slots.batch;
        if (batch < 0)  // nothing to do
            return;
        splits = slots.shares;
        split = (slot - slots.first) % splits;
        first_row = (slot - slots.first) / splits * kBr;
        sequence = Sequence(p, batch);
    }

    __device__ __forceinline__ int kv_head(const Params &) const
    {
        return key_head;
    }

    __device__ __forceinline__ int head(const Params &p, int row) const
    {
        return key_head * p.group + row % p.group;
    }

    __device__ __forceinline__ int query_head(const Params &p, int row) const
    {
        return head(p, row);
    }

    // Position in the sequence of a row: what the causal mask compares.
    __device__ __forceinline__ int query(const Params &p, int row) const
    {
        return row / p.group;
    }

    // Element offset of a row of Q or O.
    __device__ __forceinline__ int64 offset(const Params &p, const Strides &stride, int row) const
    {
        return batch * stride.batch + head(p, row) * stride.head + query(p, row) * stride.seq;
    }

    // Index of a row in LSE.
    __device__ __forceinline__ int64 index(const Params &p, int row) const
    {
        return (int64(batch) * p.heads_q + head(p, row)) * p.seq_q + query(p, row);
    }
};
// ---- paged: K and V lie in pages ---------------------------------------------------------------------------
//
// A page has 2^page_shift rows of every head: [pages, page, Hkv, D]. Key j of a sequence is row j % page of page
// table[j / page], and a number that is no page's counts as the last one's.

// The head of K or V that a block reads: its row 0 in page 0.
__device__ __forceinline__ const char *key_plane(const char *tensor, const Strides &stride,
                                                 const BlockPlace &, int head)
{
    return tensor + head * stride.head * 2;
}

// The pages of the tiles that are copied next. The lanes that copy a row copy the same rows in all passes of a fill:
// each looks up the pages of some passes, works out where these rows begin, and tells the others.
struct PageNumbers {
    using Plan = FillPlan<kBc, kTeamThreads>;
    static constexpr int kOwn = (Plan::kPasses + kChunks - 1) / kChunks;  // passes of a lane
    static constexpr int kTiles = kJoint ? kKStages - 1 : 2;              // V of a tile behind K, K of the next with it
    static_assert(32 % kChunks == 0 && Plan::kAllThreads && kBc % Plan::kRowStep * kChunks % 32 == 0,
                  "a warp copies whole rows, and all of it takes part in a pass or none");

    const Params &p;
    const int *table;
    const int last_key;  // of the sequence
    uint32 own[kTiles][kOwn];

    __device__ __forceinline__ PageNumbers(const Params &p, const BlockPlace &place)
        : p(p), table(p.features.block_table + place.batch * p.features.table_stride),
          last_key(place.sequence.seq_k - 1)
    {
    }

    // Of this lane's pass; where a tile is that will not be read, or a row behind the sequence's end, some key of its
    // row of the table.
    __device__ __forceinline__ int key(const Plan &plan, int tile, int i) const
    {
        return max(0, min(tile * kBc + plan.row(plan.chunk + i * kChunks), last_key));
    }

    // Look up those of the tile that is `ahead` tiles behind the next one, long before they are wanted.
    __device__ __forceinline__ void find(const Plan &plan, int ahead, int tile)
    {
#pragma unroll
        for (int i = 0; i < kOwn; i++)
            own[ahead][i] = __ldg(table + (key(plan, tile, i) >> p.features.page_shift));
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

// Where the rows of the next tile begin, in K or V: 32 bits, that one instruction makes an address of.
struct TilePages {
    const int first_row;  // of this lane's rows
    const uint32 bytes;   // of a step
    uint32 own[PageNumbers::kOwn];

    __device__ __forceinline__ TilePages(const PageNumbers &numbers, const PageNumbers::Plan &plan, int tile,
                                         const PageSteps &steps)
        : first_row(plan.first_row), bytes(steps.bytes)
    {
        const auto &features = numbers.p.features;
#pragma unroll
        for (int i = 0; i < PageNumbers::kOwn; i++) {
            const uint32 page = min(numbers.own[0][i], features.pages - 1u);
            const int in_page = numbers.key(plan, tile, i) & ((1 << features.page_shift) - 1);
            own[i] = page * steps.page + in_page * steps.row;
        }
    }
};

// Row r of a tile.
__device__ __forceinline__ const char *key_row(const TilePages &pages, const char *plane, const Strides &, int, int r)
{
    const int pass = (r - pages.first_row) / PageNumbers::Plan::kRowStep;  // a constant after unrolling
    return plane + int64(__shfl_sync(0xffffffffu, pages.own[pass / kChunks], pass % kChunks, kChunks)) * pages.bytes;
}

// The tiles of K and V that a block visits.
struct TileRange {
    int first, count;  // [first, count)
    int unmasked;  // tiles from this one on need a mask

    __device__ __forceinline__ TileRange(const Params &p, const BlockPlace &place)
    {
        int keys = place.sequence.seq_k, keys_of_all = place.sequence.seq_k;  // seen by some row of the block, by every row
        if (kCausal) {
            const int offset = place.sequence.seq_k - p.seq_q;
            const int last_row = min(place.first_row + kBr, place.rows) - 1;
            keys = max(0, min(keys, place.query(p, last_row) + 1 + offset));
            keys_of_all = max(0, min(keys, place.query(p, place.first_row) + 1 + offset));
        }
        first = 0;
        count = (keys + kBc - 1) / kBc;
        unmasked = keys_of_all / kBc;
        const int share = (count - first + place.splits - 1) / place.splits;
        first = min(first + place.split * share, count);
        count = min(first + share, count);
    }
};
// ---- what happens to scores between the product and the softmax ------------------------------------------
//
// First they are transformed, then masked: a transform would turn -infinity into a number.

// Set scores to -infinity where the key is behind the tensor's end or the row's own position. first_row: of
// this warp.
__device__ __forceinline__ void mask_scores(float (&s)[kRowTiles][kColTiles][4], const Params &p,
                                            const BlockPlace &place, int first_row, int tile, int lane)
{
    int limit[kRowTiles][2];  // last visible column, from this lane's first one
    const int seen = place.sequence.seq_k - 1 - tile * kBc - lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = first_row + m * 16 + h * 8 + lane / 4;
            limit[m][h] = kCausal ? min(seen, seen + place.query(p, r) + 1 - p.seq_q) : seen;
        }
    // Columns are constants after unrolling.
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
        for (int n = 0; n < kColTiles; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (n * 8 + e % 2 > limit[m][e / 2])
                    s[m][n][e] = minus_infinity();
}
// ---- the result of a block whose teams, or which with other blocks, shared the keys of its rows -----------
//
// Partial results of one row over disjoint keys, each O_i normalised or not, merge as
// O = sum(w_i O_i), w_i = exp(m_i - max m): first among a block's teams in shared memory; then, if p.splits > 1,
// among blocks by fwd_splitkv_sm80_combine over p.partial [splits, B, Hq, Sq, D] and p.partial_lse [splits, B, Hq, Sq];
// where sequences have lengths of their own, [Hkv, slots, kBr, D] and [Hkv, slots, kBr]; where they are packed, only
// slots whose results are combined count (part_slots).

// Teams put O, maxima and sums here in fp32. The pitch is 32 bytes modulo 128: lanes of a quad store 8 bytes
// each, and four quads fill the banks once.
constexpr int kMergePitch = kHeadDim * 4 + (160 - kHeadDim * 4 % 128) % 128;
constexpr int kMergeStates = kTeams * kBr * kMergePitch;  // float2 {max, sum} [team][row]
// Lanes that read a row, 16 bytes each: whole groups of eight, so that no group crosses rows, whose
// beginnings share banks with the ends of others.
constexpr int kMergeLanes = (kHeadDim / 4 + 7) / 8 * 8;
static_assert(kMergeStates + kTeams * kBr * 8 == kMergeBytes, "O, maxima and sums of all teams fill kMergeBytes");

__device__ __forceinline__ void store_team(uint32 smem, float (&o)[kRowTiles][kOutTiles][4],
                                           RowState &row, int team, int team_row, int lane)
{
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = team * kBr + team_row + m * 16 + h * 8 + lane / 4;
            const float sum = quad_sum(row.sum[m][h]);
#pragma unroll
            for (int n = 0; n < kOutTiles; n++)
                store_shared_8(smem + r * kMergePitch + n * 32 + lane % 4 * 8, o[m][n][2 * h],
                               o[m][n][2 * h + 1]);
            if (lane % 4 < 2)  // one lane for each of the two: a store of 8 bytes takes two wavefronts
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
            const float4 x =
                load_shared_floats(smem + (team * kBr + r) * kMergePitch + column * 4);
            sum += weight * state[team].y;
            o.x += weight * x.x;
            o.y += weight * x.y;
            o.z += weight * x.z;
            o.w += weight * x.w;
        }
        multiply(row_inverse(sum));
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

__device__ __forceinline__ void write_rows(const Params &p, const BlockPlace &place,
                                           float (&o)[kRowTiles][kOutTiles][4], RowState &row,
                                           uint32 smem, int warp_row, int lane)
{
    __syncthreads();  // every warp has read its last Q, K and V before O comes into their place
    store_team(smem, o, row, threadIdx.x / kTeamThreads, warp_row, lane);
    __syncthreads();  // all teams' results are there

    for (int i = threadIdx.x; i < kBr * kMergeLanes; i += kThreads) {
        const int r = i / kMergeLanes, column = i % kMergeLanes * 4;
        const int block_row = place.first_row + r;
        if (block_row >= place.rows)
            break;
        if (column >= kHeadDim)
            continue;
        MergedRow merged(smem, r, column, p.scale_log2);
        const int64 index = place.index(p, block_row);
        if (place.splits == 1) {
            char *out = p.o + place.offset(p, p.o_stride, block_row) * 2 + column * 2;
            *reinterpret_cast<uint2 *>(out) =
                uint2{pack2(merged.o.x, merged.o.y), pack2(merged.o.z, merged.o.w)};
            if (p.lse != nullptr && column == 0)
                p.lse[index] = merged.lse(p.scale);
        } else {
            const int64 at = int64(blockIdx.x) * kBr + r;
            *reinterpret_cast<float4 *>(p.partial + at * kHeadDim + column) = merged.o;
            if (column == 0)
                p.partial_lse[at] = merged.lse(p.scale);
        }
    }
}
// ---- forward ----------------------------------------------------------------------------------------
//
// One block computes kBr rows of O. K and V tiles are visited from the last to the first, so the tiles that
// need a mask (the tensor's end, the causal diagonal) come first and the loop over the others has no
// compare code. A window has a beginning, too: there are tiles to mask at both ends.
//
// What features change has its place: which tiles are visited and which are masked (tiles.cu.in); where a
// row of K or V lies (keys.cu.in); what happens to scores (scores.cu.in: transformed, then masked) and, once
// the softmax has made P of them, to P, which product_pv alone reads; how a row begins and ends
// (softmax.cu.in). Features that a kernel lacks are not in its text.
//
// Barriers per tile: one when K and V of a tile are one stage (kJoint), else two. What each orders is said
// where it stands. A team of warps visits every kTeams-th tile and waits only for its own members.

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

extern "C" __global__ void __launch_bounds__(kThreads) fwd_splitkv_sm80(const __grid_constant__ Params p)
{
    extern __shared__ __align__(128) char shared[];
    let_next_step_begin();
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    const int lane = threadIdx.x % 32;
    const int team = kTeams > 1 ? threadIdx.x / kTeamThreads : 0;
    const int team_warp = threadIdx.x / 32 - team * (kTeamThreads / 32);
    const int warp_row = team_warp * (16 * kRowTiles);  // this warp's first row in the block
    const BlockPlace place(p);
    if (place.batch < 0)
        return;
    const TileRange tiles(p, place);

    const uint32 lane_rows = RowTile::lane_offset_rows(lane);
    const uint32 lane_cols = RowTile::lane_offset_cols(lane);
    const uint32 q_area = kQBehind ? v_stage(smem, 0, tiles.count - 1 + kTeams) : smem + kQArea;
    const uint32 q_smem = q_area + warp_row * kPitch;

    float o[kRowTiles][kOutTiles][4] = {};
    RowState row;
    begin_rows(row);

    uint32 q_frag[kRowTiles][kDepth][4];
    if (tiles.count > tiles.first) {
        Fill<kBr, kThreads> q_fill;
        Fill<kBc, kTeamThreads> k_fill, v_fill;
        const int kv_head = place.kv_head(p);
        const char *k_plane = key_plane(p.k, p.k_stride, place, kv_head);
        const char *v_plane = key_plane(p.v, p.v_stride, place, kv_head);
        using Plan = FillPlan<kBc, kTeamThreads>;
        int tile = tiles.count - 1 - team;
        PageNumbers numbers(p, place);
        numbers.find(Plan(), 0, tile);
        if constexpr (kJoint)  // all that are asked for at first: they come at once
#pragma unroll
            for (int ahead = 1; ahead < kKStages - 1; ahead++)
                numbers.find(Plan(), ahead, tile - ahead * kTeams);
        auto issue_k = [&](auto full, const Plan &plan, Share share, int tile) {
            const TilePages pages(numbers, plan, tile, p.features.k_steps);
            k_fill.template issue<decltype(full)::value>(
                plan, share, k_stage(smem, team, tile), place.sequence.seq_k - tile * kBc,
                [&](int r) { return key_row(pages, k_plane, p.k_stride, tile, r); });
        };
        auto issue_v = [&](auto full, const Plan &plan, Share share, int tile) {
            const TilePages pages(numbers, plan, tile, p.features.v_steps);
            v_fill.template issue<decltype(full)::value>(
                plan, share, v_stage(smem, team, tile), place.sequence.seq_k - tile * kBc,
                [&](int r) { return key_row(pages, v_plane, p.v_stride, tile, r); });
        };

        // Only the first tile that is visited can reach behind the tensor's end.
        q_fill.template issue<false>(
            FillPlan<kBr, kThreads>(), kWhole, q_area, place.rows - place.first_row,
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
                    ldmatrix_x4(q_frag[m][step],
                                q_smem + pair_offset(lane_rows, step) + m * 16 * kPitch);
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

            // On their way while S is computed.
            if constexpr (kJoint)
                numbers.find(Plan(), 0, tile - (kKStages - 1) * kTeams);
            else
                numbers.find(Plan(), 1, tile - kTeams);
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
            constexpr int kFillStep = kJoint ? kDepth - 1 : 0;  // this V is waited for behind S
            const int next = tile - kAhead * kTeams;
            const bool has_next = next >= tiles.first;
            auto issue_whole = [&] {
                if constexpr (!kJoint) {  // only a masked tile can reach behind the end
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
            auto compute_s = [&](auto behind_step) {
                product_qk(s, q_frag, q_smem, k_smem, lane_rows, lane_cols, behind_step);
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

            if constexpr (!kJoint) {
                v_fill.store(v_smem);
                fill_wait<kKStages - 1>();
                team_sync();  // V is complete; K is read, so it is free
            }

            if constexpr (kMasked)
                mask_scores(s, p, place, place.first_row + warp_row, tile, lane);
            softmax_tile<kMasked>(s, row, o, p.scale_log2);
            product_pv(o, s, v_smem, lane_rows, [&](int step) {
                if (kKStages == 1 && step == 0 && has_next)
                    issue_k(Bool<true>{}, Plan(), kWhole, next);
            });
            if constexpr (kKStages == 1)
                fill_commit();
        };

#pragma unroll 1
        for (; tile >= max(tiles.unmasked, tiles.first); tile -= kTeams)
            visit(Bool<true>{});
#pragma unroll 1
        for (; tile >= tiles.first; tile -= kTeams)
            visit(Bool<false>{});
    }
    write_rows(p, place, o, row, smem, warp_row, lane);
}
// ---- combining the splits of a row -----------------------------------------------------------------------
//
// One warp per row of O. Lanes share the splits, for their weights, and the columns. This step is latency: of loads, of
// which the first ones are on their way while the weights are found, and of its own text, of which there is little.

constexpr int kCombineWarps = 4;
constexpr int kMaxSplits = 256;  // the recipe says it, too
constexpr int kPartsAhead = 16;  // of a row, that are on their way together
static_assert(kMaxSplits % kPartsAhead == 0, "there are weights for whole steps");

__device__ __forceinline__ float warp_max(float x)
{
    for (int lanes = 16; lanes > 0; lanes /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}

__device__ __forceinline__ float warp_sum(float x)
{
    for (int lanes = 16; lanes > 0; lanes /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

// The parts of a row of O, of which sequence and head: one of each share of its row tile.
struct RowParts {
    int splits;
    int64 first;

    __device__ __forceinline__ RowParts(const Params &p, int batch, int head, int query)
    {
        const Slots slots(p, [=](int b, int) { return b == batch; });
        const int r = query * p.group + head % p.group;
        const int slot = slots.first + r / kBr * slots.shares;
        // Lengths that fall would have more slots than there are: such rows are left alone.
        splits = slot + slots.shares <= p.features.slots ? slots.shares : 1;
        first = (int64(head / p.group) * p.features.slots + slot) * kBr + r % kBr;
    }
};

extern "C" __global__ void __launch_bounds__(kCombineWarps * 32)
    fwd_splitkv_sm80_combine(const __grid_constant__ Params p)
{
    __shared__ __align__(16) float weights[kCombineWarps][kMaxSplits];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64 rows = int64(p.batch) * p.heads_q * p.seq_q;
    const int64 row = int64(blockIdx.x) * kCombineWarps + warp;
    const int query = row % p.seq_q;
    const int64 plane = row / p.seq_q;
    const int head = plane % p.heads_q, batch = plane / p.heads_q;
    await_step_before();
    if (row >= rows)
        return;
    char *o = p.o + (batch * p.o_stride.batch + head * p.o_stride.head + query * p.o_stride.seq) * 2;
    const RowParts parts(p, batch, head, query);
    if (parts.splits == 1)
        return;  // its block wrote it
    const int splits = parts.splits;
    const float *const lse_parts = p.partial_lse + parts.first;
    const int64 step = kBr;

    float most = lane < splits ? lse_parts[lane * step] : minus_infinity();  // waited for behind the loads of parts
    float sum = 0.0f;
    auto find_weights = [&] {
#pragma unroll 1
        for (int split = lane + 32; split < splits; split += 32)
            most = fmaxf(most, lse_parts[split * step]);
        most = warp_max(most);
#pragma unroll 1
        for (int split = lane; split < (splits + kPartsAhead - 1) / kPartsAhead * kPartsAhead; split += 32) {
            const bool any = split < splits && most != minus_infinity();
            const float weight = any ? expf(lse_parts[split * step] - most) : 0.0f;
            weights[warp][split] = weight;
            sum += weight;
        }
        sum = warp_sum(sum);
        __syncwarp();  // the weights are this warp's own: its stores before its loads
    };
#pragma unroll 1
    for (int begin = 0; begin < kHeadDim; begin += 128) {
        const int column = begin + lane * 4;
        const int own_splits = column < kHeadDim ? splits : 0;
        const float *at = p.partial + parts.first * kHeadDim + column;
        float4 x{0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
        for (int first = 0; first < splits; first += kPartsAhead) {
            float4 part[kPartsAhead];
#pragma unroll
            for (int i = 0; i < kPartsAhead; i++) {
                part[i] = float4{0.0f, 0.0f, 0.0f, 0.0f};
                if (first + i < own_splits)
                    part[i] = *reinterpret_cast<const float4 *>(at);
                at += step * kHeadDim;
            }
            if (begin + first == 0)
                find_weights();
#pragma unroll
            for (int i = 0; i < kPartsAhead; i++) {
                const float weight = weights[warp][first + i];
                x.x += weight * part[i].x;
                x.y += weight * part[i].y;
                x.z += weight * part[i].z;
                x.w += weight * part[i].w;
            }
        }
        const float inverse = row_inverse(sum), lse = row_lse(most, sum, 1.0f);
        if (own_splits > 0)
            *reinterpret_cast<uint2 *>(o + column * 2) =
                uint2{pack2(x.x * inverse, x.y * inverse), pack2(x.z * inverse, x.w * inverse)};
        if (p.lse != nullptr && begin + lane == 0)
            p.lse[row] = lse;
    }
}
