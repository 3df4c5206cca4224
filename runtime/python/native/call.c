/*
 * Parses the arguments of METH_FASTCALL functions without making a tuple or dict, and the settings of a call. Names are
 * compared by address first, because names in a program's text are interned.
 */
#include <math.h>
#include "native.h"
#include "runtime/base/problem.h"

const char *const fa2py_setting_words[FA2PY_SETTINGS] = {
#define SETTING(word, ...) #word,
#include "settings.def"
    "context", "stream"};

const int fa2py_permission_fields[FA2PY_PERMISSIONS] = {
#define SETTING(...)
#define PERMISSION(word, ...) FA2I_FIELD_##word,
#include "settings.def"
};

static const char *word_of(const fa2py_signature *signature, int i)
{
    const int setting = i - signature->settings_at;
    if (setting < 0)
        return signature->words[i];
    return setting < signature->setting_count ? fa2py_setting_words[setting]
                                              : signature->words[i - signature->setting_count];
}

static bool intern(const fa2py_signature *signature)
{
    for (int i = 0; i < signature->count; i++)
        if (signature->interned[i] == NULL &&
            (signature->interned[i] = PyUnicode_InternFromString(word_of(signature, i))) == NULL)
            return false;
    return true;
}

int fa2py_find_parameter(const fa2py_signature *signature, PyObject *name)
{
    for (int i = 0; i < signature->count; i++)
        if (signature->interned[i] == name)
            return i;
    for (int i = 0; i < signature->count; i++)
        if (PyUnicode_CompareWithASCIIString(name, word_of(signature, i)) == 0)
            return i;
    fa2i_nearest meant = {0};
    PyObject *text = PyUnicode_AsUTF8String(name);
    for (int i = 0; text != NULL && i < signature->count; i++)
        fa2py_nearest_try(&meant, text, word_of(signature, i));
    if (text != NULL)
        PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument %R%s%s%s", signature->name, name,
                     FA2PY_MEANT(meant));
    Py_XDECREF(text);
    return -1;
}

bool fa2py_arguments(const fa2py_signature *signature, PyObject *const *args, Py_ssize_t count, PyObject *names,
                     PyObject *values[FA2PY_PARAMETERS_MAX])
{
    const Py_ssize_t named = names != NULL ? PyTuple_Size(names) : 0;
    if (signature->interned[signature->count - 1] == NULL && !intern(signature))
        return false;
    if (count > signature->positional)
        return fa2py_refuse(PyExc_TypeError, "%s() takes %d positional arguments but %zd were given", signature->name,
                            signature->positional, count);
    for (int i = 0; i < FA2PY_PARAMETERS_MAX; i++)
        values[i] = i < count ? args[i] : NULL;
    for (Py_ssize_t i = 0; i < named; i++) {
        const int at = fa2py_find_parameter(signature, PyTuple_GetItem(names, i));
        if (at < 0)
            return false;
        if (values[at] != NULL)
            return fa2py_refuse(PyExc_TypeError, "%s() got multiple values for argument '%s'", signature->name,
                                word_of(signature, at));
        values[at] = args[count + i];
    }
    for (int i = 0; i < signature->required; i++) {
        if (values[i] == NULL)
            return fa2py_refuse(PyExc_TypeError, "%s() is missing its argument '%s'", signature->name,
                                word_of(signature, i));
    }
    return true;
}

PyObject *fa2py_tuple(PyObject *const *values, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *value = values[i] != NULL ? values[i] : Py_None;
        Py_INCREF(value);
        (void)PyTuple_SetItem(tuple, i, value);
    }
    return tuple;
}

/* ---- settings ---- */

static bool is_given(PyObject *value)
{
    return value != NULL && value != Py_None;
}

/* Returns true for a bool, None, 0, 1, or an object with __bool__, like an array's scalar. Texts and lists lack it. */
static bool is_truth(PyObject *value)
{
    int overflow = 0;
    if (PyBool_Check(value) || value == Py_None)
        return true;
    if (PyLong_Check(value)) {
        const long number = PyLong_AsLongAndOverflow(value, &overflow);
        return overflow == 0 && (number == 0 || number == 1);
    }
    PyObject *method = PyFloat_Check(value) ? NULL : PyObject_GetAttrString(value, "__bool__");
    PyErr_Clear();
    Py_XDECREF(method);
    return method != NULL;
}

bool fa2py_parse_truth(PyObject *value, const char *name, bool *ret_truth)
{
    *ret_truth = value == Py_True;
    if (value == NULL || value == Py_False || value == Py_True)
        return true;
    if (!is_truth(value))
        return fa2py_refuse(PyExc_TypeError, "%s is %R; a bool is wanted", name, value);
    const int truth = PyObject_IsTrue(value);
    *ret_truth = truth > 0;
    return truth >= 0;
}

bool fa2py_parse_seed(PyObject *value, const char *name, uint64_t *ret_seed)
{
    *ret_seed = PyLong_AsUnsignedLongLong(value);
    if (!PyErr_Occurred())
        return true;
    if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%s is %R; it must be from 0 to 2^64 - 1", name, value);
    }
    return false;
}

/* Parses a number of dropout_origin. The library checks its value. */
static bool parse_place(PyObject *value, int32_t *ret_place)
{
    int beyond = 0;
    PyObject *number = PyNumber_Index(value);
    const long long wide = number != NULL ? PyLong_AsLongLongAndOverflow(number, &beyond) : -1;
    Py_XDECREF(number);
    *ret_place = (int32_t)wide;
    return number != NULL && beyond == 0 && wide >= INT32_MIN && wide <= INT32_MAX;
}

bool fa2py_parse_origin(PyObject *value, fa2_dropout_origin *ret_origin)
{
    *ret_origin = (fa2_dropout_origin){.row = 0};
    if (!is_given(value))
        return true;
    int32_t *const members[] = {&ret_origin->row, &ret_origin->column, &ret_origin->head, &ret_origin->heads};
    PyObject *four = PySequence_Tuple(value);
    bool ok = four != NULL && PyTuple_Size(four) == 4;
    for (int i = 0; ok && i < 4; i++)
        ok = parse_place(PyTuple_GetItem(four, i), members[i]);
    Py_XDECREF(four);
    if (ok)
        return true;
    PyErr_Clear();
    return fa2py_refuse(
        PyExc_ValueError,
        "dropout_origin is %R; it must be four numbers of 32 bits: the first row, column and head in the whole, "
        "and its heads",
        value);
}

/* Returns a number, or -1 with a TypeError that names it. */
static double number_of(PyObject *value, const char *name)
{
    const double number = PyFloat_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Format(PyExc_TypeError, "%s is %R; it must be a number", name, value);
    return number;
}

bool fa2py_parse_shift(PyObject *value, float *ret_shift)
{
    *ret_shift = is_given(value) ? (float)number_of(value, "distance_shift") : 0;
    return PyErr_Occurred() == NULL;
}

/* Parses a factor, which must be finite and more than 0. If it is not given, the result is 0. */
static bool parse_factor(PyObject *value, const char *name, bool zero_is_none, float *ret_factor)
{
    *ret_factor = 0;
    if (!is_given(value))
        return true;
    const double factor = number_of(value, name);
    if (factor == -1.0 && PyErr_Occurred())
        return false;
    if (zero_is_none && factor == 0)
        return true;
    *ret_factor = (float)factor;
    if (isfinite(*ret_factor) && *ret_factor > 0)
        return true;
    return fa2py_refuse(PyExc_ValueError, "%s is %R; it must be finite and more than 0", name, value);
}

static bool parse_factors(PyObject *const *values, fa2i_factors *factors)
{
#define NOTHING      false
#define ASKED(field) true
#define FA2I_FACTOR(member, needs, keyword, doc)                                                                       \
    &&parse_factor(values[FA2PY_SET_##keyword], #keyword, needs, &factors->member)
    return true
#include "runtime/base/factors.def"
        ;
#undef ASKED
#undef NOTHING
}

/* The library's limit of lengths. A larger bound means all keys. */
enum { BOUND_MAX = 1 << 29 };

static bool parse_bound(PyObject *value, int32_t *ret_bound)
{
    int beyond = 0; /* -1 below, 1 above the range of long long */
    *ret_bound = -1;
    if (value == Py_None)
        return true;
    PyObject *number = PyNumber_Index(value);
    if (number == NULL) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError, "a window's bound is %R; it must be a whole number, or None for all keys",
                         value);
        return false;
    }
    const long long wide = PyLong_AsLongLongAndOverflow(number, &beyond);
    Py_DECREF(number);
    if (beyond == 0 && wide >= 0 && wide <= BOUND_MAX)
        *ret_bound = (int32_t)wide;
    return true;
}

/* NULL and None mean no window. */
static bool parse_window(PyObject *value, int32_t *ret_left, int32_t *ret_right)
{
    *ret_left = *ret_right = -1;
    if (!is_given(value))
        return true;
    const bool unordered = PyDict_Check(value) || PyAnySet_Check(value);
    PyObject *pair = unordered ? NULL : PySequence_Tuple(value);
    if (pair == NULL && PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError))
        return false;
    const bool ok = pair != NULL && PyTuple_Size(pair) == 2;
    const bool parsed =
        ok && parse_bound(PyTuple_GetItem(pair, 0), ret_left) && parse_bound(PyTuple_GetItem(pair, 1), ret_right);
    Py_XDECREF(pair);
    if (!ok) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError,
                     "window is %R; it must be two numbers, the keys before and after the query's own position", value);
    }
    return parsed;
}

PyObject *fa2py_window(PyObject *module, PyObject *value)
{
    int32_t left, right;
    (void)module;
    if (!parse_window(value, &left, &right))
        return NULL;
    return Py_BuildValue("(ii)", (int)left, (int)right);
}

static bool parse_layout(PyObject *value, bool *ret_heads_first)
{
    *ret_heads_first = false;
    if (!is_given(value))
        return true;
    if (PyUnicode_Check(value)) {
        *ret_heads_first = PyUnicode_CompareWithASCIIString(value, "bhsd") == 0;
        if (*ret_heads_first || PyUnicode_CompareWithASCIIString(value, "bshd") == 0)
            return true;
    }
    return fa2py_refuse(PyExc_ValueError, "layout is %R; it must be \"bshd\" or \"bhsd\"", value);
}

static bool parse_permission(PyObject *value, int field, int32_t *ret_number)
{
    *ret_number = 0;
    if (!is_given(value))
        return true;
    for (int32_t i = 0; i <= 1; i++)
        if (PyUnicode_Check(value) ? PyUnicode_CompareWithASCIIString(value, fa2i_field_word(field, i)) == 0
                                   : PyLong_Check(value) && PyLong_AsLong(value) == i) {
            *ret_number = i;
            return true;
        }
    PyErr_Clear(); /* of a number beyond C's */
    return fa2py_refuse(PyExc_ValueError, "%s is %R; it must be \"%s\" or \"%s\"", fa2i_fields[field].name, value,
                        fa2i_field_word(field, 0), fa2i_field_word(field, 1));
}

bool fa2py_parse_partial(PyObject *value, fa2_partial *ret_partial)
{
    static const char *const partial_words[] = {[FA2_PARTIAL_WRITE] = "write", [FA2_PARTIAL_MERGE] = "merge"};
    *ret_partial = FA2_PARTIAL_NONE;
    if (!is_given(value))
        return true;
    for (int i = FA2_PARTIAL_WRITE; i <= FA2_PARTIAL_MERGE; i++)
        if (PyUnicode_Check(value) && PyUnicode_CompareWithASCIIString(value, partial_words[i]) == 0) {
            *ret_partial = (fa2_partial)i;
            return true;
        }
    return fa2py_refuse(PyExc_ValueError, "partial is %R; it must be \"write\" or \"merge\"", value);
}

bool fa2py_parse_permissions(PyObject *const *values, int32_t *ret_numbers)
{
    for (int i = 0; i < FA2PY_PERMISSIONS; i++)
        if (!parse_permission(values[i], fa2py_permission_fields[i], &ret_numbers[i]))
            return false;
    return true;
}

void fa2py_permit(fa2_problem *problem, const int32_t *numbers)
{
    for (int i = 0; i < FA2PY_PERMISSIONS; i++)
        fa2i_field_set(problem, fa2py_permission_fields[i], numbers != NULL ? numbers[i] : 0);
}

/* A stream is a number, or has one: by CUDA's protocol for streams, or by PyTorch's or CuPy's attribute. */
static bool parse_stream(PyObject *value, fa2py_call *call)
{
    static const char *const names[] = {"cuda_stream", "ptr"};
    PyObject *number = NULL, *pair = NULL;
    if (PyLong_Check(value)) {
        number = value;
        Py_INCREF(number);
    } else if ((pair = PyObject_CallMethod(value, "__cuda_stream__", NULL)) != NULL) {
        number = PySequence_GetItem(pair, 1);
        Py_DECREF(pair);
    }
    for (size_t i = 0; number == NULL && i < sizeof names / sizeof *names; i++) {
        PyErr_Clear();
        number = PyObject_GetAttrString(value, names[i]);
    }
    if (number != NULL && PyLong_Check(number)) {
        call->stream = PyLong_AsVoidPtr(number);
        call->has_stream = true;
    } else {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "stream is %R; it must be a CUDA stream, or its address", value);
    }
    Py_XDECREF(number);
    return !PyErr_Occurred();
}

static bool parse_context(PyObject *value, fa2py_call *call)
{
    if (!is_given(value))
        return true;
    if (!fa2py_is_context(value))
        return fa2py_refuse(PyExc_TypeError, "context must be a fa2_attn.Context");
    call->context = (fa2py_context *)value;
    return true;
}

bool fa2py_parse_place(PyObject *context, PyObject *stream, fa2py_call *call)
{
    return parse_context(context, call) && (!is_given(stream) || parse_stream(stream, call));
}

/* Stores the features' tensors, and a seed that is a number. */
static bool parse_features(PyObject *const *values, fa2py_call *call)
{
    for (int i = 0; i < FA2PY_FEATURES; i++)
        if (is_given(values[i]))
            call->features[i] = values[i];
    PyObject *seed = call->features[FA2I_OPERAND_seed_at];
    if (seed == NULL || !PyLong_Check(seed))
        return true;
    call->features[FA2I_OPERAND_seed_at] = NULL;
    call->has_seed = true;
    return fa2py_parse_seed(seed, "dropout_seed", &call->seed);
}

static bool parse_probability(PyObject *value, float *ret_p)
{
    const double p = is_given(value) ? number_of(value, "dropout_p") : 0;
    *ret_p = (float)p;
    if (PyErr_Occurred())
        return false;
    if (p >= 0 && p < 1)
        return true;
    return fa2py_refuse(PyExc_ValueError, "dropout_p is %R; it must be at least 0 and less than 1", value);
}

static bool parse_length(PyObject *value, const char *name, int32_t *ret_length)
{
    PyObject *number = is_given(value) ? PyNumber_Index(value) : NULL;
    const long long wide = number != NULL ? PyLong_AsLongLong(number) : 0;
    Py_XDECREF(number);
    if (PyErr_Occurred())
        return false;
    *ret_length = is_given(value) ? (int32_t)wide : -1;
    if (wide >= 0 && wide <= INT32_MAX)
        return true;
    return fa2py_refuse(PyExc_ValueError, "%s is %lld; it must be from 0 to %d", name, wide, INT32_MAX);
}

/* Checks that the arguments of packed sequences are complete. */
static bool check_packed(const fa2py_call *call)
{
    const bool q = call->features[FA2I_OPERAND_cu_seqlens_q] != NULL,
               k = call->features[FA2I_OPERAND_cu_seqlens_k] != NULL,
               paged = call->features[FA2I_OPERAND_block_table] != NULL;
    const char *wrong = NULL;
    if (q != k)
        wrong = "cu_seqlens_q and cu_seqlens_k are given together";
    else if (q && (call->max_seqlen_q < 0 || call->max_seqlen_k < 0))
        wrong = "max_seqlen_q and max_seqlen_k must be given beside cu_seqlens_q";
    else if (!q && (call->max_seqlen_q > 0 || (call->max_seqlen_k > 0 && !paged)))
        wrong = "max_seqlen_q and max_seqlen_k are for packed sequences: cu_seqlens_q is missing";
    if (wrong != NULL)
        PyErr_SetString(PyExc_ValueError, wrong);
    return wrong == NULL;
}

bool fa2py_check_new(PyObject *const *features)
{
    const bool k_new = is_given(features[FA2I_OPERAND_new_k]), v_new = is_given(features[FA2I_OPERAND_new_v]),
               cos = is_given(features[FA2I_OPERAND_rotary_cos]), sin = is_given(features[FA2I_OPERAND_rotary_sin]);
    const char *wrong = NULL;
    if (k_new != v_new)
        wrong = "k_new and v_new are given together";
    else if (cos != sin)
        wrong = "rotary_cos and rotary_sin are given together";
    else if (cos && !k_new)
        wrong = "rotary embedding is of new keys: give k_new and v_new beside rotary_cos";
    if (wrong != NULL)
        PyErr_SetString(PyExc_ValueError, wrong);
    return wrong == NULL;
}

bool fa2py_parse_settings(PyObject *const *values, fa2py_call *call)
{
    return fa2py_parse_truth(values[FA2PY_SET_causal], "causal", &call->causal) &&
           parse_window(values[FA2PY_SET_window], &call->window_left, &call->window_right) &&
           parse_factors(values, &call->factors) && parse_layout(values[FA2PY_SET_layout], &call->heads_first) &&
           parse_features(values + FA2PY_SET_FEATURES, call) &&
           parse_probability(values[FA2PY_SET_dropout_p], &call->dropout_p) &&
           parse_length(values[FA2PY_SET_max_seqlen_q], "max_seqlen_q", &call->max_seqlen_q) &&
           parse_length(values[FA2PY_SET_max_seqlen_k], "max_seqlen_k", &call->max_seqlen_k) &&
           fa2py_parse_truth(values[FA2PY_SET_rotary_interleaved], "rotary_interleaved", &call->rotary_interleaved) &&
           fa2py_parse_permissions(values + FA2PY_SET_PERMISSIONS, call->permissions) && check_packed(call) &&
           fa2py_check_new(values + FA2PY_SET_FEATURES) &&
           fa2py_parse_place(values[FA2PY_SET_context], values[FA2PY_SET_stream], call);
}
