"""Checks that causal equations, their formulas and their networks fit the features, and each other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Final

from mlflow_cf.constraints.expressions import Apply, Const, Expression, Ref
from mlflow_cf.constraints.model import CausalEquation, Coefficient, Network, Points
from mlflow_cf.constraints.resolve import check_sides, known_levels
from mlflow_cf.constraints.rules import Source
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.features import Feature, FeatureSpace, a_kind
from mlflow_cf.plaf import Call, Constant, Node, Reference, nodes_of, parse_expression

PATH: Final = "constraints.causal"
# what says which function it is, in words
FUNCTIONS: Final = {
    "model": "a model to learn",
    "coefficients": "coefficients",
    "network": "a network",
    "formula": "a formula",
}


def equation_errors(
    equations: Sequence[CausalEquation], space: FeatureSpace, source: Source, *, reveal: bool
) -> Iterator[InputError]:
    """Yield the errors of the causal equations of a policy or a request; `reveal`: messages may name levels."""
    first: dict[str, int] = {}
    for number, equation in enumerate(equations):
        path = f"{PATH}[{number}]"
        yield from _feature_errors(equation, space, path)
        yield from _function_errors(equation, source, path)
        yield from _given_errors(equation, space, path, reveal=reveal)
        earlier = first.setdefault(equation.child, number)
        if earlier != number:
            fact = f"{equation.child!r} has an equation already, causal[{earlier}]"
            yield InputError(f"{path}.child", fact, "keep one of them, with all parents")
    yield from circle_errors(equations)


def circle_errors(equations: Sequence[CausalEquation]) -> Iterator[InputError]:
    """Yield an error if equations depend on each other in a circle."""
    graph = TopologicalSorter({equation.child: equation.parents for equation in equations})
    try:
        graph.prepare()
    except CycleError as error:
        names = " -> ".join(error.args[1])
        yield InputError(PATH, f"features move each other in a circle: {names}", "leave out one of the equations")


def further_errors(policy: Sequence[CausalEquation], request: Sequence[CausalEquation]) -> Iterator[InputError]:
    """Yield the errors of a request's equations beside those of a policy; each side is valid by itself."""
    known = {equation.child for equation in policy}
    again = [number for number, equation in enumerate(request) if equation.child in known]
    for number in again:
        fact = f"{request[number].child!r} has an equation under the policy"
        yield InputError(f"{PATH}[{number}].child", fact, "leave it out")
    if not again:
        yield from circle_errors([*policy, *request])


def _feature_errors(equation: CausalEquation, space: FeatureSpace, path: str) -> Iterator[InputError]:
    if equation.child not in space.index:
        fix = did_you_mean(equation.child, space.names, "features")
        yield InputError(f"{path}.child", f"{equation.child[:60]!r} is not a feature", fix)
    elif not space[equation.child].numeric:
        fact = f"{equation.child!r} is a {space[equation.child].kind}, and no number"
        yield InputError(f"{path}.child", fact, "write what holds for it as a rule")
    if not equation.parents:
        yield InputError(f"{path}.parents", "names no feature", "list those that the child follows")
    for place, name in enumerate(equation.parents):
        if name not in space.index:
            fix = did_you_mean(name, space.names, "features")
            yield InputError(f"{path}.parents[{place}]", f"{name[:60]!r} is not a feature", fix)
        elif name in equation.parents[:place]:
            yield InputError(f"{path}.parents[{place}]", f"{name!r} is named twice", "name it once")


def _function_errors(equation: CausalEquation, source: Source, path: str) -> Iterator[InputError]:
    given = [name for name in FUNCTIONS if getattr(equation, name) is not None]
    if len(given) > 1:
        yield InputError(path, f"has both {' and '.join(FUNCTIONS[name] for name in given)}", "leave one of them out")
    elif not given:
        fix = "give model: linear, tree or mlp, or coefficients, a network or a formula"
        yield InputError(path, "has no function", fix)
    elif equation.model is not None and source == "request":
        done = "learned" if isinstance(equation.model, str) else "opened"
        yield InputError(f"{path}.model", f"is {done} when a model is logged only", "give coefficients")
    elif equation.coefficients is None and equation.intercept:
        yield InputError(f"{path}.intercept", "belongs to coefficients", "leave it out")
    if equation.coefficients is not None:
        missing = [name for name in equation.parents if name not in equation.coefficients]
        if missing:
            yield InputError(f"{path}.coefficients", f"has none for {missing[0]!r}", "give one for every parent")


def _given_errors(equation: CausalEquation, space: FeatureSpace, path: str, *, reveal: bool) -> Iterator[InputError]:
    """Yield the errors of the coefficients, the network or the formula of an equation."""
    for name, coefficient in (equation.coefficients or {}).items():
        where = f"{path}.coefficients.{name}"
        if name not in equation.parents:
            yield InputError(where, "not one of its parents", did_you_mean(name, equation.parents, "parents"))
        elif name in space.index:
            yield from _coefficient_errors(space[name], coefficient, where, reveal=reveal)
    if any(name not in space.index for name in equation.parents):
        return  # `_feature_errors` yields these
    if equation.network is not None:
        yield from network_errors(equation, equation.network, space, f"{path}.network", reveal=reveal)
    if equation.formula is not None:
        try:
            formula_of(equation, equation.formula, space, f"{path}.formula")
        except InputError as error:
            yield error


def _coefficient_errors(feature: Feature, coefficient: Coefficient, path: str, *, reveal: bool) -> Iterator[InputError]:
    if _levelled(feature) and not isinstance(coefficient, Mapping):
        given = "a table of points" if isinstance(coefficient, tuple) else "one number"
        yield InputError(path, f"is {given} for {a_kind(feature.kind)}", "give what each level adds, by level")
    elif not _levelled(feature) and isinstance(coefficient, Mapping):
        unit = "true" if feature.kind == "boolean" else "one more" + (" day" if feature.kind == "date" else "")
        yield InputError(path, f"names levels, and {feature.name} has none", f"give what {unit} adds")
    elif isinstance(coefficient, Mapping):
        yield from level_errors(feature, coefficient, path, reveal=reveal)
    elif isinstance(coefficient, tuple):
        yield from _point_errors(feature, coefficient, path)


def _point_errors(feature: Feature, points: Points, path: str) -> Iterator[InputError]:
    if feature.kind == "boolean":
        yield InputError(path, "is a table of points for a boolean", "give what true adds")
        return
    before = -math.inf
    for place, (value, _) in enumerate(points):
        code = feature.code(value)
        if code is None or math.isnan(code):
            kind = "date; write it as '2024-12-31'" if feature.kind == "date" else "number"
            yield InputError(f"{path}[{place}][0]", f"{value!r} is no {kind}")
            return
        if code <= before:
            yield InputError(f"{path}[{place}][0]", f"{value!r} is not above the one before", "sort points by value")
            return
        before = code


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
            fix = did_you_mean(name, equation.parents, "parents")
            raise InputError(path, f"{name[:60]!r} is not one of its parents", fix)
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
            if _levelled(space[name]):
                fact = f"{name} is a {space[name].kind}, and formulas calculate with numbers"
                raise InputError(path, fact, "give what each level adds as coefficients")
            return Ref("x_cf", equation.parents.index(name))
        case Call(function, arguments):
            return Apply(function, tuple(_expression(argument, equation, space, path) for argument in arguments))


def network_errors(
    equation: CausalEquation, network: Network, space: FeatureSpace, path: str, *, reveal: bool
) -> Iterator[InputError]:
    """Yield the errors of a network; the parents are known to be features."""
    yield from _input_errors(equation, network, space, path, reveal=reveal)
    if len(network.weights) != len(network.biases):
        fact = f"{len(network.weights)} layers of weights and {len(network.biases)} of biases"
        yield InputError(f"{path}.biases", fact, "give one for every layer")
        return
    widths = [len(equation.parents if network.inputs is None else network.inputs), *map(len, network.biases)]
    for layer, (inputs, outputs) in enumerate(pairwise(widths)):
        rows = network.weights[layer]
        if len(rows) != inputs or any(len(row) != outputs for row in rows):
            fact = f"{len(rows)} rows of {'/'.join(map(str, sorted({len(row) for row in rows})))} weights"
            yield InputError(f"{path}.weights[{layer}]", fact, f"give {inputs} (its inputs) of {outputs} (its biases)")
    if widths[-1] != 1:
        yield InputError(f"{path}.biases[{len(widths) - 2}]", f"{widths[-1]} outputs", "the last layer has one")


def _input_errors(
    equation: CausalEquation, network: Network, space: FeatureSpace, path: str, *, reveal: bool
) -> Iterator[InputError]:
    if network.inputs is None:
        for name in equation.parents:
            if _levelled(space[name]):
                fix = f"give inputs, with [{name!r}, level] for each level that it reads"
                yield InputError(f"{path}.inputs", f"{name} is a {space[name].kind}, and no number", fix)
        return
    named = [(entry,) if isinstance(entry, str) else entry for entry in network.inputs]
    for place, (name, *levels) in enumerate(named):
        where = f"{path}.inputs[{place}]"
        if name not in equation.parents:
            fix = did_you_mean(name, equation.parents, "parents")
            yield InputError(where, f"{name[:60]!r} is not one of its parents", fix)
        elif not levels and _levelled(space[name]):
            fix = f"write [{name!r}, level] for each level that it reads"
            yield InputError(where, f"{name} is a {space[name].kind}, and no number", fix)
        elif levels and not _levelled(space[name]):
            yield InputError(where, f"names a level, and {name} has none", f"write {name!r}")
        else:
            yield from level_errors(space[name], levels, where, reveal=reveal)
    for name in equation.parents:
        if all(name != read for read, *_ in named):
            yield InputError(f"{path}.inputs", f"does not read the parent {name!r}", "leave it out of parents")


def level_errors(feature: Feature, levels: Iterable[str], path: str, *, reveal: bool) -> Iterator[InputError]:
    """Yield an error for each of some levels that a feature does not have."""
    known = {str(level) for level in feature.levels}
    for level in levels:
        if level not in known:
            fact = f"{level[:60]!r} is not a level of {feature.name}"
            yield InputError(path, fact, known_levels(feature, level, reveal=reveal))


def _levelled(feature: Feature) -> bool:
    return not feature.numeric and feature.kind != "boolean"
