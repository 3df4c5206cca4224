"""What a call costs the host: fa2 and PyTorch's flash backend, interleaved, in one process.

    python tests/python/host_cost.py         B=1 H=8 S=128 D=64 fp16; medians in microseconds
"""

import statistics
import time

import torch
import torch.nn.functional as F

import fa2
import fa2.torch

ROUNDS, CALLS = 30, 500


def measure(title, ways, rounds=ROUNDS, calls=CALLS):
    """Each way in turn, many calls at a time; the first one is what the others are compared with."""
    times = {name: [] for name in ways}
    for round_number in range(rounds + 3):
        for name, call in ways.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            spent = (time.perf_counter() - begin) / calls * 1e6
            torch.cuda.synchronize()
            if round_number >= 3:
                times[name].append(spent)
    print(title)
    first = statistics.median(next(iter(times.values())))
    for name, spent in times.items():
        print(f"  {name:40} {statistics.median(spent):7.2f} us   first / this {first / statistics.median(spent):5.2f}")


def forward(q, k, v):
    out = torch.empty_like(q)
    return {
        "scaled_dot_product_attention, flash": lambda: F.scaled_dot_product_attention(q, k, v),
        "aten's flash operation": lambda: torch.ops.aten._scaled_dot_product_flash_attention(q, k, v),
        "fa2.torch.sdpa": lambda: fa2.torch.sdpa(q, k, v),
        "fa2.attention": lambda: fa2.attention(q, k, v, layout="bhsd"),
        "fa2.attention, out=": lambda: fa2.attention(q, k, v, layout="bhsd", out=out),
        "torch.ops.fa2.attention": lambda: torch.ops.fa2.attention(q, k, v),
        "torch.empty_like": lambda: torch.empty_like(q),
    }


def forward_and_backward(q, k, v):
    """q, k and v require gradients; each call makes new ones."""
    gradient = torch.randn_like(q)

    def both(function):
        return lambda: torch.autograd.grad(function(q, k, v), (q, k, v), gradient)

    out, lse = fa2.attention(*(t.detach() for t in (q, k, v)), layout="bhsd", return_lse=True)
    plain = [t.detach() for t in (q, k, v)]
    return {
        "scaled_dot_product_attention, flash": both(F.scaled_dot_product_attention),
        "fa2.torch.sdpa": both(fa2.torch.sdpa),
        "torch.ops.fa2.attention": both(lambda *tensors: torch.ops.fa2.attention(*tensors)[0]),
        "torch.mul, for comparison": both(lambda q, k, v: q * k * v),
        "fa2.torch.sdpa, forward only": lambda: fa2.torch.sdpa(q, k, v),
        "fa2.attention_backward": lambda: fa2.attention_backward(gradient, *plain, out, lse, layout="bhsd"),
    }


def main():
    q, k, v = (torch.randn((1, 8, 128, 64), device="cuda", dtype=torch.float16) for _ in range(3))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        with torch.no_grad():
            measure("forward, without gradients", forward(q, k, v))
        leaves = [tensor.requires_grad_() for tensor in (q, k, v)]
        measure("forward and backward", forward_and_backward(*leaves), calls=CALLS // 2)


if __name__ == "__main__":
    main()
