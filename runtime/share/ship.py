#!/usr/bin/env python3
"""An export made fit to ship: without what no estimate rests on.

Usage: ship.py [--op OP] [--drop TEXTS] < EXPORT > FILE.jsonl

Left out are verifications that found nothing, variants that were not timed, unless they spilled, times of more than
SLOWER times the best of their problem (no model takes such a kernel for the best), and what nothing refers to any
more; with --op also the other operations. Times have DIGITS digits. The last line is made anew; what import checks
holds as before. --drop names a file of variants, one a line, whose kernels are left out: those that gen/ makes
otherwise now (tests/test_shipped.c says which). What was shipped may be made fit again.
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
    """Whether it is a kernel of the operation of which it is worth knowing that it spills."""
    if row["type"] != "kernel" or row["outcome"] != "spilled":
        return False
    return op is None or row["recipe"].startswith(f"op={op} ")


def is_kept(row, best):
    """Whether a row says anything by itself."""
    if row["type"] == "verification":
        return row["outcome"] != "ok"
    if row["type"] == "measurement":
        return row["outcome"] in FAILURES or (is_time(row) and row["median_us"] <= SLOWER * best[row["problem"]])
    return True


def read():
    """The header and the rows between it and the last one."""
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
    """Without the other operations' problems, and what is about them."""
    asked = {row["id"] for row in rows if row["type"] == "problem" and op in (None, row["op"])}
    return [row for row in rows if (row["id"] if row["type"] == "problem" else row.get("problem")) in asked | {None}]


def without(rows, texts):
    """Without the kernels of these variants, and what is about them."""
    dropped = {row["key"] for row in rows if row["type"] == "kernel" and row["variant"] in texts}
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
