/*
 * A database is a cache: calls succeed whatever happens to its file. It may be damaged from the beginning, its disk may
 * fail, another process may lock it, and it may be deleted, replaced or repaired while it is in use.
 */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include "damage.h"
#include "failing_disk.h"
#include "planner_fixture.h"
#include "runtime/plan/database.h"
#include "runtime/plan/planner.h"

enum { NOBODY = 65534, SOMEBODY = 12345, WAIT_MS = 10000 };

/* As begin, but the test's database is at the default path. */
static void begin_default(void)
{
    char folder[96];
    begin();
    unsetenv("FA2_DB");
    setenv("XDG_CACHE_HOME", database.folder, 1);
    snprintf(folder, sizeof folder, "%s/fa2", database.folder);
    CHECK_EQ(mkdir(folder, 0700), 0);
    snprintf(database.path, sizeof database.path, "%s/fa2/fa2.db", database.folder);
}

static void end_default(fa2_context *context)
{
    char folder[96];
    snprintf(folder, sizeof folder, "%s/fa2", database.folder);
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
    fake_uninstall();
    fa2i_cache_remove(database.path);
    CHECK(rmdir(folder) == 0 || errno == ENOENT);
    CHECK_EQ(rmdir(database.folder), 0);
    unsetenv("XDG_CACHE_HOME");
}

static fa2_context *create_at(const char *path)
{
    const fa2_config config = {
        .struct_bytes = sizeof(fa2_config), .database = path, .log = tuned_log_add, .log_user = &log_of};
    fa2_context *context = NULL;
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    if (context == NULL)
        fprintf(stderr, "%s\n", fa2_last_message());
    return context;
}

/* Returns a problem of the nth class. */
static fa2_problem problem_of_class(int n)
{
    fa2_problem problem = tuned_problem(1, 512);
    problem.causal = n % 2;
    problem.dtype = n / 2 % 2 == 0 ? FA2_FP16 : FA2_BF16;
    problem.head_dim = 64 * (1 + n / 4);
    return problem;
}

/* ---- damaged from the beginning ---- */

static void check_named(const char *path)
{
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = path};
    fa2_context *context = NULL;
    CHECK_EQ(fa2_context_create(&config, &context), FA2_E_DATABASE);
    CHECK(context == NULL);
    CHECK_CONTAINS(fa2_last_message(), database.path);
    fa2_context_destroy(context);
}

/* At the default path the log gets one line, and calls succeed. If the path is named, it is an error. */
static void check_forgiven(const char *part)
{
    const fa2_problem problem = tuned_problem(1, 512);
    log_of = (tuned_log){.count = 0};
    disk.slept_ms = 0;
    fa2_context *context = create_at(NULL);
    CHECK_EQ(log_of.count, 1);
    CHECK_CONTAINS(log_of.text, "working without a database: ");
    CHECK_CONTAINS(log_of.text, database.path);
    CHECK_CONTAINS(log_of.text, part);
    CHECK(disk.slept_ms <= WAIT_MS);
    if (context != NULL)
        CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
    CHECK_EQ(log_of.count, 2); /* the other line: nothing is tuned */
    fa2_context_destroy(context);
    check_named(database.path);
    setenv("FA2_DB", database.path, 1);
    check_named(NULL);
    unsetenv("FA2_DB");
}

static void write_text(const char *text)
{
    FILE *file = fopen(database.path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0);
    CHECK(file != NULL && fclose(file) == 0);
    CHECK_EQ(chmod(database.path, 0600), 0);
}

/* Overwrites the file's pages, except for the first `kept` bytes. */
static void write_garbage(long kept)
{
    FILE *file = fopen(database.path, "r+");
    CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    const long bytes = file != NULL ? ftell(file) : 0;
    CHECK(bytes > kept && fseek(file, kept, SEEK_SET) == 0);
    for (long i = kept; i < bytes; i++)
        fputc(0xa5, file);
    CHECK_EQ(fclose(file), 0);
}

static void make_database(void)
{
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
}

static void test_unusable_files(void)
{
    begin_default();
    write_text("this is a diary, dear diary, and no database");
    check_forgiven("not a database");
    CHECK_EQ(remove(database.path), 0);

    make_database();
    write_garbage(100);
    check_forgiven("");
    CHECK_EQ(remove(database.path), 0);

    make_database();
    CHECK_EQ(chmod(database.path, 0666), 0);
    check_forgiven("others can write");
    CHECK_EQ(chmod(database.path, 0600), 0);

    tuned_sql(&database, "PRAGMA user_version = 1000");
    check_forgiven("1000");
    CHECK_EQ(remove(database.path), 0);

    tuned_sql(&database, "CREATE TABLE recipe (cake TEXT)");
    CHECK_EQ(chmod(database.path, 0600), 0);
    check_forgiven("not one of fa2");
    CHECK_EQ(remove(database.path), 0);

    CHECK_EQ(mkdir(database.path, 0700), 0);
    check_forgiven("is a folder");
    CHECK_EQ(rmdir(database.path), 0);
    end_default(NULL);
}

/* Runs in a child as a user who owns nothing here. */
static void check_as_nobody(const char *part)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        check_failures = setgid(NOBODY) != 0 || setuid(NOBODY) != 0;
        check_forgiven(part);
        _exit(check_failures == 0 ? 0 : 1);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

static void test_files_of_others(void)
{
    if (geteuid() != 0) {
        fprintf(stderr, "skipped, only root can give files away: databases of other users\n");
        return;
    }
    begin_default();
    make_database();
    CHECK_EQ(chmod(database.folder, 0755), 0);
    char folder[96];
    snprintf(folder, sizeof folder, "%s/fa2", database.folder);
    CHECK_EQ(chmod(folder, 0755), 0);
    check_as_nobody("cannot read the file, which belongs to user 0"); /* it is root's, and not readable */
    CHECK_EQ(chown(database.path, SOMEBODY, SOMEBODY), 0);
    CHECK_EQ(chmod(database.path, 0644), 0);
    check_as_nobody("belongs to user 12345");
    end_default(NULL);
}

/* No file can be created. That is no error. */
static void test_nowhere(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    begin();
    unsetenv("FA2_DB");
    setenv("XDG_CACHE_HOME", "/proc/fa2-cannot-be-made", 1);
    fa2_context *context = create_at(NULL);
    CHECK_EQ(log_of.count, 1);
    CHECK_CONTAINS(log_of.text, "working without a database: /proc/fa2-cannot-be-made");
    CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
    end(context);
    unsetenv("XDG_CACHE_HOME");
}

/* ---- the disk ---- */

/* A full disk, with free space from nothing to enough: logged once, and the next process creates the file. */
static void test_full_disk(void)
{
    enum { PAGE = 4096 };
    const fa2_problem problem = tuned_problem(1, 512);
    bool made = false;
    begin_default();
    for (long room = 0; !made && room < 100 * PAGE; room += 3 * PAGE) {
        log_of = (tuned_log){.count = 0};
        disk.room = room;
        fa2_context *context = create_at(NULL);
        made = log_of.count == 0;
        CHECK(made || strstr(log_of.text, "free some space") != NULL);
        CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
        CHECK(log_of.count <= 3); /* the database, or storing; nothing is tuned */
        fa2_context_destroy(context);
        disk_reset();
        fa2_context_destroy(create_at(database.path));
        CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM winners"), 0);
        CHECK_EQ(remove(database.path), 0);
    }
    CHECK(made);
    end_default(NULL);
}

/* The disk becomes full, then free again: logged once, no call fails, and later kernels are stored. */
static void test_becomes_full(void)
{
    begin();
    fa2_context *context = create();
    disk.room = 0;
    for (int n = 0; n < 3; n++)
        (void)explain(context, problem_of_class(n));
    const char *told = strstr(log_of.text, "compiled kernels are not stored");
    CHECK(told != NULL && strstr(told + 1, "compiled kernels") == NULL);
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM kernel"), 0);
    disk.room = -1;
    (void)explain(context, problem_of_class(3));
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM kernel"), 1);
    end(context);
}

/* Another program writes into the file while it is open. */
static void test_becomes_damaged(void)
{
    for (long kept = 0; kept <= 4096; kept += 2048) {
        begin();
        make_database();
        fa2_context *context = create();
        CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_EXACT);
        write_garbage(kept);
        tuned_wait();
        for (int n = 0; n < 4; n++) {
            const fa2_problem problem = problem_of_class(n);
            CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
        }
        CHECK(log_of.count > 0);
        end(context);
    }
}

/* While a context lives, the nth call of the disk fails, alone or with all later ones. All early calls are tried, and
 * some of the later ones. */
static long live(const char *path, long nth, bool stays, int code)
{
    const fa2_problem tuned = tuned_problem(1, 512), other = problem_of_class(0);
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = path};
    fa2_context *context = NULL;
    disk_reset();
    disk.code = code;
    disk.stays = stays;
    disk.fail_at = nth;
    const fa2_status st = fa2_context_create(&config, &context);
    CHECK(st == FA2_OK || (path != NULL && st == FA2_E_DATABASE));
    if (st == FA2_OK) {
        CHECK_EQ(fa2_prepare(context, &tuned), FA2_OK);
        CHECK_EQ(fa2_prepare(context, &other), FA2_OK);
    }
    fa2_context_destroy(context);
    const long calls = disk.calls;
    disk_reset();
    return calls;
}

static void test_disk_fails(void)
{
    static const int codes[] = {SQLITE_IOERR_READ, SQLITE_CORRUPT, SQLITE_FULL};
    char good[112];
    begin_default();
    make_database();
    snprintf(good, sizeof good, "%s.good", database.path);
    copy_file(database.path, good);
    for (int i = 0; i < 3; i++) {
        const char *path = i == 2 ? database.path : NULL;
        for (long nth = 1, calls = nth; nth <= calls; nth += 1 + nth / 8) {
            calls = live(path, nth, i == 1, codes[i]);
            fa2i_cache_remove(database.path);
            copy_file(good, database.path);
        }
    }
    CHECK_EQ(remove(good), 0);
    end_default(NULL);
}

/* ---- locked by another process ---- */

typedef struct locker {
    pid_t child;
    int release; /* closed: it ends */
} locker;

/* Another process begins a transaction and does not end it. */
static locker lock_file(const char *begin_sql)
{
    int ready[2], release[2];
    char byte = 0;
    CHECK(pipe(ready) == 0 && pipe(release) == 0);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        sqlite3 *db = NULL;
        close(release[1]);
        if (sqlite3_open(database.path, &db) == SQLITE_OK && sqlite3_exec(db, begin_sql, NULL, NULL, NULL) == SQLITE_OK)
            (void)!write(ready[1], "r", 1);
        (void)!read(release[0], &byte, 1);
        _exit(0);
    }
    close(ready[1]);
    close(release[0]);
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return (locker){.child = child, .release = release[1]};
}

static void unlock_file(const locker *by)
{
    close(by->release);
    CHECK_EQ(waitpid(by->child, NULL, 0), by->child);
}

/* The first call waits once. Later calls do not wait until the lock is gone. */
static void check_locked_calls(const char *begin_sql)
{
    begin();
    fa2_context *context = create();
    (void)explain(context, problem_of_class(0));
    for (int round = 0; round < 2; round++) {
        const locker by = lock_file(begin_sql);
        disk.sleeps = disk.slept_ms = 0;
        (void)explain(context, problem_of_class(1 + 4 * round));
        CHECK(disk.sleeps > 0);
        CHECK(disk.slept_ms > WAIT_MS / 2 && disk.slept_ms <= WAIT_MS);
        const long sleeps = disk.sleeps;
        (void)explain(context, problem_of_class(2 + 4 * round));
        tuned_wait();
        (void)explain(context, problem_of_class(3 + 4 * round));
        CHECK_EQ(disk.sleeps, sleeps);
        unlock_file(&by);
        tuned_wait();
        (void)explain(context, problem_of_class(4 + 4 * round));
        CHECK_EQ(disk.sleeps, sleeps);
    }
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM kernel"), 3); /* those stored without a lock */
    end(context);
}

/* A call waits for a short lock, and everything is stored. */
static void test_locked_calls(void)
{
    check_locked_calls("BEGIN EXCLUSIVE");
    check_locked_calls("BEGIN IMMEDIATE");
}

/* A file that is locked from the beginning: one wait, one line in the log, and it is used when the lock is gone. */
static void test_locked_at_first(void)
{
    begin_default();
    make_database();
    const locker by = lock_file("BEGIN EXCLUSIVE");
    check_forgiven("another process has been writing");
    log_of = (tuned_log){.count = 0};
    disk.slept_ms = 0;
    fa2_context *context = create_at(NULL);
    CHECK(disk.slept_ms > WAIT_MS / 2 && disk.slept_ms <= WAIT_MS);
    const long sleeps = disk.sleeps;
    (void)explain(context, problem_of_class(0));
    tuned_wait();
    (void)explain(context, problem_of_class(2));
    CHECK_EQ(disk.sleeps, sleeps);
    unlock_file(&by);
    end_default(context);
}

/* ---- a file that disappears and comes back ---- */

/* A deleted file: one line in the log. It is created again for the next compiled kernel. */
static void test_deleted_file(void)
{
    begin();
    make_database();
    fa2_context *context = create();
    CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_EXACT);
    CHECK_EQ(remove(database.path), 0);
    tuned_wait();
    CHECK_EQ(explain(context, tuned_problem(1, 640)).rule, FA2_RULE_DEFAULT);
    CHECK_CONTAINS(log_of.text, "was deleted; working without it until there is another");
    CHECK_EQ(log_of.count, 2); /* the other line: nothing tuned can be used */
    CHECK(strstr(log_of.text, "read-only") == NULL && strstr(log_of.text, "readonly") == NULL);
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM kernel"), 1);
    tuned_put(&database, &(tuned_winner){.id = 2, .problem = tuned_problem(1, 700)});
    tuned_wait();
    CHECK_EQ(explain(context, tuned_problem(1, 700)).rule, FA2_RULE_EXACT);
    CHECK_EQ(log_of.count, 2);
    end(context);
}

/* Calls check the file once a second. Until then a deleted file is neither written nor an error. */
static void test_just_deleted_file(void)
{
    begin();
    fa2_context *context = create();
    CHECK_EQ(remove(database.path), 0);
    (void)explain(context, problem_of_class(0));
    CHECK(access(database.path, F_OK) != 0);
    CHECK(strstr(log_of.text, "not stored") == NULL);
    tuned_wait();
    (void)explain(context, problem_of_class(1));
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM kernel"), 1);
    end(context);
}

/* Another file in its place is used, and the old one's contents are forgotten. */
static void check_replaced(bool through_link)
{
    char link[112];
    begin();
    make_database();
    tuned_database second = database;
    const char *other = second.path;
    snprintf(link, sizeof link, "%s/link.db", database.folder);
    snprintf(second.path, sizeof second.path, "%s/other.db", database.folder);
    if (through_link)
        CHECK_EQ(symlink(database.path, link), 0);
    fa2_context *context = create_at(through_link ? link : database.path);
    CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_EXACT);

    tuned_put(&second, &(tuned_winner){.id = 2, .problem = tuned_problem(1, 1024)});
    if (through_link)
        CHECK(remove(link) == 0 && symlink(other, link) == 0);
    else
        CHECK_EQ(rename(other, database.path), 0);
    tuned_wait();
    const fa2_explanation e = explain(context, tuned_problem(1, 1024));
    CHECK_EQ(e.rule, FA2_RULE_EXACT);
    CHECK_STR(e.variant, "fwd_sm80 d=64 id=2");
    CHECK_STR(explain(context, tuned_problem(1, 768)).variant, "fwd_sm80 d=64 id=2");
    CHECK_EQ(log_of.count, 1);
    CHECK_CONTAINS(log_of.text, "was replaced, and is used from now on");
    (void)explain(context, problem_of_class(4)); /* the newly compiled kernel is stored there */
    if (through_link) {
        CHECK_EQ(tuned_number(&second, "SELECT count(*) FROM kernel"), 2);
        CHECK(remove(link) == 0 && remove(other) == 0);
    } else {
        CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM kernel"), 2);
    }
    end(context);
}

/* The new file's journal does not belong to the old file, and must stay. */
static void test_journal_of_another(void)
{
    char journal[112], moved[112];
    begin();
    make_database();
    snprintf(journal, sizeof journal, "%s-journal", database.path);
    snprintf(moved, sizeof moved, "%s.moved", database.path);
    fa2_context *context = create();
    CHECK_EQ(rename(database.path, moved), 0);
    tuned_sql(&database, "CREATE TABLE t (a); PRAGMA journal_mode = PERSIST; INSERT INTO t VALUES (1)");
    const locker by = lock_file("PRAGMA cache_size = 1; BEGIN IMMEDIATE; "
                                "INSERT INTO t VALUES (hex(randomblob(200000)))");
    CHECK_EQ(kill(by.child, SIGKILL), 0);
    unlock_file(&by);
    FILE *file = fopen(journal, "rb");
    char before[28] = "", after[28] = "";
    CHECK(file != NULL && fread(before, 1, sizeof before, file) == sizeof before);
    CHECK(file != NULL && fclose(file) == 0);
    (void)explain(context, problem_of_class(0)); /* within the second in which no call checks the file */
    file = fopen(journal, "rb");
    CHECK(file != NULL && fread(after, 1, sizeof after, file) == sizeof after);
    CHECK(file != NULL && fclose(file) == 0);
    CHECK(before[0] != '\0' && memcmp(before, after, sizeof before) == 0);
    CHECK(remove(moved) == 0 && remove(journal) == 0);
    end(context);
}

/* A file that was missing or unusable can be used later. */
static void test_mended_file(void)
{
    begin_default();
    write_text("this is a diary, dear diary, and no database");
    fa2_context *context = create_at(NULL);
    CHECK_EQ(log_of.count, 1);
    CHECK_EQ(remove(database.path), 0);
    make_database();
    tuned_wait();
    CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_EXACT);
    CHECK_CONTAINS(log_of.text, "can be used now, and is used from now on");
    CHECK_EQ(log_of.count, 2);
    end_default(context);
}

static void test_file_that_comes(void)
{
    fa2_context *context = NULL;
    begin();
    fa2_config config = config_of();
    config.read_only = 1;
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    CHECK_EQ(explain(context, tuned_problem(1, 640)).rule, FA2_RULE_DEFAULT);
    CHECK(access(database.path, F_OK) != 0);
    make_database();
    tuned_wait();
    CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_EXACT);
    tuned_wait();
    (void)explain(context, problem_of_class(4));
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM kernel"), 1); /* nothing is written */
    end(context);
}

/* Lets a minute pass, without waiting. */
static void look_again(fa2i_planner *planner)
{
    const int64_t second_ns = 1000000000;
    planner->looked_ns -= 2 * second_ns;
    planner->tried_ns -= 61 * second_ns;
    CHECK_EQ(fa2i_planner_follow_file(planner), FA2_OK);
}

/* A file that was locked, or on a full disk, is tried again, without waiting or logging. */
static void test_tried_again(void)
{
    begin_default();
    for (int full = 0; full < 2; full++) {
        log_of = (tuned_log){.count = 0};
        fa2i_planner planner = {.log = tuned_log_add, .log_user = &log_of};
        if (!full)
            make_database();
        const locker by = full ? (locker){.child = 0} : lock_file("BEGIN EXCLUSIVE");
        disk.room = full ? 0 : -1;
        CHECK_EQ(fa2i_planner_open(&planner, NULL), FA2_OK);
        disk.sleeps = 0;
        look_again(&planner);
        CHECK(planner.cache == NULL);
        CHECK_EQ(disk.sleeps, 0);
        CHECK_EQ(log_of.count, 1);
        disk.room = -1;
        if (!full)
            unlock_file(&by);
        CHECK_EQ(fa2i_planner_follow_file(&planner), FA2_OK);
        CHECK(planner.cache == NULL); /* a minute has not passed */
        look_again(&planner);
        CHECK(planner.cache != NULL && !planner.read_only);
        CHECK_EQ(log_of.count, 2);
        fa2i_planner_done(&planner);
        fa2i_cache_remove(database.path);
    }
    end_default(NULL);
}

int main(void)
{
    disk_begin();
    test_unusable_files();
    test_files_of_others();
    test_nowhere();
    test_full_disk();
    test_becomes_full();
    test_becomes_damaged();
    test_disk_fails();
    test_locked_calls();
    test_locked_at_first();
    test_deleted_file();
    test_just_deleted_file();
    check_replaced(false);
    check_replaced(true);
    test_journal_of_another();
    test_mended_file();
    test_file_that_comes();
    test_tried_again();
    return check_done();
}
