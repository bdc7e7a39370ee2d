"""Gains: by how much the sum of all trees grows at least where one feature of a row is put back to its own cell.

The row and the row with the feature put back go the same way down a tree until they are told apart by a test of this
feature. Then the one comes to some leaf, the other to one below the other side of that test.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import inner, kernel
from mlflow_cf.structures.kernels.bounds import allow, narrow
from mlflow_cf.structures.kernels.branches import Branches, copy, room_for
from mlflow_cf.structures.kernels.nodes import CUT, FEATURE, LEFT, MISSING_LEFT, TEST, Array, Nodes, Trees, is_set


class BoxQuery(NamedTuple):
    """What is asked of a box of rows.

    Attributes:
        flags: (cells,) which cells it allows.
        own: (d,) the cell that every feature is put back to, -1: it is not asked for.
        weights: (k,) of the sums.
    """

    flags: Array
    own: Array
    weights: Array


class GainWorkspace(NamedTuple):
    """Room to work in.

    Attributes:
        span, mask: of `Branches`: those of all features, and what each was before the tests on either way down.
        below: (cells + 1,) how many allowed cells stand before each: the number of an allowed one.
        way, own_way: (levels, 2) the nodes on the way down, and how many of their sides were seen; the same of a row
            with a feature put back.
        parted: (d,) the level where a feature tells both rows apart, -1: nowhere; low: (d,) the least leaf of the row
            with this feature put back.
        seen: (d,) the last leaf that lies below a test of the feature; met: (d,) how many do.
        least: (cells,) what a tree gains least with an allowed cell.
        loses: (cells,) whether some tree loses by it.
    """

    span: Array
    mask: Array
    below: Array
    way: Array
    own_way: Array
    parted: Array
    low: Array
    seen: Array
    met: Array
    least: Array
    loses: Array


@numba.njit(inline="always")
def _goes_left(nodes: Nodes, node: Any, branches: Branches, cell: Any) -> Any:
    """Whether a cell of a node's feature goes left."""
    feature, test = np.int64(nodes.tests[node, FEATURE]), nodes.tests[node, TEST]
    if test >= 0:
        return is_set(branches.features.bits, test, cell)
    if cell == branches.features.start[feature + 1] - branches.features.start[feature] - 1:
        return nodes.tests[node, MISSING_LEFT] != 0
    return cell <= nodes.tests[node, CUT]


@numba.njit(inline="always")
def _worth(nodes: Nodes, node: Any, first: Any, weights: Array) -> Any:
    """The weighted sum of a leaf's values."""
    worth = 0.0
    for place in range(nodes.value.shape[1]):
        worth += weights[first + place] * nodes.value[node, place]
    return worth


@inner
def _least_own(root: Any, feature: Any, first: Any, asked: BoxQuery, trees: Trees, work: GainWorkspace) -> float:
    """Return the least leaf below `root` that some row comes to whose `feature` is put back."""
    branches, nodes = Branches(work.span, work.mask, trees.features), trees.nodes
    way, low, at = work.own_way, np.inf, 0
    saved = branches.features.ordered.size + work.way.shape[0]
    way[0, 0], way[0, 1] = root, 0
    while at >= 0:
        node, seen = way[at, 0], way[at, 1]
        tested = np.int64(nodes.tests[node, FEATURE])
        if tested < 0:
            low = min(low, _worth(nodes, node, first, asked.weights))
            at -= 1
        elif tested == feature:
            way[at, 1] = 2
            if seen:
                at -= 1
            else:
                right = 0 if _goes_left(nodes, node, branches, asked.own[feature]) else 1
                at += 1
                way[at, 0], way[at, 1] = nodes.tests[node, LEFT] + right, 0
        else:
            if seen:
                copy(branches, saved + at, tested)
            else:
                copy(branches, tested, saved + at)
            if seen == 2:
                at -= 1
                continue
            way[at, 1] += 1
            if narrow(branches, work.below, nodes, node, seen == 0):
                at += 1
                way[at, 0], way[at, 1] = nodes.tests[node, LEFT] + seen, 0
    return low


@inner
def _note(feature: Any, gain: Any, branches: Branches, work: GainWorkspace) -> None:
    """Note what a tree gains at a leaf with all cells of a feature that come there."""
    start, least = branches.features.start, work.least
    first, last = start[feature], start[feature + 1] - 1
    if branches.features.ordered[feature]:
        low, high = branches.span[feature, 0], branches.span[feature, 1]
        if low <= high:
            for number in range(work.below[first + low], work.below[first + high + 1]):
                least[number] = min(least[number], gain)
        if branches.span[feature, 2]:
            least[work.below[last]] = min(least[work.below[last]], gain)
        return
    for cell in range(last - first + 1):
        if is_set(branches.mask, feature, cell):
            number = work.below[first + cell]
            least[number] = min(least[number], gain)


@inner
def _note_leaf(depth: Any, leaf: Any, worth: Any, asked: BoxQuery, trees: Trees, work: GainWorkspace) -> None:
    """Note what a tree gains at one of its leaves with all features that are tested on the way to it."""
    branches = Branches(work.span, work.mask, trees.features)
    for level in range(depth):
        tested = np.int64(trees.nodes.tests[work.way[level, 0], FEATURE])
        if asked.own[tested] >= 0 and work.seen[tested] != leaf:
            work.seen[tested] = leaf
            work.met[tested] += 1
            _note(tested, work.low[tested] - worth if work.parted[tested] >= 0 else 0.0, branches, work)


@inner
def _note_tree(tree: int, asked: BoxQuery, trees: Trees, work: GainWorkspace) -> int:
    """Note what a tree gains at every leaf, and return how many leaves some row comes to."""
    branches, nodes = Branches(work.span, work.mask, trees.features), trees.nodes
    way, features, leaves, at = work.way, trees.features.ordered.size, 0, 0
    first = np.int64(max(nodes.outputs[tree], 0))
    way[0, 0], way[0, 1] = nodes.roots[tree], 0
    while at >= 0:
        node, seen = way[at, 0], way[at, 1]
        feature = np.int64(nodes.tests[node, FEATURE])
        if feature < 0:
            leaves += 1
            _note_leaf(at, leaves, _worth(nodes, node, first, asked.weights), asked, trees, work)
            at -= 1
            continue
        if seen:
            copy(branches, features + at, feature)
            if work.parted[feature] == at:
                work.parted[feature] = -1
        else:
            copy(branches, feature, features + at)
        if seen == 2:
            at -= 1
            continue
        way[at, 1] += 1
        if narrow(branches, work.below, nodes, node, seen == 0):
            child = np.int64(nodes.tests[node, LEFT])
            if asked.own[feature] >= 0 and work.parted[feature] < 0:
                left = _goes_left(nodes, node, branches, asked.own[feature])
                if left != (seen == 0):
                    root = child + (0 if left else 1)
                    work.low[feature] = _least_own(root, feature, first, asked, trees, work)
                    work.parted[feature] = at
            at += 1
            way[at, 0], way[at, 1] = child + seen, 0
    return leaves


@kernel
def gain_trees(asked: BoxQuery, trees: Trees, work: GainWorkspace, found: Array) -> None:
    """Write what all trees gain at least with every allowed cell into `found` (cells,); inf where none of them loses.

    Cells are numbered as `work.below` says.
    """
    start, below = trees.features.start, work.below
    allow(asked.flags, Branches(work.span, work.mask, trees.features), below)
    for number in range(below[asked.flags.size]):
        found[number], work.least[number], work.loses[number] = 0.0, np.inf, False
    for feature in range(trees.features.ordered.size):
        work.parted[feature] = -1
    for tree in range(trees.nodes.roots.size):
        for feature in range(trees.features.ordered.size):
            work.seen[feature], work.met[feature] = 0, 0
        leaves = _note_tree(tree, asked, trees, work)
        for feature in range(trees.features.ordered.size):
            if work.met[feature] == 0:
                continue
            for number in range(below[start[feature]], below[start[feature + 1]]):
                gain = work.least[number]  # at leaves that are below no test of it nothing changes
                gain = min(gain, 0.0) if work.met[feature] < leaves else gain
                found[number] += gain
                work.loses[number] |= gain < 0
                work.least[number] = np.inf
    for number in range(below[asked.flags.size]):
        if not work.loses[number]:
            found[number] = np.inf


def gains_of(flags: Array, own: Array, weights: Array, trees: Trees) -> tuple[Array, Array]:
    """Return what putting back a feature gains at least, for the rows of a box that have each allowed cell of it.

    Args:
        flags: (cells,) which cells the box allows, at least one per feature.
        own: (d,) the cell that every feature is put back to, -1: it is not asked for.
        weights: (k,) of the sums that are gained.
        trees: what is added up.

    Returns:
        The gain (allowed cells,), inf where no tree loses; and which number each cell has there (cells + 1,).
    """
    features, levels = len(trees.features.ordered), trees.deepest + 1
    allowed = int(flags.sum())
    work = GainWorkspace(
        *room_for(features + 2 * levels, trees.features),
        below=np.empty(len(flags) + 1, dtype=np.int64),
        way=np.empty((levels, 2), dtype=np.int64),
        own_way=np.empty((levels, 2), dtype=np.int64),
        parted=np.empty(features, dtype=np.int64),
        low=np.empty(features),
        seen=np.empty(features, dtype=np.int64),
        met=np.empty(features, dtype=np.int64),
        least=np.empty(allowed),
        loses=np.empty(allowed, dtype=np.bool_),
    )
    found = np.empty(allowed)
    gain_trees(BoxQuery(flags, own, weights), trees, work, found)
    return found, work.below
