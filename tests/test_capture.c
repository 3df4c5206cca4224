/*
 * FA2_CAPTURE on the fake driver: counts by one context and by several processes at once, counts of a killed process,
 * and messages about bad files.
 */
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "fa2.h"
#include "runtime/base/alloc.h"
#include "runtime/plan/call_table.h"
#include "runtime/plan/capture_file.h"
#include "tuned_database.h"
#include "tuner/input/shapes.h"

static char folder[] = "/tmp/fa2_test_capture_XXXXXX";
static char path[64], counters_path[80];
static _Alignas(256) char memory[256]; /* the fake driver reads no tensors */

static char logged[512];

static void log_last(void *user, const char *message)
{
    (void)user;
    snprintf(logged, sizeof logged, "%s", message);
}

static fa2_context *create(void)
{
    const fa2_config no_database = {.struct_bytes = sizeof(fa2_config), .database = ""};
    fa2_context *context = NULL;
    CHECK_EQ(fa2_context_create(&no_database, &context), FA2_OK);
    return context;
}

static fa2_status call(fa2_context *context, const fa2_problem *problem)
{
    const int64_t row = (int64_t)problem->heads_q * problem->head_dim;
    const fa2_tensor tensor = {memory, problem->seq_q * row, row, problem->head_dim};
    fa2_forward_args args = {
        .struct_bytes = sizeof(fa2_forward_args), .q = tensor, .k = tensor, .v = tensor, .o = tensor};
    args.o.data = (void *)((uintptr_t)1 << 41);
    return fa2_forward(context, problem, &args, NULL);
}

static void calls(fa2_context *context, int batch, int count)
{
    const fa2_problem problem = tuned_problem(batch, 512);
    for (int i = 0; i < count; i++)
        CHECK_EQ(call(context, &problem), FA2_OK);
}

/* Removes the file and its counters. */
static void forget(void)
{
    CHECK_EQ(unlink(path), 0);
    (void)unlink(counters_path); /* a context that did nothing makes none */
}

/* Returns the lines of a file after its header; static. */
static const char *lines_of(const char *name, const char *header)
{
    static char content[4096];
    FILE *file = fopen(name, "r");
    CHECK(file != NULL);
    const size_t bytes = file == NULL ? 0 : fread(content, 1, sizeof content - 1, file);
    content[bytes] = '\0';
    if (file != NULL)
        fclose(file);
    CHECK(strncmp(content, header, strlen(header)) == 0);
    const char *end = strchr(content, '\n');
    return end == NULL ? "" : end + 1;
}

static const char *lines(void)
{
    return lines_of(path, "calls,op,batch,heads_q,");
}

/* Only launches count. The problem with the most calls is first. A later context adds to the counts. */
static void test_counts(void)
{
    const fa2_problem bad = tuned_problem(0, 512), prepared = tuned_problem(9, 512);
    fa2_context *context = create();
    CHECK_STR(lines(), ""); /* the file exists at once */
    calls(context, 1, 2);
    calls(context, 2, 5);
    CHECK_EQ(call(context, &bad), FA2_E_INVALID);
    CHECK_EQ(fa2_prepare(context, &prepared), FA2_OK);
    fa2_context_destroy(context);
    CHECK(strncmp(lines(), "5,forward,2,", 12) == 0);
    CHECK_CONTAINS(lines(), "\n2,forward,1,");
    context = create();
    calls(context, 1, 40);
    fa2_context_destroy(context);
    CHECK(strncmp(lines(), "42,forward,1,", 13) == 0);
    CHECK_CONTAINS(lines(), "\n5,forward,2,");
    forget();
}

/* Beside the file lie the counters of all contexts, added up. */
static void test_counters(void)
{
    const fa2_problem bad = tuned_problem(0, 512);
    fa2_context *context = create();
    CHECK(access(counters_path, F_OK) != 0); /* nothing was counted */
    calls(context, 1, 3);
    fa2_context_destroy(context);
    CHECK_CONTAINS(lines_of(counters_path, "value,counter\n"), "3,calls_default\n");
    CHECK_CONTAINS(lines_of(counters_path, "value,counter\n"), "1,compiled\n");
    CHECK(strstr(lines_of(counters_path, "value,counter\n"), "calls_exact") == NULL);
    context = create();
    calls(context, 1, 4);
    CHECK_EQ(call(context, &bad), FA2_E_INVALID);
    fa2_context_destroy(context);
    CHECK_CONTAINS(lines_of(counters_path, "value,counter\n"), "7,calls_default\n");
    CHECK_CONTAINS(lines_of(counters_path, "value,counter\n"), "1,calls_failed\n");
    CHECK_CONTAINS(lines_of(counters_path, "value,counter\n"), "2,misses\n");
    forget();
}

/* A file of the counters' name that is none stays as it is, and the log says so. */
static void test_counters_no_good(void)
{
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = "", .log = log_last};
    fa2_context *context = NULL;
    FILE *file = fopen(counters_path, "w");
    CHECK(file != NULL && fputs("mine\n", file) >= 0 && fclose(file) == 0);
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    calls(context, 1, 1);
    fa2_context_destroy(context);
    CHECK_CONTAINS(logged, ".counters: a file of that name exists and is no capture");
    CHECK_STR(lines_of(counters_path, "mine\n"), "");
    CHECK(strncmp(lines(), "1,forward,1,", 12) == 0);
    forget();
}

/* Of failed calls, only those without a kernel count, because tuning on another machine can provide one. */
static void test_counts_what_lacks_a_kernel(void)
{
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = "", .never_compile = 1};
    const fa2_problem problem = tuned_problem(3, 512), bad = tuned_problem(0, 512);
    fa2_context *context = NULL;
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    CHECK_EQ(call(context, &problem), FA2_E_FORBIDDEN);
    CHECK_EQ(call(context, &problem), FA2_E_FORBIDDEN);
    CHECK_EQ(call(context, &bad), FA2_E_INVALID);
    fa2_context_destroy(context);
    CHECK(strncmp(lines(), "2,forward,3,", 12) == 0);
    CHECK(strchr(lines(), '\n') == strrchr(lines(), '\n'));
    forget();
}

/* The file is a shape file. */
static void test_is_a_shape_file(void)
{
    const fa2_problem first = tuned_problem(1, 512);
    fa2i_shapes shapes = {0};
    fa2_context *context = create();
    calls(context, 2, 1);
    calls(context, 1, 3);
    fa2_context_destroy(context);
    CHECK_EQ(fa2i_shapes_add_file(&shapes, path), FA2_OK);
    CHECK_EQ(shapes.count, 2);
    CHECK(shapes.count == 2 && memcmp(&shapes.items[0], &first, sizeof first) == 0);
    CHECK(shapes.count == 2 && shapes.calls[0] == 3 && shapes.calls[1] == 1);
    fa2i_shapes_done(&shapes);
    forget();
}

/* More problems than a context keeps prepared. */
static void test_many(void)
{
    enum { PROBLEMS = 2 * 8192 + 50 };
    fa2_context *context = create();
    for (int i = 1; i <= PROBLEMS; i++) {
        const fa2_problem problem = tuned_problem(1, i);
        CHECK_EQ(call(context, &problem), FA2_OK);
        if (i > PROBLEMS - 10)
            CHECK_EQ(call(context, &problem), FA2_OK);
    }
    fa2_context_destroy(context);
    fa2i_shapes shapes = {0};
    CHECK_EQ(fa2i_shapes_add_file(&shapes, path), FA2_OK);
    CHECK_EQ(shapes.count, PROBLEMS);
    double sum = 0;
    for (size_t i = 0; i < shapes.count; i++)
        sum += shapes.calls[i];
    CHECK(sum == PROBLEMS + 10);
    fa2i_shapes_done(&shapes);
    forget();
}

static uint64_t calls_of(const fa2i_call_table *table)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < table->place_count; i++)
        sum += table->places[i].calls;
    return sum;
}

/* Between two writes the number of problems is limited: known problems are still counted, new ones are not. */
static void test_full(void)
{
    fa2i_call_table table = {.places = NULL};
    fa2_problem problem = tuned_problem(1, 512);
    int added = 0;
    for (int i = 1; i <= 2 * FA2I_CALL_TABLE_MOST; i++) {
        problem.seq_k = i;
        added += fa2i_call_table_add(&table, &problem, 1);
    }
    CHECK_EQ(added, FA2I_CALL_TABLE_MOST);
    CHECK_EQ(table.count, FA2I_CALL_TABLE_MOST);
    problem.seq_k = 7;
    CHECK(fa2i_call_table_add(&table, &problem, 5));
    CHECK_EQ(calls_of(&table), FA2I_CALL_TABLE_MOST + 5);
    fa2i_call_table_done(&table);
    fa2i_alloc_fail_at(1);
    CHECK(!fa2i_call_table_add(&table, &problem, 1));
    CHECK(fa2i_call_table_add(&table, &problem, 1));
    CHECK_EQ(calls_of(&table), 1);
    fa2i_call_table_done(&table);
}

/* ---- processes ---- */

static pid_t start(void (*run)(void))
{
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        run();
        exit(check_failures > 0); /* not _exit, because the file is written when the process ends */
    }
    return child;
}

static void finish(pid_t child, bool killed)
{
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(killed ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void run_many(void)
{
    for (int i = 0; i < 20; i++) {
        fa2_context *context = create();
        calls(context, 1, 10);
        fa2_context_destroy(context);
    }
}

static void run_without_destroying(void)
{
    static fa2_context *volatile left; /* static, so that a sanitizer sees no leak */
    left = create();
    calls(left, 3, 7);
}

static void run_until_killed(void)
{
    calls(create(), 4, 6);
    for (;;)
        pause();
}

static void test_processes(void)
{
    enum { PROCESSES = 5 };
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++)
        children[i] = start(run_many);
    for (int i = 0; i < PROCESSES; i++)
        finish(children[i], false);
    CHECK(strncmp(lines(), "1000,forward,1,", 15) == 0);
    finish(start(run_without_destroying), false);
    CHECK_CONTAINS(lines(), "\n7,forward,3,");
    /* After a few seconds the calls are in the file, even if the process is killed. */
    const struct timespec nap = {0, 50000000};
    const pid_t child = start(run_until_killed);
    for (int i = 0; i < 400 && strstr(lines(), "\n6,forward,4,") == NULL; i++)
        nanosleep(&nap, NULL);
    CHECK_EQ(kill(child, SIGKILL), 0);
    finish(child, true);
    CHECK_CONTAINS(lines(), "\n6,forward,4,");
    forget();
}

static fa2_context *inherited;

static void run_inherited(void)
{
    fa2_context *own = create();
    calls(own, 2, 3);
    fa2_context_destroy(own);
}

/* A forked process writes its own counts, and does not repeat its parent's. */
static void test_fork(void)
{
    inherited = create();
    calls(inherited, 1, 11);
    finish(start(run_inherited), false);
    CHECK_CONTAINS(lines(), "3,forward,2,");
    fa2_context_destroy(inherited);
    CHECK(strncmp(lines(), "11,forward,1,", 13) == 0);
    CHECK_CONTAINS(lines(), "\n3,forward,2,");
    forget();
}

/* ---- bad files ---- */

static void check_refused(const char *message)
{
    const fa2_config no_database = {.struct_bytes = sizeof(fa2_config), .database = ""};
    fa2_context *context = NULL;
    CHECK_EQ(fa2_context_create(&no_database, &context), FA2_E_IO);
    CHECK_CONTAINS(fa2_last_message(), "FA2_CAPTURE=");
    CHECK_CONTAINS(fa2_last_message(), message);
    CHECK(context == NULL);
    CHECK_EQ(fake_live(), 0);
}

static void put(const char *content)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(content, file) >= 0 && fclose(file) == 0);
}

static void test_links(void)
{
    char real[80];
    struct stat status;
    snprintf(real, sizeof real, "%s/real.csv", folder);
    CHECK_EQ(symlink("real.csv", path), 0);
    fa2_context *context = create();
    calls(context, 1, 2);
    fa2_context_destroy(context);
    CHECK(lstat(path, &status) == 0 && S_ISLNK(status.st_mode));
    CHECK(strncmp(lines(), "2,forward,1,", 12) == 0);
    forget();
    CHECK_EQ(unlink(real), 0);
    snprintf(real, sizeof real, "%s/real.csv.counters", folder); /* beside the file, not beside its link */
    CHECK_EQ(unlink(real), 0);
}

/* Lines that fa2 never wrote. Nothing in the file may be lost. */
static void test_bad_lines(void)
{
    static const struct {
        const char *line;
        size_t bytes;
    } bad[] = {{"-5,forward\n", 11},   {" 5,forward\n", 11}, {"5\n", 2}, {"99999999999999999999,forward\n", 29},
               {"7,forward,1,8", 13}, /* the file is cut off */
               {"\0005,forward\n", 11}};
    fa2_context *context = create();
    fa2_context_destroy(context);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        FILE *file = fopen(path, "a");
        struct stat before, after;
        CHECK(file != NULL && fwrite(bad[i].line, 1, bad[i].bytes, file) == bad[i].bytes && fclose(file) == 0);
        CHECK_EQ(stat(path, &before), 0);
        check_refused(": line 2 is no row of a capture: the file was cut off or changed there; remove the line, "
                      "or name another file");
        CHECK(stat(path, &after) == 0 && after.st_ino == before.st_ino && after.st_size == before.st_size);
        CHECK_EQ(truncate(path, before.st_size - (off_t)bad[i].bytes), 0);
    }
    forget();
}

/* Counts that would overflow stay at the maximum. */
static void test_highest(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    fa2i_call_counts counts = {0};
    CHECK_EQ(fa2i_call_counts_add(&counts, &problem, UINT64_MAX), FA2_OK);
    CHECK_EQ(fa2i_capture_file_add(path, &counts), FA2_OK);
    CHECK_EQ(fa2i_capture_file_add(path, &counts), FA2_OK);
    fa2i_call_counts_done(&counts);
    CHECK(strncmp(lines(), "18446744073709551615,forward,1,", 31) == 0);
    forget();
}

static void test_no_good(void)
{
    setenv("FA2_CAPTURE", "/nonexistent/calls.csv", 1);
    check_refused("it cannot be written (No such file or directory)");
    setenv("FA2_CAPTURE", folder, 1);
    check_refused("it cannot be written (Is a directory)");
    setenv("FA2_CAPTURE", "/dev/null", 1);
    check_refused("no capture of this fa2");
    setenv("FA2_CAPTURE", path, 1);
    put("something else\n");
    check_refused("no capture of this fa2; name another, or remove it");
    put("calls,op\n7,forward\n"); /* from a fa2 with other fields */
    check_refused("no capture of this fa2");
    fa2_context *context = NULL;
    forget();
    for (long nth = 1; nth < 200; nth++) { /* each allocation fails */
        const fa2_config no_database = {.struct_bytes = sizeof(fa2_config), .database = ""};
        fa2i_alloc_fail_at(nth);
        const fa2_status st = fa2_context_create(&no_database, &context);
        fa2i_alloc_fail_at(0);
        if (st == FA2_OK)
            break;
        CHECK_EQ(st, FA2_E_MEMORY);
    }
    CHECK(context != NULL);
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
    forget();
    unsetenv("FA2_CAPTURE");
    context = create();
    calls(context, 1, 1);
    fa2_context_destroy(context);
    CHECK(access(path, F_OK) != 0);
    setenv("FA2_CAPTURE", path, 1);
}

/* A file that later cannot be written keeps its contents, and the log says so. */
static void test_trouble_later(void)
{
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = "", .log = log_last};
    fa2_context *context = create();
    calls(context, 1, 5);
    fa2_context_destroy(context);
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    calls(context, 1, 1);
    put("replaced by somebody\n");
    fa2_context_destroy(context);
    CHECK_CONTAINS(logged, "no capture of this fa2");
    forget();
}

int main(void)
{
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/calls.csv", folder);
    snprintf(counters_path, sizeof counters_path, "%s.counters", path);
    setenv("FA2_CAPTURE", path, 1);
    fake_install();
    test_counts();
    test_counters();
    test_counters_no_good();
    test_counts_what_lacks_a_kernel();
    test_is_a_shape_file();
    test_many();
    test_full();
    test_processes();
    test_fork();
    test_links();
    test_bad_lines();
    test_highest();
    test_no_good();
    test_trouble_later();
    fake_uninstall();
    CHECK_EQ(rmdir(folder), 0); /* nothing else is left */
    return check_done();
}
