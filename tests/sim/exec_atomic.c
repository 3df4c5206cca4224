/*
 * fp32 additions in global memory (red.add), and counters. Lanes add in turn. Blocks on other host threads may add to
 * the same word at the same time, so each sum is exchanged atomically. The order is the host's, so sums differ between
 * runs, as on a real device.
 *
 * info: the number of adjacent numbers.
 */
#include "access.h"
#include "lanes.h"
#include "traffic.h"

void sim_add_float(uint32_t *word, float x)
{
    uint32_t before = __atomic_load_n(word, __ATOMIC_RELAXED), after = 0;
    do
        after = sim_result(sim_float(before) + x);
    while (!__atomic_compare_exchange_n(word, &before, after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

static void add(const sim_op *op, sim_warp *w)
{
    const unsigned count = (unsigned)op->info, bytes = 4 * count;
    uint64_t address[SIM_LANES];
    sim_addresses(w, op, 0, 0, address);
    sim_count_global(sim_counter(w), w->mask, address, bytes);
    LANES(l)
    {
        if (!sim_lane(w->mask, l))
            continue;
        uint8_t *at = sim_global_at(w, l, address[l], bytes, SIM_ADD, false);
        if (at == NULL)
            return;
        for (unsigned i = 0; i < count; i++)
            sim_add_float((uint32_t *)(void *)(at + 4 * i), sim_float(sim_source(w, op->src[1 + i])[l]));
    }
}

/* Counters order the work of blocks, so accesses to them are never races. */
static uint32_t *counter_at(const sim_op *op, sim_warp *w, int source, int lane)
{
    uint64_t address[SIM_LANES];
    sim_addresses(w, op, 0, source, address);
    return (uint32_t *)(void *)sim_global_at(w, lane, address[lane], 4, SIM_ADD, false);
}

static void count(const sim_op *op, sim_warp *w)
{
    const bool returns = op->info != 0;
    uint32_t before[SIM_LANES] = {0};
    LANES(l)
    {
        if (!sim_lane(w->mask, l))
            continue;
        uint32_t *word = counter_at(op, w, 0, l);
        if (word == NULL)
            return;
        before[l] = __atomic_fetch_add(word, sim_source(w, op->src[1])[l], __ATOMIC_ACQ_REL);
    }
    if (returns)
        sim_put(w, op->dst[0], before);
}

static void read_counter(const sim_op *op, sim_warp *w)
{
    uint32_t values[SIM_LANES] = {0};
    LANES(l)
    {
        if (!sim_lane(w->mask, l))
            continue;
        const uint32_t *word = counter_at(op, w, 0, l);
        if (word == NULL)
            return;
        values[l] = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    }
    sim_put(w, op->dst[0], values);
}

static const sim_row rows[] = {
    {"atom.global.add.u32", "r a s", count, SIM_KIND_GLOBAL, 1},
    {"red.relaxed.gpu.global.add.u32", "a s", count, SIM_KIND_GLOBAL, 0},
    {"ld.relaxed.gpu.global.u32", "r a", read_counter, SIM_KIND_GLOBAL, 0},
    {"red.global.add.f32", "a s", add, SIM_KIND_GLOBAL, 1},
    {"red.global.add.v2.f32", "a 2s", add, SIM_KIND_GLOBAL, 2},
    {"red.global.add.v4.f32", "a 4s", add, SIM_KIND_GLOBAL, 4},
};

const sim_rows sim_rows_atomic = {rows, sizeof rows / sizeof *rows};
