"""Random search: the row with more and more groups redrawn at random (the random method of DiCE)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, StrictBool, StrictInt

from mlflow_cf.errors import InputError
from mlflow_cf.explainers.explainer import Candidates
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.search.cascade import Cascade, with_draws
from mlflow_cf.search.population import Seen, score_within

LEAST_ROUNDS = 2  # so that answers of one and of two changes compete


@dataclass(frozen=True)
class RandomSearch:
    """Copies of the row; every round redraws one more randomly chosen group of each copy and keeps earlier changes.

    Stops after two rounds or more, once enough are favourable, and at the latest after as many rounds as there are
    groups that may change. A round may redraw a group again; values are drawn uniformly, not by their frequency.
    Reference: Mothilal, Sharma and Tan, DiCE (2020), and the loop of its software. That takes k favourable copies at
    random and pulls back only numbers; here the nearest come first, and `polish` puts back any group.

    Attributes:
        copies: rows per round.
        polish: whether needless changes are undone; without, this is the floor every method is compared with.
    """

    copies: int = 1000
    polish: bool = True

    name: ClassVar[str] = "random_search"
    by_request: ClassVar[Mapping[str, Any]] = {
        "copies": Annotated[StrictInt, Field(ge=1, le=10_000)],
        "polish": StrictBool,
    }

    def __post_init__(self) -> None:
        copies: object = self.copies
        if not isinstance(copies, int) or copies < 1:
            raise InputError("explainer.copies", f"{copies!r} is no whole number from 1 on", "")

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Redraw, repair and rate copies round by round; return the favourable ones."""
        problem = _evenly(with_draws(problem, rng))
        cascade, seen = Cascade(problem, rng), Seen(problem)
        mutable = [number for number, group in enumerate(problem.groups) if group.proposals]
        # copies stay as drawn: what breaks a rule after this round may be mended by a change of the next
        copies = np.tile(problem.own, (self.copies, 1))
        found = np.empty((0, len(problem.groups)), dtype=np.intp)
        rounds = 0
        while rounds < len(mutable):
            rounds += 1
            _redraw(problem, copies, mutable, rng)
            candidates = cascade.repair(copies)
            new = seen.new(candidates)
            rated = score_within(problem, candidates[new], budget)
            seen.remember(len(rated))
            found = np.concatenate([found, rated.codes[rated.favourable]])
            if len(rated) < len(new) or (rounds >= LEAST_ROUNDS and len(found) >= problem.count):
                break
        nearest = np.argsort(problem.distance(found), kind="stable")
        return Candidates(problem.rows(found[nearest]), {"rounds": rounds, "favourable": len(found)})


def _redraw(problem: Problem, copies: Codes, mutable: list[int], rng: np.random.Generator) -> None:
    """Give one random group of every copy (m, G) a random tuple that is not the row's own."""
    chosen = rng.choice(mutable, size=len(copies))
    drawn = rng.random(len(copies))
    for number in mutable:
        rows = np.flatnonzero(chosen == number)
        group = problem.groups[number]
        codes = (drawn[rows] * group.proposals).astype(np.intp)
        copies[rows, number] = codes + (codes >= group.own)


def _evenly(problem: Problem) -> Problem:
    """Return the problem with equal weights, so that repairs draw uniformly too."""
    groups = []
    for group in problem.groups:
        weights = np.ones(len(group.actions))
        weights[group.own] = 0.0
        groups.append(group.taking(group.bound._replace(weights=weights)))
    return replace(problem, groups=tuple(groups))
