/*
 * Tensors of any library, by DLPack.
 *
 * - The description of a tensor's type is found once and kept with the type. Types are few.
 * - With an exchange table, a view is one C call that takes no reference, because the caller of fa2 holds the tensor.
 *   Without a table, a capsule is requested, used and released.
 * - Nothing here waits for a stream. Either we launch on the library's current stream, or __dlpack__ orders the
 *   library's work before ours.
 */
#include <stdlib.h>
#include "native.h"

static fa2py_framework *known; /* the newest first */

/* Returns the exchange table of version 1 that the type offers, or NULL without an exception. */
static const dl_exchange *find_exchange(PyTypeObject *type)
{
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    const dl_exchange_header *header = NULL;
    if (capsule != NULL && PyCapsule_IsValid(capsule, "dlpack_exchange_api"))
        header = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    PyErr_Clear();
    Py_XDECREF(capsule); /* the table lives as long as the process */
    while (header != NULL && header->version.major != DL_MAJOR)
        header = header->previous;
    return (const dl_exchange *)header;
}

static PyObject *optional(PyObject *answer, int index)
{
    PyObject *value = PyTuple_GetItem(answer, index); /* borrowed; the tuple has seven items */
    if (value == NULL || value == Py_None)
        return NULL;
    Py_INCREF(value);
    return value;
}

/* Asks fa2_attn/_frameworks.py about the type. */
static bool describe(PyTypeObject *type, fa2py_framework *framework)
{
    PyObject *frameworks_module = PyImport_ImportModule("fa2_attn._frameworks");
    PyObject *answer = NULL;
    if (frameworks_module != NULL)
        answer = PyObject_CallMethod(frameworks_module, "describe", "O", (PyObject *)type);
    Py_XDECREF(frameworks_module);
    if (answer == NULL)
        return false;
    if (!PyTuple_Check(answer) || PyTuple_Size(answer) != 7) {
        PyErr_SetString(PyExc_TypeError, "fa2_attn._frameworks.describe must return a tuple of seven");
        Py_DECREF(answer);
        return false;
    }
    framework->type = type;
    framework->kind = (fa2py_kind)PyLong_AsLong(PyTuple_GetItem(answer, 0));
    framework->empty_like = optional(answer, 1);
    framework->empty = optional(answer, 2);
    framework->stream = optional(answer, 3);
    framework->plain = optional(answer, 4);
    framework->copy = optional(answer, 5);
    framework->lends = optional(answer, 6);
    Py_DECREF(answer);
    return !PyErr_Occurred();
}

static void forget(fa2py_framework *framework)
{
    Py_XDECREF(framework->empty_like);
    Py_XDECREF(framework->empty);
    Py_XDECREF(framework->stream);
    Py_XDECREF(framework->plain);
    Py_XDECREF(framework->copy);
    Py_XDECREF(framework->lends);
    free(framework);
}

const fa2py_framework *fa2py_framework_of(PyObject *tensor)
{
    PyTypeObject *type = Py_TYPE(tensor);
    for (fa2py_framework *f = known; f != NULL; f = f->next)
        if (f->type == type)
            return f;

    fa2py_framework *found = calloc(1, sizeof *found);
    if (found == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (!describe(type, found)) {
        forget(found);
        return NULL;
    }
    found->exchange = find_exchange(type);
    Py_INCREF((PyObject *)type);
    found->next = known;
    known = found;
    return found;
}

/* ---- where, and on which stream ---- */

static bool no_tensor(PyObject *object, const char *name)
{
    PyObject *type = (PyObject *)Py_TYPE(object);
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_AttributeError))
        return false;
    PyErr_Clear();
    return fa2py_refuse(PyExc_TypeError, "%s is a %R; it must be a tensor that speaks DLPack (__dlpack__)", name, type);
}

/* Reads a whole number of 32 bits, or an enumeration member. Returns false otherwise. An exception is set only if the
 * conversion raised one. */
static bool number_of(PyObject *value, int32_t *ret_number)
{
    PyObject *number = PyIndex_Check(value) ? PyNumber_Index(value) : NULL;
    if (number == NULL)
        return false;
    int beyond = 0; /* -1 below, 1 above the range of long long */
    const long long wide = PyLong_AsLongLongAndOverflow(number, &beyond);
    Py_DECREF(number);
    *ret_number = (int32_t)wide;
    return beyond == 0 && wide == *ret_number;
}

bool fa2py_device_of(PyObject *tensor, const char *name, dl_device *ret_device)
{
    PyObject *answer = PyObject_CallMethod(tensor, "__dlpack_device__", NULL);
    if (answer == NULL)
        return no_tensor(tensor, name);
    const bool ok = PyTuple_Check(answer) && PyTuple_Size(answer) == 2 &&
                    number_of(PyTuple_GetItem(answer, 0), &ret_device->type) &&
                    number_of(PyTuple_GetItem(answer, 1), &ret_device->id);
    if (!ok && !PyErr_Occurred())
        PyErr_Format(PyExc_ValueError,
                     "%s answers __dlpack_device__ with %R; it must be a tuple of two numbers, the "
                     "device's DLPack type and which one it is",
                     name, answer);
    Py_DECREF(answer);
    return ok;
}

bool fa2py_current_stream(const fa2py_framework *framework, int device, void **ret_stream)
{
    *ret_stream = NULL;
    if (framework->exchange != NULL)
        return framework->exchange->current_stream(DL_CUDA, device, ret_stream) == 0;
    if (framework->stream == NULL)
        return true; /* the default stream; __dlpack__ makes it wait for the library's work */
    PyObject *answer = PyObject_CallFunction(framework->stream, "i", device);
    if (answer == NULL)
        return false;
    *ret_stream = PyLong_AsVoidPtr(answer);
    Py_DECREF(answer);
    return !PyErr_Occurred();
}

/* ---- views ---- */

static void release_versioned(void *keep)
{
    dl_managed_versioned *managed = keep;
    if (managed->deleter != NULL)
        managed->deleter(managed);
}

static void release_managed(void *keep)
{
    dl_managed *managed = keep;
    if (managed->deleter != NULL)
        managed->deleter(managed);
}

static bool take_versioned(dl_managed_versioned *managed, const char *name, fa2py_view *view)
{
    if (managed->version.major != DL_MAJOR) {
        PyErr_Format(PyExc_BufferError, "%s speaks DLPack %u; fa2 knows %d", name, (unsigned)managed->version.major,
                     DL_MAJOR);
        release_versioned(managed);
        return false;
    }
    view->tensor = managed->tensor;
    view->read_only = (managed->flags & DL_READ_ONLY) != 0;
    view->keep = managed;
    view->release = release_versioned;
    return true;
}

/* Takes the tensor out of a capsule of __dlpack__, and marks the capsule as used. */
static bool take_capsule(PyObject *capsule, const char *name, fa2py_view *view)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        dl_managed_versioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        return PyCapsule_SetName(capsule, "used_dltensor_versioned") == 0 && take_versioned(managed, name, view);
    }
    if (!PyCapsule_IsValid(capsule, "dltensor"))
        return fa2py_refuse(PyExc_ValueError,
                            "%s answers __dlpack__ with %R; it must be a capsule named dltensor or "
                            "dltensor_versioned that nobody has taken yet",
                            name, capsule);
    dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
    if (PyCapsule_SetName(capsule, "used_dltensor") != 0)
        return false;
    view->tensor = managed->tensor;
    view->keep = managed;
    view->release = release_managed;
    return true;
}

/* Calls tensor.__dlpack__(stream=..., max_version=(1, 0)), without max_version if that is not known. */
static PyObject *ask_capsule(PyObject *tensor, void *stream)
{
    /* The protocol's number of the default stream is 1, because 0 is ambiguous. */
    PyObject *number = stream == NULL ? PyLong_FromLong(1) : PyLong_FromVoidPtr(stream);
    PyObject *method = PyObject_GetAttrString(tensor, "__dlpack__");
    PyObject *none = PyTuple_New(0);
    PyObject *names = NULL, *capsule = NULL;
    if (number != NULL && method != NULL && none != NULL)
        names = Py_BuildValue("{s:O,s:(ii)}", "stream", number, "max_version", DL_MAJOR, 0);
    if (names != NULL)
        capsule = PyObject_Call(method, none, names);
    if (names != NULL && capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        if (PyDict_DelItemString(names, "max_version") == 0)
            capsule = PyObject_Call(method, none, names);
    }
    Py_XDECREF(names);
    Py_XDECREF(none);
    Py_XDECREF(method);
    Py_XDECREF(number);
    return capsule;
}

static bool open_by_capsule(const fa2py_framework *framework, PyObject *tensor, const char *name, void *stream,
                            fa2py_view *view)
{
    PyObject *plain = tensor;
    if (framework->plain != NULL)
        plain = PyObject_CallFunctionObjArgs(framework->plain, tensor, NULL);
    else
        Py_INCREF(plain);
    PyObject *capsule = plain != NULL ? ask_capsule(plain, stream) : NULL;
    Py_XDECREF(plain);
    if (capsule == NULL)
        return no_tensor(tensor, name);
    const bool ok = take_capsule(capsule, name, view);
    Py_DECREF(capsule);
    return ok;
}

static bool open_by_exchange(const dl_exchange *exchange, PyObject *tensor, const char *name, fa2py_view *view)
{
    dl_managed_versioned *managed = NULL;
    if (exchange->view_object != NULL)
        return exchange->view_object(tensor, &view->tensor) == 0;
    return exchange->from_object(tensor, &managed) == 0 && take_versioned(managed, name, view);
}

/* Returns true if the library says that such a tensor is never lent. */
static bool is_not_lent(const fa2py_framework *framework, PyObject *tensor)
{
    PyObject *answer = framework->lends != NULL ? PyObject_CallFunctionObjArgs(framework->lends, tensor, NULL) : NULL;
    PyErr_Clear(); /* no answer: then the view failed for another reason */
    Py_XDECREF(answer);
    return answer == Py_False;
}

/* For tensors that it cannot lend, PyTorch raises a RuntimeError whose text contains its own stack. This replaces it
 * by a ValueError of one line, with the RuntimeError as its cause. Other RuntimeErrors, such as a driver's, stay. */
static void say_not_lent(const fa2py_framework *framework, PyObject *tensor, const char *name)
{
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    if (kind != PyExc_RuntimeError || !is_not_lent(framework, tensor)) {
        PyErr_Restore(kind, value, trace);
        return;
    }
    PyErr_NormalizeException(&kind, &value, &trace);
    if (trace != NULL)
        PyException_SetTraceback(value, trace);
    PyObject *text = PyObject_Str(value);
    PyObject *lines = text != NULL ? PyUnicode_Splitlines(text, 0) : NULL;
    PyObject *first = lines != NULL && PyList_Size(lines) > 0 ? PyList_GetItem(lines, 0) : kind;
    PyObject *said_kind, *said, *said_trace;
    PyErr_Format(PyExc_ValueError, "%s cannot be lent by DLPack: %S", name, first);
    PyErr_Fetch(&said_kind, &said, &said_trace);
    PyErr_NormalizeException(&said_kind, &said, &said_trace);
    PyException_SetCause(said, value); /* takes the reference */
    PyErr_Restore(said_kind, said, said_trace);
    Py_XDECREF(lines);
    Py_XDECREF(text);
    Py_XDECREF(kind);
    Py_XDECREF(trace);
}

bool fa2py_view_open(const fa2py_framework *framework, PyObject *tensor, const char *name, void *stream,
                     fa2py_view *ret_view)
{
    fa2py_view view = {.keep = NULL};
    const bool ok = framework->exchange != NULL ? open_by_exchange(framework->exchange, tensor, name, &view)
                                                : open_by_capsule(framework, tensor, name, stream, &view);
    if (ok)
        *ret_view = view;
    else
        say_not_lent(framework, tensor, name);
    return ok;
}

void fa2py_view_done(fa2py_view *view)
{
    if (view->release != NULL) {
        PyObject *kind, *value, *trace;
        PyErr_Fetch(&kind, &value, &trace); /* because a deleter may run Python code, which would lose it */
        view->release(view->keep);
        PyErr_Restore(kind, value, trace);
    }
    *view = (fa2py_view){.keep = NULL};
}

/* ---- new tensors ---- */

static void set_exchange_error(void *context, const char *kind, const char *message)
{
    (void)context;
    PyGILState_STATE state = PyGILState_Ensure();
    PyErr_Format(PyExc_MemoryError, "%s: %s", kind, message);
    PyGILState_Release(state);
}

static dl_managed_versioned *exchange_allocate(const dl_exchange *exchange, dl_device device, dl_dtype dtype, int ndim,
                                               const int64_t *shape)
{
    dl_managed_versioned *made = NULL;
    dl_tensor prototype = {.device = device, .dtype = dtype, .ndim = ndim};
    prototype.shape = (int64_t *)(uintptr_t)shape; /* only read, although not declared const */
    if (exchange->allocate(&prototype, &made, NULL, set_exchange_error) != 0)
        return NULL;
    return made;
}

static PyObject *exchange_new(const dl_exchange *exchange, dl_device device, dl_dtype dtype, int ndim,
                              const int64_t *shape)
{
    void *object = NULL;
    dl_managed_versioned *made = exchange_allocate(exchange, device, dtype, ndim, shape);
    if (made == NULL || exchange->to_object(made, &object) != 0)
        return NULL;
    return object;
}

static PyObject *no_allocator(PyObject *like, const char *argument)
{
    return PyErr_Format(PyExc_ValueError,
                        "fa2 cannot make a %R: give %s, a tensor that is written to (see the package's README "
                        "for this library)",
                        (PyObject *)Py_TYPE(like), argument);
}

PyObject *fa2py_empty_like(const fa2py_framework *framework, PyObject *like, const dl_tensor *view,
                           const char *argument)
{
    if (framework->empty_like != NULL)
        return PyObject_CallFunctionObjArgs(framework->empty_like, like, NULL);
    if (framework->exchange != NULL)
        return exchange_new(framework->exchange, view->device, view->dtype, view->ndim, view->shape);
    return no_allocator(like, argument);
}

/* Calls empty(like, shape, dtype) of fa2_attn/_frameworks.py. */
static PyObject *helper_empty(const fa2py_framework *framework, PyObject *like, int ndim, const int64_t *shape,
                              const char *dtype)
{
    PyObject *sizes = PyTuple_New(ndim), *made = NULL;
    for (int i = 0; sizes != NULL && i < ndim; i++)
        if (PyTuple_SetItem(sizes, i, PyLong_FromLongLong(shape[i])) != 0)
            Py_CLEAR(sizes);
    if (sizes != NULL)
        made = PyObject_CallFunction(framework->empty, "OOs", like, sizes, dtype);
    Py_XDECREF(sizes);
    return made;
}

PyObject *fa2py_empty(const fa2py_framework *framework, PyObject *like, const dl_tensor *view, dl_dtype dtype, int ndim,
                      const int64_t *shape, const char *argument)
{
    if (framework->exchange != NULL)
        return exchange_new(framework->exchange, view->device, dtype, ndim, shape);
    if (framework->empty != NULL)
        return helper_empty(framework, like, ndim, shape,
                            dtype.bits == 32          ? "float32"
                            : dtype.code == DL_BFLOAT ? "bfloat16"
                                                      : "float16");
    return no_allocator(like, argument);
}

bool fa2py_workspace(const fa2py_framework *framework, PyObject *like, const dl_device *device, size_t bytes,
                     void *stream, fa2py_view *ret_view)
{
    const int64_t shape[1] = {(int64_t)bytes};
    if (framework->exchange != NULL) {
        dl_managed_versioned *made =
            exchange_allocate(framework->exchange, *device, (dl_dtype){DL_UINT, 8, 1}, 1, shape);
        return made != NULL && take_versioned(made, "workspace", ret_view);
    }
    if (framework->empty == NULL)
        return false;
    PyObject *made = helper_empty(framework, like, 1, shape, "uint8");
    const fa2py_framework *made_by = made != NULL ? fa2py_framework_of(made) : NULL;
    /* the view keeps the memory of the tensor */
    const bool ok = made_by != NULL && fa2py_view_open(made_by, made, "workspace", stream, ret_view);
    Py_XDECREF(made);
    return ok;
}
