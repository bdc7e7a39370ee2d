"""The search among moves: nodes are parted, least bound first; `bounds` says what they are, and bounds them."""

from __future__ import annotations

from typing import Any, Final

from mlflow_cf.engine.moves.bounds import (
    KEPT,
    OPEN,
    Array,
    Hidden,
    Moves,
    Nodes,
    Progress,
    Room,
    Search,
    bound_of,
    cost_of,
    place_of,
    score_of,
)
from mlflow_cf.kernel import inner, kernel

REPAIRS: Final = 8  # steps by which a point that nearly reaches the score is moved on
FARTHER: Final = 1.000001  # so that it is not short of the score by rounding
DONE: Final = 0  # nothing is left within the limit
GOING: Final = 1
FULL: Final = 2  # there is no room for more nodes, or for more candidates


@inner
def _parted(moves: Moves, nodes: Nodes, node: Any, count: Any, spare: Any, room: Room) -> bool:
    """Write by which move a node is parted, and where: what costs most in the relaxed optimum; False: by none.

    `spare` is what the limit leaves above the node's bound.
    """
    best, chosen = -1.0, -1
    for at in range(count):
        move, x = room.alive[at], room.kept[at]
        opened = nodes.chosen[node, moves.group[move]] == OPEN
        worth = moves.slope[move] * x + (moves.fixed[move] if opened and x > 0.0 else 0.0)
        if worth > best:
            best, chosen = worth, at
    if chosen < 0:
        return False
    move, x = room.alive[chosen], room.kept[chosen]
    group, slope = moves.group[move], moves.slope[move]
    nodes.move[node], nodes.at[node] = move, 0.0
    if nodes.chosen[node, group] == OPEN:
        return True
    least, most = nodes.least[node, group], nodes.least[node, group] + room.reach[chosen]
    if slope > 0.0:
        most = min(most, least + x + spare / slope)
    share = x / max(most - least, 1e-300)
    at = least + x if 0.1 < share < 0.9 else (least + most) / 2.0
    nodes.at[node] = at if least < at < nodes.most[node, group] else (least + nodes.most[node, group]) / 2.0
    return True


@inner
def _moved_on(moves: Moves, hidden: Hidden, count: Any, room: Room) -> bool:
    """Lengthen the steps `room.x` until the point with them certainly meets the target; return whether it does.

    The point is moved along. Only steps that may have any length count.
    """
    for at in range(count):
        room.x[at] = room.kept[at]
        move = room.alive[at]
        if room.x[at] > 0.0:
            if moves.start[move] != moves.start[move + 1]:
                return False
            for unit in range(len(room.point)):
                room.point[unit] += moves.effect[move, unit] * room.x[at]
    for _ in range(REPAIRS):
        score = score_of(hidden, room.point)
        if score >= hidden.sure:
            return True
        best, chosen, steepest = 0.0, -1, 0.0
        for at in range(count):
            move = room.alive[at]
            if room.x[at] <= 0.0 or room.x[at] >= room.reach[at]:
                continue
            rise = 0.0
            for unit in range(len(room.point)):
                if room.point[unit] > 0.0:
                    rise += hidden.weights[unit] * moves.effect[move, unit]
            worth = rise / max(moves.slope[move], 1e-300)
            if worth > best:
                best, chosen, steepest = worth, at, rise
        if chosen < 0:
            return False
        added = min((hidden.sure - score) / steepest * FARTHER, room.reach[chosen] - room.x[chosen])
        room.x[chosen] += added
        for unit in range(len(room.point)):
            room.point[unit] += moves.effect[room.alive[chosen], unit] * added
    reached: bool = score_of(hidden, room.point) >= hidden.sure
    return reached


@inner
def _keep_best(moves: Moves, progress: Progress, nodes: Nodes, node: Any, count: Any, room: Room) -> None:
    """Lower the limit to what a node's point with the steps `room.x` costs, if it is less."""
    total, groups = 0.0, nodes.chosen.shape[1]
    for group in range(groups):
        move = nodes.chosen[node, group]
        step = nodes.least[node, group] if move >= 0 else 0.0
        for at in range(count):
            if moves.group[room.alive[at]] == group and room.x[at] > 0.0:
                if step > 0.0 and move != room.alive[at]:
                    return  # two moves of one group
                move = room.alive[at]
                step += room.x[at]
        if step > 0.0 and step < moves.least[move]:
            return
        progress.step[0, group], progress.chosen[0, group] = step, move if step > 0.0 else KEPT
        total += cost_of(moves, move, step) if step > 0.0 else 0.0
    if total < progress.limits[0]:
        progress.limits[0] = total
        for group in range(groups):
            progress.best[group], progress.best_step[group] = progress.chosen[0, group], progress.step[0, group]


@inner
def _note(search: Search, node: Any, total: Any, score: Any) -> None:
    """Write down a node's point, if it may meet the target."""
    hidden, asked, nodes, progress = search.hidden, search.asked, search.nodes, search.progress
    if score < hidden.may or total > progress.limits[0] + asked.slack:
        return
    count = progress.counts[2]
    progress.counts[2] += 1
    for group in range(nodes.chosen.shape[1]):
        progress.chosen[count, group] = nodes.chosen[node, group]
        progress.step[count, group] = nodes.least[node, group]
    if score >= hidden.sure and asked.lowers:
        progress.limits[0] = min(progress.limits[0], total)


@inner
def _push(nodes: Nodes, counts: Array, node: Any) -> None:
    """Let a node wait."""
    at = counts[0]
    counts[0] += 1
    while at and nodes.bound[nodes.heap[(at - 1) // 2]] > nodes.bound[node]:
        nodes.heap[at] = nodes.heap[(at - 1) // 2]
        at = (at - 1) // 2
    nodes.heap[at] = node


@inner
def _pop(nodes: Nodes, counts: Array) -> Any:
    """Return the node that waits with the least bound."""
    least = nodes.heap[0]
    counts[0] -= 1
    moved, at, size = nodes.heap[counts[0]], 0, counts[0]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and nodes.bound[nodes.heap[child + 1]] < nodes.bound[nodes.heap[child]]:
            child += 1
        if nodes.bound[nodes.heap[child]] >= nodes.bound[moved]:
            break
        nodes.heap[at] = nodes.heap[child]
        at = child
    nodes.heap[at] = moved
    return least


@inner
def _enter(search: Search, node: Any, parent: Any, fresh: Any) -> None:
    """Bound a node and let it wait, or release it; a `fresh` one has another point than its parent."""
    moves, hidden, asked = search.moves, search.hidden, search.asked
    nodes, progress, room = search.nodes, search.progress, search.room
    limit = progress.limits[0] + asked.slack
    low, total, count = bound_of(search, node)
    nodes.bound[node] = max(low, nodes.bound[parent])
    score = score_of(hidden, room.point)
    if fresh and asked.listed:
        _note(search, node, total, score)
    waits = nodes.bound[node] <= limit
    if waits:
        waits = _parted(moves, nodes, node, count, limit - nodes.bound[node], room)
        if not waits and not asked.listed and score >= hidden.may:
            progress.limits[1] = min(progress.limits[1], total)
        if waits and not asked.listed and asked.lowers and _moved_on(moves, hidden, count, room):
            _keep_best(moves, progress, nodes, node, count, room)
    if waits:
        _push(nodes, progress.counts, node)
    else:
        nodes.free[progress.counts[1]] = node
        progress.counts[1] += 1


@inner
def _child(nodes: Nodes, progress: Progress, node: Any) -> Any:
    """Return a copy of a node."""
    progress.counts[1] -= 1
    child = nodes.free[progress.counts[1]]
    for group in range(nodes.chosen.shape[1]):
        nodes.chosen[child, group] = nodes.chosen[node, group]
        nodes.least[child, group], nodes.most[child, group] = nodes.least[node, group], nodes.most[node, group]
    return child


@kernel
def advance(search: Search, most: int) -> int:
    """Part up to `most` nodes, least bound first; return DONE, GOING or FULL."""
    moves, asked, nodes, progress = search.moves, search.asked, search.nodes, search.progress
    counts, many = progress.counts, 0
    for group in range(len(moves.first) - 1):
        many = max(many, moves.first[group + 1] - moves.first[group] + 1)
    for _ in range(most):
        if not counts[0] or nodes.bound[nodes.heap[0]] > progress.limits[0] + asked.slack:
            return DONE
        if counts[1] < max(many, 2) or counts[2] + max(many, 2) > len(progress.chosen):
            return FULL
        counts[3] += 1
        node = _pop(nodes, counts)
        move = nodes.move[node]
        group = moves.group[move]
        opened = nodes.chosen[node, group] == OPEN
        at, listed = nodes.at[node], moves.start[move] != moves.start[move + 1]
        below, above = at, at
        if listed and not opened:  # the last listed step up to there, and the next one
            place = place_of(moves, move, at)
            if moves.step[place] > at or place == place_of(moves, move, nodes.most[node, group]):
                place -= 1
            below, above = moves.step[place], moves.step[place + 1]
        for part in range(-1, moves.first[group + 1] - moves.first[group] if opened else 1):
            child = _child(nodes, progress, node)
            if not opened:
                nodes.most[child, group] = below if part < 0 else nodes.most[child, group]
                nodes.least[child, group] = nodes.least[child, group] if part < 0 else above
            elif part < 0:
                nodes.chosen[child, group] = KEPT
            else:
                each = moves.first[group] + part
                nodes.chosen[child, group] = each
                nodes.least[child, group], nodes.most[child, group] = moves.least[each], moves.most[each]
            _enter(search, child, node, part >= 0)
        nodes.free[counts[1]] = node
        counts[1] += 1
    return GOING
