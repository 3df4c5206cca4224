/*
 * Runs a backward kernel on a problem on the software device, and checks the result. test_backward.c says what is
 * checked.
 */
#pragma once

#include <cuda.h>
#include "tests/sim/backward_work.h"

enum { BACKWARD_WHY_BYTES = 1200 };

/* Runs the kernel of a loaded module. Returns false if something is wrong; `why` says what. */
bool backward_run(const work *w, CUmodule module, char why[BACKWARD_WHY_BYTES]);

/* The cost of unavoidable bank conflicts so far: the number of variants that have them, and their largest share of the
 * wavefronts in one launch. */
typedef struct backward_costs {
    size_t variants;
    double most;
} backward_costs;

const backward_costs *backward_conflicts(void);
