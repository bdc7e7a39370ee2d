"""Whether the sum of all trees stays above a threshold in a box: branch and bound over the cuts that the trees test.

A box has an interval of positions of every feature. It is parted at the cut that lifts the least sum of both parts
most, as the ways to the trees' least leaves tell; the part that is worse comes first. Of a part, only the trees are
walked again that test the feature it was parted by.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import inner, kernel
from mlflow_cf.structures.kernels.trees import CUT, FEATURE, LEFT, TEST, Array, Nodes, Trees

PROVED, MISSED, UNSURE, OPEN = range(4)
DEEPEST = 128  # parts of parts


class Cuts(NamedTuple):
    """Trees whose nodes compare positions with cuts.

    Attributes:
        roots: (trees,) first node of every tree.
        tests: (nodes, 3) the feature that a node tests, -1 for a leaf; its cut, positions below which go left; and the
            left child, which the right one follows.
        worth: (nodes,) what a leaf adds.
        start: (features + 1,) first of the places of the cuts of every feature.
    """

    roots: Array
    tests: Array
    worth: Array
    start: Array


class Limits(NamedTuple):
    """Sums of leaves: `sure` and more are proved, less than `may` misses; at most so many boxes are looked at."""

    sure: float
    may: float
    most: int


class PartWorkspace(NamedTuple):
    """Boxes that wait, and what is known of them.

    Attributes:
        low, high: (n, features) ends; parted: (n,) the feature that a box was parted by last; -1: all trees are new.
        live: (n, trees) trees with several leaves; counts: (n,) how many; fixed: (n,) the sum of the other trees.
        least: (n, trees) the least leaf of a tree; tested: (n, trees) a bit for every feature it tests in the box.
        ways: (n, trees, deepest) twice the places of the cuts on the way to that leaf, plus 1 where it is above; lifts:
            by how much more the least leaf on the other side is; lengths: (n, trees) how many there are.
        nodes, kids: (m,) of one tree the nodes in reach, and where the first child of each is; leaves: (m,) least.
        gains: (2, cuts) what parting at a cut lifts the part below and above by; touched: (cuts,) which have some.
        feature: (cuts,) the feature of a place; row: (2, features) ends of a box that shrinks to a row.
    """

    low: Array
    high: Array
    parted: Array
    live: Array
    counts: Array
    fixed: Array
    least: Array
    tested: Array
    ways: Array
    lifts: Array
    lengths: Array
    nodes: Array
    kids: Array
    leaves: Array
    gains: Array
    touched: Array
    feature: Array
    row: Array


def cuts_of(trees: Trees, counts: Array, weights: Array) -> Cuts | None:
    """Return trees over positions, of which every cell has so many `counts` (cells,); None if one tests a set.

    The trees are pruned to the cells that have any.
    """
    nodes, start, before = trees.nodes, trees.features.start, np.append(0, counts.cumsum())
    feature = nodes.tests[:, FEATURE].astype(np.int64)
    if (nodes.tests[feature >= 0, TEST] >= 0).any():
        return None
    places = start[np.maximum(feature, 0)]
    cut = before[np.minimum(places + nodes.tests[:, CUT] + 1, len(counts))] - before[places]
    tests = np.stack([feature, cut, nodes.tests[:, LEFT]], axis=1).astype(np.int32)
    return Cuts(nodes.roots, tests, worth_of(nodes, nodes.value, weights), before[start])


def worth_of(nodes: Nodes, value: Array, weights: Array) -> Array:
    """Return what the values of nodes (nodes, k) add to the raw scores, weighted."""
    if value.shape[1] == len(weights):
        return np.asarray(value @ weights, dtype=np.float64)
    if len(weights) == 1:
        return np.asarray(value[:, 0] * weights[0], dtype=np.float64)
    weight, level, own = np.zeros(len(value)), nodes.roots, weights[np.maximum(nodes.outputs, 0)]
    while len(level):
        weight[level] = own
        inside = nodes.tests[level, FEATURE] >= 0
        level, own = nodes.tests[level[inside], LEFT], np.tile(own[inside], 2)
        level = np.concatenate([level, level + 1])
    return np.asarray(value[:, 0] * weight)


def room_for_parts(cuts: Cuts, deepest: int) -> PartWorkspace:
    """Return the workspace with the whole box as the only one, for trees that are so deep."""
    features, trees, places = len(cuts.start) - 1, len(cuts.roots), int(cuts.start[-1])
    boxes, nodes = DEEPEST + 2, len(cuts.worth)
    room = PartWorkspace(
        low=np.zeros((boxes, features), np.int64),
        high=np.zeros((boxes, features), np.int64),
        parted=np.full(boxes, -1),
        live=np.empty((boxes, trees), np.int64),
        counts=np.full(boxes, trees),
        fixed=np.zeros(boxes),
        least=np.empty((boxes, trees)),
        tested=np.empty((boxes, trees), np.uint64),
        ways=np.empty((boxes, trees, deepest + 1), np.int64),
        lifts=np.empty((boxes, trees, deepest + 1)),
        lengths=np.empty((boxes, trees), np.int64),
        nodes=np.empty(nodes + 1, np.int64),
        kids=np.empty(nodes + 1, np.int64),
        leaves=np.empty(nodes + 1),
        gains=np.full((2, places), -1.0),
        touched=np.empty(places, np.int64),
        feature=np.arange(features).repeat(np.diff(cuts.start)),
        row=np.empty((2, features), np.int64),
    )
    room.high[0] = np.diff(cuts.start) - 1
    room.live[0] = np.arange(trees)
    return room


@numba.njit(inline="always")
def followed(cuts: Cuts, node: Any, low: Array, high: Array) -> Any:
    """Return the first node from here on that parts a box, or the leaf that all of it leads to."""
    tests = cuts.tests
    while True:
        feature, cut = tests[node, 0], tests[node, 1]
        if feature < 0:
            return node
        below = low[feature] < cut
        if below and high[feature] >= cut:
            return node
        node = np.int64(tests[node, 2]) + np.int64(not below)


@inner
def _look(cuts: Cuts, tree: Any, box: Any, room: PartWorkspace) -> None:
    """Note a tree's least leaf in a box, the features that it tests there, and the way to the leaf."""
    low, high, nodes, kids, leaves = room.low[box], room.high[box], room.nodes, room.kids, room.leaves
    nodes[0], count, at, tested = followed(cuts, np.int64(cuts.roots[tree]), low, high), 1, 0, np.uint64(0)
    while at < count:
        node = nodes[at]
        feature = cuts.tests[node, 0]
        if feature < 0:
            leaves[at], kids[at] = cuts.worth[node], -1
        else:
            tested |= np.uint64(1) << np.uint64(feature & 63)
            left = np.int64(cuts.tests[node, 2])
            kids[at] = count
            nodes[count] = followed(cuts, left, low, high)
            nodes[count + 1] = followed(cuts, left + 1, low, high)
            count += 2
        at += 1
    for place in range(count - 1, -1, -1):
        if kids[place] >= 0:
            leaves[place] = min(leaves[kids[place]], leaves[kids[place] + 1])
    room.least[box, tree], room.tested[box, tree] = leaves[0], tested
    at, length = 0, 0
    while kids[at] >= 0:
        node, kid = nodes[at], kids[at]
        above = np.int64(leaves[kid + 1] < leaves[kid])
        room.ways[box, tree, length] = 2 * (cuts.start[cuts.tests[node, 0]] + cuts.tests[node, 1]) + above
        room.lifts[box, tree, length] = leaves[kid + 1 - above] - leaves[kid + above]
        length += 1
        at = kid + above
    room.lengths[box, tree] = length


@inner
def _seen(cuts: Cuts, room: PartWorkspace, box: Any) -> Any:
    """Return the least sum in a box, and keep the trees with several leaves alive."""
    live, parted, kept = room.live[box], room.parted[box], 0
    fixed, least, bit = room.fixed[box], 0.0, np.uint64(1) << np.uint64(max(parted, 0) & 63)
    for number in range(room.counts[box]):
        tree = live[number]
        if parted < 0 or room.tested[box, tree] & bit:
            _look(cuts, tree, box, room)
        if room.tested[box, tree]:
            live[kept] = tree
            kept += 1
            least += room.least[box, tree]
        else:
            fixed += room.least[box, tree]
    room.fixed[box], room.counts[box] = fixed, kept
    return least + fixed


@inner
def _best(room: PartWorkspace, box: Any, lack: Any) -> Any:
    """Return the place of the cut that lifts both parts most, as far as they lack it."""
    touched, gains = 0, room.gains
    for number in range(room.counts[box]):
        tree = room.live[box, number]
        for step in range(room.lengths[box, tree]):
            way = room.ways[box, tree, step]
            place = way >> 1
            if gains[0, place] < 0:
                gains[0, place] = gains[1, place] = 0.0
                room.touched[touched] = place
                touched += 1
            gains[1 - (way & 1), place] += room.lifts[box, tree, step]
    best, chosen, below_lifts, above_lifts = -1.0, room.touched[0], 0.0, 0.0
    for number in range(touched):
        some = room.touched[number]
        below, above = min(gains[0, some], lack), min(gains[1, some], lack)
        worth = (below + lack) * (above + lack)  # of the two, both count, though one alone may be worth a cut
        if worth > best:
            best, chosen, below_lifts, above_lifts = worth, some, gains[0, some], gains[1, some]
    for number in range(touched):
        gains[0, room.touched[number]] = gains[1, room.touched[number]] = -1.0
    return chosen, below_lifts < above_lifts


@inner
def _row_sum(cuts: Cuts, room: PartWorkspace, box: Any) -> Any:
    """Return the sum of a row in a box that lies in the least leaves of as many trees as go together, in order."""
    row, low, high = room.row, room.low[box], room.high[box]
    for feature in range(row.shape[1]):
        row[0, feature], row[1, feature] = low[feature], high[feature]
    for number in range(room.counts[box]):
        tree = room.live[box, number]
        for step in range(room.lengths[box, tree]):
            way = room.ways[box, tree, step]
            feature = room.feature[way >> 1]
            cut = (way >> 1) - cuts.start[feature]
            if way & 1:
                if row[1, feature] < cut:
                    break
                row[0, feature] = max(row[0, feature], cut)
            else:
                if row[0, feature] >= cut:
                    break
                row[1, feature] = min(row[1, feature], cut - 1)
    total = room.fixed[box]
    for number in range(room.counts[box]):
        node = followed(cuts, np.int64(cuts.roots[room.live[box, number]]), row[0], row[0])
        total += cuts.worth[node]
    return total


@inner
def _part(cuts: Cuts, room: PartWorkspace, box: Any, place: Any, worse_below: Any) -> None:
    """Part a box at the cut of a place; the part that is lifted less becomes the next box, the other one stays."""
    feature, other = room.feature[place], box + 1
    for axis in range(room.low.shape[1]):
        room.low[other, axis], room.high[other, axis] = room.low[box, axis], room.high[box, axis]
    for number in range(room.counts[box]):
        tree = room.live[box, number]
        room.live[other, number] = tree
        room.least[other, tree], room.tested[other, tree] = room.least[box, tree], room.tested[box, tree]
        length = room.lengths[box, tree]
        room.lengths[other, tree] = length
        for step in range(length):
            room.ways[other, tree, step] = room.ways[box, tree, step]
            room.lifts[other, tree, step] = room.lifts[box, tree, step]
    room.counts[other], room.fixed[other] = room.counts[box], room.fixed[box]
    room.parted[box] = room.parted[other] = feature
    below = other if worse_below else box
    room.high[below, feature] = place - cuts.start[feature] - 1
    room.low[other + box - below, feature] = place - cuts.start[feature]


@inner
def part_box(cuts: Cuts, limits: Limits, room: PartWorkspace) -> Any:
    """Return what is known of the first box, one of the constants above, and how many were looked at."""
    waiting, used, unsure = 1, 0, False
    while waiting:
        if used >= limits.most or waiting > DEEPEST:
            return OPEN, used
        waiting -= 1
        used += 1
        least = _seen(cuts, room, waiting)
        if least >= limits.sure:
            continue
        if not room.counts[waiting]:  # all rows have the same leaves
            if least < limits.may:
                return MISSED, used
            unsure = True
            continue
        if _row_sum(cuts, room, waiting) < limits.may:
            return MISSED, used
        place, worse_below = _best(room, waiting, limits.sure - least)
        _part(cuts, room, waiting, place, worse_below)
        waiting += 2
    return UNSURE if unsure else PROVED, used


@kernel
def part_boxes(cuts: Cuts, limits: Limits, room: PartWorkspace, found: Array) -> None:
    """Write what is known of the first box, one of the constants above, and how many were looked at, `found` (2,)."""
    found[0], found[1] = part_box(cuts, limits, room)
