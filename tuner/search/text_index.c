/*
 * Open addressing with linear probing. The table is at most half full, so that every probe ends.
 */
#include "tuner/search/text_index.h"

#include <stdint.h>
#include <string.h>
#include "runtime/base/alloc.h"

enum { FIRST_SLOTS = 256 }; /* a power of two, like all sizes */

static uint64_t hash_of(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return hash ^ hash >> 32;
}

/* Returns the slot of a text: the one that holds it, or a free one. There must be a free slot. */
static size_t *slot_of(const fa2i_text_index *index, const void *of, const char *text)
{
    const size_t mask = index->slot_count - 1;
    size_t i = (size_t)hash_of(text) & mask;
    while (index->slots[i] != 0 && strcmp(index->text_at(of, index->slots[i] - 1), text) != 0)
        i = (i + 1) & mask;
    return &index->slots[i];
}

static fa2_status grow(fa2i_text_index *index, const void *of)
{
    fa2i_text_index grown = *index;
    grown.slot_count = index->slot_count == 0 ? FIRST_SLOTS : 2 * index->slot_count;
    grown.slots = fa2i_alloc_array(grown.slot_count, sizeof *grown.slots);
    if (grown.slots == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for an index of %zu texts", index->count);
    for (size_t i = 0; i < index->slot_count; i++)
        if (index->slots[i] != 0)
            *slot_of(&grown, of, index->text_at(of, index->slots[i] - 1)) = index->slots[i];
    fa2i_free(index->slots);
    *index = grown;
    return FA2_OK;
}

ptrdiff_t fa2i_text_index_find(const fa2i_text_index *index, const void *of, const char *text)
{
    return index->slot_count == 0 ? FA2I_NO_PLACE : (ptrdiff_t)*slot_of(index, of, text) - 1;
}

fa2_status fa2i_text_index_add(fa2i_text_index *index, const void *of, size_t place)
{
    if (2 * (index->count + 1) > index->slot_count) {
        const fa2_status st = grow(index, of);
        if (st != FA2_OK)
            return st;
    }
    *slot_of(index, of, index->text_at(of, place)) = place + 1;
    index->count++;
    return FA2_OK;
}

void fa2i_text_index_done(fa2i_text_index *index)
{
    fa2i_free(index->slots);
    index->slots = NULL;
    index->slot_count = index->count = 0;
}
