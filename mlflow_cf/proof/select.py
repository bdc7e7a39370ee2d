"""Which candidates are verified next, and which of those that were accepted become answers, in which order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.problem.binding import same

LEAST_DIFFERENCE: Final = 0.05  # of a number's range: two answers that change the same features differ as much in one


class Queue:
    """Candidates waiting to be verified: the first of every changed set before all repetitions.

    Attributes:
        left: positions of the candidates that wait, first come first.
    """

    def __init__(self, problem: Problem, rows: Floats, *, in_order: bool) -> None:
        """Line up candidates (m, d).

        With `in_order`, the answers of distinct sets must be the first acceptable ones: where a candidate was refused,
        the next one with its changed set takes its place in the line.
        """
        self._problem, self._in_order = problem, in_order
        self._sets = [key.tobytes() for key in problem.changed(rows)]
        self._first: dict[bytes, int] = {}
        self.left = self._lined_up(range(len(rows)))

    def take(self, size: int) -> Codes:
        """Return the positions of the next candidates."""
        batch, self.left = self.left[:size], self.left[size:]
        return batch

    def accept(self, rows: Floats, origin: Codes) -> None:
        """Note accepted rows (k, d) and the positions (k,) of the candidates they come from."""
        for key, position in zip(self._problem.changed(rows), origin.tolist(), strict=True):
            known = self._first.setdefault(key.tobytes(), position)
            self._first[key.tobytes()] = min(known, position)
        if self._in_order:
            self.left = self._lined_up(sorted(self.left.tolist()))

    def enough(self, count: int) -> bool:
        """Whether the answers are known: so many changed sets, and nothing that may come before them."""
        if len(self._first) < count:
            return False
        if not self._in_order or not len(self.left):
            return True
        first = int(self.left[0])
        return self._sets[first] in self._first or first > sorted(self._first.values())[count - 1]

    def _lined_up(self, positions: Iterable[int]) -> Codes:
        leaders: list[int] = []
        others: list[int] = []
        seen = set(self._first)
        for position in positions:
            (others if self._sets[position] in seen else leaders).append(position)
            seen.add(self._sets[position])
        return np.array(leaders + others, dtype=np.intp)


def nearest_first(problem: Problem, Z: Floats, distance: Floats, *, polished: bool) -> Codes:
    """Return the order of rows Z (m, d) by their distance (m,).

    Ties go to fewer changes and smaller codes; rows that are not polished keep the order they have instead.
    """
    if not polished:
        return np.argsort(distance, kind="stable")
    ties = (*np.where(np.isnan(Z), np.inf, Z).T[::-1], problem.changed(Z).sum(axis=1))
    return np.lexsort((*ties, distance))


def nearest(problem: Problem, Z: Floats, distance: Floats, *, polished: bool) -> int:
    """Return the position of the first of rows Z (m, d) in that order."""
    ties = np.flatnonzero(distance == distance.min())
    if len(ties) > 1:
        ties = ties[nearest_first(problem, Z[ties], distance[ties], polished=polished)]
    return int(ties[0])


def select(problem: Problem, Z: Floats, order: Codes) -> Codes:
    """Return positions of the answers among rows Z (m, d), at most as many as are wanted, as in `order`.

    The first of every changed set comes before all others, of which none is a near-copy of an answer before it.
    """
    changed = problem.changed(Z)
    leaders: list[int] = []
    others: list[int] = []
    sets: set[bytes] = set()
    for position in order.tolist():
        key = changed[position].tobytes()
        (others if key in sets else leaders).append(position)
        sets.add(key)
    chosen = leaders[: problem.count]
    for position in others:
        if len(chosen) >= problem.count:
            break
        if not near_copies(problem, Z[chosen], Z[position]).any():
            chosen.append(position)
    return np.array(chosen, dtype=np.intp)


def near_copies(problem: Problem, Z: Floats, row: Floats, times: int = 1) -> Bools:
    """Return (m,) which rows Z (m, d) tell the same as a row (d,): equal levels, and about equal numbers.

    They change the same groups, and no number differs by the least difference, or so many `times` as much.
    """
    ranges = np.array([f.high - f.low if f.numeric else 0.0 for f in problem.space.features])
    with np.errstate(invalid="ignore"):  # a missing value is far from all numbers
        near = same(Z, row) | (np.abs(Z - row) < times * LEAST_DIFFERENCE * ranges)
    copies: Bools = near.all(axis=1) & (problem.changed(Z) == problem.changed(row[None])).all(axis=1)
    return copies
