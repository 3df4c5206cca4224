/*
 * The operations, one row each: everything in the runtime that depends on which operation a problem
 * is. Other layers take the row of a problem and never ask which one it is.
 *
 * Pure; knows no CUDA; thread-safe.
 */
#ifndef FA2I_OPS_OP_H
#define FA2I_OPS_OP_H

#include "runtime/ops/backward.h"
#include "runtime/ops/forward.h"

/* The parameter block of any operation. */
typedef union fa2i_params {
    fa2i_forward_params forward;
    fa2i_backward_params backward;
} fa2i_params;

/* An operand where kernels find it: rows of columns that are contiguous. */
typedef struct fa2i_view {
    uintptr_t address;
    /* Elements: batch, sequence, head; without a meaning where the extent is 1. */
    int64_t strides[3];
    int32_t extents[3]; /* in that order */
    int32_t columns;    /* 0: no map expresses it, and the kernels of a recipe do without */
} fa2i_view;

/* args: the operation's own struct of fa2.h. Only what the problem asks for is read of it, so a
 * caller's struct may end before members that were added later. */
typedef struct fa2i_op {
    const char *name; /* as problems and recipes spell it */

    /* Version of the parameter block; stored with kernels, so that an older library never launches a
     * kernel whose parameters it does not know. Members behind the first version's, which only
     * kernels with a feature read, leave it as it is. Recipes add fa2i_recipe_revision: fa2i_op_abi. */
    int abi;

    bool keys_have_blocks; /* a block may own a tile of keys */

    /* Check the arguments of a valid problem: pointers, strides, values, outputs that share memory
     * with anything else, the workspace that a grid needs. grid == NULL: the problem has no plan yet, so
     * that the workspace's size is not known. FA2_E_INVALID names argument and limit. */
    fa2_status (*check_args)(const fa2_problem *problem, const void *args, const fa2i_grid *grid);

    /* Spread a recipe of this operation that was parsed. FA2_E_UNSUPPORTED, naming the numbers, when
     * one launch cannot have that many blocks. */
    fa2_status (*grid)(const fa2i_card *card, const fa2i_recipe *recipe, const fa2_problem *problem,
                       fa2i_grid *ret_grid);

    /* Bytes of workspace with which a kernel without tensor maps is to serve a valid problem: what a plan whose
     * kernel has maps asks for at least, as a call may have strides that no map expresses. */
    size_t (*unmapped_bytes)(const fa2_problem *problem);

    /* Where arguments have what features read; nothing of them is read. */
    fa2i_feature_args (*features)(const void *args);

    /* Make the parameter block of arguments that were checked. */
    void (*fill)(const fa2i_grid *grid, const fa2_problem *problem, const void *args,
                 fa2i_params *ret_params);

    /* Where an operand of a recipe's tensor map lies, of a parameter block that was made. NULL: the
     * operation's recipes have none. */
    void (*view)(const fa2_problem *problem, const fa2i_params *params, fa2i_mapped operand,
                 fa2i_view *ret_view);

    /* The strides of the operands that recipes may map, used or not, as a call gives them: their bits, or-ed, so that
     * none is more. NULL: as view. */
    uint64_t (*strides)(const fa2_problem *problem, const void *args);

    /* Whether a call has an operand that kernels which map it would copy number by number, and others read as well as
     * any. NULL: never. */
    bool (*is_scattered)(const fa2_problem *problem, const void *args);

    /* Whether a call does without the steps of a role, as what they would write is not wanted. NULL: never. */
    bool (*does_without)(fa2i_role role, const void *args);

    /* Multiplications and additions, times two, as rates are given by. */
    double (*flop)(const fa2_problem *problem);

    /* The same if every query saw every key: a kernel that skips little does no more. */
    double (*flop_unmasked)(const fa2_problem *problem);

    /* What must be read and written at least, each byte once. */
    double (*bytes)(const fa2_problem *problem);
} fa2i_op;

/* The row of a problem's operation, which is one of fa2_op; borrowed for ever. */
const fa2i_op *fa2i_op_of(const fa2_problem *problem);

/* What the recipes of kernels for the problem's class say: the operation's abi, and the class's revision. */
int fa2i_op_abi(const fa2_problem *problem);

/* The operation's flop. */
double fa2i_problem_flop(const fa2_problem *problem);

#endif
