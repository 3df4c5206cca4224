/*
 * Where a command writes a file for its user, and reads one.
 *
 * - It replaces only files of its own kind, and always whole.
 * - It writes directly to a device or a pipe, also through a link, and leaves it in place.
 *
 * Errors: FA2_E_IO and FA2_E_INVALID name the file and what to do. Not thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include "runtime/base/status.h"

enum { FA2I_PLACE_START_MAX = 64 };

/* A kind of file. Two kinds may begin alike: one has lines that begin with the mark, the other has not. */
typedef struct fa2i_place_kind {
    const char *name;  /* "an export" */
    const char *start; /* how such a file begins: at most FA2I_PLACE_START_MAX bytes */
    const char *mark;  /* NULL: no other kind begins like this */
    bool marked;       /* this kind has such lines */
    const char *other; /* the name of the other kind */
} fa2i_place_kind;
extern const fa2i_place_kind fa2i_place_export;       /* written by fa2i_cache_export, and nothing after it */
extern const fa2i_place_kind fa2i_place_field_report; /* an export, followed by the lines of tuner/bench/field.h */

typedef struct fa2i_destination {
    const char *path; /* borrowed; "-" is standard output */
    bool stream;      /* a device or a pipe: written to directly */
    bool replaces;    /* there is a file of that kind */
    mode_t mode;      /* of the file that is replaced */
} fa2i_destination;

/* Checks what is at the path, and whether it may be written. Call it while no database is open, because closing a file
 * drops the locks that SQLite holds on it. */
fa2_status fa2i_place_look(const char *path, const fa2i_place_kind *kind, fa2i_destination *ret_place);

/* Opens an export, or a field report, at its beginning. "-" is standard input; the caller closes any other file.
 * FA2_E_INVALID: there is no such file, or it is a folder or a database. */
fa2_status fa2i_place_open_export(const char *path, FILE **ret_file);

/* Writes the whole file. Its FA2_E_IO messages lack the file's name. */
typedef fa2_status (*fa2i_place_fill_fn)(void *user, FILE *out);

fa2_status fa2i_place_write(const fa2i_destination *place, fa2i_place_fill_fn write, void *user);
