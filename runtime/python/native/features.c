/*
 * The tensors of features, which a call takes beside q, k and v. They are checked here, because the library takes them
 * as addresses.
 */
#include "native.h"
#include "runtime/base/problem.h"

static void *data_of(const fa2py_operand *operand)
{
    const dl_tensor *tensor = &operand->view.tensor;
    return operand->object == NULL ? NULL : (char *)tensor->data + tensor->byte_offset;
}

static bool is_type(const dl_tensor *tensor, int code, int bits)
{
    return tensor->dtype.code == code && tensor->dtype.bits == bits && tensor->dtype.lanes == 1;
}

/* Checks float32 [heads], or [batch, heads] if there may be a batch. Heads are contiguous. */
static bool check_per_head(const fa2_problem *problem, bool with_batch, const fa2py_operand *operand)
{
    const dl_tensor *tensor = &operand->view.tensor;
    const int last = tensor->ndim - 1;
    bool fits = (tensor->ndim == 1 || (with_batch && tensor->ndim == 2)) && is_type(tensor, DL_FLOAT, 32) &&
                tensor->shape[last] == problem->heads_q &&
                (fa2py_stride_of(tensor, last) == 1 || problem->heads_q == 1);
    if (fits && tensor->ndim == 2)
        fits = tensor->shape[0] == problem->batch;
    if (!fits)
        PyErr_Format(PyExc_ValueError, "%s must be float32 [heads]%s, with %d heads, contiguous", operand->name,
                     with_batch ? " or [batch, heads]" : "", (int)problem->heads_q);
    return fits;
}

/* Checks int32 [batch + more], contiguous. more: 1 for cu_seqlens, else 0. */
static bool check_per_sequence(const fa2_problem *problem, int more, const fa2py_operand *operand)
{
    const dl_tensor *tensor = &operand->view.tensor;
    const int32_t wanted = problem->batch + more;
    if (tensor->ndim == 1 && is_type(tensor, DL_INT, 32) && tensor->shape[0] == wanted &&
        (fa2py_stride_of(tensor, 0) == 1 || wanted == 1))
        return true;
    return fa2py_refuse(PyExc_ValueError, "%s must be int32 [batch%s], with %d sequences, contiguous", operand->name,
                        more ? " + 1" : "", (int)problem->batch);
}

/* Checks int64 [1], the seed, or [2], seed and offset. */
static bool check_seed(const fa2py_operand *seed)
{
    const dl_tensor *tensor = &seed->view.tensor;
    if ((is_type(tensor, DL_INT, 64) || is_type(tensor, DL_UINT, 64)) && tensor->ndim == 1 &&
        (tensor->shape[0] == 1 || (tensor->shape[0] == 2 && fa2py_stride_of(tensor, 0) == 1)))
        return true;
    return fa2py_refuse(PyExc_ValueError,
                        "dropout_seed must be an int, or int64 [1], the seed, or [2], seed and offset");
}

/* Checks int32 [batch, pages], pages contiguous. */
static bool check_table(const fa2_problem *problem, const fa2py_operand *table)
{
    const dl_tensor *tensor = &table->view.tensor;
    if (tensor->ndim != 2 || !is_type(tensor, DL_INT, 32) || tensor->shape[0] != problem->batch ||
        (tensor->shape[1] > 1 && fa2py_stride_of(tensor, 1) != 1))
        return fa2py_refuse(
            PyExc_ValueError,
            "block_table must be int32 [batch, pages], with %d sequences, contiguous in the last dimension",
            (int)problem->batch);
    const int64_t keys = tensor->shape[1] * problem->page;
    if (keys >= problem->seq_k)
        return true;
    return fa2py_refuse(PyExc_ValueError,
                        "block_table has %lld pages of %d keys for a sequence, and max_seqlen_k is %d",
                        (long long)tensor->shape[1], (int)problem->page, (int)problem->seq_k);
}

/* Checks the scales of the rows of k or v: float32, or float16 as k_scale, of its shape without the columns. A size may
 * be 1 instead. */
static bool check_scales(const fa2_problem *problem, const fa2py_operand *rows, const fa2py_operand *scales)
{
    const bool is_half = problem->kv_scales == FA2_SCALES_FP16;
    const char *type = is_half ? "float16" : "float32";
    const dl_tensor *tensor = &scales->view.tensor;
    const int rank = rows->view.tensor.ndim - 1, lead = FA2PY_RANK - 1 - rank;
    bool fits = is_type(tensor, DL_FLOAT, is_half ? 16 : 32) && tensor->ndim == rank;
    for (int i = 0; fits && i < rank; i++)
        fits = tensor->shape[i] == 1 || tensor->shape[i] == rows->shape[lead + i];
    if (!fits && rank == 2)
        PyErr_Format(PyExc_ValueError, "%s must be %s [%lld or 1, %lld or 1], as %s without its columns", scales->name,
                     type, (long long)rows->shape[1], (long long)rows->shape[2], rows->name);
    else if (!fits)
        PyErr_Format(PyExc_ValueError, "%s must be %s [%lld or 1, %lld or 1, %lld or 1], as %s without its columns",
                     scales->name, type, (long long)rows->shape[0], (long long)rows->shape[1],
                     (long long)rows->shape[2], rows->name);
    return fits;
}

/* Returns the type of a bias, FA2_BIAS_NONE for a type that fa2 does not know. */
static fa2_bias bias_type(const fa2py_operand *bias)
{
    const dl_tensor *tensor = &bias->view.tensor;
    if (bias->object == NULL)
        return FA2_BIAS_NONE;
    if (is_type(tensor, DL_BOOL, 8))
        return FA2_BIAS_BOOL;
    if (is_type(tensor, DL_FLOAT, 16))
        return FA2_BIAS_FP16;
    if (is_type(tensor, DL_BFLOAT, 16))
        return FA2_BIAS_BF16;
    return is_type(tensor, DL_FLOAT, 32) ? FA2_BIAS_FP32 : FA2_BIAS_NONE;
}

/* Checks [batch or 1, heads or 1, seq_q or 1, seq_k]. */
static bool check_bias(const fa2_problem *problem, const fa2py_operand *bias)
{
    const dl_tensor *tensor = &bias->view.tensor;
    const int64_t most[] = {problem->batch, problem->heads_q, problem->seq_q, problem->seq_k};
    bool fits = bias_type(bias) != FA2_BIAS_NONE && tensor->ndim == 4;
    for (int i = 0; fits && i < 4; i++)
        fits = tensor->shape[i] == most[i] || (tensor->shape[i] == 1 && i < 3);
    if (!fits)
        PyErr_Format(PyExc_ValueError,
                     "bias must be float16, bfloat16, float32 or bool, [batch or 1, heads or 1, seq_q or 1, "
                     "seq_k], here [%d, %d, %d, %d]",
                     (int)most[0], (int)most[1], (int)most[2], (int)most[3]);
    return fits;
}

/* Checks new keys of packed sequences: [total_q, heads_kv, head_dim], packed as q. */
static bool check_new_packed(const fa2_problem *problem, const fa2py_operand *operand, int64_t rows, int64_t heads,
                             int32_t columns)
{
    if (rows == problem->total_q && heads == problem->heads_kv && operand->shape[3] == columns)
        return true;
    return fa2py_refuse(PyExc_ValueError, "%s must be packed as q is, with %d rows, %d heads and head_dim %d",
                        operand->name, (int)problem->total_q, (int)problem->heads_kv, (int)columns);
}

/* Checks new keys or values, [batch, seq, heads_kv, columns]: the cache's shape except for the length. */
static bool check_new(const fa2py_call *call, const fa2_problem *problem, const fa2py_operand *k_new,
                      const fa2py_operand *operand)
{
    const int seq = call->heads_first ? 2 : 1, head = 3 - seq;
    const bool is_v = operand != k_new && problem->head_dim_v != 0;
    const int32_t columns = is_v ? problem->head_dim_v : problem->head_dim;
    const int64_t *shape = operand->shape;
    if (operand != k_new && problem->v_in_k && !fa2py_begin_alike(call, k_new, operand))
        return fa2py_refuse(PyExc_ValueError,
                            "v is the first columns of k; v_new must be those of k_new, as a view of it");
    if (problem->varlen)
        return check_new_packed(problem, operand, shape[seq], shape[head], columns);
    if (shape[0] == problem->batch && shape[seq] == k_new->shape[seq] && shape[head] == problem->heads_kv &&
        shape[3] == columns)
        return true;
    return fa2py_refuse(
        PyExc_ValueError,
        "%s must be [batch, seq, heads, head_dim]%s with %d sequences of %lld keys, %d heads and head_dim %d",
        operand->name, call->heads_first ? ", heads before seq," : "", (int)problem->batch,
        (long long)k_new->shape[seq], (int)problem->heads_kv, (int)columns);
}

/* Checks [positions, rotary_dim / 2] of q's type, contiguous. cos and sin have the same shape. */
static bool check_angles(const fa2py_operand *q, const fa2py_operand *cos, const fa2py_operand *operand)
{
    const dl_tensor *tensor = &operand->view.tensor, *like = &q->view.tensor;
    if (tensor->ndim == 2 && is_type(tensor, like->dtype.code, like->dtype.bits) &&
        tensor->shape[0] == cos->view.tensor.shape[0] && tensor->shape[0] <= INT32_MAX &&
        tensor->shape[1] == cos->view.tensor.shape[1] && (tensor->shape[1] == 1 || fa2py_stride_of(tensor, 1) == 1) &&
        (tensor->shape[0] == 1 || fa2py_stride_of(tensor, 0) == tensor->shape[1]))
        return true;
    return fa2py_refuse(
        PyExc_ValueError,
        "%s must be [positions, rotary_dim / 2], of q's type, contiguous; rotary_cos and rotary_sin alike",
        operand->name);
}

static bool is_scale(int feature)
{
    return feature == FA2I_OPERAND_k_scale || feature == FA2I_OPERAND_v_scale;
}

static bool is_new(int feature)
{
    return feature == FA2I_OPERAND_new_k || feature == FA2I_OPERAND_new_v;
}

bool fa2py_features_open(const fa2py_call *call, const fa2py_operand *q, void *stream, fa2py_features *features)
{
    const char *const *names = fa2py_setting_words + FA2PY_SET_FEATURES;
    for (int i = 0; i < FA2PY_FEATURES; i++) {
        PyObject *given = call->features[i];
        fa2py_operand *operand = &features->of[i];
        if (given != NULL && !(is_new(i) ? fa2py_open(call, q, names[i], given, stream, operand)
                                         : fa2py_open_any(q, names[i], given, stream, operand)))
            return false;
    }
    return true;
}

void fa2py_features_ask(const fa2py_call *call, const fa2py_features *features, fa2_problem *problem)
{
    for (int i = 0; i < FA2PY_FEATURES; i++)
        if (call->features[i] != NULL)
            fa2i_field_set(problem, fa2i_operands[i].field, 1);
    problem->bias = bias_type(&features->of[FA2I_OPERAND_bias]);
    problem->dropout = call->dropout_p > 0;
    fa2i_factors_ask(&call->factors, problem);
    fa2py_permit(problem, call->op == FA2_OP_FORWARD ? call->permissions : NULL);
    problem->partial = (int32_t)call->partial;
    problem->carry = call->carried != NULL;
    if (problem->kv && is_type(&features->of[FA2I_OPERAND_k_scale].view.tensor, DL_FLOAT, 16))
        problem->kv_scales = FA2_SCALES_FP16;
    if (call->features[FA2I_OPERAND_rotary_cos] != NULL) {
        const dl_tensor *cos = &features->of[FA2I_OPERAND_rotary_cos].view.tensor;
        problem->rotary = call->rotary_interleaved ? FA2_ROTARY_INTERLEAVED : FA2_ROTARY_HALVES;
        if (cos->ndim == 2)
            problem->rotary_dim = cos->shape[1] <= INT32_MAX / 2 ? (int32_t)(2 * cos->shape[1]) : INT32_MAX;
    }
}

/* operands: q, k and v. */
static bool check_tensor(const fa2py_call *call, const fa2py_operand *operands, const fa2py_operand *of,
                         const fa2_problem *problem, int id)
{
    switch (id) {
    case FA2I_OPERAND_k_scale:
        return check_scales(problem, &operands[1], &of[id]);
    case FA2I_OPERAND_v_scale:
        return check_scales(problem, &operands[2], &of[id]);
    case FA2I_OPERAND_bias:
        return check_bias(problem, &of[id]);
    case FA2I_OPERAND_seed_at:
        return check_seed(&of[id]);
    case FA2I_OPERAND_block_table:
        return check_table(problem, &of[id]);
    case FA2I_OPERAND_new_k:
    case FA2I_OPERAND_new_v:
        return check_new(call, problem, &of[FA2I_OPERAND_new_k], &of[id]);
    case FA2I_OPERAND_rotary_cos:
    case FA2I_OPERAND_rotary_sin:
        return check_angles(operands, &of[FA2I_OPERAND_rotary_cos], &of[id]);
    default:
        break;
    }
    const fa2i_operand_line *line = &fa2i_operands[id];
    return line->elem == FA2I_ELEM_FP32 ? check_per_head(problem, line->rank > 1, &of[id])
                                        : check_per_sequence(problem, line->shape[0] == FA2I_DIM_B1, &of[id]);
}

bool fa2py_features_check(const fa2py_call *call, const fa2py_operand operands[3], const fa2py_features *features,
                          const fa2_problem *problem)
{
    if (problem->append && (!fa2py_check_writable(&operands[1]) || !fa2py_check_writable(&operands[2])))
        return false;
    for (int i = 0; i < FA2PY_FEATURES; i++)
        if (features->of[i].object != NULL && fa2i_operand_is_written(problem, i) &&
            !fa2py_check_writable(&features->of[i]))
            return false;
    for (int i = 0; i < FA2PY_FEATURES; i++)
        if (features->of[i].object != NULL && !check_tensor(call, operands, features->of, problem, i))
            return false;
    return true;
}

void fa2py_features_done(fa2py_features *features)
{
    fa2py_operands_done(features->of, FA2PY_FEATURES);
}

/* ---- to the library's arguments ---- */

/* Finds the strides of batches, rows and heads of scales, which have k's order. A size of 1 shares scales. */
static void scale_strides(const fa2py_call *call, const dl_tensor *scales, int64_t strides[3])
{
    const int batched = scales->ndim - 2, row = batched + (call->heads_first ? 1 : 0);
    strides[0] = batched ? fa2py_stride_of(scales, 0) : 0;
    strides[1] = fa2py_stride_of(scales, row);
    strides[2] = fa2py_stride_of(scales, 2 * batched + 1 - row);
}

void fa2py_feature_put(const fa2py_call *call, int id, const fa2py_operand *operand, void *args)
{
    const dl_tensor *tensor = &operand->view.tensor;
    const fa2i_operand_line *line = &fa2i_operands[id];
    int64_t strides[FA2I_OPERAND_RANK] = {0};
    if (operand->object == NULL)
        return;
    if (is_new(id)) {
        const fa2_tensor rows = fa2py_tensor_of(call, operand);
        fa2i_operand_put(call->op, args, id, rows.data, &rows.stride_batch);
        return;
    }
    if (is_scale(id)) {
        scale_strides(call, tensor, strides);
        fa2i_operand_put(call->op, args, id, data_of(operand), strides);
        return;
    }
    for (int i = 0; i < line->strides && tensor->ndim == line->rank; i++) /* else all batches share it */
        strides[i] = fa2py_stride_of(tensor, i);
    fa2i_operand_put(call->op, args, id, data_of(operand), strides);
}

static void put_dropout(const fa2py_call *call, const fa2py_operand *seed, fa2_dropout *dropout,
                        fa2_dropout_origin *origin)
{
    const uint64_t *at = data_of(seed);
    dropout->p = call->dropout_p;
    dropout->seed = call->seed;
    dropout->offset_at = at != NULL && seed->view.tensor.shape[0] == 2 ? at + 1 : NULL;
    *origin = call->origin;
}

void fa2py_features_put(const fa2py_call *call, const fa2py_operand *k, const fa2py_features *features, void *args)
{
    const fa2py_operand *of = features->of;
    fa2_forward_args *forward = args;
    fa2i_factors_put(call->op, args, &call->factors);
    for (int i = 0; i < FA2PY_FEATURES; i++)
        fa2py_feature_put(call, i, &of[i], args);
    if (call->op == FA2_OP_BACKWARD) {
        fa2_backward_args *backward = args;
        put_dropout(call, &of[FA2I_OPERAND_seed_at], &backward->dropout, &backward->dropout_origin);
        backward->distance_shift = call->distance_shift;
        return;
    }
    put_dropout(call, &of[FA2I_OPERAND_seed_at], &forward->dropout, &forward->dropout_origin);
    forward->distance_shift = call->distance_shift;
    forward->page_count = (int32_t)k->shape[0];
    forward->cache_row_count = (int32_t)k->shape[0];
    if (of[FA2I_OPERAND_new_k].object != NULL)
        forward->append.seq = (int32_t)of[FA2I_OPERAND_new_k].shape[call->heads_first ? 2 : 1];
    if (of[FA2I_OPERAND_rotary_cos].object != NULL)
        forward->rotary.rows = (int32_t)of[FA2I_OPERAND_rotary_cos].view.tensor.shape[0];
}

/* ---- dropout's mask ---- */

PyObject *fa2py_dropout_mask(PyObject *module, PyObject *args)
{
    PyObject *fields = NULL, *seed = NULL, *offset = NULL, *mask = NULL;
    fa2_problem problem;
    fa2_dropout dropout = {.p = 0};
    fa2_status st = FA2_OK;
    (void)module;
    if (!PyArg_ParseTuple(args, "OfO!|O!:dropout_mask", &fields, &dropout.p, &PyLong_Type, &seed, &PyLong_Type,
                          &offset) ||
        !fa2py_problem_parse(fields, &problem) || !fa2py_parse_seed(seed, "dropout_seed", &dropout.seed) ||
        (offset != NULL && !fa2py_parse_seed(offset, "offset", &dropout.offset)))
        return NULL;
    const int64_t rows = (int64_t)problem.batch * problem.heads_q * problem.seq_q;
    if (rows > PY_SSIZE_T_MAX / problem.seq_k)
        return PyErr_NoMemory();
    const Py_ssize_t count = (Py_ssize_t)(rows * problem.seq_k);
    if ((mask = PyByteArray_FromStringAndSize(NULL, count)) == NULL)
        return NULL;
    uint8_t *kept = (uint8_t *)PyByteArray_AsString(mask);
    Py_BEGIN_ALLOW_THREADS st = fa2_dropout_mask(&problem, &dropout, kept);
    Py_END_ALLOW_THREADS if (st != FA2_OK)
    {
        fa2py_raise(st);
        Py_CLEAR(mask);
    }
    return mask;
}
