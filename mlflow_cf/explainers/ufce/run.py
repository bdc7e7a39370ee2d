"""One search of UFCE: variant after variant under one budget, then the plausible ones of what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from mlflow_cf.explainers.explainer import Candidates
from mlflow_cf.explainers.ufce.costs import costs
from mlflow_cf.explainers.ufce.known import Known, refitted
from mlflow_cf.explainers.ufce.lines import (
    Line,
    Lines,
    Pair,
    doubles,
    evenly,
    nested,
    nested_twice,
    pairs_of,
    singles,
    threes,
    triples,
)
from mlflow_cf.explainers.ufce.neighbourhood import Neighbourhood
from mlflow_cf.explainers.ufce.predictors import Predictors
from mlflow_cf.explainers.ufce.searching import Found, Plausible, Trial, scan, walk
from mlflow_cf.explainers.ufce.subspaces import Subspaces, with_steps
from mlflow_cf.problem import Budget, Codes, Problem

POINTS: Final = {1: 2_000, 2: 64, 3: 24}  # of a response curve looked at first, by the number of changes
NESTED: Final = 12  # values of a direction beside which another group is searched
FEW: Final = 3  # values of a direction of two groups beside which a third is searched
WANTED: Final = 5  # answers handed over, as in the paper's experiments
AT_ONCE: Final = 8  # candidates whose plausibility is asked together
MOST_ASKED: Final = 64  # candidates whose plausibility is asked, each first of its line; as many again of the others


@dataclass(frozen=True)
class Aim:
    """What is searched; see `UFCE`.

    Attributes:
        variants: numbers of changes, in the order in which they are searched.
        search, plausibility, radius, pairs, steps, nested_triples: as there.
        paper: whether the paper's costs rank.
    """

    variants: tuple[int, ...]
    search: Literal["auto", "walk", "scan"]
    plausibility: Literal["background", "refit", "off"]
    paper: bool
    radius: float | None
    pairs: int
    steps: Mapping[str, float]
    nested_triples: bool


class Run:
    """One search for one row."""

    def __init__(self, aim: Aim, known: Known, problem: Problem, budget: Budget) -> None:
        """Find what the groups of a problem may become; nothing is scored yet."""
        self.aim, self.known, self.budget = aim, known, budget
        self.problem = problem = with_steps(problem, aim.steps)
        embedding = known.embedding_over(problem.space)
        points = known.vectors, embedding.vectors(problem.x0[None])[0]
        self.near = Neighbourhood.of(problem, known.labels, points, aim.radius)
        self.subspaces = Subspaces.of(problem, self.near)
        self.predictors = Predictors(problem, embedding, known.weights, known.intercepts, self.subspaces.ends)
        self.scans = aim.search == "scan" or (aim.search == "auto" and problem.rater is not None)

    def candidates(self) -> Candidates:
        """Search all variants; return plausible candidates, best first."""
        found, tried = [], {}
        for changes in self.aim.variants:
            used, parts = self.budget.used, self._searched(changes)
            tried[str(changes)] = {
                "accepted": sum(len(part.line) for part in parts),
                "evaluations": self.budget.used - used,
            }
            found += parts
        codes, kept, asked = self._chosen(found)
        told = {"tried": tried, "neighbours": len(self.near.rows), "plausibility_asked": asked}
        rows = self.problem.rows(codes)
        return Candidates(rows, told, costs=kept if self.aim.paper else None)

    def _searched(self, changes: int) -> list[Found]:
        """Search so many changes; return what is accepted, part by part."""
        trial = Trial(self.problem, self.budget, changes, None if self.scans else self._plausible)
        if changes == 1:
            return [self._along(trial, singles(self.subspaces), POINTS[1])]
        if changes == 3:
            return self._triples(trial)
        lines = doubles(self.subspaces, self._pairs)
        found = self._along(trial, lines, POINTS[2])
        met = {lines[one].key for one in np.unique(found.line).tolist()}
        left = [
            line
            for pair in self._pairs
            for ordered in (pair, pair[::-1])
            if ordered not in met
            for line in nested(self.subspaces, ordered, NESTED)
        ]
        return [found, self._along(trial, left, NESTED)]

    def _triples(self, trial: Trial) -> list[Found]:
        """Search triples; where none is accepted with what is predicted, beside a few values of two groups."""
        found = self._along(trial, triples(self.subspaces, self._pairs), POINTS[3])
        if len(found.line) or not self.aim.nested_triples:
            return [found]
        sets = threes(self.subspaces, self._pairs)
        left = [line for three in sets for line in nested_twice(self.subspaces, three, FEW)]
        return [found, self._along(trial, left, NESTED)]

    def _along(self, trial: Trial, lines: list[Line], points: int) -> Found:
        tried = Lines(self.problem, self.predictors, lines)
        return scan(trial, tried, points) if self.scans else walk(trial, tried)

    @cached_property
    def _pairs(self) -> list[Pair]:
        return pairs_of(self.problem, self.subspaces.groups, self.known.mutual, self.aim.pairs)

    @cached_property
    def _plausible(self) -> Plausible | None:
        problem = self.problem
        if self.aim.plausibility == "off":
            return None
        if self.aim.plausibility == "refit":
            return refitted(problem.space, problem.background, problem.x0).accept
        return self.known.inliers_over(problem.space).accept

    def _chosen(self, parts: list[Found]) -> tuple[Codes, np.ndarray[Any, np.dtype[np.float64]], int]:
        """Return plausible candidates (m, G), best first, with what each costs, and how many were looked at.

        Those that are first in their line are looked at before all others.
        """
        groups = len(self.problem.groups)
        codes = Found.together(parts, groups).codes
        lead = np.concatenate([np.empty(0, dtype=np.bool_), *(_leaders(part) for part in parts)])
        order = np.lexsort((~lead, *codes.T))  # equal ones stand together, the first of its line before the others
        codes, lead = codes[order], lead[order]
        new = np.append(True, (np.diff(codes, axis=0) != 0).any(axis=1))[: len(codes)]
        codes, lead = codes[new], lead[new]
        cost = costs(self.problem, codes, paper=self.aim.paper)
        best = np.lexsort(((codes != self.problem.own).sum(axis=1), cost))
        if self._plausible is None or not self.scans:
            return codes[best], cost[best], 0
        first, others = best[lead[best]], best[~lead[best]]
        kept: list[int] = []
        asked = 0
        for some in (first, others[evenly(len(others), MOST_ASKED)]):
            asked += self._ask(codes, some[:MOST_ASKED], kept)
        chosen = np.array(sorted(kept, key=lambda at: (cost[at], at)), dtype=np.intp)
        return codes[chosen], cost[chosen], asked

    def _ask(self, codes: Codes, some: Codes, kept: list[int]) -> int:
        """Add those of some candidates that are plausible, until there are enough; return how many were looked at."""
        wanted, asked = max(WANTED, 3 * self.problem.count), 0
        while self._plausible is not None and asked < len(some) and len(kept) < wanted and not self.budget.late:
            part = some[asked : asked + AT_ONCE]
            kept += part[self._plausible(self.problem.rows(codes[part]))].tolist()
            asked += len(part)
        return asked


def _leaders(found: Found) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return (m,) which accepted candidates are the nearest of their lines."""
    order = np.lexsort((found.position, found.line))
    lead = np.zeros(len(order), dtype=np.bool_)
    lead[order[np.unique(found.line[order], return_index=True)[1]]] = True
    return lead
