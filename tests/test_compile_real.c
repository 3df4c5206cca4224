/* Compiling with the real NVRTC. Skipped if there is none. */
#include "check.h"
#include "compile_fixture.h"
#include "recipe_fixture.h"
#include "runtime/base/alloc.h"
#include "runtime/cuda/compile.h"
#include "runtime/cuda/cuda_api.h"
#include "runtime/cuda/image.h"

/* A text without a kernel compiles, but gives no kernel. Neither does a kernel of another name, or a mere declaration.
 * */
static void test_real_entries(bool ptx)
{
    static const struct {
        const char *source;
        int waves;
        const char *missing; /* NULL: none */
    } cases[] = {
        {"", 0, "fwd_sm80:"},
        {"// extern \"C\" __global__ void fwd_sm80() {}\n", 0, "fwd_sm80:"},
        {"extern \"C\" __global__ void fwd_sm80_other() {}\n", 0, "fwd_sm80:"},
        {"extern \"C\" __global__ void fwd_sm80() {}\n", 0, NULL},
        {"extern \"C\" __global__ void fwd_sm80() {}\n", 2, "fwd_sm80_combine:"},
        {"extern \"C\" __global__ void fwd_sm80() {}\n"
         "extern \"C\" __global__ void fwd_sm80_combine() {}\n",
         2, NULL},
    };
    const fa2i_target target = {.name = "compute_86", .ptx = true};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fa2i_kernel kernel = {0};
        fa2i_variant asked = variant;
        asked.recipe = cases[i].waves > 0 ? split_recipe("fwd_sm80", 128, 64, 64, 0, cases[i].waves)
                                          : plain_recipe("fwd_sm80", 128, 64, 64, 0);
        CHECK_EQ(fa2i_compile(&asked, cases[i].source, ptx ? &target : &sm_86, "", &kernel), FA2_OK);
        CHECK_EQ(kernel.outcome, cases[i].missing == NULL ? FA2I_OUTCOME_OK : FA2I_OUTCOME_COMPILE_ERROR);
        CHECK((kernel.image.bytes > 0) == (cases[i].missing == NULL));
        if (cases[i].missing != NULL) {
            CHECK_CONTAINS(kernel.log, "the code has no entry point");
            CHECK_CONTAINS(kernel.log, cases[i].missing);
        }
        fa2i_kernel_done(&kernel);
    }
}

/* A cubin with any byte changed, or cut anywhere, gives an answer, and nothing outside of it is read. */
static void test_real_damage(void)
{
    fa2i_kernel kernel = {0};
    CHECK_EQ(fa2i_compile(&variant, source, &sm_86, "", &kernel), FA2_OK);
    CHECK(fa2i_image_has_entry(&kernel.image, "fwd_sm80"));
    CHECK(!fa2i_image_has_entry(&kernel.image, "fwd_sm8"));
    CHECK(!fa2i_image_has_entry(&kernel.image, "fwd_sm80_combine"));
    unsigned char *bytes = kernel.image.data;
    for (size_t i = 0; i < kernel.image.bytes; i++) {
        const unsigned char was = bytes[i];
        fa2i_blob cut = {.data = fa2i_alloc(i + 1), .bytes = i};
        CHECK(cut.data != NULL);
        memcpy(cut.data, bytes, i); /* a separate block, so that ASan sees its end */
        (void)fa2i_image_has_entry(&cut, "fwd_sm80");
        fa2i_blob_done(&cut);
        bytes[i] = (unsigned char)(was + 1 + i % 255);
        (void)fa2i_image_has_entry(&kernel.image, "fwd_sm80");
        bytes[i] = was;
    }
    fa2i_kernel_done(&kernel);
}

static void test_real_results(void)
{
    static const char wrong[] = "extern \"C\" __global__ void fwd_sm80() { undefined_name = 1; }\n";
    fa2i_kernel first = {0}, second = {0};
    CHECK_EQ(fa2i_compile(&variant, source, &sm_86, "", &first), FA2_OK);
    CHECK_EQ(fa2i_compile(&variant, source, &sm_86, "", &second), FA2_OK);
    CHECK_EQ(first.outcome, FA2I_OUTCOME_OK);
    CHECK(first.registers > 0 && first.registers < 64);
    CHECK_EQ(first.spill_bytes, 0);
    CHECK(first.compile_ms > 0);
    CHECK(first.image.bytes > 4 && memcmp(first.image.data, "\177ELF", 4) == 0);
    CHECK(first.image.bytes == second.image.bytes &&
          memcmp(first.image.data, second.image.data, first.image.bytes) == 0);
    fa2i_kernel_done(&first);
    fa2i_kernel_done(&second);

    CHECK_EQ(fa2i_compile(&variant, wrong, &sm_86, "", &first), FA2_OK);
    CHECK_EQ(first.outcome, FA2I_OUTCOME_COMPILE_ERROR);
    CHECK_CONTAINS(first.log, "undefined_name");
    CHECK_CONTAINS(first.log, "fwd_sm80.cu(1)");
    fa2i_kernel_done(&first);
}

/* More live values than registers: 1024 threads leave 64 registers to each. Spills count, except in a step that helps
 * the main one, because the kernel's registers are the main step's. */
static void test_real_spill(void)
{
    static const char hungry[] = "extern \"C\" __global__ void fwd_sm80_combine(float *out) { *out = 1; }\n"
                                 "extern \"C\" __global__ void __launch_bounds__(1024) fwd_sm80(float *out)\n"
                                 "{\n"
                                 "    float x[128];\n"
                                 "#pragma unroll\n"
                                 "    for (int i = 0; i < 128; i++) x[i] = out[i * 1024 + threadIdx.x];\n"
                                 "    __syncthreads();\n"
                                 "#pragma unroll\n"
                                 "    for (int i = 0; i < 128; i++) out[i * 1024 + threadIdx.x] = x[i] * x[127 - i];\n"
                                 "}\n";
    fa2i_kernel kernel = {0};
    CHECK_EQ(fa2i_compile(&variant, hungry, &sm_86, "", &kernel), FA2_OK);
    CHECK_EQ(kernel.outcome, FA2I_OUTCOME_SPILLED);
    CHECK(kernel.spill_bytes > 0);
    CHECK(kernel.image.bytes > 0);
    fa2i_kernel_done(&kernel);

    fa2i_variant helped = variant;
    helped.recipe = split_recipe("fwd_sm80", 1024, 64, 64, 0, 1);
    CHECK_EQ(fa2i_compile(&helped, hungry, &sm_86, "", &kernel), FA2_OK);
    CHECK_EQ(kernel.outcome, FA2I_OUTCOME_SPILLED);
    CHECK_EQ(kernel.registers, 64);
    fa2i_kernel_done(&kernel);
    /* now the spilling step is the helper */
    snprintf(helped.recipe.steps[0].entry, FA2I_ENTRY_CHARS, "fwd_sm80_combine");
    snprintf(helped.recipe.steps[1].entry, FA2I_ENTRY_CHARS, "fwd_sm80");
    CHECK_EQ(fa2i_compile(&helped, hungry, &sm_86, "", &kernel), FA2_OK);
    CHECK_EQ(kernel.outcome, FA2I_OUTCOME_OK);
    CHECK_EQ(kernel.spill_bytes, 0);
    CHECK(kernel.registers > 0 && kernel.registers < 64);
    fa2i_kernel_done(&kernel);
}

static void test_real_ptx(void)
{
    fa2i_target target;
    fa2i_kernel kernel = {0};
    CHECK_EQ(fa2i_target_for(80, true, &target), FA2_OK);
    CHECK_EQ(fa2i_compile(&variant, source, &target, "", &kernel), FA2_OK);
    CHECK_EQ(kernel.outcome, FA2I_OUTCOME_OK);
    const char *ptx = kernel.image.data;
    CHECK_EQ(ptx[kernel.image.bytes - 1], '\0');
    CHECK_CONTAINS(ptx, ".target sm_80");
    CHECK_CONTAINS(ptx, ".entry fwd_sm80");
    fa2i_kernel_done(&kernel);
    CHECK_EQ(fa2i_target_for(999, false, &target), FA2_OK); /* a future SM */
    CHECK(target.ptx);
}

int main(void)
{
    const fa2i_nvrtc_table *nvrtc = NULL;
    if (fa2i_nvrtc_get(&nvrtc) != FA2_OK) {
        fprintf(stderr, "real compilation is not tested: %s\n", fa2_last_message());
        return CHECK_SKIP;
    }
    test_real_entries(false);
    test_real_entries(true);
    test_real_damage();
    test_real_results();
    test_real_spill();
    test_real_ptx();
    return check_done();
}
