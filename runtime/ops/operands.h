/*
 * The operands of features: operands.def as data, and the functions that follow it. args is the argument struct of the
 * problem's operation, fa2_forward_args or fa2_backward_args, in the size of this library.
 *
 * Pure functions; thread-safe. Errors: FA2_E_INVALID naming argument and limit.
 */
#pragma once

#include "runtime/ops/memory.h"
#include "runtime/ops/param_kinds.h"

/* The end of a parameter block. */
typedef struct fa2i_feature_params {
#include "templates/features/params.def"
} fa2i_feature_params;

/* The index of each operand: FA2I_OPERAND_sinks and so on. */
typedef enum fa2i_operand_id {
#define FA2I_OPERAND(id, ...) FA2I_OPERAND_##id,
#include "runtime/ops/operands.def"
    FA2I_OPERAND_COUNT
} fa2i_operand_id;

typedef enum fa2i_elem {
    FA2I_ELEM_FP32,
    FA2I_ELEM_INT32,
    FA2I_ELEM_UINT64,
    FA2I_ELEM_DTYPE,
    FA2I_ELEM_BIAS,
    FA2I_ELEM_SCALE
} fa2i_elem;

typedef enum fa2i_dim {
    FA2I_DIM_NONE,
    FA2I_DIM_Kb,
    FA2I_DIM_Kr,
    FA2I_DIM_Qb,
    FA2I_DIM_Qr,
    FA2I_DIM_B,
    FA2I_DIM_B1,
    FA2I_DIM_Hq,
    FA2I_DIM_Hkv,
    FA2I_DIM_Sq,
    FA2I_DIM_Sk,
    FA2I_DIM_D,
    FA2I_DIM_Dv,
    FA2I_DIM_N,
    FA2I_DIM_P,
    FA2I_DIM_R,
    FA2I_DIM_R2,
    FA2I_DIM_One
} fa2i_dim;

typedef enum fa2i_access {
    FA2I_ACCESS_READ,
    FA2I_ACCESS_TERM,
    FA2I_ACCESS_ROW,
    FA2I_ACCESS_MAY_READ,
    FA2I_ACCESS_GROW,
    FA2I_ACCESS_WRITE,
    FA2I_ACCESS_MAY_WRITE
} fa2i_access;

enum { FA2I_OPERAND_RANK = 4 };

/* A line of operands.def, which explains the columns. */
typedef struct fa2i_operand_line {
    const char *name, *member;
    fa2i_elem elem;
    int shape[FA2I_OPERAND_RANK]; /* of fa2i_dim; then NONE */
    int rank, strides;
    int field; /* index of a problem's field */
    fa2i_access access;
    int at[FA2_OP_MERGE + 1]; /* by fa2_op: where its argument struct has the pointer; -1: nowhere */
    int param;                /* where fa2i_feature_params has it */
} fa2i_operand_line;

extern const fa2i_operand_line fa2i_operands[FA2I_OPERAND_COUNT];

/* Returns the operands that calls of a problem have: bits 1 << id. */
uint32_t fa2i_operands_asked(const fa2_problem *problem);

static inline bool fa2i_operand_is_asked(const fa2_problem *problem, int operand)
{
    return (fa2i_operands_asked(problem) >> operand & 1) != 0;
}

/* Returns whether the operand is a gradient. */
static inline bool fa2i_operand_is_gradient(int operand)
{
    return fa2i_operands[operand].access >= FA2I_ACCESS_WRITE;
}

/* Returns whether launches write the operand: a gradient, or scales of a cache that grows. */
static inline bool fa2i_operand_is_written(const fa2_problem *problem, int operand)
{
    return fa2i_operand_is_gradient(operand) || (fa2i_operands[operand].access == FA2I_ACCESS_GROW && problem->append);
}

/* Returns whether problems ask for any operand. */
static inline bool fa2i_features_asked(const fa2_problem *problem)
{
#define FA2I_OPERAND(id, name, member, elem, shape, strides, field, ...) || problem->field
    return false
#include "runtime/ops/operands.def"
        ;
}

/* Returns the operand's pointer in the arguments. NULL: they have none. */
const void *fa2i_operand_data(fa2_op op, const void *args, int operand);

/* Returns the operand's strides in the arguments, as many as the line says. The operation has the operand. */
const int64_t *fa2i_operand_strides(fa2_op op, const void *args, int operand);

/* Writes a pointer and its strides, as many as the line says, into the arguments, if the operation has the operand. */
void fa2i_operand_put(fa2_op op, void *args, int operand, const void *data, const int64_t *strides);

/* Writes the name of a stride for messages, for example "bias.stride_head". Returns out. */
enum { FA2I_STRIDE_CHARS = 48 };
const char *fa2i_operand_stride_name(int operand, int dimension, char out[FA2I_STRIDE_CHARS]);

/* Returns the bytes of an element. */
size_t fa2i_operand_elem_bytes(const fa2_problem *problem, int operand);

/* Checks that the operand is given, aligned, and at strides within bounds, and finds its memory. An operand that may be
 * NULL, and is, has no byte. Numbers of the call that extents depend on were checked. */
fa2_status fa2i_operand_locate(const fa2_problem *problem, const void *args, int operand, fa2i_memory *ret_memory);

/* Copies pointers and strides of all operands into the kernels' parameters. The stride of an extent of 1 becomes 0. The
 * strides of new keys and values are left out. */
void fa2i_operands_fill(const fa2_problem *problem, const void *args, fa2i_feature_params *params);
