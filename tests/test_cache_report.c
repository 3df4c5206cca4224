/* The database's reports: list, JSON, check, clean-up. */
#include <math.h>
#include "put_measurement.h"
#include "cache/internal.h"
#include "cache_fixture.h"
#include "damage.h"
#include "cache/database/trial.h"
#include "runtime/base/alloc.h"
#include "runtime/base/clock.h"
#include "runtime/ops/op.h"

/* ---- rows ---- */

/* Collects each listed row as "name=value;" texts in one string. */
typedef struct rows {
    char text[8][4096];
    int count, stop_after;
} rows;

static int keep_row(void *user, int columns, const char *const *names, const char *const *values)
{
    rows *r = user;
    char *text = r->text[r->count++];
    text[0] = '\0';
    strcat(text, ";");
    for (int i = 0; i < columns; i++) {
        strcat(text, names[i]);
        strcat(text, "=");
        strcat(text, values[i] != NULL ? values[i] : "NULL");
        strcat(text, ";");
    }
    return r->count == r->stop_after;
}

/* Stores a kernel with a failed measurement. */
static void store_failure(fa2i_cache *cache, const ids *to, int number, fa2i_outcome outcome, const char *detail,
                          const char *log)
{
    fa2i_kernel kernel = sample_kernel(number);
    char log_copy[100];
    snprintf(log_copy, sizeof log_copy, "%s", log);
    kernel.log = log_copy;
    kernel.image = (fa2i_blob){0};
    kernel.outcome = outcome;
    fa2i_measurement measurement = {.outcome = outcome, .settled = true};
    snprintf(measurement.detail, sizeof measurement.detail, "%s", detail);
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
    CHECK_EQ(put_measurement(cache, to->session, to->device, to->problem, &kernel.key, &measurement), FA2_OK);
}

static void fill(fa2i_cache *cache, const ids *to)
{
    store_result(cache, to, 1, 100, false);
    store_result(cache, to, 2, 50, true);
    store_result(cache, to, 3, 70, false);
    store_failure(cache, to, 4, FA2I_OUTCOME_COMPILE_ERROR, "", "fwd.cu(7): error\nmore");
    store_failure(cache, to, 5, FA2I_OUTCOME_HANG, "10 s without an end", "");
    /* measured as fast, then found wrong on this device */
    const fa2i_key wrong = sample_key(3);
    const fa2i_verification verdict = {FA2I_OUTCOME_WRONG, (double)INFINITY, "S=129: NaN"};
    CHECK_EQ(fa2i_cache_put_verification(cache, to->device, &wrong, &verdict), FA2_OK);
}

static void test_winners(fa2i_cache *cache)
{
    static rows r;
    char part[64];
    const fa2_problem problem = sample_problem(512);
    r = (rows){.count = 0};
    CHECK_EQ(fa2i_cache_list_winners(cache, NULL, keep_row, &r), FA2_OK);
    CHECK_EQ(r.count, 2);
    static const char identity[] =
        ";device=Sample RTX;arch=86;op=forward;dtype=fp16;batch=2;heads_q=8;heads_kv=4;seq_q=512;"
        "seq_k=512;head_dim=64;causal=1;";
    const char *const parts[] = {identity,
                                 ";median_us=50.0;",
                                 ";speedup_vs_default=2.0;",
                                 ";source=measured;",
                                 ";variant=fwd_sm80 d=64 dtype=fp16 causal=1 br=64 bc=16;",
                                 ";registers=168;",
                                 ";smem_bytes=49152;",
                                 ";target=sm_86;",
                                 ";origin=tune;",
                                 ";has_image=1;",
                                 ";tuned_at=2"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        CHECK_CONTAINS(r.text[0], parts[i]);
    snprintf(part, sizeof part, ";tflops=%.3f;", fa2i_problem_flop(&problem) / 50e-6 / 1e12);
    CHECK_CONTAINS(r.text[0], part);
    CHECK_CONTAINS(r.text[1], ";seq_q=1024;");
    CHECK_CONTAINS(r.text[1], ";median_us=NULL;tflops=NULL;speedup_vs_default=NULL;source=modelled;");
    CHECK_CONTAINS(r.text[1], ";model_us=12.5;");

    r = (rows){.stop_after = 1};
    CHECK_EQ(fa2i_cache_list_winners(cache, NULL, keep_row, &r), FA2_OK);
    CHECK_EQ(r.count, 1);
}

static void test_measurements(fa2i_cache *cache)
{
    static rows r;
    fa2_problem problem = sample_problem(512);
    r = (rows){.count = 0};
    CHECK_EQ(fa2i_cache_list_measurements(cache, &problem, NULL, keep_row, &r), FA2_OK);
    CHECK_EQ(r.count, 5);
    /* fastest first, then the failures */
    CHECK_CONTAINS(r.text[0], ";outcome=ok;winner=1;source=measured;n=20;min_us=48.0;q1_us=49.0;median_us=50.0;"
                              "q3_us=51.0;");
    CHECK_CONTAINS(r.text[0], ";max_error=0.5;verification=ok;settled=1;");
    CHECK_CONTAINS(r.text[1], ";outcome=ok;winner=0;");
    CHECK_CONTAINS(r.text[1], ";median_us=100.0;");
    CHECK_CONTAINS(r.text[2], ";outcome=wrong;");
    CHECK_CONTAINS(r.text[2], ";max_error=NULL;verification=wrong;");
    CHECK_CONTAINS(r.text[2], ";detail=S=129: NaN;");
    CHECK_CONTAINS(r.text[3], ";outcome=compile_error;winner=0;source=NULL;n=0;min_us=NULL;");
    CHECK_CONTAINS(r.text[3], ";detail=fwd.cu(7): error;");
    CHECK_CONTAINS(r.text[4], ";outcome=hang;");
    CHECK_CONTAINS(r.text[4], ";detail=10 s without an end;");

    r = (rows){.count = 0};
    problem.batch = 3;
    CHECK_EQ(fa2i_cache_list_measurements(cache, &problem, NULL, keep_row, &r), FA2_OK);
    CHECK_EQ(r.count, 0);
    problem.batch = 0;
    CHECK_EQ(fa2i_cache_list_measurements(cache, &problem, NULL, keep_row, &r), FA2_E_INVALID);
}

/* ---- JSON ---- */

typedef fa2_status (*print_fn)(fa2i_cache *cache, FILE *out);

static fa2_status print_winners(fa2i_cache *cache, FILE *out)
{
    return fa2i_cache_print_winners_json(&cache, 1, NULL, out);
}

static fa2_status print_measurements(fa2i_cache *cache, FILE *out)
{
    const fa2_problem problem = sample_problem(512);
    return fa2i_cache_print_measurements_json(cache, &problem, 1, NULL, out);
}

/* Prints several problems as one array. */
static fa2_status print_both(fa2i_cache *cache, FILE *out)
{
    const fa2_problem problems[] = {sample_problem(8), sample_problem(512), sample_problem(1024)};
    return fa2i_cache_print_measurements_json(cache, problems, 3, NULL, out);
}

static fa2_status print_nothing(fa2i_cache *cache, FILE *out)
{
    const fa2_problem problem = sample_problem(8);
    return fa2i_cache_print_measurements_json(cache, &problem, 1, NULL, out);
}

/* Returns the printer's output, which must be valid JSON with one object per line. The caller frees it. */
static char *printed(fa2i_cache *cache, print_fn print, int expected_rows)
{
    char *text = NULL;
    size_t bytes = 0;
    int64_t count = -1;
    FILE *out = open_memstream(&text, &bytes);
    CHECK(out != NULL);
    CHECK_EQ(print(cache, out), FA2_OK);
    fclose(out);
    const fa2i_sql_value values[] = {fa2i_sql_text(text)};
    CHECK_EQ(fa2i_sql_number(cache, "SELECT json_array_length(?)", FA2I_SQL_VALUES(values), &count), FA2_OK);
    CHECK_EQ(count, expected_rows);
    int lines = 0;
    for (const char *c = text; *c != '\0'; c++)
        lines += *c == '\n';
    CHECK_EQ(lines, expected_rows + 2);
    return text;
}

static void test_json(fa2i_cache *cache)
{
    char *text = printed(cache, print_winners, 2);
    CHECK_CONTAINS(text, "\n{\"device\":\"Sample RTX\",\"arch\":86,\"op\":\"forward\",");
    CHECK_CONTAINS(text, "\"median_us\":50.0,");
    CHECK_CONTAINS(text, "\"median_us\":null,");
    free(text);
    text = printed(cache, print_measurements, 5);
    CHECK_CONTAINS(text, "\"outcome\":\"compile_error\"");
    free(text);
    text = printed(cache, print_nothing, 0);
    CHECK_STR(text, "[\n]\n");
    free(text);
    free(printed(cache, print_both, 6));

    FILE *full = open_full_disk("writing JSON to a full disk");
    if (full != NULL) {
        CHECK_EQ(fa2i_cache_print_winners_json(&cache, 1, NULL, full), FA2_E_IO);
        fclose(full);
    }
}

/* The time of a default that was not timed is null, not 0. */
static void test_default_unknown(fa2i_cache *cache)
{
    CHECK_EQ(fa2i_sql_script(cache, "UPDATE winner SET default_us = 0"), FA2_OK);
    char *text = printed(cache, print_winners, 2);
    CHECK_CONTAINS(text, "\"median_us\":50.0,");
    CHECK_CONTAINS(text, "\"speedup_vs_default\":null,");
    CHECK_CONTAINS(text, "\"default_us\":null,");
    CHECK(strstr(text, "\"speedup_vs_default\":0") == NULL);
    free(text);
}

/* Values that JSON cannot hold are null. */
static void test_json_of_damage(fa2i_cache *cache)
{
    CHECK_EQ(fa2i_sql_script(cache, "UPDATE winner SET model_us = -9e999, default_us = 9e999"), FA2_OK);
    char *text = printed(cache, print_winners, 2);
    CHECK_CONTAINS(text, "\"model_us\":null,");
    CHECK(strstr(text, "Inf") == NULL && strstr(text, "inf") == NULL);
    free(text);
    CHECK_EQ(fa2i_sql_script(cache, "UPDATE winner SET model_us = 12.5, default_us = 100"), FA2_OK);
}

static int refuse_json(void *user, int action, const char *a, const char *function, const char *b, const char *c)
{
    (void)user, (void)a, (void)b, (void)c;
    return action == SQLITE_FUNCTION && strncmp(function, "json", 4) == 0 ? SQLITE_DENY : SQLITE_OK;
}

/* If SQLite has no JSON functions, the message says so. */
static void test_without_json(fa2i_cache *cache)
{
    FILE *out = tmpfile();
    CHECK(out != NULL);
    sqlite3_set_authorizer(cache->db, refuse_json, NULL);
    CHECK_EQ(fa2i_cache_print_winners_json(&cache, 1, NULL, out), FA2_E_DATABASE);
    CHECK_CONTAINS(fa2_last_message(), "without its JSON functions");
    CHECK_EQ(fa2i_cache_export(cache, out, NULL), FA2_E_DATABASE);
    CHECK_EQ(fa2i_cache_import(cache, out, "export", NULL, NULL, NULL), FA2_E_DATABASE);
    sqlite3_set_authorizer(cache->db, NULL, NULL);
    fclose(out);
}

/* ---- check and clean-up ---- */

static void test_check(fa2i_cache *cache)
{
    fa2i_cache_health health = {0};
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK(health.intact);
    CHECK_EQ(health.kernels, 6);
    CHECK_EQ(health.images, 4);
    CHECK_EQ(health.measurements, 6);
    CHECK_EQ(health.winners, 2);
    CHECK_EQ(health.damaged_images, 0);
    CHECK_EQ(health.dangling, 0);
    CHECK_STR(health.first_problem, "");

    CHECK_EQ(fa2i_sql_script(cache, "UPDATE kernel SET recipe = replace(recipe, 'rows=64', 'rows=65') WHERE id = "
                                    "(SELECT kernel FROM winner ORDER BY problem LIMIT 1)"),
             FA2_OK);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK_EQ(health.damaged_images, 1); /* because the code's hash covers its launch parameters */
    CHECK_EQ(fa2i_sql_script(cache, "UPDATE kernel SET recipe = replace(recipe, 'rows=65', 'rows=64') WHERE id = "
                                    "(SELECT kernel FROM winner ORDER BY problem LIMIT 1)"),
             FA2_OK);
    CHECK_EQ(fa2i_sql_script(cache, "UPDATE code SET data = x'00' WHERE id = (SELECT code FROM image "
                                    "WHERE kernel = (SELECT kernel FROM winner ORDER BY problem "
                                    "LIMIT 1))"),
             FA2_OK);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK(health.intact);
    CHECK_EQ(health.damaged_images, 1);
    CHECK_CONTAINS(health.first_problem, "damaged");
}

/* Of four images, two belong to losers, and one winner's is damaged. That winner stays, and will be compiled again. */
static void test_gc(fa2i_cache *cache)
{
    fa2i_cache_cleanup cleanup = {0};
    fa2i_cache_health health = {0};
    CHECK_EQ(fa2i_cache_gc(cache, 0, &cleanup), FA2_OK);
    CHECK_EQ(cleanup.images, 3);
    CHECK_EQ(cleanup.winners, 0);
    CHECK_EQ(cleanup.rows, 0);
    CHECK(cleanup.bytes_freed >= 10000);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK(health.intact);
    CHECK_EQ(health.images, 1);
    CHECK_EQ(health.measurements, 6);
    CHECK_EQ(health.winners, 2);
    CHECK_EQ(health.without_code, 1);
    CHECK_CONTAINS(health.first_problem, "winners without code: 1; fa2-tune gc compiles it");
    CHECK_EQ(fa2i_cache_gc(cache, 0, &cleanup), FA2_OK);
    CHECK_EQ(cleanup.images + cleanup.winners + cleanup.rows, 0);
    CHECK_EQ(cleanup.bytes_freed, 0);
    /* A winner that is known not to compile will never be used. */
    CHECK_EQ(fa2i_sql_script(cache, "UPDATE kernel SET outcome = 'compile_error' WHERE id IN "
                                    "(SELECT kernel FROM winner) AND id NOT IN "
                                    "(SELECT kernel FROM image)"),
             FA2_OK);
    CHECK_EQ(fa2i_cache_gc(cache, 0, &cleanup), FA2_OK);
    CHECK_EQ(cleanup.winners, 1);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK_STR(health.first_problem, "");
}

/* A database with one winner is damaged by a statement. Checks check's finding and gc's result, which is valid except
 * for lost code. */
typedef enum left { GONE, WITHOUT_CODE, MENDED } left;

static void check_mended(const char *damage, fa2i_cache_health expected, const char *sentence, left winner)
{
    fixture f;
    fa2i_cache_health health = {0};
    fa2i_cache_cleanup cleanup = {0};
    fixture_begin(&f);
    fa2i_cache *cache = fixture_open(f.path);
    const ids to = sample_ids(cache, 512);
    store_result(cache, &to, 1, 100, false);
    store_result(cache, &to, 2, 50, true);
    CHECK_EQ(fa2i_sql_script(cache, "PRAGMA foreign_keys = OFF"), FA2_OK);
    CHECK_EQ(fa2i_sql_script(cache, damage), FA2_OK);
    CHECK_EQ(fa2i_sql_script(cache, "PRAGMA foreign_keys = ON"), FA2_OK);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK_EQ(health.damaged_images, expected.damaged_images);
    CHECK_EQ(health.misfits, expected.misfits);
    CHECK_EQ(health.dangling, expected.dangling);
    CHECK_EQ(health.without_code, expected.without_code);
    CHECK_CONTAINS(health.first_problem, sentence);
    CHECK_CONTAINS(health.first_problem, "fa2-tune gc");
    CHECK_EQ(fa2i_cache_gc(cache, 0, &cleanup), FA2_OK);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK(health.intact);
    CHECK_EQ(health.damaged_images + health.misfits + health.dangling, 0);
    CHECK_EQ(health.winners == 1, winner != GONE);
    CHECK_EQ(health.without_code == 1, winner == WITHOUT_CODE);
    CHECK_EQ(health.first_problem[0] != '\0', winner == WITHOUT_CODE);
    CHECK_EQ(cleanup.mended > 0, winner == MENDED);
    fa2i_cache_close(cache);
    fixture_end(&f);
}

/* A database with one winner is damaged by a statement, and gc must lose no row. */
static void check_kept(const char *damage)
{
    fixture f;
    fa2i_cache_health health = {0};
    fa2i_cache_cleanup cleanup = {0};
    fixture_begin(&f);
    fa2i_cache *cache = fixture_open(f.path);
    const ids to = sample_ids(cache, 512);
    store_result(cache, &to, 1, 100, false);
    store_result(cache, &to, 2, 50, true);
    CHECK_EQ(fa2i_sql_script(cache, "PRAGMA foreign_keys = OFF"), FA2_OK);
    CHECK_EQ(fa2i_sql_script(cache, damage), FA2_OK);
    CHECK_EQ(fa2i_sql_script(cache, "PRAGMA foreign_keys = ON"), FA2_OK);
    CHECK_EQ(fa2i_cache_gc(cache, -1, &cleanup), FA2_OK);
    CHECK(cleanup.mended > 0);
    CHECK_EQ(cleanup.winners + cleanup.rows + cleanup.images, 0);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK_STR(health.first_problem, "");
    CHECK_EQ(health.kernels, 2);
    CHECK_EQ(health.images, 2);
    CHECK_EQ(health.measurements, 2);
    CHECK_EQ(health.winners, 1);
    CHECK_EQ(fixture_number(cache, "SELECT count(*) FROM verification"), 2);
    fa2i_cache_close(cache);
    fixture_end(&f);
}

static void test_mending(void)
{
    check_mended("DELETE FROM image", (fa2i_cache_health){.without_code = 1}, "winners without code: 1; ",
                 WITHOUT_CODE);
    check_mended("UPDATE code SET data = x'00'", (fa2i_cache_health){.damaged_images = 2, .without_code = 1},
                 "code is damaged: 2", WITHOUT_CODE);
    check_mended("DELETE FROM code", (fa2i_cache_health){.damaged_images = 2, .dangling = 2, .without_code = 1},
                 "code is damaged: 2", WITHOUT_CODE);
    check_mended("DELETE FROM problem", (fa2i_cache_health){.dangling = 3}, "not there: 3", GONE);
    check_mended("DELETE FROM session", (fa2i_cache_health){.dangling = 3}, "not there: 3", GONE);
    check_mended("DELETE FROM device", (fa2i_cache_health){.dangling = 6}, "not there: 6", GONE);
    check_mended("DELETE FROM kernel", (fa2i_cache_health){.dangling = 7, .without_code = 0}, "not there: 7", GONE);
    /* a winner with another class: the problem's, the kernel's (which a hash protects) */
    check_mended("UPDATE problem SET causal = 0, class = 'D=64 dtype=fp16 causal=0'", (fa2i_cache_health){.misfits = 3},
                 "not its own", GONE);
    check_mended("UPDATE problem SET causal = 0", (fa2i_cache_health){.misfits = 4}, "not its own", GONE);
    check_mended("UPDATE problem SET dtype = 'fp17'", (fa2i_cache_health){.misfits = 4},
                 "(problem: dtype is none of its values)", GONE);
    check_mended("UPDATE problem SET heads_q = 7", (fa2i_cache_health){.misfits = 4},
                 "(problem: heads_q is 7; it must be a multiple of heads_kv (4))", GONE);
    check_mended("UPDATE kernel SET class = 'D=64 dtype=fp16 causal=0'",
                 (fa2i_cache_health){.misfits = 3, .damaged_images = 2, .without_code = 1}, "code is damaged: 2",
                 MENDED);
}

/* A wrong value in a row that decides nothing does not delete the rows that refer to it. */
static void test_told_values(void)
{
    static const char *const damages[] = {"UPDATE device SET clock_khz = -1",
                                          "UPDATE device SET bandwidth_bytes = 1 << 62",
                                          "UPDATE device SET arch = 87",
                                          "UPDATE device SET arch = 5000",
                                          "UPDATE device SET name = char(27)",
                                          "UPDATE device SET sm_count = 0",
                                          "UPDATE session SET generator = ''",
                                          "UPDATE session SET started_at = 'then'",
                                          "UPDATE session SET device = 7",
                                          "UPDATE kernel SET outcome = 'oj'",
                                          "UPDATE kernel SET registers = -1",
                                          "UPDATE problem SET gflop = -1",
                                          "UPDATE problem SET class = 'D=64 dtype=fp16 causal=0'",
                                          "UPDATE kernel SET variant = replace(variant, 'causal=1', 'causal=0')",
                                          "UPDATE kernel SET target = 'sm_84' WHERE id = 2",
                                          "UPDATE image SET used = -1",
                                          "UPDATE problem SET id = 33",
                                          "UPDATE device SET id = 3",
                                          "UPDATE session SET id = 65",
                                          "UPDATE kernel SET id = 18 WHERE id = 2",
                                          "UPDATE code SET hash = zeroblob(32) WHERE id = 2",
                                          "UPDATE winner SET tuned_at = ''",
                                          "UPDATE measurement SET q3_us = -1",
                                          "UPDATE verification SET outcome = 'ol'"};
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const int failures = check_failures;
        check_kept(damages[i]);
        if (check_failures > failures)
            fprintf(stderr, "... after: %s\n", damages[i]);
    }
}

/* What gc makes of a row of `problem` whose fields are in the index, too: it is as before. */
static void check_problem_by_index(const char *path, const char *damage)
{
    fa2i_cache *cache = fixture_open(path);
    fa2i_cache_health health = {0};
    fa2i_cache_cleanup cleanup = {0};
    char *before = exported(cache, NULL);
    fa2i_cache_close(cache);
    damage_problem_row(path, damage);
    CHECK_EQ(fa2i_cache_open(path, FA2I_CACHE_REPAIR, NULL, NULL, &cache), FA2_OK);
    CHECK_EQ(fa2i_cache_gc(cache, -1, &cleanup), FA2_OK);
    CHECK_EQ(cleanup.mended, 1);
    CHECK_EQ(cleanup.rows, 0);
    CHECK(cleanup.remade != NULL);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK_STR(health.first_problem, "");
    char *after = exported(cache, NULL);
    CHECK_STR(after, before);
    fa2i_cache_close(cache);
    free(before);
    free(after);
}

static void test_problem_by_index(void)
{
    static const char *const damages[] = {
        "UPDATE problem SET causal = 0 WHERE id = 1",
        "UPDATE problem SET dtype = 'fp17' WHERE id = 1",
        "UPDATE problem SET batch = -126 WHERE id = 2",
        "UPDATE problem SET seq_q = seq_q + 1, seq_k = seq_k + 1 WHERE id = 2",
        "UPDATE problem SET heads_q = 7, gflop = 3 WHERE id = 2",
        "UPDATE problem SET class = 'D=64 dtype=fp16 causal=0', causal = 0 WHERE id = 1",
        "DELETE FROM problem WHERE id = 1",
    };
    fixture f;
    fixture_begin(&f);
    fa2i_cache *cache = fixture_open(f.path);
    const ids first = sample_ids(cache, 512), second = sample_ids(cache, 1024);
    store_result(cache, &first, 1, 100, true);
    store_result(cache, &second, 2, 50, true);
    fa2i_cache_close(cache);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const int failures = check_failures;
        check_problem_by_index(f.path, damages[i]);
        if (check_failures > failures)
            fprintf(stderr, "... after: %s\n", damages[i]);
    }
    fixture_end(&f);
}

/* ---- a file that was cut ---- */

static void keep_line(void *user, const char *line)
{
    snprintf(user, FA2I_MESSAGE_BYTES, "%s", line);
}

/* The file loses these last bytes, which no winner needs: the winners are as before. */
static void check_cut(const char *path, const char *before, size_t lost)
{
    enum { PAGE_BYTES = 4096 };
    char said[FA2I_MESSAGE_BYTES] = "", expected[80];
    fa2i_cache *cache = NULL;
    fa2i_cache_health health = {0};
    fa2i_cache_cleanup cleanup = {0};
    struct stat info;
    CHECK_EQ(stat(path, &info), 0);
    CHECK_EQ(truncate(path, info.st_size - (off_t)lost), 0);
    const size_t rest = (size_t)(info.st_size - (off_t)lost) % PAGE_BYTES;
    CHECK_EQ(fa2i_cache_open(path, FA2I_CACHE_REPAIR, keep_line, said, &cache), FA2_OK);
    snprintf(expected, sizeof expected, "its last page is not whole; its %zu byte%s ignored", rest,
             rest == 1 ? " is" : "s are");
    CHECK((strstr(said, expected) != NULL) == (rest > 0));
    CHECK_EQ(fa2i_cache_gc(cache, -1, &cleanup), FA2_OK);
    CHECK(cleanup.remade != NULL);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK_STR(health.first_problem, "");
    char *after = exported(cache, NULL);
    CHECK_STR(after, before);
    fa2i_cache_close(cache);
    free(after);
}

static void test_cut(void)
{
    static const size_t lost[] = {4096, 4097, 8191, 10000, 50001};
    fixture f;
    char whole[128];
    fixture_begin(&f);
    fa2i_cache *cache = fixture_open(f.path);
    const ids first = sample_ids(cache, 512), second = sample_ids(cache, 1024);
    store_result(cache, &first, 1, 100, true);
    store_result(cache, &second, 2, 50, true);
    char *before = exported(cache, NULL);
    fa2i_cache_close(cache);
    CHECK(damage(f.path, "INSERT INTO code (hash, data) VALUES (zeroblob(32), zeroblob(100000))"));
    snprintf(whole, sizeof whole, "%s.whole", f.path);
    copy_file(f.path, whole);
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        const int failures = check_failures;
        copy_file(whole, f.path);
        check_cut(f.path, before, lost[i]);
        if (check_failures > failures)
            fprintf(stderr, "... after a cut of %zu bytes\n", lost[i]);
    }
    remove(whole);
    free(before);
    fixture_end(&f);
}

/* ---- mending that is stopped ---- */

enum { SPOILED_MOST = 1 << 21, SPOILED_PAGE = 4096 };

/* Reads the file, to compare it. Returns its size. */
static size_t read_file(const char *path, unsigned char *bytes)
{
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    const size_t count = fread(bytes, 1, SPOILED_MOST, file);
    fclose(file);
    return count;
}

/* Makes a database of many pages, and every third of its pages from the fourth one on is noise. */
static void make_spoiled(const char *path)
{
    static char log[20000];
    static unsigned char bytes[SPOILED_MOST];
    uint32_t noise = 1;
    fa2i_cache *cache = fixture_open(path);
    memset(log, 'x', sizeof log - 1);
    for (int i = 1; i < 60; i++) {
        fa2i_kernel kernel = sample_kernel(i);
        kernel.log = log;
        CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
    }
    fa2i_cache_close(cache);
    const size_t count = read_file(path, bytes);
    CHECK(count > 100 * SPOILED_PAGE && count < SPOILED_MOST);
    for (size_t i = 3 * SPOILED_PAGE; i < count; i++) {
        noise = noise * 1664525 + 1013904223;
        if (i / SPOILED_PAGE % 3 == 0)
            bytes[i] = (unsigned char)(noise >> 24);
    }
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fwrite(bytes, 1, count, file) == count);
    fclose(file);
}

/* Stops the work when the log is told this. */
typedef struct listener {
    volatile sig_atomic_t stop;
    const char *until;
} listener;

static void listen(void *user, const char *message)
{
    listener *l = user;
    if (strstr(message, l->until) != NULL)
        l->stop = 1;
}

/* The log says from the first second on what is done. A stopped gc ends at once, and leaves the file as it is. */
static void test_stopped(void)
{
    static const char *const lines[] = {"is damaged (", "looking for a wrong bit in the table "};
    static unsigned char before[SPOILED_MOST], after[SPOILED_MOST];
    fixture f;
    fixture_begin(&f);
    make_spoiled(f.path);
    const size_t bytes = read_file(f.path, before);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        fa2i_cache *cache = NULL;
        listener l = {.until = lines[i]};
        const double started = fa2i_clock_thread_s();
        CHECK_EQ(fa2i_cache_open_to_mend(f.path, &l.stop, listen, &l, &cache), FA2_E_DATABASE);
        CHECK(fa2i_clock_thread_s() - started < FA2I_TRIAL_SECONDS / 2);
        CHECK_EQ(l.stop, 1);
        CHECK(cache == NULL);
        CHECK_CONTAINS(fa2_last_message(), "interrupted; nothing is left half done");
        CHECK_EQ(read_file(f.path, after), bytes);
        CHECK(memcmp(before, after, bytes) == 0);
    }
    fixture_end(&f);
}

static void test_dangling(fa2i_cache *cache)
{
    fa2i_cache_health health = {0};
    CHECK_EQ(fa2i_sql_script(cache, "PRAGMA foreign_keys = OFF; DELETE FROM problem WHERE seq_q = 512;"
                                    "PRAGMA foreign_keys = ON"),
             FA2_OK);
    CHECK_EQ(fa2i_cache_check(cache, &health), FA2_OK);
    CHECK_EQ(health.dangling, 5); /* measurements; the winner is gone already */
    CHECK_CONTAINS(health.first_problem, "not there: 5");
}

static void test_read_only(const char *path)
{
    fa2i_cache *cache = NULL;
    fa2i_cache_cleanup cleanup = {0};
    CHECK_EQ(fa2i_cache_open(path, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
    CHECK_EQ(fa2i_cache_gc(cache, 0, &cleanup), FA2_E_DATABASE);
    CHECK_CONTAINS(fa2_last_message(), "reading only");
    fa2i_cache_close(cache);
}

int main(void)
{
    fixture f;
    fixture_begin(&f);
    fa2i_cache *cache = fixture_open(f.path);
    const ids to = sample_ids(cache, 512), modelled = sample_ids(cache, 1024);
    fill(cache, &to);
    store_result(cache, &modelled, 6, 25, true);
    const fa2i_winner guess = {.kernel = sample_key(6), .model_us = 12.5};
    CHECK_EQ(fa2i_cache_put_winner(cache, modelled.session, modelled.device, modelled.problem, &guess), FA2_OK);
    test_winners(cache);
    test_measurements(cache);
    test_json(cache);
    test_default_unknown(cache);
    test_json_of_damage(cache);
    test_without_json(cache);
    test_check(cache);
    test_gc(cache);
    test_dangling(cache);
    fa2i_cache_close(cache);
    test_mending();
    test_told_values();
    test_problem_by_index();
    test_cut();
    test_stopped();
    test_read_only(f.path);
    fixture_end(&f);
    return check_done();
}
