"""Decision trees, forests and boosting over cells: the intervals and levels that a model can tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.structures.columns import Column, NotOpenedError, NumberColumn, level_cells
from mlflow_cf.structures.kernels import add_trees
from mlflow_cf.structures.structure import Link, Tokens, linked

GoesLeft = Literal["<= float32", "<= float64", "< float32"]
Ints = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees as a library holds them; node 0 of each tree follows the nodes of the tree before it.

    Attributes:
        roots: (trees,) first node of every tree.
        outputs: (trees,) output a tree adds to; -1: its leaves hold one value per output.
        column: (nodes,) encoded column a node tests, -1 for a leaf.
        threshold: (nodes,) what it compares with.
        missing_left: (nodes,) where missing values go.
        left, right: (nodes,) children.
        value: (nodes, k) leaf values, in the precision the library adds them up in.
        rule: when a value goes left, in the library's own precision.
        base: (outputs,) added to the sums; link: turns sums into scores.
    """

    roots: Ints
    outputs: Ints
    column: Ints
    threshold: Floats
    missing_left: NDArray[np.bool_]
    left: Ints
    right: Ints
    value: NDArray[np.floating[Any]]
    rule: GoesLeft
    base: Floats
    link: Link

    def goes_left(self, values: Floats, threshold: Floats) -> NDArray[np.bool_]:
        """Whether encoded values go left at thresholds, by the library's rule; False for missing ones."""
        if self.rule == "<= float64":
            return values <= threshold
        narrow = values.astype(np.float32)
        if self.rule == "< float32":
            return narrow < threshold.astype(np.float32)
        return narrow.astype(np.float64) <= threshold


@dataclass(frozen=True, eq=False)
class TreeEnsemble:
    """A forest compiled to cells: levels, and the intervals between a number's thresholds.

    Attributes:
        forest: the trees.
        lookups: one per raw feature: how its codes become cells.
        feature: (nodes,) raw feature a node tests, -1 for a leaf.
        cut: (nodes,) last cell of a number that goes left.
        test: (nodes,) row of `goes_left` for a feature of levels, -1 for numbers.
        goes_left: (tests, most levels + 2) whether a level goes left.
    """

    forest: Forest
    lookups: tuple[_Lookup, ...]
    feature: Ints
    cut: Ints
    test: Ints
    goes_left: NDArray[np.uint8]

    @classmethod
    def compile(cls, forest: Forest, columns: Sequence[Column], space: FeatureSpace) -> TreeEnsemble:
        """Compile `forest`, whose nodes test `columns`, for the features of `space`.

        Raises:
            NotOpenedError: a number that reaches the forest through more than one column.
        """
        inner = np.flatnonzero(forest.column >= 0)
        owner = np.array([column.feature for column in columns], dtype=np.int32)
        feature = np.where(forest.column >= 0, owner[forest.column], -1).astype(np.int32)
        cut, test = np.zeros_like(feature), np.full_like(feature, -1)
        lookups: list[_Lookup] = []
        tables: list[NDArray[np.bool_]] = []
        for number, raw in enumerate(space.features):
            nodes = inner[feature[inner] == number]
            if raw.levels:
                table, rows = _level_tests(forest, columns, nodes, len(raw.levels))
                test[nodes] = rows + sum(map(len, tables))
                tables.append(table)
                lookups.append(_Lookup(levels=len(raw.levels)))
            else:
                lookup, cut[nodes] = _cuts(forest, columns, nodes)
                lookups.append(lookup)
        return cls(forest, tuple(lookups), feature, cut, test, _stacked(tables))

    @property
    def kind(self) -> str:
        """Number of trees and leaves."""
        return f"{len(self.forest.roots)} trees, {int((self.forest.column < 0).sum())} leaves"

    def encode(self, column: int, codes: Floats) -> Tokens:
        """Return the cells (n,) of raw codes (n,) of one feature."""
        return self.lookups[column].cells(codes)

    def score(self, tokens: Sequence[Tokens]) -> Floats:
        """Return scores (m, classes) for the cells of every feature."""
        forest = self.forest
        # the library's own order and precision: float32 sums of XGBoost agree to the last bit
        totals = np.tile(forest.base.astype(forest.value.dtype), (len(tokens[0]), 1))
        add_trees(
            np.column_stack(tokens), forest.roots, forest.outputs, self.feature, self.cut, self.test,
            forest.missing_left, forest.left, forest.right, forest.value, self.goes_left, totals,
        )  # fmt: skip
        return linked(totals.astype(np.float64), forest.link)


@dataclass(frozen=True, eq=False)
class _Lookup:
    """Codes of one feature to cells: levels as they are; numbers by `cuts`, -1 for missing ones.

    Attributes:
        levels: number of levels, 0 for numbers.
        column: encoding of a number before it is compared with `cuts`; None: the forest does not use it.
        cuts: ascending thresholds; `narrow`: values are cast to float32 first; `side` as in searchsorted.
    """

    levels: int = 0
    column: NumberColumn | None = None
    cuts: Floats = field(default_factory=lambda: np.empty(0))
    narrow: bool = False
    side: Literal["left", "right"] = "left"

    def cells(self, codes: Floats) -> Ints:
        if self.levels:
            return level_cells(codes, self.levels).astype(np.int32)
        if self.column is None:
            return np.zeros(len(codes), dtype=np.int32)
        values = self.column.encode(codes)
        if self.narrow:
            values = values.astype(np.float32).astype(np.float64)
        cells = np.searchsorted(self.cuts, values, side=self.side)
        return np.where(np.isnan(values), -1, cells).astype(np.int32)


def _cuts(forest: Forest, columns: Sequence[Column], nodes: NDArray[np.intp]) -> tuple[_Lookup, Ints]:
    """Return the lookup of a number and, for each node, the last cell that goes left."""
    if not len(nodes):
        return _Lookup(), np.empty(0, dtype=np.int32)
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
    return _Lookup(0, column, cuts, forest.rule != "<= float64", side), position.astype(np.int32)


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


def _stacked(tables: Sequence[NDArray[np.bool_]]) -> NDArray[np.uint8]:
    stacked = np.zeros((sum(map(len, tables)) or 1, max((t.shape[1] for t in tables), default=1)), dtype=np.uint8)
    start = 0
    for table in tables:
        stacked[start : start + len(table), : table.shape[1]] = table
        start += len(table)
    return stacked
