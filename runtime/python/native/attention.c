/*
 * attention(q, k, v, ...): from tensors to a problem, its arguments and a launch.
 *
 * The order matters, so that what is refused leaves nothing behind: look at the tensors, check what
 * fa2.h cannot know (ranks, dtypes, devices, shapes among each other), make the outputs, launch.
 * fa2 itself checks the rest and says it in its own words.
 */
#include <string.h>
#include "native.h"

enum { Q, K, V, OUT, LSE, TENSORS };
enum { RANK = 4, DIM = 3 };

static const char *const tensor_names[TENSORS] = {"q", "k", "v", "out", "lse"};

/* What a call holds while it runs. */
typedef struct operands {
    const fa2py_framework *frameworks[TENSORS];
    fa2py_view views[TENSORS];
    PyObject *out, *lse; /* what we return; strong */
} operands;

static void operands_done(operands *o)
{
    for (int i = 0; i < TENSORS; i++)
        fa2py_view_done(&o->views[i]);
    Py_CLEAR(o->out);
    Py_CLEAR(o->lse);
}

/* ---- checks ---- */

static bool check_device(const char *name, dl_device device)
{
    if (device.type == DL_CUDA)
        return true;
    PyErr_Format(PyExc_ValueError,
                 "%s is not on a CUDA device (its DLPack device type is %d%s); fa2 runs there only",
                 name, device.type, device.type == 1 ? ", the CPU" : "");
    return false;
}

static const char *dtype_word(dl_dtype dtype)
{
    static const struct {
        dl_dtype dtype;
        const char *word;
    } words[] = {{{DL_FLOAT, 16, 1}, "float16"},
                 {{DL_BFLOAT, 16, 1}, "bfloat16"},
                 {{DL_FLOAT, 32, 1}, "float32"},
                 {{DL_FLOAT, 64, 1}, "float64"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (memcmp(&words[i].dtype, &dtype, sizeof dtype) == 0)
            return words[i].word;
    return "of another type";
}

/* The tensor's strides, made up where DLPack before 1.2 leaves them out. */
static void get_strides(const dl_tensor *tensor, int64_t strides[RANK])
{
    int64_t row_major = 1;
    for (int i = RANK - 1; i >= 0; i--) {
        strides[i] = tensor->strides != NULL ? tensor->strides[i] : row_major;
        row_major *= tensor->shape[i];
    }
}

static bool check_tensor(const char *name, const dl_tensor *tensor, const dl_tensor *q,
                         bool heads_first)
{
    int64_t strides[RANK];
    if (!check_device(name, tensor->device))
        return false;
    if (tensor->ndim != RANK) {
        PyErr_Format(
            PyExc_ValueError, "%s has %d dimensions; it must have 4: %s", name, (int)tensor->ndim,
            heads_first ? "[batch, heads, seq, head_dim]" : "[batch, seq, heads, head_dim]");
        return false;
    }
    if (tensor->device.id != q->device.id) {
        PyErr_Format(PyExc_ValueError, "%s is on CUDA device %d and q on %d; they must be on one",
                     name, (int)tensor->device.id, (int)q->device.id);
        return false;
    }
    if (memcmp(&tensor->dtype, &q->dtype, sizeof q->dtype) != 0) {
        PyErr_Format(PyExc_ValueError, "%s is %s and q %s; they must be of one type", name,
                     dtype_word(tensor->dtype), dtype_word(q->dtype));
        return false;
    }
    for (int i = 0; i < RANK; i++) {
        if (tensor->shape[i] > INT32_MAX) {
            PyErr_Format(PyExc_ValueError,
                         "%s has %lld elements in dimension %d, which is too many", name,
                         (long long)tensor->shape[i], i);
            return false;
        }
    }
    get_strides(tensor, strides);
    if (strides[DIM] != 1 && tensor->shape[DIM] != 1) {
        PyErr_Format(PyExc_ValueError,
                     "the last dimension of %s has stride %lld; it must be 1 (contiguous)", name,
                     (long long)strides[DIM]);
        return false;
    }
    return true;
}

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
    PyErr_Format(PyExc_NotImplementedError, "q is %s; fa2 knows float16 and bfloat16",
                 dtype_word(q->dtype));
    return false;
}

static bool check_same(const char *a_name, int64_t a, const char *b_name, int64_t b,
                       const char *what)
{
    if (a == b)
        return true;
    PyErr_Format(PyExc_ValueError, "%s has %s %lld and %s has %lld; they must be equal", a_name,
                 what, (long long)a, b_name, (long long)b);
    return false;
}

static bool check_shape(const char *name, const dl_tensor *tensor, const dl_tensor *like)
{
    static const char *const dimensions[RANK] = {"in dimension 0", "in dimension 1",
                                                 "in dimension 2", "in dimension 3"};
    for (int i = 0; i < RANK; i++)
        if (!check_same(name, tensor->shape[i], "q", like->shape[i], dimensions[i]))
            return false;
    return true;
}

/* ---- a problem and its arguments ---- */

static int seq_axis(const fa2py_call *call)
{
    return call->heads_first ? 2 : 1;
}

/* Strides of dimensions of extent 1 may be anything, and are 0 for the library. */
static fa2_tensor tensor_of(const dl_tensor *tensor, const fa2py_call *call)
{
    int64_t strides[RANK];
    const int seq = seq_axis(call), head = 3 - seq;
    get_strides(tensor, strides);
    for (int i = 0; i < DIM; i++)
        if (tensor->shape[i] == 1)
            strides[i] = 0;
    return (fa2_tensor){(char *)tensor->data + tensor->byte_offset, strides[0], strides[seq],
                        strides[head]};
}

/* A problem of checked tensors. */
static bool make_problem(const fa2py_call *call, const dl_tensor *q, const dl_tensor *k,
                         const dl_tensor *v, fa2_problem *ret_problem)
{
    const int seq = seq_axis(call), head = 3 - seq;
    fa2_problem problem = {.op = FA2_OP_FORWARD};
    if (!check_dtype(q, &problem.dtype) ||
        !check_same("k", k->shape[0], "q", q->shape[0], "batch") ||
        !check_same("v", v->shape[0], "q", q->shape[0], "batch") ||
        !check_same("v", v->shape[seq], "k", k->shape[seq], "seq") ||
        !check_same("v", v->shape[head], "k", k->shape[head], "heads") ||
        !check_same("k", k->shape[DIM], "q", q->shape[DIM], "head_dim"))
        return false;
    if (v->shape[DIM] != q->shape[DIM]) {
        PyErr_Format(PyExc_NotImplementedError,
                     "v has head_dim %lld and q has %lld; fa2 has no kernel for that yet",
                     (long long)v->shape[DIM], (long long)q->shape[DIM]);
        return false;
    }
    problem.batch = (int32_t)q->shape[0];
    problem.heads_q = (int32_t)q->shape[head];
    problem.heads_kv = (int32_t)k->shape[head];
    problem.seq_q = (int32_t)q->shape[seq];
    problem.seq_k = (int32_t)k->shape[seq];
    problem.head_dim = (int32_t)q->shape[DIM];
    problem.causal = call->causal;
    problem.softcap = call->softcap != 0;
    /* A right bound says nothing beside causal, and one way of saying it makes one problem. */
    const int32_t right = call->causal ? -1 : call->window_right;
    if (call->window_left >= 0 || right >= 0) {
        problem.window = 1;
        problem.window_left = call->window_left;
        problem.window_right = right;
    }
    *ret_problem = problem;
    return true;
}

static bool open_input(const fa2py_call *call, int i, void *stream, operands *o)
{
    return fa2py_view_open(o->frameworks[i], call->tensors[i], tensor_names[i], stream,
                           &o->views[i]) &&
           check_tensor(tensor_names[i], &o->views[i].tensor, &o->views[Q].tensor,
                        call->heads_first);
}

/* The device that q is on: by its table, which needs no stream, so that q is opened at once; else by
 * asking, because __dlpack__ wants to know the stream. */
static bool find_device(const fa2py_call *call, operands *o, dl_device *ret_device)
{
    if (o->frameworks[Q]->exchange == NULL)
        return fa2py_device_of(call->tensors[Q], "q", ret_device) && check_device("q", *ret_device);
    if (!open_input(call, Q, NULL, o))
        return false;
    *ret_device = o->views[Q].tensor.device;
    return true;
}

/* Open the inputs, and find the stream that the call goes to. lender: whose current stream that is. */
static bool begin(const fa2py_call *call, operands *o, void **ret_stream,
                  const fa2py_framework **ret_lender)
{
    dl_device device;
    void *current = NULL;
    for (int i = Q; i <= V; i++)
        if ((o->frameworks[i] = fa2py_framework_of(call->tensors[i])) == NULL)
            return false;
    if (!find_device(call, o, &device) ||
        !fa2py_current_stream(o->frameworks[Q], device.id, &current))
        return false;
    *ret_stream = call->has_stream ? call->stream : current;
    *ret_lender = *ret_stream == current ? o->frameworks[Q] : NULL;
    if (o->frameworks[Q]->exchange == NULL && !open_input(call, Q, *ret_stream, o))
        return false;
    return open_input(call, K, *ret_stream, o) && open_input(call, V, *ret_stream, o);
}

/* The output: the caller's, or a new one. */
static bool open_out(const fa2py_call *call, void *stream, operands *o)
{
    const dl_tensor *q = &o->views[Q].tensor;
    fa2py_view *view = &o->views[OUT];
    o->out = call->out;
    if (o->out != NULL)
        Py_INCREF(o->out);
    else if ((o->out = fa2py_empty_like(o->frameworks[Q], call->tensors[Q], q, "out=")) == NULL)
        return false;
    if ((o->frameworks[OUT] = fa2py_framework_of(o->out)) == NULL ||
        !fa2py_view_open(o->frameworks[OUT], o->out, "out", stream, view) ||
        !check_tensor("out", &view->tensor, q, call->heads_first) ||
        !check_shape("out", &view->tensor, q))
        return false;
    if (!view->read_only)
        return true;
    PyErr_SetString(PyExc_ValueError, "out is read-only");
    return false;
}

static bool open_lse(const fa2py_call *call, const fa2_problem *problem, void *stream, operands *o)
{
    const int64_t shape[3] = {problem->batch, problem->heads_q, problem->seq_q};
    o->lse = fa2py_empty(o->frameworks[Q], call->tensors[Q], &o->views[Q].tensor, 3, shape,
                         "return_lse=False, or tensors of a library that fa2 knows, or out=");
    return o->lse != NULL && (o->frameworks[LSE] = fa2py_framework_of(o->lse)) != NULL &&
           fa2py_view_open(o->frameworks[LSE], o->lse, "lse", stream, &o->views[LSE]);
}

static bool launch(const fa2py_call *call, const fa2_problem *problem, void *stream,
                   const fa2py_framework *lender, operands *o)
{
    const int device = o->views[Q].tensor.device.id;
    fa2_forward_args args = {.q = tensor_of(&o->views[Q].tensor, call),
                             .k = tensor_of(&o->views[K].tensor, call),
                             .v = tensor_of(&o->views[V].tensor, call),
                             .o = tensor_of(&o->views[OUT].tensor, call),
                             .softmax_scale = call->scale,
                             .softcap = call->softcap};
    if (o->lse != NULL)
        args.lse =
            (float *)(void *)((char *)o->views[LSE].tensor.data + o->views[LSE].tensor.byte_offset);
    fa2py_context *context = call->context;
    if (context == NULL) {
        context = fa2py_default_context(device);
    } else if (fa2py_context_device(context) != device) {
        PyErr_Format(PyExc_ValueError, "the context is of CUDA device %d and q on %d",
                     fa2py_context_device(context), device);
        return false;
    } else {
        Py_INCREF((PyObject *)context);
    }
    if (context == NULL)
        return false;
    const bool ok =
        fa2py_context_forward(context, problem, &args, stream, lender, call->tensors[Q]);
    Py_DECREF((PyObject *)context);
    return ok;
}

PyObject *fa2py_run(const fa2py_call *call)
{
    operands o = {.out = NULL};
    const fa2py_framework *lender = NULL;
    fa2_problem problem;
    void *stream = NULL;
    PyObject *result = NULL;

    if (begin(call, &o, &stream, &lender) &&
        make_problem(call, &o.views[Q].tensor, &o.views[K].tensor, &o.views[V].tensor, &problem) &&
        open_out(call, stream, &o) && (!call->want_lse || open_lse(call, &problem, stream, &o)) &&
        launch(call, &problem, stream, lender, &o)) {
        result = o.lse != NULL ? PyTuple_Pack(2, o.out, o.lse) : o.out;
        if (o.lse == NULL)
            Py_INCREF(result);
    }
    operands_done(&o);
    return result;
}

/* ---- the functions ---- */

static const char *const words[FA2PY_ARG_COUNT] = {"q",      "k",          "v",       "causal",
                                                   "window", "softcap",    "scale",   "layout",
                                                   "out",    "return_lse", "context", "stream"};
static PyObject *interned[FA2PY_ARG_COUNT];
static const fa2py_signature signatures[] = {
    {"attention", FA2PY_ARG_COUNT, 3, 3, words, interned},
    {"problem", FA2PY_ARG_OUT, 3, 3, words, interned},
};

PyObject *fa2py_launch(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *values[FA2PY_PARAMETERS_MAX];
    fa2py_call call;
    (void)module;
    if (!fa2py_arguments(&signatures[0], args, count, names, values) ||
        !fa2py_parse_call(values, &call))
        return NULL;
    return fa2py_run(&call);
}

/* Through the dispatcher, by the function that set_torch gave: all arguments, None for those not given. */
static PyObject *dispatch(PyObject *const *values)
{
    PyObject *tuple = PyTuple_New(FA2PY_ARG_COUNT), *result = NULL;
    for (int i = 0; tuple != NULL && i < FA2PY_ARG_COUNT; i++) {
        PyObject *value = values[i] != NULL ? values[i] : Py_None;
        Py_INCREF(value);
        (void)PyTuple_SetItem(tuple, i, value);
    }
    if (tuple != NULL)
        result = PyObject_CallObject(fa2py_torch_dispatcher(), tuple);
    Py_XDECREF(tuple);
    return result;
}

PyObject *fa2py_attention(PyObject *module, PyObject *const *args, Py_ssize_t count,
                          PyObject *names)
{
    PyObject *values[FA2PY_PARAMETERS_MAX];
    fa2py_call call;
    (void)module;
    if (!fa2py_arguments(&signatures[0], args, count, names, values))
        return NULL;
    const int plain = fa2py_torch_is_plain(values);
    if (plain == 0)
        return dispatch(values);
    return plain > 0 && fa2py_parse_call(values, &call) ? fa2py_run(&call) : NULL;
}

PyObject *fa2py_problem(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *values[FA2PY_PARAMETERS_MAX], *result = NULL;
    operands o = {.out = NULL};
    const fa2py_framework *lender = NULL;
    fa2_problem problem;
    fa2py_call call;
    void *stream = NULL;
    (void)module;
    if (fa2py_arguments(&signatures[1], args, count, names, values) &&
        fa2py_parse_call(values, &call) && begin(&call, &o, &stream, &lender) &&
        make_problem(&call, &o.views[Q].tensor, &o.views[K].tensor, &o.views[V].tensor, &problem))
        result = fa2py_problem_dict(&problem);
    operands_done(&o);
    return result;
}
