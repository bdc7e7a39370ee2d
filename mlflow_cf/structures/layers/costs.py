"""Lagrangian bounds on what it costs to reach a raw score of a linear model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.capabilities import CostBound
from mlflow_cf.structures.kernels.costs import find_price
from mlflow_cf.structures.structure import Flags


class LinearCosts:
    """Bounds what rows of boxes cost at least whose score, a sum over columns, is large enough.

    Args of the constructor:
        starts: (d,) offset of every column in the n values.
        costs, gains: (n,) what each value costs, and what it adds to the score.
        need: what the gains must add up to.
    """

    quick: bool = True

    def __init__(self, starts: NDArray[np.intp], costs: Floats, gains: Floats, need: float) -> None:
        self._start = np.append(starts, len(costs)).astype(np.int64)
        self._costs, self._gains, self._need = np.ascontiguousarray(costs), np.ascontiguousarray(gains), need

    def of(self, mask: Flags, near: CostBound | None, limit: float) -> CostBound:
        """Bound the box `mask` (n,); see `CostBounds.of`."""
        del near, limit
        picks = np.zeros((3, len(self._start) - 1), dtype=np.int64)
        low = find_price(np.ascontiguousarray(mask), self._start, self._costs, self._gains, self._need, picks)
        ends = self._costs[picks[:2]]
        column = int(np.abs(ends[0] - ends[1]).argmax())
        return CostBound(low, np.empty(0, np.float32), column, float(ends[:, column].mean()))
