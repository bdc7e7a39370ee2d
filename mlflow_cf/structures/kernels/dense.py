"""The first layer over tokens, and lines above rectifiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.nodes import Array


class First(NamedTuple):
    """The first layer as a table: a token is a number that scales one row of it, or a level that picks one.

    Attributes:
        table: (rows, width) weights of numbers and of every level.
        start: (tokens,) first row of a token.
        levels: (tokens,) number of levels, whose rows are followed by those of unseen and missing ones; -1: a number.
        stop: (d,) where the tokens of each column end, if those of all columns stand side by side.
        bias: (width,) what is added to the sums.
    """

    table: Array
    start: Array
    levels: Array
    stop: Array
    bias: Array


@numba.njit(inline="always")
def row_of(first: First, place: Any, token: Any) -> Any:
    """Return the row of the table that a token stands for."""
    levels = first.levels[place]
    if levels < 0:
        return first.start[place]
    return first.start[place] + (levels + 1 if np.isnan(token) else min(np.int64(token), levels))


@numba.njit(inline="always")
def _add(sums: Array, first: First, place: Any, token: Any) -> None:
    row = row_of(first, place, token)
    factor = token if first.levels[place] < 0 else 1.0
    for unit in range(len(sums)):
        sums[unit] += factor * first.table[row, unit]


@kernel
def add_tokens(tokens: Array, first: First, sums: Array) -> None:
    """Write what `first_sums` returns into `sums`."""
    for row in range(len(tokens)):
        for unit in range(len(first.bias)):
            sums[row, unit] = first.bias[unit]
        for place in range(tokens.shape[1]):
            _add(sums[row], first, place, tokens[row, place])


def first_sums(tokens: Array, first: First) -> Array:
    """Return the sums (m, width) of the first layer for tokens (m, all columns')."""
    sums = np.empty((len(tokens), len(first.bias)))
    add_tokens(tokens, first, sums)
    return sums


@kernel
def add_others(tokens: Array, first: First, part: Array, sums: Array) -> None:
    """Write what `sums_without` returns into `sums`; `part` (width,) is room to work in."""
    stop = first.stop
    for row in range(len(tokens)):
        place = 0
        for unit in range(len(part)):
            part[unit] = first.bias[unit]
        for column in range(len(stop)):
            for unit in range(len(part)):
                sums[column, row, unit] = part[unit]
            while place < stop[column]:
                _add(part, first, place, tokens[row, place])
                place += 1
        part[:] = 0.0
        for column in range(len(stop) - 1, -1, -1):
            for unit in range(len(part)):
                sums[column, row, unit] += part[unit]
            while place > (stop[column - 1] if column else 0):
                place -= 1
                _add(part, first, place, tokens[row, place])


def sums_without(tokens: Array, first: First) -> Array:
    """Return (d, m, width): the sums for tokens (m, all columns'), less those of one column each.

    They are added from both ends, not subtracted, so that nothing is lost beside a large column.
    """
    sums = np.empty((len(first.stop), len(tokens), len(first.bias)))
    add_others(tokens, first, np.empty(len(first.bias)), sums)
    return sums


@kernel
def add_values(tokens: Array, counts: Array, first: First, added: Array, most: Array) -> None:
    """Write what `value_sums` returns into `added` and `most`."""
    at = value = place = 0
    for column in range(len(counts)):
        places = first.stop[column] - place
        for _ in range(counts[column]):
            added[value], most[value] = 0.0, 0.0
            for part in range(places):
                row = row_of(first, place + part, tokens[at])
                factor = tokens[at] if first.levels[place + part] < 0 else 1.0
                for unit in range(added.shape[1]):
                    term = factor * first.table[row, unit]
                    added[value, unit] += term
                    most[value, unit] += abs(term)
                at += 1
            value += 1
        place += places


def value_sums(tokens: Sequence[Array], first: First) -> tuple[Array, Array]:
    """Return what every value of every column adds to the sums (v, width), and how large its terms are together.

    Args:
        tokens: per column those (t, places) of its values; first: the layer.
    """
    counts = np.array([len(values) for values in tokens])
    added, most = np.empty((2, int(counts.sum()), len(first.bias)))
    add_values(np.concatenate([values.ravel() for values in tokens]), counts, first, added, most)
    return added, most


@kernel
def add_swept(others: Array, added: Array, counts: Array, swept: Array) -> None:
    """Write the sums (p * v, width), column after column: of every row the others' (d, p, width), and each value's."""
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
    """Add to sums `low` and `high` (m, width) the least and the most that columns add with the choices of each mask.

    Args:
        masks: (m, choices) which are allowed.
        added: (choices, width) what each adds; starts: (d,) the first of every column.
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
    """What a column can add to every unit (width,): least, most, and how large its terms are; `added`, `size`: one."""

    low: Array
    high: Array
    most: Array
    added: Array
    size: Array


@numba.njit(inline="always")
def _reach(reached: ColumnRange, tokens: Array, first: First, place: Any, places: Any) -> None:
    """Write what a column adds at the least and at the most, for its allowed tokens (t * places,)."""
    low, high, most, added, size = reached.low, reached.high, reached.most, reached.added, reached.size
    low[:], high[:], most[:] = np.inf, -np.inf, 0.0
    for allowed in range(0, len(tokens), places):
        added[:], size[:] = 0.0, 0.0
        for part in range(places):
            token = tokens[allowed + part]
            row = row_of(first, place + part, token)
            factor = token if first.levels[place + part] < 0 else 1.0
            for unit in range(len(low)):
                term = factor * first.table[row, unit]
                added[unit] += term
                size[unit] += abs(term)
        for unit in range(len(low)):
            low[unit] = min(low[unit], added[unit])
            high[unit] = max(high[unit], added[unit])
            most[unit] = max(most[unit], size[unit])


@numba.njit(inline="always")
def _ends(tokens: Array, ends: Array) -> None:
    """Write the least and the greatest of some tokens into `ends`; NaN if there is one among them."""
    ends[:] = tokens[0]
    for place in range(1, len(tokens)):
        token = tokens[place]
        ends[0] = token if np.isnan(token) else min(ends[0], token)
        ends[1] = token if np.isnan(token) else max(ends[1], token)


@kernel
def add_bounds(tokens: Array, counts: Array, first: First, reached: ColumnRange, ends: Array, found: Array) -> None:
    """Write what `first_bounds` returns into `found`; `reached` and `ends` (2,) are room to work in."""
    at = place = 0
    for unit in range(len(first.bias)):
        bias = first.bias[unit]
        found[0, unit], found[1, unit], found[2, unit] = bias, bias, abs(bias)
    for column in range(len(first.stop)):
        places = first.stop[column] - place
        if not places:
            continue
        mine = tokens[at : at + counts[column] * places]
        at += len(mine)
        if places == 1 and first.levels[place] < 0:
            _ends(mine, ends)  # what is between them adds something between
            mine = ends[:]
        _reach(reached, mine, first, place, places)
        for unit in range(len(first.bias)):
            found[0, unit] += reached.low[unit]
            found[1, unit] += reached.high[unit]
            found[2, unit] += reached.most[unit]
        place += places


def first_bounds(tokens: Array, counts: Array, first: First) -> Array:
    """Return (3, width): least and greatest sums of the first layer, and how large their terms are together.

    Args:
        tokens: the allowed tokens of every column, one after the other.
        counts: (d,) how many each column may choose from; first: the layer.
    """
    found, room = np.empty((3, len(first.bias))), np.empty((5, len(first.bias)))
    add_bounds(tokens, counts, first, ColumnRange(*room), np.empty(2), found)
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
    """Return linear functions of the sums of a layer that lie above given ones of these sums rectified.

    Between the bounds of its sum, a rectifier lies below one line and above another (CROWN, Zhang et al. 2018, section
    3); which one counts depends on the sign of its slope.

    Args:
        slopes: (m, width) of the given functions.
        low, high: (width,) bounds of the sums; terms: how large what they are made of is together.

    Returns:
        slopes (m, width), what is added to them (m,), and how large all that is together (m,).
    """
    lines, added = np.empty(slopes.shape), np.empty((2, len(slopes)))
    draw_lines(slopes, low, high, terms, lines, added)
    return lines, added[0], added[1]
