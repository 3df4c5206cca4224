/*
 * The scripts and templates of one generator: those embedded in the library, each replaced by the
 * file of the same name in the first folder of $FA2_GEN_PATH that has one, plus the files that only
 * those folders have. A folder is laid out like the source tree: gen/NAME.lua, templates/NAME.cu.in,
 * templates/NAME.def and what reports are made of, also in folders below.
 *
 * All is read at once, so a generator never sees a file change under it, and its id is the hash of
 * what it really uses. Immutable after open: safe from any thread.
 */
#ifndef FA2I_GENERATOR_FILES_H
#define FA2I_GENERATOR_FILES_H

#include "runtime/base/record.h"

typedef struct fa2i_generator_file {
    char *name;       /* owned; "gen/init.lua" */
    const char *data; /* of an asset, or owned */
    char *owned;      /* data when it was read from a file; NULL for an asset */
    size_t bytes;
} fa2i_generator_file;

typedef struct fa2i_generator_files {
    fa2i_generator_file *items; /* sorted by name (strcmp) */
    size_t count, capacity;
} fa2i_generator_files;

/* Read everything. FA2_E_GENERATOR when a folder of $FA2_GEN_PATH has neither gen/ nor templates/;
 * FA2_E_IO when a file cannot be read. *ret_files must be zeroed; it is the caller's
 * (fa2i_generator_files_done), also after an error. */
fa2_status fa2i_generator_files_open(fa2i_generator_files *ret_files);
void fa2i_generator_files_done(fa2i_generator_files *files); /* zeroed objects are fine */

/* Whether all are the library's own: $FA2_GEN_PATH has none. */
bool fa2i_generator_files_are_own(const fa2i_generator_files *files);

/* NULL when there is none of that name. Borrowed. */
const fa2i_generator_file *fa2i_generator_files_find(const fa2i_generator_files *files,
                                                     const char *name);

/* A hash of the files that fa2i_generator_files_open would read. Without $FA2_GEN_PATH the build made it, and no file
 * is read. */
fa2_status fa2i_generator_files_find_hash(fa2i_key *ret_key);

/* Hash of all names and contents, but for gen/report/ and templates/report/. */
fa2_status fa2i_generator_files_key(const fa2i_generator_files *files, fa2i_key *ret_key);

#endif
