/*
 * What an access of a warp costs in memory traffic, and what it would cost at best.
 *
 * Shared memory has 32 banks of 4 bytes; lanes go in phases of 32 (up to 4 bytes each), 16 (8
 * bytes) or 8 (16 bytes). A phase takes as many wavefronts as the most different words of one bank;
 * at best one. Global memory moves in sectors of 32 bytes; at best as many as the different bytes
 * fill.
 */
#ifndef SIM_TRAFFIC_H
#define SIM_TRAFFIC_H

#include "machine.h"

/* Add an access of `bytes` (1 ... 16) per lane in mask; each lane's address is aligned to bytes. */
void sim_count_shared(sim_count *count, uint32_t mask, const uint32_t address[SIM_LANES],
                      unsigned bytes);
void sim_count_global(sim_count *count, uint32_t mask, const uint64_t address[SIM_LANES],
                      unsigned bytes);

#endif
