"""Plans verified: every step does what its action does, under its conditions, and costs what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mlflow_cf.features import Floats
from mlflow_cf.plans.course import Course
from mlflow_cf.plans.plan import Plan
from mlflow_cf.problem.binding import same

ROUNDING: Final = 1e-4  # of efforts: explainers may round them


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
