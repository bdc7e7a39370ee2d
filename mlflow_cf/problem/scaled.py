"""The scaled change of one feature, d_i of GeCo's section 2, for kernels and whole arrays alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from mlflow_cf.kernel import kernel

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
