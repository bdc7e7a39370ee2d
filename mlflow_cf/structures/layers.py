"""Linear models and networks: the first layer becomes one table per feature, the rest stays dense."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.structures.columns import Column
from mlflow_cf.structures.structure import Link, Tokens, linked

Activation = Literal["identity", "relu", "logistic", "tanh"]
_ACTIVATIONS: dict[Activation, Callable[[Floats], Floats]] = {
    "identity": lambda sums: sums,
    "relu": lambda sums: np.maximum(sums, 0.0),
    "logistic": expit,
    "tanh": np.tanh,
}


@dataclass(frozen=True, eq=False)
class Layers:
    """A linear model (one layer) or a network of dense layers.

    Attributes:
        columns: per raw feature, the encoded columns that come from it and their rows of the first weights.
        weights, biases: of every layer, (inputs, outputs) and (outputs,).
        activation: between layers; link: turns the last sums into scores.
    """

    columns: tuple[tuple[tuple[Column, Floats], ...], ...]
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    activation: Activation
    link: Link

    @classmethod
    def compile(
        cls,
        columns: Sequence[Column],
        space: FeatureSpace,
        weights: Sequence[Floats],
        biases: Sequence[Floats],
        shape: tuple[Activation, Link],
    ) -> Layers:
        """Compile layers whose first one takes `columns` in order."""
        per_feature: list[list[tuple[Column, Floats]]] = [[] for _ in range(len(space))]
        for column, row in zip(columns, weights[0], strict=True):
            per_feature[column.feature].append((column, row))
        return cls(tuple(map(tuple, per_feature)), tuple(weights), tuple(biases), *shape)

    @property
    def kind(self) -> str:
        """Linear, or the widths of the layers."""
        if len(self.weights) == 1:
            return "linear"
        return "network " + "-".join(str(layer.shape[1]) for layer in self.weights)

    def encode(self, column: int, codes: Floats) -> Tokens:
        """Return what the values of one feature add to the first layer's sums, (n, outputs)."""
        total = np.zeros((len(codes), self.weights[0].shape[1]))
        for encoded, row in self.columns[column]:
            total += encoded.encode(codes)[:, None] * row
        return total

    def score(self, tokens: Sequence[Tokens]) -> Floats:
        """Return scores (m, classes) for the contributions of every feature."""
        sums = self.biases[0] + sum(tokens)
        for weights, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            sums = _ACTIVATIONS[self.activation](sums) @ weights + bias
        return linked(np.asarray(sums), self.link)
