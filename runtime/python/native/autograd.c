/*
 * Autograd of calls without features: a torch.autograd.Function and its node, without Python code between PyTorch's
 * engine and the kernel. That Python code would take as long as all other code of fa2 in the call.
 *
 * Nothing here depends on PyTorch: ctx is an object with save_for_backward(), saved_tensors and needs_input_grad.
 */
#include "native.h"

enum { CTX, SETTINGS, TENSORS };           /* forward's arguments */
enum { OUT, LSE, ROWS, SAVED = ROWS + 3 }; /* saved tensors of a call on three tensors */
enum { NEEDS_ROWS = TENSORS - SETTINGS };  /* index of q in needs_input_grad */

/* Names as Python strings, made once, so that calls need not convert them. */
enum { SAVE_FOR_BACKWARD, SETTINGS_OF, SAVED_TENSORS, NEEDS_INPUT_GRAD, NAMES };
static PyObject *names[NAMES];

static bool intern_names(void)
{
    static const char *const words[NAMES] = {"save_for_backward", "settings", "saved_tensors", "needs_input_grad"};
    for (int i = 0; i < NAMES; i++)
        if (names[i] == NULL && (names[i] = PyUnicode_InternFromString(words[i])) == NULL)
            return false;
    return true;
}

/* Makes the call of these settings and three tensors. */
static bool make_call(fa2_op op, PyObject *settings, PyObject *const tensors[3], fa2py_call *call)
{
    PyObject *values[FA2PY_SETTINGS] = {NULL};
    if (!PyTuple_Check(settings) || PyTuple_Size(settings) != FA2PY_PLAIN_SETTINGS)
        return fa2py_refuse(PyExc_TypeError, "the settings are %R; they must be a tuple of %d", settings,
                            FA2PY_PLAIN_SETTINGS);
    for (int i = 0; i < FA2PY_PLAIN_DETERMINISTIC; i++)
        values[fa2py_plain_place(i)] = PyTuple_GetItem(settings, i);
    *call = (fa2py_call){.op = op, .tensors = {tensors[0], tensors[1], tensors[2]}};
    return fa2py_parse_settings(values, call);
}

/* Calls ctx.save_for_backward(out, lse, *tensors), and sets ctx.settings. */
static bool save(PyObject *ctx, PyObject *made, PyObject *const *args, Py_ssize_t count)
{
    PyObject *saved = PyTuple_New(ROWS + count - TENSORS);
    PyObject *method = PyObject_GetAttr(ctx, names[SAVE_FOR_BACKWARD]), *none = NULL;
    for (Py_ssize_t i = 0; saved != NULL && i < ROWS + count - TENSORS; i++) {
        PyObject *tensor = i < ROWS ? PyTuple_GetItem(made, i) : args[TENSORS + i - ROWS];
        Py_INCREF(tensor);
        (void)PyTuple_SetItem(saved, i, tensor);
    }
    if (saved != NULL && method != NULL)
        none = PyObject_CallObject(method, saved);
    Py_XDECREF(saved);
    Py_XDECREF(method);
    Py_XDECREF(none);
    return none != NULL && PyObject_SetAttr(ctx, names[SETTINGS_OF], args[SETTINGS]) == 0;
}

/* Returns q, k and v of (q, kv) or (qkv,) as a new tuple of views. */
static PyObject *unpacked(PyObject *const *tensors, Py_ssize_t count)
{
    PyObject *list = PyObject_CallMethod(tensors[count - 1], "unbind", "i", -3);
    PyObject *every = list != NULL ? PySequence_Tuple(list) : NULL;
    Py_XDECREF(list);
    if (every != NULL && count == 2) {
        PyObject *query = PyTuple_Pack(1, tensors[0]), *views = every;
        every = query != NULL ? PySequence_Concat(query, views) : NULL;
        Py_XDECREF(query);
        Py_DECREF(views);
    }
    if (every != NULL && PyTuple_Size(every) != 3) {
        PyErr_Format(PyExc_ValueError,
                     "a packed tensor has %zd parts in its third last dimension; (q, kv) has 2 there, (qkv,) 3",
                     PyTuple_Size(every) - (count - 1));
        Py_CLEAR(every);
    }
    return every;
}

/* plain_forward(ctx, settings, *tensors) -> out */
PyObject *fa2py_plain_forward(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count <= TENSORS || count > TENSORS + 3)
        return PyErr_Format(PyExc_TypeError, "plain_forward(ctx, settings, *tensors) got %zd arguments", count);
    PyObject *const *tensors = args + TENSORS, *every = NULL, *made = NULL, *out = NULL;
    PyObject *rows[3] = {tensors[0]};
    bool ok = intern_names();
    if (ok && count < TENSORS + 3) {
        every = unpacked(tensors, count - TENSORS);
        ok = every != NULL;
    }
    for (int i = 0; ok && i < 3; i++)
        rows[i] = every != NULL ? PyTuple_GetItem(every, i) : tensors[i];
    fa2py_call call;
    if (ok && make_call(FA2_OP_FORWARD, args[SETTINGS], rows, &call)) {
        call.want_lse = call.differentiable = true;
        made = fa2py_run(&call);
    }
    if (made != NULL && save(args[CTX], made, args, count)) {
        out = PyTuple_GetItem(made, OUT);
        Py_INCREF(out);
    }
    Py_XDECREF(every);
    Py_XDECREF(made);
    return out;
}

/* Returns (None, dq, dk, dv) from the three tensors that ctx saved. */
static PyObject *gradients(PyObject *ctx, PyObject *saved, PyObject *d_out)
{
    PyObject *rows[3], *result = NULL, *made = NULL;
    PyObject *settings = PyObject_GetAttr(ctx, names[SETTINGS_OF]);
    PyObject *needs = settings != NULL ? PyObject_GetAttr(ctx, names[NEEDS_INPUT_GRAD]) : NULL;
    fa2py_call call;
    for (int i = 0; i < 3; i++)
        rows[i] = PyTuple_GetItem(saved, ROWS + i);
    if (needs != NULL && make_call(FA2_OP_BACKWARD, settings, rows, &call)) {
        const int set = PyObject_IsTrue(PyTuple_GetItem(settings, FA2PY_PLAIN_DETERMINISTIC));
        const int told = set == 0 ? fa2py_torch_is_deterministic() : set;
        fa2py_backward given = {.d_out = d_out, .out = PyTuple_GetItem(saved, OUT), .lse = PyTuple_GetItem(saved, LSE)};
        for (int i = 0; i < 3; i++)
            given.gradients[i] = PyTuple_GetItem(needs, NEEDS_ROWS + i);
        call.deterministic = told > 0;
        if (told >= 0 && !PyErr_Occurred())
            made = fa2py_run_backward(&call, &given);
    }
    if (made != NULL)
        result = PyTuple_Pack(4, Py_None, PyTuple_GetItem(made, 0), PyTuple_GetItem(made, 1), PyTuple_GetItem(made, 2));
    Py_XDECREF(made);
    Py_XDECREF(needs);
    Py_XDECREF(settings);
    return result;
}

/* A node's apply(d_out). The Function's own backward serves packed tensors, and calls that autograd records. */
static PyObject *backward(PyObject *ctx, PyObject *d_out)
{
    const int records = fa2py_torch_records();
    PyObject *saved = records < 0 ? NULL : PyObject_GetAttr(ctx, names[SAVED_TENSORS]), *result = NULL;
    if (saved != NULL && records == 0 && PyTuple_Check(saved) && PyTuple_Size(saved) == SAVED) {
        result = gradients(ctx, saved, d_out);
    } else if (saved != NULL) {
        PyObject *class = PyObject_GetAttrString(ctx, "_forward_cls");
        if (class != NULL)
            result = PyObject_CallMethod(class, "backward", "OO", ctx, d_out);
        Py_XDECREF(class);
    }
    Py_XDECREF(saved);
    return result;
}

/* plain_node(type): makes nodes of this type call `backward` above. */
PyObject *fa2py_plain_node(PyObject *module, PyObject *type)
{
    static PyMethodDef method = {"apply", backward, METH_O, NULL};
    (void)module;
    if (!PyType_Check(type))
        return PyErr_Format(PyExc_TypeError, "plain_node(type)");
    if (!intern_names())
        return NULL;
    PyObject *apply = PyDescr_NewMethod((PyTypeObject *)type, &method);
    const bool ok = apply != NULL && PyObject_SetAttrString(type, "apply", apply) == 0;
    Py_XDECREF(apply);
    if (!ok)
        return NULL;
    Py_RETURN_NONE;
}
