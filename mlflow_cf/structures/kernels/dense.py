"""The first layer as a table over entries, linear bounds of rectifiers, and sweeps of one hidden layer of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.trees import Array


class First(NamedTuple):
    """The first layer as a table: an entry is a number that scales one row of it, or a level that picks one.

    Attributes:
        table: (rows, width) weights of numbers and of every level.
        start: (entries,) first row of an entry.
        levels: (entries,) number of levels, followed by a row for unseen and one for missing values; -1: a number.
        stop: (d,) end of each column in the concatenated entries of all columns.
        bias: (width,) added to all rows.
    """

    table: Array
    start: Array
    levels: Array
    stop: Array
    bias: Array


@numba.njit(inline="always")
def row_of(first: First, place: Any, entry: Any) -> Any:
    """Return the row of the table for an entry."""
    levels = first.levels[place]
    if levels < 0:
        return first.start[place]
    return first.start[place] + (levels + 1 if np.isnan(entry) else min(np.int64(entry), levels))


@numba.njit(inline="always")
def _add(sums: Array, first: First, place: Any, entry: Any) -> None:
    row = row_of(first, place, entry)
    factor = entry if first.levels[place] < 0 else 1.0
    for unit in range(len(sums)):
        sums[unit] += factor * first.table[row, unit]


@kernel
def add_entries(entries: Array, first: First, sums: Array) -> None:
    """Write what `first_sums` returns into `sums`."""
    for row in range(len(entries)):
        for unit in range(len(first.bias)):
            sums[row, unit] = first.bias[unit]
        for place in range(entries.shape[1]):
            _add(sums[row], first, place, entries[row, place])


def first_sums(entries: Array, first: First) -> Array:
    """Return the first layer (m, width) for the entries (m, entries) of all columns."""
    sums = np.empty((len(entries), len(first.bias)))
    add_entries(entries, first, sums)
    return sums


@kernel
def add_others(entries: Array, first: First, part: Array, sums: Array) -> None:
    """Write what `sums_without` returns into `sums`; `part` (width,) is room to work in."""
    stop = first.stop
    for row in range(len(entries)):
        place = 0
        for unit in range(len(part)):
            part[unit] = first.bias[unit]
        for column in range(len(stop)):
            for unit in range(len(part)):
                sums[column, row, unit] = part[unit]
            while place < stop[column]:
                _add(part, first, place, entries[row, place])
                place += 1
        part[:] = 0.0
        for column in range(len(stop) - 1, -1, -1):
            for unit in range(len(part)):
                sums[column, row, unit] += part[unit]
            while place > (stop[column - 1] if column else 0):
                place -= 1
                _add(part, first, place, entries[row, place])


def sums_without(entries: Array, first: First) -> Array:
    """Return (d, m, width): the first layer for entries (m, entries) without the terms of each column.

    They are prefix plus suffix sums, since subtracting a large column would lose precision.
    """
    sums = np.empty((len(first.stop), len(entries), len(first.bias)))
    add_others(entries, first, np.empty(len(first.bias)), sums)
    return sums


@numba.njit(inline="always")
def put_terms(entries: Array, first: First, place: Any, added: Array, size: Array) -> None:
    """Write what a value of entries (places,) adds to the first layer (width,), and its sums of absolute terms."""
    added[:], size[:] = 0.0, 0.0
    for part in range(len(entries)):
        row = row_of(first, place + part, entries[part])
        factor = entries[part] if first.levels[place + part] < 0 else 1.0
        for unit in range(len(added)):
            term = factor * first.table[row, unit]
            added[unit] += term
            size[unit] += abs(term)


@kernel
def add_values(entries: Array, counts: Array, first: First, added: Array, most: Array) -> None:
    """Write what `value_sums` returns into `added` and `most`."""
    at = value = place = 0
    for column in range(len(counts)):
        places = first.stop[column] - place
        for _ in range(counts[column]):
            put_terms(entries[at : at + places], first, place, added[value], most[value])
            at += places
            value += 1
        place += places


def value_sums(entries: Sequence[Array], first: First) -> tuple[Array, Array]:
    """Return what every value of every column adds to the first layer (v, width), and its sums of absolute terms.

    Args:
        entries: per column the entries (t, places) of its values; first: the layer.
    """
    counts = np.array([len(values) for values in entries])
    added, most = np.empty((2, int(counts.sum()), len(first.bias)))
    add_values(np.concatenate([values.ravel() for values in entries]), counts, first, added, most)
    return added, most


@kernel
def add_swept(others: Array, added: Array, counts: Array, swept: Array) -> None:
    """Write `others` (d, p, width) plus `added` (v, width), column by column, to `swept`."""
    at = value = 0
    for column in range(len(counts)):
        for row in range(others.shape[1]):
            for own in range(value, value + counts[column]):
                for unit in range(added.shape[1]):
                    swept[at, unit] = others[column, row, unit] + added[own, unit]
                at += 1
        value += counts[column]


@kernel
def add_ends(masks: Array, added: Array, starts: Array, low: Array, high: Array) -> None:
    """Add every column's least and largest contribution in each box to `low` and `high` (m, width).

    Args:
        masks: (m, n) the values of each box.
        added: (n, width) contribution of each value; starts: (d,) offset of every column.
    """
    for box in range(len(masks)):
        for column in range(len(starts)):
            stop = starts[column + 1] if column + 1 < len(starts) else len(added)
            for unit in range(added.shape[1]):
                least, greatest = np.inf, -np.inf
                for choice in range(starts[column], stop):
                    if masks[box, choice]:
                        least, greatest = min(least, added[choice, unit]), max(greatest, added[choice, unit])
                low[box, unit] += least
                high[box, unit] += greatest


class ColumnRange(NamedTuple):
    """Range of a column's contributions (width,): low, high, most absolute terms; `added`, `size`: workspace."""

    low: Array
    high: Array
    most: Array
    added: Array
    size: Array


@numba.njit(inline="always")
def _reach(reached: ColumnRange, entries: Array, first: First, place: Any, places: Any) -> None:
    """Write the range of a column's contributions over its allowed entries (t * places,)."""
    low, high, most, added, size = reached.low, reached.high, reached.most, reached.added, reached.size
    low[:], high[:], most[:] = np.inf, -np.inf, 0.0
    for allowed in range(0, len(entries), places):
        put_terms(entries[allowed : allowed + places], first, place, added, size)
        for unit in range(len(low)):
            low[unit] = min(low[unit], added[unit])
            high[unit] = max(high[unit], added[unit])
            most[unit] = max(most[unit], size[unit])


@numba.njit(inline="always")
def _ends(entries: Array, ends: Array) -> None:
    """Write the least and the largest of some entries into `ends` (2,); NaN if one of them is missing."""
    ends[:] = entries[0]
    for place in range(1, len(entries)):
        entry = entries[place]
        ends[0] = entry if np.isnan(entry) else min(ends[0], entry)
        ends[1] = entry if np.isnan(entry) else max(ends[1], entry)


@kernel
def add_bounds(entries: Array, counts: Array, first: First, reached: ColumnRange, ends: Array, found: Array) -> None:
    """Write what `first_bounds` returns into `found`; `reached` and `ends` (2,) are room to work in."""
    at = place = 0
    for unit in range(len(first.bias)):
        bias = first.bias[unit]
        found[0, unit], found[1, unit], found[2, unit] = bias, bias, abs(bias)
    for column in range(len(first.stop)):
        places = first.stop[column] - place
        if not places:
            continue
        mine = entries[at : at + counts[column] * places]
        at += len(mine)
        if places == 1 and first.levels[place] < 0:
            _ends(mine, ends)  # a linear term is extreme at an end
            mine = ends[:]
        _reach(reached, mine, first, place, places)
        for unit in range(len(first.bias)):
            found[0, unit] += reached.low[unit]
            found[1, unit] += reached.high[unit]
            found[2, unit] += reached.most[unit]
        place += places


def first_bounds(entries: Array, counts: Array, first: First) -> Array:
    """Return (3, width): lower and upper bounds on the first layer, and bounds on its sums of absolute terms.

    Args:
        entries: the allowed entries of all columns, concatenated.
        counts: (d,) number of allowed values per column; first: the layer.
    """
    found, room = np.empty((3, len(first.bias))), np.empty((5, len(first.bias)))
    add_bounds(entries, counts, first, ColumnRange(*room), np.empty(2), found)
    return found


@kernel
def draw_lines(slopes: Array, low: Array, high: Array, terms: Array, lines: Array, added: Array) -> None:
    """Write what `lines_above` returns into `lines` and `added` (2, m)."""
    added[:] = 0.0
    for row in range(len(slopes)):
        for unit in range(slopes.shape[1]):
            slope, top, bottom = slopes[row, unit], max(high[unit], 0.0), min(low[unit], 0.0)
            added[1, row] += abs(slope) * terms[unit]
            if slope > 0.0 and top > bottom:
                lines[row, unit] = slope * (top / (top - bottom))
                added[0, row] -= lines[row, unit] * bottom
            else:
                lines[row, unit] = slope if high[unit] > -low[unit] else 0.0


def lines_above(slopes: Array, low: Array, high: Array, terms: Array) -> tuple[Array, Array, Array]:
    """Return linear functions of a layer before activation that lie above given ones of its rectified units.

    Between its bounds, a rectifier lies below one line and above another (CROWN, Zhang et al. 2018, section 3); the
    sign of its slope decides which one is needed.

    Args:
        slopes: (m, width) of the given functions.
        low, high: (width,) bounds before activation; terms: (width,) sums of absolute terms.

    Returns:
        Slopes (m, width), intercepts (m,), and sums of absolute terms (m,), which bound rounding errors.
    """
    lines, added = np.empty(slopes.shape), np.empty((2, len(slopes)))
    draw_lines(slopes, low, high, terms, lines, added)
    return lines, added[0], added[1]


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
def _put_added(entries: Array, size: Any, first: First, span: Any, room: SweepWorkspace) -> None:
    """Write the contributions of one column's values (size,) to every unit.

    Args:
        entries: (size * places,) of the values; size: how many values there are.
        first: the layer; span: the column's first place there, and how many it has: none if the network ignores it.
        room: where contributions are written.
    """
    place, places = span
    room.added[:] = 0.0
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
                _put_added(entries, size, first, (place, places), room)
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
