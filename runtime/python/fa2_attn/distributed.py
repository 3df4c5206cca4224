"""Attention over sequences that several GPUs share, on torch.distributed.

    import fa2_attn.distributed
    q, k, v = (fa2_attn.distributed.shard(tensor, layout="zigzag") for tensor in (q, k, v))    # own rows of [B, S, H, D]
    out = fa2_attn.distributed.attention(q, k, v, causal=True, layout="zigzag")                # own rows of out

Each rank has some rows of each sequence, by its layout. positions() says which. With the schedules 'ring' and 'gather'
keys travel and queries stay. Results over the keys of one rank are float32 until all are merged, and so are gradients.
So the error is about that of one call. With 'ulysses' heads are exchanged for rows: each rank has some heads of all rows.
"""

import functools
import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

from ._frameworks import need

need("torch", "PyTorch", __name__)

import torch
import torch.distributed as dist
from torch import Tensor

from . import _layouts, _native, _schedules
from ._layouts import LAYOUTS

__all__ = ["attention", "explain", "gather", "positions", "shard", "tune"]

SCHEDULES = ("auto", *_schedules.SCHEDULES)

_Lengths = Optional[Sequence[int]]

# ---- layouts ----


def positions(length: Optional[int] = None, *, layout: str = "zigzag", group: Optional[dist.ProcessGroup] = None,
              rank: Optional[int] = None, ranks: Optional[int] = None, device: Any = None,
              cu_seqlens: Any = None) -> Tensor:
    """Returns the positions of this rank's rows in a sequence, in their order. Rotary embeddings need them.

    contiguous: rank r has the r-th part. zigzag: it has parts r and 2P - 1 - r of 2P, so that all ranks have equal work
    if attention is causal. striped: it has rows r, r + P, and so on. rank, ranks: instead of a group.
    cu_seqlens: bounds of packed sequences instead of a length. Each sequence is divided, and positions count from its
    beginning.
    """
    rank, ranks = _place(group, rank, ranks)
    lengths = [length] if cu_seqlens is None else _lengths_of(cu_seqlens)
    if len(lengths) == 1 and lengths[0] is None:
        raise ValueError("give the length of the sequence, or cu_seqlens")
    if cu_seqlens is None:
        _layouts.check_length(lengths[0], layout, ranks)
    own = _rows(layout, rank, ranks, tuple(lengths), device)
    if cu_seqlens is None:
        return own.clone()  # the other one is kept
    begins = torch.tensor([0, *lengths[:-1]], device=device).cumsum(0)
    return own - begins.repeat_interleave(torch.tensor([length // ranks for length in lengths], device=device))


def shard(tensor: Tensor, dim: Optional[int] = None, *, layout: str = "zigzag",
          group: Optional[dist.ProcessGroup] = None, cu_seqlens: Any = None) -> Tensor:
    """Returns this rank's rows of a tensor that every rank has whole. dim: the sequence, 1, or 0 with cu_seqlens."""
    dim = _dim_of(dim, cu_seqlens)
    lengths = _lengths_of(cu_seqlens) if cu_seqlens is not None else [tensor.shape[dim]]
    if cu_seqlens is None:
        _layouts.check_length(lengths[0], layout, dist.get_world_size(group))
    rows = _rows(layout, dist.get_rank(group), dist.get_world_size(group), tuple(lengths), tensor.device)
    return tensor.index_select(dim, rows)


def gather(tensor: Tensor, dim: Optional[int] = None, *, layout: str = "zigzag",
           group: Optional[dist.ProcessGroup] = None, cu_seqlens: Any = None) -> Tensor:
    """Returns the whole tensor of which each rank has its rows: the inverse of shard. It has no gradient."""
    dim, ranks = _dim_of(dim, cu_seqlens), dist.get_world_size(group)
    parts = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(ranks)]
    dist.all_gather(parts, tensor.detach().contiguous(), group=group)
    lengths = _lengths_of(cu_seqlens) if cu_seqlens is not None else [tensor.shape[dim] * ranks]
    return torch.cat(parts, dim).index_select(dim, _order(layout, ranks, tuple(lengths), tensor.device))


def _place(group: Optional[dist.ProcessGroup], rank: Optional[int], ranks: Optional[int]) -> Tuple[int, int]:
    if (rank is None) != (ranks is None):
        raise ValueError("give both rank and ranks, or neither")
    if rank is not None and ranks is not None:
        return rank, ranks
    return dist.get_rank(group), dist.get_world_size(group)


def _dim_of(dim: Optional[int], cu_seqlens: Any) -> int:
    return dim if dim is not None else 1 if cu_seqlens is None else 0


def _lengths_of(cu_seqlens: Any) -> List[int]:
    bounds = cu_seqlens.tolist() if isinstance(cu_seqlens, Tensor) else list(cu_seqlens)
    lengths = [end - begin for begin, end in zip(bounds, bounds[1:])]
    if not lengths or bounds[0] != 0 or min(lengths) < 0:
        raise ValueError(f"cu_seqlens is {bounds}; it must begin with 0 and never fall")
    return lengths


@functools.lru_cache(maxsize=256)
def _rows(layout: str, rank: int, ranks: int, lengths: Tuple[int, ...], device: Any) -> Tensor:
    """Returns the rows of a rank among those of all sequences."""
    return torch.cat([torch.arange(place.start, place.stop, place.step)
                      for place in _layouts.places(layout, rank, ranks, lengths)]).to(device)


@functools.lru_cache(maxsize=256)
def _order(layout: str, ranks: int, lengths: Tuple[int, ...], device: Any) -> Tensor:
    """Returns where each row of the sequences is if the ranks' rows are one after the other."""
    return torch.cat([_rows(layout, rank, ranks, lengths, device) for rank in range(ranks)]).argsort()


# ---- the call ----


class _Call(NamedTuple):
    group: Optional[dist.ProcessGroup]
    layout: str
    schedule: str
    causal: bool
    window: Optional[Tuple[int, int]]
    alibi_slopes: Optional[Tensor]
    sinks: Optional[Tensor]
    dropout_p: float
    dropout_seed: Union[None, int, Tensor]
    deterministic: bool
    lengths: Optional[Tuple[int, ...]]  # of the packed sequences on all ranks
    settings: Dict[str, Any]

    @property
    def dim(self) -> int:
        """The dimension of rows."""
        return 1 if self.lengths is None else 0

    def masks(self) -> Dict[str, Any]:
        """The settings of a call that sees the positions of the whole sequence."""
        return {"causal": self.causal, "window": self.window, "alibi_slopes": self.alibi_slopes}

    def dropout(self, number: int) -> Dict[str, Any]:
        """The dropout of a call; each number draws by itself, and alike in forward and backward."""
        if self.dropout_p == 0:
            return {}
        seed = self.dropout_seed
        if isinstance(seed, Tensor):
            seed = seed.flatten()
            offset = seed[1:2] if seed.numel() > 1 else torch.zeros_like(seed[:1])
            return {"dropout_p": self.dropout_p, "dropout_seed": torch.cat((_mixed(seed[:1], number), offset))}
        assert seed is not None
        return {"dropout_p": self.dropout_p, "dropout_seed": _mixed(seed, number)}


def _mixed(seed: Any, number: int) -> Any:
    """Returns another seed for each number: the key of other draws."""
    added = (number + 1) * 0x9e3779b97f4a7c15
    if isinstance(seed, Tensor):
        return seed + ((added + (1 << 63)) % (1 << 64) - (1 << 63))
    return (seed + added) % (1 << 64)


# ---- rows of a call: slices of dense tensors, indexes of packed ones ----

_Which = Union[slice, Tensor]


class _Meeting(NamedTuple):
    """Rows that see each other, and the settings of a call on them."""
    queries: _Which
    keys: _Which
    settings: Dict[str, Any]
    own: bool
    number: int  # of its dropout
    lowered: Optional[Tensor] = None  # by what the true LSE of each row is lower than the call's


def _is_whole(which: _Which, count: int) -> bool:
    return isinstance(which, slice) and which.start == 0 and which.stop == count


def _take(tensor: Tensor, dim: int, which: _Which) -> Tensor:
    """Returns rows: a view if they are a slice, else a copy."""
    if _is_whole(which, tensor.shape[dim]):
        return tensor
    if isinstance(which, slice):
        return tensor.narrow(dim, which.start, which.stop - which.start)
    return tensor.index_select(dim, which)


def _put(tensor: Tensor, dim: int, which: _Which, part: Tensor) -> None:
    """Writes back rows of _take."""
    if isinstance(which, Tensor):
        tensor.index_copy_(dim, which, part)


def _joined(slices: List[Tuple[int, slice]], device: Any) -> _Which:
    """Returns slices of sequences, each with the sequence's first row, as rows of the packed tensor."""
    runs = [(begin + rows.start, begin + rows.stop) for begin, rows in slices if rows.stop > rows.start]
    if runs and all(run[1] == after[0] for run, after in zip(runs, runs[1:])):
        return slice(runs[0][0], runs[-1][1])
    return torch.cat([torch.arange(*run) for run in runs]).to(device)


def _bounds(lengths: List[int], device: Any) -> Tuple[Tensor, int]:
    bounds = torch.zeros(len(lengths) + 1, dtype=torch.int32)
    bounds[1:] = torch.tensor(lengths, dtype=torch.int32).cumsum(0)
    return bounds.to(device), max(lengths)


def _packed_settings(queries: List[int], keys: List[int], device: Any) -> Dict[str, Any]:
    cu_q, max_q = _bounds(queries, device)
    cu_k, max_k = _bounds(keys, device)
    return {"cu_seqlens_q": cu_q, "cu_seqlens_k": cu_k, "max_seqlen_q": max_q, "max_seqlen_k": max_k}


@functools.lru_cache(maxsize=256)
def _packed_meeting(layout: str, rank: int, owner: int, ranks: int, lengths: Tuple[int, ...], causal: bool,
                    device: Any) -> Optional[Tuple[_Which, _Which, Dict[str, Any]]]:
    """Returns rows and settings of the one call of packed sequences. Without windows no sequence needs more."""
    queries, keys, begin, is_causal = [], [], 0, False
    for length in lengths:
        rows = length // ranks
        found = _layouts.meetings(layout, rank, owner, ranks, rows, rows, causal, None)
        assert len(found) <= 1
        nothing = slice(0, 0)
        queries.append((begin, found[0].queries if found else nothing))
        keys.append((begin, found[0].keys if found else nothing))
        is_causal = is_causal or bool(found and found[0].causal)
        begin += rows
    counts_q, counts_k = ([rows.stop - rows.start for _, rows in which] for which in (queries, keys))
    if sum(counts_q) == 0:
        return None
    return (_joined(queries, device), _joined(keys, device),
            {"causal": is_causal, **_packed_settings(counts_q, counts_k, device)})


def _ring_meetings(q: Tensor, k: Tensor, call: _Call, rank: int, owner: int, ranks: int) -> List[_Meeting]:
    number = 8 * (rank * ranks + owner)
    if call.lengths is not None:
        one = _packed_meeting(call.layout, rank, owner, ranks, call.lengths, call.causal, q.device)
        return [] if one is None else [_Meeting(*one, owner == rank, number)]
    found = _layouts.meetings(call.layout, rank, owner, ranks, q.shape[1], k.shape[1], call.causal, call.window,
                              by_pieces=call.alibi_slopes is not None)
    if call.alibi_slopes is not None:
        return [_with_alibi(one, call, owner, number + i, q) for i, one in enumerate(found)]
    return [_Meeting(one.queries, one.keys, {"causal": one.causal, "window": one.window}, one.own, number + i)
            for i, one in enumerate(found)]


def _with_alibi(one: _layouts.Meeting, call: _Call, owner: int, number: int, q: Tensor) -> _Meeting:
    """Returns a call with ALiBi by the positions of the whole sequence.

    Among rows of one piece, distances are those of their numbers, times the piece's stride. Otherwise all keys that a
    query sees are on one side of it. Then -slope * |p - j| is a bias of the key, and a number of the query's row, by
    which all its scores and its LSE are lower.
    """
    settings: Dict[str, Any] = {"causal": one.causal, "window": one.window}
    slopes, rank, ranks = call.alibi_slopes, dist.get_rank(call.group), dist.get_world_size(call.group)
    assert slopes is not None
    if one.own:
        settings["alibi_slopes"] = slopes * float(ranks) if call.layout == "striped" else slopes
        return _Meeting(one.queries, one.keys, settings, True, number)
    lengths = (q.shape[1] * ranks,)
    queries = _rows(call.layout, rank, ranks, lengths, q.device)[one.queries]
    keys = _rows(call.layout, owner, ranks, lengths, q.device)[one.keys]
    of_heads = slopes.reshape(-1, slopes.shape[-1], 1).float()
    is_before = call.causal or _starts_before(call.layout, owner, rank, ranks, q.shape[1], one)
    near = keys[-1] if is_before else keys[0]  # the key that is nearest to all queries
    settings["bias"] = (-of_heads * (near - keys).abs())[:, :, None]
    lowered = of_heads * ((queries - near) if is_before else (near - queries))
    return _Meeting(one.queries, one.keys, settings, False, number, lowered)


def _starts_before(layout: str, owner: int, rank: int, ranks: int, rows: int, one: _layouts.Meeting) -> bool:
    """Returns whether the keys of a meeting are before its queries; their pieces have no common positions."""
    def start(of: int, which: slice) -> int:
        return next(piece.start for piece in _layouts.pieces(layout, of, ranks, rows)
                    if piece.rows.start <= which.start < piece.rows.stop)

    return start(owner, one.keys) < start(rank, one.queries)


def _gather_meetings(q: Tensor, k: Tensor, call: _Call, rank: int, ranks: int) -> List[_Meeting]:
    """Returns runs of own queries with neighbouring positions, and the keys up to the end of each.

    A call aligns queries to the last key, so it has the positions of the whole sequence. k: the keys of all ranks.
    """
    number = 8 * (ranks * ranks + rank)
    if not call.causal:
        settings = {} if call.lengths is None else _packed_settings([length // ranks for length in call.lengths],
                                                                    list(call.lengths), q.device)
        return [_Meeting(slice(0, q.shape[call.dim]), slice(0, k.shape[call.dim]), settings, True, number)]
    if call.lengths is not None:
        return [_Meeting(*one, True, number + i) for i, one in enumerate(
            _packed_pieces(call.layout, rank, ranks, call.lengths, q.device))]
    return [_Meeting(piece.rows, slice(0, piece.start + piece.rows.stop - piece.rows.start), {}, True, number + i)
            for i, piece in enumerate(_layouts.pieces(call.layout, rank, ranks, q.shape[1]))]


@functools.lru_cache(maxsize=256)
def _packed_pieces(layout: str, rank: int, ranks: int, lengths: Tuple[int, ...],
                   device: Any) -> List[Tuple[_Which, _Which, Dict[str, Any]]]:
    made = []
    for number in range(_layouts.parts(layout, ranks) // ranks):
        queries, keys, begin, begin_k = [], [], 0, 0
        for length in lengths:
            piece = _layouts.pieces(layout, rank, ranks, length // ranks)[number]
            queries.append((begin, piece.rows))
            keys.append((begin_k, slice(0, piece.start + piece.rows.stop - piece.rows.start)))
            begin, begin_k = begin + length // ranks, begin_k + length
        made.append((_joined(queries, device), _joined(keys, device), _packed_settings(
            [rows.stop - rows.start for _, rows in queries], [rows.stop for _, rows in keys], device)))
    return made


# ---- results of several calls ----


class _Lse:
    """The LSE of the own rows. A call on some of them has a contiguous copy, which is kept until other rows are asked
    for: later steps of a zigzag ring have the same rows."""

    def __init__(self, lse: Tensor) -> None:
        self._whole = lse
        self._part: Optional[Tensor] = None
        self._which: Optional[_Which] = None

    def lse(self, which: _Which) -> Tensor:
        if _is_whole(which, self._whole.shape[-1]):
            return self.finish()
        same = which == self._which if isinstance(which, slice) and isinstance(self._which, slice) \
            else which is self._which
        if not same or self._part is None:
            self.finish()
            self._which, self._part = which, _take(self._whole, self._whole.dim() - 1, which).contiguous()
        return self._part

    def finish(self) -> Tensor:
        if self._part is not None and self._which is not None:
            dim = self._whole.dim() - 1
            if isinstance(self._which, slice):
                _take(self._whole, dim, self._which).copy_(self._part)
            else:
                self._whole.index_copy_(dim, self._which, self._part)
        self._part = self._which = None
        return self._whole


class _Result:
    """O in float32 and LSE, into which calls are merged. The first call writes them if it has all rows."""

    def __init__(self, q: Tensor, v: Tensor, call: _Call) -> None:
        self._q, self._v, self._call = q, v, call
        self._out: Optional[Tensor] = None
        self._lse: Optional[_Lse] = None

    def _begin(self) -> None:
        q, call = self._q, self._call
        shape = (q.shape[0], q.shape[2], q.shape[1]) if call.lengths is None else (q.shape[1], q.shape[0])
        self._out = q.new_zeros((*q.shape[:-1], self._v.shape[-1]), dtype=torch.float32)
        self._lse = _Lse(q.new_full(shape, -torch.inf, dtype=torch.float32))

    def add(self, k: Tensor, v: Tensor, meeting: _Meeting) -> None:
        call, dim, q = self._call, self._call.dim, self._q
        settings = {**meeting.settings, **call.settings, **call.dropout(meeting.number),
                    "sinks": call.sinks if meeting.own else None}
        keys = [_take(tensor, dim, meeting.keys) for tensor in (k, v)]
        if self._out is None and _is_whole(meeting.queries, q.shape[dim]):
            self._out, lse = _native.attention_partial(q, *keys, **settings)
            self._lse = _Lse(lse)
            return
        if self._out is None:
            self._begin()
        assert self._out is not None and self._lse is not None
        out, lse = _take(self._out, dim, meeting.queries), self._lse.lse(meeting.queries)
        merged = lse if meeting.lowered is None else lse + meeting.lowered
        before = merged.clone() if meeting.lowered is not None else merged
        _native.attention_partial(_take(q, dim, meeting.queries), *keys, out=out, lse=merged, partial="merge",
                                  **settings)
        _put(self._out, dim, meeting.queries, out)
        if meeting.lowered is not None:
            # What was added is exact where it counts: rows far away add nothing, and near ones are lowered by little.
            lse.copy_(torch.where(lse == -torch.inf, merged - meeting.lowered, lse + (merged - before)))

    def finish(self) -> Tuple[Tensor, Tensor]:
        if self._out is None:
            self._begin()
        assert self._out is not None and self._lse is not None
        return self._out.to(self._q.dtype), self._lse.finish()


class _Gradients:
    """dQ in float32 and dSinks, to which calls add. dK and dV are given to each call."""

    def __init__(self, d_out: Tensor, q: Tensor, out: Tensor, lse: Tensor, call: _Call) -> None:
        self._d_out, self._q, self._out, self._lse, self._call = d_out, q, out, _Lse(lse), call
        self._dq: Optional[Tensor] = None
        self.d_sinks: Optional[Tensor] = None

    def add(self, k: Tensor, v: Tensor, dk: Tensor, dv: Tensor, meeting: _Meeting, *, fresh: bool) -> None:
        """fresh: dk and dv hold nothing yet; else they are added to."""
        call, dim = self._call, self._call.dim
        sinks = call.sinks if meeting.own else None
        write = fresh and self._dq is None and _is_whole(meeting.queries, self._q.shape[dim]) and \
            _is_whole(meeting.keys, k.shape[dim])
        if self._dq is None:
            self._dq = torch.empty_like(self._q, dtype=torch.float32) if write else \
                torch.zeros_like(self._q, dtype=torch.float32)
        if fresh and not write:
            dk.zero_()
            dv.zero_()
        queries = [_take(tensor, dim, meeting.queries) for tensor in (self._d_out, self._q, self._out, self._dq)]
        keys = [_take(tensor, dim, meeting.keys) for tensor in (k, v, dk, dv)]
        lse = self._lse.lse(meeting.queries)
        _, _, _, *more = _native.attention_backward(
            queries[0], queries[1], keys[0], keys[1], queries[2],
            lse if meeting.lowered is None else lse + meeting.lowered, sinks=sinks,
            dsinks=sinks is not None, partial="write" if write else "merge", dq=queries[3], dk=keys[2], dv=keys[3],
            deterministic=call.deterministic, **meeting.settings, **call.settings, **call.dropout(meeting.number))
        for whole, part, which in ((self._dq, queries[3], meeting.queries), (dk, keys[2], meeting.keys),
                                   (dv, keys[3], meeting.keys)):
            _put(whole, dim, which, part)
        if more:
            self.d_sinks = more[0] if self.d_sinks is None else self.d_sinks + more[0]

    def dq(self) -> Tensor:
        if self._dq is None:
            return torch.zeros_like(self._q)
        return self._dq.to(self._q.dtype)


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

    def begin(self, sent: Tensor, got: Tensor, what: str) -> "_Passing":
        name = f"{what} from rank {(self.rank - 1) % self.ranks} to rank {self.rank}"
        with _named(name):
            works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, self._next, self.group),
                                            dist.P2POp(dist.irecv, got, self._before, self.group)])
        return _Passing(works, sent, got, name)


class _named:
    """Says in an error which step of a schedule failed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, _: Any) -> None:
        if isinstance(error, RuntimeError):
            raise RuntimeError(f"passing on {self._name} failed: {error}") from error


class _Passing:
    def __init__(self, works: List[Any], sent: Tensor, got: Tensor, name: str) -> None:
        self._works, self._sent, self._got = works, sent, got  # kept until the transfer is done
        self._name = name

    def wait(self) -> Tensor:
        with _named(self._name):
            for work in self._works:
                work.wait()
        return self._got


class _Pair:
    """Two tensors in one buffer, so that they travel together: K and V, or their gradients."""

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


def _ring_forward(q: Tensor, k: Tensor, v: Tensor, call: _Call) -> Tuple[Tensor, ...]:
    ring, result = _Ring(call.group), _Result(q, v, call)
    here = _Pair.of(k, v) if ring.ranks > 1 else None
    spare = _Pair.like(k, v) if ring.ranks > 1 else None
    for step in range(ring.ranks):
        passing = None
        if here is not None and spare is not None and step + 1 < ring.ranks:
            passing = ring.begin(here.buffer, spare.buffer, f"keys in step {step + 1} of {ring.ranks}")
        keys, values = (k, v) if here is None else (here.k, here.v)
        for meeting in _ring_meetings(q, k, call, ring.rank, ring.owner(step), ring.ranks):
            result.add(keys, values, meeting)
        if passing is not None:
            passing.wait()
            here, spare = spare, here
    return (*result.finish(), q, k, v)


def _ring_backward(d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
                   call: _Call) -> Tuple[Tensor, ...]:
    """Each step computes the gradients of the keys that are here. They are added to those that arrive from the rank
    before, and travel on, one step behind the keys. So a chunk's gradients begin at its owner's neighbour, and end at
    its owner."""
    ring, sums = _Ring(call.group), _Gradients(d_out, q, out, lse, call)
    here, spare = _Pair.of(k, v), _Pair.like(k, v)
    own = _Pair.like(k, v, torch.float32)
    travelling: Optional[_Passing] = None
    for step in range(ring.ranks):
        name = f"keys in step {step + 1} of {ring.ranks} of backward"
        passing = ring.begin(here.buffer, spare.buffer, name) if step + 1 < ring.ranks else None
        into = own if step == 0 else _Pair.like(k, v, torch.float32)
        found = _ring_meetings(q, k, call, ring.rank, ring.owner(step), ring.ranks)
        if not found:
            into.buffer.zero_()
        for i, meeting in enumerate(found):
            sums.add(here.k, here.v, into.k, into.v, meeting, fresh=i == 0)
        if step > 0:
            if travelling is not None:
                into.buffer.add_(travelling.wait())
            travelling = ring.begin(into.buffer, torch.empty_like(into.buffer), "gradients of " + name)
        if passing is not None:
            passing.wait()
            here, spare = spare, here
    if travelling is not None:
        own.buffer.add_(travelling.wait())
    return (sums.dq(), own.k.to(k.dtype), own.v.to(v.dtype), *(() if sums.d_sinks is None else (sums.d_sinks,)))


# ---- all keys at once ----


def _all_rows(call: _Call, own: Tensor) -> Tuple[int, ...]:
    return call.lengths if call.lengths is not None else (own.shape[1] * dist.get_world_size(call.group),)


def _gathered(k: Tensor, v: Tensor, call: _Call) -> Tuple[Tensor, Tensor]:
    """Returns K and V of all ranks, in the order of positions."""
    pair, ranks = _Pair.of(k, v), dist.get_world_size(call.group)
    buffer = pair.buffer.new_empty(ranks * pair.buffer.numel())
    with _named(f"all keys to {ranks} ranks"):
        dist.all_gather_into_tensor(buffer, pair.buffer, group=call.group)
    pairs = [pair.at(part) for part in buffer.chunk(ranks)]
    order = _order(call.layout, ranks, _all_rows(call, k), k.device)
    return (torch.cat([one.k for one in pairs], call.dim).index_select(call.dim, order),
            torch.cat([one.v for one in pairs], call.dim).index_select(call.dim, order))


def _gather_forward(q: Tensor, k: Tensor, v: Tensor, call: _Call) -> Tuple[Tensor, ...]:
    keys, values = _gathered(k, v, call)
    out = q.new_empty((*q.shape[:-1], v.shape[-1]))
    shape = (q.shape[0], q.shape[2], q.shape[1]) if call.lengths is None else (q.shape[1], q.shape[0])
    lse = q.new_empty(shape, dtype=torch.float32)
    for meeting in _gather_meetings(q, keys, call, dist.get_rank(call.group), dist.get_world_size(call.group)):
        part = _take(out, call.dim, meeting.queries)
        _, part_lse = _native.launch(
            _take(q, call.dim, meeting.queries), _take(keys, call.dim, meeting.keys),
            _take(values, call.dim, meeting.keys), out=part, return_lse=True, sinks=call.sinks, **call.masks(),
            **meeting.settings, **call.settings, **call.dropout(meeting.number))
        _put(out, call.dim, meeting.queries, part)
        if isinstance(meeting.queries, slice):
            _take(lse, lse.dim() - 1, meeting.queries).copy_(part_lse)
        else:
            lse.index_copy_(lse.dim() - 1, meeting.queries, part_lse)
    return out, lse, q, k, v


def _gather_backward(d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
                     call: _Call) -> Tuple[Tensor, ...]:
    keys, values = _gathered(k, v, call)
    sums = _Gradients(d_out, q, out, lse, call)
    dk, dv = (torch.zeros_like(tensor, dtype=torch.float32) for tensor in (keys, values))
    for meeting in _gather_meetings(q, keys, call, dist.get_rank(call.group), dist.get_world_size(call.group)):
        sums.add(keys, values, dk, dv, meeting._replace(settings={**call.masks(), **meeting.settings}), fresh=False)
    return (sums.dq(), *_summed(dk, dv, k, v, call), *(() if sums.d_sinks is None else (sums.d_sinks,)))


def _summed(dk: Tensor, dv: Tensor, k: Tensor, v: Tensor, call: _Call) -> Tuple[Tensor, Tensor]:
    """Sums the gradients of all keys over the ranks; each rank gets those of its own keys."""
    ranks, lengths = dist.get_world_size(call.group), _all_rows(call, k)
    own = _Pair.like(k, v, torch.float32)
    parts = []
    for rank in range(ranks):
        rows = _rows(call.layout, rank, ranks, lengths, k.device)
        parts.append(_Pair.of(dk.index_select(call.dim, rows), dv.index_select(call.dim, rows)).buffer)
    with _named(f"gradients of all keys to {ranks} ranks"):
        if dist.get_backend(call.group) == "nccl":
            dist.reduce_scatter_tensor(own.buffer, torch.cat(parts), group=call.group)
        else:
            whole = torch.stack(parts)
            dist.all_reduce(whole, group=call.group)
            own.buffer.copy_(whole[dist.get_rank(call.group)])
    return own.k.to(k.dtype), own.v.to(v.dtype)


# ---- heads instead of rows ----


def _exchange(parts: Tensor, call: _Call) -> Tensor:
    """parts: [ranks, ...], one for each rank. Returns what the ranks have for this one."""
    got = torch.empty_like(parts)
    with _named(f"heads to {dist.get_world_size(call.group)} ranks"):
        dist.all_to_all_single(got, parts, group=call.group)
    return got


def _to_heads(tensor: Tensor, call: _Call) -> Tensor:
    """Returns some heads of all rows, in the order of positions, from all heads of the own rows."""
    ranks, dim = dist.get_world_size(call.group), call.dim
    sent = torch.stack(tensor.chunk(ranks, dim + 1))
    got = torch.cat(list(_exchange(sent, call)), dim)
    return got.index_select(dim, _order(call.layout, ranks, _all_rows(call, tensor), tensor.device))


def _to_rows(tensor: Tensor, call: _Call, dim: int, head_dim: int) -> Tensor:
    """The inverse. dim, head_dim: the dimensions of rows and of heads."""
    ranks = dist.get_world_size(call.group)
    lengths = call.lengths if call.lengths is not None else (tensor.shape[dim],)
    sent = torch.stack([tensor.index_select(dim, _rows(call.layout, rank, ranks, lengths, tensor.device))
                        for rank in range(ranks)])
    return torch.cat(list(_exchange(sent, call)), head_dim)


def _own_heads(numbers: Optional[Tensor], call: _Call) -> Optional[Tensor]:
    """Returns the own heads' numbers of [Hq] or [B, Hq]."""
    if numbers is None:
        return None
    return numbers.chunk(dist.get_world_size(call.group), -1)[dist.get_rank(call.group)].contiguous()


def _ulysses_settings(q: Tensor, call: _Call) -> Dict[str, Any]:
    masks = {**call.masks(), "alibi_slopes": _own_heads(call.alibi_slopes, call), "sinks": _own_heads(call.sinks, call)}
    packed = {} if call.lengths is None else _packed_settings(list(call.lengths), list(call.lengths), q.device)
    return {**masks, **packed, **call.settings, **call.dropout(dist.get_rank(call.group))}


def _ulysses_forward(q: Tensor, k: Tensor, v: Tensor, call: _Call) -> Tuple[Tensor, ...]:
    q, k, v = (_to_heads(tensor, call) for tensor in (q, k, v))
    out, lse = _native.launch(q, k, v, return_lse=True, **_ulysses_settings(q, call))
    rows = lse.dim() - 1
    return (_to_rows(out, call, call.dim, call.dim + 1), _to_rows(lse, call, rows, rows - 1), q, k, v, out, lse)


def _ulysses_backward(d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
                      call: _Call) -> Tuple[Tensor, ...]:
    settings = _ulysses_settings(q, call)
    has_sinks = settings["sinks"] is not None
    *gradients, = _native.attention_backward(_to_heads(d_out, call), q, k, v, out, lse, dsinks=has_sinks,
                                             deterministic=call.deterministic, **settings)
    rows = [_to_rows(gradient, call, call.dim, call.dim + 1) for gradient in gradients[:3]]
    if not has_sinks:
        return tuple(rows)
    assert call.sinks is not None
    d_sinks = torch.zeros_like(call.sinks, dtype=torch.float32)  # of the own heads; the sum over ranks is whole
    d_sinks.chunk(dist.get_world_size(call.group))[dist.get_rank(call.group)].copy_(gradients[3])
    return (*rows, d_sinks)


# ---- what a call can have ----


def _unfit(schedule: str, q: Any, k: Any, call: _Call, ranks: int) -> Optional[str]:
    """Returns why a schedule does not serve a call; None: it does."""
    if schedule == "ulysses":
        for name, tensor in (("q", q), ("k", k)):
            heads = tensor.shape[call.dim + 1]
            if heads % ranks:
                return f"{name} has {heads} heads, which {ranks} ranks cannot share evenly"
        return None
    if call.alibi_slopes is not None and schedule == "ring" and (
            call.lengths is not None or (call.layout == "striped" and not call.causal)):
        return "ALiBi needs keys on one side of each query; packed sequences and striped rows without causal have both"
    if call.alibi_slopes is not None and schedule == "gather" and not call.causal:
        return "ALiBi without a causal mask needs queries that end at the last key"
    if schedule == "ring" and call.window is not None and call.lengths is not None:
        return "windows of packed sequences differ from sequence to sequence"
    if schedule == "gather" and call.causal and call.layout == "striped":
        return "the queries of striped rows are at no neighbouring positions"
    if schedule == "gather" and call.window is not None and not call.causal:
        return "a window without a causal mask is not aligned to the last key of a rank's queries"
    return None


def _check(q: Any, k: Any, v: Any, call: _Call, given: Optional[Tensor]) -> None:
    """Raises what is wrong with a call on this rank. given: positions that the caller uses."""
    ranks, rank_of_rows = dist.get_world_size(call.group), 4 if call.lengths is None else 3
    shape = "[B, S, H, D]" if call.lengths is None else "[T, H, D]"
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, Tensor) or tensor.dim() != rank_of_rows:
            raise ValueError(f"{name} must be a tensor {shape}, this rank's rows of the sequence")
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q is {q.dtype}, k {k.dtype} and v {v.dtype}; they must be of one type")
    if call.layout not in LAYOUTS:
        raise ValueError(f"layout is {call.layout!r}; it must be one of {', '.join(LAYOUTS)}")
    if call.schedule not in SCHEDULES:
        raise ValueError(f"schedule is {call.schedule!r}; it must be one of {', '.join(SCHEDULES)}")
    if not 0 <= call.dropout_p < 1:
        raise ValueError(f"dropout_p is {call.dropout_p}; it must be at least 0 and less than 1")
    rows, keys = q.shape[call.dim], k.shape[call.dim]
    if (call.causal or call.window is not None or call.lengths is not None) and keys != rows:
        raise ValueError(f"q has {rows} rows and k {keys}: causal masks, windows and packed sequences need as many of both")
    if call.layout == "zigzag" and call.lengths is None and (rows % 2 or keys % 2):
        raise ValueError(f"q has {rows} rows and k {keys}; layout 'zigzag' needs an even number on each rank: pad the "
                         f"sequence to a multiple of {2 * ranks}")
    if call.lengths is not None:
        for number, length in enumerate(call.lengths):
            _layouts.check_length(length, call.layout, ranks, f"sequence {number}")
        if sum(call.lengths) != rows * ranks:
            raise ValueError(f"cu_seqlens ends with {sum(call.lengths)}, and {ranks} ranks with {rows} rows each have "
                             f"{rows * ranks}: it has the bounds of the whole sequences")
    if given is not None:
        _check_positions(given, rows, call)
    if call.schedule != "auto":
        reason = _unfit(call.schedule, q, k, call, ranks)
        if reason is not None:
            raise NotImplementedError(f"schedule {call.schedule!r}: {reason}")


def _check_positions(given: Tensor, rows: int, call: _Call) -> None:
    rank, ranks = dist.get_rank(call.group), dist.get_world_size(call.group)
    bounds = None if call.lengths is None else [0, *torch.tensor(call.lengths).cumsum(0).tolist()]
    wanted = positions(None if bounds else rows * ranks, layout=call.layout, rank=rank, ranks=ranks, cu_seqlens=bounds)
    mine = given.detach().flatten().cpu()
    if mine.shape != wanted.shape:
        raise ValueError(f"positions has {mine.numel()} numbers, and q {rows} rows")
    wrong = (mine != wanted).nonzero().flatten()
    if len(wrong) > 0:
        row = int(wrong[0])
        raise ValueError(f"positions do not fit the layout: row {row} of rank {rank} is at position {int(mine[row])}, "
                         f"and layout {call.layout!r} has position {int(wanted[row])} there")


# ---- the choice ----


def _flop_per_us(q: Tensor, k: Tensor, v: Tensor, call: _Call) -> float:
    """Returns the rate of fa2's kernels by its estimate for the own rows and the own keys."""
    settings: Dict[str, Any] = {} if call.lengths is None else _packed_settings([q.shape[0]], [k.shape[0]], q.device)
    problem = _native.problem(q, k, v, causal=call.causal, **settings)
    context = call.settings.get("context") or _native.default_context(q.device.index or 0)
    us = context.explain(problem)["estimate_us"]
    return max(_flop(q, k, v, call, 1) / max(us, 1.0), 1.0)


def _flop(q: Tensor, k: Tensor, v: Tensor, call: _Call, ranks: int) -> float:
    dims = (q.shape[-1] + v.shape[-1]) * q.shape[call.dim + 1] * (0.5 if call.causal else 1.0) * 2
    if call.lengths is not None:
        return dims * sum((length * ranks / dist.get_world_size(call.group)) ** 2 for length in call.lengths)
    return dims * q.shape[0] * q.shape[1] * k.shape[1] * ranks ** 2


def _work(q: Tensor, k: Tensor, v: Tensor, call: _Call, backward: bool) -> _schedules.Work:
    ranks = dist.get_world_size(call.group)
    slowest = torch.tensor([_flop_per_us(q, k, v, call)], dtype=torch.float64, device=q.device)
    dist.all_reduce(slowest, dist.ReduceOp.MIN, call.group)
    size = q.element_size()
    return _schedules.Work(ranks, call.layout != "contiguous", call.causal, _flop(q, k, v, call, ranks),
                           size * (k.numel() + v.numel()), size * 2 * q.numel(), float(slowest.item()), backward)


_known: Any = weakref.WeakKeyDictionary()   # of each group, its _schedules.Knowledge
_chosen: Any = weakref.WeakKeyDictionary()  # of each group: kinds of calls and (schedule, reason)


def _of_group(table: Any, group: Optional[dist.ProcessGroup], make: Any) -> Any:
    key = dist.group.WORLD if group is None else group
    if key not in table:
        table[key] = make()
    return table[key]


def _choose(q: Tensor, k: Tensor, v: Tensor, call: _Call, kind: str, backward: bool) -> Tuple[str, str]:
    """Returns the schedule of a call, and why. The first time for a kind of call, the ranks talk to each other."""
    if call.schedule != "auto":
        return call.schedule, f"schedule={call.schedule!r} was asked for"
    chosen: Dict[str, Tuple[str, str]] = _of_group(_chosen, call.group, dict)
    if kind not in chosen:
        if len(chosen) >= _KINDS:
            chosen.clear()
        ranks = dist.get_world_size(call.group)
        reasons = {name: _unfit(name, q, k, call, ranks) for name in _schedules.SCHEDULES}
        fitting = [name for name, reason in reasons.items() if reason is None]
        others = "; ".join(f"not {name}: {reason}" for name, reason in reasons.items() if reason is not None)
        if not fitting:
            raise NotImplementedError(f"no schedule serves this call; {others}")
        if len(fitting) == 1:
            chosen[kind] = fitting[0], f"it alone serves this call; {others}"
        else:
            known, work = _knowledge(q, call), _work(q, k, v, call, backward)
            times = known.times(kind, work, fitting)
            chosen[kind] = (min(fitting, key=lambda name: times[name]),
                            _schedules.why(kind, known, times) + ("; " + others if others else ""))
    return chosen[kind]


def _knowledge(q: Tensor, call: _Call) -> _schedules.Knowledge:
    known: _schedules.Knowledge = _of_group(_known, call.group, _schedules.Knowledge)
    if known.link is None:
        known.link = _schedules.measure(call.group, q.device)
    return known


# ---- the ranks agree ----


def _describe(q: Any, k: Any, v: Any, call: _Call) -> str:
    def of(tensor: Any) -> str:
        if not isinstance(tensor, Tensor):
            return type(tensor).__name__
        return f"{list(tensor.shape)} {str(tensor.dtype).replace('torch.', '')}"

    named = {**call.settings, "alibi_slopes": call.alibi_slopes, "window": call.window, "lengths": call.lengths}
    return (f"q {of(q)}, k {of(k)}, v {of(v)}, layout {call.layout!r}, schedule {call.schedule!r}, causal {call.causal}, "
            f"sinks {of(call.sinks)}, dropout_p {call.dropout_p}, deterministic {call.deterministic}, " + ", ".join(
                f"{name} {of(value) if isinstance(value, Tensor) else value}"
                for name, value in sorted(named.items()) if name != "context"))


_KINDS = 4096  # of calls, that are remembered of a group

_agreed: Any = weakref.WeakKeyDictionary()  # of each group, what its ranks agree on


def _agree(q: Any, k: Any, v: Any, call: _Call, given: Optional[Tensor]) -> str:
    """Raises one error on every rank if the ranks' calls differ, or if one is wrong. Asks the others once for each kind
    of call. Returns the kind."""
    mine = _describe(q, k, v, call)
    known: Set[str] = _of_group(_agreed, call.group, set)
    if mine in known and given is None:
        return mine
    wrong = None
    try:
        _check(q, k, v, call, given)
    except (ValueError, NotImplementedError) as error:
        wrong = error
    theirs: List[Any] = [None] * dist.get_world_size(call.group)
    dist.all_gather_object(theirs, (mine, wrong), group=call.group)
    for rank, (other, _) in enumerate(theirs):
        if other != theirs[0][0]:
            raise ValueError(f"the ranks' calls differ: rank 0 has {theirs[0][0]}; rank {rank} has {other}")
    for _, error in theirs:
        if error is not None:
            raise error
    if len(known) >= _KINDS:
        known.clear()  # on all ranks at the same call
    known.add(mine)
    return mine


# ---- autograd ----

_FORWARD = {"ring": _ring_forward, "gather": _gather_forward, "ulysses": _ulysses_forward}
_BACKWARD = {"ring": _ring_backward, "gather": _gather_backward, "ulysses": _ulysses_backward}


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, sinks: Optional[Tensor], call: _Call) -> Any:
        q, k, v = (_readable(tensor.detach()) for tensor in (q, k, v))
        out, lse, *kept = _FORWARD[call.schedule](q, k, v, call)
        ctx.save_for_backward(*kept, *((out, lse) if len(kept) == 3 else ()))
        ctx.call = call
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor, _: Any) -> Any:
        gradients = _BACKWARD[ctx.call.schedule](d_out.contiguous(), *ctx.saved_tensors, ctx.call)
        d_sinks = gradients[3] if len(gradients) > 3 and ctx.needs_input_grad[3] else None
        return (*gradients[:3], d_sinks, None)


def _readable(tensor: Tensor) -> Tensor:
    """Returns a tensor that kernels can read: D contiguous, rows at multiples of 16 bytes."""
    steps = [stride for stride, extent in zip(tensor.stride()[:-1], tensor.shape) if extent > 1]
    ready = tensor.stride(-1) == 1 and tensor.data_ptr() % 16 == 0 and all(step % 8 == 0 and step for step in steps)
    return tensor if ready else tensor.contiguous()


# ---- functions ----


def _make_call(group: Optional[dist.ProcessGroup], layout: str, schedule: str, causal: bool, window: Any,
               softcap: Optional[float], scale: Optional[float], alibi_slopes: Optional[Tensor],
               sinks: Optional[Tensor], dropout_p: Optional[float], dropout_seed: Any, cu_seqlens: Any,
               deterministic: Optional[bool], context: Any) -> _Call:
    if deterministic is None:
        deterministic = torch.are_deterministic_algorithms_enabled()
    pair = (-1, -1) if window is None else _native.window(window)
    if causal:
        pair = (pair[0], -1)
    if dropout_p and dropout_seed is None:
        dropout_seed = int(torch.randint(1 << 62, ()))  # of the host's generator: nothing waits for a device
    return _Call(group, layout, schedule, bool(causal), None if pair == (-1, -1) else pair, alibi_slopes, sinks,
                 float(dropout_p or 0), dropout_seed, deterministic,
                 None if cu_seqlens is None else tuple(_lengths_of(cu_seqlens)),
                 {"softcap": softcap, "scale": scale, "context": context})


def _wants_gradient(*tensors: Any) -> bool:
    return torch.is_grad_enabled() and any(isinstance(tensor, Tensor) and tensor.requires_grad for tensor in tensors)


def attention(q: Tensor, k: Tensor, v: Tensor, *, group: Optional[dist.ProcessGroup] = None, layout: str = "zigzag",
              schedule: str = "auto", causal: bool = False, window: Any = None, softcap: Optional[float] = None,
              scale: Optional[float] = None, alibi_slopes: Optional[Tensor] = None, sinks: Optional[Tensor] = None,
              dropout_p: float = 0.0, dropout_seed: Any = None, cu_seqlens: Any = None,
              positions: Optional[Tensor] = None, deterministic: Optional[bool] = None, return_lse: bool = False,
              context: Optional[_native.Context] = None) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """Returns this rank's rows of attention over a sequence that the ranks of a group share. It has gradients.

    q: [B, S / P, Hq, D]; k, v: [B, S / P, Hkv, D]: this rank's rows, which shard() gives. All ranks call it alike.
    layout: see positions(). Use 'zigzag' or 'striped' if attention is causal, so that all ranks have equal work.
    schedule: 'ring' passes K and V from rank to rank; the next step's travel while a step computes. 'gather' gives
    every rank all of them first, which takes P times their memory. 'ulysses' gives every rank some heads of all rows; Hq
    and Hkv are multiples of P. 'auto' takes the fastest by a model of the link and the kernels, which tune() corrects;
    explain() says which and why. The first call of a kind measures the link if its group was not measured.
    window: masks are exactly those of one GPU. With packed sequences by 'gather' (causal) and 'ulysses' only.
    alibi_slopes: distances are those of one GPU. By 'ring' without packed sequences (striped: causal), by 'gather'
    causal, by 'ulysses' always.
    sinks: float32 [Hq], alike on all ranks. Its gradient is that of the own rows (ulysses: heads): sum it over the
    ranks, as those of other parameters.
    dropout_p, dropout_seed: each pair of ranks draws for itself, so other elements are dropped than on one GPU. None
    draws a seed from the host's generator. Backward drops what forward did.
    cu_seqlens: bounds of packed sequences on all ranks together, a list or a tensor (one on a GPU is waited for). Each
    sequence is divided by the layout. q is then [T / P, Hq, D], k and v [T / P, Hkv, D].
    positions: those that the caller uses for its rows, if they are to be checked. The check waits for the device.
    deterministic: gradients have the same bits in every call. Default: torch.are_deterministic_algorithms_enabled().
    return_lse: True returns (out, lse). lse is float32 [B, Hq, S / P], or [Hq, T / P], and has no gradient.
    causal, softcap, scale, context: as in fa2_attn.attention.

    Raises one error on all ranks if their shapes, types or settings differ, or if one rank's are wrong. The ranks
    compare them once for each kind of call: a rank that later calls otherwise than the rest waits until the group's
    time-out.
    """
    call = _make_call(group, layout, schedule, causal, window, softcap, scale, alibi_slopes, sinks, dropout_p,
                      dropout_seed, cu_seqlens, deterministic, context)
    kind = _agree(q, k, v, call, positions)
    chosen, _ = _choose(q, k, v, call, kind, _wants_gradient(q, k, v, sinks))
    apply: Any = _Attention.apply
    out, lse = apply(q, k, v, sinks, call._replace(schedule=chosen))
    return (out, lse) if return_lse else out


def explain(q: Tensor, k: Tensor, v: Tensor, *, group: Optional[dist.ProcessGroup] = None, layout: str = "zigzag",
            schedule: str = "auto", causal: bool = False, window: Any = None, softcap: Optional[float] = None,
            scale: Optional[float] = None, alibi_slopes: Optional[Tensor] = None, sinks: Optional[Tensor] = None,
            dropout_p: float = 0.0, cu_seqlens: Any = None, deterministic: Optional[bool] = None,
            context: Optional[_native.Context] = None) -> Dict[str, str]:
    """Returns which schedule such a call gets, and why: {"schedule": ..., "reason": ...}. All ranks call it alike."""
    call = _make_call(group, layout, schedule, causal, window, softcap, scale, alibi_slopes, sinks, dropout_p, 0,
                      cu_seqlens, deterministic, context)
    kind = _agree(q, k, v, call, None)
    chosen, reason = _choose(q, k, v, call, kind, _wants_gradient(q, k, v, sinks))
    return {"schedule": chosen, "reason": reason}


def tune(q: Tensor, k: Tensor, v: Tensor, *, rounds: int = 5, **settings: Any) -> Dict[str, float]:
    """Times all schedules that serve a call, and returns their us. All ranks call it alike.

    Later calls of this kind with schedule 'auto' take the fastest. For other calls, the model is corrected by what was
    found here. settings: as in attention, without schedule. If a tensor requires a gradient, backward is timed, too.
    The knowledge lasts as long as the group.
    """
    attend: Dict[str, Any] = {name: value for name, value in settings.items() if name != "return_lse"}
    asked = {name: value for name, value in attend.items() if name not in ("dropout_seed", "positions")}
    explain(q, k, v, **asked)  # checks, and measures the link
    call = _make_call(**{**dict.fromkeys(("window", "softcap", "scale", "alibi_slopes", "sinks", "dropout_p",
                                          "cu_seqlens", "deterministic", "context", "group")),
                         "layout": "zigzag", "causal": False, **asked, "schedule": "auto", "dropout_seed": 0})
    backward = _wants_gradient(q, k, v, call.sinks)
    kind, times = _describe(q, k, v, call), {}

    def once(schedule: str) -> None:
        out: Any = attention(q, k, v, schedule=schedule, **attend)
        if backward:
            torch.autograd.grad(out, [tensor for tensor in (q, k, v) if tensor.requires_grad], torch.ones_like(out))

    for schedule in _schedules.SCHEDULES:
        if _unfit(schedule, q, k, call, dist.get_world_size(call.group)) is None:
            times[schedule] = _schedules.time_calls(functools.partial(once, schedule), q.device, call.group, rounds)
    _knowledge(q, call).add(kind, times, _work(q, k, v, call, backward))
    _of_group(_chosen, call.group, dict).clear()
    return times
