"""One row of a request as a task: its problem, targets and budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mlflow_cf.engine.engine import Engine
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.goal import BoundTarget, Rating
from mlflow_cf.goal.requirements import rate_all
from mlflow_cf.problem import Budget
from mlflow_cf.proof.verify import RowTask
from mlflow_cf.request.request import Request
from mlflow_cf.request.rows import Row
from mlflow_cf.words.reasons import Uncertified


def bound_target(request: Request, row: Row) -> BoundTarget:
    """Return the target bound to a row's own prediction."""
    return request.bound_target(_own(row))


def is_wanted(request: Request, row: Row) -> bool:
    """Whether a row needs a counterfactual: it is valid, asked for, and not predicted as wanted."""
    if row.fault or row.outcome is None or request.query.explain == "none":
        return False
    return request.target.differs or not bool(bound_target(request, row).met(row.outcome)[0])


def wanted_of(request: Request, rows: Sequence[Row]) -> dict[int, Row]:
    """Return the rows that need a counterfactual, by their number."""
    return {number: row for number, row in enumerate(rows) if is_wanted(request, row)}


def row_task(request: Request, space: FeatureSpace, row: Row) -> RowTask:
    """Return the task of a row, with a budget of its own."""
    requirements = request.requirements
    targets, opened, partial = requirements.wanted(request.target, _own(row))
    count, most = request.query.count, request.max_evaluations
    # the structure reads levels that are not in the background as unknown, while the model may know them
    unseen = np.flatnonzero(row.codes >= request.bound_policy.bound_distance.unknown_from).tolist()
    scorer = None if unseen else opened

    def rate(Z: Floats) -> Rating:
        return requirements.rate(targets, space, Z, opened=not unseen)

    problem = request.bound_policy.bind(
        row.codes,
        space=space,
        count=count,
        rate=scorer.rate if scorer else rate,
        rate_background=lambda: rate_all(targets, requirements.background),
        scorer=scorer,
    )
    reserve = min(most // 4, 8 * count * (len(problem.groups) + 1))
    obstacle = requirements.obstacle
    if unseen and requirements.structure is not None:
        feature = space.features[unseen[0]]
        obstacle = Uncertified("unseen_level", f"{feature.value(row.codes[unseen[0]])!r} of {feature.name}")
    problem = replace(problem, target=targets[0], variety=request.variety, partial=None if unseen else partial)
    budget = Budget(most, reserve, request.admission.give_way)
    return RowTask(Engine(problem), targets[0], budget, obstacle, targets[1:], steady=requirements.steady)


def _own(row: Row) -> int:
    """Return the position of the class that the model predicts for a row, -1 without."""
    return -1 if row.outcome is None else int(row.outcome.codes[0])
