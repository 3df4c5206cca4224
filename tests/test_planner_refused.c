/*
 * A context on a database whose code the driver refuses, because the driver is older than the compiler. Each kernel is
 * compiled again as code that the driver accepts. The database does not change.
 */
#include "planner_fixture.h"

static const char first[] = "fwd_sm80 d=64 dtype=fp16 causal=1 br=64 bc=32 warps=4 kstages=1 "
                            "vstages=1 layout=swizzle q=smem fill=whole";
static const char second[] = "fwd_sm80 d=64 dtype=fp16 causal=1 br=64 bc=64 warps=4 kstages=1 "
                             "vstages=1 layout=swizzle q=smem fill=whole";

/* Stores two winners, of 512 and of 1024 rows, with code for these targets. */
static void begin_with(const char *of_first, const char *of_second)
{
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .text = first, .problem = tuned_problem(1, 512), .target = of_first});
    tuned_put(&database,
              &(tuned_winner){.id = 2, .text = second, .problem = tuned_problem(1, 1024), .target = of_second});
    fake_trace_clear();
}

static void refuse(const char *targets, CUresult by)
{
    fake.refused = targets;
    fake.refused_by = by;
}

static int count_in(const char *text, const char *words)
{
    int count = 0;
    for (; (text = strstr(text, words)) != NULL; text += strlen(words))
        count++;
    return count;
}

/* Returns the number of module loads, including refused ones, since the last call. */
static int loads(void)
{
    const int count = count_in(fake.trace, "module_load_data_ex ");
    fake_trace_clear();
    return count;
}

/* Returns the number of the driver call that loads the first winner. */
static long find_load(void)
{
    fa2_context *context = create();
    fake_trace_clear();
    explain(context, tuned_problem(1, 512));
    const long load = fake_traced("module_load_data_ex");
    CHECK(load > 0);
    fa2_context_destroy(context);
    return load;
}

static void check_winner(const fa2_explanation *e, const char *text, const char *target)
{
    CHECK_EQ(e->rule, FA2_RULE_EXACT);
    CHECK_STR(e->variant, text);
    CHECK_STR(e->target, target);
    CHECK(e->median_us > 12.4 && e->median_us < 12.6);
    CHECK_CONTAINS(e->reason, "the fastest for this very problem");
}

/* When the first kernel is refused, all others of the database are, too. The newly compiled code is PTX, stored beside.
 * */
static void test_cubins_refused(void)
{
    begin_with("sm_86", "sm_86");
    refuse("sm_86", CUDA_ERROR_NO_BINARY_FOR_GPU);
    fa2_context *context = create();
    fa2_explanation e = explain(context, tuned_problem(1, 512));
    check_winner(&e, first, "compute_86");
    CHECK_EQ(loads(), 2);
    CHECK_EQ(fake.compile_count, 1);
    CHECK_CONTAINS(log_of.text, "was compiled again, for compute_86: the driver refuses its sm_86 "
                                "code (CUDA_ERROR_NO_BINARY_FOR_GPU)");
    CHECK(strstr(log_of.text, "passed over") == NULL);
    e = explain(context, tuned_problem(1, 1024));
    check_winner(&e, second, "compute_86");
    CHECK_EQ(loads(), 1); /* only the PTX */
    e = explain(context, tuned_problem(1, 520));
    CHECK_STR(e.target, "compute_86");
    fa2_context_destroy(context);
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM kernel JOIN image ON kernel = kernel.id "
                                     "WHERE target = 'sm_86'"),
             2);
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM winner JOIN kernel k ON k.id = kernel "
                                     "WHERE target = 'sm_86' AND median_us = 12.5"),
             2);

    const long compiled = fake.compile_count;
    log_of = (tuned_log){.count = 0};
    (void)loads();
    context = create();
    e = explain(context, tuned_problem(1, 512));
    check_winner(&e, first, "compute_86");
    CHECK_EQ(fake.compile_count, compiled);
    CHECK_EQ(loads(), 2);
    CHECK_CONTAINS(log_of.text, "the driver loads no sm_86 code");
    fa2_context_destroy(context);

    refuse(NULL, CUDA_SUCCESS); /* another driver accepts the measured code */
    context = create();
    e = explain(context, tuned_problem(1, 512));
    check_winner(&e, first, "sm_86");
    end(context);
}

/* If this NVRTC is older than the refused one, it compiles for the driver as usual. */
static void test_older_compiler(void)
{
    begin_with("sm_86", "sm_86");
    const long load = find_load();
    fake.nvrtc_version = 12080;
    fa2_context *context = create();
    fake_fail_driver(load, CUDA_ERROR_NO_BINARY_FOR_GPU);
    fa2_explanation e = explain(context, tuned_problem(1, 512));
    check_winner(&e, first, "sm_86");
    CHECK_EQ(fake.compile_count, 1);
    fake_trace_clear();
    e = explain(context, tuned_problem(1, 1024));
    check_winner(&e, second, "sm_86");
    CHECK_EQ(fake.compile_count, 2); /* the newer compiler's code is not tried again */
    CHECK_EQ(loads(), 1);
    end(context);
}

/* PTX that is too new for the driver is compiled to machine code. */
static void test_ptx_refused(void)
{
    begin_with("compute_86", "compute_86");
    refuse("compute_86", CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    fa2_context *context = create();
    const fa2_explanation e = explain(context, tuned_problem(1, 512));
    check_winner(&e, first, "sm_86");
    CHECK_CONTAINS(log_of.text, "compute_86 code (CUDA_ERROR_UNSUPPORTED_PTX_VERSION)");
    end(context);
}

/* An image that is refused because of its contents says nothing about others. */
static void test_one_image_refused(void)
{
    begin_with("sm_86", "sm_86");
    const long load = find_load();
    fa2_context *context = create();
    fake_fail_driver(load, CUDA_ERROR_INVALID_IMAGE);
    fa2_explanation e = explain(context, tuned_problem(1, 512));
    check_winner(&e, first, "sm_86");
    CHECK_EQ(fake.compile_count, 1);
    e = explain(context, tuned_problem(1, 1024));
    check_winner(&e, second, "sm_86");
    CHECK_EQ(fake.compile_count, 1);
    end(context);
}

/* Without a compiler the next kernel is used, and the cause is logged once. */
static void test_no_compiler(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    begin_with("sm_86", "compute_86");
    refuse("sm_86", CUDA_ERROR_NO_BINARY_FOR_GPU);
    remove_nvrtc();
    fa2_context *context = create();
    const fa2_explanation e = explain(context, problem);
    CHECK_STR(e.variant, second);
    CHECK_CONTAINS(e.reason, "it replaces the winner fwd_sm80");
    CHECK_CONTAINS(e.reason, ": the driver refuses its sm_86 code (CUDA_ERROR_NO_BINARY_FOR_GPU), "
                             "and there is no NVRTC to compile it again");
    CHECK_EQ(count_in(e.reason, first), 1);
    CHECK_EQ(count_in(log_of.text, "CUDA_ERROR_NO_BINARY_FOR_GPU"), 1);
    end(context);

    begin_with("sm_86", "sm_86");
    refuse("sm_86", CUDA_ERROR_NO_BINARY_FOR_GPU);
    remove_nvrtc();
    context = create();
    CHECK_EQ(fa2_prepare(context, &problem), FA2_E_NO_NVRTC);
    CHECK_CONTAINS(fa2_last_message(), "none can be compiled");
    CHECK_EQ(loads(), 1);
    CHECK_EQ(count_in(log_of.text, "CUDA_ERROR_NO_BINARY_FOR_GPU"), 1);
    end(context);
    unsetenv("FA2_NVRTC_LIBRARY");
}

/* One kernel won two problems. Both explanations say why it is not used: refused code, or lost code. */
static void test_winner_of_two(void)
{
    for (int lost = 0; lost < 2; lost++) {
        begin_with("sm_86", "compute_86");
        tuned_put(&database,
                  &(tuned_winner){.id = 1, .text = first, .problem = tuned_problem(1, 768), .target = "sm_86"});
        if (lost)
            tuned_sql(&database, "DELETE FROM image WHERE kernel = 1");
        else
            refuse("sm_86", CUDA_ERROR_NO_BINARY_FOR_GPU);
        remove_nvrtc();
        fa2_context *context = create();
        for (int seq = 512; seq <= 768; seq += 256) {
            const fa2_explanation e = explain(context, tuned_problem(1, seq));
            CHECK_STR(e.variant, second);
            CHECK_CONTAINS(e.reason, "it replaces the winner fwd_sm80");
            CHECK_CONTAINS(e.reason, lost ? "damaged or missing, and there is no NVRTC"
                                          : "(CUDA_ERROR_NO_BINARY_FOR_GPU), and there is no NVRTC");
        }
        CHECK_EQ(count_in(log_of.text, "a tuned kernel is passed over"), 1);
        end(context);
        unsetenv("FA2_NVRTC_LIBRARY");
    }
}

/* A driver that accepts neither cubins nor PTX is asked once about each. Nothing else is compiled for it. */
static void test_all_refused(void)
{
    const fa2_problem problems[] = {tuned_problem(1, 512), tuned_problem(1, 1024), tuned_problem(2, 512)};
    begin_with("sm_86", "sm_86");
    refuse("sm_86 compute_86", CUDA_ERROR_NO_BINARY_FOR_GPU);
    fa2_context *context = create();
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        CHECK_EQ(fa2_prepare(context, &problems[i]), FA2_E_CUDA);
        CHECK_CONTAINS(fa2_last_message(), "the driver refuses its sm_86 code");
    }
    CHECK_EQ(fake.compile_count, 1);
    CHECK_EQ(loads(), 2);
    CHECK_EQ(count_in(log_of.text, "the driver refuses its sm_86 code"), 1);
    end(context);
}

/* Code that was compiled in place of refused or lost code is still used when there is no compiler: it is the winner. */
static void test_compiled_before(void)
{
    for (int lost = 0; lost < 2; lost++) {
        begin_with("sm_86", "sm_86");
        refuse("sm_86", CUDA_ERROR_NO_BINARY_FOR_GPU);
        fa2_context *context = create();
        explain(context, tuned_problem(1, 512));
        fa2_context_destroy(context);
        if (lost) {
            refuse(NULL, CUDA_SUCCESS);
            tuned_sql(&database, "DELETE FROM image WHERE kernel = 1");
        }
        remove_nvrtc();
        log_of = (tuned_log){.count = 0};
        context = create();
        for (int i = 0; i < 2; i++) {
            const fa2_explanation e = explain(context, tuned_problem(1, 512));
            check_winner(&e, first, "compute_86");
            CHECK(strstr(e.reason, "replaces") == NULL);
        }
        CHECK_CONTAINS(log_of.text, lost ? "its code for compute_86 is taken from the database"
                                         : " is taken as compute_86 code from the database: the driver refuses its "
                                           "sm_86 code (CUDA_ERROR_NO_BINARY_FOR_GPU), and there is no NVRTC");
        CHECK(strstr(log_of.text, "passed over") == NULL);
        CHECK_EQ(log_of.count, 1);
        end(context);
        unsetenv("FA2_NVRTC_LIBRARY");
    }
}

int main(void)
{
    test_winner_of_two();
    test_compiled_before();
    test_all_refused();
    test_cubins_refused();
    test_older_compiler();
    test_ptx_refused();
    test_one_image_refused();
    test_no_compiler();
    return check_done();
}
