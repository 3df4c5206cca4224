/*
 * Waiting for another process that holds the file locked.
 *
 * After a wait in vain the file counts as locked, for that mode: a lock for writing may leave reading free. From then
 * on no transaction of that mode waits, until one works again or LOCKED_NS have passed.
 *
 * Invariants:
 * - all waits between two refills of wait_ms take no longer than wait_ms, however often SQLite asks;
 * - a file that is locked for reading is locked for writing.
 */
#include "cache/internal.h"

#include "runtime/base/clock.h"

#define LOCKED_NS (60 * FA2I_SECOND_NS)

/* An sqlite3_busy_handler: 1, after a pause, to try again. */
static int pause_once(void *user, int tries)
{
    static const int pauses_ms[] = {1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, 100};
    enum { LAST = sizeof pauses_ms / sizeof *pauses_ms - 1 };
    fa2i_cache *cache = user;
    const int pause_ms = pauses_ms[tries < LAST ? tries : LAST];
    if (cache->at_once || cache->locked_ns[FA2I_CACHE_READ] != 0 || cache->locked_ns[cache->mode] != 0)
        return 0;
    if (cache->wait_ms < pause_ms) {
        cache->locked_ns[cache->mode] = fa2i_clock_ns();
        return 0;
    }
    cache->wait_ms -= pause_ms;
    sqlite3_sleep(pause_ms);
    return 1;
}

int fa2i_wait_register(fa2i_cache *cache)
{
    return sqlite3_busy_handler(cache->db, pause_once, cache);
}

static void refill(fa2i_cache *cache)
{
    if (!cache->waits_by_call)
        cache->wait_ms = FA2I_CACHE_WAIT_MS;
}

void fa2i_wait_begin(fa2i_cache *cache, fa2i_cache_mode mode)
{
    cache->mode = mode == FA2I_CACHE_READ ? FA2I_CACHE_READ : FA2I_CACHE_WRITE;
    for (int kind = FA2I_CACHE_READ; kind <= FA2I_CACHE_WRITE; kind++) {
        if (cache->locked_ns[kind] == 0 || fa2i_clock_ns() - cache->locked_ns[kind] < LOCKED_NS)
            continue;
        cache->locked_ns[kind] = 0;
        refill(cache);
    }
}

void fa2i_wait_end(fa2i_cache *cache)
{
    cache->locked_ns[FA2I_CACHE_READ] = 0;
    cache->locked_ns[cache->mode] = 0;
    refill(cache);
}

void fa2i_cache_begin_call(fa2i_cache *cache)
{
    pthread_mutex_lock(&cache->mutex);
    cache->waits_by_call = true;
    cache->wait_ms = FA2I_CACHE_WAIT_MS;
    pthread_mutex_unlock(&cache->mutex);
}
