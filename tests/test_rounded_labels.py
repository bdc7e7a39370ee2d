"""Labels that rounding decides: they keep no model closed, and the logged model alone decides about such rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import Floats
from mlflow_cf.model.flavors import open_native
from mlflow_cf.options import WrapOptions
from mlflow_cf.wrapping import assemble

RNG = np.random.default_rng(0)
NAMES = ["one", "two"]
BIAS = -0.25
CLOSE = [2.0**-27, -(2.0**-27), 2.0**-30, 2.0**-40]  # from the threshold: float32 shares are 0.5 there
# All logits of rows are `one` + `two` + BIAS, and their terms are so short that they add up without rounding.
TABLE = pd.DataFrame({"one": RNG.integers(-8, 8, 60) / 8 + 1 / 16, "two": RNG.integers(-4, 4, 60) / 4}).astype(float)
TIES = pd.DataFrame({"one": [0.25 + near for near in CLOSE], "two": 0.0})
BACKGROUND = pd.concat([TABLE, TIES], ignore_index=True)


def shares(table: pd.DataFrame) -> Floats:
    """Return the probabilities (m, 2) that a model which calculates in float32 gives."""
    logits = (table["one"] + table["two"] + BIAS).to_numpy(np.float64)
    second = (1.0 / (1.0 + np.exp(-logits))).astype(np.float32)
    return np.column_stack([np.float32(1.0) - second, second]).astype(np.float64)


def labels(table: pd.DataFrame) -> Any:
    return shares(table).argmax(axis=1)


def wrapped(decide: Any = labels, tolerance: float = 1e-5) -> ExplainedModel:
    fitted = LogisticRegression().fit(BACKGROUND, labels(BACKGROUND))
    fitted.coef_, fitted.intercept_ = np.ones((1, 2)), np.array([BIAS])
    opened = open_native(fitted, rows=BACKGROUND)
    model = replace(opened, decide=decide, score=shares, both=None, tolerance=tolerance)
    return assemble(model, BACKGROUND, None, WrapOptions(target=1))


def test_float32_decides_otherwise_on_some_rows() -> None:
    fitted = (TIES["one"] + TIES["two"] + BIAS > 0).astype(int)
    assert fitted.tolist() == [1, 0, 1, 1]
    assert labels(TIES).tolist() == [0, 0, 0, 0]


def test_rows_within_rounding_of_the_threshold_keep_no_model_closed() -> None:
    explained = wrapped()
    facts = explained.describe()
    assert facts["opened"], facts["structure"]
    assert facts["parity"]["ties"] >= 3
    assert "by rounding alone" in str(facts)


@pytest.mark.parametrize("explainer", ["geco", "exact"])
def test_certificates_of_such_rows_are_those_of_the_logged_model(explainer: str) -> None:
    explained = wrapped()
    rows = pd.concat([TABLE[labels(TABLE) == 0], TIES], ignore_index=True)
    every = pd.MultiIndex.from_product([BACKGROUND[name].unique() for name in NAMES], names=NAMES).to_frame(index=False)
    good = every[labels(every) == 1]
    spread = (BACKGROUND.max() - BACKGROUND.min()).to_numpy()
    answers = explained.explain(rows, explainer=explainer, certify=True)
    for (_, row), answer in zip(rows.iterrows(), answers, strict=True):
        own = good.copy()
        changed = np.abs(own.to_numpy() - row.to_numpy()) / spread
        mixed = good.assign(one=row["one"])[labels(good.assign(one=row["one"])) == 1]
        other = good.assign(two=row["two"])[labels(good.assign(two=row["two"])) == 1]
        tables = [changed, *(np.abs(some.to_numpy() - row.to_numpy()) / spread for some in (mixed, other))]
        moves = np.concatenate(tables)
        best = (0.5 * (moves > 0).mean(axis=1) + 0.5 * moves.mean(axis=1)).min()
        (found,) = answer.counterfactuals
        assert answer.prediction == 0
        assert labels(pd.DataFrame([found.row]))[0] == 1
        assert (found.proof, found.distance) == ("optimal", pytest.approx(best, abs=1e-9))


def test_labels_that_rounding_does_not_explain_keep_a_model_closed() -> None:
    def turned(table: pd.DataFrame) -> Any:
        """Return other labels where both features are high, as in no row of the background."""
        return np.where((table["one"] > 0.5) & (table["two"] > 0.4), 0, labels(table))

    seen = BACKGROUND[(BACKGROUND["one"] <= 0.5) | (BACKGROUND["two"] <= 0.4)]
    fitted = LogisticRegression().fit(seen, labels(seen))
    fitted.coef_, fitted.intercept_ = np.ones((1, 2)), np.array([BIAS])
    opened = replace(open_native(fitted, rows=seen), decide=turned, score=shares, both=None, tolerance=1e-5)
    facts = assemble(opened, seen, None, WrapOptions(target=1)).describe()
    assert not facts["opened"]
    assert "a label differs" in facts["structure"]


def test_models_that_calculate_in_float64_have_no_such_rows() -> None:
    facts = wrapped(tolerance=1e-6).describe()
    assert not facts["opened"]
    assert "a label differs" in facts["structure"]
