"""The engine of one row: nearest first under the bounds of the opened model, and what is known of the row so far.

A search, a certificate and a reason of the same row are handed the same engine, so that each goes on from what those
before it have found out: the points of continuous numbers, the actions worth looking at, a sweep of all single changes,
tables of pairs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from mlflow_cf.engine import thresholds
from mlflow_cf.engine.actions import actions_within, distinct_actions, lawful_actions
from mlflow_cf.engine.agreed import Agreed
from mlflow_cf.engine.few_changes import FewChanges
from mlflow_cf.engine.nearest import NearestFound, Sought, nearest_moves, nearest_sets
from mlflow_cf.engine.nodes import beyond_reach
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.actions import ActionTable
from mlflow_cf.problem.points import with_points
from mlflow_cf.rounding import loose
from mlflow_cf.structures.joined import Joined


class Engine:
    """What is known of one row; belongs to one thread. Nothing is computed before it is asked for.

    Attributes:
        given: the problem of the row, perhaps with intervals of continuous numbers.
        found: the nearest candidates, where a search that ends soon has found them.
    """

    def __init__(self, given: Problem) -> None:
        """Set up for a problem."""
        self.given = given
        self.found: NearestFound | None = None

    @cached_property
    def _pointed(self) -> tuple[Problem, bool]:
        # packed groups have no intervals
        return (self.given, True) if self.given.packed_groups else with_points(self.given)

    @property
    def problem(self) -> Problem:
        """The problem with points in place of intervals: what is searched."""
        return self._pointed[0]

    @property
    def exact(self) -> bool:
        """Whether the points contain the nearest counterfactual, so that there can be proofs."""
        return self._pointed[1]

    @cached_property
    def _distinct(self) -> Codes:
        return distinct_actions(self.problem)

    @cached_property
    def actions(self) -> ActionTable:
        """The actions worth looking at: of those that the model cannot tell apart the nearest."""
        return self.problem.actions.take(self._distinct)

    @cached_property
    def few(self) -> FewChanges | None:
        """What one change does and what two do; None where a sweep does not look at all single changes."""
        problem = self.problem
        if problem.scorer is None or not self._single:
            return None
        return FewChanges(problem, problem.scorer, self.actions)

    @cached_property
    def agreed(self) -> Agreed | None:
        """What enough of many models may accept; None where they do not list it."""
        return Agreed.of(self.problem, self.actions) if self.exact and self._single else None

    def nearest(self, sought: Sought, budget: Budget, share: int) -> NearestFound | None:
        """Return the nearest candidates by a search that ends soon, in no more than a share of the budget.

        None where they are not known. Tolerances are in units of max(1, |score|).
        """
        if self.exact and self._single:
            for search in (nearest_moves, nearest_sets):
                self.found = search(self.problem, partial(self._reached, sought.limit), sought, budget, share)
                if self.found is not None:
                    break
        return self.found

    def _reached(self, limit: float) -> ActionTable:
        return self.actions if np.isinf(limit) else self.within(loose(limit))

    @property
    def _single(self) -> bool:
        """Whether every feature is a group by itself, and may stay as it is."""
        problem = self.problem
        return len(problem.groups) == len(problem.space) and bool(problem.own_allowed.all())

    def hardest(self, known: Floats | None) -> Scorer | None:
        """Return the scorer of the few models, of many that must accept an answer, that lack most; None without many.

        Half of them lack most of the row, and half of the nearest of `known` answers (k, d), where there are any.
        """
        scorer, row = self.problem.scorer, self.problem.x0[None]
        if scorer is None or not isinstance(scorer.structure, Joined):
            return None
        beside = row if known is None else np.concatenate([row, known[:1]])
        sums = scorer.structure.sums(scorer.encoded(range(beside.shape[1]), beside))
        found = scorer.hardest(sums, thresholds.HARDEST)
        return None if found is None else found.scorer

    def wanting(self, count: int) -> Engine:
        """Return an engine for so many answers of the same row, among the same points."""
        return Engine(replace(self.problem, count=count))

    def beyond_reach(self, tolerance: float) -> bool:
        """Whether bounds prove that nothing meets the target, although scores may be off by `tolerance`.

        Tolerances are in units of max(1, |score|). False: they do not tell.
        """
        if self.problem.scorer is None or not self.exact:
            return False
        return beyond_reach(self.problem.scorer, self.actions, tolerance)

    def within(self, limit: float, *, whole: bool = False) -> ActionTable:
        """Return the actions that a candidate no farther than `limit` may take, nearest first within each group.

        With `whole`, also those that the model cannot tell from a nearer one.
        """
        ids = lawful_actions(self.problem) if whole else self._distinct
        return actions_within(self.problem, ids, limit)
