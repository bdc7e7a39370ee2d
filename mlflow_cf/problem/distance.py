"""One distance for all explainers: weighted l0, l1 and l-infinity over scaled changes (GeCo section 2).

The scaled change of one feature, d_i there, for kernels and whole arrays alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.features import FeatureSpace, Floats, Percentiles
from mlflow_cf.kernel import kernel
from mlflow_cf.policy.distance import Distance

LEAST_SHIFT = float(np.finfo(np.float64).eps)  # of a change, as a share of the background


@dataclass(frozen=True, eq=False)
class BoundDistance:
    """A distance bound to the features.

    Attributes:
        a, b, c: weights of the l0, l1 and l-infinity parts.
        scale: (d,) divisor of a numeric change; 0 where a change is 0 or 1: levels, and numbers without spread.
        percentiles: changes count background rows between two values; None: they are differences of values.
        unknown_from: (d,) codes from here on have no rank; leaving one behind is a change of 1.
        weights: (d,) feature weights.
    """

    a: float
    b: float
    c: float
    scale: Floats
    unknown_from: Floats
    weights: Floats
    percentiles: Percentiles | None = None

    @classmethod
    def bind(cls, distance: Distance, space: FeatureSpace) -> BoundDistance:
        """Bind `distance` to `space`.

        Raises:
            InputError: a weight for something that is not a feature.
        """
        for name in distance.weights:
            if name not in space.index:
                fix = did_you_mean(name, space.names, "features")
                raise InputError(f"distance.weights.{name}", "not a feature", fix)
        percentiles = space.percentiles if distance.scale == "percentile" else None
        spread = [
            (f.high - f.low if distance.scale == "range" else f.mad) if f.has_order else 0.0 for f in space.features
        ]
        scale = np.array(spread) if percentiles is None else percentiles.rows
        weights = np.array([distance.weights.get(name, 1.0) for name in space.names])
        return cls(distance.l0, distance.l1, distance.linf, scale, space.unknown_from, weights, percentiles)

    def positions(self, columns: NDArray[np.intp], values: Floats) -> Floats:
        """Return the numbers whose differences are changes, for values (n,) or (m, n) of `columns` (n,).

        They are the values themselves, or with percentiles the number of background rows below each.
        """
        return values if self.percentiles is None else self.percentiles.rows_below(columns, values)

    def changes(self, columns: NDArray[np.intp], values: Floats, own: Floats) -> Floats:
        """Return d_i, the scaled changes from the query row's own values.

        Args:
            columns: (n,) column of each value, or of each column of values.
            values: (n,) or (m, n) codes.
            own: (n,) codes of the query row in these columns, or (m, n) of a row each.
        """
        at, own_at = self.positions(columns, values), self.positions(columns, own)
        found = np.empty(np.broadcast_shapes(values.shape, own.shape))
        scaled = Scaled(self.scale[columns], self.unknown_from[columns], self.least)
        measure_changes(_rows(values), _rows(own), _rows(at), _rows(own_at), scaled, np.atleast_2d(found))
        return found

    @property
    def least(self) -> float:
        """The least change of a number: rounding may map two values to one number of rows."""
        return 0.0 if self.percentiles is None else LEAST_SHIFT

    def contributions(self, columns: NDArray[np.intp], values: Floats, own: Floats) -> tuple[Floats, Floats]:
        """Return what each change adds to the sum, and its weighted change as a share of the largest weight."""
        weights = self.weights[columns]
        change = self.changes(columns, values, own) * weights
        changed = np.where(change != 0, weights, 0.0)
        return (self.a * changed + self.b * change) / self.all_weights, change / self.top_weight

    def parts(self, columns: tuple[int, ...], values: Floats, own: Floats) -> tuple[Floats, Floats]:
        """Return what actions of one group add to the sum (m,), and their largest weighted change (m,).

        Args:
            columns: the group's columns.
            values: (m, len(columns)) codes.
            own: (len(columns),) the query row's codes.
        """
        part, top = self.contributions(np.array(columns, dtype=np.intp), values, own)
        return _in_order(part.T), top.max(axis=1)

    @cached_property
    def all_weights(self) -> float:
        """The sum of the features' weights."""
        return float(self.weights.sum())

    @cached_property
    def top_weight(self) -> float:
        """The largest of them."""
        return float(self.weights.max())

    def distance(self, groups: tuple[tuple[int, ...], ...], Z: Floats, x0: Floats) -> Floats:
        """Return the distance (m,) of rows Z (m, d) from x0 (d,) or (m, d), added up group by group in order.

        Every bound and table adds the same parts in the same order, so distances compare exactly, without tolerance.
        """
        values, own, found = _rows(Z), _rows(x0), np.empty(len(Z))
        at, own_at = self.positions(self._columns, values), self.positions(self._columns, own)
        rows = MeasuredRows(values, own, at, own_at)
        parts = self._single_features if len(groups) == len(self._columns) else PartOrder.of(groups)
        add_changes(rows, self._scaled, self.weights, self.formula, parts, found)
        return found

    @cached_property
    def _single_features(self) -> PartOrder:
        """The order of parts where every group is a single feature."""
        return PartOrder(self._columns, np.arange(len(self._columns) + 1))

    @cached_property
    def formula(self) -> DistanceFormula:
        """The distance as numbers for kernels."""
        return DistanceFormula(float(self.a), float(self.b), float(self.c), self.all_weights, self.top_weight)

    @cached_property
    def _scaled(self) -> Scaled:
        return Scaled(self.scale, self.unknown_from, self.least)

    @cached_property
    def _columns(self) -> NDArray[np.intp]:
        return np.arange(len(self.scale))


def _rows(values: Floats) -> Floats:
    """Return values (n,) or (m, n) as rows."""
    return np.atleast_2d(np.ascontiguousarray(values, dtype=np.float64))


def _in_order(parts: Iterable[Floats]) -> Floats:
    """Add up arrays (m,) one after the other; `sum` of numpy would add them in another order."""
    total: Floats = reduce(np.add, parts)
    return total


Array = NDArray[Any]


class Scaled(NamedTuple):
    """How the changes of columns are measured.

    Attributes:
        scale: (n,) divisor of a numeric change; 0 where only [differs] counts.
        unknown_from: (n,) codes from here on have no rank; leaving one behind is a change of 1.
        least: no change of a number is less than this.
    """

    scale: Array
    unknown_from: Array
    least: float


@numba.njit(inline="always")
def scaled_change(value: Any, own: Any, at: Any, own_at: Any, scaled: Scaled, column: Any) -> Any:
    """Return the change from the query row's own value to another one, which stand at `at` and `own_at` on a line."""
    same = value == own or (np.isnan(value) and np.isnan(own))
    unknown_from = scaled.unknown_from[column]
    if scaled.scale[column] != 0 and own < unknown_from and value < unknown_from:  # not where one is missing
        change = abs(at - own_at) / scaled.scale[column]
        return change if same else max(change, scaled.least)
    return 0.0 if same else 1.0


class DistanceFormula(NamedTuple):
    """What changes add to a distance: `a` for each, `b` times its size, and `c` times the largest.

    Attributes:
        a, b, c: weights of the l0, l1 and l-infinity parts.
        all_weights, top_weight: the sum and the largest of the features' weights.
    """

    a: float
    b: float
    c: float
    all_weights: float
    top_weight: float


@numba.njit(inline="always")
def cost_of(change: Any, weight: Any, formula: DistanceFormula) -> Any:
    """Return what a weighted change of a feature with this weight adds to the sum."""
    return (formula.a * (weight if change != 0 else 0.0) + formula.b * change) / formula.all_weights


class MeasuredRows(NamedTuple):
    """Rows (m, d), what they are measured from, (m, d) or (1, d), and both as `BoundDistance.positions` maps them."""

    values: Array
    own: Array
    at: Array
    own_at: Array


class PartOrder(NamedTuple):
    """The order in which the parts of a distance are added up: each group by itself, then all groups.

    Attributes:
        columns: (d,) group after group; start: (G + 1,) where every group starts.
    """

    columns: Array
    start: Array

    @classmethod
    def of(cls, groups: Sequence[Sequence[int]]) -> PartOrder:
        """Return the order of groups of columns."""
        columns = [column for some in groups for column in some]
        return cls(np.array(columns, dtype=np.intp), np.cumsum([0, *map(len, groups)]))


@kernel
def add_changes(
    rows: MeasuredRows, scaled: Scaled, weights: Array, formula: DistanceFormula, parts: PartOrder, found: Array
) -> None:
    """Write the distances `found` (m,) of rows."""
    for row in range(found.size):
        other, total, top = row if len(rows.own) > 1 else 0, 0.0, 0.0
        for group in range(parts.start.size - 1):
            part = 0.0
            for column in parts.columns[parts.start[group] : parts.start[group + 1]]:
                value, own = rows.values[row, column], rows.own[other, column]
                place, own_place = rows.at[row, column], rows.own_at[other, column]
                change = scaled_change(value, own, place, own_place, scaled, column) * weights[column]
                part += cost_of(change, weights[column], formula)
                top = max(top, change / formula.top_weight)
            total += part
        found[row] = total + formula.c * top if formula.c != 0 else total


@kernel
def measure_changes(values: Array, own: Array, at: Array, own_at: Array, scaled: Scaled, found: Array) -> None:
    """Write the changes (m, n) of values (m, n) or (1, n) from own ones (m, n) or (1, n)."""
    for row in range(found.shape[0]):
        mine, other = row if len(values) > 1 else 0, row if len(own) > 1 else 0
        for column in range(found.shape[1]):
            place, own_place = at[mine, column], own_at[other, column]
            found[row, column] = scaled_change(
                values[mine, column], own[other, column], place, own_place, scaled, column
            )
