"""Measures one shape: every implementation in every wanted pass. Compares fa2's numbers with the others'."""

import math
import random
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from . import peers
from .library import BACKWARD, FORWARD, Context
from .shapes import Shape
from .timing import Graph, Times, graph_of, time_all

_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
# Correct outputs differ by the rounding of P and O. Eight roundings (2^-11, 2^-8) of the largest value in the row are
# allowed; the row counts because a causal mask makes rows differ in size by sqrt(S). Correct gradients differ also by
# the rounding of P and dS, and some of their rows are nearly 0. Eight roundings of the tensor's largest value are
# allowed. 8-bit integers in Q K^T change O by 1 to 3 % of its size, e4m3 numbers in P V by 4 to 5 %, and single
# elements by more. float32 is not rounded, but a peer may sum otherwise, or multiply TF32.
_MOST_RELATIVE = {"fp16": 8 * 2**-11, "bf16": 8 * 2**-8, "fp32": 2**-14}
_MOST_RELATIVE_PERMITTED = {"scores": 0.1, "pv": 0.2}  # where a field of the problem permits less exact results

Difference = Tuple[float, float]  # the largest absolute difference, and its share of the allowed one


@dataclass
class Result:
    """The result of one pass over one shape."""

    shape: Shape
    which: str
    times: Dict[str, Times] = field(default_factory=dict)
    missing: Dict[str, str] = field(default_factory=dict)  # {name: why}
    differences: Dict[str, Difference] = field(default_factory=dict)  # between ours and the first peer
    rule: str = ""
    variant: str = ""
    workspace_bytes: int = 0

    def ratio(self, name: str) -> Optional[float]:
        """Returns the time of name over the time of fa2, None unless both ran."""
        both = name in self.times and "fa2" in self.times
        return self.times[name].median / self.times["fa2"].median if both else None

    def failure(self, ours: List[str]) -> str:
        """Returns why one of ours failed, "" if none did."""
        for name in ours:
            if name in self.missing:
                return f"{name}: {self.missing[name]}"
            if name in self.differences and not self.differences[name][1] <= 1:
                return (f"{name} and the first peer differ by {self.differences[name][1]:.3g} times what rounding "
                        "explains")
        return ""


class _Tensors:
    def __init__(self, shape: Shape):
        def new(heads: int, seq: int) -> torch.Tensor:
            return torch.randn(shape.batch, heads, seq, shape.head_dim, device="cuda", dtype=_DTYPES[shape.dtype])

        self.q = new(shape.heads_q, shape.seq_q)
        self.k, self.v = (new(shape.heads_kv, shape.seq_k) for _ in range(2))
        self.d_out = new(shape.heads_q, shape.seq_q)

    def inputs(self) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.q, self.k, self.v


def _peer_call(attention: peers.Attention, which: str, tensors: _Tensors) -> Callable[[], Any]:
    """Returns a call of a peer. A captured graph of backward holds only the kernels that autograd launched."""
    if which == "forward":
        def forward() -> torch.Tensor:
            with torch.no_grad():
                return attention(*tensors.inputs())

        return forward
    leaves = tuple(x.detach().requires_grad_() for x in tensors.inputs())
    if which == "backward":
        out = attention(*leaves)
        return lambda: torch.autograd.grad(out, leaves, tensors.d_out, retain_graph=True)
    return lambda: torch.autograd.grad(attention(*leaves), leaves, tensors.d_out)


def _own_call(context: Context, which: str, shape: Shape, tensors: _Tensors) -> Callable[[], Any]:
    """Returns a call of fa2. Outputs are NaN until a kernel writes them. For backward, forward also writes the LSE."""
    out = torch.full_like(tensors.q, math.nan)
    if which == "forward":
        return context.forward_call(shape, *tensors.inputs(), out)
    lse = torch.full(tensors.q.shape[:3], math.nan, device="cuda", dtype=torch.float32)
    gradients = tuple(torch.full_like(x, math.nan) for x in tensors.inputs())
    forward = context.forward_call(shape, *tensors.inputs(), out, lse)
    backward = context.backward_call(shape, (*tensors.inputs(), out, tensors.d_out), lse, gradients)
    forward()
    if which == "backward":
        return backward

    def both() -> Tuple[torch.Tensor, ...]:
        forward()
        return backward()

    return both


def _copy_call(shape: Shape) -> Optional[Callable[[], Any]]:
    """Returns a copy that moves as many bytes (read plus written) as K and V hold.

    Returns None unless the shape is a decoding step whose keys do not fit into L2.
    """
    if shape.seq_q != 1 or shape.kv_bytes() < 2 * torch.cuda.get_device_properties(0).L2_cache_size:
        return None
    source = torch.randint(256, (shape.kv_bytes() // 2,), device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _output_difference(mine: torch.Tensor, theirs: torch.Tensor, limit: float) -> Difference:
    absolute, relative = [], []
    for a, b in zip(mine, theirs):  # batch by batch, to keep the float copies small
        diff = (a.float() - b.float()).abs().amax(dim=-1)
        absolute.append(diff.amax())
        relative.append((diff / b.float().abs().amax(dim=-1)).amax())
    return torch.stack(absolute).amax().item(), torch.stack(relative).amax().item() / limit


def _gradient_difference(mine: Any, theirs: Any, limit: float) -> Difference:
    worst = (0.0, 0.0)
    for a, b in zip(mine, theirs):
        absolute = torch.stack([(x.float() - y.float()).abs().amax() for x, y in zip(a, b)]).amax().item()
        if not absolute <= worst[0]:
            worst = absolute, worst[1]
        relative = absolute / b.abs().amax().item() / limit
        if not relative <= worst[1]:
            worst = worst[0], relative
    return worst


class _Run:
    """The prepared implementations of one shape and pass."""

    def __init__(self, shape: Shape, which: str):
        self.result, self.tensors = Result(shape, which), _Tensors(shape)
        self.graphs: Dict[str, Graph] = {}
        self.expected: Any = None
        self.kept: List[Callable[[], Any]] = []  # the calls: they own the tensors that the graphs read

    def _add(self, name: str, call: Callable[[], Any]) -> Any:
        self.kept.append(call)
        output = call()
        self.graphs[name] = graph_of(call)
        return output

    def add_peer(self, name: str) -> None:
        shape = self.result.shape
        why = peers.refusal(name, shape)
        if why is None:
            try:
                output = self._add(name, _peer_call(peers.make(name, shape), self.result.which, self.tensors))
                self.expected = output if self.expected is None else self.expected
            except Exception as error:  # any failure of a peer: the others are still measured
                why = (str(error).splitlines() or [type(error).__name__])[0][:100]
                torch.cuda.synchronize()
        if why is not None:
            self.result.missing[name] = why

    def add_own(self, name: str, context: Context) -> None:
        r = self.result
        permitted = (_MOST_RELATIVE_PERMITTED.get(field, 0) for field in context.permitted)
        limit = max([_MOST_RELATIVE[r.shape.dtype], *permitted])
        compare = _output_difference if r.which == "forward" else _gradient_difference
        try:
            output = self._add(name, _own_call(context, r.which, r.shape, self.tensors))
            if self.expected is not None:
                r.differences[name] = compare(output, self.expected, limit)
            if name == "fa2":
                op = FORWARD if r.which == "forward" else BACKWARD
                r.rule, r.variant = context.explain(r.shape, op)
                r.workspace_bytes = context.workspace_bytes(r.shape, op)
        except RuntimeError as error:  # includes Fa2Error and torch.OutOfMemoryError
            r.missing[name] = str(error)

    def add_copy(self) -> None:
        copy = _copy_call(self.result.shape) if self.result.which == "forward" else None
        if copy is not None:
            self._add("copy", copy)


def measure(shape: Shape, which: str, ours: Dict[str, Context], others: List[str], rounds: int,
            order: random.Random) -> Result:
    """Measures one pass. The current stream must not be the default one."""
    run = _Run(shape, which)
    for name in others:
        run.add_peer(name)
    for name, context in ours.items():
        run.add_own(name, context)
    run.add_copy()
    run.result.times = time_all(run.graphs, rounds, order)
    return run.result
