/*
 * Shared by the sweeps: candidates of cards are compiled, launched on the software device, and judged.
 *
 * A variant is compiled once, for the oldest SM of its cards, because compiling takes most of the time. This assumes
 * that the other SMs get the same PTX, except for the line that names the SM. The sweep checks this on a sample. If the
 * compiler places an instruction differently, that card runs its own PTX. Such cases must be few. References are kept
 * per class and shape, because the candidates share them. Inputs and outputs are made anew for each launch.
 *
 * A launch is right if
 * - the device reports no error
 * - outputs are within the bound (tuner/judge/verify.h), and nothing outside of them was overwritten
 * - there are no bank conflicts, except where a layout cannot avoid them (forward.c)
 * - global loads are coalesced.
 * Everything else is printed, and counted as a failure. Errors that make it impossible to go on end the program.
 */
#pragma once

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
    long compared, differing; /* PTX made for this SM and compared with the oldest SM's */
} sweep_card;

typedef struct sweep_candidate {
    fa2i_variant variant;
    unsigned cards; /* a bit for each card that has this candidate */
} sweep_candidate;

typedef struct sweep {
    fa2i_generator *generator;
    sweep_card cards[SWEEP_CARDS_MAX];
    int card_count;
    sweep_candidate candidates[SWEEP_CANDIDATES_MAX]; /* of the current class */
    size_t candidate_count;
    fa2i_expected expected[SWEEP_EXPECTED_MAX]; /* of the current class */
    size_t expected_count;
    long failures; /* wrong launches */
    axes axes;
} sweep;

/* Opens the generator and the cards, a list with commas. The caller has zeroed the sweep. */
void sweep_open(sweep *s, const char *cards);

/* Prints what ran per card, in lines that begin with "swept". tests/run.sh adds them up over processes. */
void sweep_close(sweep *s, const char *dtype);

/* Does a card have instructions that no other card has? Does a variant use such instructions? */
bool sweep_has_own(const sweep *s, int card);
bool sweep_is_own(const sweep_candidate *c);

/* Begins another class of problems, without candidates. */
void sweep_begin(sweep *s);

/* Adds a card's candidates for prefill, decode and short prefill. own_only: only those with the card's own
 * instructions, if there are any. Returns FA2_E_UNSUPPORTED or the like if a problem has no candidate. */
fa2_status sweep_gather(sweep *s, int card, const fa2_problem *class, bool own_only);

/* One run: a candidate on the cards in a bit mask, each with the shapes in its mask shapes[card]. compare: compile its
 * PTX for each card. */
typedef struct sweep_run {
    unsigned cards, shapes[SWEEP_CARDS_MAX];
    bool compare;
} sweep_run;

void sweep_run_candidate(sweep *s, const fa2_problem *class, const sweep_candidate *c, const sweep_run *run);
