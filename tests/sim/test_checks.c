/*
 * The device's checks and limits in small kernels: each is violated once, and the same kernel without the violation
 * passes.
 */
#include <stdlib.h>
#include "tests/check.h"
#include "tests/sim/bench_device.h"

#define SMEM_OF_LANE "mov.u32 %r20, smem; shl.b32 %r21, %r0, 2; add.s32 %r21, %r20, %r21;"

#define TEAM "shr.u32 %r24, %r0, 6; add.s32 %r24, %r24, 1;"
/* Warps 0 and 1 meet, then warps 1 and 2. */
#define CHAIN                                                                                                          \
    "st.shared.b32 [%r21], %r0; setp.gt.u32 %p1, %r0, 63; @%p1 bra LATER; bar.sync 1, 64;"                             \
    "setp.lt.u32 %p2, %r0, 32; @%p2 bra DONE; LATER: "

/* Each lane writes 16 or 8 bytes of its own, and all are read; then warp 0 reads 4 bytes of thread 40. */
#define WRITE_4(at) "st.shared.v4.b32 [" at "], {%r0, %r0, %r0, %r0};"
#define WRITE_2(at) "st.shared.v2.b32 [" at "], {%r0, %r0};"
#define READ_LATE(bytes_log2, write, offset)                                                                           \
    "mov.u32 %r20, smem; shl.b32 %r21, %r0, " bytes_log2 "; add.s32 %r21, %r20, %r21;" write(                          \
        "%r21") "bar.sync 0; ld.shared.b32 %r10, [%r21]; bar.sync 0; setp.lt.u32 %p1, %r0, 32;"                        \
                "@%p1 ld.shared.b32 %r11, [%r20+" offset "];"

/* Each lane writes 16 bytes. Then warp 0 reads half of those of thread 0; p2: thread 32. */
#define HALF_READ                                                                                                      \
    "mov.u32 %r20, smem; shl.b32 %r21, %r0, 4; add.s32 %r21, %r20, %r21;" WRITE_4(                                     \
        "%r21") "bar.sync 0; setp.lt.u32 %p1, %r0, 32; setp.eq.u32 %p2, %r0, 32;"                                      \
                "@%p1 ld.shared.v2.b32 {%r10, %r11}, [%r20+8];"
/* rd9: the address of each lane's 4 or 16 bytes */
#define OUT(bytes) "ld.param.u64 %rd9, [out]; mul.wide.u32 %rd8, %r0, " #bytes "; add.s64 %rd9, %rd9, %rd8;"

typedef struct violation {
    const char *body;
    unsigned threads, shared_bytes;
    CUresult error;
    const char *said;
} violation;

static const violation violations[] = {
    /* a thread reads its neighbour's word */
    {SMEM_OF_LANE "st.shared.b32 [%r21], %r0; bar.warp.sync -1; xor.b32 %r22, %r21, 4;"
                  "ld.shared.b32 %r10, [%r22];",
     32, 128, CUDA_SUCCESS, ""},
    {SMEM_OF_LANE "st.shared.b32 [%r21], %r0; xor.b32 %r22, %r21, 4; ld.shared.b32 %r10, [%r22];", 32, 128,
     CUDA_ERROR_LAUNCH_FAILED, "race: it reads shared memory at offset 4"},
    /* the neighbour is in another warp: bar.warp.sync is not enough */
    {SMEM_OF_LANE "st.shared.b32 [%r21], %r0; bar.sync 0; xor.b32 %r22, %r21, 128;"
                  "ld.shared.b32 %r10, [%r22];",
     64, 256, CUDA_SUCCESS, ""},
    {SMEM_OF_LANE "st.shared.b32 [%r21], %r0; bar.warp.sync -1; xor.b32 %r22, %r21, 128;"
                  "setp.gt.u32 %p1, %r0, 31; @%p1 ld.shared.b32 %r10, [%r22];",
     64, 256, CUDA_ERROR_LAUNCH_FAILED, "race: it reads shared memory at offset 0, written without a barrier"},
    /* written after another warp has read, and twice */
    {SMEM_OF_LANE "st.shared.b32 [%r21], %r0; bar.sync 0; ld.shared.b32 %r10, [%r20+4]; bar.sync 0;"
                  "st.shared.b32 [%r21], %r0;",
     64, 256, CUDA_SUCCESS, ""},
    {SMEM_OF_LANE "st.shared.b32 [%r21], %r0; bar.sync 0; ld.shared.b32 %r10, [%r20+4];"
                  "setp.gt.u32 %p1, %r0, 31; @%p1 st.shared.b32 [%r20+4], %r0;",
     64, 256, CUDA_ERROR_LAUNCH_FAILED, "race: it writes shared memory at offset 4, read"},
    {SMEM_OF_LANE "st.shared.b32 [%r20], %r0;", 32, 256, CUDA_ERROR_LAUNCH_FAILED, "also written without a barrier"},
    /* a whole warp writes; another warp has read one lane's words */
    {READ_LATE("4", WRITE_4, "640") "bar.sync 0;" WRITE_4("%r21"), 64, 1024, CUDA_SUCCESS, ""},
    {READ_LATE("4", WRITE_4, "640") "@!%p1 " WRITE_4("%r21"), 64, 1024, CUDA_ERROR_LAUNCH_FAILED,
     "race: it writes shared memory at offset 640, read"},
    {READ_LATE("3", WRITE_2, "324") "bar.sync 0;" WRITE_2("%r21"), 64, 512, CUDA_SUCCESS, ""},
    {READ_LATE("3", WRITE_2, "324") "@!%p1 " WRITE_2("%r21"), 64, 512, CUDA_ERROR_LAUNCH_FAILED,
     "race: it writes shared memory at offset 32"},
    /* two lanes of it write the same */
    {"mov.u32 %r20, smem; shr.u32 %r21, %r0, 1; shl.b32 %r21, %r21, 4; add.s32 %r21, %r20, %r21;" WRITE_4("%r21"), 32,
     256, CUDA_ERROR_LAUNCH_FAILED, "also written without a barrier"},
    /* a word, half of 16 bytes, and all of them */
    {HALF_READ "@%p2 st.shared.b32 [%r20+4], %r0;", 64, 1024, CUDA_SUCCESS, ""},
    {HALF_READ "@%p2 st.shared.b32 [%r20+12], %r0;", 64, 1024, CUDA_ERROR_LAUNCH_FAILED,
     "race: it writes shared memory at offset 12, read"},
    {HALF_READ "@%p2 st.shared.v2.b32 [%r20+8], {%r0, %r0};", 64, 1024, CUDA_ERROR_LAUNCH_FAILED,
     "race: it writes shared memory at offset 8, read"},
    {HALF_READ "@%p2 " WRITE_4("%r20"), 64, 1024, CUDA_ERROR_LAUNCH_FAILED,
     "race: it writes shared memory at offset 0, read"},
    /* the same in global memory */
    {OUT(4) "st.global.u32 [%rd9], %r0;", 32, 0, CUDA_SUCCESS, ""},
    {OUT(4) "st.global.u32 [%rd9], %r0; setp.lt.u32 %p1, %r0, 31; @%p1 ld.global.u32 %r10, [%rd9+4];", 32, 0,
     CUDA_ERROR_LAUNCH_FAILED, "race: it reads global memory"},
    {OUT(16) "st.global.v4.u32 [%rd9], {%r0, %r0, %r0, %r0}; setp.lt.u32 %p1, %r0, 31; @%p1 ld.global.u32 %r10, "
             "[%rd9+20];",
     32, 0, CUDA_ERROR_LAUNCH_FAILED, "race: it reads global memory"},
    {OUT(16) "setp.lt.u32 %p1, %r0, 31; @%p1 ld.global.u32 %r10, [%rd9+20]; st.global.v4.u32 [%rd9], {%r0, %r0, %r0, "
             "%r0};",
     32, 0, CUDA_ERROR_LAUNCH_FAILED, "race: it writes global memory"},
    /* halves of one word by two threads are no race */
    {SMEM_OF_LANE "shl.b32 %r22, %r0, 1; add.s32 %r22, %r22, %r20; cvt.u16.u32 %h1, %r0;"
                  "st.shared.b16 [%r22], %h1; bar.warp.sync -1; ld.shared.b32 %r10, [%r20];",
     32, 64, CUDA_SUCCESS, ""},
    {SMEM_OF_LANE "ld.shared.b32 %r10, [%r21];", 32, 128, CUDA_ERROR_LAUNCH_FAILED,
     "uninitialised: it reads shared memory at offset 0"},
    {SMEM_OF_LANE "st.shared.b32 [%r21], %r0;", 32, 124, CUDA_ERROR_ILLEGAL_ADDRESS,
     "outside of shared memory: 4 bytes at offset 124"},
    {SMEM_OF_LANE "st.shared.b32 [%r20-4], %r0;", 32, 124, CUDA_ERROR_ILLEGAL_ADDRESS,
     "outside of shared memory: 4 bytes at offset -4"},
    {SMEM_OF_LANE "st.shared.v2.b32 [%r21], {%r0, %r0};", 32, 256, CUDA_ERROR_MISALIGNED_ADDRESS,
     "misaligned address: 8 bytes"},
    {"ld.global.u32 %r10, [%rd1+2];", 32, 0, CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"},
    {"ld.global.u32 %r10, [%rd1+512];", 32, 0, CUDA_ERROR_ILLEGAL_ADDRESS, "is 0 bytes behind the allocated 512 bytes"},
    {"mov.u64 %rd9, 16; ld.global.u32 %r10, [%rd9];", 32, 0, CUDA_ERROR_ILLEGAL_ADDRESS, "before all allocations"},
    {"ld.param.u64 %rd9, [out]; st.global.u32 [%rd9], %r0;", 32, 0, CUDA_ERROR_LAUNCH_FAILED,
     "race: it writes global memory"},
    {"ld.param.u64 %rd9, [in+16];", 32, 0, CUDA_ERROR_ILLEGAL_ADDRESS, "outside of the parameters"},
    /* divergence */
    {"setp.lt.u32 %p1, %r0, 8; @%p1 bra SKIP; shfl.sync.bfly.b32 %r10, %r1, 1, 31, -1; SKIP:", 32, 0,
     CUDA_ERROR_LAUNCH_FAILED, "lanes are missing"},
    {"setp.lt.u32 %p1, %r0, 8; @%p1 bra SKIP; shfl.sync.bfly.b32 %r10, %r1, 1, 31, 0xffffff00; "
     "SKIP:",
     32, 0, CUDA_SUCCESS, ""},
    {"setp.lt.u32 %p1, %r0, 8; @%p1 bra SKIP; shfl.sync.bfly.b32 %r10, %r1, 8, 31, 0xffffff00; "
     "SKIP:",
     32, 0, CUDA_ERROR_LAUNCH_FAILED, "which does not execute it"},
    {"setp.lt.u32 %p1, %r0, 8; @%p1 bra SKIP; bar.sync 0; SKIP:", 32, 0, CUDA_ERROR_LAUNCH_FAILED,
     "barrier divergence: only lanes 0xffffff00"},
    {"setp.lt.u32 %p1, %r0, 32; @%p1 bra SKIP; bar.sync 0; SKIP:", 64, 0, CUDA_ERROR_LAUNCH_FAILED,
     "barrier divergence: threads of warp 0 have ended"},
    /* named barriers: warps 0 and 1 meet at one, 2 and 3 at another */
    {SMEM_OF_LANE TEAM "st.shared.b32 [%r21], %r0; bar.sync %r24, 64; xor.b32 %r22, %r21, 128;"
                       "ld.shared.b32 %r10, [%r22];",
     128, 512, CUDA_SUCCESS, ""},
    {SMEM_OF_LANE TEAM "st.shared.b32 [%r21], %r0; bar.sync %r24, 64; xor.b32 %r22, %r21, 256;"
                       "setp.gt.u32 %p1, %r0, 63; @%p1 ld.shared.b32 %r10, [%r22];",
     128, 512, CUDA_ERROR_LAUNCH_FAILED, "race: it reads shared memory at offset 0, written without a barrier"},
    /* warp 1 passes on to warp 2, by the next barrier, what one barrier ordered for it */
    {SMEM_OF_LANE CHAIN "bar.sync 2, 64; setp.gt.u32 %p2, %r0, 63; xor.b32 %r22, %r21, 256;"
                        "@%p2 ld.shared.b32 %r10, [%r22]; DONE:",
     96, 512, CUDA_SUCCESS, ""},
    {SMEM_OF_LANE CHAIN "bar.warp.sync -1; setp.gt.u32 %p2, %r0, 63; xor.b32 %r22, %r21, 256;"
                        "@%p2 ld.shared.b32 %r10, [%r22]; DONE:",
     96, 512, CUDA_ERROR_LAUNCH_FAILED, "race: it reads shared memory at offset 0"},
    /* another team's read stays unordered while epochs pass */
    {SMEM_OF_LANE TEAM "st.shared.b32 [%r21], %r0; bar.sync 0; ld.shared.b32 %r10, [%r20+4];"
                       "bar.sync %r24, 64; bar.sync %r24, 64; ld.shared.b32 %r11, [%r20+8];"
                       "setp.eq.u32 %p1, %r0, 65; @%p1 st.shared.b32 [%r20+4], %r0;",
     128, 512, CUDA_ERROR_LAUNCH_FAILED, "race: it writes shared memory at offset 4, read"},
    {TEAM "bar.sync 1, 64;", 128, 0, CUDA_ERROR_LAUNCH_FAILED, "4 warps arrive"},
    {TEAM "bar.sync %r24, 128;", 128, 0, CUDA_ERROR_LAUNCH_FAILED, "never has all that it counts"},
    {"bar.sync %r0, 32;", 32, 0, CUDA_ERROR_LAUNCH_FAILED, "it has 1 where lane 0 has 0"},
    {"bar.sync 16, 32;", 32, 0, CUDA_ERROR_LAUNCH_FAILED, "no such barrier"},
    {"bar.sync 1, 33;", 64, 0, CUDA_ERROR_LAUNCH_FAILED, "no such barrier"},
    {"setp.lt.u32 %p1, %r0, 8; @%p1 bra SKIP; bar.warp.sync -1; SKIP:", 32, 0, CUDA_ERROR_LAUNCH_FAILED,
     "bar.warp.sync of lanes"},
    {"setp.lt.u32 %p1, %r0, 8; @%p1 mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
     "{%f1, %f2, %f3, %f4}, {%r1, %r2}, {%r3}, {%f1, %f2, %f3, %f4};",
     32, 0, CUDA_ERROR_LAUNCH_FAILED, "all 32 must execute it"},
    {"setp.lt.u32 %p1, %r0, 8; @%p1 mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%r5, %r6}, "
     "{%r1}, {%r3}, {%r0, %r0};",
     32, 0, CUDA_ERROR_LAUNCH_FAILED, "all 32 must execute it"},
    {"LOOP: bra LOOP;", 32, 0, CUDA_ERROR_LAUNCH_TIMEOUT, "timeout"},
    {"trap;", 32, 0, CUDA_ERROR_LAUNCH_FAILED, "trap"},
};

static void test_violations(void)
{
    for (size_t i = 0; i < sizeof violations / sizeof *violations; i++) {
        const violation *v = &violations[i];
        bench_open("a100");
        const CUresult result =
            bench_launch(&(bench_run){.body = v->body, .threads = v->threads, .shared_bytes = v->shared_bytes});
        if (result != v->error)
            fprintf(stderr, "%s: %s\n", v->body, fa2_sim_message());
        CHECK_EQ(result, v->error);
        CHECK_CONTAINS(fa2_sim_message(), v->said);
        CHECK_EQ(cuCtxSynchronize(), v->error); /* sticky */
        const char *text = NULL;
        if (v->error != CUDA_SUCCESS && cuGetErrorString(result, &text) == CUDA_SUCCESS)
            CHECK_CONTAINS(text, "k, block (0, 0, 0), ");
    }
}

/* ---- cp.async ---- */

#define COPY                                                                                                           \
    "mov.u32 %r20, smem; shl.b32 %r21, %r0, 4; add.s32 %r21, %r20, %r21;"                                              \
    "ld.param.u64 %rd5, [in]; and.b32 %r23, %r0, 31; mul.wide.u32 %rd6, %r23, 16;"                                     \
    "add.s64 %rd5, %rd5, %rd6; cp.async.cg.shared.global [%r21], [%rd5], 16;"                                          \
    "cp.async.commit_group;"

static void test_copies(void)
{
    static const violation cases[] = {
        {COPY "cp.async.wait_group 0; ld.shared.b32 %r10, [%r21];", 32, 1024, CUDA_SUCCESS, ""},
        {COPY "cp.async.wait_group 1; ld.shared.b32 %r10, [%r21];", 32, 1024, CUDA_ERROR_LAUNCH_FAILED,
         "early: shared memory at offset 0 waits"},
        {COPY "st.shared.b32 [%r21], %r0;", 32, 1024, CUDA_ERROR_LAUNCH_FAILED, "early"},
        {COPY "cp.async.wait_group 0; xor.b32 %r22, %r21, 16; ld.shared.b32 %r10, [%r22];", 32, 1024,
         CUDA_ERROR_LAUNCH_FAILED, "race"},
        {COPY "cp.async.wait_group 0; bar.sync 0; xor.b32 %r22, %r21, 512; ld.shared.b32 %r10, [%r22];", 64, 1024,
         CUDA_SUCCESS, ""},
        /* the second of two groups is still on its way */
        {COPY "cp.async.cg.shared.global [%r21+512], [%rd5], 16; cp.async.commit_group;"
              "cp.async.wait_group 1; ld.shared.b32 %r10, [%r21];",
         32, 1024, CUDA_SUCCESS, ""},
        {COPY "cp.async.cg.shared.global [%r21+512], [%rd5], 16; cp.async.commit_group;"
              "cp.async.wait_group 1; ld.shared.b32 %r10, [%r21+512];",
         32, 1024, CUDA_ERROR_LAUNCH_FAILED, "early"},
        {COPY "cp.async.cg.shared.global [%r21+512], [%rd5], 16;"
              "cp.async.wait_group 0; ld.shared.b32 %r10, [%r21+512];",
         32, 1024, CUDA_ERROR_LAUNCH_FAILED, "early"}, /* the copy is not committed */
        {COPY "cp.async.cg.shared.global [%r21+512], [%rd5], 16;"
              "cp.async.wait_all; ld.shared.b32 %r10, [%r21+512];",
         32, 1024, CUDA_SUCCESS, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bench_open("a100");
        const CUresult result = bench_launch(
            &(bench_run){.body = cases[i].body, .threads = cases[i].threads, .shared_bytes = cases[i].shared_bytes});
        if (result != cases[i].error)
            fprintf(stderr, "case %zu: %s\n", i, fa2_sim_message());
        CHECK_EQ(result, cases[i].error);
        CHECK_CONTAINS(fa2_sim_message(), cases[i].said);
    }
}

/* ---- memory and limits ---- */

static void test_use_after_free(void)
{
    static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 at)\n{\n"
                              ".reg .b64 %rd<3>;\n.reg .b32 %r<3>;\nld.param.u64 %rd1, [at];\n"
                              "ld.global.u32 %r1, [%rd1];\nret;\n}\n";
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUdeviceptr at = 0;
    void *params[] = {&at};
    bench_open("a100");
    CHECK_EQ(cuModuleLoadDataEx(&module, ptx, 0, NULL, NULL), CUDA_SUCCESS);
    CHECK_EQ(cuModuleGetFunction(&function, module, "k"), CUDA_SUCCESS);
    CHECK_EQ(cuMemAlloc(&at, 64), CUDA_SUCCESS);
    CHECK_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_SUCCESS);
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    CHECK_EQ(cuMemFree(at), CUDA_SUCCESS);
    CHECK_EQ(cuMemFree(at), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_SUCCESS);
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_CONTAINS(fa2_sim_message(), "0 bytes into the released 64 bytes");
    CHECK_EQ(cuModuleUnload(module), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void test_limits(void)
{
    bench_open("t4");
    CHECK_EQ(bench_launch(&(bench_run){.body = "", .target = 75, .threads = 1025}), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(bench_launch(&(bench_run){.body = "", .target = 75, .shared_bytes = 65536}), CUDA_SUCCESS);
    CHECK_EQ(bench_launch(&(bench_run){.body = "", .target = 75, .shared_bytes = 65537}), CUDA_ERROR_INVALID_VALUE);
    bench_open("rtx3060");
    CHECK_EQ(bench_launch(&(bench_run){.body = "", .shared_bytes = 101376}), CUDA_SUCCESS);
    CHECK_EQ(bench_launch(&(bench_run){.body = "", .shared_bytes = 101377}), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(fa2_sim_live(), 1); /* only the context */
}

/* 32 lanes 8 bytes apart conflict in pairs. 128 bytes apart, all are in one bank, and each has its own sector. */
typedef struct pattern {
    const char *body; /* puts the lane's offset into %r21 */
    uint64_t wavefronts, sectors;
} pattern;

static void check_shared_traffic(const pattern *p)
{
    char body[512], lines[4096];
    sim_totals totals;
    double us = 0;
    snprintf(body, sizeof body, "%s mov.u32 %%r20, smem; add.s32 %%r22, %%r20, %%r21; st.shared.b32 [%%r22], %%r0;",
             p->body);
    if (p->sectors == 1) /* all lanes would write one word */
        snprintf(body, sizeof body,
                 "mov.u32 %%r20, smem; setp.eq.u32 %%p1, %%r0, 0; "
                 "@%%p1 st.shared.b32 [%%r20], %%r0;");
    CHECK_EQ(bench_launch(&(bench_run){.body = body, .shared_bytes = 4096}), CUDA_SUCCESS);
    fa2_sim_totals(&totals, &us);
    const sim_traffic *stores = &totals.traffic[SIM_ST_SHARED];
    CHECK_EQ(stores->moved, p->wavefronts);
    CHECK_EQ(stores->ideal, 1);
    CHECK_EQ(stores->worst_excess, p->wavefronts - 1);
    if (p->wavefronts == 1)
        CHECK_STR(stores->worst_at, "");
    else
        CHECK_CONTAINS(stores->worst_at, "st.shared.b32 [%r22], %r0");
    CHECK(fa2_sim_lines(lines, sizeof lines) <= sizeof lines);
    if (p->wavefronts == 32)
        CHECK_CONTAINS(lines, "st.shared.b32 [%r22], %r0: executed 1, wavefronts 32/1");
}

static void check_global_traffic(const pattern *p)
{
    char body[512];
    sim_totals with, without;
    double us = 0;
    CHECK_EQ(bench_launch(&(bench_run){.body = ""}), CUDA_SUCCESS);
    fa2_sim_totals(&without, &us);
    snprintf(body, sizeof body,
             "%s and.b32 %%r21, %%r21, 511; cvt.u64.u32 %%rd5, %%r21; ld.param.u64 %%rd6, [in]; "
             "add.s64 %%rd5, %%rd5, %%rd6; ld.global.u32 %%r10, [%%rd5];",
             p->body);
    CHECK_EQ(bench_launch(&(bench_run){.body = body}), CUDA_SUCCESS);
    fa2_sim_totals(&with, &us);
    CHECK_EQ(with.traffic[SIM_LD_GLOBAL].moved - without.traffic[SIM_LD_GLOBAL].moved, p->sectors);
    CHECK(us > 0);
}

static void test_traffic(void)
{
    static const pattern patterns[] = {
        {"shl.b32 %r21, %r0, 2;", 1, 4},
        {"shl.b32 %r21, %r0, 3;", 2, 8},
        {"shl.b32 %r21, %r0, 7;", 32, 4}, /* in[] has 512 bytes; the lanes touch four sectors of it */
        {"mov.u32 %r21, 0;", 1, 1}};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        bench_open("a100");
        check_shared_traffic(&patterns[i]);
        check_global_traffic(&patterns[i]);
    }
}

/* Two launches between two calls are counted together, and nothing is counted twice. */
static void test_totals(void)
{
    sim_totals one, two, none;
    double us = 0;
    bench_open("a100");
    CHECK_EQ(bench_launch(&(bench_run){.body = ""}), CUDA_SUCCESS);
    fa2_sim_totals(&one, &us);
    CHECK_EQ(bench_launch(&(bench_run){.body = ""}), CUDA_SUCCESS);
    CHECK_EQ(bench_launch(&(bench_run){.body = ""}), CUDA_SUCCESS);
    fa2_sim_totals(&two, &us);
    fa2_sim_totals(&none, &us);
    CHECK(one.traffic[SIM_LD_GLOBAL].moved > 0);
    CHECK_EQ(two.traffic[SIM_LD_GLOBAL].moved, 2 * one.traffic[SIM_LD_GLOBAL].moved);
    CHECK_EQ(none.traffic[SIM_LD_GLOBAL].moved, 0);
}

int main(void)
{
    setenv("FA2_SIM_BUDGET", "100000", 1);
    bench_open("a100");
    test_violations();
    test_copies();
    test_use_after_free();
    test_limits();
    test_traffic();
    test_totals();
    return check_done();
}
