"""Cells: what a forest can tell apart of a raw feature, and the tests of its nodes in terms of them.

The cells of a feature are numbered 0 to size - 1; the last one stands for missing values. A feature is *ordered* if
all its nodes ask whether a value is at most a threshold: then its cells are the intervals between thresholds in
ascending order. Otherwise every test of the feature has a table that says which cells go left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.structures.columns import Column, NotOpenedError, NumberColumn, level_cells
from mlflow_cf.structures.forest import Forest, Ints


@dataclass(frozen=True, eq=False)
class Lookup:
    """Codes of one feature to cells.

    Attributes:
        size: number of cells, that of missing values included.
        levels: number of levels, 0 for numbers; cells of levels are their codes, then one for all unseen ones.
        column: encoding of a number before it is compared with `cuts`; None: the forest does not use it.
        cuts: ascending thresholds; `narrow`: values are cast to float32 first; `side` as in searchsorted.
    """

    size: int
    levels: int = 0
    column: NumberColumn | None = None
    cuts: Floats = field(default_factory=lambda: np.empty(0))
    narrow: bool = False
    side: Literal["left", "right"] = "left"

    def cells(self, codes: Floats) -> Ints:
        """Return the cells (n,) of raw codes (n,)."""
        if self.levels:
            return level_cells(codes, self.levels).astype(np.int32)
        if self.column is None:
            return np.zeros(len(codes), dtype=np.int32)
        values = self.column.encode(codes)
        if self.narrow:
            values = values.astype(np.float32).astype(np.float64)
        cells = self.cuts.searchsorted(values, side=self.side)
        return np.where(np.isnan(values), self.size - 1, cells).astype(np.int32)


@dataclass(frozen=True, eq=False)
class Tests:
    """The tests of all nodes of a forest over cells.

    Attributes:
        lookups: one per raw feature.
        feature: (nodes,) raw feature a node tests, -1 for a leaf.
        cut: (nodes,) ordered features: the last cell that goes left; a missing value goes where the forest says.
        test: (nodes,) row of `goes_left` for the other features, -1 for ordered ones.
        goes_left: (tests, most cells) whether a cell goes left.
    """

    __test__ = False  # no test of pytest's

    lookups: tuple[Lookup, ...]
    feature: Ints
    cut: Ints
    test: Ints
    goes_left: NDArray[np.bool_]

    @classmethod
    def compile(cls, forest: Forest, columns: Sequence[Column], space: FeatureSpace) -> Tests:
        """Compile the tests of `forest`, whose nodes test `columns`, for the features of `space`.

        Raises:
            NotOpenedError: a number that reaches the forest through more than one column.
        """
        inner = np.flatnonzero(forest.column >= 0)
        owner = np.array([column.feature for column in columns], dtype=np.int32)
        feature = np.where(forest.column >= 0, owner[forest.column], -1).astype(np.int32)
        cut, test = np.zeros_like(feature), np.full_like(feature, -1)
        lookups: list[Lookup] = []
        tables: list[NDArray[np.bool_]] = []
        for number, raw in enumerate(space.features):
            nodes = inner[feature[inner] == number]
            if raw.levels:
                table, rows = _level_tests(forest, columns, nodes, len(raw.levels))
                test[nodes] = rows + sum(map(len, tables))
                tables.append(table)
                lookups.append(Lookup(len(raw.levels) + 2, levels=len(raw.levels)))
            else:
                lookup, cut[nodes] = _cuts(forest, columns, nodes)
                lookups.append(lookup)
        return cls(tuple(lookups), feature, cut, test, _stacked(tables))


def _cuts(forest: Forest, columns: Sequence[Column], nodes: NDArray[np.intp]) -> tuple[Lookup, Ints]:
    """Return the lookup of a number and, for each node, the last cell that goes left."""
    if not len(nodes):
        return Lookup(2), np.empty(0, dtype=np.int32)
    used = np.unique(forest.column[nodes])
    column = columns[int(used[0])]
    if len(used) > 1 or not isinstance(column, NumberColumn):
        raise NotOpenedError("a number that enters the trees through several columns")
    thresholds = forest.threshold[nodes]
    if forest.rule == "< float32":
        thresholds = thresholds.astype(np.float32).astype(np.float64)
    # cell c holds the values between cuts c-1 and c, so a test at cut p sends cells 0..p left
    cuts, position = np.unique(thresholds, return_inverse=True)
    side: Literal["left", "right"] = "right" if forest.rule == "< float32" else "left"
    return Lookup(len(cuts) + 2, 0, column, cuts, forest.rule != "<= float64", side), position.astype(np.int32)


def _level_tests(
    forest: Forest, columns: Sequence[Column], nodes: NDArray[np.intp], levels: int
) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Return the distinct tests of a feature of levels, (tests, levels + 2), and each node's row among them."""
    tests = np.column_stack([forest.column[nodes], forest.threshold[nodes], forest.missing_left[nodes]])
    distinct, rows = np.unique(tests, axis=0, return_inverse=True)
    encoded = np.empty((len(distinct), levels + 2))
    for row, number in enumerate(distinct[:, 0].astype(np.intp)):
        encoded[row] = columns[number].encode(_every_level(levels))
    table = forest.goes_left(encoded, distinct[:, 1:2]) | (np.isnan(encoded) & (distinct[:, 2:] > 0))
    return table, rows.ravel()


def _every_level(levels: int) -> Floats:
    return np.append(np.arange(levels + 1, dtype=np.float64), np.nan)


def _stacked(tables: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    stacked = np.zeros((sum(map(len, tables)) or 1, max((t.shape[1] for t in tables), default=1)), dtype=np.bool_)
    start = 0
    for table in tables:
        stacked[start : start + len(table), : table.shape[1]] = table
        start += len(table)
    return stacked
