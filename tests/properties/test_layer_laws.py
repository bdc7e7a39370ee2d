"""Linear models and networks, asked by their coefficients, say what they say themselves, to the last bit."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    Ridge,
    RidgeClassifier,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor

from mlflow_cf.model.flavors import open_native
from mlflow_cf_flavors.sklearn.layers import LayerByLayer, by_layer

SHORT: dict[str, Any] = {"max_iter": 20, "random_state": 0}
MODELS = [
    LogisticRegression(),
    LogisticRegression(solver="newton-cholesky", fit_intercept=False),
    LogisticRegressionCV(cv=2),
    MLPClassifier((4,), **SHORT),
    MLPClassifier((4, 3), activation="tanh", **SHORT),
    MLPClassifier((3,), activation="logistic", **SHORT),
    MLPClassifier((3,), activation="identity", **SHORT),
    LinearRegression(),
    Ridge(),
    Lasso(0.01),
    ElasticNet(0.01),
    MLPRegressor(hidden_layer_sizes=(4,), **SHORT),
]


def table(seed: int, count: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 3)).round(1)
    X[rng.random(X.shape) < 0.3] = 0.0
    return X


def array(rows: pd.DataFrame) -> np.ndarray[Any, Any]:
    return rows.to_numpy()


def fitted(model: Any, X: Any, classes: int) -> Any:
    y = np.digitize(X.sum(axis=1), np.linspace(-1, 1, classes - 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is too short, or will be otherwise
        return clone(model).fit(X, y)


def own_of(model: Any) -> Any:
    return getattr(model, "predict_proba", model.predict)


@dear(3)
@given(
    model=st.sampled_from(MODELS),
    classes=st.integers(2, 4),
    seed=st.integers(0, 100),
    count=st.integers(1, 40),
    kind=st.sampled_from(["array", "columns", "sparse", "single precision", "objects", "missing"]),
)
def test_the_same_shares_and_values(model: Any, classes: int, seed: int, count: int, kind: str) -> None:
    X = table(seed, 80)
    own = own_of(known := fitted(model, X, classes))
    ask = by_layer(known, own, array, pd.DataFrame(X))
    rows: Any = table(seed + 1, count)
    rows[0] = [np.nan, 1.0, 1.0] if kind == "missing" else rows[0]
    ways = {
        "columns": np.asfortranarray,
        "sparse": sparse.csr_matrix,
        "single precision": np.float32,
        "objects": object,
    }
    if kind in ways:
        change = ways[kind]
        rows = rows.astype(change) if change in (np.float32, object) else change(rows)
    try:
        expected = own(rows)
    except ValueError as error:
        with pytest.raises(ValueError, match="NaN"):
            ask(rows)
        assert "NaN" in str(error)  # noqa: PT017  of the model itself
        return
    said = ask(rows)
    assert said.shape == expected.shape
    np.testing.assert_array_equal(said, expected)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("classes", [2, 3])
def test_coefficients_are_asked(model: Any, classes: int) -> None:
    X = table(0, 200)
    own = own_of(known := fitted(model, X, classes))
    found = by_layer(known, own, array, pd.DataFrame(X))
    assert isinstance(found, LayerByLayer)
    for few in (X[:, :2], X[0], X[:0]):
        with pytest.raises(ValueError, match=r"features|2D array|0 sample"):
            found(few)


class Doubled(LogisticRegression):
    """Says something else than its coefficients."""

    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(X) ** 2


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(Doubled(), id="a class of the user's own"),
        pytest.param(OneVsRestClassifier(LogisticRegression()), id="several models"),
        pytest.param(RidgeClassifier(), id="labels alone"),
        pytest.param(LogisticRegression().fit([[0.0], [1.0]], [0, 1]).sparsify(), id="sparse coefficients"),
    ],
)
def test_others_are_asked_themselves(model: Any) -> None:
    X = table(0, 100)
    known = model if hasattr(model, "coef_") else fitted(model, X, 2)
    own = own_of(known)
    assert by_layer(known, own, array, pd.DataFrame(X)) is own


def test_a_model_that_says_something_else_is_asked_itself() -> None:
    X = table(0, 100)
    known = fitted(LogisticRegression(), X, 2)
    known.predict_proba = lambda X: np.full((len(X), 2), 0.5)
    own = known.predict_proba
    assert by_layer(known, own, array, pd.DataFrame(X)) is own


@pytest.mark.parametrize("model", [LogisticRegression(), MLPClassifier((3,), **SHORT), Ridge()], ids=repr)
def test_an_opened_model_says_what_it_says_itself(model: Any) -> None:
    rows = pd.DataFrame(table(0, 300), columns=["a", "b", "c"])
    known = fitted(model, rows, 2)
    opened = open_native(known, rows=rows)
    np.testing.assert_array_equal(opened.decide(rows), known.predict(rows))
    if opened.score is not None:
        np.testing.assert_array_equal(opened.score(rows), known.predict_proba(rows))
