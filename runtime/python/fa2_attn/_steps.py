"""The schedules of fa2_attn.distributed: ring, all keys at once, heads instead of rows; forward and backward."""

from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist
from torch import Tensor

from . import _layouts, _native
from ._operations import _WITH_GRADIENT
from ._shares import (Call, Meeting, Which, are_apart, gather_meetings, is_whole, order_of, packed_settings, put,
                      ring_meetings, rows_of, settings_of_own, take)

# dQ, dK and dV, and the gradients of further operands by their names.
_Backward = Tuple[Tensor, Tensor, Tensor, Dict[str, Tensor]]

# ---- results of several calls ----


class _Lse:
    """The LSE of the own rows. A call on some of them has a contiguous copy, which is kept until other rows are asked
    for: later steps of a zigzag ring have the same rows.

    written: the calls write into it, so the copy is written back. Backward only reads, and autograd forbids it to write
    into a saved tensor.
    """

    def __init__(self, lse: Tensor, written: bool = True) -> None:
        self._whole, self._written = lse, written
        self._part: Optional[Tensor] = None
        self._which: Optional[Which] = None

    def lse(self, which: Which) -> Tensor:
        if is_whole(which, self._whole.shape[-1]):
            return self.finish()
        same = which == self._which if isinstance(which, slice) and isinstance(self._which, slice) \
            else which is self._which
        if not same or self._part is None:
            self.finish()
            self._which, self._part = which, take(self._whole, self._whole.dim() - 1, which).contiguous()
        return self._part

    def finish(self) -> Tensor:
        if self._written and self._part is not None and self._which is not None:
            dim = self._whole.dim() - 1
            if isinstance(self._which, slice):
                take(self._whole, dim, self._which).copy_(self._part)
            else:
                self._whole.index_copy_(dim, self._which, self._part)
        self._part = self._which = None
        return self._whole


class _Result:
    """O in float32 and LSE, into which calls are merged. A row's last call writes it in the caller's type, if it may;
    finish() writes the other rows."""

    def __init__(self, q: Tensor, v: Tensor, call: Call) -> None:
        self._q, self._call = q, call
        shape = (q.shape[0], q.shape[2], q.shape[1]) if call.lengths is None else (q.shape[1], q.shape[0])
        self._out = q.new_empty((*q.shape[:-1], v.shape[-1]))
        self._sum: Optional[Tensor] = None
        self._lse = _Lse(q.new_empty(shape, dtype=torch.float32))
        self._begun, self._done = _layouts.Rows(), _layouts.Rows()

    def _sums(self) -> Tensor:
        if self._sum is None:
            self._sum = torch.empty_like(self._out, dtype=torch.float32)
        return self._sum

    def _begin(self, which: Which) -> None:
        """Makes rows that no call has written empty results, so that others can be merged into them."""
        for rows in _missing(self._begun, which, self._q.shape[self._call.dim]):
            take(self._sums(), self._call.dim, rows).zero_()
            self._lse.lse(rows).fill_(-torch.inf)
            self._begun.add(rows)

    def add(self, k: Tensor, v: Tensor, meeting: Meeting) -> None:
        call, dim, which = self._call, self._call.dim, meeting.queries
        settings = {**meeting.settings, **call.settings, **call.dropout(*meeting.origin),
                    **call.operands_of(meeting.own)}
        inputs = [take(self._q, dim, which), *(take(tensor, dim, meeting.keys) for tensor in (k, v))]
        may_end = meeting.last and self._out.dtype != torch.float32
        if isinstance(which, slice) and not self._begun.meets(which):
            self._write(inputs, which, may_end, settings)
        else:
            self._begin(which)
            self._merge(inputs, meeting, may_end, settings)
        if isinstance(which, slice):
            self._begun.add(which)
            if may_end:
                self._done.add(which)

    def _write(self, inputs: List[Tensor], which: slice, ends: bool, settings: Dict[str, Any]) -> None:
        dim, lse = self._call.dim, self._lse.lse(which)
        if ends:
            _, made = _native.launch(*inputs, out=take(self._out, dim, which), return_lse=True, **settings)
            lse.copy_(made)
        else:
            _native.attention_partial(*inputs, out=take(self._sums(), dim, which), lse=lse, **settings)

    def _merge(self, inputs: List[Tensor], meeting: Meeting, ends: bool, settings: Dict[str, Any]) -> None:
        dim, which = self._call.dim, meeting.queries
        sums, lse = take(self._sums(), dim, which), self._lse.lse(which)
        if ends:
            _native.attention_partial(*inputs, out=take(self._out, dim, which), lse=lse, carried=sums, **settings)
            return
        _native.attention_partial(*inputs, out=sums, lse=lse, partial="merge", **settings)
        put(self._sums(), dim, which, sums)

    def finish(self) -> Tuple[Tensor, Tensor]:
        call, every = self._call, slice(0, self._q.shape[self._call.dim])
        self._begin(every)
        for rows in self._done.missing(every):
            take(self._out, call.dim, rows).copy_(take(self._sums(), call.dim, rows))
        return self._out, self._lse.finish()


def _missing(begun: _layouts.Rows, which: Which, count: int) -> List[slice]:
    return begun.missing(which if isinstance(which, slice) else slice(0, count))


class _Begun:
    """A gradient in float32, and which of its rows calls have written."""

    def __init__(self, whole: Tensor, dim: int) -> None:
        self.whole, self._dim, self._rows = whole, dim, _layouts.Rows()

    def is_new(self, which: Which) -> bool:
        return isinstance(which, slice) and not self._rows.meets(which)

    def begin(self, which: Optional[Which] = None) -> None:
        """Sets rows to 0 that no call has written: all, or some, so that a call can add to them."""
        count = self.whole.shape[self._dim]
        for rows in _missing(self._rows, slice(0, count) if which is None else which, count):
            take(self.whole, self._dim, rows).zero_()
            self._rows.add(rows)

    def mark(self, which: Which) -> None:
        if isinstance(which, slice):
            self._rows.add(which)


def _gradients_of(operands: Dict[str, Any]) -> Tuple[List[str], Dict[str, Any]]:
    """Returns the operands with a gradient, in the order of results, and what asks attention_backward for them."""
    names = [name for name in _WITH_GRADIENT if name in operands]
    return names, {"d" + name: True for name in names}


class _Gradients:
    """dQ in float32 and gradients of operands, to which all calls add, and dK and dV of the keys of some calls."""

    def __init__(self, d_out: Tensor, q: Tensor, out: Tensor, lse: Tensor, call: Call) -> None:
        self._d_out, self._q, self._out, self._call = d_out, q, out, call
        self._lse = _Lse(lse, written=False)
        self._dq = _Begun(torch.empty_like(q, dtype=torch.float32), call.dim)
        self.of_operands: Dict[str, Tensor] = {}

    def _add(self, k: Tensor, v: Tensor, into: Tuple[_Begun, _Begun], meeting: Meeting) -> None:
        """into: dK and dV. Rows that no call has written are written, others are added to."""
        call, dim = self._call, self._call.dim
        operands = call.operands_of(meeting.own)
        names, wanted = _gradients_of(operands)
        sums = ((self._dq, meeting.queries), (into[0], meeting.keys), (into[1], meeting.keys))
        write = all(gradient.is_new(which) for gradient, which in sums)
        for gradient, which in sums:
            gradient.mark(which) if write else gradient.begin(which)
        queries = [take(tensor, dim, meeting.queries) for tensor in (self._d_out, self._q, self._out)]
        dq, dk, dv = (take(gradient.whole, dim, which) for gradient, which in sums)
        _, _, _, *more = _native.attention_backward(
            queries[0], queries[1], take(k, dim, meeting.keys), take(v, dim, meeting.keys), queries[2],
            self._lse.lse(meeting.queries), **operands, **wanted,
            partial="write" if write else "merge", dq=dq, dk=dk, dv=dv,
            deterministic=call.deterministic, **meeting.settings, **call.settings, **call.dropout(*meeting.origin))
        for (gradient, which), part in zip(sums, (dq, dk, dv)):
            put(gradient.whole, dim, which, part)
        for name, part in zip(names, more):
            self.of_operands[name] = self.of_operands[name] + part if name in self.of_operands else part

    def of_keys(self, k: Tensor, v: Tensor, meetings: List[Meeting]) -> "_Pair":
        """Returns dK and dV of some keys from these calls, in float32. Rows that no call has are 0."""
        pair = _Pair.like(k, v, torch.float32)
        rows = (_Begun(pair.k, self._call.dim), _Begun(pair.v, self._call.dim))
        for meeting in meetings:
            self._add(k, v, rows, meeting)
        for gradient in rows:
            gradient.begin()
        return pair

    def dq(self) -> Tensor:
        self._dq.begin()
        return self._dq.whole.to(self._q.dtype)


# ---- communication ----


class _Ring:
    """Passes tensors around. Sending and receiving begin at once; waiting orders the stream, and not the host.

    way: 1 passes them to the next rank, -1 to the one before.
    """

    def __init__(self, group: Optional[dist.ProcessGroup], way: int) -> None:
        self.group = group
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self._way, self._from = way, (self.rank - way) % self.ranks
        self._next, self._before = self._global((self.rank + way) % self.ranks), self._global(self._from)

    def _global(self, rank: int) -> int:
        return rank if self.group is None else dist.get_global_rank(self.group, rank)

    def owner(self, step: int) -> int:
        """Returns the rank whose keys are here after `step` passings; before the first, the own ones are."""
        return (self.rank - self._way * step) % self.ranks

    def begin(self, sent: Tuple[Tensor, ...], got: Tuple[Tensor, ...], what: str) -> "Passing":
        name = f"{what} from rank {self._from} to rank {self.rank}"
        with _named(name):
            works = dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, self._next, self.group) for tensor in sent] +
                                           [dist.P2POp(dist.irecv, tensor, self._before, self.group) for tensor in got])
        return Passing(works, sent, got, name)


class _named:
    """Says in an error which step of a schedule failed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, _: Any) -> None:
        if isinstance(error, RuntimeError):
            raise RuntimeError(f"passing on {self._name} failed: {error}") from error


class Passing:
    def __init__(self, works: List[Any], sent: Tuple[Tensor, ...], got: Tuple[Tensor, ...], name: str) -> None:
        self._works, self._sent, self._got = works, sent, got  # kept until the transfer is done
        self._name = name

    def wait(self) -> Tuple[Tensor, ...]:
        with _named(self._name):
            for work in self._works:
                work.wait()
        return self._got


def begin_gather(own: Tensor, group: Optional[dist.ProcessGroup], what: str) -> Passing:
    """Begins to gather the ranks' tensors: [ranks, ...]."""
    ranks = dist.get_world_size(group)
    whole, name = own.new_empty((ranks, *own.shape)), f"{what} to {ranks} ranks"
    with _named(name):
        work = dist.all_gather_into_tensor(whole.flatten(0, 1), own, group=group, async_op=True)
    return Passing([work], (own,), (whole,), name)


def begin_sum(parts: Tensor, group: Optional[dist.ProcessGroup], what: str) -> Passing:
    """Begins to sum parts [ranks, ...] over the ranks: each rank gets the sum of its own part. May write into parts."""
    name, own = f"{what} to {len(parts)} ranks", parts[dist.get_rank(group)]
    with _named(name):
        if dist.get_backend(group) == "nccl":
            own = torch.empty_like(own)
            work = dist.reduce_scatter_tensor(own, parts, group=group, async_op=True)
        else:
            work = dist.all_reduce(parts, group=group, async_op=True)
    return Passing([work], (parts,), (own,), name)


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


# If K and V have at most so many bytes, they travel as one message: the host needs some 60 us for each one that is sent
# or received. A device copies these bytes in 12 us. Larger ones occupy it for longer than the host needs.
_JOINED_BYTES = 1 << 24
# NCCL's kernel, which passes large keys on, and this step's attention become ready at the same moment. If attention is
# first, it occupies all SMs, and the keys arrive when it ends. So attention waits for so many clocks: about 10 us.
_NCCL_FIRST_CLOCKS = 20000


class _Keys:
    """K and V that are here: at first the own ones, or those of rank owner(first)."""

    def __init__(self, ring: _Ring, k: Tensor, v: Tensor, name: str, first: int = 0) -> None:
        self._ring, self._name = ring, name
        self.here: Tuple[Tensor, Tensor] = (k, v)
        self._joined = (k.numel() + v.numel()) * k.element_size() <= _JOINED_BYTES
        self._pair: Optional[_Pair] = None  # if they are joined and have travelled: they are in this buffer
        self._step = first
        self._passing: Optional[Passing] = None

    def begin(self) -> None:
        """Begins to pass the keys on that are here, unless every other rank has had them."""
        ring = self._ring
        if self._step + 1 == ring.ranks:
            return
        k, v = self.here
        sent: Tuple[Tensor, ...]
        got: Tuple[Tensor, ...]
        if self._joined:
            sent = ((self._pair or _Pair.of(k, v)).buffer,)
            self._pair = _Pair.like(k, v)
            got = (self._pair.buffer,)
        else:
            sent = k.contiguous(), v.contiguous()
            got = tuple(torch.empty_like(tensor) for tensor in sent)
        self._passing = ring.begin(sent, got, f"keys in step {self._step + 1} of {ring.ranks}{self._name}")
        if k.is_cuda and not self._joined:
            with torch.cuda.device(k.device):
                torch.cuda._sleep(_NCCL_FIRST_CLOCKS)

    def next(self) -> None:
        """Waits for the next keys."""
        assert self._passing is not None
        got = self._passing.wait()
        self.here = (self._pair.k, self._pair.v) if self._pair is not None else (got[0], got[1])
        self._passing = None
        self._step += 1


def _ring_plan(q: Tensor, k: Tensor, call: Call, ring: _Ring) -> List[List[Meeting]]:
    """Returns the calls of each step of forward, and which of them are the last ones of their rows."""
    later: List[Which] = []
    plan: List[List[Meeting]] = []
    for step in reversed(range(ring.ranks)):
        found = ring_meetings(q, k, call, ring.rank, ring.owner(step), ring.ranks)
        for i in reversed(range(len(found))):
            found[i] = found[i]._replace(last=are_apart(found[i].queries, later))
            later.append(found[i].queries)
        plan.append(found)
    return plan[::-1]


def _ring_forward(q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tuple[Tensor, ...]:
    ring, result = _Ring(call.group, 1), _Result(q, v, call)
    keys = _Keys(ring, k, v, "")
    for step, found in enumerate(_ring_plan(q, k, call, ring)):
        if step > 0:
            keys.next()
        keys.begin()
        for meeting in found:
            result.add(*keys.here, meeting)
    out, lse = result.finish()
    return (out, lse, q, k, v, out, lse, *keys.here)


def _ring_backward(d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, k_here: Tensor,
                   v_here: Tensor, call: Call) -> _Backward:
    """The ring turns the other way, and begins with the keys that forward had last: those of the next rank. So no keys
    must arrive before the first step, and two ranks pass none at all.

    Each step computes the gradients of the keys that are here. They are added to those that arrive from the next rank,
    and travel on, one step behind the keys. A chunk's gradients begin at the rank before its owner, and end at its
    owner, whose own keys are the last step: the last gradients travel meanwhile.
    """
    ring, sums = _Ring(call.group, -1), _Gradients(d_out, q, out, lse, call)
    keys = _Keys(ring, k_here, v_here, " of backward", 1)
    travelling: Optional[Passing] = None
    for step in range(1, ring.ranks):
        if step > 1:
            keys.next()
        keys.begin()
        into = sums.of_keys(*keys.here, ring_meetings(q, k, call, ring.rank, ring.owner(step), ring.ranks))
        if travelling is not None:
            into.buffer.add_(travelling.wait()[0])
        name = f"gradients of keys in step {step} of {ring.ranks} of backward"
        travelling = ring.begin((into.buffer,), (torch.empty_like(into.buffer),), name)
    own = sums.of_keys(k, v, ring_meetings(q, k, call, ring.rank, ring.rank, ring.ranks))
    whole = _Pair.like(k, v)
    if travelling is None:
        whole.buffer.copy_(own.buffer)
    else:
        torch.add(own.buffer, travelling.wait()[0], out=whole.buffer)  # in float32, rounded once
    return sums.dq(), whole.k, whole.v, sums.of_operands


# ---- all keys at once ----


def _all_rows(call: Call, own: Tensor) -> Tuple[int, ...]:
    return call.lengths if call.lengths is not None else (own.shape[1] * dist.get_world_size(call.group),)


def _gathered(k: Tensor, v: Tensor, call: Call) -> Tuple[Tensor, Tensor]:
    """Returns K and V of all ranks, in the order of positions."""
    pair, ranks = _Pair.of(k, v), dist.get_world_size(call.group)
    pairs = [pair.at(part) for part in begin_gather(pair.buffer, call.group, "all keys").wait()[0]]
    order = order_of(call.layout, ranks, _all_rows(call, k), k.device)
    return (torch.cat([one.k for one in pairs], call.dim).index_select(call.dim, order),
            torch.cat([one.v for one in pairs], call.dim).index_select(call.dim, order))


def _gather_forward(q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tuple[Tensor, ...]:
    keys, values = _gathered(k, v, call)
    out = q.new_empty((*q.shape[:-1], v.shape[-1]))
    shape = (q.shape[0], q.shape[2], q.shape[1]) if call.lengths is None else (q.shape[1], q.shape[0])
    lse = q.new_empty(shape, dtype=torch.float32)
    for meeting in gather_meetings(q, keys, call, dist.get_rank(call.group), dist.get_world_size(call.group)):
        part = take(out, call.dim, meeting.queries)
        _, part_lse = _native.launch(
            take(q, call.dim, meeting.queries), take(keys, call.dim, meeting.keys),
            take(values, call.dim, meeting.keys), out=part, return_lse=True, **call.operands, **call.masks(),
            **meeting.settings, **call.settings, **call.dropout(*meeting.origin))
        put(out, call.dim, meeting.queries, part)
        if isinstance(meeting.queries, slice):
            take(lse, lse.dim() - 1, meeting.queries).copy_(part_lse)
        else:
            lse.index_copy_(lse.dim() - 1, meeting.queries, part_lse)
    return out, lse, q, k, v, out, lse


def _gather_backward(d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
                     call: Call) -> _Backward:
    keys, values = _gathered(k, v, call)
    sums = _Gradients(d_out, q, out, lse, call)
    into = sums.of_keys(keys, values, [
        meeting._replace(settings={**call.masks(), **meeting.settings}) for meeting in
        gather_meetings(q, keys, call, dist.get_rank(call.group), dist.get_world_size(call.group))])
    return (sums.dq(), *_summed(into.k, into.v, k, v, call), sums.of_operands)


def _summed(dk: Tensor, dv: Tensor, k: Tensor, v: Tensor, call: Call) -> Tuple[Tensor, Tensor]:
    """Sums the gradients of all keys over the ranks; each rank gets the sums of its own keys."""
    ranks, lengths = dist.get_world_size(call.group), _all_rows(call, k)
    parts = []
    for rank in range(ranks):
        rows = rows_of(call.layout, rank, ranks, lengths, k.device)
        parts.append(_Pair.of(dk.index_select(call.dim, rows), dv.index_select(call.dim, rows)).buffer)
    own = _Pair(begin_sum(torch.stack(parts), call.group, "gradients of all keys").wait()[0], k.shape, v.shape)
    return own.k.to(k.dtype), own.v.to(v.dtype)


# ---- heads instead of rows ----


def _exchange(parts: Tensor, call: Call) -> Tensor:
    """parts: [ranks, ...], one for each rank. Returns what the ranks have for this one."""
    got = torch.empty_like(parts)
    with _named(f"heads to {dist.get_world_size(call.group)} ranks"):
        dist.all_to_all_single(got, parts, group=call.group)
    return got


def _to_heads(tensor: Tensor, call: Call) -> Tensor:
    """Returns some heads of all rows, in the order of positions, from all heads of the own rows."""
    ranks, dim = dist.get_world_size(call.group), call.dim
    sent = torch.stack(tensor.chunk(ranks, dim + 1))
    got = torch.cat(list(_exchange(sent, call)), dim)
    return got.index_select(dim, order_of(call.layout, ranks, _all_rows(call, tensor), tensor.device))


def _to_rows(tensor: Tensor, call: Call, dim: int, head_dim: int) -> Tensor:
    """The inverse. dim, head_dim: the dimensions of rows and of heads."""
    ranks = dist.get_world_size(call.group)
    lengths = call.lengths if call.lengths is not None else (tensor.shape[dim],)
    sent = torch.stack([tensor.index_select(dim, rows_of(call.layout, rank, ranks, lengths, tensor.device))
                        for rank in range(ranks)])
    return torch.cat(list(_exchange(sent, call)), head_dim)


def _own_heads(numbers: Optional[Tensor], call: Call) -> Optional[Tensor]:
    """Returns the own heads' numbers of [Hq] or [B, Hq]."""
    if numbers is None:
        return None
    return numbers.chunk(dist.get_world_size(call.group), -1)[dist.get_rank(call.group)].contiguous()


def _ulysses_settings(q: Tensor, call: Call) -> Dict[str, Any]:
    own = {name: _own_heads(tensor, call) for name, tensor in call.operands.items()}
    masks = {**call.masks(), "alibi_slopes": _own_heads(call.alibi_slopes, call), **own}
    packed = {} if call.lengths is None else packed_settings(list(call.lengths), list(call.lengths), q.device)
    rank, ranks, heads = dist.get_rank(call.group), dist.get_world_size(call.group), q.shape[call.dim + 1]
    return {**masks, **packed, **call.settings, **call.dropout(head=rank * heads, heads=ranks * heads)}


def _ulysses_forward(q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tuple[Tensor, ...]:
    q, k, v = (_to_heads(tensor, call) for tensor in (q, k, v))
    out, lse = _native.launch(q, k, v, return_lse=True, **_ulysses_settings(q, call))
    rows = lse.dim() - 1
    return (_to_rows(out, call, call.dim, call.dim + 1), _to_rows(lse, call, rows, rows - 1), q, k, v, out, lse)


def _ulysses_backward(d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
                      call: Call) -> _Backward:
    settings = _ulysses_settings(q, call)
    names, wanted = _gradients_of(call.operands)
    *gradients, = _native.attention_backward(_to_heads(d_out, call), q, k, v, out, lse, **wanted,
                                             deterministic=call.deterministic, **settings)
    dq, dk, dv = (_to_rows(gradient, call, call.dim, call.dim + 1) for gradient in gradients[:3])
    of_operands = {}  # of the own heads; the sum over ranks is whole
    for name, part in zip(names, gradients[3:]):
        of_operands[name] = torch.zeros_like(call.operands[name], dtype=torch.float32)
        of_operands[name].chunk(dist.get_world_size(call.group))[dist.get_rank(call.group)].copy_(part)
    return dq, dk, dv, of_operands


# ---- nothing ----


def _empty_forward(q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tuple[Tensor, ...]:
    """Without batch, rows or heads: fa2 answers that without a kernel, and nothing moves."""
    out, lse = _native.launch(q, k, v, return_lse=True, **settings_of_own(q, call), **call.dropout())
    return out, lse, q, k, v


def _empty_backward(d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, call: Call) -> _Backward:
    dq, dk, dv = (torch.zeros_like(tensor) for tensor in (q, k, v))
    return dq, dk, dv, {name: torch.zeros_like(call.operands[name]) for name in _gradients_of(call.operands)[0]}


EMPTY = "none"  # the schedule of a call without batch, rows or heads

FORWARD: Dict[str, Callable[..., Tuple[Tensor, ...]]] = {
    "ring": _ring_forward, "gather": _gather_forward, "ulysses": _ulysses_forward, EMPTY: _empty_forward}
BACKWARD: Dict[str, Callable[..., _Backward]] = {
    "ring": _ring_backward, "gather": _gather_backward, "ulysses": _ulysses_backward, EMPTY: _empty_backward}
