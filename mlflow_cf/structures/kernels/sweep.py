"""Exact sweeps: what every change of one feature does to the sums of a row, for all its cells at once.

A leaf is a box of cells. It matters for the changes of one feature iff the row satisfies all its tests but those of
this feature. So each tree is walked along the row; wherever a test would send other cells of its feature elsewhere,
that branch is followed too, with the row's own cells of all other features. A leaf reached that way stands for a set
of cells: its difference to the row's own leaf is noted at the ends of an interval (and added up once, at the end), or
for every cell of a set.

Branches 0 to d - 1 are the row's own way, one per feature; the others leave it, and `to` holds their four figures: the
node they lead to, the feature whose cells come there, the row's own leaf, and the output of the tree. All trees are
walked first and all branches are followed then: a call per tree takes a quarter of the time of a sweep of 100 trees.
What stands for a node is unsigned, so that no index is asked whether it is negative.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.branches import all_cells, copy, part
from mlflow_cf.structures.kernels.nodes import FEATURE, Array, Features, Nodes
from mlflow_cf.structures.kernels.score import Walk, comparands_of

# The product of the lowest bit of a word and FIRST has another number in its highest six bits for every bit.
FIRST = np.uint64(0x03F79D71B4CB0A89)
BIT = np.empty(64, dtype=np.int64)
BIT[(np.uint64(1) << np.arange(64, dtype=np.uint64)) * FIRST >> np.uint64(58)] = np.arange(64)


@numba.njit(inline="always")
def _note(
    out: Array, span: Array, mask: Array, at: Any, ordered: Any, first: Any, last: Any, place: Any, more: Any
) -> None:
    """Note a difference of one sum for the cells of branch `at`, whose feature has the cells `first` to `last`."""
    if not ordered:
        for word in range(mask.shape[1]):
            cells = mask[at, word]
            while cells:  # often one of many: a test whether a row has a certain level
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
def _next(X: Array, node: Any, key: Array, child: Array) -> Any:
    """Return the node to the left or right of which a row goes, by its comparands."""
    return np.uint64(child[node] + (X[np.uint64(key[node] >> 32)] > (key[node] & 0xFFFFFFFF)))


@kernel
def _own_ways(
    X: Array, wanted: Array, nodes: Nodes, features: Features, walk: Walk,
    span: Array, mask: Array, to: Array, sums: Array,
) -> Any:  # fmt: skip
    """Walk a row down all trees and add its leaves to `sums`; return one more than the last branch that leaves."""
    tests, value, start, bits, key, child = (
        nodes.tests, nodes.value, features.start, features.bits, walk.key, walk.left
    )  # fmt: skip
    at: Any = wanted.size
    for way in range(wanted.size):
        all_cells(span, mask, way, way, start)
    for tree in range(nodes.roots.size):
        node, first = np.uint64(nodes.roots[tree]), at
        while tests[node, FEATURE] >= 0:
            feature, onwards = np.int64(tests[node, FEATURE]), _next(X, node, key, child)
            if wanted[feature]:
                left = np.uint64(child[node])
                _, others = part(span, mask, feature, feature, at, node, onwards == left, tests, bits)
                to[at, 0] = left + np.uint64(onwards == left)  # the other child
                to[at, 1] = feature
                at += np.int64(others)
            node = onwards
        output = max(nodes.outputs[tree], 0)
        for place in range(value.shape[1]):
            sums[output + place] += value[node, place]
        for branch in range(first, at):
            to[branch, 2], to[branch, 3] = node, output
            all_cells(span, mask, np.int64(to[branch, 1]), np.int64(to[branch, 1]), start)
    return at


@kernel
def _follow(
    X: Array, first: Any, at: Any, nodes: Nodes, features: Features, walk: Walk,
    span: Array, mask: Array, to: Array, out: Array,
) -> None:  # fmt: skip
    """Follow the branches from `first` to before `at` to their leaves; note how those differ from the row's own."""
    tests, value, start, ordered, bits, key, child = (
        nodes.tests, nodes.value, features.start, features.ordered, features.bits, walk.key, walk.left
    )  # fmt: skip
    while at > first:
        at -= 1
        node, feature, own, output = to[at, 0], np.int64(to[at, 1]), to[at, 2], np.int64(to[at, 3])
        while tests[node, FEATURE] >= 0:
            if tests[node, FEATURE] != feature:
                node = _next(X, node, key, child)
                continue
            lefts, rights = part(span, mask, at, at + 1, at, node, True, tests, bits)
            left = np.uint64(child[node])
            node = left + np.uint64(not lefts)
            if lefts and rights:  # the right part waits where it is
                to[at + 1] = to[at]
                to[at, 0] = left + np.uint64(1)
                at += 1
            elif lefts:
                copy(span, mask, at + 1, at)
        for place in range(value.shape[1]):
            more = np.float64(value[node, place]) - np.float64(value[own, place])
            _note(out, span, mask, at, ordered[feature], start[feature], start[feature + 1] - 1, output + place, more)


@kernel
def sweep_trees(
    cells: Array, wanted: Array, nodes: Nodes, features: Features, walk: Walk, base: Array, deepest: int
) -> Array:
    """Return the sums (m, cells, k) of rows of cells (m, d) with one feature changed to each of its cells.

    Args:
        cells: (m, d).
        wanted: (m, d) which features of which rows are changed; the cells of others hold the row's own sums.
        nodes, features, walk: the trees.
        base: (k,) added to all sums.
        deepest: number of tests on the longest way down a tree.
    """
    total = int(features.start[-1])
    out = np.zeros((len(cells), total + 1, base.size))
    size = cells.shape[1] + (nodes.roots.size + 1) * (deepest + 1)
    span, to = np.empty((size, 3), dtype=np.int64), np.empty((size, 4), dtype=np.uint64)
    mask = np.empty((size, features.bits.shape[1]), dtype=np.uint64)
    comparands = comparands_of(cells, walk)
    width = walk.start[-1]
    for row in range(len(cells)):
        mine = out[row]
        X = comparands[row * width : (row + 1) * width]
        stop = _own_ways(X, wanted[row], nodes, features, walk, span, mask, to, mine[total])
        _follow(X, wanted.shape[1], stop, nodes, features, walk, span, mask, to, mine)
        for feature in range(cells.shape[1]):
            first, last = features.start[feature], features.start[feature + 1] - 1
            if wanted[row, feature] and features.ordered[feature]:
                for cell in range(first + 1, last):
                    for place in range(base.size):
                        mine[cell, place] += mine[cell - 1, place]
        for cell in range(total):
            for place in range(base.size):
                mine[cell, place] += base[place] + mine[total, place]
    return out[:, :total]
