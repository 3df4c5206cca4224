/*
 * Assigns places in the register file by a linear scan over the lifetimes of the virtual registers.
 *
 * - Liveness is computed per basic block. A guarded write does not end a lifetime, because lanes without the guard keep
 *   the old value. This is right under divergence, too: writes are masked, and each lane runs a sequential program.
 * - A lifetime is one interval from the first to the last instruction, including loops. So two registers that share a
 *   place are never alive together. A register that an instruction reads never shares with one that it writes.
 */
#include "program.h"
#include <stdlib.h>
#include <string.h>

typedef struct liveness {
    const sim_flow *flow;
    const ptx_class *registers;
    size_t register_count, words;
    uint64_t *in, *out; /* [block][words] */
    int *first, *last;  /* of a register's lifetime; first > last: never used */
    sim_program *program;
} liveness;

static void set_bit(uint64_t *set, int32_t bit)
{
    set[bit / 64] |= (uint64_t)1 << bit % 64;
}

static void clear_bit(uint64_t *set, int32_t bit)
{
    set[bit / 64] &= ~((uint64_t)1 << bit % 64);
}

/* Steps backwards over one instruction. `alive` becomes the registers alive before it. */
static void step_back(const liveness *l, int op_index, uint64_t *alive)
{
    const sim_op *op = &l->program->ops[op_index];
    for (int i = 0; i < op->dst_count; i++) {
        if (op->dst[i] == SIM_NONE)
            continue;
        if (op->guard == SIM_NONE && !op->reads_dst)
            clear_bit(alive, op->dst[i]);
        else
            set_bit(alive, op->dst[i]);
    }
    for (int i = 0; i < op->src_count; i++)
        if (op->src[i] >= 0)
            set_bit(alive, op->src[i]);
    if (op->guard != SIM_NONE)
        set_bit(alive, op->guard);
}

static void gather_out(const liveness *l, int block, uint64_t *alive)
{
    memset(alive, 0, l->words * sizeof *alive);
    for (int i = 0; i < 2; i++) {
        const int to = l->flow->successors[block][i];
        if (to < 0 || to == l->flow->block_count)
            continue;
        for (size_t w = 0; w < l->words; w++)
            alive[w] |= l->in[(size_t)to * l->words + w];
    }
}

static void solve(liveness *l, uint64_t *alive)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int b = l->flow->block_count; b-- > 0;) {
            uint64_t *in = l->in + (size_t)b * l->words;
            gather_out(l, b, alive);
            memcpy(l->out + (size_t)b * l->words, alive, l->words * sizeof *alive);
            for (int i = l->flow->block_first[b + 1]; i-- > l->flow->block_first[b];)
                step_back(l, i, alive);
            changed |= memcmp(in, alive, l->words * sizeof *in) != 0;
            memcpy(in, alive, l->words * sizeof *in);
        }
    }
}

static void touch(liveness *l, int32_t reg, int op)
{
    if (op < l->first[reg])
        l->first[reg] = op;
    if (op > l->last[reg])
        l->last[reg] = op;
}

static void touch_set(liveness *l, const uint64_t *set, int op)
{
    for (size_t w = 0; w < l->words; w++)
        for (uint64_t bits = set[w]; bits != 0; bits &= bits - 1)
            touch(l, (int32_t)(64 * w) + __builtin_ctzll(bits), op);
}

static void find_lives(liveness *l)
{
    for (size_t r = 0; r < l->register_count; r++) {
        l->first[r] = INT32_MAX;
        l->last[r] = -1;
    }
    for (int b = 0; b < l->flow->block_count; b++) {
        touch_set(l, l->in + (size_t)b * l->words, l->flow->block_first[b]);
        touch_set(l, l->out + (size_t)b * l->words, l->flow->block_first[b + 1] - 1);
    }
    for (int i = 0; i < l->flow->op_count; i++) {
        const sim_op *op = &l->program->ops[i];
        for (int k = 0; k < op->dst_count; k++)
            if (op->dst[k] != SIM_NONE)
                touch(l, op->dst[k], i);
        for (int k = 0; k < op->src_count; k++)
            if (op->src[k] >= 0)
                touch(l, op->src[k], i);
        if (op->guard != SIM_NONE)
            touch(l, op->guard, i);
    }
}

/* Returns how many 32-bit registers are alive. narrow, wide: the sets of all registers of 32 and of 64 bits. */
static int pressure(const liveness *l, const uint64_t *alive, const uint64_t *narrow, const uint64_t *wide)
{
    int sum = 0;
    for (size_t w = 0; w < l->words; w++)
        sum += __builtin_popcountll(alive[w] & narrow[w]) + 2 * __builtin_popcountll(alive[w] & wide[w]);
    return sum;
}

static int most_alive(const liveness *l, sim_arena *arena, uint64_t *alive)
{
    uint64_t *narrow = sim_arena_get(arena, l->words, sizeof *narrow);
    uint64_t *wide = sim_arena_get(arena, l->words, sizeof *wide);
    for (size_t r = 0; r < l->register_count; r++)
        if (l->registers[r] == PTX_B32 || l->registers[r] == PTX_B64)
            set_bit(l->registers[r] == PTX_B32 ? narrow : wide, (int32_t)r);
    int most = 0;
    for (int b = 0; b < l->flow->block_count; b++) {
        memcpy(alive, l->out + (size_t)b * l->words, l->words * sizeof *alive);
        for (int i = l->flow->block_first[b + 1]; i-- > l->flow->block_first[b];) {
            step_back(l, i, alive);
            const int now = pressure(l, alive, narrow, wide);
            most = now > most ? now : most;
        }
    }
    return most;
}

typedef struct life {
    int first, reg;
} life;

static int by_first(const void *a, const void *b)
{
    const life *x = a, *y = b;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first) : (x->reg > y->reg) - (x->reg < y->reg);
}

/* places[reg]: the register's place in its class. used: the number of places of each class. */
static void scan(const liveness *l, sim_arena *arena, int *places, int used[3])
{
    life *lives = sim_arena_get(arena, l->register_count + 1, sizeof *lives);
    int *ends[3]; /* per class and place: the last instruction of its latest lifetime */
    size_t count = 0;
    for (int c = 0; c < 3; c++) {
        ends[c] = sim_arena_get(arena, l->register_count + 1, sizeof *ends[c]);
        used[c] = 0;
    }
    for (size_t r = 0; r < l->register_count; r++)
        if (l->last[r] >= 0)
            lives[count++] = (life){l->first[r], (int)r};
    qsort(lives, count, sizeof *lives, by_first);
    for (size_t i = 0; i < count; i++) {
        const int reg = lives[i].reg;
        const ptx_class class = l->registers[reg];
        int place = 0;
        while (place < used[class] && ends[class][place] >= lives[i].first)
            place++;
        used[class] += place == used[class];
        ends[class][place] = l->last[reg];
        places[reg] = place;
    }
}

static int32_t placed(const liveness *l, const int *places, int wide_from, int32_t reg)
{
    switch (l->registers[reg]) {
    case PTX_PRED:
        return places[reg];
    case PTX_B64:
        return wide_from + places[reg] * 64;
    default:
        return places[reg] * 32;
    }
}

static void rewrite(const liveness *l, const int *places, const int used[3])
{
    const int wide_from = used[PTX_B32] * 32;
    sim_program *program = l->program;
    for (int i = 0; i < program->op_count; i++) {
        sim_op *op = &program->ops[i];
        for (int k = 0; k < op->dst_count; k++)
            if (op->dst[k] != SIM_NONE)
                op->dst[k] = placed(l, places, wide_from, op->dst[k]);
        for (int k = 0; k < op->src_count; k++)
            if (op->src[k] >= 0)
                op->src[k] = placed(l, places, wide_from, op->src[k]);
        if (op->guard != SIM_NONE)
            op->guard = placed(l, places, wide_from, op->guard);
    }
    for (int s = 0; s < SIM_SPECIALS; s++)
        if (program->special[s] != SIM_NONE)
            program->special[s] = placed(l, places, wide_from, program->special[s]);
    program->file_words = (size_t)wide_from + (size_t)used[PTX_B64] * 64;
    program->predicates = used[PTX_PRED];
}

void sim_allocate(sim_arena *arena, const sim_flow *flow, const ptx_class *registers, size_t register_count,
                  sim_program *program)
{
    liveness l = {.flow = flow,
                  .registers = registers,
                  .register_count = register_count,
                  .words = register_count / 64 + 1,
                  .program = program};
    const size_t blocks = (size_t)flow->block_count;
    int used[3];
    l.in = sim_arena_get(arena, blocks * l.words, sizeof *l.in);
    l.out = sim_arena_get(arena, blocks * l.words, sizeof *l.out);
    l.first = sim_arena_get(arena, register_count + 1, sizeof *l.first);
    l.last = sim_arena_get(arena, register_count + 1, sizeof *l.last);
    uint64_t *alive = sim_arena_get(arena, l.words, sizeof *alive);
    int *places = sim_arena_get(arena, register_count + 1, sizeof *places);

    solve(&l, alive);
    find_lives(&l);
    program->registers = most_alive(&l, arena, alive);
    scan(&l, arena, places, used);
    rewrite(&l, places, used);
}
