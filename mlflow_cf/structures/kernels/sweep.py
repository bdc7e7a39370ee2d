"""Exact sweeps: what every change of one feature does to the sums of a row, for all its cells at once.

A leaf is a box of cells. It matters for the changes of one feature iff the row satisfies all its tests but those of
this feature. So each tree is walked along the row; wherever a test would send other cells of its feature elsewhere,
that branch is followed too, with the row's own cells of all other features. A leaf reached that way stands for a set
of cells: its difference to the row's own leaf is noted at the ends of an interval (and added up once, at the end), or
for every cell of a set.

Which cells of a feature come to a branch: `span` holds its first cell, its last one, and whether the missing one comes
(ordered features); `mask` holds one bit per cell (other features). `to` holds where it leads: a node, and the feature.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from mlflow_cf.structures.kernels.nodes import CUT, FEATURE, MISSING_LEFT, TEST, Array, Features, Nodes
from mlflow_cf.structures.kernels.score import Walk, comparands_of

ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@numba.njit(inline="always")
def _part(
    span: Array, mask: Array, at: Any, stays: Any, goes: Any, node: Any, left: Any, tests: Array, bits: Array
) -> Any:
    """Part the cells of branch `at` by a node's test, and return whether there are any of either kind.

    Those that go `left` (or right) come to branch `stays`, the others to branch `goes`; `at` may be either of them.
    """
    row = tests[node, TEST]
    if row >= 0:
        some, others = np.uint64(0), np.uint64(0)
        flip = np.uint64(0) if left else ALL
        for word in range(mask.shape[1]):
            came, sides = mask[at, word], bits[row, word] ^ flip
            mask[goes, word] = came & ~sides
            mask[stays, word] = came & sides
            some |= came & sides
            others |= came & ~sides
        return some != np.uint64(0), others != np.uint64(0)
    cut, low, high, missing = np.int64(tests[node, CUT]), span[at, 0], span[at, 1], span[at, 2]
    up, down = max(low, cut + 1), min(high, cut)
    missing_stays = missing if (tests[node, MISSING_LEFT] != 0) == left else np.int64(0)
    span[goes, 0], span[goes, 1], span[goes, 2] = up if left else low, high if left else down, missing - missing_stays
    span[stays, 0], span[stays, 1], span[stays, 2] = low if left else up, down if left else high, missing_stays
    return (
        span[stays, 0] <= span[stays, 1] or missing_stays > 0,
        span[goes, 0] <= span[goes, 1] or missing > missing_stays,
    )


@numba.njit(inline="always")
def _copy(span: Array, mask: Array, at: Any, into: Any) -> None:
    for part in range(3):
        span[into, part] = span[at, part]
    for word in range(mask.shape[1]):
        mask[into, word] = mask[at, word]


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
def _all_cells(span: Array, mask: Array, feature: Any, start: Array) -> None:
    """Let all cells of a feature come to the branch of its number: the row's own way."""
    span[feature, 0], span[feature, 1], span[feature, 2] = 0, start[feature + 1] - start[feature] - 2, 1
    for word in range(mask.shape[1]):
        mask[feature, word] = ALL


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
            _, others = _part(span, mask, feature, feature, at, node, left, tests, bits)
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
            lefts, rights = _part(span, mask, at, at + 1, at, node, True, tests, bits)
            if lefts and rights:  # the right part waits where it is
                to[at, 0], to[at + 1, 1] = child[node] + 1, feature
                at += 1
            elif lefts:
                _copy(span, mask, at + 1, at)
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
        _all_cells(span, mask, feature, start)
    for tree in range(roots.size):
        own, at = _own_way(X, wanted, roots[tree], tests, bits, key, child, span, mask, to)
        output = max(outputs[tree], 0)
        for place in range(value.shape[1]):
            out[len(out) - 1, output + place] += value[own, place]
        for branch in range(first, at):
            _all_cells(span, mask, to[branch, 1], start)
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
