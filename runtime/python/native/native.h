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
/* A message of the library as a str, in which Python's arguments stand for fa2-tune's options. */
PyObject *fa2py_message(const char *message);
PyObject *fa2py_raise_status(PyObject *module,
                             PyObject *arguments); /* (fa2_status_string, message) */

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

/* Device memory that a stream writes without a kernel, in words of 4 bytes. false: a Python error is set. */
typedef struct fa2py_fill {
    uint64_t address;
    size_t words;
    void *stream;
    unsigned word; /* fa2py_set */
    uint64_t from; /* fa2py_repeat: copied to address, again and again until `total` words are written */
    size_t total;
} fa2py_fill;

bool fa2py_set(int device, const fa2py_fill *fill);
bool fa2py_repeat(int device, const fa2py_fill *fill);

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
    PyObject *empty;             /* (tensor, shape, word of a dtype) -> tensor on its device */
    PyObject *stream;            /* (device) -> the current stream, a number */
    PyObject *plain;             /* (tensor) -> one without what hinders __dlpack__ */
    PyObject *copy;              /* (tensor) -> its values in a new tensor, row by row */
    PyObject *lends;             /* (tensor) -> whether it can be lent, whatever it lies on */
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
                      dl_dtype dtype, int ndim, const int64_t *shape, const char *argument);

/* Bytes on the tensor's device, released by fa2py_view_done. False without an exception: the framework
 * offers no way. */
bool fa2py_workspace(const fa2py_framework *framework, PyObject *like, const dl_device *device,
                     size_t bytes, void *stream, fa2py_view *ret_view);

/* ---- the problems that a context prepared last, and the workspace that they need (prepared.c) ---- */

typedef struct fa2py_prepared {
    struct fa2py_slot *slots;
    unsigned *places;
    unsigned count;
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

/* A launch of problem->op. */
typedef struct fa2py_launch {
    const fa2_problem *problem;
    union {
        fa2_forward_args forward;
        fa2_backward_args backward;
    } args; /* without workspace */
    void *stream;
    /* Where workspace comes from; NULL: from the context, because the stream is not the framework's
     * current one, so that it would give the memory to others while the kernel still runs. */
    const fa2py_framework *lender;
    PyObject *like; /* a tensor of the lender's; borrowed */
} fa2py_launch;

/* On a context that belongs to the tensors' device. */
bool fa2py_context_launch(fa2py_context *context, fa2py_launch *launch);

/* ---- problems as dicts (problems.c) ---- */

/* A dict of fields; those that are missing mean what texts mean that leave them out. */
bool fa2py_problem_parse(PyObject *fields, fa2_problem *ret_problem);
PyObject *fa2py_problem_dict(const fa2_problem *problem); /* the fields that texts show */
/* problem_text(fields): as fa2-tune --shape takes it. */
PyObject *fa2py_problem_text(PyObject *module, PyObject *fields);
/* problem_keys(): the words of such texts, and the fields that they stand for. */
PyObject *fa2py_problem_keys(PyObject *module, PyObject *unused);

/* ---- calls (call.c) ---- */

/* The parameters of a function with a fast call. */
typedef struct fa2py_signature {
    const char *name;
    int count, positional;    /* parameters; those that may be given by position */
    int required;             /* the first ones, that must be given */
    const char *const *words; /* their names */
    PyObject **interned;      /* the same, filled by the first call */
} fa2py_signature;

enum { FA2PY_PARAMETERS_MAX = 48 };

/* Borrowed references in the parameters' order; NULL: not given. */
bool fa2py_arguments(const fa2py_signature *signature, PyObject *const *args, Py_ssize_t count,
                     PyObject *names, PyObject *values[FA2PY_PARAMETERS_MAX]);

/* The tensors that features take beside q, k and v. */
typedef enum fa2py_feature {
    FA2PY_ALIBI_SLOPES,
    FA2PY_SINKS,
    FA2PY_SEQUSED_K,
    FA2PY_BIAS,
    FA2PY_DROPOUT_SEED,
    FA2PY_CU_SEQLENS_Q,
    FA2PY_CU_SEQLENS_K,
    FA2PY_BLOCK_TABLE,
    FA2PY_LEFTPAD,
    FA2PY_CACHE_ROWS,
    FA2PY_K_NEW,
    FA2PY_V_NEW,
    FA2PY_ROTARY_COS,
    FA2PY_ROTARY_SIN,
    FA2PY_FEATURES
} fa2py_feature;
#define FA2PY_FEATURE_WORDS                                                                        \
    "alibi_slopes", "sinks", "seqused_k", "bias", "dropout_seed", "cu_seqlens_q", "cu_seqlens_k",  \
        "block_table", "leftpad", "cache_rows", "k_new", "v_new", "rotary_cos", "rotary_sin"

/* What every operation takes after its tensors. A problem has the first ones. */
enum {
    FA2PY_SET_CAUSAL,
    FA2PY_SET_WINDOW,
    FA2PY_SET_SOFTCAP,
    FA2PY_SET_SCALE,
    FA2PY_SET_LAYOUT,
    FA2PY_SET_FEATURES,
    FA2PY_SET_DROPOUT_P = FA2PY_SET_FEATURES + FA2PY_FEATURES,
    FA2PY_SET_MAX_SEQLEN_Q,
    FA2PY_SET_MAX_SEQLEN_K,
    FA2PY_SET_ROTARY_INTERLEAVED,
    FA2PY_SETTINGS_OF_PROBLEM,
    FA2PY_SET_CONTEXT = FA2PY_SETTINGS_OF_PROBLEM,
    FA2PY_SET_STREAM,
    FA2PY_SETTINGS
};
#define FA2PY_PROBLEM_WORDS                                                                        \
    "causal", "window", "softcap", "scale", "layout", FA2PY_FEATURE_WORDS, "dropout_p",            \
        "max_seqlen_q", "max_seqlen_k", "rotary_interleaved"
#define FA2PY_SETTING_WORDS FA2PY_PROBLEM_WORDS, "context", "stream"

struct fa2py_operand;

/* A call as it was asked for. Objects are borrowed. */
typedef struct fa2py_call {
    fa2_op op;
    PyObject *tensors[3]; /* q, k, v */
    bool causal, heads_first;
    int32_t window_left, window_right;  /* -1: unbounded */
    float softcap, scale;               /* 0: none, the default */
    PyObject *features[FA2PY_FEATURES]; /* NULL: none */
    float dropout_p;                    /* 0: none */
    bool has_seed;                      /* dropout_seed was a number */
    uint64_t seed;
    int32_t max_seqlen_q, max_seqlen_k; /* -1: not given; 0 means the same unless sequences are packed */
    bool rotary_interleaved;
    fa2py_context *context; /* NULL: the default one */
    bool has_stream;
    void *stream;
    bool want_lse, differentiable; /* forward; the latter: a gradient will be wanted */
    PyObject *out;                 /* forward; NULL: make one */
    bool deterministic;            /* backward */
    /* forward; asked about q, k and v once they are open. False: fa2py_run ends with NULL and without an
     * exception, nothing having been done. NULL: nobody is asked. */
    bool (*fits)(const struct fa2py_call *call, const struct fa2py_operand *operands);
    bool shares_heads; /* for `fits`: several heads of q may have the same keys */
} fa2py_call;

/* NULL is false. */
bool fa2py_parse_truth(PyObject *value, const char *name, bool *ret_truth);   /* NULL and None: false */
bool fa2py_parse_seed(PyObject *value, const char *name, uint64_t *ret_seed); /* of an int */
/* window(window): a window as calls take it (None, or two numbers in a sequence, an array or a tensor) as (left,
 * right), -1 for all keys. */
PyObject *fa2py_window(PyObject *module, PyObject *value);
/* values: FA2PY_SETTINGS of them, NULL or None for those not given. */
bool fa2py_parse_settings(PyObject *const *values, fa2py_call *call);
/* Whether what new keys need beside them is given; of the features' values. Tensors are not looked at. */
bool fa2py_check_new(PyObject *const *features);

/* ---- a call's tensors (operands.c) ---- */

enum { FA2PY_RANK = 4, FA2PY_DIM = 3 };               /* dimensions of q, k and v; which one D is */
enum { FA2PY_ROW_ALIGN = 16, FA2PY_STRIDE_STEP = 8 }; /* as fa2.h has them: bytes, elements */

/* A tensor while a call runs. Zeroed: none. */
typedef struct fa2py_operand {
    const char *name;
    PyObject *object; /* strong */
    const fa2py_framework *framework;
    fa2py_view view;
    int64_t shape[4], strides[4]; /* by fa2py_open: as four dimensions; packed rows are one batch */
} fa2py_operand;

void fa2py_operands_done(fa2py_operand *operands, int count);

/* ---- tensors of features (features.c) ---- */

/* The tensors that a call gives beside q, k and v. Zeroed: none. */
typedef struct fa2py_features {
    fa2py_operand of[FA2PY_FEATURES];
} fa2py_features;

bool fa2py_features_open(const fa2py_call *call, const fa2py_operand *q, void *stream,
                         fa2py_features *features);
void fa2py_features_done(fa2py_features *features);
/* Set what they ask for, but sizes; whether they have the problem's shapes; hand them over. */
void fa2py_features_ask(const fa2py_call *call, const fa2py_features *features,
                        fa2_problem *problem);
bool fa2py_features_check(const fa2py_call *call, const fa2py_operand operands[3],
                          const fa2py_features *features, const fa2_problem *problem);
void fa2py_features_forward(const fa2py_call *call, const fa2py_operand *k,
                            const fa2py_features *features, fa2_forward_args *args);
void fa2py_features_backward(const fa2py_call *call, const fa2py_features *features,
                             fa2_backward_args *args);
/* Of four dimensions, those of one entry for all; of no operand: NULL. */
fa2_bias_gradient fa2py_bias_gradient_of(const fa2py_operand *operand);
/* dropout_mask(problem, dropout_p, seed, offset=0) */
PyObject *fa2py_dropout_mask(PyObject *module, PyObject *args);

/* ---- a call's tensors, together (operands.c) ---- */

/* Open q, k and v, which become the first three operands, and the features' tensors, and find the stream that the
 * call goes to. ret_lender: see fa2py_launch. */
bool fa2py_begin(const fa2py_call *call, fa2py_operand operands[3], fa2py_features *features,
                 void **ret_stream, const fa2py_framework **ret_lender);

/* A further tensor of q's device. */
bool fa2py_open_any(const fa2py_operand *q, const char *name, PyObject *object, void *stream,
                    fa2py_operand *operand);
/* One of four dimensions, where sequences are packed of three, of q's device and dtype; _copied: where the
 * kernel could not read it, a copy of it, if its library has a way to make one. */
bool fa2py_open(const fa2py_call *call, const fa2py_operand *q, const char *name, PyObject *object,
                void *stream, fa2py_operand *operand);
bool fa2py_open_copied(const fa2py_call *call, const fa2py_operand *q, const char *name,
                       PyObject *object, void *stream, fa2py_operand *operand);
bool fa2py_check_shape(const fa2py_operand *operand, const fa2py_operand *like);
/* ValueError where a, of a_name, is not b; what: "seq", for instance. */
bool fa2py_check_same(const char *a_name, int64_t a, const char *b_name, int64_t b,
                      const char *what);
bool fa2py_check_writable(const fa2py_operand *operand);
const char *fa2py_dtype_word(dl_dtype dtype); /* in messages */

/* ---- what a call writes (outputs.c) ---- */

/* One that is written to, in the shape of `like`: the given one, or a new one. */
bool fa2py_open_output(const fa2py_call *call, const fa2py_operand *q, const fa2py_operand *like,
                       const char *name, const char *argument, PyObject *given, void *stream,
                       fa2py_operand *operand);
/* [batch, heads, seq], of packed sequences [heads, rows]: the given one, or a new one. */
bool fa2py_open_lse(const fa2py_call *call, const fa2py_operand *q, PyObject *given, void *stream,
                    fa2py_operand *operand);
/* Whose shape O and dO have: q's, with the columns of v. What it holds is q's. */
fa2py_operand fa2py_like_out(const fa2py_operand *q, const fa2py_operand *v);
/* Forward's output. */
bool fa2py_open_out(const fa2py_call *call, const fa2py_operand *q, const fa2py_operand *v,
                    PyObject *given, void *stream, fa2py_operand *operand);

/* ---- from the tensors to the library (launch.c) ---- */

/* The problem that is asked about them. */
bool fa2py_make_problem(const fa2py_call *call, const fa2py_operand operands[3],
                        const fa2py_features *features, fa2_problem *ret_problem);

/* As the library takes them; of no operand: NULL. */
fa2_tensor fa2py_tensor_of(const fa2py_call *call, const fa2py_operand *operand);
float *fa2py_floats_of(const fa2py_operand *operand);

/* Whether they begin at one place, with the same strides: v may be the first columns of k. */
bool fa2py_begin_alike(const fa2py_call *call, const fa2py_operand *k, const fa2py_operand *v);

/* Launch on the call's context, or the default one of q's device. */
bool fa2py_launch_on(const fa2py_call *call, const fa2py_operand *q, fa2py_launch *launch);

/* ---- calls without queries or keys (empty.c) ---- */

/* Is the problem valid? false: a Python error is set. */
bool fa2py_check_problem(const fa2_problem *problem);
/* Has a call with these q, k and v nothing to compute? */
bool fa2py_is_empty(const fa2py_operand operands[3], const fa2_problem *problem);
/* The problem with at least one of everything. It is refused where a call with queries and keys would be. */
fa2_problem fa2py_as_if_full(const fa2_problem *problem);
/* Write the results of an empty call: 0 into a tensor; the LSE of rows that see no key. Without an operand nothing is
 * written. false: a Python error is set. */
bool fa2py_set_zero(const fa2py_operand *operand, void *stream);
bool fa2py_set_lse(const fa2py_operand *lse, const fa2py_operand *sinks, void *stream);

/* ---- functions (attention.c, backward.c) ---- */

/* Check, make the outputs, launch: out, or (out, lse). */
PyObject *fa2py_run(const fa2py_call *call);

/* What backward takes beside forward's call. Objects are borrowed. */
typedef struct fa2py_backward {
    PyObject *d_out, *out, *lse;
    /* dq, dk, dv: a tensor to write to; NULL, None or True: make one; False: none */
    PyObject *gradients[3];
    bool want_dsinks, want_dbias;
} fa2py_backward;

/* The same: (dq, dk, dv), and dsinks and dbias if they are wanted. */
PyObject *fa2py_run_backward(const fa2py_call *call, const fa2py_backward *given);

/* attention(...): past PyTorch's dispatcher where that changes nothing, else by the functions that
 * set_torch gave. launch(...): the same without looking for a dispatcher. */
PyObject *fa2py_attention(PyObject *module, PyObject *const *args, Py_ssize_t count,
                          PyObject *names);
PyObject *fa2py_launch_function(PyObject *module, PyObject *const *args, Py_ssize_t count,
                                PyObject *names);
/* check_differentiable(problem): NotImplementedError where it has no gradient. */
PyObject *fa2py_check_differentiable(PyObject *module, PyObject *fields);
PyObject *fa2py_attention_backward(PyObject *module, PyObject *const *args, Py_ssize_t count,
                                   PyObject *names);
/* problem(q, k, v, ...): the dict of what a call would ask for. */
PyObject *fa2py_problem(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);

/* ---- PyTorch (torch.c) ---- */

PyObject *fa2py_set_torch(PyObject *module, PyObject *args);
PyObject *fa2py_make_sdpa(PyObject *module, PyObject *args);

/* How a call on these tensors goes. */
typedef enum fa2py_way {
    FA2PY_WAY_PLAIN,    /* none is PyTorch's, or nobody records, traces, casts or intercepts */
    FA2PY_WAY_AUTOGRAD, /* the same, but that a tensor requires a gradient */
    FA2PY_WAY_DISPATCHER,
    FA2PY_WAY_ERROR /* an exception is set */
} fa2py_way;

/* tensors: q, k, v and others; NULL or None for those that are not there. */
fa2py_way fa2py_torch_way(PyObject *const *tensors, int count);
/* By the function that set_torch gave for the way: with all arguments, None for those not given. */
PyObject *fa2py_torch_call(fa2py_way way, PyObject *const *values, int count);

/* What PyTorch says now: 1 or 0, -1 with an exception; 0 where it was not told of (set_torch). */
int fa2py_torch_records(void);          /* operations of this thread */
int fa2py_torch_is_deterministic(void); /* or is to be */

/* ---- autograd of calls without features (autograd.c) ---- */

/* What such a call has beside its tensors: a tuple. */
enum {
    FA2PY_PLAIN_CAUSAL,
    FA2PY_PLAIN_WINDOW,
    FA2PY_PLAIN_SOFTCAP,
    FA2PY_PLAIN_SCALE,
    FA2PY_PLAIN_LAYOUT,
    FA2PY_PLAIN_CONTEXT,
    FA2PY_PLAIN_DETERMINISTIC,
    FA2PY_PLAIN_SETTINGS
};
extern const int fa2py_plain_places[FA2PY_PLAIN_DETERMINISTIC]; /* FA2PY_SET_... of each */

/* plain_forward(ctx, settings, *tensors): a Function's forward. plain_node(type): its nodes' backward. */
PyObject *fa2py_plain_forward(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *fa2py_plain_node(PyObject *module, PyObject *type);

#endif
