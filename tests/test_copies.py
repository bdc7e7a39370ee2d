"""Explained models can be pickled, copied and dumped by users; what comes back answers the same."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import mlflow
import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from xgboost import XGBClassifier, XGBRegressor

import mlflow_cf

RNG = np.random.default_rng(3)
FRAME = pd.DataFrame(
    {
        "income": RNG.integers(10, 60, 80).astype(float),
        "age": RNG.integers(18, 70, 80),
        "home": RNG.choice(["rent", "own"], 80),
    }
)
LABELS = (FRAME["income"] + 10 * (FRAME["home"] == "own") > 40).astype(int)
NUMBERS = FRAME[["income", "age"]]


def score(rows: pd.DataFrame) -> Any:
    return (rows["income"] / 60).to_numpy()


def pipeline(last: Any) -> Any:
    columns = make_column_transformer((OneHotEncoder(), ["home"]), remainder=StandardScaler())
    return make_pipeline(columns, last).fit(FRAME, LABELS)


class Labels(mlflow.pyfunc.PythonModel):
    def predict(self, context: Any, model_input: pd.DataFrame, params: Any = None) -> Any:
        del context, params
        return (model_input["income"] > 40).astype(int).to_numpy()


def wrapped_pyfunc(folder: Path) -> mlflow_cf.ExplainedModel:
    mlflow.pyfunc.save_model(str(folder / "pyfunc"), python_model=Labels(), pip_requirements=[])
    return mlflow_cf.wrap(mlflow.pyfunc.load_model(str(folder / "pyfunc")), FRAME)


MODELS: dict[str, Callable[[Path], mlflow_cf.ExplainedModel]] = {
    "forest": lambda _: mlflow_cf.wrap(pipeline(RandomForestClassifier(5, random_state=0)), FRAME),
    "linear": lambda _: mlflow_cf.wrap(pipeline(LogisticRegression()), FRAME, certify=True),
    "network": lambda _: mlflow_cf.wrap(pipeline(MLPClassifier((4,), max_iter=2000, random_state=0)), FRAME),
    "array": lambda _: mlflow_cf.wrap(LogisticRegression().fit(NUMBERS.to_numpy(), LABELS), NUMBERS),
    "xgboost": lambda _: mlflow_cf.wrap(XGBClassifier(n_estimators=5).fit(NUMBERS, LABELS), NUMBERS),
    "booster": lambda _: mlflow_cf.wrap(XGBClassifier(n_estimators=5).fit(NUMBERS, LABELS).get_booster(), NUMBERS),
    "regression": lambda _: mlflow_cf.wrap(
        XGBRegressor(n_estimators=5).fit(NUMBERS, NUMBERS["income"]), NUMBERS, target={"low": 40}
    ),
    "lightgbm": lambda _: mlflow_cf.wrap(LGBMClassifier(n_estimators=5, verbose=-1).fit(NUMBERS, LABELS), NUMBERS),
    "function": lambda _: mlflow_cf.wrap(score, FRAME, output="score"),
    "pyfunc": wrapped_pyfunc,
}
COPIES: dict[str, Callable[[Any, Path], Any]] = {
    "pickle": lambda explained, _: pickle.loads(pickle.dumps(explained)),  # noqa: S301  our own bytes
    "copy": lambda explained, _: copy.copy(explained),
    "deepcopy": lambda explained, _: copy.deepcopy(explained),
    "joblib": lambda explained, folder: joblib.load(joblib.dump(explained, folder / "explained.joblib")[0]),
}


@pytest.mark.parametrize("kind", MODELS)
def test_answer_as_before(kind: str, tmp_path: Path) -> None:
    explained = MODELS[kind](tmp_path)
    rows = FRAME.head(3)[list(explained.space.names)]
    before = explained.explain(rows, count=2, max_evaluations=500)
    assert "found" in {answer.status for answer in before}
    for way, copied in COPIES.items():
        again = copied(explained, tmp_path)
        answers = again.explain(rows, count=2, max_evaluations=500)
        assert answers.to_dict() == before.to_dict(), way
        pd.testing.assert_frame_equal(again.predict(rows), explained.predict(rows))
        assert again.describe() == explained.describe()


def test_answers_can_be_pickled_too() -> None:
    before = MODELS["forest"](Path()).explain(FRAME.head(6))
    again = pickle.loads(pickle.dumps(before))  # noqa: S301  our own bytes
    assert again == before
    pd.testing.assert_frame_equal(again.to_frame(), before.to_frame())


def test_a_model_is_shown_in_a_few_words() -> None:
    shown = repr(MODELS["forest"](Path()))
    assert shown.startswith("ExplainedModel(sklearn, 3 features, target label 1, explainer geco, 5 trees, ")
    assert shown.endswith("; same as the model on 240 rows)")
    assert repr(MODELS["function"](Path())) == (
        "ExplainedModel(mlflow_cf_function, 3 features, target label 1, explainer geco, "
        "scored through the model itself)"
    )
