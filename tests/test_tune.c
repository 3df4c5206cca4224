/*
 * fa2-tune tune from its arguments to the database, with the real generator, the fake driver and
 * fake NVRTC. This program is fa2-tune's stand-in: called as `worker` it is the worker process,
 * called as `tune` it tunes, so that it can be killed on the way.
 */
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include "check.h"
#include "fake_attention.h"
#include "tuned_database.h"
#include "tuner/commands/commands.h"

extern char **environ;

enum { OUTPUT_BYTES = 1 << 16 };

/* One run of `tune --json`. */
typedef struct run {
    int status;
    char json[OUTPUT_BYTES];
} run;

#define SHAPE_SHORT  "Hq=2,Sq=100,D=16"
#define SHAPE_CAUSAL "B=2,Hq=2,Sq=300,D=16,causal=1"
#define SHAPE_BF16   "Hq=4,Hkv=2,Sq=600,Sk=900,D=16,dtype=bf16"

static int collect(char **argv, const char *path, const char *const *shapes, const char *extra)
{
    int argc = 0;
    const char *fixed[] = {"tune", "--device", "0", "--json", "--jobs", "2", "--db", path};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        argv[argc++] = (char *)(uintptr_t)fixed[i];
    for (; *shapes != NULL; shapes++) {
        argv[argc++] = (char *)(uintptr_t) "--shape";
        argv[argc++] = (char *)(uintptr_t)*shapes;
    }
    if (extra != NULL)
        argv[argc++] = (char *)(uintptr_t)extra;
    argv[argc] = NULL;
    return argc;
}

/* Tune in this process, with stdout in a file. */
static void tune(const tuned_database *database, const char *const *shapes, const char *extra,
                 run *ret_run)
{
    char *argv[32];
    int argc = collect(argv, database->path, shapes, extra);
    FILE *file = tmpfile();
    fflush(stdout);
    int held = dup(STDOUT_FILENO);
    dup2(fileno(file), STDOUT_FILENO);
    ret_run->status = fa2i_cmd_tune(argc, argv);
    fflush(stdout);
    dup2(held, STDOUT_FILENO);
    close(held);
    rewind(file);
    ret_run->json[fread(ret_run->json, 1, OUTPUT_BYTES - 1, file)] = '\0';
    fclose(file);
    CHECK_EQ(fake_live(), 0);
}

/* The number behind "name": in the summary; -1 if there is none. */
static long number(const run *r, const char *name)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", name);
    const char *at = strstr(r->json, quoted);
    return at == NULL ? -1 : atol(at + strlen(quoted));
}

static int states(const run *r, const char *state)
{
    char quoted[64];
    int count = 0;
    snprintf(quoted, sizeof quoted, "\"state\":\"%s\"", state);
    for (const char *at = r->json; (at = strstr(at, quoted)) != NULL; at++)
        count++;
    return count;
}

static double query(const tuned_database *database, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    double value = -1;
    CHECK_EQ(sqlite3_open_v2(database->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    sqlite3_busy_timeout(db, 10000);
    CHECK_EQ(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
    if (sqlite3_step(statement) == SQLITE_ROW)
        value = sqlite3_column_double(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return value;
}

static const char *const three_shapes[] = {SHAPE_SHORT, SHAPE_CAUSAL, SHAPE_BF16, NULL};

/* One class of problems, so that its kernels are verified once. */
static const char *const one_class[] = {SHAPE_SHORT, "Hq=2,Sq=400,D=16", "Hq=8,Sq=700,D=16", NULL};

/* Tune, then tune again: nothing is left to do. */
static void test_tune_twice(void)
{
    tuned_database database;
    run r;
    tuned_begin(&database);
    tune(&database, three_shapes, NULL, &r);
    CHECK_EQ(r.status, FA2I_EXIT_OK);
    CHECK_EQ(states(&r, "measured"), 3);
    CHECK(number(&r, "compiled") > 20);
    CHECK_EQ(number(&r, "reused"), 0);
    CHECK_EQ(number(&r, "verified"), number(&r, "compiled"));
    CHECK(number(&r, "timed") > 30);
    CHECK_EQ(number(&r, "failed_while_timed"), 0);
    /* The winner is the fastest variant, up to ties, and no slower than the default. */
    CHECK_EQ(query(&database, "SELECT count(*) FROM winners w WHERE source = 'measured' AND "
                              "median_us <= 1.005 * (SELECT min(median_us) FROM measurements m "
                              "WHERE m.seq_q = w.seq_q AND m.outcome = 'ok')"),
             3);
    CHECK_EQ(query(&database, "SELECT count(*) FROM winners WHERE speedup_vs_default >= 1"), 3);
    CHECK_EQ(query(&database, "SELECT count(*) FROM measurements WHERE NOT settled"), 0);
    CHECK_EQ(query(&database, "SELECT max(n) FROM measurements"), 60);

    tune(&database, three_shapes, NULL, &r);
    CHECK_EQ(r.status, FA2I_EXIT_OK);
    CHECK_EQ(states(&r, "settled"), 3);
    CHECK_EQ(number(&r, "compiled"), 0);
    CHECK_EQ(number(&r, "verified"), 0);
    CHECK_EQ(number(&r, "timed"), 0);

    /* A new problem of a known class: kernels and verdicts are there already. */
    static const char *const more[] = {SHAPE_SHORT, "Hq=3,Sq=777,D=16", NULL};
    tune(&database, more, NULL, &r);
    CHECK_EQ(r.status, FA2I_EXIT_OK);
    CHECK_EQ(states(&r, "settled"), 1);
    CHECK_EQ(states(&r, "measured"), 1);
    CHECK(number(&r, "reused") > 0);
    CHECK_EQ(number(&r, "compiled"), number(&r, "verified"));
    tuned_end(&database);
}

/* Windows and capped scores are classes of their own, and kernels without them would be wrong. */
static void test_features(void)
{
    static const char *const shapes[] = {"Hq=2,Sq=60,D=16", "Hq=2,Sq=60,D=16,Wl=20,Wr=0",
                                         "Hq=2,Sq=60,D=16,causal=1,softcap=1,Wl=7", NULL};
    tuned_database database;
    run r;
    tuned_begin(&database);
    tune(&database, shapes, NULL, &r);
    CHECK_EQ(r.status, FA2I_EXIT_OK);
    CHECK_EQ(states(&r, "measured"), 3);
    CHECK_EQ(number(&r, "verified"), number(&r, "compiled"));
    CHECK_EQ(query(&database, "SELECT count(*) FROM verification WHERE outcome <> 'ok'"), 0);
    CHECK_EQ(query(&database, "SELECT count(DISTINCT class) FROM kernel"), 3);
    tuned_end(&database);
}

/* Kernels that are wrong or do not compile are recorded and never win. */
static void test_bad_kernels(void)
{
    static const char *const shapes[] = {SHAPE_SHORT, NULL};
    tuned_database database;
    run r;
    tuned_begin(&database);
    setenv("FA2_TEST_WRONG", "kBc = 32;", 1);
    fake.rejected = "kBr = 64;";
    tune(&database, shapes, NULL, &r);
    fake.rejected = NULL;
    unsetenv("FA2_TEST_WRONG");
    CHECK_EQ(r.status, FA2I_EXIT_OK);
    CHECK(number(&r, "wrong") > 0);
    CHECK(number(&r, "compile_error") > 0);
    CHECK_EQ(query(&database, "SELECT count(*) FROM measurements WHERE outcome = 'ok' AND "
                              "(variant LIKE '%bc=32 %' OR variant LIKE '%br=64 %')"),
             0);
    CHECK(query(&database, "SELECT count(*) FROM measurements WHERE outcome = 'wrong' AND settled "
                           "AND detail LIKE '%x the bound'") > 0);
    CHECK_EQ(query(&database, "SELECT count(*) FROM winners"), 1);
    tune(&database, shapes, NULL, &r); /* failures are results: nothing is tried again */
    CHECK_EQ(states(&r, "settled"), 1);
    tuned_end(&database);
}

static void spill(fake_compilation *compilation, void *user)
{
    const char *what = user;
    if (strstr(compilation->source, what) != NULL)
        compilation->spill_stores = 64;
}

/* Spillers stay out, unless there is nothing else. */
static void test_spills(void)
{
    static const char *const shapes[] = {SHAPE_SHORT, NULL};
    static const char *const texts[2] = {"kWarps = 4;", "kHeadDim"};
    for (int i = 0; i < 2; i++) {
        tuned_database database;
        run r;
        tuned_begin(&database);
        fake.on_compile = spill;
        fake.on_compile_user = (void *)(uintptr_t)texts[i];
        tune(&database, shapes, NULL, &r);
        fake.on_compile = NULL;
        CHECK_EQ(r.status, FA2I_EXIT_OK);
        CHECK_EQ(states(&r, "measured"), 1);
        CHECK(number(&r, "spilled") > 0);
        CHECK_EQ(
            query(&database, "SELECT count(*) > 0 FROM measurements WHERE outcome = 'spilled'"),
            i == 0);
        tune(&database, shapes, NULL, &r);
        CHECK_EQ(states(&r, "settled"), 1);
        tuned_end(&database);
    }
}

/* Families that fault and hang: recorded once, and the rest is tuned as if nothing had happened. */
static void test_fault_and_hang(void)
{
    static const char *const shapes[] = {SHAPE_SHORT, NULL};
    tuned_database database;
    run r;
    char folder[1024];
    const char *source = getenv("FA2_SOURCE_DIR");
    snprintf(folder, sizeof folder, "%s/tests/families", source != NULL ? source : ".");
    setenv("FA2_GEN_PATH", folder, 1);
    tuned_begin(&database);
    tune(&database, shapes, NULL, &r);
    CHECK_EQ(r.status, FA2I_EXIT_OK);
    CHECK_EQ(number(&r, "fault"), 1);
    CHECK_EQ(number(&r, "hang"), 1);
    CHECK_EQ(states(&r, "measured"), 1);
    CHECK_EQ(query(&database, "SELECT count(*) FROM measurements WHERE settled AND outcome IN "
                              "('fault', 'hang')"),
             2);
    tune(&database, shapes, NULL, &r);
    CHECK_EQ(states(&r, "settled"), 1);
    CHECK_EQ(number(&r, "timed"), 0);
    unsetenv("FA2_GEN_PATH");
    tuned_end(&database);
}

/* A problem that does not fit into memory fails alone, and says why. */
static void test_memory(void)
{
    static const char *const shapes[] = {"B=200000,Hq=64,Sq=4096,D=16", SHAPE_SHORT, NULL};
    static const char *const large[] = {"B=200000,Hq=64,Sq=4096,D=24", NULL};
    tuned_database database;
    run r;
    tuned_begin(&database);
    tune(&database, large, NULL, &r);
    CHECK_EQ(r.status, FA2I_EXIT_FAILED);
    CHECK_CONTAINS(r.json, database.path);
    CHECK(access(database.path, F_OK) != 0); /* there was nothing to put into it */
    tune(&database, shapes, NULL, &r);
    CHECK_EQ(r.status, FA2I_EXIT_FAILED);
    CHECK_EQ(states(&r, "failed"), 1);
    CHECK_EQ(states(&r, "measured"), 1);
    CHECK_CONTAINS(r.json, "MiB of device memory");
    tune(&database, large, NULL, &r);
    CHECK_EQ(r.status, FA2I_EXIT_FAILED);
    CHECK_EQ(number(&r, "compiled"), 0); /* which would be for nothing */
    tuned_end(&database);
}

/* Nothing is measured without time; the next run does all of it. */
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

/* A winner that this device did not verify, as after an import, is no reason to do nothing; and
 * equally one that it found wrong since. */
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

/* Kernels that pass the verification and are wrong on the problem itself may win nowhere. */
static void test_wrong_on_problem(void)
{
    static const char *const shapes[] = {SHAPE_SHORT, NULL};
    tuned_database database;
    run r;
    tuned_begin(&database);
    setenv("FA2_TEST_WRONG", "kHeadDim", 1);
    setenv("FA2_TEST_WRONG_AT", "100", 1);
    tune(&database, shapes, NULL, &r);
    unsetenv("FA2_TEST_WRONG");
    unsetenv("FA2_TEST_WRONG_AT");
    CHECK_EQ(r.status, FA2I_EXIT_FAILED);
    CHECK_EQ(states(&r, "failed"), 1);
    CHECK(number(&r, "wrong") > 0);
    CHECK_EQ(query(&database, "SELECT count(*) FROM verification WHERE outcome = 'wrong'"),
             (double)number(&r, "wrong"));
    CHECK_EQ(query(&database, "SELECT count(*) FROM winners"), 0);
    tuned_end(&database);
}

/* A driver that takes no code of this NVRTC: nobody's verdict. */
static void test_misfit(void)
{
    static const char *const shapes[] = {SHAPE_SHORT, NULL};
    tuned_database database;
    run r;
    tuned_begin(&database);
    setenv("FA2_TEST_OLD_DRIVER", "1", 1);
    tune(&database, shapes, NULL, &r);
    unsetenv("FA2_TEST_OLD_DRIVER");
    CHECK_EQ(r.status, FA2I_EXIT_FAILED);
    CHECK_EQ(query(&database, "SELECT count(*) FROM verification"), 0);
    CHECK_EQ(query(&database, "SELECT count(*) FROM measurements"), 0);
    tuned_end(&database);
}

/* A run that is ended by a signal after its first winner, and the run that goes on. */
static void test_resume(int signal_number)
{
    tuned_database database;
    run r;
    char *argv[32];
    pid_t pid;
    int status = 0;
    tuned_begin(&database);
    tune(&database, one_class, "--budget=0.001", &r); /* so that the database is there */
    collect(argv, database.path, one_class, NULL);
    memmove(argv + 1, argv, 31 * sizeof *argv);
    setenv("FA2_TEST_SLEEP_US", "300", 1);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    CHECK_EQ(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    unsetenv("FA2_TEST_SLEEP_US");
    while (query(&database, "SELECT count(*) FROM winners") < 1 &&
           waitpid(pid, &status, WNOHANG) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    kill(pid, signal_number);
    waitpid(pid, &status, 0);
    CHECK(signal_number == SIGKILL ? WIFSIGNALED(status)
                                   : WEXITSTATUS(status) == FA2I_EXIT_INTERRUPTED);
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

/* A problem that no family serves on this device. */
static void test_unserved(void)
{
    static const char *const shapes[] = {SHAPE_BF16, NULL};
    tuned_database database;
    run r;
    tuned_begin(&database);
    fake.devices[0] = fake.devices[1]; /* a T4 has no bf16 */
    tune(&database, shapes, NULL, &r);
    CHECK_EQ(r.status, FA2I_EXIT_USAGE);
    CHECK_EQ(states(&r, "unserved"), 1);
    CHECK_CONTAINS(r.json, "bf16");
    tuned_end(&database);
    fake_reset();
}

static void test_usage(void)
{
    char *without[] = {"tune", NULL};
    char *too_high[] = {"tune", "--device", "3", "--shape", "Hq=1,Sq=16,D=16", "--db", "", NULL};
    char path[] = "/tmp/fa2-test-not-made.db";
    too_high[6] = path;
    CHECK_EQ(fa2i_cmd_tune(1, without), FA2I_EXIT_USAGE);
    CHECK_EQ(fa2i_cmd_tune(7, too_high), FA2I_EXIT_NO_DEVICE);
    CHECK(access(path, F_OK) != 0);
}

int main(int argc, char **argv)
{
    fake_install();
    if (argc > 1 && strcmp(argv[1], "worker") == 0) {
        fake.on_launch = attention_on_launch;
        if (getenv("FA2_TEST_OLD_DRIVER") != NULL)
            fake.devices[0].arch = 75; /* takes no sm_86 */
        return fa2i_cmd_worker(argc - 1, argv + 1);
    }
    if (argc > 1 && strcmp(argv[1], "tune") == 0)
        return fa2i_cmd_tune(argc - 1, argv + 1);
    test_usage();
    test_tune_twice();
    test_features();
    test_bad_kernels();
    test_spills();
    test_fault_and_hang();
    test_memory();
    test_budget();
    test_budget_compiling();
    test_unproven_winner();
    test_wrong_on_problem();
    test_misfit();
    test_resume(SIGKILL);
    test_resume(SIGINT);
    test_unserved();
    return check_done();
}
