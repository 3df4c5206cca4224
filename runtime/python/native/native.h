/*
 * The extension module fa2._native: what its files share.
 *
 * It is built for Python's stable ABI of 3.9, and knows no array library: tensors come by DLPack.
 * Functions that return PyObject * or a bool `ok` have set a Python exception when they return NULL
 * or false. All run with the GIL held; it is released where fa2 may compile, load or launch.
 */
#ifndef FA2PY_NATIVE_H
#define FA2PY_NATIVE_H

#include <Python.h>
#include <stdbool.h>
#include "dlpack.h"
#include "fa2.h"

/* The same since Python 3.7, though declared for the stable ABI from 3.10 on. */
#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif

/* ---- errors (errors.c) ---- */

extern PyObject *fa2py_error; /* fa2.Error */
bool fa2py_errors_init(PyObject *module);

/* Raise for a status: ValueError, NotImplementedError, MemoryError or fa2.Error. The message is this
 * thread's last. Returns NULL. */
PyObject *fa2py_raise(fa2_status status);
PyObject *fa2py_raise_with(fa2_status status, const char *message);

/* False, with an exception, in a child that was forked after a device was opened. */
bool fa2py_check_process(void);
bool fa2py_is_forked(void);
/* From now on a fork makes children that may not use fa2. */
void fa2py_device_is_open(void);

/* ---- the few driver functions that fa2.h has none for (driver.c) ---- */

/* Wait for everything on the device, outside the GIL. Failures do not count: there is nobody to tell. */
void fa2py_synchronize(int device);
bool fa2py_is_capturing(void *stream);
/* Device memory of the device's primary context. 0 on failure, which is FA2_E_CUDA's message. */
uint64_t fa2py_allocate(int device, size_t bytes);
void fa2py_free(int device, uint64_t address);

/* ---- array libraries and their tensors (frameworks.c) ---- */

typedef enum fa2py_kind {
    FA2PY_ANY,          /* speaks DLPack */
    FA2PY_TORCH,        /* torch.Tensor or Parameter itself */
    FA2PY_TORCH_SUBTYPE /* goes through PyTorch's dispatcher */
} fa2py_kind;

/* What is known of a tensor's type. The callables come from fa2/_frameworks.py; each may be NULL. */
typedef struct fa2py_framework {
    struct fa2py_framework *next;
    PyTypeObject *type; /* a strong reference */
    fa2py_kind kind;
    const dl_exchange *exchange; /* NULL: by __dlpack__ */
    PyObject *empty_like;        /* (tensor) -> tensor of its shape, dtype, device and layout */
    PyObject *empty;             /* (tensor, shape, "float32" | "uint8") -> tensor on its device */
    PyObject *stream;            /* (device) -> the current stream, a number */
    PyObject *plain;             /* (tensor) -> one without what hinders __dlpack__ */
} fa2py_framework;

/* Borrowed; lives until the process ends. */
const fa2py_framework *fa2py_framework_of(PyObject *tensor);

/* Where a tensor without an exchange table is. */
bool fa2py_device_of(PyObject *tensor, const char *name, dl_device *ret_device);
bool fa2py_current_stream(const fa2py_framework *framework, int device, void **ret_stream);

/* A tensor lent to us until fa2py_view_done. */
typedef struct fa2py_view {
    dl_tensor tensor;
    bool read_only;
    void *keep; /* what releases it: one of the structures, by `release` */
    void (*release)(void *keep);
} fa2py_view;

/* stream: the one we will launch on. name: in messages. */
bool fa2py_view_open(const fa2py_framework *framework, PyObject *tensor, const char *name,
                     void *stream, fa2py_view *ret_view);
void fa2py_view_done(fa2py_view *view); /* a zeroed one is fine */

/* New tensors of the framework that `like` belongs to. NULL with an exception that names `argument`,
 * by which the caller can give one, where the framework offers no way. */
PyObject *fa2py_empty_like(const fa2py_framework *framework, PyObject *like, const dl_tensor *view,
                           const char *argument);
PyObject *fa2py_empty(const fa2py_framework *framework, PyObject *like, const dl_tensor *view,
                      int ndim, const int64_t *shape, const char *argument); /* float32 */

/* Bytes on the tensor's device, released by fa2py_view_done. False without an exception: the framework
 * offers no way. */
bool fa2py_workspace(const fa2py_framework *framework, PyObject *like, const dl_device *device,
                     size_t bytes, void *stream, fa2py_view *ret_view);

/* ---- which problems a context has prepared, and what they need (prepared.c) ---- */

typedef struct fa2py_prepared {
    struct fa2py_slot *slots;
    size_t slot_count, used_count;
} fa2py_prepared; /* zeroed: empty */

bool fa2py_prepared_add(fa2py_prepared *prepared, const fa2_problem *problem,
                        size_t workspace_bytes);
bool fa2py_prepared_find(const fa2py_prepared *prepared, const fa2_problem *problem,
                         size_t *ret_workspace_bytes);
void fa2py_prepared_done(fa2py_prepared *prepared);

/* ---- contexts (context.c) ---- */

typedef struct fa2py_context fa2py_context;

bool fa2py_context_init(PyObject *module);
bool fa2py_is_context(PyObject *object);
/* The default context of a device, opened if it must be. A new reference. */
fa2py_context *fa2py_default_context(int device);
PyObject *fa2py_get_default_context(PyObject *module, PyObject *number);
PyObject *fa2py_set_default_context(PyObject *module, PyObject *args);

int fa2py_context_device(const fa2py_context *context);
/* Launch on a context that belongs to the tensors' device, on which `like` is. lender: where workspace
 * comes from; NULL: from the context, because the stream is not the framework's current one, so that it
 * would give the memory to others while the kernel still runs. */
bool fa2py_context_forward(fa2py_context *context, const fa2_problem *problem,
                           fa2_forward_args *args, void *stream, const fa2py_framework *lender,
                           PyObject *like);

/* ---- problems as dicts (problems.c) ---- */

/* A dict of fields; those that are missing mean what texts mean that leave them out. */
bool fa2py_problem_parse(PyObject *fields, fa2_problem *ret_problem);
PyObject *fa2py_problem_dict(const fa2_problem *problem); /* the fields that texts show */
/* problem_text(fields): as fa2-tune --shape takes it. */
PyObject *fa2py_problem_text(PyObject *module, PyObject *fields);

/* ---- calls (call.c, attention.c) ---- */

/* The parameters of a function with a fast call. */
typedef struct fa2py_signature {
    const char *name;
    int count, positional;    /* parameters; those that may be given by position */
    int required;             /* the first ones, that must be given */
    const char *const *words; /* their names */
    PyObject **interned;      /* the same, filled by the first call */
} fa2py_signature;

enum { FA2PY_PARAMETERS_MAX = 16 };

/* Borrowed references in the parameters' order; NULL: not given. */
bool fa2py_arguments(const fa2py_signature *signature, PyObject *const *args, Py_ssize_t count,
                     PyObject *names, PyObject *values[FA2PY_PARAMETERS_MAX]);

/* A call as it was asked for. */
typedef struct fa2py_call {
    PyObject *tensors[3]; /* q, k, v */
    bool causal, heads_first, want_lse;
    int32_t window_left, window_right; /* -1: unbounded */
    float softcap, scale;              /* 0: none, the default */
    PyObject *out;                     /* NULL: make one */
    fa2py_context *context;            /* borrowed; NULL: the default one */
    bool has_stream;
    void *stream;
} fa2py_call;

/* attention's arguments after q, k and v. */
enum {
    FA2PY_ARG_CAUSAL = 3,
    FA2PY_ARG_WINDOW,
    FA2PY_ARG_SOFTCAP,
    FA2PY_ARG_SCALE,
    FA2PY_ARG_LAYOUT,
    FA2PY_ARG_OUT,
    FA2PY_ARG_RETURN_LSE,
    FA2PY_ARG_CONTEXT,
    FA2PY_ARG_STREAM,
    FA2PY_ARG_COUNT
};

/* values: as fa2py_arguments gives them for attention. */
bool fa2py_parse_call(PyObject *const *values, fa2py_call *ret_call);

/* Check, make the outputs, launch: out, or (out, lse). */
PyObject *fa2py_run(const fa2py_call *call);

/* attention(...): past PyTorch's dispatcher where that changes nothing, else by the function that
 * set_torch gave. launch(...): the same without looking for a dispatcher. */
PyObject *fa2py_attention(PyObject *module, PyObject *const *args, Py_ssize_t count,
                          PyObject *names);
PyObject *fa2py_launch(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
/* problem(q, k, v, ...): the dict of what a call would ask for. */
PyObject *fa2py_problem(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);

/* ---- PyTorch (torch.c) ---- */

PyObject *fa2py_set_torch(PyObject *module, PyObject *args);
PyObject *fa2py_make_sdpa(PyObject *module, PyObject *args);

/* Whether a call on these tensors may go past PyTorch's dispatcher: none is PyTorch's, or those that are
 * belong to torch.Tensor itself and nobody records, traces, casts or intercepts. 1 or 0; -1 with an
 * exception. */
int fa2py_torch_is_plain(PyObject *const tensors[3]);
/* The function for calls that go through the dispatcher. Borrowed. */
PyObject *fa2py_torch_dispatcher(void);

#endif
