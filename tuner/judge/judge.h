/*
 * What the tuner knows of an operation: what a launch reads and writes, the cases that each of its
 * kernels must pass, what should come out. One row per operation, found by problem.op; what makes
 * tensors, runs kernels and gives verdicts iterates over the row and never asks which operation it is.
 *
 * Errors: FA2_E_MEMORY. Thread-safe: no state.
 */
#ifndef FA2I_JUDGE_H
#define FA2I_JUDGE_H

#include "tuner/judge/case.h"
#include "tuner/judge/rows.h"

typedef enum fa2i_operand_shape {
    FA2I_SHAPE_QUERIES, /* [batch, seq_q, heads_q, head_dim] of the dtype */
    FA2I_SHAPE_KEYS,    /* [batch, seq_k, heads_kv, head_dim] of the dtype */
    FA2I_SHAPE_OUTPUTS, /* [batch, seq_q, heads_q, head_dim_v] of the dtype */
    FA2I_SHAPE_VALUES, /* [batch, seq_k, heads_kv, head_dim_v] of the dtype; not there where V is in K */
    FA2I_SHAPE_STATISTICS, /* [batch, heads_q, seq_q], fp32 */
    FA2I_SHAPE_SLOPES, /* rows of heads_q, fp32: one for each batch, or for all if batches share K and V */
    FA2I_SHAPE_SINKS, /* [heads_q], fp32 */
    FA2I_SHAPE_BIAS, /* of the type of the problem's bias; which dimensions there are, and in which order:
                      * fa2i_case_bias */
    FA2I_SHAPE_BIAS_GRADIENT, /* the same, fp32; not there unless the problem has one. With deterministic, each
                               * batch, head and query has its own */
    FA2I_SHAPE_SEEDS, /* two 64-bit integers; not there in dense BSHD, where values take their place */
    FA2I_SHAPE_LENGTHS,    /* [batch], int32 */
    FA2I_SHAPE_BOUNDS,     /* [batch + 1], int32 */
    FA2I_SHAPE_TABLE,      /* [batch, pages of a sequence], int32 */
    FA2I_SHAPE_NEW_KEYS,   /* [batch, new keys, heads_kv, head_dim] of the dtype */
    FA2I_SHAPE_NEW_VALUES, /* the same, of head_dim_v columns */
    FA2I_SHAPE_ANGLES      /* [positions, rotary_dim / 2] of the dtype */
} fa2i_operand_shape;

typedef struct fa2i_operand {
    const char *name; /* in verdicts */
    fa2i_operand_shape shape;
    int field; /* index of the field that asks for it (fa2i_fields); 0: it is always there */
    bool output;
    bool optional;  /* an output that is only there if the case wants it */
    bool patterned; /* an input in which a case's pattern is */
    int changed_by; /* an input: index of the field with which a launch writes into it, too; 0: none */
    /* Inputs: make the first `count` elements of the operand, of elem_bytes each. */
    fa2_status (*fill)(const fa2i_case *c, int operand, size_t count, void *out);
} fa2i_operand;

/* How far from the expected value v a number may be: absolute + relative * |v|. */
typedef struct fa2i_bound {
    double absolute, relative;
} fa2i_bound;

/* What some rows of an output should be. */
typedef struct fa2i_wanted {
    const fa2i_place *places; /* borrowed */
    size_t row_count;
    int width;
    double *values; /* [row_count, width]; owned, as is the next one */
    bool *exact;    /* [row_count]: nothing but these values is right */
    fa2i_bound bound;
} fa2i_wanted;

void fa2i_wanted_done(fa2i_wanted *wanted); /* zeroed objects are fine */

/* Inputs on the host, by operand; element i is data[i % period]. Outputs are NULL. */
typedef struct fa2i_inputs {
    const void *data[FA2I_OPERANDS_MAX];
    size_t period[FA2I_OPERANDS_MAX];
} fa2i_inputs;

enum { FA2I_VERIFY_CASES_MAX = 32 };

typedef struct fa2i_verify_case {
    const char *name; /* static */
    bool divided;     /* for kernels that divide the keys; others gain nothing from it */
    fa2i_case c;
} fa2i_verify_case;

/* The arguments of a call of any operation. */
typedef union fa2i_arguments {
    fa2_forward_args forward;
    fa2_backward_args backward;
} fa2i_arguments;

typedef struct fa2i_judge {
    const fa2i_operand *operands;
    int operand_count;
    /* The cases for all kernels of a class, on a device of so many SMs. Returns how many. */
    size_t (*cases)(const fa2_problem *class, int sm_count,
                    fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX]);
    /* Compute the values of all outputs that the case has, in the order of the operands. places,
     * row_count and width are set; statistics have the places of the queries' outputs. */
    fa2_status (*reference)(const fa2i_case *c, const fa2i_inputs *inputs, int threads,
                            fa2i_wanted *outputs);
    /* A call on these operands; an operand that the case does without is 0. */
    fa2i_arguments (*arguments)(const fa2i_case *c, const uint64_t addresses[FA2I_OPERANDS_MAX],
                                uint64_t workspace, size_t workspace_bytes);
} fa2i_judge;

extern const fa2i_judge fa2i_judge_forward, fa2i_judge_backward;

/* op is one that fa2i_problem_check accepts. */
const fa2i_judge *fa2i_judge_of(fa2_op op);

/* A tensor of the case as a reference reads it, and as a call gets it. */
fa2i_host_tensor fa2i_case_host_tensor(const fa2i_case *c, const fa2i_inputs *inputs, int operand);
fa2_tensor fa2i_case_tensor(const fa2i_case *c, const uint64_t addresses[FA2I_OPERANDS_MAX],
                            int operand);

/* Stands for "not a number at all" wherever an error over its bound is kept: finite, so that it
 * survives JSON and SQL. */
#define FA2I_ERROR_NOT_FINITE 1e30

/* The error of one number over its bound: <= 1 is right. What is expected to be NaN is not written. */
double fa2i_error_of(double value, double expected, fa2i_bound bound, bool exact);

#endif
