/*
 * Files with foreign objects: views, triggers, indexes, generated columns and checks. SQLite would execute them within
 * fa2's statements, and some never end.
 */
#include "cache/internal.h"
#include "cache_fixture.h"
#include "runtime/base/clock.h"

#define ENDLESS "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "

/* Changes the file without fa2. */
static void change(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    char *message = NULL;
    CHECK_EQ(sqlite3_open(path, &db), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(db, sql, NULL, NULL, &message), SQLITE_OK);
    if (message != NULL)
        fprintf(stderr, "%s: %s\n", sql, message);
    sqlite3_free(message);
    sqlite3_close(db);
}

static void make_database(const char *path)
{
    fa2i_cache *cache = fixture_open(path);
    fixture_fill(cache);
    fa2i_cache_close(cache);
}

static fa2i_cache *open_to_read(const char *path)
{
    fa2i_cache *cache = NULL;
    CHECK_EQ(fa2i_cache_open(path, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
    if (cache == NULL) {
        fprintf(stderr, "%s\n", fa2_last_message());
        exit(1);
    }
    return cache;
}

static void check_says(const char *path, const char *said)
{
    fa2i_cache_health health = {0};
    fa2i_cache *cache = open_to_read(path);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    if (said == NULL)
        CHECK_STR(health.first_problem, "");
    else
        CHECK_CONTAINS(health.first_problem, said);
    CHECK_EQ(fa2i_cache_is_healthy(&health), said == NULL);
    fa2i_cache_close(cache);
}

static void repair(const char *path)
{
    fa2i_cache *cache = NULL;
    CHECK_EQ(fa2i_cache_open(path, FA2I_CACHE_REPAIR, NULL, NULL, &cache), FA2_OK);
    fa2i_cache_close(cache);
}

static int count_row(void *user, int columns, const char *const *names, const char *const *values)
{
    (void)columns;
    (void)names;
    (void)values;
    ++*(int *)user;
    return 0;
}

/* fa2 never reads the file's views, so its lists are right. */
static void test_endless_views(fixture *f)
{
    int rows = 0;
    size_t damaged = 0;
    char *text = NULL;
    size_t bytes = 0;
    const fa2_problem problem = sample_problem(512);
    const fa2i_filter all = {.device = NULL};
    make_database(f->path);
    change(f->path, "DROP VIEW winners; DROP VIEW measurements; "
                    "CREATE VIEW winners AS " ENDLESS "SELECT hex(zeroblob(1000)) AS device, x AS arch FROM n; "
                    "CREATE VIEW measurements AS " ENDLESS "SELECT x AS device FROM n");
    fa2i_cache *cache = open_to_read(f->path);
    const double start = fa2i_clock_thread_s();
    CHECK_EQ(fa2i_cache_list_winners(cache, &all, count_row, &rows), FA2_OK);
    CHECK_EQ(rows, 2);
    CHECK_EQ(fa2i_cache_damaged_winners(cache, &damaged), FA2_OK);
    CHECK_EQ(damaged, 0);
    CHECK_EQ(fa2i_cache_list_measurements(cache, &problem, &all, count_row, &rows), FA2_OK);
    CHECK_EQ(rows, 4);
    FILE *out = open_memstream(&text, &bytes);
    CHECK_EQ(fa2i_cache_print_winners_json(&cache, 1, &all, out), FA2_OK);
    CHECK_EQ(fa2i_cache_print_measurements_json(cache, &problem, 1, &all, out), FA2_OK);
    fclose(out);
    CHECK_CONTAINS(text, "\"device\":\"Sample RTX\"");
    CHECK(bytes < 20000);
    free(text);
    CHECK(fa2i_clock_thread_s() - start < 5);
    fa2i_cache_close(cache);
    check_says(f->path, "its view 'winners' is not the one that this fa2 makes");
    fa2i_cache_close(fixture_open(f->path)); /* creates them again */
    check_says(f->path, NULL);
}

/* Objects that are executed by a write: opening for writing refuses them, check names them, gc drops them. */
static void test_what_runs_at_writes(fixture *f)
{
    static const struct {
        const char *sql, *said;
    } strangers[] = {
        {"CREATE TRIGGER more AFTER INSERT ON kernel BEGIN DELETE FROM winner; END", "its trigger 'more' is not one"},
        {"CREATE TRIGGER \"a\"\"b\" BEFORE UPDATE ON winner BEGIN SELECT 1; END", "its trigger 'a\"b' is not one"},
        {"DROP TRIGGER image_deleted; CREATE TRIGGER image_deleted AFTER DELETE ON image BEGIN SELECT 1; END",
         "its trigger 'image_deleted' is not"},
        {"CREATE INDEX slow ON kernel (hex(key))", "its index 'slow' is not one"},
        {"CREATE INDEX part ON kernel (nvrtc) WHERE nvrtc > 7", "its index 'part' is not one"},
        {"DROP INDEX winner_kernel; CREATE INDEX winner_kernel ON winner (kernel + 1)", "its index 'winner_kernel' is"},
    };
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++) {
        make_database(f->path);
        change(f->path, strangers[i].sql);
        check_refused(f->path, FA2I_CACHE_WRITE, FA2_E_DATABASE, strangers[i].said);
        CHECK_CONTAINS(fa2_last_message(), "would run whenever something is stored; drop it with: fa2-tune gc --db '");
        check_says(f->path, strangers[i].said);
        repair(f->path);
        check_says(f->path, NULL);
        fa2i_cache_close(fixture_open(f->path));
        CHECK_EQ(remove(f->path), 0);
    }
}

/* An object whose text has another type cannot be dropped by its type. SQLite itself may notice it. */
static void test_disguised(fixture *f)
{
    make_database(f->path);
    change(f->path, "CREATE TRIGGER more AFTER INSERT ON kernel BEGIN DELETE FROM winner; END;"
                    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET type = 'view' WHERE name = 'more'");
    check_refused(f->path, FA2I_CACHE_WRITE, FA2_E_DATABASE, "more");
    check_refused(f->path, FA2I_CACHE_READ, FA2_E_DATABASE, "more");
}

/* Generated columns are executed by a read, so every opening refuses them. */
static void test_generated(fixture *f)
{
    make_database(f->path);
    change(f->path, "ALTER TABLE kernel ADD COLUMN made TEXT AS (hex(zeroblob(10000)))");
    for (int mode = FA2I_CACHE_READ; mode <= FA2I_CACHE_WRITE; mode++)
        check_refused(f->path, (fa2i_cache_mode)mode, FA2_E_DATABASE,
                      "its table 'kernel' has the generated column 'made'");
}

/* Other objects are never executed. check names them; gc drops views, but no tables. */
static void test_named(fixture *f)
{
    make_database(f->path);
    change(f->path, "CREATE VIEW mine AS SELECT 1; CREATE INDEX plain ON kernel (nvrtc)");
    fa2i_cache_close(fixture_open(f->path));
    check_says(f->path, "is not one of fa2's; fa2-tune gc drops it");
    repair(f->path);
    check_says(f->path, NULL);
    change(f->path, "CREATE TABLE notes (text); ANALYZE");
    fa2i_cache_close(fixture_open(f->path));
    check_says(f->path, "its table 'notes' is not one of fa2's; drop it if nobody needs it");
    repair(f->path);
    check_says(f->path, "its table 'notes'");
    change(f->path, "DROP TABLE notes");
    check_says(f->path, NULL);

    /* Comments and blanks may differ, but not checks. */
    change(f->path, "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'CREATE TABLE device (', "
                    "'CREATE TABLE device (  -- of today' || char(10)) WHERE name = 'device'");
    check_says(f->path, NULL);
    change(f->path, "ALTER TABLE device ADD COLUMN more INTEGER CHECK (length(hex(zeroblob(1000))) > more)");
    check_says(f->path, "its table 'device' is not the one that this fa2 makes; fa2-tune gc makes the file anew if");
}

/* An endless trigger that is created while the database is open: the call ends with an error. */
static void test_endless_trigger(fixture *f)
{
    const fa2i_kernel kernel = sample_kernel(7);
    make_database(f->path);
    fa2i_cache *cache = fixture_open(f->path);
    change(f->path, "CREATE TRIGGER more AFTER INSERT ON kernel BEGIN "
                    "INSERT INTO code (hash, data) SELECT zeroblob(32), x FROM (" ENDLESS "SELECT x FROM n) "
                    "WHERE x < 0; END");
    fa2i_cache_allow_seconds(cache, 0.5);
    const double start = fa2i_clock_thread_s();
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_E_DATABASE);
    CHECK_CONTAINS(fa2_last_message(), "interrupted after all the time that a call may take");
    const double took = fa2i_clock_thread_s() - start;
    CHECK(took > 0.4 && took < 3);
    fa2i_kernel found = {0};
    CHECK_EQ(fa2i_cache_get_kernel(cache, &kernel.key, ABI, true, &found), FA2_E_NOT_FOUND);
    fa2i_cache_close(cache);
}

int main(void)
{
    static void (*const tests[])(fixture *) = {
        test_endless_views, test_what_runs_at_writes, test_disguised, test_generated, test_named, test_endless_trigger};
    fixture_each(tests, sizeof tests / sizeof tests[0]);
    return check_done();
}
