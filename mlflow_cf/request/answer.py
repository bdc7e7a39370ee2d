"""One request answered: predictions for all rows whatever happens, and explanations under one clock."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Final

import pandas as pd

from mlflow_cf.errors import InputError
from mlflow_cf.explainers import Search
from mlflow_cf.explainers.explainer import check_explainer
from mlflow_cf.explainers.remote import sparing
from mlflow_cf.features import Rows
from mlflow_cf.proof.pipeline import Answer
from mlflow_cf.request.block_answers import Found
from mlflow_cf.request.expected import Predictions, coded
from mlflow_cf.request.explaining import FIRST_ROWS, ROWS_AT_ONCE, Explaining, Whole, progress
from mlflow_cf.request.helpers import Helpers
from mlflow_cf.request.levers import LeverRequest
from mlflow_cf.request.portfolio import FEW, Portfolio, few_rows
from mlflow_cf.request.reasons import with_statuses
from mlflow_cf.request.replies import bare, costed, explanation
from mlflow_cf.request.request import Request, asking, wanted_of
from mlflow_cf.request.rows import PredictedRows, Row, numbers_of
from mlflow_cf.structures.structure import Structure
from mlflow_cf.words.explanations import Explanations, Interrupted, LazyExplanations
from mlflow_cf.words.languages import answers_in
from mlflow_cf.words.reasons import still_learning
from mlflow_cf.words.result import Explanation
from mlflow_cf.words.statements import say

# Rows that are searched together while blocks of others are settled. Each group costs a call of the model: with 4, two
# cores took 6.3 s for a forest on 50,000 rows of Adult, with 32 4.7. XGBoost leaves 23 of 100,000 such rows in all.
BESIDE_BLOCKS: Final = 16
# The rows left until half of the blocks are done, and until the last two, which are small, are searched beside the
# others, however few they are: 3 of a network on Credit take 35 ms, of 200 for 100,000 rows.
BEFORE_LAST: Final = 2
LEAST_ROW_S: Final = 1e-6  # no row takes less
PART_S: Final = 2.0  # of work on the rows of a long table that are explained together
INTERRUPTED: Final = Answer("budget", say("interrupted"))

ExplainSome = Callable[[Mapping[int, Row], float], None]  # by themselves; their seconds count from a moment

_logger = logging.getLogger(__name__)


class LateError(Exception):
    """The time of a request was over before its constraints were bound."""


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
    if not predictions.expected:
        _ = predictions.rows  # predict first: explanations may have to wait for a place, predictions never do
    early, found = dict[int, Explanation](), Found()
    try:
        if predictions.to_search:  # explained before the model is asked, if a place is free at once
            with request.admission.entered(0.0) as admitted:
                if admitted:
                    wanted = _leave_out(request, predictions.to_search, early)
                    _explain_all(predictions, wanted, table, Found(early))
        found.single.update(_confirmed(predictions, early))
        _explain_predicted(predictions, table, found)
    except KeyboardInterrupt:
        found.single.update(_confirmed(predictions, early))
        wanted = wanted_of(request, predictions.rows)
        unknown = {number: explanation(request, row, None, INTERRUPTED) for number, row in wanted.items()}
        told = answers_in(
            _joined(predictions, replace(found, single=unknown | found.single), table), request.speaker.language
        )
        raise Interrupted(told, len(found), len(wanted)) from None
    joined = _joined(predictions, found, table)
    joined = with_statuses(joined) if request.query.reasons else joined
    return joined if request.speaker.language == "en" else answers_in(joined, request.speaker.language)


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
    """Explain rows by their number: all together where they are few or have one deadline, else in batches.

    Raises:
        InputError: constraints or levers that do not fit, also where no row is to be explained: nothing is silently
            ignored.
    """
    request = predictions.request
    if not rows:
        with suppress(LateError):
            LeverRequest.of(with_constraints(request), predictions.space)
        return
    started = time.perf_counter()
    ready = _ready(request)
    if isinstance(ready, Answer | Exception):
        found.single.update((number, explanation(request, row, None, ready)) for number, row in rows.items())
        return
    request, search_with = ready
    # other processes would count calls of a server by themselves, and each go as fast as it may
    together = (request.deadline is not None and not request.caller.row_seconds) or request.session is not None
    same, whole = _SameRows(), Whole(len(rows), len(rows), 0.0)
    with progress(len(rows), watched=request.caller.owner) as count:

        def explain_some(some: Mapping[int, Row], started: float) -> None:
            _explain(Explaining(request, search_with, predictions, some, whole, count), started, found.single)

        if len(rows) > predictions.few and (portfolio := Portfolio.of(request, predictions)):
            beside = None if together or not request.caller.further else explain_some
            rows, same = _in_blocks(portfolio, rows, found, count, beside)
            began, started = started, time.perf_counter()
            whole = Whole(whole.rows, len(rows), started - began)
        if len(rows) <= FEW or together:
            explain_some(rows, started)
        else:
            with Helpers(request, table, list(rows)) as helpers:
                _with_helpers(helpers, rows, found, count, explain_some)
        count(same.answer(found.single))


@dataclass(frozen=True)
class _SameRows:
    """Rows with the same codes of which a model says the same: one of them is searched, the others have its answer.

    Attributes:
        first: by what they are, the number of the first one; others: the numbers of all others, and of the first one.
    """

    first: dict[tuple[bytes, ...], int] = field(default_factory=dict)
    others: list[tuple[int, int]] = field(default_factory=list)

    def new(self, rows: Mapping[int, Row], numbers: Iterable[int]) -> list[int]:
        """Return the numbers of the rows, of those with some numbers, that are the first ones of their kind."""
        kept = []
        for number in numbers:
            row = rows[number]
            said = () if row.outcome is None else (row.outcome.codes, row.outcome.scores, row.outcome.values)
            key = (row.codes.tobytes(), *(b"" if part is None else part.tobytes() for part in said))
            if self.first.setdefault(key, number) == number:
                kept.append(number)
            else:
                self.others.append((number, self.first[key]))
        return kept

    def answer(self, found: dict[int, Explanation]) -> int:
        """Give all others the explanation of the first one, which took them no time; return how many there are."""
        for number, first in self.others:
            one = found[first]
            found[number] = replace(one, diagnostics={**one.diagnostics, "seconds": 0.0})
        return len(self.others)


def _in_blocks(
    portfolio: Portfolio,
    rows: Mapping[int, Row],
    found: Found,
    count: Callable[[int], object],
    explain_some: ExplainSome | None,
) -> tuple[Mapping[int, Row], _SameRows]:
    """Explain rows in blocks; return those that nothing settled, and others that are the same.

    Their searches run Python, which one thread at a time can do: some are explained here while other threads go on.
    """
    left, groups, blocks, same = list[int](), deque[list[int]](), portfolio.blocks(numbers_of(rows)), _SameRows()
    few_too = {len(blocks) // 2, len(blocks) - BEFORE_LAST}  # after so many blocks

    def explain_group() -> bool:
        if explain_some is None or not groups:
            return False
        explain_some({one: rows[one] for one in groups.popleft()}, time.perf_counter())
        return True

    for number, block in enumerate(portfolio.answers(blocks, beside=explain_group), 1):
        found.blocks.extend(block.answers)
        count(sum(len(part.numbers) for part in block.answers))
        left += same.new(rows, block.left)
        if explain_some is not None and left and (len(left) >= BESIDE_BLOCKS or number in few_too):
            groups.append(left)
            left = []
    while explain_group():
        pass
    return {one: rows[one] for one in left}, same


def _with_helpers(
    helpers: Helpers,
    rows: Mapping[int, Row],
    found: Found,
    count: Callable[[int], object],
    explain_some: ExplainSome,
) -> None:
    """Explain rows here, and in other processes where that is worth it."""
    size, row_s = FIRST_ROWS, 0.0
    while helpers.left or helpers.busy:
        part = {number: rows[number] for number in helpers.take(size)}
        if part:
            started = time.perf_counter()
            explain_some(part, started)
            row_s = max((time.perf_counter() - started) / len(part), LEAST_ROW_S)
            size = min(max(FIRST_ROWS, int(PART_S / row_s)), ROWS_AT_ONCE)
        elsewhere = dict(helpers.finished(patient=not part))
        count(len(elsewhere))
        found.single.update(elsewhere)
        if len(found.single) > FIRST_ROWS:  # the first ones may have waited for what is compiled
            helpers.keep_busy(row_s, size)


def _explain(explaining: Explaining, started: float, found: dict[int, Explanation]) -> None:
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
        return Answer("budget", say("late_constraints"))
    except Exception as error:  # noqa: BLE001  whatever goes wrong, the predictions must still leave
        return error
    if search is None:
        return Answer("budget", still_learning(request.explainer.name))
    remote = request.requirements.judge.model.remote
    if remote is None or request.session is None:
        return bound, search
    if request.session.trouble:
        return Answer("budget", request.session.trouble)
    return bound, sparing(search, remote, request.session, surrogate_for(request))


def surrogate_for(request: Request) -> Structure | None:
    """Return what may propose candidates in place of the explainer: it wants the nearest ones, of a single model."""
    requirements = request.requirements
    alone = getattr(request.explainer, "seeks_nearest", False) and not requirements.further
    return requirements.opened.surrogate if alone else None


def _leave_out(request: Request, rows: Mapping[int, Row], found: dict[int, Explanation]) -> Mapping[int, Row]:
    """Answer the rows beyond those that one request may have explained, and return the others."""
    most = len(rows) if request.caller.rows is None else request.caller.rows
    if len(rows) <= most:
        return rows
    for number in islice(rows, most, None):
        found[number] = replace(bare(request, rows[number]), status="budget", reason=say("beyond", most=most))
    return {number: rows[number] for number in islice(rows, most)}


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
