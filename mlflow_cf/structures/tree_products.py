"""The sums of all rows of a box, from trees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.kernels.branches import room_for
from mlflow_cf.structures.kernels.nodes import Features, Trees
from mlflow_cf.structures.kernels.product import Box, Room, add_up, note_leaves
from mlflow_cf.structures.links import Tokens

Numbers = NDArray[np.intp]


def product_of(cells: Sequence[Tokens], dimension: Numbers, trees: Trees, weights: Floats | None = None) -> Floats:
    """Return the sums (j, rows) of all rows that take one choice of every dimension, the last one's fastest.

    Args:
        cells: per feature, its cell with every choice (t,) of its dimension. Choices whose cells ascend are faster.
        dimension: (d,) of every feature, 0 to n - 1.
        trees: what is added up.
        weights: (k, j) of their sums in those that are asked for; without, each of these.
    """
    sizes = np.ones(dimension.max(initial=-1) + 1, dtype=np.int64)
    sizes[dimension] = [len(some) for some in cells]
    weights = np.eye(len(trees.base)) if weights is None else np.ascontiguousarray(weights)
    sums = np.zeros((weights.shape[1], int(sizes.prod())))
    flags = np.zeros(trees.features.start[-1], dtype=np.bool_)
    for start, some in zip(trees.features.start.tolist(), cells, strict=False):
        flags[start + some] = True
    box = _box(cells, dimension, sizes, trees.features)
    room = Room(
        *room_for(len(cells) + trees.deepest + 1, trees.features),
        flags=flags,
        below=np.empty(len(flags) + 1, dtype=np.int64),
        way=np.empty((trees.deepest + 1, 2), dtype=np.int64),
        narrowed=np.zeros(len(box.size), dtype=np.int64),
        ends=np.empty(int(sizes.max()) + 1, dtype=np.int64),
        places=np.empty(sums.shape[1], dtype=np.uint64),
        worth=np.empty(len(sums)),
    )
    note_leaves(box, trees, weights, room, sums)
    add_up(sums, box.size, box.stride)
    sums += (trees.base @ weights)[:, None]
    return sums


def _box(cells: Sequence[Tokens], dimension: Numbers, sizes: Numbers, features: Features) -> Box:
    """Return a box whose dimensions have so many choices; those of a single one count as one, the last."""
    free = np.flatnonzero(sizes > 1)
    place = np.full(len(sizes), len(free))
    place[free] = np.arange(len(free))
    whose, size = place[dimension], np.append(sizes[free], 1)
    table, before = np.zeros((len(cells), int(sizes.max())), dtype=np.int64), []
    counted = features.ordered & (np.bincount(whose, minlength=len(size)) == 1)[whose]
    for feature, some in enumerate(cells):
        table[feature, : len(some)] = some
        counted[feature] &= bool((some[1:] >= some[:-1]).all())
        count = features.start[feature + 1] - features.start[feature]
        before.append(np.searchsorted(some, np.arange(count + 1)) if counted[feature] else np.zeros(count + 1))
    order = np.argsort(whose, kind="stable")
    by_dimension = np.zeros(len(size), dtype=np.bool_)
    by_dimension[whose[counted]] = True
    return Box(
        dimension=whose,
        size=size,
        stride=np.append(np.cumprod(size[::-1])[::-1][1:], 1),
        first=np.searchsorted(whose[order], np.arange(len(size) + 1)),
        features=order,
        cells=table,
        before=np.concatenate(before).astype(np.int64),
        counted=by_dimension,
    )
