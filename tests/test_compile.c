/* Compiling with the fake NVRTC: the calls, and every failure. test_compile_real uses the real one. */
#include <locale.h>
#include <stdlib.h>
#include "check.h"
#include "compile_fixture.h"
#include "fake_cuda.h"
#include "recipe_fixture.h"
#include "runtime/base/alloc.h"
#include "runtime/cuda/compile.h"

static void test_target(void)
{
    fa2i_target target = {0};
    fake_install();
    CHECK_EQ(fa2i_target_for(86, false, &target), FA2_OK);
    CHECK_STR(target.name, "sm_86");
    CHECK(!target.ptx);
    CHECK_EQ(fa2i_target_for(75, true, &target), FA2_OK);
    CHECK_STR(target.name, "compute_75");
    CHECK(target.ptx);
    CHECK_EQ(fa2i_target_for(88, false, &target), FA2_OK); /* an SM that the fake does not know */
    CHECK_STR(target.name, "compute_87");
    CHECK_EQ(fa2i_target_for(121, false, &target), FA2_OK);
    CHECK_STR(target.name, "compute_90");
    CHECK_EQ(fa2i_target_for(70, false, &target), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "sm_70");
    CHECK_CONTAINS(fa2_last_message(), "sm_75");
    CHECK_EQ(fa2i_target_for(-3, false, &target), FA2_E_INVALID);
    CHECK_STR(target.name, "compute_90"); /* failures do not change it */
}

static void test_key(void)
{
    fa2i_key key, other;
    const fa2i_target ptx = {.name = "compute_86", .ptx = true};
    fake_install();
    CHECK_EQ(fa2i_compile_key(&variant, source, &sm_86, &key), FA2_OK);
    CHECK_EQ(fa2i_compile_key(&variant, source, &sm_86, &other), FA2_OK);
    CHECK(memcmp(&key, &other, sizeof key) == 0);
    CHECK_EQ(fa2i_compile_key(&variant, source + 1, &sm_86, &other), FA2_OK);
    CHECK(memcmp(&key, &other, sizeof key) != 0);
    CHECK_EQ(fa2i_compile_key(&variant, source, &ptx, &other), FA2_OK);
    CHECK(memcmp(&key, &other, sizeof key) != 0);
    fa2i_variant launched_otherwise = variant;
    snprintf(launched_otherwise.recipe.text, FA2I_RECIPE_CHARS, "waves=2");
    CHECK_EQ(fa2i_compile_key(&launched_otherwise, source, &sm_86, &other), FA2_OK);
    CHECK(memcmp(&key, &other, sizeof key) != 0);
    fa2i_variant of_other_class = variant;
    snprintf(of_other_class.class_key, sizeof of_other_class.class_key, "D=64 dtype=bf16");
    CHECK_EQ(fa2i_compile_key(&of_other_class, source, &sm_86, &other), FA2_OK);
    CHECK(memcmp(&key, &other, sizeof key) != 0);
    fa2i_variant suffixed = variant;
    snprintf(suffixed.recipe.suffix, sizeof suffixed.recipe.suffix, "a");
    CHECK_EQ(fa2i_compile_key(&suffixed, source, &sm_86, &other), FA2_OK);
    CHECK(memcmp(&key, &other, sizeof key) != 0);
    fake.nvrtc_version = 12080;
    CHECK_EQ(fa2i_compile_key(&variant, source, &sm_86, &other), FA2_OK);
    CHECK(memcmp(&key, &other, sizeof key) != 0);
}

static void test_outcomes(void)
{
    fa2i_kernel kernel = {0};
    fa2i_key key;
    fake_install();
    CHECK_EQ(fa2i_compile(&variant, source, &sm_86, "0123456789abcdef", &kernel), FA2_OK);
    CHECK_EQ(fa2i_compile_key(&variant, source, &sm_86, &key), FA2_OK);
    CHECK(memcmp(&key, &kernel.key, sizeof key) == 0);
    CHECK_EQ(kernel.outcome, FA2I_OUTCOME_OK);
    CHECK_STR(kernel.target, "sm_86");
    CHECK_STR(kernel.generator, "0123456789abcdef");
    CHECK_STR(kernel.variant.text, variant.text);
    CHECK_EQ(kernel.nvrtc, 13000);
    CHECK_EQ(kernel.registers, 128);
    CHECK(kernel.image.bytes > sizeof source);
    CHECK_STR(fake.options, "--gpu-architecture=sm_86 --std=c++17 -default-device "
                            "--ptxas-options=-v --no-cache");
    fa2i_kernel_done(&kernel);

    fake.spill_stores = 8;
    fake.spill_loads = 12;
    CHECK_EQ(fa2i_compile(&variant, source, &sm_86, "", &kernel), FA2_OK);
    CHECK_EQ(kernel.outcome, FA2I_OUTCOME_SPILLED);
    CHECK_EQ(kernel.spill_bytes, 20);
    CHECK(kernel.image.bytes > 0);
    fa2i_kernel_done(&kernel);

    fake.rejected = "threadIdx";
    CHECK_EQ(fa2i_compile(&variant, source, &sm_86, "", &kernel), FA2_OK);
    CHECK_EQ(kernel.outcome, FA2I_OUTCOME_COMPILE_ERROR);
    CHECK_CONTAINS(kernel.log, "told to reject");
    CHECK(kernel.image.data == NULL);
    fa2i_kernel_done(&kernel);
    CHECK_EQ(fake_live(), 0);
}

static void test_ptx(void)
{
    const fa2i_target ptx = {.name = "compute_90", .ptx = true};
    fa2i_kernel kernel = {0};
    fake_install();
    fake.nvrtc_version = 12080;
    CHECK_EQ(fa2i_compile(&variant, source, &ptx, "", &kernel), FA2_OK);
    CHECK_STR(fake.options, "--gpu-architecture=compute_90 --std=c++17 -default-device");
    CHECK_EQ(kernel.registers, 0);
    CHECK(kernel.log == NULL);
    fa2i_kernel_done(&kernel);
}

/* If the compiler refuses options, or does not find its builtins, that is no result about a kernel. */
static void refuse(fake_compilation *compilation, void *user)
{
    compilation->result = *(const nvrtcResult *)user;
    compilation->log = "said by the compiler";
}

/* Products that ptxas serialises are as bad as a spill. So is a stack frame. */
static const char *logs[] = {
    "ptxas info    : (C7512) Potential Performance Loss: wgmma.mma_async instructions are "
    "serialized "
    "due to insufficient register resources for the function 'fwd_sm90'\n"
    "ptxas info    : Used 168 registers\n",
    "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine "
    "register count at entry.\nptxas info    : Used 168 registers\n",
    "ptxas info    : (C7519) warpgroup.wait is injected in around line 712 by compiler to allow "
    "use of "
    "registers defined by GMMA in function 'fwd_sm90'\nptxas info    : Used 168 registers\n",
    "\n    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 168 registers, 16 bytes cumulative stack size\n",
    "\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 168 registers\n", /* the last log is a good one */
};

static void say(fake_compilation *compilation, void *user)
{
    compilation->log = *(const char **)user;
}

static void test_serialized(void)
{
    fa2i_kernel kernel = {0};
    fa2i_variant of_one_sm = variant;
    fake_install();
    fake.on_compile = say;
    strcpy(of_one_sm.recipe.suffix, "a");
    const size_t count = sizeof logs / sizeof *logs;
    for (size_t i = 0; i < count; i++) {
        fake.on_compile_user = &logs[i];
        CHECK_EQ(fa2i_compile(&of_one_sm, source, &(fa2i_target){.name = "sm_90"}, "", &kernel), FA2_OK);
        CHECK_CONTAINS(fake.options, "--gpu-architecture=sm_90a ");
        CHECK_STR(kernel.target, "sm_90");
        CHECK_EQ(kernel.outcome, i < count - 1 ? FA2I_OUTCOME_SPILLED : FA2I_OUTCOME_OK);
        CHECK(kernel.registers == 168 && kernel.spill_bytes == 0);
        fa2i_kernel_done(&kernel);
    }
}

/* A compiler that knows no code for one SM alone (sm_90a) is not asked for it. */
static void test_old_for_suffix(void)
{
    const fa2i_target sm_90 = {.name = "sm_90"};
    fa2i_kernel kernel = {0};
    fa2i_variant of_one_sm = variant;
    fake_install();
    fake.nvrtc_version = 11080;
    CHECK_EQ(fa2i_compile_check(&variant, &sm_90), FA2_OK);
    strcpy(of_one_sm.recipe.suffix, "a");
    CHECK_EQ(fa2i_compile_check(&of_one_sm, &sm_90), FA2_E_UNSUPPORTED);
    CHECK_EQ(fa2i_compile(&of_one_sm, source, &sm_90, "", &kernel), FA2_OK);
    CHECK_EQ(fake.compile_count, 0);
    CHECK_EQ(kernel.outcome, FA2I_OUTCOME_COMPILE_ERROR);
    CHECK_CONTAINS(kernel.log, "NVRTC 11.8 compiles nothing for sm_90a; it must be 12.0 or newer");
    fa2i_kernel_done(&kernel);
    fake.nvrtc_version = 12000;
    CHECK_EQ(fa2i_compile_check(&of_one_sm, &sm_90), FA2_OK);
}

static void test_compiler_broken(void)
{
    static const struct {
        nvrtcResult result;
        fa2_status status;
        const char *said;
    } cases[] = {
        {NVRTC_ERROR_INVALID_OPTION, FA2_E_COMPILE, "NVRTC_ERROR_INVALID_OPTION"},
        {NVRTC_ERROR_BUILTIN_OPERATION_FAILURE, FA2_E_NO_NVRTC, "builtins"},
        {NVRTC_ERROR_OUT_OF_MEMORY, FA2_E_MEMORY, "NVRTC_ERROR_OUT_OF_MEMORY"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fa2i_kernel kernel = {0};
        nvrtcResult result = cases[i].result;
        fake_install();
        fake.on_compile = refuse;
        fake.on_compile_user = &result;
        CHECK_EQ(fa2i_compile(&variant, source, &sm_86, "", &kernel), cases[i].status);
        CHECK_CONTAINS(fa2_last_message(), "compiling fwd_sm80 d=64 for sm_86: ");
        CHECK_CONTAINS(fa2_last_message(), cases[i].said);
        CHECK_CONTAINS(fa2_last_message(), "said by the compiler");
        CHECK(kernel.image.data == NULL && kernel.log == NULL);
        CHECK_EQ(fake_live(), 0);
    }
}

/* If the compiler crashes on a source, the kernel counts as one that does not compile. */
static void test_internal_error(void)
{
    fa2i_kernel kernel = {0};
    nvrtcResult result = NVRTC_ERROR_INTERNAL_ERROR;
    fake_install();
    fake.on_compile = refuse;
    fake.on_compile_user = &result;
    CHECK_EQ(fa2i_compile(&variant, source, &sm_86, "", &kernel), FA2_OK);
    CHECK_EQ(kernel.outcome, FA2I_OUTCOME_COMPILE_ERROR);
    CHECK_CONTAINS(kernel.log, "NVRTC_ERROR_INTERNAL");
    CHECK_CONTAINS(kernel.log, "said by the compiler");
    CHECK(kernel.image.data == NULL);
    fa2i_kernel_done(&kernel);
    CHECK_EQ(fake_live(), 0);
}

/* Finds a target and compiles. Each NVRTC call, then each allocation fails in turn: the failure is reported, and
 * everything is released. */
static fa2_status compile_once(void)
{
    fa2i_target target;
    fa2i_kernel kernel = {0};
    fa2_status st = fa2i_target_for(86, false, &target);
    if (st == FA2_OK)
        st = fa2i_compile(&variant, source, &target, "", &kernel);
    fa2i_kernel_done(&kernel);
    return st;
}

static void test_nth_failure(void)
{
    fake_install();
    CHECK_EQ(compile_once(), FA2_OK);
    const long calls = fake_fail_nvrtc(0, NVRTC_SUCCESS);
    CHECK_EQ(calls, 11);
    for (long nth = 1; nth <= calls; nth++) {
        fake_install();
        fake_fail_nvrtc(nth, NVRTC_ERROR_INTERNAL_ERROR);
        /* The last call destroys the program; its failure is ignored. */
        CHECK_EQ(compile_once(), nth < calls ? FA2_E_COMPILE : FA2_OK);
        CHECK_EQ(fake_live(), 0);
    }
    fake_install();
    fa2i_alloc_fail_at(0);
    CHECK_EQ(compile_once(), FA2_OK);
    const long requests = fa2i_alloc_fail_at(0);
    CHECK_EQ(requests, 2);
    for (long nth = 1; nth <= requests; nth++) {
        fa2i_alloc_fail_at(nth);
        CHECK_EQ(compile_once(), FA2_E_MEMORY);
        CHECK_CONTAINS(fa2_last_message(), "out of memory");
        CHECK_EQ(fake_live(), 0);
    }
    fa2i_alloc_fail_at(0);
}

/* While the compiler runs, the thread has a locale that is neither its own nor the process's. Afterwards it has its own
 * again. */
static void note_locale(fake_compilation *compilation, void *user)
{
    (void)compilation;
    *(locale_t *)user = uselocale((locale_t)0);
}

static void test_locale(void)
{
    locale_t seen = (locale_t)0;
    fa2i_kernel kernel = {0};
    fake_install();
    const locale_t before = uselocale((locale_t)0);
    const locale_t mine = newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0);
    CHECK(mine != (locale_t)0);
    uselocale(mine);
    fake.on_compile = note_locale;
    fake.on_compile_user = &seen;
    CHECK_EQ(fa2i_compile(&variant, source, &sm_86, "", &kernel), FA2_OK);
    CHECK(seen != (locale_t)0 && seen != mine && seen != LC_GLOBAL_LOCALE);
    CHECK(uselocale((locale_t)0) == mine);
    uselocale(before);
    freelocale(mine);
    fa2i_kernel_done(&kernel);
}

int main(void)
{
    test_target();
    test_key();
    test_outcomes();
    test_ptx();
    test_serialized();
    test_old_for_suffix();
    test_compiler_broken();
    test_internal_error();
    test_nth_failure();
    test_locale();
    fake_uninstall();
    return check_done();
}
