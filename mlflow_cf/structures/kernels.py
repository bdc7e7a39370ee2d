"""Compiled loops over trees; they hold no Python object and release the interpreter's lock."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@numba.njit(cache=True, nogil=True)
def add_trees(
    cells: Array,
    roots: Array,
    outputs: Array,
    feature: Array,
    cut: Array,
    test: Array,
    missing_left: Array,
    left: Array,
    right: Array,
    value: Array,
    goes_left: Array,
    totals: Array,
) -> None:
    """Add every tree's leaf values to `totals`.

    Args:
        cells: (m, d) int32 cell of every feature; -1: a missing number.
        roots, outputs: (trees,) first node, and the column of `totals` a tree adds to; -1: one value per column.
        feature, left, right: (nodes,) feature (-1: leaf), children.
        cut, missing_left: (nodes,) a number goes left up to this cell; where missing numbers go.
        test: (nodes,) row of `goes_left` for levels, -1 for numbers.
        value: (nodes, k) leaf values.
        goes_left: (tests, most levels) uint8, whether a level goes left.
        totals: (m, columns) of the same precision as `value`, added to.
    """
    for tree in range(roots.size):
        output = outputs[tree]
        for row in range(cells.shape[0]):
            node = roots[tree]
            while feature[node] >= 0:
                cell = cells[row, feature[node]]
                if test[node] >= 0:
                    leftwards = goes_left[test[node], cell] != 0
                elif cell >= 0:
                    leftwards = cell <= cut[node]
                else:
                    leftwards = missing_left[node]
                node = left[node] if leftwards else right[node]
            if output >= 0:
                totals[row, output] += value[node, 0]
            else:
                for column in range(totals.shape[1]):
                    totals[row, column] += value[node, column]


def warm() -> None:
    """Compile (or load from the cache) every kernel, so that no request waits for it."""
    ones = np.zeros(1, dtype=np.int32)
    leaf = np.full(1, -1, dtype=np.int32)
    table = np.zeros((1, 1), dtype=np.uint8)
    flags = np.zeros(1, dtype=np.bool_)
    values = np.zeros((1, 1))
    add_trees(ones[:, None], ones, ones, leaf, ones, leaf, flags, ones, ones, values, table, values.copy())
