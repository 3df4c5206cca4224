"""Finds out which problems a PyTorch model calls, without launching any."""

from typing import Any, Callable, Dict, List, Mapping, Tuple

from ._frameworks import need

need("torch", "PyTorch", "fa2_attn.warm")

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from . import _native, _operations
from . import torch as _torch  # noqa: F401  gives PyTorch's dispatcher to the extension module

Problem = Dict[str, Any]


class _Recorder(TorchDispatchMode):
    """Notes the problem of each operation of fa2, and gives zeros in its place. Other operations run as they are."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.problems: Dict[str, Tuple[int, Problem]] = {}  # by device and text

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace != "fa2":
            return func(*args, **kwargs)
        name = func._schema.name.partition("::")[2]
        every = [kwargs[a.name] if a.name in kwargs else args[i] if i < len(args) else a.default_value
                 for i, a in enumerate(func._schema.arguments)]
        made = _OPERATIONS[name](self, *every)
        return [tensor.zero_() for tensor in made] if isinstance(made, list) else tuple(t.zero_() for t in made)

    def note(self, tensors: Any, keywords: Dict[str, Any], **more: Any) -> None:
        keywords = {**keywords, **more}
        for name in ("dropout_seed", "dropout_offset"):  # which no problem has
            keywords.pop(name, None)
        problem = _native.problem(*_operations._unpacked(list(tensors)), **keywords)
        device = tensors[0].device.index or 0
        self.problems.setdefault(f"{device} {_native.problem_text(problem)}", (device, problem))

    def attention(self, q: Any, k: Any, v: Any, *settings: Any) -> Any:
        self.note((q, k, v), _operations._keywords(*settings)[0])
        return _operations._fake(q, k, v, *settings)

    def attention_packed(self, tensors: Any, *settings: Any) -> Any:
        self.note(tensors, _operations._keywords(*settings)[0])
        return _operations._fake_packed(tensors, *settings)

    def attention_append(self, q: Any, k: Any, v: Any, k_new: Any, v_new: Any, rotary_cos: Any, rotary_sin: Any,
                         rotary_interleaved: bool, *settings: Any) -> Any:
        self.note((q, k, v), _operations._keywords(*settings)[0], k_new=k_new, v_new=v_new, rotary_cos=rotary_cos,
                  rotary_sin=rotary_sin, rotary_interleaved=rotary_interleaved)
        return _operations._fake(q, k, v, *settings)

    def attention_backward(self, d_out: Any, tensors: Any, out: Any, lse: Any, wanted: Any, *settings: Any) -> Any:
        keywords, deterministic = _operations._keywords(*settings)
        self.note(tensors, keywords, op="backward", deterministic=deterministic)
        return _operations._fake_backward(d_out, tensors, out, lse, wanted, *settings)


_OPERATIONS = {name: getattr(_Recorder, name)
               for name in ("attention", "attention_packed", "attention_append", "attention_backward")}


def problems_of(model: Callable[..., Any], inputs: Any, backward: bool) -> List[Tuple[int, Problem]]:
    """Returns the problems that the model calls, each once, in the order of the calls, with their devices' numbers."""
    keywords = dict(inputs) if isinstance(inputs, Mapping) else {}
    arguments = () if isinstance(inputs, Mapping) else tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,)
    with torch.set_grad_enabled(backward), _Recorder() as recorder:
        results = model(*arguments, **keywords)
        if backward:
            _differentiate(results)
    return list(recorder.problems.values())


def _differentiate(results: Any) -> None:
    outputs = [x for x in tree_leaves(results) if isinstance(x, torch.Tensor) and x.requires_grad]
    if not outputs:
        raise ValueError("backward is True, and no output of the model requires a gradient")
    leaves = _leaves_of(outputs)
    torch.autograd.grad([x.sum() for x in outputs], leaves, allow_unused=True)


def _leaves_of(outputs: Any) -> List[Any]:
    """Returns the tensors whose .grad a backward() of these outputs would fill."""
    seen, found = set(), []
    waiting = [x.grad_fn for x in outputs if x.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        waiting += [next_node for next_node, _ in node.next_functions if next_node is not None]
    return found
