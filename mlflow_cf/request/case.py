"""One row of a request bound to everything that decides about it."""

from __future__ import annotations

import numpy as np

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.problem import BoundTarget, Budget, Rater, Rating
from mlflow_cf.proof.verify import Case
from mlflow_cf.request.request import Request
from mlflow_cf.request.rows import Row
from mlflow_cf.words.reasons import Uncertified


def bound_target(request: Request, row: Row) -> BoundTarget:
    """Return the target with what a row needs to be held against it."""
    return request.bound_target(-1 if row.outcome is None else int(row.outcome.codes[0]))


def is_wanted(request: Request, row: Row) -> bool:
    """Whether there is something to search for."""
    if row.fault or row.outcome is None or request.query.explain == "none":
        return False
    return request.target.differs or not bool(bound_target(request, row).rate(row.outcome).favourable[0])


def case_of(request: Request, space: FeatureSpace, row: Row) -> Case:
    """Return a row's problem, with a budget of its own."""
    target, judge = bound_target(request, row), request.judge
    count, most = request.query.count, request.max_evaluations
    # what the structure takes a level for that is not in the background, the model may know
    unseen = np.flatnonzero(row.codes >= request.setting.bound_distance.unknown_from).tolist()
    opened = None if unseen else request.structure
    rater = None if opened is None else Rater.of([(opened, target)], len(space))

    def rate(Z: Floats) -> Rating:
        return target.rate(judge.outcome(space.decode(Z)))

    problem = request.setting.bind(
        row.codes,
        space=space,
        count=count,
        rate=rater.rate if rater else rate,
        rate_background=lambda: target.rate(request.background),
        rater=rater,
    )
    reserve = min(most // 4, 8 * count * (len(problem.groups) + 1))
    obstacle = request.obstacle
    if unseen and request.structure is not None:
        feature = space.features[unseen[0]]
        obstacle = Uncertified("unseen_level", f"{feature.value(row.codes[unseen[0]])!r} of {feature.name}")
    return Case(problem, target, Budget(most, reserve, request.admission.give_way), obstacle)
