"""Exact sweeps and product grids.

A sweep has the raw scores of a row with one feature changed to each of its cells, for all features at once.

A leaf is a box of cells. It matters for the changes of one feature iff the row satisfies all its tests but those of
this feature. So each tree is walked along the row; wherever a test would send other cells of its feature elsewhere,
that branch is followed too, with the row's own cells of all other features. A leaf reached that way stands for a set of
cells: its difference to the row's own leaf is noted at the ends of an interval (prefix sums follow, at the end), or for
every cell of a set.

Branches 0 to d - 1 are the row's own path, one per feature; the others leave it, and `to` (branches, 4) holds: the node
they lead to, the feature whose cells go there, the row's own leaf, and the output of the tree. All trees are walked
before any branch is followed: a call per tree would take a quarter of the time of a sweep of 100 trees. Node numbers
are unsigned, which saves the check for negative indices.

A product grid has the raw scores of all its rows, by difference arrays. The rows that reach a leaf are a product of
runs of positions, per dimension. Its value is noted with alternating sign at the corners of these runs, and prefix sums
along all dimensions give the scores once, at the end. So the time does not depend on how many rows reach a leaf.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import inner, kernel
from mlflow_cf.structures.kernels.restrict import allow, narrow
from mlflow_cf.structures.kernels.trees import (
    FEATURE,
    LEFT,
    Array,
    Branches,
    BranchWorkspace,
    Trees,
    Walk,
    all_cells,
    copy,
    find_comparands,
    is_set,
    part,
    room_for,
)

# The product of the lowest bit of a word and FIRST has another number in its highest six bits for every bit.
FIRST = np.uint64(0x03F79D71B4CB0A89)
BIT = np.empty(64, dtype=np.int64)
BIT[(np.uint64(1) << np.arange(64, dtype=np.uint64)) * FIRST >> np.uint64(58)] = np.arange(64)


@numba.njit(inline="always")
def _note(out: Array, branches: Branches, at: Any, feature: Any, place: Any, more: Any) -> None:
    """Note a difference of one raw score for the cells of branch `at`, all of one feature."""
    span, mask, start = branches.span, branches.mask, branches.features.start
    first, last = start[feature], start[feature + 1] - 1
    if not branches.features.ordered[feature]:
        for word in range(mask.shape[1]):
            cells = mask[at, word]
            while cells:  # often a single one: a test for one level
                lowest = cells & (~cells + np.uint64(1))
                cell = first + 64 * word + BIT[(lowest * FIRST) >> np.uint64(58)]
                if cell > last:
                    break
                out[cell, place] += more
                cells ^= lowest
        return
    if span[at, 0] <= span[at, 1]:
        out[first + span[at, 0], place] += more
        if first + span[at, 1] + 1 < last:
            out[first + span[at, 1] + 1, place] -= more
    if span[at, 2]:
        out[last, place] += more


@numba.njit(inline="always")
def _next(X: Array, walk: Walk, node: Any) -> Any:
    """Return the child that a row goes to, by its comparands."""
    key = walk.key[node]
    return np.uint64(walk.left[node] + (X[np.uint64(key >> 32)] > (key & 0xFFFFFFFF)))


@inner
def _own_ways(X: Array, wanted: Array, trees: Trees, branches: Branches, to: Array, sums: Array) -> Any:
    """Walk a row down all trees, add its leaves to `sums`, and note the branches that leave; return their end."""
    nodes, walk = trees.nodes, trees.walk
    tests, value = nodes.tests, nodes.value
    at: Any = wanted.size
    for way in range(wanted.size):
        all_cells(branches, way, way)
    for tree in range(nodes.roots.size):
        node, first = np.uint64(nodes.roots[tree]), at
        while tests[node, FEATURE] >= 0:
            feature, onwards = np.int64(tests[node, FEATURE]), _next(X, walk, node)
            if wanted[feature]:
                left = np.uint64(walk.left[node])
                others, _ = part(branches, feature, at, nodes, node, onwards != left)
                to[at, 0] = left + np.uint64(onwards == left)  # the other child
                to[at, 1] = feature
                at += np.int64(others)
            node = onwards
        output = max(nodes.outputs[tree], 0)
        for place in range(value.shape[1]):
            sums[output + place] += value[node, place]
        for branch in range(first, at):
            to[branch, 2], to[branch, 3] = node, output
            all_cells(branches, np.int64(to[branch, 1]), np.int64(to[branch, 1]))
    return at


@inner
def _follow(X: Array, at: Any, trees: Trees, branches: Branches, to: Array, out: Array) -> None:
    """Follow the branches before `at` that leave the path to their leaves; note differences from the row's own."""
    walk, tests, value = trees.walk, trees.nodes.tests, trees.nodes.value
    first = trees.features.ordered.size
    while at > first:
        at -= 1
        node, feature, own, output = to[at, 0], np.int64(to[at, 1]), to[at, 2], np.int64(to[at, 3])
        while tests[node, FEATURE] >= 0:
            if tests[node, FEATURE] != feature:
                node = _next(X, walk, node)
                continue
            lefts, rights = part(branches, at, at + 1, trees.nodes, node, True)
            left = np.uint64(walk.left[node])
            node = left + np.uint64(not lefts)
            if lefts and rights:  # the right part stays on the stack
                to[at + 1, 1], to[at + 1, 2], to[at + 1, 3] = to[at, 1], own, to[at, 3]
                to[at, 0] = left + np.uint64(1)
                at += 1
            elif lefts:
                copy(branches, at + 1, at)
        for place in range(value.shape[1]):
            more = np.float64(value[node, place]) - np.float64(value[own, place])
            _note(out, branches, at, feature, output + place, more)


@kernel
def sweep_rows(X: Array, wanted: Array, trees: Trees, room: BranchWorkspace, to: Array, out: Array) -> None:
    """Do as `sweep_trees` for rows of comparands (m, columns); the last raw scores of `out` are the row's own."""
    branches = Branches(room.span, room.mask, trees.features)
    start, base, total = trees.features.start, trees.base, out.shape[1] - 1
    for row in range(len(X)):
        mine = out[row]
        stop = _own_ways(X[row], wanted[row], trees, branches, to, mine[total])
        _follow(X[row], stop, trees, branches, to, mine)
        for feature in range(wanted.shape[1]):
            if wanted[row, feature] and trees.features.ordered[feature]:
                for cell in range(start[feature] + 1, start[feature + 1] - 1):
                    for place in range(base.size):
                        mine[cell, place] += mine[cell - 1, place]
        for cell in range(total):
            for place in range(base.size):
                mine[cell, place] += base[place] + mine[total, place]


def sweep_trees(cells: Array, wanted: Array, trees: Trees) -> Array:
    """Return the raw scores (m, cells, k) of rows of cells (m, d) with one feature changed to each of its cells.

    Args:
        cells: (m, d).
        wanted: (m, d) which features of which rows are changed; the cells of others hold the row's own raw scores.
        trees: the ensemble.
    """
    features, total = trees.features, trees.features.start[-1]
    size = cells.shape[1] + (len(trees.nodes.roots) + 1) * (trees.deepest + 1)
    X, out = np.empty((len(cells), trees.walk.start[-1]), np.int32), np.zeros((len(cells), total + 1, len(trees.base)))
    find_comparands(cells, trees.walk, X.reshape(-1))
    sweep_rows(X, wanted, trees, room_for(size, features), np.empty((size, 4), np.uint64), out)
    return out[:, :total]


ODD = np.uint64(1 << 63)  # sign bit: set for corners with an odd number of run ends


class BoxRows(NamedTuple):
    """A product grid of rows in C order.

    Attributes:
        dimension: (d,) of every feature; the last dimension, of size 1, has all features with one cell in all rows.
        size, stride: (n,) number of positions of every dimension, and the distance of rows of adjacent positions.
        first: (n + 1,) offset of every dimension in `features`.
        features: the features, dimension after dimension.
        cells: (d, most) the cell of every feature at each position of its dimension.
        before: per feature, for each cell and the end: number of positions with a smaller cell.
        counted: (n,) whether a dimension has one feature, tested by cuts alone, with ascending cells; `before` is used.
    """

    dimension: Array
    size: Array
    stride: Array
    first: Array
    features: Array
    cells: Array
    before: Array
    counted: Array


class ProductWorkspace(NamedTuple):
    """Workspace.

    Attributes:
        span, mask: `Branches` of all features, and those saved before the tests on the path.
        flags: (cells,) the cells of the grid; below: (cells + 1,) number of them before each cell.
        way: (levels, 2) nodes on the path, and how many of their children were visited.
        narrowed: (n,) number of tests on the path per dimension.
        ends: (most + 1,) alternating starts and stops of runs; places: (rows,) of corners.
        worth: (j,) weighted values of a leaf.
    """

    span: Array
    mask: Array
    flags: Array
    below: Array
    way: Array
    narrowed: Array
    ends: Array
    places: Array
    worth: Array


@numba.njit(inline="always")
def _takes(branches: Branches, feature: Any, cell: Any) -> Any:
    """Whether a cell is in the branch of its feature."""
    span, start = branches.span, branches.features.start
    if not branches.features.ordered[feature]:
        return is_set(branches.mask, feature, cell)
    if cell == start[feature + 1] - start[feature] - 1:
        return span[feature, 2] != 0
    return span[feature, 0] <= cell <= span[feature, 1]


@numba.njit(inline="always")
def _counted_ends(box: BoxRows, branches: Branches, dimension: Any, ends: Array) -> Any:
    """Write alternating starts and stops of runs of positions from `before`; return their number."""
    feature, size = box.features[box.first[dimension]], box.size[dimension]
    span, start = branches.span, branches.features.start
    first = start[feature] + feature  # `before` has one number more per feature than cells
    missing = start[feature + 1] - start[feature] - 1
    count = 0
    if span[feature, 0] <= span[feature, 1]:
        low, high = box.before[first + span[feature, 0]], box.before[first + span[feature, 1] + 1]
        if low < high:
            ends[0], ends[1] = low, high
            count = 2
    if span[feature, 2] and box.before[first + missing] < size:
        if count and ends[1] == box.before[first + missing]:
            ends[1] = size
        else:
            ends[count], ends[count + 1] = box.before[first + missing], size
            count += 2
    return count


@numba.njit(inline="always")
def _ends(box: BoxRows, branches: Branches, dimension: Any, ends: Array) -> Any:
    """Write alternating starts and stops of runs of positions, without a stop at the very end; return their number."""
    size, count = box.size[dimension], 0
    if box.counted[dimension]:
        count = _counted_ends(box, branches, dimension, ends)
    else:
        inside = False
        for choice in range(size):
            comes = True
            for at in range(box.first[dimension], box.first[dimension + 1]):
                feature = box.features[at]
                comes = comes and _takes(branches, feature, box.cells[feature, choice])
            if comes != inside:
                ends[count] = choice
                count += 1
                inside = comes
        if inside:
            ends[count] = size
            count += 1
    if count and ends[count - 1] == size:
        count -= 1
    return count


@numba.njit(inline="always")
def _note_leaf(box: BoxRows, branches: Branches, room: ProductWorkspace, corners: Array) -> None:
    """Note a leaf's weighted values at the corners of the runs that reach it."""
    ends, places, worth = room.ends, room.places, room.worth
    places[0], rows = np.uint64(0), 1
    for dimension in range(box.size.size - 1):
        if room.narrowed[dimension] == 0:
            continue
        count = _ends(box, branches, dimension, ends)
        if count == 1 and ends[0] == 0:
            continue
        for end in range(count - 1, -1, -1):
            more = np.uint64(ends[end] * box.stride[dimension])
            if end & 1:
                more += ODD
            for row in range(rows):
                places[end * rows + row] = places[row] + more
        rows *= count
    for row in range(rows):
        place, odd = places[row] & ~ODD, places[row] >= ODD
        for number in range(worth.size):
            corners[number, place] += -worth[number] if odd else worth[number]


@kernel
def note_leaves(box: BoxRows, trees: Trees, weights: Array, room: ProductWorkspace, corners: Array) -> None:
    """Note the leaves of all trees, weighted by `weights` (k, j), in `corners` (j, rows)."""
    branches = Branches(room.span, room.mask, trees.features)
    nodes, way, saved = trees.nodes, room.way, trees.features.ordered.size
    allow(room.flags, branches, room.below)
    for tree in range(nodes.roots.size):
        at = 0
        way[0, 0], way[0, 1] = nodes.roots[tree], 0
        while at >= 0:
            node, seen = way[at, 0], way[at, 1]
            feature = np.int64(nodes.tests[node, FEATURE])
            if feature < 0:
                for number in range(room.worth.size):
                    room.worth[number] = 0.0
                    for place in range(nodes.value.shape[1]):
                        weight = weights[max(nodes.outputs[tree], 0) + place, number]
                        room.worth[number] += weight * nodes.value[node, place]
                _note_leaf(box, branches, room, corners)
                at -= 1
                continue
            if seen:
                copy(branches, saved + at, feature)
            else:
                copy(branches, feature, saved + at)
                room.narrowed[box.dimension[feature]] += 1
            if seen == 2:
                room.narrowed[box.dimension[feature]] -= 1
                at -= 1
                continue
            way[at, 1] += 1
            if narrow(branches, room.below, nodes, node, seen == 0):
                at += 1
                way[at, 0], way[at, 1] = nodes.tests[node, LEFT] + seen, 0


@kernel
def add_up(sums: Array, size: Array, stride: Array) -> None:
    """Turn values noted at corners (k, rows) into prefix sums along all dimensions (n,), in place."""
    for output in range(len(sums)):
        line = sums[output]
        for dimension in range(size.size - 1):
            step = stride[dimension]
            for start in range(0, line.size, step * size[dimension]):
                for choice in range(1, size[dimension]):
                    here = start + choice * step
                    for row in range(step):  # vectorised: these rows are independent
                        line[here + row] += line[here - step + row]
