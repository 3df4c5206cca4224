/*
 * A block keeps several units of its SM busy; the busiest decides, and a quarter of what the others
 * need does not overlap. Too few warps hide too little latency. Blocks come in rounds over the SMs,
 * and device memory serves one sector of four (the L2 the others).
 */
#include "model.h"
#include <string.h>

enum { LANES = 32, SECTOR_BYTES = 32, WAVEFRONT_BYTES = 128, SCHEDULERS = 4, L2_RATE_BYTES = 32 };

static const double launch_us = 2.0, not_overlapped = 0.25, warps_wanted = 8.0, dram_share = 0.25;

static void add(sim_count *sum, const sim_count *count)
{
    sum->executed += count->executed;
    sum->wavefronts += count->wavefronts;
    sum->wavefronts_ideal += count->wavefronts_ideal;
    sum->sectors += count->sectors;
    sum->sectors_ideal += count->sectors_ideal;
}

static void add_op(const sim_op *op, const sim_count *count, sim_totals *totals)
{
    const bool stores = strncmp(op->source->opcode, "st.", 3) == 0;
    const bool copies = op->kind == SIM_KIND_ASYNC;
    totals->executed[op->kind] += count->executed;
    if (op->kind == SIM_KIND_TENSOR && op->info >> 4 == 1)
        totals->tensor_k8_flop += count->executed * 2 * 16 * 8 * 8;
    else if (op->kind == SIM_KIND_TENSOR)
        totals->tensor_flop += count->executed * 2 * 16 * 8 * 16;
    if (count->wavefronts > 0 && copies)
        add(&totals->tile_copies, count);
    if (count->wavefronts > 0 && strncmp(op->source->opcode, "ldmatrix", 8) == 0)
        add(&totals->tile_reads, count);
    if (count->wavefronts > 0)
        add(stores || copies ? &totals->shared_writes : &totals->shared_reads, count);
    if (count->sectors > 0)
        add(stores ? &totals->global_writes : &totals->global_reads, count);
}

void sim_sum(const sim_launch *launch, sim_totals *ret_totals)
{
    memset(ret_totals, 0, sizeof *ret_totals);
    for (int i = 0; i < launch->program->op_count; i++)
        add_op(&launch->program->ops[i], &launch->counts[i], ret_totals);
}

void sim_totals_add(sim_totals *sum, const sim_totals *more)
{
    for (int k = 0; k < SIM_KINDS; k++)
        sum->executed[k] += more->executed[k];
    sum->tensor_flop += more->tensor_flop;
    sum->tensor_k8_flop += more->tensor_k8_flop;
    add(&sum->shared_reads, &more->shared_reads);
    add(&sum->shared_writes, &more->shared_writes);
    add(&sum->tile_reads, &more->tile_reads);
    add(&sum->tile_copies, &more->tile_copies);
    add(&sum->global_reads, &more->global_reads);
    add(&sum->global_writes, &more->global_writes);
}

/* Clocks of one SM for everything that the launch does, if no two units overlap badly. */
static double clocks(const sim_totals *t, const sim_card *card)
{
    double issued = 0;
    for (int k = 0; k < SIM_KINDS; k++)
        issued += (double)t->executed[k];
    const double arithmetic = (double)(t->executed[SIM_KIND_FLOAT] + t->executed[SIM_KIND_INTEGER] +
                                       t->executed[SIM_KIND_CONVERT] + t->executed[SIM_KIND_MOVE]);
    const double wavefronts = (double)(t->shared_reads.wavefronts + t->shared_writes.wavefronts);
    const double sectors = (double)(t->global_reads.sectors + t->global_writes.sectors);
    const double units[] = {
        issued / SCHEDULERS,
        arithmetic * LANES / card->fp32,
        (double)t->executed[SIM_KIND_SPECIAL] * LANES / card->special,
        (double)t->tensor_flop / card->tensor_flop +
            (double)t->tensor_k8_flop / card->tensor_k8_flop,
        wavefronts * WAVEFRONT_BYTES / card->smem_rate_bytes,
        sectors * SECTOR_BYTES / L2_RATE_BYTES,
    };
    double most = 0, sum = 0;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        most = units[i] > most ? units[i] : most;
        sum += units[i];
    }
    return most + not_overlapped * (sum - most);
}

double sim_model(const sim_totals *totals, const sim_card *card, unsigned blocks, unsigned threads,
                 int resident)
{
    const double clock = card->clock_khz / 1000.0; /* per us */
    const double rounds =
        (double)((blocks + (unsigned)card->sm_count - 1) / (unsigned)card->sm_count);
    const double side_by_side = rounds < resident ? rounds : resident;
    const double warps = side_by_side * (double)threads / LANES;
    const double per_block = clocks(totals, card) / blocks;
    const double exposed = warps < warps_wanted ? warps_wanted / warps : 1.0;
    const double sectors = (double)(totals->global_reads.sectors + totals->global_writes.sectors);
    const double bandwidth = 2.0 * card->memory_clock_khz * card->bus_bits / 8 / 1000; /* B/us */
    const double busy = rounds * per_block * (0.5 + 0.5 * exposed) / clock;
    const double memory = dram_share * sectors * SECTOR_BYTES / bandwidth;
    return launch_us + (busy > memory ? busy : memory);
}
