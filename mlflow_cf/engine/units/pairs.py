"""The pairs of changes of one row that may be answers, of a model with one layer of units; see the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine import thresholds
from mlflow_cf.engine.units.kernels import TOO_MANY, estimate_pairs, find_pairs
from mlflow_cf.engine.units.state import NEAR, TOGETHER, Effects, PairLimits, UnitMoves, UnitRoom, UnitScore
from mlflow_cf.features import Floats
from mlflow_cf.goal.decision import DecisionScore
from mlflow_cf.problem import Codes
from mlflow_cf.structures.capabilities import HiddenLayer
from mlflow_cf.structures.structure import Encoded

BEYOND: Final = (0, 1, 3)  # changes beyond an estimate
WIDTH: Final = 100  # units: so many make a pair take as long as a number in a table of pairs, some 25 ns
ESTIMATED: Final = 6  # estimates that are scored for every answer that is wanted


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
        near: how many pairs of features have any that are near enough.
    """

    at: Codes
    limit: float
    nearest: Floats
    near: int


class ValueBlocks(NamedTuple):
    """Values of all features in blocks of `TOGETHER`, the last ones of each feature perhaps repeated.

    Attributes:
        at: (n,) which values; repeated: (n,) whether each stands there before; owner: (n,) the feature of each.
        start: (d + 1,) the first block of every feature.
    """

    at: Codes
    repeated: Bools
    owner: Codes
    start: Codes

    @classmethod
    def of(cls, order: Codes, start: Codes) -> ValueBlocks:
        """Return values in an `order` (t,) in which those of each feature are from `start` (d + 1,) on."""
        counts = np.diff(start)
        blocks = np.append(0, (-(-counts // TOGETHER)).cumsum())
        owner = np.repeat(np.arange(len(counts)), TOGETHER * np.diff(blocks))
        place = np.arange(len(owner)) - TOGETHER * blocks[owner]
        last = counts[owner] - 1
        return cls(order[start[owner] + np.minimum(place, last)], place > last, owner, blocks)


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
        counts, layer = np.diff(self.start), self.layer
        feature = np.repeat(np.arange(len(counts)), counts)
        blocks = ValueBlocks.of(np.lexsort((self.code, feature)), self.start)
        own = layer.added[np.cumsum(counts + 1) - counts - 1]  # before the changes of each feature
        moves = self._moves(blocks, alone)
        score = UnitScore(
            total=layer.bias + own.sum(axis=0),
            own=own,
            weights=np.ascontiguousarray(layer.weights),
            shift=layer.shift,
            floor=0.0 if layer.rectified else -np.inf,
            may=self.decision.may - layer.slack,
            sure=self.decision.sure + layer.slack,
            need=self.decision.sure - alone.base,
        )
        room = UnitRoom.of(len(layer.bias), len(moves.near), thresholds.MOST_FOUND)
        many = find_pairs(moves, score, limits, pairs_for(most, len(layer.bias)), room)
        if many == TOO_MANY:
            return None
        places = blocks.at[np.column_stack([room.one[:many], room.two[:many]])]
        return UnitPairs(places, float(limits.limit[0]), limits.nearest, int(room.counts[NEAR]))

    def _moves(self, blocks: ValueBlocks, alone: Alone) -> UnitMoves:
        """Return the changes in blocks."""
        at = blocks.at
        added, low, high = in_blocks(self.layer.added[at + blocks.owner + 1])
        cost = np.where(blocks.repeated, np.inf, self.cost[at])
        gain = (alone.score - alone.base)[at]
        effects = Effects.of(gain, cost, self.peak[at], self.c, blocks.start * TOGETHER)
        near = cost.reshape(-1, TOGETHER).min(axis=1)
        return UnitMoves(added, low, high, blocks.owner, blocks.start, alone.open[at], effects, near)


def pairs_for(most: int, width: int) -> int:
    """Return how many pairs, of so many units, are scored as fast as `most` pairs of `WIDTH` units."""
    return most * WIDTH // max(width, WIDTH)


def in_blocks(added: Floats) -> tuple[Floats, Floats, Floats]:
    """Return what values (n, width) in blocks add to each unit (width, n), and least and most (width, b) per block."""
    turned = np.ascontiguousarray(added.T)
    blocks = turned.reshape(len(turned), -1, TOGETHER)
    return turned, blocks.min(axis=2), blocks.max(axis=2)


def estimated_pairs(alone: Effects, need: float) -> tuple[Codes, Floats]:
    """Return the pairs of changes (p, 2) of every two features that suffice if effects add up, and some beyond.

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
