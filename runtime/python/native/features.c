/*
 * The tensors of features, which a call takes beside q, k and v. They are checked here, because the library takes them
 * as addresses.
 */
#include "native.h"

/* Returns the elements between entries of a dimension, 0 if it has only one entry. */
static int64_t stride_of(const dl_tensor *tensor, int dimension)
{
    int64_t row_major = 1;
    for (int i = tensor->ndim - 1; i > dimension; i--)
        row_major *= tensor->shape[i];
    if (tensor->shape[dimension] == 1)
        return 0;
    return tensor->strides != NULL ? tensor->strides[dimension] : row_major;
}

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
static bool check_per_head(const fa2_problem *problem, bool with_batch,
                           const fa2py_operand *operand)
{
    const dl_tensor *tensor = &operand->view.tensor;
    const int last = tensor->ndim - 1;
    if (operand->object == NULL)
        return true;
    bool fits = (tensor->ndim == 1 || (with_batch && tensor->ndim == 2)) &&
                is_type(tensor, DL_FLOAT, 32) && tensor->shape[last] == problem->heads_q &&
                (stride_of(tensor, last) == 1 || problem->heads_q == 1);
    if (fits && tensor->ndim == 2)
        fits = tensor->shape[0] == problem->batch;
    if (!fits)
        PyErr_Format(PyExc_ValueError, "%s must be float32 [heads]%s, with %d heads, contiguous",
                     operand->name, with_batch ? " or [batch, heads]" : "", (int)problem->heads_q);
    return fits;
}

/* Checks int32 [batch + more], contiguous. more: 1 for cu_seqlens, else 0. */
static bool check_per_sequence(const fa2_problem *problem, int more, const fa2py_operand *operand)
{
    const dl_tensor *tensor = &operand->view.tensor;
    const int32_t wanted = problem->batch + more;
    if (operand->object == NULL ||
        (tensor->ndim == 1 && is_type(tensor, DL_INT, 32) && tensor->shape[0] == wanted &&
         (stride_of(tensor, 0) == 1 || wanted == 1)))
        return true;
    PyErr_Format(PyExc_ValueError, "%s must be int32 [batch%s], with %d sequences, contiguous",
                 operand->name, more ? " + 1" : "", (int)problem->batch);
    return false;
}

/* Checks int64 [1], the seed, or [2], seed and offset. */
static bool check_seed(const fa2py_operand *seed)
{
    const dl_tensor *tensor = &seed->view.tensor;
    if (seed->object == NULL ||
        ((is_type(tensor, DL_INT, 64) || is_type(tensor, DL_UINT, 64)) && tensor->ndim == 1 &&
         (tensor->shape[0] == 1 || (tensor->shape[0] == 2 && stride_of(tensor, 0) == 1))))
        return true;
    PyErr_SetString(PyExc_ValueError,
                    "dropout_seed must be an int, or int64 [1], the seed, or [2], seed and offset");
    return false;
}

/* Checks int32 [batch, pages], pages contiguous. */
static bool check_table(const fa2_problem *problem, const fa2py_operand *table)
{
    const dl_tensor *tensor = &table->view.tensor;
    if (table->object == NULL)
        return true;
    if (tensor->ndim != 2 || !is_type(tensor, DL_INT, 32) || tensor->shape[0] != problem->batch ||
        (tensor->shape[1] > 1 && stride_of(tensor, 1) != 1)) {
        PyErr_Format(PyExc_ValueError,
                     "block_table must be int32 [batch, pages], with %d sequences, contiguous "
                     "in the last dimension",
                     (int)problem->batch);
        return false;
    }
    const int64_t keys = tensor->shape[1] * problem->page;
    if (keys >= problem->seq_k)
        return true;
    PyErr_Format(PyExc_ValueError,
                 "block_table has %lld pages of %d keys for a sequence, and max_seqlen_k is %d",
                 (long long)tensor->shape[1], (int)problem->page, (int)problem->seq_k);
    return false;
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
    if (bias->object == NULL)
        return true;
    bool fits = bias_type(bias) != FA2_BIAS_NONE && tensor->ndim == 4;
    for (int i = 0; fits && i < 4; i++)
        fits = tensor->shape[i] == most[i] || (tensor->shape[i] == 1 && i < 3);
    if (!fits)
        PyErr_Format(
            PyExc_ValueError,
            "bias must be float16, bfloat16, float32 or bool, [batch or 1, heads or 1, seq_q or 1, "
            "seq_k], here [%d, %d, %d, %d]",
            (int)most[0], (int)most[1], (int)most[2], (int)most[3]);
    return fits;
}

/* Checks new keys of packed sequences: [total_q, heads_kv, head_dim], packed as q. */
static bool check_new_packed(const fa2_problem *problem, const fa2py_operand *operand, int64_t rows,
                             int64_t heads, int32_t columns)
{
    if (rows == problem->total_q && heads == problem->heads_kv && operand->shape[3] == columns)
        return true;
    PyErr_Format(PyExc_ValueError,
                 "%s must be packed as q is, with %d rows, %d heads and head_dim %d", operand->name,
                 (int)problem->total_q, (int)problem->heads_kv, (int)columns);
    return false;
}

/* Checks new keys or values, [batch, seq, heads_kv, columns]: the cache's shape except for the length. */
static bool check_new(const fa2py_call *call, const fa2_problem *problem,
                      const fa2py_operand *k_new, const fa2py_operand *operand)
{
    const int seq = call->heads_first ? 2 : 1, head = 3 - seq;
    const bool is_v = operand != k_new && problem->head_dim_v != 0;
    const int32_t columns = is_v ? problem->head_dim_v : problem->head_dim;
    const int64_t *shape = operand->shape;
    if (operand->object == NULL)
        return true;
    if (operand != k_new && problem->v_in_k && !fa2py_begin_alike(call, k_new, operand)) {
        PyErr_SetString(
            PyExc_ValueError,
            "v is the first columns of k; v_new must be those of k_new, as a view of it");
        return false;
    }
    if (problem->varlen)
        return check_new_packed(problem, operand, shape[seq], shape[head], columns);
    if (shape[0] == problem->batch && shape[seq] == k_new->shape[seq] &&
        shape[head] == problem->heads_kv && shape[3] == columns)
        return true;
    PyErr_Format(
        PyExc_ValueError,
        "%s must be [batch, seq, heads, head_dim]%s with %d sequences of %lld keys, %d heads and "
        "head_dim %d",
        operand->name, call->heads_first ? ", heads before seq," : "", (int)problem->batch,
        (long long)k_new->shape[seq], (int)problem->heads_kv, (int)columns);
    return false;
}

/* Checks [positions, rotary_dim / 2] of q's type, contiguous. cos and sin have the same shape. */
static bool check_angles(const fa2py_operand *q, const fa2py_operand *cos,
                         const fa2py_operand *operand)
{
    const dl_tensor *tensor = &operand->view.tensor, *like = &q->view.tensor;
    if (operand->object == NULL ||
        (tensor->ndim == 2 && is_type(tensor, like->dtype.code, like->dtype.bits) &&
         tensor->shape[0] == cos->view.tensor.shape[0] && tensor->shape[0] <= INT32_MAX &&
         tensor->shape[1] == cos->view.tensor.shape[1] &&
         (tensor->shape[1] == 1 || stride_of(tensor, 1) == 1) &&
         (tensor->shape[0] == 1 || stride_of(tensor, 0) == tensor->shape[1])))
        return true;
    PyErr_Format(PyExc_ValueError,
                 "%s must be [positions, rotary_dim / 2], of q's type, contiguous; rotary_cos and "
                 "rotary_sin alike",
                 operand->name);
    return false;
}

static bool is_new(int feature)
{
    return feature == FA2PY_K_NEW || feature == FA2PY_V_NEW;
}

bool fa2py_features_open(const fa2py_call *call, const fa2py_operand *q, void *stream,
                         fa2py_features *features)
{
    static const char *const names[FA2PY_FEATURES] = {FA2PY_FEATURE_WORDS};
    for (int i = 0; i < FA2PY_FEATURES; i++) {
        PyObject *given = call->features[i];
        fa2py_operand *operand = &features->of[i];
        if (given != NULL && !(is_new(i) ? fa2py_open(call, q, names[i], given, stream, operand)
                                         : fa2py_open_any(q, names[i], given, stream, operand)))
            return false;
    }
    return true;
}

void fa2py_features_ask(const fa2py_call *call, const fa2py_features *features,
                        fa2_problem *problem)
{
    problem->alibi = call->features[FA2PY_ALIBI_SLOPES] != NULL;
    problem->sinks = call->features[FA2PY_SINKS] != NULL;
    problem->seqused = call->features[FA2PY_SEQUSED_K] != NULL;
    problem->bias = bias_type(&features->of[FA2PY_BIAS]);
    problem->dropout = call->dropout_p > 0;
    problem->varlen = call->features[FA2PY_CU_SEQLENS_Q] != NULL;
    problem->paged = call->features[FA2PY_BLOCK_TABLE] != NULL;
    problem->leftpad = call->features[FA2PY_LEFTPAD] != NULL;
    problem->cache_rows = call->features[FA2PY_CACHE_ROWS] != NULL;
    problem->append = call->features[FA2PY_K_NEW] != NULL;
    if (call->features[FA2PY_ROTARY_COS] != NULL) {
        const dl_tensor *cos = &features->of[FA2PY_ROTARY_COS].view.tensor;
        problem->rotary = call->rotary_interleaved ? FA2_ROTARY_INTERLEAVED : FA2_ROTARY_HALVES;
        if (cos->ndim == 2)
            problem->rotary_dim =
                cos->shape[1] <= INT32_MAX / 2 ? (int32_t)(2 * cos->shape[1]) : INT32_MAX;
    }
}

bool fa2py_features_check(const fa2py_call *call, const fa2py_operand operands[3],
                          const fa2py_features *features, const fa2_problem *problem)
{
    const fa2py_operand *of = features->of, *q = operands;
    if (problem->append &&
        (!fa2py_check_writable(&operands[1]) || !fa2py_check_writable(&operands[2])))
        return false;
    return check_new(call, problem, &of[FA2PY_K_NEW], &of[FA2PY_K_NEW]) &&
           check_new(call, problem, &of[FA2PY_K_NEW], &of[FA2PY_V_NEW]) &&
           check_angles(q, &of[FA2PY_ROTARY_COS], &of[FA2PY_ROTARY_COS]) &&
           check_angles(q, &of[FA2PY_ROTARY_COS], &of[FA2PY_ROTARY_SIN]) &&
           check_per_sequence(problem, 1, &of[FA2PY_CU_SEQLENS_Q]) &&
           check_per_sequence(problem, 1, &of[FA2PY_CU_SEQLENS_K]) &&
           check_per_head(problem, true, &of[FA2PY_ALIBI_SLOPES]) &&
           check_per_head(problem, false, &of[FA2PY_SINKS]) &&
           check_per_sequence(problem, 0, &of[FA2PY_SEQUSED_K]) &&
           check_per_sequence(problem, 0, &of[FA2PY_LEFTPAD]) &&
           check_per_sequence(problem, 0, &of[FA2PY_CACHE_ROWS]) &&
           check_bias(problem, &of[FA2PY_BIAS]) && check_seed(&of[FA2PY_DROPOUT_SEED]) &&
           check_table(problem, &of[FA2PY_BLOCK_TABLE]);
}

void fa2py_features_done(fa2py_features *features)
{
    fa2py_operands_done(features->of, FA2PY_FEATURES);
}

/* ---- to the library's arguments ---- */

static fa2_alibi alibi_of(const fa2py_operand *slopes)
{
    const dl_tensor *tensor = &slopes->view.tensor;
    return (fa2_alibi){.slopes = data_of(slopes),
                       .stride_batch =
                           slopes->object != NULL && tensor->ndim == 2 ? stride_of(tensor, 0) : 0};
}

static fa2_bias_tensor bias_of(const fa2py_operand *bias)
{
    const dl_tensor *tensor = &bias->view.tensor;
    if (bias->object == NULL)
        return (fa2_bias_tensor){.data = NULL};
    return (fa2_bias_tensor){data_of(bias), stride_of(tensor, 0), stride_of(tensor, 1),
                             stride_of(tensor, 2), stride_of(tensor, 3)};
}

fa2_bias_gradient fa2py_bias_gradient_of(const fa2py_operand *operand)
{
    const dl_tensor *tensor = &operand->view.tensor;
    if (operand->object == NULL)
        return (fa2_bias_gradient){.data = NULL};
    return (fa2_bias_gradient){data_of(operand), stride_of(tensor, 0), stride_of(tensor, 1),
                               stride_of(tensor, 2), stride_of(tensor, 3)};
}

static fa2_dropout dropout_of(const fa2py_call *call, const fa2py_operand *seed)
{
    const uint64_t *at = data_of(seed);
    const bool has_offset = at != NULL && seed->view.tensor.shape[0] == 2;
    return (fa2_dropout){.p = call->dropout_p,
                         .seed = call->seed,
                         .seed_at = at,
                         .offset_at = has_offset ? at + 1 : NULL};
}

void fa2py_features_forward(const fa2py_call *call, const fa2py_operand *k,
                            const fa2py_features *features, fa2_forward_args *args)
{
    const fa2py_operand *of = features->of;
    args->alibi = alibi_of(&of[FA2PY_ALIBI_SLOPES]);
    args->sinks = data_of(&of[FA2PY_SINKS]);
    args->bias = bias_of(&of[FA2PY_BIAS]);
    args->dropout = dropout_of(call, &of[FA2PY_DROPOUT_SEED]);
    args->seqused_k = data_of(&of[FA2PY_SEQUSED_K]);
    args->cu_seqlens_q = data_of(&of[FA2PY_CU_SEQLENS_Q]);
    args->cu_seqlens_k = data_of(&of[FA2PY_CU_SEQLENS_K]);
    args->block_table = data_of(&of[FA2PY_BLOCK_TABLE]);
    if (args->block_table != NULL) {
        args->block_table_stride = stride_of(&of[FA2PY_BLOCK_TABLE].view.tensor, 0);
        args->page_count = (int32_t)k->shape[0];
    }
    args->leftpad = data_of(&of[FA2PY_LEFTPAD]);
    args->cache_rows = data_of(&of[FA2PY_CACHE_ROWS]);
    args->cache_row_count = (int32_t)k->shape[0];
    if (of[FA2PY_K_NEW].object != NULL)
        args->append = (fa2_append){fa2py_tensor_of(call, &of[FA2PY_K_NEW]),
                                    fa2py_tensor_of(call, &of[FA2PY_V_NEW]),
                                    (int32_t)of[FA2PY_K_NEW].shape[call->heads_first ? 2 : 1]};
    if (of[FA2PY_ROTARY_COS].object != NULL)
        args->rotary =
            (fa2_rotary_tables){data_of(&of[FA2PY_ROTARY_COS]), data_of(&of[FA2PY_ROTARY_SIN]),
                                (int32_t)of[FA2PY_ROTARY_COS].view.tensor.shape[0]};
}

void fa2py_features_backward(const fa2py_call *call, const fa2py_features *features,
                             fa2_backward_args *args)
{
    const fa2py_operand *of = features->of;
    args->alibi = alibi_of(&of[FA2PY_ALIBI_SLOPES]);
    args->bias = bias_of(&of[FA2PY_BIAS]);
    args->sinks = data_of(&of[FA2PY_SINKS]);
    args->dropout = dropout_of(call, &of[FA2PY_DROPOUT_SEED]);
    args->cu_seqlens_q = data_of(&of[FA2PY_CU_SEQLENS_Q]);
    args->cu_seqlens_k = data_of(&of[FA2PY_CU_SEQLENS_K]);
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
