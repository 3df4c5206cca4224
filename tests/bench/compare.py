"""fa2 against PyTorch's attention backends: same process, same tensors, same run.

    python3 tests/bench/compare.py --library build-release/runtime/libfa2.so --db tuned.db --out bench

writes bench.csv and bench.md. For every shape, each implementation is captured into a CUDA graph of many
forward calls; the graphs are then replayed in rounds, in a new random order each round, so that clock and
temperature drifts hit all of them alike. A time is the GPU time of one call: median and quartiles over the
rounds, no host launch cost, L2 as warm as consecutive calls leave it. A backend that does not take a shape is
noted and left out. The exit status is 1 when fa2 fails on a shape or its output differs from PyTorch's.
"""
import argparse
import csv
import datetime
import math
import random
import shlex
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from fa2_ctypes import DTYPES, FEATURES, SIZES, SOFTCAP, Context

# The order is also the order of preference for whom fa2's output is compared with.
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
KEYS = (*SIZES, "dtype", *FEATURES)
GRAPH_MS = 2.0  # a graph holds calls for about this long
MAX_CALLS = 64
OTHERS = (*BACKENDS, "flex", "other")  # columns: PyTorch's backends, FlexAttention, another build of fa2
# Right results differ by the rounding of P and O. Allowed: eight roundings (2^-11, 2^-8) of the largest value in
# the row, since rows differ in size by a factor of sqrt(S) under a causal mask.
MAX_RELATIVE = {"fp16": 8 * 2**-11, "bf16": 8 * 2**-8}
SEED = 20


@dataclass
class Result:
    """What one shape gave. times: {name: (median, q1, q3) in microseconds per call}; missing: {name: why}."""

    shape: dict
    times: dict = field(default_factory=dict)
    missing: dict = field(default_factory=dict)
    diff: float | None = None  # largest absolute difference of fa2's output from PyTorch's
    relative: float = 0.0  # largest difference over its row's largest value
    rule: str = ""
    variant: str = ""

    def ratio(self, name):
        """Time of name over time of fa2; None unless both ran."""
        both = name in self.times and "fa2" in self.times
        return self.times[name][0] / self.times["fa2"][0] if both else None

    def failure(self):
        """Why fa2 failed; empty if it did not."""
        if "fa2" in self.missing:
            return self.missing["fa2"]
        return "" if self.relative <= MAX_RELATIVE[self.shape["dtype"]] else f"wrong output ({self.relative:.3g})"


def has(shape, feature):
    return shape.get(feature) == "1"


def window_of(shape):
    """(keys before, keys behind) that a query sees; None: all of them."""
    if not has(shape, "window"):
        return None, 0 if has(shape, "causal") else None
    left, right = (int(shape[name]) for name in ("window_left", "window_right"))
    return left if left >= 0 else None, 0 if has(shape, "causal") else right if right >= 0 else None


def torch_call(backend, shape, q, k, v):
    """scaled_dot_product_attention, which knows no feature but causal."""
    def call():
        with sdpa_kernel(BACKENDS[backend]):
            return F.scaled_dot_product_attention(
                q, k, v, is_causal=has(shape, "causal"), enable_gqa=shape["heads_q"] != shape["heads_kv"])

    return call


def flash_window_call(shape, q, k, v):
    """The FlashAttention-2 that PyTorch bundles, by the operation below scaled_dot_product_attention."""
    left, right = window_of(shape)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))

    def call():
        return torch.ops.aten._flash_attention_forward(
            q, k, v, None, None, q.shape[1], k.shape[1], 0.0, has(shape, "causal"), False,
            window_size_left=left, window_size_right=right)[0].transpose(1, 2)

    return call


def flex_call(shape, q, k, v):
    """FlexAttention, compiled for this shape."""
    left, right = window_of(shape)
    offset = k.shape[2] - q.shape[2]

    def visible(_b, _h, i, j):
        seen = j >= 0
        if right is not None:
            seen = seen & (j <= i + offset + right)
        if left is not None:
            seen = seen & (j >= i + offset - left)
        return seen

    def capped(score, _b, _h, _i, _j):
        return SOFTCAP * torch.tanh(score / SOFTCAP)

    masked = left is not None or right is not None
    mask = create_block_mask(visible, None, None, q.shape[2], k.shape[2]) if masked else None
    torch._dynamo.reset()  # it gives up on a function that it has compiled for eight shapes
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda: compiled(q, k, v, score_mod=capped if has(shape, "softcap") else None, block_mask=mask,
                            enable_gqa=q.shape[1] != k.shape[1])


def torch_calls(shape, q, k, v):
    """{name: how to make its call} for the implementations that know what the shape asks for."""
    if has(shape, "softcap"):
        return {"flex": lambda: flex_call(shape, q, k, v)}
    if has(shape, "window"):
        return {"flash": lambda: flash_window_call(shape, q, k, v), "flex": lambda: flex_call(shape, q, k, v)}
    return {name: lambda name=name: torch_call(name, shape, q, k, v) for name in BACKENDS}


def replay_ms(graph):
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    graph.replay()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop)


def capture(call, calls):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    return graph


def graph_of(call):
    """(graph, calls in it), after warming up; one short graph first tells how many calls fill GRAPH_MS."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    probe = capture(call, 4)
    replay_ms(probe)
    one_ms = replay_ms(probe) / 4
    calls = max(1, min(MAX_CALLS, round(GRAPH_MS / one_ms)))
    graph = capture(call, calls)
    replay_ms(graph)
    return graph, calls


def time_all(graphs, rounds, order):
    """{name: (median, q1, q3) in microseconds per call}."""
    samples = {name: [] for name in graphs}
    for _ in range(rounds):
        names = list(graphs)
        order.shuffle(names)
        for name in names:
            graph, calls = graphs[name]
            replay_ms(graph)  # warms L2 and clocks: the one before was another implementation
            samples[name].append(replay_ms(graph) / calls * 1e3)
    times = {}
    for name, values in samples.items():
        q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive")
        times[name] = (median, q1, q3)
    return times


def make_tensors(shape):
    b, hq, hkv, sq, sk, d = (int(shape[name]) for name in SIZES)
    new = lambda heads, seq: torch.randn(b, heads, seq, d, device="cuda", dtype=DTYPES[shape["dtype"]][1])
    return new(hq, sq), new(hkv, sk), new(hkv, sk)


def kv_bytes(shape):
    """Of K and V: what decoding has to read."""
    b, _, hkv, _, sk, d = (int(shape[name]) for name in SIZES)
    return 4 * b * hkv * sk * d


def copy_call(shape):
    """A copy that moves as many bytes, read and written together, as K and V hold; None unless the shape is a
    decoding step whose keys do not fit L2."""
    if shape["seq_q"] != "1" or kv_bytes(shape) < 2 * torch.cuda.get_device_properties(0).L2_cache_size:
        return None
    source = torch.randint(256, (kv_bytes(shape) // 2,), device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def differences(result, expected):
    """Largest absolute difference, and largest difference relative to its row's largest value; NaN if one is NaN."""
    absolute, relative = [], []
    for mine, theirs in zip(result, expected):  # batch by batch, to keep the float copies small
        diff = (mine.float() - theirs.float()).abs().amax(dim=-1)
        absolute.append(diff.amax())
        relative.append((diff / theirs.float().abs().amax(dim=-1)).amax())
    return torch.stack(absolute).amax().item(), torch.stack(relative).amax().item()


def compare_shape(fa2, other, shape, rounds, order):
    result, graphs, expected = Result(shape), {}, None
    kept = []  # calls: they hold the tensors that the graphs read
    q, k, v = make_tensors(shape)
    for name, make in torch_calls(shape, q, k, v).items():
        if has(shape, "causal") and shape["seq_q"] != shape["seq_k"]:
            result.missing[name] = "PyTorch aligns the causal mask top-left"
            continue
        try:
            call = make()
            kept.append(call)
            output = call()
            graphs[name] = graph_of(call)
            expected = output if expected is None else expected
        except RuntimeError as error:  # torch.OutOfMemoryError is one, too
            result.missing[name] = str(error).splitlines()[0][:100]
    try:
        call = fa2.forward_call(shape, q, k, v, torch.full_like(q, math.nan))
        kept.append(call)
        output = call()
        result.rule, result.variant = fa2.explain(shape)
        if expected is not None:
            result.diff, result.relative = differences(output, expected)
        graphs["fa2"] = graph_of(call)
    except RuntimeError as error:  # Fa2Error is one, too
        result.missing["fa2"] = str(error)
    if other:
        kept.append(other.forward_call(shape, q, k, v, torch.empty_like(q)))
        graphs["other"] = graph_of(kept[-1])
    copy = copy_call(shape)
    if copy:
        kept.append(copy)
        graphs["copy"] = graph_of(copy)
    result.times = time_all(graphs, rounds, order)
    return result


def visible_pairs(shape, sq, sk):
    """Pairs of query and key that count as work: half of all when causal, as in the papers; what a window shows."""
    if not has(shape, "window"):
        return sq * sk * (0.5 if has(shape, "causal") else 1.0)
    left, right = window_of(shape)
    rows = (i + sk - sq for i in range(sq))
    spans = ((max(0, p - left) if left is not None else 0, min(sk, p + right + 1) if right is not None else sk)
             for p in rows)
    return sum(max(0, end - begin) for begin, end in spans)


def tflops(shape, us):
    b, hq, _, sq, sk, d = (int(shape[name]) for name in SIZES)
    return 4.0 * b * hq * visible_pairs(shape, sq, sk) * d / us / 1e6


def geomean(values):
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def command_output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def facts(args):
    properties = torch.cuda.get_device_properties(0)
    driver = command_output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0")
    commit = command_output("git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD")
    return [
        f"GPU: {properties.name}, sm_{properties.major}{properties.minor}, {properties.multi_processor_count} SMs;"
        f" driver {driver}",
        f"fa2: {args.library.resolve().name}, commit {commit}; PyTorch {torch.__version__}, CUDA"
        f" {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}",
        f"Date: {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC; seed {SEED}; {args.rounds} rounds",
        f"Command: `{shlex.join(['python3', *sys.argv])}`",
    ]


CSV_HEADER = (*KEYS, "implementation", "median_us", "q1_us", "q3_us", "tflops", "max_abs_diff", "rule", "variant")


def csv_rows(result):
    for name, (median, q1, q3) in result.times.items():
        own = ["", "", ""]
        if name == "fa2":
            own = ["" if result.diff is None else f"{result.diff:.3g}", result.rule, result.variant]
        yield [*(result.shape.get(key) or 0 for key in KEYS), name, f"{median:.2f}", f"{q1:.2f}", f"{q3:.2f}",
               f"{tflops(result.shape, median):.1f}", *own]


def shape_cells(shape):
    heads = shape["heads_q"] if shape["heads_q"] == shape["heads_kv"] else f'{shape["heads_q"]}/{shape["heads_kv"]}'
    length = shape["seq_q"] if shape["seq_q"] == shape["seq_k"] else f'{shape["seq_q"]}×{shape["seq_k"]}'
    masks = [name for name in ("causal", "softcap") if has(shape, name)]
    if has(shape, "window"):
        masks.append(f'window {shape["window_left"]}, {shape["window_right"]}')
    return [shape["batch"], heads, length, shape["head_dim"], shape["dtype"], ", ".join(masks)]


def markdown_row(result):
    cells, times = shape_cells(result.shape), result.times
    if "fa2" in times:
        median, q1, q3 = times["fa2"]
        cells += [f"{median:.1f}", f"{100 * (q3 - q1) / median:.1f} %", f"{tflops(result.shape, median):.0f}"]
    else:
        cells += ["–"] * 3
    cells += [f"{times[name][0]:.1f}" if name in times else "–" for name in OTHERS]
    cells += [f"**{result.ratio(name):.2f}**" if result.ratio(name) else "–" for name in OTHERS]
    cells += ["–" if result.diff is None else f"{result.diff:.1e}", result.rule or "–"]
    return "| " + " | ".join(cells) + " |"


def summary_lines(results):
    """Geometric means over the shapes that both ran."""
    yield "| time of … / time of fa2, geometric mean | all shapes | without decode (Sq = 1) |"
    yield "|---|---|---|"
    for name in OTHERS:
        pairs = [(r.shape["seq_q"], r.ratio(name)) for r in results if r.ratio(name)]
        everything = [ratio for _, ratio in pairs]
        prefill = [ratio for seq_q, ratio in pairs if seq_q != "1"]
        yield (f"| {name} | {geomean(everything):.3f} ({len(everything)} shapes) |"
               f" {geomean(prefill):.3f} ({len(prefill)} shapes) |")


def decode_lines(results):
    """Bandwidth of decoding steps, beside a copy that moves as many bytes."""
    rows = [r for r in results if r.ratio("copy")]
    if not rows:
        return
    yield "| decoding | K and V, MB | fa2 GB/s | copy GB/s | share |"
    yield "|---|---|---|---|---|"
    for r in rows:
        size = kv_bytes(r.shape)
        fa2, copy = size / r.times["fa2"][0] / 1e3, size / r.times["copy"][0] / 1e3
        yield (f"| B={r.shape['batch']} H={r.shape['heads_q']}/{r.shape['heads_kv']} Sk={r.shape['seq_k']}"
               f" D={r.shape['head_dim']} | {size / 1e6:.0f} | {fa2:.0f} | {copy:.0f} | {100 * fa2 / copy:.0f} % |")


def write_markdown(path, results, lines):
    columns = ["B", "H (q/kv)", "S", "D", "dtype", "mask", "fa2 µs", "spread", "fa2 TFLOPS",
               *(f"{name} µs" for name in OTHERS), *(f"{name}/fa2" for name in OTHERS), "max diff", "rule"]
    with open(path, "w", encoding="utf-8") as out:
        print("# fa2 and PyTorch's attention: forward, GPU time of one call\n", file=out)
        print("\n".join(f"- {line}" for line in lines) + "\n", file=out)
        print("\n".join(summary_lines(results)) + "\n", file=out)
        print("\n".join(decode_lines(results)) + "\n", file=out)
        print("Above 1: fa2 is faster. Spread: interquartile range over the median. Max diff: largest absolute"
              " difference of fa2's output from PyTorch's.\n", file=out)
        print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|", file=out)
        for result in results:
            print(markdown_row(result), file=out)
        notes = [f"- {', '.join(f'{key}={r.shape.get(key) or 0}' for key in KEYS)}: {name}: {why}"
                 for r in results for name, why in r.missing.items()]
        if notes:
            print("\nLeft out:\n\n" + "\n".join(notes), file=out)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, required=True, help="libfa2.so")
    parser.add_argument("--db", type=Path, required=True, help="database that fa2-tune filled on this GPU")
    parser.add_argument("--against", nargs=2, type=Path, metavar=("LIBRARY", "DB"),
                        help="another build of fa2, with a database of its own, in the same rounds")
    parser.add_argument("--arch", type=int, default=0,
                        help="run the kernels of this older SM (75, 80, 86 ...) as PTX, untuned")
    parser.add_argument("--shapes", type=Path, default=Path(__file__).with_name("shapes.csv"), help="shape file")
    parser.add_argument("--out", type=Path, required=True, help="writes OUT.csv and OUT.md")
    parser.add_argument("--rounds", type=int, default=15, help="samples per implementation and shape (15)")
    args = parser.parse_args()
    if not args.db.is_file():
        parser.error(f"there is no {args.db}; make it with: fa2-tune --device 0 --shapes {args.shapes} --db {args.db}")
    if args.rounds < 3:
        parser.error("--rounds: at least 3, for quartiles")
    return args


def main():
    args = parse_args()
    torch.manual_seed(SEED)
    order = random.Random(SEED)
    fa2 = Context(args.library, args.db, args.arch)
    other = Context(*args.against) if args.against else None
    results = []
    with open(args.shapes, newline="") as source, open(f"{args.out}.csv", "w", newline="") as target:
        table = csv.writer(target)
        table.writerow(CSV_HEADER)
        for shape in csv.DictReader(source):
            result = compare_shape(fa2, other, shape, args.rounds, order)
            results.append(result)
            table.writerows(csv_rows(result))
            target.flush()
            torch.cuda.empty_cache()  # the graphs' pools of this shape
            print(markdown_row(result), result.failure() and "FAILED: " + result.failure(), flush=True)
    for context in filter(None, (fa2, other)):
        context.close()
    write_markdown(f"{args.out}.md", results, facts(args))
    failed = sum(1 for result in results if result.failure())
    print("\n".join([*summary_lines(results), *decode_lines(results)]))
    print(f"{args.out}.csv and {args.out}.md are written; {failed} of {len(results)} shapes failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
