"""Attention over sequences that several GPUs share, on torch.distributed.

    import fa2_attn.distributed
    q, k, v = (fa2_attn.distributed.shard(tensor, layout="zigzag") for tensor in (q, k, v))    # own rows of [B, S, H, D]
    out = fa2_attn.distributed.attention(q, k, v, causal=True, layout="zigzag")                # own rows of out

Each rank has some rows of each sequence, by its layout. positions() says which. Keys travel, queries stay. Results over
the keys of one rank are float32 until all are merged, and so are gradients. So the error is about that of one call.
"""

import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple, Union

from ._frameworks import need

need("torch", "PyTorch", __name__)

import torch
import torch.distributed as dist
from torch import Tensor

from . import _native

__all__ = ["attention", "explain", "gather", "positions", "shard"]

LAYOUTS = ("contiguous", "zigzag", "striped")
SCHEDULES = ("auto", "ring", "gather")

# ---- layouts ----


def positions(length: int, *, layout: str = "zigzag", group: Optional[dist.ProcessGroup] = None,
              rank: Optional[int] = None, ranks: Optional[int] = None, device: Any = None) -> Tensor:
    """Returns the positions of this rank's rows in a sequence, in their order. Rotary embeddings need them.

    contiguous: rank r has the r-th part. zigzag: it has parts r and 2P - 1 - r of 2P, so that all ranks have equal work
    if attention is causal. striped: it has rows r, r + P, and so on. rank, ranks: instead of a group.
    """
    rank, ranks = _place(group, rank, ranks)
    parts = _parts(layout, ranks)
    if length % parts:
        raise ValueError(f"the sequence has {length} rows; layout {layout!r} on {ranks} ranks needs a multiple of "
                         f"{parts}: pad it to {-(-length // parts) * parts}")
    rows = torch.arange(length, device=device)
    if layout == "contiguous":
        return rows.chunk(ranks)[rank]
    if layout == "striped":
        return rows[rank::ranks]
    chunks = rows.chunk(2 * ranks)
    return torch.cat((chunks[rank], chunks[2 * ranks - 1 - rank]))


def shard(tensor: Tensor, dim: int = 1, *, layout: str = "zigzag",
          group: Optional[dist.ProcessGroup] = None) -> Tensor:
    """Returns this rank's rows of a tensor that every rank has whole. dim: the sequence."""
    return tensor.index_select(dim, positions(tensor.shape[dim], layout=layout, group=group, device=tensor.device))


def gather(tensor: Tensor, dim: int = 1, *, layout: str = "zigzag",
           group: Optional[dist.ProcessGroup] = None) -> Tensor:
    """Returns the whole tensor of which each rank has its rows: the inverse of shard. It has no gradient."""
    ranks = dist.get_world_size(group)
    parts = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(ranks)]
    dist.all_gather(parts, tensor.detach().contiguous(), group=group)
    length = tensor.shape[dim] * ranks
    rows = torch.cat([positions(length, layout=layout, rank=rank, ranks=ranks, device=tensor.device)
                      for rank in range(ranks)])
    return torch.cat(parts, dim).index_select(dim, rows.argsort())


def _place(group: Optional[dist.ProcessGroup], rank: Optional[int], ranks: Optional[int]) -> Tuple[int, int]:
    if (rank is None) != (ranks is None):
        raise ValueError("give both rank and ranks, or neither")
    if rank is not None and ranks is not None:
        return rank, ranks
    return dist.get_rank(group), dist.get_world_size(group)


def _parts(layout: str, ranks: int) -> int:
    """Returns the number that divides a sequence's length."""
    if layout not in LAYOUTS:
        raise ValueError(f"layout is {layout!r}; it must be one of {', '.join(LAYOUTS)}")
    return 2 * ranks if layout == "zigzag" else ranks


# ---- which rows meet in a step of the ring ----


class _Meeting(NamedTuple):
    """The own queries and the keys of another rank that see each other, as slices of the rows."""
    queries: slice
    keys: slice
    causal: bool


def _meeting(layout: str, causal: bool, rank: int, owner: int, rows: int) -> Optional[_Meeting]:
    """Returns what the own queries see of the keys of rank `owner`; None: nothing.

    No step needs positions. The rows of a rank are in the order of their positions, so among themselves they are
    causal by their numbers. With zigzag, all own queries come after the first half of an earlier rank's keys, and
    before the second half. The keys of a later rank lie between the halves of the own queries. With striped, row i is
    at most row i of a later rank. So it sees the rows before i: the last key is left out.
    """
    every, half = slice(0, rows), rows // 2
    if not causal:
        return _Meeting(every, slice(None), False)
    if owner == rank or (layout == "striped" and owner < rank):
        return _Meeting(every, every, True)
    if layout == "striped":
        return _Meeting(every, slice(0, rows - 1), True) if rows > 1 else None
    if layout == "contiguous":
        return _Meeting(every, every, False) if owner < rank else None
    return _Meeting(every, slice(0, half), False) if owner < rank else _Meeting(slice(half, rows), every, False)


# ---- communication ----


class _Ring:
    """Passes tensors to the next rank. Both ways are begun at once; waiting orders the stream, and not the host."""

    def __init__(self, group: Optional[dist.ProcessGroup]) -> None:
        self.group = group
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self._next, self._before = (self._global((self.rank + step) % self.ranks) for step in (1, -1))

    def _global(self, rank: int) -> int:
        return rank if self.group is None else dist.get_global_rank(self.group, rank)

    def owner(self, step: int) -> int:
        """Returns the rank whose keys are here in a step."""
        return (self.rank - step) % self.ranks

    def begin(self, sent: Tensor, got: Tensor) -> "_Passing":
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, self._next, self.group),
                                        dist.P2POp(dist.irecv, got, self._before, self.group)])
        return _Passing(works, sent, got)


class _Passing:
    def __init__(self, works: List[Any], sent: Tensor, got: Tensor) -> None:
        self._works, self._sent, self._got = works, sent, got  # kept until the transfer is done

    def wait(self) -> Tensor:
        for work in self._works:
            work.wait()
        return self._got


class _Pair:
    """Two tensors [B, S, H, D] in one buffer, so that they travel together: K and V, or their gradients."""

    def __init__(self, buffer: Tensor, k: torch.Size, v: torch.Size) -> None:
        self.buffer, self._shapes = buffer, (k, v)
        self.k, self.v = buffer[:k.numel()].view(k), buffer[k.numel():].view(v)

    @staticmethod
    def like(k: Tensor, v: Tensor, dtype: Optional[torch.dtype] = None) -> "_Pair":
        return _Pair(k.new_empty(k.numel() + v.numel(), dtype=dtype or k.dtype), k.shape, v.shape)

    @staticmethod
    def of(k: Tensor, v: Tensor) -> "_Pair":
        pair = _Pair.like(k, v)
        pair.k.copy_(k)
        pair.v.copy_(v)
        return pair

    def at(self, buffer: Tensor) -> "_Pair":
        return _Pair(buffer, *self._shapes)


# ---- the ring ----


class _Lse:
    """The LSE of the own rows. Zigzag's later steps use a contiguous copy of its second half; finish puts it back.
    """

    def __init__(self, lse: Tensor) -> None:
        self.whole = lse
        self._half: Optional[Tensor] = None

    def lse(self, queries: slice) -> Tensor:
        if queries.stop - queries.start == self.whole.shape[-1]:
            return self.whole
        if self._half is None:
            self._half = self.whole[..., queries].contiguous()
        return self._half

    def finish(self) -> Tensor:
        if self._half is not None:
            self.whole[..., -self._half.shape[-1]:] = self._half
        return self.whole


def _ring_forward(q: Tensor, k: Tensor, v: Tensor, call: "_Call") -> Tuple[Tensor, Tensor]:
    ring = _Ring(call.group)
    here = _Pair.of(k, v) if ring.ranks > 1 else None
    spare = _Pair.like(k, v) if ring.ranks > 1 else None
    out: Optional[Tensor] = None
    rows: Optional[_Rows] = None
    for step in range(ring.ranks):
        passing = None
        if here is not None and spare is not None and step + 1 < ring.ranks:
            passing = ring.begin(here.buffer, spare.buffer)
        keys, values = (k, v) if here is None else (here.k, here.v)
        meets = _meeting(call.layout, call.causal, ring.rank, ring.owner(step), q.shape[1])
        if out is None or rows is None:  # step 0: the own keys, which always meet
            made: Tuple[Tensor, Tensor] = _native.attention_partial(q, keys, values, causal=call.causal,
                                                                    sinks=call.sinks, **call.settings)
            out, rows = made[0], _Lse(made[1])
        elif meets is not None:
            _native.attention_partial(q[:, meets.queries], keys[:, meets.keys], values[:, meets.keys],
                                      causal=meets.causal, out=out[:, meets.queries], lse=rows.lse(meets.queries),
                                      partial="merge", **call.settings)
        if passing is not None:
            passing.wait()
            here, spare = spare, here
    assert out is not None and rows is not None
    return out.to(q.dtype), rows.finish()


def _ring_backward(d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
                   call: "_Call") -> Tuple[Tensor, ...]:
    """Each step computes the gradients of the keys that are here. They are added to those that arrive from the rank
    before, and travel on, one step behind the keys. So a chunk's gradients begin at its owner's neighbour, and end at
    its owner."""
    ring = _Ring(call.group)
    here, spare = _Pair.of(k, v), _Pair.like(k, v)
    own = _Pair.like(k, v, torch.float32)
    rows = _Lse(lse)
    dq: Optional[Tensor] = None
    d_sinks: Tuple[Tensor, ...] = ()
    travelling: Optional[_Passing] = None
    for step in range(ring.ranks):
        passing = ring.begin(here.buffer, spare.buffer) if step + 1 < ring.ranks else None
        meets = _meeting(call.layout, call.causal, ring.rank, ring.owner(step), q.shape[1])
        if dq is None:  # step 0
            dq, _, _, *more = _native.attention_backward(
                d_out, q, here.k, here.v, out, lse, causal=call.causal, sinks=call.sinks,
                dsinks=call.sinks is not None, partial="write", dk=own.k, dv=own.v,
                deterministic=call.deterministic, **call.settings)
            d_sinks = tuple(more)
        else:
            other = _Pair.like(k, v, torch.float32)
            other.buffer.zero_()
            if meets is not None:
                part = (slice(None), meets.queries)
                _native.attention_backward(
                    d_out[part], q[part], here.k[:, meets.keys], here.v[:, meets.keys], out[part],
                    rows.lse(meets.queries), causal=meets.causal, partial="merge", dq=dq[part],
                    dk=other.k[:, meets.keys], dv=other.v[:, meets.keys], deterministic=call.deterministic,
                    **call.settings)
            if travelling is not None:
                other.buffer.add_(travelling.wait())
            travelling = ring.begin(other.buffer, torch.empty_like(other.buffer))
        if passing is not None:
            passing.wait()
            here, spare = spare, here
    if travelling is not None:
        own.buffer.add_(travelling.wait())
    assert dq is not None
    return (dq.to(q.dtype), own.k.to(k.dtype), own.v.to(v.dtype), *d_sinks)


# ---- all keys at once ----


def _gathered(k: Tensor, v: Tensor, call: "_Call") -> Tuple[Tensor, Tensor]:
    """Returns K and V of all ranks, in the order of positions; of a striped layout, in the order of ranks."""
    pair, ranks = _Pair.of(k, v), dist.get_world_size(call.group)
    buffer = pair.buffer.new_empty(ranks * pair.buffer.numel())
    dist.all_gather_into_tensor(buffer, pair.buffer, group=call.group)
    pairs = [pair.at(part) for part in buffer.chunk(ranks)]
    return _in_order([one.k for one in pairs], call.layout), _in_order([one.v for one in pairs], call.layout)


def _in_order(parts: List[Tensor], layout: str) -> Tensor:
    if layout == "zigzag":
        halves = [part.chunk(2, 1) for part in parts]
        parts = [first for first, _ in halves] + [second for _, second in reversed(halves)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _by_rank(whole: Tensor, layout: str, ranks: int) -> List[Tensor]:
    """The inverse of _in_order: the rows of each rank."""
    if layout != "zigzag":
        return list(whole.chunk(ranks, 1))
    chunks = whole.chunk(2 * ranks, 1)
    return [torch.cat((chunks[rank], chunks[2 * ranks - 1 - rank]), 1) for rank in range(ranks)]


def _pieces(call: "_Call", rows: int, keys: int) -> List[Tuple[slice, int]]:
    """Returns runs of own queries with neighbouring positions, and how many keys there are up to the end of each.

    A call aligns queries to the last key, so it has the positions of the whole sequence.
    """
    rank, ranks = dist.get_rank(call.group), dist.get_world_size(call.group)
    if not call.causal:
        return [(slice(0, rows), keys)]
    if call.layout == "contiguous":
        return [(slice(0, rows), (rank + 1) * rows)]
    half = rows // 2
    return [(slice(0, half), (rank + 1) * half), (slice(half, rows), (2 * ranks - rank) * half)]


def _gather_forward(q: Tensor, k: Tensor, v: Tensor, call: "_Call") -> Tuple[Tensor, Tensor]:
    keys, values = _gathered(k, v, call)
    out, lses = q.new_empty((*q.shape[:-1], v.shape[-1])), []
    for queries, end in _pieces(call, q.shape[1], keys.shape[1]):
        _, lse = _native.launch(q[:, queries], keys[:, :end], values[:, :end], causal=call.causal,
                                out=out[:, queries], return_lse=True, sinks=call.sinks, **call.by_position,
                                **call.settings)
        lses.append(lse)
    return out, lses[0] if len(lses) == 1 else torch.cat(lses, -1)


def _gather_backward(d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
                     call: "_Call") -> Tuple[Tensor, ...]:
    keys, values = _gathered(k, v, call)
    dq, dk, dv = (torch.zeros_like(tensor, dtype=torch.float32) for tensor in (q, keys, values))
    d_sinks: Optional[Tensor] = None
    for queries, end in _pieces(call, q.shape[1], keys.shape[1]):
        part = (slice(None), queries)
        _, _, _, *more = _native.attention_backward(
            d_out[part], q[part], keys[:, :end], values[:, :end], out[part], lse[..., queries].contiguous(),
            causal=call.causal, sinks=call.sinks, dsinks=call.sinks is not None, partial="merge", dq=dq[part],
            dk=dk[:, :end], dv=dv[:, :end], deterministic=call.deterministic, **call.by_position, **call.settings)
        if more:
            d_sinks = more[0] if d_sinks is None else d_sinks + more[0]
    gradients = _summed(dk, dv, k, v, call)
    return (dq.to(q.dtype), *gradients, *(() if d_sinks is None else (d_sinks,)))


def _summed(dk: Tensor, dv: Tensor, k: Tensor, v: Tensor, call: "_Call") -> Tuple[Tensor, Tensor]:
    """Sums the gradients of all keys over the ranks; each rank gets those of its own keys."""
    ranks = dist.get_world_size(call.group)
    parts = [_Pair.of(*both).buffer for both in zip(_by_rank(dk, call.layout, ranks), _by_rank(dv, call.layout, ranks))]
    own = _Pair.like(k, v, torch.float32)
    if dist.get_backend(call.group) == "nccl":
        dist.reduce_scatter_tensor(own.buffer, torch.cat(parts), group=call.group)
    else:
        whole = torch.stack(parts)
        dist.all_reduce(whole, group=call.group)
        own.buffer.copy_(whole[dist.get_rank(call.group)])
    return own.k.to(k.dtype), own.v.to(v.dtype)


# ---- the call ----


class _Call(NamedTuple):
    group: Optional[dist.ProcessGroup]
    layout: str
    schedule: str
    causal: bool
    sinks: Optional[Tensor]
    deterministic: bool
    by_position: Dict[str, Any]  # window and ALiBi slopes
    settings: Dict[str, Any]


_SHORT = 4096  # keys of all ranks; up to here, steps of a ring are shorter than what their launches cost


def _choose(schedule: str, layout: str, causal: bool, by_position: Dict[str, Any], keys: int) -> Tuple[str, str]:
    """Returns the schedule of a call, and why."""
    if schedule != "auto":
        return schedule, f"schedule={schedule!r} was asked for"
    if by_position:
        return "gather", f"positions are needed for {' and '.join(by_position)}, and only gathered keys have them"
    if layout == "striped" and causal:
        return "ring", "causal attention of striped rows has a ring only"
    if keys <= _SHORT:
        return "gather", f"{keys} keys of all ranks are few: one gathering costs less than a ring's steps"
    return "ring", f"{keys} keys of all ranks: the next step's keys arrive while a step computes"


def _describe(q: Any, k: Any, v: Any, call: _Call) -> str:
    def of(tensor: Any) -> str:
        if not isinstance(tensor, Tensor):
            return type(tensor).__name__
        return f"{list(tensor.shape)} {str(tensor.dtype).replace('torch.', '')}"

    return (f"q {of(q)}, k {of(k)}, v {of(v)}, layout {call.layout!r}, schedule {call.schedule!r}, causal {call.causal}, "
            f"sinks {of(call.sinks)}, deterministic {call.deterministic}, " + ", ".join(
                f"{name} {of(value) if isinstance(value, Tensor) else value}"
                for name, value in sorted({**call.by_position, **call.settings}.items()) if name != "context"))


_agreed: Any = weakref.WeakKeyDictionary()  # of each group, what its ranks agree on


def _agree(mine: str, group: Optional[dist.ProcessGroup]) -> None:
    """Raises ValueError on every rank if the ranks' calls differ. Asks the others once for each kind of call."""
    known: Set[str] = _agreed.setdefault(dist.group.WORLD if group is None else group, set())
    if mine in known:
        return
    theirs: List[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(theirs, mine, group=group)
    for rank, other in enumerate(theirs):
        if other != theirs[0]:
            raise ValueError(f"the ranks' calls differ: rank 0 has {theirs[0]}; rank {rank} has {other}")
    known.add(mine)


def _check(q: Tensor, k: Tensor, v: Tensor, call: _Call) -> None:
    """Checks what is alike on all ranks, so all raise."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, Tensor) or tensor.dim() != 4:
            raise ValueError(f"{name} must be a tensor [B, S, H, D], this rank's rows of the sequence")
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q is {q.dtype}, k {k.dtype} and v {v.dtype}; they must be of one type")
    if call.layout not in LAYOUTS:
        raise ValueError(f"layout is {call.layout!r}; it must be one of {', '.join(LAYOUTS)}")
    if call.schedule not in SCHEDULES:
        raise ValueError(f"schedule is {call.schedule!r}; it must be one of {', '.join(SCHEDULES)}")
    if call.causal and k.shape[1] != q.shape[1]:
        raise ValueError(f"q has {q.shape[1]} rows and k {k.shape[1]}: causal attention needs as many of both")
    if call.layout == "zigzag" and (q.shape[1] % 2 or k.shape[1] % 2):
        ranks = dist.get_world_size(call.group)
        raise ValueError(f"q has {q.shape[1]} rows and k {k.shape[1]}; layout 'zigzag' needs an even number on each "
                         f"rank: pad the sequence to a multiple of {2 * ranks}")
    if call.by_position and (call.schedule == "ring" or call.layout == "striped" or not call.causal):
        raise NotImplementedError(
            f"{' and '.join(call.by_position)}: only causal attention with layout 'contiguous' or 'zigzag' and "
            f"schedule 'gather' has it; this call has causal {call.causal}, layout {call.layout!r}, schedule "
            f"{call.schedule!r}")
    if call.schedule == "gather" and call.layout == "striped" and call.causal:
        raise NotImplementedError("causal attention of striped rows needs schedule 'ring'")


_FORWARD = {"ring": _ring_forward, "gather": _gather_forward}
_BACKWARD = {"ring": _ring_backward, "gather": _gather_backward}


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, sinks: Optional[Tensor], call: _Call) -> Any:
        q, k, v = (_readable(tensor.detach()) for tensor in (q, k, v))
        out, lse = _FORWARD[call.schedule](q, k, v, call)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.call = call
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor, _: Any) -> Any:
        call: _Call = ctx.call
        q, k, v, out, lse = ctx.saved_tensors
        gradients = _BACKWARD[call.schedule](d_out.contiguous(), q, k, v, out, lse, call)
        d_sinks = gradients[3] if len(gradients) > 3 and ctx.needs_input_grad[3] else None
        return (*gradients[:3], d_sinks, None)


def _readable(tensor: Tensor) -> Tensor:
    """Returns a tensor that kernels can read: D contiguous, rows at multiples of 16 bytes."""
    steps = [stride for stride, extent in zip(tensor.stride()[:-1], tensor.shape) if extent > 1]
    ready = tensor.stride(-1) == 1 and tensor.data_ptr() % 16 == 0 and all(step % 8 == 0 and step for step in steps)
    return tensor if ready else tensor.contiguous()


def _call_of(q: Any, k: Any, group: Optional[dist.ProcessGroup], layout: str, schedule: str, causal: bool,
             sinks: Optional[Tensor], deterministic: bool, by_position: Dict[str, Any],
             settings: Dict[str, Any]) -> Tuple[_Call, str]:
    given = {name: value for name, value in by_position.items() if value is not None}
    keys = k.shape[1] * dist.get_world_size(group) if isinstance(k, Tensor) and k.dim() == 4 else 0
    chosen, why = _choose(schedule, layout, causal, given, keys)
    return _Call(group, layout, chosen, bool(causal), sinks, deterministic, given, settings), why


def attention(q: Tensor, k: Tensor, v: Tensor, *, group: Optional[dist.ProcessGroup] = None, layout: str = "zigzag",
              schedule: str = "auto", causal: bool = False, window: Any = None, softcap: Optional[float] = None,
              scale: Optional[float] = None, alibi_slopes: Optional[Tensor] = None, sinks: Optional[Tensor] = None,
              deterministic: Optional[bool] = None, return_lse: bool = False,
              context: Optional[_native.Context] = None) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """Returns this rank's rows of attention over a sequence that the ranks of a group share. It has gradients.

    q: [B, S / P, Hq, D]; k, v: [B, S / P, Hkv, D]: this rank's rows, which shard() gives. All ranks call it alike.
    layout: see positions(). Use 'zigzag' or 'striped' if attention is causal, so that all ranks have equal work.
    schedule: 'ring' passes K and V from rank to rank; the next step's travel while a step computes. 'gather' gives
    every rank all of them first, which takes P times their memory. 'auto' chooses; explain() says which and why.
    window, alibi_slopes: causal attention only, by 'gather' (which 'auto' chooses).
    sinks: float32 [Hq], alike on all ranks. Its gradient is that of the own rows: sum it over the ranks, as those of
    other parameters.
    deterministic: gradients have the same bits in every call. Default: torch.are_deterministic_algorithms_enabled().
    return_lse: True returns (out, lse). lse is float32 [B, Hq, S / P], and has no gradient.
    causal, softcap, scale, context: as in fa2_attn.attention.

    Raises ValueError on all ranks, with one message, if their shapes, types or settings differ. The ranks compare them
    once for each kind of call: a rank that later calls otherwise than the rest waits until the group's time-out.
    """
    if deterministic is None:
        deterministic = torch.are_deterministic_algorithms_enabled()
    call, _ = _call_of(q, k, group, layout, schedule, causal, sinks, deterministic,
                       {"window": window, "alibi_slopes": alibi_slopes},
                       {"softcap": softcap, "scale": scale, "context": context})
    _agree(_describe(q, k, v, call), group)
    _check(q, k, v, call)
    apply: Any = _Attention.apply
    out, lse = apply(q, k, v, sinks, call)
    return (out, lse) if return_lse else out


def explain(q: Tensor, k: Tensor, v: Tensor, *, group: Optional[dist.ProcessGroup] = None, layout: str = "zigzag",
            schedule: str = "auto", causal: bool = False, window: Any = None,
            alibi_slopes: Optional[Tensor] = None) -> Dict[str, str]:
    """Returns which schedule such a call gets, and why: {"schedule": ..., "reason": ...}."""
    call, why = _call_of(q, k, group, layout, schedule, causal, None, False,
                         {"window": window, "alibi_slopes": alibi_slopes}, {})
    return {"schedule": call.schedule, "reason": why}
