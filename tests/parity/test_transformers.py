"""Every transformer that acts on one raw feature at a time, before trees, boosting and a linear model."""

import numpy as np
import pandas as pd
import pytest
from agreement import agree, applications, goals, near_cuts, wrapped
from laws import THOROUGH
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.structures import TreeEnsemble

CLEAN = make_pipeline(SimpleImputer(), StandardScaler())
WORDS = {"sparse_output": False}


def bins(encode: str, **more):
    return KBinsDiscretizer(4, encode=encode, quantile_method="averaged_inverted_cdf", **more)


TABLES = {
    "scalers": [(StandardScaler(), ["age"]), (MinMaxScaler(), ["debt"]), (RobustScaler(), ["rate"])],
    "clipped": [(MinMaxScaler(clip=True), ["debt", "age"]), (MaxAbsScaler(), ["rate"])],
    "in part": [(StandardScaler(with_mean=False), ["debt"]), (RobustScaler(with_scaling=False), ["age"])],
    "float32": [(StandardScaler(), ["rate"]), (MinMaxScaler(), ["rate"]), (RobustScaler(), ["rate", "debt"])],
    "imputed": [(CLEAN, ["income", "age"]), (SimpleImputer(strategy="median"), ["income"])],
    "constant": [(SimpleImputer(strategy="constant", fill_value=-1), ["income"]), ("passthrough", ["debt"])],
    "indicator": [(make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ["income", "age"])],
    "bins": [(bins("ordinal"), ["age", "debt"])],
    "columns of bins": [(bins("onehot-dense"), ["age", "debt", "rate"])],
    "sparse bins": [(bins("onehot", strategy="uniform"), ["age", "debt"])],
    "bins as categories": [(make_pipeline(bins("ordinal"), OneHotEncoder(**WORDS)), ["age"])],
    "scaled, then bins": [(make_pipeline(StandardScaler(), bins("ordinal")), ["debt", "rate"])],
    "twice": [(StandardScaler(), ["age", "debt"]), (MinMaxScaler(), ["debt"]), ("passthrough", ["age"])],
    "scaled and binned": [(StandardScaler(), ["age", "debt"]), (bins("onehot-dense"), ["debt", "age"])],
    "filled twice": [(SimpleImputer(), ["income"]), (SimpleImputer(strategy="constant", fill_value=0), ["income"])],
    "one-hot": [(OneHotEncoder(handle_unknown="ignore", **WORDS), ["housing", "job", "member"]), (CLEAN, ["income"])],
    "one-hot numbers": [(OneHotEncoder(handle_unknown="ignore", **WORDS), ["grade", "age"]), (CLEAN, ["income"])],
    "one-hot of a gap": [(OneHotEncoder(handle_unknown="ignore", **WORDS), ["gap"]), ("passthrough", ["debt"])],
    "drop first": [(OneHotEncoder(drop="first", **WORDS), ["housing", "job", "member", "grade"])],
    "drop if binary": [(OneHotEncoder(drop="if_binary", **WORDS), ["member", "job"]), ("passthrough", ["age"])],
    "drop some": [(OneHotEncoder(drop=["b", 2.0], **WORDS), ["job", "grade"]), ("passthrough", ["age"])],
    "infrequent": [
        (OneHotEncoder(min_frequency=90, handle_unknown="infrequent_if_exist", **WORDS), ["town", "housing"])
    ],
    "infrequent, drop": [(OneHotEncoder(max_categories=3, drop="first", **WORDS), ["town", "housing"])],
    "ranks": [
        (
            OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2),
            ["housing", "grade"],
        )
    ],
    "ranks of gaps": [(OrdinalEncoder(encoded_missing_value=-5), ["housing", "gap"])],
    "infrequent ranks": [(OrdinalEncoder(min_frequency=90, encoded_missing_value=9), ["town", "housing"])],
    "means of the target": [(TargetEncoder(cv=3), ["housing", "job", "member", "grade", "gap"]), (CLEAN, ["income"])],
    "means of the target, scaled": [(make_pipeline(TargetEncoder(smooth=9.0), StandardScaler()), ["town", "housing"])],
    "words filled": [(make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(**WORDS)), ["housing"])],
    "words filled with a new one": [
        (make_pipeline(SimpleImputer(strategy="constant", fill_value="none"), OneHotEncoder(**WORDS)), ["housing"])
    ],
    "ranks scaled": [(make_pipeline(OrdinalEncoder(), StandardScaler()), ["job", "town"])],
    "by kind": [(CLEAN, make_column_selector(dtype_include="float64")), (OneHotEncoder(**WORDS), ["job"])],
    "by position": [(CLEAN, [0, 1]), (OneHotEncoder(**WORDS), [4]), ("drop", slice(2, 4))],
    "by slice and mask": [
        (CLEAN, slice("income", "debt")),
        (OneHotEncoder(**WORDS), np.arange(10) == 4),
        (FunctionTransformer(), ["member"]),
    ],
}


def clients(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed + 100)
    return applications(rows, seed).assign(
        rate=rng.normal(size=rows).astype("float32"),
        grade=rng.integers(0, 4, rows) * 1.0,
        town=rng.choice(list("abcdefg"), rows, p=[0.3, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02]),
        gap=np.where(rng.random(rows) < 0.2, np.nan, rng.integers(0, 3, rows)),
    )


ESTIMATORS = {
    "tree": DecisionTreeClassifier(random_state=0),
    "boosting": HistGradientBoostingClassifier(max_iter=8),
    "linear": LogisticRegression(C=0.1),
}
PIPELINES = [
    pytest.param(parts, estimator, id=f"{table}-{name}")
    for place, (table, parts) in enumerate(TABLES.items())
    for name, estimator in ESTIMATORS.items()
    if THOROUGH or name == "linear" or name == ("tree", "boosting")[place % 2]  # every table before trees of one kind
]


@pytest.mark.parametrize(("parts", "estimator"), PIPELINES)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_transformers(parts, estimator):
    data, wanted = clients(), goals(applications())["two"]
    model = make_pipeline(make_column_transformer(*parts, sparse_threshold=0), estimator).fit(data, wanted)
    explained = wrapped(model, data, wanted)
    agree(model, explained, data)
    if isinstance(explained.opened.structure, TreeEnsemble):
        near = near_cuts(explained, data, ("debt", "rate", "income"))
        if len(near):
            agree(model, explained, near)


@pytest.mark.parametrize("goal", ["three", "value"])
def test_means_of_several_classes_or_of_a_value(goal):
    data, wanted = clients(), goals(applications())[goal]
    last = LogisticRegression(C=0.1) if goal == "three" else Ridge()
    words = make_column_transformer((TargetEncoder(cv=3), ["housing", "town"]), ("passthrough", ["age"]))
    model = make_pipeline(words, StandardScaler(), last).fit(data, wanted)
    rows = clients(200, seed=1)
    rows.loc[::7, "town"] = "z"
    agree(model, wrapped(model, data, wanted), rows)


def test_one_column_transformer_after_another():
    data, wanted = clients(), goals(applications())["two"]
    first = make_column_transformer((SimpleImputer(), ["income"]), ("passthrough", ["age", "debt"]))
    by_position = make_column_transformer((StandardScaler(), [2, 0]), ("passthrough", [1]))
    by_name = make_column_transformer((StandardScaler(), ["passthrough__debt"]), remainder="passthrough")
    for second in (by_position, by_name):
        model = make_pipeline(first, second, DecisionTreeClassifier(random_state=0)).set_output(transform="pandas")
        model.fit(data, wanted)
        agree(model, wrapped(model, data, wanted), clients(200, seed=1))


def test_none_and_nan_are_different_missing_values():
    data, wanted = clients(), goals(applications())["two"]
    data["housing"] = pd.Series([None if pd.isna(word) else word for word in data["housing"]], dtype=object)
    filled = make_pipeline(SimpleImputer(missing_values=None, strategy="most_frequent"), OneHotEncoder(**WORDS))
    for words in (filled, OneHotEncoder(**WORDS)):
        steps = make_column_transformer((words, ["housing"]), ("passthrough", ["debt"]))
        model = make_pipeline(steps, DecisionTreeClassifier(random_state=0)).fit(data, wanted)
        agree(model, wrapped(model, data, wanted), data)


def test_declared_levels_that_are_numbers_stay_numbers():
    data, wanted = clients()[["grade", "debt"]], goals(applications())["two"]
    model = make_pipeline(StandardScaler(), DecisionTreeClassifier(random_state=0)).fit(data, wanted)
    grades = {"grade": {"kind": "ordinal", "levels": [0.0, 1.0, 2.0, 3.0]}}
    explained = mlflow_cf.wrap(model, data, target="yes", features=grades)
    agree(model, explained, data)


def test_a_date_that_no_step_reads_does_not_matter():
    data = clients().assign(since=pd.date_range("2020-01-01", periods=400))
    wanted = goals(applications())["two"]
    steps = make_column_transformer((StandardScaler(), ["debt"]), ("passthrough", ["age"]))
    model = make_pipeline(steps, DecisionTreeClassifier(random_state=0)).fit(data, wanted)
    agree(model, wrapped(model, data, wanted), data)
