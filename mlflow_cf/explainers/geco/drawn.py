"""Constructions for models that are not opened: what single changes bring is drawn, and scored in large batches."""

from __future__ import annotations

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.explainers.geco.draws import MOST_CODES, Draws
from mlflow_cf.explainers.geco.knapsack import KnapsackItems
from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes
from mlflow_cf.search.population import Population, batches, cutoff_of, fittest, log_odds, none_scored


class Drawn:
    """What a construction asks of draws; see `construction.Explored`."""

    def __init__(self, run: Draws, population: Population, size: int) -> None:
        """Set up for the population of `run`; `size` actions are drawn per group."""
        self.problem, self.budget, self.cascade = run.problem, run.budget, run.cascade
        self.run, self.population, self.size, self.cutoff = run, population, size, np.inf

    def rate(self, codes: Codes) -> tuple[Bools, Floats]:
        """Return whether candidates (m, G) are favourable, and the logarithm of their odds."""
        if not len(codes):  # many models refuse an empty table
            return np.empty(0, dtype=np.bool_), np.empty(0)
        rating = self.run.rate(self.run.deltas.of(codes))
        return rating.favourable, log_odds(rating.grade)

    def merits(self, scored: Population) -> Floats:
        """Return the logarithm of the odds (m,) of scored candidates."""
        return log_odds(scored.merit)

    def need(self, merit: float) -> float:
        """Return inf: a grade does not tell where the target is met."""
        del merit
        return np.inf

    def score(self, codes: Codes) -> Population:
        """Score candidates (m, G) that are new and nearer than the cutoff, keep the fittest, and return all."""
        run = self.run
        places = run.deltas.of(codes[self.problem.distance(codes) < self.cutoff])
        places = places[run.seen.new_places(places)]
        parts = [none_scored(self.problem), *(run.scored(places[some]) for some in batches(len(places), self.budget))]
        scored = Population.together(parts)
        run.seen.remember(len(scored))
        if len(scored):
            self.population = fittest(self.problem, self.population.joined(scored), run.q)
            self.cutoff = cutoff_of(self.problem, self.population)
        return scored

    def start(self, row: Codes) -> tuple[float, KnapsackItems]:
        """Score candidates that differ from the row to start from (G,) in one group.

        Returns:
            The row's merit, and its single changes. The row is not scored for that: most of these hardly matter.
        """
        scored = self._beside(row)
        merit = float(np.median(self.merits(scored))) if len(scored) else 0.0
        return merit, self._single(row, merit, scored)

    def singles(self, state: Codes, merit: float) -> KnapsackItems:
        """Score candidates that differ from `state` (G,) in one group; return what each adds to its merit."""
        return self._single(state, merit, self._beside(state))

    def _beside(self, state: Codes) -> Population:
        scored = self.score(self.run.codes_of(state[None], self.size, outermost=True))
        return scored.take(np.flatnonzero((scored.codes != state).sum(axis=1) == 1))

    def _single(self, state: Codes, merit: float, scored: Population) -> KnapsackItems:
        group = (scored.codes != state).argmax(axis=1)
        cost = self.problem.distance(scored.codes) - self.problem.distance(state[None])
        return KnapsackItems(group, scored.codes[np.arange(len(group)), group], self.merits(scored) - merit, cost)

    def around(self, members: Codes) -> None:
        """Score and keep `members` (m, G) and candidates that differ from one of them in one group."""
        waiting = self.cascade.repair(members)
        each = max(1, MOST_CODES // (self.size * len(self.problem.groups) ** 2))
        for start in range(0, len(members), each):
            if self.budget.spent:
                return
            self.score(np.concatenate([waiting, self.run.codes_of(members[start : start + each], self.size)]))
            waiting = waiting[:0]
