"""A server that dies: whatever is asked of its model has a status, claims nothing, and takes few calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest
import small_loans
from endpoints import Served, endpoint

import mlflow_cf
from mlflow_cf import Endpoint
from mlflow_cf.evaluation.measure.cohorts import cohorts
from mlflow_cf.evaluation.measure.measured import Measuring, measured_table
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.records.result import BROKEN

TABLE = small_loans.table()
MODEL = small_loans.fitted(TABLE)
REJECTED = small_loans.rejected(TABLE, 3)
ONE = REJECTED.head(1)
OPTIONS: dict[str, Any] = {"target": "good", "constraints": small_loans.CONSTRAINTS}
LIMITS: dict[str, Any] = {"backoff_s": 0.001, "timeout_s": 5.0, "pause_s": 600.0, "retries": 0, "probe_rows": 0}
DOWN = "endpoint"  # what every reason names


@pytest.fixture(scope="module")
def running() -> Iterator[Served]:
    with endpoint(MODEL.predict) as served:
        yield served


@pytest.fixture
def served(running: Served) -> Served:
    running.status, running.spoil = (lambda _: 200), None
    return running


def wrapped(served: Served, **limits: Any) -> ExplainedModel:
    return mlflow_cf.wrap(Endpoint(served.url, **{**LIMITS, **limits}), TABLE, **OPTIONS)


def dies_after(served: Served, calls: int) -> None:
    last = served.calls + calls
    served.status = lambda number: 200 if number < last else 503


def check_levers(explained: ExplainedModel) -> None:
    for one in explained.levers(ONE, 1):
        assert (one.status, one.counterfactual) == ("budget", None)
        assert DOWN in one.reason


def check_levers_of_requests(explained: ExplainedModel) -> None:
    for one in explained.explain(REJECTED, levers=1):
        assert one.status == "budget"
        assert {(lever.status, lever.counterfactual) for lever in one.levers} <= {("budget", None)}


def check_responsiveness(explained: ExplainedModel) -> None:
    for one in explained.explain(REJECTED, responsiveness=True):
        told = one.responsiveness
        assert (one.status, told.responsive, told.shares) == ("budget", None, ())
        assert DOWN in (told.reason if one.prediction else one.reason)


def check_regions(explained: ExplainedModel) -> None:
    assert {(one.status, one.counterfactuals) for one in explained.explain(REJECTED, region=True)} == {("budget", ())}


def check_reasons(explained: ExplainedModel) -> None:
    told = explained.reasons(ONE)
    assert (told.status, told.factors, told.score) == ("none", (), None)
    assert DOWN in told.reason


def check_reasons_of_requests(explained: ExplainedModel) -> None:
    for one in explained.explain(REJECTED, reasons=True):
        assert (one.status, one.reasons.status) == ("budget", "none")
        assert DOWN in one.reasons.reason


def check_notice(explained: ExplainedModel) -> None:
    said = json.dumps(explained.notice(ONE).record)
    assert '"already"' not in said
    assert DOWN in said


def check_evaluation(explained: ExplainedModel) -> None:
    lines = measured_table(explained, REJECTED, Measuring())
    assert (set(lines["status"]), set(lines["answers"])) == ({"budget"}, {0})


ASKED: dict[str, tuple[Callable[[ExplainedModel], None], tuple[int, ...]]] = {
    "levers": (check_levers, (0, 1, 2)),
    "levers of requests": (check_levers_of_requests, (0, 1, 3)),
    "responsiveness": (check_responsiveness, (0, 1, 3)),
    "regions": (check_regions, (0, 1)),
    "reasons": (check_reasons, (0, 1)),
    "reasons of requests": (check_reasons_of_requests, (0, 1)),
    "notice": (check_notice, (0,)),
    "evaluation": (check_evaluation, (0, 1)),
}


@pytest.mark.parametrize(("asked", "alive"), [(name, alive) for name, (_, some) in ASKED.items() for alive in some])
def test_every_question_has_a_status(served: Served, asked: str, alive: int) -> None:
    explained = wrapped(served, failures=2)
    dies_after(served, alive)
    calls = served.calls
    ASKED[asked][0](explained)
    assert served.calls - calls <= alive + 2  # then the server is left alone


def test_given_counterfactuals_are_neither_confirmed_nor_refused(served: Served) -> None:
    explained = wrapped(served)
    answers = pd.DataFrame([one.counterfactuals[0].row for one in explained.explain(REJECTED)])
    dies_after(served, 0)
    calls = served.calls
    for one in explained.verify(REJECTED, answers):
        assert (one.ok, one.unanswered, one.prediction) == (False, True, None)
        assert DOWN in one.fault
    assert served.calls - calls == 1


def test_needless_changes_are_unknown_where_the_server_dies_before(served: Served) -> None:
    explained = wrapped(served)
    other = ONE.assign(income=90.0, debts=0.0, job="cook")
    assert explained.verify(ONE, other)[0].needless is not None
    dies_after(served, 1)
    assert explained.verify(ONE, other)[0].needless is None


@pytest.mark.parametrize("alive", [0, 1, 2])
def test_no_record_is_called_broken_for_a_server_that_is_down(served: Served, alive: int) -> None:
    explained = wrapped(served)
    record = explained.record(ONE, explained.explain(ONE)[0])
    assert not explained.check(record).broken
    dies_after(served, alive)
    found = explained.check(record)
    assert BROKEN not in {one.verdict for one in found}
    assert alive == 2 or any(DOWN in one.reason for one in found)  # of the row, and of the answer


def test_a_row_that_was_as_wanted_is_not_said_to_be_refused_now(served: Served) -> None:
    explained = wrapped(served)
    approved = TABLE[MODEL.predict(TABLE) == "good"].head(1)
    record = explained.record(approved, explained.explain(approved)[0])
    dies_after(served, 0)
    assert BROKEN not in {one.verdict for one in explained.check(record)}


@pytest.mark.parametrize("alive", [0, 1, 5])
def test_summaries_claim_nothing_of_rows_that_could_not_be_asked_about(served: Served, alive: int) -> None:
    explained = wrapped(served)
    dies_after(served, alive)
    found = cohorts(explained, TABLE)
    refused = int((MODEL.predict(TABLE) == "bad").sum())
    assert found.rows in (0, refused)  # rows that were not asked about miss nothing
    assert (found.items, found.covered) == ((), 0.0)
    assert found.rows == 0 or found.bound == 1.0  # nothing is proved of any of them


def test_another_model_has_neither_levers_nor_reasons(served: Served) -> None:
    explained = wrapped(served, probe_rows=8, probe_every_s=0.0)
    served.spoil = lambda _, answers: ["good" if one == "bad" else "bad" for one in answers]
    approved = TABLE[MODEL.predict(TABLE) == "good"].head(1)
    assert {(one.status, "another model" in one.reason) for one in explained.levers(approved, 1)} == {("budget", True)}
    told = explained.reasons(approved)
    assert (told.status, "another model" in told.reason) == ("none", True)


@pytest.mark.parametrize("calls_per_row", [4, 40])
@pytest.mark.parametrize("asked", ["levers", "responsiveness", "reasons"])
def test_what_is_asked_beside_answers_has_the_limits_of_a_search(
    served: Served, asked: str, calls_per_row: int
) -> None:
    explained = wrapped(served, calls_per_row=calls_per_row, rows_per_row=120, rows_per_call=10)
    calls, rows = served.calls, served.rows
    explained.explain(ONE)
    plain_calls, plain_rows = served.calls - calls, served.rows - rows
    calls, rows = served.calls, served.rows
    (one,) = explained.explain(ONE, **{asked: 2 if asked == "levers" else True})
    assert served.calls - calls <= plain_calls + calls_per_row
    assert served.rows - rows <= plain_rows + 120
    assert one.judge_calls == served.calls - calls


@pytest.mark.parametrize("calls_per_row", [4, 40])
def test_questions_about_one_row_have_the_limits_of_a_search(served: Served, calls_per_row: int) -> None:
    explained = wrapped(served, calls_per_row=calls_per_row, rows_per_row=120, rows_per_call=10)
    for ask in (lambda: explained.levers(ONE, 2), lambda: explained.reasons(ONE)):
        calls, rows = served.calls, served.rows
        ask()
        assert served.calls - calls <= calls_per_row + 1  # the row itself
        assert served.rows - rows <= 120 + 1
