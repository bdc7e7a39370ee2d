"""The nodes of all trees of an ensemble as flat arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Nodes(NamedTuple):
    """Nodes of all trees, siblings side by side: the right child follows the left one.

    Attributes:
        roots: (trees,) first node of every tree.
        outputs: (trees,) the output a tree adds to; -1: its leaves hold one value per output.
        feature: (nodes,) feature a node tests, -1 for a leaf.
        cut: (nodes,) ordered features: the last cell that goes left.
        test: (nodes,) row of the tests of other features, -1 for ordered ones.
        missing_left: (nodes,) whether a missing value of an ordered feature goes left.
        left: (nodes,) left child.
        value: (nodes, k) leaf values.
    """

    roots: Array
    outputs: Array
    feature: Array
    cut: Array
    test: Array
    missing_left: Array
    left: Array
    value: Array


class Features(NamedTuple):
    """The features of an ensemble and their cells; the cells of all features stand one after the other.

    Attributes:
        start: (d + 1,) first cell of every feature; its last cell stands for missing values.
        ordered: (d,) whether its tests are cuts; if not, they are tables.
        goes_left: (tests, most cells) whether a cell goes left.
    """

    start: Array
    ordered: Array
    goes_left: Array


def reordered(parts: Nodes, right: Array) -> Nodes:
    """Return nodes of any order, whose right children are `right`, with siblings side by side and roots first."""
    inner = np.flatnonzero(parts.feature >= 0)
    place = np.empty(len(parts.feature), dtype=np.int32)
    place[parts.roots] = np.arange(len(parts.roots))
    place[parts.left[inner]] = len(parts.roots) + 2 * np.arange(len(inner))
    place[right[inner]] = len(parts.roots) + 2 * np.arange(len(inner)) + 1
    order = np.empty_like(place)
    order[place] = np.arange(len(place))
    leaf = parts.feature[order] < 0
    return Nodes(
        roots=place[parts.roots],
        outputs=parts.outputs,
        feature=parts.feature[order],
        cut=parts.cut[order],
        test=parts.test[order],
        missing_left=parts.missing_left[order],
        left=np.where(leaf, np.arange(len(place)), place[np.where(leaf, 0, parts.left[order])]).astype(np.int32),
        value=np.ascontiguousarray(parts.value[order]),
    )
