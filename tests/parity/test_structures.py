"""Structures score like the library they were read from, on rows it never saw too."""

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, RobustScaler, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import mlflow_cf
from mlflow_cf.structures import score_rows

FEW = {"n_estimators": 12, "random_state": 0}
BOOSTED = {"n_estimators": 12, "n_jobs": 1}
NET = {"max_iter": 15, "random_state": 0}
WORDS = np.array(["rent", "own", "free", None], dtype=object)


def applications(rows: int = 400, seed: int = 0) -> pd.DataFrame:
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
    value = data["income"].fillna(30) + 0.3 * data["age"] - data["debt"] + 6 * (data["job"] == "b")
    return {
        "two": (value > value.median()).map({True: "yes", False: "no"}),
        "three": pd.cut(value, 3, labels=["low", "mid", "high"]).astype(str),
        "value": value,
    }


def table(*, sparse: bool):
    words = make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore", sparse_output=sparse)
    )
    ranks = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    return make_column_transformer(
        (words, ["housing"]),
        (ranks, ["job"]),
        (make_pipeline(SimpleImputer(), StandardScaler()), ["income"]),
        (MinMaxScaler(), ["age"]),
        (RobustScaler(), ["debt"]),
        remainder="passthrough",
        sparse_threshold=1.0 if sparse else 0.0,
    )


CLASSIFIERS = [
    DecisionTreeClassifier(random_state=0),
    RandomForestClassifier(**FEW),
    ExtraTreesClassifier(**FEW),
    GradientBoostingClassifier(**FEW),
    HistGradientBoostingClassifier(max_iter=12),
    LogisticRegression(max_iter=500),
    RidgeClassifier(),
    SGDClassifier(loss="log_loss", random_state=0),
    LinearSVC(),
    MLPClassifier((12, 5), **NET),
    MLPClassifier((8,), activation="tanh", **NET),
    MLPClassifier((8,), activation="logistic", **NET),
    xgboost.XGBClassifier(**BOOSTED),
    lightgbm.LGBMClassifier(verbose=-1, **BOOSTED),
]
REGRESSORS = [
    DecisionTreeRegressor(random_state=0),
    RandomForestRegressor(**FEW),
    GradientBoostingRegressor(**FEW),
    HistGradientBoostingRegressor(max_iter=12),
    LinearRegression(),
    Ridge(),
    MLPRegressor(hidden_layer_sizes=(8,), **NET),
    xgboost.XGBRegressor(**BOOSTED),
    lightgbm.LGBMRegressor(verbose=-1, **BOOSTED),
]


PIPELINES = [
    (model, goal, sparse)
    for models, goals_of in ((CLASSIFIERS, ("two", "three")), (REGRESSORS, ("value",)))
    for model in models
    for goal in goals_of
    for sparse in (False, True)
    if not (sparse and "Hist" in type(model).__name__)  # they take no sparse table
]


def named(model) -> str:
    return type(model).__name__


def agree(model, explained: mlflow_cf.ExplainedModel, rows: pd.DataFrame, tolerance: float) -> None:
    """Compare labels and scores on `rows`, some with levels the background never had."""
    assert explained.opened.structure is not None, explained.opened.note
    space = explained.space.covering(rows)
    scores = score_rows(explained.opened.structure, space.encode(rows))
    if hasattr(model, "classes_"):
        assert model.classes_[scores.argmax(axis=1)].tolist() == model.predict(rows).tolist()
        ask = getattr(model, "predict_proba", None) or model.decision_function
        truth = ask(rows)
        truth = np.column_stack([-truth, truth]) if truth.ndim == 1 else truth
    else:
        truth = model.predict(rows)[:, None]
    assert np.abs((scores - truth) / np.maximum(1, np.abs(truth))).max() <= tolerance


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("estimator", "goal", "sparse"), PIPELINES, ids=lambda part: str(part)[:40])
def test_pipelines(estimator, goal, sparse):
    data = applications()
    wanted = goals(data)[goal]
    if "XGBC" in named(estimator):
        wanted = wanted.astype("category").cat.codes
    model = make_pipeline(table(sparse=sparse), estimator).fit(data, wanted)
    target = mlflow_cf.Target(low=10) if goal == "value" else wanted.iloc[0]
    explained = mlflow_cf.wrap(model, data, target=target)
    rows = applications(300, seed=1)
    rows.loc[::9, "housing"] = "boat"
    agree(model, explained, rows, 1e-5 if "XGB" in named(estimator) else 1e-6)


@pytest.mark.parametrize(
    "model",
    [
        DecisionTreeClassifier(random_state=0),
        RandomForestClassifier(**FEW),
        HistGradientBoostingClassifier(max_iter=12),
        xgboost.XGBClassifier(**BOOSTED),
        lightgbm.LGBMClassifier(verbose=-1, **BOOSTED),
    ],
    ids=named,
)
def test_missing_numbers_go_the_librarys_way(model):
    data = applications()[["income", "age", "debt", "member"]]
    data.loc[::6, "debt"] = np.nan
    model.fit(data, (goals(applications())["two"] == "yes").astype(int))
    rows = applications(300, seed=1)[["income", "age", "debt", "member"]]
    rows.loc[::4, "debt"] = np.nan
    agree(model, mlflow_cf.wrap(model, data), rows, 1e-5)


def test_thresholds_and_their_neighbours_fall_on_the_librarys_side():
    data = applications()[["age", "debt"]]
    data["debt"] = data["debt"].astype("float64")
    for model in (DecisionTreeClassifier(random_state=0), xgboost.XGBClassifier(**BOOSTED)):
        model.fit(data, goals(applications())["two"] == "yes")
        explained = mlflow_cf.wrap(model, data, target=1 if "XGB" in named(model) else True)
        cuts = explained.opened.structure.lookups[1].cuts[:-1]
        near = np.concatenate([cuts, np.nextafter(cuts, -np.inf), np.nextafter(cuts, np.inf), cuts + 1e-9, cuts - 1e-9])
        rows = pd.DataFrame({"age": np.resize(data["age"], len(near)), "debt": near})
        agree(model, explained, rows, 1e-5)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (make_pipeline(StandardScaler(), PCA(2), LogisticRegression()), "the step PCA"),
        (GaussianNB(), "the estimator GaussianNB"),
        (GradientBoostingClassifier(loss="exponential", n_estimators=3), "exponential loss"),
    ],
    ids=["mixing step", "unknown estimator", "unknown loss"],
)
def test_what_cannot_be_opened_is_named_and_still_explained(model, reason):
    data = applications()[["age", "debt"]]
    model.fit(data, (goals(applications())["two"] == "yes").astype(int))
    explained = mlflow_cf.wrap(model, data)
    assert explained.opened.structure is None
    assert reason in explained.describe()["structure"]
    refused = data[model.predict(data) == 0][:3]
    assert {found.status for found in explained.explain(refused)} == {"found"}


def test_a_structure_that_disagrees_is_never_used(monkeypatch):
    data = applications()[["age", "debt"]]
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(data, goals(applications())["two"] == "yes")
    model.tree_.value[:] = model.tree_.value[:, :, ::-1].copy()  # what the structure reads ...
    kept = model.predict
    monkeypatch.setattr(model, "predict", lambda rows: ~kept(rows))  # ... is no longer what the model decides
    explained = mlflow_cf.wrap(model, data, target=True)
    assert explained.opened.structure is None


def test_the_same_answers_with_and_without_structure():
    data = applications()
    model = make_pipeline(table(sparse=False), RandomForestClassifier(**FEW)).fit(data, goals(data)["two"])
    explained = mlflow_cf.wrap(model, data, target="yes")
    blind = mlflow_cf.wrap(model.predict_proba, data, target=1, output="score")
    refused = data[model.predict(data) == "no"][:10]
    with_it = [[cf.row for cf in found.counterfactuals] for found in explained.explain(refused, count=2)]
    without = [[cf.row for cf in found.counterfactuals] for found in blind.explain(refused, count=2)]
    assert with_it == without
