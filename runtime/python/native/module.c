/*
 * The module fa2_attn._native. Its state belongs to the process, because it serves one interpreter.
 */
#include "native.h"
#include "runtime/base/problem.h"

#define FAST(function) (PyCFunction)(void (*)(void)) function, METH_FASTCALL | METH_KEYWORDS

static const char attention_doc[] =
    "attention(q, k, v, *, "
#define SETTING(word, default, ...) #word "=" #default ", "
#include "settings.def"
    "context=None, stream=None, out=None, return_lse=False)\n--\n\n"
    "Returns softmax(scale * q k^T) v, by the kernel that is best for these shapes on this device.\n"
    "\n"
    "q: [B, Sq, Hq, D]; k, v: [B, Sk, Hkv, D]. Hq is a multiple of Hkv. Any library that speaks DLPack may own them.\n"
    "They are float16, bfloat16 or float32, on one CUDA device. float32 has no dropout and no new keys,\n"
    "and up to 256 columns. Strides are free, but D is contiguous, and rows begin at multiples of 16 bytes.\n"
    "v may have fewer columns than k; then out has as many as v. If v is a view of k's first\n"
    "columns, the kernel reads them once.\n"
    "\n"
#define SETTING(word, default, type, doc) #word ": " doc "\n"
#include "settings.def"
    "out: written and returned. It has q's shape (but v's columns) and dtype, and shares no memory with q, k or v.\n"
    "Default: a new tensor of q's library.\n"
    "return_lse: True returns (out, lse). lse is float32 [B, Hq, Sq], the natural logarithm of the softmax's sum.\n"
    "context: a fa2_attn.Context of the tensors' device. Default: the device's default context.\n"
    "stream: a stream, or its address as a number. Default: the library's current stream. The call does not wait\n"
    "for it.\n"
    "\n"
    "Raises ValueError if tensors do not fit, NotImplementedError for calls that fa2 cannot serve, and fa2_attn.Error.";

static const char partial_doc[] =
    "attention_partial(q, k, v, *, "
#define SETTING(word, default, ...) #word "=" #default ", "
#include "settings.def"
    "context=None, stream=None, out=None, lse=None, partial='write', "
    "carried=None, dropout_origin=None, distance_shift=0.0)\n--\n\n"
    "Returns attention over a part of the keys, as (out, lse), both float32, to be merged with that over other parts.\n"
    "\n"
    "q, k, v and the settings: as in attention. There are no gradients: see attention_backward's `partial`.\n"
    "partial: 'write' writes out and lse. 'merge' merges into out and lse, which hold the result over other keys: "
    "they\n"
    "become the result over all of them. Rows whose lse is -inf have no result yet.\n"
    "out, lse: float32, in the shapes that attention returns. None: new tensors; only for 'write'.\n"
    "carried: for the last part. float32, out over all other keys, whose LSE is in lse. out is then in q's type, over\n"
    "all keys, rounded once, and lse becomes that over all keys. Without partial.\n"
    "dropout_origin: (row, column, head, heads): where q and k begin in a whole, and its number of query heads. Then\n"
    "the call drops what one call on the whole drops. row and column are multiples of 64.\n"
    "distance_shift: added to the queries' positions before their distances to keys are taken, if the call is\n"
    "a part of a larger one (fa2.h).\n"
    "\n"
    "Raises the exceptions of attention.";

static const char merge_doc[] =
    "merge(parts, parts_lse, *, dtype='float32', context=None, stream=None, out=None, lse=None)\n--\n\n"
    "Merges partial results of attention over different keys into one. Returns (out, lse).\n"
    "\n"
    "parts: float32 [N, B, S, H, D], N results of attention_partial, or of attention, in one tensor. parts_lse:\n"
    "float32 [N, B, H, S], their LSE; each [B, H, S] is contiguous. Rows whose lse is -inf saw no key: their part of\n"
    "out does not count, whatever it holds.\n"
    "dtype: of out: 'float16', 'bfloat16' or 'float32', or PyTorch's names of them.\n"
    "out, lse: written and returned: [B, S, H, D] and float32 [B, H, S]. None: new tensors.\n"
    "context, stream: as in attention.\n"
    "\n"
    "Raises the exceptions of attention.";

static const char backward_doc[] =
    "attention_backward(d_out, q, k, v, out, lse, *, "
#define SETTING(word, default, ...) #word "=" #default ", "
#include "settings.def"
    "context=None, stream=None, "
    "deterministic=False, dq=None, dk=None, dv=None, dsinks=False, dbias=False, partial=None, "
    "dropout_origin=None, distance_shift=0.0)\n--\n\n"
    "Returns the gradients (dq, dk, dv) of a loss with respect to q, k and v, without autograd.\n"
    "\n"
    "q, k, v and the settings: as in the call of attention. out, lse: results of attention(..., return_lse=True).\n"
    "d_out: the gradient with respect to out, in its shape and dtype. If the kernel cannot read it in place (D not\n"
    "contiguous), PyTorch's and CuPy's tensors are copied.\n"
    "deterministic: every call gives the same bits. Without it, only dk and dv do.\n"
    "dq, dk, dv: written and returned. They have the shapes of q, k and v, and any strides; they may be parts of one\n"
    "packed tensor. None: a new tensor of q's library. False: not wanted, and None is returned.\n"
    "dsinks, dbias: True appends this gradient to (dq, dk, dv). dsinks is float32 [Hq]. dbias is float32 in the\n"
    "bias's shape; with deterministic it is [B, Hq, Sq, Sk].\n"
    "partial: 'write' makes dq, dk and dv float32. 'merge' adds to dq, dk and dv, which are then given (or False). "
    "out\n"
    "and lse are those over all keys, and k and v may be a part of them.\n"
    "dropout_origin, distance_shift: as in attention_partial.\n"
    "\n"
    "Raises the exceptions of attention.";

static const char problem_doc[] =
    "problem(q, k, v, *, "
#define SETTING(word, default, ...) #word "=" #default ", "
#include "settings.def"
    "op='forward', deterministic=False)\n--\n\n"
    "Returns the problem of a call of attention, or with op='backward' of attention_backward, on these tensors:\n"
    "a dict of sizes, dtype and features.";

/* keep(object): stores an object beyond the module's life, and returns the one stored before. A module that is imported
 * anew uses it to remove what its predecessor registered. */
static PyObject *keep(PyObject *module, PyObject *object)
{
    static PyObject *kept;
    PyObject *before = kept != NULL ? kept : Py_None;
    (void)module;
    if (kept == NULL)
        Py_INCREF(before);
    Py_INCREF(object);
    kept = object;
    return before; /* passes on the static variable's reference */
}

static PyMethodDef methods[] = {
    {"attention", FAST(fa2py_attention), attention_doc},
    {"attention_backward", FAST(fa2py_attention_backward), backward_doc},
    {"attention_partial", FAST(fa2py_attention_partial), partial_doc},
    {"merge", FAST(fa2py_merge), merge_doc},
    {"launch", FAST(fa2py_launch_function),
     "launch(q, k, v, *, differentiable=False, **keywords)\n--\n\n"
     "attention, always without PyTorch's dispatcher. differentiable: raise an error if the call has no gradient.\n"
     "dropout_origin, distance_shift: as in attention_partial."},
    {"problem", FAST(fa2py_problem), problem_doc},
    {"check_differentiable", fa2py_check_differentiable, METH_O,
     "check_differentiable(problem, /)\n--\n\n"
     "Raises NotImplementedError if fa2 has no gradient for a problem of the forward operation."},
    {"dropout_mask", fa2py_dropout_mask, METH_VARARGS,
     "dropout_mask(problem, dropout_p, dropout_seed, offset=0, /)\n--\n\n"
     "Returns which elements a call on the problem keeps (1) or drops (0), as a bytearray of [B, Hq, Sq, Sk].\n"
     "The host computes it. For tests."},
    {"suggestion", fa2py_suggestion, METH_VARARGS,
     "suggestion(text, names)\n--\n\nReturns \", did you mean NAME?\" for the name that is near, or \"\"."},
    {"problem_keys", fa2py_problem_keys, METH_NOARGS,
     "problem_keys()\n--\n\nReturns a dict from the keys of problem_text's texts to the names of fields."},
    {"problem_text", fa2py_problem_text, METH_O,
     "problem_text(problem, /)\n--\n\n"
     "Returns the problem as fa2-tune --shape takes it. Raises ValueError if it is not a valid problem."},
    {"raise_status", fa2py_raise_status, METH_VARARGS,
     "raise_status(status, message, /)\n--\n\n"
     "Raises the exception of a call that fails with this status, a text of fa2_status_string."},
    {"default_context", fa2py_get_default_context, METH_O,
     "default_context(device, /)\n--\n\nReturns the default context of a device. Opens it at the first call."},
    {"set_default_context", fa2py_set_default_context, METH_VARARGS,
     "set_default_context(context, /)\n--\n\n"
     "Makes this the default context of its device: later calls there use it unless they name another one."},
    {"window", fa2py_window, METH_O,
     "window(window, /)\n--\n\nReturns (left, right) of a window that attention takes. -1 means all keys."},
    {"keep", keep, METH_O,
     "keep(object, /)\n--\n\n"
     "Keeps an object until the process ends or the next call, even if modules go. Returns the object kept before,\n"
     "or None."},
    {"set_torch", fa2py_set_torch, METH_VARARGS, NULL},
    {"make_sdpa", fa2py_make_sdpa, METH_VARARGS, NULL},
    {"permit_sdpa", fa2py_permit_sdpa, METH_VARARGS, NULL},
    {"plain_forward", (PyCFunction)(void (*)(void))fa2py_plain_forward, METH_FASTCALL, NULL},
    {"plain_node", fa2py_plain_node, METH_O, NULL},
    {NULL, NULL, 0, NULL}};

/* Returns whether calls have an operand that is the gradient of this one: both belong to one field. */
static bool has_gradient(int id)
{
    for (int i = 0; i < FA2I_OPERAND_COUNT; i++)
        if (fa2i_operand_is_gradient(i) && fa2i_operands[i].field == fa2i_operands[id].field)
            return true;
    return false;
}

/* Adds OPERANDS: a tuple of (keyword, field of the problem, whether backward reads it, whether it has a gradient, and
 * whether one call of each row has it). */
static bool add_operands(PyObject *module)
{
    PyObject *operands = PyTuple_New(FA2PY_FEATURES);
    bool ok = operands != NULL;
    for (int i = 0; ok && i < FA2PY_FEATURES; i++) {
        PyObject *line = Py_BuildValue(
            "(ssOOO)", fa2py_setting_words[FA2PY_SET_FEATURES + i], fa2i_fields[fa2i_operands[i].field].name,
            fa2i_operands[i].at[FA2_OP_BACKWARD] >= 0 ? Py_True : Py_False, has_gradient(i) ? Py_True : Py_False,
            fa2i_operands[i].access == FA2I_ACCESS_ROW ? Py_True : Py_False);
        ok = line != NULL && PyTuple_SetItem(operands, i, line) == 0;
    }
    if (ok && PyModule_AddObject(module, "OPERANDS", operands) == 0)
        return true;
    Py_XDECREF(operands);
    return false;
}

static bool add_factor(PyObject *factors, const char *keyword, const char *field)
{
    PyObject *value = Py_BuildValue("z", field);
    const bool ok = value != NULL && PyDict_SetItemString(factors, keyword, value) == 0;
    Py_XDECREF(value);
    return ok;
}

/* Adds FACTORS: a dict from keywords to fields of the problem, or to None. */
static bool add_factors(PyObject *module)
{
    PyObject *factors = PyDict_New();
    bool ok = factors != NULL;
#define NOTHING                                  NULL
#define ASKED(field)                             fa2i_fields[FA2I_FIELD_##field].name
#define FA2I_FACTOR(member, needs, keyword, doc) ok = ok && add_factor(factors, #keyword, needs);
#include "runtime/base/factors.def"
#undef ASKED
#undef NOTHING
    if (ok && PyModule_AddObject(module, "FACTORS", factors) == 0)
        return true;
    Py_XDECREF(factors);
    return false;
}

/* Adds PERMISSIONS: a dict from keywords, which are fields of the problem, to their words. */
static bool add_permissions(PyObject *module)
{
    PyObject *permissions = PyDict_New();
    bool ok = permissions != NULL;
    for (int i = 0; ok && i < FA2PY_PERMISSIONS; i++) {
        const int field = fa2py_permission_fields[i];
        PyObject *pair = Py_BuildValue("(ss)", fa2i_field_word(field, 0), fa2i_field_word(field, 1));
        ok = pair != NULL && PyDict_SetItemString(permissions, fa2i_fields[field].name, pair) == 0;
        Py_XDECREF(pair);
    }
    if (ok && PyModule_AddObject(module, "PERMISSIONS", permissions) == 0)
        return true;
    Py_XDECREF(permissions);
    return false;
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "fa2_attn._native", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void); /* Python looks it up by this name */

PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    if (!fa2py_errors_init(module) || !fa2py_context_init(module) || !add_operands(module) || !add_factors(module) ||
        !add_permissions(module) || PyModule_AddStringConstant(module, "__version__", FA2PY_VERSION) != 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
