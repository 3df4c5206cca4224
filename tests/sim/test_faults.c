/*
 * Injected faults at every step of opening a context, preparing and running a forward call. Each call returns with a
 * message that says what was wrong, and releases everything.
 */
#include <stdlib.h>
#include <unistd.h>
#include "fa2.h"
#include "tests/check.h"
#include "tests/sim/bench_device.h"

enum { POSITIONS = 6, SEQ = 32, DIM = 16, BYTES = SEQ * DIM * 2 };

static const char *const kinds[] = {"alloc", "load", "fault", "wrong", "lost"};

/* Runs once without uploading anything, and reads O back. Returns the first status other than FA2_OK. *ret_sync: the
 * driver's result. */
static fa2_status forward(fa2_context *context, const CUdeviceptr memory[4], CUresult *ret_sync)
{
    const fa2_problem problem = {.struct_bytes = sizeof(fa2_problem),
                                 .op = FA2_OP_FORWARD,
                                 .dtype = FA2_FP16,
                                 .batch = 1,
                                 .heads_q = 1,
                                 .heads_kv = 1,
                                 .seq_q = SEQ,
                                 .seq_k = SEQ,
                                 .head_dim = DIM};
    fa2_forward_args args = {.struct_bytes = sizeof(fa2_forward_args)};
    fa2_tensor *const views[] = {&args.q, &args.k, &args.v, &args.o};
    for (int i = 0; i < 4; i++)
        *views[i] = (fa2_tensor){
            .data = (void *)(uintptr_t)memory[i], .stride_batch = SEQ * DIM, .stride_seq = DIM, .stride_head = DIM};
    fa2_status st = fa2_prepare(context, &problem);
    if (st == FA2_OK)
        st = fa2_forward(context, &problem, &args, NULL);
    *ret_sync = cuCtxSynchronize();
    return st;
}

typedef struct outcome {
    bool allocated;
    fa2_status opened, ran;
    CUresult synced;
    uint16_t o[SEQ * DIM];
} outcome;

static void run(outcome *out)
{
    CUdeviceptr memory[4] = {0};
    fa2_context *context = NULL;
    CUcontext primary = NULL, popped = NULL;
    *out = (outcome){.allocated = true, .opened = FA2_E_CUDA, .ran = FA2_E_CUDA};
    if (cuDevicePrimaryCtxRetain(&primary, 0) != CUDA_SUCCESS)
        return;
    cuCtxPushCurrent(primary);
    for (int i = 0; i < 4; i++)
        out->allocated = cuMemAlloc(&memory[i], BYTES) == CUDA_SUCCESS && out->allocated;
    for (int i = 0; i < 4 && out->allocated; i++)
        cuMemsetD32Async(memory[i], 0x3c003c00, BYTES / 4, NULL);
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = ""};
    out->opened = fa2_context_create(&config, &context);
    if (out->opened == FA2_OK && out->allocated)
        out->ran = forward(context, memory, &out->synced);
    if (out->ran == FA2_OK && out->synced == CUDA_SUCCESS)
        cuMemcpyDtoH(out->o, memory[3], BYTES);
    if (out->ran != FA2_OK && out->opened == FA2_OK && out->allocated)
        CHECK(fa2_last_message()[0] != '\0');
    fa2_context_destroy(context);
    for (int i = 0; i < 4; i++)
        if (memory[i] != 0)
            cuMemFree(memory[i]);
    cuCtxPopCurrent(&popped);
    cuDevicePrimaryCtxRelease(0);
}

static void check_right(const outcome *o)
{
    CHECK(o->allocated);
    CHECK_EQ(o->opened, FA2_OK);
    CHECK_EQ(o->ran, FA2_OK);
    CHECK_EQ(o->synced, CUDA_SUCCESS);
    CHECK_EQ(o->o[0], 0x3c00); /* 1.0, because all V are 1 */
    CHECK_EQ(o->o[SEQ * DIM - 1], 0x3c00);
}

static bool is_right(const outcome *o)
{
    return o->allocated && o->ran == FA2_OK && o->synced == CUDA_SUCCESS && o->o[0] == 0x3c00 &&
           o->o[SEQ * DIM - 1] == 0x3c00;
}

static void test_positions(const char *kind)
{
    char wanted[64];
    int hit = 0;
    for (int n = 1; n <= POSITIONS; n++) {
        outcome out;
        snprintf(wanted, sizeof wanted, "%s=%d", kind, n);
        setenv("FA2_SIM_FAULT", wanted, 1);
        fa2_sim_reset();
        run(&out);
        hit += !is_right(&out);
        CHECK_EQ(fa2_sim_live(), 0);
    }
    unsetenv("FA2_SIM_FAULT");
    fa2_sim_reset();
    printf("%s: %d of %d positions were hit\n", kind, hit, POSITIONS);
    if (strcmp(kind, "load") == 0)
        CHECK_EQ(hit, 0); /* the runtime skips a kernel that is refused */
    else
        CHECK(hit > 0 && hit < POSITIONS);
}

/* How a caller sees each kind of fault. */
static void test_appearance(void)
{
    outcome out;
    setenv("FA2_SIM_FAULT", "fault=1", 1);
    fa2_sim_reset();
    run(&out);
    CHECK_EQ(out.ran, FA2_OK); /* a launch returns before the fault is known */
    CHECK_EQ(out.synced, CUDA_ERROR_ILLEGAL_ADDRESS);
    setenv("FA2_SIM_FAULT", "lost=1", 1);
    fa2_sim_reset();
    run(&out);
    CHECK_EQ(out.synced, CUDA_ERROR_DEVICE_UNAVAILABLE);
    setenv("FA2_SIM_FAULT", "wrong=1", 1);
    fa2_sim_reset();
    run(&out);
    CHECK_EQ(out.synced, CUDA_SUCCESS);
    CHECK(out.o[0] != 0x3c00);
    setenv("FA2_SIM_FAULT", "memory=3000", 1); /* enough for two of four tensors of 1024 bytes */
    fa2_sim_reset();
    run(&out);
    CHECK(!out.allocated);
    unsetenv("FA2_SIM_FAULT");
    fa2_sim_reset();
}

/* An invalid variable of the environment, and the message about it. */
typedef struct misread {
    const char *name, *value, *said;
} misread;

static const misread misreads[] = {
    {"FA2_SIM_FAULT", "nonsense=1",
     "'nonsense=1' is not understood; it is one or more, each once, of alloc=N, load=N, fault=N, "
     "hang=N, wrong=N, lost=N, memory=N"},
    {"FA2_SIM_FAULT", "alloc", "'alloc' is not understood"},
    {"FA2_SIM_FAULT", "alloc=", "'alloc=' is not understood"},
    {"FA2_SIM_FAULT", "alloc=0", "'alloc=0' is not understood"},
    {"FA2_SIM_FAULT", "alloc=-1", "'alloc=-1' is not understood"},
    {"FA2_SIM_FAULT", "alloc= 1", "'alloc= 1' is not understood"},
    {"FA2_SIM_FAULT", "alloc=1x", "'alloc=1x' is not understood"},
    {"FA2_SIM_FAULT", "alloc=99999999999999999999999", "'alloc=99999999999999999999999' is not"},
    {"FA2_SIM_FAULT", "alloc=1,alloc=2", "'alloc=2' is not understood; it is one or more, each once"},
    {"FA2_SIM_FAULT", "alloc=1,", "'' is not understood"},
    {"FA2_SIM_FAULT", "alloc=1,,load=1", "'' is not understood"},
    {"FA2_SIM_FAULT_COUNTS", "/nowhere/counts", "FA2_SIM_FAULT_COUNTS=/nowhere/counts: "},
    {"FA2_SIM_THREADS", "abc", "FA2_SIM_THREADS=abc: it is no number from 1 to "},
    {"FA2_SIM_THREADS", "99999999999", "FA2_SIM_THREADS=99999999999: it is no number from 1 to "},
    {"FA2_SIM_BUDGET", "-1", "FA2_SIM_BUDGET=-1: it is no number from 1 to "},
    {"FA2_SIM_BUDGET", "1x", "FA2_SIM_BUDGET=1x: it is no number from 1 to "},
};

static void test_misreads(void)
{
    for (size_t i = 0; i < sizeof misreads / sizeof *misreads; i++) {
        setenv(misreads[i].name, misreads[i].value, 1);
        CHECK_CONTAINS(bench_start_refused(), misreads[i].said);
        unsetenv(misreads[i].name);
    }
    fa2_sim_reset();
}

/* Counts in a file continue where another process, here an earlier start, ended. */
static void test_shared_counts(void)
{
    char path[] = "/tmp/fa2_counts_XXXXXX";
    outcome out;
    const int file = mkstemp(path);
    CHECK(file >= 0);
    setenv("FA2_SIM_FAULT", "lost=2", 1);
    setenv("FA2_SIM_FAULT_COUNTS", path, 1);
    for (int launch = 1; launch <= 3; launch++) {
        fa2_sim_reset();
        run(&out);
        if (launch == 2)
            CHECK_EQ(out.synced, CUDA_ERROR_DEVICE_UNAVAILABLE);
        else
            check_right(&out);
    }
    unsetenv("FA2_SIM_FAULT");
    unsetenv("FA2_SIM_FAULT_COUNTS");
    fa2_sim_reset();
    close(file);
    unlink(path);
}

/* A launch that hangs: queries answer "not ready". Waiting for it would never end. */
static void test_hang(void)
{
    CUevent event = NULL;
    CUcontext primary = NULL, popped = NULL;
    setenv("FA2_SIM_FAULT", "hang=1", 1);
    fa2_sim_reset();
    CHECK_EQ(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    CHECK_EQ(cuCtxPushCurrent(primary), CUDA_SUCCESS);
    CHECK_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
    CHECK_EQ(cuEventRecord(event, NULL), CUDA_SUCCESS);
    CHECK_EQ(cuEventQuery(event), CUDA_SUCCESS);
    static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                              ".visible .entry k()\n{\nret;\n}\n";
    CUmodule module = NULL;
    CUfunction function = NULL;
    CHECK_EQ(cuModuleLoadDataEx(&module, ptx, 0, NULL, NULL), CUDA_SUCCESS);
    CHECK_EQ(cuModuleGetFunction(&function, module, "k"), CUDA_SUCCESS);
    CHECK_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_SUCCESS);
    CHECK_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    CHECK_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    CHECK_EQ(cuEventDestroy(event), CUDA_SUCCESS);
    CHECK_EQ(cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    CHECK_EQ(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    CHECK_EQ(fa2_sim_live(), 0);
    unsetenv("FA2_SIM_FAULT");
    fa2_sim_reset();
}

int main(void)
{
    outcome out;
    setenv("FA2_SIM_CARD", "rtx3060", 1);
    CHECK_EQ(cuInit(0), CUDA_SUCCESS);
    run(&out);
    check_right(&out);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        test_positions(kinds[i]);
    test_appearance();
    test_misreads();
    test_shared_counts();
    test_hang();
    run(&out);
    check_right(&out);
    return check_done();
}
