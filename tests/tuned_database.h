/*
 * A tuning database in a temporary folder, filled with winners whose images the fake driver loads. Link the library of
 * fake_cuda.h. check.h counts failures.
 */
#pragma once

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "cache/cache.h"
#include "check.h"
#include "fake_cuda.h"
#include "recipe_fixture.h"
#include "runtime/cuda/device.h"

typedef struct tuned_database {
    char folder[64];
    char path[96];
} tuned_database;

/* A winner to store. Zero fields mean the defaults: device 0, real, measured, target "sm_86". */
typedef struct tuned_winner {
    int id;           /* distinguishes kernels: "id=7" in the variant's text */
    const char *text; /* NULL: such a text, which no generator knows */
    fa2_problem problem;
    const fa2i_card *card;
    bool modelled;
    const char *target;
    int smem_bytes;
} tuned_winner;

static inline void tuned_begin(tuned_database *database)
{
    strcpy(database->folder, "/tmp/fa2-test-XXXXXX");
    setenv("FA2_SHARE", "", 1); /* ignore results installed on this machine */
    CHECK(mkdtemp(database->folder) != NULL);
    snprintf(database->path, sizeof(database->path), "%s/fa2.db", database->folder);
}

/* Removes the folder. All contexts on it must be destroyed. */
static inline void tuned_end(const tuned_database *database)
{
    chmod(database->folder, 0700);
    remove(database->path);
    CHECK_EQ(rmdir(database->folder), 0); /* nothing else may be left in it */
}

static inline fa2i_card tuned_card(int ordinal)
{
    const fa2i_cuda_table *cuda = NULL;
    fa2i_card card = {0};
    CHECK_EQ(fa2i_cuda_get(&cuda), FA2_OK);
    CHECK_EQ(fa2i_device_card(cuda, ordinal, &card), FA2_OK);
    return card;
}

static inline fa2i_key tuned_key(int id)
{
    return (fa2i_key){.bytes = {(uint8_t)id, 0xfa, 0x02}};
}

static inline void tuned_put_kernel(fa2i_cache *cache, const tuned_winner *winner)
{
    fa2i_kernel kernel = {.key = tuned_key(winner->id),
                          .variant.recipe = plain_recipe("fwd_sm80", 128, 64, 64, winner->smem_bytes),
                          .nvrtc = 13000,
                          .generator = "0123456789abcdef",
                          .registers = 96};
    char source[32];
    snprintf(kernel.variant.text, sizeof(kernel.variant.text), "fwd_sm80 d=%d id=%d", (int)winner->problem.head_dim,
             winner->id);
    if (winner->text != NULL)
        snprintf(kernel.variant.text, sizeof(kernel.variant.text), "%s", winner->text);
    fa2i_problem_class(&winner->problem, kernel.variant.class_key);
    snprintf(kernel.target, sizeof(kernel.target), "%s", winner->target == NULL ? "sm_86" : winner->target);
    snprintf(source, sizeof(source), "tuned, id=%d", winner->id);
    fake_image("fwd_sm80", kernel.target, source, &kernel.image);
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
    fa2i_kernel_done(&kernel);
}

static inline void tuned_put(const tuned_database *database, const tuned_winner *winner)
{
    fa2i_cache *cache = NULL;
    fa2i_session session = {.driver = 13000, .nvrtc = 13000, .generator = "0123456789abcdef", .origin = "tune"};
    int64_t session_id = 0, problem_id = 0;
    const fa2i_card card = winner->card == NULL ? tuned_card(0) : *winner->card;
    const fa2i_winner row = {.kernel = tuned_key(winner->id),
                             .measured = !winner->modelled,
                             .median_us = winner->modelled ? 0 : 12.5,
                             .default_us = winner->modelled ? 0 : 15,
                             .model_us = 11};

    CHECK_EQ(fa2i_cache_open(database->path, FA2I_CACHE_WRITE, NULL, NULL, &cache), FA2_OK);
    CHECK_EQ(fa2i_cache_device(cache, &card, !winner->modelled, &session.device), FA2_OK);
    CHECK_EQ(fa2i_cache_problem(cache, &winner->problem, &problem_id), FA2_OK);
    CHECK_EQ(fa2i_cache_session_begin(cache, &session, &session_id), FA2_OK);
    tuned_put_kernel(cache, winner);
    CHECK_EQ(fa2i_cache_put_winner(cache, session_id, session.device, problem_id, &row), FA2_OK);
    fa2i_cache_close(cache);
}

/* Runs SQL on the file without the library. */
static inline void tuned_sql(const tuned_database *database, const char *sql)
{
    sqlite3 *db = NULL;
    CHECK_EQ(sqlite3_open(database->path, &db), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

/* Waits until open contexts ask their database for changes again. */
static inline void tuned_wait(void)
{
    const struct timespec pause = {.tv_sec = 1, .tv_nsec = 50000000};
    CHECK_EQ(nanosleep(&pause, NULL), 0);
}

/* Returns the number in the first column of the first row. */
static inline long tuned_number(const tuned_database *database, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    long number = -1;
    CHECK_EQ(sqlite3_open(database->path, &db), SQLITE_OK);
    CHECK_EQ(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    if (sqlite3_step(stmt) == SQLITE_ROW)
        number = (long)sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return number;
}

/* A log that keeps all messages, one per line. */
typedef struct tuned_log {
    char text[16384];
    int count;
} tuned_log;

static inline void tuned_log_add(void *user, const char *message)
{
    tuned_log *log = user;
    size_t used = strlen(log->text);
    snprintf(log->text + used, sizeof(log->text) - used, "%s\n", message);
    log->count++;
}

static inline fa2_problem tuned_problem(int32_t batch, int32_t seq)
{
    return (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                         .batch = batch,
                         .heads_q = 8,
                         .heads_kv = 8,
                         .seq_q = seq,
                         .seq_k = seq,
                         .head_dim = 64,
                         .causal = 1};
}
