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


@dataclass(frozen=True, eq=False)
class Lead:
    """A number that meets the targets from some end on.

    Attributes:
        weights: (k,) of the sums that it is made of.
        step: what it has to grow by to take whatever may meet the targets to what certainly does.
    """

    weights: Floats
    step: float

    @classmethod
    def of(cls, targets: Sequence[SumTarget], doubt: float, largest: float) -> Lead | None:
        """Return what decides some targets, None if that is no single number.

        Args:
            targets: all of which must be met.
            doubt: by how much scores may be off, in units of max(1, |score|).
            largest: what no sum exceeds.
        """
        if len(targets) != 1 or doubt > MOST_DOUBT:
            return None
        (target,) = targets
        if target.kind == "interval":
            return _of_interval(target, doubt)
        columns = target.columns
        if target.classes != 2 or len(columns) != 1 or target.margins or target.column < 0:
            return None
        toward = 1.0 if columns[0] == 1 else -1.0
        if target.link == "identity":
            step = 2 * doubt * max(1.0, largest)
            return None if target.least > 0 else cls(toward * np.array([-1.0, 1.0]), step * (1 + SLACK))
        if target.stop - target.start == 2 and target.link == "sigmoid":
            return None
        weights = [1.0] if target.stop - target.start == 1 else [-1.0, 1.0]
        return cls(toward * np.array(weights), _step_of_shares(max(target.least, 0.5), doubt))


def _of_interval(target: SumTarget, doubt: float) -> Lead | None:
    """Return what decides an interval that has one end."""
    if np.isfinite(target.low) == np.isfinite(target.high):
        return None
    end, toward = (target.low, 1.0) if np.isfinite(target.low) else (target.high, -1.0)
    return Lead(np.array([toward]), 4 * doubt * max(1.0, abs(end)))  # values near the end are little larger


def _step_of_shares(least: float, doubt: float) -> float:
    """Return what the logarithm of a class's odds has to grow by, where its share must be `least`."""
    if least + doubt >= 1.0:
        return np.inf
    return float(logit(least + doubt) - logit(least - doubt)) * (1 + SLACK)
