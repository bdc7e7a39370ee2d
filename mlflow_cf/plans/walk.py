"""Sequences of actions followed from one row, all of them together (CSCF sections 1, 2 and 5)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.plans.compiled import compiled
from mlflow_cf.plans.course import Course
from mlflow_cf.plans.kernels import Ends, Ints, Program, Scratch, Sequences, walk_all
from mlflow_cf.plans.plan import Plan, PlannedStep


@dataclass(frozen=True, eq=False)
class Walker:
    """Follows sequences of a course's actions from one row.

    Attributes:
        course: what can be done; x0: (d,) where all sequences start.
        unit: efforts are rounded to multiples of it before the discount; 0: they are not.
    """

    course: Course
    x0: Floats
    unit: float = 0.0

    def walk(self, actions: Ints, values: Floats) -> Ends:
        """Follow sequences.

        Args:
            actions: (m, t) numbers of the actions, -1 where there is no more.
            values: (m, t) the value of each: what is added, set or chosen, in codes.
        """
        m, d = len(actions), len(self.x0)
        ends = Ends(
            np.tile(self.x0, (m, 1)),
            np.zeros(m),
            np.zeros((m, d), dtype=np.int64),
            np.zeros(m, dtype=np.int64),
            np.zeros(m, dtype=np.bool_),
        )
        if self._program is None:
            self._walk(actions, values, ends)
        elif m:
            scratch = Scratch(np.empty(d), np.empty(d, dtype=np.bool_), np.empty(len(self._program.code) + 1))
            walk_all(self._program, Sequences(actions, values, self.unit), scratch, ends)
        return ends

    def _walk(self, actions: Ints, values: Floats, ends: Ends) -> None:
        """Do the same with the course itself, which knows functions: place by place, and there action by action."""
        ends.valid[:] = actions[:, 0] >= 0
        going = ends.valid.copy()
        for place in range(actions.shape[1]):
            for action in np.unique(actions[going, place]).tolist():
                if action < 0:
                    continue
                rows = np.flatnonzero(going & (actions[:, place] == action))
                going[rows] = self._step(action, rows, values[rows, place], ends)
                ends.valid[rows] = going[rows]
            going &= actions[:, place] >= 0

    def _step(self, action: int, rows: Ints, values: Floats, ends: Ends) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Let some rows take a step, and return (m,) which of them could."""
        before = ends.states[rows]
        done = self.course.step(action, before, self.course.actions[action].outcome(before, values))
        able = rows[done.valid]
        effort = done.effort[done.valid]
        ends.cost[able] += self.rounded(effort) * done.discount[done.valid]
        ends.often[able] += self.course.changed(done.states, before)[done.valid]
        ends.steps[able] += 1
        ends.states[able] = done.states[done.valid]
        return done.valid

    def rounded(self, efforts: Floats) -> Floats:
        """Return efforts as they count."""
        return np.round(efforts / self.unit) * self.unit if self.unit else efforts

    def plan(self, actions: Ints, values: Floats) -> Plan:
        """Return one sequence (t,) as a plan; its steps must be possible."""
        state, steps = self.x0[None], list[PlannedStep]()
        for number, value in zip(actions.tolist(), values.tolist(), strict=True):
            if number < 0:
                break
            action = self.course.actions[number]
            done = self.course.step(number, state, action.outcome(state, np.array([value])))
            if not done.valid[0]:
                raise ValueError(f"step {len(steps) + 1} of a plan, {action.name!r}, cannot be done")
            state = done.states
            effort, discount = float(self.rounded(done.effort)[0]), float(done.discount[0])
            steps.append(PlannedStep(action.name, effort, discount, state[0]))
        return tuple(steps)

    @cached_property
    def _program(self) -> Program | None:
        return compiled(self.course)
