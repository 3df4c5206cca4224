/*
 * Instructions compared with a second implementation of the PTX ISA's definitions: lane by lane in plain C, and
 * matrices element by element by the ISA's index formulas.
 */
#include <math.h>
#include <stdlib.h>
#include "tests/check.h"
#include "tests/sim/bench_device.h"

/* ---- lane by lane ---- */

typedef struct vector {
    const char *body; /* computes %r10 from %r1 ... %r4 */
    uint32_t a, b, c, expected;
} vector;

#define INF     0x7f800000u
#define NAN_F   0x7fffffffu
#define TINY    0x00000001u /* the smallest subnormal */
#define FLOAT_2 "mov.b32 %f1, %r1; mov.b32 %f2, %r2; mov.b32 %f3, %r3; "
#define TO_R10  " mov.b32 %r10, %f10;"
#define WIDE    "mov.b64 %rd10, {%r1, %r2}; mov.b64 %rd11, {%r3, %r3}; "
#define HIGH    " mov.b64 {%r20, %r10}, %rd12;"
#define SELECT  " selp.b32 %r10, 1, 0, %p1;"

static const vector vectors_of_all[] = {
    {"add.s32 %r10, %r1, %r2;", 0x7fffffff, 1, 0, 0x80000000},
    {"sub.s32 %r10, %r1, %r2;", 0, 1, 0, 0xffffffff},
    {"mul.lo.s32 %r10, %r1, %r2;", 0x10001, 0x10001, 0, 0x20001},
    {"mul.hi.s32 %r10, %r1, %r2;", 0xffffffff, 2, 0, 0xffffffff},
    {"mul.hi.u32 %r10, %r1, %r2;", 0xffffffff, 2, 0, 1},
    {"mad.lo.s32 %r10, %r1, %r2, %r3;", 7, 6, 0xffffffff, 41},
    {"div.s32 %r10, %r1, %r2;", 0xfffffff9, 2, 0, 0xfffffffd},
    {"rem.s32 %r10, %r1, %r2;", 0xfffffff9, 2, 0, 0xffffffff},
    {"div.u32 %r10, %r1, %r2;", 0xfffffff9, 2, 0, 0x7ffffffc},
    {"min.s32 %r10, %r1, %r2;", 0xffffffff, 1, 0, 0xffffffff},
    {"max.u32 %r10, %r1, %r2;", 0xffffffff, 1, 0, 0xffffffff},
    {"shl.b32 %r10, %r1, %r2;", 3, 31, 0, 0x80000000},
    {"shl.b32 %r10, %r1, %r2;", 3, 32, 0, 0},
    {"shr.s32 %r10, %r1, %r2;", 0x80000000, 40, 0, 0xffffffff},
    {"shr.s32 %r10, %r1, %r2;", 0x80000001, 0, 0, 0x80000001},
    {"shr.u32 %r10, %r1, %r2;", 0x80000000, 31, 0, 1},
    {"bfi.b32 %r10, %r1, %r2, 3, 29;", 0xffffffff, 5, 0, 0xfffffffd},
    {"bfi.b32 %r10, %r1, %r2, 4, 8;", 0x1ab, 0xffffffff, 0, 0xfffffabf},
    {"bfe.u32 %r10, %r1, 4, 8;", 0xabcd, 0, 0, 0xbc},
    {"bfe.s32 %r10, %r1, 4, 8;", 0xabcd, 0, 0, 0xffffffbc},
    {"prmt.b32 %r10, %r1, %r2, 0x5410;", 0x33221100, 0x77665544, 0, 0x55441100},
    {"prmt.b32 %r10, %r1, %r2, 0x000c;", 0x33221100, 0x800000ff, 0, 0x000000ff},
    {"lop3.b32 %r10, %r1, %r2, %r3, 0xe8;", 0xf0f0, 0xff00, 0xcccc, 0xfcc0},
    {"shf.l.wrap.b32 %r10, %r1, %r2, 8;", 0xab000000, 0x12345678, 0, 0x345678ab},
    {"popc.b32 %r10, %r1;", 0xf00f0001, 0, 0, 9},
    {"clz.b32 %r10, %r1;", 0x00010000, 0, 0, 15},
    {WIDE "add.s64 %rd12, %rd10, %rd11;" HIGH, 0xffffffff, 5, 1, 7},
    {WIDE "mul.lo.s64 %rd12, %rd10, %rd11;" HIGH, 0, 3, 2, 6},
    {"mul.wide.s32 %rd12, %r1, %r2;" HIGH, 0xffffffff, 3, 0, 0xffffffff},
    {"mul.wide.u32 %rd12, %r1, %r2;" HIGH, 0xffffffff, 3, 0, 2},
    {"mul.wide.u16 %r10, %r1, %r2;", 0x1ffff, 0x2ffff, 0, 0xfffe0001},
    {"div.u16 %r10, %r1, %r2;", 0x1ffff, 0x20010, 0, 0xfff},
    {"rem.u16 %r10, %r1, %r2;", 0x1ffff, 0x20010, 0, 0xf},
    {"mul.wide.s16 %r10, %r1, %r2;", 0x1ffff, 0x20003, 0, 0xfffffffd},
    {WIDE "shr.s64 %rd12, %rd10, 36;" HIGH, 0, 0x80000000, 0, 0xffffffff},
    {WIDE "shl.b64 %rd12, %rd10, 4;" HIGH, 0xf0000000, 1, 0, 0x1f},
    {"cvt.s64.s32 %rd12, %r1;" HIGH, 0x80000000, 0, 0, 0xffffffff},
    {WIDE "cvt.s64.s32 %rd12, %rd10;" HIGH, 0x80000000, 5, 0, 0xffffffff},
    {WIDE "cvt.u64.u32 %rd12, %rd10;" HIGH, 0x80000000, 5, 0, 0},
    {"cvt.u64.u32 %rd12, %r1;" HIGH, 0x80000000, 0, 0, 0},
    {WIDE "cvt.u32.u64 %r10, %rd10;", 9, 8, 0, 9},
    {FLOAT_2 "add.f32 %f10, %f1, %f2;" TO_R10, INF, 0xff800000, 0, NAN_F},
    {FLOAT_2 "add.f32 %f10, %f1, %f2;" TO_R10, 0x3f800000, 0x33800000, 0, 0x3f800000},
    {FLOAT_2 "add.ftz.f32 %f10, %f1, %f2;" TO_R10, TINY, TINY, 0, 0},
    {FLOAT_2 "mul.f32 %f10, %f1, %f2;" TO_R10, 0x00800000, 0x3f000000, 0, 0x00400000},
    {FLOAT_2 "mul.ftz.f32 %f10, %f1, %f2;" TO_R10, 0x80800000, 0x3f000000, 0, 0x80000000},
    /* (1 + 2^-12)^2 - 1 - 2^-11 is 2^-24 only if the product is not rounded. */
    {FLOAT_2 "fma.rn.f32 %f10, %f1, %f2, %f3;" TO_R10, 0x3f800800, 0x3f800800, 0xbf801000, 0x33800000},
    {FLOAT_2 "max.f32 %f10, %f1, %f2;" TO_R10, 0x7fc00000, 0xbf800000, 0, 0xbf800000},
    {FLOAT_2 "max.f32 %f10, %f1, %f2;" TO_R10, 0x80000000, 0, 0, 0},
    {FLOAT_2 "min.f32 %f10, %f1, %f2;" TO_R10, 0, 0x80000000, 0, 0x80000000},
    {FLOAT_2 "max.f32 %f10, %f1, %f2;" TO_R10, 0x7fc00001, 0xffc00000, 0, NAN_F},
    {FLOAT_2 "rcp.rn.f32 %f10, %f1;" TO_R10, 0x40400000, 0, 0, 0x3eaaaaab},
    {FLOAT_2 "rcp.rn.f32 %f10, %f1;" TO_R10, 0x80000000, 0, 0, 0xff800000},
    {FLOAT_2 "neg.f32 %f10, %f1;" TO_R10, 0, 0, 0, 0x80000000},
    {FLOAT_2 "ex2.approx.ftz.f32 %f10, %f1;" TO_R10, 0xff800000, 0, 0, 0},
    {FLOAT_2 "ex2.approx.ftz.f32 %f10, %f1;" TO_R10, INF, 0, 0, INF},
    {FLOAT_2 "ex2.approx.ftz.f32 %f10, %f1;" TO_R10, 0xc1200000, 0, 0, 0x3a800000},
    {FLOAT_2 "ex2.approx.ftz.f32 %f10, %f1;" TO_R10, 0xc3000000, 0, 0, 0}, /* 2^-128 */
    {FLOAT_2 "ex2.approx.f32 %f10, %f1;" TO_R10, 0xc3000000, 0, 0, 0x00200000},
    {FLOAT_2 "ex2.approx.ftz.f32 %f10, %f1;" TO_R10, 0x7fc00000, 0, 0, NAN_F},
    {FLOAT_2 "tanh.approx.f32 %f10, %f1;" TO_R10, 0x3f800000, 0, 0, 0x3f430000}, /* 0.76159 */
    {FLOAT_2 "tanh.approx.f32 %f10, %f1;" TO_R10, 0xff800000, 0, 0, 0xbf800000},
    {FLOAT_2 "tanh.approx.f32 %f10, %f1;" TO_R10, 0x80000000, 0, 0, 0x80000000},
    {FLOAT_2 "tanh.approx.f32 %f10, %f1;" TO_R10, 0x7fffffff, 0, 0, NAN_F},
    {FLOAT_2 "setp.gtu.f32 %p1, %f1, %f2;" SELECT, 0x7fc00000, 0, 0, 1},
    {FLOAT_2 "setp.gt.f32 %p1, %f1, %f2;" SELECT, 0x7fc00000, 0, 0, 0},
    {FLOAT_2 "setp.ne.f32 %p1, %f1, %f2;" SELECT, 0x7fc00000, 0x7fc00000, 0, 0},
    {FLOAT_2 "setp.nan.f32 %p1, %f1, %f2;" SELECT, 0x7fc00000, 0, 0, 1},
    {FLOAT_2 "setp.nan.f32 %p1, %f1, %f2;" SELECT, 0x7f800000, 0x7f800000, 0, 0},
    {"setp.lt.s32 %p1, %r1, %r2;" SELECT, 0xffffffff, 0, 0, 1},
    {"setp.lo.u32 %p1, %r1, %r2;" SELECT, 0xffffffff, 0, 0, 0},
    {"setp.eq.s32 %p2, %r1, 5; setp.gt.and.s32 %p1, %r2, 0, %p2;" SELECT, 5, 1, 0, 1},
    {"setp.eq.s32 %p2, %r1, 5; setp.gt.and.s32 %p1, %r2, 0, !%p2;" SELECT, 5, 1, 0, 0},
    {"setp.eq.s32 %p3|%p1, %r1, %r2;" SELECT, 4, 4, 0, 0},
    {"setp.eq.s32 %p1, %r1, 1; not.pred %p1, %p1;" SELECT, 1, 0, 0, 0},
    {"setp.eq.s32 %p1, %r1, 1; mov.pred %p1, 0;" SELECT, 1, 0, 0, 0},
    {"setp.eq.s32 %p1, %r1, 1; @!%p1 mov.u32 %r10, 77;", 2, 0, 0, 77},
    {FLOAT_2 "cvt.rn.f16x2.f32 %r10, %f1, %f2;", 0x3f800000, 0xc0000000, 0, 0x3c00c000},
    {FLOAT_2 "cvt.rn.f16x2.f32 %r10, %f1, %f2;", 0x477ff000, 0x477fefff, 0, 0x7c007bff},
    {FLOAT_2 "cvt.rn.f16x2.f32 %r10, %f1, %f2;", 0x33000000, 0x33000001, 0, 0x00000001},
    {FLOAT_2 "cvt.rn.f16x2.f32 %r10, %f1, %f2;", 0x3f801000, 0x3f803000, 0, 0x3c003c02},
    {FLOAT_2 "cvt.rn.f16x2.f32 %r10, %f1, %f2;", 0xffc00000, 0x387fffff, 0, 0x7fff0400},
    {FLOAT_2 "cvt.rn.bf16x2.f32 %r10, %f1, %f2;", 0x3f808000, 0x3f818000, 0, 0x3f803f82},
    {FLOAT_2 "cvt.rn.bf16x2.f32 %r10, %f1, %f2;", 0x7f7fffff, 0x7f800001, 0, 0x7f807fff},
    {FLOAT_2 "cvt.rn.f16.f32 %h1, %f1; cvt.rn.f16.f32 %h2, %f2; mov.b32 %r10, {%h1, %h2};", 0x3f800000, 0xc0000000, 0,
     0xc0003c00},
    /* 1024 + 43 and 1024 + 44, minus 1023 + 44; 1 + 0.25 and -0; NaN and infinity */
    {"add.sat.f16x2 %r10, %r1, %r2;", 0x642b642c, 0xe42be42b, 0, 0x00003c00},
    {"add.sat.f16x2 %r10, %r1, %r2;", 0x3c008000, 0x34008000, 0, 0x3c000000},
    {"add.sat.f16x2 %r10, %r1, %r2;", 0x7e007c00, 0x3c003c00, 0, 0x00003c00},
    {"sub.f16x2 %r10, %r1, %r2;", 0x640064ff, 0x64806480, 0, 0xd80057f0},
    {"sub.f16x2 %r10, %r1, %r2;", 0x7c003c00, 0x7c000c00, 0, 0x7fff3c00},
    {"mul.f16x2 %r10, %r1, %r2;", 0x3c010001, 0x3c013800, 0, 0x3c020000},
    {"mul.f16x2 %r10, %r1, %r2;", 0x7c007bff, 0x00004000, 0, 0x7fff7c00},
    {"fma.rn.f16x2 %r10, %r1, %r2, %r3;", 0x3c0037c0, 0x3be03be0, 0x48004800, 0x487e483d},
    {"fma.rn.bf16x2 %r10, %r1, %r2, %r3;", 0x3f810080, 0x3c003c00, 0x80008000, 0x3c010001},
    {"fma.rn.bf16x2 %r10, %r1, %r2, %r3;", 0x40003f83, 0x40403f83, 0x3f80bf80, 0x40e03d42},
    {"mov.b32 {%h1, %h2}, %r1; cvt.f32.f16 %f10, %h2;" TO_R10, 0x00010000, 0, 0, 0x33800000},
    {"cvt.rn.f32.s32 %f10, %r1;" TO_R10, 0xffffffff, 0, 0, 0xbf800000},
    {FLOAT_2 "cvt.sat.f32.f32 %f10, %f1;" TO_R10, 0x40000000, 0, 0, 0x3f800000},
    {FLOAT_2 "cvt.sat.f32.f32 %f10, %f1;" TO_R10, 0x3f000001, 0, 0, 0x3f000001},
    {FLOAT_2 "cvt.sat.f32.f32 %f10, %f1;" TO_R10, 0xbf800000, 0, 0, 0},
    {FLOAT_2 "cvt.sat.f32.f32 %f10, %f1;" TO_R10, 0x7fc00000, 0, 0, 0},
    /* 1 - 2^-24 * 2^-24 is just below 1; 3 - 2^-24 rounds down, not to nearest */
    {FLOAT_2 "mov.f32 %f3, 0f3F800000; fma.rm.f32 %f10, %f1, %f2, %f3;" TO_R10, 0x33800000, 0xb3800000, 0, 0x3f7fffff},
    {FLOAT_2 "mov.f32 %f3, 0f4B400000; fma.rp.f32 %f10, %f1, %f2, %f3;" TO_R10, 0x33800000, 0x3f800000, 0, 0x4b400001},
    {FLOAT_2 "mov.f32 %f3, 0f4B400000; fma.rp.f32 %f10, %f1, %f2, %f3;" TO_R10, 0xbf000000, 0x3f800000, 0, 0x4b400000},
    {FLOAT_2 "mov.f32 %f3, 0f4B400000; fma.rp.f32 %f10, %f1, %f2, %f3;" TO_R10, 0xff800000, 0x3f800000, 0, 0xff800000},
    {FLOAT_2 "mov.f32 %f3, 0f40400000; fma.rm.f32 %f10, %f1, %f2, %f3;" TO_R10, 0xb3800000, 0x3f800000, 0, 0x403fffff},
    {FLOAT_2 "mov.f32 %f3, 0f40400000; fma.rm.f32 %f10, %f1, %f2, %f3;" TO_R10, 0x33800000, 0x3f800000, 0, 0x40400000},
    {FLOAT_2 "cvt.rzi.s32.f32 %r10, %f1;", 0xc0200000, 0, 0, 0xfffffffe},
    {FLOAT_2 "cvt.rzi.s32.f32 %r10, %f1;", 0x50000000, 0, 0, 0x7fffffff},
    {FLOAT_2 "cvt.rzi.s32.f32 %r10, %f1;", 0x7fc00000, 0, 0, 0},
};

#define E4M3_PAIR FLOAT_2 "cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2; mov.b16 %h2, 0; mov.b32 %r10, {%h1, %h2};"

static const vector vectors_of_sm90[] = {
    {E4M3_PAIR, 0x3f800000, 0xc0000000, 0, 0x38c0},
    {E4M3_PAIR, 0x43e80000, 0x43e7ffff, 0, 0x7e7e}, /* halfway to what would be 480; less */
    {E4M3_PAIR, 0x7f800000, 0xff7fffff, 0, 0x7efe},
    {E4M3_PAIR, 0xffc00000, 0x80000000, 0, 0x7f80},
    {E4M3_PAIR, 0x3f880000, 0x3f980000, 0, 0x383a}, /* ties to even */
    {E4M3_PAIR, 0x3a800000, 0x3a800001, 0, 0x0001}, /* half of the smallest, and more */
    {E4M3_PAIR, 0x3c7fffff, 0x3c800000, 0, 0x0808}, /* up to the smallest normal number */
    {E4M3_PAIR, 0x3b400000, 0xbba00000, 0, 0x0282},
    {E4M3_PAIR, 0x3c000000, 0x3c500000, 0, 0x0406},
};

static void test_vectors(const vector *vectors, size_t count, int target)
{
    for (const vector *v = vectors; v < vectors + count; v++) {
        uint32_t in[BENCH_IN_WORDS], out[4 * SIM_LANES];
        for (int l = 0; l < SIM_LANES; l++) {
            in[l] = v->a;
            in[l + 32] = v->b;
            in[l + 64] = in[l + 96] = v->c;
        }
        const CUresult result = bench_launch(&(bench_run){.body = v->body, .target = target, .in = in, .out = out});
        if (result != CUDA_SUCCESS || out[0] != v->expected || out[31] != v->expected)
            fprintf(stderr, "%s(0x%x, 0x%x, 0x%x): 0x%x, expected 0x%x; %s\n", v->body, v->a, v->b, v->c, out[0],
                    v->expected, fa2_sim_message());
        CHECK(result == CUDA_SUCCESS && out[0] == v->expected && out[31] == v->expected);
    }
}

/* 2^x is within one unit in the last place of the double value. */
static void test_ex2(void)
{
    uint32_t in[BENCH_IN_WORDS], out[4 * SIM_LANES];
    double worst = 0;
    for (int round = 0; round < 64; round++) {
        for (int i = 0; i < BENCH_IN_WORDS; i++) {
            const float x = -126.0f + (float)(round * BENCH_IN_WORDS + i) * 252.0f / 8192.0f;
            memcpy(&in[i], &x, sizeof x);
        }
        CHECK_EQ(
            bench_launch(&(bench_run){.body = FLOAT_2 "ex2.approx.ftz.f32 %f10, %f1;" TO_R10, .in = in, .out = out}),
            CUDA_SUCCESS);
        for (int l = 0; l < SIM_LANES; l++) {
            float x, y;
            memcpy(&x, &in[l], sizeof x);
            memcpy(&y, &out[l], sizeof y);
            const double exact = exp2((double)x);
            const double unit = ldexp(1.0, ilogb(exact) - 23);
            worst = fmax(worst, fabs((double)y - exact) / unit);
        }
    }
    printf("ex2.approx: %.3f units in the last place\n", worst);
    CHECK(worst <= 1.0);
}

/* ---- the warp ---- */

static void test_shfl(void)
{
    static const char *const modes[] = {
        "shfl.sync.bfly.b32 %r10|%p1, %r1, 2, 31, -1;", "shfl.sync.up.b32 %r10|%p1, %r1, 3, 0, -1;",
        "shfl.sync.down.b32 %r10|%p1, %r1, 3, 31, -1;", "shfl.sync.idx.b32 %r10|%p1, %r1, 5, 0x181f, -1;"};
    uint32_t in[BENCH_IN_WORDS], out[4 * SIM_LANES];
    char body[256];
    bench_bits(in, 3);
    for (int mode = 0; mode < 4; mode++) {
        snprintf(body, sizeof body, "%s selp.b32 %%r11, 1, 0, %%p1;", modes[mode]);
        CHECK_EQ(bench_launch(&(bench_run){.body = body, .in = in, .out = out}), CUDA_SUCCESS);
        for (int l = 0; l < SIM_LANES; l++) {
            /* idx with clamp 0x181f: segments of 8 lanes */
            const int from[] = {l ^ 2, l - 3, l + 3, (l & 24) | 5};
            const bool valid[] = {true, l >= 3, l + 3 <= 31, true};
            CHECK_EQ(out[l], in[valid[mode] ? from[mode] : l]);
            CHECK_EQ(out[SIM_LANES + l], valid[mode]);
        }
    }
}

static void test_vote(void)
{
    uint32_t out[4 * SIM_LANES];
    CHECK_EQ(bench_launch(&(bench_run){.body = "setp.gt.u32 %p1, %r0, 29;"
                                               "vote.sync.any.pred %p2, %p1, -1;"
                                               "vote.sync.all.pred %p3, %p1, -1;"
                                               "vote.sync.ballot.b32 %r10, !%p1, -1;"
                                               "selp.b32 %r11, 1, 0, %p2; selp.b32 %r12, 1, 0, %p3;",
                                       .out = out}),
             CUDA_SUCCESS);
    CHECK_EQ(out[7], 0x3fffffff);
    CHECK_EQ(out[SIM_LANES + 7], 1);
    CHECK_EQ(out[2 * SIM_LANES + 7], 0);
}

/* Nested branches, and a loop whose count depends on the lane. All lanes meet for the vote. */
static void test_divergence(void)
{
    static const char body[] = "mov.u32 %r10, 0; mov.u32 %r5, %r0;"
                               "LOOP: setp.eq.s32 %p1, %r5, 0; @%p1 bra OUT;"
                               "sub.s32 %r5, %r5, 1; and.b32 %r6, %r5, 1; setp.eq.s32 %p2, %r6, 0; @%p2 bra EVEN;"
                               "add.s32 %r10, %r10, 100; bra NEXT;"
                               "EVEN: add.s32 %r10, %r10, 1;"
                               "NEXT: bra LOOP;"
                               "OUT: activemask.b32 %r11;";
    uint32_t out[4 * SIM_LANES];
    CHECK_EQ(bench_launch(&(bench_run){.body = body, .out = out}), CUDA_SUCCESS);
    for (int l = 0; l < SIM_LANES; l++) {
        CHECK_EQ(out[l], l / 2 * 100 + (l + 1) / 2);
        CHECK_EQ(out[SIM_LANES + l], 0xffffffff);
    }
}

/* ---- matrices ---- */

/* Shared memory holds in[]: 16-bit element e is half e % 2 of word e / 2. Matrix m begins at word 32 * m, its row r at
 * 4 * r. */
static uint32_t element(const uint32_t *in, int matrix, int row, int column)
{
    const int e = matrix * 64 + row * 8 + column;
    return in[e / 2] >> 16 * (e % 2) & 0xffff;
}

static void test_ldmatrix(bool transposed)
{
    static const char fill[] = "mov.u32 %r20, smem; shl.b32 %r21, %r0, 2; add.s32 %r21, %r20, %r21;"
                               "st.shared.b32 [%r21], %r1; st.shared.b32 [%r21+128], %r2;"
                               "st.shared.b32 [%r21+256], %r3; st.shared.b32 [%r21+384], %r4; bar.warp.sync -1;"
                               "shl.b32 %r22, %r0, 4; add.s32 %r22, %r20, %r22;";
    uint32_t in[BENCH_IN_WORDS], out[4 * SIM_LANES];
    char body[1024];
    bench_bits(in, 4);
    snprintf(body, sizeof body, "%s ldmatrix.sync.aligned.m8n8.x4%s.shared.b16 {%%r10, %%r11, %%r12, %%r13}, [%%r22];",
             fill, transposed ? ".trans" : "");
    CHECK_EQ(bench_launch(&(bench_run){.body = body, .shared_bytes = 512, .in = in, .out = out}), CUDA_SUCCESS);
    for (int m = 0; m < 4; m++)
        for (int l = 0; l < SIM_LANES; l++) {
            const int i = l / 4, j = 2 * (l % 4);
            const uint32_t low = transposed ? element(in, m, j, i) : element(in, m, i, j);
            const uint32_t high = transposed ? element(in, m, j + 1, i) : element(in, m, i, j + 1);
            CHECK_EQ(out[m * SIM_LANES + l], high << 16 | low);
        }
}

/* Row r of matrix m goes to the 16 bytes at 16 * (8 * m + r). in[] holds the registers. */
static void test_stmatrix(bool transposed)
{
    uint32_t in[BENCH_IN_WORDS], out[4 * SIM_LANES];
    char body[512];
    bench_bits(in, 6);
    snprintf(body, sizeof body,
             "mov.u32 %%r20, smem; shl.b32 %%r22, %%r0, 4; add.s32 %%r22, %%r20, %%r22;"
             "stmatrix.sync.aligned.m8n8.x4%s.shared.b16 [%%r22], {%%r1, %%r2, %%r3, %%r4};"
             "bar.warp.sync -1; ld.shared.v4.b32 {%%r10, %%r11, %%r12, %%r13}, [%%r22];",
             transposed ? ".trans" : "");
    CHECK_EQ(bench_launch(&(bench_run){.body = body, .target = 90, .shared_bytes = 512, .in = in, .out = out}),
             CUDA_SUCCESS);
    for (int l = 0; l < SIM_LANES; l++)
        for (int c = 0; c < 8; c++) { /* row l % 8, column c of matrix l / 8 */
            const int i = transposed ? c : l % 8, j = transposed ? l % 8 : c;
            const uint32_t expected = in[l / 8 * 32 + 4 * i + j / 2] >> 16 * (j % 2) & 0xffff;
            CHECK_EQ(out[c / 2 * SIM_LANES + l] >> 16 * (c % 2) & 0xffff, expected);
        }
}

/* a[0 ... k / 4 - 1] are %r1 and up, b is %r3 and %r4 rotated, c the floats of %r2. By the ISA, a lane's group is lane
 * / 4, and its place in the group is lane % 4. */
static void test_mma(int k, bool bf16)
{
    uint32_t in[BENCH_IN_WORDS], out[4 * SIM_LANES];
    char body[1024];
    const char *type = bf16 ? "bf16" : "f16";
    bench_halves(in, bf16, (uint64_t)k + bf16);
    snprintf(body, sizeof body,
             "cvt.rn.f32.u32 %%f1, %%r0; mov.f32 %%f2, 0f3F800000; mov.f32 %%f3, 0fBF000000; "
             "mov.f32 %%f4, 0f00000000; mma.sync.aligned.m16n8k%d.row.col.f32.%s.%s.f32 "
             "{%%f10, %%f11, %%f12, %%f13}, %s, %s, {%%f1, %%f2, %%f3, %%f4}; mov.b32 %%r10, %%f10; "
             "mov.b32 %%r11, %%f11; mov.b32 %%r12, %%f12; mov.b32 %%r13, %%f13;",
             k, type, type, k == 16 ? "{%r1, %r2, %r3, %r4}" : "{%r1, %r2}", k == 16 ? "{%r4, %r2}" : "{%r4}");
    CHECK_EQ(bench_launch(&(bench_run){.body = body, .in = in, .out = out}), CUDA_SUCCESS);
    for (int i = 0; i < 4 * SIM_LANES; i++) {
        const int lane = i % 32, e = i / 32;
        const int row = lane / 4 + (e >= 2 ? 8 : 0), column = 2 * (lane % 4) + e % 2;
        const double c[] = {(double)lane, 1.0, -0.5, 0.0};
        float sum = (float)c[e];
        for (int at = 0; at < k; at++) {
            const int a_lane = row % 8 * 4 + at % 8 / 2, a_reg = row / 8 + at / 8 * 2;
            const int b_lane = column * 4 + at % 8 / 2;
            const uint32_t a = in[32 * a_reg + a_lane] >> 16 * (at % 2) & 0xffff;
            const uint32_t b = in[(at < 8 ? 96 : 32) + b_lane] >> 16 * (at % 2) & 0xffff;
            sum = (float)((double)sum + bench_half_value(a, bf16) * bench_half_value(b, bf16));
        }
        uint32_t bits;
        memcpy(&bits, &sum, sizeof bits);
        CHECK_EQ(out[i], bits);
    }
}

/* TF32: a is %r1 ... %r4, b is %r4 and %r2, c is 0. Registers have a lane's number of a row, or a column. */
static void test_mma_tf32(void)
{
    uint32_t in[BENCH_IN_WORDS], out[4 * SIM_LANES];
    bench_floats(in, 80);
    CHECK_EQ(bench_launch(&(bench_run){.body = "mov.f32 %f4, 0f00000000; "
                                               "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                                               "{%f10, %f11, %f12, %f13}, {%r1, %r2, %r3, %r4}, {%r4, %r2}, "
                                               "{%f4, %f4, %f4, %f4}; mov.b32 %r10, %f10; mov.b32 %r11, %f11; "
                                               "mov.b32 %r12, %f12; mov.b32 %r13, %f13;",
                                       .in = in,
                                       .out = out}),
             CUDA_SUCCESS);
    for (int i = 0; i < 4 * SIM_LANES; i++) {
        const int lane = i % 32, e = i / 32, row = lane / 4 + (e >= 2 ? 8 : 0), column = 2 * (lane % 4) + e % 2;
        double exact = 0;
        for (int k = 0; k < 8; k++) {
            const uint32_t a = in[32 * (row / 8 + k / 4 * 2) + row % 8 * 4 + k % 4] & 0xffffe000u;
            const uint32_t b = in[(k < 4 ? 96 : 32) + column * 4 + k % 4] & 0xffffe000u;
            float factors[2];
            memcpy(&factors[0], &a, sizeof a);
            memcpy(&factors[1], &b, sizeof b);
            exact += (double)factors[0] * (double)factors[1];
        }
        float sum = (float)exact;
        if (fabs((double)sum) > fabs(exact))
            sum = nextafterf(sum, 0); /* cut off */
        uint32_t bits;
        memcpy(&bits, &sum, sizeof bits);
        CHECK_EQ(out[i], bits);
    }
}

/* Returns the nearest fp16 number, for numbers that are not too large. */
static double nearest_half(double x)
{
    int exponent;
    frexp(x, &exponent);
    const double unit = ldexp(1, (exponent > -13 ? exponent : -13) - 11);
    return nearbyint(x / unit) * unit;
}

/* fp16 sums. a and b as above; c is %r3 and %r1, each with two neighbours of a row. The sum is rounded once. */
static void test_mma_fp16(int k)
{
    uint32_t in[BENCH_IN_WORDS], out[4 * SIM_LANES];
    char body[512];
    bench_halves(in, false, 40 + (uint64_t)k);
    snprintf(body, sizeof body,
             "mma.sync.aligned.m16n8k%d.row.col.f16.f16.f16.f16 {%%r10, %%r11}, %s, %s, {%%r3, %%r1};", k,
             k == 16 ? "{%r1, %r2, %r3, %r4}" : "{%r1, %r2}", k == 16 ? "{%r4, %r2}" : "{%r4}");
    CHECK_EQ(bench_launch(&(bench_run){.body = body, .in = in, .out = out}), CUDA_SUCCESS);
    for (int i = 0; i < 4 * SIM_LANES; i++) {
        const int lane = i / 2 % 32, reg = i / 2 / 32, row = lane / 4 + 8 * reg, column = 2 * (lane % 4) + i % 2;
        float sum = (float)bench_half_value(in[(reg == 0 ? 64 : 0) + lane] >> 16 * (i % 2) & 0xffff, false);
        for (int at = 0; at < k; at++) {
            const uint32_t a = in[32 * (row / 8 + at / 8 * 2) + row % 8 * 4 + at % 8 / 2] >> 16 * (at % 2) & 0xffff;
            const uint32_t b = in[(at < 8 ? 96 : 32) + column * 4 + at % 8 / 2] >> 16 * (at % 2) & 0xffff;
            sum = (float)((double)sum + bench_half_value(a, false) * bench_half_value(b, false));
        }
        CHECK(bench_half_value(out[32 * reg + lane] >> 16 * (i % 2) & 0xffff, false) == nearest_half((double)sum));
    }
}

/* A is %r1, its second half %r2, b is %r3, c is %r0, %r4, 7 and -1. By the ISA as above, each register is four bytes of
 * a row of A, or of a column of B. */
static void test_mma_bytes(int halves)
{
    static const char *const bodies[] = {
        "mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%r10, %r11}, {%r1}, {%r3}, {%r0, %r4};",
        "mov.u32 %r5, -1; mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 {%r10, %r11, %r12, "
        "%r13}, "
        "{%r1, %r2}, {%r3}, {%r0, %r4, 7, %r5};"};
    uint32_t in[BENCH_IN_WORDS], out[4 * SIM_LANES];
    bench_bits(in, 8 + (uint64_t)halves);
    in[5] = in[2 * SIM_LANES + 5] = UINT32_MAX; /* bytes have no sign */
    CHECK_EQ(bench_launch(&(bench_run){.body = bodies[halves - 1], .in = in, .out = out}), CUDA_SUCCESS);
    for (int i = 0; i < 2 * halves * SIM_LANES; i++) {
        const int lane = i % SIM_LANES, e = i / SIM_LANES, column = 2 * (lane % 4) + e % 2;
        const uint32_t c[] = {(uint32_t)lane, in[3 * SIM_LANES + lane], 7, UINT32_MAX};
        uint32_t sum = c[e];
        for (int k = 0; k < 16; k++) {
            const uint32_t a = in[e / 2 * SIM_LANES + lane / 4 * 4 + k / 4];
            const uint32_t b = in[2 * SIM_LANES + column * 4 + k / 4];
            sum += (a >> 8 * (k % 4) & 0xff) * (b >> 8 * (k % 4) & 0xff);
        }
        CHECK_EQ(out[i], sum);
    }
}

/* Signed bytes. m16n8k32: registers of A are rows 0 and 8 of the first 16 columns, then of the others; registers of B
 * are rows 0 and 16. A is %r1, %r2, %r3, %r4; B is %r4, %r2; c is %r0, 7, -1 and %r3. m8n8k16: A is %r1, B is %r4. */
static void test_mma_signed(bool long_k)
{
    static const char *const bodies[] = {
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r10, %r11}, {%r1}, {%r4}, {%r0, 7};",
        "mov.u32 %r5, -1; mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r10, %r11, %r12, %r13}, "
        "{%r1, %r2, %r3, %r4}, {%r4, %r2}, {%r0, 7, %r5, %r3};"};
    uint32_t in[BENCH_IN_WORDS], out[4 * SIM_LANES];
    bench_bits(in, 20);
    in[5] = in[3 * SIM_LANES + 5] = 0x80808080; /* -128 */
    CHECK_EQ(bench_launch(&(bench_run){.body = bodies[long_k], .in = in, .out = out, .target = long_k ? 80 : 75}),
             CUDA_SUCCESS);
    for (int i = 0; i < (long_k ? 4 : 2) * SIM_LANES; i++) {
        const int lane = i % SIM_LANES, e = i / SIM_LANES, column = 2 * (lane % 4) + e % 2;
        const uint32_t c[] = {(uint32_t)lane, 7, UINT32_MAX, in[2 * SIM_LANES + lane]};
        int64_t sum = (int32_t)c[e];
        for (int k = 0; k < (long_k ? 32 : 16); k++) {
            const uint32_t a = in[(e / 2 + k / 16 * 2) * SIM_LANES + lane / 4 * 4 + k % 16 / 4];
            const uint32_t b = in[(k < 16 ? 3 : 1) * SIM_LANES + column * 4 + k % 16 / 4];
            sum += (int8_t)(a >> 8 * (k % 4) & 0xff) * (int8_t)(b >> 8 * (k % 4) & 0xff);
        }
        CHECK_EQ(out[i], (uint32_t)sum);
    }
}

/* ---- copies, memory, invalid texts ---- */

static void test_cp_async(void)
{
    static const char body[] = "mov.u32 %r20, smem; shl.b32 %r21, %r0, 4; add.s32 %r21, %r20, %r21;"
                               "ld.param.u64 %rd5, [in]; mul.wide.u32 %rd6, %r0, 16; add.s64 %rd5, %rd5, %rd6;"
                               "setp.lt.u32 %p1, %r0, 30; selp.b32 %r22, 16, 0, %p1;"
                               "cp.async.cg.shared.global.L2::128B [%r21], [%rd5], 16, %r22;"
                               "cp.async.commit_group; cp.async.wait_group 0; bar.warp.sync -1;"
                               "ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r21];";
    uint32_t in[BENCH_IN_WORDS], out[4 * SIM_LANES];
    bench_bits(in, 5);
    CHECK_EQ(bench_launch(&(bench_run){.body = body, .shared_bytes = 512, .in = in, .out = out}), CUDA_SUCCESS);
    for (int i = 0; i < 4; i++)
        for (int l = 0; l < SIM_LANES; l++)
            CHECK_EQ(out[i * SIM_LANES + l], l < 30 ? in[4 * l + i] : 0);
}

static void test_constant_and_local(void)
{
    static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                              ".const .align 4 .b32 table[4] = {10, 20, 30, 40};\n"
                              ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n.local .align 8 .b8 place[16];\n"
                              ".reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n.reg .pred %p<2>;\n"
                              "mov.u32 %r1, %tid.x;\nst.local.u32 [place+4], %r1;\nmov.u64 %rd1, place;\n"
                              "cvta.local.u64 %rd2, %rd1;\nld.u32 %r2, [%rd2+4];\nld.const.u32 %r3, [table+8];\n"
                              "add.s32 %r4, %r2, 2;\nsub.s32 %r5, %r4, %r1;\nsetp.eq.s32 %p1, %r5, 2;\n"
                              "@%p1 bra GOOD;\ntrap;\nGOOD: setp.eq.s32 %p1, %r3, 30;\n@!%p1 trap;\nret;\n}\n";
    CHECK_EQ(bench_module(ptx, 2, 64, 0, 1, 1), CUDA_SUCCESS);
}

/* Words, pairs of words and bytes of local memory; generic addresses of local memory in even lanes, each with another
 * offset, and of shared memory in odd lanes. */
static void test_local(void)
{
    static const char body[] =
        ".local .align 16 .b8 place[64]; st.local.v4.b32 [place+16], {%r1, %r2, %r3, %r4};"
        "ld.local.u64 %rd10, [place+24]; mov.b64 {%r10, %r11}, %rd10; st.local.u8 [place+18], %r0;"
        "ld.local.u32 %r12, [place+16]; st.local.u64 [place+8], %rd10; ld.local.v2.u32 {%r20, %r21}, [place+8];"
        "xor.b32 %r11, %r11, %r20; mov.u64 %rd5, place; cvta.local.u64 %rd5, %rd5; mov.u64 %rd6, smem;"
        "cvta.shared.u64 %rd6, %rd6; and.b32 %r22, %r0, 1; setp.eq.u32 %p1, %r22, 1; selp.b64 %rd5, %rd6, %rd5, %p1;"
        "mul.wide.u32 %rd7, %r0, 2; and.b64 %rd8, %rd7, 60; add.s64 %rd5, %rd5, %rd8; st.u32 [%rd5], %r2;"
        "ld.u32 %r13, [%rd5];";
    uint32_t in[BENCH_IN_WORDS], out[4 * SIM_LANES];
    bench_bits(in, 33);
    CHECK_EQ(bench_launch(&(bench_run){.body = body, .shared_bytes = 512, .in = in, .out = out}), CUDA_SUCCESS);
    for (uint32_t l = 0; l < SIM_LANES; l++) {
        CHECK_EQ(out[l], in[2 * SIM_LANES + l]);
        CHECK_EQ(out[SIM_LANES + l], in[3 * SIM_LANES + l] ^ in[2 * SIM_LANES + l]);
        CHECK_EQ(out[2 * SIM_LANES + l], (in[l] & 0xff00ffffu) | l << 16);
        CHECK_EQ(out[3 * SIM_LANES + l], in[SIM_LANES + l]);
    }
}

static void test_unknown(void)
{
    static const char of_one_sm[] = ".version 8.0\n.target sm_90a\n.address_size 64\n"
                                    ".visible .entry k(.param .u64 in)\n{\nret;\n}\n";
    CHECK_EQ(bench_module(of_one_sm, 1, 32, 0, 1, 1), CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK_EQ(bench_launch(&(bench_run){.body = "sad.u32 %r10, %r1, %r2, %r3;"}), CUDA_ERROR_INVALID_PTX);
    CHECK_CONTAINS(fa2_sim_message(), "PTX line ");
    CHECK_CONTAINS(fa2_sim_message(), "sad.u32 %r10");
    CHECK_EQ(bench_launch(&(bench_run){.body = "add.s32 %r10, %r1, %rd2;"}), CUDA_ERROR_INVALID_PTX);
    CHECK_EQ(bench_launch(&(bench_run){.body = "add.s32 %r10, %r1;"}), CUDA_ERROR_INVALID_PTX);
    CHECK_EQ(bench_launch(&(bench_run){.body = "bra NOWHERE;"}), CUDA_ERROR_INVALID_PTX);
    CHECK_EQ(bench_launch(&(bench_run){.body = "add.s32 %r10, %r1, %x;"}), CUDA_ERROR_INVALID_PTX);
    /* Instructions that Turing lacks. */
    CHECK_EQ(bench_launch(&(bench_run){.body = "cp.async.commit_group;", .target = 75}), CUDA_ERROR_INVALID_PTX);
    CHECK_CONTAINS(fa2_sim_message(), "sm_80");
    CHECK_EQ(bench_launch(&(bench_run){.body = "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], "
                                               "{%r2};"}),
             CUDA_ERROR_INVALID_PTX);
    CHECK_CONTAINS(fa2_sim_message(), "sm_90");
    CHECK_EQ(bench_launch(&(bench_run){.body = "cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2;"}), CUDA_ERROR_INVALID_PTX);
    CHECK_CONTAINS(fa2_sim_message(), "sm_89");
    CHECK_EQ(bench_launch(&(bench_run){.body = "mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 "
                                               "{%r10, %r11, %r12, %r13}, {%r1, %r2}, {%r3}, "
                                               "{%r0, %r0, %r0, %r0};",
                                       .target = 75}),
             CUDA_ERROR_INVALID_PTX);
    CHECK_CONTAINS(fa2_sim_message(), "sm_80");
    bench_open("t4");
    CHECK_EQ(bench_launch(&(bench_run){.body = "mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 "
                                               "{%r10, %r11}, {%r1}, {%r3}, {%r0, %r0};",
                                       .target = 75}),
             CUDA_SUCCESS);
    CHECK_EQ(bench_launch(&(bench_run){.body = "", .target = 80}), CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK_EQ(bench_launch(&(bench_run){.body = "", .target = 75}), CUDA_SUCCESS);
}

int main(void)
{
    bench_open("a100");
    test_vectors(vectors_of_all, sizeof vectors_of_all / sizeof *vectors_of_all, 80);
    test_ex2();
    test_shfl();
    test_vote();
    test_divergence();
    test_ldmatrix(false);
    test_ldmatrix(true);
    test_mma(8, false);
    test_mma(16, false);
    test_mma(8, true);
    test_mma(16, true);
    test_mma_tf32();
    test_mma_fp16(8);
    test_mma_fp16(16);
    test_mma_bytes(1);
    test_mma_bytes(2);
    test_mma_signed(false);
    test_mma_signed(true);
    test_cp_async();
    test_constant_and_local();
    test_local();
    test_unknown();
    bench_open("h200");
    test_vectors(vectors_of_sm90, sizeof vectors_of_sm90 / sizeof *vectors_of_sm90, 90);
    test_stmatrix(false);
    test_stmatrix(true);
    return check_done();
}
