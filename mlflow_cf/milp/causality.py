"""Causal equations as rows: a child less its function of its parents is what it was (CE-OCL section 2.1, causality)."""

from __future__ import annotations

from typing import Final

import numpy as np

from mlflow_cf.causal.additive import Additive
from mlflow_cf.causal.equation import StructuralEquation
from mlflow_cf.causal.formula import Formula
from mlflow_cf.causal.function import StructuralFunction
from mlflow_cf.milp.affine import Affine, difference, total
from mlflow_cf.milp.embed import embed
from mlflow_cf.milp.functions import embed_additive, embed_formula
from mlflow_cf.milp.program import Program
from mlflow_cf.milp.variables import Real, Variables

INSIDE: Final = 5e-7  # of a child's range: how far inside of what is allowed an answer stays, where numbers are real


def add_equation(program: Program, variables: Variables, equation: StructuralEquation) -> None:
    """Let a child follow its parents; a child that is missing stays so, and none moves while they do not.

    Raises:
        NotLinearError: rows cannot express the function.
    """
    function, x0 = equation.function, variables.problem.x0
    moves = variables.changed(function.child)
    if np.isnan(x0[function.child]):
        program.require([moves], -np.inf, 0.0)
        return
    parents = [variables.changed(parent) for parent in function.parents]
    program.require([difference(moves, total(parents))], -np.inf, 0.0)
    before = float(function.values(x0[None])[0])
    if np.isnan(before):  # nothing follows from what is undefined
        program.require(parents, -np.inf, 0.0)
        return
    wanted = value_of(program, variables, function).plus(float(x0[function.child]) - before)
    low, high = _reach(variables, equation)
    real = any(isinstance(variables.of(column), Real) for column in equation.columns)
    inside = INSIDE if real and variables.strict else 0.0
    unit = equation.width or 1.0
    rows = [difference(wanted, low).times(1.0 / unit), difference(high, wanted).times(1.0 / unit)]
    program.require(rows, inside, np.inf)


def value_of(program: Program, variables: Variables, function: StructuralFunction) -> Affine:
    """Return what a function says of the row.

    Raises:
        NotLinearError: rows cannot express it.
    """
    match function.structure:
        case Additive():
            return embed_additive(program, variables, function.parents, function.structure)
        case Formula():
            return embed_formula(program, variables, function.parents, function.structure)
        case structure:
            (value,) = embed(program, variables, structure)
            return value


def _reach(variables: Variables, equation: StructuralEquation) -> tuple[Affine, Affine]:
    """Return between which ends the function must come out for what the child becomes."""
    child = variables.of(equation.function.child)
    if not isinstance(child, Real):
        low, high = equation.reach(np.nan_to_num(child.values(equation.function.child)))
        return Affine.chosen(child.selectors, low), Affine.chosen(child.selectors, high)
    low, high = equation.reach(np.array([child.own]))  # of an own value off the grid the next ones may be far
    slack = max(equation.widest, child.own - float(low[0]), float(high[0]) - child.own)
    return child.value.plus(-slack), child.value.plus(slack)
