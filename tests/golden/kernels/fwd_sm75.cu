// fwd_sm75 d=64 dtype=fp16 causal=0 br=128 bc=64 warps=4 kstages=2 vstages=2 layout=swizzle q=reg fill=whole
// op=forward abi=2 rows=128 keys=64; fwd_sm75 role=main threads=128 smem=32768 blocks=row_tiles
// fwd_sm75: attention forward on Turing. fp16, two mma m16n8k8 for each k16, tiles filled through registers.
// ---- the variant -------------------------------------------------------------------------------
constexpr int kHeadDim = 64;            // D: columns of Q, K, V and O
constexpr int kBr = 128;                // query rows per block
constexpr int kBc = 64;                // key and value rows per tile
constexpr int kWarps = 4;          // a warp owns whole rows: no softmax across warps
constexpr int kTeams = 1;                 // all warps visit the same keys
constexpr int kKStages = 2;      // K tiles in shared memory
constexpr int kVStages = 2;      // V tiles in shared memory
constexpr bool kCausal = 0 == 1;  // query i sees keys <= i + seq_k - seq_q
constexpr bool kBf16 = false;             // elements are fp16
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
#define FA2I_FEATURE_PARAM(kind, name)
constexpr int kParamBytes = 192;
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
// ---- SM 7.5: no m16n8k16, no cp.async, no packed conversion ------------------------------------------

// c += a b: a is 16x8 row-major, b is 8x8 column-major, fp32 accumulation.
__device__ __forceinline__ void mma_k8(float (&c)[4], uint32 a0, uint32 a1, uint32 b0)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(b0));
}

// The same k16 product as on SM 8.0, on the same fragments, in two halves.
__device__ __forceinline__ void mma_k16(float (&c)[4], const uint32 (&a)[4], uint32 b0, uint32 b1)
{
    mma_k8(c, a[0], a[1], b0);
    mma_k8(c, a[2], a[3], b1);
}

// Two elements in one register, rounded to nearest even; lo in the lower half.
__device__ __forceinline__ uint32 pack2(float lo, float hi)
{
    uint32 x;
    asm("{\n\t.reg .b16 l, h;\n\t"
        "cvt.rn.f16.f32 l, %1;\n\tcvt.rn.f16.f32 h, %2;\n\tmov.b32 %0, {l, h};\n\t}"
        : "=r"(x)
        : "f"(lo), "f"(hi));
    return x;
}

// Both elements of a register.
__device__ __forceinline__ float2 unpack2(uint32 x)
{
    float2 y;
    asm("{\n\t.reg .b16 l, h;\n\t"
        "mov.b32 {l, h}, %2;\n\tcvt.f32.f16 %0, l;\n\tcvt.f32.f16 %1, h;\n\t}"
        : "=f"(y.x), "=f"(y.y)
        : "r"(x));
    return y;
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
constexpr int kSmemBytes = kTileBytes;
static_assert(kSmemBytes == 32768, "the generator computed another size");

// Where keys are divided, short kernels wait for memory once: Q passes through the one V tile of the first team that no
// copy is on its way to yet, so that the others are on theirs before it is read.
constexpr bool kQBehind = false && kQInRegisters && kJoint && kQTileBytes <= kKvTileBytes;

// Where a tile of K or V lies while it is in shared memory. A team's tiles are kTeams apart.
__device__ __forceinline__ uint32 k_stage(uint32 smem, int team, int tile)
{
    return smem + kKArea + (team * kKStages + tile / kTeams % kKStages) * kKvTileBytes;
}

__device__ __forceinline__ uint32 v_stage(uint32 smem, int team, int tile)
{
    return smem + kVArea + (team * kVStages + tile / kTeams % kVStages) * kKvTileBytes;
}
// ---- filling a tile from global memory: through registers -------------------------------------------
//
// The loads are issued early and land in registers; store() puts them into shared memory when the tile
// that was there is no longer read. A thread always copies the same chunk column, of rows kRowStep
// apart. Chunks behind kHeadDim and rows behind the tensor become zeros.

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
    uint4 staged[Plan::kPasses];

    // Start loading a tile, always all of it: spread over a product, the loads would keep its registers
    // waiting. address(row): where its row begins in global memory; rows from valid_rows on are zeros.
    // kFull: all rows are valid.
    template <bool kFull, class Address>
    __device__ __forceinline__ void issue(const Plan &plan, Share, uint32, int valid_rows,
                                          Address address)
    {
#pragma unroll
        for (int pass = 0; pass < Plan::kPasses; pass++) {
            staged[pass] = uint4{0, 0, 0, 0};
            if (plan.has_row(pass) && plan.in_columns() && (kFull || plan.row(pass) < valid_rows))
                staged[pass] = __ldg(reinterpret_cast<const uint4 *>(address(plan.row(pass)) +
                                                                     plan.chunk * 16));
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

// Loads into registers are ordered by their use: there is nothing to commit or to wait for.
__device__ __forceinline__ void fill_commit()
{
}

template <int kPending> __device__ __forceinline__ void fill_wait()
{
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
// ---- where a block works: kBr query rows of one head ---------------------------------------------------

struct BlockPlace {
    int first_row, rows;  // of the block; of the tensor
    int head, batch;

    // Heavy tiles first when causal: the last rows see the most keys. In a window all see as many, but for
    // the first ones.
    __device__ __forceinline__ explicit BlockPlace(const Params &p) : rows(p.seq_q)
    {
        const unsigned tile = blockIdx.x % p.q_tiles;
        const unsigned plane = blockIdx.x / p.q_tiles;
        first_row = (kCausal ? p.q_tiles - 1 - tile : tile) * kBr;
        head = plane % p.heads_q;
        batch = plane / p.heads_q;
    }

    __device__ __forceinline__ int kv_head(const Params &p) const
    {
        return head / p.group;
    }

    // Position in the sequence of a row: what the causal mask compares.
    __device__ __forceinline__ int query(const Params &, int row) const
    {
        return row;
    }

    // Element offset of a row of Q or O.
    __device__ __forceinline__ int64 offset(const Params &, const Strides &stride, int row) const
    {
        return batch * stride.batch + head * stride.head + row * stride.seq;
    }

    // Index of a row in LSE.
    __device__ __forceinline__ int64 index(const Params &p, int row) const
    {
        return (int64(batch) * p.heads_q + head) * p.seq_q + row;
    }
};
// ---- where K and V lie -----------------------------------------------------------------------------------

// The head of K or V that a block reads: its row 0.
__device__ __forceinline__ const char *key_plane(const char *tensor, const Strides &stride,
                                                 const BlockPlace &place, int head)
{
    return tensor + (place.batch * stride.batch + head * stride.head) * 2;
}

// Row r of a tile.
__device__ __forceinline__ const char *key_row(const char *plane, const Strides &stride, int tile, int r)
{
    return plane + (int64(tile) * kBc + r) * stride.seq * 2;
}

// The tiles of K and V that a block visits.
struct TileRange {
    static constexpr int first = 0;
    int count;
    int unmasked;  // tiles from this one on need a mask

    __device__ __forceinline__ TileRange(const Params &p, const BlockPlace &place)
    {
        int keys = p.seq_k, keys_of_all = p.seq_k;  // seen by some row of the block, by every row
        if (kCausal) {
            const int offset = p.seq_k - p.seq_q;
            const int last_row = min(place.first_row + kBr, place.rows) - 1;
            keys = max(0, min(keys, place.query(p, last_row) + 1 + offset));
            keys_of_all = max(0, min(keys, place.query(p, place.first_row) + 1 + offset));
        }
        count = (keys + kBc - 1) / kBc;
        unmasked = keys_of_all / kBc;
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
    const int seen = p.seq_k - 1 - tile * kBc - lane % 4 * 2;
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
// ---- the result of a block -----------------------------------------------------------------------------

// Normalise O and write it, 16 bytes per lane, through this warp's rows of shared memory; write LSE.
__device__ __forceinline__ void write_rows(const Params &p, const BlockPlace &place,
                                           float (&o)[kRowTiles][kOutTiles][4], RowState &row,
                                           uint32 smem, int warp_row, int lane)
{
    if constexpr (kQInRegisters)
        __syncthreads();  // every warp has read its last K and V before O comes into their place
    else
        __syncwarp();  // the rows are this warp's own: its loads of Q before O comes into their place
    const uint32 o_smem = smem + (kQInRegisters ? 0 : kQArea) + warp_row * kPitch;
    constexpr int kWarpRows = 16 * kRowTiles;
    const int quad_row = lane / 4, quad_lane = lane % 4;
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float sum = quad_sum(row.sum[m][h]);
            const float inverse = row_inverse(sum);
            const int r = m * 16 + h * 8 + quad_row;
#pragma unroll
            for (int n = 0; n < kOutTiles; n++)
                store_shared_4(o_smem + chunk_offset(r, n) + quad_lane * 4,
                               pack2(o[m][n][2 * h] * inverse, o[m][n][2 * h + 1] * inverse));
            const int block_row = place.first_row + warp_row + r;
            if (p.lse != nullptr && quad_lane == 0 && block_row < place.rows)
                p.lse[place.index(p, block_row)] = row_lse(row.max[m][h], sum, p.scale);
        }
    }
    __syncwarp();  // the rows are this warp's own: its stores before its loads

#pragma unroll
    for (int i = lane; i < kWarpRows * kChunks; i += 32) {
        const int r = i / kChunks, chunk = i % kChunks;  // padding too: eight lanes read without a gap
        const int block_row = place.first_row + warp_row + r;
        if (chunk < kOutTiles && block_row < place.rows)
            *reinterpret_cast<uint4 *>(p.o + place.offset(p, p.o_stride, block_row) * 2 + chunk * 16) =
                load_shared_16(o_smem + chunk_offset(r, chunk));
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

extern "C" __global__ void __launch_bounds__(kThreads) fwd_sm75(const __grid_constant__ Params p)
{
    extern __shared__ __align__(128) char shared[];
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    const int lane = threadIdx.x % 32;
    const int team = kTeams > 1 ? threadIdx.x / kTeamThreads : 0;
    const int team_warp = threadIdx.x / 32 - team * (kTeamThreads / 32);
    const int warp_row = team_warp * (16 * kRowTiles);  // this warp's first row in the block
    const BlockPlace place(p);
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
        auto issue_k = [&](auto full, const Plan &plan, Share share, int tile) {
            k_fill.template issue<decltype(full)::value>(
                plan, share, k_stage(smem, team, tile), p.seq_k - tile * kBc,
                [&](int r) { return key_row(k_plane, p.k_stride, tile, r); });
        };
        auto issue_v = [&](auto full, const Plan &plan, Share share, int tile) {
            v_fill.template issue<decltype(full)::value>(
                plan, share, v_stage(smem, team, tile), p.seq_k - tile * kBc,
                [&](int r) { return key_row(v_plane, p.v_stride, tile, r); });
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
