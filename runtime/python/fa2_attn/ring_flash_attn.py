"""ring-flash-attn's functions, with its arguments and results, on fa2_attn.distributed's ring.

    from fa2_attn.ring_flash_attn import zigzag_ring_flash_attn_func
    out = zigzag_ring_flash_attn_func(q, k, v, causal=True, group=group)     # this rank's rows of [B, S, H, D]

ring_ functions have contiguous rows, zigzag_ring_ and stripe_ functions have distributed.positions()'s zigzag and
striped ones. Results of steps are merged in float32, and rounded once. Other differences:

- windows and alibi_slopes are those of the whole sequence, and zigzag and stripe serve calls that are not causal, too
- gradients with deterministic=True have the same bits in every call
- what the ring does not serve raises NotImplementedError, alike on all ranks (see distributed.attention)

_varlen functions: cu_seqlens and max_seqlen count a rank's rows, so they are those of the sequences over the number of
ranks. A tensor cu_seqlens on a GPU is waited for.

llama3_ functions have packed tokens, cut into equal parts wherever a sequence then lies:

    *lengths, keys = llama3_flash_attn_prepare_cu_seqlens(cu_seqlens, True, rank, ranks)   # once for a batch: it waits
    out = llama3_flash_attn_varlen_func(q, k, v, *lengths, heads_k_stride=1, local_k_slice=keys, causal=True)

They use no ring: heads_k_stride heads of all keys are gathered while a kernel has the heads before. alibi_slopes are
served, too. Gradients of K and V are summed over the ranks in float32. Windows and alibi_slopes without causal raise
NotImplementedError. Dropout drops other elements than on one GPU.
"""

from typing import Any, Callable, Optional, Sequence, Tuple, Union

from ._frameworks import need

need("torch", "PyTorch", __name__)

import torch.distributed as dist
from torch import Tensor

from . import _llama3, distributed

__all__ = ["llama3_flash_attn_prepare_cu_seqlens", "llama3_flash_attn_varlen_func",
           "llama3_flash_attn_varlen_kvpacked_func", "llama3_flash_attn_varlen_qkvpacked_func", "ring_flash_attn_func",
           "ring_flash_attn_kvpacked_func", "ring_flash_attn_qkvpacked_func", "ring_flash_attn_varlen_func",
           "ring_flash_attn_varlen_kvpacked_func", "ring_flash_attn_varlen_qkvpacked_func", "stripe_flash_attn_func",
           "stripe_flash_attn_kvpacked_func", "stripe_flash_attn_qkvpacked_func", "zigzag_ring_flash_attn_func", "zigzag_ring_flash_attn_kvpacked_func",
           "zigzag_ring_flash_attn_qkvpacked_func", "zigzag_ring_flash_attn_varlen_func",
           "zigzag_ring_flash_attn_varlen_kvpacked_func", "zigzag_ring_flash_attn_varlen_qkvpacked_func"]

_Result = Union[Tensor, Tuple[Tensor, Tensor, None]]


def _attend(layout: str, tensors: Tuple[Tensor, Tensor, Tensor], bounds: Any, dropout_p: float, softmax_scale: Optional[float],
            causal: bool, window_size: Sequence[int], alibi_slopes: Optional[Tensor], deterministic: bool,
            return_attn_probs: bool, group: Optional[dist.ProcessGroup]) -> _Result:
    """bounds: of this rank's rows of packed sequences, or None."""
    if bounds is not None:
        ranks = dist.get_world_size(group)
        bounds = [bound * ranks for bound in (bounds.tolist() if isinstance(bounds, Tensor) else bounds)]
    made = distributed._attend(
        *tensors, {"return_attn_probs": return_attn_probs}, group=group, layout=layout, schedule="ring", causal=causal,
        window=window_size, scale=softmax_scale, alibi_slopes=alibi_slopes, dropout_p=dropout_p, cu_seqlens=bounds,
        deterministic=deterministic or None)
    return (*made, None) if return_attn_probs else made[0]


def _forms(of_three: Callable[..., _Result]) -> Tuple[Callable[..., _Result], ...]:
    """Returns a function of q, k and v, and those of q and kv, and of qkv: packed before the heads."""
    def of_two(q: Tensor, kv: Tensor, *settings: Any, **named: Any) -> _Result:
        return of_three(q, *kv.unbind(-3), *settings, **named)

    def of_one(qkv: Tensor, *settings: Any, **named: Any) -> _Result:
        return of_three(*qkv.unbind(-3), *settings, **named)

    return of_three, of_two, of_one


def _batched(layout: str) -> Tuple[Callable[..., _Result], ...]:
    def of_three(q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None,
                 causal: bool = False, window_size: Sequence[int] = (-1, -1), alibi_slopes: Optional[Tensor] = None,
                 deterministic: bool = False, return_attn_probs: bool = False,
                 group: Optional[dist.ProcessGroup] = None) -> _Result:
        return _attend(layout, (q, k, v), None, dropout_p, softmax_scale, causal, window_size, alibi_slopes,
                       deterministic, return_attn_probs, group)

    return _forms(of_three)


def _packed(layout: str) -> Tuple[Callable[..., _Result], ...]:
    def of_three(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Any, max_seqlen: int, dropout_p: float = 0.0,
                 softmax_scale: Optional[float] = None, causal: bool = False, window_size: Sequence[int] = (-1, -1),
                 alibi_slopes: Optional[Tensor] = None, deterministic: bool = False, return_attn_probs: bool = False,
                 group: Optional[dist.ProcessGroup] = None) -> _Result:
        return _attend(layout, (q, k, v), cu_seqlens, dropout_p, softmax_scale, causal, window_size, alibi_slopes,
                       deterministic, return_attn_probs, group)

    return _forms(of_three)


ring_flash_attn_func, ring_flash_attn_kvpacked_func, ring_flash_attn_qkvpacked_func = _batched("contiguous")
zigzag_ring_flash_attn_func, zigzag_ring_flash_attn_kvpacked_func, zigzag_ring_flash_attn_qkvpacked_func = \
    _batched("zigzag")
stripe_flash_attn_func, stripe_flash_attn_kvpacked_func, stripe_flash_attn_qkvpacked_func = _batched("striped")
ring_flash_attn_varlen_func, ring_flash_attn_varlen_kvpacked_func, ring_flash_attn_varlen_qkvpacked_func = \
    _packed("contiguous")
zigzag_ring_flash_attn_varlen_func, zigzag_ring_flash_attn_varlen_kvpacked_func, \
    zigzag_ring_flash_attn_varlen_qkvpacked_func = _packed("zigzag")


def llama3_flash_attn_prepare_cu_seqlens(cu_seqlens: Any, causal: bool, rank: int,
                                         world_size: int) -> Tuple[Tensor, Tensor, int, int, slice]:
    """Returns (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, local_k_slice) for the llama3_ functions.

    cu_seqlens: bounds of the sequences on all ranks, a list or a tensor (one on a GPU is waited for). The last one must
    be a multiple of world_size. causal: as in the later call.
    """
    return _llama3.prepare(cu_seqlens, causal, rank, world_size)


def llama3_flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
                                  max_seqlen_q: int, max_seqlen_k: int, heads_k_stride: int, local_k_slice: slice,
                                  dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
                                  window_size: Sequence[int] = (-1, -1), alibi_slopes: Optional[Tensor] = None,
                                  deterministic: bool = False, return_attn_probs: bool = False,
                                  group: Optional[dist.ProcessGroup] = None) -> _Result:
    """Returns this rank's rows of attention over packed tokens, [T / P, Hq, D]. Nothing waits for the device.

    q: [T / P, Hq, D]; k, v: [T / P, Hkv, D]. heads_k_stride: heads of k and v that travel at a time. It divides Hkv.
    More of them need fewer launches. Memory holds twice as many heads of all ranks' keys (backward: gradients in
    float32, too). alibi_slopes: float32 [Hq], or such a row for each of the rank's sequences.
    """
    made = _llama3.attend(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, heads_k_stride,
                          local_k_slice, dropout_p, softmax_scale, causal, window_size, alibi_slopes, deterministic,
                          return_attn_probs, group)
    return (*made, None) if return_attn_probs else made[0]


_, llama3_flash_attn_varlen_kvpacked_func, llama3_flash_attn_varlen_qkvpacked_func = \
    _forms(llama3_flash_attn_varlen_func)
