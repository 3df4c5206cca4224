"""Which rows of a sequence each rank has, and which of them see each other. Plain numbers, without PyTorch.

A rank's rows are pieces. Row i of a piece stands at position start + stride * i of the sequence. So whether a query sees
a key depends on i - j alone, for a query of one piece and a key of another: it is a band. A call on the two pieces has
the same band as its own causal mask or window, in whole numbers. So no kernel needs positions for masks.
"""

from typing import List, NamedTuple, Optional, Sequence, Tuple

LAYOUTS = ("contiguous", "zigzag", "striped")


class Piece(NamedTuple):
    rows: slice  # of the rank's rows
    start: int
    stride: int


class Meeting(NamedTuple):
    """Rows of a rank's queries and of keys that see each other, and the mask of a call on them."""
    queries: slice
    keys: slice
    causal: bool
    window: Optional[Tuple[int, int]]
    own: bool  # the keys are those of the queries' own positions: each query sees at least one
    origin: Tuple[int, int] = (0, 0)  # positions of the first query and the first key, if both have one piece


def parts(layout: str, ranks: int) -> int:
    """Returns the number that divides a sequence's length."""
    if layout not in LAYOUTS:
        raise ValueError(f"layout is {layout!r}; it must be one of {', '.join(LAYOUTS)}")
    return 2 * ranks if layout == "zigzag" else ranks


def check_length(length: int, layout: str, ranks: int, name: str = "the sequence") -> None:
    count = parts(layout, ranks)
    if length % count:
        raise ValueError(f"{name} has {length} rows; layout {layout!r} on {ranks} ranks needs a multiple of {count}: "
                         f"pad it to {-(-length // count) * count}")


def pieces(layout: str, rank: int, ranks: int, rows: int) -> List[Piece]:
    """Returns the pieces of a rank's rows of one sequence."""
    if layout == "contiguous":
        return [Piece(slice(0, rows), rank * rows, 1)]
    if layout == "striped":
        return [Piece(slice(0, rows), rank, ranks)]
    half = rows // 2
    return [Piece(slice(0, half), rank * half, 1), Piece(slice(half, rows), (2 * ranks - 1 - rank) * half, 1)]


def places(layout: str, rank: int, ranks: int, lengths: Sequence[int]) -> List[range]:
    """Returns the positions of a rank's rows in one sequence or in packed ones, as ranges in their order."""
    found, begin = [], 0
    for number, length in enumerate(lengths):
        check_length(length, layout, ranks, f"sequence {number}" if len(lengths) > 1 else "the sequence")
        for piece in pieces(layout, rank, ranks, length // ranks):
            first, count = begin + piece.start, piece.rows.stop - piece.rows.start
            found.append(range(first, first + count * piece.stride, piece.stride))
        begin += length
    return found


def _band(queries: Piece, keys: Piece, shift: int, left: Optional[int],
          right: Optional[int]) -> Tuple[Optional[int], Optional[int]]:
    """Returns the least and the greatest i - j of a query i that sees a key j. None: any."""
    offset = queries.start + shift - keys.start
    least = None if right is None else -((right + offset) // queries.stride)
    return least, None if left is None else (left - offset) // queries.stride


def _meet(queries: Piece, keys: Piece, shift: int, left: Optional[int], right: Optional[int], own: bool,
          align: int) -> Optional[Meeting]:
    """Returns the rows that see each other, without those that see nothing, and their mask; None: there are none.

    Both begin at multiples of align, counted from the beginning of the piece.
    """
    n, m = queries.rows.stop - queries.rows.start, keys.rows.stop - keys.rows.start
    least, most = _band(queries, keys, shift, left, right)
    least, most = -m if least is None else max(least, -m), n if most is None else min(most, n)
    first_q, end_q = max(0, least), min(n, most + m)
    first_k, end_k = max(0, -most), min(m, n - least)
    if least > most or first_q >= end_q or first_k >= end_k:
        return None
    first_q, first_k = first_q // align * align, first_k // align * align
    n, m = end_q - first_q, end_k - first_k
    moved = first_k - first_q
    # A call's query i sees keys i + m - n - before ... i + m - n + after.
    before, after = most + moved + m - n, -(least + moved) - (m - n)
    sees_first, sees_last = before >= m - 1, after >= n - 1
    causal = not sees_last and after == 0
    window = None if sees_first and (sees_last or causal) else (-1 if sees_first else before,
                                                                 -1 if sees_last or causal else after)
    return Meeting(slice(queries.rows.start + first_q, queries.rows.start + end_q),
                   slice(keys.rows.start + first_k, keys.rows.start + end_k), causal, window, own,
                   (queries.start + first_q * queries.stride, keys.start + first_k * keys.stride))


class Rows:
    """A set of rows, as slices in order."""

    def __init__(self) -> None:
        self._runs: List[Tuple[int, int]] = []

    def missing(self, which: slice) -> List[slice]:
        """Returns the rows of a slice that are not in the set."""
        found, begin = [], which.start
        for first, end in self._runs:
            if begin < min(first, which.stop):
                found.append(slice(begin, min(first, which.stop)))
            begin = max(begin, end)
        if begin < which.stop:
            found.append(slice(begin, which.stop))
        return found

    def add(self, which: slice) -> None:
        self._runs = sorted([*self._runs, *((rows.start, rows.stop) for rows in self.missing(which))])

    def meets(self, which: slice) -> bool:
        """Returns whether any row of a slice is in the set."""
        return self.missing(which) != [which]


def _meetings_by_pieces(layout: str, rank: int, owner: int, ranks: int, rows_q: int, rows_k: int, left: Optional[int],
                        right: Optional[int], align: int) -> List[Meeting]:
    shift = ranks * (rows_k - rows_q)
    found = [_meet(mine, theirs, shift, left, right, owner == rank and i == j, align)
             for i, mine in enumerate(pieces(layout, rank, ranks, rows_q))
             for j, theirs in enumerate(pieces(layout, owner, ranks, rows_k))]
    # Those with own keys come first: they begin each row's result.
    return sorted((meeting for meeting in found if meeting is not None), key=lambda meeting: not meeting.own)


def meetings(layout: str, rank: int, owner: int, ranks: int, rows_q: int, rows_k: int, causal: bool,
             window: Optional[Tuple[int, int]], by_pieces: bool = False, align: int = 1) -> List[Meeting]:
    """Returns what the own queries see of the keys of rank `owner`. window: (left, right), -1: all keys. by_pieces: each
    call has queries of one piece and keys of one. They then begin at multiples of align.

    Without a window, pieces that see the same keys are one call. With zigzag, all own queries come after the first half
    of an earlier rank's keys, and before the second half. The keys of a later rank lie between the halves of the own
    queries. The rows of a rank are in the order of their positions, so among themselves they are causal by number.
    """
    every, half = slice(0, rows_q), rows_q // 2
    if by_pieces:
        pass
    elif window is None and not causal:
        return [Meeting(every, slice(0, rows_k), False, None, owner == rank)]
    elif window is None and owner == rank:
        return [Meeting(every, every, True, None, True)]
    elif window is None and layout == "zigzag":
        return [Meeting(every, slice(0, half), False, None, False) if owner < rank else
                Meeting(slice(half, rows_q), every, False, None, False)]
    left, right = (-1, -1) if window is None else window
    return _meetings_by_pieces(layout, rank, owner, ranks, rows_q, rows_k, None if left < 0 else left,
                               0 if causal else None if right < 0 else right, align)
