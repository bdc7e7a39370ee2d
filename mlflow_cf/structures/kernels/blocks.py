"""Blocks of pairs of changes: all that take one class of values of a feature, and one class of another one.

What both do beyond each alone is one number for all of a block, so that a few numbers tell whether any of them matters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.nodes import Array


class Tables(NamedTuple):
    """What two changes do to the sums beyond each alone, for some pairs of columns.

    Attributes:
        first, second: (p,) the columns of every pair, the first one smaller.
        start: (d + 1,) where the values of every column start among all of them.
        classes: int32 classes of the values of the first column of a pair, then of its second one, pair after pair.
        side: (2 p,) where those of every column of a pair start; counts: (2 p,) how many classes they have.
        place: (p + 1,) where the table of every pair starts, a line per class of the first column.
        added: (n, k) what a pair of classes adds.
    """

    first: Array
    second: Array
    start: Array
    classes: Array
    side: Array
    counts: Array
    place: Array
    added: Array


class SingleEffects(NamedTuple):
    """What values do by themselves, and which two of them count.

    Attributes:
        sums: (t, k) of the row with one of the values; base: (k,) of the row itself.
        cost, peak: (t,) what each adds to the distance; c, limit: two count that are no farther than `limit` in all,
            by the sum of their costs and `c` times the larger peak.
    """

    sums: Array
    base: Array
    cost: Array
    peak: Array
    c: float
    limit: float


class Leading(NamedTuple):
    """What leads: sums that are at least `may` with these `weights` (k,). Where all of both are 0, everything does."""

    weights: Array
    may: float


class Blocks(NamedTuple):
    """Blocks in which two values may count and lead.

    Attributes:
        at: (b, 3) int32 the pair, the class of the first column, and that of the second one.
        far: (b,) the least that they are away; size: (b,) how many pairs of values there are, of those that may count.
        low, high: (b, k) bounds on the sums.
    """

    at: Array
    far: Array
    size: Array
    low: Array
    high: Array


class LeadingPairs(NamedTuple):
    """Pairs of values that count and lead: which they are `at` (n, 2), and their `sums` (n, k)."""

    at: Array
    sums: Array


class Sides(NamedTuple):
    """What the classes of both columns of a pair can do, of the values that may count.

    Attributes:
        cost, peak: (2, classes) the least there is; lead: (2, classes) the largest.
        low, high: (2, classes, k) bounds on the sums.
        size: (2, classes) how many values.
        first, next: a value of every class (2, classes), and the one that comes after each (2, values); -1: there is
            none.
    """

    cost: Array
    peak: Array
    lead: Array
    low: Array
    high: Array
    size: Array
    first: Array
    next: Array


@numba.njit(inline="always")
def _lead(leading: Leading, sums: Array) -> Any:
    """Return the weighted sum of sums (k,)."""
    total = 0.0
    for k in range(sums.size):
        total += leading.weights[k] * sums[k]
    return total


@numba.njit(inline="always")
def _least(tables: Tables, alone: SingleEffects, column: Any) -> Any:
    """Return the least cost of a value of a column."""
    least = np.inf
    for at in range(tables.start[column], tables.start[column + 1]):
        least = min(least, alone.cost[at])
    return least


@numba.njit(inline="always")
def _sum_up(tables: Tables, pair: Any, alone: SingleEffects, leading: Leading, found: Sides) -> None:
    """Write what the classes of both columns of a pair can do, of the values that are within the limit beside some."""
    columns = (tables.first[pair], tables.second[pair])
    for side in range(2):
        column, at_side, classes = columns[side], 2 * pair + side, tables.counts[2 * pair + side]
        start, left = tables.start[column], alone.limit - _least(tables, alone, columns[1 - side])
        found.cost[side, :classes], found.peak[side, :classes], found.lead[side, :classes] = np.inf, np.inf, -np.inf
        found.low[side, :classes], found.high[side, :classes] = np.inf, -np.inf
        found.first[side, :classes], found.size[side, :classes] = -1, 0
        for at in range(tables.start[column + 1] - start - 1, -1, -1):
            value, each = start + at, tables.classes[tables.side[at_side] + at]
            if alone.cost[value] > left:
                continue
            found.next[side, at], found.first[side, each] = found.first[side, each], at
            found.size[side, each] += 1
            found.cost[side, each] = min(found.cost[side, each], alone.cost[value])
            found.peak[side, each] = min(found.peak[side, each], alone.peak[value])
            found.lead[side, each] = max(found.lead[side, each], _lead(leading, alone.sums[value]))
            for k in range(alone.base.size):
                found.low[side, each, k] = min(found.low[side, each, k], alone.sums[value, k])
                found.high[side, each, k] = max(found.high[side, each, k], alone.sums[value, k])


@kernel
def bound_blocks(tables: Tables, alone: SingleEffects, leading: Leading, sides: Sides, found: Blocks) -> int:
    """Write the blocks in which two values may count and lead; return how many they are."""
    count, base = 0, _lead(leading, alone.base)
    for pair in range(tables.first.size):
        _sum_up(tables, pair, alone, leading, sides)
        columns = tables.counts[2 * pair + 1]
        for a in range(tables.counts[2 * pair]):
            place = tables.place[pair] + a * columns
            added, own = tables.added[place : place + columns], sides.lead[0, a] - base
            if not _any_leads(added, own, sides.lead[1], leading):  # mostly, and without a branch
                continue
            for b in range(columns):
                far = sides.cost[0, a] + sides.cost[1, b] + alone.c * max(sides.peak[0, a], sides.peak[1, b])
                if not far <= alone.limit or own + sides.lead[1, b] + _lead(leading, added[b]) < leading.may:
                    continue
                found.at[count, 0], found.at[count, 1], found.at[count, 2] = pair, a, b
                found.far[count], found.size[count] = far, np.int64(sides.size[0, a]) * sides.size[1, b]
                for k in range(alone.base.size):
                    more = added[b, k] - alone.base[k]
                    found.low[count, k] = sides.low[0, a, k] + sides.low[1, b, k] + more
                    found.high[count, k] = sides.high[0, a, k] + sides.high[1, b, k] + more
                count += 1
    return count


@numba.njit(inline="always")
def _any_leads(added: Array, own: Any, leads: Array, leading: Leading) -> Any:
    """Return whether any block of a line leads."""
    if leading.weights.size > 1:
        return True
    hits, weight = np.int64(0), leading.weights[0]
    for b in range(len(added)):
        hits += np.int64(own + leads[b] + weight * added[b, 0] >= leading.may)
    return hits > 0


@kernel
def list_near(
    tables: Tables, alone: SingleEffects, leading: Leading, sides: Sides, blocks: Array, near: LeadingPairs
) -> int:
    """Write the pairs of values of `blocks` (b, 3) that count and lead; return how many they are.

    They are written as far as there is room. The blocks of one pair of columns follow each other.
    """
    cost, sums, count, known, base = alone.cost, alone.sums, 0, -1, _lead(leading, alone.base)
    for at in range(len(blocks)):
        pair, first, second = blocks[at, 0], blocks[at, 1], blocks[at, 2]
        begin, other = tables.start[tables.first[pair]], tables.start[tables.second[pair]]
        if pair != known:
            known = pair
            _sum_up(tables, pair, alone, leading, sides)
        added = tables.added[tables.place[pair] + first * tables.counts[2 * pair + 1] + second]
        more, a = _lead(leading, added) - base, np.int64(sides.first[0, first])
        while a >= 0:
            lead, left = _lead(leading, sums[begin + a]) + more, alone.limit - cost[begin + a]
            b = np.int64(sides.first[1, second]) if lead + sides.lead[1, second] >= leading.may else -1
            while b >= 0:
                far = cost[other + b] + alone.c * max(alone.peak[begin + a], alone.peak[other + b])
                if far <= left and lead + _lead(leading, sums[other + b]) >= leading.may:
                    if count < len(near.at):
                        near.at[count, 0], near.at[count, 1] = begin + a, other + b
                        for k in range(alone.base.size):
                            own = sums[begin + a, k] - alone.base[k]
                            near.sums[count, k] = own + sums[other + b, k] + added[k]
                    count += 1
                b = np.int64(sides.next[1, b])
            a = np.int64(sides.next[0, a])
    return count
