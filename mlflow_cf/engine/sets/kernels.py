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
MANY: Final = 2**30  # parts: none is left
MEMBER: Final = -2
OPEN: Final = -1
EVERYWHERE: Final = 2**30  # a place behind all
DEPTH, PARTS, BOXES, FOUND, WORK, LEAVES = range(6)  # in `Progress.counts`: of the set, of its parts, what waits, ...
SMALL: Final = 8  # times as many leaves as shares are few
FIRST_STEPS: Final = 150  # of shares, before any feature is in a set
PATIENCE: Final = 5  # steps without a larger bound, after which steps become shorter
SHORTER: Final = 0.6  # times as long
BEYOND: Final = 1.05  # times the limit: the bound that steps aim at (Polyak's step)


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
        first: (n + 1,) where the needs of each start; need: (needs,) the features that it needs changed; pair: (needs,)
            the number of its tree and the feature among all such pairs, feature after feature.
        paired: (d + 1,) the first pair of every feature.
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
    pair: Array
    paired: Array
    ask: Array
    span: Array
    cost: Array
    table: Array
    flags: Array


class Aim(NamedTuple):
    """What rows must reach: from `may` on they may meet the target, from `sure` on they certainly do.

    They change no fewer than `least` features and no more than `most`. Shares take so many `steps` beside every set.
    No change costs less than the `cheapest`.
    """

    may: float
    sure: float
    least: int
    most: int
    steps: int
    cheapest: float


class Progress(NamedTuple):
    """What a search has come to, and the sets and boxes that wait.

    Attributes:
        counts: (6,) see the places above; limit: (1,) on costs, lowered by rows that certainly meet the target.
        chosen: (most,) the set, feature after feature.
        role: (d,) of features: MEMBER of the set, OPEN, or how many of its first ones it is not looked at beside any more.
        shares: (most + 1, pairs + 1) of the sets' first features, and the price of a unit of gain at the end: what each
            tree pays of what a further change costs; those of a feature add up to 1.
        worth, leader: (trees,) the least of shares of costs - price * gain of a tree's leaves, and the leaf.
        paid: (pairs,) what the leaders pay; kept: (pairs + 1,) a copy of shares.
        uses: (most + 1,) whose shares are used beside a set's first features.
        payers, payment: (d,) how many leaders pay for a feature, and how much.
        alive: (most + 1,) whether rows with its first features may be near enough.
        total: (most + 1,) what its first features cost at least; size: (most + 1,) and the leaves beside them:
        lists: (most + 1, n).
        box: (b, 2 + 2 * most) boxes that wait: start and number of leaves around each, first and last places.
        inside: (pool,) leaves of boxes, as numbered among those of the set.
        span: (n, 4 * most) the spans of the set's leaves, feature after feature; table: (n, most) see `SetLeaves`;
            tree, gain: (n,) of these leaves.
        found: (f, 2 * most) feature and place in `Moves.cost` of every change of the rows found; -1: none.
    """

    counts: Array
    limit: Array
    chosen: Array
    role: Array
    shares: Array
    worth: Array
    leader: Array
    paid: Array
    kept: Array
    uses: Array
    payers: Array
    payment: Array
    alive: Array
    total: Array
    size: Array
    lists: Array
    box: Array
    inside: Array
    span: Array
    table: Array
    tree: Array
    gain: Array
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
    cost, changes = progress.total[depth], depth
    for at in range(leaves.first[leaf], leaves.first[leaf + 1]):
        feature = leaves.need[at]
        if progress.role[feature] >= 0:
            return np.inf
        if progress.role[feature] == OPEN:
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
def _worth(search: Search, leaf: Any, depth: Any) -> Any:
    """Return what a leaf's tree pays for it beside the set's first features, less what its gain is worth."""
    leaves, progress = search.leaves, search.progress
    shares = progress.shares[progress.uses[depth]]
    found = -shares[len(shares) - 1] * leaves.gain[leaf]
    for at in range(leaves.first[leaf], leaves.first[leaf + 1]):
        feature = leaves.need[at]
        if progress.role[feature] == OPEN:
            found += shares[leaves.pair[at]] * leaves.cost[leaves.ask[leaf, feature]]
    return found


@inner
def _best_leaves(search: Search, depth: Any) -> tuple[Any, Any]:
    """Write the best leaf of every tree; return a lower bound on the cost of rows that may meet the target, and the gain.

    This is the Lagrangian bound that `structures/trees/ascent.py` tells of, with the set's first features paid for.
    """
    leaves, progress = search.leaves, search.progress
    progress.worth[:] = np.inf
    for at in range(progress.size[depth]):
        leaf = progress.lists[depth, at]
        tree, worth = leaves.tree[leaf], _worth(search, leaf, depth)
        if worth < progress.worth[tree]:
            progress.worth[tree], progress.leader[tree] = worth, leaf
    price = progress.shares[progress.uses[depth], len(progress.paid)]
    bound, gained = progress.total[depth] + price * search.aim.may, 0.0
    for tree in range(leaves.trees):
        bound += progress.worth[tree]
        gained += leaves.gain[progress.leader[tree]]
    progress.counts[WORK] += progress.size[depth]
    return bound, gained


@inner
def _pay(search: Search, depth: Any) -> float:
    """Write what the leaders pay, less the mean of each feature's pairs; return the sum of squares."""
    leaves, progress = search.leaves, search.progress
    progress.paid[:] = 0.0
    for tree in range(leaves.trees):
        leaf = progress.leader[tree]
        for at in range(leaves.first[leaf], leaves.first[leaf + 1]):
            if progress.role[leaves.need[at]] == OPEN:
                progress.paid[leaves.pair[at]] = leaves.cost[leaves.ask[leaf, leaves.need[at]]]
    squares = 0.0
    for feature in range(len(progress.role)):
        first, last = leaves.paired[feature], leaves.paired[feature + 1]
        mean = 0.0
        for pair in range(first, last):
            mean += progress.paid[pair]
        if mean > 0.0:
            mean /= last - first
            for pair in range(first, last):
                progress.paid[pair] -= mean
                squares += progress.paid[pair] ** 2
    return squares


@inner
def _step(search: Search, length: Any, depth: Any) -> None:
    """Move shares along what was paid; they stay positive, and those of a feature add up to 1."""
    leaves, progress = search.leaves, search.progress
    shares = progress.shares[depth]
    for feature in range(len(progress.role)):
        total = 0.0
        for pair in range(leaves.paired[feature], leaves.paired[feature + 1]):
            shares[pair] = max(shares[pair] + length * progress.paid[pair], 0.0)
            total += shares[pair]
        for pair in range(leaves.paired[feature], leaves.paired[feature + 1]):
            shares[pair] /= total


@inner
def _ascend(search: Search, steps: Any, depth: Any) -> Any:
    """Improve shares and price by some steps; return the largest bound, whose shares and best leaves are kept."""
    aim, progress = search.aim, search.progress
    shares, limit = progress.shares[depth], progress.limit[0]
    last, found, worse, length = len(progress.paid), -np.inf, 0, 1.0
    unit = abs(aim.may) if aim.may != 0.0 else 1.0  # prices and costs are stepped alike if what is needed is 1
    for at in range(steps):
        bound, gained = _best_leaves(search, depth)
        if bound > found:
            found, worse = bound, 0
            for pair in range(last + 1):
                progress.kept[pair] = shares[pair]
        else:
            worse += 1
            if worse % PATIENCE == 0:
                length *= SHORTER
        if found > limit or at == steps - 1:
            break
        lacks = (aim.may - gained) / unit
        progress.counts[WORK] += last
        squares = _pay(search, depth) + (lacks * limit) ** 2
        if squares <= 0.0:
            break
        step = length * max(BEYOND * limit - bound, 0.0) / squares
        _step(search, step, depth)
        shares[last] = max(shares[last] + step * lacks * limit**2 / unit, 0.0)
    for pair in range(last + 1):
        shares[pair] = progress.kept[pair]
    return found


@inner
def _settle(search: Search, steps: Any, depth: Any) -> bool:
    """Drop leaves that cost too much beside a set; return whether rows with its first features may be near enough.

    Where few leaves are left, shares are those of fewer features: to improve them would take longer than to go on.
    """
    progress = search.progress
    own = progress.uses[depth] == depth
    if depth and not own and SMALL * progress.size[depth] >= len(progress.paid):
        for pair in range(len(progress.kept)):
            progress.shares[depth, pair] = progress.shares[progress.uses[depth], pair]
        progress.uses[depth], own = depth, True
    if own and (not depth or SMALL * progress.size[depth] >= len(progress.paid)):
        if _ascend(search, steps, depth) > progress.limit[0]:
            return False
    bound, _ = _best_leaves(search, depth)
    if bound > progress.limit[0]:
        return False
    count = 0
    for at in range(progress.size[depth]):
        leaf = progress.lists[depth, at]
        if bound - progress.worth[search.leaves.tree[leaf]] + _worth(search, leaf, depth) <= progress.limit[0]:
            progress.lists[depth, count] = leaf
            count += 1
    progress.size[depth] = count
    return True


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
    return trees == leaves.trees and high + best >= search.aim.may


@inner
def _further(search: Search, depth: Any) -> Any:
    """Return whether beside the set's first features no other one can change within the limit (0), one, or more (2)."""
    aim, progress = search.aim, search.progress
    left = min(2, aim.most - depth)
    while left and progress.total[depth] + left * aim.cheapest > progress.limit[0]:
        left -= 1
    return left


@inner
def _open(search: Search, feature: Any) -> bool:
    """Put a feature into the set; return whether rows that change it, too, may be near enough and meet the target."""
    progress = search.progress
    depth = progress.counts[DEPTH] + 1
    progress.counts[DEPTH] = depth
    progress.chosen[depth - 1], progress.role[feature] = feature, MEMBER
    progress.total[depth] = progress.total[depth - 1] + search.moves.least[feature]
    if not _gather(search, progress.lists[depth - 1], progress.size[depth - 1], depth):
        return False
    progress.uses[depth] = progress.uses[depth - 1]
    if _further(search, depth) < 2:
        return True
    return _settle(search, search.aim.steps, depth)


@inner
def _close(search: Search) -> None:
    """Take the last feature out of the set, beside whose others it is not looked at any more."""
    progress = search.progress
    depth = progress.counts[DEPTH]
    for feature in range(len(progress.role)):
        if progress.role[feature] == depth:
            progress.role[feature] = OPEN
    progress.counts[DEPTH] = depth - 1
    depth -= 1
    progress.role[progress.chosen[depth]] = depth
    alive = _gather(search, progress.lists[depth], progress.size[depth], depth)
    if alive and _further(search, depth) > 1:
        alive = _settle(search, search.aim.steps, depth)
    progress.alive[depth] = alive


@inner
def _dearest(search: Search, depth: Any) -> Any:
    """Return the open feature about which trees' payments differ most, else one that some leaf needs changed; -1: there is none."""
    leaves, progress = search.leaves, search.progress
    found, most, further = -1, 0.0, _further(search, depth)
    if further == 0:
        return -1
    if further > 1:
        progress.payers[:], progress.payment[:] = 0, 0.0
        for tree in range(leaves.trees):
            leaf = progress.leader[tree]
            for at in range(leaves.first[leaf], leaves.first[leaf + 1]):
                feature = leaves.need[at]
                if progress.role[feature] == OPEN:
                    progress.payers[feature] += 1
                    progress.payment[feature] += leaves.cost[leaves.ask[leaf, feature]]
        for feature in range(len(progress.role)):
            pairs = leaves.paired[feature + 1] - leaves.paired[feature]
            if progress.payers[feature]:
                differs = progress.payment[feature] * (1.0 - progress.payers[feature] / (pairs + 1.0))
                if differs > most:
                    found, most = feature, differs
        if found >= 0:
            return found
    for at in range(progress.size[depth]):
        leaf = progress.lists[depth, at]
        for place in range(leaves.first[leaf], leaves.first[leaf + 1]):
            if progress.role[leaves.need[place]] == OPEN:
                return leaves.need[place]
    return -1


@inner
def _next_set(search: Search) -> bool:
    """Go on to the next set; return False if there is none."""
    aim, progress = search.aim, search.progress
    counts = progress.counts
    counts[PARTS] = MANY
    while True:
        depth = counts[DEPTH]
        feature = _dearest(search, depth) if progress.alive[depth] and depth < aim.most else -1
        if feature < 0:
            if depth == 0:
                return False
            _close(search)
            continue
        alive = _open(search, feature)
        progress.alive[depth + 1] = alive
        if alive and depth + 1 >= aim.least and _gather_own(search):
            counts[PARTS] = 0
            return True


@inner
def _list_of(part: Any, at: Any) -> Any:
    """Return which list the feature at a place of the set takes in a part of its rows."""
    return (part >> at) & 1


@inner
def _copy_leaf(search: Search, leaf: Any, place: Any) -> None:
    """Write a leaf of the set where those of its boxes are found fast."""
    leaves, progress = search.leaves, search.progress
    progress.inside[place], progress.tree[place], progress.gain[place] = place, leaves.tree[leaf], leaves.gain[leaf]
    for at in range(progress.counts[DEPTH]):
        ask = leaves.ask[leaf, progress.chosen[at]]
        for end in range(4):
            progress.span[place, 4 * at + end] = leaves.span[ask, end] if ask >= 0 else EVERYWHERE * (end & 1)
        progress.table[place, at] = leaves.table[ask] if ask >= 0 else -1


@inner
def _gather_own(search: Search) -> bool:
    """List the leaves of rows that change just the set; return whether these may meet the target."""
    leaves, progress = search.leaves, search.progress
    depth = progress.counts[DEPTH]
    count, trees, last, best, high = 0, 0, -1, 0.0, 0.0
    for at in range(progress.size[depth]):
        leaf, inside = progress.lists[depth, at], True
        for place in range(leaves.first[leaf], leaves.first[leaf + 1]):
            inside &= progress.role[leaves.need[place]] == MEMBER
        if inside:
            _copy_leaf(search, leaf, count)
            count += 1
            if leaves.tree[leaf] != last:
                high += best
                trees += 1
                last, best = leaves.tree[leaf], leaves.gain[leaf]
            else:
                best = max(best, leaves.gain[leaf])
    progress.counts[WORK] += progress.size[depth]
    progress.counts[LEAVES] = count
    return trees == leaves.trees and high + best >= search.aim.may


@inner
def _open_part(search: Search) -> None:
    """Let the box wait that has the next part of the set's rows, if there are any."""
    moves, progress = search.moves, search.progress
    counts = progress.counts
    depth, part = counts[DEPTH], counts[PARTS]
    counts[PARTS] += 1
    counts[WORK] += 1
    for at in range(depth):
        feature, side = progress.chosen[at], _list_of(part, at)
        size = moves.start[feature, side + 1] - moves.start[feature, side]
        if size == 0:
            return
        progress.box[0, 2 + 2 * at], progress.box[0, 3 + 2 * at] = 0, size - 1
    progress.box[0, 0], progress.box[0, 1], counts[BOXES] = 0, counts[LEAVES], 1


@inner
def _touch(search: Search, leaf: Any, box: Array, part: Any, depth: Any) -> Any:
    """Return 0 if a leaf of the set accepts no row of a box, as far as spans know; 2 if it does its nearest one, else 1."""
    progress, found = search.progress, 2
    for at in range(depth):
        side, low, high = 4 * at + 2 * _list_of(part, at), box[2 + 2 * at], box[3 + 2 * at]
        first, last, table = progress.span[leaf, side], progress.span[leaf, side + 1], progress.table[leaf, at]
        if first > high or last < low:
            return 0
        if first > low:
            found = 1
        elif table >= 0 and not search.leaves.flags[table + low]:
            if low == high:
                return 0
            found = 1
    return found


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
    moves, progress = search.moves, search.progress
    counts, depth = progress.counts, progress.counts[DEPTH]
    chosen, where, most = -1, 0, -1.0
    for at in range(depth):
        low, high = box[2 + 2 * at], box[3 + 2 * at]
        begins = progress.span[seen, 4 * at + 2 * _list_of(part, at)] if seen >= 0 else 0
        if begins > low:
            start = moves.start[progress.chosen[at], _list_of(part, at)]
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
        touch = _touch(search, leaf, box, part, depth)
        if touch == 0:
            continue
        progress.inside[start + count + top] = leaf
        top += 1
        if progress.tree[leaf] != last:
            if last >= 0:
                high += best
                score += near
                if best - near > widest:
                    widest, seen = best - near, leader
            trees += 1
            last, best, near = progress.tree[leaf], -np.inf, 0.0
        if progress.gain[leaf] > best:
            best, leader = progress.gain[leaf], leaf
        if touch == 2:
            near = progress.gain[leaf]
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
        elif counts[PARTS] < MANY and counts[PARTS] < 1 << counts[DEPTH]:
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
    progress.role[:] = OPEN
    progress.total[0], progress.counts[PARTS] = 0.0, MANY
    progress.alive[0], progress.uses[0] = True, 0
    every = progress.inside
    for leaf in range(len(search.leaves.tree)):
        every[leaf] = leaf
    if not _gather(search, every, len(search.leaves.tree), 0):
        return False
    shares = progress.shares[0]
    for feature in range(len(progress.role)):
        first, last = search.leaves.paired[feature], search.leaves.paired[feature + 1]
        for pair in range(first, last):
            shares[pair] = 1.0 / (last - first)
    shares[len(progress.paid)] = 0.0
    return _settle(search, FIRST_STEPS, 0)
