"""Lower bounds on the gain in raw score when one feature of a row is reset to its own cell, over all rows of a box.

The row and the reset row follow the same path down a tree until a test of this feature separates them. From there one
reaches some leaf, the other at worst the least leaf below the other child.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import inner, kernel
from mlflow_cf.structures.kernels.restrict import advance, allow
from mlflow_cf.structures.kernels.trees import (
    CUT,
    FEATURE,
    LEFT,
    MISSING_LEFT,
    TEST,
    Array,
    Branches,
    Nodes,
    Trees,
    is_set,
    room_for,
)


class BoxQuery(NamedTuple):
    """A box of rows, and what is reset in them.

    Attributes:
        flags: (cells,) the cells of the box, at least one per feature.
        own: (d,) the cell that each feature is reset to; -1: it is not asked for.
        weights: (k,) of the raw scores.
    """

    flags: Array
    own: Array
    weights: Array


class GainWorkspace(NamedTuple):
    """Workspace.

    Attributes:
        span, mask: `Branches` of all features, and those saved before the tests on either path.
        below: (cells + 1,) number of allowed cells before each cell, which numbers the allowed ones.
        way, own_way: (levels, 2) nodes on the path, and how many of their children were visited; of the reset row.
        parted: (d,) level where a feature separates both rows, -1: nowhere; low: (d,) least leaf of the reset row.
        seen: (d,) the last leaf below a test of the feature; met: (d,) the number of such leaves.
        least: (cells,) least gain of the present tree per allowed cell.
        loses: (cells,) whether some tree may lose.
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
    """Return the least leaf below `root` that a row of the box with its `feature` reset can reach."""
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
        elif tested != feature:
            at = advance(way, at, saved, branches, work.below, nodes)
        elif seen:
            at -= 1
        else:
            right = 0 if _goes_left(nodes, node, branches, asked.own[feature]) else 1
            way[at, 1], at = 2, at + 1
            way[at, 0], way[at, 1] = nodes.tests[node, LEFT] + right, 0
    return low


@inner
def _note(feature: Any, gain: Any, branches: Branches, work: GainWorkspace) -> None:
    """Lower the least gain of all cells of a feature that reach a leaf to `gain`."""
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
    """Note the gains at a leaf for all features that are tested on the path to it."""
    branches = Branches(work.span, work.mask, trees.features)
    for level in range(depth):
        tested = np.int64(trees.nodes.tests[work.way[level, 0], FEATURE])
        if asked.own[tested] >= 0 and work.seen[tested] != leaf:
            work.seen[tested] = leaf
            work.met[tested] += 1
            _note(tested, work.low[tested] - worth if work.parted[tested] >= 0 else 0.0, branches, work)


@inner
def _note_tree(tree: int, asked: BoxQuery, trees: Trees, work: GainWorkspace) -> int:
    """Note the gains at every reachable leaf of a tree; return the number of these leaves."""
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
        if seen and work.parted[feature] == at:
            work.parted[feature] = -1
        onwards = advance(way, at, features, branches, work.below, nodes)
        if onwards > at and asked.own[feature] >= 0 and work.parted[feature] < 0:
            left = _goes_left(nodes, node, branches, asked.own[feature])
            if left != (seen == 0):
                root = np.int64(nodes.tests[node, LEFT]) + (0 if left else 1)
                work.low[feature] = _least_own(root, feature, first, asked, trees, work)
                work.parted[feature] = at
        at = onwards
    return leaves


@kernel
def gain_trees(asked: BoxQuery, trees: Trees, work: GainWorkspace, found: Array) -> None:
    """Write the least gain of all trees per allowed cell into `found` (cells,); inf where no tree loses.

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
                gain = work.least[number]  # leaves below no test of the feature do not change
                gain = min(gain, 0.0) if work.met[feature] < leaves else gain
                found[number] += gain
                work.loses[number] |= gain < 0
                work.least[number] = np.inf
    for number in range(below[asked.flags.size]):
        if not work.loses[number]:
            found[number] = np.inf


def gains_of(asked: BoxQuery, trees: Trees) -> tuple[Array, Array]:
    """Return lower bounds on the gain of resetting a feature from each allowed cell, over the rows of a box.

    Returns:
        The gain (allowed cells,), inf where no tree loses; and which number each cell has there (cells + 1,).
    """
    features, levels = len(trees.features.ordered), trees.deepest + 1
    allowed = int(asked.flags.sum())
    work = GainWorkspace(
        *room_for(features + 2 * levels, trees.features),
        below=np.empty(len(asked.flags) + 1, dtype=np.int64),
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
    gain_trees(asked, trees, work, found)
    return found, work.below
