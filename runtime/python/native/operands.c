/*
 * The tensors of a call: lent to us, looked at, and what they ask for. Everything that fa2.h cannot
 * know is checked here (ranks, dtypes, devices, shapes among each other); fa2 itself checks the rest
 * and says it in its own words.
 */
#include <string.h>
#include "native.h"

enum { RANK = 4, DIM = 3 };

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

/* Shape and strides of a tensor of three or four dimensions; strides are made up where DLPack before
 * 1.2 leaves them out. */
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
    PyErr_Format(PyExc_ValueError, "%s is on CUDA device %d and q on %d; they must be on one", name,
                 (int)tensor->device.id, (int)q->device.id);
    return false;
}

static bool check_rank(const fa2py_call *call, const fa2py_operand *operand, int rank)
{
    static const char *const orders[][2] = {
        {"[seq, heads, head_dim]", "[heads, seq, head_dim]"},
        {"[batch, seq, heads, head_dim]", "[batch, heads, seq, head_dim]"}};
    if (operand->view.tensor.ndim == rank)
        return true;
    PyErr_Format(PyExc_ValueError, "%s has %d dimensions; it must have %d: %s%s", operand->name,
                 (int)operand->view.tensor.ndim, rank, orders[rank == RANK][call->heads_first],
                 rank == RANK ? "" : ", as sequences are packed");
    return false;
}

/* Of a tensor that has its rank. */
static bool check_tensor(const fa2py_operand *operand, const dl_tensor *q)
{
    const dl_tensor *tensor = &operand->view.tensor;
    if (!check_place(operand->name, tensor, q))
        return false;
    if (memcmp(&tensor->dtype, &q->dtype, sizeof q->dtype) != 0) {
        PyErr_Format(PyExc_ValueError, "%s is %s and q %s; they must be of one type", operand->name,
                     dtype_word(tensor->dtype), dtype_word(q->dtype));
        return false;
    }
    for (int i = 0; i < RANK; i++) {
        if (operand->shape[i] > INT32_MAX) {
            PyErr_Format(PyExc_ValueError,
                         "%s has %lld elements in dimension %d, which is too many", operand->name,
                         (long long)operand->shape[i], i - (RANK - tensor->ndim));
            return false;
        }
    }
    if (operand->strides[DIM] != 1 && operand->shape[DIM] != 1) {
        PyErr_Format(PyExc_ValueError,
                     "the last dimension of %s has stride %lld; it must be 1 (contiguous)",
                     operand->name, (long long)operand->strides[DIM]);
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

bool fa2py_check_shape(const fa2py_operand *operand, const fa2py_operand *like)
{
    static const char *const dimensions[RANK] = {"in dimension 0", "in dimension 1",
                                                 "in dimension 2", "in dimension 3"};
    for (int i = 0; i < RANK; i++)
        if (!check_same(operand->name, operand->shape[i], like->name, like->shape[i],
                        dimensions[i]))
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
    return operand->framework != NULL &&
           fa2py_view_open(operand->framework, object, name, stream, &operand->view);
}

bool fa2py_open_any(const fa2py_operand *q, const char *name, PyObject *object, void *stream,
                    fa2py_operand *operand)
{
    return open_view(operand, name, object, stream) &&
           check_place(name, &operand->view.tensor, &q->view.tensor);
}

static bool is_packed(const fa2py_call *call)
{
    return call->features[FA2PY_CU_SEQLENS_Q] != NULL;
}

static bool open_rows(const fa2py_call *call, const char *name, PyObject *object, int rank,
                      void *stream, fa2py_operand *operand)
{
    if (!open_view(operand, name, object, stream) ||
        !check_device(name, operand->view.tensor.device) || !check_rank(call, operand, rank))
        return false;
    set_dimensions(operand);
    return true;
}

bool fa2py_open(const fa2py_call *call, const fa2py_operand *q, const char *name, PyObject *object,
                void *stream, fa2py_operand *operand)
{
    return open_rows(call, name, object, is_packed(call) ? RANK - 1 : RANK, stream, operand) &&
           check_tensor(operand, &q->view.tensor);
}

/* Whether the kernel can read the tensor's rows where they are. */
static bool is_readable(const fa2py_operand *operand)
{
    const dl_tensor *tensor = &operand->view.tensor;
    bool readable = operand->strides[DIM] == 1 &&
                    ((uintptr_t)tensor->data + tensor->byte_offset) % FA2PY_ROW_ALIGN == 0;
    for (int i = 0; i < DIM; i++)
        readable =
            readable && (operand->shape[i] == 1 || operand->strides[i] % FA2PY_STRIDE_STEP == 0);
    return readable;
}

bool fa2py_open_copied(const fa2py_call *call, const fa2py_operand *q, const char *name,
                       PyObject *object, void *stream, fa2py_operand *operand)
{
    if (!open_rows(call, name, object, is_packed(call) ? RANK - 1 : RANK, stream, operand))
        return false;
    if (operand->framework->copy != NULL && !is_readable(operand)) {
        PyObject *copy = PyObject_CallFunctionObjArgs(operand->framework->copy, object, NULL);
        fa2py_operands_done(operand, 1);
        if (copy == NULL)
            return false;
        const bool ok = fa2py_open(call, q, name, copy, stream, operand);
        Py_DECREF(copy);
        return ok;
    }
    return check_tensor(operand, &q->view.tensor);
}

bool fa2py_open_output(const fa2py_call *call, const fa2py_operand *q, const fa2py_operand *like,
                       const char *name, const char *argument, PyObject *given, void *stream,
                       fa2py_operand *operand)
{
    PyObject *object = given;
    if (object != NULL)
        Py_INCREF(object);
    else if ((object = fa2py_empty_like(like->framework, like->object, &like->view.tensor,
                                        argument)) == NULL)
        return false;
    const bool ok =
        fa2py_open(call, q, name, object, stream, operand) && fa2py_check_shape(operand, like);
    Py_DECREF(object);
    return ok && fa2py_check_writable(operand);
}

fa2py_operand fa2py_like_out(const fa2py_operand *q, const fa2py_operand *v)
{
    fa2py_operand like = *q;
    like.shape[DIM] = v->shape[DIM];
    return like;
}

bool fa2py_open_out(const fa2py_call *call, const fa2py_operand *q, const fa2py_operand *v,
                    PyObject *given, void *stream, fa2py_operand *operand)
{
    const dl_tensor *view = &q->view.tensor;
    const fa2py_operand like = fa2py_like_out(q, v);
    if (given != NULL || v->shape[DIM] == q->shape[DIM])
        return fa2py_open_output(call, q, &like, "out", "out=", given, stream, operand);
    PyObject *made = fa2py_empty(q->framework, q->object, view, view->dtype, view->ndim,
                                 like.shape + RANK - view->ndim, "out=");
    const bool ok =
        made != NULL && fa2py_open_output(call, q, &like, "out", "out=", made, stream, operand);
    Py_XDECREF(made);
    return ok;
}

/* The LSE is [batch, heads, seq], of packed sequences [heads, rows], row by row. Returns its rank. */
static int lse_shape(const fa2_problem *problem, int64_t shape[3])
{
    int rank = 0;
    if (!problem->varlen)
        shape[rank++] = problem->batch;
    shape[rank++] = problem->heads_q;
    shape[rank++] = problem->varlen ? problem->total_q : problem->seq_q;
    return rank;
}

static bool check_lse(const fa2py_operand *lse, int rank, const int64_t *wanted)
{
    const dl_tensor *tensor = &lse->view.tensor;
    int64_t row_major = 1;
    bool fits = tensor->ndim == rank && tensor->dtype.code == DL_FLOAT &&
                tensor->dtype.bits == 32 && tensor->dtype.lanes == 1;
    for (int i = rank - 1; fits && i >= 0; i--) {
        fits = tensor->shape[i] == wanted[i] &&
               (wanted[i] == 1 || tensor->strides == NULL || tensor->strides[i] == row_major);
        row_major *= wanted[i];
    }
    if (!fits && rank == 3)
        PyErr_Format(PyExc_ValueError,
                     "lse must be [%d, %d, %d] float32, contiguous, as forward gives it",
                     (int)wanted[0], (int)wanted[1], (int)wanted[2]);
    else if (!fits)
        PyErr_Format(PyExc_ValueError,
                     "lse must be [%d, %d] float32, contiguous, as forward gives it",
                     (int)wanted[0], (int)wanted[1]);
    return fits;
}

bool fa2py_open_lse(const fa2py_operand *q, const fa2_problem *problem, PyObject *given,
                    void *stream, fa2py_operand *operand)
{
    int64_t shape[3];
    const int rank = lse_shape(problem, shape);
    if (given != NULL)
        return fa2py_open_any(q, "lse", given, stream, operand) && check_lse(operand, rank, shape);
    PyObject *made =
        fa2py_empty(q->framework, q->object, &q->view.tensor, (dl_dtype){DL_FLOAT, 32, 1}, rank,
                    shape, "return_lse=False, or tensors of a library that fa2 knows, or out=");
    const bool ok = made != NULL && open_view(operand, "lse", made, stream);
    Py_XDECREF(made);
    return ok;
}

/* ---- a call ---- */

/* The device that q is on: by its table, which needs no stream, so that q is opened at once; else by
 * asking, because __dlpack__ wants to know the stream. */
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

bool fa2py_begin(const fa2py_call *call, fa2py_operand operands[3], fa2py_features *features,
                 void **ret_stream, const fa2py_framework **ret_lender)
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
    const bool paged = call->features[FA2PY_BLOCK_TABLE] != NULL;
    for (int i = q->object != NULL; i < 3; i++) {
        const int rank = is_packed(call) && !(paged && i > 0) ? RANK - 1 : RANK;
        if (!open_rows(call, names[i], call->tensors[i], rank, *ret_stream, &operands[i]) ||
            !check_tensor(&operands[i], &q->view.tensor))
            return false;
    }
    return fa2py_features_open(call, q, *ret_stream, features);
}

static int seq_axis(const fa2py_call *call)
{
    return call->heads_first ? 2 : 1;
}

/* Strides of dimensions of extent 1 may be anything, and are 0 for the library. */
fa2_tensor fa2py_tensor_of(const fa2py_call *call, const fa2py_operand *operand)
{
    const dl_tensor *tensor = &operand->view.tensor;
    int64_t strides[RANK];
    const int seq = seq_axis(call), head = 3 - seq;
    if (operand->object == NULL)
        return (fa2_tensor){.data = NULL};
    for (int i = 0; i < RANK; i++)
        strides[i] = operand->shape[i] == 1 ? 0 : operand->strides[i];
    return (fa2_tensor){(char *)tensor->data + tensor->byte_offset, strides[0], strides[seq],
                        strides[head]};
}

float *fa2py_floats_of(const fa2py_operand *operand)
{
    const dl_tensor *tensor = &operand->view.tensor;
    return operand->object == NULL ? NULL
                                   : (float *)(void *)((char *)tensor->data + tensor->byte_offset);
}

static bool check_operands(const fa2py_call *call, const fa2py_operand operands[3])
{
    const bool paged = call->features[FA2PY_BLOCK_TABLE] != NULL,
               own_rows = !paged && call->features[FA2PY_CACHE_ROWS] == NULL;
    const int64_t *q = operands[0].shape, *k = operands[1].shape, *v = operands[2].shape;
    const int seq = seq_axis(call), head = 3 - seq;
    if ((own_rows && !check_same("k", k[0], "q", q[0], "batch")) ||
        !check_same("v", v[0], "k", k[0], paged ? "pages" : "batch") ||
        !check_same("v", v[seq], "k", k[seq], paged ? "page" : "seq") ||
        !check_same("v", v[head], "k", k[head], "heads") ||
        !check_same("k", k[DIM], "q", q[DIM], "head_dim"))
        return false;
    if (v[DIM] < 1) { /* to the library 0 columns mean as many as Q has */
        PyErr_SetString(PyExc_ValueError, "v has no columns; its head_dim must be at least 8");
        return false;
    }
    return true;
}

/* Lengths of sequences that are packed: one behind the other in one row of a batch. */
static bool set_packed(const fa2py_call *call, const dl_tensor *starts, fa2_problem *problem)
{
    problem->total_q = problem->seq_q;
    problem->total_k = problem->paged ? 0 : problem->seq_k;
    if (problem->total_q == 0 || (!problem->paged && problem->total_k == 0)) {
        PyErr_Format(PyExc_ValueError, "%s has no rows", problem->total_q == 0 ? "q" : "k");
        return false;
    }
    problem->batch = starts->ndim == 1 ? (int32_t)starts->shape[0] - 1 : 0;
    problem->seq_q = call->max_seqlen_q;
    return true;
}

/* Keys in pages: the table says how many there may be. */
static void set_paged(const fa2py_call *call, const dl_tensor *table, fa2_problem *problem)
{
    const int64_t most = table->ndim == 2 ? table->shape[1] * problem->seq_k : 0;
    problem->page = problem->seq_k;
    if (call->max_seqlen_k == 0)
        problem->seq_k = most <= INT32_MAX ? (int32_t)most : INT32_MAX;
}

/* Whether v is the first columns of k. Gradients of the two are apart, and so are new rows. */
static bool is_v_in_k(const fa2py_call *call, const fa2py_operand operands[3],
                      const fa2_problem *problem)
{
    const fa2_tensor k = fa2py_tensor_of(call, &operands[1]);
    const fa2_tensor v = fa2py_tensor_of(call, &operands[2]);
    return call->op == FA2_OP_FORWARD && !call->differentiable && !problem->append &&
           problem->head_dim_v > 0 && problem->head_dim_v < problem->head_dim && k.data == v.data &&
           k.stride_batch == v.stride_batch && k.stride_seq == v.stride_seq &&
           k.stride_head == v.stride_head;
}

bool fa2py_make_problem(const fa2py_call *call, const fa2py_operand operands[3],
                        const fa2py_features *features, fa2_problem *ret_problem)
{
    const int64_t *q = operands[0].shape, *k = operands[1].shape, *v = operands[2].shape;
    const int seq = seq_axis(call), head = 3 - seq;
    fa2_problem problem = {.op = call->op};
    fa2py_features_ask(call, features, &problem);
    if (!check_dtype(&operands[0].view.tensor, &problem.dtype) || !check_operands(call, operands))
        return false;
    problem.batch = (int32_t)q[0];
    problem.heads_q = (int32_t)q[head];
    problem.heads_kv = (int32_t)k[head];
    problem.seq_q = (int32_t)q[seq];
    problem.seq_k = (int32_t)k[seq];
    problem.head_dim = (int32_t)q[DIM];
    problem.head_dim_v = v[DIM] != q[DIM] ? (int32_t)v[DIM] : 0;
    problem.v_in_k = is_v_in_k(call, operands, &problem);
    problem.causal = call->causal;
    problem.softcap = call->softcap != 0;
    problem.deterministic = call->deterministic;
    if (problem.varlen &&
        !set_packed(call, &features->of[FA2PY_CU_SEQLENS_Q].view.tensor, &problem))
        return false;
    if (problem.paged)
        set_paged(call, &features->of[FA2PY_BLOCK_TABLE].view.tensor, &problem);
    if (call->max_seqlen_k != 0)
        problem.seq_k = call->max_seqlen_k;
    /* A right bound says nothing beside causal, and one way of saying it makes one problem. */
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
    if (launch->problem->dropout && !call->has_seed && call->features[FA2PY_DROPOUT_SEED] == NULL) {
        PyErr_SetString(PyExc_ValueError,
                        "dropout_p is given without dropout_seed: an int, or int64 on the device");
        return false;
    }
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
    launch->like = q->object;
    const bool ok = fa2py_context_launch(context, launch);
    Py_DECREF((PyObject *)context);
    return ok;
}
