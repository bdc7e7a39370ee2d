"""All single changes of a row with their raw scores: by a sweep of the opened model, joint groups row by row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine.thresholds import SWEPT
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.problem.actions import ActionTable

AT_ONCE: Final = 2**20  # codes of candidates that are made together: 8 MB


def lawful_alone(problem: Problem, actions: ActionTable) -> Bools:
    """Return (t,) which actions are changes that the rules allow while everything else stays as it is."""
    changed = np.full(len(actions.cost), not problem.never)
    changed[actions.own[actions.own >= 0]] = False
    forced = np.flatnonzero(~problem.own_allowed)
    if len(forced):  # the row's own values of these groups break a rule
        changed &= (actions.group == forced[0]) & (len(forced) == 1)
    if problem.linked or problem.limits:
        some, size = np.flatnonzero(changed), max(AT_ONCE // len(problem.groups), 1)
        for start in range(0, len(some), size):
            part = some[start : start + size]
            changed[part] = problem.held(actions.candidates(part[:, None]))
    return changed


@dataclass(frozen=True, eq=False)
class SweptChanges:
    """The candidates of one change.

    Attributes:
        problem, scorer: what decides about them.
        actions: the table whose actions are tried.
    """

    problem: Problem
    scorer: Scorer
    actions: ActionTable

    @cached_property
    def lawful(self) -> Bools:
        """(t,) which actions are lawful changes."""
        return lawful_alone(self.problem, self.actions)

    @cached_property
    def sums(self) -> Floats:
        """(t, k) raw scores of the row with each action alone; of groups whose own action is the only one, anything."""
        problem, actions, structure = self.problem, self.actions, self.scorer.structure
        sums = np.zeros((len(actions.cost), structure.outputs))
        swept_groups = [
            len(columns) == 1 and (own < 0 or start + 1 < end)
            for columns, own, start, end in zip(
                problem.columns, actions.own, actions.start[:-1], actions.start[1:], strict=True
            )
        ]
        encoded = zip(actions.encoded, problem.owner.tolist(), strict=True)
        values = [column if swept_groups[number] else None for column, number in encoded]
        swept = structure.sweep(problem.encoded_row, values)
        for number, found in zip(problem.owner.tolist(), swept, strict=True):
            if found is not None:
                sums[actions.start[number] : actions.start[number + 1]] = found[0]
        for number, columns in enumerate(problem.columns):
            if len(columns) > 1:
                part = np.arange(actions.start[number], actions.start[number + 1])
                codes = actions.candidates(part[:, None])
                sums[part] = structure.sums(problem.encoded(codes)) if len(part) else sums[part]
        return sums

    def decisions(self, tolerance: float) -> tuple[Bools, Bools]:
        """Return (t,) which lawful changes may meet the target, and which certainly do."""
        some = np.flatnonzero(self.lawful)
        may, sure = np.zeros((2, len(self.lawful)), dtype=np.bool_)
        may[some], sure[some] = self.scorer.decisions(self.sums[some], tolerance + SWEPT)
        return may, sure

    def codes(self, places: Codes) -> Codes:
        """Return the candidates (m, G) that take the actions at `places` (m,)."""
        return self.actions.candidates(places[:, None])
