"""A model opened: it scores codes by its own numbers, without the model's own code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from mlflow_cf.features import Floats

Link = Literal["identity", "sigmoid", "softmax"]
Tokens = NDArray[Any]


class Structure(Protocol):
    """What every structure answers; immutable and thread-safe.

    Attributes:
        kind: what it is, for `describe()`.
    """

    @property
    def kind(self) -> str:
        """What it is, with its size."""
        ...

    def encode(self, column: int, codes: Floats) -> Tokens:
        """Return tokens (n, ...) of raw codes (n,) of one feature: all the structure needs to know of a value."""
        ...

    def score(self, tokens: Sequence[Tokens]) -> Floats:
        """Return scores (m, classes) as `OpenModel.score` does (regression: (m, 1)) for one token array per feature."""
        ...


def linked(totals: Floats, link: Link) -> Floats:
    """Turn sums of leaves or of a last layer (m, k) into scores; one sum stands for two classes where it is linked."""
    if link == "softmax":
        return np.asarray(softmax(totals, axis=1))
    if link == "sigmoid" and totals.shape[1] == 1:
        likelier = expit(totals[:, 0])
        return np.column_stack([1 - likelier, likelier])
    if link == "sigmoid":  # one against the rest
        shares = expit(totals)
        total = shares.sum(axis=1, keepdims=True)
        return np.asarray(np.where(total > 0, shares, 1.0) / np.where(total > 0, total, shares.shape[1]))
    return totals


def score_rows(structure: Structure, Z: Floats) -> Floats:
    """Return scores of coded rows (m, d)."""
    return structure.score([structure.encode(column, Z[:, column]) for column in range(Z.shape[1])])
