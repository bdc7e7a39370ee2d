"""Naive Bayes, generalised linear models and support vectors with a linear kernel: what is read is what they answer."""

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from agreement import agree, applications, goals, nearest_of_all, wrapped
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    GammaRegressor,
    LogisticRegression,
    PoissonRegressor,
    RANSACRegressor,
    TheilSenRegressor,
    TweedieRegressor,
)
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, ComplementNB, GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.svm import SVC, SVR, NuSVC, NuSVR

import mlflow_cf
from mlflow_cf.structures import Layers

NUMBERS, LEVELS = ["income", "age", "debt"], ["housing", "job"]
FILLED = make_pipeline(SimpleImputer(), MinMaxScaler())
WORDS = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
BINS = KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf")
TABLES: dict[str, list[Any]] = {
    "numbers": [(FILLED, NUMBERS)],
    "levels": [(WORDS, LEVELS)],
    "both": [(FILLED, NUMBERS), (WORDS, LEVELS), ("passthrough", ["member"])],
    "powers": [(make_pipeline(SimpleImputer(), PolynomialFeatures(2), MinMaxScaler()), ["income"]), (WORDS, ["job"])],
    "codes": [
        (make_pipeline(SimpleImputer(), BINS), NUMBERS),
        (OrdinalEncoder(), ["job"]),
        ("passthrough", ["member"]),
    ],
}
BAYES = {
    "normal": GaussianNB(),
    "normal, smoothed": GaussianNB(var_smoothing=0.1, priors=None),
    "bernoulli": BernoulliNB(binarize=0.4),
    "bernoulli of zeros and ones": BernoulliNB(binarize=None),
    "multinomial": MultinomialNB(),
    "complement": ComplementNB(),
    "complement, normalised": ComplementNB(norm=True),
    "categories": CategoricalNB(),
}
ZEROS_AND_ONES, WHOLE = ("levels",), ("levels", "codes")
FITS = {
    (bayes, table)
    for bayes, table in product(BAYES, TABLES)
    if table in {"bernoulli of zeros and ones": ZEROS_AND_ONES, "categories": WHOLE}.get(bayes, tuple(TABLES))
}


@pytest.mark.parametrize(("bayes", "table"), sorted(FITS))
@pytest.mark.parametrize("goal", ["two", "three"])
def test_naive_bayes(bayes: str, table: str, goal: str) -> None:
    data, wanted = applications(), goals(applications())[goal]
    model = make_pipeline(make_column_transformer(*TABLES[table], sparse_threshold=0), BAYES[bayes]).fit(data, wanted)
    explained = wrapped(model, data, wanted)
    assert isinstance(explained.opened.structure, Layers), explained.opened.note
    agree(model, explained, data)
    agree(model, explained, applications(100, seed=1).assign(job=data["job"][:100]))


@pytest.mark.parametrize("kind", ["normal", "bernoulli", "multinomial"])
@pytest.mark.parametrize("explainer", ["geco", "exact"])
def test_certified_is_what_trying_every_row_finds(kind: str, explainer: str) -> None:
    data = applications(60, seed=2)[["age", "debt", "member"]].assign(debt=lambda rows: rows["debt"].round())
    middle = (data["age"] - 45).abs() + 0.4 * data["debt"] < 16  # neither small nor large numbers are wanted
    bayes = BernoulliNB(binarize=30.0) if kind == "bernoulli" else BAYES[kind]
    model = make_pipeline("passthrough", bayes).fit(data, middle.map({True: "yes", False: "no"}))
    explained = mlflow_cf.wrap(model, data, target="yes", explainer=explainer)
    assert explained.opened.structure is not None, explained.opened.note
    refused = data[model.predict(data) == "no"][:6]
    assert len(refused) == 6
    nearest_of_all(model, explained, data, refused)


def test_long_tables_are_explained_in_blocks() -> None:
    data, wanted = applications(), goals(applications())["two"]
    model = make_pipeline(make_column_transformer(*TABLES["both"], sparse_threshold=0), GaussianNB()).fit(data, wanted)
    found = mlflow_cf.wrap(model, data, target="yes").explain(data, n_jobs=1)
    some = range(0, len(data), 40)
    alone = [mlflow_cf.wrap(model, data, target="yes").explain(data.iloc[[at]])[0] for at in some]
    assert [one.counterfactuals for one in alone] == [found[at].counterfactuals for at in some]
    assert {each.proof for one in found for each in one.counterfactuals} <= {"optimal", "none"}


LINEAR: dict[str, tuple[Any, str]] = {
    "support vectors": (SVC(kernel="linear"), "two"),
    "nu support vectors": (NuSVC(kernel="linear", nu=0.3), "two"),
    "values by support vectors": (SVR(kernel="linear"), "value"),
    "values by nu support vectors": (NuSVR(kernel="linear"), "value"),
    "poisson": (PoissonRegressor(), "positive"),
    "gamma": (GammaRegressor(), "positive"),
    "tweedie": (TweedieRegressor(power=1.5), "positive"),
    "tweedie, identity": (TweedieRegressor(power=0), "value"),
    "tweedie, log": (TweedieRegressor(power=0, link="log"), "positive"),
    "ransac": (RANSACRegressor(random_state=0), "value"),
    "theil and sen": (TheilSenRegressor(random_state=0, max_subpopulation=100), "value"),
    "self training": (SelfTrainingClassifier(LogisticRegression()), "some"),
}


@pytest.mark.parametrize("kind", LINEAR)
def test_linear_models_of_other_kinds(kind: str) -> None:
    estimator, goal = LINEAR[kind]
    data, wanted = applications(), goals(applications())
    wanted["positive"] = np.exp(wanted["value"] / wanted["value"].std() / 2)
    wanted["some"] = pd.Series(np.where(np.arange(len(data)) % 3, (wanted["two"] == "yes").astype(int), -1))
    steps = make_column_transformer((make_pipeline(SimpleImputer(), StandardScaler()), NUMBERS), (WORDS, LEVELS))
    model = make_pipeline(steps, estimator).fit(data, wanted[goal])
    explained = wrapped(model, data, model.predict(data))
    agree(model, explained, data)
    agree(model, explained, applications(100, seed=1))


@pytest.mark.parametrize(
    ("reason", "estimator", "goal"),
    [
        ("SVC of several classes", SVC(kernel="linear"), "three"),
        ("SVC with the kernel rbf", SVC(), "two"),
        ("GaussianNB behind PCA, which mixes columns", make_pipeline(PCA(2), GaussianNB()), "two"),
    ],
)
def test_what_is_not_read(reason: str, estimator: Any, goal: str) -> None:
    data, wanted = applications(), goals(applications())[goal]
    model = make_pipeline(make_column_transformer((FILLED, NUMBERS)), estimator).fit(data, wanted)
    assert reason in wrapped(model, data, wanted).describe()["structure"]
