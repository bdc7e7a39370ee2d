"""Plans: which of them come first, and whether every step does what its action does and costs what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import moocore
import numpy as np

from mlflow_cf.constraints.expressions import differing
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.plans.course import Course
from mlflow_cf.plans.plan import Plan
from mlflow_cf.problem.binding import same

ROUNDING: Final = 1e-4  # of efforts: explainers may round them


def leading_plans(x0: Floats, rows: Floats, plans: Sequence[Plan], costs: Floats) -> tuple[Bools, Bools, Bools]:
    """Return which plans come first, in three lots (m,): each comes before the next one and before all others.

    First those that are cheaper than every plan of no more steps; then those that no other one beats in cost, number
    of steps and number of changed features; then the cheapest of every number of steps. Otherwise a cheap plan of few
    steps hides behind one of more steps that changes the same features.

    Args:
        x0: (d,) where they start.
        rows: (m, d) where they end.
        plans: the plans, the cheapest first.
        costs: (m,) what they cost.
    """
    steps = np.array([len(plan) for plan in plans], dtype=np.intp)
    changed = differing(rows, x0).sum(axis=1)
    cheapest = np.zeros(len(plans), dtype=np.bool_)
    cheapest[np.unique(steps, return_index=True)[1]] = True
    shorter = steps < np.minimum.accumulate(np.append(np.inf, steps))[:-1]
    front = moocore.is_nondominated(np.column_stack([costs, steps, changed])) if len(plans) else cheapest
    return shorter, front, cheapest


def check_plans(course: Course | None, x0: Floats, plans: Sequence[Plan]) -> None:
    """Refuse plans from x0 (d,) whose steps are not those of their course; of plans without one, nothing is known.

    Raises:
        ValueError: an action that is unknown, done twice or not possible, or other facts than a plan says.
    """
    if course is not None:
        for plan in plans:
            _check(course, x0, plan)


def _check(course: Course, x0: Floats, plan: Plan) -> None:
    numbers = {action.name: number for number, action in enumerate(course.actions)}
    state = x0
    for place, step in enumerate(plan, start=1):
        number = numbers.pop(step.action, None)
        if number is None:
            raise ValueError(f"step {place} of a plan is no action, or is done twice")
        action = course.actions[number]
        outcome = step.row[[action.column]]
        done = course.step(number, state[None], outcome)
        allowed = action.allows(
            state[None], outcome, float(course.least_changes[action.column]) + _grid(course, number)
        )
        if not (done.valid[0] and allowed[0] and same(done.states, step.row).all()):
            raise ValueError(f"step {place} of a plan cannot be done")
        if abs(done.effort[0] - step.effort) > ROUNDING or abs(done.discount[0] - step.discount) > ROUNDING:
            raise ValueError(f"step {place} of a plan costs something else")
        state = step.row


def _grid(course: Course, number: int) -> float:
    """Return how far rounding to a grid may lead a number beyond its range."""
    step = course.space.features[course.actions[number].column].step
    return 0.0 if step is None else step / 2
