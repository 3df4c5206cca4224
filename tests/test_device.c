/*
 * runtime/device on the fake driver: which device and context it uses, the messages if there is none, and the driver
 * calls of entering and leaving.
 */
#include "check.h"
#include "fake_cuda.h"
#include "runtime/cuda/device.h"

static void test_card(void)
{
    fa2i_device device = {0};
    fake_install();
    CHECK_EQ(fa2i_device_open(0, &device), FA2_OK);
    CHECK_STR(device.card.name, "Fake RTX 3060");
    CHECK_EQ(device.card.arch, 86);
    CHECK_EQ(device.card.sm_count, 28);
    CHECK_EQ(device.card.smem_block_bytes, 101376);
    CHECK_EQ(device.card.smem_sm_bytes, 102400);
    CHECK_EQ(device.card.l2_bytes, 2359296);
    CHECK_EQ(device.card.clock_khz, 1777000);
    CHECK_EQ(device.card.bandwidth_bytes, 360048000000);
    CHECK(!device.card.generic); /* its driver has tensor maps */
    CHECK_EQ(device.ordinal, 0);
    CHECK_EQ(device.driver, 13000);
    CHECK(device.retained);
    CHECK_EQ(fake_live(), 1);
    fa2i_device_close(&device);
    CHECK_EQ(fake_live(), 0);
    fa2i_device_close(&device); /* zeroed: nothing happens */

    fake.devices[1].memory_clock_khz = 0;
    CHECK_EQ(fa2i_device_open(2, &device), FA2_OK);
    CHECK_STR(device.card.name, "Fake T4");
    CHECK_EQ(device.card.bandwidth_bytes, 0);
    CHECK_EQ(device.ordinal, 1);
    fa2i_device_close(&device);
}

static void test_no_device(void)
{
    fa2i_device device = {0};
    fake_install();
    CHECK_EQ(fa2i_device_open(4, &device), FA2_E_NO_DEVICE);
    CHECK_STR(fa2_last_message(), "there is no CUDA device 3: there are 2, counted from 0");
    CHECK_EQ(fa2i_device_open(-1, &device), FA2_E_NO_DEVICE);
    fake.device_count = 1;
    CHECK_EQ(fa2i_device_open(2, &device), FA2_E_NO_DEVICE);
    CHECK_STR(fa2_last_message(), "there is no CUDA device 1: there is 1, counted from 0");
    fake.device_count = 0;
    CHECK_EQ(fa2i_device_open(0, &device), FA2_E_NO_DEVICE);
    CHECK_STR(fa2_last_message(), "the CUDA driver sees no device");
    CHECK(device.cuda == NULL);
}

static void test_old_device(void)
{
    fa2i_device device = {0};
    fake_install();
    fake.devices[1].arch = 70;
    CHECK_EQ(fa2i_device_open(2, &device), FA2_E_UNSUPPORTED);
    CHECK_STR(fa2_last_message(), "device 1 (Fake T4) has compute capability 7.0; fa2 needs 7.5 or newer");
    CHECK_EQ(fake_live(), 0);
}

/* The host program's context is used without retaining it, and stays as it is. */
static void test_borrowed_context(void)
{
    fa2i_device device = {0};
    fake_install();
    const CUcontext mine = fake_context_push(1);
    CHECK_EQ(fa2i_device_open(0, &device), FA2_OK);
    CHECK(device.context == mine);
    CHECK_EQ(device.ordinal, 1);
    CHECK(!device.retained);
    fa2i_device_close(&device);

    CHECK_EQ(fa2i_device_open(1, &device), FA2_OK); /* asked for device 0 by number */
    CHECK(device.context != mine);
    CHECK(device.retained);
    fa2i_device_close(&device);
    fake_context_pop(mine);
    CHECK_EQ(fake_live(), 0);
}

static void test_enter_leave(void)
{
    fa2i_device first = {0}, second = {0};
    CUcontext current = NULL;
    fake_install();
    CHECK_EQ(fa2i_device_open(1, &first), FA2_OK);
    CHECK_EQ(fa2i_device_open(2, &second), FA2_OK);
    CHECK_EQ(fa2i_device_enter(&first), FA2_OK);
    fake_trace_clear();
    CHECK_EQ(fa2i_device_enter(&first), FA2_OK);
    fa2i_device_leave(&first);
    CHECK_STR(fake.trace, "ctx_get_current "); /* no push, no pop */
    CHECK_EQ(fa2i_device_enter(&second), FA2_OK);
    first.cuda->ctx_get_current(&current);
    CHECK(current == second.context);
    fa2i_device_leave(&second);
    first.cuda->ctx_get_current(&current);
    CHECK(current == first.context);
    fa2i_device_leave(&first);
    first.cuda->ctx_get_current(&current);
    CHECK(current == NULL);

    fake_fail_driver(2, CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(fa2i_device_enter(&first), FA2_E_CUDA); /* after a failed enter there is no leave */
    CHECK_CONTAINS(fa2_last_message(), "cuCtxPushCurrent: CUDA_ERROR_INVALID_CONTEXT");
    fa2i_device_close(&first);
    fa2i_device_close(&second);
    CHECK_EQ(fake_live(), 0);
}

int main(void)
{
    test_card();
    test_no_device();
    test_old_device();
    test_borrowed_context();
    test_enter_leave();
    fake_uninstall();
    return check_done();
}
