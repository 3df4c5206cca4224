/*
 * The database for people: rows for list and show, export and import, check and clean-up.
 */
#ifndef FA2I_CACHE_REPORT_H
#define FA2I_CACHE_REPORT_H

#include <stdio.h>
#include "cache/filter.h"

/* One row as text; a NULL value is SQL NULL. Everything is borrowed for the length of the call.
 * Return nonzero to stop, which is no error. It must not use the cache: its mutex is held. */
typedef int (*fa2i_row_fn)(void *user, int columns, const char *const *names,
                           const char *const *values);

/* The view `winners`, ordered by device and problem, and the columns `damaged`: 1 where the winner is damaged,
 * or refers to what is, the code among it; `refuted`: by which outcome a device's verification refuted its kernel,
 * or NULL; and `other_version`: 1 where its kernel is of another version of fa2 (cache/versions.h); here and below.
 * filter: what of it; NULL: all. */
fa2_status fa2i_cache_list_winners(fa2i_cache *cache, const fa2i_filter *filter, fa2i_row_fn row,
                                   void *user);

/* How many of all winners are damaged so; the views leave out those that refer to nothing. */
fa2_status fa2i_cache_damaged_winners(fa2i_cache *cache, size_t *ret_count);

/* The view `measurements` of one problem, and the column `other_version`: every variant tried, fastest first, then the
 * failures. */
fa2_status fa2i_cache_list_measurements(fa2i_cache *cache, const fa2_problem *problem,
                                        const fa2i_filter *filter, fa2i_row_fn row, void *user);

/* The view alone and whole, ordered by device and problem, and within a problem as above. */
fa2_status fa2i_cache_list_all_measurements(fa2i_cache *cache, const fa2i_filter *filter,
                                            fa2i_row_fn row, void *user);

/* The tables device (schema.sql), and session with its device's name and SM and how many measurements are
 * from it, the oldest first. */
fa2_status fa2i_cache_list_devices(fa2i_cache *cache, fa2i_row_fn row, void *user);
fa2_status fa2i_cache_list_sessions(fa2i_cache *cache, fa2i_row_fn row, void *user);

/* The rows of a statement that reads a JSON text, its ?1, and no table. FA2_E_DATABASE: the text is none, or
 * not as the statement has it. */
fa2_status fa2i_cache_list_json(fa2i_cache *cache, const char *sql, const char *json,
                                fa2i_row_fn row, void *user);

/* The winners, and the measurements of these problems, as one JSON array of objects, one object per line, numbers as
 * numbers; without rows an empty one. */
fa2_status fa2i_cache_print_winners_json(fa2i_cache *cache, const fa2i_filter *filter, FILE *out);
fa2_status fa2i_cache_print_measurements_json(fa2i_cache *cache, const fa2_problem *problems,
                                              size_t count, const fa2i_filter *filter, FILE *out);

typedef struct fa2i_export_counts {
    size_t rows;     /* written */
    size_t left_out; /* of the database: damaged, or referring to what is */
} fa2i_export_counts;

/* Devices, parameters, measurements and winners as JSON lines; no code. See the file format in
 * export.c. What is written can be imported: damaged rows are left out. *ret_counts may be NULL. */
fa2_status fa2i_cache_export(fa2i_cache *cache, FILE *file, fa2i_export_counts *ret_counts);

/* Is there a variant of this text, and is this its class? FA2_E_NOT_FOUND: there is none, with the reason.
 * FA2_E_INVALID: it is of another class. It must not use the cache: its mutex is held. */
typedef fa2_status (*fa2i_variant_fn)(void *user, const fa2i_variant *variant);

/* What became of the rows of an export. */
typedef struct fa2i_import_counts {
    size_t rows;          /* of the file: the sum of those below */
    size_t fresh;         /* new here */
    size_t known;         /* here already, and left as they are */
    size_t verifications; /* not taken */
    size_t passed_over;   /* kernels of unknown variants, and what is about them */
    size_t unknown;       /* these kernels */
    char first_unknown[FA2I_MESSAGE_BYTES]; /* why the first of them is */
} fa2i_import_counts;

/* Read what export wrote. All or nothing: a bad line is FA2_E_INVALID naming its number and what is
 * wrong, as is a file that was cut or changed, and nothing is kept. Kernels come without images and
 * unverified, measurements unsettled: the caller compiles and verifies them. Rows that are here already
 * are kept. name: for messages. variant (may be NULL) is asked about every kernel's: a kernel that it does not
 * find is passed over with its results. *ret_counts may be NULL. */
fa2_status fa2i_cache_import(fa2i_cache *cache, FILE *in, const char *name, fa2i_variant_fn variant,
                             void *user, fa2i_import_counts *ret_counts);

/* Kernels that winners refer to and that have no image, or a damaged one, for compiling; not those
 * that are known not to compile, nor those that no call takes: refuted, or of another version of fa2.
 * *ret_kernels (array of records without images) belongs to the caller: fa2i_kernel_done each, then fa2i_free. */
fa2_status fa2i_cache_kernels_without_image(fa2i_cache *cache, fa2i_kernel **ret_kernels,
                                            size_t *ret_count);

/* Put a kernel, and let everything that refers to old_key refer to it: another compiler version
 * gives an imported kernel another key here. One transaction. Measurements of the old kernel move
 * unsettled, since the code is another, and give way to those that the new one has; verifications
 * do not move; the old record goes. FA2_E_NOT_FOUND when there is no old kernel. */
fa2_status fa2i_cache_rebind_kernel(fa2i_cache *cache, const fa2i_key *old_key,
                                    const fa2i_kernel *kernel);

typedef struct fa2i_cache_health {
    size_t kernels, images, measurements, winners;
    size_t damaged_images; /* not what was sealed */
    size_t faults;         /* rows with a value that cannot be (rules.def) */
    size_t dangling;       /* foreign keys that point nowhere */
    size_t misfits;        /* winners and measurements of a kernel of another class than that of the
                            * problem, or for another SM than the device's, or of another device's
                            * session; and problems that are not of the class in their row */
    size_t without_code;   /* winners that a call could take, whose kernel has no image, or a damaged one */
    size_t other_version;  /* winners of another version of fa2: no call takes them */
    size_t refuted;        /* winners that a device found wrong: no call takes them */
    size_t failed;         /* winners whose own measurement says that they failed */
    bool intact;           /* SQLite's own check */
    bool schema; /* it has what a new file has, and no index, trigger or view was changed */
    char first_problem[600];
} fa2i_cache_health;

/* Read all of it. What is found is in *ret_health, not in the status: a damaged file is FA2_OK with
 * intact == false, and then the counts may be 0, as they are where a column is missing. first_problem says
 * what to do, too. */
fa2_status fa2i_cache_check(fa2i_cache *cache, fa2i_cache_health *ret_health);

/* Is anything damaged? Winners that no call takes are no damage. */
bool fa2i_cache_is_damaged(const fa2i_cache_health *health);

/* Was nothing found? */
bool fa2i_cache_is_healthy(const fa2i_cache_health *health);

typedef struct fa2i_cache_cleanup {
    size_t images;  /* that were damaged, or dropped for the size limit */
    size_t winners; /* that were damaged, or whose kernel does not compile */
    size_t rows;    /* others that were damaged */
    size_t mended;  /* values that were damaged, and are right again, or not known */
    const char *remade; /* what was wrong with the file, if opening it made it anew; borrowed from the cache; or NULL */
    int64_t bytes_freed;
} fa2i_cache_cleanup;

/* The size limit of a file that has none of its own (cache/size_limit.h). */
#define FA2I_FILE_BYTES ((int64_t)256 << 20)

/* Give the file a size limit of its own. It holds when the next kernel is stored. */
fa2_status fa2i_cache_set_limit(fa2i_cache *cache, int64_t bytes);

/* Mend what fa2i_cache_check finds wrong (cache/mend.h), and drop the rows that cannot be mended. Winners whose code
 * alone is lost stay: the caller makes it again (tuner/search/recompile.h). Then drop losers' code until the file has
 * at most most_bytes (-1: its own limit), code that was used longest ago first, and compact the file. All indexes are
 * made anew, because SQLite's check does not notice all that can be wrong in one. Opening the file
 * with FA2I_CACHE_REPAIR made it anew if its pages or indexes were damaged (cache/remake.h), and made tables and views
 * that were missing. Measurements stay, so that tuning again is quick. */
fa2_status fa2i_cache_gc(fa2i_cache *cache, int64_t most_bytes, fa2i_cache_cleanup *ret_cleanup);

#endif
