"""Models of many trees, asked tree by tree, say what they say themselves, to the last bit."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from lightgbm import LGBMClassifier, LGBMRegressor
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier

from mlflow_cf.model.flavors import open_native
from mlflow_cf_flavors.sklearn.arrays import OfBooster, by_booster
from mlflow_cf_flavors.sklearn.forests import TreeByTree, by_tree

FEW: dict[str, Any] = {"n_estimators": 5, "random_state": 0}
MODELS = [
    RandomForestClassifier(**FEW),
    RandomForestClassifier(**FEW, n_jobs=2),
    RandomForestClassifier(**FEW, monotonic_cst=[1, 0, 0]),
    RandomForestRegressor(**FEW, max_depth=3),
    ExtraTreesClassifier(**FEW, max_depth=4),
    ExtraTreesRegressor(**FEW),
    BaggingClassifier(**FEW),
    BaggingClassifier(ExtraTreeClassifier(max_depth=3), max_features=2, **FEW),
    BaggingRegressor(DecisionTreeRegressor(max_depth=2), bootstrap_features=True, **FEW),
    AdaBoostClassifier(**FEW),
    AdaBoostClassifier(DecisionTreeClassifier(max_depth=3), **FEW),
]


def table(seed: int, count: int, missing: float) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 3)).round(1)
    X[rng.random(X.shape) < missing] = np.nan
    X[rng.random(X.shape) < 0.3] = 0.0
    return X


def array(rows: pd.DataFrame) -> np.ndarray[Any, Any]:
    return rows.to_numpy()


def outcome_of(ask: Any, X: Any) -> Any:
    """Return what a model says of a table, or the kind of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ask(X)
        except ValueError as error:
            return type(error)


@dear(4)
@given(
    model=st.sampled_from(MODELS),
    classes=st.integers(2, 4),
    seed=st.integers(0, 100),
    count=st.integers(1, 40),
    learned=st.sampled_from([0.0, 0.1]),
    asked=st.sampled_from([0.0, 0.1]),
    compressed=st.booleans(),
)
def test_the_same_shares_and_values(
    model: Any, classes: int, seed: int, count: int, learned: float, asked: float, *, compressed: bool
) -> None:
    X = table(seed, 80, learned)
    y = np.digitize(np.nan_to_num(X).sum(axis=1), np.linspace(-1, 1, classes - 1))
    fitted = outcome_of(lambda X: clone(model).fit(X, y), X)
    if isinstance(fitted, type):  # missing numbers, or fewer classes than there are
        return
    own = getattr(fitted, "predict_proba", fitted.predict)
    ask = by_tree(fitted, own, array, pd.DataFrame(X))
    rows: Any = table(seed + 1, count, asked)
    rows[0] = [1e300, np.inf, 1.0] if seed % 7 == 0 else rows[0]
    rows = sparse.csr_matrix(rows) if compressed else rows
    one, other = outcome_of(ask, rows), outcome_of(own, rows)
    if isinstance(other, type):
        assert one is other
    else:
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_trees_are_asked_one_by_one(model: Any) -> None:
    X = table(0, 200, 0.0)
    fitted = clone(model).fit(X, (X.sum(axis=1) > 0).astype(int))
    own = getattr(fitted, "predict_proba", fitted.predict)
    found = by_tree(fitted, own, array, pd.DataFrame(X))
    assert isinstance(found, TreeByTree)
    for few in (X[:, :2], X[0]):
        with pytest.raises(ValueError, match=r"features|2D array"):
            found(few)
    assert getattr(found.ask.__self__, "n_jobs", 1) == 1  # type: ignore[attr-defined]  a method


FOREST = RandomForestClassifier(**FEW, n_jobs=2)
OTHER = [("forest", FOREST), ("linear", LogisticRegression())]
VALUES = [("bagged", BaggingRegressor(**FEW)), ("linear", LinearRegression())]
ENSEMBLES = {
    "soft vote": VotingClassifier(OTHER, voting="soft", weights=[2, 1]),
    "calibrated": CalibratedClassifierCV(FOREST, cv=2),
    "calibrated, isotonic": CalibratedClassifierCV(AdaBoostClassifier(**FEW), method="isotonic", cv=2, ensemble=False),
    "stacked": StackingClassifier(OTHER, cv=2),
    "stacked on the table": StackingClassifier(OTHER, passthrough=True, cv=2),
    "mean of values": VotingRegressor(VALUES),
    "stacked values": StackingRegressor(VALUES, cv=2),
}


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", ENSEMBLES)
def test_members_are_asked_tree_by_tree(name: str, classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X, asked = table(0, 200, 0.0), table(1, 50, 0.0)
    y = np.digitize(X.sum(axis=1), np.linspace(-1, 1, classes - 1))
    model = clone(ENSEMBLES[name]).fit(X, y)
    own = getattr(model, "predict_proba", model.predict)
    found = by_tree(model, own, array, pd.DataFrame(X))
    expected = own(asked)
    for kind in (RandomForestClassifier, AdaBoostClassifier):
        monkeypatch.setattr(kind, "predict_proba", lambda *_: pytest.fail("it was asked itself"))
    monkeypatch.setattr(BaggingRegressor, "predict", lambda *_: pytest.fail("it was asked itself"))
    np.testing.assert_array_equal(found(asked), expected)


class Doubled(RandomForestClassifier):
    """Says something else than its trees."""

    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(X) ** 2


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(Doubled(**FEW), id="a class of the user's own"),
        pytest.param(BaggingClassifier(LogisticRegression(), 3), id="models that are no trees"),
        pytest.param(VotingClassifier([("a", LogisticRegression())], voting="soft"), id="members that are no trees"),
        pytest.param(LogisticRegression(), id="no ensemble"),
    ],
)
def test_others_are_asked_themselves(model: Any) -> None:
    X = table(0, 100, 0.0)
    own = model.fit(X, (X.sum(axis=1) > 0).astype(int)).predict_proba
    assert by_tree(model, own, array, pd.DataFrame(X)) is own


def test_a_forest_whose_trees_say_something_else_is_asked_itself() -> None:
    X = table(0, 100, 0.0)
    model = RandomForestClassifier(**FEW).fit(X, (X.sum(axis=1) > 0).astype(int))
    model.estimators_[0].predict_proba = lambda X, check_input: np.full((len(X), 2), 0.5 + check_input)
    own = model.predict_proba
    assert by_tree(model, own, array, pd.DataFrame(X)) is own


def test_rows_that_a_model_cannot_answer_are_told_by_whoever_opens_it() -> None:
    def refused(_: pd.DataFrame) -> Any:
        raise ValueError("rows of another kind")

    X = table(0, 100, 0.0)
    y = (X.sum(axis=1) > 0).astype(int)
    for way, model in (
        (by_tree, RandomForestClassifier(**FEW)),
        (by_booster, LGBMClassifier(n_estimators=2, verbose=-1)),
    ):
        own = model.fit(X, y).predict_proba
        assert way(model, own, refused, pd.DataFrame(X)) == own


def test_an_opened_forest_says_what_it_says_itself() -> None:
    rows = pd.DataFrame(table(0, 300, 0.0), columns=["a", "b", "c"])
    for model in (RandomForestClassifier(**FEW, n_jobs=2), RandomForestRegressor(**FEW)):
        fitted = model.fit(rows, (rows.sum(axis=1) > 0).astype(int))
        opened = open_native(fitted, rows=rows)
        np.testing.assert_array_equal(opened.decide(rows), fitted.predict(rows))
        if opened.score is not None:
            np.testing.assert_array_equal(opened.score(rows), fitted.predict_proba(rows))


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")  # LightGBM names the columns of arrays
@pytest.mark.parametrize("settings", [{}, {"pred_early_stop": True, "pred_early_stop_freq": 1}], ids=["plain", "early"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", [LGBMClassifier, LGBMRegressor])
def test_an_estimator_of_lightgbm_is_asked_through_its_booster(kind: Any, classes: int, settings: Any) -> None:
    X = table(0, 200, 0.1)
    y = np.digitize(np.nan_to_num(X).sum(axis=1), np.linspace(-1, 1, classes - 1))
    model = kind(n_estimators=9, n_jobs=1, verbose=-1, **settings).fit(X, y)
    own = getattr(model, "predict_proba", model.predict)
    found = by_booster(model, own, array, pd.DataFrame(X))
    assert isinstance(found, OfBooster) or settings
    for dtype in (float, np.float32, np.int64, object):
        asked = table(1, 50, 0.1) if dtype != np.int64 else (table(1, 50, 0.0) * 2**30)
        np.testing.assert_array_equal(found(asked.astype(dtype)), own(asked.astype(dtype)))
    thirds = np.repeat(np.array(model.booster_.trees_to_dataframe()["threshold"].dropna())[:, None], 3, axis=1)
    np.testing.assert_array_equal(found(thirds.astype(object)), own(thirds.astype(object)))
