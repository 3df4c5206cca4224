"""Alternatives of one problem, timed in turns: what cache8.py and permitted.py share."""

import argparse
import statistics
from typing import Any, Callable, Dict, List


def arguments(doc: str, shapes: str) -> argparse.ArgumentParser:
    """A parser of the options that both have. shapes: the default ones, for the help."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--db")
    parser.add_argument("--arch", type=int, default=0)
    parser.add_argument("--shape", action="append", help=f"as for fa2-tune; default: {shapes}")
    parser.add_argument("--rounds", type=int, default=15)
    return parser


def report(shape: Any, outputs: Dict[str, Any], timers: Dict[str, Callable[[], float]], variants: Dict[str, str],
           rounds: int) -> None:
    """Prints the median time of each alternative, the first one's over it, the relative L1 distance of O from the first
    one's, and the kernel. timers: return microseconds."""
    times: Dict[str, List[float]] = {name: [] for name in timers}
    for _ in range(rounds):
        for name, timer in timers.items():
            times[name].append(timer())
    first = next(iter(timers))
    print(shape)
    for name in timers:
        us = statistics.median(times[name])
        distance = (outputs[name] - outputs[first]).abs().sum() / outputs[first].abs().sum()
        print(f"  {name:24} {us:9.1f} us  {statistics.median(times[first]) / us:5.3f}  {100 * distance.item():5.2f} %  "
              f"{variants[name]}")
