/*
 * `fa2-tune tune` from its arguments to the database, with the real generator, the fake driver and the fake NVRTC. The
 * test's program replaces fa2-tune: called with `worker` it is the worker process. Called with `tune` it tunes, so that
 * a test can kill it. check.h counts failures.
 */
#pragma once

#include <unistd.h>
#include "check.h"
#include "fake_attention.h"
#include "tuned_database.h"
#include "tuner/commands/commands.h"

enum { OUTPUT_BYTES = 1 << 16 };

/* One run of `tune --json`. */
typedef struct run {
    int status;
    char json[OUTPUT_BYTES];
} run;

#define SHAPE_SHORT "Hq=2,Sq=100,D=16"

static inline int collect(char **argv, const char *path, const char *const *shapes, const char *extra)
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

/* Tunes in this process, with stdout in a file. */
static inline void tune(const tuned_database *database, const char *const *shapes, const char *extra, run *ret_run)
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

/* Returns the number after "name": in the summary, -1 if there is none. */
static inline long number(const run *r, const char *name)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", name);
    const char *at = strstr(r->json, quoted);
    return at == NULL ? -1 : atol(at + strlen(quoted));
}

static inline int states(const run *r, const char *state)
{
    char quoted[64];
    int count = 0;
    snprintf(quoted, sizeof quoted, "\"state\":\"%s\"", state);
    for (const char *at = r->json; (at = strstr(at, quoted)) != NULL; at++)
        count++;
    return count;
}

static inline double query(const tuned_database *database, const char *sql)
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

/* Call it first in main. Returns true if this process is a worker or a tuner, which must end with *ret_status. */
static inline bool tune_stands_in(int argc, char **argv, int *ret_status)
{
    fake_install();
    if (argc > 1 && strcmp(argv[1], "worker") == 0) {
        fake.on_launch = attention_on_launch;
        if (getenv("FA2_TEST_OLD_DRIVER") != NULL)
            fake.devices[0].arch = 75; /* refuses code for sm_86 */
        *ret_status = fa2i_cmd_worker(argc - 1, argv + 1);
        return true;
    }
    if (argc > 1 && strcmp(argv[1], "tune") == 0) {
        *ret_status = fa2i_cmd_tune(argc - 1, argv + 1);
        return true;
    }
    return false;
}
