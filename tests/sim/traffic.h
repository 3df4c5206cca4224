/*
 * Counts the memory traffic of a warp's access, and the smallest possible traffic.
 *
 * Shared memory has 32 banks of 4 bytes. Lanes go in phases of 32 lanes (up to 4 bytes each), 16 lanes (8 bytes) or 8
 * lanes (16 bytes). A phase takes as many wavefronts as there are different words in the fullest bank; the ideal is 1.
 * Global memory moves in sectors of 32 bytes; the ideal is as many as the different bytes fill.
 */
#pragma once

#include "machine.h"

/* Add an access of `bytes` (1 ... 16) by each lane in mask. Each lane's address is aligned to bytes. */
void sim_count_shared(sim_count *count, uint32_t mask, const uint32_t address[SIM_LANES], unsigned bytes);
void sim_count_global(sim_count *count, uint32_t mask, const uint64_t address[SIM_LANES], unsigned bytes);
