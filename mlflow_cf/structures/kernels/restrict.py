"""Partial evaluation: the trees that are left once only some cells can occur (GeCo section 6)."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.bounds import allowed_cells
from mlflow_cf.structures.kernels.nodes import CUT, FEATURE, LEFT, MISSING_LEFT, TEST, Array, Features, Nodes
from mlflow_cf.structures.kernels.score import NEVER, Walk, comparands_of

ONE, SOME, ALL = range(3)  # how many cells of a feature may occur


@numba.njit(inline="always")
def _sides(node: Any, tests: Array, start: Array, bits: Array, mask: Array, missing: Array, below: Array) -> Any:
    """Return 1 if any allowed cell goes left at a node, plus 2 if any goes right."""
    feature, test = tests[node, FEATURE], tests[node, TEST]
    if test >= 0:
        left, right = np.uint64(0), np.uint64(0)
        for word in range(mask.shape[1]):
            left |= mask[feature, word] & bits[test, word]
            right |= mask[feature, word] & ~bits[test, word]
        return np.int64(left != 0) + 2 * np.int64(right != 0)
    cut = below[start[feature] + tests[node, CUT] + 1]
    left = cut - below[start[feature]] + missing[feature] * tests[node, MISSING_LEFT]
    right = below[start[feature + 1] - 1] - cut + missing[feature] * (1 - tests[node, MISSING_LEFT])
    return np.int64(left > 0) + 2 * np.int64(right > 0)


@kernel
def _counted(flags: Array, start: Array, below: Array) -> tuple[Array, Array]:
    """Return how many cells of every feature may occur, and a row (1, d) of cells that may."""
    many = np.empty(len(start) - 1, dtype=np.int64)
    cells = np.zeros((1, len(many)), dtype=np.int32)
    for feature in range(len(many)):
        first, stop = start[feature], start[feature + 1]
        count = below[stop] - below[first]
        many[feature] = ONE if count == 1 else (ALL if count == stop - first else SOME)
        while first < stop - 1 and not flags[first]:
            first += 1
        cells[0, feature] = first - start[feature]
    return many, cells


@kernel
def _pruned(
    flags: Array, place: Array, shift: Array, nodes: Nodes, features: Features, walk: Walk,
    tests: Array, value: Array, key: Array,
) -> int:  # fmt: skip
    """Write the pruned trees, in order and with siblings side by side, and return how many nodes they have.

    Tests of features with one cell are followed by comparands, and those of features with all cells are kept: asking
    where sets of cells go at every test doubles the time of restricting a row.
    """
    span, mask, below = allowed_cells(flags, features)
    many, cells = _counted(flags, features.start, below)
    X, missing = comparands_of(cells, walk), span[:, 2].copy()
    old, leaves, start, bits, old_key, child = (
        nodes.tests, nodes.value, features.start, features.bits, walk.key, walk.left
    )  # fmt: skip
    source, target, count = np.empty(len(tests), np.int32), np.empty(len(tests), np.int32), nodes.roots.size
    for tree in range(nodes.roots.size):
        source[0], target[0], at = nodes.roots[tree], tree, 1
        while at:
            at -= 1
            node, into = np.int64(source[at]), np.int64(target[at])
            feature = np.int64(old[node, FEATURE])
            while feature >= 0 and many[feature] != ALL:
                if many[feature] == ONE:
                    node = np.int64(child[node]) + np.int64(X[old_key[node] >> 32] > (old_key[node] & 0xFFFFFFFF))
                else:
                    sides = _sides(node, old, start, bits, mask, missing, below)
                    if sides == 3:
                        break
                    node = np.int64(child[node]) + sides - 1
                feature = np.int64(old[node, FEATURE])
            tests[into, TEST], tests[into, MISSING_LEFT] = old[node, TEST], old[node, MISSING_LEFT]
            tests[into, CUT] = old[node, CUT]
            if feature < 0:
                tests[into, FEATURE], tests[into, LEFT], key[into] = -1, into, NEVER
                for column in range(leaves.shape[1]):
                    value[into, column] = leaves[node, column]
                continue
            tests[into, FEATURE], tests[into, LEFT] = place[feature], count
            key[into] = old_key[node] + (shift[feature] << 32)
            for side in range(2):
                source[at + side], target[at + side] = child[node] + side, count + side
            at, count = at + 2, count + 2
    return count


@kernel
def _moved(columns: Array, cells: Array, comparands: Array) -> tuple[Array, Array, Array, Array]:
    """Return every feature's new number (-1: none), how far its comparands move, and where the kept ones start.

    Args:
        columns: the features that are kept.
        cells, comparands: (d + 1,) where those of every feature start; returned anew for the kept ones.
    """
    place, shift = np.full(cells.size - 1, -1), np.zeros(cells.size - 1, dtype=np.int64)
    start, first = np.zeros(columns.size + 1, dtype=np.int64), np.zeros(columns.size + 1, dtype=np.int64)
    for number in range(columns.size):
        column = columns[number]
        place[column], shift[column] = number, first[number] - comparands[column]
        start[number + 1] = start[number] + cells[column + 1] - cells[column]
        first[number + 1] = first[number] + comparands[column + 1] - comparands[column]
    return place, shift, start, first


def restrict_trees(
    flags: Array, columns: Array, nodes: Nodes, features: Features, walk: Walk
) -> tuple[Nodes, Features, Walk]:
    """Return the same trees for rows of allowed cells, over some of the features; all others have one allowed cell.

    Every tree stays, if only as a leaf, so that leaves are added up in the same order.

    Args:
        flags: (cells,) which cells may occur.
        columns: the features that are kept.
        nodes, features, walk: the trees.
    """
    place, shift, start, first = _moved(columns, features.start, walk.start)
    tests, value, key = np.empty_like(nodes.tests), np.empty_like(nodes.value), np.empty_like(walk.key)
    count = _pruned(flags, place, shift, nodes, features, walk, tests, value, key)
    tests = tests[:count].copy()
    return (
        Nodes(np.arange(len(nodes.roots), dtype=np.int32), nodes.outputs, tests, value[:count].copy()),
        features._replace(start=start, ordered=features.ordered[columns]),
        Walk(key[:count].copy(), tests[:, LEFT].copy(), first, walk.offset[columns], walk.comparands),
    )
