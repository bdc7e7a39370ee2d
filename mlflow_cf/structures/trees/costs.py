"""Lagrangian bounds on what it costs to reach a raw score of trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.structures.capabilities import COST_ROUNDING, CostBound
from mlflow_cf.structures.kernels.trees import Array, Trees
from mlflow_cf.structures.parts import LeafLimits, Leaves
from mlflow_cf.structures.structure import Flags
from mlflow_cf.structures.trees.ascent import AscentRoom, LeafAsks, ascend, bound_cells

FIRST_STEPS: Final = 150  # of the first box: 5 ms for 2,200 leaves, within 5 % of the bound after 400 steps
STEPS: Final = 20  # of a box that starts with the shares of a larger one; of 8, 20 and 50 the least CPU on these trees


class TreeCosts:
    """Bounds what rows of boxes cost at least whose score is large enough; belongs to one thread.

    Args of the constructor:
        trees: pruned to the grid that boxes are made of; leaves: of these.
        cells: (n,) the cell of every value of the grid, numbered over all features; costs: (n,) what each costs.
        weights: (k,) of the raw scores; least: what their weighted sum must reach.
    """

    quick: bool = False

    def __init__(
        self, trees: Trees, leaves: Leaves, cells: Array, costs: Floats, weights: Floats, least: float
    ) -> None:
        self._cells, self._costs = cells.astype(np.int64), np.ascontiguousarray(costs)
        feature = np.searchsorted(trees.features.start, cells, side="right") - 1
        dearest = np.zeros(len(trees.features.ordered))
        np.maximum.at(dearest, feature, costs)
        self._most = float(dearest.sum())  # no row costs more: steps need an aim that is finite
        need = least - float(trees.base @ weights)
        unit = abs(need) or 1.0  # prices and costs are stepped alike if what is needed is 1
        self._need, self._leaves = need / unit, _asks(leaves.limits, leaves.tree, leaves.value @ weights / unit, trees)
        pairs, features = len(self._leaves.feature), len(self._leaves.pairs)
        size, outputs = len(trees.nodes.roots), len(self._leaves.tree)
        asks = len(self._leaves.asks)
        self._room = AscentRoom(
            cell=np.empty(trees.features.start[-1]),
            ask=np.empty(asks),
            reached=np.empty(outputs, np.int64),
            cheapest=np.empty(features, np.int64),
            best=np.empty(size),
            pick=np.zeros(size, np.int64),
            slope=np.empty(pairs),
            mean=np.empty(features),
            spread=np.empty(features),
            shares=np.empty(pairs),
            split=np.zeros(2),
            worth=np.empty(outputs),
            least=np.empty(trees.features.start[-1]),
            unasked=np.empty(features),
            asked=np.empty(features, np.int64),
            lows=np.empty(trees.features.start[-1]),
            reach=np.zeros(1, np.int64),
        )

    def of(self, mask: Flags, near: CostBound | None, limit: float) -> CostBound:
        """Bound the box `mask` (n,); see `CostBounds.of`."""
        if near is None:
            best = np.append(0.0, 1.0 / self._leaves.pairs[self._leaves.feature])
        else:
            best = near.multipliers.astype(np.float64)
        steps = FIRST_STEPS if near is None else STEPS
        box = np.ascontiguousarray(mask), self._cells, self._costs
        low = ascend(box, self._leaves, (self._need, min(limit, self._most), steps), self._room, best)
        column, cost = self._room.split.tolist()
        kept = None
        if low <= limit and low < np.inf:
            low = max(low, bound_cells(self._leaves, self._need, best, self._room))
            lows = self._room.lows[self._cells]
            kept = mask & (lows <= _loose(limit)) & (lows < np.inf) if low <= _loose(limit) and low < np.inf else None
        return CostBound(low, best.astype(np.float32), int(column), cost, kept)


def _loose(limit: float) -> float:
    """Return a limit that no bound exceeds by rounding alone."""
    return limit + COST_ROUNDING * max(1.0, limit)


def _asks(limits: Sequence[LeafLimits], tree: Array, gain: Floats, trees: Trees) -> LeafAsks:
    """Return leaves with the limits of each feature, leaf after leaf."""
    start = trees.features.start
    parts, sets, offset = [], [np.empty(0, np.bool_)], 0
    for column, limit in enumerate(limits):
        asks = np.full((len(limit.leaf), 6), -1, dtype=np.int64)
        asks[:, 0] = limit.leaf
        asks[:, 1] = tree[limit.leaf].astype(np.int64) * len(limits) + column
        asks[:, 2], asks[:, 3] = start[column] + limit.low, start[column] + limit.high
        asks[limit.missing, 4] = start[column + 1] - 1
        if limit.taken is not None:
            size = limit.taken.shape[1]
            asks[:, 5] = offset + size * np.arange(len(asks))
            sets.append(limit.taken.ravel())
            offset += limit.taken.size
        parts.append(asks)
    table = np.concatenate(parts)
    table = table[np.argsort(table[:, 0], kind="stable")]
    pairs, table[:, 1] = np.unique(table[:, 1], return_inverse=True)
    feature = pairs % len(limits)
    return LeafAsks(
        tree=tree.astype(np.int64),
        gain=np.ascontiguousarray(gain, dtype=np.float64),
        first=np.searchsorted(table[:, 0], np.arange(len(tree) + 1)),
        asks=np.ascontiguousarray(table[:, 1:]),
        sets=np.concatenate(sets),
        feature=feature,
        pairs=np.bincount(feature, minlength=len(limits)),
        paired=np.searchsorted(pairs // len(limits), np.arange(len(trees.nodes.roots) + 1)),
        start=start.astype(np.int64),
    )
