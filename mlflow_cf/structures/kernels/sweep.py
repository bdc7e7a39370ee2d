"""Exact sweeps: what every change of one feature does to the sums of a row, for all its cells at once.

A leaf is a box of cells. It matters for the changes of one feature iff the row satisfies all its tests but those of
this feature. So each tree is walked along the row; wherever a test would send other cells of its feature elsewhere,
that branch is followed too, with the row's own cells of all other features. A leaf reached that way stands for a set
of cells: its difference to the row's own leaf is noted at the ends of an interval (and added up once, at the end), or
for every cell of a set.

`to` holds where a branch leads: a node, and the feature whose cells come to it.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from mlflow_cf.structures.kernels.branches import all_cells, copy, part
from mlflow_cf.structures.kernels.nodes import FEATURE, Array, Features, Nodes
from mlflow_cf.structures.kernels.score import Walk, comparands_of


@numba.njit(inline="always")
def _note(
    out: Array, span: Array, mask: Array, at: Any, ordered: Any, first: Any, last: Any, place: Any, more: Any
) -> None:
    """Note a difference of one sum for the cells of branch `at`, whose feature has the cells `first` to `last`."""
    if not ordered:
        for cell in range(last - first + 1):
            comes = (mask[at, cell >> 6] >> np.uint64(cell & 63)) & np.uint64(1)
            out[first + cell, place] += more * comes  # no branch: nobody could predict it
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
    return np.int64(child[node]) + np.int64(X[key[node] >> 32] > (key[node] & 0xFFFFFFFF))


@numba.njit(cache=True, nogil=True)
def _own_way(
    X: Array, wanted: Array, root: Any, tests: Array, bits: Array, key: Array, child: Array,
    span: Array, mask: Array, to: Array,
) -> Any:  # fmt: skip
    """Walk a row down a tree; return its leaf, and one more than the last of the branches that leave its way."""
    node: Any = np.int64(root)
    at: Any = wanted.size
    while tests[node, FEATURE] >= 0:
        feature, onwards = np.int64(tests[node, FEATURE]), _next(X, node, key, child)
        if wanted[feature]:
            left = onwards == child[node]
            _, others = part(span, mask, feature, feature, at, node, left, tests, bits)
            to[at, 0], to[at, 1] = 2 * child[node] + 1 - onwards, feature  # the other child
            at += np.int64(others)
        node = onwards
    return node, at


@numba.njit(cache=True, nogil=True)
def _follow(
    X: Array, own: Any, at: Any, output: Any, tests: Array, value: Array, start: Array, ordered: Array, bits: Array,
    key: Array, child: Array, first: Any, span: Array, mask: Array, to: Array, out: Array,
) -> None:  # fmt: skip
    """Follow the branches from `first` to before `at` to their leaves; note how those differ from the leaf `own`."""
    while at > first:
        at -= 1
        node, feature = to[at, 0], to[at, 1]
        while tests[node, FEATURE] >= 0:
            if tests[node, FEATURE] != feature:
                node = _next(X, node, key, child)
                continue
            lefts, rights = part(span, mask, at, at + 1, at, node, True, tests, bits)
            if lefts and rights:  # the right part waits where it is
                to[at, 0], to[at + 1, 1] = child[node] + 1, feature
                at += 1
            elif lefts:
                copy(span, mask, at + 1, at)
            node = child[node] + np.int64(not lefts)
        for place in range(value.shape[1]):
            more = np.float64(value[node, place]) - np.float64(value[own, place])
            _note(out, span, mask, at, ordered[feature], start[feature], start[feature + 1] - 1, output + place, more)


@numba.njit(cache=True, nogil=True)
def _sweep_row(
    X: Array, wanted: Array, nodes: Nodes, features: Features, walk: Walk,
    span: Array, mask: Array, to: Array, out: Array,
) -> None:  # fmt: skip
    """Note the differences of all trees for one row in `out`, and add its own leaves to the last place.

    Branches 0 to d - 1 are the row's own way, one per feature; those after them wait to be followed. Arrays are taken
    out of their tuples first: to reach into a tuple inside the loops triples the time.
    """
    tests, value, outputs, roots = nodes.tests, nodes.value, nodes.outputs, nodes.roots
    start, ordered, bits, key, child = features.start, features.ordered, features.bits, walk.key, walk.left
    first = wanted.size
    for feature in range(first):
        all_cells(span, mask, feature, feature, start)
    for tree in range(roots.size):
        own, at = _own_way(X, wanted, roots[tree], tests, bits, key, child, span, mask, to)
        output = max(outputs[tree], 0)
        for place in range(value.shape[1]):
            out[len(out) - 1, output + place] += value[own, place]
        for branch in range(first, at):
            all_cells(span, mask, to[branch, 1], to[branch, 1], start)
        _follow(X, own, at, output, tests, value, start, ordered, bits, key, child, first, span, mask, to, out)


@numba.njit(cache=True, nogil=True)
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
    size = cells.shape[1] + 2 * deepest + 2
    span, to = np.empty((size, 3), dtype=np.int64), np.empty((size, 2), dtype=np.int64)
    mask = np.empty((size, features.bits.shape[1]), dtype=np.uint64)
    comparands = comparands_of(cells, walk)
    width = walk.start[-1]
    for row in range(len(cells)):
        mine = out[row]
        X = comparands[row * width : (row + 1) * width]
        _sweep_row(X, wanted[row], nodes, features, walk, span, mask, to, mine)
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
