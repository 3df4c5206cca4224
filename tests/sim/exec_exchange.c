/*
 * Exchange between the lanes of a warp: shfl.sync, vote.sync, activemask.
 *
 * The member mask must name exactly the lanes that execute the instruction. shfl must not read a lane that does not
 * execute it.
 */
#include "lanes.h"

/* Returns false, and stops the launch, if a lane is missing. */
static bool members_are_here(sim_warp *w, const uint32_t *members)
{
    uint32_t missing = 0, strangers = 0, all = w->mask;
    LANES(l)
    all &= members[l];
    if (all == SIM_ALL_LANES)
        return true;
    LANES(l)
    {
        missing |= (uint32_t)((members[l] & ~w->mask) != 0) << l;
        strangers |= (uint32_t)!sim_lane(members[l], l) << l;
    }
    const int lane = sim_first_lane((missing | strangers) & w->mask);
    if (lane < 0)
        return true;
    if (sim_lane(missing, lane))
        sim_stop(w, lane, CUDA_ERROR_LAUNCH_FAILED, "lanes are missing: it names lanes 0x%08x, executed by 0x%08x",
                 members[lane], w->mask);
    else
        sim_stop(w, lane, CUDA_ERROR_LAUNCH_FAILED, "lane %d is not among its members 0x%08x", lane, members[lane]);
    return false;
}

enum { UP, DOWN, BUTTERFLY, INDEX };

/* Stores the lane from which each lane reads, and returns the lanes for which it is in range. Others read
 * themselves. */
static uint32_t source_lanes(int mode, const uint32_t *b, const uint32_t *c, int from[SIM_LANES])
{
    uint32_t valid = 0;
    LANES(l)
    {
        const int by = (int)(b[l] & 31), segment = (int)(c[l] >> 8 & 31);
        const int last = (l & segment) | ((int)(c[l] & 31) & ~segment);
        const int wanted = mode == UP          ? l - by
                           : mode == DOWN      ? l + by
                           : mode == BUTTERFLY ? l ^ by
                                               : (l & segment) | (by & ~segment);
        const bool in_range = mode == UP ? wanted >= last : wanted <= last;
        from[l] = in_range ? wanted : l;
        valid |= (uint32_t)in_range << l;
    }
    return valid;
}

static void shfl(const sim_op *op, sim_warp *w)
{
    const uint32_t *a = sim_source(w, op->src[0]);
    uint32_t out[SIM_LANES];
    int from[SIM_LANES];
    if (!members_are_here(w, sim_source(w, op->src[3])))
        return;
    const uint32_t valid = source_lanes(op->info, sim_source(w, op->src[1]), sim_source(w, op->src[2]), from);
    for (uint32_t left = w->mask == SIM_ALL_LANES ? 0 : w->mask; left != 0; left &= left - 1) {
        const int l = sim_first_lane(left);
        if (!sim_lane(w->mask, from[l])) {
            sim_stop(w, l, CUDA_ERROR_LAUNCH_FAILED, "it reads lane %d, which does not execute it (0x%08x do)", from[l],
                     w->mask);
            return;
        }
    }
    LANES(l)
    out[l] = a[from[l]];
    sim_put(w, op->dst[0], out);
    if (op->dst[1] != SIM_NONE)
        sim_put_predicate(w, op->dst[1], valid);
}

enum { ANY, ALL, UNIFORM, BALLOT };

static void vote(const sim_op *op, sim_warp *w)
{
    const uint32_t *members = sim_source(w, op->src[1]);
    const uint32_t p = sim_predicate(w, op, 0);
    uint32_t bits = 0, ballots[SIM_LANES];
    if (!members_are_here(w, members))
        return;
    LANES(l)
    {
        const uint32_t yes = p & members[l], all = members[l];
        const bool answer = op->info == ANY ? yes != 0 : op->info == ALL ? yes == all : yes == all || yes == 0;
        bits |= (uint32_t)answer << l;
        ballots[l] = yes;
    }
    if (op->info == BALLOT)
        sim_put(w, op->dst[0], ballots);
    else
        sim_put_predicate(w, op->dst[0], bits);
}

static void active_mask(const sim_op *op, sim_warp *w)
{
    uint32_t out[SIM_LANES];
    LANES(l)
    out[l] = w->mask;
    sim_put(w, op->dst[0], out);
}

#define ROW(opcode, form, handler, info)                                                                               \
    {                                                                                                                  \
        opcode, form, handler, SIM_KIND_EXCHANGE, info                                                                 \
    }

static const sim_row rows[] = {
    ROW("shfl.sync.up.b32", "o s s s s", shfl, UP),
    ROW("shfl.sync.down.b32", "o s s s s", shfl, DOWN),
    ROW("shfl.sync.bfly.b32", "o s s s s", shfl, BUTTERFLY),
    ROW("shfl.sync.idx.b32", "o s s s s", shfl, INDEX),
    ROW("vote.sync.any.pred", "q Q s", vote, ANY),
    ROW("vote.sync.all.pred", "q Q s", vote, ALL),
    ROW("vote.sync.uni.pred", "q Q s", vote, UNIFORM),
    ROW("vote.sync.ballot.b32", "r Q s", vote, BALLOT),
    ROW("activemask.b32", "r", active_mask, 0),
};

const sim_rows sim_rows_exchange = {rows, sizeof rows / sizeof *rows};
