/*
 * Checking, cleaning up, and giving imported kernels their code.
 *
 * Damaged images are found in SQL, by fa2_image_hash (open.c).
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
    char *problem = health->first_problem;
    fa2_status st = fa2i_sql_row(cache, "PRAGMA integrity_check(1)", NULL, 0, &stmt);
    if (st == FA2_OK) {
        fa2i_sql_column_text(stmt, 0, problem, sizeof health->first_problem);
        health->intact = strcmp(problem, "ok") == 0;
        if (health->intact)
            problem[0] = '\0';
    }
    sqlite3_finalize(stmt);
    return st;
}

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
    };
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && i < sizeof counts / sizeof counts[0]; i++)
        st = count_rows(cache, counts[i].sql, counts[i].ret_count);
    return st;
}

/* One sentence about the rows, where the file itself is sound. */
static void describe_rows(fa2i_cache_health *health)
{
    if (health->damaged_images > 0)
        snprintf(health->first_problem, sizeof health->first_problem,
                 "the code of %zu kernels is damaged; fa2-tune gc drops it",
                 health->damaged_images);
    else if (health->dangling > 0)
        snprintf(health->first_problem, sizeof health->first_problem,
                 "%zu rows refer to rows that are not there", health->dangling);
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

static fa2_status drop_images(fa2i_cache *cache, int64_t *ret_images, int64_t *ret_bytes)
{
    fa2_status st;
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_WRITE));
    FA2_TRY(file_bytes(cache, ret_bytes));
    FA2_TRY(fa2i_sql_run(cache,
                         "DELETE FROM image WHERE kernel NOT IN (SELECT kernel FROM winner) "
                         "OR kernel IN (" FA2I_DAMAGED_IMAGES ")",
                         NULL, 0));
    *ret_images = sqlite3_changes(cache->db);
done:
    return fa2i_sql_end(cache, st);
}

fa2_status fa2i_cache_gc(fa2i_cache *cache, size_t *ret_images, int64_t *ret_bytes_freed)
{
    int64_t images = 0;
    int64_t before = 0;
    int64_t after = 0;
    fa2_status st = drop_images(cache, &images, &before);
    if (st != FA2_OK)
        return st;
    pthread_mutex_lock(&cache->mutex); /* VACUUM is a transaction of its own */
    st = fa2i_sql_run(cache, "VACUUM", NULL, 0);
    if (st == FA2_OK)
        st = file_bytes(cache, &after);
    pthread_mutex_unlock(&cache->mutex);
    if (st == FA2_OK) {
        *ret_images = (size_t)images;
        *ret_bytes_freed = before - after;
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
                                    const fa2i_kernel *kernel, int launch_abi)
{
    fa2_status st;
    int64_t from = 0;
    int64_t to = 0;

    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_WRITE));
    FA2_TRY(fa2i_row_kernel_id(cache, old_key, &from));
    FA2_TRY(fa2i_row_put_kernel(cache, kernel, launch_abi, &to));
    FA2_TRY(fa2i_row_put_image(cache, to, &kernel->image));
    if (from != to)
        FA2_TRY(move_references(cache, from, to));
done:
    return fa2i_sql_end(cache, st);
}
