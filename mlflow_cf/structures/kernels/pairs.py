"""Joint effects of two changes on the raw scores of a row, beyond the sum of their single effects.

A leaf accepts a row iff it accepts its cell of every feature. If exactly the features i and j change, to the cells a
and b, the product of both indicators is ``(o_i + u_i(a)) (o_j + u_j(b))``, where o is 1 if the leaf accepts the row's
own cell, and u is its change: 1, 0 or -1. The mixed terms are the single effects, so the joint effect is ``u_i u_j``,
summed over the leaves that accept the row in all features but these two. The cells where u is not 0 are a few runs of
the tried cells, so a leaf adds its value to a few rectangles.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.trees import CUT, FEATURE, LEFT, TEST, Array, Trees, is_set


class TriedCells(NamedTuple):
    """The cells tried in place of a row's own.

    Attributes:
        cells: the tried cells of all features, ascending within a feature; start: (d + 1,) offset of each feature.
        before: number of tried cells of a feature before each of its cells, feature after feature; offset: (d,) where
            each feature starts there.
    """

    cells: Array
    start: Array
    before: Array
    offset: Array


class FeaturePairs(NamedTuple):
    """The requested pairs of features.

    Attributes:
        tried: the tried cells; most: the largest number of them for one feature.
        number: (d, d) the number of each pair, the smaller feature first; -1: it is not requested.
        some: (d,) which features are in any pair.
    """

    tried: TriedCells
    most: int
    number: Array
    some: Array


class Rectangles(NamedTuple):
    """Where leaves contribute to pairs of features: a run of tried cells of the first times one of the second.

    Attributes:
        spans: (n, 5) int32, per rectangle: its pair; start and stop of the run of the first feature, and of the second.
        leaf: (n, 2) int32 the leaf whose value is added, or -1 - leaf if it is subtracted; and the output it
            belongs to, -1: it has a value for each.
    """

    spans: Array
    leaf: Array


class PairWorkspace(NamedTuple):
    """Workspace.

    Attributes:
        way: (levels, 5) stack of nodes: node, depth, which child it is, and up to two features whose tests on the path
            the row fails, else -1.
        trail: (levels, 7) the tests on the path to the present node, see the columns below.
        passing: (d, 3) start and stop of the tried cells of every feature that pass all cuts on the path; and the
            feature's position among the `slots`, or -1.
        slots: (levels, 3) features on the path that are in a requested pair; whether the row fails them; and how many
            `ends` (levels, most + 3) of runs of their cells there are.
    """

    way: Array
    trail: Array
    passing: Array
    slots: Array
    ends: Array


# Columns of a trail: the feature; `passing` above the node; number of tried cells that go left; the row of the test's
# table, -1 for a cut; the child that was taken; the number of slots above.
ON, LOW, HIGH, SPLIT, TABLE, SIDE, TAKEN = range(7)


@kernel
def find_rectangles(X: Array, trees: Trees, asked: FeaturePairs, room: PairWorkspace, found: Rectangles) -> int:
    """Write the rectangles of pairs of features, no more than fit; return how many there are.

    A leaf matters if the row, of comparands X (columns,), fails the tests of at most two features on the path to it.
    Subtrees that matter for no requested pair are skipped.
    """
    walk, tests, way, trail = trees.walk, trees.nodes.tests, room.way, room.trail
    total, known = 0, 0
    for each in range(len(room.passing)):
        size = asked.tried.start[each + 1] - asked.tried.start[each]
        room.passing[each, 0], room.passing[each, 1], room.passing[each, 2] = 0, size, -1
    for tree in range(trees.nodes.roots.size):
        at = 0
        way[0, 0], way[0, 1], way[0, 2], way[0, 3], way[0, 4] = trees.nodes.roots[tree], 0, 0, -1, -1
        while at >= 0:
            node, depth, one, two = way[at, 0], way[at, 1], way[at, 3], way[at, 4]
            taken = _follow(known, depth, way[at, 2], asked, room)
            known, feature = depth, np.int64(tests[node, FEATURE])
            at -= 1
            if feature < 0:
                whose = (node, trees.nodes.outputs[tree], depth, taken)
                total = _add_leaf(whose, (one, two), trees, asked, (room, found), total)
                continue
            _note_test(node, trail[depth], taken, trees, asked, room)
            key, left, again = walk.key[node], np.int64(tests[node, LEFT]), feature in (one, two)
            right = np.int64(X[key >> 32] > (key & 0xFFFFFFFF))
            for side in range(2):
                first, second = one, two
                if again or side != right:
                    if not again:
                        if not _may_miss(feature, one, two, asked):
                            continue
                        first, second = (feature, two) if one < 0 else (one, feature)
                    low, high = _narrowed(trail[depth], side)
                    if low >= high:
                        continue
                at += 1
                way[at, 0], way[at, 1], way[at, 2], way[at, 3], way[at, 4] = left + side, depth + 1, side, first, second
    return total


@numba.njit(inline="always")
def _narrowed(test: Array, side: Any) -> Any:
    """Return start and stop of the tried cells that pass a test, among those that reach it."""
    if test[TABLE] >= 0:
        return test[LOW], test[HIGH]
    return (max(test[LOW], test[SPLIT]), test[HIGH]) if side else (test[LOW], min(test[HIGH], test[SPLIT]))


@numba.njit(inline="always")
def _follow(known: Any, depth: Any, side: Any, asked: FeaturePairs, room: PairWorkspace) -> Any:
    """Move the trail from its `known` depth to a child at another depth; return the number of slots."""
    trail, passing = room.trail, room.passing
    for at in range(known - 1, max(depth - 1, 0) - 1, -1):
        feature = trail[at, ON]
        passing[feature, 0], passing[feature, 1] = trail[at, LOW], trail[at, HIGH]
        if passing[feature, 2] >= trail[at, TAKEN]:
            passing[feature, 2] = -1
    if depth == 0:
        return np.int64(0)
    trail[depth - 1, SIDE], feature, taken = side, trail[depth - 1, ON], trail[depth - 1, TAKEN]
    passing[feature, 0], passing[feature, 1] = _narrowed(trail[depth - 1], side)
    if passing[feature, 2] >= 0 or not asked.some[feature]:
        return taken
    room.slots[taken, 0], passing[feature, 2] = feature, taken
    return taken + 1


@numba.njit(inline="always")
def _note_test(node: Any, test: Array, taken: Any, trees: Trees, asked: FeaturePairs, room: PairWorkspace) -> None:
    """Write the test of a node into its row of the trail."""
    tests, tried = trees.nodes.tests, asked.tried
    feature = np.int64(tests[node, FEATURE])
    test[ON], test[LOW], test[HIGH] = feature, room.passing[feature, 0], room.passing[feature, 1]
    test[SPLIT], test[TABLE], test[TAKEN] = 0, tests[node, TEST], taken
    if asked.some[feature] and test[TABLE] < 0:
        test[SPLIT] = tried.before[tried.offset[feature] + tests[node, CUT] + 1]


@numba.njit(inline="always")
def _may_miss(feature: Any, one: Any, two: Any, asked: FeaturePairs) -> Any:
    """Return whether some requested pair has all failed features and one more."""
    if one < 0:
        return asked.some[feature]
    return two < 0 and asked.number[min(one, feature), max(one, feature)] >= 0


@numba.njit(inline="always")
def _add_leaf(whose: Any, missed: Any, trees: Trees, asked: FeaturePairs, into: Any, total: Any) -> Any:
    """Append the rectangles of a leaf, whose tests the row fails in some features, to `total`; return the new total."""
    (node, output, depth, taken), (one, two), (room, found) = whose, missed, into
    slots = room.slots
    for slot in range(taken):
        slots[slot, 1] = slots[slot, 0] in (one, two)
        if two < 0 or slots[slot, 1]:
            slots[slot, 2] = _runs(slot, depth, trees, asked, room)
    for a in range(taken):
        if one >= 0 and not slots[a, 1]:
            continue  # all pairs contain the failed features
        for b in range(0 if one >= 0 else a + 1, taken):
            if a == b or (two >= 0 and (a > b or not slots[b, 1])):
                continue
            low, high = (a, b) if slots[a, 0] < slots[b, 0] else (b, a)
            pair = asked.number[slots[low, 0], slots[high, 0]]
            if pair >= 0:
                leaf = node if slots[a, 1] == slots[b, 1] else -1 - node
                total = _add((pair, leaf, output), low, high, room, found, total)
    return total


@numba.njit(inline="always")
def _runs(slot: Any, depth: Any, trees: Trees, asked: FeaturePairs, room: PairWorkspace) -> Any:
    """Write starts and stops of the runs of tried cells that pass where the row fails, or fail where it passes.

    Returns how many numbers were written.
    """
    feature, missed, ends, tried, count = room.slots[slot, 0], room.slots[slot, 1], room.ends[slot], asked.tried, 0
    start, total = tried.start[feature], tried.start[feature + 1] - tried.start[feature]
    if not trees.features.ordered[feature]:
        inside = 0
        for place in range(total):
            passes = _passes(np.int64(tried.cells[start + place]), feature, depth, trees, room.trail)
            if (passes == missed) != inside:
                ends[count], inside = place, 1 - inside
                count += 1
        ends[count] = total
        return count + inside
    low = room.passing[feature, 0]
    high = max(low, room.passing[feature, 1])
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
def _passes(cell: Any, feature: Any, depth: Any, trees: Trees, trail: Array) -> Any:
    """Return 1 if a cell passes the tests of a feature on the trail, which are tables, else 0."""
    for at in range(depth):
        mine = trail[at, ON] == feature
        if mine and is_set(trees.features.bits, trail[at, TABLE], cell) == (trail[at, SIDE] != 0):
            return 0
    return 1


@numba.njit(inline="always")
def _add(what: Any, one: Any, two: Any, room: PairWorkspace, found: Rectangles, total: Any) -> Any:
    """Append the rectangles of a leaf for one pair of features, all runs times all runs; return the new total."""
    pair, leaf, output = what
    for a in range(0, room.slots[one, 2], 2):
        for b in range(0, room.slots[two, 2], 2):
            if total < len(found.leaf):
                found.leaf[total, 0], found.leaf[total, 1], found.spans[total, 0] = leaf, output, pair
                found.spans[total, 1], found.spans[total, 2] = room.ends[one, a], room.ends[one, a + 1]
                found.spans[total, 3], found.spans[total, 4] = room.ends[two, b], room.ends[two, b + 1]
            total += 1
    return total
