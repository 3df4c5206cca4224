/*
 * The checks, and the words for what they find.
 */
#include "access.h"
#include <stdio.h>

static bool is_aligned(sim_warp *w, int lane, uint64_t address, unsigned bytes)
{
    if (address % bytes == 0)
        return true;
    sim_stop(w, lane, CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address: %u bytes at 0x%llx",
             bytes, (unsigned long long)address);
    return false;
}

/* ---- shared ---- */

static bool is_in_shared(sim_warp *w, int lane, uint64_t address, unsigned bytes)
{
    const uint32_t size = w->block->launch->shared_bytes;
    if (address >= SIM_SHARED_BASE && address - SIM_SHARED_BASE <= size &&
        bytes <= size - (address - SIM_SHARED_BASE))
        return is_aligned(w, lane, address, bytes);
    sim_stop(w, lane, CUDA_ERROR_ILLEGAL_ADDRESS,
             "outside of shared memory: %u bytes at offset %lld; the block has %u", bytes,
             (long long)(address - SIM_SHARED_BASE), size);
    return false;
}

static void stop_conflict(sim_warp *w, int lane, sim_conflict conflict, const sim_party *other,
                          uint64_t address)
{
    static const char *const what[] = {
        [SIM_UNWRITTEN] = "uninitialised: it reads shared memory at offset %u that nobody wrote",
        [SIM_WRITE_READ] = "race: it reads shared memory at offset %u, written without a barrier "
                           "between by thread %u at ",
        [SIM_READ_WRITE] = "race: it writes shared memory at offset %u, read without a barrier "
                           "between by thread %u at ",
        [SIM_WRITE_WRITE] = "race: it writes shared memory at offset %u, also written without a "
                            "barrier between by thread %u at ",
        [SIM_PENDING] = "early: shared memory at offset %u waits for the cp.async of thread %u at ",
    };
    char first[192], second[512] = "";
    snprintf(first, sizeof first, what[conflict], (unsigned)(address - SIM_SHARED_BASE),
             other->thread);
    if (conflict != SIM_UNWRITTEN)
        sim_describe(w->block->program, other->op, second, sizeof second);
    sim_stop(w, lane, CUDA_ERROR_LAUNCH_FAILED, "%s%s", first, second);
}

static sim_access access_of(const sim_warp *w, int lane, int32_t op)
{
    return (sim_access){sim_thread(w, lane), w->sync_epoch, op, false};
}

typedef sim_conflict (*note)(sim_shadow *, const sim_access *, uint32_t, unsigned, sim_party *);

static uint8_t *shared_at(sim_warp *w, int lane, uint64_t address, unsigned bytes, bool collective,
                          note note_access)
{
    if (!is_in_shared(w, lane, address, bytes))
        return NULL;
    sim_access access = access_of(w, lane, w->pc);
    access.collective = collective;
    const uint32_t at = (uint32_t)(address - SIM_SHARED_BASE);
    sim_party other;
    const sim_conflict conflict = note_access(&w->block->shadow, &access, at, bytes, &other);
    if (conflict == SIM_NO_CONFLICT)
        return w->block->shared + at;
    stop_conflict(w, lane, conflict, &other, address);
    return NULL;
}

uint8_t *sim_shared_read(sim_warp *w, int lane, uint64_t address, unsigned bytes)
{
    return shared_at(w, lane, address, bytes, false, sim_shadow_read);
}

uint8_t *sim_shared_read_collective(sim_warp *w, int lane, uint64_t address, unsigned bytes)
{
    return shared_at(w, lane, address, bytes, true, sim_shadow_read);
}

const uint8_t *sim_shared_read_products(sim_warp *w, uint64_t address, unsigned bytes)
{
    return shared_at(w, 0, address, bytes, true, sim_shadow_read);
}

uint8_t *sim_shared_write(sim_warp *w, int lane, uint64_t address, unsigned bytes)
{
    return shared_at(w, lane, address, bytes, false, sim_shadow_write);
}

bool sim_shared_start(sim_warp *w, int lane, uint64_t address, unsigned bytes)
{
    return shared_at(w, lane, address, bytes, false, sim_shadow_start) != NULL;
}

uint8_t *sim_shared_land(sim_warp *w, int lane, uint32_t address, unsigned bytes, int32_t op)
{
    const sim_access access = access_of(w, lane, op);
    const uint32_t at = address - SIM_SHARED_BASE;
    sim_shadow_land(&w->block->shadow, &access, at, bytes);
    return w->block->shared + at;
}

/* ---- global ---- */

static const char *const verbs[] = {"reads", "writes", "adds to"}; /* by sim_way_of_access */

static void stop_race(sim_warp *w, int lane, uint64_t address, sim_way_of_access access,
                      const sim_toucher *other)
{
    const unsigned *grid = w->block->launch->grid;
    sim_stop(w, lane, CUDA_ERROR_LAUNCH_FAILED,
             "race: it %s global memory at 0x%llx, which thread %u of block (%u, %u, %u) accessed, "
             "with no order between",
             verbs[access], (unsigned long long)address, other->thread, other->block % grid[0],
             other->block / grid[0] % grid[1], other->block / grid[0] / grid[1]);
}

uint8_t *sim_global_at(sim_warp *w, int lane, uint64_t address, unsigned bytes,
                       sim_way_of_access access, bool constant)
{
    sim_launch *launch = w->block->launch;
    sim_memory *memory = launch->memory;
    sim_allocation *a = sim_memory_find(memory, address);
    if (a == NULL || a->data == NULL || address - a->base >= a->bytes ||
        bytes > a->bytes - (address - a->base)) {
        char where[160];
        sim_memory_describe(memory, address, where, sizeof where);
        sim_stop(w, lane, CUDA_ERROR_ILLEGAL_ADDRESS,
                 "illegal address: it %s %u bytes of global memory that are not allocated: %s",
                 verbs[access], bytes, where);
        return NULL;
    }
    if (!is_aligned(w, lane, address, bytes))
        return NULL;
    const size_t at = (size_t)(address - a->base);
    const sim_shadow *shadow = &w->block->shadow;
    const sim_toucher who = {launch->serial, w->block->index, sim_thread(w, lane),
                             shadow->whole_barriers};
    /* Barriers of some warps do not order global memory here: kernels use none for it. Neighbours
     * in one word may be of different threads: those are not told apart. */
    for (size_t word = at / 4; bytes >= 4 && !constant && word < (at + bytes) / 4; word++) {
        sim_toucher other;
        if (!sim_memory_note(memory, a, word, access, &who, &other)) {
            stop_race(w, lane, address, access, &other);
            return NULL;
        }
    }
    return a->data + at;
}
