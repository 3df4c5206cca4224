"""Attention over sequences that several GPUs share, on torch.distributed.

    import fa2_attn.distributed
    q, k, v = (fa2_attn.distributed.shard(tensor, layout="zigzag") for tensor in (q, k, v))    # own rows of [B, S, H, D]
    out = fa2_attn.distributed.attention(q, k, v, causal=True, layout="zigzag")                # own rows of out

Each rank has some rows of each sequence, by its layout. positions() says which. With the schedules 'ring' and 'gather'
keys travel and queries stay. Results over the keys of one rank are float32 until all are merged, and so are gradients.
So the error is about as in one call. With 'ulysses' heads are exchanged for rows: each rank has some heads of all rows.
"""

import functools
import inspect
import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple, Union

from ._frameworks import need

need("torch", "PyTorch", __name__)

import torch
import torch.distributed as dist
from torch import Tensor

from . import _layouts, _native, _schedules
from ._dispatch import truth
from ._layouts import LAYOUTS
from ._operations import _cast
from ._shares import DROPOUT_ROWS, Call, Kind, empty_of, lengths_of, order_of, rows_of, settings_of_own
from ._steps import BACKWARD, EMPTY, FORWARD

__all__ = ["attention", "explain", "gather", "positions", "shard", "tune"]

SCHEDULES = ("auto", *_schedules.SCHEDULES)

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
    lengths: List[int] = []
    if cu_seqlens is not None:
        lengths = lengths_of(cu_seqlens)
    elif length is not None:
        lengths = [length]
    else:
        raise ValueError("give the length of the sequence, or cu_seqlens")
    own = rows_of(layout, rank, ranks, tuple(lengths), device)
    if cu_seqlens is None:
        return own.clone()  # the other one is kept
    begins = torch.tensor([0, *lengths[:-1]], device=device).cumsum(0)
    return own - begins.repeat_interleave(torch.tensor([length // ranks for length in lengths], device=device))


def shard(tensor: Tensor, dim: Optional[int] = None, *, layout: str = "zigzag",
          group: Optional[dist.ProcessGroup] = None, cu_seqlens: Any = None) -> Tensor:
    """Returns this rank's rows of a tensor that every rank has whole. It has a gradient.

    dim: the dimension of rows. By default 1, as in [B, S, ...], or 0 with cu_seqlens, as in [T, ...].
    """
    dim = _dim_of(tensor, dim, cu_seqlens)
    lengths = _lengths_in(tensor.shape[dim], dim, cu_seqlens)
    rows = rows_of(layout, dist.get_rank(group), dist.get_world_size(group), tuple(lengths), tensor.device)
    return tensor.index_select(dim, rows)


def gather(tensor: Tensor, dim: Optional[int] = None, *, layout: str = "zigzag",
           group: Optional[dist.ProcessGroup] = None, cu_seqlens: Any = None) -> Tensor:
    """Returns the whole tensor of which each rank has its rows: the inverse of shard. It has no gradient.

    dim: as in shard. An LSE, [B, Hq, S / P] or [Hq, T / P], has its rows last: gather(lse, -1) returns [B, Hq, S] or
    [Hq, T].
    """
    dim, ranks = _dim_of(tensor, dim, cu_seqlens), dist.get_world_size(group)
    lengths = _lengths_in(tensor.shape[dim] * ranks, dim, cu_seqlens)
    parts = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(ranks)]
    dist.all_gather(parts, tensor.detach().contiguous(), group=group)
    return torch.cat(parts, dim).index_select(dim, order_of(layout, ranks, tuple(lengths), tensor.device))


def _place(group: Optional[dist.ProcessGroup], rank: Optional[int], ranks: Optional[int]) -> Tuple[int, int]:
    if (rank is None) != (ranks is None):
        raise ValueError("give both rank and ranks, or neither")
    if rank is not None and ranks is not None:
        if not 0 <= rank < ranks:
            raise ValueError(f"rank is {rank} of {ranks} ranks; it must be at least 0 and less than {ranks}")
        return rank, ranks
    return dist.get_rank(group), dist.get_world_size(group)


def _lengths_in(rows: int, dim: int, cu_seqlens: Any) -> List[int]:
    """Returns the lengths of the sequences in a tensor that has all rows in dimension `dim`."""
    lengths = [rows] if cu_seqlens is None else lengths_of(cu_seqlens)
    if sum(lengths) != rows:
        raise ValueError(f"cu_seqlens ends with {sum(lengths)}, and the tensor has {rows} rows in dimension {dim} on "
                         "all ranks together; an LSE has its rows in dimension -1")
    return lengths


def _dim_of(tensor: Tensor, dim: Optional[int], cu_seqlens: Any) -> int:
    dim = dim if dim is not None else 1 if cu_seqlens is None else 0
    if not -tensor.dim() <= dim < tensor.dim():
        raise ValueError(f"dim is {dim}, and the tensor is {list(tensor.shape)}; dim is the dimension of its rows")
    return dim


# ---- what a call can have ----


def _dropout_unfit(schedule: str, q: Any, k: Any, call: Call, ranks: int) -> Optional[str]:
    """Returns why the parts of a schedule with some rows would not drop what one call drops; None: they do."""
    count = _layouts.parts(call.layout, ranks)
    if call.lengths is not None:
        return "dropout of packed sequences needs all rows of each sequence in one call"
    if count > 1 and call.layout == "striped":
        return "dropout needs neighbouring rows, and striped rows are not"
    for name, tensor in (("q", q), ("k", k))[:2 if schedule == "ring" else 1]:
        rows = tensor.shape[1] * ranks // count
        if count > 1 and rows % DROPOUT_ROWS:
            return (f"dropout needs pieces of a multiple of {DROPOUT_ROWS} rows, and {name} has pieces of {rows}: pad "
                    f"the sequence to a multiple of {DROPOUT_ROWS * count}")
    return None


def _unfit(schedule: str, q: Any, k: Any, call: Call, ranks: int) -> Optional[str]:
    """Returns why a schedule does not serve a call; None: it does."""
    if schedule == "ulysses":
        for name, tensor in (("q", q), ("k", k)):
            heads = tensor.shape[call.dim + 1]
            if heads % ranks:
                return f"{name} has {heads} heads, which {ranks} ranks cannot share evenly"
        return None
    if call.alibi_slopes is not None and schedule == "ring" and call.lengths is not None:
        return "ALiBi in packed sequences: the distances between pieces differ from sequence to sequence"
    if call.alibi_slopes is not None and schedule == "gather" and not call.causal:
        return "ALiBi without a causal mask needs queries that end at the last key"
    if schedule == "ring" and call.window is not None and call.lengths is not None:
        return "windows of packed sequences differ from sequence to sequence"
    if schedule == "gather" and call.causal and call.layout == "striped":
        return "the queries of striped rows are at no neighbouring positions"
    if schedule == "gather" and call.window is not None and not call.causal:
        return "a window without a causal mask is not aligned to the last key of a rank's queries"
    return _dropout_unfit(schedule, q, k, call, ranks) if call.dropout_p > 0 else None


def _check(q: Any, k: Any, v: Any, call: Call, given: Optional[Tensor], backward: bool) -> None:
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
    _check_served(q, k, v, call, backward)


def _check_served(q: Tensor, k: Tensor, v: Tensor, call: Call, backward: bool) -> None:
    """Raises what attention on these tensors would raise: later, keys would already be on their way to other ranks."""
    settings = settings_of_own(q, call)
    if call.dropout_p > 0:
        settings.update(dropout_p=call.dropout_p, dropout_seed=call.dropout_seed)
    if empty_of(q, k, call) is not None:
        _native.launch(q, k, v, differentiable=backward, **settings)  # no kernel
        return
    del settings["context"]
    ops: List[Any] = ["forward", "backward"] if backward else ["forward"]
    for op in ops:
        _context_of(q, call).explain(_native.problem(q, k, v, op=op, **settings))


def _context_of(q: Tensor, call: Call) -> _native.Context:
    context: _native.Context = call.settings.get("context") or _native.default_context(q.device.index or 0)
    return context


def _check_positions(given: Tensor, rows: int, call: Call) -> None:
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


def _flop_per_us(q: Tensor, k: Tensor, v: Tensor, call: Call) -> float:
    """Returns the rate of fa2's kernels by its estimate for the own rows and the own keys."""
    settings = settings_of_own(q, call._replace(window=None, alibi_slopes=None, operands={}, settings={}))
    us = _context_of(q, call).explain(_native.problem(q, k, v, **settings))["estimate_us"]
    return max(_flop(q, k, v, call, 1) / max(us, 1.0), 1.0)


def _flop(q: Tensor, k: Tensor, v: Tensor, call: Call, ranks: int) -> float:
    dims = (q.shape[-1] + v.shape[-1]) * q.shape[call.dim + 1] * (0.5 if call.causal else 1.0) * 2
    if call.lengths is not None:
        return dims * sum((length * ranks / dist.get_world_size(call.group)) ** 2 for length in call.lengths)
    return dims * q.shape[0] * q.shape[1] * k.shape[1] * ranks ** 2


def _work(q: Tensor, k: Tensor, v: Tensor, call: Call, backward: bool) -> _schedules.Work:
    ranks = dist.get_world_size(call.group)
    slowest = torch.tensor([_flop_per_us(q, k, v, call)], dtype=torch.float64, device=q.device)
    dist.all_reduce(slowest, dist.ReduceOp.MIN, call.group)
    size = q.element_size()
    return _schedules.Work(ranks, call.layout != "contiguous", call.causal, _flop(q, k, v, call, ranks),
                           size * (k.numel() + v.numel()), size * 2 * q.numel(), float(slowest.item()), backward)


_known: Any = weakref.WeakKeyDictionary()   # of each group, its _schedules.Knowledge
_chosen: Any = weakref.WeakKeyDictionary()  # of each group: kinds of calls and (schedule, reason)


def _of_group(table: Any, group: Optional[dist.ProcessGroup], make: Any) -> Any:
    if group is None and not dist.is_initialized():
        raise ValueError("there is no process group: call torch.distributed.init_process_group first")
    key = dist.group.WORLD if group is None else group
    if not isinstance(key, dist.ProcessGroup):
        raise ValueError(f"group is {group!r}; it must be a process group that has this rank")
    if key not in table:
        table[key] = make()
    return table[key]


def _choose(ready: "_Ready") -> Tuple[str, str]:
    """Returns the schedule of a call, and why. The first time for a kind of call, the ranks talk to each other."""
    (q, k, v), call, kind, backward = ready
    empty = empty_of(q, k, call)
    if empty is not None:
        return EMPTY, f"{empty}: nothing is computed, and nothing moves"
    if call.schedule != "auto":
        return call.schedule, f"schedule={call.schedule!r} was asked for"
    chosen: Dict[Kind, Tuple[str, str]] = _of_group(_chosen, call.group, dict)
    if kind not in chosen:
        if len(chosen) >= _KINDS:
            chosen.clear()
        ranks = dist.get_world_size(call.group)
        reasons = {name: _unfit(name, q, k, call, ranks) for name in _schedules.SCHEDULES}
        fitting = [name for name, reason in reasons.items() if reason is None]
        others = "; ".join(f"not {name}: {reason}" for name, reason in reasons.items() if reason is not None)
        if not fitting:
            raise NotImplementedError(f"no schedule serves this call; {others}")
        if ranks == 1:
            chosen[kind] = fitting[0], "there is one rank, so nothing moves"
        elif len(fitting) == 1:
            chosen[kind] = fitting[0], f"it alone serves this call; {others}"
        else:
            known, work = _knowledge(q, call), _work(q, k, v, call, backward)
            _measure_host(known, q, k, v, call, fitting, backward)
            times = known.times(kind, work, fitting)
            best = known.fastest(work, times)
            chosen[kind] = best, _schedules.why(kind, known, times, best, backward) + ("; " + others if others else "")
    return chosen[kind]


def _knowledge(q: Tensor, call: Call) -> _schedules.Knowledge:
    known: _schedules.Knowledge = _of_group(_known, call.group, _schedules.Knowledge)
    if known.link is None:
        known.link = _schedules.measure(call.group, q.device)
    return known


_FEW_ROWS, _HOST_ROUNDS = 32, 3


def _measure_host(known: _schedules.Knowledge, q: Tensor, k: Tensor, v: Tensor, call: Call, fitting: List[str],
                  backward: bool) -> None:
    """Times calls of a few rows, which take the host longer than the device, for schedules that have no time yet."""
    plain = call._replace(lengths=None, window=None, alibi_slopes=None, operands={}, dropout_p=0.0)
    few = [tensor.new_zeros((1, _FEW_ROWS, *tensor.shape[-2:])) for tensor in (q, k, v)]

    def once(schedule: str) -> None:
        out, _, *kept = FORWARD[schedule](*few, plain)
        if backward:
            BACKWARD[schedule](torch.zeros_like(out), *kept, plain)

    with torch.no_grad():
        for schedule in fitting:
            if (schedule, backward) not in known.host:
                known.host[schedule, backward] = _schedules.time_calls(functools.partial(once, schedule), q.device,
                                                                       call.group, _HOST_ROUNDS)


# ---- the ranks agree ----


def _describe_tensor(tensor: Any) -> str:
    if not isinstance(tensor, Tensor):
        return type(tensor).__name__
    return f"{list(tensor.shape)} {str(tensor.dtype).replace('torch.', '')}"


def _describe(q: Any, k: Any, v: Any, call: Call, backward: bool) -> Kind:
    of = _describe_tensor
    named = {**call.settings, **call.operands, "alibi_slopes": call.alibi_slopes, "window": call.window,
             "sequences": call.lengths}
    return (("function", "attention"), ("q", of(q)), ("k", of(k)), ("v", of(v)), ("layout", repr(call.layout)),
            ("schedule", repr(call.schedule)), ("causal", str(call.causal)), ("a gradient", _wanted(backward)),
            ("dropout_p", str(call.dropout_p)), ("deterministic", str(call.deterministic)),
            *((name, of(value) if isinstance(value, Tensor) else str(value))
              for name, value in sorted(named.items()) if name != "context" and value is not None))


def _wanted(backward: bool) -> str:
    return "wanted" if backward else "not wanted"


def _difference(first: Kind, other: Kind, rank: int) -> str:
    """Names what two ranks' calls differ in: of rank 0, and of another rank."""
    one, two = dict(first), dict(other)
    names = [name for name in {**one, **two} if one.get(name) != two.get(name)]
    return "; ".join(f"{name} is {one.get(name, _NOT_GIVEN)} on rank 0 and {two.get(name, _NOT_GIVEN)} on rank {rank}"
                     for name in (names[:1] if names[0] == "function" else names))


_NOT_GIVEN = "not given"


_KINDS = 4096  # of calls, that are remembered of a group

_agreed: Any = weakref.WeakKeyDictionary()  # of each group, what its ranks agree on


class _Ready(NamedTuple):
    """A call on which the ranks agree."""
    tensors: Tuple[Tensor, Tensor, Tensor]
    call: Call
    kind: Kind
    backward: bool


def _agree(tensors: Tuple[Any, Any, Any], settings: Dict[str, Any], switches: Dict[str, Any]) -> _Ready:
    """Returns a call. Raises what _agree_on does. settings: as in attention. switches: further ones that are bools."""
    group, given = settings["group"], settings["positions"]
    backward = _wants_gradient(*tensors, settings["sinks"])
    known: Set[Kind] = _of_group(_agreed, group, set)
    mine: Optional[Kind] = None
    wrong: Optional[Exception] = None
    try:
        for name, value in switches.items():
            truth(name, value)
        call, tensors = _make_call(settings), _as_autocast(*tensors)
        kind = mine = _describe(*tensors, call, backward)
        if given is not None:
            mine = (*kind, ("positions", "given"))
        elif mine in known:
            return _Ready(tensors, call, kind, backward)
        _check(*tensors, call, given, backward)
    except Exception as error:
        wrong = error  # the other ranks wait, whatever it is
    _agree_on(mine, wrong, group, again=given is not None)
    return _Ready(tensors, call, kind, backward)


def _as_autocast(*tensors: Any) -> Any:
    """Returns q, k and v in autocast's type if autocast is on, as fa2_attn.attention does."""
    if not all(isinstance(tensor, Tensor) for tensor in tensors):
        return tensors
    kind = tensors[0].device.type
    return tuple(_cast(*tensors, kind=kind)) if torch.is_autocast_enabled(kind) else tensors


def _agree_on(mine: Optional[Kind], wrong: Optional[Exception], group: Optional[dist.ProcessGroup],
              again: bool = False) -> None:
    """Raises one error on every rank if the ranks' calls differ, or if one is wrong.

    Asks the others once for each kind of call, or again if `again` is true. mine: this rank's kind, if it has one.
    """
    known: Set[Kind] = _of_group(_agreed, group, set)
    if mine in known and wrong is None and not again:
        return
    _raise_common(mine, wrong, group)
    assert mine is not None
    if len(known) >= _KINDS:
        known.clear()  # on all ranks at the same call
    known.add(mine)


def _raise_common(mine: Optional[Kind], wrong: Optional[Exception], group: Optional[dist.ProcessGroup]) -> None:
    """Tells the other ranks this one's description and error. Raises the same error on all, if any has one.

    Where a rank has no description, its error comes first: nothing can be compared. Otherwise a difference does,
    because it says more than an error that follows from it.
    """
    theirs: List[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(theirs, (mine, None if wrong is None else _portable(wrong)), group=group)
    for other, complaint in theirs:
        if other is None:
            raise complaint from wrong
    for rank, (other, _) in enumerate(theirs):
        if other != theirs[0][0]:
            raise ValueError(f"the ranks' calls differ: {_difference(theirs[0][0], other, rank)}")
    for _, complaint in theirs:
        if complaint is not None:
            raise complaint from wrong


def _portable(error: Exception) -> Exception:
    """Returns an error that every rank can unpickle."""
    for kind in (ValueError, TypeError, NotImplementedError):
        if type(error) is kind:
            return kind(str(error))
    return RuntimeError(f"{type(error).__name__}: {error}")


# ---- autograd ----


class Attention(torch.autograd.Function):
    """Attention over the ranks' tensors. forward(q, k, v, call) returns out, lse and what backward needs.
    backward(d_out, ..., call) returns the gradients of q, k and v, and those of call.operands by their names."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, call: Any, forward: Callable[..., Tuple[Tensor, ...]],
                backward: Callable[..., Any], *_: Tensor) -> Any:
        q, k, v = (_readable(tensor.detach()) for tensor in (q, k, v))
        out, lse, *kept = forward(q, k, v, call)
        ctx.save_for_backward(*kept)
        ctx.call, ctx.run = call, backward
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor, _: Any) -> Any:
        *gradients, others = ctx.run(d_out.contiguous(), *ctx.saved_tensors, ctx.call)
        return (*gradients, None, None, None, *(others.get(name) for name in ctx.call.operands))


def _readable(tensor: Tensor) -> Tensor:
    """Returns a tensor that kernels can read: D contiguous, rows at multiples of 16 bytes."""
    steps = [stride for stride, extent in zip(tensor.stride()[:-1], tensor.shape) if extent > 1]
    grain = 16 // tensor.element_size()
    ready = tensor.stride(-1) == 1 and tensor.data_ptr() % 16 == 0 and all(step % grain == 0 and step for step in steps)
    return tensor if ready else tensor.contiguous()


# ---- functions ----


def _make_call(given: Dict[str, Any]) -> Call:
    """given: attention's keywords."""
    causal = truth("causal", given["causal"])
    deterministic = torch.are_deterministic_algorithms_enabled() if given["deterministic"] is None else \
        truth("deterministic", given["deterministic"])
    if _wants_gradient(given["alibi_slopes"]):
        raise NotImplementedError("alibi_slopes requires a gradient, and fa2 has none for it: detach it")
    pair = (-1, -1) if given["window"] is None else _native.window(given["window"])
    if causal:
        pair = (pair[0], -1)
    dropout_p, dropout_seed, sinks, cu_seqlens = (
        given[name] for name in ("dropout_p", "dropout_seed", "sinks", "cu_seqlens"))
    if dropout_p and dropout_seed is None:
        dropout_seed = int(torch.randint(1 << 62, ()))  # of the host's generator: nothing waits for a device
    return Call(given["group"], given["layout"], given["schedule"], causal, None if pair == (-1, -1) else pair,
                given["alibi_slopes"], {} if sinks is None else {"sinks": sinks}, float(dropout_p or 0), dropout_seed,
                deterministic, None if cu_seqlens is None else tuple(lengths_of(cu_seqlens)),
                {name: given[name] for name in ("softcap", "scale", "context")})


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
    explain() says which and why. The first call of a group that leaves 'auto' a choice measures the link, and what the
    host needs for a call.
    window: masks are exactly as on one GPU. With packed sequences by 'gather' (causal) and 'ulysses' only.
    alibi_slopes: distances are as on one GPU. By 'ring' without packed sequences, by 'gather' causal, by 'ulysses'
    always. They have no gradient.
    sinks: float32 [Hq], alike on all ranks. Its gradient covers the own rows (ulysses: heads): sum it over the
    ranks, like the gradients of other parameters.
    dropout_p, dropout_seed: the elements are dropped that one call of fa2_attn.attention on the whole sequence drops with
    this seed, if all ranks give it. None draws a seed from each host's generator. Backward drops what forward did. By
    'ring' and 'gather' without packed sequences and striped rows, where pieces have a multiple of 64 rows: S is a multiple
    of 64 P, or with 'zigzag' of 128 P. By 'ulysses' always.
    cu_seqlens: bounds of packed sequences on all ranks together, a list or a tensor (one on a GPU is waited for). Each
    sequence is divided by the layout. q is then [T / P, Hq, D], k and v [T / P, Hkv, D].
    positions: those that the caller uses for its rows, if they are to be checked. The check waits for the device.
    deterministic: gradients have the same bits in every call. Default: torch.are_deterministic_algorithms_enabled().
    return_lse: True returns (out, lse). lse is float32 [B, Hq, S / P], or [Hq, T / P], and has no gradient.
    causal, softcap, scale, context: as in fa2_attn.attention.

    Raises one error on all ranks if their shapes, types or settings differ, or if one rank's are wrong. The ranks
    compare them once for each kind of call. So if one rank later makes another call than the rest, and it is of a new
    kind, that rank waits until the group's time-out; if both kinds are known, each rank computes its own.

    Without batch, rows or heads the result is empty or 0, as in fa2_attn.attention, and nothing moves. Under
    torch.autocast q, k and v are cast to its type.
    """
    out, lse = _attend(
        q, k, v, {"return_lse": return_lse}, group=group, layout=layout, schedule=schedule, causal=causal, window=window,
        softcap=softcap, scale=scale, alibi_slopes=alibi_slopes, sinks=sinks, dropout_p=dropout_p,
        dropout_seed=dropout_seed, cu_seqlens=cu_seqlens, positions=positions, deterministic=deterministic,
        context=context)
    return (out, lse) if return_lse else out


def _attend(q: Tensor, k: Tensor, v: Tensor, switches: Dict[str, Any], **settings: Any) -> Tuple[Tensor, Tensor]:
    """Returns out and lse. settings: as in attention. switches: further keywords of the caller's that are bools."""
    ready = _agree((q, k, v), {**_DEFAULTS, **settings}, switches)
    chosen, _ = _choose(ready)
    apply: Any = Attention.apply
    out, lse = apply(*ready.tensors, ready.call._replace(schedule=chosen), FORWARD[chosen], BACKWARD[chosen],
                     *ready.call.operands.values())
    return out, lse


_DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(attention).parameters.items()
             if parameter.kind is parameter.KEYWORD_ONLY}


def _settled(function: str, settings: Dict[str, Any]) -> Dict[str, Any]:
    """Returns attention's keywords with these settings. Without a seed it has one, so that none is drawn."""
    unknown = next((name for name in settings if name not in _DEFAULTS), None)
    if unknown is not None:
        raise TypeError(f"{function}() got an unexpected keyword argument '{unknown}'"
                        f"{_native.suggestion(unknown, tuple(_DEFAULTS))}")
    found = {**_DEFAULTS, **settings}
    return found if found["dropout_seed"] is not None else {**found, "dropout_seed": 0}


def explain(q: Tensor, k: Tensor, v: Tensor, **settings: Any) -> Dict[str, str]:
    """Returns which schedule such a call gets, and why: {"schedule": ..., "reason": ...}. All ranks call it alike.

    settings: as in attention. Nothing is computed. The schedule of a call without batch, rows or heads is 'none'.
    """
    given = _settled("explain", settings)
    chosen, reason = _choose(_agree((q, k, v), given, {"return_lse": given["return_lse"]}))
    return {"schedule": chosen, "reason": reason}


def _agree_on_tuning(rounds: Any, given: Dict[str, Any]) -> None:
    """Raises one error on every rank if their rounds differ, or if rounds or schedule are wrong."""
    is_right = isinstance(rounds, int) and rounds >= 1
    wrong = None if is_right else ValueError(f"rounds is {rounds!r}; it must be a whole number, at least 1")
    if given["schedule"] != "auto":
        wrong = ValueError(f"schedule is {given['schedule']!r}; tune times all schedules: leave it out")
    _raise_common((("function", "tune"), ("rounds", repr(rounds))), wrong, given["group"])


def tune(q: Tensor, k: Tensor, v: Tensor, *, rounds: int = 5, **settings: Any) -> Dict[str, float]:
    """Times all schedules that serve a call, and returns their us. All ranks call it alike.

    Later calls of this kind with schedule 'auto' take the fastest, if it is at least a tenth faster than what the model
    chose: short calls differ by as much from run to run. For other calls, the model adds what was found here. The
    knowledge lasts as long as the group.
    rounds: how often each schedule is timed; the median counts.
    settings: as in attention. schedule may only be 'auto'. If a tensor requires a gradient, backward is timed, too.
    A call without batch, rows or heads has no schedule: {} is returned.
    """
    given = _settled("tune", settings)
    _agree_on_tuning(rounds, given)
    ready = _agree((q, k, v), given, {"return_lse": given["return_lse"]})
    tensors, call, kind, backward = ready
    times: Dict[str, float] = {}
    if _choose(ready)[0] == EMPTY:
        return times
    leaves = [tensor for tensor in (q, k, v, *call.operands.values()) if tensor.requires_grad]
    attend = {name: value for name, value in given.items() if name not in ("schedule", "positions", "return_lse")}

    def once(schedule: str) -> None:
        out: Any = attention(q, k, v, schedule=schedule, **attend)
        if backward:
            torch.autograd.grad(out, leaves, torch.ones_like(out))

    for schedule in _schedules.SCHEDULES:
        if _unfit(schedule, *tensors[:2], call, dist.get_world_size(call.group)) is None:
            times[schedule] = _schedules.time_calls(functools.partial(once, schedule), q.device, call.group, rounds)
    if dist.get_world_size(call.group) == 1:
        return times  # there is no link, and no choice
    _knowledge(q, call).add(kind, times, _work(*tensors, call, backward))
    _of_group(_chosen, call.group, dict).clear()
    return times
