#!/usr/bin/env python3
"""The gain of permissions to be less exact (fa2_problem.scores, .sums, .pv), and their error, on a GPU with PyTorch.

    python3 tests/bench/permitted.py --library build-release/runtime/libfa2.so --arch 80

For each shape: the time without a permission, and with each one in the same rounds, including the step that rounds K
and V; the ratio; the relative L1 distance of O between both; and the kernel. --arch runs the kernels of an older SM as
PTX, untuned. Without it and with --db, tuned kernels. --fa3: FlashAttention-3 with e4m3 tensors, too, whose scales are 1,
with and without the conversion of Q, K and V (the wheel fa3-fwd). --numbers: normal ones; with K's columns having means;
or with ten times a normal number added to one in 1000. Takes about a minute.
"""

import sys
from typing import Any, Callable, Dict

import torch

from compare import load
from in_turns import arguments, report

library, shapes = load("library"), load("shapes")
PERMISSIONS = {"exact": {}, "scores=int8": {"scores": 1}, "sums=fast": {"sums": 1},
               "both": {"scores": 1, "sums": 1}, "pv=fp8": {"scores": 1, "pv": 1}}


class Permitted(library.Context):  # type: ignore[name-defined,misc]
    """A context whose problems have permissions."""

    def __init__(self, permissions: Dict[str, int], *arguments: Any):
        self._permissions = permissions
        super().__init__(*arguments)

    def _problem(self, shape: Any, op: int) -> Any:
        problem = super()._problem(shape, op)
        for name, value in self._permissions.items():
            setattr(problem, name, value)
        return problem


def microseconds(call: Callable[[], Any], launches: int) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(launches):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1000 / launches


def fa3_calls(shape: Any, *tensors: Any) -> Dict[str, Callable[[], Any]]:
    """Calls of FlashAttention-3. tensors: [batch, heads, seq, head_dim]."""
    import fa3_fwd_interface  # type: ignore[import-not-found]

    given = [x.transpose(1, 2).contiguous() for x in tensors]

    def converted() -> Any:
        return [x.to(torch.float8_e4m3fn) for x in given]

    def call(values: Any) -> Any:
        out = fa3_fwd_interface.flash_attn_func(*values, causal=bool(shape.causal))
        return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

    ready = converted()
    return {"FA3 fp8": lambda: call(ready), "FA3 fp8, converting": lambda: call(converted())}


def draw(numbers: str, is_key: bool, *sizes: int, device: str = "cuda") -> Any:
    """Returns a tensor [batch, heads, seq, head_dim]. numbers: see the options."""
    x = torch.randn(*sizes, device=device)
    if numbers == "means" and is_key:
        x += 2 * torch.randn(1, sizes[1], 1, sizes[3], device=device)
    elif numbers == "outliers":
        x += (torch.rand_like(x) < 1e-3) * 10 * torch.randn_like(x)
    return x.half()


def measure(shape: Any, contexts: Dict[str, Any], rounds: int, fa3: bool, numbers: str) -> None:
    def tensor(heads: int, seq: int, is_key: bool = False) -> Any:
        return draw(numbers, is_key, shape.batch, heads, seq, shape.head_dim)

    q, v = tensor(shape.heads_q, shape.seq_q), tensor(shape.heads_kv, shape.seq_k)
    k = tensor(shape.heads_kv, shape.seq_k, True)
    calls = {name: context.forward_call(shape, q, k, v, torch.empty_like(q)) for name, context in contexts.items()}
    if fa3:
        calls.update(fa3_calls(shape, q, k, v))
    outputs = {name: call().float().clone() for name, call in calls.items()}
    variants = {name: context.explain(shape, library.FORWARD)[1] for name, context in contexts.items()}
    variants.update((name, "") for name in calls if name not in variants)
    report(shape, outputs, {name: lambda call=call: microseconds(call, 5) for name, call in calls.items()}, variants,
           rounds)


def main() -> int:
    parser = arguments(__doc__, "D = 64 and 128, S = 4096 to 16384")
    parser.add_argument("--fa3", action="store_true", help="FlashAttention-3 with e4m3 tensors, too")
    parser.add_argument("--numbers", choices=("normal", "means", "outliers"), default="normal")
    args = parser.parse_args()
    texts = args.shape or [f"B={16384 // seq},Hq={2048 // dim},Sq={seq},D={dim},causal={causal}"
                           for dim in (64, 128) for seq in (4096, 8192, 16384) for causal in (0, 1)]
    contexts = {name: Permitted(which, args.library, args.db, args.arch) for name, which in PERMISSIONS.items()}
    with torch.cuda.stream(torch.cuda.Stream()):
        for text in texts:
            measure(shapes.of_text(text), contexts, args.rounds, args.fa3, args.numbers)
    for context in contexts.values():
        context.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
