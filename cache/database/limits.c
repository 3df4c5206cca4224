#include "cache/database/limits.h"

#include <math.h>
#include "runtime/base/clock.h"

enum { VALUE_BYTES_MAX = 1 << 27, SQL_BYTES_MAX = 1 << 20, TRIGGER_DEPTH_MAX = 8 };
enum { TICK = 250 }; /* instructions of SQLite's virtual machine between two looks at the clock */

static int is_late(void *user)
{
    const fa2i_cache *cache = user;
    return fa2i_limits_stopped(cache) || fa2i_clock_thread_s() > cache->deadline;
}

bool fa2i_limits_stopped(const fa2i_cache *cache)
{
    return cache->stop != NULL && *cache->stop != 0;
}

fa2_status fa2i_limits_fail_stopped(const fa2i_cache *cache)
{
    return fa2i_fail(FA2_E_DATABASE, "%s: interrupted; nothing is left half done", cache->path);
}

void fa2i_limits_register(fa2i_cache *cache)
{
    cache->deadline = HUGE_VAL;
    sqlite3_limit(cache->db, SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX);
    sqlite3_limit(cache->db, SQLITE_LIMIT_SQL_LENGTH, SQL_BYTES_MAX);
    sqlite3_limit(cache->db, SQLITE_LIMIT_TRIGGER_DEPTH, TRIGGER_DEPTH_MAX);
    sqlite3_progress_handler(cache->db, TICK, is_late, cache);
}

void fa2i_limits_begin(fa2i_cache *cache)
{
    cache->deadline = fa2i_clock_thread_s() + cache->seconds_max;
}

void fa2i_limits_end(fa2i_cache *cache)
{
    cache->deadline = HUGE_VAL;
}

void fa2i_cache_allow_seconds(fa2i_cache *cache, double seconds)
{
    cache->seconds_max = seconds;
}
