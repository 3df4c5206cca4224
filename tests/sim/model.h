/*
 * What the counters of a launch add up to: sums by class, and a time modelled from them with the
 * card's rates. The time orders variants as far as traffic, tensor work, instructions and occupancy
 * tell; it knows nothing of latencies beyond a share for too few warps.
 */
#ifndef SIM_MODEL_H
#define SIM_MODEL_H

#include "cards.h"
#include "machine.h"

typedef struct sim_totals {
    uint64_t executed[SIM_KINDS]; /* instructions, by warps */
    uint64_t tensor_flop, tensor_k8_flop;
    sim_count shared_reads, shared_writes; /* ldmatrix and ld; st and cp.async */
    sim_count tile_reads, tile_copies;     /* of these, ldmatrix; cp.async */
    sim_count global_reads, global_writes;
} sim_totals;

void sim_totals_add(sim_totals *sum, const sim_totals *more);

void sim_sum(const sim_launch *launch, sim_totals *ret_totals);

/* us */
double sim_model(const sim_totals *totals, const sim_card *card, unsigned blocks, unsigned threads,
                 int resident);

#endif
