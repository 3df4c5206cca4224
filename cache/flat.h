/*
 * The members of one flat JSON object as they lie in a text: for lines that this project wrote, and in a
 * hurry. Not for strangers' lines, which cache/members.h checks column by column.
 *
 * Nothing is copied: an object borrows its text, which must be NUL-terminated somewhere behind it. Texts are
 * taken whose escapes are those of a quote, a backslash or a slash. Pure; thread-safe.
 */
#ifndef FA2I_CACHE_FLAT_H
#define FA2I_CACHE_FLAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FA2I_FLAT_MEMBERS_MAX = 96 };

typedef struct fa2i_flat_member {
    const char *name, *value; /* a text's value: what is between its quotes */
    size_t name_bytes, value_bytes;
    bool is_text;
} fa2i_flat_member;

typedef struct fa2i_flat {
    fa2i_flat_member members[FA2I_FLAT_MEMBERS_MAX];
    size_t count;
} fa2i_flat;

/* false: the bytes are no object, one within another, or one of more members. */
bool fa2i_flat_read(const char *text, size_t bytes, fa2i_flat *ret_object);

bool fa2i_flat_has(const fa2i_flat *object, const char *name);

/* false: there is no such member, or it is none of these, or the text has no room. A real number is at least 0. */
bool fa2i_flat_integer(const fa2i_flat *object, const char *name, int64_t *ret);
bool fa2i_flat_int(const fa2i_flat *object, const char *name, int *ret);
bool fa2i_flat_real(const fa2i_flat *object, const char *name, double *ret);
bool fa2i_flat_text(const fa2i_flat *object, const char *name, char *out, size_t out_bytes);

#endif
