"""The leaves of models as bits, and which cells lead to the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.structures.kernels.leaf_masks import LeafMasks
from mlflow_cf.structures.structure import Encoded


@dataclass(frozen=True, eq=False)
class ModelLeaves:
    """The leaves of the models of one structure.

    Attributes:
        masks: the leaves.
        kind: (models, cells) of the cells of all features; those of a feature that a model cannot tell apart have the
            same number.
        start: (d + 1,) the first cell of every feature.
    """

    masks: LeafMasks
    kind: NDArray[np.int32]
    start: NDArray[np.intp]

    def kinds(self, cells: Encoded, sizes: Sequence[int]) -> NDArray[np.int32]:
        """Return the kinds (models, n) of `cells` (n,), so many of each feature, one feature after the other."""
        begin = np.repeat(self.start[:-1], sizes)
        return self.kind[:, begin + cells.astype(np.intp)]
