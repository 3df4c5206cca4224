/*
 * Waiting of warps: barriers, mbarriers, registers.
 *
 * - When no warp can go on, every complete barrier opens. So all warps that can meet at a barrier are there. If there
 *   are more than it expects, they would meet by chance, which is an error. If some warps only arrive, the barrier
 *   opens at the last arrival, because they may come again before the others go on.
 * - A block is stuck if no warp can go on and no barrier is complete. The message says what each warp waits for.
 */
#include "machine.h"
#include <stdio.h>
#include <string.h>

static sim_warp *warp_of(sim_block *block, unsigned index)
{
    return &block->warps[index];
}

void sim_waiting_begin(sim_block *block)
{
    memset(block->arrivals, 0, sizeof block->arrivals);
    block->mbarrier_count = 0;
    block->mbarriers_begin = UINT32_MAX;
    block->mbarriers_end = 0;
    block->free_registers = 0;
}

/* ---- barriers ---- */

typedef struct gathering {
    uint32_t warps;  /* mask of the warps that wait there */
    unsigned wanted; /* number of warps, including those that only arrive */
    sim_warp *last;
    bool agreed; /* all expect the same number */
} gathering;

static gathering gather(sim_block *block, uint32_t barrier)
{
    const sim_arrivals *arrivals = &block->arrivals[barrier];
    gathering g = {.agreed = true};
    for (unsigned i = 0; i < block->launch->warp_count; i++) {
        sim_warp *w = warp_of(block, i);
        if (w->state != SIM_AT_BARRIER || w->barrier != barrier)
            continue;
        g.agreed &= g.last == NULL || g.last->barrier_threads == w->barrier_threads;
        g.agreed &= arrivals->warps == 0 || arrivals->threads == w->barrier_threads;
        g.warps |= 1u << i;
        g.last = w;
    }
    if (g.last != NULL)
        g.wanted = g.last->barrier_threads == 0 ? block->launch->warp_count : g.last->barrier_threads / SIM_LANES;
    return g;
}

static void stop_at_barrier(sim_warp *w, const char *format, int number) __attribute__((format(printf, 2, 0)));

static void stop_at_barrier(sim_warp *w, const char *format, int number)
{
    w->pc--; /* back to the barrier, for the message */
    sim_stop(w, -1, CUDA_ERROR_LAUNCH_FAILED, format, number);
}

/* Lets the warps at a barrier go on if all expected warps have arrived with all their threads. */
static bool open_barrier(sim_block *block, uint32_t barrier)
{
    sim_arrivals *arrivals = &block->arrivals[barrier];
    const gathering g = gather(block, barrier);
    const unsigned arrived = (unsigned)sim_bits(g.warps) + arrivals->warps;
    if (g.last == NULL || (g.agreed && arrived < g.wanted))
        return false;
    if (!g.agreed || arrived > g.wanted) {
        stop_at_barrier(g.last, "barrier divergence: %d warps arrive, which is not what it counts", (int)arrived);
        return false;
    }
    for (unsigned i = 0; i < block->launch->warp_count; i++) {
        sim_warp *w = warp_of(block, i);
        if ((g.warps >> i & 1) == 0)
            continue;
        if (w->alive != sim_lanes_at_start(block->launch, i)) {
            stop_at_barrier(w, "barrier divergence: threads of warp %d have ended and never arrive", w->index);
            return false;
        }
        w->state = SIM_RUNS;
    }
    sim_shadow_barrier(&block->shadow, g.warps, arrivals->warps > 0 ? &arrivals->clock : NULL);
    memset(arrivals, 0, sizeof *arrivals);
    return true;
}

void sim_arrive(sim_warp *w, uint32_t barrier, uint32_t threads, bool waits)
{
    sim_arrivals *arrivals = &w->block->arrivals[barrier];
    if (waits) {
        w->barrier = barrier;
        w->barrier_threads = threads;
        w->state = SIM_AT_BARRIER;
    } else if (arrivals->warps > 0 && arrivals->threads != threads) {
        sim_stop(w, -1, CUDA_ERROR_LAUNCH_FAILED,
                 "barrier divergence: barrier %u is for %u threads here, and for %u where others arrive", barrier,
                 threads, arrivals->threads);
        return;
    } else {
        arrivals->warps++;
        arrivals->threads = threads;
        sim_shadow_release(&w->block->shadow, (unsigned)w->index, w->mask, w->alive, &arrivals->clock);
        if (arrivals->warps > threads / SIM_LANES)
            sim_stop(w, -1, CUDA_ERROR_LAUNCH_FAILED,
                     "barrier divergence: %u warps arrive at barrier %u, which is for %u threads", arrivals->warps,
                     barrier, threads);
    }
    if (arrivals->warps > 0 && w->state != SIM_ENDED)
        (void)open_barrier(w->block, barrier);
}

/* ---- a block that is stuck ---- */

static int describe_wait(const sim_warp *w, char *out, size_t bytes)
{
    const sim_mbarrier *m = &w->block->mbarriers[w->mbarrier];
    char made[256];
    if (w->state == SIM_AT_REGISTERS)
        return snprintf(out, bytes, "%u registers a thread; warps have given %u for it",
                        w->wanted_registers - w->registers, w->block->free_registers);
    sim_describe_place(w->block->program, m->op, made, sizeof made);
    return snprintf(out, bytes,
                    "phase %u (parity %u) of the mbarrier at offset %u (made at %s), which is in phase %u "
                    "with %u of %u arrivals and %d bytes missing",
                    (m->phase & 1) == w->parity ? m->phase : m->phase + 1, w->parity, m->address - SIM_SHARED_BASE,
                    made, m->phase, m->missing, m->count, m->bytes);
}

/* Reports the first warp that waits for something other than a barrier, then warps that wait for other things than
 * those before them. */
static void stop_waiting(sim_warp *first)
{
    const sim_block *block = first->block;
    char what[SIM_MESSAGE_BYTES], place[256];
    int used = describe_wait(first, what, sizeof what);
    uint64_t told = first->state == SIM_AT_MBARRIER ? (uint64_t)1 << first->mbarrier : 0;
    for (unsigned i = (unsigned)first->index + 1; i < block->launch->warp_count; i++) {
        const sim_warp *w = &block->warps[i];
        if (w->state != SIM_AT_MBARRIER || (told >> w->mbarrier & 1) != 0 || used >= (int)sizeof what)
            continue;
        told |= (uint64_t)1 << w->mbarrier;
        sim_describe_place(block->program, w->pc, place, sizeof place);
        used += snprintf(what + used, sizeof what - (size_t)used, "; warp %u at %s for ", i, place);
        if (used < (int)sizeof what)
            used += describe_wait(w, what + used, sizeof what - (size_t)used);
    }
    sim_stop(first, -1, CUDA_ERROR_LAUNCH_FAILED, "stuck: it waits for %s", what);
}

static void stop_stuck(sim_block *block)
{
    sim_warp *waiting = NULL, *ended = NULL, *other = NULL;
    for (unsigned i = 0; i < block->launch->warp_count; i++) {
        sim_warp *w = warp_of(block, i);
        if (w->state == SIM_AT_BARRIER)
            waiting = w;
        else if (w->state == SIM_ENDED)
            ended = w;
        else if (other == NULL)
            other = w;
    }
    if (other != NULL) {
        stop_waiting(other);
    } else if (ended != NULL) {
        stop_at_barrier(waiting, "barrier divergence: threads of warp %d have ended and never arrive", ended->index);
    } else {
        stop_at_barrier(waiting, "barrier divergence: barrier %d never has all that it counts", (int)waiting->barrier);
    }
}

void sim_open_barriers(sim_block *block)
{
    bool opened = false;
    for (uint32_t b = 0; b < SIM_BARRIERS && !atomic_load(&block->launch->stopped); b++)
        opened |= open_barrier(block, b);
    if (!opened && !atomic_load(&block->launch->stopped))
        stop_stuck(block);
}

/* ---- mbarriers and registers ---- */

bool sim_wake(sim_warp *w)
{
    sim_block *block = w->block;
    if (w->state == SIM_AT_MBARRIER)
        w->state = (block->mbarriers[w->mbarrier].phase & 1) != w->parity ? SIM_RUNS : w->state;
    else if (w->state == SIM_AT_REGISTERS)
        w->state = w->wanted_registers - w->registers <= block->free_registers ? SIM_RUNS : w->state;
    return w->state == SIM_RUNS;
}

void sim_waiting_end(sim_block *block)
{
    for (unsigned i = 0; i < block->mbarrier_count; i++) {
        const sim_mbarrier *m = &block->mbarriers[i];
        sim_warp *last = warp_of(block, block->launch->warp_count - 1);
        if (!m->unawaited)
            continue;
        last->pc = m->op;
        sim_stop(last, -1, CUDA_ERROR_LAUNCH_FAILED,
                 "early: the block ends, and nobody has waited for what was loaded in phase %u of the "
                 "mbarrier at offset %u",
                 m->loaded, m->address - SIM_SHARED_BASE);
    }
}
