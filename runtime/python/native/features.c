/*
 * The tensors that features take beside q, k and v: looked at here, since the library takes them as
 * addresses.
 */
#include "native.h"

/* Elements between entries of a dimension; 0 where there is one entry only. */
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

/* float32 [heads], or if there may be a batch [batch, heads], heads contiguous. */
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

/* int32 [batch], contiguous. */
static bool check_per_sequence(const fa2_problem *problem, const fa2py_operand *operand)
{
    const dl_tensor *tensor = &operand->view.tensor;
    if (operand->object == NULL ||
        (tensor->ndim == 1 && is_type(tensor, DL_INT, 32) && tensor->shape[0] == problem->batch &&
         (stride_of(tensor, 0) == 1 || problem->batch == 1)))
        return true;
    PyErr_Format(PyExc_ValueError, "%s must be int32 [batch], with %d sequences, contiguous",
                 operand->name, (int)problem->batch);
    return false;
}

/* What is added to scores, by its type; FA2_BIAS_NONE for one that fa2 knows not. */
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

/* [batch or 1, heads or 1, seq_q or 1, seq_k]. */
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

static bool open_one(const fa2py_operand *q, const char *name, PyObject *object, void *stream,
                     fa2py_operand *operand)
{
    return object == NULL || fa2py_open_any(q, name, object, stream, operand);
}

bool fa2py_features_open(const fa2py_call *call, const fa2py_operand *q, void *stream,
                         fa2py_features *features)
{
    return open_one(q, "alibi_slopes", call->alibi_slopes, stream, &features->alibi_slopes) &&
           open_one(q, "sinks", call->sinks, stream, &features->sinks) &&
           open_one(q, "seqused_k", call->seqused_k, stream, &features->seqused_k) &&
           open_one(q, "bias", call->bias, stream, &features->bias);
}

void fa2py_features_ask(const fa2py_features *features, fa2_problem *problem)
{
    problem->alibi = features->alibi_slopes.object != NULL;
    problem->sinks = features->sinks.object != NULL;
    problem->seqused = features->seqused_k.object != NULL;
    problem->bias = bias_type(&features->bias);
}

bool fa2py_features_check(const fa2py_features *features, const fa2_problem *problem)
{
    return check_per_head(problem, true, &features->alibi_slopes) &&
           check_per_head(problem, false, &features->sinks) &&
           check_per_sequence(problem, &features->seqused_k) &&
           check_bias(problem, &features->bias);
}

void fa2py_features_done(fa2py_features *features)
{
    fa2py_operands_done(&features->alibi_slopes, 1);
    fa2py_operands_done(&features->sinks, 1);
    fa2py_operands_done(&features->seqused_k, 1);
    fa2py_operands_done(&features->bias, 1);
}

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

void fa2py_features_forward(const fa2py_features *features, fa2_forward_args *args)
{
    args->alibi = alibi_of(&features->alibi_slopes);
    args->sinks = data_of(&features->sinks);
    args->seqused_k = data_of(&features->seqused_k);
    args->bias = bias_of(&features->bias);
}

void fa2py_features_backward(const fa2py_features *features, fa2_backward_args *args)
{
    args->alibi = alibi_of(&features->alibi_slopes);
    args->bias = bias_of(&features->bias);
    args->sinks = data_of(&features->sinks);
}
