// fwd_sm90 d=128 dtype=bf16 causal=1 groups=3 bc=64 stages=2 turns=1 persistent=1 order=weight
// op=forward abi=2 rows=192 keys=64 suffix=a maps=q/64,k/64,v/64,o/16; fwd_sm90 role=main threads=512 smem=163952 blocks=resident_row_tiles
// fwd_sm90: attention forward on SM 9.0. fp16 or bf16, wgmma, tiles loaded by TMA.
// ---- the variant -------------------------------------------------------------------------------
constexpr int kHeadDim = 128;            // D: columns of Q, K, V and O
constexpr int kGroups = 3;             // warpgroups that compute, 64 query rows each
constexpr int kBc = 64;                // key and value rows per tile
constexpr int kStages = 2;             // tiles of K, and as many of V, in shared memory
constexpr bool kCausal = 1 == 1;  // query i sees keys <= i + seq_k - seq_q
constexpr bool kBf16 = true;              // elements are bf16
constexpr bool kTurns = 1 == 1;    // warpgroups issue their products one after the other

// ---- what follows from it ----------------------------------------------------------------------
constexpr int kGroupRows = 64;            // of wgmma
constexpr int kBr = kGroupRows * kGroups;      // query rows per block
constexpr int kThreads = (kGroups + 1) * 128;  // the last warpgroup loads
constexpr int kRowTiles = 1;                   // m16 row tiles per warp
constexpr int kColTiles = kBc / 8;             // n8 column tiles of S
constexpr int kOutTiles = kHeadDim / 8;        // n8 column tiles of O
constexpr int kHeadDimPadded = (kHeadDim + 15) / 16 * 16;  // columns that S = Q K^T sums over
constexpr int kDepth = kHeadDimPadded / 16;    // k16 steps of it
constexpr int kPages = (kHeadDim + 63) / 64;   // 64 columns of a tile lie together
constexpr bool kSwizzle = true;                // rows of O on their way out: 16-byte chunks permuted by row
constexpr bool kQInRegisters = false;          // they come into the place of Q

// Registers: the block is launched with even shares; then the loading warpgroup gives some of its own to
// the others.
constexpr int kBlocksPerSm = 1;
constexpr int kLoadRegisters = 32;
constexpr int kGroupRegisters = 160;

// Rows of K and V, of all heads that are worked on at a time: 32 MiB, which L2 holds beside Q and O.
constexpr int kSectionRows = (32 << 20) / (2 * 2 * kHeadDim);

static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 256, "D is a multiple of 8 up to 256");
static_assert(kBc % 16 == 0 && kBc <= 256, "S is one wgmma wide; P V runs in k16 steps");
static_assert(kLoadRegisters + kGroups * kGroupRegisters <=
                  (kGroups + 1) * (65536 / (kBlocksPerSm * kThreads) / 8 * 8),
              "warpgroups would wait for registers that nobody gives");

// ---- shared memory -----------------------------------------------------------------------------
//
// Tiles are pages of 64 columns, [page][row][64], rows of 128 bytes whose 16-byte chunks are permuted by
// row % 8: the 128-byte swizzle that TMA writes and wgmma reads. Q has its pages apart for each warpgroup,
// so that O of a warpgroup can come into their place while others still read theirs.
constexpr int kPageColumns = 64, kPageRowBytes = 128;
constexpr int kQPageBytes = kGroupRows * kPageRowBytes;
constexpr int kGroupBytes = kPages * kQPageBytes;
constexpr int kTilePageBytes = kBc * kPageRowBytes;
constexpr int kTileBytes = kPages * kTilePageBytes;
constexpr int kQArea = 0;
constexpr int kKArea = kGroups * kGroupBytes;
constexpr int kVArea = kKArea + kStages * kTileBytes;
constexpr int kOArea = kVArea + kStages * kTileBytes;
constexpr int kBarrierArea = kOArea + kGroups * kGroupBytes;
constexpr int kAreasEnd = kBarrierArea + (2 * kGroups + 4 * kStages) * 8;
constexpr int kPieceArea = kAreasEnd;
constexpr int kSmemBytes = kPieceArea;
static_assert(kSmemBytes == 163952, "the generator computed another size");
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
// ---- barriers in shared memory, and loads that arrive at them -------------------------------------------
//
// A barrier's phase ends when all of its arrivals are there, and all bytes that were announced. A wait names
// the parity of the phase: 0 for the first one. Before that has begun, a wait for parity 1 returns at once.

// A tensor map, as the driver encodes it.
struct alignas(64) TensorMap {
    char opaque[128];
};

// Those of Q, K, V and O: [batch, head, seq, column], boxes of rows x 64 columns. What is behind the end of a
// sequence or a row is zeros.
struct TensorMaps {
    TensorMap q;
    TensorMap k, v, o;
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

// What this thread did to shared memory is done before loads that come into the same place, behind a barrier.
__device__ __forceinline__ void release_to_loads()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The reverse: rows of a page to global memory, as far as there are rows and columns.
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

// What this thread's stores read of shared memory has been read.
__device__ __forceinline__ void wait_stores()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
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

    __device__ __forceinline__ StageOf before() const
    {
        StageOf other;
        other.index = (index == 0 ? kCount : index) - 1;
        other.parity = index == 0 ? parity ^ 1 : parity;
        return other;
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

// s = a b^T, or s += a b^T: 16 columns of 64 rows of Q, and of the rows of a tile of K.
__device__ __forceinline__ void wgmma_scores(float (&d)[1][kColTiles][4], uint64 a, uint64 b, int add)
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

// o += a b: 16 columns of P, which is in registers, and 16 rows of a tile of V.
__device__ __forceinline__ void wgmma_output(float (&d)[1][kOutTiles][4], const uint32 (&a)[4], uint64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
                 : "+f"(d[0][0][0]), "+f"(d[0][0][1]), "+f"(d[0][0][2]), "+f"(d[0][0][3]), "+f"(d[0][1][0]), "+f"(d[0][1][1]), "+f"(d[0][1][2]), "+f"(d[0][1][3]), "+f"(d[0][2][0]), "+f"(d[0][2][1]), "+f"(d[0][2][2]), "+f"(d[0][2][3]), "+f"(d[0][3][0]), "+f"(d[0][3][1]), "+f"(d[0][3][2]), "+f"(d[0][3][3]), "+f"(d[0][4][0]), "+f"(d[0][4][1]), "+f"(d[0][4][2]), "+f"(d[0][4][3]), "+f"(d[0][5][0]), "+f"(d[0][5][1]), "+f"(d[0][5][2]), "+f"(d[0][5][3]), "+f"(d[0][6][0]), "+f"(d[0][6][1]), "+f"(d[0][6][2]), "+f"(d[0][6][3]), "+f"(d[0][7][0]), "+f"(d[0][7][1]), "+f"(d[0][7][2]), "+f"(d[0][7][3]), "+f"(d[0][8][0]), "+f"(d[0][8][1]), "+f"(d[0][8][2]), "+f"(d[0][8][3]), "+f"(d[0][9][0]), "+f"(d[0][9][1]), "+f"(d[0][9][2]), "+f"(d[0][9][3]), "+f"(d[0][10][0]), "+f"(d[0][10][1]), "+f"(d[0][10][2]), "+f"(d[0][10][3]), "+f"(d[0][11][0]), "+f"(d[0][11][1]), "+f"(d[0][11][2]), "+f"(d[0][11][3]), "+f"(d[0][12][0]), "+f"(d[0][12][1]), "+f"(d[0][12][2]), "+f"(d[0][12][3]), "+f"(d[0][13][0]), "+f"(d[0][13][1]), "+f"(d[0][13][2]), "+f"(d[0][13][3]), "+f"(d[0][14][0]), "+f"(d[0][14][1]), "+f"(d[0][14][2]), "+f"(d[0][14][3]), "+f"(d[0][15][0]), "+f"(d[0][15][1]), "+f"(d[0][15][2]), "+f"(d[0][15][3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// S = Q K^T of a warpgroup: started.
__device__ __forceinline__ void start_scores(float (&s)[1][kColTiles][4], uint32 q_smem, uint32 k_smem)
{
    const uint64 a = tile_descriptor(q_smem, 0), b = tile_descriptor(k_smem, 0);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kDepth; step++)
        wgmma_scores(s, a + (step / 4 * kQPageBytes + step % 4 * 32) / 16,
                     b + (step / 4 * kTilePageBytes + step % 4 * 32) / 16, step > 0);
    wgmma_commit();
}

// O += P V: started.
__device__ __forceinline__ void start_output(float (&o)[1][kOutTiles][4], const uint32 (&p)[kBc / 16][4],
                                             uint32 v_smem)
{
    const uint64 b = tile_descriptor(v_smem, kTilePageBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kBc / 16; step++)
        wgmma_output(o, p[step], b + step * 16 * kPageRowBytes / 16);
    wgmma_commit();
}

// P in elements: two column tiles of an accumulator are laid out as 16 columns of A.
__device__ __forceinline__ void pack_scores(const float (&s)[1][kColTiles][4], uint32 (&p)[kBc / 16][4])
{
#pragma unroll
    for (int step = 0; step < kBc / 16; step++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            p[step][e] = pack2(s[0][2 * step + e / 2][e % 2 * 2], s[0][2 * step + e / 2][e % 2 * 2 + 1]);
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

// What O is to be multiplied by, once the product that adds to it is done.
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

// S becomes P = 2^(scale_log2 * (S - max)); the sums grow. Returns what this means to O.
// kUnseen: some rows may have seen no key yet, their maximum is -infinity.
template <bool kUnseen>
__device__ __forceinline__ Rescale softmax_tile(float (&s)[kRowTiles][kColTiles][4], RowState &row,
                                                float scale_log2)
{
    Rescale rescale;
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

    rescale.wanted = __any_sync(0xffffffffu, grown);
    if (rescale.wanted) {
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
                rescale.by[m][h] = alpha;
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
    return rescale;
}
// ---- which rows a block computes ---------------------------------------------------------------------------

// A row tile of a plane, a head of a batch; BlockPlace says what that is.
struct Work {
    unsigned tile, plane, round = 0;

    __device__ __forceinline__ explicit Work(const Params &p)
    {
        find(p);
    }

    // Every other round goes backwards through the blocks, as work gets lighter within a round.
    __device__ __forceinline__ unsigned index() const
    {
        return round * gridDim.x + (round % 2 == 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
    }

    __device__ __forceinline__ bool is_left(const Params &p) const
    {
        return index() < unsigned(p.q_tiles) * p.heads_q * p.batch;
    }

    __device__ __forceinline__ void advance(const Params &p)
    {
        round++;
        find(p);
    }

    // Of this piece among those of the block, as barriers count.
    __device__ __forceinline__ uint32 parity() const
    {
        return round % 2;
    }

    __device__ __forceinline__ void find(const Params &p)
    {
        // The heaviest tiles of a section of planes first: as many as have their K and V in L2.
        const unsigned planes = p.heads_q * p.batch;
        const unsigned section = min(max(kSectionRows / p.seq_k, 1) * unsigned(p.group), planes);
        const unsigned before = index() / (section * p.q_tiles) * section, rest = index() - before * p.q_tiles;
        const unsigned here = min(section, planes - before);
        tile = rest / here;
        plane = before + rest % here;
    }
};
// ---- where a block works: kBr query rows of one head ---------------------------------------------------

struct BlockPlace {
    int first_row, rows;  // of the block; of the tensor
    int head, batch;

    // Heavy tiles first when causal: the last rows see the most keys. In a window all see as many, but for
    // the first ones.
    __device__ __forceinline__ explicit BlockPlace(const Params &p, const Work &work) : rows(p.seq_q)
    {
        const unsigned tile = work.tile;
        const unsigned plane = work.plane;
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
                                           uint32 smem, int warp_row, int lane, const TensorMap &map)
{
    if (lane == 0)
        wait_stores();
    __syncwarp();  // the rows before are on their way, and this warp's loads of Q done
    const uint32 o_smem = smem + warp_row % kGroupRows * kPageRowBytes;
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
                store_shared_4(o_smem + n / 8 * kQPageBytes + r * kPageRowBytes + (n % 8 ^ r % 8) * 16 + quad_lane * 4,
                               pack2(o[m][n][2 * h] * inverse, o[m][n][2 * h + 1] * inverse));
            const int block_row = place.first_row + warp_row + r;
            if (p.lse != nullptr && quad_lane == 0 && block_row < place.rows)
                p.lse[place.index(p, block_row)] = row_lse(row.max[m][h], sum, p.scale);
        }
    }
    release_to_loads();  // this lane's rows of O are seen by what stores them
    __syncwarp();
    if (lane == 0) {
#pragma unroll
        for (int page = 0; page < kPages; page++)
            store_page(map, o_smem + page * kQPageBytes, page * kPageColumns, place.first_row + warp_row,
                       place.head, place.batch);
        commit_stores();
    }
}
// ---- where the barriers of a block are ---------------------------------------------------------------------------

struct Barriers {
    uint32 smem;

    __device__ __forceinline__ uint32 q_full(int group) const
    {
        return smem + kBarrierArea + group * 16;
    }

    __device__ __forceinline__ uint32 q_empty(int group) const
    {
        return q_full(group) + 8;
    }

    __device__ __forceinline__ uint32 k_full(int stage) const
    {
        return smem + kBarrierArea + kGroups * 16 + stage * 32;
    }

    __device__ __forceinline__ uint32 k_empty(int stage) const
    {
        return k_full(stage) + 8;
    }

    __device__ __forceinline__ uint32 v_full(int stage) const
    {
        return k_full(stage) + 16;
    }

    __device__ __forceinline__ uint32 v_empty(int stage) const
    {
        return k_full(stage) + 24;
    }

    __device__ __forceinline__ void init() const
    {
        for (int group = 0; group < kGroups; group++) {
            barrier_init(q_full(group), 1);
            barrier_init(q_empty(group), 4);
        }
        for (int stage = 0; stage < kStages; stage++) {
            barrier_init(k_full(stage), 1);
            barrier_init(v_full(stage), 1);
            barrier_init(k_empty(stage), kGroups * 4);
            barrier_init(v_empty(stage), kGroups * 4);
        }
        barrier_init_fence();
    }
};
// ---- what a block loads -------------------------------------------------------------------------------------------

// One thread's: everything that a block reads.
struct Loads {
    const Params &p;
    const TensorMaps &maps;
    const Barriers &barriers;
    Stage stage;  // of the next tile, of which K comes first
    uint32 q_parity = 1;

    __device__ __forceinline__ Loads(const Params &p, const TensorMaps &maps, const Barriers &barriers)
        : p(p), maps(maps), barriers(barriers)
    {
    }

    // A tile of K or V, into a stage that was read.
    __device__ __forceinline__ void load_tile(const BlockPlace &place, int kv_head, int tile, const TensorMap &map,
                                              const Strides &stride, const Stage &stage, uint32 empty,
                                              uint32 full, uint32 area)
    {
        barrier_wait(empty, stage.parity ^ 1);
        barrier_expect(full, kTileBytes);
#pragma unroll
        for (int page = 0; page < kPages; page++)
            load_page(area + stage.index * kTileBytes + page * kTilePageBytes, map, full, page * kPageColumns,
                      tile * kBc, coordinate(kv_head, stride.head), coordinate(place.batch, stride.batch));
    }

    __device__ __forceinline__ void load_k(const BlockPlace &place, int kv_head, int tile, const Stage &k)
    {
        load_tile(place, kv_head, tile, maps.k, p.k_stride, k, barriers.k_empty(k.index), barriers.k_full(k.index),
                  barriers.smem + kKArea);
    }

    __device__ __forceinline__ void load_v(const BlockPlace &place, int kv_head, int tile, const Stage &v)
    {
        load_tile(place, kv_head, tile, maps.v, p.v_stride, v, barriers.v_empty(v.index), barriers.v_full(v.index),
                  barriers.smem + kVArea);
    }

    __device__ __forceinline__ void load_q(const BlockPlace &place, int group)
    {
        const uint32 full = barriers.q_full(group);
        barrier_wait(barriers.q_empty(group), q_parity);
        barrier_expect(full, kGroupBytes);
#pragma unroll
        for (int page = 0; page < kPages; page++)
            load_page(barriers.smem + kQArea + group * kGroupBytes + page * kQPageBytes, maps.q, full,
                      page * kPageColumns, place.first_row + group * kGroupRows,
                      coordinate(place.head, p.q_stride.head), coordinate(place.batch, p.q_stride.batch));
    }

    // Q is waited for even where no key is seen, so that it is there before O comes into its place.
    __device__ __forceinline__ void load_rows(const BlockPlace &place, const TileRange &tiles)
    {
        const bool any = tiles.count > tiles.first;
        int kv_head = place.kv_head(p);
        asm volatile("" : "+r"(kv_head));  // the division is done here, not for each tile
        if (any)
            load_k(place, kv_head, tiles.count - 1, stage);
#pragma unroll
        for (int group = 0; group < kGroups; group++)
            load_q(place, group);
        q_parity ^= 1;
#pragma unroll 1
        for (int tile = tiles.count - 2; tile >= tiles.first; tile--) {
            stage.advance();
            load_k(place, kv_head, tile, stage);
            load_v(place, kv_head, tile + 1, stage.before());
        }
        if (any) {
            load_v(place, kv_head, tiles.first, stage);
            stage.advance();
        }
    }
};
// ---- the rows of a warpgroup ----------------------------------------------------------------------------------------

// The order in which warpgroups start products.
struct Turns {
    int group;
    bool may_start;  // before anybody has said so

    __device__ __forceinline__ explicit Turns(int group) : group(group), may_start(group == 0)
    {
    }

    // Behind it, the products of the warpgroup before this one have been started.
    __device__ __forceinline__ void take()
    {
        if (kTurns && !may_start)
            named_barrier(1 + group, 256);
        may_start = false;
    }

    __device__ __forceinline__ void pass()
    {
        int next = group + 1;
        if (kTurns)
            named_barrier_arrive(1 + next % kGroups, 256);
    }

    // Behind everything: what the last warpgroup passed on is taken, too.
    __device__ __forceinline__ void finish()
    {
        if (group == 0 && !may_start)
            take();
    }
};

// What a warpgroup keeps from one piece of work to the next.
struct Group {
    int index, lane, warp_row;  // warp_row: this warp's first row in the block
    Stage k, v;
    Turns turns;

    __device__ __forceinline__ explicit Group(int index)
        : index(index), lane(threadIdx.x % 32), warp_row(threadIdx.x / 32 * 16), turns(index)
    {
    }

    __device__ __forceinline__ void release_q(const Barriers &barriers) const
    {
        barrier_arrive_by(lane, barriers.q_empty(index));
    }
};

// O of 64 rows that see some key, not yet divided by the sums of their rows.
__device__ __forceinline__ void compute_rows(const Params &p, const BlockPlace &place, const TileRange &tiles,
                                             const Barriers &barriers, Group &group,
                                             float (&o)[kRowTiles][kOutTiles][4], RowState &row)
{
    const uint32 smem = barriers.smem, q_smem = smem + kQArea + group.index * kGroupBytes;
    const int lane = group.lane;
    Stage &k = group.k, &v = group.v;
    Turns &turns = group.turns;
    float s[kRowTiles][kColTiles][4];
    uint32 probabilities[kBc / 16][4];
    int tile = tiles.count - 1;


    auto start_s = [&] {
        barrier_wait(barriers.k_full(k.index), k.parity);
        turns.take();
        start_scores(s, q_smem, smem + kKArea + k.index * kTileBytes);
    };
    auto start_o = [&] {
        barrier_wait(barriers.v_full(v.index), v.parity);
        start_output(o, probabilities, smem + kVArea + v.index * kTileBytes);
    };
    auto pack = [&] {
        pack_scores(s, probabilities);
    };
    auto release_k = [&] {
        barrier_arrive_by(lane, barriers.k_empty(k.index));
        k.advance();
    };
    auto release_v = [&] {
        barrier_arrive_by(lane, barriers.v_empty(v.index));
        v.advance();
    };
    // What comes between S = Q K^T and its maxima.
    auto add_terms = [&](auto masked) {
        constexpr bool kMasked = decltype(masked)::value;
        if constexpr (kMasked)
            mask_scores(s, p, place, place.first_row + group.warp_row, tile, lane);
    };
    auto softmax = [&](auto masked) {
        add_terms(masked);
        return softmax_tile<decltype(masked)::value>(s, row, p.scale_log2);
    };
    auto finish_o = [&] {
        wgmma_wait<0>();
        pin(o);
        release_v();
    };
    auto by_maxima = [&](auto masked) {
        release_k();
        const Rescale rescale = softmax(masked);
        finish_o();
        pack();
        rescale.apply(o);
    };
    auto visit = [&](auto masked) {
        start_s();
        start_o();
        turns.pass();
        wgmma_wait<1>();  // S is there
        pin(s);
        by_maxima(masked);
        pin(o);
    };

    start_s();
    turns.pass();
    wgmma_wait<0>();
    pin(s);
    release_k();
    softmax(Bool<true>{});  // O is 0
    pack();
    tile--;
#pragma unroll 1
    for (; tile >= max(tiles.unmasked, tiles.first); tile--)
        visit(Bool<true>{});
#pragma unroll 1
    for (; tile >= tiles.first; tile--)
        visit(Bool<false>{});
    group.release_q(barriers);
    turns.take();
    start_o();
    turns.pass();
    finish_o();
}
// ---- forward ----------------------------------------------------------------------------------------
//
// A block computes kBr rows of O at a time (hopper/work.cu.in), 64 in each of its warpgroups (fwd_rows.cu.in) but
// the last, which loads (fwd_loads.cu.in). K and V tiles are visited from the last to the first, so the tiles that need
// a mask come first (forward/tiles.cu.in).
//
// S of a tile is computed while its predecessor's O += P V is, and the softmax runs beside that product:
//
//     start S(j) | start O += P(j-1) V(j-1) | wait for S(j) | softmax | wait for O | rescale O
//
// With kTurns, warpgroups start these two products in turns, so that one has its softmax while the tensor
// cores work for another.
//
// Each stage of K and of V, and each warpgroup's rows of Q, have two barriers (fwd_barriers.cu.in): `full`, at which
// the loads arrive, and `empty`, at which every warp arrives that has read them. Where O has no place of its own in
// shared memory, it comes into that of Q, which is empty when O is written.

extern "C" __global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    fwd_sm90(const __grid_constant__ Params p, const __grid_constant__ TensorMaps maps)
{
    extern __shared__ __align__(1024) char shared[];
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    const Barriers barriers{smem};
    const int index = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);

    if (threadIdx.x == 0)
        barriers.init();
    __syncthreads();  // the barriers are there

    if (index == kGroups) {
        give_registers<kLoadRegisters>();
        Loads loads(p, maps, barriers);
        if (threadIdx.x == kGroups * 128)
            for (Work work(p); work.is_left(p); work.advance(p)) {
                const BlockPlace place(p, work);
                loads.load_rows(place, TileRange(p, place));
            }
        return;
    }
    take_registers<kGroupRegisters>();
    Group group(index);
    for (Work work(p); work.is_left(p); work.advance(p)) {
        const BlockPlace place(p, work);
        const TileRange tiles(p, place);
        float o[kRowTiles][kOutTiles][4] = {};
        RowState row;
        begin_rows(row);

        barrier_wait(barriers.q_full(index), work.parity());
        if (tiles.count > tiles.first)
            compute_rows(p, place, tiles, barriers, group, o, row);
        else
            group.release_q(barriers);
        write_rows(p, place, o, row, smem + kOArea + index * kGroupBytes, group.warp_row, group.lane, maps.o);
    }
    group.turns.finish();
    if (group.lane == 0)
        wait_stores();
}
