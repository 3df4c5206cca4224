/*
 * Which candidates of a class a sweep runs, and on which cards: a bit for each card.
 */
#ifndef FA2_SIM_SWEEP_CHOICE_H
#define FA2_SIM_SWEEP_CHOICE_H

#include "tests/sim/sweep.h"

typedef unsigned sweep_wanted[SWEEP_CANDIDATES_MAX]; /* by candidate */

/* Where a card has instructions of its own and candidates of a kind that use them, drop its others of that kind. */
void sweep_prefer_own(sweep *s);

/* Every step-th of those that divide the keys, and of the others, one at least, on all cards that have it; begins
 * elsewhere each turn. */
void sweep_want_some(const sweep *s, size_t step, size_t turn, sweep_wanted wanted);

/* For each card: forward, one of those that divide the keys and one of the others, where it has any; backward, one,
 * of another kind in turn. Of those that most cards have, as they are compiled once; another one each turn. Of what a
 * card with instructions of its own shares with older ones, forward is one, too: the other comes with the next turn. */
void sweep_want_each(const sweep *s, fa2_op op, size_t turn, sweep_wanted wanted);

/* More, until each tile and axis value is run that candidates have; but for those which older cards run, too, on a
 * card with instructions of its own. one_card: on one card each, not on all. */
void sweep_want_axes(sweep *s, bool one_card, sweep_wanted wanted);

#endif
