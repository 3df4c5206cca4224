/*
 * Where in an array of somebody's a text is: a hash table of places, so that of many variants each is found
 * without a look at all the others.
 *
 * The array may grow and move: it is asked for the text of a place through a function. Errors: FA2_E_MEMORY,
 * and the index is as before. Not thread-safe.
 */
#ifndef FA2I_TEXT_INDEX_H
#define FA2I_TEXT_INDEX_H

#include <stddef.h>
#include "fa2.h"

enum { FA2I_NO_PLACE = -1 };

/* The text at a place of what the index is of; it stays as it is while it is in the index. */
typedef const char *fa2i_text_at(const void *of, size_t place);

typedef struct fa2i_text_index {
    fa2i_text_at *text_at;
    size_t *slots; /* owned: a place + 1; 0: none */
    size_t slot_count, count;
} fa2i_text_index;

/* The place of a text, or FA2I_NO_PLACE. */
ptrdiff_t fa2i_text_index_find(const fa2i_text_index *index, const void *of, const char *text);

/* Add a place, whose text is in the index at none. */
fa2_status fa2i_text_index_add(fa2i_text_index *index, const void *of, size_t place);

void fa2i_text_index_done(fa2i_text_index *index); /* zeroed objects are fine */

#endif
