"""Reports measurements as CSV, as Markdown and on the terminal."""

import csv
import math
import statistics
from dataclasses import astuple
from typing import Any, Dict, Iterable, Iterator, List, Sequence, TextIO, Tuple

from .shapes import COLUMNS, FIELDS

CSV_HEADER = (*FIELDS, "pass", "implementation", "median_us", "q1_us", "q3_us", "tflops", "max_abs_diff", "rule",
              "variant", "workspace_bytes")


def csv_rows(result: Any) -> Iterator[List[Any]]:
    for name, (median, q1, q3) in result.times.items():
        diff = f"{result.differences[name][0]:.3g}" if name in result.differences else ""
        own = [result.rule, result.variant, result.workspace_bytes] if name == "fa2" else ["", "", ""]
        yield [*astuple(result.shape), result.which, name, f"{median:.2f}", f"{q1:.2f}", f"{q3:.2f}",
               f"{result.shape.tflops(result.which, median):.1f}", diff, *own]


class CsvFile:
    """Writes each row at once, so that finished measurements survive if the run fails."""

    def __init__(self, target: TextIO):
        self._target, self._writer = target, csv.writer(target, lineterminator="\n")
        self._writer.writerow(CSV_HEADER)

    def add(self, result: Any) -> None:
        self._writer.writerows(csv_rows(result))
        self._target.flush()


def geomean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def header(others: Sequence[str]) -> List[str]:
    return ["pass", *COLUMNS, "fa2 µs", "spread", "TFLOPS", *(f"{name} µs" for name in others),
            *(f"{name}/fa2" for name in others), "max diff", "rule"]


def cells(result: Any, others: Sequence[str]) -> List[str]:
    """Returns a row under the header. The spread is the interquartile range over the median."""
    row, times = [result.which, *result.shape.cells()], result.times
    if "fa2" in times:
        median, q1, q3 = times["fa2"]
        row += [f"{median:.1f}", f"{100 * (q3 - q1) / median:.1f} %",
                f"{result.shape.tflops(result.which, median):.0f}"]
    else:
        row += ["–"] * 3
    row += [f"{times[name].median:.1f}" if name in times else "–" for name in others]
    row += [f"{result.ratio(name):.2f}" if result.ratio(name) else "–" for name in others]
    row += [f"{result.differences['fa2'][0]:.1e}" if "fa2" in result.differences else "–", result.rule or "–"]
    return row


class Terminal:
    """Prints rows as they come. Columns are as wide as the widest expected cell."""

    def __init__(self, shapes: Sequence[Any], others: Sequence[str]):
        self._others = others
        head = header(others)
        self._widths = [max(len(name), 7) for name in head]
        self._widths[0] = len("backward")
        for i in range(len(COLUMNS)):
            self._widths[1 + i] = max(len(text) for text in (COLUMNS[i], *(shape.cells()[i] for shape in shapes)))
        self._print(head)

    def _print(self, row: Iterable[str]) -> None:
        print("  ".join(f"{text:>{width}}" for text, width in zip(row, self._widths)), flush=True)

    def add(self, result: Any, failure: str) -> None:
        self._print(cells(result, self._others))
        if failure:
            print(f"FAILED: {failure}", flush=True)


SUMMARY_HEADER = ["time of … / time of fa2", "pass", "geometric mean", "worst", "best", "shapes"]


def summary(results: Sequence[Any], others: Sequence[str]) -> Iterator[List[str]]:
    """Summarises the shapes that both ran. If some have a single query, a second line is without them."""
    for which in dict.fromkeys(result.which for result in results):
        for name in others:
            pairs = [(r.shape, r.ratio(name)) for r in results if r.which == which and r.ratio(name)]
            groups = {which: [ratio for _, ratio in pairs]}
            if any(shape.seq_q == 1 for shape, _ in pairs):
                groups[f"{which}, S > 1"] = [ratio for shape, ratio in pairs if shape.seq_q > 1]
            for title, ratios in groups.items():
                if ratios:
                    yield [name, title, f"{geomean(ratios):.3f}", f"{min(ratios):.3f}", f"{max(ratios):.3f}",
                           f"{len(ratios)}"]


DECODE_HEADER = ["decoding", "K and V, MB", "fa2 GB/s", "copy GB/s", "share"]


def decoding(results: Sequence[Any]) -> Iterator[List[str]]:
    """Yields the bandwidth of decoding steps, and of a copy that moves as many bytes."""
    for r in results:
        if r.ratio("copy"):
            size = r.shape.kv_bytes()
            fa2, copy = (size / r.times[name].median / 1e3 for name in ("fa2", "copy"))
            yield [str(r.shape), f"{size / 1e6:.0f}", f"{fa2:.0f}", f"{copy:.0f}", f"{100 * fa2 / copy:.0f} %"]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines if len(lines) > 1 else ():
        print("  ".join(f"{text:<{width}}" for text, width in zip(line, widths)).rstrip())


def markdown(results: Sequence[Any], others: Sequence[str], facts: Sequence[str], picture: str) -> str:
    """Returns the whole report. picture: the file name of the picture in the same folder."""
    parts = ["# fa2 and other attention implementations: GPU time of one call\n",
             "\n".join(f"- {line}" for line in facts) + "\n",
             markdown_table(SUMMARY_HEADER, summary(results, others))]
    decode = list(decoding(results))
    if decode:
        parts.append(markdown_table(DECODE_HEADER, decode))
    parts += [f"![times over those of fa2]({picture})\n",
              "Above 1: fa2 is faster. Spread: interquartile range over the median. Max diff: largest absolute "
              "difference of fa2's output or gradients from those of the first other one that ran. TFLOPS as papers count them:"
              " backward 2.5 times forward, half of all when causal.\n",
              markdown_table(header(others), (cells(r, others) for r in results))]
    notes: Dict[Tuple[str, str], List[str]] = {}
    for r in results:
        for name, why in r.missing.items():
            notes.setdefault((name, why), []).append(f"{r.shape} {r.which}")
    if notes:
        parts.append("Left out:\n")
        parts += [f"- {name}: {why}: {'; '.join(where)}" for (name, why), where in notes.items()]
    return "\n".join(parts) + "\n"
