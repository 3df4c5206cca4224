#line 1 "templates/forward/config.cu.in"
// ---- the variant -------------------------------------------------------------------------------
#line 7 "templates/forward/config.cu.in"
constexpr int kHeadDim = 128;            // D: columns of Q, K, V and O
#line 9 "templates/forward/config.cu.in"
constexpr int kBr = 16;                // query rows per block
constexpr int kBc = 32;                // key and value rows per tile
constexpr int kWarps = 4;          // a warp owns whole rows: no softmax across warps
#line 13 "templates/forward/config.cu.in"
constexpr int kTeams = 4;          // groups of warps that share the rows and divide the keys
#line 17 "templates/forward/config.cu.in"
constexpr int kKStages = 3;      // K tiles in shared memory
constexpr int kVStages = 3;      // V tiles in shared memory
constexpr bool kCausal = 0 == 1;  // query i sees keys <= i + seq_k - seq_q
#line 23 "templates/forward/config.cu.in"
constexpr bool kBf16 = false;             // elements are fp16
#line 26 "templates/forward/config.cu.in"
constexpr bool kSwizzle = true;           // rows of a tile: 16-byte chunks permuted by row
#line 33 "templates/forward/config.cu.in"
constexpr bool kQInRegisters = false;     // Q fragments are read again for every tile
#line 35 "templates/forward/config.cu.in"

#line 39 "templates/forward/config.cu.in"
constexpr bool kSpreadFill = false;       // all of them behind one step: their addresses live shorter
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
