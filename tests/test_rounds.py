"""Every row gets its answer first; certificates share the time that is left, in rounds."""

import gc
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import mlflow_cf
from mlflow_cf import ExplainedModel
from mlflow_cf.testing.watched import Clock


@pytest.fixture(scope="module")
def forest() -> tuple[ExplainedModel, pd.DataFrame]:
    """A forest whose proofs take long, and rows that it rejects."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 12)).round(2), columns=[f"x{n}" for n in range(12)])
    y = (X.sum(axis=1) > 0).astype(int)
    model = RandomForestClassifier(40, random_state=0).fit(X, y)
    return mlflow_cf.wrap(model, X, target=1), X[model.predict(X) == 0].iloc[:6]


def test_certified_calls_return_every_answer_that_uncertified_ones_do(
    forest: tuple[ExplainedModel, pd.DataFrame],
) -> None:
    made, rows = forest
    plain = made.explain(rows)
    certified = made.explain(rows, certify=True, time_limit_s=1.0)
    assert {one.status for one in plain} == {"found"}
    for one, other in zip(certified, plain, strict=True):
        assert one.status == "found"
        assert one.counterfactuals[0].distance <= other.counterfactuals[0].distance + 1e-12
    assert {one.counterfactuals[0].proof for one in certified} <= {"optimal", "bounded"}


def test_evaluations_end_certificates_without_a_clock(forest: tuple[ExplainedModel, pd.DataFrame]) -> None:
    made, rows = forest
    found = made.explain(rows, certify=True, max_evaluations=30_000)
    assert {one.status for one in found} == {"found"}
    assert max(one.evaluations for one in found) <= 30_000


def test_rows_that_were_left_out_are_told_what_would_do(forest: tuple[ExplainedModel, pd.DataFrame]) -> None:
    made, rows = forest
    near = np.random.default_rng(0).normal(0, 0.02, (200 * len(rows), rows.shape[1]))
    many = pd.concat([rows] * 200, ignore_index=True) + near  # rows that are the same are searched once
    many = many[made.judge.model.decide(many) == 0]
    made.explain(rows)  # whatever is made once
    gc.collect()  # which takes ten times as long as these rows
    start = time.perf_counter()
    made.explain(rows)
    found = made.explain(many, time_limit_s=40 * (time.perf_counter() - start))  # a quarter of what they take
    assert found[0].status == "found"
    reasons = [one.reason for one in found if one.status == "budget"]
    assert "a time_limit_s of about " in reasons[-1]
    assert reasons[-1].endswith(f" would do for {len(many):,} rows")


@pytest.mark.parametrize("way", ["opened", "unopened", "certified"])
@pytest.mark.parametrize("name", ["geco", "random_search"])
def test_what_the_clock_changed_is_marked(clock: Clock, way: str, name: str) -> None:
    """A reply that another run may not repeat says so; the clock goes on with every look at it."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.normal(size=(80, 6)), columns=list("abcdef"))
    model = LogisticRegression().fit(data, data.sum(axis=1) + 0.5 * data["a"] > 0)
    wrapped = model if way != "unopened" else model.predict
    output = "label" if way == "unopened" else None
    made = mlflow_cf.wrap(wrapped, data, target=True, explainer=name, output=output)
    rows = data[~model.predict(data)].iloc[:4]
    options = {"count": 2, "certify": way == "certified"}
    whole = made.explain(rows, **options)
    marked = 0
    for limit in 2.0 ** np.arange(-16, -2):
        for one, full in zip(made.explain(rows, time_limit_s=float(limit), **options), whole, strict=True):
            # a proof may come on top: a search that was cut falls back on the exact one
            mine, others = ([found.row for found in each.counterfactuals] for each in (one, full))
            same = (one.status, mine) == (full.status, others)
            assert same or "time limit" in one.reason
            marked += not same
    assert marked > 3
