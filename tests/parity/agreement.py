"""Rows of a loan office, and the comparison of a structure with the model it was read from."""

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mlflow_cf
from mlflow_cf.structures import TreeEnsemble, score_rows
from mlflow_cf.testing.checker import Ruler, plain_rows, table_of

WORDS = np.array(["rent", "own", "free", None], dtype=object)


def applications(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    """Return rows with numbers, gaps, whole numbers, levels and truth values."""
    rng = np.random.default_rng(seed)
    income = rng.normal(40, 12, rows)
    return pd.DataFrame(
        {
            "income": np.where(rng.random(rows) < 0.1, np.nan, income),
            "age": rng.integers(18, 80, rows),
            "debt": rng.gamma(2, 5, rows),
            "housing": WORDS[rng.integers(0, 4, rows)],
            "job": np.array(["a", "b", "c"])[rng.integers(0, 3, rows)],
            "member": rng.random(rows) < 0.5,
        }
    )


def goals(data: pd.DataFrame) -> dict[str, pd.Series]:
    """Return what to predict: two labels, three labels or a value."""
    value = data["income"].fillna(30) + 0.3 * data["age"] - data["debt"] + 6 * (data["job"] == "b")
    return {
        "two": (value > value.median()).map({True: "yes", False: "no"}),
        "three": pd.cut(value, 3, labels=["low", "mid", "high"]).astype(str),
        "value": value,
    }


def named(model: object) -> str:
    """Return the name of a model's class."""
    return type(model).__name__


def labelled(model: Any) -> bool:
    """Whether a model answers labels; CatBoost's regressors have none, in an empty array."""
    return len(getattr(model, "classes_", ())) > 0


def wrapped(model: Any, data: pd.DataFrame, wanted: Any) -> mlflow_cf.ExplainedModel:
    """Wrap a model of what is `wanted` with the target that fits its kind."""
    labels = np.asarray(wanted)
    target: Any = labels[0].item() if isinstance(labels[0], np.generic) else labels[0]
    if not labelled(model):
        target = mlflow_cf.Target(low=float(np.median(labels)))
    return mlflow_cf.wrap(model, data, target=target)


def agree(model: Any, explained: mlflow_cf.ExplainedModel, rows: pd.DataFrame, tolerance: float = 1e-6) -> None:
    """Compare labels and scores on `rows`, some with levels the background never had."""
    assert explained.opened.structure is not None, explained.opened.note
    space = explained.space.covering(rows)
    scores = score_rows(explained.opened.structure, space.encode(rows))
    if labelled(model):
        # CatBoost has its labels of several classes in a column
        assert model.classes_[scores.argmax(axis=1)].tolist() == model.predict(rows).reshape(-1).tolist()
        ask = getattr(model, "predict_proba", None) or model.decision_function
        truth = ask(rows)
        truth = np.column_stack([-truth, truth]) if truth.ndim == 1 else truth
    else:
        truth = model.predict(rows)[:, None]
    assert np.abs((scores - truth) / np.maximum(1, np.abs(truth))).max() <= tolerance


def nearest_of_all(model: Any, explained: mlflow_cf.ExplainedModel, data: pd.DataFrame, refused: pd.DataFrame) -> None:
    """Compare certified answers "yes" of `refused` rows with the nearest of all rows of values in `data`."""
    ruler = Ruler(data)
    for query, answer in zip(plain_rows(refused), explained.explain(refused, certify=True), strict=True):
        values = [sorted({*data[name].tolist(), query[name]}) for name in data]
        tried = [dict(zip(data, some, strict=True)) for some in product(*values)]
        met = np.flatnonzero(model.predict(table_of(tried, data)) == "yes")
        assert answer.status == ("found" if len(met) else "infeasible")
        for found in answer.counterfactuals:
            assert found.proof == "optimal"
            assert found.distance == pytest.approx(min(ruler.distance(query, tried[at]) for at in met), abs=1e-9)


def near_cuts(explained: mlflow_cf.ExplainedModel, rows: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    """Return `rows` over and over with each of the columns `names` at its cuts, just below and just above them."""
    structure = explained.opened.structure
    assert isinstance(structure, TreeEnsemble), explained.opened.note
    tables = []
    for name in names:
        cuts = structure.lookups[explained.space.index[name]].cuts
        cuts = cuts[np.isfinite(cuts)].astype(rows[name].dtype)
        near = np.concatenate([cuts, np.nextafter(cuts, -np.inf), np.nextafter(cuts, np.inf)])
        repeated = rows.iloc[np.resize(np.arange(len(rows)), len(near))].reset_index(drop=True)
        tables.append(repeated.assign(**{name: near.astype(rows[name].dtype)}))
    return pd.concat(tables, ignore_index=True)
