/*
 * The library allocates host memory only by these functions. Test builds make the Nth request fail
 * (fa2i_alloc_fail_at), so that every out-of-memory path runs. Thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

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

/* Returns a copy of a string, or NULL. */
char *fa2i_strdup(const char *text);

void fa2i_free(void *block); /* NULL is fine */

/* For an allocator that cuts blocks from larger ones: counts one more request. true: it must fail. */
bool fa2i_alloc_is_refused(void);

/* Let the nth request from now on fail (1 = the next one), and only that one; 0 turns it off. For
 * tests. Returns how many requests were made since the last call. */
long fa2i_alloc_fail_at(long nth);
