/*
 * A machine with several cards: each has its own properties, and none sees or affects another.
 */
#include <stdlib.h>
#include "tests/check.h"
#include "tests/sim/bench_device.h"

static const char trap[] = "mov.u64 %rd5, 16; ld.global.u32 %r10, [%rd5];"; /* no such address */

static CUcontext contexts[2];

/* Retains both contexts; the first is current. */
static void open_two(const char *cards)
{
    bench_open(cards);
    CHECK_EQ(cuCtxGetCurrent(&contexts[0]), CUDA_SUCCESS);
    CHECK_EQ(cuDevicePrimaryCtxRetain(&contexts[1], 1), CUDA_SUCCESS);
    CHECK(contexts[0] != contexts[1]);
}

static void go_to(int device)
{
    CUdevice current = -1;
    CHECK_EQ(cuCtxSetCurrent(contexts[device]), CUDA_SUCCESS);
    CHECK_EQ(cuCtxGetDevice(&current), CUDA_SUCCESS);
    CHECK_EQ(current, device);
}

static void test_attributes(void)
{
    static const int capability[] = {7, 8, 8};
    static const char *const names[] = {"T4", "A100", "L4"};
    CUdevice device = -1;
    CUcontext context = NULL;
    int count = 0;
    bench_open("t4,a100,l4");
    CHECK_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
    CHECK_EQ(count, 3);
    for (int i = 0; i < 3; i++) {
        char name[128] = "";
        int major = 0;
        CHECK_EQ(cuDeviceGet(&device, i), CUDA_SUCCESS);
        CHECK_EQ(cuDeviceGetName(name, sizeof name, device), CUDA_SUCCESS);
        CHECK_CONTAINS(name, names[i]);
        CHECK_EQ(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), CUDA_SUCCESS);
        CHECK_EQ(major, capability[i]);
    }
    CHECK_EQ(cuDeviceGet(&device, 3), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(cuDevicePrimaryCtxRetain(&context, 3), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(cuDevicePrimaryCtxRetain(&context, -1), CUDA_ERROR_INVALID_DEVICE);
}

static void test_cards_that_are_none(void)
{
    static const char *const lists[][2] = {
        {"t4,", "'' is none"},    {",t4", "'' is none"},
        {"t4,,l4", "'' is none"}, {"t4,voodoo", "'voodoo' is none of t4, "},
        {"t,t4", "'t' is none"},  {"t4,t4,t4,t4,t4,t4,t4,t4,t4", "more than 8"},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        setenv("FA2_SIM_CARD", lists[i][0], 1);
        CHECK_CONTAINS(bench_start_refused(), lists[i][1]);
    }
}

/* Memory of one card is unknown to the other, but may be released from any context. */
static void test_memory(void)
{
    char body[128];
    CUdeviceptr other = 0;
    uint32_t word = 7;
    open_two("rtx3060,l4");
    go_to(1);
    CHECK_EQ(cuMemAlloc(&other, 64), CUDA_SUCCESS);
    go_to(0);
    CHECK_EQ(cuMemcpyHtoD(other, &word, 4), CUDA_ERROR_INVALID_VALUE);
    snprintf(body, sizeof body, "mov.u64 %%rd5, %llu; ld.global.u32 %%r10, [%%rd5];", (unsigned long long)other);
    CHECK_EQ(bench_launch(&(bench_run){.body = body}), CUDA_ERROR_ILLEGAL_ADDRESS);
    go_to(1);
    CHECK_EQ(cuMemcpyHtoD(other, &word, 4), CUDA_SUCCESS);
    CHECK_EQ(bench_launch(&(bench_run){.body = body}), CUDA_SUCCESS);
    go_to(0);
    CHECK_EQ(cuMemFree(other), CUDA_SUCCESS);
    CHECK_EQ(cuMemFree(other), CUDA_ERROR_INVALID_VALUE);
}

static void test_sticky_errors(void)
{
    open_two("t4,l4");
    CHECK_EQ(bench_launch(&(bench_run){.body = trap, .target = 75}), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_CONTAINS(fa2_sim_message(), "illegal address");
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    go_to(1);
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    CHECK_STR(fa2_sim_message(), "");
    CHECK_EQ(bench_launch(&(bench_run){.body = ""}), CUDA_SUCCESS);
    go_to(0);
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* Objects of one card are unknown in the context of the other, but may be released there. */
static void test_objects(void)
{
    static const char ptx[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
                              ".visible .entry k()\n{\nret;\n}\n";
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUstream stream = NULL;
    CUevent event = NULL;
    open_two("t4,l4");
    CHECK_EQ(cuModuleLoadDataEx(&module, ptx, 0, NULL, NULL), CUDA_SUCCESS);
    CHECK_EQ(cuModuleGetFunction(&function, module, "k"), CUDA_SUCCESS);
    CHECK_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
    go_to(1);
    CHECK_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuModuleGetFunction(&function, module, "k"), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuEventRecord(event, NULL), CUDA_ERROR_INVALID_HANDLE);
    go_to(0);
    CHECK_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), CUDA_SUCCESS);
    go_to(1);
    CHECK_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    CHECK_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
    CHECK_EQ(cuEventDestroy(event), CUDA_SUCCESS);
    CHECK_EQ(cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
    CHECK_EQ(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    CHECK_EQ(fa2_sim_live(), 0);
}

/* Each card counts separately, and accepts what its SM can run. */
static void test_differences(void)
{
    sim_totals first, second;
    double us = 0;
    open_two("t4,l4");
    CHECK_EQ(bench_launch(&(bench_run){.body = "", .target = 80}), CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK_EQ(bench_launch(&(bench_run){.body = "", .target = 75}), CUDA_SUCCESS);
    go_to(1);
    CHECK_EQ(bench_launch(&(bench_run){.body = "", .target = 80, .blocks = 2}), CUDA_SUCCESS);
    fa2_sim_totals(&second, &us);
    go_to(0);
    fa2_sim_totals(&first, &us);
    CHECK(first.traffic[SIM_LD_GLOBAL].moved > 0);
    CHECK_EQ(second.traffic[SIM_LD_GLOBAL].moved, 2 * first.traffic[SIM_LD_GLOBAL].moved);
}

/* More allocations than the card has addresses: released addresses are reused, the oldest first. */
static void test_many_allocations(void)
{
    enum { MANY = 120000, KEPT = 12345, LARGE_BYTES = 1 << 30 };
    static CUdeviceptr given[MANY];
    CUdeviceptr kept = 0, large = 0;
    uint32_t word = 77;
    int again = 0;
    bench_open("t4");
    for (int i = 0; i < MANY; i++) {
        CHECK_EQ(cuMemAlloc(&given[i], 512), CUDA_SUCCESS);
        again += i > 0 && given[i] <= given[i - 1];
        if (i == KEPT)
            kept = given[i];
        else
            CHECK_EQ(cuMemFree(given[i]), CUDA_SUCCESS);
        CHECK(i <= KEPT || given[i] != kept);
        CHECK(i == 0 || given[i] != given[i - 1]);
    }
    CHECK_EQ(again, 2); /* 53248 addresses exist */
    CHECK_EQ(cuMemcpyDtoH(&word, given[MANY - 1], sizeof word), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemcpyHtoD(kept, &word, sizeof word), CUDA_SUCCESS);
    CHECK_EQ(cuMemAlloc(&large, LARGE_BYTES), CUDA_SUCCESS); /* joins neighbours */
    CHECK(large > given[MANY - 1] && (large > kept || large + LARGE_BYTES < kept));
    CHECK_EQ(cuMemAlloc(&given[0], 512), CUDA_SUCCESS);
    CHECK(given[0] >= large + LARGE_BYTES);
    CHECK_EQ(cuMemFree(given[0]), CUDA_SUCCESS);
    CHECK_EQ(cuMemFree(large), CUDA_SUCCESS);
    CHECK_EQ(cuMemFree(kept), CUDA_SUCCESS);
}

int main(void)
{
    test_attributes();
    test_memory();
    test_many_allocations();
    test_sticky_errors();
    test_objects();
    test_differences();
    test_cards_that_are_none();
    return check_done();
}
