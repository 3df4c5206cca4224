/*
 * Planted bugs: the families for wgmma and TMA.
 */
#include "bugs.h"

/* Forward: one block per row tile; persistent blocks that store O by TMA; and blocks that take work from a counter. */
#define ROWS                                                                                                           \
    {                                                                                                                  \
        "fwd_sm90 ", "groups=2", "!persistent"                                                                         \
    }
#define STAYS                                                                                                          \
    {                                                                                                                  \
        "fwd_sm90 ", "groups=2", "persistent=1"                                                                        \
    }
#define COUNTED                                                                                                        \
    {                                                                                                                  \
        "fwd_sm90 ", "groups=2", "persistent=2"                                                                        \
    }
#define IN_TURNS                                                                                                       \
    {                                                                                                                  \
        "fwd_sm90 ", "pingpong=1", NULL                                                                                \
    }
/* ALiBi as columns in the product. */
#define SLOPED                                                                                                         \
    {                                                                                                                  \
        "fwd_sm90 ", "alibi_mma=1", NULL                                                                               \
    }
#define BEGUN                                                                                                          \
    {                                                                                                                  \
        "fwd_sm90 ", "bias_in_accumulator=1", NULL                                                                     \
    }
#define BEHIND                                                                                                         \
    {                                                                                                                  \
        "fwd_sm90 ", "!bias_in_accumulator=1", NULL                                                                    \
    }
#define LATENT                                                                                                         \
    {                                                                                                                  \
        "fwd_splitkv_sm90 ", NULL, NULL                                                                                \
    }
#define BY_KEYS                                                                                                        \
    {                                                                                                                  \
        "bwd_sm90 ", "!split=", "!dq="                                                                                 \
    }
/* A block has one query head of a group. */
#define OF_HEADS                                                                                                       \
    {                                                                                                                  \
        "bwd_sm90 ", "split=2 heads=1", "!dq="                                                                         \
    }
/* A warpgroup of its own computes dQ; or the copy engine adds that of the tile before. */
#define DQ_GROUP                                                                                                       \
    {                                                                                                                  \
        "bwd_sm90 ", "!split=", "dq=group"                                                                             \
    }
#define DQ_BULK                                                                                                        \
    {                                                                                                                  \
        "bwd_sm90 ", "!split=", "dq=bulk"                                                                              \
    }

#define HELD                                                                                                           \
    {                                                                                                                  \
        "dq=group", "order=late", "!split="                                                                            \
    }
#define AHEAD                                                                                                          \
    {                                                                                                                  \
        "dq=bulk", "order=late", "!split="                                                                             \
    }

#define TILES   "Sq=150,Sk=900" /* more tiles than stages */
#define LATENTS "Sq=3,Sk=1500,D=576,Dv=512,v_in_k=1"
#define KEYS    "op=backward,Sq=300"

static const bug bugs[] = {
    {"none, wgmma", "h200", ROWS, "", "", 1, "Sq=200,causal=1", NULL, NULL},
    {"none, wgmma, D=128", "h200", ROWS, "", "", 1, "Sq=150,Sk=500,D=128", NULL, NULL},
    {"none, wgmma, in turns", "h200", IN_TURNS, "", "", 1, "Sq=200,Sk=500,D=128,causal=1", NULL, NULL},
    {"none, wgmma, persistent", "h200", STAYS, "", "", 1, "Sq=300,causal=1", NULL, NULL},
    {"none, wgmma, by a counter", "h200", COUNTED, "", "", 1, "Sq=300,causal=1", NULL, NULL},
    {"none, wgmma, bias", "h200", {"fwd_sm90 "}, "", "", 1, "Sq=200,bias=fp16", NULL, NULL},
    {"none, wgmma, scores begin as a bias", "h200", BEGUN, "", "", 1, "Sq=200,D=128,bias=fp16", NULL, NULL},
    {"none, wgmma, bias by a counter", "h200", COUNTED, "", "", 1, "Sq=300,Sk=100,causal=1,bias=fp16", NULL, NULL},
    {"none, wgmma, bias of packed sequences", "h200", ROWS, "", "", 1, "B=5,Sq=200,Tq=400,Tk=500,causal=1,bias=fp16",
     NULL, NULL},
    {"a bias that is not announced", "h200", BEGUN, "barrier_expect(side.full(), kSideTileBytes);",
     "barrier_arrive(side.full());", 1, TILES ",bias=fp16", "early: ", "ptx.cuh"},
    {"a page of a bias that is not announced", "h200", BEGUN, "barrier_expect(side.full(), kSideTileBytes);",
     "barrier_expect(side.full(), kSideTileBytes - kQPageBytes);", 1, TILES ",bias=fp16", "bytes", "tma.cuh"},
    {"a bias of another head", "h200", BEGUN, "coordinate(coord.query_head(p, 0), p.features.bias_head)",
     "coordinate(coord.query_head(p, 0) + 1, p.features.bias_head)", 1, TILES ",bias=fp16", "x the bound", NULL},
    {"a bias of another batch", "h200", BEGUN, "coordinate(coord.batch, p.features.bias_batch)", "0", 1,
     TILES ",B=2,bias=fp16", "x the bound", NULL},
    {"a bias of other keys", "h200", BEGUN, "first_key + page * kPageColumns", "page * kPageColumns", 1,
     TILES ",bias=fp16", "x the bound", NULL},
    {"a bias of other queries", "h200", BEGUN, "row(served_row(coord))", "row(0)", 1, TILES ",bias=fp16", "x the bound",
     NULL},
    {"chunks of a bias in other places", "h200", BEGUN, "(first ^ n % 8 * 16)", "(first + n % 8 * 16)", 1,
     TILES ",bias=fp16", "", NULL},
    {"mbarriers of a bias that TMA does not see", "h200", BEGUN,
     "barrier_init_fence();\n    }\n\n    // By a warp that loads,", "}\n\n    // By a warp that loads,", 1,
     TILES ",bias=fp16", "proxy: no fence.mbarrier_init", "tma.cuh"},
    {"a stage of a bias that is not waited for", "h200", BEGUN, "side.wait_empty();", ";", 1, TILES ",bias=fp16",
     "early: ", "tma.cuh"},
    {"a tile of a bias that is given back while it is read", "h200", BEHIND, "fence_products();\n        release();",
     "release();", 1, TILES ",bias=fp16", "race: it writes shared memory", "tma.cuh"},
    {"lanes that do not arrive for a bias", "h200", BEGUN, "bias_is_mapped(p) ? 1 : 32", "32", 1, TILES ",bias=fp16",
     "stuck: ", ".cu.in"},
    {"scores that begin as nothing", "h200", BEGUN, "kBiasInAccumulator ? 1 : step > 0", "step > 0", 1,
     "Sq=200,bias=fp16", "x the bound", NULL},
    {"a hidden number in a product", "h200", BEGUN, "sum[0] <= kMostGuessed && sum[1] <= kMostGuessed",
     "!(sum[0] > kMostGuessed) && !(sum[1] > kMostGuessed)", 1, "Sq=200,bias=fp16", "", NULL},
    {"a product that is not added again", "h200", BEGUN, "add_products(rows.s, rows.q_smem",
     "if (rows.q_smem == 0) add_products(rows.s, rows.q_smem", 1, "Sq=200,bias=fp16", "x the bound", NULL},
    {"a row of guessed P whose hidden keys count", "h200", BEGUN, "= least;", "= -0x1.fffffep127f;", 1,
     "Sq=200,Sk=300,bias=bf16", "x the bound", NULL},
    {"a bias that is not added again", "h200", BEGUN, "rows.group.side.add(rows.s, rows.unit);", ";", 1,
     "Sq=200,bias=fp16", "x the bound", NULL},
    {"none, wgmma, a late maximum", "h200", ROWS, "", "", 1, LATE "Sq=200", NULL, NULL},
    {"none, wgmma, a late maximum, bf16", "h200", COUNTED, "", "", 1, LATE "Sq=300,dtype=bf16", NULL, NULL},
    {"none, wgmma, a late maximum and a bias", "h200", BEGUN, "", "", 1, LATE "Sq=200,D=128,bias=fp16", NULL, NULL},
    {"none, wgmma, a late maximum and a cap", "h200", ROWS, "", "", 1, LATE "Sq=200,softcap=1", NULL, NULL},
    {"none, wgmma, a late maximum and a window", "h200", ROWS, "", "", 1, LATE "Sq=300,Sk=700,Wl=400,Wr=150", NULL,
     NULL},
    {"none, wgmma, a late maximum, packed", "h200", ROWS, "", "", 1, LATE "B=1,Sq=300,Sk=700,varlen=1", NULL, NULL},
    {"none, wgmma, a late maximum and a bias, packed", "h200", BEGUN, "", "", 1,
     LATE "B=1,Sq=300,Sk=700,bias=fp16,varlen=1", NULL, NULL},
    {"none, wgmma, a late maximum, a bias and dropout", "h200", BEGUN, "", "", 1,
     LATE "Sq=200,D=128,bias=fp16,dropout=1", NULL, NULL},
    {"P beyond what fp16 holds", "h200", ROWS, ": 0x1p15f", ": 0x1p18f", 1, LATE "Sq=200", "", NULL},
    {"P by a maximum that is too small", "h200", ROWS, "if (!right)", "if (false)", 1, LATE "Sq=200,dtype=bf16", "",
     NULL},
    {"scores that are not made again", "h200", ROWS, "        make_again(rows);", "", 1, LATE "Sq=200", "", NULL},
    {"sums that a wrong guess has left", "h200", ROWS, "    if (right)\n#pragma", "#pragma", 1, LATE "Sq=200", "",
     NULL},
    {"P of a wrong guess in the product", "h200", ROWS, "        rows.pack();\n    }", "    }", 1,
     LATE "Sq=200,Sk=300,dtype=bf16", "", NULL},
    {"none, wgmma, slopes and a late maximum", "h200", SLOPED, "", "", 1, LATE "B=5,Sq=200,Sk=300,causal=1,alibi=1",
     NULL, NULL},
    {"slopes that are not added again", "h200", SLOPED, "add_slopes(rows.s, rows.slopes);", ";", 1,
     LATE "B=5,Sq=200,Sk=300,causal=1,alibi=1", "x the bound", NULL},
    {"what 16 bits leave of a bias' factor is left out", "h200", BEGUN, "rest = on_diagonal(",
     "rest = 0 * on_diagonal(", 1, "Sq=200,D=96,bias=bf16", "x the bound", NULL},
    {"none, wgmma, packed", "h200", {"fwd_sm90 "}, "", "", 1, "B=5,Sq=200,Tq=400,Tk=500", NULL, NULL},
    {"none, wgmma, latent", "h200", LATENT, "", "", 1, LATENTS, NULL, NULL},
    {"none, wgmma, backward", "h200", BY_KEYS, "", "", 1, KEYS ",D=128,causal=1", NULL, NULL},
    {"none, wgmma, backward in turns", "h200", BY_KEYS, "", "", 1, KEYS ",deterministic=1", NULL, NULL},
    {"none, wgmma, backward of packed sequences", "h200", BY_KEYS, "", "", 1, PACKED ",deterministic=1", NULL, NULL},
    {"LSE of rows after a packed sequence's end", "h200", BY_KEYS, "hide_rows(smem + kLseArea",
     "if (false) hide_rows(smem + kLseArea", 1, PACKED, "", NULL},
    {"none, wgmma, slopes in the product", "h200", SLOPED, "", "", 1, "B=5,Sq=200,Sk=300,causal=1,alibi=1", NULL, NULL},
    {"none, slopes that no 16 bits hold", "h200", SLOPED, "<= 65504.0f", "< 0.0f", 1,
     "B=5,Sq=200,Sk=300,causal=1,alibi=1", NULL, NULL},
    {"slopes that are in nothing", "h200", SLOPED, "slopes.in_product(0, h) ? slopes.slope[0][h] : 0.0f", "0.0f", 1,
     "B=5,Sq=200,Sk=300,causal=1,alibi=1", "x the bound", NULL},
    {"none, wgmma, dropout", "h200", ROWS, "", "", 1, "Sq=200,dropout=1", NULL, NULL},
    {"none, wgmma, dropout, D=128", "h200", STAYS, "", "", 1, "Sq=300,D=128,causal=1,dropout=1", NULL, NULL},
    {"none, wgmma, dropout by a counter", "h200", COUNTED, "", "", 1, "Sq=97,Sk=1000,causal=1,dropout=1", NULL, NULL},
    {"keys of the first tile", "h200", ROWS, "column_keys_at(p, tile * kBc)", "column_keys_at(p, 0)", 1,
     "Sq=200,dropout=1", "x the bound", NULL},
    {"columns of dropout that count from the call's first one, wgmma", "h200", ROWS, "pair * 4 + t + seed.first_pair",
     "pair * 4 + t", 1, "Sq=200,dropout=1", "x the bound", NULL},
    {"rows of dropout that count from the call's first one, wgmma", "h200", ROWS, "lane + seed.first_row", "lane", 1,
     "Sq=200,dropout=1", "x the bound", NULL},
    {"rows of dropout that count from the call's first one, wgmma backward", "h200", BY_KEYS, "lane + seed.first_row",
     "lane", 1, KEYS ",dropout=1", "x the bound", NULL},
    {"keys that are not announced", "h200", ROWS, "kTileBytes + key_bytes);", "kTileBytes);", 1, "Sq=200,dropout=1",
     "stuck: ", "tma.cuh"},
    {"keys that are not waited for", "h200", ROWS, "barrier_wait(barriers.v(group.v.index).full, group.v.parity);", ";",
     1, "Sq=200,dropout=1", "early: ", "column_keys.cuh"},
    {"keys that are read where V comes", "h200", STAYS, "ColumnKeyTile(smem, group.k)", "ColumnKeyTile(smem, group.v)",
     1, "Sq=300,Sk=700,D=128,dropout=1", "", NULL},
    {"words of other columns", "h200", ROWS, "uint2{x[0], x[1]}", "uint2{x[1], x[0]}", 1, "Sq=200,dropout=1",
     "x the bound", NULL},
    {"a block of keys that is not made", "h200", ROWS, "blockIdx.x * (kBlockThreads / 32)", "0", 1, "Sq=700,dropout=1",
     "race: ", "column_keys.cuh"},
    {"a block of keys too many", "h200", ROWS, "column_keys_at(p, sixty_four * 64)",
     "column_keys_at(p, sixty_four * 64 + 2 * kBlockThreads)", 1, "Sq=200,dropout=1", "illegal address",
     "column_keys.cuh"},
    {"bytes that are not announced", "h200", ROWS, "barrier_expect(full, kTileBytes);", "barrier_arrive(full);", 1,
     TILES, "early: ", "wgmma"},
    {"more bytes announced than come", "h200", ROWS, "barrier_expect(full, kTileBytes);",
     "barrier_expect(full, kTileBytes + 16);", 1, TILES, "and 16 bytes missing", "tma.cuh"},
    {"a stage that nobody gives back", "h200", ROWS, "barrier_arrive_by(group.lane, barriers.k(group.k.index).empty);",
     ";", 1, TILES, "with 8 of 8 arrivals", "fwd_producer.cuh"},
    {"an arrival too many is waited for", "h200", ROWS, "barrier_init(k(stage).empty, kGroups * 4);",
     "barrier_init(k(stage).empty, kGroups * 4 + 1);", 1, TILES, "with 1 of 9 arrivals", "fwd_producer.cuh"},
    {"an arrival too few is waited for", "h200", ROWS, "barrier_init(k(stage).empty, kGroups * 4);",
     "barrier_init(k(stage).empty, kGroups * 4 - 1);", 1, TILES, "race: it writes shared memory", "fwd_producer.cuh"},
    {"a wrong phase of what is full", "h200", ROWS, "barrier_wait(barriers.k(group.k.index).full, group.k.parity);",
     "barrier_wait(barriers.k(group.k.index).full, group.k.parity ^ 1);", 1, TILES, "stuck: it waits for phase 1",
     "fwd_consumer.cuh"},
    {"a wrong phase of what is empty", "h200", ROWS, "barrier_wait(empty, stage.parity ^ 1);",
     "barrier_wait(empty, stage.parity);", 1, TILES, "stuck: it waits for phase 0", "fwd_producer.cuh"},
    {"a wait that asks once", "h200", ROWS, "    @!done bra again;\\n", "", 1, TILES, "early: ", ".cu.in"},
    {"no wait for what is empty", "h200", ROWS, "barrier_wait(empty, stage.parity ^ 1);", ";", 1, TILES,
     "early: ", "fwd_producer.cuh"},
    {"a stage given back twice, first too early", "h200", ROWS, "wgmma_wait<1>();  // S is there",
     "release_k();\n        wgmma_wait<1>();  // S is there", 1, TILES, "race: it writes shared memory",
     "fwd_producer.cuh"},
    {"a removed wait for S", "h200", ROWS, "wgmma_wait<1>();  // S is there", "", 1, TILES,
     "early: no wgmma.wait_group", ".cu.in"},
    {"a removed fence of products", "h200", ROWS, "    wgmma_fence();", "", 1, TILES, "unfenced: ", ".cu.in"},
    {"a wrong swizzle", "h200", ROWS, "kSwizzle128 = uint64(1) << 62", "kSwizzle128 = uint64(2) << 62", 1, TILES,
     "early: shared memory at offset", "wgmma_lists.cu.in"},
    {"mbarriers that TMA does not see", "h200", ROWS, "barrier_init_fence();\n    }\n};", "}\n};", 1, TILES,
     "proxy: no fence.mbarrier_init", "tma.cuh"},
    {"mbarriers that nobody waits for", "h200", ROWS, "__syncthreads();  // the barriers are there", ";", 1, TILES,
     "it reads shared memory", ".cu.in"},
    {"more registers than there are", "h200", ROWS, "take_registers<kGroupRegisters>();",
     "take_registers<kGroupRegisters + 8>();", 1, TILES, "stuck: it waits for 80 registers", "wgmma.cuh"},
    {"turns that nobody passes on", "h200", IN_TURNS, "group.ping_pong.pass();", ";", 1, "Sq=150,Sk=900,D=128",
     "stuck: ", ".cu.in"},
    {"rows of O that TMA does not see", "h200", STAYS, "fence_products();  // this lane's rows of O",
     ";  // this lane's rows of O", 1, "Sq=300", "proxy: it reads shared memory", "fwd_epilogue.cuh"},
    {"rows of O from lanes that have not come", "h200", STAYS,
     "fence_products();  // this lane's rows of O are seen by what stores them\n    "
     "__syncwarp();",
     "fence_products();", 1, "Sq=300", "race: it reads shared memory", "fwd_epilogue.cuh"},
    {"a thread that does not wait for its stores", "h200", STAYS, "wait_stores_read();", ";", 3, "Sq=300",
     "early: the thread ends", "fwd.cuh"},
    {"rows of Q that nobody gives back", "h200", STAYS, "barrier_arrive_by(lane, barriers.q(index).empty);", ";", 1,
     "B=40,Sq=300", "stuck: ", "fwd.cuh"},
    {"rows of Q that come too early", "h200", COUNTED, "barrier_wait(barriers.q(group).empty, q_parity);", ";", 1,
     "B=40,Sq=300", "shared memory at offset", "fwd_producer.cuh"},
    {"copies that products do not see", "h200", LATENT,
     "fence_products();\n        barrier_arrive(tile_is_there(smem, tile));",
     "barrier_arrive(tile_is_there(smem, tile));", 1, LATENTS, "proxy: it reads shared memory", "split"},
    {"P that is taken before it is there", "h200", LATENT, "pair_sync();\n#pragma unroll", "#pragma unroll", 1, LATENTS,
     "uninitialised", "split"},
    {"dS that products do not see", "h200", BY_KEYS,
     "fence_products();\n        named_barrier(1, kWorkers);  // all of dS^T",
     "named_barrier(1, kWorkers);  // all of dS^T", 1, KEYS, "proxy: it reads shared memory", "bwd_by_keys.cuh"},
    {"dS that is not there", "h200", BY_KEYS, "named_barrier(1, kWorkers);  // all of dS^T", ";  //", 1, KEYS, "race",
     "bwd_by_keys.cuh"},
    {"a removed wait for dV", "h200", BY_KEYS, "wgmma_wait<1>();  // dV and dQ are there", "", 1, KEYS,
     "early: no wgmma.wait_group", ".cu.in"},
    {"K and V written over", "h200", BY_KEYS, "named_barrier(3, kWorkers);  // every warp has read its", ";  //", 1,
     KEYS, "race: it reads shared memory", "wgmma_lists.cu.in"},
    {"turns by the number of a block, wgmma", "h200", BY_KEYS, "block_ticket(p, smem)", "blockIdx.x", 1,
     KEYS ",deterministic=1", "timeout", "turns.cuh"},
    {"a ticket where TMA writes", "h200", BY_KEYS, "smem + kScoreArea);", "smem);", 1, KEYS ",deterministic=1",
     "proxy: it writes shared memory", "tma.cuh"},
    {"tiles of dQ that nobody counts", "h200", BY_KEYS, "for (; left > 0; left--)", "for (; false;)", 1,
     KEYS ",deterministic=1", "timeout", "turns.cuh"},
    {"none, wgmma, blocks of query heads", "h200", OF_HEADS, "", "", 1, KEYS ",D=128,causal=1", NULL, NULL},
    {"none, wgmma, blocks of query heads, by products", "h200", OF_HEADS, "", "", 1, KEYS ",D=192,deterministic=1",
     NULL, NULL},
    {"none, wgmma, blocks of query heads in turns", "h200", OF_HEADS, "", "", 1, KEYS ",Hq=6,Hkv=2,deterministic=1",
     NULL, NULL},
    {"none, wgmma, blocks of query heads of packed sequences", "h200", OF_HEADS, "", "", 1, PACKED ",deterministic=1",
     NULL, NULL},
    {"sums of dK and dV that do not begin with 0", "h200", OF_HEADS, "sums[i] = float4{",
     "if (i > 0) sums[i] = float4{", 1, KEYS, "", NULL},
    {"a block with another query head", "h200", OF_HEADS, "kHeadBlocks ? unsigned(coord.split)",
     "kHeadBlocks ? unsigned(coord.split) * 0", 1, KEYS, "x the bound", NULL},
    {"dK added to dV", "h200", OF_HEADS, "kHeadBlocks ? 0 : split, which)", "0, 1)", 1, KEYS, "x the bound", NULL},
    {"sums of another tile of keys", "h200", OF_HEADS, "p.k_tiles + key_tile_of(coord);", "p.k_tiles;", 1, KEYS, "",
     NULL},
    {"a head after which none adds to dK", "h200", OF_HEADS, "if (writer() == 0)\n            count_up(counter);", "",
     1, KEYS, "timeout", "turns.cuh"},
    {"turns of heads by the number of a block", "h200", OF_HEADS, "draw_ticket([&] { return key_ticket(p); }, smem)",
     "blockIdx.x", 1, KEYS ",deterministic=1", "timeout", "turns.cuh"},
    {"counters of heads that do not begin with 0", "h200", OF_HEADS, "2 * kPartFloats + counter_words(p)) / 4",
     "2 * kPartFloats) / 4", 1, KEYS, "", NULL},
    {"none, wgmma, dQ by a warpgroup", "h200", DQ_GROUP, "", "", 1, KEYS ",causal=1", NULL, NULL},
    {"none, wgmma, dQ by a warpgroup in turns", "h200", DQ_GROUP, "", "", 1, KEYS ",deterministic=1", NULL, NULL},
    {"a stage of dS in turns that is given back before dQ is added", "h200", DQ_GROUP,
     "barrier_wait(barriers.dq_added(stage.index), stage.parity);", ";", 1, KEYS ",deterministic=1", "", NULL},
    {"none, wgmma, dQ of packed sequences by a warpgroup", "h200", DQ_GROUP, "", "", 1, PACKED, NULL, NULL},
    {"dS that the warpgroup for dQ does not wait for", "h200", DQ_GROUP,
     "barrier_wait(barriers.ds(stage.index).full, stage.parity);", ";", 1, KEYS, "", NULL},
    {"a stage of dS that is still read", "h200", DQ_GROUP,
     "barrier_wait(barriers.ds(stage.index).empty, stage.parity ^ 1);", ";", 1, KEYS, "race: it writes shared memory",
     "bwd_products.cuh"},
    {"a stage of dS given back before dQ is there", "h200", DQ_GROUP,
     "wgmma_wait<0>();\n            pin(dq);\n            if (!kDqInOrder && part == kDqProducts - 1)\n"
     "                hand_over(barriers.ds(stage.index).empty, lane);",
     "if (part == kDqProducts - 1)\n                hand_over(barriers.ds(stage.index).empty, lane);\n"
     "            wgmma_wait<0>();\n            pin(dq);",
     1, KEYS, "", NULL},
    {"dS that the products of dQ do not see", "h200", DQ_GROUP,
     "fence_products();\n    hand_over(barriers.ds(stage.index).full", "hand_over(barriers.ds(stage.index).full", 1,
     KEYS, "proxy: it reads shared memory", NULL},
    {"dO given back before dV is there", "h200", DQ_GROUP, "wgmma_wait<1>();  // S^T of the next tile", "//", 1, KEYS,
     "", NULL},
    {"Q given back before dK is there", "h200", DQ_GROUP, "barriers.q(stage.before().index).empty",
     "barriers.q(stage.index).empty", 1, KEYS, "", NULL},
    {"a tile that is not waited for", "h200", DQ_GROUP, "await_tile(p, barriers, next, at);", ";", 1, KEYS,
     "early: ", NULL},
    {"none, wgmma, K and V in registers", "h200", HELD, "", "", 1, KEYS ",causal=1", NULL, NULL},
    {"K of other keys in registers", "h200", HELD, "warp % 4 * 16 + lane % 16", "lane % 16", 1, KEYS, "x the bound",
     NULL},
    {"none, wgmma, dQ transposed of packed sequences", "h200", HELD, "", "", 1, PACKED ",D=64", NULL, NULL},
    {"K of dQ transposed that is read before its rows are cleared", "h200", HELD,
     "barrier_wait(barriers.ds(0).full, 0);", ";", 1, PACKED ",D=64", "race: ", NULL},
    {"K of dQ transposed of other columns", "h200", HELD, "warp * 2 + lane / 8 % 2", "lane / 8 % 2", 1, KEYS ",D=64",
     "x the bound", NULL},
    {"sums of dQ transposed that are converted as rows", "h200", HELD, "row = group + pair * 2;", "row = group + pair;",
     1, KEYS ",D=64", "race: ", NULL},
    {"none, wgmma, S ahead", "h200", AHEAD, "", "", 1, KEYS ",D=128,causal=1", NULL, NULL},
    {"a tile of Q that S ahead does not wait for", "h200", AHEAD, "await_tile(p, barriers, next, at);", ";", 1,
     KEYS ",D=128", "early: ", NULL},
    {"none, wgmma, dQ by the copy engine", "h200", DQ_BULK, "", "", 1, KEYS ",D=128,causal=1", NULL, NULL},
    {"none, wgmma, dQ of packed sequences by the copy engine", "h200", DQ_BULK, "", "", 1, PACKED ",D=112", NULL, NULL},
    {"dS of the tile before that is not waited for", "h200", DQ_BULK,
     "barrier_wait(barriers.ds(before.index).full, before.parity);", ";", 1, KEYS ",D=128", "", NULL},
    {"a stage of dS that is still read, the copy engine", "h200", DQ_BULK,
     "barrier_wait(barriers.ds(stage.index).empty, stage.parity ^ 1);", ";", 1, KEYS ",D=128",
     "race: it writes shared memory", "bwd_products.cuh"},
    {"dQ written over that is still added", "h200", DQ_BULK, "wait_stores_read();  // the part before is read", ";", 1,
     KEYS ",D=128", "race: it writes shared memory", NULL},
    {"dQ that the copy engine does not see", "h200", DQ_BULK,
     "fence_products();\n        __syncwarp();  // the part is", "__syncwarp();  // the part is", 1, KEYS ",D=128",
     "proxy: it reads shared memory", "tma.cuh"},
    {"dQ from lanes that have not come", "h200", DQ_BULK, "__syncwarp();  // the part is there", ";", 1, KEYS ",D=128",
     "race: it reads shared memory", "tma.cuh"},
    {"a warp that does not wait for its last dQ", "h200", DQ_BULK, "wait_stores_read();  // the last part is read", ";",
     1, KEYS ",D=128", "early: the thread ends", NULL},
    {"none, wgmma, dQ by the copy engine in turns", "h200", DQ_BULK, "", "", 1, KEYS ",D=128,causal=1,deterministic=1",
     NULL, NULL},
    {"dQ in turns, written over that is still added", "h200", DQ_BULK,
     "barrier_wait(barriers.exchange().empty, parity ^ 1);", ";", 1, KEYS ",D=128,deterministic=1",
     "race: it reads shared memory", NULL},
    {"dQ in turns, given back before it is read", "h200", DQ_BULK,
     "wait_stores_read();\n            barrier_arrive(barriers.exchange().empty);",
     "barrier_arrive(barriers.exchange().empty);", 1, KEYS ",D=128,deterministic=1", "", "tma.cuh"},
    {"dQ of no tile, added", "h200", DQ_BULK, "if (!first) {\n        hand_over", "{\n        hand_over", 1,
     KEYS ",D=128", "", NULL},
};

const bug_list hopper_bugs = {bugs, sizeof bugs / sizeof *bugs};
