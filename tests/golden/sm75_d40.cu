#line 1 "templates/forward/config.cu.in"
// ---- the variant -------------------------------------------------------------------------------
constexpr int kHeadDim = 40;        // D: columns of Q and K
constexpr int kHeadDimV = 40;       // columns of V and O
constexpr bool kVInK = false;      // V is the first columns of K
constexpr int kParts = 1;          // warps that share rows, and divide their columns
constexpr int kBr = 64;            // query rows per block
constexpr int kBc = 32;            // key and value rows per tile
constexpr int kWarps = 4;          // a warp owns whole rows: no softmax across warps
constexpr bool kSplit = false;     // teams and blocks divide the keys
constexpr bool kPackedHeads = false;  // rows are those of all query heads of a group
constexpr int kTeams = 1;          // groups of warps that share the rows and divide the keys
constexpr int kMaxSplits = 1;      // blocks that divide the keys of a row tile, at most
constexpr int kAppendThreads = 256;  // of a block that writes new keys and values
constexpr int kCombineWarps = 1;   // of a block of the combining kernel, a row each
constexpr int kKStages = 1;        // K tiles in shared memory
constexpr int kVStages = 1;        // V tiles in shared memory
constexpr bool kCausal = 0 == 1;  // query i sees keys <= i + seq_k - seq_q
constexpr bool kSwizzle = true;     // rows of a tile: 16-byte chunks permuted by row; else a chunk of padding after each
constexpr bool kQInRegisters = true;  // Q is read from shared memory once; else its fragments again for every tile
constexpr bool kSpreadFill = false;  // copies of the next tile: a share in each step of S = Q K^T; else all in one
constexpr bool kPagesTold = false;  // lanes that copy a row divide the look-ups of pages
constexpr int kGeneratorSmemBytes = 9216;
#line 1 "templates/features/config.cu.in"

// ---- the element, the SM and the features: what a kernel lacks costs nothing -------------------------------------
constexpr bool kBf16 = false;        // elements are bf16; else fp16
constexpr bool kTuring = true;      // products are m16n8k8, tiles pass through registers
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
#line 2 "templates/forward/shape.cuh"

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
#line 2 "templates/lib/types.cuh"
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
#line 3 "templates/lib/tile.cuh"

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
#line 3 "templates/forward/tile.cuh"

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
