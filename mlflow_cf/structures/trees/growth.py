"""Boxes of trees that grow."""

from __future__ import annotations

from typing import Final

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.structures.growing import Places
from mlflow_cf.structures.kernels.growing import Grown, grow, survey
from mlflow_cf.structures.kernels.parting import Cuts, Limits, room_for_parts, worth_of
from mlflow_cf.structures.kernels.trees import Trees

FIRST_STEP: Final = 1 / 32  # of the values of a column, so that no side runs ahead of the others


class TreeGrowth:
    """A box of a grid in which weighted raw scores stay large; belongs to one thread; see `GrowingBox`."""

    def __init__(
        self, trees: Trees, cuts: Cuts, score: tuple[Floats, float, float], at: Places, shares: Floats
    ) -> None:
        """Set up for the box of one row.

        Args:
            trees: pruned to the grid; cuts: the same trees over its places.
            score: the weights (k,) of raw scores, and from where on they may be, and are, large enough.
            at: (columns,) the place of the row's values; shares: see `SupportsGrowing`.
        """
        (weights, may, sure), features, count = score, len(at), len(cuts.roots)
        self._cuts, self._room = cuts, room_for_parts(cuts, trees.deepest)
        steps = np.maximum(np.rint(np.diff(cuts.start) * FIRST_STEP), 1).astype(np.int64)
        self._grown = Grown(
            ends=np.tile(at.astype(np.int64), (2, 1)),
            states=np.zeros((2, features), np.int64),
            steps=np.tile(steps, (2, 1)),
            halved=np.zeros((2, features), np.int64),
            shares=shares,
            least=np.empty(count),
            tested=np.empty(count, np.uint64),
            slab=np.empty((2, features), np.int64),
            found=np.empty(count),
        )
        sizes = worth_of(trees.nodes, np.abs(trees.nodes.value), np.abs(weights))
        size = survey(cuts, sizes, self._grown, self._room.nodes)
        off = float(np.finfo(trees.nodes.value.dtype).eps * (count + 1) * size)  # see `TreeBoxes.bounds`
        base = float(trees.base @ weights)
        self._sure, self._may = sure + off - base, may - off - base

    @property
    def ends(self) -> Places:
        """(2, columns) the places of its first and last value of every column."""
        return self._grown.ends

    @property
    def states(self) -> Places:
        """(2, columns) what is known of every side."""
        return self._grown.states

    def go_on(self, most_of_a_side: int, most: int, least_share: float) -> int:
        """Grow until so many parts are bounded; see `GrowingBox`."""
        return grow(
            self._cuts, Limits(self._sure, self._may, most_of_a_side), self._grown, self._room, most, least_share
        )
