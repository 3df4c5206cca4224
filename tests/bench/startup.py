#!/usr/bin/env python3
"""How long a process waits before its first attention: imports, and first calls.

    python tests/bench/startup.py                                    the fa2 that this Python imports
    python tests/bench/startup.py --fa2 before=FOLDER --fa2 after=FOLDER   two of them, in turn
    python tests/bench/startup.py --parts build/tests/startup        also where a call that compiles spends its time

FOLDER holds the package fa2 (`pip install --target FOLDER .`), or is the Python of an environment. Each figure is of a
fresh process, with PyTorch imported and the CUDA context there: medians, least and most, in milliseconds. A first call
that finds nothing stored begins with an empty database. The next process finds what it left.
"""

import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SHAPE = {"batch": 2, "heads": 16, "seq": 2048, "head_dim": 128}
ROWS = ("import fa2_attn", "import fa2_attn.torch", "forward, nothing stored", "  of it compiling", "  kernels compiled",
        "forward, stored", "forward, second call", "backward, nothing stored", "  of it compiling ",
        "  kernels compiled ", "backward, stored", "backward, second call")


# ---- in the process that is measured ----

def now_ms():
    return time.perf_counter() * 1e3


def timed(call):
    """The result, and the milliseconds until the device is done."""
    import torch
    begin = now_ms()
    result = call()
    torch.cuda.synchronize()
    return result, now_ms() - begin


def measure_imports():
    import torch  # noqa: F401
    begin = now_ms()
    import fa2_attn  # noqa: F401
    between = now_ms()
    import fa2_attn.torch  # noqa: F401
    return {"import fa2_attn": between - begin, "import fa2_attn.torch": now_ms() - between}


def measure_calls(backward):
    import torch
    import fa2_attn as fa2
    import fa2_attn.torch  # noqa: F401
    q, k, v, d_out = (torch.randn(SHAPE["batch"], SHAPE["seq"], SHAPE["heads"], SHAPE["head_dim"], device="cuda",
                                  dtype=torch.bfloat16) for _ in range(4))
    torch.cuda.synchronize()
    (out, lse), first = timed(lambda: fa2.attention(q, k, v, causal=True, return_lse=True))
    _, second = timed(lambda: fa2.attention(q, k, v, causal=True, return_lse=True))
    if backward:
        _, first = timed(lambda: fa2.attention_backward(d_out, q, k, v, out, lse, causal=True))
        _, second = timed(lambda: fa2.attention_backward(d_out, q, k, v, out, lse, causal=True))
    return {"first": first, "second": second}


# ---- in the process that starts them ----

def run(version, kind, database):
    """What a fresh process measures."""
    environment = dict(os.environ, FA2_DB=str(database))
    python = sys.executable
    if version is not None and Path(version).is_file():
        python = version
    elif version is not None:
        environment["PYTHONPATH"] = str(version)
    made = subprocess.run([python, os.path.abspath(__file__), "--measure", kind], env=environment, check=True,
                          cwd=tempfile.gettempdir(), stdout=subprocess.PIPE, text=True)
    return json.loads(made.stdout.splitlines()[-1])


def compiled(database):
    """How many kernels of each operation a database has, and the compiler's milliseconds for them."""
    with sqlite3.connect(database) as connection:
        rows = connection.execute("SELECT substr(variant, 1, 3), count(*), sum(compile_ms) FROM kernel GROUP BY 1")
        return {operation: (count, spent) for operation, count, spent in rows}


def repeat_once(version, found):
    """All figures of a version, added to lists by name."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "fa2.db"
        for name, value in run(version, "imports", database).items():
            found.setdefault(name, []).append(value)
        for kind, mark, space in (("forward", "fwd", ""), ("backward", "bwd", " ")):
            fresh = run(version, kind, database)
            count, spent = compiled(database).get(mark, (0, 0))
            stored = run(version, kind, database)
            for name, value in ((f"{kind}, nothing stored", fresh["first"]), (f"  of it compiling{space}", spent),
                                (f"  kernels compiled{space}", count), (f"{kind}, stored", stored["first"]),
                                (f"{kind}, second call", stored["second"])):
                found.setdefault(name, []).append(value)


def print_table(versions, found):
    print(f"{'ms, median (least ... most)':28}" + "".join(f"{name:>30}" for name in versions))
    for row in ROWS:
        cells = (f"{statistics.median(f[row]):.2f} ({min(f[row]):.2f} ... {max(f[row]):.2f})" for f in found.values())
        print(f"{row.rstrip() if row.startswith(' ') else row:28}" + "".join(f"{cell:>30}" for cell in cells))


def print_parts(program):
    """A call that compiles, step by step, without Python."""
    for operation in ("forward", "backward"):
        shape = ("op={0},B={batch},Hq={heads},Sq={seq},D={head_dim},dtype=bf16,causal=1").format(operation, **SHAPE)
        with tempfile.TemporaryDirectory() as folder:
            made = subprocess.run([program, "parts", os.path.join(folder, "fa2.db"), shape], check=True,
                                  stdout=subprocess.PIPE, text=True)
        print(f"\n{operation}, ms:\n{made.stdout.rstrip()}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--fa2", action="append", default=[], metavar="NAME=FOLDER")
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--parts", metavar="PROGRAM")
    options.add_argument("--measure", choices=("imports", "forward", "backward"), help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.measure is not None:
        measured = measure_imports() if given.measure == "imports" else measure_calls(given.measure == "backward")
        print(json.dumps(measured))
        return
    versions = dict(each.split("=", 1) for each in given.fa2) or {"fa2": None}
    found = {name: {} for name in versions}
    for _ in range(given.repeats):
        for name, version in versions.items():
            repeat_once(version and os.path.abspath(version), found[name])
    print_table(versions, found)
    if given.parts is not None:
        print_parts(os.path.abspath(given.parts))


if __name__ == "__main__":
    main()
