"""Answers of a request with the regions around them, where these are asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from mlflow_cf.constraints.expressions import differing
from mlflow_cf.engine.thresholds import SCORE_TOLERANCES
from mlflow_cf.errors import frames
from mlflow_cf.features import Feature, FeatureSpace, Floats
from mlflow_cf.problem import Budget
from mlflow_cf.proof.verify import RowTask
from mlflow_cf.regions import Side, widen
from mlflow_cf.request.request import Request, row_task
from mlflow_cf.request.rows import CodedRows, read_rows
from mlflow_cf.words.changes import RegionSide
from mlflow_cf.words.result import Counterfactual, Explanation
from mlflow_cf.words.sentences import Speaker
from mlflow_cf.words.statements import say

NO_TIME: Final = say("no_time")
NARROW: Final = say("narrow")

_logger = logging.getLogger(__name__)


def with_regions(
    request: Request, known: Callable[[int], RowTask], explained: Mapping[int, Explanation]
) -> dict[int, Explanation]:
    """Return the explanations that have answers, with a region around each, or the reason why there is none.

    Rows share what is left of the time evenly, and each may use the evaluations that its search has left. `known` are
    their tasks.
    """
    found: dict[int, Explanation] = {}
    numbers = [number for number, one in explained.items() if one.counterfactuals]
    for place, number in enumerate(numbers):
        request.admission.give_way()
        one, budget = explained[number], Budget(request.max_evaluations, pause=request.admission.give_way)
        budget.take(min(one.evaluations, request.max_evaluations))
        try:
            task = known(number)
            budget.start(request.deadline, request.deadline)
            budget.share(len(numbers) - place)
            widened = _widened(request, task, one, budget)
        except Exception as error:  # noqa: BLE001  whatever goes wrong, the answer stands
            _logger.warning("a region failed with %s", type(error).__name__)
            _logger.debug("%s", frames(error))
            reason = say("widening_failed", kind=type(error).__name__)
            widened = tuple(replace(answer, region_reason=reason) for answer in one.counterfactuals)
        found[number] = replace(one, counterfactuals=widened, evaluations=max(one.evaluations, budget.used))
    return found


def regions_of(request: Request, rows: pd.DataFrame, explained: Mapping[int, Explanation]) -> dict[int, Explanation]:
    """Return explanations that are known already, by the number of their row (m, d), with a region around each answer.

    Whoever has explained the rows without asking for regions asks for them here, and no row is searched again.
    """
    coded = CodedRows.of(request.bound_policy.space, rows)
    known = dict(enumerate(read_rows(request.judges, coded)))
    with request.admission.entered(request.caller.patience_s) as _:
        found = with_regions(request, lambda number: row_task(request, coded.space, known[number]), explained)
    return {number: found.get(number, one) for number, one in explained.items()}


def _widened(request: Request, task: RowTask, one: Explanation, budget: Budget) -> tuple[Counterfactual, ...]:
    """Return the answers of a row with their regions."""
    problem = task.problem
    if problem.scorer is None:
        reason = say("no_region", fact=task.obstacle.fact)
        return tuple(replace(answer, region_reason=reason) for answer in one.counterfactuals)
    space, widened = problem.space, []
    codes: Floats = space.coded([answer.row for answer in one.counterfactuals])[1]
    tolerance = SCORE_TOLERANCES * request.judges.tolerance
    for answer, row in zip(one.counterfactuals, codes, strict=True):
        changed = np.flatnonzero(differing(row[None], problem.x0)[0])
        free = np.flatnonzero(~np.isnan(row)) if request.query.region == "all" else changed[~np.isnan(row[changed])]
        told: list[Side] = []
        if not _over(budget):
            sides = widen(problem, row, free.tolist(), tolerance, budget)
            told = [side for side in sides if side.column in changed or not side.single]
            told = told if any(side.maximal or not side.single for side in told) else []
        widened.append(_told(answer, space, told, request.speaker) if told else _none(answer, budget))
    return tuple(widened)


def _over(budget: Budget) -> bool:
    left = budget.seconds_left
    return not budget.left or (left is not None and left <= 0)


def _none(answer: Counterfactual, budget: Budget) -> Counterfactual:
    return replace(answer, region_reason=NO_TIME if budget.spent else NARROW)


def _told(answer: Counterfactual, space: FeatureSpace, sides: list[Side], speaker: Speaker) -> Counterfactual:
    """Return an answer with its region, which its text tells, too."""
    region = tuple(_side(space.features[side.column], side) for side in sides)
    text = speaker.region(region, [(side.lowest, side.highest) for side in sides])
    sentence, *steps = answer.text.split("\n")
    return replace(answer, region=region, text="\n".join([sentence, text, *steps]))


def _side(feature: Feature, side: Side) -> RegionSide:
    if feature.numeric:
        return RegionSide(feature.name, feature.value(side.low), feature.value(side.high), (), side.maximal)
    levels = tuple(value for code in side.levels if (value := feature.value(code)) is not None)
    return RegionSide(feature.name, None, None, levels, side.maximal)
