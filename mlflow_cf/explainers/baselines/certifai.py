"""CERTIFAI's genetic search: favourable rows of the background are crossed and mutated towards the row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.explainers.explainer import Candidates, Span, asked, check_options
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.search.cascade import Cascade, with_draws
from mlflow_cf.search.population import Population, Seen, fittest, none_scored, score_within
from mlflow_cf.search.snapping import codes_of, nearest_favourable_rows

OPTIONS: Final = {
    "population": Span(2, 1_000, whole=True),
    "generations": Span(0, 10_000, whole=True),
    "patience": Span(1, 10_000, whole=True, optional=True),
}


@dataclass(frozen=True)
class CERTIFAI:
    """Starts from the favourable rows of the background that meet every constraint, and so fails only without any.

    A generation keeps the nearest candidates that are favourable and meet the constraints. Half of them, paired at
    random, have copies that swap random groups; half have copies with random groups drawn anew by frequency. Copies are
    repaired by the rules over several groups before they are scored, each once.
    Reference: Sharma, Henderson and Ghosh, CERTIFAI (2020), with the settings that Schleich et al. (2021) compare with.

    Attributes:
        population: how many candidates a generation keeps.
        generations: how many there are; the released software has 100.
        patience: stop after so many generations without a nearer candidate; None: never.
    """

    population: int = 100
    generations: int = 300
    patience: int | None = None

    name: ClassVar[str] = "certifai"
    polish: ClassVar[bool] = False
    returns_rows: ClassVar[bool] = True  # what nothing nearer was found for stays in the population
    by_request: ClassVar[Mapping[str, Any]] = asked(OPTIONS)

    def __post_init__(self) -> None:
        check_options(self, OPTIONS)

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Breed generation after generation; return the last one, nearest first."""
        problem = with_draws(problem, rng)
        cascade, seen = Cascade(problem, rng), Seen(problem)
        kept = self._first(problem, seen)
        started = len(kept)
        generation = stale = 0
        while len(kept) and generation < self.generations and not budget.spent and stale != self.patience:
            copies = cascade.repair(np.concatenate([_crossed(problem, kept, rng), _mutated(problem, kept, rng)]))
            new = seen.new(copies)
            scored = score_within(problem, copies[new], budget)
            seen.remember(len(scored))
            nearest = kept.score[0]
            good = scored.take(np.flatnonzero(scored.favourable))
            kept = fittest(problem, kept.joined(good), self.population)
            generation += 1
            stale = stale + 1 if kept.score[0] >= nearest else 0
        return Candidates(problem.rows(kept.codes), {"generations": generation, "started_from": started})

    def _first(self, problem: Problem, seen: Seen) -> Population:
        """Return the nearest admissible favourable rows of the background; their predictions are known."""
        codes = codes_of(problem, nearest_favourable_rows(problem))
        if not len(codes):
            return none_scored(problem)
        seen.remember(len(seen.new(codes)))
        yes = np.ones(len(codes), dtype=np.bool_)
        first = Population(codes, yes, problem.distance(codes), yes.astype(np.float64), yes)
        return fittest(problem, first, self.population)


def _crossed(problem: Problem, kept: Population, rng: np.random.Generator) -> Codes:
    """Return copies (2 p, G) of p random pairs that swap random groups; half of the members are in one."""
    pairs = max(len(kept) // 4, min(len(kept) // 2, 1))
    one, other = kept.codes[rng.permutation(len(kept))[: 2 * pairs]].reshape(2, pairs, len(problem.groups))
    swapped = _some(problem, pairs, rng)
    return np.concatenate([np.where(swapped, other, one), np.where(swapped, one, other)])


def _mutated(problem: Problem, kept: Population, rng: np.random.Generator) -> Codes:
    """Return copies (m, G) of half of the members, random groups of which are drawn anew by frequency."""
    copies = kept.codes[rng.permutation(len(kept))[: (len(kept) + 1) // 2]]
    chosen = _some(problem, len(copies), rng)
    drawn = rng.random(copies.shape)
    for number in np.flatnonzero(chosen.any(axis=0)).tolist():
        shares = problem.groups[number].weights.cumsum()
        codes = (shares / shares[-1]).searchsorted(drawn[:, number], side="right")
        copies[:, number] = np.where(chosen[:, number], codes, copies[:, number])
    return copies


def _some(problem: Problem, rows: int, rng: np.random.Generator) -> Bools:
    """Return (rows, G) random groups that may change, of each row one up to all of them."""
    mutable = np.flatnonzero([group.weights.any() for group in problem.groups])
    some = np.zeros((rows, len(problem.groups)), dtype=np.bool_)
    if len(mutable):
        rank = rng.random((rows, len(mutable))).argsort(axis=1).argsort(axis=1)
        some[:, mutable] = rank < rng.integers(1, len(mutable), size=(rows, 1), endpoint=True)
    return some
