"""Checks that networks, as plain arrays, fit the parents of a causal equation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from mlflow_cf.constraints.equations import CausalEquation, Network
from mlflow_cf.constraints.resolve import known_levels
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.features import Feature, FeatureSpace


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
    names = [entry if isinstance(entry, str) else entry[0] for entry in network.inputs]
    for place, (name, entry) in enumerate(zip(names, network.inputs, strict=True)):
        where = f"{path}.inputs[{place}]"
        if name in equation.parents:
            yield from _entry_errors(space[name], entry, where, reveal=reveal)
        else:
            fix = did_you_mean(name, equation.parents, "parents")
            yield InputError(where, f"{name[:60]!r} is not one of its parents", fix)
    for name in equation.parents:
        if name not in names:
            yield InputError(f"{path}.inputs", f"does not read the parent {name!r}", "leave it out of parents")


def _entry_errors(feature: Feature, entry: str | tuple[str, str], path: str, *, reveal: bool) -> Iterator[InputError]:
    if isinstance(entry, str) and _levelled(feature):
        fix = f"write [{entry!r}, level] for each level that it reads"
        yield InputError(path, f"{entry} is a {feature.kind}, and no number", fix)
    elif not isinstance(entry, str) and not _levelled(feature):
        yield InputError(path, f"names a level, and {feature.name} has none", f"write {feature.name!r}")
    elif not isinstance(entry, str):
        yield from level_errors(feature, entry[1:], path, reveal=reveal)


def level_errors(feature: Feature, levels: Iterable[str], path: str, *, reveal: bool) -> Iterator[InputError]:
    """Yield an error for each of some levels that a feature does not have."""
    known = {str(level) for level in feature.levels}
    for level in levels:
        if level not in known:
            fact = f"{level[:60]!r} is not a level of {feature.name}"
            yield InputError(path, fact, known_levels(feature, level, reveal=reveal))


def _levelled(feature: Feature) -> bool:
    return not feature.numeric and feature.kind != "boolean"
