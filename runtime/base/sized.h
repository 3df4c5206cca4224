/*
 * Structs of callers that begin with their size, because the caller may have been built with another version of fa2.h.
 * Thread-safe.
 *
 * A new member of such a struct must not fill padding at its end, because an older program has any bytes there.
 */
#pragma once

#include <string.h>
#include "runtime/base/status.h"

/* The structs of later versions may be longer by this many bytes. */
enum { FA2I_NEWER_BYTES = 1024 };

typedef struct fa2i_sized {
    const char *name, *type; /* for messages */
    size_t least;            /* bytes of the members that every program has */
    size_t bytes;            /* sizeof(the struct) in this library */
} fa2i_sized;

extern const fa2i_sized fa2i_sized_problem, fa2i_sized_config, fa2i_sized_forward_args, fa2i_sized_backward_args,
    fa2i_sized_merge_args, fa2i_sized_explanation, fa2i_sized_counters;

/* Fails with FA2_E_INVALID if no version of the struct has this size. */
fa2_status fa2i_sized_check(const fa2i_sized *as, size_t struct_bytes);

/* The part of fa2i_sized_read for structs of another size. */
fa2_status fa2i_sized_convert(const fa2i_sized *as, const void *given, void *copy, const void **ret_struct);

/* Gives a struct of this library's size with the caller's members. *ret_struct is the caller's own struct, or `copy`,
 * which has room for as->bytes. Members that the caller's struct lacks are 0. Fails with FA2_E_INVALID on NULL, on a
 * size that no version has, and if a member that this library does not know is not 0. Inline, because each call of the
 * library begins with it. */
static inline fa2_status fa2i_sized_read(const fa2i_sized *as, const void *given, void *copy, const void **ret_struct)
{
    size_t struct_bytes = 0;
    if (given != NULL)
        memcpy(&struct_bytes, given, sizeof struct_bytes);
    *ret_struct = given;
    return struct_bytes == as->bytes ? FA2_OK : fa2i_sized_convert(as, given, copy, ret_struct);
}

/* The same for a problem. *problem is the caller's pointer, and is replaced. */
static inline fa2_status fa2i_sized_problem_read(const fa2_problem **problem, fa2_problem *copy)
{
    const void *read = NULL;
    const fa2_status st = fa2i_sized_read(&fa2i_sized_problem, *problem, copy, &read);
    *problem = read;
    return st;
}
