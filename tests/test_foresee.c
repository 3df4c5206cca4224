/*
 * What is said of a call beforehand is what the call does: for each damage to a database, with a compiler and without,
 * the foresight (`fa2-tune explain`) and then a context are asked on the same file.
 */
#include "planner_fixture.h"
#include "put_measurement.h"
#include "runtime/base/alloc.h"
#include "runtime/cuda/compile.h"
#include "runtime/plan/share.h"
#include "scripts_fixture.h"
#include "tuner/report/foresee.h"

enum { KERNELS = 4 /* the model's first, the best first */ };
static fa2i_variant variants[KERNELS];
static fa2i_key keys[KERNELS];

/* The model's first candidates for the problem, with the keys that they get here. */
static void find_variants(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    const fa2i_card card = tuned_card(0);
    const fa2i_target target = {.name = "sm_86"};
    fa2i_generator *generator = NULL;
    fa2i_variant *all = NULL;
    size_t count = 0;
    CHECK_EQ(fa2i_generator_create(&generator), FA2_OK);
    CHECK_EQ(fa2i_generator_candidates(generator, &problem, &card, &all, &count), FA2_OK);
    CHECK(count > KERNELS);
    for (size_t i = 0; i < KERNELS; i++) {
        char *source = NULL;
        variants[i] = all[i];
        CHECK_EQ(fa2i_generator_source(generator, all[i].text, &source), FA2_OK);
        CHECK_EQ(fa2i_compile_key(&all[i], source, &target, &keys[i]), FA2_OK);
        fa2i_free(source);
    }
    fa2i_free(all);
    fa2i_generator_destroy(generator);
}

/* All of them compiled and timed on device 0, 10, 12, 14 and 16 us: the first is the winner. */
static void fill(void)
{
    fa2i_cache *cache = NULL;
    const fa2_problem problem = tuned_problem(1, 512);
    const fa2i_card card = tuned_card(0);
    fa2i_session session = {
        .driver = 13000, .nvrtc = 13000, .generator = "0123456789abcdef", .origin = "tune"};
    const fa2i_winner winner = {
        .kernel = keys[0], .measured = true, .median_us = 10, .default_us = 10, .model_us = 10};
    int64_t session_id = 0, problem_id = 0;
    CHECK_EQ(fa2i_cache_open(database.path, FA2I_CACHE_WRITE, NULL, NULL, &cache), FA2_OK);
    CHECK_EQ(fa2i_cache_device(cache, &card, true, &session.device), FA2_OK);
    CHECK_EQ(fa2i_cache_problem(cache, &problem, &problem_id), FA2_OK);
    CHECK_EQ(fa2i_cache_session_begin(cache, &session, &session_id), FA2_OK);
    for (size_t i = 0; i < KERNELS; i++) {
        fa2i_kernel kernel = {.key = keys[i],
                              .variant = variants[i],
                              .target = "sm_86",
                              .nvrtc = 13000,
                              .generator = "0123456789abcdef",
                              .registers = 96};
        const double us = 10 + 2 * (double)i;
        const fa2i_measurement timed = {
            .settled = true, .n = 9, .min_us = us, .q1_us = us, .median_us = us, .q3_us = us};
        const fa2i_verification right = {.outcome = FA2I_OUTCOME_OK, .max_error = 0.5};
        char source[32];
        snprintf(source, sizeof source, "tuned, id=%zu", i);
        fake_image(variants[i].recipe.steps[0].entry, "sm_86", source, &kernel.image);
        CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
        fa2i_kernel_done(&kernel);
        CHECK_EQ(fa2i_cache_put_verification(cache, session.device, &keys[i], &right), FA2_OK);
        CHECK_EQ(put_measurement(cache, session_id, session.device, problem_id, &keys[i], &timed),
                 FA2_OK);
    }
    CHECK_EQ(fa2i_cache_put_winner(cache, session_id, session.device, problem_id, &winner), FA2_OK);
    fa2i_cache_close(cache);
}

/* What is foreseen of problems, one behind the other, with fates. */
static void foresee_all(const fa2_problem *problems, size_t count, bool here, fa2i_foreseen *out)
{
    fa2i_generator *generator = NULL;
    fa2i_cache *cache = NULL;
    fa2i_foresight foresight = {0};
    const fa2i_card card = tuned_card(0);
    const long compiled = fake.compile_count;
    CHECK_EQ(fa2i_generator_create(&generator), FA2_OK);
    const fa2_status st = fa2i_cache_open(database.path, FA2I_CACHE_READ, NULL, NULL, &cache);
    CHECK(st == FA2_OK || st == FA2_E_NOT_FOUND);
    CHECK_EQ(fa2i_foresight_init(&foresight, generator, cache, database.path, &card), FA2_OK);
    if (here)
        fa2i_foresight_be_here(&foresight);
    if (never_compile)
        foresight.planner.no_compiler = FA2_E_FORBIDDEN;
    fake_trace_clear();
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ(fa2i_foresee(&foresight, &problems[i], &out[i]), FA2_OK);
        CHECK_EQ(fa2i_foresee_fates(&foresight, &out[i]), FA2_OK);
    }
    CHECK_EQ(fake_traced("module_load_data_ex"), 0); /* it only looks */
    CHECK_EQ(fake.compile_count, compiled);
    fa2i_foresight_done(&foresight);
    fa2i_cache_close(cache);
    fa2i_generator_destroy(generator);
}

static void foresee(const fa2_problem *problem, bool here, fa2i_foreseen *out)
{
    foresee_all(problem, 1, here, out);
}

/* The fate of a variant; NULL: it is no option. */
static const fa2i_fate *fate_of(const fa2i_foreseen *f, const char *text)
{
    for (size_t i = 0; i < f->option_count; i++)
        if (strcmp(f->options[i].text, text) == 0)
            return &f->fates[i];
    return NULL;
}

typedef struct damage_case {
    const char *sql;
    bool nvrtc;
    fa2_status status;
    fa2_rule rule;
    int variant;         /* index; -1: another one */
    const char *said;    /* in the reason, or the message */
    bool damaged, other; /* the winner's code is; the next one's is */
} damage_case;

static const char winners_code[] = "UPDATE code SET data = zeroblob(length(data)) WHERE id IN "
                                   "(SELECT code FROM image JOIN winner USING (kernel))";
static const char all_code[] = "UPDATE code SET data = zeroblob(length(data))";

static const damage_case damages[] = {
    {"SELECT 1", true, FA2_OK, FA2_RULE_EXACT, 0, "the fastest for this very problem", false,
     false},
    {"SELECT 1", false, FA2_OK, FA2_RULE_EXACT, 0, "the fastest for", false, false},
    {winners_code, true, FA2_OK, FA2_RULE_EXACT, 0, "the fastest for", true, false},
    {winners_code, false, FA2_OK, FA2_RULE_EXACT, 1, "it replaces the winner", true, false},
    {"UPDATE code SET data = substr(data, 1, 20) WHERE id IN "
     "(SELECT code FROM image JOIN winner USING (kernel))",
     false, FA2_OK, FA2_RULE_EXACT, 1, "there is no NVRTC to compile it again", true, false},
    {"DELETE FROM code WHERE id IN (SELECT code FROM image JOIN winner USING (kernel))", false,
     FA2_OK, FA2_RULE_EXACT, 1, "the fastest that can be used", true, false},
    {"DELETE FROM image WHERE kernel IN (SELECT kernel FROM winner)", false, FA2_OK, FA2_RULE_EXACT,
     1, "its code is damaged or missing", false, false},
    {"UPDATE image SET seal = zeroblob(32)", true, FA2_OK, FA2_RULE_EXACT, 0, "the fastest for",
     true, true},
    /* the winner's record says that it does not compile; is unreadable */
    {"UPDATE kernel SET outcome = 'compile_error' WHERE id = 1", true, FA2_OK, FA2_RULE_EXACT, 1,
     ": it does not compile for sm_86, as its record says", false, false},
    {"UPDATE kernel SET outcome = 'compile_error', log = 'error: no' WHERE id = 1; DELETE FROM image WHERE kernel = 1",
     true, FA2_OK, FA2_RULE_EXACT, 1, "it does not compile for sm_86: error: no", false, false},
    {"UPDATE kernel SET recipe = 'nonsense' WHERE id = 1", true, FA2_OK, FA2_RULE_EXACT, 1,
     "it replaces the winner: ", false, false},
    {"UPDATE kernel SET generator = 'x' WHERE id = 1", true, FA2_OK, FA2_RULE_EXACT, 1, "it replaces the winner: ",
     false, false},
    /* the winner's row is damaged, and its kernel is sound */
    {"UPDATE winner SET model_us = -1", true, FA2_OK, FA2_RULE_EXACT, 0, "the fastest for this very problem", false,
     false},
    {"UPDATE kernel SET variant = 'bogus' WHERE id = 1", true, FA2_OK, FA2_RULE_EXACT, 1,
     "it replaces the winner", false, false},
    {all_code, false, FA2_E_NO_NVRTC, FA2_RULE_EXACT, -1, "none can be compiled", true, true},
    {"DELETE FROM image", false, FA2_E_NO_NVRTC, FA2_RULE_EXACT, -1, "none can be compiled", false,
     false},
    {"DELETE FROM winner; DELETE FROM measurement", false, FA2_OK, FA2_RULE_DEFAULT, 0,
     "the cost model's first choice", false, false},
    {"DELETE FROM winner; DELETE FROM measurement; DELETE FROM kernel", false, FA2_E_NO_NVRTC,
     FA2_RULE_DEFAULT, -1, "none can be compiled", false, false},
    /* the winner was found to fault since: it is no winner, and nobody's rival */
    {"UPDATE verification SET outcome = 'fault' WHERE kernel IN (SELECT kernel FROM winner)", true,
     FA2_OK, FA2_RULE_EXACT, 1, "this very problem", false, false},
    {"UPDATE verification SET outcome = 'hang'", true, FA2_E_UNSUPPORTED, FA2_RULE_DEFAULT, -1,
     "failed its verification (hang)", false, false},
    {"UPDATE verification SET outcome = 'launch_error'", false, FA2_E_NO_NVRTC, FA2_RULE_DEFAULT,
     -1, "none can be compiled", false, false},
};

/* What a context says, and does, is what was foreseen. */
static void compare(const fa2_problem *problem, const fa2i_foreseen *f, const damage_case *c)
{
    fa2_context *context = create();
    fa2_explanation e = {.struct_bytes = sizeof e};
    const long compiled = fake.compile_count;
    CHECK_EQ(fa2_prepare(context, problem), c->status);
    CHECK_EQ(f->status, c->status);
    if (c->status != FA2_OK) {
        CHECK_STR(f->message, fa2_last_message());
        CHECK_CONTAINS(f->message, c->said);
        fa2_context_destroy(context);
        return;
    }
    CHECK_EQ(fake.compile_count - compiled, f->compiled ? 0 : 1);
    CHECK_EQ(f->lost, strstr(log_of.text, "was compiled again") != NULL);
    CHECK_EQ(fa2_explain(context, problem, &e), FA2_OK);
    CHECK_EQ(e.rule, c->rule);
    CHECK_EQ(f->decision.rule, c->rule);
    CHECK_STR(e.variant, variants[c->variant].text);
    CHECK_STR(f->variant.text, e.variant);
    CHECK_CONTAINS(e.reason, c->said);
    CHECK_STR(f->runner_up.text, e.runner_up);
    CHECK(f->runner_up.us <= e.runner_up_us && f->runner_up.us >= e.runner_up_us);
    CHECK(f->decision.estimate_us <= e.estimate_us && f->decision.estimate_us >= e.estimate_us);
    fa2_context_destroy(context);
}

static void test_damage_by(const damage_case *cases, size_t count)
{
    const fa2_problem problem = tuned_problem(1, 512);
    for (size_t i = 0; i < count; i++) {
        const damage_case *c = &cases[i];
        const int failures = check_failures;
        fa2i_foreseen f = {0};
        begin();
        fill();
        tuned_sql(&database, c->sql);
        if (!c->nvrtc)
            remove_nvrtc();
        (void)fake_fail_nvrtc(0, NVRTC_SUCCESS);
        foresee(&problem, true, &f);
        const fa2i_fate *first = fate_of(&f, variants[0].text),
                        *second = fate_of(&f, variants[1].text);
        CHECK(!c->damaged || first != NULL);
        CHECK(!c->other || second != NULL);
        CHECK(first == NULL || first->damaged == c->damaged);
        CHECK(second == NULL || second->damaged == c->other);
        const fa2i_fate *next = fate_of(&f, f.runner_up.text);
        CHECK(next == NULL || (next->usable && !next->refuted));
        compare(&problem, &f, c);
        if (never_compile)
            CHECK_EQ(fake_fail_nvrtc(0, NVRTC_SUCCESS), 0); /* calls since */
        fa2i_foreseen_done(&f);
        end(NULL);
        unsetenv("FA2_NVRTC_LIBRARY");
        if (check_failures > failures)
            fprintf(stderr, "... case %zu, %s NVRTC: %s\n", i, c->nvrtc ? "with" : "without",
                    c->sql);
    }
}

/* No database, and then no compiler either; of a card that is not here, another machine may have one. */
static void test_no_database(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    fa2i_foreseen f = {0};
    begin();
    foresee(&problem, true, &f);
    compare(&problem, &f, &(damage_case){.rule = FA2_RULE_DEFAULT, .said = "first choice"});
    fa2i_foreseen_done(&f);
    CHECK_EQ(remove(database.path), 0);
    remove_nvrtc();
    foresee(&problem, true, &f);
    CHECK(!f.supposed);
    compare(&problem, &f,
            &(damage_case){.status = FA2_E_NO_NVRTC, .variant = -1, .said = database.path});
    fa2i_foreseen_done(&f);
    foresee(&problem, false, &f);
    CHECK_EQ(f.status, FA2_OK);
    CHECK(f.supposed && !f.compiled);
    CHECK_STR(f.variant.text, variants[0].text);
    fa2i_foreseen_done(&f);
    end(NULL);
    unsetenv("FA2_NVRTC_LIBRARY");
}

/* What is said of a problem is said whatever was asked before: of the winner's, and of one whose estimates are made
 * for the same lengths. */
static void test_order(void)
{
    const fa2_problem problems[] = {tuned_problem(1, 512), tuned_problem(1, 511), tuned_problem(1, 512)};
    begin();
    fill();
    tuned_sql(&database, winners_code);
    remove_nvrtc();
    for (size_t i = 0; i < 2; i++) {
        fa2i_foreseen both[2] = {{0}};
        foresee_all(&problems[i], 2, true, both);
        for (size_t j = 0; j < 2; j++) {
            fa2i_foreseen alone = {0};
            foresee(&problems[i + j], true, &alone);
            CHECK_EQ(both[j].decision.passed_count, 1);
            CHECK_STR(both[j].decision.passed_over, variants[0].text);
            CHECK_STR(both[j].decision.why, alone.decision.why);
            CHECK_EQ(both[j].decision.replaces, alone.decision.replaces);
            CHECK_EQ(both[j].decision.replaces, problems[i + j].seq_q == 512);
            CHECK_EQ(alone.decision.passed_count, 1);
            CHECK_STR(both[j].variant.text, alone.variant.text);
            fa2i_foreseen_done(&alone);
        }
        for (size_t j = 0; j < 2; j++)
            fa2i_foreseen_done(&both[j]);
    }
    end(NULL);
    unsetenv("FA2_NVRTC_LIBRARY");
}

/* Of a card that is not here, what a machine with NVRTC would do about a winner that cannot be used. */
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
        fa2i_foreseen f = {0};
        begin();
        fill();
        tuned_sql(&database, cases[i].sql);
        remove_nvrtc();
        foresee(&problem, false, &f);
        CHECK_EQ(f.status, FA2_OK);
        CHECK(f.supposed && !f.compiled && f.lost);
        CHECK_EQ(f.decision.rule, FA2_RULE_EXACT);
        CHECK_STR(f.variant.text, variants[cases[i].variant].text);
        CHECK_STR(f.decision.passed_over, cases[i].passed_over);
        CHECK_EQ(f.decision.replaces, cases[i].variant > 0);
        CHECK(f.runner_up.text[0] != '\0');
        fa2i_foreseen_done(&f);
        foresee(&problem, true, &f);
        CHECK_EQ(f.status, FA2_E_NO_NVRTC);
        fa2i_foreseen_done(&f);
        end(NULL);
    }
    unsetenv("FA2_NVRTC_LIBRARY");
}

/* The winner's record was changed, to more shared memory than the card has: its code is none for that, and it is made
 * again as it was. */
static void test_unfit_record(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    fa2i_foreseen f = {0};
    begin();
    fill();
    tuned_sql(&database, "UPDATE kernel SET recipe = replace(recipe, 'smem=', 'smem=1') WHERE id = 1");
    foresee(&problem, true, &f);
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
    fa2i_foreseen_done(&f);
    end(context);
}

/* A variant of which the database knows that it does not compile is not compiled again, nor promised. */
static void test_known_compile_error(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    fa2i_foreseen f = {0};
    begin();
    fill();
    tuned_sql(&database, "DELETE FROM winner; DELETE FROM measurement; DELETE FROM image; "
                         "UPDATE kernel SET outcome = 'compile_error' WHERE id = 1");
    foresee(&problem, true, &f);
    CHECK(!fate_of(&f, variants[0].text)->usable);
    compare(&problem, &f,
            &(damage_case){.rule = FA2_RULE_DEFAULT, .variant = 1, .said = "; passed over "});
    fa2i_foreseen_done(&f);
    end(NULL);
}

/* The scripts are others than those that wrote the database's kernels. */
static void test_other_scripts(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    fa2i_foreseen f = {0};
    scripts_begin();
    write_commented("other");

    /* untimed, a sound kernel of the others is nobody's: what the scripts write now is compiled */
    begin();
    fill();
    tuned_sql(&database, "DELETE FROM winner; DELETE FROM measurement");
    foresee(&problem, true, &f);
    const fa2i_fate *fate = fate_of(&f, variants[0].text);
    CHECK(fate != NULL && fate->usable && !fate->code && !fate->damaged);
    compare(&problem, &f, &(damage_case){.rule = FA2_RULE_DEFAULT, .said = "first choice"});
    fa2i_foreseen_done(&f);
    end(NULL);

    /* a lost winner that the scripts of now have written already, and of which the code is there */
    begin();
    fa2_context *context = create();
    CHECK_STR(explain(context, problem).variant, variants[0].text);
    fa2_context_destroy(context);
    fill();
    tuned_sql(&database, winners_code);
    log_of = (tuned_log){.count = 0};
    foresee(&problem, true, &f);
    CHECK(f.compiled && !f.lost);
    compare(&problem, &f, &(damage_case){.rule = FA2_RULE_EXACT, .said = "the fastest for"});
    CHECK(strstr(log_of.text, "compiled again") == NULL);
    CHECK_CONTAINS(log_of.text, "is lost, and is replaced by that of the same kernel");
    fa2i_foreseen_done(&f);
    end(NULL);

    /* what a lost winner is made again as is another problem's choice, of which nothing is lost: since one of its
     * launches failed, the winner is no kernel that the database has for others */
    const fa2_problem both[] = {problem, tuned_problem(1, 511)};
    fa2i_foreseen of_both[2] = {{0}};
    begin();
    fill();
    tuned_sql(&database, "DELETE FROM measurement WHERE kernel NOT IN (SELECT kernel FROM winner); "
                         "UPDATE measurement SET outcome = 'launch_error'");
    tuned_sql(&database, winners_code);
    foresee_all(both, 2, true, of_both);
    CHECK(!of_both[0].compiled && of_both[0].lost);
    foresee(&both[1], true, &f);
    CHECK_STR(of_both[1].variant.text, variants[0].text);
    CHECK_STR(of_both[1].variant.text, f.variant.text);
    CHECK(!f.compiled && !f.lost);
    CHECK(!of_both[1].compiled && !of_both[1].lost);
    for (size_t i = 0; i < 2; i++)
        fa2i_foreseen_done(&of_both[i]);
    fa2i_foreseen_done(&f);
    end(NULL);
    scripts_end();
}

/* Whose config forbids compiling: NVRTC is here, and not asked. */
static const damage_case forbidden[] = {
    {"SELECT 1", true, FA2_OK, FA2_RULE_EXACT, 0, "the fastest for this very problem", false,
     false},
    {winners_code, true, FA2_OK, FA2_RULE_EXACT, 1,
     "its code is damaged or missing, and the context's config forbids compiling it again", true,
     false},
    {"DELETE FROM image WHERE kernel IN (SELECT kernel FROM winner)", true, FA2_OK, FA2_RULE_EXACT,
     1, "config forbids compiling it again", false, false},
    {all_code, true, FA2_E_FORBIDDEN, FA2_RULE_EXACT, -1,
     "and none can be compiled: the context's config forbids compiling (never_compile)", true,
     true},
    {"DELETE FROM image", true, FA2_E_FORBIDDEN, FA2_RULE_EXACT, -1, "config forbids compiling",
     false, false},
    /* the fourth alone is left: what comes before it would have to be compiled */
    {"DELETE FROM winner; DELETE FROM measurement; DELETE FROM kernel WHERE id <> 4", true, FA2_OK,
     FA2_RULE_DEFAULT, 3, "it must be compiled, and the context's config forbids compiling", false,
     false},
    {"DELETE FROM winner; DELETE FROM measurement; DELETE FROM kernel", true, FA2_E_FORBIDDEN,
     FA2_RULE_DEFAULT, -1, "none can be compiled: the context's config forbids compiling", false,
     false},
    {"UPDATE verification SET outcome = 'hang'", true, FA2_E_FORBIDDEN, FA2_RULE_DEFAULT, -1,
     "config forbids compiling", false, false},
};

static void test_never_compile(void)
{
    never_compile = 1;
    test_damage_by(forbidden, sizeof forbidden / sizeof *forbidden);
    never_compile = 0;
}

int main(void)
{
    fake_install();
    find_variants();
    fake_uninstall();
    test_damage_by(damages, sizeof damages / sizeof *damages);
    test_never_compile();
    test_other_scripts();
    test_no_database();
    test_order();
    test_supposed();
    test_unfit_record();
    test_known_compile_error();
    return check_done();
}
