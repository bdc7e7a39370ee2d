"""Which candidates are verified next, and which of those that were accepted become answers, in which order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.search.population import near_copies


class Queue:
    """Candidates waiting to be verified: the first of every kind before all repetitions.

    Candidates that change the same groups are of one kind, unless it is said otherwise.

    Attributes:
        left: positions of the candidates that wait, first come first.
    """

    def __init__(self, problem: Problem, rows: Floats, *, in_order: bool, kinds: Sequence[bytes] | None = None) -> None:
        """Line up candidates (m, d).

        With `in_order`, the answers of distinct kinds must be the first acceptable ones: where a candidate was refused,
        the next one of its kind moves up. `kinds` (m,) is for candidates that are not polished.
        """
        self._problem, self._in_order, self._kinds = problem, in_order, kinds
        self._sets = kinds_of(problem, rows) if kinds is None else kinds
        self._first: dict[bytes, int] = {}
        self._apart = rows[:0]  # accepted rows, none a near-copy of another, where the nearest answers are wanted
        self.left = self._lined_up(range(len(rows)))

    def take(self, size: int) -> Codes:
        """Return the positions of the next candidates."""
        batch, self.left = self.left[:size], self.left[size:]
        return batch

    def accept(self, rows: Floats, origin: Codes) -> None:
        """Note accepted rows (k, d) and the positions (k,) of the candidates they come from."""
        positions = origin.tolist()
        kinds = self._kinds
        found = kinds_of(self._problem, rows) if kinds is None else [kinds[position] for position in positions]
        for kind, position in zip(found, positions, strict=True):
            self._first[kind] = min(self._first.get(kind, position), position)
        if self._problem.variety.near:
            some = np.concatenate([self._apart, rows])
            self._apart = some[apart(self._problem, some, np.arange(len(some)))]
        if self._in_order:
            self.left = self._lined_up(sorted(self.left.tolist()))

    def enough(self, count: int) -> bool:
        """Whether the answers are known: so many kinds, and nothing that may come before them."""
        if self._problem.variety.near and len(self._apart) < count:
            return False
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


def kinds_of(problem: Problem, rows: Floats) -> list[bytes]:
    """Return the groups that each of rows (m, d) changes."""
    return [flags.tobytes() for flags in problem.changed(rows)]


def select(problem: Problem, Z: Floats, order: Codes, kinds: Sequence[bytes] | None = None) -> Codes:
    """Return positions of the answers among rows Z (m, d), at most as many as are wanted, as in `order`.

    The first of every kind comes before all others, of which none is a near-copy of an answer before it. Rows that
    change the same are of one kind, unless `kinds` (m,) says otherwise; where the nearest answers are wanted, kinds do
    not count.
    """
    if problem.variety.near:
        return apart(problem, Z, order)[: problem.count]
    kinds = kinds_of(problem, Z) if kinds is None else kinds
    leaders: list[int] = []
    others: list[int] = []
    known: set[bytes] = set()
    for position in order.tolist():
        (others if kinds[position] in known else leaders).append(position)
        known.add(kinds[position])
    chosen = leaders[: problem.count]
    for position in others:
        if len(chosen) >= problem.count:
            break
        if not near_copies(problem, Z[chosen], Z[position]).any():
            chosen.append(position)
    return np.array(chosen, dtype=np.intp)


def apart(problem: Problem, Z: Floats, order: Codes) -> Codes:
    """Return positions of rows Z (m, d) in an order, without near-copies of those before them."""
    chosen: list[int] = []
    for position in order.tolist():
        if not near_copies(problem, Z[chosen], Z[position]).any():
            chosen.append(position)
    return np.array(chosen, dtype=np.intp)
