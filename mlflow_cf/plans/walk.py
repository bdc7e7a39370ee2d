"""Walks of sequences of actions from one row, many at once (CSCF sections 1, 2 and 5).

Also the compilation of an action model to the arrays of kernels, and the cheapest order of steps that make given
changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from mlflow_cf.constraints.expressions import Expression, differing
from mlflow_cf.constraints.programs import ProgramWriter, is_compiled
from mlflow_cf.constraints.rules import Rule
from mlflow_cf.features import Floats
from mlflow_cf.plans import kernels
from mlflow_cf.plans.action_model import ActionModel
from mlflow_cf.plans.kernels import ActionProgram, Ends, Ints, Scratch, Sequences, walk_all
from mlflow_cf.plans.plan import Plan, PlannedStep
from mlflow_cf.validation import LARGEST


@dataclass(frozen=True, eq=False)
class Walker:
    """Computes the end states and costs of sequences of actions from one row.

    Attributes:
        action_model: the possible actions; x0: (d,) where all sequences start.
        unit: efforts are rounded to multiples of it before the discount; 0: they are not.
    """

    action_model: ActionModel
    x0: Floats
    unit: float = 0.0

    def walk(self, actions: Ints, values: Floats) -> Ends:
        """Return the ends of sequences.

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
            scratch = Scratch(np.empty(d), np.empty(d, dtype=np.bool_), np.empty(len(self._program.program.does) + 1))
            walk_all(self._program, Sequences(actions, values, self.unit), scratch, ends)
        return ends

    def _walk(self, actions: Ints, values: Floats, ends: Ends) -> None:
        """Do the same without kernels, for Python functions: step by step, and in each step action by action."""
        ends.valid[:] = actions[:, 0] >= 0
        going = ends.valid.copy()
        for place in range(actions.shape[1]):
            for action in np.unique(actions[going, place]).tolist():
                if action < 0:
                    continue
                rows = np.flatnonzero(going & (actions[:, place] == action))
                before = ends.states[rows]
                outcome = self.action_model.actions[action].outcome(before, values[rows, place])
                done = self.action_model.step(action, before, outcome)
                going[rows] = ends.valid[rows] = done.valid
                able = rows[done.valid]
                ends.cost[able] += self.rounded(done.effort[done.valid]) * done.discount[done.valid]
                ends.often[able] += self.action_model.changed(done.states, before)[done.valid]
                ends.steps[able] += 1
                ends.states[able] = done.states[done.valid]
            going &= actions[:, place] >= 0

    def rounded(self, efforts: Floats) -> Floats:
        """Return efforts rounded to multiples of the unit."""
        return np.round(efforts / self.unit) * self.unit if self.unit else efforts

    def plan(self, actions: Ints, values: Floats) -> Plan:
        """Return one sequence (t,) of possible steps as a plan."""
        state, steps = self.x0[None], list[PlannedStep]()
        for number, value in zip(actions.tolist(), values.tolist(), strict=True):
            if number < 0:
                break
            action = self.action_model.actions[number]
            done = self.action_model.step(number, state, action.outcome(state, np.array([value])))
            if not done.valid[0]:
                raise ValueError(f"step {len(steps) + 1} of a plan, {action.name!r}, cannot be done")
            state = done.states
            effort, discount = float(self.rounded(done.effort)[0]), float(done.discount[0])
            steps.append(PlannedStep(action.name, effort, discount, state[0]))
        return tuple(steps)

    @cached_property
    def _program(self) -> ActionProgram | None:
        return compiled(self.action_model)


KINDS: Final = {"change": kernels.CHANGE, "set": kernels.SET, "choose": kernels.CHOOSE}
NOTHING: Final = (-1, -1)  # the span of what is not there


def compiled(action_model: ActionModel) -> ActionProgram | None:
    """Return an action model as arrays; None: it has a part that kernels cannot compute."""
    if action_model.measure.percentiles is not None and any(action.effort is None for action in action_model.actions):
        return None
    if not all(map(is_compiled, _parts(action_model))):
        return None
    writer, effects, actions, cases = ProgramWriter(), list[tuple[int, ...]](), list[tuple[int, ...]](), list[int]()
    for action in action_model.actions:
        first = len(effects)
        effects += [(column, *writer.expression(effect)) for column, effect in action.effects]
        effort = NOTHING if action.effort is None else writer.expression(action.effort)
        rules = writer.rules((*action.before, *action.after))
        actions.append((action.column, KINDS[action.kind], first, len(effects), *effort, *rules))
    edges, told = list[tuple[int, ...]](), sorted(action_model.relations.edges, key=lambda edge: edge.to)
    for edge in told:  # those to one feature are adjacent
        factor = NOTHING if edge.factor is None else writer.expression(edge.factor)
        first = len(cases)
        cases += [writer.rules([rule])[0] for rule, _ in edge.cases]
        edges.append((edge.to, *factor, first, len(cases)))
    features = action_model.space.features
    return ActionProgram(
        program=writer.program(),
        actions=_ints(actions, 8),
        effects=_ints(effects, 3),
        edges=_ints(edges, 5),
        cases=np.array(cases, dtype=np.int64),
        shares=np.array([share for edge in told for _, share in edge.cases], dtype=np.float64),
        otherwise=np.array([edge.otherwise for edge in told], dtype=np.float64),
        grid=np.array([(f.low, f.step or 0.0) if f.numeric else (0.0, 0.0) for f in features]),
        levels=np.array([-1 if f.numeric else len(f.known) for f in features], dtype=np.int64),
        least=action_model.least_changes,
        scale=action_model.measure.scale,
        weight=action_model.measure.weights,
        unknown_from=action_model.measure.unknown_from,
        largest=LARGEST,
    )


def _parts(action_model: ActionModel) -> Iterator[Rule | Expression]:
    """Yield all rules and expressions of an action model."""
    for action in action_model.actions:
        yield from (effect for _, effect in action.effects)
        yield from (*action.before, *action.after)
        if action.effort is not None:
            yield action.effort
    for edge in action_model.relations.edges:
        yield from (rule for rule, _ in edge.cases)
        if edge.factor is not None:
            yield edge.factor


def _ints(rows: Sequence[tuple[int, ...]], width: int) -> Ints:
    return np.array(rows, dtype=np.int64).reshape(-1, width)


EXACT: Final = 8  # changes up to which every order is looked at
BEAM: Final = 500  # for more changes: how many partial orders are kept, the cheapest ones


@dataclass(frozen=True, eq=False)
class PartialSequence:
    """A partial sequence: its total cost, the numbers of its actions, its steps, and the state (d,) reached."""

    cost: float
    actions: tuple[int, ...]
    steps: Plan
    state: Floats

    @property
    def rank(self) -> tuple[float, tuple[int, ...]]:
        """Sort key: the cost, then the numbers of the actions."""
        return self.cost, self.actions


def cheapest_plan(action_model: ActionModel, x0: Floats, end: Floats) -> Plan:
    """Return the steps of the cheapest sequence from x0 (d,) to `end` (d,); none if no sequence leads there.

    Changed features that no action changes get a derived action.
    """
    action_model = action_model.completed(np.flatnonzero(differing(end[None], x0)[0]).tolist())
    sequence = cheapest_order(action_model, x0, end)
    if sequence is None:
        return ()
    *steps, last = sequence.steps
    return (*steps, replace(last, row=end))  # rounding may have led next to it


def cheapest_order(action_model: ActionModel, x0: Floats, end: Floats) -> PartialSequence | None:
    """Return the cheapest sequence of actions from x0 (d,) to `end` (d,); None: no sequence leads there.

    Each step sets one feature that still differs to its final value, by an action that was not used before; features
    that an effect changes need no step. Sequences that used the same actions and are in the same state continue alike,
    so that only the cheaper one is kept (dynamic programming): for n changes there are 2^n of them, not n!.
    """
    wanted = int(differing(x0[None], end).sum())
    sequences, best = [PartialSequence(0.0, (), (), x0)], None
    while sequences:
        further: dict[tuple[frozenset[int], bytes], PartialSequence] = {}
        for number in range(len(action_model.actions)):
            unused = [sequence for sequence in sequences if number not in sequence.actions]
            for sequence in _extended(action_model, number, unused, end):
                if best is not None and sequence.rank >= best.rank:
                    continue
                if not action_model.changed(sequence.state[None], end[None]).any():
                    best = sequence
                    continue
                key = (frozenset(sequence.actions), sequence.state.tobytes())
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
    needed = action_model.changed(np.broadcast_to(end, states.shape), states, (action.column,))[:, action.column]
    needed &= action.allows(states, outcome, tolerance)
    left = np.flatnonzero(needed)
    done = action_model.step(number, states[left], outcome[left])
    found = []
    for place, at in enumerate(left.tolist()):
        if done.valid[place]:
            before, state = sequences[at], done.states[place]
            step = PlannedStep(action.name, float(done.effort[place]), float(done.discount[place]), state)
            cost = before.cost + float(done.cost[place])
            found.append(PartialSequence(cost, (*before.actions, number), (*before.steps, step), state))
    return found
