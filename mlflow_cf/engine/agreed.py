"""Candidates that several models of trees must all accept, however many changes they take.

What a set of changed features may reach is listed, set after set, those of one feature first, then those of two, and so
on: an answer that is found tells how near others must be, so that few larger sets are left. That needs no bounds on
nodes, no generations and no certificate after it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mlflow_cf.engine import thresholds
from mlflow_cf.engine.larger_sets import sets_within
from mlflow_cf.engine.nearest_first import NearestFirst
from mlflow_cf.engine.nodes import beyond_reach
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.goal.unanimous import Unanimous
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.actions import ActionTable
from mlflow_cf.rounding import loose
from mlflow_cf.structures.agreement import DEEPEST, Agreement, AskedSets
from mlflow_cf.structures.joined import Joined
from mlflow_cf.structures.kernels.triple_grid import GridChanges
from mlflow_cf.structures.structure import Structure


class NearestAgreed(NamedTuple):
    """Candidates that may be answers.

    Attributes:
        codes: (m, G) lawful ones, none farther than the first that certainly is an answer.
        limit, tolerance: how far candidates were looked for, and by how much scores may be off.
        whole: whether all of them are there.
    """

    codes: Codes
    limit: float
    tolerance: float
    whole: bool


class Within(NamedTuple):
    """Candidates (m, G) that may be answers, how far others need be looked for, and whether these are all of them."""

    codes: Codes
    limit: float
    whole: bool


@dataclass
class Agreed:
    """What all models may accept of one row.

    Attributes:
        problem: every feature is a group by itself, and may stay as it is; scorer: rates candidates.
        actions: all actions worth looking at, and the row's own values.
        agreement: the models about the row.
        least: (G,) what a change of every group costs at least.
    """

    problem: Problem
    scorer: Scorer
    actions: ActionTable
    agreement: Agreement
    least: Floats
    _kept: NearestAgreed | None = field(default=None)

    @classmethod
    def of(cls, problem: Problem, actions: ActionTable) -> Agreed | None:
        """Return the models of a problem about its row; None: several answers are wanted, or the models list none.

        They do not where some may refuse an answer, where one is no ensemble of trees, or where these are too large.
        """
        scorer = problem.scorer
        if scorer is None or problem.count > 1:
            return None
        many = Unanimous.of(scorer, thresholds.SWEPT)
        if many is None:
            return None
        columns, place = actions.columns, np.empty(len(actions.code), dtype=np.intp)
        place[columns] = np.arange(len(columns))
        changes = GridChanges(place[actions.own][problem.owner], actions.cost[columns], actions.peak[columns])
        agreement = many.joined.agreement(actions.encoded, changes, [one.lead.weights for one in many.alike])
        if agreement is None:
            return None
        cost = actions.cost.copy()
        cost[actions.own] = np.inf
        return cls(problem, scorer, actions, agreement, np.minimum.reduceat(cost, actions.start[:-1]))

    def nearest(self, limit: float, tolerance: float, budget: Budget) -> NearestAgreed:
        """Return the candidates no farther than `limit` that may be answers, or some of them.

        Scores may be off by `tolerance`, in units of max(1, |score|). That takes a share of the budget at most.
        """
        kept = self._kept
        known = kept is not None and limit <= kept.limit and tolerance <= kept.tolerance
        if kept is None or not (known if kept.whole else known and limit == kept.limit):
            asking = NearestFirst(self.problem, self.scorer, tolerance + thresholds.SWEPT)
            part = budget.part(int(thresholds.AGREED_SHARE * budget.left), thresholds.AGREED_SHARE)
            found = self._listed(loose(limit), asking, part)
            budget.take(part.used)
            near = found.codes[self.problem.distance(found.codes) <= found.limit]
            kept = self._kept = NearestAgreed(near[self.problem.lawful(near)], limit, tolerance, found.whole)
        return kept._replace(codes=kept.codes[self.problem.distance(kept.codes) <= limit])

    def _listed(self, limit: float, asking: NearestFirst, budget: Budget) -> Within:
        """Return the candidates that all models may accept.

        Where features take many values, some of these tell first how far others may be.
        """
        if self.agreement.many:
            limit = self._nearest_first(limit, asking, budget, some=True).limit
        return self._nearest_first(limit, asking, budget, some=False)

    def _nearest_first(self, limit: float, asking: NearestFirst, budget: Budget, *, some: bool) -> Within:
        """Return those within a distance, and then within ever larger ones, until one certainly is an answer."""
        within, steps = thresholds.FIRST_AGREED * float(np.sort(self.least)[:2].sum()), 0
        while within < limit and within < self._farthest:
            found = self._within(within, asking, budget, some=some)
            if found.limit < within or not found.whole:
                return found
            within, steps = thresholds.MORE_AGREED * within, steps + 1
            if steps == thresholds.STEPS_AGREED and beyond_reach(self.scorer, self.actions, asking.tolerance):
                return found._replace(limit=limit)
        return self._within(limit, asking, budget, some=some)

    def _within(self, limit: float, asking: NearestFirst, budget: Budget, *, some: bool) -> Within:
        """Return those that are within a limit."""
        problem, parts = self.problem, [self.problem.own[None][:0]]
        alike = () if asking.many is None else asking.many.alike
        may = np.repeat([one.lead.may for one in alike], [one.models for one in alike])
        for size in range(1, problem.most_changes + 1):
            sets = sets_within(self.least, limit, size, size, thresholds.MOST_AGREED) if size <= DEEPEST else None
            if sets is None or not len(sets):  # larger ones cost more
                return Within(np.concatenate(parts), limit, sets is not None)
            groups = np.nonzero(sets)[1].reshape(-1, size)
            groups = groups[np.argsort(self.least[groups].sum(axis=1), kind="stable")]
            asked = AskedSets(np.argsort(problem.owner)[groups], may, float(problem.bound_distance.c), some)
            found = self._of_size(asked, limit, asking, budget)
            parts.append(found.codes)
            limit = found.limit
            if not found.whole:
                return Within(np.concatenate(parts), limit, False)
        return Within(np.concatenate(parts), limit, True)

    def _of_size(self, asked: AskedSets, limit: float, asking: NearestFirst, budget: Budget) -> Within:
        """Return those of sets of one size."""
        at, parts = 0, [self.problem.own[None][:0]]
        while at < len(asked.features):
            listed = self.agreement.listed(asked, at, limit, self._most(budget))
            work = 1 + listed.bounds // thresholds.BOUNDS_PER_ROW
            codes = self.actions.candidates(self.actions.columns[listed.at])
            enough, far = budget.take(work) == work, self.problem.distance(codes)
            accepted = asking.ask(codes, far, limit, budget) if enough else None
            parts += [] if accepted is None else [codes[accepted.at]]
            if accepted is None or not (listed.whole or accepted.limit < limit):
                return Within(np.concatenate(parts), limit, False)
            at, limit = listed.next, accepted.limit
        return Within(np.concatenate(parts), limit, True)

    @cached_property
    def _farthest(self) -> float:
        """No candidate is farther."""
        costs = np.maximum.reduceat(self.actions.cost, self.actions.start[:-1]).sum()
        return float(costs + self.problem.bound_distance.c * self.actions.peak.max(initial=0.0))

    def _most(self, budget: Budget) -> int:
        """Return how many bounds are made at most, in what is left of the budget and of the time."""
        most, seconds = budget.left * thresholds.BOUNDS_PER_ROW, budget.seconds_left
        return most if seconds is None else int(min(most, max(seconds, 0.0) * thresholds.BOUNDS_PER_SECOND))


def try_agreement(structure: Structure, Z: Floats) -> None:
    """List what a model accepts beside itself, of the first of coded rows (m, d) with values of the others.

    It warms up the kernels, so that no later row waits until they are compiled.
    """
    joined = Joined.of([structure, structure], Z.shape[1])
    values, width = [joined.encode(column, codes) for column, codes in enumerate(Z.T)], structure.outputs
    changes = GridChanges(np.arange(Z.shape[1]) * len(Z), np.ones(Z.size), np.ones(Z.size))
    agreement = joined.agreement(values, changes, [np.ones(width), np.ones(width)])
    if agreement is not None:
        asked = AskedSets(np.arange(Z.shape[1])[None, :DEEPEST], np.zeros(2), 0.0, some=False)
        agreement.listed(asked, 0, np.inf, 1)
