#!/usr/bin/env python3
"""Reduces an export or a field report to the rows that estimates use, so that it can be shipped.

Usage: ship.py [--op OP] [--drop TEXTS] [--slower X] < EXPORT > FILE.jsonl
       ship.py REPORT [--op OP] [--drop TEXTS] [--slower X]

The second form writes a file beside this one, named after the card: nvidia_geforce_rtx_3060_field.jsonl. It prints the
row for the table in README.md. It refuses times of a software device, and a file of several cards.

It leaves out
- kernels that a card refuted, or whose measurement failed
- verifications
- variants that were not timed, unless they spilled
- times of more than X (SLOWER) times the best time of their problem: no model ranks such a kernel first
- with --op: other operations
- with --drop: the kernels of the variants that a file names, one a line. Use it for kernels that gen/ makes differently
  now; tests/test_shipped.c names them.
- rows that no other row refers to any more

The times of a card come first from its owner: README.md says how they are sent.

It rounds times to DIGITS digits, and writes a new last line. The result passes the checks of import. A shipped file may
be reduced again.
"""
import argparse
import collections
import hashlib
import json
import pathlib
import re
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


def is_kept(row, best, slower):
    """Returns true if a row is worth keeping for its own content."""
    if row["type"] == "measurement":
        return is_time(row) and row["median_us"] <= slower * best[row["problem"]]
    return row["type"] not in ("verification", "code")


def read(path):
    """Returns the header, and the rows between it and the last line. path: None is standard input."""
    text = path.read_text(encoding="utf-8") if path else sys.stdin.read()
    header, *lines = text.splitlines() or [""]
    if '"fa2_export":2' not in header:
        sys.exit(f"ship.py: {path or 'standard input'} is no export of format 2")
    rows, above = [], header + "\n"
    for line in lines:
        row = json.loads(line)
        if row.get("type") == "end":
            if row["sha256"] != hashlib.sha256(above.encode()).hexdigest():
                sys.exit(f"ship.py: {path or 'standard input'} was changed: its last line has another hash")
            return header, rows
        rows.append(row)
        above += line + "\n"
    sys.exit(f"ship.py: {path or 'standard input'} was cut: it has no last line")


def card_of(rows):
    """Returns the only card of the rows."""
    modelled = {row["id"] for row in rows if row["type"] == "session" and row["modelled"]}
    if any(row["type"] == "measurement" and row["session"] in modelled for row in rows):
        sys.exit("ship.py: the times are of a software device")
    cards = [row for row in rows if row["type"] == "device" and row["real"]]
    if len(cards) != 1:
        sys.exit(f"ship.py: the file has {len(cards)} cards; give a file of one card")
    return cards[0]


def tell(card, rows, path):
    """Prints the row of README.md's table, and what to run."""
    problems = sum(row["type"] == "problem" for row in rows)
    times = sum(row["type"] == "measurement" for row in rows)
    day = max(row["measured_at"] for row in rows if row["type"] == "measurement")[:10]
    print(f"| {path.name} | {card['name']} | `field-report`: {problems} problems, {times} times, {day} |")
    print("Put this row into README.md here, build, and run `ctest -R '^(test_shipped|sim_share)$'`.", file=sys.stderr)


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


def shipped(header, rows):
    """Returns the text of a file with these rows."""
    text = "".join(line + "\n" for line in [header, *map(text_of, rows)])
    end = {"type": "end", "rows": len(rows), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    return text + json.dumps(end, separators=(",", ":")) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", nargs="?", type=pathlib.Path, help="an export or a field report of one card")
    parser.add_argument("--op", help="forward or backward; default: all")
    parser.add_argument("--drop", type=pathlib.Path, help="a file of variants, one a line")
    parser.add_argument("--slower", type=float, default=SLOWER, help=f"default: {SLOWER}")
    args = parser.parse_args()
    if args.report is None and sys.stdin.isatty():
        parser.error("name a report, or give an export as standard input")
    header, rows = read(args.report)
    card = card_of(rows) if args.report else None
    rows = of_operation(rows, args.op)
    rows = without(rows, set(args.drop.read_text().splitlines()) if args.drop else set())
    best = collections.defaultdict(lambda: float("inf"))
    for row in filter(is_time, rows):
        best[row["problem"]] = min(best[row["problem"]], row["median_us"])
    rows = [row for row in rows if is_kept(row, best, args.slower)]
    used = {kind: {row[kind] for row in rows if row["type"] != "session" and kind in row} for kind in PLACE}
    kept = [row for row in rows if row["type"] not in PLACE or row[PLACE[row["type"]]] in used[row["type"]]
            or is_spilled(row, args.op)]
    if card is None:
        sys.stdout.write(shipped(header, kept))
        return
    if not any(row["type"] == "measurement" for row in kept):
        sys.exit("ship.py: the file has no times")
    name = re.sub(r"[^a-z0-9]+", "_", card["name"].lower()).strip("_")
    path = pathlib.Path(__file__).with_name(f"{name}_field.jsonl")
    path.write_text(shipped(header, kept), encoding="utf-8")
    tell(card, kept, path)


try:
    main()
except (OSError, UnicodeDecodeError) as error:
    sys.exit(f"ship.py: {error}")
