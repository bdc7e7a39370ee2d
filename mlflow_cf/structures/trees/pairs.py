"""Joint effects of two changes on the raw scores of trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.structures.kernels.classes import add_rectangles, find_classes
from mlflow_cf.structures.kernels.nodes import Trees
from mlflow_cf.structures.kernels.pairs import (
    FeaturePairs,
    PairWorkspace,
    Rectangles,
    TriedCells,
    find_rectangles,
)
from mlflow_cf.structures.kernels.score import find_comparands
from mlflow_cf.structures.links import Encoded
from mlflow_cf.structures.pairs import Numbers, PairTables

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
        rectangles = self._rectangles(_asked(tried, first, second))
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


def _asked(tried: TriedCells, first: Numbers, second: Numbers) -> FeaturePairs:
    """Return the requested pairs of features (p,), (p,) as kernels take them."""
    features = len(tried.start) - 1
    number, some = np.full((features, features), -1), np.zeros(features, dtype=np.bool_)
    number[first, second] = np.arange(len(first))
    some[first] = some[second] = True
    return FeaturePairs(tried, int(np.diff(tried.start).max(initial=0)), number, some)
