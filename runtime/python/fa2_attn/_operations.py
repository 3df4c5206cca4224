"""fa2's operations for PyTorch's dispatcher.

torch.ops.fa2.attention(q, k, v, ...) -> (out, lse)
    q, k, v, out: [B, S, H, D]; lse: float32 [B, H, Sq]
torch.ops.fa2.attention_packed(tensors, ...) -> (out, lse)
    tensors: [qkv] with qkv [B, S, 3, H, D], or [q, kv] with kv [B, S, 2, H, D]
torch.ops.fa2.attention_append(q, k, v, k_new, v_new, rotary_cos, rotary_sin, rotary_interleaved, ...) -> (out, lse)
    writes k_new and v_new into k and v, then computes attention
torch.ops.fa2.attention_backward(d_out, tensors, out, lse, wanted, ...) -> gradients
    of the tensors in their shapes, and of features' tensors that have one; an empty tensor for each that is not wanted

torch.compile, export, functorch and modes see these operations. Eager calls that nothing but autograd and autocast
intercepts take the short path in _dispatch.py.
"""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import _native

_kernels: Any = _native  # Any, because calls here pass lists of tensors

_NO_SECOND = ("fa2 has no second derivatives of attention: the gradients of this call were differentiated "
              "(create_graph=True, torch.func.hessian); use another attention where they are needed")

_FIELDS_OF_NEW = ("append", "rotary")
# The tensors of features by attention's keywords, and the field of the problem that each sets.
_FEATURES = {name: field for name, field, *_ in _native.OPERANDS if field not in _FIELDS_OF_NEW}
# Features of inference: forward runs even if a tensor requires a gradient, and backward raises.
_INFERENCE = tuple(name for name, _, in_backward, *_ in _native.OPERANDS if name in _FEATURES and not in_backward)
# Features whose tensors have a gradient, and how many.
_WITH_GRADIENT = tuple(name for name, _, _, has_gradient, _ in _native.OPERANDS if has_gradient)
_GRADIENTS = len(_WITH_GRADIENT)
# The tensors of new keys. A separate operation takes them, because it writes to k and v.
_NEW = tuple(name for name, field, *_ in _native.OPERANDS if field in _FIELDS_OF_NEW)
# The numbers of a call that change scores, and the fields that they need, or None.
_FACTORS = _native.FACTORS
# Further keywords of attention, and their types in the operations' schemas. 0 means "not given".
_NUMBERS = {"dropout_p": "float", "max_seqlen_q": "SymInt", "max_seqlen_k": "SymInt",
            **dict.fromkeys(_native.PERMISSIONS, "int")}

_BIAS_WORDS = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.bool: "bool"}

# ---- kernels ----

_is_deterministic = torch._C._get_deterministic_algorithms  # torch.are_deterministic_algorithms_enabled, but faster


def _unpacked(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Returns q, k and v as views of (q, k, v), (q, kv) or (qkv,)."""
    if len(tensors) == 3:
        return tensors
    *query, packed = tensors
    return (*query, *packed.unbind(-3))


def _inference(features: Dict[str, Any]) -> Optional[str]:
    """Returns the name of a call's first feature of inference, or None."""
    return next((name for name in _INFERENCE if features.get(name) is not None), None)


def _refuse_gradient(name: str) -> None:
    raise NotImplementedError(f"fa2_attn.attention with {name} has no gradient: call it under torch.no_grad() or on "
                              "detached tensors")


def _launch_backward(d_out: Tensor, tensors: Sequence[Tensor], out: Tensor, lse: Tensor, wanted: Sequence[bool],
                     keywords: Dict[str, Any], deterministic: bool) -> Sequence[Optional[Tensor]]:
    """Returns the gradients of the tensors (a packed one has one gradient), and of those in _WITH_GRADIENT.

    wanted: one bool for each of these. The gradient is None where it is not wanted.
    """
    refused = _inference(keywords)
    if refused is not None:
        _refuse_gradient(refused)
    needs, wants = wanted[:-_GRADIENTS], wanted[-_GRADIENTS:]
    if any(wants) and not any(needs):  # the library requires that one of dq, dk and dv is wanted
        found = _launch_backward(d_out, tensors, out, lse, (True, *needs[1:], *wants), keywords, deterministic)
        return (*[None] * len(needs), *found[-_GRADIENTS:])
    deterministic = deterministic or _is_deterministic()
    asked = {f"d{name}": want for name, want in zip(_WITH_GRADIENT, wants)}

    def others(made: Any) -> List[Optional[Tensor]]:
        """Returns the gradients of features' tensors. A broadcast one gets the sum, in its own type."""
        rest = iter(made[3:])
        inputs = (keywords[name] if want else None for name, want in zip(_WITH_GRADIENT, wants))
        return [None if of is None else next(rest).sum_to_size(of.shape).to(of.dtype) for of in inputs]

    if len(tensors) == 3:
        dq, dk, dv = needs
        made = _kernels.attention_backward(d_out, *tensors, out, lse, dq=dq, dk=dk, dv=dv, **asked,
                                          deterministic=deterministic, **keywords)
        return (*made[:3], *others(made))
    packed = [torch.empty_like(tensor) if needed else None for tensor, needed in zip(tensors, needs)]
    places: List[Any] = [] if len(tensors) == 1 else [False if packed[0] is None else packed[0]]
    places += [False] * (4 - len(tensors)) if packed[-1] is None else packed[-1].unbind(-3)
    every = _kernels.attention_backward(d_out, *_unpacked(tensors), out, lse, **asked,
                                       **dict(zip(("dq", "dk", "dv"), places)), deterministic=deterministic,
                                       **keywords)
    return (*packed, *others(every))


# ---- operations ----

library: Any = torch.library.Library("fa2", "FRAGMENT")
_old: Any = _native.keep(library)
if _old is not None:  # the module was loaded before in this process
    _old._destroy()
# The compiler must keep strides: D stays contiguous, and views stay views.
_TAGS = (torch.Tag.pt2_compliant_tag, getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order))
_SETTINGS = ", ".join(["bool causal=False, int window_left=-1, int window_right=-1",
                       *(f"float {name}=0.0" if field else f"float? {name}=None" for name, field in _FACTORS.items()),
                       "bool deterministic=False", *(f"{kind} {name}=0" for name, kind in _NUMBERS.items()),
                       *(f"Tensor? {name}=None" for name in _FEATURES)])
library.define(f"attention(Tensor q, Tensor k, Tensor v, {_SETTINGS}) -> (Tensor, Tensor)", tags=_TAGS)
library.define(f"attention_packed(Tensor[] tensors, {_SETTINGS}) -> (Tensor, Tensor)", tags=_TAGS)
# Scales of a cache in 8 bits are written, too.
_GROWING = _SETTINGS.replace("Tensor? k_scale", "Tensor(c!)? k_scale").replace("Tensor? v_scale", "Tensor(d!)? v_scale")
library.define("attention_append(Tensor q, Tensor(a!) k, Tensor(b!) v, Tensor k_new, Tensor v_new, Tensor? rotary_cos, "
               f"Tensor? rotary_sin, bool rotary_interleaved, {_GROWING}) -> (Tensor, Tensor)", tags=_TAGS)
library.define("attention_backward(Tensor d_out, Tensor[] tensors, Tensor out, Tensor lse, bool[] wanted, "
               f"{_SETTINGS}) -> Tensor[]", tags=_TAGS)


_SCALARS = ("causal", "window_left", "window_right", *_FACTORS, "deterministic", *_NUMBERS)
_PLAIN_SCALARS = len(_SCALARS) - len(_NUMBERS)  # the scalars of calls without features
# Places among the settings of the tensors that have a gradient.
_GIVEN = tuple(len(_SCALARS) + list(_FEATURES).index(name) for name in _WITH_GRADIENT)
_DEFAULTS = (False, -1, -1, *(0.0 if field else None for field in _FACTORS.values()), False, 0.0,
             *[0] * (len(_NUMBERS) - 1), *[None] * len(_FEATURES))


def _keywords(*settings: Any) -> Tuple[Dict[str, Any], bool]:
    """Returns an operation's settings as the extension module's keywords, and `deterministic`."""
    every: List[Any] = [*settings, *_DEFAULTS[len(settings):]]
    causal, left, right, *others = every
    deterministic = others.pop(len(_FACTORS))
    return {"causal": causal, "window": (left, right),
            **dict(zip((*_FACTORS, *_NUMBERS, *_FEATURES), others))}, deterministic


def _cuda(q: Tensor, k: Tensor, v: Tensor, *settings: Any) -> Tuple[Tensor, Tensor]:
    made: Tuple[Tensor, Tensor]
    if len(settings) <= _PLAIN_SCALARS:  # PyTorch leaves out trailing arguments that equal their defaults
        scalars: List[Any] = [*settings, *_DEFAULTS[len(settings):_PLAIN_SCALARS]]
        causal, left, right, *factors, _ = scalars
        made = _kernels.launch(q, k, v, causal=causal, window=(left, right), return_lse=True,
                               **dict(zip(_FACTORS, factors)))
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
    keywords = _keywords(*settings)[0]
    packed = keywords["cu_seqlens_q"] is not None
    rank = 3 if packed else 4
    torch._check(q.dim() == rank, lambda: f"q has {q.dim()} dimensions; it must have {rank}")
    torch._check(k.shape[:-1] == v.shape[:-1], lambda: f"k is {tuple(k.shape)} and v {tuple(v.shape)}; they must be equal")
    torch._check(k.dtype == v.dtype and (q.dtype == k.dtype or keywords["k_scale"] is not None),
                 lambda: "q, k and v must be of one type")
    _native.problem_text(_fields(q, v, *settings))  # raises the errors of a launch
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
    given = _keywords(*settings)[0]
    inputs = [*tensors, *(given[name] for name in _WITH_GRADIENT)]
    return [torch.empty_like(tensor) if needed and at < len(tensors) else tensor.new_empty(tensor.shape) if needed
            else d_out.new_empty((0,)) for at, (tensor, needed) in enumerate(zip(inputs, wanted))]


def _cast(*tensors: Any, kind: str = "cuda") -> List[Any]:
    """Returns the tensors in autocast's type for a kind of device. None, integers, and K and V in 8 bits stay."""
    wanted = torch.get_autocast_dtype(kind)
    return [tensor.to(wanted) if tensor is not None and tensor.is_floating_point() and tensor.element_size() > 1
            else tensor for tensor in tensors]


def _below_autocast() -> Any:
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA))


def _autocast(q: Tensor, k: Tensor, v: Tensor, *settings: Any) -> Tuple[Tensor, Tensor]:
    with _below_autocast():
        made: Tuple[Tensor, Tensor] = torch.ops.fa2.attention(*_cast(q, k, v), *settings)
    return made


def _autocast_packed(tensors: List[Tensor], *settings: Any) -> Tuple[Tensor, Tensor]:
    with _below_autocast():
        made: Tuple[Tensor, Tensor] = torch.ops.fa2.attention_packed(_cast(*tensors), *settings)
    return made


def _autocast_append(q: Tensor, k: Tensor, v: Tensor, k_new: Tensor, v_new: Tensor, rotary_cos: Optional[Tensor],
                     rotary_sin: Optional[Tensor], rotary_interleaved: bool, *settings: Any) -> Tuple[Tensor, Tensor]:
    """Casts all tensors but the caches, because the kernel writes to them."""
    q, *new = _cast(q, k_new, v_new, rotary_cos, rotary_sin)
    with _below_autocast():
        made: Tuple[Tensor, Tensor] = torch.ops.fa2.attention_append(q, k, v, *new, rotary_interleaved, *settings)
    return made


# ---- autograd of the operations ----


def _fields(q: Tensor, v: Tensor, *settings: Any) -> Dict[str, Any]:
    """Returns the fields of a problem with these settings. Its sizes are arbitrary."""
    keywords, _ = _keywords(*settings)
    columns, columns_v = q.shape[-1], v.shape[-1]
    if q.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise NotImplementedError(f"q is {str(q.dtype).partition('.')[2]}; fa2 knows float16, bfloat16 and float32")
    fields = {"heads_q": 1, "seq_q": 1, "dtype": _BIAS_WORDS[q.dtype], "head_dim": int(columns),
              "head_dim_v": int(columns_v) if columns_v != columns else 0, "causal": keywords["causal"],
              **{field: keywords[name] != 0 for name, field in _FACTORS.items() if field},
              "dropout": keywords["dropout_p"] > 0,
              **{field: words[keywords[field]] for field, words in _native.PERMISSIONS.items()},
              **{field: keywords[name] is not None for name, field in _FEATURES.items() if field != "dropout"}}
    if keywords["k_scale"] is not None:
        fields["kv"] = "int8" if v.dtype == torch.int8 else "fp8"
        fields["kv_scales"] = "fp16" if keywords["k_scale"].dtype == torch.float16 else "fp32"
    if keywords["bias"] is not None:
        if keywords["bias"].dtype not in _BIAS_WORDS:
            raise ValueError(f"bias is {keywords['bias'].dtype}; it must be float16, bfloat16, float32 or bool")
        fields["bias"] = _BIAS_WORDS[keywords["bias"].dtype]
    left, right = _native.window(keywords["window"])
    if left >= 0 or right >= 0:
        fields.update(window_left=left, window_right=right)
    return fields


def _check_leaves(features: Dict[str, Any]) -> None:
    """Refuses tensors that require a gradient and have none in fa2. Tensors of inference are refused in backward."""
    for name in _FEATURES:
        tensor = features.get(name)
        if tensor is not None and name not in (*_WITH_GRADIENT, *_INFERENCE) and tensor.requires_grad:
            raise NotImplementedError(f"{name} requires a gradient, and fa2 has none for it: detach it")


def _save(ctx: Any, tensors: Sequence[Tensor], settings: Tuple[Any, ...], output: Tuple[Tensor, Tensor]) -> None:
    q, _, v = _unpacked(tensors)
    fields = _fields(q, v, *settings)
    _check_leaves(_keywords(*settings)[0])
    _native.check_differentiable(fields)
    ctx.save_for_backward(*output, *settings[len(_SCALARS):], *tensors)
    ctx.settings = settings[:len(_SCALARS)]
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _saved(ctx: Any) -> Tuple[Tensor, Tensor, Sequence[Optional[Tensor]], List[Tensor]]:
    """Returns out, lse, the tensors of features, and the tensors."""
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


def _others(ctx: Any, first: int, found: Sequence[Optional[Tensor]]) -> List[Optional[Tensor]]:
    """Returns the gradients of the settings from input `first` on. Only those of _WITH_GRADIENT have one."""
    given: List[Optional[Tensor]] = [None] * len(ctx.needs_input_grad[first:])
    for place, gradient in zip(_GIVEN, found):
        if gradient is not None:
            given[place] = gradient
    return given


def _wants(ctx: Any, first: int) -> List[bool]:
    """Returns whether the gradients of features' tensors are wanted."""
    needs = ctx.needs_input_grad[first:]
    return [len(needs) > place and bool(needs[place]) for place in _GIVEN]


def _backward(ctx: Any, d_out: Optional[Tensor], d_lse: Any) -> Tuple[Any, ...]:
    gradients = _gradients(ctx, d_out, (*ctx.needs_input_grad[:3], *_wants(ctx, 3)))
    return (*gradients[:3], *_others(ctx, 3, gradients[3:]))


def _backward_packed(ctx: Any, d_out: Optional[Tensor], d_lse: Any) -> Tuple[Any, ...]:
    gradients = _gradients(ctx, d_out, (*ctx.needs_input_grad[0], *_wants(ctx, 1)))
    return (gradients[:-_GRADIENTS], *_others(ctx, 1, gradients[-_GRADIENTS:]))


def _refuse_second(*unused: Any) -> None:
    raise NotImplementedError(_NO_SECOND)


_OPERATIONS: Tuple[Tuple[str, Callable[..., Any], Callable[..., Any], Optional[Callable[..., Any]]], ...] = (
    ("attention", _cuda, _fake, _autocast),
    ("attention_packed", _cuda_packed, _fake_packed, _autocast_packed),
    ("attention_append", _cuda_append, _fake_append, _autocast_append),
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
