/*
 * The results that a tuning has stored when it ends, early or not, and how the next one uses them.
 */
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include "tune_fixture.h"

extern char **environ;

/* One class of problems, so that its kernels are verified once. */
static const char *const one_class[] = {SHAPE_SHORT, "Hq=2,Sq=400,D=16", "Hq=8,Sq=700,D=16", NULL};

static int commits;

static int count_commit(void *user)
{
    (void)user;
    commits++;
    return 0;
}

/* Deletes all kernels during a tuning, before its nth writing transaction. */
static struct {
    const char *path; /* NULL: nothing is deleted */
    int begun, nth;
    long winners; /* winners deleted with them */
} forgetter;

/* Does the work of fa2-tune forget --variant. */
static void forget_all(void)
{
    sqlite3 *db = NULL;
    tuned_database database;
    snprintf(database.path, sizeof database.path, "%s", forgetter.path);
    forgetter.path = NULL;
    forgetter.winners = tuned_number(&database, "SELECT count(*) FROM winner");
    CHECK_EQ(sqlite3_open(database.path, &db), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(db,
                          "PRAGMA foreign_keys = ON; BEGIN; DELETE FROM winner; DELETE FROM measurement; "
                          "DELETE FROM verification; DELETE FROM kernel; COMMIT",
                          NULL, NULL, NULL),
             SQLITE_OK);
    sqlite3_close(db);
}

static int before_statement(unsigned event, void *user, void *statement, void *text)
{
    (void)event, (void)user, (void)statement;
    if (forgetter.path != NULL && strcmp(text, "BEGIN IMMEDIATE") == 0 && ++forgetter.begun == forgetter.nth)
        forget_all();
    return 0;
}

/* Watches all connections that are opened later. */
static int watch(sqlite3 *db, const char **message, const void *api)
{
    (void)message, (void)api;
    sqlite3_commit_hook(db, count_commit, NULL);
    sqlite3_trace_v2(db, SQLITE_TRACE_STMT, before_statement, NULL);
    return SQLITE_OK;
}

/* Returns the number of transactions for a problem whose kernels are all compiled and verified. *ret_unusable: how many
 * of its kernels cannot run. */
static int commits_of_problem(bool bad_kernels, int *ret_unusable)
{
    static const char *const shapes[] = {SHAPE_SHORT, NULL};
    static const char *const second[] = {"Hq=2,Sq=101,D=16", NULL};
    tuned_database database;
    run r;
    tuned_begin(&database);
    if (bad_kernels)
        setenv("FA2_TEST_WRONG", "kBc = 32;", 1);
    fake.rejected = bad_kernels ? "kBr = 64;" : NULL;
    tune(&database, shapes, "--all", &r);
    commits = 0;
    tune(&database, second, "--all", &r);
    const int counted = commits;
    fake.rejected = NULL;
    unsetenv("FA2_TEST_WRONG");
    CHECK_EQ(states(&r, "measured"), 1);
    CHECK_EQ(number(&r, "compiled"), 0);
    CHECK_EQ(number(&r, "verified"), 0);
    CHECK_EQ(number(&r, "failed_while_timed"), 0);
    *ret_unusable = (int)query(&database, "SELECT count(*) FROM measurements WHERE seq_q = 101 AND "
                                          "settled AND outcome <> 'ok'");
    tuned_end(&database);
    return counted;
}

/* Kernels that cannot run are stored together with the times of the others. */
static void test_one_transaction(void)
{
    int none = -1, some = -1;
    const int without = commits_of_problem(false, &none);
    const int with = commits_of_problem(true, &some);
    CHECK_EQ(none, 0);
    CHECK(some > 5);
    CHECK(without > 0);
    CHECK_EQ(with, without);
}

/* Without time nothing is measured. The next run does all of it. */
static void test_budget(void)
{
    tuned_database database;
    run r;
    tuned_begin(&database);
    tune(&database, one_class, "--budget=0.001", &r);
    CHECK_EQ(r.status, FA2I_EXIT_FAILED);
    CHECK_EQ(states(&r, "open"), 3);
    CHECK_EQ(number(&r, "timed"), 0);
    tune(&database, one_class, NULL, &r);
    CHECK_EQ(states(&r, "measured"), 3);
    tuned_end(&database);
}

static void sleep_some(fake_compilation *compilation, void *user)
{
    (void)compilation, (void)user;
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

/* The budget ends compiling, too. */
static void test_budget_compiling(void)
{
    tuned_database database;
    run r;
    tuned_begin(&database);
    fake.on_compile = sleep_some;
    tune(&database, one_class, "--budget=1.5", &r);
    fake.on_compile = NULL;
    CHECK_EQ(r.status, FA2I_EXIT_FAILED); /* nothing is measured */
    CHECK_EQ(states(&r, "open"), 3);
    CHECK_EQ(number(&r, "verified"), 0);
    long compiled = number(&r, "compiled");
    tune(&database, one_class, NULL, &r);
    CHECK_EQ(states(&r, "measured"), 3);
    CHECK_EQ(number(&r, "reused"), compiled);
    CHECK(number(&r, "compiled") > 0);
    tuned_end(&database);
}

static void execute(const tuned_database *database, const char *sql)
{
    sqlite3 *db = NULL;
    CHECK_EQ(sqlite3_open(database->path, &db), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

/* Does what the timer does when the budget is spent (tuner/commands/interrupt.c), at the same step on every machine. */
static void spend_budget(fake_compilation *compilation, void *user)
{
    (void)compilation, (void)user;
    raise(SIGALRM);
}

/* If the budget ends while lost code of tuned problems is compiled again, they stay tuned, without code. */
static void test_budget_mending(void)
{
    static const char *const classes[] = {SHAPE_SHORT, SHAPE_SHORT ",causal=1", SHAPE_SHORT ",dtype=bf16",
                                          SHAPE_SHORT ",dtype=bf16,causal=1", NULL};
    tuned_database database;
    run r;
    tuned_begin(&database);
    tune(&database, classes, NULL, &r);
    CHECK_EQ(states(&r, "measured"), 4);
    execute(&database, "DELETE FROM image");
    fake.on_compile = spend_budget;
    tune(&database, classes, "--budget=1000", &r);
    fake.on_compile = NULL;
    CHECK_EQ(r.status, FA2I_EXIT_OK);
    CHECK_EQ(states(&r, "settled"), 4);
    CHECK(number(&r, "lost") != -1 && number(&r, "compiled") <= 2);
    tune(&database, classes, NULL, &r);
    CHECK_EQ(states(&r, "settled"), 4);
    CHECK_EQ(number(&r, "timed"), 0);
    CHECK_EQ(number(&r, "lost"), -1);
    tuned_end(&database);
}

/* A problem whose row has another class is tuned again, because calls ignore everything that refers to it. The row and
 * its results are deleted. A read-only run recognises it, too. */
static void test_misfiled(void)
{
    static const char misfiled[] = "SELECT count(*) FROM problem WHERE class = 'D=24 dtype=fp16 causal=0'";
    tuned_database database;
    run r;
    tuned_begin(&database);
    tune(&database, one_class, NULL, &r);
    CHECK_EQ(states(&r, "measured"), 3);
    execute(&database, "UPDATE problem SET class = 'D=24 dtype=fp16 causal=0' WHERE seq_q = 700");
    tune(&database, one_class, "--dry-run", &r);
    CHECK_EQ(states(&r, "settled"), 2);
    CHECK_EQ(query(&database, misfiled), 1);
    tune(&database, one_class, NULL, &r);
    CHECK(states(&r, "measured") == 1 && states(&r, "settled") == 2);
    CHECK_EQ(query(&database, misfiled), 0);
    CHECK_EQ(query(&database, "SELECT count(*) FROM problem"), 3);
    CHECK_EQ(query(&database, "SELECT count(*) FROM winner"), 3);
    CHECK_EQ(query(&database, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    tune(&database, one_class, NULL, &r);
    CHECK_EQ(states(&r, "settled"), 3);
    tuned_end(&database);
}

/* A winner that this device has not verified, as after an import, must still be tuned. So must one that the device
 * found wrong later. */
static void test_unproven_winner(void)
{
    static const char *const shapes[] = {SHAPE_SHORT, NULL};
    tuned_database database;
    run r;
    tuned_begin(&database);
    tune(&database, shapes, NULL, &r);
    execute(&database, "DELETE FROM verification");
    tune(&database, shapes, NULL, &r);
    CHECK_EQ(states(&r, "measured"), 1);
    CHECK(number(&r, "verified") > 0);
    tune(&database, shapes, NULL, &r);
    CHECK_EQ(states(&r, "settled"), 1);
    tuned_end(&database);
}

/* A run that a signal ends after its first winner, and the run that continues. */
static void test_resume(int signal_number)
{
    tuned_database database;
    run r;
    char *argv[32];
    pid_t pid;
    int status = 0;
    tuned_begin(&database);
    tune(&database, one_class, "--budget=0.001", &r); /* creates the database */
    collect(argv, database.path, one_class, NULL);
    memmove(argv + 1, argv, 31 * sizeof *argv);
    setenv("FA2_TEST_SLEEP_US", "300", 1);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    CHECK_EQ(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    unsetenv("FA2_TEST_SLEEP_US");
    while (query(&database, "SELECT count(*) FROM winners") < 1 && waitpid(pid, &status, WNOHANG) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    kill(pid, signal_number);
    waitpid(pid, &status, 0);
    CHECK(signal_number == SIGKILL ? WIFSIGNALED(status) : WEXITSTATUS(status) == FA2I_EXIT_INTERRUPTED);
    double winners = query(&database, "SELECT count(*) FROM winners");
    CHECK(winners >= 1 && winners < 3);
    tune(&database, one_class, NULL, &r);
    CHECK_EQ(r.status, FA2I_EXIT_OK);
    CHECK_EQ(number(&r, "compiled"), 0);
    CHECK(states(&r, "measured") >= 1 && states(&r, "measured") <= 3);
    CHECK_EQ(states(&r, "measured") + states(&r, "settled"), 3);
    CHECK_EQ(query(&database, "SELECT count(*) FROM winners"), 3);
    tune(&database, one_class, NULL, &r);
    CHECK_EQ(states(&r, "settled"), 3);
    CHECK_EQ(number(&r, "timed"), 0);
    tuned_end(&database);
}

/* fa2-tune forget during a tuning, at several moments. The tuning ends without error. Its later results are stored with
 * their code and verifications. */
static void test_forgotten(void)
{
    enum { MOMENTS = 3 };
    static const char *const shapes[] = {SHAPE_SHORT, "Hq=2,Sq=400,D=16", NULL};
    int begun = 0, early = 0;
    for (int moment = 0; moment <= MOMENTS; moment++) {
        tuned_database database;
        run r;
        tuned_begin(&database);
        forgetter.path = database.path;
        forgetter.begun = 0;
        forgetter.nth = begun * moment / (MOMENTS + 1); /* 0: nothing is deleted, transactions are counted */
        tune(&database, shapes, NULL, &r);
        begun = moment == 0 ? forgetter.begun : begun;
        CHECK(moment == 0 || forgetter.path == NULL);
        forgetter.path = NULL;
        CHECK_EQ(r.status, FA2I_EXIT_OK);
        CHECK_EQ(states(&r, "measured"), 2);
        if (forgetter.winners == 0)
            CHECK_EQ(query(&database, "SELECT count(*) FROM winners"), 2);
        early += moment > 0 && forgetter.winners == 0;
        CHECK_EQ(query(&database, "SELECT count(*) FROM winner WHERE kernel NOT IN (SELECT kernel FROM image)"), 0);
        CHECK_EQ(query(&database, "SELECT count(*) FROM measurement WHERE n > 0 AND kernel NOT IN "
                                  "(SELECT kernel FROM verification WHERE outcome = 'ok')"),
                 0);
        tuned_end(&database);
    }
    CHECK(begun > 20 && early > 0);
}

/* Tests for which two kernels of each family and class are enough. */
static void test_with_few_kernels(void)
{
    char few[4096];
    snprintf(few, sizeof few, "%s/tests/sim/few", getenv("FA2_SOURCE_DIR"));
    CHECK_EQ(setenv("FA2_GEN_PATH", few, 1), 0);
    test_budget();
    test_budget_mending();
    test_misfiled();
    test_unproven_winner();
    unsetenv("FA2_GEN_PATH");
}

int main(int argc, char **argv)
{
    int status = 0;
    if (tune_stands_in(argc, argv, &status))
        return status;
    CHECK_EQ(sqlite3_auto_extension((void (*)(void))watch), SQLITE_OK);
    test_one_transaction();
    test_budget_compiling();
    test_forgotten();
    test_resume(SIGKILL);
    test_resume(SIGINT);
    test_with_few_kernels();
    return check_done();
}
