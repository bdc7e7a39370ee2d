"""Choices that lose: whatever takes one of them and meets the target certainly meets it without this change, too.

Other than the bounds of a box, such a difference is not blurred by what the other groups do: a tree that does not ask
about the group adds nothing to it. Boxes that are neither missed nor met by their bounds lose most of their choices.
"""

from __future__ import annotations

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.problem.lead import Lead
from mlflow_cf.search.choices import Choices
from mlflow_cf.structures.structure import Boxes


def undoable(problem: Problem, choices: Choices) -> Bools:
    """Return (G,) the groups whose changes may be put back: no rule minds, and the row's own tuple is a choice."""
    lawful = [group.own_allowed and number not in problem.linked for number, group in enumerate(problem.groups)]
    return np.array(lawful) & (choices.own >= 0)


class Losing:
    """Tells which choices of boxes lose."""

    def __init__(self, problem: Problem, choices: Choices, boxes: Boxes | None, doubt: float) -> None:
        """Set up for boxes of `choices`, bounded by `boxes`; scores may be off by `doubt`."""
        self.choices, self._boxes = choices, boxes
        alone = undoable(problem, choices) & [len(columns) == 1 for columns in problem.columns]
        self._lead: Lead | None = None
        if boxes is not None and problem.rater is not None and alone.any():
            self._lead = problem.rater.lead(doubt)
        place = np.empty(len(choices.columns), dtype=np.intp)  # of choices, column after column
        place[choices.columns] = np.arange(len(place))
        self._own: Codes = np.where(alone, place[choices.own], -1)[problem.owner]
        changes = alone[choices.group]
        changes[choices.own[alone]] = False
        self._changes: Bools = changes[choices.columns]

    def dropped(self, box: Bools) -> Bools:
        """Return a box (choices,) without the choices that lose; the same where nothing is known."""
        if self._lead is None or self._boxes is None:
            return box
        columns = self.choices.columns
        mask = box[columns]
        gains = self._boxes.gains(mask, self._own, self._lead.weights)
        if gains is None:
            return box
        loses = self._changes & mask & (gains >= self._lead.step)
        if not loses.any():
            return box
        left = box.copy()
        left[columns[loses]] = False
        return left
