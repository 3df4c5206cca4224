#!/usr/bin/env python3
"""How good the choice is for problems that nobody tuned.

Random problems (prefill, decode, chunked prefill) are tuned, all in one database. From it smaller databases are
made, by taking away what was measured on some problems: none of them, all that are in no preset, all but one. In each,
`fa2-tune explain` says which kernel the runtime would take for each random problem; the time of that kernel on the
problem over the time of the problem's winner is the figure. A kernel whose code is not in the smaller database counts
as one that would be compiled.

    tests/bench/untuned.py --tool build-release/tuner/fa2-tune --device 0 --db untuned.db --out untuned.csv

Minutes; where a session is shorter, `--seconds 500` stops tuning then, ends with status 75, and the same command goes on from
there, or, with --partial, judges by what is tuned. `--arch sm_90` instead of `--device` looks at a database that is there already. Options: --seeds 1,2,3 of 30
problems each, --presets paper,seeds,llm, --jobs. Needs nothing but Python. The database is what tests/bench/replay.lua and
fit.lua read.
"""
import argparse
import concurrent.futures
import contextlib
import csv
import json
import math
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

FIELDS = "batch heads_q heads_kv seq_q seq_k head_dim dtype causal".split()
KEYS = "B Hq Hkv Sq Sk D dtype causal".split()
DIMS = [16, 32, 40, 48, 64, 64, 64, 80, 96, 112, 128, 128, 128, 128, 160, 192, 224, 256]
ALIKE = 31  # problems of one model, for leaving one out


# ---- problems: tuples in the order of FIELDS ----

def log_uniform(r, least, most):
    return int(least * (most / least) ** r.random() + 0.5)


def random_heads(r):
    kv = r.choice([1, 2, 4, 8, 16, 32])
    group = r.choice([1, 1, 2, 4, 8])
    return (kv * group if kv * group <= 64 else kv), kv


def random_sizes(r, kind):
    if kind == "decode":
        return log_uniform(r, 1, 96), 1 if r.random() < 0.8 else r.choice([2, 4, 8]), log_uniform(r, 256, 65536)
    if kind == "chunked":
        seq_q = log_uniform(r, 16, 1024)
        return log_uniform(r, 1, 4), seq_q, seq_q + log_uniform(r, 256, 32768)
    seq = log_uniform(r, 64, 8192)
    return log_uniform(r, 1, 16), seq, seq


def is_modest(problem):
    """Neither a launch alone nor longer than some milliseconds on a large card."""
    batch, heads_q, heads_kv, seq_q, seq_k, head_dim, _, causal = problem
    flop = 4 * batch * heads_q * seq_q * seq_k * head_dim / (1 + causal * (seq_q == seq_k))
    return 4 * batch * heads_kv * seq_k * head_dim < 4e8 and flop < 4e11 and (seq_q <= 8 or flop > 2e8)


def random_problem(r, kind, model=None):
    while True:
        head_dim, dtype = model[2:] if model else (r.choice(DIMS), r.choice(["fp16", "fp16", "bf16"]))
        heads_q, heads_kv = model[:2] if model else random_heads(r)
        causal = 1 if model or kind == "chunked" else r.randrange(2)
        batch, seq_q, seq_k = random_sizes(r, kind)
        problem = (batch, heads_q, heads_kv, seq_q, seq_k, head_dim, dtype, causal)
        if is_modest(problem):
            return problem


def random_problems(seed, count):
    r = random.Random(seed)
    return [random_problem(r, ("prefill", "decode", "chunked")[i % 3]) for i in range(count)]


def alike_problems(count):
    r = random.Random(0)
    return [random_problem(r, ("decode", "decode", "prefill", "chunked")[i % 4], (32, 8, 128, "bf16")) for i in range(count)]


def kind_of(problem):
    return "decode" if problem[3] <= 8 else "prefill" if problem[3] == problem[4] else "chunked"


def text_of(problem):
    return " ".join(f"{key}={value}" for key, value in zip(KEYS, problem))


def write_shapes(path, problems):
    with open(path, "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(FIELDS)
        writer.writerows(problems)


# ---- databases ----

def problem_ids(db):
    plain = {name for name in (row[1] for row in db.execute("PRAGMA table_info(problem)"))
             if name not in FIELDS + ["id", "op", "class", "gflop"]}
    words = {"sums": "fp32", "scores": "exact", "pv": "exact", "kv": "dtype", "kv_scales": "fp32"}  # of defaults
    where = "op = 'forward'" + "".join(f" AND {name} IN (0, '{words.get(name, 'none')}')" for name in sorted(plain))
    return {tuple(row[1:]): row[0] for row in db.execute(f"SELECT id, {', '.join(FIELDS)} FROM problem WHERE {where}")}


def times_of(db, ids):
    """problem -> variant -> us, and problem -> us of the winner."""
    times, best = {}, {}
    names = {ids[problem]: problem for problem in ids}
    for problem, variant, us in db.execute(
            "SELECT m.problem, k.variant, m.median_us FROM measurement m JOIN kernel k ON k.id = m.kernel "
            "WHERE m.outcome = 'ok' AND m.n > 0"):
        if problem in names:
            times.setdefault(names[problem], {})[variant] = us
    for problem, us in db.execute("SELECT problem, iif(measured, median_us, model_us) FROM winner"):
        if problem in names:
            best[names[problem]] = us
    return times, best


def keep_only(source, path, kept):
    """A copy in which only these problems (ids) were tuned. That a kernel spills stays known: the runtime finds it out by
    compiling, and takes the next one."""
    shutil.copyfile(source, path)
    db = sqlite3.connect(path)
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("CREATE TEMP TABLE kept (id INTEGER PRIMARY KEY)")
    db.executemany("INSERT INTO kept VALUES (?)", [(one,) for one in kept])
    for table in ("winner", "measurement"):
        db.execute(f"DELETE FROM {table} WHERE problem NOT IN (SELECT id FROM kept)")
    gone = "id NOT IN (SELECT kernel FROM measurement) AND id NOT IN (SELECT kernel FROM winner)"
    db.execute(f"DELETE FROM verification WHERE kernel IN (SELECT id FROM kernel WHERE {gone})")
    db.execute(f"DELETE FROM kernel WHERE {gone} AND outcome = 'ok'")
    db.execute("DELETE FROM problem WHERE id NOT IN (SELECT problem FROM measurement)")
    db.commit()
    db.close()
    os.chmod(path, 0o600)


# ---- the choice ----

def explain(args, path, problems, folder):
    """problem -> variant that would be taken, its rule, the estimate."""
    shapes = os.path.join(folder, f"asked-{os.path.basename(path)}-{abs(hash(problems[0]))}.csv")
    write_shapes(shapes, problems)
    where = ["--arch", args.arch] if args.arch else ["--device", str(args.device)]
    done = subprocess.run([args.tool, "explain", "--db", path, "--shapes", shapes, "--json", *where],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"fa2-tune explain --db {path}: {done.stderr}")
    return {problem: (one["variant"], one["rule"], one["estimate_us"])
            for problem, one in zip(problems, json.loads(done.stdout))}


def ask(args, trial, folder):
    keep_only(args.db, trial.path, trial.kept)
    return explain(args, trial.path, trial.asked, folder)


def quantile(values, share):
    values = sorted(values)
    return values[max(0, math.ceil(share * len(values)) - 1)]


def report(name, ratios):
    """ratios: list of (ratio, problem, variant)."""
    if not ratios:
        return
    values = [ratio for ratio, *_ in ratios]
    mean = math.exp(sum(map(math.log, values)) / len(values))
    print(f"{name}: {len(values)} problems, geometric mean {mean:.3f}, 90th percentile {quantile(values, 0.9):.3f}, "
          f"worst {max(values):.3f}")


class Trial:
    """Problems asked of a database in which only some (ids) were tuned."""

    def __init__(self, name, path="", asked=(), kept=()):
        self.name, self.path, self.asked, self.kept = name, path, asked, kept
        self.ratios, self.unknown = [], []

    def judge(self, chosen, times, best):
        for problem in self.asked:
            variant, rule, _ = chosen[problem]
            us = times[problem].get(variant)
            if us is None:
                self.unknown.append((problem, variant, rule))
            else:
                self.ratios.append((us / best[problem], problem, variant, rule))

    def print(self):
        report(self.name, self.ratios)
        for kind in ("prefill", "decode", "chunked"):
            report(f"  {kind}", [one for one in self.ratios if kind_of(one[1]) == kind])
        for ratio, problem, variant, rule in sorted(self.ratios, reverse=True)[:5]:
            print(f"    {ratio:.3f} {text_of(problem)}: {rule}, {variant}")
        for problem, variant, rule in self.unknown:
            print(f"    not timed: {text_of(problem)}: {rule}, {variant}")


def tune(args, problems, folder):
    """Whether all that is to be tuned is."""
    shapes = os.path.join(folder, "random.csv")
    write_shapes(shapes, problems)
    presets = [word for name in args.presets.split(",") if name for word in ("--preset", name)]
    complete = True
    for what in (["--shapes", shapes], *([[*presets, "--op", "forward"]] if presets else [])):
        began = time.monotonic()
        command = [args.tool, "tune", "--device", str(args.device), "--db", args.db, "--json", *what]
        command += ["--jobs", str(args.jobs)] if args.jobs else []
        command += ["--budget", str(max(1, round(args.end - began)))] if args.end else []
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        print(f"{' '.join(what)}: {time.monotonic() - began:.0f} s; {done.stderr.splitlines()[-1] if done.stderr else ''}",
              flush=True)
        if not done.stdout:
            sys.exit(f"fa2-tune: status {done.returncode}")
        left = sum(one["state"] == "open" for one in json.loads(done.stdout)["problems"])
        complete = complete and left == 0
    return complete


def make_trials(args, db, ids, asked, alike, folder):
    tuned = {row[0] for row in db.execute("SELECT problem FROM winner")}
    random_ids = {ids[problem] for problem in asked + alike if problem in ids}
    trials = [Trial("no database", os.path.join(folder, "none.db"), asked),
              Trial(f"presets {args.presets}", os.path.join(folder, "presets.db"), asked, tuned - random_ids)]
    for kind in ("prefill", "decode"):
        for i, one in enumerate([problem for problem in asked if kind_of(problem) == kind][:: args.stride]):
            neighbour = [problem for problem in asked if problem[5] == one[5] and problem != one]
            if neighbour:
                path = os.path.join(folder, f"{kind}{i}.db")
                trials.append(Trial(f"one tuned: {text_of(one)}", path, neighbour, [ids[one]]))
    for i, one in enumerate(alike):
        kept = [ids[problem] for problem in alike if problem != one]
        trials.append(Trial("all but one of a model's", os.path.join(folder, f"alike{i}.db"), [one], kept))
    return trials


def against_none(trials):
    """Time with a database over time without one, per problem."""
    none = {problem: ratio for ratio, problem, *_ in trials[0].ratios}
    return [(ratio / none[problem], problem, f"{trial.name}: {variant}") for trial in trials[1:]
            for ratio, problem, variant, _ in trial.ratios if problem in none]


def summarize(trials):
    for trial in trials[:2]:
        trial.print()
    single = [trial for trial in trials[2:] if trial.name.startswith("one tuned")]
    merged = Trial("databases with one tuned problem")
    merged.ratios = [one for trial in single for one in trial.ratios]
    merged.unknown = [one for trial in single for one in trial.unknown]
    merged.print()
    rest = Trial(f"one of {ALIKE} problems of a model, the others tuned")
    rest.ratios = [one for trial in trials[2:] if trial not in single for one in trial.ratios]
    rest.unknown = [one for trial in trials[2:] if trial not in single for one in trial.unknown]
    rest.print()
    compared = against_none(trials[:2] + single)
    report("any database against none", compared)
    for ratio, problem, what in sorted(compared, reverse=True)[:5]:
        print(f"    {ratio:.3f} {text_of(problem)}; {what}")


def write_rows(path, trials):
    with open(path, "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["database", *FIELDS, "ratio", "rule", "variant"])
        for trial in trials:
            for ratio, problem, variant, rule in trial.ratios:
                writer.writerow([trial.name, *problem, f"{ratio:.4f}", rule, variant])


def parser_of(description):
    """Returns a parser with the options that elsewhere.py has, too."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--db", required=True, help="the database of this card's random problems")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--count", type=int, default=30, help="problems per seed")
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0, help="for tuning; what is left is for the next call")
    parser.add_argument("--out", help="CSV of all ratios")
    return parser


def options():
    parser = parser_of(__doc__)
    parser.add_argument("--arch", help="do not tune: the card that stands for this SM")
    parser.add_argument("--presets", default="paper,seeds,llm")
    parser.add_argument("--stride", type=int, default=5, help="every n-th problem is the one of a database")
    parser.add_argument("--partial", action="store_true", help="judge by what is tuned when the time is over")
    parser.add_argument("--work", help="an empty folder where the smaller databases stay")
    return parser.parse_args()


def main():
    args = options()
    args.end = time.monotonic() + args.seconds if args.seconds else 0
    asked = list(dict.fromkeys(problem for seed in args.seeds.split(",") for problem in random_problems(seed, args.count)))
    alike = list(dict.fromkeys(alike_problems(ALIKE)))
    with contextlib.ExitStack() as stack:
        folder = args.work or stack.enter_context(tempfile.TemporaryDirectory())
        if not args.arch:
            if not tune(args, asked + alike, folder) and not args.partial:
                print("not everything is tuned yet: the same command goes on from here")
                sys.exit(75)
        db = sqlite3.connect(args.db)
        ids = problem_ids(db)
        times, best = times_of(db, ids)
        asked = [problem for problem in asked if problem in best]
        alike = [problem for problem in alike if problem in best]
        if not asked:
            sys.exit("no problem is tuned")
        print(f"{len(asked)} random problems were tuned, and {len(alike)} of one model")
        trials = make_trials(args, db, ids, asked, alike, folder)
        db.close()
        with concurrent.futures.ThreadPoolExecutor(args.jobs or os.cpu_count()) as pool:
            found = list(pool.map(lambda trial: ask(args, trial, folder), trials))
        for trial, chosen in zip(trials, found):
            trial.judge(chosen, times, best)
        summarize(trials)
        if args.out:
            write_rows(args.out, trials)


if __name__ == "__main__":
    main()
