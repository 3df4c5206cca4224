"""FlashAttention-2 kernels, generated and tuned for the GPU in front of them.

    import fa2_attn as fa2
    out = fa2.attention(q, k, v, causal=True)        # [B, S, H, D], on a GPU

Tensors may come from any library that speaks DLPack. `fa2_attn.torch` has what PyTorch needs besides: operations that
autograd and torch.compile see, and scaled_dot_product_attention.

A *problem* is a dict of everything that decides which kernel is the best one:

    op                         "forward" (default), "backward", or "merge", which has seq_k partial results
    batch                      default 1
    heads_q, heads_kv          heads_kv: default heads_q
    seq_q, seq_k               seq_k: default seq_q
    head_dim, head_dim_v       columns of q and k, and of v. head_dim_v: 0 (default) if they are equal
    v_in_k                     1 if v is the first columns of k
    dtype                      "fp16" (default), "bf16" or "fp32"
    causal                     1 if causal
    softcap                    1 if scores are capped
    window                     "none" (default), "sliding", "prefix", "chunk", or its number
    window_left, window_right  the numbers of visible keys before and after the query's own position
    deterministic              1 if backward must give the same bits in every call
    alibi, sinks, dropout      1 if the call has them
    bias                       "fp16", "bf16", "fp32", "bool" or "none" (default)
    seqused                    1 if the device holds how many keys each sequence has
    varlen, total_q, total_k   1 if sequences are packed, and the sums of their lengths
    paged, page                1 if keys lie in pages, and the rows of a page (default 16)
    leftpad, cache_rows        1 if the call has them
    append                     1 if the call writes new keys
    rotary, rotary_dim         "halves", "interleaved" or "none" (default), and the rotated columns: a multiple of 16
                               up to 256 (default head_dim)
    sums                       "fast" permits fp16 sums of the softmax times v; "fp32" (default)
    scores                     "int8" permits 8-bit integers in q k^T; "exact" (default)
    pv                         "fp8" permits, beside 8-bit scores, e4m3 numbers in the softmax times v; "exact" (default)
    kv                         "int8" or "fp8" if k and v are in 8 bits, with scales; "dtype" (default)
    kv_scales                  "fp16" if these scales are float16; "fp32" (default)
    carry                      1: out is merged with a float32 result over other keys (attention_partial's carried)
    partial                    1: out, or the gradients, are float32; 2: and merged with what is there

All other defaults are 0.
"""

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, Union

from . import _frameworks, _native, _tuner
from ._native import (Context, Error, attention, attention_backward, attention_partial, dropout_mask, merge,
                      problem, set_default_context)
from ._tuner import tune, winners
from ._warm import warm

if TYPE_CHECKING:
    from ._native import Explanation

__version__: str = _native.__version__
__all__ = ["Context", "Error", "attention", "attention_backward", "attention_partial", "counters", "dropout_mask",
           "explain", "merge", "prepare", "problem", "set_default_context", "tune", "warm", "winners"]

_frameworks.warn_of_old_name()


def __dir__() -> List[str]:
    return sorted(set(globals()) - {"TYPE_CHECKING", "Any", "Dict", "List", "Optional", "Tuple", "Union"})


def _problem_of(tensors: Tuple[Any, ...], fields: Dict[str, Any]) -> Dict[str, Any]:
    if not tensors or (len(tensors) == 1 and isinstance(tensors[0], dict)):
        asked = {**(tensors[0] if tensors else {}), **fields}
        _native.problem_text(asked)  # a wrong field is refused without a GPU, too
        return asked
    if isinstance(tensors[0], str):
        raise TypeError(f"{tensors[0]!r}: tune() alone takes a text; give a dict (fa2_attn.problem), fields or tensors")
    return problem(*tensors, **fields)


def _device_of(tensors: Tuple[Any, ...]) -> Optional[int]:
    if tensors and not isinstance(tensors[0], dict):
        return int(tensors[0].__dlpack_device__()[1])
    return None


def prepare(*tensors: Any, context: Optional[Context] = None, device: Optional[int] = None,
            **fields: Any) -> None:
    """Chooses and loads the kernel of a problem, so that the first call only launches it.

    Give attention's arguments with tensors of the later shapes: prepare(q, k, v, causal=True). Or give the fields of a
    problem: prepare(batch=1, heads_q=8, seq_q=512, head_dim=64, causal=1). Or give such a dict. op="backward" means the
    kernel of the gradients. Call this before you capture a CUDA graph. If nothing was tuned, it compiles for about a
    second.
    """
    _check_route(context, device, None, None)
    asked = _problem_of(tensors, fields)  # first, because it looks at the tensors
    _context(tensors, context, device).prepare(asked)


def explain(*tensors: Any, context: Optional[Context] = None, device: Optional[int] = None,
            arch: Union[str, int, None] = None, database: Optional[str] = None, **fields: Any) -> "Explanation":
    """Returns a dict that says which kernel a problem gets, by which rule, and the expected time.

    Takes the arguments of prepare. arch="sm_86" answers without a GPU, for a typical card of that SM. The answer comes
    from the tuning database, or from the cost model if the database has nothing. arch excludes context and device;
    database excludes context.

    problem       the problem that was asked about
    rule          "exact", "nearest", "arch", "shipped" or "default"
    variant       the name of the kernel
    estimate_us   its estimated time
    measured      True if the estimate rests on measurements
    tuned_problem the problem that was measured; by the default rule, the one that the model was asked about
    median_us     the time measured on tuned_problem, 0 if there is none
    device        the card of the measurement, or the model's card
    target        the SM that the kernel is compiled for
    registers, spill_bytes  per thread; smem_bytes  per block. 0 if the kernel is not compiled yet
    reason        a sentence
    runner_up, runner_up_us  the second best kernel and its estimated time, "" and 0 if there is none
    model_us      the cost model's estimate. With arch only, else None
    candidates    the variants that were compared. With arch only, else None

    With arch and the default rule, tuned_problem is None.
    """
    _check_route(context, device, arch, database)
    asked = _problem_of(tensors, fields)  # first, because it looks at the tensors
    if arch is not None:
        return _tuner.explain_offline(asked, arch, database)
    if database is not None:
        with Context(database, device=_agreed_device(tensors, None, device)) as own:
            return own.explain(asked)
    try:
        return _context(tensors, context, device).explain(asked)
    except Error as error:
        if error.status in ("FA2_E_NO_DRIVER", "FA2_E_NO_DEVICE"):
            error.args = (f'{error}. Without a GPU, arch="sm_86" answers for the card that stands for an SM',)
        raise


@_frameworks.suggesting
def counters(*, context: Optional[Context] = None, device: Optional[int] = None) -> Dict[str, int]:
    """Returns what a context did: calls by rule, kernels loaded and compiled, misses and the time they took.

    Default: the default context of the device, or of device 0. Context.counters names the counters.
    """
    _check_route(context, device, None, None)
    return _context((), context, device).counters()


def _check_route(context: Optional[Context], device: Optional[int], arch: Union[str, int, None],
                 database: Optional[str]) -> None:
    if arch is not None and (context is not None or device is not None):
        raise ValueError(f"arch is {arch!r}, which answers without a device: leave out "
                         f"{'device' if context is None else 'context'}=, or arch=")
    if context is not None and not isinstance(context, Context):
        raise TypeError(f"context is {context!r}; it must be a fa2_attn.Context")
    if context is not None and database is not None:
        raise ValueError(f"database is {database!r} and a context is given, which has its own: leave out one of them")


def _agreed_device(tensors: Tuple[Any, ...], context: Optional[Context], device: Optional[int]) -> int:
    """Returns the device that all arguments agree on, 0 if none names one. Raises ValueError if they differ."""
    places = {"device": device, "the tensors' device": _device_of(tensors),
              "the context's device": None if context is None else context.device}
    given = [(name, number) for name, number in places.items() if number is not None]
    for name, number in given[1:]:
        if number != given[0][1]:
            raise ValueError(f"{given[0][0]} is {given[0][1]}, and {name} is {number}: they must be the same")
    return given[0][1] if given else 0


def _context(tensors: Tuple[Any, ...], context: Optional[Context], device: Optional[int]) -> Context:
    agreed = _agreed_device(tensors, context, device)
    return _native.default_context(agreed) if context is None else context
