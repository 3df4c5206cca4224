#!/usr/bin/env python3
"""Does `fa2-tune bench` measure what PyTorch's events measure?

Tunes shapes of shapes.csv, evenly taken from it, times them by `fa2-tune bench`, and times the same kernels of the
same database from PyTorch (compare.py: events around replays of CUDA graphs, in PyTorch's process). Prints both
medians of each shape, and fails when two of them differ by more than --most per cent.

    tests/bench/bench_agrees.py --build build-release --out agrees            # on a machine with a GPU and PyTorch
    tests/bench/bench_agrees.py --bench agrees/bench.csv --torch agrees/torch.csv    # what was measured, again

--op backward compares backward. Minutes; with the database in --out a second run takes seconds.
"""
import argparse
import csv
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
FIELDS = ("batch", "heads_q", "heads_kv", "seq_q", "seq_k", "head_dim", "dtype", "causal")


def chosen_shapes(path, count):
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    count = min(count, len(rows))
    return [tuple(rows[i * len(rows) // count][field] for field in FIELDS) for i in range(count)]


def measure(args):
    """The two files of measurements."""
    args.out.mkdir(parents=True, exist_ok=True)
    shapes, database = args.out / "shapes.csv", args.out / "agrees.db"
    with open(shapes, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS)
        writer.writerows(chosen_shapes(HERE / "shapes.csv", args.count))
    tool = args.build / "tuner" / "fa2-tune"
    common = ["--device", "0", "--shapes", shapes, "--op", args.op, "--db", database]
    subprocess.run([tool, "tune", *common], check=True)
    with open(args.out / "bench.csv", "w", encoding="utf-8") as file:
        subprocess.run([tool, "bench", *common, "--format", "csv"], check=True, stdout=file)
    # Beside another implementation, not alone: 50 rounds of nothing but kernels on Hopper's instructions keep an H200
    # at its power limit, and its clock falls by 8 to 18 %, which `bench`'s runs between others' do not see.
    subprocess.run([sys.executable, HERE / "compare.py", "--library", args.build / "runtime" / "libfa2.so", "--db",
                    database, "--shapes", shapes, "--passes", args.op, "--peers", "flash", "--rounds", "15", "--out",
                    args.out / "torch"], check=True)
    return args.out / "bench.csv", args.out / "torch.csv"


def medians(path, is_wanted):
    """{shape: (median in us, variant)}"""
    found = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if is_wanted(row):
                found[tuple(row[field] for field in FIELDS)] = (float(row["median_us"]), row["variant"])
    return found


def compare(bench_path, torch_path, op, most):
    """How many shapes do not agree; None without shapes that both have."""
    ours = medians(bench_path, lambda row: row["op"] == op and row["rule"] == "exact" and row["median_us"])
    theirs = medians(torch_path, lambda row: row["pass"] == op and row["implementation"] == "fa2")
    both = [shape for shape in ours if shape in theirs]
    apart = 0
    for shape in both:
        (mine, my_kernel), (other, other_kernel) = ours[shape], theirs[shape]
        percent = (mine / other - 1) * 100
        wrong = abs(percent) > most or my_kernel != other_kernel
        apart += wrong
        print(f"{','.join(shape):48} {mine:10.2f} us {other:10.2f} us {percent:+7.2f} %"
              + ("  other kernels" if my_kernel != other_kernel else "  APART" if wrong else ""))
    print(f"{len(both)} shapes in both, {len(ours) + len(theirs) - 2 * len(both)} in one alone; {apart} differ by more "
          f"than {most:g} %")
    return apart if both else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--build", type=pathlib.Path, default=pathlib.Path("build-release"), help="a finished build (build-release)")
    add("--out", type=pathlib.Path, default=pathlib.Path("agrees"), help="folder of database and measurements (agrees)")
    add("--count", type=int, default=20, help="shapes (20)")
    add("--op", choices=("forward", "backward"), default="forward")
    add("--most", type=float, default=3.0, help="per cent that medians may differ by (3)")
    add("--bench", type=pathlib.Path, help="instead of measuring: what `fa2-tune bench --format csv` printed")
    add("--torch", type=pathlib.Path, help="and what compare.py wrote")
    args = parser.parse_args()
    if (args.bench is None) != (args.torch is None):
        parser.error("--bench and --torch go together")
    bench_path, torch_path = (args.bench, args.torch) if args.bench else measure(args)
    return 0 if compare(bench_path, torch_path, args.op, args.most) == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
