"""Partial evaluation: trees pruned to the rows that have allowed cells alone (GeCo section 6).

Also bounds on the raw scores of these rows: per tree the least and the largest reachable leaf.

Branches 0 to d - 1 are the allowed cells of every feature at the present node of a depth-first walk; one further branch
per level keeps the tested feature's cells from before the test. Allowed cells of ordered features may have gaps:
`below` (cells + 1,) is the number of allowed cells before each cell, counted over all features.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import inner, kernel
from mlflow_cf.structures.kernels.trees import (
    CUT,
    FEATURE,
    LEFT,
    MISSING_LEFT,
    NEVER,
    TEST,
    Array,
    Branches,
    BranchWorkspace,
    Nodes,
    Trees,
    Walk,
    copy,
    find_comparands,
    room_for,
)

ONE, SOME, ALL = range(3)  # how many cells of a feature are allowed


class KeptFeatures(NamedTuple):
    """The features that are kept, and the allowed cells of all.

    Attributes:
        columns: (n,) the features that are kept.
        starts: (2, n + 1) new offsets of their cells, and of their comparands.
        many: (3, d) per feature whether ONE, SOME or ALL cells are allowed; the new number of a kept one; and the shift
            of its comparands.
        below: (cells + 1,) see `bounds`.
        row: (1, d) an allowed cell of every feature; X: the comparands of that row.
    """

    columns: Array
    starts: Array
    many: Array
    below: Array
    row: Array
    X: Array


class Pruned(NamedTuple):
    """Nodes that are left: `Nodes.tests`, `Nodes.value` and `Walk.key`."""

    tests: Array
    value: Array
    key: Array


@numba.njit(inline="always")
def _sides(branches: Branches, below: Array, nodes: Nodes, node: Any) -> Any:
    """Return 1 if any allowed cell goes left at a node, plus 2 if any goes right."""
    tests, start = nodes.tests, branches.features.start
    feature, test = tests[node, FEATURE], tests[node, TEST]
    if test >= 0:
        left, right = np.uint64(0), np.uint64(0)
        for word in range(branches.mask.shape[1]):
            came, goes = branches.mask[feature, word], branches.features.bits[test, word]
            left |= came & goes
            right |= came & ~goes
        return np.int64(left != 0) + 2 * np.int64(right != 0)
    cut, missing = below[start[feature] + tests[node, CUT] + 1], branches.span[feature, 2]
    left = cut - below[start[feature]] + missing * tests[node, MISSING_LEFT]
    right = below[start[feature + 1] - 1] - cut + missing * (1 - tests[node, MISSING_LEFT])
    return np.int64(left > 0) + 2 * np.int64(right > 0)


@numba.njit(inline="always")
def _keep(flags: Array, kept: KeptFeatures, trees: Trees) -> Any:
    """Fill in `KeptFeatures`; return whether some feature has SOME of its cells allowed."""
    start, comparands, some = trees.features.start, trees.walk.start, False
    for feature in range(start.size - 1):
        count, own = 0, 0
        for cell in range(start[feature], start[feature + 1]):
            if flags[cell]:
                count, own = count + 1, cell - start[feature]
        size = start[feature + 1] - start[feature]
        kept.many[0, feature] = ONE if count == 1 else (ALL if count == size else SOME)
        kept.row[0, feature] = own
        some |= kept.many[0, feature] == SOME
    starts, starts[0, 0], starts[1, 0] = kept.starts, 0, 0
    for number in range(kept.columns.size):
        column = kept.columns[number]
        kept.many[1, column], kept.many[2, column] = number, starts[1, number] - comparands[column]
        starts[0, number + 1] = starts[0, number] + start[column + 1] - start[column]
        starts[1, number + 1] = starts[1, number] + comparands[column + 1] - comparands[column]
    return some


@kernel
def prune(flags: Array, kept: KeptFeatures, trees: Trees, room: BranchWorkspace, waits: Array, pruned: Pruned) -> int:
    """Write the pruned trees, in order and with siblings side by side, and return how many nodes they have.

    `kept` has its columns and is filled in otherwise; `room` and `waits` (2, nodes) are workspace. Features with one
    allowed cell are followed by comparands, and tests of features with all cells are kept: testing sets of cells at
    every node doubles the time of restricting a row.
    """
    nodes, walk, X, source, target = trees.nodes, trees.walk, kept.X, waits[0], waits[1]
    branches, many = Branches(room.span, room.mask, trees.features), kept.many
    if _keep(flags, kept, trees):
        allow(flags, branches, kept.below)
    find_comparands(kept.row, walk, X)
    old, tests, count = nodes.tests, pruned.tests, nodes.roots.size
    for tree in range(nodes.roots.size):
        source[0], target[0], at = nodes.roots[tree], tree, 1
        while at:
            at -= 1
            node, into = np.int64(source[at]), np.int64(target[at])
            feature = np.int64(old[node, FEATURE])
            while feature >= 0 and many[0, feature] != ALL:
                if many[0, feature] == ONE:
                    key = walk.key[node]
                    node = np.int64(walk.left[node]) + np.int64(X[key >> 32] > (key & 0xFFFFFFFF))
                else:
                    sides = _sides(branches, kept.below, nodes, node)
                    if sides == 3:
                        break
                    node = np.int64(walk.left[node]) + sides - 1
                feature = np.int64(old[node, FEATURE])
            for column in (CUT, TEST, MISSING_LEFT):
                tests[into, column] = old[node, column]
            if feature < 0:
                tests[into, FEATURE], tests[into, LEFT], pruned.key[into] = -1, into, NEVER
                for column in range(nodes.value.shape[1]):
                    pruned.value[into, column] = nodes.value[node, column]
                continue
            tests[into, FEATURE], tests[into, LEFT] = many[1, feature], count
            for column in range(nodes.value.shape[1]):
                pruned.value[into, column] = 0.0  # nobody asks, but whole arrays are weighted
            pruned.key[into] = walk.key[node] + (many[2, feature] << 32)
            for side in range(2):
                source[at + side], target[at + side] = walk.left[node] + side, count + side
            at, count = at + 2, count + 2
    return count


def restrict_trees(flags: Array, columns: Array, trees: Trees) -> Trees:
    """Return the trees pruned to rows of allowed cells, over some of the features; all others have one allowed cell.

    Every tree stays, if only as a leaf, so that leaves are added in the same order.

    Args:
        flags: (cells,) the allowed cells, at least one per feature.
        columns: the features that are kept.
        trees: the ensemble.
    """
    nodes, features, walk, d = trees.nodes, trees.features, trees.walk, len(trees.features.ordered)
    kept = KeptFeatures(
        columns=columns,
        starts=np.empty((2, len(columns) + 1), dtype=np.int64),
        many=np.empty((3, d), dtype=np.int64),
        below=np.empty(len(flags) + 1, dtype=np.int64),
        row=np.empty((1, d), dtype=np.int32),
        X=np.empty(walk.start[-1], dtype=np.int32),
    )
    waits = np.empty((2, len(nodes.tests)), dtype=np.int32)
    pruned = Pruned(np.empty_like(nodes.tests), np.empty_like(nodes.value), np.empty_like(walk.key))
    left = prune(flags, kept, trees, room_for(d, features), waits, pruned)
    start, first = kept.starts
    tests = pruned.tests[:left].copy()
    return trees._replace(
        nodes=Nodes(np.arange(len(nodes.roots), dtype=np.int32), nodes.outputs, tests, pruned.value[:left].copy()),
        features=features._replace(start=start, ordered=features.ordered[columns]),
        walk=Walk(pruned.key[:left].copy(), tests[:, LEFT].copy(), first, walk.offset[columns], walk.comparands),
    )


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
def advance(way: Array, at: int, saved: int, branches: Branches, below: Array, nodes: Nodes) -> int:
    """Take the next step from an inner node of a depth-first walk over reachable nodes; return the level it leads to.

    `way` (levels, 2) has the nodes on the path, and how many of their children were visited. The cells that the node
    `way[at]` parts are kept in branch `saved + at` from before its test.
    """
    node, seen = way[at, 0], way[at, 1]
    feature = np.int64(nodes.tests[node, FEATURE])
    if seen:
        copy(branches, saved + at, feature)
    else:
        copy(branches, feature, saved + at)
    if seen == 2:
        return at - 1
    way[at, 1] += 1
    if not narrow(branches, below, nodes, node, seen == 0):
        return at
    way[at + 1, 0], way[at + 1, 1] = nodes.tests[node, LEFT] + seen, 0
    return at + 1


@inner
def _extremes(tree: int, branches: Branches, below: Array, trees: Trees, way: Array, ends: Array) -> None:
    """Write the least and the largest reachable leaf values of a tree into `ends` (2, width)."""
    nodes, first = trees.nodes, trees.features.ordered.size
    for place in range(ends.shape[1]):
        ends[0, place], ends[1, place] = np.inf, -np.inf
    at = 0
    way[0, 0], way[0, 1] = nodes.roots[tree], 0
    while at >= 0:
        node = way[at, 0]
        if nodes.tests[node, FEATURE] >= 0:
            at = advance(way, at, first, branches, below, nodes)
            continue
        for place in range(ends.shape[1]):
            value = np.float64(nodes.value[node, place])
            ends[0, place], ends[1, place] = min(ends[0, place], value), max(ends[1, place], value)
        at -= 1


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
