"""Partial evaluation: trees pruned to the rows that have allowed cells alone (GeCo section 6)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.bounds import allow
from mlflow_cf.structures.kernels.branches import Branches, BranchWorkspace, room_for
from mlflow_cf.structures.kernels.nodes import CUT, FEATURE, LEFT, MISSING_LEFT, TEST, Array, Nodes, Trees, Walk
from mlflow_cf.structures.kernels.score import NEVER, find_comparands

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
