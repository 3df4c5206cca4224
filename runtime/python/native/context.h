/*
 * The inside of fa2.Context, for the two files that know it: context.c, its life and its methods, and
 * context_launch.c, what calls do with it. Everything here is touched with the GIL only.
 */
#ifndef FA2PY_CONTEXT_H
#define FA2PY_CONTEXT_H

#include "native.h"

/* Device memory of ours, for frameworks that lend none. Blocks only grow in number: one that a stream
 * has outgrown may be in use there. */
typedef struct fa2py_block {
    struct fa2py_block *next;
    void *stream;
    uint64_t address;
    size_t bytes;
} fa2py_block;

struct fa2py_context {
    PyObject_HEAD fa2_context *handle; /* NULL: closed */
    int device;
    int users;
    bool closing, captured, is_default;
    PyObject *log; /* callable; NULL: none */
    fa2py_prepared prepared;
    fa2py_block *blocks;
};

/* Around everything that is done with the handle outside the GIL. begin: false, with an exception, of a context that is
 * closed, and in a forked child. */
bool fa2py_context_begin(fa2py_context *context);
void fa2py_context_end(fa2py_context *context);

/* Prepare a problem, outside the GIL, and remember what workspace it needs. Between begin and end. */
bool fa2py_context_prepare(fa2py_context *context, const fa2_problem *problem, size_t *ret_bytes);

#endif
