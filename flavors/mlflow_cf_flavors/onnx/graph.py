"""The nodes and constants of an ONNX graph, read without running any of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.structures import NotOpenedError
from mlflow_cf.words.statements import say

Proto = Any  # onnx.ModelProto
MOST_BYTES: Final = 256 << 20  # of a file, or of its weights: more is not read to look for a structure
_OWN: Final = ("", "ai.onnx")  # the two names of the operators that ONNX itself defines
_EMPTY: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, eq=False)
class Node:
    """One operation of a graph.

    Attributes:
        operator: its name, with the domain before it where it is not ONNX's own.
        inputs, outputs: names of tensors; "" for one that is left out.
        attributes: numbers, text, lists of these, or arrays.
    """

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    def floats(self, name: str) -> NDArray[Any] | None:
        """Return an attribute of numbers, also where it is a tensor; None if there is none."""
        tensor = self.attributes.get(f"{name}_as_tensor")
        if tensor is not None:
            return np.asarray(tensor)
        values = self.attributes.get(name)
        return None if values is None else np.asarray(values, dtype=np.float32)

    def integers(self, name: str) -> NDArray[np.int64]:
        """Return an attribute of whole numbers; empty if there is none."""
        return np.asarray(self.attributes.get(name, ()), dtype=np.int64)

    def text(self, name: str, default: str) -> str:
        """Return an attribute of text."""
        return _word(self.attributes.get(name, default))


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph.

    Attributes:
        nodes: each after those whose outputs it takes.
        constants: name of a tensor -> its value.
        opset: the version of ONNX's own operators.
    """

    nodes: tuple[Node, ...]
    constants: Mapping[str, NDArray[Any]]
    opset: int

    def before(self, output: str) -> list[Node]:
        """Return the nodes that a tensor is computed by, in order."""
        needed, found = {output}, []
        for node in reversed(self.nodes):
            if needed.intersection(node.outputs):
                needed.update(filter(None, node.inputs))  # "" stands for what is left out, as input and output
                found.append(node)
        return found[::-1]

    def ending(self, output: str) -> str:
        """Return the last operator of a tensor that does not merely hand on what it is given; "" if there is none."""
        nodes = [node.operator for node in self.before(output) if node.operator not in _HAND_ON]
        return nodes[-1] if nodes else ""

    def labels(self, output: str) -> tuple[str | int, ...]:
        """Return the labels that a tensor of labels can hold; empty if the graph does not name them."""
        for node in reversed(self.before(output)):
            known = next((node.attributes[name] for name in _LABELS if name in node.attributes), None)
            if known is not None:
                return tuple(_plain(label) for label in known)
            if node.operator in _PICKS and node.inputs[0] in self.constants:
                return tuple(_plain(label) for label in self.constants[node.inputs[0]].ravel().tolist())
        return ()


_LABELS: Final = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")
_HAND_ON: Final = ("Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Dropout", "ai.onnx.ml.ZipMap")
_PICKS: Final = ("ai.onnx.ml.ArrayFeatureExtractor", "Gather")


def graph_of(source: Path | Proto, *, weights: bool = True) -> Graph:
    """Return the graph of a model in memory or in a file.

    Args:
        source: the model, or its file.
        weights: whether the tensors that a file keeps beside itself are wanted too.

    Raises:
        NotOpenedError: it is larger than `MOST_BYTES`.
    """
    proto = _loaded(source, weights=weights) if isinstance(source, Path) else source
    _check_size(proto.ByteSize())
    from onnx import numpy_helper

    inside = [one for one in proto.graph.initializer if one.data_location != one.EXTERNAL]
    constants: dict[str, NDArray[Any]] = {one.name: numpy_helper.to_array(one) for one in inside}
    nodes = []
    for raw in proto.graph.node:
        node = _node(raw)
        if node.operator == "Constant":
            constants[node.outputs[0]] = np.asarray(next(iter(node.attributes.values())))
        else:
            nodes.append(node)
    opset = max((one.version for one in proto.opset_import if one.domain in _OWN), default=1)
    return Graph(tuple(nodes), constants, opset)


def _loaded(file: Path, *, weights: bool) -> Proto:
    import onnx
    from onnx.external_data_helper import load_external_data_for_model

    _check_size(file.stat().st_size)
    proto = onnx.load(str(file), load_external_data=False)
    outside = [one for one in proto.graph.initializer if one.data_location == one.EXTERNAL]
    if outside and weights:
        _check_size(sum(_size_of(one, file.parent) for one in outside))
        load_external_data_for_model(proto, str(file.parent))
    return proto


def _size_of(tensor: Any, folder: Path) -> int:
    """Return how many bytes would be read for a tensor that lies outside of the file: all, if no length is stated."""
    stated = {entry.key: entry.value for entry in tensor.external_data}
    length = int(stated.get("length", -1))
    return length if length >= 0 else (folder / stated["location"]).stat().st_size


def _check_size(found: int) -> None:
    if found > MOST_BYTES:
        raise NotOpenedError(say("onnx_size", size=found >> 20, most=MOST_BYTES >> 20))


def _node(raw: Any) -> Node:
    from onnx import TensorProto, helper, numpy_helper

    values = {one.name: helper.get_attribute_value(one) for one in raw.attribute}
    read = {
        name: numpy_helper.to_array(value) if isinstance(value, TensorProto) else value
        for name, value in values.items()
    }
    operator = raw.op_type if raw.domain in _OWN else f"{raw.domain}.{raw.op_type}"
    return Node(operator, tuple(raw.input), tuple(raw.output), read)


def _plain(label: Any) -> str | int:
    return label if isinstance(label, int) else _word(label)


def words(values: Sequence[Any]) -> list[str]:
    """Return attributes of text as text."""
    return [_word(value) for value in values]


def _word(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)
