/*
 * Planted bugs: fp32, forward and backward.
 */
#include "bugs.h"

#define TF32                                                                                                           \
    {                                                                                                                  \
        "fwd_fp32", "product=tf32", NULL                                                                               \
    }
#define FFMA                                                                                                           \
    {                                                                                                                  \
        "fwd_fp32", "product=ffma", NULL                                                                               \
    }

#define BACK_TF32                                                                                                      \
    {                                                                                                                  \
        "bwd_fp32", "product=tf32", NULL                                                                               \
    }
#define BACK_FFMA                                                                                                      \
    {                                                                                                                  \
        "bwd_fp32", "product=ffma", NULL                                                                               \
    }
#define BACKWARD_FP32 BACKWARD ",dtype=fp32"

static const bug bugs[] = {
    {"none, TF32", "l4", TF32, "", "", 1, "Sq=200,Sk=300,causal=1,dtype=fp32", NULL, NULL},
    {"none, FMA instructions", "t4", FFMA, "", "", 1, "Sq=200,Sk=300,D=72,dtype=fp32", NULL, NULL},
    {"a product of TF32 less", "l4", TF32, "mma_tf32(sum, a[0].lo, a[1].lo, a[2].lo, a[3].lo, b0.hi, b1.hi);", "", 1,
     "Sq=200,dtype=fp32", "x the bound", NULL},
    {"TF32 without the last digits of V", "l4", TF32, "return Split(__float_as_uint(load_shared_4(smem)));",
     "return Split(__float_as_uint(load_shared_4(smem)) & 0xfffff000u);", 1, "Sq=200,dtype=fp32", "x the bound", NULL},
    {"P of TF32 in the order of fp16", "l4", TF32, "p[m][step][i % 2 * 2 + i / 2]", "p[m][step][i]", 1,
     "Sq=200,dtype=fp32", "x the bound", NULL},
    {"P of another lane", "t4", FFMA, "lane / 4 * 4 + of)", "lane / 4 * 4 + (of ^ 1))", 1, "Sq=200,dtype=fp32",
     "x the bound", NULL},
    {"V is read before it is complete", "l4", TF32, "__syncthreads();  // V is complete", "// V is complete", 1,
     "Sq=200,dtype=fp32", "uninitialised", "tf32.cuh"},
    {"K is read before it is complete", "t4", FFMA, "__syncthreads();  // K is complete", "// K is complete", 1,
     "Sq=200,dtype=fp32", "race", "ffma_product.cuh"},
    {"none, backward, TF32", "l4", BACK_TF32, "", "", 1, BACKWARD_FP32, NULL, NULL},
    {"none, backward, FMA instructions", "t4", BACK_FFMA, "", "", 1, BACKWARD_FP32 ",D=72", NULL, NULL},
    {"dS in the order of keys", "l4", BACK_TF32, "return key / 8 * 8 + key % 2 * 4 + key % 8 / 2;", "return key;", 1,
     BACKWARD_FP32, "x the bound", NULL},
    {"dS is read before it is complete", "t4", BACK_FFMA, "__syncthreads();  // dS is complete", "// dS is complete", 1,
     BACKWARD_FP32, "race", "ffma.cuh"},
    {"dS comes where P is still read", "l4", BACK_TF32, "__syncthreads();  // P, dO", "// P, dO", 1, BACKWARD_FP32,
     "race", "loads.cuh"},
    {"Q of the next tile comes too early", "l4", BACK_TF32, "__syncthreads();  // Q is read", "// Q is read", 1,
     BACKWARD_FP32, "race", NULL},
    {"dQ is not cleared", "t4", BACK_FFMA, "clear_chunk(to + chunk * kChunkBytes);\n    if constexpr (kVarlen) {",
     ";\n    if constexpr (kVarlen) {", 1, BACKWARD_FP32, "", NULL},
    {"a row of dQ too many", "t4", BACK_FFMA, "if (own < p.seq_q && chunk", "if (own <= p.seq_q && chunk", 1,
     BACKWARD_FP32, "", NULL},
    {"a row of dK too many", "t4", BACK_FFMA, "if (own >= end)\n                continue;\n            char *const to",
     "if (own > end)\n                continue;\n            char *const to", 1, BACKWARD_FP32, "illegal address",
     "ffma.cuh"},
    {"none, fp32, blocks in reverse order", "l4", BACK_FFMA, "", "", 1, BACKWARD_FP32 ",deterministic=1", NULL, NULL},
    {"turns are not given on", "l4", BACK_TF32, "count_up(counter);  // all warps have added to dQ of the tile before",
     ";", 1, BACKWARD_FP32 ",deterministic=1", "timeout", "turns.cuh"},
};

const bug_list fp32_bugs = {bugs, sizeof bugs / sizeof *bugs};
