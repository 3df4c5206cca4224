/*
 * Many lengths with one context, as decoding makes them, tuned. Each gets the right kernel and grid. Few of them ask
 * the database, and changes of the database are noticed.
 */
#include "cache/internal.h"
#include "lengths_fixture.h"

/* ---- tuned ---- */

static const int tuned_lengths[] = {256, 1024, 3000, 4000}; /* ids 1 ... 4 */
enum { TUNED = sizeof(tuned_lengths) / sizeof(tuned_lengths[0]), TWIN };

/* Returns the id of the nearest tuned length. It compares ratios in integers instead of logarithms. */
static int nearest_id(int length)
{
    int best = 0;
    for (int i = 1; i < TUNED; i++) /* lengths beyond the geometric mean are nearer to the longer one */
        if ((int64_t)length * length > (int64_t)tuned_lengths[i - 1] * tuned_lengths[i])
            best = i;
    return best + 1;
}

/* Returns the id of the problem's own winner, else of the one nearest to the rounded length. The model knows none of
 * these kernels, so all have the same estimate, and the distance decides. */
static int expected_id(const fa2_problem *problem)
{
    for (int i = 0; i < TUNED; i++)
        if (tuned_lengths[i] == problem->seq_k)
            return i + 1;
    return nearest_id(fa2i_problem_asked(problem, tuned_card(0).sm_count).seq_k);
}

static void test_tuned_lengths(void)
{
    int wrong = 0;
    fa2_problem twin = problem_of(3000); /* at the same distance, but later in the order of texts */
    twin.heads_kv = 1;

    begin();
    for (int i = 0; i < TUNED; i++)
        put(i + 1, problem_of(tuned_lengths[i]));
    put(TWIN, twin);
    fa2_context *context = create(database.path);
    const long opened = statements;
    const time_t began = time(NULL);
    for (int length = 1; length <= LENGTHS; length++) {
        const fa2_problem problem = problem_of(length);
        wrong += forward(context, &problem, NULL) != FA2_OK;
        const fake_launch *launch = &fake.launches[fake.launch_count - 1];
        wrong += launch->params.seq_k != length || launch->blocks != 8;
        wrong += launched_id() != expected_id(&problem);
    }
    CHECK_EQ(wrong, 0);
    const fa2_problem exact = problem_of(3000), near = problem_of(3100);
    CHECK_EQ(explain(context, &exact).rule, FA2_RULE_EXACT);
    const fa2_explanation e = explain(context, &near);
    CHECK_EQ(e.rule, FA2_RULE_NEAREST);
    CHECK_EQ(e.tuned_problem.seq_k, tuned_lengths[expected_id(&near) - 1]);
    CHECK_EQ(fake.compile_count, 0);
    CHECK(statements > opened);
    /* one reading of the winners, one of all kernels, one of each used kernel, and one question per second; each
     * between BEGIN and COMMIT */
    CHECK(statements - opened <= RECALL + EVIDENCE + (3 + NOTES) * (1 + TWIN + 2 + time(NULL) - began));
    end(context);
}

/* Problems that are not prepared notice within a second what another process tunes. */
static void test_new_winner_is_seen(void)
{
    begin();
    put(1, problem_of(256));
    set_written_long_ago(database.path);
    fa2_context *context = create(database.path);
    const fa2_problem a = problem_of(300), b = problem_of(301), c = problem_of(302);
    CHECK_EQ(forward(context, &a, NULL), FA2_OK);
    CHECK_EQ(launched_id(), 1);
    put(2, b);
    set_written_long_ago(database.path);
    tuned_wait();
    const long before = statements;
    CHECK_EQ(forward(context, &b, NULL), FA2_OK);
    CHECK_EQ(launched_id(), 2);
    CHECK_EQ(statements - before, 3 * 3);         /* was it written? the winners; the kernel */
    CHECK_EQ(forward(context, &a, NULL), FA2_OK); /* a prepared problem keeps its kernel */
    CHECK_EQ(launched_id(), 1);
    tuned_wait();
    CHECK_EQ(forward(context, &c, NULL), FA2_OK);
    CHECK_EQ(statements - before, 3 * 4 + RECALL + EVIDENCE); /* was it written? Not now, but before */
    end(context);
}

/* In SQLite's WAL mode the log is written instead of the database. The log lies beside the real file, not beside the
 * symbolic link that a context was given. */
static void test_new_winner_in_log(bool through_link)
{
    char log[128], link[128];
    begin();
    snprintf(link, sizeof(link), "%s/link.db", database.folder);
    CHECK_EQ(symlink(database.path, link), 0);
    put(1, problem_of(256));
    put(2, problem_of(4096));
    tuned_sql(&database, "PRAGMA journal_mode = WAL");
    fa2_context *context = create(through_link ? link : database.path);
    snprintf(log, sizeof(log), "%s-wal", database.path);
    tuned_sql(&database, "UPDATE winner SET median_us = 1"); /* now there is a log */
    set_written_long_ago(database.path);
    set_written_long_ago(log);
    const fa2_problem a = problem_of(300), b = problem_of(301);
    CHECK_EQ(forward(context, &a, NULL), FA2_OK);
    CHECK_EQ(launched_id(), 1);
    tuned_sql(&database, "UPDATE winner SET kernel = (SELECT max(kernel) FROM winner)");
    tuned_wait();
    CHECK_EQ(forward(context, &b, NULL), FA2_OK);
    CHECK_EQ(launched_id(), 2);
    fa2_context_destroy(context);
    tuned_sql(&database, "PRAGMA journal_mode = DELETE"); /* removes the log */
    CHECK_EQ(remove(link), 0);
    end(NULL);
}

/* Winners that cannot be read again stay in use. Each outage is logged once. */
static void test_winners_unreadable(void)
{
    begin();
    put(1, problem_of(256));
    fa2_context *context = create(database.path);
    CHECK_EQ(explain_length(context, 300).rule, FA2_RULE_NEAREST);
    for (int outage = 1; outage <= 2; outage++) {
        failing = "data_version";
        for (int second = 0; second < 2; second++) {
            tuned_wait();
            CHECK_EQ(explain_length(context, 300 + 10 * outage + second).rule, FA2_RULE_NEAREST);
            CHECK_EQ(log_of.count, outage);
        }
        failing = NULL;
        tuned_wait();
        CHECK_EQ(explain_length(context, 300 + 10 * outage + 9).rule, FA2_RULE_NEAREST);
    }
    CHECK_CONTAINS(log_of.text, "the database is passed over");
    end(context);
}

/* A kernel that cannot be read for a while is used later, although the file was not written. */
static void test_kernel_unreadable(void)
{
    begin();
    put(1, problem_of(256));
    fa2_context *context = create(database.path);
    failing = "JOIN image";
    CHECK_EQ(explain_length(context, 256).rule, FA2_RULE_DEFAULT);
    failing = NULL;
    CHECK_CONTAINS(log_of.text, "a tuned kernel is passed over");
    tuned_wait();
    CHECK_EQ(explain_length(context, 257).rule, FA2_RULE_NEAREST);
    end(context);
}

/* Copies the database as shipped results into a folder. */
static void ship(char *folder, char *file, size_t bytes)
{
    fa2i_cache *cache = NULL;
    sqlite3_int64 size = 0;
    snprintf(folder, bytes, "%s.share", database.path);
    snprintf(file, bytes, "%s.share/shipped.db", database.path);
    CHECK_EQ(mkdir(folder, 0700), 0);
    FILE *out = fopen(file, "w");
    CHECK(out != NULL);
    CHECK_EQ(fa2i_cache_open(database.path, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
    unsigned char *data = sqlite3_serialize(cache->db, "main", &size, 0);
    CHECK_EQ(fwrite(data, 1, (size_t)size, out), (size_t)size);
    sqlite3_free(data);
    fa2i_cache_close(cache);
    fclose(out);
}

/* If the database's times cannot be read for a while, shipped results are used. */
static void test_evidence_unreadable(void)
{
    char folder[256], file[256];
    const fa2_problem problem = problem_of(8192);
    fa2i_generator *generator = NULL;
    fa2i_variant *variants = NULL;
    size_t count = 0;
    begin();
    const fa2i_card card = tuned_card(0);
    CHECK_EQ(fa2i_generator_create(&generator), FA2_OK);
    CHECK_EQ(fa2i_generator_candidates(generator, &problem, &card, &variants, &count), FA2_OK);
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = problem, .text = variants[0].text});
    fa2i_free(variants);
    fa2i_generator_destroy(generator);
    ship(folder, file, sizeof folder);
    setenv("FA2_SHARE", folder, 1);
    fa2_context *context = create(database.path);
    failing = "WITH timed";
    CHECK_EQ(explain_length(context, 8200).rule, FA2_RULE_SHIPPED);
    CHECK_EQ(log_of.count, 1);
    CHECK_CONTAINS(log_of.text, "the database is passed over");
    failing = NULL;
    CHECK_EQ(explain_length(context, 16384).rule, FA2_RULE_NEAREST);
    unsetenv("FA2_SHARE");
    CHECK_EQ(remove(file), 0);
    CHECK_EQ(remove(folder), 0);
    end(context);
}

/* If the file is deleted, prepared problems keep their kernels. Others are served without it, and execute no statement.
 * */
static void test_deleted(void)
{
    begin();
    put(1, problem_of(256));
    fa2_context *context = create(database.path);
    CHECK_EQ(explain_length(context, 256).rule, FA2_RULE_EXACT);
    CHECK_EQ(explain_length(context, 300).rule, FA2_RULE_NEAREST);
    CHECK_EQ(remove(database.path), 0);
    tuned_wait();
    const long opened = statements;
    for (int length = 1; length <= LENGTHS; length++) {
        const fa2_problem problem = problem_of(length);
        CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
    }
    CHECK_EQ(statements, opened);
    CHECK_EQ(explain_length(context, 256).rule, FA2_RULE_EXACT);
    CHECK_EQ(explain_length(context, 300).rule, FA2_RULE_NEAREST);
    CHECK_EQ(explain_length(context, 301).rule, FA2_RULE_DEFAULT);
    CHECK_CONTAINS(log_of.text, "was deleted; working without it until there is another");
    CHECK_EQ(log_of.count, 2); /* the second says that nothing tuned can be used */
    end(context);
}

int main(void)
{
    CHECK_EQ(sqlite3_auto_extension((void (*)(void))watch), SQLITE_OK);
    test_tuned_lengths();
    test_new_winner_is_seen();
    test_new_winner_in_log(false);
    test_new_winner_in_log(true);
    test_winners_unreadable();
    test_kernel_unreadable();
    test_evidence_unreadable();
    test_deleted();
    return check_done();
}
