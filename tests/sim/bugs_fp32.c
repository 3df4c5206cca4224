/*
 * Planted bugs: forward of fp32.
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

static const bug bugs[] = {
    {"none, TF32", "l4", TF32, "", "", 1, "Sq=200,Sk=300,causal=1,dtype=fp32", NULL, NULL},
    {"none, FMA instructions", "t4", FFMA, "", "", 1, "Sq=200,Sk=300,D=72,dtype=fp32", NULL, NULL},
    {"a product of TF32 less", "l4", TF32, "mma_tf32(sum, a[0].lo, a[1].lo, a[2].lo, a[3].lo, b0.hi, b1.hi);", "", 1,
     "Sq=200,dtype=fp32", "x the bound", NULL},
    {"TF32 without the last digits of V", "l4", TF32, "b0(__float_as_uint(load_shared_4(at)))",
     "b0(__float_as_uint(load_shared_4(at)) & 0xfffff000u)", 1, "Sq=200,dtype=fp32", "x the bound", NULL},
    {"P of TF32 in the order of fp16", "l4", TF32, "p[m][step][i % 2 * 2 + i / 2]", "p[m][step][i]", 1,
     "Sq=200,dtype=fp32", "x the bound", NULL},
    {"P of another lane", "t4", FFMA, "lane / 4 * 4 + of)", "lane / 4 * 4 + (of ^ 1))", 1, "Sq=200,dtype=fp32",
     "x the bound", NULL},
    {"V is read before it is complete", "l4", TF32, "__syncthreads();  // V is complete", "// V is complete", 1,
     "Sq=200,dtype=fp32", "uninitialised", "tf32.cuh"},
    {"K is read before it is complete", "t4", FFMA, "__syncthreads();  // K is complete", "// K is complete", 1,
     "Sq=200,dtype=fp32", "race", "ffma.cuh"},
};

const bug_list fp32_bugs = {bugs, sizeof bugs / sizeof *bugs};
