/*
 * What the runtime would decide for a problem on a card, without compiling, loading or launching: by the runtime's
 * own planner, as one that foresees (runtime/plan/planner_state.h). Not foreseen: a driver that refuses code, which
 * would have to be asked, on the device; and how a kernel turns out that was never compiled. Of a software device it is
 * known that it takes PTX alone.
 *
 * Times in us. Errors: that a call would fail is no error; those of the generator are. Not thread-safe.
 */
#ifndef FA2I_FORESEE_H
#define FA2I_FORESEE_H

#include "runtime/plan/planner.h"

/* What would come of trying a kernel. */
typedef struct fa2i_fate {
    bool usable;
    bool code;                /* the database has its code, and it is sound */
    bool damaged;             /* the database has its code, and it is not sound */
    bool refuted;             /* verification failed */
    char why[FA2I_WHY_CHARS]; /* unless usable: for people */
} fa2i_fate;

typedef struct fa2i_foreseen {
    /* The call's. FA2_OK; else it fails, and there is no decision. FA2_E_UNSUPPORTED without options: no family serves
     * the problem on the card's SM. */
    fa2_status status;
    char message[FA2I_MESSAGE_BYTES]; /* with these words */
    /* As if there were NVRTC: the card is not of this machine, and it takes one to have a kernel. */
    bool supposed;
    fa2i_decision decision;
    fa2i_runner_up runner_up;
    fa2_problem asked;    /* for which kernels were ranked: itself, or fa2i_problem_asked of it */
    fa2i_variant variant; /* the kernel; cost_us is the model's time for the problem */
    fa2i_key key;         /* of that record; zeros if it is not in the database */
    bool compiled;        /* its code is in the database, and sound; else it would be compiled */
    bool lost;            /* it is a kernel of the database, and that code is lost */
    bool refused;         /* likewise, and the driver takes no such code */
    int registers, spill_bytes; /* if the database knows them; else 0: PTX has no registers yet */
    fa2i_option *options;       /* every kernel that was considered, the best first; owned */
    size_t option_count;
    fa2i_fate *fates; /* of each option; owned; NULL until fa2i_foresee_fates */
} fa2i_foreseen;

/* For problems on a card. The generator learns what the database knows, and must not learn from another database, or
 * for another card, meanwhile. At one address from fa2i_foresight_init on. */
typedef struct fa2i_foresight {
    fa2i_generator *generator; /* borrowed */
    fa2i_device device;        /* its card, and no device */
    fa2i_planner planner;
    bool here; /* by fa2i_foresight_be_here */
    /* What a machine with NVRTC knows, as it decides otherwise; created when that is first asked; owned. */
    fa2i_generator *supposing;
    bool told_unknown[FA2I_OPS];
} fa2i_foresight;

/* Of a context without what comes with fa2; that counts, too, with fa2i_foresight_find_share. cache: borrowed; NULL:
 * there is no database. path: where it is, or would be; NULL: nowhere. FA2_E_MEMORY. */
fa2_status fa2i_foresight_init(fa2i_foresight *foresight, fa2i_generator *generator,
                               fa2i_cache *cache, const char *path, const fa2i_card *card);
fa2_status fa2i_foresight_find_share(fa2i_foresight *foresight);

/* The card is this machine's: what is missing here is missing to the call, and what takes no cubins takes none. */
void fa2i_foresight_be_here(fa2i_foresight *foresight);
void fa2i_foresight_done(fa2i_foresight *foresight); /* zeroed objects are fine */

/* FA2_OK also where the call would fail. On FA2_OK *ret_foreseen belongs to the caller (fa2i_foreseen_done). */
fa2_status fa2i_foresee(fa2i_foresight *foresight, const fa2_problem *problem,
                        fa2i_foreseen *ret_foreseen);
void fa2i_foreseen_done(fa2i_foreseen *foreseen); /* zeroed objects are fine */

/* Look at every option, which takes a millisecond each. */
fa2_status fa2i_foresee_fates(fa2i_foresight *foresight, fa2i_foreseen *foreseen);

#endif
