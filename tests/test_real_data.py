"""German credit and Adult with the constraint sets of the papers: every answer is checked on raw values.

The public files are not part of this project; without them these tests are skipped.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from checker import Checker, Condition, Ruler
from laws import many
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.words.result import Explanation

ROWS = many(8, 20)
BACKGROUND = 5000
ESTIMATORS: Mapping[str, Callable[[], Any]] = {
    "tree": lambda: DecisionTreeClassifier(random_state=0, min_samples_leaf=5),
    "logistic": lambda: LogisticRegression(max_iter=1000),
}
# Levels of an order that the papers use; german.csv holds names.
ORDERS: Mapping[str, Mapping[str, list[str]]] = {
    "german": {
        "employment": ["unemployed", "<1", "1<=X<4", "4<=X<7", ">=7"],
        "job": ["unemp/unskilled non res", "unskilled resident", "skilled", "high qualif/self emp/mgmt"],
    },
    "adult": {},
}
# The rules of the constraint files, written out by hand.
RULES: Mapping[str, tuple[Condition, ...]] = {
    "german": (),
    "adult": (lambda x, z: z["education_num"] <= x["education_num"] or z["age"] >= x["age"] + 4,),
}
LEFT_OUT = {"german": (), "adult": ("fnlwgt", "education")}


@pytest.fixture(scope="module", params=["german", "adult"])
def data(request: pytest.FixtureRequest, data_file: Callable[[str], Path]) -> tuple[str, pd.DataFrame, dict[str, Any]]:
    """Return name, table with the target in its last column, and constraints."""
    name = request.param
    table = pd.read_csv(data_file(f"{name}.csv")).drop(columns=list(LEFT_OUT[name]))
    constraints = yaml.safe_load(data_file(f"constraints/{name}.yaml").read_text(encoding="utf-8"))
    return name, table, constraints


@cache
def fitted(kind: str, name: str, path: Path) -> Any:
    """Return the pipeline fitted on a data file, once for all tests."""
    table = pd.read_csv(path).drop(columns=list(LEFT_OUT[name]))
    features = table.iloc[:, :-1]
    levels = OneHotEncoder(handle_unknown="ignore")
    numbers = make_column_selector(dtype_include="number")
    encode = make_column_transformer(
        (levels, make_column_selector(dtype_exclude="number")), (StandardScaler(), numbers)
    )
    return make_pipeline(encode, ESTIMATORS[kind]()).fit(features, table.iloc[:, -1])


@pytest.fixture(scope="module", params=list(ESTIMATORS))
def model(request: pytest.FixtureRequest, data: Any, data_file: Callable[[str], Path]) -> Any:
    return fitted(request.param, data[0], data_file(f"{data[0]}.csv"))


@pytest.fixture(scope="module")
def background(data: Any) -> pd.DataFrame:
    features = data[1].iloc[:, :-1]
    return features.sample(min(BACKGROUND, len(features)), random_state=0).reset_index(drop=True)


@pytest.fixture(scope="module")
def loan(data: Any, model: Any, background: pd.DataFrame) -> ExplainedModel:
    name, _, constraints = data
    features = {column: {"kind": "ordinal", "levels": order} for column, order in ORDERS[name].items()}
    return mlflow_cf.wrap(model, background, target=1, constraints=constraints, features=features)


@pytest.fixture(scope="module")
def rejected(data: Any, model: Any) -> pd.DataFrame:
    features = data[1].iloc[:, :-1]
    some = features.sample(1000, random_state=1)
    return some[model.predict(some) == 0].head(ROWS)


@pytest.fixture(scope="module")
def explained(loan: ExplainedModel, rejected: pd.DataFrame) -> list[Explanation]:
    return loan.explain(rejected, count=2)


def check(
    loan: ExplainedModel, model: Any, data: Any, rejected: pd.DataFrame, explained: list[Explanation], **request: Any
) -> None:
    """Check every answer on raw values."""
    name, _, constraints = data
    checker = Checker(model.predict, loan.background, [constraints, request], 1, ORDERS[name], rules=RULES[name])
    ruler = Ruler(loan.background, orders=ORDERS[name])
    for query, found in zip(rejected.to_dict("records"), explained, strict=True):
        assert (found.prediction, found.status in {"found", "not_found"}) == (0, True), found.reason
        assert (found.status == "found") == bool(found.counterfactuals)
        for answer in found.counterfactuals:
            assert checker.faults(query, answer.row) == []
            assert answer.distance == pytest.approx(ruler.distance(query, answer.row), abs=1e-9)
            assert answer.prediction == 1


def test_every_answer_of_geco_holds(
    loan: ExplainedModel, model: Any, data: Any, rejected: pd.DataFrame, explained: list[Explanation]
) -> None:
    check(loan, model, data, rejected, explained)
    assert sum(found.status == "found" for found in explained) >= 0.9 * len(rejected)


def test_every_answer_of_the_nearest_row_holds(
    loan: ExplainedModel, model: Any, data: Any, rejected: pd.DataFrame
) -> None:
    nearest = loan.explain(rejected, explainer="nearest_row", count=2)
    check(loan, model, data, rejected, nearest)
    assert any(found.status == "found" for found in nearest)


def test_every_answer_holds_under_a_stricter_request(
    loan: ExplainedModel, model: Any, data: Any, rejected: pd.DataFrame
) -> None:
    number = "duration" if data[0] == "german" else "hours_per_week"
    asked = {"max_changes": 2, "relative": {number: {"up": 5, "down": 10}}}
    few = rejected.head(5)
    check(loan, model, data, few, loan.explain(few, constraints=asked), **asked)


def test_geco_finds_what_the_background_and_single_changes_show(
    loan: ExplainedModel, model: Any, data: Any, rejected: pd.DataFrame, explained: list[Explanation]
) -> None:
    name, _, constraints = data
    checker = Checker(model.predict, loan.background, [constraints], 1, ORDERS[name], rules=RULES[name])
    for row in [row for row, found in enumerate(explained) if found.status != "found"]:
        query = rejected.iloc[row]
        assert loan.explain(rejected.iloc[[row]], explainer="nearest_row")[0].status != "found"
        singles = [
            {**query, column: value} for column in rejected.columns for value in loan.background[column].unique()
        ]
        lawful = [moved for moved in singles if not any(checker.broken(query, moved))]
        assert not lawful or not model.predict(pd.DataFrame(lawful)).any()


def test_predictions_are_the_models(loan: ExplainedModel, model: Any, data: Any) -> None:
    rows = data[1].iloc[:300, :-1]
    reply = loan.predict(rows, {"counterfactual": {"explain": "none"}})
    assert reply["prediction"].tolist() == model.predict(rows).tolist()
    assert np.array_equal(reply["probability"].to_numpy(dtype=float), model.predict_proba(rows)[:, 1])


def test_constraints_can_be_read_from_the_file(
    data: Any, model: Any, background: pd.DataFrame, data_file: Callable[[str], Path]
) -> None:
    loan = mlflow_cf.wrap(model, background, target=1, constraints=data_file(f"constraints/{data[0]}.yaml"))
    assert set(data[2]) == set(loan.policy.constraints.to_dict())
    assert len(loan.policy.constraints.rules) == len(RULES[data[0]])
