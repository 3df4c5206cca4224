/*
 * Classes of problems: those of the presets, some beyond them, and features, each set with one D and mask.
 */
#include "tests/sim/sweep_classes.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/sim/sweep_shapes.h"
#include "tuner/input/shapes.h"

enum {
    STEP_PRESETS = 6,
    STEP_BEYOND_PRESETS = 12,
    STEP_FEATURES = 48,
    STEP_VALUES = 24,
    STEP_BACKWARD = 80,
};

static void add_class(sweep_classes *s, const fa2_problem *problem, int step, bool one_card)
{
    char key[FA2I_CLASS_CHARS], known[FA2I_CLASS_CHARS];
    fa2i_problem_class(problem, key);
    for (size_t i = 0; i < s->count; i++) {
        fa2i_problem_class(&s->items[i].problem, known);
        if (strcmp(key, known) == 0)
            return;
    }
    if (s->count == SWEEP_CLASSES_MAX) {
        fprintf(stderr, "more than %d classes\n", (int)SWEEP_CLASSES_MAX);
        exit(1);
    }
    s->items[s->count++] = (sweep_class){.problem = *problem, .step = step, .one_card = one_card};
}

static fa2_problem dense(fa2_dtype dtype, int head_dim, int causal)
{
    return (fa2_problem){
        .op = FA2_OP_FORWARD, .dtype = dtype, .batch = 1, .head_dim = head_dim, .causal = causal};
}

/* Every pair of features, and every one without another, is in some line. */
static const struct feature_set {
    int32_t softcap, window, alibi, sinks, seqused, varlen, paged, leftpad, cache_rows, append;
    fa2_bias bias;
    int32_t dropout;
    fa2_rotary rotary;
    int32_t v_in_k;
} feature_sets[] = {
    {.softcap = 1},
    {.window = 1},
    {.softcap = 1, .window = 1},
    {.alibi = 1},
    {.sinks = 1},
    {.alibi = 1, .sinks = 1, .window = 1},
    {.softcap = 1, .alibi = 1},
    {.softcap = 1, .sinks = 1},
    {.bias = FA2_BIAS_FP16},
    {.bias = FA2_BIAS_BOOL},
    {.bias = FA2_BIAS_BF16, .softcap = 1, .window = 1},
    {.bias = FA2_BIAS_FP32, .alibi = 1, .sinks = 1},
    {.bias = FA2_BIAS_BOOL, .alibi = 1, .window = 1},
    {.dropout = 1},
    {.dropout = 1, .softcap = 1, .alibi = 1},
    {.dropout = 1, .window = 1, .sinks = 1},
    {.dropout = 1, .bias = FA2_BIAS_FP16},
    {.seqused = 1},
    {.softcap = 1, .sinks = 1, .seqused = 1},
    {.window = 1, .alibi = 1, .seqused = 1},
    {.varlen = 1},
    {.softcap = 1, .alibi = 1, .varlen = 1},
    {.window = 1, .sinks = 1, .varlen = 1},
    {.varlen = 1, .seqused = 1},
    {.dropout = 1, .varlen = 1},
    {.window = FA2_WINDOW_PREFIX, .alibi = 1},
    {.window = FA2_WINDOW_CHUNK},
    {.bias = FA2_BIAS_FP16, .varlen = 1},
    {.bias = FA2_BIAS_BOOL, .dropout = 1, .paged = 1},
    {.paged = 1},
    {.softcap = 1, .alibi = 1, .seqused = 1, .paged = 1},
    {.window = 1, .sinks = 1, .varlen = 1, .paged = 1},
    {.softcap = 1, .window = 1, .seqused = 1, .leftpad = 1, .cache_rows = 1},
    {.alibi = 1, .sinks = 1, .leftpad = 1},
    {.bias = FA2_BIAS_BOOL, .dropout = 1, .cache_rows = 1},
    {.softcap = 1, .alibi = 1, .sinks = 1, .append = 1, .cache_rows = 1},
    {.window = 1, .seqused = 1, .paged = 1, .append = 1, .rotary = FA2_ROTARY_HALVES},
    {.bias = FA2_BIAS_FP16, .dropout = 1, .append = 1, .rotary = FA2_ROTARY_HALVES},
    {.seqused = 1, .leftpad = 1, .cache_rows = 1, .append = 1, .rotary = FA2_ROTARY_INTERLEAVED},
};
enum { FEATURE_SETS = sizeof feature_sets / sizeof *feature_sets };

/* Fewer columns of V than of K, and columns that warps divide; with features that have a say in how. */
static const struct {
    fa2_op op;
    int head_dim, head_dim_v, causal;
    struct feature_set features;
} value_sets[] = {
    {FA2_OP_FORWARD, 192, 128, 1, {0}},
    {FA2_OP_FORWARD, 128, 72, 0, {.bias = FA2_BIAS_FP16, .window = 1}},
    {FA2_OP_FORWARD, 192, 128, 0, {.dropout = 1, .seqused = 1}},
    {FA2_OP_FORWARD, 512, 0, 1, {0}},
    {FA2_OP_FORWARD, 320, 312, 0, {.softcap = 1, .alibi = 1}},
    {FA2_OP_FORWARD, 576, 512, 0, {.seqused = 1, .paged = 1, .v_in_k = 1}},
    {FA2_OP_FORWARD, 128, 72, 1, {.v_in_k = 1}},
    {FA2_OP_FORWARD, 384, 64, 1, {.bias = FA2_BIAS_BOOL, .dropout = 1, .sinks = 1}},
    {FA2_OP_BACKWARD, 192, 128, 1, {0}},
    {FA2_OP_BACKWARD, 128, 72, 0, {.dropout = 1, .sinks = 1, .varlen = 1}},
    {FA2_OP_BACKWARD, 72, 8, 1, {.bias = FA2_BIAS_FP16, .window = 1}},
    {FA2_OP_BACKWARD, 64, 0, 1, {.bias = FA2_BIAS_FP16_GRADIENT, .dropout = 1, .sinks = 1}},
    {FA2_OP_BACKWARD, 40, 0, 0, {.bias = FA2_BIAS_FP32_GRADIENT, .softcap = 1, .varlen = 1}},
};
enum { VALUE_SETS = sizeof value_sets / sizeof *value_sets };

static void add_features(sweep_classes *s, fa2_op op, fa2_dtype dtype, const int kind[3],
                         const struct feature_set *set, int step)
{
    fa2_problem problem = dense(dtype, kind[0], kind[1]);
    problem.op = op;
    problem.head_dim_v = kind[2];
    problem.causal |= set->window == FA2_WINDOW_PREFIX;
    problem.softcap = set->softcap;
    problem.window = set->window;
    fa2i_case_window(&problem, 256, 0);
    problem.alibi = set->alibi;
    problem.sinks = set->sinks;
    problem.bias = set->bias;
    problem.dropout = set->dropout;
    problem.seqused = set->seqused;
    problem.varlen = set->varlen;
    problem.paged = set->paged;
    problem.page = set->paged ? 16 : 0;
    problem.leftpad = set->leftpad;
    problem.cache_rows = set->cache_rows;
    problem.append = set->append;
    problem.v_in_k = set->v_in_k;
    problem.rotary = set->rotary;
    problem.rotary_dim = set->rotary == FA2_ROTARY_NONE     ? 0
                         : set->rotary == FA2_ROTARY_HALVES ? 32
                                                            : kind[0] / 16 * 16;
    add_class(s, &problem, step, true);
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
            add_class(s, &p, STEP_PRESETS, false);
    }
    fa2i_shapes_done(&shapes);
    return st;
}

fa2_status sweep_classes_find(sweep_classes *s, fa2_dtype dtype, bool all)
{
    /* 40: not a multiple of 16, padding in D */
    static const int kinds[][3] = {{64, 0}, {128, 1}, {64, 1}, {40, 1}, {128, 0}};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    const fa2_status st = add_presets(s, dtype);
    for (size_t i = 0; i < KINDS; i++) {
        const fa2_problem p = dense(dtype, kinds[i][0], kinds[i][1]);
        add_class(s, &p, STEP_BEYOND_PRESETS, false);
    }
    /* Each set with one of them, or with all. */
    for (size_t n = 0; n < FEATURE_SETS; n++)
        for (size_t i = 0; i < (all ? KINDS : 1); i++) {
            const int *kind = kinds[(n + i) % KINDS];
            add_features(s, FA2_OP_FORWARD, dtype, kind, &feature_sets[n], STEP_FEATURES);
        }
    for (size_t n = 0; n < VALUE_SETS; n++) {
        const int kind[] = {value_sets[n].head_dim, value_sets[n].causal, value_sets[n].head_dim_v};
        const fa2_op op = value_sets[n].op;
        add_features(s, op, dtype, kind, &value_sets[n].features,
                     op == FA2_OP_BACKWARD ? STEP_BACKWARD : STEP_VALUES);
    }
    /* Backward has a sweep of its own for caps and windows alone. */
    for (size_t n = 0; n < FEATURE_SETS; n++)
        if (!feature_sets[n].softcap && !feature_sets[n].seqused && !feature_sets[n].paged &&
            !feature_sets[n].leftpad && !feature_sets[n].cache_rows && !feature_sets[n].append)
            add_features(s, FA2_OP_BACKWARD, dtype, kinds[n % KINDS], &feature_sets[n],
                         STEP_BACKWARD);
    return st;
}
