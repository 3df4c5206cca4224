/*
 * Planted bugs: K and V in 8 bits, with a scale for each row.
 */
#include "bugs.h"

/* Few queries: a family that splits the keys. */
#define SPLIT                                                                                                          \
    {                                                                                                                  \
        "fwd_splitkv", "kv=int8"                                                                                       \
    }
/* Three stages of K and V. */
#define SPLIT_STAGES                                                                                                   \
    {                                                                                                                  \
        "fwd_splitkv", "kv=int8", "kstages=3"                                                                          \
    }
/* Many queries; K and V are waited for separately. */
#define WHOLE_ROWS                                                                                                     \
    {                                                                                                                  \
        "fwd_sm", "kv=int8", "kstages=1"                                                                               \
    }
#define WHOLE_STAGES                                                                                                   \
    {                                                                                                                  \
        "fwd_sm", "kv=int8", "kstages=2 vstages=2"                                                                     \
    }
#define FP8                                                                                                            \
    {                                                                                                                  \
        "fwd_splitkv", "kv=fp8"                                                                                        \
    }
#define FP8_ROWS                                                                                                       \
    {                                                                                                                  \
        "fwd_sm", "kv=fp8", "kstages=2 vstages=2"                                                                      \
    }
#define APPEND      "kv=int8,B=3,Sq=3,Sk=333,append=1,seqused=1"
#define APPEND_FP8  "kv=fp8,B=3,Sq=3,Sk=333,append=1,seqused=1"
#define LONG_DECODE "kv=int8,B=54,Hq=4,Hkv=2,Sq=1,Sk=700,D=128,kv_scales=fp16" /* several tiles for each team */
#define DECODE_FP8  "kv=fp8,Hq=8,Hkv=2,Sq=1,Sk=333,D=128"
#define DECODE      "kv=int8,Hq=8,Hkv=2,Sq=1,Sk=333,D=128"
#define PREFILL     "kv=int8,Sq=150,Sk=333"

static const bug bugs[] = {
    {"none, kv8 decode", "a100", SPLIT_STAGES, "", "", 1, DECODE, NULL, NULL},
    {"none, kv8 decode on Hopper", "h200", SPLIT_STAGES, "", "", 1, DECODE, NULL, NULL},
    {"none, kv8 decode on Turing", "t4", SPLIT, "", "", 1, DECODE, NULL, NULL},
    {"none, kv8 decode of bf16", "rtx3060", SPLIT, "", "", 1, DECODE ",dtype=bf16", NULL, NULL},
    {"none, kv8 decode D=80", "rtx3060", SPLIT, "", "", 1, "kv=int8,Hq=4,Hkv=1,Sq=1,Sk=333,D=80", NULL, NULL},
    {"none, kv8 decode D=16", "t4", SPLIT, "", "", 1, "kv=int8,Hq=8,Hkv=2,Sq=1,Sk=333,D=16", NULL, NULL},
    {"none, kv8 decode D=256", "l4", SPLIT, "", "", 1, "kv=int8,Hq=8,Hkv=2,Sq=1,Sk=333,D=256", NULL, NULL},
    {"none, kv8 decode with lengths", "a100", SPLIT, "", "", 1, "kv=int8,B=3,Sq=1,Sk=333,D=64,seqused=1", NULL, NULL},
    {"none, kv8 pages", "a100", SPLIT, "", "", 1, "kv=int8,B=3,Sq=1,Sk=333,paged=1,page=16,seqused=1", NULL, NULL},
    {"none, kv8 pages D=128", "a100", SPLIT_STAGES, "", "", 1,
     "kv=int8,B=2,Sq=1,Sk=333,D=128,paged=1,page=16,seqused=1", NULL, NULL},
    {"none, kv8 pages on Turing", "t4", SPLIT, "", "", 1, "kv=int8,B=3,Sq=1,Sk=333,paged=1,page=64,seqused=1", NULL,
     NULL},
    {"none, kv8 prefill", "a100", WHOLE_STAGES, "", "", 1, PREFILL ",causal=1", NULL, NULL},
    {"none, kv8 prefill on Turing", "t4", WHOLE_ROWS, "", "", 1, PREFILL ",causal=1", NULL, NULL},
    {"none, kv8 prefill of bf16", "a100", WHOLE_ROWS, "", "", 1, PREFILL ",dtype=bf16,D=128", NULL, NULL},
    {"none, kv8 prefill in pages", "a100", WHOLE_STAGES, "", "", 1,
     "kv=int8,B=3,Sq=70,Sk=333,paged=1,page=16,seqused=1,causal=1", NULL, NULL},
    {"none, kv8 packed", "a100", WHOLE_STAGES, "", "", 1, "kv=int8,B=5,Sq=150,Sk=200,Tq=500,Tk=630,causal=1", NULL,
     NULL},
    {"none, kv8 padding and cache rows", "a100", WHOLE_STAGES, "", "", 1,
     "kv=int8,B=3,Sq=70,Sk=233,leftpad=1,cache_rows=1,seqused=1", NULL, NULL},
    {"none, kv8 window, softcap, sinks", "a100", WHOLE_STAGES, "", "", 1,
     PREFILL ",window=1,Wl=70,Wr=5,softcap=1,sinks=1", NULL, NULL},
    {"none, kv8 bias and ALiBi", "t4", WHOLE_ROWS, "", "", 1, PREFILL ",bias=fp16,alibi=1", NULL, NULL},
    {"none, kv8 mask, neighbouring keys", "a100", WHOLE_STAGES, "", "", 1, PREFILL ",bias=bool", NULL, NULL},
    {"none, kv8 dropout", "a100", WHOLE_STAGES, "", "", 1, PREFILL ",dropout=1", NULL, NULL},
    {"none, kv8 dropout of bf16", "a100", WHOLE_STAGES, "", "", 1, PREFILL ",dropout=1,dtype=bf16", NULL, NULL},
    {"none, kv8 fewer columns of V", "a100", WHOLE_STAGES, "", "", 1, PREFILL ",D=192,Dv=128,dtype=bf16", NULL, NULL},
    {"none, kv8 large scores", "a100", WHOLE_STAGES, "", "", 1, LATE PREFILL, NULL, NULL},
    {"none, kv8 decode of fp8", "a100", FP8, "", "", 1, DECODE_FP8, NULL, NULL},
    {"none, kv8 decode of fp8 on Turing", "t4", FP8, "", "", 1, DECODE_FP8, NULL, NULL},
    {"none, kv8 decode of fp8 in bf16", "l4", FP8, "", "", 1, DECODE_FP8 ",dtype=bf16", NULL, NULL},
    {"none, kv8 prefill of fp8 in pages", "a100", FP8_ROWS, "", "", 1,
     "kv=fp8,B=3,Sq=70,Sk=333,paged=1,page=16,seqused=1,causal=1", NULL, NULL},
    {"kv8: e4m3 numbers without their sign", "a100", FP8, "sign = both & 0x80008000u;", "sign = both & 0x00008000u;", 1,
     DECODE_FP8, "x the bound", NULL},
    {"kv8: e4m3 numbers with the start of fp16's exponents", "a100", FP8, "kFp8 && !kBf16 ? 0x1p8f",
     "kFp8 && !kBf16 ? 1.0f", 1, DECODE_FP8, "x the bound", NULL},
    {"kv8: e4m3 numbers in bf16 with one exponent less", "l4", FP8, "0x7b807b80u", "0x7b007b00u", 1,
     DECODE_FP8 ",dtype=bf16", "x the bound", NULL},
    {"kv8: the scale of a neighbouring key", "a100", SPLIT, "s[m][n][2 * h] *= scale.x;", "s[m][n][2 * h] *= scale.y;",
     1, DECODE, "x the bound", NULL},
    {"kv8: scores without the scales of K", "t4", WHOLE_ROWS, "s[m][n][2 * h + 1] *= scale.y;", "", 1, PREFILL,
     "x the bound", NULL},
    {"kv8: the scales of V of other keys of a fragment", "a100", SPLIT,
     "const float2 right = scales_of_p(scales + scale_offset(step * 16 + 8));",
     "const float2 right = scales_of_p(scales + scale_offset(step * 16));", 1, DECODE, "x the bound", NULL},
    {"kv8: the scales of K for V", "a100", SPLIT, "issue<kFull>(v_scales, from.v_scales,",
     "issue<kFull>(v_scales, from.k_scales,", 1, DECODE, "x the bound", NULL},
    {"kv8: scales with the strides of rows", "a100", WHOLE_STAGES, "from.k_scales, p.features.k_scale_stride,",
     "from.k_scales, p.k_stride,", 1, PREFILL, "", NULL},
    {"kv8: unsigned integers", "a100", SPLIT, "bytes ^ 0x80808080u", "bytes", 1, DECODE, "x the bound", NULL},
    {"kv8: bf16 without the sign", "a100", SPLIT, "(both & 0xff80ff80u)", "(both & 0xff00ff00u)", 1,
     DECODE ",dtype=bf16", "x the bound", NULL},
    {"kv8: Q in the order of 16-bit rows", "a100", SPLIT,
     "permute_row(q.fragments[m][step][0], q.fragments[m][step][2], lane);", "", 1, DECODE, "x the bound", NULL},
    {"kv8: columns of O in the order of the products", "a100", SPLIT, "order_columns(even, odd, lane);", "", 1, DECODE,
     "x the bound", NULL},
    {"kv8: the even columns of V twice", "t4", WHOLE_ROWS, "bytes_to_elements<1, 3>(b[i])",
     "bytes_to_elements<0, 2>(b[i])", 1, PREFILL, "x the bound", NULL},
    {"kv8: the factor of the scales remains", "a100", WHOLE_STAGES, "o[m][n + 1][2 * h] * kOutputFactor",
     "o[m][n + 1][2 * h]", 1, PREFILL, "x the bound", NULL},
    {"kv8: scales of the page of another row", "a100", SPLIT_STAGES,
     "numbers.own[0][i], features.pages - 1u);\n    const", "numbers.own[0][0] ^ 1u, features.pages - 1u);\n    const",
     1, "kv=int8,B=2,Sq=1,Sk=333,D=128,paged=1,page=16,seqused=1", "x the bound", NULL},
    {"kv8: scales that a warp loads where the rows are", "a100", SPLIT_STAGES, "k_scale_stride, smem + kKeyScales,",
     "k_scale_stride, smem,", 1, DECODE, "", NULL},
    {"kv8: scales of keys after the last one", "a100", WHOLE_STAGES,
     "cp_async_4_or_zero(smem + scale_offset(row), address(i, row), share.wanted, kFull || row < valid_rows);",
     "cp_async_4_or_zero(smem + scale_offset(row), address(i, row), share.wanted, true);", 1, PREFILL, "not allocated",
     NULL},
    {"kv8: scales without the gap", "a100", WHOLE_STAGES, "return (row + row / 32 * kScalesGap) * 4;",
     "return row * 4;", 1, "kv=int8,B=3,Sq=70,Sk=333,paged=1,page=16,seqused=1,causal=1", "wavefronts too many", NULL},
    {"none, kv8 append", "a100", SPLIT, "", "", 1, APPEND, NULL, NULL},
    {"none, kv8 append on Turing, rotated", "t4", SPLIT, "", "", 1, APPEND ",rotary=halves,rotary_dim=32", NULL, NULL},
    {"none, kv8 append of bf16 in pages", "a100", SPLIT, "", "", 1,
     "kv=int8,B=2,Sq=2,Sk=333,D=128,paged=1,page=16,append=1,seqused=1,dtype=bf16", NULL, NULL},
    {"none, kv8 append of fp8", "a100", FP8, "", "", 1, APPEND_FP8 ",D=80", NULL, NULL},
    {"none, kv8 append of fp8 to packed sequences", "a100", FP8_ROWS, "", "", 1,
     "kv=fp8,B=3,Sq=70,Sk=300,varlen=1,append=1,rotary=interleaved,rotary_dim=32,causal=1", NULL, NULL},
    {"none, kv8 scales in fp16, three stages", "a100", SPLIT_STAGES, "", "", 1, LONG_DECODE, NULL, NULL},
    {"none, kv8 scales in fp16 on Turing", "t4", SPLIT, "", "", 1, DECODE ",kv_scales=fp16", NULL, NULL},
    {"none, kv8 scales in fp16, two stages", "a100", WHOLE_STAGES, "", "", 1, PREFILL ",kv_scales=fp16,causal=1", NULL,
     NULL},
    {"none, kv8 scales in fp16, one stage", "a100", WHOLE_ROWS, "", "", 1, PREFILL ",kv_scales=fp16", NULL, NULL},
    {"none, kv8 append with scales in fp16, in pages", "a100", SPLIT_STAGES, "", "", 1,
     "kv=int8,B=2,Sq=2,Sk=333,D=128,paged=1,page=16,append=1,seqused=1,kv_scales=fp16", NULL, NULL},
    {"none, kv8 append of fp8 with scales in fp16", "l4", FP8, "", "", 1, APPEND_FP8 ",kv_scales=fp16,dtype=bf16", NULL,
     NULL},
    {"kv8 append: the largest value of half of a row", "a100", SPLIT,
     "int apart = 16; apart > 0; apart /= 2)\n        most", "int apart = 2; apart > 0; apart /= 2)\n        most", 1,
     APPEND, "", NULL},
    {"kv8 append: the scale of K for V", "a100", SPLIT, "is_key ? p.features.k_scale : p.features.v_scale",
     "p.features.k_scale", 1, APPEND, "", NULL},
    {"kv8 append: scales that are not written", "a100", SPLIT, "        rounding.put(scale);", "        ;", 1, APPEND,
     "x the bound", NULL},
    {"kv8 append: rows that are not rotated", "t4", SPLIT,
     "kRotary && is_key ? rotated_chunk(p, row.from, lane, position)",
     "false ? rotated_chunk(p, row.from, lane, position)", 1, APPEND ",rotary=halves,rotary_dim=32", "x the bound",
     NULL},
    {"kv8 append: columns of a row in the order of the rest", "a100", SPLIT, "reinterpret_cast<uint2 *>(row.to) + lane",
     "reinterpret_cast<uint2 *>(row.to) + (lane ^ 1)", 1, APPEND, "x the bound", NULL},
    {"kv8 append: integers of another scale", "a100", SPLIT, "RowRounding::kMost / x", "126.0f / x", 1, APPEND,
     "x the bound", NULL},
    {"kv8 append: e4m3 numbers cut", "a100", FP8, "(bits + 0x7ffffu + (bits >> 20 & 1u))", "bits", 1, APPEND_FP8,
     "x the bound", NULL},
    {"kv8: scales in fp16 with the distance of fp32", "a100", SPLIT, "kHalfScales ? 2 : 4", "4", 1,
     DECODE ",kv_scales=fp16", "", NULL},
    {"kv8: scales in fp16 of the tile after", "a100", SPLIT_STAGES, "to, tile - kScalesAhead * kTeams", "to, tile", 1,
     LONG_DECODE, "", NULL},
    {"kv8: scales in fp16 of the first tile are lost", "a100", SPLIT_STAGES,
     "store_scales(fills, to, tile - (ahead - 1) * kTeams);", ";", 1, DECODE ",kv_scales=fp16", "", NULL},
};

const bug_list kv8_bugs = {bugs, sizeof bugs / sizeof *bugs};
