"""Masks of a ring's steps without positions: for small sequences, the pairs of a query and a key that all steps' calls see
are exactly those of one call on the whole sequence, each once, for every layout, rank and window."""

import unittest

from fa2_attn import _layouts

WINDOWS = (None, (0, 0), (1, 0), (3, -1), (5, 2), (0, 3), (-1, 2), (100, 100), (7, 0))


def sees(query, key, causal, window):
    left, right = window or (-1, -1)
    return (not causal or key <= query) and (left < 0 or key >= query - left) and \
        (causal or right < 0 or key <= query + right)


def pairs_of(meeting, rows):
    """What a call of fa2 on these rows sees: its masks are aligned to the last key (fa2.h)."""
    queries, keys = range(rows)[meeting.queries], range(rows)[meeting.keys]
    moved = len(keys) - len(queries)
    return [(i, j) for a, i in enumerate(queries) for b, j in enumerate(keys)
            if sees(a + moved, b, meeting.causal, meeting.window)]


class Layouts(unittest.TestCase):
    def check(self, layout, ranks, rows, causal, window, align=1):
        places = [[position for run in _layouts.places(layout, rank, ranks, [rows * ranks]) for position in run]
                  for rank in range(ranks)]
        self.assertEqual(sorted(sum(places, [])), list(range(rows * ranks)))
        for rank in range(ranks):
            for owner in range(ranks):
                found = _layouts.meetings(layout, rank, owner, ranks, rows, rows, causal, window, align > 1, align)
                pairs = [pair for meeting in found for pair in pairs_of(meeting, rows)]
                wanted = [(i, j) for i, query in enumerate(places[rank]) for j, key in enumerate(places[owner])
                          if sees(query, key, causal, window)]
                self.assertEqual(sorted(pairs), wanted, (layout, ranks, rows, rank, owner, causal, window))
                for meeting in found:
                    self.assertTrue(meeting.window is None or min(meeting.window) >= -1, meeting)
                    if align > 1:
                        starts = places[rank][meeting.queries.start], places[owner][meeting.keys.start]
                        self.assertEqual(meeting.origin, starts)
                        self.assertEqual([start % align for start in starts], [0, 0], meeting)

    def test_masks(self):
        for layout in _layouts.LAYOUTS:
            for ranks in (2, 3, 4):
                for rows in (2, 4, 6, 8):
                    for causal in (False, True):
                        for window in WINDOWS:
                            self.check(layout, ranks, rows, causal, window)

    def test_aligned(self):
        """Rows that begin at multiples of a number, for dropout."""
        for layout in ("contiguous", "zigzag"):
            for ranks in (1, 2, 3):
                for rows in (8, 16):
                    for causal in (False, True):
                        for window in WINDOWS:
                            self.check(layout, ranks, rows, causal, window, 4)

    def test_striped_distances(self):
        """Between striped rows of causal attention, distances are those of a call, times the ranks, and a constant."""
        for ranks in (2, 3, 4):
            for window in (None, (0, 0), (3, -1), (7, 0)):
                for rank in range(ranks):
                    for owner in range(ranks):
                        found = _layouts.meetings("striped", rank, owner, ranks, 8, 8, True, window, by_pieces=True)
                        for one in found:
                            to_last = one.keys.stop - one.queries.stop
                            for i, j in pairs_of(one, 8):
                                self.assertGreaterEqual(i + to_last - j, 0)
                                self.assertEqual(rank + ranks * i - (owner + ranks * j),
                                                 ranks * (i + to_last - j) + (rank - owner) % ranks)

    def test_lengths(self):
        with self.assertRaisesRegex(ValueError, "^the sequence has 6 rows; layout 'zigzag' on 2 ranks .* pad it to 8$"):
            _layouts.places("zigzag", 0, 2, [6])
        with self.assertRaisesRegex(ValueError, "^sequence 1 has 6 rows"):
            _layouts.places("zigzag", 0, 2, [4, 6])

    def test_few_calls(self):
        """Without a window a step is one call, and steps of a zigzag ring are equal."""
        for ranks in (2, 4):
            for rank in range(ranks):
                for owner in range(ranks):
                    one, = _layouts.meetings("zigzag", rank, owner, ranks, 8, 8, True, None)
                    self.assertEqual(len(pairs_of(one, 8)), 36 if owner == rank else 32)
        # A window that does not reach a rank's keys: nothing is called.
        self.assertEqual(_layouts.meetings("contiguous", 3, 0, 4, 8, 8, True, (8, 0)), [])


if __name__ == "__main__":
    unittest.main()
