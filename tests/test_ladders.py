"""Ladders: the nearest answer for each of several targets, each of which asks for more than the one before it."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression

import mlflow_cf
from mlflow_cf.errors import InputError

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {"income": RNG.integers(10, 90, 200), "debt": RNG.integers(0, 9, 200), "age": RNG.integers(18, 70, 200)}
)
VALUE = FRAME["income"] - 5 * FRAME["debt"] + RNG.normal(0, 5, 200)
GOOD = (VALUE.median() < VALUE).astype(int)
FOREST = RandomForestClassifier(20, max_depth=4, random_state=0).fit(FRAME, GOOD)
REGRESSOR = RandomForestRegressor(10, max_depth=4, random_state=0).fit(FRAME, VALUE)
ROWS = FRAME[FOREST.predict(FRAME) == 0].head(12)
LADDER = [0.5, 0.6, 0.7, 0.8, 0.95]


@pytest.fixture(scope="module")
def explained():
    return mlflow_cf.wrap(FOREST, FRAME, target=1, constraints={"immutable": ["age"]}, explainer="exact")


@pytest.fixture(scope="module")
def regression():
    return mlflow_cf.wrap(REGRESSOR, FRAME, target={"low": 20}, constraints={"immutable": ["age"]}, explainer="exact")


def same_as_single_ones(explained, rows, ladder, single, **options):
    """Compare a ladder with a request for each of its rungs."""
    told = explained.explain(rows, target=ladder, **options)
    for number, target in enumerate(single, start=1):
        for one, alone in zip(told, explained.explain(rows, target=target, **options), strict=True):
            found = [answer for answer in one.counterfactuals if answer.rung == number]
            assert one.diagnostics["rungs"][number - 1] == alone.status
            assert [answer.distance for answer in found] == [answer.distance for answer in alone.counterfactuals]
            assert [answer.proof for answer in found] == [answer.proof for answer in alone.counterfactuals]
            assert (one.prediction, one.probability) == (alone.prediction, alone.probability)
    return told


def test_each_rung_has_the_answer_of_a_request_of_its_own(explained):
    rows = pd.concat([ROWS, FRAME[FOREST.predict(FRAME) == 1].head(5)])
    single = [{"label": 1, "min_probability": rung} for rung in LADDER]
    told = same_as_single_ones(explained, rows, {"label": 1, "ladder": LADDER}, single)
    assert told.index.equals(rows.index)
    statuses = {status for one in told for status in one.diagnostics["rungs"]}
    assert {"found", "already"} <= statuses


@settings(max_examples=5)
@given(st.lists(st.sampled_from(range(1, 20)), min_size=1, max_size=4, unique=True).map(sorted))
def test_whatever_the_rungs(explained, twentieths):
    ladder = [rung / 20 for rung in twentieths]
    single = [{"label": 1, "min_probability": rung} for rung in ladder]
    same_as_single_ones(explained, ROWS.head(4), {"label": 1, "ladder": ladder}, single)


def test_intervals_of_a_regression(regression):
    rows = FRAME[REGRESSOR.predict(FRAME) < 20].head(6)
    ladder = [[20, None], [30, 60], [35, 50]]
    single = [{"low": low, "high": high} for low, high in ladder]
    told = same_as_single_ones(regression, rows, {"ladder": ladder}, single)
    for one in told:
        for answer in one.counterfactuals:
            low, high = ladder[answer.rung - 1]
            assert low <= answer.prediction <= (np.inf if high is None else high)


def test_a_rung_that_the_one_below_meets_costs_nothing(explained, monkeypatch):
    """Nor does one above a rung that nothing reaches."""
    asked = []
    explain = type(explained)._answer

    def counted(self, X, query, *others):
        asked.append((query.target, len(X)))
        return explain(self, X, query, *others)

    monkeypatch.setattr(type(explained), "_answer", counted)
    (one,) = explained.explain(ROWS.head(1), target={"label": 1, "ladder": LADDER})
    met = sum(answer.probability >= 0.6 for answer in one.counterfactuals if answer.rung == 1)
    assert [target.min_probability for target, _ in asked[1:]][:1] == [0.5]
    assert (0.6 in [target.min_probability for target, _ in asked[1:]]) == (not met)
    asked.clear()
    (none,) = explained.explain(ROWS.head(1), target={"label": 1, "ladder": [0.999, 0.9999, 1]})
    assert none.status == "infeasible"
    assert len(asked) == 2
    assert none.reason.count("rung") >= 3


def test_the_reply(explained):
    options = {"counterfactual": {"target": {"label": 1, "ladder": [0.5, 0.7, 1]}}}
    (reply, *_) = explained.predict(ROWS, options).to_dict("records")
    assert reply["status"] == "found"
    assert [one["rung"] for one in reply["counterfactuals"]] == [1, 2]
    assert "rung 3 (probability 1): " in reply["reason"]
    json.dumps(reply, allow_nan=False)
    frame = explained.explain(ROWS, target={"label": 1, "ladder": [0.5, 0.7]}).to_frame()
    assert set(frame["rung"]) == {1, 2}
    (plain, *_) = explained.predict(ROWS).to_dict("records")
    assert {one["rung"] for one in plain["counterfactuals"]} == {None}


def test_a_row_that_is_wanted_on_all_rungs(explained):
    rows = FRAME[FOREST.predict_proba(FRAME)[:, 1] > 0.9].head(2)
    for one in explained.explain(rows, target={"label": 1, "ladder": [0.5, 0.6]}):
        assert (one.status, one.reason, one.counterfactuals) == ("already", "", ())


def test_no_explanation_is_none(explained):
    for one in explained.explain(ROWS, target={"label": 1, "ladder": [0.5, 0.6]}, explain="none"):
        assert (one.status, one.counterfactuals) == ("skipped", ())


def test_no_time_is_no_error(explained):
    for one in explained.explain(ROWS, target={"label": 1, "ladder": LADDER}, time_limit_s=1e-6):
        assert one.status == "budget"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": {"label": 1, "ladder": [0.7, 0.5]}}, r"target.ladder\[1\]: 0.5 does not exceed 0.7 before it; let"),
        ({"target": {"label": 1, "ladder": [0.5, 0.5]}}, r"target.ladder\[1\]: 0.5 does not exceed 0.5 before it"),
        ({"target": {"label": 1, "ladder": [0.5, 1.2]}}, r"target.ladder\[1\]: 1.2 is no probability"),
        ({"target": {"label": 1, "ladder": [[1, 2]]}}, "target: name one of label, other, or low and high"),
        (
            {"target": {"label": 1, "min_probability": 0.5, "ladder": [0.6]}},
            "target.min_probability: the ladder says it",
        ),
        ({"target": {"ladder": [0.5]}}, "target: name one of label"),
        ({"target": {"label": 1, "ladder": [0.5]}, "count": 2}, "count: a ladder has one answer for each of its rungs"),
        ({"target": {"label": 1, "ladder": [0.5]}, "levers": 1}, "levers: a ladder has one answer"),
        ({"target": {"label": 1, "ladder": "0.5"}}, "target.ladder: "),
    ],
)
def test_bad_ladders(explained, options, message):
    with pytest.raises(InputError, match=message):
        explained.explain(ROWS, **options)
    with pytest.raises(InputError, match=message):
        explained.request(ROWS, {"counterfactual": options})


@pytest.mark.parametrize(
    ("ladder", "message"),
    [
        ([[30, None], [20, None]], r"target.ladder\[1\]: \[20, None\] is not inside \[30, None\] before it"),
        ([[30, 60], [30, 60]], r"target.ladder\[1\]: \[30, 60\] is not inside \[30, 60\] before it"),
        ([[60, 30]], r"target.ladder\[0\]: low 60 exceeds high 30"),
        ([0.5, 0.7], "target"),
        ([[10, None]], r"target.ladder\[0\]: 10 is outside the policy's \[20, None\]"),
    ],
)
def test_bad_intervals(regression, ladder, message):
    with pytest.raises(InputError, match=message):
        regression.request(ROWS, {"counterfactual": {"target": {"ladder": ladder}}})


def test_a_request_only_tightens():
    explained = mlflow_cf.wrap(FOREST, FRAME, target={"label": 1, "min_probability": 0.6})
    with pytest.raises(InputError, match=r"target.ladder\[0\]: 0.5 is less than the policy's 0.6"):
        explained.request(ROWS, {"counterfactual": {"target": {"label": 1, "ladder": [0.5, 0.7]}}})
    with pytest.raises(InputError, match="target: sealed by the policy"):
        explained.request(ROWS, {"counterfactual": {"target": {"label": 0, "ladder": [0.7]}}})


def test_elsewhere_one_outcome_is_wanted(explained):
    ladder = {"label": 1, "ladder": [0.5, 0.6]}
    for call in (
        lambda: mlflow_cf.wrap(FOREST, FRAME, target=ladder),
        lambda: explained.levers(ROWS.head(1), target=ladder),
        lambda: explained.verify(ROWS.head(1), ROWS.head(1), target=ladder),
    ):
        with pytest.raises(InputError, match=r"target\.ladder: one outcome is wanted here, not several"):
            call()


def test_other_requirements_are_asked_about_every_rung():
    """What the model says of an answer tells nothing of another model."""
    other = LogisticRegression(max_iter=1_000).fit(FRAME, GOOD)
    explained = mlflow_cf.wrap(FOREST, FRAME, target=1, robust_to=[{"model": other, "name": "v1"}], explainer="exact")
    single = [{"label": 1, "min_probability": rung} for rung in (0.5, 0.7)]
    same_as_single_ones(explained, ROWS.head(4), {"label": 1, "ladder": [0.5, 0.7]}, single)
