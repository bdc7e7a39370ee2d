"""One request answered: predictions for all rows whatever happens, and explanations under one clock."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

import pandas as pd

from mlflow_cf.errors import InputError
from mlflow_cf.explainers.explainer import check_explainer
from mlflow_cf.features import Rows
from mlflow_cf.proof.pipeline import Answer
from mlflow_cf.request.block_answers import Found
from mlflow_cf.request.expected import Predictions, coded
from mlflow_cf.request.explain_table import ExplainTable, LateError, with_constraints
from mlflow_cf.request.levers import LeverRequest
from mlflow_cf.request.portfolio import few_rows
from mlflow_cf.request.reasons import with_statuses
from mlflow_cf.request.replies import bare, costed, explanation
from mlflow_cf.request.request import Request, asking, wanted_of
from mlflow_cf.request.rows import PredictedRows, Row
from mlflow_cf.words.explanations import Explanations, Interrupted, LazyExplanations
from mlflow_cf.words.languages import answers_in
from mlflow_cf.words.result import Explanation
from mlflow_cf.words.statements import say

INTERRUPTED: Final = Answer("budget", say("interrupted"))

_logger = logging.getLogger(__name__)


def answer(request: Request, rows: Rows) -> Explanations:
    """Answer rows (m, d) in order: predict all, search one by one, prove all together.

    Raises:
        InputError: no table, missing columns, no rows, or an explainer or levers that do not fit the request.
    """
    check_explainer(request.explainer, request.searches.facts, request.query.count)
    with asking(request) as asked:
        return _answer(asked, rows)


def _answer(request: Request, rows: Rows) -> Explanations:
    known = request.bound_policy.space
    table = known.read(rows)
    if not len(table):
        raise InputError("rows", "there are none", "send at least one row")
    if request.query.explain == "none":
        LeverRequest.of(request, known)  # nothing is silently ignored
    predictions = Predictions(request, coded(request, table), few_rows(request))
    early, found = dict[int, Explanation](), Found()
    try:
        if predictions.expected or not _explain_unpredicted(predictions, table, found):
            if not predictions.expected:
                _ = predictions.rows  # first: explanations may have to wait for a place, predictions never do
            if predictions.to_search:  # explained before the model is asked, if a place is free at once
                with request.admission.entered(0.0) as admitted:
                    if admitted:
                        wanted = _leave_out(request, predictions.to_search, early)
                        _explain_all(predictions, wanted, table, Found(early))
            found.single.update(_confirmed(predictions, early))
            _explain_predicted(predictions, table, found)
    except KeyboardInterrupt:
        if not predictions.known:
            raise
        found.single.update(_confirmed(predictions, early))
        raise _interrupted(predictions, found, table) from None
    joined = _joined(predictions, found, table)
    joined = with_statuses(joined) if request.query.reasons else joined
    return joined if request.speaker.language == "en" else answers_in(joined, request.speaker.language)


def _interrupted(predictions: Predictions, found: Found, table: pd.DataFrame) -> Interrupted:
    """Return what tells the explanations so far; the other rows were not searched."""
    request = predictions.request
    wanted = wanted_of(request, predictions.rows)
    unknown = {number: explanation(request, row, None, INTERRUPTED) for number, row in wanted.items()}
    told = _joined(predictions, replace(found, single=unknown | found.single), table)
    return Interrupted(answers_in(told, request.speaker.language), len(found), len(wanted))


def _explain_unpredicted(predictions: Predictions, table: pd.DataFrame, found: Found) -> bool:
    """Explain the rows of a long table while they are predicted, if a place is free at once; return whether they are.

    Raises:
        InputError: see `ExplainTable.of`.
    """
    request = predictions.request
    if not predictions.in_parts or request.query.explain == "none" or request.caller.rows is not None:
        return False
    with request.admission.entered(0.0) as admitted:
        job = ExplainTable.of(predictions, table, found) if admitted else None
        return isinstance(job, ExplainTable) and job.explain_unpredicted()


def _confirmed(predictions: Predictions, found: dict[int, Explanation]) -> dict[int, Explanation]:
    """Return the explanations of rows that the model predicts as expected, with its predictions."""
    if not found:
        return found
    confirmed = dict[int, Explanation]()
    for number, one in found.items():
        row = predictions.rows[number]
        if predictions.agrees(number, row):
            plain = bare(predictions.request, row)
            confirmed[number] = replace(one, prediction=plain.prediction, probability=plain.probability)
    if len(confirmed) < len(found):
        wrong = len(found) - len(confirmed)
        _logger.warning("the opened model and the logged one disagree about %d rows; explained anew", wrong)
    return confirmed


def _explain_predicted(predictions: Predictions, table: pd.DataFrame, found: Found) -> None:
    """Explain the rows that are not explained yet, as the model predicts them."""
    request = predictions.request
    wanted = wanted_of(request, predictions.rows)
    if found:
        wanted = {number: row for number, row in wanted.items() if number not in found.single}
    asks = bool(request.query.constraints.model_fields_set) or request.query.levers is not None
    asks_for_constraints = request.query.explain != "none" and asks
    if not wanted and (found or not asks_for_constraints):
        return
    wanted = _leave_out(request, wanted, found.single)
    if wanted or asks_for_constraints:
        with request.admission.entered(request.caller.patience_s, served=request.caller.served) as admitted:
            if admitted:
                _explain_all(predictions, wanted, table, found)
                return
        reason = say("busy", places=request.admission.places)
        busy = ((n, replace(bare(request, row), status="busy", reason=reason)) for n, row in wanted.items())
        found.single.update(busy)


def _joined(predictions: Predictions, found: Found, table: pd.DataFrame) -> Explanations:
    """Return the explanations of all rows, in order; searched ones get the model's calls and seconds as diagnostics."""
    request = predictions.request
    cost = {"judge_calls": request.judges.calls, "judge_seconds": request.judges.seconds / len(table)}
    if request.session is not None:
        cost |= {"judge_calls": request.session.calls, "judge_rows": request.session.rows}
    rows = predictions.rows
    space = request.bound_policy.space.bare  # other processes send copies of it, which know less
    if len(rows) > predictions.few and isinstance(rows, PredictedRows):
        return Explanations(_lazily(predictions, rows, found, cost), table.index, space)
    answers = []
    for number, row in enumerate(rows):
        one = found.single.get(number)
        if one is None:
            answers.append(costed(bare(request, row), request.session))
        else:
            one = replace(one, diagnostics={**cost, **one.diagnostics}, space=space)
            answers.append(costed(one, request.session))
    return Explanations(tuple(answers), table.index, space)


def _lazily(predictions: Predictions, rows: PredictedRows, found: Found, cost: Mapping[str, float]) -> LazyExplanations:
    """Return the explanations of all rows, in order, with what all of them cost; they are made when they are read."""
    space = predictions.request.bound_policy.space.bare
    session = predictions.request.session
    block, place = found.places(len(rows))

    def made(number: int) -> Explanation:
        one: Explanation
        if block[number] >= 0:
            one = found.blocks[block[number]].explanation(int(place[number]))
        elif number in found.single:
            one = found.single[number]
        else:
            return costed(bare(predictions.request, rows[number]), session)
        return costed(replace(one, diagnostics={**cost, **one.diagnostics}, space=space), session)

    return LazyExplanations(made, len(rows), partial(found.arrays, predictions, rows))


def _explain_all(predictions: Predictions, rows: Mapping[int, Row], table: pd.DataFrame, found: Found) -> None:
    """Explain rows by their number.

    Raises:
        InputError: constraints or levers that do not fit, also where no row is to be explained: nothing is silently
            ignored.
    """
    request = predictions.request
    if not rows:
        with suppress(LateError):
            LeverRequest.of(with_constraints(request), predictions.space)
        return
    job = ExplainTable.of(predictions, table, found)
    if isinstance(job, ExplainTable):
        job.explain(rows)
    else:
        found.single.update((number, explanation(request, row, None, job)) for number, row in rows.items())


def _leave_out(request: Request, rows: Mapping[int, Row], found: dict[int, Explanation]) -> Mapping[int, Row]:
    """Answer the rows beyond those that one request may have explained, and return the others."""
    most = len(rows) if request.caller.rows is None else request.caller.rows
    if len(rows) <= most:
        return rows
    for number in islice(rows, most, None):
        found[number] = replace(bare(request, rows[number]), status="budget", reason=say("beyond", most=most))
    return {number: rows[number] for number in islice(rows, most)}
