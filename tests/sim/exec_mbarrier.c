/*
 * mbarriers: objects in shared memory. A phase ends when all arrivals have come, and all announced bytes.
 *
 * Their state is kept outside of shared memory. The shadow treats their words as written by the maker and read by all
 * users. So use is ordered after making, and later writes to the place after use. An arrival passes its warp's clock
 * on. Copies that arrive (bulk loads, cp.async.mbarrier.arrive) pass on only what they wrote.
 *
 * try_wait answers "not done" the first time, as devices do after a while. The next one returns when the phase is done.
 * All executing lanes must name the same mbarrier.
 */
#include <string.h>
#include "access.h"
#include "lanes.h"

enum { MBARRIER_BYTES = 8, COUNT_MAX = (1 << 20) - 1 };

/* Returns NULL if there is none. */
static sim_mbarrier *find(sim_block *block, uint32_t address)
{
    for (unsigned i = 0; i < block->mbarrier_count; i++)
        if (block->mbarriers[i].address == address)
            return &block->mbarriers[i];
    return NULL;
}

const sim_mbarrier *sim_mbarrier_in(const sim_block *block, uint32_t address, unsigned bytes)
{
    for (unsigned i = 0; i < block->mbarrier_count; i++) {
        const uint32_t at = block->mbarriers[i].address;
        if (at < address + bytes && address < at + MBARRIER_BYTES)
            return &block->mbarriers[i];
    }
    return NULL;
}

/* Returns the mbarrier that a lane uses. NULL: the launch is stopped. */
static sim_mbarrier *used(sim_warp *w, int lane, uint64_t address)
{
    if (sim_shared_read_collective(w, lane, address, MBARRIER_BYTES) == NULL)
        return NULL;
    sim_mbarrier *m = find(w->block, (uint32_t)address);
    if (m == NULL)
        sim_stop(w, lane, CUDA_ERROR_LAUNCH_FAILED, "there is no mbarrier at offset %u",
                 (unsigned)address - SIM_SHARED_BASE);
    return m;
}

sim_mbarrier *sim_mbarrier_at(sim_warp *w, const uint64_t address[SIM_LANES])
{
    const int first = sim_first_lane(w->mask);
    LANES(l)
    {
        if (!sim_lane(w->mask, l) || address[l] == address[first])
            continue;
        sim_stop(w, l, CUDA_ERROR_NOT_SUPPORTED, "lanes name different mbarriers");
        return NULL;
    }
    return used(w, first, address[first]);
}

/* Returns the executing lanes with the same address as this lane. */
static uint32_t lanes_at(const sim_warp *w, const uint64_t address[SIM_LANES], int lane)
{
    uint32_t lanes = 0;
    LANES(l)
    lanes |= (uint32_t)(sim_lane(w->mask, l) && address[l] == address[lane]) << l;
    return lanes;
}

/* ---- phases ---- */

static void end_phase(sim_block *block, sim_mbarrier *m)
{
    if (m->missing > 0 || m->bytes != 0)
        return;
    m->began = sim_shadow_commit(&block->shadow);
    m->open.ordered[SIM_LOADS + sim_mbarrier_number(block, m)] = m->began;
    m->done = m->open;
    m->phase++;
    m->missing = m->count;
}

static void begin_phases(sim_warp *w, int lane, uint32_t address, uint32_t count)
{
    sim_block *block = w->block;
    if (sim_shared_write(w, lane, address, MBARRIER_BYTES) == NULL)
        return;
    sim_mbarrier *m = &block->mbarriers[block->mbarrier_count++];
    memset(m, 0, sizeof *m);
    m->address = address;
    m->count = m->missing = count;
    m->began = sim_shadow_commit(&block->shadow);
    m->op = w->pc;
    m->maker = w->index;
    if (address < block->mbarriers_begin)
        block->mbarriers_begin = address;
    if (address + MBARRIER_BYTES > block->mbarriers_end)
        block->mbarriers_end = address + MBARRIER_BYTES;
}

static bool may_begin(sim_warp *w, int lane, uint32_t address, uint32_t count)
{
    sim_block *block = w->block;
    if (count == 0 || count > COUNT_MAX || find(block, address) != NULL) {
        sim_stop(w, lane, CUDA_ERROR_LAUNCH_FAILED,
                 count == 0 || count > COUNT_MAX ? "an mbarrier for %u arrivals"
                                                 : "there is an mbarrier already, for %u arrivals",
                 count);
        return false;
    }
    if (block->mbarrier_count == SIM_MBARRIERS) {
        sim_stop(w, lane, CUDA_ERROR_NOT_SUPPORTED, "more than %d mbarriers", SIM_MBARRIERS);
        return false;
    }
    return true;
}

static void init(const sim_op *op, sim_warp *w)
{
    uint64_t address[SIM_LANES];
    sim_addresses(w, op, 0, 0, address);
    for (int l = 0; l < SIM_LANES && w->state == SIM_RUNS; l++) {
        const uint32_t at = (uint32_t)address[l], count = sim_source(w, op->src[1])[l];
        if (sim_lane(w->mask, l) && may_begin(w, l, at, count))
            begin_phases(w, l, at, count);
    }
}

void sim_mbarriers_fence(sim_warp *w)
{
    for (unsigned i = 0; i < w->block->mbarrier_count; i++)
        w->block->mbarriers[i].fenced |= w->block->mbarriers[i].maker == w->index;
}

static void fence_init(const sim_op *op, sim_warp *w)
{
    (void)op;
    sim_mbarriers_fence(w);
}

/* ---- arrivals ---- */

/* Counts this many arrivals. */
static bool count_arrivals(sim_warp *w, int lane, sim_mbarrier *m, unsigned arrivals)
{
    if (arrivals > m->missing) {
        sim_stop(w, lane, CUDA_ERROR_LAUNCH_FAILED, "%u arrivals, and phase %u of the mbarrier waits for %u of %u",
                 arrivals, m->phase, m->missing, m->count);
        return false;
    }
    m->missing -= arrivals;
    return true;
}

static bool count_bytes(sim_warp *w, int lane, sim_mbarrier *m, int64_t bytes)
{
    const int64_t sum = m->bytes + bytes;
    if (sum > COUNT_MAX || sum < -COUNT_MAX) {
        sim_stop(w, lane, CUDA_ERROR_LAUNCH_FAILED, "the mbarrier would wait for %lld bytes", (long long)sum);
        return false;
    }
    m->bytes = (int32_t)sum;
    return true;
}

/* info: it also announces bytes */
static void arrive(const sim_op *op, sim_warp *w)
{
    uint64_t address[SIM_LANES];
    sim_addresses(w, op, 0, 0, address);
    if (!op->late)
        sim_late_taken(w);
    for (uint32_t left = w->mask; left != 0;) {
        const int lane = sim_first_lane(left);
        const uint32_t lanes = lanes_at(w, address, lane);
        sim_mbarrier *m = used(w, lane, address[lane]);
        left &= ~lanes;
        if (m == NULL || !count_arrivals(w, lane, m, (unsigned)sim_bits(lanes)))
            return;
        for (int l = 0; op->info != 0 && l < SIM_LANES; l++)
            if (sim_lane(lanes, l) && !count_bytes(w, l, m, (int64_t)sim_source(w, op->src[1])[l]))
                return;
        sim_shadow_release(&w->block->shadow, (unsigned)w->index, lanes, w->alive, &m->open);
        end_phase(w->block, m);
    }
}

void sim_mbarrier_complete(sim_warp *w, sim_mbarrier *m, uint32_t bytes)
{
    m->unawaited = true;
    m->loaded = m->phase;
    if (count_bytes(w, sim_first_lane(w->mask), m, -(int64_t)bytes))
        end_phase(w->block, m);
}

/* cp.async.mbarrier.arrive.noinc: arrives when the lane's copies have landed. */
static void arrive_behind_copies(const sim_op *op, sim_warp *w)
{
    uint64_t address[SIM_LANES];
    sim_addresses(w, op, 0, 0, address);
    LANES(l)
    {
        if (!sim_lane(w->mask, l))
            continue;
        sim_mbarrier *m = used(w, l, address[l]);
        if (m == NULL)
            return;
        sim_copies_land_at(w, l, sim_mbarrier_number(w->block, m), m->began);
        if (!count_arrivals(w, l, m, 1))
            return;
        m->unawaited = true;
        m->loaded = m->phase;
        end_phase(w->block, m);
    }
}

/* ---- waits ---- */

static void wait_for_phase(const sim_op *op, sim_warp *w)
{
    const uint32_t *parities = sim_source(w, op->src[1]);
    const uint32_t parity = parities[sim_first_lane(w->mask)];
    uint64_t address[SIM_LANES];
    sim_addresses(w, op, 0, 0, address);
    sim_mbarrier *m = sim_mbarrier_at(w, address);
    if (m == NULL)
        return;
    LANES(l)
    {
        if (!sim_lane(w->mask, l) || (parities[l] == parity && parity <= 1))
            continue;
        sim_stop(w, l, CUDA_ERROR_LAUNCH_FAILED, "it waits for parity %u where another lane waits for %u", parities[l],
                 parity);
        return;
    }
    const unsigned number = sim_mbarrier_number(w->block, m);
    const uint64_t bit = (uint64_t)1 << number, refused = w->refused & bit;
    if ((m->phase & 1) == parity && refused == 0) {
        w->refused |= bit;
        sim_put_predicate(w, op->dst[0], 0);
        return;
    }
    if ((m->phase & 1) == parity) {
        w->mbarrier = number;
        w->parity = parity;
        w->state = SIM_AT_MBARRIER;
        w->next = w->pc; /* execute it again when the phase is done */
        return;
    }
    w->refused &= ~bit;
    sim_shadow_acquire(&w->block->shadow, (unsigned)w->index, w->mask, w->alive, &m->done);
    if (m->unawaited && m->loaded < m->phase)
        m->unawaited = false;
    sim_put_predicate(w, op->dst[0], SIM_ALL_LANES);
}

#define ROW(opcode, form, handler, info)                                                                               \
    {                                                                                                                  \
        opcode, form, handler, SIM_KIND_BARRIER, info                                                                  \
    }

static const sim_row rows[] = {
    ROW("mbarrier.init.shared::cta.b64", "a s", init, 0),
    ROW("fence.mbarrier_init.release.cluster", "", fence_init, 0),
    ROW("mbarrier.arrive.shared::cta.b64", "d a", arrive, 0),
    ROW("mbarrier.arrive.expect_tx.shared::cta.b64", "d a s", arrive, 1),
    ROW("cp.async.mbarrier.arrive.noinc.shared::cta.b64", "a", arrive_behind_copies, 0),
    ROW("mbarrier.try_wait.parity.shared::cta.b64", "q a s", wait_for_phase, 0),
};

const sim_rows sim_rows_mbarrier = {rows, sizeof rows / sizeof *rows};
