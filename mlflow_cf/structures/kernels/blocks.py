"""Bounds on blocks of pairs of changes: a block is one class of values of one feature times one class of another.

The joint effect is constant on a block, so the raw scores of all its pairs are bounded by a few numbers. A class is
made of the cells of a feature that no edge of a rectangle of leaves separates. The table of a pair has a row and a
column per class, so that it is small even where thousands of cells are tried.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.pairs import Rectangles, TriedCells
from mlflow_cf.structures.kernels.trees import Array


class Tables(NamedTuple):
    """Joint effects of two changes on raw scores, beyond the sum of their single effects, for some pairs of columns.

    Attributes:
        first, second: (p,) the columns of every pair, first < second.
        start: (d + 1,) offset of every column in the concatenated values of all columns.
        classes: int32 class of each value of the first column of a pair, then of its second column, pair after pair.
        side: (2 p,) offset of every column of a pair in `classes`; counts: (2 p,) its number of classes.
        place: (p + 1,) offset of the table of every pair in `added`, a row per class of the first column.
        added: (n, k) joint effect of a pair of classes.
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
    """Single changes of a row, and the distance limit for two of them.

    Attributes:
        sums: (t, k) raw scores of the row with one value changed; base: (k,) of the row itself.
        cost, peak: (t,) the additive and the maximum part of each change's distance.
        c: weight of the maximum part: the distance of two changes is the sum of costs plus `c` times the larger peak.
        limit: pairs farther away than this are ignored.
    """

    sums: Array
    base: Array
    cost: Array
    peak: Array
    c: float
    limit: float


class Threshold(NamedTuple):
    """Pairs whose weighted raw score, `weights` (k,), is at least `least` pass; all do if weights and least are 0."""

    weights: Array
    least: float


class Blocks(NamedTuple):
    """Blocks with a pair of values that may be within the limit and pass the threshold.

    Attributes:
        at: (b, 3) int32 number of the pair of columns, class of the first column, class of the second.
        far: (b,) lower bound on the distance; size: (b,) number of pairs of values that may be within the limit.
        low, high: (b, k) bounds on the raw scores.
    """

    at: Array
    far: Array
    size: Array
    low: Array
    high: Array


class ListedPairs(NamedTuple):
    """Pairs within the limit that pass the threshold: both values `at` (n, 2), raw scores `sums` (n, k)."""

    at: Array
    sums: Array


class Sides(NamedTuple):
    """Ranges of the single effects in every class of both columns of a pair, over values that may be within the limit.

    Attributes:
        cost, peak: (2, classes) least ones; score: (2, classes) largest weighted raw score.
        low, high: (2, classes, k) least and largest raw scores.
        size: (2, classes) number of values.
        first, next: linked lists of the values of each class: its first value (2, classes), and the one after each
            value (2, values); -1 ends a list.
    """

    cost: Array
    peak: Array
    score: Array
    low: Array
    high: Array
    size: Array
    first: Array
    next: Array


@numba.njit(inline="always")
def decision_of(threshold: Threshold, sums: Array) -> Any:
    """Return the weighted sum of raw scores (k,)."""
    total = 0.0
    for k in range(sums.size):
        total += threshold.weights[k] * sums[k]
    return total


@numba.njit(inline="always")
def _least_cost(tables: Tables, alone: SingleEffects, column: Any) -> Any:
    """Return the least cost of a value of a column."""
    least = np.inf
    for at in range(tables.start[column], tables.start[column + 1]):
        least = min(least, alone.cost[at])
    return least


@numba.njit(inline="always")
def sum_up(tables: Tables, pair: Any, alone: SingleEffects, threshold: Threshold, found: Sides) -> None:
    """Write `Sides` of a pair, over the values that are within the limit with some value of the other column."""
    columns = (tables.first[pair], tables.second[pair])
    for side in range(2):
        column, at_side, classes = columns[side], 2 * pair + side, tables.counts[2 * pair + side]
        start, left = tables.start[column], alone.limit - _least_cost(tables, alone, columns[1 - side])
        found.cost[side, :classes], found.peak[side, :classes], found.score[side, :classes] = np.inf, np.inf, -np.inf
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
            found.score[side, each] = max(found.score[side, each], decision_of(threshold, alone.sums[value]))
            for k in range(alone.base.size):
                found.low[side, each, k] = min(found.low[side, each, k], alone.sums[value, k])
                found.high[side, each, k] = max(found.high[side, each, k], alone.sums[value, k])


@kernel
def bound_blocks(tables: Tables, alone: SingleEffects, threshold: Threshold, sides: Sides, found: Blocks) -> int:
    """Write `Blocks` and return their number."""
    count, base = 0, decision_of(threshold, alone.base)
    for pair in range(tables.first.size):
        sum_up(tables, pair, alone, threshold, sides)
        columns = tables.counts[2 * pair + 1]
        for a in range(tables.counts[2 * pair]):
            place = tables.place[pair] + a * columns
            added, own = tables.added[place : place + columns], sides.score[0, a] - base
            if not any_reaches(added, own, sides.score[1], threshold):  # mostly, and without a branch
                continue
            for b in range(columns):
                far = sides.cost[0, a] + sides.cost[1, b] + alone.c * max(sides.peak[0, a], sides.peak[1, b])
                if (
                    not far <= alone.limit
                    or own + sides.score[1, b] + decision_of(threshold, added[b]) < threshold.least
                ):
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
def any_reaches(added: Array, own: Any, scores: Array, threshold: Threshold) -> Any:
    """Return whether any block of a row of the table may pass the threshold; True without looking if k > 1."""
    if threshold.weights.size > 1:
        return True
    hits, weight = np.int64(0), threshold.weights[0]
    for b in range(len(added)):
        hits += np.int64(own + scores[b] + weight * added[b, 0] >= threshold.least)
    return hits > 0


@kernel
def list_near(
    tables: Tables, alone: SingleEffects, threshold: Threshold, sides: Sides, blocks: Array, near: ListedPairs
) -> int:
    """Write the pairs of values of `blocks` (b, 3) within the limit that pass the threshold; return their number.

    No more are written than fit into `near`. Blocks of the same pair of columns must be adjacent.
    """
    cost, sums, count, known, base = alone.cost, alone.sums, 0, -1, decision_of(threshold, alone.base)
    for at in range(len(blocks)):
        pair, first, second = blocks[at, 0], blocks[at, 1], blocks[at, 2]
        begin, other = tables.start[tables.first[pair]], tables.start[tables.second[pair]]
        if pair != known:
            known = pair
            sum_up(tables, pair, alone, threshold, sides)
        added = tables.added[tables.place[pair] + first * tables.counts[2 * pair + 1] + second]
        more, a = decision_of(threshold, added) - base, np.int64(sides.first[0, first])
        while a >= 0:
            score, left = decision_of(threshold, sums[begin + a]) + more, alone.limit - cost[begin + a]
            b = np.int64(sides.first[1, second]) if score + sides.score[1, second] >= threshold.least else -1
            while b >= 0:
                far = cost[other + b] + alone.c * max(alone.peak[begin + a], alone.peak[other + b])
                if far <= left and score + decision_of(threshold, sums[other + b]) >= threshold.least:
                    if count < len(near.at):
                        near.at[count, 0], near.at[count, 1] = begin + a, other + b
                        for k in range(alone.base.size):
                            own = sums[begin + a, k] - alone.base[k]
                            near.sums[count, k] = own + sums[other + b, k] + added[k]
                    count += 1
                b = np.int64(sides.next[1, b])
            a = np.int64(sides.next[0, a])
    return count


@kernel
def find_classes(rectangles: Rectangles, tried: TriedCells, order: Array, ends: Array, tables: Tables) -> None:
    """Write the classes of the tried cells, their numbers, and the offsets of the tables of pairs into `tables`.

    Cells that no rectangle separates are of one class.

    Args:
        rectangles: of all pairs; tried: the cells.
        order: (t,) position of each of the cells among the values.
        ends: zeros, one per entry of `tables.classes` and one more per side; overwritten by the classes of the cells
            of every side in ascending order, then the number of classes.
        tables: where the results are written.
    """
    spans = rectangles.spans
    for at in range(len(spans)):
        for part in range(4):
            side = 2 * spans[at, 0] + part // 2
            ends[tables.side[side] + side + spans[at, 1 + part]] = 1
    for side in range(tables.counts.size):
        feature = tables.second[side // 2] if side % 2 else tables.first[side // 2]
        begin, known, flag = tried.start[feature], -1, tables.side[side] + side
        size = tried.start[feature + 1] - begin
        for place in range(size):
            known += ends[flag + place] if place else 1
            ends[flag + place] = known
            tables.classes[tables.side[side] + order[begin + place] - begin] = known
        tables.counts[side] = ends[flag + size] = known + 1
    for pair in range(tables.first.size):
        tables.place[pair + 1] = tables.place[pair] + tables.counts[2 * pair] * tables.counts[2 * pair + 1]


@kernel
def add_rectangles(rectangles: Rectangles, value: Array, ends: Array, tables: Tables) -> None:
    """Add the `value` (nodes, k) of each rectangle's leaf to the zero tables, at corners, then as prefix sums."""
    spans, added = rectangles.spans, tables.added
    for at in range(len(rectangles.leaf)):
        leaf, output, pair = rectangles.leaf[at, 0], rectangles.leaf[at, 1], spans[at, 0]
        first, second = tables.side[2 * pair] + 2 * pair, tables.side[2 * pair + 1] + 2 * pair + 1
        lines, columns = tables.counts[2 * pair], tables.counts[2 * pair + 1]
        for corner in range(4):
            line, column = ends[first + spans[at, 1 + corner // 2]], ends[second + spans[at, 3 + corner % 2]]
            if line < lines and column < columns:
                sign = 1.0 if (corner in (0, 3)) == (leaf >= 0) else -1.0
                place = tables.place[pair] + line * columns + column
                for k in range(value.shape[1]):
                    added[place, max(k, output)] += sign * value[max(leaf, -1 - leaf), k]
    for pair in range(tables.first.size):
        begin, columns = tables.place[pair], tables.counts[2 * pair + 1]
        for k in range(added.shape[1]):
            for line in range(tables.counts[2 * pair]):
                total, place = 0.0, begin + line * columns
                for column in range(columns):
                    total += added[place + column, k]
                    added[place + column, k] = total + (added[place + column - columns, k] if line else 0.0)


@kernel
def copy_tables(tables: Tables, kinds: Array, begin: int, whole: Tables) -> None:
    """Write the joint effects of one structure into the tables of several.

    Args:
        tables: of the structure; whole: of all of them, whose classes are finer.
        kinds: the structure's class of every class of `whole`, of the columns of one pair after the other.
        begin: where its raw scores start among those of `whole`.
    """
    outputs, at = tables.added.shape[1], 0
    for pair in range(tables.first.size):
        lines, columns = whole.counts[2 * pair], whole.counts[2 * pair + 1]
        width = tables.counts[2 * pair + 1]
        for line in range(lines):
            own = tables.place[pair] + kinds[at + line] * width
            place = whole.place[pair] + line * columns
            for column in range(columns):
                for k in range(outputs):
                    added = tables.added[own + kinds[at + lines + column], k]
                    whole.added[place + column, begin + k] = added
        at += lines + columns
