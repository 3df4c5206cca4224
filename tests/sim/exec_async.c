/*
 * cp.async and its groups.
 *
 * A copy reads global memory when it starts. Its bytes reach shared memory when the thread waits for their group. Until
 * then the words are pending, and any access to them is an error. Groups belong to a thread: a copy is in the group
 * that the thread's next commit closes.
 */
#include <string.h>
#include "access.h"
#include "arena.h"
#include "lanes.h"
#include "traffic.h"

static sim_copy *new_copy(sim_warp *w)
{
    w->copies = sim_host_grow(w->copies, w->copy_count, &w->copy_capacity, sizeof *w->copies);
    sim_copy *copy = &w->copies[w->copy_count++];
    copy->lanes = 0;
    return copy;
}

/* 4, 8 or 16 bytes. */
static void move(uint8_t *to, const uint8_t *from, unsigned bytes)
{
    if (bytes == 16)
        memcpy(to, from, 16);
    else
        sim_copy_bytes(to, from, bytes);
}

/* Starts one lane's copy: `size` bytes come from global memory, the rest is zeros. */
static bool start_lane(sim_warp *w, sim_copy *copy, int lane, uint64_t to, uint64_t from, unsigned size)
{
    if (size > copy->bytes) {
        sim_stop(w, lane, CUDA_ERROR_LAUNCH_FAILED, "%u source bytes for a copy of %u", size, copy->bytes);
        return false;
    }
    if (!sim_shared_start(w, lane, to, copy->bytes))
        return false;
    memset(copy->data[lane], 0, sizeof copy->data[lane]);
    if (size == copy->bytes) {
        const uint8_t *source = sim_global_at(w, lane, from, size, SIM_READ, false);
        if (source == NULL)
            return false;
        move(copy->data[lane], source, size);
    }
    for (unsigned i = 0; size < copy->bytes && i < size; i++) {
        const uint8_t *source = sim_global_at(w, lane, from + i, 1, SIM_READ, false);
        if (source == NULL)
            return false;
        copy->data[lane][i] = *source;
    }
    copy->address[lane] = (uint32_t)to;
    copy->group[lane] = w->commits[lane];
    copy->lanes |= 1u << lane;
    return true;
}

static void start(const sim_op *op, sim_warp *w)
{
    uint64_t to[SIM_LANES], from[SIM_LANES];
    uint32_t narrow[SIM_LANES], reading = w->mask;
    const uint32_t *sizes = op->src[2] == SIM_NONE ? NULL : sim_source(w, op->src[2]);
    const unsigned bytes = (unsigned)op->immediate;
    if (bytes != 16 && (op->info || (bytes != 4 && bytes != 8))) {
        sim_stop(w, -1, CUDA_ERROR_NOT_SUPPORTED, "a copy of %u bytes", bytes);
        return;
    }
    sim_addresses(w, op, 0, 0, to);
    sim_addresses(w, op, 1, 1, from);
    sim_copy *copy = new_copy(w);
    copy->bytes = (uint8_t)bytes;
    copy->op = w->pc;
    LANES(l)
    {
        const unsigned size = sizes == NULL ? bytes : sizes[l];
        narrow[l] = (uint32_t)to[l];
        if (size == 0)
            reading &= ~(1u << l);
        if (sim_lane(w->mask, l) && !start_lane(w, copy, l, to[l], from[l], size))
            return;
    }
    sim_count_shared(sim_counter(w), w->mask, narrow, bytes);
    sim_count_global(sim_counter(w), reading, from, bytes);
}

static void commit(const sim_op *op, sim_warp *w)
{
    (void)op;
    LANES(l)
    w->commits[l] += sim_lane(w->mask, l);
}

static void land_lane(sim_warp *w, sim_copy *copy, int lane)
{
    uint8_t *at = sim_shared_land(w, lane, copy->address[lane], copy->bytes, copy->op);
    move(at, copy->data[lane], copy->bytes);
    copy->lanes &= ~(1u << lane);
}

/* Forgets copies for which all lanes have waited. */
static void forget_landed(sim_warp *w)
{
    size_t kept = 0;
    for (size_t i = 0; i < w->copy_count; i++) {
        if (w->copies[i].lanes == 0)
            continue;
        if (kept != i)
            w->copies[kept] = w->copies[i];
        kept++;
    }
    w->copy_count = kept;
}

/* Lets committed copies of the lanes land, except for their last `pending` groups. */
static void land(sim_warp *w, uint32_t pending)
{
    for (size_t i = 0; i < w->copy_count; i++) {
        sim_copy *copy = &w->copies[i];
        for (uint32_t lanes = copy->lanes & w->mask; lanes != 0; lanes &= lanes - 1) {
            const int lane = sim_first_lane(lanes);
            if (copy->group[lane] + pending < w->commits[lane])
                land_lane(w, copy, lane);
        }
    }
    forget_landed(w);
}

void sim_copies_land_at(sim_warp *w, int lane, unsigned mbarrier, uint32_t began)
{
    for (size_t i = 0; i < w->copy_count; i++) {
        sim_copy *copy = &w->copies[i];
        if (sim_lane(copy->lanes, lane)) {
            uint8_t *at = sim_shared_land_at(w, lane, copy->address[lane], copy->bytes, copy->op, mbarrier, began);
            move(at, copy->data[lane], copy->bytes);
            copy->lanes &= ~(1u << lane);
        }
    }
    forget_landed(w);
}

static void wait_group(const sim_op *op, sim_warp *w)
{
    land(w, (uint32_t)op->immediate);
}

static void wait_all(const sim_op *op, sim_warp *w)
{
    commit(op, w);
    land(w, 0);
}

/* info: 16 bytes only */
#define COPIES(cache, only_16)                                                                                         \
    {"cp.async." cache ".shared.global", "a a i ?s", start, SIM_KIND_ASYNC, only_16},                                  \
        {"cp.async." cache ".shared.global.L2::64B", "a a i ?s", start, SIM_KIND_ASYNC, only_16},                      \
        {"cp.async." cache ".shared.global.L2::128B", "a a i ?s", start, SIM_KIND_ASYNC, only_16},                     \
    {                                                                                                                  \
        "cp.async." cache ".shared.global.L2::256B", "a a i ?s", start, SIM_KIND_ASYNC, only_16                        \
    }

static const sim_row rows[] = {
    COPIES("ca", 0),
    COPIES("cg", 1),
    {"cp.async.commit_group", "", commit, SIM_KIND_ASYNC, 0},
    {"cp.async.wait_group", "i", wait_group, SIM_KIND_ASYNC, 0},
    {"cp.async.wait_all", "", wait_all, SIM_KIND_ASYNC, 0},
};

const sim_rows sim_rows_async = {rows, sizeof rows / sizeof *rows};
