"""What the operators of ONNX do to columns and layers; `OPERATORS` lists those that are opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures import ClippedLine, MonotoneStep
from mlflow_cf_flavors.layers import RELU, Affine, Curved, clipped, leaky, network
from mlflow_cf_flavors.onnx.encoders import binarized, labelled, one_hot
from mlflow_cf_flavors.onnx.graph import Node
from mlflow_cf_flavors.onnx.models import (
    linear_classifier,
    linear_regressor,
    tree_classifier,
    tree_ensemble,
    tree_regressor,
)
from mlflow_cf_flavors.onnx.values import (
    MISSING,
    TEXT,
    Constant,
    Hidden,
    Rest,
    Scores,
    Table,
    Value,
    both_classes,
    layered,
    refused,
    single,
)

Operation = Callable[[Node, Sequence[Value]], Value]
# numbers of element types that a cast may have as its target
_DTYPES: Final = {1: np.float32, 2: np.uint8, 3: np.int8, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_, 11: float}


def _same(node: Node, given: Sequence[Value]) -> Value:
    del node
    return given[0]


def _cast(node: Node, given: Sequence[Value]) -> Value:
    value, to = given[0], node.attributes["to"]
    if isinstance(value, Table):
        if to not in _DTYPES or value.dtype == TEXT:
            raise refused(node)
        return value.cast(np.dtype(_DTYPES[to]), node.operator)
    if to not in (1, 11) or isinstance(value, np.ndarray):
        raise refused(node)
    return value


def _reshaped(node: Node, given: Sequence[Value]) -> Value:
    """Return rows as they were: the new shape must keep one row each, with all its numbers."""
    value, shape = given[0], given[1] if len(given) > 1 else None
    if isinstance(value, np.ndarray | Rest) or not isinstance(shape, np.ndarray):
        raise refused(node)
    rows, *others = shape.ravel().tolist()
    whole = others in ([value.width], [-1]) or (not others and value.width == 1)
    if not whole or (rows != -1 and (rows or node.attributes.get("allowzero"))) or [rows, *others].count(-1) > 1:
        raise refused(node)
    return value


def _flattened(node: Node, given: Sequence[Value]) -> Value:
    if node.attributes.get("axis", 1) != 1:
        raise refused(node)
    return given[0]


def _squeezed(node: Node, given: Sequence[Value]) -> Value:
    axes = given[1] if len(given) > 1 else np.asarray(node.attributes.get("axes", ()))
    if not (isinstance(axes, np.ndarray) and axes.ravel().tolist() in ([1], [-1]) and _width(given[0]) == 1):
        raise refused(node)
    return given[0]


def _width(value: Value) -> int:
    return value.width if isinstance(value, Table | Hidden | Scores) else 0


def _joined(node: Node, given: Sequence[Value]) -> Value:
    """Return tables side by side, or the scores of two classes."""
    if node.attributes.get("axis", 1) not in (1, -1):
        raise refused(node)
    if len(given) == 2 and isinstance(first := given[0], Rest) and first.of is given[1]:
        return both_classes(first.of)
    tables = [value for value in given if isinstance(value, Table)]
    if len(tables) < len(given):
        raise refused(node)
    dtype = TEXT if tables[0].dtype == TEXT else np.result_type(*(table.dtype for table in tables))
    return Table(tuple(source for table in tables for source in table.sources), dtype)


def _picked(node: Node, given: Sequence[Value]) -> Value:
    """Return some columns of a table or layer: Gather of its last axis, and ArrayFeatureExtractor."""
    value, places = given
    if node.operator == "Gather" and node.attributes.get("axis", 0) not in (1, -1):
        raise refused(node)
    if not isinstance(places, np.ndarray):
        raise refused(node)
    chosen = places.ravel().tolist()
    if isinstance(value, Table):
        return value.picked(chosen)
    if isinstance(value, Hidden):
        return value.then(Affine(np.eye(value.width)[:, chosen], np.zeros(len(chosen))))
    if isinstance(value, Scores) and value.model.link == "identity":
        return value.then(np.eye(value.width)[:, chosen], np.zeros(len(chosen)), "identity")
    raise refused(node)


_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
}


def _arithmetic(node: Node, given: Sequence[Value]) -> Value:
    """Return a tensor plus, minus, times or over a constant; or a constant plus, minus or times a tensor."""
    first, second = given
    if isinstance(first, np.ndarray) == isinstance(second, np.ndarray):
        raise refused(node)
    reversed_ = isinstance(first, np.ndarray)
    constant, value = (first, second) if isinstance(first, np.ndarray) else (second, first)
    assert isinstance(constant, np.ndarray)  # noqa: S101  for the type checker
    if node.operator == "Sub" and reversed_ and constant.size == 1 and constant.item() == 1 and single(value):
        return Rest(value)  # type: ignore[arg-type]
    if isinstance(value, Rest | np.ndarray) or (node.operator == "Div" and reversed_):
        raise refused(node)
    if constant.size == 1 and constant.item() == (1 if node.operator in ("Mul", "Div") else 0) and not reversed_:
        return value
    numbers = _of_columns(node, constant, value.width)
    factors, shifts = _line(node.operator, numbers.astype(np.float64), backwards=reversed_)
    if isinstance(value, Table):
        if (factors <= 0).any():
            return value.hidden(node.operator).scaled(factors, shifts)
        operation = _ARITHMETIC[node.operator]
        lines = zip(numbers.astype(value.dtype), factors.tolist(), shifts.tolist(), strict=True)
        return value.stepped([_step(operation, number, *line) for number, *line in lines], node.operator)
    if isinstance(value, Hidden):
        return value.scaled(factors, shifts)
    if value.model.link != "identity":
        raise refused(node)
    return value.then(np.diag(factors), shifts, "identity")


def _of_columns(node: Node, constant: Constant, width: int) -> Constant:
    """Return a constant as one number for each of so many columns."""
    if constant.size not in (1, width) or constant.shape[-1:] not in ((), (1,), (width,)):
        raise refused(node)
    return np.broadcast_to(constant.ravel(), (width,))


def _line(operator: str, numbers: Floats, *, backwards: bool) -> tuple[Floats, Floats]:
    """Return factors and shifts."""
    ones, zeros = np.ones_like(numbers), np.zeros_like(numbers)
    if operator in ("Mul", "Div"):
        return (numbers if operator == "Mul" else 1 / numbers), zeros
    if operator == "Add":
        return ones, numbers
    return (-ones, numbers) if backwards else (ones, -numbers)


def _step(operation: Callable[[Any, Any], Any], number: Any, factor: float, shift: float) -> MonotoneStep:
    return MonotoneStep(lambda values: operation(values, number), ClippedLine(factor, shift))


def _negated(node: Node, given: Sequence[Value]) -> Value:
    return _arithmetic(Node("Mul", node.inputs, node.outputs, {}), (given[0], np.array([-1.0], dtype=np.float32)))


def _product(node: Node, given: Sequence[Value]) -> Value:
    """Return a layer without a bias: MatMul."""
    value, weights = layered(node, given[0]), given[1]
    if not isinstance(weights, np.ndarray) or weights.ndim != 2 or len(weights) != value.width:
        raise refused(node)
    return value.then(Affine(weights.astype(np.float64), np.zeros(weights.shape[1])))


def _gemm(node: Node, given: Sequence[Value]) -> Value:
    value, weights = layered(node, given[0]), given[1]
    if node.attributes.get("transA") or not isinstance(weights, np.ndarray) or weights.ndim != 2:
        raise refused(node)
    weights = (weights.T if node.attributes.get("transB") else weights) * float(node.attributes.get("alpha", 1.0))
    bias = given[2] if len(given) > 2 else np.zeros(1)
    if not isinstance(bias, np.ndarray) or len(weights) != value.width:
        raise refused(node)
    shift = _of_columns(node, bias, weights.shape[1]) * float(node.attributes.get("beta", 1.0))
    return value.then(Affine(weights.astype(np.float64), shift.astype(np.float64)))


def _normalized(node: Node, given: Sequence[Value]) -> Value:
    """Return a BatchNormalization with its fixed statistics."""
    value, statistics = layered(node, given[0]), given[1:5]
    if node.attributes.get("training_mode") or any(node.outputs[1:]):
        raise refused(node)
    found = [np.asarray(one, dtype=np.float64) for one in statistics if isinstance(one, np.ndarray)]
    if len(found) < 4:
        raise refused(node)
    scale, bias, mean, variance = found
    factors = scale / np.sqrt(variance + float(node.attributes.get("epsilon", 1e-5)))
    return value.scaled(factors, bias - mean * factors)


def _curved(node: Node, given: Sequence[Value]) -> Value:
    """Return a Sigmoid or Tanh; the sigmoid of raw scores makes them probabilities."""
    value = given[0]
    if isinstance(value, Scores) and node.operator == "Sigmoid" and value.model.link == "identity" and single(value):
        return value.then(np.eye(1), np.zeros(1), "sigmoid")
    return layered(node, value).then(Curved("logistic" if node.operator == "Sigmoid" else "tanh"))


def _rectified(node: Node, given: Sequence[Value]) -> Value:
    value = layered(node, given[0])
    match node.operator:
        case "LeakyRelu":
            return value.then(leaky(float(node.attributes.get("alpha", 0.01))))
        case "PRelu":
            return value.then(leaky(_number_or_row(node, given[1], value.width)))
        case "HardSigmoid":
            slope, shift = (float(node.attributes.get(name, known)) for name, known in (("alpha", 0.2), ("beta", 0.5)))
            return value.then(clipped(0.0, 1.0, slope, shift))
    return value.then(RELU)


def _number_or_row(node: Node, value: Value, width: int) -> NDArray[Any]:
    if not isinstance(value, np.ndarray):
        raise refused(node)
    return value.ravel() if value.size == 1 else _of_columns(node, value, width)


def _clipped(node: Node, given: Sequence[Value]) -> Value:
    """Return numbers moved to the nearest one between two ends; the ends were attributes once."""
    value, *ends = given
    named = (node.attributes.get("min", -np.inf), node.attributes.get("max", np.inf))
    low, high = (_end(node, ends[place : place + 1], float(named[place])) for place in (0, 1))
    if isinstance(value, Table):

        def operation(values: NDArray[Any]) -> NDArray[Any]:
            return np.asarray(np.clip(values, values.dtype.type(low), values.dtype.type(high)))

        step = MonotoneStep(operation, ClippedLine(low=low, high=high))
        return value.stepped([step] * value.width, node.operator)
    layers = layered(node, value)
    if np.isfinite([low, high]).all():
        return layers.then(clipped(low, high))
    if (low, high) == (0.0, np.inf):
        return layers.then(RELU)
    raise refused(node)


def _end(node: Node, given: Sequence[Value], default: float) -> float:
    if not given or given[0] is MISSING:
        return default
    if not isinstance(given[0], np.ndarray):
        raise refused(node)
    return float(given[0].item())


def _softmax(node: Node, given: Sequence[Value]) -> Value:
    value = given[0]
    if node.attributes.get("axis", -1) not in (1, -1):
        raise refused(node)
    if isinstance(value, Scores) and value.model.link == "identity":
        two = value.width == 2
        matrix = np.array([[-1.0], [1.0]]) if two else np.eye(value.width)
        return value.then(matrix, np.zeros(matrix.shape[1]), "sigmoid" if two else "softmax")
    layers = layered(node, value)
    return Scores(network(layers.layers, layers.columns, "softmax"))


def _normalizer(node: Node, given: Sequence[Value]) -> Value:
    """Return shares of a sum: of probabilities, which sum to 1 already, or of one logistic curve for each class."""
    value = given[0]
    if node.text("norm", "MAX") != "L1":
        raise refused(node)
    if isinstance(value, Scores) and value.model.link in ("softmax", "sigmoid", "share"):
        return value
    if isinstance(value, Hidden) and value.width > 1 and value.layers and value.layers[-1] == Curved("logistic"):
        return Scores(network(value.layers[:-1], value.columns, "sigmoid"))
    raise refused(node)


def _imputed(node: Node, given: Sequence[Value]) -> Value:
    """Return numbers in the place of missing ones; other numbers that stand for missing ones are not opened."""
    value, fills = given[0], node.floats("imputed_value_floats")
    stands = float(node.attributes.get("replaced_value_float", 0.0))
    if not isinstance(value, Table) or fills is None or not np.isnan(stands):
        raise refused(node)
    return value.stepped([_fill(number) for number in _of_columns(node, fills, value.width)], node.operator)


def _fill(number: Any) -> MonotoneStep:
    return MonotoneStep(lambda values: np.where(np.isnan(values), values.dtype.type(number), values), ClippedLine())


def _scaler(node: Node, given: Sequence[Value]) -> Value:
    """Return numbers less an offset, times a scale; the operator answers float32 alone."""
    value, offset, scale = given[0], node.floats("offset"), node.floats("scale")
    if not isinstance(value, Table) or offset is None or scale is None:
        raise refused(node)
    table = value.cast(np.dtype(np.float32), node.operator)
    away, times = _of_columns(node, offset, table.width), _of_columns(node, scale, table.width)
    if (times <= 0).any():
        return table.hidden(node.operator).scaled(times.astype(float), -(away * times).astype(float))
    pairs = zip(away, times, strict=True)
    return table.stepped([_less_and_times(one, other) for one, other in pairs], node.operator)


def _less_and_times(offset: Any, scale: Any) -> MonotoneStep:
    line = ClippedLine(float(scale), -float(offset) * float(scale))
    return MonotoneStep(lambda values: (values - offset) * scale, line)


OPERATORS: Final[dict[str, Operation]] = {
    **dict.fromkeys(["Identity", "Dropout", "ai.onnx.ml.ZipMap"], _same),
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys(["Concat", "ai.onnx.ml.FeatureVectorizer"], _joined),
    **dict.fromkeys(["Gather", "ai.onnx.ml.ArrayFeatureExtractor"], _picked),
    **dict.fromkeys(["Sigmoid", "Tanh"], _curved),
    **dict.fromkeys(["Relu", "LeakyRelu", "PRelu", "HardSigmoid"], _rectified),
    "Cast": _cast,
    "Reshape": _reshaped,
    "Flatten": _flattened,
    "Squeeze": _squeezed,
    "Neg": _negated,
    "MatMul": _product,
    "Gemm": _gemm,
    "BatchNormalization": _normalized,
    "Clip": _clipped,
    "Softmax": _softmax,
    "ai.onnx.ml.Normalizer": _normalizer,
    "ai.onnx.ml.Imputer": _imputed,
    "ai.onnx.ml.Scaler": _scaler,
    "ai.onnx.ml.Binarizer": binarized,
    "ai.onnx.ml.OneHotEncoder": one_hot,
    "ai.onnx.ml.LabelEncoder": labelled,
    "ai.onnx.ml.LinearClassifier": linear_classifier,
    "ai.onnx.ml.LinearRegressor": linear_regressor,
    "ai.onnx.ml.TreeEnsemble": tree_ensemble,
    "ai.onnx.ml.TreeEnsembleClassifier": tree_classifier,
    "ai.onnx.ml.TreeEnsembleRegressor": tree_regressor,
}
