"""Which changes turn a row by the raw scores of an opened model: all moves, and all pairs of moves, in one pass."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from mlflow_cf.kernel import kernel

Array = NDArray[Any]


class Layout(NamedTuple):
    """How changes are numbered; see `WholeFamily`.

    Attributes:
        start: (c + 1,) where the moves of each column start.
        first, second: (p,) the columns of each pair, by their place; place: (p + 1,) where its changes start.
        value: (s,) the place of each move's value among the values of its column.
    """

    start: Array
    first: Array
    second: Array
    place: Array
    value: Array


class Effects(NamedTuple):
    """What the moves of one row do to the number that decides.

    Attributes:
        moved: (s,) whether each move changes the row; score: (s,) the number with this move alone.
        base: of the row itself.
        classes: the class of each value of the first column of a pair, then of its second column, pair after pair;
            side: (2 p,) where each column of a pair starts there; counts: (2 p,) how many classes it has.
        table: (p + 1,) where the joint effects of a pair start in `added`, a line per class of its first column.
        added: (n,) joint effects: what two changes do beyond the sum of their single effects.
    """

    moved: Array
    score: Array
    base: float
    classes: Array
    side: Array
    counts: Array
    table: Array
    added: Array


class Marks(NamedTuple):
    """Where changes are marked that turn a row.

    Attributes:
        words: (c,) a word of 64 rows per change.
        doubts: (m, 2) the changes and rows that may be turned, or not: the score is too near to the threshold.
    """

    words: Array
    doubts: Array


@numba.njit(inline="always")
def _mark(marks: Marks, at: Any, row: Any, value: Any, ends: Array, known: Any) -> Any:
    """Mark a change whose number may suffice; note it if that is in doubt. Return how many are in doubt."""
    if value >= ends[0]:
        marks.words[at] |= np.uint64(1) << np.uint64(row % 64)
        if not value >= ends[1]:
            if known < len(marks.doubts):
                marks.doubts[known, 0], marks.doubts[known, 1] = at, row
            return known + 1
    return known


@kernel
def mark_row(layout: Layout, effects: Effects, ends: Array, row: int, marks: Marks, known: int) -> int:
    """Mark the changes that turn a row; return how many are in doubt, of which no more are noted than fit.

    Args:
        layout: of the changes.
        effects: of the moves of this row.
        ends: (2,) from which number on the target may be met, and certainly is.
        row: its number; its bit is that of the remainder by 64.
        marks: where to.
        known: how many doubts there are already.
    """
    moved, score, start = effects.moved, effects.score, layout.start
    for at in range(moved.size):
        if moved[at]:
            known = _mark(marks, at, row, score[at], ends, known)
    for pair in range(layout.first.size):
        one, two = layout.first[pair], layout.second[pair]
        begin, end, at = start[two], start[two + 1], layout.place[pair]
        left, right = effects.side[2 * pair], effects.side[2 * pair + 1]
        for move in range(start[one], start[one + 1]):
            if not moved[move]:
                for other in range(begin, end):
                    if moved[other]:
                        known = _mark(marks, at, row, score[other], ends, known)
                    at += 1
                continue
            alone, rest = score[move], score[move] - effects.base
            line = effects.table[pair] + effects.classes[left + layout.value[move]] * effects.counts[2 * pair + 1]
            for other in range(begin, end):
                value = alone
                if moved[other]:
                    joint = effects.added[line + effects.classes[right + layout.value[other]]]
                    value = rest + score[other] + joint
                known = _mark(marks, at, row, value, ends, known)
                at += 1
    return known
