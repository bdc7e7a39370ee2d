"""One request answered: predictions for all rows whatever happens, and explanations under one clock."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Final

import pandas as pd

from mlflow_cf.errors import InputError
from mlflow_cf.explainers import Search
from mlflow_cf.explainers.explainer import check_explainer
from mlflow_cf.features import Rows
from mlflow_cf.proof.pipeline import Answer
from mlflow_cf.request.expected import FEW, Predictions
from mlflow_cf.request.explaining import FIRST_ROWS, ROWS_AT_ONCE, Explaining, Progress
from mlflow_cf.request.helper_processes import Helpers
from mlflow_cf.request.replies import bare, explanation
from mlflow_cf.request.request import Request, wanted_of
from mlflow_cf.request.rows import CodedRows, Row
from mlflow_cf.words.explanations import Explanations, Interrupted
from mlflow_cf.words.reasons import still_learning
from mlflow_cf.words.result import Explanation

LEAST_ROW_S: Final = 1e-6  # no row takes less
PART_S: Final = 2.0  # of work on the rows of a long table that are explained together
INTERRUPTED: Final = Answer("budget", "interrupted before this row was searched")

_logger = logging.getLogger(__name__)

Found = dict[int, Explanation]  # by the number of the row


class LateError(Exception):
    """The time of a request was over before its constraints were bound."""


def answer(request: Request, rows: Rows) -> Explanations:
    """Answer rows (m, d) in order: predict all, search one by one, prove all together.

    Raises:
        InputError: no table, missing columns, no rows, or an explainer that refuses the request.
    """
    check_explainer(request.explainer, request.searches.facts, request.query.count)
    known = request.bound_policy.space
    table = known.read(rows)
    if not len(table):
        raise InputError("rows", "there are none", "send at least one row")
    predictions = Predictions(request, CodedRows.of(known, table))
    if not predictions.expected:
        _ = predictions.rows  # predict first: explanations may have to wait for a place, predictions never do
    early: Found = {}
    found: Found = {}
    try:
        _explain_expected(predictions, table, early)
        found |= _confirmed(predictions, early)
        _explain_predicted(predictions, table, found)
    except KeyboardInterrupt:
        found = _confirmed(predictions, early) | found
        wanted = wanted_of(request, predictions.rows)
        unknown = {number: explanation(request, row, None, INTERRUPTED) for number, row in wanted.items()}
        raise Interrupted(_joined(predictions, unknown | found, table), len(found), len(wanted)) from None
    return _joined(predictions, found, table)


def _explain_expected(predictions: Predictions, table: pd.DataFrame, found: Found) -> None:
    """Explain rows by their expected predictions, before the model is asked, if a place is free at once."""
    request = predictions.request
    wanted = dict(predictions.to_search)
    if not wanted:
        return
    with request.admission.entered(0.0) as admitted:
        if admitted:
            _leave_out(request, wanted, found)
            _explain_all(predictions, wanted, table, found)


def _confirmed(predictions: Predictions, found: Found) -> Found:
    """Return the explanations of rows that the model predicts as expected, with its predictions."""
    if not found:
        return found
    confirmed = {number: one for number, one in found.items() if predictions.confirmed(number)}
    if len(confirmed) < len(found):
        wrong = len(found) - len(confirmed)
        _logger.warning("the opened model and the logged one disagree about %d rows; explained anew", wrong)
    for number, one in confirmed.items():
        plain = bare(predictions.request, predictions.rows[number])
        confirmed[number] = replace(one, prediction=plain.prediction, probability=plain.probability)
    return confirmed


def _explain_predicted(predictions: Predictions, table: pd.DataFrame, found: Found) -> None:
    """Explain the rows that are not explained yet, as the model predicts them."""
    request = predictions.request
    wanted = {number: row for number, row in wanted_of(request, predictions.rows).items() if number not in found}
    if not wanted and (found or not asks_for_constraints(request)):
        return
    _leave_out(request, wanted, found)
    if wanted or asks_for_constraints(request):
        with request.admission.entered(request.caller.patience_s, served=request.caller.served) as admitted:
            if admitted:
                _explain_all(predictions, wanted, table, found)
            else:
                _turn_away(request, wanted, found)


def _joined(predictions: Predictions, found: Found, table: pd.DataFrame) -> Explanations:
    """Return the explanations of all rows, in order; searched ones get the model's calls and seconds as diagnostics."""
    request = predictions.request
    cost = {"judge_calls": request.judges.calls, "judge_seconds": request.judges.seconds / len(table)}
    answers = []
    for number, row in enumerate(predictions.rows):
        one = found.get(number)
        answers.append(bare(request, row) if one is None else replace(one, diagnostics={**cost, **one.diagnostics}))
    return Explanations(tuple(answers), table.index, request.bound_policy.space.bare)


def _explain_all(predictions: Predictions, rows: dict[int, Row], table: pd.DataFrame, found: Found) -> None:
    """Explain rows by their number: all together where they have one deadline, else in batches.

    Raises:
        InputError: constraints that do not fit, also where no row is to be explained: nothing is silently ignored.
    """
    request = predictions.request
    if not rows:
        with suppress(LateError):
            with_constraints(request)
        return
    started = time.perf_counter()
    ready = _ready(request)
    if isinstance(ready, Answer | Exception):
        found.update((number, explanation(request, row, None, ready)) for number, row in rows.items())
        return
    request, search_with = ready
    with Progress(len(rows), watched=request.caller.owner) as progress:
        if request.deadline is not None and not request.caller.row_seconds:
            _explain(Explaining(request, search_with, predictions, rows, progress), started, found)
            return
        with Helpers(request.elsewhere, table, request.admission, list(rows)) as helpers:
            size, row_s = len(rows) if len(rows) <= FEW else FIRST_ROWS, 0.0
            while helpers.left or helpers.busy:
                part = {number: rows[number] for number in helpers.take(size)}
                if part:
                    started = time.perf_counter()
                    granted = _granted(request, len(part))
                    _explain(Explaining(granted, search_with, predictions, part, progress), started, found)
                    row_s = max((time.perf_counter() - started) / len(part), LEAST_ROW_S)
                    size = min(max(FIRST_ROWS, int(PART_S / row_s)), ROWS_AT_ONCE)
                elsewhere = dict(helpers.finished(patient=not part))
                progress.done(len(elsewhere))
                found |= elsewhere
                if len(found) > FIRST_ROWS:  # the first ones may have waited for what is compiled
                    helpers.keep_busy(row_s, size)


def _granted(request: Request, rows: int) -> Request:
    """Return the request with a deadline that leaves `rows` of its rows their time per row."""
    if request.deadline is None:
        return request
    return replace(request, deadline=max(request.deadline, time.perf_counter() + request.caller.row_seconds * rows))


def _explain(explaining: Explaining, started: float, found: Found) -> None:
    """Explain rows, and note the explanations with the seconds of each, also when this is interrupted.

    The seconds are those of the row's own search, and an even share of the time spent on all together.
    """
    try:
        explaining.run()
    finally:
        own_s = explaining.search_s
        shared_s = (time.perf_counter() - started - sum(own_s.values())) / max(len(explaining.explained), 1)
        for number, one in explaining.explained.items():
            seconds = shared_s + own_s.get(number, 0.0)
            found[number] = replace(one, diagnostics={**one.diagnostics, "seconds": seconds})


def _ready(request: Request) -> tuple[Request, Search] | Answer | Exception:
    """Return the request with its constraints and the explainer's search, or what all rows are answered instead.

    Raises:
        InputError: constraints that do not fit, or an explainer that cannot learn from this background; it could for
            no row.
    """
    try:
        bound = with_constraints(request)
        search = request.searches.of(request.explainer, request.deadline, request.admission.give_way)
    except InputError:
        raise
    except LateError:
        return Answer("budget", "stopped by the time limit while the constraints were read")
    except Exception as error:  # noqa: BLE001  whatever goes wrong, the predictions must still leave
        return error
    if search is None:
        return Answer("budget", still_learning(request.explainer.name))
    return bound, search


def _leave_out(request: Request, rows: dict[int, Row], found: Found) -> None:
    """Answer the rows beyond those that one request may have explained, and take them out of `rows`."""
    most = len(rows) if request.caller.rows is None else request.caller.rows
    reason = f"beyond the {most:,} rows that one request may have explained; send it in a request of its own"
    for number in list(islice(rows, most, None)):
        found[number] = replace(bare(request, rows.pop(number)), status="budget", reason=reason)


def _turn_away(request: Request, rows: dict[int, Row], found: Found) -> None:
    places = request.admission.places
    reason = f"all places for explanations ({places}) are taken; the prediction stands, ask again in a moment"
    found.update((n, replace(bare(request, row), status="busy", reason=reason)) for n, row in rows.items())


def asks_for_constraints(request: Request) -> bool:
    """Whether there are constraints to bind, if only to say that they do not fit."""
    return request.query.explain != "none" and bool(request.query.constraints.model_fields_set)


def with_constraints(request: Request) -> Request:
    """Return the request whose bound policy has its own constraints on top of the policy's.

    Raises:
        InputError: they do not fit the features, or would loosen the policy.
        LateError: its deadline has passed.
    """

    def pause() -> None:
        request.admission.give_way()
        if request.deadline is not None and time.perf_counter() > request.deadline:
            raise LateError

    if not request.query.constraints.model_fields_set:
        return request
    return replace(request, bound_policy=request.tightened.of(request.bound_policy, request.query.constraints, pause))
