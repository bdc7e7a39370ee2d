"""One request: predictions for all rows first, then explanations under one clock."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from mlflow_cf.errors import CounterfactualError, InputError
from mlflow_cf.explainers import Explainer
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.judge import Judge, Label, Outcome
from mlflow_cf.pipeline import Answer, explain_row
from mlflow_cf.problem import Budget, Query, Rating, Setting, Target, probability, rate
from mlflow_cf.result import Change, Counterfactual, Explanation, describe_changes

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Request:
    """Everything the rows of one request share.

    Attributes:
        judge: decides.
        setting: policy and request, bound to the background.
        target: the wanted outcome.
        background: the judge's outcome for the background rows.
        explainer: searches.
        query: the request's options.
        seed: seed of every row.
        max_evaluations: rows scored per explained row.
        deadline: `time.perf_counter` value for all explanations together, or None.
    """

    judge: Judge
    setting: Setting
    target: Target
    background: Outcome
    explainer: Explainer
    query: Query
    seed: int
    max_evaluations: int
    deadline: float | None


@dataclass(frozen=True, eq=False)
class _Row:
    """A row with its codes and the model's prediction; `fault` says why it cannot be explained, if so."""

    codes: Floats
    fault: str
    prediction: Label | None
    outcome: Outcome | None


def answer(request: Request, frame: pd.DataFrame) -> list[Explanation]:
    """Answer the rows of `frame` (m, d) in order.

    Raises:
        InputError: missing columns, or no rows.
    """
    if not isinstance(frame, pd.DataFrame):
        raise InputError("rows", f"a {type(frame).__name__} is not a table", "pass a pandas DataFrame")
    if not len(frame):
        raise InputError("rows", "there are none", "send at least one row")
    frame = request.setting.space.select(frame).reset_index(drop=True)
    space = request.setting.space.covering(frame)
    rows = _read(request, space, frame)
    rating = rate(request.target, request.judge.model, request.background)
    explanations = []
    for position, row in enumerate(rows):
        share = _share(request.deadline, len(rows) - position)
        explanations.append(_explain(request, space, row, rating, share))
    return explanations


def _share(deadline: float | None, rows_left: int) -> float | None:
    """Return this row's deadline: an even share of the time that is left, so that no row starves the others."""
    if deadline is None:
        return None
    now = time.perf_counter()
    return now + max(deadline - now, 0.0) / rows_left


def _read(request: Request, space: FeatureSpace, frame: pd.DataFrame) -> list[_Row]:
    """Predict all rows at once; rows that make the model fail are predicted one by one and marked."""
    codes, faults = space.encode_rows(frame)
    good = np.array([row for row in range(len(frame)) if row not in faults], dtype=np.intp)
    rows: dict[int, _Row] = {}
    try:
        labels, outcome = request.judge.predict(space.decode(codes[good]))
        for position, row in enumerate(good.tolist()):
            rows[row] = _Row(codes[row], "", labels[position], outcome.take(np.array([position])))
    except Exception:  # noqa: BLE001  any model, any error: the rows it can predict must still be answered
        for row in good.tolist():
            rows[row] = _single(request, space.decode(codes[[row]]), codes[row], "")
    for row, fault in faults.items():
        rows[row] = _single(request, frame.iloc[[row]], codes[row], fault)
    if not any(row.outcome for row in rows.values()):
        fault = rows[0].fault
        raise InputError("rows", f"the model can predict none of them ({fault})", "check the values of the rows")
    return [rows[row] for row in range(len(frame))]


def _single(request: Request, frame: pd.DataFrame, codes: Floats, fault: str) -> _Row:
    try:
        labels, outcome = request.judge.predict(frame)
    except Exception as error:  # noqa: BLE001  see above; the message may quote the row, so only the type is kept
        return _Row(codes, fault or f"the model cannot predict this row ({type(error).__name__})", None, None)
    return _Row(codes, fault, labels[0], outcome)


def _explain(
    request: Request, space: FeatureSpace, row: _Row, background: Rating, deadline: float | None
) -> Explanation:
    model = request.judge.model
    likely = None if row.outcome is None else probability(request.target, model, row.outcome)[0]
    bare = Explanation("skipped", "", row.prediction, likely, explainer=request.explainer.name, seed=request.seed)
    if row.fault or row.outcome is None:
        return replace(bare, status="invalid", reason=row.fault)
    if request.query.explain == "none":
        return bare
    if rate(request.target, model, row.outcome).favourable[0]:
        return replace(bare, status="already")
    started = time.perf_counter()
    try:
        found, evaluations = _search(request, space, row.codes, background, deadline)
    except CounterfactualError:
        raise  # the request itself is wrong
    except Exception as error:
        _logger.warning("an explanation failed with %s", type(error).__name__, exc_info=_logger.isEnabledFor(10))
        return replace(bare, status="invalid", reason=f"the explanation failed ({type(error).__name__})")
    return replace(
        bare,
        status=found.status,
        reason=found.reason,
        counterfactuals=tuple(_counterfactuals(request, space, row.codes, found)),
        evaluations=evaluations,
        diagnostics={**found.diagnostics, "seconds": time.perf_counter() - started},
    )


def _search(
    request: Request, space: FeatureSpace, x0: Floats, background: Rating, deadline: float | None
) -> tuple[Answer, int]:
    judge, target, count = request.judge, request.target, request.query.count
    problem = request.setting.bind(
        x0,
        space=space,
        count=count,
        rate=lambda Z: rate(target, judge.model, judge.outcome(space.decode(Z))),
        background_rating=background,
    )
    most = request.max_evaluations
    reserve = min(most // 4, 8 * count * (len(problem.groups) + 1))
    budget = Budget(most, deadline, reserve)
    # one generator per row: an answer does not depend on the rows next to it
    found = explain_row(problem, request.explainer, judge, target, budget, np.random.default_rng(request.seed))
    return found, budget.used


def _counterfactuals(request: Request, space: FeatureSpace, x0: Floats, found: Answer) -> Iterator[Counterfactual]:
    model = request.judge.model
    likely = probability(request.target, model, found.outcome)
    old = space.values(x0)
    for position, codes in enumerate(found.rows):
        new = space.values(codes)
        changes = tuple(Change(name, old[name], new[name]) for name in new if _differs(old[name], new[name]))
        prediction = model.classes[found.outcome.codes[position]]
        yield Counterfactual(
            row=new,
            changes=changes,
            prediction=prediction,
            probability=likely[position],
            distance=float(found.distance[position]),
            n_changed=len(changes),
            text=describe_changes(changes, prediction),
        )


def _differs(old: Any, new: Any) -> bool:
    return bool(old is not new and old != new)
