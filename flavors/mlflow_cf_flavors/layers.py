"""Networks as chains of layers, the form that libraries of networks share, made into models that can be compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike

from mlflow_cf.features import Floats
from mlflow_cf.structures import Activation, Column, Link, NotOpenedError
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.sums import DenseModel


@dataclass(frozen=True, eq=False)
class Affine:
    """A layer ``x @ weights + bias``.

    Attributes:
        weights: (inputs, outputs); bias: (outputs,).
    """

    weights: Floats
    bias: Floats

    def then(self, later: Affine) -> Affine:
        """Return the composition: `later` applied to the result of this one."""
        return Affine(self.weights @ later.weights, self.bias @ later.weights + later.bias)


@dataclass(frozen=True, eq=False)
class Rectified:
    """A piecewise linear activation: ``offset`` plus, of all pieces, ``factors * max(slopes * x + shifts, 0)``.

    Attributes:
        slopes, shifts, factors: (pieces, width), or (pieces, 1) for the same of every unit.
        offset: added to every unit.
    """

    slopes: Floats
    shifts: Floats
    factors: Floats
    offset: float = 0.0


@dataclass(frozen=True)
class Curved:
    """An activation that is no line anywhere."""

    name: Literal["logistic", "tanh"]


Layer = Affine | Rectified | Curved
RELU: Final = Rectified(*np.array([[[1.0]], [[0.0]], [[1.0]]]))


def scaled(factors: Floats, shifts: Floats) -> Affine:
    """Return the layer ``factors * x + shifts``, both (width,), unit by unit; a normalisation with fixed statistics."""
    return Affine(np.diag(np.asarray(factors, dtype=np.float64)), np.asarray(shifts, dtype=np.float64))


def leaky(below: ArrayLike) -> Rectified:
    """Return the activation ``x`` above zero and ``below * x`` under it; `below` is one number, or one of each unit."""
    under = np.atleast_1d(np.asarray(below, dtype=np.float64))[None]
    if not under.any():
        return RELU
    ones = np.ones_like(under)
    return Rectified(np.concatenate([ones, -ones]), np.zeros((2, 1)), np.concatenate([ones, -under]))


def clipped(low: float, high: float, slope: float = 1.0, shift: float = 0.0) -> Rectified:
    """Return the activation ``min(max(slope * x + shift, low), high)``, such as ReLU6 from 0 to 6."""
    shifts = np.array([[shift - low], [shift - high]])
    return Rectified(np.full((2, 1), slope), shifts, np.array([[1.0], [-1.0]]), low)


def network(layers: Sequence[Layer], columns: Sequence[Column], link: Link) -> DenseModel:
    """Return the model of `layers`, one after the other, over encoded `columns`.

    Layers without an activation between them become one. Piecewise linear activations become rectified units: a leaky
    one becomes two, exactly. Two raw scores behind a softmax become their difference behind a sigmoid.

    Args:
        layers: whose widths fit each other; the first takes `columns`.
        columns: what each column of the input is computed from.
        link: turns what the last layer answers into scores.

    Raises:
        NotOpenedError: piecewise linear activations beside others, or weights that are not finite.
    """
    dense, activations = _alternating(layers, len(columns))
    activation = _activation(activations)
    if link == "softmax" and len(dense[-1].bias) == 2:
        dense, link = [*dense[:-1], dense[-1].then(Affine(np.array([[-1.0], [1.0]]), np.zeros(1)))], "sigmoid"
    for place, between in enumerate(activations):
        dense[place : place + 2] = _around(between, activation, *dense[place : place + 2])
    if not all(np.isfinite(layer.weights).all() and np.isfinite(layer.bias).all() for layer in dense):
        raise NotOpenedError(say("infinite_weights"))
    weights, biases = [layer.weights for layer in dense], [layer.bias for layer in dense]
    return DenseModel(columns, weights, biases, activation, link)


def _alternating(layers: Sequence[Layer], inputs: int) -> tuple[list[Affine], list[Rectified | Curved]]:
    """Return affine layers and the activations between them; a network begins and ends with an affine layer."""
    dense, activations = [_identity(inputs)], []
    pending = True  # the last affine layer adds nothing of its own yet
    for layer in layers:
        if not isinstance(layer, Affine):
            activations.append(layer)
            dense.append(_identity(len(dense[-1].bias)))
            pending = True
        else:
            dense[-1] = layer if pending else dense[-1].then(layer)
            pending = False
    return dense, activations


def _identity(width: int) -> Affine:
    return Affine(np.eye(width), np.zeros(width))


def _activation(activations: Sequence[Rectified | Curved]) -> Activation:
    """Return what stands between all layers; a logistic curve is a hyperbolic tangent of another scale."""
    names: set[Activation] = {layer.name if isinstance(layer, Curved) else "relu" for layer in activations}
    if "relu" in names and len(names) > 1:
        raise NotOpenedError(say("mixed_activations"))
    return "tanh" if len(names) > 1 else next(iter(names), "identity")


def _around(
    between: Rectified | Curved, activation: Activation, before: Affine, after: Affine
) -> tuple[Affine, Affine]:
    """Return the layers around an activation, changed so that the one of the whole network can stand for it."""
    if isinstance(between, Curved):
        if between.name == activation:
            return before, after
        half = after.weights / 2  # logistic(x) = (1 + tanh(x / 2)) / 2
        return Affine(before.weights / 2, before.bias / 2), Affine(half, after.bias + half.sum(axis=0))
    width, pieces = len(before.bias), len(between.factors)
    slopes, shifts, factors = (
        np.broadcast_to(part, (pieces, width)) for part in (between.slopes, between.shifts, between.factors)
    )
    weights = np.concatenate([before.weights * slope for slope in slopes], axis=1)
    bias = (before.bias * slopes + shifts).ravel()
    later = np.concatenate([factor[:, None] * after.weights for factor in factors])
    return Affine(weights, bias), Affine(later, after.bias + between.offset * after.weights.sum(axis=0))
