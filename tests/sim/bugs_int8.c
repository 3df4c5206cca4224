/*
 * Planted bugs: forward with Q and K in 8-bit integers.
 */
#include "bugs.h"

#define INT8                                                                                                           \
    {                                                                                                                  \
        "qk=int8", "swizzle"                                                                                           \
    }
#define INT8_SHAPE "scores=int8,Sq=150,Sk=333"

#define BYTES                                                                                                          \
    {                                                                                                                  \
        "fwd_bytes_sm90", "groups=2 bc=128"                                                                            \
    }
#define BYTES_SHAPE "scores=int8,pv=fp8,Sq=150,Sk=333"

static const bug bugs[] = {
    {"none, int8", "a100", INT8, "", "", 1, INT8_SHAPE, NULL, NULL},
    {"none, int8 causal", "a100", INT8, "", "", 1, INT8_SHAPE ",causal=1", NULL, NULL},
    {"none, int8 on Turing", "t4", INT8, "", "", 1, INT8_SHAPE, NULL, NULL},
    {"none, int8 D=128", "a100", INT8, "", "", 1, INT8_SHAPE ",D=128", NULL, NULL},
    {"none, int8 D=256", "a100", INT8, "", "", 1, INT8_SHAPE ",D=256", NULL, NULL},
    {"none, int8 D=72", "a100", INT8, "", "", 1, INT8_SHAPE ",D=72,dtype=bf16", NULL, NULL},
    {"none, int8 and fp16 sums", "a100", {"qk=int8", "pv=fp16"}, "", "", 1, INT8_SHAPE ",sums=fast", NULL, NULL},
    {"none, int8 and fp16 sums on Turing",
     "t4",
     {"qk=int8", "pv=fp16"},
     "",
     "",
     1,
     INT8_SHAPE ",sums=fast,D=128",
     NULL,
     NULL},
    {"none, int8 packed", "a100", INT8, "", "", 1, "scores=int8,B=5,Sq=150,Sk=200,Tq=500,Tk=630,causal=1", NULL, NULL},
    {"none, int8 pages", "a100", INT8, "", "", 1, "scores=int8,B=3,Sq=70,Sk=333,paged=1,page=16,seqused=1", NULL, NULL},
    {"none, int8 padding and cache rows", "a100", INT8, "", "", 1,
     "scores=int8,B=3,Sq=70,Sk=233,leftpad=1,cache_rows=1,seqused=1", NULL, NULL},
    {"none, int8 window, softcap, sinks", "a100", INT8, "", "", 1, INT8_SHAPE ",window=1,Wl=70,Wr=5,softcap=1,sinks=1",
     NULL, NULL},
    {"none, int8 bias and ALiBi", "t4", INT8, "", "", 1, INT8_SHAPE ",bias=fp16,alibi=1", NULL, NULL},
    {"none, int8 mask, neighbouring keys",
     "a100",
     {"qk=int8", "bc=64"},
     "",
     "",
     1,
     INT8_SHAPE ",bias=bool",
     NULL,
     NULL},
    {"none, int8 dropout", "a100", INT8, "", "", 1, INT8_SHAPE ",dropout=1", NULL, NULL},
    {"none, int8 chunks, fewer columns of V", "a100", INT8, "", "", 1,
     INT8_SHAPE ",window=3,Wl=70,D=192,Dv=128,dtype=bf16", NULL, NULL},
    {"int8: a product with the mean key left out", "a100", INT8,
     "row.max[m][h] += load_shared_4(mean_place(rows, m, h, lane));", ";", 1, INT8_SHAPE, "x the bound", NULL},
    {"int8: the same, before softcap", "a100", INT8, "fmaf(-kStart, factor, q.mean[m][h])", "-kStart * factor", 1,
     INT8_SHAPE ",softcap=1", "x the bound", NULL},
    {"int8: the scale of another lane's keys", "a100", INT8, "tile * 4 + threadIdx.x % 4",
     "tile * 4 + (threadIdx.x + 1) % 4", 1, INT8_SHAPE, "x the bound", NULL},
    {"int8: the scale of another tile", "a100", INT8, "tile * 4 + threadIdx.x % 4", "threadIdx.x % 4", 1, INT8_SHAPE,
     "x the bound", NULL},
    {"int8: the scale of another row of Q", "a100", INT8, "q.scale[m][h] * key.scale", "q.scale[m][1 - h] * key.scale",
     1, INT8_SHAPE, "x the bound", NULL},
    {"int8: columns in another order", "a100", INT8, "pack_bytes(rounding.byte(x.x), rounding.byte(x.y)",
     "pack_bytes(rounding.byte(x.y), rounding.byte(x.x)", 1, INT8_SHAPE, "x the bound", NULL},
    {"int8: the neighbour's columns in another order", "a100", INT8, "second ? low : high", "second ? high : low", 1,
     INT8_SHAPE, "x the bound", NULL},
    {"int8: a fragment of another k16 step", "a100", INT8, "b[2 * i], b[2 * i + 1]", "b[2 * i + 1], b[2 * i]", 1,
     INT8_SHAPE, "x the bound", NULL},
    {"int8: the wrong rows on Turing", "t4", INT8, "\"+r\"(sum[i % 2 * 2]), \"+r\"(sum[i % 2 * 2 + 1])",
     "\"+r\"(sum[i / 2 * 2]), \"+r\"(sum[i / 2 * 2 + 1])", 1, INT8_SHAPE, "x the bound", NULL},
    {"int8: a mean of too few keys", "a100", INT8, "total /= count;", "total /= count + 1;", 1, INT8_SHAPE, NULL,
     NULL}, /* any vector will do, if Q has its product with the same one */
    {"int8: the largest number of another group of keys", "a100", INT8, "[keys.row % 8 / 2];",
     "[(keys.row % 8 / 2 + 1) % 4];", 1, INT8_SHAPE, "x the bound", NULL},
    {"int8: rows after the last key", "a100", INT8, "key_of(tile, r) < keys.seq_k(p)",
     "key_of(tile, r) <= keys.seq_k(p)", 1, INT8_SHAPE, "illegal address", "quantise.cuh"},
    {"bytes: the same keys twice", "h200", BYTES, "parcels.read(p, keys, tile + 1);", "parcels.read(p, keys, tile);", 1,
     BYTES_SHAPE, "x the bound", NULL},
    {"int8: a removed barrier before scales", "a100", INT8, "__syncthreads();  // the scales are complete",
     ";  // the scales are complete", 1, INT8_SHAPE, "race", "quantise.cuh"},
    {"int8: a removed barrier before the mean", "a100", INT8, "__syncthreads();  // the mean is complete",
     ";  // the mean is complete", 1, INT8_SHAPE, "race", "quantise.cuh"},
    {"none, int8 on Hopper", "h200", INT8, "", "", 1, INT8_SHAPE, NULL, NULL},
    {"int8: keys that are read before they are rounded", "h200", INT8, "await_step_before();", ";", 1, INT8_SHAPE,
     "early", NULL},
    {"int8: the counts of all warps in one place", "a100", INT8, "key_counts(p, at)[threadIdx.x / 32] = count;",
     "key_counts(p, at)[0] = count;", 1, INT8_SHAPE, "race", "quantise.cuh"},
    {"int8: counts of the tile after", "a100", INT8, "+ tile * (kQuantThreads / 32);",
     "+ (tile + 1) * (kQuantThreads / 32);", 1, INT8_SHAPE, "", "quantise.cuh"},
    {"none, bytes", "h200", BYTES, "", "", 1, BYTES_SHAPE, NULL, NULL},
    {"none, bytes D=128", "h200", BYTES, "", "", 1, BYTES_SHAPE ",D=128,causal=1", NULL, NULL},
    {"none, bytes of two batches", "h200", BYTES, "", "", 1, BYTES_SHAPE ",B=2,Hq=4,Hkv=2,causal=1", NULL, NULL},
    {"none, bytes D=256", "h200", BYTES, "", "", 1, BYTES_SHAPE ",D=256,dtype=bf16", NULL, NULL},
    {"bytes: keys of V in another order", "h200", BYTES, "word % 4 * 2 + i % 2 + i / 2 * 8", "word % 4 * 4 + i", 1,
     BYTES_SHAPE, "x the bound", NULL},
    {"bytes: a scale of V that is twice as large", "h200", BYTES, "largest * (kUnshift / kMostE4m3)",
     "largest * (2 * kUnshift / kMostE4m3)", 1, BYTES_SHAPE, "x the bound", NULL},
    {"bytes: Q is read before all of its rows are rounded", "h200", BYTES,
     "    named_barrier(1 + kGroups + group.index, 128);  // all rows", "    // all rows", 1, BYTES_SHAPE, "race",
     NULL},
    {"bytes: a product with the mean key left out of LSE", "h200", BYTES, "/ scale_log2 + q.mean[h];", "/ scale_log2;",
     1, BYTES_SHAPE, "x the bound", NULL},
    {"bytes: row sums of half of P", "h200", BYTES, "0x38383838", "0x30303030", 1, BYTES_SHAPE, "x the bound", NULL},
    {"bytes: row sums that are not rescaled", "h200", BYTES, "row.sum[0][h] *= rescale.by[0][h];", ";", 1, BYTES_SHAPE,
     "x the bound", NULL},
    {"bytes: P of the columns of another pair", "h200", BYTES, "bits[n + 1][h], 0x6420", "bits[n + 1][h], 0x4620", 1,
     BYTES_SHAPE, "x the bound", NULL},
    {"bytes: V that is read before it is rounded", "h200", BYTES, "await_step_before();  // K and V", ";  // K and V",
     1, BYTES_SHAPE, "early", NULL},
};

const bug_list int8_bugs = {bugs, sizeof bugs / sizeof *bugs};
