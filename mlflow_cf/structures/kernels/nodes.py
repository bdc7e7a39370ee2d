"""The trees of an ensemble as flat arrays: what kernels take."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


FEATURE, CUT, TEST, MISSING_LEFT, LEFT = range(5)  # columns of `Nodes.tests`


class Nodes(NamedTuple):
    """Nodes of all trees, siblings side by side: the right child follows the left one.

    Attributes:
        roots: (trees,) first node of every tree.
        outputs: (trees,) the output a tree adds to; -1: its leaves hold one value per output.
        tests: (nodes, 5) int32: the feature a node tests (-1: a leaf); for ordered features the last cell that goes
            left; for others the row of their test, else -1; whether a missing value of an ordered feature goes left;
            the left child, which of a leaf is the leaf.
        value: (nodes, k) leaf values.
    """

    roots: Array
    outputs: Array
    tests: Array
    value: Array


class Features(NamedTuple):
    """The features of an ensemble and their cells; those of all features are numbered consecutively.

    Attributes:
        start: (d + 1,) first cell of every feature; its last cell stands for missing values.
        ordered: (d,) whether its tests are cuts; if not, they are tables.
        bits: (tests, words) whether a cell goes left, 64 cells to a word.
    """

    start: Array
    ordered: Array
    bits: Array


class Walk(NamedTuple):
    """Nodes packed for fast walks: a row goes right iff its comparand exceeds the node's cut.

    Attributes:
        key: (nodes,) column of the comparand, shifted by 32 bits, plus the cut.
        left: (nodes,) left child; a leaf is its own.
        start: (d + 1,) first comparand of every feature.
        offset: (d,) position in `comparands` of the first cell of a feature.
        comparands: the comparands of every cell of every feature.
    """

    key: Array
    left: Array
    start: Array
    offset: Array
    comparands: Array


class Trees(NamedTuple):
    """An additive ensemble.

    Attributes:
        nodes, features: the trees, and the cells that their tests refer to.
        walk: the same trees, packed for fast walks.
        base: (k,) added to the sums of leaves.
        deepest: number of tests on the longest path.
    """

    nodes: Nodes
    features: Features
    walk: Walk
    base: Array
    deepest: int


@numba.njit(inline="always")
def is_set(bits: Array, row: Any, cell: Any) -> Any:
    """Return whether the bit of a cell is set in a row of words (n, w)."""
    return (bits[row, cell >> 6] >> np.uint64(cell & 63)) & np.uint64(1) != np.uint64(0)


def bits_of(goes_left: Array) -> Array:
    """Return flags (tests, n) as words (tests, ceil(n / 64)), the lowest bit first."""
    whole = np.zeros((len(goes_left), -(-goes_left.shape[1] // 64) * 64), dtype=np.bool_)
    whole[:, : goes_left.shape[1]] = goes_left
    return np.packbits(whole, axis=1, bitorder="little").view(np.uint64)


def flags_of(bits: Array) -> Array:
    """Return words (tests, w) as flags (tests, 64 w); the inverse of `bits_of`."""
    return np.unpackbits(bits.view(np.uint8), axis=1, bitorder="little").view(np.bool_)
