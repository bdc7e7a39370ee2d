"""Raw scores of all rows of a product grid, by difference arrays.

The rows that reach a leaf are a product of runs of positions, per dimension. Its value is noted with alternating sign
at the corners of these runs, and prefix sums along all dimensions give the scores once, at the end. So the time does
not depend on how many rows reach a leaf.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from mlflow_cf.kernel import kernel
from mlflow_cf.structures.kernels.bounds import allow, narrow
from mlflow_cf.structures.kernels.branches import Branches, copy
from mlflow_cf.structures.kernels.nodes import FEATURE, LEFT, Array, Trees, is_set

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
