"""Exact sweeps: the raw scores of a row with one feature changed to each of its cells, for all features at once.

A leaf is a box of cells. It matters for the changes of one feature iff the row satisfies all its tests but those of
this feature. So each tree is walked along the row; wherever a test would send other cells of its feature elsewhere,
that branch is followed too, with the row's own cells of all other features. A leaf reached that way stands for a set
of cells: its difference to the row's own leaf is noted at the ends of an interval (prefix sums follow, at the end), or
for every cell of a set.

Branches 0 to d - 1 are the row's own path, one per feature; the others leave it, and `to` (branches, 4) holds: the node
they lead to, the feature whose cells go there, the row's own leaf, and the output of the tree. All trees are walked
before any branch is followed: a call per tree would take a quarter of the time of a sweep of 100 trees. Node numbers
are unsigned, which saves the check for negative indices.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from mlflow_cf.kernel import inner, kernel
from mlflow_cf.structures.kernels.branches import Branches, BranchWorkspace, all_cells, copy, part, room_for
from mlflow_cf.structures.kernels.nodes import FEATURE, Array, Trees, Walk
from mlflow_cf.structures.kernels.score import find_comparands

# The product of the lowest bit of a word and FIRST has another number in its highest six bits for every bit.
FIRST = np.uint64(0x03F79D71B4CB0A89)
BIT = np.empty(64, dtype=np.int64)
BIT[(np.uint64(1) << np.arange(64, dtype=np.uint64)) * FIRST >> np.uint64(58)] = np.arange(64)


@numba.njit(inline="always")
def _note(out: Array, branches: Branches, at: Any, feature: Any, place: Any, more: Any) -> None:
    """Note a difference of one raw score for the cells of branch `at`, all of one feature."""
    span, mask, start = branches.span, branches.mask, branches.features.start
    first, last = start[feature], start[feature + 1] - 1
    if not branches.features.ordered[feature]:
        for word in range(mask.shape[1]):
            cells = mask[at, word]
            while cells:  # often a single one: a test for one level
                lowest = cells & (~cells + np.uint64(1))
                cell = first + 64 * word + BIT[(lowest * FIRST) >> np.uint64(58)]
                if cell > last:
                    break
                out[cell, place] += more
                cells ^= lowest
        return
    if span[at, 0] <= span[at, 1]:
        out[first + span[at, 0], place] += more
        if first + span[at, 1] + 1 < last:
            out[first + span[at, 1] + 1, place] -= more
    if span[at, 2]:
        out[last, place] += more


@numba.njit(inline="always")
def _next(X: Array, walk: Walk, node: Any) -> Any:
    """Return the child that a row goes to, by its comparands."""
    key = walk.key[node]
    return np.uint64(walk.left[node] + (X[np.uint64(key >> 32)] > (key & 0xFFFFFFFF)))


@inner
def _own_ways(X: Array, wanted: Array, trees: Trees, branches: Branches, to: Array, sums: Array) -> Any:
    """Walk a row down all trees, add its leaves to `sums`, and note the branches that leave; return their end."""
    nodes, walk = trees.nodes, trees.walk
    tests, value = nodes.tests, nodes.value
    at: Any = wanted.size
    for way in range(wanted.size):
        all_cells(branches, way, way)
    for tree in range(nodes.roots.size):
        node, first = np.uint64(nodes.roots[tree]), at
        while tests[node, FEATURE] >= 0:
            feature, onwards = np.int64(tests[node, FEATURE]), _next(X, walk, node)
            if wanted[feature]:
                left = np.uint64(walk.left[node])
                others, _ = part(branches, feature, at, nodes, node, onwards != left)
                to[at, 0] = left + np.uint64(onwards == left)  # the other child
                to[at, 1] = feature
                at += np.int64(others)
            node = onwards
        output = max(nodes.outputs[tree], 0)
        for place in range(value.shape[1]):
            sums[output + place] += value[node, place]
        for branch in range(first, at):
            to[branch, 2], to[branch, 3] = node, output
            all_cells(branches, np.int64(to[branch, 1]), np.int64(to[branch, 1]))
    return at


@inner
def _follow(X: Array, at: Any, trees: Trees, branches: Branches, to: Array, out: Array) -> None:
    """Follow the branches before `at` that leave the path to their leaves; note differences from the row's own."""
    walk, tests, value = trees.walk, trees.nodes.tests, trees.nodes.value
    first = trees.features.ordered.size
    while at > first:
        at -= 1
        node, feature, own, output = to[at, 0], np.int64(to[at, 1]), to[at, 2], np.int64(to[at, 3])
        while tests[node, FEATURE] >= 0:
            if tests[node, FEATURE] != feature:
                node = _next(X, walk, node)
                continue
            lefts, rights = part(branches, at, at + 1, trees.nodes, node, True)
            left = np.uint64(walk.left[node])
            node = left + np.uint64(not lefts)
            if lefts and rights:  # the right part stays on the stack
                to[at + 1, 1], to[at + 1, 2], to[at + 1, 3] = to[at, 1], own, to[at, 3]
                to[at, 0] = left + np.uint64(1)
                at += 1
            elif lefts:
                copy(branches, at + 1, at)
        for place in range(value.shape[1]):
            more = np.float64(value[node, place]) - np.float64(value[own, place])
            _note(out, branches, at, feature, output + place, more)


@kernel
def sweep_rows(X: Array, wanted: Array, trees: Trees, room: BranchWorkspace, to: Array, out: Array) -> None:
    """Do as `sweep_trees` for rows of comparands (m, columns); the last raw scores of `out` are the row's own."""
    branches = Branches(room.span, room.mask, trees.features)
    start, base, total = trees.features.start, trees.base, out.shape[1] - 1
    for row in range(len(X)):
        mine = out[row]
        stop = _own_ways(X[row], wanted[row], trees, branches, to, mine[total])
        _follow(X[row], stop, trees, branches, to, mine)
        for feature in range(wanted.shape[1]):
            if wanted[row, feature] and trees.features.ordered[feature]:
                for cell in range(start[feature] + 1, start[feature + 1] - 1):
                    for place in range(base.size):
                        mine[cell, place] += mine[cell - 1, place]
        for cell in range(total):
            for place in range(base.size):
                mine[cell, place] += base[place] + mine[total, place]


def sweep_trees(cells: Array, wanted: Array, trees: Trees) -> Array:
    """Return the raw scores (m, cells, k) of rows of cells (m, d) with one feature changed to each of its cells.

    Args:
        cells: (m, d).
        wanted: (m, d) which features of which rows are changed; the cells of others hold the row's own raw scores.
        trees: the ensemble.
    """
    features, total = trees.features, trees.features.start[-1]
    size = cells.shape[1] + (len(trees.nodes.roots) + 1) * (trees.deepest + 1)
    X, out = np.empty((len(cells), trees.walk.start[-1]), np.int32), np.zeros((len(cells), total + 1, len(trees.base)))
    find_comparands(cells, trees.walk, X.reshape(-1))
    sweep_rows(X, wanted, trees, room_for(size, features), np.empty((size, 4), np.uint64), out)
    return out[:, :total]
