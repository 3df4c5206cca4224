/*
 * merge(parts, parts_lse, ...): several partial results of attention become one.
 */
#include "native.h"

enum { RANK = FA2PY_RANK, DIM = FA2PY_DIM };
enum { PARTS, PART_LSE, OUT, LSE, OPERANDS };
enum { ARG_PARTS, ARG_PART_LSE, ARG_DTYPE, ARG_CONTEXT, ARG_STREAM, ARG_OUT, ARG_LSE, ARGS };

static const char *const words[] = {"parts", "parts_lse", "dtype", "context", "stream", "out", "lse"};
static PyObject *interned[ARGS];
static const fa2py_signature signature = {"merge", ARGS, 2, 2, words, ARGS, 0, interned};

static const dl_dtype fp32 = {DL_FLOAT, 32, 1};

/* Stores the element type of O: by a word, or by an object whose text ends with "." and one, as torch.float16's does. */
static bool parse_dtype(PyObject *value, dl_dtype *ret_dtype)
{
    static const struct {
        const char *word;
        dl_dtype dtype;
    } known[] = {{"bfloat16", {DL_BFLOAT, 16, 1}}, {"float16", {DL_FLOAT, 16, 1}}, {"float32", {DL_FLOAT, 32, 1}}};
    PyObject *text = PyObject_Str(value != NULL ? value : Py_None);
    *ret_dtype = fp32;
    bool found = value == NULL || value == Py_None;
    for (size_t i = 0; text != NULL && !found && i < sizeof known / sizeof *known; i++) {
        PyObject *end = PyUnicode_FromFormat(".%s", known[i].word);
        found = end != NULL && (PyUnicode_CompareWithASCIIString(text, known[i].word) == 0 ||
                                PyUnicode_Tailmatch(text, end, 0, PY_SSIZE_T_MAX, 1) == 1);
        *ret_dtype = found ? known[i].dtype : fp32;
        Py_XDECREF(end);
    }
    Py_XDECREF(text);
    if (!found && !PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "dtype is %R; it must be float16, bfloat16 or float32", value);
    return found;
}

/* Raises ValueError unless a tensor is float32 with so many dimensions, the last `dense` of them row-major. */
static bool check_floats(const fa2py_operand *operand, int rank, int dense, const char *wanted)
{
    const dl_tensor *tensor = &operand->view.tensor;
    int64_t row_major = 1;
    bool fits = tensor->ndim == rank && memcmp(&tensor->dtype, &fp32, sizeof fp32) == 0;
    for (int i = rank - 1; fits && i >= rank - dense; i--) {
        fits = tensor->shape[i] <= 1 || tensor->strides == NULL || tensor->strides[i] == row_major;
        row_major *= tensor->shape[i];
    }
    for (int i = 0; fits && i < rank; i++)
        fits = tensor->shape[i] >= 1 && tensor->shape[i] <= INT32_MAX;
    if (!fits)
        PyErr_Format(PyExc_ValueError, "%s is %s of %d dimensions; it must be float32 %s", operand->name,
                     fa2py_dtype_word(tensor->dtype), (int)tensor->ndim, wanted);
    return fits;
}

/* Describes the last four dimensions, [B, S, H, D]. */
static fa2_tensor tensor_of(const fa2py_operand *operand)
{
    const dl_tensor *tensor = &operand->view.tensor;
    const int first = tensor->ndim - RANK;
    return (fa2_tensor){(char *)tensor->data + tensor->byte_offset, fa2py_stride_of(tensor, first),
                        fa2py_stride_of(tensor, first + 1), fa2py_stride_of(tensor, first + 2)};
}

static bool open_inputs(const fa2py_call *call, PyObject *const *values, fa2py_launch *launch, fa2py_operand *o)
{
    const fa2py_framework *framework = fa2py_framework_of(values[ARG_PARTS]);
    dl_device device;
    void *current = NULL;
    if (framework == NULL || !fa2py_device_of_any(framework, values[ARG_PARTS], words[ARG_PARTS], &device) ||
        !fa2py_current_stream(framework, device.id, &current))
        return false;
    launch->stream = call->has_stream ? call->stream : current;
    launch->lender = launch->stream == current ? framework : NULL;
    if (!fa2py_open_first(words[ARG_PARTS], values[ARG_PARTS], launch->stream, &o[PARTS]) ||
        !check_floats(&o[PARTS], RANK + 1, 1, "[N, B, S, H, D], the partial results, one after the other") ||
        !fa2py_open_any(&o[PARTS], words[ARG_PART_LSE], values[ARG_PART_LSE], launch->stream, &o[PART_LSE]))
        return false;
    const int64_t *rows = o[PARTS].view.tensor.shape, *lse = o[PART_LSE].view.tensor.shape;
    return check_floats(&o[PART_LSE], RANK, 3, "[N, B, H, S]; each [B, H, S] contiguous") &&
           fa2py_check_same("parts_lse", lse[0], "parts", rows[0], "partial results") &&
           fa2py_check_same("parts_lse", lse[1], "parts", rows[1], "batch") &&
           fa2py_check_same("parts_lse", lse[2], "parts", rows[3], "heads") &&
           fa2py_check_same("parts_lse", lse[3], "parts", rows[2], "seq");
}

/* Opens an output in this shape: the given one, or a new one. */
static bool open_output(PyObject *given, const char *name, dl_dtype dtype, int rank, const int64_t *shape, void *stream,
                        const fa2py_operand *parts, fa2py_operand *operand)
{
    const bool is_given = given != NULL && given != Py_None;
    PyObject *object = is_given ? given
                                : fa2py_empty(parts->framework, parts->object, &parts->view.tensor, dtype, rank, shape,
                                              "out= and lse=");
    if (object == NULL)
        return false;
    bool ok = fa2py_open_any(parts, name, object, stream, operand);
    if (!is_given)
        Py_DECREF(object);
    const dl_tensor *tensor = &operand->view.tensor;
    if (ok && tensor->ndim != rank)
        return fa2py_refuse(PyExc_ValueError, "%s has %d dimensions; it must have %d", name, (int)tensor->ndim, rank);
    static const char *const dimensions[] = {"in dimension 0", "in dimension 1", "in dimension 2", "in dimension 3"};
    for (int i = 0; ok && i < rank; i++)
        ok = fa2py_check_same(name, tensor->shape[i], "the result", shape[i], dimensions[i]);
    return ok && fa2py_check_writable(operand);
}

/* Raises ValueError if O and its type are both given and differ. */
static bool check_out_dtype(PyObject *const *values, dl_dtype dtype, const dl_tensor *out)
{
    const bool is_asked = values[ARG_DTYPE] != NULL && values[ARG_DTYPE] != Py_None;
    if (!is_asked || memcmp(&out->dtype, &dtype, sizeof dtype) == 0)
        return true;
    return fa2py_refuse(PyExc_ValueError, "out is %s and dtype %S; give one of them", fa2py_dtype_word(out->dtype),
                        values[ARG_DTYPE]);
}

static bool open_outputs(PyObject *const *values, dl_dtype dtype, void *stream, fa2py_operand *o)
{
    const int64_t *rows = o[PARTS].view.tensor.shape, lse_shape[] = {rows[1], rows[3], rows[2]};
    return open_output(values[ARG_OUT], "out", dtype, RANK, rows + 1, stream, &o[PARTS], &o[OUT]) &&
           check_out_dtype(values, dtype, &o[OUT].view.tensor) &&
           open_output(values[ARG_LSE], "lse", fp32, 3, lse_shape, stream, &o[PARTS], &o[LSE]) &&
           check_floats(&o[LSE], 3, 3, "[B, H, S], contiguous");
}

/* The element type is that of O. A given O of another type than float32, float16 and bfloat16 is refused. */
static bool make_problem(const fa2py_operand *o, fa2_problem *problem)
{
    const int64_t *rows = o[PARTS].view.tensor.shape;
    const dl_tensor *out = &o[OUT].view.tensor;
    const bool is_half =
        out->dtype.bits == 16 && out->dtype.lanes == 1 && (out->dtype.code == DL_FLOAT || out->dtype.code == DL_BFLOAT);
    const bool is_fp32 = memcmp(&out->dtype, &fp32, sizeof fp32) == 0;
    if ((!is_half && !is_fp32) || (out->shape[DIM] > 1 && fa2py_stride_of(out, DIM) != 1))
        return fa2py_refuse(PyExc_ValueError,
                            "out is %s; it must be float16, bfloat16 or float32, with a contiguous last dimension",
                            fa2py_dtype_word(out->dtype));
    *problem = (fa2_problem){.struct_bytes = sizeof *problem,
                             .op = FA2_OP_MERGE,
                             .dtype = is_half && out->dtype.code == DL_BFLOAT ? FA2_BF16 : FA2_FP16,
                             .batch = (int32_t)rows[1],
                             .heads_q = (int32_t)rows[3],
                             .heads_kv = (int32_t)rows[3],
                             .seq_q = (int32_t)rows[2],
                             .seq_k = (int32_t)rows[0],
                             .head_dim = (int32_t)rows[4],
                             .partial = is_fp32};
    return true;
}

static bool launch_merge(const fa2py_call *call, const fa2py_operand *o, fa2py_launch *launch)
{
    launch->args.merge = (fa2_merge_args){.struct_bytes = sizeof(fa2_merge_args),
                                          .parts = tensor_of(&o[PARTS]),
                                          .parts_stride = fa2py_stride_of(&o[PARTS].view.tensor, 0),
                                          .parts_lse = fa2py_floats_of(&o[PART_LSE]),
                                          .parts_lse_stride = fa2py_stride_of(&o[PART_LSE].view.tensor, 0),
                                          .o = tensor_of(&o[OUT]),
                                          .lse = fa2py_floats_of(&o[LSE])};
    return fa2py_launch_on(call, &o[PARTS], launch);
}

PyObject *fa2py_merge(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *values[FA2PY_PARAMETERS_MAX], *result = NULL;
    fa2py_operand o[OPERANDS] = {{.name = NULL}};
    fa2py_call call = {.op = FA2_OP_MERGE};
    fa2_problem problem;
    fa2py_launch launch = {.problem = &problem};
    dl_dtype dtype;
    (void)module;
    if (!fa2py_arguments(&signature, args, count, names, values))
        return NULL;
    if (parse_dtype(values[ARG_DTYPE], &dtype) && fa2py_parse_place(values[ARG_CONTEXT], values[ARG_STREAM], &call) &&
        open_inputs(&call, values, &launch, o) && open_outputs(values, dtype, launch.stream, o) &&
        make_problem(o, &problem) && launch_merge(&call, o, &launch))
        result = PyTuple_Pack(2, o[OUT].object, o[LSE].object);
    fa2py_operands_done(o, OPERANDS);
    return result;
}
