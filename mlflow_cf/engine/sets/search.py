"""The search among sets of changed features: what is nearest of trees, where few changes suffice; see the kernels.

The limit on costs grows in steps, so that a search that is cut short has proved a bound.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine import thresholds
from mlflow_cf.engine.actions import loose
from mlflow_cf.engine.sets.kernels import DONE, FOUND, GOING, WORK, Aim, Moves, Progress, Search, SetLeaves, begin, look
from mlflow_cf.features import Floats
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.actions import ActionTable, Within
from mlflow_cf.structures.capabilities import SupportsLeaves
from mlflow_cf.structures.parts import LeafLimits

MOST_CHANGED: Final = 12  # features of a set: more of them are looked at in other ways
STEPS: Final = (0.25, 0.5, 0.75, 1.0)  # of the limit beyond what the least set costs
AT_ONCE: Final = 2**21  # leaves between two looks at the clock: some 10 ms
LEAVES_PER_ROW: Final = 2**9  # that are looked at take as long as the evaluation of a row
MOST_BOXES: Final = 4_096
import os
ASCENT: Final = int(os.environ.get('ASC', '5'))
MOST_FOUND: Final = 20_000  # candidates
MOST_ASKS: Final = 2**24  # of leaves, by feature: 64 MB
POOL: Final = 64  # times as many leaves of boxes as there are leaves


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


def _column(actions: ActionTable, group: int, cells: Codes, limits: LeafLimits, missing: int) -> Column:
    """Return one feature, whose actions have these `cells` (t,) of it; the last one is that of `missing` values."""
    start, own = int(actions.start[group]), int(cells[actions.own[group] - actions.start[group]])
    there, first = np.unique(cells, return_index=True)  # actions come nearest first
    first, there = first[there != own], there[there != own]
    cost, at = actions.cost[start + first], int(np.searchsorted(there, own))
    order = np.concatenate([np.arange(at, len(there)), np.arange(at)[::-1]])
    low, high, up, down = limits.low, limits.high, there[at:], there[:at]
    stays = limits.missing if own == missing else (low <= own) & (own <= high)
    ascends = (np.diff(cost[at:]) >= 0).all() and (np.diff(cost[:at]) <= 0).all()
    if limits.taken is None and ascends and missing not in there:
        span = np.column_stack([
            np.searchsorted(up, low), np.searchsorted(up, high, side="right") - 1,
            len(down) - np.searchsorted(down, high, side="right"), len(down) - 1 - np.searchsorted(down, low),
        ])  # fmt: skip
        split, flags = len(up), None
    else:
        order = np.lexsort((there, cost))
        split = len(order)
        if limits.taken is None:
            flags = (low[:, None] <= there[order]) & (there[order] <= high[:, None])
            flags[:, there[order] == missing] = limits.missing[:, None]
        else:
            flags, stays = limits.taken[:, there[order]], limits.taken[:, own]
        span = np.column_stack([*_ends(flags), np.zeros(len(low), np.intp), np.full(len(low), -1)])
    cost = cost[order]
    return Column(start + first[order], cost, split, limits.leaf.astype(np.intp), stays, span, _least(cost, split, span), flags)


def _least(cost: Floats, split: int, span: Codes) -> Floats:
    """Return the cost (n,) of the first place that spans (n, 4) of two lists accept; inf where they accept none."""
    padded = np.append(cost, np.inf)
    ups = np.where(span[:, 0] <= span[:, 1], span[:, 0], len(cost))
    downs = np.where(span[:, 2] <= span[:, 3], span[:, 2] + split, len(cost))
    least: Floats = np.minimum(padded[ups], padded[downs])
    return least


def _ends(accepted: Bools) -> tuple[Codes, Codes]:
    """Return the first and the last place (n,) that is accepted (n, p); 0 and -1 where none is."""
    some, size = accepted.any(axis=1), accepted.shape[1]
    if not size:
        return np.zeros(len(some), np.intp), np.full(len(some), -1)
    first = np.where(some, accepted.argmax(axis=1), 0)
    return first, np.where(some, size - 1 - accepted[:, ::-1].argmax(axis=1), -1)


def _order_of(columns: list[Column], tree: Codes, gain: Floats) -> Codes:
    """Return the features, those first by which trees can gain most: sets without them are given up soon."""
    worth = np.zeros(len(columns))
    highest = np.full(int(tree[-1]) + 1, -np.inf)
    np.maximum.at(highest, tree, gain)
    for number, column in enumerate(columns):
        needs = column.leaf[~column.stays]
        best = np.zeros(len(highest))
        np.maximum.at(best, tree[needs], gain[needs] - gain.min())
        worth[number] = best.sum() if len(column.places) else -1.0
    return np.argsort(-worth, kind="stable")


def _tables(columns: list[Column], tree: Codes, gain: Floats, most: int, limit: float) -> tuple[Moves, SetLeaves] | None:
    """Return what kernels look at: the columns in this order, and the leaves that rows within the limit may reach."""
    count, sizes = len(tree), [len(column.places) for column in columns]
    start = np.cumsum([0, *sizes])
    split = start[:-1] + [column.split for column in columns]
    cost = np.concatenate([column.cost for column in columns])
    lists = [cost[a:b] for a, b in pairwise(start.tolist())]
    moves = Moves(
        np.column_stack([start[:-1], split, start[1:]]), cost, np.array([some.min(initial=np.inf) for some in lists])
    )
    needs, costs = np.zeros(count, np.intp), np.zeros(count)
    for column in columns:
        asks = column.leaf[~column.stays]
        needs[asks] += 1
        costs[asks] += column.low[~column.stays]
    live = np.flatnonzero((needs <= most) & (costs <= loose(limit)))
    number = np.full(count, -1)
    number[live] = np.arange(len(live))
    if len(live) * len(columns) > MOST_ASKS:
        return None
    ask = np.full((len(live), len(columns)), -1, dtype=np.int32)
    need, spans, lows, tables, flags, known, some = [], [], [], [], [np.empty(0, np.bool_)], 0, 0
    for place, column in enumerate(columns):
        kept = number[column.leaf] >= 0
        leaf = number[column.leaf[kept]]
        ask[leaf, place] = known + np.arange(len(leaf))
        known += len(leaf)
        spans.append(column.span[kept])
        lows.append(column.low[kept])
        table = np.full(len(leaf), -1)
        if column.flags is not None:
            table = some + column.flags.shape[1] * np.arange(len(leaf))
            flags.append(column.flags[kept].ravel())
            some += flags[-1].size
        tables.append(table)
        needing = number[column.leaf[kept & ~column.stays]]
        need.append(np.column_stack([needing, np.full(len(needing), place)]))
    every = np.concatenate(need)
    every = every[np.lexsort((every[:, 1], every[:, 0]))]
    first = np.searchsorted(every[:, 0], np.arange(len(live) + 1))
    trees = int(tree[-1]) + 1
    pairs, pair = np.unique(every[:, 1] * trees + tree[live][every[:, 0]], return_inverse=True)
    paired = np.searchsorted(pairs, np.arange(len(columns) + 1) * trees)
    return moves, SetLeaves(
        tree[live].astype(np.int64), gain[live], trees, first, np.ascontiguousarray(every[:, 1]), pair, paired, ask,
        np.concatenate(spans), np.concatenate(lows), np.concatenate(tables), np.concatenate(flags),
    )  # fmt: skip


class SetSearch:
    """Looks for candidates whose changes cost no more than a limit; belongs to one thread.

    Attributes:
        limit: on costs, perhaps lowered to those of a row that certainly meets the target.
        low: no row costs less that may meet the target and is not among the candidates.
    """

    def __init__(self, columns: list[Column], owner: Codes, tables: tuple[Moves, SetLeaves], aim: Aim, limit: float) -> None:
        self._places, self._owner, self.limit = np.concatenate([column.places for column in columns]), owner, limit
        moves, leaves = tables
        self._least = np.sort(moves.least)[: aim.most]
        self.low = float(self._least[: aim.least].sum())
        most, count, pairs = aim.most, len(leaves.tree), int(leaves.paired[-1])
        progress = Progress(
            np.zeros(6, np.int64), np.zeros(1), np.zeros(most + 1, np.int64), np.zeros(len(moves.least), np.int64),
            np.empty((most + 1, pairs + 1)), np.empty(leaves.trees),
            np.zeros(leaves.trees, np.int64), np.empty(pairs), np.empty(pairs + 1), np.zeros(most + 1, np.int64),
            np.zeros(len(moves.least), np.int64), np.zeros(len(moves.least)), np.zeros(most + 1, np.bool_), np.zeros(most + 1),
            np.zeros(most + 1, np.int64),
            np.empty((most + 1, count), np.int32), np.empty((MOST_BOXES, 2 + 2 * most), np.int64),
            np.empty(POOL * count, np.int32),
            np.empty((count, 4 * most), np.int32), np.empty((count, most), np.int64), np.empty(count, np.int64), np.empty(count),
            np.empty((MOST_FOUND, 2 * most), np.int64),
        )  # fmt: skip
        self._search = Search(moves, leaves, aim, progress)
        self._found: list[Codes] = []

    def run(self, budget: Budget) -> bool:
        """Search up to the limit; return False if the budget, or the room for what waits, does not last for that."""
        lowest = self.low
        for step in STEPS:
            reach = min(lowest + step * (self.limit - lowest), self.limit)
            if not self._run_to(reach, budget):
                return False
            if self.limit <= reach:
                return True
        return True

    def _run_to(self, reach: float, budget: Budget) -> bool:
        """Search up to a limit of costs."""
        progress = self._search.progress
        progress.limit[0] = loose(reach)
        status = GOING if begin(self._search) else DONE
        before = 0
        while status == GOING:
            if budget.spent:
                break
            status = look(self._search, AT_ONCE)
            worked = int(progress.counts[WORK])
            budget.take(min((worked - before) // LEAVES_PER_ROW + 1, budget.left))
            before = worked
        self._found.append(progress.found[: progress.counts[FOUND]].copy())
        if progress.limit[0] < loose(reach):
            self.limit = min(self.limit, float(progress.limit[0]))
        if status != DONE:
            return False
        self.low = min(reach, self.limit)
        return True

    def candidates(self, actions: ActionTable) -> Codes:
        """Return the candidates (m, G) found, which take some of the `actions`."""
        found = np.concatenate(self._found)
        codes = np.repeat(actions.own_code[None], len(found), axis=0)
        for feature, place in zip(found[:, ::2].T, found[:, 1::2].T, strict=True):
            rows = np.flatnonzero(feature >= 0)
            codes[rows, self._owner[feature[rows]]] = actions.code[self._places[place[rows]]]
        return np.unique(codes, axis=0)


def search_sets(
    problem: Problem, actions: ActionTable, boxes: object, tolerance: float, within: Within
) -> SetSearch | None:
    """Return the search for candidates that take some of the `actions`; None where the model is not made of trees.

    None, too, where many features may change within the limit, several scores decide, or rules are about several groups.
    """
    scorer, limit = problem.scorer, within.limit
    score = None if scorer is None else scorer.decision_score(tolerance + thresholds.SWEPT)
    plain = problem.plain_limits and not problem.joint_rules and not problem.bound_distance.c
    single = len(problem.groups) == len(problem.space) and not (actions.own < 0).any()
    if score is None or not plain or not single or not np.isfinite(limit) or not isinstance(boxes, SupportsLeaves):
        return None
    changes = np.delete(actions.cost, actions.own), np.delete(actions.group, actions.own)
    cheap = np.full(len(problem.groups), np.inf)
    np.minimum.at(cheap, changes[1], changes[0])
    most = min(int((np.sort(cheap).cumsum() <= loose(limit)).sum()), within.most)
    if most > MOST_CHANGED or most < within.least:
        return None
    leaves, cells = boxes.leaves()
    gain, base = leaves.value @ score.weights, float(leaves.base @ score.weights)
    columns = [
        _column(actions, group, cell, limits, lookup.size - 1)
        for group, cell, limits, lookup in zip(actions.owner.tolist(), cells, leaves.limits, leaves.lookups, strict=True)
    ]
    order = _order_of(columns, leaves.tree, gain)
    columns = [columns[at] for at in order.tolist()]
    tables = _tables(columns, leaves.tree, gain, most, limit)
    if tables is None:
        return None
    aim = Aim(score.may - base, score.sure - base, within.least, most, ASCENT, float(cheap.min()))
    return SetSearch(columns, actions.owner[order], tables, aim, limit)
