/*
 * Planted bugs: partial results, whose O and gradients are fp32, written or merged; and the kernels that merge several.
 */
#include "bugs.h"

#define ROWS                                                                                                           \
    {                                                                                                                  \
        "fwd_sm90 ", "groups=2", "!persistent"                                                                         \
    }
#define STAYS                                                                                                          \
    {                                                                                                                  \
        "fwd_sm90 ", "groups=2", "persistent=2"                                                                        \
    }
#define LATENT                                                                                                         \
    {                                                                                                                  \
        "fwd_splitkv_sm90 ", NULL, NULL                                                                                \
    }
#define HOPPER                                                                                                         \
    {                                                                                                                  \
        "bwd_sm90 ", NULL, NULL                                                                                        \
    }
#define MERGE                                                                                                          \
    {                                                                                                                  \
        "merge_", "ahead=2", NULL                                                                                      \
    }
#define SEVERAL "op=merge,B=2,Hq=3,Sq=50,Sk=7"
#define WRITES  "partial=1,"
#define MERGES  "partial=2,"
#define CARRIES "carry=1,"

static const bug bugs[] = {
    /* Forward. Heads, batches and rows without an earlier result are in every case that merges (judge/merge.h). */
    {"none, partial", "rtx3060", JOINT, "", "", 1, WRITES "Sq=200,causal=1", NULL, NULL},
    {"none, partial, merged", "rtx3060", JOINT, "", "", 1, MERGES "Sq=200,Sk=150,causal=1,sinks=1", NULL, NULL},
    {"none, partial, merged on Turing", "t4", TURING, "", "", 1, MERGES "Sq=200,D=72,softcap=1", NULL, NULL},
    {"none, partial, columns divided", "rtx3060", DIVIDED_ROWS, "", "", 1, MERGES "Sq=70,D=288,causal=1", NULL, NULL},
    {"none, partial, packed", "rtx3060", JOINT, "", "", 1, WRITES "B=5,Sq=200,causal=1,Tq=600,Tk=700", NULL, NULL},
    {"none, partial, packed and merged", "rtx3060", JOINT, "", "", 1, MERGES "B=5,Sq=200,causal=1,Tq=600,Tk=700", NULL,
     NULL},
    {"none, partial, split", "rtx3060", TEAMS, "", "", 1, WRITES "Sq=3,Sk=1500,causal=1", NULL, NULL},
    {"none, partial, split and merged", "rtx3060", TEAMS, "", "", 1, MERGES "Sq=3,Sk=1500,sinks=1", NULL, NULL},
    {"none, partial, one block has all keys", "rtx3060", TEAMS, "", "", 1, MERGES "Hq=16,Sq=30,Sk=30", NULL, NULL},
    {"none, partial, lengths, split and merged", "rtx3060", TEAMS, "", "", 1, MERGES "B=5,Sq=3,Sk=1500,seqused=1", NULL,
     NULL},
    {"none, partial, packed, split and merged", "rtx3060", TEAMS, "", "", 1,
     MERGES "B=5,Sq=3,Sk=1500,causal=1,Tq=7,Tk=4000", NULL, NULL},
    {"none, partial, wgmma, one key", "h200", ROWS, "", "", 1, WRITES "Sq=129,Sk=1,dtype=bf16", NULL, NULL},
    {"none, partial, wgmma", "h200", ROWS, "", "", 1, WRITES "Sq=200,causal=1", NULL, NULL},
    {"none, partial, wgmma, persistent", "h200", STAYS, "", "", 1, MERGES "Sq=200,causal=1,sinks=1", NULL, NULL},
    {"none, partial, latent on wgmma", "h200", LATENT, "", "", 1, MERGES "Hq=16,Sq=2,Sk=1000,D=576,Dv=512,v_in_k=1",
     NULL, NULL},
    {"none, partial, latent on wgmma, one block has all keys", "h200", LATENT, "", "", 1,
     MERGES "Hq=16,Sq=2,Sk=50,D=576,Dv=512,v_in_k=1", NULL, NULL},

    {"none, carried", "rtx3060", JOINT, "", "", 1, CARRIES "Sq=200,Sk=150,causal=1,sinks=1", NULL, NULL},
    {"none, carried on Turing", "t4", TURING, "", "", 1, CARRIES "Sq=200,D=72,softcap=1", NULL, NULL},
    {"none, carried, columns divided", "rtx3060", DIVIDED_ROWS, "", "", 1, CARRIES "Sq=70,D=288,causal=1", NULL, NULL},
    {"none, carried, packed", "rtx3060", JOINT, "", "", 1, CARRIES "B=5,Sq=200,causal=1,Tq=600,Tk=700", NULL, NULL},
    {"none, carried, split", "rtx3060", TEAMS, "", "", 1, CARRIES "Sq=3,Sk=1500,sinks=1", NULL, NULL},
    {"none, carried, one block has all keys", "rtx3060", TEAMS, "", "", 1, CARRIES "Hq=16,Sq=30,Sk=30", NULL, NULL},
    {"none, carried, packed, split", "rtx3060", TEAMS, "", "", 1, CARRIES "B=5,Sq=3,Sk=1500,causal=1,Tq=7,Tk=4000",
     NULL, NULL},
    {"none, carried, wgmma", "h200", ROWS, "", "", 1, CARRIES "Sq=200,causal=1", NULL, NULL},
    {"none, carried, wgmma, persistent", "h200", STAYS, "", "", 1, CARRIES "Sq=200,causal=1,sinks=1", NULL, NULL},
    {"carried, the result before is read where O is", "rtx3060", JOINT, "p.features.carried +", "(float *)p.o +", 1,
     CARRIES "Sq=200", "", NULL},
    {"carried, the strides of O", "h200", ROWS, "offset(p.features.carried_stride)", "offset(p.o_stride) / 2 * 2 + 8",
     1, CARRIES "Sq=200", "", NULL},
    {"carried, combined columns in fp32", "rtx3060", TEAMS, "o + column * kOutBytes, old_o", "o + column * 4, old_o", 1,
     CARRIES "Sq=3,Sk=1500", "", NULL},

    {"partial, rows without a result are read", "rtx3060", JOINT, "old == 0.0f ? Numbers{} :", "", 1, MERGES "Sq=200",
     "not", NULL},
    {"partial, weights that do not add up", "rtx3060", JOINT, "own /= sum;", "", 1, MERGES "Sq=200", "x the bound",
     NULL},
    {"partial, the LSE before is kept", "h200", ROWS, "lse = most + logf(sum);", "lse = old_lse;", 1, MERGES "Sq=200",
     "LSE", NULL},
    {"partial, the LSE before is read after it was written", "rtx3060", DIVIDED_ROWS,
     "__syncthreads();  // several warps have columns of a row: their loads", ";  //", 1, MERGES "Sq=70,D=288,causal=1",
     "race", NULL},
    {"partial, rows of nobody are cleared", "rtx3060", JOINT,
     "    if constexpr (kMerges && !kCarry)\n        return;\n    char", "    char", 1,
     MERGES "B=5,Sq=150,Tq=500,Tk=430", "x the bound", NULL},
    {"partial, the LSE before of another row", "rtx3060", TEAMS, "smem + kOldLse + r * 4);\n        } else",
     "smem + kOldLse);\n        } else", 1, MERGES "Hq=16,Sq=30,Sk=30", "x the bound", NULL},
    {"partial, combined without the LSE before", "rtx3060", TEAMS, "__shfl_sync(0xffffffffu, own_lse, 0)", "own_lse", 1,
     MERGES "Sq=3,Sk=1500", "x the bound", NULL},
    {"partial, O of elements", "rtx3060", TEAMS, "row + column * kOutBytes;", "row + column * 2;", 1,
     WRITES "Hq=16,Sq=30,Sk=30", "", NULL},
    {"partial, combined without the result before", "rtx3060", TEAMS, "kMerges && lane == 0 ? p.lse[row] :", "", 1,
     MERGES "Sq=3,Sk=1500", "x the bound", NULL},

    /* Backward. */
    {"none, partial, backward", "rtx3060", ADDED, "", "", 1, WRITES BACKWARD, NULL, NULL},
    {"none, partial, backward, added", "rtx3060", ADDED, "", "", 1, MERGES BACKWARD, NULL, NULL},
    {"none, partial, backward on Turing", "t4", APART, "", "", 1, MERGES BACKWARD, NULL, NULL},
    {"none, partial, all keys of a head", "rtx3060", WHOLE, "", "", 1, MERGES SHORT, NULL, NULL},
    {"none, partial, shared queries", "rtx3060", SHARED, "", "", 1, MERGES SHORT, NULL, NULL},
    {"none, partial, packed, backward", "rtx3060", ADDED, "", "", 1, MERGES PACKED, NULL, NULL},
    {"none, partial, packed, backward on Turing", "t4", APART, "", "", 1, WRITES PACKED, NULL, NULL},
    {"none, partial, fewer columns of V, backward", "rtx3060", FEWER_ADDED, "", "", 1,
     MERGES "op=backward,Sq=100,D=96,Dv=40,causal=1", NULL, NULL},
    {"none, partial, backward on wgmma", "h200", HOPPER, "", "", 1, MERGES BACKWARD, NULL, NULL},
    {"none, partial, backward by products on wgmma", "h200", HOPPER, "", "", 1, MERGES BACKWARD ",D=256", NULL, NULL},

    {"partial, gradients that are not added", "rtx3060", ADDED, "x = float2{x.x + old.x, x.y + old.y};", "", 1,
     MERGES BACKWARD, "x the bound", NULL},
    {"partial, dQ that is not added", "h200", HOPPER, "float4{x.x + old.x, x.y + old.y,", "float4{x.x, x.y,", 1,
     MERGES BACKWARD, "dQ", NULL},
    {"partial, dQ of separate blocks of elements", "t4", APART, "(to + chunk(n) * 32) =", "(to + chunk(n) * 16) =", 1,
     WRITES BACKWARD, "", NULL},
    {"partial, keys of nobody are cleared", "rtx3060", ADDED,
     "    if constexpr (kMerges)\n        return;\n    *reinter", "    *reinter", 1, MERGES PACKED, "x the bound",
     NULL},

    /* Merging several. Rows that saw no key, in one or in all, are in every case (judge/parts.c). */
    {"none, merging", "rtx3060", MERGE, "", "", 1, SEVERAL, NULL, NULL},
    {"none, merging on Turing", "t4", MERGE, "", "", 1, SEVERAL ",D=72", NULL, NULL},
    {"none, merging, wide rows in fp32", "h200", MERGE, "", "", 1, SEVERAL ",D=576,partial=1", NULL, NULL},
    {"none, merging one", "rtx3060", MERGE, "", "", 1, "op=merge,Hq=2,Sq=70,Sk=1,dtype=bf16", NULL, NULL},

    {"merging, empty ones count", "rtx3060", MERGE,
     "            if (lse[i] == minus_infinity())\n                continue;", "", 1, SEVERAL, "not", NULL},
    {"merging, rows without any key", "rtx3060", MERGE, "        if (is_empty)\n            return;  // no key so far",
     "", 1, SEVERAL, "not", NULL},
    {"merging, a NaN is no key", "rtx3060", MERGE, "if (is_empty)", "if (most == minus_infinity())", 1, SEVERAL, "not",
     NULL},
    {"merging, weights that do not add up", "t4", MERGE, "1.0f / row.sum", "1.0f", 1, SEVERAL, "x the bound", NULL},
    {"merging, sums of earlier steps keep their weight", "rtx3060", MERGE, "sum *= old;", "", 1, SEVERAL, "x the bound",
     NULL},
    {"merging, every step reads the first ones", "h200", MERGE, " + first * p.part_step", "", 1, SEVERAL, "x the bound",
     NULL},
    {"merging, rows after the last one", "rtx3060", MERGE, "at.row < all;", "true;", 1, SEVERAL, "", NULL},
    {"merging, partial results after the last one", "rtx3060", MERGE, " || first + i >= p.count", "", 1, SEVERAL, "",
     NULL},
    {"merging, LSE of the largest", "rtx3060", MERGE, "row.max + logf(row.sum)", "row.max", 1, SEVERAL, "LSE", NULL},
    {"merging, all batches are the first one", "rtx3060", MERGE, "batch = int(batch_head / uint32(p.heads));",
     "batch = 0;", 1, SEVERAL, "", NULL},
    {"merging, O of elements", "a100", MERGE, "float4 *>(o + at * 4)", "float4 *>(o + at * 2)", 1, SEVERAL ",partial=1",
     "", NULL},
};

const bug_list partial_bugs = {bugs, sizeof bugs / sizeof *bugs};
