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

/* The view `winners`, ordered by device and problem. filter: what of it; NULL: all, here and below. */
fa2_status fa2i_cache_list_winners(fa2i_cache *cache, const fa2i_filter *filter, fa2i_row_fn row,
                                   void *user);

/* The view `measurements` of one problem: every variant tried, fastest first, then the failures. */
fa2_status fa2i_cache_list_measurements(fa2i_cache *cache, const fa2_problem *problem,
                                        const fa2i_filter *filter, fa2i_row_fn row, void *user);

/* The same two as one JSON array of objects, one object per line, numbers as numbers. */
fa2_status fa2i_cache_print_winners_json(fa2i_cache *cache, const fa2i_filter *filter, FILE *out);
fa2_status fa2i_cache_print_measurements_json(fa2i_cache *cache, const fa2_problem *problem,
                                              const fa2i_filter *filter, FILE *out);

/* Devices, parameters, measurements and winners as JSON lines; no code. See the file format in
 * export.c. *ret_rows (may be NULL): the rows written. */
fa2_status fa2i_cache_export(fa2i_cache *cache, FILE *file, size_t *ret_rows);

/* Is there a variant of this text? FA2_E_INVALID with the reason, or another failure. It must not use
 * the cache: its mutex is held. */
typedef fa2_status (*fa2i_variant_fn)(void *user, const char *text);

/* What became of the rows of an export. */
typedef struct fa2i_import_counts {
    size_t rows;          /* of the file: the sum of those below */
    size_t fresh;         /* new here */
    size_t known;         /* here already, and left as they are */
    size_t verifications; /* not taken */
} fa2i_import_counts;

/* Read what export wrote. All or nothing: a bad line is FA2_E_INVALID naming its number and what is
 * wrong, as is a file that was cut or changed, and nothing is kept. Kernels come without images and
 * unverified, measurements unsettled: the caller compiles and verifies them. Rows that are here already
 * are kept. name: for messages. variant (may be NULL) is asked about every kernel's. *ret_counts may be
 * NULL. */
fa2_status fa2i_cache_import(fa2i_cache *cache, FILE *in, const char *name, fa2i_variant_fn variant,
                             void *user, fa2i_import_counts *ret_counts);

/* Kernels that winners refer to and that have no image, for compiling after an import; not those
 * that are known not to compile. *ret_kernels (array of records without images) belongs to the
 * caller: fa2i_kernel_done each, then fa2i_free. */
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
    size_t dangling;       /* foreign keys that point nowhere */
    size_t misfits;        /* winners and measurements of a kernel of another class than that of the
                            * problem, and problems that are not of the class in their row */
    size_t without_code;   /* winners whose kernel has no image, or a damaged one */
    bool intact;           /* SQLite's own check */
    char first_problem[256];
} fa2i_cache_health;

/* Read all of it. What is found is in *ret_health, not in the status: a damaged file is FA2_OK with
 * intact == false, and then the counts may be 0. */
fa2_status fa2i_cache_check(fa2i_cache *cache, fa2i_cache_health *ret_health);

typedef struct fa2i_cache_cleanup {
    size_t images;  /* that no winner used, or that were damaged */
    size_t winners; /* whose kernel has no code, or is of another class */
    size_t rows;    /* others that referred to nothing, or were misfits */
    int64_t bytes_freed;
} fa2i_cache_cleanup;

/* Drop what fa2i_cache_check finds wrong, and images that no winner uses; make the indexes anew, and
 * compact the file. Measurements stay, so that tuning again is quick. */
fa2_status fa2i_cache_gc(fa2i_cache *cache, fa2i_cache_cleanup *ret_cleanup);

#endif
