/*
 * Steps of sizes. The cost model is asked about one problem instead of all problems of a step. So one answer serves all
 * lengths of the step, and a growing length asks few questions.
 *
 * Pure functions; thread-safe.
 */
#pragma once

#include "fa2.h"

/* Returns the problem to ask about: a valid problem with its sizes rounded up (fa2i_problem_rounded). Some sizes are
 * rounded less, for a card with sm_count SMs: no tile's blocks begin another wave, or divide keys among fewer blocks.
 *
 * The model was asked about 2000 random problems on four SMs. The kernel so chosen is 0.06 % slower than the best one
 * (geometric mean), and at most 7 % (tests/bench/rounding.lua). For packed sequences seq_q and seq_k are rounded up to
 * powers of two, and totals to four steps an octave. batch is rounded to the nearest of two steps an octave. */
fa2_problem fa2i_problem_asked(const fa2_problem *problem, int sm_count);
