"""Which pairs of actions are looked at, in batches of a limited size.

Where several answers are wanted, these are only the pairs that may become the first answer of their changed set.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine.actions import all_loose
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.problem.action_table import ActionTable
from mlflow_cf.structures.links import Encoded


class FirstOfSets:
    """The nearest certain candidate of every changed set met so far.

    It is certain if it meets the target by more than a tolerance, and with either change alone misses it by as much.

    Attributes:
        enough: (actions,) which changes certainly suffice alone: beside another change they are all that is needed.
    """

    def __init__(self, problem: Problem, scorer: Scorer, actions: ActionTable, sums: Floats, tolerance: float) -> None:
        """Start with the single changes to `actions`, which have the sums (actions, k)."""
        self.problem, self.scorer, self.actions, self.tolerance = problem, scorer, actions, tolerance
        changed = actions.code != problem.own[actions.group]
        may, enough = scorer.decisions(sums, tolerance)
        self._may, self.enough = changed & may, changed & enough
        sure = np.flatnonzero(self.enough)
        sure = sure[self._lawful(sure[:, None])] if len(sure) else sure
        self.enough[:] = False
        self.enough[sure] = True
        # by the smaller and the larger group; of single changes, twice by the only one
        self._nearest = np.full((len(problem.groups), len(problem.groups)), np.inf)
        alone = actions.group[sure]
        far = actions.cost + problem.bound_distance.c * actions.peak
        np.minimum.at(self._nearest, (alone, alone), far[sure])

    @property
    def limit(self) -> float:
        """What is farther away is no answer: as many changed sets as are wanted have nearer ones."""
        known, count = self._nearest[np.isfinite(self._nearest)], self.problem.count
        return float(np.partition(known, count - 1)[count - 1]) if len(known) >= count else np.inf

    def limits(self, first: Codes, second: Codes) -> Floats:
        """Return (n,) how far candidates may be that change the groups `first` (n,) and `second` (n,), in any order."""
        nearest = np.minimum(self._nearest[np.minimum(first, second), np.maximum(first, second)], self.limit)
        return all_loose(nearest)

    def note(self, places: Codes, sums: Floats, distance: Floats) -> None:
        """Look for the nearest certain candidate of every changed set among n candidates.

        Args:
            places: (n, 2) the actions they take.
            sums: (n, k) of each; distance: (n,) of each.
        """
        groups = np.sort(self.actions.group[places], axis=1)
        order = np.lexsort((distance, groups[:, 1], groups[:, 0]))
        _, sure = self.scorer.decisions(sums, self.tolerance)
        sure &= ~self._may[places].any(axis=1) & (distance < self._nearest[groups[:, 0], groups[:, 1]])
        if sure.any() and (self.problem.linking or not self.problem.plain_limits or self.problem.most_changes < 2):
            sure[sure] = self.problem.held(self.actions.candidates(places[sure]))
        first = self._first(order, groups, sure)
        while len(first) and not (good := self._lawful(places[first])).all():
            sure[first[~good]] = False
            first = self._first(order, groups, sure)
        self._nearest[groups[first, 0], groups[first, 1]] = distance[first]

    def _first(self, order: Codes, groups: Codes, sure: Bools) -> Codes:
        """Return the first sure candidate of every set, of an order of (n,) that puts sets together."""
        some = order[sure[order]]
        _, first = np.unique(groups[some] @ [len(self._nearest), 1], return_index=True)
        return np.asarray(some[first])

    def _lawful(self, places: Codes) -> Bools:
        """Return (n,) whether the rows that take the actions at `places` (n, c) meet every constraint."""
        return self.problem.check(self.problem.rows(self.actions.candidates(places)))


class TriedActions(NamedTuple):
    """The actions tried, column after column.

    Attributes:
        places: (t,) which of all actions they are; start: (d + 1,) where those of each column start.
        cost, peak: (t,) what each adds to the distance.
        encoded: per column, their encoded values.
    """

    places: Codes
    start: Codes
    cost: Floats
    peak: Floats
    encoded: list[Encoded]

    @classmethod
    def of(cls, actions: ActionTable, tried: Bools) -> TriedActions:
        """Return the actions that are `tried` (actions,)."""
        columns, owner = actions.columns, actions.owner
        some = tried[columns]
        ends = np.diff(actions.start)[owner].cumsum()
        start = np.append(0, some.cumsum()[ends - 1])
        parts = zip(actions.encoded, pairwise([0, *ends.tolist()]), strict=True)
        places = columns[some]
        encoded = [table[some[first:stop]] for table, (first, stop) in parts]
        return cls(places, start, actions.cost[places], actions.peak[places], encoded)

    @property
    def counts(self) -> Codes:
        """(d,) how many there are of every column."""
        return np.diff(self.start)

    def pairs(self, limit: float) -> ColumnPairs:
        """Return the pairs of columns of which two actions may be within the limit, the nearest first."""
        filled = np.flatnonzero(self.counts)
        least = np.full(len(self.counts), np.inf)
        if len(filled):
            least[filled] = np.minimum.reduceat(self.cost, self.start[filled])
        both = least[:, None] + least
        first, second = np.nonzero(np.triu(both <= limit, k=1))
        order = np.argsort(both[first, second], kind="stable")
        first, second = first[order], second[order]
        return ColumnPairs(first, second, both[first, second])


class ColumnPairs(NamedTuple):
    """Pairs of columns: the `first` (p,) and the `second` ones (p,), and what two changes of them cost at `least`."""

    first: Codes
    second: Codes
    least: Floats


class PairSelection(NamedTuple):
    """Which pairs of actions are looked at.

    Attributes:
        tried: the actions; limit: how far two may be.
        tolerance: by how much sums may be off.
        sets: the nearest candidates by what they change, where several answers are wanted.
    """

    tried: TriedActions
    limit: float
    tolerance: float
    sets: FirstOfSets | None


def batches(sizes: Codes, most: int, first: int) -> list[Codes]:
    """Return the positions of tables of such sizes in portions of about so many cells, so many of them `first`."""
    total = sizes.cumsum()
    whole = np.searchsorted(total, np.arange(most, total[-1] if len(total) else 0, most))
    ends = sorted({*whole.tolist(), first})
    return [part for part in np.split(np.arange(len(sizes)), ends) if len(part)]
