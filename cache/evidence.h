/*
 * What a database knows of the kernels of an operation on an SM: those that a context may use, and the
 * times that were measured of them, losers' too; from it choices are estimated (gen/core/estimate.lua).
 *
 * Times in us, sizes in bytes. Errors as in cache.h; damaged rows are left out. Pure data otherwise;
 * thread-safe as cache.h.
 */
#ifndef FA2I_CACHE_EVIDENCE_H
#define FA2I_CACHE_EVIDENCE_H

#include "cache/cache.h"

/* A kernel that serves, as far as the rows say: of this version, compiled, refuted nowhere, and failed in no
 * measurement. */
typedef struct fa2i_known_kernel {
    fa2i_key key;
    char text[FA2I_VARIANT_CHARS];
    char class_key[FA2I_CLASS_CHARS];
    char generator[17]; /* hash of the scripts and templates that it was made by */
    int registers;
    bool spilled;
    bool is_known_to_spill; /* so, or it is PTX of which a driver told it since */
    bool timed;    /* a set of the database has a time of it */
    bool has_code; /* there are bytes; whether they are sound is seen on loading */
    bool shipped;  /* no database has it: shipped.h */
} fa2i_known_kernel;

/* The times of kernels on one problem and one card, measured ones and modelled ones apart. */
typedef struct fa2i_known_set {
    fa2_problem problem;
    fa2i_card card;
    bool real;           /* the card is a device's */
    bool measured;       /* else modelled: by the cost model, or by a software device */
    bool shipped;        /* no database has them: shipped.h */
    size_t first, count; /* of times */
} fa2i_known_set;

typedef struct fa2i_known_time {
    size_t kernel; /* index */
    double us;
} fa2i_known_time;

typedef struct fa2i_evidence {
    fa2i_known_kernel *kernels; /* owned, as are the others */
    fa2i_known_set *sets;
    fa2i_known_time *times;
    size_t kernel_count, set_count, time_count;
} fa2i_evidence;

/* Of an operation whose abi this is (a class's revision is added to it), on a card's SM; without kernels whose
 * shared memory the card does not have. On FA2_OK *ret_evidence belongs to the caller (fa2i_evidence_done). */
fa2_status fa2i_cache_evidence(fa2i_cache *cache, const fa2i_card *card, fa2_op op, int abi,
                               fa2i_evidence *ret_evidence);

/* Make room for so many more. FA2_E_MEMORY, and it is as before. */
fa2_status fa2i_evidence_reserve(fa2i_evidence *evidence, size_t kernels, size_t sets,
                                 size_t times);

void fa2i_evidence_done(fa2i_evidence *evidence); /* zeroed objects are fine */

#endif
