"""Steps that choose columns, before everything; steps that mix columns, before linear models and networks."""

from typing import Any

import numpy as np
import pytest
from agreement import agree, applications, goals, named, wrapped
from sklearn import linear_model
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_selection import (
    RFE,
    RFECV,
    GenericUnivariateSelect,
    SelectFdr,
    SelectFpr,
    SelectFromModel,
    SelectFwe,
    SelectKBest,
    SelectPercentile,
    SequentialFeatureSelector,
    VarianceThreshold,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, MinMaxScaler, OneHotEncoder, RobustScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from mlflow_cf.structures import score_rows

TREE = DecisionTreeClassifier(max_depth=5, random_state=0)
LINEAR = LogisticRegression(C=0.1)
NET = {"hidden_layer_sizes": (6,), "max_iter": 15, "random_state": 0}
SELECTORS = [
    SelectKBest(k=3),
    SelectPercentile(percentile=60),
    GenericUnivariateSelect(mode="k_best", param=4),
    SelectFdr(),
    SelectFpr(),
    SelectFwe(),
    SelectFromModel(TREE, threshold="0.5*mean"),
    RFE(TREE, n_features_to_select=3),
    RFECV(TREE, cv=2, min_features_to_select=2),
    SequentialFeatureSelector(TREE, n_features_to_select=2, cv=2),
    VarianceThreshold(0.3),
]
MIXERS = {
    "components": PCA(3),
    "all of them": PCA(),
    "whitened": PCA(3, whiten=True),
    "in parts": IncrementalPCA(2, whiten=True),
    "a decomposition": TruncatedSVD(3, random_state=0),
    "discriminants": LinearDiscriminantAnalysis(),
    "one discriminant": LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.1, n_components=1),
    "scaled": make_pipeline(PCA(3), StandardScaler(), MinMaxScaler()),
    "chosen": make_pipeline(PCA(), SelectKBest(k=3)),
    "twice": make_pipeline(PCA(4), RobustScaler(), TruncatedSVD(2, random_state=0), SimpleImputer()),
}


def numbers(*, sparse: bool = False) -> Any:
    words = OneHotEncoder(handle_unknown="ignore", sparse_output=sparse)
    filled = make_pipeline(SimpleImputer(), StandardScaler())
    return make_column_transformer(
        (words, ["housing", "job"]),
        (filled, ["income"]),
        (StandardScaler(), ["age", "debt"]),
        ("passthrough", ["member"]),
        sparse_threshold=1.0 if sparse else 0.0,
    )


def checked(model: Any, goal: str, columns: list[str] | None = None) -> None:
    """Wrap a fitted model, compare it on other rows, and its bounds with the scores of rows within them."""
    data, rows = applications(), applications(200, seed=1)
    if columns is None:
        rows.loc[::9, "housing"] = "boat"
    else:
        data, rows = data[columns], rows[columns]
    wanted = goals(applications())[goal]
    explained = wrapped(model.fit(data, wanted), data, wanted)
    agree(model, explained, rows)
    structure, space = explained.opened.structure, explained.space
    assert structure is not None
    Z = space.encode(data)
    encoded = [structure.encode(column, Z[:, column]) for column in range(Z.shape[1])]
    low, high = structure.bounds(encoded)
    sums = structure.sums(encoded)
    assert (low <= sums).all()
    assert (sums <= high).all()
    assert np.isfinite(score_rows(structure, Z)).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("selector", SELECTORS, ids=named)
def test_columns_chosen_by_a_step(selector):
    checked(make_pipeline(numbers(), clone(selector), TREE), "three")
    checked(make_pipeline(numbers(sparse=True), clone(selector), LINEAR), "two")


def test_columns_chosen_inside_a_column_transformer_and_by_name_behind_one():
    chosen = make_pipeline(SimpleImputer(), SelectKBest(k=2), StandardScaler())
    words = make_pipeline(OneHotEncoder(sparse_output=False), SelectKBest(k=4))
    steps = make_column_transformer((chosen, ["income", "age", "debt"]), (words, ["housing", "job"]))
    checked(make_pipeline(steps, TREE), "two", ["income", "age", "debt", "housing", "job"])
    later = make_column_transformer((KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"), ["debt"]))
    model = make_pipeline(SelectKBest(k=2).set_output(transform="pandas"), later, TREE)
    checked(model, "two", ["age", "debt"])


def test_gaps_pass_through_a_step_that_chooses():
    model = make_pipeline(VarianceThreshold(), HistGradientBoostingClassifier(max_iter=5))
    checked(model, "two", ["income", "age", "debt"])


def test_one_precision_for_the_columns_that_stay():
    data = applications()[["age", "debt"]].assign(rate=lambda rows: (rows["debt"] / 7).astype("float32"))
    wanted = goals(applications())["two"]
    model = make_pipeline(SelectKBest(k=2), StandardScaler(), TREE).fit(data, wanted)
    agree(model, wrapped(model, data, wanted), data)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("mixer", MIXERS.values(), ids=MIXERS)
def test_columns_mixed_before_linear_models_and_networks(mixer):
    checked(make_pipeline(numbers(), clone(mixer), LINEAR), "three")
    checked(make_pipeline(numbers(), clone(mixer), MLPClassifier(**NET)), "three")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_columns_mixed_beside_others_and_for_regression():
    mixed = make_pipeline(SimpleImputer(), StandardScaler(), PCA(2))
    steps = make_column_transformer(
        (mixed, ["income", "age", "debt"]),
        (OneHotEncoder(handle_unknown="ignore"), ["housing"]),
        (StandardScaler(), ["age"]),
    )
    columns = ["income", "age", "debt", "housing"]
    for estimator in (Ridge(), MLPRegressor(**NET), MLPRegressor(**NET, activation="tanh")):
        checked(make_pipeline(steps, estimator), "value", columns)
    checked(make_pipeline(numbers(sparse=True), TruncatedSVD(4, random_state=0), Ridge()), "value")


REFUSED = {
    "DecisionTreeRegressor behind PCA": make_pipeline(PCA(2), DecisionTreeRegressor(max_depth=3)),
    "RandomForestClassifier behind TruncatedSVD": make_pipeline(TruncatedSVD(2), RandomForestClassifier(5)),
    "MinMaxScaler behind PCA": make_pipeline(PCA(2), MinMaxScaler(clip=True), Ridge()),
    "KBinsDiscretizer behind PCA": make_pipeline(
        PCA(2), KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"), Ridge()
    ),
}


@pytest.mark.parametrize(("reason", "model"), REFUSED.items(), ids=REFUSED)
def test_what_cannot_take_mixed_columns_is_named(reason, model):
    data = applications()[["age", "debt"]]
    wanted = goals(applications())["two" if "Classifier" in reason else "value"]
    explained = wrapped(model.fit(data, wanted), data, wanted)
    assert explained.opened.structure is None
    assert f"{reason}" in explained.opened.note
    assert "which mixes columns" in explained.opened.note


@pytest.mark.parametrize("solver", ["svd", "lsqr", "eigen"])
@pytest.mark.parametrize("goal", ["two", "three"])
def test_discriminant_analysis_as_a_classifier(solver, goal):
    model = make_pipeline(
        numbers(), LinearDiscriminantAnalysis(solver=solver, shrinkage=None if solver == "svd" else 0.1)
    )
    checked(model, goal)


@pytest.mark.parametrize(
    "model",
    [
        linear_model.ARDRegression(),
        linear_model.BayesianRidge(),
        linear_model.HuberRegressor(max_iter=500),
        linear_model.Lars(),
        linear_model.LassoLars(alpha=0.1),
        linear_model.OrthogonalMatchingPursuit(n_nonzero_coefs=4),
        linear_model.Perceptron(random_state=0),
        linear_model.QuantileRegressor(),
    ],
    ids=named,
)
def test_other_linear_models(model):
    checked(make_pipeline(numbers(), model), "three" if named(model) == "Perceptron" else "value")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("model", [MLPClassifier(**NET), make_pipeline(StandardScaler(), MLPClassifier(**NET))])
def test_a_network_of_several_classes_alone_and_behind_a_step(model):
    checked(model, "three", ["age", "debt"])
    checked(make_pipeline(StandardScaler(), MLPRegressor(**NET)), "value", ["age", "debt"])
