#!/usr/bin/env python3
"""Compiles what a build folder has compiled with clang, for its warnings alone: nothing is written.

    tests/clang_warnings.py build [JOBS]

Reads the folder's compile_commands.json. Prints what clang says; the exit status is 1 where it said something.
"""
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys


def warnings_of(entry):
    """Returns what clang says of one file."""
    arguments = shlex.split(entry["command"])
    at = arguments.index("-o")
    # clang does not know gcc's options of link-time optimisation
    known = [argument for argument in (*arguments[1:at], *arguments[at + 2:])
             if argument not in ("-flto=auto", "-fno-fat-lto-objects")]
    command = ["clang", *known, "-fsyntax-only"]
    run = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True, check=False)
    return run.stderr or ("" if run.returncode == 0 else f"{entry['file']}: status {run.returncode}\n")


def main():
    with open(os.path.join(sys.argv[1], "compile_commands.json"), encoding="utf-8") as file:
        entries = [entry for entry in json.load(file) if entry["file"].endswith(".c")]
    with concurrent.futures.ThreadPoolExecutor(int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count()) as pool:
        said = list(filter(None, pool.map(warnings_of, entries)))
    sys.stdout.write("".join(said))
    print(f"clang: {len(entries)} files, {len(said)} with warnings")
    return 1 if said or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
