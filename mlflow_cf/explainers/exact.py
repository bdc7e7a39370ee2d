"""Exact answers: the nearest counterfactuals there are, proved, or a proof that there are none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from mlflow_cf.explainers.explainer import Candidates, Facts
from mlflow_cf.explainers.geco.geco import GeCo
from mlflow_cf.problem import Budget, Problem


@dataclass(frozen=True)
class Exact:
    """What GeCo finds, with a certificate: proved nearest, or replaced by what is nearer.

    It does for all opened models what MACE (Karimi et al. 2020) does with a solver, and for linear ones what
    actionable recourse (Ustun et al. 2019) does. Without a structure nothing can be proved, and GeCo's answer stays.
    """

    name: ClassVar[str] = "exact"
    polish: ClassVar[bool] = True
    seeks_nearest: ClassVar[bool] = True  # and nothing else: what proposes them may be another

    def check(self, facts: Facts, count: int) -> None:
        """Refuse what GeCo refuses."""
        GeCo().check(facts, count)

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Search as GeCo does; the pipeline certifies what was found."""
        return replace(GeCo().search(problem, budget, rng), certify=True)
