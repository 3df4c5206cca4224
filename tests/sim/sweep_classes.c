/*
 * Classes of problems: those of the presets, some others, and sets of features, each with one D.
 */
#include "tests/sim/sweep_classes.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/pairs.h"
#include "tuner/input/shapes.h"

enum {
    STEP_PLAIN = 24,
    STEP_VALUES = 48,
    STEP_BACKWARD = 80,
};

static void add(sweep_classes *s, sweep_class class)
{
    if (s->count == SWEEP_CLASSES_MAX) {
        fprintf(stderr, "more than %d classes\n", (int)SWEEP_CLASSES_MAX);
        exit(1);
    }
    s->items[s->count++] = class;
}

/* Adds a class if it is new. */
static void add_class(sweep_classes *s, const fa2_problem *problem, int step, sweep_sample sample)
{
    char key[FA2I_CLASS_CHARS], known[FA2I_CLASS_CHARS];
    fa2i_problem_class(problem, key);
    for (size_t i = 0; i < s->count; i++) {
        fa2i_problem_class(&s->items[i].problem, known);
        if (strcmp(key, known) == 0)
            return;
    }
    add(s, (sweep_class){.problem = *problem, .sample = sample, .step = step});
}

static fa2_problem dense(fa2_dtype dtype, int head_dim, int causal)
{
    return (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                         .op = FA2_OP_FORWARD,
                         .dtype = dtype,
                         .batch = 1,
                         .head_dim = head_dim,
                         .causal = causal};
}

/* V with fewer columns than K, and columns that warps divide. */
static const struct {
    fa2_op op;
    int head_dim, head_dim_v, causal, v_in_k;
} value_sets[] = {
    {FA2_OP_FORWARD, 192, 128, 1, 0}, {FA2_OP_FORWARD, 512, 0, 1, 0},    {FA2_OP_FORWARD, 576, 512, 0, 1},
    {FA2_OP_FORWARD, 128, 72, 1, 1},  {FA2_OP_BACKWARD, 192, 128, 1, 0},
};
enum { VALUE_SETS = sizeof value_sets / sizeof *value_sets };

static void add_value_sets(sweep_classes *s, fa2_dtype dtype)
{
    for (size_t n = 0; n < VALUE_SETS; n++) {
        const bool is_backward = value_sets[n].op == FA2_OP_BACKWARD;
        fa2_problem p = dense(dtype, value_sets[n].head_dim, value_sets[n].causal);
        p.op = value_sets[n].op;
        p.head_dim_v = value_sets[n].head_dim_v;
        p.v_in_k = value_sets[n].v_in_k;
        add_class(s, &p, is_backward ? STEP_BACKWARD : STEP_VALUES, SWEEP_ONE_CARD);
    }
}

/* Adds sets that cover every pair of features, and every feature without another. Each has one D of several. */
static void add_pairs(sweep_classes *s, pairs_list list, fa2_dtype dtype, bool all)
{
    uint64_t sets[PAIRS_SETS_MAX];
    const size_t count = pairs_sets(list, sets);
    for (size_t i = 0; i < count * (all ? PAIRS_TURNS : 1); i++) {
        const size_t turn = i + i / count + (size_t)dtype;
        add(s, (sweep_class){.problem = pairs_problem(list, dtype, sets[i % count], turn),
                             .sample = SWEEP_EACH_CARD,
                             .turn = turn,
                             .own_only = list >= PAIRS_FORWARD_SM90});
    }
}

static fa2_status add_presets(sweep_classes *s, fa2_dtype dtype)
{
    static const char *const presets[] = {"seeds", "paper", "quick"};
    fa2i_shapes shapes = {0};
    fa2_status st = FA2_OK;
    for (size_t i = 0; i < sizeof presets / sizeof *presets && st == FA2_OK; i++)
        st = fa2i_shapes_add_preset(&shapes, presets[i]);
    for (size_t i = 0; i < shapes.count; i++) {
        const fa2_problem p = dense(dtype, shapes.items[i].head_dim, shapes.items[i].causal);
        if (shapes.items[i].dtype == dtype)
            add_class(s, &p, STEP_PLAIN, SWEEP_STEP);
    }
    fa2i_shapes_done(&shapes);
    return st;
}

fa2_status sweep_classes_find(sweep_classes *s, fa2_dtype dtype, bool all)
{
    /* 40 is not a multiple of 16, so D is padded */
    static const int kinds[][2] = {{64, 0}, {128, 1}, {64, 1}, {40, 1}, {128, 0}};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    const fa2_status st = add_presets(s, dtype);
    for (size_t i = 0; i < KINDS; i++) {
        const fa2_problem p = dense(dtype, kinds[i][0], kinds[i][1]);
        add_class(s, &p, STEP_PLAIN, SWEEP_STEP);
    }
    add_value_sets(s, dtype);
    for (int list = 0; list < PAIRS_LISTS; list++)
        add_pairs(s, (pairs_list)list, dtype, all);
    return st;
}
