/*
 * The database for people: rows for list and show, export and import, check and clean-up.
 */
#pragma once

#include <stdio.h>
#include "cache/content/filter.h"

/* Receives one row as text; a NULL value is SQL NULL. The arguments are borrowed for the length of the call. Return
 * nonzero to stop, which is no error. The function must not use the cache, because its mutex is held. */
typedef int (*fa2i_row_fn)(void *user, int columns, const char *const *names, const char *const *values);

/* For such a function: returns the value of a column; NULL: there is no such column. */
const char *fa2i_row_value(int columns, const char *const *names, const char *const *values, const char *name);

/* Such a function: sets the bool that user points to, and stops, because there is a row. */
int fa2i_row_note(void *user, int columns, const char *const *names, const char *const *values);

/* List the view `winners`, ordered by device and problem, with three more columns:
 *
 *     damaged         1 if the winner, its kernel's code or another row that it refers to is damaged
 *     refuted         the outcome by which a device's verification refuted its kernel, or NULL
 *     other_version   1 if its kernel is of another version of fa2 (cache/database/versions.h)
 *
 * filter, here and below: the rows to list; NULL: all. */
fa2_status fa2i_cache_list_winners(fa2i_cache *cache, const fa2i_filter *filter, fa2i_row_fn row, void *user);

/* Count damaged winners among all. The views leave out winners whose references lead to no row. */
fa2_status fa2i_cache_damaged_winners(fa2i_cache *cache, size_t *ret_count);

/* List the view `measurements` of one problem, and the column `other_version`: every variant tried, fastest first, then
 * the failures. */
fa2_status fa2i_cache_list_measurements(fa2i_cache *cache, const fa2_problem *problem, const fa2i_filter *filter,
                                        fa2i_row_fn row, void *user);

/* List the whole view, without further columns, ordered by device and problem, and within a problem as above. */
fa2_status fa2i_cache_list_all_measurements(fa2i_cache *cache, const fa2i_filter *filter, fa2i_row_fn row, void *user);

/* List the table device (schema.sql), or the table session, the oldest first. A device without results for whose SM
 * kernels did not compile has the reason as `uncompiled`, the others NULL. A session's row also has its device's
 * name and SM, and the number of its measurements. */
fa2_status fa2i_cache_list_devices(fa2i_cache *cache, fa2i_row_fn row, void *user);
fa2_status fa2i_cache_list_sessions(fa2i_cache *cache, fa2i_row_fn row, void *user);

/* List the rows of a statement that reads no table, only a JSON text, its ?1. FA2_E_DATABASE: the text is not JSON, or
 * does not have the form that the statement expects. */
fa2_status fa2i_cache_list_json(fa2i_cache *cache, const char *sql, const char *json, fa2i_row_fn row, void *user);

/* Print the winners of these databases, or the measurements of these problems, as one JSON array of objects, one object
 * per line, with numbers as numbers. The member database is a row's file. A problem without measurements has its
 * winners' objects. Without rows the array is empty. */
fa2_status fa2i_cache_print_winners_json(fa2i_cache *const *caches, size_t count, const fa2i_filter *filter, FILE *out);
fa2_status fa2i_cache_print_measurements_json(fa2i_cache *cache, const fa2_problem *problems, size_t count,
                                              const fa2i_filter *filter, FILE *out);

typedef struct fa2i_export_counts {
    size_t rows;      /* written */
    size_t left_out;  /* rows of the database that are damaged, or refer to damaged ones */
    size_t with_code; /* kernels whose code was written */
} fa2i_export_counts;

/* Write devices, parameters, measurements and winners as JSON lines, without code. export.c describes the format.
 * Damaged rows are left out, so that import accepts the file. *ret_counts may be NULL. */
fa2_status fa2i_cache_export(fa2i_cache *cache, FILE *file, fa2i_export_counts *ret_counts);

/* The same, with the code of kernels that calls take, for other machines of the same owner. */
fa2_status fa2i_cache_export_with_code(fa2i_cache *cache, FILE *file, fa2i_export_counts *ret_counts);

/* Checks that a variant with this text exists, and that this is its class. FA2_E_NOT_FOUND: it does not exist, and the
 * message says why. FA2_E_INVALID: it is of another class. The function must not use the cache, because its mutex is
 * held. */
typedef fa2_status (*fa2i_variant_fn)(void *user, const fa2i_variant *variant);

/* The numbers of rows by what import did with them. */
typedef struct fa2i_import_counts {
    size_t rows;                  /* of the file: the sum of fresh, known, verifications, passed_over and code_rows */
    size_t fresh;                 /* new here */
    size_t known;                 /* already here; left as they are */
    size_t verifications;         /* not imported */
    size_t passed_over;           /* kernels of unknown variants, and rows that refer to them */
    size_t unknown;               /* kernels of unknown variants */
    size_t code_rows;             /* lines of code */
    size_t code_taken, code_left; /* kernels whose code was new here and stored, or was not trusted */
    char first_unknown[FA2I_MESSAGE_BYTES]; /* why the first of them is unknown */
} fa2i_import_counts;

/* Read a file that export wrote, all or nothing. FA2_E_INVALID: a line is bad (the message has its number and the
 * fault), or the file was cut or changed; then nothing is kept. Kernels come without images and verifications, and
 * measurements come unsettled: the caller compiles and verifies the kernels. Rows that exist here are kept. name: for
 * messages. variant (may be NULL) is asked about every kernel's variant. A kernel of an unknown variant is passed over
 * with its results. *ret_counts may be NULL. */
fa2_status fa2i_cache_import(fa2i_cache *cache, FILE *in, const char *name, fa2i_variant_fn variant, void *user,
                             fa2i_import_counts *ret_counts);

/* The same, and takes the file's code. in is a regular file of this user or of root that no other user can write, else
 * FA2_E_DATABASE or FA2_E_INVALID. Code that does not match its seal refuses the file. */
fa2_status fa2i_cache_import_trusted(fa2i_cache *cache, FILE *in, const char *name, fa2i_variant_fn variant, void *user,
                                     fa2i_import_counts *ret_counts);

/* Get kernels that winners refer to and whose image is missing or damaged, for compiling. Kernels that are known not to
 * compile are left out. Kernels that no call takes are left out, too: they were refuted, or are of another version of
 * fa2. *ret_kernels (array of records without images) belongs to the caller: fa2i_kernel_done each, then fa2i_free. */
fa2_status fa2i_cache_kernels_without_image(fa2i_cache *cache, fa2i_kernel **ret_kernels, size_t *ret_count);

/* Put a kernel, and let all rows that refer to old_key refer to it, in one transaction. An imported kernel gets another
 * key here if the compiler version differs. Measurements of the old kernel move and become unsettled, because the code
 * is different; if the new kernel has its own, these stay instead. Verifications do not move. The old record is
 * deleted. FA2_E_NOT_FOUND: there is no old kernel. */
fa2_status fa2i_cache_rebind_kernel(fa2i_cache *cache, const fa2i_key *old_key, const fa2i_kernel *kernel);

typedef struct fa2i_cache_health {
    size_t kernels, images, measurements, winners;
    size_t damaged_images; /* images that do not match their seal */
    size_t faults;         /* rows with an impossible value (rules.def) */
    size_t dangling;       /* foreign keys that lead to no row */
    size_t misfits;        /* rows that do not fit together: winners and measurements of a kernel of another class than
                            * the problem's, for another SM than the device's, or of another device's session; problems
                            * whose row has another class than their fields */
    size_t without_code;   /* winners that a call could take, but whose kernel's image is missing or damaged */
    size_t other_version;  /* winners of another version of fa2: no call takes them */
    size_t refuted;        /* winners that a device found wrong: no call takes them */
    size_t failed;         /* winners whose own measurement failed */
    bool intact;           /* SQLite's own check found nothing */
    bool schema;           /* all objects of a new file exist, and no index, trigger or view was changed */
    char first_problem[600];
} fa2i_cache_health;

/* Check the whole database. Findings are in *ret_health, not in the status: a damaged file is FA2_OK with intact ==
 * false. Then the counts may be 0; they are also 0 where a column is missing. first_problem also says what to do. */
fa2_status fa2i_cache_check(fa2i_cache *cache, fa2i_cache_health *ret_health);

/* Is anything damaged? Winners that no call takes do not count as damage. */
bool fa2i_cache_is_damaged(const fa2i_cache_health *health);

/* Did the check find nothing? */
bool fa2i_cache_is_healthy(const fa2i_cache_health *health);

typedef struct fa2i_cache_cleanup {
    size_t images;      /* damaged, or dropped for the size limit */
    size_t winners;     /* damaged, or their kernel does not compile */
    size_t rows;        /* other damaged rows that were dropped */
    size_t mended;      /* damaged values that were restored or set to "not known" */
    const char *remade; /* why opening made the file anew; NULL: it did not; borrowed from the cache */
    int64_t bytes_freed;
} fa2i_cache_cleanup;

/* The size limit of a file that has none of its own (cache/content/size_limit.h). */
#define FA2I_FILE_BYTES ((int64_t)256 << 20)

/* Give the file a size limit of its own. It holds when the next kernel is stored. */
fa2_status fa2i_cache_set_limit(fa2i_cache *cache, int64_t bytes);

/* Mend what fa2i_cache_check finds wrong (database/mend.h), and drop the rows that cannot be mended. Winners whose code
 * alone is lost stay: the caller makes it again (tuner/search/recompile.h). Then drop losers' code until the file has
 * at most most_bytes (-1: its own limit), code that was used longest ago first, and compact the file. All indexes are
 * made anew, because SQLite's check does not notice all that can be wrong in one. Opening the file
 * with FA2I_CACHE_REPAIR made it anew if its pages or indexes were damaged (database/remake.h), and made tables and
 * views that were missing. Measurements stay, so that tuning again is quick. */
fa2_status fa2i_cache_gc(fa2i_cache *cache, int64_t most_bytes, fa2i_cache_cleanup *ret_cleanup);
