/*
 * Where a command writes a file for its user, and reads one.
 *
 * - Only a file of the command's own kind is ever replaced, and never by half of another;
 * - a device or a pipe is written to as it is, and stays, also behind a link.
 *
 * Errors: FA2_E_IO, FA2_E_INVALID, naming the file and what to do. Not thread-safe.
 */
#ifndef FA2I_PLACE_H
#define FA2I_PLACE_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include "runtime/base/status.h"

enum { FA2I_PLACE_START_MAX = 64 };

/* A kind of file. Of two kinds that begin alike one has lines that begin with the mark, and the other has none. */
typedef struct fa2i_place_kind {
    const char *name;  /* "an export" */
    const char *start; /* what such a file begins with: at most FA2I_PLACE_START_MAX bytes */
    const char *mark;  /* NULL: no other kind begins so */
    bool marked;       /* this one has the lines */
    const char *other; /* the name of the one that has not, or has */
} fa2i_place_kind;
extern const fa2i_place_kind
    fa2i_place_export; /* what fa2i_cache_export writes, and nothing behind it */
extern const fa2i_place_kind
    fa2i_place_field_report; /* an export with the lines of tuner/bench/field.h behind */

typedef struct fa2i_destination {
    const char *path; /* borrowed; "-" is standard output */
    bool stream;      /* written to as it is */
    bool replaces;    /* a file of that kind */
    mode_t mode;      /* of what is replaced */
} fa2i_destination;

/* What is at the path, and may it be written? To be asked while no database is open: closing a file drops the
 * locks that SQLite holds on it. */
fa2_status fa2i_place_look(const char *path, const fa2i_place_kind *kind,
                           fa2i_destination *ret_place);

/* An export, a field report among them, from its beginning; "-" is standard input, and others are the caller's to
 * close. FA2_E_INVALID: there is none, or it is a folder or a database. */
fa2_status fa2i_place_open_export(const char *path, FILE **ret_file);

/* Writes the whole file; FA2_E_IO without the file's name. */
typedef fa2_status (*fa2i_place_fill_fn)(void *user, FILE *out);

fa2_status fa2i_place_write(const fa2i_destination *place, fa2i_place_fill_fn write, void *user);

#endif
