/*
 * Checking, cleaning up, and giving imported kernels their code.
 *
 * Damaged images are found in SQL, by fa2_seal (seal.c).
 */
#include "cache/report.h"

#include <string.h>
#include "cache/internal.h"
#include "runtime/base/alloc.h"

/* ---- check ---- */

static fa2_status count_rows(fa2i_cache *cache, const char *sql, size_t *ret_count)
{
    int64_t count = 0;
    fa2_status st = fa2i_sql_number(cache, sql, NULL, 0, &count);
    if (st == FA2_OK)
        *ret_count = (size_t)count;
    return st;
}

/* SQLite's own check. */
static fa2_status examine_file(fa2i_cache *cache, fa2i_cache_health *health)
{
    sqlite3_stmt *stmt = NULL;
    char problem[200];
    fa2_status st = fa2i_sql_row(cache, "PRAGMA integrity_check(1)", NULL, 0, &stmt);
    if (st == FA2_OK) {
        fa2i_sql_column_text(stmt, 0, problem, sizeof problem);
        health->intact = strcmp(problem, "ok") == 0;
        if (!health->intact)
            snprintf(health->first_problem, sizeof health->first_problem, "%s%s", problem,
                     strstr(problem, " index ") != NULL ? "; fa2-tune gc makes the indexes anew"
                                                        : "");
    }
    sqlite3_finalize(stmt);
    return st;
}

/* Problems that are not of the class in their row, or are none. */
static const char misfiled_table[] =
    "CREATE TEMP TABLE misfiled AS SELECT id FROM problem WHERE fa2_misfiled(class"
#define FA2I_FIELD(name, ...) ", " #name
#include "runtime/base/problem.def"
#undef FA2I_FIELD
    ")";

/* Rows of a table that tie a kernel to a problem of another class. */
#define MISFITS(table)                                                                             \
    " FROM " table " WHERE problem IN (SELECT id FROM temp.misfiled) OR EXISTS "                   \
    "(SELECT 1 FROM problem p CROSS JOIN kernel k WHERE p.id = " table ".problem "                 \
    "AND k.id = " table ".kernel AND p.class <> k.class)"

static fa2_status examine_rows(fa2i_cache *cache, fa2i_cache_health *health)
{
    const struct {
        const char *sql;
        size_t *ret_count;
    } counts[] = {
        {"SELECT count(*) FROM kernel", &health->kernels},
        {"SELECT count(*) FROM image", &health->images},
        {"SELECT count(*) FROM measurement", &health->measurements},
        {"SELECT count(*) FROM winner", &health->winners},
        {"SELECT count(*) FROM (" FA2I_DAMAGED_IMAGES ")", &health->damaged_images},
        {"SELECT count(*) FROM pragma_foreign_key_check", &health->dangling},
        {"SELECT (SELECT count(*)" MISFITS("winner") ") + (SELECT count(*)" MISFITS(
             "measurement") ") + (SELECT count(*) FROM temp.misfiled)",
         &health->misfits},
        {"SELECT count(*) FROM winner WHERE kernel NOT IN (SELECT kernel FROM image) "
         "OR kernel IN (" FA2I_DAMAGED_IMAGES ")",
         &health->without_code},
    };
    fa2_status st = fa2i_sql_script(cache, misfiled_table);
    for (size_t i = 0; st == FA2_OK && i < sizeof counts / sizeof counts[0]; i++)
        st = count_rows(cache, counts[i].sql, counts[i].ret_count);
    return st == FA2_OK ? fa2i_sql_script(cache, "DROP TABLE temp.misfiled") : st;
}

/* One sentence about the rows, where the file itself is sound. */
static void describe_rows(fa2i_cache_health *health)
{
    char *text = health->first_problem;
    const size_t bytes = sizeof health->first_problem;
    if (health->damaged_images > 0)
        snprintf(text, bytes, "kernels whose code is damaged: %zu; fa2-tune gc drops it",
                 health->damaged_images);
    else if (health->misfits > 0)
        snprintf(
            text, bytes,
            "rows that tie a problem to a kernel or a class that is not its own: %zu; fa2-tune "
            "gc drops them",
            health->misfits);
    else if (health->dangling > 0)
        snprintf(text, bytes,
                 "rows that refer to rows that are not there: %zu; fa2-tune gc drops "
                 "them",
                 health->dangling);
    else if (health->without_code > 0)
        snprintf(text, bytes,
                 "winners without code, which is compiled again at the first call where NVRTC is: "
                 "%zu; fa2-tune tune, build or import compiles it now, fa2-tune gc drops them",
                 health->without_code);
}

fa2_status fa2i_cache_check(fa2i_cache *cache, fa2i_cache_health *ret_health)
{
    fa2i_cache_health health = {0};
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_READ);
    if (st == FA2_OK)
        st = examine_file(cache, &health);
    if (st == FA2_OK)
        st = examine_rows(cache, &health);
    const int code = sqlite3_errcode(cache->db) & 0xff;
    const bool damaged = st != FA2_OK && (code == SQLITE_CORRUPT || code == SQLITE_NOTADB);
    if (damaged) {
        health.intact = false;
        snprintf(health.first_problem, sizeof health.first_problem, "%s",
                 sqlite3_errmsg(cache->db));
    } else if (health.intact) {
        describe_rows(&health);
    }
    st = fa2i_sql_end(cache, st);
    if (st != FA2_OK && !damaged)
        return st;
    *ret_health = health;
    return FA2_OK;
}

/* ---- clean-up ---- */

static fa2_status file_bytes(fa2i_cache *cache, int64_t *ret_bytes)
{
    int64_t pages = 0;
    int64_t page_bytes = 0;
    fa2_status st = fa2i_sql_number(cache, "PRAGMA page_count", NULL, 0, &pages);
    if (st == FA2_OK)
        st = fa2i_sql_number(cache, "PRAGMA page_size", NULL, 0, &page_bytes);
    if (st == FA2_OK)
        *ret_bytes = pages * page_bytes;
    return st;
}

/* A step of the cleaning, and where its rows are counted. */
typedef struct step {
    const char *sql;
    size_t *ret_count; /* may be NULL */
} step;

static fa2_status run_steps(fa2i_cache *cache, const step *steps, size_t count)
{
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && i < count; i++) {
        st = fa2i_sql_run(cache, steps[i].sql, NULL, 0);
        if (steps[i].ret_count != NULL) /* without what triggers did */
            *steps[i].ret_count += (size_t)sqlite3_changes(cache->db);
    }
    return st;
}

#define GONE(column, table) column " NOT IN (SELECT id FROM " table ")"
#define DANGLING                                                                                   \
    " WHERE " GONE("device", "device") " OR " GONE("problem", "problem") " OR " GONE(              \
        "kernel", "kernel") " OR session NOT IN "                                                  \
                            "(SELECT id FROM session WHERE device IN (SELECT id FROM device))"

/* Losers with code, and how many bytes they and those before them take, in the order of their worth: the least
 * factor to the fastest kernel of a problem; 1 for one that was not measured, which a call without
 * a tuned kernel compiled, more than any for one that spills. */
static const char spare_table[] =
    "CREATE TEMP TABLE spare AS WITH best AS (SELECT device, problem, min(median_us) AS us "
    "FROM measurement WHERE outcome = 'ok' AND n > 0 AND median_us > 0 GROUP BY device, problem), "
    "worth AS (SELECT m.kernel, min(m.median_us / b.us) AS factor FROM measurement m "
    "JOIN best b ON b.device = m.device AND b.problem = m.problem "
    "WHERE m.outcome = 'ok' AND m.n > 0 GROUP BY m.kernel) "
    "SELECT i.kernel, sum(length(c.data)) OVER (ORDER BY k.outcome = 'spilled', "
    "coalesce(w.factor, 1), i.kernel) AS bytes FROM image i JOIN code c ON c.id = i.code "
    "JOIN kernel k ON k.id = i.kernel LEFT JOIN worth w ON w.kernel = i.kernel "
    "WHERE i.kernel NOT IN (SELECT kernel FROM winner)";

/* Its images beyond spare_bytes. */
static fa2_status drop_spare(fa2i_cache *cache, int64_t spare_bytes, size_t *ret_images)
{
    const fa2i_sql_value values[] = {fa2i_sql_int(spare_bytes)};
    fa2_status st;
    FA2_TRY(fa2i_sql_script(cache, spare_table));
    FA2_TRY(fa2i_sql_run(cache,
                         "DELETE FROM image WHERE kernel IN (SELECT kernel FROM temp.spare "
                         "WHERE bytes > ?)",
                         FA2I_SQL_VALUES(values)));
    *ret_images += (size_t)sqlite3_changes(cache->db);
    FA2_TRY(fa2i_sql_script(cache, "DROP TABLE temp.spare"));
done:
    return st;
}

fa2_status fa2i_cache_trim(fa2i_cache *cache, int64_t spare_bytes)
{
    size_t images = 0;
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_WRITE);
    if (st == FA2_OK)
        st = drop_spare(cache, spare_bytes, &images);
    return fa2i_sql_end(cache, st);
}

/* Under the write lock. First the indexes, by which the rows are found; then from what refers to what
 * is referred to. */
static fa2_status drop_rows(fa2i_cache *cache, int64_t spare_bytes, fa2i_cache_cleanup *cleanup)
{
    size_t *rows = &cleanup->rows;
    const step steps[] = {
        {"REINDEX", NULL},
        {misfiled_table, NULL},
        {"DELETE" MISFITS("winner"), &cleanup->winners},
        {"DELETE" MISFITS("measurement"), rows},
        {"DELETE FROM winner" DANGLING, rows},
        {"DELETE FROM measurement" DANGLING, rows},
        {"DELETE FROM verification WHERE " GONE("device", "device") " OR " GONE("kernel", "kernel"),
         rows},
        {"DELETE FROM session WHERE " GONE("device", "device"), rows},
        {"DELETE FROM problem WHERE id IN (SELECT id FROM temp.misfiled)", rows},
        {"DROP TABLE temp.misfiled", NULL},
        {"DELETE FROM image WHERE " GONE("kernel", "kernel") " OR kernel IN (" FA2I_DAMAGED_IMAGES
                                                             ")",
         &cleanup->images},
        {"DELETE FROM code WHERE id NOT IN (SELECT code FROM image)", NULL},
        {"DELETE FROM winner WHERE kernel NOT IN (SELECT kernel FROM image)", &cleanup->winners},
    };
    fa2_status st;
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_WRITE));
    FA2_TRY(file_bytes(cache, &cleanup->bytes_freed));
    FA2_TRY(run_steps(cache, steps, sizeof steps / sizeof steps[0]));
    FA2_TRY(drop_spare(cache, spare_bytes, &cleanup->images));
done:
    return fa2i_sql_end(cache, st);
}

fa2_status fa2i_cache_gc(fa2i_cache *cache, int64_t spare_bytes, fa2i_cache_cleanup *ret_cleanup)
{
    int64_t after = 0;
    fa2i_cache_cleanup cleanup = {0};
    fa2_status st = drop_rows(cache, spare_bytes, &cleanup);
    if (st != FA2_OK)
        return st;
    pthread_mutex_lock(&cache->mutex); /* VACUUM is a transaction of its own */
    st = fa2i_sql_run(cache, "VACUUM", NULL, 0);
    if (st == FA2_OK)
        st = file_bytes(cache, &after);
    pthread_mutex_unlock(&cache->mutex);
    if (st == FA2_OK) {
        cleanup.bytes_freed -= after;
        *ret_cleanup = cleanup;
    }
    return st;
}

/* ---- kernels that came without code ---- */

static fa2_status read_kernels(fa2i_cache *cache, sqlite3_stmt *stmt, fa2i_kernel **kernels,
                               size_t *count)
{
    bool row = false;
    fa2_status st = fa2i_sql_step(cache, stmt, &row);
    while (st == FA2_OK && row) {
        fa2i_kernel *grown = fa2i_realloc(*kernels, (*count + 1) * sizeof *grown);
        if (grown == NULL)
            return fa2i_fail(FA2_E_MEMORY, "out of memory");
        *kernels = grown;
        st = fa2i_row_read_kernel(cache, stmt, &grown[*count]);
        if (st != FA2_OK)
            return st;
        (*count)++;
        st = fa2i_sql_step(cache, stmt, &row);
    }
    return st;
}

fa2_status fa2i_cache_kernels_without_image(fa2i_cache *cache, fa2i_kernel **ret_kernels,
                                            size_t *ret_count)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    fa2i_kernel *kernels = NULL;
    size_t count = 0;

    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    FA2_TRY(fa2i_sql_prepare(
        cache,
        "SELECT " FA2I_KERNEL_COLUMNS " FROM kernel k "
        "WHERE k.outcome <> 'compile_error' AND k.id IN (SELECT kernel FROM winner) "
        "AND k.id NOT IN (SELECT kernel FROM image) ORDER BY k.id",
        NULL, 0, &stmt));
    FA2_TRY(read_kernels(cache, stmt, &kernels, &count));
done:
    sqlite3_finalize(stmt);
    st = fa2i_sql_end(cache, st);
    if (st == FA2_OK) {
        *ret_kernels = kernels;
        *ret_count = count;
        return FA2_OK;
    }
    for (size_t i = 0; i < count; i++)
        fa2i_kernel_done(&kernels[i]);
    fa2i_free(kernels);
    return st;
}

static fa2_status move_references(fa2i_cache *cache, int64_t from, int64_t to)
{
    /* The last step removes the verifications, and the measurements that could not move. */
    static const char *const steps[] = {
        "UPDATE winner SET kernel = ?2 WHERE kernel = ?1",
        "UPDATE OR IGNORE measurement SET kernel = ?2, settled = 0 WHERE kernel = ?1",
    };
    const fa2i_sql_value values[] = {fa2i_sql_int(from), fa2i_sql_int(to)};
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && i < sizeof steps / sizeof steps[0]; i++)
        st = fa2i_sql_run(cache, steps[i], FA2I_SQL_VALUES(values));
    return st != FA2_OK ? st : fa2i_sql_run(cache, "DELETE FROM kernel WHERE id = ?", values, 1);
}

fa2_status fa2i_cache_rebind_kernel(fa2i_cache *cache, const fa2i_key *old_key,
                                    const fa2i_kernel *kernel)
{
    fa2_status st;
    int64_t from = 0;
    int64_t to = 0;

    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_WRITE));
    FA2_TRY(fa2i_row_kernel_id(cache, old_key, &from));
    FA2_TRY(fa2i_row_put_kernel(cache, kernel, &to));
    FA2_TRY(fa2i_row_put_image(cache, to, kernel));
    if (from != to)
        FA2_TRY(move_references(cache, from, to));
done:
    return fa2i_sql_end(cache, st);
}
