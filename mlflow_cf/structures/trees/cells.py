"""Cells: sets of raw values of a feature that a forest does not distinguish, and its tests as sets of cells.

The cells of a feature are numbered 0 to size - 1; the last one is for missing values. A feature is *ordered* if all
its nodes compare with thresholds: then its cells are the intervals between thresholds in ascending order. Otherwise
every test of the feature has a table of the cells that go left; cells of numbers are still intervals in ascending
order. Thresholds of encoded numbers are inverted to raw numbers exactly, by bisection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.structures.layers.columns import (
    Column,
    IntervalColumn,
    LevelColumn,
    NotOpenedError,
    NumberColumn,
    value_of_missing,
)
from mlflow_cf.structures.trees.forest import Forest, Ints
from mlflow_cf.words.statements import say

Nodes = NDArray[np.intp]
Table = NDArray[np.bool_]
LARGEST = np.finfo(np.float64).max
MOST_ENTRIES = 2**24  # of the tables of one feature; they are made for few tests, or few cells


@dataclass(frozen=True, eq=False)
class Lookup:
    """Map from the codes of one feature to cells.

    Attributes:
        cuts: ascending, the last one infinite; a cell holds the codes above one cut that are at most the next one.
            Levels have a cell each, then one for all unseen ones.
        place: (cuts + 1,) cell of each interval, then that of missing values: the last one, unless they are imputed.
    """

    cuts: Floats
    place: Ints

    @classmethod
    def of(cls, cuts: Floats, filled: int | None = None) -> Lookup:
        """Return the lookup with `cuts`; missing values go to the cell `filled`, if they are imputed."""
        place = np.arange(len(cuts) + 1, dtype=np.int32)
        if filled is not None:
            place[-1] = filled
        return cls(cuts, place)

    @property
    def size(self) -> int:
        """Number of cells, that of missing values included."""
        return len(self.place)

    @property
    def missing(self) -> int:
        """The cell of missing values."""
        return int(self.place[-1])

    def cells(self, codes: Floats) -> Ints:
        """Return the cells (n,) of raw codes (n,)."""
        # searchsorted puts NaN after the infinite cut; the table lookup costs no more than a cast to int32
        return self.place[self.cuts.searchsorted(codes)]


@dataclass(frozen=True, eq=False)
class Tests:
    """The tests of all nodes of a forest as sets of cells.

    Attributes:
        lookups: one per raw feature.
        feature: (nodes,) raw feature a node tests, -1 for a leaf.
        cut: (nodes,) ordered features: the last cell that goes left, but for missing values, see `Forest.missing_left`.
        test: (nodes,) row of `goes_left` for the other features, -1 for ordered ones.
        goes_left: (tests, most cells) whether a cell goes left.
    """

    __test__ = False  # pytest must not collect it

    lookups: tuple[Lookup, ...]
    feature: Ints
    cut: Ints
    test: Ints
    goes_left: Table

    @classmethod
    def compile(cls, forest: Forest, columns: Sequence[Column], space: FeatureSpace) -> Tests:
        """Compile the tests of `forest`, whose nodes test `columns`, for the features of `space`.

        Raises:
            NotOpenedError: a feature with more tests than can be tabulated.
        """
        owner = np.array([column.feature for column in columns], dtype=np.int32)
        feature = np.where(forest.column >= 0, owner[forest.column], -1).astype(np.int32)
        cut, test = np.zeros_like(feature), np.full_like(feature, -1)
        lookups: list[Lookup] = []
        tables: list[Table] = []
        order = np.argsort(feature, kind="stable")
        of_features = np.split(order, feature[order].searchsorted(np.arange(len(space) + 1)))[1:-1]
        for number, nodes in enumerate(of_features):
            raw = space.features[number]
            if raw.numeric and _is_ordered(forest, columns, nodes):
                lookup, cut[nodes] = _cuts(forest, columns, nodes)
            else:
                cuts = _points(forest, columns, nodes) if raw.numeric else np.arange(float(len(raw.levels)))
                lookup = Lookup.of(np.append(cuts, np.inf))
                try:
                    table, rows = _tests(forest, columns, nodes, lookup.cuts)
                except NotOpenedError as error:
                    raise NotOpenedError(say("note_of", path=raw.name, note=error.what)) from error
                test[nodes] = rows + sum(map(len, tables))
                tables.append(table)
            lookups.append(lookup)
        most = max((table.shape[1] for table in tables), default=1)
        wide = [np.pad(table, ((0, 0), (0, most - table.shape[1]))) for table in tables]
        goes_left = np.concatenate(wide) if wide else np.zeros((1, most), dtype=np.bool_)
        return cls(tuple(lookups), feature, cut, test, goes_left)


def _is_ordered(forest: Forest, columns: Sequence[Column], nodes: Nodes) -> bool:
    """Whether all tests of a number are cuts, and a missing value is encoded alike for all of them."""
    used = [columns[number] for number in np.unique(forest.column[nodes]).tolist()]
    if forest.subsets is not None and (forest.subsets.row[nodes] >= 0).any():
        return False
    plain = all(isinstance(column, NumberColumn) and column.gap is None for column in used)
    return plain and (len(used) < 2 or all(np.isnan(value_of_missing(column)) for column in used))


def _cuts(forest: Forest, columns: Sequence[Column], nodes: Nodes) -> tuple[Lookup, Ints]:
    """Return the lookup of an ordered number and, for each node, the last cell that goes left."""
    limits, last = forest.limits(nodes), np.empty(len(nodes))
    used = np.unique(forest.column[nodes]).tolist()
    for number in used:
        mine = forest.column[nodes] == number
        last[mine] = _last(forest, columns[number], limits[mine])
    cuts, positions = np.unique(np.append(last, np.inf), return_inverse=True)
    position = positions[:-1].astype(np.int32)
    if len(used) != 1 or np.isnan(fill := value_of_missing(columns[used[0]])):
        return Lookup.of(cuts), position
    right = forest.seen(np.array([fill])) > limits
    return Lookup.of(cuts, int(position[right].max(initial=-1)) + 1), position


def _last(forest: Forest, column: Column, limits: Floats) -> Floats:
    """Return the largest raw values whose encoded ones are at most `limits`."""
    distinct, inverse = np.unique(limits, return_inverse=True)
    return last_values(column, distinct, narrow=forest.narrow)[inverse]


def _points(forest: Forest, columns: Sequence[Column], nodes: Nodes) -> Floats:
    """Return the last raw value of every interval on which all tests of a number are constant, ascending, if finite."""
    points = [np.empty(0)]
    for number in np.unique(forest.column[nodes]).tolist():
        column, mine = columns[number], nodes[forest.column[nodes] == number]
        if isinstance(column, IntervalColumn):
            points.append(last_values(column.number, column.cuts, narrow=False))
            continue
        compare = mine if forest.subsets is None else mine[forest.subsets.row[mine] < 0]
        points.append(_last(forest, column, forest.limits(compare)))
        if forest.subsets is not None and len(compare) < len(mine):
            points.append(_last(forest, column, forest.ends(forest.subsets)))
        if isinstance(column, NumberColumn) and column.gap is not None:
            gap = np.array([np.nextafter(column.gap[0], -np.inf), column.gap[1]])
            points.append(last_values(column, gap, narrow=False))
    found = np.unique(np.concatenate(points))
    return found[np.isfinite(found)]


def _tests(forest: Forest, columns: Sequence[Column], nodes: Nodes, cuts: Floats) -> tuple[Table, Nodes]:
    """Return the distinct tests of a feature over its cells, (tests, cells), and each node's row among them."""
    subset = np.full(len(nodes), -1) if forest.subsets is None else forest.subsets.row[nodes]
    limits = np.where(subset < 0, forest.limits(nodes), 0.0)
    tests = np.column_stack([forest.column[nodes], limits, forest.missing_left[nodes], subset])
    distinct, rows = np.unique(tests, axis=0, return_inverse=True)
    if len(distinct) * (len(cuts) + 1) > MOST_ENTRIES:
        raise NotOpenedError(say("many_tests", tests=len(distinct), values=len(cuts)))
    table = np.empty((len(distinct), len(cuts) + 1), dtype=np.bool_)
    for number in np.unique(distinct[:, 0]).astype(np.intp).tolist():
        mine, column = np.flatnonzero(distinct[:, 0] == number), columns[number]
        beyond = float(len(cuts) - 1) if isinstance(column, LevelColumn) else LARGEST
        codes = np.concatenate([cuts[:-1], [beyond, np.nan]])  # the largest code of every cell, then a missing value
        with np.errstate(over="ignore", invalid="ignore"):
            values = forest.seen(column.encode(codes))
        compared, looked_up = mine[distinct[mine, 3] < 0], mine[distinct[mine, 3] >= 0]
        table[compared] = values <= distinct[compared, 1:2]
        if forest.subsets is not None:
            table[looked_up] = forest.subsets.goes_left(values, distinct[looked_up, 3].astype(np.intp))
        table[mine] = np.where(np.isnan(values), distinct[mine, 2:3] > 0, table[mine])
    return table, rows.ravel()


def last_values(number: Column, limits: Floats, *, narrow: bool) -> Floats:
    """Return the largest raw values (n,) whose encoded values are at most `limits` (n,).

    Exact to the last bit: it bisects floats with the encoding itself. Infinite if all raw values are, or none is.

    Args:
        number: the encoding, a `NumberColumn`, which is monotone.
        limits: ascending.
        narrow: whether encoded values are cast to float32 before they are compared.
    """
    if not isinstance(number, NumberColumn):
        raise TypeError(f"a {type(number).__name__} is no number")
    if not number.steps:
        return _last_narrow(limits) if narrow else limits

    def passes(raw: Floats) -> NDArray[np.bool_]:
        with np.errstate(over="ignore", invalid="ignore"):
            values = number.monotone(raw)
            return (values.astype(np.float32).astype(np.float64) if narrow else values) <= limits

    none, every = ~passes(np.full_like(limits, -LARGEST)), passes(np.full_like(limits, LARGEST))
    # bisect over the bits of floats read as integers, which have the same order
    low, high = (_flipped(np.full_like(limits, end).view(np.int64)) for end in (-LARGEST, LARGEST))
    for _ in range(64):
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        left = passes(_flipped(middle).view(np.float64))
        low, high = np.where(left, middle, low), np.where(left, high, middle)
    return np.where(none, -np.inf, np.where(every, np.inf, _flipped(low).view(np.float64)))


def _last_narrow(limits: Floats) -> Floats:
    """Return the largest float64 numbers whose float32 rounding is at most `limits`."""
    with np.errstate(over="ignore"):
        rounded = limits.astype(np.float32)
        below = np.where(rounded > limits, np.nextafter(rounded, np.float32(-np.inf)), rounded)
        above = np.nextafter(below, np.float32(np.inf))
        # beyond the largest float32, rounding acts as if 2^128 were the next one
        ends = [np.clip(end.astype(np.float64), -(2.0**128), 2.0**128) for end in (below, above)]
        middle = (ends[0] + ends[1]) / 2
        passes = middle.astype(np.float32) <= below  # a tie is rounded to the even one
    return np.where(below == np.inf, np.inf, np.where(passes, middle, np.nextafter(middle, -np.inf)))


def _flipped(bits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bits of floats as integers of the same order, or turn these back."""
    return bits ^ ((bits >> 63) & np.int64(2**63 - 1))
