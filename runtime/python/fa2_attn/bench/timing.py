"""Measures GPU times: graphs of many calls are replayed in rounds, each round in a new random order.

Drifts of clock and temperature then affect all implementations alike. A time is the GPU time of one call. It includes
no launch cost of the host. The L2 cache is as warm as consecutive calls leave it.
"""

import random
import statistics
import time
from typing import Any, Callable, Dict, List, NamedTuple

import torch

GRAPH_MS = 2.0  # target time of a graph
MAX_CALLS = 64


class Graph(NamedTuple):
    graph: torch.cuda.CUDAGraph
    calls: int


class Times(NamedTuple):
    """Microseconds per call."""

    median: float
    q1: float
    q3: float


def _replay_ms(graph: torch.cuda.CUDAGraph) -> float:
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    graph.replay()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop))


def _capture(call: Callable[[], Any], calls: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    # In the current stream, because autograd runs in the stream in which forward ran.
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        for _ in range(calls):
            call()
    return graph


def graph_of(call: Callable[[], Any]) -> Graph:
    """Warms up, and returns a graph of calls. A short graph tells first how many calls fill GRAPH_MS.

    The current stream must not be the default one.
    """
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    probe = _capture(call, 4)
    _replay_ms(probe)
    one_ms = _replay_ms(probe) / 4
    calls = max(1, min(MAX_CALLS, round(GRAPH_MS / one_ms)))
    graph = _capture(call, calls)
    _replay_ms(graph)
    return Graph(graph, calls)


def time_all(graphs: Dict[str, Graph], rounds: int, order: random.Random, rest_ms: float = 0) -> Dict[str, Times]:
    """rest_ms: idle time before each sample. A card at its power limit needs it to regain its clocks."""
    samples: Dict[str, List[float]] = {name: [] for name in graphs}
    for _ in range(rounds):
        names = list(graphs)
        order.shuffle(names)
        for name in names:
            graph, calls = graphs[name]
            time.sleep(rest_ms / 1e3)
            _replay_ms(graph)  # warms L2 and clocks, because another implementation ran before
            samples[name].append(_replay_ms(graph) / calls * 1e3)
    times = {}
    for name, values in samples.items():
        q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive")
        times[name] = Times(median, q1, q3)
    return times
