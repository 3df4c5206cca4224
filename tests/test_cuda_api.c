/*
 * runtime/cuda_api: messages about a library that is missing, too old or does not start; the tables of an existing
 * library. The test uses only libraries that every machine has: names that do not exist, and libc instead of CUDA.
 */
#include <stdlib.h>
#include "check.h"
#include "fake_cuda.h"

static void test_driver_missing(void)
{
    const fa2i_cuda_table *cuda = NULL;
    fa2i_cuda_install(NULL);
    setenv("FA2_CUDA_LIBRARY", "/nowhere/libcuda.so.1", 1);
    CHECK_EQ(fa2i_cuda_get(&cuda), FA2_E_NO_DRIVER);
    CHECK(cuda == NULL);
    CHECK_CONTAINS(fa2_last_message(), "/nowhere/libcuda.so.1 (cannot open shared object file");
    CHECK_CONTAINS(fa2_last_message(), "FA2_CUDA_LIBRARY");
    CHECK_STR(fa2i_cuda_path(), "");
}

/* libc.so.6 loads, but has nothing of CUDA. */
static void test_driver_incomplete(void)
{
    const fa2i_cuda_table *cuda = NULL;
    setenv("FA2_CUDA_LIBRARY", "libc.so.6", 1);
    CHECK_EQ(fa2i_cuda_get(&cuda), FA2_E_NO_DRIVER);
    CHECK(cuda == NULL);
    CHECK(strncmp(fa2_last_message(), "/", 1) == 0); /* the path of the file that was found */
    CHECK_CONTAINS(fa2_last_message(), "/libc.so.6 has no function cuInit");
    CHECK_CONTAINS(fa2_last_message(), "; FA2_CUDA_LIBRARY can name another");
    unsetenv("FA2_CUDA_LIBRARY");
}

/* Without the variable, the message contains every name that was tried. */
static void test_driver_names(void)
{
    const fa2i_cuda_table *cuda = NULL;
    const fa2_status st = fa2i_cuda_get(&cuda);
    if (st == FA2_OK || strstr(fa2_last_message(), "tried") == NULL) {
        fprintf(stderr, "this machine has a CUDA driver: the list of names is not tested\n");
        return;
    }
    CHECK_EQ(st, FA2_E_NO_DRIVER);
    CHECK_CONTAINS(fa2_last_message(), "libcuda.so.1 (");
    CHECK_CONTAINS(fa2_last_message(), "/usr/lib/wsl/lib/libcuda.so.1 (");
}

static void test_driver_does_not_start(void)
{
    const fa2i_cuda_table *cuda = NULL;
    fake_install();
    fake_fail_driver(1, CUDA_ERROR_UNKNOWN);
    CHECK_EQ(fa2i_cuda_get(&cuda), FA2_E_NO_DRIVER);
    CHECK_STR(fa2_last_message(), "the CUDA driver does not start: cuInit: CUDA_ERROR_UNKNOWN "
                                  "(said by the fake driver)");
    fake_fail_driver(1, CUDA_ERROR_NO_DEVICE);
    CHECK_EQ(fa2i_cuda_get(&cuda), FA2_E_NO_DEVICE);
    CHECK(cuda == NULL);

    CHECK_EQ(fa2i_cuda_get(&cuda), FA2_OK); /* the failure is not remembered */
    const fa2i_cuda_table *again = NULL;
    fake_trace_clear();
    CHECK_EQ(fa2i_cuda_get(&again), FA2_OK);
    CHECK(cuda != NULL && cuda == again);
    CHECK_STR(fake.trace, ""); /* an existing table costs no driver call */
    fake_uninstall();
}

static void test_check(void)
{
    const fa2i_cuda_table *cuda = NULL;
    fake_install();
    CHECK_EQ(fa2i_cuda_get(&cuda), FA2_OK);
    CHECK_EQ(fa2i_cuda_check(cuda, CUDA_SUCCESS, "cuThing"), FA2_OK);
    CHECK_EQ(fa2i_cuda_check(cuda, CUDA_ERROR_OUT_OF_MEMORY, "cuThing"), FA2_E_CUDA);
    CHECK_STR(fa2_last_message(), "cuThing: CUDA_ERROR_OUT_OF_MEMORY (said by the fake driver)");
    CHECK_EQ(fa2i_cuda_check(cuda, (CUresult)12345, "cuThing"), FA2_E_CUDA);
    CHECK_STR(fa2_last_message(), "cuThing: CUDA error 12345");
    fake_uninstall();
}

static void test_nvrtc_missing(void)
{
    const fa2i_nvrtc_table *nvrtc = NULL;
    fa2i_nvrtc_install(NULL);
    setenv("FA2_NVRTC_LIBRARY", "libnvrtc-of-nowhere.so", 1);
    CHECK_EQ(fa2i_nvrtc_get(&nvrtc), FA2_E_NO_NVRTC);
    CHECK_CONTAINS(fa2_last_message(), "libnvrtc-of-nowhere.so (cannot open");
    CHECK_CONTAINS(fa2_last_message(), "FA2_NVRTC_LIBRARY");
    setenv("FA2_NVRTC_LIBRARY", "libc.so.6", 1);
    CHECK_EQ(fa2i_nvrtc_get(&nvrtc), FA2_E_NO_NVRTC);
    CHECK(strncmp(fa2_last_message(), "/", 1) == 0);
    CHECK_CONTAINS(fa2_last_message(), "/libc.so.6 has no function nvrtcVersion");
    CHECK_CONTAINS(fa2_last_message(), "; FA2_NVRTC_LIBRARY can name another");
    CHECK(nvrtc == NULL);
    CHECK_STR(fa2i_nvrtc_path(), "");
    unsetenv("FA2_NVRTC_LIBRARY");
}

/* Loads the real NVRTC if there is one. Otherwise the message contains all names. */
static void test_nvrtc_here(void)
{
    const fa2i_nvrtc_table *nvrtc = NULL;
    setenv("CUDA_HOME", "/nowhere/cuda", 1);
    setenv("VIRTUAL_ENV", "/nowhere/venv", 1);
    if (fa2i_nvrtc_get(&nvrtc) == FA2_OK) {
        int major = 0, minor = 0;
        CHECK_EQ(nvrtc->version(&major, &minor), NVRTC_SUCCESS);
        CHECK(major >= 12);
        CHECK_CONTAINS(fa2i_nvrtc_path(), "libnvrtc");
        return;
    }
    fprintf(stderr, "no NVRTC here: loading the real one is not tested\n");
    CHECK_CONTAINS(fa2_last_message(), "libnvrtc.so.13 (");
    CHECK_CONTAINS(fa2_last_message(), "libnvrtc.so.12 (");
    CHECK_CONTAINS(fa2_last_message(), "/nowhere/cuda/lib64/libnvrtc.so.13 (");
    CHECK_CONTAINS(fa2_last_message(), "/usr/local/cuda/lib64/libnvrtc.so.12 (");
    CHECK_CONTAINS(fa2_last_message(), "/nowhere/venv/lib/python3.*/site-packages/nvidia/cu13");
}

int main(void)
{
    test_driver_missing();
    test_driver_incomplete();
    test_driver_names();
    test_driver_does_not_start();
    test_check();
    test_nvrtc_missing();
    test_nvrtc_here();
    return check_done();
}
