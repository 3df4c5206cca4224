/*
 * Evidence: the kernels of an operation on an SM that a database has and a context may use, and their measured times.
 * The times of losers are included. gen/core/estimate.lua makes estimates from them.
 *
 * Times in us, sizes in bytes. Errors as in cache.h; damaged rows are left out. Pure data otherwise; thread-safe as
 * cache.h.
 */
#pragma once

#include "cache/cache.h"

/* A kernel that is usable, as far as the rows say: it is of this version, compiled, refuted on no device, and no
 * measurement of it failed. */
typedef struct fa2i_known_kernel {
    fa2i_key key;
    char text[FA2I_VARIANT_CHARS];
    char class_key[FA2I_CLASS_CHARS];
    char generator[17]; /* hash of the scripts and templates that made it */
    int registers;
    bool spilled;
    bool is_known_to_spill; /* spilled, or a driver said so later about its PTX */
    bool timed;             /* a set of the database has a time for it */
    bool has_code;          /* there is code; only loading shows if it is intact */
    bool shipped;           /* from a shipped file, not from a database: shipped.h */
} fa2i_known_kernel;

/* The times of kernels on one problem and one card. Measured and modelled times are separate sets. */
typedef struct fa2i_known_set {
    fa2_problem problem;
    fa2i_card card;
    bool real;           /* the card is a device's */
    bool measured;       /* else modelled: by the cost model, or by a software device */
    bool shipped;        /* from a shipped file, not from a database: shipped.h */
    size_t first, count; /* the set's part of `times` */
} fa2i_known_set;

typedef struct fa2i_known_time {
    size_t kernel; /* index in `kernels` */
    double us;
} fa2i_known_time;

typedef struct fa2i_evidence {
    fa2i_known_kernel *kernels; /* owned, like the other arrays */
    fa2i_known_set *sets;
    fa2i_known_time *times;
    size_t kernel_count, set_count, time_count;
} fa2i_evidence;

/* Get the evidence for an operation on a card's SM. abi: the operation's; a class's revision is added to it. Kernels
 * that need more shared memory than the card has are left out. What proxies found (fa2i_card_is_proxy) is evidence for
 * proxies alone. On FA2_OK *ret_evidence belongs to the caller
 * (fa2i_evidence_done). */
fa2_status fa2i_cache_evidence(fa2i_cache *cache, const fa2i_card *card, fa2_op op, int abi,
                               fa2i_evidence *ret_evidence);

/* Make room for this many more items. FA2_E_MEMORY: the evidence is unchanged. */
fa2_status fa2i_evidence_reserve(fa2i_evidence *evidence, size_t kernels, size_t sets, size_t times);

void fa2i_evidence_done(fa2i_evidence *evidence); /* zeroed objects are fine */
