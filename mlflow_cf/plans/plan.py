"""A plan: ordered steps that lead from a row to its counterfactual."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlflow_cf.features import Floats


@dataclass(frozen=True, eq=False)
class PlannedStep:
    """One step of a plan: an action, what it costs, and the row it leads to.

    Attributes:
        action: its name.
        effort: what it costs before any discount, 0 or more.
        discount: in [0, 1], the share of the effort that is left after what earlier steps have made easier.
        row: (d,) codes of the row after the step.
    """

    action: str
    effort: float
    discount: float
    row: Floats

    def __post_init__(self) -> None:
        if not (0 <= self.effort < np.inf and 0 <= self.discount <= 1):
            raise ValueError(f"effort {self.effort} and discount {self.discount} of a step")


Plan = tuple[PlannedStep, ...]
