"""scikit-learn's naive Bayes: what each feature adds to the logarithms of the classes' likelihoods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.structures import Column, IntervalColumn, NumberColumn
from mlflow_cf_flavors.sklearn.sources import DOUBLE, Source, finished, function_of, unmixed
from mlflow_cf_flavors.sums import DenseModel

Estimator = Any  # scikit-learn carries no types
Function = Callable[[Floats], Floats]

NAIVE_BAYES: Final = ("BernoulliNB", "CategoricalNB", "ComplementNB", "GaussianNB", "MultinomialNB")


def naive_bayes(estimator: Estimator, sources: Sequence[Source]) -> DenseModel:
    """Return a fitted naive Bayes classifier that takes `sources`.

    Raises:
        NotOpenedError: columns that it takes as they are and that are no numbers of one feature each.
    """
    kind = type(estimator).__name__
    if kind in ("GaussianNB", "CategoricalNB"):
        likelihoods = _normal(estimator) if kind == "GaussianNB" else _of_categories(estimator)
        return _of_curves(estimator, finished(sources, kind, curved=True), likelihoods)
    weights, bias = _linear(estimator)
    if kind == "BernoulliNB" and estimator.binarize is not None:
        cut = float(estimator.binarize)
        sources = [_above(column, cut) for column in finished(sources, kind, curved=True)]
    columns, weights, bias = unmixed(sources, kind, weights, bias)
    return _model(columns, _of_outputs(weights), _of_outputs(bias))


def _linear(estimator: Estimator) -> tuple[Floats, Floats]:
    """Return weights (features, classes) and biases (classes,) of likelihoods that are linear in the features."""
    weights, prior = estimator.feature_log_prob_.T, estimator.class_log_prior_
    if type(estimator).__name__ == "ComplementNB":
        return weights, np.zeros_like(prior)
    if type(estimator).__name__ == "MultinomialNB":
        return weights, prior
    absent = np.log(1 - np.exp(weights))  # as scikit-learn does
    return weights - absent, prior + absent.sum(axis=0)


def _normal(estimator: Estimator) -> list[Function]:
    """Return of each feature its numbers (n,) -> the logarithms of their normal densities (n, classes)."""
    return [partial(_log_density, *pair) for pair in zip(estimator.theta_.T, estimator.var_.T, strict=True)]


def _log_density(mean: Floats, variance: Floats, numbers: Floats) -> Floats:
    found: Floats = -0.5 * (np.log(2.0 * np.pi * variance) + (numbers[:, None] - mean) ** 2 / variance)
    return found


def _of_categories(estimator: Estimator) -> list[Function]:
    """Return of each feature its codes (n,) -> the logarithms of their probabilities (n, classes)."""
    return [partial(_looked_up, table.T) for table in estimator.feature_log_prob_]


def _looked_up(table: Floats, codes: Floats) -> Floats:
    """Return the rows (n, classes) of a table at whole numbers (n,); what it lacks, the classifier refuses."""
    return table[np.clip(np.nan_to_num(codes), 0, len(table) - 1).astype(np.intp)]


def _of_curves(estimator: Estimator, columns: Sequence[Column], likelihoods: Sequence[Function]) -> DenseModel:
    """Return a classifier that adds up what each of its columns says of the classes."""
    prior = np.log(estimator.class_prior_) if hasattr(estimator, "class_prior_") else estimator.class_log_prior_
    bias = _of_outputs(np.asarray(prior, dtype=np.float64))
    curves = [
        function_of(column, partial(_output, function, place), DOUBLE)
        for column, function in zip(columns, likelihoods, strict=True)
        for place in range(len(bias))
    ]
    return _model(curves, np.tile(np.eye(len(bias)), (len(columns), 1)), bias)


def _model(columns: Sequence[Column], weights: Floats, bias: Floats) -> DenseModel:
    return DenseModel(columns, [weights], [bias], "identity", "sigmoid" if len(bias) == 1 else "softmax")


def _of_outputs(classes: Floats) -> Floats:
    """Return what is known of classes (..., k) as that of raw scores: of two, it is by how much the second leads."""
    return classes if classes.shape[-1] != 2 else classes[..., 1:] - classes[..., :1]


def _output(function: Function, place: int, numbers: Floats) -> Floats:
    return _of_outputs(function(numbers))[:, place]


def _above(column: Column, cut: float) -> Column:
    """Return whether the encoded value of a column is above a number, as 0 or 1."""
    if isinstance(column, NumberColumn):
        return IntervalColumn(column, np.array([cut]), np.array([0.0, 1.0, 0.0]))
    return function_of(column, partial(_is_above, cut), DOUBLE)


def _is_above(cut: float, numbers: Floats) -> Floats:
    return (numbers > cut).astype(np.float64)
