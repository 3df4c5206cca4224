"""Describes what the ranks of fa2_attn.distributed share: a call, and which rows of it meet in each of its steps."""

import functools
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import torch
import torch.distributed as dist
from torch import Tensor

from . import _layouts, _native

# ---- rows of layouts ----

# How many are kept: tensors with a number for each own row (a ring asks for one of each rank), and with one for each
# row of all ranks. They are made outside torch.inference_mode(), because autograd cannot save those that are made within.
_OWN_ROWS, _ALL_ROWS = 64, 16


def lengths_of(cu_seqlens: Any) -> List[int]:
    bounds = cu_seqlens.tolist() if isinstance(cu_seqlens, Tensor) else list(cu_seqlens)
    lengths = [end - begin for begin, end in zip(bounds, bounds[1:])]
    if not lengths or bounds[0] != 0 or min(lengths) < 0:
        raise ValueError(f"cu_seqlens is {bounds}; it must begin with 0 and never fall")
    return lengths


@functools.lru_cache(maxsize=_OWN_ROWS)
@torch.inference_mode(False)
def rows_of(layout: str, rank: int, ranks: int, lengths: Tuple[int, ...], device: Any) -> Tensor:
    """Returns the places of a rank's rows among the rows of all sequences."""
    return torch.cat([torch.arange(place.start, place.stop, place.step)
                      for place in _layouts.places(layout, rank, ranks, lengths)]).to(device)


@functools.lru_cache(maxsize=_ALL_ROWS)
@torch.inference_mode(False)
def order_of(layout: str, ranks: int, lengths: Tuple[int, ...], device: Any) -> Tensor:
    """Returns where each row of the sequences is if the ranks' rows are one after the other."""
    return torch.cat([rows_of(layout, rank, ranks, lengths, device) for rank in range(ranks)]).argsort()


# ---- the call ----

Kind = Tuple[Tuple[str, str], ...]  # of a call: what its ranks have alike, by names. The first is its function's

DROPOUT_ROWS = 64  # dropout of a part is that of the whole if its rows and keys begin at multiples of this (fa2.h)

# Operands that belong to a row and to none of its keys, by their keywords.
_OF_ROW = {name for name, _, _, _, is_of_row in _native.OPERANDS if is_of_row}


class Call(NamedTuple):
    group: Optional[dist.ProcessGroup]
    layout: str
    schedule: str
    causal: bool
    window: Optional[Tuple[int, int]]
    alibi_slopes: Optional[Tensor]
    operands: Dict[str, Tensor]  # further ones, [Hq], by attention's keywords
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

    def operands_of(self, own: bool) -> Dict[str, Any]:
        """The operands of a call on some keys. own: the keys are those of its rows' positions, as in one call of a row."""
        return {name: tensor for name, tensor in self.operands.items() if own or name not in _OF_ROW}

    def dropout(self, row: int = 0, column: int = 0, head: int = 0, heads: int = 0) -> Dict[str, Any]:
        """The dropout of a call whose rows and keys begin there in the whole, and which has some of `heads` heads."""
        if self.dropout_p == 0:
            return {}
        seed = self.dropout_seed
        return {"dropout_p": self.dropout_p, "dropout_seed": seed.flatten() if isinstance(seed, Tensor) else seed,
                "dropout_origin": (row, column, head, heads)}


def settings_of_own(q: Tensor, call: Call) -> Dict[str, Any]:
    """Returns the settings of one call on this rank's rows alone."""
    lengths = [length // dist.get_world_size(call.group) for length in call.lengths or ()]
    packed = {} if call.lengths is None else packed_settings(lengths, lengths, q.device)
    return {**call.masks(), **call.settings, **call.operands, **packed}


def empty_of(q: Tensor, k: Tensor, call: Call) -> Optional[str]:
    """Says what is empty, if no query sees a key because there are none; None: there are some."""
    names = (*(() if call.lengths is not None else ("batch",)), "rows", "heads")
    return next((f"{name} has no {what}" for name, tensor in (("q", q), ("k", k))
                 for what, count in zip(names, tensor.shape) if count == 0), None)


# ---- rows of a call: slices of dense tensors, indexes of packed ones ----

Which = Union[slice, Tensor]


class Meeting(NamedTuple):
    """Rows that see each other, and the settings of a call on them."""
    queries: Which
    keys: Which
    settings: Dict[str, Any]
    own: bool
    origin: Tuple[int, int] = (0, 0)  # with dropout: positions of the first query and the first key
    last: bool = False  # no later call has any of its rows


def is_whole(which: Which, count: int) -> bool:
    return isinstance(which, slice) and which.start == 0 and which.stop == count


def take(tensor: Tensor, dim: int, which: Which) -> Tensor:
    """Returns rows: a view if they are a slice, else a copy."""
    if is_whole(which, tensor.shape[dim]):
        return tensor
    if isinstance(which, slice):
        return tensor.narrow(dim, which.start, which.stop - which.start)
    return tensor.index_select(dim, which)


def put(tensor: Tensor, dim: int, which: Which, part: Tensor) -> None:
    """Writes back rows of take."""
    if isinstance(which, Tensor):
        tensor.index_copy_(dim, which, part)


def are_apart(rows: Which, others: List[Which]) -> bool:
    """Returns whether rows are surely none of the others."""
    return isinstance(rows, slice) and all(
        isinstance(other, slice) and (other.stop <= rows.start or rows.stop <= other.start) for other in others)


def _joined(slices: List[Tuple[int, slice]], device: Any) -> Which:
    """Returns slices of sequences, each with the sequence's first row, as rows of the packed tensor."""
    runs = [(begin + rows.start, begin + rows.stop) for begin, rows in slices if rows.stop > rows.start]
    if runs and all(run[1] == after[0] for run, after in zip(runs, runs[1:])):
        return slice(runs[0][0], runs[-1][1])
    return torch.cat([torch.arange(*run) for run in runs]).to(device)


def _bounds(lengths: List[int], device: Any) -> Tuple[Tensor, int]:
    bounds = torch.zeros(len(lengths) + 1, dtype=torch.int32)
    bounds[1:] = torch.tensor(lengths, dtype=torch.int32).cumsum(0)
    return bounds.to(device), max(lengths)


def packed_settings(queries: List[int], keys: List[int], device: Any) -> Dict[str, Any]:
    cu_q, max_q = _bounds(queries, device)
    cu_k, max_k = _bounds(keys, device)
    return {"cu_seqlens_q": cu_q, "cu_seqlens_k": cu_k, "max_seqlen_q": max_q, "max_seqlen_k": max_k}


@functools.lru_cache(maxsize=_OWN_ROWS)
@torch.inference_mode(False)
def _packed_meeting(layout: str, rank: int, owner: int, ranks: int, lengths: Tuple[int, ...], causal: bool,
                    device: Any) -> Optional[Tuple[Which, Which, Dict[str, Any]]]:
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
            {"causal": is_causal, **packed_settings(counts_q, counts_k, device)})


def ring_meetings(q: Tensor, k: Tensor, call: Call, rank: int, owner: int, ranks: int) -> List[Meeting]:
    """Returns what the own queries see of the keys of rank `owner`, as calls."""
    if call.lengths is not None:
        one = _packed_meeting(call.layout, rank, owner, ranks, call.lengths, call.causal, q.device)
        return [] if one is None else [Meeting(*one, owner == rank)]
    found = _layouts.meetings(call.layout, rank, owner, ranks, q.shape[1], k.shape[1], call.causal, call.window,
                              by_pieces=call.alibi_slopes is not None or call.dropout_p > 0,
                              align=DROPOUT_ROWS if call.dropout_p > 0 else 1)
    if call.alibi_slopes is not None:
        return [_with_alibi(one, call, ranks, q.shape[1], k.shape[1]) for one in found]
    return [Meeting(one.queries, one.keys, {"causal": one.causal, "window": one.window}, one.own, one.origin)
            for one in found]


def _with_alibi(one: _layouts.Meeting, call: Call, ranks: int, rows_q: int, rows_k: int) -> Meeting:
    """Returns a call with alibi_slopes by the positions of the whole sequence.

    Rows of a call lie `stride` apart in the whole: row i and key j have the distance stride * |i - j + shift|.
    """
    assert call.alibi_slopes is not None
    stride = ranks if call.layout == "striped" else 1
    apart = one.origin[0] + ranks * (rows_k - rows_q) - one.origin[1]  # the first query's distance to the first key
    more_keys = one.keys.stop - one.keys.start - (one.queries.stop - one.queries.start)
    shift, causal, window = apart / stride - more_keys, one.causal, one.window
    if causal and shift < 0:  # kernels of causal calls suppose that no key comes after its query in the whole
        causal, window = False, (-1 if window is None else window[0], 0)
    settings = {"causal": causal, "window": window, "distance_shift": shift,
                "alibi_slopes": call.alibi_slopes * float(stride) if stride > 1 else call.alibi_slopes}
    return Meeting(one.queries, one.keys, settings, one.own, one.origin)


def gather_meetings(q: Tensor, k: Tensor, call: Call, rank: int, ranks: int) -> List[Meeting]:
    """Returns runs of own queries with neighbouring positions, and the keys up to the end of each.

    A call aligns queries to the last key, so it has the positions of the whole sequence. k: the keys of all ranks.
    """
    if not call.causal and call.dropout_p > 0:
        return [Meeting(piece.rows, slice(0, k.shape[1]), {}, True, (piece.start, 0))
                for piece in _layouts.pieces(call.layout, rank, ranks, q.shape[1])]
    if not call.causal:
        settings = {} if call.lengths is None else packed_settings([length // ranks for length in call.lengths],
                                                                    list(call.lengths), q.device)
        return [Meeting(slice(0, q.shape[call.dim]), slice(0, k.shape[call.dim]), settings, True)]
    if call.lengths is not None:
        return [Meeting(*one, True) for one in _packed_pieces(call.layout, rank, ranks, call.lengths, q.device)]
    return [Meeting(piece.rows, slice(0, piece.start + piece.rows.stop - piece.rows.start), {}, True, (piece.start, 0))
            for piece in _layouts.pieces(call.layout, rank, ranks, q.shape[1])]


@functools.lru_cache(maxsize=_ALL_ROWS)
@torch.inference_mode(False)
def _packed_pieces(layout: str, rank: int, ranks: int, lengths: Tuple[int, ...],
                   device: Any) -> List[Tuple[Which, Which, Dict[str, Any]]]:
    made = []
    for number in range(_layouts.parts(layout, ranks) // ranks):
        queries, keys, begin, begin_k = [], [], 0, 0
        for length in lengths:
            piece = _layouts.pieces(layout, rank, ranks, length // ranks)[number]
            queries.append((begin, piece.rows))
            keys.append((begin_k, slice(0, piece.start + piece.rows.stop - piece.rows.start)))
            begin, begin_k = begin + length // ranks, begin_k + length
        made.append((_joined(queries, device), _joined(keys, device), packed_settings(
            [rows.stop - rows.start for _, rows in queries], [rows.stop for _, rows in keys], device)))
    return made
