"""GeCo: genetic search over changed groups (Schleich, Geng, Zhang and Suciu, VLDB 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from mlflow_cf.errors import InputError
from mlflow_cf.explainers.explainer import Candidates
from mlflow_cf.features import Floats
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.search.cascade import Cascade
from mlflow_cf.search.population import Population, Seen, changed_sets, fittest, score_within
from mlflow_cf.search.sampling import draw_by_row, draw_distinct, with_draws
from mlflow_cf.search.seeds import codes_of, nearest_favourable_rows
from mlflow_cf.search.sweeps import Sweeps

STABLE = 5  # results that must not change any more, if the request asks for no more than that


@dataclass(frozen=True)
class GeCo:
    """Genetic search that starts from the row itself and changes one group of features more per generation.

    Attributes:
        q: survivors of a generation.
        m_init, m_mut: tuples drawn per group for the row itself, and for every later member.
        min_generations, max_generations: passes of the loop.
        refine: afterwards try all nearer tuples of the best results' changes; False: the paper's algorithm alone.
        sweep: whether all changes of one group of a member are scored at once instead of drawing some; "auto": if the
            model could be opened. Sweeps use no random numbers; `m_init`, `m_mut` and `refine` mean nothing to them.
    """

    q: int = 100
    m_init: int = 20
    m_mut: int = 5
    min_generations: int = 3
    max_generations: int = 100
    refine: bool = True
    sweep: bool | Literal["auto"] = "auto"

    name: ClassVar[str] = "geco"
    polish: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for key in ("q", "m_init", "m_mut", "min_generations", "max_generations"):
            value: object = getattr(self, key)
            if not isinstance(value, int) or value < 1:
                raise InputError(f"explainer.{key}", f"{value!r} is no whole number from 1 on", "")
        if self.sweep not in (True, False, "auto"):
            raise InputError("explainer.sweep", f"{self.sweep!r} is unknown", 'use True, False or "auto"')
        if self.q <= STABLE:
            raise InputError("explainer.q", f"{self.q} survivors are too few", f"use more than {STABLE}")

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Run Algorithm 1 of the paper until the best results are stable (sections 4 and 9 of our notes)."""
        stable = max(STABLE, problem.count)
        if stable >= self.q:
            raise InputError("count", f"{problem.count} results need more than {self.q} survivors", "raise GeCo's q")
        if self.sweep is True and problem.rater is None:
            raise InputError("explainer.sweep", "the model could not be opened", 'use "auto"; describe() says why')
        if self.sweep and problem.rater is not None:
            search = Sweeps(problem, budget, (self.q, stable), (self.min_generations, self.max_generations))
            return Candidates(*search.run())
        problem = with_draws(problem, rng)
        run = _Run(problem, budget, rng, self.q)
        itself = problem.own[None, :]
        population = run.select(None, np.concatenate([run.cascade.repair(itself), run.mutate(itself, self.m_init)]))
        population, generations = self._evolve(run, population, stable)
        for restart in (self._from_background, self._uphill):
            if population.favourable.any() or budget.cut:
                break
            population, more = self._evolve(run, restart(run, population), stable)
            generations += more
        if self.refine:
            population = self._refine(run, population)
        found = population.codes[population.favourable]
        diagnostics: dict[str, Any] = {"generations": generations, "candidates": budget.used}
        return Candidates(problem.rows(found), diagnostics)

    def _from_background(self, run: _Run, population: Population) -> Population:
        """Start again from the far side: near the row the score may be flat, and small changes crowd out all others."""
        return run.select(population, codes_of(run.problem, nearest_favourable_rows(run.problem))[: self.q])

    def _uphill(self, run: _Run, population: Population) -> Population:
        """Climb the grade wherever it leads, until something is favourable."""
        run.uphill = True
        for _ in range(self.max_generations):
            population = run.select(population, run.mutate(population.codes, self.m_mut))
            if population.favourable.any() or run.ended:
                break
        run.uphill = False
        return population

    def _refine(self, run: _Run, population: Population) -> Population:
        """Try every nearer tuple of the best members' changes until none helps: draws may miss the nearest one."""
        best = run.problem.count + 1
        for _ in range(self.max_generations):
            favourable = population.codes[population.favourable]
            if not len(favourable) or run.budget.cut:
                break
            _, first = changed_sets(run.problem, favourable)
            population = run.select(population, run.all_nearer(favourable[first[:best]]))
            if not population.fresh[:best].any():
                break
        return population

    def _evolve(self, run: _Run, population: Population, stable: int) -> tuple[Population, int]:
        """Pass generations until the best `stable` members are favourable and old; return how many passed too."""
        for generation in range(1, self.max_generations + 1):
            if run.ended or not len(population):
                return population, generation - 1
            children = np.concatenate([run.cross(population), run.mutate(population.codes, self.m_mut)])
            population = run.select(population, children)
            settled = population.favourable[:stable].all() and not population.fresh[:stable].any()
            if settled and generation >= self.min_generations:
                return population, generation
        return population, self.max_generations


class _Run:
    """One search: the operators of the paper over codes, whole populations at a time."""

    def __init__(self, problem: Problem, budget: Budget, rng: np.random.Generator, q: int) -> None:
        self.problem, self.budget, self.rng, self.q = problem, budget, rng, q
        self.seen = Seen(problem)
        self.cascade = Cascade(problem, rng)
        self.uphill = False
        self.ended = False

    def select(self, population: Population | None, children: Codes) -> Population:
        """Score the children never seen before, as far as the budget goes, and keep the fittest (selectFittest)."""
        new = self.seen.new(children)
        scored = score_within(self.problem, children[new], self.budget)
        self.seen.remember(len(scored))
        # no new row in a whole pass, or no budget for all of them: nothing more to come
        self.ended = len(scored) < len(new) or not len(new)
        joined = scored if population is None else population.joined(scored)
        return fittest(self.problem, joined, self.q, uphill=self.uphill)

    def mutate(self, codes: Codes, size: int) -> Codes:
        """Give every member a new tuple in each group it has not changed yet (section 4, mutate).

        A group that must change was never unchanged, so it gets new tuples all the way: the repair gave it only one.
        """
        children = [np.empty((0, codes.shape[1]), dtype=np.intp)]
        for number, group in enumerate(self.problem.groups):
            members = codes[codes[:, number] == group.own] if group.own_allowed else codes
            if not len(members) or not group.proposals:
                continue
            drawn = draw_distinct(group.weights, len(members), size, self.rng)
            grown = np.repeat(members, drawn.shape[1], axis=0)
            grown[:, number] = drawn.ravel()
            children.append(grown)
        return self.cascade.repair(np.concatenate(children))

    def cross(self, population: Population) -> Codes:
        """Join the best members of every two changed sets, and pull changes nearer (crossover, selectiveMutate)."""
        changed, first = changed_sets(self.problem, population.codes)
        best, flags = population.codes[first], changed[first]
        one, two = np.triu_indices(len(first), k=1)
        coin = self.rng.random((len(one), best.shape[1])) < 0.5
        from_second = flags[two] & (~flags[one] | coin)
        children = np.where(from_second, best[two], best[one])
        return self.cascade.repair(np.concatenate([children, self._nearer(best)]))

    def _nearer(self, best: Codes) -> Codes:
        """Replace each changed tuple by one that brings its member nearer; one group at a time, then all at once."""
        current = self.problem.distance(best)
        together = best.copy()
        children = []
        for number, group in enumerate(self.problem.groups):
            if self._categorical(group.columns):
                continue
            members = np.flatnonzero(best[:, number] != group.own)
            weights = self._nearer_weights(best[members], number, current[members])
            some = weights.any(axis=1)
            members = members[some]
            if not len(members):
                continue
            drawn = draw_by_row(weights[some], np.arange(len(members)), self.rng)
            child = best[members]
            child[:, number] = drawn
            together[members, number] = drawn
            children.append(child)
        return np.concatenate([*children, together])

    def all_nearer(self, best: Codes) -> Codes:
        """Return every child that brings a member nearer by another tuple in one of its changed groups."""
        current = self.problem.distance(best)
        children = [np.empty((0, best.shape[1]), dtype=np.intp)]
        for number, group in enumerate(self.problem.groups):
            if not self._categorical(group.columns):
                members = np.flatnonzero(best[:, number] != group.own)
                member, code = np.nonzero(self._nearer_weights(best[members], number, current[members]))
                grown = best[members[member]]
                grown[:, number] = code
                children.append(grown)
        return self.cascade.repair(np.concatenate(children))

    def _nearer_weights(self, members: Codes, number: int, current: Floats) -> Floats:
        """Return (r, t) weights of the tuples of one group that make each member's distance strictly smaller."""
        group, metric = self.problem.groups[number], self.problem.metric
        own_part = group.part[members[:, number]]
        if not metric.c:
            nearer = group.part[None, :] < own_part[:, None]
        else:
            tried = np.repeat(members, len(group.tuples), axis=0)
            tried[:, number] = np.tile(np.arange(len(group.tuples)), len(members))
            nearer = self.problem.distance(tried).reshape(len(members), len(group.tuples)) < current[:, None]
        return np.where(nearer, group.weights[None, :], 0.0)

    def _categorical(self, columns: tuple[int, ...]) -> bool:
        return not any(self.problem.space.features[column].has_order for column in columns)
