"""FlashAttention-2's Python interface on fa2's kernels: seven functions with the same arguments, and forward and
backward alone (_flash_attn_forward and so on).

    from fa2_attn.flash_attn import flash_attn_func
    out = flash_attn_func(q, k, v, causal=True)             # [B, S, H, D]

    import fa2_attn.flash_attn; fa2_attn.flash_attn.install()         # or, for a program that cannot be changed:
    from flash_attn import flash_attn_func

Tensors are float16 or bfloat16 on CUDA devices. D is at most 576, or 256 with gradients. If D is not a multiple of 8,
the tensors are padded and the result is cut back. Masks are aligned bottom-right: query i has the position of key
i + Sk - Sq. Rows that see no key give 0, and +inf as their log-sum-exp. Dropout takes a seed from PyTorch's generator.
Calls that fa2 does not support yet, such as gradients of some features, raise NotImplementedError naming the reason.
"""

import importlib.machinery
import importlib.util
import sys
import types
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ._frameworks import allow_in_graph, need

need("torch", "PyTorch", __name__)

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _native, bert_padding
from ._dispatch import (_exact, _settings, fixed, is_readable, is_unwatched, needs_gradient, padded, readable,
                        seed_of)
from ._operations import _below_autocast, _is_deterministic, _kernels, _unpacked
from .torch import attention_packed

__version__ = "2.8.4"  # the version of flash-attn's interface
_FUNCTIONS = ["flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
              "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache"]
_STEPS = ["_flash_attn_forward", "_flash_attn_backward", "_flash_attn_varlen_forward", "_flash_attn_varlen_backward"]
__all__ = [*_FUNCTIONS, *_STEPS, "bert_padding", "install"]

attention: Any = _native.attention  # Any, because calls here pass settings in dicts

_Result = Union[Tensor, Tuple[Tensor, Tensor, Optional[Tensor]]]
_Window = Union[Sequence[int], Tensor]  # two numbers
_Four = Tuple[Tensor, Tensor, Tensor, Tensor]


def _attend(tensors: Sequence[Tensor], dropout_p: float, softmax_scale: Optional[float], causal: bool,
            window_size: _Window, softcap: float, alibi_slopes: Optional[Tensor], deterministic: bool,
            return_attn_probs: bool, **lengths: Any) -> _Result:
    """tensors: (q, k, v), (q, kv) or (qkv,)."""
    window_size = fixed(window_size)
    if type(tensors[0]) in _exact and not dropout_p:
        settings: Dict[str, Any] = {"causal": causal, "window": window_size, "softcap": softcap, "scale": softmax_scale}
        found: _Result
        try:
            if not deterministic and (len(tensors) == 3 or not needs_gradient(*tensors)):
                found = attention(*_unpacked(tensors), alibi_slopes=alibi_slopes, return_lse=return_attn_probs,
                                  **settings, **lengths)
                return (found[0], _lse_of(found[1]), None) if return_attn_probs else found
            if alibi_slopes is None and not (return_attn_probs or lengths):
                found = attention_packed(*tensors, deterministic=deterministic, **settings)
                return found
        except (NotImplementedError, ValueError):
            pass  # the code below pads or copies the tensors, or raises the error again
    width, columns = tensors[0].shape[-1], _unpacked(tensors)[2].shape[-1]
    if softmax_scale is None:
        softmax_scale = width ** -0.5
    if len(tensors) == 3:
        tensors = padded(*tensors)
    elif width % 8:
        tensors = [F.pad(tensor, (0, -width % 8)) for tensor in tensors]
    # a packed tensor is the last one, and has one more dimension between its sequence and its heads
    tensors = [readable(tensor, -4 if len(tensors) < 3 and tensor is tensors[-1] else -3) for tensor in tensors]
    settings = {"causal": causal, "window": window_size, "softcap": softcap, "scale": softmax_scale,
                "alibi_slopes": alibi_slopes}
    seed = seed_of(tensors[0]) if dropout_p else None
    out, lse = attention_packed(*tensors, **settings, deterministic=deterministic, return_lse=True,
                                dropout_p=dropout_p, dropout_seed=seed, **lengths)
    if out.shape[-1] != columns:
        out = out[..., :columns]
    if not return_attn_probs:
        only: Tensor = out
        return only
    probabilities = None
    if seed is not None:
        q, k, _ = _unpacked(tensors)
        probabilities = _probabilities(q, k, dropout_p=dropout_p, seed=seed, **settings, **lengths)
    return out, _lse_of(lse), probabilities


def _lse_of(lse: Tensor, starts: Optional[Tensor] = None) -> Tensor:
    """Returns lse as flash-attn does: +inf for a row that sees no key.

    starts: the bounds of packed sequences. If they are given, rows of no sequence keep -inf.
    """
    sees_none = lse == -torch.inf
    if starts is not None:
        rows = torch.arange(lse.shape[-1], device=lse.device)
        sees_none &= (rows >= starts[0]) & (rows < starts[-1])
    return lse.masked_fill(sees_none, torch.inf)


allow_in_graph(_attend)  # because the compiler's tracer does not know storage offsets


@torch.no_grad()
def _probabilities(q: Tensor, k: Tensor, causal: bool, window: _Window, softcap: float, scale: float,
                   alibi_slopes: Optional[Tensor], dropout_p: float, seed: Tensor,
                   cu_seqlens_q: Optional[Tensor] = None, cu_seqlens_k: Optional[Tensor] = None, max_seqlen_q: int = 0,
                   max_seqlen_k: int = 0) -> Tensor:
    """Returns exp(score - the row's largest score), [B, H, Sq, Sk] in the tensors' type. The sign marks dropped ones.

    flash-attn divides by the sum of a row afterwards, too. Its running maximum is one per _get_block_size_n keys.
    Sq and Sk are padded with 0 to multiples of 128. For tests: it runs without a kernel, and waits for the device.
    """
    queries, keys = ([*tensor] if starts is None else _sequences(tensor, starts.tolist())
                     for tensor, starts in ((q, cu_seqlens_q), (k, cu_seqlens_k)))
    rows, columns = (q.shape[1], k.shape[1]) if cu_seqlens_q is None else (int(max_seqlen_q), int(max_seqlen_k))
    if 0 in (len(queries), rows, columns):
        return q.new_zeros((len(queries), q.shape[-2], rows + -rows % 128, columns + -columns % 128))
    slopes = [None] * len(queries) if alibi_slopes is None else alibi_slopes.expand(len(queries), q.shape[-2])
    exponentials = [_exponentials(*one, causal, window, softcap, scale) for one in zip(queries, keys, slopes)]
    weights = torch.stack([F.pad(x, (0, columns - x.shape[2], 0, rows - x.shape[1])) for x in exponentials])
    problem = {"batch": len(queries), "heads_q": q.shape[-2], "seq_q": rows, "seq_k": columns, "head_dim": 8,
               "dropout": 1}
    kept = torch.frombuffer(_native.dropout_mask(problem, dropout_p, int(seed)), dtype=torch.bool)
    weights = torch.where(kept.to(q.device).reshape(weights.shape), weights, -weights)
    return F.pad(weights, (0, -columns % 128, 0, -rows % 128))


def _sequences(rows: Tensor, bounds: List[int]) -> List[Tensor]:
    return [rows[first:end] for first, end in zip(bounds, bounds[1:])]


def _get_block_size_n(device: Any, head_dim: int, is_dropout: bool, is_causal: bool) -> int:
    """Returns how many keys share a maximum in what return_attn_probs returns: all of them.

    flash-attn's own tests ask for it.
    """
    return 2**31 - 1


def _exponentials(q: Tensor, k: Tensor, slopes: Optional[Tensor], causal: bool, window: _Window, softcap: float,
                  scale: float) -> Tensor:
    """Returns exp(score - the row's largest score) of one sequence, [H, Sq, Sk] in the tensors' type. slopes: [H]."""
    length, keys = q.shape[0], k.shape[0]
    scores = scale * torch.einsum("ihd,jhd->hij", q.float(), k.float().repeat_interleave(q.shape[1] // k.shape[1], 1))
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    ahead = (torch.arange(keys, device=q.device) - torch.arange(length, device=q.device)[:, None] - (keys - length))
    if slopes is not None:
        scores = scores - slopes[:, None, None] * ahead.abs()
    left, right = _native.window(window)
    right = 0 if causal else right
    hidden = ((ahead > right) & (right >= 0)) | ((ahead < -left) & (left >= 0))
    scores.masked_fill_(hidden, -torch.inf)
    return (scores - scores.amax(-1, keepdim=True)).exp().masked_fill(hidden, 0).to(q.dtype)


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None,
                    causal: bool = False, window_size: _Window = (-1, -1), softcap: float = 0.0,
                    alibi_slopes: Optional[Tensor] = None, deterministic: bool = False,
                    return_attn_probs: bool = False) -> _Result:
    """Returns softmax(softmax_scale * q k^T) v.

    q: [B, Sq, H, D]; k, v: [B, Sk, Hkv, D]. H is a multiple of Hkv.
    softmax_scale: None means 1 / sqrt(D).
    window_size: (left, right), the numbers of visible keys before and after the query's own position. A negative number
    means all. A list, an array or a tensor is allowed, too.
    alibi_slopes: float32 [H] or [B, H]. It adds -slope * |i + Sk - Sq - j| to the scores.
    Returns out [B, Sq, H, D]. With return_attn_probs: (out, lse, weights), where lse is float32 [B, H, Sq]. weights are
    None without dropout. With dropout they are for tests: exp(score - the row's largest score), [B, H, Sq, Sk] with Sq
    and Sk padded to multiples of 128, and negative where an element was dropped.
    """
    return _attend((q, k, v), dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                   return_attn_probs)


def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None,
                             causal: bool = False, window_size: _Window = (-1, -1), softcap: float = 0.0,
                             alibi_slopes: Optional[Tensor] = None, deterministic: bool = False,
                             return_attn_probs: bool = False) -> _Result:
    """flash_attn_func with kv [B, Sk, 2, Hkv, D], whose gradient is one tensor."""
    return _attend((q, kv), dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                   return_attn_probs)


def flash_attn_qkvpacked_func(qkv: Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None,
                              causal: bool = False, window_size: _Window = (-1, -1), softcap: float = 0.0,
                              alibi_slopes: Optional[Tensor] = None, deterministic: bool = False,
                              return_attn_probs: bool = False) -> _Result:
    """flash_attn_func with qkv [B, S, 3, H, D], whose gradient is one tensor."""
    return _attend((qkv,), dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                   return_attn_probs)


def _attend_varlen(tensors: Sequence[Tensor], cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int,
                   max_seqlen_k: int, dropout_p: float, softmax_scale: Optional[float], causal: bool,
                   window_size: _Window, softcap: float, alibi_slopes: Optional[Tensor], deterministic: bool,
                   return_attn_probs: bool, block_table: Optional[Tensor] = None) -> _Result:
    lengths: Dict[str, Any] = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "max_seqlen_q": max_seqlen_q,
                               "max_seqlen_k": max_seqlen_k}
    if block_table is not None:
        if dropout_p and return_attn_probs:
            raise NotImplementedError("return_attn_probs: probabilities are not computed for keys in pages")
        lengths["block_table"] = block_table
    return _attend(tensors, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                   return_attn_probs, **lengths)


def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
                           max_seqlen_q: int, max_seqlen_k: int, dropout_p: float = 0.0,
                           softmax_scale: Optional[float] = None, causal: bool = False,
                           window_size: _Window = (-1, -1), softcap: float = 0.0,
                           alibi_slopes: Optional[Tensor] = None, deterministic: bool = False,
                           return_attn_probs: bool = False, block_table: Optional[Tensor] = None) -> _Result:
    """flash_attn_func on B packed sequences: they lie one after the other.

    q: [Tq, H, D]; k, v: [Tk, Hkv, D]. With block_table (int32 [B, pages]), k and v are pages [n, page, Hkv, D].
    cu_seqlens_q, cu_seqlens_k: int32 [B + 1] on the device. They hold where each sequence begins, and the end.
    max_seqlen_q, max_seqlen_k: the longest lengths. Returns out [Tq, H, D]; lse is [H, Tq].
    In out and in gradients, rows before the first bound and from the last bound on are 0.
    """
    return _attend_varlen((q, k, v), cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale,
                          causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs, block_table)


def flash_attn_varlen_kvpacked_func(q: Tensor, kv: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
                                    max_seqlen_q: int, max_seqlen_k: int, dropout_p: float = 0.0,
                                    softmax_scale: Optional[float] = None, causal: bool = False,
                                    window_size: _Window = (-1, -1), softcap: float = 0.0,
                                    alibi_slopes: Optional[Tensor] = None, deterministic: bool = False,
                                    return_attn_probs: bool = False) -> _Result:
    """flash_attn_varlen_func with kv [Tk, 2, Hkv, D]."""
    return _attend_varlen((q, kv), cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale,
                          causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)


def flash_attn_varlen_qkvpacked_func(qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, dropout_p: float = 0.0,
                                     softmax_scale: Optional[float] = None, causal: bool = False,
                                     window_size: _Window = (-1, -1), softcap: float = 0.0,
                                     alibi_slopes: Optional[Tensor] = None, deterministic: bool = False,
                                     return_attn_probs: bool = False) -> _Result:
    """flash_attn_varlen_func with qkv [T, 3, H, D]."""
    return _attend_varlen((qkv,), cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p, softmax_scale, causal,
                          window_size, softcap, alibi_slopes, deterministic, return_attn_probs)


def flash_attn_with_kvcache(q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Optional[Tensor] = None,
                            v: Optional[Tensor] = None, rotary_cos: Optional[Tensor] = None,
                            rotary_sin: Optional[Tensor] = None,
                            cache_seqlens: Union[int, Tensor, None] = None, cache_batch_idx: Optional[Tensor] = None,
                            cache_leftpad: Optional[Tensor] = None, block_table: Optional[Tensor] = None,
                            softmax_scale: Optional[float] = None, causal: bool = False,
                            window_size: _Window = (-1, -1), softcap: float = 0.0, rotary_interleaved: bool = True,
                            alibi_slopes: Optional[Tensor] = None, num_splits: int = 0,
                            return_softmax_lse: bool = False, k_scale: Optional[Tensor] = None,
                            v_scale: Optional[Tensor] = None) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """Attention to keys in a cache, for decoding. It has no gradients.

    q: [B, Sq, H, D].
    k_cache, v_cache: [B, Sc, Hkv, D]. With cache_batch_idx they are [rows, Sc, Hkv, D]; it is int32 [B] and holds the
    row of each sequence. With block_table (int32 [B, pages of a sequence]) they are pages [n, page, Hkv, D], where page
    is a power of two.
    cache_seqlens: the number of keys in the cache, an int for all sequences or int32 [B]. None: all Sc.
    cache_leftpad: int32 [B], the number of keys at the beginning that are padding. cache_seqlens counts them, too.
    k, v: new keys and values [B, Sn, Hkv, D]. They are written into the cache after its keys, and are visible.
    rotary_cos, rotary_sin: [positions, R / 2] in q's type, with as many positions as the cache. They rotate the first R
    columns of k by each key's position. They rotate q by its own position if causal or windowed, else by the position
    of the first new key.
    rotary_interleaved: True rotates columns (0, 1), (2, 3), ...; False rotates (0, R / 2), (1, R / 2 + 1), ...
    num_splits: ignored, because the chosen kernel decides how the keys are divided.
    k_scale, v_scale: float32 or float16 [B, Sc, Hkv], or the same with a size of 1 where scales are shared; in pages as
    k_cache. The caches are then int8 or float8_e4m3fn, and a row counts as k_cache * k_scale. New keys and values are
    rounded, and their scales written. (flash-attn has no such arguments.)
    Returns out [B, Sq, H, D]. With return_softmax_lse: (out, lse [B, H, Sq]).

    The attention kernel also writes and rotates the new keys. Tables of another type raise an error; they are not
    rounded.
    """
    if rotary_cos is not None and (k is None or rotary_sin is None):
        raise ValueError("rotary embedding is of new keys: give k, v and rotary_sin too")
    if (k is not None or v is not None) and (k is None or v is None or cache_seqlens is None):
        raise ValueError("k is written after the keys in the cache: give v and cache_seqlens, too")
    lengths = {"block_table": block_table, "leftpad": cache_leftpad, "cache_rows": cache_batch_idx, "k_scale": k_scale,
               "v_scale": v_scale}
    angles = None if rotary_cos is None else (rotary_cos, rotary_sin, rotary_interleaved)
    return _decode(q, (k_cache, v_cache), None if k is None else (k, v), angles, cache_seqlens, lengths,
                   return_softmax_lse, causal=causal, window=window_size, softcap=softcap, alibi_slopes=alibi_slopes,
                   scale=q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale)


@torch.no_grad()
def _decode(q: Tensor, given: Tuple[Tensor, Tensor], new: Any, angles: Any, used: Union[int, Tensor, None],
            lengths: Dict[str, Any], return_lse: bool, **settings: Any) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """given: the caches; new: (k, v); angles: (cos, sin, interleaved); used: the number of keys in the caches."""
    k_cache, v_cache = caches = [readable(_columns_of_8(cache), 1) for cache in given]
    q, *rows = (readable(_columns_of_8(tensor), -3) for tensor in (q, *(new or ())))
    table, count = lengths["block_table"], rows[0].shape[1] if rows else 0
    if not isinstance(used, Tensor):
        room = k_cache.shape[1] * (1 if table is None else table.shape[1])
        end = room if used is None else used + count
        if end > room:
            raise ValueError(f"the cache has room for {room} keys; {used} and {count} are more")
        if table is None and end < room:  # without seqused_k, new keys are the last keys of k_cache
            k_cache, v_cache = k_cache[:, :end], v_cache[:, :end]
            lengths = {name: value if not name.endswith("_scale") or value is None or value.shape[1] == 1
                       else value[:, :end] for name, value in lengths.items()}
        elif end < room or (table is not None and rows):
            used = torch.full((q.shape[0],), end - count, dtype=torch.int32, device=q.device)
    if isinstance(used, Tensor):
        lengths = {**lengths, "seqused_k": used.to(torch.int32).contiguous()}
    if rows:
        lengths = {**lengths, "k_new": rows[0], "v_new": rows[1]}
    if angles is not None:
        cos, sin = (table.contiguous() for table in angles[:2])
        lengths = {**lengths, "rotary_cos": cos, "rotary_sin": sin, "rotary_interleaved": angles[2]}
    found = attention(q, k_cache, v_cache, return_lse=return_lse, **settings, **lengths)
    for cache, own in zip(caches, given) if rows else ():
        if cache is not own:  # it was copied for the kernel
            own.copy_(cache[..., :own.shape[-1]])
    out, lse = found if return_lse else (found, None)
    if out.shape[-1] != given[1].shape[-1]:
        out = out[..., :given[1].shape[-1]]
    return out if lse is None else (out, _lse_of(lse))


allow_in_graph(_decode)


def _columns_of_8(tensor: Tensor) -> Tensor:
    return F.pad(tensor, (0, -tensor.shape[-1] % 8)) if tensor.shape[-1] % 8 else tensor


# ---- forward and backward alone, for programs that bring their own autograd ----


def _flash_attn_forward(q: Tensor, k: Tensor, v: Tensor, dropout_p: float, softmax_scale: float, causal: bool,
                        window_size_left: int, window_size_right: int, softcap: float,
                        alibi_slopes: Optional[Tensor], return_softmax: bool) -> _Four:
    """flash_attn_func without gradients. D must be a multiple of 8.

    return_softmax: needs dropout, and is for tests.
    Returns (out, softmax_lse, S_dmask, rng_state). softmax_lse is float32 [B, H, Sq].
    S_dmask: the probabilities of flash_attn_func if return_softmax, else an empty tensor.
    rng_state: int64 [2], the seed and the offset of dropout. _flash_attn_backward takes it. Without dropout its numbers
    mean nothing.
    """
    return _forward((q, k, v), dropout_p, return_softmax, causal=causal, window=(window_size_left, window_size_right),
                    softcap=softcap, scale=softmax_scale, alibi_slopes=alibi_slopes)


def _flash_attn_varlen_forward(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
                               max_seqlen_q: int, max_seqlen_k: int, dropout_p: float, softmax_scale: float,
                               causal: bool, window_size_left: int = -1, window_size_right: int = -1,
                               softcap: float = 0.0, alibi_slopes: Optional[Tensor] = None,
                               return_softmax: bool = False, block_table: Optional[Tensor] = None,
                               leftpad_k: Optional[Tensor] = None, seqused_k: Optional[Tensor] = None,
                               zero_tensors: bool = False) -> _Four:
    """_flash_attn_forward on packed sequences, as in flash_attn_varlen_func. softmax_lse is [H, Tq].

    leftpad_k: int32 [B], the number of keys at the beginning of each sequence that are padding. It raises
    NotImplementedError, because no kernel has it with packed sequences.
    seqused_k: int32 [B], the number of keys that each sequence uses.
    zero_tensors: softmax_lse is -inf in rows of no sequence, else +inf. out is 0 there in any case.
    """
    return _forward((q, k, v), dropout_p, return_softmax, zero_tensors, causal=causal,
                    window=(window_size_left, window_size_right), softcap=softcap, scale=softmax_scale,
                    alibi_slopes=alibi_slopes, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
                    max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, block_table=block_table, leftpad=leftpad_k,
                    seqused_k=seqused_k)


def _flash_attn_backward(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, softmax_lse: Tensor,
                         dq: Optional[Tensor], dk: Optional[Tensor], dv: Optional[Tensor], dropout_p: float,
                         softmax_scale: float, causal: bool, window_size_left: int, window_size_right: int,
                         softcap: float, alibi_slopes: Optional[Tensor], deterministic: bool,
                         rng_state: Optional[Tensor] = None) -> Tensor:
    """Writes the gradients of _flash_attn_forward into dq, dk and dv. Computes none for None.

    out, softmax_lse: of these keys, or of more keys, as after a merge of several results.
    rng_state: what forward returned. It is needed with dropout.
    Returns softmax_d, float32 [B, H, Sq]: sum over D of dout * out. Sq is padded with 0 to a multiple of 128.
    """
    return _backward(dout, (q, k, v), out, softmax_lse, (dq, dk, dv), deterministic, dropout_p, rng_state,
                     causal=causal, window=(window_size_left, window_size_right), softcap=softcap, scale=softmax_scale,
                     alibi_slopes=alibi_slopes)


def _flash_attn_varlen_backward(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, softmax_lse: Tensor,
                                dq: Optional[Tensor], dk: Optional[Tensor], dv: Optional[Tensor],
                                cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
                                dropout_p: float, softmax_scale: float, causal: bool, window_size_left: int,
                                window_size_right: int, softcap: float, alibi_slopes: Optional[Tensor],
                                deterministic: bool, rng_state: Optional[Tensor] = None,
                                zero_tensors: bool = False) -> Tensor:
    """_flash_attn_backward on packed sequences.

    zero_tensors: ignored, because gradients of rows of no sequence are always 0.
    Returns softmax_d, float32 [H, Tq + 128 B]. The rows of sequence b begin at cu_seqlens_q[b] + 128 b. Others are 0.
    """
    return _backward(dout, (q, k, v), out, softmax_lse, (dq, dk, dv), deterministic, dropout_p, rng_state,
                     causal=causal, window=(window_size_left, window_size_right), softcap=softcap, scale=softmax_scale,
                     alibi_slopes=alibi_slopes, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
                     max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k)


def _forward(tensors: Sequence[Tensor], dropout_p: float, return_softmax: bool, zero_tensors: bool = False,
             **settings: Any) -> _Four:
    if return_softmax and not dropout_p:
        raise ValueError("return_softmax is True and dropout_p is 0; probabilities are returned only with dropout")
    others: Dict[str, Any] = {name: settings.pop(name) for name in ("block_table", "leftpad", "seqused_k")
                              if name in settings}
    for name, tensor in others.items():
        if return_softmax and tensor is not None:
            raise NotImplementedError(f"return_softmax: probabilities are not computed with {name}")
    with torch.no_grad():
        q, k, v = (readable(tensor, -3) for tensor in tensors)
        rng_state = F.pad(seed_of(q), (0, 1)) if dropout_p else q.new_empty((2,), dtype=torch.int64)
        every: Dict[str, Any] = {**settings, **others, "dropout_p": dropout_p,
                                 "dropout_seed": rng_state if dropout_p else None}
        if is_unwatched(q, k, v):
            out, lse = _kernels.launch(q, k, v, return_lse=True, **every)
        else:
            with _below_autocast():
                out, lse = torch.ops.fa2.attention(q, k, v, *_settings(**every))
        probabilities = (_probabilities(q, k, dropout_p=dropout_p, seed=rng_state[:1], **settings) if return_softmax
                         else q.new_empty((0,)))
        return out, _lse_of(lse, settings["cu_seqlens_q"] if zero_tensors else None), probabilities, rng_state


def _backward(dout: Tensor, tensors: Sequence[Tensor], out: Tensor, lse: Tensor, given: Sequence[Optional[Tensor]],
              deterministic: bool, dropout_p: float, rng_state: Optional[Tensor], **settings: Any) -> Tensor:
    if dropout_p and rng_state is None:
        raise ValueError(f"dropout_p is {dropout_p} and rng_state is None; give the rng_state that forward returned")
    for name, tensor, like in zip(("dq", "dk", "dv"), given, tensors):
        if tensor is not None and (tensor.shape, tensor.dtype) != (like.shape, like.dtype):
            raise ValueError(f"{name} is {tuple(tensor.shape)}, {tensor.dtype}; it must be {tuple(like.shape)}, "
                             f"{like.dtype}")
    settings.update(dropout_p=dropout_p, dropout_seed=rng_state if dropout_p else None)
    with torch.no_grad():
        dout, out, q, k, v = (readable(tensor, -3) for tensor in (dout, out, *tensors))
        if any(tensor is not None for tensor in given):
            _write_gradients(dout, (q, k, v), out, lse.contiguous(), given, deterministic, settings)
        softmax_d = _softmax_d(dout, out, settings.get("cu_seqlens_q"))
        return softmax_d * (1 - dropout_p) if dropout_p else softmax_d


def _write_gradients(dout: Tensor, tensors: Sequence[Tensor], out: Tensor, lse: Tensor,
                     given: Sequence[Optional[Tensor]], deterministic: bool, settings: Dict[str, Any]) -> None:
    if is_unwatched(dout, *tensors, out, lse, *given):
        # False: not wanted; None: the kernel writes a new tensor, which is copied below
        places = (tensor is not None and (tensor if is_readable(tensor, -3) else None) for tensor in given)
        made = _kernels.attention_backward(dout, *tensors, out, lse, **dict(zip(("dq", "dk", "dv"), places)),
                                           deterministic=deterministic or _is_deterministic(), **settings)
    else:
        wanted = [*(tensor is not None for tensor in given), False, False]
        made = torch.ops.fa2.attention_backward(dout, tensors, out, lse, wanted,
                                                *_settings(deterministic=deterministic, **settings))
    for tensor, gradient in zip(given, made):
        if tensor is not None and gradient is not tensor:
            tensor.copy_(gradient)


def _softmax_d(dout: Tensor, out: Tensor, starts: Optional[Tensor]) -> Tensor:
    """Returns the sums over D of dout * out, where flash-attn has them. starts: the bounds of packed sequences."""
    sums = dout.float().mul_(out).sum(-1).transpose(-2, -1)
    length = sums.shape[-1]
    if starts is None:
        return F.pad(sums, (0, -length % 128))
    rows = torch.arange(length, device=starts.device, dtype=starts.dtype)
    sequences = (torch.searchsorted(starts, rows, right=True) - 1).clamp(min=0)
    spread = sums.new_zeros((*sums.shape[:-1], length + 128 * (starts.shape[0] - 1)))
    return spread.index_copy_(-1, rows + 128 * sequences, sums)


for _step in _STEPS:
    allow_in_graph(globals()[_step])  # because the compiler's tracer does not know storage offsets


# ---- fa2 under the name of flash-attn ----


def install(*, replace: bool = False) -> None:
    """Makes `import flash_attn` find these functions.

    This includes flash_attn.flash_attn_interface and flash_attn.bert_padding. Raises RuntimeError if flash-attn itself
    is installed or imported, unless replace=True.
    """
    present = sys.modules.get("flash_attn")
    if getattr(present, "__fa2__", False):
        return
    if not replace and (present is not None or importlib.util.find_spec("flash_attn") is not None):
        raise RuntimeError("flash-attn is installed here: fa2 takes its place only by install(replace=True)")
    package = _module("flash_attn", [*_FUNCTIONS, "__version__"], globals())
    package.__path__ = []
    for name in [name for name in sys.modules if name.startswith("flash_attn.")]:
        del sys.modules[name]
    sys.modules["flash_attn"] = package
    # flash-attn names the same functions a second time, as operations of PyTorch; programs import either name
    steps = {prefix + name: globals()[name] for name in _STEPS for prefix in ("", "_wrapped")}
    interface = {**{name: globals()[name] for name in (*_FUNCTIONS, "_get_block_size_n")}, **steps}
    for name, names, source in (("flash_attn_interface", list(interface), interface),
                                ("bert_padding", bert_padding.__all__, vars(bert_padding))):
        module = _module(f"flash_attn.{name}", names, source)
        sys.modules[module.__name__] = module
        setattr(package, name, module)


def _module(name: str, names: Sequence[str], source: Mapping[str, Any]) -> Any:
    """Creates a module of this name with the named functions of another module's dict."""
    module: Any = types.ModuleType(name, __doc__)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, origin=__file__)
    for known in names:
        setattr(module, known, source[known])
    module.__fa2__ = True
    return module
