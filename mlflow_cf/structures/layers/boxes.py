"""Bounds of a linear model: every column adds its own share, so that boxes which differ in one are bounded together.

Bounds of a network: intervals and lines are propagated through its layers for every box.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.kernels.dense import add_ends
from mlflow_cf.structures.links import Flags


@dataclass(frozen=True, eq=False)
class LinearBoxes:
    """Bounds of parts of one box.

    Attributes:
        bias: (k,) what is added to the sums.
        added: (choices, k) what every choice adds to them; finite.
        starts: (d,) the first choice of every column.
        slack: (k,) by how much sums may be rounded otherwise.
    """

    bias: Floats
    added: Floats
    starts: NDArray[np.intp]
    slack: Floats

    def bounds(self, masks: Flags) -> tuple[Floats, Floats]:
        """Return bounds (m, k), (m, k) on the sums of all rows whose choices are allowed by each of `masks`."""
        low, high = np.tile(self.bias, (2, len(masks), 1))
        add_ends(np.ascontiguousarray(masks), self.added, self.starts, low, high)
        return low - self.slack, high + self.slack

    def confined(self, mask: Flags, near: Flags, groups: Sequence[Sequence[int]]) -> tuple[Floats, Floats]:
        """Return bounds (g, k), (g, k) of a box with the columns of one of `groups` confined to `near` choices."""
        found = []
        for whole, some in zip(self._ends(mask), self._ends(mask & near), strict=True):
            change = np.array([(some[list(columns)] - whole[list(columns)]).sum(axis=0) for columns in groups])
            found.append(self.bias + whole.sum(axis=0) + change)
        return found[0] - self.slack, found[1] + self.slack

    def gains(self, mask: Flags, own: NDArray[np.intp], weights: Floats) -> Floats:
        """Return (choices,) what putting back the column of each choice gains; see `Boxes`."""
        del mask  # whatever the others are
        counts = np.diff(np.append(self.starts, len(self.added)))
        gained: Floats = (self.added[np.repeat(own, counts)] - self.added) @ weights
        return gained - 2 * self.slack @ np.abs(weights)

    def _ends(self, mask: Flags) -> tuple[Floats, Floats]:
        """Return the least and the most (d, k) that every column adds; beyond all numbers where it has no choice."""
        allowed = mask[:, None]
        low: Floats = np.minimum.reduceat(np.where(allowed, self.added, np.inf), self.starts, axis=0)
        high: Floats = np.maximum.reduceat(np.where(allowed, self.added, -np.inf), self.starts, axis=0)
        return low, high


@dataclass(frozen=True, eq=False)
class LayerBoxes:
    """Bounds of parts of one box.

    Attributes:
        bounds_of: bounds the sums for the tokens of all columns, one after the other, and how many values each has.
        tokens: the tokens of all values, one after the other; choices: the value each belongs to.
        starts: (d,) the first value of every column.
    """

    bounds_of: Callable[[Floats, NDArray[np.intp]], tuple[Floats, Floats]]
    tokens: Floats
    choices: NDArray[np.intp]
    starts: NDArray[np.intp]

    def bounds(self, masks: Flags) -> tuple[Floats, Floats]:
        """Return bounds (m, k), (m, k) on the sums of all rows whose values are allowed by each of `masks`."""
        counts = np.add.reduceat(masks, self.starts, axis=1, dtype=np.intp)
        pairs = zip(masks, counts, strict=True)
        found = [self.bounds_of(self.tokens[mask[self.choices]], some) for mask, some in pairs]
        return np.array([low for low, _ in found]), np.array([high for _, high in found])
