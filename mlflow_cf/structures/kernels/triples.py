"""All changes of three features of a row, scored in a grid of their cells.

Where only three features vary, every leaf of a tree accepts a few boxes of the grid. Each adds its value at the plane
of the grid where it starts, to its columns in the row where it starts, and takes it back where it ends; sums from row
to row, and from plane to plane, are the scores (as in `sweeps.add_up`, in two of three directions). Leaves are rounded
to whole numbers first, which add up to the same in every order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.kernel import inner, kernel
from mlflow_cf.rounding import loosened
from mlflow_cf.structures.kernels.trees import CUT, FEATURE, LEFT, TEST, Trees, is_set
from mlflow_cf.structures.kernels.triple_grid import (
    BEST,
    COMPLETE,
    LIMIT,
    TOO_MANY,
    WORD,
    AskedTriples,
    FoundTriples,
    Grid,
    TripleRoom,
)

Array = NDArray[Any]
LARGEST_SUM = 2**29  # of whole numbers: sums of four such numbers still fit into 32 bits
ORDER = (0, 2, 1)  # of axes, those with most cells first: rows of a plane are long
TINY, BEYOND = 1e-200, 2.0**31  # sums of leaves are no smaller: scales stay finite; and no score is as large


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
def _round_leaves(trees: Trees, weights: Array, scale: Any, room: TripleRoom) -> Any:
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
def _choose_axes(features: Array, limit: Any, grid: Grid, ordered: Array, room: TripleRoom) -> Any:
    """Write which cells of three features may be near enough; return whether one word has a bit for each.

    The first axis has the most: planes are to stay near the processor.
    """
    whole = grid.least[features[0]] + grid.least[features[1]] + grid.least[features[2]]
    for number in range(3):
        feature, axis = features[number], number
        begin, stop, own = grid.start[feature], grid.start[feature + 1], grid.own[feature]
        near = limit - whole + grid.least[feature]
        while begin < own and grid.cost[begin] > near:
            begin += 1
        while stop > own + 1 and grid.cost[stop - 1] > near:
            stop -= 1
        while axis > 0 and room.size[ORDER[axis - 1]] < stop - begin:
            before, here = ORDER[axis - 1], ORDER[axis]
            room.axes[here], room.first[here], room.size[here] = (
                room.axes[before],
                room.first[before],
                room.size[before],
            )
            axis -= 1
        here = ORDER[axis]
        room.axes[here], room.first[here], room.size[here] = feature, begin, stop - begin
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
def _note_leaf(value: Any, ends: Any, total: Any, room: TripleRoom) -> Any:
    """Note the events of a leaf with so many `ends` of runs on every axis; return how many events there are."""
    event, head, runs = room.event, room.head, room.runs
    for a in range(0, ends[0], 2):
        for b in range(0, ends[1], 2):
            for c in range(0, ends[2], 2):
                for end in range(2):
                    plane = runs[0, a + end]
                    if plane < room.size[0]:
                        if total < len(event):
                            event[total, 0], event[total, 1] = head[plane], -value if end else value
                            event[total, 2], event[total, 3] = runs[1, b], runs[1, b + 1]
                            event[total, 4], event[total, 5] = runs[2, c], runs[2, c + 1]
                            head[plane] = total
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
def _list_events(grid: Grid, trees: Trees, room: TripleRoom) -> Any:
    """Note what all leaves add that only three features decide between; return how many events there are."""
    tests, walk, ordered, total = trees.nodes.tests, trees.walk, trees.features.ordered, 0
    room.head[: room.size[0] + 1] = -1
    for tree in range(trees.nodes.roots.size):
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
                total = _note_leaf(room.value[node], (first, second, third), total, room)
            at -= 1
    return total


@inner
def _note_edges(plane: Any, sign: Any, room: TripleRoom) -> None:
    """Note what the boxes that start or end at a plane add there, at the rows where they start and end.

    With sign -1, take it back.
    """
    event, edges, rows, columns = room.event, room.edges, room.size[1], room.size[2]
    at = np.int64(room.head[plane])
    while at >= 0:
        value = np.int32(sign * event[at, 1])
        for end in range(2):
            row = np.int64(event[at, 2 + end])
            if row < rows:
                line = edges[row * columns + event[at, 4] : row * columns + event[at, 5]]
                for cell in range(line.size):
                    line[cell] += value
            value = np.int32(-value)
        at = np.int64(event[at, 0])


@inner
def _near_range(axis: Any, limit: Any, own: Any, grid: Grid, room: TripleRoom) -> Any:
    """Return start and stop of the cells of an axis that contain all within a limit, and the row's own."""
    first, begin, stop = room.first[axis], 0, room.size[axis]
    if grid.ascending[room.axes[axis]]:
        while begin < own and grid.cost[first + begin] > limit:
            begin += 1
        while stop > own + 1 and grid.cost[first + stop - 1] > limit:
            stop -= 1
    return begin, stop


@inner
def _narrowed(span: Any, axis: Any, limit: Any, own: Any, grid: Grid, room: TripleRoom) -> Any:
    """Return the range of cells of an axis within a limit, where costs grow to either side; `span`: one near it."""
    first, (begin, stop), size = room.first[axis], span, room.size[axis]
    while begin > 0 and grid.cost[first + begin - 1] <= limit:
        begin -= 1
    while begin < own and grid.cost[first + begin] > limit:
        begin += 1
    while stop < size and grid.cost[first + stop] <= limit:
        stop += 1
    while stop > own + 1 and grid.cost[first + stop - 1] > limit:
        stop -= 1
    return begin, stop


@inner
def _add_up(near: Any, own: Any, what: Any, scores: Array) -> Any:
    """Write the scores of a plane as far as changes are near enough.

    Args:
        near: what rows and columns may cost together, and what a column costs at least.
        own: the row and the column of the row's own values.
        what: the grid and the workspace; scores: where they are written.

    Returns:
        The largest score; where rows of cells that are near enough start and stop; how many cells these have.
    """
    (grid, room), (limit, rest) = what, near
    columns, largest, many = room.size[2], np.int32(-(2**31)), 0
    top, bottom = _near_range(1, limit - rest, own[0], grid, room)
    left, right = _near_range(2, limit, own[1], grid, room)
    total, begin, stop, ascending = room.column[left:right], left, right, grid.ascending[room.axes[2]]
    total[:] = 0
    for row in range(bottom):
        here, most = row * columns, np.int32(-(2**31))
        edges, line = room.edges[here + begin : here + stop], scores[here + begin : here + stop]
        if row < top:
            for at in range(total.size):
                total[at] += edges[at]
            continue
        for at in range(total.size):
            total[at] += edges[at]
            line[at] = total[at]
        if ascending:
            left, right = _narrowed((left, right), 2, limit - grid.cost[room.first[1] + row], own[1], grid, room)
        line = scores[here + left : here + right]
        for at in range(line.size):
            most = max(most, line[at])
        room.span[row, 0], room.span[row, 1], room.span[row, 2] = left, right, most
        largest, many = max(largest, most), many + right - left
    return largest, top, bottom, many


@inner
def _note(at: Any, far: Any, certain: Any, room: TripleRoom, found: FoundTriples) -> Any:
    """Keep a candidate, and lower the limit if it is certain; return False if there is no room for it."""
    count = found.counts[0]
    if count == found.far.size:
        return False
    found.at[count, 0], found.at[count, 1], found.at[count, 2], found.far[count] = at[0], at[1], at[2], far
    found.counts[0] += 1
    if certain and far < room.limit[BEST]:
        room.limit[BEST], room.limit[LIMIT] = far, loosened(far)
    return True


@inner
def _look_at_plane(plane: Any, rows: Any, own: Any, need: Any, what: Any) -> Any:
    """Note the candidates of a plane that may be answers; return False if there is no room for one.

    Args:
        plane: which; rows: the first one that is scored, and where they stop.
        own: the row and the column of the row's own values.
        need: from which score on a candidate may meet the targets, and certainly does; what a column costs at least.
        what: what is asked, the grid, the workspace, and what was found.
    """
    (asked, grid, room, found), (may, sure, rest), (own_row, own_column) = what, need, own
    scores, beside, columns = room.plane, room.own, room.size[2]
    zero, one, two = room.first[0] + plane, room.first[1], room.first[2]
    for row in range(rows[0], rows[1]):
        near, here, without = grid.cost[zero] + grid.cost[one + row], row * columns, scores[row * columns + own_column]
        if row == own_row or near + rest > room.limit[LIMIT] or room.span[row, 2] < may or without >= sure:
            continue
        for at in range(room.span[row, 0], room.span[row, 1]):
            score = scores[here + at]
            if score < may or at == own_column:
                continue
            fewer = max(without, beside[here + at], scores[own_row * columns + at])  # with one change put back
            largest = max(grid.peak[zero], grid.peak[one + row], grid.peak[two + at])
            far, certain = near + grid.cost[two + at] + asked.c * largest, score >= sure and fewer < may
            near_enough = far <= room.limit[LIMIT] and fewer < sure
            if near_enough and not _note((zero, one + row, two + at), far, certain, room, found):
                return False
    return True


@inner
def _look_beside(plane: Any, own: Any, need: Any, what: Any) -> Any:
    """Score what is near enough of a plane, and note what may be answers; return False if that is too much.

    See `_look_at_plane`.
    """
    (may, sure), (asked, grid, room, found) = need, what
    least, rest = grid.least[room.axes[1]], grid.least[room.axes[2]]
    left = room.limit[LIMIT] - grid.cost[room.first[0] + plane]
    if left < least + rest:
        return True
    largest, top, bottom, many = _add_up((left, rest), own, (grid, room), room.plane)
    found.counts[1] += many
    if found.counts[1] > asked.most:
        return False
    return largest < may or _look_at_plane(plane, (top, bottom), own, (may, sure, rest), what)


@inner
def _look_at_triple(need: Any, what: Any) -> Any:
    """Note the candidates of three features that may be answers; return False if they are too many.

    It goes from the row's own value outwards: what is found near it lowers the limit. See `_look_at_plane`.
    """
    _, grid, room, _ = what
    own_plane, planes = grid.own[room.axes[0]] - room.first[0], room.size[0]
    own = (grid.own[room.axes[1]] - room.first[1], grid.own[room.axes[2]] - room.first[2])
    room.edges[: room.size[1] * room.size[2]] = 0
    for plane in range(own_plane + 1):
        _note_edges(plane, 1, room)
    left = room.limit[LIMIT] - grid.least[room.axes[0]]
    _add_up((left, grid.least[room.axes[2]]), own, (grid, room), room.own)
    for plane in range(own_plane + 1, planes):
        _note_edges(plane, 1, room)
        if not _look_beside(plane, own, need, what):
            return False
    for plane in range(planes - 1, 0, -1):
        _note_edges(plane, -1, room)
        if plane <= own_plane and not _look_beside(plane - 1, own, need, what):
            return False
    return True


@inner
def _conclude(begin: Any, room: TripleRoom, found: FoundTriples) -> None:
    """Forget candidates from `begin` on that are too far by now, and note how far the nearest certain one is."""
    kept, top = begin, found.top
    for at in range(begin, found.counts[0]):
        if found.far[at] <= room.limit[LIMIT]:
            for axis in range(3):
                found.at[kept, axis] = found.at[at, axis]
            found.far[kept] = found.far[at]
            kept += 1
    found.counts[0] = kept
    at = top.size - 1
    if room.limit[BEST] < top[at]:
        while at > 0 and top[at - 1] > room.limit[BEST]:
            top[at] = top[at - 1]
            at -= 1
        top[at] = room.limit[BEST]


@inner
def _thresholds(asked: AskedTriples, trees: Trees, room: TripleRoom) -> Any:
    """Round leaves; return the least whole number of candidates that may meet the targets, and of those that do."""
    scale, base = LARGEST_SUM / max(_round_leaves(trees, asked.weights, 0.0, room), TINY), 0.0
    _round_leaves(trees, asked.weights, scale, room)
    for place in range(asked.weights.size):
        base += asked.weights[place] * trees.base[place]
    off = trees.nodes.roots.size // 2 + 1  # every leaf is rounded by half of one
    may, sure = np.floor((asked.may - base) * scale) - off, np.ceil((asked.sure - base) * scale) + off
    return np.int64(max(min(may, BEYOND), -BEYOND)), np.int64(max(min(sure, BEYOND), -BEYOND))


@kernel
def list_triples(asked: AskedTriples, grid: Grid, trees: Trees, room: TripleRoom, found: FoundTriples) -> int:
    """Write candidates of three changes that may be answers; return COMPLETE, or TOO_MANY if there are more."""
    need = _thresholds(asked, trees, room)
    for number in range(len(asked.features)):
        features = asked.features[number]
        limit = min(asked.limit, loosened(found.top[found.top.size - 1]))
        if grid.least[features[0]] + grid.least[features[1]] + grid.least[features[2]] > limit:
            continue
        if not _choose_axes(features, limit, grid, trees.features.ordered, room):
            return TOO_MANY
        begin, room.limit[LIMIT], room.limit[BEST] = found.counts[0], limit, np.inf
        if _list_events(grid, trees, room) > len(room.event):
            return TOO_MANY
        if not _look_at_triple(need, (asked, grid, room, found)):
            return TOO_MANY
        _conclude(begin, room, found)
    return COMPLETE
