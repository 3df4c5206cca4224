"""What a call costs the host: fa2 and PyTorch's flash backend, interleaved, in one process.

    python tests/python/host_cost.py                     B=1 H=8 S=128 D=64 fp16; medians in microseconds
    python tests/python/host_cost.py --quiet LIBFA2SIM   without a GPU: fa2 alone, launches doing nothing; the least of
                                                         many short runs, which a busy machine disturbs little
"""

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F

import fa2_attn as fa2
import fa2_attn.torch

ROUNDS, CALLS = 60, 250


def measure(title, ways, rounds=ROUNDS, calls=CALLS):
    """Each way in turn, many calls at a time, every second round in the other order; the first one is what the others
    are compared with: medians, and between quartiles the ratios of single rounds."""
    times = {name: [] for name in ways}
    for round_number in range(rounds + 4):
        for name, call in list(ways.items())[::1 if round_number % 2 else -1]:
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            spent = (time.perf_counter() - begin) / calls * 1e6
            torch.cuda.synchronize()
            if round_number >= 4:
                times[name].append(spent)
    busy = os.getloadavg()[0]
    print(f"{title} ({rounds} rounds of {calls}; {busy:.1f} of {os.cpu_count()} processors busy)")
    first = next(iter(times.values()))
    for name, spent in times.items():
        low, _, high = statistics.quantiles([a / b for a, b in zip(first, spent)], n=4)
        print(f"  {name:40} {statistics.median(spent):7.2f} us   first / this "
              f"{statistics.median(first) / statistics.median(spent):5.2f}  [{low:.2f} {high:.2f}]")


def forward(q, k, v):
    out = torch.empty_like(q)
    return {
        "scaled_dot_product_attention, flash": lambda: F.scaled_dot_product_attention(q, k, v),
        "aten's flash operation": lambda: torch.ops.aten._scaled_dot_product_flash_attention(q, k, v),
        "fa2_attn.torch.sdpa": lambda: fa2_attn.torch.sdpa(q, k, v),
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
        "fa2_attn.torch.sdpa": both(fa2_attn.torch.sdpa),
        "torch.ops.fa2.attention": both(lambda *tensors: torch.ops.fa2.attention(*tensors)[0]),
        "torch.mul, for comparison": both(lambda q, k, v: q * k * v),
        "fa2_attn.torch.sdpa, forward only": lambda: fa2_attn.torch.sdpa(q, k, v),
        "fa2.attention_backward": lambda: fa2.attention_backward(gradient, *plain, out, lse, layout="bhsd"),
    }


# ---- without a GPU ----


def least(title, ways, rounds=400, calls=60):
    print(title)
    for name, call in ways.items():
        times = []
        for _ in range(rounds):
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            times.append((time.perf_counter() - begin) / calls * 1e6)
        print(f"  {name:40} {min(times):7.2f} us")


def give_out_as_device(folder, simulator):
    """Build quiet.c, and have PyTorch lend its tensors by it. Before fa2 opens a device."""
    here, library = Path(__file__).resolve().parent, Path(folder, "quiet.so")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{here.parents[1]}", here / "quiet.c", "-Wl,--no-as-needed",
                    simulator, f"-Wl,-rpath,{simulator.parent}", "-o", library], check=True)
    os.environ["FA2_CUDA_LIBRARY"] = str(library)
    pointer, name = ctypes.c_void_p, b"dlpack_exchange_api"
    get = ctypes.PYFUNCTYPE(pointer, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    new = ctypes.PYFUNCTYPE(ctypes.py_object, pointer, ctypes.c_char_p, pointer)(("PyCapsule_New", ctypes.pythonapi))
    exchange = ctypes.CDLL(str(library)).quiet_exchange
    exchange.restype, exchange.argtypes = pointer, (pointer,)
    torch.Tensor.__dlpack_c_exchange_api__ = new(exchange(get(torch.Tensor.__dlpack_c_exchange_api__, name)), name, None)


def quiet(simulator):
    torch.set_num_threads(1)
    q, k, v = (torch.randn((1, 8, 128, 64)).half() for _ in range(3))
    rows = [tensor.transpose(1, 2) for tensor in (q, k, v)]
    with tempfile.TemporaryDirectory() as folder:
        give_out_as_device(folder, simulator)
        import fa2_attn.flash_attn
        with torch.no_grad():
            least("forward, without gradients", {
                **{name: call for name, call in forward(q, k, v).items() if "fa2." in name and "ops" not in name},
                "flash_attn_func": lambda: fa2_attn.flash_attn.flash_attn_func(*rows),
                "torch.empty_like": lambda: torch.empty_like(q)})
        gradient = torch.randn_like(q)
        plain, leaves = (q, k, v), [tensor.clone().requires_grad_() for tensor in (q, k, v)]
        done = fa2_attn.torch.sdpa(*leaves)
        out, lse = fa2.attention(*plain, layout="bhsd", return_lse=True)
        least("with gradients", {
            "fa2_attn.torch.sdpa, forward": lambda: fa2_attn.torch.sdpa(*leaves),
            "its backward": lambda: torch.autograd.grad(done, leaves, gradient, retain_graph=True),
            "fa2.attention_backward": lambda: fa2.attention_backward(gradient, *plain, out, lse, layout="bhsd")})


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quiet", type=Path, metavar="LIBFA2SIM")
    arguments = parser.parse_args()
    if arguments.quiet:
        quiet(arguments.quiet.resolve())
        return
    if not torch.cuda.is_available():
        print("skipped: PyTorch has no GPU here; --quiet wants none")
        sys.exit(77)
    q, k, v = (torch.randn((1, 8, 128, 64), device="cuda", dtype=torch.float16) for _ in range(3))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        with torch.no_grad():
            measure("forward, without gradients", forward(q, k, v))
        leaves = [tensor.requires_grad_() for tensor in (q, k, v)]
        measure("forward and backward", forward_and_backward(*leaves), calls=CALLS // 4)


if __name__ == "__main__":
    main()
