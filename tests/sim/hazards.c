/*
 * Rules for registers of wgmma.mma_async (products), checked by data flow over the virtual registers:
 *
 * - Accumulators and registers of A are pending from the product until a wgmma.wait_group that waits for its group. No
 *   other instruction may touch them, reading included.
 * - If another instruction touched them, a wgmma.fence must come before the next product that uses them. Products
 *   themselves need none between them, but a fence must come before the first one.
 * - Products with the same accumulators are ordered only if they have the same shape.
 *
 * A rule is broken if it is broken on any path to an instruction. ptxas decides in the same way, and then serialises
 * the products. An instruction that breaks a rule gets a handler that reports it when it is executed.
 *
 * The state at a point has the registers touched since the last fence, and the pending registers by group: those of the
 * open group, then of committed groups, newest first. The last set holds all older groups. If products have several
 * shapes, the state also has the pending accumulators of each shape.
 */
#include <string.h>
#include "program.h"
#include "wgmma.h"

enum { GROUPS = 5, TOUCHED = 0, OPEN = 1, OLDEST = GROUPS, SHAPES = 1 + GROUPS, SHAPES_MAX = 8 };

typedef enum kind { OTHER, PRODUCT, FENCE, COMMIT, WAIT } kind;

typedef struct hazards {
    const sim_flow *flow;
    sim_program *program;
    const ptx_class *registers;
    uint8_t *kinds; /* [op_count] */
    size_t words, sets;
    uint64_t *in, *now;     /* [block][sets][words], [sets][words] */
    int shapes[SHAPES_MAX]; /* of products; if there are more, the last ones share an entry */
    int shape_count;
} hazards;

typedef enum rule { KEPT, TOUCHES_PENDING, UNFENCED, OTHER_SHAPE } rule;

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

/* Iterates over the registers of an op that the rules concern: accumulators and A of a product, all registers of other
 * instructions. -1: the end. */
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
    for (int set = OPEN + 1; set <= OLDEST; set++)
        if (set - OPEN > pending)
            memset(set_of(h, h->now, set), 0, h->words * sizeof *h->now);
    for (size_t w = 0; w < h->words; w++) {
        uint64_t still = 0;
        for (int set = OPEN; set <= OLDEST; set++)
            still |= set_of(h, h->now, set)[w];
        for (int shape = 0; shape < h->shape_count; shape++)
            set_of(h, h->now, SHAPES + shape)[w] &= still;
    }
}

static bool is_pending(const hazards *h, int32_t reg)
{
    bool pending = false;
    for (int set = OPEN; set <= OLDEST; set++)
        pending |= has(set_of(h, h->now, set), reg);
    return pending;
}

static int shape_of(const hazards *h, const sim_op *op)
{
    int shape = 0;
    while (shape + 1 < h->shape_count && h->shapes[shape] != sim_product_shape(op->info))
        shape++;
    return shape;
}

static bool has_other_shape(const hazards *h, const sim_op *op, int32_t reg)
{
    bool other = false;
    for (int shape = 0; shape < h->shape_count; shape++)
        other |= shape != shape_of(h, op) && has(set_of(h, h->now, SHAPES + shape), reg);
    return other;
}

/* Returns the rule that an op breaks by using a register. */
static rule broken_by(const hazards *h, const sim_op *op, int32_t reg, bool product, bool accumulator)
{
    if (!product)
        return is_pending(h, reg) ? TOUCHES_PENDING : KEPT;
    if (has(set_of(h, h->now, TOUCHED), reg))
        return UNFENCED;
    return accumulator && has_other_shape(h, op, reg) ? OTHER_SHAPE : KEPT;
}

/* Applies an op to the state. Returns the first rule that it breaks, and the register. */
static rule step(const hazards *h, int op_index, int32_t *ret_reg)
{
    const sim_op *op = &h->program->ops[op_index];
    const bool product = h->kinds[op_index] == PRODUCT;
    const bool certain = op->guard == SIM_NONE; /* a guarded op may be skipped */
    rule broken = KEPT;
    if (h->kinds[op_index] == FENCE && certain)
        memset(set_of(h, h->now, TOUCHED), 0, h->words * sizeof *h->now);
    if (h->kinds[op_index] == COMMIT)
        commit(h);
    if (h->kinds[op_index] == WAIT && certain)
        wait(h, op->immediate);
    int at = 0;
    for (int32_t reg; (reg = next_register(h, op, &at)) >= 0;) {
        const bool accumulator = product && at <= op->dst_count;
        if (broken == KEPT && (broken = broken_by(h, op, reg, product, accumulator)) != KEPT)
            *ret_reg = reg;
        add(set_of(h, h->now, product ? OPEN : TOUCHED), reg);
        if (accumulator && h->shape_count > 0)
            add(set_of(h, h->now, SHAPES + shape_of(h, op)), reg);
    }
    return broken;
}

static bool meet(const hazards *h, int block)
{
    bool changed = false;
    if (block < 0 || block == h->flow->block_count)
        return false;
    uint64_t *in = h->in + (size_t)block * h->sets * h->words;
    for (size_t w = 0; w < h->sets * h->words; w++) {
        changed |= (h->now[w] & ~in[w]) != 0;
        in[w] |= h->now[w];
    }
    return changed;
}

static void begin(const hazards *h, int block)
{
    memcpy(h->now, h->in + (size_t)block * h->sets * h->words, h->sets * h->words * sizeof *h->now);
}

static void solve(const hazards *h)
{
    const sim_flow *flow = h->flow;
    int32_t reg = -1;
    memset(h->in, 0xff, h->words * sizeof *h->in); /* at the beginning nothing is fenced */
    for (bool changed = true; changed;) {
        changed = false;
        for (int b = 0; b < flow->block_count; b++) {
            begin(h, b);
            for (int i = flow->block_first[b]; i < flow->block_first[b + 1]; i++)
                step(h, i, &reg);
            changed |= meet(h, flow->successors[b][0]);
            changed |= meet(h, flow->successors[b][1]);
        }
    }
}

/* Returns the nearest instruction before `from` that touches a register, else the nearest after it. product: it must,
 * or must not, be a product. */
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
    static const sim_handler handlers[] = {
        [TOUCHES_PENDING] = sim_touches_pending, [UNFENCED] = sim_unfenced, [OTHER_SHAPE] = sim_other_shape};
    for (int b = 0; b < h->flow->block_count; b++) {
        begin(h, b);
        for (int i = h->flow->block_first[b]; i < h->flow->block_first[b + 1]; i++) {
            int32_t reg = -1;
            const rule broken = step(h, i, &reg);
            if (broken == KEPT)
                continue;
            h->program->ops[i].handler = handlers[broken];
            h->program->ops[i].info = toucher(h, i, reg, broken != UNFENCED);
        }
    }
}

/* Finds the products' shapes, if there are several. */
static void find_shapes(hazards *h)
{
    int count = 0;
    for (int i = 0; i < h->program->op_count; i++) {
        const int own = sim_product_shape(h->program->ops[i].info);
        int at = 0;
        while (at < count && h->shapes[at] != own)
            at++;
        if (h->kinds[i] == PRODUCT && at == count && count < SHAPES_MAX)
            h->shapes[count++] = own;
    }
    h->shape_count = count > 1 ? count : 0;
    h->sets = SHAPES + (size_t)h->shape_count;
}

void sim_hazards(sim_arena *arena, const sim_flow *flow, const ptx_class *registers, size_t register_count,
                 sim_program *program)
{
    hazards h = {.flow = flow, .program = program, .registers = registers, .words = register_count / 64 + 1};
    bool any = false;
    h.kinds = sim_arena_get(arena, (size_t)program->op_count, sizeof *h.kinds);
    for (int i = 0; i < program->op_count; i++) {
        h.kinds[i] = (uint8_t)kind_of(&program->ops[i]);
        any |= h.kinds[i] == PRODUCT;
    }
    if (!any)
        return;
    find_shapes(&h);
    h.in = sim_arena_get(arena, (size_t)flow->block_count * h.sets * h.words, sizeof *h.in);
    h.now = sim_arena_get(arena, h.sets * h.words, sizeof *h.now);
    solve(&h);
    mark(&h);
}
