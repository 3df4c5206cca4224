#include "runtime/lua/lua_pool.h"

#include <stdbool.h>
#include <string.h>
#include "runtime/base/alloc.h"

enum { CHUNK_BYTES = 1 << 15 };

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
enum { POOLED = 0 };
#else
enum { POOLED = 1 };
#endif

static bool is_small(size_t bytes)
{
    return POOLED && bytes <= FA2I_LUA_SMALL;
}

/* In units. */
static size_t units_of(size_t bytes)
{
    return (bytes + FA2I_LUA_UNIT - 1) / FA2I_LUA_UNIT;
}

/* A chunk begins with a unit that holds the address of the chunk before. */
static bool add_chunk(fa2i_lua_pool *pool)
{
    char *chunk = fa2i_realloc(NULL, CHUNK_BYTES);
    if (chunk == NULL)
        return false;
    memcpy(chunk, &pool->chunks, sizeof pool->chunks);
    pool->chunks = chunk;
    pool->rest = chunk + FA2I_LUA_UNIT;
    pool->rest_bytes = CHUNK_BYTES - FA2I_LUA_UNIT;
    return true;
}

/* The rest of a chunk that is too small stays unused. */
static void *cut(fa2i_lua_pool *pool, size_t bytes)
{
    if (pool->rest_bytes < bytes && !add_chunk(pool))
        return NULL;
    void *block = pool->rest;
    pool->rest += bytes;
    pool->rest_bytes -= bytes;
    return block;
}

static void *take(fa2i_lua_pool *pool, size_t bytes)
{
    if (fa2i_alloc_is_refused())
        return NULL;
    const size_t units = units_of(bytes);
    void **kept = &pool->kept[units - 1], *block = *kept;
    if (block == NULL)
        return cut(pool, units * FA2I_LUA_UNIT);
    memcpy(kept, block, sizeof *kept);
    return block;
}

void fa2i_lua_pool_free(fa2i_lua_pool *pool, void *block, size_t bytes)
{
    if (block == NULL || !is_small(bytes)) {
        fa2i_free(block);
        return;
    }
    void **kept = &pool->kept[units_of(bytes) - 1];
    memcpy(block, kept, sizeof *kept);
    *kept = block;
}

void *fa2i_lua_pool_resize(fa2i_lua_pool *pool, void *block, size_t old_bytes, size_t bytes)
{
    const bool was_large = block == NULL || !is_small(old_bytes);
    if (was_large && !is_small(bytes))
        return fa2i_realloc(block, bytes);
    if (!was_large && is_small(bytes) && units_of(bytes) == units_of(old_bytes))
        return block;
    void *grown = is_small(bytes) ? take(pool, bytes) : fa2i_realloc(NULL, bytes);
    if (grown != NULL && block != NULL) {
        memcpy(grown, block, old_bytes < bytes ? old_bytes : bytes);
        fa2i_lua_pool_free(pool, block, old_bytes);
    }
    return grown;
}

void fa2i_lua_pool_done(fa2i_lua_pool *pool)
{
    while (pool->chunks != NULL) {
        void *chunk = pool->chunks;
        memcpy(&pool->chunks, chunk, sizeof pool->chunks);
        fa2i_free(chunk);
    }
    *pool = (fa2i_lua_pool){.chunks = NULL};
}
