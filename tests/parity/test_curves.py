"""Powers and splines of one feature before layers: the structure follows them, and proves what trying finds."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from agreement import agree, applications, goals, nearest_of_all, wrapped
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    OneHotEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf

WORDS = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
SPLINES = [
    SplineTransformer(4, extrapolation="constant"),
    SplineTransformer(5, degree=2, extrapolation="linear", include_bias=False),
    SplineTransformer(4, extrapolation="continue", knots="quantile"),
    SplineTransformer(5, extrapolation="periodic"),
]
TABLES: dict[str, list[Any]] = {
    "powers": [(PolynomialFeatures(3), ["age"]), (PolynomialFeatures(2, include_bias=False), ["debt"])],
    "powers of the scaled": [(make_pipeline(StandardScaler(), PolynomialFeatures(4)), ["debt"])],
    "powers of the filled": [(make_pipeline(SimpleImputer(), PolynomialFeatures(2), StandardScaler()), ["income"])],
    "powers of levels": [(make_pipeline(WORDS, PolynomialFeatures(2)), ["housing"]), ("passthrough", ["age"])],
    "interactions of levels": [(make_pipeline(WORDS, PolynomialFeatures(2, interaction_only=True)), ["job"])],
    "powers of bins": [
        (
            make_pipeline(
                KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf"), PolynomialFeatures(2)
            ),
            ["age"],
        )
    ],
    "powers of truth values": [(PolynomialFeatures(2), ["member"]), (PolynomialFeatures(2), ["age"])],
    "powers of powers": [(make_pipeline(PolynomialFeatures(2), StandardScaler(), PolynomialFeatures(2)), ["debt"])],
    **{f"splines, {one.extrapolation}, {one.degree}": [(one, ["age", "debt"]), (WORDS, ["job"])] for one in SPLINES},
    # scikit-learn takes a higher degree for all features but the first one here, and then no structure agrees with it
    "splines, linear, 1": [(SplineTransformer(4, degree=1, extrapolation="linear"), ["age"])],
    "splines of the filled": [(make_pipeline(SimpleImputer(), StandardScaler(), SPLINES[0]), ["income", "age"])],
    "powers of splines": [(make_pipeline(SPLINES[0], PolynomialFeatures(2)), ["debt"])],
}
LAST: dict[str, tuple[Any, str]] = {
    "linear": (LogisticRegression(C=0.1), "two"),
    "classes": (make_pipeline(StandardScaler(), LogisticRegression(C=0.1)), "three"),
    "value": (Ridge(), "value"),
    "network": (make_pipeline(StandardScaler(), MLPClassifier((4,), max_iter=9, random_state=0)), "two"),
}


@pytest.mark.parametrize("last", LAST)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_curves(table, last):
    estimator, goal = LAST[last]
    data, wanted = applications(), goals(applications())[goal]
    parts = make_column_transformer(*TABLES[table], sparse_threshold=0)
    model = make_pipeline(parts, estimator).fit(data, wanted)
    explained = wrapped(model, data, wanted)
    agree(model, explained, data)
    beyond = applications(100, seed=1).assign(age=np.arange(100), debt=np.linspace(-9, 90, 100))
    agree(model, explained, beyond)


@pytest.mark.parametrize("curve", [PolynomialFeatures(2), SplineTransformer(4)], ids=["powers", "splines"])
@pytest.mark.parametrize("explainer", ["geco", "exact"])
def test_certified_is_what_trying_every_row_finds(curve, explainer):
    data = applications(60, seed=2)[["age", "debt", "member"]].assign(debt=lambda rows: rows["debt"].round())
    middle = (data["age"] - 45).abs() + 0.4 * data["debt"] < 16  # neither small nor large numbers are wanted
    model = make_pipeline(
        make_column_transformer((curve, ["age"]), ("passthrough", ["debt", "member"])),
        StandardScaler(),
        LogisticRegression(C=10.0),
    ).fit(data, middle.map({True: "yes", False: "no"}))
    explained = mlflow_cf.wrap(model, data, target="yes", explainer=explainer)
    assert explained.opened.structure is not None, explained.opened.note
    refused = data[model.predict(data) == "no"][:6]
    assert len(refused) == 6
    nearest_of_all(model, explained, data, refused)


def test_numbers_between_observed_ones_are_never_certified_wrongly():
    some = np.random.default_rng(0).normal(size=40) / 9
    data = pd.DataFrame({"age": np.repeat([20.0, 30.0, 60.0, 70.0], 10) + some, "other": np.arange(40.0) % 4})
    wanted = ((data["age"] - 45).abs() < 20) * 1
    curve = make_column_transformer((PolynomialFeatures(2), ["age"]))
    model = make_pipeline(curve, StandardScaler(), LogisticRegression(C=50.0)).fit(data, wanted)
    explained = mlflow_cf.wrap(model, data, target=1, values="continuous", explainer="exact")
    assert explained.opened.structure is not None
    refused = data[model.predict(data) == 0][::7]
    for age, answer in zip(refused["age"], explained.explain(refused), strict=True):
        assert answer.status == "found"
        fine = np.linspace(data["age"].min(), data["age"].max(), 20_000)
        met = fine[model.predict(pd.DataFrame({"age": fine, "other": 0.0})) == 1]
        nearest = np.abs(met - age).min() / np.ptp(data["age"]) / 4 + 1 / 4  # of two features, halves of l0 and of l1
        for found in answer.counterfactuals:
            assert found.bound is None or found.bound <= nearest + 1e-3
            if found.proof == "optimal":
                assert found.distance <= nearest + 1e-3


CLOSED: dict[str, tuple[Any, str]] = {
    "PolynomialFeatures that multiplies several features": (PolynomialFeatures(2), "line"),
    "DecisionTreeClassifier behind powers or splines": (SplineTransformer(4), "tree"),
    "KBinsDiscretizer behind powers or splines": (
        make_pipeline(SplineTransformer(4), KBinsDiscretizer(2, quantile_method="averaged_inverted_cdf")),
        "line",
    ),
}


@pytest.mark.parametrize("reason", CLOSED)
@pytest.mark.filterwarnings("ignore:Bins whose width:UserWarning")
def test_what_stood_in_the_way_is_named(reason):
    step, last = CLOSED[reason]
    data, wanted = applications()[["age", "debt"]], goals(applications())["two"]
    estimator = LogisticRegression() if last == "line" else DecisionTreeClassifier(max_depth=3)
    explained = wrapped(make_pipeline(StandardScaler(), step, estimator).fit(data, wanted), data, wanted)
    assert reason in explained.opened.note
    closed = [one for one in explained.describe()["steps"] if not one["opened"]]
    assert closed
    assert closed[0]["fix"]
