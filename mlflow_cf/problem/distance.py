"""One distance for all explainers: weighted l0, l1 and l-infinity over scaled changes (GeCo section 2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.features import FeatureSpace, Floats, Percentiles
from mlflow_cf.policy.distance import Distance
from mlflow_cf.problem.scaled import DistanceFormula, MeasuredRows, PartOrder, Scaled, add_changes, measure_changes

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
        unknown_from = np.array([f.unknown_from for f in space.features])
        return cls(distance.l0, distance.l1, distance.linf, scale, unknown_from, weights, percentiles)

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
