/*
 * Attention backward: operands, cases, call. backward_data.c has the data of the operands, backward_reference.c the
 * expected results.
 */
#include "tuner/judge/backward_data.h"
#include "tuner/judge/feature_data.h"
#include "tuner/judge/judge.h"
#include "tuner/judge/merge.h"

static const fa2i_operand operands[OPERANDS] = {
    [Q] = {"Q", FA2I_SHAPE_QUERIES, .fill = fa2i_backward_data},
    [K] = {"K", FA2I_SHAPE_KEYS, .fill = fa2i_backward_data},
    [V] = {"V", FA2I_SHAPE_VALUES, .fill = fa2i_backward_data},
    [O] = {"O", FA2I_SHAPE_OUTPUTS, .patterned = true, .fill = fa2i_backward_data},
    [DO] = {"dO", FA2I_SHAPE_OUTPUTS, .fill = fa2i_backward_data},
    [LSE] = {"LSE", FA2I_SHAPE_STATISTICS, .patterned = true, .fill = fa2i_backward_data},
    [DQ] = {"dQ", FA2I_SHAPE_QUERIES, .output = true, .merged = true, .fill = fa2i_merged_fill},
    [DK] = {"dK", FA2I_SHAPE_KEYS, .output = true, .merged = true, .fill = fa2i_merged_fill},
    [DV] = {"dV", FA2I_SHAPE_VALUES, .output = true, .merged = true, .fill = fa2i_merged_fill},
#define FA2I_OPERAND(id, name, member, elem, shape, strides, field, ops, access, keyword)                              \
    [FEATURES + FA2I_OPERAND_##id] = FA2I_FEATURE_OPERAND(name, access),
#include "runtime/ops/operands.def"
};

/* ---- cases ---- */

/* Chosen like forward's, for tiles of 32 to 128 queries and 16 to 128 keys. */
static const struct plan {
    const char *name;
    int32_t batch, heads_q, heads_kv, seq_q, seq_k;
    fa2i_layout layout;
    float q_magnitude;
    int32_t window_left, window_right; /* for classes with a window */
    fa2i_factors factors;              /* in the order of factors.def; those that a class lacks do not count */
    bool windowed;                     /* for classes with a window only */
    fa2i_lengths lengths;              /* other than SPREAD: for packed sequences only */
} plans[] = {
    {"whole tiles", 1, 2, 2, 256, 256, FA2I_LAYOUT_BSHD, 1, 63, 0, .factors = {30, 0}},
    {"S no multiple of a tile", 2, 2, 2, 197, 197, FA2I_LAYOUT_BHSD, 1, 0, 0, .factors = {3, 0}},
    {"S less than a tile", 2, 3, 3, 5, 5, FA2I_LAYOUT_GAPPED, 1, 1, 0, .factors = {0.5f, 0}},
    {"Sq < Sk", 1, 2, 1, 67, 301, FA2I_LAYOUT_BSHD, 1, 100, -1, .factors = {3, 0.3f}},
    /* Rows that see no key when causal. */
    {"Sq > Sk", 1, 2, 2, 301, 67, FA2I_LAYOUT_GAPPED, 1, 20, 30, .factors = {3, 0}},
    {"grouped heads", 2, 6, 2, 130, 130, FA2I_LAYOUT_BHSD, 1, 3, 2, .factors = {3, 0}},
    /* Scores up to about 100: P is 0 or 1 nearly everywhere, and has the error of an exponent. */
    {"large logits", 1, 2, 2, 160, 160, FA2I_LAYOUT_BSHD, 24, -1, 7, .factors = {30, 0}},
    {"one query", 2, 2, 1, 1, 257, FA2I_LAYOUT_BSHD, 1, 128, 0, .factors = {3, 0}},
    {"one key", 1, 2, 2, 129, 1, FA2I_LAYOUT_BSHD, 1, 5, 5, .factors = {3, 0}},
    /* So many that every stage of every pipeline is used again. */
    {"many tiles of queries", 1, 1, 1, 600, 72, FA2I_LAYOUT_GAPPED, 1, 500, 40, .factors = {3, 0}},
    {"keys that batches share", 3, 2, 2, 40, 90, FA2I_LAYOUT_SHARED, 1, 33, 20, .factors = {3, 0}},
    /* Tiles that need no mask lie between two that do, in a window and for queries after it. */
    {"a window over several tiles", 1, 1, 1, 700, 300, FA2I_LAYOUT_BHSD, 1, 400, 150, .factors = {3, 0},
     .windowed = true},
    {"a window that ends on tiles", 1, 2, 1, 520, 130, FA2I_LAYOUT_GAPPED, 1, 255, 128, .factors = {3, 0},
     .windowed = true},
    {"a window wider than S", 1, 2, 1, 200, 173, FA2I_LAYOUT_BSHD, 1, 1000, 1000, .factors = {3, 0}, .windowed = true},
    {"lengths of all kinds", 11, 4, 2, 70, 150, FA2I_LAYOUT_BHSD, 1, 60, 10, .factors = {3, 0},
     .lengths = FA2I_LENGTHS_WILD},
    {"rows of no sequence", 3, 4, 2, 200, 260, FA2I_LAYOUT_GAPPED, 1, 60, 10, .factors = {3, 0},
     .lengths = FA2I_LENGTHS_AMID},
};

_Static_assert(sizeof plans / sizeof *plans <= FA2I_VERIFY_CASES_MAX, "room for every case");

static size_t list_cases(const fa2_problem *class, int sm_count, fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX])
{
    size_t count = 0;
    (void)sm_count; /* no kernel divides its work by it */
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        const struct plan *plan = &plans[i];
        if ((plan->windowed && !class->window) || (plan->lengths != FA2I_LENGTHS_SPREAD && !class->varlen))
            continue;
        fa2i_case c = {.problem = *class,
                       .layout = plan->layout,
                       .pattern = FA2I_PATTERN_FORWARD,
                       .lengths = plan->lengths,
                       .q_magnitude = plan->q_magnitude,
                       .factors = fa2i_factors_asked(class, plan->factors),
                       .seed = 2000 + i};
        c.problem.batch = plan->batch;
        c.problem.heads_q = plan->heads_q;
        c.problem.heads_kv = plan->heads_kv;
        c.problem.seq_q = plan->seq_q;
        c.problem.seq_k = plan->seq_k;
        fa2i_case_window(&c.problem, plan->window_left, plan->window_right);
        if (class->varlen)
            fa2i_case_pack(&c, 2);
        cases[count++] = (fa2i_verify_case){.name = plan->name, .c = c};
    }
    return count;
}

/* ---- the call ---- */

static fa2i_arguments make_arguments(const fa2i_case *c, const uint64_t addresses[FA2I_OPERANDS_MAX],
                                     uint64_t workspace, size_t workspace_bytes)
{
    fa2i_arguments made = {.backward = {.struct_bytes = sizeof(fa2_backward_args),
                                        .q = fa2i_case_tensor(c, addresses, Q),
                                        .k = fa2i_case_tensor(c, addresses, K),
                                        .v = fa2i_case_tensor(c, addresses, V),
                                        .o = fa2i_case_tensor(c, addresses, O),
                                        .d_o = fa2i_case_tensor(c, addresses, DO),
                                        .dq = fa2i_case_tensor(c, addresses, DQ),
                                        .dk = fa2i_case_tensor(c, addresses, DK),
                                        .dv = fa2i_case_tensor(c, addresses, DV),
                                        .lse = (float *)(uintptr_t)addresses[LSE],
                                        .workspace = (void *)(uintptr_t)workspace,
                                        .workspace_bytes = workspace_bytes}};
    fa2i_case_put_backward(c, addresses, &made.backward);
    return made;
}

const fa2i_judge fa2i_judge_backward = {.operands = operands,
                                        .operand_count = OPERANDS,
                                        .first_feature = FEATURES,
                                        .cases = list_cases,
                                        .reference = fa2i_backward_reference,
                                        .arguments = make_arguments};
