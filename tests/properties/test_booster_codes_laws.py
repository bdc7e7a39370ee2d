"""Boosters that are asked about codes say of rows what they say of the tables that these stand for, to the last bit."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from hypothesis import given, reject
from hypothesis import strategies as st
from laws import dear

from mlflow_cf.errors import InputError
from mlflow_cf.features import CodedTable, FeatureSpace
from mlflow_cf.model.flavors import open_native
from mlflow_cf.model.judge import Judge

CATEGORIES = ["a", "b", "c", "d"]
KINDS = ["float64", "float32", "int64", "int8", "bool", "Int64", "category", "ordered"]
MODELS = ["xgboost", "xgboost regressor", "xgboost booster", "lightgbm", "lightgbm regressor", "lightgbm booster"]


def column(kind: str, rng: np.random.Generator, count: int, *, missing: bool, unseen: bool) -> pd.Series[Any]:
    """Return values of a column; some may be missing, or levels that others lack."""
    gone = rng.random(count) < 0.1 * missing
    if kind in ("category", "ordered"):
        known = [*CATEGORIES, "e"] if unseen else CATEGORIES
        dtype = pd.CategoricalDtype(known, ordered=kind == "ordered")
        values: pd.Series[Any] = pd.Series(rng.choice(known, count)).astype(dtype)
        return values.mask(pd.Series(gone))
    values = pd.Series(rng.normal(2, 3, count) > 2 if kind == "bool" else rng.normal(2, 3, count).round())
    values = values.astype(kind)
    return values.mask(pd.Series(gone)) if kind in ("float64", "float32", "Int64") else values


def table(kinds: list[str], seed: int, count: int, *, missing: bool, unseen: bool = False) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    columns = {f"x{at}": column(kind, rng, count, missing=missing, unseen=unseen) for at, kind in enumerate(kinds)}
    return pd.DataFrame(columns)


def fitted(name: str, rows: pd.DataFrame, classes: int) -> Any:
    """Return a model that learned random labels, which trees can tell apart as well as any."""
    y = np.random.default_rng(len(rows)).integers(0, classes, len(rows))
    few: dict[str, Any] = {"n_estimators": 3, "n_jobs": 1}
    match name:
        case "xgboost":
            return xgboost.XGBClassifier(**few, enable_categorical=True).fit(rows, y)
        case "xgboost regressor":
            return xgboost.XGBRegressor(**few, enable_categorical=True).fit(rows, y)
        case "xgboost booster":
            data = xgboost.DMatrix(rows, label=y % 2, enable_categorical=True)
            return xgboost.train({"objective": "binary:logistic", "nthread": 1}, data, 3)
        case "lightgbm":
            return lightgbm.LGBMClassifier(**few, verbose=-1, min_child_samples=2).fit(rows, y)
        case "lightgbm regressor":
            return lightgbm.LGBMRegressor(**few, verbose=-1, min_child_samples=2).fit(rows, y)
    settings = {"objective": "multiclass", "num_class": classes, "verbose": -1, "num_threads": 1}
    return lightgbm.train(settings, lightgbm.Dataset(rows, label=y), 3)


def asked(judge: Judge, rows: CodedTable) -> Any:
    """Return what a judge says of rows, or the kind of its error."""
    try:
        found = judge.verdict(rows)
    except Exception as error:  # noqa: BLE001  XGBoost refuses levels that it does not know
        return type(error)
    return found.codes, found.values, found.scores


@dear(4)
@given(
    name=st.sampled_from(MODELS),
    kinds=st.lists(st.sampled_from(KINDS), min_size=2, max_size=5),
    classes=st.integers(2, 3),
    seed=st.integers(0, 100),
    missing=st.booleans(),
    unseen=st.booleans(),
)
def test_the_same_of_codes(
    name: str, kinds: list[str], classes: int, seed: int, *, missing: bool, unseen: bool
) -> None:
    rows = table(kinds, seed, 60, missing=missing)
    try:
        known = FeatureSpace.infer(rows)
        opened = open_native(fitted(name, rows, classes), rows=rows)
    except (InputError, ValueError):  # a column that does not vary, or that a library does not take
        reject()
    space, codes, misfits = known.encode_covered(rows)
    judge, _ = Judge.learn(opened, CodedTable(space, np.delete(codes, list(misfits), axis=0)))
    by_table = replace(judge, coded=None)
    given_rows = table(kinds, seed + 1, 40, missing=missing, unseen=unseen)
    wider, codes, misfits = known.encode_covered(given_rows)
    some = CodedTable(wider, np.delete(codes, list(misfits), axis=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_equal(asked(judge, some), asked(by_table, some))


@pytest.mark.parametrize("name", MODELS)
def test_codes_are_asked_about(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table(["float64", "int64", "category", "bool"], 0, 200, missing=False)
    known = FeatureSpace.infer(rows)
    judge, _ = Judge.learn(open_native(fitted(name, rows, 2), rows=rows), CodedTable(known, known.encode(rows)))
    assert judge.coded is not None
    some = CodedTable(known, known.encode(rows))
    monkeypatch.setattr(FeatureSpace, "decode", lambda *_: pytest.fail("a table was made"))
    judge.predict(some)


@pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
def test_levels_in_another_order_are_left_to_the_library(name: str) -> None:
    rows = table(["float64", "category"], 0, 200, missing=False)
    model = fitted(name, rows, 2)
    turned = rows.assign(x1=rows["x1"].cat.reorder_categories(CATEGORIES[::-1]))
    known = FeatureSpace.infer(turned)
    judge, _ = Judge.learn(open_native(model, rows=turned), CodedTable(known, known.encode(turned)))
    assert judge.coded is None
    assert judge.predict(CodedTable(known, known.encode(turned)))[0] == model.predict(turned).tolist()
