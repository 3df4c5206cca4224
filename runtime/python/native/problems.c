/*
 * fa2_problem as a dict. It follows the library's list of fields, so a new field needs no change here.
 */
#include <string.h>
#include "native.h"
#include "runtime/base/problem.h"

/* Returns the text with a word appended, after a comma unless it is the first word. Takes the reference to text, which
 * may be NULL. */
static PyObject *with_word(PyObject *text, const char *word, bool is_first)
{
    PyObject *longer = text != NULL ? PyUnicode_FromFormat("%U%s%s", text, is_first ? "" : ", ", word) : NULL;
    Py_XDECREF(text);
    return longer;
}

/* Raises ValueError with this text. Takes the reference. */
static void raise_text(PyObject *text)
{
    if (text != NULL)
        PyErr_SetObject(PyExc_ValueError, text);
    Py_XDECREF(text);
}

static void refuse_word(int field, PyObject *value)
{
    const fa2i_field *f = &fa2i_fields[field];
    if (fa2i_field_word(field, f->least) == NULL) {
        char accepted[FA2I_ACCEPTED_CHARS];
        PyErr_Format(PyExc_ValueError, "%s is %R; it must be %s", f->name, value, fa2i_field_accepted(field, accepted));
        return;
    }
    PyObject *text = PyUnicode_FromFormat("%s is %R; it must be one of ", f->name, value);
    for (int32_t i = f->least; i <= f->most; i++)
        text = with_word(text, fa2i_field_word(field, i), i == f->least);
    raise_text(text);
}

static void refuse_field(PyObject *name)
{
    fa2i_nearest meant = {0};
    PyObject *bytes = PyUnicode_Check(name) ? PyUnicode_AsUTF8String(name) : NULL;
    PyErr_Clear(); /* of a name that is no UTF-8: nothing is suggested */
    for (int i = 0; bytes != NULL && i < FA2I_FIELD_COUNT; i++)
        fa2py_nearest_try(&meant, bytes, fa2i_fields[i].name);
    Py_XDECREF(bytes);
    PyObject *text = meant.name != NULL
                         ? PyUnicode_FromFormat("a problem has no field %R%s%s%s", name, FA2PY_MEANT(meant))
                         : PyUnicode_FromFormat("a problem has no field %R; it has ", name);
    for (int i = 0; meant.name == NULL && i < FA2I_FIELD_COUNT; i++)
        text = with_word(text, fa2i_fields[i].name, i == 0);
    raise_text(text);
}

static bool field_value(int field, PyObject *value, int32_t *ret_value)
{
    if (PyUnicode_Check(value)) {
        PyObject *bytes = PyUnicode_AsUTF8String(value);
        const bool known = bytes != NULL && fa2i_field_parse_word(field, PyBytes_AsString(bytes), ret_value);
        Py_XDECREF(bytes);
        if (known)
            return true;
        PyErr_Clear();
        refuse_word(field, value);
        return false;
    }
    PyObject *number = PyNumber_Index(value);
    if (number == NULL) {
        char accepted[FA2I_ACCEPTED_CHARS];
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError, "%s is %R; it must be %s", fa2i_fields[field].name, value,
                         fa2i_field_accepted(field, accepted));
        return false;
    }
    int beyond = 0; /* -1 below, 1 above the range of long long */
    const long long wide = PyLong_AsLongLongAndOverflow(number, &beyond);
    Py_DECREF(number);
    if (beyond != 0 || wide < INT32_MIN || wide > INT32_MAX)
        return fa2py_refuse(PyExc_ValueError, "%s is %R; its limit is %d", fa2i_fields[field].name, value,
                            beyond < 0 || wide < INT32_MIN ? INT32_MIN : INT32_MAX);
    *ret_value = (int32_t)wide;
    return true;
}

static int field_named(PyObject *name)
{
    for (int i = 0; i < FA2I_FIELD_COUNT; i++)
        if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, fa2i_fields[i].name) == 0)
            return i;
    refuse_field(name);
    return -1;
}

bool fa2py_problem_parse(PyObject *fields, fa2_problem *ret_problem)
{
    fa2_problem problem = {.struct_bytes = sizeof problem, .op = FA2_OP_FORWARD};
    bool given[FA2I_FIELD_COUNT] = {false};
    PyObject *name = NULL, *value = NULL;
    Py_ssize_t at = 0;
    if (!PyDict_Check(fields))
        return fa2py_refuse(PyExc_TypeError, "a problem is a dict of its fields, not a %R",
                            (PyObject *)Py_TYPE(fields));
    while (PyDict_Next(fields, &at, &name, &value)) {
        int32_t number = 0;
        const int field = field_named(name);
        if (field < 0 || !field_value(field, value, &number))
            return false;
        fa2i_field_set(&problem, field, number);
        given[field] = true;
    }
    for (int i = FA2I_FIELD_COUNT - 1; i >= 0; i--) { /* backwards, because a needed field may need another */
        const int needs = fa2i_fields[i].needs;
        if (given[i] && needs >= 0 && !given[needs]) {
            fa2i_field_set(&problem, needs, 1); /* giving the field switches the needed one on */
            given[needs] = true;
        }
    }
    for (int i = 0; i < FA2I_FIELD_COUNT; i++) {
        const fa2i_field *f = &fa2i_fields[i];
        if (given[i] || (f->needs >= 0 && fa2i_field_get(&problem, f->needs) == 0))
            continue;
        if (f->missing == FA2I_MISSING_REQUIRED)
            return fa2py_refuse(PyExc_ValueError, "the problem lacks %s", f->name);
        if (f->missing == FA2I_MISSING_SAME_AS || f->needs >= 0 || f->missing_value != 0)
            fa2i_field_set(&problem, i, fa2i_field_missing_value(&problem, i));
    }
    const fa2_status st = fa2i_problem_check(&problem);
    if (st != FA2_OK) {
        fa2py_raise(st);
        return false;
    }
    *ret_problem = problem;
    return true;
}

PyObject *fa2py_problem_dict(const fa2_problem *problem)
{
    PyObject *dict = PyDict_New();
    for (int i = 0; dict != NULL && i < FA2I_FIELD_COUNT; i++) {
        const int32_t number = fa2i_field_get(problem, i);
        const char *word = fa2i_field_word(i, number);
        if (!fa2i_field_is_shown(problem, i))
            continue;
        PyObject *value = word != NULL ? PyUnicode_FromString(word) : PyLong_FromLong(number);
        if (value == NULL || PyDict_SetItemString(dict, fa2i_fields[i].name, value) != 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

PyObject *fa2py_problem_text(PyObject *module, PyObject *fields)
{
    fa2_problem problem;
    (void)module;
    if (!fa2py_problem_parse(fields, &problem))
        return NULL;
    return PyUnicode_FromString(fa2i_problem_argument(&problem).text);
}

void fa2py_nearest_try(fa2i_nearest *nearest, PyObject *text, const char *name)
{
    fa2i_nearest_try(nearest, PyBytes_AsString(text), (size_t)PyBytes_Size(text), name, name);
}

PyObject *fa2py_suggestion(PyObject *module, PyObject *args)
{
    const char *text = NULL;
    PyObject *known = NULL, *best = NULL; /* best belongs to the tuple */
    fa2i_nearest meant = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "sO!:suggestion", &text, &PyTuple_Type, &known))
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_Size(known); i++) {
        PyObject *bytes = PyUnicode_AsUTF8String(PyTuple_GetItem(known, i));
        if (bytes == NULL)
            return NULL;
        const fa2i_nearest before = meant;
        fa2i_nearest_try(&meant, text, strlen(text), PyBytes_AsString(bytes), "");
        if (meant.name != before.name || meant.distance != before.distance)
            best = PyTuple_GetItem(known, i);
        Py_DECREF(bytes);
    }
    return best != NULL ? PyUnicode_FromFormat(", did you mean %U?", best) : PyUnicode_FromString("");
}

PyObject *fa2py_problem_keys(PyObject *module, PyObject *unused)
{
    PyObject *dict = PyDict_New();
    (void)module;
    (void)unused;
    for (int i = 0; dict != NULL && i < FA2I_FIELD_COUNT; i++) {
        PyObject *name = PyUnicode_FromString(fa2i_fields[i].name);
        if (name == NULL || PyDict_SetItemString(dict, fa2i_fields[i].key, name) != 0)
            Py_CLEAR(dict);
        Py_XDECREF(name);
    }
    return dict;
}
