"""What the kernels of pairs of units are given, and the arrays that they work in."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes

Array = NDArray[Any]
TOGETHER: Final = 16  # values of a feature in a block
FOUND, LOOKED, NEAR = range(3)  # of `UnitRoom.counts`


class Effects(NamedTuple):
    """What n changes do alone, feature after feature.

    Attributes:
        gain: (n,) what each adds to the score.
        cost, peak: (n,) what each adds to the distance, inf where it is none; c: of the larger peak in it.
        start: (d + 1,) the first change of every feature.
        order: (n,) those of each feature, nearest first; -1: there are no more.
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
        added: (width, n) what each value adds to the units.
        low, high: (width, b) the least and the most that those of a block add.
        owner: (n,) the feature of each; start: (d + 1,) the first block of every feature.
        open: (n,) whether a change may suffice alone.
        alone: what each does alone.
        near: (b,) the least cost of a block.
    """

    added: Array
    low: Array
    high: Array
    owner: Array
    start: Array
    open: Array
    alone: Effects
    near: Array


class UnitScore(NamedTuple):
    """How the units of the row decide.

    Attributes:
        total: (width,) the units; own: (d, width) what the row's own value of each feature adds to them.
        weights: (width,) of the units in the score; shift: what is added to their weighted sum.
        floor: the least value of a unit: 0 of rectified ones, else minus infinity.
        may, sure: from which score on the target may be met, and certainly is.
        need: what the row lacks.
    """

    total: Array
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
        lowers: whether pairs that certainly are answers lower the limits.
        limit: (1,) of all; nearest: (d, d) of the first feature and the second; of one: twice the same.
        top_far, top_set: (k,) the least of these, ascending, of which so many are wanted; d * first + second of each.
    """

    lowers: bool
    limit: Array
    nearest: Array
    top_far: Array
    top_set: Array

    @classmethod
    def of(cls, limit: float, nearest: Floats, count: int, *, lowers: bool) -> PairLimits:
        """Return the limits where that much is known."""
        first, second = np.triu_indices(len(nearest))
        known, sets = nearest[first, second], len(nearest) * first + second
        least = np.argsort(known, kind="stable")[:count]
        least = least[np.isfinite(known[least])]
        top_far, top_set = np.full(count, np.inf), np.full(count, -1, dtype=np.int64)
        top_far[: len(least)], top_set[: len(least)] = known[least], sets[least]
        return cls(lowers, np.array([limit]), nearest, top_far, top_set)


class UnitRoom(NamedTuple):
    """Room to work in, and for the pairs found.

    Attributes:
        units: (width,) those of the row without two features.
        scores: (TOGETHER,); bounds: (b,).
        one, two: (f,) the changes of the pairs found; far, score: (f,) their distance and score.
        counts: (3,) how many pairs were found, how many looked at, and how many pairs of features are near enough.
    """

    units: Array
    scores: Array
    bounds: Array
    one: Array
    two: Array
    far: Array
    score: Array
    counts: Array

    @classmethod
    def of(cls, width: int, blocks: int, found: int) -> UnitRoom:
        """Return arrays for units, blocks and pairs."""
        (one, two), (far, score) = np.empty((2, found), dtype=np.int64), np.empty((2, found))
        counts = np.zeros(3, dtype=np.int64)
        return cls(np.empty(width), np.empty(TOGETHER), np.empty(blocks), one, two, far, score, counts)
