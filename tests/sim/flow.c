/*
 * The control flow of a program: basic blocks, and for each divergent branch the place where its sides meet again, its
 * immediate post-dominator.
 *
 * - pdom(b) = {b} plus the blocks common to pdom of all successors of b. It is solved by iteration from "all blocks".
 * - The nearest strict post-dominator of b is post-dominated by all other ones, so its set is the largest.
 */
#include "program.h"
#include <string.h>

bool sim_is_branch(const sim_op *op)
{
    return op->kind == SIM_KIND_CONTROL && op->info == SIM_BRANCH;
}

bool sim_is_exit(const sim_op *op)
{
    return op->kind == SIM_KIND_CONTROL && op->info == SIM_EXIT;
}

static void find_blocks(const sim_op *ops, int op_count, sim_flow *flow)
{
    for (int i = 0; i < op_count; i++)
        flow->block_of[i] = i == 0; /* 1: an op begins a block */
    for (int i = 0; i < op_count; i++) {
        if (sim_is_branch(&ops[i]) && ops[i].target < op_count)
            flow->block_of[ops[i].target] = 1;
        if ((sim_is_branch(&ops[i]) || sim_is_exit(&ops[i])) && i + 1 < op_count)
            flow->block_of[i + 1] = 1;
    }
    for (int i = 0; i < op_count; i++) {
        if (flow->block_of[i])
            flow->block_first[flow->block_count++] = i;
        flow->block_of[i] = flow->block_count - 1;
    }
    flow->block_first[flow->block_count] = op_count;
}

static int block_at(const sim_flow *flow, int op)
{
    return op < flow->op_count ? flow->block_of[op] : flow->block_count;
}

void sim_flow_init(sim_arena *arena, sim_op *ops, int op_count, sim_flow *ret_flow)
{
    sim_flow *flow = ret_flow;
    *flow = (sim_flow){.op_count = op_count};
    flow->block_first = sim_arena_get(arena, (size_t)op_count + 1, sizeof *flow->block_first);
    flow->block_of = sim_arena_get(arena, (size_t)op_count, sizeof *flow->block_of);
    find_blocks(ops, op_count, flow);
    flow->successors = sim_arena_get(arena, (size_t)flow->block_count, sizeof *flow->successors);
    for (int b = 0; b < flow->block_count; b++) {
        const sim_op *last = &ops[flow->block_first[b + 1] - 1];
        for (int i = flow->block_first[b]; i < flow->block_first[b + 1]; i++)
            ops[i].block_end = flow->block_first[b + 1];
        const bool always = last->guard == SIM_NONE;
        const int next = block_at(flow, flow->block_first[b + 1]);
        int *to = flow->successors[b];
        to[0] = next;
        to[1] = -1;
        if (sim_is_branch(last))
            to[always ? 0 : 1] = block_at(flow, last->target);
        else if (sim_is_exit(last))
            to[always ? 0 : 1] = flow->block_count;
    }
}

/* ---- post-dominators ---- */

static bool meet_successors(const sim_flow *flow, uint64_t *sets, size_t words, int block, uint64_t *scratch)
{
    memset(scratch, 0xff, words * sizeof *scratch);
    for (int i = 0; i < 2; i++) {
        const int to = flow->successors[block][i];
        for (size_t w = 0; to >= 0 && w < words; w++)
            scratch[w] &= sets[(size_t)to * words + w];
    }
    scratch[block / 64] |= (uint64_t)1 << block % 64;
    uint64_t *set = sets + (size_t)block * words;
    const bool changed = memcmp(set, scratch, words * sizeof *set) != 0;
    memcpy(set, scratch, words * sizeof *set);
    return changed;
}

static int set_size(const uint64_t *set, size_t words)
{
    int size = 0;
    for (size_t w = 0; w < words; w++)
        size += __builtin_popcountll(set[w]);
    return size;
}

/* Returns the nearest strict post-dominator; block_count means the exit. */
static int nearest(const sim_flow *flow, const uint64_t *sets, size_t words, int block)
{
    int best = flow->block_count, best_size = 0;
    const uint64_t *set = sets + (size_t)block * words;
    for (int d = 0; d < flow->block_count; d++) {
        if (d == block || !(set[d / 64] >> d % 64 & 1))
            continue;
        const int size = set_size(sets + (size_t)d * words, words);
        if (size > best_size) {
            best = d;
            best_size = size;
        }
    }
    return best;
}

void sim_flow_joins(sim_arena *arena, const sim_flow *flow, sim_op *ops)
{
    const size_t words = ((size_t)flow->block_count + 64) / 64; /* including a bit for the exit */
    uint64_t *sets = sim_arena_get(arena, ((size_t)flow->block_count + 1) * words, sizeof *sets);
    uint64_t *scratch = sim_arena_get(arena, words, sizeof *scratch);
    memset(sets, 0xff, (size_t)flow->block_count * words * sizeof *sets);
    sets[(size_t)flow->block_count * words + (size_t)flow->block_count / 64] |= (uint64_t)1 << flow->block_count % 64;
    for (bool changed = true; changed;) {
        changed = false;
        for (int b = flow->block_count; b-- > 0;)
            changed |= meet_successors(flow, sets, words, b, scratch);
    }
    for (int b = 0; b < flow->block_count; b++) {
        sim_op *last = &ops[flow->block_first[b + 1] - 1];
        if (!sim_is_branch(last))
            continue;
        const int join = nearest(flow, sets, words, b);
        last->join = join == flow->block_count ? SIM_NONE : flow->block_first[join];
    }
}
