/*
 * Counts which instructions were executed since fa2_sim_cover, over all launches, by their place in the source. It
 * needs kernels with line information.
 */
#pragma once

#include "machine.h"

/* Adds a launch that ended without error. Does nothing unless fa2_sim_cover was called. */
void sim_coverage_add(const sim_launch *launch);

/* Keeps the counts of a program that is about to be released. */
void sim_coverage_keep(const sim_program *program);
