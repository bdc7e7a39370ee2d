"""Where the paths of one row through all trees end: where three of its features vary, most trees test none of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.kernel import inner
from mlflow_cf.structures.kernels.trees import FEATURE, Trees

Array = NDArray[Any]
BITS = 64  # of a word: one for each feature, that of its number modulo this


class OwnPaths(NamedTuple):
    """The path of a row through every tree.

    Attributes:
        leaf: (trees,) where it ends; model: (trees,) which of several models the tree is of.
        bits: (trees,) of the features that it tests.
        total: (models,) workspace, what trees add up to whose paths are not left.
    """

    leaf: Array
    model: Array
    bits: Array
    total: Array

    @classmethod
    def of(cls, trees: Trees, models: int) -> OwnPaths:
        """Return arrays for trees of so many models."""
        count = len(trees.nodes.roots)
        leaf, model = np.empty((2, count), dtype=np.int32)
        return cls(leaf, model, np.empty(count, dtype=np.uint64), np.empty(models, dtype=np.int64))


@inner
def bit_of(feature: Any) -> Any:
    """Return the bit of a feature, which others may share."""
    return np.uint64(1) << np.uint64(feature % BITS)


@inner
def note_own_paths(X: Array, trees: Trees, paths: OwnPaths) -> None:
    """Write the paths of the row with comparands X (columns,), see `Walk`."""
    tests, walk = trees.nodes.tests, trees.walk
    outputs = trees.base.size // paths.total.size  # of each model
    for tree in range(trees.nodes.roots.size):
        node, bits = np.int64(trees.nodes.roots[tree]), np.uint64(0)
        while tests[node, FEATURE] >= 0:
            key, bits = walk.key[node], bits | bit_of(tests[node, FEATURE])
            node = np.int64(walk.left[node]) + np.int64(X[key >> 32] > (key & 0xFFFFFFFF))
        paths.leaf[tree], paths.bits[tree] = node, bits
        paths.model[tree] = max(trees.nodes.outputs[tree], 0) // outputs
