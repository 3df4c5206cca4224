#!/usr/bin/env python3
"""Where does each value of a tuning axis win?

    python3 tests/bench/axis_winners.py --run-lua build/tests/run_lua EXPORT...          writes results/axis_winners.tsv
    python3 tests/bench/axis_winners.py --run-lua build/tests/run_lua --add EXPORT...    adds problems to that table
    python3 tests/bench/axis_winners.py --run-lua build/tests/run_lua --check            compares it with gen/

EXPORT: what `fa2-tune export` wrote, also as .gz: those in runtime/share, and those of cards that played an older SM
(`fa2-tune tune --arch sm_80`).

A row of the table is a value of an axis. `won` and `tried`: problems that a variant with the value won, and in which
one was timed. `gain`: how much longer the best variant without the value takes, in per cent, for the problem where it
is most; "only" if no other variant serves it. A value that gains less than 0.5 % anywhere needs a reason to stay in the
generator. The tuner does not tell times that are closer from equal ones. Reasons are written into the table by hand, and
kept until the value wins.

With --check the exit status is 1 if a value of the generator has no row, if a row has no value, or neither winner nor
reason.
"""
import argparse
import collections
import csv
import gzip
import json
import math
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
TABLE = os.path.join(HERE, "results", "axis_winners.tsv")
COLUMNS = ["family", "axis", "value", "won", "tried", "gain", "device", "shape", "reason"]
LEAST_GAIN = 0.5  # per cent
ONLY = "only"     # the gain of a value that all variants for a problem have
UNSAID = {0, "none", "exact", "dtype"}  # values of fields that shapes need not say
NAMES = {"batch": "B", "heads_q": "Hq", "heads_kv": "Hkv", "seq_q": "Sq", "seq_k": "Sk", "head_dim": "D"}


def offered(run_lua):
    """{family: {axis: ({values}, the value of a text without the axis, or None)}}, as the generator has them."""
    text = subprocess.run([os.path.abspath(run_lua), os.path.join(HERE, "axis_values.lua")], cwd=TOP, check=True,
                          capture_output=True, text=True).stdout
    families = collections.defaultdict(dict)
    for line in text.splitlines():
        family, axis, value, silent = line.split("\t")
        values, unsaid = families[family].setdefault(axis, ([], None))
        families[family][axis] = (values + [value], value if silent else unsaid)
    return families


def shape_of(problem):
    """The fields that say something, as fa2-tune takes them."""
    return " ".join(f"{NAMES.get(name, name)}={value}" for name, value in problem.items()
                    if name not in ("type", "id") and value not in UNSAID
                    and (name, value) not in (("sums", "fp32"), ("kv_scales", "fp32")))


def read(path, times):
    """Adds to times: {(device, shape): {variant: us}}."""
    devices, problems, variants = {}, {}, {}
    with (gzip.open if path.endswith(".gz") else open)(path, "rt") as lines:
        for row in map(json.loads, lines):
            kind = row.get("type")
            if kind == "device":
                devices[row["id"]] = row["name"]
            elif kind == "problem":
                problems[row["id"]] = shape_of(row)
            elif kind == "kernel":
                variants[row["key"]] = row["variant"]
            elif kind == "measurement" and row["outcome"] == "ok" and row["n"] > 0:
                of = times[devices[row["device"]], problems[row["problem"]]]
                variant = variants[row["kernel"]]
                of[variant] = min(row["median_us"], of.get(variant, float("inf")))


def points_of(variants, families):
    """{variant: {(family, axis, value)}}"""
    points = {}
    for variant in variants:
        family, *words = variant.split()
        said = dict(word.split("=") for word in words)
        points[variant] = {(family, axis, said.get(axis, unsaid)) for axis, (_, unsaid) in families[family].items()}
    return points


def find_wins(times, families):
    """{(family, axis, value): row}, without reasons."""
    rows = {(family, axis, value): dict.fromkeys(COLUMNS, "") | {"won": 0, "tried": 0}
            for family, axes in families.items() for axis, (values, _) in axes.items() for value in values}
    for (device, shape), us in times.items():
        points = points_of(us, families)
        best = min(us, key=us.get)
        for point in set().union(*points.values()) & rows.keys():
            rows[point]["tried"] += 1
            if point not in points[best]:
                continue
            rows[point]["won"] += 1
            others = [time for variant, time in us.items() if point not in points[variant]]
            gain = f"{100 * (min(others) / us[best] - 1):.1f}" if others else ONLY
            if gain_of({"gain": gain}) > gain_of(rows[point]):
                rows[point].update(gain=gain, device=device, shape=shape)
    return rows


def add_wins(rows, table):
    """Adds the problems of a table to rows, which are about other problems."""
    for point in rows.keys() & table.keys():
        row, old = rows[point], table[point]
        better = old if gain_of(old) > gain_of(row) else row
        row.update({name: better[name] for name in ("gain", "device", "shape")},
                   won=row["won"] + int(old["won"]), tried=row["tried"] + int(old["tried"]))


def read_table():
    if not os.path.exists(TABLE):
        return {}
    with open(TABLE, newline="") as lines:
        return {(row["family"], row["axis"], row["value"]): row for row in csv.DictReader(lines, dialect="excel-tab")}


def gain_of(row):
    return math.inf if row["gain"] == ONLY else float(row["gain"] or 0)


def wins(row):
    return gain_of(row) >= LEAST_GAIN


def write_table(rows, reasons):
    with open(TABLE, "w", newline="") as output:
        table = csv.DictWriter(output, COLUMNS, dialect="excel-tab", lineterminator="\n")
        table.writeheader()
        for (family, axis, value), row in rows.items():
            reason = "" if wins(row) else reasons.get((family, axis, value), {}).get("reason", "")
            table.writerow(row | {"family": family, "axis": axis, "value": value, "reason": reason})


def faults(families, table):
    """Sentences about what is wrong."""
    points = {(family, axis, value) for family, axes in families.items() for axis, (values, _) in axes.items()
              for value in values}
    for point in sorted(points - table.keys()):
        yield f"{' '.join(point)}: no row; the generator offers it"
    for point in sorted(table.keys() - points):
        yield f"{' '.join(point)}: the generator does not offer it"
    for point in sorted(points & table.keys()):
        row = table[point]
        if not wins(row) and not row["reason"]:
            yield f"{' '.join(point)}: it wins nowhere (timed for {row['tried']} problems), and no reason is given"
        if wins(row) and not (row["device"] and row["shape"]):
            yield f"{' '.join(point)}: its gain names no device or no shape"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run-lua", required=True)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--add", action="store_true")
    parser.add_argument("exports", nargs="*", metavar="EXPORT")
    args = parser.parse_args()
    if args.check == bool(args.exports) or (args.check and args.add):
        parser.error("give either --check or exports")
    families = offered(args.run_lua)
    if not args.check:
        times = collections.defaultdict(dict)
        for path in args.exports:
            read(path, times)
        rows, table = find_wins(times, families), read_table()
        if args.add:
            add_wins(rows, table)
        write_table(rows, table)
    found = list(faults(families, read_table()))
    for fault in found:
        print("axis_winners.py: " + fault, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
