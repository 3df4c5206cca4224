/*
 * The tuner's knowledge of an operation: the operands of a launch, the cases that each kernel must pass, and the
 * expected results. There is one row per operation, found by problem.op. The code that makes tensors, runs kernels and
 * gives verdicts iterates over the row and never asks which operation it is.
 *
 * Errors: FA2_E_MEMORY. Thread-safe: no state.
 */
#pragma once

#include "runtime/ops/operands.h"
#include "tuner/judge/case.h"
#include "tuner/judge/rows.h"

typedef enum fa2i_operand_shape {
    FA2I_SHAPE_QUERIES,         /* [batch, seq_q, heads_q, head_dim] of the dtype */
    FA2I_SHAPE_KEYS,            /* [batch, seq_k, heads_kv, head_dim] of the dtype */
    FA2I_SHAPE_OUTPUTS,         /* [batch, seq_q, heads_q, head_dim_v] of the dtype */
    FA2I_SHAPE_VALUES,          /* [batch, seq_k, heads_kv, head_dim_v] of the dtype; absent if V lies in K */
    FA2I_SHAPE_STATISTICS,      /* [batch, heads_q, seq_q], fp32 */
    FA2I_SHAPE_PARTS,           /* [seq_k * batch, seq_q, heads_q, head_dim], fp32: seq_k partial results */
    FA2I_SHAPE_PART_STATISTICS, /* [seq_k * batch, heads_q, seq_q], fp32 */
    FA2I_SHAPE_FEATURE          /* an operand of a feature, as operands.def says */
} fa2i_operand_shape;

typedef struct fa2i_operand {
    const char *name; /* for verdicts */
    fa2i_operand_shape shape;
    bool output;
    bool optional;  /* an output that is there only if the case wants it */
    bool merged;    /* an output that a launch with FA2_PARTIAL_MERGE merges with what is there */
    bool patterned; /* an input to which a case's pattern applies */
    int changed_by; /* an input: index of the field with which a launch also writes into it; 0: never */
    /* Inputs, and outputs that may be merged: writes the first `count` elements of the operand, of elem_bytes each. */
    fa2_status (*fill)(const fa2i_case *c, int operand, size_t count, void *out);
} fa2i_operand;

/* The operand of a line of operands.def. An operation's list ends with all lines, in their order. */
#define FA2I_FEATURE_OPERAND(name_, access_)                                                                           \
    {                                                                                                                  \
        .name = (name_), .shape = FA2I_SHAPE_FEATURE, .output = FA2I_ACCESS_##access_ >= FA2I_ACCESS_WRITE,            \
        .changed_by = FA2I_ACCESS_##access_ == FA2I_ACCESS_GROW ? FA2I_FIELD_append : 0, .fill = fa2i_feature_fill     \
    }
fa2_status fa2i_feature_fill(const fa2i_case *c, int operand, size_t count, void *out);

/* The error of a score in fp32, relative to its size and to that of what is added to it: some units in the last place,
 * because tensor cores cut sums off and do not round them. */
#define FA2I_SCORE_ERROR (4 * 0x1p-23)

/* The allowed distance from an expected value v: absolute + relative * |v|. */
typedef struct fa2i_bound {
    double absolute, relative;
} fa2i_bound;

/* The expected values of some rows of an output. */
typedef struct fa2i_wanted {
    const fa2i_place *places; /* borrowed */
    size_t row_count;
    int width;
    double *values; /* [row_count, width]; owned, as is exact */
    bool *exact;    /* [row_count]: only exactly these values are right */
    fa2i_bound bound;
    double *allowed; /* [row_count], added to bound.absolute; NULL: nothing. Owned */
} fa2i_wanted;

/* Allocates values and exact, for the rows and the width that are set. */
fa2_status fa2i_wanted_reserve(fa2i_wanted *wanted);
void fa2i_wanted_done(fa2i_wanted *wanted); /* accepts zeroed objects */

/* Inputs on the host, by operand; element i is data[i % period]. Outputs are NULL. */
typedef struct fa2i_inputs {
    const void *data[FA2I_OPERANDS_MAX];
    size_t period[FA2I_OPERANDS_MAX];
} fa2i_inputs;

enum { FA2I_VERIFY_CASES_MAX = 32 };

typedef struct fa2i_verify_case {
    const char *name; /* static */
    bool divided;     /* only for kernels that divide the keys; others learn nothing from it */
    fa2i_case c;
} fa2i_verify_case;

/* The arguments of a call of any operation. */
typedef union fa2i_arguments {
    fa2_forward_args forward;
    fa2_backward_args backward;
    fa2_merge_args merge;
} fa2i_arguments;

typedef struct fa2i_judge {
    const fa2i_operand *operands;
    /* Forward: writes elements of Q, K or V as `fill` does, in the dtype even if K and V are in 8 bits. */
    fa2_status (*elements)(const fa2i_case *c, int operand, size_t count, void *out);
    int operand_count;
    int first_feature; /* the index of the first line of operands.def */
    /* Lists the cases for all kernels of a class, on a device with that many SMs. Returns their number. */
    size_t (*cases)(const fa2_problem *class, int sm_count, fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX]);
    /* Computes the values of all outputs that the case has, in the order of the operands. The caller has set places,
     * row_count and width. Statistics have the places of the queries' outputs. */
    fa2_status (*reference)(const fa2i_case *c, const fa2i_inputs *inputs, int threads, fa2i_wanted *outputs);
    /* Makes the arguments of a call on these operands. Operands that the case does not have are 0. */
    fa2i_arguments (*arguments)(const fa2i_case *c, const uint64_t addresses[FA2I_OPERANDS_MAX], uint64_t workspace,
                                size_t workspace_bytes);
} fa2i_judge;

extern const fa2i_judge fa2i_judge_forward, fa2i_judge_backward, fa2i_judge_merge;

/* The operands K and V of forward. */
enum { FA2I_FORWARD_K = 1, FA2I_FORWARD_V = 2 };

/* Returns the judge of an operation. op must be one that fa2i_problem_check accepts. */
const fa2i_judge *fa2i_judge_of(fa2_op op);

/* Returns the index of an operand of operands.def in the case's list. */
int fa2i_case_feature(const fa2i_case *c, fa2i_operand_id id);

/* A tensor of the case, as a reference reads it and as a call gets it. */
fa2i_host_tensor fa2i_case_host_tensor(const fa2i_case *c, const fa2i_inputs *inputs, int operand);
fa2_tensor fa2i_case_tensor(const fa2i_case *c, const uint64_t addresses[FA2I_OPERANDS_MAX], int operand);

/* The error of a value that is not finite but should be. It is finite itself, so that it survives JSON and SQL. */
#define FA2I_ERROR_NOT_FINITE 1e30

/* Returns the error of one number divided by its bound: <= 1 is right. An expected value of NaN means that nothing may
 * be written. */
double fa2i_error_of(double value, double expected, fa2i_bound bound, bool exact);

/* Returns the bound of a row, for which more may be allowed than for others (NULL: for none). */
fa2i_bound fa2i_bound_of_row(fa2i_bound bound, const double *allowed, size_t row);
