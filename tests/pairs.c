/*
 * Sets are made one after the other. Each begins with the two settings, still missing together, that lead to the most
 * new pairs. Then it repeatedly adds the setting with the most new pairs, the first of equal ones.
 */
#include "tests/pairs.h"
#include <string.h>
#include "runtime/base/problem.h"
#include "tuner/judge/case.h"

/* The largest number of settings in a set, without those that others bring. With more, some cards have no kernel,
 * because each feature takes registers. */
enum { SETTINGS_IN_SET = 6 };

enum {
    FORWARD = 1 << PAIRS_FORWARD,
    BACKWARD = 1 << PAIRS_BACKWARD,
    FORWARD_SM90 = 1 << PAIRS_FORWARD_SM90,
    BACKWARD_SM90 = 1 << PAIRS_BACKWARD_SM90,
    LATENT_SM90 = 1 << PAIRS_LATENT_SM90,
    ALL = FORWARD | BACKWARD | FORWARD_SM90 | BACKWARD_SM90,
    EVERYWHERE = ALL | LATENT_SM90
};

/* A field at a value. brings: a field that must be 1 then. D above 128 and fewer columns of V are not fields: columns[]
 * has their numbers. */
enum { NOTHING = -1 };

typedef struct setting {
    const char *name;
    int field;
    int32_t value;
    int brings;
    unsigned lists;
} setting;

static const setting all_settings[] = {
    {"causal", FA2I_FIELD_causal, 1, NOTHING, EVERYWHERE},
    {"softcap", FA2I_FIELD_softcap, 1, NOTHING, EVERYWHERE},
    {"sliding", FA2I_FIELD_window, FA2_WINDOW_SLIDING, NOTHING, EVERYWHERE},
    {"prefix", FA2I_FIELD_window, FA2_WINDOW_PREFIX, FA2I_FIELD_causal, EVERYWHERE},
    {"chunk", FA2I_FIELD_window, FA2_WINDOW_CHUNK, NOTHING, EVERYWHERE},
    {"alibi", FA2I_FIELD_alibi, 1, NOTHING, ALL},
    {"sinks", FA2I_FIELD_sinks, 1, NOTHING, ALL},
    {"bias_fp16", FA2I_FIELD_bias, FA2_BIAS_FP16, NOTHING, ALL},
    {"bias_bf16", FA2I_FIELD_bias, FA2_BIAS_BF16, NOTHING, ALL},
    {"bias_fp32", FA2I_FIELD_bias, FA2_BIAS_FP32, NOTHING, FORWARD | BACKWARD | FORWARD_SM90},
    {"bias_bool", FA2I_FIELD_bias, FA2_BIAS_BOOL, NOTHING, FORWARD | BACKWARD},
    {"bias_fp16_gradient", FA2I_FIELD_bias, FA2_BIAS_FP16_GRADIENT, NOTHING, BACKWARD},
    {"bias_bf16_gradient", FA2I_FIELD_bias, FA2_BIAS_BF16_GRADIENT, NOTHING, BACKWARD},
    {"bias_fp32_gradient", FA2I_FIELD_bias, FA2_BIAS_FP32_GRADIENT, NOTHING, BACKWARD},
    {"dropout", FA2I_FIELD_dropout, 1, NOTHING, ALL},
    {"seqused", FA2I_FIELD_seqused, 1, NOTHING, FORWARD | LATENT_SM90},
    {"varlen", FA2I_FIELD_varlen, 1, NOTHING, ALL},
    {"paged", FA2I_FIELD_paged, 1, NOTHING, FORWARD | LATENT_SM90},
    {"leftpad", FA2I_FIELD_leftpad, 1, NOTHING, FORWARD},
    {"cache_rows", FA2I_FIELD_cache_rows, 1, NOTHING, FORWARD},
    {"append", FA2I_FIELD_rotary, FA2_ROTARY_NONE, FA2I_FIELD_append, FORWARD | LATENT_SM90},
    {"rotary_halves", FA2I_FIELD_rotary, FA2_ROTARY_HALVES, FA2I_FIELD_append, FORWARD | LATENT_SM90},
    {"rotary_interleaved", FA2I_FIELD_rotary, FA2_ROTARY_INTERLEAVED, FA2I_FIELD_append, FORWARD | LATENT_SM90},
    {"fewer_of_v", FA2I_FIELD_head_dim_v, 0, NOTHING, FORWARD | BACKWARD},
    {"v_in_k", FA2I_FIELD_v_in_k, 1, NOTHING, FORWARD},
    {"fast_sums", FA2I_FIELD_sums, FA2_SUMS_FAST, NOTHING, FORWARD},
    {"int8_scores", FA2I_FIELD_scores, FA2_SCORES_INT8, NOTHING, FORWARD},
    {"int8_cache", FA2I_FIELD_kv, FA2_KV_INT8, NOTHING, FORWARD},
    {"fp8_cache", FA2I_FIELD_kv, FA2_KV_FP8, FA2I_FIELD_kv_scales, FORWARD}, /* with scales in fp16 */
    /* fwd_sm75 and fwd_sm80: tests/sim/bugs_partial.c has their kernels, beside features that end rows in other ways */
    {"merged", FA2I_FIELD_partial, FA2_PARTIAL_MERGE, NOTHING, BACKWARD | FORWARD_SM90 | BACKWARD_SM90 | LATENT_SM90},
    {"carried", FA2I_FIELD_carry, 1, NOTHING, FORWARD_SM90},
    {"beyond_256", FA2I_FIELD_head_dim, 0, NOTHING, FORWARD},
    {"deterministic", FA2I_FIELD_deterministic, 1, NOTHING, BACKWARD | BACKWARD_SM90},
};
enum { ALL_SETTINGS = sizeof all_settings / sizeof *all_settings };

/* ---- settings of a list ---- */

static const setting *setting_of(pairs_list list, int index)
{
    for (int i = 0; i < ALL_SETTINGS; i++)
        if (all_settings[i].lists >> list & 1 && index-- == 0)
            return &all_settings[i];
    return NULL;
}

int pairs_count(pairs_list list)
{
    int count = 0;
    for (int i = 0; i < ALL_SETTINGS; i++)
        count += (all_settings[i].lists >> list & 1) != 0;
    return count;
}

const char *pairs_name(pairs_list list, int index)
{
    return setting_of(list, index)->name;
}

bool pairs_exclude(pairs_list list, int a, int b)
{
    return setting_of(list, a)->field == setting_of(list, b)->field;
}

/* Returns the set with a setting, and with the one that it brings, if that is a setting. */
static uint64_t with(pairs_list list, uint64_t set, int index)
{
    const setting *added = setting_of(list, index);
    const int count = pairs_count(list);
    for (int i = 0; i < count; i++)
        if (setting_of(list, i)->field == added->brings)
            set |= UINT64_C(1) << i;
    return set | UINT64_C(1) << index;
}

uint64_t pairs_of(pairs_list list, int a, int b)
{
    return with(list, with(list, 0, a), b);
}

/* ---- problems ---- */

/* D with all columns of V, and with fewer. 40 is not a multiple of 16, so D is padded. The backward family of SM 9.0
 * has no D for which it leaves a bias to other families. */
typedef struct columns {
    int32_t all[PAIRS_TURNS], of_more[PAIRS_TURNS], fewer[PAIRS_TURNS];
} columns;

static const columns up_to_256 = {{64, 128, 40}, {128, 96, 40}, {72, 64, 8}};
static const columns beyond_256 = {{264, 320, 384}, {576, 320, 384}, {512, 312, 64}};
static const columns backward_sm90 = {.all = {64, 96, 40}};
static const columns latent = {.of_more = {576, 384, 320}, .fewer = {512, 128, 256}};

/* Rows of K and V in 8 bits are multiples of 16. */
static void put_columns(const columns *c, bool fewer, size_t turn, fa2_problem *problem)
{
    const size_t at = turn % PAIRS_TURNS;
    const int32_t unit = problem->kv == FA2_KV_DTYPE ? 8 : 16;
    problem->head_dim = ((fewer ? c->of_more[at] : c->all[at]) + unit - 1) / unit * unit;
    problem->head_dim_v = fewer ? (c->fewer[at] + unit - 1) / unit * unit : 0;
}

static void put_rotary(fa2_problem *problem)
{
    const int32_t most = problem->head_dim < 256 ? problem->head_dim / 16 * 16 : 256;
    if (problem->rotary != FA2_ROTARY_NONE)
        problem->rotary_dim = problem->rotary == FA2_ROTARY_HALVES ? 32 : most;
}

fa2_problem pairs_problem(pairs_list list, fa2_dtype dtype, uint64_t set, size_t turn)
{
    const bool is_backward = list == PAIRS_BACKWARD || list == PAIRS_BACKWARD_SM90;
    fa2_problem problem = {.struct_bytes = sizeof(fa2_problem),
                           .op = is_backward ? FA2_OP_BACKWARD : FA2_OP_FORWARD,
                           .dtype = dtype,
                           .batch = 1};
    const bool is_latent = list == PAIRS_LATENT_SM90;
    bool beyond = false, fewer = is_latent;
    for (int i = 0; i < pairs_count(list); i++) {
        const setting *s = setting_of(list, i);
        if (!(set >> i & 1))
            continue;
        beyond |= s->field == FA2I_FIELD_head_dim;
        fewer |= s->field == FA2I_FIELD_head_dim_v;
        if (s->brings != NOTHING)
            fa2i_field_set(&problem, s->brings, 1);
        fa2i_field_set(&problem, s->field, s->value);
    }
    const columns *c = is_latent                     ? &latent
                       : beyond                      ? &beyond_256
                       : list == PAIRS_BACKWARD_SM90 ? &backward_sm90
                                                     : &up_to_256;
    put_columns(c, fewer, turn, &problem);
    put_rotary(&problem);
    problem.v_in_k |= is_latent;
    fa2i_case_window(&problem, 256, 0);
    problem.page = problem.paged ? 16 : 0;
    return problem;
}

bool pairs_allowed(pairs_list list, uint64_t set)
{
    fa2_problem problem = pairs_problem(list, FA2_FP16, set, 0);
    problem.heads_q = problem.heads_kv = 1;
    problem.seq_q = problem.seq_k = 64;
    return fa2i_problem_check(&problem) == FA2_OK;
}

/* ---- sets ---- */

typedef struct pairs {
    pairs_list list;
    int count;
    uint64_t missing[PAIRS_SETTINGS_MAX]; /* for each, the settings with which it is in no set yet */
} pairs;

static bool excluded_from(const pairs *p, uint64_t set, int index)
{
    for (int i = 0; i < p->count; i++)
        if (set >> i & 1 && (i == index || pairs_exclude(p->list, i, index)))
            return true;
    return false;
}

/* Returns how many missing pairs a set has. */
static int fresh_in(const pairs *p, uint64_t set)
{
    int fresh = 0;
    for (int i = 0; i < p->count; i++)
        if (set >> i & 1)
            fresh += pairs_ones(p->missing[i] & set);
    return fresh / 2;
}

static uint64_t grown(const pairs *p, uint64_t set)
{
    for (int size = 2; size < SETTINGS_IN_SET; size++) {
        uint64_t best = 0;
        int most = fresh_in(p, set);
        for (int i = 0; i < p->count; i++) {
            const uint64_t next = with(p->list, set, i);
            if (excluded_from(p, set, i) || fresh_in(p, next) <= most || !pairs_allowed(p->list, next))
                continue;
            most = fresh_in(p, next);
            best = next;
        }
        if (best == 0)
            break;
        set = best;
    }
    return set;
}

/* Returns the next set, 0 if nothing is missing. */
static uint64_t next_set(const pairs *p)
{
    uint64_t best = 0;
    int most = 0;
    for (int a = 0; a < p->count; a++)
        for (int b = a + 1; b < p->count; b++) {
            const bool asked = p->missing[a] >> b & 1;
            const uint64_t set = asked ? grown(p, pairs_of(p->list, a, b)) : 0;
            if (asked && fresh_in(p, set) > most) {
                most = fresh_in(p, set);
                best = set;
            }
        }
    return best;
}

/* Returns the settings that are in every set with a setting, except for those that it brings. */
static uint64_t always_with(const pairs *p, const uint64_t *sets, size_t count, int index)
{
    uint64_t others = ~pairs_of(p->list, index, index);
    for (size_t i = 0; i < count; i++)
        if (sets[i] >> index & 1)
            others &= sets[i];
    return others;
}

/* Adds sets until for every two settings there is a set with the first and without the second. */
static size_t add_apart(const pairs *p, uint64_t sets[PAIRS_SETS_MAX], size_t count)
{
    while (count < PAIRS_SETS_MAX) {
        uint64_t set = 0, unwanted = 0;
        for (int i = 0; i < p->count; i++) {
            const uint64_t others = always_with(p, sets, count, i), next = with(p->list, set, i);
            if (others == 0 || others & next || next & unwanted || excluded_from(p, set, i) ||
                !pairs_allowed(p->list, next))
                continue;
            set = next;
            unwanted |= others;
        }
        if (set == 0)
            break;
        sets[count++] = set;
    }
    return count;
}

size_t pairs_sets(pairs_list list, uint64_t sets[PAIRS_SETS_MAX])
{
    pairs p = {.list = list, .count = pairs_count(list)};
    size_t count = 0;
    for (int a = 0; a < p.count; a++)
        for (int b = 0; b < p.count; b++)
            if (a != b && !pairs_exclude(list, a, b) && pairs_allowed(list, pairs_of(list, a, b)))
                p.missing[a] |= UINT64_C(1) << b;
    for (uint64_t set; count < PAIRS_SETS_MAX && (set = next_set(&p)) != 0;) {
        sets[count++] = set;
        for (int i = 0; i < p.count; i++)
            if (set >> i & 1)
                p.missing[i] &= ~set;
    }
    return add_apart(&p, sets, count);
}
