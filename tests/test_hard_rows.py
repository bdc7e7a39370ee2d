"""Rows that one or two changes do not turn: whatever a floor finds is found, with fewer changes, and with proof."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import mlflow_cf
from mlflow_cf import ExplainedModel

MODELS = {
    "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=5_000)),
    "forest": lambda: RandomForestClassifier(50, random_state=0),
    "not opened": lambda: make_pipeline(StandardScaler(), SVC(random_state=0)),
}


@dataclass(frozen=True)
class World:
    model: ExplainedModel
    rejected: pd.DataFrame


@pytest.fixture(scope="module", params=MODELS)
def world(request: Any) -> World:
    data = load_breast_cancer(as_frame=True)
    X, y = data.data, data.target
    held_out = np.arange(len(X)) % 4 == 0
    model = MODELS[request.param]().fit(X[~held_out], y[~held_out])
    rows = X[held_out][model.predict(X[held_out]) == 0]
    return World(mlflow_cf.wrap(model, X[~held_out], target=1), rows.iloc[: 8 if request.param != "not opened" else 3])


def changes(explanations: Any) -> list[int]:
    assert {one.status for one in explanations} == {"found"}
    return [one.counterfactuals[0].n_changed for one in explanations]


def test_every_row_is_answered_with_no_more_changes_than_by_random_search(world: World) -> None:
    found, floor = (world.model.explain(world.rejected, explainer=name) for name in ("geco", "random_search"))
    assert np.mean(changes(found)) <= np.mean(changes(floor))
    assert max(changes(found)) > 2
    nearer = [one.counterfactuals[0].distance <= other.counterfactuals[0].distance + 1e-12
              for one, other in zip(found, floor, strict=True)]  # fmt: skip
    assert np.mean(nearer) >= 0.75


def test_a_linear_model_is_answered_next_to_the_optimum() -> None:
    """Of a linear model the relaxed knapsack problem bounds the distance from below; its order comes close to it."""
    data = load_breast_cancer(as_frame=True)
    model = MODELS["logistic"]().fit(data.data, data.target)
    rows = data.data[model.predict(data.data) == 0].iloc[:10]
    found = mlflow_cf.wrap(model, data.data, target=1, distance=(1.0, 0.0, 0.0)).explain(rows)
    scaler, linear = model[0], model[-1]
    slopes = linear.coef_[0] / scaler.scale_
    room = np.where(slopes > 0, data.data.max() - rows, rows - data.data.min()) * np.abs(slopes)
    lacks = -model.decision_function(rows)
    # the fewest changes are those that bring most
    fewest = [
        int(np.searchsorted(np.sort(one)[::-1].cumsum(), need)) + 1 for one, need in zip(room, lacks, strict=True)
    ]
    assert changes(found) == fewest


def odd(rows: pd.DataFrame) -> np.ndarray:
    """Favourable are members, and rows whose other numbers add up to one of a few sums: no way leads there."""
    return ((rows["member"] == 1) | (rows.drop(columns="member").sum(axis=1) % 997).isin([5, 91, 401])).astype(int)


def test_random_search_is_the_last_resort() -> None:
    rng = np.random.default_rng(1)
    rows = pd.DataFrame(rng.integers(0, 1_000, (300, 6)), columns=list("abcdef")).assign(member=0)
    rows = rows[odd(rows) == 0]
    rows.loc[rows.index[-3:], "member"] = 1
    made = mlflow_cf.wrap(odd, rows, target=1, output="label", constraints={"immutable": ["member"]})
    found, floor = (made.explain(rows.iloc[:2], explainer=name) for name in ("geco", "random_search"))
    assert [one.status for one in floor] == ["found"] * 2
    assert [one.status for one in found] == ["found"] * 2
