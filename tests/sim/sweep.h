/*
 * What sweeps share: candidates of cards, compiled, launched on the software device and judged.
 *
 * A variant is compiled once, for the oldest SM among the cards that it runs on, since most of the time is the
 * compiler's. What that takes for granted is checked on a sample: that the other SMs get the same PTX, but for the
 * line that names the SM. Where the compiler places an instruction elsewhere, that card runs its own; there must be
 * few of those. References are kept per class and shape, as the candidates share them; inputs and outputs are made
 * anew for each launch.
 *
 * Right means, per launch: no error of the device; outputs within the bound (tuner/judge/verify.h), nothing outside
 * of them overwritten; no bank conflicts, but where a layout cannot avoid them (forward.c); coalesced fills. What is
 * wrong is told, and counted as a failure. What a sweep cannot go on without ends the program.
 */
#ifndef FA2_SIM_SWEEP_H
#define FA2_SIM_SWEEP_H

#include "runtime/cuda/device.h"
#include "runtime/lua/generator.h"
#include "tests/sim/axes.h"
#include "tests/sim/sweep_shapes.h"
#include "tuner/judge/verify.h"

enum { SWEEP_CARDS_MAX = 8, SWEEP_CANDIDATES_MAX = 2048, SWEEP_EXPECTED_MAX = 4096 };
enum { SWEEP_ALL_SHAPES = (1 << SWEEP_SHAPES) - 1 };

typedef struct sweep_card {
    fa2i_device device;
    long variants, split_variants, team_variants;
    long launches, split_launches, failures;
    long compared, differing; /* PTX made for this SM with that of the oldest */
} sweep_card;

typedef struct sweep_candidate {
    fa2i_variant variant;
    unsigned cards; /* a bit for each whose candidate it is */
} sweep_candidate;

typedef struct sweep {
    fa2i_generator *generator;
    sweep_card cards[SWEEP_CARDS_MAX];
    int card_count;
    sweep_candidate candidates[SWEEP_CANDIDATES_MAX]; /* of the present class */
    size_t candidate_count;
    fa2i_expected expected[SWEEP_EXPECTED_MAX]; /* of the present class */
    size_t expected_count;
    long failures; /* launches that were wrong */
    axes axes;
} sweep;

/* The generator, and the cards, with commas between. sweep is zeroed before. */
void sweep_open(sweep *s, const char *cards);

/* Say what ran per card, in lines that begin with "swept", which tests/run.sh adds up over processes. */
void sweep_close(sweep *s, const char *dtype);

/* Whether a card has instructions that no other has; whether a variant uses such. */
bool sweep_has_own(const sweep *s, int card);
bool sweep_is_own(const sweep_candidate *c);

/* Begin another class of problems, which has no candidates so far. */
void sweep_begin(sweep *s);

/* Add those of a card for prefill, decode and short prefill; own_only: of its own instructions, if there
 * are any. FA2_E_UNSUPPORTED and the like where a problem has none at all. */
fa2_status sweep_gather(sweep *s, int card, const fa2_problem *class, bool own_only);

/* Run a candidate on those of its cards whose bits are set, on the shapes whose bits are: shapes[card]. compare: its
 * PTX for each card. */
typedef struct sweep_run {
    unsigned cards, shapes[SWEEP_CARDS_MAX];
    bool compare;
} sweep_run;

void sweep_run_candidate(sweep *s, const fa2_problem *class, const sweep_candidate *c,
                         const sweep_run *run);

#endif
