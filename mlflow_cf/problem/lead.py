"""What decides a target where it is a single number: a weighted sum that only has to be large enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logit

from mlflow_cf.features import Floats
from mlflow_cf.problem.sums import SumTarget

MOST_DOUBT = 1e-2  # larger ones are no matter of rounding
SLACK = 1e-9  # of steps, which are rounded themselves
SHARE = 1.001  # no share of a class is larger, however it is rounded


@dataclass(frozen=True, eq=False)
class Lead:
    """A number that meets the targets from some end on.

    Attributes:
        weights: (k,) of the sums that it is made of.
        may, sure: from where on the targets may be met, and certainly are.
    """

    weights: Floats
    may: float
    sure: float

    @property
    def step(self) -> float:
        """What it has to grow by to take whatever may meet the targets to what certainly does."""
        return (self.sure - self.may) * (1 + SLACK)

    @classmethod
    def of(cls, targets: Sequence[SumTarget], doubt: float) -> Lead | None:
        """Return what decides some targets, None if that is no single number.

        Args:
            targets: all of which must be met.
            doubt: by how much scores may be off, in units of max(1, |score|).
        """
        if len(targets) != 1 or doubt > MOST_DOUBT:
            return None
        (target,) = targets
        if target.kind == "interval":
            return _of_interval(target, doubt)
        return _of_label(target, doubt)


def _of_label(target: SumTarget, doubt: float) -> Lead | None:
    """Return what decides which of two classes is said, with its least probability."""
    columns, least = target.columns, max(target.least, 0.5)
    if target.classes != 2 or len(columns) != 1 or target.margins or target.column < 0:
        return None
    toward, off = 1.0 if columns[0] == 1 else -1.0, doubt * SHARE
    if target.link == "share":
        off /= 1.0 if target.least > 0 else 2.0  # a lead grows twice as fast as a share
        end = least - (toward < 0)
        return Lead(np.array([toward]), end - off, end + off)
    if target.link == "identity":  # shares, of which none exceeds 1 but by rounding
        return None if target.least > 0 else Lead(toward * np.array([-1.0, 1.0]), -off, off)
    if target.stop - target.start == 2 and target.link == "sigmoid":
        return None
    weights = [1.0] if target.stop - target.start == 1 else [-1.0, 1.0]
    may, sure = logit(least - off), logit(min(least + off, 1.0))
    return Lead(toward * np.array(weights), float(may), float(sure))


def _of_interval(target: SumTarget, doubt: float) -> Lead | None:
    """Return what decides an interval that has one end."""
    if np.isfinite(target.low) == np.isfinite(target.high):
        return None
    end, toward = (target.low, 1.0) if np.isfinite(target.low) else (target.high, -1.0)
    off = 2 * doubt * max(1.0, abs(end))  # values near the end are little larger
    return Lead(np.array([toward]), toward * end - off, toward * end + off)
