"""The operators of ONNX that are whole models: linear ones, and ensembles of trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures import Link, NotOpenedError
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.layers import Affine, Curved, network
from mlflow_cf_flavors.onnx.graph import Node
from mlflow_cf_flavors.onnx.trees import Leaves, Splits, leaves_of, numbered_trees, splits_of
from mlflow_cf_flavors.onnx.values import Scores, Table, Value, layered, refused
from mlflow_cf_flavors.sklearn.sources import finished
from mlflow_cf_flavors.sums import TreeModel

_MIRROR = np.array([[-1.0, 1.0]])  # the margin m of the second of two classes as (-m, m)
_DIFFERENCE = np.array([[-1.0], [1.0]])  # two raw scores as one


def linear_regressor(node: Node, given: Sequence[Value]) -> Value:
    """Return the raw scores of a linear regression."""
    _check_output(node, 0)
    _check_transform(node, "NONE")
    return layered(node, given[0]).then(_line(node, int(node.attributes.get("targets", 1))))


def linear_classifier(node: Node, given: Sequence[Value]) -> Value:
    """Return the scores of a linear classifier: margins, or what a logistic curve or softmax makes of them."""
    transform = _check_transform(node, "NONE", "LOGISTIC", "SOFTMAX")
    intercepts = node.floats("intercepts")
    count = _labels(node) if intercepts is None else len(intercepts)
    line, value = _line(node, count), layered(node, given[0])
    if count == 1:
        ended = network([*value.layers, line], value.columns, "sigmoid" if transform == "LOGISTIC" else "identity")
        return Scores(ended) if transform == "LOGISTIC" else Scores(ended).then(_MIRROR, np.zeros(2), "identity")
    if transform == "SOFTMAX":
        return Scores(network([*value.layers, line], value.columns, "softmax"))
    if transform == "NONE":
        return Scores(network([*value.layers, line], value.columns, "identity"))
    if count == 2 and _mirrored(line):
        second = Affine(line.weights[:, 1:], line.bias[1:])
        return Scores(network([*value.layers, second], value.columns, "sigmoid"))
    return value.then(line).then(Curved("logistic"))


def _line(node: Node, outputs: int) -> Affine:
    """Return the weights and biases, one of each for every output."""
    weights, bias = node.floats("coefficients"), node.floats("intercepts")
    if weights is None or weights.size % outputs:
        raise refused(node)
    shift = np.zeros(outputs) if bias is None else bias.astype(np.float64)
    return Affine(weights.reshape(outputs, -1).T.astype(np.float64), shift)


def _mirrored(line: Affine) -> bool:
    """Whether the second of two raw scores is the first one with the other sign."""
    both = np.vstack([line.weights, line.bias])
    return np.array_equal(both[:, 0], -both[:, 1])


def tree_regressor(node: Node, given: Sequence[Value]) -> Value:
    """Return the raw scores of trees that are added up, or averaged."""
    _check_output(node, 0)
    _check_transform(node, "NONE")
    outputs = int(node.attributes.get("n_targets", 1))
    how = node.text("aggregate_function", "SUM")
    if how not in ("SUM", "AVERAGE"):
        raise NotOpenedError(say("onnx_mode", mode=f"aggregate_function {how}"))
    splits, known = splits_of(node)
    leaves = leaves_of(node, "target", known, outputs)
    if how == "AVERAGE":
        leaves = Leaves(leaves.node, leaves.output, leaves.weight / len(splits.roots), outputs)
    table = _table(node, given)
    forest = splits.forest(leaves, _base(node, outputs), "identity", narrow=_narrow(table))
    return Scores(TreeModel(finished(table.sources, node.operator), forest))


def tree_classifier(node: Node, given: Sequence[Value]) -> Value:
    """Return the scores of trees that vote for classes, or add up to margins."""
    transform = _check_transform(node, "NONE", "LOGISTIC", "SOFTMAX")
    splits, known = splits_of(node)
    count, table = _labels(node), _table(node, given)
    leaves = leaves_of(node, "class", known, count)
    if count == 2:
        return _two_classes(node, transform, splits, leaves, table)
    if transform == "LOGISTIC":
        raise NotOpenedError(say("onnx_mode", mode=f"post_transform {transform}"))
    if (leaves.weight < 0).any() and node.floats("base_values") is None and not leaves.complete(splits):
        raise NotOpenedError(say("onnx_left_out"))
    link: Link = "softmax" if transform == "SOFTMAX" else "identity"
    forest = splits.forest(leaves, _base(node, count), link, narrow=_narrow(table))
    return Scores(TreeModel(finished(table.sources, node.operator), forest))


def _two_classes(node: Node, transform: str, splits: Splits, leaves: Leaves, table: Table) -> Scores:
    """Return the scores of trees for two classes, whose leaves name one of these alone, whichever that is.

    They hold shares of the second class if all are positive, and its margin otherwise; onnxruntime compares the sum
    with one half or with 0 to find the label, also before a logistic curve.

    Raises:
        NotOpenedError: both are named, and so the label is not that of the larger score.
    """
    positive = bool((leaves.weight >= 0).all())
    if len(np.unique(leaves.output)) > 1 or transform == "SOFTMAX" or (transform == "LOGISTIC" and positive):
        raise NotOpenedError(say("onnx_two_votes"))
    alone = Leaves(leaves.node, np.zeros_like(leaves.output), leaves.weight, 1)
    link: Link = "sigmoid" if transform == "LOGISTIC" else "share" if positive else "identity"
    forest = splits.forest(alone, _base(node, 1), link, narrow=_narrow(table))
    scores = Scores(TreeModel(finished(table.sources, node.operator), forest))
    return scores.then(_MIRROR, np.zeros(2), "identity") if link == "identity" else scores


_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_AVERAGE, _SUM = 0, 1


def tree_ensemble(node: Node, given: Sequence[Value]) -> Value:
    """Return the scores of the later operator for trees, which has no labels."""
    transform = _TRANSFORMS[int(node.attributes.get("post_transform", 0))]
    how, table = int(node.attributes.get("aggregate_function", _SUM)), _table(node, given)
    splits, leaves = numbered_trees(node)
    linked = transform == "NONE" or leaves.outputs > 1
    if how not in (_AVERAGE, _SUM) or transform not in ("NONE", "SOFTMAX") or not linked:
        raise refused(node)
    if how == _AVERAGE:
        leaves = Leaves(leaves.node, leaves.output, leaves.weight / len(splits.roots), leaves.outputs)
    forest = splits.forest(leaves, np.zeros(leaves.outputs), "identity", narrow=_narrow(table))
    scores = Scores(TreeModel(finished(table.sources, node.operator), forest))
    if transform == "SOFTMAX":
        matrix = _DIFFERENCE if leaves.outputs == 2 else np.eye(leaves.outputs)
        return scores.then(matrix, np.zeros(matrix.shape[1]), "sigmoid" if leaves.outputs == 2 else "softmax")
    return scores


def _table(node: Node, given: Sequence[Value]) -> Table:
    if not isinstance(given[0], Table):
        raise NotOpenedError(say("onnx_mixed", operator=node.operator))
    return given[0]


def _narrow(table: Table) -> bool:
    return table.dtype != np.dtype(np.float64)


def _base(node: Node, outputs: int) -> Floats:
    """Return the base values of so many raw scores; of two for one raw score the second counts."""
    base = node.floats("base_values")
    if base is None:
        return np.zeros(outputs)
    if len(base) < outputs:
        raise refused(node)
    numbers: NDArray[Any] = base[-outputs:].astype(np.float64)
    return numbers


def _labels(node: Node) -> int:
    names = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")
    return next((len(node.attributes[name]) for name in names if name in node.attributes), 0)


def _check_transform(node: Node, *known: str) -> str:
    transform = node.text("post_transform", "NONE")
    if transform not in known:
        raise NotOpenedError(say("onnx_mode", mode=f"post_transform {transform}"))
    return transform


def _check_output(node: Node, place: int) -> None:
    if len(node.outputs) <= place:
        raise refused(node)
