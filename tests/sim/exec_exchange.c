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
    LANES(l)
    {
        if (!sim_lane(w->mask, l))
            continue;
        if ((members[l] & ~w->mask) != 0) {
            sim_stop(w, l, CUDA_ERROR_LAUNCH_FAILED, "lanes are missing: it names lanes 0x%08x, executed by 0x%08x",
                     members[l], w->mask);
            return false;
        }
        if (!sim_lane(members[l], l)) {
            sim_stop(w, l, CUDA_ERROR_LAUNCH_FAILED, "lane %d is not among its members 0x%08x", l, members[l]);
            return false;
        }
    }
    return true;
}

enum { UP, DOWN, BUTTERFLY, INDEX };

static int source_lane(int mode, int lane, uint32_t b, uint32_t c, bool *ret_in_range)
{
    const int by = (int)(b & 31), segment = (int)(c >> 8 & 31);
    const int last = (lane & segment) | ((int)(c & 31) & ~segment);
    int from = lane;
    switch (mode) {
    case UP:
        from = lane - by;
        *ret_in_range = from >= last;
        break;
    case DOWN:
        from = lane + by;
        *ret_in_range = from <= last;
        break;
    case BUTTERFLY:
        from = lane ^ by;
        *ret_in_range = from <= last;
        break;
    default:
        from = (lane & segment) | (by & ~segment);
        *ret_in_range = from <= last;
    }
    return *ret_in_range ? from : lane;
}

static void shfl(const sim_op *op, sim_warp *w)
{
    const uint32_t *a = sim_source(w, op->src[0]), *b = sim_source(w, op->src[1]);
    const uint32_t *c = sim_source(w, op->src[2]);
    uint32_t out[SIM_LANES] = {0}, valid = 0;
    if (!members_are_here(w, sim_source(w, op->src[3])))
        return;
    LANES(l)
    {
        bool in_range = false;
        const int from = source_lane(op->info, l, b[l], c[l], &in_range);
        if (sim_lane(w->mask, l) && !sim_lane(w->mask, from)) {
            sim_stop(w, l, CUDA_ERROR_LAUNCH_FAILED, "it reads lane %d, which does not execute it (0x%08x do)", from,
                     w->mask);
            return;
        }
        out[l] = a[from];
        valid |= (uint32_t)in_range << l;
    }
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
