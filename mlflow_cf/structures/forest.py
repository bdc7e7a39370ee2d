"""Decision trees as their libraries hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.structure import Link

GoesLeft = Literal["<= float32", "<= float64", "< float32"]
Ints = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees as a library holds them; node 0 of each tree follows the nodes of the tree before it.

    Attributes:
        roots: (trees,) first node of every tree.
        outputs: (trees,) output a tree adds to; -1: its leaves hold one value per output.
        column: (nodes,) encoded column a node tests, -1 for a leaf.
        threshold: (nodes,) what it compares with.
        missing_left: (nodes,) where missing values go.
        left, right: (nodes,) children.
        value: (nodes, k) leaf values, in the precision the library adds them up in.
        rule: when a value goes left, in the library's own precision.
        base: (outputs,) added to the sums; link: turns sums into scores.
    """

    roots: Ints
    outputs: Ints
    column: Ints
    threshold: Floats
    missing_left: NDArray[np.bool_]
    left: Ints
    right: Ints
    value: NDArray[np.floating[Any]]
    rule: GoesLeft
    base: Floats
    link: Link

    def goes_left(self, values: Floats, threshold: Floats) -> NDArray[np.bool_]:
        """Whether encoded values go left at thresholds, by the library's rule; False for missing ones."""
        if self.rule == "<= float64":
            return values <= threshold
        narrow = values.astype(np.float32)
        if self.rule == "< float32":
            return narrow < threshold.astype(np.float32)
        return narrow.astype(np.float64) <= threshold
