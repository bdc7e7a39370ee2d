"""The rows that change one set of features: branch and bound among boxes of cells, the nearest row of each first.

Each feature of the set takes one of its two lists of cells: so many parts the rows have. A box is given up where it is
too far, or where the best leaves that touch it do not gain enough; else it is parted where the leaf begins that gains
most beyond the box's nearest row.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from mlflow_cf.engine.sets.state import DEPTH, FOUND, MEMBER, OWN, PART, WAITING, WORK, Array, Reach, Search, reached
from mlflow_cf.kernel import inner
from mlflow_cf.rounding import loosened

EVERYWHERE: Final = 2**30  # a place behind all


@inner
def _list_of(part: Any, at: Any) -> Any:
    """Return which list a feature of the set takes in a part of the rows."""
    return (part >> at) & 1


@inner
def _copy_leaf(search: Search, leaf: Any, place: Any) -> None:
    """Write a leaf among those of the set."""
    leaves, boxes = search.leaves, search.boxes
    boxes.inside[place], boxes.tree[place], boxes.gain[place] = place, leaves.tree[leaf], leaves.gain[leaf]
    for at in range(search.progress.counts[DEPTH]):
        ask = leaves.ask[leaf, search.branch.chosen[at]]
        for end in range(4):
            boxes.span[place, 4 * at + end] = leaves.span[ask, end] if ask >= 0 else EVERYWHERE * (end & 1)
        boxes.table[place, at] = leaves.table[ask] if ask >= 0 else -1


@inner
def gather_own(search: Search) -> bool:
    """List the leaves of rows that change just the set; return whether these may meet the target."""
    leaves, branch, counts = search.leaves, search.branch, search.progress.counts
    depth, count, reach = counts[DEPTH], 0, Reach(0, -1, 0.0, 0.0)
    for at in range(branch.size[depth]):
        leaf, inside = branch.lists[depth, at], True
        for place in range(leaves.first[leaf], leaves.first[leaf + 1]):
            inside &= branch.role[leaves.need[place]] == MEMBER
        if inside:
            _copy_leaf(search, leaf, count)
            reach = reached(reach, leaves.tree[leaf], leaves.gain[leaf])
            count += 1
    counts[WORK] += branch.size[depth]
    counts[OWN], counts[PART] = count, 0
    return reach.trees == leaves.trees and reach.high + reach.best >= search.aim.may


@inner
def open_part(search: Search) -> None:
    """Let the box wait that has the next part of the set's rows, if there are any."""
    counts, box, start = search.progress.counts, search.boxes.box[0], search.moves.start
    depth, part = counts[DEPTH], counts[PART]
    counts[PART] += 1
    counts[WORK] += 1
    for at in range(depth):
        feature, side = search.branch.chosen[at], _list_of(part, at)
        box[2 + 2 * at], box[3 + 2 * at] = 0, start[feature, side + 1] - start[feature, side] - 1
        if box[3 + 2 * at] < 0:
            return
    box[0], box[1], counts[WAITING] = 0, counts[OWN], 1


@inner
def _start_of(search: Search, part: Any, at: Any) -> Any:
    """Return where the list starts, among all cells, that a feature of the set takes."""
    return search.moves.start[search.branch.chosen[at], _list_of(part, at)]


@inner
def _shrink(search: Search, box: Array, part: Any) -> Any:
    """Drop what costs too much from a box; return what its nearest row costs."""
    cost, depth, total = search.moves.cost, search.progress.counts[DEPTH], 0.0
    for at in range(depth):
        total += cost[_start_of(search, part, at) + box[2 + 2 * at]]
    for at in range(depth):
        start = _start_of(search, part, at)
        low, high = box[2 + 2 * at], box[3 + 2 * at]
        rest = total - cost[start + low]
        while low < high:
            middle = (low + high + 1) // 2
            if rest + cost[start + middle] <= search.progress.limit[0]:
                low = middle
            else:
                high = middle - 1
        box[3 + 2 * at] = low
    return total


@inner
def _touch(search: Search, leaf: Any, box: Array, part: Any) -> Any:
    """Return 0 if a leaf accepts no row of a box, as far as spans know; 2 if its nearest one, else 1."""
    boxes, found = search.boxes, 2
    for at in range(search.progress.counts[DEPTH]):
        side, low, high = 4 * at + 2 * _list_of(part, at), box[2 + 2 * at], box[3 + 2 * at]
        if boxes.span[leaf, side] > high or boxes.span[leaf, side + 1] < low:
            return 0
        table = boxes.table[leaf, at]
        if boxes.span[leaf, side] > low:
            found = 1
        elif table >= 0 and not search.leaves.flags[table + low]:
            if low == high:
                return 0
            found = 1
    return found


class Inside(NamedTuple):
    """What is known of a box: its leaves, and its best ones.

    Attributes:
        size: how many leaves touch it.
        may: whether its rows may meet the target.
        score: what its nearest row gains.
        leader: the leaf that gains most beyond the leaf of the nearest row; -1: none does.
    """

    size: int
    may: bool
    score: float
    leader: int


@inner
def _look(search: Search, box: Array, part: Any) -> Inside:
    """List the leaves that touch a box, behind those of the box around it."""
    boxes, start, count = search.boxes, box[0], box[1]
    size, reach, score = 0, Reach(0, -1, 0.0, 0.0), 0.0
    best, near, leader, widest, seen = 0.0, 0.0, -1, 0.0, -1
    for at in range(start, start + count):
        leaf = boxes.inside[at]
        touch = _touch(search, leaf, box, part)
        if touch == 0:
            continue
        boxes.inside[start + count + size] = leaf
        size += 1
        if boxes.tree[leaf] != reach.last:
            score += near
            if best - near > widest:
                widest, seen = best - near, leader
            best, near = -np.inf, 0.0
        reach = reached(reach, boxes.tree[leaf], boxes.gain[leaf])
        if boxes.gain[leaf] > best:
            best, leader = boxes.gain[leaf], int(leaf)
        if touch == 2:
            near = boxes.gain[leaf]
    if best - near > widest:
        seen = leader
    search.progress.counts[WORK] += count
    may = reach.trees == search.leaves.trees and reach.high + reach.best >= search.aim.may
    return Inside(size, may, score + near, seen)


@inner
def _note(search: Search, box: Array, part: Any) -> None:
    """Write down the only row of a box."""
    progress, depth = search.progress, search.progress.counts[DEPTH]
    row = progress.found[progress.counts[FOUND]]
    progress.counts[FOUND] += 1
    for at in range(search.aim.most):
        row[2 * at] = search.branch.chosen[at] if at < depth else -1
        row[2 * at + 1] = _start_of(search, part, at) + box[2 + 2 * at] if at < depth else -1


@inner
def _part_box(search: Search, box: Array, part: Any, known: Inside) -> None:
    """Let both parts of a box wait, that with its nearest row on top: it is parted where its leader begins."""
    boxes, counts = search.boxes, search.progress.counts
    chosen, where, most = -1, 0, -1.0
    for at in range(counts[DEPTH]):
        low, rise = box[2 + 2 * at], 0.0
        begins = boxes.span[known.leader, 4 * at + 2 * _list_of(part, at)] if known.leader >= 0 else 0
        if begins > low:
            start = _start_of(search, part, at)
            rise = 1.0 + search.moves.cost[start + begins] - search.moves.cost[start + low]
        if low < box[3 + 2 * at] and rise > most:
            chosen, where, most = at, max(begins, low + 1), rise
    place, box[0], box[1] = counts[WAITING], box[0] + box[1], known.size
    for field in range(2 + 2 * counts[DEPTH]):
        boxes.box[place, field] = boxes.box[place + 1, field] = box[field]
    boxes.box[place, 2 + 2 * chosen], boxes.box[place + 1, 3 + 2 * chosen] = where, where - 1
    counts[WAITING] += 2


@inner
def look_into_box(search: Search) -> bool:
    """Look into the last box that waits; return False if there is no room for its parts or its row."""
    boxes, progress = search.boxes, search.progress
    counts = progress.counts
    counts[WAITING] -= 1
    part, box = counts[PART] - 1, boxes.box[counts[WAITING]]
    total = _shrink(search, box, part)
    if not total <= progress.limit[0]:
        return True
    fits = box[0] + 2 * box[1] <= len(boxes.inside) and counts[WAITING] + 2 <= len(boxes.box)
    if not fits or counts[FOUND] == len(progress.found):
        counts[WAITING] += 1
        return False
    known = _look(search, box, part)
    if not known.may:
        return True
    if known.score >= search.aim.sure:
        progress.limit[0] = min(progress.limit[0], loosened(total))
    single = True
    for at in range(counts[DEPTH]):
        single &= box[2 + 2 * at] == box[3 + 2 * at]
    if single:
        _note(search, box, part)
    else:
        _part_box(search, box, part, known)
    return True
