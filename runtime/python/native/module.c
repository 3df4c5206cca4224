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
    "attention(q, k, v, *, " SETTINGS "context=None, stream=None, out=None, "
    "return_lse=False)\n--\n\n"
    "softmax(scale * q k^T) v, by the kernel that is best for these shapes on this device.\n\n"
    "q: [B, Sq, Hq, D]; k, v: [B, Sk, Hkv, D] with Hq a multiple of Hkv (v may have fewer columns, "
    "and then "
    "so has\nout; where v is those columns of k, a view, they are read once): tensors of any "
    "library that speaks DLPack,\nfloat16 or bfloat16, on one CUDA device. Any strides; D is "
    "contiguous, and rows begin at multiples of 16\nbytes.\n\n"
    "causal: query i sees keys up to i + Sk - Sq.\n"
    "window: two numbers (left, right), also as an array: it sees that many keys before and after "
    "i + Sk - Sq.\nNone or a negative number: all of them.\n"
    "softcap: c: scores become c * tanh(score / c).\n"
    "scale: default 1 / sqrt(D).\n"
    "layout: 'bshd', or 'bhsd' for [B, H, S, D].\n"
    "alibi_slopes: float32 [Hq] or [B, Hq]: scores get -slope * |i + Sk - Sq - j|.\n"
    "sinks: float32 [Hq]: a column more in the softmax, without a value.\n"
    "seqused_k: int32 [B]: how many keys each sequence has, the first ones of Sk; masks are "
    "aligned "
    "to them.\n"
    "bias: [B or 1, Hq or 1, Sq or 1, Sk], added to scores (float16, bfloat16, float32), or bool: "
    "False hides the\nkey.\n"
    "dropout_p: with that probability an element of the softmax is 0, else it is divided by "
    "1 - dropout_p.\n"
    "dropout_seed: which ones: an int from 0 to 2^64 - 1, or on the device int64 [1], or [2]: the seed, and an "
    "offset.\nPyTorch's tensors: None draws one from the device's generator.\n"
    "cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k: packed sequences: q is [Tq, Hq, D], "
    "k and v are\n[Tk, Hkv, D], int32 [B + 1] says where each sequence begins, and the end; "
    "max_seqlen_*: the longest. lse is\n[Hq, Tq].\n"
    "block_table: int32 [B, pages of a sequence]: k and v are pages, [pages, page, Hkv, D], page "
    "a power of two.\nSeq_k is then what the table holds, or max_seqlen_k; lengths are told by "
    "seqused_k, or of packed queries by\ncu_seqlens_k.\n"
    "leftpad: int32 [B]: how many keys at the beginning of each sequence are padding; seqused_k "
    "counts them, too.\n"
    "cache_rows: int32 [B]: k and v are [rows, Sk, Hkv, D], and this says which row is a "
    "sequence's.\n"
    "k_new, v_new: [B, Sn, Hkv, D]: written into k and v first, behind the seqused_k keys of each "
    "sequence (without\nseqused_k, its last Sn keys), and seen; of packed sequences "
    "[Tq, Hkv, D], as many as queries. Where v is the first\ncolumns of k, v_new is those of k_new, as a view of it.\n"
    "rotary_cos, rotary_sin: [positions, R / 2] of q's type, at least Sk positions: the first R "
    "columns of k_new are\nturned by their key's position, and those of q by its own if causal or "
    "windowed, else by that of the first new\nkey; q itself is left as it is. "
    "rotary_interleaved: pairs of columns are (0, 1), (2, 3), ...; else\n(0, R / 2), "
    "(1, R / 2 + 1), ...\n"
    "out: written to and returned: of q's shape and dtype, no part of q, k or v. Default: a new "
    "tensor of\n"
    "q's library.\n"
    "return_lse: return (out, lse): [B, Hq, Sq] float32, the natural logarithm of the softmax's "
    "sum.\n"
    "context: a fa2.Context of the tensors' device; default: the device's.\n"
    "stream: a stream, or its address as a number; default: the library's current one. Returns "
    "without waiting "
    "for it.\n\n"
    "Raises ValueError for tensors that do not fit, NotImplementedError for what fa2 cannot do, "
    "and\n"
    "fa2.Error.";

static const char backward_doc[] =
    "attention_backward(d_out, q, k, v, out, lse, *, " SETTINGS "context=None, stream=None, "
    "deterministic=False, dq=None, dk=None, "
    "dv=None, dsinks=False, dbias=False)\n--\n\n"
    "The gradients (dq, dk, dv) of a loss for q, k and v, from its gradient d_out for out: the "
    "kernel, without\nautograd.\n\n"
    "q, k, v and the settings: as attention had them; out, lse: what attention(..., "
    "return_lse=True) gave.\n"
    "d_out: of out's shape and dtype. Where the kernel cannot read it as it lies (D not "
    "contiguous), PyTorch's and\nCuPy's is copied.\n"
    "deterministic: the same bits at every call; without it only dk and dv are.\n"
    "dq, dk, dv: written to and returned: of the shape of q, k and v, of any strides (parts of one "
    "packed\ntensor, for instance). None: a new tensor of q's library. False: not wanted, and "
    "None is returned.\n"
    "dsinks, dbias: return (dq, dk, dv) and these that are wanted: float32 [Hq], the gradient for "
    "the "
    "sinks;\nfloat32 in the bias's shape, its gradient (deterministic: [B, Hq, Sq, Sk]). There is "
    "none "
    "for slopes.\n\n"
    "Raises as attention.";

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
     "launch(q, k, v, *, differentiable=False, **keywords)\n--\n\nattention, past PyTorch's "
     "dispatcher whatever is asked of it. differentiable: refuse\nwhat has no gradient."},
    {"problem", FAST(fa2py_problem),
     "problem(q, k, v, *, " SETTINGS "op='forward', deterministic=False)\n--\n\n"
     "What attention, or with op='backward' attention_backward, would be asked on these tensors: a "
     "dict of\nsizes, dtype and features."},
    {"check_differentiable", fa2py_check_differentiable, METH_O,
     "check_differentiable(problem, /)\n--\n\nRaises NotImplementedError where fa2 has no gradient "
     "for a problem of the forward operation."},
    {"dropout_mask", fa2py_dropout_mask, METH_VARARGS,
     "dropout_mask(problem, dropout_p, dropout_seed, offset=0, /)\n--\n\nWhat a call on the "
     "problem "
     "keeps, 1, or drops, 0: a bytearray of [B, Hq, Sq, Sk], computed on the\nhost. For tests."},
    {"problem_keys", fa2py_problem_keys, METH_NOARGS,
     "problem_keys()\n--\n\nThe keys of problem_text's texts, and the fields that they stand for."},
    {"problem_text", fa2py_problem_text, METH_O,
     "problem_text(problem, /)\n--\n\nThe problem as fa2-tune --shape takes it. Raises ValueError "
     "for one "
     "that is none."},
    {"raise_status", fa2py_raise_status, METH_VARARGS,
     "raise_status(status, message, /)\n--\n\nRaise what a call raises that fails with this status, in "
     "fa2_status_string's words."},
    {"default_context", fa2py_get_default_context, METH_O,
     "default_context(device, /)\n--\n\nThe context that calls on this device use, opened if it "
     "must be."},
    {"set_default_context", fa2py_set_default_context, METH_VARARGS,
     "set_default_context(context, /)\n--\n\nFrom now on, calls on the context's device that name "
     "none use "
     "it."},
    {"window", fa2py_window, METH_O,
     "window(window, /)\n--\n\n(left, right) of what attention takes as a window; -1: all keys."},
    {"keep", keep, METH_O,
     "keep(object, /)\n--\n\nKeep it while the process lives, whatever becomes of modules, in the "
     "place of the one that was kept, which\nis returned, or None."},
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
