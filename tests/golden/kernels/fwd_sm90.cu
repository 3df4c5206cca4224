// fwd_sm90 d=128 dtype=bf16 causal=1 groups=3 bc=64 stages=2 turns=1 persistent=1 order=weight
// op=forward abi=2 rows=192 keys=64 suffix=a maps=q/64,k/64,v/64,o/16; fwd_sm90 role=main threads=512 smem=163952 blocks=resident_row_tiles
// fwd_sm90: attention forward on SM 9.0. fp16 or bf16, wgmma, tiles loaded by TMA.
// ---- the variant -------------------------------------------------------------------------------
constexpr int kHeadDim = 128;  // D: columns of Q, K, V and O
constexpr int kGroups = 3;  // warpgroups that compute, 64 query rows each
constexpr int kBc = 64;  // key and value rows per tile
constexpr int kStages = 2;  // tiles of K, and as many of V, in shared memory
constexpr bool kCausal = 1 == 1;  // query i sees keys <= i + seq_k - seq_q
constexpr bool kTurns = 1 == 1;  // warpgroups issue their products one after the other
constexpr bool kPackedHeads = 0 == 1;  // rows are those of all query heads of a group
constexpr int kPersistent = 1;  // 0: a block computes one row tile; 1: its share of all; 2: what a counter says
constexpr bool kByWeight = true;  // row tiles that see the most keys come first
constexpr bool kOwnOPlace = true;  // O has a place in shared memory beside that of Q
constexpr bool kOByMap = true;  // O is stored by TMA
constexpr bool kGuesses = false;  // P of tiles without a mask is made by the maxima so far (guess.cuh)
constexpr bool kBegun = false;  // scores begin as a bias in 16 bits
constexpr int kSideStages = 2;  // tiles of such a bias in shared memory, for each warpgroup
constexpr bool kDropsBeside = false;  // dropout's work on P is done beside the next S
constexpr bool kKeepsEarly = false;  // what P is multiplied by is made beside S
constexpr int kKeysOfBlock = 256;  // columns whose keys a block of the step before makes
constexpr int kBlocksPerSm = 1;
constexpr int kLoadRegisters = 32, kGroupRegisters = 160;
constexpr int kGeneratorSmemBytes = 163952;

// ---- the element, the SM and the features: what a kernel lacks costs nothing -------------------------------------
constexpr bool kBf16 = true;        // elements are bf16; else fp16
constexpr bool kTuring = false;      // products are m16n8k8, tiles pass through registers
constexpr bool kWgmma = true;       // products are those of warpgroups

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

// ---- what follows from the variant -----------------------------------------------------------------------------
constexpr int kHeadDimV = kHeadDim;
constexpr bool kSplit = false, kVInK = false;
constexpr int kTeams = 1, kParts = 1, kMaxSplits = 1;
constexpr bool kStays = kPersistent > 0, kCounted = kPersistent == 2;
constexpr int kGroupRows = 64;                                     // of wgmma
constexpr int kBr = kGroupRows * kGroups;                          // query rows per block
constexpr int kThreads = (kGroups + 1) * 128;                      // the last warpgroup loads
constexpr int kPrepareThreads = kDropout ? kKeysOfBlock / 2 : 32;  // of the step before
constexpr int kRowTiles = 1;                                       // m16 row tiles per warp
constexpr int kColTiles = kBc / 8;                                 // n8 column tiles of S
constexpr int kOutTiles = kHeadDim / 8;                            // n8 column tiles of O
constexpr int kHeadDimPadded = (kHeadDim + 15) / 16 * 16;          // columns that S = Q K^T sums over
constexpr int kDepth = kHeadDimPadded / 16;                        // k16 steps of it
constexpr int kPages = (kHeadDim + 63) / 64;                       // 64 columns of a tile lie together
constexpr bool kSwizzle = true;        // rows of O on their way out: 16-byte chunks permuted by row
constexpr bool kQInRegisters = false;  // they come into the place of Q

// A bias in 16 bits comes through shared memory (bias_tiles.cuh); words of it are read beside the product that it is
// added to, where nothing else is done there.
constexpr bool kBiasStaged = kBias == BiasKind::kFp16 || kBias == BiasKind::kBf16;
constexpr bool kBiasEarly = kBiasStaged && !kBegun && !kDropout;

// Rows of K and V, of all heads that are worked on at a time (kByWeight): 32 MiB, which L2 holds beside Q and O.
constexpr int kSectionRows = (32 << 20) / (2 * 2 * kHeadDim);

static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 256, "D is a multiple of 8 up to 256");
static_assert(kBc % 16 == 0 && kBc <= 256, "S is one wgmma wide; P V runs in k16 steps");
// The block is launched with even shares; then the loading warpgroup gives some of its own to the others.
static_assert(kLoadRegisters + kGroups * kGroupRegisters <= (kGroups + 1) * (65536 / (kBlocksPerSm * kThreads) / 8 * 8),
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
constexpr int kTilesEnd = kVArea + kStages * kTileBytes;
constexpr int kOArea = kOwnOPlace ? kTilesEnd : kQArea;
// For the rows of each warpgroup, tiles of a bias beside those of K, with pages like these.
constexpr int kSideArea = kTilesEnd + (kOwnOPlace ? kGroups * kGroupBytes : 0);
constexpr int kSidePages = kBc / kPageColumns;
constexpr int kSideTileBytes = kSidePages * kQPageBytes;
constexpr int kSideBytes = kBiasStaged ? kSideStages * kGroups * kSideTileBytes : 0;
static_assert(!kBiasStaged || kBc % kPageColumns == 0, "pages of a tile beside those of K are full");
constexpr int kColumnArea = kSideArea + kSideBytes;  // sixteen columns more of K (slopes.cuh)
constexpr int kBarrierArea = kColumnArea + (kAlibiMma ? kBc * 32 : 0);
constexpr int kSideBarrierArea = kBarrierArea + (2 * kGroups + 4 * kStages) * 8;
constexpr int kKeysArea = kSideBarrierArea + (kBiasStaged ? kSideStages * kGroups * 16 : 0);
constexpr int kKeyTileBytes = kBc * 8;  // keys of the columns of a tile (column_keys.cuh)
static_assert(!kDropout || (kKeysArea % 16 == 0 && kBc % 32 == 0),
              "words of 32 columns are read at once, and copied whole");
constexpr int kPieceArea = kKeysArea + (kDropout ? kStages * kKeyTileBytes : 0);
constexpr int kSmemBytes = kPieceArea + (kCounted ? kGroups * 4 : 0);  // 4 bytes for each warpgroup
static_assert(kSmemBytes == kGeneratorSmemBytes, "the generator computed another size");
// ---- what C++ cannot say of wgmma: it names each register of its accumulator -----------------------------------------
//
// Wgmma<kColumns> has products of 64 rows, so many columns and a depth of 16. They are added to n8 column tiles of the
// accumulator d, from kFirst on. A matrix in shared memory is given by a descriptor (wgmma.cuh). kLiesA, kLiesB: 0 where
// its depth is contiguous, 1 where its rows (a) or columns (b) are.
//
// The products clobber no memory for the compiler. Barriers order their reads of shared memory, as do fence, commit and
// wait. With a clobber, each product in a row would end what the compiler keeps in registers.
#define FA2I_ELEMENT "bf16"
#define FA2I_TILE(n)                                                                                                   \
    "+f"(d[0][kFirst + n][0]), "+f"(d[0][kFirst + n][1]), "+f"(d[0][kFirst + n][2]), "+f"(d[0][kFirst + n][3])
#define FA2I_TILES_1 FA2I_TILE(0)
#define FA2I_NAMES_1 "%0, %1, %2, %3"
#define FA2I_TILES_2 FA2I_TILES_1, FA2I_TILE(1)
#define FA2I_NAMES_2 FA2I_NAMES_1 ", %4, %5, %6, %7"
#define FA2I_TILES_3 FA2I_TILES_2, FA2I_TILE(2)
#define FA2I_NAMES_3 FA2I_NAMES_2 ", %8, %9, %10, %11"
#define FA2I_TILES_4 FA2I_TILES_3, FA2I_TILE(3)
#define FA2I_NAMES_4 FA2I_NAMES_3 ", %12, %13, %14, %15"
#define FA2I_TILES_5 FA2I_TILES_4, FA2I_TILE(4)
#define FA2I_NAMES_5 FA2I_NAMES_4 ", %16, %17, %18, %19"
#define FA2I_TILES_6 FA2I_TILES_5, FA2I_TILE(5)
#define FA2I_NAMES_6 FA2I_NAMES_5 ", %20, %21, %22, %23"
#define FA2I_TILES_7 FA2I_TILES_6, FA2I_TILE(6)
#define FA2I_NAMES_7 FA2I_NAMES_6 ", %24, %25, %26, %27"
#define FA2I_TILES_8 FA2I_TILES_7, FA2I_TILE(7)
#define FA2I_NAMES_8 FA2I_NAMES_7 ", %28, %29, %30, %31"
#define FA2I_TILES_9 FA2I_TILES_8, FA2I_TILE(8)
#define FA2I_NAMES_9 FA2I_NAMES_8 ", %32, %33, %34, %35"
#define FA2I_TILES_10 FA2I_TILES_9, FA2I_TILE(9)
#define FA2I_NAMES_10 FA2I_NAMES_9 ", %36, %37, %38, %39"
#define FA2I_TILES_11 FA2I_TILES_10, FA2I_TILE(10)
#define FA2I_NAMES_11 FA2I_NAMES_10 ", %40, %41, %42, %43"
#define FA2I_TILES_12 FA2I_TILES_11, FA2I_TILE(11)
#define FA2I_NAMES_12 FA2I_NAMES_11 ", %44, %45, %46, %47"
#define FA2I_TILES_13 FA2I_TILES_12, FA2I_TILE(12)
#define FA2I_NAMES_13 FA2I_NAMES_12 ", %48, %49, %50, %51"
#define FA2I_TILES_14 FA2I_TILES_13, FA2I_TILE(13)
#define FA2I_NAMES_14 FA2I_NAMES_13 ", %52, %53, %54, %55"
#define FA2I_TILES_15 FA2I_TILES_14, FA2I_TILE(14)
#define FA2I_NAMES_15 FA2I_NAMES_14 ", %56, %57, %58, %59"
#define FA2I_TILES_16 FA2I_TILES_15, FA2I_TILE(15)
#define FA2I_NAMES_16 FA2I_NAMES_15 ", %60, %61, %62, %63"

// a0 ... a6: numbers of the operands after the accumulator.
#define FA2I_WGMMA(columns, tiles, a0, a1, a2, a3, a4, a5, a6)                                                         \
    template <> struct Wgmma<columns> {                                                                                \
        /* d = a b, or d += a b */                                                                                     \
        template <int kLiesA, int kLiesB, int kFirst = 0, int kTiles>                                                  \
        static __device__ __forceinline__ void multiply(float (&d)[1][kTiles][4], uint64 a, uint64 b, int add)         \
        {                                                                                                              \
            asm volatile("{\n"                                                                                         \
                         "    .reg .pred add;\n"                                                                       \
                         "    setp.ne.s32 add, %" #a2 ", 0;\n"                                                         \
                         "    wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." FA2I_ELEMENT "." FA2I_ELEMENT     \
                         " {" FA2I_NAMES_##tiles "}, %" #a0 ", %" #a1 ", add, 1, 1, %" #a3 ", %" #a4 ";\n"             \
                         "}"                                                                                           \
                         : FA2I_TILES_##tiles                                                                          \
                         : "l"(a), "l"(b), "r"(add), "n"(kLiesA), "n"(kLiesB));                                        \
        }                                                                                                              \
                                                                                                                       \
        /* the same, a in registers */                                                                                 \
        template <int kLiesB, int kFirst = 0, int kTiles>                                                              \
        static __device__ __forceinline__ void multiply(float (&d)[1][kTiles][4], const uint32 (&a)[4], uint64 b,      \
                                                        int add)                                                       \
        {                                                                                                              \
            asm volatile("{\n"                                                                                         \
                         "    .reg .pred add;\n"                                                                       \
                         "    setp.ne.s32 add, %" #a5 ", 0;\n"                                                         \
                         "    wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." FA2I_ELEMENT "." FA2I_ELEMENT     \
                         " {" FA2I_NAMES_##tiles "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #a4                  \
                         ", add, 1, 1, %" #a6 ";\n"                                                                    \
                         "}"                                                                                           \
                         : FA2I_TILES_##tiles                                                                          \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(kLiesB));                 \
        }                                                                                                              \
                                                                                                                       \
        /* d += a b, a in registers */                                                                                 \
        template <int kLiesB, int kFirst = 0, int kTiles>                                                              \
        static __device__ __forceinline__ void add(float (&d)[1][kTiles][4], const uint32 (&a)[4], uint64 b)           \
        {                                                                                                              \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." FA2I_ELEMENT "." FA2I_ELEMENT         \
                         " {" FA2I_NAMES_##tiles "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #a4                  \
                         ", 1, 1, 1, %" #a5 ";"                                                                        \
                         : FA2I_TILES_##tiles                                                                          \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kLiesB));                           \
        }                                                                                                              \
    }

template <int kColumns> struct Wgmma;
FA2I_WGMMA(64, 8, 32, 33, 34, 35, 36, 37, 38);
FA2I_WGMMA(128, 16, 64, 65, 66, 67, 68, 69, 70);

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

// ---- keys of columns ----------------------------------------------------------------------------------------------
//
// All rows, heads and batches have the same keys of columns. The step before the main one puts them into the workspace,
// as lanes want them; those of a tile come into shared memory with its K where what P is multiplied by is made early,
// else with its V.

constexpr int kKeysAt = 128;  // in the workspace, which begins with the counter of work

__device__ __forceinline__ char *column_keys_at(const Params &p, int column)
{
    return reinterpret_cast<char *>(p.partial) + kKeysAt + int64(column) * 8;
}

// The step before, of kKeysOfBlock / 2 threads. A warp's call of Philox makes the keys of 64 columns.
__device__ __forceinline__ void prepare_column_keys(const Params &p)
{
    const int lane = threadIdx.x % 32, sixty_four = blockIdx.x * (kKeysOfBlock / 64) + threadIdx.x / 32;
    uint2 *words = reinterpret_cast<uint2 *>(column_keys_at(p, sixty_four * 64)) + lane;
    uint32 x[4];
    column_keys(x, DropoutSeed(p.features), sixty_four, lane_pair(lane), lane % 4);
    words[0] = uint2{x[0], x[1]};
    words[32] = uint2{x[2], x[3]};
}

// Those of a tile: a lane's word for each 16 columns, the words of 32 columns next to each other.
struct KeyTile {
    uint32 first;  // of this lane

    __device__ __forceinline__ KeyTile(uint32 smem, const Stage &stage)
        : first(smem + kKeysArea + stage.index * kKeyTileBytes + thread_index() % 32 * 8)
    {
    }

    // Of 32 columns, from 16 * step on.
    __device__ __forceinline__ float2 words(int step) const
    {
        return load_shared_8(first + step * 128);
    }
};

// Calls use(step, i) for each word of P, when dropout has its numbers: step: of 16 columns; i: as pack_scores has it.
template <class Dropped, class Use>
__device__ __forceinline__ void each_word_of_p(Dropped &dropout, KeyTile keys, const Use &use)
{
#pragma unroll
    for (int step = 0; step < kBc / 16; step += 2) {
        const float2 words = keys.words(step);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            dropout.multiply_by(__float_as_uint(half == 0 ? words.x : words.y));
#pragma unroll
            for (int i = 0; i < 4; i++)
                use(step + half, i);
        }
    }
    __syncwarp();  // all of it have read, before one gives the tile back
}

// What P of a tile is multiplied by. Made while the tensor cores compute S: in a branch, though it is taken always,
// because ptxas moves what is not in one behind the wait for S, where the row waits for it. No bound is 0.
template <class Dropped>
__device__ __forceinline__ void make_keeps(uint32 (&keep)[kBc / 16][4], Dropped &dropout, KeyTile keys)
{
    if (dropout.p.features.drop_bound == 0)
        return;
    each_word_of_p(dropout, keys, [&](int step, int i) { keep[step][i] = dropout.keep(0, i % 2, i / 2); });
}

// What is dropped of P, which is in elements, becomes 0.
template <class Dropped> __device__ __forceinline__ void drop(uint32 (&p)[kBc / 16][4], Dropped &dropout, KeyTile keys)
{
    each_word_of_p(dropout, keys, [&](int step, int i) { p[step][i] = dropout.apply(p[step][i], 0, i % 2, i / 2); });
}

// The same by what was made early.
__device__ __forceinline__ void drop(uint32 (&p)[kBc / 16][4], const uint32 (&keep)[kBc / 16][4])
{
#pragma unroll
    for (int step = 0; step < kBc / 16; step++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            p[step][i] = keep_elements(p[step][i], keep[step][i]);
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

// ---- rows that threads copy, laid out as TMA loads them ---------------------------------------------------------

// Start copying kRows rows into pages; rows from valid_rows on, and columns behind the last, are zeros. address(row):
// where one begins in global memory. kCount threads share the work, eight lanes copy 128 bytes of a row.
template <int kRows, int kCount, class Address>
__device__ __forceinline__ void fill_pages(uint32 smem, int valid_rows, Address address)
{
    const int thread = thread_index() % kCount, chunk = thread % 8, first_row = thread / 8;
    constexpr int kRowStep = kCount / 8;
    const uint32 first = smem + first_row * kPageRowBytes + (chunk ^ first_row % 8) * 16;
#pragma unroll
    for (int pass = 0; pass < kRows / kRowStep; pass++) {
        const int row = first_row + pass * kRowStep;
        const char *src = address(row) + chunk * 16;
#pragma unroll
        for (int page = 0; page < kPages; page++)
            cp_async_16_or_zero(first + (page * kRows + pass * kRowStep) * kPageRowBytes, src + page * kPageRowBytes,
                                true, row < valid_rows && (kHeadDim % 64 == 0 || page * 64 + chunk * 8 < kHeadDim));
    }
}

// ---- barriers in shared memory, and loads that arrive at them -------------------------------------------
//
// A barrier's phase ends when all of its arrivals are there, and all bytes that were announced. A wait names
// the parity of the phase: 0 for the first one. Before that has begun, a wait for parity 1 returns at once.

// A tensor map, as the driver encodes it: of [batch, head, seq, column], boxes of rows x 64 columns. What is behind the
// end of a sequence or a row is zeros.
struct alignas(64) TensorMap {
    char opaque[128];
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

// Arrive when what this lane began to copy is there; it is one of those that the barrier counts.
__device__ __forceinline__ void barrier_arrive_behind_copies(uint32 barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// 16 or 4 bytes from global to shared memory, zeros behind the first `bytes`.
__device__ __forceinline__ void copy_16_or_less(uint32 smem, const void *gmem, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem), "l"(gmem), "r"(bytes) : "memory");
}

__device__ __forceinline__ void copy_4_or_less(uint32 smem, const void *gmem, int bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(smem), "l"(gmem), "r"(bytes) : "memory");
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

// ---- the tensor maps of a launch, in the order of the recipe -----------------------------------------------------
struct MapOfQ {
    TensorMap q;
};

struct NoMapOfQ {
    static constexpr TensorMap q{};
};

struct MapsOfKeys {
    TensorMap k, v;
};

struct MapOfO {
    TensorMap o;
};

struct NoMapOfO {
    static constexpr TensorMap o{};
};

struct MapOfBias {
    TensorMap bias;
};

struct NoMapOfBias {
    static constexpr TensorMap bias{};
};

struct TensorMaps : Either<kPackedHeads, NoMapOfQ, MapOfQ>::Type,
                    MapsOfKeys,
                    Either<kOByMap, MapOfO, NoMapOfO>::Type,
                    Either<kBiasStaged, MapOfBias, NoMapOfBias>::Type {
};
static_assert(sizeof(TensorMaps) == sizeof(TensorMap) * (2 + !kPackedHeads + kOByMap + kBiasStaged),
              "what the runtime passes");

// ---- tiles beside K and V -------------------------------------------------------------------------------------
//
// In stages of their own, filled by a warp of the warpgroup that loads. A stage has the barriers `full`, at which a
// tensor map's load or the lanes of that warp arrive, and `empty`, at which every warp arrives that has read it.
template <int kCount, int kBytes> struct TilesBeside {
    uint32 area, barriers;
    StageOf<kCount> stage;

    __device__ __forceinline__ TilesBeside(uint32 area, uint32 barriers) : area(area), barriers(barriers)
    {
    }

    __device__ __forceinline__ uint32 full() const
    {
        return barriers + stage.index * 16;
    }

    __device__ __forceinline__ uint32 empty() const
    {
        return full() + 8;
    }

    __device__ __forceinline__ uint32 tile() const
    {
        return area + stage.index * kBytes;
    }

    // Arrivals at either barrier.
    __device__ __forceinline__ void init(int loads, int readers) const
    {
        for (int i = 0; i < kCount; i++) {
            barrier_init(barriers + i * 16, loads);
            barrier_init(barriers + i * 16 + 8, readers);
        }
        barrier_init_fence();
    }

    // By a warp that loads, before it fills a stage; and by one that reads it, before ...
    __device__ __forceinline__ void wait_empty() const
    {
        barrier_wait(empty(), stage.parity ^ 1);
    }

    __device__ __forceinline__ void wait_full() const
    {
        barrier_wait(full(), stage.parity);
    }

    // ... and behind it.
    __device__ __forceinline__ void release()
    {
        __syncwarp();  // all of it have read
        barrier_arrive_by(threadIdx.x % 32, empty());
        stage.advance();
    }
};

// The warpgroup that this warp works for, if it loads.
__device__ __forceinline__ int served_group()
{
    return thread_index() / 32 - kGroups * 4 - 1;
}

// What belongs to the scores of one warpgroup.
struct SideTiles : TilesBeside<kSideStages, kSideTileBytes> {
    __device__ __forceinline__ SideTiles(uint32 smem, int group)
        : TilesBeside(smem + kSideArea + group * kSideStages * kSideTileBytes,
                      smem + kSideBarrierArea + group * kSideStages * 16)
    {
    }
};

// ---- products of a warpgroup ------------------------------------------------------------------------------
//
// wgmma runs beside the threads that issued it. A fence orders what they did with its registers before; a
// commit closes a group; a wait for groups makes their registers readable, and what they read of shared memory
// free. Accumulators are laid out as mma's: 16 rows a warp, n8 column tiles. pin() keeps the compiler from
// moving uses of registers over the asm around it.

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

// ---- a bias in 16 bits, through shared memory ---------------------------------------------------------------
//
// It comes by a tensor map where there is one of it. Else a warp that loads copies 16 bytes at a time where these lie
// side by side and aligned, else 4, else single numbers.

// Scores begin as what mma.sync makes of the words of a bias, and Q K^T comes on top. Infinity times 0 is NaN: an
// infinity, which hides a key, or NaN, which a mask may hide, makes NaN of all others of its row in eight columns. The
// sums of P show it (guess.cuh), and where S is made again, words are converted and multiplied one by one. To
// look before Q K^T costs 4 % of the time: all that a row has to do then waits for it.

// A number as a bias has it, rounded to nearest even.
__device__ __forceinline__ uint32 bias_bits(float x)
{
    uint32 bits;
    if constexpr (kBias == BiasKind::kBf16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(0.0f), "f"(x));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(0.0f), "f"(x));
    return bits;
}

// 1 / scale is a power of two where the scale is the usual one, 1 / sqrt(D): 16 bits hold all of it.
constexpr bool kScaleIsExact = kHeadDim == 16 || kHeadDim == 64 || kHeadDim == 256;

// What a bias is multiplied by to be in the unit of products, 1 / scale, on the diagonal of a matrix, and what 16 bits
// leave of it on that of another one: so the products of the words of a column tile with both are the bias.
struct ScoreUnit {
    float of_bias;
    uint32 most, rest;  // this lane's of the two matrices
    bool by_product;

    __device__ __forceinline__ explicit ScoreUnit(const Params &p) : of_bias(p.features.inverse_scale)
    {
        const uint32 bits = bias_bits(of_bias);
        const float left = of_bias - bias_number(BiasElem(bits));
        most = on_diagonal(bits);
        rest = on_diagonal(bias_bits(left));
        by_product = of_bias >= 0x1p-8f && of_bias <= 0x1p15f && (!kScaleIsExact || left == 0.0f);
    }

    // A column tile, from its words of either row.
    __device__ __forceinline__ void multiply(float (&c)[4], uint32 low, uint32 high) const
    {
        begin_product(c, low, high);
        if (!kScaleIsExact)
            add_product(c, low, high);
    }

private:
    __device__ __forceinline__ void begin_product(float (&c)[4], uint32 low, uint32 high) const
    {
        if constexpr (kBias == BiasKind::kBf16)
            asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
                "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
                : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
                : "r"(low), "r"(high), "r"(most), "f"(0.0f));
        else
            asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
                : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
                : "r"(low), "r"(high), "r"(most), "f"(0.0f));
    }

    __device__ __forceinline__ void add_product(float (&c)[4], uint32 low, uint32 high) const
    {
        if constexpr (kBias == BiasKind::kBf16)
            asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
                "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                : "r"(low), "r"(high), "r"(rest));
        else
            asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                : "r"(low), "r"(high), "r"(rest));
    }

    static __device__ __forceinline__ uint32 on_diagonal(uint32 bits)
    {
        const int column = threadIdx.x % 32 / 4, row = threadIdx.x % 4 * 2;
        return row == column ? bits : row + 1 == column ? bits << 16 : 0;
    }
};

// Whether it comes by a tensor map: its keys lie side by side, aligned, and it has rows of its own for queries.
__device__ __forceinline__ bool bias_is_mapped(const Params &p)
{
    return p.features.bias_side >= 8 && p.features.bias_query > 0;
}

struct BiasTiles : SideTiles {
    using SideTiles::SideTiles;

    // Pages of 64 columns, whose chunks of 16 bytes are permuted by row as tensor maps' loads do it.
    __device__ __forceinline__ uint32 at(int row, int key) const
    {
        const uint32 plain = tile() + key / kPageColumns * kQPageBytes + row * kPageRowBytes + key % kPageColumns * 2;
        return plain ^ (plain >> 3 & 0x70);
    }

    // By a warp of the group: scores begin as their bias, in the unit of the product to come.
    // Those of a tile with a mask are converted: they are few, and nothing looks for NaN there, maxima pass over it.
    __device__ __forceinline__ void begin(float (&s)[kRowTiles][kColTiles][4], const ScoreUnit &unit, bool masked) const
    {
        wait_full();
        if (unit.by_product && !masked)
            each_pair([&](int n, const uint32(&x)[4]) {
                unit.multiply(s[0][n], x[0], x[1]);
                unit.multiply(s[0][n + 1], x[2], x[3]);
            });
        else
            convert(s, unit);
        pin(s);
    }

    // On top of S that a warp has made again. The row tile's others begin as converted words, too: a bias that hides
    // some keys hides more.
    __device__ __forceinline__ void add(float (&s)[kRowTiles][kColTiles][4], ScoreUnit &unit) const
    {
        unit.by_product = false;
        each_number([&](int n, int e, float number) { s[0][n][e] = fmaf(number, unit.of_bias, s[0][n][e]); });
    }

    // By a warp of the group: two neighbours of a row a word.
    __device__ __forceinline__ void read(uint32 (&words)[kRowTiles][2][kColTiles])
    {
        wait_full();
        each_pair([&](int n, const uint32(&x)[4]) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                words[0][i % 2][n + i / 2] = x[i];
        });
        release_to_loads();
        release();
    }

private:
    // use(n, x): of two column tiles from n on, the words of either row.
    template <typename Use> __device__ __forceinline__ void each_pair(const Use &use) const
    {
        const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
        const uint32 first = at(row, lane / 16 * 8);
#pragma unroll
        for (int n = 0; n < kColTiles; n += 2) {
            uint32 x[4];
            ldmatrix_x4(x, (first ^ n % 8 * 16) + n / 8 * kQPageBytes);
            use(n, x);
        }
    }
    __device__ __forceinline__ void convert(float (&s)[kRowTiles][kColTiles][4], const ScoreUnit &unit) const
    {
        each_number([&](int n, int e, float number) { s[0][n][e] = number * unit.of_bias; });
    }

    // use(n, e, x): of column tile n, the lane's number e.
    template <typename Use> __device__ __forceinline__ void each_number(const Use &use) const
    {
        each_pair([&](int n, const uint32(&x)[4]) {
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    use(n + i / 2, i % 2 * 2 + e, bias_number(BiasElem(x[i] >> 16 * e)));
        });
        release_to_loads();
    }
};

// ---- how a warp loads it ------------------------------------------------------------------------------------
//
// Of the rows of a group. What is behind the last key or query is zeros, or, in packed sequences by a map, what the
// bias holds there: keys are masked, and nobody writes O of queries.

// The group's first row, in the sequence.
__device__ __forceinline__ int served_row(const BlockPlace &place)
{
    return place.first_row + served_group() * kGroupRows;
}

__device__ __forceinline__ const BiasElem *bias_of(const Params &p, const BlockPlace &place)
{
    return reinterpret_cast<const BiasElem *>(p.features.bias) + place.batch * p.features.bias_batch +
           place.query_head(p, 0) * p.features.bias_head + served_row(place) * p.features.bias_query;
}

// By a map, one lane.
struct BiasPages {
    const TensorMap &map;
    int row, head, batch;

    __device__ __forceinline__ BiasPages(const Params &p, const TensorMaps &maps, const BlockPlace &place)
        : map(maps.bias), row(served_row(place)), head(coordinate(place.query_head(p, 0), p.features.bias_head)),
          batch(coordinate(place.batch, p.features.bias_batch))
    {
    }

    __device__ __forceinline__ void load(const Params &, const BiasTiles &side, int first_key) const
    {
        if (thread_index() % 32 == 0) {
            barrier_expect(side.full(), kSideTileBytes);
#pragma unroll
            for (int page = 0; page < kSidePages; page++)
                load_page(side.tile() + page * kQPageBytes, map, side.full(), first_key + page * kPageColumns, row,
                          head, batch);
        }
        __syncwarp();  // no lane is two phases behind
    }
};

// By copies of kSide neighbours each.
template <int kSide> struct BiasCopies {
    const BiasElem *first;
    int rows, keys;

    __device__ __forceinline__ BiasCopies(const Params &p, const TensorMaps &, const BlockPlace &place)
        : first(bias_of(p, place)), rows(place.rows - served_row(place)), keys(place.seq_k(p))
    {
    }

    __device__ __forceinline__ void load(const Params &p, const BiasTiles &side, int first_key) const
    {
        constexpr int kLanes = kBc / kSide < 32 ? kBc / kSide : 32, kStep = 32 / kLanes;  // lanes for a row
        const int lane = thread_index() % 32;
        const int64 step = kSide == 8 ? 0 : p.features.bias_query;  // with another, eight neighbours come by a map
#pragma unroll 1
        for (int key = lane % kLanes * kSide; key < kBc; key += 32 * kSide) {
            const int bytes = max(0, min(keys - first_key - key, kSide)) * 2;
            const BiasElem *from = first + first_key + key + lane / kLanes * step;
#pragma unroll 1
            for (int row = lane / kLanes; row < kGroupRows; row += kStep, from += kStep * step)
                if (kSide == 8)
                    copy_16_or_less(side.at(row, key), from, row < rows ? bytes : 0);
                else
                    copy_4_or_less(side.at(row, key), from, row < rows ? bytes : 0);
        }
        barrier_arrive_behind_copies(side.full());
    }
};

// Number by number, two a lane.
struct BiasNumbers {
    const BiasElem *first;
    int rows, keys;

    __device__ __forceinline__ BiasNumbers(const Params &p, const TensorMaps &, const BlockPlace &place)
        : first(bias_of(p, place)), rows(place.rows - served_row(place)), keys(place.seq_k(p))
    {
    }

    __device__ __forceinline__ void load(const Params &p, const BiasTiles &side, int first_key) const
    {
#pragma unroll 1
        for (int key = thread_index() % 32 * 2; key < kBc; key += 64) {
            const BiasElem *from = first + (first_key + key) * p.features.bias_key;
            const int left = keys - first_key - key;
#pragma unroll 1
            for (int row = 0; row < kGroupRows; row++, from += p.features.bias_query) {
                const uint32 low = row < rows && left > 0 ? __ldg(from) : 0;
                const uint32 high = row < rows && left > 1 ? __ldg(from + p.features.bias_key) : 0;
                store_shared_4(side.at(row, key), low | high << 16);
            }
        }
        barrier_arrive(side.full());  // what was stored is seen behind it; the other one waits for copies alone
    }
};

// ---- where the barriers of a block are ---------------------------------------------------------------------------

// Warps that read what Q comes with: those of a warpgroup, and the one that loads its bias beside.
constexpr int kQReaders = kBiasStaged && kCounted ? 5 : 4;

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

    // Which piece of work the rows of Q are of, if work is by a counter.
    __device__ __forceinline__ uint32 piece(int group) const
    {
        return smem + kPieceArea + group * 4;
    }

    // By a warp: the piece behind the one whose parity this is.
    __device__ __forceinline__ unsigned next_piece(int group, uint32 parity) const
    {
        barrier_wait(q_full(group), parity ^ 1);
        const unsigned next = __float_as_uint(load_shared_4(piece(group)));
        __syncwarp();  // all lanes have it before one of them says so
        return next;
    }

    __device__ __forceinline__ void init() const
    {
        for (int group = 0; group < kGroups; group++) {
            barrier_init(q_full(group), 1);
            barrier_init(q_empty(group), kQReaders);
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

// ---- what a warpgroup that computes keeps from one piece of work to the next -------------------------------------------

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
        if constexpr (kBegun)
            asm volatile("" : "+r"(next));  // found anew: there is no register left to keep it
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

// Where no bias comes through shared memory.
struct NoBiasTiles {
    __device__ __forceinline__ NoBiasTiles(uint32, int)
    {
    }

    __device__ __forceinline__ void begin(float (&)[kRowTiles][kColTiles][4], const ScoreUnit &, bool) const
    {
    }

    __device__ __forceinline__ void add(float (&)[kRowTiles][kColTiles][4], const ScoreUnit &) const
    {
    }

    __device__ __forceinline__ void read(uint32 (&)[kRowTiles][2][kColTiles]) const
    {
    }

    __device__ __forceinline__ void release() const
    {
    }
};

// What a warpgroup keeps from one piece of work to the next.
struct Group {
    int index, lane, warp_row;  // warp_row: this warp's first row in the block
    Stage k, v;
    Turns turns;
    Either<kBiasStaged, BiasTiles, NoBiasTiles>::Type side;

    __device__ __forceinline__ Group(int index, uint32 smem)
        : index(index), lane(threadIdx.x % 32), warp_row(threadIdx.x / 32 * 16), turns(index), side(smem, index)
    {
    }

    __device__ __forceinline__ void release_q(const Barriers &barriers) const
    {
        barrier_arrive_by(lane, barriers.q_empty(index));
    }
};

// ---- ALiBi by one more step of S = Q K^T ---------------------------------------------------------------------------
//
// Where no key stands after a row's own position, ALiBi is a number for all keys of a tile, which is left to the
// softmax (forward/terms.cuh), and slope * column for the key in that column of the tile. Three more columns of Q are
// the slope in parts, and three of K the tile's column, which 16 bits hold: so no instruction is needed for a score.
// They are columns 0, 1 and 8 of sixteen, which one lane of a row has.

static_assert(!kAlibiMma || kBc <= 256, "columns of a tile are numbers in 16 bits");

// Of K: made once for a block. Eight keys of eight columns lie together, 128 bytes; the other eight columns behind
// them.
__device__ __forceinline__ void put_key_columns(uint32 smem)
{
    for (int key = threadIdx.x; key < kBc; key += kThreads) {
        const uint32 to = smem + kColumnArea + key / 8 * 256 + key % 8 * 16, both = pack2(float(key), float(key));
        store_shared_16(to, uint4{both, 0, 0, 0});
        store_shared_16(to + 128, uint4{both & 0xffff, 0, 0, 0});
    }
    fence_products();
}

__device__ __forceinline__ uint64 key_columns(uint32 smem)
{
    constexpr uint64 kColumnsOf8 = uint64(128 / 16) << 16, kRowsOf8 = uint64(256 / 16) << 32;
    return kRowsOf8 | kColumnsOf8 | (smem + kColumnArea) / 16;
}

// Of Q: of this lane's rows.
template <class AnyAlibi> __device__ __forceinline__ void slope_columns(const AnyAlibi &alibi, int lane, uint32 (&a)[4])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float slope = alibi.in_product(0, h) ? alibi.slope[0][h] : 0.0f;
        const float most = unpack2(pack2(slope, 0.0f)).x, rest = slope - most;
        const float more = unpack2(pack2(rest, 0.0f)).x;
        a[h] = lane % 4 == 0 ? pack2(most, more) : 0;
        a[2 + h] = lane % 4 == 0 ? pack2(rest - more, 0.0f) : 0;
    }
}

// Slopes times columns, added to S that a warp makes by itself.
__device__ __forceinline__ void add_slopes(float (&s)[kRowTiles][kColTiles][4], const uint32 (&slopes)[4])
{
    const int lane = thread_index() % 32;
    const bool has = lane % 4 == 0;
#pragma unroll
    for (int n = 0; n < kColTiles; n++) {
        const float key = float(n * 8 + lane / 4);
        mma_k16(s[0][n], slopes, has ? pack2(key, key) : 0, has ? pack2(key, 0.0f) : 0);
    }
}

// ---- the products of a warpgroup: S = Q K^T and O += P V ------------------------------------------------------------

// S = Q K^T: started. slopes, columns: one step more, ALiBi's part of columns (slopes.cuh), if kSloped.
template <bool kSloped>
__device__ __forceinline__ void start_scores(float (&s)[1][kColTiles][4], uint32 q_smem, uint32 k_smem,
                                             const uint32 (&slopes)[4], uint64 columns)
{
    const uint64 a = tile_descriptor(q_smem, 0), b = tile_descriptor(k_smem, 0);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kDepth; step++)
        Wgmma<kBc>::multiply<0, 0>(s, a + (step / 4 * kQPageBytes + step % 4 * 32) / 16,
                                   b + (step / 4 * kTilePageBytes + step % 4 * 32) / 16, kBegun ? 1 : step > 0);
    if constexpr (kSloped)
        Wgmma<kBc>::multiply<0>(s, slopes, columns, 1);
    wgmma_commit();
}

// O += P V: started. P is in registers.
__device__ __forceinline__ void start_output(float (&o)[1][kOutTiles][4], const uint32 (&p)[kBc / 16][4], uint32 v_smem)
{
    const uint64 b = tile_descriptor(v_smem, kTilePageBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kBc / 16; step++)
        Wgmma<kHeadDim>::add<1>(o, p[step], b + step * 16 * kPageRowBytes / 16);
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

// ---- P by the maxima so far -----------------------------------------------------------------------------------
//
// Once a row has seen a tile, its maximum hardly grows, and P may be larger than 1 by as much as an element of 16 bits
// holds. So tiles without a mask are not searched for maxima: P is made by those that rows have, and its sums, which
// are wanted anyway, say whether one was too small. Then, which is rare, the warp makes S again, by itself, and goes
// the usual way: P does not tell S, it may be infinite.

// The most that a lane's sum of P in a row may be, and so each element: fp16 holds twice as much, and fp32 has room for
// O then, of V up to 2^60.
constexpr float kMostGuessed = kBf16 ? 0x1p40f : 0x1p15f;

// S becomes P by the maxima so far, and the sums grow. False, in all lanes of the warp: S is lost, nothing else has
// changed.
__device__ __forceinline__ bool guess_tile(float (&s)[kRowTiles][kColTiles][4], RowState &row, float scale_log2,
                                           const float (&offset)[kRowTiles][2])
{
    constexpr int m = 0;
    float sum[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float max = kAlibiOffsets ? row.max[m][h] - offset[m][h] : row.max[m][h];
        const float shift = max * scale_log2;
#pragma unroll
        for (int n = 0; n < kColTiles; n++)
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; e++) {
                s[m][n][e] = exp2_approx(fmaf(s[m][n][e], scale_log2, -shift));
                sum[h] = n == 0 && e == 2 * h ? s[m][n][e] : sum[h] + s[m][n][e];
            }
    }
    // NaN is not: it counts as wrong.
    const bool right = __all_sync(0xffffffffu, sum[0] <= kMostGuessed && sum[1] <= kMostGuessed);
    if (right)
#pragma unroll
        for (int h = 0; h < 2; h++)
            row.sum[m][h] += sum[h];
    return right;
}

__device__ __forceinline__ void clear_scores(float (&s)[kRowTiles][kColTiles][4])
{
#pragma unroll
    for (int n = 0; n < kColTiles; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[0][n][e] = 0.0f;
}

// Q K^T of a warp's 16 rows, of its group's that begin at q_smem, added to s: by this warp, without its group.
__device__ __forceinline__ void add_products(float (&s)[kRowTiles][kColTiles][4], uint32 q_smem, uint32 k_smem)
{
    const int thread = thread_index(), lane = thread % 32;  // addresses are found anew: they are hardly ever wanted
    const int row = thread % 128 / 32 * 16 + lane % 16, key = lane / 16 * 8 + lane % 8;
    q_smem += row * kPageRowBytes + (lane / 16 ^ row % 8) * 16;
    k_smem += key * kPageRowBytes + (lane / 8 % 2 ^ key % 8) * 16;
#pragma unroll 1
    for (int step = 0; step < kDepth; step++) {
        const uint32 chunk = step % 4 * 32;
        uint32 a[4], b[4];
        ldmatrix_x4(a, (q_smem ^ chunk) + step / 4 * kQPageBytes);
#pragma unroll
        for (int n = 0; n < kColTiles; n += 2) {
            ldmatrix_x4(b, (k_smem ^ chunk) + step / 4 * kTilePageBytes + n * 8 * kPageRowBytes);
            mma_k16(s[0][n], a, b[0], b[1]);
            mma_k16(s[0][n + 1], a, b[2], b[3]);
        }
    }
    pin(s);  // K's words are used before its place is given back
}

// ---- consumer: a warpgroup that computes 64 rows of O ----------------------------------------------------------------
//
// compute_rows has the loop over tiles, and Rows::step does one of them. S of a tile is computed together with O += P V
// of the tile before, and the softmax runs beside that product:
//
//     start S(j) | start O += P(j-1) V(j-1) | wait for S(j) | softmax | wait for O | rescale O
//     kGuesses, without a mask: ... | P by the maxima so far | wait for O | rarely S again, softmax, rescale O
//
// With kTurns, warpgroups start these two products in turns, so that one has its softmax while the tensor
// cores work for another.

// Behind a sequence's end are rows of the next one, whatever they hold: P is 0 there, and V has to be a number. All
// warpgroups that compute share the work.
__device__ __forceinline__ void clear_rows(uint32 tile, int valid_rows)
{
#pragma unroll 1
    for (int i = valid_rows * 8 + threadIdx.x; i < kBc * 8; i += kGroups * 128)
#pragma unroll
        for (int page = 0; page < kPages; page++)
            store_shared_16(tile + page * kTilePageBytes + i * 16, uint4{0, 0, 0, 0});
}

// Q of a warpgroup, whose rows are several heads': it copies them itself.
__device__ __forceinline__ void copy_rows(const Params &p, const BlockPlace &place, uint32 smem, int group)
{
    const int first_row = place.first_row + group * kGroupRows;
    fill_pages<kGroupRows, 128>(smem, place.rows - first_row,
                                [&](int r) { return p.q + place.offset(p, p.q_stride, first_row + r) * 2; });
    cp_async_commit();
    cp_async_wait<0>();
    fence_products();
    named_barrier(1 + kGroups + group, 128);  // this warpgroup's rows are there
}

// The steps of the loop. The struct has references only, because arrays in it would keep its numbers in memory until
// loops are unrolled, and ptxas would choose other registers.
struct Rows {
    const Params &p;
    const BlockPlace &place;
    const Barriers &barriers;
    Group &group;
    const uint32 smem, q_smem;
    float (&o)[kRowTiles][kOutTiles][4];
    RowState &row;
    float (&s)[kRowTiles][kColTiles][4];
    uint32 (&probabilities)[kBc / 16][4];
    uint32 (&words)[kRowTiles][2][kColTiles];  // of a bias that is read while products run (kBiasEarly)
    uint32 (&keeps)[kBc / 16][4];              // what P is multiplied by (kKeepsEarly)
    Dropout &dropped;
    ScoreUnit &unit;
    const Terms &terms;
    const uint32 (&slopes)[4];  // ALiBi's columns of Q (kAlibiMma)
    int &tile;

    __device__ __forceinline__ uint32 k_smem() const
    {
        return smem + kKArea + group.k.index * kTileBytes;
    }

    __device__ __forceinline__ uint32 v_smem() const
    {
        return smem + kVArea + group.v.index * kTileBytes;
    }

    // S = Q K^T of the tile is started when K is there.
    template <bool kMasked> __device__ __forceinline__ void start_s()
    {
        if constexpr (kBegun)
            group.side.begin(s, unit, kMasked);
        barrier_wait(barriers.k_full(group.k.index), group.k.parity);
        group.turns.take();
        start_scores<kAlibiMma && !kMasked>(s, q_smem, k_smem(), slopes, key_columns(smem));
        if constexpr (kKeepsEarly)
            make_keeps(keeps, dropped, KeyTile(smem, group.k));
    }

    // O += P V of the tile before is started when V is there.
    __device__ __forceinline__ void start_o()
    {
        barrier_wait(barriers.v_full(group.v.index), group.v.parity);
        if constexpr (kDropsBeside)
            drop(probabilities, dropped, KeyTile(smem, group.v));  // beside the next S, if there is one
        start_output(o, probabilities, v_smem());
    }

    // P in elements, as a product takes it.
    __device__ __forceinline__ void pack()
    {
        pack_scores(s, probabilities);
        if constexpr (kKeepsEarly) {
            drop(probabilities, keeps);
        } else if constexpr (kDropout && !kDropsBeside) {
            barrier_wait(barriers.v_full(group.v.index), group.v.parity);
            drop(probabilities, dropped, KeyTile(smem, group.v));
        }
    }

    __device__ __forceinline__ void release_k()
    {
        if constexpr (kBegun)
            group.side.release();
        barrier_arrive_by(group.lane, barriers.k_empty(group.k.index));
        group.k.advance();
    }

    __device__ __forceinline__ void release_v()
    {
        barrier_arrive_by(group.lane, barriers.v_empty(group.v.index));
        group.v.advance();
    }

    // What comes between S = Q K^T and its maxima. offset: what all scores of a row get, which is left to the softmax
    // (kAlibiOffsets).
    template <bool kMasked> __device__ __forceinline__ void add_terms(float (&offset)[kRowTiles][2])
    {
        if constexpr (kSoftcap)
            cap_scores(s, p.softcap_rate);
        if constexpr (kAlibiOffsets && kCausal && !kMasked) {
            terms.add_columns(s, offset, tile);
        } else if constexpr (kBiasStaged && !kBegun) {
            if constexpr (!kBiasEarly)
                group.side.read(words);
            terms.template add<kMasked>(s, words, tile);
        } else if constexpr (kTerms && !kBegun) {
            terms.template apply<kMasked, true>(s, tile);
        }
        if constexpr (kMasked)
            mask_scores(s, p, place, place.first_row + group.warp_row, tile, group.lane);
    }

    // S becomes P; returns what that means to O.
    template <bool kMasked> __device__ __forceinline__ Rescale softmax()
    {
        float offset[kRowTiles][2] = {};
        add_terms<kMasked>(offset);
        return softmax_tile<kMayBeUnseen<kMasked>, kAlibiOffsets>(s, row, p.scale_log2, offset);
    }

    __device__ __forceinline__ void finish_o()
    {
        wgmma_wait<0>();
        pin(o);
        release_v();
    }

    template <bool kMasked> __device__ __forceinline__ void make_p_by_maxima()
    {
        release_k();
        const Rescale rescale = softmax<kMasked>();
        finish_o();
        pack();
        rescale.apply(o);
    }

    // S, by this warp alone.
    __device__ __forceinline__ void make_again()
    {
        clear_scores(s);
        add_products(s, q_smem, k_smem());
        if constexpr (kAlibiMma)
            add_slopes(s, slopes);
        else if constexpr (kBegun)
            group.side.add(s, unit);
    }

    // The same by the maxima so far, where no key is masked (guess.cuh).
    __device__ __forceinline__ void guess_p()
    {
        float offset[kRowTiles][2] = {};
        add_terms<false>(offset);
        const bool right = guess_tile(s, row, p.scale_log2, offset);
        finish_o();
        pack();
        if (!right) {
            make_again();
            softmax<false>().apply(o);
            pack();
        }
        release_k();  // not before: S might have to be made again
    }

    // A tile, and O of the one before.
    template <bool kMasked> __device__ __forceinline__ void step()
    {
        start_s<kMasked>();
        start_o();
        group.turns.pass();
        if constexpr (kBiasEarly)
            group.side.read(words);
        wgmma_wait<1>();  // S is there
        pin(s);
        if constexpr (kGuesses && !kMasked)
            guess_p();
        else
            make_p_by_maxima<kMasked>();
        pin(o);
    }

    // The first tile, which is the last of the keys.
    __device__ __forceinline__ void begin()
    {
        start_s<true>();
        group.turns.pass();
        if constexpr (kBiasEarly)
            group.side.read(words);
        wgmma_wait<0>();
        pin(s);
        release_k();
        softmax<true>();  // O is 0
        pack();
        if constexpr (kVarlen)
            clear_values();
    }

    // V is 0 after a sequence's end.
    __device__ __forceinline__ void clear_values()
    {
        const int valid_rows = place.sequence.seq_k - tile * kBc;
        if (valid_rows < kBc) {
            barrier_wait(barriers.v_full(group.v.index), group.v.parity);
            clear_rows(v_smem(), valid_rows);
            fence_products();
            named_barrier(1 + 2 * kGroups, kGroups * 128);  // the zeros are there before anybody's product reads them
        }
    }

    // O of the last tile.
    __device__ __forceinline__ void end()
    {
        if constexpr (kOwnOPlace)
            group.release_q(barriers);
        group.turns.take();
        start_o();
        group.turns.pass();
        finish_o();
        if constexpr (!kOwnOPlace)
            named_barrier(1 + kGroups + group.index, 128);  // Q of this warpgroup is read: O comes into its place
    }
};

// O of 64 rows that see some key, not yet divided by the sums of their rows.
__device__ __forceinline__ void compute_rows(const Params &p, const BlockPlace &place, const TileRange &tiles,
                                             const Barriers &barriers, Group &group,
                                             float (&o)[kRowTiles][kOutTiles][4], RowState &row)
{
    const uint32 smem = barriers.smem, q_smem = smem + kQArea + group.index * kGroupBytes;
    float s[kRowTiles][kColTiles][4];
    uint32 probabilities[kBc / 16][4], words[kRowTiles][2][kColTiles], keeps[kBc / 16][4], slopes[4];
    int tile = tiles.count - 1;
    const int first_row = place.first_row + group.warp_row;
    Dropout dropped(p, place, first_row, group.lane);
    if constexpr (kKeepsEarly)
#pragma unroll
        for (int step = 0; step < kBc / 16; step++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                keeps[step][i] = 0;
    const Terms terms(p, place, first_row, group.lane);
    if constexpr (kAlibiMma)
        slope_columns(terms, group.lane, slopes);
    ScoreUnit unit(p);
    Rows rows{p,     place, barriers, group, smem,  q_smem, o,   row, s, probabilities,
              words, keeps, dropped,  unit,  terms, slopes, tile};
    rows.begin();
    tile--;
    if constexpr (kWindow != Window::kNone) {
#pragma unroll 1
        for (; tile >= tiles.first; tile--)
            if (tile >= tiles.unmasked || tile < tiles.plain)
                rows.template step<true>();
            else
                rows.template step<false>();
    } else {
#pragma unroll 1
        for (; tile >= max(tiles.unmasked, tiles.first); tile--)
            rows.template step<true>();
#pragma unroll 1
        for (; tile >= tiles.first; tile--)
            rows.template step<false>();
    }
    rows.end();
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

// ---- epilogue: O of a warpgroup is normalised and written, with LSE ------------------------------------------------

// By a tensor map: rows of O in pages of 64 columns are stored by TMA.
__device__ __forceinline__ void write_rows_by_map(const Params &p, const BlockPlace &place,
                                                  const float (&o)[kRowTiles][kOutTiles][4], const RowState &row,
                                                  uint32 smem, int warp_row, int lane, const TensorMap &map)
{
    if (lane == 0)
        wait_stores();
    __syncwarp();  // the rows before are on their way, and this warp's loads of Q done
    const uint32 o_smem = smem + warp_row % kGroupRows * kPageRowBytes;
    normalise_rows(p, place, o, row, warp_row, lane, [&](int r, int n) {
        return o_smem + n / 8 * kQPageBytes + r * kPageRowBytes + (n % 8 ^ r % 8) * 16;
    });
    release_to_loads();  // this lane's rows of O are seen by what stores them
    __syncwarp();
    if (lane == 0) {
#pragma unroll
        for (int page = 0; page < kPages; page++)
            store_page(map, o_smem + page * kQPageBytes, page * kPageColumns, place.first_row + warp_row,
                       place.query_head(p, 0), place.batch);
        commit_stores();
    }
}

// ---- which rows a block computes ---------------------------------------------------------------------------

// Where work is by a counter, who is free takes the next piece: the thread that loads does, by a counter in the
// workspace that the step before this one set to 0. It tells the others when the piece's Q comes.
struct CountedPiece {
    unsigned piece = blockIdx.x;

    __device__ __forceinline__ void take_over(unsigned next)
    {
        piece = next;
    }
};

struct NoPiece {
    static constexpr unsigned piece = 0;

    __device__ __forceinline__ void take_over(unsigned)
    {
    }
};

// A row tile of a plane, a head of a batch; BlockPlace says what that is.
struct Work : Either<kCounted, CountedPiece, NoPiece>::Type {
    unsigned own_tile, own_plane, round = 0;

    __device__ __forceinline__ explicit Work(const Params &p)
    {
        find(p);
    }

    __device__ __forceinline__ unsigned tile(const Params &) const
    {
        return own_tile;
    }

    __device__ __forceinline__ unsigned plane(const Params &) const
    {
        return own_plane;
    }

    __device__ __forceinline__ unsigned index() const
    {
        if constexpr (kCounted)
            return piece;
        else if constexpr (kStays)  // every other round goes backwards through the blocks, as work gets lighter
            return round * gridDim.x + (round % 2 == 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
        else
            return blockIdx.x;
    }

    __device__ __forceinline__ bool is_left(const Params &p) const
    {
        if constexpr (kStays)
            return index() < unsigned(p.q_tiles) * p.heads_q * p.batch;
        else
            return round == 0;
    }

    // By one thread, for the block: what comes next, by the counter.
    __device__ __forceinline__ unsigned take(const Params &p) const
    {
        return gridDim.x + atomicAdd(reinterpret_cast<unsigned *>(p.partial), 1u);
    }

    __device__ __forceinline__ void advance(const Params &p)
    {
        round++;
        find(p);
    }

    __device__ __forceinline__ void advance(const Params &p, unsigned next)
    {
        this->take_over(next);
        advance(p);
    }

    // Of this piece among those of the block, as barriers count.
    __device__ __forceinline__ uint32 parity() const
    {
        return round % 2;
    }

    __device__ __forceinline__ void find(const Params &p)
    {
        if constexpr (kByWeight) {
            find_by_weight(p);
        } else {
            own_tile = index() % p.q_tiles;
            own_plane = index() / p.q_tiles;
        }
        if constexpr (kBiasStaged)
            if (p.features.bias_batch == 0 && p.features.bias_head != 0)  // batches share a bias: one after the other
                own_plane = own_plane % p.batch * p.heads_q + own_plane / p.batch;
    }

private:
    // The heaviest tiles of a section of planes first: as many as have their K and V in L2.
    __device__ __forceinline__ void find_by_weight(const Params &p)
    {
        const unsigned planes = p.heads_q * p.batch;
        int seq_k = p.seq_k;
        if constexpr (kDropout)
            asm volatile("" : "+r"(seq_k));  // the section is found anew each time: no register is left for it
        const unsigned section = min(max(kSectionRows / seq_k, 1) * unsigned(p.group), planes);
        const unsigned before = index() / (section * p.q_tiles) * section, rest = index() - before * p.q_tiles;
        const unsigned here = min(section, planes - before);
        own_tile = rest / here;
        own_plane = before + rest % here;
    }
};

// ---- producer: the warpgroup that loads ------------------------------------------------------------------------------
//
// One of its threads loads Q, K and V by tensor maps (Loads; fwd.cuh has its loop over pieces of work). A bias that comes
// through shared memory is loaded by other warps, one for each warpgroup that computes (produce_bias).

// The batch in a tensor map: packed sequences are one.
__device__ __forceinline__ int map_batch(const BlockPlace &place)
{
    return kVarlen ? 0 : place.batch;
}

// The loads of one thread: Q, K and V of a block.
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
                                              const Strides &stride, const Stage &stage, uint32 empty, uint32 full,
                                              uint32 area)
    {
        barrier_wait(empty, stage.parity ^ 1);
        if constexpr (kDropout) {
            // The keys of its columns come with one of both.
            const int key_bytes = area == barriers.smem + (kKeepsEarly ? kKArea : kVArea) ? kKeyTileBytes : 0;
            barrier_expect(full, kTileBytes + key_bytes);
            if (key_bytes > 0)
                load_bytes(barriers.smem + kKeysArea + stage.index * kKeyTileBytes, column_keys_at(p, tile * kBc),
                           kKeyTileBytes, full);
        } else {
            barrier_expect(full, kTileBytes);
        }
#pragma unroll
        for (int page = 0; page < kPages; page++)
            load_page(area + stage.index * kTileBytes + page * kTilePageBytes, map, full, page * kPageColumns,
                      place.sequence.first_k + tile * kBc, coordinate(kv_head, stride.head),
                      coordinate(map_batch(place), stride.batch));
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

    __device__ __forceinline__ void load_q(const BlockPlace &place, int group, unsigned piece)
    {
        const uint32 full = barriers.q_full(group);
        if constexpr (kStays)
            barrier_wait(barriers.q_empty(group), q_parity);
        if constexpr (kCounted)
            store_shared_4(barriers.piece(group), piece);
        barrier_expect(full, kGroupBytes);
#pragma unroll
        for (int page = 0; page < kPages; page++)
            load_page(barriers.smem + kQArea + group * kGroupBytes + page * kQPageBytes, maps.q, full,
                      page * kPageColumns, place.sequence.first_q + place.first_row + group * kGroupRows,
                      coordinate(place.query_head(p, 0), p.q_stride.head),
                      coordinate(map_batch(place), p.q_stride.batch));
    }

    // Q is waited for even where no key is seen, so that it is there before O comes into its place.
    __device__ __forceinline__ void load_rows(const BlockPlace &place, const TileRange &tiles, unsigned piece)
    {
        const bool any = tiles.count > tiles.first;
        int kv_head = place.kv_head(p);
        asm volatile("" : "+r"(kv_head));  // the division is done here, not for each tile
        if (any)
            load_k(place, kv_head, tiles.count - 1, stage);
        if constexpr (!kPackedHeads) {
#pragma unroll
            for (int group = 0; group < kGroups; group++)
                load_q(place, group, piece);
            q_parity ^= 1;
        }
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

    // There is no more work, by the counter.
    __device__ __forceinline__ void finish(unsigned piece)
    {
#pragma unroll
        for (int group = 0; group < kGroups; group++) {
            barrier_wait(barriers.q_empty(group), q_parity);
            store_shared_4(barriers.piece(group), piece);
            barrier_arrive(barriers.q_full(group));
        }
    }
};

// By a warp that loads beside K and V, for a warpgroup: what comes behind this piece.
__device__ __forceinline__ unsigned piece_beside(const Barriers &barriers, int group, const Work &work)
{
    // Q of this piece is there: before, a wait for the next one's parity would return at once.
    barrier_wait(barriers.q_full(group), work.parity());
    __syncwarp();  // all lanes have seen it
    barrier_arrive_by(threadIdx.x % 32, barriers.q_empty(group));
    return barriers.next_piece(group, work.parity());
}

// A warp's: all tiles beside K and V of a warpgroup. Source: of the rows of a piece of work.
template <typename Source>
__device__ __forceinline__ void load_sides(const Params &p, const TensorMaps &maps, const Barriers &barriers)
{
    StageOf<kSideStages> stage;
    for (Work work(p); work.is_left(p);) {
        const BlockPlace place(p, work);
        const TileRange tiles(p, place);
        const Source source(p, maps, place);
#pragma unroll 1
        for (int tile = tiles.count - 1; tile >= tiles.first; tile--) {
            BiasTiles side(barriers.smem, served_group());  // found anew each time: these warps have few registers
            side.stage = stage;
            side.wait_empty();
            source.load(p, side, tile * kBc);
            stage.advance();
        }
        if constexpr (kCounted)
            work.advance(p, piece_beside(barriers, served_group(), work));
        else
            work.advance(p);
    }
}

// The same, in the way that the bias allows.
__device__ __forceinline__ void produce_bias(const Params &p, const TensorMaps &maps, const Barriers &barriers)
{
    if (bias_is_mapped(p))
        load_sides<BiasPages>(p, maps, barriers);
    else if (p.features.bias_side >= 8)
        load_sides<BiasCopies<8>>(p, maps, barriers);
    else if (p.features.bias_side >= 2)
        load_sides<BiasCopies<2>>(p, maps, barriers);
    else
        load_sides<BiasNumbers>(p, maps, barriers);
    cp_async_wait<0>();  // a warp ends when its copies have
}

// ---- forward ----------------------------------------------------------------------------------------
//
// A block computes kBr rows of O at a time (work.cuh), 64 in each of its warpgroups (fwd_consumer.cuh) but the last,
// which loads (fwd_producer.cuh). K and V tiles are visited from the last to the first, so the tiles that need a mask
// come first (forward/tiles.cuh).
//
//     producer    wait until a stage is empty | load K(j) | load V(j+1) | ...
//     consumers   wait until Q is there | S(n-1) | ... S(j), O += P(j+1) V(j+1) ... | O += P(0) V(0) | write O
//
// Each stage of K and of V, and each warpgroup's rows of Q, have two barriers (fwd_barriers.cuh): `full`, at which
// the loads arrive, and `empty`, at which every warp arrives that has read them. Where O has no place of its own in
// shared memory, it comes into that of Q, which is empty when O is written.

// Before anything is loaded: barriers, and what a block puts into shared memory once.
__device__ __forceinline__ void prologue(const Params &p, const Barriers &barriers)
{
    if (threadIdx.x == 0)
        barriers.init();
    if constexpr (kBiasStaged)
        if (threadIdx.x < kGroups)
            SideTiles(barriers.smem, threadIdx.x).init(bias_is_mapped(p) ? 1 : 32, 4);
    if constexpr (kAlibiMma)
        put_key_columns(barriers.smem);
    __syncthreads();  // the barriers are there
}

// Q of a warpgroup is there.
__device__ __forceinline__ void await_q(const Params &p, const BlockPlace &place, const Barriers &barriers,
                                        const Work &work, int index)
{
    if constexpr (kPackedHeads)
        copy_rows(p, place, barriers.smem + kQArea + index * kGroupBytes, index);
    else
        barrier_wait(barriers.q_full(index), work.parity());
}

// O of a warpgroup is written, and its place, where that is Q's, given back to the loads.
__device__ __forceinline__ void epilogue(const Params &p, const BlockPlace &place, const TensorMaps &maps,
                                         const Barriers &barriers, const Group &group,
                                         const float (&o)[kRowTiles][kOutTiles][4], const RowState &row)
{
    const uint32 o_smem = barriers.smem + kOArea;
    if constexpr (kOByMap)
        write_rows_by_map(p, place, o, row, o_smem + group.index * kGroupBytes, group.warp_row, group.lane, maps.o);
    else
        write_rows_as<RowTile>(p, place, o, row, o_smem + group.index * (kGroupBytes - kGroupRows * kPitch),
                               group.warp_row, group.lane);
    if constexpr (kStays && !kOwnOPlace) {
        if constexpr (kOByMap) {
            if (group.lane == 0)
                wait_stores();
        } else {
            release_to_loads();  // this lane's reads and writes of O before the next Q comes into their place
        }
        __syncwarp();
        group.release_q(barriers);
    }
}

template <class Row> __device__ __forceinline__ void read_sink(Row &row, const Params &p, const BlockPlace &place)
{
    if constexpr (kSinks)
        row.sink = p.features.sinks[place.query_head(p, 0)];
}

// The kernel, of kThreads threads.
__device__ __forceinline__ void forward(const Params &p, const TensorMaps &maps)
{
    extern __shared__ __align__(1024) char shared[];
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    const Barriers barriers{smem};
    const int index = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if constexpr (kVarlen) {
        BlockPlace::clear_unused_rows(p);
        if (BlockPlace(p, Work(p)).batch < 0)
            return;
    }
    prologue(p, barriers);
    if (index == kGroups) {
        give_registers<kLoadRegisters>();
        Loads loads(p, maps, barriers);
        if constexpr (kVarlen) {
            if (threadIdx.x < kGroups * 128 + 32) {  // a whole warp looks for the sequence
                const BlockPlace place(p, Work(p));
                if (threadIdx.x == kGroups * 128)
                    loads.load_rows(place, TileRange(p, place), 0);
            }
        } else if (threadIdx.x == kGroups * 128) {
            Work work(p);
            while (work.is_left(p)) {
                const BlockPlace place(p, work);
                loads.load_rows(place, TileRange(p, place), work.piece);
                if constexpr (kCounted)
                    work.advance(p, work.take(p));
                else
                    work.advance(p);
            }
            if constexpr (kCounted)
                loads.finish(work.piece);
        }
        if constexpr (kBiasStaged)
            if (served_group() >= 0 && served_group() < kGroups)
                produce_bias(p, maps, barriers);
        return;
    }
    take_registers<kGroupRegisters>();
    Group group(index, barriers.smem);
    auto advance = [&](Work &work) {
        if constexpr (kCounted)
            work.advance(p, barriers.next_piece(index, work.parity()));
        else
            work.advance(p);
    };
    for (Work work(p); work.is_left(p); advance(work)) {
        const BlockPlace place(p, work);
        const TileRange tiles(p, place);
        float o[kRowTiles][kOutTiles][4] = {};
        RowState row;
        begin_rows(row, p);
        read_sink(row, p, place);
        await_q(p, place, barriers, work, index);
        if (tiles.count > tiles.first)
            compute_rows(p, place, tiles, barriers, group, o, row);
        else if constexpr (kOwnOPlace)
            group.release_q(barriers);
        epilogue(p, place, maps, barriers, group, o, row);
    }
    group.turns.finish();
    if constexpr (kOByMap)
        if (group.lane == 0)
            wait_stores();
}

// The step before: the counter of work is 0.
__device__ __forceinline__ void prepare(const Params &p)
{
    if constexpr (kDropout)
        prepare_column_keys(p);
    if (kCounted && (!kDropout || blockIdx.x == 0) && threadIdx.x == 0)
        *reinterpret_cast<unsigned *>(p.partial) = 0;
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    fwd_sm90(const __grid_constant__ Params p, const __grid_constant__ TensorMaps maps)
{
    forward(p, maps);
}
