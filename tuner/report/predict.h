/*
 * Predicts the runtime's decision for a problem on a card, without compiling, loading or launching. It uses the
 * runtime's own planner in its predicting mode (runtime/plan/state.h). Two things cannot be predicted:
 * - A driver may refuse code. To know that, the device would have to be asked. A software device is known to take PTX
 *   alone.
 * - A kernel that was never compiled may spill, or fail.
 *
 * Times are in us. If a call would fail, that is no error. Errors of the generator are. Not thread-safe.
 */
#pragma once

#include "runtime/plan/planner.h"

/* The expected result of trying a kernel. */
typedef struct fa2i_fate {
    bool usable;
    bool code;                /* the database has its code, and it is intact */
    bool damaged;             /* the database has its code, and it is damaged */
    bool refuted;             /* it failed its verification */
    char why[FA2I_WHY_CHARS]; /* for people; set unless usable */
} fa2i_fate;

typedef struct fa2i_predicted {
    /* The status of the call. If it is not FA2_OK, there is no decision. FA2_E_UNSUPPORTED without options means that
     * no family serves the problem on the card's SM. */
    fa2_status status;
    char message[FA2I_MESSAGE_BYTES]; /* the message of that failure */
    /* Decided as if NVRTC were here: the card is not of this machine, and the call needs NVRTC to get a kernel. */
    bool supposed;
    fa2i_decision decision;
    fa2i_runner_up runner_up;
    fa2_problem asked;          /* the problem that kernels were ranked for: itself, or fa2i_problem_asked of it */
    fa2i_variant variant;       /* the chosen kernel; cost_us is the model's time for the problem */
    fa2i_key key;               /* of the kernel's record; zeros if it is not in the database */
    bool compiled;              /* its code is in a database and intact; else it would be compiled */
    char *file;                 /* that database; NULL unless compiled, or if another process has dropped it; owned */
    bool lost;                  /* the database has the kernel, but its code is lost */
    bool refused;               /* the database has the kernel, but the driver takes no such code */
    int registers, spill_bytes; /* if the database knows them; else 0, because PTX has no registers yet */
    fa2i_option *options;       /* every kernel that was considered, best first; owned */
    size_t option_count;
    fa2i_fate *fates; /* of each option; owned; NULL until fa2i_predict_fates */
} fa2i_predicted;

/* Predicts problems on one card. The generator learns what the database knows. Meanwhile it must not learn from another
 * database or for another card. After fa2i_predictor_init the struct must not move. */
typedef struct fa2i_predictor {
    fa2i_generator *generator; /* borrowed */
    fa2i_device device;        /* has a card, but no real device */
    fa2i_planner planner;
    bool here; /* set by fa2i_predictor_be_here */
    /* Generator for a machine with NVRTC, which decides differently. Created when it is first needed; owned. */
    fa2i_generator *supposing;
    bool told_unknown[FA2I_OPS];
} fa2i_predictor;

/* Prepares predictions for a context that uses the database alone. fa2i_predictor_find_share adds the records that come
 * with fa2. cache: borrowed; NULL: there is no database. path: where it is or would be; NULL: nowhere. Return
 * FA2_E_MEMORY. */
fa2_status fa2i_predictor_init(fa2i_predictor *predictor, fa2i_generator *generator, fa2i_cache *cache,
                               const char *path, const fa2i_card *card);
fa2_status fa2i_predictor_find_share(fa2i_predictor *predictor);

/* Declares that the card is this machine's. Then what is missing here is missing for the call, and a device that takes
 * no cubins takes none. */
void fa2i_predictor_be_here(fa2i_predictor *predictor);
void fa2i_predictor_done(fa2i_predictor *predictor); /* accepts zeroed objects */

/* Predicts one call. Returns FA2_OK also if the call would fail. On FA2_OK the caller owns *ret_predicted
 * (fa2i_predicted_done). */
fa2_status fa2i_predict(fa2i_predictor *predictor, const fa2_problem *problem, fa2i_predicted *ret_predicted);
void fa2i_predicted_done(fa2i_predicted *predicted); /* accepts zeroed objects */

/* Finds the fate of every option, which takes a millisecond each. */
fa2_status fa2i_predict_fates(fa2i_predictor *predictor, fa2i_predicted *predicted);
