/*
 * Clean-up, and code for the kernels of winners.
 */
#include "cache/content/report.h"

#include "cache/database/mend.h"
#include "cache/content/size_limit.h"
#include "cache/transfer/sound.h"
#include "runtime/base/alloc.h"

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

/* A step of the clean-up, and the counter of its rows. */
typedef struct step {
    const char *sql;
    size_t *ret_count; /* may be NULL */
} step;

static fa2_status run_steps(fa2i_cache *cache, const step *steps, size_t count)
{
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && i < count; i++) {
        st = fa2i_sql_run(cache, steps[i].sql, NULL, 0);
        if (steps[i].ret_count != NULL) /* does not count rows that triggers deleted */
            *steps[i].ret_count += (size_t)sqlite3_changes(cache->db);
    }
    return st;
}

/* Deletes the rows of a table that are not valid. */
#define UNSOUND(table, key) "DELETE FROM " table " WHERE (" key ") NOT IN (SELECT " key " FROM temp.sound_" table ")"

/* Call it under the write lock. Rows that refer to others go before these. */
static fa2_status drop_rows(fa2i_cache *cache, int64_t most_bytes, fa2i_cache_cleanup *cleanup)
{
    size_t *rows = &cleanup->rows;
    const step steps[] = {
        {UNSOUND("winner", "device, problem"), &cleanup->winners},
        {UNSOUND("measurement", "device, problem, kernel"), rows},
        {UNSOUND("verification", "device, kernel"), rows},
        {UNSOUND("kernel", "id"), rows},
        {UNSOUND("session", "id"), rows},
        {UNSOUND("problem", "id"), rows},
        {UNSOUND("device", "id"), rows},
        {"DELETE FROM image WHERE kernel NOT IN (SELECT id FROM kernel) OR kernel IN (" FA2I_DAMAGED_IMAGES ")",
         &cleanup->images},
        {"DELETE FROM code WHERE id NOT IN (SELECT code FROM image)", NULL},
        {"DELETE FROM answer", NULL}, /* contexts find answers again */
        {"DELETE FROM setting WHERE name <> 'max_bytes' OR value NOT BETWEEN 0 AND 1 << 50", rows},
        /* A winner that lacks only its code stays: the code is compiled again, and the measurements remain. */
        {"DELETE FROM winner WHERE kernel IN (SELECT id FROM kernel WHERE outcome = 'compile_error')",
         &cleanup->winners},
    };
    fa2_status st;
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_WRITE));
    FA2_TRY(file_bytes(cache, &cleanup->bytes_freed));
    if (!cache->remade.done) /* its indexes are new */
        FA2_TRY(fa2i_sql_script(cache, "REINDEX"));
    FA2_TRY(fa2i_mend_rows(cache));
    FA2_TRY(fa2i_sound_begin(cache));
    FA2_TRY(run_steps(cache, steps, sizeof steps / sizeof steps[0]));
    FA2_TRY(fa2i_sound_end(cache));
    if (most_bytes < 0)
        FA2_TRY(fa2i_size_limit_get(cache, &most_bytes));
    FA2_TRY(fa2i_size_limit_drop(cache, most_bytes, &cleanup->images));
done:
    return fa2i_sql_end(cache, st);
}

/* Gives unused pages back to the disk. A file that was just made anew may have none. */
static fa2_status make_compact(fa2i_cache *cache)
{
    int64_t unused = 1;
    fa2_status st = FA2_OK;
    if (cache->remade.done)
        st = fa2i_sql_number(cache, "PRAGMA freelist_count", NULL, 0, &unused);
    return st != FA2_OK || unused == 0 ? st : fa2i_sql_run(cache, "VACUUM", NULL, 0);
}

fa2_status fa2i_cache_gc(fa2i_cache *cache, int64_t most_bytes, fa2i_cache_cleanup *ret_cleanup)
{
    int64_t after = 0;
    fa2i_cache_cleanup cleanup = {0};
    fa2_status st = drop_rows(cache, most_bytes, &cleanup);
    if (st != FA2_OK)
        return st;
    pthread_mutex_lock(&cache->mutex); /* VACUUM is a transaction of its own */
    st = make_compact(cache);
    if (st == FA2_OK)
        st = file_bytes(cache, &after);
    pthread_mutex_unlock(&cache->mutex);
    if (st == FA2_OK) {
        cleanup.bytes_freed -= after;
        cleanup.mended = cache->mended;
        cleanup.rows += cache->remade.refused;
        cleanup.remade = cache->remade.done ? cache->remade.cause : NULL;
        cache->mended = cache->remade.refused = 0;
        cache->remade.done = false;
        *ret_cleanup = cleanup;
    }
    return st;
}

/* ---- kernels that came without code ---- */

static fa2_status read_kernels(fa2i_cache *cache, sqlite3_stmt *stmt, fa2i_kernel **kernels, size_t *count)
{
    size_t capacity = 0;
    fa2_status st;
    while (fa2i_sql_next(cache, stmt, &st)) {
        st = FA2I_GROW(*kernels, *count + 1, capacity);
        if (st != FA2_OK)
            return st;
        st = fa2i_row_read_kernel(cache, stmt, &(*kernels)[*count]);
        if (st != FA2_OK && st != FA2_E_NOT_FOUND) /* a damaged one is passed over */
            return st;
        *count += st == FA2_OK;
    }
    return st;
}

fa2_status fa2i_cache_kernels_without_image(fa2i_cache *cache, fa2i_kernel **ret_kernels, size_t *ret_count)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    fa2i_kernel *kernels = NULL;
    size_t count = 0;
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    FA2_TRY(fa2i_sql_prepare(cache,
                             "SELECT " FA2I_KERNEL_COLUMNS " FROM kernel k "
                             "WHERE k.outcome <> 'compile_error' AND k.id IN (SELECT kernel FROM winner) "
                             "AND k.id NOT IN (" FA2I_REFUTED_KERNELS ") AND k.id NOT IN (" FA2I_OTHER_KERNELS ") "
                             "AND (k.id NOT IN (SELECT kernel FROM image) OR k.id IN (" FA2I_DAMAGED_IMAGES
                             " AND i.kernel IN (SELECT kernel FROM winner))) ORDER BY k.id",
                             NULL, 0, &stmt));
    FA2_TRY(read_kernels(cache, stmt, &kernels, &count));
done:
    st = fa2i_sql_close(cache, stmt, st);
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
    /* The last step also removes the verifications, and the measurements that could not move. */
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

fa2_status fa2i_cache_rebind_kernel(fa2i_cache *cache, const fa2i_key *old_key, const fa2i_kernel *kernel)
{
    fa2_status st;
    int64_t from = 0;
    int64_t to = 0;
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_WRITE));
    FA2_TRY(fa2i_row_kernel_id(cache, old_key, &from));
    FA2_TRY(fa2i_size_limit_make_room(cache, kernel->image.bytes));
    FA2_TRY(fa2i_row_put_kernel(cache, kernel, &to));
    FA2_TRY(fa2i_row_put_image(cache, to, kernel));
    if (from != to)
        FA2_TRY(move_references(cache, from, to));
done:
    return fa2i_sql_end(cache, st);
}
