/*
 * A block uses several units of its SM. The busiest unit decides the time, and a quarter of the other units' time does
 * not overlap with it. Too few warps hide too little latency. Blocks run in rounds over the SMs. Device memory serves
 * one sector of four, the L2 cache the others.
 */
#include "model.h"
#include <string.h>

enum { LANES = 32, SECTOR_BYTES = 32, WAVEFRONT_BYTES = 128, SCHEDULERS = 4, L2_RATE_BYTES = 32 };

/* Of wgmma, per SM and clock, fitted together with gen/ops/forward_sm90_cost.lua. The data sheet's 4096 need a clock
 * that the power limit does not allow. */
static const double product_flop = 3060;
static const double launch_us = 2.0, not_overlapped = 0.25, warps_wanted = 8.0, dram_share = 0.25;

static void add(sim_traffic *sum, const sim_traffic *more)
{
    sum->moved += more->moved;
    sum->ideal += more->ideal;
    if (more->worst_excess <= sum->worst_excess)
        return;
    sum->worst_excess = more->worst_excess;
    memcpy(sum->worst_at, more->worst_at, sizeof sum->worst_at);
}

static void add_traffic(const sim_program *program, int32_t op, uint64_t moved, uint64_t ideal, sim_traffic *sum)
{
    sim_traffic more = {.moved = moved, .ideal = ideal, .worst_excess = moved - ideal};
    if (more.worst_excess > sum->worst_excess)
        sim_describe(program, op, more.worst_at, sizeof more.worst_at);
    add(sum, &more);
}

static bool begins(const sim_op *op, const char *with)
{
    return strncmp(op->source->opcode, with, strlen(with)) == 0;
}

static sim_way shared_way(const sim_op *op)
{
    const bool wide = strstr(op->source->opcode, ".v4.") != NULL; /* its elements always have 32 bits */
    if (op->kind == SIM_KIND_ASYNC)
        return SIM_COPY_TO_SHARED;
    if (begins(op, "ldmatrix"))
        return SIM_LDMATRIX;
    if (begins(op, "st.") || begins(op, "red."))
        return wide ? SIM_ST_SHARED_16 : SIM_ST_SHARED;
    return wide ? SIM_LD_SHARED_16 : SIM_LD_SHARED;
}

static sim_way global_way(const sim_op *op)
{
    if (op->kind == SIM_KIND_ASYNC)
        return SIM_COPY_FROM_GLOBAL;
    return begins(op, "st.") ? SIM_ST_GLOBAL : SIM_LD_GLOBAL;
}

static void add_op(const sim_program *program, int32_t at, const sim_count *count, sim_totals *totals)
{
    const sim_op *op = &program->ops[at];
    totals->executed[op->kind] += count->executed;
    const bool is_k8 = op->info >> 4 == 1;
    if (op->kind == SIM_KIND_TENSOR)
        totals->tensor_flop[(op->info & SIM_FP16_SUMS) != 0][is_k8] += count->executed * 2 * 16 * 8 * (is_k8 ? 8 : 16);
    else if (op->kind == SIM_KIND_PRODUCT) /* 16 rows of a warp, depth 16. Depth 32 of bytes takes as long */
        totals->product_flop += count->executed * 2 * 16 * 16 * (uint64_t)sim_product_columns(op->info);
    add_traffic(program, at, count->wavefronts, count->wavefronts_ideal, &totals->traffic[shared_way(op)]);
    add_traffic(program, at, count->sectors, count->sectors_ideal, &totals->traffic[global_way(op)]);
}

void sim_sum(const sim_launch *launch, sim_totals *ret_totals)
{
    memset(ret_totals, 0, sizeof *ret_totals);
    for (int32_t i = 0; i < launch->program->op_count; i++)
        add_op(launch->program, i, &launch->counts[i], ret_totals);
}

void sim_totals_add(sim_totals *sum, const sim_totals *more)
{
    for (int k = 0; k < SIM_KINDS; k++)
        sum->executed[k] += more->executed[k];
    for (int sums = 0; sums < 2; sums++)
        for (int is_k8 = 0; is_k8 < 2; is_k8++)
            sum->tensor_flop[sums][is_k8] += more->tensor_flop[sums][is_k8];
    sum->product_flop += more->product_flop;
    for (int way = 0; way < SIM_WAYS; way++)
        add(&sum->traffic[way], &more->traffic[way]);
}

static double moved(const sim_totals *t, sim_way first, sim_way last)
{
    uint64_t sum = 0;
    for (int way = (int)first; way <= (int)last; way++)
        sum += t->traffic[way].moved;
    return (double)sum;
}

/* Returns the clocks of mma.sync at the rates of fp32 sums. */
static double tensor_clocks(const uint64_t flop[2], const sim_card *card)
{
    return (double)flop[0] / card->tensor_flop + (double)flop[1] / card->tensor_k8_flop;
}

/* Returns an SM's clocks for the whole launch, apart from latency. */
static double clocks(const sim_totals *t, const sim_card *card)
{
    double issued = 0;
    for (int k = 0; k < SIM_KINDS; k++)
        issued += (double)t->executed[k];
    const double arithmetic = (double)(t->executed[SIM_KIND_FLOAT] + t->executed[SIM_KIND_INTEGER] +
                                       t->executed[SIM_KIND_CONVERT] + t->executed[SIM_KIND_MOVE]);
    const double wavefronts = moved(t, SIM_LDMATRIX, SIM_COPY_TO_SHARED);
    const double sectors = moved(t, SIM_LD_GLOBAL, SIM_COPY_FROM_GLOBAL);
    const double units[] = {
        issued / SCHEDULERS,
        arithmetic * LANES / card->fp32,
        (double)t->executed[SIM_KIND_SPECIAL] * LANES / card->special,
        tensor_clocks(t->tensor_flop[0], card) + tensor_clocks(t->tensor_flop[1], card) / card->fp16_sums +
            (double)t->product_flop / product_flop,
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

double sim_model(const sim_totals *totals, const sim_card *card, unsigned blocks, unsigned threads, int resident)
{
    const double clock = card->clock_khz / 1000.0; /* per us */
    const double rounds = (double)((blocks + (unsigned)card->sm_count - 1) / (unsigned)card->sm_count);
    const double side_by_side = rounds < resident ? rounds : resident;
    const double warps = side_by_side * (double)threads / LANES;
    const double per_block = clocks(totals, card) / blocks;
    const double exposed = warps < warps_wanted ? warps_wanted / warps : 1.0;
    const double sectors = moved(totals, SIM_LD_GLOBAL, SIM_COPY_FROM_GLOBAL);
    const double bandwidth = 2.0 * card->memory_clock_khz * card->bus_bits / 8 / 1000; /* B/us */
    const double busy = rounds * per_block * (0.5 + 0.5 * exposed) / clock;
    const double memory = dram_share * sectors * SECTOR_BYTES / bandwidth;
    return launch_us + (busy > memory ? busy : memory);
}
