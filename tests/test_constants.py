"""Columns that never vary in the background: kept as a row has them, never proposed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import mlflow_cf
from mlflow_cf.features import FeatureSpace
from mlflow_cf.words.description import description

RNG = np.random.default_rng(0)
ROWS = 60
CONSTANTS: dict[str, Any] = {
    "pixel": np.zeros(ROWS),
    "whole": np.full(ROWS, 7),
    "country": ["NL"] * ROWS,
    "branch": pd.Categorical(["north"] * ROWS, categories=["north", "south"]),
    "member": np.ones(ROWS, dtype=bool),
    "maybe": pd.array([True] * ROWS, dtype="boolean"),
    "empty": np.full(ROWS, np.nan),
    "nothing": pd.Series([None] * ROWS, dtype=object),
    "no_level": pd.Categorical([None] * ROWS, categories=[]),
    "no_count": pd.array([None] * ROWS, dtype="Int64"),
    "no_date": pd.Series([pd.NaT] * ROWS, dtype="datetime64[us]"),
    "since": pd.Series([pd.Timestamp("2020-02-29")] * ROWS),
}
FRAME = pd.DataFrame(
    {
        "income": RNG.integers(10, 60, ROWS).astype(float),
        "home": RNG.choice(["rent", "own"], ROWS),
        **CONSTANTS,
    }
)
OTHERS: dict[str, Any] = {
    "pixel": 3.5,
    "whole": 9,
    "country": "BE",
    "branch": "south",
    "member": False,
    "maybe": False,
    "empty": 1.5,
    "nothing": "something",
    "no_count": 4,
    "no_date": pd.Timestamp("2021-01-01"),
    "since": pd.Timestamp("2021-01-01"),
}
EXPLAINERS = ("geco", "exact", "random_search", "nearest_row")


def favourable(rows: pd.DataFrame) -> Any:
    return (rows["income"] + 10 * (rows["home"] == "own") > 40).to_numpy()


def forest() -> Any:
    levels = OneHotEncoder(handle_unknown="ignore")
    columns = make_column_transformer((levels, ["home", "country"]), ("passthrough", ["income", "pixel", "whole"]))
    return make_pipeline(columns, RandomForestClassifier(10, random_state=0)).fit(FRAME, favourable(FRAME).astype(int))


def refused() -> pd.DataFrame:
    return FRAME[~favourable(FRAME)].head(1)


def differing() -> pd.DataFrame:
    """Return a refused row whose constants are others than those of the background."""
    row = refused().reset_index(drop=True)
    for name, value in OTHERS.items():
        row[name] = pd.Series([value], dtype=FRAME[name].dtype)
    return row


def kept(found: mlflow_cf.Counterfactual, expected: dict[str, Any]) -> bool:
    changed = {change.feature for change in found.changes}
    return not changed & set(CONSTANTS) and all(found.row[name] == value for name, value in expected.items())


@pytest.mark.parametrize("values", ["observed", "grid", "continuous"])
@pytest.mark.parametrize("explainer", EXPLAINERS)
class TestEveryKind:
    def test_is_kept_by_a_row_that_has_the_constant(self, explainer: str, values: Any) -> None:
        (found,) = mlflow_cf.wrap(forest(), FRAME, explainer=explainer, values=values).explain(refused())
        assert found.status == "found"
        assert kept(found.counterfactuals[0], {"pixel": 0, "country": "NL", "nothing": None, "empty": None})

    def test_is_kept_by_a_row_that_differs(self, explainer: str, values: Any) -> None:
        (found,) = mlflow_cf.wrap(forest(), FRAME, explainer=explainer, values=values).explain(differing())
        assert found.status == "found"
        dates = {"no_date": "2021-01-01", "since": "2021-01-01"}
        assert kept(found.counterfactuals[0], OTHERS | dates)


class TestConstants:
    def test_the_model_is_opened_all_the_same(self) -> None:
        explained = mlflow_cf.wrap(forest(), FRAME)
        assert explained.describe()["opened"]

    def test_a_function_that_reads_them_is_asked_with_the_values_of_the_row(self) -> None:
        def score(rows: pd.DataFrame) -> Any:
            return favourable(rows) * 0.9 * (rows["pixel"] == 3.5)

        explained = mlflow_cf.wrap(lambda rows: score(rows) if (rows["pixel"] != 0).any() else favourable(rows) * 1.0,
                                   FRAME, output="score", explainer="nearest_row")  # fmt: skip
        (found,) = explained.explain(differing())
        assert found.counterfactuals[0].probability == 0.9

    def test_a_group_leaves_them_out(self) -> None:
        constraints = {"groups": [["home", "country", "pixel"]]}
        (found,) = mlflow_cf.wrap(forest(), FRAME, constraints=constraints, certify=True).explain(differing())
        assert found.status == "found"
        assert kept(found.counterfactuals[0], {"country": "BE", "pixel": 3.5})

    def test_a_range_that_the_row_misses_cannot_be_met(self) -> None:
        explained = mlflow_cf.wrap(forest(), FRAME, constraints={"ranges": {"pixel": [0, 1]}})
        assert explained.explain(refused())[0].status == "found"
        assert explained.explain(differing())[0].status == "infeasible"

    def test_the_description_names_them(self) -> None:
        explained = mlflow_cf.wrap(forest(), FRAME)
        facts = explained.describe()
        assert {name for name, fact in facts["features"].items() if fact["constant"]} == set(CONSTANTS)
        assert "never proposed, because constant in the background (12): pixel, whole" in description(facts)

    def test_one_value_and_missing_ones_vary(self) -> None:
        space = FeatureSpace.infer(pd.DataFrame({"debts": [2.0, np.nan, 2.0], "age": [1, 2, 3]}))
        assert not space["debts"].constant
        assert space["debts"].values.tolist() == [2.0]

    def test_a_declared_domain_is_proposed(self) -> None:
        space = FeatureSpace.infer(FRAME[["whole", "home"]], {"whole": {"low": 5, "high": 9}})
        assert not space["whole"].constant

    def test_nothing_that_varies_is_refused(self) -> None:
        with pytest.raises(mlflow_cf.InputError, match="data: no column varies; give rows that differ"):
            mlflow_cf.wrap(LogisticRegression().fit([[0.0], [1.0]], [0, 1]), FRAME[["pixel"]])

    def test_distances_do_not_divide_by_their_range(self) -> None:
        frame, model = FRAME[["income", "pixel"]], LogisticRegression()
        model.fit(frame, favourable(FRAME).astype(int))
        for scale in ("range", "mad", "percentile"):
            distance = {"l0": 0.5, "l1": 0.5, "scale": scale}
            explained = mlflow_cf.wrap(model, frame, distance=distance, certify=True)
            (found,) = explained.explain(frame.assign(pixel=9.0)[frame["income"] < 20].head(1))
            assert np.isfinite(found.counterfactuals[0].distance)


class TestServed:
    def test_saved_loaded_and_served(self, tmp_path: Path) -> None:
        mlflow_cf.save_model(forest(), tmp_path / "model", FRAME)
        loaded = mlflow_cf.load_model(tmp_path / "model")
        assert (
            loaded.explain(differing())[0].to_dict()
            == mlflow_cf.wrap(forest(), FRAME).explain(differing())[0].to_dict()
        )
        served = mlflow.pyfunc.load_model(str(tmp_path / "model"))
        plain = {"income": 12.0, "home": "rent", "pixel": 3.5, "whole": 9, "country": "BE", "branch": "south",
                 "member": False, "maybe": False, "nothing": "something", "since": "2021-01-01"}  # fmt: skip
        reply = served.predict(pd.DataFrame([plain])).to_dict("records")[0]
        assert reply["status"] == "found"
        assert reply["counterfactuals"][0]["row"]["nothing"] == "something"
        json.dumps(reply, allow_nan=False)
