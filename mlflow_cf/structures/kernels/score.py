"""Scoring many rows: every test becomes one comparison, and eight rows walk down a tree at a time."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.nodes import (
    CUT,
    FEATURE,
    LEFT,
    MISSING_LEFT,
    TEST,
    Array,
    Features,
    Nodes,
    Trees,
    Walk,
    flags_of,
)

NEVER = np.int64(2**31 - 1)  # no comparand is greater: missing values that go right, and the test of a leaf


def walk_of(nodes: Nodes, features: Features) -> Walk:
    """Pack `nodes` for fast walks: an ordered feature has one comparand, or two if missing values go both ways."""
    feature, test = nodes.tests[:, FEATURE], nodes.tests[:, TEST]
    column = np.zeros(len(feature), dtype=np.int64)
    cut = np.where(feature < 0, NEVER, np.where(test >= 0, 0, nodes.tests[:, CUT])).astype(np.int64)
    tables, start, goes_left = [], [0], flags_of(features.bits)
    for number, ordered in enumerate(features.ordered.tolist()):
        mine = np.flatnonzero(feature == number)
        size = int(features.start[number + 1] - features.start[number])
        if ordered:
            table = np.repeat(np.arange(size)[:, None], 2, axis=1)
            table[-1] = NEVER, -1
            left = nodes.tests[mine, MISSING_LEFT]
            column[mine] = start[-1] + left
            if not left.any():
                table = table[:, :1]
        else:
            rows, row = np.unique(test[mine], return_inverse=True)
            table = (~goes_left[rows, :size]).T.astype(np.int64)
            column[mine] = start[-1] + row
        tables.append(table)
        start.append(start[-1] + table.shape[1])
    offset = np.cumsum([0, *(table.size for table in tables)])[:-1]
    comparands = np.concatenate([np.empty(0, dtype=np.int64), *(table.ravel() for table in tables)]).astype(np.int32)
    return Walk((column << 32) | cut, np.ascontiguousarray(nodes.tests[:, LEFT]), np.array(start), offset, comparands)


@kernel
def find_comparands(cells: Array, walk: Walk, found: Array) -> None:
    """Write the comparands of rows of cells (m, d) into `found`, row after row."""
    width = walk.start[cells.shape[1]]
    for row in range(cells.shape[0]):
        for feature in range(cells.shape[1]):
            first = walk.start[feature]
            wide = walk.start[feature + 1] - first
            place = walk.offset[feature] + cells[row, feature] * wide
            for part in range(wide):
                found[row * width + first + part] = walk.comparands[place + part]


@numba.njit(inline="always")
def _next(X: Array, row: Any, key: Array, left: Array, node: Any) -> Any:
    """Return the next node of the row whose comparands start at `row`; unsigned, so that no index is negative."""
    return np.uint64(left[node] + (X[row + np.uint64(key[node] >> 32)] > (key[node] & 0xFFFFFFFF)))


@numba.njit(inline="always")
def _add(totals: Array, row: Any, output: Any, values: Array, node: Any) -> None:
    if row < totals.shape[0]:
        if output >= 0:
            totals[row, output] += values[node, 0]
        else:
            for column in range(totals.shape[1]):
                totals[row, column] += values[node, column]


@kernel
def walk_trees(cells: Array, X: Array, nodes: Nodes, walk: Walk, totals: Array) -> None:
    """Do what `add_trees` does, with workspace `X` for the comparands of rows, padded to a multiple of eight."""
    find_comparands(cells, walk, X)
    key, left, width = walk.key, walk.left, np.uint64(walk.start[-1])
    for tree in range(nodes.roots.size):
        root, output = np.uint64(nodes.roots[tree]), nodes.outputs[tree]
        for row in range(0, len(totals), 8):
            a = b = c = d = e = f = g = h = root
            at = np.uint64(row) * width
            moved = True
            while moved:  # eight walks at a time hide the latency of memory
                before = a + b + c + d + e + f + g + h
                for _ in range(3):
                    a = _next(X, at, key, left, a)
                    b = _next(X, at + width, key, left, b)
                    c = _next(X, at + 2 * width, key, left, c)
                    d = _next(X, at + 3 * width, key, left, d)
                    e = _next(X, at + 4 * width, key, left, e)
                    f = _next(X, at + 5 * width, key, left, f)
                    g = _next(X, at + 6 * width, key, left, g)
                    h = _next(X, at + 7 * width, key, left, h)
                moved = a + b + c + d + e + f + g + h != before
            for part, node in enumerate((a, b, c, d, e, f, g, h)):
                _add(totals, row + part, output, nodes.value, node)


def add_trees(cells: Array, trees: Trees, totals: Array) -> None:
    """Add every tree's leaf values to `totals` (m, k), tree by tree, for rows of cells (m, d)."""
    X = np.zeros((len(cells) + 7) // 8 * 8 * trees.walk.start[-1], dtype=np.int32)
    walk_trees(cells, X, trees.nodes, trees.walk, totals)
