"""Products: the sums of all rows of a box, each tree walked once for all of them.

Every dimension of a box has some choices, of which a row takes one. A test of a tree parts the choices of a dimension
in those that go left and those that go right; what comes to a leaf is a smaller box, to whose rows its value is added:
tree after tree, so that the sums are rounded as those of single rows are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.nodes import FEATURE, Array, Trees

WIDE = 32  # rows of a leaf's box whose places are told once for many


class Product(NamedTuple):
    """All rows of a box.

    Attributes:
        dimension: (d,) of every feature; the last one, of a single choice, is that of all with one cell in all rows.
        cells: (d, most) the cell of every feature with each choice of its dimension.
        size: (n,) how many choices the dimensions have; stride: (n,) how far apart the rows of two choices stand.
    """

    dimension: Array
    cells: Array
    size: Array
    stride: Array


class Room(NamedTuple):
    """Room to work in.

    Attributes:
        order: (n, most) the choices of every dimension in some order.
        node: (levels,) the nodes that wait; low, high: (levels, n) which choices come to them, by `order`.
        far, near: (rows,) places of rows, by the dimensions before and behind some one.
    """

    order: Array
    node: Array
    low: Array
    high: Array
    far: Array
    near: Array


@numba.njit(inline="always")
def _parted(product: Product, room: Room, trees: Trees, node: Any, level: Any) -> Any:
    """Put the choices that go left at a node before those that go right, and return how many of all do."""
    walk, feature = trees.walk, trees.nodes.tests[node, FEATURE]
    dimension, key = product.dimension[feature], walk.key[node]
    first, cut = walk.offset[feature] + (key >> 32) - walk.start[feature], key & 0xFFFFFFFF
    wide = walk.start[feature + 1] - walk.start[feature]
    low, high, order = room.low[level, dimension], room.high[level, dimension], room.order
    while low < high:
        choice = order[dimension, low]
        if walk.comparands[first + product.cells[feature, choice] * wide] > cut:
            high -= 1
            order[dimension, low], order[dimension, high] = order[dimension, high], choice
        else:
            low += 1
    return low


@numba.njit(inline="always")
def _places(product: Product, room: Room, level: Any, dimension: Any, places: Array, count: Any) -> Any:
    """Add a dimension to the places of so many rows; return how many there are then."""
    low, high, stride = room.low[level, dimension], room.high[level, dimension], product.stride[dimension]
    first = np.uint64(room.order[dimension, low] * stride)
    for at in range(low + 1, high):
        more = np.uint64(room.order[dimension, at] * stride)
        for row in range(count):
            places[(at - low) * count + row] = places[row] + more
    for row in range(count):
        places[row] += first
    return count * (high - low)


@numba.njit(inline="always")
def _add_leaf(product: Product, room: Room, level: Any, value: Array, output: Any, totals: Array) -> None:
    """Add a leaf's values to the rows that come to it."""
    far, near = room.far, room.near
    far[0], near[0], rows, ahead = np.uint64(0), np.uint64(0), 1, 1
    for dimension in range(product.size.size - 1, -1, -1):
        if ahead < WIDE:
            ahead = _places(product, room, level, dimension, near, ahead)
        else:
            rows = _places(product, room, level, dimension, far, rows)
    for place in range(value.size):
        more, sums = value[place], totals[output + place]
        for row in range(rows):
            first = far[row]
            for other in range(ahead):
                sums[first + near[other]] += more


@kernel
def add_products(product: Product, trees: Trees, room: Room, totals: Array) -> None:
    """Add every tree's leaf values to `totals` (k, rows), tree by tree."""
    nodes, node, low, high = trees.nodes, room.node, room.low, room.high
    tests, left = nodes.tests, trees.walk.left
    for tree in range(nodes.roots.size):
        node[0], level = nodes.roots[tree], 0
        for dimension in range(product.size.size):
            low[0, dimension], high[0, dimension] = 0, product.size[dimension]
        while level >= 0:
            here = node[level]
            feature = tests[here, FEATURE]
            if feature < 0:
                _add_leaf(product, room, level, nodes.value[here], max(nodes.outputs[tree], 0), totals)
                level -= 1
                continue
            dimension = product.dimension[feature]
            parted = _parted(product, room, trees, here, level)
            if parted == high[level, dimension]:
                node[level] = left[here]
            elif parted == low[level, dimension]:
                node[level] = left[here] + 1
            else:
                for other in range(product.size.size):
                    low[level + 1, other], high[level + 1, other] = low[level, other], high[level, other]
                low[level, dimension], high[level + 1, dimension] = parted, parted
                node[level], node[level + 1] = left[here] + 1, left[here]
                level += 1


def product_of(cells: Sequence[Array], dimension: Array) -> Product:
    """Return the box whose features have such `cells` (t,), one per choice of their `dimension` (d,), 0 to n - 1."""
    size = np.ones(dimension.max(initial=-1) + 1, dtype=np.int64)
    size[dimension] = [len(some) for some in cells]
    stride = np.append(np.cumprod(size[:0:-1])[::-1], 1)
    table = np.zeros((len(cells), size.max()), dtype=np.int64)
    for feature, some in enumerate(cells):
        table[feature, : len(some)] = some
    free = np.flatnonzero(size > 1)
    place = np.full(len(size), len(free))
    place[free] = np.arange(len(free))
    return Product(place[dimension], table, np.append(size[free], 1), np.append(stride[free], 0))


def product_trees(product: Product, trees: Trees, totals: Array) -> None:
    """Add every tree's leaf values to `totals` (k, rows), tree by tree; a row takes one choice of every dimension."""
    dimensions, most = len(product.size), int(product.size.max())
    room = Room(
        order=np.tile(np.arange(most), (dimensions, 1)),
        node=np.empty(trees.deepest + 1, dtype=np.int64),
        low=np.empty((trees.deepest + 1, dimensions), dtype=np.int64),
        high=np.empty((trees.deepest + 1, dimensions), dtype=np.int64),
        far=np.empty(totals.shape[1], dtype=np.uint64),
        near=np.empty(WIDE * most, dtype=np.uint64),
    )
    add_products(product, trees, room, totals)
