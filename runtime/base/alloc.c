/*
 * The C allocator with a counter that can make one request fail.
 *
 * - requests counts every request since the last fa2i_alloc_fail_at. fail_at is the number of the request that fails, 0
 *   for none. requests only grows, so exactly one request can match.
 * - Both are atomics with relaxed order, because they guard no other data. The tests that set fail_at compare totals
 *   only after they joined their threads.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/alloc.h"

static atomic_long requests;
static atomic_long fail_at;

bool fa2i_alloc_is_refused(void)
{
    const long number = atomic_fetch_add_explicit(&requests, 1, memory_order_relaxed) + 1;
    return number == atomic_load_explicit(&fail_at, memory_order_relaxed);
}

void *fa2i_alloc(size_t bytes)
{
    return fa2i_alloc_array(1, bytes);
}

void *fa2i_alloc_array(size_t count, size_t size)
{
    if (fa2i_alloc_is_refused())
        return NULL;
    if (count == 0 || size == 0)
        return calloc(1, 1); /* calloc(0, ...) may return NULL, which would look like a failure */
    return count <= SIZE_MAX / size ? calloc(count, size) : NULL;
}

void *fa2i_realloc(void *block, size_t bytes)
{
    if (fa2i_alloc_is_refused())
        return NULL;
    return realloc(block, bytes == 0 ? 1 : bytes);
}

void *fa2i_room_for(void *items, size_t wanted, size_t *capacity, size_t item_bytes)
{
    enum { LEAST = 16 };
    size_t larger = *capacity <= SIZE_MAX / 2 ? 2 * *capacity : SIZE_MAX;
    if (wanted <= *capacity)
        return items;
    larger = larger < LEAST ? LEAST : larger;
    larger = larger < wanted ? wanted : larger;
    void *grown = larger <= SIZE_MAX / item_bytes ? fa2i_realloc(items, larger * item_bytes) : NULL;
    if (grown != NULL)
        *capacity = larger;
    return grown;
}

char *fa2i_strdup(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = fa2i_alloc(bytes);
    if (copy != NULL)
        memcpy(copy, text, bytes);
    return copy;
}

void fa2i_free(void *block)
{
    free(block);
}

long fa2i_alloc_fail_at(long nth)
{
    const long made = atomic_exchange_explicit(&requests, 0, memory_order_relaxed);
    atomic_store_explicit(&fail_at, nth, memory_order_relaxed);
    return made;
}
