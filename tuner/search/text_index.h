/*
 * Finds the place of a text in an array that the caller owns. It is a hash table of places, so that finding one variant
 * among many does not look at all the others.
 *
 * The array may grow and move: a function gives the text at a place. Errors: FA2_E_MEMORY, which leaves the index as it
 * was. Not thread-safe.
 */
#pragma once

#include <stddef.h>
#include "fa2.h"

enum { FA2I_NO_PLACE = -1 };

/* Returns the text at a place. of: the argument of find or add, for example the array or the struct that holds it. The
 * text is borrowed: it is compared at once and not kept. For a place that was added it must be the same text each time,
 * wherever the array has moved. It is called for places that were added, and for the one that is being added. */
typedef const char *fa2i_text_at(const void *of, size_t place);

/* The caller sets text_at in a zeroed index before anything is added. */
typedef struct fa2i_text_index {
    fa2i_text_at *text_at;
    size_t *slots; /* owned: a place + 1; 0: free */
    size_t slot_count, count;
} fa2i_text_index;

/* Returns the place of a text, or FA2I_NO_PLACE. */
ptrdiff_t fa2i_text_index_find(const fa2i_text_index *index, const void *of, const char *text);

/* Adds a place. No place in the index may have its text yet. */
fa2_status fa2i_text_index_add(fa2i_text_index *index, const void *of, size_t place);

void fa2i_text_index_done(fa2i_text_index *index); /* accepts zeroed objects */
