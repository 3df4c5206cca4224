/*
 * Deliberate bugs in the real kernels: each must be found, by the check that is for it, at the
 * place where it is.
 *
 * A bug is a replacement in the CUDA text that the generator makes; the kernel is compiled with
 * line information and run on one shape. Printed for each: its name, what was planted, and what was
 * found.
 *
 *     test_bugs [NAME | PART/PARTS [STEP]]
 *
 * NAME: only those whose name contains it; PART/PARTS: every PARTS-th only, and of those every STEP-th,
 * but all where FA2_TEST_ALL is set.
 */
#include <stdlib.h>
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "runtime/cuda/compile.h"
#include "runtime/lua/generator.h"
#include "tests/check.h"
#include "tests/sim/forward.h"
#include "tuner/input/shapes.h"

enum { PLACE_BYTES = 64 };
static const float softcap = 2.0f; /* of shapes that have one */
#define BACKWARD "op=backward,Sq=200,causal=1"
#define SHORT    "op=backward,Sq=300,Sk=100,causal=1"
#define PACKED   "op=backward,B=5,Sq=150,Tq=500,Tk=430,causal=1"
#define PREFIX   "Sq=200,causal=1,window=2,Wl=77"
#define CHUNKS   "Sq=200,window=3,Wl=70"
#define CAPPED   "op=backward,Sq=300,softcap=1,Wl=70,Wr=5"

typedef struct bug {
    const char *name, *card;
    const char *needles[3];   /* that the candidate's text has; NULL: no more */
    const char *from, *to;    /* in the source */
    int occurrence;           /* of from, counted from 1 */
    const char *shape;        /* as --shape; two query heads for a key head, else D=64 */
    const char *said, *where; /* parts of the report */
} bug;

#define JOINT                                                                                      \
    {                                                                                              \
        "kstages=2 vstages=2", "q=smem", "swizzle"                                                 \
    }
#define SEPARATE                                                                                   \
    {                                                                                              \
        "kstages=1 vstages=1", "q=reg", "swizzle"                                                  \
    }
#define TURING                                                                                     \
    {                                                                                              \
        "kstages=1 vstages=1", "q=reg", "swizzle"                                                  \
    }

/* A family that splits: two teams, each of two warps. */
#define TEAMS                                                                                      \
    {                                                                                              \
        "fwd_splitkv", " br=32 ", "warps=4 teams=2"                                                \
    }

/* The same where a window leaves few keys, or a key costs more: a warp each. */
#define NARROW_TEAMS                                                                               \
    {                                                                                              \
        "fwd_splitkv", " br=16 ", "teams=2"                                                        \
    }

/* Fewer columns of V; four warps that divide columns, for few queries and for many. */
#define FEWER_VALUES                                                                               \
    {                                                                                              \
        "fwd_sm80", " dv=128 "                                                                     \
    }
#define DIVIDED                                                                                    \
    {                                                                                              \
        "fwd_splitkv", " parts=4 ", " teams=1 "                                                    \
    }
#define DIVIDED_ROWS                                                                               \
    {                                                                                              \
        "fwd_sm", " parts=4 "                                                                      \
    }

/* Backward: the same with fewer columns of V; and dQ by blocks of its own. */
#define FEWER_ADDED                                                                                \
    {                                                                                              \
        " dv=", " qwarps=2 ", "dq=red"                                                             \
    }
#define FEWER_APART                                                                                \
    {                                                                                              \
        " dv=", "dq=apart", "stages=1"                                                             \
    }

/* Backward in turns, with blocks that begin in the reverse of their order. */
#define TURNS                                                                                      \
    {                                                                                              \
        " qwarps=2 ", "deterministic=1", "dq=red"                                                  \
    }

/* Backward: dQ is added to; warps exchange P and dS. */
#define ADDED                                                                                      \
    {                                                                                              \
        " qwarps=2 ", "stages=2 barriers=2", "dq=red"                                              \
    }

/* Several blocks share the queries of a tile of keys. */
#define SHARED                                                                                     \
    {                                                                                              \
        "swizzle", "split=1"                                                                       \
    }

/* A block that has all keys of a head. */
#define WHOLE                                                                                      \
    {                                                                                              \
        "bwd_sm80", "dq=whole", "bc=128"                                                           \
    }

/* Backward: dQ has blocks of its own. */
#define APART                                                                                      \
    {                                                                                              \
        "dq=apart", "rows=prepared", "stages=1"                                                    \
    }

static const bug bugs[] = {
    {"none", "rtx3060", JOINT, "", "", 1, "Sq=200,causal=1", NULL, NULL},
    {"a removed barrier, joint stages", "rtx3060", JOINT, "team_sync();  // K and V are complete",
     "// K and V are complete", 1, "Sq=200", "race", "fwd.cu.in"},
    {"a removed barrier behind K", "rtx3060", SEPARATE, "team_sync();  // K is complete",
     "// K is complete", 1, "Sq=200", "race", "fwd.cu.in"},
    {"a removed barrier behind V", "rtx3060", SEPARATE, "team_sync();  // V is complete",
     "// V is complete", 1, "Sq=200", "race", "fwd.cu.in"},
    {"a removed barrier before O",
     "rtx3060",
     {"kstages=2 vstages=2", "q=reg", "swizzle"},
     "__syncthreads();  // every warp",
     ";  // every warp",
     1,
     "Sq=64,Sk=200",
     "race",
     "fwd.cu.in"},
    {"a removed barrier on Turing", "t4", TURING, "team_sync();  // K is complete",
     "// K is complete", 1, "Sq=200,causal=1", "race", "fwd.cu.in"},
    {"a removed wait", "rtx3060", JOINT, "fill_wait<kKStages - 2>();", "", 1, "Sq=200", "early",
     "cp.async"},
    {"a wait for one group too few", "rtx3060", SEPARATE, "fill_wait<kKStages - 1>();",
     "fill_wait<kKStages>();", 1, "Sq=200", "early", "cp.async"},
    {"a removed __syncwarp", "rtx3060", JOINT, "__syncwarp();", "", 1, "Sq=200", "race",
     "fwd.cu.in"},
    {"no swizzle", "rtx3060", JOINT, "kSwizzle ? row / (8 / kPermuted) % kPermuted : 0", "0", 1,
     "Sq=200", "wavefronts too many", NULL},
    {"a wrong swizzle on reading", "rtx3060", JOINT, "(lane_offset ^ (chunk % kPermuted * 16))",
     "(lane_offset + (chunk % kPermuted * 16))", 1, "Sq=200", "", NULL},
    {"an off-by-one fill", "rtx3060", JOINT, "plan.row(pass) < valid_rows",
     "plan.row(pass) <= valid_rows", 1, "Sq=200", "illegal address", "fill_sm80.cu.in"},
    {"an off-by-one fill on Turing", "t4", TURING, "plan.row(pass) < valid_rows",
     "plan.row(pass) <= valid_rows", 1, "Sq=200", "illegal address", "fill_sm75.cu.in"},
    {"a pass of the fill left out", "rtx3060", JOINT,
     "return (share.part + 1) * kPasses / share.parts;",
     "return (share.part + 1) * kPasses / share.parts - 1;", 1, "Sq=200", "uninitialised",
     "fwd.cu.in"},
    {"a misaligned source", "rtx3060", JOINT, "(plan.row(pass)) + plan.chunk * 16;",
     "(plan.row(pass)) + plan.chunk * 8;", 1, "Sq=200", "misaligned", "fill_sm80.cu.in"},
    {"a row of O too many", "rtx3060", JOINT, "if (chunk < kOutTiles && block_row < place.rows)",
     "if (chunk < kOutTiles && block_row <= place.rows)", 1, "Sq=200", "illegal address",
     "fwd.cu.in"},
    {"blocks that write the same rows", "rtx3060", JOINT, "? p.q_tiles - 1 - tile : tile) * kBr",
     "? p.q_tiles - 1 - tile : tile) * (kBr / 2)", 1, "Sq=200", "race: it writes global",
     "fwd.cu.in"},
    {"a shuffle with missing lanes", "rtx3060", JOINT, "const float sum = quad_sum(row.sum[m][h]);",
     "float sum = row.sum[m][h]; if (lane < 16) sum = quad_sum(sum);", 1, "Sq=200",
     "lanes are missing", "softmax.cu.in"},
    {"a barrier for some warps", "rtx3060", SEPARATE, "__syncthreads();  // every warp",
     "if (threadIdx.x < 32) __syncthreads();  // every warp", 1, "Sq=200", "barrier divergence",
     "fwd.cu.in"},
    {"a barrier for some lanes", "rtx3060", SEPARATE, "__syncthreads();  // every warp",
     "if (lane < 7) __syncthreads();  // every warp", 1, "Sq=200", "barrier divergence",
     "fwd.cu.in"},
    {"a loop without end", "rtx3060", JOINT, "for (; tile >= tiles.first; tile -= kTeams)",
     "for (; tile >= tiles.first; tile -= tile > tiles.first)", 1, "Sq=200", "timeout", ".cu.in"},
    {"no rescaling", "rtx3060", JOINT, "row.sum[m][h] *= alpha;", "", 1, "Sq=200", "x the bound",
     NULL},
    {"none, split", "rtx3060", TEAMS, "", "", 1, "Sq=3,Sk=1500,causal=1", NULL, NULL},
    {"a removed barrier of a team", "rtx3060", TEAMS,
     "named_barrier(1 + threadIdx.x / kTeamThreads, kTeamThreads);", ";", 1, "Sq=3,Sk=1500", "race",
     "fwd.cu.in"},
    {"one barrier for all teams", "rtx3060", TEAMS, "named_barrier(1 + threadIdx.x / kTeamThreads",
     "named_barrier(1", 1, "Sq=3,Sk=1500", "barrier divergence", "fwd.cu.in"},
    {"a team's barrier before O", "rtx3060", TEAMS, "__syncthreads();  // every warp",
     "named_barrier(1 + threadIdx.x / kTeamThreads, kTeamThreads);  // every warp", 1,
     "Sq=3,Sk=1500", "race", "write_split.cu.in"},
    {"a removed barrier before merging", "rtx3060", TEAMS, "__syncthreads();  // all teams'",
     ";  // all teams'", 1, "Sq=3,Sk=1500", "race", "write_split.cu.in"},
    {"a removed __syncwarp in combining", "rtx3060", TEAMS, "__syncwarp();  // the weights",
     ";  // the weights", 1, "Sq=3,Sk=1500", "race", "combine.cu.in"},
    {"splits that write the same rows", "rtx3060", TEAMS, "place.split * all_rows + index", "index",
     1, "Sq=3,Sk=1500", "race: it writes global", "write_split.cu.in"},
    {"a split too many", "rtx3060", TEAMS, "split < p.splits; split++",
     "split <= p.splits; split++", 1, "Sq=3,Sk=1500", "uninitialised", "combine.cu.in"},
    {"a team's weight left out", "rtx3060", TEAMS, "o.x += weight * x.x;", "o.x += x.x;", 1,
     "Sq=3,Sk=1500", "x the bound", NULL},
    {"a mask off by one", "rtx3060", JOINT, "seen + place.query(p, r) + 1 - p.seq_q",
     "seen + place.query(p, r) + 2 - p.seq_q", 1, "Sq=200,causal=1", "x the bound", NULL},
    {"none, window", "rtx3060", JOINT, "", "", 1, "Sq=200,Sk=400,Wl=70,Wr=5", NULL, NULL},
    {"none, window on Turing", "t4", TURING, "", "", 1, "Sq=200,Sk=400,causal=1,Wl=70,Wr=5", NULL,
     NULL},
    {"a window that begins a key early", "rtx3060", JOINT, "first = run_begin(p, at) - lane_key;",
     "first = run_begin(p, at) - lane_key - 1;", 1, "Sq=200,Sk=400,Wl=70,Wr=5", "x the bound",
     NULL},
    {"a window that ends a key late", "rtx3060", JOINT, "run_end(p, at)) - 1 - lane_key;",
     "run_end(p, at)) - lane_key;", 1, "Sq=200,Sk=400,Wl=70,Wr=5", "x the bound", NULL},
    {"a tile before the window", "rtx3060", JOINT, "first = keys.begin / kBc;",
     "first = max(0, keys.begin / kBc - 1);", 1, "Sq=100,Sk=400,Wl=70,Wr=5", "illegal address",
     "fill_sm80.cu.in"},
    {"a tile before the window on Turing", "t4", TURING, "first = keys.begin / kBc;",
     "first = max(0, keys.begin / kBc - 1);", 1, "Sq=100,Sk=400,Wl=70,Wr=5", "illegal address",
     "fill_sm75.cu.in"},
    {"a copy ahead of the window", "rtx3060", JOINT, "has_next = next >= tiles.first;",
     "has_next = next >= 0;", 1, "Sq=100,Sk=400,Wl=70,Wr=5", "illegal address", "fill_sm80.cu.in"},
    {"a tile too many without a mask", "rtx3060", JOINT, "(keys.begin_of_all + kBc - 1) / kBc",
     "keys.begin_of_all / kBc", 1, "Sq=200,Sk=600,Wl=300,Wr=0", "x the bound", NULL},
    {"none, prefix", "rtx3060", JOINT, "", "", 1, PREFIX ",Sk=290", NULL, NULL},
    {"none, prefix, backward", "rtx3060", TURNS, "", "", 1, "op=backward,deterministic=1," PREFIX,
     NULL, NULL},
    {"a prefix that is short", "rtx3060", JOINT, "max(at + 1, p.window_left)",
     "max(at + 1, p.window_left - 1)", 1, PREFIX, "x the bound", NULL},
    {"a prefix that few queries see, backward", "rtx3060", ADDED,
     "key < p.window_left ? -kUnbounded", "key + 1 < p.window_left ? -kUnbounded", 1,
     "op=backward," PREFIX, "x the bound", NULL},
    {"none, chunks", "t4", TURING, "", "", 1, CHUNKS ",Sk=330", NULL, NULL},
    {"none, chunks, split", "rtx3060", NARROW_TEAMS, "", "", 1,
     "Sq=3,Sk=1500,causal=1,window=3,Wl=900", NULL, NULL},
    {"none, chunks, backward", "rtx3060", TURNS, "", "", 1, "op=backward,deterministic=1," CHUNKS,
     NULL, NULL},
    {"a chunk that begins a key late", "rtx3060", JOINT, "at / p.window_left * p.window_left;",
     "at / p.window_left * p.window_left + 1;", 1, CHUNKS, "x the bound", NULL},
    {"a chunk that ends a key late, backward", "t4", APART, "run_begin(p, at) + p.window_left;",
     "run_begin(p, at) + p.window_left + 1;", 1, "op=backward," CHUNKS, "x the bound", NULL},
    {"none, window, split", "rtx3060", NARROW_TEAMS, "", "", 1, "Sq=3,Sk=1500,causal=1,Wl=900,Wr=0",
     NULL, NULL},
    {"splits that begin before the window", "rtx3060", NARROW_TEAMS,
     "min(first + place.split * share", "min(place.split * share", 1,
     "Sq=3,Sk=1500,causal=1,Wl=900,Wr=0", "illegal address", "fill_sm80.cu.in"},
    {"none, softcap", "rtx3060", JOINT, "", "", 1, "Sq=200,causal=1,softcap=1", NULL, NULL},
    {"a cap behind the mask", "rtx3060", JOINT, "s[m][n][e] = minus_infinity();",
     "s[m][n][e] = tanh_approx(minus_infinity());", 1, "Sq=200,causal=1,softcap=1", "x the bound",
     NULL},
    {"a cap that is left out", "rtx3060", JOINT, "cap_scores(s, p.softcap_rate);", ";", 1,
     "Sq=200,causal=1,softcap=1", "x the bound", NULL},
    {"none, alibi", "rtx3060", JOINT, "", "", 1, "Sq=200,Sk=300,alibi=1", NULL, NULL},
    {"a distance that is off by one behind the query", "rtx3060", JOINT, "fabsf(base + step)",
     "fabsf(base + step + 1)", 1, "Sq=200,Sk=300,alibi=1", "x the bound", NULL},
    {"a slope of the next tile", "t4", TURING, "float(tile * kBc)", "float((tile + 1) * kBc)", 1,
     "Sq=200,Sk=300,causal=1,alibi=1", "x the bound", NULL},
    {"none, sinks, split", "rtx3060", TEAMS, "", "", 1, "Sq=3,Sk=1500,sinks=1", NULL, NULL},
    {"a sink counted twice", "rtx3060", TEAMS, "p.partial_lse[at] = merged.lse(p.scale);",
     "p.partial_lse[at] = merged.add_sink(p.scale, p.features.sinks[place.query_head(p, "
     "block_row)]);",
     1, "Sq=3,Sk=1500,sinks=1", "x the bound", NULL},
    {"a sink that is left out", "t4", TURING, "p.features.sinks[place.head]", "minus_infinity()", 1,
     "Sq=200,sinks=1", "x the bound", NULL},
    {"none, bias", "rtx3060", JOINT, "", "", 1, "Sq=200,Sk=300,bias=fp16", NULL, NULL},
    {"a bias of the next query", "rtx3060", JOINT, "place.query(p, r) * p.features.bias_query",
     "(place.query(p, r) + 1) * p.features.bias_query", 1, "Sq=200,Sk=300,bias=fp32", "", NULL},
    {"a bias that is read behind the keys", "t4", TURING, "column + i < columns",
     "column + i <= columns", 1, "Sq=200,Sk=299,bias=bf16", "illegal address", "bias.cu.in"},
    {"a bias that is not divided by the scale", "rtx3060", JOINT,
     "bias_number(x[i]) * inverse_scale", "bias_number(x[i])", 1, "Sq=200,Sk=300,bias=fp16",
     "x the bound", NULL},
    {"none, mask", "rtx3060", SEPARATE, "", "", 1, "Sq=200,Sk=300,bias=bool", NULL, NULL},
    {"a tile that is skipped for its last keys", "rtx3060", JOINT, "seen |= x[i];", "seen = x[i];",
     1, "Sq=200,Sk=300,bias=bool", "x the bound", NULL},
    {"a copy that skipping warps leave out",
     "rtx3060",
     {"kstages=2 vstages=2", " bc=64 ", "fill=whole"},
     "issue_whole();\n                }",
     "}",
     1,
     "Sq=200,Sk=300,bias=bool",
     "",
     NULL},
    {"none, dropout", "rtx3060", JOINT, "", "", 1, "Sq=200,Sk=300,dropout=1", NULL, NULL},
    {"a mask that depends on the tile", "rtx3060", JOINT, "tile * (kBc / 16) + step", "step", 1,
     "Sq=200,Sk=300,dropout=1", "x the bound", NULL},
    {"a mask that depends on the warp", "t4", TURING, "(first_row / 16 + m) * 32 + lane",
     "(first_row / 16 % 2 + m) * 32 + lane", 1, "Sq=200,Sk=300,dropout=1", "x the bound", NULL},
    {"a round too few", "rtx3060", JOINT, "round < 7", "round < 6", 1, "Sq=200,dropout=1",
     "x the bound", NULL},
    {"dropped elements that are missing in the sum", "rtx3060", JOINT,
     "const float inverse = row_inverse(sum) * p.features.keep_scale;",
     "const float inverse = row_inverse(sum);", 1, "Sq=200,dropout=1", "x the bound", NULL},
    {"none, dropout, split", "rtx3060", NARROW_TEAMS, "", "", 1, "Sq=3,Sk=1500,dropout=1", NULL,
     NULL},
    {"a mask by rows of the tile instead of queries", "rtx3060", NARROW_TEAMS,
     "query = place.query(p, row);", "query = row;", 1, "Sq=3,Sk=1500,dropout=1", "x the bound",
     NULL},
    {"none, lengths, split", "rtx3060", TEAMS, "", "", 1, "B=5,Sq=3,Sk=1500,causal=1,seqused=1",
     NULL, NULL},
    {"none, lengths", "rtx3060", JOINT, "", "", 1, "B=5,Sq=200,causal=1,seqused=1", NULL, NULL},
    {"the length of the next sequence", "rtx3060", JOINT, "p.features.seqused_k + batch",
     "p.features.seqused_k + (batch + 1) % p.batch", 1, "B=5,Sq=200,seqused=1", "x the bound",
     NULL},
    {"a length that is not bounded", "rtx3060", JOINT,
     "between(0, __ldg(p.features.seqused_k + batch), p.seq_k)",
     "__ldg(p.features.seqused_k + batch) + 50", 1, "B=2,Sq=200,seqused=1", "illegal address",
     "fill_sm80.cu.in"},
    {"a slot too far", "rtx3060", TEAMS, "__shfl_sync(0xffffffffu, end - own, at)",
     "__shfl_sync(0xffffffffu, end, at)", 1, "B=5,Sq=3,Sk=1500,seqused=1", "", NULL},
    {"none, packed sequences", "rtx3060", JOINT, "", "", 1, "B=5,Sq=200,causal=1,Tq=600,Tk=700",
     NULL, NULL},
    {"none, packed sequences, split", "rtx3060", TEAMS, "", "", 1,
     "B=5,Sq=3,Sk=1500,causal=1,Tq=7,Tk=4000", NULL, NULL},
    {"a packed sequence that begins a row early", "rtx3060", JOINT,
     "first_q = between(0, __ldg(p.features.cu_seqlens_q + batch), p.features.total_q);",
     "first_q = between(0, __ldg(p.features.cu_seqlens_q + batch) - 1, p.features.total_q);", 1,
     "B=5,Sq=200,Tq=600,Tk=700", "", NULL},
    {"a packed sequence that is too long", "rtx3060", JOINT,
     "min(__ldg(p.features.cu_seqlens_q + batch + 1), p.features.total_q) - first_q",
     "__ldg(p.features.cu_seqlens_q + batch + 1) + 9 - first_q", 1, "B=3,Sq=200,Tq=400,Tk=400",
     "race", "fwd.cu.in"},
    {"the tiles of packed sequences overlap", "rtx3060", JOINT, "total) / rows + batch;",
     "total) / rows;", 1, "B=5,Sq=200,Tq=600,Tk=700", "x the bound", NULL},
    {"keys of the sequence before", "rtx3060", TEAMS, "place.sequence.first_k * stride.seq",
     "(place.sequence.first_k - 1) * stride.seq", 1, "B=5,Sq=3,Sk=1500,Tq=7,Tk=4000", "", NULL},
    {"none, fewer columns of V", "rtx3060", FEWER_VALUES, "", "", 1, "Sq=200,D=192,Dv=128", NULL,
     NULL},
    {"rows of V as long as those of K", "rtx3060", FEWER_VALUES, "step * 16 * ValueTile::kPitch",
     "step * 16 * kPitch", 1, "Sq=200,D=192,Dv=128", "", NULL},
    {"none, V in K", "rtx3060", JOINT, "", "", 1, "Sq=200,D=128,Dv=72,v_in_k=1,causal=1", NULL,
     NULL},
    {"none, V in K, one stage", "rtx3060", SEPARATE, "", "", 1, "Sq=200,v_in_k=1,bias=bool", NULL,
     NULL},
    {"K that comes while V is read", "rtx3060", SEPARATE, "team_sync();  // V is read: the next",
     "// V is read: the next", 1, "Sq=200,D=128,Dv=72,v_in_k=1", "race", "fwd.cu.in"},
    {"V of the next tile of K", "rtx3060", JOINT, "return k_stage(smem, team, tile);",
     "return k_stage(smem, team, tile + 1);", 1, "Sq=200,D=128,Dv=72,v_in_k=1,causal=1", "", NULL},
    {"V behind its own columns", "rtx3060", DIVIDED,
     "ValueTile::pair_offset(lane_rows, n / 2 * kParts)",
     "ValueTile::pair_offset(lane_rows, n / 2 * kParts + 1)", 1,
     "Sq=3,Sk=300,D=320,Dv=256,v_in_k=1", "x the bound", NULL},
    {"none, columns divided", "rtx3060", DIVIDED, "", "", 1, "Sq=3,Sk=300,D=320,Dv=264", NULL,
     NULL},
    {"none, columns divided on Turing", "t4", DIVIDED_ROWS, "", "", 1, "Sq=70,D=288,causal=1", NULL,
     NULL},
    {"S that is added up too early", "rtx3060", DIVIDED, "team_sync();  // all of S", "// all of S",
     1, "Sq=3,Sk=300,D=320", "uninitialised", "parts.cu.in"},
    {"a warp's share of S that is left out", "rtx3060", DIVIDED, "+= y.x + z.x;", "+= y.x;", 1,
     "Sq=3,Sk=300,D=320", "x the bound", NULL},
    {"columns of O side by side", "t4", DIVIDED_ROWS, "(n / 2 * kParts + own_part()) * 2",
     "(n / 2 + own_part() * (kOutTiles / 2)) * 2", 1, "Sq=70,D=320", "x the bound", NULL},
    {"an LSE that all warps of a row write", "t4", DIVIDED_ROWS,
     "quad_lane == 0 && own_part() == 0", "quad_lane == 0", 1, "Sq=70,D=320", "race", "fwd.cu.in"},
    {"none, pages", "rtx3060", JOINT, "", "", 1, "B=3,Sq=200,causal=1,seqused=1,page=16", NULL,
     NULL},
    {"a page that is looked up one early", "rtx3060", JOINT, "table + (key >> shift)",
     "table + ((key + 1) >> shift)", 1, "Sq=200,page=16", "", NULL},
    {"a row of the page before", "rtx3060", TEAMS, "(key & ((1 << shift) - 1)) * stride.seq",
     "(key & ((1 << shift) - 2)) * stride.seq", 1, "Sq=3,Sk=1500,page=32", "x the bound", NULL},
    {"a page that is not checked", "rtx3060", JOINT,
     "min(uint32(__ldg(table + (key >> shift))), p.features.pages - 1u)",
     "uint32(__ldg(table + (key >> shift))) + 7", 1, "Sq=200,page=64", "illegal address",
     "fill_sm80.cu.in"},
    {"a table that is read behind the sequence", "rtx3060", JOINT,
     "max(0, min(tile * kBc + r, place.sequence.seq_k - 1))", "tile * kBc + r", 1,
     "B=2,Sq=200,Sk=70,seqused=1,page=1", "illegal address", ".cu.in"},
    {"none, left padding, cache rows", "rtx3060", JOINT, "", "", 1,
     "B=4,Sq=200,causal=1,seqused=1,leftpad=1,cache_rows=1", NULL, NULL},
    {"none, left padding, split", "t4", NARROW_TEAMS, "", "", 1,
     "B=3,Sq=3,Sk=1500,leftpad=1,cache_rows=1", NULL, NULL},
    {"left padding off by one", "rtx3060", JOINT,
     "first_k(between(0, __ldg(p.features.leftpad + batch), p.seq_k))",
     "first_k(between(0, __ldg(p.features.leftpad + batch) + 1, p.seq_k))", 1,
     "B=3,Sq=200,leftpad=1", "x the bound", NULL},
    {"left padding that is not taken off the length", "rtx3060", JOINT,
     "seq_k = max(0, seq_k - first_k);", "", 1, "B=3,Sq=200,Sk=300,leftpad=1", "", NULL},
    {"left padding that is not bounded", "t4", TURING,
     "first_k(between(0, __ldg(p.features.leftpad + batch), p.seq_k))",
     "first_k(__ldg(p.features.leftpad + batch) - 200)", 1, "B=1,Sq=200,Sk=300,leftpad=1",
     "illegal address", "fill_sm75.cu.in"},
    {"the cache row of another sequence", "rtx3060", TEAMS, "p.features.cache_rows + batch",
     "p.features.cache_rows + (batch + 1) % p.batch", 1, "B=3,Sq=3,Sk=1500,cache_rows=1",
     "x the bound", NULL},
    {"a cache row that is not checked", "rtx3060", JOINT,
     "min(uint32(__ldg(p.features.cache_rows + batch)), p.features.cache_row_count - 1u)",
     "__ldg(p.features.cache_rows + batch) + 4", 1, "B=2,Sq=200,cache_rows=1", "illegal address",
     "fill_sm80.cu.in"},
    {"none, append", "rtx3060", JOINT, "", "", 1, "B=3,Sq=70,Sk=300,causal=1,seqused=1,append=1",
     NULL, NULL},
    {"none, append, split", "t4", NARROW_TEAMS, "", "", 1, "B=3,Sq=3,Sk=1500,append=1,page=16",
     NULL, NULL},
    {"an append that is a row late", "rtx3060", JOINT, "keys_before(p, batch) + i;",
     "keys_before(p, batch) + i + 1;", 1, "B=3,Sq=70,Sk=300,seqused=1,append=1", "x the bound",
     NULL},
    {"a last new key that is left out", "rtx3060", JOINT, "if (position >= p.seq_k ||",
     "if (position >= p.seq_k - 1 ||", 1, "B=1,Sq=70,Sk=300,append=1", "x the bound", NULL},
    {"values that are appended as keys", "t4", TURING, "is_key ? cache_at(p, p.k, p.k_stride",
     "true ? cache_at(p, p.k, p.k_stride", 1, "B=2,Sq=70,Sk=300,append=1", "race", "append.cu.in"},
    {"new keys that attention does not see", "rtx3060", TEAMS,
     "keys_before(p, batch) + p.features.new_count, p.seq_k", "keys_before(p, batch), p.seq_k", 1,
     "B=3,Sq=3,Sk=1500,seqused=1,append=1", "x the bound", NULL},
    {"new keys in the page behind", "rtx3060", JOINT, "own = __ldg(p.features.block_table",
     "own = 1 + __ldg(p.features.block_table", 1, "B=2,Sq=70,Sk=300,seqused=1,append=1,page=16",
     "x the bound", NULL},
    {"none, rotary in halves", "rtx3060", JOINT, "", "", 1,
     "B=3,Sq=70,Sk=300,causal=1,seqused=1,rotary=halves,rotary_dim=32", NULL, NULL},
    {"none, rotary, interleaved", "t4", TURING, "", "", 1,
     "B=3,Sq=70,Sk=300,seqused=1,leftpad=1,rotary=interleaved", NULL, NULL},
    {"keys rotated by the next position", "rtx3060", JOINT,
     "rotated_chunk(p, row, chunk, position)", "rotated_chunk(p, row, chunk, position + 1)", 1,
     "B=3,Sq=70,Sk=300,causal=1,seqused=1,rotary=halves,rotary_dim=32", "x the bound", NULL},
    {"queries rotated by their row alone", "t4", TURING,
     "position = keys_before(p, batch) + query;", "position = query;", 1,
     "B=3,Sq=70,Sk=300,causal=1,seqused=1,rotary=interleaved", "x the bound", NULL},
    {"queries that stand in a row without a mask", "rtx3060", TEAMS,
     "position = keys_before(p, batch);", "position = keys_before(p, batch) + query;", 1,
     "B=3,Sq=3,Sk=1500,seqused=1,rotary=interleaved", "x the bound", NULL},
    {"an angle of the other pair", "rtx3060", JOINT, "i % 2 == 0 ? c2.x : c2.y", "c2.x", 1,
     "B=2,Sq=70,Sk=300,rotary=interleaved", "x the bound", NULL},
    {"tables that are read behind their end", "rtx3060", JOINT,
     "min(position, p.features.rotary_rows - 1)", "position + 300", 1,
     "B=1,Sq=70,Sk=300,causal=1,rotary=halves", "illegal address", "rotary.cu.in"},
    {"none, backward", "rtx3060", ADDED, "", "", 1, BACKWARD, NULL, NULL},
    {"none, backward on Turing", "t4", APART, "", "", 1, BACKWARD, NULL, NULL},
    {"a removed barrier behind P and dS", "rtx3060", ADDED,
     "dS^T are read.\n            __syncthreads();", "dS^T are read.\n", 1, BACKWARD,
     "uninitialised", ".cu.in"},
    {"a removed barrier before dK and dV", "rtx3060", ADDED, "__syncthreads();  // every warp",
     ";  // every warp", 1, BACKWARD, "race", ".cu.in"},
    {"a removed wait for Q and dO", "rtx3060", ADDED, "fill_wait<0>();", "", 1, BACKWARD, "early",
     "cp.async"},
    {"dQ that is added twice", "rtx3060", ADDED,
     "add_global_4(fragment + e * 32 + lane, dq[m][n][e]);",
     "add_global_4(fragment + e * 32 + lane, dq[m][n][e] * 2);", 1, BACKWARD, "x the bound", NULL},
    {"sums of dQ that do not begin with 0", "rtx3060", ADDED, "if (i < left)",
     "if (i > 0 && i < left)", 1, BACKWARD, "x the bound", NULL},
    {"a wrong transposition", "rtx3060", ADDED, "ldmatrix_x4_trans(b, b_smem",
     "ldmatrix_x4(b, b_smem", 1, BACKWARD, "x the bound", NULL},
    {"a stale delta", "rtx3060", ADDED, "kRowArea + stage * kRowBytes + lane", "kRowArea + lane", 1,
     BACKWARD, "", NULL},
    {"delta of dO alone", "rtx3060", ADDED,
     "dot_8(__ldg(reinterpret_cast<const uint4 *>(o) + lane)",
     "dot_8(__ldg(reinterpret_cast<const uint4 *>(d_o) + lane)", 1, BACKWARD, "x the bound", NULL},
    {"a causal mask off by one, backward", "rtx3060", ADDED, "key - (p.seq_k - p.seq_q) : 0",
     "key - (p.seq_k - p.seq_q) - 1 : 0", 1, BACKWARD, "x the bound", NULL},
    {"a row of dK too many", "rtx3060", ADDED, "place.first_key + r < p.seq_k)",
     "place.first_key + r <= p.seq_k)", 1, BACKWARD, "illegal address", "write.cu.in"},
    {"a row of dQ too many", "t4", APART, "chunk < kHeadDim / 8 && row < p.seq_q)",
     "chunk < kHeadDim / 8 && row <= p.seq_q)", 1, BACKWARD, "illegal address", "bwd_query.cu.in"},
    {"none, backward, all keys of a head", "rtx3060", WHOLE, "", "", 1, SHORT, NULL, NULL},
    {"lanes that write dQ without an exchange", "rtx3060", WHOLE, "right ? of_left : of_right, 1)",
     "of_right, 1)", 1, SHORT, "x the bound", NULL},
    {"rows of dQ that nobody sees are left alone", "rtx3060", WHOLE, "i < (before + behind) * kRow",
     "i < behind * kRow", 1, SHORT, "", NULL},
    {"a row of dQ too many of all keys of a head", "rtx3060", WHOLE, "row < p.seq_q)",
     "row <= p.seq_q)", 1, SHORT, "illegal address", "whole.cu.in"},
    {"none, backward, shared queries", "rtx3060", SHARED, "", "", 1, SHORT, NULL, NULL},
    {"a part of the queries that ends early", "rtx3060", SHARED, "all * (split + 1) / p.splits)",
     "all * (split + 1) / p.splits - 1)", 1, SHORT, "x the bound", NULL},
    {"a sum of all parts but the last", "rtx3060", SHARED, "split < p.splits; split++",
     "split < p.splits - 1; split++", 1, SHORT, "x the bound", NULL},
    {"parts in the same place", "rtx3060", SHARED, "(p.splits - split) * key_blocks",
     "p.splits * key_blocks", 1, SHORT, "race", "split.cu.in"},
    {"none, packed, backward", "rtx3060", ADDED, "", "", 1, PACKED ",sinks=1", NULL, NULL},
    {"none, packed, turns in reverse order", "rtx3060", TURNS, "", "", 1, PACKED ",deterministic=1",
     NULL, NULL},
    {"none, packed, backward on Turing", "t4", APART, "", "", 1, PACKED ",alibi=1", NULL, NULL},
    {"the tiles of packed sequences overlap, backward", "rtx3060", ADDED, "total) / rows + batch;",
     "total) / rows;", 1, PACKED, "", NULL},
    {"the queries of a neighbour", "rtx3060", ADDED, "p.q += query *", "p.q += (query + 1) *", 1,
     PACKED, "", NULL},
    {"keys behind the sequence", "rtx3060", ADDED, "p.seq_k = sequence.seq_k;",
     "p.seq_k = sequence.seq_k + 1;", 1, PACKED, "", NULL},
    {"sums of the first tile of all sequences", "rtx3060", ADDED,
     "at.tile + place.first_q_tile) * kDqTile", "at.tile) * kDqTile", 1, PACKED, "x the bound",
     NULL},
    {"an LSE that is not packed", "t4", APART, "plane * p.features.total_q + row",
     "plane * p.seq_q + row", 1, PACKED, "x the bound", NULL},
    {"none, packed, dropped", "rtx3060", JOINT, "", "", 1, "B=5,Sq=150,Tq=500,Tk=430,dropout=1",
     NULL, NULL},
    {"packed sequences that drop alike, backward", "rtx3060", ADDED,
     "place.own.index * p.heads_q +", "0 * p.heads_q +", 1, PACKED ",dropout=1", "x the bound",
     NULL},
    {"packed sequences that drop alike, by queries", "t4", APART, "own.index * p.heads_q + head",
     "head", 1, PACKED ",dropout=1", "x the bound", NULL},
    {"dQ of a neighbour", "t4", APART, "p.dq += query *", "p.dq += (query + 1) *", 1, PACKED, "",
     NULL},
    {"none, fewer columns of V, backward", "rtx3060", FEWER_ADDED, "", "", 1,
     "op=backward,Sq=100,D=96,Dv=40,causal=1", NULL, NULL},
    {"rows of dO as long as those of Q", "rtx3060", FEWER_ADDED,
     "add_to(dv, do_smem, value_out, ValueTile::kPitch);",
     "add_to(dv, do_smem, value_out, kPitch);", 1, "op=backward,Sq=100,D=96,Dv=40,causal=1", "",
     NULL},
    {"a delta of the columns of Q", "t4", FEWER_APART, "kRowChunks = kHeadDimV / 8;",
     "kRowChunks = kHeadDim / 8;", 1, "op=backward,Sq=100,D=96,Dv=40,causal=1", "", NULL},
    {"columns of dV behind the last one", "t4", FEWER_APART, "chunk < kColumns / 8 &&",
     "chunk <= kColumns / 8 &&", 1, "op=backward,Sq=100,D=96,Dv=40,causal=1", "", NULL},
    {"none, turns, blocks in reverse order", "rtx3060", TURNS, "", "", 1,
     BACKWARD ",deterministic=1", NULL, NULL},
    {"turns by the number of a block", "rtx3060", TURNS, "block_ticket(p, smem)", "blockIdx.x", 1,
     BACKWARD ",deterministic=1", "timeout", "turns.cu.in"},
    {"a block that does not count itself", "rtx3060", TURNS, "count_up(counter);  // all",
     ";  // all", 1, BACKWARD ",deterministic=1", "timeout", "turns.cu.in"},
    {"none, backward, window and cap", "rtx3060", ADDED, "", "", 1, CAPPED, NULL, NULL},
    {"none, backward on Turing, window and cap", "t4", APART, "", "", 1, CAPPED, NULL, NULL},
    {"a window that a query enters early", "rtx3060", ADDED, "first_at(p, key) - at : kBr",
     "first_at(p, key) - at - 1 : kBr", 1, CAPPED, "x the bound", NULL},
    {"a window that a query leaves late", "rtx3060", ADDED, "last = last_at(p, key) - at;",
     "last = last_at(p, key) - at + 1;", 1, CAPPED, "x the bound", NULL},
    {"a tile of queries that is not visited", "rtx3060", ADDED, "last_at(p, last_key) - offset + 1",
     "last_at(p, last_key) - offset + 1 - kBr", 1, CAPPED, "x the bound", NULL},
    {"a tile that should be masked", "rtx3060", ADDED, "p.q_tiles : queries.end_of_all / kBr;",
     "p.q_tiles : queries.end_of_all / kBr + 1;", 1, CAPPED, "x the bound", NULL},
    {"a window of dQ that begins a key early", "t4", APART, "begin = run_begin(p, at) - lane_key;",
     "begin = run_begin(p, at) - lane_key - 1;", 1, CAPPED, "x the bound", NULL},
    {"a derivative of the cap that is left out", "rtx3060", ADDED, "multiply_slopes(s, capped);",
     "", 1, CAPPED, "x the bound", NULL},
    {"dV of a P that is times the derivative", "rtx3060", ADDED, "pack_scores(frag, s);",
     "multiply_slopes(s, capped); pack_scores(frag, s);", 1, CAPPED, "x the bound", NULL},
    {"a derivative of the cap that dQ lacks", "t4", APART, "x *= cap_slope(s[0][n][e]);", "", 1,
     CAPPED, "x the bound", NULL},
    {"none, backward, alibi and dropout", "rtx3060", ADDED, "", "", 1,
     BACKWARD ",alibi=1,dropout=1", NULL, NULL},
    {"none, backward, bias on Turing", "t4", APART, "", "", 1, BACKWARD ",bias=bf16,dropout=1",
     NULL, NULL},
    {"none, backward, sinks", "rtx3060", ADDED, "", "", 1, BACKWARD ",sinks=1,dropout=1", NULL,
     NULL},
    {"a gradient of sinks without some warps", "rtx3060", ADDED, "warp < kSinkThreads / 32; warp++",
     "warp < 4; warp++", 1, BACKWARD ",sinks=1", "dsinks", NULL},
    {"a mask of the other query", "rtx3060", ADDED, "keep[step][half][0] = odd ? theirs : mine;",
     "keep[step][half][0] = odd ? mine : theirs;", 1, BACKWARD ",dropout=1", "x the bound", NULL},
    {"dP that is not dropped", "rtx3060", ADDED, "dropout.mask(dp);", ";", 1, BACKWARD ",dropout=1",
     "x the bound", NULL},
    {"delta of what is kept", "rtx3060", ADDED, "return delta / p.features.keep_scale;",
     "return delta;", 1, BACKWARD ",dropout=1", "x the bound", NULL},
    {"a distance from the wrong side", "t4", APART, "-(n * 8 + e % 2), first_row + r",
     "n * 8 + e % 2, first_row + r", 1, BACKWARD ",alibi=1", "x the bound", NULL},
    {"dS that is not scaled", "t4", APART, "pack2(dq[0][n][2 * h] * p.scale",
     "pack2(dq[0][n][2 * h]", 1, BACKWARD, "x the bound", NULL},
};

typedef struct bench {
    fa2i_generator *generator;
    fa2i_device device;
} bench;

static void must(fa2_status status, const char *what)
{
    if (status == FA2_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, fa2_last_message());
    exit(1);
}

static fa2_problem problem_of(const bug *b)
{
    char text[128];
    fa2i_shapes shapes = {0};
    const char *columns = strstr(b->shape, ",D=") != NULL ? "" : "D=64,";
    snprintf(text, sizeof text, "Hq=2,Hkv=1,%s%s", columns, b->shape);
    must(fa2i_shapes_add_text(&shapes, text), b->name);
    const fa2_problem problem = shapes.items[0];
    fa2i_shapes_done(&shapes);
    return problem;
}

static fa2i_variant find_variant(const bench *t, const bug *b)
{
    fa2_problem class = problem_of(b);
    fa2i_variant *list = NULL, found = {0};
    size_t count = 0;
    const bool few = class.seq_q < 64; /* rows: that brings the families that split */
    class.seq_q = few ? 32 : 1024;
    /* few keys: blocks that have all of a head */
    class.seq_k = few                                                 ? 8192
                  : class.op == FA2_OP_BACKWARD && class.seq_k <= 128 ? class.seq_k
                                                                      : 1024;
    class.heads_q = class.heads_kv = 8;
    must(fa2i_generator_candidates(t->generator, &class, &t->device.card, &list, &count), b->name);
    for (size_t i = 0; i < count && found.text[0] == '\0'; i++) {
        bool fits = true;
        for (int n = 0; n < 3; n++)
            fits = fits && (b->needles[n] == NULL || strstr(list[i].text, b->needles[n]) != NULL);
        if (fits)
            found = list[i];
    }
    fa2i_free(list);
    if (found.text[0] == '\0') {
        fprintf(stderr, "%s: no candidate has %s and %s\n", b->name, b->needles[0], b->needles[1]);
        exit(1);
    }
    return found;
}

/* "template:line" of a position in the text; "" if it is in none. */
static void find_place(const char *source, const char *at, char place[PLACE_BYTES])
{
    static const char directive[] = "\n#line ";
    const char *last = NULL;
    char template[PLACE_BYTES - 16];
    int line = 0;
    place[0] = '\0';
    for (const char *next = source; (next = strstr(next, directive)) != NULL && next < at; next++)
        last = next;
    if (last == NULL || sscanf(last, "\n#line %d \"%47[^\"]", &line, template) != 2)
        return;
    for (const char *c = strchr(last + 1, '\n') + 1; c < at; c++)
        line += *c == '\n';
    snprintf(place, PLACE_BYTES, "%s:%d", template, line);
}

/* The text with the bug in it, which the caller frees, and its place; NULL: there is none. */
static char *plant(const char *source, const bug *b, char place[PLACE_BYTES])
{
    const char *at = source;
    for (int i = 1; (at = strstr(at, b->from)) != NULL && i < b->occurrence; i++)
        at++;
    char *text = malloc(strlen(source) + strlen(b->to) + 1);
    if (at == NULL || text == NULL) {
        free(text);
        return NULL;
    }
    find_place(source, at, place);
    const size_t before = (size_t)(at - source);
    memcpy(text, source, before);
    strcpy(text + before, b->to);
    strcat(text, at + strlen(b->from));
    return text;
}

/* PTX with line information. false: the compiler's log is printed. */
static bool compile(const char *source, int arch, fa2i_blob *ret_ptx)
{
    const fa2i_nvrtc_table *nvrtc = NULL;
    nvrtcProgram program = NULL;
    char architecture[48];
    const char *const options[] = {architecture, "--std=c++17", "-default-device",
                                   "--generate-line-info"};
    fa2i_blob ptx = {0};
    must(fa2i_nvrtc_get(&nvrtc), "NVRTC");
    snprintf(architecture, sizeof architecture, "--gpu-architecture=compute_%d", arch);
    bool ok = nvrtc->create_program(&program, source, "bug.cu", 0, NULL, NULL) == NVRTC_SUCCESS &&
              nvrtc->compile_program(program, 4, options) == NVRTC_SUCCESS &&
              nvrtc->get_ptx_size(program, &ptx.bytes) == NVRTC_SUCCESS;
    if (!ok && program != NULL) {
        static char log[65536];
        size_t bytes = 0;
        if (nvrtc->get_program_log_size(program, &bytes) == NVRTC_SUCCESS && bytes < sizeof log &&
            nvrtc->get_program_log(program, log) == NVRTC_SUCCESS)
            fprintf(stderr, "%s\n", log);
    }
    ptx.data = ok ? fa2i_alloc(ptx.bytes) : NULL;
    ok = ptx.data != NULL && nvrtc->get_ptx(program, ptx.data) == NVRTC_SUCCESS;
    if (program != NULL)
        (void)nvrtc->destroy_program(&program);
    *ret_ptx = ptx;
    return ok;
}

static bool run(const bench *t, const bug *b, const fa2i_variant *variant, const char *source,
                char why[FORWARD_WHY_BYTES])
{
    fa2i_kernel kernel = {.variant = *variant};
    fa2i_loaded loaded = {0};
    fa2i_expected expected;
    fa2i_case c = {.problem = problem_of(b), .want_lse = 1, .q_magnitude = 2.0f, .seed = 3};
    c.softcap = c.problem.softcap ? softcap : 0.0f;
    if (c.problem.op == FA2_OP_BACKWARD)
        c.pattern = FA2I_PATTERN_FORWARD;
    bool ok = compile(source, t->device.card.arch, &kernel.image);
    CHECK(ok);
    if (ok) {
        must(fa2i_load(&t->device, &kernel, &loaded, NULL), b->name);
        must(fa2i_expected_all(&c, 1, &expected), b->name);
        ok = forward_launch(&t->device, &loaded, &expected, why, NULL);
        fa2i_expected_done(&expected);
        fa2i_unload(&t->device, &loaded);
    }
    fa2i_kernel_done(&kernel);
    return ok;
}

/* In one line, whatever the text. */
static void print_text(const char *text)
{
    for (; *text != '\0'; text++)
        if (*text != '\n' && !(*text == ' ' && text[1] == ' '))
            putchar(*text);
}

static void print_report(const bug *b, const char *place, bool passed, const char *why)
{
    printf("%s, on %s\n    planted: ", b->name, b->card);
    print_text(b->from[0] == '\0' ? "nothing" : b->from);
    if (b->from[0] != '\0') {
        printf("  ->  ");
        print_text(b->to[0] == '\0' ? "(removed)" : b->to);
        printf(", at %s", place);
    }
    printf("\n    found:   %s\n", passed ? "nothing, the numbers are right" : why);
    fflush(stdout); /* before what a failed check says of it */
}

static void check_report(const bug *b, const char *place, bool passed, const char *why)
{
    print_report(b, place, passed, why);
    if (b->said == NULL) {
        CHECK(passed);
        return;
    }
    CHECK_CONTAINS(place, ".cu.in:");
    CHECK(!passed);
    CHECK_CONTAINS(why, b->said);
    if (b->where != NULL) {
        CHECK_CONTAINS(why, b->where);
        CHECK_CONTAINS(why, "block (");
    }
}

static void try_bug(fa2i_generator *generator, const bug *b)
{
    bench t = {.generator = generator};
    char why[FORWARD_WHY_BYTES] = "", place[PLACE_BYTES] = "";
    char *source = NULL;
    setenv("FA2_SIM_CARD", b->card, 1);
    setenv("FA2_SIM_REVERSE", strstr(b->shape, "deterministic") != NULL ? "1" : "", 1);
    fa2_sim_reset();
    must(fa2i_device_open(1, &t.device), "the device");
    must(fa2i_device_enter(&t.device), "the context");
    const fa2i_variant variant = find_variant(&t, b);
    must(fa2i_generator_source(t.generator, variant.text, &source), b->name);
    char *planted = plant(source, b, place);
    if (planted == NULL)
        fprintf(stderr, "%s: the source has no '%s'\n", b->name, b->from);
    CHECK(planted != NULL);
    if (planted != NULL)
        check_report(b, place, run(&t, b, &variant, planted, why), why);
    free(planted);
    fa2i_free(source);
    fa2i_device_leave(&t.device);
    fa2i_device_close(&t.device);
    CHECK_EQ(fa2_sim_live(), 0);
}

int main(int argc, char **argv)
{
    size_t planted = 0, reported = 0, part = 1, parts = 1, step = 1;
    fa2i_generator *generator = NULL;
    const bool divided = argc > 1 && sscanf(argv[1], "%zu/%zu", &part, &parts) == 2;
    if (part < 1 || part > parts || (argc > 2 && sscanf(argv[2], "%zu", &step) != 1) || step < 1) {
        fprintf(stderr, "usage: test_bugs [NAME | PART/PARTS [STEP]]\n");
        return 2;
    }
    if (getenv("FA2_TEST_ALL") != NULL)
        step = 1;
    must(fa2i_generator_create(&generator), "the generator");
    setenv("FA2_SIM_BUDGET", "3000000", 1);
    setenv("FA2_SIM_THREADS", "1", 1); /* the same block is always the first to err */
    for (size_t i = part - 1; i < sizeof bugs / sizeof *bugs; i += parts * step) {
        if (argc > 1 && !divided && strstr(bugs[i].name, argv[1]) == NULL)
            continue;
        const int failures = check_failures;
        try_bug(generator, &bugs[i]);
        planted += bugs[i].said != NULL;
        reported += bugs[i].said != NULL && check_failures == failures;
    }
    fa2i_generator_destroy(generator);
    printf("%zu bugs were planted, %zu were reported as expected\n", planted, reported);
    return check_done();
}
