/*
 * Dropping code reads all images. So it makes more room than was asked for, an eighth of the limit, to happen rarely.
 */
#include "cache/content/size_limit.h"

#include "cache/content/report.h"

enum { ROWS_BYTES = 1 << 16 /* the most bytes that a kernel's other rows take */ };

static fa2_status used_bytes(fa2i_cache *cache, int64_t *ret_bytes)
{
    int64_t page_bytes = 0, pages = 0, unused = 0;
    fa2_status st;
    FA2_TRY(fa2i_sql_number(cache, "PRAGMA page_size", NULL, 0, &page_bytes));
    FA2_TRY(fa2i_sql_number(cache, "PRAGMA page_count", NULL, 0, &pages));
    FA2_TRY(fa2i_sql_number(cache, "PRAGMA freelist_count", NULL, 0, &unused));
    *ret_bytes = (pages - unused) * page_bytes;
done:
    return st;
}

fa2_status fa2i_size_limit_get(fa2i_cache *cache, int64_t *ret_bytes)
{
    *ret_bytes = FA2I_FILE_BYTES;
    const fa2_status st =
        fa2i_sql_number(cache, "SELECT value FROM setting WHERE name = 'max_bytes' AND value > 0", NULL, 0, ret_bytes);
    return st == FA2_E_NOT_FOUND ? FA2_OK : st;
}

/* Drops code of losers until this many bytes are gone, in the order of the day of the last use. For the same day,
 * kernels that spill come first, then kernels that were stored first. */
static const char drop_sql[] =
    "DELETE FROM image WHERE kernel IN (SELECT kernel FROM (SELECT i.kernel, sum(length(c.data)) OVER "
    "(ORDER BY i.used, k.outcome <> 'spilled', i.kernel) - length(c.data) AS before "
    "FROM image i JOIN code c ON c.id = i.code JOIN kernel k ON k.id = i.kernel "
    "WHERE i.kernel NOT IN (SELECT kernel FROM winner)) WHERE before < ?)";

/* Kernels may share code, which goes with the last of them. So more than one pass can be needed. */
fa2_status fa2i_size_limit_drop(fa2i_cache *cache, int64_t most_bytes, size_t *ret_images)
{
    fa2_status st;
    int64_t bytes = 0;
    int images = 1;
    FA2_TRY(used_bytes(cache, &bytes));
    while (bytes > most_bytes && images > 0) {
        const fa2i_sql_value values[] = {fa2i_sql_int(bytes - most_bytes)};
        FA2_TRY(fa2i_sql_run(cache, drop_sql, FA2I_SQL_VALUES(values)));
        images = sqlite3_changes(cache->db);
        *ret_images += (size_t)images;
        FA2_TRY(used_bytes(cache, &bytes));
    }
done:
    return st;
}

fa2_status fa2i_size_limit_make_room(fa2i_cache *cache, size_t bytes)
{
    fa2_status st = FA2_OK;
    const int64_t wanted = (int64_t)bytes + ROWS_BYTES;
    int64_t used = 0, limit = 0;
    size_t images = 0;
    if (bytes == 0)
        return FA2_OK;
    FA2_TRY(used_bytes(cache, &used));
    FA2_TRY(fa2i_size_limit_get(cache, &limit));
    if (used + wanted > limit)
        FA2_TRY(fa2i_size_limit_drop(cache, limit - limit / 8 - wanted, &images));
done:
    return st;
}

fa2_status fa2i_cache_set_limit(fa2i_cache *cache, int64_t bytes)
{
    const fa2i_sql_value values[] = {fa2i_sql_int(bytes)};
    fa2_status st;
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_WRITE));
    FA2_TRY(fa2i_sql_run(cache, "INSERT OR REPLACE INTO setting (name, value) VALUES ('max_bytes', ?)",
                         FA2I_SQL_VALUES(values)));
done:
    return fa2i_sql_end(cache, st);
}
