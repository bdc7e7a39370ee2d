"""Candidates of three changes, where the structure scores all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine import thresholds
from mlflow_cf.engine.larger_sets import sets_within
from mlflow_cf.engine.nearest_first import NearestFirst
from mlflow_cf.engine.three_of_many import NearTriples, TriplesOfMany
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.goal.unanimous import Unanimous
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.actions import ActionTable
from mlflow_cf.rounding import loose
from mlflow_cf.structures.capabilities import Boxes, SupportsTriples, boxes_of
from mlflow_cf.structures.joined import JoinedBoxes
from mlflow_cf.structures.kernels.triple_grid import AskedTriples, GridChanges

SIZE: Final = 3  # changes of a triple


class TripleLimits(NamedTuple):
    """How far candidates may be.

    Attributes:
        limit: at most so far.
        known: how far the nearest candidates of other changed sets than those of three changes are.
        tolerance: by how much scores may be off.
    """

    limit: float
    known: Floats
    tolerance: float


class _Kept(NamedTuple):
    """What was found before.

    Attributes:
        limit, tolerance: as in `TripleLimits`; codes: (m, G) the candidates.
    """

    limit: float
    tolerance: float
    codes: Codes


@dataclass(frozen=True, eq=False)
class ThreeChanges:
    """The triples of changes of one row.

    Attributes:
        problem, scorer: what decides about them; every feature is a group by itself, and may stay as it is.
        actions: the changes, and the row's own values.
        least: (G,) what a change of every group costs at least.
        asking: asks all models, whose scores may be so much off.
    """

    problem: Problem
    scorer: Scorer
    actions: ActionTable
    least: Floats
    asking: Callable[[float], NearestFirst]
    _kept: dict[int, _Kept] = field(default_factory=dict)  # by the number of changes
    _too_far: dict[int, float] = field(default_factory=dict)  # there are too many candidates within this

    @cached_property
    def tells(self) -> bool:
        """Whether the structure tells what three changes do, and no rule is about several features."""
        return not self.problem.linking and self.problem.plain_limits and (self._one or self.of_many)

    @property
    def _one(self) -> bool:
        """Whether the structure tells it as a whole."""
        return isinstance(self._boxes, SupportsTriples)

    @cached_property
    def of_many(self) -> bool:
        """Whether one answer is wanted that several models must all accept, each of which tells it by itself."""
        if self.problem.count > 1 or not isinstance(self._boxes, JoinedBoxes):
            return False
        each = all(isinstance(part, SupportsTriples) for part in self._boxes.parts)
        return each and Unanimous.of(self.scorer, thresholds.SWEPT) is not None

    @cached_property
    def _boxes(self) -> Boxes:
        """The bounds of boxes that hold the row alone."""
        return boxes_of(self.scorer.structure, self.problem.encoded_row)

    def first_limit(self) -> float:
        """Return a distance to look within at first, where nothing is known; inf: no group has three changes."""
        return thresholds.FIRST_TRIPLES * self._total

    def next_limit(self, limit: float) -> float:
        """Return a larger distance to look within next; inf: no three changes are farther."""
        actions, c = self.actions, self.problem.bound_distance.c
        more = thresholds.MORE_TRIPLES if self._one else thresholds.MORE_OF_MANY
        farther = self._total + more * (limit - self._total)
        return farther if limit < SIZE * float(actions.cost.max()) + c * float(actions.peak.max()) else np.inf

    @cached_property
    def _total(self) -> float:
        """What three changes cost at least; inf: there are none."""
        cheapest = np.sort(self.least)[:SIZE]
        return float(cheapest.sum()) if len(cheapest) == SIZE else np.inf

    def near(self, limits: TripleLimits, budget: Budget) -> Codes | None:
        """Return the candidates (m, G) that may be answers, none with a certainly redundant change.

        Of every three groups, none is farther than the first that certainly meets the target. None: there are too
        many, rules are about several features or refuse one as a whole row, the structure does not tell, or the budget
        does not last.
        """
        if not self.tells:
            return None
        return self._remembered(SIZE, limits, budget, partial(self._three, limits, budget))

    def four(self, sets: Bools, limits: TripleLimits, budget: Budget) -> Codes | None:
        """Return the same of four changes, of many models; `sets` (s, G): the larger sets of groups within the limit.

        None also where sets have more than four groups.
        """
        if not self.tells or not self.of_many or (sets.sum(axis=1) > SIZE + 1).any():
            return None
        return self._remembered(SIZE + 1, limits, budget, partial(self._four, sets, limits, budget))

    def _remembered(
        self, size: int, limits: TripleLimits, budget: Budget, find: Callable[[], Codes | None]
    ) -> Codes | None:
        """Return the candidates of so many changes, as they are known or as they are found."""
        kept = self._kept.get(size)
        if kept is not None and limits.limit <= kept.limit and limits.tolerance <= kept.tolerance:
            return np.asarray(kept.codes[self.problem.distance(kept.codes) <= limits.limit])
        farthest = min([limits.limit, *limits.known.tolist()])
        found = find() if farthest < self._too_far.get(size, np.inf) else None
        if self.problem.count == 1 and found is not None:
            self._kept[size] = _Kept(farthest, limits.tolerance, found)
        elif self.problem.count == 1 and not budget.spent:
            self._too_far[size] = farthest
        return found

    def _three(self, limits: TripleLimits, budget: Budget) -> Codes | None:
        """Look for the candidates of three changes; see `near`."""
        problem, limit, tolerance = self.problem, loose(limits.limit), limits.tolerance + thresholds.SWEPT
        most_sets = thresholds.MOST_SETS if self._one else thresholds.MOST_TRIPLE_SETS
        sets = sets_within(self.least, limit, SIZE, min(SIZE, problem.most_changes), most_sets)
        if sets is None or not len(sets):
            return None if sets is None else problem.own[None][:0]
        groups = np.nonzero(sets)[1].reshape(-1, SIZE)
        groups = groups[np.lexsort((*groups.T[::-1], self.least[groups].sum(axis=1)))]
        near = self._near(groups, limit, budget)
        known = np.sort(np.append(limits.known, np.full(problem.count, np.inf)))[: problem.count]
        if self._one:
            return self._of_one(near, known, tolerance, budget)
        kept = self._kept.get(SIZE)
        before = [] if kept is None or kept.tolerance < limits.tolerance else [kept]
        near = near.within(min(limit, loose(float(known[0]))), *(loose(each.limit) for each in before))
        lists = TriplesOfMany.of(near, self.asking(tolerance), budget)
        found = None if lists is None else lists.three()
        return None if found is None else np.concatenate([*(each.codes for each in before), found])

    def _four(self, sets: Bools, limits: TripleLimits, budget: Budget) -> Codes | None:
        """Look for the candidates of four changes; see `four`."""
        near = self._near(np.empty((0, SIZE), dtype=np.intp), loose(limits.limit), budget)
        lists = TriplesOfMany.of(near, self.asking(limits.tolerance + thresholds.SWEPT), budget)
        return None if lists is None else lists.four(sets, self.least)

    def _near(self, groups: NDArray[np.intp], limit: float, budget: Budget) -> NearTriples:
        """Return three changes of some groups (s, 3) that are near enough."""
        actions, problem = self._within(limit), self.problem
        asked = AskedTriples(
            features=np.argsort(problem.owner)[groups],
            weights=np.empty(0),
            may=0.0,
            sure=np.inf,
            c=float(problem.bound_distance.c),
            limit=limit,
            most=min(thresholds.MOST_TRIPLES, budget.left * thresholds.TRIPLES_PER_ROW),
        )
        return NearTriples(problem, actions, self._changes(actions), asked)

    def _of_one(self, near: NearTriples, known: Floats, tolerance: float, budget: Budget) -> Codes | None:
        """Return the candidates of one structure; `known`: as far as so many answers are at most, ascending."""
        lead = self.scorer.decision_score(tolerance)
        if lead is None:
            return None
        found = near.of_one(self.scorer.structure, lead, known)
        work = near.work(found)
        if budget.take(work) < work or found is None or found.complete[0] < near.asked.limit:
            return None
        codes = near.codes(found)
        return codes if self.problem.lawful(codes).all() else None  # what is not may have lowered the limit

    def _within(self, limit: float) -> ActionTable:
        """Return the actions within a limit beside the cheapest two changes of other groups, and the row's own ones."""
        cheapest = np.sort(self.least)[:SIZE]
        beside = np.where(self.least <= cheapest[-1], cheapest.sum() - self.least, cheapest[:-1].sum())
        kept = self.actions.cost + beside[self.actions.group] <= limit
        kept[self.actions.own] = True
        return self.actions.take(np.flatnonzero(kept))

    def _changes(self, near: ActionTable) -> GridChanges:
        """Return what actions cost, column after column."""
        columns = near.columns
        place = np.empty(len(columns), dtype=np.intp)
        place[columns] = np.arange(len(columns))
        peak = near.peak[columns] if self.problem.bound_distance.c else np.zeros(len(columns))
        return GridChanges(place[near.own][self.problem.owner], near.cost[columns], peak)
