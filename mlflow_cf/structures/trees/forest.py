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
class Subsets:
    """Sets of categories that go left.

    Attributes:
        row: (nodes,) row of `left` for nodes that test categories, -1 for those that compare.
        left: (sets, categories + 1) whether the categories 0, 1, ... go left, then whether all other values do.
        above: values above it and below 1 are category 0; other fractions are truncated.
    """

    row: Ints
    left: NDArray[np.bool_]
    above: float

    def goes_left(self, values: Floats, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return whether values (n,) go left by each of the sets `rows` (t,), as (t, n)."""
        other = self.left.shape[1] - 1
        known = (values > self.above) & (values < other)
        return np.asarray(self.left[rows][:, np.where(known, values, other).astype(np.intp)])


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
        value: (nodes, k) leaf values, in the precision of the library's sums.
        rule: the comparison by which a value goes left, in the library's own precision.
        base: (outputs,) added to the sums of leaves; link: turns raw scores into scores.
        subsets: the tests of nodes that test categories, if there are any.
        steady: whether the library always adds the trees of a row in the same order.
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
    subsets: Subsets | None = None
    steady: bool = True

    @property
    def narrow(self) -> bool:
        """Whether values are cast to float32 before they are tested."""
        return self.rule != "<= float64"

    def limits(self, nodes: NDArray[np.intp]) -> Floats:
        """Return the largest values that go left at `nodes`, after `seen`."""
        threshold = self.threshold[nodes]
        if self.rule != "< float32":
            return threshold
        return np.nextafter(threshold.astype(np.float32), np.float32(-np.inf)).astype(np.float64)

    def seen(self, values: Floats) -> Floats:
        """Return encoded values as the library compares them."""
        if not self.narrow:
            return values
        with np.errstate(over="ignore"):
            return values.astype(np.float32).astype(np.float64)

    def ends(self, subsets: Subsets) -> Floats:
        """Return the largest value below all categories, then that of every category, ascending, after `seen`."""
        precision = np.float32 if self.narrow else np.float64
        whole = np.arange(1, subsets.left.shape[1], dtype=precision)
        return np.append(subsets.above, np.nextafter(whole, precision(0)))
