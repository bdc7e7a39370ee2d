"""What two changes of a row do together to a network with one layer of rectified units."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
from numpy.typing import NDArray

from mlflow_cf.kernel import kernel

Array = NDArray[Any]


class Units(NamedTuple):
    """The rectified units, and what the values of columns add to them.

    Attributes:
        weights: (width,) of the units in the number that decides.
        added: (width, t) what each value adds, column after column; start: (c + 1,) where each column starts.
        first, second: (p,) the columns of each pair; table: (p + 1,) where its joint effects start.
    """

    weights: Array
    added: Array
    start: Array
    first: Array
    second: Array
    table: Array


@numba.njit(inline="always")
def _sum_up(units: Units, left: Array, begin: Any, end: Any, totals: Array) -> None:
    """Write the weighted sum of the rectified units (end - begin,) of a column's values, beside `left` (width,)."""
    for at in range(end - begin):
        totals[at] = 0.0
    for unit in range(units.weights.size):
        weight, rest, line = units.weights[unit], left[unit], units.added[unit, begin:end]
        for at in range(line.size):  # vectorised: one unit, many values
            totals[at] += weight * max(rest + line[at], 0.0)


@kernel
def add_joint(units: Units, whole: Array, own: Array, room: Array, alone: Array, found: Array) -> None:
    """Write the joint effects `found` (n,) of all pairs of values of a row.

    Args:
        units: see there.
        whole: (width,) the row's units before they are rectified; own: (c, width) what each column adds to them.
        room: (2, max(width, t)) workspace; alone: (t,) for the row with one value changed.
        found: a line per value of a pair's first column.
    """
    left, totals, start, base = room[0], room[1], units.start, 0.0
    for unit in range(whole.size):
        base += units.weights[unit] * max(whole[unit], 0.0)
    for column in range(start.size - 1):
        for unit in range(whole.size):
            left[unit] = whole[unit] - own[column, unit]
        _sum_up(units, left, start[column], start[column + 1], alone[start[column] : start[column + 1]])
    for pair in range(units.first.size):
        one, two = units.first[pair], units.second[pair]
        lines, columns = start[one + 1] - start[one], start[two + 1] - start[two]
        outer, inner, step, stride = one, two, columns, 1
        if lines > columns:
            outer, inner, step, stride = two, one, 1, columns
        for value in range(start[outer], start[outer + 1]):
            for unit in range(whole.size):
                left[unit] = whole[unit] - own[one, unit] - own[two, unit] + units.added[unit, value]
            _sum_up(units, left, start[inner], start[inner + 1], totals)
            place = units.table[pair] + (value - start[outer]) * step
            for at in range(start[inner + 1] - start[inner]):
                found[place + at * stride] = totals[at] - alone[value] - alone[start[inner] + at] + base
