"""Check what a page of `fa2-tune report --html --against` says of two databases that have no device in common.

usage: report_against.py PAGE DATABASE OTHER
"""

import math
import re
import sqlite3
import statistics
import sys

FIELDS = "op, batch, heads_q, heads_kv, seq_q, seq_k, head_dim, causal"


def winners(path):
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    rows = database.execute(f"SELECT source, coalesce(median_us, model_us), {FIELDS} FROM winners").fetchall()
    return {row[2:]: row[:2] for row in rows}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    here, there = winners(sys.argv[2]), winners(sys.argv[3])
    both = here.keys() & there.keys()
    ratios = [there[each][1] / here[each][1] for each in both if here[each][0] == there[each][0]]
    mixed = len(both) - len(ratios)
    wanted = [f"{len(both)} problems in both; {len(here) - len(both)} only here, {len(there) - len(both)} only there",
              f"In {mixed} row", f"<dd>{math.exp(statistics.fmean(map(math.log, ratios))):.3f}<small>",
              f"geometric mean over {len(ratios)} problem"]
    missing = [each for each in wanted if each not in text]
    marked = len(re.findall(r"measured / modelled|modelled / measured", text))
    if missing or marked != mixed or mixed == 0:
        sys.exit(f"FAILED: {missing}, {marked} rows are marked of {mixed}")


main()
