/*
 * Backward's parameter block, and the amount of its work.
 */
#include "runtime/ops/backward.h"

#include <stddef.h>
#include "runtime/ops/call.h"
#include "runtime/ops/forward.h"

_Static_assert(offsetof(fa2i_backward_params, features) == 336 && offsetof(fa2i_backward_params, softcap_rate) == 320 &&
                   offsetof(fa2i_backward_params, q_stride) == 88 && offsetof(fa2i_backward_params, scale) == 280,
               "kernels in databases read their parameters at these places");

static void fill_strides(const fa2_backward_args *a, fa2i_backward_params *params)
{
    fa2i_param_strides(&a->q, params->q_stride);
    fa2i_param_strides(&a->k, params->k_stride);
    fa2i_param_strides(&a->v, params->v_stride);
    fa2i_param_strides(&a->o, params->o_stride);
    fa2i_param_strides(&a->d_o, params->do_stride);
    fa2i_param_strides(&a->dq, params->dq_stride);
    fa2i_param_strides(&a->dk, params->dk_stride);
    fa2i_param_strides(&a->dv, params->dv_stride);
}

void fa2i_backward_fill(const fa2i_grid *grid, const fa2_problem *problem, const void *args,
                        fa2i_backward_params *ret_params)
{
    static const double log2_e = 1.4426950408889634074;
    const fa2_backward_args *a = args;
    const fa2i_scales scales = fa2i_scales_of(problem, a);
    fa2i_backward_params params = {
        .q = (uintptr_t)a->q.data,
        .k = (uintptr_t)a->k.data,
        .v = (uintptr_t)a->v.data,
        .o = (uintptr_t)a->o.data,
        .d_o = (uintptr_t)a->d_o.data,
        .dq = (uintptr_t)a->dq.data,
        .dk = (uintptr_t)a->dk.data,
        .dv = (uintptr_t)a->dv.data,
        .lse = (uintptr_t)a->lse,
        .scale = (float)scales.softmax,
        .scale_log2 = (float)(scales.exponent * log2_e),
        .softcap_rate = scales.softcap_rate,
        .seq_q = problem->seq_q,
        .seq_k = problem->seq_k,
        .heads_q = problem->heads_q,
        .group = problem->heads_q / problem->heads_kv,
        .batch = problem->batch,
        .q_tiles = grid->row_tiles,
        .k_tiles = grid->key_tiles,
        .splits = grid->splits,
    };
    if (problem->window) {
        params.window_left = fa2i_window_left(problem);
        params.window_right = fa2i_window_right(problem);
    }
    if (fa2i_features_asked(problem))
        fa2i_features_fill(problem, a, scales.exponent, &params.features);
    if (problem->dropout) /* dS is computed from kept elements */
        params.scale = (float)(scales.softmax * (double)params.features.keep_scale);
    if (grid->workspace_bytes > 0)
        params.rows = (uintptr_t)a->workspace + grid->partial_bytes;
    if (grid->workspace_bytes > grid->partial_bytes + grid->rows_bytes && params.dq != 0)
        params.dq_sum = params.rows + grid->rows_bytes;
    fill_strides(a, &params);
    *ret_params = params;
}

bool fa2i_backward_does_without(fa2i_role role, const void *args)
{
    const fa2_backward_args *a = args;
    return (role == FA2I_STEP_CONVERT && a->dq.data == NULL) ||
           (role == FA2I_STEP_COMBINE && a->dk.data == NULL && a->dv.data == NULL);
}

/* Backward has five products and forward has two, by the convention of the FlashAttention papers. Three of the five
 * have rows of Q or K, and two have rows of O or V. Forward has one of each. */
static double products_of_forward(const fa2_problem *p)
{
    const double columns = p->head_dim, columns_v = fa2i_head_dim_v(p);
    return (3 * columns + 2 * columns_v) / (columns + columns_v);
}

double fa2i_backward_flop(const fa2_problem *problem)
{
    return products_of_forward(problem) * fa2i_forward_flop(problem);
}

double fa2i_backward_flop_unmasked(const fa2_problem *problem)
{
    return products_of_forward(problem) * fa2i_forward_flop_unmasked(problem);
}

/* Counts Q, O, dO and dQ; K and V that any query sees; dK and dV; LSE. */
static double bytes(const fa2_problem *p)
{
    const double queries = (double)p->batch * p->heads_q * p->seq_q;
    const double keys = (double)p->batch * p->heads_kv * (double)(p->seq_k + fa2i_forward_seen_keys(p)) / 2;
    const double columns = p->head_dim + fa2i_head_dim_v(p), gradients = queries * p->head_dim + keys * columns;
    const double operands = queries * (columns + fa2i_head_dim_v(p)) + keys * columns;
    return operands * fa2i_elem_bytes(p->dtype) + gradients * fa2i_out_traffic(p) + queries * sizeof(float);
}

double fa2i_backward_bytes(const fa2_problem *problem)
{
    return fa2i_forward_sum(problem, bytes);
}
