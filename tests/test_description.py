"""What `describe` says of a model, as facts and as text."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.words.description import description

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "income": RNG.integers(10, 90, 200) * 500,
        "age": RNG.integers(18, 70, 200),
        "rate": RNG.random(200).round(3),
        "savings": np.where(RNG.random(200) < 0.1, np.nan, RNG.integers(0, 50, 200) * 100.0),
    }
)
CONSTRAINTS = {
    "immutable": ["age"],
    "ranges": {"rate": [0.1, None]},
    "max_changes": 2,
    "rules": ["IF x_cf.income > x.income THEN x_cf.savings >= x.savings"],
}
SHOWN = {"sample": "shown"}  # or notes would say what is left of the background's secrets
LIMITS = {"count": 1, "time_limit_s": 2.5, "max_evaluations": 20_000}


def lines(explained: mlflow_cf.ExplainedModel) -> list[str]:
    return description(explained.describe()).splitlines()


@pytest.fixture(scope="module")
def tree() -> mlflow_cf.ExplainedModel:
    model = DecisionTreeClassifier(max_depth=2, random_state=0).fit(FRAME, (FRAME["income"] > 25_000).to_numpy())
    options = {"target": True, "constraints": CONSTRAINTS, "limits": LIMITS, "privacy": SHOWN}
    return mlflow_cf.wrap(model, FRAME, explainer="nearest_row", **options)


@pytest.fixture(scope="module")
def function() -> mlflow_cf.ExplainedModel:
    return mlflow_cf.wrap(
        lambda rows: (rows["income"] > 25_000).astype(int), FRAME, output="label", target=1, privacy=SHOWN
    )


def test_facts_of_an_opened_model(tree: mlflow_cf.ExplainedModel) -> None:
    facts = tree.describe()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["opened"]
    assert "2 leaves" in facts["structure"]
    parity = facts["parity"]
    assert parity["rows"] >= len(FRAME)
    assert 0 <= parity["worst_difference"] <= parity["tolerance"]
    assert facts["features"]["income"] == {
        "kind": "integer", "values": 77, "step": 500.0, "missing": False, "constant": False,
    }  # fmt: skip
    assert facts["features"]["savings"]["missing"]
    assert facts["explained_at_once"] == tree.admission.places


def test_facts_of_a_model_that_is_not_opened(function: mlflow_cf.ExplainedModel) -> None:
    facts = function.describe()
    assert not facts["opened"]
    assert facts["parity"] is None
    assert "scored through the model itself" in facts["structure"]


def test_text_of_an_opened_model(tree: mlflow_cf.ExplainedModel) -> None:
    parity = {"rows": 1400, "worst_difference": 1.3e-7, "tolerance": 1e-5, "ties": 0}
    facts = {**tree.describe(), "structure": "2 trees, 9 leaves", "parity": parity, "explained_at_once": 1}
    assert description(facts).splitlines() == [
        "model        sklearn, labels false, true, probabilities, the largest decides",
        "structure    2 trees, 9 leaves",
        "parity       on 1,400 rows no label differs, and no score by more than 1.3e-07 (1e-05 is allowed)",
        "target       label true",
        "constraints  immutable: age",
        "             ranges: rate [0.1, null]",
        "             max_changes: 2",
        "             rules:",
        "               IF x_cf.income > x.income THEN x_cf.savings >= x.savings",
        "values       observed",
        "distance     l0 0.5, l1 0.5, linf 0, scale range",
        "explainer    nearest_row",
        "limits       a row: 1 counterfactual, 20,000 evaluations",
        "             a request: 2.5 s",
        "             at once: 1 request",
        "background   200 rows",
        "             feature  kind     values  step  missing",
        "             income   integer      77   500",
        "             age      integer      52     1",
        "             rate     real        178",
        "             savings  integer      50   100  yes",
    ]


def test_text_without_what_there_is_not(function: mlflow_cf.ExplainedModel) -> None:
    text = lines(function)
    assert "structure    scored through the model itself" in text
    assert "constraints  none" in text
    assert not any(line.startswith("parity") for line in text)


def test_text_of_a_regression() -> None:
    model = LinearRegression().fit(FRAME[["income", "age"]], FRAME["income"])
    text = lines(mlflow_cf.wrap(model, FRAME[["income", "age"]], target={"low": 90_000.0}, privacy=SHOWN))
    assert text[0] == "model        sklearn, predicts a number"
    assert "target       low 90,000" in text


def test_long_facts_are_broken_into_lines() -> None:
    wide = pd.DataFrame(RNG.integers(0, 9, (50, 30)), columns=[f"measurement_{n}" for n in range(30)])
    constraints = {"immutable": list(wide.columns[:20])}
    explained = mlflow_cf.wrap(
        lambda rows: rows["measurement_29"] > 4, wide, output="label", constraints=constraints, privacy=SHOWN
    )
    assert all(len(line) <= 100 for line in lines(explained))
