"""Rows for the boosting libraries: numbers with gaps, booleans, and columns of pandas' category dtype with gaps."""

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from checker import one_row

import mlflow_cf
from mlflow_cf.model.judge import OpenModel

ROWS = 2500
RNG = np.random.default_rng(7)


def with_gaps(values):
    """Return `values` with one of ten missing."""
    return pd.Series(values).mask(RNG.random(ROWS) < 0.1)


NUMBERS = pd.DataFrame(
    {
        "age": RNG.integers(18, 80, ROWS),
        "income": with_gaps(RNG.normal(40, 10, ROWS).round(1)),
        "debt": with_gaps(RNG.normal(5, 2, ROWS).round(2).astype("float32")),
        "owner": RNG.random(ROWS) < 0.4,
    }
)
MIXED = NUMBERS.assign(
    region=pd.Categorical(with_gaps(RNG.choice(["north", "south", "west"], ROWS))),
    grade=pd.Categorical(RNG.choice([1, 3, 7], ROWS)),
)
VALUE = (
    MIXED["income"].fillna(35)
    - 2 * MIXED["debt"].fillna(5)
    + 6 * MIXED["owner"]
    + 8 * (MIXED["region"] == "south")
    + 5 * (MIXED["grade"] == 7)
).to_numpy(dtype=np.float64)
GOOD = (VALUE > 38).astype(int)
CLASS = np.digitize(VALUE, [32, 42])
WORD = np.array(["low", "middle", "top"])[CLASS]


def check_counterfactuals(
    explained: mlflow_cf.ExplainedModel,
    rows: pd.DataFrame,
    wanted: Callable[[pd.DataFrame], Any],
    **options: Any,
) -> Sequence[mlflow_cf.Explanation]:
    """Explain `rows`; check that there are counterfactuals, and that `wanted` holds of every one of them."""
    explanations = explained.explain(rows, max_evaluations=3000, **options)
    found = [one for explanation in explanations for one in explanation.counterfactuals]
    assert len(found) >= len(rows) // 2
    for one in found:
        assert np.asarray(wanted(one_row(explained.background, one.row))).all(), one
    return explanations


def zip_found(
    explanations: Sequence[mlflow_cf.Explanation], rows: pd.DataFrame
) -> list[tuple[mlflow_cf.Counterfactual, pd.Series]]:
    """Return every counterfactual beside the row it explains."""
    pairs = zip(explanations, rows.iloc, strict=True)
    return [(one, row) for explanation, row in pairs for one in explanation.counterfactuals]


def same_answers(one: OpenModel, two: OpenModel, rows: pd.DataFrame) -> None:
    """Check that two opened models answer `rows` to the same bits."""
    assert one.classes == two.classes
    np.testing.assert_array_equal(one.decide(rows), two.decide(rows))
    assert (one.score is None) == (two.score is None)
    if one.score is not None and two.score is not None:
        np.testing.assert_array_equal(one.score(rows), two.score(rows))


def tables_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every answer go through the library's own way with tables."""

    def no_array(self, table):
        del self, table

    monkeypatch.setattr("mlflow_cf_flavors.boosting.BoosterColumns.numbers", no_array)


def as_json_brings_them(rows: pd.DataFrame) -> pd.DataFrame:
    """Return `rows` as MLflow's server reads them from JSON: no categories, None for what is missing."""
    return pd.read_json(io.StringIO(rows.to_json(orient="records")), orient="records", dtype=False)
