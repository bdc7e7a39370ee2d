"""Where leaves of trees start and end in a grid of three features, and which cells trees tell apart there.

Where only three features vary, every leaf of a tree accepts a few boxes of the grid. A box has two events: its value is
added at the plane where it starts, and taken back at the one where it ends. Leaves are rounded to whole numbers first,
which add up to the same in every order. Neighbouring cells between which no box starts or ends score the same, whatever
the other two features are: the nearest of them stands for all, if costs grow with the distance in this order. Hundreds
of values of a number become some dozens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.kernel import inner
from mlflow_cf.structures.kernels.own_paths import bit_of
from mlflow_cf.structures.kernels.trees import CUT, FEATURE, LEFT, TEST, Trees, is_set
from mlflow_cf.structures.kernels.triple_grid import WORD, Grid, TripleRoom

Array = NDArray[Any]


@inner
def _leaf(node: Any, tree: Any, trees: Trees, weights: Array) -> Any:
    """Return the weighted value of a leaf."""
    output, total = trees.nodes.outputs[tree], 0.0
    if output >= 0:
        return weights[output] * np.float64(trees.nodes.value[node, 0])
    for place in range(weights.size):
        total += weights[place] * np.float64(trees.nodes.value[node, place])
    return total


@inner
def round_leaves(trees: Trees, weights: Array, scale: Any, room: TripleRoom) -> Any:
    """Write the values of all leaves times `scale` as whole numbers; return how large scores can be without it."""
    tests, way, total = trees.nodes.tests, room.way, 0.0
    for tree in range(trees.nodes.roots.size):
        way[0, 0], at, largest = trees.nodes.roots[tree], 0, 0.0
        while at >= 0:
            node = way[at, 0]
            if tests[node, FEATURE] < 0:
                value = _leaf(node, tree, trees, weights)
                room.value[node], largest = np.int32(np.rint(value * scale)), max(largest, abs(value))
                at -= 1
            else:
                way[at, 0], way[at + 1, 0] = tests[node, LEFT] + 1, tests[node, LEFT]
                at += 1
        total += largest
    return total


@inner
def choose_cells(features: Array, limit: Any, grid: Grid, ordered: Array, room: TripleRoom) -> Any:
    """Write which cells of three features may be near enough; return whether one word has a bit for each."""
    whole = grid.least[features[0]] + grid.least[features[1]] + grid.least[features[2]]
    for axis in range(3):
        feature = features[axis]
        begin, stop, own = grid.start[feature], grid.start[feature + 1], grid.own[feature]
        near = limit - whole + grid.least[feature]
        while begin < own and grid.cost[begin] > near:
            begin += 1
        while stop > own + 1 and grid.cost[stop - 1] > near:
            stop -= 1
        room.axes[axis], room.first[axis], room.size[axis] = feature, begin, stop - begin
        if not ordered[feature] and stop - begin > WORD:
            return False
    return True


@inner
def _goes_left(node: Any, axis: Any, grid: Grid, trees: Trees, room: TripleRoom) -> Any:
    """Return the cells of an axis that a table sends to the left, one bit per cell."""
    mask, row = np.uint64(0), trees.nodes.tests[node, TEST]
    for at in range(room.size[axis]):
        if is_set(trees.features.bits, row, np.int64(grid.cell[room.first[axis] + at])):
            mask |= np.uint64(1) << np.uint64(at)
    return mask


@inner
def _write_runs(axis: Any, ordered: Any, level: Any, room: TripleRoom) -> Any:
    """Write starts and stops of the cells of an axis that lead to a node; return how many numbers that are."""
    runs, size = room.runs[axis], room.size[axis]
    if ordered:
        runs[0], runs[1] = room.way[level, 1 + 2 * axis], room.way[level, 2 + 2 * axis]
        return 2
    count, inside, mask = 0, False, room.mask[level, axis]
    for at in range(size):
        here = (mask >> np.uint64(at)) & np.uint64(1) != np.uint64(0)
        if here != inside:
            runs[count], inside = at, here
            count += 1
    if inside:
        runs[count] = size
        count += 1
    return count


@inner
def _note_leaf(leaf: Any, ends: Any, total: Any, room: TripleRoom) -> Any:
    """Note the events of a leaf with so many `ends` of runs on every axis; return how many events there are.

    `leaf`: its value, and the model.
    """
    value, model = leaf
    event, runs = room.event, room.runs
    for axis in range(3):
        for at in range(ends[axis]):
            room.joined[axis, runs[axis, at]] = 1
    for a in range(0, ends[0], 2):
        for b in range(0, ends[1], 2):
            for c in range(0, ends[2], 2):
                for end in range(2):
                    plane = runs[0, a + end]
                    if plane < room.size[0]:
                        if total < len(event):
                            event[total, 0], event[total, 1] = plane, -value if end else value
                            event[total, 2], event[total, 3] = runs[1, b], runs[1, b + 1]
                            event[total, 4], event[total, 5] = runs[2, c], runs[2, c + 1]
                            event[total, 6] = model
                        total += 1
    return total


@inner
def _axis_of(node: Any, trees: Trees, room: TripleRoom) -> Any:
    """Return which axis a node tests; -1: none, or it is a leaf."""
    feature, axes = np.int64(trees.nodes.tests[node, FEATURE]), room.axes
    if feature == axes[0]:
        return 0
    if feature == axes[1]:
        return 1
    return 2 if feature == axes[2] else -1


@inner
def _move(source: Any, to: Any, room: TripleRoom) -> None:
    """Copy one place of the stack to another."""
    for column in range(room.way.shape[1]):
        room.way[to, column] = room.way[source, column]
    for axis in range(3):
        room.mask[to, axis] = room.mask[source, axis]


@inner
def _split(at: Any, axis: Any, node: Any, grid: Grid, trees: Trees, room: TripleRoom) -> Any:
    """Put the children of a node that some cells lead to in its place on the stack; return the new top."""
    way, mask, tests = room.way, room.mask, trees.nodes.tests
    _move(at, at + 1, room)
    if tests[node, TEST] >= 0:
        goes = _goes_left(node, axis, grid, trees, room)
        mask[at, axis] &= ~goes
        mask[at + 1, axis] &= goes
        rights, lefts = mask[at, axis] != np.uint64(0), mask[at + 1, axis] != np.uint64(0)
    else:
        feature, low, high = room.axes[axis], 1 + 2 * axis, 2 + 2 * axis
        before = grid.before[grid.offset[feature] + tests[node, CUT] + 1]
        middle = grid.start[feature] + before - room.first[axis]
        way[at, low], way[at + 1, high] = max(way[at, low], middle), min(way[at, high], middle)
        rights, lefts = way[at, low] < way[at, high], way[at + 1, low] < way[at + 1, high]
    way[at, 0], way[at + 1, 0] = tests[node, LEFT] + 1, tests[node, LEFT]
    if rights and lefts:
        return at + 1
    if lefts:
        _move(at + 1, at, room)
    return at


@inner
def _begin_tree(tree: Any, trees: Trees, room: TripleRoom) -> None:
    """Put the root of a tree on the stack, with all cells of every axis."""
    room.way[0, 0], all_bits = trees.nodes.roots[tree], ~np.uint64(0)
    for axis in range(3):
        size = room.size[axis]
        room.way[0, 1 + 2 * axis], room.way[0, 2 + 2 * axis] = 0, size
        room.mask[0, axis] = all_bits if size >= WORD else ~(all_bits << np.uint64(size))


@inner
def list_events(which: Any, grid: Grid, trees: Trees, room: TripleRoom) -> Any:
    """Note what all leaves add that only three features decide between; return how many events there are.

    `which` of the models the trees are of; -1: all of them.
    """
    tests, walk, ordered, total, bits = trees.nodes.tests, trees.walk, trees.features.ordered, 0, np.uint64(0)
    paths = room.paths
    for axis in range(3):
        room.joined[axis, : room.size[axis] + 1] = 0
        bits |= bit_of(room.axes[axis])
    paths.total[:] = 0
    for tree in range(trees.nodes.roots.size):
        model = paths.model[tree]
        if which >= 0 and which != model:
            continue
        if paths.bits[tree] & bits == np.uint64(0):
            paths.total[model] += room.value[paths.leaf[tree]]
            continue
        at = 0
        _begin_tree(tree, trees, room)
        while at >= 0:
            node = room.way[at, 0]
            axis = _axis_of(node, trees, room)
            while axis < 0 and tests[node, FEATURE] >= 0:
                key = walk.key[node]
                node = np.int64(walk.left[node]) + np.int64(grid.X[key >> 32] > (key & 0xFFFFFFFF))
                axis = _axis_of(node, trees, room)
            if axis >= 0:
                at = _split(at, axis, node, grid, trees, room)
                continue
            if room.value[node] != 0:
                first = _write_runs(0, ordered[room.axes[0]], at, room)
                second = _write_runs(1, ordered[room.axes[1]], at, room)
                third = _write_runs(2, ordered[room.axes[2]], at, room)
                total = _note_leaf((room.value[node], model), (first, second, third), total, room)
            at -= 1
    for axis in range(3):
        room.runs[axis, 0], room.runs[axis, 1] = 0, room.size[axis]
    for model in range(paths.total.size):
        if paths.total[model] != 0:
            total = _note_leaf((np.int32(paths.total[model]), model), (2, 2, 2), total, room)
    return total


@inner
def _nearest(begin: Any, stop: Any, own: Any, grid: Grid) -> Any:
    """Return the nearest of cells on one side of the row's own; of several as near, the first."""
    if begin > own:
        return begin
    at, cost, peak = stop - 1, grid.cost, grid.peak
    while at > begin and cost[at - 1] == cost[at] and peak[at - 1] == peak[at]:
        at -= 1
    return at


@inner
def _join_cells(axis: Any, joins: Any, grid: Grid, room: TripleRoom) -> None:
    """Write the cells of an axis that stand for all those between which no box starts or ends.

    Unless it `joins` them with the row's own cell, that one stands for itself alone.
    """
    feature, first, size, joined = room.axes[axis], room.first[axis], room.size[axis], room.joined[axis]
    own, apart, count, begin, least = grid.own[feature] - first, not grid.ascending[feature], 0, 0, np.inf
    while begin < size:
        stop = begin + 1
        while stop < size and joined[stop] == 0 and not apart and (joins or own not in (begin, stop)):
            stop += 1
        if begin <= own < stop:
            at, room.own[axis] = first + own, count
        else:
            at = _nearest(first + begin, first + stop, first + own, grid)
            least = min(least, grid.cost[at])
        room.cell[axis, count], room.cost[axis, count], room.peak[axis, count] = at, grid.cost[at], grid.peak[at]
        room.run[axis, count, 0], room.run[axis, count, 1] = first + begin, first + stop
        for cell in range(begin, stop):
            joined[cell] = count
        count, begin = count + 1, stop
    joined[size], room.size[axis], room.least[axis] = count, count, least


@inner
def join_cells(events: Any, joins: Any, grid: Grid, room: TripleRoom) -> None:
    """Number planes, rows and columns of so many events by what trees tell apart, and list those of every plane.

    `joins`: whether the row's own cell may stand for others, too.
    """
    for axis in range(3):
        _join_cells(axis, joins, grid, room)
    event, joined, head = room.event, room.joined, room.head
    head[: room.size[0]] = -1
    for at in range(events):
        plane = joined[0, event[at, 0]]
        event[at, 0], head[plane] = head[plane], at
        event[at, 2], event[at, 3] = joined[1, event[at, 2]], joined[1, event[at, 3]]
        event[at, 4], event[at, 5] = joined[2, event[at, 4]], joined[2, event[at, 5]]
