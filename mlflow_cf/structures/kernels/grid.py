"""Grids: the sums of all pairs of cells of the two features of an ensemble.

A leaf is a rectangle of pairs: its value is noted where that begins and where it ends along either feature, and all of
it is added up once, at the end. So the time does not depend on how large the rectangles are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.branches import Branches, Room, all_cells, copy, part, room_for
from mlflow_cf.structures.kernels.nodes import FEATURE, LEFT, Array, Trees


@numba.njit(inline="always")
def _ends(ends: Array, branches: Branches, at: Any, place: Array, feature: Any) -> Any:
    """Write the places where cells of a branch, some of a feature, begin and end, in turns, and return how many."""
    span, mask, start = branches.span, branches.mask, branches.features.start
    count, missing = 0, start[feature + 1] - start[feature] - 1
    if branches.features.ordered[feature]:
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
def _corners(grid: Array, ends: Array, counts: Any, value: Array, node: Any, output: Any) -> None:
    """Note a leaf at the corners of its rectangles."""
    for a in range(counts[0]):
        for b in range(counts[1]):
            sign = 1.0 - 2.0 * ((a ^ b) & 1)
            for place in range(value.shape[1]):
                grid[ends[0, a], ends[1, b], output + place] += sign * value[node, place]


class Noted(NamedTuple):
    """What leaves are noted in.

    Attributes:
        place: (2, cells + 1) how many different cells of either feature stand before each.
        grid: (m + 1, t + 1, k) differences; rest: (k,) what trees without tests add.
    """

    place: Array
    grid: Array
    rest: Array


@kernel
def note_leaves(trees: Trees, room: Room, to: Array, ends: Array, noted: Noted) -> None:
    """Note the leaves of all trees at their corners.

    Branches 2 n and 2 n + 1 say which cells of either feature come to the n-th node that waits, `to[n]`; `ends` (2,
    cells + 4) is room to work in.
    """
    branches = Branches(room.span, room.mask, trees.features)
    nodes, place = trees.nodes, noted.place
    tests, value = nodes.tests, nodes.value
    for tree in range(nodes.roots.size):
        to[0], at, output = nodes.roots[tree], 0, max(nodes.outputs[tree], 0)
        if tests[to[0], FEATURE] < 0:
            for column in range(value.shape[1]):
                noted.rest[output + column] += value[to[0], column]
            continue
        for feature in range(2):
            all_cells(branches, feature, feature)
        while at >= 0:
            node = to[at]
            feature = tests[node, FEATURE]
            if feature >= 0:
                copy(branches, 2 * at + 1 - feature, 2 * at + 3 - feature)
                left, right = part(branches, 2 * at + feature, 2 * at + 2 + feature, nodes, node, True)
                to[at], to[at + 1] = tests[node, LEFT] + 1 if right else -1, tests[node, LEFT] if left else -1
                at += 1
            else:
                counts = (
                    _ends(ends[0], branches, 2 * at, place[0], 0),
                    _ends(ends[1], branches, 2 * at + 1, place[1], 1),
                )
                _corners(noted.grid, ends, counts, value, node, output)
                at -= 1
            while at >= 0 and to[at] < 0:  # no cell goes there
                at -= 1


def grid_trees(first: Array, second: Array, trees: Trees) -> Array:
    """Return the sums (m, t, k) of all pairs of cells (m,) and (t,) of the two features.

    Args:
        first, second: the cells, in any order.
        trees: trees over two features.
    """
    start = trees.features.start
    most = max(int(start[1]), int(start[2] - start[1]))
    place = np.zeros((2, most + 1), dtype=np.int64)
    place[0, first + 1] = place[1, second + 1] = 1
    place = place.cumsum(1)
    grid, rest = np.zeros((place[0, -1] + 1, place[1, -1] + 1, len(trees.base))), trees.base.copy()
    to, ends = np.empty(trees.deepest + 2, dtype=np.int64), np.empty((2, most + 5), dtype=np.int64)
    note_leaves(trees, room_for(2 * trees.deepest + 4, trees.features), to, ends, Noted(place, grid, rest))
    sums: Array = grid.cumsum(0).cumsum(1)[place[0, first][:, None], place[1, second]]
    sums += rest
    return sums
