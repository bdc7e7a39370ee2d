"""A plan: ordered steps that lead from a row to its counterfactual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mlflow_cf.features import FeatureSpace, Floats, Level
from mlflow_cf.words.result import Step, changes_between


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


def plan_steps(space: FeatureSpace, old_row: Mapping[str, Level | None], plan: Plan) -> tuple[Step, ...]:
    """Return a plan that starts at a row as the steps of a reply."""
    rows = [old_row, *(space.values(step.row) for step in plan)]
    return tuple(
        Step(number, step.action, step.effort, step.discount, row, changes=changes_between(before, row))
        for number, (step, before, row) in enumerate(zip(plan, rows, rows[1:], strict=False), start=1)
    )
