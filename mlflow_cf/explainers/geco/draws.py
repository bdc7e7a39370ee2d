"""Genetic search by draws: the operators of GeCo's paper over candidates written by their changes.

Also constructions for models that are not opened: what single changes bring is drawn, and scored in large batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.explainers.geco.construction import KnapsackItems
from mlflow_cf.explainers.geco.deltas import Deltas, Partial, Places
from mlflow_cf.explainers.geco.statistics import Statistics
from mlflow_cf.features import Floats
from mlflow_cf.goal import Rating
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.search.cascade import Cascade, draw_by_row, draw_distinct
from mlflow_cf.search.population import (
    Population,
    Seen,
    batches,
    changed_sets,
    cutoff_of,
    fittest,
    log_odds,
    none_scored,
    shortlist,
)

MOST_CODES = 2**20  # of the candidates that are held at a time as whole rows: 8 MB


class Draws:
    """One search; children come in blocks, so that never all of a generation are held at a time.

    Attributes:
        uphill: whether selection looks at the grade alone while nothing is favourable.
        ended: whether the last selection had nothing new, or no budget for all of it.
    """

    def __init__(
        self, problem: Problem, budget: Budget, rng: np.random.Generator, q: int, *, partial: bool = True
    ) -> None:
        self.problem, self.budget, self.rng, self.q = problem, budget, rng, q
        self.seen = Seen(problem)
        self.deltas = Deltas(problem)
        scorer = problem.scorer if partial else None
        self.rate = self._by_rows if scorer is None else Partial(problem, scorer, self.deltas).rate
        self.cascade = Cascade(problem, rng)
        self.statistics = Statistics(("mutate", "cross", "select"))
        self.block = max(1, MOST_CODES // len(problem.groups))
        self.uphill = False
        self.ended = False

    def select(self, population: Population | None, children: Iterable[Places]) -> Population:
        """Score the children never seen before, as far as the budget goes, and keep the fittest (selectFittest)."""
        kept = none_scored(self.problem) if population is None else population.aged()
        parts, any_new, all_scored = [kept], False, True
        for block in children:
            with self.statistics.timed("select"):
                new = block[self.seen.new_places(block)]
                done = 0
                for part in batches(len(new), self.budget):
                    parts.append(self._scored(new[part]))
                    done = part.stop
                self.seen.remember(done)
            any_new |= done > 0
            all_scored &= done == len(new)
            if not all_scored:
                break
        # no new row in a whole pass, or no budget for all of them: nothing more to come
        self.ended = not (any_new and all_scored)
        with self.statistics.timed("select"):
            return fittest(self.problem, Population.together(parts), self.q, uphill=self.uphill)

    def _scored(self, places: Places) -> Population:
        """Return those of scored candidates (m, k) that may be among the fittest."""
        rating, score = self._rated(places)
        first = np.where(rating.favourable | (not self.uphill), score, -rating.grade)
        return self._population(places, rating, score, shortlist(rating.favourable, first, self.q))

    def scored(self, places: Places) -> Population:
        """Return all scored candidates (m, k)."""
        rating, score = self._rated(places)
        return self._population(places, rating, score, np.arange(len(places)))

    def _rated(self, places: Places) -> tuple[Rating, Floats]:
        deltas, statistics = self.deltas, self.statistics
        statistics.cells_naive += len(places) * len(self.problem.space)
        statistics.cells_delta += deltas.stored(places)
        rating = self.rate(places)
        return rating, deltas.distance(places) + np.where(rating.favourable, 0.0, 2.0 - rating.grade)

    def _population(self, places: Places, rating: Rating, score: Floats, some: Codes) -> Population:
        new = np.ones(len(some), dtype=np.bool_)
        return Population(
            self.deltas.codes(places[some]), rating.favourable[some], score[some], rating.grade[some], new
        )

    def _by_rows(self, places: Places) -> Rating:
        return self.problem.rate_codes(self.deltas.codes(places))

    def itself(self) -> Iterator[Places]:
        """Return the query row repaired, if it has to be."""
        yield self._repaired(np.full((1, 1), self.deltas.none))

    def mutate(self, codes: Codes, size: int) -> Iterator[Places]:
        """Give every member a new action in each group it has not changed yet (section 4, mutate).

        A group that must change was never unchanged, so it gets new actions all the way: the repair gave it only one.
        """
        return self.statistics.made("mutate", self._blocks(self._mutated(codes, size)))

    def _mutated(self, codes: Codes, size: int) -> Iterator[Places]:
        places = self.deltas.of(codes)
        for number, group in enumerate(self.problem.groups):
            members = places[codes[:, number] == group.own] if group.own_allowed else places
            if not len(members) or not group.proposals:
                continue
            drawn = self.deltas.start[number] + draw_distinct(group.weights, len(members), size, self.rng)
            yield self.deltas.with_place(np.repeat(members, drawn.shape[1], axis=0), drawn.ravel())

    def codes_of(self, members: Codes, size: int, *, outermost: bool = False) -> Codes:
        """Return candidates (m, G) with a new action in one group that a member has not changed; see `mutate`."""
        codes = [np.empty((0, len(self.problem.groups)), dtype=np.intp)]
        codes += [self.deltas.codes(block) for block in self.mutate(members, size)]
        if outermost:
            codes += [self.cascade.repair(self._outermost(members))]
        return np.concatenate(codes)

    def _outermost(self, members: Codes) -> Codes:
        """Give every member the first and the last action of each group: no draw reaches farther."""
        children = []
        for number, group in enumerate(self.problem.groups):
            known = np.flatnonzero(~np.isnan(group.actions).any(axis=1))
            for code in known[[0, -1]] if group.proposals and len(known) else ():
                children.append(members.copy())
                children[-1][:, number] = code
        return np.concatenate([members[:0], *children])

    def cross(self, population: Population) -> Iterator[Places]:
        """Join the best members of every two changed sets, and pull changes nearer (crossover, selectiveMutate)."""
        return self.statistics.made("cross", self._blocks(self._crossed(population)))

    def _crossed(self, population: Population) -> Iterator[Places]:
        _, first = changed_sets(self.problem, population.codes)
        best = population.codes[first]
        places = self.deltas.of(best)
        one, two = np.triu_indices(len(first), k=1)
        coin = self.rng.random((len(one), 2 * places.shape[1] - 1)) < 0.5
        yield self.deltas.joined(places[one], places[two], coin)
        yield from self._nearer(best)

    def _nearer(self, best: Codes) -> Iterator[Places]:
        """Replace each changed action by one that brings its member nearer; one group at a time, then all at once."""
        current = self.problem.distance(best)
        places = self.deltas.of(best)
        together = places
        for number in self._ordered(best):
            members = np.flatnonzero(best[:, number] != self.problem.groups[number].own)
            weights = self._nearer_weights(best[members], number, current[members])
            some = weights.any(axis=1)
            members = members[some]
            if not len(members):
                continue
            drawn = self.deltas.start[number] + draw_by_row(weights[some], np.arange(len(members)), self.rng)
            yield self.deltas.with_place(places[members], drawn)
            together = together.copy()
            grown = self.deltas.with_place(together[members], drawn)
            together[members] = grown[:, : together.shape[1]]
        yield together

    def all_nearer(self, best: Codes) -> Iterator[Places]:
        """Return every child that brings a member nearer by another action in one of its changed groups."""
        return self.statistics.made("mutate", self._blocks(self._all_nearer(best)))

    def _all_nearer(self, best: Codes) -> Iterator[Places]:
        current = self.problem.distance(best)
        places = self.deltas.of(best)
        for number in self._ordered(best):
            members = np.flatnonzero(best[:, number] != self.problem.groups[number].own)
            member, code = np.nonzero(self._nearer_weights(best[members], number, current[members]))
            yield self.deltas.with_place(places[members[member]], self.deltas.start[number] + code)

    def _nearer_weights(self, members: Codes, number: int, current: Floats) -> Floats:
        """Return (r, t) weights of the actions of one group that make each member's distance strictly smaller."""
        group = self.problem.groups[number]
        own_part = group.cost[members[:, number]]
        if not self.problem.bound_distance.c:
            nearer = group.cost[None, :] < own_part[:, None]
        else:
            tried = np.repeat(members, len(group.actions), axis=0)
            tried[:, number] = np.tile(np.arange(len(group.actions)), len(members))
            nearer = self.problem.distance(tried).reshape(len(members), len(group.actions)) < current[:, None]
        return np.where(nearer, group.weights[None, :], 0.0)

    def _ordered(self, codes: Codes) -> list[int]:
        """Return the groups that some candidate changes and that hold an ordered feature."""
        changed = np.flatnonzero((codes != self.problem.own).any(axis=0)).tolist()
        features = self.problem.space.features
        return [n for n in changed if any(features[column].has_order for column in self.problem.columns[n])]

    def _blocks(self, parts: Iterable[Places]) -> Iterator[Places]:
        """Join candidates to blocks and repair them."""
        waiting: list[Places] = []
        for part in parts:
            waiting.append(part)
            if sum(map(len, waiting)) >= self.block:
                yield self._repaired(self.deltas.stacked(waiting))
                waiting = []
        if waiting:
            yield self._repaired(self.deltas.stacked(waiting))

    def _repaired(self, places: Places) -> Places:
        """Return candidates (m, k) repaired; without those that cannot be, or that equal the row."""
        if self.cascade.steps or self.cascade.joint_rules or not self.problem.plain_limits:
            return self.deltas.of(self.cascade.repair(self.deltas.codes(places)))
        changes = self.deltas.changes(places)
        return places[(changes > 0) & (changes <= self.problem.most_changes)]


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
