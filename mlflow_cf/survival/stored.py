"""Retrained models as plain arrays, as an artifact keeps them: no file can hold code, and every number is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace
from mlflow_cf.policy.survival import WHERE
from mlflow_cf.structures import Layers, Link, Structure, TreeEnsemble
from mlflow_cf.structures.kernels.trees import CUT, FEATURE, LEFT, TEST, Features, Nodes, Trees, flags_of, walk_of
from mlflow_cf.structures.layers.merged import LinearModels
from mlflow_cf.structures.trees.cells import Lookup
from mlflow_cf.structures.trees.ensemble import deepest_of

Arrays = Mapping[str, NDArray[Any]]
Plain = Mapping[str, Any]
TREES: Final = ("sizes", "cuts", "roots", "outputs", "tests", "value", "bits", "ordered", "base")
LINEAR: Final = ("sizes", "added", "bias")


def to_arrays(structure: Structure, space: FeatureSpace) -> tuple[Arrays, Plain]:
    """Return the models in a structure as arrays, and as JSON values what is left.

    Raises:
        InputError: they are neither trees nor linear models.
    """
    if isinstance(structure, TreeEnsemble):
        return _of_trees(structure), {"kind": "trees", "link": structure.link, "steady": structure.steady}
    if isinstance(structure, Layers) and structure.linear:
        linear = LinearModels.read(structure, space)
        sizes = np.array([len(rows) for rows in linear.added], dtype=np.int64)
        arrays = {"sizes": sizes, "added": np.concatenate(linear.added), "bias": linear.bias}
        return arrays, {"kind": "linear", "link": structure.link}
    fact = f"an artifact keeps retrained models that are trees or linear, not {structure.kind}"
    raise InputError(f"{WHERE}.models", fact, "wrap the model in memory, or ask for a margin instead")


def from_arrays(arrays: Arrays, plain: Plain, space: FeatureSpace, models: int) -> Structure:
    """Rebuild the structure of so many models, each with as many raw scores.

    Raises:
        KeyError, ValueError, TypeError: these are no such models over these features.
    """
    if plain["link"] not in get_args(Link):
        raise ValueError("an unknown link")
    outputs = arrays["bias" if plain["kind"] == "linear" else "base"].size
    _check(outputs > 0 and outputs % models == 0, "another number of models")
    if plain["kind"] == "linear":
        _check(set(arrays) == set(LINEAR), "other arrays")
        rows = [2 if feature.numeric else len(feature.levels) + 2 for feature in space.features]
        added, bias = arrays["added"], arrays["bias"]
        _check(arrays["sizes"].tolist() == rows and added.shape == (sum(rows), outputs), "other features")
        _check(bias.shape == (outputs,) and bool(np.isfinite(bias).all()), "no bias")
        parts = np.split(added.astype(np.float64), np.cumsum(rows)[:-1])
        return LinearModels(tuple(parts), bias.astype(np.float64), plain["link"]).structure(space)
    _check(plain["kind"] == "trees" and set(arrays) == set(TREES), "neither trees nor linear models")
    lookups = _lookups(arrays, len(space))
    nodes = _nodes(arrays, lookups, outputs)
    start = np.cumsum([0, *(lookup.size for lookup in lookups)])
    features = Features(start, arrays["ordered"].copy(), arrays["bits"].copy())
    base = arrays["base"].astype(np.float64)
    trees = Trees(nodes, features, walk_of(nodes, features), base, deepest_of(nodes))
    return TreeEnsemble(lookups, trees, plain["link"], steady=plain["steady"] is True)


def _of_trees(structure: TreeEnsemble) -> Arrays:
    trees, lookups = structure.trees, structure.lookups
    return {
        "sizes": np.array([len(lookup.cuts) for lookup in lookups], dtype=np.int64),
        "cuts": np.concatenate([lookup.cuts for lookup in lookups]),
        "roots": trees.nodes.roots,
        "outputs": trees.nodes.outputs,
        "tests": trees.nodes.tests,
        "value": trees.nodes.value,
        "bits": trees.features.bits,
        "ordered": trees.features.ordered,
        "base": trees.base,
    }


def _lookups(arrays: Arrays, features: int) -> tuple[Lookup, ...]:
    """Return the cells of all features; cuts ascend up to the last one, which is infinite."""
    sizes, cuts = arrays["sizes"], arrays["cuts"]
    _check(sizes.shape == (features,) and cuts.dtype == np.float64 and bool((sizes > 0).all()), "other features")
    _check(cuts.shape == (int(sizes.sum()),), "other cuts")
    parts = np.split(cuts, np.cumsum(sizes)[:-1])
    _check(all(part[-1] == np.inf and bool((np.diff(part) > 0).all()) for part in parts), "cuts that do not ascend")
    return tuple(Lookup.of(part.copy()) for part in parts)


def _nodes(arrays: Arrays, lookups: Sequence[Lookup], outputs: int) -> Nodes:
    """Return the nodes: children stand behind their parents, in pairs, and test cells that there are."""
    tests, value, roots = arrays["tests"], arrays["value"], arrays["roots"]
    count = len(value)
    _check(tests.dtype == np.int32 and tests.shape == (count, 5) and value.shape == (count, 1), "other nodes")
    _check(value.dtype.kind == "f" and bool(np.isfinite(value).all()) and len(roots) > 0, "leaves without values")
    _check(arrays["base"].shape == (outputs,) and bool(np.isfinite(arrays["base"]).all()), "another number of scores")
    _check(roots.dtype == np.int32 and arrays["outputs"].dtype == np.int32, "trees of another type")
    _check(_within(roots, 0, count) and arrays["outputs"].shape == roots.shape, "trees without a root")
    _check(_within(arrays["outputs"], 0, outputs), "trees without a score")
    inner = np.flatnonzero(tests[:, FEATURE] != -1)
    feature, left = tests[inner, FEATURE], tests[inner, LEFT]
    _check(_within(feature, 0, len(lookups)) and _within(left, 0, count - 1), "tests of nothing")
    _check(bool((left > inner).all()), "a child before its parent")
    leaves = np.flatnonzero(tests[:, FEATURE] == -1)
    _check(bool((tests[leaves, LEFT] == leaves).all()), "a leaf with children")
    ordered, bits = arrays["ordered"], arrays["bits"]
    sizes = np.array([lookup.size for lookup in lookups])
    _check(ordered.dtype == np.bool_ and ordered.shape == sizes.shape and bits.dtype == np.uint64, "other tables")
    _check(bits.ndim == 2 and flags_of(np.ascontiguousarray(bits)).shape[1] >= sizes.max(), "narrow tables")
    plain = ordered[feature]
    _check(_within(tests[inner, TEST][~plain], 0, len(bits)), "tests without a table")
    _check(bool((tests[inner, TEST][plain] == -1).all()), "tables of what is ordered")
    cut = tests[inner, CUT][plain]
    _check(bool((cut >= 0).all() and (cut < sizes[feature[plain]] - 1).all()), "cuts that there are not")
    return Nodes(roots.copy(), arrays["outputs"].copy(), tests.copy(), value.copy())


def _within(values: NDArray[Any], low: int, stop: int) -> bool:
    return bool((values >= low).all() and (values < stop).all())


def _check(sound: object, what: str) -> None:
    if not sound:
        raise ValueError(what)
