/*
 * The scripts and templates of one generator. They are embedded in the library. A file of the same name in the first
 * folder of $FA2_GEN_PATH that has one replaces the embedded one. Files that only those folders have are added. A
 * folder is laid out like the source tree: gen/NAME.lua, templates/NAME.cu.in, templates/NAME.def and the files of
 * reports, also in subfolders.
 *
 * All files are read at once, so they cannot change while a generator uses them. Its id is the hash of what it really
 * uses. Immutable after opening, and therefore thread-safe.
 */
#pragma once

#include "runtime/base/record.h"

typedef struct fa2i_generator_file {
    char *name;       /* owned; for example "gen/init.lua" */
    const char *data; /* belongs to an asset, or is owned */
    char *owned;      /* data if it was read from a file; NULL for an asset */
    size_t bytes;
} fa2i_generator_file;

typedef struct fa2i_generator_files {
    fa2i_generator_file *items; /* sorted by name (strcmp) */
    size_t count, capacity;
} fa2i_generator_files;

/* Reads everything. *ret_files must be zeroed. The caller frees it (fa2i_generator_files_done), also after an error.
 * FA2_E_GENERATOR: a folder of $FA2_GEN_PATH has neither gen/ nor templates/. FA2_E_IO: a file cannot be read. */
fa2_status fa2i_generator_files_open(fa2i_generator_files *ret_files);
void fa2i_generator_files_done(fa2i_generator_files *files); /* zeroed objects are fine */

/* Returns true if all files are the library's own: $FA2_GEN_PATH has none. */
bool fa2i_generator_files_are_own(const fa2i_generator_files *files);

/* Returns the file of that name, borrowed, or NULL. */
const fa2i_generator_file *fa2i_generator_files_find(const fa2i_generator_files *files, const char *name);

/* Computes a hash of the files that fa2i_generator_files_open would read. Without $FA2_GEN_PATH the build computed it,
 * and no file is read. */
fa2_status fa2i_generator_files_find_hash(fa2i_key *ret_key);

/* Gives the same hash of files that were opened. It covers names and contents, except in tuner/report/. */
fa2_status fa2i_generator_files_key(const fa2i_generator_files *files, fa2i_key *ret_key);
