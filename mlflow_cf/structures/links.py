"""What all structures speak of: tokens, flags, and how sums become scores."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from mlflow_cf.features import Floats

Link = Literal["identity", "sigmoid", "softmax"]
Tokens = NDArray[Any]
Flags = NDArray[np.bool_]


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
