"""What two changes together do to the sums of trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.structures.kernels.classes import add_rectangles, find_classes
from mlflow_cf.structures.kernels.nodes import Trees
from mlflow_cf.structures.kernels.pairs import (
    Asked,
    Paths,
    Rectangles,
    Room,
    Tried,
    find_leaves,
    find_rectangles,
)
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
        paths: what leaves ask; trees: whose leaves they are.
        X: (columns,) the row's comparands.
    """

    paths: Paths
    trees: Trees
    X: NDArray[np.int32]

    @classmethod
    def of(cls, paths: Paths, trees: Trees, row: Sequence[Tokens]) -> TreePairs:
        """Return the pairs of changes from the cells of a `row` (1,), one array per feature, where `paths` lead."""
        X = np.empty(trees.walk.start[-1], np.int32)
        find_comparands(np.concatenate(row).astype(np.int32)[None], trees.walk, X)
        return cls(paths, trees, X)

    def tables(self, values: Sequence[Tokens], first: Numbers, second: Numbers, most: int) -> PairTables | None:
        """Return what changes to `values` (t,), one array per feature, do; see `Pairs.tables`."""
        tried, order = self._tried(values)
        rectangles = self._rectangles(_asked(tried, first, second))
        empty = PairTables.empty(first, second, tried.start).tables
        ends = np.zeros(len(empty.classes) + len(empty.counts), dtype=np.int32)
        find_classes(rectangles, tried, order, ends, empty)
        outputs = self.paths.value.shape[1]
        if empty.place[-1] * outputs > most:
            return None
        tables = empty._replace(added=np.zeros((empty.place[-1], outputs)))
        add_rectangles(rectangles, self.paths.value, ends, tables)
        return PairTables(tables)

    def _tried(self, values: Sequence[Tokens]) -> tuple[Tried, Numbers]:
        """Return the cells tried, ascending by feature, and (t,) where each of them stands among the values."""
        start = np.cumsum([0, *map(len, values)])
        sizes = np.diff(self.trees.features.start)
        offset = np.append(0, (sizes + 1).cumsum())
        cells = np.concatenate([np.empty(0, np.int32), *values]).astype(np.int32)
        key = cells + offset[:-1].repeat(np.diff(start))
        order = np.argsort(key, kind="stable")  # values mostly ascend
        counts = np.bincount(key, minlength=offset[-1])
        before = counts.cumsum() - counts - start[:-1].repeat(sizes + 1)
        return Tried(cells[order], start, before, offset[:-1]), order

    def _rectangles(self, asked: Asked) -> Rectangles:
        """Return where the leaves add to pairs of features."""
        paths, leaves = self.paths, np.empty((len(self.paths.value), 3), dtype=np.intp)
        way = np.empty((self.trees.deepest + 1, 8), dtype=np.int64)
        leaves = leaves[: find_leaves(self.X, self.trees, paths.leaf, asked, way, leaves)]
        longest = self.trees.deepest + 1  # no leaf asks more features than there are nodes above it
        room = Room(np.empty((longest, asked.most + 3), np.int64), *np.empty((2, longest), np.int64))
        count = 4 * len(leaves)  # more are seldom
        while True:
            found = Rectangles(np.empty((count, 5), dtype=np.int32), np.empty(count, dtype=np.int32))
            count = find_rectangles(paths, leaves, asked, room, found)
            if count <= len(found.leaf):
                return Rectangles(found.spans[:count], found.leaf[:count])


def _asked(tried: Tried, first: Numbers, second: Numbers) -> Asked:
    """Return the pairs of features (p,), (p,) as they are asked for."""
    features = len(tried.start) - 1
    number, some = np.full((features, features), -1), np.zeros(features, dtype=np.bool_)
    number[first, second] = np.arange(len(first))
    some[first] = some[second] = True
    return Asked(tried, int(np.diff(tried.start).max(initial=0)), number, some)
