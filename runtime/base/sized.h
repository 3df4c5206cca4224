/*
 * Structs of callers that begin with their size, because the caller may have been built with another version of fa2.h.
 * Thread-safe.
 *
 * A new member of such a struct does not fill padding at its end: the padding of an older program holds anything.
 */
#ifndef FA2I_BASE_SIZED_H
#define FA2I_BASE_SIZED_H

#include "runtime/base/status.h"

/* Bytes by which the structs of later versions may be longer. */
enum { FA2I_NEWER_BYTES = 1024 };

typedef struct fa2i_sized {
    const char *name, *type; /* for messages */
    size_t least;            /* bytes of the members that every program has */
    size_t bytes;            /* sizeof(the struct) in this library */
} fa2i_sized;

extern const fa2i_sized fa2i_sized_problem, fa2i_sized_config, fa2i_sized_forward_args, fa2i_sized_backward_args,
    fa2i_sized_explanation;

/* Fails with FA2_E_INVALID if no program has a struct of this size. */
fa2_status fa2i_sized_check(const fa2i_sized *as, size_t struct_bytes);

/* Stores a struct of this library's size with the caller's members: the caller's own, or `copy`, which has room for
 * as->bytes. Members that the caller's struct lacks are 0. Fails with FA2_E_INVALID on NULL, on a size that no program
 * has, and if a member that this library does not know is not 0. */
fa2_status fa2i_sized_read(const fa2i_sized *as, const void *given, void *copy, const void **ret_struct);

/* The same for *problem, which the caller's pointer becomes. */
static inline fa2_status fa2i_sized_problem_read(const fa2_problem **problem, fa2_problem *copy)
{
    const void *read = NULL;
    const fa2_status st = fa2i_sized_read(&fa2i_sized_problem, *problem, copy, &read);
    *problem = read;
    return st;
}

#endif
