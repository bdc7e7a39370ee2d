"""Sweeps of networks with one hidden layer of rectifiers: all values of all columns at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.dense import First, row_of, sums_without
from mlflow_cf.structures.kernels.trees import Array

BLOCK: Final = 64  # values swept at a time: their contributions to all hidden units stay in the cache
MOST: Final = 1 << 20  # floats that a sweep holds at a time beside its result: 8 MB


class Last(NamedTuple):
    """The last layer: weights (width, k) and bias (k,)."""

    weights: Array
    bias: Array


class Swept(NamedTuple):
    """Arguments of a sweep.

    Attributes:
        others: (d, m, width) first layer of the rows without the terms of each column.
        entries: entries of the values of all columns, concatenated; counts: (d,) number of values of each column.
        wanted: (m, d) which columns of which rows are swept.
    """

    others: Array
    entries: Array
    counts: Array
    wanted: Array


class SweepWorkspace(NamedTuple):
    """Workspace: contributions to units (width, BLOCK), raw scores (k, BLOCK), one entry of the values (BLOCK,)."""

    added: Array
    sums: Array
    column: Array


@numba.njit(inline="always")
def _put_added(entries: Array, first: First, place: Any, places: Any, room: SweepWorkspace) -> None:
    """Write the contributions of one column's values, of entries (t * places,), to every unit."""
    room.added[:] = 0.0
    size = len(entries) // places
    for part in range(places):
        for value in range(size):
            room.column[value] = entries[value * places + part]
        number = first.levels[place + part] < 0
        for unit in range(len(room.added)):
            weights = first.table[:, unit]
            if number:
                weight = weights[first.start[place + part]]
                for value in range(size):
                    room.added[unit, value] += room.column[value] * weight
            else:
                for value in range(size):
                    room.added[unit, value] += weights[row_of(first, place + part, room.column[value])]


@numba.njit(inline="always")
def _put_sums(base: Array, size: Any, last: Last, room: SweepWorkspace, totals: Array) -> None:
    """Write raw scores (t, k) of values, given their contributions and those of the other columns, `base` (width,)."""
    for output in range(len(last.bias)):
        sums = room.sums[output]
        sums[:] = last.bias[output]
        for unit in range(len(base)):
            other, weight, added = base[unit], last.weights[unit, output], room.added[unit]
            for value in range(size):
                sums[value] += weight * np.maximum(other + added[value], 0.0)
        for value in range(size):
            totals[value, output] = sums[value]


@numba.njit(inline="always")
def _put_sums_of_numbers(
    base: Array, entries: Array, weights: Array, last: Last, room: SweepWorkspace, totals: Array
) -> None:
    """Do the same for numbers (t,) with `weights` (width,), whose contributions are not stored."""
    for output in range(len(last.bias)):
        sums = room.sums[output]
        sums[:] = last.bias[output]
        for unit in range(len(base)):
            other, weight, mine = base[unit], last.weights[unit, output], weights[unit]
            for value in range(len(entries)):
                sums[value] += weight * np.maximum(other + entries[value] * mine, 0.0)
        for value in range(len(entries)):
            totals[value, output] = sums[value]


@kernel
def rectify(swept: Swept, first: First, last: Last, room: SweepWorkspace, totals: Array) -> None:
    """Write the raw scores `totals` (m, values of all columns, k).

    Values run in the innermost loop, so that it is vectorised without changing the order of additions.
    """
    entry = at = place = 0
    for column in range(swept.counts.size):
        places = first.stop[column] - place
        number = places == 1 and first.levels[place] < 0
        for start in range(0, swept.counts[column], BLOCK):
            size = min(BLOCK, swept.counts[column] - start)
            entries = swept.entries[entry + start * places : entry + (start + size) * places]
            if not number:
                _put_added(entries, first, place, places, room)
            for row in range(len(swept.wanted)):
                if not swept.wanted[row, column]:
                    continue
                base, found = swept.others[column, row], totals[row, at + start : at + start + size]
                if number:
                    _put_sums_of_numbers(base, entries, first.table[first.start[place]], last, room, found)
                else:
                    _put_sums(base, size, last, room, found)
        entry += swept.counts[column] * places
        at += swept.counts[column]
        place += places


def sweep_rectified(
    rows: Array, values: Sequence[Array | None], wanted: Array | None, first: First, last: Last
) -> list[Array | None]:
    """Return, per column, the raw scores (m, t, k) of rows with this column alone set to each of its values.

    Args:
        rows: (m, entries) entries of all columns.
        values: per column the entries (t, places) of its values, None for a column that is not swept.
        wanted: (m, d) where False, the raw scores may be anything.
        first, last: the layers.
    """
    counts = np.array([0 if some is None else len(some) for some in values])
    entries = np.concatenate([np.empty(0), *(some.ravel() for some in values if some is not None)])
    flags = np.ones((len(rows), len(values)), np.bool_) if wanted is None else np.ascontiguousarray(wanted)
    width, totals = len(first.bias), np.empty((len(rows), int(counts.sum()), len(last.bias)))
    room = SweepWorkspace(np.empty((width, BLOCK)), np.empty((len(last.bias), BLOCK)), np.empty(BLOCK))
    many = max(1, MOST // (len(values) * width))
    for start in range(0, len(rows), many):
        part = slice(start, start + many)
        swept = Swept(sums_without(rows[part], first), entries, counts, flags[part])
        rectify(swept, first, last, room, totals[part])
    ends = np.cumsum([0, *counts]).tolist()
    return [
        None if some is None else np.ascontiguousarray(totals[:, low:high])
        for some, (low, high) in zip(values, pairwise(ends), strict=True)
    ]
