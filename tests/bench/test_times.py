#!/usr/bin/env python3
"""Measures where the processor time of the tests goes: per test, and per part of the work.

    tests/bench/test_times.py build [--tests REGEX] [--top 30] [--cold]

Runs each test of a build folder alone under `perf record` (Linux, package linux-perf), which samples the
processor time of the test and of all processes that it starts. A sample counts for the part that its code
belongs to: NVRTC, the interpreter (tests/sim), the generator (Lua), SQLite, Python, compilers, the rest (tests,
references, the library). `--cold` runs the tests without the code that earlier runs kept (tests/kept_nvrtc.c).
Prints a Markdown table, seconds of processor time, most expensive test first.
"""
import argparse
import collections
import json
import os
import re
import subprocess
import tempfile

PARTS = (
    ("NVRTC", r"libnvrtc|libkept_nvrtc"),
    ("interpreter", r"libfa2sim"),
    ("generator", r"liblua"),
    ("SQLite", r"libsqlite"),
    ("Python", r"python|torch"),
    ("sanitizers", r"libasan|libubsan"),
    ("compilers", r"^(cc1|cc1plus|as|ld|ld\.bfd|collect2|gcc.*|clang.*|cmake|ninja|libLLVM.*|libclang.*|libbfd.*)$"),
)
FREQUENCY = 99


def part_of(library):
    return next((name for name, pattern in PARTS if re.search(pattern, library)), "rest")


def tests_of(folder):
    listed = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1"], check=True,
                            capture_output=True, text=True).stdout
    for test in json.loads(listed)["tests"]:
        properties = {p["name"]: p["value"] for p in test["properties"]}
        if "command" in test:
            yield test["name"], test["command"], properties


def measure(command, properties, cold):
    """Returns the seconds of each part, the status, and the seconds of wall time."""
    environment = dict(os.environ, **dict(pair.split("=", 1) for pair in properties.get("ENVIRONMENT", [])))
    with tempfile.TemporaryDirectory() as folder:
        if cold:
            environment["FA2_KEPT_CODE"] = folder
        data = os.path.join(folder, "perf.data")
        run = subprocess.run(["perf", "record", "-q", "-F", str(FREQUENCY), "-e", "cpu-clock:u", "-o", data, "--",
                              *command], env=environment, cwd=properties.get("WORKING_DIRECTORY"),
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        report = subprocess.run(["perf", "report", "-i", data, "--stdio", "-q", "-n", "--sort", "dso", "-t", ","],
                                capture_output=True, text=True, check=False).stdout
    seconds = collections.Counter()
    for line in report.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 3 and fields[1].isdigit():
            seconds[part_of(fields[2])] += int(fields[1]) / FREQUENCY
    return seconds, run.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--tests", default="", help="only tests whose name matches this regular expression")
    parser.add_argument("--not-label", default="^$", help="no tests with a label that matches this")
    parser.add_argument("--top", type=int, default=30, help="tests with a line of their own")
    parser.add_argument("--cold", action="store_true", help="without kept code")
    options = parser.parse_args()
    rows = []
    for name, command, properties in tests_of(options.folder):
        if re.search(options.tests, name) and not any(re.search(options.not_label, label)
                                                      for label in properties.get("LABELS", [])):
            seconds, status = measure(command, properties, options.cold)
            rows.append((name + ("" if status in (0, 77) else f" (status {status})"), seconds))
    rows.sort(key=lambda row: -sum(row[1].values()))
    total = sum((row[1] for row in rows), collections.Counter())
    names = [name for name, _ in PARTS] + ["rest"]
    print("| test | all | " + " | ".join(names) + " |")
    print("|---|" + "---|" * (len(names) + 1))
    others = sum((row[1] for row in rows[options.top:]), collections.Counter())
    for name, seconds in [("all", total), *rows[:options.top], (f"{len(rows[options.top:])} others", others)]:
        print(f"| {name} | {sum(seconds.values()):.0f} | " + " | ".join(f"{seconds[n]:.0f}" for n in names) + " |")


if __name__ == "__main__":
    main()
