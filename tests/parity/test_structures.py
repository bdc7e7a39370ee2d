"""Every estimator, opened: it scores like the library, on rows it never saw too."""

import catboost
import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from agreement import agree, applications, goals, named, near_cuts, wrapped
from laws import THOROUGH
from sklearn import linear_model
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, RobustScaler, StandardScaler
from sklearn.svm import LinearSVC, LinearSVR
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier, ExtraTreeRegressor

import mlflow_cf
from mlflow_cf.explainers import GeCo
from mlflow_cf.features import FeatureSpace
from mlflow_cf.model import OpenModel
from mlflow_cf.model.judge import Judge
from mlflow_cf.model.parity import open_structure
from mlflow_cf.structures import IntervalColumn, Layers, NumberColumn
from mlflow_cf_flavors.answers import LargestScore

FEW = {"n_estimators": 12, "random_state": 0}
BOOSTED = {"n_estimators": 12, "n_jobs": 1}
CAT = {"n_estimators": 12, "thread_count": 1, "logging_level": "Silent", "allow_writing_files": False}
NET = {"max_iter": 15, "random_state": 0}


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
    ExtraTreeClassifier(random_state=0),
    RandomForestClassifier(**FEW),
    ExtraTreesClassifier(**FEW),
    GradientBoostingClassifier(**FEW),
    GradientBoostingClassifier(init="zero", **FEW),
    HistGradientBoostingClassifier(max_iter=12),
    linear_model.LogisticRegression(max_iter=500),
    linear_model.LogisticRegressionCV(
        max_iter=500, cv=3, l1_ratios=(0,), scoring="accuracy", use_legacy_attributes=False
    ),
    linear_model.RidgeClassifier(),
    linear_model.RidgeClassifierCV(),
    linear_model.SGDClassifier(loss="log_loss", random_state=0),
    linear_model.SGDClassifier(random_state=0),
    LinearSVC(),
    MLPClassifier((12, 5), **NET),
    MLPClassifier((8,), activation="tanh", **NET),
    MLPClassifier((8,), activation="logistic", **NET),
    MLPClassifier((8,), activation="identity", **NET),
    xgboost.XGBClassifier(**BOOSTED),
    lightgbm.LGBMClassifier(verbose=-1, **BOOSTED),
    catboost.CatBoostClassifier(**CAT),
    catboost.CatBoostClassifier(grow_policy="Depthwise", **CAT),
]
REGRESSORS = [
    DecisionTreeRegressor(random_state=0),
    ExtraTreeRegressor(random_state=0),
    RandomForestRegressor(**FEW),
    ExtraTreesRegressor(**FEW),
    GradientBoostingRegressor(**FEW),
    HistGradientBoostingRegressor(max_iter=12),
    HistGradientBoostingRegressor(max_iter=12, loss="quantile", quantile=0.8),
    linear_model.LinearRegression(),
    linear_model.Ridge(),
    linear_model.RidgeCV(),
    linear_model.Lasso(alpha=0.1),
    linear_model.LassoCV(cv=3),
    linear_model.ElasticNet(alpha=0.1),
    linear_model.ElasticNetCV(cv=3),
    linear_model.SGDRegressor(random_state=0),
    LinearSVR(max_iter=5000),
    MLPRegressor(hidden_layer_sizes=(8,), **NET),
    xgboost.XGBRegressor(**BOOSTED),
    xgboost.XGBRegressor(objective="reg:absoluteerror", **BOOSTED),
    lightgbm.LGBMRegressor(verbose=-1, **BOOSTED),
    lightgbm.LGBMRegressor(objective="quantile", verbose=-1, **BOOSTED),
    catboost.CatBoostRegressor(**CAT),
]
PIPELINES = [
    pytest.param(model, goal, sparse, id=f"{named(model)}-{goal}-{'sparse' if sparse else 'dense'}")
    for models, goals_of in ((CLASSIFIERS, ("two", "three")), (REGRESSORS, ("value",)))
    for place, model in enumerate(models)
    for goal in goals_of
    for sparse in (False, True)
    if not (sparse and (goal == "three" or "Hist" in named(model)))  # they take no sparse table
    # usually every other estimator has one kind of table only where it can have both
    if THOROUGH or goal == "three" or "Hist" in named(model) or sparse == bool(place % 2)
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("estimator", "goal", "sparse"), PIPELINES)
def test_pipelines(estimator, goal, sparse):
    data = applications()
    wanted = goals(data)[goal]
    if "XGBC" in named(estimator):
        wanted = wanted.astype("category").cat.codes
    model = make_pipeline(table(sparse=sparse), estimator).fit(data, wanted)
    rows = applications(300, seed=1)
    rows.loc[::9, "housing"] = "boat"
    agree(model, wrapped(model, data, wanted), rows, 1e-5 if "XGB" in named(estimator) else 1e-6)


TREES = [
    DecisionTreeClassifier(random_state=0),
    RandomForestClassifier(**FEW),
    ExtraTreesRegressor(**FEW),
    HistGradientBoostingClassifier(max_iter=12),
    HistGradientBoostingRegressor(max_iter=12),
    xgboost.XGBClassifier(**BOOSTED),
    xgboost.XGBRegressor(**BOOSTED),
    lightgbm.LGBMClassifier(verbose=-1, **BOOSTED),
    lightgbm.LGBMRegressor(verbose=-1, **BOOSTED),
    catboost.CatBoostClassifier(**CAT),
    catboost.CatBoostClassifier(nan_mode="Max", grow_policy="Lossguide", **CAT),
    catboost.CatBoostRegressor(nan_mode="Max", **CAT),
]


def numbers(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    data = applications(rows, seed)[["income", "age", "debt", "member"]]
    return data.assign(rate=(data["debt"] / 7).astype("float32"))


@pytest.mark.parametrize("gaps", ["trained on gaps", "new gaps"])
@pytest.mark.parametrize("model", TREES, ids=named)
def test_thresholds_and_missing_numbers_go_the_librarys_way(model, gaps):
    data, rows = numbers(), numbers(300, seed=1)
    regression = hasattr(model, "score") and "Regressor" in named(model)
    wanted = goals(applications())["value"] if regression else (goals(applications())["two"] == "yes").astype(int)
    if gaps == "trained on gaps":
        data.loc[::6, "debt"] = np.nan
        rows.loc[::4, "debt"] = np.nan
    elif named(model) == "DecisionTreeClassifier":
        data["income"], rows["income"] = data["income"].fillna(0), rows["income"].fillna(0)  # it takes no new ones
    elif "XGB" in named(model) or "LGBM" in named(model) or "CatBoost" in named(model):
        rows.loc[::4, "debt"] = np.nan
    model.fit(data, wanted)
    explained = wrapped(model, data, wanted)
    agree(model, explained, rows, 1e-5)
    agree(model, explained, near_cuts(explained, rows, ("debt", "rate")), 1e-5)


@pytest.mark.parametrize("model", TREES, ids=named)
def test_a_model_fitted_on_an_array_takes_its_columns_by_position(model):
    data = numbers().fillna(0).astype(float)
    wanted = goals(applications())["value"] > 40
    model.fit(data.to_numpy(), wanted.astype(int))
    explained = wrapped(model, data, wanted.astype(int))
    assert explained.opened.structure is not None, explained.opened.note


@pytest.mark.parametrize("model", TREES, ids=named)
def test_columns_go_by_name_and_others_do_not_matter(model):
    data, wanted = numbers().fillna(0), (goals(applications())["two"] == "yes").astype(int)
    model.fit(data[["rate", "debt", "age"]], wanted)
    explained = wrapped(model, data, wanted)
    assert explained.opened.structure is not None, explained.opened.note


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
@pytest.mark.parametrize("goal", ["two", "three", "value"])
def test_boosters_of_the_native_interfaces(library, goal):
    data, wanted = numbers(), goals(applications())[goal]
    codes = wanted if goal == "value" else wanted.astype("category").cat.codes
    if library == "xgboost":
        objective = {"two": "binary:logistic", "three": "multi:softprob", "value": "reg:squarederror"}[goal]
        more = {"num_class": 3} if goal == "three" else {}
        matrix = xgboost.DMatrix(data, codes)
        model = xgboost.train({"objective": objective, "nthread": 1, **more}, matrix, 12)
    else:
        objective = {"two": "binary", "three": "multiclass", "value": "regression"}[goal]
        options = {"objective": objective, "num_threads": 1, "verbose": -1}
        model = lightgbm.train(
            options | ({"num_class": 3} if goal == "three" else {}), lightgbm.Dataset(data, codes), 12
        )
    target = mlflow_cf.Target(low=40) if goal == "value" else 1
    explained = mlflow_cf.wrap(model, data, target=target)
    assert explained.opened.structure is not None, explained.opened.note
    assert explained.opened.worst <= 1e-5


def test_early_stopping_leaves_the_later_rounds_out():
    data, wanted = numbers(), (goals(applications())["two"] == "yes").astype(int)
    first, last = slice(0, 200), slice(200, 400)
    options = {"n_estimators": 80, "n_jobs": 1, "learning_rate": 0.9}
    xgb = xgboost.XGBClassifier(early_stopping_rounds=3, **options)
    xgb.fit(data[first], wanted[first], eval_set=[(data[last], wanted[last])], verbose=0)
    lgbm = lightgbm.LGBMClassifier(early_stopping_round=3, verbose=-1, **options)
    lgbm.fit(data[first], wanted[first], eval_X=data[last], eval_y=wanted[last])
    for model in (xgb, lgbm):
        agree(model, wrapped(model, data, wanted), numbers(300, seed=1), 1e-5)


def test_the_best_estimator_of_a_search_is_opened():
    data, wanted = applications(), goals(applications())["two"]
    steps = make_pipeline(table(sparse=False), DecisionTreeClassifier(random_state=0))
    model = GridSearchCV(steps, {"decisiontreeclassifier__max_depth": [2, 5]}, cv=3).fit(data, wanted)
    agree(model, wrapped(model, data, wanted), applications(300, seed=1))
    codes = (wanted == "yes").astype(int)
    alone = GridSearchCV(xgboost.XGBClassifier(**BOOSTED), {"max_depth": [2, 5]}, cv=3).fit(numbers(), codes)
    agree(alone, wrapped(alone, numbers(), codes), numbers(300, seed=1), 1e-5)


def test_a_structure_that_disagrees_is_never_used():
    class Contrary(DecisionTreeClassifier):
        def predict(self, X):
            return ~super().predict(X)  # what the structure reads is not what the model decides

    data = applications()[["age", "debt"]]
    model = Contrary(max_depth=3, random_state=0).fit(data, goals(applications())["two"] == "yes")
    explained = mlflow_cf.wrap(model, data, target=True)
    assert explained.opened.structure is None


def test_a_structure_that_disagrees_next_to_a_threshold_is_never_used(monkeypatch):
    data = applications()[["age", "debt"]]
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(data, goals(applications())["two"] == "yes")
    monkeypatch.setattr("mlflow_cf.structures.trees.cells._last_narrow", lambda limits: limits)  # forgets float32
    explained = mlflow_cf.wrap(model, data, target=True)
    assert explained.opened.structure is None
    assert "scores differ" in explained.describe()["structure"]


def test_a_structure_that_differs_in_one_label_is_never_used():
    frame = pd.DataFrame({"age": [20.0, 25.0, 40.0, 50.0]})
    space, shape = FeatureSpace.infer(frame), ("identity", "identity")

    def shares(rows):
        older = np.where(rows["age"] > 30, 0.9, 0.5 - 1e-8)
        return np.column_stack([1 - older, older])

    def found(young):
        column = IntervalColumn(NumberColumn(0), np.array([30.0]), np.array([young, 0.9, young]))
        layers = Layers.compile([column], space, [np.array([[-1.0, 1.0]])], [np.array([1.0, 0.0])], *shape)
        decide = LargestScore(shares, ("no", "yes"))
        model = OpenModel("test", ("no", "yes"), decide, shares, "probability", compile=lambda _space, _rows: layers)
        judge, outcome = Judge.learn(model, frame)
        return open_structure(judge, space, space.encode(frame), outcome)

    assert found(0.5 - 1.1e-8).structure is not None
    flipped = found(0.5 + 1e-8)  # the scores agree
    assert flipped.structure is None
    assert "a label differs" in flipped.note


def test_the_same_answers_with_and_without_structure():
    data = applications()
    model = make_pipeline(table(sparse=False), RandomForestClassifier(**FEW)).fit(data, goals(data)["two"])
    explained = mlflow_cf.wrap(model, data, target="yes")
    blind = mlflow_cf.wrap(model.predict_proba, data, target=1, output="score")
    refused, drawing = data[model.predict(data) == "no"][:10], GeCo(sweep=False)
    with_it, without = (
        [[cf.row for cf in found.counterfactuals] for found in one.explain(refused, count=2, explainer=drawing)]
        for one in (explained, blind)
    )
    assert with_it == without
