"""scikit-learn's estimators, opened into structures.

`_READERS` and `ENSEMBLES` list the estimators; the steps before them are listed in `sklearn_columns`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse

from mlflow_cf.features import FeatureSpace
from mlflow_cf.structures import Link, NotOpenedError, NumberColumn, Structure
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.boosting import lightgbm_trees, without
from mlflow_cf_flavors.catboost.export import objective_of
from mlflow_cf_flavors.catboost.structure import catboost_trees
from mlflow_cf_flavors.sklearn.additive import additive_trees
from mlflow_cf_flavors.sklearn.bayes import NAIVE_BAYES, naive_bayes
from mlflow_cf_flavors.sklearn.columns import through, transformed
from mlflow_cf_flavors.sklearn.ensembles import ENSEMBLES
from mlflow_cf_flavors.sklearn.sources import RawLevels, Source, finished, raw_columns, unmixed
from mlflow_cf_flavors.sklearn.trees import FORESTS
from mlflow_cf_flavors.sums import EXP, DenseModel, Sums, TreeModel, made
from mlflow_cf_flavors.xgboost.trees import xgboost_model

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
    model = found_in(model)
    return sums_of(model, inputs_of(model, space, rows)).compile(space)


def levels_of(model: Estimator, space: FeatureSpace, rows: pd.DataFrame) -> Mapping[str, frozenset[str]]:
    """Return the levels of features that the encoders of a pipeline know; see `OpenModel.levels`.

    Features whose levels its last step takes as they are, or that are numbers, are left out: nothing is known of them.
    """
    model = found_in(model)
    if type(model).__name__ != "Pipeline":
        return {}
    table = inputs_of(model, space, rows)
    sources, _ = through([step for _, step in model.steps[:-1]], table.sources, table.names)
    passed = {source.feature for source in sources if isinstance(source, RawLevels)}
    raw = [source for source in table.sources if isinstance(source, RawLevels) and source.feature not in passed]
    texts = [source for source in raw if all(isinstance(value, str) for value in source.values[:-2])]
    return {source.name: frozenset(source.told_apart) for source in texts}


@dataclass(frozen=True, eq=False)
class Inputs:
    """The inputs of an estimator.

    Attributes:
        sources: its columns; names: of these.
        rows: some rows of the table they are computed from; space: its raw features.
        sparse: whether zeros of the columns are not stored.
    """

    sources: Sequence[Source]
    names: Sequence[str]
    rows: pd.DataFrame
    space: FeatureSpace
    sparse: bool = False

    def read(self, estimator: Estimator, places: Sequence[int] | None = None, *, placeholders: bool = False) -> Sums:
        """Return an estimator inside of another one that hands on the columns at `places`, or all of them.

        With `placeholders`, it takes what others make of them instead, and only its weights are of use.
        """
        if placeholders:
            made = [NumberColumn(0) for _ in range(int(estimator.n_features_in_))]
            return sums_of(estimator, replace(self, sources=made, names=[str(at) for at in range(len(made))]))
        if places is None:
            return sums_of(estimator, self)
        sources, names = [self.sources[at] for at in places], [self.names[at] for at in places]
        return sums_of(estimator, replace(self, sources=sources, names=names))


def inputs_of(model: Estimator, space: FeatureSpace, rows: pd.DataFrame) -> Inputs:
    """Return the raw columns that a fitted estimator or pipeline takes."""
    names = [str(name) for name in getattr(model, "feature_names_in_", space.names)]
    return Inputs(raw_columns(space, names), names, rows, space)


def sums_of(estimator: Estimator, table: Inputs) -> Sums:
    """Return an estimator that takes `table`, before it is compiled; NotOpenedError if it is not known here."""
    estimator = found_in(estimator)
    kind, library = type(estimator).__name__, type(estimator).__module__.split(".")[0]
    if kind in ENSEMBLES:
        return ENSEMBLES[kind](estimator, table.read)
    read = _READERS.get(library) or _READERS.get(kind)
    if read is None:
        raise NotOpenedError(say("estimator", kind=kind))
    return read(estimator, table)


def found_in(estimator: Estimator) -> Estimator:
    """Return the best estimator of a search for parameters, which answers for the search."""
    return getattr(estimator, "best_estimator_", estimator)


def _pipeline(model: Estimator, table: Inputs) -> Sums:
    sources, names = through([step for _, step in model.steps[:-1]], table.sources, table.names)
    last = found_in(model.steps[-1][1])
    sparse = type(last).__module__.startswith("xgboost") and issparse(model[:-1].transform(table.rows[:1]))
    return sums_of(last, Inputs(sources, names, table.rows, table.space, sparse))


def _frozen(estimator: Estimator, table: Inputs) -> Sums:
    return sums_of(estimator.estimator, table)


def _fitted_inside(estimator: Estimator, table: Inputs) -> Sums:
    """Return the estimator that another one has fitted to what it chose, and that answers for it."""
    return sums_of(estimator.estimator_, table)


def _trees(estimator: Estimator, table: Inputs) -> Sums:
    kind = type(estimator).__name__
    sources = _categories_first(estimator, table) if kind.startswith("Hist") else table.sources
    function = EXP if getattr(estimator, "loss", "") in ("poisson", "gamma") else None
    return made(TreeModel(finished(sources, kind), FORESTS[kind](estimator)), function)


def _lightgbm(estimator: Estimator, table: Inputs) -> Sums:
    return lightgbm_trees(estimator.booster_, finished(table.sources, type(estimator).__name__))


def _xgboost(estimator: Estimator, table: Inputs) -> Sums:
    """XGBoost in a pipeline or a search; it takes the zeros of a sparse table as missing values."""
    columns = finished(table.sources, type(estimator).__name__)
    if not np.isnan(estimator.missing):
        raise NotOpenedError(say("missing_number", missing=float(estimator.missing)))
    if table.sparse:
        columns = [without(column, 0.0, 0.0) for column in columns]
    rounds = estimator.best_iteration + 1 if hasattr(estimator, "best_iteration") else 0
    return xgboost_model(estimator.get_booster(), rounds, columns)


def _catboost(estimator: Estimator, table: Inputs) -> TreeModel:
    """CatBoost in a pipeline, which answers probabilities there: those of MultiClassOneVsAll do not add up to 1."""
    if (objective := objective_of(estimator)) == "MultiClassOneVsAll":
        raise NotOpenedError(f"CatBoost's objective {objective}")
    return catboost_trees(estimator, table.sources, table.space)


def _additive(estimator: Estimator, table: Inputs) -> TreeModel:
    return additive_trees(estimator, table.sources)


def _categories_first(estimator: Estimator, table: Inputs) -> list[Source]:
    """Return the columns in the order of the trees of HistGradientBoosting, which encodes its categories itself."""
    mask, sources = estimator.is_categorical_, table.sources
    if mask is None:
        return list(sources)
    encoder = estimator._preprocessor.named_transformers_["encoder"]  # noqa: SLF001  published nowhere else
    chosen = [source for source, is_category in zip(sources, mask, strict=True) if is_category]
    others = [source for source, is_category in zip(sources, mask, strict=True) if not is_category]
    return [*transformed(encoder, chosen, table.names), *others]


_OUTPUTS: dict[str, Link] = {"logistic": "sigmoid", "softmax": "softmax", "identity": "identity"}
_ONE_AGAINST_THE_REST = ("SGDClassifier",)  # its classes are scored independently; others use a softmax
_LINEAR = {
    "ARDRegression", "BayesianRidge", "ElasticNet", "ElasticNetCV", "HuberRegressor", "Lars", "LarsCV", "Lasso",
    "LassoCV", "LassoLars", "LassoLarsCV", "LassoLarsIC", "LinearDiscriminantAnalysis", "LinearRegression", "LinearSVC",
    "LinearSVR", "LogisticRegression", "LogisticRegressionCV", "OrthogonalMatchingPursuit",
    "OrthogonalMatchingPursuitCV", "PassiveAggressiveClassifier", "PassiveAggressiveRegressor", "Perceptron",
    "QuantileRegressor", "Ridge", "RidgeCV", "RidgeClassifier", "RidgeClassifierCV", "SGDClassifier", "SGDRegressor",
    "TheilSenRegressor",
}  # fmt: skip


def _linear(estimator: Estimator, table: Inputs) -> DenseModel:
    weights = np.atleast_2d(estimator.coef_).T.astype(np.float64)
    biases = np.broadcast_to(np.atleast_1d(estimator.intercept_), weights.shape[1:]).astype(np.float64)
    columns, weights, biases = unmixed(table.sources, type(estimator).__name__, weights, biases)
    if getattr(estimator, "loss", "") == "modified_huber":
        raise NotOpenedError(say("huber"))
    link: Link = "identity"
    if hasattr(estimator, "predict_proba"):
        several = type(estimator).__name__ not in _ONE_AGAINST_THE_REST and weights.shape[1] > 1
        link = "softmax" if several else "sigmoid"
    elif hasattr(estimator, "classes_") and weights.shape[1] == 1:  # one margin m is (-m, m)
        weights, biases = np.hstack([-weights, weights]), np.concatenate([-biases, biases])
    return DenseModel(columns, [weights], [biases], "identity", link)


def _generalised(estimator: Estimator, table: Inputs) -> Sums:
    """Return a generalised linear model, whose values are a linear model's or their exponentials."""
    link = getattr(estimator, "link", "log")
    identity = link == "identity" or (link == "auto" and estimator.power <= 0)
    return made(_linear(estimator, table), None if identity else EXP)


def _support_vectors(estimator: Estimator, table: Inputs) -> DenseModel:
    kind = type(estimator).__name__
    if estimator.kernel != "linear":
        raise NotOpenedError(f"{kind} with the kernel {estimator.kernel}")
    if len(getattr(estimator, "classes_", ())) > 2 or hasattr(estimator, "predict_proba"):
        raise NotOpenedError(f"{kind} of several classes, or with probabilities")
    return _linear(estimator, table)


def _naive_bayes(estimator: Estimator, table: Inputs) -> DenseModel:
    return naive_bayes(estimator, table.sources)


def _network(estimator: Estimator, table: Inputs) -> DenseModel:
    first, bias = np.asarray(estimator.coefs_[0], np.float64), np.asarray(estimator.intercepts_[0], np.float64)
    columns, first, bias = unmixed(table.sources, type(estimator).__name__, first, bias)
    weights, biases = [first, *estimator.coefs_[1:]], [bias, *estimator.intercepts_[1:]]
    return DenseModel(columns, weights, biases, estimator.activation, _OUTPUTS[estimator.out_activation_])


_READERS: dict[str, Callable[[Estimator, Inputs], Sums]] = {
    "catboost": _catboost,
    "interpret": _additive,
    "lightgbm": _lightgbm,
    "xgboost": _xgboost,
    "Pipeline": _pipeline,
    "FrozenEstimator": _frozen,
    "MLPClassifier": _network,
    "MLPRegressor": _network,
    "RANSACRegressor": _fitted_inside,
    "SelfTrainingClassifier": _fitted_inside,
    **dict.fromkeys(("GammaRegressor", "PoissonRegressor", "TweedieRegressor"), _generalised),
    **dict.fromkeys(("NuSVC", "NuSVR", "SVC", "SVR"), _support_vectors),
    **dict.fromkeys(NAIVE_BAYES, _naive_bayes),
    **dict.fromkeys(_LINEAR, _linear),
    **dict.fromkeys(FORESTS, _trees),
}
