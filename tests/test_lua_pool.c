/*
 * The pool of Lua's small blocks: random requests, compared with what was written into each block. AddressSanitizer
 * builds have no pool (lua_pool.c), so this test says most without it.
 */
#include <stdint.h>
#include "check.h"
#include "runtime/base/alloc.h"
#include "runtime/lua/lua_pool.h"

enum { BLOCKS = 300, REQUESTS = 200000, BYTES_MOST = 2 * FA2I_LUA_SMALL };

typedef struct block {
    unsigned char *data; /* NULL: none */
    size_t bytes;
    unsigned char value; /* of each byte */
} block;

static unsigned state = 7; /* of the random numbers: a fixed seed */

static unsigned draw(unsigned below)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

static int wrong_bytes(const block *b, size_t bytes)
{
    int wrong = 0;
    for (size_t i = 0; i < bytes; i++)
        wrong += b->data[i] != b->value;
    return wrong;
}

/* One request: frees the block, makes it, or resizes it. Returns how many bytes were lost. */
static int request(fa2i_lua_pool *pool, block *b, unsigned char value)
{
    const size_t bytes = 1 + draw(BYTES_MOST);
    int wrong = b->data != NULL ? wrong_bytes(b, b->bytes) : 0;
    if (b->data != NULL && draw(3) == 0) {
        fa2i_lua_pool_free(pool, b->data, b->bytes);
        *b = (block){.data = NULL};
        return wrong;
    }
    unsigned char *data = fa2i_lua_pool_resize(pool, b->data, b->bytes, bytes);
    CHECK(data != NULL && (uintptr_t)data % FA2I_LUA_UNIT == 0);
    const block grown = {data, bytes, b->value};
    if (b->data != NULL)
        wrong += wrong_bytes(&grown, bytes < b->bytes ? bytes : b->bytes);
    *b = (block){data, bytes, value};
    memset(data, value, bytes);
    return wrong;
}

static void test_contents(void)
{
    static block blocks[BLOCKS];
    fa2i_lua_pool pool = {.chunks = NULL};
    int wrong = 0;
    for (int i = 0; i < REQUESTS; i++)
        wrong += request(&pool, &blocks[draw(BLOCKS)], (unsigned char)i);
    CHECK_EQ(wrong, 0);
    for (int i = 0; i < BLOCKS; i++)
        fa2i_lua_pool_free(&pool, blocks[i].data, blocks[i].bytes);
    fa2i_lua_pool_done(&pool);
    CHECK(pool.chunks == NULL);
}

/* A request without memory leaves the block as it is. */
static void test_no_memory(void)
{
    fa2i_lua_pool pool = {.chunks = NULL};
    unsigned char *data = fa2i_lua_pool_resize(&pool, NULL, 0, 40);
    CHECK(data != NULL);
    memset(data, 0x5a, 40);
    fa2i_alloc_fail_at(1);
    CHECK(fa2i_lua_pool_resize(&pool, data, 40, 400) == NULL);
    fa2i_alloc_fail_at(0);
    CHECK_EQ(data[0] + data[39], 2 * 0x5a);
    fa2i_lua_pool_free(&pool, data, 40);
    fa2i_lua_pool_done(&pool);
}

int main(void)
{
    test_contents();
    test_no_memory();
    return check_done();
}
