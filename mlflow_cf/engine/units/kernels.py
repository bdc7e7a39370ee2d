"""All pairs of changes that may be answers, of a model with one layer of units.

To score a pair takes as long as to score a row, so pairs are looked at in blocks of some values of either feature: what
all of them may do to the units bounds their scores. Estimates come first: where the effects of two changes are taken to
add up, a few scores tell of every two features how far an answer is at most.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from mlflow_cf.engine.units.state import (
    FOUND,
    LOOKED,
    NEAR,
    TOGETHER,
    Array,
    Effects,
    PairLimits,
    UnitMoves,
    UnitRoom,
    UnitScore,
)
from mlflow_cf.kernel import inner, kernel
from mlflow_cf.rounding import loosened

TRIED: Final = 8  # scores about an estimate: each is twice as far beyond it as the one before
FARTHEST: Final = 1e300  # what is no change is infinitely far
TOO_MANY: Final = -1


@inner
def _distance(alone: Effects, one: Any, two: Any) -> Any:
    """Return how far a pair is."""
    far = alone.cost[one] + alone.cost[two]
    return far + alone.c * max(alone.peak[one], alone.peak[two]) if alone.c else far


@inner
def _limit_of(limits: PairLimits, first: Any, second: Any) -> Any:
    """Return how far pairs of two features may be."""
    return min(limits.limit[0], loosened(limits.nearest[first, second]), FARTHEST)


@inner
def note_nearest(one: Any, two: Any, far: Any, notes: Any) -> None:
    """Note, in `PairLimits` or what has the same arrays, how far a certain candidate of a changed set is."""
    if far >= notes.nearest[one, two]:
        return
    notes.nearest[one, two] = far
    number, last = one * len(notes.nearest) + two, notes.top_far.size - 1
    at = last
    for place in range(last):
        if notes.top_set[place] == number:
            at = place
            break
    if far >= notes.top_far[at]:
        return
    while at > 0 and notes.top_far[at - 1] > far:
        notes.top_far[at], notes.top_set[at] = notes.top_far[at - 1], notes.top_set[at - 1]
        at -= 1
    notes.top_far[at], notes.top_set[at] = far, number


@inner
def _note(limits: PairLimits, first: Any, second: Any, far: Any) -> None:
    """Note that a pair of two features certainly is an answer; the limit of all is that of the last one wanted."""
    note_nearest(first, second, far, limits)
    limits.limit[0] = min(limits.limit[0], loosened(limits.top_far[limits.top_far.size - 1]))


@inner
def write_fronts(alone: Effects) -> None:
    """Write the changes of each feature that do more than all nearer ones."""
    for feature in range(alone.many.size):
        begin, count, best = alone.start[feature], 0, 0.0
        for at in range(begin, alone.start[feature + 1]):
            place = alone.order[at]
            if place < 0:
                break
            if alone.gain[place] > best and alone.cost[place] < np.inf:
                best = alone.gain[place]
                alone.front[begin + count] = place
                count += 1
        alone.many[feature] = count


@inner
def _add_up(alone: Effects, need: Any, first: Any, second: Any) -> Any:
    """Return which changes on the fronts of two features gain what is needed, the nearest; -1: none do."""
    begin, other, last = alone.start[first], alone.start[second], alone.many[second] - 1
    best, one, two = np.inf, -1, -1
    for at in range(alone.many[first] if last >= 0 else 0):
        here = alone.front[begin + at]
        while last > 0 and alone.gain[here] + alone.gain[alone.front[other + last - 1]] >= need:
            last -= 1
        there = alone.front[other + last]
        far = _distance(alone, here, there)
        if alone.gain[here] + alone.gain[there] >= need and far < best:
            best, one, two = far, at, last
    return one, two


@kernel
def estimate_pairs(alone: Effects, need: float, steps: Array, found: Array, far: Array) -> None:
    """Write the nearest two changes of every two features that suffice if effects add up, and some beyond.

    Args:
        alone, need: the changes, and what two are to gain.
        steps: (s,) how many changes beyond.
        found, far: (p, s, 2), (p, s) room for them and their distance: -1 and inf where there are none.
    """
    write_fronts(alone)
    found[:], far[:], place = -1, np.inf, 0
    for first in range(alone.many.size):
        for second in range(first + 1, alone.many.size):
            one, two = _add_up(alone, need, first, second)
            for at in range(steps.size if one >= 0 else 0):
                if two + steps[at] < alone.many[second]:
                    here, there = alone.start[first] + one, alone.start[second] + two + steps[at]
                    found[place, at, 0], found[place, at, 1] = alone.front[here], alone.front[there]
                    far[place, at] = _distance(alone, alone.front[here], alone.front[there])
            place += 1


@inner
def leave_out(score: UnitScore, first: Any, second: Any, room: UnitRoom) -> None:
    """Write the units of the row without what its own values of two features add; the same twice: of one."""
    for unit in range(score.weights.size):
        rest = score.total[unit] - score.own[first, unit]
        room.units[unit] = rest if first == second else rest - score.own[second, unit]


@inner
def _score_of(moves: UnitMoves, score: UnitScore, one: Any, two: Any, room: UnitRoom) -> Any:
    """Return the score of a pair of the features that are left out."""
    total = score.shift
    for unit in range(score.weights.size):
        value = room.units[unit] + moves.added[unit, one] + moves.added[unit, two]
        total += score.weights[unit] * max(score.floor, value)
    return total


@inner
def _estimate(moves: UnitMoves, score: UnitScore, limits: PairLimits, features: Any, room: UnitRoom) -> None:
    """Look where two features suffice if their effects add up, and beyond, until a pair certainly does."""
    (first, second), alone, step = features, moves.alone, 1
    one, two = _add_up(alone, score.need, first, second)
    if one >= 0:
        leave_out(score, first, second, room)
    for _ in range(TRIED if one >= 0 else 0):
        here, there = alone.front[alone.start[first] + one], alone.front[alone.start[second] + two]
        far = _distance(alone, here, there)
        if far > _limit_of(limits, first, second):
            return
        room.counts[LOOKED] += TOGETHER  # alone, it takes as long as a block
        if not (moves.open[here] or moves.open[there]) and _score_of(moves, score, here, there, room) >= score.sure:
            _note(limits, first, second, far)
            return
        if two + step < alone.many[second]:
            two += step
        elif one + step < alone.many[first]:
            one += step
        else:
            return
        step *= 2


@inner
def _bound_blocks(moves: UnitMoves, score: UnitScore, block: Any, feature: Any, room: UnitRoom) -> None:
    """Write upper bounds on the scores of pairs of a block's values and those of each block of another feature."""
    first, stop, bounds = moves.start[feature], moves.start[feature + 1], room.bounds
    bounds[first:stop] = score.shift
    for unit in range(score.weights.size):
        weight = score.weights[unit]
        side = moves.high[unit] if weight > 0.0 else moves.low[unit]
        here = room.units[unit] + side[block]
        for other in range(first, stop):
            bounds[other] += weight * max(score.floor, here + side[other])
    room.counts[LOOKED] += stop - first


@inner
def score_block(moves: UnitMoves, score: UnitScore, one: Any, block: Any, room: UnitRoom) -> None:
    """Write the scores of a value and each of those of a block; < 0: of those of the block alone."""
    begin, scores = block * TOGETHER, room.scores
    for at in range(TOGETHER):
        scores[at] = score.shift
    for unit in range(score.weights.size):
        here = room.units[unit] + moves.added[unit, one] if one >= 0 else room.units[unit]
        weight, added = score.weights[unit], moves.added[unit]
        for at in range(TOGETHER):
            scores[at] += weight * max(score.floor, here + added[begin + at])
    room.counts[LOOKED] += TOGETHER


@inner
def _make_space(limits: PairLimits, owner: Array, room: UnitRoom) -> bool:
    """Forget pairs that are too far by now; return whether there is much room again."""
    kept = 0
    for at in range(room.counts[FOUND]):
        if room.far[at] <= _limit_of(limits, owner[room.one[at]], owner[room.two[at]]):
            room.one[kept], room.two[kept] = room.one[at], room.two[at]
            room.far[kept], room.score[kept] = room.far[at], room.score[at]
            kept += 1
    room.counts[FOUND] = kept
    return 2 * kept <= room.far.size


@inner
def _look_at(moves: UnitMoves, score: UnitScore, limits: PairLimits, pair: Any, room: UnitRoom) -> bool:
    """Look at the pairs of two blocks of two features; return whether there was room for those found."""
    first, second, block, other = pair
    limit = _limit_of(limits, first, second)
    for one in range(block * TOGETHER, (block + 1) * TOGETHER):
        if moves.alone.cost[one] + moves.near[other] > limit:
            continue
        score_block(moves, score, one, other, room)
        for at in range(TOGETHER):
            two, reached = other * TOGETHER + at, room.scores[at]
            if not reached >= score.may:
                continue
            far = _distance(moves.alone, one, two)
            if far > limit:
                continue
            if limits.lowers and reached >= score.sure and not (moves.open[one] or moves.open[two]):
                _note(limits, first, second, far)
                limit = _limit_of(limits, first, second)
            if room.counts[FOUND] == room.far.size and not _make_space(limits, moves.owner, room):
                return False
            place = room.counts[FOUND]
            room.one[place], room.two[place], room.far[place], room.score[place] = one, two, far, reached
            room.counts[FOUND] += 1
    return True


@inner
def _look_beside(moves: UnitMoves, score: UnitScore, limits: PairLimits, place: Any, room: UnitRoom) -> bool:
    """Look at the pairs of a block's values with those of another feature; return whether there was room for them."""
    (first, second, block), bounded = place, False
    for other in range(moves.start[second], moves.start[second + 1]):
        if not moves.near[block] + moves.near[other] <= _limit_of(limits, first, second):
            continue
        if not bounded:
            _bound_blocks(moves, score, block, second, room)
            bounded = True
        if not room.bounds[other] >= score.may:
            continue
        if not _look_at(moves, score, limits, (first, second, block, other), room):
            return False
    return True


@inner
def _least_of(moves: UnitMoves, feature: Any) -> Any:
    """Return what a change of a feature costs at least."""
    least = np.inf
    for block in range(moves.start[feature], moves.start[feature + 1]):
        least = min(least, moves.near[block])
    return least


@inner
def _count_near(moves: UnitMoves, limits: PairLimits, room: UnitRoom) -> None:
    """Count the pairs of features of which two changes may be near enough."""
    for first in range(moves.start.size - 1):
        least = _least_of(moves, first)
        for second in range(first + 1, moves.start.size - 1):
            room.counts[NEAR] += least + _least_of(moves, second) <= _limit_of(limits, first, second)


@inner
def search_pairs(moves: UnitMoves, score: UnitScore, limits: PairLimits, most: Any, room: UnitRoom) -> Any:
    """Write all pairs that may be answers; return how many, or TOO_MANY of these, or of pairs looked at."""
    features = moves.start.size - 1
    room.counts[:] = 0
    if limits.lowers:
        write_fronts(moves.alone)
    for first in range(features if limits.lowers else 0):
        for second in range(first + 1, features):
            _estimate(moves, score, limits, (first, second), room)
    for first in range(features):
        least = _least_of(moves, first)
        for second in range(first + 1, features):
            if not least + _least_of(moves, second) <= _limit_of(limits, first, second):
                continue
            leave_out(score, first, second, room)
            for block in range(moves.start[first], moves.start[first + 1]):
                whole = _look_beside(moves, score, limits, (first, second, block), room)
                if not whole or room.counts[LOOKED] > most:
                    return TOO_MANY
    _make_space(limits, moves.owner, room)
    _count_near(moves, limits, room)
    return room.counts[FOUND]


@kernel
def find_pairs(moves: UnitMoves, score: UnitScore, limits: PairLimits, most: int, room: UnitRoom) -> int:
    """Do what `search_pairs` does."""
    return int(search_pairs(moves, score, limits, most, room))
