"""scikit-learn's decision trees, forests and boosting, as forests over encoded columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.structures import Forest, Link, NotOpenedError, Subsets
from mlflow_cf.words.statements import say

Estimator = Any  # scikit-learn carries no types


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
    """One tree, or a forest that averages shares or values of its trees; threads add them in the order they finish."""
    trees = [part.tree_ for part in getattr(estimator, "estimators_", [estimator])]
    values = [tree.value[:, 0, :] / len(trees) for tree in trees]
    output = -1 if hasattr(estimator, "classes_") else 0
    forest = _joined(trees, values, [output] * len(trees), "identity")
    return replace(forest, steady=getattr(estimator, "n_jobs", None) in (None, 1))


def _gradient_boosting(estimator: Estimator) -> Forest:
    if estimator.init_ != "zero" and type(estimator.init_).__name__ not in ("DummyClassifier", "DummyRegressor"):
        raise NotOpenedError(say("starts_from", kind=type(estimator.init_).__name__))
    rounds, width = estimator.estimators_.shape
    trees = [estimator.estimators_[r, k].tree_ for r in range(rounds) for k in range(width)]
    steep = 2.0 if estimator.loss == "exponential" else 1.0  # the sigmoid takes twice the raw score
    values = [tree.value[:, 0, :] * (steep * estimator.learning_rate) for tree in trees]
    forest = _joined(trees, values, [k for _ in range(rounds) for k in range(width)], _boosting_link(estimator, width))
    anything = np.zeros((1, estimator.n_features_in_), dtype=np.float32)
    return replace(forest, base=steep * estimator._raw_predict_init(anything)[0])  # noqa: SLF001  published nowhere else


_LOSSES = ("squared_error", "absolute_error", "quantile", "poisson", "gamma")  # the last two answer exp of a raw score


def _hist_gradient_boosting(estimator: Estimator) -> Forest:
    if not hasattr(estimator, "classes_") and estimator.loss not in _LOSSES:
        raise NotOpenedError(say("histogram_loss", loss=str(estimator.loss)))
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
FORESTS: dict[str, Callable[[Estimator], Forest]] = {
    **{f"{name}{task}": _averaged for name in _AVERAGED for task in ("Classifier", "Regressor")},
    "GradientBoostingClassifier": _gradient_boosting,
    "GradientBoostingRegressor": _gradient_boosting,
    "HistGradientBoostingClassifier": _hist_gradient_boosting,
    "HistGradientBoostingRegressor": _hist_gradient_boosting,
}
