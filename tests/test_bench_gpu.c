/*
 * The worker's GPU part on the fake driver, in this process: its launches and timing. If any driver call or allocation
 * fails, nothing leaks, and no error gets lost.
 */
#include "check.h"
#include "fake_attention.h"
#include "recipe_fixture.h"
#include "runtime/base/alloc.h"
#include "tuner/worker/bench_internal.h"

/* Forward's operands. */
enum { OPERAND_K = 1, OPERAND_V, OPERAND_O, OPERAND_LSE };

static const fa2i_case small = {
    .problem = {.batch = 2, .heads_q = 2, .heads_kv = 1, .seq_q = 9, .seq_k = 17, .head_dim = 16},
    .layout = FA2I_LAYOUT_BHSD,
    .want_lse = 1,
    .q_magnitude = 1,
    .seed = 3};

static fa2i_kernel make_kernel(void)
{
    fa2i_kernel kernel = {.variant = {.text = "fwd_sm80 d=16", .recipe = plain_recipe("fwd_sm80", 128, 64, 64, 8192)},
                          .target = "sm_86"};
    fake_image("fwd_sm80", "sm_86", "constexpr int kHeadDim = 16;\n", &kernel.image);
    return kernel;
}

/* Uses every function of a worker once. */
static fa2_status use(fa2i_bench *bench, const fa2i_kernel *kernel, void *output, double *ret_cold, double *ret_warm)
{
    fa2_status st = FA2_OK;
    uint32_t overwritten = 0;
    const fa2i_place places[] = {{OPERAND_O, 1, 1, 8}, {OPERAND_LSE, 1, 1, 8}};
    FA2_TRY(fa2i_bench_open(bench, 0));
    FA2_TRY(fa2i_bench_case(bench, &small));
    FA2_TRY(fa2i_bench_load(bench, 2, kernel));
    FA2_TRY(fa2i_bench_launch(bench, 2, &overwritten));
    CHECK_EQ(overwritten, 0);
    FA2_TRY(fa2i_bench_output(bench, NULL, 0, output));
    FA2_TRY(fa2i_bench_output(bench, places, 2, output));
    FA2_TRY(fa2i_bench_sample(bench, 2, 1, FA2I_WARMTH_COLD, ret_cold));
    FA2_TRY(fa2i_bench_sample(bench, 2, 20, FA2I_WARMTH_COLD, ret_warm));
done:
    return st;
}

/* Checks the driver calls of a sample, cold and warm. */
static void check_traces(fa2i_bench *bench)
{
    double cold = 0, warm = 0;
    fake_trace_clear();
    CHECK_EQ(fa2i_bench_sample(bench, 2, 20, FA2I_WARMTH_COLD, &warm), FA2_OK);
    CHECK(strstr(fake.trace, "graph_instantiate") == NULL); /* the graph is kept */
    fa2i_case other = small;
    other.problem.seq_q = 40;
    CHECK_EQ(fa2i_bench_case(bench, &other), FA2_OK);
    fake_trace_clear();
    CHECK_EQ(fa2i_bench_sample(bench, 2, 20, FA2I_WARMTH_COLD, &warm), FA2_OK); /* but not kept for another case */
    CHECK_CONTAINS(fake.trace, "graph_instantiate");
    fake_trace_clear();
    CHECK_EQ(fa2i_bench_sample(bench, 2, 1, FA2I_WARMTH_COLD, &cold), FA2_OK);
    CHECK_CONTAINS(fake.trace, "memset_d32_async"); /* the flush */
    fake_trace_clear();
    CHECK_EQ(fa2i_bench_sample(bench, 2, 1, FA2I_WARMTH_WARM, &warm), FA2_OK);
    CHECK(strstr(fake.trace, "memset_d32_async") == NULL);
    CHECK_CONTAINS(fake.trace, "graph_launch");
    const double alone = warm;
    fake_trace_clear();
    CHECK_EQ(fa2i_bench_sample(bench, 2, 1, FA2I_WARMTH_BUSY, &warm), FA2_OK);
    CHECK(warm > alone * 0.999 && warm < alone * 1.001);     /* of one run */
    const char *before = strstr(fake.trace, "graph_launch"); /* the untimed run */
    CHECK(before != NULL && before < strstr(fake.trace, "event_record"));
    CHECK(before != NULL && strstr(before + 1, "graph_launch") != NULL);
}

static void check_wrong_places(fa2i_bench *bench)
{
    double cold = 0;
    CHECK_EQ(fa2i_bench_sample(bench, 7, 1, FA2I_WARMTH_COLD, &cold), FA2_E_INVALID);
    const fa2i_place wrong[] = {{OPERAND_K, 0, 0, 0}, {-1, 0, 0, 0},         {OPERAND_LSE + 1, 0, 0, 0},
                                {OPERAND_O, 2, 0, 0}, {OPERAND_O, 0, -1, 0}, {OPERAND_LSE, 0, 0, 40}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        unsigned char row[64];
        CHECK_EQ(fa2i_bench_output(bench, &wrong[i], 1, row), FA2_E_INVALID);
        CHECK_CONTAINS(fa2_last_message(), "the case has no output");
    }
}

static void test_use(const fa2i_kernel *kernel)
{
    static unsigned char output[1 << 16];
    fa2i_bench bench = {0};
    double cold = 0, warm = 0;
    CHECK_EQ(use(&bench, kernel, output, &cold, &warm), FA2_OK);
    const fa2i_place places[] = {{OPERAND_LSE, 1, 1, 8}, {OPERAND_O, 0, 0, 0}};
    CHECK_EQ(fa2i_bench_output_bytes(&bench, NULL, 0), 2 * 2 * 9 * (16 * 2 + 4));
    CHECK_EQ(fa2i_bench_output_bytes(&bench, places, 1), 4);
    CHECK_EQ(fa2i_bench_output_bytes(&bench, places, 2), 16 * 2 + 4);
    /* The clock counts only the launches between the events: neither the flush nor the graph's first run. A batch's
     * time is divided by its launches. */
    double expected = attention_pace("constexpr int kHeadDim = 16;\n") * (4 * 9 * 17 * 1e-6 + 0.1);
    CHECK(cold > expected * 0.999 && cold < expected * 1.001);
    CHECK(warm > expected * 0.999 && warm < expected * 1.001);
    CHECK(!fa2i_bench_broken(&bench));

    check_traces(&bench);
    check_wrong_places(&bench);
    fa2i_bench_done(&bench);
    CHECK_EQ(fake_live(), 0);
}

/* The kernel and the reference see the same data of a case, even beyond one period. */
static void test_data(void)
{
    static uint16_t block[90000 * 8];
    fa2i_bench bench = {0};
    fa2i_case c = {.problem = {.batch = 1, .heads_q = 1, .heads_kv = 1, .seq_q = 1, .seq_k = 90000, .head_dim = 8},
                   .q_magnitude = 1,
                   .seed = 11};
    CHECK_EQ(fa2i_bench_open(&bench, 0), FA2_OK);
    CHECK_EQ(fa2i_bench_case(&bench, &c), FA2_OK);
    for (int operand = OPERAND_K; operand <= OPERAND_V; operand++) {
        const uint16_t *data = (const uint16_t *)(uintptr_t)bench.operands[operand];
        const size_t period = fa2i_case_period(&c, operand);
        long different = 0;
        CHECK(period < 90000 * 8);
        fa2i_case_fill(&c, operand, block);
        for (size_t i = 0; i < 90000 * 8; i++)
            different += data[i] != block[i % period];
        CHECK_EQ(different, 0);
    }
    fa2i_bench_done(&bench);
    CHECK_EQ(fake_live(), 0);
}

/* Guards are poisoned to their end where an operand is no whole number of words: 8-bit rows with scales of 2 bytes. */
static void test_guards(void)
{
    for (int32_t seq_k = 16; seq_k < 20; seq_k++) {
        static uint32_t guard[FA2I_GUARD_BYTES / sizeof(uint32_t)];
        uint32_t overwritten = 0;
        fa2i_bench bench = {0};
        fa2i_case c = {.problem = {.batch = 1, .heads_q = 1, .heads_kv = 1, .seq_q = 1, .seq_k = seq_k, .head_dim = 16},
                       .q_magnitude = 1};
        c.problem.append = 1;
        c.problem.kv = FA2_KV_INT8;
        c.problem.kv_scales = FA2_SCALES_FP16;
        CHECK_EQ(fa2i_bench_open(&bench, 0), FA2_OK);
        CHECK_EQ(fa2i_bench_case(&bench, &c), FA2_OK);
        CHECK_EQ(fa2i_bench_poison(&bench), FA2_OK);
        CHECK_EQ(fa2i_bench_count_overwritten(&bench, 0, guard, &overwritten), FA2_OK);
        CHECK_EQ(overwritten, 0);
        fa2i_bench_done(&bench);
    }
}

static void test_failing_calls(const fa2i_kernel *kernel)
{
    static unsigned char output[1 << 16];
    int ignored = 0;
    for (long nth = 1;; nth++) {
        fa2i_bench bench = {0};
        double cold = 0, warm = 0;
        fake_fail_driver(nth, CUDA_ERROR_LAUNCH_FAILED);
        fa2_status st = use(&bench, kernel, output, &cold, &warm);
        long calls = fake_fail_driver(0, CUDA_SUCCESS);
        fa2i_bench_done(&bench);
        CHECK_EQ(fake_live(), 0);
        if (calls < nth)
            break;
        CHECK(st == FA2_OK || fa2_last_message()[0] != '\0');
        ignored += st == FA2_OK;
    }
    CHECK_EQ(ignored, 1); /* releasing a graph after it was instantiated */
}

/* Opens, loads and launches a kernel that measures the card. */
static fa2_status probe(fa2i_bench *bench, const fa2i_kernel *kernel)
{
    static const fa2i_probe small_probe = {.bytes = 64, .iterations = 1};
    fa2_status st = FA2_OK;
    uint32_t blocks = 0;
    double us = 0;
    FA2_TRY(fa2i_bench_open(bench, 0));
    FA2_TRY(fa2i_bench_load(bench, 0, kernel));
    FA2_TRY(fa2i_bench_probe(bench, 0, &small_probe, &us, &blocks));
    CHECK(us > 0 && blocks > 0);
done:
    return st;
}

static void test_failing_probe(void)
{
    fa2i_kernel kernel = {.variant = {.text = "ceiling", .recipe = plain_recipe("ceiling", 128, 64, 64, 0)},
                          .target = "sm_86"};
    fake_image("ceiling", "sm_86", "constexpr int kHeadDim = 16;\n", &kernel.image);
    fake.on_launch = NULL;
    long calls = 0;
    for (long nth = 1; nth - 1 <= calls; nth++) {
        fa2i_bench bench = {0};
        fake_fail_driver(nth, CUDA_ERROR_LAUNCH_FAILED);
        const fa2_status st = probe(&bench, &kernel);
        calls = fake_fail_driver(0, CUDA_SUCCESS);
        CHECK_EQ(st == FA2_OK, calls < nth);
        fa2i_bench_done(&bench);
        CHECK_EQ(fake_live(), 0);
    }
    CHECK(calls > 0);
    fake.on_launch = attention_on_launch;
    fa2i_blob_done(&kernel.image);
}

static void test_failing_allocations(const fa2i_kernel *kernel)
{
    static unsigned char output[1 << 16];
    for (long nth = 1;; nth++) {
        fa2i_bench bench = {0};
        double cold = 0, warm = 0;
        fa2i_alloc_fail_at(nth);
        fa2_status st = use(&bench, kernel, output, &cold, &warm);
        long requests = fa2i_alloc_fail_at(0);
        fa2i_bench_done(&bench);
        CHECK_EQ(fake_live(), 0);
        if (requests < nth)
            break;
        CHECK_EQ(st, FA2_E_MEMORY);
    }
}

int main(void)
{
    fake_install();
    fake.on_launch = attention_on_launch;
    fa2i_kernel kernel = make_kernel();
    test_use(&kernel);
    test_data();
    test_guards();
    test_failing_calls(&kernel);
    test_failing_probe();
    test_failing_allocations(&kernel);
    fa2i_blob_done(&kernel.image);
    return check_done();
}
