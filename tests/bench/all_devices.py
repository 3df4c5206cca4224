#!/usr/bin/env python3
"""How much faster `fa2-tune --device all` is than `--device 0` where a machine has equal GPUs, and whether both
choose alike.

Everything is tuned once, by all devices, which compiles and verifies it. Then what was measured is taken away, and
measured again from the same database, by device 0 alone and by all devices: every candidate (--all), of many problems
of a few classes, so that the GPUs' time bounds the work and not the compiler's or the cost model's. Winners of the
two are compared by the times that device 0 measured alone, or else all together: choices are equal where the kernels
are, or take the same time within --tolerance.

    tests/bench/all_devices.py --tool build-release/tuner/fa2-tune [--preset llm | --shape ...]...

A minute and a half on two H200s; --least 1.7 (default: 1.7 for two GPUs) is the factor below which it ends with
status 1. On the software device (FA2_CUDA_LIBRARY, FA2_SIM_CARD=rtx3060,rtx3060, FA2_SIM_MACHINE=folder,
FA2_GEN_PATH=tests/sim/few) it shows that it works, but not a factor: there processors bound it.
"""
import argparse
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time


def long_problems():
    """Of some milliseconds at most, two classes."""
    return [f"B={batch},Hq=16,Hkv={heads_kv},Sq={seq},Sk={seq},D={head_dim},causal=1"
            for head_dim in (64, 128) for seq in (1024, 1536, 2048, 3072, 4096, 6144, 8192)
            for batch in (1, 2, 3, 4, 5, 6) for heads_kv in (16, 4)]


def run(args, db, device):
    """Seconds of a tuning."""
    began = time.monotonic()
    command = [args.tool, "tune", "--device", device, "--db", db, "--op", "forward", "--all", *args.what]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"fa2-tune tune --device {device}: status {done.returncode}: {done.stderr}")
    seconds = time.monotonic() - began
    print(f"--device {device}: {seconds:.1f} s")
    for line in done.stderr.splitlines():
        if "took " in line or "measurements: " in line:
            print(f"   {line}", flush=True)
    return seconds


def forget_measurements(path):
    db = sqlite3.connect(path)
    for table in ("winner", "measurement"):
        db.execute(f"DELETE FROM {table}")
    db.commit()
    db.close()


def winners_of(path):
    db = sqlite3.connect(path)
    rows = db.execute("SELECT p.id, k.variant FROM winner w JOIN kernel k ON k.id = w.kernel JOIN problem p ON p.id = w.problem")
    return dict(rows.fetchall())


def times_of(path):
    db = sqlite3.connect(path)
    rows = db.execute("SELECT m.problem, k.variant, m.median_us FROM measurement m JOIN kernel k ON k.id = m.kernel "
                      "WHERE m.outcome = 'ok' AND m.n > 0")
    return {(problem, variant): us for problem, variant, us in rows}


def compare(one, every, tolerance):
    """How many choices differ; says which."""
    alone, together, times = winners_of(one), winners_of(every), {**times_of(every), **times_of(one)}
    differ = 0
    same = sum(together.get(problem) == variant for problem, variant in alone.items())
    for problem, variant in alone.items():
        other = together.get(problem)
        us, other_us = times[problem, variant], times.get((problem, other))
        if other != variant and (other_us is None or other_us > us * (1 + tolerance)):
            differ += 1
            print(f"problem {problem}: {variant} ({us:.2f} us) alone, {other} ({other_us} us) together")
    print(f"{len(alone)} problems, {len(together)} of them by all devices; {same} with the same kernel; "
          f"{differ} choices differ by more than {tolerance:.0%}")
    return differ + abs(len(alone) - len(together))


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--preset", action="append", default=[])
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--tolerance", type=float, default=0.02)
    parser.add_argument("--least", type=float, default=1.7)
    args = parser.parse_args()
    args.what = [word for name in args.preset for word in ("--preset", name)]
    args.what += [word for shape in args.shape for word in ("--shape", shape)]
    args.what = args.what or [word for shape in long_problems() for word in ("--shape", shape)]
    return args


def main():
    args = options()
    with tempfile.TemporaryDirectory() as folder:
        base, one, every = (os.path.join(folder, name) for name in ("base.db", "one.db", "all.db"))
        run(args, base, "all")
        forget_measurements(base)
        for path in (one, every):
            shutil.copyfile(base, path)
            os.chmod(path, 0o600)
        factor = run(args, one, "0") / run(args, every, "all")
        differ = compare(one, every, args.tolerance)
    print(f"all devices are {factor:.2f} times as fast")
    sys.exit(1 if differ or factor < args.least else 0)


main()
