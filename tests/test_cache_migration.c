/*
 * From one version of the database to the next. A file of version 1 keeps its winners and their code. A file whose
 * problems have other columns than this fa2's is updated, or refused.
 */
#include "cache/internal.h"
#include "cache_fixture.h"
#include "fa2.h"
#include "fake_call.h"
#include "fake_cuda.h"
#include "gen/asset.h"
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

/* Makes a file as version 1 wrote it. */
static void make_version_1(const char *path)
{
    static char rows[100000];
    char name[500];
    snprintf(name, sizeof name, "%s/tests/version_1.sql", getenv("FA2_SOURCE_DIR"));
    FILE *file = fopen(name, "r");
    CHECK(file != NULL);
    if (file == NULL)
        exit(1);
    rows[fread(rows, 1, sizeof rows - 1, file)] = '\0';
    fclose(file);
    run_sql(path, fa2i_asset_find("cache/database/schema.sql")->data);
    run_sql(path, rows);
    run_sql(path, "PRAGMA user_version = 1");
}

static void bring_forward(const char *path)
{
    fa2i_cache_close(fixture_open(path));
}

/* ---- version 1 ---- */

static void test_version_1_rows(fixture *f)
{
    make_version_1(f->path);
    check_refused(f->path, FA2I_CACHE_READ, FA2_E_DATABASE, "fa2-tune check --db");
    bring_forward(f->path);
    fa2i_cache_health health = {0};
    fa2i_cache *cache = NULL;
    CHECK_EQ(fa2i_cache_open(f->path, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    fa2i_cache_close(cache);
    CHECK(health.intact);
    CHECK_EQ(health.kernels, 6);
    CHECK_EQ(health.images, 4); /* the damaged one is gone */
    CHECK_EQ(health.damaged_images, 0);
    CHECK_EQ(health.measurements, 4);
    CHECK_EQ(health.winners, 4);
    CHECK_EQ(health.dangling, 0);
    CHECK_EQ(number(f->path, "SELECT count(*) FROM code"), 4);
    CHECK_EQ(number(f->path, "SELECT count(*) FROM verification"), 3);
    CHECK_EQ(number(f->path, "SELECT count(*) FROM winners WHERE softcap = 0 AND window_left = 0"),
             4);
    CHECK_EQ(number(f->path, "SELECT count(*) FROM winner w JOIN problem p ON p.id = w.problem "
                             "JOIN kernel k ON k.id = w.kernel WHERE p.class = k.class"),
             4);
    CHECK_EQ(number(f->path, "SELECT 1000 * tflops FROM winners WHERE seq_q = 300"), 0); /* NULL */
    CHECK_EQ(number(f->path, "SELECT round(1000 * tflops) FROM winners WHERE seq_q = 512"), 13094);
    CHECK_EQ(number(f->path, "SELECT threads * 100000 + smem_bytes FROM winners WHERE seq_q = 1"),
             128 * 100000 + 49152);
    /* equal to a new file; a second update changes nothing */
    const int64_t schema = number(f->path, "PRAGMA schema_version");
    bring_forward(f->path);
    CHECK_EQ(number(f->path, "PRAGMA schema_version"), schema);
}

/* A new file has the same tables, indexes and views. */
static void test_same_schema(fixture *f)
{
    static const char sql[] = "SELECT count(*) FROM (SELECT type, name, sql FROM sqlite_schema "
                              "EXCEPT SELECT type, name, sql FROM other.sqlite_schema)";
    char other[200], attach[300];
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    snprintf(other, sizeof other, "%s/new.db", f->folder);
    make_version_1(f->path);
    bring_forward(f->path);
    bring_forward(other);
    snprintf(attach, sizeof attach, "ATTACH '%s' AS other", other);
    CHECK_EQ(sqlite3_open(f->path, &db), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(db, attach, NULL, NULL, NULL), SQLITE_OK);
    CHECK_EQ(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    CHECK_EQ(sqlite3_step(stmt), SQLITE_ROW);
    CHECK_EQ(sqlite3_column_int64(stmt, 0), 0);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
}

static fa2_explanation explain(fa2_context *context, fa2_problem problem)
{
    fa2_explanation e = {.struct_bytes = sizeof e, .rule = (fa2_rule)99};
    CHECK_EQ(fa2_explain(context, &problem, &e), FA2_OK);
    return e;
}

/* Checks a launch in two steps, as its kernel's recipe says. */
static void launch_decode(fa2_context *context, const fa2_problem *problem)
{
    CHECK_EQ(fake_call(context, problem, 2048, NULL), FA2_OK);
    CHECK_EQ(fake.launch_count, 2);
    CHECK_STR(fake.launches[0].function, "fwd_splitkv_sm80");
    CHECK_EQ(fake.launches[0].threads, 128);
    CHECK_EQ(fake.launches[0].smem_bytes, 49152);
    CHECK_STR(fake.launches[1].function, "fwd_splitkv_sm80_combine");
    CHECK_EQ(fake.launches[1].threads, 128);
    CHECK_EQ(fake.launches[1].blocks, 32 / 4);
}

/* The winners of a migrated file are launched from their cubins. */
static void test_version_1_serves(fixture *f)
{
    const fa2_problem causal = {.struct_bytes = sizeof(fa2_problem),
                                .batch = 1,
                                .heads_q = 8,
                                .heads_kv = 8,
                                .seq_q = 512,
                                .seq_k = 512,
                                .head_dim = 64,
                                .causal = 1};
    const fa2_problem decode = {
        .struct_bytes = sizeof(fa2_problem),
        .batch = 1, .heads_q = 32, .heads_kv = 8, .seq_q = 1, .seq_k = 65536, .head_dim = 64};
    const fa2_problem bf16 = {.struct_bytes = sizeof(fa2_problem),
                              .dtype = FA2_BF16,
                              .batch = 2,
                              .heads_q = 4,
                              .heads_kv = 4,
                              .seq_q = 300,
                              .seq_k = 300,
                              .head_dim = 64};
    fa2_problem lost = causal; /* its winner's code was damaged: the next kernel serves it */
    lost.seq_q = lost.seq_k = 4096;
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = f->path};
    fa2_context *context = NULL;

    make_version_1(f->path);
    fake_install();
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    fa2_explanation e = explain(context, causal);
    CHECK_EQ(e.rule, FA2_RULE_EXACT);
    CHECK_CONTAINS(e.variant, "fwd_sm80 d=64 dtype=fp16 causal=1 br=32");
    CHECK(e.median_us == 20.5);
    CHECK_EQ(explain(context, bf16).rule, FA2_RULE_ARCH);
    CHECK_EQ(explain(context, lost).rule, FA2_RULE_EXACT); /* compiled again */
    e = explain(context, decode);
    CHECK_EQ(e.rule, FA2_RULE_EXACT);
    CHECK_CONTAINS(e.variant, "fwd_splitkv_sm80");
    launch_decode(context, &decode);
    CHECK_EQ(fake.compile_count, 1);
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
    fake_uninstall();
}

/* Rows that version 1 never wrote are kept as records, and serve no problem. */
static void test_version_1_odd_rows(fixture *f)
{
    make_version_1(f->path);
    run_sql(f->path, "UPDATE kernel SET variant = 'fwd_sm80 d=64 causal=1' WHERE id = 1;"
                     "UPDATE kernel SET threads = 31 WHERE id = 2;"
                     "UPDATE kernel SET variant = replace(variant, 'bf16', 'fp17') WHERE id = 3;"
                     "UPDATE problem SET head_dim = 7 WHERE id = 3;"
                     "DELETE FROM session");
    bring_forward(f->path);
    CHECK_EQ(number(f->path, "SELECT count(*) FROM kernel"), 6);
    CHECK_EQ(number(f->path, "SELECT count(*) FROM image"), 1);
    CHECK_EQ(number(f->path, "SELECT count(*) FROM kernel WHERE class = ''"), 2);
    CHECK_EQ(number(f->path, "SELECT count(*) FROM problem WHERE class = ''"), 1);
}

/* A migration that fails leaves version 1. */
static void test_version_1_fails(fixture *f)
{
    make_version_1(f->path);
    run_sql(f->path, "CREATE TABLE code (a)");
    check_refused(f->path, FA2I_CACHE_WRITE, FA2_E_DATABASE, "code already exists");
    CHECK_EQ(number(f->path, "PRAGMA user_version"), 1);
    CHECK_EQ(number(f->path, "SELECT sum(threads) FROM kernel WHERE id < 3"), 192);
    CHECK_EQ(number(f->path, "SELECT count(*) FROM winners"), 4);
    for (long nth = 1, st = FA2_E_MEMORY; st == FA2_E_MEMORY && nth < 100; nth++) {
        fa2i_cache *cache = NULL;
        CHECK_EQ(remove(f->path), 0);
        make_version_1(f->path);
        fa2i_alloc_fail_at(nth);
        st = fa2i_cache_open(f->path, FA2I_CACHE_WRITE, NULL, NULL, &cache);
        fa2i_alloc_fail_at(0);
        fa2i_cache_close(cache);
        CHECK(st == FA2_OK || st == FA2_E_MEMORY);
        CHECK(nth < 99);
    }
}

/* ---- version 2 ---- */

/* Makes a file as version 2 wrote it, by removing what the third script made. */
static void make_version_2(const char *path)
{
    fa2i_cache *cache = fixture_open(path);
    fixture_fill(cache);
    fa2i_cache_close(cache);
    run_sql(path, "DROP TRIGGER measurement_added; DROP TRIGGER measurement_changed; DROP TRIGGER measurement_gone;"
                  "DROP TRIGGER winner_added; DROP TRIGGER winner_changed; DROP TRIGGER winner_gone;"
                  "DROP TRIGGER verification_added; DROP TRIGGER verification_changed;"
                  "DROP TRIGGER verification_gone; DROP TRIGGER kernel_changed; DROP TRIGGER image_added;"
                  "DROP TRIGGER image_gone; DROP TABLE answer; DROP TABLE setting;"
                  "ALTER TABLE image DROP COLUMN used; PRAGMA user_version = 2");
}

static void test_version_2(fixture *f)
{
    make_version_2(f->path);
    check_refused(f->path, FA2I_CACHE_READ, FA2_E_DATABASE, "has schema version 2 and this fa2 reads 3");
    bring_forward(f->path);
    fa2i_cache_health health = {0};
    fa2i_cache *cache = fixture_open(f->path);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK_STR(health.first_problem, "");
    CHECK_EQ(health.winners, 2);
    CHECK_EQ(health.images, 3);
    CHECK_EQ(fixture_number(cache, "SELECT max(used) FROM image"), 0); /* unknown: dropped first */
    const fa2i_key key = sample_key(2);
    fa2i_kernel kernel = {0};
    CHECK_EQ(fa2i_cache_get_kernel(cache, &key, ABI, true, &kernel), FA2_OK);
    fa2i_kernel_done(&kernel);
    fa2i_cache_close(cache);
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
        CHECK_EQ(number(f->path, "SELECT count(*) FROM pragma_index_info('problem_fields')"),
                 FA2I_FIELD_COUNT);
    }
}

/* Each step between versions is made completely or not at all. */
static void test_migrations(fixture *f)
{
    static const char *const good[] = {"-- as it is", "-- as it is", "-- as it is",
                                       "CREATE TABLE fourth (a INTEGER) STRICT",
                                       "ALTER TABLE fourth ADD COLUMN b INTEGER"};
    static const char *const bad[] = {"-- as it is", "-- as it is", "-- as it is",
                                      "CREATE TABLE fourth (a INTEGER) STRICT; SELECT nope"};
    fa2i_cache *cache = fixture_open(f->path);
    int64_t version = 0;

    /* one version behind: reading says what to do, and does not do it; a file without rows needs no step */
    CHECK_EQ(fa2i_cache_version_check(cache, 4), FA2_E_NOT_FOUND);
    (void)sample_ids(cache, 512);
    CHECK_EQ(fa2i_cache_version_check(cache, 4), FA2_E_DATABASE);
    CHECK_CONTAINS(fa2_last_message(), "fa2-tune check --db");

    CHECK_EQ(fa2i_cache_migrate(cache, bad, 4), FA2_E_DATABASE);
    CHECK_EQ(fa2i_sql_number(cache, "PRAGMA user_version", NULL, 0, &version), FA2_OK);
    CHECK_EQ(version, 3); /* as before, and the new table does not exist */
    CHECK_EQ(fa2i_cache_migrate(cache, good, 5), FA2_OK);
    CHECK_EQ(fa2i_cache_migrate(cache, good, 5), FA2_OK); /* nothing to do */
    CHECK_EQ(fa2i_sql_number(cache, "PRAGMA user_version", NULL, 0, &version), FA2_OK);
    CHECK_EQ(version, 5);
    CHECK_EQ(fa2i_sql_script(cache, "INSERT INTO fourth (a, b) VALUES (1, 2)"), FA2_OK);
    CHECK_EQ(fa2i_cache_migrate(cache, good, 4), FA2_E_DATABASE); /* an older fa2 */
    CHECK_CONTAINS(fa2_last_message(), "version 5");
    int enforced = 0;
    sqlite3_db_config(cache->db, SQLITE_DBCONFIG_ENABLE_FKEY, -1, &enforced);
    CHECK_EQ(enforced, 1);
    fa2i_cache_close(cache);
}

int main(void)
{
    static void (*const tests[])(fixture *) = {
        test_version_1_rows,     test_same_schema,     test_version_1_serves,
        test_version_1_odd_rows, test_version_1_fails, test_version_2,       test_missing_column,
        test_unknown_column,     test_views_come_back, test_migrations};
    fixture_each(tests, sizeof tests / sizeof tests[0]);
    return check_done();
}
