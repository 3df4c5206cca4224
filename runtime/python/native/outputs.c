/*
 * The tensors that a call writes: checked if the caller gives them, else created by the inputs' library.
 */
#include "native.h"

enum { RANK = FA2PY_RANK, DIM = FA2PY_DIM };

/* Opens a float32 tensor to write. */
static bool open_partial(const fa2py_call *call, const fa2py_operand *q, const fa2py_operand *like, const char *name,
                         const char *argument, PyObject *given, void *stream, fa2py_operand *operand)
{
    const dl_tensor *view = &like->view.tensor;
    PyObject *object = given;
    if (object != NULL)
        Py_INCREF(object);
    else if ((object = fa2py_empty(like->framework, like->object, view, (dl_dtype){DL_FLOAT, 32, 1}, view->ndim,
                                   like->shape + RANK - view->ndim, argument)) == NULL)
        return false;
    const bool ok = fa2py_open_fp32(call, q, name, object, stream, operand) && fa2py_check_shape(operand, like);
    Py_DECREF(object);
    return ok && fa2py_check_writable(operand);
}

bool fa2py_open_output(const fa2py_call *call, const fa2py_operand *q, const fa2py_operand *like, const char *name,
                       const char *argument, PyObject *given, void *stream, fa2py_operand *operand)
{
    PyObject *object = given;
    if (call->partial != FA2_PARTIAL_NONE)
        return open_partial(call, q, like, name, argument, given, stream, operand);
    if (object != NULL)
        Py_INCREF(object);
    else if ((object = fa2py_empty_like(like->framework, like->object, &like->view.tensor, argument)) == NULL)
        return false;
    const bool ok = fa2py_open(call, q, name, object, stream, operand) && fa2py_check_shape(operand, like);
    Py_DECREF(object);
    return ok && fa2py_check_writable(operand);
}

fa2py_operand fa2py_like_out(const fa2py_operand *q, const fa2py_operand *v)
{
    fa2py_operand like = *q;
    like.shape[DIM] = v->shape[DIM];
    return like;
}

bool fa2py_open_out(const fa2py_call *call, const fa2py_operand *q, const fa2py_operand *v, PyObject *given,
                    void *stream, fa2py_operand *operand)
{
    const dl_tensor *view = &q->view.tensor;
    const fa2py_operand like = fa2py_like_out(q, v);
    if (given != NULL || v->shape[DIM] == q->shape[DIM] || call->partial != FA2_PARTIAL_NONE)
        return fa2py_open_output(call, q, &like, "out", "out=", given, stream, operand);
    PyObject *made =
        fa2py_empty(q->framework, q->object, view, view->dtype, view->ndim, like.shape + RANK - view->ndim, "out=");
    const bool ok = made != NULL && fa2py_open_output(call, q, &like, "out", "out=", made, stream, operand);
    Py_XDECREF(made);
    return ok;
}

/* Stores the shape of the LSE: [batch, heads, seq], or [heads, rows] of packed sequences. Returns its rank. */
static int lse_shape(const fa2py_call *call, const fa2py_operand *q, int64_t shape[3])
{
    const int seq = call->heads_first ? 2 : 1;
    int rank = 0;
    if (call->features[FA2I_OPERAND_cu_seqlens_q] == NULL)
        shape[rank++] = q->shape[0];
    shape[rank++] = q->shape[3 - seq];
    shape[rank++] = q->shape[seq];
    return rank;
}

static bool check_lse(const fa2py_operand *lse, int rank, const int64_t *wanted)
{
    const dl_tensor *tensor = &lse->view.tensor;
    int64_t row_major = 1; /* 0 if there are no elements; then all strides are fine */
    bool fits =
        tensor->ndim == rank && tensor->dtype.code == DL_FLOAT && tensor->dtype.bits == 32 && tensor->dtype.lanes == 1;
    for (int i = rank - 1; fits && i >= 0; i--) {
        fits = tensor->shape[i] == wanted[i] &&
               (wanted[i] <= 1 || row_major == 0 || tensor->strides == NULL || tensor->strides[i] == row_major);
        row_major *= wanted[i];
    }
    if (!fits && rank == 3)
        PyErr_Format(PyExc_ValueError, "lse must be [%d, %d, %d] float32, contiguous, as forward gives it",
                     (int)wanted[0], (int)wanted[1], (int)wanted[2]);
    else if (!fits)
        PyErr_Format(PyExc_ValueError, "lse must be [%d, %d] float32, contiguous, as forward gives it", (int)wanted[0],
                     (int)wanted[1]);
    return fits;
}

bool fa2py_open_lse(const fa2py_call *call, const fa2py_operand *q, PyObject *given, void *stream,
                    fa2py_operand *operand)
{
    int64_t shape[3];
    const int rank = lse_shape(call, q, shape);
    if (given != NULL)
        return fa2py_open_any(q, "lse", given, stream, operand) && check_lse(operand, rank, shape);
    PyObject *made = fa2py_empty(q->framework, q->object, &q->view.tensor, (dl_dtype){DL_FLOAT, 32, 1}, rank, shape,
                                 "return_lse=False, or tensors of a library that fa2 knows, or out=");
    const bool ok = made != NULL && fa2py_open_any(q, "lse", made, stream, operand);
    Py_XDECREF(made);
    return ok;
}
