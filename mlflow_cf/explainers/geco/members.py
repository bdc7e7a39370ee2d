"""The population of a search by sweeps, and how it grows: by all neighbours of some members, or row by row."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine.engine import Engine
from mlflow_cf.explainers.geco.construction import KnapsackItems, by_ratio, price
from mlflow_cf.explainers.geco.neighbours import Neighbours, RatedNeighbours
from mlflow_cf.explainers.geco.statistics import Statistics
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.search.cascade import Cascade
from mlflow_cf.search.population import (
    Population,
    Seen,
    batches,
    cutoff_of,
    cutoff_of_sets,
    first_of_sets,
    fittest,
    none_scored,
)

AT_ONCE = 32  # members swept in one go; then the cutoff is lowered to what they brought
PREMIUM = 2.0  # on what the nearest single change that suffices pays: what comes near the target is worth a detour
MOST_ACTIONS = 2**22  # of all groups of the members swept in one go: their sums take 32 MB per output


class Members:
    """The fittest candidates so far; see `construction.Explored`.

    A candidate is looked at only if it is nearer than the cutoff: the distance of the last of the wanted number of
    favourable members with changed sets apart. What is farther away cannot become an answer by more changes.

    Attributes:
        population: at most `q` members; their merit is what they lack to be favourable, negated.
        price: distance per shortfall, by what the single changes of the row bring and cost.
        constructed: whether a construction has found answers: then what is too far off at this price is given up.
    """

    PHASES: ClassVar = ("sweep", "cross", "score")

    def __init__(self, engine: Engine, scorer: Scorer, budget: Budget, q: int, statistics: Statistics) -> None:
        self.engine, self.scorer, self.budget, self.q = engine, scorer, budget, q
        self.problem = problem = engine.problem
        self.seen = Seen(problem)
        self.population = none_scored(problem)
        self.cutoff, self.price, self.constructed = np.inf, 0.0, False
        self.statistics = statistics
        self._swept: set[bytes] = set()

    @cached_property
    def cascade(self) -> Cascade:
        """Repairs candidates."""
        return Cascade(self.problem)

    @cached_property
    def neighbours(self) -> Neighbours:
        """The neighbourhoods of candidates."""
        return Neighbours(self.engine, self.scorer, self.cascade, self.seen.keys)

    @property
    def _at_once(self) -> int:
        """How many members are swept in one go."""
        return max(1, min(AT_ONCE, MOST_ACTIONS // max(1, len(self.neighbours.actions.code))))

    def start(self, row: Codes) -> tuple[float, KnapsackItems]:
        """Look at all neighbours of the row to start from (G,), which tell the price of what is lacking.

        Returns:
            The row's merit, and its single changes.
        """
        merit = float(self.rate(row[None])[1][0])
        near, others = self._near(row[None])
        single = self._single(row, merit, near)
        need, sufficient = self.need(merit), near.distance[near.verdict > 0]
        if len(sufficient) and need > 0:
            self.price = PREMIUM * float(sufficient.min()) / need
        else:
            self.price = price(by_ratio(single), need)
        self._keep_best(near)
        self.score(others)
        return merit, single

    def sweep_waiting(self) -> None:
        """Look at all neighbours of the members of which this was not done yet, fittest first."""
        waiting = self._waiting()
        while len(waiting) and not self.budget.spent:
            self._sweep(waiting[: self._at_once])
            waiting = self._waiting()

    def rate(self, codes: Codes) -> tuple[Bools, Floats]:
        """Return whether candidates (m, G) are favourable, and by how much, or what they lack, negated."""
        favourable, margin, shortfall = self.scorer.measures(self.problem.encoded(codes))
        return favourable, np.where(favourable, margin, -shortfall)

    def merits(self, scored: Population) -> Floats:
        """Return what scored candidates (m,) lack, negated."""
        return scored.merit

    def need(self, merit: float) -> float:
        """Return what a merit lacks."""
        return max(-merit, 0.0)

    def singles(self, state: Codes, merit: float) -> KnapsackItems:
        """Look at all neighbours of a candidate (G,), and return what each adds to its merit."""
        return self._single(state, merit, self._sweep(state[None]))

    def around(self, members: Codes) -> None:
        """Look at all neighbours of candidates (m, G), and at themselves."""
        self.score(self.cascade.repair(members))
        for start in range(0, len(members), self._at_once):
            self._sweep(members[start : start + self._at_once])

    def score(self, codes: Codes) -> Population:
        """Score candidates (m, G) that are new and nearer than the cutoff, keep the fittest, and return all."""
        with self.statistics.timed("score"):
            codes = codes[self.problem.distance(codes) < self.cutoff]
            codes = codes[self.seen.new(codes)]
            parts = [none_scored(self.problem)]
            for some in batches(len(codes), self.budget):
                favourable, _, shortfall = self.scorer.measures(self.problem.encoded(codes[some]))
                parts.append(self._scored(codes[some], favourable, shortfall))
            scored = Population.together(parts)
            self.seen.remember(len(scored))
            self.statistics.cells_naive += len(scored) * len(self.problem.space)
            self.statistics.cells_delta += len(scored) * len(self.problem.space)
            self._keep(scored)
            return scored

    def _waiting(self) -> Codes:
        codes = self.population.codes
        return codes[[row.tobytes() not in self._swept for row in codes]]

    def _sweep(self, members: Codes) -> RatedNeighbours:
        near, others = self._near(members)
        if len(near.distance):  # most members have none left once there are answers
            self._keep_best(near)
        if len(others):
            self.score(others)
        return near

    def _near(self, members: Codes) -> tuple[RatedNeighbours, Codes]:
        with self.statistics.timed("sweep"):
            self._swept.update(row.tobytes() for row in members)
            before = self.budget.used
            near, others = self.neighbours.of(members, self.cutoff, self.budget)
            # of a neighbour one value is held, beside the row of its member
            cells = self.budget.used - before
            self.statistics.cells_naive += cells * len(self.problem.space)
            self.statistics.cells_delta += cells + len(members) * len(self.problem.space)
        return near, others

    def _keep_best(self, near: RatedNeighbours) -> None:
        """Keep the best of swept neighbours; those in doubt are rated as rows."""
        with self.statistics.timed("sweep"):
            best = near.best(self.q, self.price)
            best = best[self.seen.new(near.codes(best))]
            self.seen.remember(len(best))
            codes, favourable, shortfall = near.codes(best), near.verdict[best] > 0, near.shortfall[best]
            doubtful = np.flatnonzero(near.verdict[best] < 0)
            if len(doubtful):
                rated = self.scorer.measures(self.problem.encoded(codes[doubtful]))
                favourable[doubtful], _, shortfall[doubtful] = rated
            self._keep(self._scored(codes, favourable, shortfall))

    def _scored(self, codes: Codes, favourable: Bools, shortfall: Floats) -> Population:
        score = self.problem.distance(codes) + np.where(favourable, 0.0, self.price * shortfall)
        return Population(codes, favourable, score, -shortfall, np.ones(len(codes), dtype=np.bool_))

    def _keep(self, found: Population) -> None:
        """Keep the fittest of the members and of what was found."""
        if not len(found):
            return
        several = self.problem.count > 1
        joined = self.population.joined(self._minimal(found) if several else found)
        if several:
            joined = first_of_sets(self.problem, fittest(self.problem, joined, len(joined)))
        self.population = self._best(joined)
        self.cutoff = (cutoff_of_sets if several else cutoff_of)(self.problem, self.population)
        if self.cutoff < np.inf:  # what cannot become an answer any more leaves its place to what can
            far = joined.score if self.constructed else self.problem.distance(joined.codes)
            near = joined.favourable | (far < self.cutoff)
            self.population = self._best(joined.take(np.flatnonzero(near)))

    def _best(self, found: Population) -> Population:
        """Return the fittest; where several answers are wanted, the best come first already."""
        if self.problem.count > 1:
            return found.take(np.arange(min(self.q, len(found))))
        return fittest(self.problem, found, self.q)

    def _minimal(self, found: Population) -> Population:
        """Return candidates, the favourable ones without redundant changes."""
        codes, favourable = found.codes.copy(), found.favourable
        codes[favourable] = minimal(self.problem, self.scorer, codes[favourable])
        return replace(found, codes=codes, score=np.where(favourable, self.problem.distance(codes), found.score))

    def _single(self, state: Codes, merit: float, near: RatedNeighbours) -> KnapsackItems:
        cost = near.distance - self.problem.distance(state[None])
        return KnapsackItems(near.group, near.code, -near.shortfall - merit, cost)


def minimal(problem: Problem, scorer: Scorer, codes: Codes) -> Codes:
    """Return favourable candidates (m, G) with change after change put back, the dearest first, while they stay so."""
    codes = codes.copy()
    waiting = np.arange(len(codes))
    while len(waiting):
        owner, undone = problem.undone_codes(codes[waiting])
        if not len(owner):
            break
        kept = np.flatnonzero(scorer.margins(problem.encoded(undone))[0])  # few are, so that rules are checked for few
        kept = kept[problem.held(undone[kept])]
        owner, undone = waiting[owner[kept]], undone[kept]
        order = np.lexsort((problem.distance(undone), owner))
        waiting, first = np.unique(owner[order], return_index=True)
        codes[waiting] = undone[order[first]]
    return codes
