"""scikit-learn's estimators, opened into structures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.structures import Column, Forest, Layers, Link, NotOpenedError, Structure, Subsets, TreeEnsemble
from mlflow_cf_flavors.boosting_structure import lightgbm_structure, without
from mlflow_cf_flavors.sklearn_columns import names_after, transformed
from mlflow_cf_flavors.sklearn_mixing import unmixed
from mlflow_cf_flavors.sklearn_sources import Source, finished, raw_columns
from mlflow_cf_flavors.xgboost_trees import xgboost_forest

Estimator = Any  # scikit-learn carries no types


def compile_model(model: Estimator, space: FeatureSpace, rows: pd.DataFrame) -> Structure:
    """Return the structure of a fitted estimator or pipeline for the features of `space`.

    Args:
        model: a classifier or regressor, or a pipeline that ends in one.
        space: its raw features.
        rows: some background rows.

    Raises:
        NotOpenedError: a step or an estimator that is not known here.
    """
    model = getattr(model, "best_estimator_", model)  # a search for parameters answers with the best
    names: Sequence[str] = [str(name) for name in getattr(model, "feature_names_in_", space.names)]
    sources: list[Source] = [*raw_columns(space, names)]
    estimator = model
    if type(model).__name__ == "Pipeline":
        for _, step in model.steps[:-1]:
            before = len(sources)
            sources = transformed(step, sources, names)
            names = names_after(step, names, before, len(sources))
        estimator = model.steps[-1][1]
    kind = type(estimator).__name__
    if kind.startswith("HistGradientBoosting"):
        sources = _categories_first(estimator, sources, names)
    if kind in _LINEAR:
        return _linear(estimator, sources, space)
    if kind in ("MLPClassifier", "MLPRegressor"):
        return _network(estimator, sources, space)
    columns = finished(sources, kind)
    library = type(estimator).__module__.split(".")[0]
    if library == "lightgbm":
        return lightgbm_structure(estimator.booster_, columns, space)
    if library == "xgboost":
        return _xgboost(model, estimator, columns, space, rows)
    if kind in _FORESTS:
        return TreeEnsemble.compile(_FORESTS[kind](estimator), columns, space)
    raise NotOpenedError(f"the estimator {kind}")


def _xgboost(
    model: Estimator, estimator: Estimator, columns: list[Column], space: FeatureSpace, rows: pd.DataFrame
) -> Structure:
    """XGBoost in a pipeline or a search; it takes the zeros of a sparse table as missing values."""
    if not np.isnan(estimator.missing):
        raise NotOpenedError(f"XGBoost with missing={estimator.missing:g}")
    if model is not estimator and issparse(model[:-1].transform(rows[:1])):
        columns = [without(column, 0.0, 0.0) for column in columns]
    rounds = estimator.best_iteration + 1 if hasattr(estimator, "best_iteration") else 0
    return TreeEnsemble.compile(xgboost_forest(estimator.get_booster(), rounds), columns, space)


def _categories_first(estimator: Estimator, sources: Sequence[Source], names: Sequence[str]) -> list[Source]:
    """Return the columns in the order of the trees of HistGradientBoosting, which encodes its categories itself."""
    mask = estimator.is_categorical_
    if mask is None:
        return list(sources)
    encoder = estimator._preprocessor.named_transformers_["encoder"]  # noqa: SLF001  published nowhere else
    chosen = [source for source, is_category in zip(sources, mask, strict=True) if is_category]
    others = [source for source, is_category in zip(sources, mask, strict=True) if not is_category]
    return [*transformed(encoder, chosen, names), *others]


_OUTPUTS: dict[str, Link] = {"logistic": "sigmoid", "softmax": "softmax", "identity": "identity"}
_ONE_AGAINST_THE_REST = ("SGDClassifier",)  # with scores for each class by itself; others weigh all classes at once
_LINEAR = {
    "LogisticRegression",
    "LogisticRegressionCV",
    "LinearDiscriminantAnalysis",
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


def _linear(estimator: Estimator, sources: Sequence[Source], space: FeatureSpace) -> Layers:
    weights = np.atleast_2d(estimator.coef_).T.astype(np.float64)
    biases = np.broadcast_to(np.atleast_1d(estimator.intercept_), weights.shape[1:]).astype(np.float64)
    columns, weights, biases = unmixed(sources, type(estimator).__name__, weights, biases)
    if not hasattr(estimator, "classes_"):
        return Layers.compile(columns, space, [weights], [biases], "identity", "identity")
    if getattr(estimator, "loss", "") == "modified_huber":
        raise NotOpenedError("SGDClassifier with modified_huber loss")
    if hasattr(estimator, "predict_proba"):
        several = type(estimator).__name__ not in _ONE_AGAINST_THE_REST and weights.shape[1] > 1
        return Layers.compile(columns, space, [weights], [biases], "identity", "softmax" if several else "sigmoid")
    if weights.shape[1] == 1:  # one margin m stands for (-m, m)
        weights, biases = np.hstack([-weights, weights]), np.concatenate([-biases, biases])
    return Layers.compile(columns, space, [weights], [biases], "identity", "identity")


def _network(estimator: Estimator, sources: Sequence[Source], space: FeatureSpace) -> Layers:
    first, bias = np.asarray(estimator.coefs_[0], np.float64), np.asarray(estimator.intercepts_[0], np.float64)
    columns, first, bias = unmixed(sources, type(estimator).__name__, first, bias)
    weights, biases = [first, *estimator.coefs_[1:]], [bias, *estimator.intercepts_[1:]]
    link = _OUTPUTS[estimator.out_activation_]
    return Layers.compile(columns, space, weights, biases, estimator.activation, link)


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
    """One tree, or a forest whose trees' shares (or values) are averaged; its threads add them up as they end."""
    trees = [part.tree_ for part in getattr(estimator, "estimators_", [estimator])]
    values = [tree.value[:, 0, :] / len(trees) for tree in trees]
    output = -1 if hasattr(estimator, "classes_") else 0
    forest = _joined(trees, values, [output] * len(trees), "identity")
    return replace(forest, steady=getattr(estimator, "n_jobs", None) in (None, 1))


def _gradient_boosting(estimator: Estimator) -> Forest:
    if estimator.loss == "exponential":
        raise NotOpenedError("GradientBoostingClassifier with exponential loss")
    if estimator.init_ != "zero" and type(estimator.init_).__name__ not in ("DummyClassifier", "DummyRegressor"):
        raise NotOpenedError(f"GradientBoosting that starts from {type(estimator.init_).__name__}")
    rounds, width = estimator.estimators_.shape
    trees = [estimator.estimators_[r, k].tree_ for r in range(rounds) for k in range(width)]
    values = [tree.value[:, 0, :] * estimator.learning_rate for tree in trees]
    forest = _joined(trees, values, [k for _ in range(rounds) for k in range(width)], _boosting_link(estimator, width))
    anything = np.zeros((1, estimator.n_features_in_), dtype=np.float32)
    return replace(forest, base=estimator._raw_predict_init(anything)[0])  # noqa: SLF001  published nowhere else


def _hist_gradient_boosting(estimator: Estimator) -> Forest:
    if not hasattr(estimator, "classes_") and estimator.loss not in ("squared_error", "absolute_error", "quantile"):
        raise NotOpenedError(f"HistGradientBoostingRegressor with {estimator.loss} loss")
    rounds = estimator._predictors  # noqa: SLF001  published nowhere else
    trees = [(tree.nodes, k) for round_ in rounds for k, tree in enumerate(round_)]
    sizes = np.array([len(nodes) for nodes, _ in trees])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    nodes, shift = np.concatenate([nodes for nodes, _ in trees]), np.repeat(starts, sizes)
    outputs = np.array([k for _, k in trees], dtype=np.int32)
    width = int(outputs.max()) + 1
    subsets = _subsets(estimator, nodes, [tree for round_ in rounds for tree in round_], sizes)
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
        base=np.ravel(estimator._baseline_prediction).astype(np.float64),  # noqa: SLF001  published nowhere else
        link=_boosting_link(estimator, width),
        subsets=subsets,
    )


def _subsets(estimator: Estimator, nodes: Any, trees: list[Any], sizes: Any) -> Subsets | None:
    """Return which nodes send some categories left; unknown ones and missing values go together."""
    looked_up = np.flatnonzero(nodes["is_categorical"] & ~nodes["is_leaf"])
    if not len(looked_up):
        return None
    first = np.cumsum([0, *(len(tree.raw_left_cat_bitsets) for tree in trees)])[:-1]
    bitsets = np.concatenate([tree.raw_left_cat_bitsets for tree in trees])
    row = np.repeat(first, sizes)[looked_up] + nodes["bitset_idx"][looked_up]
    left = np.unpackbits(bitsets[row].astype("<u4").view(np.uint8), axis=1, bitorder="little").astype(np.bool_)
    known_bitsets, position = estimator._bin_mapper.make_known_categories_bitsets()  # noqa: SLF001  as above
    known = np.unpackbits(known_bitsets.astype("<u4").view(np.uint8), axis=1, bitorder="little").astype(np.bool_)
    known = known[position[nodes["feature_idx"][looked_up]]]
    missing_left = nodes["missing_go_to_left"][looked_up].astype(np.bool_)[:, None]
    subset = np.full(len(nodes), -1, dtype=np.int32)
    subset[looked_up] = np.arange(len(looked_up))
    return Subsets(subset, np.hstack([left | (~known & missing_left), missing_left]), above=-1.0)


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
