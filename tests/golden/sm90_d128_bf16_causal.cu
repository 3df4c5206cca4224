#line 1 "templates/hopper/config.cu.in"
// ---- the variant -------------------------------------------------------------------------------
constexpr int kHeadDim = 128;            // D: columns of Q, K, V and O
constexpr int kHeadDimV = kHeadDim;
constexpr bool kSplit = false, kPackedHeads = false, kVInK = false;
constexpr int kTeams = 1, kParts = 1, kMaxSplits = 1;
constexpr int kGroups = 2;             // warpgroups that compute, 64 query rows each
constexpr int kBc = 128;                // key and value rows per tile
constexpr int kStages = 2;             // tiles of K, and as many of V, in shared memory
constexpr bool kCausal = 1 == 1;  // query i sees keys <= i + seq_k - seq_q
constexpr bool kTurns = 1 == 1;    // warpgroups issue their products one after the other
#line 1 "templates/features/config.cu.in"

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
#line 12 "templates/hopper/config.cu.in"

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
constexpr int kLoadRegisters = 24;
constexpr int kGroupRegisters = 240;

#line 37 "templates/hopper/config.cu.in"
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
#line 68 "templates/hopper/config.cu.in"
constexpr int kOArea = kQArea;
constexpr int kBarrierArea = kVArea + kStages * kTileBytes;
#line 79 "templates/hopper/config.cu.in"
constexpr int kAreasEnd = kBarrierArea + (2 * kGroups + 4 * kStages) * 8;
#line 88 "templates/hopper/config.cu.in"
constexpr int kPieceArea = kAreasEnd;
#line 93 "templates/hopper/config.cu.in"
constexpr int kSmemBytes = kPieceArea;
#line 95 "templates/hopper/config.cu.in"
static_assert(kSmemBytes == 163936, "the generator computed another size");
