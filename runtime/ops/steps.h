/*
 * Steps of sizes: the problem that the cost model is asked about in the place of another, so that one answer
 * serves all lengths of a step, and a growing length asks few questions.
 *
 * Pure; thread-safe.
 */
#ifndef FA2I_OPS_STEPS_H
#define FA2I_OPS_STEPS_H

#include "fa2.h"

/* A valid problem whose sizes are rounded up (fa2i_problem_rounded), but not so far that on a card with so many SMs any
 * tile's blocks would begin another wave, or have keys divided among fewer. By the model, over 2000 random
 * problems on four SMs, the kernel so chosen is 0.06 % slower than the best one (geometric mean), at most 7 %:
 * tests/bench/rounding.lua. For packed sequences seq_q and seq_k are rounded up to powers of two and totals to
 * four steps an octave; batch goes to the nearest of two steps an octave. */
fa2_problem fa2i_problem_asked(const fa2_problem *problem, int sm_count);

#endif
