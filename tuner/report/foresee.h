/*
 * What the runtime would decide for a problem on a card, without compiling, loading or launching: the same
 * choice (runtime/plan/choose.h), where trying a kernel is to look whether its code is in the database and
 * sound, or whether it can be compiled here. Not foreseen: a driver that refuses a kernel, and how a
 * kernel turns out that was never compiled.
 *
 * Times in us. Errors: FA2_E_UNSUPPORTED when no family serves the problem on the card's SM; those of the
 * database and the generator. Not thread-safe.
 */
#ifndef FA2I_FORESEE_H
#define FA2I_FORESEE_H

#include "runtime/plan/choose.h"

typedef struct fa2i_foreseen {
    fa2i_decision decision;
    fa2_problem asked;    /* for which kernels were ranked: itself, or fa2i_problem_asked of it */
    fa2i_variant variant; /* the kernel; cost_us is the model's time for the problem */
    fa2i_key key;         /* of that record; zeros if it is not in the database */
    bool compiled;        /* its code is in the database, and sound; else it would be compiled */
    bool lost;            /* it is a kernel of the database, and that code is lost */
    char lost_winner
        [FA2I_VARIANT_CHARS]; /* the problem's on this SM, this card's before others, whose code is
                                           * lost or damaged; "": none, or it is the kernel */
    int registers, spill_bytes; /* if the database has a record of it; else 0 */
    fa2i_option *options;       /* every kernel that was considered, the best first; owned */
    size_t option_count;
} fa2i_foreseen;

/* For problems on a card: what the database knows of an operation is read once. The generator learns it, and
 * must not learn from another database, or for another card, meanwhile. */
typedef struct fa2i_foresight {
    fa2i_generator *generator; /* borrowed */
    fa2i_cache *cache;         /* borrowed; NULL: there is no database */
    fa2i_card card;
    char *share; /* owned: the folder of what comes with fa2, as for a context; NULL: none */
    bool learnt[FA2I_OPS];
    fa2i_evidence evidence[FA2I_OPS]; /* owned */
} fa2i_foresight;

/* Of a context without database; with one, what comes with fa2 counts, too (fa2i_foresight_find_share). */
void fa2i_foresight_init(fa2i_foresight *foresight, fa2i_generator *generator, fa2i_cache *cache,
                         const fa2i_card *card);
fa2_status fa2i_foresight_find_share(fa2i_foresight *foresight);
void fa2i_foresight_done(fa2i_foresight *foresight); /* zeroed objects are fine */

/* On FA2_OK *ret_foreseen belongs to the caller (fa2i_foreseen_done). */
fa2_status fa2i_foresee(fa2i_foresight *foresight, const fa2_problem *problem,
                        fa2i_foreseen *ret_foreseen);
void fa2i_foreseen_done(fa2i_foreseen *foreseen); /* zeroed objects are fine */

#endif
