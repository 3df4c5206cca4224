#!/usr/bin/env python3
"""Decoding with K and V in 8 bits (fa2_problem.kv) against 16 bits, on a GPU with PyTorch.

    python3 tests/bench/cache8.py --library build-release/runtime/libfa2.so --db fa2.db [--shape SHAPE]...

For each shape: the time with the cache in fp16 and in int8, in the same rounds, for each order of the scales in memory;
the ratio; the relative L1 distance of O from that of the fp16 cache; and the kernel. Launches are in CUDA graphs, which
go through several caches, so that none is found in L2. Tune the shapes first, with kv=int8 and without.
"""

import ctypes
import sys
from typing import Any, Dict, List, Tuple

import torch

from compare import load
from in_turns import arguments, report

library, shapes = load("library"), load("shapes")
SETS = 3  # caches of each kind
LAUNCHES = 12
KV_AT, SCALES_AT, ARGS_BYTES = 140, 448, 512  # offsets in fa2_problem and fa2_forward_args, and the latter's size


class Scales(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("strides", ctypes.c_int64 * 3)]


class CacheArgs(library.ForwardArgs):  # type: ignore[name-defined,misc]
    _fields_ = [("features", ctypes.c_char * (SCALES_AT - ctypes.sizeof(library.ForwardArgs))), ("k_scale", Scales),
                ("v_scale", Scales)]


assert ctypes.sizeof(CacheArgs) == ARGS_BYTES


class Cached(library.Context):  # type: ignore[name-defined,misc]
    """A context whose problems have K and V in int8."""

    def _problem(self, shape: Any, op: int) -> Any:
        problem = super()._problem(shape, op)
        ctypes.c_int32.from_buffer(problem, KV_AT).value = 1
        return problem

    def cache_call(self, shape: Any, q: Any, k: Any, v: Any, scales: Tuple[Any, Any], out: Any) -> Any:
        """As forward_call. k, v: int8 [B, H, S, D]; scales: float32 [B, H, S], of any strides."""
        problem = self._problem(shape, library.FORWARD)
        workspace, size = self._workspace(problem)
        args = CacheArgs(struct_bytes=ARGS_BYTES, q=library.Tensor.of(q), k=library.Tensor.of(k), v=library.Tensor.of(v),
                         o=library.Tensor.of(out), workspace=workspace.data_ptr() if size else None,
                         workspace_bytes=size)
        for member, scale in zip(("k_scale", "v_scale"), scales):
            batch, head, seq = scale.stride()
            setattr(args, member, Scales(scale.data_ptr(), (ctypes.c_int64 * 3)(batch, seq, head)))

        def call(_keep: Any = (q, k, v, scales, out, workspace)) -> Any:
            self._check(self._lib.fa2_forward(self._context, ctypes.byref(problem), ctypes.byref(args),
                                              torch.cuda.current_stream().cuda_stream))
            return out

        return call


def rounded(tensor: Any) -> Tuple[Any, Any]:
    """Returns a cache in int8 and its scales [B, H, S], which are contiguous along S."""
    scale = tensor.abs().amax(-1).float() / 127
    return torch.round(tensor.float() / scale[..., None]).to(torch.int8), scale


def captured(calls: List[Any]) -> Any:
    graph = torch.cuda.CUDAGraph()
    for call in calls:
        call()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for i in range(LAUNCHES):
            calls[i % len(calls)]()
    graph.replay()
    return graph


def microseconds(graph: Any) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1000 / LAUNCHES


def measure(shape: Any, plain: Any, cached: Any, rounds: int) -> None:
    q = torch.randn(shape.batch, shape.heads_q, shape.seq_q, shape.head_dim, device="cuda", dtype=torch.float16)
    calls: Dict[str, List[Any]] = {"fp16": [], "int8": [], "int8, scales [B, S, H]": []}
    for _ in range(SETS):
        k, v = (torch.randn(shape.batch, shape.seq_k, shape.heads_kv, shape.head_dim, device="cuda",
                            dtype=torch.float16).transpose(1, 2) for _ in range(2))
        (k8, k_scale), (v8, v_scale) = rounded(k), rounded(v)
        by_head = tuple(scale.contiguous() for scale in (k_scale, v_scale))
        by_row = tuple(scale.transpose(1, 2).contiguous().transpose(1, 2) for scale in by_head)
        calls["fp16"].append(plain.forward_call(shape, q, k, v, torch.empty_like(q)))
        calls["int8"].append(cached.cache_call(shape, q, k8, v8, by_head, torch.empty_like(q)))
        calls["int8, scales [B, S, H]"].append(cached.cache_call(shape, q, k8, v8, by_row, torch.empty_like(q)))
    outputs = {name: of_name[0]().float().clone() for name, of_name in calls.items()}
    graphs = {name: captured(of_name) for name, of_name in calls.items()}
    variants = {name: (plain if name == "fp16" else cached).explain(shape, library.FORWARD)[1] for name in calls}
    report(shape, outputs, {name: lambda graph=graph: microseconds(graph) for name, graph in graphs.items()}, variants,
           rounds)


def main() -> int:
    args = arguments(__doc__, "16 x 32/8 heads, D = 128").parse_args()
    plain, cached = (kind(args.library, args.db, args.arch) for kind in (library.Context, Cached))
    with torch.cuda.stream(torch.cuda.Stream()):
        for text in args.shape or [f"B=16,Hq=32,Hkv=8,Sq=1,Sk={keys},D=128" for keys in (4096, 65536)]:
            measure(shapes.of_text(text), plain, cached, args.rounds)
            torch.cuda.empty_cache()
    plain.close()
    cached.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
