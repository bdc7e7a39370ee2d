"""The trees of an ensemble as flat arrays: what kernels take; the cells that lead to a node; scores of many rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from mlflow_cf.kernel import kernel

Array = NDArray[Any]


FEATURE, CUT, TEST, MISSING_LEFT, LEFT = range(5)  # columns of `Nodes.tests`


class Nodes(NamedTuple):
    """Nodes of all trees, siblings side by side: the right child follows the left one.

    Attributes:
        roots: (trees,) first node of every tree.
        outputs: (trees,) the output a tree adds to; -1: its leaves hold one value per output.
        tests: (nodes, 5) int32: the feature a node tests (-1: a leaf); for ordered features the last cell that goes
            left; for others the row of their test, else -1; whether a missing value of an ordered feature goes left;
            the left child, which of a leaf is the leaf.
        value: (nodes, k) leaf values.
    """

    roots: Array
    outputs: Array
    tests: Array
    value: Array


class Features(NamedTuple):
    """The features of an ensemble and their cells; those of all features are numbered consecutively.

    Attributes:
        start: (d + 1,) first cell of every feature; its last cell stands for missing values.
        ordered: (d,) whether its tests are cuts; if not, they are tables.
        bits: (tests, words) whether a cell goes left, 64 cells to a word.
    """

    start: Array
    ordered: Array
    bits: Array


class Walk(NamedTuple):
    """Nodes packed for fast walks: a row goes right iff its comparand exceeds the node's cut.

    Attributes:
        key: (nodes,) column of the comparand, shifted by 32 bits, plus the cut.
        left: (nodes,) left child; a leaf is its own.
        start: (d + 1,) first comparand of every feature.
        offset: (d,) position in `comparands` of the first cell of a feature.
        comparands: the comparands of every cell of every feature.
    """

    key: Array
    left: Array
    start: Array
    offset: Array
    comparands: Array


class Trees(NamedTuple):
    """An additive ensemble.

    Attributes:
        nodes, features: the trees, and the cells that their tests refer to.
        walk: the same trees, packed for fast walks.
        base: (k,) added to the sums of leaves.
        deepest: number of tests on the longest path.
    """

    nodes: Nodes
    features: Features
    walk: Walk
    base: Array
    deepest: int


@numba.njit(inline="always")
def is_set(bits: Array, row: Any, cell: Any) -> Any:
    """Return whether the bit of a cell is set in a row of words (n, w)."""
    return (bits[row, cell >> 6] >> np.uint64(cell & 63)) & np.uint64(1) != np.uint64(0)


def bits_of(goes_left: Array) -> Array:
    """Return flags (tests, n) as words (tests, ceil(n / 64)), the lowest bit first."""
    whole = np.zeros((len(goes_left), -(-goes_left.shape[1] // 64) * 64), dtype=np.bool_)
    whole[:, : goes_left.shape[1]] = goes_left
    return np.packbits(whole, axis=1, bitorder="little").view(np.uint64)


def flags_of(bits: Array) -> Array:
    """Return words (tests, w) as flags (tests, 64 w); the inverse of `bits_of`."""
    return np.unpackbits(bits.view(np.uint8), axis=1, bitorder="little").view(np.bool_)


ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


class Branches(NamedTuple):
    """Sets of cells, each of one feature.

    Attributes:
        span: (n, 3) of an ordered feature the first cell, the last one, and whether that of missing values is included.
        mask: (n, words) of other features one bit per cell.
        features: the features.
    """

    span: Array
    mask: Array
    features: Features


class BranchWorkspace(NamedTuple):
    """The arrays of `Branches`, without features: every array that is passed to a kernel takes half a microsecond."""

    span: Array
    mask: Array


def room_for(count: int, features: Features) -> BranchWorkspace:
    """Return uninitialised arrays for `count` branches."""
    return BranchWorkspace(np.empty((count, 3), np.int64), np.empty((count, features.bits.shape[1]), np.uint64))


@numba.njit(inline="always")
def part(branches: Branches, at: Any, into: Any, nodes: Nodes, node: Any, left: Any) -> Any:
    """Move the cells of branch `at` that go `left` (or right) at a node to branch `into`; the others stay.

    Returns whether any cell moved, and whether any stayed.
    """
    span, mask, tests = branches.span, branches.mask, nodes.tests
    row = tests[node, TEST]
    if row >= 0:
        moved, stayed = np.uint64(0), np.uint64(0)
        flip = np.uint64(0) if left else ALL
        for word in range(mask.shape[1]):
            came, sides = mask[at, word], branches.features.bits[row, word] ^ flip
            mask[at, word] = came & ~sides
            mask[into, word] = came & sides
            moved |= came & sides
            stayed |= came & ~sides
        return moved != np.uint64(0), stayed != np.uint64(0)
    cut, low, high, missing = np.int64(tests[node, CUT]), span[at, 0], span[at, 1], span[at, 2]
    up, down = max(low, cut + 1), min(high, cut)
    missing_moves = missing if (tests[node, MISSING_LEFT] != 0) == left else np.int64(0)
    span[at, 0], span[at, 1], span[at, 2] = up if left else low, high if left else down, missing - missing_moves
    span[into, 0], span[into, 1], span[into, 2] = low if left else up, down if left else high, missing_moves
    return (
        span[into, 0] <= span[into, 1] or missing_moves > 0,
        span[at, 0] <= span[at, 1] or missing > missing_moves,
    )


@numba.njit(inline="always")
def copy(branches: Branches, at: Any, into: Any) -> None:
    """Copy the cells of branch `at` to branch `into`."""
    for place in range(3):
        branches.span[into, place] = branches.span[at, place]
    for word in range(branches.mask.shape[1]):
        branches.mask[into, word] = branches.mask[at, word]


@numba.njit(inline="always")
def all_cells(branches: Branches, at: Any, feature: Any) -> None:
    """Set branch `at` to all cells of a feature."""
    span, start = branches.span, branches.features.start
    span[at, 0], span[at, 1], span[at, 2] = 0, start[feature + 1] - start[feature] - 2, 1
    for word in range(branches.mask.shape[1]):
        branches.mask[at, word] = ALL


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
