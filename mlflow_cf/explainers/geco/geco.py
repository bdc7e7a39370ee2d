"""GeCo: genetic search over changed groups (Schleich, Geng, Zhang and Suciu, VLDB 2021).

Requirements that could not be opened are asked last: of what meets all else, the nearest first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from pydantic import Field, StrictBool, StrictInt

from mlflow_cf.engine.engine import Engine
from mlflow_cf.errors import InputError
from mlflow_cf.explainers.baselines.random_search import RandomSearch
from mlflow_cf.explainers.explainer import Candidates, Facts
from mlflow_cf.explainers.geco.construction import grow, improve, start_of
from mlflow_cf.explainers.geco.draws import Drawn, Draws
from mlflow_cf.explainers.geco.sweeps import Sweeps
from mlflow_cf.features import Floats
from mlflow_cf.problem import Budget, Problem
from mlflow_cf.search.cascade import with_draws
from mlflow_cf.search.more_sets import more_sets
from mlflow_cf.search.population import Population, changed_sets
from mlflow_cf.search.snapping import codes_of, nearest_favourable_rows

STABLE = 5  # results that must not change any more, if the request asks for no more than that


@dataclass(frozen=True)
class GeCo:
    """Genetic search that starts from the row itself and changes one group of features more per generation.

    Reference: Schleich, Geng, Zhang and Suciu, GeCo (VLDB 2021), sections 4 to 6.

    Attributes:
        q: survivors of a generation.
        m_init, m_mut: actions drawn per group for the row itself, and for every later member.
        min_generations, max_generations: passes of the loop.
        refine: put answers together by construction where no single change suffices, and try all nearer actions of the
            best results' changes afterwards; False: the paper's algorithm alone.
        sweep: whether all changes of one group of a member are scored at once instead of drawing some; "auto": if the
            model could be opened. Sweeps use no random numbers; `m_init`, `m_mut`, `refine` and `partial` mean nothing
            to them.
        partial: whether an opened model rates candidates by their changes alone, all else fixed to the row (section 6);
            False: by whole rows, with the same answers.
        last_resort: whether random search is tried where nothing was found.
    """

    q: int = 100
    m_init: int = 20
    m_mut: int = 5
    min_generations: int = 3
    max_generations: int = 100
    refine: bool = True
    sweep: bool | Literal["auto"] = "auto"
    partial: bool = True
    last_resort: bool = True

    name: ClassVar[str] = "geco"
    polish: ClassVar[bool] = True
    seeks_nearest: ClassVar[bool] = True  # and nothing else: what proposes them may be another
    by_request: ClassVar[Mapping[str, Any]] = {
        "q": Annotated[StrictInt, Field(gt=STABLE, le=1_000)],
        "m_init": Annotated[StrictInt, Field(ge=1, le=200)],
        "m_mut": Annotated[StrictInt, Field(ge=1, le=50)],
        "min_generations": Annotated[StrictInt, Field(ge=1, le=100)],
        "max_generations": Annotated[StrictInt, Field(ge=1, le=1_000)],
        "refine": StrictBool,
        "sweep": Literal[True, False, "auto"],
        "partial": StrictBool,
    }

    def __post_init__(self) -> None:
        for key in ("q", "m_init", "m_mut", "min_generations", "max_generations"):
            value: object = getattr(self, key)
            if not isinstance(value, int) or value < 1:
                raise InputError(f"explainer.{key}", f"{value!r} is no whole number from 1 on", "")
        if self.sweep not in (True, False, "auto"):
            raise InputError("explainer.sweep", f"{self.sweep!r} is unknown", 'use True, False or "auto"')
        if self.q <= STABLE:
            raise InputError("explainer.q", f"{self.q} survivors are too few", f"use more than {STABLE}")

    def check(self, facts: Facts, count: int) -> None:
        """Refuse more answers than survivors, and sweeps of a model that could not be opened."""
        if count >= self.q:
            raise InputError("count", f"{count} results need more than {self.q} survivors", "raise GeCo's q")
        if self.sweep is True and facts.structure is None:
            raise InputError("explainer.sweep", "the model could not be opened", 'use "auto"; describe() says why')

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Run Algorithm 1 of the paper until the best results are stable (sections 4 and 9 of our notes)."""
        return self.explore(Engine(problem), budget, rng)

    def explore(self, engine: Engine, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Do what `search` does, from what is known of the row."""
        problem = engine.given
        if self.sweep and problem.partial is not None:
            rows = sifted(problem, budget, lambda opened, left: self._by_sweeps(Engine(opened), left)[0].rows)
            if len(rows) >= problem.count or budget.cut:
                return Candidates(rows, complete=len(rows) > 0)
        by_sweeps = self.sweep and problem.scorer is not None
        drawn = None if by_sweeps else rng.bit_generator.state
        none = False
        if by_sweeps:
            found, none = self._by_sweeps(engine, budget)
        else:
            found = self._by_draws(problem, budget, rng)
        if len(found.rows) or none or budget.cut or not self.last_resort:
            return found
        if drawn is not None:  # the same draws as without GeCo, so that it misses nothing that these find
            rng.bit_generator.state = drawn
        rows = RandomSearch().search(problem, budget, rng).rows
        # nothing found: where the model was opened, there may be a proof of that
        return replace(found, rows=rows, certify=found.certify and not len(rows))

    def _by_sweeps(self, engine: Engine, budget: Budget) -> tuple[Candidates, bool]:
        """Return what sweeps find, and whether there is nothing, by bounds on all candidates."""
        stable = max(STABLE, engine.given.count)
        search = Sweeps(engine, budget, self.q, stable, range(self.min_generations, self.max_generations + 1))
        rows, statistics = search.run()
        known = search.settled or not len(rows)
        found = Candidates(rows, statistics, certify=known, complete=True, engine=engine)
        return found, search.settled and not len(rows)

    def _by_draws(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        problem, stable = with_draws(problem, rng), max(STABLE, problem.count)
        run = Draws(problem, budget, rng, self.q, partial=self.partial)
        population = run.select(None, chain(run.itself(), run.mutate(problem.own[None, :], self.m_init)))
        hard = self.refine and not population.favourable.any() and not budget.cut
        if hard:
            population = self._constructed(run, population)
        generations = 0
        if not hard or len(changed_sets(problem, population.codes[population.favourable])[1]) < problem.count:
            population, generations = self._evolve(run, population, stable)
        for restart in (self._from_background, self._uphill):
            if population.favourable.any() or budget.cut:
                break
            population, more = self._evolve(run, restart(run, population), stable)
            generations += more
        if self.refine:
            population = self._refine(run, population)
        found = population.codes[population.favourable]
        if self.refine and problem.count > 1 and len(found) and not budget.cut:
            found = more_sets(problem, budget, found)
        return Candidates(problem.rows(found), run.statistics.summary(generations, budget.used), complete=self.refine)

    def _constructed(self, run: Draws, population: Population) -> Population:
        """Put answers of several changes together at once, where no single change that was drawn suffices."""
        drawn = Drawn(run, population, self.m_init)
        for start in start_of(run.problem, run.cascade):
            grow(drawn, start, *drawn.start(start))
            improve(drawn)
        return drawn.population

    def _from_background(self, run: Draws, population: Population) -> Population:
        """Start again from the far side: near the row the score may be flat, and small changes crowd out all others."""
        nearest = codes_of(run.problem, nearest_favourable_rows(run.problem))[: self.q]
        return run.select(population, [run.deltas.of(nearest)])

    def _uphill(self, run: Draws, population: Population) -> Population:
        """Climb the grade wherever it leads, until something is favourable."""
        run.uphill = True
        for _ in range(self.max_generations):
            population = run.select(population, run.mutate(population.codes, self.m_mut))
            if population.favourable.any() or run.ended:
                break
        run.uphill = False
        return population

    def _refine(self, run: Draws, population: Population) -> Population:
        """Try every nearer action of the best members' changes until none helps: draws may miss the nearest one."""
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

    def _evolve(self, run: Draws, population: Population, stable: int) -> tuple[Population, int]:
        """Pass generations until the best `stable` members are favourable and old; return how many passed too."""
        for generation in range(1, self.max_generations + 1):
            if run.ended or not len(population):
                return population, generation - 1
            children = chain(run.cross(population), run.mutate(population.codes, self.m_mut))
            population = run.select(population, children)
            settled = population.favourable[:stable].all() and not population.fresh[:stable].any()
            if settled and generation >= self.min_generations:
                return population, generation
        return population, self.max_generations


SETS: Final = 12  # changed sets that are looked for where the nearest candidates are refused
SHARE: Final = 4  # of the budget, so much less is spent on what could be opened, each time
AT_FIRST: Final = 2  # candidates that are asked about together; then twice as many
MOST_ASKED: Final = 64  # for so many answers in all, or an eighth for each
Rows = Callable[[Problem, Budget], Floats]


def sifted(problem: Problem, budget: Budget, search: Rows) -> Floats:
    """Return rows (m, d) that meet everything, nearest first; perhaps fewer than are wanted.

    Args:
        problem: of which something could not be opened.
        budget: of all; what is asked about a candidate counts once more.
        search: returns rows for a problem that is opened.
    """
    if problem.partial is None:
        return problem.background[:0]
    known = replace(problem, scorer=problem.partial, rate=problem.partial.rate, partial=None)
    kept = problem.background[:0]
    for count in (problem.count, max(SETS, 2 * problem.count)):
        part = budget.part(budget.left // SHARE)
        rows = search(replace(known, count=count), part)
        budget.take(part.used)
        kept = _accepted(problem, rows[problem.check(rows)], budget)
        if len(kept) >= problem.count:
            break
    return kept


def _accepted(problem: Problem, rows: Floats, budget: Budget) -> Floats:
    """Return those of rows (m, d) that everything accepts, the best of every changed set before the others."""
    distance = problem.bound_distance.distance(problem.columns, rows, problem.x0)
    rows = rows[np.argsort(distance, kind="stable")]
    changed = problem.changed(rows)
    first = np.zeros(len(rows), dtype=np.bool_)
    if len(rows):
        first[np.unique(changed, axis=0, return_index=True)[1]] = True
    if problem.count > 1:
        rows = rows[np.argsort(~first, kind="stable")]
    kept, asked, size = [problem.background[:0]], 0, max(AT_FIRST, problem.count)
    most = max(MOST_ASKED, MOST_ASKED // 8 * problem.count)
    while asked < min(len(rows), most) and sum(map(len, kept)) < problem.count and not budget.spent:
        part = rows[asked : asked + min(size, most - asked, budget.take(min(size, len(rows) - asked)))]
        if not len(part):
            break
        kept.append(part[problem.rate(part).favourable])
        asked, size = asked + len(part), 2 * size
    return np.concatenate(kept)
