"""Kernels of the search among moves: branch and bound of one score of a network with one layer of rectified units.

A *move* takes one group away from the row's own action in one direction: a number up or down by a step, or a category
to one level, which is a step of 1. What a move adds to the hidden units grows linearly with its step. A node says of
every group that it keeps its own action, that it takes a move by a step between two limits, or that it is open.

Bounds start from the node's point: moved groups by their least steps, open ones with their own actions. Above it, a
rectified unit lies below a plane over what moves add to it and what they take away, each no more than the costs that
are left can pay for (a relaxed knapsack problem); below it, above one of its two lines. All planes meet the unit in the
point itself, so that a node loses nothing where nothing changes: bounds over the whole box, which CROWN takes (Zhang et
al. 2018, section 3), lose there what all units together may differ.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.kernel import inner

Array = NDArray[Any]
OPEN: Final = -1  # the group may keep its own action, or move
KEPT: Final = -2
ROUNDS: Final = 3  # of lines chosen by where the last ones led: 5 nodes of breast cancer's network fewer in 100 than 2
PRICES: Final = (1.0, 0.75, 0.5, 0.3, 0.15, 0.0)  # at which knapsacks are relaxed, as shares of the best price


class Moves(NamedTuple):
    """The moves of all groups, group after group.

    Attributes:
        first: (G + 1,) where the moves of each group start; group: (m,) the group of each.
        fixed, slope: (m,) a step costs no less than ``fixed + slope * step``, and each further one no less than `slope`
            times its length; where no steps are listed, this is what it costs.
        least, most: (m,) the limits of its step.
        start: (m + 1,) offsets of the listed steps of each; none are listed where any step may be taken.
        step, cost: (n,) the listed steps, ascending, and their costs.
        effect: (m, width) what a step of 1 adds to the hidden units.
    """

    first: Array
    group: Array
    fixed: Array
    slope: Array
    least: Array
    most: Array
    start: Array
    step: Array
    cost: Array
    effect: Array


class Hidden(NamedTuple):
    """A score: `shift` plus `weights` (width,) times rectified units, which are `own` (width,) at the row itself.

    From `may` on the target may be met, from `sure` on it certainly is; rounding is part of both.
    """

    own: Array
    weights: Array
    shift: float
    may: float
    sure: float


class Asked(NamedTuple):
    """What is looked for: rows that cost no more than the limit plus `slack`, and move at most so many groups.

    Attributes:
        slack: added to the limit; below 0: how much nearer a row must be to be looked for.
        changes: the most moved groups.
        listed: whether all rows that may meet the target are written down; all steps are listed then.
        lowers: whether rows that certainly meet the target lower the limit.
    """

    slack: float
    changes: int
    listed: bool
    lowers: bool


class Nodes(NamedTuple):
    """Room for N nodes.

    Attributes:
        chosen: (N, G) OPEN, KEPT, or the move of each group; least, most: (N, G) the limits of its step.
        bound: (N,) what its rows cost at least.
        move, at: (N,) the move by which it is parted, and the step where.
        heap: (N,) nodes that wait, least bound first; free: (N,) those that are in no use.
    """

    chosen: Array
    least: Array
    most: Array
    bound: Array
    move: Array
    at: Array
    heap: Array
    free: Array


class Progress(NamedTuple):
    """What a search has come to.

    Attributes:
        counts: (4,) nodes that wait, nodes in no use, candidates written down, nodes parted.
        limits: (2,) the limit on costs, and the least bound of nodes that cannot be parted.
        chosen, step: (c, G) room for the candidates.
        best, best_step: (G,) the row that lowered the limit last, where steps are not listed.
    """

    counts: Array
    limits: Array
    chosen: Array
    step: Array
    best: Array
    best_step: Array


class Room(NamedTuple):
    """Workspace: of units (width,), of moves (m,), and relaxed knapsacks (2, prices, width).

    Attributes:
        point: units at the node's point; high, low: what moves can add to them and take away at most.
        up, down: factors of effects above and below 0.
        alive: the moves that may still be made; reach: their longest steps; full: what these cost.
        gain: what these add to the score at most; used: flags; x: the steps of the relaxed optimum; kept: a copy.
    """

    point: Array
    high: Array
    low: Array
    up: Array
    down: Array
    knapsacks: Array
    alive: Array
    reach: Array
    full: Array
    gain: Array
    used: Array
    x: Array
    kept: Array


class Search(NamedTuple):
    """All that a search works on."""

    moves: Moves
    hidden: Hidden
    asked: Asked
    nodes: Nodes
    progress: Progress
    room: Room


@inner
def place_of(moves: Moves, move: Any, step: Any) -> Any:
    """Return where a listed step of a move stands: that of the first which is no shorter."""
    low, high = moves.start[move], moves.start[move + 1] - 1
    while low < high:
        middle = (low + high) // 2
        if moves.step[middle] < step:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def cost_of(moves: Moves, move: Any, step: Any) -> Any:
    """Return what a step of a move costs."""
    if moves.start[move] == moves.start[move + 1]:
        return moves.fixed[move] + moves.slope[move] * step
    return moves.cost[place_of(moves, move, step)]


@inner
def _put_point(moves: Moves, hidden: Hidden, nodes: Nodes, node: Any, room: Room) -> Any:
    """Write the units at a node's point; return what it costs and how many groups it moves."""
    total, changes = 0.0, 0
    for unit in range(len(room.point)):
        room.point[unit] = hidden.own[unit]
    for group in range(nodes.chosen.shape[1]):
        move = nodes.chosen[node, group]
        if move >= 0:
            step = nodes.least[node, group]
            total += cost_of(moves, move, step)
            changes += 1
            for unit in range(len(room.point)):
                room.point[unit] += moves.effect[move, unit] * step
    return total, changes


@inner
def _put_alive(moves: Moves, nodes: Nodes, node: Any, left: Any, more: Any, room: Room) -> Any:
    """Write the moves that may be made with the costs that are `left`; `more` groups may move. Return how many."""
    count = 0
    for group in range(nodes.chosen.shape[1]):
        chosen = nodes.chosen[node, group]
        if chosen == KEPT or (chosen == OPEN and not more):
            continue
        first, stop = (chosen, chosen + 1) if chosen >= 0 else (moves.first[group], moves.first[group + 1])
        for move in range(first, stop):
            fixed, slope = moves.fixed[move], moves.slope[move]
            if chosen >= 0:
                fixed, reach = 0.0, nodes.most[node, group] - nodes.least[node, group]
            else:
                reach = moves.most[move]
                if fixed + slope * moves.least[move] > left:
                    continue
            if slope > 0.0:
                reach = min(reach, (left - fixed) / slope)
            if reach > 0.0:
                room.alive[count], room.reach[count], room.full[count] = move, reach, fixed + slope * reach
                count += 1
    return count


@inner
def _put_ranges(moves: Moves, count: Any, left: Any, room: Room) -> None:
    """Write what moves can add to each unit, and take away, for the costs that are `left`: relaxed knapsacks."""
    best = room.knapsacks[:, 0]
    best[:] = 0.0
    for at in range(count):
        effect, each = moves.effect[room.alive[at]], room.reach[at] / max(room.full[at], 1e-300)
        for unit in range(len(room.point)):
            worth = effect[unit] * each
            best[0, unit] = max(best[0, unit], worth)
            best[1, unit] = max(best[1, unit], -worth)
    for unit in range(len(room.point)):
        room.up[unit], room.down[unit] = best[0, unit], best[1, unit]
    room.knapsacks[:] = 0.0
    for at in range(count):
        effect, reach, full = moves.effect[room.alive[at]], room.reach[at], room.full[at]
        for price in range(len(PRICES)):
            share = PRICES[price] * full
            high, low = room.knapsacks[0, price], room.knapsacks[1, price]
            for unit in range(len(room.point)):
                gain = effect[unit] * reach
                high[unit] += max(gain - share * room.up[unit], 0.0)
                low[unit] += max(-gain - share * room.down[unit], 0.0)
    for unit in range(len(room.point)):
        room.high[unit] = room.low[unit] = np.inf
        for price in range(len(PRICES)):
            spent = PRICES[price] * left
            room.high[unit] = min(room.high[unit], spent * room.up[unit] + room.knapsacks[0, price, unit])
            room.low[unit] = min(room.low[unit], spent * room.down[unit] + room.knapsacks[1, price, unit])


@inner
def _put_plane(point: Any, high: Any, low: Any, more: Any, less: Any) -> Any:
    """Return a plane above a rectified unit: its height at the point, and its slopes upwards and downwards.

    Moves add up to `high` to the unit, and take away up to `low`; the plane is the lower one of two where they add
    `more` and take away `less`. Both are above the unit in the corners of that rectangle; it is convex.
    """
    top, bottom, centre = max(point + high, 0.0), max(point - low, 0.0), max(point, 0.0)
    if high <= 0.0 or low <= 0.0 or more / high + less / low <= 1.0:
        return centre, (top - centre) / high if high > 0.0 else 0.0, (centre - bottom) / low if low > 0.0 else 0.0
    corner = max(point + high - low, 0.0)
    up, down = (corner - bottom) / high, (top - corner) / low
    return top - up * high, up, down


@inner
def _put_lines(moves: Moves, hidden: Hidden, count: Any, room: Room) -> Any:
    """Write what each move adds to the score at most, chosen for where `x` leads; return the score of the point."""
    base = hidden.shift
    for unit in range(len(room.point)):
        more, less = 0.0, 0.0
        for at in range(count):
            if room.x[at] > 0.0:
                change = moves.effect[room.alive[at], unit] * room.x[at]
                more, less = more + max(change, 0.0), less + max(-change, 0.0)
        weight, point = hidden.weights[unit], room.point[unit]
        height, up, down = 0.0, 0.0, 0.0
        if point - room.low[unit] >= 0.0:
            height, up, down = point, 1.0, 1.0
        elif weight > 0.0:
            height, up, down = _put_plane(point, room.high[unit], room.low[unit], more, less)
        elif point + more - less > 0.0:
            height, up, down = point, 1.0, 1.0
        base += weight * height
        room.up[unit], room.down[unit] = weight * up, weight * down
    for at in range(count):
        effect, total = moves.effect[room.alive[at]], 0.0
        for unit in range(len(room.point)):
            total += effect[unit] * (room.up[unit] if effect[unit] > 0.0 else room.down[unit])
        room.gain[at] = total * room.reach[at]
    return base


@inner
def _least_cost(count: Any, need: Any, left: Any, room: Room) -> Any:
    """Return what moves cost at least that add `need` to the score, and write their steps `x`; inf: more than `left`.

    A relaxed knapsack problem, in which a group may even make several moves.
    """
    cost = 0.0
    for at in range(count):
        room.used[at], room.x[at] = False, 0.0
    while need > 0.0:
        best, chosen = 0.0, -1
        for at in range(count):
            if not room.used[at] and room.gain[at] > 0.0:
                worth = room.gain[at] / max(room.full[at], 1e-300)
                if worth > best:
                    best, chosen = worth, at
        if chosen < 0 or cost > left:
            return np.inf
        share = min(need / room.gain[chosen], 1.0)
        room.used[chosen], room.x[chosen] = True, share * room.reach[chosen]
        cost += share * room.full[chosen]
        need = need - room.gain[chosen] if share >= 1.0 else 0.0
    return cost


@inner
def bound_of(search: Search, node: Any) -> Any:
    """Return what the rows of a node cost at least that may meet the target, its point's cost, and the moves alive.

    The relaxed optimum of the best bound is in `room.kept`.
    """
    moves, hidden, asked, nodes, room = search.moves, search.hidden, search.asked, search.nodes, search.room
    limit = search.progress.limits[0] + asked.slack
    total, changes = _put_point(moves, hidden, nodes, node, room)
    left = limit - total
    if left < 0.0 or changes > asked.changes:
        return np.inf, total, 0
    count = _put_alive(moves, nodes, node, left, changes < asked.changes, room)
    _put_ranges(moves, count, left, room)
    for at in range(count):
        room.x[at] = 0.0
    found = -1.0
    for _ in range(ROUNDS):
        base = _put_lines(moves, hidden, count, room)
        low = total + _least_cost(count, hidden.may - base, left, room)
        if low > found:
            found = low
            for at in range(count):
                room.kept[at] = room.x[at]
        if found == np.inf:
            break
    return found, total, count


@inner
def score_of(hidden: Hidden, point: Array) -> Any:
    """Return the score of units (width,) before they are rectified."""
    score = hidden.shift
    for unit in range(len(point)):
        score += hidden.weights[unit] * max(point[unit], 0.0)
    return score
