"""Whether the sum of all trees stays above a threshold in a box: branch and bound over the cuts that the trees test.

A box has an interval of positions of every feature. It is parted at the cut that lifts the least sum of both parts
most, as the ways to the trees' least leaves tell; the part that is worse comes first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.trees import CUT, FEATURE, LEFT, TEST, Array, Nodes, Trees

PROVED, MISSED, UNSURE, OPEN = range(4)
DEEPEST = 128  # parts of parts


class Cuts(NamedTuple):
    """Trees whose nodes compare positions with cuts.

    Attributes:
        roots: (trees,) first node of every tree.
        feature: (nodes,) that a node tests, -1 for a leaf.
        cut: (nodes,) positions below it go left; left: (nodes,) the left child, which the right one follows.
        worth: (nodes,) what a leaf adds.
        start: (features + 1,) first of the places of the cuts of every feature.
    """

    roots: Array
    feature: Array
    cut: Array
    left: Array
    worth: Array
    start: Array


class Limits(NamedTuple):
    """Sums of leaves: `sure` and more are proved, less than `may` misses; at most so many boxes are looked at."""

    sure: float
    may: float
    most: int


class PartWorkspace(NamedTuple):
    """Boxes that wait: ends `low`, `high` (n, features), trees with several leaves `live` (n, trees), their `counts`.

    Then `fixed` (n,), the sum of the other trees; of one tree the nodes in reach `order`, with their `least` and
    `largest` leaf (nodes,); what parting at a cut lifts the part below and above by, `gains` (2, cuts); the cuts that
    have some, `touched` (cuts,).
    """

    low: Array
    high: Array
    live: Array
    counts: Array
    fixed: Array
    order: Array
    least: Array
    largest: Array
    gains: Array
    touched: Array


def cuts_of(trees: Trees, flags: Array, weights: Array) -> Cuts | None:
    """Return trees, pruned to the cells with a flag (cells,), over the positions of these; None if one tests a set."""
    nodes, start, before = trees.nodes, trees.features.start, np.append(0, flags.cumsum())
    feature = nodes.tests[:, FEATURE].astype(np.int64)
    if (nodes.tests[feature >= 0, TEST] >= 0).any():
        return None
    places = start[np.maximum(feature, 0)]
    cut = before[np.minimum(places + nodes.tests[:, CUT] + 1, len(flags))] - before[places]
    left = nodes.tests[:, LEFT].astype(np.int64)
    return Cuts(nodes.roots, feature, cut, left, _worth(nodes, weights), before[start])


def _worth(nodes: Nodes, weights: Array) -> Array:
    """Return what the values of nodes (nodes,) add to the raw scores, weighted."""
    if nodes.value.shape[1] == len(weights):
        return np.asarray(nodes.value @ weights)
    weight, level, own = np.zeros(len(nodes.value)), nodes.roots, weights[np.maximum(nodes.outputs, 0)]
    while len(level):
        weight[level] = own
        inner = nodes.tests[level, FEATURE] >= 0
        level, own = nodes.tests[level[inner], LEFT], np.tile(own[inner], 2)
        level = np.concatenate([level, level + 1])
    return np.asarray(nodes.value[:, 0] * weight)


def room_for_parts(cuts: Cuts) -> PartWorkspace:
    """Return the workspace with the whole box as the only one."""
    features, trees, nodes, places = len(cuts.start) - 1, len(cuts.roots), len(cuts.feature), int(cuts.start[-1])
    room = PartWorkspace(
        low=np.zeros((DEEPEST + 2, features), np.int64),
        high=np.zeros((DEEPEST + 2, features), np.int64),
        live=np.empty((DEEPEST + 2, trees), np.int64),
        counts=np.full(DEEPEST + 2, trees),
        fixed=np.zeros(DEEPEST + 2),
        order=np.empty(nodes, np.int64),
        least=np.empty(nodes),
        largest=np.empty(nodes),
        gains=np.full((2, places), -1.0),
        touched=np.empty(places, np.int64),
    )
    room.high[0] = np.diff(cuts.start) - 1
    room.live[0] = np.arange(trees)
    return room


@numba.njit(inline="always")
def _reach(cuts: Cuts, root: Any, low: Array, high: Array, room: PartWorkspace) -> None:
    """Write the least and the largest leaf below every node of a tree that is in reach of a box."""
    order, least, largest = room.order, room.least, room.largest
    order[0], count, at = root, 1, 0
    while at < count:
        node = order[at]
        feature, left = cuts.feature[node], cuts.left[node]
        if feature >= 0:
            if low[feature] < cuts.cut[node]:
                order[count] = left
                count += 1
            if high[feature] >= cuts.cut[node]:
                order[count] = left + 1
                count += 1
        at += 1
    for place in range(count - 1, -1, -1):
        node = order[place]
        feature, left = cuts.feature[node], cuts.left[node]
        if feature < 0:
            least[node] = largest[node] = cuts.worth[node]
            continue
        some, most = np.inf, -np.inf
        if low[feature] < cuts.cut[node]:
            some, most = least[left], largest[left]
        if high[feature] >= cuts.cut[node]:
            some, most = min(some, least[left + 1]), max(most, largest[left + 1])
        least[node], largest[node] = some, most


@numba.njit(inline="always")
def _vote(cuts: Cuts, root: Any, low: Array, high: Array, room: PartWorkspace, touched: Any) -> Any:
    """Add what cuts on the way to a tree's least leaf would lift it by; return the number of cuts that have some."""
    node, least, gains = root, room.least, room.gains
    while cuts.feature[node] >= 0:
        feature, cut, left = cuts.feature[node], cuts.cut[node], cuts.left[node]
        if not low[feature] < cut:
            node = left + 1
        elif not high[feature] >= cut:
            node = left
        else:
            place = cuts.start[feature] + cut
            if gains[0, place] < 0:
                gains[0, place] = gains[1, place] = 0.0
                room.touched[touched] = place
                touched += 1
            if least[left] <= least[left + 1]:
                gains[1, place] += least[left + 1] - least[left]
                node = left
            else:
                gains[0, place] += least[left] - least[left + 1]
                node = left + 1
    return touched


@numba.njit(inline="always")
def _best(room: PartWorkspace, touched: Any, lack: Any) -> Any:
    """Return the place of the cut that lifts both parts most, as far as they lack it."""
    best, place, gains = -1.0, room.touched[0], room.gains
    for number in range(touched):
        some = room.touched[number]
        below, above = min(gains[0, some], lack), min(gains[1, some], lack)
        worth = (below + 0.01 * lack) * (above + 0.01 * lack)
        if worth > best:
            best, place = worth, some
    return place


@numba.njit(inline="always")
def _seen(cuts: Cuts, room: PartWorkspace, box: Any) -> Any:
    """Return bounds of the sum in a box, and the number of cuts with gains; keep the trees with several leaves."""
    low, high, live = room.low[box], room.high[box], room.live[box]
    fixed, kept, touched, least, largest = room.fixed[box], 0, 0, 0.0, 0.0
    for number in range(room.counts[box]):
        tree = live[number]
        root = cuts.roots[tree]
        _reach(cuts, root, low, high, room)
        if room.least[root] == room.largest[root]:
            fixed += room.least[root]
            continue
        live[kept] = tree
        kept += 1
        least, largest = least + room.least[root], largest + room.largest[root]
        touched = _vote(cuts, root, low, high, room, touched)
    room.fixed[box], room.counts[box] = fixed, kept
    return least + fixed, largest + fixed, touched


@numba.njit(inline="always")
def _part(cuts: Cuts, room: PartWorkspace, box: Any, place: Any) -> None:
    """Part a box at the cut of a place; the part that is lifted less becomes the next box, the other one stays."""
    feature, other = np.int64(0), box + 1
    while cuts.start[feature + 1] <= place:
        feature += 1
    for axis in range(room.low.shape[1]):
        room.low[other, axis], room.high[other, axis] = room.low[box, axis], room.high[box, axis]
    for number in range(room.counts[box]):
        room.live[other, number] = room.live[box, number]
    room.counts[other], room.fixed[other] = room.counts[box], room.fixed[box]
    below = other if room.gains[0, place] < room.gains[1, place] else box
    room.high[below, feature] = place - cuts.start[feature] - 1
    room.low[other + box - below, feature] = place - cuts.start[feature]


@kernel
def part_boxes(cuts: Cuts, limits: Limits, room: PartWorkspace, found: Array) -> None:
    """Write what is known of the first box, one of the constants above, and how many were looked at, `found` (2,)."""
    waiting, used, unsure = 1, 0, False
    found[0] = OPEN
    while waiting:
        if used >= limits.most or waiting > DEEPEST:
            found[1] = used
            return
        waiting -= 1
        used += 1
        least, largest, touched = _seen(cuts, room, waiting)
        if largest < limits.may:
            found[0], found[1] = MISSED, used
            return
        if least < limits.sure:
            if touched:
                _part(cuts, room, waiting, _best(room, touched, limits.sure - least))
                waiting += 2
            else:
                unsure = True
        for number in range(touched):
            room.gains[0, room.touched[number]] = room.gains[1, room.touched[number]] = -1.0
    found[0], found[1] = UNSURE if unsure else PROVED, used
