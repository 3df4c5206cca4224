/*
 * PyTorch's scaled_dot_product_attention without its dispatcher, where that changes nothing: no gradient is needed,
 * no mode intercepts the call, no cast is asked for, and fa2 serves the call as it stands. All other calls go to the
 * Python function in fa2_attn/torch.py.
 *
 * PyTorch is not linked. fa2_attn/torch.py passes in the Python functions that answer these questions.
 */
#include <math.h>
#include "native.h"
#include "runtime/base/problem.h"

/* A function without arguments that answers yes or no. A function written in C is called directly, because Python's
 * preparations for a call take longer than the answer. */
typedef struct asked {
    PyObject *function;
    PyCFunction direct; /* NULL: make an ordinary call */
    PyObject *self;     /* borrowed from the function */
} asked;

/* Functions that answer true or > 0 while calls must go through the dispatcher. */
enum { WATCHERS_MAX = 8 };
static asked watchers[WATCHERS_MAX];
static int watcher_count;
static asked grad_enabled;                   /* does requires_grad count? */
static asked deterministic;                  /* must algorithms be deterministic? */
static PyObject *functions[FA2PY_WAY_ERROR]; /* by path */
static PyObject *plain_autograd;             /* for calls without features */
static PyObject *requires_grad;

static void replace(PyObject **place, PyObject *value)
{
    PyObject *old = *place;
    Py_XINCREF(value);
    *place = value;
    Py_XDECREF(old);
}

static void set_asked(asked *place, PyObject *function)
{
    place->direct = NULL;
    replace(&place->function, function);
    if (function != NULL && PyCFunction_Check(function) && PyCFunction_GetFlags(function) == METH_NOARGS) {
        place->self = PyCFunction_GetSelf(function);
        place->direct = PyCFunction_GetFunction(function);
    }
}

static const char set_torch_words[] =
    "set_torch(dispatcher, autograd, plain_autograd, grad_enabled, deterministic, *watchers)";

/* See fa2_attn/_dispatch.py. */
PyObject *fa2py_set_torch(PyObject *module, PyObject *args)
{
    enum { FIRST_WATCHER = 5 };
    const Py_ssize_t count = PyTuple_Size(args);
    (void)module;
    if (count < FIRST_WATCHER || count - FIRST_WATCHER > WATCHERS_MAX)
        return PyErr_Format(PyExc_TypeError, "%s", set_torch_words);
    watcher_count = 0;
    replace(&functions[FA2PY_WAY_DISPATCHER], PyTuple_GetItem(args, 0));
    replace(&functions[FA2PY_WAY_AUTOGRAD], PyTuple_GetItem(args, 1));
    replace(&plain_autograd, PyTuple_GetItem(args, 2));
    set_asked(&grad_enabled, PyTuple_GetItem(args, 3));
    set_asked(&deterministic, PyTuple_GetItem(args, 4));
    for (int i = 0; i < WATCHERS_MAX; i++)
        set_asked(&watchers[i], i + FIRST_WATCHER < count ? PyTuple_GetItem(args, i + FIRST_WATCHER) : NULL);
    watcher_count = (int)count - FIRST_WATCHER;
    if (requires_grad == NULL && (requires_grad = PyUnicode_InternFromString("requires_grad")) == NULL)
        return NULL;
    Py_RETURN_NONE;
}

/* Returns true if an argument is absent, None or False. */
static bool is_off(PyObject *value)
{
    return value == NULL || value == Py_None || value == Py_False;
}

/* The same for dropout_p, which callers give as a number. */
static bool is_zero(PyObject *value)
{
    return is_off(value) || (PyFloat_Check(value) && PyFloat_AsDouble(value) == 0);
}

/* Returns the settings of a plain autograd call as a tuple, with None for deterministic. values: all `count` arguments,
 * q, k and v first. Returns NULL without an exception if the call has features. */
static PyObject *plain_settings(PyObject *const *values, int count)
{
    PyObject *const *settings = values + 3;
    for (int i = FA2PY_SET_FEATURES; i < count - 3; i++)
        if (i != FA2PY_SET_context && !(i == FA2PY_SET_dropout_p ? is_zero(settings[i]) : is_off(settings[i])))
            return NULL;
    PyObject *plain[FA2PY_PLAIN_SETTINGS] = {NULL};
    for (int i = 0; i < FA2PY_PLAIN_DETERMINISTIC; i++)
        plain[i] = settings[fa2py_plain_place(i)];
    return fa2py_tuple(plain, FA2PY_PLAIN_SETTINGS);
}

PyObject *fa2py_torch_call(fa2py_way way, PyObject *const *values, int count)
{
    PyObject *settings = way == FA2PY_WAY_AUTOGRAD ? plain_settings(values, count) : NULL;
    if (settings != NULL) {
        PyObject *out = PyObject_CallFunctionObjArgs(plain_autograd, settings, values[0], values[1], values[2], NULL);
        Py_DECREF(settings);
        return out;
    }
    if (PyErr_Occurred())
        return NULL;
    PyObject *tuple = fa2py_tuple(values, count);
    PyObject *result = tuple != NULL ? PyObject_CallObject(functions[way], tuple) : NULL;
    Py_XDECREF(tuple);
    return result;
}

/* Returns the truth of a result, -1 for NULL. Takes the reference. */
static int truth_of(PyObject *value)
{
    if (value == NULL)
        return -1;
    const int truth = value == Py_False || value == Py_None ? 0 : value == Py_True ? 1 : PyObject_IsTrue(value);
    Py_DECREF(value);
    return truth;
}

static int ask(const asked *place)
{
    return truth_of(place->direct != NULL ? place->direct(place->self, NULL)
                                          : PyObject_CallObject(place->function, NULL));
}

int fa2py_torch_records(void)
{
    return grad_enabled.function != NULL ? ask(&grad_enabled) : 0;
}

int fa2py_torch_is_deterministic(void)
{
    return deterministic.function != NULL ? ask(&deterministic) : 0;
}

/* Returns 1 if nothing intercepts calls, else 0, or -1 with an exception. */
static int is_unwatched(void)
{
    for (int i = 0; i < watcher_count; i++) {
        const int busy = ask(&watchers[i]);
        if (busy != 0)
            return busy < 0 ? -1 : 0;
    }
    return 1;
}

fa2py_way fa2py_torch_way(PyObject *const *tensors, int count)
{
    bool of_torch[FA2PY_PARAMETERS_MAX], any = false;
    for (int i = 0; i < count; i++) {
        of_torch[i] = false;
        if (i >= 3 && (tensors[i] == NULL || tensors[i] == Py_None))
            continue;
        const fa2py_framework *framework = fa2py_framework_of(tensors[i]);
        if (framework == NULL)
            return FA2PY_WAY_ERROR;
        if (framework->kind == FA2PY_TORCH_SUBTYPE)
            return FA2PY_WAY_DISPATCHER;
        of_torch[i] = framework->kind == FA2PY_TORCH;
        any = any || of_torch[i];
    }
    const int unwatched = any ? is_unwatched() : 1;
    if (unwatched <= 0)
        return unwatched < 0 ? FA2PY_WAY_ERROR : FA2PY_WAY_DISPATCHER;
    const int grad = any ? fa2py_torch_records() : 0;
    if (grad <= 0)
        return grad < 0 ? FA2PY_WAY_ERROR : FA2PY_WAY_PLAIN;
    for (int i = 0; i < count; i++) {
        const int needed = of_torch[i] ? truth_of(PyObject_GetAttr(tensors[i], requires_grad)) : 0;
        if (needed != 0)
            return needed < 0 ? FA2PY_WAY_ERROR : FA2PY_WAY_AUTOGRAD;
    }
    return FA2PY_WAY_PLAIN;
}

/* ---- scaled_dot_product_attention ---- */

/* PyTorch's parameters, then fa2's own, which are given by keyword. */
enum { QUERY, KEY, VALUE, ATTN_MASK, DROPOUT_P, IS_CAUSAL, SCALE, ENABLE_GQA, PERMISSIONS };
enum { SDPA_COUNT = PERMISSIONS + FA2PY_PERMISSIONS };

static const char *const words[SDPA_COUNT] = {
    "query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa",
#define SETTING(...)
#define PERMISSION(word, ...) #word,
#include "settings.def"
};
static PyObject *interned[SDPA_COUNT], *interned_in_place[PERMISSIONS];
static const fa2py_signature signature = {
    "scaled_dot_product_attention", SDPA_COUNT, PERMISSIONS, 3, words, 0, 0, interned};
static const fa2py_signature in_place_signature = {
    "scaled_dot_product_attention", PERMISSIONS, PERMISSIONS, 3, words, 0, 0, interned_in_place};

/* The permissions that replace_sdpa gives to the function in PyTorch's place. NULL: none. */
static PyObject *permitted[FA2PY_PERMISSIONS];

/* Returns true if fa2 takes the shapes as they are: D is a multiple of 8, lengths are equal if causal (PyTorch aligns
 * the mask top-left), and heads are equal unless groups are asked for. */
static bool shapes_fit(const fa2py_call *call, const int64_t *q, const int64_t *k, const int64_t *v)
{
    return q[3] % 8 == 0 && v[3] == q[3] && (!call->causal || q[2] == k[2]) && (q[1] == k[1] || call->shares_heads);
}

static bool operands_fit(const fa2py_call *call, const fa2py_operand operands[3])
{
    return shapes_fit(call, operands[0].shape, operands[1].shape, operands[2].shape);
}

/* The same for tensors that are not open. */
static bool tensors_fit(const fa2py_framework *framework, const fa2py_call *call)
{
    dl_tensor t[3];
    for (int i = 0; i < 3; i++) {
        if (framework->exchange->view_object(call->tensors[i], &t[i]) != 0) {
            PyErr_Clear(); /* it cannot be viewed */
            return false;
        }
        if (t[i].ndim != 4 || t[i].device.type != DL_CUDA || t[i].dtype.bits != 16)
            return false;
    }
    return shapes_fit(call, t[0].shape, t[1].shape, t[2].shape);
}

/* Chooses the path of a call. FA2PY_WAY_DISPATCHER means the Python function. */
static fa2py_way sdpa_way(PyObject *const *values, fa2py_call *call)
{
    double dropout = 0, scale = 0;
    int32_t permissions[FA2PY_PERMISSIONS];
    bool scale_fits = true;
    if (!fa2py_parse_permissions(values + PERMISSIONS, permissions))
        return FA2PY_WAY_ERROR;
    if (!is_off(values[ATTN_MASK]))
        return FA2PY_WAY_DISPATCHER;
    const fa2py_framework *framework = fa2py_framework_of(values[QUERY]);
    if (framework == NULL)
        return FA2PY_WAY_ERROR;
    if (framework->kind != FA2PY_TORCH || framework->exchange == NULL || framework->exchange->view_object == NULL ||
        Py_TYPE(values[KEY]) != framework->type || Py_TYPE(values[VALUE]) != framework->type)
        return FA2PY_WAY_DISPATCHER;
    const fa2py_way way = fa2py_torch_way(values, 3);
    if (way == FA2PY_WAY_DISPATCHER || way == FA2PY_WAY_ERROR)
        return way;
    const int causal = values[IS_CAUSAL] == NULL ? 0 : PyObject_IsTrue(values[IS_CAUSAL]);
    if (values[DROPOUT_P] != NULL)
        dropout = PyFloat_AsDouble(values[DROPOUT_P]);
    if (values[SCALE] != NULL && values[SCALE] != Py_None) {
        scale = PyFloat_AsDouble(values[SCALE]);
        /* as a float, like fa2i_factors, where 0 means "not given" */
        scale_fits = (float)scale > 0 && isfinite((float)scale);
    }
    if (PyErr_Occurred())
        return FA2PY_WAY_ERROR;
    *call = (fa2py_call){.tensors = {values[QUERY], values[KEY], values[VALUE]},
                         .causal = causal > 0,
                         .heads_first = true,
                         .window_left = -1,
                         .window_right = -1,
                         .factors.softmax_scale = (float)scale,
                         .fits = operands_fit,
                         .shares_heads = !is_off(values[ENABLE_GQA])};
    memcpy(call->permissions, permissions, sizeof permissions);
    const bool fits = dropout == 0 && scale_fits && (way == FA2PY_WAY_PLAIN || tensors_fit(framework, call));
    return fits ? way : FA2PY_WAY_DISPATCHER;
}

/* Makes an attention call that needs a gradient. */
static PyObject *differentiable(PyObject *const *values)
{
    enum { SETTINGS = VALUE + 1, COUNT = SETTINGS + FA2PY_SETTINGS + 2 };
    PyObject *all[COUNT] = {values[QUERY], values[KEY], values[VALUE]};
    static PyObject *layout;
    if (layout == NULL && (layout = PyUnicode_InternFromString("bhsd")) == NULL)
        return NULL;
    all[SETTINGS + FA2PY_SET_causal] = values[IS_CAUSAL];
    all[SETTINGS + FA2PY_SET_scale] = values[SCALE];
    all[SETTINGS + FA2PY_SET_layout] = layout;
    memcpy(all + SETTINGS + FA2PY_SET_PERMISSIONS, values + PERMISSIONS, sizeof permitted);
    return fa2py_torch_call(FA2PY_WAY_AUTOGRAD, all, COUNT);
}

/* Raises TypeError as PyTorch does: for None where it is not the default, and for a text where a bool is expected. */
static bool check_settings(PyObject *const *values)
{
    static const int never[] = {DROPOUT_P, IS_CAUSAL, ENABLE_GQA};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        if (values[never[i]] == Py_None)
            return fa2py_refuse(PyExc_TypeError, "sdpa(): %s is None; it must be a %s", words[never[i]],
                                never[i] == DROPOUT_P ? "number" : "bool");
    }
    bool truth = false;
    return fa2py_parse_truth(values[IS_CAUSAL], words[IS_CAUSAL], &truth) &&
           fa2py_parse_truth(values[ENABLE_GQA], words[ENABLE_GQA], &truth);
}

/* Returns true if the Python function may still serve a call that failed with the current exception. In PyTorch's
 * place, it takes over after any exception, so that PyTorch's own function decides. */
static bool is_refusal(bool in_place)
{
    return PyErr_ExceptionMatches(in_place ? PyExc_Exception : PyExc_NotImplementedError) ||
           PyErr_ExceptionMatches(PyExc_ValueError) || PyErr_ExceptionMatches(fa2py_error);
}

/* Calls a function of the module with all arguments. Arguments that were not given get their defaults. */
static PyObject *call_slow(PyObject *module, const char *name, PyObject *const *values)
{
    PyObject *all[SDPA_COUNT] = {[IS_CAUSAL] = Py_False, [ENABLE_GQA] = Py_False}, *result = NULL;
    for (int i = 0; i < SDPA_COUNT; i++)
        all[i] = values[i] != NULL ? values[i] : all[i];
    PyObject *tuple = fa2py_tuple(all, SDPA_COUNT);
    PyObject *function = PyObject_GetAttrString(module, name);
    if (tuple != NULL && function != NULL)
        result = PyObject_CallObject(function, tuple);
    Py_XDECREF(function);
    Py_XDECREF(tuple);
    return result;
}

/* Calls PyTorch's own function with the arguments as they were given. */
static PyObject *call_torch(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    const Py_ssize_t named = names != NULL ? PyTuple_Size(names) : 0;
    PyObject *tuple = fa2py_tuple(args, count), *keywords = PyDict_New(), *result = NULL;
    PyObject *function = PyObject_GetAttrString(module, "_torch_sdpa");
    bool ok = tuple != NULL && keywords != NULL && function != NULL;
    for (Py_ssize_t i = 0; ok && i < named; i++)
        ok = PyDict_SetItem(keywords, PyTuple_GetItem(names, i), args[count + i]) == 0;
    if (ok)
        result = PyObject_Call(function, tuple, keywords);
    Py_XDECREF(function);
    Py_XDECREF(keywords);
    Py_XDECREF(tuple);
    return result;
}

/* self: the module fa2_attn.torch, which has the Python functions for all other calls. Because self is a module, pickle
 * finds the function by its name. in_place: it replaces PyTorch's own function. */
static PyObject *attend(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names, bool in_place)
{
    PyObject *values[FA2PY_PARAMETERS_MAX], *result = NULL;
    fa2py_call call;
    fa2py_way way = FA2PY_WAY_ERROR;
    const fa2py_signature *parameters = in_place ? &in_place_signature : &signature;
    if (fa2py_arguments(parameters, args, count, names, values) && check_settings(values)) {
        if (in_place)
            memcpy(values + PERMISSIONS, permitted, sizeof permitted);
        way = sdpa_way(values, &call);
    }
    if (way == FA2PY_WAY_ERROR) {
        if (!in_place || !is_refusal(true))
            return NULL;
        PyErr_Clear();
        return call_torch(self, args, count, names);
    }
    if (way != FA2PY_WAY_DISPATCHER) {
        result = way == FA2PY_WAY_PLAIN ? fa2py_run(&call) : differentiable(values);
        if (result != NULL || (PyErr_Occurred() && !is_refusal(in_place)))
            return result;
        PyErr_Clear(); /* the Python function will meet the error again */
    }
    return call_slow(self, in_place ? "_sdpa_or_torch" : "_sdpa", values);
}

static PyObject *sdpa(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    return attend(self, args, count, names, false);
}

static PyObject *patched_sdpa(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    return attend(self, args, count, names, true);
}

/* permit_sdpa(*permissions): what the function in PyTorch's place permits from now on, in the order of settings.def. */
PyObject *fa2py_permit_sdpa(PyObject *module, PyObject *args)
{
    PyObject *given[FA2PY_PERMISSIONS];
    int32_t numbers[FA2PY_PERMISSIONS];
    (void)module;
    if (PyTuple_Size(args) != FA2PY_PERMISSIONS)
        return PyErr_Format(PyExc_TypeError, "permit_sdpa takes %d values", (int)FA2PY_PERMISSIONS);
    for (int i = 0; i < FA2PY_PERMISSIONS; i++)
        given[i] = PyTuple_GetItem(args, i);
    if (!fa2py_parse_permissions(given, numbers))
        return NULL;
    for (int i = 0; i < FA2PY_PERMISSIONS; i++) {
        PyObject *old = permitted[i];
        Py_INCREF(given[i]);
        permitted[i] = given[i];
        Py_XDECREF(old);
    }
    Py_RETURN_NONE;
}

#define SDPA_PARAMETERS                                                                                                \
    "query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False"

/* make_sdpa(module, in_place) */
PyObject *fa2py_make_sdpa(PyObject *module, PyObject *args)
{
    static PyMethodDef methods[] = {
        {"sdpa", (PyCFunction)(void (*)(void))sdpa, METH_FASTCALL | METH_KEYWORDS,
         "sdpa(" SDPA_PARAMETERS ", *"
#define SETTING(...)
#define PERMISSION(word, default, ...) ", " #word "=" #default
#include "settings.def"
         ")\n--\n\n"
         "torch.nn.functional.scaled_dot_product_attention on fa2's kernels.\n\n"
         "query: [B, Hq, Sq, D]; key, value: [B, Hkv, Sk, D], float16, bfloat16 or float32 on a "
         "CUDA device. float32 has no gradients.\n"
         "Leading dimensions are broadcast as in PyTorch. Tensors that a kernel cannot read in place are copied.\n"
         "Returns [B, Hq, Sq, D] in query's layout. is_causal is PyTorch's: aligned top-left.\n"
         "The keywords after * are permissions to be less exact, as for attention.\n"
         "Raises NotImplementedError for calls that fa2 cannot serve."},
        {"_patched_sdpa", (PyCFunction)(void (*)(void))patched_sdpa, METH_FASTCALL | METH_KEYWORDS,
         "_patched_sdpa(" SDPA_PARAMETERS ")\n--\n\n"
         "sdpa. Calls that it cannot serve go to PyTorch's own function."}};
    PyObject *owner = NULL, *name = NULL, *made = NULL;
    int in_place = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "Op:make_sdpa", &owner, &in_place))
        return NULL;
    if ((name = PyObject_GetAttrString(owner, "__name__")) != NULL)
        made = PyCFunction_NewEx(&methods[in_place], owner, name);
    Py_XDECREF(name);
    return made;
}
