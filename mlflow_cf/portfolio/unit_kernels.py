"""The nearest single change of each row of a block by one layer of units, which score values as they are looked at."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.kernel import inner, kernel
from mlflow_cf.portfolio.kernels import (
    BlockRows,
    Nearest,
    Setting,
    Singles,
    begin_row,
    consider,
    cost_at,
    first_above,
    is_lawful,
    is_ranked,
    note_least,
    settle_row,
    stays_lawful,
)
from mlflow_cf.rounding import loosened
from mlflow_cf.structures.kernels.dense import First, put_terms

Array = NDArray[Any]
TOGETHER: Final = 16  # values that are scored at a time
ULPS: Final = 64 * float(np.finfo(np.float64).eps)  # of units: their sums are added up otherwise than by the model


class RowUnits(NamedTuple):
    """Rows as the first layer reads them, and the units of the one that is looked at.

    Attributes:
        entries: (m, places) of the rows; first: the layer.
        slack: (1,) a bound on rounding errors of the score.
        total: (width,) the units; own: (d, width) what the row's own value of each feature adds to them.
        size: (2, width) room for sums of absolute terms.
    """

    entries: Array
    first: First
    slack: Array
    total: Array
    own: Array
    size: Array

    @classmethod
    def of(cls, entries: Array, first: First, slack: float) -> RowUnits:
        """Return rows of which none is looked at yet."""
        width = len(first.bias)
        return cls(
            entries, first, np.array([slack]), np.empty(width), np.empty((len(first.stop), width)), np.empty((2, width))
        )


class Units(NamedTuple):
    """One layer of units, rectified or not, over the values of all features; see `HiddenLayer`.

    Attributes:
        added: (width, TOGETHER + t + TOGETHER) what every value adds to the units, with room on both sides.
        weights: (width,) of the units in the decision score; shift: what is added to it.
        least: (1,) the least value of a unit: 0 of a rectified one, else minus infinity.
        rows: the units of the rows.
        others: (width,) room for the units of a row without one feature.
        scores, places: (TOGETHER,) room for the decision scores of values, and where these are.
    """

    added: Array
    weights: Array
    shift: Array
    least: Array
    rows: RowUnits
    others: Array
    scores: Array
    places: Array


@inner
def read_row(rows: RowUnits, row: Any, weights: Array, shift: Any) -> Any:
    """Write the units of a row; return by how much rounding may move its scores."""
    first, total, (size, terms), place = rows.first, rows.total, rows.size, 0
    total[:], size[:] = 0.0, 0.0
    for feature in range(first.stop.size):
        own, stop = rows.own[feature], first.stop[feature]
        put_terms(rows.entries[row, place:stop], first, place, own, terms)
        for unit in range(total.size):
            total[unit] += own[unit]
            size[unit] += abs(own[unit])
        place = stop
    moved = abs(shift)
    for unit in range(total.size):
        total[unit] += first.bias[unit]
        moved += abs(weights[unit]) * (size[unit] + abs(first.bias[unit]))
    return rows.slack[0] + ULPS * moved


@inner
def _score_neighbours(units: Units, first: Any) -> None:
    """Write the decision scores of the values from place `first` on."""
    least, scores = units.least[0], units.scores
    for at in range(TOGETHER):
        scores[at] = units.shift[0]
    for unit in range(units.weights.size):
        others, weight, added = units.others[unit], units.weights[unit], units.added[unit]
        for at in range(TOGETHER):
            value = others + added[first + TOGETHER + at]
            scores[at] += weight * (max(least, value))


@inner
def _score_sampled(units: Units, first: Any, stop: Any) -> None:
    """Write the decision scores of some values between two places, and where they are."""
    least, scores = units.least[0], units.scores
    for at in range(TOGETHER):
        scores[at] = units.shift[0]
        units.places[at] = first + at * (stop - first - 1) // (TOGETHER - 1)
    for unit in range(units.weights.size):
        others, weight, added = units.others[unit], units.weights[unit], units.added[unit]
        for at in range(TOGETHER):
            value = others + added[units.places[at] + TOGETHER]
            scores[at] += weight * (max(least, value))


@inner
def _leave_out(units: Units, group: Any) -> None:
    """Write the units of the row without what its own value of a feature adds."""
    for unit in range(units.weights.size):
        units.others[unit] = units.rows.total[unit] - units.rows.own[group, unit]


@inner
def _sample(setting: Setting, rows: BlockRows, row: Any, units: Units, near: Nearest) -> None:
    """Find out how far any change need be looked at, by some values of every number."""
    packed = setting.packed
    for group in range(packed.column.size):
        first, stop = packed.start[group], packed.start[group + 1]
        if setting.frozen[group] or stop - first <= 2 * TOGETHER:
            continue
        _leave_out(units, group)
        _score_sampled(units, first, stop)
        own = rows.X[row, packed.column[group]]
        for at in range(TOGETHER):
            place = units.places[at]
            if units.scores[at] < rows.sure[row] or packed.values[place] == own:
                continue
            limit = loosened(cost_at(setting, rows, row, group, place))
            if limit < near.cutoff[0] and is_lawful(setting, rows.X[row], near, group, place):
                near.cutoff[0] = limit


@inner
def _scan(setting: Setting, rows: BlockRows, row: Any, span: Any, units: Units, near: Nearest) -> Any:
    """Look at the values of a feature from a place on, up or down; return what the cheapest costs at least."""
    packed, (group, place, step, ranked) = setting.packed, span
    first, stop, least = packed.start[group], packed.start[group + 1], np.inf
    x0 = rows.X[row]
    own, scored = x0[packed.column[group]], stop
    while first <= place < stop:
        if packed.values[place] != own:
            far = cost_at(setting, rows, row, group, place)
            least = min(least, far)
            if far > near.cutoff[0]:
                if ranked:
                    break
            else:
                if not scored <= place < scored + TOGETHER:
                    scored = place if step > 0 else place - TOGETHER + 1
                    _score_neighbours(units, scored)
                score = units.scores[place - scored]
                if score >= rows.may[row] and is_lawful(setting, x0, near, group, place):
                    consider(near, group, place, far, 1.0 if score >= rows.sure[row] else 0.0)
        place += step
    return least


@kernel
def nearest_by_units(setting: Setting, rows: BlockRows, units: Units, near: Nearest, out: Singles) -> None:
    """Settle rows by units that score values as they are looked at; widen their doubt by what rounding may move."""
    packed = setting.packed
    for row in range(len(rows.X)):
        x0 = rows.X[row]
        begin_row(x0, near)
        lawful = rows.lawful[row] and stays_lawful(setting, x0, near)
        if lawful:
            off = read_row(units.rows, row, units.weights, units.shift[0])
            rows.may[row] -= off
            rows.sure[row] += off
            _sample(setting, rows, row, units, near)
        for group in range(packed.column.size if lawful else 0):
            if setting.frozen[group]:
                continue
            own = x0[packed.column[group]]
            _leave_out(units, group)
            ranked = is_ranked(packed, group, own)
            middle = first_above(packed, group, own) if ranked else packed.start[group]
            least = _scan(setting, rows, row, (group, middle, 1, ranked), units, near)
            if ranked:
                below = _scan(setting, rows, row, (group, middle - 1, -1, True), units, near)
                least = min(least, below)
            note_least(least, near)
        settle_row(setting, x0, near, (row, lawful), out)
