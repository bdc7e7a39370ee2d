"""An explainer that another package brings: it tries every single change."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mlflow_cf.explainers import Candidates
from mlflow_cf.problem import Budget, Problem
from mlflow_cf.search.cascade import Cascade


@dataclass(frozen=True)
class SingleChanges:
    """All rows that differ in one group of features (and in what rules make of it), the nearest favourable first."""

    name: ClassVar[str] = "single_changes"
    polish: ClassVar[bool] = True

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        tried = []
        for number, group in enumerate(problem.groups):
            codes = np.tile(problem.own, (len(group.actions), 1))
            codes[:, number] = np.arange(len(group.actions))
            tried.append(codes)
        codes = Cascade(problem, rng).repair(np.concatenate(tried))
        nearest = np.argsort(problem.distance(codes), kind="stable")
        rows = problem.rows(codes[nearest][: budget.take(len(codes))])
        return Candidates(rows[problem.rate(rows).favourable] if len(rows) else rows)
