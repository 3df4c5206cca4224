/*
 * The library allocates host memory only by these functions. Test builds make the Nth request fail
 * (fa2i_alloc_fail_at), so that every out-of-memory path runs. Thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include "runtime/base/status.h"

/* Returns zeroed memory, or NULL. bytes == 0 gives a valid pointer. The caller frees it. */
void *fa2i_alloc(size_t bytes);

/* Returns count * size zeroed bytes, or NULL if that overflows or memory is short. */
void *fa2i_alloc_array(size_t count, size_t size);

/* Grows or shrinks a block. New bytes are not zeroed. On NULL the old block is untouched. */
void *fa2i_realloc(void *block, size_t bytes);

/* Returns an array with room for `wanted` items (at least 1): items itself or its replacement. If it had to grow,
 * *capacity becomes larger, at least twice as large; 0 means that there is no array yet. New items are not zeroed.
 * Returns NULL if the size overflows or memory is short; then array and capacity are unchanged. */
void *fa2i_room_for(void *items, size_t wanted, size_t *capacity, size_t item_bytes);

/* FA2I_NEW sets a pointer to an array of zeroed items; on failure it is NULL. FA2I_GROW makes room as fa2i_room_for does;
 * on failure array and capacity are unchanged. Both fail with FA2_E_MEMORY. Inline, because a message needs memory, too:
 * status.c stands above alloc.c. */
#define FA2I_NEW(pointer, count)           fa2i_new(&(pointer), count, sizeof *(pointer))
#define FA2I_GROW(array, wanted, capacity) fa2i_grow(&(array), wanted, &(capacity), sizeof *(array))

static inline fa2_status fa2i_new(void *ret_pointer, size_t count, size_t item_bytes)
{
    void *block = fa2i_alloc_array(count, item_bytes);
    memcpy(ret_pointer, &block, sizeof block);
    return block != NULL ? FA2_OK : fa2i_fail(FA2_E_MEMORY, "no memory for %zu x %zu bytes", count, item_bytes);
}

static inline fa2_status fa2i_grow(void *array, size_t wanted, size_t *capacity, size_t item_bytes)
{
    void *items = NULL;
    memcpy(&items, array, sizeof items);
    items = fa2i_room_for(items, wanted, capacity, item_bytes);
    if (items == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for %zu x %zu bytes", wanted, item_bytes);
    memcpy(array, &items, sizeof items);
    return FA2_OK;
}

/* Returns a copy of a string, or NULL. */
char *fa2i_strdup(const char *text);

void fa2i_free(void *block); /* NULL is fine */

/* For an allocator that cuts blocks from larger ones: counts one more request. true: it must fail. */
bool fa2i_alloc_is_refused(void);

/* Let the nth request from now on fail (1 = the next one), and only that one; 0 turns it off. For
 * tests. Returns how many requests were made since the last call. */
long fa2i_alloc_fail_at(long nth);
