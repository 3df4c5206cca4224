"""PyTorch's view of fa2: operations for its dispatcher, and a shorter way for its autograd.

torch.ops.fa2.attention(q, k, v, ...) -> (out, lse)          [B, S, H, D]; lse [B, H, Sq] float32
torch.ops.fa2.attention_packed(tensors, ...) -> (out, lse)   tensors: [qkv] with qkv [B, S, 3, H, D], or [q, kv]
                                                             with kv [B, S, 2, H, D]
torch.ops.fa2.attention_append(q, k, v, k_new, v_new, rotary_cos, rotary_sin, rotary_interleaved, ...) -> (out, lse)
                                                             attention, k_new and v_new being written into k and v
torch.ops.fa2.attention_backward(d_out, tensors, out, lse, wanted, ...) -> gradients of the tensors, in their
                                                             shapes, and of the sinks; of those not wanted: empty

The operations are what torch.compile, export, functorch and modes see. Eager calls that only autograd looks
on go by _Attention, a fifth of the time. Both save the same and launch the same kernels.
"""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _native

_kernels: Any = _native  # called here with lists of tensors

_NO_SECOND = ("fa2 has no second derivatives of attention: the gradients of this call were differentiated "
              "(create_graph=True, torch.func.hessian); use another attention where they are needed")

# The tensors that features take, as attention's keywords, and the problem's fields that ask for them.
_FEATURES = {"alibi_slopes": "alibi", "sinks": "sinks", "seqused_k": "seqused", "bias": "bias",
             "dropout_seed": "dropout", "cu_seqlens_q": "varlen", "cu_seqlens_k": "varlen", "block_table": "paged",
             "leftpad": "leftpad", "cache_rows": "cache_rows"}
# Those of new keys, which an operation of their own takes: it writes to k and v.
_NEW = ("k_new", "v_new", "rotary_cos", "rotary_sin")
# Further keywords of attention, with the operations' word for them; 0: not given.
_NUMBERS = {"dropout_p": "float", "max_seqlen_q": "SymInt", "max_seqlen_k": "SymInt"}

_BIAS_WORDS = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.bool: "bool"}

# ---- kernels ----

_is_deterministic = torch._C._get_deterministic_algorithms  # torch.are_deterministic_algorithms_enabled, quicker


def _unpacked(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """q, k, v of (q, k, v), (q, kv) or (qkv,): views."""
    if len(tensors) == 3:
        return tensors
    *query, packed = tensors
    return (*query, *packed.unbind(-3))


def _launch_backward(d_out: Tensor, tensors: Sequence[Tensor], out: Tensor, lse: Tensor, wanted: Sequence[bool],
                     keywords: Dict[str, Any], deterministic: bool) -> Sequence[Optional[Tensor]]:
    """The gradients of the tensors, a packed one's as one tensor, and of the sinks, the last of `wanted`; None where
    none is wanted."""
    *needs, dsinks = wanted
    if dsinks and not any(needs):  # the library wants one of the others
        *_, only = _launch_backward(d_out, tensors, out, lse, (True, *needs[1:], True), keywords, deterministic)
        return (*[None] * len(needs), only)
    deterministic = deterministic or _is_deterministic()
    if len(tensors) == 3:
        dq, dk, dv = needs
        made = _kernels.attention_backward(d_out, *tensors, out, lse, dq=dq, dk=dk, dv=dv, dsinks=dsinks,
                                          deterministic=deterministic, **keywords)
        return tuple(made) if dsinks else (*made, None)
    packed = [torch.empty_like(tensor) if needed else None for tensor, needed in zip(tensors, needs)]
    places: List[Any] = [] if len(tensors) == 1 else [False if packed[0] is None else packed[0]]
    places += [False] * (4 - len(tensors)) if packed[-1] is None else packed[-1].unbind(-3)
    every = _kernels.attention_backward(d_out, *_unpacked(tensors), out, lse, dsinks=dsinks,
                                       **dict(zip(("dq", "dk", "dv"), places)), deterministic=deterministic,
                                       **keywords)
    return (*packed, every[3] if dsinks else None)


# ---- operations ----

_old: Any = globals().get("library")
if _old is not None:  # the module is loaded again
    _old._destroy()
library: Any = torch.library.Library("fa2", "FRAGMENT")
# The compiler must not choose strides: D is to stay contiguous, and views are to stay views.
_TAGS = (torch.Tag.pt2_compliant_tag, getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order))
_SETTINGS = ("bool causal=False, int window_left=-1, int window_right=-1, float softcap=0.0, float? scale=None, "
             "bool deterministic=False, " + ", ".join([f"{kind} {name}=0" for name, kind in _NUMBERS.items()]
                                                      + [f"Tensor? {name}=None" for name in _FEATURES]))
library.define(f"attention(Tensor q, Tensor k, Tensor v, {_SETTINGS}) -> (Tensor, Tensor)", tags=_TAGS)
library.define(f"attention_packed(Tensor[] tensors, {_SETTINGS}) -> (Tensor, Tensor)", tags=_TAGS)
library.define("attention_append(Tensor q, Tensor(a!) k, Tensor(b!) v, Tensor k_new, Tensor v_new, Tensor? rotary_cos, "
               f"Tensor? rotary_sin, bool rotary_interleaved, {_SETTINGS}) -> (Tensor, Tensor)", tags=_TAGS)
library.define("attention_backward(Tensor d_out, Tensor[] tensors, Tensor out, Tensor lse, bool[] wanted, "
               f"{_SETTINGS}) -> Tensor[]", tags=_TAGS)


_SCALARS = ("causal", "window_left", "window_right", "softcap", "scale", "deterministic", *_NUMBERS)
_PLAIN_SCALARS = len(_SCALARS) - len(_NUMBERS)  # those of calls without features
_SINKS = len(_SCALARS) + list(_FEATURES).index("sinks")  # among the settings
_DEFAULTS = (False, -1, -1, 0.0, None, False, 0.0, 0, 0, *[None] * len(_FEATURES))


def _keywords(*settings: Any) -> Tuple[Dict[str, Any], bool]:
    """An operation's settings as the extension module takes them, and whether to be deterministic."""
    every: List[Any] = [*settings, *_DEFAULTS[len(settings):]]
    causal, left, right, softcap, scale, deterministic, *others = every
    return {"causal": causal, "window": (left, right), "softcap": softcap, "scale": scale,
            **dict(zip((*_NUMBERS, *_FEATURES), others))}, deterministic


def _cuda(q: Tensor, k: Tensor, v: Tensor, *settings: Any) -> Tuple[Tensor, Tensor]:
    made: Tuple[Tensor, Tensor]
    if len(settings) <= _PLAIN_SCALARS:  # PyTorch leaves out the last ones that are the defaults
        causal, left, right, softcap, scale, _ = (*settings, *_DEFAULTS[len(settings):_PLAIN_SCALARS])
        made = _kernels.launch(q, k, v, causal=causal, window=(left, right), softcap=softcap, scale=scale, return_lse=True)
    else:
        made = _kernels.launch(q, k, v, return_lse=True, **_keywords(*settings)[0])
    return made


def _cuda_packed(tensors: List[Tensor], *settings: Any) -> Tuple[Tensor, Tensor]:
    return _cuda(*_unpacked(tensors), *settings)


def _cuda_append(q: Tensor, k: Tensor, v: Tensor, k_new: Tensor, v_new: Tensor, rotary_cos: Optional[Tensor],
                 rotary_sin: Optional[Tensor], rotary_interleaved: bool, *settings: Any) -> Tuple[Tensor, Tensor]:
    made: Tuple[Tensor, Tensor] = _kernels.launch(
        q, k, v, k_new=k_new, v_new=v_new, rotary_cos=rotary_cos, rotary_sin=rotary_sin,
        rotary_interleaved=rotary_interleaved, return_lse=True, **_keywords(*settings)[0])
    return made


def _cuda_backward(d_out: Tensor, tensors: List[Tensor], out: Tensor, lse: Tensor, wanted: List[bool],
                   *settings: Any) -> List[Tensor]:
    gradients = _launch_backward(d_out, tensors, out, lse, wanted, *_keywords(*settings))
    return [d_out.new_empty((0,)) if gradient is None else gradient for gradient in gradients]


def _elsewhere(tensors: Any, *unused: Any) -> Any:
    device = (tensors[0] if isinstance(tensors, (list, tuple)) else tensors).device
    raise ValueError(f"q is on device {device}; fa2 runs on CUDA devices only")


def _fake(q: Tensor, k: Tensor, v: Tensor, *settings: Any) -> Tuple[Tensor, Tensor]:
    packed = _keywords(*settings)[0]["cu_seqlens_q"] is not None
    rank = 3 if packed else 4
    torch._check(q.dim() == rank, lambda: f"q has {q.dim()} dimensions; it must have {rank}")
    torch._check(k.shape[:-1] == v.shape[:-1], lambda: f"k is {tuple(k.shape)} and v {tuple(v.shape)}; they must be equal")
    torch._check(q.dtype == k.dtype == v.dtype, lambda: "q, k and v must be of one type")
    *batch, length, heads, columns = q.shape
    out = torch.empty_like(q) if v.shape[-1] == columns else q.new_empty((*q.shape[:-1], v.shape[-1]))
    return out, q.new_empty((*batch, heads, length), dtype=torch.float32)


def _fake_packed(tensors: List[Tensor], *settings: Any) -> Tuple[Tensor, Tensor]:
    return _fake(*_unpacked(tensors), *settings)


def _fake_append(q: Tensor, k: Tensor, v: Tensor, k_new: Tensor, v_new: Tensor, rotary_cos: Optional[Tensor],
                 rotary_sin: Optional[Tensor], rotary_interleaved: bool, *settings: Any) -> Tuple[Tensor, Tensor]:
    return _fake(q, k, v, *settings)


def _fake_backward(d_out: Tensor, tensors: List[Tensor], out: Tensor, lse: Tensor, wanted: List[bool],
                   *settings: Any) -> List[Tensor]:
    *needs, dsinks = wanted
    made = [torch.empty_like(tensor) if needed else tensor.new_empty((0,)) for tensor, needed in zip(tensors, needs)]
    return [*made, lse.new_empty(lse.shape[-2:-1]) if dsinks else d_out.new_empty((0,))]


def _below_autocast() -> Any:
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA))


def _autocast(q: Tensor, k: Tensor, v: Tensor, *settings: Any) -> Tuple[Tensor, Tensor]:
    wanted = torch.get_autocast_dtype("cuda")
    with _below_autocast():
        made: Tuple[Tensor, Tensor] = torch.ops.fa2.attention(q.to(wanted), k.to(wanted), v.to(wanted), *settings)
    return made


def _autocast_packed(tensors: List[Tensor], *settings: Any) -> Tuple[Tensor, Tensor]:
    wanted = torch.get_autocast_dtype("cuda")
    with _below_autocast():
        made: Tuple[Tensor, Tensor] = torch.ops.fa2.attention_packed([tensor.to(wanted) for tensor in tensors], *settings)
    return made


# ---- autograd of the operations ----


def _check_differentiable(columns: int, columns_v: int, *settings: Any) -> None:
    """NotImplementedError where the library has no gradient for a call with these settings, whatever its sizes."""
    keywords, _ = _keywords(*settings)
    _check_leaves(keywords["alibi_slopes"], keywords["bias"])
    fields = {"heads_q": 1, "seq_q": 1, "head_dim": columns, "head_dim_v": columns_v if columns_v != columns else 0, "causal": keywords["causal"],
              "softcap": keywords["softcap"] != 0,
              "dropout": keywords["dropout_p"] > 0,
              **{field: keywords[name] is not None for name, field in _FEATURES.items() if field != "dropout"}}
    if keywords["bias"] is not None:
        fields["bias"] = _BIAS_WORDS[keywords["bias"].dtype]
    left, right = keywords["window"]
    if left >= 0 or right >= 0:
        fields.update(window_left=left, window_right=right)
    _native.check_differentiable(fields)


def _check_leaves(alibi_slopes: Optional[Tensor], bias: Optional[Tensor]) -> None:
    for name, tensor in (("alibi_slopes", alibi_slopes), ("bias", bias)):
        if tensor is not None and tensor.requires_grad:
            raise NotImplementedError(f"{name} requires a gradient, and fa2 has none for it: detach it")


def _save(ctx: Any, tensors: Sequence[Tensor], settings: Tuple[Any, ...], output: Tuple[Tensor, Tensor]) -> None:
    q, _, v = _unpacked(tensors)
    _check_differentiable(q.shape[-1], v.shape[-1], *settings)
    ctx.save_for_backward(*output, *settings[len(_SCALARS):], *tensors)
    ctx.settings = settings[:len(_SCALARS)]
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _saved(ctx: Any) -> Tuple[Tensor, Tensor, Sequence[Optional[Tensor]], List[Tensor]]:
    """out, lse, the features' tensors, the tensors."""
    out, lse, *others = ctx.saved_tensors
    return out, lse, others[:len(_FEATURES)], others[len(_FEATURES):]


def _setup(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[Tensor, Tensor]) -> None:
    _save(ctx, inputs[:3], inputs[3:], output)


def _setup_packed(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[Tensor, Tensor]) -> None:
    _save(ctx, inputs[0], inputs[1:], output)


def _gradients(ctx: Any, d_out: Optional[Tensor], wanted: Sequence[bool]) -> List[Optional[Tensor]]:
    out, lse, features, tensors = _saved(ctx)
    if d_out is None:
        return [None] * len(wanted)
    gradients = torch.ops.fa2.attention_backward(d_out, tensors, out, lse, list(wanted), *ctx.settings, *features)
    return [gradient if needed else None for gradient, needed in zip(gradients, wanted)]


def _behind(ctx: Any, first: int, dsinks: Optional[Tensor]) -> List[Optional[Tensor]]:
    """The gradients of the settings, from input `first` on, as many as were given: that of the sinks."""
    given: List[Optional[Tensor]] = [None] * len(ctx.needs_input_grad[first:])
    if dsinks is not None:
        given[_SINKS] = dsinks
    return given


def _wants_sinks(ctx: Any, first: int) -> bool:
    needs = ctx.needs_input_grad[first:]
    return len(needs) > _SINKS and bool(needs[_SINKS])


def _backward(ctx: Any, d_out: Optional[Tensor], d_lse: Any) -> Tuple[Any, ...]:
    *gradients, dsinks = _gradients(ctx, d_out, (*ctx.needs_input_grad[:3], _wants_sinks(ctx, 3)))
    return (*gradients, *_behind(ctx, 3, dsinks))


def _backward_packed(ctx: Any, d_out: Optional[Tensor], d_lse: Any) -> Tuple[Any, ...]:
    *gradients, dsinks = _gradients(ctx, d_out, (*ctx.needs_input_grad[0], _wants_sinks(ctx, 1)))
    return (gradients, *_behind(ctx, 1, dsinks))


def _refuse_second(*unused: Any) -> None:
    raise NotImplementedError(_NO_SECOND)


_OPERATIONS: Tuple[Tuple[str, Callable[..., Any], Callable[..., Any], Optional[Callable[..., Any]]], ...] = (
    ("attention", _cuda, _fake, _autocast),
    ("attention_packed", _cuda_packed, _fake_packed, _autocast_packed),
    ("attention_append", _cuda_append, _fake_append, None),
    ("attention_backward", _cuda_backward, _fake_backward, None))
for _name, _kernel, _shapes, _casting in _OPERATIONS:
    library.impl(_name, _kernel, "CUDA")
    library.impl(_name, _elsewhere, "CPU")
    if _casting is not None:
        library.impl(_name, _casting, "AutocastCUDA")
    torch.library.register_fake(f"fa2::{_name}", _shapes, lib=library)
torch.library.register_autograd("fa2::attention", _backward, setup_context=_setup, lib=library)
torch.library.register_autograd("fa2::attention_packed", _backward_packed, setup_context=_setup_packed, lib=library)
torch.library.register_autograd("fa2::attention_backward", _refuse_second, lib=library)

# ---- the shorter way ----


_BEFORE = 3 + len(_FEATURES)  # arguments before the tensors
_APPLIED_SINKS = 3 + list(_FEATURES).index("sinks")


class _Attention(torch.autograd.Function):
    """apply(keywords of attention, deterministic, return_lse, *features' tensors, *tensors)."""

    @staticmethod
    def forward(ctx: Any, keywords: Dict[str, Any], deterministic: bool, return_lse: bool,
                *tensors: Any) -> Any:
        named = dict(zip(_FEATURES, tensors))
        _check_leaves(named["alibi_slopes"], named["bias"])
        out, lse = _kernels.launch(*_unpacked(tensors[len(_FEATURES):]), return_lse=True, differentiable=True, **keywords,
                                  **named)
        ctx.save_for_backward(out, lse, *tensors)
        ctx.call = keywords, deterministic
        if not return_lse:
            return out
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, d_out: Optional[Tensor], *unused: Any) -> Tuple[Any, ...]:
        out, lse, features, tensors = _saved(ctx)
        if d_out is None:
            return (None,) * (_BEFORE + len(tensors))
        # create_graph: the operation, which refuses when it is differentiated
        launch = _recorded if torch.is_grad_enabled() else _launch_backward
        keywords, deterministic = ctx.call
        needs = ctx.needs_input_grad
        *gradients, dsinks = launch(d_out, tensors, out, lse, (*needs[_BEFORE:], needs[_APPLIED_SINKS]),
                                    {**keywords, **dict(zip(_FEATURES, features))}, deterministic)
        before: List[Optional[Tensor]] = [None] * _BEFORE
        before[_APPLIED_SINKS] = dsinks
        return (*before, *gradients)


def _recorded(d_out: Tensor, tensors: List[Tensor], out: Tensor, lse: Tensor, wanted: Sequence[bool],
              keywords: Dict[str, Any], deterministic: bool) -> List[Optional[Tensor]]:
    heads_first = keywords["layout"] == "bhsd"
    if heads_first:
        d_out, out, *tensors = (_seq_first(tensor) for tensor in (d_out, out, *tensors))
    settings = _settings(deterministic=deterministic, **keywords)
    gradients = torch.ops.fa2.attention_backward(d_out, tensors, out, lse, list(wanted), *settings)
    *made, dsinks = (gradient if needed else None for gradient, needed in zip(gradients, wanted))
    return [*(_seq_first(gradient) if heads_first and gradient is not None else gradient for gradient in made), dsinks]


class _Plain(torch.autograd.Function):
    """_Attention without features: apply(settings, *tensors), the settings' names being _PLAIN. What each argument and
    each look into a dict costs is paid at every step of a model."""

    @staticmethod
    def forward(ctx: Any, settings: Tuple[Any, ...], *tensors: Tensor) -> Tensor:
        causal, window, softcap, scale, layout, context, *_ = settings
        q, k, v = tensors if len(tensors) == 3 else _unpacked(tensors)
        out: Tensor
        out, lse = _kernels.launch(q, k, v, causal=causal, window=window, softcap=softcap, scale=scale, layout=layout,
                                   context=context, return_lse=True, differentiable=True)
        ctx.save_for_backward(out, lse, *tensors)
        ctx.settings = settings
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> Tuple[Any, ...]:
        out, lse, *tensors = ctx.saved_tensors
        _, *needs = ctx.needs_input_grad
        causal, window, softcap, scale, layout, context, deterministic = ctx.settings
        if len(tensors) < 3 or torch.is_grad_enabled():
            # create_graph: the operation, which refuses when it is differentiated
            launch = _recorded if torch.is_grad_enabled() else _launch_backward
            *gradients, _ = launch(d_out, tensors, out, lse, (*needs, False), dict(zip(_PLAIN, ctx.settings)),
                                   bool(deterministic))
            return (None, *gradients)
        return (None, *_kernels.attention_backward(
            d_out, *tensors, out, lse, causal=causal, window=window, softcap=softcap, scale=scale, layout=layout,
            context=context, deterministic=deterministic or _is_deterministic(), dq=needs[0], dk=needs[1], dv=needs[2]))


_PLAIN = ("causal", "window", "softcap", "scale", "layout", "context")  # and whether to be deterministic

# Function.apply looks for functorch first, which the caller has done.
_apply: Any = super(torch.autograd.Function, _Attention).apply
_apply_plain: Any = super(torch.autograd.Function, _Plain).apply


def differentiable(q: Tensor, k: Tensor, v: Tensor, causal: Any, window: Any, softcap: Any, scale: Any, layout: Any,
                   *others: Any) -> Any:
    """fa2.attention where a tensor requires a gradient and nobody but autograd looks on. others: the features'
    tensors, those of new keys, dropout_p, max_seqlen_q, max_seqlen_k, rotary_interleaved, context, stream, out,
    return_lse."""
    *features, dropout_p, longest_q, longest_k, _, context, stream, out, return_lse = others
    if _take_new(features):
        _refuse_gradient_of_new()
    if out is not None or stream is not None:
        _refuse_place(out=out, stream=stream)
    keywords = {"causal": causal, "window": window, "softcap": softcap, "scale": scale, "layout": layout,
                "context": context}
    features[_SEED] = seed_of(q, features[_SEED]) if dropout_p else None
    if dropout_p:
        keywords["dropout_p"] = dropout_p
    if longest_q or longest_k:
        keywords.update(max_seqlen_q=longest_q, max_seqlen_k=longest_k)
    return _apply(keywords, False, bool(return_lse), *features, q, k, v)


_SEED = list(_FEATURES).index("dropout_seed")
_SEEDS = 2 ** 62  # as many as every way of drawing numbers can choose from


def seed_of(like: Tensor, given: Any = None) -> Tensor:
    """A call's seed for dropout, int64 [1] on the device. One that is not given is drawn from the device's generator,
    by an operation of PyTorch's own: so checkpoints draw it again, CUDA graphs at each replay, compilers see it."""
    if given is None:
        return torch.randint(_SEEDS, (1,), dtype=torch.int64, device=like.device)
    if isinstance(given, Tensor):
        return given
    return torch.full((1,), (int(given) + 2 ** 63) % 2 ** 64 - 2 ** 63, dtype=torch.int64, device=like.device)


def _take_new(features: List[Any]) -> Dict[str, Any]:
    """Those of new keys, the last ones of a call's features, which then has them no more; {} where there are none."""
    given = dict(zip(_NEW, features[len(_FEATURES):]))
    del features[len(_FEATURES):]
    return {} if all(tensor is None for tensor in given.values()) else given


def _refuse_gradient_of_new() -> None:
    raise NotImplementedError("k_new: attention that writes new keys has no gradient: call it under torch.no_grad() or on "
                              "detached tensors")


def _refuse_place(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise NotImplementedError(f"{name}= is only for calls that PyTorch does not trace, cast or differentiate")


# ---- which way a call goes ----


def _watchers() -> List[Any]:
    """What tells, when called, that the dispatcher has somebody to call besides autograd and autocast. Each
    costs every call some 40 ns."""
    names = ("_len_torch_dispatch_stack", "_len_torch_function_stack", "_is_tracing")
    return [*(getattr(torch._C, name) for name in names), torch._C._functorch.peek_interpreter_stack]


_others = _watchers()
_exact = {torch.Tensor, torch.nn.Parameter}


def is_unwatched(*tensors: Any) -> bool:
    """Whether nobody but autograd and autocast looks on."""
    return all(tensor is None or type(tensor) in _exact for tensor in tensors) and not any(
        watcher() for watcher in _others)


def needs_gradient(*tensors: Optional[Tensor]) -> bool:
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def padded(query: Tensor, key: Tensor, value: Tensor) -> List[Tensor]:
    """The tensors with columns of 0, up to what kernels take: a multiple of 8, and no more for value than for query."""
    columns = max(query.shape[-1], value.shape[-1])
    widths = (-(-width // 8) * 8 for width in (columns, columns, value.shape[-1]))
    return [tensor if tensor.shape[-1] == width else F.pad(tensor, (0, width - tensor.shape[-1]))
            for tensor, width in zip((query, key, value), widths)]


def _bounds(window: Any) -> Tuple[int, int]:
    left, right = (-1 if bound is None else bound for bound in (window or (-1, -1)))
    return left, right


def _settings(causal: Any, window: Any, softcap: Any, scale: Any, deterministic: bool = False, layout: Any = None,
              context: Any = None, **others: Any) -> Tuple[Any, ...]:
    """The extension module's keywords as an operation's settings. others: numbers and the features' tensors."""
    if context is not None:
        _refuse_place(context=context)
    return (bool(causal), *_bounds(window), softcap or 0.0, scale, deterministic,
            *(others.get(name) or 0 for name in _NUMBERS), *map(others.get, _FEATURES))


def dispatch(q: Tensor, k: Tensor, v: Tensor, causal: Any, window: Any, softcap: Any, scale: Any, layout: Any,
             *others: Any) -> Any:
    """fa2.attention by way of PyTorch's dispatcher; others as of differentiable. None for what was not given."""
    *features, dropout_p, longest_q, longest_k, interleaved, context, stream, out, return_lse = others
    new = _take_new(features)
    if new and needs_gradient(q, k, v, *new.values(), *features):
        _refuse_gradient_of_new()
    _refuse_place(stream=stream)
    if layout not in (None, "bshd", "bhsd"):
        raise ValueError(f'layout is {layout!r}; it must be "bshd" or "bhsd"')
    features[_SEED] = seed_of(q, features[_SEED]) if dropout_p else None
    keywords = {"causal": causal, "window": window, "softcap": softcap, "scale": scale, "dropout_p": dropout_p,
                "max_seqlen_q": longest_q, "max_seqlen_k": longest_k}
    named = dict(zip(_FEATURES, features))
    if is_unwatched(q, k, v, *features, *new.values()):  # so it is autocast, or a seed was to be drawn
        if new:  # whose cache must not be a copy
            keywords.update(new, rotary_interleaved=interleaved)
        else:
            q, k, v = _cast(q, k, v)
        keywords.update(layout=layout, context=context)
        if needs_gradient(q, k, v, *features):
            _refuse_place(out=out)
            if not (return_lse or dropout_p or longest_q or longest_k or any(x is not None for x in features)):
                return _apply_plain((causal, window, softcap, scale, layout, context, False), q, k, v)
            return _apply(keywords, False, bool(return_lse), *features, q, k, v)
        return _kernels.launch(q, k, v, return_lse=return_lse, out=out, **keywords, **named)
    _refuse_place(out=out)
    settings = _settings(**keywords, **named, context=context)
    rows = [q, k, v, *(new[name] for name in _NEW[:2] if new)]
    if layout == "bhsd":
        rows = [_seq_first(tensor) for tensor in rows]
    if new:
        result, lse = torch.ops.fa2.attention_append(*rows, *(new[name] for name in _NEW[2:]), bool(interleaved), *settings)
    else:
        result, lse = torch.ops.fa2.attention(*rows, *settings)
    if layout == "bhsd":
        result = _seq_first(result)
    return (result, lse) if return_lse else result


def _seq_first(tensor: Tensor) -> Tensor:
    """[B, S, H, D] of [B, H, S, D], or [T, H, D] of [H, T, D], and back."""
    return tensor.transpose(-3, -2)


def _cast(*tensors: Tensor) -> List[Tensor]:
    """The tensors as autocast wants them."""
    if not tensors[0].is_cuda or not torch.is_autocast_enabled("cuda"):
        return list(tensors)
    wanted = torch.get_autocast_dtype("cuda")
    return [tensor.to(wanted) for tensor in tensors]


def attention_packed(*tensors: Tensor, causal: bool = False, window: Any = None, softcap: Optional[float] = None,
                     scale: Optional[float] = None, deterministic: bool = False, return_lse: bool = False,
                     **others: Any) -> Any:
    """fa2.attention on (qkv,) with qkv [B, S, 3, H, D], on (q, kv) with kv [B, Sk, 2, Hkv, D], or on (q, k, v).

    A packed tensor's gradient is one tensor of its shape, into which the kernel writes; nothing is copied.
    deterministic: dq is the same bits at every call (as torch.use_deterministic_algorithms makes it).
    others: alibi_slopes, sinks, seqused_k, bias, dropout_p, dropout_seed, cu_seqlens_q, cu_seqlens_k, max_seqlen_q,
    max_seqlen_k, block_table, leftpad, cache_rows, as fa2.attention takes them; with cu_seqlens the tensors have no B.
    """
    if not others and not return_lse and is_unwatched(*tensors):
        tensors = tuple(_cast(*tensors))
        if needs_gradient(*tensors):
            return _apply_plain((causal, window, softcap, scale, None, None, deterministic), *tensors)
        return _kernels.launch(*_unpacked(tensors), causal=causal, window=window, softcap=softcap, scale=scale)
    unknown = next((name for name in others if name not in _FEATURES and name not in _NUMBERS), None)
    if unknown is not None:
        raise TypeError(f"attention_packed() got an unexpected keyword argument '{unknown}'")
    others["dropout_seed"] = seed_of(tensors[0], others.get("dropout_seed")) if others.get("dropout_p") else None
    keywords = {"causal": causal, "window": window, "softcap": softcap, "scale": scale,
                **{name: others[name] for name in _NUMBERS if others.get(name)}}
    features = [others.get(name) for name in _FEATURES]
    if is_unwatched(*tensors, *features):
        tensors = tuple(_cast(*tensors))
        if needs_gradient(*tensors, *features):
            return _apply({**keywords, "layout": None, "context": None}, deterministic, return_lse, *features, *tensors)
        return _kernels.launch(*_unpacked(tensors), return_lse=return_lse, **keywords, **dict(zip(_FEATURES, features)))
    settings = _settings(**keywords, deterministic=deterministic, **dict(zip(_FEATURES, features)))
    if len(tensors) == 3:
        out, lse = torch.ops.fa2.attention(*tensors, *settings)
    else:
        out, lse = torch.ops.fa2.attention_packed(list(tensors), *settings)
    return (out, lse) if return_lse else out


_watching = (torch.is_grad_enabled, *_others,
             getattr(torch._C, "_is_any_autocast_enabled", torch.is_autocast_enabled))  # the former is quicker
_native.set_torch(dispatch, differentiable, _apply_plain, *_watching)
