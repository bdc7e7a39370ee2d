"""The probability of the wanted outcome after each step of the plans of a request."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

from mlflow_cf.features import FeatureSpace, Level
from mlflow_cf.model.judge import Outcome
from mlflow_cf.request.request import Request
from mlflow_cf.request.row_task import bound_target
from mlflow_cf.request.rows import Row
from mlflow_cf.words.plan_text import plan_text
from mlflow_cf.words.result import Counterfactual, Explanation

_logger = logging.getLogger(__name__)


def with_probabilities(
    request: Request, space: FeatureSpace, rows: Mapping[int, Row], explained: Mapping[int, Explanation]
) -> dict[int, Explanation]:
    """Return those explanations that have plans, with the probability after each step, and with the steps as text.

    They all come from one call of the model. Steps have no probability where the model cannot predict the rows between,
    or no time or evaluations are left.
    """
    planned = {number: one for number, one in explained.items() if any(found.plan for found in one.counterfactuals)}
    between = {number: [s.row for cf in one.counterfactuals for s in cf.plan[:-1]] for number, one in planned.items()}
    asked = {n: some for n, some in between.items() if planned[n].evaluations + len(some) <= request.max_evaluations}
    outcome = _outcome(request, space, [row for some in asked.values() for row in some])
    told, start = {}, 0
    for number, one in planned.items():
        size, used = len(between[number]), 0
        likely: list[float | None] = [None] * size
        if outcome is not None and number in asked:
            likely = bound_target(request, rows[number]).probability(outcome.take(slice(start, start + size)))
            start, used = start + size, size
        told[number] = replace(_told(one, iter(likely)), evaluations=one.evaluations + used)
    return told


def _outcome(request: Request, space: FeatureSpace, rows: list[Mapping[str, Level | None]]) -> Outcome | None:
    """Return the model's predictions of rows; None: it fails, or there is no time."""
    if not rows or (request.deadline is not None and time.perf_counter() >= request.deadline):
        return None
    try:
        return request.judges.verdict(space.from_values(rows))
    except Exception as error:  # noqa: BLE001  any model, any error
        _logger.info("the model cannot predict what steps of plans lead to (%s)", type(error).__name__)
        return None


def _told(explanation: Explanation, likely: Iterator[float | None]) -> Explanation:
    return replace(explanation, counterfactuals=tuple(_with(found, likely) for found in explanation.counterfactuals))


def _with(found: Counterfactual, likely: Iterator[float | None]) -> Counterfactual:
    """Return a counterfactual whose steps take their probabilities from an iterator; the last step has the answer's.

    The plan in words is added to its text.
    """
    if not found.plan:
        return found
    *steps, last = found.plan
    between = [replace(step, probability=next(likely)) for step in steps]
    plan = (*between, replace(last, probability=found.probability))
    old = {**found.row, **{change.feature: change.old for change in found.changes}}
    return replace(found, plan=plan, text=f"{found.text}\n{plan_text(plan, old)}")
