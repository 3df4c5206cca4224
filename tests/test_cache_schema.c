/*
 * The schema: its version, and columns and views that an older or a newer fa2 has otherwise. A file whose problems have
 * other columns than this fa2's is updated, or refused.
 */
#include "cache/internal.h"
#include "cache_fixture.h"
#include "runtime/base/alloc.h"

static void run_sql(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    char *message = NULL;
    CHECK_EQ(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK) {
        fprintf(stderr, "%s: %s\n", sql, message);
        check_failures++;
    }
    sqlite3_free(message);
    sqlite3_close(db);
    CHECK_EQ(chmod(path, 0600), 0);
}

static int64_t number(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    int64_t value = -1;
    CHECK_EQ(sqlite3_open(path, &db), SQLITE_OK);
    CHECK_EQ(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    if (sqlite3_step(stmt) == SQLITE_ROW)
        value = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return value;
}

static void bring_forward(const char *path)
{
    fa2i_cache_close(fixture_open(path));
}

/* ---- versions ---- */

/* A file of another version is refused, by readers and by writers, and stays as it is. */
static void test_other_version(fixture *f)
{
    static const struct {
        int version;
        const char *advice;
    } others[] = {{1, "export it with the older fa2 that wrote it"},
                  {3, "move it away and tune again"},
                  {5, "use the newer fa2 that wrote it"}};
    fa2i_cache *cache = fixture_open(f->path);
    fixture_fill(cache);
    fa2i_cache_close(cache);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char pragma[64], found[64];
        snprintf(pragma, sizeof pragma, "PRAGMA user_version = %d", others[i].version);
        snprintf(found, sizeof found, "has schema version %d, this fa2 reads version 4", others[i].version);
        run_sql(f->path, pragma);
        const int64_t schema = number(f->path, "PRAGMA schema_version");
        check_refused(f->path, FA2I_CACHE_READ, FA2_E_DATABASE, found);
        check_refused(f->path, FA2I_CACHE_WRITE, FA2_E_DATABASE, others[i].advice);
        CHECK_EQ(number(f->path, "PRAGMA schema_version"), schema);
        CHECK_EQ(number(f->path, "PRAGMA user_version"), others[i].version);
        CHECK_EQ(number(f->path, "SELECT count(*) FROM winner"), 2);
    }
}

/* A new file is made wholly or not at all, and opening it again changes nothing. */
static void test_making(fixture *f)
{
    fa2_status st = FA2_E_MEMORY;
    for (long nth = 1; st == FA2_E_MEMORY; nth++) {
        fa2i_cache *cache = NULL;
        (void)remove(f->path);
        fa2i_alloc_fail_at(nth);
        st = fa2i_cache_open(f->path, FA2I_CACHE_WRITE, NULL, NULL, &cache);
        fa2i_alloc_fail_at(0);
        fa2i_cache_close(cache);
        CHECK(st == FA2_OK || st == FA2_E_MEMORY);
        CHECK(nth < 99);
    }
    const int64_t schema = number(f->path, "PRAGMA schema_version");
    CHECK_EQ(number(f->path, "PRAGMA user_version"), 4);
    bring_forward(f->path);
    CHECK_EQ(number(f->path, "PRAGMA schema_version"), schema);
}

/* ---- columns ---- */

/* Makes a file as a fa2 without softcap wrote it. */
static void remove_softcap(const char *path)
{
    run_sql(path, "DROP VIEW winners; DROP VIEW measurements; DROP INDEX problem_fields;"
                  "ALTER TABLE problem DROP COLUMN softcap");
}

static void test_missing_column(fixture *f)
{
    fa2i_cache *cache = fixture_open(f->path);
    const ids before = sample_ids(cache, 512);
    store_result(cache, &before, 1, 100, true);
    fa2i_cache_close(cache);
    remove_softcap(f->path);
    check_refused(f->path, FA2I_CACHE_READ, FA2_E_DATABASE, "lack the column 'softcap'");
    CHECK_CONTAINS(fa2_last_message(), "fa2-tune check --db");
    cache = fixture_open(f->path);
    const ids after = sample_ids(cache, 512);
    CHECK_EQ(after.problem, before.problem);
    fa2_problem capped = sample_problem(512);
    int64_t id = 0;
    capped.softcap = 1;
    CHECK_EQ(fa2i_cache_problem(cache, &capped, &id), FA2_OK);
    CHECK(id != before.problem);
    fa2i_cache_close(cache);
    CHECK_EQ(number(f->path, "SELECT count(*) FROM winners WHERE softcap = 0"), 1);
}

static void test_unknown_column(fixture *f)
{
    bring_forward(f->path);
    run_sql(f->path, "ALTER TABLE problem ADD COLUMN colour INTEGER NOT NULL DEFAULT 0");
    check_refused(f->path, FA2I_CACHE_READ, FA2_E_DATABASE, "column 'colour'");
    check_refused(f->path, FA2I_CACHE_WRITE, FA2_E_DATABASE, "newer fa2 that wrote it");
    CHECK_EQ(remove(f->path), 0);
    bring_forward(f->path);
    run_sql(f->path, "ALTER TABLE problem RENAME COLUMN causal TO casual");
    check_refused(f->path, FA2I_CACHE_READ, FA2_E_DATABASE, "column 'casual'");
}

/* Views and the index are created again if they differ or are missing. */
static void test_views_come_back(fixture *f)
{
    static const char *const damages[] = {
        "DROP VIEW winners",
        "DROP VIEW measurements; CREATE VIEW measurements AS SELECT 1 AS one",
        "DROP INDEX problem_fields",
        "DROP INDEX problem_fields; CREATE UNIQUE INDEX problem_fields ON problem (op, seq_q)",
    };
    fa2i_cache *cache = fixture_open(f->path);
    const ids to = sample_ids(cache, 512);
    store_result(cache, &to, 1, 100, true);
    fa2i_cache_close(cache);
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        run_sql(f->path, damages[i]);
        bring_forward(f->path);
        CHECK_EQ(number(f->path, "SELECT count(*) FROM winners WHERE tflops > 0"), 1);
        CHECK_EQ(number(f->path, "SELECT count(*) FROM measurements WHERE tflops > 0"), 1);
        CHECK_EQ(number(f->path, "SELECT count(*) FROM pragma_index_info('problem_fields')"), FA2I_FIELD_COUNT);
    }
}

int main(void)
{
    static void (*const tests[])(fixture *) = {test_other_version, test_making, test_missing_column,
                                               test_unknown_column, test_views_come_back};
    fixture_each(tests, sizeof tests / sizeof tests[0]);
    return check_done();
}
