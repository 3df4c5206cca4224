"""Attention of packed tokens that are cut among ranks by their number alone: sequences lie on several ranks.

K and V of all ranks are gathered some heads at a time. While a kernel has some heads, the next ones travel. Backward
gathers them again, and gradients of K and V are float32 until they are summed over the ranks.
"""

import bisect
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch import Tensor

from . import _native
from ._dispatch import truth
from ._shares import Kind, lengths_of
from ._steps import Passing, begin_gather, begin_sum
from .distributed import Attention, _agree_on, _as_autocast, _describe_tensor, _wanted, _wants_gradient

# ---- which rows meet ----


def prepare(cu_seqlens: Any, causal: bool, rank: int, ranks: int) -> Tuple[Tensor, Tensor, int, int, slice]:
    """Returns cu_seqlens of a rank's rows and of the keys that they see, both longest lengths, and which keys these
    are among the keys of all ranks."""
    if not 0 <= rank < ranks:
        raise ValueError(f"rank is {rank} of {ranks} ranks; it must be at least 0 and less than {ranks}")
    causal, bounds = truth("causal", causal), [0]
    for length in lengths_of(cu_seqlens):
        bounds.append(bounds[-1] + length)
    total = bounds[-1]
    if total == 0 or total % ranks:
        raise ValueError(f"cu_seqlens ends with {total}, and {ranks} ranks need as many tokens each: pad the last "
                         f"sequence by {-total % ranks or ranks}")
    begin, end = rank * (total // ranks), (rank + 1) * (total // ranks)
    first, last = bisect.bisect_left(bounds, begin), bisect.bisect_left(bounds, end)
    first -= bounds[first] != begin
    keys = slice(bounds[first], end if causal else bounds[last])
    mine = bounds[first:last + 1]
    of_q = [min(max(bound, begin), end) - begin for bound in mine]
    of_k = [min(bound, keys.stop) - keys.start for bound in mine]
    device = cu_seqlens.device if isinstance(cu_seqlens, Tensor) else None
    cu_q, cu_k = (torch.tensor(found, dtype=torch.int32, device=device) for found in (of_q, of_k))
    longest_q, longest_k = (max(after - before for before, after in zip(found, found[1:])) for found in (of_q, of_k))
    return cu_q, cu_k, longest_q, longest_k, keys


# ---- the call ----


class _Call(NamedTuple):
    group: Optional[dist.ProcessGroup]
    heads: int  # of K and V that travel at a time
    keys: slice  # among the keys of all ranks: those that the own rows see
    causal: bool
    window: Optional[Tuple[int, int]]
    alibi_slopes: Optional[Tensor]
    dropout_p: float
    dropout_seed: int
    deterministic: bool
    settings: Dict[str, Any]  # of the lengths and the scale

    @property
    def operands(self) -> Dict[str, Tensor]:
        """Further ones with a gradient: none."""
        return {}

    def of_heads(self, heads: slice) -> Dict[str, Any]:
        """The settings of a kernel with these heads of q. Each one drops elements by itself, alike in backward."""
        slopes = self.alibi_slopes
        settings = {"causal": self.causal, "window": self.window, **self.settings,
                    "alibi_slopes": None if slopes is None else slopes[..., heads].contiguous()}
        if self.dropout_p:
            number = (dist.get_rank(self.group) << 32) + heads.start
            settings.update(dropout_p=self.dropout_p, dropout_seed=(self.dropout_seed + number) % (1 << 64))
        return settings


def _describe(tensors: Sequence[Any], call: _Call) -> Kind:
    """Returns what the calls of all ranks have in common. Their sequences differ."""
    named = {"heads_k_stride": call.heads, "causal": call.causal, "window": call.window,
             "softmax_scale": call.settings["scale"], "dropout_p": call.dropout_p, "deterministic": call.deterministic,
             "alibi_slopes": None if call.alibi_slopes is None else "given"}
    return (("function", "llama3"), *zip("qkv", map(_describe_tensor, tensors)),
            ("a gradient", _wanted(_wants_gradient(*tensors))),
            *((name, str(value)) for name, value in named.items() if value is not None))


def _check_tensors(tensors: Sequence[Any]) -> None:
    for name, tensor in zip("qkv", tensors):
        if not isinstance(tensor, Tensor) or tensor.dim() != 3:
            raise ValueError(f"{name} must be a tensor [T, H, D], this rank's tokens")
        for what, count in zip(("tokens", "heads"), tensor.shape):
            if count == 0:
                raise ValueError(f"{name} has no {what}: llama3 functions need at least one on each rank")
    q, k, v = tensors
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q is {q.dtype}, k {k.dtype} and v {v.dtype}; they must be of one type")
    if not q.shape[0] == k.shape[0] == v.shape[0]:
        raise ValueError(f"q has {q.shape[0]} tokens, k {k.shape[0]} and v {v.shape[0]}; they must be as many")
    if k.shape[1] != v.shape[1] or k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"q has {q.shape[1]} heads, k {k.shape[1]} and v {v.shape[1]}; k and v must have as many, "
                         f"and q a multiple of them")


def _check_sequences(tokens: int, call: _Call) -> None:
    """tokens: of each rank."""
    rank, total, keys = dist.get_rank(call.group), tokens * dist.get_world_size(call.group), call.keys
    if not isinstance(keys, slice) or keys.step not in (None, 1) or not (
            isinstance(keys.start, int) and isinstance(keys.stop, int) and 0 <= keys.start < keys.stop <= total):
        raise ValueError(f"local_k_slice is {keys!r}; it must be a slice of the {total} tokens of all ranks")
    if call.causal and keys.stop != (rank + 1) * tokens:
        raise ValueError(f"local_k_slice ends with {keys.stop}, and the last query of rank {rank} is token "
                         f"{(rank + 1) * tokens - 1}: give causal=True to llama3_flash_attn_prepare_cu_seqlens, too")
    cu_q, cu_k = call.settings["cu_seqlens_q"], call.settings["cu_seqlens_k"]
    if cu_q.shape != cu_k.shape:
        raise ValueError(f"cu_seqlens_q is {list(cu_q.shape)} and cu_seqlens_k {list(cu_k.shape)}; they must have as "
                         f"many sequences")


def _check(tensors: Sequence[Any], call: _Call) -> None:
    """Raises what is wrong with a call on this rank. The values of cu_seqlens are on the device, and not looked at."""
    _check_tensors(tensors)
    q, k, _ = tensors
    if not isinstance(call.heads, int) or call.heads < 1 or k.shape[1] % call.heads:
        raise ValueError(f"heads_k_stride is {call.heads!r}; it must divide the {k.shape[1]} heads of k")
    _check_sequences(q.shape[0], call)
    slopes = call.alibi_slopes
    if slopes is not None and slopes.shape[-1] != q.shape[1]:
        raise ValueError(f"alibi_slopes is {list(slopes.shape)}; it must be [{q.shape[1]}], or have such a row for "
                         f"each sequence of the rank")
    if not 0 <= call.dropout_p < 1:
        raise ValueError(f"dropout_p is {call.dropout_p}; it must be at least 0 and less than 1")
    if not call.causal and (call.window is not None or slopes is not None):
        raise NotImplementedError("windows and alibi_slopes need causal=True: without it, a rank's last query is "
                                  "not the last key")


# ---- forward and backward ----


def _gathered(q: Tensor, k: Tensor, v: Tensor, call: _Call) -> Iterator[Tuple[slice, slice, Tensor, Tensor]]:
    """Yields heads of q, the heads of k that they have, and these heads of the keys and values that the rank needs.

    Begins to gather the next heads before it yields some.
    """
    count, share = k.shape[1], q.shape[1] // k.shape[1]

    def begin(first: int) -> Passing:
        some = slice(first, first + call.heads)
        return begin_gather(torch.cat((k[:, some], v[:, some]), -1), call.group,
                            f"heads {some.start} to {some.stop - 1} of {count} of all keys")

    coming = begin(0)
    for first in range(0, count, call.heads):
        here = coming.wait()[0].flatten(0, 1)[call.keys]
        end = first + call.heads
        if end < count:
            coming = begin(end)
        yield slice(first * share, end * share), slice(first, end), *_parts(here, k)


def _parts(joined: Tensor, k: Tensor) -> Tuple[Tensor, Tensor]:
    return joined[..., :k.shape[-1]], joined[..., k.shape[-1]:]


def _forward(q: Tensor, k: Tensor, v: Tensor, call: _Call) -> Tuple[Tensor, ...]:
    out = q.new_empty((*q.shape[:-1], v.shape[-1]))
    lse = q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)
    for heads, _, keys, values in _gathered(q, k, v, call):
        _, made = _native.launch(q[:, heads], keys, values, out=out[:, heads], return_lse=True, **call.of_heads(heads))
        lse[heads].copy_(made)
    return out, lse, q, k, v, out, lse


def _backward(d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, call: _Call) -> List[Any]:
    gradients = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (q, k, v)]
    travelling: Optional[Passing] = None
    before = slice(0)  # the heads of k that travel

    def finish() -> None:
        if travelling is not None:
            for gradient, part in zip(gradients[1:], _parts(travelling.wait()[0], k)):
                gradient[:, before].copy_(part)

    for heads, own, keys, values in _gathered(q, k, v, call):
        sums = k.new_empty((dist.get_world_size(call.group), len(k), call.heads, k.shape[-1] + v.shape[-1]),
                           dtype=torch.float32)
        rows = sums.flatten(0, 1)
        rows[:call.keys.start].zero_()
        rows[call.keys.stop:].zero_()
        dq = torch.empty_like(q[:, heads], dtype=torch.float32, memory_format=torch.contiguous_format)
        dk, dv = _parts(rows[call.keys], k)
        _native.attention_backward(d_out[:, heads], q[:, heads], keys, values, out[:, heads], lse[heads], dq=dq, dk=dk,
                                   dv=dv, partial="write", deterministic=call.deterministic, **call.of_heads(heads))
        gradients[0][:, heads].copy_(dq)
        finish()
        before = own
        travelling = begin_sum(sums, call.group, f"gradients of heads {own.start} to {own.stop - 1} of all keys")
    finish()
    return [*gradients, {}]


def attend(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int,
           max_seqlen_k: int, heads_k_stride: int, local_k_slice: slice, dropout_p: float,
           softmax_scale: Optional[float], causal: bool, window_size: Any, alibi_slopes: Optional[Tensor],
           deterministic: bool, return_attn_probs: bool,
           group: Optional[dist.ProcessGroup]) -> Tuple[Tensor, Tensor]:
    """Returns out and lse of a rank's tokens. Raises what _agree_on does."""
    kind: Optional[Kind] = None
    wrong: Optional[Exception] = None
    try:
        if _wants_gradient(alibi_slopes):
            raise NotImplementedError("alibi_slopes requires a gradient, and fa2 has none for it: detach it")
        causal, deterministic = truth("causal", causal), truth("deterministic", deterministic)
        truth("return_attn_probs", return_attn_probs)
        q, k, v = _as_autocast(q, k, v)
        left, right = _native.window(window_size)
        window = (left, -1 if causal else right)
        call = _Call(group, heads_k_stride, local_k_slice, causal, None if window == (-1, -1) else window,
                     alibi_slopes, float(dropout_p), int(torch.randint(1 << 62, ())) if dropout_p else 0,
                     deterministic or torch.are_deterministic_algorithms_enabled(),
                     {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "max_seqlen_q": max_seqlen_q,
                      "max_seqlen_k": max_seqlen_k, "scale": softmax_scale})
        kind = _describe((q, k, v), call)
        _check((q, k, v), call)
    except Exception as error:
        wrong = error  # the other ranks wait, whatever it is
    _agree_on(kind, wrong, group)
    apply: Any = Attention.apply
    out, lse = apply(q, k, v, call, _forward, _backward)
    return out, lse
