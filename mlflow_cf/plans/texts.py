"""The parts of actions and relationships, PLAF texts or Python functions, as expressions and rules."""

from __future__ import annotations

from typing import Final

from mlflow_cf.constraints.expressions import Const, Expression, Side
from mlflow_cf.constraints.functions import NAMED, PythonFunction, placeholder
from mlflow_cf.constraints.origin import Origin
from mlflow_cf.constraints.resolve import check_sides, resolve, resolve_code, resolve_number
from mlflow_cf.constraints.rules import Atom, Rule
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.features import Feature, FeatureSpace
from mlflow_cf.plaf import parse_expression, parse_rule
from mlflow_cf.plans.functions import FunctionResult, Place, computed

Source = str | PythonFunction
Sides = tuple[Side, ...]
BEFORE: Final[Sides] = ("x",)
BOTH: Final[Sides] = ("x", "x_cf")


def effort(source: Source, space: FeatureSpace, place: Place) -> Expression:
    """Return the effort of a step as an expression.

    Raises:
        InputError: text that is no number, unknown features, or a function of other arguments; as all functions below.
    """
    if not isinstance(source, str):
        return computed(source, BOTH, space, FunctionResult.number(0), place)
    return resolve_number(parse_expression(source, place.path), space, place.path)


def effect(source: Source, feature: Feature, space: FeatureSpace, place: Place) -> Expression:
    """Return the new value of a feature as an expression in its codes."""
    if not isinstance(source, str):
        return computed(source, BOTH, space, FunctionResult.of(feature), place)
    return resolve_code(parse_expression(source, place.path), feature, space, place.path)


def factor(source: Source, space: FeatureSpace, place: Place) -> Expression:
    """Return the factor of a relationship, the share of the effort that is left, as an expression."""
    if not isinstance(source, str):
        return computed(source, BEFORE, space, FunctionResult.number(), place)
    node = parse_expression(source, place.path)
    check_sides(node, BEFORE, place.path)
    return resolve_number(node, space, place.path)


def condition(source: Source, sides: Sides, space: FeatureSpace, place: Place, *, reveal: bool = True) -> Rule:
    """Return a condition on the state before a step (``x``), or also on the one after it (``x_cf``), as a rule."""
    origin = Origin("policy", "actions")
    if not isinstance(source, str):
        holds = computed(source, sides, space, FunctionResult.truth(), place)
        return Rule((), Atom(holds, "==", Const(1.0)), origin, f"{placeholder(source)[NAMED]}()")
    statement = parse_rule(source, place.path, functions=True)
    for comparison in (*statement.when, statement.then):
        for node in (comparison.left, comparison.right):
            check_sides(node, sides, place.path)
    return resolve(statement, space, origin, reveal=reveal, path=place.path)


def unknown(name: str, space: FeatureSpace, path: str) -> list[InputError]:
    """Return the error of a name that is no feature; an empty list if it is one."""
    if name in space.index:
        return []
    return [InputError(path, f"{name[:60]!r} is not a feature", did_you_mean(name, space.names, "features"))]
