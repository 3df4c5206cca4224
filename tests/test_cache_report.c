/* The database's reports: list, JSON, check, clean-up. */
#include <math.h>
#include "put_measurement.h"
#include "cache/internal.h"
#include "cache_fixture.h"
#include "runtime/base/alloc.h"
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
    test_read_only(f.path);
    fixture_end(&f);
    return check_done();
}
