#!/usr/bin/env python3
"""Does `fa2-tune bench` measure what PyTorch's events measure?

Tunes shapes of a shape file, evenly taken from it, times them by `fa2-tune bench`, and times the same kernels of the
same database in PyTorch: its tensors, its graphs, its events. Prints both medians of each shape, and fails when two
of them differ by more than --most per cent.

    tests/bench/bench_agrees.py --build build-release --out agrees            # on a machine with a GPU and PyTorch
    tests/bench/bench_agrees.py --bench agrees/bench.csv --torch agrees/torch.csv    # what was measured, again

--op backward compares backward. Minutes; with the database in --out a second run takes less.

What has to be the same for two medians to be of the same thing:
- where rows lie: [batch, seq, heads, head_dim]. With D = 32 a row is half a cache line, and [batch, heads, seq,
  head_dim] (--layout bhsd, for PyTorch's side alone) takes less time;
- how many launches a graph holds, and that the device is busy while the host starts it: of a run of 3 us launches
  that start was up to a thirtieth. Both take bench's rule, about 1 ms, 256 at most, right behind an untimed run;
- clocks: kernels on Hopper's instructions, one behind the other, keep an H200 at its power limit. So both idle
  (--rest) before each round, and the sides take turns.
"""
import argparse
import csv
import math
import pathlib
import statistics
import subprocess
import sys
import time

import compare

HERE = pathlib.Path(__file__).resolve().parent
FIELDS = ("batch", "heads_q", "heads_kv", "seq_q", "seq_k", "head_dim", "dtype", "causal")
GROUP = 4  # shapes of a turn
SAMPLE_US, MOST_LAUNCHES = 1000.0, 256  # of a run: tuner/bench/benchmark.h


def chosen_shapes(path, count):
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    count = min(count, len(rows))
    return [tuple(rows[i * len(rows) // count][field] for field in FIELDS) for i in range(count)]


def write_rows(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


class Torch:
    """PyTorch's side."""

    def __init__(self, args, database):
        import torch
        self.torch, self.args = torch, args
        self.library, self.shapes = compare.load("library"), compare.load("shapes")
        self.context = self.library.Context(args.build / "runtime" / "libfa2.so", database)
        torch.cuda.set_stream(torch.cuda.Stream())

    def _tensor(self, batch, heads, seq, width, dtype):
        if self.args.layout == "bhsd":
            return self.torch.randn(batch, heads, seq, width, device="cuda", dtype=dtype)
        return self.torch.randn(batch, seq, heads, width, device="cuda", dtype=dtype).transpose(1, 2)

    def _call(self, shape):
        torch = self.torch
        dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[shape.dtype]
        q, d_out = (self._tensor(shape.batch, shape.heads_q, shape.seq_q, shape.head_dim, dtype) for _ in range(2))
        k, v = (self._tensor(shape.batch, shape.heads_kv, shape.seq_k, shape.head_dim, dtype) for _ in range(2))
        out = torch.empty_like(q)
        if self.args.op == "forward":
            return self.context.forward_call(shape, q, k, v, out)
        lse = torch.empty(q.shape[:3], device="cuda", dtype=torch.float32)
        self.context.forward_call(shape, q, k, v, out, lse)()
        return self.context.backward_call(shape, (q, k, v, out, d_out), lse, tuple(map(torch.empty_like, (q, k, v))))

    def _graph(self, call, launches):
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=self.torch.cuda.current_stream()):
            for _ in range(launches):
                call()
        return graph

    def _run_us(self, graph):
        """Behind an untimed run, without waiting for that: what starting a graph takes is not in the time."""
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        graph.replay()
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3

    def median(self, row):
        """(median of a launch in us, launches in a run, variant)"""
        shape = self.shapes.Shape(*(value if field == "dtype" else int(value) for field, value in zip(FIELDS, row)))
        call = self._call(shape)
        call()
        one = self._graph(call, 1)
        pilot = min(self._run_us(one) for _ in range(5))
        launches = max(1, min(MOST_LAUNCHES, math.ceil(SAMPLE_US / pilot)))
        graph, times = self._graph(call, launches), []
        for _ in range(self.args.runs + 1):
            time.sleep(self.args.rest / 1e3)
            times.append(self._run_us(graph) / launches)
        op = self.library.FORWARD if self.args.op == "forward" else self.library.BACKWARD
        return statistics.median(times[1:]), launches, self.context.explain(shape, op)[1]


def run_bench(args, database, rows):
    """Rows of bench's CSV."""
    shapes = write_rows(args.out / "group.csv", [FIELDS, *rows])
    command = [args.tune or args.build / "tuner" / "fa2-tune", "bench", "--device", "0", "--shapes", shapes, "--op",
               args.op, "--db", database, "--runs", str(args.runs), "--rest", str(args.rest), "--format", "csv"]
    return list(csv.reader(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()))


def measure(args):
    """The two files of measurements."""
    args.out.mkdir(parents=True, exist_ok=True)
    rows, database = chosen_shapes(args.shapes, args.count), args.out / "agrees.db"
    shapes = write_rows(args.out / "shapes.csv", [FIELDS, *rows])
    subprocess.run([args.build / "tuner" / "fa2-tune", "tune", "--device", "0", "--shapes", shapes, "--op", args.op,
                    "--db", database], check=True)
    torch = Torch(args, database)
    ours, theirs = [], [(*FIELDS, "op", "median_us", "launches", "variant")]
    for group in range(0, len(rows), GROUP):
        turn = rows[group:group + GROUP]
        sides = [lambda: ours.extend(run_bench(args, database, turn)[1 if ours else 0:]),
                 lambda: theirs.extend((*row, args.op, *torch.median(row)) for row in turn)]
        for side in reversed(sides) if group // GROUP % 2 else sides:
            side()
        files = write_rows(args.out / "bench.csv", ours), write_rows(args.out / "torch.csv", theirs)
    return files


def medians(path, is_wanted):
    """{shape: (median in us, launches of a run, variant)}"""
    found = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if is_wanted(row):
                found[tuple(row[field] for field in FIELDS)] = (float(row["median_us"]), row["launches"],
                                                                row["variant"])
    return found


def compare_medians(bench_path, torch_path, op, most):
    """How many shapes do not agree; None without shapes that both have."""
    ours = medians(bench_path, lambda row: row["op"] == op and row["rule"] == "exact" and row["median_us"])
    theirs = medians(torch_path, lambda row: row["op"] == op)
    both = [shape for shape in ours if shape in theirs]
    apart = 0
    for shape in both:
        (mine, my_launches, my_kernel), (other, launches, other_kernel) = ours[shape], theirs[shape]
        percent = (mine / other - 1) * 100
        wrong = abs(percent) > most or my_kernel != other_kernel
        apart += wrong
        print(f"{','.join(shape):40} {mine:10.2f} us ({my_launches:>3} a run) {other:10.2f} us ({launches:>3}) "
              f"{percent:+6.2f} %" + ("  other kernels" if my_kernel != other_kernel else "  APART" if wrong else ""))
    print(f"{len(both)} shapes in both, {len(ours) + len(theirs) - 2 * len(both)} in one alone; {apart} differ by more "
          f"than {most:g} %")
    return apart if both else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--build", type=pathlib.Path, default=pathlib.Path("build-release"), help="a finished build (build-release)")
    add("--tune", type=pathlib.Path, help="another fa2-tune for bench than the build's")
    add("--out", type=pathlib.Path, default=pathlib.Path("agrees"), help="folder of database and measurements (agrees)")
    add("--shapes", type=pathlib.Path, default=HERE / "shapes.csv", help="shape file (shapes.csv beside this)")
    add("--count", type=int, default=20, help="shapes (20)")
    add("--op", choices=("forward", "backward"), default="forward")
    add("--runs", type=int, default=30, help="that count, of each side (30)")
    add("--rest", type=int, default=10, help="ms without work before each round, of each side (10)")
    add("--layout", choices=("bshd", "bhsd"), default="bshd", help="of PyTorch's tensors (bshd, as bench has them)")
    add("--most", type=float, default=3.0, help="per cent that medians may differ by (3)")
    add("--bench", type=pathlib.Path, help="instead of measuring: bench.csv of an earlier run")
    add("--torch", type=pathlib.Path, help="and its torch.csv")
    args = parser.parse_args()
    if (args.bench is None) != (args.torch is None):
        parser.error("--bench and --torch go together")
    bench_path, torch_path = (args.bench, args.torch) if args.bench else measure(args)
    return 0 if compare_medians(bench_path, torch_path, args.op, args.most) == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
