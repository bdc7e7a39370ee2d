"""Pairs: what two changes do to the sums of a row beyond what each of them does alone.

A leaf takes a row iff it takes the cell of every feature it asks about. If exactly the features i and j change, to the
cells a and b, the product of what it takes is ``(o_i + u_i(a)) (o_j + u_j(b))``, where o says whether the leaf takes
the row's own cell, and u how that changes: 1, 0 or -1. The mixed terms are what single changes do, so only ``u_i u_j``
is left, of the leaves that take the row in all features but these two. The cells where u is not 0 are a few runs of
the cells that are tried, so a leaf adds its value to a few rectangles.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.nodes import CUT, FEATURE, Array, Trees

MOST_MISSED = 2  # features in which a leaf that matters does not take the row's own cells


class Paths(NamedTuple):
    """What the leaves of all trees ask, leaf after leaf.

    Attributes:
        start: (leaves + 1,) where the questions of each leaf start.
        asks: (n, 5) int32, per question: the feature; first and last cell that is taken; whether the cell of missing
            values is, the last one of the feature; where in `taken` the flags of its cells start, -1 if the first and
            the last cell say it all.
        taken: flags of cells.
        value: (leaves, k) what each leaf adds.
        leaf: (nodes,) the number of each node's leaf, -1 of all other nodes.
    """

    start: Array
    asks: Array
    taken: Array
    value: Array
    leaf: Array


class Tried(NamedTuple):
    """The cells tried in place of a row's own.

    Attributes:
        cells: the cells tried, feature after feature, ascending; start: (d + 1,) where those of each feature start.
        before: how many of the feature's cells that are tried stand before each of its cells; offset: (d,) where the
            feature starts there.
    """

    cells: Array
    start: Array
    before: Array
    offset: Array


class Asked(NamedTuple):
    """Pairs of features that are asked for.

    Attributes:
        tried: the cells tried; most: of one feature at most.
        number: (d, d) the number of each pair, the smaller feature first, -1 of those that are not asked for.
        some: (d,) which features are in any pair.
    """

    tried: Tried
    most: int
    number: Array
    some: Array


class Rectangles(NamedTuple):
    """Where leaves add to pairs of features: from one of the cells tried to another, of the first and of the second.

    Attributes:
        spans: (n, 5) int32, per rectangle: its pair; the first cell tried, and the one behind the last, of either.
        leaf: (n,) int32 whose value is added; -1 minus its number where it is subtracted.
    """

    spans: Array
    leaf: Array


class Room(NamedTuple):
    """Room to work in, per question of a leaf: the `ends` of its runs, how many, and whether the row is `missed`."""

    ends: Array
    counts: Array
    missed: Array


@numba.njit(inline="always")
def _runs(paths: Paths, at: Any, tried: Tried, missed: Any, ends: Array) -> Any:
    """Write where the runs of tried cells begin and end that pass although the row does not, or the other way round."""
    feature = paths.asks[at, 0]
    start, total = tried.start[feature], tried.start[feature + 1] - tried.start[feature]
    count = 0
    if paths.asks[at, 4] >= 0:
        inside = False
        for place in range(total):
            other = paths.taken[paths.asks[at, 4] + tried.cells[start + place]] == missed
            if other != inside:
                ends[count], inside = place, other
                count += 1
        if inside:
            ends[count] = total
            count += 1
        return count
    low = tried.before[tried.offset[feature] + paths.asks[at, 1]]
    high = max(low, tried.before[tried.offset[feature] + paths.asks[at, 2] + 1])
    if missed:
        ends[0], ends[1] = low, high
        return 2 if low < high else 0
    if low > 0:
        ends[0], ends[1] = 0, low
        count = 2
    if high < total:
        ends[count], ends[count + 1] = high, total
        count += 2
    return count


@kernel
def find_leaves(X: Array, trees: Trees, leaf: Array, asked: Asked, way: Array, found: Array) -> int:
    """Write the leaves that matter for a row of comparands X (columns,) into `found` (n, 3); return how many they are.

    The row does not pass the tests of two features at most on the way to them, which are written beside the leaf; -1:
    there are fewer. What no pair that is asked for leads to is left out. `way` (levels, 8) is room for the nodes that
    wait: how many features were missed, which, and which of the cells tried of each may come there.
    """
    walk, tests, roots, count = trees.walk, trees.nodes.tests, trees.nodes.roots, 0
    for tree in range(roots.size):
        at = 0
        way[0, 0], way[0, 1], way[0, 2], way[0, 3] = roots[tree], 0, -1, -1
        while at >= 0:
            node, misses, one, two = way[at, 0], way[at, 1], way[at, 2], way[at, 3]
            feature, first, second = np.int64(tests[node, FEATURE]), (way[at, 4], way[at, 5]), (way[at, 6], way[at, 7])
            at -= 1
            if feature < 0:
                if leaf[node] >= 0:
                    found[count, 0], found[count, 1], found[count, 2] = leaf[node], one, two
                    count += 1
                continue
            key, left, known = walk.key[node], np.int64(walk.left[node]), feature in (one, two)
            right = np.int64(X[key >> 32] > (key & 0xFFFFFFFF))
            for side in range(2):
                if known or side != right:
                    if not known and not _may_miss(feature, one, misses, asked):
                        continue
                    every = first if feature == one else second if known else (np.int64(0), asked.most)
                    low, high = _cells(feature, side, np.int64(tests[node, CUT]), trees, asked.tried, every)
                    if low >= high:
                        continue
                    is_first = feature == one or (not known and misses == 0)
                    _wait(way, at + 1, (low, high) if is_first else first, second if is_first else (low, high))
                    way[at + 1, 1] = misses + (not known)
                    way[at + 1, 2] = feature if is_first else one
                    way[at + 1, 3] = two if is_first else feature
                else:
                    _wait(way, at + 1, first, second)
                    way[at + 1, 1], way[at + 1, 2], way[at + 1, 3] = misses, one, two
                at += 1
                way[at, 0] = left + side
    return count


@numba.njit(inline="always")
def _may_miss(feature: Any, one: Any, misses: Any, asked: Asked) -> Any:
    """Return whether a pair with one more feature is asked for."""
    if misses == 0:
        return asked.some[feature]
    return misses < MOST_MISSED and asked.number[min(one, feature), max(one, feature)] >= 0


@numba.njit(inline="always")
def _cells(feature: Any, side: Any, cut: Any, trees: Trees, tried: Tried, every: Any) -> Any:
    """Return which of the cells tried pass a test to one side, first and behind the last, of `every` one that comes."""
    low, high = every
    high = min(high, tried.start[feature + 1] - tried.start[feature])
    if trees.features.ordered[feature]:
        split = tried.before[tried.offset[feature] + cut + 1]
        return (max(low, split), high) if side else (low, min(high, split))
    return low, high


@numba.njit(inline="always")
def _wait(way: Array, at: Any, first: Any, second: Any) -> None:
    """Write which cells of two features may come to a node that waits."""
    way[at, 4], way[at, 5] = first
    way[at, 6], way[at, 7] = second


@kernel
def find_rectangles(paths: Paths, leaves: Array, asked: Asked, room: Room, found: Rectangles) -> int:
    """Write the rectangles of pairs of features, as far as there is room for them; return how many there are.

    Args:
        paths, asked, room: as they are.
        leaves: (n, 3) those that matter, with the features in which they miss the row, as `find_leaves` has them.
        found: room for them.
    """
    counts, missed, number, total = room.counts, room.missed, asked.number, 0
    for each in range(len(leaves)):
        leaf, miss, other = leaves[each, 0], leaves[each, 1], leaves[each, 2]
        first, stop, misses = paths.start[leaf], paths.start[leaf + 1], (miss >= 0) + (other >= 0)
        for at in range(first, stop):
            counts[at - first], missed[at - first] = -1, paths.asks[at, 0] in (miss, other)
        for one in range(stop - first):
            if missed[one] + 1 < misses:
                continue
            for two in range(one + 1, stop - first):
                pair = number[paths.asks[first + one, 0], paths.asks[first + two, 0]]
                if missed[one] + missed[two] < misses or pair < 0:
                    continue
                for at in (one, two):
                    if counts[at] < 0:
                        counts[at] = _runs(paths, first + at, asked.tried, missed[at] != 0, room.ends[at])
                total = _note(room, (one, two), (pair, leaf), found, total)
    return total


@numba.njit(inline="always")
def _note(room: Room, asked: Any, whose: Any, found: Rectangles, total: Any) -> Any:
    """Write what a pair and a leaf have by two questions, behind so many rectangles; return how many there are now."""
    (one, two), (pair, leaf) = asked, whose
    signed = leaf if room.missed[one] == room.missed[two] else -1 - leaf
    for a in range(0, room.counts[one], 2):
        for b in range(0, room.counts[two], 2):
            if total < len(found.leaf):
                found.spans[total, 0], found.leaf[total] = pair, signed
                found.spans[total, 1], found.spans[total, 2] = room.ends[one, a], room.ends[one, a + 1]
                found.spans[total, 3], found.spans[total, 4] = room.ends[two, b], room.ends[two, b + 1]
            total += 1
    return total
