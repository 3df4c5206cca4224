/*
 * Reads the members of one flat JSON object in place: fast, and for lines that this project wrote. For lines from
 * strangers use cache/transfer/members.h, which checks each column.
 *
 * Nothing is copied: an object borrows its text. A NUL must follow the text at some point. In texts, only escaped
 * quotes, backslashes and slashes are accepted. Pure; thread-safe.
 */
#ifndef FA2I_CACHE_FLAT_H
#define FA2I_CACHE_FLAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FA2I_FLAT_MEMBERS_MAX = 96 };

typedef struct fa2i_flat_member {
    const char *name, *value; /* for a text, the value is the part between its quotes */
    size_t name_bytes, value_bytes;
    bool is_text;
} fa2i_flat_member;

typedef struct fa2i_flat {
    fa2i_flat_member members[FA2I_FLAT_MEMBERS_MAX];
    size_t count;
} fa2i_flat;

/* false: the bytes are no object, contain an object within it, or have too many members. */
bool fa2i_flat_read(const char *text, size_t bytes, fa2i_flat *ret_object);

bool fa2i_flat_has(const fa2i_flat *object, const char *name);

/* false: there is no such member, its value has another type, or the text does not fit. A real number is at least 0. */
bool fa2i_flat_integer(const fa2i_flat *object, const char *name, int64_t *ret);
bool fa2i_flat_int(const fa2i_flat *object, const char *name, int *ret);
bool fa2i_flat_real(const fa2i_flat *object, const char *name, double *ret);
bool fa2i_flat_text(const fa2i_flat *object, const char *name, char *out, size_t out_bytes);

#endif
