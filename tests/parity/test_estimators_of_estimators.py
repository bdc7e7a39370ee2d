"""Estimators made of others are opened where their scores are a link of the others' sums."""

from typing import Any

import numpy as np
import pytest
from agreement import agree, applications, goals, wrapped
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MinMaxScaler,
    OneHotEncoder,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import mlflow_cf
from mlflow_cf.structures import TreeEnsemble


def cube(values):
    return values**3


FEW = {"n_estimators": 4, "random_state": 0}
TREE = DecisionTreeClassifier(max_depth=4, random_state=0)
VALUES = DecisionTreeRegressor(max_depth=4, random_state=0)
FOREST = RandomForestClassifier(max_depth=4, **FEW)
BOOSTING = GradientBoostingClassifier(**FEW)
LINEAR = LogisticRegression(C=0.1)
NETWORK = MLPClassifier((4,), max_iter=9, random_state=0)
SCALED = make_pipeline(StandardScaler(), LINEAR)
OPENED: dict[str, tuple[Any, str]] = {
    "one linear model per class": (OneVsRestClassifier(LINEAR), "three"),
    "one linear model for two classes": (OneVsRestClassifier(LINEAR), "two"),
    "one margin per class": (OneVsRestClassifier(LinearSVC()), "three"),
    "one margin for two classes": (OneVsRestClassifier(LinearSVC()), "two"),
    "one pipeline per class": (OneVsRestClassifier(make_pipeline(PCA(3), SCALED)), "three"),
    "one boosting per class": (OneVsRestClassifier(BOOSTING), "three"),
    "one histogram boosting per class": (OneVsRestClassifier(HistGradientBoostingClassifier(max_iter=4)), "three"),
    "one search per class": (OneVsRestClassifier(GridSearchCV(LINEAR, {"C": [0.1, 1.0]}, cv=2)), "three"),
    "one forest for two classes": (OneVsRestClassifier(FOREST), "two"),
    "one network for two classes": (OneVsRestClassifier(MLPClassifier((4,), max_iter=9, random_state=0)), "two"),
    "a bag of trees": (BaggingClassifier(TREE, **FEW), "three"),
    "a bag of some columns": (BaggingClassifier(TREE, max_features=0.6, max_samples=0.5, **FEW), "two"),
    "a bag of columns drawn twice": (BaggingClassifier(TREE, bootstrap_features=True, **FEW), "three"),
    "a bag of forests": (BaggingClassifier(FOREST, max_features=0.7, **FEW), "three"),
    "a bag of values": (BaggingRegressor(VALUES, max_features=0.6, **FEW), "value"),
    "a bag of linear models": (BaggingRegressor(Ridge(), max_features=0.6, **FEW), "value"),
    "a bag of boosting": (BaggingRegressor(GradientBoostingRegressor(**FEW), **FEW), "value"),
    "shares of trees": (VotingClassifier([("a", TREE), ("b", FOREST)], voting="soft"), "three"),
    "weighted shares": (
        VotingClassifier([("a", TREE), ("b", "drop"), ("c", FOREST)], voting="soft", weights=[2, 9, 1]),
        "two",
    ),
    "shares behind steps": (
        VotingClassifier([("a", make_pipeline(StandardScaler(), TREE)), ("b", FOREST)], voting="soft"),
        "three",
    ),
    "mean of trees": (
        VotingRegressor([("a", RandomForestRegressor(**FEW)), ("b", ExtraTreesRegressor(**FEW))], weights=[1, 3]),
        "value",
    ),
    "mean of linear models": (VotingRegressor([("a", Ridge()), ("b", Ridge(100.0))]), "value"),
    "calibrated margin": (CalibratedClassifierCV(LinearSVC(), ensemble=False, cv=3), "two"),
    "calibrated margins": (CalibratedClassifierCV(LinearSVC(), ensemble=False, cv=3), "three"),
    "calibrated linear models": (CalibratedClassifierCV(SCALED, ensemble=False, cv=3), "three"),
    "calibrated discriminants": (CalibratedClassifierCV(LinearDiscriminantAnalysis(), ensemble=False, cv=3), "two"),
    "calibrated shares": (CalibratedClassifierCV(FOREST, ensemble=False, cv=3), "two"),
    "calibrated shares of classes": (CalibratedClassifierCV(FOREST, ensemble=False, cv=3), "three"),
    "calibrated boosting": (CalibratedClassifierCV(BOOSTING, ensemble=False, cv=3), "two"),
    "calibrated boosting of classes": (CalibratedClassifierCV(BOOSTING, ensemble=False, cv=3), "three"),
    "boosted stumps": (AdaBoostClassifier(n_estimators=15, random_state=0), "two"),
    "boosted stumps for classes": (AdaBoostClassifier(n_estimators=15, random_state=0), "three"),
    "boosted trees": (AdaBoostClassifier(TREE, n_estimators=4, random_state=0), "three"),
    "calibrated votes": (
        CalibratedClassifierCV(AdaBoostClassifier(n_estimators=5, random_state=0), ensemble=False, cv=3),
        "two",
    ),
    "networks side by side": (OneVsRestClassifier(MLPClassifier((3,), max_iter=9, random_state=0)), "three"),
    "a bag of probabilities": (BaggingClassifier(LINEAR, **FEW), "two"),
    "a bag of probabilities for classes": (BaggingClassifier(LINEAR, max_features=0.6, **FEW), "three"),
    "probabilities of every kind": (
        VotingClassifier([("a", LINEAR), ("b", FOREST), ("c", BOOSTING), ("d", NETWORK)], voting="soft"),
        "two",
    ),
    "probabilities of every kind for classes": (
        VotingClassifier(
            [("a", LINEAR), ("b", FOREST), ("c", BOOSTING), ("d", NETWORK)], voting="soft", weights=[1, 2, 3, 4]
        ),
        "three",
    ),
    "mean of trees and lines": (VotingRegressor([("a", Ridge()), ("b", VALUES)]), "value"),
    "mean of trees of two kinds": (
        VotingRegressor([("a", HistGradientBoostingRegressor(max_iter=4)), ("b", VALUES)]),
        "value",
    ),
    "calibrated several times": (CalibratedClassifierCV(TREE, cv=3), "two"),
    "calibrated several times for classes": (CalibratedClassifierCV(LINEAR, cv=3), "three"),
    "calibrated network": (CalibratedClassifierCV(NETWORK, ensemble=False, cv=2), "two"),
    "calibrated network for classes": (CalibratedClassifierCV(NETWORK, ensemble=False, cv=2), "three"),
    "a stack": (StackingClassifier([("a", LINEAR), ("b", FOREST)], cv=3), "two"),
    "a stack for classes": (StackingClassifier([("a", LINEAR), ("b", "drop"), ("c", BOOSTING)], cv=3), "three"),
    "a stack with columns": (StackingClassifier([("a", LINEAR), ("b", TREE)], passthrough=True, cv=3), "two"),
    "a stack of margins": (
        StackingClassifier([("a", LinearSVC()), ("b", BOOSTING)], cv=3, stack_method="decision_function"),
        "two",
    ),
    "a stack of margins for classes": (
        StackingClassifier([("a", LinearSVC()), ("b", LINEAR)], LINEAR, cv=3, stack_method="decision_function"),
        "three",
    ),
    "a stack of values": (StackingRegressor([("a", Ridge()), ("b", VALUES)], cv=3), "value"),
    "a stack of values with columns": (
        StackingRegressor([("a", VALUES), ("b", Ridge())], Ridge(), passthrough=True, cv=3),
        "value",
    ),
    "a vote of stacks": (
        VotingClassifier([("a", StackingClassifier([("a", TREE)], cv=3)), ("b", LINEAR)], voting="soft"),
        "two",
    ),
    "weighted median of trees": (AdaBoostRegressor(n_estimators=15, random_state=0), "value"),
    "weighted median of two": (AdaBoostRegressor(VALUES, n_estimators=2, random_state=0), "value"),
    "a scaled target": (TransformedTargetRegressor(VALUES, transformer=StandardScaler()), "value"),
    "a target between ends": (TransformedTargetRegressor(Ridge(), transformer=MinMaxScaler()), "value"),
    "a robust target": (TransformedTargetRegressor(Ridge(), transformer=RobustScaler()), "value"),
    "a target of its own": (TransformedTargetRegressor(Ridge()), "value"),
    "a logarithm of the target": (
        TransformedTargetRegressor(VALUES, func=np.arcsinh, inverse_func=np.sinh),
        "value",
    ),
    "a cube of the target": (TransformedTargetRegressor(Ridge(), func=cube, inverse_func=np.cbrt), "value"),
    "a target by ranks": (
        TransformedTargetRegressor(VALUES, transformer=QuantileTransformer(n_quantiles=50)),
        "value",
    ),
    "a target made normal": (TransformedTargetRegressor(VALUES, transformer=PowerTransformer()), "value"),
    "calibrated bag": (CalibratedClassifierCV(BaggingClassifier(TREE, **FEW), ensemble=False, cv=3), "two"),
}


def numbers() -> Any:
    return make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["housing", "job"]),
        (make_pipeline(SimpleImputer(), StandardScaler()), ["income"]),
        (StandardScaler(), ["debt"]),
        ("passthrough", ["age", "member"]),
    )


def checked(model: Any, goal: str) -> mlflow_cf.ExplainedModel:
    """Wrap a fitted model, compare it on other rows, and its bounds with the sums of rows within them."""
    data, rows = applications(), applications(200, seed=1)
    rows.loc[::9, "housing"] = "boat"
    wanted = goals(data)[goal]
    explained = wrapped(model.fit(data, wanted), data, wanted)
    agree(model, explained, rows)
    structure = explained.opened.structure
    assert structure is not None
    Z = explained.space.encode(data)
    encoded = [structure.encode(column, Z[:, column]) for column in range(Z.shape[1])]
    low, high = structure.bounds(encoded)
    sums = structure.sums(encoded)
    assert (low <= sums).all()
    assert (sums <= high).all()
    return explained


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("model", "goal"), OPENED.values(), ids=OPENED)
def test_sums_of_sums(model, goal):
    checked(make_pipeline(numbers(), model), goal)


def test_alone_with_gaps():
    data = applications()[["income", "age", "debt"]]
    wanted = goals(applications())["three"]
    boosting = OneVsRestClassifier(HistGradientBoostingClassifier(max_iter=4))
    bag = BaggingClassifier(TREE, max_features=2, **FEW)
    for model in (boosting, bag, VotingClassifier([("a", TREE), ("b", FOREST)], voting="soft")):
        agree(model, wrapped(model.fit(data, wanted), data, wanted), applications(200, seed=1)[data.columns])


def test_models_with_their_own_steps_become_one():
    trees = VotingClassifier(
        [("a", make_pipeline(numbers(), TREE)), ("b", make_pipeline(numbers(), FOREST))], voting="soft"
    )
    assert isinstance(checked(trees, "three").opened.structure, TreeEnsemble)
    checked(OneVsRestClassifier(make_pipeline(numbers(), LINEAR)), "three")
    checked(CalibratedClassifierCV(make_pipeline(numbers(), LinearSVC()), ensemble=False, cv=3), "two")


def test_calibrated_after_it_was_fitted():
    data, wanted = applications(), goals(applications())["two"]
    fitted = make_pipeline(numbers(), BOOSTING).fit(data, wanted)
    model = CalibratedClassifierCV(FrozenEstimator(fitted), ensemble=False)
    checked(model, "two")


def test_a_bag_whose_parts_have_not_seen_every_class():
    data = applications()[["age", "debt"]]
    wanted = np.where(np.arange(400) < 4, "rare", goals(applications())["two"])
    rows_alone = make_pipeline(StandardScaler(), TREE)  # which take no weights
    model = BaggingClassifier(rows_alone, max_samples=20, n_estimators=8, random_state=1).fit(data, wanted)
    assert {len(part.classes_) for part in model.estimators_} == {2, 3}
    agree(model, wrapped(model, data, wanted), data)


def test_answers_of_an_opened_bag_are_certified():
    data, wanted = applications()[["age", "debt"]], goals(applications())["two"]
    model = BaggingClassifier(TREE, **FEW).fit(data, wanted)
    explained = mlflow_cf.wrap(model, data, target="yes")
    refused = data[model.predict(data) == "no"][:3]
    for found in explained.explain(refused, certify=True):
        assert found.status == "found"
        assert found.counterfactuals[0].proof == "optimal"


CLOSED: dict[str, tuple[Any, str]] = {
    "BaggingClassifier of models whose scores are not sums": (BaggingClassifier(LinearSVC(), **FEW), "two"),
    "OneVsRestClassifier of shares, which it divides by their sum": (OneVsRestClassifier(TREE), "three"),
    "CalibratedClassifierCV by isotonic": (
        CalibratedClassifierCV(TREE, method="isotonic", ensemble=False, cv=2),
        "two",
    ),
    "AdaBoostClassifier of others than single trees": (AdaBoostClassifier(LINEAR, n_estimators=3), "two"),
    "the estimator KNeighborsClassifier": (BaggingClassifier(KNeighborsClassifier(), **FEW), "two"),
    "it has labels only": (VotingClassifier([("a", TREE), ("b", FOREST)]), "two"),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("reason", "model", "goal"), [(reason, *case) for reason, case in CLOSED.items()], ids=CLOSED)
def test_what_stood_in_the_way_is_named(reason, model, goal):
    data = applications()[["age", "debt"]]
    wanted = goals(applications())[goal]
    explained = wrapped(model.fit(data, wanted), data, wanted)
    assert explained.opened.structure is None
    assert reason in explained.opened.note
