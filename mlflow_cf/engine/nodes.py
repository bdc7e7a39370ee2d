"""Nodes of branch and bound: for every group the actions that candidates may take, with bounds and a least key.

A node is a mask (actions,) over the action table. `tighten` drops actions that are too far away, `Parting` splits a
node by the model's bounds, and `beyond_reach` tells by the bounds of the whole table that nothing meets the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine import thresholds
from mlflow_cf.engine.actions import DominatedActions, RedundantChanges
from mlflow_cf.engine.combined import Combined
from mlflow_cf.engine.sets.search import SetSearch, search_sets
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.kernel import kernel
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.actions import ActionArrays, ActionTable, Within
from mlflow_cf.rounding import ROUNDING, loose
from mlflow_cf.structures.capabilities import (
    COST_ROUNDING,
    CostBound,
    CostBounds,
    SupportsConfined,
    SupportsCosts,
    boxes_of,
)

Array = NDArray[Any]


def whole_box(actions: ActionTable) -> Bools:
    """Return the box (1, actions) of all candidates."""
    return np.ones((1, len(actions.code)), dtype=np.bool_)


def boxes_of_sets(actions: ActionTable, sets: Bools) -> Bools:
    """Return the boxes (s, actions) of the candidates whose changed groups are just those of each of `sets` (s, G)."""
    own = np.zeros(len(actions.code), dtype=np.bool_)
    own[actions.own[actions.own >= 0]] = True
    boxes: Bools = sets[:, actions.group] != own
    return boxes


class Lows(NamedTuple):
    """The least keys of boxes.

    Attributes:
        distance: (m,) inf for an empty box.
        changes: (m,) groups that must differ.
        code: (m, G) smallest code of every group.
    """

    distance: Floats
    changes: Codes
    code: Codes


def tighten(masks: Bools, actions: ActionTable, within: Within) -> Lows:
    """Drop, in place, actions of boxes (m, actions) that no candidate within limits has; none of them is lost."""
    groups = len(actions.own)
    changes, code = np.empty(len(masks), dtype=np.intp), np.empty((len(masks), groups), dtype=np.intp)
    lows = Lows(np.empty(len(masks)), changes, code)
    nearest = LeastCosts.room(groups)
    tighten_boxes(masks, actions.arrays, within, loose(within.limit), nearest, lows)
    return lows


class LeastCosts(NamedTuple):
    """What a box allows at least.

    Attributes:
        first: (G,) the first action of every group; tops: (G,) the smallest peak of all that it allows.
        further: (MOST_LEAST + 1,) the least costs, ascending, of changing groups that need not change; inf where there
            are fewer; whose: (MOST_LEAST + 1,) these groups.
    """

    first: Array
    tops: Array
    further: Array
    whose: Array

    @classmethod
    def room(cls, groups: int) -> LeastCosts:
        """Return arrays for so many groups."""
        some = thresholds.MOST_LEAST + 1
        return cls(np.empty(groups, np.intp), np.empty(groups), np.empty(some), np.empty(some, np.intp))


@numba.njit(inline="always")
def _least(mask: Array, flat: ActionArrays, nearest: LeastCosts, smallest: Array) -> tuple[float, int]:
    """Write each group's nearest action, smallest code and smallest peak; return the sum of least costs and changes."""
    first, tops = nearest.first, nearest.tops
    total, changes = 0.0, 0
    for group in range(flat.own.size):
        first[group] = -1
        for at in range(flat.start[group], flat.start[group + 1]):
            if not mask[at]:
                continue
            if first[group] < 0:
                first[group], smallest[group], tops[group] = at, flat.code[at], flat.peak[at]
            smallest[group] = min(smallest[group], flat.code[at])
            tops[group] = min(tops[group], flat.peak[at])
        if first[group] < 0:
            return np.inf, 0
        total += flat.cost[first[group]]
        changes += flat.own[group] < 0 or not mask[flat.own[group]]
    return total, changes


@numba.njit(inline="always")
def _further(mask: Array, flat: ActionArrays, nearest: LeastCosts) -> None:
    """Write what the groups that stay as they are would cost at least if they changed."""
    further, whose = nearest.further, nearest.whose
    for place in range(further.size):
        further[place], whose[place] = np.inf, -1
    for group in range(flat.own.size):
        at = nearest.first[group] + 1
        if nearest.first[group] != flat.own[group]:
            continue
        while at < flat.start[group + 1] and not mask[at]:
            at += 1
        if at == flat.start[group + 1]:
            continue
        cost, number = flat.cost[at], group
        for place in range(further.size):
            if cost < further[place]:
                further[place], cost = cost, further[place]
                whose[place], number = number, whose[place]


@numba.njit(inline="always")
def _added(nearest: LeastCosts, needed: int, group: int) -> float:
    """Return what so many changes of groups other than `group` add at least."""
    added, place = 0.0, 0
    while needed > 0:
        if nearest.whose[place] != group or group < 0:
            added += nearest.further[place]
            needed -= 1
        place += 1
    return added


@kernel
def tighten_boxes(
    masks: Array, flat: ActionArrays, within: Within, loose: float, nearest: LeastCosts, lows: Lows
) -> None:
    """Do what `tighten` does; what is no farther than `loose` is within the limit, however it is rounded."""
    own, start, cost, peak, distance, changes = flat.own, flat.start, flat.cost, flat.peak, lows.distance, lows.changes
    c, limit, most, least = within.c, within.limit, within.most, within.least
    first, tops = nearest.first, nearest.tops
    for box in range(len(masks)):
        mask = masks[box]
        total, changed = _least(mask, flat, nearest, lows.code[box])
        top = 0.0
        for group in range(own.size):
            top = max(top, tops[group])
        changes[box], distance[box] = max(changed, least), np.inf
        if total == np.inf or total + c * top > limit or changes[box] > most:
            continue
        low = total
        if least > 1:
            _further(mask, flat, nearest)
        if changed < least and least > 1:  # added up in another order than distances are
            low = max(total, total + _added(nearest, least - changed, -1) - ROUNDING * max(1.0, total))
        if low == np.inf or low + c * top > limit:
            continue
        distance[box] = low + c * top
        for group in range(own.size):
            rest, highest = total - cost[first[group]], 0.0
            for other in range(own.size if c > 0 else 0):
                highest = max(highest, tops[other] if other != group else 0.0)
            bound = own[group] >= 0 and mask[own[group]] and changed == most  # no further group may change
            needed = least - changed + (first[group] != own[group]) if least > 1 else 0
            stays = rest + _added(nearest, needed, group)
            moves = rest + _added(nearest, needed - 1, group)
            left = 0
            for at in range(start[group], start[group + 1]):
                far = (stays if at == own[group] else moves) + cost[at] + c * max(highest, peak[at]) > loose
                if mask[at] and (far or (bound and at != own[group])):
                    mask[at] = False
                left += mask[at]
            if not left:
                distance[box] = np.inf


def tight(low: float) -> float:
    """Return a lower bound on distances that holds however it was rounded."""
    return low - COST_ROUNDING * max(1.0, abs(low))


class Parting:
    """Parts boxes of `actions` by the model's bounds; scores may be off by `tolerance`."""

    def __init__(
        self,
        problem: Problem,
        actions: ActionTable,
        redundant: RedundantChanges | None,
        tolerance: float,
        budget: Budget,
        few: Scorer | None,
    ) -> None:
        """Prune the model to the actions; where several answers are wanted, `redundant` changes are looked for.

        `few` of the models bound boxes, where many must agree; see `Scorer.hardest`.
        """
        self.problem, self.actions, self.budget = problem, actions, budget
        self.redundant, self.tolerance = redundant, tolerance
        scorer = problem.scorer
        self._boxes = None if scorer is None else boxes_of(scorer.structure, actions.encoded)
        self._dominated = DominatedActions(problem, actions, self._boxes, tolerance)
        self._bounding = (scorer, self._boxes) if few is None else (few, boxes_of(few.structure, actions.encoded))
        self._confining = self._bounding[1] if isinstance(self._bounding[1], SupportsConfined) else None

    def of(self, box: Bools, bound: CostBound | None = None) -> Bools | None:
        """Part a box (actions,) in two, or drop actions of it.

        Every group is tried with the nearer of its actions alone: the row's own action, or the nearer half. Where that
        cannot meet the target, none of these actions can stay; where all of it does, no others are needed; else the
        group that loses most by it is parted there.

        Returns:
            The boxes (m, actions) that are left of it, at most two; None if the budget does not last for that.
        """
        if bound is not None and self.redundant is None and (parts := self._by_cost(box, bound)) is not None:
            return parts if self.budget.take(len(self.actions.own)) else None
        near = [self._nearer(box, number) for number in range(len(self.actions.own))]
        free = [number for number, here in enumerate(near) if len(here)]
        back = [] if self.redundant is None else self.redundant.back(box).tolist()
        if self.budget.take(len(free) + len(back)) < len(free) + len(back):
            return None
        if back and self._all_sure(box, back):
            return box[None][:0]
        ends = self._ends(box, near, free)
        if ends is None:
            return None
        left, kept = self._judged(box, ends, near, free)
        if (left < 0).any() or kept.any():
            mask = box.copy()
            for number in np.flatnonzero(left < 0).tolist():
                mask[near[free[number]]] = False
            for number in np.flatnonzero(kept).tolist():
                mask = self._confined(mask, near, free[number])
            return mask[None]
        sizes = np.array([-len(near[number]) for number in free])  # among equals the one with the most actions
        chosen = int(np.lexsort((sizes, left))[0])
        rest = box.copy()
        rest[near[free[chosen]]] = False
        return np.stack([self._confined(box, near, free[chosen]), rest])

    def cost_bound(self, box: Bools, near: CostBound | None, limit: float) -> CostBound | None:
        """Return what candidates of a box (actions,) cost at least; None where the structure does not tell.

        Args:
            box: the box; near: the bound of one that contains it.
            limit: a bound that is larger is as good as any.
        """
        if self._costs is None:
            return None
        return self._costs.of(box[self.actions.columns], near, limit)

    def set_search(self, within: Within) -> SetSearch | None:
        """Return the search among sets of changed features, where there is one; see `search_sets`."""
        return search_sets(self.problem, self.actions, self._boxes, self.tolerance, within)

    @property
    def quick_costs(self) -> bool:
        """Whether bounds on costs take no longer than those on scores."""
        return self._costs is not None and self._costs.quick

    @cached_property
    def _costs(self) -> CostBounds | None:
        scorer, actions = self.problem.scorer, self.actions
        single = len(self.problem.groups) == len(self.problem.space)
        if scorer is None or not single:
            return None
        score, costs = scorer.decision_score(self.tolerance), actions.cost[actions.columns]
        if score is None:
            return None if self._combined is None else self._combined.costs(costs)
        return self._boxes.costs(costs, score.weights, score.may) if isinstance(self._boxes, SupportsCosts) else None

    @cached_property
    def _combined(self) -> Combined | None:
        """One model in place of many, where these are linear."""
        scorer = self.problem.scorer
        return None if scorer is None else Combined.of(scorer, self._boxes, self.actions, self.tolerance)

    def _by_cost(self, box: Bools, bound: CostBound) -> Bools | None:
        """Part a box (actions,) by what the column costs of which its bound says most; None: it has one action."""
        number = int(self.actions.owner[bound.column])
        start, stop = self.actions.start[number], self.actions.start[number + 1]
        here = start + np.flatnonzero(box[start:stop])
        cheap = self.actions.cost[here] <= bound.cost
        near = here[cheap] if cheap.any() and not cheap.all() else self._nearer(box, number)
        if not len(near):
            return None
        rest = box.copy()
        rest[near] = False
        return np.stack([np.where(self.actions.group == number, box & ~rest, box), rest])

    def worthwhile(self, box: Bools) -> Bools:
        """Return a box (actions,) without actions that no nearest answer takes."""
        return self._dominated.dropped(box)

    def reach(self, masks: Bools) -> Floats:
        """Return how far boxes come into the target, or so near that the judge must be asked; < 0: not at all."""
        scorer, _ = self._bounding
        if scorer is None or not len(masks):
            return np.zeros(len(masks))
        reached = scorer.upper_bound(*self._bounds(masks), self.tolerance)
        if self._combined is not None:
            reached[self._combined.missed(masks[:, self.actions.columns])] = -np.inf
        return reached

    def _all_sure(self, box: Bools, back: Sequence[int]) -> bool:
        """Whether all candidates of a box certainly meet the target with one of some groups put back."""
        own = [self.actions.own[number : number + 1] for number in range(len(self.actions.own))]
        low, high = self._bounds(np.stack([self._confined(box, own, number) for number in back]))
        scorer, _ = self._bounding
        return scorer is not None and bool(scorer.certainly_met(low, high, self.tolerance).any())

    def _judged(
        self, box: Bools, ends: tuple[Floats, Floats], near: Sequence[Codes], free: Sequence[int]
    ) -> tuple[Floats, Bools]:
        """Return (f,) how far parts of a box with such bounds reach, and which have all that is needed of it."""
        kept, (scorer, _) = np.zeros(len(free), dtype=np.bool_), self._bounding
        if scorer is None:
            return np.zeros(len(free)), kept
        if self.redundant is not None:
            optional = self.redundant.optional(box)
            kept = np.array([bool(optional[n]) and near[n][0] == self.actions.own[n] for n in free])
            kept[kept] = scorer.certainly_met(ends[0][kept], ends[1][kept], self.tolerance)
        return scorer.upper_bound(*ends, self.tolerance), kept

    def _ends(self, box: Bools, near: Sequence[Codes], free: Sequence[int]) -> tuple[Floats, Floats] | None:
        """Return bounds (f, k), (f, k) of a box with each of some groups confined to its nearer actions.

        None: the time does not last for that.
        """
        if self._confining is not None:
            columns, flags = self.actions.columns, np.zeros(len(box), dtype=np.bool_)
            flags[np.concatenate([near[number] for number in free])] = True
            groups = [self.problem.columns[number] for number in free]
            return self._confining.confined(box[columns], flags[columns], groups)
        parts: list[tuple[Floats, Floats]] = []
        many = max(1, thresholds.MOST_FLAGS // len(box))
        for start in range(0, len(free), many):
            if start and self.budget.spent:
                return None
            parts.append(self._bounds(np.stack([self._confined(box, near, n) for n in free[start : start + many]])))
        return np.concatenate([low for low, _ in parts]), np.concatenate([high for _, high in parts])

    def _bounds(self, masks: Bools) -> tuple[Floats, Floats]:
        """Return bounds (m, k), (m, k) on the sums of boxes; without structure, of nothing."""
        _, boxes = self._bounding
        if boxes is None:
            return np.empty((len(masks), 0)), np.empty((len(masks), 0))
        return boxes.bounds(masks[:, self.actions.columns])

    def _confined(self, box: Bools, near: Sequence[Codes], number: int) -> Bools:
        """Return the part of a box (actions,) in which a group has its nearer actions alone."""
        part = box.copy()
        part[self.actions.start[number] : self.actions.start[number + 1]] = False
        part[near[number]] = True
        return part

    def _nearer(self, mask: Bools, number: int) -> Codes:
        """Return the nearer actions of a group, by which it would be parted; none if it has one action only."""
        start, stop = self.actions.start[number], self.actions.start[number + 1]
        here = start + np.flatnonzero(mask[start:stop])
        half = 1 if here[0] == self.actions.own[number] else (len(here) + 1) // 2
        nearer: Codes = here[: half if len(here) > 1 else 0]
        return nearer


def beyond_reach(scorer: Scorer, actions: ActionTable, tolerance: float) -> bool:
    """Whether bounds prove that no candidate of a table meets the target, though scores may be off by `tolerance`."""
    if (actions.start[:-1] == actions.start[1:]).any():
        return True  # a group has no action left
    low, high = scorer.structure.bounds(actions.encoded)
    if scorer.upper_bound(low[None], high[None], tolerance)[0] < 0:
        return True
    combined = Combined.of(scorer, boxes_of(scorer.structure, actions.encoded), actions, tolerance)
    return combined is not None and bool(combined.missed(np.ones((1, len(actions.columns)), dtype=np.bool_))[0])
