#!/usr/bin/env python3
"""Packed sequences: how much memory backward takes, and what rows of no sequence hold.

    tests/bench/packed_memory.py            # with PyTorch, a GPU and fa2 installed; about a minute

Memory: the most that forward and backward hold together, with Q, K, V and dO, in multiples of one tensor: at most 12,
however the rows are divided. Beside it the milliseconds of forward and of backward, to compare two builds by.
Rows: PyTorch fills new tensors with NaN, and rows before the first bound and from the last one on must be 0 in O and in
all gradients, without and with a graph that is launched again with other bounds. Ends with status 1 if not.
"""
import argparse
import statistics
import sys

import torch

from fa2_attn import flash_attn

MOST_TENSORS = 12
HEADS, WIDTH = 2, 64
# Rows of each sequence.
PACKINGS = {
    "32768 sequences of one token and one of 32768": [1] * 16384 + [32768] + [1] * 16384,
    "64 sequences of 1024 tokens": [1024] * 64,
    "1024 sequences of 1 to 111 tokens and one of 8192": [1 + 10 * (i % 12) for i in range(1024)] + [8192],
    "one sequence of 65536 tokens": [65536],
}


def bounds_of(lengths, first=0):
    sums = torch.tensor([first, *lengths]).cumsum(0)
    return sums.to("cuda", torch.int32)


def attend(q, k, v, bounds, longest, d_out, deterministic=False):
    out = flash_attn.flash_attn_varlen_func(q, k, v, bounds, bounds, longest, longest, causal=True,
                                            deterministic=deterministic)
    return out, torch.autograd.grad(out, (q, k, v), d_out)


def milliseconds(run):
    times = []
    for _ in range(12):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[2:])


def measure(name, lengths, deterministic):
    rows, longest = sum(lengths), max(lengths)
    bounds = bounds_of(lengths)
    tensors = [torch.randn(rows, HEADS, WIDTH, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    d_out = torch.randn_like(tensors[0])
    run = lambda: attend(*tensors, bounds, longest, d_out, deterministic)
    run()  # the kernels are there
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() / d_out.nbytes
    forward = lambda: flash_attn.flash_attn_varlen_func(*tensors, bounds, bounds, longest, longest, causal=True)
    print(f"{name}{', deterministic' if deterministic else ''}: {peak:.1f} tensors; forward {milliseconds(forward):.3f} ms, "
          f"forward and backward {milliseconds(run):.3f} ms")
    return peak <= MOST_TENSORS


def rows_are_right(tensors, first, end):
    return all(not tensor.isnan().any() and (tensor[:first] == 0).all() and (tensor[end:] == 0).all()
               and (tensor[first:end] != 0).any() for tensor in tensors)


def check_rows(width, deterministic):
    rows, longest = 1024, 400
    cases = [(0, [400, 300, 246]), (70, [1, 400, 0, 200]), (0, [400, 400, 224]), (300, [5])]
    q, k, v = (torch.randn(rows, HEADS, width, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3))
    d_out = torch.full_like(q, torch.nan)  # of rows of no sequence it counts for nothing
    bounds = torch.zeros(5, dtype=torch.int32, device="cuda")

    def put(case):
        first, lengths = cases[case]
        bounds.copy_(bounds_of([*lengths, *[0] * (4 - len(lengths))], first))
        with torch.no_grad():
            d_out.fill_(torch.nan)
            d_out[first:first + sum(lengths)] = torch.randn(sum(lengths), HEADS, width, device="cuda")
        return first, first + sum(lengths)

    ok = True
    for case in range(len(cases)):
        used = put(case)
        out, gradients = attend(q, k, v, bounds, longest, d_out, deterministic)
        ok &= rows_are_right((out.detach(), *gradients), *used)
    put(0)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # autograd runs backward on the stream on which it met the tensors first
        q, k, v = (tensor.detach().requires_grad_() for tensor in (q, k, v))
        attend(q, k, v, bounds, longest, d_out, deterministic)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        out, gradients = attend(q, k, v, bounds, longest, d_out, deterministic)
    for case in (1, 2, 3, 0):
        used = put(case)
        for tensor in (out, *gradients):
            tensor.detach().fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize()
        ok &= rows_are_right((out.detach(), *gradients), *used)
    print(f"D = {width}{', deterministic' if deterministic else ''}: rows of no sequence are "
          f"{'0, also in a graph' if ok else 'NOT 0'}")
    return ok


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(torch.cuda.get_device_name())
    ok = True
    for deterministic in (False, True):
        for name, lengths in PACKINGS.items():
            ok &= measure(name, lengths, deterministic)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    for width in (64, 36, 128):
        for deterministic in (False, True):
            ok &= check_rows(width, deterministic)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
