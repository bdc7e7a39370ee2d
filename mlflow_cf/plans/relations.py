"""Relationships bound to features: a graph that makes steps cheaper after earlier ones (CSCF section 2).

Also the parts of actions and relationships, PLAF texts or Python functions, as expressions and rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mlflow_cf.constraints.actions import NAMED, PythonFunction, Relationship, placeholder
from mlflow_cf.constraints.expressions import Const, Expression, Side, evaluate
from mlflow_cf.constraints.resolve import check_sides, resolve, resolve_code, resolve_number
from mlflow_cf.constraints.rules import Atom, Bools, Origin, Rule
from mlflow_cf.errors import InputError, did_you_mean, raise_all
from mlflow_cf.features import Feature, FeatureSpace, Floats
from mlflow_cf.plaf import parse_expression, parse_rule
from mlflow_cf.plans.functions import FunctionResult, Place, computed
from mlflow_cf.validation import LARGEST


@dataclass(frozen=True, eq=False)
class Edge:
    """One relationship: the state of a feature makes changes of another one cheaper.

    Attributes:
        to: column of the feature whose changes become cheaper.
        factor: the share of the effort that is left; None: `cases`, of which the first that holds counts, and
            `otherwise`.
    """

    to: int
    factor: Expression | None
    cases: tuple[tuple[Rule, float], ...]
    otherwise: float

    def shares(self, states: Floats) -> Floats:
        """Return the factor tau (m,) in [0, 1] in states (m, d); 1 where it is undefined."""
        if self.factor is not None:
            factor = evaluate(self.factor, states, states)
            return np.where(np.isnan(factor), 1.0, np.clip(factor, 0.0, 1.0))
        shares = np.full(len(states), self.otherwise)
        for rule, share in reversed(self.cases):
            shares[rule.holds(states, states)] = share
        return shares


@dataclass(frozen=True, eq=False)
class Relations:
    """The graph of all relationships; it may have circles, since it only reads the state before a step."""

    edges: tuple[Edge, ...] = ()

    def discounts(self, states: Floats, changed: Bools) -> Floats:
        """Return the discount g (m,) of steps from states (m, d) that change features (m, d).

        It is the mean over the changed features with edges to them; of each, the mean factor of these edges.
        """
        total, counted = np.zeros(len(states)), np.zeros(len(states))
        for column in dict.fromkeys(edge.to for edge in self.edges):
            of_it = changed[:, column]
            if not of_it.any():
                continue
            shares = [edge.shares(states[of_it]) for edge in self.edges if edge.to == column]
            total[of_it] += np.mean(shares, axis=0)
            counted += of_it
        return np.where(counted > 0, total / np.maximum(counted, 1), 1.0)


def bind_relationships(relationships: Sequence[Relationship], space: FeatureSpace, path: str) -> Relations:
    """Return relationships bound to the features of `space`.

    Raises:
        InputError: unknown features, a pair named twice, or texts that do not fit the features; all at once.
    """
    edges: list[Edge] = []
    errors: list[InputError] = []
    seen: set[tuple[str, str]] = set()
    for number, relationship in enumerate(relationships):
        where = f"{path}[{number}]"
        pair = (relationship.source, relationship.to)
        for key, name in zip(("from", "to"), pair, strict=True):
            errors += unknown(name, space, f"{where}.{key}")
        if pair in seen:
            errors.append(InputError(where, f"{pair[0]!r} helps {pair[1]!r} already", "keep one of them"))
        seen.add(pair)
        if relationship.to not in space.index:
            continue
        try:
            edges.append(_edge(relationship, space, where))
        except InputError as error:
            errors.append(error)
    raise_all(errors)
    return Relations(tuple(edges))


def _edge(relationship: Relationship, space: FeatureSpace, path: str) -> Edge:
    helped = f"{relationship.source} -> {relationship.to}"
    left = None
    if relationship.factor is not None:
        left = amount(relationship.factor, BEFORE, space, Place(f"{path}.factor", f"the factor of {helped}"))
    cases = tuple(
        (condition(text, BEFORE, space, Place(f"{path}.cases[{at}]", f"cases[{at}] of {helped}")), float(share))
        for at, (text, share) in enumerate(relationship.cases)
    )
    return Edge(space.index[relationship.to], left, cases, float(relationship.otherwise))


Source = str | PythonFunction
Sides = tuple[Side, ...]
BEFORE: Final[Sides] = ("x",)
BOTH: Final[Sides] = ("x", "x_cf")


def amount(source: Source, sides: Sides, space: FeatureSpace, place: Place, least: float = -LARGEST) -> Expression:
    """Return a number as an expression: the effort of a step, or the factor of a relationship.

    Raises:
        InputError: text that is no number, unknown features, or a function of other arguments; as all functions below.
    """
    if not isinstance(source, str):
        return computed(source, sides, space, FunctionResult.number(least), place)
    node = parse_expression(source, place.path)
    check_sides(node, sides, place.path)
    return resolve_number(node, space, place.path)


def effect(source: Source, feature: Feature, space: FeatureSpace, place: Place) -> Expression:
    """Return the new value of a feature as an expression in its codes."""
    if not isinstance(source, str):
        return computed(source, BOTH, space, FunctionResult.of(feature), place)
    return resolve_code(parse_expression(source, place.path), feature, space, place.path)


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
