"""FlashAttention-2 kernels, generated and tuned for the GPU in front of them.

    import fa2
    out = fa2.attention(q, k, v, causal=True)        # [B, S, H, D], float16 or bfloat16, on a GPU

Tensors are those of any library that speaks DLPack; `fa2.torch` has what PyTorch needs besides:
autograd's and torch.compile's sight of it, and scaled_dot_product_attention.

A *problem* is a dict of what decides which kernel is the best one: op ("forward" or "backward"), batch,
heads_q, heads_kv, seq_q, seq_k, head_dim, head_dim_v (columns of v where they are fewer), v_in_k (1 if v is
the first columns of k), dtype ("fp16" or "bf16"), causal, softcap (1 if scores are capped), window ("none",
"sliding", "prefix", "chunk", or its number) with window_left and window_right, deterministic, alibi, sinks
and dropout (1 if there are such), bias ("fp16", "bf16", "fp32", "bool" or "none"), seqused (1 if how many
keys are used is on the device), varlen (1 if sequences are packed) with total_q and total_k, paged (1 if keys
lie in pages) with page, leftpad and cache_rows (1 if there are such), append (1 if new keys are written) with
rotary ("halves", "interleaved" or "none") and rotary_dim. Those that are left out mean forward, 1 batch,
heads_kv = heads_q, seq_k = seq_q, fp16, pages of 16, rotary_dim = head_dim (in steps of 16, up to 256), and 0.
"""

from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple, Union

from . import _native, _tuner
from ._native import (Context, Error, attention, attention_backward, dropout_mask, problem,
                      set_default_context)
from ._tuner import tune, winners

if TYPE_CHECKING:
    from ._native import Explanation

__version__: str = _native.__version__
__all__ = ["Context", "Error", "attention", "attention_backward", "dropout_mask", "explain", "prepare",
           "problem", "set_default_context", "tune", "winners"]


def _problem_of(tensors: Tuple[Any, ...], fields: Dict[str, Any]) -> Dict[str, Any]:
    if not tensors:
        return fields
    if len(tensors) == 1 and isinstance(tensors[0], dict):
        return {**tensors[0], **fields}
    return problem(*tensors, **fields)


def _device_of(tensors: Tuple[Any, ...]) -> Optional[int]:
    if tensors and not isinstance(tensors[0], dict):
        return int(tensors[0].__dlpack_device__()[1])
    return None


def prepare(*tensors: Any, context: Optional[Context] = None, device: Optional[int] = None,
            **fields: Any) -> None:
    """Choose and load a kernel beforehand, so that the first call only launches.

    prepare(q, k, v, causal=True), with attention's keywords, on tensors of the shapes to come; or
    prepare(batch=1, heads_q=8, seq_q=512, head_dim=64, causal=1), with a problem's fields; or with such a
    dict. op="backward" asks for the kernel of the gradients. Needed before a CUDA graph is captured. Compiles, for
    a second or so, if nothing was tuned.
    """
    _check_route(context, device, None, None)
    asked = _problem_of(tensors, fields)  # first, because it looks at the tensors
    _context(tensors, context, device).prepare(asked)


def explain(*tensors: Any, context: Optional[Context] = None, device: Optional[int] = None,
            arch: Union[str, int, None] = None, database: Optional[str] = None, **fields: Any) -> "Explanation":
    """Which kernel a problem gets, by which rule, and what time is expected: a dict.

    Arguments as of prepare. arch="sm_86" answers for the card that stands for that SM, without a GPU: what the tuning
    database has, else the cost model's choice. It goes without context and device, and context without database.

    problem is what was asked. rule is "exact", "nearest", "arch", "shipped" or "default"; variant names the kernel,
    estimate_us is the time that it is expected to take, measured tells whether that rests on measurements. median_us is
    what was measured on tuned_problem, 0 if nothing was; device is the card of it, or the model's. target is what the
    kernel is compiled for; registers and spill_bytes are those of a thread, smem_bytes those of a block, 0 of what is not
    compiled yet; reason is a sentence. runner_up and runner_up_us tell what would be next, "" and 0 if nothing.

    With arch only, else None: model_us is the cost model's estimate, candidates are the variants that were compared.
    By the default rule, tuned_problem is then None too: without arch it is the one about which the model was asked.
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


def _check_route(context: Optional[Context], device: Optional[int], arch: Union[str, int, None],
                 database: Optional[str]) -> None:
    if arch is not None and (context is not None or device is not None):
        raise ValueError(f"arch is {arch!r}, which answers without a device: leave out "
                         f"{'device' if context is None else 'context'}=, or arch=")
    if context is not None and not isinstance(context, Context):
        raise TypeError(f"context is {context!r}; it must be a fa2.Context")
    if context is not None and database is not None:
        raise ValueError(f"database is {database!r} and a context is given, which has its own: leave out one of them")


def _agreed_device(tensors: Tuple[Any, ...], context: Optional[Context], device: Optional[int]) -> int:
    """The one that all of them mean."""
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
