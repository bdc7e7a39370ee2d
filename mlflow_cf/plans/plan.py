"""A plan: ordered steps that lead from a row to its counterfactual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mlflow_cf.features import FeatureSpace, Floats, Level
from mlflow_cf.words.changes import Step, changes_between


@dataclass(frozen=True, eq=False)
class PlannedStep:
    """One step of a plan: an action, what it costs, and the row it leads to.

    Attributes:
        action: its name.
        effort: its cost before the discount, 0 or more.
        discount: in [0, 1], the share of the effort that is left by the relationships, after earlier steps.
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
    """Return the steps of a plan in the form of a reply; `old_row` is the row that it starts from."""
    rows = [old_row, *(space.values(step.row) for step in plan)]
    return tuple(
        Step(number, step.action, step.effort, step.discount, row, changes=changes_between(before, row))
        for number, (step, before, row) in enumerate(zip(plan, rows, rows[1:], strict=False), start=1)
    )
