"""Genetic search by exact neighbourhoods: GeCo's sweep mode. It draws nothing at random."""

from __future__ import annotations

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.explainers.geco.neighbours import Neighbours
from mlflow_cf.explainers.geco.statistics import Statistics
from mlflow_cf.features import Floats
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.search.cascade import Cascade
from mlflow_cf.search.points import with_points
from mlflow_cf.search.population import Population, Seen, changed_sets, fittest, score_candidates, score_within
from mlflow_cf.search.seeds import codes_of, nearest_favourable_rows

AT_ONCE = 16  # members swept in one go; then the bar is lowered to what they brought


class Sweeps:
    """One search.

    A candidate is looked at only if it is nearer than the bar: the distance of the last of the wanted number of
    favourable members with changed sets apart. What is farther away cannot become an answer by more changes.
    """

    def __init__(self, problem: Problem, budget: Budget, q: int, stable: int, generations: range) -> None:
        """Set up a search that keeps `q` members for some `generations` until the best `stable` ones do not change."""
        (self.problem, _), self.budget = with_points(problem), budget
        self.q, self.stable, self.generations = q, stable, generations
        self.cascade = Cascade(self.problem)
        self.seen = Seen(self.problem)
        if self.problem.rater is None:
            raise ValueError("sweeps need a structure")
        self.neighbours = Neighbours(self.problem, self.problem.rater, self.cascade, self.seen.keys, self.q)
        self.population = score_candidates(self.problem, np.empty((0, len(self.problem.groups)), dtype=np.intp))
        self.swept: set[bytes] = set()
        self.bar = np.inf
        self.statistics = Statistics(("sweep", "cross", "score"))

    def run(self) -> tuple[Floats, dict[str, int | float]]:
        """Return favourable rows (m, d), nearest first, and the statistics of the search."""
        problem = self.problem
        start = self.cascade.repair(problem.own[None, :])
        lawful = all(group.own_allowed for group in problem.groups) and all(
            joint.holds(problem.own[None, :])[0] for joint in self.cascade.joint_rules
        )
        if lawful:
            start = problem.own[None, :]
        else:
            self.score(start)
        self.sweep(start)
        generations = self.evolve()
        if not self.population.favourable.any() and not self.budget.cut:
            self.score(codes_of(problem, nearest_favourable_rows(problem))[: self.q])
            generations += self.evolve()
        found = self.population.codes[self.population.favourable]
        return problem.rows(found), self.statistics.summary(generations, self.budget.used)

    def evolve(self) -> int:
        """Pass generations until the best members are favourable and old, or nothing new comes; return how many."""
        for generation in range(1, self.generations.stop):
            before = self.seen.keys.of(self.population.codes)
            with self.statistics.timed("cross"):
                children = self.cross()
            self.score(children)
            waiting = self.waiting()
            while len(waiting) and not self.budget.spent:
                self.sweep(waiting[:AT_ONCE])
                waiting = self.waiting()
            fresh = ~np.isin(self.seen.keys.of(self.population.codes), before)
            if not fresh.any() or self.budget.spent:
                return generation
            settled = self.population.favourable[: self.stable].all() and not fresh[: self.stable].any()
            if settled and generation >= self.generations.start:
                return generation
        return self.generations.stop - 1

    def waiting(self) -> Codes:
        """Return the members not swept yet."""
        codes = self.population.codes
        return codes[[row.tobytes() not in self.swept for row in codes]]

    def sweep(self, members: Codes) -> None:
        """Look at all neighbours of members (m, G)."""
        with self.statistics.timed("sweep"):
            self.swept.update(row.tobytes() for row in members)
            before = self.budget.used
            swept, others = self.neighbours.of(members, self.bar, self.budget)
            # of a neighbour one value is held, beside the row of its member
            cells = self.budget.used - before
            self.statistics.cells_naive += cells * len(self.problem.space)
            self.statistics.cells_delta += cells + len(members) * len(self.problem.space)
            new = self.seen.new(swept.codes)
            self.seen.remember(len(new))
            self.keep(swept.take(new))
        self.score(others)

    def score(self, codes: Codes) -> None:
        """Score candidates one by one and keep the fittest."""
        if not len(codes):
            return
        with self.statistics.timed("score"):
            codes = codes[self.problem.distance(codes) < self.bar]
            new = self.seen.new(codes)
            scored = score_within(self.problem, codes[new], self.budget)
            self.seen.remember(len(scored))
            self.statistics.cells_naive += len(scored) * len(self.problem.space)
            self.statistics.cells_delta += len(scored) * len(self.problem.space)
            self.keep(scored)

    def keep(self, found: Population) -> None:
        """Keep the fittest of the members and of what was found."""
        if len(found):
            joined = self.population.joined(found)
            self.population = fittest(self.problem, joined, self.q)
            favourable = self.population.codes[self.population.favourable]
            changed, first = changed_sets(self.problem, favourable)
            apart = _apart(changed[first], self.problem.count)
            if len(apart) == self.problem.count:
                self.bar = float(self.population.score[first[apart[-1]]])
                # what cannot become an answer any more leaves its place to what can
                near = joined.favourable | (self.problem.distance(joined.codes) < self.bar)
                self.population = fittest(self.problem, joined.take(np.flatnonzero(near)), self.q)

    def cross(self) -> Codes:
        """Join the best members of every two changed sets; where both changed a group, the better one's tuple wins."""
        near = self.population.codes[self.problem.distance(self.population.codes) < self.bar]
        changed, first = changed_sets(self.problem, near)
        best, flags = near[first], changed[first]
        one, two = np.triu_indices(len(first), k=1)
        return self.cascade.repair(np.where(flags[one], best[one], best[two]))


def _apart(changed: Bools, most: int) -> list[int]:
    """Return the first changed sets (s, G), at most `most`, that contain none of those before them.

    What contains one may turn into it once needless changes are undone, and would then be the same answer.
    """
    found: list[int] = []
    for position, flags in enumerate(changed):
        if len(found) == most:
            break
        if not (changed[found] <= flags).all(axis=1).any():
            found.append(position)
    return found
