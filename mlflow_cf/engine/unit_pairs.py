"""Candidates of two changes of a model with one layer of units: all pairs of values that may be answers.

The score of a pair takes as long as that of a row, so pairs are looked at in blocks of some values of either feature:
what all of them may do to the units bounds their scores. Estimates come first: where the effects of two changes are
taken to add up, a few scores tell of every two features how far an answer is at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine import thresholds
from mlflow_cf.engine.thresholds import ROUNDING
from mlflow_cf.features import Floats
from mlflow_cf.goal.scorer import DecisionScore
from mlflow_cf.kernel import inner, kernel
from mlflow_cf.problem import Codes
from mlflow_cf.structures.capabilities import HiddenLayer
from mlflow_cf.structures.structure import Encoded

Array = NDArray[Any]
TOGETHER: Final = 16  # values of a feature in a block: two registers of the processor, four times
TRIED: Final = 8  # scores about an estimate: each is twice as far beyond it as the one before
TOO_MANY: Final = -1


class Effects(NamedTuple):
    """What n changes do alone, feature after feature.

    Attributes:
        gain: (n,) what each adds to the score.
        cost, peak: (n,) what each adds to the distance; c: of the larger peak in it.
        start: (d + 1,) the first change of every feature; order: (n,) those of each feature, nearest first.
        front: (n,) from `start` on, those of each feature that do more than all nearer ones; many: (d,) how many.
    """

    gain: Array
    cost: Array
    peak: Array
    c: float
    start: Array
    order: Array
    front: Array
    many: Array

    @classmethod
    def of(cls, gain: Floats, cost: Floats, peak: Floats, c: float, start: Codes) -> Effects:
        """Return the effects of changes (n,), those of each feature from `start` (d + 1,) on."""
        feature = np.repeat(np.arange(len(start) - 1), np.diff(start))
        front, many = np.empty(len(gain), dtype=np.int64), np.empty(len(start) - 1, dtype=np.int64)
        return cls(gain, cost, peak, float(c), start, np.lexsort((cost, feature)), front, many)


class UnitMoves(NamedTuple):
    """The changes of all features, in blocks: n values, the last ones of a feature perhaps repeated, in b blocks.

    Attributes:
        added: (width, n) what each adds to the units.
        low, high: (width, b) the least and the most that those of a block add.
        open: (n,) whether each may suffice alone.
        alone: what each does alone; the cost of what is repeated is inf.
        near: (b,) the least cost of a block; start: (d + 1,) the first block of every feature.
    """

    added: Array
    low: Array
    high: Array
    open: Array
    alone: Effects
    near: Array
    start: Array


class UnitScore(NamedTuple):
    """How the units of the row, `own` (width,), decide.

    Attributes:
        own, weights: (width,); shift: what is added to their weighted sum.
        floor: the least value of a unit: 0 of rectified ones, else minus infinity.
        may, sure: from which score on the target may be met, and certainly is.
        need: what the row lacks.
    """

    own: Array
    weights: Array
    shift: float
    floor: float
    may: float
    sure: float
    need: float


class PairLimits(NamedTuple):
    """How far pairs may be.

    Attributes:
        count: how many changed sets are wanted; lowers: whether certain pairs lower the limits.
        limit: (1,) of all; nearest: (d, d) of the first feature and the second; of one: twice the same.
        ranked: (count,) room to put them in order.
    """

    count: int
    lowers: bool
    limit: Array
    nearest: Array
    ranked: Array


class UnitRoom(NamedTuple):
    """Room to work in, and for the pairs found.

    Attributes:
        scores: (TOGETHER,); bounds: (b,).
        one, two, far: (f,) the values of the pairs found, and their distance.
        counts: (2,) how many were found, and looked at.
    """

    scores: Array
    bounds: Array
    one: Array
    two: Array
    far: Array
    counts: Array


@inner
def _loosened(limit: Any) -> Any:
    """Return a limit that nothing exceeds by rounding alone; see `engine.actions.loose`."""
    return limit + ROUNDING * max(1.0, limit)


@inner
def _distance(alone: Effects, one: Any, two: Any) -> Any:
    """Return how far a pair is."""
    far = alone.cost[one] + alone.cost[two]
    return far + alone.c * max(alone.peak[one], alone.peak[two]) if alone.c else far


@inner
def _limit_of(limits: PairLimits, first: Any, second: Any) -> Any:
    """Return how far pairs of two features may be."""
    return min(limits.limit[0], _loosened(limits.nearest[first, second]))


@inner
def _note(limits: PairLimits, first: Any, second: Any, far: Any) -> None:
    """Note that a pair of two features certainly is an answer; the limit of all is that of the last one wanted."""
    nearest, ranked, count = limits.nearest, limits.ranked, limits.count
    if far >= nearest[first, second]:
        return
    nearest[first, second] = far
    size = 0
    for one in range(len(nearest)):
        for two in range(one, len(nearest)):
            known = nearest[one, two]
            if size == count and known >= ranked[count - 1]:
                continue
            size = min(size + 1, count)
            at = size - 1
            while at > 0 and ranked[at - 1] > known:
                ranked[at] = ranked[at - 1]
                at -= 1
            ranked[at] = known
    if size == count:
        limits.limit[0] = min(limits.limit[0], _loosened(ranked[count - 1]))


@inner
def _write_fronts(alone: Effects) -> None:
    """Write the changes of each feature that do more than all nearer ones."""
    for feature in range(alone.many.size):
        begin, count, best = alone.start[feature], 0, 0.0
        for at in range(begin, alone.start[feature + 1]):
            place = alone.order[at]
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
    _write_fronts(alone)
    place = 0
    for first in range(alone.many.size):
        for second in range(first + 1, alone.many.size):
            one, two = _add_up(alone, need, first, second)
            for at in range(steps.size):
                found[place, at, 0], found[place, at, 1], far[place, at] = -1, -1, np.inf
                if one >= 0 and two + steps[at] < alone.many[second]:
                    here, there = (
                        alone.front[alone.start[first] + one],
                        alone.front[alone.start[second] + two + steps[at]],
                    )
                    found[place, at, 0], found[place, at, 1] = here, there
                    far[place, at] = _distance(alone, here, there)
            place += 1


@inner
def _score_of(moves: UnitMoves, score: UnitScore, one: Any, two: Any) -> Any:
    """Return the score of a pair."""
    total = score.shift
    for unit in range(score.weights.size):
        value = score.own[unit] + moves.added[unit, one] + moves.added[unit, two]
        total += score.weights[unit] * max(score.floor, value)
    return total


@inner
def _estimate(moves: UnitMoves, score: UnitScore, limits: PairLimits, features: Any, room: UnitRoom) -> None:
    """Look where two features suffice if their effects add up, and beyond, until a pair certainly does."""
    (first, second), alone, step = features, moves.alone, 1
    one, two = _add_up(alone, score.need, first, second)
    for _ in range(TRIED if one >= 0 else 0):
        here, there = alone.front[alone.start[first] + one], alone.front[alone.start[second] + two]
        far = _distance(alone, here, there)
        if far > _limit_of(limits, first, second):
            return
        room.counts[1] += TOGETHER  # alone, it takes as long as a block
        if not (moves.open[here] or moves.open[there]) and _score_of(moves, score, here, there) >= score.sure:
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
def _bound_blocks(moves: UnitMoves, score: UnitScore, block: Any, group: Any, bounds: Array) -> None:
    """Write upper bounds on the scores of pairs of a block's values and those of each block of a feature."""
    first, stop = moves.start[group], moves.start[group + 1]
    bounds[first:stop] = score.shift
    for unit in range(score.weights.size):
        weight = score.weights[unit]
        side = moves.high[unit] if weight > 0.0 else moves.low[unit]
        here = score.own[unit] + side[block]
        for other in range(first, stop):
            bounds[other] += weight * max(score.floor, here + side[other])


@inner
def _score_block(moves: UnitMoves, score: UnitScore, one: Any, block: Any, room: UnitRoom) -> None:
    """Write the scores of a value and each of those of a block."""
    begin, scores = block * TOGETHER, room.scores
    for at in range(TOGETHER):
        scores[at] = score.shift
    for unit in range(score.weights.size):
        here, weight, added = score.own[unit] + moves.added[unit, one], score.weights[unit], moves.added[unit]
        for at in range(TOGETHER):
            scores[at] += weight * max(score.floor, here + added[begin + at])
    room.counts[1] += TOGETHER


@inner
def _make_space(limits: PairLimits, owner: Array, room: UnitRoom) -> bool:
    """Forget pairs that are too far by now; return whether there is much room again."""
    kept = 0
    for at in range(room.counts[0]):
        if room.far[at] <= _limit_of(limits, owner[room.one[at]], owner[room.two[at]]):
            room.one[kept], room.two[kept], room.far[kept] = room.one[at], room.two[at], room.far[at]
            kept += 1
    room.counts[0] = kept
    return 2 * kept <= room.far.size


@inner
def _look_at(moves: UnitMoves, score: UnitScore, limits: PairLimits, pair: Any, room: UnitRoom, owner: Array) -> bool:
    """Look at the pairs of two blocks of two features; return whether there was room for those found."""
    first, second, block, other = pair
    limit = _limit_of(limits, first, second)
    for one in range(block * TOGETHER, (block + 1) * TOGETHER):
        if moves.alone.cost[one] + moves.near[other] > limit:
            continue
        _score_block(moves, score, one, other, room)
        for at in range(TOGETHER):
            two = other * TOGETHER + at
            if not room.scores[at] >= score.may:
                continue
            far = _distance(moves.alone, one, two)
            if far > limit:
                continue
            if limits.lowers and room.scores[at] >= score.sure and not (moves.open[one] or moves.open[two]):
                _note(limits, first, second, far)
                limit = _limit_of(limits, first, second)
            if room.counts[0] == room.far.size and not _make_space(limits, owner, room):
                return False
            place = room.counts[0]
            room.one[place], room.two[place], room.far[place] = one, two, far
            room.counts[0] += 1
    return True


@inner
def _look_beside(
    moves: UnitMoves, score: UnitScore, limits: PairLimits, place: Any, room: UnitRoom, owner: Array
) -> bool:
    """Look at the pairs of a block's values with those of another feature; return whether there was room for them."""
    (first, second, block), bounded = place, False
    for other in range(moves.start[second], moves.start[second + 1]):
        if moves.near[block] + moves.near[other] > _limit_of(limits, first, second):
            continue
        if not bounded:
            _bound_blocks(moves, score, block, second, room.bounds)
            room.counts[1] += moves.start[second + 1] - moves.start[second]
            bounded = True
        if not room.bounds[other] >= score.may:
            continue
        if not _look_at(moves, score, limits, (first, second, block, other), room, owner):
            return False
    return True


@kernel
def find_pairs(moves: UnitMoves, score: UnitScore, limits: PairLimits, owner: Array, room: UnitRoom, most: int) -> int:
    """Write all pairs that may be answers; return how many, or TOO_MANY of these, or of pairs looked at."""
    groups = moves.start.size - 1
    room.counts[:] = 0
    if limits.lowers:
        _write_fronts(moves.alone)
        for first in range(groups):
            for second in range(first + 1, groups):
                _estimate(moves, score, limits, (first, second), room)
    for first in range(groups):
        for second in range(first + 1, groups):
            for block in range(moves.start[first], moves.start[first + 1]):
                whole = _look_beside(moves, score, limits, (first, second, block), room, owner)
                if not whole or room.counts[1] > most:
                    return TOO_MANY
    _make_space(limits, owner, room)
    return int(room.counts[0])


class Alone(NamedTuple):
    """What changes do alone.

    Attributes:
        score: (t,) the decision score of each; base: that of the row.
        open: (t,) which may suffice, so that no pair with them certainly needs both changes.
    """

    score: Floats
    base: float
    open: Bools


class UnitPairs(NamedTuple):
    """Pairs of changes that may be answers.

    Attributes:
        at: (m, 2) which of the changes each takes.
        limit: how far answers are at most; nearest: (d, d) those of every two features, the smaller one first.
        looked: how many pairs were looked at.
    """

    at: Codes
    limit: float
    nearest: Floats
    looked: int


@dataclass(frozen=True, eq=False)
class UnitChanges:
    """The changes of one row of a model with one layer of units.

    Attributes:
        layer: the units, over the row's own value of every feature and then its changes.
        start: (d + 1,) where the changes of each feature start; code: (t,) their order among its values.
        cost, peak: (t,) what each adds to the distance; c: of the larger peak in it.
        decision: from which score on the target is met.
    """

    layer: HiddenLayer
    start: Codes
    code: Codes
    cost: Floats
    peak: Floats
    c: float
    decision: DecisionScore

    def pairs(self, alone: Alone, limits: PairLimits, most: int) -> UnitPairs | None:
        """Return the pairs that may be answers; None: they are too many, or more than `most` had to be looked at."""
        at, repeated = self._blocks()
        counts = np.diff(self.start)
        own = np.cumsum(counts + 1) - counts - 1  # before the changes of each feature
        moves = self._moves(at, repeated, alone, own)
        layer = self.layer
        score = UnitScore(
            own=layer.bias + layer.added[own].sum(axis=0),
            weights=np.ascontiguousarray(layer.weights),
            shift=layer.shift,
            floor=0.0 if layer.rectified else -np.inf,
            may=self.decision.may - layer.slack,
            sure=self.decision.sure + layer.slack,
            need=self.decision.sure - alone.base,
        )
        found = np.empty((2, thresholds.MOST_FOUND), dtype=np.int64)
        far, seen = np.empty(thresholds.MOST_FOUND), np.zeros(2, dtype=np.int64)
        room = UnitRoom(np.empty(TOGETHER), np.empty(len(moves.near)), found[0], found[1], far, seen)
        owner = np.repeat(np.arange(len(counts)), np.diff(moves.start) * TOGETHER)
        many = find_pairs(moves, score, limits, owner, room, most)
        if many == TOO_MANY:
            return None
        places = at[np.column_stack([room.one[:many], room.two[:many]])]
        return UnitPairs(places, float(limits.limit[0]), limits.nearest, int(seen[1]))

    def _blocks(self) -> tuple[Codes, Bools]:
        """Return (n,) the changes block after block, each feature's in their order, and which are repeated."""
        counts = np.diff(self.start)
        feature = np.repeat(np.arange(len(counts)), counts)
        order = np.lexsort((self.code, feature))
        filled = TOGETHER * -(-counts // TOGETHER)
        owner = np.repeat(np.arange(len(counts)), filled)
        place = np.arange(len(owner)) - (np.cumsum(filled) - filled)[owner]
        last = counts[owner] - 1
        return order[self.start[owner] + np.minimum(place, last)], place > last

    def _moves(self, at: Codes, repeated: Bools, alone: Alone, own: Codes) -> UnitMoves:
        """Return the changes in blocks, beside the row's own values at places (d,)."""
        feature = np.repeat(np.arange(len(own)), np.diff(self.start))[at]
        added = self.layer.added
        added = np.ascontiguousarray((added[at + feature + 1] - added[own[feature]]).T)
        blocks = added.reshape(len(added), -1, TOGETHER)
        cost = np.where(repeated, np.inf, self.cost[at])
        start = np.append(0, (-(-np.diff(self.start) // TOGETHER)).cumsum())
        gain = (alone.score - alone.base)[at]
        return UnitMoves(
            added=added,
            low=blocks.min(axis=2),
            high=blocks.max(axis=2),
            open=alone.open[at],
            alone=Effects.of(gain, cost, self.peak[at], self.c, start * TOGETHER),
            near=cost.reshape(-1, TOGETHER).min(axis=1),
            start=start,
        )


BEYOND: Final = (0, 1, 3)  # changes beyond an estimate
ESTIMATED: Final = 6  # estimates that are scored for every answer that is wanted


def estimated_pairs(alone: Effects, need: float) -> tuple[Codes, Floats]:
    """Return pairs of changes (p, 2), each of two features, that gain what is needed if effects add up, and some beyond.

    Also how far they are (p,), inf of those that do not exist.
    """
    features, steps = len(alone.many), np.array(BEYOND)
    pairs = features * (features - 1) // 2
    found, far = np.empty((pairs, len(steps), 2), dtype=np.int64), np.empty((pairs, len(steps)))
    estimate_pairs(alone, need, steps, found, far)
    return found.reshape(-1, 2), far.ravel()


def with_own(own: Sequence[Encoded], changed: Sequence[Encoded]) -> list[Encoded]:
    """Return per column the row's own encoded value (1, ...) and then those that it may be changed to (t, ...)."""
    return [np.concatenate([value, others]) for value, others in zip(own, changed, strict=True)]
