/*
 * The first call of a class in another process. An earlier process stored its choice beside the kernel. The choice is
 * used without Lua, until something changes on which it depends.
 */
#include "cache/content/notes.h"
#include "cache/content/report.h"
#include "planner_fixture.h"
#include "runtime/base/alloc.h"

/* Reading all scripts takes many times as many allocations. */
enum { FEW_REQUESTS = 400 };

static long answers(void)
{
    return tuned_number(&database, "SELECT count(*) FROM answer");
}

/* Prepares with a new context, as another process would. Returns the number of allocations. */
static long prepare_anew(fa2_problem problem)
{
    fa2_context *context = create();
    (void)fa2i_alloc_fail_at(0);
    CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
    const long requests = fa2i_alloc_fail_at(0);
    fa2_context_destroy(context);
    return requests;
}

static fa2_explanation explain_anew(fa2_problem problem)
{
    fa2_context *context = create();
    const fa2_explanation e = explain(context, problem);
    fa2_context_destroy(context);
    return e;
}

/* A stored answer has the same explanation, and is logged in the same way. */
static void test_taken_again(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    begin();
    const fa2_explanation first = explain_anew(problem);
    CHECK_EQ(answers(), 1);
    CHECK_EQ(tuned_number(&database, "SELECT rule FROM answer"), FA2_RULE_DEFAULT);
    CHECK_EQ(tuned_number(&database, "SELECT measured FROM answer"), 0);
    log_of = (tuned_log){.count = 0};
    CHECK(prepare_anew(problem) < FEW_REQUESTS);
    CHECK_CONTAINS(log_of.text, "nothing is tuned for B=1");
    CHECK_CONTAINS(log_of.text, first.variant);
    CHECK_EQ(log_of.count, 1);
    const fa2_explanation again = explain_anew(problem);
    CHECK_EQ(fake.compile_count, 1);
    CHECK_EQ(again.rule, FA2_RULE_DEFAULT);
    CHECK_EQ(again.measured, 0);
    CHECK_STR(again.variant, first.variant);
    CHECK_STR(again.reason, first.reason);
    CHECK_STR(again.device, first.device);
    CHECK(again.estimate_us == first.estimate_us);
    CHECK_EQ(memcmp(&again.tuned_problem, &first.tuned_problem, sizeof first.tuned_problem), 0);
    end(NULL);
}

/* Problems that round alike share an answer. Others, and other classes, have their own. */
static void test_steps(void)
{
    begin();
    prepare_anew(tuned_problem(1, 512));
    CHECK(prepare_anew(tuned_problem(1, 500)) < FEW_REQUESTS);
    CHECK(prepare_anew(tuned_problem(1, 4096)) > FEW_REQUESTS);
    CHECK_EQ(answers(), 1); /* there is a new kernel of the class, which earlier choices did not consider */
    prepare_anew(tuned_problem(1, 512));
    CHECK_EQ(answers(), 2);
    fa2_problem other = tuned_problem(1, 512);
    other.causal = 0;
    CHECK(prepare_anew(other) > FEW_REQUESTS);
    CHECK(prepare_anew(other) < FEW_REQUESTS);
    CHECK(prepare_anew(tuned_problem(1, 512)) < FEW_REQUESTS); /* a kernel of another class deletes no answer */
    end(NULL);
}

static void drop(const char *sql)
{
    const fa2_problem problem = tuned_problem(1, 512);
    prepare_anew(problem);
    CHECK_EQ(answers(), 1);
    tuned_sql(&database, sql);
    CHECK(prepare_anew(problem) > FEW_REQUESTS);
    CHECK_EQ(answers(), 1);
    CHECK(prepare_anew(problem) < FEW_REQUESTS);
}

/* When any part of the evidence changes, the model is asked again. */
static void test_evidence_changes(void)
{
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(2, 8192)});
    drop("UPDATE winner SET median_us = median_us + 1");
    drop("INSERT INTO measurement SELECT device, problem, kernel, session, 'ok', 1, 9, 1, 2, 3, 4, 0, '', tuned_at "
         "FROM winner");
    drop("UPDATE measurement SET median_us = 5");
    drop("DELETE FROM measurement");
    drop("INSERT INTO verification SELECT device, kernel, 'ok', 0.5, '', tuned_at FROM winner");
    drop("DELETE FROM verification");
    drop("DELETE FROM winner");
    drop("UPDATE kernel SET registers = registers + 1 WHERE id = (SELECT max(id) FROM kernel)");
    drop("UPDATE answer SET near = x'00'");
    drop("UPDATE answer SET estimate_us = -1");
    drop("UPDATE answer SET corrected = 1, neighbour = x'00'");
    drop("UPDATE answer SET basis = zeroblob(32)");
    end(NULL);
}

/* A measurement of the same problem, and a verification, count from the next process on. */
static void test_measurements_replace(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    begin();
    const fa2_explanation untuned = explain_anew(problem);
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 640)});
    CHECK_EQ(answers(), 0);
    CHECK_EQ(explain_anew(tuned_problem(1, 640)).rule, FA2_RULE_EXACT);
    tuned_put(&database, &(tuned_winner){.id = 2, .problem = problem});
    CHECK_EQ(explain_anew(problem).rule, FA2_RULE_EXACT);
    tuned_sql(&database, "DELETE FROM winner; DELETE FROM kernel WHERE variant LIKE '%id=%'");
    prepare_anew(problem);
    CHECK_EQ(answers(), 1);
    tuned_sql(&database, "INSERT INTO verification SELECT d.id, k.id, 'wrong', 9, 'S=130', '2026-01-02T03:04:05Z' "
                         "FROM device d, kernel k LIMIT 1");
    const fa2_explanation other = explain_anew(problem);
    CHECK(strcmp(other.variant, untuned.variant) != 0);
    CHECK_CONTAINS(other.reason, "passed over");
    CHECK(prepare_anew(problem) < FEW_REQUESTS); /* a verification stays */
    CHECK_STR(explain_anew(problem).reason, other.reason);
    end(NULL);
}

/* An answer based on a near measurement is stored as well, with its reason. */
static void test_nearest(void)
{
    const fa2_problem problem = tuned_problem(1, 600);
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    const fa2_explanation first = explain_anew(problem);
    CHECK_EQ(first.rule, FA2_RULE_NEAREST);
    CHECK_EQ(answers(), 1);
    CHECK(prepare_anew(problem) < FEW_REQUESTS);
    const fa2_explanation again = explain_anew(problem);
    CHECK_EQ(again.rule, FA2_RULE_NEAREST);
    CHECK_STR(again.reason, first.reason);
    CHECK(again.median_us == first.median_us);
    CHECK_EQ(again.tuned_problem.seq_q, 512);
    end(NULL);
}

/* Scripts, templates and shipped times are not in the database. An answer includes their hash. */
static void test_outside_changes(void)
{
    char folder[128], file[160];
    const fa2_problem problem = tuned_problem(1, 512);
    begin();
    prepare_anew(problem);
    setenv("FA2_GEN_PATH", getenv("FA2_SOURCE_DIR"), 1); /* the same scripts from files */
    CHECK(prepare_anew(problem) > FEW_REQUESTS);
    CHECK(prepare_anew(problem) < 20 * FEW_REQUESTS); /* they are read but not run */
    unsetenv("FA2_GEN_PATH");
    CHECK(prepare_anew(problem) > FEW_REQUESTS);
    CHECK(prepare_anew(problem) < FEW_REQUESTS);

    snprintf(folder, sizeof folder, "%s/share", database.folder);
    snprintf(file, sizeof file, "%s/shipped.db", folder);
    CHECK_EQ(mkdir(folder, 0700), 0);
    setenv("FA2_SHARE", folder, 1);
    CHECK(prepare_anew(problem) < FEW_REQUESTS); /* that folder is empty, and nothing was shipped before */
    FILE *out = fopen(file, "w");
    CHECK(out != NULL && fputs("no database\n", out) >= 0 && fclose(out) == 0);
    CHECK(prepare_anew(problem) > FEW_REQUESTS);
    CHECK(prepare_anew(problem) < FEW_REQUESTS);
    CHECK_EQ(remove(file), 0);
    CHECK_EQ(remove(folder), 0);
    setenv("FA2_SHARE", "", 1);
    CHECK(prepare_anew(problem) > FEW_REQUESTS);
    end(NULL);
}

/* Damaged code is compiled again, as usual. A read-only database is not written. */
static void test_damage_and_read_only(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    fa2_config config = config_of();
    fa2_context *context = NULL;
    begin();
    prepare_anew(problem);
    tuned_sql(&database, "UPDATE code SET data = zeroblob(8)");
    prepare_anew(problem);
    CHECK_EQ(fake.compile_count, 2);
    tuned_sql(&database, "DELETE FROM answer");
    config.read_only = 1;
    config.database = database.path;
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
    fa2_context_destroy(context);
    CHECK_EQ(answers(), 0);
    prepare_anew(problem);
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    (void)fa2i_alloc_fail_at(0);
    CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
    CHECK(fa2i_alloc_fail_at(0) < FEW_REQUESTS);
    end(context);
}

/* The day of use is written when the context ends, not by the call. */
static void test_day_of_use(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    begin();
    prepare_anew(problem);
    CHECK_EQ(tuned_number(&database, "SELECT used FROM image"), fa2i_cache_today());
    tuned_sql(&database, "UPDATE image SET used = 7");
    fa2_context *context = create();
    CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
    CHECK_EQ(tuned_number(&database, "SELECT used FROM image"), 7);
    fa2_context_destroy(context);
    CHECK_EQ(tuned_number(&database, "SELECT used FROM image"), fa2i_cache_today());
    CHECK_EQ(answers(), 1);
    end(NULL);
}

static void fail_first(fake_compilation *compilation, void *user)
{
    long *count = user;
    if (++*count == 1)
        compilation->result = NVRTC_ERROR_COMPILATION;
}

/* Another compiler may accept a kernel that this one refuses, so such an answer is not stored. */
static void test_compiler_fails(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    long count = 0;
    begin();
    fake.on_compile = fail_first;
    fake.on_compile_user = &count;
    CHECK_CONTAINS(explain_anew(problem).reason, "passed over");
    CHECK_EQ(answers(), 0);
    end(NULL);
}

static fa2i_stored_answer sample_answer(int number, fa2i_cache *cache)
{
    fa2i_stored_answer answer = {.question.bytes = {(uint8_t)number, (uint8_t)(number >> 8)},
                                 .kernel = tuned_key(1),
                                 .tried = 1,
                                 .decision = {.rule = FA2_RULE_DEFAULT, .problem = tuned_problem(1, 512)}};
    fa2i_problem_class(&answer.decision.problem, answer.class_key);
    CHECK_EQ(fa2i_cache_data_version(cache, &answer.version), FA2_OK);
    return answer;
}

static void check_not_exported(fa2i_cache *cache)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    CHECK_EQ(fa2i_cache_export(cache, out, NULL), FA2_OK);
    fclose(out);
    CHECK(strstr(text, "\"winner\"") != NULL && strstr(text, "answer") == NULL);
    free(text);
}

/* Storing does not wait for a locked file. */
static void check_locked(fa2i_cache *cache, const fa2i_stored_answer *answer)
{
    sqlite3 *other = NULL;
    struct timespec from, to;
    CHECK_EQ(sqlite3_open(database.path, &other), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    clock_gettime(CLOCK_MONOTONIC, &from);
    CHECK_EQ(fa2i_cache_put_notes(cache, answer, 1, NULL, 0), FA2_E_DATABASE);
    clock_gettime(CLOCK_MONOTONIC, &to);
    CHECK(to.tv_sec - from.tv_sec < 5);
    sqlite3_close(other);
}

/* An answer is not stored if another process wrote since the evidence was read. The table does not grow for ever, and
 * an unknown kernel has no answers. */
static void test_notes(void)
{
    fa2i_cache *cache = NULL;
    fa2i_stored_answer found;
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    CHECK_EQ(fa2i_cache_open(database.path, FA2I_CACHE_WRITE, NULL, NULL, &cache), FA2_OK);
    fa2i_stored_answer answer = sample_answer(1, cache);
    tuned_sql(&database, "UPDATE winner SET median_us = 1");
    CHECK_EQ(fa2i_cache_put_notes(cache, &answer, 1, NULL, 0), FA2_OK);
    CHECK_EQ(answers(), 0);
    for (int i = 0; i < FA2I_ANSWERS_MOST + 100; i++) {
        answer = sample_answer(i, cache);
        if (i < 100 || i >= FA2I_ANSWERS_MOST)
            CHECK_EQ(fa2i_cache_put_notes(cache, &answer, 1, NULL, 0), FA2_OK);
        if (i == 100)
            tuned_sql(&database, "UPDATE answer SET id = id + 3997 WHERE id = 100");
    }
    CHECK_EQ(tuned_number(&database, "SELECT max(id) - min(id) < 4096 FROM answer"), 1);
    CHECK_EQ(fa2i_cache_get_answer(cache, &answer.question, &answer.basis, &found), FA2_OK);
    CHECK_EQ(memcmp(&found.kernel, &answer.kernel, sizeof found.kernel), 0);
    check_not_exported(cache);
    answer.question.bytes[9] = 9;
    answer.kernel = tuned_key(2);
    CHECK_EQ(fa2i_cache_put_notes(cache, &answer, 1, NULL, 0), FA2_OK);
    CHECK_EQ(fa2i_cache_get_answer(cache, &answer.question, &answer.basis, &found), FA2_E_NOT_FOUND);
    check_locked(cache, &answer);
    fa2i_cache_close(cache);
    end(NULL);
}

int main(void)
{
    test_taken_again();
    test_steps();
    test_evidence_changes();
    test_measurements_replace();
    test_nearest();
    test_outside_changes();
    test_damage_and_read_only();
    test_day_of_use();
    test_compiler_fails();
    test_notes();
    return check_done();
}
