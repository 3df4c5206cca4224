/*
 * The kernels that a context takes from the database: the rules on a real file, skipped kernels and their messages. No
 * damage may turn one kernel into another.
 */
#include "planner_fixture.h"

/* With a tuned database no rule needs NVRTC. */
static void test_exact_and_nearest(void)
{
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    tuned_put(&database, &(tuned_winner){.id = 2, .problem = tuned_problem(1, 2048)});
    remove_nvrtc();
    fa2_context *context = create();

    fa2_explanation e = explain(context, tuned_problem(1, 2048));
    CHECK_EQ(e.rule, FA2_RULE_EXACT);
    CHECK_EQ(e.measured, 1);
    CHECK_STR(e.variant, "fwd_sm80 d=64 id=2");
    CHECK(e.median_us > 12.4 && e.median_us < 12.6);
    CHECK_STR(e.device, "Fake RTX 3060");
    CHECK_STR(e.target, "sm_86");
    CHECK_CONTAINS(e.reason, "this very problem");

    e = explain(context, tuned_problem(1, 640));
    CHECK_EQ(e.rule, FA2_RULE_NEAREST);
    CHECK_STR(e.variant, "fwd_sm80 d=64 id=1");
    CHECK_EQ(e.tuned_problem.seq_q, 512);
    CHECK_CONTAINS(e.reason, "Sq=512");
    CHECK_CONTAINS(e.reason, "distance 0.446");
    CHECK_EQ(log_of.count, 0);

    fa2_problem other = tuned_problem(1, 512);
    other.head_dim = 128; /* there is no kernel for it, and no compiler */
    CHECK_EQ(fa2_prepare(context, &other), FA2_E_NO_NVRTC);
    CHECK_CONTAINS(fa2_last_message(), database.path);
    CHECK_CONTAINS(fa2_last_message(), "D=128");
    CHECK_CONTAINS(fa2_last_message(), "/nonexistent/libnvrtc.so");
    end(context);
    unsetenv("FA2_NVRTC_LIBRARY");
}

/* A context whose config forbids compiling uses existing kernels, even if another one would be much faster. It also
 * uses PTX, which the driver compiles. It never calls NVRTC. */
static void test_never_compile(void)
{
    static const char text[] = "fwd_sm80 d=64 dtype=fp16 causal=1 br=64 bc=32 warps=4 kstages=1 "
                               "vstages=1 layout=swizzle q=smem fill=whole";
    const fa2_problem far_off = tuned_problem(32, 8192);
    fa2_problem other = tuned_problem(1, 512);
    fa2_context *context = NULL;
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .text = text, .problem = other, .target = "compute_86"});
    fa2_config config = config_of();
    config.read_only = 1;
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    CHECK(strcmp(explain(context, far_off).variant, text) != 0);
    CHECK_EQ(fake.compile_count, 1);
    fa2_context_destroy(context);

    never_compile = 1;
    context = create();
    (void)fake_fail_nvrtc(0, NVRTC_SUCCESS);
    fa2_explanation e = explain(context, far_off);
    CHECK_STR(e.variant, text);
    CHECK_CONTAINS(e.reason, "; passed over fwd_sm80 ");
    CHECK_CONTAINS(e.reason, "the context's config forbids compiling");
    CHECK_STR(e.runner_up, "");
    e = explain(context, other);
    CHECK_EQ(e.rule, FA2_RULE_EXACT);
    CHECK_STR(e.target, "compute_86");
    other.head_dim = 128;
    CHECK_EQ(fa2_prepare(context, &other), FA2_E_FORBIDDEN);
    CHECK_CONTAINS(fa2_last_message(), database.path);
    CHECK_CONTAINS(fa2_last_message(), "D=128");
    CHECK_CONTAINS(fa2_last_message(), "none can be compiled: the context's config forbids compiling (never_compile); "
                                       "`fa2-tune build --arch sm_86 --shape B=1,");
    CHECK_EQ(fake_fail_nvrtc(0, NVRTC_SUCCESS), 0); /* calls since */
    CHECK_EQ(fake.compile_count, 1);
    end(context);
    never_compile = 0;
}

static void test_arch(void)
{
    begin();
    fa2i_card other = tuned_card(0);
    other.sm_count = 82;
    strcpy(other.name, "Fake RTX 3090");
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512), .card = &other});
    fa2i_card model = tuned_card(0);
    strcpy(model.name, "model of sm_86");
    tuned_put(&database, &(tuned_winner){.id = 2, .problem = tuned_problem(1, 4096), .card = &model, .modelled = true});
    remove_nvrtc();
    fa2_context *context = create();

    fa2_explanation e = explain(context, tuned_problem(1, 512));
    CHECK_EQ(e.rule, FA2_RULE_ARCH);
    CHECK_EQ(e.measured, 1);
    CHECK_STR(e.device, "Fake RTX 3090");
    CHECK_CONTAINS(e.reason, "measured on another card");

    e = explain(context, tuned_problem(1, 4096));
    CHECK_EQ(e.rule, FA2_RULE_ARCH);
    CHECK_EQ(e.measured, 0);
    CHECK(e.median_us <= 0);
    CHECK_STR(e.device, "model of sm_86");
    CHECK_STR(e.variant, "fwd_sm80 d=64 id=2");
    CHECK_CONTAINS(e.reason, "ranked by the cost model offline");
    end(context);
    unsetenv("FA2_NVRTC_LIBRARY");
}

/* A damaged image, and one for another SM, are logged once each and skipped. The remaining kernel is used. */
static void test_passed_over(void)
{
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    tuned_put(&database, &(tuned_winner){.id = 2, .problem = tuned_problem(1, 768), .target = "sm_75"});
    tuned_put(&database, &(tuned_winner){.id = 3, .problem = tuned_problem(1, 1024)});
    tuned_sql(&database, "UPDATE image SET seal = zeroblob(32) WHERE kernel = "
                         "(SELECT id FROM kernel WHERE variant LIKE '%id=1')");
    fa2_context *context = create();

    fa2_explanation e = explain(context, tuned_problem(1, 512));
    CHECK_EQ(e.rule, FA2_RULE_NEAREST);
    CHECK_STR(e.variant, "fwd_sm80 d=64 id=3");
    CHECK_CONTAINS(log_of.text, "passed over");
    CHECK_CONTAINS(log_of.text, "CUDA_ERROR_NO_BINARY_FOR_GPU");
    const int said = log_of.count;
    e = explain(context, tuned_problem(1, 520));
    CHECK_STR(e.variant, "fwd_sm80 d=64 id=3");
    CHECK_EQ(log_of.count, said);

    tuned_sql(&database, "DELETE FROM image");
    fa2_context *second = create(); /* no kernel is left: the default rule */
    e = explain(second, tuned_problem(1, 512));
    CHECK_EQ(e.rule, FA2_RULE_DEFAULT);
    CHECK_EQ(fake.compile_count, 1);
    fa2_context_destroy(second);
    end(context);
}

/* A kernel that cannot be read at present is tried again later. This is logged once. */
static void test_read_fails_for_a_while(void)
{
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    fa2_context *context = create();
    tuned_sql(&database, "ALTER TABLE code RENAME COLUMN data TO away");
    CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_DEFAULT);
    CHECK_CONTAINS(log_of.text, "a tuned kernel is passed over");
    const int said = log_of.count;
    tuned_wait();
    CHECK_EQ(explain(context, tuned_problem(1, 516)).rule, FA2_RULE_DEFAULT);
    CHECK_EQ(log_of.count, said);
    tuned_sql(&database, "ALTER TABLE code RENAME COLUMN away TO data");
    tuned_wait();
    const fa2_explanation e = explain(context, tuned_problem(1, 520));
    CHECK_EQ(e.rule, FA2_RULE_NEAREST);
    CHECK_STR(e.variant, "fwd_sm80 d=64 id=1");
    end(context);
}

/* A kernel with a damaged image is used again after fa2-tune has stored it again. */
static void test_lost_and_found(void)
{
    const tuned_winner winner = {.id = 1, .problem = tuned_problem(1, 512)};
    begin();
    tuned_put(&database, &winner);
    tuned_sql(&database, "UPDATE code SET data = zeroblob(99)");
    fa2_context *context = create();
    CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_DEFAULT);
    CHECK_CONTAINS(log_of.text, "damaged");
    tuned_put(&database, &winner);
    tuned_wait();
    CHECK_EQ(explain(context, tuned_problem(1, 520)).rule, FA2_RULE_NEAREST);
    end(context);
}

/* A winner whose code is lost is compiled again from its parameters. It stays the winner, with its time. The
 * generator's kernel has another key, to which the rows move. */
static void test_lost_code(void)
{
    static const char text[] = "fwd_sm80 d=64 dtype=fp16 causal=1 br=64 bc=32 warps=4 kstages=1 "
                               "vstages=1 layout=swizzle q=smem fill=whole";
    char sql[512];
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    snprintf(sql, sizeof sql, "UPDATE kernel SET variant = '%s'; DELETE FROM image", text);
    tuned_sql(&database, sql);

    fa2_config config = config_of();
    fa2_context *context = NULL;
    config.read_only = 1;
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    CHECK_STR(explain(context, tuned_problem(1, 512)).variant, text);
    CHECK_EQ(fake.compile_count, 1);
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM image"), 0);
    fa2_context_destroy(context);

    context = create();
    const fa2_explanation e = explain(context, tuned_problem(1, 512));
    CHECK_EQ(e.rule, FA2_RULE_EXACT);
    CHECK_STR(e.variant, text);
    CHECK(e.median_us > 12.4 && e.median_us < 12.6);
    CHECK_EQ(fake.compile_count, 2);
    CHECK_CONTAINS(log_of.text, "compiled again");
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM kernel"), 1);
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM winner JOIN image USING (kernel) "
                                     "WHERE measured AND median_us = 12.5"),
             1);
    fa2_context_destroy(context);
    context = create();
    CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_EXACT);
    CHECK_EQ(fake.compile_count, 2);
    end(context);
}

/* A winner that could not be loaded for lack of memory is still the winner when there is memory. */
static void test_no_memory_for_now(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = problem});
    remove_nvrtc();
    fa2_context *context = create();
    fake_trace_clear();
    explain(context, problem);
    const long load = fake_traced("module_load_data_ex");
    CHECK(load > 0);
    fa2_context_destroy(context);

    context = create();
    fake_fail_driver(load, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(fa2_prepare(context, &problem), FA2_E_CUDA);
    CHECK_CONTAINS(fa2_last_message(), "CUDA_ERROR_OUT_OF_MEMORY");
    const fa2_explanation e = explain(context, problem);
    CHECK_EQ(e.rule, FA2_RULE_EXACT);
    CHECK_CONTAINS(e.reason, "this very problem");
    end(context);
    unsetenv("FA2_NVRTC_LIBRARY");
}

/* A recipe that would crash the launch: the kernel is skipped. */
static void test_bad_recipe(void)
{
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    tuned_sql(&database, "UPDATE kernel SET recipe = replace(recipe, 'rows=64', 'rows=0')");
    fa2_context *context = create();
    CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_DEFAULT);
    CHECK_CONTAINS(log_of.text, "damaged");
    end(context);
}

/* ---- a wrong kernel is never used ---- */

/* A causal winner, id 1, and one that is not, id 2. */
static void put_both_kinds(void)
{
    fa2_problem plain = tuned_problem(1, 512);
    plain.causal = 0;
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    tuned_put(&database, &(tuned_winner){.id = 2, .problem = plain});
}

/* After this damage the causal problem gets a causal kernel, and the damage is logged. */
static void check_not_taken(const char *damage, const char *told)
{
    begin();
    put_both_kinds();
    tuned_sql(&database, damage);
    fa2_context *context = create();
    const fa2_explanation e = explain(context, tuned_problem(1, 512));
    CHECK_EQ(e.rule, FA2_RULE_DEFAULT);
    CHECK(strstr(e.variant, "id=2") == NULL);
    CHECK_CONTAINS(log_of.text, told);
    end(context);
}

static void test_wrong_kernels(void)
{
#define KERNEL(id) "(SELECT id FROM kernel WHERE variant LIKE '%id=" id "')"
    /* a winner that points at another problem's kernel */
    check_not_taken("UPDATE winner SET kernel = " KERNEL("2"), "of another class");
    /* and that kernel's record is changed so that it looks right */
    check_not_taken("UPDATE winner SET kernel = " KERNEL("2") ";"
                                                              "UPDATE kernel SET class = 'D=64 dtype=fp16 causal=1'",
                    "is damaged");
    /* another kernel's code with its hash */
    check_not_taken("UPDATE image SET code = (SELECT code FROM image WHERE kernel = " KERNEL("2") ")", "is damaged");
    check_not_taken("UPDATE image SET (code, seal) = (SELECT code, seal FROM image WHERE kernel = " KERNEL("2") ")",
                    "is damaged");
    check_not_taken("UPDATE code SET data = (SELECT data FROM code WHERE id = (SELECT code FROM "
                    "image WHERE kernel = " KERNEL("2") "))",
                    "is damaged");
    /* a problem's row with another class than its fields', and with that class's kernel */
    check_not_taken(
        "DELETE FROM winner WHERE kernel = " KERNEL("1") ";"
                                                         "UPDATE problem SET class = 'D=64 dtype=fp16 causal=1'",
        "of another class");
    /* a row with a class that no problem has */
    check_not_taken("UPDATE problem SET class = 'D=64' WHERE causal = 1", "filed under another class");
#undef KERNEL
}

/* Makes an index whose entries differ from the table: it is created over an expression, then declared to be over the
 * column. */
static void bend_index(const char *name, const char *table, const char *columns, const char *bent)
{
    char sql[600];
    snprintf(sql, sizeof(sql),
             "DROP INDEX %s; CREATE INDEX %s ON %s (%s); PRAGMA writable_schema = ON;"
             "UPDATE sqlite_schema SET sql = 'CREATE INDEX %s ON %s (%s)' WHERE name = '%s'",
             name, name, table, bent, name, table, columns, name);
    tuned_sql(&database, sql);
}

/* Flips each bit of the kernel ids in the indexes of winners and verifications. */
static void test_damaged_indexes(void)
{
    for (int bit = 1; bit <= 8; bit *= 2) {
        char bent[64];
        snprintf(bent, sizeof(bent), "(kernel | %d) - (kernel & %d)", bit, bit);
        begin();
        put_both_kinds();
        bend_index("winner_kernel", "winner", "kernel", bent);
        bend_index("image_code", "image", "code", "3 - code");
        fa2_context *context = create();
        fa2_explanation e = explain(context, tuned_problem(1, 512));
        CHECK_EQ(e.rule, FA2_RULE_EXACT);
        CHECK_STR(log_of.text, "");
        CHECK_STR(e.variant, "fwd_sm80 d=64 id=1");
        fa2_context_destroy(context);

        tuned_sql(&database, "INSERT INTO verification SELECT d.id, k.id, 'wrong', 9, '', '' "
                             "FROM device d, kernel k WHERE k.variant LIKE '%id=1'");
        bend_index("verification_kernel", "verification", "kernel", bent);
        context = create();
        e = explain(context, tuned_problem(1, 512));
        CHECK_EQ(e.rule, FA2_RULE_DEFAULT);
        end(context);
    }
}

/* No rule chooses a kernel that was found wrong, or that spilled where it was measured. */
static void test_wrong_and_spilled(void)
{
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    tuned_put(&database, &(tuned_winner){.id = 2, .problem = tuned_problem(1, 1024)});
    tuned_sql(&database, "UPDATE kernel SET outcome = 'spilled', spill_bytes = 8;"
                         "INSERT INTO verification SELECT device, kernel, 'wrong', 9, '', '' "
                         "FROM winner WHERE kernel = (SELECT id FROM kernel WHERE variant "
                         "LIKE '%id=1')");
    fa2_context *context = create();
    const fa2_explanation e = explain(context, tuned_problem(1, 512));
    CHECK_EQ(e.rule, FA2_RULE_NEAREST);
    CHECK_STR(e.variant, "fwd_sm80 d=64 id=2");
    CHECK_EQ(e.spill_bytes, 8);
    CHECK_EQ(fake.compile_count, 0);
    end(context);
}

int main(void)
{
    test_exact_and_nearest();
    test_never_compile();
    test_arch();
    test_passed_over();
    test_read_fails_for_a_while();
    test_lost_and_found();
    test_lost_code();
    test_no_memory_for_now();
    test_bad_recipe();
    test_wrong_kernels();
    test_damaged_indexes();
    test_wrong_and_spilled();
    return check_done();
}
