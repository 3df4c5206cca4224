#line 1 "templates/forward/config.cu.in"
// ---- the variant -------------------------------------------------------------------------------
#line 7 "templates/forward/config.cu.in"
constexpr int kHeadDim = 128;            // D: columns of Q, K, V and O
#line 9 "templates/forward/config.cu.in"
constexpr int kBr = 64;                // query rows per block
constexpr int kBc = 48;                // key and value rows per tile
constexpr int kWarps = 4;          // a warp owns whole rows: no softmax across warps
#line 15 "templates/forward/config.cu.in"
constexpr int kTeams = 1;                 // all warps visit the same keys
#line 17 "templates/forward/config.cu.in"
constexpr int kKStages = 3;      // K tiles in shared memory
constexpr int kVStages = 3;      // V tiles in shared memory
constexpr bool kCausal = 1 == 1;  // query i sees keys <= i + seq_k - seq_q
#line 21 "templates/forward/config.cu.in"
constexpr bool kBf16 = true;              // elements are bf16
#line 28 "templates/forward/config.cu.in"
constexpr bool kSwizzle = false;          // rows of a tile: one chunk of padding behind each
#line 31 "templates/forward/config.cu.in"
constexpr bool kQInRegisters = true;      // Q is read from shared memory once
#line 35 "templates/forward/config.cu.in"

#line 37 "templates/forward/config.cu.in"
constexpr bool kSpreadFill = true;        // copies of the next tile: a share behind each step of S = Q K^T
#line 41 "templates/forward/config.cu.in"

// ---- what follows from it ----------------------------------------------------------------------
constexpr int kThreads = kWarps * 32;
constexpr int kTeamThreads = kThreads / kTeams;
#line 54 "templates/forward/config.cu.in"
constexpr int kRowTiles = kBr * kTeams / (16 * kWarps);  // m16 row tiles per warp
constexpr int kColTiles = kBc / 8;                    // n8 column tiles of S
constexpr int kOutTiles = kHeadDim / 8;               // n8 column tiles of O
constexpr int kHeadDimPadded = (kHeadDim + 15) / 16 * 16;  // columns in shared memory, zero-filled
constexpr int kDepth = kHeadDimPadded / 16;           // k16 steps of S = Q K^T
#line 60 "templates/forward/config.cu.in"
constexpr bool kJoint = kKStages == kVStages && kKStages > 1;  // K and V of a tile are one stage

#line 72 "templates/forward/config.cu.in"
static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 256, "D is a multiple of 8 up to 256");
static_assert(kWarps % kTeams == 0, "teams are of one size");
static_assert(kBr * kTeams % (16 * kWarps) == 0, "a warp owns whole m16 row tiles");
#line 76 "templates/forward/config.cu.in"
static_assert(kBc % 16 == 0, "P V runs in k16 steps");
static_assert(kJoint || !kSpreadFill, "V is waited for right behind S");
static_assert(kJoint || kVStages == 1, "V is double-buffered only together with K");
