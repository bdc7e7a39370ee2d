"""Bounds on the raw scores of all rows with allowed cells: per tree the least and the largest reachable leaf.

Branches 0 to d - 1 are the allowed cells of every feature at the present node of a depth-first walk; one further branch
per level keeps the tested feature's cells from before the test. Allowed cells of ordered features may have gaps:
`below` (cells + 1,) is the number of allowed cells before each cell, counted over all features.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import inner, kernel
from mlflow_cf.structures.kernels.branches import Branches, BranchWorkspace, copy, room_for
from mlflow_cf.structures.kernels.nodes import CUT, FEATURE, LEFT, MISSING_LEFT, TEST, Array, Nodes, Trees


@numba.njit(inline="always")
def narrow(branches: Branches, below: Array, nodes: Nodes, node: Any, left: Any) -> Any:
    """Restrict a node's feature to the allowed cells that go left (or right); return whether there are any."""
    span, mask, tests = branches.span, branches.mask, nodes.tests
    feature = tests[node, FEATURE]
    if tests[node, TEST] >= 0:
        some = np.uint64(0)
        for word in range(mask.shape[1]):
            goes = branches.features.bits[tests[node, TEST], word]
            mask[feature, word] &= goes if left else ~goes
            some |= mask[feature, word]
        return some != np.uint64(0)
    if left:
        span[feature, 1] = min(span[feature, 1], tests[node, CUT])
    else:
        span[feature, 0] = max(span[feature, 0], tests[node, CUT] + 1)
    if (tests[node, MISSING_LEFT] != 0) != left:
        span[feature, 2] = 0
    low, high, first = span[feature, 0], span[feature, 1], branches.features.start[feature]
    return span[feature, 2] != 0 or (low <= high and below[first + high + 1] > below[first + low])


@inner
def allow(flags: Array, branches: Branches, below: Array) -> None:
    """Set the branches of all features to the cells with a flag (cells,), and count these in `below`."""
    span, mask, start, ordered = branches.span, branches.mask, branches.features.start, branches.features.ordered
    below[0] = 0
    for cell in range(flags.size):
        below[cell + 1] = below[cell] + np.int64(flags[cell])
    for feature in range(ordered.size):
        last = start[feature + 1] - start[feature] - 1
        span[feature, 0], span[feature, 1], span[feature, 2] = 0, last - 1, np.int64(flags[start[feature] + last])
        for word in range(mask.shape[1]):
            mask[feature, word] = np.uint64(0)
        if not ordered[feature]:
            for cell in range(last + 1):
                if flags[start[feature] + cell]:
                    mask[feature, cell >> 6] |= np.uint64(1) << np.uint64(cell & 63)


@inner
def _extremes(tree: int, branches: Branches, below: Array, trees: Trees, way: Array, ends: Array) -> None:
    """Write the least and the largest reachable leaf values of a tree into `ends` (2, width)."""
    nodes, first = trees.nodes, trees.features.ordered.size
    for place in range(ends.shape[1]):
        ends[0, place], ends[1, place] = np.inf, -np.inf
    at = 0
    way[0, 0], way[0, 1] = nodes.roots[tree], 0
    while at >= 0:  # way[at]: a node, and how many of its children were visited
        node, seen = way[at, 0], way[at, 1]
        feature = np.int64(nodes.tests[node, FEATURE])
        if feature < 0:
            for place in range(ends.shape[1]):
                value = np.float64(nodes.value[node, place])
                ends[0, place], ends[1, place] = min(ends[0, place], value), max(ends[1, place], value)
            at -= 1
            continue
        if seen:
            copy(branches, first + at, feature)
        if seen == 2:
            at -= 1
            continue
        if not seen:
            copy(branches, feature, first + at)
        way[at, 1] += 1
        if narrow(branches, below, nodes, node, seen == 0):
            at += 1
            way[at, 0], way[at, 1] = nodes.tests[node, LEFT] + seen, 0


class BoundWorkspace(NamedTuple):
    """Workspace: flags (cells,), `below`, the `way` down a tree (levels, 2), `ends` of leaf values (2, width)."""

    flags: Array
    below: Array
    way: Array
    ends: Array


@kernel
def bound_trees(
    masks: Array, cells: Array, trees: Trees, room: BranchWorkspace, work: BoundWorkspace, found: Array
) -> None:
    """Write what `bounds_boxes` returns into `found` (3, m, k)."""
    branches = Branches(room.span, room.mask, trees.features)
    flags, below, ends, nodes = work.flags, work.below, work.ends, trees.nodes
    for box in range(len(masks)):
        flags[:] = False
        for choice in range(cells.size):
            if masks[box, choice]:
                flags[cells[choice]] = True
        allow(flags, branches, below)
        for place in range(trees.base.size):
            base = trees.base[place]
            found[0, box, place], found[1, box, place], found[2, box, place] = base, base, abs(base)
        for tree in range(nodes.roots.size):
            _extremes(tree, branches, below, trees, work.way, ends)
            first = max(nodes.outputs[tree], 0)
            for place in range(ends.shape[1]):
                low, high = ends[0, place], ends[1, place]
                found[0, box, first + place] += low
                found[1, box, first + place] += high
                found[2, box, first + place] += max(abs(low), abs(high))


def bounds_boxes(masks: Array, cells: Array, trees: Trees) -> Array:
    """Return the sums over trees of the least, the largest and the largest absolute reachable leaf (3, m, k).

    Args:
        masks: (m, n) the values of each box, at least one per feature.
        cells: (n,) the cell of each value of the grid, numbered over all features.
        trees: the ensemble.
    """
    total, found = trees.features.start[-1], np.empty((3, len(masks), len(trees.base)))
    room = room_for(len(trees.features.ordered) + trees.deepest + 1, trees.features)
    work = BoundWorkspace(
        flags=np.empty(total, np.bool_),
        below=np.empty(total + 1, np.int64),
        way=np.empty((trees.deepest + 1, 2), np.int64),
        ends=np.empty((2, trees.nodes.value.shape[1])),
    )
    bound_trees(masks, cells, trees, room, work, found)
    return found
