"""Formulas of causal equations: PLAF texts as expressions over the parents."""

from __future__ import annotations

from typing import Final

from mlflow_cf.constraints.equations import CausalEquation
from mlflow_cf.constraints.expressions import Apply, Const, Expression, Ref, Sum
from mlflow_cf.constraints.resolve import check_sides
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.features import Feature, FeatureSpace
from mlflow_cf.plaf import Call, Constant, Node, Operation, Reference, nodes_of, parse_expression

ROW: Final = ("x",)  # the one row that formulas mention


def formula_of(equation: CausalEquation, text: str, space: FeatureSpace, path: str) -> Expression:
    """Return a formula as an expression whose columns are the positions of an equation's parents.

    A date counts as days since 1970, and a boolean as 1 where it is true.

    Raises:
        InputError: text that is no formula, mentions other features or not all parents, or calculates with levels.
    """
    node = parse_expression(text, path)
    check_sides(node, ROW, path)
    named = [part.feature for part in nodes_of(node) if isinstance(part, Reference)]
    for name in named:
        if name not in equation.parents:
            raise InputError(
                path, f"{name[:60]!r} is not one of its parents", did_you_mean(name, equation.parents, "parents")
            )
    for name in equation.parents:
        if name not in named:
            raise InputError(path, f"does not mention the parent {name!r}", "leave it out of parents")
    return _expression(node, equation, space, path)


def _expression(node: Node, equation: CausalEquation, space: FeatureSpace, path: str) -> Expression:
    match node:
        case Constant(float(value)):
            return Const(value)
        case Constant(value):
            raise InputError(path, f"{str(value)[:60]!r} is no number", "calculate with numbers")
        case Reference(_, name):
            _check_number(space[name], path)
            return Ref("x_cf", equation.parents.index(name))
        case Operation(sign, left, right):
            return Sum(sign, _expression(left, equation, space, path), _expression(right, equation, space, path))
        case Call(name, arguments):
            return Apply(name, tuple(_expression(argument, equation, space, path) for argument in arguments))


def _check_number(feature: Feature, path: str) -> None:
    if not feature.numeric and feature.kind != "boolean":
        fact = f"{feature.name} is a {feature.kind}, and formulas calculate with numbers"
        raise InputError(path, fact, "give what each level adds as coefficients")
