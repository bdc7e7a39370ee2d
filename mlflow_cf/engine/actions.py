"""The actions that a search looks at: those that rules allow; of those that a model cannot tell apart the nearest.

Others are left out because no nearest answer needs them. An action is dominated if whatever takes it and meets the
target meets it without this change, too. A change of a candidate is redundant if what is left without it meets the
target. Both are told from one group at a time. Bounds of a node are blurred by what the other groups do; this
difference is not, because a tree that does not ask about the group adds nothing to it.

Where several answers are wanted, none has a redundant change. Without this rule the nearest answer would be followed by
a thousand others that each change one feature more, however little.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.goal.decision import DecisionScore
from mlflow_cf.kernel import kernel
from mlflow_cf.problem import Codes, Group, Problem
from mlflow_cf.problem.actions import ActionTable
from mlflow_cf.rounding import loose
from mlflow_cf.structures.capabilities import Boxes, SupportsGains
from mlflow_cf.structures.structure import Encoded

Array = NDArray[Any]


def lawful_actions(problem: Problem) -> Codes:
    """Return the actions of all groups that the rules allow, ascending."""
    return np.flatnonzero(_allowed(problem))


def _allowed(problem: Problem) -> Bools:
    """Return (t,) which of the actions of all groups the rules allow."""
    actions = problem.actions
    allowed: Bools = np.ones(len(actions.cost), dtype=np.bool_)
    allowed[actions.own] = problem.own_allowed
    return allowed


def distinct_actions(problem: Problem) -> Codes:
    """Return the actions of all groups that are worth looking at, ascending.

    Of the actions of a single feature in one cell of the model the nearest stands for all, unless rules over several
    groups speak of the feature: whatever accepts another one accepts the nearest too.
    """
    kept = _allowed(problem)
    if problem.scorer is None:
        return np.flatnonzero(kept)
    cells, ascending = np.zeros(len(kept), dtype=np.int64), np.zeros(len(problem.groups), dtype=np.bool_)
    tables, linked, in_order = problem.encoded_tables, problem.linked, _in_order(problem)
    start = problem.actions.start
    for number, columns in enumerate(problem.columns):
        known = tables[columns[0]]
        if number in linked or len(columns) > 1 or known.ndim > 1 or len(known) < 3:
            continue
        part = slice(start[number], start[number + 1])
        if known.dtype.kind == "i" and in_order[columns[0]]:
            cells[part], ascending[number] = known, True
        elif len(set(known.tolist())) < len(known):
            kept[part] &= _unbeaten(problem.groups[number], known, problem.bound_distance.c)
    drop_beaten(cells, start, problem.own, ascending, kept)
    return np.flatnonzero(kept)


def _in_order(problem: Problem) -> list[bool]:
    """Return of every column whether its values cost more the farther they are from the row's own in their order."""
    distance = problem.bound_distance
    if not distance.b or distance.percentiles is not None:
        return [False] * len(problem.space)
    ranked: list[bool] = ((distance.scale > 0) & (problem.x0 < distance.unknown_from)).tolist()
    return ranked


@kernel
def drop_beaten(cells: Array, start: Array, own: Array, ascending: Array, kept: Array) -> None:
    """Unmark those `kept` (t,) of groups in ascending order that have one in their cell which is nearer to the own one.

    The own one is nearer than all others, if it is kept.
    """
    for group in range(own.size):
        if not ascending[group]:
            continue
        first, last = start[group], start[group + 1] - 1
        middle = first + own[group]
        stays = kept[middle]
        for at in range(first, middle):
            if cells[at] == cells[at + 1] and (at + 1 < middle or stays):
                kept[at] = False
        for at in range(last, middle, -1):
            if cells[at] == cells[at - 1] and (at - 1 > middle or stays):
                kept[at] = False


def _unbeaten(group: Group, cells: Encoded, c: float) -> Bools:
    """Return which actions (t,) may be in the least key of a box among those of their cell (t,).

    That is the nearest one. Of those that add as much to the sum, a smaller code may also win, where another group has
    the largest change; but never against the row's own action, which is no change.
    """
    allowed = np.flatnonzero(group.own_allowed | (np.arange(len(cells)) != group.own))
    top = group.peak[allowed] if c else np.zeros(len(allowed))
    nearest = allowed[np.lexsort((allowed, allowed != group.own, top, group.cost[allowed]))]
    _, first, cell = np.unique(cells[nearest], return_index=True, return_inverse=True)
    kept = np.zeros(len(nearest), dtype=np.bool_)
    kept[first] = True
    if c > 0:
        rank = np.where(nearest == group.own, -1, nearest)
        least = rank[first]
        equal = group.cost[nearest] == group.cost[nearest[first]][cell]
        for at in np.flatnonzero(equal & (rank < least[cell])).tolist():
            kept[at] |= rank[at] < least[cell[at]]
            least[cell[at]] = min(least[cell[at]], rank[at])
    unbeaten = np.zeros(len(cells), dtype=np.bool_)
    unbeaten[nearest[kept]] = True
    return unbeaten


def actions_within(problem: Problem, ids: Codes, limit: float) -> ActionTable:
    """Return those of some actions that a candidate no farther than `limit` may take, nearest first within each group.

    Beside an action, all other groups cost at least their least.
    """
    actions, some = problem.actions, problem.actions.take(ids)
    groups, costs = some.group, some.cost
    least = np.full(len(problem.groups), np.inf)
    np.minimum.at(least, groups, costs)
    rest = least.sum() - least if np.isfinite(least).all() else np.full(len(least), np.inf)
    stays = ids == actions.own[groups]
    near = stays | (rest[groups] + costs <= loose(limit))
    ids, groups, costs, stays = ids[near], groups[near], costs[near], stays[near]
    top = some.peak[near] if problem.bound_distance.c else np.zeros(len(ids))
    return actions.take(ids[np.lexsort((ids, ~stays, top, costs, groups))])


def undoable(problem: Problem, actions: ActionTable) -> Bools:
    """Return (G,) the groups whose changes may be put back: no rule minds, and the row's own values are an action."""
    lawful = [group.own_allowed and number not in problem.linked for number, group in enumerate(problem.groups)]
    return np.array(lawful) & (actions.own >= 0)


class DominatedActions:
    """Tells which actions of boxes are dominated."""

    def __init__(self, problem: Problem, actions: ActionTable, boxes: Boxes | None, tolerance: float) -> None:
        """Set up for boxes of `actions`, bounded by `boxes`; scores may be off by `tolerance`."""
        self.actions = actions
        self._boxes = boxes if isinstance(boxes, SupportsGains) else None
        alone = undoable(problem, actions) & [len(columns) == 1 for columns in problem.columns]
        self._lead: DecisionScore | None = None
        if self._boxes is not None and problem.scorer is not None and alone.any():
            self._lead = problem.scorer.decision_score(tolerance)
        place = np.empty(len(actions.columns), dtype=np.intp)  # of actions, column after column
        place[actions.columns] = np.arange(len(place))
        self._own: Codes = np.where(alone, place[actions.own], -1)[problem.owner]
        changes = alone[actions.group]
        changes[actions.own[alone]] = False
        self._changes: Bools = changes[actions.columns]

    def dropped(self, box: Bools) -> Bools:
        """Return a box (actions,) without its dominated actions; the same where nothing is known."""
        if self._lead is None or self._boxes is None:
            return box
        columns = self.actions.columns
        mask = box[columns]
        gains = self._boxes.gains(mask, self._own, self._lead.weights)
        dominated = self._changes & mask & (gains >= self._lead.step)
        if not dominated.any():
            return box
        left = box.copy()
        left[columns[dominated]] = False
        return left


class RedundantChanges:
    """Tells which changes of candidates are certainly redundant."""

    def __init__(self, problem: Problem, actions: ActionTable, tolerance: float) -> None:
        """Set up for boxes of `actions`; scores may be off by `tolerance`."""
        self.problem, self.actions, self.tolerance = problem, actions, tolerance
        self.free = undoable(problem, actions)

    def stays(self, box: Bools) -> Bools:
        """Return (G,) which groups a box (actions,) allows to stay as they are."""
        own = self.actions.own
        return (own >= 0) & box[own]

    def back(self, box: Bools) -> Codes:
        """Return the groups that all candidates of a box (actions,) change beside another one, and may put back."""
        changed = ~self.stays(box)
        back: Codes = np.flatnonzero(changed & self.free) if changed.sum() > 1 else np.empty(0, dtype=np.intp)
        return back

    def optional(self, box: Bools) -> Bools:
        """Return (G,) the groups that some candidates of a box (actions,) change beside another one that all change."""
        stays = self.stays(box)
        return stays & self.free & (not stays.all())

    def of(self, codes: Codes, checked: Bools) -> Bools:
        """Return (m,) which candidates (m, G) have a certainly redundant change of a group not `checked` (G,) yet."""
        found = np.zeros(len(codes), dtype=np.bool_)
        if self.problem.scorer is None or not (codes != self.problem.own)[:, ~checked].any():
            return found
        owner, undone = self.problem.undone_codes(codes)
        held = self.problem.held(undone) & ((undone != codes[owner]) & ~checked).any(axis=1)
        owner, undone = owner[held], undone[held]
        if len(owner):
            scorer = self.problem.scorer
            _, sure = scorer.decisions(scorer.structure.sums(self.problem.encoded(undone)), self.tolerance)
            found[owner[sure]] = True
        return found
