"""Of candidates of two changes those that may become answers, where several changed sets are wanted."""

from __future__ import annotations

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.exact.boxes import loose
from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes, Problem, Rater
from mlflow_cf.search.choices import Choices


class FirstOfSets:
    """The nearest certain candidate of every changed set met so far.

    It is certain if it meets the target by more than a doubt, and with either change alone misses it by as much.

    Attributes:
        enough: (choices,) which changes certainly suffice alone: beside another change they are all that is needed.
    """

    def __init__(self, problem: Problem, rater: Rater, choices: Choices, sums: Floats, doubt: float) -> None:
        """Start with the single changes to `choices`, which have the sums (choices, k)."""
        self.problem, self.rater, self.choices, self.doubt = problem, rater, choices, doubt
        changed = choices.code != problem.own[choices.group]
        may, enough = rater.verdicts(sums, doubt)
        self._may, self.enough = changed & may, changed & enough
        sure = np.flatnonzero(self.enough)
        sure = sure[self._lawful(sure[:, None])] if len(sure) else sure
        self.enough[:] = False
        self.enough[sure] = True
        nearest = np.full(len(problem.groups), np.inf)
        np.minimum.at(nearest, choices.group[sure], (choices.cost + problem.bound_distance.c * choices.peak)[sure])
        self._nearest = nearest[np.isfinite(nearest)]

    @property
    def limit(self) -> float:
        """What is farther away is no answer: as many changed sets as are wanted have nearer ones."""
        count = self.problem.count
        return float(np.partition(self._nearest, count - 1)[count - 1]) if len(self._nearest) >= count else np.inf

    def kept(self, places: Codes, sums: Floats, distance: Floats) -> Codes:
        """Return which candidates (n,) may be the nearest of their changed set, and remember how near that is.

        Args:
            places: (n, 2) the choices they take; all candidates with the same changed set come in one call.
            sums: (n, k) of each; distance: (n,) of each.
        """
        groups = self.choices.group[places]
        sets = groups.min(axis=1) * len(self.problem.groups) + groups.max(axis=1)
        order = np.lexsort((distance, sets))
        _, sure = self.rater.verdicts(sums, self.doubt)
        sure &= ~self._may[places].any(axis=1)
        if sure.any() and (self.problem.linking or not self.problem.plain_limits or self.problem.most_changes < 2):
            sure[sure] = self.problem.held(self.choices.taken(places[sure]))
        first = self._first(order, sets, sure)
        while len(first) and not (good := self._lawful(places[first])).all():
            sure[first[~good]] = False
            first = self._first(order, sets, sure)
        self._nearest = np.append(self._nearest, distance[first])
        limits = np.full(len(self.problem.groups) ** 2, np.inf)
        limits[sets[first]] = [loose(far) for far in distance[first].tolist()]
        return np.flatnonzero(distance <= np.minimum(limits[sets], loose(self.limit)))

    def _first(self, order: Codes, sets: Codes, sure: Bools) -> Codes:
        """Return the first sure candidate of every set, of an order of (n,) that puts sets together."""
        some = order[sure[order]]
        _, first = np.unique(sets[some], return_index=True)
        return np.asarray(some[first])

    def _lawful(self, places: Codes) -> Bools:
        """Return (n,) whether the rows that take the choices at `places` (n, c) meet every constraint."""
        return self.problem.check(self.problem.rows(self.choices.taken(places)))
