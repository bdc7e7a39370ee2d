"""Models that answer at an address: few calls, no invented prediction, no secret in the artifact, clear statuses."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import small_loans
from endpoints import Served, endpoint
from hypothesis import given
from hypothesis import strategies as st

import mlflow_cf
from mlflow_cf import Endpoint, InputError
from mlflow_cf.artifact.served import ServedModel
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.words.explanations import Explanations
from mlflow_cf_flavors.endpoint.body import ReplyError, answers_of, digest_of, read, rows_of
from mlflow_cf_flavors.endpoint.pace import Breaker, Pace

TABLE = small_loans.table()
MODEL = small_loans.fitted(TABLE)
REJECTED = small_loans.rejected(TABLE, 6)
QUICK: dict[str, Any] = {"backoff_s": 0.001, "timeout_s": 2.0, "pause_s": 60.0}
KEPT = {"constraints": small_loans.CONSTRAINTS}


def shares(table: pd.DataFrame) -> pd.DataFrame:
    """Answer as a model that was logged with its probabilities."""
    return pd.DataFrame(MODEL.predict_proba(table), columns=MODEL.classes_)


@pytest.fixture
def served() -> Iterator[Served]:
    with endpoint(MODEL.predict) as running:
        yield running


def wrapped(served: Served, *, target: object = "good", output: str | None = None, **asked: Any) -> ExplainedModel:
    model = Endpoint(served.url, **{**QUICK, **asked})
    return mlflow_cf.wrap(model, TABLE, target=target, output=output, **KEPT)


def explain(explained: ExplainedModel, rows: pd.DataFrame = REJECTED, **asked: Any) -> Explanations:
    return explained.explain(rows, **asked)


def statuses(answers: Explanations) -> set[str]:
    return {answer.status for answer in answers}


def check(answers: Explanations) -> None:
    """Check that the model itself says of every answer what the answer says of it."""
    for answer in answers:
        assert answer.status == "found", answer.reason
        for found in answer.counterfactuals:
            assert MODEL.predict(pd.DataFrame([found.row]))[0] == found.prediction == "good"


# answers


@pytest.mark.parametrize("predict", [MODEL.predict, shares])
def test_answers_are_as_near_as_those_of_the_opened_model(predict: Any) -> None:
    opened = mlflow_cf.wrap(MODEL, TABLE, target="good", **KEPT)
    best = [one.counterfactuals[0].distance for one in opened.explain(REJECTED, certify=True)]
    with endpoint(predict) as served:
        explained = wrapped(served, output="score" if predict is shares else "label")
        answers = explain(explained)
    check(answers)
    near = [one.counterfactuals[0].distance for one in answers]
    assert np.mean(near) <= 1.1 * np.mean(best)
    assert min(np.subtract(near, best)) >= -1e-12


def test_each_row_takes_few_calls(served: Served) -> None:
    explained = wrapped(served)
    for place in range(len(REJECTED)):
        calls, rows = served.calls, served.rows
        (answer,) = explain(explained, REJECTED.iloc[[place]], count=3)
        assert served.calls - calls <= 40
        assert served.rows - rows <= 4_000
        assert (answer.diagnostics["judge_calls"], answer.diagnostics["judge_rows"]) == (
            served.calls - calls,
            served.rows - rows,
        )


def test_replies_tell_what_the_request_has_cost_but_for_probes(served: Served) -> None:
    explained, approved = wrapped(served, probe_every_s=3_600), TABLE[MODEL.predict(TABLE) == "good"].head(2)
    table = pd.concat([REJECTED.head(2), approved])
    said = []
    for _ in range(2):  # a probe travels along the first time
        calls, rows = served.calls, served.rows
        replies = explained.explain(table).to_records().to_dict("records")
        assert {one["judge_calls"] for one in replies} == {served.calls - calls}
        assert replies[0]["judged_rows"] == served.rows - rows - (0 if said else 16)
        said.append([(one["status"], one["judge_calls"], one["judged_rows"]) for one in replies])
    assert said[0] == said[1]


@pytest.mark.parametrize("explainer", ["geco", "exact", "nearest_row", "random_search", "growing_spheres"])
def test_no_explainer_exceeds_its_calls(served: Served, explainer: str) -> None:
    explained = wrapped(served, calls_per_row=6, rows_per_row=150, probe_rows=0)
    calls, rows = served.calls, served.rows
    (answer,) = explain(explained, REJECTED.iloc[[0]], explainer=explainer)
    assert answer.status in ("found", "budget", "not_found")
    assert served.calls - calls <= 12
    assert served.rows - rows <= 300


def test_several_answers_change_different_features(served: Served) -> None:
    (answer,) = explain(wrapped(served), REJECTED.iloc[[0]], count=2)
    first, second = ({change.feature for change in one.changes} for one in answer.counterfactuals)
    assert first != second


def test_the_same_answers_every_time(served: Served) -> None:
    one, other = wrapped(served), wrapped(served)
    assert [a.to_dict() for a in explain(one)] == [a.to_dict() for a in explain(other)]


def test_a_regression_is_explained() -> None:
    def value(table: pd.DataFrame) -> np.ndarray:
        return table["income"].to_numpy(np.float64) + 5.0 * table["owner"].to_numpy(np.bool_)

    low = TABLE[value(TABLE) < 40].head(3)
    with endpoint(value) as served:
        target = mlflow_cf.Target(low=45.0)
        answers = wrapped(served, target=target, output="value").explain(low)
    assert statuses(answers) == {"found"}
    for answer in answers:
        assert value(pd.DataFrame([answer.counterfactuals[0].row]))[0] >= 45.0


# failures


def test_without_the_server_nothing_is_invented_and_every_row_has_a_status(served: Served) -> None:
    explained = wrapped(served)
    served.stop()
    answers = explain(explained)
    assert [(one.status, one.prediction) for one in answers] == [("budget", None)] * len(REJECTED)
    assert "endpoint" in answers[0].reason
    replies = ServedModel(explained).predict(REJECTED, {"counterfactual": {"language": "de"}}).to_dict("records")
    assert json.loads(json.dumps(replies, allow_nan=False))[0]["prediction"] is None
    assert "Endpunkt" in replies[0]["reason"]


def test_a_server_that_dies_in_the_middle_leaves_predictions_and_statuses(served: Served) -> None:
    explained = wrapped(served, probe_rows=0)
    alive = served.calls + 3  # the predictions, and a little of the first search
    served.status = lambda number: 200 if number < alive else 503
    answers = explain(explained)
    assert {one.prediction for one in answers} == {"bad"}
    assert statuses(answers) == {"budget"}
    served.status = lambda _: 200
    again = mlflow_cf.wrap(Endpoint(served.url, **QUICK), TABLE, target="good", **KEPT)
    check(explain(again))


def test_after_failures_the_server_is_left_alone_and_then_tried(served: Served) -> None:
    explained = wrapped(served, failures=3, retries=0, pause_s=0.2)
    served.status = lambda _: 500
    for _ in range(6):
        assert statuses(explain(explained, REJECTED.iloc[[0]])) == {"budget"}
    stopped = served.calls
    assert "not asked" in explain(explained, REJECTED.iloc[[0]])[0].reason
    assert served.calls == stopped
    served.status = lambda _: 200
    time.sleep(0.25)
    check(explain(explained))


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_calls_are_repeated_where_that_may_help(served: Served, status: int) -> None:
    explained = wrapped(served)
    served.status = lambda number: status if number % 2 else 200
    check(explain(explained, REJECTED.iloc[:2]))


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(served: Served, status: int) -> None:
    explained = wrapped(served)
    with endpoint(MODEL.predict) as other:
        served.status, served.headers = (lambda _: status), {"Location": other.url}
        assert statuses(explain(explained)) == {"budget"}
        assert other.calls == 0


def test_a_slow_server_is_waited_for_no_longer_than_it_may_take(served: Served) -> None:
    explained = wrapped(served, timeout_s=0.1, retries=1)
    served.delay_s = 0.5
    began = time.perf_counter()
    assert statuses(explain(explained, REJECTED.iloc[[0]])) == {"budget"}
    assert time.perf_counter() - began < 2.0


def test_the_time_of_a_request_bounds_its_search(served: Served) -> None:
    explained = wrapped(served)
    explain(explained)  # compiled
    served.delay_s = 0.15
    began = time.perf_counter()
    answers = explain(explained, time_limit_s=0.6)
    assert {one.prediction for one in answers} == {"bad"}
    assert statuses(answers) <= {"found", "budget"}
    assert time.perf_counter() - began < 3.0


BROKEN = [
    b"",
    b"no json",
    b"[]",
    b'{"predictions": 3}',
    b'{"predictions": []}',
    b'{"predictions": [null]}',
    b'{"predictions": [NaN]}',
    b'{"other": ["good"]}',
    b"[" * 100_000,
    b'{"predictions": ["' + b"x" * 5_000 + b'"]}',
]


@pytest.mark.parametrize("raw", BROKEN)
def test_what_is_no_prediction_is_no_prediction(served: Served, raw: bytes) -> None:
    explained = wrapped(served, reply_bytes=4_096)
    served.raw = raw
    (answer,) = explain(explained, REJECTED.iloc[[0]])
    assert (answer.status, answer.prediction) == ("budget", None)


def test_an_unknown_label_is_none_that_is_wanted(served: Served) -> None:
    explained = wrapped(served, probe_rows=0)
    start = served.calls
    served.spoil = lambda number, answers: answers if number == start else ["unheard of"] * len(answers)
    assert statuses(explain(explained, REJECTED.iloc[[0]])) <= {"budget", "not_found"}


def test_a_server_that_answers_differently_twice_is_refused(served: Served) -> None:
    served.spoil = lambda number, answers: answers if number == 0 else answers[::-1]
    with pytest.raises(InputError, match="differently"):
        wrapped(served)


# another model


def turned(number: int, answers: list[Any]) -> list[Any]:
    return ["good" if answer == "bad" else "bad" for answer in answers]


def test_another_model_is_noticed_and_nothing_is_explained(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    explained = wrapped(served, probe_every_s=0.0)
    served.spoil = turned
    approved = TABLE[MODEL.predict(TABLE) == "good"].head(2)
    answers = explain(explained, approved)
    assert [(one.status, one.prediction) for one in answers] == [("budget", "bad")] * 2
    assert "another model" in answers[0].reason
    assert "another model" in caplog.text
    served.spoil = None  # rolled back
    assert statuses(explain(explained)) == {"found"}


def test_another_model_may_be_explained_with_a_warning(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    explained = wrapped(served, probe_every_s=0.0, on_change="warn")
    served.spoil = turned
    approved = TABLE[MODEL.predict(TABLE) == "good"].head(1)
    (answer,) = explain(explained, approved)
    assert (answer.status, answer.prediction) == ("found", "bad")
    assert MODEL.predict(pd.DataFrame([answer.counterfactuals[0].row]))[0] == "bad"  # which is now called good
    assert "another model" in caplog.text


# artifacts


def test_an_artifact_holds_no_secret_and_loads_without_the_server(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOAN_TOKEN", "s3cr3t-of-the-owner")
    model = Endpoint(served.url, headers={"Authorization": "Bearer ${LOAN_TOKEN}"}, **QUICK)
    mlflow_cf.save_model(model, tmp_path / "model", TABLE, target="good", **KEPT)
    assert {one.headers["Authorization"] for one in served.seen} == {"Bearer s3cr3t-of-the-owner"}
    for file in (tmp_path / "model").rglob("*"):
        assert not file.is_file() or b"s3cr3t" not in file.read_bytes()
    calls = served.calls
    explained = mlflow_cf.load_model(tmp_path / "model")
    assert served.calls == calls
    check(explain(explained))
    served.stop()
    again = mlflow_cf.load_model(tmp_path / "model")
    assert np.array_equal(again.outcome.codes, explained.outcome.codes)
    assert statuses(explain(again)) == {"budget"}


def test_a_loaded_model_answers_as_before(served: Served, tmp_path: Path) -> None:
    mlflow_cf.save_model(served.url, tmp_path / "model", TABLE, target="good", **KEPT)
    one = mlflow_cf.wrap(served.url, TABLE, target="good", **KEPT)
    other = mlflow_cf.load_model(tmp_path / "model")
    assert [a.to_dict() for a in explain(one)] == [a.to_dict() for a in explain(other)]


def test_a_summary_keeps_digests_of_no_rows_but_its_own(served: Served, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    mlflow_cf.save_model(served.url, folder, TABLE, target="good", privacy={"sample": "summary"}, **KEPT)
    (stored,) = (json.loads(file.read_text()) for file in folder.rglob("endpoint.json"))
    shown = mlflow_cf.load_model(folder).background  # in which every column is shuffled
    assert set(stored["answers"]) == {digest_of(row).hex() for row in rows_of(shown)}


def test_a_variable_that_is_not_set_is_named(served: Served) -> None:
    with pytest.raises(InputError, match="NOT_SET_HERE"):
        wrapped(served, headers={"Authorization": "Bearer ${NOT_SET_HERE}"})


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"headers": {"Authorization": "Bearer abc"}}, "secret"),
    ({"headers": {"x-api-key": "abc"}}, "secret"),
    ({"headers": {"Cookie": "a=${A}; b=c"}}, "secret"),
    ({"headers": {"X-Tenant": "aGVsbG8gd29ybGQgMTIzNDU2Nzg5"}}, "secret"),
    ({"headers": {"Host": "elsewhere"}}, "is set here"),
    ({"headers": {"X-A": "one\r\nX-B: two"}}, "no header"),
    ({"url": "http://example.org/invocations"}, "https"),
    ({"url": "https://user:word@example.org/invocations"}, "no user"),
    ({"url": "https://example.org/invocations?key=1"}, "no part"),
    ({"url": "ftp://example.org/"}, "address"),
    ({"rows_per_call": 0}, "rows_per_call"),
    ({"unknown": 1}, "unknown"),
]


@pytest.mark.parametrize(("options", "fact"), REFUSED)
def test_what_cannot_be_an_endpoint(options: dict[str, Any], fact: str) -> None:
    with pytest.raises(InputError, match=fact):
        Endpoint(**{"url": "https://example.org/invocations", **options})


def test_other_headers_may_be_literal() -> None:
    assert Endpoint("https://example.org/", headers={"X-Tenant": "loans"}).headers == {"X-Tenant": "loans"}


# parts


@given(
    st.lists(
        st.tuples(
            st.floats(allow_nan=True, allow_infinity=False), st.integers(-(2**53), 2**53), st.booleans(), st.text()
        ),
        min_size=1,
        max_size=5,
    )
)
def test_rows_travel_unchanged(values: list[tuple[float, int, bool, str]]) -> None:
    table = pd.DataFrame(values, columns=["real", "whole", "flag", "text"])
    again = json.loads(json.dumps(rows_of(table), allow_nan=False))
    for sent, row in zip(again, values, strict=True):
        assert [None if pd.isna(value) else value for value in row] == sent


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 8))
def test_only_one_answer_per_row_is_read(answers: list[int], rows: int) -> None:
    text = json.dumps({"predictions": answers}).encode()
    if rows == len(answers):
        assert read(answers_of(text, rows)).tolist() == answers
    else:
        with pytest.raises(ReplyError):
            answers_of(text, rows)


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 50)), min_size=1, max_size=30))
def test_no_more_calls_and_rows_pass_than_their_rates(asked: list[tuple[float, int]]) -> None:
    now = [0.0]
    pace = Pace(4.0, 100.0, lambda: now[0])
    starts = []
    for later, rows in asked:
        now[0] += later
        wait_s = pace.reserve(rows, None)
        assert wait_s is not None
        starts.append((now[0] + wait_s, rows))
    for (one, rows), (other, _) in pairwise(starts):
        assert other - one >= max(1 / 4.0, rows / 100.0) - 1e-9


def test_a_breaker_lets_one_call_pass_after_each_pause() -> None:
    now = [0.0]
    breaker = Breaker(2, 1.0, lambda: now[0])
    for _ in range(2):
        assert breaker.enter()
        breaker.note(failed=True)
    assert not breaker.enter()
    now[0] = 1.5
    assert [breaker.enter() for _ in range(3)] == [True, False, False]
    breaker.note(failed=False)
    assert [breaker.enter() for _ in range(3)] == [True] * 3


def test_threads_share_a_model(served: Served) -> None:
    explained = wrapped(served)
    expected = [one.to_dict() for one in explain(explained)]
    found: dict[int, list[dict[str, Any]]] = {}

    def ask(number: int) -> None:
        found[number] = [one.to_dict() for one in explain(explained)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[number] == expected for number in range(4))


# what is said of it


def test_what_guides_searches_is_described(served: Served) -> None:
    facts = wrapped(served).describe()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert not facts["opened"]
    told = facts["surrogate"]
    assert (told["rows"], told["measure"]) == (len(TABLE), "labels")
    assert 0.9 <= told["agreement"] <= 1.0
    (line,) = (line for line in str(facts).splitlines() if line.startswith("surrogate"))
    assert told["kind"].split()[0] in line
    assert mlflow_cf.wrap(MODEL, TABLE, target="good", **KEPT).describe()["surrogate"] is None


def test_what_guides_searches_of_a_regression_is_described() -> None:
    with endpoint(lambda table: table["income"].to_numpy(np.float64)) as served:
        facts = wrapped(served, target=mlflow_cf.Target(low=45.0), output="value").describe()
    assert facts["surrogate"]["measure"] == "r2"
    assert 0.9 <= facts["surrogate"]["agreement"] <= 1.0
    assert "R2" in str(facts)
