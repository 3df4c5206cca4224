#!/usr/bin/env python3
"""How well a card without times is served by the times of another card of its SM.

Random problems, those of untuned.py, are tuned on this card. Then `fa2-tune explain` says which kernel an empty database
would get, first with the times in FOLDER alone (of the other card), then by the cost model alone. The figure is the
time of that kernel here over the time of the problem's winner here. A kernel that tuning did not time is timed by
`fa2-tune bench`, beside the winner.

    build/runtime/share/fa2_make_share folder/shipped.db runtime/share/nvidia_h200_*.jsonl
    tests/bench/elsewhere.py --tool build/tuner/fa2-tune --share folder --db random.db --out elsewhere.csv

Minutes; with `--seconds 120` tuning stops then, and what is tuned is judged. `--tuned`: tune nothing, judge what is in
the database. Needs nothing but Python.
"""
import concurrent.futures
import csv
import json
import math
import os
import sqlite3
import subprocess
import sys
import tempfile
import time

import untuned

PARTS = 16  # processes that explain at once


def explained(args, problems, folder, share):
    """problem -> variant, rule and estimate, of an empty database with these shipped times. share: "" is none."""
    def ask(number):
        part = problems[number::PARTS]
        shapes = os.path.join(folder, f"asked{number}.csv")
        untuned.write_shapes(shapes, part)
        done = subprocess.run([args.tool, "explain", "--device", str(args.device), "--db", os.path.join(folder, "none.db"),
                               "--shapes", shapes, "--json"], capture_output=True, text=True, check=False,
                              env={**os.environ, "FA2_SHARE": share})
        if not done.stdout:
            sys.exit(f"fa2-tune explain: {done.stderr}")
        return {problem: (one["variant"], one["rule"], one["estimate_us"]) for problem, one in zip(part, json.loads(done.stdout))}

    with concurrent.futures.ThreadPoolExecutor(args.jobs or os.cpu_count()) as pool:
        found = list(pool.map(ask, range(min(PARTS, len(problems)))))
    return {problem: answer for part in found for problem, answer in part.items()}


def benched(args, problems, folder, share, db):
    """problem -> times of the kernels that bench takes there, by their variants."""
    if not problems:
        return {}
    shapes = os.path.join(folder, "benched.csv")
    untuned.write_shapes(shapes, problems)
    done = subprocess.run([args.tool, "bench", "--device", str(args.device), "--db", db, "--shapes", shapes, "--json",
                           "--runs", "20"], capture_output=True, text=True, check=False,
                          env={**os.environ, "FA2_SHARE": share})
    if not done.stdout:
        sys.exit(f"fa2-tune bench: {done.stderr}")
    return {problem: {kernel["variant"]: kernel["median_us"] for kernel in one["kernels"] if kernel["outcome"] == "ok"}
            for problem, one in zip(problems, json.loads(done.stdout)["problems"])}


def judge(args, name, share, problems, times, best, folder):
    """Prints the ratios of one way to choose. Returns them: (ratio, problem, variant, rule)."""
    trial = untuned.Trial(name, asked=problems)
    trial.judge(explained(args, problems, folder, share), times, best)
    missing = [problem for problem, *_ in trial.unknown]
    own, chosen = (benched(args, missing, folder, share, db) for db in (args.db, os.path.join(folder, "none.db")))
    left = []
    for problem, variant, rule in trial.unknown:
        winner = min(own.get(problem, {}).values(), default=math.nan)
        us = chosen.get(problem, {}).get(variant, math.nan)
        if math.isnan(us / winner):
            left.append((problem, variant, rule))
        else:
            trial.ratios.append((us / winner, problem, variant, rule))
    trial.unknown = left
    trial.print()
    for rule in sorted({one[3] for one in trial.ratios}):
        untuned.report(f"  by the rule {rule}", [one for one in trial.ratios if one[3] == rule])
    return trial.ratios


def options():
    parser = untuned.parser_of(__doc__)
    parser.set_defaults(seeds="1,2")
    parser.add_argument("--share", required=True, help="a folder with a shipped.db of the other card alone")
    parser.add_argument("--tuned", action="store_true", help="tune nothing")
    return parser.parse_args()


def main():
    args = options()
    args.end, args.presets = time.monotonic() + args.seconds if args.seconds else 0, ""
    asked = list(dict.fromkeys(one for seed in args.seeds.split(",") for one in untuned.random_problems(seed, args.count)))
    with tempfile.TemporaryDirectory() as folder:
        if not args.tuned:
            untuned.tune(args, asked, folder)
        db = sqlite3.connect(args.db)
        times, best = untuned.times_of(db, untuned.problem_ids(db))
        db.close()
        asked = [problem for problem in asked if problem in best]
        print(f"{len(asked)} random problems were tuned")
        rows = [(name, *one) for name, share in (("the other card's times", args.share), ("the model alone", ""))
                for one in judge(args, name, share, asked, times, best, folder)]
    if args.out:
        with open(args.out, "w", newline="", encoding="utf-8") as out:
            writer = csv.writer(out)
            writer.writerow(["chosen by", *untuned.FIELDS, "ratio", "rule", "variant"])
            writer.writerows([name, *problem, f"{ratio:.4f}", rule, variant] for name, ratio, problem, variant, rule in rows)


if __name__ == "__main__":
    main()
