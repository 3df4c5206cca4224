#!/usr/bin/env python3
"""Reduces an export to the rows that estimates use, so that it can be shipped.

Usage: ship.py [--op OP] [--drop TEXTS] < EXPORT > FILE.jsonl

It leaves out
- kernels that a card refuted, or whose measurement failed
- verifications
- variants that were not timed, unless they spilled
- times of more than SLOWER times the best time of their problem: no model ranks such a kernel first
- with --op: other operations
- with --drop: the kernels of the variants that a file names, one a line. Use it for kernels that gen/ makes differently
  now; tests/test_shipped.c names them.
- rows that no other row refers to any more

It rounds times to DIGITS digits, and writes a new last line. The result passes the checks of import. A shipped file may
be reduced again.
"""
import argparse
import collections
import hashlib
import json
import pathlib
import sys

FAILURES = ("wrong", "fault", "hang", "launch_error")
SLOWER = 1.6
DIGITS = 5
PLACE = {"device": "id", "problem": "id", "session": "id", "kernel": "key"}


def is_time(row):
    return row["type"] == "measurement" and row["outcome"] == "ok" and row["n"] > 0


def is_spilled(row, op):
    """Returns true for a kernel of this operation that spilled. Estimates use this fact."""
    if row["type"] != "kernel" or row["outcome"] != "spilled":
        return False
    return op is None or row["recipe"].startswith(f"op={op} ")


def is_kept(row, best):
    """Returns true if a row is worth keeping for its own content."""
    if row["type"] == "measurement":
        return is_time(row) and row["median_us"] <= SLOWER * best[row["problem"]]
    return row["type"] != "verification"


def read():
    """Returns the header, and the rows between it and the last line."""
    header, *lines = sys.stdin.read().splitlines()
    if '"fa2_export":2' not in header:
        sys.exit("ship.py: standard input is no export of format 2")
    rows = []
    for line in lines:
        row = json.loads(line)
        if row.get("type") == "end":
            break
        rows.append(row)
    return header, rows


def of_operation(rows, op):
    """Removes the problems of other operations, and the rows about them."""
    asked = {row["id"] for row in rows if row["type"] == "problem" and op in (None, row["op"])}
    return [row for row in rows if (row["id"] if row["type"] == "problem" else row.get("problem")) in asked | {None}]


def is_failure(row):
    return row["outcome"] in FAILURES if row["type"] in ("verification", "measurement") else False


def without(rows, texts):
    """Removes the kernels of these variants and those that failed, and the rows about them."""
    dropped = {row["key"] for row in rows if row["type"] == "kernel" and row["variant"] in texts}
    dropped |= {row["kernel"] for row in rows if is_failure(row)}
    return [row for row in rows if row.get("key") not in dropped and row.get("kernel") not in dropped]


def text_of(row):
    short = {name: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value for name, value in row.items()}
    return json.dumps(short, separators=(",", ":"), ensure_ascii=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", help="forward or backward; default: all")
    parser.add_argument("--drop", type=pathlib.Path, help="a file of variants, one a line")
    args = parser.parse_args()
    header, rows = read()
    rows = of_operation(rows, args.op)
    rows = without(rows, set(args.drop.read_text().splitlines()) if args.drop else set())
    best = collections.defaultdict(lambda: float("inf"))
    for row in filter(is_time, rows):
        best[row["problem"]] = min(best[row["problem"]], row["median_us"])
    rows = [row for row in rows if is_kept(row, best)]
    used = {kind: {row[kind] for row in rows if row["type"] != "session" and kind in row} for kind in PLACE}
    kept = [row for row in rows if row["type"] not in PLACE or row[PLACE[row["type"]]] in used[row["type"]]
            or is_spilled(row, args.op)]
    text = "".join(line + "\n" for line in [header, *map(text_of, kept)])
    sys.stdout.write(text)
    end = {"type": "end", "rows": len(kept), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    print(json.dumps(end, separators=(",", ":")))


main()
