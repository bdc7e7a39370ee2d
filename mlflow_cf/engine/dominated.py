"""Actions and changes that no nearest answer needs.

An action is dominated if whatever takes it and meets the target meets it without this change, too. A change of a
candidate is redundant if what is left without it meets the target. Both are told from one group at a time. Bounds of a
node are blurred by what the other groups do; this difference is not, because a tree that does not ask about the group
adds nothing to it.

Where several answers are wanted, none has a redundant change. Without this rule the nearest answer would be followed by
a thousand others that each change one feature more, however little.
"""

from __future__ import annotations

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.goal.scorer import DecisionScore
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.problem.action_table import ActionTable
from mlflow_cf.structures.capabilities import Boxes, SupportsGains


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
