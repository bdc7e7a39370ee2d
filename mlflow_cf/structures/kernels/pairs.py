"""Pairs: what two changes do to the sums of a row beyond what each of them does alone.

A leaf takes a row iff it takes the cell of every feature it asks about. If exactly the features i and j change, to the
cells a and b, the product of what it takes is ``(o_i + u_i(a)) (o_j + u_j(b))``, where o says whether the leaf takes
the row's own cell, and u how that changes: 1, 0 or -1. The mixed terms are what single changes do, so only ``u_i u_j``
is left, of the leaves that take the row in all features but these two. The cells where u is not 0 are a few runs of
the cells that are tried, so a leaf adds its value at the corners of some rectangles, and all is added up at the end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.nodes import FEATURE, Array, Trees

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
        own: (d,) the row's cells.
        cells: the cells tried, feature after feature, ascending; start: (d + 1,) where those of each feature start.
        before: how many of the feature's cells that are tried stand before each of its cells; offset: (d,) where the
            feature starts there.
    """

    own: Array
    cells: Array
    start: Array
    before: Array
    offset: Array


class Wanted(NamedTuple):
    """Pairs of features, the first one smaller.

    Attributes:
        number: (d, d) the number of each pair, -1 of those that are not wanted.
        first, second: (p,) the features.
        place: (p + 1,) where the table of each pair starts, which has a line and a column more than there are cells.
    """

    number: Array
    first: Array
    second: Array
    place: Array


class Alone(NamedTuple):
    """What the cells tried do by themselves, and which two of them count.

    Attributes:
        sums: (t, k) of the row with one of the cells tried; base: (k,) of the row itself.
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
    """What leads, of a single sum: what is, times `toward`, at least `may`."""

    toward: float
    may: float


class Near(NamedTuple):
    """Pairs of cells that count: which of the cells tried they are `at` (n, 2), and their `sums` (n, k)."""

    at: Array
    sums: Array


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


@numba.njit(inline="always")
def _corners(room: Room, one: Any, two: Any, table: Array, width: Any, value: Array) -> None:
    """Add a leaf's value at the corners of its rectangles to a pair's table, whose lines are `width` long."""
    for a in range(room.counts[one]):
        line = room.ends[one, a] * width
        for b in range(room.counts[two]):
            sign = 1.0 - 2.0 * ((a ^ b ^ room.missed[one] ^ room.missed[two]) & 1)
            for place in range(value.size):
                table[line + room.ends[two, b], place] += sign * value[place]


@kernel
def find_leaves(X: Array, trees: Trees, leaf: Array, way: Array, found: Array) -> int:
    """Write the leaves that matter for a row of comparands X (columns,) into `found` (n, 3); return how many they are.

    The row does not pass the tests of two features at most on the way to them, which are written beside the leaf; -1:
    there are fewer. `way` (levels, 4) is room for the nodes that wait, how many features were missed, and which.
    """
    walk, tests, roots, count = trees.walk, trees.nodes.tests, trees.nodes.roots, 0
    for tree in range(roots.size):
        at = 0
        way[0, 0], way[0, 1], way[0, 2], way[0, 3] = roots[tree], 0, -1, -1
        while at >= 0:
            node, misses, one, two = way[at, 0], way[at, 1], way[at, 2], way[at, 3]
            feature = np.int64(tests[node, FEATURE])
            if feature < 0:
                if leaf[node] >= 0:
                    found[count, 0], found[count, 1], found[count, 2] = leaf[node], one, two
                    count += 1
                at -= 1
                continue
            key, left = walk.key[node], np.int64(walk.left[node])
            right = np.int64(X[key >> 32] > (key & 0xFFFFFFFF))
            way[at, 0] = left + right
            known = feature in (one, two)
            if known or misses < MOST_MISSED:
                at += 1
                way[at, 0], way[at, 1] = left + 1 - right, misses + (not known)
                way[at, 2] = one if known or misses else feature
                way[at, 3] = feature if not known and misses else two
    return count


@kernel
def add_pairs(paths: Paths, leaves: Array, tried: Tried, wanted: Wanted, room: Room, out: Array) -> None:
    """Write the tables of the wanted pairs one after the other into `out` (n, k), which is 0.

    `leaves` (n, 3) are those that matter, with the features in which they miss the row, as `find_leaves` has them.
    """
    counts, missed = room.counts, room.missed
    for number in range(len(leaves)):
        leaf, miss, other = leaves[number, 0], leaves[number, 1], leaves[number, 2]
        if other >= 0 and wanted.number[min(miss, other), max(miss, other)] < 0:
            continue  # most leaves matter for a single pair
        first, stop, misses = paths.start[leaf], paths.start[leaf + 1], (miss >= 0) + (other >= 0)
        for at in range(first, stop):
            counts[at - first], missed[at - first] = -1, paths.asks[at, 0] in (miss, other)
        for one in range(stop - first):
            if missed[one] + 1 < misses:
                continue
            for two in range(one + 1, stop - first):
                if missed[one] + missed[two] < misses:
                    continue
                pair = wanted.number[paths.asks[first + one, 0], paths.asks[first + two, 0]]
                if pair < 0:
                    continue
                for at in (one, two):
                    if counts[at] < 0:
                        counts[at] = _runs(paths, first + at, tried, missed[at] != 0, room.ends[at])
                if counts[one] == 0 or counts[two] == 0:
                    continue
                second = wanted.second[pair]
                width = tried.start[second + 1] - tried.start[second] + 1
                _corners(room, one, two, out[wanted.place[pair] : wanted.place[pair + 1]], width, paths.value[leaf])


@kernel
def find_extremes(tried: Tried, wanted: Wanted, tables: Array, alone: Alone, found: Array) -> None:
    """Add up `tables` in place, and write the least and the largest sums (2, p, k) of what counts into `found`."""
    for pair in range(wanted.first.size):
        for k in range(alone.base.size):
            found[0, pair, k], found[1, pair, k] = _extremes(tried, wanted, tables[:, k], alone, pair, k)


@numba.njit(inline="always")
def _extremes(tried: Tried, wanted: Wanted, table: Array, alone: Alone, pair: Any, k: Any) -> Any:
    """Add up a pair's table for one output, and return its least and its largest sum."""
    cost, peak, sums, base = alone.cost, alone.peak, alone.sums, alone.base[k]
    first, second = wanted.first[pair], wanted.second[pair]
    one, two, at = tried.start[first], tried.start[second], wanted.place[pair]
    lines, columns = tried.start[first + 1] - one, tried.start[second + 1] - two
    low, high = np.inf, -np.inf
    for a in range(one, one + lines):
        added, left, own = 0.0, alone.limit - cost[a], sums[a, k] - base
        above = at - columns - 1
        for place in range(columns):
            added += table[at + place]
            both = added + (table[above + place] if a > one else 0.0)
            table[at + place] = both
            b = two + place
            if cost[b] + alone.c * max(peak[a], peak[b]) <= left:
                value = own + sums[b, k] + both
                low, high = min(low, value), max(high, value)
        at += columns + 1
    return low, high


@kernel
def list_near(tried: Tried, wanted: Wanted, some: Array, tables: Array, alone: Alone, near: Near) -> int:
    """Write the cells of `some` pairs that count, and return how many there are.

    The tables are added up by now.
    """
    cost, peak, count = alone.cost, alone.peak, 0
    for pair in some:
        first, second, place = wanted.first[pair], wanted.second[pair], wanted.place[pair]
        two = tried.start[second]
        columns = tried.start[second + 1] - two
        for a in range(tried.start[first], tried.start[first + 1]):
            left = alone.limit - cost[a]
            for b in range(two, two + columns):
                if cost[b] + alone.c * max(peak[a], peak[b]) <= left:
                    near.at[count, 0], near.at[count, 1] = a, b
                    for k in range(alone.base.size):
                        more = alone.sums[b, k] + tables[place + b - two, k]
                        near.sums[count, k] = alone.sums[a, k] - alone.base[k] + more
                    count += 1
            place += columns + 1
    return count


@kernel
def list_leading(tried: Tried, wanted: Wanted, table: Array, alone: Alone, leading: Leading, near: Near) -> int:
    """Add up tables (n,) of a single sum in place; write the cells that count and lead; return how many they are."""
    cost, peak, sums, toward, count = alone.cost, alone.peak, alone.sums[:, 0], leading.toward, 0
    for pair in range(wanted.first.size):
        first, second, at = wanted.first[pair], wanted.second[pair], wanted.place[pair]
        one, two = tried.start[first], tried.start[second]
        columns = tried.start[second + 1] - two
        for a in range(one, tried.start[first + 1]):
            line, above, added = table[at : at + columns], table[max(at - columns - 1, 0) :], 0.0
            for place in range(columns):
                added += line[place]
                line[place] = added if a == one else added + above[place]
            own, hits = sums[a] - alone.base[0], np.int64(0)
            for place in range(columns):
                hits += np.int64(toward * (own + sums[two + place] + line[place]) >= leading.may)
            for place in range(columns if hits else 0):  # seldom; the loop above has no branch
                b, total = two + place, own + sums[two + place] + line[place]
                within = cost[a] + cost[b] + alone.c * max(peak[a], peak[b]) <= alone.limit
                if within and toward * total >= leading.may:
                    near.at[count, 0], near.at[count, 1], near.sums[count, 0] = a, b, total
                    count += 1
            at += columns + 1
    return count
