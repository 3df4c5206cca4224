"""A server with many shapes and one context: what a call costs then and with a new context, and what memory it takes.

    python tests/python/server.py WAY COUNT      on the software device, $FA2_CUDA_LIBRARY; launches do nothing

Ways: attention, packed (another total at each call), prepare, workspace_size, explain. Figures are medians of a block
of calls, each with a new shape. Status 1 where they are out of bounds, which hold on any machine.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BLOCK, LENGTHS = 1000, 25000  # calls; lengths of keys, then the heads change
SAMPLES = 1000  # shapes that are called before memory is measured
MEMORY_MB, SLOWER_MOST = 64, 2  # as fa2.h says; times
HERE = Path(__file__).resolve().parent


def build_quiet(folder):
    """A driver whose launches do nothing, the rest of it the software device's."""
    simulator, library = Path(os.environ["FA2_CUDA_LIBRARY"]).resolve(), Path(folder, "quiet.so")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{HERE.parents[1]}", HERE / "quiet.c", "-Wl,--no-as-needed",
                    simulator, f"-Wl,-rpath,{simulator.parent}", "-o", library], check=True)
    os.environ["FA2_CUDA_LIBRARY"] = str(library)


def memory_mb():
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def sizes(n):
    return 8 * (1 + n // LENGTHS), 1 + n % LENGTHS


def problem(n):
    heads, keys = sizes(n)
    return {"heads_q": heads, "heads_kv": 8, "seq_q": 1, "seq_k": keys, "head_dim": 64, "causal": 1}


def make_attention(fa2, device, context):
    memories = [device.Memory(0, 1 << 26) for _ in range(2)]

    def call(n):
        heads, keys = sizes(n)
        q, out = (device.ExchangeTensor((1, 1, heads, 64), memory=memory) for memory in memories)
        k = device.ExchangeTensor((1, keys, 8, 64), memory=memories[0])
        return lambda: fa2.attention(q, k, k, causal=True, out=out, context=context)
    return call


def make_packed(fa2, device, context):
    memories = [device.Memory(0, 1 << 26) for _ in range(2)]
    bounds = device.ExchangeTensor((5,), "int32").set([0, 1, 2, 3, 4])

    def call(n):
        heads, total = 8, 4 + n % LENGTHS
        q, out = (device.ExchangeTensor((total, heads, 64), memory=memory) for memory in memories)
        return lambda: fa2.attention(q, q, q, causal=True, out=out, context=context, cu_seqlens_q=bounds,
                                     cu_seqlens_k=bounds, max_seqlen_q=4 + n // LENGTHS, max_seqlen_k=4 + n // LENGTHS)
    return call


def make(way, fa2, device, context):
    if way == "attention":
        return make_attention(fa2, device, context)
    if way == "packed":
        return make_packed(fa2, device, context)
    method = getattr(context, way)
    return lambda n: lambda: method(problem(n))


def run_us(call, n):
    run = call(n)
    begin = time.perf_counter()
    run()
    return (time.perf_counter() - begin) * 1e6


def blocks_us(calls, first):
    """Medians of a block of new shapes for each of several contexts, which take turns: the machine is the same."""
    times = [[run_us(call, n) for call in calls] for n in range(first, first + BLOCK)]
    return [statistics.median(column) for column in zip(*times)]


def measure(way, count):
    import device
    import fa2_attn as fa2

    used, fresh = (make(way, fa2, device, fa2.Context("", log=lambda line: None)) for _ in range(2))
    for n in range(0, count, max(1, count // SAMPLES)):  # loads the kernels: megabytes on the software device
        used(n)()
    before = memory_mb()
    for first in range(0, count, BLOCK):
        blocks_us([used], first)
    grown = memory_mb() - before
    blocks_us([fresh], count)  # loads its kernels
    last, first = blocks_us([used, fresh], count + BLOCK)
    print(f"{way:14} {count:8} shapes: a call {last:6.2f} us, {first:6.2f} us with a new context (medians of {BLOCK}), "
          f"{grown:5.1f} MB more")
    return last <= SLOWER_MOST * first and grown <= MEMORY_MB


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: server.py attention|packed|prepare|workspace_size|explain COUNT")
    with tempfile.TemporaryDirectory() as folder:
        build_quiet(folder)
        sys.exit(0 if measure(sys.argv[1], int(sys.argv[2])) else 1)


if __name__ == "__main__":
    main()
