/*
 * The inside of fa2_attn.Context, shared by two files: context.c has its lifetime and methods, context_launch.c the calls on
 * it. All fields are accessed with the GIL held.
 */
#pragma once

#include "native.h"

/* Device memory that the context allocated itself, for frameworks that lend none. A stream that needs a larger block
 * gets a new one. The old block stays, because the stream may still use it. */
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
    PyObject *log; /* callable, or NULL */
    bool warned_of_rounding;
    bool log_takes_level; /* log is that of _frameworks.py */
    fa2py_prepared prepared;
    fa2py_block *blocks;
};

/* Enclose all work with the handle that releases the GIL. begin returns false, with an exception, if the context is
 * closed or the process was forked. */
bool fa2py_context_begin(fa2py_context *context);
void fa2py_context_end(fa2py_context *context);

/* Prepares a problem without the GIL, and remembers its workspace size. Call it between begin and end. */
bool fa2py_context_prepare(fa2py_context *context, const fa2_problem *problem, size_t *ret_bytes);
