"""What a call costs the host: fa2 and PyTorch's flash backend, interleaved, in one process.

    python tests/python/host_cost.py         B=1 H=8 S=128 D=64 fp16, no gradients; medians in microseconds
"""

import statistics
import time

import torch
import torch.nn.functional as F

import fa2
import fa2.torch

ROUNDS, CALLS = 30, 500


def main():
    q, k, v = (torch.randn((1, 8, 128, 64), device="cuda", dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)
    flash = torch.nn.attention.SDPBackend.FLASH_ATTENTION
    ways = {
        "scaled_dot_product_attention, flash": lambda: F.scaled_dot_product_attention(q, k, v),
        "aten's flash operation": lambda: torch.ops.aten._scaled_dot_product_flash_attention(q, k, v),
        "fa2.torch.sdpa": lambda: fa2.torch.sdpa(q, k, v),
        "fa2.attention": lambda: fa2.attention(q, k, v, layout="bhsd"),
        "fa2.attention, out=": lambda: fa2.attention(q, k, v, layout="bhsd", out=out),
        "torch.ops.fa2.attention": lambda: torch.ops.fa2.attention(q, k, v),
        "torch.empty_like": lambda: torch.empty_like(q),
    }
    times = {name: [] for name in ways}
    with torch.no_grad(), torch.nn.attention.sdpa_kernel(flash):
        for round_number in range(ROUNDS + 3):
            for name, call in ways.items():
                torch.cuda.synchronize()
                begin = time.perf_counter()
                for _ in range(CALLS):
                    call()
                spent = (time.perf_counter() - begin) / CALLS * 1e6
                torch.cuda.synchronize()
                if round_number >= 3:
                    times[name].append(spent)
    sdpa = statistics.median(times["scaled_dot_product_attention, flash"])
    for name, spent in times.items():
        print(f"{name:38} {statistics.median(spent):6.2f} us   sdpa / this {sdpa / statistics.median(spent):5.2f}")


if __name__ == "__main__":
    main()
