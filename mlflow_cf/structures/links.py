"""Encoded values, flags, and the link functions that turn raw scores into scores."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from mlflow_cf.features import Floats

# A single raw score of two classes is the probability of the second one (share), or its logit (sigmoid).
Link = Literal["identity", "share", "sigmoid", "softmax"]
TIE: Final = 1e-11  # shares this near to 0.5 are ties: the difference is rounding
Encoded = NDArray[Any]
Flags = NDArray[np.bool_]


def linked(totals: Floats, link: Link) -> Floats:
    """Turn raw scores (m, k) into scores (m, classes); a single linked raw score gives two classes."""
    if link == "softmax":
        return shares(totals)
    if link == "share" or (link == "sigmoid" and totals.shape[1] == 1):
        scores = np.empty((len(totals), 2))
        scores[:, 1] = totals[:, 0] if link == "share" else expit(totals[:, 0])
        scores[:, 0] = 1.0 - scores[:, 1]
        if link == "share":  # forests vote 0.5 for both classes of a tie, rounded alike
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
