/*
 * From a call's tensors to the library's operands, the problem and the launch. The shapes are compared here. All that
 * fa2.h can check, fa2 checks and reports itself.
 */
#include "native.h"

enum { RANK = FA2PY_RANK, DIM = FA2PY_DIM };

static bool check_dtype(const dl_tensor *q, fa2_dtype *ret_dtype)
{
    const bool half = q->dtype.bits == 16 && q->dtype.lanes == 1;
    if (half && q->dtype.code == DL_FLOAT) {
        *ret_dtype = FA2_FP16;
        return true;
    }
    if (half && q->dtype.code == DL_BFLOAT) {
        *ret_dtype = FA2_BF16;
        return true;
    }
    if (q->dtype.bits == 32 && q->dtype.lanes == 1 && q->dtype.code == DL_FLOAT) {
        *ret_dtype = FA2_FP32;
        return true;
    }
    return fa2py_refuse(PyExc_NotImplementedError, "q is %s; fa2 knows float16, bfloat16 and float32",
                        fa2py_dtype_word(q->dtype));
}

static int seq_axis(const fa2py_call *call)
{
    return call->heads_first ? 2 : 1;
}

/* Dimensions of extent 1 may have any stride. The library gets 0. */
fa2_tensor fa2py_tensor_of(const fa2py_call *call, const fa2py_operand *operand)
{
    const dl_tensor *tensor = &operand->view.tensor;
    int64_t strides[RANK];
    const int seq = seq_axis(call), head = 3 - seq;
    if (operand->object == NULL)
        return (fa2_tensor){.data = NULL};
    for (int i = 0; i < RANK; i++)
        strides[i] = operand->shape[i] == 1 ? 0 : operand->strides[i];
    return (fa2_tensor){(char *)tensor->data + tensor->byte_offset, strides[0], strides[seq], strides[head]};
}

float *fa2py_floats_of(const fa2py_operand *operand)
{
    const dl_tensor *tensor = &operand->view.tensor;
    return operand->object == NULL ? NULL : (float *)(void *)((char *)tensor->data + tensor->byte_offset);
}

static bool check_operands(const fa2py_call *call, const fa2py_operand operands[3])
{
    const bool paged = call->features[FA2I_OPERAND_block_table] != NULL,
               own_rows = !paged && call->features[FA2I_OPERAND_cache_rows] == NULL;
    const int64_t *q = operands[0].shape, *k = operands[1].shape, *v = operands[2].shape;
    const int seq = seq_axis(call), head = 3 - seq;
    if (fa2py_kv_of(&operands[1]) != fa2py_kv_of(&operands[2]))
        return fa2py_refuse(PyExc_ValueError, "k is %s and v %s; they must be of one type",
                            fa2py_dtype_word(operands[1].view.tensor.dtype),
                            fa2py_dtype_word(operands[2].view.tensor.dtype));
    if ((own_rows && !fa2py_check_same("k", k[0], "q", q[0], "batch")) ||
        !fa2py_check_same("v", v[0], "k", k[0], paged ? "pages" : "batch") ||
        !fa2py_check_same("v", v[seq], "k", k[seq], paged ? "page" : "seq") ||
        !fa2py_check_same("v", v[head], "k", k[head], "heads") ||
        !fa2py_check_same("k", k[DIM], "q", q[DIM], "head_dim"))
        return false;
    if (v[DIM] < 1) /* the library takes 0 columns for "as many as Q has" */
        return fa2py_refuse(PyExc_ValueError, "v has no columns; its head_dim must be at least 8");
    return true;
}

/* Sets the lengths of packed sequences, which lie one after the other in one row of a batch. */
static void set_packed(const fa2py_call *call, const dl_tensor *starts, fa2_problem *problem)
{
    problem->total_q = problem->seq_q;
    problem->total_k = problem->paged ? 0 : problem->seq_k;
    problem->batch = starts->ndim == 1 && starts->shape[0] > 0 ? (int32_t)starts->shape[0] - 1 : 0;
    problem->seq_q = call->max_seqlen_q;
}

/* Sets seq_k and page of keys in pages. The table's width says how many keys there may be. */
static void set_paged(const dl_tensor *table, fa2_problem *problem)
{
    const int64_t most = table->ndim == 2 ? table->shape[1] * problem->seq_k : 0;
    problem->page = problem->seq_k;
    problem->seq_k = most <= INT32_MAX ? (int32_t)most : INT32_MAX;
}

bool fa2py_begin_alike(const fa2py_call *call, const fa2py_operand *k, const fa2py_operand *v)
{
    const fa2_tensor a = fa2py_tensor_of(call, k), b = fa2py_tensor_of(call, v);
    return a.data == b.data && a.stride_batch == b.stride_batch && a.stride_seq == b.stride_seq &&
           a.stride_head == b.stride_head;
}

/* Returns true if v is the first columns of k, but not all of them. Backward reads the two separately, and so do kernels
 * of fp32. */
static bool is_v_in_k(const fa2py_call *call, const fa2py_operand operands[3], const fa2_problem *problem)
{
    return call->op == FA2_OP_FORWARD && problem->dtype != FA2_FP32 && problem->head_dim_v > 0 &&
           problem->head_dim_v < problem->head_dim && fa2py_begin_alike(call, &operands[1], &operands[2]);
}

bool fa2py_make_problem(const fa2py_call *call, const fa2py_operand operands[3], const fa2py_features *features,
                        fa2_problem *ret_problem)
{
    const int64_t *q = operands[0].shape, *k = operands[1].shape, *v = operands[2].shape;
    const int seq = seq_axis(call), head = 3 - seq;
    fa2_problem problem = {.struct_bytes = sizeof problem, .op = call->op};
    fa2py_features_ask(call, features, &problem);
    if (!check_dtype(&operands[0].view.tensor, &problem.dtype) || !check_operands(call, operands))
        return false;
    problem.kv = fa2py_kv_of(&operands[1]); /* 8 bits where k has scales, and there alone: fa2py_begin */
    problem.batch = (int32_t)q[0];
    problem.heads_q = (int32_t)q[head];
    problem.heads_kv = (int32_t)k[head];
    problem.seq_q = (int32_t)q[seq];
    problem.seq_k = (int32_t)k[seq];
    problem.head_dim = (int32_t)q[DIM];
    problem.head_dim_v = v[DIM] != q[DIM] ? (int32_t)v[DIM] : 0;
    problem.v_in_k = is_v_in_k(call, operands, &problem);
    problem.causal = call->causal;
    problem.deterministic = call->deterministic;
    if (problem.varlen)
        set_packed(call, &features->of[FA2I_OPERAND_cu_seqlens_q].view.tensor, &problem);
    if (problem.paged)
        set_paged(&features->of[FA2I_OPERAND_block_table].view.tensor, &problem);
    if (problem.varlen || call->max_seqlen_k > 0)
        problem.seq_k = call->max_seqlen_k;
    /* In a causal call the right bound has no effect. Dropping it gives equal calls one problem. */
    const int32_t right = call->causal ? -1 : call->window_right;
    if (call->window_left >= 0 || right >= 0) {
        problem.window = 1;
        problem.window_left = call->window_left;
        problem.window_right = right;
    }
    if (!fa2py_features_check(call, operands, features, &problem))
        return false;
    *ret_problem = problem;
    return true;
}

bool fa2py_launch_on(const fa2py_call *call, const fa2py_operand *q, fa2py_launch *launch)
{
    const int device = q->view.tensor.device.id;
    fa2py_context *context = call->context;
    if (launch->problem->dropout && !call->has_seed && call->features[FA2I_OPERAND_seed_at] == NULL)
        return fa2py_refuse(PyExc_ValueError,
                            "dropout_p is given without dropout_seed: an int, or int64 on the device");
    if (context == NULL) {
        context = fa2py_default_context(device);
    } else if (fa2py_context_device(context) != device) {
        return fa2py_refuse(PyExc_ValueError, "the context is of CUDA device %d and q on %d",
                            fa2py_context_device(context), device);
    } else {
        Py_INCREF((PyObject *)context);
    }
    if (context == NULL)
        return false;
    launch->like = q->object;
    const bool ok = fa2py_context_launch(context, launch);
    Py_DECREF((PyObject *)context);
    return ok;
}
