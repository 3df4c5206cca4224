#!/usr/bin/env python3
"""The cost of features: fa2 with them, without them, and PyTorch's FlashAttention-2 and FlexAttention with the same.

The problems of this script's calls are tuned first: it runs itself under `fa2-tune tune`, which notes what it asks
for. Then all implementations of a case are timed as CUDA graphs in the same rounds, in random order. Prints and
writes OUT.md: for each case a quotient of two times, or the share of the tensor rate, beside what it is to be at
least or at most.

    python3 tests/bench/features.py --tool build-release/tuner/fa2-tune --db features.db --out features [--only alibi,mla]
    python3 tests/bench/features.py ... --fewer 3 --gpus 0,1    some three minutes

Needs the Python package, PyTorch and a GPU; most of the time is for tuning; with the database of a former run it
tunes nothing. --fewer N: from the top of the source tree; of each family an N-th of its candidates, of Hopper's all.
--gpus: the cases divided among GPUs of a kind, side by side, each with a database of its own (DB.0, DB.1). --rest 10:
the card idles so many ms before each sample, so that it is not at its power limit, at which what needs more power
runs at lower clocks. --tensor-rate: TFLOPS of mma.sync on this card, as `fa2-tune bench` measures it.
"""
import argparse
import datetime
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import fa2_attn as fa2
from fa2_attn.bench.timing import graph_of, time_all

ATEN = torch.ops.aten
DROPPED = 0.17
SHAPES = ((4, 16, 16, 4096, 128), (2, 32, 8, 8192, 64), (8, 16, 16, 1024, 128))  # B, Hq, Hkv, S, D
MLA = {"batch": 32, "heads": 128, "keys": 8192, "width": 576, "values": 512}


def randn(*size):
    return torch.randn(size, device="cuda", dtype=torch.bfloat16)


def ints(values):
    return torch.tensor(values, device="cuda", dtype=torch.int32)


class Case:
    """One line of the table: calls by name, and a quotient of their times. It is the time of `of` over the time of
    `over`. Without `over` it is the share of the tensor rate that `flop` operations in the time of `of` reach."""

    def __init__(self, name, calls, of, over, bound, flop=0):
        self.name, self.calls, self.of, self.over, self.bound, self.flop = name, calls, of, over, bound, flop

    def line(self, times, tensor_rate):
        if self.over:
            what, quotient = f"{self.of} / {self.over}", times[self.of] / times[self.over]
        else:
            tflops = self.flop / times[self.of] / 1e6
            what, quotient = f"{tflops:.0f} of {tensor_rate:.0f} TFLOPS", tflops / tensor_rate
        sense, limit = self.bound[:2], float(self.bound[2:])
        met = quotient >= limit if sense == ">=" else quotient <= limit
        shown = ", ".join(f"{name} {us:.1f}" for name, us in times.items())
        return f"| {self.name} | {what} | {quotient:.3f} | {self.bound} | {'yes' if met else 'no'} | {shown} |"


class Own:
    """fa2's calls on these tensors with these features: forward into a kept tensor, backward into kept ones."""

    def __init__(self, q, k, v, **features):
        self.tensors, self.features = (q, k, v), features
        self.out, self.lse = fa2.attention(q, k, v, return_lse=True, **features)
        self.d_out = torch.randn_like(self.out)

    def forward(self):
        fa2.attention(*self.tensors, out=self.out, **self.features)

    def with_lse(self):
        self.out, self.lse = fa2.attention(*self.tensors, out=self.out, return_lse=True, **self.features)

    def backward(self):
        fa2.attention_backward(self.d_out, *self.tensors, self.out, self.lse, **self.features)

    def both(self):
        self.with_lse()
        self.backward()


class Flash:
    """PyTorch's FlashAttention-2 on them; packed where there are bounds."""

    def __init__(self, q, k, v, longest, bounds=None, dropped=0.0, **more):
        self.d_out = torch.randn_like(q)
        self.made = None
        self.arguments = q, k, v
        self.settings = bounds, bounds, longest, longest, dropped, True
        self.more = more

    def forward(self):
        self.made = ATEN._flash_attention_forward(*self.arguments, *self.settings, False, **self.more)

    def both(self):
        self.forward()
        out, lse, seed, offset, _ = self.made
        ATEN._flash_attention_backward(self.d_out, *self.arguments, out, lse, *self.settings, seed, offset, **self.more)


def dense(shape):
    batch, heads_q, heads_kv, seq, dim = shape
    return randn(batch, seq, heads_q, dim), randn(batch, seq, heads_kv, dim), randn(batch, seq, heads_kv, dim)


def named(shape, what):
    batch, heads_q, heads_kv, seq, dim = shape
    return f"{what}, B={batch} Hq={heads_q} Hkv={heads_kv} S={seq} D={dim}"


def alibi(peers):
    for shape in SHAPES[:2]:
        q, k, v = dense(shape)
        slopes = torch.rand(shape[1], device="cuda") * 0.3
        own = Own(q, k, v, causal=True, alibi_slopes=slopes)
        forward, backward = {"fa2": own.forward}, {"fa2": own.backward}
        if peers:
            flex = torch.compile(flex_attention, dynamic=False)
            leaves = [t.transpose(1, 2).detach().requires_grad_() for t in (q, k, v)]
            mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, shape[3], shape[3])
            d_out = own.d_out.transpose(1, 2)

            def call(leaves=leaves, mask=mask, slopes=slopes, gqa=shape[1] != shape[2]):
                return flex(*leaves, score_mod=lambda s, b, h, i, j: s - slopes[h] * (i - j), block_mask=mask,
                            enable_gqa=gqa)

            def quiet(call=call):
                with torch.no_grad():
                    call()

            out = call()
            forward["flex"] = quiet
            backward["flex"] = lambda out=out, leaves=leaves, d_out=d_out: torch.autograd.grad(
                out, leaves, d_out, retain_graph=True)
        yield Case(named(shape, "ALiBi, forward"), forward, "flex", "fa2", ">=1.0")
        yield Case(named(shape, "ALiBi, backward"), backward, "flex", "fa2", ">=1.0")


def dropout(_):
    for shape in SHAPES:
        q, k, v = dense(shape)
        own = Own(q, k, v, causal=True, dropout_p=DROPPED, dropout_seed=20)
        flash = Flash(q, k, v, shape[3], dropped=DROPPED)
        yield Case(named(shape, f"dropout {DROPPED}, forward and backward"), {"fa2": own.both, "flash": flash.both}, "flash",
                   "fa2", ">=1.15")


def packed(lengths, heads_q, heads_kv, dim):
    bounds = ints([0, *torch.tensor(lengths).cumsum(0).tolist()])
    total, longest = sum(lengths), max(lengths)
    q, k, v = randn(total, heads_q, dim), randn(total, heads_kv, dim), randn(total, heads_kv, dim)
    own = Own(q, k, v, causal=True, cu_seqlens_q=bounds, cu_seqlens_k=bounds, max_seqlen_q=longest,
              max_seqlen_k=longest)
    return own, Flash(q, k, v, longest, bounds)


def varlen(_):
    for batch, heads_q, heads_kv, seq, dim in SHAPES:
        ends = [int(batch * seq * part) for part in (0.1, 0.15, 0.4, 0.45, 0.7, 0.9, 1.0)]
        own, flash = packed([b - a for a, b in zip([0, *ends], ends)], heads_q, heads_kv, dim)
        name = f"7 uneven sequences of {ends[-1]} tokens, causal, Hq={heads_q} Hkv={heads_kv} D={dim}, forward and backward"
        yield Case(name, {"fa2": own.both, "flash": flash.both}, "flash", "fa2", ">=1.15")
    own, flash = packed([16384] + 63 * [64], 16, 16, 128)
    yield Case("1 sequence of 16384 and 63 of 64 tokens, causal, H=16 D=128, forward",
               {"fa2": own.forward, "flash": flash.forward}, "flash", "fa2", ">=1.3")


def beside_plain(_):
    for shape in SHAPES:
        q, k, v = dense(shape)
        heads, seq = shape[1], shape[3]
        kinds = {"ALiBi": ({"alibi_slopes": torch.rand(heads, device="cuda") * 0.3}, "<=1.10"),
                 "dropout": ({"dropout_p": DROPPED, "dropout_seed": 20}, "<=1.20"),
                 "sinks": ({"sinks": torch.randn(heads, device="cuda")}, "<=1.02"),
                 "additive bias [1, 1, S, S]": ({"bias": randn(1, 1, seq, seq)}, "<=1.25"),
                 f"additive bias [1, {heads}, S, S]": ({"bias": randn(1, heads, seq, seq)}, "<=1.25")}
        calls = {"plain": Own(q, k, v, causal=True).forward}
        calls.update({name: Own(q, k, v, causal=True, **features).forward for name, (features, _) in kinds.items()})
        for name, (_, bound) in kinds.items():
            yield Case(named(shape, f"{name}, causal, forward"), {"plain": calls["plain"], name: calls[name]}, name,
                       "plain", bound)


def paged(_):
    for batch, heads_q, heads_kv, keys, dim in ((16, 32, 8, 4096, 128), (64, 32, 8, 8192, 128), (8, 32, 32, 8192, 64)):
        page = 16
        q, k, v = randn(batch, 1, heads_q, dim), randn(batch, keys, heads_kv, dim), randn(batch, keys, heads_kv, dim)
        table = torch.randperm(batch * keys // page, device="cuda").to(torch.int32).view(batch, -1)
        pages = [t.reshape(-1, page, heads_kv, dim) for t in (k, v)]
        lengths = ints(batch * [keys])
        calls = {"plain": Own(q, k, v, seqused_k=lengths).forward,
                 "paged": Own(q, *pages, block_table=table, seqused_k=lengths).forward}
        yield Case(f"decode, pages of 16, B={batch} Hq={heads_q} Hkv={heads_kv} Sk={keys} D={dim}", calls, "paged", "plain",
                   "<=1.10")


def copy_of(count):
    """A copy that moves so many bytes, read and written together."""
    source = torch.randint(256, (count // 2,), device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def decode_lengths(_):
    batch, heads_q, heads_kv, most, dim = 32, 32, 8, 65536, 128
    q, k, v = randn(batch, 1, heads_q, dim), randn(batch, most, heads_kv, dim), randn(batch, most, heads_kv, dim)
    kinds = {"geometric": [round(most ** (i / (batch - 1))) for i in range(batch)],
             "uniform": [1 + round((most - 1) * i / (batch - 1)) for i in range(batch)]}
    for name, lengths in kinds.items():
        random.Random(20).shuffle(lengths)
        own = Own(q, k, v, seqused_k=ints(lengths))
        needed = 2 * sum(lengths) * heads_kv * dim * 2
        yield Case(f"decode, 32 lengths from 1 to {most}, {name}, Hq={heads_q} Hkv={heads_kv} D={dim}",
                   {"fa2": own.forward, "copy": copy_of(needed)}, "fa2", "copy", "<=1.25")


def mla(_):
    n = MLA
    k = randn(n["batch"], n["keys"], 1, n["width"])
    own = Own(randn(n["batch"], 1, n["heads"], n["width"]), k, k[..., :n["values"]])
    flop = 2 * n["batch"] * n["heads"] * n["keys"] * (n["width"] + n["values"])
    copy = copy_of(n["batch"] * n["keys"] * n["width"] * 2)
    name = "MLA decode (576, 512), Hq=128 Hkv=1 Sk=8192 B=32"
    yield Case(f"{name}, share of a copy's rate", {"fa2": own.forward, "copy": copy}, "copy", "fa2", ">=0.60")
    yield Case(f"{name}, share of the tensor rate", {"fa2": own.forward}, "fa2", None, ">=0.60", flop)


GROUPS = {"alibi": alibi, "dropout": dropout, "varlen": varlen, "plain": beside_plain, "paged": paged,
          "lengths": decode_lengths, "mla": mla}


# About the seconds that each takes, of which most are compilation.
SECONDS = {"alibi": 35, "dropout": 40, "varlen": 50, "plain": 60, "paged": 30, "lengths": 25, "mla": 15}

ABOUT = """# What features cost: {gpu}

- GPU: {gpu} ({card}), {sms} SMs; driver {driver}; PyTorch {torch}
- Date: {date}; bf16; every problem tuned first{fewer}; {rounds} rounds
- Command: `{command}`

A line is met or not by what the features were to cost at most, or to win at least. flash: PyTorch's FlashAttention-2; flex:
FlexAttention, compiled; plain: fa2 without the feature; copy: one that moves as many bytes as the call has to read, in the same
rounds (such a copy writes half of them, so a call can be faster).

| case | what | quotient | bound | met | µs |
| --- | --- | --- | --- | --- | --- |
"""


def command_of(args):
    """Without this machine's folders."""
    words = ["python3 tests/bench/features.py --tool build-release/tuner/fa2-tune --db features.db --out features"]
    if args.only != ",".join(GROUPS):
        words.append(f"--only {args.only}")
    if args.fewer > 1:
        words.append(f"--fewer {args.fewer}")
    if args.gpus:
        words.append(f"--gpus {args.gpus}")
    words.append(f"--rounds {args.rounds}")
    if args.rest:
        words.append(f"--rest {args.rest:g}")
    return " ".join(words)


def about(args):
    properties = torch.cuda.get_device_properties(0)
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True,
                            text=True, check=False).stdout.split()
    return ABOUT.format(gpu=properties.name, card=str(properties.uuid)[:8], sms=properties.multi_processor_count,
                        driver=driver[0] if driver else "unknown", torch=torch.__version__,
                        date=datetime.date.today(), rounds=args.rounds, command=command_of(args),
                        fewer=f", with 1/{args.fewer} of the candidates" if args.fewer > 1 else "")


def lines_of(name, args, order):
    for case in GROUPS[name](True):
        graphs = {call: graph_of(made) for call, made in case.calls.items()}
        times = {call: taken.median for call, taken in time_all(graphs, args.rounds, order, args.rest).items()}
        yield case.line(times, args.tensor_rate)


def measured(args, names):
    """The lines of these groups, tuned first."""
    subprocess.run([args.tool, "tune", "--device", "0", "--db", args.db, "--", sys.executable, __file__, "--calls", "--only",
                    ",".join(names), "--db", args.db], check=True)
    order = random.Random(20)
    lines = []
    with torch.cuda.stream(torch.cuda.Stream()):
        for name in names:
            for line in lines_of(name, args, order):
                lines.append(line)
                print(line, flush=True)
    return lines


def divided(names, gpus):
    """The groups of each GPU: the longest ones first, each to the GPU that has the least so far."""
    shares = {gpu: [] for gpu in gpus}
    for name in sorted(names, key=lambda name: -SECONDS[name]):
        min(shares.values(), key=lambda share: sum(SECONDS[had] for had in share)).append(name)
    return {gpu: share for gpu, share in shares.items() if share}


def side_by_side(args, names):
    """The same by a process for each GPU."""
    children = []
    for gpu, share in divided(names, args.gpus.split(",")).items():
        out = args.out.with_name(f"{args.out.name}.{gpu}")
        command = [sys.executable, __file__, "--tool", args.tool, "--db", f"{args.db}.{gpu}", "--out", out, "--only",
                   ",".join(share), "--rounds", str(args.rounds), "--rest", str(args.rest),
                   "--tensor-rate", str(args.tensor_rate)]
        children.append((subprocess.Popen(command, env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu}), out))
    if any([child.wait() for child, _ in children]):
        sys.exit(1)
    lines = []
    for _, out in children:
        part = out.with_name(out.name + ".md")
        lines += [line for line in part.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][2:]
        part.unlink()
    return lines


def generate_fewer(times, folder):
    """Let the generator's scripts, and the templates beside them, be copies that list fewer candidates."""
    for name in ("gen", "templates"):
        shutil.copytree(name, pathlib.Path(folder) / name)
    for script in (pathlib.Path(folder) / "gen" / "ops").glob("*.lua"):
        if "sm90" not in script.name:
            text = script.read_text(encoding="utf-8")
            script.write_text(re.sub(r"\blimit = (\d+)", lambda found: f"limit = {int(found[1]) // times}", text),
                              encoding="utf-8")
    os.environ["FA2_GEN_PATH"] = folder


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=pathlib.Path, default=pathlib.Path("build-release/tuner/fa2-tune"))
    parser.add_argument("--db", type=pathlib.Path, default=pathlib.Path("features.db"))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("features"))
    parser.add_argument("--only", default=",".join(GROUPS), help="of " + ", ".join(GROUPS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rest", type=float, default=0, help="ms without work before each sample")
    parser.add_argument("--fewer", type=int, default=1)
    parser.add_argument("--gpus", default="", help="as CUDA_VISIBLE_DEVICES names them; default: the first")
    parser.add_argument("--tensor-rate", type=float, default=631.0)
    parser.add_argument("--calls", action="store_true", help="make fa2's calls once, and measure nothing")
    return parser.parse_args()


def main():
    args = parse()
    os.environ["FA2_DB"] = str(args.db.resolve())
    names = args.only.split(",")
    if args.calls:
        for name in names:
            for case in GROUPS[name](False):
                case.calls.get("fa2", lambda: None)()
        torch.cuda.synchronize()
        return
    with tempfile.TemporaryDirectory() as folder:
        if args.fewer > 1:
            generate_fewer(args.fewer, folder)
        lines = side_by_side(args, names) if args.gpus else measured(args, names)
    args.out.with_name(args.out.name + ".md").write_text(about(args) + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
