"""Grids: the sums of all pairs of cells of the two features of an ensemble.

A leaf is a rectangle of pairs: its value is noted where that begins and where it ends along either feature, and all of
it is added up once, at the end. So the time does not depend on how large the rectangles are.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.branches import all_cells, copy, part
from mlflow_cf.structures.kernels.nodes import FEATURE, LEFT, Array, Features, Nodes


@kernel
def _places(cells: Array, place: Array) -> int:
    """Write how many different ones of `cells` (n,) stand before each cell, and return how many there are."""
    place[:] = 0
    for number in range(cells.size):
        place[cells[number] + 1] = 1
    for cell in range(1, place.size):
        place[cell] += place[cell - 1]
    return int(place[-1])


@numba.njit(inline="always")
def _ends(ends: Array, span: Array, mask: Array, at: Any, place: Array, ordered: Any, missing: Any) -> Any:
    """Write the places where cells of a branch begin and end, in turns, and return how many; `missing` is a cell."""
    count = 0
    if ordered:
        if span[at, 0] <= span[at, 1]:
            ends[0], ends[1] = place[span[at, 0]], place[span[at, 1] + 1]
            count = 2
        if span[at, 2]:
            ends[count], ends[count + 1] = place[missing], place[missing + 1]
            count += 2
        return count
    inside = False
    for cell in range(missing + 1):
        comes = (mask[at, cell >> 6] >> np.uint64(cell & 63)) & np.uint64(1) != np.uint64(0)
        if comes != inside:
            ends[count] = place[cell]
            count += 1
            inside = comes
    if inside:
        ends[count] = place[missing + 1]
        count += 1
    return count


@numba.njit(inline="always")
def _corners(grid: Array, ends: Array, counts: Array, value: Array, node: Any, output: Any) -> None:
    """Note a leaf at the corners of its rectangles."""
    for a in range(counts[0]):
        for b in range(counts[1]):
            sign = 1.0 - 2.0 * ((a ^ b) & 1)
            for place in range(value.shape[1]):
                grid[ends[0, a], ends[1, b], output + place] += sign * value[node, place]


@kernel
def _note_leaves(nodes: Nodes, features: Features, place: Array, deepest: int, grid: Array, rest: Array) -> None:
    """Note the leaves of all trees at their corners; those of trees without tests are added to `rest` (k,).

    Branches 2 n and 2 n + 1 say which cells of either feature come to the n-th node that waits.
    """
    tests, value, start, ordered, bits = nodes.tests, nodes.value, features.start, features.ordered, features.bits
    span, to = np.empty((2 * deepest + 4, 3), dtype=np.int64), np.empty(deepest + 2, dtype=np.int64)
    mask = np.empty((len(span), bits.shape[1]), dtype=np.uint64)
    ends, counts = np.empty((2, place.shape[1] + 4), dtype=np.int64), np.zeros(2, dtype=np.int64)
    for tree in range(nodes.roots.size):
        to[0], at, output = nodes.roots[tree], 0, max(nodes.outputs[tree], 0)
        if tests[to[0], FEATURE] < 0:
            for column in range(value.shape[1]):
                rest[output + column] += value[to[0], column]
            continue
        for feature in range(2):
            all_cells(span, mask, feature, feature, start)
        while at >= 0:
            node = to[at]
            feature = tests[node, FEATURE]
            if feature >= 0:
                copy(span, mask, 2 * at + 1 - feature, 2 * at + 3 - feature)
                left, right = part(
                    span, mask, 2 * at + feature, 2 * at + 2 + feature, 2 * at + feature, node, True, tests, bits
                )
                to[at], to[at + 1] = tests[node, LEFT] + 1 if right else -1, tests[node, LEFT] if left else -1
                at += 1
            else:
                for each in range(2):
                    missing = start[each + 1] - start[each] - 1
                    counts[each] = _ends(ends[each], span, mask, 2 * at + each, place[each], ordered[each], missing)
                _corners(grid, ends, counts, value, node, output)
                at -= 1
            while at >= 0 and to[at] < 0:  # no cell goes there
                at -= 1


@kernel
def grid_trees(first: Array, second: Array, nodes: Nodes, features: Features, base: Array, deepest: int) -> Array:
    """Return the sums (m, t, k) of all pairs of cells (m,) and (t,) of the two features.

    Args:
        first, second: the cells, in any order.
        nodes, features: the trees, over two features.
        base: (k,) added to all sums.
        deepest: number of tests on the longest way down a tree.
    """
    most = max(features.start[1], features.start[2] - features.start[1])
    place = np.empty((2, most + 1), dtype=np.int64)
    rows, columns = _places(first, place[0]), _places(second, place[1])
    grid, rest = np.zeros((rows + 1, columns + 1, base.size)), base.copy()
    _note_leaves(nodes, features, place, deepest, grid, rest)
    for row in range(1, rows):
        grid[row] += grid[row - 1]
    for row in range(rows):
        for column in range(1, columns):
            for output in range(base.size):
                grid[row, column, output] += grid[row, column - 1, output]
    sums = np.empty((first.size, second.size, base.size))
    for row in range(first.size):
        for column in range(second.size):
            for output in range(base.size):
                cell = grid[place[0, first[row]], place[1, second[column]], output]
                sums[row, column, output] = rest[output] + cell
    return sums
