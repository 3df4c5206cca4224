#!/usr/bin/env python3
"""An export made fit to ship: without what no estimate rests on. Usage: ship.py < EXPORT > FILE.jsonl

Left out are verifications that found nothing, variants that were not timed, and what nothing refers to any more. The
last line is made anew; what import checks holds as before.
"""
import hashlib
import json
import sys

FAILURES = ("wrong", "fault", "hang", "launch_error")


def is_kept(row):
    """Whether a row says anything by itself."""
    if row["type"] == "verification":
        return row["outcome"] != "ok"
    if row["type"] == "measurement":
        return row["outcome"] in FAILURES or (row["outcome"] == "ok" and row["n"] > 0)
    return True


def main():
    header, *lines = sys.stdin.read().splitlines()
    if '"fa2_export":2' not in header:
        sys.exit("ship.py: standard input is no export of format 2")
    rows = []
    for line in lines:
        row = json.loads(line)
        if row.get("type") == "end":
            break
        rows.append((row, line))
    rows = [(row, line) for row, line in rows if is_kept(row)]
    used = {kind: {row[kind] for row, _ in rows if row["type"] != "session" and kind in row}
            for kind in ("device", "problem", "session", "kernel")}
    place = {"device": "id", "problem": "id", "session": "id", "kernel": "key"}
    kept = [line for row, line in rows
            if row["type"] not in place or row[place[row["type"]]] in used[row["type"]]]
    text = "".join(line + "\n" for line in [header, *kept])
    sys.stdout.write(text)
    end = {"type": "end", "rows": len(kept), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    print(json.dumps(end, separators=(",", ":")))


main()
