/*
 * fp32 on the software device, on $FA2_SIM_CARD. test_fp32 forward|backward
 *
 * - Kernels of each product pass the cases of the tuner's verification, and with features some of them, without a race, an uninitialised read, a bank conflict or a sector too many.
 * - The relative L1 error of O, or of the gradients, against fp64 is at most 2e-6, as fa2.h states: 2048 keys, D = 128,
 *   normal numbers. Deterministic gradients are the same bits at a second launch.
 */
#include "runtime/base/alloc.h"
#include "runtime/cuda/compile.h"
#include "runtime/lua/generator.h"
#include "tests/check.h"
#include "tests/sim/forward.h"
#include "tests/sim/must.h"
#include "tuner/worker/bench_gpu.h"

typedef struct bench {
    fa2i_generator *generator;
    fa2i_bench device;
    int kernels, runs;
} bench;

static const double most_relative = 2e-6;

/* ---- kernels ---- */

static void compile(const bench *b, const fa2i_variant *variant, fa2i_kernel *ret_kernel)
{
    fa2i_target target;
    char *source = NULL;
    must(fa2i_generator_source(b->generator, variant->text, &source), variant->text);
    must(fa2i_target_for(b->device.device.card.arch, true, &target), variant->text);
    must(fa2i_compile(variant, source, &target, "test", ret_kernel), variant->text);
    must_be(ret_kernel->image.data != NULL, ret_kernel->log != NULL ? ret_kernel->log : variant->text);
    fa2i_free(source);
}

static const char *product_of(const fa2i_variant *variant)
{
    return strstr(variant->text, " product=");
}

/* Calls run for every step-th candidate of each product; step 0: the first alone. */
static void visit(bench *b, const fa2_problem *class, size_t step,
                  void (*run)(bench *b, const fa2_problem *class, const fa2i_variant *variant))
{
    static const char *const products[] = {" product=ffma", " product=tf32"};
    fa2i_variant *list = NULL;
    size_t count = 0, visited = 0;
    must(fa2i_generator_candidates(b->generator, class, &b->device.device.card, &list, &count), "the candidates");
    for (size_t n = 0; n < sizeof products / sizeof *products; n++)
        for (size_t i = 0, seen = 0; i < count; i++) {
            if (product_of(&list[i]) == NULL || strncmp(product_of(&list[i]), products[n], strlen(products[n])) != 0)
                continue;
            if (step == 0 ? seen == 0 : seen % step == 0)
                run(b, class, &list[i]), visited++;
            seen++;
        }
    CHECK(visited >= (b->device.device.card.arch < 80 ? 1u : 2u));
    fa2i_free(list);
}

/* ---- cases ---- */

static void run_case(bench *b, const fa2i_loaded *loaded, const fa2i_verify_case *verify)
{
    char why[FORWARD_WHY_BYTES] = "";
    fa2i_expected expected;
    must(fa2i_expected_all(&verify->c, 1, &expected), verify->name);
    if (!forward_launch(&b->device.device, loaded, &expected, why, NULL)) {
        fprintf(stderr, "%s, %s: %s\n", loaded->variant.text, verify->name, why);
        CHECK(false);
    }
    fa2i_expected_done(&expected);
    b->runs++;
}

/* Runs every step-th case of at most `batch` sequences: many of them take the software device long. */
static void run_each(bench *b, const fa2_problem *class, const fa2i_variant *variant, size_t step, int32_t batch)
{
    fa2i_kernel kernel = {0};
    fa2i_loaded loaded = {0};
    fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX];
    compile(b, variant, &kernel);
    must(fa2i_load(&b->device.device, &kernel, &loaded, NULL), variant->text);
    const size_t count = fa2i_judge_of(class->op)->cases(class, b->device.device.card.sm_count, cases);
    for (size_t i = 0; i < count; i += step)
        if (!cases[i].divided && cases[i].c.problem.batch <= batch)
            run_case(b, &loaded, &cases[i]);
    fa2i_unload(&b->device.device, &loaded);
    fa2i_kernel_done(&kernel);
    b->kernels++;
}

static void run_cases(bench *b, const fa2_problem *class, const fa2i_variant *variant)
{
    run_each(b, class, variant, 1, INT32_MAX);
}

static void run_few_cases(bench *b, const fa2_problem *class, const fa2i_variant *variant)
{
    run_each(b, class, variant, 2, 16);
}

/* ---- accuracy ---- */

/* Launches again. All bits must be the same. */
static void run_again(bench *b, const void *output, size_t bytes)
{
    uint32_t overwritten = 0;
    void *again = fa2i_alloc(bytes);
    must_be(again != NULL, "memory");
    must(fa2i_bench_launch(&b->device, 0, &overwritten), "a second launch");
    must(fa2i_bench_output(&b->device, NULL, 0, again), "its output");
    CHECK(memcmp(output, again, bytes) == 0);
    fa2i_free(again);
}

static void run_exact(bench *b, const fa2_problem *class, const fa2i_variant *variant)
{
    fa2i_kernel kernel = {0};
    fa2i_expected expected;
    uint32_t overwritten = 0;
    const fa2i_case c = {.problem = *class, .q_magnitude = 1, .seed = 5};
    compile(b, variant, &kernel);
    must(fa2i_bench_load(&b->device, 0, &kernel), variant->text);
    must(fa2i_expected_all(&c, 1, &expected), variant->text);
    must(fa2i_bench_case(&b->device, &c), variant->text);
    must(fa2i_bench_launch(&b->device, 0, &overwritten), variant->text);
    void *output = fa2i_alloc(expected.output_bytes);
    must_be(output != NULL, "memory");
    must(fa2i_bench_output(&b->device, NULL, 0, output), variant->text);
    const fa2i_errors errors = fa2i_expected_errors(&expected, output);
    printf("%s: relative error %.2g\n", variant->text, errors.relative);
    CHECK(errors.relative > 0 && errors.relative <= most_relative);
    if (class->deterministic)
        run_again(b, output, expected.output_bytes);
    fa2i_free(output);
    fa2i_expected_done(&expected);
    fa2i_kernel_done(&kernel);
}

/* ---- classes ---- */

static fa2_problem class_of(fa2_op op, int32_t head_dim, int32_t causal)
{
    return (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                         .op = op,
                         .dtype = FA2_FP32,
                         .batch = 1,
                         .heads_q = 8,
                         .heads_kv = 8,
                         .seq_q = 1024,
                         .seq_k = 1024,
                         .head_dim = head_dim,
                         .causal = causal};
}

static void run_forward(bench *b)
{
    fa2_problem classes[] = {
        class_of(FA2_OP_FORWARD, 8, 0),  class_of(FA2_OP_FORWARD, 40, 1), class_of(FA2_OP_FORWARD, 256, 0),
        class_of(FA2_OP_FORWARD, 64, 0), class_of(FA2_OP_FORWARD, 64, 1), class_of(FA2_OP_FORWARD, 64, 0),
        class_of(FA2_OP_FORWARD, 64, 1), class_of(FA2_OP_FORWARD, 64, 1), class_of(FA2_OP_FORWARD, 72, 1),
        class_of(FA2_OP_FORWARD, 64, 1), class_of(FA2_OP_FORWARD, 64, 0)};
    classes[3].window = FA2_WINDOW_SLIDING;
    classes[4].alibi = classes[4].sinks = 1;
    classes[5].bias = FA2_BIAS_BOOL;
    classes[5].varlen = 1;
    classes[6].bias = FA2_BIAS_FP32;
    classes[6].partial = FA2_PARTIAL_MERGE;
    classes[7].bias = FA2_BIAS_FP16;
    classes[7].seqused = classes[7].paged = 1;
    classes[7].page = 16;
    classes[8].head_dim_v = 40;
    classes[8].window = FA2_WINDOW_PREFIX;
    classes[8].window_left = 1;
    classes[8].window_right = -1;
    classes[9].window = FA2_WINDOW_CHUNK;
    classes[9].window_left = 100;
    classes[9].window_right = -1;
    classes[9].partial = FA2_PARTIAL_WRITE;
    classes[10].bias = FA2_BIAS_BF16;
    classes[10].sums = FA2_SUMS_FAST; /* permissions that no kernel of fp32 uses */
    classes[10].scores = FA2_SCORES_INT8;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        visit(b, &classes[i], 0, run_few_cases);
}

static void run_backward(bench *b)
{
    fa2_problem classes[] = {
        class_of(FA2_OP_BACKWARD, 8, 0),  class_of(FA2_OP_BACKWARD, 40, 1),  class_of(FA2_OP_BACKWARD, 256, 0),
        class_of(FA2_OP_BACKWARD, 64, 0), class_of(FA2_OP_BACKWARD, 64, 1),  class_of(FA2_OP_BACKWARD, 64, 0),
        class_of(FA2_OP_BACKWARD, 64, 1), class_of(FA2_OP_BACKWARD, 128, 1), class_of(FA2_OP_BACKWARD, 72, 1),
        class_of(FA2_OP_BACKWARD, 96, 1), class_of(FA2_OP_BACKWARD, 192, 1)};
    classes[3].window = FA2_WINDOW_SLIDING;
    classes[3].deterministic = 1;
    classes[4].alibi = classes[4].sinks = 1;
    classes[5].bias = FA2_BIAS_BOOL;
    classes[5].varlen = 1;
    classes[6].bias = FA2_BIAS_FP32_GRADIENT;
    classes[6].partial = FA2_PARTIAL_MERGE;
    classes[7].varlen = classes[7].deterministic = 1;
    classes[8].head_dim_v = 40;
    classes[8].window = FA2_WINDOW_PREFIX;
    classes[8].window_left = 1;
    classes[8].window_right = -1;
    classes[9].window = FA2_WINDOW_CHUNK;
    classes[9].window_left = 100;
    classes[9].window_right = -1;
    classes[9].partial = FA2_PARTIAL_WRITE;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        visit(b, &classes[i], 0, run_few_cases);
}

int main(int argc, char **argv)
{
    enum { STEP = 16, QUERIES = 64, KEYS = 2048 };
    const bool backward = argc > 1 && strcmp(argv[1], "backward") == 0;
    const fa2_op op = backward ? FA2_OP_BACKWARD : FA2_OP_FORWARD;
    static bench b;
    must(fa2i_generator_create(&b.generator), "the generator");
    must(fa2i_bench_open(&b.device, 0), "the device");
    const fa2_problem plain = class_of(op, 64, 1);
    visit(&b, &plain, STEP, run_cases);
    (backward ? run_backward : run_forward)(&b);
    fa2_problem exact = class_of(op, 128, 0);
    exact.heads_q = exact.heads_kv = 1;
    exact.seq_q = QUERIES;
    exact.seq_k = KEYS;
    exact.deterministic = backward;
    visit(&b, &exact, 0, run_exact);
    printf("%d kernels, %d launches\n", b.kernels, b.runs);
    fa2i_bench_done(&b.device);
    fa2i_generator_destroy(b.generator);
    return check_done();
}
