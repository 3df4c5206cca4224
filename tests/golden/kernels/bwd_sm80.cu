// bwd_sm80 d=64 dtype=bf16 causal=1 br=64 bc=128 warps=4 qwarps=1 parts=2 stages=1 barriers=2 order=early dq=red dqbc=0 rows=prepared layout=swizzle
// op=backward abi=1 rows=64 keys=128 columns=64 workspace=rows_and_dq; bwd_sm80_prepare role=prepare threads=256 smem=0 blocks=padded_rows/32; bwd_sm80 role=main threads=128 smem=66048 blocks=key_tiles; bwd_sm80_convert role=convert threads=128 smem=0 blocks=padded_rows/32
// bwd_sm80: attention backward on SM 8.0 and newer. fp16 or bf16, mma m16n8k16, tiles loaded by cp.async.
// ---- the variant -------------------------------------------------------------------------------
constexpr int kHeadDim = 64;            // D: columns of Q, K and their gradients
constexpr int kBr = 64;                // query rows per tile
constexpr int kBc = 128;                // key rows per block
constexpr int kWarps = 4;
constexpr int kQueryWarps = 1;    // S^T, dP^T: warps that divide the queries; the rest divide keys
constexpr int kRowWarps = 2;      // dQ: warps that divide its rows; the rest divide its columns
constexpr int kParts = 2;          // parts of a warp's queries in a tile; one part at a time is in registers
constexpr int kDqParts = 1;      // parts of a warp's rows of dQ in a tile; one part at a time is in registers
constexpr int kStages = 1;        // stages of Q and dO in shared memory
constexpr int kBarriers = 2;    // barriers per tile: with 1, warps may be a tile apart; more shared memory
constexpr bool kFillLater = false;     // tiles pass through registers one by one, after dQ; else during dQ
constexpr bool kLate = false;     // S^T and dP^T are computed before P^T; else dV is computed in between
constexpr bool kOneLoop = false;     // one loop processes tiles with and without a mask
constexpr bool kCausal = 1 == 1;  // query i sees keys <= i + seq_k - seq_q
constexpr int kDqBc = 0;            // key rows per tile of the separate blocks of dQ
constexpr bool kSwizzle = true;  // 16-byte chunks of a row are permuted; else each row is padded
constexpr int kGeneratorSmemBytes = 66048;
// ---- configuration of all backward families --------------------------------------------------------------------
constexpr int kHeadDimV = 64;             // columns of V, O and their gradients
constexpr bool kApart = false;    // separate blocks compute dQ, and S and dP again
constexpr bool kAllKeys = false;    // a block has all keys of a head, one tile after the other
constexpr bool kTakesTurns = false;      // blocks add to a tile of dQ in a fixed order
constexpr bool kLastKeysFirst = false;   // the first blocks have the last keys
constexpr bool kLastTileFirst = kTakesTurns && !kLastKeysFirst;  // order in which tiles of queries are processed
constexpr bool kPrepared = true;        // a kernel before computes LSE and delta; else each block does
constexpr bool kSplit = false;           // several blocks share the queries of a tile of keys
constexpr bool kBiasGradient = false;    // the gradient of the bias is wanted
constexpr bool kByProduct = false;       // on wgmma: warpgroups divide the products of a tile, not its keys
constexpr int kWriters = 128;            // threads that write a tile of dK, or of dV
// Kernels before and after the main one: threads of a block, or rows.
constexpr int kPrepareThreads = 256;
constexpr int kConvertRows = 32;
constexpr int kSinkThreads = 256;
constexpr int kClearRows = 8;

// ---- the element, the SM and the features; a feature that is off costs nothing -------------------------------------
constexpr bool kBf16 = true;        // elements are bf16; else fp16
constexpr bool kTuring = false;      // Turing: products are m16n8k8, tiles pass through registers
constexpr bool kWgmma = false;       // products are wgmma

// Which members the parameters have (features/params.cuh).
#define FA2_BACKWARD     true  // members of the backward kernels
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
constexpr int kKeyWarps = kWarps / kQueryWarps;
constexpr int kColWarps = kWarps / kRowWarps;
constexpr int kHeadDimPadded = (kHeadDim + 16 * kQueryWarps - 1) / (16 * kQueryWarps) * (16 * kQueryWarps);
constexpr int kHeadDimVPadded = (kHeadDimV + 16 * kQueryWarps - 1) / (16 * kQueryWarps) * (16 * kQueryWarps);
constexpr int kDepth = kHeadDimPadded / 16;                        // k16 steps of S; 16-column pairs of dK and dQ
constexpr int kKeyTiles = kBc / (16 * kKeyWarps);                  // m16 tiles of keys per warp
constexpr int kWarpQueries = kBr / kQueryWarps;                    // queries per tile and warp
constexpr int kQueryTiles = kWarpQueries / (8 * kParts);           // n8 tiles of queries per part
constexpr int kQuerySteps = kQueryTiles / 2;                       // k16 steps of dK and dV per part
constexpr int kOutPairs = kDepth / kQueryWarps;                    // 16-column pairs of n8 tiles of dK per warp
constexpr int kValuePairs = kHeadDimVPadded / (16 * kQueryWarps);  // 16-column pairs of n8 tiles of dV per warp
constexpr int kDqRowTiles = kBr / (16 * kRowWarps);                // m16 tiles of dQ per warp
constexpr int kDqPartTiles = kDqRowTiles / kDqParts;               // m16 tiles of dQ per warp at a time
constexpr int kDqPairs = kDepth / kColWarps;                       // 16-column pairs of dQ per warp
constexpr unsigned kTogether = 512;  // tiles of keys, over several heads, that are interleaved
// Blocks with the most work come first, over all heads; else blocks are in the order of their keys.
constexpr bool kHeavyFirst = kCausal && kWindow == Window::kNone;

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
// ValueTile: rows of V, O and their gradients.
using ValueTile = TileForm<kHeadDimVPadded>;
constexpr int kQTileBytes = kBr * kPitch;
constexpr int kKTileBytes = kBc * kPitch;
constexpr int kDoTileBytes = kBr * ValueTile::kPitch;
constexpr int kVTileBytes = kBc * ValueTile::kPitch;

// dS^T [keys][queries] of the whole tile: dQ needs the results of every warp.
using ScoreTile = TileForm<kBr>;
constexpr int kScoreBytes = kBc * ScoreTile::kPitch;

// P^T as fragments, for the warps that have the same keys: [key warp][query warp][step][m16 tile][lane].
constexpr int kFragmentBytes = 32 * 16;
constexpr int kWarpFragments = kParts * kQuerySteps * kKeyTiles;
constexpr int kSharedPBytes = kQueryWarps > 1 ? kWarps *kWarpFragments *kFragmentBytes : 0;

// With one barrier per tile, a tile's P^T and dS^T are still read while the next tile's are written.
constexpr int kScoreStages = kBarriers == 1 ? 2 : 1;

// LSE in log2 units and delta of the rows of a tile.
constexpr int kRowBytes = 2 * kBr * 4;

constexpr int kKArea = 0;
constexpr int kVArea = kKArea + kKTileBytes;
constexpr int kQArea = kVArea + kVTileBytes;
constexpr int kDoArea = kQArea + kStages * kQTileBytes;
constexpr int kScoreArea = kDoArea + kStages * kDoTileBytes;
constexpr int kSharedPArea = kScoreArea + kScoreStages * kScoreBytes;
constexpr int kRowArea = kSharedPArea + kScoreStages * kSharedPBytes;
constexpr int kKeyBlockBytes = kRowArea + kStages * kRowBytes;

// Separate blocks of dQ: 16 rows of Q and dO per warp, two tiles of K and V, LSE and delta.
constexpr int kDqRows = 16 * kWarps;
constexpr int kDqKBytes = kDqBc * kPitch;
constexpr int kDqVBytes = kDqBc * ValueTile::kPitch;
constexpr int kDqDoArea = kDqRows * kPitch;
constexpr int kDqKArea = kDqDoArea + kDqRows * ValueTile::kPitch;
constexpr int kDqVArea = kDqKArea + 2 * kDqKBytes;
constexpr int kDqStatArea = kDqVArea + 2 * kDqVBytes;
constexpr int kQueryBlockBytes = kDqStatArea + 2 * kDqRows * 4;

constexpr int kSmemBytes = kApart && kQueryBlockBytes > kKeyBlockBytes ? kQueryBlockBytes : kKeyBlockBytes;
static_assert(kSmemBytes == kGeneratorSmemBytes, "the generator computed another size");

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

// ---- packed sequences: of different lengths, one after the other ------------------------------------------------
//
// A block works on one sequence as on a batch of one, with the sequence's lengths, and tensors that begin with its
// rows. All blocks share the workspace. Its size follows the rows of the tensors, however many sequences share them:
//
// - LSE and delta of a head: a sequence begins at a multiple of eight rows, a sector;
// - sums of dQ of a head: a sequence begins at its first row (dq_sums.cuh);
// - counters of dQ tiles: the tiles of all sequences by their numbers (features/lengths.cuh).

// Packed sequences are one batch.
__device__ __forceinline__ int batches(const Params &p)
{
    return kVarlen ? 1 : p.batch;
}

// Rows of LSE and delta per head in the workspace: whole tiles; with packed sequences, whole warps of the preparing
// kernel.
constexpr int kSectorRows = 8;

__device__ __forceinline__ int prepared_rows(const Params &p)
{
    return ((p.features.total_q / kSectorRows + p.batch) * kSectorRows + 31) / 32 * 32;
}

__device__ __forceinline__ int64 plane_rows(const Params &p)
{
    if constexpr (kVarlen)
        return prepared_rows(p);
    else
        return int64(p.q_tiles) * kBr;
}

// The sequence and tile that a tile number stands for; tiles have kRows keys, or queries.
template <int kRows, bool kOfKeys> struct PackedTile {
    int index;  // index of the sequence; -1: there is no such tile
    int tile;   // tile within the sequence
    Sequence sequence;

    PackedTile() = default;

    __device__ __forceinline__ PackedTile(const Params &p, int number)
    {
        const int *cu_seqlens = kOfKeys ? p.features.cu_seqlens_k : p.features.cu_seqlens_q;
        const int total = kOfKeys ? p.features.total_k : p.features.total_q;
        auto first = [&](int b) { return first_tile(cu_seqlens, total, kRows, b); };
        index = last_sequence(p, number, first);
        sequence = Sequence(p, index);
        tile = number - first(index);
        const int rows = kOfKeys ? sequence.seq_k : sequence.seq_q;
        if (tile < 0 || tile >= (rows + kRows - 1) / kRows)
            index = -1;
    }

    // Returns the parameters of this sequence alone. all: of all sequences. It is a template because most kernels lack
    // these members.
    template <class AllParams> __device__ __forceinline__ AllParams alone(const AllParams &all) const
    {
        const int64 query = sequence.first_q, key = sequence.first_k;
        AllParams p = all;
        p.q += query * p.q_stride.seq * 2;
        p.o += query * p.o_stride.seq * 2;
        p.d_o += query * p.do_stride.seq * 2;
        p.k += key * p.k_stride.seq * 2;
        p.v += key * p.v_stride.seq * 2;
        if (p.dq != nullptr)
            p.dq += query * p.dq_stride.seq * 2;
        if (p.dk != nullptr)
            p.dk += key * p.dk_stride.seq * 2;
        if (p.dv != nullptr)
            p.dv += key * p.dv_stride.seq * 2;
        p.lse += query;
        p.seq_q = sequence.seq_q;
        p.seq_k = sequence.seq_k;
        if constexpr (kAlibi)
            p.features.alibi_slopes += max(index, 0) * p.features.alibi_stride;
        if constexpr (kBias != BiasKind::kNone)
            p.features.bias += max(index, 0) * p.features.bias_batch * int64(sizeof(BiasElem));
        return p;
    }
};

// A block's parameters: its sequence's own copy, or the kernel's.
using OwnParams = Either<kVarlen, const Params, const Params &>::Type;

// The first row of LSE and delta of a sequence.
__device__ __forceinline__ int prepared_begin(const Params &p, int sequence)
{
    return first_tile(p.features.cu_seqlens_q, p.features.total_q, kSectorRows, sequence) * kSectorRows;
}

// Returns the packed row of row `at` of LSE and delta of a head; total_q if that belongs to no sequence. Lanes of a
// warp must ask for consecutive rows, lane 0 for the first.
__device__ __forceinline__ int packed_row(const Params &p, int at)
{
    auto first = [&](int b) { return prepared_begin(p, b); };
    int b = last_sequence(p, __shfl_sync(0xffffffffu, at, 0), first);
    while (b + 1 < p.batch && first(b + 1) <= at)
        b++;
    const Sequence sequence(p, b);
    const int row = at - first(b);
    return row >= 0 && row < sequence.seq_q ? sequence.first_q + row : p.features.total_q;
}

// Sets rows first ... end - 1 of dQ that belong to no sequence to 0. p: of all sequences. Called by all kBlock threads.
template <int kBlock>
__device__ __forceinline__ void clear_unused_queries(const Params &p, int head, int64 first, int64 end)
{
    clear_unused<kBlock>(
        p.features.cu_seqlens_q, p.batch, p.features.total_q, first, end, kHeadDim / 8, [&](int row, int chunk) {
            *reinterpret_cast<uint4 *>(p.dq + (head * p.dq_stride.head + row * p.dq_stride.seq) * 2 + chunk * 16) =
                uint4{};
        });
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

// ---- LSE and delta of rows --------------------------------------------------------------------------------------

// Rows of a head: of p, or of all packed sequences if kOfAll.
template <bool kOfAll> __device__ __forceinline__ int head_rows(const Params &p)
{
    return kOfAll && kVarlen ? p.features.total_q : p.seq_q;
}

// Returns LSE in log2 units; +infinity for rows that saw no key and for rows after the tensor's end, so that their P is
// 0.
template <bool kOfAll = false> __device__ __forceinline__ float row_lse(const Params &p, int64 plane, int row)
{
    const float lse = row < head_rows<kOfAll>(p) ? __ldg(p.lse + plane * head_rows<true>(p) + row) : minus_infinity();
    bool none;
    if constexpr (kBiasNumbers)
        none = lse < kLeastScore - 128.0f;  // lower only if no key was visible, or if the sink is that low
    else
        none = lse == minus_infinity();
    return none ? -minus_infinity() : lse * 1.4426950408889634f;
}

// LSE or delta of four rows beyond the end.
__device__ __forceinline__ uint4 no_rows(bool lse)
{
    const uint32 x = lse ? __float_as_uint(-minus_infinity()) : 0;
    return {x, x, x, x};
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
constexpr int kRowChunks = kHeadDimV / 8;
constexpr int kRowLanes = kRowChunks > 16  ? 32
                          : kRowChunks > 8 ? 16
                          : kRowChunks > 4 ? 8
                          : kRowChunks > 2 ? 4
                                           : kRowChunks;

// Returns delta = rowsum(dO * O), in all lanes of the row; 0 after the tensor's end. All lanes of the warp must call
// it.
template <bool kOfAll = false>
__device__ __forceinline__ float row_delta(const Params &p, int64 batch, int head, int row, int lane)
{
    float delta = 0.0f;
    if (row < head_rows<kOfAll>(p) && lane < kRowChunks) {
        const char *o = p.o + (batch * p.o_stride.batch + head * p.o_stride.head + row * p.o_stride.seq) * 2;
        const char *d_o = p.d_o + (batch * p.do_stride.batch + head * p.do_stride.head + row * p.do_stride.seq) * 2;
        delta =
            dot_8(__ldg(reinterpret_cast<const uint4 *>(o) + lane), __ldg(reinterpret_cast<const uint4 *>(d_o) + lane));
    }
#pragma unroll
    for (int lanes = kRowLanes / 2; lanes > 0; lanes /= 2)
        delta += __shfl_xor_sync(0xffffffffu, delta, lanes);
    // dP is not multiplied by keep_scale (dQ and dK are, at the end), so delta is divided by it.
    return kDropout ? delta / p.features.keep_scale : delta;
}

// Writes LSE and delta of rows first_row ... first_row + kRows - 1 to shared memory, contiguously. One pass of all
// threads of a block.
constexpr int kRowsAtOnce = kThreads / kRowLanes;

template <int kRows>
__device__ __forceinline__ void put_some_rows(const Params &p, int batch, int head, int first_row, uint32 smem,
                                              int pass, int64 plane, int thread)
{
    const int r = pass * kRowsAtOnce + thread / kRowLanes;
    const int row = r < kRows ? first_row + r : p.seq_q;
    const float delta = row_delta(p, batch, head, row, thread % kRowLanes);
    if (r < kRows && thread % kRowLanes == 0) {
        store_shared_4(smem + r * 4, __float_as_uint(row_lse(p, plane, row)));
        store_shared_4(smem + (kRows + r) * 4, __float_as_uint(delta));
    }
}

// All passes of the block.
template <int kRows>
__device__ __forceinline__ void put_rows(const Params &p, int batch, int head, int first_row, uint32 smem)
{
    constexpr int kPasses = (kRows + kRowsAtOnce - 1) / kRowsAtOnce;
    const int64 plane = int64(batch) * p.heads_q + head;
    const int thread = thread_index();
    if constexpr (kAllKeys) {
#pragma unroll 2  // no deeper unrolling: the sums of dK and dV hold registers meanwhile
        for (int pass = 0; pass < kPasses; pass++)
            put_some_rows<kRows>(p, batch, head, first_row, smem, pass, plane, thread);
    } else {
#pragma unroll
        for (int pass = 0; pass < kPasses; pass++)
            put_some_rows<kRows>(p, batch, head, first_row, smem, pass, plane, thread);
    }
}

// ---- loads of LSE and delta of a tile's rows into shared memory -------------------------------------------------

// Policy: each block computes them.
struct ComputedRows {
    __device__ __forceinline__ void issue(const Params &p, int batch, int head, int tile, int, uint32 smem)
    {
        put_rows<kBr>(p, batch, head, tile * kBr, smem);
    }

    __device__ __forceinline__ void store(uint32)
    {
    }
};

// Policy: loaded from the workspace, 16 bytes per thread. The workspace has whole tiles; with packed sequences, rows of
// others follow a sequence's last rows.
constexpr int kRowQuarters = kBr / 4;  // 16-byte loads of LSE; delta has as many
static_assert(2 * kRowQuarters <= kThreads, "a thread copies 16 bytes at most");

// Index of the first row that thread i loads, of LSE or delta of a tile. first: first row of the sequence.
__device__ __forceinline__ int64 prepared_row(const Params &p, int64 plane, int tile, int first, int i)
{
    const int64 rows = plane_rows(p);
    const int64 planes = int64(batches(p)) * p.heads_q;
    return (i < kRowQuarters ? plane : planes + plane) * rows + first + tile * kBr;
}

// Loaded through registers.
struct StagedRows {
    uint4 staged;

    __device__ __forceinline__ void issue(const Params &p, int batch, int head, int tile, int first, uint32)
    {
        const int64 plane = int64(batch) * p.heads_q + head;
        const int i = thread_index();
        const int64 from = prepared_row(p, plane, tile, first, i);
        if (kVarlen && tile * kBr + i % kRowQuarters * 4 >= p.seq_q)
            staged = no_rows(i < kRowQuarters);
        else if (i < 2 * kRowQuarters)
            staged = __ldg(reinterpret_cast<const uint4 *>(p.rows + from + i % kRowQuarters * 4));
    }

    __device__ __forceinline__ void store(uint32 smem)
    {
        const int i = thread_index();
        if (i < 2 * kRowQuarters)
            store_shared_16(smem + i * 16, staged);
    }
};

// Loaded by cp.async.
struct CopiedRows {
    __device__ __forceinline__ void issue(const Params &p, int batch, int head, int tile, int first, uint32 smem)
    {
        const int64 plane = int64(batch) * p.heads_q + head;
        const int i = thread_index();
        const int64 from = prepared_row(p, plane, tile, first, i);
        if (kVarlen && tile * kBr + i % kRowQuarters * 4 >= p.seq_q) {
            if (i < 2 * kRowQuarters)
                store_shared_16(smem + i * 16, no_rows(i < kRowQuarters));
            return;
        }
        cp_async_16(smem + i * 16, reinterpret_cast<const char *>(p.rows + from + i % kRowQuarters * 4),
                    i < 2 * kRowQuarters);
    }

    __device__ __forceinline__ void store(uint32)
    {
    }
};

using RowFill = Either<kPrepared, Either<kTuring, StagedRows, CopiedRows>::Type, ComputedRows>::Type;

// ---- block coordinates: kBc key rows of one key head --------------------------------------------------------------

// Packed sequences: the block's sequence.
struct PlaceInSequence {
    PackedTile<kBc, true> own;
    int number;            // number of the tile, counted over all sequences
    int sequence_q_tiles;  // tiles of queries of the sequence
    int first_q_tile;      // number of its first tile of queries
    int first_prepared;    // its first row of LSE and delta

    __device__ __forceinline__ void find(const Params &p, unsigned tile, int &first_key)
    {
        number = tile;
        own = PackedTile<kBc, true>(p, tile);
        first_key = own.tile * kBc;
        sequence_q_tiles = (own.sequence.seq_q + kBr - 1) / kBr;
        first_q_tile = first_tile(p.features.cu_seqlens_q, p.features.total_q, kBr, max(own.index, 0));
        first_prepared = prepared_begin(p, max(own.index, 0));
    }

    __device__ __forceinline__ bool is_empty() const
    {
        return own.index < 0;
    }

    __device__ __forceinline__ int q_tiles(const Params &) const
    {
        return sequence_q_tiles;
    }

    __device__ __forceinline__ Params params(const Params &all) const
    {
        return own.alone(all);
    }
};

struct PlaceInBatch {
    static constexpr int first_q_tile = 0, first_prepared = 0;

    static __device__ __forceinline__ void find(const Params &, unsigned, int &)
    {
    }

    static __device__ __forceinline__ bool is_empty()
    {
        return false;
    }

    static __device__ __forceinline__ int q_tiles(const Params &p)
    {
        return p.q_tiles;
    }

    static __device__ __forceinline__ const Params &params(const Params &all)
    {
        return all;
    }
};

struct BlockPlace : Either<kVarlen, PlaceInSequence, PlaceInBatch>::Type {
    int first_key;
    int kv_head, batch;

    // Heavy tiles of all heads first when causal: the first keys are seen by the most queries. With a window all but
    // the last ones are seen by equally many.
    __device__ __forceinline__ BlockPlace(const Params &p, unsigned block)
    {
        const unsigned kv_heads = p.heads_q / p.group;
        unsigned tile, plane;
        if constexpr (kAllKeys) {  // one block processes all tiles, one after the other
            tile = block % p.k_tiles;
            plane = block / p.k_tiles;
        } else {
            const unsigned planes = kv_heads * batches(p);
            // Blocks that begin together have keys of several heads, because blocks of one head add to the same dQ. Not
            // of all heads, so that what they read stays in the L2 cache.
            const unsigned most = kHeavyFirst ? planes : max(8u, kTogether / p.k_tiles);
            const unsigned first_plane = block / (most * p.k_tiles) * most;
            const unsigned together = min(most, planes - first_plane);
            tile = block % (most * p.k_tiles) / together;
            if constexpr (kLastKeysFirst)
                tile = p.k_tiles - 1 - tile;
            plane = first_plane + block % (most * p.k_tiles) % together;
        }
        first_key = tile * kBc;
        kv_head = plane % kv_heads;
        batch = plane / kv_heads;
        find(p, tile, first_key);
    }

    // The batch number for dropout.
    __device__ __forceinline__ int sequence() const
    {
        return sequence_of(*this);
    }

private:
    template <class Place> static __device__ __forceinline__ int sequence_of(const Place &place)
    {
        if constexpr (kVarlen)
            return place.own.index;
        else
            return place.batch;
    }
};

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

// ---- the tiles of queries that a block processes, for each head of its group ----------------------------------

// Queries [begin, end) that see some of the keys first_key ... last_key, and [begin_of_all, end_of_all) that see each
// of them, if any.
struct WindowQueries {
    int begin, end, begin_of_all, end_of_all;

    __device__ __forceinline__ WindowQueries(const Params &p, int first_key, int last_key)
    {
        const int offset = p.seq_k - p.seq_q;
        end = max(0, min(p.seq_q, last_at(p, last_key) - offset + 1));
        begin = max(0, min(end, first_at(p, first_key) - offset));
        end_of_all = max(0, min(end, last_at(p, first_key) - offset + 1));
        begin_of_all = max(0, first_at(p, last_key) - offset);
    }
};

struct WindowTiles {
    int first, unmasked;
    int masked;  // tiles from this one on need a mask, too
    int stop;
};

struct SequenceTiles {
    int first, unmasked;
    static constexpr int masked = kUnbounded;
    int stop;
};

struct AllTiles {
    int first, unmasked;
    static constexpr int masked = kUnbounded;
};

// The range of tiles, from `first` to end(p). Those before `unmasked` need a mask.
struct TileRange : Either<kWindow != Window::kNone, WindowTiles, Either<kVarlen, SequenceTiles, AllTiles>::Type>::Type {
    // p: parameters of the block's sequence.
    __device__ __forceinline__ TileRange(const Params &p, const BlockPlace &place)
    {
        if constexpr (kWindow != Window::kNone)
            find_window(*this, p, place);
        else
            find_all(*this, p, place);
    }

    __device__ __forceinline__ int end(const Params &p) const
    {
        return end_of(*this, p);
    }

private:
    template <class Range> static __device__ __forceinline__ int end_of(const Range &range, const Params &p)
    {
        if constexpr (kWindow != Window::kNone || kVarlen)
            return range.stop;
        else
            return p.q_tiles;
    }

    template <class Range>
    static __device__ __forceinline__ void find_window(Range &range, const Params &p, const BlockPlace &place)
    {
        const int last_key = min(place.first_key + kBc, p.seq_k) - 1;
        const WindowQueries queries(p, place.first_key, last_key);
        range.first = queries.begin / kBr;
        range.stop = (queries.end + kBr - 1) / kBr;
        range.unmasked = (queries.begin_of_all + kBr - 1) / kBr;
        // Queries after the tensor's end need no mask: their LSE makes P 0.
        range.masked = queries.end_of_all == p.seq_q ? place.q_tiles(p) : queries.end_of_all / kBr;
        if (last_key != place.first_key + kBc - 1)  // keys after the end must be masked for every query
            range.unmasked = range.stop;
    }

    template <class Range>
    static __device__ __forceinline__ void find_all(Range &range, const Params &p, const BlockPlace &place)
    {
        // The first query that sees some key of the block, and the first that sees all of them.
        int query = 0, query_of_all = 0;
        if (kCausal) {
            const int offset = p.seq_k - p.seq_q;
            query = max(0, place.first_key - offset);
            query_of_all = max(0, place.first_key + kBc - 1 - offset);
        }
        range.first = min(query / kBr, place.q_tiles(p));
        range.unmasked = (query_of_all + kBr - 1) / kBr;
        if (place.first_key + kBc > p.seq_k)  // keys after the tensor's end must be masked for every query
            range.unmasked = place.q_tiles(p);
        if constexpr (kVarlen)
            range.stop = place.q_tiles(p);
    }
};

// A position in the order of processing: a tile of queries of one head of the group.
struct Cursor {
    int head, tile;

    __device__ __forceinline__ void advance(const TileRange &tiles, int end)
    {
        if constexpr (kLastTileFirst) {
            if (--tile < tiles.first) {
                tile = end - 1;
                head++;
            }
        } else {
            if (++tile == end) {
                tile = tiles.first;
                head++;
            }
        }
    }
};

// Returns the position `count` tiles after `at`.
__device__ __forceinline__ Cursor after(const Cursor &at, int count, const Params &p, const TileRange &tiles)
{
    Cursor cursor = at;
    for (int i = 0; i < count; i++)
        cursor.advance(tiles, tiles.end(p));
    return cursor;
}

// ---- the threads that write dK and dV: all of a block; on wgmma the consumers, or one warpgroup of them --------

__device__ __forceinline__ unsigned writer()
{
    return kByProduct ? threadIdx.x % kWriters : threadIdx.x;
}

// A barrier for these threads.
__device__ __forceinline__ void writers_meet()
{
    if constexpr (kByProduct)
        named_barrier(2 + threadIdx.x / kWriters, kWriters);
    else if constexpr (kWgmma)
        named_barrier(1, kWriters);
    else
        __syncthreads();
}

// ---- kSplit: several blocks share the queries of their keys, if there are few blocks ------------------------------
//
// Block n of a tile of keys processes the n-th part of the tiles of queries, counted over all heads of the group, one
// head after the other. It writes its partial dK and dV to the workspace, in the order of its fragments. A later kernel
// sums the parts in the order of the blocks (combine.cuh).

struct SplitRange {
    Cursor begin, end;
    int visits;  // number of tiles of queries in this block's part

    __device__ __forceinline__ SplitRange(const Params &p, const TileRange &tiles, int split)
    {
        const int count = max(tiles.end(p) - tiles.first, 0);
        const int64 all = int64(count) * p.group;
        begin = cursor(p, tiles, count, int(all * split / p.splits));
        end = cursor(p, tiles, count, int(all * (split + 1) / p.splits));
        visits = int(all * (split + 1) / p.splits) - int(all * split / p.splits);
    }

    static __device__ __forceinline__ Cursor cursor(const Params &p, const TileRange &tiles, int count, int number)
    {
        const int head = number / max(count, 1), tile = number - head * count;
        return {head, kLastTileFirst ? tiles.end(p) - 1 - tile : tiles.first + tile};
    }

    __device__ __forceinline__ Cursor start(const Params &, const TileRange &) const
    {
        return begin;
    }

    __device__ __forceinline__ bool has(const Params &, const Cursor &at) const
    {
        return at.head < end.head ||
               (at.head == end.head && (kLastTileFirst ? at.tile > end.tile : at.tile < end.tile));
    }

    __device__ __forceinline__ bool has_some(const Params &p, const TileRange &) const
    {
        return has(p, begin);
    }
};

// The range of a block that has its keys alone: all tiles.
struct WholeRange {
    __device__ __forceinline__ WholeRange(const Params &, const TileRange &, int)
    {
    }

    static __device__ __forceinline__ Cursor start(const Params &p, const TileRange &tiles)
    {
        return {0, kLastTileFirst ? tiles.end(p) - 1 : tiles.first};
    }

    static __device__ __forceinline__ bool has(const Params &p, const Cursor &at)
    {
        return at.head < p.group;
    }

    static __device__ __forceinline__ bool has_some(const Params &p, const TileRange &tiles)
    {
        return tiles.first < tiles.end(p);
    }
};

using QueryRange = Either<kSplit, SplitRange, WholeRange>::Type;

constexpr int kPartFloats = kWriters * kKeyTiles * 2 * kOutPairs * 4;  // numbers of a part of dK or of dV

// Address of this thread's numbers of a part. Parts are before the rows of LSE and delta in the workspace.
__device__ __forceinline__ float4 *part_of(const Params &p, const BlockPlace &place, int split, int which)
{
    const int64 key_blocks = int64(p.k_tiles) * p.batch * (p.heads_q / p.group);
    const int64 key_block =
        (int64(place.batch) * (p.heads_q / p.group) + place.kv_head) * p.k_tiles + place.first_key / kBc;
    const int64 behind = ((p.splits - split) * key_blocks - key_block) * 2 - which;
    return reinterpret_cast<float4 *>(const_cast<float *>(p.rows) - behind * kPartFloats) + writer();
}

template <int kTiles>
__device__ __forceinline__ void put_part(const Params &p, const BlockPlace &place, int split, int which,
                                         const float (&x)[kKeyTiles][kTiles][4])
{
    static_assert(kTiles == 2 * kOutPairs, "dK and dV have as many columns");
    float4 *part = part_of(p, place, split, which);
#pragma unroll
    for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
        for (int n = 0; n < kTiles; n++)
            part[(m * kTiles + n) * kWriters] = float4{x[m][n][0], x[m][n][1], x[m][n][2], x[m][n][3]};
}

// ---- loads: K and V once, tiles of Q and dO with LSE and delta of their rows -----------------------------------
//
// Called by the kernel of bwd.cuh: load_keys and begin_queries in its prologue, issue_queries and store_queries in each
// step.

// Loads kBc rows of K and V. If later tiles pass through registers one by one (kFillLater), there are registers for
// only one tile here, too.
__device__ __forceinline__ void load_keys(const Params &p, const BlockPlace &place, uint32 smem)
{
    Fill<kBc, kThreads> k_fill;
    Fill<kBc, kThreads, kHeadDimV> v_fill;
    const char *k_tile =
        p.k + (place.batch * p.k_stride.batch + place.kv_head * p.k_stride.head + place.first_key * p.k_stride.seq) * 2;
    const char *v_tile =
        p.v + (place.batch * p.v_stride.batch + place.kv_head * p.v_stride.head + place.first_key * p.v_stride.seq) * 2;
    k_fill.template issue<false>(FillPlan<kBc, kThreads>(), kWhole, smem + kKArea, p.seq_k - place.first_key,
                                 [&](int r) { return k_tile + r * p.k_stride.seq * 2; });
    if constexpr (kFillLater)
        k_fill.store(smem + kKArea);
    v_fill.template issue<false>(FillPlan<kBc, kThreads, kHeadDimV>(), kWhole, smem + kVArea, p.seq_k - place.first_key,
                                 [&](int r) { return v_tile + r * p.v_stride.seq * 2; });
    if constexpr (!kFillLater)
        k_fill.store(smem + kKArea);
    v_fill.store(smem + kVArea);
}

// The loads of a tile of queries, which are under way while another tile is processed.
struct QueryFills {
    Fill<kBr, kThreads> q;
    Fill<kBr, kThreads, kHeadDimV> d_o;
    RowFill rows;
};

__device__ __forceinline__ void issue_q(QueryFills &fills, const Params &p, const BlockPlace &place, int first_head,
                                        uint32 smem, const Cursor &to, int stage)
{
    const char *tile = p.q + (place.batch * p.q_stride.batch + (first_head + to.head) * p.q_stride.head +
                              int64(to.tile) * kBr * p.q_stride.seq) *
                                 2;
    fills.q.template issue<false>(FillPlan<kBr, kThreads>(), kWhole, smem + kQArea + stage * kQTileBytes,
                                  p.seq_q - to.tile * kBr, [&](int r) { return tile + r * p.q_stride.seq * 2; });
}

__device__ __forceinline__ void issue_do(QueryFills &fills, const Params &p, const BlockPlace &place, int first_head,
                                         uint32 smem, const Cursor &to, int stage)
{
    const char *tile = p.d_o + (place.batch * p.do_stride.batch + (first_head + to.head) * p.do_stride.head +
                                int64(to.tile) * kBr * p.do_stride.seq) *
                                   2;
    fills.d_o.template issue<false>(FillPlan<kBr, kThreads, kHeadDimV>(), kWhole, smem + kDoArea + stage * kDoTileBytes,
                                    p.seq_q - to.tile * kBr, [&](int r) { return tile + r * p.do_stride.seq * 2; });
}

__device__ __forceinline__ void issue_rows(QueryFills &fills, const Params &p, const BlockPlace &place, int first_head,
                                           uint32 smem, const Cursor &to, int stage)
{
    fills.rows.issue(p, place.batch, first_head + to.head, to.tile, place.first_prepared,
                     smem + kRowArea + stage * kRowBytes);
}

// Starts to copy a tile of queries.
__device__ __forceinline__ void issue_queries(QueryFills &fills, const Params &p, const BlockPlace &place,
                                              const QueryRange &range, int first_head, uint32 smem, const Cursor &to,
                                              int stage)
{
    if (!kFillLater && range.has(p, to)) {
        issue_q(fills, p, place, first_head, smem, to, stage);
        issue_do(fills, p, place, first_head, smem, to, stage);
        issue_rows(fills, p, place, first_head, smem, to, stage);
    }
    fill_commit();
}

// Finishes the copy, when the stage is no longer read.
__device__ __forceinline__ void store_queries(QueryFills &fills, const Params &p, const BlockPlace &place,
                                              const QueryRange &range, int first_head, uint32 smem, const Cursor &to,
                                              int stage)
{
    if (range.has(p, to)) {
        if constexpr (kFillLater)
            issue_q(fills, p, place, first_head, smem, to, stage);
        fills.q.store(smem + kQArea + stage * kQTileBytes);
        if constexpr (kFillLater) {
            issue_do(fills, p, place, first_head, smem, to, stage);
            issue_rows(fills, p, place, first_head, smem, to, stage);
        }
        fills.d_o.store(smem + kDoArea + stage * kDoTileBytes);
        fills.rows.store(smem + kRowArea + stage * kRowBytes);
    }
}

constexpr int kAhead = kBarriers == 1 ? 2 : 1;  // how many tiles the copy is ahead of the tile that is processed

// The stage of that tile.
__device__ __forceinline__ int stage_ahead(int stage)
{
    if constexpr (kBarriers == 2)
        return kStages == 2 ? stage ^ 1 : 0;
    else if constexpr (kStages == 2)
        return stage;
    else
        return stage == 0 ? 2 : stage - 1;
}

// Prologue: loads the first tiles, from `at` on.
__device__ __forceinline__ void begin_queries(QueryFills &fills, const Params &p, const BlockPlace &place,
                                              const TileRange &tiles, const QueryRange &range, int first_head,
                                              uint32 smem, const Cursor &at)
{
    issue_queries(fills, p, place, range, first_head, smem, at, 0);
    store_queries(fills, p, place, range, first_head, smem, at, 0);
    if constexpr (kBarriers == 1) {
        issue_queries(fills, p, place, range, first_head, smem, after(at, 1, p, tiles), 1);
        store_queries(fills, p, place, range, first_head, smem, after(at, 1, p, tiles), 1);
        fill_wait<1>();
        __syncthreads();  // K, V and the first tile are complete
    }
}

// Packs two neighbouring accumulator tiles, which have the layout of one 16x16 A fragment.
__device__ __forceinline__ void pack_fragment(uint32 (&a)[4], const float (&left)[4], const float (&right)[4])
{
    a[0] = pack2(left[0], left[1]);
    a[1] = pack2(left[2], left[3]);
    a[2] = pack2(right[0], right[1]);
    a[3] = pack2(right[2], right[3]);
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

// ---- P^T and dS^T ------------------------------------------------------------------------------------
//
// Scores are capped and modified, turned into P, and masked. dS is P times (dP - delta) times the derivative of the
// cap.
//
// Fragments (PTX ISA, mma.m16n8k16), with lane = 4 * quad_row + quad_lane. An accumulator holds columns 2 * quad_lane
// and 2 * quad_lane + 1 of a 16x8 tile: of row quad_row in c[0], c[1], and of row quad_row + 8 in c[2], c[3]. Rows are
// keys and columns are queries, so values per query are read in pairs from shared memory.

using Scores = float[kKeyTiles][kQueryTiles][4];

// Turns S^T into P^T = 2^(scale_log2 * S - lse). lse_smem: LSE of this lane's first query.
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

// Sets P^T to 0 if the query is before the first or after the last one that sees the key. Both are relative to this
// lane's first query, because queries are then constants after unrolling.
__device__ __forceinline__ void mask_window(Scores &s, const Params &p, int first_key, int first_query)
{
#pragma unroll
    for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int key = first_key + m * 16 + h * 8;
            const int at = p.seq_k - p.seq_q + first_query;
            const int first = key < p.seq_k ? first_at(p, key) - at : kBr;
            const int last = last_at(p, key) - at;
#pragma unroll
            for (int n = 0; n < kQueryTiles; n++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    if (n * 8 + e < first || n * 8 + e > last)
                        s[m][n][2 * h + e] = 0.0f;
        }
}

// Sets P^T to 0 if the query is before the first one that sees the key; there is no last one.
__device__ __forceinline__ void mask_first(Scores &s, const Params &p, int first_key, int first_query)
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

__device__ __forceinline__ void mask_p(Scores &s, const Params &p, int first_key, int first_query)
{
    if constexpr (kWindow != Window::kNone)
        mask_window(s, p, first_key, first_query);
    else
        mask_first(s, p, first_key, first_query);
}

__device__ __forceinline__ void copy_scores(Scores &to, const Scores &from)
{
#pragma unroll
    for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
        for (int n = 0; n < kQueryTiles; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                to[m][n][e] = from[m][n][e];
}

// Multiplies P^T by the derivative of the softcap.
__device__ __forceinline__ void multiply_slopes(Scores &p, const Scores &capped)
{
#pragma unroll
    for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
        for (int n = 0; n < kQueryTiles; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                p[m][n][e] *= cap_slope(capped[m][n][e]);
}

// Turns dP^T into dS^T = P^T * (dP^T - delta), without the softmax scale. p: P^T, already times the derivative of the
// softcap.
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

// ---- the gradient of the bias: the sum of dS over what shares an element of the bias ----------------------------
//
// If batches, heads or queries share a bias, their dS is summed by atomics, in any order.

// Adds dS of one head to the gradient. ds is in the layout of S^T; first_key, first_query: this lane's first ones.
// Hidden elements add nothing.
__device__ __forceinline__ void add_dbias(const Scores &ds, const Params &p, int64 batch, int head, int first_key,
                                          int first_query)
{
    const auto &f = p.features;
    float *sum = f.dbias + batch * f.dbias_batch + head * f.dbias_head;
#pragma unroll
    for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
        for (int n = 0; n < kQueryTiles; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int key = first_key + m * 16 + e / 2 * 8, query = first_query + n * 8 + e % 2;
                const float x = kDropout ? ds[m][n][e] * f.keep_scale : ds[m][n][e];  // delta was divided by it
                if (key < p.seq_k && query < p.seq_q && x != 0.0f)
                    add_global_4(sum + query * f.dbias_query + key * f.dbias_key, x);
            }
}

// The kernel before the main one: sets the gradient to zero. One warp per query of a head; if several queries share an
// element, the first one clears it. kClearRows warps per block.
__device__ __forceinline__ void clear_dbias(const Params &p)
{
    const auto &f = p.features;
    const int64 row = int64(blockIdx.x) * kClearRows + threadIdx.x / 32;
    const int64 plane = row / p.seq_q, batch = plane / p.heads_q;
    const int query = row % p.seq_q, head = plane % p.heads_q;
    const bool is_done = (batch >= p.batch) | ((batch > 0) & (f.dbias_batch == 0)) |
                         ((head > 0) & (f.dbias_head == 0)) | ((query > 0) & (f.dbias_query == 0));
    if (is_done)
        return;
    float *sum = f.dbias + batch * f.dbias_batch + head * f.dbias_head + query * f.dbias_query;
    const int keys = f.dbias_key == 0 ? 1 : p.seq_k;
    for (int key = threadIdx.x % 32; key < keys; key += 32)
        sum[key * f.dbias_key] = 0.0f;
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

// Dropout for this lane's elements of S^T, whose rows are keys. Keys (columns of S) come in pairs: the product with a
// pair's column key is computed twice, and each key of the pair takes its byte of it.
struct PhiloxDropout {
    const DropoutSeed seed;
    uint32 exponents[4];                     // added to the bytes of numbers, to put 0x64 above each
    uint32 columns[kKeyTiles][2];            // words of the column keys of this lane's pairs of keys
    uint32 keep[kKeyTiles][kQueryTiles][2];  // factors of two neighbouring queries, for either half of the rows

    static_assert(kKeyTiles <= 2, "a warp's keys are in 64 that one call of Philox has pairs of");

    // first_key: of this warp; each tile of keys begins at a multiple of 16.
    __device__ __forceinline__ PhiloxDropout(const Params &p, int first_key, int lane) : seed(p.features)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            exponents[i] = opaque(0x64000000u, i);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32 x[4];
            column_keys(x, seed, first_key / 64, h * 4 + lane / 8, lane % 4);
#pragma unroll
            for (int m = 0; m < kKeyTiles; m++)
                columns[m][h] = one_of(x, first_key / 16 % 4 + m);
        }
    }

    // Computes the factors of a tile of queries. first_query: of this warp; each step begins at a multiple of 16.
    __device__ __forceinline__ void begin(const Params &p, int plane, int first_query, int lane)
    {
        constexpr int kSteps = kQuerySteps % 2 == 0 ? 2 : 1;  // steps per call of Philox
        const int selector = 0x7430 + lane / 4 % 2 * 0x0101;
#pragma unroll
        for (int step = 0; step < kQuerySteps; step += kSteps) {
            const int sixteen = first_query / 16 + step;
            uint32 x[4];
            row_keys(x, seed, plane, sixteen / 2, lane);
            const uint32 bound = choose_bound(p.features, word_of_rows(x), lane % 4, lane / 4);
#pragma unroll
            for (int n = 0; n < 2 * kSteps; n++) {
                const uint32 row = kSteps == 1 && sixteen % 2 == 1 ? x[2 + n % 2] : x[n];
#pragma unroll
                for (int m = 0; m < kKeyTiles; m++) {
                    uint32 numbers[4];
                    mma_bytes(numbers, columns[m][0], columns[m][1], row, exponents);
#pragma unroll
                    for (int h = 0; h < 2; h++)
                        keep[m][2 * step + n][h] = keep_pair(numbers[2 * h], numbers[2 * h + 1], selector, bound);
                }
            }
        }
    }

    // Applies dropout to P^T, for dV.
    __device__ __forceinline__ void mask(Fragments &a) const
    {
#pragma unroll
        for (int step = 0; step < kQuerySteps; step++)
#pragma unroll
            for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    a[step][m][i] = keep_elements(a[step][m][i], keep[m][2 * step + i / 2][i % 2]);
    }

    // Marks dropped elements of P^T by a negative sign.
    __device__ __forceinline__ void mark(Scores &p) const
    {
#pragma unroll
        for (int n = 0; n < kQueryTiles; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if ((keep[0][n][e / 2] & 0x2000 << e % 2 * 16) == 0)
                    p[0][n][e] = -p[0][n][e];
    }

    // Applies dropout to dP^T. It is a product, which fuses with the subtraction after it into one FMA; so dropped
    // elements must be finite.
    __device__ __forceinline__ void mask(Scores &dp) const
    {
#pragma unroll
        for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
            for (int n = 0; n < kQueryTiles; n++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const float2 factors = keep_factors(keep[m][n][h]);
                    dp[m][n][2 * h] *= factors.x;
                    dp[m][n][2 * h + 1] *= factors.y;
                }
    }
};

struct NoDropout {
    __device__ __forceinline__ NoDropout(const Params &, int, int)
    {
    }

    static __device__ __forceinline__ void begin(const Params &, int, int, int)
    {
    }

    static __device__ __forceinline__ void mask(Fragments &)
    {
    }

    static __device__ __forceinline__ void mask(Scores &)
    {
    }
};

using Dropout = Either<kDropout, PhiloxDropout, NoDropout>::Type;

// The factor of dV at the end.
__device__ __forceinline__ float value_scale(const Params &p)
{
    return kDropout ? keep_scale(p) : 1.0f;
}

// ---- exchange of P^T and dS^T between warps, through shared memory --------------------------------------------

// Stores P^T for the warps with the same keys. smem: this lane's address.
__device__ __forceinline__ void store_p(const Fragments &a, uint32 smem)
{
#pragma unroll
    for (int step = 0; step < kQuerySteps; step++)
#pragma unroll
        for (int m = 0; m < kKeyTiles; m++)
            store_shared_16(smem + (step * kKeyTiles + m) * kFragmentBytes,
                            uint4{a[step][m][0], a[step][m][1], a[step][m][2], a[step][m][3]});
}

// Stores dS^T into its tile.
__device__ __forceinline__ void store_ds(const Fragments &a, uint32 score_smem, int first_key, int first_query,
                                         int lane)
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

// ---- products of tiles in shared memory --------------------------------------------------------------------------
//
// Tiles of c are m16n8. load_a(step, a) loads the A fragments of a k16 step into a. Form: layout of the tiles' rows.

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

// Loads the A fragments of 16 * kM rows of a tile for one k16 step.
template <class Form = RowTile, int kM>
__device__ __forceinline__ void load_rows(uint32 (&a)[kM][4], uint32 smem, uint32 lane_rows, int step)
{
#pragma unroll
    for (int m = 0; m < kM; m++)
        ldmatrix_x4(a[m], smem + Form::pair_offset(lane_rows, step) + m * 16 * Form::kPitch);
}

// c += A B^T over the columns of two tiles of rows. B: 8 * kN rows from b_smem on.
template <class Form = RowTile, int kM, int kN, class LoadA>
__device__ __forceinline__ void product_of_rows(float (&c)[kM][kN][4], LoadA load_a, uint32 b_smem, uint32 lane_cols)
{
#pragma unroll
    for (int step = 0; step < Form::kChunks / 2; step++) {
        uint32 a[kM][4];
        load_a(step, a);
#pragma unroll
        for (int n = 0; n < kN; n += 2) {
            uint32 b[4];  // rows n * 8 ... + 15: b[0], b[1] of the first n8 tile, b[2], b[3] of the next
            ldmatrix_x4(b, b_smem + Form::pair_offset(lane_cols, step) + n * 8 * Form::kPitch);
#pragma unroll
            for (int m = 0; m < kM; m++) {
                mma_k16(c[m][n], a[m], b[0], b[1]);
                mma_k16(c[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// c += A B. B: kSteps * 16 rows of a tile from b_smem on. Columns are dealt out to kShares warps in pairs of n8 tiles:
// this warp has pairs first, first + kShares, ... b_lane: lane_offset_rows at pair `first`. Dealt out in this way, the
// XOR of a swizzle composes, because the bits of `first` and of kShares differ.
template <int kShares, int kSteps, int kM, int kN, class LoadA>
__device__ __forceinline__ void product_of_columns(float (&c)[kM][kN][4], LoadA load_a, uint32 b_smem, uint32 b_lane)
{
    static_assert((kShares & (kShares - 1)) == 0, "the bits of first and of kShares differ");
    using Form = TileForm<8 * kN * kShares>;
#pragma unroll
    for (int step = 0; step < kSteps; step++) {
        uint32 a[kM][4];
        load_a(step, a);
#pragma unroll
        for (int pair = 0; pair < kN / 2; pair++) {
            uint32 b[4];
            ldmatrix_x4_trans(b, b_smem + Form::pair_offset(b_lane, pair * kShares) + step * 16 * Form::kPitch);
#pragma unroll
            for (int m = 0; m < kM; m++) {
                mma_k16(c[m][2 * pair], a[m], b[0], b[1]);
                mma_k16(c[m][2 * pair + 1], a[m], b[2], b[3]);
            }
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

// ---- score modifiers: ALiBi and bias, added to scores after a softcap ---------------------------------------------
//
// They are in the units of Q K^T, that is, divided by the scale. -infinity hides a key.
constexpr bool kTerms = kAlibi || kBias != BiasKind::kNone;

// The terms of one head.
struct Terms {
    float slope;           // of ALiBi
    const BiasElem *bias;  // address for the first query and key

    __device__ __forceinline__ Terms(const Params &p, int batch, int head)
    {
        if constexpr (kAlibi)
            slope = alibi_slope(p, batch, head);
        if constexpr (kBias != BiasKind::kNone)
            bias = reinterpret_cast<const BiasElem *>(p.features.bias) + batch * p.features.bias_batch +
                   head * p.features.bias_head;
    }

    // The term of a query and a key. base: query + seq_k - seq_q - key of the first of several queries or keys; step:
    // distance from there to this one. kBefore: no key is after a query's position. Queries and keys after the tensor's
    // end read the last element; their P is 0.
    template <bool kBefore>
    __device__ __forceinline__ float term(const Params &p, float base, int step, int query, int key) const
    {
        float term = 0.0f;
        if constexpr (kAlibi)
            term += alibi_term<kBefore>(slope, base, float(step));
        if constexpr (kBias != BiasKind::kNone) {
            const int64 at =
                min(query, p.seq_q - 1) * p.features.bias_query + min(key, p.seq_k - 1) * p.features.bias_key;
            if constexpr (kBias == BiasKind::kBool)
                term += bias_number(__ldg(bias + at));
            else
                term += bias_number(__ldg(bias + at)) * p.features.inverse_scale;
        }
        return term;
    }
};

// Adds the terms to scores. key, query: this lane's first ones.
template <bool kBefore>
__device__ __forceinline__ void add_terms(Scores &s, const Params &p, const Terms &terms, int first_key,
                                          int first_query)
{
#pragma unroll
    for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int key = first_key + m * 16 + h * 8;
            const float base = float(first_query + p.seq_k - p.seq_q - key);
#pragma unroll
            for (int n = 0; n < kQueryTiles; n++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    s[m][n][2 * h + e] +=
                        terms.template term<kBefore>(p, base, n * 8 + e, first_query + n * 8 + e, key);
        }
}

// ---- warp and lane coordinates, and addresses of the tiles ------------------------------------------------------

// The warp's part of S^T and dP^T, and of dQ.
struct WarpPlace {
    int lane, warp;
    int key_warp, query_warp;
    int row_warp, col_warp;
    int key;    // its first key in the block
    int query;  // and first query in a tile

    __device__ __forceinline__ WarpPlace()
        : lane(threadIdx.x % 32), warp(threadIdx.x / 32), key_warp(warp / kQueryWarps), query_warp(warp % kQueryWarps),
          row_warp(warp / kColWarps), col_warp(warp % kColWarps), key(key_warp * 16 * kKeyTiles),
          query(query_warp * kWarpQueries)
    {
    }
};

// This lane's ldmatrix offsets in tiles of Q and K, and of dO and V.
struct LaneOffsets {
    uint32 rows, cols, value_rows, value_cols;

    __device__ __forceinline__ explicit LaneOffsets(int lane)
        : rows(RowTile::lane_offset_rows(lane)), cols(RowTile::lane_offset_cols(lane)),
          value_rows(ValueTile::lane_offset_rows(lane)), value_cols(ValueTile::lane_offset_cols(lane))
    {
    }
};

// Addresses in shared memory for one tile of queries.
struct TileAreas {
    uint32 q, d_o;
    uint32 rows;            // LSE and delta, at this lane's first query
    uint32 scores;          // dS^T
    uint32 shared_p;        // P^T as fragments, of this lane
    uint32 out, value_out;  // this lane's ldmatrix addresses for its columns of dK and dV

    __device__ __forceinline__ TileAreas(uint32 smem, int stage, int score_stage, const WarpPlace &own,
                                         const LaneOffsets &offsets)
        : q(smem + kQArea + stage * kQTileBytes), d_o(smem + kDoArea + stage * kDoTileBytes),
          rows(smem + kRowArea + stage * kRowBytes + own.lane % 4 * 2 * 4),
          scores(smem + kScoreArea + score_stage * kScoreBytes),
          shared_p(smem + kSharedPArea + score_stage * kSharedPBytes + own.lane * 16),
          out(pair_offset(offsets.rows, own.query_warp)),
          value_out(ValueTile::pair_offset(offsets.value_rows, own.query_warp))
    {
    }
};

// ---- the mainloop's steps: what a warp does with a tile of queries --------------------------------------------------
//
// `visit` of bwd.cuh calls visit_part for each part of its queries, then add_others; bwd.cuh has the timeline. In a
// part:
//
//     kLate    S^T | dP^T | P^T | dV += P^T dO | dS^T | dK += dS^T Q
//     else     S^T | P^T | dV += P^T dO | dP^T | dS^T | dK += dS^T Q
//
// P^T and dS^T stay in registers as A fragments. They are also stored: P^T for warps with the same keys, dS^T for those
// warps and for dQ (dq_step.cuh).

using SumOfKeys = float[kKeyTiles][2 * kOutPairs][4];      // dK of a warp
using SumOfValues = float[kKeyTiles][2 * kValuePairs][4];  // dV of a warp

// Computes S^T = K Q^T or dP^T = V dO^T. Form: layout of the rows; row_smem: this warp's keys; tile_smem: the queries;
// rows, cols: this lane's ldmatrix offsets.
template <class Form>
__device__ __forceinline__ void compute_scores(Scores &s, uint32 tile_smem, uint32 cols, uint32 row_smem, uint32 rows)
{
    clear(s);
    product_of_rows<Form>(
        s, [&](int step, uint32(&a)[kKeyTiles][4]) { load_rows<Form>(a, row_smem, rows, step); }, tile_smem, cols);
}

// Turns S^T into P^T. capped: S^T after the softcap; query: this warp's first query in the tile `at`.
template <bool kMasked>
__device__ __forceinline__ void compute_p(Scores &s, Scores &capped, const Params &p, const BlockPlace &place,
                                          const Terms &terms, const WarpPlace &own, const Cursor &at, int query,
                                          TileAreas areas)
{
    if constexpr (kSoftcap) {
        cap_scores(s, p.softcap_rate);
        copy_scores(capped, s);
    }
    if constexpr (kTerms)
        add_terms<kCausal && !kMasked>(s, p, terms, place.first_key + own.key + own.lane / 4,
                                       at.tile * kBr + query + own.lane % 4 * 2);
    scores_to_p(s, areas.rows + query * 4, p.scale_log2);
    if constexpr (kMasked)
        mask_p(s, p, place.first_key + own.key + own.lane / 4, at.tile * kBr + query + own.lane % 4 * 2);
}

// sum += P^T dO, or dS^T Q. tile_smem: the queries of these fragments.
template <int kTiles>
__device__ __forceinline__ void add_product(float (&sum)[kKeyTiles][kTiles][4], const Fragments &frag, uint32 tile_smem,
                                            uint32 lane_offset)
{
    product_of_columns<kQueryWarps, kQuerySteps>(
        sum,
        [&](int step, uint32(&a)[kKeyTiles][4]) {
#pragma unroll
            for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    a[m][i] = frag[step][m][i];
        },
        tile_smem, lane_offset);
}

// Processes a part of the queries of a tile: S^T, P^T, dV, dP^T, dS^T, dK.
template <bool kMasked>
__device__ __forceinline__ void visit_part(const Params &p, const BlockPlace &place, const Terms &terms,
                                           Dropout &dropout, const WarpPlace &own, const LaneOffsets &offsets,
                                           TileAreas areas, const Cursor &at, int first_head, uint32 smem, int part,
                                           SumOfKeys &dk, SumOfValues &dv)
{
    const int query = own.query + part * 8 * kQueryTiles;  // first query in the tile
    Scores s, dp;
    Scores capped;
    Fragments frag;
    compute_scores<RowTile>(s, areas.q + query * kPitch, offsets.cols, smem + kKArea + own.key * kPitch, offsets.rows);
    if constexpr (kLate)
        compute_scores<ValueTile>(dp, areas.d_o + query * ValueTile::kPitch, offsets.value_cols,
                                  smem + kVArea + own.key * ValueTile::kPitch, offsets.value_rows);
    compute_p<kMasked>(s, capped, p, place, terms, own, at, query, areas);
    pack_scores(frag, s);
    dropout.begin(p, place.sequence() * p.heads_q + first_head + at.head, at.tile * kBr + query, own.lane);
    dropout.mask(frag);
    if constexpr (kSoftcap && !kBiasGradient)
        multiply_slopes(s, capped);
    if constexpr (kQueryWarps > 1)
        store_p(frag, areas.shared_p + (own.warp * kParts + part) * kQuerySteps * kKeyTiles * kFragmentBytes);
    add_product(dv, frag, areas.d_o + query * ValueTile::kPitch, areas.value_out);
    if constexpr (!kLate)
        compute_scores<ValueTile>(dp, areas.d_o + query * ValueTile::kPitch, offsets.value_cols,
                                  smem + kVArea + own.key * ValueTile::kPitch, offsets.value_rows);
    dropout.mask(dp);
    dp_to_ds(dp, s, areas.rows + (kBr + query) * 4);
    if constexpr (kBiasGradient) {
        add_dbias(dp, p, place.sequence(), first_head + at.head, place.first_key + own.key + own.lane / 4,
                  at.tile * kBr + query + own.lane % 4 * 2);
        if constexpr (kSoftcap)
            multiply_slopes(dp, capped);  // so far this is the gradient of the capped scores
    }
    pack_scores(frag, dp);
    if constexpr (!kApart || kQueryWarps > 1)
        store_ds(frag, areas.scores, own.key, query, own.lane);
    add_product(dk, frag, areas.q + query * kPitch, areas.out);
}

// Adds what other warps with the same keys computed for their queries: dV += P^T dO, dK += dS^T Q.
__device__ __forceinline__ void add_others(const WarpPlace &own, const LaneOffsets &offsets, TileAreas areas,
                                           SumOfKeys &dk, SumOfValues &dv)
{
#pragma unroll
    for (int other = 1; other < kQueryWarps; other++) {
        const int from = own.query_warp ^ other;
        const int from_query = from * kWarpQueries;
        const uint32 theirs = areas.shared_p + (own.key_warp * kQueryWarps + from) * kWarpFragments * kFragmentBytes;
        product_of_columns<kQueryWarps, kParts * kQuerySteps>(
            dv,
            [&](int step, uint32(&a)[kKeyTiles][4]) {
#pragma unroll
                for (int m = 0; m < kKeyTiles; m++) {
                    const uint4 x = load_shared_16(theirs + (step * kKeyTiles + m) * kFragmentBytes);
                    a[m][0] = x.x, a[m][1] = x.y, a[m][2] = x.z, a[m][3] = x.w;
                }
            },
            areas.d_o + from_query * ValueTile::kPitch, areas.value_out);
        product_of_columns<kQueryWarps, kParts * kQuerySteps>(
            dk,
            [&](int step, uint32(&a)[kKeyTiles][4]) {
#pragma unroll
                for (int m = 0; m < kKeyTiles; m++)
                    ldmatrix_x4(a[m],
                                areas.scores + ScoreTile::chunk_offset(own.key + m * 16 + own.lane % 16,
                                                                       from_query / 8 + 2 * step + own.lane / 16));
            },
            areas.q + from_query * kPitch, areas.out);
    }
}

// ---- dQ sums: fp32 sums over blocks, in the workspace -----------------------------------------------------------
//
// A tile of dQ is stored in the order of the fragments of the warps that add to it, so each addition of a warp fills
// whole sectors: [warp][m16 tile][n8 tile] of 128 numbers. These are [lane][4] if four numbers can be added at once,
// else [4][lane].
//
// Packed sequences share the workspace: each has exactly its own rows. The m16 tiles of a sequence are contiguous, [m16
// tile][column warp][n8 tile] of 128 numbers. An m16 tile that the sequence's end cuts is [row][column], with columns
// in the same order.
#if __CUDA_ARCH__ >= 900
constexpr bool kAddFour = true;
#else
constexpr bool kAddFour = false;
#endif
constexpr int kDqFragment = 128;
constexpr int kDqWarpPart = kDqRowTiles * kDqPairs * 2 * kDqFragment;
constexpr int kDqWidth = 16 * kDqPairs * kColWarps;  // numbers per row
constexpr int kDqTile = kBr * kDqWidth;
constexpr int kDqTileStep = kVarlen ? 2 * kDqPairs * kColWarps : 2 * kDqPairs;  // fragments from m16 tile to m16 tile

using DqTile = float[kDqPartTiles][2 * kDqPairs][4];

// Rows of the sums over all heads.
__device__ __forceinline__ int64 dq_rows(const Params &p, int64 all_rows)
{
    return kVarlen ? int64(p.heads_q) * p.features.total_q : all_rows;
}

// Packed sequences: address of a warp's first fragment in m16 tile `first` of a tile of queries.
template <class Place>
__device__ __forceinline__ float *dq_sums(const Params &p, const Place &place, int64 plane, int tile, int first,
                                          int col_warp)
{
    const int64 row = plane * p.features.total_q + place.own.sequence.first_q + tile * kBr + first * 16;
    return p.dq_sum + row * kDqWidth + col_warp * 2 * kDqPairs * kDqFragment;
}

__device__ __forceinline__ void add_fragment(float *fragment, const float (&dq)[4], int lane)
{
    if constexpr (kAddFour) {
        add_global_16(fragment + lane * 4, dq);
    } else {
#pragma unroll
        for (int e = 0; e < 4; e++)
            add_global_4(fragment + e * 32 + lane, dq[e]);
    }
}

// Adds to an m16 tile with fewer than 16 rows. sum: address of this warp's columns.
__device__ __forceinline__ void add_cut_rows(float *sum, const float (&dq)[2 * kDqPairs][4], int rows, int lane)
{
#pragma unroll
    for (int n = 0; n < 2 * kDqPairs; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = lane / 4 + e / 2 * 8;
            if (row < rows)
                add_global_4(sum + row * kDqWidth + n * 8 + lane % 4 * 2 + e % 2, dq[n][e]);
        }
}

// Adds a warp's m16 tiles. sum: address of the first fragment; rows: with packed sequences, rows from there to the
// sequence's end.
__device__ __forceinline__ void add_dq(float *sum, const DqTile &dq, int lane, int rows = 0, int col_warp = 0)
{
#pragma unroll
    for (int m = 0; m < kDqPartTiles; m++) {
        if (kVarlen && rows - m * 16 < 16) {
            constexpr int kNarrower = 2 * kDqPairs * (kDqFragment - 8);  // columns of a warp than their fragments
            add_cut_rows(sum + m * 16 * kDqWidth - col_warp * kNarrower, dq[m], rows - m * 16, lane);
            continue;
        }
#pragma unroll
        for (int n = 0; n < 2 * kDqPairs; n++) {
            float *fragment = sum + (m * kDqTileStep + n) * kDqFragment;
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

// ---- dQ of a block that has all keys of a head (kAllKeys) -----------------------------------------------------------
//
// If the keys are one tile, a tile of dQ is complete where it was computed, and goes from registers to the tensor. Else
// the block sums in the workspace, where no other block adds. Each number belongs to one thread, so the order of sums
// is fixed.

// Clears the numbers that the block will add to.
__device__ __forceinline__ void clear_sums(const Params &p, unsigned plane)
{
    if (p.k_tiles == 1 || p.dq == nullptr)
        return;
    const int64 quarters = int64(p.group) * p.q_tiles * (kDqTile / 4);
    float4 *sum = reinterpret_cast<float4 *>(p.dq_sum) + plane * quarters;
    for (int64 i = threadIdx.x; i < quarters; i += kThreads)
        sum[i] = float4{0.0f, 0.0f, 0.0f, 0.0f};
}

// Scales m16 tiles of dQ, from `first` of a tile of queries on, and writes them. Neighbouring lanes exchange halves of
// two neighbouring n8 tiles, so that each lane stores four contiguous columns of one row.
__device__ __forceinline__ void write_dq(const Params &p, int batch, int head, int tile, int first, int col_warp,
                                         const DqTile &dq, int lane)
{
    const bool right = lane % 2 != 0;  // this lane takes columns of the right one of the two
    int row = tile * kBr + first * 16 + lane / 4;
    char *to = p.dq + (batch * p.dq_stride.batch + head * p.dq_stride.head + row * p.dq_stride.seq +
                       (col_warp * 2 + right) * 8 + lane % 4 / 2 * 4) *
                          2;
#pragma unroll
    for (int m = 0; m < kDqPartTiles; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
#pragma unroll
            for (int pair = 0; pair < kDqPairs; pair++) {
                const float(&x)[4] = dq[m][2 * pair], (&y)[4] = dq[m][2 * pair + 1];
                const uint32 of_left = pack2(x[2 * h] * p.scale, x[2 * h + 1] * p.scale);
                const uint32 of_right = pack2(y[2 * h] * p.scale, y[2 * h + 1] * p.scale);
                const uint32 got = __shfl_xor_sync(0xffffffffu, right ? of_left : of_right, 1);
                const int chunk = (pair * kColWarps + col_warp) * 2 + right;
                if (chunk < kHeadDim / 8 && row < p.seq_q)
                    *reinterpret_cast<uint2 *>(to + pair * kColWarps * 32) =
                        right ? uint2{got, of_right} : uint2{of_left, got};
            }
            row += 8;
            to += p.dq_stride.seq * 16;
        }
}

// Sets rows of dQ that see no key to 0: those before tile `first` and from tile `end` on.
__device__ __forceinline__ void clear_unseen(const Params &p, int batch, int head, int first, int end)
{
    if (p.k_tiles > 1 || p.dq == nullptr)
        return;
    const int before = min(first * kBr, p.seq_q), behind = max(p.seq_q - end * kBr, 0);
    char *out = p.dq + (batch * p.dq_stride.batch + head * p.dq_stride.head) * 2;
    constexpr int kRow = kHeadDim / 8;  // 16-byte chunks per row
    constexpr int kRows = kThreads / kRow;
    const int chunk = threadIdx.x % kRow;
    for (int i = threadIdx.x / kRow; i < before + behind && threadIdx.x < kRows * kRow; i += kRows) {
        const int row = i < before ? i : i - before + end * kBr;
        *reinterpret_cast<uint4 *>(out + row * p.dq_stride.seq * 2 + chunk * 16) = uint4{};
    }
}

// ---- dQ order: blocks add to a tile of dQ in a fixed order (kTakesTurns) ----------------------------------------
//
// Each tile of dQ has a counter of the blocks that have added to it. A block adds when all blocks with earlier keys
// have added. No deadlock: a block draws a ticket when it begins, and the ticket determines its keys. Keys of one head
// have ascending tickets, so a block waits only for blocks that are running or done. The running block with the lowest
// ticket waits for no other.
//
// Tiles are processed from the last to the first, each block a little after the one before it. If a mask or a window
// hides tiles, blocks that begin together start in different tiles anyway.
//
// With kLastKeysFirst the order is reversed: the last keys come first. Tiles are processed in ascending order, from the
// first that sees the block's keys; a mask lets no other block add there before it. So blocks that begin together need
// not wait for each other.

// The counters in the workspace, after the dQ sums: one per tile, and the ticket counter.
__device__ __forceinline__ uint32 *turn_counters(const Params &p)
{
    const int64 tiles = int64(batches(p)) * p.heads_q * p.q_tiles;
    if constexpr (kVarlen)
        return reinterpret_cast<uint32 *>(p.dq_sum + int64(p.heads_q) * p.features.total_q * kDqWidth);
    else
        return reinterpret_cast<uint32 *>(p.dq_sum + tiles * kDqTile);
}

// Draws the block's ticket and returns it in all threads. smem: 4 bytes that are not yet used, and that no TMA load
// writes, because no thread fences this store.
__device__ __forceinline__ uint32 block_ticket(const Params &p, uint32 smem)
{
    if (p.dq == nullptr)
        return blockIdx.x;
    if (threadIdx.x == 0)
        store_shared_4(smem, take_ticket(turn_counters(p) + int64(batches(p)) * p.heads_q * p.q_tiles));
    __syncthreads();  // the ticket is there
    const uint32 ticket = __float_as_uint(load_shared_4(smem));
    __syncthreads();  // and read, before anything else comes into its place
    return ticket;
}

// Returns how many blocks add to a tile of queries before the one with this tile of keys.
__device__ __forceinline__ uint32 blocks_before(const Params &p, int key_tile, int query_tile)
{
    if constexpr (kWindow != Window::kNone) {
        const int first_key = run_begin(p, query_tile * kBr + p.seq_k - p.seq_q);
        return key_tile - max(first_key, 0) / kBc;
    } else if constexpr (kLastKeysFirst) {
        // kLastKeysFirst: blocks with later keys that some query of the tile sees.
        const int last_key = query_tile * kBr + kBr - 1 + p.seq_k - p.seq_q;
        return min((p.seq_k + kBc - 1) / kBc - 1, last_key / kBc) - key_tile;
    } else {
        return key_tile;
    }
}

// Waits for the block's turn. seen: the counter as lane 0 has read it earlier. No fence is needed: only additions
// follow, and none is issued before the loop ends.
__device__ __forceinline__ void await_turn(const uint32 *counter, uint32 seen, uint32 before, int lane)
{
    if (lane == 0)
        while (seen < before)
            seen = load_counter(counter);
    __syncwarp();  // no lane adds before it is the block's turn
}

// ---- the dQ step: dQ += dS K of a tile of queries -----------------------------------------------------------------
//
// Called by `visit` of bwd.cuh after the barrier that completes dS^T. A warp has some rows and columns of the tile, and
// all keys of the block. Its result is added to the sums in the workspace (dq_sums.cuh); if the block has all keys of a
// head, and they are one tile, it is written at once. counter: with kTakesTurns, receives the counter of the tile.
__device__ __forceinline__ void add_tile_to_dq(const Params &p, const BlockPlace &place, const WarpPlace &own,
                                               const LaneOffsets &offsets, TileAreas areas, const Cursor &at,
                                               int first_head, uint32 smem, uint32 *&counter)
{
    const int64 plane = int64(place.batch) * p.heads_q + first_head + at.head;
    float *sum = p.dq_sum + (plane * p.q_tiles + at.tile) * kDqTile + own.warp * kDqWarpPart;
    uint32 before = 0, seen = 0;
    if constexpr (kTakesTurns) {
        counter = turn_counters(p) + plane * p.q_tiles + at.tile + place.first_q_tile;
        before = blocks_before(p, place.first_key / kBc, at.tile);
        seen = own.lane == 0 ? load_counter(counter) : 0;
    }
#pragma unroll 1
    for (int part = 0; part < kDqParts; part++) {
        const int first = own.row_warp * kDqRowTiles + part * kDqPartTiles;  // m16 tile
        constexpr int kPartSize = kDqWarpPart / kDqParts;
        DqTile dq;
        clear(dq);
        product_of_columns<kColWarps, kBc / 16>(
            dq,
            [&](int step, uint32(&a)[kDqPartTiles][4]) {
#pragma unroll
                for (int m = 0; m < kDqPartTiles; m++)
                    ldmatrix_x4_trans(a[m], areas.scores +
                                                ScoreTile::chunk_offset(step * 16 + own.lane % 8 + own.lane / 16 * 8,
                                                                        (first + m) * 2 + own.lane / 8 % 2));
            },
            smem + kKArea, pair_offset(offsets.rows, own.col_warp));
        if (kTakesTurns && part == 0)
            await_turn(counter, seen, before, own.lane);
        if (kAllKeys && p.k_tiles == 1)
            write_dq(p, place.batch, first_head + at.head, at.tile, first, own.col_warp, dq, own.lane);
        else if constexpr (kVarlen)
            add_dq(dq_sums(p, place, plane, at.tile, first, own.col_warp), dq, own.lane,
                   p.seq_q - at.tile * kBr - first * 16, own.col_warp);
        else
            add_dq(sum + part * kPartSize, dq, own.lane);
    }
}

// ---- epilogue: writes dK and dV of a block ------------------------------------------------------------------------
//
// Called at the end of the kernels of bwd.cuh, hopper/bwd.cuh and hopper/bwd_by_product.cuh.

// Sets rows of dK and dV that belong to no sequence to 0. p: of all sequences. Called by all threads of a block.
template <class Place> __device__ __forceinline__ void clear_unused_keys(const Params &p, const Place &place)
{
    if constexpr (kVarlen) {
        constexpr int kKeyChunks = kHeadDim / 8, kValueChunks = kHeadDimV / 8;
        const int64 first = int64(place.number) * kBc;
        clear_unused<kThreads>(p.features.cu_seqlens_k, p.batch, p.features.total_k, first, first + kBc,
                               kKeyChunks + kValueChunks, [&](int row, int part) {
                                   const bool of_key = part < kKeyChunks;
                                   char *out = of_key ? p.dk : p.dv;
                                   const Strides &stride = of_key ? p.dk_stride : p.dv_stride;
                                   const int chunk = of_key ? part : part - kKeyChunks;
                                   if (out != nullptr)
                                       *reinterpret_cast<uint4 *>(
                                           out + (place.kv_head * stride.head + row * stride.seq) * 2 + chunk * 16) =
                                           uint4{};
                               });
    }
}

// Scales rows of dK or dV and writes them, 16 bytes per lane, through shared memory, which must be free. Form: layout
// of the rows there; kColumns: columns of the tensor.
template <class Form = RowTile, int kColumns = kHeadDim, int kTiles>
__device__ __forceinline__ void write_rows(char *out, const Strides &stride, const Params &p, const BlockPlace &place,
                                           const float (&x)[kKeyTiles][kTiles][4], float scale, uint32 smem,
                                           int warp_key, int query_warp, int lane)
{
    if (out == nullptr)
        return;
#pragma unroll
    for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int n = 0; n < kTiles; n++) {
                const int chunk = (n / 2 * kQueryWarps + query_warp) * 2 + n % 2;
                store_shared_4(smem + Form::chunk_offset(warp_key + m * 16 + h * 8 + lane / 4, chunk) + lane % 4 * 4,
                               pack2(x[m][n][2 * h] * scale, x[m][n][2 * h + 1] * scale));
            }
    writers_meet();  // the rows are complete: several warps wrote parts of each

    out += (place.batch * stride.batch + place.kv_head * stride.head + place.first_key * stride.seq) * 2;
#pragma unroll
    for (int i = writer(); i < kBc * Form::kChunks; i += kWriters) {
        const int r = i / Form::kChunks, chunk = i % Form::kChunks;  // includes padding: lanes read without gaps
        if (chunk < kColumns / 8 && place.first_key + r < p.seq_k)
            *reinterpret_cast<uint4 *>(out + r * stride.seq * 2 + chunk * 16) =
                load_shared_16(smem + Form::chunk_offset(r, chunk));
    }
}

// ---- backward -----------------------------------------------------------------------------------------
//
// The kernel of bwd_sm75 and bwd_sm80 (entry.cu.in calls `backward`). One block computes kBc rows of dK and dV, which
// stay in registers, over all queries that see its keys, and adds to dQ. Per tile of kBr queries:
//
//     S^T = K Q^T      P^T = 2^(S^T - lse)          dV += P^T dO
//     dP^T = V dO^T    dS^T = P^T * (dP^T - delta)  dK += dS^T Q     dQ += dS K
//
// Variants:
//
//     kSplit     several blocks have the same keys, and each a part of these queries (split.cuh)
//     kAllKeys   a block does all tiles of keys of a head, one after the other (dq_whole.cuh)
//     kApart     separate blocks compute dQ (dq_apart.cuh)
//
// Keys are rows of S^T, so P^T and dS^T are A fragments of dV and dK where they were computed. Warps are arranged as
// kKeyWarps x kQueryWarps, over S^T and over (keys, columns) of dK and dV. Warps with the same keys exchange results:
// P^T as fragments, and dS^T through the tile that dQ needs as well.
//
// The prologue loads K, V and the first tiles (loads.cuh). The step of tile t (`visit`) is in mainloop.cuh and
// dq_step.cuh; the next tile is copied meanwhile. With two barriers all warps begin a tile together:
//
//   wait, barrier | S^T P^T dV dP^T dS^T dK, part by part | barrier | others' dV, dK |           dQ | store t + 1
//   two stages:   | copy Q, dO (t + 1) ........................................................
//   one stage:                                                                 barrier | copy ....
//
// With one barrier, warps may be a tile apart:
//
//   S^T P^T dV dP^T dS^T dK, part by part | wait, barrier | others' dV, dK | dQ | store t + 2
//                                                         | copy Q, dO (t + 2) ....
//
// "others'" means of the warps with the same keys. The comment at each barrier says what it orders. The epilogue writes
// dK and dV (epilogue.cuh).
//
// Each feature changes one place, here and in the separate blocks of dQ:
//
//     which tiles are processed, which are masked    tiles.cuh, and the loop over them
//     how scores become P^T                          compute_p
//     what is dropped: of P^T for dV, and of dP^T    dropout.cuh
//     the derivative of softcap                      a factor of dS^T only
//     how a row begins and ends                      its LSE and delta (delta.cuh)

// Writes dK and dV, or this block's partial sums of them.
__device__ __forceinline__ void write_keys(const Params &p, const BlockPlace &place, const WarpPlace &own,
                                           const SumOfKeys &dk, const SumOfValues &dv, unsigned block, uint32 smem)
{
    if constexpr (kSplit)
        if (p.splits > 1) {
            put_part(p, place, block % p.splits, 0, dk);
            put_part(p, place, block % p.splits, 1, dv);
            return;
        }
    write_rows(p.dk, p.dk_stride, p, place, dk, p.scale, smem + kKArea, own.key, own.query_warp, own.lane);
    write_rows<ValueTile, kHeadDimV>(p.dv, p.dv_stride, p, place, dv, value_scale(p), smem + kVArea, own.key,
                                     own.query_warp, own.lane);
}

__device__ __forceinline__ void key_block(const Params &all, uint32 smem, unsigned block)
{
    const WarpPlace own;
    if constexpr (kTakesTurns)
        block = block_ticket(all, smem);
    const BlockPlace place(all, kSplit ? block / all.splits : block);
    uint32 *counter = nullptr;  // with kTakesTurns: counter of the dQ tile that was added to last
    clear_unused_keys(all, place);
    if (place.is_empty())
        return;
    OwnParams p = place.params(all);
    const TileRange tiles(p, place);
    const QueryRange range(p, tiles, kSplit ? block % p.splits : 0);

    const LaneOffsets offsets(own.lane);
    SumOfKeys dk = {};
    SumOfValues dv = {};

    if (range.has_some(p, tiles)) {
        const int first_head = place.kv_head * p.group;
        QueryFills fills;
        load_keys(p, place, smem);
        Cursor at = range.start(p, tiles);
        int stage = 0, score_stage = 0;
        begin_queries(fills, p, place, tiles, range, first_head, smem, at);
        Dropout dropout(p, place.first_key + own.key, own.lane);
        auto visit = [&](auto masked) {
            constexpr bool kMasked = decltype(masked)::value;
            const TileAreas areas(smem, stage, score_stage, own, offsets);
            const int next_stage = stage_ahead(stage);
            if constexpr (kBarriers == 2) {
                fill_wait<0>();
                __syncthreads();  // Q, dO and rows are complete (K and V too); the areas of the tile before are free
                if constexpr (kStages == 2)
                    issue_queries(fills, p, place, range, first_head, smem, after(at, kAhead, p, tiles), next_stage);
            }

            const Terms terms(p, place.batch, first_head + at.head);
#pragma unroll 1
            for (int part = 0; part < kParts; part++)
                visit_part<kMasked>(p, place, terms, dropout, own, offsets, areas, at, first_head, smem, part, dk, dv);
            if constexpr (kBarriers == 1)
                fill_wait<0>();
            // P^T and dS^T are complete; with one query warp, Q and dO are read. With one barrier per tile: the next
            // tile is complete; the tile before, its P^T and dS^T are read.
            __syncthreads();
            if (kTakesTurns && counter != nullptr && threadIdx.x == 0)
                count_up(counter);  // all warps have added to dQ of the tile before
            if constexpr (kBarriers == 1)
                issue_queries(fills, p, place, range, first_head, smem, after(at, kAhead, p, tiles), next_stage);

            add_others(own, offsets, areas, dk, dv);
            if constexpr (kStages == 1) {
                if constexpr (kQueryWarps > 1)
                    __syncthreads();  // Q and dO are read before the next come into their place
                issue_queries(fills, p, place, range, first_head, smem, after(at, kAhead, p, tiles), next_stage);
            }

            if (!kApart && p.dq != nullptr)
                add_tile_to_dq(p, place, own, offsets, areas, at, first_head, smem, counter);
            store_queries(fills, p, place, range, first_head, smem, after(at, kAhead, p, tiles), next_stage);
            at.advance(tiles, tiles.end(p));
            stage = stage + 1 == kStages ? 0 : stage + 1;
            if constexpr (kScoreStages == 2)
                score_stage ^= 1;
        };

        if constexpr (kOneLoop) {
            // A third loop, or a separate second one, would take registers, which spill.
#pragma unroll 1
            while (range.has(p, at))
                if (at.tile < tiles.unmasked || (kWindow != Window::kNone && at.tile >= tiles.masked))
                    visit(Bool<true>{});
                else
                    visit(Bool<false>{});
        } else {
#pragma unroll 1
            while (at.head < p.group) {
                const int head = at.head;
#pragma unroll 1
                while (at.head == head && (kLastTileFirst ? at.tile >= tiles.unmasked : at.tile < tiles.unmasked))
                    visit(Bool<!kLastTileFirst>{});
#pragma unroll 1
                while (at.head == head)
                    visit(Bool<kLastTileFirst>{});
            }
        }
    }
    if constexpr (kAllKeys)
        for (int head = 0; head < p.group; head++)
            clear_unseen(p, place.batch, place.kv_head * p.group + head, tiles.first, tiles.end(p));
    __syncthreads();  // every warp has read its last K and V before dK and dV come into their place
    if (kTakesTurns && counter != nullptr && threadIdx.x == 0)
        count_up(counter);
    write_keys(p, place, own, dk, dv, block, smem);
}

// The kernel if dQ has no separate blocks; kThreads threads.
__device__ __forceinline__ void backward(const Params &p)
{
    extern __shared__ __align__(128) char shared[];
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    if constexpr (kAllKeys) {
        clear_sums(p, blockIdx.x);
#pragma unroll 1
        for (int tile = 0; tile < p.k_tiles; tile++) {
            if (tile > 0)
                __syncthreads();  // dK and dV are written: K and V are loaded into the same area
            key_block(p, smem, blockIdx.x * p.k_tiles + tile);
        }
    } else {
        key_block(p, smem, blockIdx.x);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads) bwd_sm80(const __grid_constant__ Params p)
{
    backward(p);
}

// ---- the kernel before the main one: LSE in log2 units and delta of all rows; zeros for the dQ sums ------
//
// Its entry point is in steps.cu.in.

constexpr int kPrepareRows = kPrepareThreads / kRowLanes;  // rows per block

// The kernel; kPrepareThreads threads per block.
__device__ __forceinline__ void prepare(const Params &p)
{
    const int64 rows = plane_rows(p);
    const int64 all_rows = int64(batches(p)) * p.heads_q * rows;
    const int64 index = int64(blockIdx.x) * kPrepareRows + threadIdx.x / kRowLanes;
    const int64 plane = index / rows;
    int row;
    if constexpr (kVarlen) {
        const int at = packed_row(p, index % rows);
        row = index < all_rows ? at : p.features.total_q;
    } else {
        row = index < all_rows ? int(index % rows) : p.seq_q;
    }
    const float delta = row_delta<true>(p, plane / p.heads_q, plane % p.heads_q, row, threadIdx.x % kRowLanes);
    if (index < all_rows && threadIdx.x % kRowLanes == 0) {
        p.rows[index] = row_lse<true>(p, plane, row);
        p.rows[all_rows + index] = delta;
    }
    if (kApart || p.dq == nullptr)
        return;
    if constexpr (kTakesTurns) {
        const int64 counters = kVarlen ? int64(p.heads_q) * p.q_tiles : all_rows / kBr;
        if (index <= counters && threadIdx.x % kRowLanes == 0)
            turn_counters(p)[index] = 0;
    }
    // The block clears as many numbers of dQ as belong to its rows.
    constexpr int kRowSums = kDqWidth / 4;
    constexpr int kQuarters = kRowSums * kPrepareRows;
    float4 *sum = reinterpret_cast<float4 *>(p.dq_sum) + int64(blockIdx.x) * kQuarters;
    const int64 left = dq_rows(p, all_rows) * kRowSums - int64(blockIdx.x) * kQuarters;
#pragma unroll
    for (int i = threadIdx.x; i < kQuarters; i += kPrepareThreads)
        if (i < left)
            sum[i] = float4{0.0f, 0.0f, 0.0f, 0.0f};
}

extern "C" __global__ void __launch_bounds__(kPrepareThreads) bwd_sm80_prepare(const __grid_constant__ Params p)
{
    prepare(p);
}

// ---- the kernel after the main one: converts dQ from fp32 sums ------------------------------------------------
//
// Its entry point is in steps.cu.in. A lane has a quad's part of a fragment: 8 columns of rows quad_row and quad_row +
// 8 of an m16 tile. Eight lanes take the rows of one fragment; the next eight lanes take the next fragment.

constexpr int kConvertParts = kConvertRows * kDqWidth / 16;  // parts of 16 numbers
constexpr int kConvertThreads = kConvertParts > 256 ? 256 : kConvertParts;
static_assert(kBr % kConvertRows == 0, "tiles are whole blocks");

// The 16-byte chunk of a row of dQ that contains n8 tile n of a warp.
__device__ __forceinline__ int dq_chunk(int warp, int n)
{
    if constexpr (kWgmma)
        return warp % kColWarps * 2 * kDqPairs + n;
    else
        return (n / 2 * kColWarps + warp % kColWarps) * 2 + n % 2;
}

// Converts both rows of a part of a fragment.
struct ConvertedRows {
    uint4 upper, lower;

    __device__ __forceinline__ ConvertedRows(const float *from, int quad_row, float scale)
    {
        float4 x[4];  // numbers of lane 4 * quad_row + i; or element i of four lanes
#pragma unroll
        for (int e = 0; e < 4; e++)
            x[e] = __ldg(reinterpret_cast<const float4 *>(from) + (kAddFour ? quad_row * 4 + e : e * 8 + quad_row));
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
    }

    // Writes both rows. p: parameters of the sequence alone; to: address of the upper row; row: its index.
    __device__ __forceinline__ void write(const Params &p, char *to, int64 row) const
    {
        if (row < p.seq_q)
            *reinterpret_cast<uint4 *>(to) = upper;
        if (row + 8 < p.seq_q)
            *reinterpret_cast<uint4 *>(to + 8 * p.dq_stride.seq * 2) = lower;
    }
};

__device__ __forceinline__ void convert_batches(const Params &p)
{
    constexpr int kSlices = kBr / kConvertRows;  // blocks per tile; they divide its parts, not its rows
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
        const int quad_row = part % 8, fragment = part / 8;
        const float *from = from_tile + fragment * kDqFragment;
        const int warp = fragment / (kDqRowTiles * 2 * kDqPairs);
        const int m = fragment / (2 * kDqPairs) % kDqRowTiles, n = fragment % (2 * kDqPairs);
        const int64 row = tile % p.q_tiles * kBr + (warp / kColWarps * kDqRowTiles + m) * 16 + quad_row;
        const int chunk = dq_chunk(warp, n);
        if (chunk >= kHeadDim / 8)
            continue;
        const ConvertedRows rows(from, quad_row, scale);
        rows.write(p, out + row * p.dq_stride.seq * 2 + chunk * 16, row);
    }
}

// Eight columns of a row in an m16 tile that the sequence's end cuts.
__device__ __forceinline__ uint4 cut_row(const float *from, float scale)
{
    const float4 x = __ldg(reinterpret_cast<const float4 *>(from));
    const float4 y = __ldg(reinterpret_cast<const float4 *>(from) + 1);
    return {pack2(x.x * scale, x.y * scale), pack2(x.z * scale, x.w * scale), pack2(y.x * scale, y.y * scale),
            pack2(y.z * scale, y.w * scale)};
}

__device__ __forceinline__ void convert_packed(const Params &p)
{
    const int blocks = p.features.total_q / kConvertRows + p.batch;  // blocks of a head
    const int number = blockIdx.x % blocks, head = blockIdx.x / blocks;
    constexpr int64 batch = 0;
    clear_unused_queries<kConvertThreads>(p, head, int64(number) * kConvertRows, int64(number + 1) * kConvertRows);
    const PackedTile<kConvertRows, false> packed(p, number);
    if (packed.index < 0)
        return;
    const Params own = packed.alone(p);
    const int64 first_row = int64(head) * p.features.total_q + packed.sequence.first_q + packed.tile * kConvertRows;
    const float *from_tile = p.dq_sum + first_row * kDqWidth;
    char *out = own.dq + (batch * p.dq_stride.batch + head * p.dq_stride.head) * 2;
    const float scale = p.scale;

#pragma unroll
    for (int i = threadIdx.x; i < kConvertParts; i += kConvertThreads) {
        constexpr int kFragments = kDqWidth / 8;  // fragments of an m16 tile
        const int quad_row = i % 8, fragment = i / 8;
        const float *from = from_tile + fragment * kDqFragment;
        const int m = fragment / kFragments, warp = fragment % kFragments / (2 * kDqPairs);
        const int n = fragment % (2 * kDqPairs);
        const int64 row = packed.tile * kConvertRows + m * 16 + quad_row;
        const int chunk = dq_chunk(warp, n);
        if (chunk >= kHeadDim / 8)
            continue;
        if (row - quad_row + 16 > own.seq_q) {  // the sequence's end cuts this m16 tile
            for (int64 r = row; r < min(own.seq_q, int(row) + 9); r += 8)
                *reinterpret_cast<uint4 *>(out + r * p.dq_stride.seq * 2 + chunk * 16) =
                    cut_row(from_tile + (r - packed.tile * kConvertRows) * kDqWidth + fragment % kFragments * 8, scale);
            continue;
        }
        const ConvertedRows rows(from, quad_row, scale);
        rows.write(own, out + row * p.dq_stride.seq * 2 + chunk * 16, row);
    }
}

// The kernel; kConvertThreads threads per block.
__device__ __forceinline__ void convert(const Params &p)
{
    if constexpr (kVarlen)
        convert_packed(p);
    else
        convert_batches(p);
}

extern "C" __global__ void __launch_bounds__(kConvertThreads) bwd_sm80_convert(const __grid_constant__ Params p)
{
    convert(p);
}
