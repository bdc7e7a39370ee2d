"""scikit-learn's estimators, opened into structures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.structures import (
    Column,
    Forest,
    Layers,
    LevelColumn,
    Link,
    NotOpenedError,
    Structure,
    TreeEnsemble,
)
from mlflow_cf_flavors.boosting_structure import lightgbm_forest, xgboost_forest
from mlflow_cf_flavors.sklearn_columns import RawLevels, raw_columns, transformed

Estimator = Any  # scikit-learn carries no types


def compile_model(model: Estimator, space: FeatureSpace, rows: pd.DataFrame) -> Structure:
    """Return the structure of a fitted estimator or pipeline for the features of `space`.

    Args:
        model: a classifier or regressor, or a pipeline that ends in one.
        space: its raw features.
        rows: some background rows; constants that libraries keep private are measured on them.

    Raises:
        NotOpenedError: a step or an estimator that is not known here.
    """
    sources = raw_columns(space)
    estimator = model
    if type(model).__name__ == "Pipeline":
        for _, step in model.steps[:-1]:
            sources = transformed(step, sources, space.names)
        estimator = model.steps[-1][1]
    columns: list[Column] = []
    for source in sources:
        if isinstance(source, RawLevels):
            raise NotOpenedError(f"the levels of {space.names[source.feature]}, which no step turns into numbers")
        columns.append(source)
    kind = type(estimator).__name__
    if kind in _FORESTS:
        return _with_base(TreeEnsemble.compile(_FORESTS[kind](estimator), columns, space), model, space, rows)
    if kind in _LINEAR:
        return _linear(estimator, columns, space)
    if kind in ("MLPClassifier", "MLPRegressor"):
        link = _OUTPUTS[estimator.out_activation_]
        return Layers.compile(columns, space, estimator.coefs_, estimator.intercepts_, (estimator.activation, link))
    library = type(estimator).__module__.split(".")[0]
    if library == "lightgbm":
        return TreeEnsemble.compile(lightgbm_forest(estimator.booster_), columns, space)
    if library == "xgboost":
        return _xgboost(model, estimator, columns, space, rows)
    raise NotOpenedError(f"the estimator {kind}")


def _xgboost(
    model: Estimator, estimator: Estimator, columns: list[Column], space: FeatureSpace, rows: Any
) -> Structure:
    """XGBoost at the end of a pipeline; it takes the zeros of a sparse table as missing values."""
    front = model[:-1].transform
    if issparse(front(rows[:1])):
        columns = [_zero_as_missing(column) for column in columns]
    rounds = (0, estimator.best_iteration + 1) if hasattr(estimator, "best_iteration") else (0, 0)
    return TreeEnsemble.compile(xgboost_forest(estimator.get_booster(), rounds), columns, space)


def _zero_as_missing(column: Column) -> Column:
    if isinstance(column, LevelColumn):
        return replace(column, table=np.where(column.table == 0, np.nan, column.table))
    return replace(column, steps=(*column.steps, lambda values: np.where(values == 0, np.nan, values)))


_OUTPUTS: dict[str, Link] = {"logistic": "sigmoid", "softmax": "softmax", "identity": "identity"}
_LINEAR = {
    "LogisticRegression",
    "LogisticRegressionCV",
    "LinearSVC",
    "SGDClassifier",
    "RidgeClassifier",
    "RidgeClassifierCV",
    "LinearRegression",
    "Ridge",
    "RidgeCV",
    "Lasso",
    "LassoCV",
    "ElasticNet",
    "ElasticNetCV",
    "SGDRegressor",
    "LinearSVR",
}


def _linear(estimator: Estimator, columns: list[Column], space: FeatureSpace) -> Layers:
    weights = np.atleast_2d(estimator.coef_).T.astype(np.float64)
    biases = np.broadcast_to(np.atleast_1d(estimator.intercept_), weights.shape[1:]).astype(np.float64)
    if not hasattr(estimator, "classes_"):
        return Layers.compile(columns, space, [weights], [biases], ("identity", "identity"))
    if hasattr(estimator, "predict_proba"):
        several = type(estimator).__name__.startswith("LogisticRegression") and weights.shape[1] > 1
        return Layers.compile(columns, space, [weights], [biases], ("identity", "softmax" if several else "sigmoid"))
    if weights.shape[1] == 1:  # one margin m stands for (-m, m)
        weights, biases = np.hstack([-weights, weights]), np.concatenate([-biases, biases])
    return Layers.compile(columns, space, [weights], [biases], ("identity", "identity"))


def _joined(trees: list[Any], values: list[Floats], outputs: list[int], link: Link) -> Forest:
    """Join scikit-learn's trees; `values` are their leaf values (nodes, k)."""
    sizes = np.array([tree.node_count for tree in trees])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    shift = np.repeat(starts, sizes)
    column = np.concatenate([tree.feature for tree in trees])
    return Forest(
        roots=starts.astype(np.int32),
        outputs=np.array(outputs, dtype=np.int32),
        column=np.where(column >= 0, column, -1).astype(np.int32),
        threshold=np.concatenate([tree.threshold for tree in trees]),
        missing_left=np.concatenate([tree.missing_go_to_left for tree in trees]).astype(np.bool_),
        left=(np.concatenate([tree.children_left for tree in trees]) + shift).astype(np.int32),
        right=(np.concatenate([tree.children_right for tree in trees]) + shift).astype(np.int32),
        value=np.ascontiguousarray(np.concatenate(values)),
        rule="<= float32",
        base=np.zeros(max(max(outputs) + 1, 1 if outputs[0] >= 0 else values[0].shape[1])),
        link=link,
    )


def _averaged(estimator: Estimator) -> Forest:
    """One tree, or a forest whose trees' shares (or values) are averaged."""
    trees = [part.tree_ for part in getattr(estimator, "estimators_", [estimator])]
    if hasattr(estimator, "classes_"):
        values = [tree.value[:, 0, :] / tree.value[:, 0, :].sum(axis=1, keepdims=True) for tree in trees]
        return _joined(trees, [value / len(trees) for value in values], [-1] * len(trees), "identity")
    return _joined(trees, [tree.value[:, 0, :] / len(trees) for tree in trees], [0] * len(trees), "identity")


def _gradient_boosting(estimator: Estimator) -> Forest:
    if estimator.loss == "exponential":
        raise NotOpenedError("GradientBoostingClassifier with exponential loss")
    rounds, width = estimator.estimators_.shape
    trees = [estimator.estimators_[r, k].tree_ for r in range(rounds) for k in range(width)]
    values = [tree.value[:, 0, :] * estimator.learning_rate for tree in trees]
    return _joined(trees, values, [k for _ in range(rounds) for k in range(width)], _boosting_link(estimator, width))


def _hist_gradient_boosting(estimator: Estimator) -> Forest:
    if getattr(estimator, "is_categorical_", None) is not None and np.any(estimator.is_categorical_):
        raise NotOpenedError("HistGradientBoosting with categorical features")
    if not hasattr(estimator, "classes_") and estimator.loss not in ("squared_error", "absolute_error", "quantile"):
        raise NotOpenedError(f"HistGradientBoostingRegressor with {estimator.loss} loss")
    rounds = estimator._predictors  # noqa: SLF001  published nowhere else
    trees = [(tree.nodes, k) for round_ in rounds for k, tree in enumerate(round_)]
    sizes = np.array([len(nodes) for nodes, _ in trees])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    nodes, shift = np.concatenate([nodes for nodes, _ in trees]), np.repeat(starts, sizes)
    outputs = np.array([k for _, k in trees], dtype=np.int32)
    width = int(outputs.max()) + 1
    return Forest(
        roots=starts.astype(np.int32),
        outputs=outputs,
        column=np.where(nodes["is_leaf"], -1, nodes["feature_idx"].astype(np.int64)).astype(np.int32),
        threshold=nodes["num_threshold"].astype(np.float64),
        missing_left=nodes["missing_go_to_left"].astype(np.bool_),
        left=(nodes["left"] + shift).astype(np.int32),
        right=(nodes["right"] + shift).astype(np.int32),
        value=nodes["value"].astype(np.float64)[:, None],
        rule="<= float64",
        base=np.zeros(width),
        link=_boosting_link(estimator, width),
    )


def _boosting_link(estimator: Estimator, width: int) -> Link:
    if not hasattr(estimator, "classes_"):
        return "identity"
    return "sigmoid" if width == 1 else "softmax"


_AVERAGED = ("DecisionTree", "ExtraTree", "RandomForest", "ExtraTrees")
_FORESTS: dict[str, Callable[[Estimator], Forest]] = {
    **{f"{name}{task}": _averaged for name in _AVERAGED for task in ("Classifier", "Regressor")},
    "GradientBoostingClassifier": _gradient_boosting,
    "GradientBoostingRegressor": _gradient_boosting,
    "HistGradientBoostingClassifier": _hist_gradient_boosting,
    "HistGradientBoostingRegressor": _hist_gradient_boosting,
}


def _with_base(ensemble: TreeEnsemble, model: Estimator, space: FeatureSpace, rows: pd.DataFrame) -> TreeEnsemble:
    """Add the constant that boosting starts from, which scikit-learn keeps private: margins less the sums of trees."""
    if "Boosting" not in _final_name(model):
        return ensemble
    Z = space.encode(rows)
    sums = ensemble.sums([ensemble.encode(column, Z[:, column]) for column in range(Z.shape[1])])
    margins = model.decision_function(rows) if hasattr(model, "classes_") else model.predict(rows)
    base = np.median(np.reshape(margins, sums.shape) - sums, axis=0)
    return replace(ensemble, base=base)


def _final_name(model: Estimator) -> str:
    return type(model.steps[-1][1] if type(model).__name__ == "Pipeline" else model).__name__
