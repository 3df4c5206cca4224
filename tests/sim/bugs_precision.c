/*
 * Planted bugs: kernels that use a permission to be less exact.
 */
#include "bugs.h"

#define FP16_SUMS                                                                                                      \
    {                                                                                                                  \
        "pv=fp16", "swizzle"                                                                                           \
    }

static const bug bugs[] = {
    {"none, fp16 sums", "rtx3060", FP16_SUMS, "", "", 1, "Sq=200,Sk=300,causal=1,sums=fast", NULL, NULL},
    {"none, fp16 sums on Turing", "t4", FP16_SUMS, "", "", 1, "Sq=200,Sk=300,D=72,sums=fast", NULL, NULL},
    {"none, fp16 sums of bf16", "rtx3060", FP16_SUMS, "", "", 1, "Sq=200,Sk=300,dtype=bf16,sums=fast", NULL, NULL},
    {"none, fp16 sums with dropout", "t4", FP16_SUMS, "", "", 1, "Sq=200,dropout=1,sums=fast", NULL, NULL},
    {"none, fp16 sums of bf16 with dropout", "rtx3060", FP16_SUMS, "", "", 1, "Sq=200,dtype=bf16,dropout=1,sums=fast",
     NULL, NULL},
    {"none, fp16 sums of large values", "rtx3060", FP16_SUMS, "", "", 1, GROWN "Sq=200,Sk=600,sums=fast", NULL, NULL},
    {"fp16 sums with the threshold of fp32 sums", "rtx3060", FP16_SUMS, "constexpr float kLazyRescale = 2;",
     "constexpr float kLazyRescale = 8;", 1, GROWN "Sq=200,Sk=600,sums=fast", "x the bound", NULL},
    {"fp16 sums that the last tile does not add", "rtx3060", FP16_SUMS, "add_sums(o, sums[n], first + n);",
     "if (tile > 0) add_sums(o, sums[n], first + n);", 1, "Sq=200,Sk=300,sums=fast", "x the bound", NULL},
    {"fp16 sums that are added to the first columns", "t4", FP16_SUMS, "add_sums(o, sums[n], first + n);",
     "add_sums(o, sums[n], n);", 1, "Sq=200,D=128,sums=fast", "x the bound", NULL},
    {"V of bf16 whose halves change places", "rtx3060", FP16_SUMS, "return fp16::pack(wide.x, wide.y);",
     "return fp16::pack(wide.y, wide.x);", 1, "Sq=200,dtype=bf16,sums=fast", "x the bound", NULL},
    {"fp16 sums of bf16 without dropout's factor", "rtx3060", FP16_SUMS, "kDropout ? Elem::kOneOfFp16 : 1.0f", "1.0f",
     1, "Sq=200,dtype=bf16,dropout=1,sums=fast", "x the bound", NULL},
};

const bug_list precision_bugs = {bugs, sizeof bugs / sizeof *bugs};
