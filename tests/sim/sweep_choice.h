/*
 * Chooses which candidates of a class a sweep runs, and on which cards: a bit for each card.
 */
#pragma once

#include "tests/sim/sweep.h"

typedef unsigned sweep_wanted[SWEEP_CANDIDATES_MAX]; /* by candidate */

/* If a card has its own instructions, and candidates of a kind that use them, drops its other candidates of that kind.
 * */
void sweep_prefer_own(sweep *s);

/* Drops candidates that do not divide the keys and do not use a permission to be less exact, where a card has candidates
 * that use it. */
void sweep_prefer_permitted(sweep *s);

/* Chooses every step-th candidate that divides the keys, and every step-th of the others, at least one of each. They
 * run on all cards that have them. turn shifts the beginning. */
void sweep_want_some(const sweep *s, size_t step, size_t turn, sweep_wanted wanted);

/* Chooses for each card: forward, one candidate that divides the keys and one that does not, if it has them; backward,
 * one, of another kind in each turn. It prefers candidates that most cards have, because they are compiled once. Other
 * turns choose other candidates. A card with its own instructions runs only one of the forward candidates that it
 * shares with older cards, and the other in the next turn; without `both`, each card does so. */
void sweep_want_each(const sweep *s, fa2_op op, size_t turn, bool both, sweep_wanted wanted);

/* Adds candidates until each of their tile and axis values is run. On a card with its own instructions, values that
 * older cards run, too, are skipped. one_card: run each on one card instead of all. */
void sweep_want_axes(sweep *s, bool one_card, sweep_wanted wanted);
