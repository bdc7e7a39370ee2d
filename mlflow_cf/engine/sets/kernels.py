"""Kernels of the search among sets of changed features: which of them trees can meet the target by, and at what cost.

Sets are made feature by feature, in one order. Beside a set, a tree can give no more than the best of its leaves that
other features of the row need be changed for only as far as the limit on costs still allows. Where all trees together
cannot give enough, no larger set with the same first features is looked at. The rows of a set that is left are boxes of
cells; they are parted where the tree begins to give more that a box promises most of beyond its nearest row.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.engine.thresholds import ROUNDING
from mlflow_cf.kernel import inner, kernel

Array = NDArray[Any]
DONE, GOING, FULL = range(3)
DEPTH, PARTS, BOXES, FOUND, WORK, LEAVES = range(6)  # places in `Progress.counts`
LIMIT, START, COUNT, LOW = range(4)  # of a box: where the leaves of the one around it start and how many, its first cells


class Moves(NamedTuple):
    """What each feature may be changed to: two lists of cells, each with costs that ascend.

    Attributes:
        start: (d, 3) where the two lists of each feature start and end.
        cost: (cells,) what each costs at least; least: (d,) the least cost of a change.
    """

    start: Array
    cost: Array
    least: Array


class SetLeaves(NamedTuple):
    """The leaves that rows within the limit may reach.

    Attributes:
        tree: (n,) ascending; gain: (n,) what it adds to the score; trees: how many there are.
        first: (n + 1,) where the needs of each start; need: (needs,) the features that it needs changed.
        ask: (n, d) the asks of each by feature, -1 where it accepts everything.
        span: (asks, 4) the first and the last accepted place in both lists of the feature; none if the last is less.
        cost: (asks,) what an accepted change costs at least.
        table: (asks,) where the flags of the places of the first list start in `flags`; -1: all within the span.
    """

    tree: Array
    gain: Array
    trees: int
    first: Array
    need: Array
    ask: Array
    span: Array
    cost: Array
    table: Array
    flags: Array


class Aim(NamedTuple):
    """What rows must reach: from `may` on they may meet the target, from `sure` on they certainly do.

    They change no fewer than `least` features and no more than `most`.
    """

    may: float
    sure: float
    least: int
    most: int


class Progress(NamedTuple):
    """What a search has come to, and the sets and boxes that wait.

    Attributes:
        counts: (6,) see the places above; limit: (1,) on costs, lowered by rows that certainly meet the target.
        chosen: (most,) the set; comes: (most + 1,) the feature that is tried next beside its first ones.
        member: (d,) flags of the set.
        total: (most + 1,) what its first features cost at least; size: (most + 1,) and the leaves beside them:
        lists: (most + 1, n).
        box: (b, 2 + 2 * most) boxes that wait: start and number of leaves around each, first and last places.
        inside: (pool,) leaves of boxes.
        found: (f, 2 * most) feature and place in `Moves.cost` of every change of the rows found; -1: none.
    """

    counts: Array
    limit: Array
    chosen: Array
    comes: Array
    member: Array
    total: Array
    size: Array
    lists: Array
    box: Array
    inside: Array
    found: Array


class Search(NamedTuple):
    """All that a search works on."""

    moves: Moves
    leaves: SetLeaves
    aim: Aim
    progress: Progress


@inner
def _cost_beside(search: Search, leaf: Any, depth: Any) -> Any:
    """Return what rows of a leaf cost at least that change the set's first features; inf where it is for other ones."""
    moves, leaves, progress = search.moves, search.leaves, search.progress
    last = progress.chosen[depth - 1] if depth else -1
    cost, changes = progress.total[depth], depth
    for at in range(leaves.first[leaf], leaves.first[leaf + 1]):
        feature = leaves.need[at]
        if not progress.member[feature]:
            if feature <= last:
                return np.inf
            cost += leaves.cost[leaves.ask[leaf, feature]]
            changes += 1
    if changes > search.aim.most:
        return np.inf
    for at in range(depth):
        ask = leaves.ask[leaf, progress.chosen[at]]
        if ask >= 0:
            cost += leaves.cost[ask] - moves.least[progress.chosen[at]]
    return cost


@inner
def _gather(search: Search, source: Array, size: Any, depth: Any) -> bool:
    """List the leaves that rows with the set's first features may reach; return whether these may meet the target."""
    leaves, progress = search.leaves, search.progress
    count, trees, last, best, high = 0, 0, -1, 0.0, 0.0
    for at in range(size):
        leaf = source[at]
        if _cost_beside(search, leaf, depth) > progress.limit[0]:
            continue
        progress.lists[depth, count] = leaf
        count += 1
        if leaves.tree[leaf] != last:
            high += best
            trees += 1
            last, best = leaves.tree[leaf], leaves.gain[leaf]
        else:
            best = max(best, leaves.gain[leaf])
    progress.size[depth] = count
    progress.counts[WORK] += size
    reached: bool = trees == leaves.trees and high + best >= search.aim.may
    return reached


@inner
def _next_set(search: Search) -> bool:
    """Go on to the next set; return False if there is none."""
    moves, aim, progress = search.moves, search.aim, search.progress
    counts = progress.counts
    while True:
        depth = counts[DEPTH]
        feature = progress.comes[depth]
        if depth == aim.most or feature == len(moves.least):
            if depth == 0:
                return False
            counts[DEPTH] -= 1
            progress.member[progress.chosen[depth - 1]] = False
            continue
        progress.comes[depth] += 1
        total = progress.total[depth] + moves.least[feature]
        if not total <= progress.limit[0]:
            continue
        progress.chosen[depth], progress.member[feature], progress.total[depth + 1] = feature, True, total
        counts[WORK] += 1
        if _gather(search, progress.lists[depth], progress.size[depth], depth + 1):
            counts[DEPTH] += 1
            progress.comes[depth + 1] = feature + 1
            counts[PARTS] = 0 if depth + 1 >= aim.least else 1 << (depth + 1)
            return True
        progress.member[feature] = False


@inner
def _list_of(part: Any, at: Any) -> Any:
    """Return which list the feature at a place of the set takes in a part of its rows."""
    return (part >> at) & 1


@inner
def _open_part(search: Search) -> None:
    """Let the box wait that has the next part of the set's rows, and all its leaves."""
    moves, leaves, progress = search.moves, search.leaves, search.progress
    counts = progress.counts
    depth, part = counts[DEPTH], counts[PARTS]
    counts[PARTS] += 1
    for at in range(depth):
        feature, side = progress.chosen[at], _list_of(part, at)
        size = moves.start[feature, side + 1] - moves.start[feature, side]
        if size == 0:
            return
        progress.box[0, 2 + 2 * at], progress.box[0, 3 + 2 * at] = 0, size - 1
    count = 0
    for at in range(progress.size[depth]):
        leaf, inside = progress.lists[depth, at], True
        for place in range(leaves.first[leaf], leaves.first[leaf + 1]):
            inside &= progress.member[leaves.need[place]]
        if inside:
            progress.inside[count] = leaf
            count += 1
    progress.box[0, 0], progress.box[0, 1], counts[BOXES] = 0, count, 1


@inner
def _touches(search: Search, leaf: Any, box: Array, part: Any, depth: Any, corner: bool) -> bool:
    """Whether a leaf accepts rows of a box, as far as spans know, or its nearest row (`corner`), for certain."""
    leaves, progress = search.leaves, search.progress
    for at in range(depth):
        ask = leaves.ask[leaf, progress.chosen[at]]
        if ask >= 0:
            side = 2 * _list_of(part, at)
            low, high = box[2 + 2 * at], box[2 + 2 * at] if corner else box[3 + 2 * at]
            if leaves.span[ask, side] > high or leaves.span[ask, side + 1] < low:
                return False
            if low == high and leaves.table[ask] >= 0 and not leaves.flags[leaves.table[ask] + low]:
                return False
    return True


@inner
def _shrink(search: Search, box: Array, part: Any, depth: Any) -> Any:
    """Drop what costs too much from a box; return what its nearest row costs."""
    moves, progress = search.moves, search.progress
    total = 0.0
    for at in range(depth):
        total += moves.cost[moves.start[progress.chosen[at], _list_of(part, at)] + box[2 + 2 * at]]
    for at in range(depth):
        start = moves.start[progress.chosen[at], _list_of(part, at)]
        rest = total - moves.cost[start + box[2 + 2 * at]]
        low, high = box[2 + 2 * at], box[3 + 2 * at]
        while low < high:
            middle = (low + high + 1) // 2
            if rest + moves.cost[start + middle] <= progress.limit[0]:
                low = middle
            else:
                high = middle - 1
        box[3 + 2 * at] = low
    return total


@inner
def _note(search: Search, box: Array, part: Any, depth: Any) -> None:
    """Write down the only row of a box."""
    moves, progress = search.moves, search.progress
    count = progress.counts[FOUND]
    progress.counts[FOUND] += 1
    for at in range(search.aim.most):
        inside = at < depth
        feature = progress.chosen[at] if inside else -1
        progress.found[count, 2 * at] = feature
        progress.found[count, 2 * at + 1] = (
            moves.start[feature, _list_of(part, at)] + box[2 + 2 * at] if inside else -1
        )


@inner
def _part_box(search: Search, box: Array, seen: Any, part: Any, top: Any) -> None:
    """Let both parts of a box wait, the nearer one on top; `seen` is the leaf to part before, -1: at the first row."""
    moves, leaves, progress = search.moves, search.leaves, search.progress
    counts, depth = progress.counts, progress.counts[DEPTH]
    chosen, where, most = -1, 0, -1.0
    for at in range(depth):
        low, high = box[2 + 2 * at], box[3 + 2 * at]
        ask = leaves.ask[seen, progress.chosen[at]] if seen >= 0 else -1
        if ask >= 0 and leaves.span[ask, 2 * _list_of(part, at)] > low:
            start = moves.start[progress.chosen[at], _list_of(part, at)]
            begins = leaves.span[ask, 2 * _list_of(part, at)]
            rise = 1.0 + moves.cost[start + begins] - moves.cost[start + low]
        else:
            begins, rise = low + 1, 0.0
        if low < high and rise > most:
            chosen, where, most = at, begins, rise
    place, box[0], box[1] = counts[BOXES], box[0] + box[1], top
    for field in range(2 + 2 * depth):
        progress.box[place, field], progress.box[place + 1, field] = box[field], box[field]
    progress.box[place, 2 + 2 * chosen], progress.box[place + 1, 3 + 2 * chosen] = where, where - 1
    counts[BOXES] += 2


@inner
def _look_into(search: Search) -> bool:
    """Look into the last box that waits; return False if there is no room for what is found."""
    leaves, aim, progress = search.leaves, search.aim, search.progress
    counts = progress.counts
    counts[BOXES] -= 1
    depth, part, box = counts[DEPTH], counts[PARTS] - 1, progress.box[counts[BOXES]]
    total = _shrink(search, box, part, depth)
    if not total <= progress.limit[0]:
        return True
    start, count = box[0], box[1]
    if (
        start + 2 * count > len(progress.inside)
        or counts[BOXES] + 3 > len(progress.box)
        or counts[FOUND] == len(progress.found)
    ):
        counts[BOXES] += 1
        return False
    counts[WORK] += count
    top, trees, last, high, score = 0, 0, -1, 0.0, 0.0
    best, near, leader = -np.inf, 0.0, -1
    widest, seen = 0.0, -1
    for at in range(start, start + count):
        leaf = progress.inside[at]
        if not _touches(search, leaf, box, part, depth, False):
            continue
        progress.inside[start + count + top] = leaf
        top += 1
        if leaves.tree[leaf] != last:
            if last >= 0:
                high += best
                score += near
                if best - near > widest:
                    widest, seen = best - near, leader
            trees += 1
            last, best, near = leaves.tree[leaf], -np.inf, 0.0
        if leaves.gain[leaf] > best:
            best, leader = leaves.gain[leaf], leaf
        if _touches(search, leaf, box, part, depth, True):
            near = leaves.gain[leaf]
    if trees < leaves.trees:
        return True
    high += best
    score += near
    if best - near > widest:
        seen = leader
    if high < aim.may:
        return True
    single = True
    for at in range(depth):
        single &= box[2 + 2 * at] == box[3 + 2 * at]
    if single:
        _note(search, box, part, depth)
    if score >= aim.sure:
        progress.limit[0] = min(progress.limit[0], total + ROUNDING * max(1.0, total))
    if not single:
        _part_box(search, box, seen, part, top)
    return True


@kernel
def look(search: Search, most: int) -> int:
    """Look into sets and boxes until about so many leaves were; return DONE, GOING or FULL."""
    progress = search.progress
    counts = progress.counts
    stop = counts[WORK] + most
    while counts[WORK] < stop:
        if counts[BOXES]:
            if not _look_into(search):
                return FULL
        elif counts[PARTS] < 1 << counts[DEPTH]:
            _open_part(search)
        elif not _next_set(search):
            return DONE
    return GOING


@kernel
def begin(search: Search) -> bool:
    """Start with the set of no feature; return whether the target may be met at all within the limit."""
    progress = search.progress
    for place in range(5):
        progress.counts[place] = 0
    progress.member[:] = False
    progress.comes[0], progress.total[0], progress.counts[PARTS] = 0, 0.0, 1
    every = progress.inside
    for leaf in range(len(search.leaves.tree)):
        every[leaf] = leaf
    return _gather(search, every, len(search.leaves.tree), 0)
