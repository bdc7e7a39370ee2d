"""scikit-learn's estimators made of others, whose answers can be bounded by the raw scores of those inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import numpy as np
from scipy.special import expit, logit

from mlflow_cf.features import Floats
from mlflow_cf.structures import Increasing, NotOpenedError, WeightedMedian
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.sums import DenseModel, MadeOf, MixedModel, Sums, Term, TreeModel, added, scores_of, unlinked

Estimator = Any  # scikit-learn carries no types


class Read(Protocol):
    """Reads an inner estimator of the columns at positions `places`, or of all; or of `placeholders` for others."""

    def __call__(
        self, estimator: Estimator, places: Sequence[int] | None = None, *, placeholders: bool = False
    ) -> Sums:
        """Return the model inside; NotOpenedError if it is of an unknown kind."""
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
    """Return the sum of the scores of `parts`, each times its matrix."""
    labels = hasattr(model, "classes_")
    terms = [Term(part, matrix) for part, matrix in zip(parts, matrices, strict=True)]
    # of models without probabilities, labels are counted instead
    if labels and not all(hasattr(one, "predict_proba") for one in model.estimators_):
        raise NotOpenedError(say("scores_no_sums", kind=type(model).__name__))
    zeros = np.zeros(matrices[0].shape[1])
    if all(part.link == "identity" for part in parts):
        return added(terms, zeros, "identity")
    return _shares(type(model).__name__, terms, zeros)


def _shares(name: str, terms: Sequence[Term], bias: Floats) -> MixedModel:
    """Return probabilities that are sums of scores; of two classes, the second one's alone."""
    if len(bias) != 2:
        return MixedModel(name, terms, bias, "identity")
    return MixedModel(name, [Term(part, matrix[:, 1:]) for part, matrix in terms], bias[1:], "share")


def _calibrated(model: Estimator, read: Read) -> Sums:
    """Return a model whose margins or shares are put through one sigmoid per class, or the mean of several."""
    parts = [_calibrated_once(model, one, read) for one in model.calibrated_classifiers_]
    if len(parts) == 1:
        return parts[0]
    width = len(model.classes_)
    return _shares(type(model).__name__, [Term(one, np.eye(width) / len(parts)) for one in parts], np.zeros(width))


def _calibrated_once(model: Estimator, one: Estimator, read: Read) -> Sums:
    if one.method != "sigmoid":
        raise NotOpenedError(say("calibrated_by", method=str(one.method)))
    part, outputs = read(one.estimator), len(one.calibrators)
    shares = part.link != "identity" and not hasattr(one.estimator, "decision_function")
    given = scores_of(part) if shares else part.outputs
    if outputs not in (1, given) or len(one.estimator.classes_) != len(model.classes_):
        raise NotOpenedError(say("some_classes", kind="CalibratedClassifierCV"))
    slope = np.array([-calibrator.a_ for calibrator in one.calibrators])
    offset = np.array([-calibrator.b_ for calibrator in one.calibrators])
    matrix = np.zeros((given, outputs))
    matrix[-outputs:] = np.diag(slope)  # with two raw scores for two classes, the second class has the last
    if shares:
        return MixedModel(type(model).__name__, [Term(part, matrix)], offset, "sigmoid")
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


def _boosted_values(model: Estimator, read: Read) -> MadeOf:
    """Return the weighted median of AdaBoost's single trees, each with a raw score of its own."""
    count = len(model.estimators_)
    parts = [read(one) for one in model.estimators_]
    if not all(isinstance(part, TreeModel) and len(part.forest.roots) == 1 for part in parts):
        raise NotOpenedError(say("median_of_others"))
    every = added([Term(part, np.eye(1)) for part in parts], np.zeros(1), "identity")
    if not isinstance(every, TreeModel):
        raise NotOpenedError(say("median_of_others"))
    apart = replace(every.forest, outputs=np.arange(count, dtype=np.int32), base=np.zeros(count))
    weights = np.asarray(model.estimator_weights_[:count], dtype=np.float64)
    return MadeOf("weighted median", replace(every, forest=apart), WeightedMedian(weights))


def _of_transformed(model: Estimator, read: Read) -> Sums:
    """Return a regressor of a transformed target, whose inverse is a line or never falls."""
    part, inverse = read(model.regressor_), model.transformer_
    kind = type(inverse).__name__
    if kind == "FunctionTransformer":
        return _of_function(part, inverse)
    if kind in _LINES:
        slope, shift = _LINES[kind](inverse)
        return added([Term(part, np.array([[slope]]))], np.array([shift]), "identity")
    if kind not in _RISING:
        raise NotOpenedError(say("target_by", kind=kind))
    return MadeOf(f"inverse of {kind}", part, Increasing(kind, inverse.inverse_transform))


def _of_function(part: Sums, transformer: Estimator) -> Sums:
    function = transformer.inverse_func
    if function is None:
        return part
    name = next((known.__name__ for known in _INCREASING if known is function), None)
    if name is None or transformer.inv_kw_args:
        raise NotOpenedError(say("target_by_function"))
    return MadeOf(name, part, Increasing(name, function))


def _stacked(model: Estimator, read: Read) -> Sums:
    """Return a linear model over the scores of others, and perhaps over the columns too."""
    refusal = NotOpenedError(say("stacked_under", kind=type(model.final_estimator_).__name__))
    try:
        final = read(model.final_estimator_, placeholders=True)
    except NotOpenedError as error:
        raise refusal from error
    if not isinstance(final, DenseModel) or len(final.weights) != 1:
        raise refusal
    return _over(model, final, read)


def _over(model: Estimator, final: DenseModel, read: Read) -> MixedModel:
    weights, taken, terms = final.weights[0], 0, []
    for one, method in zip(model.estimators_, model.stack_method_, strict=True):
        part = read(one)
        if method == "predict" and hasattr(one, "classes_"):
            raise NotOpenedError(say("stacked_labels", kind=type(one).__name__))
        if method == "decision_function":
            part = unlinked(part)
        width, skipped = scores_of(part), 0
        if width == 2 and hasattr(one, "classes_"):
            skipped = 1  # of two classes, the second one's score alone is handed on
        matrix = np.zeros((width, weights.shape[1]))
        matrix[skipped:] = weights[taken : taken + width - skipped]
        taken += width - skipped
        terms.append(Term(part, matrix))
    if model.passthrough:
        terms.append(Term(read(_linear_in(weights[taken:])), np.eye(weights.shape[1])))
    elif taken != len(weights):
        raise NotOpenedError(say("columns_of", name=type(model).__name__))
    return MixedModel(type(model).__name__, terms, final.biases[0], final.link)


def _linear_in(weights: Floats) -> Estimator:
    """Return a linear model with these `weights` (columns, k), for a reader."""
    from sklearn.linear_model import LinearRegression

    line = LinearRegression()
    line.coef_, line.intercept_ = weights.T, np.zeros(weights.shape[1])
    return line


# what transforms a target back by a line: its slope and what is added
_LINES: Final[dict[str, Callable[[Estimator], tuple[float, float]]]] = {
    "StandardScaler": lambda step: (
        1.0 if step.scale_ is None else float(step.scale_[0]),
        float(step.mean_[0]) if step.with_mean else 0.0,
    ),
    "MinMaxScaler": lambda step: (1.0 / float(step.scale_[0]), -float(step.min_[0]) / float(step.scale_[0])),
    "MaxAbsScaler": lambda step: (float(step.scale_[0]), 0.0),
    "RobustScaler": lambda step: (
        float(step.scale_[0]) if step.with_scaling else 1.0,
        float(step.center_[0]) if step.with_centering else 0.0,
    ),
}
_RISING: Final = ("PowerTransformer", "QuantileTransformer")  # their inverses never fall
_INCREASING: Final = (np.exp, np.exp2, np.expm1, np.cbrt, np.sinh, np.arcsinh, np.log, np.log1p, expit, logit)

ENSEMBLES: dict[str, Callable[[Estimator, Read], Sums]] = {
    "AdaBoostClassifier": _boosted_votes,
    "AdaBoostRegressor": _boosted_values,
    "BaggingClassifier": _bagged,
    "BaggingRegressor": _bagged,
    "CalibratedClassifierCV": _calibrated,
    "OneVsRestClassifier": _one_vs_rest,
    "StackingClassifier": _stacked,
    "StackingRegressor": _stacked,
    "TransformedTargetRegressor": _of_transformed,
    "VotingClassifier": _voted,
    "VotingRegressor": _voted,
}
