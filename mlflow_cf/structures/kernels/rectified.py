"""Sweeps of networks with one hidden layer of rectifiers: all values of all columns at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.dense import First, row_of, sums_without
from mlflow_cf.structures.kernels.nodes import Array

BLOCK: Final = 64  # values swept at a time: what they add to every hidden unit stays in the cache
MOST: Final = 1 << 20  # numbers that a sweep holds at a time beside its result: 8 MB


class Last(NamedTuple):
    """The last layer: weights (width, k) and bias (k,)."""

    weights: Array
    bias: Array


class Swept(NamedTuple):
    """What is swept.

    Attributes:
        others: (d, m, width) sums of the first layer without one column each.
        tokens: those of the values of all columns, one after the other; counts: (d,) how many values each has.
        wanted: (m, d) which columns of which rows are swept.
    """

    others: Array
    tokens: Array
    counts: Array
    wanted: Array


class SweepWorkspace(NamedTuple):
    """Room to work in: (width, BLOCK) what values add to every unit, their sums (k, BLOCK), and themselves (BLOCK,)."""

    added: Array
    sums: Array
    column: Array


@numba.njit(inline="always")
def _put_added(tokens: Array, first: First, place: Any, places: Any, room: SweepWorkspace) -> None:
    """Write what values with tokens (t * places,) of one column add to every unit."""
    room.added[:] = 0.0
    size = len(tokens) // places
    for part in range(places):
        for value in range(size):
            room.column[value] = tokens[value * places + part]
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
    """Write the last sums (t, k) of values, from what they add and the other columns' sums `base` (width,)."""
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
    base: Array, tokens: Array, weights: Array, last: Last, room: SweepWorkspace, totals: Array
) -> None:
    """Do the same for numbers (t,) with `weights` (width,), without writing down what they add."""
    for output in range(len(last.bias)):
        sums = room.sums[output]
        sums[:] = last.bias[output]
        for unit in range(len(base)):
            other, weight, mine = base[unit], last.weights[unit, output], weights[unit]
            for value in range(len(tokens)):
                sums[value] += weight * np.maximum(other + tokens[value] * mine, 0.0)
        for value in range(len(tokens)):
            totals[value, output] = sums[value]


@kernel
def rectify(swept: Swept, first: First, last: Last, room: SweepWorkspace, totals: Array) -> None:
    """Write the last sums `totals` (m, values of all columns, k).

    Values run in the innermost loop, so that it is vectorised without adding in another order.
    """
    token = at = place = 0
    for column in range(swept.counts.size):
        places = first.stop[column] - place
        number = places == 1 and first.levels[place] < 0
        for start in range(0, swept.counts[column], BLOCK):
            size = min(BLOCK, swept.counts[column] - start)
            tokens = swept.tokens[token + start * places : token + (start + size) * places]
            if not number:
                _put_added(tokens, first, place, places, room)
            for row in range(len(swept.wanted)):
                if not swept.wanted[row, column]:
                    continue
                base, found = swept.others[column, row], totals[row, at + start : at + start + size]
                if number:
                    _put_sums_of_numbers(base, tokens, first.table[first.start[place]], last, room, found)
                else:
                    _put_sums(base, size, last, room, found)
        token += swept.counts[column] * places
        at += swept.counts[column]
        place += places


def sweep_rectified(
    rows: Array, values: Sequence[Array | None], wanted: Array | None, first: First, last: Last
) -> list[Array | None]:
    """Return per column the last sums (m, t, k) of every row with this one column's value replaced.

    Args:
        rows: (m, all columns') tokens of the rows.
        values: per column the tokens (t, places) of its values, None for a column that is not swept.
        wanted: (m, d) where False, any sums will do.
        first, last: the layers.
    """
    counts = np.array([0 if some is None else len(some) for some in values])
    tokens = np.concatenate([np.empty(0), *(some.ravel() for some in values if some is not None)])
    flags = np.ones((len(rows), len(values)), np.bool_) if wanted is None else np.ascontiguousarray(wanted)
    width, totals = len(first.bias), np.empty((len(rows), int(counts.sum()), len(last.bias)))
    room = SweepWorkspace(np.empty((width, BLOCK)), np.empty((len(last.bias), BLOCK)), np.empty(BLOCK))
    many = max(1, MOST // (len(values) * width))
    for start in range(0, len(rows), many):
        part = slice(start, start + many)
        swept = Swept(sums_without(rows[part], first), tokens, counts, flags[part])
        rectify(swept, first, last, room, totals[part])
    ends = np.cumsum([0, *counts]).tolist()
    return [
        None if some is None else np.ascontiguousarray(totals[:, low:high])
        for some, (low, high) in zip(values, pairwise(ends), strict=True)
    ]
