#!/usr/bin/env python3
"""Attention over several GPUs (fa2_attn.distributed): its share of one GPU's rate, and ring-flash-attn on the same kernels.

    python tests/bench/distributed.py [--ranks 2] [--rows 8192,32768] [--schedules ring,gather] [--rounds 7]

One line for each number of rows per GPU and each way: microseconds of forward, and of forward and backward, of the
slowest rank (CUDA events, median); and the share of the rate that one GPU has alone. One GPU alone computes causal
attention of as many rows as each rank has; P ranks together compute P^2 times as much, each P times. Causal, zigzag,
32 heads of q and 8 of k and v, D = 128, bf16. ring-flash-attn is timed if it is installed, on fa2's kernels.
Needs PyTorch with NCCL and a GPU for each rank; exits with 77 without.
"""

import argparse
import logging
import os
import socket
import statistics
import sys
import types
from typing import Any, Callable, Dict, List

import torch
import torch.distributed as dist
import torch.multiprocessing

HEADS, KV_HEADS, WIDTH = 32, 8, 128


def ring_flash_attn() -> Any:
    """Imports ring-flash-attn on fa2's kernels, without its adapter for transformers; None: not installed."""
    from fa2_attn import flash_attn
    flash_attn.install(replace=True)
    adapter: Any = types.ModuleType("ring_flash_attn.adapters")
    adapter.substitute_hf_flash_attn = adapter.update_ring_flash_attn_params = None
    sys.modules[adapter.__name__] = adapter
    try:
        import ring_flash_attn as found
    except ImportError:
        return None
    return found


def microseconds(call: Callable[[], Any], rounds: int) -> float:
    """Median over rounds of the slowest rank's time."""
    for _ in range(3):
        call()
    times = torch.empty(rounds, device="cuda")
    for i in range(rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        dist.barrier()
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times[i] = begin.elapsed_time(end) * 1000
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return statistics.median(times.tolist())


def measure(rows: int, schedules: List[str], rounds: int) -> None:
    import fa2_attn.torch
    from fa2_attn import distributed
    ranks, peer = dist.get_world_size(), ring_flash_attn()
    q, k, v, d_out = (torch.randn(1, rows, heads, WIDTH, device="cuda", dtype=torch.bfloat16)
                      for heads in (HEADS, KV_HEADS, KV_HEADS, HEADS))
    leaves = [tensor.requires_grad_() for tensor in (q, k, v)]
    ways: Dict[str, Callable[..., Any]] = {"one GPU": lambda *t: fa2_attn.torch.attention(*t, causal=True)}
    for schedule in schedules:
        ways[schedule] = lambda *t, how=schedule: distributed.attention(*t, causal=True, schedule=how)
    if peer is not None:
        ways["ring-flash-attn"] = lambda *t: peer.zigzag_ring_flash_attn_func(*t, causal=True)
    alone: List[float] = []
    for name, function in ways.items():
        def both(run: Callable[..., Any] = function) -> None:
            torch.autograd.grad(run(*leaves), leaves, d_out)

        with torch.no_grad():
            forward = microseconds(lambda: function(q, k, v), rounds)
        times = [forward, microseconds(both, rounds)]
        alone = alone or times
        work = 1 if name == "one GPU" else ranks
        if dist.get_rank() == 0:
            print(f"{rows:6} rows  {name:16}", *(f"{title} {time:9.1f} us {work * one / time:6.1%}" for title, time, one
                                                 in zip(("forward", "both"), times, alone)), flush=True)


def work(rank: int, given: argparse.Namespace, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    logging.getLogger("fa2").setLevel(logging.ERROR)
    dist.init_process_group("nccl", rank=rank, world_size=given.ranks)
    for rows in given.rows.split(","):
        measure(int(rows), given.schedules.split(","), given.rounds)
    dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rows", default="8192,32768")
    parser.add_argument("--schedules", default="ring,gather")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    if torch.cuda.device_count() < given.ranks:
        print(f"skipped: {given.ranks} ranks need as many GPUs; there are {torch.cuda.device_count()}")
        return 77
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(work, (given, port), given.ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
