/*
 * Opens the tensors of a call, and checks each: rank, dtype, device.
 */
#include <string.h>
#include "native.h"

enum { RANK = FA2PY_RANK, DIM = FA2PY_DIM };

void fa2py_operands_done(fa2py_operand *operands, int count)
{
    for (int i = 0; i < count; i++) {
        fa2py_view_done(&operands[i].view);
        Py_CLEAR(operands[i].object);
    }
}

/* ---- checks ---- */

static bool check_device(const char *name, dl_device device)
{
    if (device.type == DL_CUDA)
        return true;
    return fa2py_refuse(PyExc_ValueError,
                        "%s is not on a CUDA device (its DLPack device type is %d%s); fa2 runs there only", name,
                        device.type, device.type == 1 ? ", the CPU" : "");
}

const char *fa2py_dtype_word(dl_dtype dtype)
{
    static const struct {
        dl_dtype dtype;
        const char *word;
    } words[] = {{{DL_FLOAT, 16, 1}, "float16"},
                 {{DL_BFLOAT, 16, 1}, "bfloat16"},
                 {{DL_FLOAT, 32, 1}, "float32"},
                 {{DL_FLOAT, 64, 1}, "float64"},
                 {{DL_INT, 8, 1}, "int8"},
                 {{DL_UINT, 8, 1}, "uint8"},
                 {{DL_FLOAT8_E4M3FN, 8, 1}, "float8_e4m3fn"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (memcmp(&words[i].dtype, &dtype, sizeof dtype) == 0)
            return words[i].word;
    return "of another type";
}

/* Sets shape and strides of a tensor of three or four dimensions. DLPack before 1.2 may leave out the strides; then
 * they are row-major. */
static void set_dimensions(fa2py_operand *operand)
{
    const dl_tensor *tensor = &operand->view.tensor;
    const int lead = RANK - tensor->ndim;
    int64_t row_major = 1;
    operand->shape[0] = 1;
    operand->strides[0] = 0;
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        operand->shape[lead + i] = tensor->shape[i];
        operand->strides[lead + i] = tensor->strides != NULL ? tensor->strides[i] : row_major;
        row_major *= tensor->shape[i];
    }
}

static bool check_place(const char *name, const dl_tensor *tensor, const dl_tensor *q)
{
    if (!check_device(name, tensor->device))
        return false;
    if (tensor->device.id == q->device.id)
        return true;
    return fa2py_refuse(PyExc_ValueError, "%s is on CUDA device %d and q on %d; they must be on one device", name,
                        (int)tensor->device.id, (int)q->device.id);
}

static bool check_rank(const fa2py_call *call, const fa2py_operand *operand, int rank)
{
    static const char *const orders[][2] = {{"[seq, heads, head_dim]", "[heads, seq, head_dim]"},
                                            {"[batch, seq, heads, head_dim]", "[batch, heads, seq, head_dim]"}};
    if (operand->view.tensor.ndim == rank)
        return true;
    return fa2py_refuse(PyExc_ValueError, "%s has %d dimensions; it must have %d: %s%s", operand->name,
                        (int)operand->view.tensor.ndim, rank, orders[rank == RANK][call->heads_first],
                        rank == RANK ? "" : ", as sequences are packed");
}

fa2_kv fa2py_kv_of(const fa2py_operand *rows)
{
    const dl_dtype dtype = rows->view.tensor.dtype;
    const bool is_e4m3 = dtype.code == DL_FLOAT8_E4M3FN || dtype.code == DL_UINT;
    if (dtype.bits != 8 || dtype.lanes != 1 || (!is_e4m3 && dtype.code != DL_INT))
        return FA2_KV_DTYPE;
    return is_e4m3 ? FA2_KV_FP8 : FA2_KV_INT8;
}

/* The rules for the type of a tensor. */
typedef enum elem_kind {
    ELEM_OF_Q,
    ELEM_SCALED,
    ELEM_FP32
} elem_kind; /* q's; 8 bits, whose rows have scales; float32 */

static bool check_type(const fa2py_operand *operand, const dl_tensor *q, elem_kind elem)
{
    const dl_dtype is = operand->view.tensor.dtype, wanted = elem == ELEM_FP32 ? (dl_dtype){DL_FLOAT, 32, 1} : q->dtype;
    const bool is_in_8 = fa2py_kv_of(operand) != FA2_KV_DTYPE;
    if (elem == ELEM_SCALED ? is_in_8 : memcmp(&is, &wanted, sizeof is) == 0)
        return true;
    if (elem == ELEM_SCALED)
        PyErr_Format(PyExc_ValueError, "%s is %s; with k_scale and v_scale it must be int8, float8_e4m3fn or uint8",
                     operand->name, fa2py_dtype_word(is));
    else if (elem == ELEM_FP32)
        PyErr_Format(PyExc_ValueError, "%s is %s; a partial result is float32", operand->name, fa2py_dtype_word(is));
    else
        PyErr_Format(PyExc_ValueError, "%s is %s and q %s; they must be of one type%s", operand->name,
                     fa2py_dtype_word(is), fa2py_dtype_word(wanted),
                     is_in_8 ? ", or k and v of 8 bits with k_scale and v_scale" : "");
    return false;
}

/* Checks a tensor that has its rank. */
static bool check_tensor(const fa2py_operand *operand, const dl_tensor *q, elem_kind elem)
{
    const dl_tensor *tensor = &operand->view.tensor;
    if (!check_place(operand->name, tensor, q) || !check_type(operand, q, elem))
        return false;
    for (int i = 0; i < RANK; i++) {
        if (operand->shape[i] > INT32_MAX)
            return fa2py_refuse(PyExc_ValueError, "%s has %lld elements in dimension %d, which is too many",
                                operand->name, (long long)operand->shape[i], i - (RANK - tensor->ndim));
    }
    if (operand->strides[DIM] != 1 && operand->shape[DIM] != 1)
        return fa2py_refuse(PyExc_ValueError, "the last dimension of %s has stride %lld; it must be 1 (contiguous)",
                            operand->name, (long long)operand->strides[DIM]);
    return true;
}

int64_t fa2py_stride_of(const dl_tensor *tensor, int dimension)
{
    int64_t row_major = 1;
    for (int i = tensor->ndim - 1; i > dimension; i--)
        row_major *= tensor->shape[i];
    if (tensor->shape[dimension] == 1)
        return 0;
    return tensor->strides != NULL ? tensor->strides[dimension] : row_major;
}

bool fa2py_check_same(const char *a_name, int64_t a, const char *b_name, int64_t b, const char *what)
{
    if (a == b)
        return true;
    return fa2py_refuse(PyExc_ValueError, "%s has %s %lld and %s has %lld; they must be equal", a_name, what,
                        (long long)a, b_name, (long long)b);
}

bool fa2py_check_shape(const fa2py_operand *operand, const fa2py_operand *like)
{
    static const char *const dimensions[RANK] = {"in dimension 0", "in dimension 1", "in dimension 2",
                                                 "in dimension 3"};
    for (int i = 0; i < RANK; i++)
        if (!fa2py_check_same(operand->name, operand->shape[i], like->name, like->shape[i], dimensions[i]))
            return false;
    return true;
}

bool fa2py_check_writable(const fa2py_operand *operand)
{
    if (operand->view.read_only)
        PyErr_Format(PyExc_ValueError, "%s is read-only", operand->name);
    return !operand->view.read_only;
}

/* ---- opening ---- */

static bool open_view(fa2py_operand *operand, const char *name, PyObject *object, void *stream)
{
    operand->name = name;
    operand->object = object;
    Py_INCREF(object);
    operand->framework = fa2py_framework_of(object);
    return operand->framework != NULL && fa2py_view_open(operand->framework, object, name, stream, &operand->view);
}

bool fa2py_open_any(const fa2py_operand *q, const char *name, PyObject *object, void *stream, fa2py_operand *operand)
{
    return open_view(operand, name, object, stream) && check_place(name, &operand->view.tensor, &q->view.tensor);
}

static bool is_packed(const fa2py_call *call)
{
    return call->features[FA2I_OPERAND_cu_seqlens_q] != NULL;
}

static bool open_rows(const fa2py_call *call, const char *name, PyObject *object, int rank, void *stream,
                      fa2py_operand *operand)
{
    if (!open_view(operand, name, object, stream) || !check_device(name, operand->view.tensor.device) ||
        !check_rank(call, operand, rank))
        return false;
    set_dimensions(operand);
    return true;
}

bool fa2py_open(const fa2py_call *call, const fa2py_operand *q, const char *name, PyObject *object, void *stream,
                fa2py_operand *operand)
{
    return open_rows(call, name, object, is_packed(call) ? RANK - 1 : RANK, stream, operand) &&
           check_tensor(operand, &q->view.tensor, ELEM_OF_Q);
}

bool fa2py_open_fp32(const fa2py_call *call, const fa2py_operand *q, const char *name, PyObject *object, void *stream,
                     fa2py_operand *operand)
{
    return open_rows(call, name, object, is_packed(call) ? RANK - 1 : RANK, stream, operand) &&
           check_tensor(operand, &q->view.tensor, ELEM_FP32);
}

/* Returns true if the kernel can read the rows in place: they are aligned, and lie one after the other along the
 * sequence. The gradient of a sum over the sequence does not: it is one repeated row. */
static bool is_readable(const fa2py_call *call, const fa2py_operand *operand)
{
    const dl_tensor *tensor = &operand->view.tensor;
    const int seq = call->heads_first ? DIM - 1 : DIM - 2;
    bool readable =
        operand->strides[DIM] == 1 && ((uintptr_t)tensor->data + tensor->byte_offset) % FA2PY_ROW_ALIGN == 0;
    for (int i = 0; i < DIM; i++)
        readable = readable && (operand->shape[i] == 1 || operand->strides[i] % FA2PY_STRIDE_STEP == 0);
    return readable && (operand->shape[seq] == 1 || operand->strides[seq] >= operand->shape[DIM]);
}

bool fa2py_open_copied(const fa2py_call *call, const fa2py_operand *q, const char *name, PyObject *object, void *stream,
                       fa2py_operand *operand)
{
    if (!open_rows(call, name, object, is_packed(call) ? RANK - 1 : RANK, stream, operand))
        return false;
    if (operand->framework->copy != NULL && !is_readable(call, operand)) {
        PyObject *copy = PyObject_CallFunctionObjArgs(operand->framework->copy, object, NULL);
        fa2py_operands_done(operand, 1);
        if (copy == NULL)
            return false;
        const bool ok = fa2py_open(call, q, name, copy, stream, operand);
        Py_DECREF(copy);
        return ok;
    }
    return check_tensor(operand, &q->view.tensor, ELEM_OF_Q);
}

/* ---- all tensors of a call ---- */

bool fa2py_device_of_any(const fa2py_framework *framework, PyObject *object, const char *name, dl_device *ret_device)
{
    fa2py_view view = {0};
    if (framework->exchange == NULL)
        return fa2py_device_of(object, name, ret_device) && check_device(name, *ret_device);
    if (!fa2py_view_open(framework, object, name, NULL, &view))
        return false;
    *ret_device = view.tensor.device;
    fa2py_view_done(&view);
    return check_device(name, *ret_device);
}

bool fa2py_open_first(const char *name, PyObject *object, void *stream, fa2py_operand *operand)
{
    return open_view(operand, name, object, stream) && check_device(name, operand->view.tensor.device);
}

/* Finds the device of q. An exchange table needs no stream, so with one q is opened at once. Without one, q is asked
 * for its device first, because __dlpack__ wants to know the stream. */
static bool find_device(const fa2py_call *call, fa2py_operand *q, dl_device *ret_device)
{
    const fa2py_framework *framework = fa2py_framework_of(call->tensors[0]);
    if (framework == NULL)
        return false;
    if (framework->exchange == NULL)
        return fa2py_device_of(call->tensors[0], "q", ret_device) && check_device("q", *ret_device);
    if (!fa2py_open(call, q, "q", call->tensors[0], NULL, q))
        return false;
    *ret_device = q->view.tensor.device;
    return true;
}

bool fa2py_begin(const fa2py_call *call, fa2py_operand operands[3], fa2py_features *features, void **ret_stream,
                 const fa2py_framework **ret_lender)
{
    static const char *const names[] = {"q", "k", "v"};
    fa2py_operand *q = &operands[0];
    dl_device device;
    void *current = NULL;
    for (int i = 0; i < 3; i++)
        if (fa2py_framework_of(call->tensors[i]) == NULL)
            return false;
    const fa2py_framework *framework = fa2py_framework_of(call->tensors[0]);
    if (!find_device(call, q, &device) || !fa2py_current_stream(framework, device.id, &current))
        return false;
    *ret_stream = call->has_stream ? call->stream : current;
    *ret_lender = *ret_stream == current ? framework : NULL;
    const bool paged = call->features[FA2I_OPERAND_block_table] != NULL;
    const bool scaled = call->features[FA2I_OPERAND_k_scale] != NULL || call->features[FA2I_OPERAND_v_scale] != NULL;
    for (int i = q->object != NULL; i < 3; i++) {
        const int rank = is_packed(call) && !(paged && i > 0) ? RANK - 1 : RANK;
        if (!open_rows(call, names[i], call->tensors[i], rank, *ret_stream, &operands[i]) ||
            !check_tensor(&operands[i], &q->view.tensor, scaled && i > 0 ? ELEM_SCALED : ELEM_OF_Q))
            return false;
    }
    return fa2py_features_open(call, q, *ret_stream, features);
}
