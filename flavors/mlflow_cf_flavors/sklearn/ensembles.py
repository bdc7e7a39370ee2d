"""scikit-learn's estimators made of others, whose raw scores are linear in those of the inner estimators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.structures import NotOpenedError
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.sums import DenseModel, Sums, Term, TreeModel, added

Estimator = Any  # scikit-learn carries no types


class Read(Protocol):
    """Reads an inner estimator of the columns at positions `places`, or of all."""

    def __call__(self, estimator: Estimator, places: Sequence[int] | None = None) -> Sums:
        """Return its additive raw scores; NotOpenedError if it is of an unknown kind."""
        ...


def _one_vs_rest(model: Estimator, read: Read) -> Sums:
    """Return one model per class side by side; their shares are divided by their total, margins are not."""
    if model.multilabel_:
        raise NotOpenedError(say("several_labels"))
    parts = [read(one) for one in model.estimators_]
    if len(parts) == 1:
        return parts[0]
    shares = hasattr(model, "predict_proba")
    terms = []
    for number, part in enumerate(parts):
        if shares and (part.link != "sigmoid" or part.outputs > 1):
            raise NotOpenedError(say("divided_shares"))
        matrix = np.zeros((part.outputs, len(parts)))
        matrix[-1, number] = 1.0  # a margin m is given as (-m, m)
        terms.append(Term(part, matrix))
    return added(terms, np.zeros(len(parts)), "sigmoid" if shares else "identity")


def _bagged(model: Estimator, read: Read) -> Sums:
    """Return the mean of models, each of some columns and perhaps some classes."""
    parts, matrices = [], []
    for one, places in zip(model.estimators_, model.estimators_features_, strict=True):
        parts.append(read(one, places))
        matrix = np.eye(1)
        if hasattr(model, "classes_"):
            matrix = np.eye(len(model.classes_))[np.asarray(one.classes_, dtype=np.intp)]
        matrices.append(matrix / len(model.estimators_))
    return _mean(model, parts, matrices)


def _voted(model: Estimator, read: Read) -> Sums:
    """Return the weighted mean of models; those that were dropped have a weight, but no estimator."""
    if getattr(model, "voting", "soft") == "hard":
        raise NotOpenedError(say("counted_labels"))
    weights = np.ones(len(model.estimators_))
    if model.weights is not None:
        pairs = zip(model.estimators, model.weights, strict=True)
        weights = np.array([weight for (_, one), weight in pairs if not isinstance(one, str)], dtype=np.float64)
    parts = [read(one) for one in model.estimators_]
    width = len(model.classes_) if hasattr(model, "classes_") else 1
    return _mean(model, parts, [share * np.eye(width) for share in weights / weights.sum()])


def _mean(model: Estimator, parts: Sequence[Sums], matrices: Sequence[Floats]) -> Sums:
    """Return the sum of `parts`, each times its matrix; their scores must be raw scores, without a link."""
    labels = hasattr(model, "classes_")
    # layers of a classifier have a link, or margins, whose labels are counted instead
    if any(part.link != "identity" or (labels and isinstance(part, DenseModel)) for part in parts):
        raise NotOpenedError(say("scores_no_sums", kind=type(model).__name__))
    terms = [Term(part, matrix) for part, matrix in zip(parts, matrices, strict=True)]
    return added(terms, np.zeros(matrices[0].shape[1]), "identity")


def _calibrated(model: Estimator, read: Read) -> Sums:
    """Return a model whose margins or shares are put through one sigmoid per class."""
    if len(model.calibrated_classifiers_) > 1:
        raise NotOpenedError(say("averaged_classifiers", count=len(model.calibrated_classifiers_)))
    one = model.calibrated_classifiers_[0]
    if one.method != "sigmoid":
        raise NotOpenedError(say("calibrated_by", method=str(one.method)))
    part, outputs = read(one.estimator), len(one.calibrators)
    if part.link != "identity" and not hasattr(one.estimator, "decision_function"):
        raise NotOpenedError(say("calibrated_no_sums"))
    if outputs not in (1, part.outputs) or len(one.estimator.classes_) != len(model.classes_):
        raise NotOpenedError(say("some_classes", kind="CalibratedClassifierCV"))
    slope = np.array([-calibrator.a_ for calibrator in one.calibrators])
    offset = np.array([-calibrator.b_ for calibrator in one.calibrators])
    matrix = np.zeros((part.outputs, outputs))
    matrix[-outputs:] = np.diag(slope)  # with two raw scores for two classes, the second class has the last
    return added([Term(part, matrix)], offset, "sigmoid")


def _boosted_votes(model: Estimator, read: Read) -> Sums:
    """Return the weighted votes of single trees, whose leaves each stand for one class."""
    several = len(model.classes_) - 1
    shares = model.estimator_weights_ / model.estimator_weights_.sum()
    votes = np.eye(several + 1) * (1 + 1 / several) - 1 / several  # 1 for a class, and -1 shared by all others
    ways = votes / several if several > 1 else votes @ np.array([[-1.0], [1.0]])
    terms = []
    for one, share in zip(model.estimators_, shares, strict=False):  # stopped early, it has further weights, of 0
        part = read(one)
        if not isinstance(part, TreeModel) or len(part.forest.roots) > 1:
            raise NotOpenedError(say("other_than_trees"))
        if len(one.classes_) <= several:
            raise NotOpenedError(say("some_classes", kind="AdaBoostClassifier"))
        chosen = np.eye(several + 1)[part.forest.value.argmax(axis=1)]
        terms.append(Term(replace(part, forest=replace(part.forest, value=chosen)), share * ways))
    return added(terms, np.zeros(ways.shape[1]), "softmax" if several > 1 else "sigmoid")


ENSEMBLES: dict[str, Callable[[Estimator, Read], Sums]] = {
    "AdaBoostClassifier": _boosted_votes,
    "BaggingClassifier": _bagged,
    "BaggingRegressor": _bagged,
    "CalibratedClassifierCV": _calibrated,
    "OneVsRestClassifier": _one_vs_rest,
    "VotingClassifier": _voted,
    "VotingRegressor": _voted,
}
