/*
 * Words that ldmatrix reads may arrive late: the warp continues until an instruction uses them. This finds arrivals at
 * an mbarrier that do not wait for such words, because no earlier instruction uses them. It is a data flow over the
 * virtual registers.
 *
 * A thread that waits for such an arrival may safely store to the place with an ordinary store, because shared memory
 * performs these in order. But a load through the asynchronous proxy does not wait for the read. A word is late if it
 * is late on any path. A proxy fence waits for all words. Moves pass words to other registers, and do not use them.
 */
#include <string.h>
#include "machine.h"
#include "program.h"

typedef enum kind { OTHER, READ, MOVE, FENCE, ARRIVE, LOAD } kind;

typedef struct late {
    const sim_flow *flow;
    sim_program *program;
    const ptx_class *registers;
    size_t words;
    uint64_t *in, *now; /* [block][words], [words]: sets of late registers */
} late;

static kind kind_of(const sim_op *op)
{
    static const char *const names[] = {[READ] = "ldmatrix.",
                                        [MOVE] = "mov.",
                                        [FENCE] = "fence.proxy.async",
                                        [ARRIVE] = "mbarrier.arrive.",
                                        [LOAD] = "cp.async.bulk.shared::cluster."};
    for (int k = READ; k <= LOAD; k++)
        if (strncmp(op->source->opcode, names[k], strlen(names[k])) == 0)
            return (kind)k;
    return strncmp(op->source->opcode, "cp.async.bulk.tensor.4d.shared::", 32) == 0 ? LOAD : OTHER;
}

/* Sets a register late or not. Returns true if it was late. */
static bool put(const late *l, int32_t reg, bool is_late)
{
    if (reg < 0 || l->registers[reg] != PTX_B32)
        return false;
    const uint64_t bit = (uint64_t)1 << reg % 64;
    const bool was = (l->now[reg / 64] & bit) != 0;
    l->now[reg / 64] = is_late ? l->now[reg / 64] | bit : l->now[reg / 64] & ~bit;
    return was;
}

static void step(const late *l, const sim_op *op)
{
    const kind k = kind_of(op);
    bool moved = false;
    for (int i = 0; i < op->src_count; i++)
        moved |= put(l, op->src[i], false);
    for (int i = 0; i < op->dst_count; i++)
        put(l, op->dst[i], k == READ || (k == MOVE && moved));
    if (k == FENCE)
        memset(l->now, 0, l->words * sizeof *l->now);
}

static bool any(const late *l)
{
    uint64_t all = 0;
    for (size_t w = 0; w < l->words; w++)
        all |= l->now[w];
    return all != 0;
}

static bool meet(const late *l, int block)
{
    bool changed = false;
    if (block < 0 || block == l->flow->block_count)
        return false;
    uint64_t *in = l->in + (size_t)block * l->words;
    for (size_t w = 0; w < l->words; w++) {
        changed |= (l->now[w] & ~in[w]) != 0;
        in[w] |= l->now[w];
    }
    return changed;
}

/* One round of the data flow. mark: mark late arrivals. Returns true if the state at a block's beginning changed. */
static bool visit(const late *l, bool mark)
{
    const sim_flow *flow = l->flow;
    bool changed = false;
    for (int b = 0; b < flow->block_count; b++) {
        memcpy(l->now, l->in + (size_t)b * l->words, l->words * sizeof *l->now);
        for (int i = flow->block_first[b]; i < flow->block_first[b + 1]; i++) {
            sim_op *op = &l->program->ops[i];
            if (mark && kind_of(op) == ARRIVE && any(l))
                op->late = l->program->late = true;
            step(l, op);
        }
        changed |= meet(l, flow->successors[b][0]);
        changed |= meet(l, flow->successors[b][1]);
    }
    return changed;
}

void sim_find_late(sim_arena *arena, const sim_flow *flow, const ptx_class *registers, size_t register_count,
                   sim_program *program)
{
    late l = {.flow = flow, .program = program, .registers = registers, .words = register_count / 64 + 1};
    bool there[LOAD + 1] = {false};
    for (int i = 0; i < program->op_count; i++)
        there[kind_of(&program->ops[i])] = true;
    if (!there[READ] || !there[ARRIVE] || !there[LOAD])
        return;
    l.in = sim_arena_get(arena, (size_t)flow->block_count * l.words, sizeof *l.in);
    l.now = sim_arena_get(arena, l.words, sizeof *l.now);
    while (visit(&l, false))
        ;
    visit(&l, true);
}

void sim_late_taken(sim_warp *w)
{
    sim_shadow *shadow = &w->block->shadow;
    if (w->block->program->late)
        sim_shadow_finished(shadow, (unsigned)w->index, SIM_BY_MATRICES, sim_shadow_commit(shadow));
}
