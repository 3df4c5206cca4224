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

/* The text at a place; of: what the caller of find or add gave it, such as the array or what holds it. Borrowed: it is
 * compared before the function that asked for it returns, and not kept. Of a place that was added it is the same text
 * each time, wherever the array has moved to. Asked for places that were added, and for the one that is being added. */
typedef const char *fa2i_text_at(const void *of, size_t place);

/* The caller sets text_at of an index that is zero otherwise, before anything is added. */
typedef struct fa2i_text_index {
    fa2i_text_at *text_at;
    size_t *slots; /* owned: a place + 1; 0: none */
    size_t slot_count, count;
} fa2i_text_index;

/* The place of a text, or FA2I_NO_PLACE. */
ptrdiff_t fa2i_text_index_find(const fa2i_text_index *index, const void *of, const char *text);

/* Add a place, whose text no place in the index has. */
fa2_status fa2i_text_index_add(fa2i_text_index *index, const void *of, size_t place);

void fa2i_text_index_done(fa2i_text_index *index); /* zeroed objects are fine */

#endif
