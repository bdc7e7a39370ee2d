"""Causal equations as rows: a child less its function of its parents is what it was (CE-OCL section 2.1, causality)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mlflow_cf.causal.additive import Additive
from mlflow_cf.causal.equation import StructuralEquation
from mlflow_cf.causal.formula import Formula, bends
from mlflow_cf.causal.function import StructuralFunction
from mlflow_cf.constraints.rules import Rule
from mlflow_cf.constraints.expressions import Computed, differing
from mlflow_cf.features import Floats
from mlflow_cf.milp.affine import Affine, difference, total
from mlflow_cf.milp.embed import check_linear, embed
from mlflow_cf.milp.errors import NotLinearError
from mlflow_cf.milp.functions import embed_additive, embed_formula
from mlflow_cf.milp.program import Program
from mlflow_cf.milp.variables import Real, Variables
from mlflow_cf.problem import Problem

INSIDE: Final = 5e-7  # of a child's range: how far inside of what is allowed an answer stays, where numbers are real


def add_equation(program: Program, variables: Variables, equation: StructuralEquation) -> bool:
    """Let a child follow its parents; a child that is missing stays so, and none moves while they do not.

    Returns:
        Whether the rows say exactly that, and not nearly.

    Raises:
        NotLinearError: rows cannot express the function.
    """
    function, x0 = equation.function, variables.problem.x0
    moves = variables.changed(function.child)
    if np.isnan(x0[function.child]):
        program.require([moves], -np.inf, 0.0)
        return True
    parents = [variables.changed(parent) for parent in function.parents]
    program.require([difference(moves, total(parents))], -np.inf, 0.0)
    before = float(function.values(x0[None])[0])
    if np.isnan(before):  # nothing follows from what is undefined
        program.require(parents, -np.inf, 0.0)
        return True
    value, exact = value_of(program, variables, function)
    wanted = value.plus(float(x0[function.child]) - before)
    low, high = _reach(variables, equation)
    real = any(isinstance(variables.of(column), Real) for column in equation.columns)
    inside = INSIDE if real and variables.strict else 0.0
    unit = equation.width or 1.0
    rows = [difference(wanted, low).times(1.0 / unit), difference(high, wanted).times(1.0 / unit)]
    program.require(rows, inside, np.inf)
    return exact


def value_of(program: Program, variables: Variables, function: StructuralFunction) -> tuple[Affine, bool]:
    """Return what a function says of the row, and whether that is exact.

    Raises:
        NotLinearError: rows cannot express it.
    """
    match function.structure:
        case Additive():
            return embed_additive(program, variables, function.parents, function.structure), True
        case Formula():
            return embed_formula(program, variables, function.parents, function.structure)
        case structure:
            (value,) = embed(program, variables, structure)
            return value, True


def _reach(variables: Variables, equation: StructuralEquation) -> tuple[Affine, Affine]:
    """Return between which ends the function must come out for what the child becomes."""
    child = variables.of(equation.function.child)
    if not isinstance(child, Real):
        low, high = equation.reach(np.nan_to_num(child.values(equation.function.child)))
        return Affine.chosen(child.selectors, low), Affine.chosen(child.selectors, high)
    low, high = equation.reach(np.array([child.own]))  # of an own value off the grid the next ones may be far
    slack = max(equation.widest, child.own - float(low[0]), float(high[0]) - child.own)
    return child.value.plus(-slack), child.value.plus(slack)


def bending(problem: Problem) -> str:
    """Return in words what in a causal function of numbers that take any value is no straight line; empty: nothing."""
    for joint in problem.joint_rules:
        left = joint.rule.then.left
        if isinstance(left, Computed) and isinstance(left.by, StructuralEquation):
            function = left.by.function
            groups = [problem.groups[int(problem.owner[parent])] for parent in function.parents]
            if any(group.interval is not None for group in groups) and (what := _bend(function)):
                return what
    return ""


def _bend(function: StructuralFunction) -> str:
    match function.structure:
        case Additive():
            return ""
        case Formula():
            return next(bends(function.structure.expression), "")
        case structure:
            try:
                check_linear(structure)
            except NotLinearError as error:
                return str(error)
            return ""


def followed(problem: Problem, rules: Sequence[Rule], row: Floats) -> Floats:
    """Return a row (d,) whose children have what their equations among `rules` say exactly, or the nearest to it."""
    row, x0 = row.copy(), problem.x0
    equations = [rule.then.left.by for rule in rules if isinstance(rule.then.left, Computed)]
    for _ in equations:  # a child may be a parent of another one
        for equation in equations:
            if isinstance(equation, StructuralEquation):
                _put(equation, row, x0)
    return row


def _put(equation: StructuralEquation, row: Floats, x0: Floats) -> None:
    """Move the child of an equation to where its parents say."""
    child, parents, known = equation.function.child, list(equation.function.parents), equation.admissible
    if not differing(row[None], x0)[0, parents].any() or np.isnan(x0[child]):
        row[child] = x0[child]
        return
    values = equation.function.values(np.array([row, x0]))
    wanted = x0[child] + values[0] - values[1]
    if np.isfinite(wanted):
        row[child] = wanted if known is None or not len(known) else known[np.abs(known - wanted).argmin()]
