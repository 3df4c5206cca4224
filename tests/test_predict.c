/*
 * Checks that a prediction about a call equals what the call does. For each damage to a database, with a compiler and
 * without, it asks the prediction (`fa2-tune explain`), then a context, on the same file.
 */
#include "predict_fixture.h"

static const char all_code[] = "UPDATE code SET data = zeroblob(length(data))";

static const damage_case damages[] = {
    {"SELECT 1", true, FA2_OK, FA2_RULE_EXACT, 0, "the fastest for this very problem", false, false},
    {"SELECT 1", false, FA2_OK, FA2_RULE_EXACT, 0, "the fastest for", false, false},
    {winners_code, true, FA2_OK, FA2_RULE_EXACT, 0, "the fastest for", true, false},
    {winners_code, false, FA2_OK, FA2_RULE_EXACT, 1, "it replaces the winner", true, false},
    {"UPDATE code SET data = substr(data, 1, 20) WHERE id IN "
     "(SELECT code FROM image JOIN winner USING (kernel))",
     false, FA2_OK, FA2_RULE_EXACT, 1, "there is no NVRTC to compile it again", true, false},
    {"DELETE FROM code WHERE id IN (SELECT code FROM image JOIN winner USING (kernel))", false, FA2_OK, FA2_RULE_EXACT,
     1, "the fastest that can be used", true, false},
    {"DELETE FROM image WHERE kernel IN (SELECT kernel FROM winner)", false, FA2_OK, FA2_RULE_EXACT, 1,
     "its code is damaged or missing", false, false},
    {"UPDATE image SET seal = zeroblob(32)", true, FA2_OK, FA2_RULE_EXACT, 0, "the fastest for", true, true},
    /* the winner's record says that it does not compile; the record cannot be read */
    {"UPDATE kernel SET outcome = 'compile_error' WHERE id = 1", true, FA2_OK, FA2_RULE_EXACT, 1,
     ": it does not compile for sm_86, as its record says", false, false},
    {"UPDATE kernel SET outcome = 'compile_error', log = 'error: no' WHERE id = 1; DELETE FROM image WHERE kernel = 1",
     true, FA2_OK, FA2_RULE_EXACT, 1, "it does not compile for sm_86: error: no", false, false},
    {"UPDATE kernel SET recipe = 'nonsense' WHERE id = 1", true, FA2_OK, FA2_RULE_EXACT, 1,
     "it replaces the winner: ", false, false},
    {"UPDATE kernel SET generator = 'x' WHERE id = 1", true, FA2_OK, FA2_RULE_EXACT, 1,
     "it replaces the winner: ", false, false},
    /* impossible times of the winner or of another kernel do not count */
    {"DELETE FROM winner; UPDATE measurement SET median_us = 0 WHERE kernel = 2", true, FA2_OK, FA2_RULE_EXACT, 0,
     "measured on this device", false, false},
    {"DELETE FROM winner; UPDATE measurement SET median_us = -1 WHERE kernel = 2", true, FA2_OK, FA2_RULE_EXACT, 0,
     "measured on this device", false, false},
    {"DELETE FROM winner; UPDATE measurement SET median_us = 1e30 WHERE kernel = 1", true, FA2_OK, FA2_RULE_EXACT, 1,
     "measured on this device", false, false},
    {"DELETE FROM winner; UPDATE measurement SET median_us = 1e999 WHERE kernel = 1", true, FA2_OK, FA2_RULE_EXACT, 1,
     "measured on this device", false, false},
    /* the winner's row is damaged, but its kernel is fine */
    {"UPDATE winner SET model_us = -1", true, FA2_OK, FA2_RULE_EXACT, 0, "the fastest for this very problem", false,
     false},
    {"UPDATE kernel SET variant = 'bogus' WHERE id = 1", true, FA2_OK, FA2_RULE_EXACT, 1, "it replaces the winner",
     false, false},
    {all_code, false, FA2_E_NO_NVRTC, FA2_RULE_EXACT, -1, "none can be compiled", true, true},
    {"DELETE FROM image", false, FA2_E_NO_NVRTC, FA2_RULE_EXACT, -1, "none can be compiled", false, false},
    {"DELETE FROM winner; DELETE FROM measurement", false, FA2_OK, FA2_RULE_DEFAULT, 0, "the cost model's first choice",
     false, false},
    {"DELETE FROM winner; DELETE FROM measurement; DELETE FROM kernel", false, FA2_E_NO_NVRTC, FA2_RULE_DEFAULT, -1,
     "none can be compiled", false, false},
    /* the winner was found to fault later: it wins no more, and is not compared with others */
    {"UPDATE verification SET outcome = 'fault' WHERE kernel IN (SELECT kernel FROM winner)", true, FA2_OK,
     FA2_RULE_EXACT, 1, ": it failed its verification (fault)", false, false},
    {"UPDATE verification SET outcome = 'wrong' WHERE kernel = 1", false, FA2_OK, FA2_RULE_EXACT, 1,
     "it replaces the winner fwd_sm80", false, false},
    /* the row of the winner's kernel is missing, or has another version or class */
    {"PRAGMA foreign_keys = 0; DELETE FROM kernel WHERE id = 1", true, FA2_OK, FA2_RULE_EXACT, 1,
     "it replaces the winner: its kernel's row is missing", false, false},
    {"PRAGMA foreign_keys = 0; UPDATE winner SET kernel = 99", true, FA2_OK, FA2_RULE_EXACT, 0,
     "it replaces the winner: its kernel's row is missing", false, false},
    {"UPDATE kernel SET recipe = replace(recipe, 'abi=', 'abi=9') WHERE id = 1", true, FA2_OK, FA2_RULE_EXACT, 1,
     ": it is of another version of fa2", false, false},
    {"UPDATE kernel SET class = 'D=32 dtype=fp16 causal=1' WHERE id = 1", true, FA2_OK, FA2_RULE_EXACT, 1,
     ": its kernel is for problems of another class", false, false},
    /* the problem's row has an invalid class, or another one: nothing that refers to the row counts */
    {"UPDATE problem SET class = 'D=64 dtype=fp8'", true, FA2_OK, FA2_RULE_DEFAULT, 0, "the cost model's first choice",
     false, false},
    {"UPDATE problem SET class = 'D=64 dtype=fp16 causal=0'", false, FA2_OK, FA2_RULE_DEFAULT, 0,
     "the cost model's first choice", false, false},
    /* the session is of another device */
    {"INSERT INTO device SELECT 9, 'other', arch, sm_count, smem_block_bytes, smem_sm_bytes, l2_bytes, clock_khz, "
     "bandwidth_bytes, real FROM device; UPDATE session SET device = 9",
     false, FA2_OK, FA2_RULE_DEFAULT, 0, "the cost model's first choice", false, false},
    /* the target's column is wrong: the code does not match its hash, and is compiled again */
    {"UPDATE kernel SET target = 'sm_75' WHERE id = 1", true, FA2_OK, FA2_RULE_EXACT, 0, "the fastest for", true,
     false},
    {"UPDATE verification SET outcome = 'hang'", true, FA2_E_UNSUPPORTED, FA2_RULE_DEFAULT, -1,
     "failed its verification (hang)", false, false},
    {"UPDATE verification SET outcome = 'launch_error'", false, FA2_E_NO_NVRTC, FA2_RULE_DEFAULT, -1,
     "none can be compiled", false, false},
};

/* Turns a kernel of the database into PTX that spills this much. */
static void put_ptx(size_t i, int spill_bytes)
{
    fa2i_cache *cache = NULL;
    fa2i_kernel kernel = {.key = keys[i],
                          .variant = variants[i],
                          .target = "compute_86",
                          .nvrtc = 13000,
                          .generator = "0123456789abcdef"};
    fake.registers = 96;
    fake.spill_stores = spill_bytes;
    fake_image(variants[i].recipe.steps[0].entry, "compute_86", "tuned, PTX", &kernel.image);
    fake.spill_stores = 0;
    CHECK_EQ(fa2i_cache_open(database.path, FA2I_CACHE_WRITE, NULL, NULL, &cache), FA2_OK);
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
    fa2i_kernel_done(&kernel);
    fa2i_cache_close(cache);
}

static void test_damage_by(const damage_case *cases, size_t count)
{
    const fa2_problem problem = tuned_problem(1, 512);
    for (size_t i = 0; i < count; i++) {
        const damage_case *c = &cases[i];
        const int failures = check_failures;
        fa2i_predicted f = {0};
        begin();
        fill();
        tuned_sql(&database, c->sql);
        if (!c->nvrtc)
            remove_nvrtc();
        (void)fake_fail_nvrtc(0, NVRTC_SUCCESS);
        predict(&problem, true, &f);
        const fa2i_fate *first = fate_of(&f, variants[0].text), *second = fate_of(&f, variants[1].text);
        CHECK(!c->damaged || first != NULL);
        CHECK(!c->other || second != NULL);
        CHECK(first == NULL || first->damaged == c->damaged);
        CHECK(second == NULL || second->damaged == c->other);
        const fa2i_fate *next = fate_of(&f, f.runner_up.text);
        CHECK(next == NULL || (next->usable && !next->refuted));
        compare(&problem, &f, c);
        if (never_compile)
            CHECK_EQ(fake_fail_nvrtc(0, NVRTC_SUCCESS), 0); /* calls since */
        fa2i_predicted_done(&f);
        end(NULL);
        unsetenv("FA2_NVRTC_LIBRARY");
        if (check_failures > failures)
            fprintf(stderr, "... case %zu, %s NVRTC: %s\n", i, c->nvrtc ? "with" : "without", c->sql);
    }
}

/* Without a database, and then without a compiler, too. If the card is not here, another machine may have a compiler.
 * */
static void test_no_database(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    fa2i_predicted f = {0};
    begin();
    predict(&problem, true, &f);
    compare(&problem, &f, &(damage_case){.rule = FA2_RULE_DEFAULT, .said = "first choice"});
    fa2i_predicted_done(&f);
    CHECK_EQ(remove(database.path), 0);
    remove_nvrtc();
    predict(&problem, true, &f);
    CHECK(!f.supposed);
    compare(&problem, &f, &(damage_case){.status = FA2_E_NO_NVRTC, .variant = -1, .said = database.path});
    fa2i_predicted_done(&f);
    predict(&problem, false, &f);
    CHECK_EQ(f.status, FA2_OK);
    CHECK(f.supposed && !f.compiled);
    CHECK_STR(f.variant.text, variants[0].text);
    fa2i_predicted_done(&f);
    end(NULL);
    unsetenv("FA2_NVRTC_LIBRARY");
}

/* Predictions do not depend on earlier questions: about the winner's problem, and about one that rounds to the same
 * lengths. */
static void test_order(void)
{
    const fa2_problem problems[] = {tuned_problem(1, 512), tuned_problem(1, 511), tuned_problem(1, 512)};
    begin();
    fill();
    tuned_sql(&database, winners_code);
    remove_nvrtc();
    for (size_t i = 0; i < 2; i++) {
        fa2i_predicted both[2] = {{0}};
        predict_all(&problems[i], 2, true, both);
        for (size_t j = 0; j < 2; j++) {
            fa2i_predicted alone = {0};
            predict(&problems[i + j], true, &alone);
            CHECK_EQ(both[j].decision.passed_count, 1);
            CHECK_STR(both[j].decision.passed_over, variants[0].text);
            CHECK_STR(both[j].decision.why, alone.decision.why);
            CHECK_EQ(both[j].decision.replaces, alone.decision.replaces);
            CHECK_EQ(both[j].decision.replaces, problems[i + j].seq_q == 512);
            CHECK_EQ(alone.decision.passed_count, 1);
            CHECK_STR(both[j].variant.text, alone.variant.text);
            fa2i_predicted_done(&alone);
        }
        for (size_t j = 0; j < 2; j++)
            fa2i_predicted_done(&both[j]);
    }
    end(NULL);
    unsetenv("FA2_NVRTC_LIBRARY");
}

static int loads_traced(void)
{
    int count = 0;
    for (const char *at = fake.trace; (at = strstr(at, "module_load_data_ex")) != NULL; at++)
        count++;
    return count;
}

/* How much PTX spills is known once a driver has loaded it, and then to all later processes. */
static void test_spilling_ptx(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    const damage_case second = {.rule = FA2_RULE_DEFAULT, .variant = 1, .said = "choice 2"};
    fa2i_predicted f = {0};
    begin();
    fill();
    tuned_sql(&database, "DELETE FROM winner; DELETE FROM measurement; DELETE FROM kernel WHERE id > 2");
    put_ptx(0, 64);
    put_ptx(1, 0);
    fa2_context *context = create();
    CHECK_STR(explain(context, problem).variant, variants[1].text);
    fa2_context_destroy(context);
    CHECK_EQ(tuned_number(&database, "SELECT registers FROM kernel WHERE id = 1"), 96);
    CHECK_EQ(tuned_number(&database, "SELECT spill_bytes FROM kernel WHERE id = 1"), 64);
    CHECK_EQ(tuned_number(&database, "SELECT spill_bytes FROM kernel WHERE id = 2"), 0);
    predict(&problem, true, &f);
    CHECK(f.compiled);
    CHECK_EQ(f.registers, 96);
    compare(&problem, &f, &second);
    fa2i_predicted_done(&f);
    fake_trace_clear();
    context = create(); /* the next process knows the spills, and does not load the first kernel */
    CHECK_STR(explain(context, problem).variant, variants[1].text);
    CHECK_EQ(loads_traced(), 1);
    end(context);
}

/* If all kernels spill, another process loads only the one that spills least. If the driver refuses it, the next one.
 * */
static void test_all_spill(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    long loaded_at = 0;
    begin();
    fill();
    tuned_sql(&database, "DELETE FROM winner; DELETE FROM measurement");
    never_compile = 1;
    put_ptx(0, 64), put_ptx(1, 32), put_ptx(2, 48), put_ptx(3, 40);
    for (int loads = KERNELS; loads > 0; loads -= KERNELS - 1) {
        fake_trace_clear();
        fa2_context *context = create();
        const fa2_explanation e = explain(context, problem);
        CHECK_STR(e.variant, variants[1].text);
        CHECK_EQ(e.spill_bytes, 32);
        CHECK_EQ(loads_traced(), loads);
        loaded_at = fake_traced("module_load_data_ex");
        fa2_context_destroy(context);
    }
    (void)fake_fail_driver(loaded_at, CUDA_ERROR_NOT_FOUND);
    fake_trace_clear();
    fa2_context *context = create();
    CHECK_STR(explain(context, problem).variant, variants[3].text);
    CHECK_CONTAINS(log_of.text, variants[1].text);
    CHECK_EQ(loads_traced(), 2);
    never_compile = 0;
    end(context);
}

/* For a card that is not here: what would a machine with NVRTC do about a winner that cannot be used? */
static void test_supposed(void)
{
    static const struct supposed_case {
        const char *sql;
        int variant;
        const char *passed_over;
    } cases[] = {
        {all_code, 0, ""},
        {"DELETE FROM image; UPDATE kernel SET variant = 'bogus' WHERE id = 1", 1, "bogus"},
    };
    const fa2_problem problem = tuned_problem(1, 512);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fa2i_predicted f = {0};
        begin();
        fill();
        tuned_sql(&database, cases[i].sql);
        remove_nvrtc();
        predict(&problem, false, &f);
        CHECK_EQ(f.status, FA2_OK);
        CHECK(f.supposed && !f.compiled && f.lost);
        CHECK_EQ(f.decision.rule, FA2_RULE_EXACT);
        CHECK_STR(f.variant.text, variants[cases[i].variant].text);
        CHECK_STR(f.decision.passed_over, cases[i].passed_over);
        CHECK_EQ(f.decision.replaces, cases[i].variant > 0);
        CHECK(f.runner_up.text[0] != '\0');
        fa2i_predicted_done(&f);
        predict(&problem, true, &f);
        CHECK_EQ(f.status, FA2_E_NO_NVRTC);
        fa2i_predicted_done(&f);
        end(NULL);
    }
    unsetenv("FA2_NVRTC_LIBRARY");
}

/* The winner's record was changed to more shared memory than the card has. Its code does not match this, so the kernel
 * is compiled again, as it was. */
static void test_unfit_record(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    fa2i_predicted f = {0};
    begin();
    fill();
    tuned_sql(&database, "UPDATE kernel SET recipe = replace(recipe, 'smem=', 'smem=1') WHERE id = 1");
    predict(&problem, true, &f);
    CHECK(f.lost);
    CHECK_EQ(f.decision.rule, FA2_RULE_EXACT);
    CHECK_STR(f.variant.text, variants[0].text);
    fa2_context *context = create();
    const fa2_explanation e = explain(context, problem);
    CHECK_EQ(e.rule, FA2_RULE_EXACT);
    CHECK_STR(e.variant, variants[0].text);
    CHECK_EQ(e.smem_bytes, fa2i_recipe_main(&f.variant.recipe)->smem_bytes);
    CHECK_CONTAINS(log_of.text, "is lost, and was compiled again");
    CHECK(strstr(log_of.text, "passed over") == NULL);
    fa2i_predicted_done(&f);
    end(context);
}

/* If the database knows that a variant does not compile, it is neither compiled again nor predicted. */
static void test_known_compile_error(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    fa2i_predicted f = {0};
    begin();
    fill();
    tuned_sql(&database, "DELETE FROM winner; DELETE FROM measurement; DELETE FROM image; "
                         "UPDATE kernel SET outcome = 'compile_error' WHERE id = 1");
    predict(&problem, true, &f);
    CHECK(!fate_of(&f, variants[0].text)->usable);
    compare(&problem, &f, &(damage_case){.rule = FA2_RULE_DEFAULT, .variant = 1, .said = "; passed over "});
    fa2i_predicted_done(&f);
    end(NULL);
}

/* The config forbids compiling: NVRTC is present, but must not be called. */
static const damage_case forbidden[] = {
    {"SELECT 1", true, FA2_OK, FA2_RULE_EXACT, 0, "the fastest for this very problem", false, false},
    {winners_code, true, FA2_OK, FA2_RULE_EXACT, 1,
     "its code is damaged or missing, and the context's config forbids compiling it again", true, false},
    {"DELETE FROM image WHERE kernel IN (SELECT kernel FROM winner)", true, FA2_OK, FA2_RULE_EXACT, 1,
     "config forbids compiling it again", false, false},
    {all_code, true, FA2_E_FORBIDDEN, FA2_RULE_EXACT, -1,
     "and none can be compiled: the context's config forbids compiling (never_compile)", true, true},
    {"DELETE FROM image", true, FA2_E_FORBIDDEN, FA2_RULE_EXACT, -1, "config forbids compiling", false, false},
    /* only the fourth kernel is left; better ones would have to be compiled */
    {"DELETE FROM winner; DELETE FROM measurement; DELETE FROM kernel WHERE id <> 4", true, FA2_OK, FA2_RULE_DEFAULT, 3,
     "it must be compiled, and the context's config forbids compiling", false, false},
    {"DELETE FROM winner; DELETE FROM measurement; UPDATE verification SET outcome = 'wrong' WHERE kernel < 4", true,
     FA2_OK, FA2_RULE_DEFAULT, 3, "it failed its verification (wrong), and the context's config forbids compiling",
     false, false},
    {"DELETE FROM winner; DELETE FROM measurement; DELETE FROM kernel", true, FA2_E_FORBIDDEN, FA2_RULE_DEFAULT, -1,
     "none can be compiled: the context's config forbids compiling", false, false},
    {"UPDATE verification SET outcome = 'hang'", true, FA2_E_FORBIDDEN, FA2_RULE_DEFAULT, -1,
     "config forbids compiling", false, false},
};

static void test_never_compile(void)
{
    never_compile = 1;
    test_damage_by(forbidden, sizeof forbidden / sizeof *forbidden);
    never_compile = 0;
}

/* A median of few launches that is lower than the tuner's winner by chance does not count as faster. */
static void test_chance(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    begin();
    fill();
    tuned_sql(&database, "UPDATE measurement SET n = 4, min_us = 9.8, q1_us = 9.8, median_us = 9.8 WHERE kernel = 2");
    for (int first = 0; first < 2; first++) {
        fa2i_predicted f = {0};
        predict(&problem, true, &f);
        CHECK_STR(f.options[0].text, variants[first].text);
        fa2i_predicted_done(&f);
        tuned_sql(&database, "DELETE FROM winner");
    }
    end(NULL);
}

/* The winner is among the rejected kernels, but not the first. Each counts once. */
static void test_count(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    fa2i_predicted f = {0};
    begin();
    fill();
    never_compile = 1;
    tuned_sql(&database, "UPDATE measurement SET min_us = 9.8 + kernel % 2 * 0.3 WHERE kernel IN (2, 3)");
    tuned_sql(&database, "UPDATE measurement SET q1_us = min_us, median_us = min_us, q3_us = min_us; "
                         "UPDATE winner SET median_us = 9; DELETE FROM image WHERE kernel IN (1, 2)");
    predict(&problem, true, &f);
    CHECK_EQ(f.decision.passed_count, 2);
    CHECK(f.decision.replaces);
    CHECK_STR(f.options[0].text, variants[1].text);
    CHECK_STR(f.decision.passed_over, variants[0].text);
    CHECK_STR(f.variant.text, variants[2].text);
    never_compile = 0;
    fa2i_predicted_done(&f);
    end(NULL);
}

/* Assumptions about another machine do not change what is known of this one. A kernel is gone when that question comes.
 * */
static void test_supposed_apart(void)
{
    fa2i_generator *generator = NULL;
    fa2i_cache *cache = NULL;
    fa2i_predictor predictor = {0};
    begin();
    fill();
    tuned_sql(&database, all_code);
    remove_nvrtc();
    const fa2i_card card = tuned_card(0);
    CHECK_EQ(fa2i_generator_create(&generator), FA2_OK);
    CHECK_EQ(fa2i_cache_open(database.path, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
    CHECK_EQ(fa2i_predictor_init(&predictor, generator, cache, database.path, &card), FA2_OK);
    for (int seq = 510; seq <= 512; seq++) {
        const fa2i_evidence *evidence = &predictor.planner.calibrations[FA2_OP_FORWARD].evidence;
        const fa2_problem problem = tuned_problem(1, seq);
        fa2i_predicted f = {0};
        CHECK_EQ(fa2i_predict(&predictor, &problem, &f), FA2_OK);
        CHECK(f.supposed);
        for (size_t i = 0; i < f.option_count; i++) {
            const size_t kernel = f.options[i].kernel;
            CHECK(kernel == FA2I_NONE ||
                  (kernel < evidence->kernel_count && strcmp(evidence->kernels[kernel].text, f.options[i].text) == 0));
        }
        fa2i_predicted_done(&f);
        tuned_sql(&database, "DELETE FROM winner; DELETE FROM measurement WHERE kernel = 1; "
                             "DELETE FROM verification WHERE kernel = 1; DELETE FROM image WHERE kernel = 1; "
                             "DELETE FROM kernel WHERE id = 1");
    }
    fa2i_predictor_done(&predictor);
    fa2i_cache_close(cache);
    fa2i_generator_destroy(generator);
    end(NULL);
    unsetenv("FA2_NVRTC_LIBRARY");
}

int main(void)
{
    fake_install();
    find_variants();
    fake_uninstall();
    test_chance();
    test_count();
    test_supposed_apart();
    test_spilling_ptx();
    test_all_spill();
    test_damage_by(damages, sizeof damages / sizeof *damages);
    test_never_compile();
    test_no_database();
    test_order();
    test_supposed();
    test_unfit_record();
    test_known_compile_error();
    return check_done();
}
