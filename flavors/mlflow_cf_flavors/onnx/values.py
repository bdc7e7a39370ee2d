"""What a tensor of an ONNX graph is while the graph is read: columns, layers over columns, or raw scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures import Column, Link, MonotoneStep, NotOpenedError
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.layers import Affine, Curved, Layer, network, scaled
from mlflow_cf_flavors.onnx.graph import Node
from mlflow_cf_flavors.sklearn.sources import CAST, RawDate, RawLevels, Source, as_numbers, finished, stepped
from mlflow_cf_flavors.sums import Sums, Term, added

Constant = NDArray[Any]
NARROW: Final = np.dtype(np.float32)
TEXT: Final = np.dtype(np.object_)
MISSING: Final[Constant] = np.empty(0)  # an input of a node that is left out


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of one raw feature each: (n, w).

    Attributes:
        sources: the columns; dtype: of the tensor.
    """

    sources: tuple[Source, ...]
    dtype: np.dtype[Any]

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.sources)

    def picked(self, places: Sequence[int]) -> Table:
        """Return some of the columns."""
        return replace(self, sources=tuple(self.sources[place] for place in places))

    def cast(self, dtype: np.dtype[Any], by: str) -> Table:
        """Return the same values in another precision; text stays text."""
        if dtype in (self.dtype, TEXT):
            return self
        fractions = self.dtype.kind == "f"
        return Table(tuple(_cast(source, dtype, by, fractions=fractions) for source in self.sources), dtype)

    def stepped(self, steps: Sequence[MonotoneStep], by: str) -> Table:
        """Return the columns after one step each, in the precision of the tensor, which is no whole number's."""
        if self.dtype.kind != "f":
            raise NotOpenedError(say("onnx_operator", operator=by))
        pairs = zip(self.sources, steps, strict=True)
        return replace(self, sources=tuple(stepped(by, source, step, self.dtype) for source, step in pairs))

    def hidden(self, by: str) -> Hidden:
        """Return the columns as the input of layers; `by` is the operator that needs them so."""
        return Hidden(tuple(finished(self.sources, by)), ())


def _cast(source: Source, dtype: np.dtype[Any], by: str, *, fractions: bool) -> Source:
    """Return a source in another precision; whole numbers stay doubles, as no number of 53 bits is lost so."""
    if isinstance(as_numbers(source), RawLevels | RawDate):
        return source  # refused by name where numbers are needed
    if dtype.kind == "b" and fractions:
        raise NotOpenedError(say("onnx_operator", operator=by))
    if dtype.kind in "iub":
        return stepped(by, source, _WHOLE, np.dtype(np.float64)) if fractions else source
    return stepped(by, source, CAST, dtype)


_WHOLE: Final = MonotoneStep(np.trunc)


@dataclass(frozen=True, eq=False)
class Hidden:
    """Layers, one after the other, over columns: (n, width)."""

    columns: tuple[Column, ...]
    layers: tuple[Layer, ...]

    @property
    def width(self) -> int:
        """Number of outputs of the last layer."""
        dense = next((layer for layer in reversed(self.layers) if isinstance(layer, Affine)), None)
        return len(self.columns) if dense is None else len(dense.bias)

    @property
    def likely(self) -> bool:
        """Whether it is one number behind a logistic curve."""
        return self.width == 1 and bool(self.layers) and self.layers[-1] == Curved("logistic")

    def then(self, layer: Layer) -> Hidden:
        """Return the layers with one more."""
        return replace(self, layers=(*self.layers, layer))

    def scaled(self, factors: Floats, shifts: Floats) -> Hidden:
        """Return the outputs times `factors` plus `shifts`, both (width,), which become part of the last layer."""
        last = self.layers[-1] if self.layers else None
        if not isinstance(last, Affine):
            return self.then(scaled(factors, shifts))
        changed = Affine(last.weights * factors, last.bias * factors + shifts)
        return replace(self, layers=(*self.layers[:-1], changed))


@dataclass(frozen=True, eq=False)
class Scores:
    """Raw scores of a model, and how they become what the tensor holds."""

    model: Sums

    @property
    def width(self) -> int:
        """Number of raw scores, or of the two classes that a single linked one stands for."""
        return 2 if self.model.link in ("share", "sigmoid") and self.model.outputs == 1 else self.model.outputs

    def then(self, matrix: Floats, offset: Floats, link: Link) -> Scores:
        """Return new raw scores: the old ones, unlinked so far, times `matrix` plus `offset`."""
        return Scores(added([Term(self.model, matrix)], offset, link))


@dataclass(frozen=True, eq=False)
class Rest:
    """One minus a tensor of a single number per row."""

    of: Hidden | Scores


Value = Table | Hidden | Scores | Rest | Constant


def sums_of(value: Value, form: str) -> Sums:
    """Return the model of a tensor as it is answered.

    Args:
        value: the tensor.
        form: ``value``; ``scores``, one for each class; ``share``, the probability of the second class; or ``margin``
            of the second class.

    Raises:
        NotOpenedError: the tensor holds something else.
    """
    if isinstance(value, Table):
        value = value.hidden("output")
    if isinstance(value, Hidden):
        value = _ended(value)
    if not isinstance(value, Scores):
        raise NotOpenedError(say("onnx_no_scores"))
    model = value.model
    single = model.link == "identity" and model.outputs == 1
    if form == "margin" and single:
        return value.then(np.array([[-1.0, 1.0]]), np.zeros(2), "identity").model
    if form == "share" and single:
        return value.then(np.eye(1), np.zeros(1), "share").model
    return model


def _ended(value: Hidden) -> Scores:
    """Return layers as raw scores; a last logistic curve of one number is how it becomes a score."""
    if value.likely:
        return Scores(network(value.layers[:-1], value.columns, "sigmoid"))
    return Scores(network(value.layers, value.columns, "identity"))


def single(value: Value) -> bool:
    """Whether a tensor holds one number per row, that may be a probability."""
    if isinstance(value, Hidden):
        return value.width == 1
    return isinstance(value, Scores) and value.model.outputs == 1 and value.model.link in ("identity", "sigmoid")


def both_classes(value: Hidden | Scores) -> Scores:
    """Return the scores of two classes: one minus a probability, and the probability."""
    if isinstance(value, Hidden):
        value = _ended(value)
    if value.model.link == "sigmoid":
        return value
    return value.then(np.eye(1), np.zeros(1), "share")


def refused(node: Node) -> NotOpenedError:
    """Return the error of an operator that is not known, or not for what it is given here."""
    return NotOpenedError(say("onnx_operator", operator=node.operator))


def layered(node: Node, value: Value) -> Hidden:
    """Return what a `node` is given as layers.

    Raises:
        NotOpenedError: it is something else.
    """
    if isinstance(value, Table):
        return value.hidden(node.operator)
    if not isinstance(value, Hidden):
        raise refused(node)
    return value
