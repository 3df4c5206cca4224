/*
 * The table of operations.
 */
#include "runtime/ops/op.h"

#include <assert.h>

static void fill_forward(const fa2i_grid *grid, const fa2_problem *problem, const void *args, fa2i_params *ret_params)
{
    fa2i_forward_fill(grid, problem, args, &ret_params->forward);
}

static fa2i_view view_of(const fa2_problem *problem, fa2i_mapped operand, uintptr_t address, const int64_t *strides)
{
    const bool is_output = operand == FA2I_MAPPED_O || operand == FA2I_MAPPED_DO;
    const bool of_queries = operand == FA2I_MAPPED_Q || is_output;
    const bool of_values = operand == FA2I_MAPPED_V || is_output;
    const bool packed = problem->varlen != 0;
    const int32_t queries = packed ? fa2i_forward_total_q(problem) : problem->seq_q;
    const int32_t keys = packed ? fa2i_forward_total_k(problem) : problem->seq_k;
    return (fa2i_view){
        .address = address,
        .strides = {strides[0], strides[1], strides[2]},
        .extents = {packed ? 1 : problem->batch, of_queries ? queries : keys,
                    of_queries ? problem->heads_q : problem->heads_kv},
        .columns = of_values ? fa2i_head_dim_v(problem) : problem->head_dim,
    };
}

/* Kernels copy one whose keys are apart, or that has one row for all queries (templates/hopper/bias_tiles.cuh). */
static fa2i_view view_of_bias(const fa2_problem *problem, const fa2i_feature_params *f)
{
    const bool is_mapped = f->bias_side >= 8 && f->bias_query > 0;
    return (fa2i_view){
        .address = f->bias,
        .strides = {f->bias_batch, f->bias_query, f->bias_head},
        .extents = {problem->batch, problem->seq_q, problem->heads_q},
        .columns = is_mapped ? problem->seq_k : 0,
    };
}

static void view_forward(const fa2_problem *problem, const fa2i_params *params, fa2i_mapped operand,
                         fa2i_view *ret_view)
{
    const fa2i_forward_params *p = &params->forward;
    *ret_view = operand == FA2I_MAPPED_Q      ? view_of(problem, operand, p->q, p->q_stride)
                : operand == FA2I_MAPPED_K    ? view_of(problem, operand, p->k, p->k_stride)
                : operand == FA2I_MAPPED_V    ? view_of(problem, operand, p->v, p->v_stride)
                : operand == FA2I_MAPPED_BIAS ? view_of_bias(problem, &p->features)
                                              : view_of(problem, operand, p->o, p->o_stride);
}

static void view_backward(const fa2_problem *problem, const fa2i_params *params, fa2i_mapped operand,
                          fa2i_view *ret_view)
{
    const fa2i_backward_params *p = &params->backward;
    *ret_view = operand == FA2I_MAPPED_Q   ? view_of(problem, operand, p->q, p->q_stride)
                : operand == FA2I_MAPPED_K ? view_of(problem, operand, p->k, p->k_stride)
                : operand == FA2I_MAPPED_V ? view_of(problem, operand, p->v, p->v_stride)
                                           : view_of(problem, operand, p->d_o, p->do_stride);
}

static uint64_t strides_of(const fa2_tensor *tensor)
{
    return (uint64_t)tensor->stride_batch | (uint64_t)tensor->stride_seq | (uint64_t)tensor->stride_head;
}

static uint64_t strides_of_forward(const fa2_problem *problem, const void *args)
{
    const fa2_forward_args *a = args;
    const fa2_bias_tensor *bias = &a->bias;
    const uint64_t strides =
        strides_of(&a->q) | strides_of(&a->k) | strides_of(problem->v_in_k ? &a->k : &a->v) | strides_of(&a->o);
    if (problem->bias == FA2_BIAS_NONE)
        return strides;
    return strides | (uint64_t)bias->stride_batch | (uint64_t)bias->stride_head | (uint64_t)bias->stride_query;
}

static uint64_t strides_of_backward(const fa2_problem *problem, const void *args)
{
    const fa2_backward_args *a = args;
    (void)problem;
    return strides_of(&a->q) | strides_of(&a->k) | strides_of(&a->v) | strides_of(&a->d_o);
}

static bool is_scattered(const fa2_problem *problem, const void *args)
{
    return fa2i_bias_is_scattered(problem, &((const fa2_forward_args *)args)->bias);
}

static void fill_backward(const fa2i_grid *grid, const fa2_problem *problem, const void *args, fa2i_params *ret_params)
{
    fa2i_backward_fill(grid, problem, args, &ret_params->backward);
}

static void fill_merge(const fa2i_grid *grid, const fa2_problem *problem, const void *args, fa2i_params *ret_params)
{
    fa2i_merge_fill(grid, problem, args, &ret_params->merge);
}

/* Kernels that neither read by tensor maps nor divide keys need no workspace. */
static size_t no_bytes(const fa2_problem *problem)
{
    (void)problem;
    return 0;
}

static const fa2i_op ops[] = {
    [FA2_OP_FORWARD] = {.name = "forward",
                        .abi = 2,
                        .check_args = fa2i_forward_check_args,
                        .grid = fa2i_forward_grid,
                        .unmapped_bytes = no_bytes,
                        .fill = fill_forward,
                        .view = view_forward,
                        .strides = strides_of_forward,
                        .is_scattered = is_scattered,
                        .flop = fa2i_forward_flop,
                        .flop_unmasked = fa2i_forward_flop_unmasked,
                        .bytes = fa2i_forward_bytes},
    [FA2_OP_BACKWARD] = {.name = "backward",
                         .abi = 1,
                         .keys_have_blocks = true,
                         .check_args = fa2i_backward_check_args,
                         .grid = fa2i_backward_grid,
                         .unmapped_bytes = fa2i_backward_unmapped_bytes,
                         .fill = fill_backward,
                         .view = view_backward,
                         .strides = strides_of_backward,
                         .does_without = fa2i_backward_does_without,
                         .flop = fa2i_backward_flop,
                         .flop_unmasked = fa2i_backward_flop_unmasked,
                         .bytes = fa2i_backward_bytes},
    [FA2_OP_MERGE] = {.name = "merge",
                      .abi = 1,
                      .check_args = fa2i_merge_check_args,
                      .grid = fa2i_merge_grid,
                      .unmapped_bytes = no_bytes,
                      .fill = fill_merge,
                      .flop = fa2i_merge_flop,
                      .flop_unmasked = fa2i_merge_flop,
                      .bytes = fa2i_merge_bytes},
};

const fa2i_op *fa2i_op_of(const fa2_problem *problem)
{
    assert((size_t)problem->op < sizeof ops / sizeof *ops);
    return &ops[problem->op];
}

int fa2i_op_abi(const fa2_problem *problem)
{
    char class_key[FA2I_CLASS_CHARS];
    fa2i_problem_class(problem, class_key);
    return fa2i_op_of(problem)->abi + fa2i_recipe_revision(class_key);
}

double fa2i_problem_flop(const fa2_problem *problem)
{
    return fa2i_op_of(problem)->flop(problem);
}
