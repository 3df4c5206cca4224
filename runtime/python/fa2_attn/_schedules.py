"""How a group's schedules compare: the link and the host are measured once, the work is counted, and times of calls
add to that.

A schedule is a list of steps, in each of which a rank computes and its keys travel. The model needs two rates: of the
link, which measure() times, and of the kernels, which fa2's estimate of the rank's own attention gives. A call cannot
take less than the host needs for it, which calls of a few rows show.
"""

import statistics
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.distributed as dist

from ._shares import Kind

SCHEDULES = ("ring", "gather", "ulysses")

_LARGE, _SMALL, _ROUNDS = 1 << 26, 1 << 10, 5  # bytes that are passed on, and how often
_SURE = 0.9  # two runs of a short call differ by a tenth
_LAUNCH_US = 8.0  # of each call of a kernel: launches, and what they leave idle at both ends
_IN_A_ROW = 4     # calls that are timed together, so that the host prepares one while another runs, as with layers


class Link(NamedTuple):
    latency_us: float
    bytes_per_us: float  # one way, between neighbours, while all ranks send

    def us(self, size: float) -> float:
        return self.latency_us + size / self.bytes_per_us


class Work(NamedTuple):
    """The work of a group's ranks in one call, for the rank that does most."""
    ranks: int
    balanced: bool        # all ranks have equal work in each step
    causal: bool
    flop: float           # of the whole sequence, all heads
    keys: float           # bytes of a rank's K and V
    queries: float        # bytes of a rank's Q and O
    flop_per_us: float
    backward: bool        # gradients, too


def measure(group: Optional[dist.ProcessGroup], device: torch.device) -> Link:
    """Times messages from each rank to the next. All ranks get the slowest rank's times."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)

    def peer(step: int) -> int:
        other = (rank + step) % ranks
        return other if group is None else dist.get_global_rank(group, other)

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def round_us(size: int) -> float:
        sent, got = (torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2))
        times = []
        for _ in range(_ROUNDS):
            wait()
            begin = time.perf_counter()
            for _ in range(_IN_A_ROW):
                for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, peer(1), group),
                                                    dist.P2POp(dist.irecv, got, peer(-1), group)]):
                    work.wait()
            wait()
            times.append(1e6 * (time.perf_counter() - begin) / _IN_A_ROW)
        return sorted(times[1:])[len(times) // 2 - 1]  # the first one may open a connection

    small, large = round_us(_SMALL), round_us(_LARGE)
    slowest = torch.tensor([small, large], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX, group)
    latency, all_of_large = slowest.tolist()  # the host's time, which is in both, passes while a large one is under way
    return Link(latency, _LARGE / all_of_large)


def _passes_us(link: Link, computing: float, kernel_us: float, moved: float, steps: int) -> float:
    """Returns us of a ring: in each step the longer of computing and of passing on; nothing is passed on in the
    last."""
    step = computing / steps + kernel_us
    return step + (steps - 1) * max(step, link.us(moved))


def _ring_backward_us(link: Link, work: Work, step: float) -> float:
    """Returns us of a ring's backward. The first keys are there. Keys travel beside every step but the last two, and
    gradients, which are fp32, beside every step but the first."""
    first = step if work.ranks == 2 else max(step, link.us(work.keys))
    return first + (work.ranks - 2) * max(step, link.us(3 * work.keys)) + max(step, link.us(2 * work.keys))


def estimate(schedule: str, work: Work, link: Link) -> float:
    """Returns us of a call by the model."""
    ranks = work.ranks
    # With a causal mask and contiguous rows, the last rank has nearly twice the mean.
    uneven = 1.0 if work.balanced or not work.causal else 2 - 1 / ranks
    mean_us = work.flop / ranks / work.flop_per_us
    computing = mean_us * uneven
    if schedule == "ring":
        us = _passes_us(link, computing, _LAUNCH_US, work.keys, ranks)
        return us + (_ring_backward_us(link, work, 2.5 * computing / ranks + 2 * _LAUNCH_US) if work.backward else 0.0)
    if schedule == "gather":
        us = computing + 2 * _LAUNCH_US + link.us((ranks - 1) * work.keys)
        if work.backward:
            us += 2.5 * computing + 4 * _LAUNCH_US + 2 * link.latency_us + link.us(3 * (ranks - 1) * work.keys)
        return us
    moved = (work.keys + work.queries) * (ranks - 1) / ranks
    us = mean_us + _LAUNCH_US + 4 * link.latency_us + moved / link.bytes_per_us
    if work.backward:
        us += 2.5 * mean_us + 2 * _LAUNCH_US + 4 * link.latency_us + moved / link.bytes_per_us
    return us


class Knowledge:
    """A group's knowledge: its link, what the host needs for a call, and times of calls."""

    def __init__(self) -> None:
        self.link: Optional[Link] = None
        self.host: Dict[Tuple[str, bool], float] = {}    # of a schedule, without and with backward: us of the host
        self.measured: Dict[Kind, Dict[str, float]] = {}  # of a kind of call: us of each schedule
        self._more: Dict[str, List[float]] = {}          # of a schedule: us that calls took beyond the model

    def model(self, schedule: str, work: Work) -> float:
        """Returns us of a call among others: while the device works, the host prepares the next one."""
        assert self.link is not None
        return max(estimate(schedule, work, self.link), self.host.get((schedule, work.backward), 0.0))

    def add(self, kind: Kind, times: Dict[str, float], work: Work) -> None:
        self.measured[kind] = times
        for schedule, us in times.items():
            self._more.setdefault(schedule, []).append(us - self.model(schedule, work))

    def times(self, kind: Kind, work: Work, schedules: List[str]) -> Dict[str, float]:
        """Returns us of each schedule: measured, or by the model and the median of what other calls took beyond it."""
        found = dict(self.measured.get(kind, {}))
        for schedule in schedules:
            more = statistics.median(self._more.get(schedule, [0.0]))
            found.setdefault(schedule, max(more, 0.0) + self.model(schedule, work))
        return {schedule: found[schedule] for schedule in schedules}

    def fastest(self, work: Work, times: Dict[str, float]) -> str:
        """Returns the model's fastest schedule, or one that is surely faster by its time."""
        first = min(times, key=lambda schedule: self.model(schedule, work))
        best = min(times, key=times.__getitem__)
        return best if times[best] < _SURE * times[first] else first


def why(kind: Kind, known: Knowledge, times: Dict[str, float], chosen: str, backward: bool = False) -> str:
    """Says what the choice rests on. times: of the schedules that serve the call."""
    assert known.link is not None
    kept = "" if times[chosen] == min(times.values()) else f"; {chosen} stays, because no other is surely faster"
    basis = "by times that tune() took" if kind in known.measured else "by the model"
    listed = ", ".join(f"{schedule} {us:.0f} us" for schedule, us in sorted(times.items(), key=lambda item: item[1]))
    host = ", ".join(f"{known.host[schedule, backward]:.0f} us for {schedule}" for schedule in sorted(times)
                     if (schedule, backward) in known.host)
    return (f"{basis}: {listed}{kept}; the link passes {known.link.bytes_per_us / 1e3:.1f} GB/s on after "
            f"{known.link.latency_us:.0f} us" + (f"; the host needs {host}" if host else ""))


def time_calls(call: Any, device: torch.device, group: Optional[dist.ProcessGroup], rounds: int) -> float:
    """Returns the median us of calls that all ranks make one after the other, for one call, on the slowest rank."""
    times = []
    for _ in range(rounds + 1):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        dist.barrier(group)
        begin = time.perf_counter()
        for _ in range(_IN_A_ROW):
            call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(1e6 * (time.perf_counter() - begin) / _IN_A_ROW)
    slowest = torch.tensor(sorted(times[1:])[rounds // 2], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX, group)
    return float(slowest.item())
