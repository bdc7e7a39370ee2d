"""Checks that causal equations fit the features, and each other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final

from mlflow_cf.constraints.equations import CausalEquation, Coefficient, Points
from mlflow_cf.constraints.formulas import formula_of
from mlflow_cf.constraints.networks import level_errors, network_errors
from mlflow_cf.constraints.origin import Source
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.features import Feature, FeatureSpace

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
        yield from _child_errors(equation, space, path)
        yield from _parent_errors(equation, space, path)
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


def _child_errors(equation: CausalEquation, space: FeatureSpace, path: str) -> Iterator[InputError]:
    if equation.child not in space.index:
        fix = did_you_mean(equation.child, space.names, "features")
        yield InputError(f"{path}.child", f"{equation.child[:60]!r} is not a feature", fix)
    elif not space[equation.child].numeric:
        fact = f"{equation.child!r} is a {space[equation.child].kind}, and no number"
        yield InputError(f"{path}.child", fact, "write what holds for it as a rule")


def _parent_errors(equation: CausalEquation, space: FeatureSpace, path: str) -> Iterator[InputError]:
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
        return  # `_parent_errors` yields these
    if equation.network is not None:
        yield from network_errors(equation, equation.network, space, f"{path}.network", reveal=reveal)
    if equation.formula is not None:
        try:
            formula_of(equation, equation.formula, space, f"{path}.formula")
        except InputError as error:
            yield error


def _coefficient_errors(feature: Feature, coefficient: Coefficient, path: str, *, reveal: bool) -> Iterator[InputError]:
    levelled = not feature.numeric and feature.kind != "boolean"
    if levelled and not isinstance(coefficient, Mapping):
        given = "a table of points" if isinstance(coefficient, tuple) else "one number"
        yield InputError(path, f"is {given} for a {feature.kind}", "give what each level adds, by level")
    elif not levelled and isinstance(coefficient, Mapping):
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
