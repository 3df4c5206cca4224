/*
 * Checks fa2_backward's arguments. An output must be apart from the inputs and from the outputs located before it.
 */
#include "runtime/base/status.h"
#include "runtime/ops/backward.h"
#include "runtime/ops/call.h"
#include "runtime/ops/forward.h"

/* Outputs: dQ, dK, dV, operands of features, workspace. */
enum { Q, K, V, O, DO, LSE, INPUTS, OPERANDS = INPUTS + 3 + FA2I_OPERAND_COUNT + 1 };

/* The memory of the operands that exist, in their order. */
typedef struct operands {
    fa2i_memory memory[OPERANDS];
    int count;
} operands;

static fa2_status check_apart(operands *m)
{
    const fa2i_memory *output = &m->memory[m->count];
    fa2_status st = FA2_OK;
    for (int i = 0; st == FA2_OK && i < m->count; i++)
        st = fa2i_memory_check_apart(output, &m->memory[i]);
    m->count++;
    return st;
}

/* Batch, seq, heads of the tensors with queries and of those with keys. */
typedef struct extents {
    int32_t of_query[3], of_key[3];
} extents;

static extents extents_of(const fa2_problem *p)
{
    if (p->varlen)
        return (extents){{1, fa2i_forward_total_q(p), p->heads_q}, {1, fa2i_forward_total_k(p), p->heads_kv}};
    return (extents){{p->batch, p->seq_q, p->heads_q}, {p->batch, p->seq_k, p->heads_kv}};
}

static fa2_status locate_inputs(const fa2_problem *p, const fa2_backward_args *args, operands *m)
{
    const extents e = extents_of(p);
    const int32_t *of_query = e.of_query, *of_key = e.of_key, columns_v = fa2i_head_dim_v(p);
    const size_t rows = (size_t)of_query[0] * (size_t)of_query[1] * (size_t)of_query[2];
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_memory_of_tensor(p->dtype, "q", &args->q, of_query, p->head_dim, &m->memory[Q]));
    FA2_TRY(fa2i_memory_of_tensor(p->dtype, "k", &args->k, of_key, p->head_dim, &m->memory[K]));
    FA2_TRY(fa2i_memory_of_tensor(p->dtype, "v", &args->v, of_key, columns_v, &m->memory[V]));
    FA2_TRY(fa2i_memory_of_tensor(p->dtype, "o", &args->o, of_query, columns_v, &m->memory[O]));
    FA2_TRY(fa2i_memory_of_tensor(p->dtype, "d_o", &args->d_o, of_query, columns_v, &m->memory[DO]));
    if (args->lse == NULL)
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "lse is NULL; backward reads the LSE that forward gave"));
    FA2_TRY(fa2i_memory_of_array("lse", args->lse, rows * sizeof *args->lse, sizeof *args->lse, &m->memory[LSE]));
    m->count = INPUTS;
done:
    return st;
}

static fa2_status locate_gradients(const fa2_problem *p, const fa2_backward_args *args, operands *m)
{
    const extents e = extents_of(p);
    const struct {
        const char *name;
        const fa2_tensor *tensor;
        const int32_t *extents;
        int32_t columns;
    } gradients[] = {{"dq", &args->dq, e.of_query, p->head_dim},
                     {"dk", &args->dk, e.of_key, p->head_dim},
                     {"dv", &args->dv, e.of_key, fa2i_head_dim_v(p)}};
    fa2_status st = FA2_OK;
    for (size_t i = 0; i < sizeof gradients / sizeof *gradients; i++) {
        if (gradients[i].tensor->data == NULL)
            continue;
        FA2_TRY(fa2i_memory_of_rows(gradients[i].name, gradients[i].tensor, gradients[i].extents, gradients[i].columns,
                                    fa2i_out_bytes(p), "backward", &m->memory[m->count]));
        FA2_TRY(check_apart(m));
    }
    for (int i = 0; i < FA2I_OPERAND_COUNT; i++) {
        if (!fa2i_operand_is_gradient(i) || !fa2i_operand_is_asked(p, i) ||
            (fa2i_operands[i].access == FA2I_ACCESS_MAY_WRITE && fa2i_operand_data(p->op, args, i) == NULL))
            continue;
        FA2_TRY(fa2i_operand_locate(p, args, i, &m->memory[m->count]));
        if (i == FA2I_OPERAND_dbias)
            FA2_TRY(fa2i_bias_gradient_check(p, args));
        FA2_TRY(check_apart(m));
    }
    if (m->count == INPUTS)
        st = fa2i_fail(FA2_E_INVALID, "dq.data, dk.data and dv.data are NULL; at least one gradient is wanted");
done:
    return st;
}

static fa2_status check_features(const fa2_problem *p, const fa2_backward_args *args, const operands *m)
{
    const fa2i_memory *outputs[OPERANDS];
    for (int i = INPUTS; i < m->count; i++)
        outputs[i - INPUTS] = &m->memory[i];
    return fa2i_features_check(p, args, outputs, m->count - INPUTS);
}

fa2_status fa2i_backward_check_args(const fa2_problem *problem, const void *args, const fa2i_grid *grid)
{
    const fa2_backward_args *a = args;
    operands m;
    fa2_status st = FA2_OK;
    FA2_TRY(locate_inputs(problem, a, &m));
    FA2_TRY(locate_gradients(problem, a, &m));
    FA2_TRY(fa2i_scales_check(problem, a));
    FA2_TRY(fa2i_workspace_check(a->workspace, a->workspace_bytes));
    const size_t needed = grid == NULL         ? 0
                          : a->dq.data == NULL ? grid->partial_bytes + grid->rows_bytes
                                               : grid->workspace_bytes;
    if (needed > 0) {
        FA2_TRY(fa2i_workspace_memory(a->workspace, a->workspace_bytes, needed, &m.memory[m.count]));
        FA2_TRY(check_apart(&m));
    }
    if (fa2i_features_asked(problem))
        FA2_TRY(check_features(problem, a, &m));
done:
    return st;
}
