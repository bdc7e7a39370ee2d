"""Candidates of three changes, where the structure scores all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from mlflow_cf.engine import thresholds
from mlflow_cf.engine.larger_sets import sets_within
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.actions import ActionTable
from mlflow_cf.rounding import loose
from mlflow_cf.structures.capabilities import SupportsTriples, boxes_of
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
    """

    problem: Problem
    scorer: Scorer
    actions: ActionTable
    least: Floats
    _kept: list[_Kept] = field(default_factory=list)  # the last one, if one answer is wanted
    _too_far: list[float] = field(default_factory=list)  # there are too many candidates within this

    @cached_property
    def tells(self) -> bool:
        """Whether the structure tells what three changes do, and no rule is about several features."""
        problem, told = self.problem, boxes_of(self.scorer.structure, self.problem.encoded_row)
        return isinstance(told, SupportsTriples) and not problem.linking and problem.plain_limits

    def first_limit(self) -> float:
        """Return a distance to look within at first, where nothing is known; inf: no group has three changes."""
        return thresholds.FIRST_TRIPLES * self._total

    def next_limit(self, limit: float) -> float:
        """Return a larger distance to look within next; inf: no three changes are farther."""
        actions, c = self.actions, self.problem.bound_distance.c
        farther = self._total + thresholds.MORE_TRIPLES * (limit - self._total)
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
        for kept in self._kept:
            if limits.limit <= kept.limit and limits.tolerance <= kept.tolerance:
                return np.asarray(kept.codes[self.problem.distance(kept.codes) <= limits.limit])
        farthest = min([limits.limit, *limits.known.tolist()])
        found = self._listed(limits, budget) if all(farthest < limit for limit in self._too_far) else None
        if self.problem.count == 1 and found is not None:
            self._kept[:] = [_Kept(farthest, limits.tolerance, found)]
        elif self.problem.count == 1 and not budget.spent:
            self._too_far[:] = [farthest]
        return found

    def _listed(self, limits: TripleLimits, budget: Budget) -> Codes | None:
        """Look for the candidates; see `near`."""
        problem, limit = self.problem, loose(limits.limit)
        lead = self.scorer.decision_score(limits.tolerance + thresholds.SWEPT)
        sets = sets_within(self.least, limit, SIZE, min(SIZE, problem.most_changes))
        if lead is None or sets is None or not len(sets):
            return None if lead is None or sets is None else problem.own[None][:0]
        near = self._within(limit)
        boxes = boxes_of(self.scorer.structure, near.encoded)
        if not isinstance(boxes, SupportsTriples):
            return None
        groups = np.nonzero(sets)[1].reshape(-1, SIZE)
        groups = groups[np.lexsort((*groups.T[::-1], self.least[groups].sum(axis=1)))]
        asked = AskedTriples(
            features=np.argsort(problem.owner)[groups],
            weights=np.ascontiguousarray(lead.weights),
            may=float(lead.may),
            sure=float(lead.sure),
            c=float(problem.bound_distance.c),
            limit=limit,
            most=min(thresholds.MOST_TRIPLES, budget.left * thresholds.TRIPLES_PER_ROW),
        )
        known = np.sort(np.append(limits.known, np.full(problem.count, np.inf)))[: problem.count]
        found = boxes.triples(self._changes(near), asked, known)
        work = 1 if found is None else 1 + int(found.counts[1]) // thresholds.TRIPLES_PER_ROW
        if budget.take(work) < work or found is None or found.complete[0] < limit:
            return None
        codes = near.candidates(near.columns[found.at])
        return codes if problem.lawful(codes).all() else None  # what is not may have lowered the limit

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
