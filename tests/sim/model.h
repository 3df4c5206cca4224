/*
 * Adds up the counters of a launch by class, and models a time from them by the card's rates. The time orders variants
 * by traffic, tensor work, instructions and occupancy. It ignores latencies, except for a factor for too few warps.
 */
#pragma once

#include "cards.h"
#include "machine.h"

/* Ways of moving data: shared memory first; _16 means 16 bytes per lane. cp.async counts on both sides. */
typedef enum sim_way {
    SIM_LDMATRIX,
    SIM_LD_SHARED,
    SIM_LD_SHARED_16,
    SIM_ST_SHARED,
    SIM_ST_SHARED_16,
    SIM_COPY_TO_SHARED,
    SIM_LD_GLOBAL,
    SIM_ST_GLOBAL,
    SIM_COPY_FROM_GLOBAL,
    SIM_WAYS
} sim_way;

/* Wavefronts or sectors, and the instruction with the largest excess over the ideal. */
typedef struct sim_traffic {
    uint64_t moved, ideal;
    uint64_t worst_excess;
    char worst_at[128]; /* "" if there is no excess */
} sim_traffic;

typedef struct sim_totals {
    uint64_t executed[SIM_KINDS]; /* instructions executed by warps */
    uint64_t tensor_flop[2][2];   /* of mma.sync; [fp16 sums][m16n8k8] */
    uint64_t product_flop;
    sim_traffic traffic[SIM_WAYS];
} sim_totals;

void sim_totals_add(sim_totals *sum, const sim_totals *more);

void sim_sum(const sim_launch *launch, sim_totals *ret_totals);

/* Returns the modelled time in microseconds. */
double sim_model(const sim_totals *totals, const sim_card *card, unsigned blocks, unsigned threads, int resident);
