"""fa2 for Hugging Face's transformers (5.0 and newer).

    import fa2_attn.transformers; fa2_attn.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="fa2")

Supported are causal, bidirectional and cross-attention, grouped heads, sliding windows, softcap, sinks, padding and
other masks, learned biases of scores (T5), dynamic and static caches. In float32 there is no softcap or dropout.
Everything else goes to transformers' sdpa. A warning says so, once for each reason.
"""

import functools
import warnings
from typing import Any, Callable, Dict, Literal, NamedTuple, Optional, Set, Tuple

from ._frameworks import need, suggesting

need("torch", "PyTorch", __name__)
need("transformers", "Hugging Face's transformers", __name__)

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import causal_mask_function, sdpa_mask

from . import _native
from ._dispatch import needs_gradient, padded
from .bert_padding import index_first_axis
from .torch import attention

__all__ = ["register"]

_said: Set[str] = set()


@suggesting
def register(name: str = "fa2", *, sums: Literal["fp32", "fast"] = "fp32",
             scores: Literal["exact", "int8"] = "exact", pv: Literal["exact", "fp8"] = "exact") -> None:
    """Registers attn_implementation=name for models that are created after this call.

    sums, scores, pv: permissions to be less exact, as for fa2_attn.attention. Several names may have different ones.
    """
    permissions: Dict[str, str] = {"sums": sums, "scores": scores, "pv": pv}
    _native.problem_text({"heads_q": 1, "seq_q": 1, "head_dim": 8, **permissions})  # refuses other words
    AttentionInterface.register(name, functools.partial(_attention, permissions=permissions))
    AttentionMaskInterface.register(name, _mask)


# ---- masks ----
#
# A model asks for a mask once for all layers of a kind, and gives it to each of them. fa2's masks are
#   None                  is_causal and sliding_window are the mask, aligned bottom-right
#   int64 [1, 1, 1, 1]    on the host: the same mask on the first n keys; the cache after them is empty
#   int32 [B, 1, 1, 1]    on the device: the same mask on the first n keys of each sequence
#   int32 [B, 1, 1, 2]    on the device: the same mask on keys n ... m - 1 of each sequence
#   bool [B, 1, Sq, Sk]   the whole mask
# They have four dimensions because transformers passes such masks on unchanged.


class _Padding(NamedTuple):
    """A padding mask in which the used keys of each sequence are one run."""
    is_before: bool  # all runs end with the last key
    is_behind: bool  # all runs begin with the first key
    bounds: Tensor  # _mask's result for it: where each run begins (not if is_behind) and ends


def _is_full(padding: Optional[Tensor], first: int, last: Optional[int] = None) -> bool:
    """Returns true if no key from first to last is padding. Waits for the device."""
    if padding is None:
        return True
    if torch.compiler.is_compiling() or padding.shape[1] < (last or 0):
        return False
    return bool(padding[:, first:last].all())


def _look_at(padding: Tensor, first: int, count: int) -> Optional[_Padding]:
    """Returns None if a sequence has several runs of keys, or if the mask cannot be read now. Waits for the device."""
    if torch.compiler.is_compiling() or padding.shape[1] < first + count:
        return None
    seen = padding[:, first:first + count].bool()
    begins = seen.int().argmax(1)
    ends = begins + seen.sum(1)
    places = torch.arange(count, device=seen.device)
    runs = seen == ((places >= begins[:, None]) & (places < ends[:, None]))
    is_run, is_before, is_behind = torch.stack((runs.all(), (ends == count).all(), (begins == 0).all())).tolist()
    if not is_run:
        return None
    bounds = torch.stack((ends,) if is_behind else (begins, ends), 1)
    return _Padding(is_before, is_behind, bounds.to(torch.int32)[:, None, None])


def _is_plain_causal(function: Callable[..., Any], window: Optional[int]) -> bool:
    """Returns true if a mask function is the causal one, alone or with the layers' own sliding window."""
    if function is causal_mask_function:
        return True
    parts = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    if function.__qualname__.startswith("sliding_window_overlay."):
        return parts == [window]
    return (function.__qualname__.startswith("and_masks.") and len(parts) == 1
            and all(_is_plain_causal(part, window) for part in parts[0]))


def _mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: int = 0,
          mask_function: Callable[..., Any] = causal_mask_function, attention_mask: Optional[Tensor] = None,
          allow_is_causal_skip: bool = True, allow_is_bidirectional_skip: bool = False,
          local_size: Optional[int] = None, config: Any = None, **others: Any) -> Optional[Tensor]:
    """Implements transformers' AttentionMaskInterface."""
    window = getattr(config, "sliding_window", None)
    if allow_is_bidirectional_skip and (local_size in (None, window) or kv_length <= local_size):
        if attention_mask is None or _is_full(attention_mask, kv_offset, kv_offset + kv_length):
            return None
        padding = _look_at(attention_mask, kv_offset, kv_length)
        is_aligned = local_size is None or kv_length <= local_size  # a window is aligned to the last key
        if padding is not None and (is_aligned or padding.is_before):
            return padding.bounds
    elif _is_plain_causal(mask_function, window):
        end = q_offset + q_length - kv_offset  # the key after the last query's own position
        if isinstance(end, Tensor) and q_length == 1 and _is_full(attention_mask, kv_offset):
            end = end.clamp(max=kv_length)  # the cache of a sliding window is a ring
            return end.to(torch.int32).expand(batch_size).reshape(batch_size, 1, 1, 1).contiguous()
        if not (torch.compiler.is_compiling() and isinstance(end, Tensor)):
            end = min(int(end), kv_length) if q_length == 1 else int(end)
            is_plain = _is_full(attention_mask, kv_offset, kv_offset + end)
            padding = (None if attention_mask is None or is_plain or end > kv_length
                       else _look_at(attention_mask, kv_offset, end))
            # A causal query that is not padding sees no padding, because the padding comes after it. Queries that are
            # padding do see it. A loss ignores their output, but generate reads the output of the last query.
            hides_behind = padding is not None and padding.is_behind and torch.is_grad_enabled()
            if end <= kv_length and (is_plain or hides_behind):
                return None if end == kv_length else torch.tensor([[[[end]]]])
            if padding is not None and padding.is_before:
                return padding.bounds
    made: Optional[Tensor] = sdpa_mask(batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
                                       kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask,
                                       local_size=local_size, allow_is_causal_skip=False,
                                       allow_is_bidirectional_skip=False, **others)
    return made


# ---- attention ----


def _refusal(query: Tensor, cache: Any) -> Optional[str]:
    """Returns why fa2 cannot compute this, or None."""
    if cache is not None:
        return "the cache is paged"
    if query.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return f"the tensors are {query.dtype}"
    if not query.is_cuda:
        return f"the tensors are on device {query.device}"
    return None


def _begins_and_ends(bounds: Tensor) -> Tuple[Any, Tensor]:
    """Splits bounds [B, 1, 1, 1 or 2] into where keys begin (None: at the first key) and where they end."""
    *begins, ends = bounds.flatten(0, 2).t().contiguous().unbind()
    return begins[0] if begins else None, ends


def _mask_of_all(query: Tensor, key: Tensor, bounds: Optional[Tensor], is_causal: bool,
                 window: Optional[int]) -> Tensor:
    """Returns is_causal, window and bounds as one mask, bool [B or 1, 1, Sq, Sk]."""
    keys = torch.arange(key.shape[2], device=query.device)
    begins: Any = None
    ends: Any = key.shape[2]
    if bounds is not None:
        begins, ends = (bound if bound is None else bound[:, None, None, None] for bound in _begins_and_ends(bounds))
    own = torch.arange(query.shape[2], device=query.device)[:, None] + ends - query.shape[2]
    seen = keys < ends if begins is None else (keys >= begins) & (keys < ends)
    seen = seen & (keys <= own) if is_causal else seen.expand(own.shape[:-1] + keys.shape)
    if window is not None:
        seen = seen & (keys > own - window) & (keys < own + window)
    every: Tensor = seen if seen.dim() == 4 else seen[None, None]
    return every


def _fallback(reason: str, *arguments: Any, softcap: Optional[float], s_aux: Optional[Tensor],
              **keywords: Any) -> Tuple[Tensor, None]:
    if softcap is not None or s_aux is not None:
        raise NotImplementedError(f"fa2 does not support calls where {reason}, and sdpa has no softcap or sinks: "
                                  'use attn_implementation="eager" there')
    if reason not in _said:
        _said.add(reason)
        warnings.warn(f"fa2: transformers' sdpa is used where {reason}", stacklevel=3)
    made: Tuple[Tensor, None] = sdpa_attention_forward(*arguments, **keywords)
    return made


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor], bounds: Optional[Tensor],
            packed: Dict[str, Any], is_causal: bool, scaling: Optional[float], sliding_window: Optional[int],
            softcap: Optional[float], s_aux: Optional[Tensor], dropout: float, position_bias: Optional[Tensor],
            permissions: Dict[str, str]) -> Tensor:
    if position_bias is not None and packed:
        raise NotImplementedError("packed sequences have a learned bias of scores")
    if position_bias is not None and bounds is not None:
        mask, bounds = _mask_of_all(query, key, bounds, is_causal, sliding_window), None
    window = None
    if mask is not None:
        is_causal = False  # the mask includes it
    elif sliding_window is not None and sliding_window < key.shape[2]:
        window = (sliding_window - 1, -1 if is_causal else sliding_window - 1)
    if position_bias is not None:
        mask = _biased(position_bias, mask, key.dtype)
    batch, heads, length, width = query.shape
    columns = value.shape[-1]
    if width % 8 != 0 or columns != width:
        scaling = width ** -0.5 if scaling is None else scaling
        query, key, value = padded(query, key, value)
    differentiated = bounds if not packed and needs_gradient(query, key, value, s_aux) else None
    is_masked = differentiated is not None and key.shape[2] <= _MOST_MASKED
    if differentiated is None and not packed and bounds is not None and bounds.shape[-1] == 2:
        is_masked = key.dtype == torch.float32  # its kernels do not skip padding before the keys
    if bounds is not None and is_masked:  # without a gradient, the mask hides what is before, and ends are given
        mask = _mask_of_keys(key, bounds)
        bounds, differentiated = bounds[..., -1:] if differentiated is None else None, None
    # a single query sees all earlier keys anyway; this needs no causal kernel
    settings: Dict[str, Any] = {"causal": is_causal and length > 1, "window": window, "softcap": softcap,
                                "scale": scaling, "sinks": None if s_aux is None else s_aux.float(), "bias": mask,
                                "dropout_p": dropout, **permissions}
    out: Tensor
    if packed or differentiated is not None:
        query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
        if differentiated is not None:
            query, key, value, packed = _without_padding(query, key, value, differentiated)
        else:
            query, key, value = query[0], key[0], value[0]
        out = attention(query, key, value, **settings, **packed).reshape(batch, length, heads, -1)
    else:
        lengths: Dict[str, Any] = {}
        if bounds is not None:
            lengths.update(zip(("leftpad", "seqused_k"), _begins_and_ends(bounds)))
        out = attention(query, key, value, layout="bhsd", **settings, **lengths).transpose(1, 2)
    return out if out.shape[-1] == columns else out[..., :columns]


def _biased(bias: Tensor, mask: Optional[Tensor], dtype: torch.dtype) -> Tensor:
    """Returns a learned bias and an optional mask of the same scores as one bias whose rows are contiguous."""
    if mask is not None and mask.dtype == torch.bool:
        bias = torch.where(mask, bias, torch.finfo(dtype).min)
    elif mask is not None:
        bias = bias + mask
    return bias if bias.stride(-1) == 1 else bias.contiguous()


# Kernels that read where keys begin and end have no gradients. Up to this many keys, a bias that hides the others is
# cheaper than packing the sequences. Packing makes two copies in each layer, and two more in backward. Launching them
# takes the host longer than the attention kernel runs.
_MOST_MASKED = 1024


def _mask_of_keys(key: Tensor, bounds: Tensor) -> Tensor:
    """Returns bounds as bool [B, 1, 1, Sk] with row strides that are multiples of 8. All layers share the result."""
    known: Optional[Tensor] = getattr(bounds, "fa2_mask", None)
    if known is None or known.shape[-1] != key.shape[2]:
        known = _within(key, bounds, -(-key.shape[2] // 8) * 8)[:, None, None, :key.shape[2]]
        bounds.fa2_mask = known  # type: ignore[attr-defined]
    return known


def _within(key: Tensor, bounds: Tensor, count: int) -> Tensor:
    """Returns bool [B, count]: true where one of the first `count` keys is within bounds."""
    begins, ends = _begins_and_ends(bounds)
    places = torch.arange(count, device=key.device)
    seen = places < ends[:, None]
    return seen if begins is None else seen & (places >= begins[:, None])


def _without_padding(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor
                     ) -> Tuple[Tensor, Tensor, Tensor, Dict[str, Any]]:
    """Packs tensors [B, S, H, D] to rows [T, H, D]: all rows of query, and the rows of key and value within bounds.

    Returns the rows and fa2_attn.attention's keywords for packed sequences, which have gradients. The first layer of a
    mask waits for the device, to count rows.
    """
    known = getattr(bounds, "fa2_rows", None)
    if known is None:
        seen = _within(key, bounds, key.shape[1])
        starts = F.pad(seen.sum(1).cumsum(0, dtype=torch.int32), (1, 0))
        known = bounds.fa2_rows = seen.flatten().nonzero().flatten(), starts  # type: ignore[attr-defined]
    indices, starts = known
    batch, length = query.shape[:2]
    lengths = {"cu_seqlens_q": torch.arange(0, (batch + 1) * length, length, dtype=torch.int32, device=query.device),
               "cu_seqlens_k": starts, "max_seqlen_q": length, "max_seqlen_k": key.shape[1]}
    return (query.flatten(0, 1), index_first_axis(key.flatten(0, 1), indices),
            index_first_axis(value.flatten(0, 1), indices), lengths)


def _packed_sequences(query: Tensor, keywords: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the lengths of sequences that a collator packed into one row, as fa2_attn.attention's keywords, or {}."""
    if keywords.get("cu_seq_lens_q") is None or keywords.get("cu_seq_lens_k") is None or query.shape[0] != 1:
        return {}
    return {"cu_seqlens_q": keywords["cu_seq_lens_q"].to(torch.int32), "max_seqlen_q": int(keywords["max_length_q"]),
            "cu_seqlens_k": keywords["cu_seq_lens_k"].to(torch.int32), "max_seqlen_k": int(keywords["max_length_k"])}


def _attention(module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Optional[Tensor],
               dropout: float = 0.0, scaling: Optional[float] = None, sliding_window: Optional[int] = None,
               softcap: Optional[float] = None, is_causal: Optional[bool] = None, s_aux: Optional[Tensor] = None,
               position_bias: Optional[Tensor] = None, cache: Any = None, *, permissions: Dict[str, str],
               **keywords: Any) -> Tuple[Tensor, None]:
    """Implements transformers' AttentionInterface.

    query: [B, H, Sq, D]; key, value: [B, Hkv, Sk, D]. Returns ([B, Sq, H, D], None).
    """
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    bounds = None
    if attention_mask is not None and attention_mask.dtype == torch.int64:
        used = int(attention_mask)
        key, value, attention_mask = key[:, :, :used], value[:, :, :used], None
        position_bias = None if position_bias is None else position_bias[..., :used]
    elif attention_mask is not None and attention_mask.dtype == torch.int32:
        bounds, attention_mask = attention_mask, None
    packed = _packed_sequences(query, keywords)
    reason = _refusal(query, cache)
    if reason is None:
        try:
            # the lengths of packed sequences say all that their mask says
            return _attend(query, key, value, None if packed else attention_mask, bounds, packed, is_causal, scaling,
                           sliding_window, softcap, s_aux, dropout, position_bias, permissions), None
        except NotImplementedError as refusal:  # gradients with a mask, for instance
            reason = str(refusal)
    queries, keys = query.shape[2], key.shape[2]
    if bounds is not None or (attention_mask is None and cache is None and (
            (sliding_window is not None and sliding_window < keys)
            or (is_causal and queries != keys and (queries > 1 or position_bias is not None)))):
        # sdpa has no windows, and aligns causal masks top-left
        attention_mask = _mask_of_all(query, key, bounds, is_causal, sliding_window)
    return _fallback(reason, module, query, key, value, attention_mask, softcap=softcap, s_aux=s_aux, dropout=dropout,
                     scaling=scaling, is_causal=is_causal, position_bias=position_bias, cache=cache, **keywords)
