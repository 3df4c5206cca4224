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

enum { COPY_BYTES_MAX = sizeof((sim_copy *)0)->data[0] };

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

/* Starts copies that read all their bytes (lanes `reading`) or none. */
static void start_lanes(sim_warp *w, sim_copy *copy, uint32_t reading, const uint64_t to[SIM_LANES],
                        const uint64_t from[SIM_LANES])
{
    uint8_t *source[SIM_LANES];
    if (!sim_shared_lanes_start(w, w->mask, to, copy->bytes) ||
        (reading != 0 && !sim_global_lanes(w, reading, from, copy->bytes, SIM_READ, false, source)))
        return;
    memset(copy->data, 0, reading == SIM_ALL_LANES && copy->bytes == COPY_BYTES_MAX ? 0 : sizeof copy->data);
    for (uint32_t left = reading; left != 0; left &= left - 1) {
        const int lane = sim_first_lane(left);
        move(copy->data[lane], source[lane], copy->bytes);
    }
    LANES(l)
    copy->address[l] = (uint32_t)to[l];
    memcpy(copy->group, w->commits, sizeof copy->group);
    copy->lanes = w->mask;
}

static void start(const sim_op *op, sim_warp *w)
{
    uint64_t to[SIM_LANES], from[SIM_LANES];
    uint32_t narrow[SIM_LANES], reading = 0, in_part = 0;
    const uint32_t *sizes = op->src[2] == SIM_NONE ? NULL : sim_source(w, op->src[2]);
    const unsigned bytes = (unsigned)op->immediate;
    if (bytes != COPY_BYTES_MAX && (op->info || (bytes != 4 && bytes != 8))) {
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
        reading |= (uint32_t)(size != 0) << l;
        in_part |= (uint32_t)(size != 0 && size != bytes) << l;
    }
    reading &= w->mask;
    if ((in_part & w->mask) == 0)
        start_lanes(w, copy, reading, to, from);
    for (uint32_t left = (in_part & w->mask) == 0 ? 0 : w->mask; left != 0; left &= left - 1) {
        const int lane = sim_first_lane(left);
        if (!start_lane(w, copy, lane, to[lane], from[lane], sizes[lane]))
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

static void land_lanes(sim_warp *w, sim_copy *copy, uint32_t lanes)
{
    sim_shared_lanes_land(w, lanes, copy->address, copy->bytes, copy->op);
    for (uint32_t left = lanes; left != 0; left &= left - 1) {
        const int lane = sim_first_lane(left);
        move(w->block->shared + (copy->address[lane] - SIM_SHARED_BASE), copy->data[lane], copy->bytes);
    }
    copy->lanes &= ~lanes;
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
        uint32_t lanes = 0;
        LANES(l)
        lanes |= (uint32_t)(copy->group[l] + pending < w->commits[l]) << l;
        land_lanes(w, copy, lanes & copy->lanes & w->mask);
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
