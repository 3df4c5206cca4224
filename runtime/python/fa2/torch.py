"""fa2 as PyTorch operations.

    import fa2.torch
    out = fa2.torch.sdpa(query, key, value, is_causal=True)      # [B, H, S, D]
    with fa2.torch.replace_sdpa():                               # a whole model
        model(tokens)

attention, attention_packed and sdpa have gradients, and become operations (torch.ops.fa2.*) wherever
torch.compile, export or a mode looks on. Where nobody does, they go past PyTorch's dispatcher.
"""

import contextlib
import sys
import threading
import warnings
from typing import Any, Iterator, Optional, Set

from ._frameworks import allow_in_graph, need

need("torch", "PyTorch", __name__)

import torch
import torch.nn.functional as F
from torch import Tensor

if not hasattr(torch.library, "register_fake"):
    raise ImportError(f"fa2.torch needs PyTorch 2.4 or newer; this is {torch.__version__}")

from . import _native
from ._dispatch import attention_packed, padded

__all__ = ["attention", "attention_packed", "replace_sdpa", "sdpa"]

attention = _native.attention

# ---- scaled_dot_product_attention ----


def _refusal(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], is_causal: bool,
             scale: Optional[float]) -> Optional[str]:
    if attn_mask is not None and (is_causal or query.dim() > 4 or attn_mask.dtype not in _MASKS):
        return ("attn_mask is a boolean, float16, bfloat16 or float32 tensor, beside is_causal=False and tensors of at most "
                "4 dimensions")
    if scale is not None and scale <= 0:
        return f"scale is {scale}; fa2 wants it more than 0"
    if type(query).__name__ == "NestedTensor" or query.is_nested:
        return "fa2 has no nested tensors yet"
    if not 2 <= query.dim() == key.dim() == value.dim():
        return "query, key and value differ in rank"
    if not query.is_cuda:
        return f"the tensors are on device {query.device}"
    return None


def _four(tensor: Tensor) -> Tensor:
    """[B, H, S, D] of a tensor with other than two leading dimensions."""
    while tensor.dim() < 3:
        tensor = tensor.unsqueeze(0)
    return tensor.unsqueeze(1) if tensor.dim() == 3 else tensor.flatten(0, -4)


_MASKS = (torch.bool, torch.float16, torch.bfloat16, torch.float32)


def _four_mask(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """[B or 1, H or 1, Sq or 1, Sk] of a mask that can be spread over that."""
    if mask.dim() == query.dim() == 3:
        mask = mask.unsqueeze(1)
    while mask.dim() < 4:
        mask = mask.unsqueeze(0)
    return mask.expand(*mask.shape[:3], key.shape[-2])


def _sdpa(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], dropout_p: Optional[float],
          is_causal: bool, scale: Optional[float], enable_gqa: bool) -> Tensor:
    """What sdpa does where the straight way to the kernel is not open."""
    reason = _refusal(query, key, value, attn_mask, is_causal, scale)
    if reason is not None:
        raise NotImplementedError(reason)
    shape = query.shape
    if attn_mask is not None:
        attn_mask = _four_mask(attn_mask, query, key)
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
    width, columns = shape[-1], value.shape[-1]
    if width % 8 != 0 or columns != width:
        scale = width ** -0.5 if scale is None else scale
        query, key, value = padded(query, key, value)
    out = attention(query, key, value, causal=is_causal, window=window, scale=scale, layout="bhsd", bias=attn_mask,
                    dropout_p=dropout_p)
    wanted = (*shape[:-1], columns)
    return out[..., :columns].reshape(wanted) if out.shape != wanted else out


sdpa: Any = _native.make_sdpa(sys.modules[__name__], False)

_torch_sdpa = F.scaled_dot_product_attention
_said: Set[str] = set()
_replaced = 0
_lock = threading.Lock()


def _say_once(reason: str) -> None:
    if reason not in _said:
        _said.add(reason)
        warnings.warn(f"fa2: PyTorch's own scaled_dot_product_attention is used where {reason}", stacklevel=3)


def _sdpa_or_torch(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], dropout_p: Optional[float],
                   is_causal: bool, scale: Optional[float], enable_gqa: bool) -> Tensor:
    try:
        return _sdpa(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    except (NotImplementedError, ValueError, _native.Error) as reason:
        _say_once(str(reason))
    return _torch_sdpa(query, key, value, attn_mask=attn_mask, dropout_p=dropout_p or 0.0, is_causal=is_causal,
                       scale=scale, enable_gqa=enable_gqa)


_patched_sdpa: Any = _native.make_sdpa(sys.modules[__name__], True)

# torch.compile takes them into its graph as they are; there they see its tensors, and become the operation.
for _function in (attention, attention_packed, sdpa, _patched_sdpa):
    allow_in_graph(_function)


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
