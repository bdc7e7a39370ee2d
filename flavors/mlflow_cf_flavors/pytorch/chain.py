"""The layers of a network, read from its recorded calls, where they are one chain of layers that are known here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.structures import (
    ClippedLine,
    Column,
    CurveColumn,
    Layers,
    LevelColumn,
    Link,
    MonotoneStep,
    NotOpenedError,
    NumberColumn,
)
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.layers import RELU, Affine, Curved, Layer, Rectified, clipped, leaky, network, scaled
from mlflow_cf_flavors.pytorch.recording import Call, Recording, Tensor
from mlflow_cf_flavors.sklearn.sources import finished, raw_columns

Kept = type[np.float32] | type[np.float64]

# They tell of a shape or a type what holds for all rows; where it is no tensor, nothing of the numbers leaves by it.
_TOLD: Final = frozenset(
    {"__get__", "_assert", "dim", "get_device", "is_floating_point", "ndimension", "numel", "shape", "size", "sym_size"}
)
# They leave every number of a row as it is, and in its place.
_SAME: Final = frozenset(
    {"alias", "clone", "contiguous", "detach", "double", "flatten", "float", "reshape", "squeeze", "to", "type"}
    | {"unsqueeze", "view", "_assert_tensor_metadata", "lift_fresh", "cpu", "ravel", "identity"}
)


@dataclass(frozen=True, eq=False)
class Chain:
    """A network as layers one after the other.

    Attributes:
        layers: all but the `ending`.
        ending: what the answer comes from: ``sigmoid``, ``softmax``, ``log_softmax``; otherwise the name of the last
            function that did anything to the numbers.
        fill: what stands for a missing input, one number or one of each; None: nothing does.
        unknown: why the layers are not known, in words; "" if they are.
    """

    layers: tuple[Layer, ...]
    ending: str
    fill: Floats | None = None
    unknown: str = ""


def read(recording: Recording) -> Chain:
    """Return the layers of a recorded network, or why they are not known."""
    ending = _ending(recording)
    reader = _Reader(recording.start)
    try:
        reader.follow(recording)
    except NotOpenedError as error:
        return Chain((), ending, unknown=error.what)
    layers = reader.layers[:-1] if ending == "sigmoid" else reader.layers
    return Chain(tuple(layers), ending, reader.fill)


def compile_chain(chain: Chain, later: tuple[Layer, ...], link: Link, kept: Kept, space: FeatureSpace) -> Layers:
    """Compile a chain for the features of `space`.

    Args:
        chain: the network; later: layers behind it; link: turns what they answer into scores.
        kept: in which precision it takes numbers.
        space: the features.

    Raises:
        NotOpenedError: its layers are not known.
    """
    if chain.unknown:
        raise NotOpenedError(chain.unknown)
    columns = finished(raw_columns(space), "PyTorch")
    if chain.fill is None and any(feature.missing for feature in space.features):
        raise NotOpenedError(say("unfilled_gaps"))
    fills = [None] * len(columns) if chain.fill is None else np.broadcast_to(chain.fill, len(columns)).tolist()
    seen = [_entered(column, fill, kept) for column, fill in zip(columns, fills, strict=True)]
    return network([*chain.layers, *later], seen, link).compile(space)


def _ending(recording: Recording) -> str:
    """Return the name of the last function whose result the answer is, but for its shape."""
    end = recording.end
    for call in reversed(recording.calls):
        if call.result is end:
            if call.name not in _SAME:
                return call.name
            end = call.arguments[0]
    return ""


@dataclass(eq=False)
class _Reader:
    """Follows the one tensor that every call takes from the one before.

    Attributes:
        current: the result of the last layer; `layers` so far; `fill`: see `Chain`.
        ended: the name of a function that can only be the last one; "" before it.
    """

    current: Tensor
    layers: list[Layer] = field(default_factory=list)
    fill: Floats | None = None
    ended: str = ""

    def follow(self, recording: Recording) -> None:
        """Take all calls up to the answer; NotOpenedError if they are no chain of known layers."""
        for call in recording.calls:
            self.take(call)
        if self.current is not recording.end:
            raise NotOpenedError(say("no_chain"))

    def take(self, call: Call) -> None:
        """Take one call into the chain; NotOpenedError if it does not belong to one."""
        tensor = hasattr(call.result, "dtype") and hasattr(call.result, "shape")
        if not tensor and call.name in _TOLD:
            return
        if not tensor or len(call.derived) != 1 or call.arguments[call.derived[0]] is not self.current:
            raise NotOpenedError(_unknown(call) if len(call.derived) == 1 else say("no_chain"))
        if str(call.result.dtype) not in ("torch.float32", "torch.float64"):
            raise NotOpenedError(say("precision", dtype=str(call.result.dtype).removeprefix("torch.")))
        if self.ended and call.name not in _SAME:
            raise NotOpenedError(say("layer", kind=self.ended))
        self._add(call)
        self.current = call.result

    def _add(self, call: Call) -> None:
        if call.name in _SAME:
            _check_kept(call)
        elif call.name == "nan_to_num":
            self._fill(call)
        elif call.name in ("softmax", "log_softmax"):
            if call.get(1, "dim", -1) not in (-1, 1, None) or call.arguments[0].ndim != 2:
                raise _error(call)
            self.ended = call.name
        elif call.name in _LAYERS and call.derived == (0,):
            self.layers += _LAYERS[call.name](call)
        elif call.name in _ARITHMETIC:
            self.layers.append(_arithmetic(call))
        else:
            raise _error(call)

    def _fill(self, call: Call) -> None:
        """Note what stands for missing inputs; behind a layer, what it fills cannot be told from its input."""
        if self.layers or self.fill is not None:
            raise _error(call)
        self.fill = np.array(float(call.get(1, "nan") or 0.0))


def _unknown(call: Call) -> str:
    return say("layer", kind=call.name)


def _error(call: Call) -> NotOpenedError:
    return NotOpenedError(_unknown(call))


def _check_kept(call: Call) -> None:
    """Refuse a change of shape that mixes rows."""
    before, after = call.arguments[0].shape, call.result.shape
    if not after or before[0] != after[0] or before.numel() != after.numel():
        raise _error(call)


def _numbers(tensor: Tensor) -> Floats:
    return np.array(tensor.detach().double().cpu().numpy())


def _vector(value: Any, width: int, call: Call) -> Floats:
    """Return a constant operand as one number for each of `width` units."""
    array = _numbers(value) if hasattr(value, "detach") else np.asarray(value, dtype=np.float64)
    if array.ndim > 2 or (array.ndim == 2 and len(array) != 1) or array.size not in (1, width):
        raise _error(call)
    return np.broadcast_to(array.reshape(-1), (width,))


def _width(call: Call) -> int:
    """Return the number of units of a layer that keeps it; rows of one number may have lost their second axis."""
    shape = call.arguments[call.derived[0]].shape
    if shape != call.result.shape or len(shape) > 2:
        raise _error(call)
    return int(shape[1]) if len(shape) == 2 else 1


def _linear(call: Call) -> list[Layer]:
    weights, bias = _numbers(call.get(1, "weight")).T, call.get(2, "bias")
    if weights.ndim != 2 or call.arguments[0].ndim != 2:
        raise _error(call)
    return [Affine(weights, np.zeros(weights.shape[1]) if bias is None else _numbers(bias))]


def _matrix(call: Call) -> list[Layer]:
    weights = _numbers(call.get(1, "other" if call.name == "matmul" else "mat2"))
    if weights.ndim != 2 or call.arguments[0].ndim != 2:
        raise _error(call)
    return [Affine(weights, np.zeros(weights.shape[1]))]


def _batch_norm(call: Call) -> list[Layer]:
    """Return a normalisation with the statistics that were learned; those of a batch depend on the other rows."""
    if call.exported:
        weight, bias, mean, variance, training, _, epsilon = (call.arguments[place] for place in range(1, 8))
    else:
        mean, variance = call.get(1, "running_mean"), call.get(2, "running_var")
        weight, bias = call.get(3, "weight"), call.get(4, "bias")
        training, epsilon = call.get(5, "training", False), call.get(7, "eps", 1e-5)
    width = _width(call)
    if training or mean is None or variance is None:
        raise _error(call)
    factor = 1.0 / np.sqrt(_numbers(variance) + epsilon)
    factor = factor if weight is None else factor * _numbers(weight)
    shift = -_numbers(mean) * factor
    return [scaled(factor, shift if bias is None else shift + _numbers(bias))] if len(factor) == width else []


def _dropout(call: Call) -> list[Layer]:
    if call.get(2, "training" if not call.exported else "train", True) and call.get(1, "p", 0.5):
        raise _error(call)
    return []


def _prelu(call: Call) -> list[Layer]:
    return [leaky(_vector(call.get(1, "weight"), _width(call), call))]


def _clamp(call: Call) -> list[Layer]:
    low, high = (call.get(1, "min"), call.get(2, "max")) if call.name != "clamp_max" else (None, call.get(1, "max"))
    if any(hasattr(end, "detach") for end in (low, high)):
        raise _error(call)
    ones = np.ones((1, 1))
    if low is not None and high is not None:
        if low > high:
            raise _error(call)
        return [clipped(float(low), float(high))]
    if low is not None:  # max(x, low) = low + relu(x - low)
        return [Rectified(ones, ones * -float(low), ones, float(low))]
    return [Rectified(-ones, ones * float(high), -ones, float(high))]  # min(x, high) = high - relu(high - x)


def _hard_tanh(call: Call) -> list[Layer]:
    return [clipped(float(call.get(1, "min_val", -1.0)), float(call.get(2, "max_val", 1.0)))]


def _activation(layer: Layer) -> Callable[[Call], list[Layer]]:
    return lambda _: [layer]


_LAYERS: Final[dict[str, Callable[[Call], list[Layer]]]] = {
    "linear": _linear,
    "matmul": _matrix,
    "mm": _matrix,
    "batch_norm": _batch_norm,
    "dropout": _dropout,
    "alpha_dropout": _dropout,
    "feature_dropout": _dropout,
    "relu": _activation(RELU),
    "leaky_relu": lambda call: [leaky(float(call.get(1, "negative_slope", 0.01)))],
    "prelu": _prelu,
    "relu6": _activation(clipped(0.0, 6.0)),
    "hardtanh": _hard_tanh,
    "hardsigmoid": _activation(clipped(0.0, 1.0, 1.0 / 6.0, 0.5)),
    "clamp": _clamp,
    "clip": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _clamp,
    "abs": _activation(leaky(-1.0)),
    "tanh": _activation(Curved("tanh")),
    "sigmoid": _activation(Curved("logistic")),
    "neg": lambda call: [scaled(-np.ones(_width(call)), np.zeros(_width(call)))],
}
# name -> the function of (x, constant) as (factors, shifts), and of (constant, x) where that is a line too
_Line = Callable[[Floats], tuple[Floats, Floats]]
_SUM: Final[_Line] = lambda other: (np.ones_like(other), other)  # noqa: E731  a table of formulas
_LESS: Final[_Line] = lambda other: (np.ones_like(other), -other)  # noqa: E731
_FROM: Final[_Line] = lambda other: (-np.ones_like(other), other)  # noqa: E731
_TIMES: Final[_Line] = lambda other: (other, np.zeros_like(other))  # noqa: E731
_OVER: Final[_Line] = lambda other: (1.0 / other, np.zeros_like(other))  # noqa: E731
_ARITHMETIC: Final[dict[str, tuple[_Line | None, _Line | None]]] = {
    "add": (_SUM, _SUM),
    "__radd__": (_SUM, _SUM),
    "sub": (_LESS, _FROM),
    "__rsub__": (_FROM, _LESS),
    "rsub": (_FROM, _LESS),
    "mul": (_TIMES, _TIMES),
    "__rmul__": (_TIMES, _TIMES),
    "div": (_OVER, None),
    "true_divide": (_OVER, None),
    "__iadd__": (_SUM, None),
    "__isub__": (_LESS, None),
    "__imul__": (_TIMES, None),
    "__itruediv__": (_OVER, None),
}


def _arithmetic(call: Call) -> Affine:
    """Return a sum, product or quotient with constants as a layer."""
    first = call.derived[0] == 0
    line = _ARITHMETIC[call.name][0 if first else 1]
    if line is None or len(call.arguments) < 2 or call.named:  # such as alpha=, which multiplies what is added
        raise _error(call)
    with np.errstate(divide="ignore"):
        return scaled(*line(_vector(call.arguments[1 if first else 0], _width(call), call)))


def _entered(column: Column, fill: float | None, kept: Kept) -> Column:
    """Return an encoded column as the network takes it: in its precision, and with its gaps filled."""

    def operation(values: Any) -> Any:
        values = values.astype(kept)
        return values if fill is None else np.where(np.isnan(values), values.dtype.type(fill), values)

    if isinstance(column, NumberColumn):
        return NumberColumn(column.feature, (*column.steps, MonotoneStep(operation, ClippedLine())))
    if isinstance(column, CurveColumn):
        return replace(column, function=lambda codes: operation(column.function(codes)))
    table = operation(column.table).astype(np.float64)
    return LevelColumn(column.feature, table) if isinstance(column, LevelColumn) else column
