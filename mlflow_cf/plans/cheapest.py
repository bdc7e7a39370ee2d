"""The cheapest order of steps that make given changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mlflow_cf.constraints.expressions import differing
from mlflow_cf.features import Floats
from mlflow_cf.plans.action_model import ActionModel
from mlflow_cf.plans.plan import Plan, PlannedStep

EXACT: Final = 8  # changes up to which every order is looked at
BEAM: Final = 500  # for more changes: how many partial orders are kept, the cheapest ones


@dataclass(frozen=True, eq=False)
class TakenStep:
    """One step: the number of its action, its cost, and the state (d,) after it."""

    action: int
    effort: float
    discount: float
    state: Floats


@dataclass(frozen=True, eq=False)
class PartialSequence:
    """A partial sequence: the steps so far, their total cost, and the state (d,) reached."""

    cost: float
    steps: tuple[TakenStep, ...]
    state: Floats

    @property
    def rank(self) -> tuple[float, tuple[int, ...]]:
        """Sort key: the cost, then the numbers of the actions."""
        return self.cost, tuple(step.action for step in self.steps)

    @property
    def used(self) -> frozenset[int]:
        """The numbers of the actions that it has used."""
        return frozenset(step.action for step in self.steps)


def cheapest_plan(action_model: ActionModel, x0: Floats, end: Floats) -> Plan:
    """Return the steps of the cheapest sequence from x0 (d,) to `end` (d,); none if no sequence leads there.

    Changed features that no action changes get a derived action.
    """
    action_model = action_model.completed(np.flatnonzero(differing(end[None], x0)[0]).tolist())
    sequence = cheapest_order(action_model, x0, end)
    steps = () if sequence is None else sequence.steps
    rows = [*(step.state for step in steps[:-1]), end]  # rounding may have led next to it
    return tuple(
        PlannedStep(action_model.actions[step.action].name, step.effort, step.discount, row)
        for step, row in zip(steps, rows, strict=False)
    )


def cheapest_order(action_model: ActionModel, x0: Floats, end: Floats) -> PartialSequence | None:
    """Return the cheapest sequence of actions from x0 (d,) to `end` (d,); None: no sequence leads there.

    Each step sets one feature that still differs to its final value, by an action that was not used before; features
    that an effect changes need no step. Sequences that used the same actions and are in the same state continue alike,
    so that only the cheaper one is kept (dynamic programming): for n changes there are 2^n of them, not n!.
    """
    wanted = int(differing(x0[None], end).sum())
    sequences, best = [PartialSequence(0.0, (), x0)], None
    while sequences:
        further: dict[tuple[frozenset[int], bytes], PartialSequence] = {}
        for number in range(len(action_model.actions)):
            unused = [sequence for sequence in sequences if number not in sequence.used]
            for sequence in _extended(action_model, number, unused, end):
                if best is not None and sequence.rank >= best.rank:
                    continue
                if _there(action_model, sequence.state, end):
                    best = sequence
                    continue
                key = (sequence.used, sequence.state.tobytes())
                known = further.get(key)
                if known is None or sequence.rank < known.rank:
                    further[key] = sequence
        sequences = list(further.values())
        if wanted > EXACT:
            sequences = sorted(sequences, key=lambda sequence: sequence.rank)[:BEAM]
    return best


def _extended(
    action_model: ActionModel, number: int, sequences: Sequence[PartialSequence], end: Floats
) -> list[PartialSequence]:
    """Return the partial sequences with one more action."""
    action = action_model.actions[number]
    if not sequences:
        return []
    states = np.array([sequence.state for sequence in sequences])
    outcome = np.full(len(sequences), end[action.column])
    tolerance = float(action_model.least_changes[action.column])
    needed = action_model.changed(np.tile(end, (len(sequences), 1)), states, (action.column,))[:, action.column]
    needed &= action.allows(states, outcome, tolerance)
    left = np.flatnonzero(needed)
    done = action_model.step(number, states[left], outcome[left])
    return [
        PartialSequence(
            sequences[at].cost + float(done.cost[place]),
            (
                *sequences[at].steps,
                TakenStep(number, float(done.effort[place]), float(done.discount[place]), done.states[place]),
            ),
            done.states[place],
        )
        for place, at in enumerate(left.tolist())
        if done.valid[place]
    ]


def _there(action_model: ActionModel, state: Floats, end: Floats) -> bool:
    return not action_model.changed(state[None], end[None]).any()
