/*
 * runtime/device and runtime/launch on the fake driver: which device and context are taken, what is
 * said when there is none, loading and launching with every driver call failing once, argument
 * checks.
 */
#include <math.h>
#include <stdint.h>
#include "check.h"
#include "fake_cuda.h"
#include "recipe_fixture.h"
#include "runtime/cuda/launch.h"

static const fa2_problem problem = {
    .batch = 2, .heads_q = 8, .heads_kv = 2, .seq_q = 100, .seq_k = 200, .head_dim = 64};

/* Filled by main. */
static fa2i_variant variant = {.text = "fwd_sm80 d=64 dtype=fp16 causal=0 br=64"};

/* [B, S, H, D], at addresses that nothing reads. */
static fa2_forward_args good_args(void)
{
    const int64_t d = problem.head_dim;
    const int64_t q_row = d * problem.heads_q, kv_row = d * problem.heads_kv;
    const fa2_tensor q = {(void *)0x10000, q_row * problem.seq_q, q_row, d};
    const fa2_tensor k = {(void *)0x20000, kv_row * problem.seq_k, kv_row, d};
    fa2_forward_args args = {.q = q, .k = k, .v = k, .o = q};
    args.v.data = (void *)0x30000;
    args.o.data = (void *)0x40000;
    return args;
}

/* An artifact of variant for a target, as the fake NVRTC makes it; the caller frees it. */
static fa2i_kernel artifact(const char *target)
{
    fa2i_kernel kernel = {.variant = variant};
    snprintf(kernel.target, sizeof kernel.target, "%s", target);
    fake_image("fwd_sm80", target, "text of the kernel", &kernel.image);
    return kernel;
}

/* ---- load ---- */

static void test_load(void)
{
    fa2i_device device = {0};
    fa2i_loaded loaded = {0};
    CUresult result = CUDA_ERROR_UNKNOWN;
    fake_install();
    fake.registers = 120;
    fa2i_kernel kernel = artifact("sm_80"); /* an older cubin of the same major */
    CHECK_EQ(fa2i_device_open(0, &device), FA2_OK);
    CHECK_EQ(fa2i_load(&device, &kernel, &loaded, &result), FA2_OK);
    CHECK_EQ(result, CUDA_SUCCESS);
    CHECK_EQ(loaded.registers, 120);
    CHECK_EQ(loaded.local_bytes, 0);
    CHECK_EQ(loaded.blocks_per_sm, 1);
    CHECK_STR(loaded.variant.text, variant.text);
    CHECK_CONTAINS(fake.trace, "func_load");
    fa2i_unload(&device, &loaded);
    fa2i_unload(&device, &loaded); /* zeroed: nothing to do */

    fa2i_device_close(&device);
    CHECK_EQ(fake_live(), 0);

    fake_without_func_load(true); /* an older driver finalises at load */
    fake_install();
    CHECK_EQ(fa2i_device_open(0, &device), FA2_OK);
    CHECK_EQ(fa2i_load(&device, &kernel, &loaded, NULL), FA2_OK);
    fa2i_unload(&device, &loaded);
    fake_without_func_load(false);
    fa2i_device_close(&device);
    fa2i_kernel_done(&kernel);
    CHECK_EQ(fake_live(), 0);
}

/* What cannot be loaded, and what is said of it. */
static void test_load_refused(void)
{
    fa2i_device device = {0};
    fa2i_loaded loaded = {0};
    CUresult result = CUDA_SUCCESS;
    fake_install();
    fa2i_kernel newer = artifact("sm_89"), ptx = artifact("compute_80"), cubin = artifact("sm_86");
    CHECK_EQ(fa2i_device_open(0, &device), FA2_OK);

    CHECK_EQ(fa2i_load(&device, &newer, &loaded, &result), FA2_E_CUDA);
    CHECK_EQ(result, CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK_CONTAINS(fa2_last_message(), "CUDA_ERROR_NO_BINARY_FOR_GPU");
    CHECK_CONTAINS(fa2_last_message(), "for sm_89");

    fake.ptx_error = "ptxas: line 7: no such instruction";
    CHECK_EQ(fa2i_load(&device, &ptx, &loaded, &result), FA2_E_CUDA);
    CHECK_EQ(result, CUDA_ERROR_INVALID_PTX);
    CHECK_CONTAINS(fa2_last_message(), "line 7: no such instruction");

    fake.occupancy = 0;
    CHECK_EQ(fa2i_load(&device, &cubin, &loaded, &result), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "no SM of Fake RTX 3060 can hold a block of 128 threads");
    fake.occupancy = -1;

    cubin.variant.recipe = plain_recipe("fwd_sm80", 128, 64, 64, 101377);
    CHECK_EQ(fa2i_load(&device, &cubin, &loaded, &result), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "needs 101377 bytes of shared memory per block; "
                                       "Fake RTX 3060 has 101376");
    cubin.variant.recipe = plain_recipe("fwd_sm80", 128, 64, 64, 1024);
    snprintf(cubin.variant.text, sizeof cubin.variant.text, "fwd_other d=64");
    CHECK_EQ(fa2i_load(&device, &cubin, &loaded, &result), FA2_E_CUDA);
    CHECK_EQ(result, CUDA_ERROR_NOT_FOUND);
    CHECK_CONTAINS(fa2_last_message(),
                   "entry point fwd_other: cuModuleGetFunction: CUDA_ERROR_NOT_FOUND");

    ((char *)cubin.image.data)[cubin.image.bytes - 2] ^= 1;
    CHECK_EQ(fa2i_load(&device, &cubin, &loaded, &result), FA2_E_CUDA);
    CHECK_EQ(result, CUDA_ERROR_INVALID_IMAGE);

    CHECK(loaded.module == NULL);
    fa2i_device_close(&device);
    CHECK_EQ(fake_live(), 0);
    fa2i_kernel_done(&newer);
    fa2i_kernel_done(&ptx);
    fa2i_kernel_done(&cubin);
}

/* Open, load, launch, unload, close. */
static fa2_status whole_way(const fa2i_kernel *kernel)
{
    fa2i_device device = {0};
    fa2i_loaded loaded = {0};
    fa2i_grid grid;
    const fa2_forward_args args = good_args();
    bool entered = false;
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_device_open(0, &device));
    FA2_TRY(fa2i_load(&device, kernel, &loaded, NULL));
    FA2_TRY(fa2i_device_enter(&device));
    entered = true;
    FA2_TRY(fa2i_grid_of(&device.card, &loaded.variant, &problem, &grid));
    FA2_TRY(fa2i_launch_forward(&device, &loaded, &grid, &problem, &args, NULL));
done:
    if (entered)
        fa2i_device_leave(&device);
    if (device.cuda != NULL)
        fa2i_unload(&device, &loaded);
    fa2i_device_close(&device);
    return st;
}

static void test_nth_failure(void)
{
    fake_install();
    fa2i_kernel kernel = artifact("sm_86");
    CHECK_EQ(whole_way(&kernel), FA2_OK);
    const long calls = fake_fail_driver(0, CUDA_SUCCESS);
    CHECK(calls > 25);
    int failed = 0, shut_out = 0;
    for (long nth = 1; nth <= calls; nth++) {
        fake_install();
        fake_fail_driver(nth, CUDA_ERROR_UNKNOWN);
        const fa2_status st = whole_way(&kernel);
        CHECK(st == FA2_OK || st == FA2_E_CUDA || (nth == 1 && st == FA2_E_NO_DRIVER));
        if (st != FA2_OK)
            CHECK_CONTAINS(fa2_last_message(), "CUDA_ERROR_UNKNOWN");
        failed += st != FA2_OK;
        shut_out += fake_live();
    }
    /* Nothing can be done about a failure while leaving (twice), unloading (enter: 2, unload,
     * leave) and closing. When the context cannot be entered for unloading, its module stays until
     * it goes. */
    CHECK_EQ(calls - failed, 7);
    CHECK_EQ(shut_out, 2);
    fa2i_kernel_done(&kernel);
}

/* ---- launch ---- */

static void test_launch(void)
{
    fa2i_device device = {0};
    fa2i_loaded loaded = {0};
    fa2i_grid grid;
    CUstream stream = NULL;
    fa2_forward_args args = good_args();
    float lse = 0;
    args.lse = &lse;
    fake_install();
    fa2i_kernel kernel = artifact("sm_86");
    CHECK_EQ(fa2i_device_open(0, &device), FA2_OK);
    CHECK_EQ(fa2i_load(&device, &kernel, &loaded, NULL), FA2_OK);
    CHECK_EQ(fa2i_device_enter(&device), FA2_OK);
    CHECK_EQ(device.cuda->stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQ(fa2i_grid_of(&device.card, &loaded.variant, &problem, &grid), FA2_OK);
    fake_trace_clear();
    CHECK_EQ(fa2i_launch_forward(&device, &loaded, &grid, &problem, &args, stream), FA2_OK);
    CHECK_STR(fake.trace, "launch_kernel ");

    const fake_launch *launch = &fake.launches[0];
    const fa2i_forward_params *p = &launch->params;
    CHECK_EQ(fake.launch_count, 1);
    CHECK_STR(launch->function, "fwd_sm80");
    CHECK_STR(launch->source, "text of the kernel");
    CHECK_EQ(launch->blocks, 2 * 8 * 2); /* two tiles of 64 rows for 100 rows */
    CHECK_EQ(launch->threads, 128);
    CHECK_EQ(launch->smem_bytes, 65536);
    CHECK(launch->stream == stream);
    CHECK_EQ(p->q, 0x10000);
    CHECK_EQ(p->k, 0x20000);
    CHECK_EQ(p->v, 0x30000);
    CHECK_EQ(p->o, 0x40000);
    CHECK_EQ(p->lse, (uintptr_t)&lse);
    CHECK_EQ(p->q_stride[0], 51200);
    CHECK_EQ(p->q_stride[1], 512);
    CHECK_EQ(p->q_stride[2], 64);
    CHECK_EQ(p->k_stride[0], 25600);
    CHECK_EQ(p->v_stride[1], 128);
    CHECK_EQ(p->o_stride[2], 64);
    CHECK_EQ(p->seq_q, 100);
    CHECK_EQ(p->seq_k, 200);
    CHECK_EQ(p->heads_q, 8);
    CHECK_EQ(p->group, 4);
    CHECK_EQ(p->q_tiles, 2);
    CHECK_EQ(p->splits, 1);
    CHECK_EQ(p->batch, problem.batch);
    CHECK_EQ(p->partial, 0);
    CHECK(p->scale == 0.125f);
    CHECK(fabsf(p->scale_log2 - 0.18033688f) < 1e-7f);

    args.softmax_scale = 0.5f;
    CHECK_EQ(fa2i_launch_forward(&device, &loaded, &grid, &problem, &args, stream), FA2_OK);
    CHECK(fake.launches[1].params.scale == 0.5f);
    CHECK(fabsf(fake.launches[1].params.scale_log2 - 0.72134752f) < 1e-6f);
    CHECK_EQ(device.cuda->stream_destroy(stream), CUDA_SUCCESS);
    fa2i_device_leave(&device);
    fa2i_unload(&device, &loaded);
    fa2i_device_close(&device);
    fa2i_kernel_done(&kernel);
    CHECK_EQ(fake_live(), 0);
}

/* A family that splits: two kernels, and the parts of the workspace. */
static void test_split_launch(void)
{
    fa2i_device device = {0};
    fa2i_loaded loaded = {0};
    fa2i_grid grid;
    fa2_forward_args args = good_args();
    fake_install();
    fa2i_kernel kernel = artifact("sm_86");
    kernel.variant.recipe = split_recipe("fwd_sm80", 128, 64, 16, 65536, 4);
    CHECK_EQ(fa2i_device_open(0, &device), FA2_OK);
    CHECK_EQ(fa2i_load(&device, &kernel, &loaded, NULL), FA2_OK);
    CHECK(loaded.combine != NULL);
    CHECK_EQ(fa2i_grid_of(&device.card, &loaded.variant, &problem, &grid), FA2_OK);
    CHECK(grid.splits > 1);
    args.workspace = (void *)0x100000;
    args.workspace_bytes = grid.workspace_bytes;
    CHECK_EQ(fa2i_device_enter(&device), FA2_OK);
    CHECK_EQ(fa2i_launch_forward(&device, &loaded, &grid, &problem, &args, NULL), FA2_OK);
    CHECK_EQ(fake.launch_count, 2);
    CHECK_EQ(fake.launches[0].blocks, grid.blocks);
    CHECK_EQ(fake.launches[0].params.splits, grid.splits);
    CHECK_EQ(fake.launches[0].params.partial, 0x100000);
    CHECK_EQ(fake.launches[0].params.partial_lse, 0x100000 + grid.partial_bytes);
    CHECK_STR(fake.launches[1].function, "fwd_sm80_combine");
    CHECK_EQ(fake.launches[1].blocks, grid.combine_blocks);
    CHECK_EQ(fake.launches[1].threads, 128);
    fa2i_device_leave(&device);
    fa2i_unload(&device, &loaded);
    fa2i_device_close(&device);
    fa2i_kernel_done(&kernel);
    CHECK_EQ(fake_live(), 0);
}

/* ---- arguments ---- */

static void check_bad(const fa2_forward_args *args, const char *said)
{
    CHECK_EQ(fa2i_forward_args_check(&problem, args), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), said);
}

static void test_bad_strides(void)
{
    static const struct {
        size_t offset;
        int64_t value;
        const char *said;
    } bad[] = {
        {offsetof(fa2_forward_args, q.stride_seq), 60,
         "q.stride_seq is 60; it must be a multiple of 8 elements"},
        {offsetof(fa2_forward_args, q.stride_batch), -51200,
         "q.stride_batch is -51200; it must be at least 0"},
        {offsetof(fa2_forward_args, k.stride_seq), 0, "k.stride_seq is 0; it must be at least 64"},
        {offsetof(fa2_forward_args, k.stride_head), 68, "k.stride_head is 68"},
        {offsetof(fa2_forward_args, v.stride_batch), 4, "v.stride_batch is 4"},
        {offsetof(fa2_forward_args, v.stride_seq), -8, "v.stride_seq is -8"},
        {offsetof(fa2_forward_args, o.stride_batch), 0,
         "o.stride_batch is 0; it must be at least 64"},
        {offsetof(fa2_forward_args, o.stride_head), 56, "o.stride_head is 56"},
        {offsetof(fa2_forward_args, o.stride_seq), INT64_MAX, "o.stride_seq is 92233720368547758"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fa2_forward_args args = good_args();
        memcpy((char *)&args + bad[i].offset, &bad[i].value, sizeof bad[i].value);
        check_bad(&args, bad[i].said);
    }
}

static void test_bad_pointers(void)
{
    static const struct {
        size_t offset;
        uintptr_t value;
        const char *said;
    } bad[] = {
        {offsetof(fa2_forward_args, q.data), 0, "q.data is NULL"},
        {offsetof(fa2_forward_args, k.data), 0x20008,
         "k.data is 0x20008; it must be a multiple of 16 bytes"},
        {offsetof(fa2_forward_args, v.data), 0, "v.data is NULL"},
        {offsetof(fa2_forward_args, o.data), 0x40002, "o.data is 0x40002"},
        {offsetof(fa2_forward_args, lse), 0x50002, "lse is 0x50002; it must be a multiple of 4"},
        {offsetof(fa2_forward_args, workspace), 0x60080, "it must be a multiple of 256 bytes"},
        {offsetof(fa2_forward_args, workspace_bytes), 512,
         "workspace is NULL, but workspace_bytes is 512"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fa2_forward_args args = good_args();
        memcpy((char *)&args + bad[i].offset, &bad[i].value, sizeof bad[i].value);
        check_bad(&args, bad[i].said);
    }
    CHECK_EQ(fa2i_forward_args_check(&problem, NULL), FA2_E_INVALID);
}

static void test_bad_scale(void)
{
    static const float bad[] = {-1.0f, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fa2_forward_args args = good_args();
        args.softmax_scale = bad[i];
        check_bad(&args, "softmax_scale is");
    }
}

static void test_good_args(void)
{
    fa2_forward_args args = good_args();
    CHECK_EQ(fa2i_forward_args_check(&problem, &args), FA2_OK);
    args.k.stride_batch = args.v.stride_head = 0; /* one K for all batches, one V for all heads */
    args.workspace = (void *)0x60000;
    args.workspace_bytes = 512;
    args.softmax_scale = 0.3f;
    CHECK_EQ(fa2i_forward_args_check(&problem, &args), FA2_OK);

    fa2_problem single = {
        .batch = 1, .heads_q = 1, .heads_kv = 1, .seq_q = 1, .seq_k = 1, .head_dim = 64};
    args = good_args();
    args.q.stride_batch = args.k.stride_seq = args.o.stride_head = -3; /* never used */
    CHECK_EQ(fa2i_forward_args_check(&single, &args), FA2_OK);
}

int main(void)
{
    variant.recipe = plain_recipe("fwd_sm80", 128, 64, 64, 65536);
    test_load();
    test_load_refused();
    test_nth_failure();
    test_launch();
    test_split_launch();
    test_bad_strides();
    test_bad_pointers();
    test_bad_scale();
    test_good_args();
    fake_uninstall();
    return check_done();
}
