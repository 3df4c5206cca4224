/*
 * Merging of partial results: candidates of some classes pass the cases of the tuner's verification on the software
 * device, without a race, an uninitialised read or a sector too many. Cases have rows that saw no key.
 *
 *     test_merge
 *
 * FA2_SIM_CARD names the card. All candidates run with 64 columns, and every fifth one otherwise.
 */
#include "runtime/base/alloc.h"
#include "runtime/cuda/compile.h"
#include "runtime/lua/generator.h"
#include "tests/check.h"
#include "tests/sim/forward.h"
#include "tests/sim/must.h"

enum { STEP = 5 };

typedef struct bench {
    fa2i_generator *generator;
    fa2i_device device;
    int runs;
} bench;

static void run_case(bench *b, const fa2i_loaded *loaded, const fa2i_verify_case *verify)
{
    char why[FORWARD_WHY_BYTES] = "";
    fa2i_expected expected;
    must(fa2i_expected_all(&verify->c, 1, &expected), verify->name);
    if (!forward_launch(&b->device, loaded, &expected, why, NULL)) {
        fprintf(stderr, "%s, %s: %s\n", loaded->variant.text, verify->name, why);
        CHECK(false);
    }
    fa2i_expected_done(&expected);
    b->runs++;
}

static void run_variant(bench *b, const fa2_problem *class, const fa2i_variant *variant)
{
    fa2i_kernel kernel = {0};
    fa2i_target target;
    fa2i_loaded loaded = {0};
    fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX];
    char *source = NULL;
    must(fa2i_generator_source(b->generator, variant->text, &source), variant->text);
    must(fa2i_target_for(b->device.card.arch, true, &target), variant->text);
    must(fa2i_compile(variant, source, &target, "test", &kernel), variant->text);
    must(fa2i_load(&b->device, &kernel, &loaded, NULL), variant->text);
    const size_t count = fa2i_judge_of(class->op)->cases(class, b->device.card.sm_count, cases);
    for (size_t i = 0; i < count; i++)
        run_case(b, &loaded, &cases[i]);
    fa2i_unload(&b->device, &loaded);
    fa2i_kernel_done(&kernel);
    fa2i_free(source);
}

static void run_class(bench *b, int32_t head_dim, fa2_dtype dtype, int32_t partial)
{
    const fa2_problem class = {.struct_bytes = sizeof class,
                               .op = FA2_OP_MERGE,
                               .dtype = dtype,
                               .batch = 1,
                               .heads_q = 8,
                               .heads_kv = 8,
                               .seq_q = 1024,
                               .seq_k = 2,
                               .head_dim = head_dim,
                               .partial = partial};
    fa2i_variant *list = NULL;
    size_t count = 0;
    must(fa2i_generator_candidates(b->generator, &class, &b->device.card, &list, &count), "the candidates");
    CHECK(count >= 4);
    for (size_t i = 0; i < count; i += head_dim == 64 && !CHECK_IS_SANITIZED ? 1 : STEP)
        run_variant(b, &class, &list[i]);
    fa2i_free(list);
}

int main(void)
{
    bench b = {0};
    must(fa2i_generator_create(&b.generator), "the generator");
    must(fa2i_device_open(1, &b.device), "the device");
    must(fa2i_device_enter(&b.device), "the context");
    const fa2_dtype other = b.device.card.arch >= 80 ? FA2_BF16 : FA2_FP16;
    run_class(&b, 64, FA2_FP16, 0);
    run_class(&b, 128, other, 0);
    run_class(&b, 72, FA2_FP16, 1);
    run_class(&b, 576, other, 1);
    run_class(&b, 8, other, 0);
    printf("%d launches\n", b.runs);
    fa2i_device_leave(&b.device);
    fa2i_device_close(&b.device);
    fa2i_generator_destroy(b.generator);
    return check_done();
}
