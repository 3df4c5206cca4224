/*
 * Many lengths with one context. A hook on every connection counts SQL statements, and can make them fail: `watch`, for
 * sqlite3_auto_extension. check.h counts failures.
 */
#pragma once

#include <fcntl.h>
#include <time.h>
#include "cache/content/report.h"
#include "fa2.h"
#include "fake_call.h"
#include "runtime/base/alloc.h"
#include "runtime/lua/generator.h"
#include "runtime/ops/steps.h"
#include "runtime/plan/state.h"
#include "tuned_database.h"

enum {
    LENGTHS = 4096,
    PLANS_KEPT = 8192, /* the number in fa2.h */
    PLAN_ALLOCATIONS = 2,
    EVIDENCE = 4,                   /* statements that read all kernels and times */
    RECALL = 6,                     /* statements that look for earlier answers, to the problem and to its rounding */
    NOTES = 4 + FA2I_NOTES_ANSWERS, /* statements that write answers, once a second */
    SMEM_PER_ID = 1024,             /* tuned kernels differ in shared memory, which a launch records */
};

static tuned_database database;
static tuned_log log_of;
static long statements;
static const char *failing; /* statements on a file that contain this text fail; NULL: none */

static inline int count_statement(unsigned event, void *db, void *statement, void *text)
{
    (void)event, (void)statement;
    statements++;
    const char *file = sqlite3_db_filename(db, "main"); /* no absolute path in memory */
    if (failing != NULL && strstr(text, failing) != NULL && file != NULL && file[0] == '/')
        sqlite3_interrupt(db);
    return 0;
}

/* SQLite calls this for each new connection. */
static inline int watch(sqlite3 *db, char **error, const struct sqlite3_api_routines *api)
{
    (void)error, (void)api;
    return sqlite3_trace_v2(db, SQLITE_TRACE_STMT, count_statement, db);
}

static inline fa2_problem problem_of(int32_t seq_k)
{
    return (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                         .batch = 1,
                         .heads_q = 8,
                         .heads_kv = 2,
                         .seq_q = 1,
                         .seq_k = seq_k,
                         .head_dim = 64,
                         .causal = 1};
}

static inline fa2_status forward(fa2_context *context, const fa2_problem *problem, CUstream stream)
{
    return fake_call(context, problem, 512, stream);
}

static inline fa2_context *create(const char *path)
{
    const fa2_config config = {.struct_bytes = sizeof(fa2_config),
                               .database = path,
                               .read_only = 1,
                               .log = tuned_log_add,
                               .log_user = &log_of};
    fa2_context *context = NULL;
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    return context;
}

static inline fa2_explanation explain(fa2_context *context, const fa2_problem *problem)
{
    fa2_explanation e = {.struct_bytes = sizeof e, .rule = (fa2_rule)99};
    CHECK_EQ(fa2_explain(context, problem, &e), FA2_OK);
    return e;
}

static inline fa2_explanation explain_length(fa2_context *context, int32_t length)
{
    const fa2_problem problem = problem_of(length);
    return explain(context, &problem);
}

static inline void begin(void)
{
    fake_install();
    tuned_begin(&database);
    log_of = (tuned_log){.count = 0};
}

static inline void end(fa2_context *context)
{
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
    fake_uninstall();
    tuned_end(&database);
}

static inline void put(int id, fa2_problem problem)
{
    tuned_put(&database, &(tuned_winner){.id = id, .problem = problem, .smem_bytes = id * SMEM_PER_ID});
}

/* Makes the file look old. Its time must not matter, because clocks are coarse, and may be set. */
static inline void set_written_long_ago(const char *path)
{
    const struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    CHECK_EQ(utimensat(AT_FDCWD, path, times, 0), 0);
}

static inline int launched_id(void)
{
    return (int)fake.launches[fake.launch_count - 1].smem_bytes / SMEM_PER_ID;
}
