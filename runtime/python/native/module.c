/*
 * The module fa2._native. Its state belongs to the process, because it serves one interpreter.
 */
#include "native.h"

#define FAST(function) (PyCFunction)(void (*)(void)) function, METH_FASTCALL | METH_KEYWORDS

#define SETTINGS                                                                                   \
    "causal=False, window=None, softcap=None, scale=None, layout='bshd', alibi_slopes=None, "      \
    "sinks=None, seqused_k=None, bias=None, dropout_seed=None, cu_seqlens_q=None, "                \
    "cu_seqlens_k=None, block_table=None, leftpad=None, cache_rows=None, k_new=None, v_new=None, " \
    "rotary_cos=None, rotary_sin=None, dropout_p=0.0, max_seqlen_q=None, max_seqlen_k=None, "      \
    "rotary_interleaved=False, "

static const char attention_doc[] =
    "attention(q, k, v, *, " SETTINGS "context=None, stream=None, out=None, return_lse=False)\n--\n\n"
    "Returns softmax(scale * q k^T) v, by the kernel that is best for these shapes on this device.\n"
    "\n"
    "q: [B, Sq, Hq, D]; k, v: [B, Sk, Hkv, D]. Hq is a multiple of Hkv. Any library that speaks DLPack may own them.\n"
    "They are float16 or bfloat16, on one CUDA device. Strides are free, but D is contiguous, and rows begin at\n"
    "multiples of 16 bytes. v may have fewer columns than k; then out has as many as v. If v is a view of k's first\n"
    "columns, the kernel reads them once.\n"
    "\n"
    "causal: query i sees keys up to i + Sk - Sq.\n"
    "window: two numbers (left, right), also as an array: the visible keys before and after position i + Sk - Sq.\n"
    "None or a negative number means all.\n"
    "softcap: c turns scores into c * tanh(score / c).\n"
    "scale: default 1 / sqrt(D).\n"
    "layout: 'bshd', or 'bhsd' for [B, H, S, D].\n"
    "alibi_slopes: float32 [Hq] or [B, Hq]. It adds -slope * |i + Sk - Sq - j| to the scores.\n"
    "sinks: float32 [Hq], one more column in the softmax, without a value.\n"
    "seqused_k: int32 [B], the number of keys that each sequence uses, the first ones of Sk. Masks are aligned to\n"
    "the last used key.\n"
    "bias: [B or 1, Hq or 1, Sq or 1, Sk]. float16, bfloat16 or float32 is added to the scores. bool hides the keys\n"
    "where it is False.\n"
    "dropout_p: the probability with which an element of the softmax becomes 0. The others are divided by\n"
    "1 - dropout_p.\n"
    "dropout_seed: decides which ones. An int from 0 to 2^64 - 1, or on the device int64 [1], the seed, or [2], the\n"
    "seed and an offset. With PyTorch's tensors None draws a seed from the device's generator.\n"
    "cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k: packed sequences. q is [Tq, Hq, D]; k and v are\n"
    "[Tk, Hkv, D]. cu_seqlens_*: int32 [B + 1], where each sequence begins, and the end. max_seqlen_*: the longest\n"
    "lengths. lse is [Hq, Tq].\n"
    "block_table: int32 [B, pages of a sequence]. k and v are then pages, [pages, page, Hkv, D], where page is a\n"
    "power of two. Sk is the number of keys in the table, or max_seqlen_k. seqused_k gives the lengths, or\n"
    "cu_seqlens_k if the queries are packed.\n"
    "leftpad: int32 [B], the number of keys at the beginning of each sequence that are padding. seqused_k counts\n"
    "them, too.\n"
    "cache_rows: int32 [B], the row of each sequence in k and v, which are [rows, Sk, Hkv, D].\n"
    "k_new, v_new: [B, Sn, Hkv, D]. They are first written into k and v, and are visible. They follow the seqused_k\n"
    "keys of each sequence. Without seqused_k they are its last Sn keys. With packed sequences they are\n"
    "[Tq, Hkv, D], as many as queries. If v is the first columns of k, v_new must be a view of k_new's.\n"
    "rotary_cos, rotary_sin: [positions, R / 2] in q's type, with at least Sk positions. They rotate the first R\n"
    "columns of k_new by each key's position. They rotate q by its own position if causal or windowed, else by the\n"
    "position of the first new key. q in memory stays as it is.\n"
    "rotary_interleaved: True rotates columns (0, 1), (2, 3), ...; False rotates (0, R / 2), (1, R / 2 + 1), ...\n"
    "out: written and returned. It has q's shape (but v's columns) and dtype, and shares no memory with q, k or v.\n"
    "Default: a new tensor of q's library.\n"
    "return_lse: True returns (out, lse). lse is float32 [B, Hq, Sq], the natural logarithm of the softmax's sum.\n"
    "context: a fa2.Context of the tensors' device. Default: the device's default context.\n"
    "stream: a stream, or its address as a number. Default: the library's current stream. The call does not wait\n"
    "for it.\n"
    "\n"
    "Raises ValueError if tensors do not fit, NotImplementedError for calls that fa2 cannot serve, and fa2.Error.";

static const char backward_doc[] =
    "attention_backward(d_out, q, k, v, out, lse, *, " SETTINGS "context=None, stream=None, "
    "deterministic=False, dq=None, dk=None, dv=None, dsinks=False, dbias=False)\n--\n\n"
    "Returns the gradients (dq, dk, dv) of a loss with respect to q, k and v, without autograd.\n"
    "\n"
    "q, k, v and the settings: as in the call of attention. out, lse: results of attention(..., return_lse=True).\n"
    "d_out: the gradient with respect to out, in its shape and dtype. If the kernel cannot read it in place (D not\n"
    "contiguous), PyTorch's and CuPy's tensors are copied.\n"
    "deterministic: every call gives the same bits. Without it, only dk and dv do.\n"
    "dq, dk, dv: written and returned. They have the shapes of q, k and v, and any strides; they may be parts of one\n"
    "packed tensor. None: a new tensor of q's library. False: not wanted, and None is returned.\n"
    "dsinks, dbias: True appends this gradient to (dq, dk, dv). dsinks is float32 [Hq]. dbias is float32 in the\n"
    "bias's shape; with deterministic it is [B, Hq, Sq, Sk]. ALiBi slopes have no gradient.\n"
    "\n"
    "Raises the exceptions of attention.";

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
    {"launch", FAST(fa2py_launch_function),
     "launch(q, k, v, *, differentiable=False, **keywords)\n--\n\n"
     "attention, always without PyTorch's dispatcher. differentiable: raise an error if the call has no gradient."},
    {"problem", FAST(fa2py_problem),
     "problem(q, k, v, *, " SETTINGS "op='forward', deterministic=False)\n--\n\n"
     "Returns the problem of a call of attention, or with op='backward' of attention_backward, on these tensors:\n"
     "a dict of sizes, dtype and features."},
    {"check_differentiable", fa2py_check_differentiable, METH_O,
     "check_differentiable(problem, /)\n--\n\n"
     "Raises NotImplementedError if fa2 has no gradient for a problem of the forward operation."},
    {"dropout_mask", fa2py_dropout_mask, METH_VARARGS,
     "dropout_mask(problem, dropout_p, dropout_seed, offset=0, /)\n--\n\n"
     "Returns which elements a call on the problem keeps (1) or drops (0), as a bytearray of [B, Hq, Sq, Sk].\n"
     "The host computes it. For tests."},
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
    {"plain_forward", (PyCFunction)(void (*)(void))fa2py_plain_forward, METH_FASTCALL, NULL},
    {"plain_node", fa2py_plain_node, METH_O, NULL},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "fa2._native", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void); /* Python looks it up by this name */

PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    if (!fa2py_errors_init(module) || !fa2py_context_init(module) ||
        PyModule_AddStringConstant(module, "__version__", FA2PY_VERSION) != 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
