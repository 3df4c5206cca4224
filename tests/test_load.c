/*
 * Loading on the fake driver: the driver calls, step by step, each of which fails once, and kernels that are refused.
 */
#include "launch_fixture.h"

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
    CHECK_STR(loaded.variant.text, kernel.variant.text);
    CHECK_CONTAINS(fake.trace, "func_load");
    fa2i_unload(&device, &loaded);
    fa2i_unload(&device, &loaded); /* zeroed: nothing happens */

    fa2i_device_close(&device);
    CHECK_EQ(fake_live(), 0);

    fake_without_optional(true); /* an older driver finishes the code while loading */
    fake_install();
    CHECK_EQ(fa2i_device_open(0, &device), FA2_OK);
    CHECK_EQ(fa2i_load(&device, &kernel, &loaded, NULL), FA2_OK);
    fa2i_unload(&device, &loaded);
    fake_without_optional(false);
    fa2i_device_close(&device);
    fa2i_kernel_done(&kernel);
    CHECK_EQ(fake_live(), 0);
}

/* Kernels that cannot be loaded, and the messages. */
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
    cubin.variant.recipe = plain_recipe("fwd_other", 128, 64, 64, 1024);
    CHECK_EQ(fa2i_load(&device, &cubin, &loaded, &result), FA2_E_CUDA);
    CHECK_EQ(result, CUDA_ERROR_NOT_FOUND);
    CHECK_CONTAINS(fa2_last_message(), "entry point fwd_other: cuModuleGetFunction: CUDA_ERROR_NOT_FOUND");

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

/* Opens, loads, launches, unloads and closes. */
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
    FA2_TRY(fa2i_op_of(&problem)->grid(&device.card, &loaded.variant.recipe, &problem, &grid));
    FA2_TRY(fa2i_launch(&device, &loaded, &grid, &problem, &args, NULL));
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
    kernel.variant.recipe = split_recipe("fwd_sm80", 128, 64, 16, 65536, 4);
    CHECK_EQ(whole_way(&kernel), FA2_OK);
    const long calls = fake_fail_driver(0, CUDA_SUCCESS);
    CHECK(calls > 30);
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
    /* Failures while leaving (twice), unloading (enter: 2, unload, leave) and closing are ignored. If the context
     * cannot be entered for unloading, its module stays until the context is released. */
    CHECK_EQ(calls - failed, 7);
    CHECK_EQ(shut_out, 2);
    fa2i_kernel_done(&kernel);
}

/* Each step is checked separately: a step that needs too much is named, and nothing is launched. */
static void test_step_refused(void)
{
    fa2i_device device = {0};
    fa2i_loaded loaded = {0};
    fake_install();
    fa2i_kernel kernel = artifact("sm_86");
    kernel.variant.recipe = split_recipe("fwd_sm80", 128, 64, 16, 65536, 4);
    kernel.variant.recipe.steps[1].smem_bytes = 101377;
    CHECK_EQ(fa2i_device_open(0, &device), FA2_OK);
    CHECK_EQ(fa2i_load(&device, &kernel, &loaded, NULL), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "fwd_sm80_combine needs 101377 bytes of shared memory");
    kernel.variant.recipe.steps[1].smem_bytes = 0;
    snprintf(kernel.variant.recipe.steps[1].entry, FA2I_ENTRY_CHARS, "fwd_sm80_other");
    CHECK_EQ(fa2i_load(&device, &kernel, &loaded, NULL), FA2_E_CUDA);
    CHECK_CONTAINS(fa2_last_message(), "entry point fwd_sm80_other");
    CHECK(loaded.module == NULL);
    fa2i_device_close(&device);
    fa2i_kernel_done(&kernel);
    CHECK_EQ(fake_live(), 0);
}

int main(void)
{
    test_load();
    test_load_refused();
    test_nth_failure();
    test_step_refused();
    fake_uninstall();
    return check_done();
}
