"""How good rows are to a swarm: the order of the problem, or the sum that the paper prints (MD-PSO section 4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.policy import Distance
from mlflow_cf.problem import Problem
from mlflow_cf.problem.distance import BoundDistance

Objective = Literal["distance", "paper"]
EVEN = 0.5  # the probability from which a label is wanted where no other is named


@dataclass(frozen=True, eq=False)
class Fitness:
    """The less the better: `first`, then `second`, (m,) each; `valid`: which rows meet target and constraints."""

    first: Floats
    second: Floats
    valid: Bools

    def __len__(self) -> int:
        return len(self.first)

    def take(self, rows: NDArray[np.intp] | slice | Bools) -> Fitness:
        """Return that of some rows."""
        return Fitness(self.first[rows], self.second[rows], self.valid[rows])

    def at(self, row: int) -> Fitness:
        """Return that of one row."""
        return self.take(slice(row, row + 1))

    def better(self, other: Fitness) -> Bools:
        """Return (m,) which rows are better than those of another swarm of as many, or of one."""
        better: Bools = (self.first < other.first) | ((self.first == other.first) & (self.second < other.second))
        return better

    @property
    def best(self) -> int:
        """The best row, the first of equals."""
        least = np.flatnonzero(self.first == self.first.min())
        return int(least[self.second[least].argmin()])

    @property
    def order(self) -> NDArray[np.intp]:
        """(m,) the rows, best first."""
        return np.lexsort((self.second, self.first))


def by_distance(favourable: Bools, grade: Floats, distance: Floats) -> Fitness:
    """Return fitness by validity, then what the grade lacks, then the problem's own distance."""
    first: Floats = np.where(favourable, -1.0, np.subtract(1.0, np.fmax(grade, 0.0), dtype=np.float64))
    return Fitness(first, distance, favourable)


def refused(broken: NDArray[np.intp], distance: Floats) -> Fitness:
    """Return the fitness of rows that break so many rules, and are not sent to the model."""
    return Fitness(np.asarray(1.0 + broken, dtype=np.float64), distance, np.zeros(len(broken), dtype=np.bool_))


@dataclass(frozen=True, eq=False)
class PaperSum:
    """The paper's objective: a weighted sum of what the score lacks, Gower's distance, and the number of changes.

    It has no weights in the paper, where a row of no changes beats any answer: each change costs 1, and the score never
    lacks more than a half.

    Attributes:
        problem: the row to explain.
        weights: of the three terms.
    """

    problem: Problem
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
    gower: BoundDistance = field(init=False)
    changed: BoundDistance = field(init=False)

    def __post_init__(self) -> None:
        for name, parts in (("gower", (0.0, 1.0, 0.0)), ("changed", (1.0, 0.0, 0.0))):
            object.__setattr__(self, name, BoundDistance.bind(Distance(*parts), self.problem.space))

    def fitness(self, favourable: Bools, gap: Floats, Z: Floats) -> Fitness:
        """Return the fitness of rows (m, d) whose scores lack so much."""
        columns, x0 = self.problem.columns, self.problem.x0
        l2 = self.gower.distance(columns, Z, x0)
        l3 = self.changed.distance(columns, Z, x0) * len(x0)
        total = self.weights[0] * gap + self.weights[1] * l2 + self.weights[2] * l3
        return Fitness(total, np.zeros(len(Z)), favourable)


def gaps(problem: Problem, favourable: Bools, grade: Floats) -> Floats:
    """Return l1 (m,): 0 if favourable, else how far the score is from what is wanted.

    Of two classes it is what the probability of the wanted one lacks, of several half of its distance to the best other
    one, of a regression the distance to the interval as a share of the spread of predictions, of bare labels 1.
    """
    grade, model = np.nan_to_num(grade, nan=0.0), None if problem.target is None else problem.target.model
    least = EVEN
    if problem.target is not None and model is not None and len(model.classes) == 2:
        least = max(EVEN, problem.target.target.min_probability or 0.0)
    gap = least - grade
    if model is not None and model.regression:
        gap = 1.0 - 2.0 * grade
    elif model is not None and model.score_kind == "none":
        gap = np.ones(len(grade))
    return np.where(favourable, 0.0, np.maximum(gap, 0.0))
