"""fa2 as PyTorch operations.

    import fa2_attn.torch
    out = fa2_attn.torch.sdpa(query, key, value, is_causal=True)      # [B, H, S, D]
    with fa2_attn.torch.replace_sdpa():                               # a whole model
        model(tokens)

attention, attention_packed and sdpa have gradients. Where torch.compile, export or a mode intercepts calls, they are
operations (torch.ops.fa2.*). Elsewhere they skip PyTorch's dispatcher.
"""

import contextlib
import sys
import threading
import warnings
from typing import Any, Iterator, List, Optional, Sequence, Set, Tuple

from ._frameworks import allow_in_graph, need

need("torch", "PyTorch", __name__)

import torch
import torch.nn.functional as F
from torch import Tensor

if not hasattr(torch.library, "register_fake"):
    raise ImportError(f"fa2_attn.torch needs PyTorch 2.4 or newer; this is {torch.__version__}")

from . import _native
from ._dispatch import attention_packed, padded, readable

__all__ = ["attention", "attention_packed", "replace_sdpa", "sdpa"]

attention = _native.attention

# ---- scaled_dot_product_attention ----


def _refusal(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], is_causal: bool,
             scale: Optional[float]) -> Optional[str]:
    if attn_mask is not None and (is_causal or attn_mask.dtype not in _MASKS):
        return "attn_mask is given with is_causal, or is no boolean, float16, bfloat16 or float32 tensor"
    if scale is not None and scale <= 0:
        return f"scale is {scale}; fa2 needs more than 0"
    if type(query).__name__ == "NestedTensor" or query.is_nested:
        return "fa2 has no nested tensors yet"
    if min(query.dim(), key.dim(), value.dim()) < 2:
        return "query, key or value has less than two dimensions"
    if not query.is_cuda:
        return f"the tensors are on device {query.device}"
    needed = (8, 0) if query.dtype is torch.bfloat16 else (7, 5)
    found = torch.cuda.get_device_capability(query.device) if torch.cuda.is_available() else needed
    if found < needed:  # checked here, because a compiler asks before a kernel exists
        return f"the device has compute capability {found[0]}.{found[1]}; {query.dtype} needs {needed[0]}.{needed[1]}"
    return None


_MASKS = (torch.bool, torch.float16, torch.bfloat16, torch.float32)


def _four(tensor: Tensor, leading: Sequence[int]) -> Tensor:
    """Returns [B, H, S, D] for a tensor [..., H, S, D] or [..., S, D], broadcast to the given leading dimensions."""
    split = -2 if len(leading) == tensor.dim() - 2 else -3
    if tensor.shape[:split] != tuple(leading):
        tensor = tensor.expand(*leading, *tensor.shape[split:])
    return tensor.unsqueeze(1) if tensor.dim() == 3 else tensor if tensor.dim() == 4 else tensor.flatten(0, -4)


def _heads(tensors: Sequence[Tensor], shares: bool) -> List[Tensor]:
    """Gives query, key and value [B, H, S, D] numbers of heads that kernels take.

    key and value then have equally many heads, and query has a multiple of them. shares: enable_gqa.
    """
    counts = [tensor.shape[1] for tensor in tensors]
    if shares:
        most = counts[0] if counts[1] != counts[2] else counts[1]
        if not all(count and most % count == 0 for count in counts[1:]):
            raise ValueError(f"query has {counts[0]} heads, key {counts[1]} and value {counts[2]}")
        return [tensor if count in (0, most) else tensor.repeat_interleave(most // count, 1)
                for tensor, count in zip(tensors, (0, *counts[1:]))]
    most = max(counts)
    if any(count not in (1, most) for count in counts):
        raise ValueError(f"query has {counts[0]} heads, key {counts[1]} and value {counts[2]}: enable_gqa=True shares "
                         "keys")
    groups = counts[1] == counts[2]  # key and value may keep their single head
    wanted = (most, *(counts[1:] if groups else (most, most)))
    return [tensor if tensor.shape[1] == count else tensor.expand(-1, count, -1, -1)
            for tensor, count in zip(tensors, wanted)]


def _broadcast(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], shares: bool
               ) -> Tuple[List[Tensor], Optional[Tensor], Tuple[int, ...]]:
    """Broadcasts all but the last two dimensions, as PyTorch does.

    Returns query, key and value as [B, H, S, D], the mask as [B or 1, H or 1, Sq or 1, Sk], and the leading dimensions
    of the output.
    """
    tensors = [query, key, value]
    rank = max(tensor.dim() for tensor in tensors)
    depth = max(rank, 3)
    split = -3 if depth > 3 else -2  # the first of three dimensions is the batch
    tensors = [_deepened(tensor, depth) for tensor in tensors]
    leading = torch.broadcast_shapes(*(tensor.shape[:split] for tensor in tensors))
    four = _heads([_four(tensor, leading) for tensor in tensors], shares)
    if attn_mask is not None:
        if attn_mask.dim() > rank:
            raise ValueError(f"attn_mask has {attn_mask.dim()} dimensions, and the tensors have {rank}")
        attn_mask = _deepened(attn_mask, depth)
        attn_mask = _four(attn_mask, leading if depth > 4 else attn_mask.shape[:split])
        attn_mask = attn_mask.expand(*attn_mask.shape[:3], four[1].shape[2])
    return four, attn_mask, () if rank == 2 else (*leading, *four[0].shape[1:2])[:rank - 2]


def _deepened(tensor: Tensor, rank: int) -> Tensor:
    return tensor if tensor.dim() == rank else tensor[(None,) * (rank - tensor.dim())]


def _sdpa(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], dropout_p: Optional[float],
          is_causal: bool, scale: Optional[float], enable_gqa: bool, *permissions: Any) -> Tensor:
    """The general path of sdpa, for calls that cannot take the native one. permissions: as for permit_sdpa."""
    reason = _refusal(query, key, value, attn_mask, is_causal, scale)
    if reason is not None:
        raise NotImplementedError(reason)
    (query, key, value), attn_mask, leading = _broadcast(query, key, value, attn_mask, enable_gqa)
    wanted = (*leading, query.shape[2], value.shape[3])
    window = None
    if is_causal and query.shape[2] != key.shape[2]:
        # PyTorch's mask is aligned top-left: query i sees keys up to i, whatever the lengths
        if key.shape[2] > query.shape[2]:
            key, value = key[:, :, :query.shape[2]], value[:, :, :query.shape[2]]
        else:
            is_causal, window = False, (-1, query.shape[2] - key.shape[2])
    width, columns = query.shape[3], value.shape[3]
    if width % 8 != 0 or columns != width:
        scale = width ** -0.5 if scale is None else scale
        query, key, value = padded(query, key, value)
    query, key, value = (readable(tensor, 2) for tensor in (query, key, value))
    out: Tensor = attention(query, key, value, causal=is_causal, window=window, scale=scale, layout="bhsd",
                            bias=attn_mask, dropout_p=dropout_p, **dict(zip(_native.PERMISSIONS, permissions)))
    return out[..., :columns].reshape(wanted) if out.shape != wanted else out


sdpa: Any = _native.make_sdpa(sys.modules[__name__], False)

_torch_sdpa = F.scaled_dot_product_attention
_said: Set[str] = set()
_MOST_SAID = 100  # a limit, because reasons may contain numbers
_replaced: List[Tuple[Any, ...]] = []  # the permissions of the active replace_sdpa, the last of which holds
_lock = threading.Lock()


def _say_once(error: Exception) -> None:
    reason = str(error) or repr(error)
    if reason not in _said and len(_said) < _MOST_SAID:
        _said.add(reason)
        warnings.warn(f"fa2: PyTorch's own scaled_dot_product_attention is used where {reason}", stacklevel=3)


def _sdpa_or_torch(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], dropout_p: Optional[float],
                   is_causal: bool, scale: Optional[float], enable_gqa: bool, *permissions: Any) -> Tensor:
    try:
        return _sdpa(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, *permissions)
    except Exception as reason:  # PyTorch's function raises its own error, or computes what fa2 cannot
        _say_once(reason)
    return _torch_sdpa(query, key, value, attn_mask=attn_mask, dropout_p=dropout_p or 0.0, is_causal=is_causal,
                       scale=scale, enable_gqa=enable_gqa)


_patched_sdpa: Any = _native.make_sdpa(sys.modules[__name__], True)

# torch.compile puts calls of them into its graph as they are. Called with its tensors, they become the operation.
for _function in (attention, attention_packed, sdpa, _patched_sdpa):
    allow_in_graph(_function)


def _exchange(old: Any, new: Any) -> None:
    """Replaces one function by another, in every module that imported it by name."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.") and module is not F or name.startswith("fa2_attn."):
            continue
        for key, value in list(getattr(module, "__dict__", {}).items()):
            if value is old:
                setattr(module, key, new)


@contextlib.contextmanager
def replace_sdpa(*, sums: Any = None, scores: Any = None, pv: Any = None) -> Iterator[None]:
    """While active, torch.nn.functional.scaled_dot_product_attention is fa2's, for all threads.

    sums, scores, pv: permissions to be less exact, as for attention. The last one that was entered holds.
    Calls that fa2 cannot serve go to PyTorch's own function. A warning says so, once for each reason.
    """
    permissions = (sums, scores, pv)
    with _lock:
        _native.permit_sdpa(*permissions)
        _replaced.append(permissions)
        if len(_replaced) == 1:
            _exchange(_torch_sdpa, _patched_sdpa)
    try:
        yield
    finally:
        with _lock:
            _replaced.remove(permissions)
            _native.permit_sdpa(*(_replaced[-1] if _replaced else [None] * len(permissions)))
            if not _replaced:
                _exchange(_patched_sdpa, _torch_sdpa)
