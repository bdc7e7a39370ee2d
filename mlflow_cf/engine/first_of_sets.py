"""How far candidates may be that change one feature or two, where several answers are wanted."""

from __future__ import annotations

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.problem.actions import ActionTable
from mlflow_cf.rounding import all_loose


class FirstOfSets:
    """The nearest certain candidate of every changed set met so far.

    It is certain if it meets the target by more than a tolerance, and with either change alone misses it by as much.

    Attributes:
        enough: (actions,) which changes certainly suffice alone: beside another change they are all that is needed.
        nearest: (G, G) how far it is, by the smaller and the larger group; of single changes, twice by the only one.
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
        self.nearest = np.full((len(problem.groups), len(problem.groups)), np.inf)
        alone = actions.group[sure]
        far = actions.cost + problem.bound_distance.c * actions.peak
        np.minimum.at(self.nearest, (alone, alone), far[sure])

    @property
    def limit(self) -> float:
        """What is farther away is no answer: as many changed sets as are wanted have nearer ones."""
        known, count = self.nearest[np.isfinite(self.nearest)], self.problem.count
        return float(np.partition(known, count - 1)[count - 1]) if len(known) >= count else np.inf

    def limits(self, first: Codes, second: Codes) -> Floats:
        """Return (n,) how far candidates may be that change the groups `first` (n,) and `second` (n,), in any order."""
        nearest = np.minimum(self.nearest[np.minimum(first, second), np.maximum(first, second)], self.limit)
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
        sure &= ~self._may[places].any(axis=1) & (distance < self.nearest[groups[:, 0], groups[:, 1]])
        if sure.any() and (self.problem.linking or not self.problem.plain_limits or self.problem.most_changes < 2):
            sure[sure] = self.problem.held(self.actions.candidates(places[sure]))
        first = self._first(order, groups, sure)
        while len(first) and not (good := self._lawful(places[first])).all():
            sure[first[~good]] = False
            first = self._first(order, groups, sure)
        self.nearest[groups[first, 0], groups[first, 1]] = distance[first]

    def _first(self, order: Codes, groups: Codes, sure: Bools) -> Codes:
        """Return the first sure candidate of every set, of an order of (n,) that puts sets together."""
        some = order[sure[order]]
        _, first = np.unique(groups[some] @ [len(self.nearest), 1], return_index=True)
        return np.asarray(some[first])

    def _lawful(self, places: Codes) -> Bools:
        """Return (n,) whether the rows that take the actions at `places` (n, c) meet every constraint."""
        return self.problem.check(self.problem.rows(self.actions.candidates(places)))
