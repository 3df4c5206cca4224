/*
 * The operations, one row each: everything in the run time that depends on the operation of a problem. Other layers
 * take the row of a problem, and never ask which operation it is.
 *
 * Pure functions without CUDA; thread-safe.
 */
#pragma once

#include "runtime/ops/backward.h"
#include "runtime/ops/forward.h"
#include "runtime/ops/merge.h"

/* The parameter block of any operation. */
typedef union fa2i_params {
    fa2i_forward_params forward;
    fa2i_backward_params backward;
    fa2i_merge_params merge;
} fa2i_params;

/* An operand as kernels find it: rows of contiguous columns. */
typedef struct fa2i_view {
    uintptr_t address;
    /* Elements: batch, sequence, head. Meaningless if the extent is 1. */
    int64_t strides[3];
    int32_t extents[3]; /* in that order */
    int32_t columns;    /* 0: no map expresses the operand, and the recipe's kernels do without */
} fa2i_view;

/* args: the operation's struct of fa2.h, in the size of this library (base/sized.h). Only members that the problem asks
 * for are read. */
typedef struct fa2i_op {
    const char *name; /* as problems and recipes spell it */

    /* Version of the parameter block. It is stored with kernels, so that an older library never launches a kernel whose
     * parameters it does not know. New members at the end that only kernels with a feature read do not change it.
     * Recipes contain it plus fa2i_recipe_revision (fa2i_op_abi). */
    int abi;

    bool keys_have_blocks; /* a block may own a tile of keys */

    /* Checks the arguments of a valid problem: pointers, strides, values, outputs that share memory with another
     * argument, the workspace that a grid needs. grid == NULL: the problem has no plan yet, so the workspace's size is
     * unknown. FA2_E_INVALID names argument and limit. */
    fa2_status (*check_args)(const fa2_problem *problem, const void *args, const fa2i_grid *grid);

    /* Spreads a parsed recipe of this operation. FA2_E_UNSUPPORTED, naming the numbers, if one launch cannot have that
     * many blocks. */
    fa2_status (*grid)(const fa2i_card *card, const fa2i_recipe *recipe, const fa2_problem *problem,
                       fa2i_grid *ret_grid);

    /* Returns the workspace, in bytes, with which a kernel without tensor maps must serve a valid problem. A plan whose
     * kernel has maps asks for at least this much, because a call may have strides that no map expresses. */
    size_t (*unmapped_bytes)(const fa2_problem *problem);

    /* Fills the parameter block from arguments that were checked. */
    void (*fill)(const fa2i_grid *grid, const fa2_problem *problem, const void *args, fa2i_params *ret_params);

    /* Describes the operand of a recipe's tensor map, from a filled parameter block. NULL: the operation's recipes
     * have no maps. */
    void (*view)(const fa2_problem *problem, const fa2i_params *params, fa2i_mapped operand, fa2i_view *ret_view);

    /* Returns the or of the strides, used or not, of all operands that recipes may map. No stride exceeds it. NULL:
     * like view. */
    uint64_t (*strides)(const fa2_problem *problem, const void *args);

    /* Returns whether a call has an operand that a kernel with maps would copy number by number, while other kernels
     * read it at full speed. NULL: never. */
    bool (*is_scattered)(const fa2_problem *problem, const void *args);

    /* Returns whether a call can skip the steps of a role, because their results are not wanted. NULL: never. */
    bool (*does_without)(fa2i_role role, const void *args);

    /* Counts multiplications and additions. Rates are given by this number. */
    double (*flop)(const fa2_problem *problem);

    /* The same if every query saw every key. A kernel that skips little does not do more. */
    double (*flop_unmasked)(const fa2_problem *problem);

    /* Returns the least number of bytes to read and write, each byte once. */
    double (*bytes)(const fa2_problem *problem);
} fa2i_op;

/* Returns the row of a problem's operation. Borrowed; static. */
const fa2i_op *fa2i_op_of(const fa2_problem *problem);

/* Returns the abi in recipes for the problem's class: the operation's abi plus the class's revision. */
int fa2i_op_abi(const fa2_problem *problem);

/* Returns the operation's flop for the problem. */
double fa2i_problem_flop(const fa2_problem *problem);
