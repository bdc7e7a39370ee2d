"""The first layer over tokens, and one hidden layer of rectifiers for all values of a column."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.nodes import Array

BLOCK = 64  # values swept at a time: what they add to every hidden unit stays in the cache


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
def _row(first: First, place: Any, token: Any) -> Any:
    """Return the row of the table that a token stands for."""
    levels = first.levels[place]
    if levels < 0:
        return first.start[place]
    return first.start[place] + (levels + 1 if np.isnan(token) else min(np.int64(token), levels))


@numba.njit(inline="always")
def _add(sums: Array, first: First, place: Any, token: Any) -> None:
    row = _row(first, place, token)
    factor = token if first.levels[place] < 0 else 1.0
    for unit in range(len(sums)):
        sums[unit] += factor * first.table[row, unit]


@kernel
def first_sums(tokens: Array, first: First) -> Array:
    """Return the sums (m, width) of the first layer for tokens (m, all columns')."""
    sums = np.empty((len(tokens), len(first.bias)))
    for row in range(len(tokens)):
        sums[row] = first.bias
        for place in range(tokens.shape[1]):
            _add(sums[row], first, place, tokens[row, place])
    return sums


@kernel
def sums_without(tokens: Array, first: First) -> Array:
    """Return (d, m, width): the sums for tokens (m, all columns'), less those of one column each.

    They are added from both ends, not subtracted, so that nothing is lost beside a large column.
    """
    stop = first.stop
    sums = np.empty((len(stop), len(tokens), len(first.bias)))
    part = np.empty(len(first.bias))
    for row in range(len(tokens)):
        part[:] = first.bias
        place = 0
        for column in range(len(stop)):
            sums[column, row] = part
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
    return sums


@kernel
def first_bounds(tokens: Array, counts: Array, first: First) -> Array:
    """Return (3, width): least and greatest sums of the first layer, and how large their terms are together.

    Args:
        tokens: the allowed tokens of every column, one after the other.
        counts: (d,) how many each column may choose from; first: the layer.
    """
    width = len(first.bias)
    found = np.empty((3, width))
    found[0], found[1], found[2] = first.bias, first.bias, np.abs(first.bias)
    low, high, most = np.empty(width), np.empty(width), np.empty(width)
    added, size = np.empty(width), np.empty(width)
    at = place = 0
    for column in range(len(first.stop)):
        places = first.stop[column] - place
        if not places:
            continue
        mine = tokens[at : at + counts[column] * places]
        at += len(mine)
        if places == 1 and first.levels[place] < 0:
            mine = np.array([mine.min(), mine.max()])  # what is between them adds something between
        low[:], high[:], most[:] = np.inf, -np.inf, 0.0
        for allowed in range(0, len(mine), places):
            added[:], size[:] = 0.0, 0.0
            for part in range(places):
                token = mine[allowed + part]
                row = _row(first, place + part, token)
                factor = token if first.levels[place + part] < 0 else 1.0
                for unit in range(width):
                    term = factor * first.table[row, unit]
                    added[unit] += term
                    size[unit] += abs(term)
            for unit in range(width):
                low[unit] = min(low[unit], added[unit])
                high[unit] = max(high[unit], added[unit])
                most[unit] = max(most[unit], size[unit])
        for unit in range(width):
            found[0, unit] += low[unit]
            found[1, unit] += high[unit]
            found[2, unit] += most[unit]
        place += places
    return found


@kernel
def lines_above(slopes: Array, low: Array, high: Array, terms: Array) -> Any:
    """Return linear functions of the sums of a layer that lie above given ones of these sums rectified.

    Between the bounds of its sum, a rectifier lies below one line and above another (CROWN, Zhang et al. 2018, section
    3); which one counts depends on the sign of its slope.

    Args:
        slopes: (m, width) of the given functions.
        low, high: (width,) bounds of the sums; terms: how large what they are made of is together.

    Returns:
        slopes (m, width), what is added to them (m,), and how large all that is together (m,).
    """
    lines = np.empty(slopes.shape)
    shift, size = np.zeros(len(slopes)), np.zeros(len(slopes))
    for row in range(len(slopes)):
        for unit in range(slopes.shape[1]):
            slope, top, bottom = slopes[row, unit], max(high[unit], 0.0), min(low[unit], 0.0)
            size[row] += abs(slope) * terms[unit]
            if slope > 0.0 and top > bottom:
                lines[row, unit] = slope * (top / (top - bottom))
                shift[row] -= lines[row, unit] * bottom
            else:
                lines[row, unit] = slope if high[unit] > -low[unit] else 0.0
    return lines, shift, size


@kernel
def _added(tokens: Array, first: First, block: Array) -> None:
    """Write what tokens (t, places of one column) add to every unit into `block` (width, t or more)."""
    column = np.empty(len(tokens))
    block[:] = 0.0
    for place in range(tokens.shape[1]):
        column[:] = tokens[:, place]
        number = first.levels[place] < 0
        for unit in range(len(block)):
            weights = first.table[:, unit]
            if number:
                weight = weights[first.start[place]]
                for value in range(len(column)):
                    block[unit, value] += column[value] * weight
            else:
                for value in range(len(column)):
                    block[unit, value] += weights[_row(first, place, column[value])]


@kernel
def sweep_rectified(others: Array, tokens: Array, first: First, weights: Array, bias: Array, totals: Array) -> None:
    """Write the last sums (m, t, k) of a network with one hidden layer of rectifiers.

    Values run in the innermost loop, so that it is vectorised without adding in another order.

    Args:
        others: (m, width) sums of the first layer without one column.
        tokens: (t, places) the values of this column; first: the first layer over this column alone.
        weights, bias: (width, k) and (k,) of the last layer.
        totals: (m, t, k) where the sums are written.
    """
    width, outputs = weights.shape
    block, sums = np.empty((width, BLOCK)), np.empty((outputs, BLOCK))
    for start in range(0, len(tokens), BLOCK):
        size = min(BLOCK, len(tokens) - start)
        _added(tokens[start : start + size], first, block)
        for row in range(len(others)):
            for output in range(outputs):
                sums[output] = bias[output]
                for unit in range(width):
                    base, weight = others[row, unit], weights[unit, output]
                    for value in range(size):
                        sums[output, value] += weight * np.maximum(base + block[unit, value], 0.0)
                for value in range(size):
                    totals[row, start + value, output] = sums[output, value]
