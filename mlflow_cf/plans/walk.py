"""Walks of sequences of actions from one row, many at once (CSCF sections 1, 2 and 5).

Also the compilation of an action model to the arrays of kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from mlflow_cf.constraints.expressions import (
    ARITHMETIC,
    Apply,
    Const,
    Expression,
    Recoded,
    Ref,
    Size,
    Sum,
    evaluate,
    rebuilt,
    references,
)
from mlflow_cf.constraints.rules import Atom, Rule
from mlflow_cf.features import Floats
from mlflow_cf.plans import kernels
from mlflow_cf.plans.action_model import ActionModel
from mlflow_cf.plans.kernels import ActionProgram, Ends, Ints, Scratch, Sequences, walk_all
from mlflow_cf.plans.plan import Plan, PlannedStep
from mlflow_cf.plans.relations import Edge
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
            scratch = Scratch(np.empty(d), np.empty(d, dtype=np.bool_), np.empty(len(self._program.code) + 1))
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
                going[rows] = self._step(action, rows, values[rows, place], ends)
                ends.valid[rows] = going[rows]
            going &= actions[:, place] >= 0

    def _step(self, action: int, rows: Ints, values: Floats, ends: Ends) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Apply one step of the sequences `rows`, and return (m,) for which of them it was possible."""
        before = ends.states[rows]
        done = self.action_model.step(action, before, self.action_model.actions[action].outcome(before, values))
        able = rows[done.valid]
        effort = done.effort[done.valid]
        ends.cost[able] += self.rounded(effort) * done.discount[done.valid]
        ends.often[able] += self.action_model.changed(done.states, before)[done.valid]
        ends.steps[able] += 1
        ends.states[able] = done.states[done.valid]
        return done.valid

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


SIGNS: Final = {"==": kernels.EQ, "!=": kernels.NE, "<": kernels.LT, "<=": kernels.LE, ">": kernels.GT,
                ">=": kernels.GE}  # fmt: skip
OPERATIONS: Final = {"+": kernels.ADD, "-": kernels.SUB, "*": kernels.MUL, "/": kernels.DIV}
FUNCTIONS: Final = {"abs": kernels.ABS, "floor": kernels.FLOOR, "exp": kernels.EXP, "min": kernels.MIN,
                    "max": kernels.MAX}  # fmt: skip
KINDS: Final = {"change": kernels.CHANGE, "set": kernels.SET, "choose": kernels.CHOOSE}
NOTHING: Final = (-1, -1)  # the span of a part that is left out
Span = tuple[int, int]


class NotCompiledError(Exception):
    """A part of an action model that kernels cannot compute, such as a Python function."""


@dataclass
class _Writer:
    """Builds the arrays of an `ActionProgram`, as lists."""

    code: list[tuple[int, int]] = field(default_factory=list)
    number: list[float] = field(default_factory=list)
    tables: list[float] = field(default_factory=list)
    atoms: list[tuple[int, ...]] = field(default_factory=list)
    limits: list[tuple[float, float]] = field(default_factory=list)
    rules: list[Span] = field(default_factory=list)
    effects: list[tuple[int, ...]] = field(default_factory=list)
    cases: list[int] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)

    def expression(self, expression: Expression | None) -> Span:
        """Append an expression, and return its span."""
        if expression is None:
            return NOTHING
        start = len(self.code)
        self._write(rebuilt(expression, _folded))
        return start, len(self.code)

    def _write(self, expression: Expression) -> None:
        match expression:
            case Const(value):
                self._operation(kernels.CONST, number=value)
            case Ref(side, column):
                self._operation(kernels.BEFORE if side == "x" else kernels.AFTER, column)
            case Sum(sign, left, right):
                self._write(left)
                self._write(right)
                self._operation(OPERATIONS[sign])
            case Size(of):
                self._write(of)
                self._operation(kernels.ABS)
            case Recoded(of, _, _, table):
                self._write(of)
                self._operation(kernels.RECODE, len(self.tables))
                self.tables += [len(table), *table]
            case Apply(function, several):
                self._write(several[0])
                for other in several[1:]:
                    self._write(other)
                    self._operation(FUNCTIONS[function])
                if len(several) == 1:
                    self._operation(FUNCTIONS[function])
            case _:
                raise NotCompiledError

    def _operation(self, operation: int, place: int = 0, number: float = 0.0) -> None:
        self.code.append((operation, place))
        self.number.append(number)

    def conditions(self, rules: Sequence[Rule]) -> Span:
        """Append rules, and return their span."""
        start = len(self.rules)
        spans = []
        for rule in rules:
            first = len(self.atoms)
            for atom in (*rule.when, rule.then):
                self._atom(atom)
            spans.append((first, len(self.atoms)))
        self.rules += spans
        return start, len(self.rules)

    def _atom(self, atom: Atom) -> None:
        if atom.sign not in SIGNS:
            raise NotCompiledError
        left, right = self.expression(atom.left), self.expression(atom.right)
        bare = not (isinstance(atom.left, ARITHMETIC) or isinstance(atom.right, ARITHMETIC))
        self.atoms.append((SIGNS[atom.sign], *left, *right, int(bare)))
        self.limits.append((atom.unknown_from, atom.tolerance))

    def edge(self, edge: Edge) -> tuple[int, ...]:
        """Append the factor or the cases of an edge, and return its entry in `edges`."""
        if edge.factor is not None:
            return edge.to, *self.expression(edge.factor), *NOTHING
        start = len(self.cases)
        for rule, share in edge.cases:
            self.cases.append(self.conditions([rule])[0])
            self.shares.append(share)
        return edge.to, *NOTHING, start, len(self.cases)


def _folded(expression: Expression) -> Expression:
    """Return the value of an expression that mentions no row."""
    if isinstance(expression, Sum | Size | Apply) and not any(references(expression)):
        return Const(float(evaluate(expression, np.empty((1, 0)), np.empty(0))[0]))
    return expression


def compiled(action_model: ActionModel) -> ActionProgram | None:
    """Return an action model as arrays; None: it has a part that kernels cannot compute."""
    if action_model.measure.percentiles is not None and any(action.effort is None for action in action_model.actions):
        return None
    try:
        return _compiled(action_model)
    except NotCompiledError:
        return None


def _compiled(action_model: ActionModel) -> ActionProgram:
    writer, actions = _Writer(), []
    for action in action_model.actions:
        first = len(writer.effects)
        for column, effect in action.effects:
            writer.effects.append((column, *writer.expression(effect)))
        spans = (first, len(writer.effects), *writer.expression(action.effort))
        rules = writer.conditions((*action.before, *action.after))
        actions.append((action.column, KINDS[action.kind], *spans, *rules))
    relations = sorted(action_model.relations.edges, key=lambda edge: edge.to)  # those to one feature stand together
    edges = [writer.edge(edge) for edge in relations]
    features = action_model.space.features
    return ActionProgram(
        code=_ints(writer.code, 2),
        number=np.array(writer.number, dtype=np.float64),
        tables=np.array(writer.tables, dtype=np.float64),
        atoms=_ints(writer.atoms, 6),
        limits=np.array(writer.limits, dtype=np.float64).reshape(-1, 2),
        rules=_ints(writer.rules, 2),
        actions=_ints(actions, 8),
        effects=_ints(writer.effects, 3),
        edges=_ints(edges, 5),
        cases=np.array(writer.cases, dtype=np.int64),
        shares=np.array(writer.shares, dtype=np.float64),
        otherwise=np.array([edge.otherwise for edge in relations], dtype=np.float64),
        grid=np.array([(f.low, f.step or 0.0) if f.numeric else (0.0, 0.0) for f in features]),
        levels=np.array([-1 if f.numeric else len(f.known) for f in features], dtype=np.int64),
        least=action_model.least_changes,
        scale=action_model.measure.scale,
        weight=action_model.measure.weights,
        unknown_from=action_model.measure.unknown_from,
        largest=LARGEST,
    )


def _ints(rows: Sequence[tuple[int, ...]], width: int) -> Ints:
    return np.array(rows, dtype=np.int64).reshape(-1, width)
