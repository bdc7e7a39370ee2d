"""Bounds of a network: intervals and lines are propagated through its layers for every box."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.links import Flags


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

    def confined(self, mask: Flags, near: Flags, groups: Sequence[Sequence[int]]) -> None:
        """Return None: every part of a box is propagated by itself."""
        del mask, near, groups

    def gains(self, mask: Flags, own: NDArray[np.intp], weights: Floats) -> None:
        """Return None: intervals do not know what depends on what."""
        del mask, own, weights
