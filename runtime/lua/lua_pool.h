/*
 * Memory for a Lua state. Lua asks for millions of small blocks, and tells the size of each when it gives it back. The
 * C allocator took a fifth of the generator's time. So blocks of up to FA2I_LUA_SMALL bytes are cut from large ones
 * here, and kept for the next request of their size. Larger ones come from the C allocator. Under AddressSanitizer all
 * do, so that it sees each.
 *
 * Not thread-safe: a pool belongs to one state. Zeroed is empty.
 */
#pragma once

#include <stddef.h>

enum { FA2I_LUA_SMALL = 512, FA2I_LUA_UNIT = 16 };

typedef struct fa2i_lua_pool {
    void *chunks; /* all that small blocks are cut from: each begins with the address of the next */
    char *rest;   /* of the latest chunk */
    size_t rest_bytes;
    void *kept[FA2I_LUA_SMALL / FA2I_LUA_UNIT]; /* free blocks by size, linked likewise */
} fa2i_lua_pool;

/* A block of `bytes` with what a block of old_bytes had, as far as both have it: NULL and 0 for a new one. On NULL
 * the old one is untouched. bytes must not be 0. */
void *fa2i_lua_pool_resize(fa2i_lua_pool *pool, void *block, size_t old_bytes, size_t bytes);

void fa2i_lua_pool_free(fa2i_lua_pool *pool, void *block, size_t bytes); /* NULL is fine */

/* Frees all small blocks. The larger ones must be free by then. */
void fa2i_lua_pool_done(fa2i_lua_pool *pool);
