/*
 * The extension module fa2_attn._native: declarations that its files share.
 *
 * The module is built for Python's stable ABI of 3.9. It knows no array library: tensors come by DLPack.
 * Functions that return PyObject * or a bool named ok have set a Python exception when they return NULL or
 * false. All run with the GIL held. They release it where fa2 may compile, load or launch.
 */
#pragma once

#include <Python.h>
#include <stdbool.h>
#include "dlpack.h"
#include "fa2.h"
#include "runtime/base/nearest.h"
#include "runtime/ops/call.h"
#include "runtime/ops/operands.h"

/* Unchanged since Python 3.7, but the stable ABI declares it only from 3.10 on. */
#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif

/* ---- errors (errors.c) ---- */

extern PyObject *fa2py_error; /* fa2_attn.Error */
bool fa2py_errors_init(PyObject *module);

/* Raises an exception with a text as PyErr_Format makes it. Returns false. */
bool fa2py_refuse(PyObject *type, const char *format, ...);

/* Raises the exception of a status: ValueError, NotImplementedError, MemoryError or fa2_attn.Error. Its text is this
 * thread's last message. Returns NULL. */
PyObject *fa2py_raise(fa2_status status);
PyObject *fa2py_raise_with(fa2_status status, const char *message);
/* Returns a message of the library as a str. Names of fa2-tune's options become names of Python's arguments. */
PyObject *fa2py_message(const char *message);
PyObject *fa2py_raise_status(PyObject *module, PyObject *arguments); /* (fa2_status_string, message) */

/* Returns false, with an exception, in a child that was forked after a device was opened. */
bool fa2py_check_process(void);
bool fa2py_is_forked(void);
/* Call it when a device is opened. Children that are forked later may not use fa2. */
void fa2py_device_is_open(void);

/* ---- driver functions that fa2.h does not offer (driver.c) ---- */

/* Waits for all work on the device, without the GIL. Ignores failures, because no caller could handle them. */
void fa2py_synchronize(int device);
bool fa2py_is_capturing(void *stream);
/* Allocates device memory in the device's primary context. Returns 0 on failure. */
uint64_t fa2py_allocate(int device, size_t bytes);
void fa2py_free(int device, uint64_t address);

/* Device memory that a stream writes without a kernel, in words of 4 bytes. */
typedef struct fa2py_fill {
    uint64_t address;
    size_t words;
    void *stream;
    unsigned word; /* fa2py_set */
    uint64_t from; /* fa2py_repeat copies `words` words from here to address, repeated up to `total` words */
    size_t total;
} fa2py_fill;

/* Fill memory with fill->word, or with repeated copies. Return false with an exception on failure. */
bool fa2py_set(int device, const fa2py_fill *fill);
bool fa2py_repeat(int device, const fa2py_fill *fill);

/* ---- array libraries and their tensors (frameworks.c) ---- */

typedef enum fa2py_kind {
    FA2PY_ANY,          /* any type with DLPack */
    FA2PY_TORCH,        /* exactly torch.Tensor or Parameter */
    FA2PY_TORCH_SUBTYPE /* goes through PyTorch's dispatcher */
} fa2py_kind;

/* Facts about a tensor's type. The functions come from fa2_attn/_frameworks.py. Each may be NULL. */
typedef struct fa2py_framework {
    struct fa2py_framework *next;
    PyTypeObject *type; /* a strong reference */
    fa2py_kind kind;
    const dl_exchange *exchange; /* NULL: use __dlpack__ */
    PyObject *empty_like;        /* (tensor) -> tensor of its shape, dtype, device and layout */
    PyObject *empty;             /* (tensor, shape, name of a dtype) -> tensor on its device */
    PyObject *stream;            /* (device) -> the current stream as a number */
    PyObject *plain;             /* (tensor) -> the same tensor without autograd, which __dlpack__ refuses */
    PyObject *copy;              /* (tensor) -> its values in a new contiguous tensor */
    PyObject *lends;             /* (tensor) -> true if DLPack can express it, on whichever device */
} fa2py_framework;

/* Returns the description of the tensor's type. Borrowed; it lives until the process ends. */
const fa2py_framework *fa2py_framework_of(PyObject *tensor);

/* Stores the device of a tensor whose type has no exchange table. */
bool fa2py_device_of(PyObject *tensor, const char *name, dl_device *ret_device);
bool fa2py_current_stream(const fa2py_framework *framework, int device, void **ret_stream);

/* A tensor that its library lends until fa2py_view_done. */
typedef struct fa2py_view {
    dl_tensor tensor;
    bool read_only;
    void *keep; /* DLPack's managed tensor, the argument of release */
    void (*release)(void *keep);
} fa2py_view;

/* Opens a view for work on `stream`. name: the tensor's name in messages. */
bool fa2py_view_open(const fa2py_framework *framework, PyObject *tensor, const char *name, void *stream,
                     fa2py_view *ret_view);
void fa2py_view_done(fa2py_view *view); /* accepts a zeroed view */

/* Create tensors of the framework that `like` belongs to. If the framework offers no way, they return NULL with an
 * exception that tells the caller to pass `argument`. */
PyObject *fa2py_empty_like(const fa2py_framework *framework, PyObject *like, const dl_tensor *view,
                           const char *argument);
PyObject *fa2py_empty(const fa2py_framework *framework, PyObject *like, const dl_tensor *view, dl_dtype dtype, int ndim,
                      const int64_t *shape, const char *argument);

/* Allocates bytes on the tensor's device; fa2py_view_done releases them. Returns false without an exception if the
 * framework offers no way. */
bool fa2py_workspace(const fa2py_framework *framework, PyObject *like, const dl_device *device, size_t bytes,
                     void *stream, fa2py_view *ret_view);

/* ---- recently prepared problems of a context, with their workspace sizes (prepared.c) ---- */

typedef struct fa2py_prepared {
    struct fa2py_slot *slots;
    unsigned *places;
    unsigned count;
} fa2py_prepared; /* zeroed: empty */

bool fa2py_prepared_add(fa2py_prepared *prepared, const fa2_problem *problem, size_t workspace_bytes);
bool fa2py_prepared_find(const fa2py_prepared *prepared, const fa2_problem *problem, size_t *ret_workspace_bytes);
void fa2py_prepared_done(fa2py_prepared *prepared);

/* ---- contexts (context.c) ---- */

typedef struct fa2py_context fa2py_context;

bool fa2py_context_init(PyObject *module);
bool fa2py_is_context(PyObject *object);
/* Returns the default context of a device, a new reference. Opens it at the first call. */
fa2py_context *fa2py_default_context(int device);
PyObject *fa2py_get_default_context(PyObject *module, PyObject *number);
PyObject *fa2py_set_default_context(PyObject *module, PyObject *args);

int fa2py_context_device(const fa2py_context *context);

/* One launch of the operation problem->op. */
typedef struct fa2py_launch {
    const fa2_problem *problem;
    union {
        fa2_forward_args forward;
        fa2_backward_args backward;
        fa2_merge_args merge;
    } args; /* its workspace is not set yet */
    void *stream;
    /* The framework that allocates the workspace. NULL: the context does. It must if the stream is not the framework's
     * current one: the framework would give the memory to others while the kernel still runs. */
    const fa2py_framework *lender;
    PyObject *like; /* a tensor of the lender; borrowed */
} fa2py_launch;

/* Launches. The context must be for the tensors' device. */
bool fa2py_context_launch(fa2py_context *context, fa2py_launch *launch);

/* ---- problems as dicts (problems.c) ---- */

/* Reads a problem from a dict of fields. Missing fields have the defaults of fa2-tune --shape. */
bool fa2py_problem_parse(PyObject *fields, fa2_problem *ret_problem);
PyObject *fa2py_problem_dict(const fa2_problem *problem); /* the fields that problem texts show */
/* problem_text(fields): returns the problem as fa2-tune --shape takes it. */
PyObject *fa2py_problem_text(PyObject *module, PyObject *fields);
/* Tries a known name for a bytes object that holds an unknown one. */
void fa2py_nearest_try(fa2i_nearest *nearest, PyObject *text, const char *name);

/* Three arguments for "%s%s%s": ", did you mean NAME?", or nothing. */
#define FA2PY_MEANT(meant)                                                                                             \
    (meant).name != NULL ? ", did you mean " : "", (meant).name != NULL ? (meant).name : "",                           \
        (meant).name != NULL ? "?" : ""

/* suggestion(text, names): returns these words for the tuple of known names, or "". */
PyObject *fa2py_suggestion(PyObject *module, PyObject *args);

/* problem_keys(): returns a dict from the keys of such texts to the names of fields. */
PyObject *fa2py_problem_keys(PyObject *module, PyObject *unused);

/* ---- calls (call.c) ---- */

/* The parameters of a function that takes its arguments by METH_FASTCALL. */
typedef struct fa2py_signature {
    const char *name;
    int count, positional;          /* all parameters; those that may be given by position */
    int required;                   /* the first `required` ones must be given */
    const char *const *words;       /* the names of its own parameters */
    int settings_at, setting_count; /* at this place come the first so many settings */
    PyObject **interned;            /* all names as interned strings; the first call fills it */
} fa2py_signature;

enum { FA2PY_PARAMETERS_MAX = 48 };

/* Returns the place of a parameter, or -1 with a TypeError that suggests one. */
int fa2py_find_parameter(const fa2py_signature *signature, PyObject *name);

/* Stores borrowed references in the parameters' order, NULL for each that is not given. */
bool fa2py_arguments(const fa2py_signature *signature, PyObject *const *args, Py_ssize_t count, PyObject *names,
                     PyObject *values[FA2PY_PARAMETERS_MAX]);
/* Makes a tuple of these objects, with None for NULL. */
PyObject *fa2py_tuple(PyObject *const *values, Py_ssize_t count);

/* The tensors of features, which a call takes beside q, k and v: operands with a keyword. They come first in
 * operands.def, so the indexes are FA2I_OPERAND_bias and so on. */
enum { FA2PY_FEATURES = FA2I_OPERAND_offset_at };

/* The settings that every operation takes after its tensors: settings.def, then a context and a stream. problem() takes
 * those of settings.def. */
enum {
#define SETTING(word, ...) FA2PY_SET_##word,
#include "settings.def"
    FA2PY_SETTINGS_OF_PROBLEM,
    FA2PY_SET_context = FA2PY_SETTINGS_OF_PROBLEM,
    FA2PY_SET_stream,
    FA2PY_SETTINGS,
    FA2PY_SET_FEATURES = FA2PY_SET_layout + 1,
    FA2PY_SET_PERMISSIONS = FA2PY_SET_rotary_interleaved + 1,
    FA2PY_PERMISSIONS = FA2PY_SETTINGS_OF_PROBLEM - FA2PY_SET_PERMISSIONS
};
extern const char *const fa2py_setting_words[FA2PY_SETTINGS];
extern const int fa2py_permission_fields[FA2PY_PERMISSIONS]; /* FA2I_FIELD_sums and so on */

struct fa2py_operand;

/* The parsed arguments of a call. All objects are borrowed. */
typedef struct fa2py_call {
    fa2_op op;
    PyObject *tensors[3]; /* q, k, v */
    bool causal, heads_first;
    int32_t window_left, window_right;  /* -1: unbounded */
    fa2i_factors factors;               /* 0: not given */
    PyObject *features[FA2PY_FEATURES]; /* NULL: not given */
    float dropout_p;                    /* 0: no dropout */
    bool has_seed;                      /* dropout_seed was a number, `seed` */
    uint64_t seed;
    fa2_dropout_origin origin; /* of dropout */
    float distance_shift;
    int32_t max_seqlen_q, max_seqlen_k; /* -1: not given. 0 means the same unless sequences are packed */
    bool rotary_interleaved;
    int32_t permissions[FA2PY_PERMISSIONS]; /* values of their fields. Backward does not read them */
    fa2_partial partial;                    /* not NONE: out, or the gradients, are float32 */
    PyObject *carried;      /* out over other keys, float32, with which the result is merged; NULL: none. Borrowed */
    fa2py_context *context; /* NULL: the default one */
    bool has_stream;
    void *stream;
    bool want_lse, differentiable; /* forward. differentiable: the caller will want a gradient */
    PyObject *out, *lse;           /* forward. NULL: create it */
    bool deterministic;            /* backward */
    /* forward. Called when q, k and v are open. If it returns false, fa2py_run returns NULL without an exception, and
     * has done nothing. May be NULL. */
    bool (*fits)(const struct fa2py_call *call, const struct fa2py_operand *operands);
    bool shares_heads; /* for `fits`: several heads of q may share keys */
} fa2py_call;

/* Parse one argument each. */
bool fa2py_parse_truth(PyObject *value, const char *name, bool *ret_truth); /* NULL and None: false */
/* values, ret_numbers: FA2PY_PERMISSIONS. A value is a word, or its number; NULL and None: 0, no permission. */
bool fa2py_parse_permissions(PyObject *const *values, int32_t *ret_numbers);
/* Sets the fields of permissions. NULL: to 0. */
void fa2py_permit(fa2_problem *problem, const int32_t *numbers);
/* "write" or "merge"; NULL and None: FA2_PARTIAL_NONE. */
bool fa2py_parse_partial(PyObject *value, fa2_partial *ret_partial);
bool fa2py_parse_seed(PyObject *value, const char *name, uint64_t *ret_seed); /* value: an int */
/* dropout_origin: (row, column, head, heads); NULL and None: zeros. */
bool fa2py_parse_origin(PyObject *value, fa2_dropout_origin *ret_origin);
bool fa2py_parse_shift(PyObject *value, float *ret_shift); /* distance_shift; NULL and None: 0 */
/* window(window): takes a call's window (None, or two numbers in a sequence, an array or a tensor). Returns
 * (left, right), -1 for all keys. */
PyObject *fa2py_window(PyObject *module, PyObject *value);
/* A context and a stream; NULL and None: the default ones. */
bool fa2py_parse_place(PyObject *context, PyObject *stream, fa2py_call *call);
/* values: FA2PY_SETTINGS values, NULL or None for each that is not given. */
bool fa2py_parse_settings(PyObject *const *values, fa2py_call *call);
/* Checks that arguments of new keys are complete. features: the values of the features. Reads no tensor. */
bool fa2py_check_new(PyObject *const *features);

/* ---- a call's tensors (operands.c) ---- */

enum { FA2PY_RANK = 4, FA2PY_DIM = 3 };               /* dimensions of q, k and v; the index of D */
enum { FA2PY_ROW_ALIGN = 16, FA2PY_STRIDE_STEP = 8 }; /* as in fa2.h: bytes, elements */

/* A tensor of a running call. Zeroed: no tensor. */
typedef struct fa2py_operand {
    const char *name;
    PyObject *object; /* strong */
    const fa2py_framework *framework;
    fa2py_view view;
    int64_t shape[4], strides[4]; /* set by fa2py_open, with four dimensions; packed rows are one batch */
} fa2py_operand;

void fa2py_operands_done(fa2py_operand *operands, int count);

/* ---- tensors of features (features.c) ---- */

/* The tensors of features that a call gives. Zeroed: none. */
typedef struct fa2py_features {
    fa2py_operand of[FA2PY_FEATURES];
} fa2py_features;

bool fa2py_features_open(const fa2py_call *call, const fa2py_operand *q, void *stream, fa2py_features *features);
void fa2py_features_done(fa2py_features *features);
/* Sets the problem's fields for the given features, except sizes. */
void fa2py_features_ask(const fa2py_call *call, const fa2py_features *features, fa2_problem *problem);
/* Checks the shapes and types of the features' tensors against the problem. */
bool fa2py_features_check(const fa2py_call *call, const fa2py_operand operands[3], const fa2py_features *features,
                          const fa2_problem *problem);
/* Copies the features' tensors into the library's arguments of the call's operation. k: as the call gives it. */
void fa2py_features_put(const fa2py_call *call, const fa2py_operand *k, const fa2py_features *features, void *args);
/* Copies one tensor. Its dimensions of extent 1 get stride 0. Does nothing without a tensor. */
void fa2py_feature_put(const fa2py_call *call, int id, const fa2py_operand *operand, void *args);
/* dropout_mask(problem, dropout_p, seed, offset=0): returns a bytearray, 1 where an element is kept. */
PyObject *fa2py_dropout_mask(PyObject *module, PyObject *args);

/* ---- opening a call's tensors (operands.c) ---- */

/* Opens q, k and v as operands 0, 1 and 2, and the features' tensors. Finds the stream of the call. ret_lender: see
 * fa2py_launch. */
bool fa2py_begin(const fa2py_call *call, fa2py_operand operands[3], fa2py_features *features, void **ret_stream,
                 const fa2py_framework **ret_lender);

/* For calls whose first tensor has any number of dimensions: store its CUDA device, and open it. */
bool fa2py_device_of_any(const fa2py_framework *framework, PyObject *object, const char *name, dl_device *ret_device);
bool fa2py_open_first(const char *name, PyObject *object, void *stream, fa2py_operand *operand);
/* Opens a further tensor, which must be on q's device. */
bool fa2py_open_any(const fa2py_operand *q, const char *name, PyObject *object, void *stream, fa2py_operand *operand);
/* Open a tensor of four dimensions (three if sequences are packed) on q's device, with q's dtype. _copied: if the
 * kernel cannot read the tensor and its library can copy, opens a copy. */
bool fa2py_open(const fa2py_call *call, const fa2py_operand *q, const char *name, PyObject *object, void *stream,
                fa2py_operand *operand);
/* The same for float32. */
bool fa2py_open_fp32(const fa2py_call *call, const fa2py_operand *q, const char *name, PyObject *object, void *stream,
                     fa2py_operand *operand);
bool fa2py_open_copied(const fa2py_call *call, const fa2py_operand *q, const char *name, PyObject *object, void *stream,
                       fa2py_operand *operand);
bool fa2py_check_shape(const fa2py_operand *operand, const fa2py_operand *like);
/* Raises ValueError unless a == b. what: the name of the quantity, such as "seq". */
bool fa2py_check_same(const char *a_name, int64_t a, const char *b_name, int64_t b, const char *what);
bool fa2py_check_writable(const fa2py_operand *operand);
/* Returns the elements between entries of a dimension, 0 if it has only one entry. */
int64_t fa2py_stride_of(const dl_tensor *tensor, int dimension);
const char *fa2py_dtype_word(dl_dtype dtype);  /* its name in messages */
fa2_kv fa2py_kv_of(const fa2py_operand *rows); /* of k or v, by its type; uint8 holds e4m3 numbers */

/* ---- tensors that a call writes (outputs.c) ---- */

/* Opens a tensor to write, in the shape of `like`: the given one, or a new one. It is float32 in a call for a partial
 * result. */
bool fa2py_open_output(const fa2py_call *call, const fa2py_operand *q, const fa2py_operand *like, const char *name,
                       const char *argument, PyObject *given, void *stream, fa2py_operand *operand);
/* Opens the LSE: the given tensor, or a new one. [batch, heads, seq], or [heads, rows] of packed sequences. */
bool fa2py_open_lse(const fa2py_call *call, const fa2py_operand *q, PyObject *given, void *stream,
                    fa2py_operand *operand);
/* Returns a copy of q with the columns of v: the shape of O and dO. q still owns its tensor. */
fa2py_operand fa2py_like_out(const fa2py_operand *q, const fa2py_operand *v);
/* Opens forward's output. */
bool fa2py_open_out(const fa2py_call *call, const fa2py_operand *q, const fa2py_operand *v, PyObject *given,
                    void *stream, fa2py_operand *operand);

/* ---- from the tensors to the library (launch.c) ---- */

/* Makes the problem of a call with these tensors. */
bool fa2py_make_problem(const fa2py_call *call, const fa2py_operand operands[3], const fa2py_features *features,
                        fa2_problem *ret_problem);

/* Describe an operand as the library takes it. No operand gives NULL. */
fa2_tensor fa2py_tensor_of(const fa2py_call *call, const fa2py_operand *operand);
float *fa2py_floats_of(const fa2py_operand *operand);

/* Returns true if k and v begin at the same address with the same strides: v may be the first columns of k. */
bool fa2py_begin_alike(const fa2py_call *call, const fa2py_operand *k, const fa2py_operand *v);

/* Launches on the call's context, or on the default one of q's device. */
bool fa2py_launch_on(const fa2py_call *call, const fa2py_operand *q, fa2py_launch *launch);

/* ---- calls without queries or keys (empty.c) ---- */

/* Returns true if the problem is valid. false: a Python error is set. */
bool fa2py_check_problem(const fa2_problem *problem);
/* Returns true if a call with these q, k and v has nothing to compute. */
bool fa2py_is_empty(const fa2py_operand operands[3], const fa2_problem *problem);
/* Returns the problem with every size at least 1. It is valid if and only if a call with queries and keys would be. */
fa2_problem fa2py_as_if_full(const fa2_problem *problem);
/* Write the results of an empty call: 0 into a tensor; the LSE of rows that see no key, which is a head's number in
 * `start` (no tensor: -inf). Without an operand they write nothing. false: a Python error is set. */
bool fa2py_set_zero(const fa2py_operand *operand, void *stream);
bool fa2py_set_lse(const fa2py_operand *lse, const fa2py_operand *start, void *stream);

/* ---- functions (attention.c, backward.c, merge.c) ---- */

/* Checks the call, creates the outputs and launches. Returns out, or (out, lse). */
PyObject *fa2py_run(const fa2py_call *call);

enum { FA2PY_FEATURE_GRADIENTS = 2 }; /* dsinks, dbias */

/* Arguments of backward that forward does not have. All objects are borrowed. */
typedef struct fa2py_backward {
    PyObject *d_out, *out, *lse;
    /* dq, dk, dv: a tensor to write. NULL, None or True: create it. False: not wanted */
    PyObject *gradients[3];
    bool want[FA2PY_FEATURE_GRADIENTS];
} fa2py_backward;

/* As fa2py_run. Returns (dq, dk, dv), followed by those of features' tensors that are wanted. */
PyObject *fa2py_run_backward(const fa2py_call *call, const fa2py_backward *given);

/* attention(...): skips PyTorch's dispatcher where that changes nothing, else calls the functions given to set_torch.
 * launch(...): always skips it. */
PyObject *fa2py_attention(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
/* attention_partial(...): the same without autograd; out is float32. Returns (out, lse). */
PyObject *fa2py_attention_partial(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
/* merge(...): merges partial results. Returns (out, lse). */
PyObject *fa2py_merge(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *fa2py_launch_function(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
/* check_differentiable(problem): raises NotImplementedError if the problem has no gradient. */
PyObject *fa2py_check_differentiable(PyObject *module, PyObject *fields);
PyObject *fa2py_attention_backward(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
/* problem(q, k, v, ...): returns the problem of a call as a dict. */
PyObject *fa2py_problem(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);

/* ---- PyTorch (torch.c) ---- */

PyObject *fa2py_set_torch(PyObject *module, PyObject *args);
PyObject *fa2py_make_sdpa(PyObject *module, PyObject *args);
PyObject *fa2py_permit_sdpa(PyObject *module, PyObject *args);

/* The path of a call, chosen by its tensors. */
typedef enum fa2py_way {
    FA2PY_WAY_PLAIN,    /* straight to the kernel: no PyTorch tensor, or nothing records, traces, casts or intercepts */
    FA2PY_WAY_AUTOGRAD, /* the same, but a tensor requires a gradient */
    FA2PY_WAY_DISPATCHER,
    FA2PY_WAY_ERROR /* an exception is set */
} fa2py_way;

/* tensors: q, k, v and others; NULL or None for each that is not given. */
fa2py_way fa2py_torch_way(PyObject *const *tensors, int count);
/* Calls the function that set_torch was given for this path, with all arguments. Those not given are None. */
PyObject *fa2py_torch_call(fa2py_way way, PyObject *const *values, int count);

/* Ask PyTorch about this thread. They return 1 or 0, or -1 with an exception. Before set_torch they return 0. */
int fa2py_torch_records(void);          /* does autograd record operations? */
int fa2py_torch_is_deterministic(void); /* must algorithms be deterministic? */

/* ---- autograd of calls without features (autograd.c) ---- */

/* The settings of such a call: the items of a tuple. The first ones are the settings before FA2PY_SET_FEATURES. */
enum { FA2PY_PLAIN_CONTEXT = FA2PY_SET_FEATURES, FA2PY_PLAIN_DETERMINISTIC, FA2PY_PLAIN_SETTINGS };

/* Returns the FA2PY_SET_... of a setting before FA2PY_PLAIN_DETERMINISTIC. */
static inline int fa2py_plain_place(int setting)
{
    return setting == FA2PY_PLAIN_CONTEXT ? (int)FA2PY_SET_context : setting;
}

/* plain_forward(ctx, settings, *tensors): the forward of a Function. plain_node(type): gives its nodes our backward. */
PyObject *fa2py_plain_forward(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *fa2py_plain_node(PyObject *module, PyObject *type);
