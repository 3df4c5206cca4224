/*
 * mbarriers, bulk copies, registers that warps release and request, and proxy fences, in small kernels. Each rule is
 * obeyed, and broken once.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/check.h"
#include "tests/sim/asynchronous.h"

#define GROUPS ".maxntid 256\n.minnctapersm 1\n"

static const struct rule {
    const char *body, *bounds;
    unsigned threads;
    CUresult error;
    const char *said;
} rules[] = {
    {MAKE("1") EXPECT("256") LOAD("256") WAIT("0") READ, NULL, 64, CUDA_SUCCESS, ""},
    {MAKE("1") LOAD("256") EXPECT("256") WAIT("0") READ, NULL, 64, CUDA_SUCCESS, ""},
    {MAKE("1") EXPECT("256") LOAD("256") READ WAIT("0"), NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "early: shared memory at offset 0 is written without a wait for its mbarrier's phase"},
    {MAKE("1") EXPECT("256") LOAD("256") WRITE WAIT("0"), NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "early: shared memory at offset 0"},
    {MAKE("1") EXPECT("256") LOAD("256"), NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "early: the block ends, and nobody has waited"},
    {MAKE_ONLY("1") "bar.sync 0;" EXPECT("256") LOAD("256") WAIT("0"), NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "proxy: no fence.mbarrier_init"},
    {MAKE_ONLY("64") ARRIVE, NULL, 64, CUDA_ERROR_LAUNCH_FAILED, "race: it reads shared memory at offset 4096"},
    {ARRIVE, NULL, 32, CUDA_ERROR_LAUNCH_FAILED, "uninitialised"},
    {"@%p1 st.shared.b64 [%r21], %rd1; bar.sync 0;" ARRIVE, NULL, 32, CUDA_ERROR_LAUNCH_FAILED,
     "there is no mbarrier at offset 4096"},
    {MAKE("1") MAKE("1"), NULL, 32, CUDA_ERROR_LAUNCH_FAILED, "there is an mbarrier already"},
    {MAKE("0"), NULL, 32, CUDA_ERROR_LAUNCH_FAILED, "an mbarrier for 0 arrivals"},
    {MAKE("1") EXPECT("256") LOAD("256") TRY("0") READ, NULL, 64, CUDA_SUCCESS, ""},
    {MAKE("2") EXPECT("256") LOAD("256") TRY("0") READ "@%p1 " ARRIVE WAIT("0"), NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "early: shared memory at offset 0 is written without a wait"},
    {MAKE("1") "@%p1 st.shared.b32 [%r21+4], %r0;", NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "it writes over the mbarrier at offset 4096, made at PTX line"},
    {MAKE("1") "mov.u32 %r30, 0; @%p1 st.shared.b32 [%r21+8], %r30;", NULL, 64, CUDA_SUCCESS, ""},
    /* counts and phases */
    {MAKE("1") EXPECT("272") LOAD("256") WAIT("0"), NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "which is in phase 0 with 0 of 1 arrivals and 16 bytes missing"},
    {MAKE("1") LOAD("256") "@%p1 " ARRIVE WAIT("0"), NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "with 0 of 1 arrivals and -256 bytes missing"},
    {MAKE("2") EXPECT("256") LOAD("256") WAIT("0"), NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "with 1 of 2 arrivals and 0 bytes missing"},
    {MAKE("1") EXPECT("256") LOAD("256") WAIT("1") READ, NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "stuck: it waits for phase 1 (parity 1)"},
    {MAKE("1") WAIT("1") "bar.sync 0;" EXPECT("256") LOAD("256") WAIT("0") READ, NULL, 64, CUDA_SUCCESS, ""},
    {MAKE("31") ARRIVE, NULL, 32, CUDA_ERROR_LAUNCH_FAILED, "32 arrivals, and phase 0"},
    {MAKE("1") EXPECT("1048576"), NULL, 64, CUDA_ERROR_LAUNCH_FAILED, "the mbarrier would wait for 1048576 bytes"},
    {MAKE("1") "and.b32 %r30, %r0, 1;" WAIT("%r30"), NULL, 32, CUDA_ERROR_LAUNCH_FAILED,
     "where another lane waits for 0"},
    /* an arrival and a wait order accesses */
    {MAKE("64") WRITE ARRIVE WAIT("0") READ_OTHER, NULL, 64, CUDA_SUCCESS, ""},
    {MAKE("64") WRITE ARRIVE READ_OTHER WAIT("0"), NULL, 64, CUDA_ERROR_LAUNCH_FAILED, "uninitialised"},
    {MAKE("64") ARRIVE WRITE WAIT("0") READ_OTHER, NULL, 64, CUDA_ERROR_LAUNCH_FAILED, "race: it reads shared memory"},
    /* lane 0 arrives for its warp after a bar.warp.sync that orders the other lanes' writes */
    {MAKE("2") WRITE "bar.warp.sync -1;" LANE_0 "@%p3 " ARRIVE WAIT("0") READ_OTHER, NULL, 64, CUDA_SUCCESS, ""},
    {MAKE("2") WRITE LANE_0 "@%p3 " ARRIVE WAIT("0") READ_OTHER, NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "race: it reads shared memory"},
    /* lane 0 waits for its warp; a bar.warp.sync makes the other lanes come after the wait */
    {MAKE("1") LANE_0 EXPECT("256") LOAD("256") "@!%p3 bra BEHIND;" WAIT("0") "BEHIND: bar.warp.sync -1;" READ, NULL,
     64, CUDA_SUCCESS, ""},
    {MAKE("1") LANE_0 EXPECT("256") LOAD("256") "@!%p3 bra BEHIND;" WAIT("0") "BEHIND: @%p3 " READ, NULL, 64,
     CUDA_SUCCESS, ""},
    {MAKE("1") LANE_0 EXPECT("256") LOAD("256") "@!%p3 bra BEHIND;" WAIT("0") "BEHIND: " READ, NULL, 64,
     CUDA_ERROR_LAUNCH_FAILED, "early: shared memory at offset 4 "},
    /* bar.arrive orders accesses before it; accesses of waiting threads are not ordered for it */
    {"@%p5 bra SECOND; bar.sync 1, 64;" READ_OTHER "bra DONE; SECOND: " WRITE "bar.arrive 1, 64; DONE:", NULL, 64,
     CUDA_SUCCESS, ""},
    {"@%p5 bra SECOND;" WRITE "bar.sync 1, 64; bra DONE; SECOND: bar.arrive 1, 64; bar.sync 2, 32;" READ_OTHER "DONE:",
     NULL, 64, CUDA_ERROR_LAUNCH_FAILED, "race: it reads shared memory"},
    {"@%p5 bra SECOND; bar.sync 1, 96; bra DONE; SECOND: bar.arrive 1, 64; DONE:", NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "barrier divergence"},
    {"@%p5 bra SECOND; bar.sync 1, 64; bra DONE; SECOND: bar.arrive 1, 64; bar.arrive 1, 64; DONE:", NULL, 96,
     CUDA_ERROR_LAUNCH_FAILED, "barrier divergence"},
    /* between the proxies */
    {MAKE("1") WRITE FENCE "bar.sync 0;" EXPECT("256") LOAD("256") WAIT("0") READ, NULL, 64, CUDA_SUCCESS, ""},
    {MAKE("1") WRITE "bar.sync 0;" EXPECT("256") LOAD("256") WAIT("0") READ, NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "proxy: it writes shared memory at offset 0"},
    {MAKE("1") WRITE "bar.sync 0;" READ "bar.sync 0;" FENCE EXPECT("256") LOAD("256") WAIT("0"), NULL, 64, CUDA_SUCCESS,
     ""},
    {MAKE("1") EXPECT("256") LOAD("256") WAIT("0") READ EXPECT("256") LOAD("256") WAIT("1"), NULL, 64,
     CUDA_ERROR_LAUNCH_FAILED, "race: it writes shared memory at offset 0, read"},
    {MAKE("1") EXPECT("256") LOAD("256") WAIT("0") READ "bar.sync 0;" EXPECT("256") LOAD("256") WAIT("1") READ, NULL,
     64, CUDA_SUCCESS, ""},
    /* copies that arrive are visible after the wait; ordinary stores beside them are not */
    {MAKE("64") COPY COPY_ARRIVES WAIT("0") READ_OTHER, NULL, 64, CUDA_SUCCESS, ""},
    {MAKE("64") COPY COPY_ARRIVES READ WAIT("0"), NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "early: shared memory at offset 0"},
    {MAKE("64") WRITE COPY_ARRIVES WAIT("0") READ_OTHER, NULL, 64, CUDA_ERROR_LAUNCH_FAILED,
     "race: it reads shared memory"},
    /* if products or bulk stores read the copies, a fence is needed after the wait */
    {MAKE("64") COPY COPY_ARRIVES WAIT("0") FENCE "bar.sync 0;" AGAIN("256") LOAD("256") WAIT("1"), NULL, 64,
     CUDA_SUCCESS, ""},
    {MAKE("64") COPY COPY_ARRIVES WAIT("0") "bar.sync 0;" AGAIN("256") LOAD("256") WAIT("1"), NULL, 64,
     CUDA_ERROR_LAUNCH_FAILED,
     "proxy: it writes shared memory at offset 0 through the asynchronous proxy, written without "
     "fence.proxy.async between by a load"},
    /* alignment */
    {MAKE("1") EXPECT("8") LOAD("8") WAIT("0"), NULL, 64, CUDA_ERROR_MISALIGNED_ADDRESS,
     "misaligned: the number of bytes is 0x8"},
    {MAKE("1") "add.s32 %r20, %r20, 8;" EXPECT("16") LOAD("16") WAIT("0"), NULL, 64, CUDA_ERROR_MISALIGNED_ADDRESS,
     "misaligned address"},
    {MAKE("1") "add.s64 %rd1, %rd1, 8;" EXPECT("16") LOAD("16") WAIT("0"), NULL, 64, CUDA_ERROR_MISALIGNED_ADDRESS,
     "misaligned: the source"},
    {MAKE("1") EXPECT("4096") LOAD("4096") WAIT("0"), NULL, 64, CUDA_ERROR_ILLEGAL_ADDRESS, "illegal address"},
    /* registers: a block of 256 threads has 255 each, as a multiple of 8 */
    {"setp.gt.u32 %p6, %r0, 127; @%p6 bra MORE; setmaxnreg.dec.sync.aligned.u32 200; bra DONE;"
     "MORE: setmaxnreg.inc.sync.aligned.u32 256; DONE:",
     GROUPS, 256, CUDA_SUCCESS, ""},
    {"setp.gt.u32 %p6, %r0, 127; @%p6 bra MORE; setmaxnreg.dec.sync.aligned.u32 248; bra DONE;"
     "MORE: setmaxnreg.inc.sync.aligned.u32 264; DONE:",
     GROUPS, 256, CUDA_ERROR_LAUNCH_FAILED, "264 registers a thread"},
    {"setmaxnreg.dec.sync.aligned.u32 100;", GROUPS, 256, CUDA_ERROR_LAUNCH_FAILED, "100 registers a thread"},
    {"setmaxnreg.inc.sync.aligned.u32 256;", GROUPS, 256, CUDA_ERROR_LAUNCH_FAILED, "stuck: it waits for"},
    {"setp.gt.u32 %p6, %r0, 31; @%p6 bra DONE; setmaxnreg.dec.sync.aligned.u32 200; DONE:", GROUPS, 256,
     CUDA_ERROR_LAUNCH_FAILED, "others of its warpgroup have executed"},
    {"setp.lt.u32 %p6, %r0, 8; @%p6 setmaxnreg.dec.sync.aligned.u32 24;", GROUPS, 256, CUDA_ERROR_LAUNCH_FAILED,
     "by lanes 0x000000ff"},
};

static void test_rules(void)
{
    uint32_t in[ASYNC_IN_WORDS], out[ASYNC_THREADS_MAX];
    async_fill(in);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const struct rule *r = &rules[i];
        const async_run one = {.bounds = r->bounds, .body = r->body, .threads = r->threads, .in = in, .out = out};
        bench_open("h200");
        const CUresult result = async_launch(&one);
        CHECK_EQ(result, r->error);
        CHECK_CONTAINS(fa2_sim_message(), r->said);
        if (result != r->error || strstr(fa2_sim_message(), r->said) == NULL)
            fprintf(stderr, "rule %zu: %s\n    %s\n", i, r->body, fa2_sim_message());
    }
}

/* Two phases: each reads what was loaded. */
static void test_loads(void)
{
    static const char body[] =
        MAKE("1") EXPECT("256") LOAD("256") WAIT("0") READ "bar.sync 0; @%p1 add.s64 %rd1, %rd1, 256;" EXPECT("256")
            LOAD("256") WAIT("1") "ld.shared.b32 %r11, [%r23]; shl.b32 %r11, %r11, 16;"
                                  "add.s32 %r10, %r10, %r11;";
    uint32_t in[ASYNC_IN_WORDS], out[ASYNC_THREADS_MAX];
    async_fill(in);
    bench_open("h200");
    CHECK_EQ(async_launch(&(async_run){.body = body, .threads = 64, .in = in, .out = out}), CUDA_SUCCESS);
    for (uint32_t i = 0; i < 64; i++)
        CHECK_EQ(out[i], in[i] + (in[i + 64] << 16));
}

int main(void)
{
    test_rules();
    test_loads();
    return check_done();
}
