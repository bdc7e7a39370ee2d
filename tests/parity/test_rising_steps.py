"""Logarithms, roots, powers and quantiles of single numbers: the structure follows them, and proves what is nearest."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from agreement import agree, applications, goals, nearest_of_all, wrapped
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    PowerTransformer,
    QuantileTransformer,
    StandardScaler,
)

import mlflow_cf

WORDS = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
QUANTILES = QuantileTransformer(n_quantiles=30, random_state=0)
NORMAL = QuantileTransformer(n_quantiles=40, output_distribution="normal", random_state=0)


def of(function: Any, **options: Any) -> FunctionTransformer:
    return FunctionTransformer(function, **options)


TABLES: dict[str, list[Any]] = {
    "log1p": [(of(np.log1p), ["age", "debt"]), (WORDS, ["job"])],
    "log of the scaled": [(make_pipeline(StandardScaler(), of(np.log)), ["age"]), ("passthrough", ["member"])],
    "root of the filled": [(make_pipeline(SimpleImputer(), of(np.sqrt, validate=True), StandardScaler()), ["debt"])],
    "cube root": [(make_pipeline(StandardScaler(), of(np.cbrt)), ["age", "debt"])],
    "exponentials": [(make_pipeline(StandardScaler(), of(np.expm1)), ["debt"]), (of(np.arcsinh), ["age"])],
    "log of levels": [(make_pipeline(WORDS, of(np.log1p)), ["job", "housing"])],
    "yeo and johnson": [(PowerTransformer(), ["age", "debt"]), (WORDS, ["housing"])],
    "as they come": [(make_pipeline(SimpleImputer(), PowerTransformer(standardize=False)), ["income", "debt"])],
    "box and cox": [(PowerTransformer(method="box-cox"), ["age"]), ("passthrough", ["member"])],
    "quantiles": [(QUANTILES, ["age", "debt"]), (WORDS, ["job"])],
    "normal quantiles": [(make_pipeline(SimpleImputer(), NORMAL), ["income", "age"])],
    "scaled quantiles": [(make_pipeline(NORMAL, StandardScaler()), ["debt"])],
}
LAST: dict[str, tuple[Any, str]] = {
    "linear": (LogisticRegression(C=0.1), "two"),
    "classes": (LogisticRegression(C=0.1), "three"),
    "value": (Ridge(), "value"),
    "network": (MLPClassifier((4,), max_iter=9, random_state=0), "two"),
    "forest": (RandomForestClassifier(6, max_depth=4, random_state=0), "two"),
}
# numbers that numpy has no logarithm or root of are missing to a forest, which can ask for that
CURVES = ("log1p", "log of the scaled", "root of the filled")


def fitted(table: str, last: str) -> tuple[Any, pd.DataFrame, Any]:
    estimator, goal = LAST[last]
    data, wanted = applications(), goals(applications())[goal]
    steps = make_column_transformer(*TABLES[table], sparse_threshold=0)
    between = [SimpleImputer(keep_empty_features=True)] if table == "log of the scaled" else []
    return make_pipeline(steps, *between, estimator).fit(data, wanted), data, wanted


@pytest.mark.parametrize("last", LAST)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # logarithms of the user's own pipelines
def test_steps_that_rise(table: str, last: str) -> None:
    model, data, wanted = fitted(table, last)
    explained = wrapped(model, data, wanted)
    if table in CURVES and last == "forest":
        assert explained.opened.structure is None
        return
    agree(model, explained, data)
    agree(model, explained, applications(100, seed=1).assign(age=np.arange(1, 101), debt=np.linspace(0.1, 90, 100)))


@pytest.mark.parametrize("dtype", ["int8", "int64", "float32", "uint16"])
@pytest.mark.parametrize("step", [of(np.log1p), of(np.cbrt), PowerTransformer(), QUANTILES, NORMAL], ids=str)
def test_numbers_of_other_types(step: Any, dtype: str) -> None:
    data = applications()[["age", "debt"]].astype({"age": dtype})
    wanted = (data["age"] + data["debt"] > 60).astype(int)
    model = make_pipeline(make_column_transformer((step, ["age"]), ("passthrough", ["debt"])), Ridge())
    explained = wrapped(model.fit(data, wanted), data, wanted)
    if explained.opened.structure is not None:
        agree(model, explained, data, tolerance=1e-5)
    else:
        assert dtype == "int8"  # numpy has half precision for some of them


@pytest.mark.parametrize("step", [of(np.log1p), PowerTransformer(), QUANTILES], ids=["logarithm", "power", "quantiles"])
@pytest.mark.parametrize("explainer", ["geco", "exact"])
def test_certified_is_what_trying_every_row_finds(step: Any, explainer: str) -> None:
    data = applications(60, seed=2)[["age", "debt", "member"]].assign(debt=lambda rows: rows["debt"].round())
    wanted = (np.log1p(data["debt"]) * 20 < data["age"]).map({True: "yes", False: "no"})
    steps = make_column_transformer((step, ["age", "debt"]), ("passthrough", ["member"]))
    model = make_pipeline(steps, StandardScaler(), LogisticRegression(C=10.0)).fit(data, wanted)
    explained = mlflow_cf.wrap(model, data, target="yes", explainer=explainer)
    assert explained.opened.structure is not None, explained.opened.note
    refused = data[model.predict(data) == "no"][:6]
    assert len(refused) == 6
    nearest_of_all(model, explained, data, refused)


@pytest.mark.parametrize("step", [QUANTILES, NORMAL], ids=["shares", "normal"])
def test_quantiles_that_are_equal(step: Any) -> None:
    """Also the first ones and the last ones."""
    age = np.repeat([20, 21, 30, 45, 60, 61], [40, 3, 5, 30, 2, 50])
    data = pd.DataFrame({"age": age, "debt": np.linspace(0, 30, len(age)).round()})
    wanted = (data["age"] - data["debt"] > 20).astype(int)
    model = make_pipeline(step, LogisticRegression()).fit(data, wanted)
    explained = wrapped(model, data, wanted)
    agree(model, explained, data)
    agree(model, explained, pd.DataFrame({"age": np.arange(15, 70), "debt": np.linspace(-3, 40, 55)}))


def test_other_functions_are_not_read() -> None:
    for step in (of(np.abs), of(np.log, kw_args={"dtype": "float32"}), of(np.square)):
        data = applications()[["age", "debt"]]
        model = make_pipeline(step, Ridge()).fit(data, data["age"])
        assert "the step FunctionTransformer" in wrapped(model, data, data["age"]).describe()["structure"]
