/*
 * fa2's statuses as Python's exceptions, and the check for forked processes.
 *
 * CUDA does not survive a fork: a child that uses a device opened by its parent hangs or crashes. A fork handler marks
 * the child, so that each call only tests a flag.
 */
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include "native.h"

PyObject *fa2py_error;

static bool opened;
static bool forked;

static void in_child(void)
{
    forked = opened;
}

bool fa2py_refuse(PyObject *type, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    PyErr_FormatV(type, format, args);
    va_end(args);
    return false;
}

bool fa2py_errors_init(PyObject *module)
{
    static bool handling; /* true once per process, even if the module is created again */
    if (fa2py_error == NULL)
        fa2py_error = PyErr_NewExceptionWithDoc("fa2_attn.Error",
                                                "A call failed for a reason outside of it: driver, NVRTC, "
                                                "database, kernel.\n\n"
                                                "status: its name in fa2.h, for example \"FA2_E_NO_DRIVER\".",
                                                PyExc_RuntimeError, NULL);
    if (fa2py_error == NULL)
        return false;
    if (!handling && pthread_atfork(NULL, NULL, in_child) != 0)
        return fa2py_refuse(PyExc_MemoryError, "no memory for a fork handler");
    handling = true;
    Py_INCREF(fa2py_error);
    if (PyModule_AddObject(module, "Error", fa2py_error) != 0) {
        Py_DECREF(fa2py_error);
        return false;
    }
    return true;
}

static const char *status_name(fa2_status status)
{
    switch (status) {
#define STATUS_CASE(name, value, text)                                                                                 \
    case name:                                                                                                         \
        return #name;
        FA2_STATUS_LIST(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown";
}

PyObject *fa2py_message(const char *message)
{
    PyObject *text = PyUnicode_FromString(message), *option = PyUnicode_FromString("--db or FA2_DB"),
             *argument = PyUnicode_FromString("database= or FA2_DB"), *result = NULL;
    if (text != NULL && option != NULL && argument != NULL)
        result = PyUnicode_Replace(text, option, argument, -1);
    Py_XDECREF(text);
    Py_XDECREF(option);
    Py_XDECREF(argument);
    return result;
}

static void raise_error(PyObject *message, const char *status)
{
    PyObject *exception = PyObject_CallFunctionObjArgs(fa2py_error, message, NULL);
    PyObject *name = PyUnicode_FromString(status);
    if (exception != NULL && name != NULL && PyObject_SetAttrString(exception, "status", name) == 0)
        PyErr_SetObject(fa2py_error, exception);
    Py_XDECREF(exception);
    Py_XDECREF(name);
}

PyObject *fa2py_raise_with(fa2_status status, const char *message)
{
    PyObject *text = fa2py_message(message);
    PyObject *type = status == FA2_E_INVALID       ? PyExc_ValueError
                     : status == FA2_E_UNSUPPORTED ? PyExc_NotImplementedError
                     : status == FA2_E_MEMORY      ? PyExc_MemoryError
                                                   : NULL;
    if (text != NULL && type != NULL)
        PyErr_SetObject(type, text);
    else if (text != NULL)
        raise_error(text, status_name(status));
    Py_XDECREF(text);
    return NULL;
}

PyObject *fa2py_raise(fa2_status status)
{
    return fa2py_raise_with(status, fa2_last_message());
}

PyObject *fa2py_raise_status(PyObject *module, PyObject *arguments)
{
    const char *text, *message;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "ss:raise_status", &text, &message))
        return NULL;
#define RAISE_IF(name, value, of_name)                                                                                 \
    if (name != FA2_OK && strcmp(text, of_name) == 0)                                                                  \
        return fa2py_raise_with(name, message);
    FA2_STATUS_LIST(RAISE_IF)
#undef RAISE_IF
    return PyErr_Format(PyExc_ValueError, "no status is called \"%s\": %s", text, message);
}

bool fa2py_is_forked(void)
{
    return forked;
}

bool fa2py_check_process(void)
{
    if (!forked)
        return true;
    fa2py_raise_with(FA2_E_CUDA, "this process was forked after fa2 had opened a device, which CUDA does not survive: "
                                 "start it by spawn (multiprocessing.set_start_method(\"spawn\")), or use fa2 first in "
                                 "the child");
    return false;
}

void fa2py_device_is_open(void)
{
    opened = true;
}
