"""All changes of three features of a row, scored in a grid of their cells.

Plane after plane, what boxes of leaves add where they start and take back where they end (see `triple_events`) is noted
at the row where they start, in their columns, and taken back where they end; sums from row to row, and from plane to
plane, are the scores (as in `sweeps.add_up`, in two of three directions).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.kernel import inner, kernel
from mlflow_cf.rounding import loosened
from mlflow_cf.structures.kernels.own_paths import note_own_paths
from mlflow_cf.structures.kernels.trees import Trees
from mlflow_cf.structures.kernels.triple_events import choose_cells, join_cells, list_events, round_leaves
from mlflow_cf.structures.kernels.triple_grid import (
    BEST,
    COMPLETE,
    LIMIT,
    TOO_MANY,
    AskedTriples,
    FoundTriples,
    Grid,
    TripleRoom,
)

Array = NDArray[Any]
HALVINGS = 40  # of the range of distances, to find the middle one
LARGEST_SUM = 2**29  # of whole numbers: sums of four such numbers still fit into 32 bits
TINY, BEYOND = 1e-200, 2.0**31  # sums of leaves are no smaller: scales stay finite; and no score is as large


@inner
def note_edges(plane: Any, sign: Any, room: TripleRoom) -> None:
    """Note what the boxes that start or end at a plane add there, at the rows where they start and end.

    With sign -1, take it back.
    """
    event, edges, rows, columns = room.event, room.edges, room.size[1], room.size[2]
    at = np.int64(room.head[plane])
    while at >= 0:
        value, model = np.int32(sign * event[at, 1]), np.int64(event[at, 6])
        for end in range(2):
            row = np.int64(event[at, 2 + end])
            if row < rows:
                line = edges[model, row * columns + event[at, 4] : row * columns + event[at, 5]]
                for cell in range(line.size):
                    line[cell] += value
            value = np.int32(-value)
        at = np.int64(event[at, 0])


@inner
def near_range(axis: Any, limit: Any, grid: Grid, room: TripleRoom) -> Any:
    """Return start and stop of the cells of an axis that contain all within a limit, and the row's own."""
    cost, own, begin, stop = room.cost[axis], room.own[axis], 0, room.size[axis]
    if grid.ascending[room.axes[axis]]:
        while begin < own and cost[begin] > limit:
            begin += 1
        while stop > own + 1 and cost[stop - 1] > limit:
            stop -= 1
    return begin, stop


@inner
def _narrowed(span: Any, axis: Any, limit: Any, room: TripleRoom) -> Any:
    """Return the range of cells of an axis within a limit, where costs grow to either side; `span`: one near it."""
    cost, own, (begin, stop), size = room.cost[axis], room.own[axis], span, room.size[axis]
    while begin > 0 and cost[begin - 1] <= limit:
        begin -= 1
    while begin < own and cost[begin] > limit:
        begin += 1
    while stop < size and cost[stop] <= limit:
        stop += 1
    while stop > own + 1 and cost[stop - 1] > limit:
        stop -= 1
    return begin, stop


@inner
def _add_up(limit: Any, grid: Grid, room: TripleRoom, scores: Array, whole: Any) -> Any:
    """Write the scores of a plane as far as changes are near enough.

    Args:
        limit: what rows and columns may cost together.
        grid, room: the grid and the workspace.
        scores: (models, rows * columns) where they are written.
        whole: whether all models' are, or only until one refuses the plane, which is then the first to be asked.

    Returns:
        By how much the largest score exceeds what is needed, of the model where it does so least; where rows of cells
        that are near enough start and stop; how many cells these have.
    """
    least, many, order = np.int64(2**40), 0, room.order
    top, bottom = near_range(1, limit - room.least[2], grid, room)
    for row in range(top, bottom):
        room.span[row, 2] = 2**40
    for place in range(scores.shape[0]):
        model = order[place]
        here = add_up_model(model, (limit, top, bottom), grid, room, scores[model])
        least, many = min(least, here[0]), many + here[1]
        if least < 0 and not whole:
            order[0], order[place] = model, order[0]
            break
    return least, top, bottom, many


@inner
def add_up_model(model: Any, near: Any, grid: Grid, room: TripleRoom, scores: Array) -> Any:
    """Do the same for one model; return by how much its largest score exceeds what it needs, and the number of cells.

    `near`: what rows and columns may cost together, and where rows that are near enough start and stop.
    """
    (limit, top, bottom), may = near, room.need[0, model]
    columns, largest, many = room.size[2], np.int64(-(2**40)), 0
    left, right = near_range(2, limit, grid, room)
    total, begin, stop, ascending = room.column[left:right], left, right, grid.ascending[room.axes[2]]
    total[:] = 0
    for row in range(bottom):
        here, most = row * columns, np.int32(-(2**31))
        edges, line = room.edges[model, here + begin : here + stop], scores[here + begin : here + stop]
        if row < top:
            for at in range(total.size):
                total[at] += edges[at]
            continue
        for at in range(total.size):
            total[at] += edges[at]
            line[at] = total[at]
        if ascending:
            left, right = _narrowed((left, right), 2, limit - room.cost[1, row], room)
        line = scores[here + left : here + right]
        for at in range(line.size):
            most = max(most, line[at])
        beyond = np.int64(most) - may
        room.span[row, 0], room.span[row, 1], room.span[row, 2] = left, right, min(room.span[row, 2], beyond)
        largest, many = max(largest, beyond), many + right - left
    return largest, many


@inner
def _keep_within(begin: Any, limit: Any, found: FoundTriples) -> None:
    """Forget candidates from `begin` on that are farther than a limit."""
    kept = begin
    for at in range(begin, found.counts[0]):
        if found.far[at] <= limit:
            for axis in range(3):
                found.at[kept, axis] = found.at[at, axis]
            found.far[kept], found.sure[kept] = found.far[at], found.sure[at]
            kept += 1
    found.counts[0] = kept


@inner
def _make_room(room: TripleRoom, found: FoundTriples) -> Any:
    """Forget the farther half of all candidates, and look no farther; return False if too many are as near."""
    count, low, high = found.counts[0], np.inf, 0.0
    for at in range(count):
        low, high = min(low, found.far[at]), max(high, found.far[at])
    for _ in range(HALVINGS):
        middle, near = (low + high) / 2, 0
        for at in range(count):
            near += found.far[at] <= middle
        low, high = (middle, high) if 2 * near <= count else (low, middle)
    _keep_within(0, low, found)
    room.limit[LIMIT] = found.complete[0] = low
    return found.counts[0] < count


@inner
def _note(at: Any, far: Any, certain: Any, room: TripleRoom, found: FoundTriples) -> Any:
    """Keep a candidate, and lower the limit if it is certain; return False if there is no room for it."""
    if found.counts[0] == found.far.size:
        if not _make_room(room, found):
            return False
        if far > room.limit[LIMIT]:
            return True
    count = found.counts[0]
    for axis in range(3):
        found.at[count, axis] = at[axis]
    found.far[count], found.sure[count] = far, certain
    found.counts[0] += 1
    if certain and far < room.limit[BEST]:
        room.limit[BEST], room.limit[LIMIT] = far, loosened(far)
    return True


@inner
def _note_all(at: Any, asked: AskedTriples, grid: Grid, room: TripleRoom, found: FoundTriples) -> Any:
    """Note all cells that trees cannot tell from those of a candidate; return False if there is no room for them."""
    run, cost, peak, c = room.run, grid.cost, grid.peak, asked.c
    for one in range(run[0, at[0], 0], run[0, at[0], 1]):
        for two in range(run[1, at[1], 0], run[1, at[1], 1]):
            for three in range(run[2, at[2], 0], run[2, at[2], 1]):
                far = cost[one] + cost[two] + cost[three] + c * max(peak[one], peak[two], peak[three])
                near_enough = asked.beyond < far <= room.limit[LIMIT]
                if near_enough and not _note((one, two, three), far, False, room, found):
                    return False
    return True


@inner
def _all_may(at: Any, room: TripleRoom) -> Any:
    """Whether all models but the first may accept a cell of the present plane."""
    accepted = True
    for model in range(1, room.plane.shape[0]):
        accepted &= room.plane[model, at] >= room.need[0, model]
    return accepted


@inner
def _look_at_plane(plane: Any, rows: Any, what: Any) -> Any:
    """Note the candidates of a plane that may be answers; return False if there is no room for one.

    Args:
        plane: which; rows: the first one that is scored, and where they stop.
        what: what is asked, the workspace, and what was found.
    """
    asked, grid, room, found = what
    scores, beside, columns, cost, peak = room.plane[0], room.beside[0], room.size[2], room.cost, room.peak
    own_row, own_column, least, may, sure = room.own[1], room.own[2], room.least[2], room.need[0, 0], room.need[1, 0]
    for row in range(rows[0], rows[1]):
        near, here, without = cost[0, plane] + cost[1, row], row * columns, scores[row * columns + own_column]
        if row == own_row or near + least > room.limit[LIMIT] or room.span[row, 2] < 0 or without >= sure:
            continue
        for at in range(room.span[row, 0], room.span[row, 1]):
            score = scores[here + at]
            if score < may or at == own_column or not _all_may(here + at, room):
                continue
            fewer = max(without, beside[here + at], scores[own_row * columns + at])  # with one change put back
            largest = max(peak[0, plane], peak[1, row], peak[2, at])
            far, certain = near + cost[2, at] + asked.c * largest, score >= sure and fewer < may
            if not far <= room.limit[LIMIT] or fewer >= sure:
                continue
            if asked.joins:
                cells = room.cell[0, plane], room.cell[1, row], room.cell[2, at]
                if not _note(cells, far, certain, room, found):
                    return False
            elif not _note_all((plane, row, at), asked, grid, room, found):
                return False
    return True


@inner
def _look_beside(plane: Any, what: Any) -> Any:
    """Score what is near enough of a plane, and note what may be answers; return False if that is too much.

    See `_look_at_plane`.
    """
    asked, grid, room, found = what
    left = room.limit[LIMIT] - room.cost[0, plane]
    if left < room.least[1] + room.least[2]:
        return True
    least, top, bottom, many = _add_up(left, grid, room, room.plane, False)
    found.counts[1] += many
    if found.counts[1] > asked.most:
        return False
    return least < 0 or _look_at_plane(plane, (top, bottom), what)


@inner
def _look_at_triple(what: Any) -> Any:
    """Note the candidates of three features that may be answers; return False if they are too many.

    It goes from the row's own value outwards: what is found near it lowers the limit. See `_look_at_plane`.
    """
    _, grid, room, _ = what
    own, planes = room.own[0], room.size[0]
    room.edges[:, : room.size[1] * room.size[2]] = 0
    for plane in range(own + 1):
        note_edges(plane, 1, room)
    _add_up(room.limit[LIMIT] - room.least[0], grid, room, room.beside, True)
    for plane in range(own + 1, planes):
        note_edges(plane, 1, room)
        if not _look_beside(plane, what):
            return False
    for plane in range(planes - 1, 0, -1):
        note_edges(plane, -1, room)
        if plane <= own and not _look_beside(plane - 1, what):
            return False
    return True


@inner
def _conclude(begin: Any, room: TripleRoom, found: FoundTriples) -> None:
    """Forget candidates from `begin` on that are too far by now, and note how far the nearest certain one is."""
    top = found.top
    _keep_within(min(begin, found.counts[0]), room.limit[LIMIT], found)
    at = top.size - 1
    if room.limit[BEST] < top[at]:
        while at > 0 and top[at - 1] > room.limit[BEST]:
            top[at] = top[at - 1]
            at -= 1
        top[at] = room.limit[BEST]


@inner
def note_thresholds(asked: AskedTriples, trees: Trees, room: TripleRoom) -> None:
    """Round leaves; write the least whole number of candidates that may meet the targets, and of those that do."""
    scale, outputs = LARGEST_SUM / max(round_leaves(trees, asked.weights, 0.0, room), TINY), asked.weights.size
    round_leaves(trees, asked.weights, scale, room)
    off, models = trees.nodes.roots.size // 2 + 1, room.need.shape[1]  # every leaf is rounded by half of one
    for model in range(models):
        base = 0.0
        for place in range(model * outputs // models, (model + 1) * outputs // models):
            base += asked.weights[place] * trees.base[place]
        may, sure = np.floor((asked.may - base) * scale) - off, np.ceil((asked.sure - base) * scale) + off
        room.need[0, model] = np.int64(max(min(may, BEYOND), -BEYOND))
        room.need[1, model] = np.int64(max(min(sure, BEYOND), -BEYOND))


@inner
def _prepare(features: Array, asked: Any, trees: Trees, grid: Grid, room: TripleRoom) -> Any:
    """Write where leaves start and end in the grid of three features; return whether there is room for that.

    `asked`: how far candidates are, and whether cells are joined.
    """
    limit, joins = asked
    if not choose_cells(features, limit, grid, trees.features.ordered, room):
        return False
    events = list_events(-1, grid, trees, room)
    if events > len(room.event):
        return False
    join_cells(events, joins, grid, room)
    return room.size[1] * room.size[2] <= room.plane.shape[1]


@kernel
def list_triples(asked: AskedTriples, grid: Grid, trees: Trees, room: TripleRoom, found: FoundTriples) -> int:
    """Write candidates of three changes that may be answers; return COMPLETE, or TOO_MANY if there are more."""
    note_thresholds(asked, trees, room)
    note_own_paths(grid.X, trees, room.paths)
    for number in range(len(asked.features)):
        features = asked.features[number]
        limit = min(asked.limit, loosened(found.top[found.top.size - 1]), found.complete[0])
        if grid.least[features[0]] + grid.least[features[1]] + grid.least[features[2]] > limit:
            continue
        if not _prepare(features, (limit, asked.joins), trees, grid, room):
            return TOO_MANY
        if room.least[0] + room.least[1] + room.least[2] > limit:
            continue
        begin, room.limit[LIMIT], room.limit[BEST] = found.counts[0], limit, np.inf
        if not _look_at_triple((asked, grid, room, found)):
            return TOO_MANY
        _conclude(begin, room, found)
    return COMPLETE
