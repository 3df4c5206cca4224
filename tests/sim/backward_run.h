/*
 * A backward kernel on a problem, on the software device: is it right? What that means is said where it is
 * tested (test_backward.c).
 */
#ifndef FA2_SIM_BACKWARD_RUN_H
#define FA2_SIM_BACKWARD_RUN_H

#include <cuda.h>
#include "tests/sim/backward_work.h"

enum { BACKWARD_WHY_BYTES = 1200 };

/* Run the kernel of a loaded module. false: `why` says what is wrong. */
bool backward_run(const work *w, CUmodule module, char why[BACKWARD_WHY_BYTES]);

/* What bank conflicts that cannot be avoided cost so far: variants that have them, and the largest share of the
 * wavefronts of a variant's launch on a shape. */
typedef struct backward_costs {
    size_t variants;
    double most;
} backward_costs;

const backward_costs *backward_conflicts(void);

#endif
