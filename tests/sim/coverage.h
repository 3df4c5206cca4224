/*
 * Which instructions were executed, over all launches since it was asked for, by their places in the
 * source: for kernels with line information.
 */
#ifndef SIM_COVERAGE_H
#define SIM_COVERAGE_H

#include "machine.h"

/* Add a launch that ended well; nothing, unless fa2_sim_cover was called. */
void sim_coverage_add(const sim_launch *launch);

/* The program goes: keep what is known of it. */
void sim_coverage_keep(const sim_program *program);

#endif
