"""What two changes together do to the sums of trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.kernels.nodes import Trees
from mlflow_cf.structures.kernels.pairs import (
    Alone,
    Leading,
    Near,
    Paths,
    Room,
    Tried,
    Wanted,
    add_pairs,
    find_extremes,
    find_leaves,
    list_leading,
    list_near,
)
from mlflow_cf.structures.kernels.score import find_comparands
from mlflow_cf.structures.links import Tokens
from mlflow_cf.structures.parts import Leaves

MOST_FLAGS = 2**26  # of cells that leaves take, where these are no intervals: 64 MB
Numbers = NDArray[np.intp]


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
        tried: the cells that are tried.
        order: (t,) where each of the cells tried, ascending by feature, stands among the values as they were given.
    """

    paths: Paths
    leaves: Numbers
    tried: Tried
    order: Numbers

    @classmethod
    def of(cls, paths: Paths, trees: Trees, row: Sequence[Tokens], values: Sequence[Tokens]) -> TreePairs:
        """Return the pairs of changes from the cells of a `row` (1,) to `values` (t,), one array per feature.

        No value is missing; `paths` are those of `trees`.
        """
        sizes = np.diff(trees.features.start)
        start = np.cumsum([0, *map(len, values)])
        cells = np.concatenate([np.empty(0, np.int32), *values]).astype(np.int32)
        order = np.lexsort((cells, np.repeat(np.arange(len(values)), np.diff(start))))
        ascending = [cells[order[a:b]] for a, b in pairwise(start.tolist())]
        before = [np.searchsorted(some, np.arange(size + 1)) for some, size in zip(ascending, sizes, strict=True)]
        tried = Tried(
            own=np.concatenate(row).astype(np.int32),
            cells=cells[order],
            start=start,
            before=np.concatenate(before),
            offset=np.cumsum([0, *(len(each) for each in before[:-1])]),
        )
        return cls(paths, _leaves(paths, trees, tried.own), tried, order)

    def tables(self, first: Numbers, second: Numbers) -> TreeTables:
        """Return the tables of pairs of features (p,), (p,), of which the `first` are the smaller."""
        features = len(self.tried.own)
        number = np.full((features, features), -1)
        number[first, second] = np.arange(len(first))
        counts = np.diff(self.tried.start)
        wanted = Wanted(number, first, second, np.append(0, ((counts[first] + 1) * (counts[second] + 1)).cumsum()))
        tables = np.zeros((wanted.place[-1], self.paths.value.shape[1]))
        most = int(np.diff(self.paths.start).max(initial=1))
        room = Room(np.empty((most, counts.max() + 3), np.int64), np.empty(most, np.int64), np.empty(most, np.int64))
        add_pairs(self.paths, self.leaves, self.tried, wanted, room, tables)
        return TreeTables(self.tried, self.order, wanted, tables)


def _leaves(paths: Paths, trees: Trees, own: NDArray[np.int32]) -> Numbers:
    """Return the leaves (n, 3) that matter for a row with `own` cells (d,) and two changes of it; see `find_leaves`."""
    X = np.empty(trees.walk.start[-1], np.int32)
    find_comparands(own[None], trees.walk, X)
    found = np.empty((len(paths.value), 3), dtype=np.intp)
    way = np.empty((trees.deepest + 1, 4), dtype=np.int64)
    return found[: find_leaves(X, trees, paths.leaf, way, found)]


@dataclass(frozen=True, eq=False)
class TreeTables:
    """What pairs of changes add to single ones; see `TreePairs`.

    Attributes:
        tried, order: the cells tried, and where they stood; wanted: the pairs.
        corners: (n, k) of the tables one after the other, until `extremes` adds them up.
    """

    tried: Tried
    order: Numbers
    wanted: Wanted
    corners: Floats

    def extremes(self, alone: Alone) -> tuple[Floats, Floats]:
        """Return the least and the largest sums (p, k), (p, k) of two changes that count; inf, -inf: none does."""
        found = np.empty((2, len(self.wanted.first), self.corners.shape[1]))
        find_extremes(self.tried, self.wanted, self.corners, self._ascending(alone), found)
        return found[0], found[1]

    def leading(self, alone: Alone, leading: Leading) -> tuple[Numbers, Floats] | None:
        """Return the changes (n, 2) of all pairs that count and lead, and their sums (n, 1); nothing is asked later.

        None where there are several sums.
        """
        if self.corners.shape[1] > 1:
            return None
        near = Near(np.empty((len(self.corners), 2), dtype=np.intp), np.empty(self.corners.shape))
        count = list_leading(self.tried, self.wanted, self.corners.ravel(), self._ascending(alone), leading, near)
        return self.order[near.at[:count]], near.sums[:count]

    def near(self, alone: Alone, some: Numbers) -> tuple[Numbers, Floats]:
        """Return the changes (n, 2) of `some` pairs that count and their sums (n, k); `extremes` were asked before."""
        counts = np.diff(self.tried.start)
        most = int((counts[self.wanted.first[some]] * counts[self.wanted.second[some]]).sum())
        near = Near(np.empty((most, 2), dtype=np.intp), np.empty((most, self.corners.shape[1])))
        count = list_near(self.tried, self.wanted, some, self.corners, self._ascending(alone), near)
        return self.order[near.at[:count]], near.sums[:count]

    def _ascending(self, alone: Alone) -> Alone:
        order = self.order
        return alone._replace(sums=alone.sums[order], cost=alone.cost[order], peak=alone.peak[order])
