"""What a refused row is compared with: rows that the model decides as wanted, or one row that stands for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.policy.reasons import ReferenceName
from mlflow_cf.structures.shapley import Contributions
from mlflow_cf.words.statements import say

MOST_EXACT: Final = 256  # reference rows where contributions are exact: four words of bits
MOST_SAMPLED: Final = 32  # where every one of them is scored in many mixtures with the row


@dataclass(frozen=True, eq=False)
class Reference:
    """Reference rows, prepared for one model.

    Attributes:
        rows: (m, d) codes; empty: there are none, and `reason` says why.
        told: what they are, in words.
        contributions: what tells exact contributions against them; None: this model has none.
        reason: why there are no rows, else "".
    """

    rows: Floats
    told: str
    contributions: Contributions | None = None
    reason: str = ""


def approved(background: Floats, met: NDArray[np.bool_], most: int) -> Reference:
    """Return background rows (n, d) that are decided as wanted, `met` (n,), or a sample of so many of them."""
    rows = np.flatnonzero(met)
    chosen = rows
    if len(rows) > most:
        # fixed: which rows are compared with is part of the reference, not of a request
        chosen = np.sort(np.random.default_rng(0).permutation(rows)[:most])
    found = say("mean_of_one" if len(rows) == 1 else "mean_of", rows=len(rows))
    if len(chosen) < len(rows):
        found = say("mean_of_sample", chosen=len(chosen), rows=len(rows))
    return Reference(background[chosen], found, reason="" if len(rows) else say("none_approved"))


def favourable_median(background: Floats, met: NDArray[np.bool_], space: FeatureSpace) -> Reference:
    """Return one row: the median of each number and ordinal, and the commonest level, of rows decided as wanted.

    A median is a value that occurs: of an even number of rows, the lower one in the middle.
    """
    rows = background[met]
    told = say("median_of_one" if len(rows) == 1 else "median_of", rows=len(rows))
    if not len(rows):
        return Reference(rows, told, reason=say("none_approved"))
    row = np.array([_middle(rows[:, at], ordered=feature.has_order) for at, feature in enumerate(space.features)])
    return Reference(row[None], told)


def _middle(codes: Floats, *, ordered: bool) -> float:
    """Return the median of codes (n,), or the commonest of levels; NaN where most are missing."""
    known = codes[~np.isnan(codes)]
    if 2 * len(known) < len(codes) or not len(known):
        return float("nan")
    if ordered:
        return float(np.sort(known)[(len(known) - 1) // 2])
    levels, counts = np.unique(known, return_counts=True)
    return float(levels[counts.argmax()])


def named(name: ReferenceName, background: Floats, met: NDArray[np.bool_], space: FeatureSpace, most: int) -> Reference:
    """Return the reference of a name, without what is prepared for a model."""
    if name == "approved":
        return approved(background, met, most)
    return favourable_median(background, met, space)
