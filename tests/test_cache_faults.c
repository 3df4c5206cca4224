/*
 * Damages every table, column and index of the database. check finds it, and names the column and the remedy. The
 * runtime reads the right values or none. An export can be imported. gc repairs the file.
 */
#include <math.h>
#include "cache/internal.h"
#include "cache/content/notes.h"
#include "cache_fixture.h"
#include "damage.h"
#include "runtime/base/alloc.h"

enum { KERNELS = 3, WINNER = 2 };

/* Stores one device, problem and session, and three measured kernels, of which the second wins. */
static void make_database(const char *path)
{
    fa2i_cache *cache = fixture_open(path);
    const ids to = sample_ids(cache, 512);
    for (int number = 1; number <= KERNELS; number++)
        store_result(cache, &to, number, number == WINNER ? 50 : 100 + number, number == WINNER);
    CHECK_EQ(fa2i_cache_session_end(cache, to.session), FA2_OK);
    CHECK_EQ(fa2i_cache_set_limit(cache, FA2I_FILE_BYTES), FA2_OK);
    fa2i_stored_answer answer = {.kernel = sample_key(WINNER), .tried = 1, .decision.problem = sample_problem(640)};
    fa2i_problem_class(&answer.decision.problem, answer.class_key);
    CHECK_EQ(fa2i_cache_data_version(cache, &answer.version), FA2_OK);
    CHECK_EQ(fa2i_cache_put_notes(cache, &answer, 1, NULL, 0), FA2_OK);
    CHECK_EQ(fixture_number(cache, "SELECT count(*) FROM answer"), 1);
    fa2i_cache_close(cache);
}

/* Opens without waiting for the disk, because nothing must survive the test. */
static fa2i_cache *open_quick(const char *path, fa2i_cache_mode mode)
{
    fa2i_cache *cache = NULL;
    CHECK_EQ(fa2i_cache_open(path, mode, NULL, NULL, &cache), FA2_OK);
    if (cache == NULL) {
        fprintf(stderr, "%s\n", fa2_last_message());
        exit(1);
    }
    CHECK_EQ(fa2i_sql_script(cache, "PRAGMA synchronous = OFF"), FA2_OK);
    return cache;
}

/* Checks that choices are valid in spite of all damage: the winner's kernel, with possible times. */
static void check_choices(fa2i_cache *cache)
{
    fa2i_choice *choices = NULL;
    size_t count = 0;
    int64_t listed = 0, served = 0;
    const fa2_problem problem = sample_problem(512);
    const fa2i_key winner = sample_key(WINNER);
    const fa2_status st = fa2i_cache_choices(cache, 86, &problem, ABI, &choices, &count);
    CHECK(st == FA2_OK || st == FA2_E_DATABASE);
    if (st != FA2_OK)
        CHECK_CONTAINS(fa2_last_message(), "fa2-tune");
    for (size_t i = 0; i < count; i++) {
        fa2i_kernel kernel;
        const fa2i_choice *c = &choices[i];
        CHECK(isfinite(c->winner.median_us) && c->winner.median_us > 0);
        served += c->fault == NULL;
        CHECK(c->fault != NULL || memcmp(&c->winner.kernel, &winner, sizeof winner) == 0);
        CHECK(fa2i_problem_same_class(&c->problem, &problem));
        if (fa2i_cache_get_kernel(cache, &c->winner.kernel, ABI, true, &kernel) == FA2_OK) {
            const fa2i_kernel stored = sample_kernel(WINNER);
            CHECK_STR(kernel.variant.text, stored.variant.text);
            CHECK_EQ(kernel.image.bytes, stored.image.bytes);
            CHECK(memcmp(kernel.image.data, stored.image.data, kernel.image.bytes) == 0);
            fa2i_kernel_done(&kernel);
        }
    }
    fa2i_free(choices);
    /* every served kernel is listed, if there is a view to list it */
    if (fa2i_sql_number(cache, "SELECT count(*) FROM winners", NULL, 0, &listed) == FA2_OK)
        CHECK(served <= listed);
}

/* Checks that a tuner reads values as they were stored, or none. */
static void check_results(fa2i_cache *cache)
{
    const fa2i_key key = sample_key(WINNER);
    fa2i_winner winner = {.median_us = 1};
    fa2i_measurement m = {.n = 1, .median_us = 1};
    fa2i_verification v = {.max_error = 0};
    fa2_status st = fa2i_cache_get_winner(cache, 1, 1, &winner);
    CHECK(st == FA2_OK || st == FA2_E_NOT_FOUND);
    CHECK(winner.median_us > 0 && winner.default_us >= 0 && isfinite(winner.model_us));
    st = fa2i_cache_get_measurement(cache, 1, 1, &key, &m);
    CHECK(st == FA2_OK || st == FA2_E_NOT_FOUND);
    CHECK(m.n >= 0 && m.median_us > 0 && m.min_us >= 0 && isfinite(m.q3_us) && m.max_error >= 0);
    st = fa2i_cache_get_verification(cache, 1, &key, &v);
    CHECK(st == FA2_OK || st == FA2_E_NOT_FOUND);
    CHECK(v.max_error >= 0);
}

/* Checks that an export of the current rows can be imported, and that exporting the import loses nothing. */
static void check_round_trip(fa2i_cache *cache, const char *other_path, bool whole)
{
    fa2i_export_counts counts = {0}, again = {0};
    char *text = exported(cache, &counts);
    CHECK(!whole || counts.left_out == 0);
    fa2i_cache *other = open_quick(other_path, FA2I_CACHE_WRITE);
    const fa2_status st = import_text(other, text, strlen(text), NULL);
    if (st != FA2_OK)
        fprintf(stderr, "%s\n", fa2_last_message());
    CHECK_EQ(st, FA2_OK);
    free(exported(other, &again));
    CHECK_EQ(again.left_out, 0);
    fa2i_cache_close(other);
    free(text);
}

typedef struct place {
    const char *good, *path, *other; /* the undamaged file; a copy; the target of exports */
} place;

static void check_mended(const place *at)
{
    fa2i_cache_cleanup cleanup = {0};
    fa2i_cache_health health = {0};
    fa2i_cache *cache = open_quick(at->path, FA2I_CACHE_REPAIR);
    CHECK_EQ(fa2i_cache_gc(cache, -1, &cleanup), FA2_OK);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK_EQ(health.first_problem[0] != '\0', health.without_code > 0); /* a compiler repairs missing code */
    CHECK(health.without_code == 0 || strncmp(health.first_problem, "winners without code", 20) == 0);
    check_choices(cache);
    check_results(cache);
    check_round_trip(cache, at->other, true);
    fa2i_cache_close(cache);
}

/* said: check's finding, apart from the remedy. NULL: it finds nothing, because nothing is wrong. */
static void check_damage(const place *at, const char *sql, const char *said)
{
    fa2i_cache_health health = {0};
    const int failures = check_failures;
    copy_file(at->good, at->path);
    if (!damage(at->path, sql))
        return;
    fa2i_cache *cache = open_quick(at->path, FA2I_CACHE_READ);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    if (said == NULL) {
        CHECK_STR(health.first_problem, "");
    } else {
        CHECK_CONTAINS(health.first_problem, said);
        CHECK_CONTAINS(health.first_problem, "fa2-tune gc");
    }
    check_choices(cache);
    check_results(cache);
    check_round_trip(cache, at->other, said == NULL);
    fa2i_cache_close(cache);
    check_mended(at);
    if (check_failures > failures)
        fprintf(stderr, "... after: %s\n", sql);
}

/* ---- columns ---- */

/* Returns true for invalid values of a column that have no effect. All others must be found. */
static bool is_fine(const char *column, const char *value)
{
    static const char *const none[] = {"x'00'", "NULL", "printf('%20000s', 'x')"};
    /* import blanks details, and show cleans them; an answer whose texts do not fit its kernel is ignored */
    static const char *const remarks[] = {"detail", "kind", "card", "passed_over", "why"};
    bool remark = false;
    for (size_t i = 0; i < sizeof remarks / sizeof *remarks; i++)
        remark = remark || strcmp(column, remarks[i]) == 0;
    if (strcmp(column, "log") == 0) /* the compiler's output, for people */
        return true;
    if (strcmp(column, "max_error") == 0 || strcmp(column, "gflop") == 0)
        return strcmp(value, "NULL") == 0 || strcmp(value, "1 << 62") == 0;
    if (strcmp(column, "ended_at") == 0)
        return strcmp(value, "NULL") == 0;
    if (!remark && strcmp(column, "name") != 0)
        return false;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        if (strcmp(none[i], value) == 0)
            return false;
    }
    return remark || (strcmp(value, "''") != 0 && strncmp(value, "char", 4) != 0);
}

/* Most numbers may be 0. */
static bool may_be_zero(const char *table, const char *column)
{
    static const char *const not_zero[] = {"arch",     "sm_count", "batch", "heads_q",
                                           "heads_kv", "seq_q",    "seq_k", "head_dim"};
    for (size_t i = 0; i < sizeof not_zero / sizeof *not_zero; i++) {
        if (strcmp(not_zero[i], column) == 0)
            return false;
    }
    return strcmp(column, "median_us") != 0 && strcmp(column, "causal") != 0 && strcmp(table, "code") != 0;
}

/* Takes each of the twelve values of each column; under the sanitizers every fifth, so two or three of each column. */
static void damage_column(void *user, const char *table, const char *column, const char *value, bool number,
                          const char *sql)
{
    static int asked;
    if (CHECK_IS_SANITIZED && asked++ % 5 != 0)
        return;
    const bool zero = number && strcmp(value, "0") == 0 && may_be_zero(table, column);
    check_damage(user, sql, zero || is_fine(column, value) ? NULL : "; fa2-tune gc");
}

/* ---- rows ---- */

static void test_references(const place *at)
{
    static const char *const tables[] = {"device", "problem", "kernel", "session", "code"};
    static const char *const said[] = {"not there", "not there", "not there", "not there", "code is damaged"};
    char sql[120];
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        snprintf(sql, sizeof sql, "DELETE FROM %s", tables[i]);
        check_damage(at, sql, said[i]);
    }
    check_damage(at, "DELETE FROM image", "winners without code");
    check_damage(at, "DELETE FROM verification", NULL);
    check_damage(at, "DELETE FROM measurement", NULL);
    check_damage(at, "DELETE FROM winner", NULL);
    for (int other = -1; other <= 99; other += 100) {
        static const char *const links[][2] = {
            {"session", "device"},      {"verification", "device"}, {"verification", "kernel"},
            {"measurement", "device"},  {"measurement", "problem"}, {"measurement", "kernel"},
            {"measurement", "session"}, {"winner", "device"},       {"winner", "problem"},
            {"winner", "kernel"},       {"winner", "session"},      {"image", "code"}};
        for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
            snprintf(sql, sizeof sql, "UPDATE %s SET %s = %d", links[i][0], links[i][1], other);
            check_damage(at, sql, "; fa2-tune gc");
        }
    }
}

/* Rows that are valid but do not fit each other. */
static void test_relations(const place *at)
{
    static const char other_device[] =
        "INSERT INTO device SELECT 2, 'Other', 90, sm_count, smem_block_bytes, smem_sm_bytes, "
        "l2_bytes, clock_khz, bandwidth_bytes, real FROM device; ";
    char sql[600];
    check_damage(at, "UPDATE kernel SET target = 'sm_75'", "code is damaged");
    check_damage(at, "UPDATE device SET arch = 89", "an SM");
    check_damage(at, "UPDATE problem SET causal = 0", "not its own");
    check_damage(at, "UPDATE problem SET class = 'D=128 dtype=fp16 causal=1'", "not its own");
    check_damage(at, "UPDATE winner SET measured = 0, model_us = 0", "the time that ranks it");
    check_damage(at, "UPDATE measurement SET n = 5, median_us = 0", "its samples took 0 us");
    check_damage(at, "UPDATE measurement SET n = 5, median_us = -1", "'median_us' must be a number from 0 to 1e+15");
    check_damage(at, "UPDATE measurement SET n = 5, median_us = 1e30", "'median_us' must be a number from 0 to 1e+15");
    check_damage(at, "UPDATE measurement SET n = 5, median_us = 1e999", "'median_us' must be a number from 0 to 1e+15");
    snprintf(sql, sizeof sql, "%sUPDATE session SET device = 2", other_device);
    check_damage(at, sql, "not its own");
    snprintf(sql, sizeof sql, "%sUPDATE winner SET device = 2", other_device);
    check_damage(at, sql, "not its own");
    check_damage(at, "UPDATE problem SET seq_q = -3", "(problem: seq_q is -3; it must be at least");
    check_damage(at, "UPDATE code SET hash = zeroblob(32) WHERE id = 1", "code is damaged");
}

/* ---- missing tables, views and indices ---- */

static void test_schema(const place *at)
{
    static const char *const objects[][2] = {{"VIEW", "winners"},
                                             {"VIEW", "measurements"},
                                             {"INDEX", "problem_fields"},
                                             {"INDEX", "winner_kernel"},
                                             {"INDEX", "measurement_kernel"},
                                             {"INDEX", "image_code"},
                                             {"INDEX", "measurement_problem"},
                                             {"INDEX", "verification_kernel"},
                                             {"INDEX", "session_device"},
                                             {"TRIGGER", "image_deleted"}};
    static const char *const tables[] = {"device",  "problem",      "kernel",      "code",  "image",
                                         "session", "verification", "measurement", "winner"};
    char sql[120], said[120];
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        snprintf(sql, sizeof sql, "DROP %s %s", objects[i][0], objects[i][1]);
        snprintf(said, sizeof said, "'%s' is not there", objects[i][1]);
        check_damage(at, sql, said);
    }
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        snprintf(sql, sizeof sql, "DROP TABLE %s", tables[i]);
        snprintf(said, sizeof said, "its table '%s' is not there", tables[i]);
        copy_file(at->good, at->path);
        CHECK(damage(at->path, sql));
        check_refused(at->path, FA2I_CACHE_READ, FA2_E_DATABASE, said);
        CHECK_CONTAINS(fa2_last_message(), "fa2-tune gc --db");
        check_refused(at->path, FA2I_CACHE_WRITE, FA2_E_DATABASE, said);
        check_mended(at);
    }
}

/* A table, view or index differs from a new file's. The rows are still counted. */
static void test_changed_schema(const place *at)
{
    static const char *const objects[][3] = {{"view", "winners", "AS SELECT name AS device, arch FROM device"},
                                             {"view", "measurements", "AS SELECT 1 AS device"},
                                             {"index", "problem_fields", "ON problem (op)"},
                                             {"index", "winner_kernel", "ON winner (median_us)"},
                                             {"trigger", "image_deleted", "AFTER DELETE ON image BEGIN SELECT 1; END"}};
    char sql[160], said[120];
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        fa2i_cache_health health = {0};
        const char *const *o = objects[i];
        snprintf(sql, sizeof sql, "DROP %s %s; CREATE %s %s %s", o[0], o[1], o[0], o[1], o[2]);
        snprintf(said, sizeof said, "its %s '%s' is not the one that this fa2 makes", o[0], o[1]);
        check_damage(at, sql, said);
        copy_file(at->good, at->path);
        CHECK(damage(at->path, sql));
        fa2i_cache *cache = NULL;
        CHECK_EQ(fa2i_cache_open(at->path, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
        CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
        CHECK(!health.schema && health.intact && health.kernels > 0 && health.winners > 0);
        fa2i_cache_close(cache);
    }
}

/* A missing column cannot be restored: it is named, with the remedy. */
static void test_lacking_column(const place *at)
{
    fa2i_cache *cache = NULL;
    fa2i_cache_health health = {0};
    copy_file(at->good, at->path);
    CHECK(damage(at->path, "DROP VIEW winners; ALTER TABLE winner RENAME COLUMN median_us TO m"));
    CHECK_EQ(fa2i_cache_open(at->path, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK(!fa2i_cache_is_healthy(&health));
    CHECK_CONTAINS(health.first_problem, "its table 'winner' lacks the column 'median_us'");
    CHECK_CONTAINS(health.first_problem, "move it away");
    check_choices(cache); /* the error names `check` */
    fa2i_cache_close(cache);
}

int main(void)
{
    fixture f;
    char good[120], other[120];
    fixture_begin(&f);
    snprintf(good, sizeof good, "%s/good.db", f.folder);
    snprintf(other, sizeof other, "%s/other.db", f.folder);
    make_database(good);
    place at = {.good = good, .path = f.path, .other = other};
    check_damage(&at, "SELECT 1", NULL);
    test_references(&at);
    test_relations(&at);
    test_schema(&at);
    test_changed_schema(&at);
    test_lacking_column(&at);
    CHECK(damage_each_column(good, damage_column, &at) > 50);
    fixture_end(&f);
    return check_done();
}
