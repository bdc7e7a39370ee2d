"""Features and leaves as the search among sets of changed features looks at them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine.sets.state import Moves, SetLeaves
from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes
from mlflow_cf.problem.actions import ActionTable
from mlflow_cf.rounding import loose
from mlflow_cf.structures.parts import LeafLimits

MOST_ASKS: Final = 2**24  # of leaves, by feature: 64 MB


class Column(NamedTuple):
    """One feature: the cells that it may be changed to, and what leaves ask of it.

    Attributes:
        places: (p,) the actions that stand for the cells of both lists, among all; cost: (p,) of these.
        split: how many are in the first list.
        leaf: (n,) the leaves that ask; stays: (n,) whether they accept the row's own cell.
        span: (n, 4) see `SetLeaves`; low: (n,) the least cost of a change that they accept.
        flags: (n, p) which places they accept; None: all within the span.
    """

    places: Codes
    cost: Floats
    split: int
    leaf: Codes
    stays: Bools
    span: Codes
    low: Floats
    flags: Bools | None

    @property
    def least(self) -> float:
        """What a change costs at least; inf: there is none."""
        return float(self.cost.min(initial=np.inf))


def column_of(actions: ActionTable, group: int, cells: Codes, limits: LeafLimits, missing: int) -> Column:
    """Return one feature, whose actions have these `cells` (t,) of it; one of them may be that of `missing` values.

    A change to another action of the row's own cell changes nothing for the model, and is left out. Cells above the
    row's own one are a list, and so are those below; where costs do not ascend away from it, or the model does not
    compare, all of them are one list.
    """
    start, own = int(actions.start[group]), int(cells[actions.own[group] - actions.start[group]])
    there, first = np.unique(cells, return_index=True)  # actions come nearest first
    first, there = first[there != own], there[there != own]
    cost, split = actions.cost[start + first], int(np.searchsorted(there, own))
    ascends = bool((np.diff(cost[split:]) >= 0).all() and (np.diff(cost[:split]) <= 0).all())
    stays, flags = _stays(limits, own, missing), None
    if limits.taken is None and ascends and missing not in there:
        order = np.concatenate([np.arange(split, len(there)), np.arange(split)[::-1]])
        span, split = _spans(limits, there[split:], there[:split]), len(there) - split
    else:
        order = np.lexsort((there, cost))
        flags = _accepted(limits, there[order], missing)
        span, split = _ends(flags), len(order)
    cost, leaf = cost[order], limits.leaf.astype(np.intp)
    return Column(start + first[order], cost, split, leaf, stays, span, _least(cost, split, span), flags)


def _stays(limits: LeafLimits, own: int, missing: int) -> Bools:
    """Return which leaves (n,) accept the row's own cell."""
    return np.asarray(_accepted(limits, np.array([own]), missing)[:, 0])


def _accepted(limits: LeafLimits, cells: Codes, missing: int) -> Bools:
    """Return which of some cells (p,) leaves accept (n, p)."""
    if limits.taken is not None:
        return np.asarray(limits.taken[:, cells])
    accepted: Bools = (limits.low[:, None] <= cells) & (cells <= limits.high[:, None])
    accepted[:, cells == missing] = limits.missing[:, None]
    return accepted


def _spans(limits: LeafLimits, up: Codes, down: Codes) -> Codes:
    """Return the spans (n, 4) of leaves in the cells above the row's own, and in those below, from the last one on."""
    ends = (
        np.searchsorted(up, limits.low),
        np.searchsorted(up, limits.high, side="right") - 1,
        len(down) - np.searchsorted(down, limits.high, side="right"),
        len(down) - 1 - np.searchsorted(down, limits.low),
    )
    return np.column_stack(ends)


def _ends(accepted: Bools) -> Codes:
    """Return the spans (n, 4) of what is accepted (n, p) of one list; 0 and -1 where nothing is."""
    some, (many, size) = accepted.any(axis=1), accepted.shape
    nothing = np.zeros(many, dtype=np.intp), np.full(many, -1)
    if not size:
        return np.column_stack([*nothing, *nothing])
    first = np.where(some, accepted.argmax(axis=1), 0)
    last = np.where(some, size - 1 - accepted[:, ::-1].argmax(axis=1), -1)
    return np.column_stack([first, last, *nothing])


def _least(cost: Floats, split: int, span: Codes) -> Floats:
    """Return what the first places cost (n,) that spans (n, 4) of two lists accept; inf where there is none."""
    padded = np.append(cost, np.inf)
    first = np.where(span[:, 0] <= span[:, 1], span[:, 0], len(cost))
    second = np.where(span[:, 2] <= span[:, 3], span[:, 2] + split, len(cost))
    least: Floats = np.minimum(padded[first], padded[second])
    return least


def moves_of(columns: Sequence[Column]) -> Moves:
    """Return what features may be changed to."""
    start = np.cumsum([0, *(len(column.places) for column in columns)])
    split = start[:-1] + [column.split for column in columns]
    cost = np.concatenate([column.cost for column in columns])
    return Moves(np.column_stack([start[:-1], split, start[1:]]), cost, np.array([c.least for c in columns]))


def leaves_within(columns: Sequence[Column], tree: Codes, gain: Floats, most: int, limit: float) -> SetLeaves | None:
    """Return the leaves that rows reach which change at most so many features, and cost no more than a limit.

    Args:
        columns: the features; tree, gain: (n,) of all leaves.
        most, limit: as said. None: they ask too much.
    """
    needs, costs = np.zeros(len(tree), np.intp), np.zeros(len(tree))
    for column in columns:
        needs[column.leaf] += ~column.stays
        costs[column.leaf] += np.where(column.stays, 0.0, column.low)
    live = np.flatnonzero((needs <= most) & (costs <= loose(limit)))
    if len(live) * len(columns) > MOST_ASKS:
        return None
    number = np.full(len(tree), -1)
    number[live] = np.arange(len(live))
    kept = [number[column.leaf] >= 0 for column in columns]
    asking = [number[column.leaf[some]] for column, some in zip(columns, kept, strict=True)]
    start = np.cumsum([0, *map(len, asking)])
    ask = np.full((len(live), len(columns)), -1, dtype=np.int32)
    for place, (leaf, (a, b)) in enumerate(zip(asking, pairwise(start.tolist()), strict=True)):
        ask[leaf, place] = np.arange(a, b)
    stays = [column.stays[some] for column, some in zip(columns, kept, strict=True)]
    leaf, need = np.nonzero(~np.concatenate([*stays, [True]])[ask])  # what is not asked is last
    trees = int(tree[-1]) + 1
    pairs, pair = np.unique(need * trees + tree[live[leaf]], return_inverse=True)
    table, flags = _flags(columns, kept)
    return SetLeaves(
        tree=tree[live].astype(np.int64),
        gain=np.ascontiguousarray(gain[live], dtype=np.float64),
        trees=trees,
        first=np.searchsorted(leaf, np.arange(len(live) + 1)),
        need=np.ascontiguousarray(need),
        pair=pair.astype(np.int64),
        paired=np.searchsorted(pairs, np.arange(len(columns) + 1) * trees),
        ask=ask,
        span=np.concatenate([column.span[some] for column, some in zip(columns, kept, strict=True)]).astype(np.int64),
        cost=np.concatenate([column.low[some] for column, some in zip(columns, kept, strict=True)]),
        table=table,
        flags=flags,
    )


def _flags(columns: Sequence[Column], kept: Sequence[Bools]) -> tuple[Codes, Bools]:
    """Return where the flags of each ask start, -1 where it has none, and all flags."""
    starts, flags, size = [], [np.zeros(0, np.bool_)], 0
    for column, some in zip(columns, kept, strict=True):
        many = int(some.sum())
        if column.flags is None:
            starts.append(np.full(many, -1))
        else:
            starts.append(size + column.flags.shape[1] * np.arange(many))
            flags.append(column.flags[some].ravel())
            size += flags[-1].size
    return np.concatenate(starts), np.concatenate(flags)
