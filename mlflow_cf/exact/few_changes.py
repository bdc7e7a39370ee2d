"""Candidates of one and of two changes, all of them decided at once: by a sweep, and by what pairs add to it."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes, Problem, Rater
from mlflow_cf.problem.sums import rate_sums
from mlflow_cf.search.choices import Choices
from mlflow_cf.structures.kernels.pairs import Alone
from mlflow_cf.structures.links import Tokens

SWEPT = 1e-5  # sums of a sweep are rounded otherwise than those of a single row, which may be sums in float32
MOST_CELLS = 2**26  # pairs of choices that are looked at, in a third of a second
CELLS_AT_ONCE = 2**20  # their sums take 8 MB per output
MOST_LISTED = 2**22  # pairs of choices of the pairs of features that may meet the target
MOST_FOUND = 20_000  # candidates of two changes; where there are more, most are not needed


class FewChanges:
    """What a row becomes by few changes, as far as the model can tell the choices of its groups apart.

    Every feature is a group by itself, and the row's own tuples are among the choices.
    """

    def __init__(self, problem: Problem, rater: Rater, choices: Choices, doubt: float) -> None:
        """Set up for the choices; what is within `doubt` of the target may meet it."""
        self.problem, self.rater, self.choices = problem, rater, choices
        self.doubt = doubt + SWEPT
        self._own = problem.tokens(problem.own[None])
        values = [tokens if len(tokens) > 1 else None for tokens in choices.tokens]
        swept = rater.structure.sweep(self._own, values)
        self._sums = np.empty((len(choices.code), rater.structure.outputs))
        for number, sums in zip(problem.owner.tolist(), swept, strict=True):
            if sums is not None:
                self._sums[choices.start[number] : choices.start[number + 1]] = sums[0]
        self._changed = np.ones(len(choices.code), dtype=np.bool_)
        self._changed[choices.own] = False

    def singles(self) -> Codes:
        """Return the candidates (m, G) of one change that may meet the target."""
        tried = np.flatnonzero(self._changed)
        return self._codes(tried[self._may(self._sums[tried])][:, None])

    def pairs(self, allowed: Bools, limit: float) -> Codes | None:
        """Return the candidates (m, G) of two of the `allowed` choices (choices,) no farther than `limit` that may.

        None where they are too many, or where the model does not tell.
        """
        tried = _Tried.of(self.choices, allowed & self._changed)
        first, second = tried.pairs(limit)
        pairs = self.rater.structure.pairs(self._own, tried.tokens)
        sizes = tried.counts[first] * tried.counts[second]
        if pairs is None or sizes.sum() > MOST_CELLS:
            return None
        alone = Alone(
            self._sums[tried.places], self._base, tried.cost, tried.peak, self.problem.bound_distance.c, limit
        )
        reaching = [np.empty(0, dtype=np.intp)]
        for here in _portions(sizes, CELLS_AT_ONCE):
            low, high = pairs.extremes(first[here], second[here], alone)
            some = np.isfinite(low).all(axis=1)
            reaching.append(here[some][self.rater.reach(low[some], high[some], self.doubt) >= 0])
        left = np.concatenate(reaching)
        if sizes[left].sum() > MOST_LISTED:
            return None
        found = [np.empty((0, 2), dtype=np.intp)]
        for one, two, table in zip(first[left], second[left], pairs.sums(first[left], second[left]), strict=True):
            at, to = tried.within(one, two, alone)
            sums = alone.sums[at] + (alone.sums[to] - alone.base) + table[at - tried.start[one], to - tried.start[two]]
            found.append(tried.places[np.column_stack([at, to])[self._may(sums)]])
        whole = np.concatenate(found)
        return self._codes(whole) if len(whole) <= MOST_FOUND else None

    @cached_property
    def _base(self) -> Floats:
        """The row's own sums (k,)."""
        base: Floats = self.rater.structure.sums(self._own)[0]
        return base

    def _may(self, sums: Floats) -> Bools:
        """Return which candidates (m,) with such sums (m, k) may meet the target, however they are rounded."""
        favourable, _, margin = rate_sums(sums, self.rater.targets)
        may: Bools = favourable | (margin < self.doubt)
        return may

    def _codes(self, places: Codes) -> Codes:
        """Return the candidates (m, G) that take the choices at `places` (m, n), each of another group."""
        codes = np.repeat(self.problem.own[None], len(places), axis=0)
        for at in places.T:
            codes[np.arange(len(places)), self.choices.group[at]] = self.choices.code[at]
        return codes


class _Tried(NamedTuple):
    """The choices tried, column after column.

    Attributes:
        places: (t,) which of all choices they are; start: (d + 1,) where those of each column start.
        cost, peak: (t,) what each adds to the distance.
        tokens: per column, their tokens.
    """

    places: Codes
    start: Codes
    cost: Floats
    peak: Floats
    tokens: list[Tokens]

    @classmethod
    def of(cls, choices: Choices, tried: Bools) -> _Tried:
        """Return the choices that are `tried` (choices,)."""
        owner = choices.problem.owner.tolist()
        some = [np.flatnonzero(tried[choices.start[n] : choices.start[n + 1]]) for n in owner]
        places = np.concatenate([at + choices.start[number] for at, number in zip(some, owner, strict=True)])
        tokens = [table[at] for table, at in zip(choices.tokens, some, strict=True)]
        return cls(places, np.cumsum([0, *map(len, some)]), choices.cost[places], choices.peak[places], tokens)

    @property
    def counts(self) -> Codes:
        """(d,) how many there are of every column."""
        return np.diff(self.start)

    def pairs(self, limit: float) -> tuple[Codes, Codes]:
        """Return the pairs of columns (p,), (p,) of which two choices may be within the limit."""
        filled = np.flatnonzero(self.counts)
        least = np.full(len(self.counts), np.inf)
        if len(filled):
            least[filled] = np.minimum.reduceat(self.cost, self.start[filled])
        first, second = np.triu_indices(len(least), k=1)
        near = least[first] + least[second] <= limit
        return first[near], second[near]

    def within(self, one: int, two: int, alone: Alone) -> tuple[Codes, Codes]:
        """Return the choices (m,), (m,) of two columns that are together within the limit."""
        a, b = (np.arange(self.start[column], self.start[column + 1]) for column in (one, two))
        peak = np.maximum(self.peak[a][:, None], self.peak[b])
        at, to = np.nonzero(self.cost[a][:, None] + self.cost[b] + alone.c * peak <= alone.limit)
        return a[at], b[to]


def _portions(sizes: Codes, most: int) -> list[Codes]:
    """Return the positions of tables of such sizes in portions of about so many cells."""
    whole = np.searchsorted(sizes.cumsum(), np.arange(most, sizes.sum(), most))
    return [part for part in np.split(np.arange(len(sizes)), whole) if len(part)]
