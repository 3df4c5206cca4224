#line 1 "templates/hopper/config.cu.in"
// ---- the variant -------------------------------------------------------------------------------
constexpr int kHeadDim = 128;            // D: columns of Q, K, V and O
constexpr int kGroups = 2;             // warpgroups that compute, 64 query rows each
constexpr int kBc = 128;                // key and value rows per tile
constexpr int kStages = 2;             // tiles of K, and as many of V, in shared memory
constexpr bool kCausal = 1 == 1;  // query i sees keys <= i + seq_k - seq_q
#line 8 "templates/hopper/config.cu.in"
constexpr bool kBf16 = true;              // elements are bf16
#line 12 "templates/hopper/config.cu.in"
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
constexpr int kLoadRegisters = 24;
constexpr int kGroupRegisters = 240;

#line 38 "templates/hopper/config.cu.in"
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
#line 69 "templates/hopper/config.cu.in"
constexpr int kOArea = kQArea;
constexpr int kBarrierArea = kVArea + kStages * kTileBytes;
#line 80 "templates/hopper/config.cu.in"
constexpr int kAreasEnd = kBarrierArea + (2 * kGroups + 4 * kStages) * 8;
#line 89 "templates/hopper/config.cu.in"
constexpr int kPieceArea = kAreasEnd;
#line 94 "templates/hopper/config.cu.in"
constexpr int kSmemBytes = kPieceArea;
#line 96 "templates/hopper/config.cu.in"
static_assert(kSmemBytes == 163936, "the generator computed another size");
