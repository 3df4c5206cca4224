"""fa2 as PyTorch operations.

    import fa2.torch
    out = fa2.torch.sdpa(query, key, value, is_causal=True)      # [B, H, S, D]
    with fa2.torch.replace_sdpa():                               # a whole model
        model(tokens)

torch.ops.fa2.attention is the operation: torch.compile, export and autocast see it, and fa2.attention and
sdpa become it wherever one of these looks on. Where none does, both go past PyTorch's dispatcher.
"""

import contextlib
import sys
import threading
import warnings
from typing import Any, Iterator, Optional, Set

import torch
import torch.nn.functional as F

from . import _native

if not hasattr(torch.library, "register_fake"):
    raise ImportError(f"fa2.torch needs PyTorch 2.4 or newer; this is {torch.__version__}")

__all__ = ["attention", "replace_sdpa", "sdpa"]

attention = _native.attention

_NO_BACKWARD = ("fa2 has no backward pass yet, and q, k or v requires a gradient: call it under "
                "torch.no_grad() or on detached tensors")

# ---- the operation ----

_old = globals().get("_library")
if _old is not None:  # the module is loaded again
    _old._destroy()
_library = torch.library.Library("fa2", "FRAGMENT")
# The compiler must not choose strides: D is to stay contiguous, and views are to stay views.
_library.define(
    "attention(Tensor q, Tensor k, Tensor v, bool causal=False, int window_left=-1, int window_right=-1, "
    "float softcap=0.0, float? scale=None, bool return_lse=False) -> (Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag, getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)))


def _cuda(q, k, v, causal=False, window_left=-1, window_right=-1, softcap=0.0, scale=None, return_lse=False):
    result = _native.launch(q, k, v, causal=causal, window=(window_left, window_right), softcap=softcap,
                            scale=scale, return_lse=return_lse)
    return result if return_lse else (result, q.new_empty((0,), dtype=torch.float32))


def _elsewhere(q, k, v, *settings):
    raise ValueError(f"q is on device {q.device}; fa2 runs on CUDA devices only")


def _fake(q, k, v, causal=False, window_left=-1, window_right=-1, softcap=0.0, scale=None, return_lse=False):
    torch._check(q.dim() == 4 and k.dim() == 4 and v.dim() == 4, lambda: "q, k and v must have 4 dimensions")
    torch._check(k.shape == v.shape, lambda: f"k is {tuple(k.shape)} and v {tuple(v.shape)}; they must be equal")
    torch._check(q.dtype == k.dtype == v.dtype, lambda: "q, k and v must be of one type")
    batch, length, heads, _ = q.shape
    lse = (batch, heads, length) if return_lse else (0,)
    return torch.empty_like(q), q.new_empty(lse, dtype=torch.float32)


def _autocast(q, k, v, *settings):
    wanted = torch.get_autocast_dtype("cuda")
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)):
        return torch.ops.fa2.attention(q.to(wanted), k.to(wanted), v.to(wanted), *settings)


def _refuse_backward(*unused: Any, **unused_too: Any) -> None:
    raise NotImplementedError(_NO_BACKWARD)


_library.impl("attention", _cuda, "CUDA")
_library.impl("attention", _elsewhere, "CPU")
_library.impl("attention", _autocast, "AutocastCUDA")
torch.library.register_fake("fa2::attention", _fake, lib=_library)
torch.library.register_autograd("fa2::attention", _refuse_backward, setup_context=_refuse_backward, lib=_library)


def _dispatch(q, k, v, causal, window, softcap, scale, layout, out, return_lse, context, stream):
    """fa2.attention by way of PyTorch's dispatcher; None for what was not given."""
    for name, value in (("out", out), ("context", context), ("stream", stream)):
        if value is not None:
            raise NotImplementedError(f"{name}= is only for calls that PyTorch does not trace, cast or differentiate")
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        raise NotImplementedError(_NO_BACKWARD)
    if layout not in (None, "bshd", "bhsd"):
        raise ValueError(f'layout is {layout!r}; it must be "bshd" or "bhsd"')
    left, right = (-1 if bound is None else bound for bound in (window or (-1, -1)))
    heads_first = layout == "bhsd"
    if heads_first:
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    result, lse = torch.ops.fa2.attention(q, k, v, bool(causal), left, right, softcap or 0.0, scale, bool(return_lse))
    if heads_first:
        result = result.transpose(1, 2)
    return (result, lse) if return_lse else result


def _watchers():
    """What tells, when called, that the dispatcher has somebody to call besides the kernel. Each costs every
    call some 40 ns."""
    names = ("_len_torch_dispatch_stack", "_len_torch_function_stack", "_is_tracing", "is_autocast_enabled")
    return [*(getattr(torch._C, name) for name in names), torch._C._functorch.peek_interpreter_stack]


_native.set_torch(_dispatch, torch.is_grad_enabled, *_watchers())

# ---- scaled_dot_product_attention ----


def _refusal(query, key, value, attn_mask, dropout_p, scale) -> Optional[str]:
    if attn_mask is not None:
        return "attn_mask: fa2 has no masks or bias yet"
    if dropout_p:
        return "dropout_p: fa2 has no dropout yet"
    if scale is not None and scale <= 0:
        return f"scale is {scale}; fa2 wants it more than 0"
    if type(query).__name__ == "NestedTensor" or query.is_nested:
        return "fa2 has no nested tensors yet"
    if not 2 <= query.dim() == key.dim() == value.dim():
        return "query, key and value differ in rank"
    if value.shape[-1] != query.shape[-1]:
        return "value's head dimension is not query's"
    if not query.is_cuda:
        return f"the tensors are on device {query.device}"
    return None


def _four(tensor):
    """[B, H, S, D] of a tensor with other than two leading dimensions."""
    while tensor.dim() < 3:
        tensor = tensor.unsqueeze(0)
    return tensor.unsqueeze(1) if tensor.dim() == 3 else tensor.flatten(0, -4)


def _sdpa(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    """What sdpa does where the straight way to the kernel is not open."""
    reason = _refusal(query, key, value, attn_mask, dropout_p, scale)
    if reason is not None:
        raise NotImplementedError(reason)
    shape = query.shape
    if query.dim() != 4:
        query, key, value = _four(query), _four(key), _four(value)
    if query.shape[1] != key.shape[1] and not enable_gqa:
        raise ValueError(f"query has {query.shape[1]} heads and key {key.shape[1]}: enable_gqa=True shares keys")
    window = None
    if is_causal and query.shape[2] != key.shape[2]:
        # PyTorch's mask begins at the top left: query i sees keys up to i, whatever the lengths
        if key.shape[2] > query.shape[2]:
            key, value = key[:, :, :query.shape[2]], value[:, :, :query.shape[2]]
        else:
            is_causal, window = False, (-1, query.shape[2] - key.shape[2])
    width = shape[-1]
    if width % 8 != 0:
        scale = width ** -0.5 if scale is None else scale
        query, key, value = (F.pad(tensor, (0, -width % 8)) for tensor in (query, key, value))
    out = attention(query, key, value, causal=is_causal, window=window, scale=scale, layout="bhsd")
    return out[..., :width].reshape(shape) if out.shape != shape else out


sdpa = _native.make_sdpa(_sdpa, __name__)

_torch_sdpa = F.scaled_dot_product_attention
_said: Set[str] = set()
_replaced = 0
_lock = threading.Lock()


def _say_once(reason: str) -> None:
    if reason not in _said:
        _said.add(reason)
        warnings.warn(f"fa2: PyTorch's own scaled_dot_product_attention is used where {reason}", stacklevel=3)


def _sdpa_or_torch(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    try:
        return _sdpa(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    except (NotImplementedError, ValueError, _native.Error) as reason:
        _say_once(str(reason))
    return _torch_sdpa(query, key, value, attn_mask=attn_mask, dropout_p=dropout_p or 0.0, is_causal=is_causal,
                       scale=scale, enable_gqa=enable_gqa)


_patched_sdpa = _native.make_sdpa(_sdpa_or_torch, __name__)

# torch.compile takes them into its graph as they are; there they see its tensors, and become the operation.
for _function in (attention, sdpa, _patched_sdpa):
    torch.compiler.allow_in_graph(_function)


def _exchange(old: Any, new: Any) -> None:
    """Put one function in the place of another, in every module that took it by its name."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.") and module is not F or name.startswith("fa2."):
            continue
        for key, value in list(getattr(module, "__dict__", {}).items()):
            if value is old:
                setattr(module, key, new)


@contextlib.contextmanager
def replace_sdpa() -> Iterator[None]:
    """Within it, torch.nn.functional.scaled_dot_product_attention is fa2's, for all threads.

    What fa2 cannot do goes to PyTorch's own, and a warning says so, once for each reason.
    """
    global _replaced
    with _lock:
        _replaced += 1
        if _replaced == 1:
            _exchange(_torch_sdpa, _patched_sdpa)
    try:
        yield
    finally:
        with _lock:
            _replaced -= 1
            if _replaced == 0:
                _exchange(_patched_sdpa, _torch_sdpa)
