/*
 * Checks and fills the features that act on scores and on P. features_rows.c has the features that say where rows lie.
 */
#include "runtime/ops/features.h"

#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/ops/call.h"
#include "runtime/ops/dropout.h"
#include "runtime/ops/features_rows.h"

/* Terms that are added to scores are divided by the scale, and the quotient must be a number. */
#define SCALE_LEAST 1e-30

static bool has_terms(const fa2_problem *problem)
{
    const uint32_t asked = fa2i_operands_asked(problem);
    for (int i = 0; asked >> i != 0; i++)
        if ((asked >> i & 1) != 0 && fa2i_operands[i].access == FA2I_ACCESS_TERM)
            return true;
    return false;
}

static fa2_status check_scale(double scale)
{
    if (scale >= SCALE_LEAST)
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID, "the scale of scores is %g; it must be at least %g if something is added to them",
                     scale, SCALE_LEAST);
}

/* ---- a bias and its gradient ---- */

/* Where the arguments have the bias: its pointer is the first member. */
static const fa2_bias_tensor *bias_of(const fa2_problem *p, const void *args)
{
    return (const void *)((const char *)args + fa2i_operands[FA2I_OPERAND_bias].at[p->op]);
}

/* A stride of 0 asks for a sum over the dimension. Elements that share memory in another way are refused. Usual strides
 * nest, which is seen at once. The search for other strides ends soon (ops/memory.c). */
static fa2_status check_elements(const int64_t strides[4], const int32_t extents[4])
{
    const int64_t elem_bytes = sizeof(float);
    int64_t bytes[4];
    for (int i = 0; i < 4; i++)
        bytes[i] = extents[i] > 1 ? strides[i] * elem_bytes : 0;
    if (!fa2i_memory_elements_meet(bytes, extents, elem_bytes))
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID,
                     "dbias.stride_batch, dbias.stride_head, dbias.stride_query and dbias.stride_key are %lld, %lld, "
                     "%lld and %lld; some of its %d x %d x %d x %d elements would share memory: only a stride of 0 "
                     "makes a sum",
                     (long long)strides[0], (long long)strides[1], (long long)strides[2], (long long)strides[3],
                     (int)extents[0], (int)extents[1], (int)extents[2], (int)extents[3]);
}

fa2_status fa2i_bias_gradient_check(const fa2_problem *p, const fa2_backward_args *args)
{
    const int32_t extents[] = {p->batch, p->heads_q, p->seq_q, p->seq_k};
    const int64_t *strides = fa2i_operand_strides(FA2_OP_BACKWARD, args, FA2I_OPERAND_dbias);
    char name[FA2I_STRIDE_CHARS];
    for (int i = 0; p->deterministic && i < 4; i++) {
        if (strides[i] == 0 && extents[i] > 1)
            return fa2i_fail(FA2_E_UNSUPPORTED,
                             "%s is 0, a sum over %d in any order; with deterministic it must be "
                             "more than 0, and the caller must sum",
                             fa2i_operand_stride_name(FA2I_OPERAND_dbias, i, name), (int)extents[i]);
    }
    return check_elements(strides, extents);
}

/* Returns whether each row consists of aligned groups of so many neighbours. The stride of an extent of 1 may be
 * anything. */
static bool are_side(const fa2_problem *p, const fa2_bias_tensor *bias, int neighbours)
{
    const size_t align = (size_t)neighbours * fa2i_operand_elem_bytes(p, FA2I_OPERAND_bias);
    return (p->seq_k == 1 || bias->stride_key == 1) && (p->batch == 1 || bias->stride_batch % neighbours == 0) &&
           (p->heads_q == 1 || bias->stride_head % neighbours == 0) &&
           (p->seq_q == 1 || bias->stride_query % neighbours == 0) &&
           (uintptr_t)bias->data % (align < 16 ? align : 16) == 0;
}

bool fa2i_bias_is_scattered(const fa2_problem *problem, const fa2_bias_tensor *bias)
{
    return (problem->bias == FA2_BIAS_FP16 || problem->bias == FA2_BIAS_BF16) && !are_side(problem, bias, 2);
}

/* ---- distances ---- */

static bool has_distances(const fa2_problem *problem)
{
    return fa2i_operand_is_asked(problem, FA2I_OPERAND_alibi_slopes);
}

static float shift_of(const fa2_problem *problem, const void *args)
{
    return problem->op == FA2_OP_FORWARD ? ((const fa2_forward_args *)args)->distance_shift
                                         : ((const fa2_backward_args *)args)->distance_shift;
}

/* Kernels of causal problems suppose that no key which is seen comes after its query. */
static fa2_status check_shift(const fa2_problem *p, float shift)
{
    const float most = 0x1p24f, least = p->causal ? 0 : -most; /* beyond, fp32 has no neighbouring positions */
    if (!(shift >= least && shift <= most))
        return fa2i_fail(FA2_E_INVALID, "distance_shift is %g; it must be from %g to %g%s", (double)shift,
                         (double)least, (double)most, p->causal ? ", because the problem is causal" : "");
    return FA2_OK;
}

/* ---- dropout ---- */

static const fa2_dropout *dropout_of(const fa2_problem *problem, const void *args)
{
    return problem->op == FA2_OP_FORWARD ? &((const fa2_forward_args *)args)->dropout
                                         : &((const fa2_backward_args *)args)->dropout;
}

static const fa2_dropout_origin *origin_of(const fa2_problem *problem, const void *args)
{
    return problem->op == FA2_OP_FORWARD ? &((const fa2_forward_args *)args)->dropout_origin
                                         : &((const fa2_backward_args *)args)->dropout_origin;
}

static fa2_status check_probability(float p)
{
    if (p >= 0 && p < 1) /* false for NaN */
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID, "dropout.p is %g; it must be at least 0 and less than 1", (double)p);
}

/* Checks where the call's rows or columns begin. One call makes the keys of 32 rows, or of 64 columns, together. */
static fa2_status check_begin(const char *name, int32_t begin, int32_t extent)
{
    const int32_t most = (INT32_MAX - extent) / FA2I_DROPOUT_BLOCK * FA2I_DROPOUT_BLOCK;
    if (begin >= 0 && begin <= most && begin % FA2I_DROPOUT_BLOCK == 0)
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID, "dropout_origin.%s is %d; it must be a multiple of %d from 0 to %d", name,
                     (int)begin, FA2I_DROPOUT_BLOCK, (int)most);
}

static fa2_status check_origin(const fa2_problem *p, const fa2_dropout_origin *origin)
{
    const int32_t most = INT32_MAX / p->batch;
    fa2_status st = FA2_OK;
    FA2_TRY(check_begin("row", origin->row, p->seq_q));
    FA2_TRY(check_begin("column", origin->column, p->seq_k));
    if (origin->head < 0 || origin->head > most - p->heads_q)
        return fa2i_fail(FA2_E_INVALID, "dropout_origin.head is %d; it must be from 0 to %d", (int)origin->head,
                         (int)(most - p->heads_q));
    if ((origin->heads != 0 || origin->head != 0) &&
        (origin->heads < origin->head + p->heads_q || origin->heads > most))
        return fa2i_fail(FA2_E_INVALID,
                         "dropout_origin.heads is %d; it must be from %d to %d: the call has %d heads from "
                         "head %d on",
                         (int)origin->heads, (int)(origin->head + p->heads_q), (int)most, (int)p->heads_q,
                         (int)origin->head);
done:
    return st;
}

fa2_status fa2i_dropout_check(const fa2_dropout *dropout)
{
    const fa2_problem problem = {.batch = 1, .dropout = 1};
    const fa2_forward_args args = {.dropout = *dropout};
    fa2i_memory ignored;
    fa2_status st = FA2_OK;
    FA2_TRY(check_probability(dropout->p));
    FA2_TRY(fa2i_operand_locate(&problem, &args, FA2I_OPERAND_seed_at, &ignored));
    FA2_TRY(fa2i_operand_locate(&problem, &args, FA2I_OPERAND_offset_at, &ignored));
done:
    return st;
}

static void fill_dropout(const fa2_problem *problem, const void *args, fa2i_feature_params *params)
{
    const fa2_dropout *dropout = dropout_of(problem, args);
    const fa2_dropout_origin *origin = origin_of(problem, args);
    const fa2i_dropout_threshold threshold = fa2i_dropout_threshold_of(dropout->p);
    params->seed = (int64_t)dropout->seed;
    params->offset = (int64_t)dropout->offset;
    params->drop_bound = (int32_t)fa2i_dropout_bound(threshold.byte);
    params->drop_part = (int32_t)threshold.part;
    params->keep_scale = fa2i_dropout_scale(dropout->p);
    params->drop_row = origin->row;
    params->drop_pair = origin->column / 2;
    params->drop_head = origin->head;
    params->drop_heads = origin->heads != 0 ? origin->heads : problem->heads_q;
}

/* ---- all features ---- */

/* Checks the operands that calls read: they share no byte with an output. */
static fa2_status check_operands(const fa2_problem *problem, const void *args, const fa2i_memory *const *outputs,
                                 int output_count)
{
    fa2i_memory m;
    fa2_status st = FA2_OK;
    const uint32_t asked = fa2i_operands_asked(problem);
    for (int i = 0; asked >> i != 0; i++) {
        if ((asked >> i & 1) == 0 || fa2i_operand_is_written(problem, i))
            continue;
        FA2_TRY(fa2i_feature_rows_check(problem, args, i));
        FA2_TRY(fa2i_operand_locate(problem, args, i, &m));
        for (int j = 0; j < output_count; j++)
            FA2_TRY(fa2i_memory_check_apart(outputs[j], &m));
    }
done:
    return st;
}

fa2_status fa2i_features_check(const fa2_problem *problem, const void *args, const fa2i_memory *const *outputs,
                               int output_count)
{
    fa2_status st = FA2_OK;
    if (has_terms(problem))
        FA2_TRY(check_scale(fa2i_scales_of(problem, args).exponent));
    if (has_distances(problem))
        FA2_TRY(check_shift(problem, shift_of(problem, args)));
    if (problem->dropout) {
        FA2_TRY(check_probability(dropout_of(problem, args)->p));
        FA2_TRY(check_origin(problem, origin_of(problem, args)));
    }
    FA2_TRY(check_operands(problem, args, outputs, output_count));
done:
    return st;
}

void fa2i_features_fill(const fa2_problem *problem, const void *args, double scale, fa2i_feature_params *ret_params)
{
    fa2i_feature_params params = {0};
    fa2i_operands_fill(problem, args, &params);
    if (has_terms(problem))
        params.inverse_scale = (float)(1 / scale);
    if (has_distances(problem))
        params.distance_shift = shift_of(problem, args);
    if (problem->bias != FA2_BIAS_NONE) {
        const fa2_bias_tensor *bias = bias_of(problem, args);
        params.bias_side = are_side(problem, bias, 8) ? 8 : are_side(problem, bias, 2) ? 2 : 1;
    }
    if (problem->dropout)
        fill_dropout(problem, args, &params);
    fa2i_feature_rows_fill(problem, args, &params);
    *ret_params = params;
}
