"""What two changes together do to the sums of trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.structures.kernels.classes import add_rectangles, find_classes
from mlflow_cf.structures.kernels.nodes import Trees
from mlflow_cf.structures.kernels.pairs import Paths, Rectangles, Room, Tried, find_leaves, find_rectangles
from mlflow_cf.structures.kernels.score import find_comparands
from mlflow_cf.structures.links import Tokens
from mlflow_cf.structures.pairs import Numbers, PairTables
from mlflow_cf.structures.parts import Leaves

MOST_FLAGS = 2**26  # of cells that leaves take, where these are no intervals: 64 MB


def paths_of(leaves: Leaves, nodes: int) -> Paths | None:
    """Return what leaves, which are some of `nodes`, ask of the features; None if that takes too much memory."""
    if sum(limits.taken.size for limits in leaves.limits if limits.taken is not None) > MOST_FLAGS:
        return None
    leaf: list[NDArray[Any]] = []
    asks: list[NDArray[np.int32]] = []
    taken, filled = [np.empty(0, np.bool_)], 0
    for feature, limits in enumerate(leaves.limits):
        count, offset = len(limits.leaf), np.full(len(limits.leaf), -1)
        if limits.taken is not None:
            offset = filled + limits.taken.shape[1] * np.arange(count)
            taken.append(limits.taken.ravel())
            filled += limits.taken.size
        leaf.append(limits.leaf)
        asks.append(
            np.column_stack([np.full(count, feature), limits.low, limits.high, limits.missing, offset]).astype(np.int32)
        )
    whose = np.concatenate(leaf)
    order = np.argsort(whose, kind="stable")
    start = np.searchsorted(whose[order], np.arange(len(leaves.value) + 1))
    number = np.full(nodes, -1)
    number[leaves.node] = np.arange(len(leaves.node))
    values = np.ascontiguousarray(leaves.value)
    return Paths(start, np.concatenate(asks)[order], np.concatenate(taken), values, number)


@dataclass(frozen=True, eq=False)
class TreePairs:
    """The pairs of changes of one row.

    Attributes:
        paths: what leaves ask; leaves: (n, 3) those that two changes may come to, as `find_leaves` has them.
        sizes: (d,) how many cells there are of every feature.
    """

    paths: Paths
    leaves: Numbers
    sizes: Numbers

    @classmethod
    def of(cls, paths: Paths, trees: Trees, row: Sequence[Tokens]) -> TreePairs:
        """Return the pairs of changes from the cells of a `row` (1,), one array per feature, where `paths` lead."""
        own = np.concatenate(row).astype(np.int32)
        X = np.empty(trees.walk.start[-1], np.int32)
        find_comparands(own[None], trees.walk, X)
        found = np.empty((len(paths.value), 3), dtype=np.intp)
        way = np.empty((trees.deepest + 1, 4), dtype=np.int64)
        return cls(paths, found[: find_leaves(X, trees, paths.leaf, way, found)], np.diff(trees.features.start))

    def tables(self, values: Sequence[Tokens], first: Numbers, second: Numbers) -> PairTables:
        """Return what changes to `values` (t,), one array per feature, do; see `Pairs.tables`."""
        tried, order = self._tried(values)
        empty = PairTables.empty(first, second, tried.start).tables
        rectangles = self._rectangles(tried, first, second)
        ends = np.zeros(len(empty.classes) + len(empty.counts), dtype=np.bool_)
        find_classes(rectangles, tried, order, ends, empty)
        tables = empty._replace(added=np.zeros((empty.place[-1], self.paths.value.shape[1])))
        add_rectangles(rectangles, self.paths.value, tried, order, tables)
        return PairTables(tables)

    def _tried(self, values: Sequence[Tokens]) -> tuple[Tried, Numbers]:
        """Return the cells tried, ascending by feature, and (t,) where each of them stands among the values."""
        start = np.cumsum([0, *map(len, values)])
        cells = np.concatenate([np.empty(0, np.int32), *values]).astype(np.int32)
        order = np.lexsort((cells, np.repeat(np.arange(len(values)), np.diff(start))))
        ascending = [cells[order[a:b]] for a, b in pairwise(start.tolist())]
        before = [np.searchsorted(some, np.arange(size + 1)) for some, size in zip(ascending, self.sizes, strict=True)]
        offset = np.cumsum([0, *(len(each) for each in before[:-1])])
        return Tried(cells[order], start, np.concatenate(before), offset), order

    def _rectangles(self, tried: Tried, first: Numbers, second: Numbers) -> Rectangles:
        """Return where the leaves add to pairs of features (p,), (p,)."""
        features, paths = len(self.sizes), self.paths
        number = np.full((features, features), -1)
        number[first, second] = np.arange(len(first))
        longest, widest = int(np.diff(paths.start).max(initial=1)), int(np.diff(tried.start).max(initial=0))
        room = Room(np.empty((longest, widest + 3), np.int64), *np.empty((2, longest), np.int64))
        count = 2 * len(self.leaves)
        while True:
            found = Rectangles(np.empty((count, 5), dtype=np.int32), np.empty(count, dtype=np.int32))
            count = find_rectangles(paths, self.leaves, tried, number, room, found)
            if count <= len(found.leaf):
                return Rectangles(found.spans[:count], found.leaf[:count])
