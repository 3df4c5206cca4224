/*
 * Kernels that a context compiles and stores, and its log; databases that cannot be used or written.
 */
#include <sys/wait.h>
#include "planner_fixture.h"

enum { NOBODY = 65534 };

/* The default rule is logged once per class of problems. Its search leaves no trace in the database. */
static void test_default_is_told_once(void)
{
    begin();
    fa2_context *context = create();
    fa2_problem problem = tuned_problem(1, 512);
    explain(context, problem);
    CHECK_EQ(log_of.count, 1);
    explain(context, tuned_problem(3, 640));
    CHECK_EQ(log_of.count, 1);
    problem.causal = 0;
    explain(context, problem);
    CHECK_EQ(log_of.count, 2);
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM device"), 0);
    end(context);
}

/* A kernel with too much shared memory for this card's blocks is not loaded, and the log says so. */
static void test_too_much_shared_memory(void)
{
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512), .smem_bytes = 101377});
    tuned_put(&database, &(tuned_winner){.id = 2, .problem = tuned_problem(1, 1024), .smem_bytes = 101376});
    fa2_context *context = create();
    const fa2_explanation e = explain(context, tuned_problem(1, 512));
    CHECK_STR(e.variant, "fwd_sm80 d=64 id=2");
    CHECK_EQ(e.smem_bytes, 101376);
    CHECK_CONTAINS(e.reason, "it replaces the winner fwd_sm80 d=64 id=1: fwd_sm80 needs 101377 bytes of shared memory");
    CHECK_EQ(log_of.count, 1);
    CHECK_CONTAINS(log_of.text, "a tuned kernel is passed over: fwd_sm80 d=64 id=1: fwd_sm80 needs 101377 bytes");
    end(context);
}

/* A compiled kernel is stored and found again, unless the database is read-only. */
static void test_compiled_once(void)
{
    begin();
    fa2_context *context = create();
    fa2_explanation first = explain(context, tuned_problem(1, 512));
    CHECK_EQ(first.rule, FA2_RULE_DEFAULT);
    CHECK_CONTAINS(log_of.text, "nothing is tuned for B=1");
    CHECK_CONTAINS(log_of.text, first.variant);
    CHECK_EQ(fake.compile_count, 1);
    fa2_context_destroy(context);
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM image"), 1);

    context = create();
    fa2_explanation second = explain(context, tuned_problem(1, 512));
    CHECK_EQ(fake.compile_count, 1);
    CHECK_STR(second.variant, first.variant);
    CHECK_EQ(second.registers, first.registers);

    tuned_sql(&database, "UPDATE code SET data = zeroblob(8)"); /* damaged: compiled and stored again */
    fa2_context_destroy(context);
    context = create();
    explain(context, tuned_problem(1, 512));
    CHECK_EQ(fake.compile_count, 2);
    CHECK(tuned_number(&database, "SELECT length(data) FROM code") > 8);
    end(context);
}

/* Dropout's mask function changed. A kernel tuned before the change is not used, and the log says so. */
static void test_other_dropout(void)
{
    fa2_problem problem = tuned_problem(1, 512);
    begin();
    problem.dropout = 1;
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = problem});
    fa2_context *context = create();
    const fa2_explanation e = explain(context, problem);
    CHECK_EQ(e.rule, FA2_RULE_DEFAULT);
    CHECK_CONTAINS(e.variant, "dropout=1 br=");
    CHECK_EQ(fake.compile_count, 1);
    CHECK_CONTAINS(log_of.text, "is of another version of fa2, which computes or launches such kernels otherwise, "
                                "and is not used; tune its problems again with this one");
    fa2_context_destroy(context);
    context = create(); /* the newly compiled kernel is used */
    explain(context, problem);
    CHECK_EQ(fake.compile_count, 1);
    end(context);
}

static void test_read_only(void)
{
    begin();
    fa2_config config = config_of();
    fa2_context *context = NULL;
    config.read_only = 1;
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK); /* there is no file, and none is created */
    CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_DEFAULT);
    CHECK(access(database.path, F_OK) != 0);
    fa2_context_destroy(context);

    fa2_context_destroy(create()); /* creates the file */
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_DEFAULT);
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM kernel"), 0);
    end(context);
}

/* Storing fails: this is logged once, and the call succeeds. */
static void test_store_fails(void)
{
    begin();
    fa2_context *context = create();
    tuned_sql(&database, "CREATE TRIGGER full BEFORE INSERT ON kernel "
                         "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END");
    fa2_problem problem = tuned_problem(1, 512);
    CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
    CHECK_CONTAINS(log_of.text, "not stored");
    CHECK_CONTAINS(log_of.text, "the disk is full");
    problem.head_dim = 128;
    CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
    const char *first = strstr(log_of.text, "not stored");
    CHECK(first != NULL && strstr(first + 1, "not stored") == NULL);
    end(context);
}

static void check_unusable(const char *part)
{
    const fa2_config config = config_of();
    fa2_context *context = NULL;
    CHECK_EQ(fa2_context_create(&config, &context), FA2_E_DATABASE);
    CHECK(context == NULL);
    CHECK_CONTAINS(fa2_last_message(), database.path);
    CHECK_CONTAINS(fa2_last_message(), part);
    CHECK_EQ(fake_live(), 0);
}

static void test_unusable_database(void)
{
    begin();
    FILE *file = fopen(database.path, "w");
    CHECK(file != NULL && fputs("this is a diary, dear diary, and no database", file) >= 0);
    CHECK(file != NULL && fclose(file) == 0);
    chmod(database.path, 0600);
    check_unusable("not a database");
    remove(database.path);

    fa2_context_destroy(create());
    CHECK_EQ(chmod(database.path, 0666), 0);
    check_unusable("others can write");
    CHECK_EQ(chmod(database.path, 0600), 0);
    tuned_sql(&database, "PRAGMA user_version = 1000");
    check_unusable("1000");
    end(NULL);
}

/* If no file can be created, there is no database, and the log says why. */
static void test_nowhere_to_create(void)
{
    begin();
    fa2_config config = config_of();
    fa2_context *context = NULL;
    config.database = "/proc/fa2-cannot-be-made/fa2.db";
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    CHECK_CONTAINS(log_of.text, "working without a database");
    CHECK_CONTAINS(log_of.text, config.database);
    CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_DEFAULT);
    end(context);
}

/* Runs in a child as a user who may read but not write, because root may always write. */
static int use_unwritable(void)
{
    if (geteuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
        return 1;
    fa2_context *context = create();
    CHECK_CONTAINS(log_of.text, "without writing to it");
    CHECK_EQ(log_of.count, 1);
    CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_EXACT);
    fa2_problem other = tuned_problem(1, 512);
    other.causal = 0;
    CHECK_EQ(explain(context, other).rule, FA2_RULE_DEFAULT);
    fa2_context_destroy(context);
    return check_failures;
}

static void test_unwritable_database(void)
{
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    CHECK_EQ(chmod(database.path, 0444), 0);
    CHECK_EQ(chmod(database.folder, 0555), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(use_unwritable() == 0 ? 0 : 1);
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM kernel"), 1);
    end(NULL);
}

/* If no path can be determined, contexts work without a database, and log this. A path in $FA2_DB is used. */
static void test_default_path(void)
{
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .log = tuned_log_add, .log_user = &log_of};
    fa2_context *context = NULL;

    begin();
    unsetenv("FA2_DB");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    CHECK_CONTAINS(log_of.text, "working without a database");
    fa2_context_destroy(context);
    setenv("FA2_DB", database.path, 1);
    CHECK_EQ(fa2_context_create(NULL, &context), FA2_OK);
    CHECK_EQ(access(database.path, F_OK), 0);
    end(context);
    unsetenv("FA2_DB");
}

/* Another process has locked the file. The context waits for it once, and the failure names the file. */
static void test_locked_database(void)
{
    const fa2_config config = config_of();
    struct timespec start, end_of;
    sqlite3 *other = NULL;
    fa2_context *context = NULL;

    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    CHECK_EQ(sqlite3_open(database.path, &other), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(other, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
    clock_gettime(CLOCK_MONOTONIC, &start);
    CHECK_EQ(fa2_context_create(&config, &context), FA2_E_DATABASE);
    clock_gettime(CLOCK_MONOTONIC, &end_of);
    CHECK_CONTAINS(fa2_last_message(), database.path);
    CHECK_CONTAINS(fa2_last_message(), "another process has been writing for 10 s");
    CHECK(end_of.tv_sec - start.tv_sec >= 9);
    CHECK(end_of.tv_sec - start.tv_sec <= 15);
    sqlite3_close(other);
    end(create()); /* after the lock is gone, everything works as usual */
}

int main(void)
{
    test_default_is_told_once();
    test_too_much_shared_memory();
    test_compiled_once();
    test_other_dropout();
    test_read_only();
    test_store_fails();
    test_unusable_database();
    test_nowhere_to_create();
    test_unwritable_database();
    test_default_path();
    test_locked_database();
    return check_done();
}
