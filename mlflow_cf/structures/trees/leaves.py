"""The leaves of compiled trees as boxes of cells, and joint effects of two changes on the raw scores of trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.structures.capabilities import Numbers, PairTables
from mlflow_cf.structures.kernels.blocks import add_rectangles, find_classes
from mlflow_cf.structures.kernels.pairs import (
    FeaturePairs,
    PairWorkspace,
    Rectangles,
    TriedCells,
    find_rectangles,
)
from mlflow_cf.structures.kernels.trees import (
    CUT,
    FEATURE,
    LEFT,
    MISSING_LEFT,
    TEST,
    Array,
    Features,
    Nodes,
    Trees,
    find_comparands,
    flags_of,
)
from mlflow_cf.structures.parts import LeafLimits, Leaves
from mlflow_cf.structures.structure import Encoded, Flags, Link
from mlflow_cf.structures.trees.cells import Lookup


def leaves_of(trees: Trees, lookups: Sequence[Lookup], link: Link) -> Leaves:
    """Return the reachable leaves of compiled trees, tree after tree."""
    nodes, base = trees.nodes, trees.base
    tree = _tree_of(nodes)
    leaves = np.flatnonzero(nodes.tests[:, FEATURE] < 0)
    leaves = leaves[np.argsort(tree[leaves], kind="stable")]
    leaf, test, goes_left = _ways(nodes, leaves)
    tested = nodes.tests[test, FEATURE]
    limits = []
    for feature, lookup in enumerate(lookups):
        here = np.flatnonzero(tested == feature)
        limits.append(_limits(leaf[here], nodes.tests[test[here]], goes_left[here], trees.features, lookup))
    reached = np.ones(len(leaves), dtype=np.bool_)
    for limit in limits:
        reached[limit.leaf[(limit.high < limit.low) & ~limit.missing]] = False
    leaves = leaves[reached]
    outputs, value = nodes.outputs[tree[leaves]], nodes.value[leaves].astype(np.float64)
    if (outputs >= 0).any():  # of each tree alone
        every = np.zeros((len(leaves), len(base)))
        every[np.arange(len(leaves)), outputs] = value[:, 0]
        value = every
    return Leaves(
        lookups=tuple(lookups),
        limits=tuple(_kept(limit, reached) for limit in limits),
        tree=tree[leaves],
        value=value,
        base=base,
        link=link,
    )


def _tree_of(nodes: Nodes) -> Array:
    """Return the tree (nodes,) of every node."""
    tree = np.empty(len(nodes.tests), dtype=np.int32)
    level = nodes.roots
    tree[level] = np.arange(len(level))
    while len(level := level[nodes.tests[level, FEATURE] >= 0]):
        left = nodes.tests[level, LEFT]
        tree[left] = tree[left + 1] = tree[level]
        level = np.concatenate([left, left + 1])
    return tree


def _ways(nodes: Nodes, leaves: Array) -> tuple[Array, Array, Flags]:
    """Return all tests on the paths to `leaves`: position of the leaf, node, and whether the path goes left."""
    inner = np.flatnonzero(nodes.tests[:, FEATURE] >= 0)
    parent = np.full(len(nodes.tests), -1)
    parent[nodes.tests[inner, LEFT]] = parent[nodes.tests[inner, LEFT] + 1] = inner
    leaf, below = np.arange(len(leaves)), leaves
    found: list[tuple[Array, Array, Array]] = []
    while len(leaf):
        above = parent[below]
        found.append((leaf, above, nodes.tests[above, LEFT] == below))
        leaf, below = leaf[above >= 0], above[above >= 0]
    leaf, test, goes_left = (np.concatenate(part) for part in zip(*found, strict=True))
    return leaf[test >= 0], test[test >= 0], goes_left[test >= 0]


def _limits(leaf: Array, tests: Array, goes_left: Flags, features: Features, lookup: Lookup) -> LeafLimits:
    """Return the cells of one feature that leaves accept, by the `tests` (n, 5) and directions (n,) on their paths."""
    order = np.argsort(leaf, kind="stable")
    tests, goes_left = tests[order], goes_left[order]
    distinct, first = np.unique(leaf[order], return_index=True)
    last, own_cell = lookup.size - 2, lookup.missing == lookup.size - 1
    if not len(leaf):
        nothing = np.empty(0, dtype=np.int32)
        return LeafLimits(nothing, nothing, nothing, nothing.astype(np.bool_), None)
    if (tests[:, TEST] < 0).all():
        low = np.maximum.reduceat(np.where(goes_left, 0, tests[:, CUT] + 1), first)
        high = np.minimum.reduceat(np.where(goes_left, tests[:, CUT], last), first)
        missing = np.logical_and.reduceat((tests[:, MISSING_LEFT] > 0) == goes_left, first)
        return LeafLimits(distinct, low, high, missing & own_cell, None)
    taken = np.logical_and.reduceat(flags_of(features.bits)[tests[:, TEST], : lookup.size] == goes_left[:, None], first)
    taken[:, -1] &= own_cell
    some = taken[:, :-1].any(axis=1)
    low = np.where(some, taken[:, :-1].argmax(axis=1), last + 1)
    high = np.where(some, last - taken[:, -2::-1].argmax(axis=1), last)
    return LeafLimits(distinct, low, high, taken[:, -1], taken)


def _kept(limits: LeafLimits, reached: Flags) -> LeafLimits:
    """Return the limits of the reachable leaves, renumbered."""
    kept = reached[limits.leaf]
    taken = None if limits.taken is None else limits.taken[kept]
    number = np.cumsum(reached) - 1
    return LeafLimits(number[limits.leaf[kept]], limits.low[kept], limits.high[kept], limits.missing[kept], taken)


EXPECTED = 64  # rectangles of a tree to allocate at first; enough for most


@dataclass(frozen=True, eq=False)
class TreePairs:
    """The pairs of changes of one row.

    Attributes:
        trees: the ensemble.
        X: (columns,) the row's comparands, see `Walk`.
    """

    trees: Trees
    X: NDArray[np.int32]

    @classmethod
    def of(cls, trees: Trees, row: Sequence[Encoded]) -> TreePairs:
        """Return the pairs of changes of a `row` of cells (1,) per feature."""
        X = np.empty(trees.walk.start[-1], np.int32)
        find_comparands(np.concatenate(row).astype(np.int32)[None], trees.walk, X)
        return cls(trees, X)

    def tables(self, values: Sequence[Encoded], first: Numbers, second: Numbers, most: int) -> PairTables | None:
        """Return the joint effects of changes to cells `values` (t,) per feature; see `Pairs.tables`."""
        tried, order = self._tried(values)
        features = len(values)
        number, some = np.full((features, features), -1), np.zeros(features, dtype=np.bool_)
        number[first, second] = np.arange(len(first))
        some[first] = some[second] = True
        rectangles = self._rectangles(FeaturePairs(tried, max(map(len, values), default=0), number, some))
        empty = PairTables.empty(first, second, tried.start).tables
        ends = np.zeros(len(empty.classes) + len(empty.counts), dtype=np.int32)
        find_classes(rectangles, tried, order, ends, empty)
        outputs = len(self.trees.base)
        if empty.place[-1] * outputs > most:
            return None
        tables = empty._replace(added=np.zeros((empty.place[-1], outputs)))
        add_rectangles(rectangles, self.trees.nodes.value, ends, tables)
        return PairTables(tables)

    def _tried(self, values: Sequence[Encoded]) -> tuple[TriedCells, Numbers]:
        """Return the tried cells, ascending by feature, and (t,) the position of each among the values."""
        start = np.cumsum([0, *map(len, values)])
        sizes = np.diff(self.trees.features.start)
        offset = np.append(0, (sizes + 1).cumsum())
        cells = np.concatenate([np.empty(0, np.int32), *values]).astype(np.int32)
        key = cells + offset[:-1].repeat(np.diff(start))
        order = np.argsort(key, kind="stable")  # fast: values mostly ascend
        counts = np.bincount(key, minlength=offset[-1])
        before = counts.cumsum() - counts - start[:-1].repeat(sizes + 1)
        return TriedCells(cells[order], start, before, offset[:-1]), order

    def _rectangles(self, asked: FeaturePairs) -> Rectangles:
        """Return where leaves contribute to pairs of features."""
        levels, features = self.trees.deepest + 1, len(asked.some)
        room = PairWorkspace(
            way=np.empty((levels, 5), dtype=np.int64),
            trail=np.empty((levels, 7), dtype=np.int64),
            passing=np.empty((features, 3), dtype=np.int64),
            slots=np.empty((levels, 3), dtype=np.int64),
            ends=np.empty((levels, asked.most + 3), dtype=np.int64),
        )
        count = EXPECTED * len(self.trees.nodes.roots)
        while True:
            found = Rectangles(np.empty((count, 5), dtype=np.int32), np.empty((count, 2), dtype=np.int32))
            count = find_rectangles(self.X, self.trees, asked, room, found)
            if count <= len(found.leaf):
                return Rectangles(found.spans[:count], found.leaf[:count])
