"""Rules and causal equations as linear constraints of a program.

A rule over several groups with few actions is tabulated: each combination of actions of all groups but one allows some
actions of the last one. Any other rule is ``IF P THEN Q`` over linear comparisons, with a binary column for each. What
is neither is left out, and answers that break it are cut off. The difference of a causal child and its function of the
parents keeps its value (CE-OCL section 2.1, causality).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mlflow_cf.causal.equation import StructuralEquation
from mlflow_cf.causal.forms import Additive, CausalFormula, bends
from mlflow_cf.causal.function import StructuralFunction
from mlflow_cf.constraints.expressions import Apply, Computed, Const, Expression, Recoded, Ref
from mlflow_cf.constraints.rules import Atom, Bools, Rule
from mlflow_cf.milp.embed import check_linear, embed
from mlflow_cf.milp.functions import embed_additive, embed_formula
from mlflow_cf.milp.program import Affine, NotLinearError, Program, difference, total
from mlflow_cf.milp.variables import NOTHING, Chosen, Real, Variables
from mlflow_cf.problem import Problem
from mlflow_cf.problem.points import bounds_only
from mlflow_cf.words.statements import say

STRICT_SUM: Final = 1e-6  # of the width of a sum of selected values: by how much it is above, where "more than" counts


def add_rules(program: Program, variables: Variables) -> tuple[Rule, ...]:
    """Add the rules of a problem, and return those that linear constraints cannot express."""
    problem, left_out = variables.problem, []
    for joint in problem.joint_rules:
        numbers = any(isinstance(variables.of(column), Real) for column in joint.rule.columns("x_cf"))
        if joint.table is not None and not numbers:
            _add_table(program, variables, joint.groups, joint.table)
        elif not _add_rule(program, variables, joint.rule):
            left_out.append(joint.rule)
    for group, variable in zip(problem.groups, variables.groups, strict=True):
        if isinstance(variable, Real):
            every = [rule for rule in group.rules if not bounds_only(problem, rule, variable.column)]
            left_out += [rule for rule in every if not _add_rule(program, variables, rule)]
    return tuple(left_out)


def _add_table(program: Program, variables: Variables, groups: Sequence[int], table: Bools) -> None:
    """Add a rule by a table that says whether it holds for every combination of actions of some groups."""
    chosen = [variable for number in groups if isinstance(variable := variables.groups[number], Chosen)]
    if not chosen:
        program.require([NOTHING], -np.inf, 0.0 if bool(table) else -1.0)
        return
    table = table[np.ix_(*(variable.codes for variable in chosen))]
    last = int(np.argmax(table.shape))
    table = np.moveaxis(table, last, -1)
    others = [variable for at, variable in enumerate(chosen) if at != last]
    combinations = table.reshape(-1, table.shape[-1])
    broken = np.flatnonzero(~combinations.all(axis=1))
    places = np.unravel_index(broken, table.shape[:-1]) if others else ()
    parts = []
    for at, allowed in enumerate(combinations[broken]):
        heads = [variable.selectors[place[at]] for variable, place in zip(others, places, strict=True)]
        tails = chosen[last].selectors[allowed]
        signs = np.append(np.ones(len(heads)), -np.ones(len(tails)))
        parts.append(Affine(np.append(heads, tails).astype(np.intp), signs, 0.0, -1.0, float(len(heads))))
    program.require(parts, -np.inf, float(len(others)) - 1.0)


def _add_rule(program: Program, variables: Variables, rule: Rule) -> bool:
    """Add a rule as linear constraints, and return whether they express it exactly."""
    left = rule.then.left
    try:
        if isinstance(left, Computed) and isinstance(left.by, StructuralEquation):
            return add_equation(program, variables, left.by)
        conditions = [_linear_comparison(variables, atom) for atom in rule.when]
        then = _linear_comparison(variables, rule.then)
    except NotLinearError:
        return False
    broken: list[Affine] = []
    for condition in conditions:
        holds = program.add_binary()
        condition.require_unless(program, holds)
        broken.append(holds.times(-1.0).plus(1.0))
    then.require(program, total(broken))
    return True


@dataclass(frozen=True, eq=False)
class LinearComparison:
    """A comparison of a linear expression with 0.

    Attributes:
        line: the expression; sign: of the comparison, one of ``== != <= <``.
        strict: the least distance of the expression from 0 where it is not 0.
    """

    line: Affine
    sign: str
    strict: float

    def require(self, program: Program, loose: Affine) -> None:
        """Require the comparison where `loose` is 0; where `loose` is 1 or more, it need not hold."""
        if self.sign == "!=":  # on either side of 0
            above = program.add_binary()
            self._at_most(program, self.line, -self.strict, total([loose, above]))
            self._at_most(program, self.line.times(-1.0), -self.strict, total([loose, above.times(-1.0).plus(1.0)]))
            return
        most = -self.strict if self.sign == "<" else 0.0
        self._at_most(program, self.line, most, loose)
        if self.sign == "==":
            self._at_most(program, self.line.times(-1.0), 0.0, loose)

    def require_unless(self, program: Program, holds: Affine) -> None:
        """Require that the comparison is false where `holds` is 0."""
        sign = {"<=": "<", "<": "<=", "!=": "==", "==": "!="}[self.sign]
        line = self.line.times(-1.0) if sign in ("<", "<=") else self.line
        LinearComparison(line, sign, self.strict).require(program, holds)

    @staticmethod
    def _at_most(program: Program, line: Affine, most: float, loose: Affine) -> None:
        slack = line.high - most
        if slack > 0:
            unit = max(line.high - line.low, 1e-300)
            row = difference(line, loose.times(slack)).times(1.0 / unit)
            program.require([row], -np.inf, most / unit)


def _linear_comparison(variables: Variables, atom: Atom) -> LinearComparison:
    """Return an atom of a rule as a linear comparison.

    Raises:
        NotLinearError: it is not linear, or a value in it may be missing or without a rank.
    """
    _check_known(variables, atom)
    left, x0 = atom.left, variables.problem.x0
    if isinstance(left, Ref) and (atom.sign == "in" or isinstance(atom.right, Const)):
        variable = variables.of(left.column)
        if isinstance(variable, Chosen):  # by its selectors
            rows = np.tile(x0, (len(variable.codes), 1))
            rows[:, left.column] = variable.values(left.column)
            return LinearComparison(variable.where(atom.holds(rows, x0)).times(-1.0).plus(1.0), "<=", 0.5)
    if atom.sign == "in":
        raise NotLinearError(say("membership"))
    line = difference(_linear(variables, atom.left), _linear(variables, atom.right))
    if atom.sign in (">", ">="):
        line = line.times(-1.0)
    if atom.tolerance and atom.sign == "==":
        raise NotLinearError(say("near_equality"))
    touched = [variables.of(column) for column in atom.columns("x_cf")]
    real = any(isinstance(variable, Real) for variable in touched)
    strict = (line.high - line.low) * (variables.strict if real or not variables.strict else STRICT_SUM)
    signs = {">": "<", ">=": "<="}
    return LinearComparison(line, signs.get(atom.sign, atom.sign), strict)


def _check_known(variables: Variables, atom: Atom) -> None:
    """Refuse an atom with a value that may be missing or without a rank: comparisons treat these in their own way."""
    x0 = variables.problem.x0
    for column in atom.columns("x_cf"):
        variable = variables.of(column)
        known = np.array([x0[column]]) if isinstance(variable, Real) else variable.values(column)
        if np.isnan(known).any() or (known >= atom.unknown_from).any():
            raise NotLinearError(say("value_without_rank"))
    for part in (atom.left, atom.right):
        if isinstance(part, Const) and not part.value < atom.unknown_from:
            raise NotLinearError(say("bound_without_rank"))


def _linear(variables: Variables, expression: Expression) -> Affine:
    """Return an expression over the counterfactual as an affine one.

    Raises:
        NotLinearError: it is not linear.
    """
    match expression:
        case Const(value):
            return Affine.of(value)
        case Ref("x_cf", column):
            return variables.value(column)
        case Recoded(Ref("x_cf", column), _, _, table):
            variable = variables.of(column)
            if isinstance(variable, Real) or not np.isfinite(table).all():
                raise NotLinearError(say("other_levels"))
            return Affine.chosen(variable.selectors, np.array(table)[variable.values(column).astype(np.intp)])
        case Apply("+" | "-" | "*" | "/" as sign, (left, right)):
            return _combined(sign, _linear(variables, left), _linear(variables, right))
    raise NotLinearError(say("absolute"))


def _combined(sign: str, left: Affine, right: Affine) -> Affine:
    match sign:
        case "+":
            return total([left, right])
        case "-":
            return difference(left, right)
        case "*" if right.fixed:
            return left.times(right.constant)
        case "*" if left.fixed:
            return right.times(left.constant)
        case "/" if right.fixed and right.constant:
            return left.times(1.0 / right.constant)
    raise NotLinearError(say("product_of_changes"))


INSIDE: Final = 5e-7  # of a child's range: how far inside the tolerance answers stay, where numbers are real


def add_equation(program: Program, variables: Variables, equation: StructuralEquation) -> bool:
    """Require that a child follows its parents; a missing child stays missing, and none changes while its parents stay.

    Returns:
        Whether the constraints are exact, and no approximation.

    Raises:
        NotLinearError: linear constraints cannot express the function.
    """
    function, x0 = equation.function, variables.problem.x0
    moves = variables.changed(function.child)
    if np.isnan(x0[function.child]):
        program.require([moves], -np.inf, 0.0)
        return True
    parents = [variables.changed(parent) for parent in function.parents]
    program.require([difference(moves, total(parents))], -np.inf, 0.0)
    before = float(function.values(x0[None])[0])
    if np.isnan(before):  # an undefined value does not determine the child
        program.require(parents, -np.inf, 0.0)
        return True
    value, exact = value_of(program, variables, function)
    wanted = value.plus(float(x0[function.child]) - before)
    low, high = _function_range(variables, equation)
    real = any(isinstance(variables.of(column), Real) for column in equation.columns)
    inside = INSIDE if real and variables.strict else 0.0
    unit = equation.width or 1.0
    rows = [difference(wanted, low).times(1.0 / unit), difference(high, wanted).times(1.0 / unit)]
    program.require(rows, inside, np.inf)
    return exact


def value_of(program: Program, variables: Variables, function: StructuralFunction) -> tuple[Affine, bool]:
    """Return the value of a causal function as an expression, and whether that is exact.

    Raises:
        NotLinearError: linear constraints cannot express it.
    """
    match function.structure:
        case Additive():
            return embed_additive(program, variables, function.parents, function.structure), True
        case CausalFormula():
            return embed_formula(program, variables, function.parents, function.structure)
        case structure:
            (value,) = embed(program, variables, structure)
            return value, True


def _function_range(variables: Variables, equation: StructuralEquation) -> tuple[Affine, Affine]:
    """Return the least and the largest value that the function may have for the child's new value."""
    child = variables.of(equation.function.child)
    if not isinstance(child, Real):
        low, high = equation.allowed_range(np.nan_to_num(child.values(equation.function.child)))
        return Affine.chosen(child.selectors, low), Affine.chosen(child.selectors, high)
    low, high = equation.allowed_range(np.array([child.own]))  # of an own value off the grid the next ones may be far
    slack = max(equation.widest, child.own - float(low[0]), float(high[0]) - child.own)
    return child.value.plus(-slack), child.value.plus(slack)


def bending(problem: Problem) -> str:
    """Return in words what is not piecewise linear in causal functions of continuous numbers; empty if nothing is."""
    for joint in problem.joint_rules:
        left = joint.rule.then.left
        if isinstance(left, Computed) and isinstance(left.by, StructuralEquation):
            function = left.by.function
            groups = [problem.groups[int(problem.owner[parent])] for parent in function.parents]
            if any(group.interval is not None for group in groups) and (what := _nonlinear_part(function)):
                return what
    return ""


def _nonlinear_part(function: StructuralFunction) -> str:
    match function.structure:
        case Additive():
            return ""
        case CausalFormula():
            return next(bends(function.structure.expression), "")
        case structure:
            try:
                check_linear(structure)
            except NotLinearError as error:
                return error.what
            return ""
