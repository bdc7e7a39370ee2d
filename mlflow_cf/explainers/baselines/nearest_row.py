"""The nearest favourable row of the background: the What-If Tool's counterfactual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mlflow_cf.explainers.explainer import Candidates
from mlflow_cf.problem import Budget, Problem
from mlflow_cf.search.snapping import nearest_favourable_rows

MOST = 200  # rows handed over; far more than any request may ask for


@dataclass(frozen=True)
class NearestRow:
    """Background rows that are predicted favourable and meet every constraint, nearest first; ties: first row.

    Scores nothing: the background's predictions are known. Reference: Wexler et al., The What-If Tool (2020);
    constraints as in GeCo's comparison (Schleich et al. 2021, section 6).
    """

    name: ClassVar[str] = "nearest_row"
    polish: ClassVar[bool] = False
    returns_rows: ClassVar[bool] = True

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Return the nearest admissible favourable background rows."""
        del budget, rng  # looks up, scores and draws nothing
        rows = nearest_favourable_rows(problem)
        return Candidates(rows[:MOST], {"rows": len(rows)})
