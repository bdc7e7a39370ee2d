"""Bounds of linear models and networks on boxes of one grid of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.kernels.dense import add_ends
from mlflow_cf.structures.layers.costs import LinearCosts
from mlflow_cf.structures.structure import Flags


@dataclass(frozen=True, eq=False)
class LinearBoxes:
    """Bounds of a linear model on boxes of one grid: exact, but for rounding.

    Attributes:
        bias: (k,) added to all rows.
        added: (n, k) contribution of every value of the grid; finite.
        starts: (d,) offset of every column in the n values.
        slack: (k,) bound on rounding errors.
    """

    bias: Floats
    added: Floats
    starts: NDArray[np.intp]
    slack: Floats

    @classmethod
    def beside(cls, parts: Sequence[LinearBoxes]) -> LinearBoxes:
        """Return the bounds of several models in the same grid, whose raw scores stand side by side."""
        bias, slack = (np.concatenate(each) for each in ([one.bias for one in parts], [one.slack for one in parts]))
        return cls(bias, np.concatenate([one.added for one in parts], axis=1), parts[0].starts, slack)

    def weighted(self, weights: Floats) -> LinearBoxes:
        """Return the bounds of one raw score, the sum of all of them times `weights` (k,)."""
        weights = weights[:, None]
        slack = 2 * self.slack @ np.abs(weights)  # rounded once more
        return LinearBoxes(self.bias @ weights, np.ascontiguousarray(self.added @ weights), self.starts, slack)

    def bounds(self, masks: Flags) -> tuple[Floats, Floats]:
        """Return bounds (m, k), (m, k) on the raw scores of all rows of the boxes `masks` (m, n)."""
        low, high = np.tile(self.bias, (2, len(masks), 1))
        add_ends(np.ascontiguousarray(masks), self.added, self.starts, low, high)
        return low - self.slack, high + self.slack

    def confined(self, mask: Flags, near: Flags, groups: Sequence[Sequence[int]]) -> tuple[Floats, Floats]:
        """Return bounds (g, k), (g, k) of a box with one group's columns confined; see `SupportsConfined`."""
        found = []
        for whole, some in zip(self._ends(mask), self._ends(mask & near), strict=True):
            change = np.array([(some[list(columns)] - whole[list(columns)]).sum(axis=0) for columns in groups])
            found.append(self.bias + whole.sum(axis=0) + change)
        return found[0] - self.slack, found[1] + self.slack

    def gains(self, mask: Flags, own: NDArray[np.intp], weights: Floats) -> Floats:
        """Return (n,) the gain of resetting a column from each value; see `SupportsGains`."""
        del mask  # columns do not interact
        counts = np.diff(np.append(self.starts, len(self.added)))
        gained: Floats = (self.added[np.repeat(own, counts)] - self.added) @ weights
        return gained - 2 * self.slack @ np.abs(weights)

    def costs(self, costs: Floats, weights: Floats, least: float) -> LinearCosts:
        """Return what rows cost at least that reach a score; see `SupportsCosts`."""
        need = least - float(self.bias @ weights + self.slack @ np.abs(weights))
        return LinearCosts(self.starts, costs, self.added @ weights, need)

    def _ends(self, mask: Flags) -> tuple[Floats, Floats]:
        """Return least and largest contributions (d, k) of every column; inf and -inf if it has no value."""
        allowed = mask[:, None]
        low: Floats = np.minimum.reduceat(np.where(allowed, self.added, np.inf), self.starts, axis=0)
        high: Floats = np.maximum.reduceat(np.where(allowed, self.added, -np.inf), self.starts, axis=0)
        return low, high


@dataclass(frozen=True, eq=False)
class LayerBoxes:
    """Bounds of a network on boxes of one grid, propagated for each box.

    Attributes:
        bounds_of: bounds raw scores, given the entries of all columns, concatenated, and the number of values of each.
        entries: entries of all n values, concatenated; choices: (entries,) the value that each belongs to.
        starts: (d,) offset of every column in the n values.
    """

    bounds_of: Callable[[Floats, NDArray[np.intp]], tuple[Floats, Floats]]
    entries: Floats
    choices: NDArray[np.intp]
    starts: NDArray[np.intp]

    def bounds(self, masks: Flags) -> tuple[Floats, Floats]:
        """Return bounds (m, k), (m, k) on the raw scores of all rows of the boxes `masks` (m, n)."""
        counts = np.add.reduceat(masks, self.starts, axis=1, dtype=np.intp)
        pairs = zip(masks, counts, strict=True)
        found = [self.bounds_of(self.entries[mask[self.choices]], some) for mask, some in pairs]
        return np.array([low for low, _ in found]), np.array([high for _, high in found])
