"""SimCF: one random group after the other is set to the best of a few values drawn for it (SimBA's walk)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from pydantic import StrictBool

from mlflow_cf.explainers.explainer import Candidates, Span, asked, check_options
from mlflow_cf.problem import Budget, Problem
from mlflow_cf.search.cascade import Cascade, draw_distinct, with_draws
from mlflow_cf.search.population import Population, fittest, none_scored, score_candidates, score_within

OPTIONS: Final = {"values": Span(1, 1_000, whole=True), "walks": Span(1, 100, whole=True)}


@dataclass(frozen=True)
class SimCF:
    """Walks from the row: every step draws a few values of one random group, and keeps the row that scores best.

    The score is GeCo's: the distance, and a price above any distance for what misses the target. A walk ends with its
    first favourable row, or in failure after all groups. Every row is repaired by the rules over several groups before
    it is scored; one that cannot be is no choice. Each answer wanted has walks of its own.
    Reference: what Schleich et al. (2021, section 6) made of SimBA (Guo et al. 2019), on the l1 distance.

    Attributes:
        values: how many values of a group a step draws, each more likely the more frequent it is.
        allow_no_change: whether a group stays as it is where no value drawn is better; the software of the paper
            always changes it.
        walks: how many walks there are for each answer; more fail less often.
    """

    values: int = 5
    allow_no_change: bool = True
    walks: int = 1

    name: ClassVar[str] = "simcf"
    polish: ClassVar[bool] = False
    by_request: ClassVar[Mapping[str, Any]] = {**asked(OPTIONS), "allow_no_change": StrictBool}

    def __post_init__(self) -> None:
        check_options(self, OPTIONS)

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Walk as often as asked; return where the walks ended well, nearest first."""
        problem = with_draws(problem, rng)
        cascade = Cascade(problem, rng)
        found = [none_scored(problem)]
        walks = failed = 0
        if not budget.take(1):
            return Candidates(problem.rows(found[0].codes), {"walks": walks, "failed": failed})
        own = score_candidates(problem, problem.own[None])
        # the row itself is no answer, whatever the model says
        start = Population(own.codes, np.zeros(1, dtype=np.bool_), 2.0 - own.merit, own.merit, own.fresh)
        while walks < self.walks * problem.count and not budget.spent:
            end = self._walk(cascade, start, budget, rng)
            walks += 1
            failed += not end.favourable[0]
            found.append(end.take(np.flatnonzero(end.favourable)))
        best = fittest(problem, Population.together(found), walks)
        return Candidates(problem.rows(best.codes), {"walks": walks, "failed": failed})

    def _walk(self, cascade: Cascade, at: Population, budget: Budget, rng: np.random.Generator) -> Population:
        """Return the row (a population of one) at which a walk ends, favourable or not."""
        problem = cascade.problem
        mutable = [number for number, group in enumerate(problem.groups) if group.weights.any()]
        for number in rng.permutation(mutable).tolist():
            (drawn,) = draw_distinct(problem.groups[number].weights, 1, self.values, rng)
            variants = np.repeat(at.codes, len(drawn), axis=0)
            variants[:, number] = drawn
            scored = score_within(problem, cascade.repair(variants), budget)
            if len(scored):
                choice = at.joined(scored) if self.allow_no_change else scored
                at = fittest(problem, choice, 1)
            if at.favourable[0] or budget.spent:
                break
        return at
