"""Chooses the path of a call on PyTorch's tensors, and holds the short path with its autograd functions.

Eager calls that nothing but autograd and autocast intercepts take the short path, _Plain and _Attention. It costs a
fifth of the dispatcher's time. All other calls become operations (_operations.py). Both save the same tensors for
backward and launch the same kernels.
"""

import operator
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._device import DeviceContext

from . import _native
from ._operations import (_FACTORS, _FEATURES, _GRADIENTS, _NEW, _NUMBERS, _WITH_GRADIENT, _cast,
                          _check_leaves, _inference, _is_deterministic, _kernels, _launch_backward, _refuse_gradient,
                          _saved, _unpacked)

# ---- the short path ----

_BEFORE = 3 + len(_FEATURES)  # arguments before the tensors
_APPLIED = tuple(3 + list(_FEATURES).index(name) for name in _WITH_GRADIENT)  # arguments that have a gradient


class _Attention(torch.autograd.Function):
    """apply(keywords of attention, deterministic, return_lse, *tensors of features, *tensors)."""

    @staticmethod
    def forward(ctx: Any, keywords: Dict[str, Any], deterministic: bool, return_lse: bool,
                *tensors: Any) -> Any:
        named = dict(zip(_FEATURES, tensors))
        _check_leaves(named)
        out, lse = _kernels.launch(*_unpacked(tensors[len(_FEATURES):]), return_lse=True, differentiable=True,
                                   **keywords, **named)
        ctx.call, ctx.refused = (keywords, deterministic), _inference(named)
        if ctx.refused is None:  # otherwise backward fails, and the caches may be written to before it
            ctx.save_for_backward(out, lse, *tensors)
        if not return_lse:
            return out
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, d_out: Optional[Tensor], *unused: Any) -> Tuple[Any, ...]:
        if d_out is None:
            return (None,) * len(ctx.needs_input_grad)
        if ctx.refused is not None:
            _refuse_gradient(ctx.refused)
        out, lse, features, tensors = _saved(ctx)
        # with create_graph, call the operation: it raises when it is differentiated
        launch = _recorded if torch.is_grad_enabled() else _launch_backward
        keywords, deterministic = ctx.call
        needs = ctx.needs_input_grad
        gradients = launch(d_out, tensors, out, lse, (*needs[_BEFORE:], *(needs[i] for i in _APPLIED)),
                           {**keywords, **dict(zip(_FEATURES, features))}, deterministic)
        before: List[Optional[Tensor]] = [None] * _BEFORE
        for at, gradient in zip(_APPLIED, gradients[-_GRADIENTS:]):
            before[at] = gradient
        return (*before, *gradients[:-_GRADIENTS])


def _recorded(d_out: Tensor, tensors: List[Tensor], out: Tensor, lse: Tensor, wanted: Sequence[bool],
              keywords: Dict[str, Any], deterministic: bool) -> List[Optional[Tensor]]:
    heads_first = keywords["layout"] == "bhsd"
    if heads_first:
        d_out, out, *tensors = (_seq_first(tensor) for tensor in (d_out, out, *tensors))
    settings = _settings(deterministic=deterministic, **keywords)
    gradients = torch.ops.fa2.attention_backward(d_out, tensors, out, lse, list(wanted), *settings)
    made = [gradient if needed else None for gradient, needed in zip(gradients, wanted)]
    if heads_first:
        made[:-_GRADIENTS] = [None if gradient is None else _seq_first(gradient) for gradient in made[:-_GRADIENTS]]
    return made


class _Plain(torch.autograd.Function):
    """_Attention without features: apply(settings, *tensors). _PLAIN names the settings.

    Every step of a model pays for the Python code of a call. So the extension module implements forward, and backward
    of three tensors.
    """

    forward = staticmethod(_native.plain_forward)

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> Tuple[Any, ...]:
        """The gradients of packed tensors, and any gradients that autograd records."""
        out, lse, *tensors = ctx.saved_tensors
        *settings, deterministic = ctx.settings
        # with create_graph, call the operation: it raises when it is differentiated
        launch = _recorded if torch.is_grad_enabled() else _launch_backward
        gradients = launch(d_out, tensors, out, lse, (*ctx.needs_input_grad[1:], *[False] * _GRADIENTS),
                           dict(zip(_PLAIN, settings)), bool(deterministic))
        return (None, *gradients[:-_GRADIENTS])


_native.plain_node(_Plain._backward_cls)
_FIRST = ("causal", "window", *_FACTORS, "layout")  # the settings before the tensors of features
_PLAIN = (*_FIRST, "context")  # the last setting is `deterministic`

# Function.apply first asks whether functorch is active. The caller did that already, so this calls the base class.
_apply: Any = super(torch.autograd.Function, _Attention).apply
_apply_plain: Any = super(torch.autograd.Function, _Plain).apply


def differentiable(q: Tensor, k: Tensor, v: Tensor, *settings: Any) -> Any:
    """fa2_attn.attention where a tensor requires a gradient and nothing but autograd intercepts calls.

    settings: _FIRST, the tensors of features in the order of _native.OPERANDS, dropout_p, max_seqlen_q, max_seqlen_k,
    rotary_interleaved, the permissions in the order of _native.PERMISSIONS, context, stream, out, return_lse.
    """
    *given, dropout_p, longest_q, longest_k, _ = settings[:_AT_PERMISSIONS]
    context, stream, out, return_lse = settings[_AFTER_PERMISSIONS:]
    features, new = _split(given)
    if new:
        _refuse_gradient_of_new()
    if out is not None or stream is not None:
        _refuse_place(out=out, stream=stream)
    keywords = {**dict(zip(_FIRST, given)), "context": context}
    features[_SEED] = seed_of(q, features[_SEED]) if dropout_p else None
    if dropout_p:
        keywords["dropout_p"] = dropout_p
    keywords.update((name, value) for name, value in _permissions(settings).items() if value is not None)
    if longest_q is not None or longest_k is not None:
        keywords.update(max_seqlen_q=longest_q, max_seqlen_k=longest_k)
    return _apply(keywords, False, bool(return_lse), *features, q, k, v)


_AT_PERMISSIONS = len(_FIRST) + len(_native.OPERANDS) + 4
_AFTER_PERMISSIONS = _AT_PERMISSIONS + len(_native.PERMISSIONS)


def _permissions(settings: Tuple[Any, ...]) -> Dict[str, Any]:
    """Returns the permissions among differentiable's settings."""
    return dict(zip(_native.PERMISSIONS, settings[_AT_PERMISSIONS:]))


_SEED = list(_FEATURES).index("dropout_seed")
_SEEDS = 2 ** 62  # seeds are below it: all ways to draw random numbers reach that far


def seed_of(like: Tensor, given: Any = None) -> Tensor:
    """Returns the dropout seed of a call, int64 [1] on the device.

    Without a given seed, an operation of PyTorch draws one from the device's generator. Therefore checkpoints draw the
    same seed again, CUDA graphs draw a new one at each replay, and compilers see the drawing.
    """
    if given is None:
        return torch.randint(_SEEDS, (1,), dtype=torch.int64, device=like.device)
    if isinstance(given, Tensor):
        return given
    if not 0 <= given < 2 ** 64:
        raise ValueError(f"dropout_seed is {given}; it must be from 0 to 2^64 - 1")
    return torch.full((1,), (int(given) + 2 ** 63) % 2 ** 64 - 2 ** 63, dtype=torch.int64, device=like.device)


# Places of features' tensors, and of the tensors of new keys, after _FIRST.
_AT_FEATURES, _AT_NEW = ([len(_FIRST) + at for at, line in enumerate(_native.OPERANDS) if line[0] in names]
                         for names in (_FEATURES, _NEW))


def _split(given: Sequence[Any]) -> Tuple[List[Any], Dict[str, Any]]:
    """Returns the tensors of features, and those of new keys by name, {} if none is given. given: from _FIRST on."""
    new = dict(zip(_NEW, (given[at] for at in _AT_NEW)))
    return [given[at] for at in _AT_FEATURES], {} if all(tensor is None for tensor in new.values()) else new


def _refuse_gradient_of_new() -> None:
    raise NotImplementedError("k_new: attention that writes new keys has no gradient: call it under torch.no_grad() or "
                              "on detached tensors")


def _refuse_place(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise NotImplementedError(f"{name}= is only for calls that PyTorch does not trace, cast or differentiate")


# ---- the choice of a path ----


_count_function_modes = torch._C._len_torch_function_stack


def _watchers() -> List[Any]:
    """Returns functions that are true while more than autograd and autocast intercepts calls. Each takes 40 ns."""
    names = ("_len_torch_dispatch_stack", "_is_tracing")
    return [*(getattr(torch._C, name) for name in names), _count_function_modes,
            torch._C._functorch.peek_interpreter_stack]


def _function_modes() -> bool:
    """Returns true if a function mode is active that is more than a default device.

    A default device (torch.set_default_device, `with torch.device(...)`) changes only functions that create tensors.
    """
    modes = (torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack()))
    return any(type(mode) is not DeviceContext for mode in modes)


_others = _watchers()
_exact = {torch.Tensor, torch.nn.Parameter}


def is_unwatched(*tensors: Any) -> bool:
    """Returns true if nothing but autograd and autocast intercepts a call on these tensors."""
    return all(tensor is None or type(tensor) in _exact for tensor in tensors) and not any(
        watcher() and (watcher is not _count_function_modes or _function_modes()) for watcher in _others)


def needs_gradient(*tensors: Optional[Tensor]) -> bool:
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def padded(query: Tensor, key: Tensor, value: Tensor) -> List[Tensor]:
    """Pads D with 0 to sizes that kernels take: multiples of 8, and value not wider than query."""
    columns = max(query.shape[-1], value.shape[-1])
    widths = (-(-width // 8) * 8 for width in (columns, columns, value.shape[-1]))
    return [tensor if tensor.shape[-1] == width else F.pad(tensor, (0, width - tensor.shape[-1]))
            for tensor, width in zip((query, key, value), widths)]


def is_readable(tensor: Tensor, seq: int) -> bool:
    """Returns true if kernels can read and write the tensor's rows where they lie. seq: the sequence's dimension."""
    *outer, last = tensor.stride()
    is_real = type(tensor) in _exact and not torch._C._functorch.peek_interpreter_stack()
    begins = tensor.data_ptr() // tensor.element_size() if is_real else tensor.storage_offset()
    are_apart = tensor.shape[seq] < 2 or tensor.stride(seq) >= tensor.shape[-1]
    step = 16 // tensor.element_size()
    ready = last == 1 and begins % step == 0 and are_apart and not any(stride % step for stride in outer)
    return ready  # type: ignore[return-value]


def readable(tensor: Tensor, seq: int) -> Tensor:
    """Returns the tensor, or a copy if kernels cannot read its rows where they lie. seq: the sequence's dimension."""
    return tensor if is_readable(tensor, seq) else tensor.clone(memory_format=torch.contiguous_format)


def fixed(window: Any) -> Any:
    """Returns the window in a form that cannot change before backward reads it."""
    return window if window is None or type(window) is tuple else _native.window(window)


_NUMBER_OF = {word: number for words in _native.PERMISSIONS.values() for number, word in enumerate(words)}


def _whole(number: Any) -> Any:
    """Returns an int: 0 for None, the number of a permission's word. A compiler's symbol stays as it is."""
    if isinstance(number, str):
        return _NUMBER_OF[number]
    return number if isinstance(number, torch.SymInt) else operator.index(number or 0)


def _settings(causal: Any, window: Any, deterministic: bool = False, layout: Any = None, context: Any = None,
              **others: Any) -> Tuple[Any, ...]:
    """Returns the extension module's keywords as an operation's settings. others: factors, numbers, features."""
    if context is not None:
        _refuse_place(context=context)
    if others.get("cu_seqlens_q") is not None and None in (others.get("max_seqlen_q"), others.get("max_seqlen_k")):
        raise ValueError("max_seqlen_q and max_seqlen_k must be given beside cu_seqlens_q")
    factors = (others.get(name) or 0.0 if field else others.get(name) for name, field in _FACTORS.items())
    return (bool(causal), *_native.window(window), *factors, deterministic,
            others.get("dropout_p") or 0.0, *(_whole(others.get(name)) for name in list(_NUMBERS)[1:]),
            *map(others.get, _FEATURES))


def dispatch(q: Tensor, k: Tensor, v: Tensor, *settings: Any) -> Any:
    """fa2_attn.attention through PyTorch's dispatcher. settings: as in differentiable; None: it was not given."""
    *given, dropout_p, longest_q, longest_k, interleaved = settings[:_AT_PERMISSIONS]
    context, stream, out, return_lse = settings[_AFTER_PERMISSIONS:]
    permissions = _permissions(settings)
    features, new = _split(given)
    if new and needs_gradient(q, k, v, *new.values(), *features):
        _refuse_gradient_of_new()
    _refuse_place(stream=stream)
    *first, layout = given[:len(_FIRST)]
    if layout not in (None, "bshd", "bhsd"):
        raise ValueError(f'layout is {layout!r}; it must be "bshd" or "bhsd"')
    features[_SEED] = seed_of(q, features[_SEED]) if dropout_p else None
    keywords = {**dict(zip(_FIRST, first)), "dropout_p": dropout_p, "max_seqlen_q": longest_q,
                "max_seqlen_k": longest_k, **permissions}
    named = dict(zip(_FEATURES, features))
    if is_unwatched(q, k, v, *features, *new.values()):  # the call came here for autocast, or to draw a seed
        if new:  # k and v are the caches: kernels write into them, so they must not be copies
            q, *cast = _as_autocast(q, *new.values())
            keywords.update(zip(new, cast), rotary_interleaved=interleaved)
        else:
            q, k, v = _as_autocast(q, k, v)
        keywords.update(layout=layout, context=context)
        if needs_gradient(q, k, v, *features):
            _refuse_place(out=out)
            if not (return_lse or dropout_p or longest_q or longest_k or any(permissions.values())
                    or any(x is not None for x in features)):
                return _apply_plain((*first, layout, context, False), q, k, v)
            return _apply(keywords, False, bool(return_lse), *features, q, k, v)
        return _kernels.launch(q, k, v, return_lse=return_lse, out=out, **keywords, **named)
    _refuse_place(out=out)
    made = _settings(**keywords, **named, context=context)
    rows = [q, k, v, *(new[name] for name in _NEW[:2] if new)]
    if layout == "bhsd":
        rows = [_seq_first(tensor) for tensor in rows]
    if new:
        rows += (new[name] for name in _NEW[2:])
        result, lse = torch.ops.fa2.attention_append(*rows, bool(interleaved), *made)
    else:
        result, lse = torch.ops.fa2.attention(*rows, *made)
    if layout == "bhsd":
        result = _seq_first(result)
    return (result, lse) if return_lse else result


def _seq_first(tensor: Tensor) -> Tensor:
    """Swaps the sequence and head dimensions: [B, S, H, D] and [B, H, S, D], or [T, H, D] and [H, T, D]."""
    return tensor.transpose(-3, -2)


def _as_autocast(*tensors: Any) -> List[Any]:
    """Returns the tensors in autocast's type if autocast is on, else unchanged."""
    is_cast = tensors[0].is_cuda and torch.is_autocast_enabled("cuda")
    return _cast(*tensors) if is_cast else list(tensors)


def truth(name: str, value: Any) -> bool:
    """Returns a keyword that is a bool, None, 0, 1, or an object with __bool__, as arrays' scalars are."""
    is_truth = value in (0, 1) if isinstance(value, int) else \
        value is None or hasattr(value, "__bool__") and not isinstance(value, float)
    if not is_truth:
        raise TypeError(f"{name} is {value!r}; a bool is wanted")
    return bool(value)


def attention_packed(*tensors: Tensor, causal: bool = False, window: Any = None, deterministic: bool = False,
                     return_lse: bool = False, **others: Any) -> Any:
    """fa2_attn.attention on (qkv,) with qkv [B, S, 3, H, D], on (q, kv) with kv [B, Sk, 2, Hkv, D], or on (q, k, v).

    The gradient of a packed tensor is one tensor of the same shape. The kernel writes into it; nothing is copied.
    deterministic: dq has the same bits in every call. torch.use_deterministic_algorithms asks for the same.
    others: numbers that change scores, tensors of features, dropout_p, max_seqlen_q and max_seqlen_k, as in
    fa2_attn.attention; no new keys. With cu_seqlens_q and cu_seqlens_k, the tensors have no B.
    """
    deterministic, return_lse = truth("deterministic", deterministic), truth("return_lse", return_lse)
    window, factors = fixed(window), {name: others.pop(name, None) for name in _FACTORS}
    if not others and not return_lse and is_unwatched(*tensors):
        tensors = tuple(_as_autocast(*tensors))
        if needs_gradient(*tensors):
            return _apply_plain((causal, window, *factors.values(), None, None, deterministic), *tensors)
        return _kernels.launch(*_unpacked(tensors), causal=causal, window=window, **factors)
    unknown = next((name for name in others if name not in _FEATURES and name not in _NUMBERS), None)
    if unknown is not None:
        known = ("q", "k", "v", "causal", "window", "deterministic", "return_lse", *_FACTORS, *_FEATURES, *_NUMBERS)
        raise TypeError(f"attention_packed() got an unexpected keyword argument '{unknown}'"
                        f"{_native.suggestion(unknown, known)}")
    others["dropout_seed"] = seed_of(tensors[0], others.get("dropout_seed")) if others.get("dropout_p") else None
    keywords = {"causal": causal, "window": window, **factors,
                **{name: others[name] for name in _NUMBERS if others.get(name) is not None}}
    features = [others.get(name) for name in _FEATURES]
    if is_unwatched(*tensors, *features):
        tensors = tuple(_as_autocast(*tensors))
        if needs_gradient(*tensors, *features):
            return _apply({**keywords, "layout": None, "context": None}, deterministic, return_lse, *features, *tensors)
        return _kernels.launch(*_unpacked(tensors), return_lse=return_lse, **keywords, **dict(zip(_FEATURES, features)))
    settings = _settings(**keywords, deterministic=deterministic, **dict(zip(_FEATURES, features)))
    if len(tensors) == 3:
        out, lse = torch.ops.fa2.attention(*tensors, *settings)
    else:
        out, lse = torch.ops.fa2.attention_packed(list(tensors), *settings)
    return (out, lse) if return_lse else out


_watching = (torch.is_grad_enabled, _is_deterministic, *_others,
             getattr(torch._C, "_is_any_autocast_enabled", torch.is_autocast_enabled))  # the first is faster
_native.set_torch(dispatch, differentiable, _apply_plain, *_watching)
