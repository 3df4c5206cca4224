/*
 * Creating the database on a full or failing disk must not leave a partial file that a later opening refuses. Also how
 * long calls wait for a locked file.
 */
#include "cache_fixture.h"
#include "failing_disk.h"

enum { PAGE = 4096 };

/* After a failed opening, a reader finds no database, and a writer with a working disk creates it. */
static void check_makeable(const char *path)
{
    fa2i_cache *cache = NULL;
    fa2i_cache_health health = {0};
    disk_reset();
    CHECK_EQ(fa2i_cache_open(path, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_E_NOT_FOUND);
    CHECK(cache == NULL);
    cache = fixture_open(path);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK(fa2i_cache_is_healthy(&health));
    const ids to = sample_ids(cache, 512);
    store_result(cache, &to, 1, 100, true);
    fa2i_cache_close(cache);
}

/* Free space from nothing to enough, page by page. */
static void test_nearly_full(fixture *f)
{
    fa2i_cache *cache = NULL;
    fa2_status st = FA2_E_DATABASE;
    int failed = 0;
    for (long room = 0; st != FA2_OK && room < 100 * PAGE; room += PAGE) {
        disk_reset();
        disk.room = room;
        st = fa2i_cache_open(f->path, FA2I_CACHE_WRITE, NULL, NULL, &cache);
        fa2i_cache_close(cache);
        cache = NULL;
        if (st == FA2_OK)
            break;
        failed++;
        CHECK_EQ(st, FA2_E_DATABASE);
        CHECK_CONTAINS(fa2_last_message(), "free some space");
        CHECK(access(f->path, F_OK) != 0); /* the useless file is removed */
        check_makeable(f->path);
        CHECK_EQ(remove(f->path), 0);
    }
    CHECK_EQ(st, FA2_OK);
    CHECK(failed > 10);
}

/* Each call of the disk fails in turn, alone or with all later calls. */
static void test_each_call_fails(fixture *f)
{
    static const int codes[] = {SQLITE_IOERR_READ, SQLITE_IOERR_WRITE, SQLITE_FULL};
    for (size_t kind = 0; kind < 2 * sizeof codes / sizeof *codes; kind++) {
        long failed = 0;
        for (long nth = 1;; nth++) {
            fa2i_cache *cache = NULL;
            disk_reset();
            disk.code = codes[kind / 2];
            disk.stays = kind % 2 != 0;
            disk.fail_at = nth;
            const fa2_status st = fa2i_cache_open(f->path, FA2I_CACHE_WRITE, NULL, NULL, &cache);
            const long calls = disk.calls;
            CHECK((st == FA2_OK) == (cache != NULL));
            CHECK(st == FA2_OK || st == FA2_E_DATABASE);
            failed += st != FA2_OK;
            disk_reset();
            fa2i_cache_close(cache);
            fa2i_cache_close(fixture_open(f->path));
            fa2i_cache_remove(f->path);
            if (nth > calls)
                break;
        }
        CHECK(failed > 20);
    }
}

static void run_sql(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    CHECK_EQ(sqlite3_open(path, &db), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    CHECK_EQ(chmod(path, 0600), 0);
}

/* A file that an older fa2 could not finish counts as empty, even while the disk is still full. */
static void check_half_made(const char *path)
{
    fa2i_cache *cache = NULL;
    disk.room = 0;
    CHECK_EQ(fa2i_cache_open(path, FA2I_CACHE_WRITE, NULL, NULL, &cache), FA2_E_DATABASE);
    CHECK_CONTAINS(fa2_last_message(), "free some space");
    check_refused(path, FA2I_CACHE_READ, FA2_E_NOT_FOUND, "is an empty file");
    check_makeable(path);
    CHECK_EQ(remove(path), 0);
}

static void test_half_made(fixture *f)
{
    fa2i_cache_close(fixture_open(f->path)); /* tables without a later column */
    run_sql(f->path, "DROP VIEW winners; DROP VIEW measurements; DROP INDEX problem_fields;"
                     "ALTER TABLE problem DROP COLUMN dropout");
    check_half_made(f->path);

    run_sql(f->path, "VACUUM"); /* an empty file */
    check_half_made(f->path);
}

/* ---- waiting ---- */

/* Return how long a reading, or a storing, waited. */
static long waited_to_read(fa2i_cache *cache, fa2_status status)
{
    int64_t version = 0;
    disk.slept_ms = 0;
    CHECK_EQ(fa2i_cache_data_version(cache, &version), status);
    return disk.slept_ms;
}

static long waited_to_write(fa2i_cache *cache, fa2_status status)
{
    const fa2i_kernel kernel = sample_kernel(1);
    disk.slept_ms = 0;
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), status);
    return disk.slept_ms;
}

static bool is_whole_wait(long ms)
{
    return ms > FA2I_CACHE_WAIT_MS - 200 && ms <= FA2I_CACHE_WAIT_MS;
}

static sqlite3 *lock_file(const char *path, const char *sql)
{
    sqlite3 *other = NULL;
    CHECK_EQ(sqlite3_open(path, &other), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(other, sql, NULL, NULL, NULL), SQLITE_OK);
    return other;
}

/* After a vain wait no call waits, for a minute or until the lock is gone. */
static void test_waits_once(fixture *f)
{
    fa2i_cache *cache = fixture_open(f->path);
    for (int round = 0; round < 2; round++) {
        sqlite3 *other = lock_file(f->path, "BEGIN EXCLUSIVE");
        CHECK(is_whole_wait(waited_to_read(cache, FA2_E_DATABASE)));
        CHECK_CONTAINS(fa2_last_message(), "another process has been writing");
        CHECK_EQ(waited_to_read(cache, FA2_E_DATABASE), 0);
        CHECK_EQ(waited_to_write(cache, FA2_E_DATABASE), 0);
        cache->locked_ns[FA2I_CACHE_READ] -= 61 * INT64_C(1000000000);
        CHECK(is_whole_wait(waited_to_read(cache, FA2_E_DATABASE)));
        sqlite3_close(other);
        CHECK_EQ(waited_to_read(cache, FA2_OK), 0);
        CHECK_EQ(waited_to_write(cache, FA2_OK), 0);
    }
    fa2i_cache_close(cache);
}

/* A lock on writing allows reading, so a successful reading does not mean that writing is possible. */
static void test_waits_to_write(fixture *f)
{
    fa2i_cache *cache = fixture_open(f->path);
    sqlite3 *other = lock_file(f->path, "BEGIN IMMEDIATE");
    CHECK(is_whole_wait(waited_to_write(cache, FA2_E_DATABASE)));
    CHECK_EQ(waited_to_read(cache, FA2_OK), 0);
    CHECK_EQ(waited_to_write(cache, FA2_E_DATABASE), 0);
    sqlite3_close(other);
    CHECK_EQ(waited_to_write(cache, FA2_OK), 0);
    other = lock_file(f->path, "BEGIN IMMEDIATE");
    CHECK(is_whole_wait(waited_to_write(cache, FA2_E_DATABASE)));
    sqlite3_close(other);
    fa2i_cache_close(cache);
}

/* All waits of an opening have one common limit. So have all waits of a call. */
static void test_waits_by_call(fixture *f)
{
    int wait_ms = 700;
    fa2i_cache *cache = fixture_open(f->path), *second = NULL;
    sqlite3 *other = lock_file(f->path, "BEGIN EXCLUSIVE");
    disk.slept_ms = 0;
    CHECK_EQ(fa2i_cache_open_within(f->path, FA2I_CACHE_WRITE, &wait_ms, NULL, NULL, &second), FA2_E_DATABASE);
    CHECK(disk.slept_ms > 500 && disk.slept_ms + wait_ms == 700 && wait_ms < 100);
    fa2i_cache_begin_call(cache);
    cache->wait_ms = 300; /* the rest of the wait is spent */
    CHECK(waited_to_read(cache, FA2_E_DATABASE) <= 300);
    sqlite3_close(other);
    CHECK_EQ(waited_to_read(cache, FA2_OK), 0);
    CHECK(cache->wait_ms < 300);
    fa2i_cache_begin_call(cache);
    CHECK_EQ(cache->wait_ms, FA2I_CACHE_WAIT_MS);
    fa2i_cache_close(cache);
}

int main(void)
{
    static void (*const tests[])(fixture *) = {test_nearly_full, test_each_call_fails, test_half_made,
                                               test_waits_once,  test_waits_to_write,  test_waits_by_call};
    disk_begin();
    fixture_each(tests, sizeof tests / sizeof tests[0]);
    return check_done();
}
