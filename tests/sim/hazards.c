/*
 * Registers of products of warpgroups (wgmma.mma_async), by data flow over the virtual registers:
 *
 * - Accumulators and the registers of A are pending from the product until a wgmma.wait_group that
 * waits for its group; no other instruction may touch them.
 * - Whatever touches them, reading included, must be ordered before the next product with them by a
 * wgmma.fence. Products themselves are exempt, and before the first there must be one.
 *
 * What holds on some path to an instruction counts, as it does for ptxas, which then gives up the
 * asynchrony. An instruction that breaks a rule gets a handler that says so, when it is executed.
 *
 * State at a point: the set of registers touched since the last fence, and those pending by group:
 * of the one that is open, and of the committed ones, newest first; the oldest set takes what is
 * older.
 */
#include "program.h"
#include <string.h>

enum { GROUPS = 5, SETS = 1 + GROUPS, TOUCHED = 0, OPEN = 1, OLDEST = SETS - 1 };

typedef enum kind { OTHER, PRODUCT, FENCE, COMMIT, WAIT } kind;

typedef struct hazards {
    const sim_flow *flow;
    sim_program *program;
    const ptx_class *registers;
    uint8_t *kinds; /* [op_count] */
    size_t words;
    uint64_t *in, *now; /* [block][SETS][words], [SETS][words] */
} hazards;

static kind kind_of(const sim_op *op)
{
    static const char *const names[] = {[PRODUCT] = "wgmma.mma_async.",
                                        [FENCE] = "wgmma.fence.",
                                        [COMMIT] = "wgmma.commit_group.",
                                        [WAIT] = "wgmma.wait_group."};
    for (int k = PRODUCT; k <= WAIT; k++)
        if (strncmp(op->source->opcode, names[k], strlen(names[k])) == 0)
            return (kind)k;
    return OTHER;
}

static uint64_t *set_of(const hazards *h, uint64_t *state, int set)
{
    return state + (size_t)set * h->words;
}

static bool has(const uint64_t *set, int32_t reg)
{
    return set[reg / 64] >> reg % 64 & 1;
}

static void add(uint64_t *set, int32_t reg)
{
    set[reg / 64] |= (uint64_t)1 << reg % 64;
}

/* The registers of an op that the rules are about, one after the other: accumulators and A of a
 * product, all of any other instruction. -1: no more. */
static int32_t next_register(const hazards *h, const sim_op *op, int *at)
{
    while (*at < op->dst_count + op->src_count) {
        const int i = (*at)++;
        const int32_t reg = i < op->dst_count ? op->dst[i] : op->src[i - op->dst_count];
        if (reg >= 0 && h->registers[reg] == PTX_B32)
            return reg;
    }
    return -1;
}

static void commit(const hazards *h)
{
    uint64_t *oldest = set_of(h, h->now, OLDEST), *older = set_of(h, h->now, OLDEST - 1);
    for (size_t w = 0; w < h->words; w++)
        oldest[w] |= older[w];
    for (int set = OLDEST - 1; set > OPEN; set--)
        memcpy(set_of(h, h->now, set), set_of(h, h->now, set - 1), h->words * sizeof *h->now);
    memset(set_of(h, h->now, OPEN), 0, h->words * sizeof *h->now);
}

static void wait(const hazards *h, int64_t pending)
{
    for (int set = OPEN + 1; set < SETS; set++)
        if (set - OPEN > pending)
            memset(set_of(h, h->now, set), 0, h->words * sizeof *h->now);
}

static bool is_pending(const hazards *h, int32_t reg)
{
    bool pending = false;
    for (int set = OPEN; set < SETS; set++)
        pending |= has(set_of(h, h->now, set), reg);
    return pending;
}

/* What an op does to the state. Returns a register with which it breaks a rule; -1: none. */
static int32_t step(const hazards *h, int op_index)
{
    const sim_op *op = &h->program->ops[op_index];
    const bool product = h->kinds[op_index] == PRODUCT;
    int32_t broken = -1;
    const bool certain = op->guard == SIM_NONE; /* a path may skip it otherwise */
    if (h->kinds[op_index] == FENCE && certain)
        memset(set_of(h, h->now, TOUCHED), 0, h->words * sizeof *h->now);
    if (h->kinds[op_index] == COMMIT)
        commit(h);
    if (h->kinds[op_index] == WAIT && certain)
        wait(h, op->immediate);
    uint64_t *set = set_of(h, h->now, product ? OPEN : TOUCHED);
    int at = 0;
    for (int32_t reg; (reg = next_register(h, op, &at)) >= 0;) {
        const bool wrong = product ? has(set_of(h, h->now, TOUCHED), reg) : is_pending(h, reg);
        broken = wrong && broken < 0 ? reg : broken;
        add(set, reg);
    }
    return broken;
}

static bool meet(const hazards *h, int block)
{
    bool changed = false;
    if (block < 0 || block == h->flow->block_count)
        return false;
    uint64_t *in = h->in + (size_t)block * SETS * h->words;
    for (size_t w = 0; w < SETS * h->words; w++) {
        changed |= (h->now[w] & ~in[w]) != 0;
        in[w] |= h->now[w];
    }
    return changed;
}

static void begin(const hazards *h, int block)
{
    memcpy(h->now, h->in + (size_t)block * SETS * h->words, SETS * h->words * sizeof *h->now);
}

static void solve(const hazards *h)
{
    const sim_flow *flow = h->flow;
    memset(h->in, 0xff, h->words * sizeof *h->in); /* nothing is fenced at the beginning */
    for (bool changed = true; changed;) {
        changed = false;
        for (int b = 0; b < flow->block_count; b++) {
            begin(h, b);
            for (int i = flow->block_first[b]; i < flow->block_first[b + 1]; i++)
                step(h, i);
            changed |= meet(h, flow->successors[b][0]);
            changed |= meet(h, flow->successors[b][1]);
        }
    }
}

/* The nearest instruction before `from` that touches a register, a product or any other; else the
 * nearest behind it. */
static int32_t toucher(const hazards *h, int from, int32_t wanted, bool product)
{
    const int count = h->program->op_count;
    for (int i = 1; i < count; i++) {
        const int op_index = (from + count - i) % count;
        const sim_op *op = &h->program->ops[op_index];
        int at = 0;
        if ((h->kinds[op_index] == PRODUCT) != product)
            continue;
        for (int32_t reg; (reg = next_register(h, op, &at)) >= 0;)
            if (reg == wanted)
                return op_index;
    }
    return SIM_NONE;
}

static void mark(const hazards *h)
{
    for (int b = 0; b < h->flow->block_count; b++) {
        begin(h, b);
        for (int i = h->flow->block_first[b]; i < h->flow->block_first[b + 1]; i++) {
            sim_op *op = &h->program->ops[i];
            const int32_t broken = step(h, i);
            if (broken < 0)
                continue;
            const bool product = h->kinds[i] == PRODUCT;
            op->handler = product ? sim_unfenced : sim_touches_pending;
            op->info = toucher(h, i, broken, !product);
        }
    }
}

void sim_hazards(sim_arena *arena, const sim_flow *flow, const ptx_class *registers,
                 size_t register_count, sim_program *program)
{
    hazards h = {
        .flow = flow, .program = program, .registers = registers, .words = register_count / 64 + 1};
    bool any = false;
    h.kinds = sim_arena_get(arena, (size_t)program->op_count, sizeof *h.kinds);
    for (int i = 0; i < program->op_count; i++) {
        h.kinds[i] = (uint8_t)kind_of(&program->ops[i]);
        any |= h.kinds[i] == PRODUCT;
    }
    if (!any)
        return;
    h.in = sim_arena_get(arena, (size_t)flow->block_count * SETS * h.words, sizeof *h.in);
    h.now = sim_arena_get(arena, SETS * h.words, sizeof *h.now);
    solve(&h);
    mark(&h);
}
