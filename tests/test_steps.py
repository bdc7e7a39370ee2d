"""What `describe` says of every step of a model: opened, or why not, and what would open it."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier, StackingClassifier, VotingClassifier
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.words.description import description
from mlflow_cf.words.opening_fixes import FIXES
from mlflow_cf.words.opening_phrases import OPENING_PHRASES
from mlflow_cf.words.reason_phrases import REASON_PHRASES

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame(
    {
        "income": RNG.integers(10, 90, 200) * 500.0,
        "age": RNG.integers(18, 70, 200),
        "home": np.array(["rent", "own", "free"])[RNG.integers(0, 3, 200)],
    }
)
WANTED = (ROWS["income"] + 300 * (ROWS["home"] == "own") > 24_000).map({True: "yes", False: "no"})
ENCODED = (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["home"])


def steps(model: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = mlflow_cf.wrap(model.fit(ROWS, WANTED), ROWS, target="yes").describe()["steps"]
    return found


def told(found: list[dict[str, Any]]) -> list[tuple[str, str, bool]]:
    return [(one["step"].split(".", 1)[-1], one["kind"], one["opened"]) for one in found]


def test_every_step_of_an_opened_pipeline():
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    members = [("trees", RandomForestClassifier(5, random_state=0)), ("gone", "drop"), ("line", LogisticRegression())]
    model = make_pipeline(
        make_column_transformer((numbers, ["income", "age"]), ENCODED), VotingClassifier(members, voting="soft")
    )
    found = steps(model)
    assert told(found) == [
        ("pipeline.simpleimputer", "SimpleImputer", True),
        ("pipeline.standardscaler", "StandardScaler", True),
        ("onehotencoder", "OneHotEncoder", True),
        ("trees", "RandomForestClassifier", True),
        ("line", "LogisticRegression", True),
        ("votingclassifier", "VotingClassifier", True),
    ]
    assert all(one["why"] is None and one["fix"] is None for one in found)


def test_what_is_not_opened_does_not_hide_what_stands_behind_it():
    numbers = make_pipeline(KNNImputer(), StandardScaler(), FunctionTransformer(np.abs))
    members = [("near", KNeighborsClassifier()), ("tree", make_pipeline(StandardScaler(), DecisionTreeClassifier()))]
    model = make_pipeline(
        make_column_transformer((numbers, ["income", "age"]), ENCODED), StackingClassifier(members, cv=3)
    )
    found = steps(model)
    assert told(found) == [
        ("pipeline.knnimputer", "KNNImputer", False),
        ("pipeline.standardscaler", "StandardScaler", True),
        ("pipeline.functiontransformer", "FunctionTransformer", False),
        ("onehotencoder", "OneHotEncoder", True),
        ("near", "KNeighborsClassifier", False),
        ("tree.standardscaler", "StandardScaler", True),
        ("tree.decisiontreeclassifier", "DecisionTreeClassifier", True),
        ("stackingclassifier", "StackingClassifier", False),
    ]
    closed = [one for one in found if not one["opened"]]
    assert all(one["fix"] for one in closed)
    assert "SimpleImputer" in closed[0]["fix"]
    assert closed[1]["fix"].startswith("do it before the model")


def test_the_text_names_each_fix_once():
    model = make_pipeline(make_column_transformer(("passthrough", ["income", "age"])), KNeighborsClassifier())
    text = description(mlflow_cf.wrap(model.fit(ROWS, WANTED), ROWS, target="yes").describe())
    assert "kneighborsclassifier (KNeighborsClassifier): not opened: the estimator" in text
    assert text.count("to open it:") == 1


def test_a_model_without_steps_is_one():
    tree = DecisionTreeClassifier(max_depth=2, random_state=0).fit(ROWS[["income"]], WANTED)
    described = mlflow_cf.wrap(tree, ROWS[["income"]], target="yes").describe()
    expected = {"step": "", "kind": "DecisionTreeClassifier", "opened": True, "why": None, "fix": None}
    assert described["steps"] == [expected]
    assert "\nsteps" not in description(described)


def test_a_function_says_what_would_open_it():
    function = mlflow_cf.wrap(lambda rows: (rows["income"] > 20_000) * 1, ROWS, output="label", target=1)
    (step,) = function.describe()["steps"]
    assert not step["opened"]
    assert "the fitted model itself" in step["fix"]
    assert "to open it: wrap the fitted model itself" in description(function.describe())


def test_a_model_whose_parts_are_all_opened_but_not_the_whole():
    class Careful(DecisionTreeClassifier):
        def predict(self, X):
            return np.where(self.predict_proba(X)[:, 1] > 0.9, "yes", "no")

    found = steps(make_pipeline(make_column_transformer(ENCODED, remainder="passthrough"), Careful(max_depth=2)))
    assert not found[-1]["opened"]


@pytest.mark.parametrize("phrase", OPENING_PHRASES)
def test_every_reason_has_a_fix(phrase):
    assert FIXES[phrase]


def test_fixes_are_of_reasons_that_are_given():
    assert set(FIXES) <= set(REASON_PHRASES)
