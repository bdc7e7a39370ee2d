"""What all structures speak of: tokens, flags, and how sums become scores."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from mlflow_cf.features import Floats

# Where one sum stands for two classes it is the second one's share itself (share), or that of its logistic function.
Link = Literal["identity", "share", "sigmoid", "softmax"]
TIE: Final = 1e-11  # shares that are as near to a half are one, but for the rounding of a sum
Encoded = NDArray[Any]
Flags = NDArray[np.bool_]


def linked(totals: Floats, link: Link) -> Floats:
    """Turn sums of leaves or of a last layer (m, k) into scores; one sum stands for two classes where it is linked."""
    if link == "softmax":
        return shares(totals)
    if link == "share" or (link == "sigmoid" and totals.shape[1] == 1):
        scores = np.empty((len(totals), 2))
        scores[:, 1] = totals[:, 0] if link == "share" else expit(totals[:, 0])
        scores[:, 0] = 1.0 - scores[:, 1]
        if link == "share":  # a forest that is of two minds says as much for both, and rounds both alike
            scores[np.abs(scores[:, 1] - 0.5) <= TIE] = 0.5
        return scores
    if link == "sigmoid":  # one against the rest
        likely = expit(totals)
        total = likely.sum(axis=1, keepdims=True)
        return np.asarray(np.where(total > 0, likely, 1.0) / np.where(total > 0, total, likely.shape[1]))
    return totals


def shares(values: Floats) -> Floats:
    """Return the softmax of every row of `values` (m, k)."""
    raised = np.exp(values - values.max(axis=1, keepdims=True))
    found: Floats = raised / raised.sum(axis=1, keepdims=True)
    return found
