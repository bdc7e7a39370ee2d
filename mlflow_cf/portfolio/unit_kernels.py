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

Array = NDArray[Any]
TOGETHER: Final = 16  # values that are scored at a time


class Units(NamedTuple):
    """One layer of units, rectified or not, over the values of all features; see `HiddenLayer`.

    Attributes:
        added: (width, TOGETHER + t + TOGETHER) what every value adds to the units, with room on both sides.
        weights: (width,) of the units in the decision score; shift: what is added to it.
        least: (1,) the least value of a unit: 0 of a rectified one, else minus infinity.
        total: (m, width) the units of the rows; own: (m, n, width) what their own value of each feature adds.
        others: (width,) room for the units of a row without one feature.
        scores, places: (TOGETHER,) room for the decision scores of values, and where these are.
    """

    added: Array
    weights: Array
    shift: Array
    least: Array
    total: Array
    own: Array
    others: Array
    scores: Array
    places: Array


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
def _leave_out(units: Units, row: Any, group: Any) -> None:
    """Write the units of a row without what its own value of a feature adds."""
    for unit in range(units.weights.size):
        units.others[unit] = units.total[row, unit] - units.own[row, group, unit]


@inner
def _sample(setting: Setting, rows: BlockRows, row: Any, units: Units, near: Nearest) -> None:
    """Find out how far any change need be looked at, by some values of every number."""
    packed = setting.packed
    for group in range(packed.column.size):
        first, stop = packed.start[group], packed.start[group + 1]
        if setting.frozen[group] or stop - first <= 2 * TOGETHER:
            continue
        _leave_out(units, row, group)
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
    """Settle rows by units that score values as they are looked at."""
    packed = setting.packed
    for row in range(len(rows.X)):
        x0 = rows.X[row]
        begin_row(x0, near)
        lawful = rows.lawful[row] and stays_lawful(setting, x0, near)
        if lawful:
            _sample(setting, rows, row, units, near)
        for group in range(packed.column.size if lawful else 0):
            if setting.frozen[group]:
                continue
            own = x0[packed.column[group]]
            _leave_out(units, row, group)
            ranked = is_ranked(packed, group, own)
            middle = first_above(packed, group, own) if ranked else packed.start[group]
            least = _scan(setting, rows, row, (group, middle, 1, ranked), units, near)
            if ranked:
                below = _scan(setting, rows, row, (group, middle - 1, -1, True), units, near)
                least = min(least, below)
            note_least(least, near)
        settle_row(setting, x0, near, (row, lawful), out)
