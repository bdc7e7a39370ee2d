"""Structural functions of causal equations: the expected value of a number, given its parents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.causal.forms import Additive, CausalFormula, input_columns, term_of
from mlflow_cf.causal.learn import Arrays, Kind, fit
from mlflow_cf.causal.opened import arrays_of_network, restored
from mlflow_cf.constraints import CausalEquation, Constraints
from mlflow_cf.constraints.model import LEARNABLE, Stored
from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.structures import Activation, Column, Forest, Layers, Structure, TreeEnsemble

NODES = ("column", "threshold", "left", "right", "value")


@dataclass(frozen=True, eq=False)
class StructuralFunction:
    """The function of one causal equation.

    Attributes:
        child: column of the number; parents: columns of the features that it follows, in order.
        structure: what computes it, in the child's own unit; a `Structure` is over all features.
        of_parents: codes of the parents (m, p) -> values (m,), NaN where they are undefined.
        arrays: the learned or fitted parameters, to be stored; empty where the policy has them.
        name: of a fitted function, what the user passed, such as the class of an estimator; else empty.
    """

    child: int
    parents: tuple[int, ...]
    structure: Structure | Additive | CausalFormula
    of_parents: Callable[[Floats], Floats]
    arrays: Arrays = field(default_factory=dict)
    name: str = ""

    @classmethod
    def of(
        cls,
        equation: CausalEquation,
        space: FeatureSpace,
        structure: Structure | Additive | CausalFormula,
        arrays: Arrays,
    ) -> StructuralFunction:
        """Return the function of an equation, given the structure that computes it."""
        child, parents = space.index[equation.child], _parents(equation, space)
        name = equation.model.stored if isinstance(equation.model, Stored) else ""
        if isinstance(structure, Additive | CausalFormula):
            return cls(child, parents, structure, structure.values, arrays, name)
        row = [
            structure.encode(column, np.zeros(1))[0] for column in range(len(space))
        ]  # of columns that it does not read
        return cls(child, parents, structure, _RestrictedScore(structure.restrict(row, parents)), arrays, name)

    def values(self, Z: Floats) -> Floats:
        """Return its values (m,) for coded rows (m, d); NaN where it is undefined."""
        codes = Z[:, list(self.parents)]
        new = np.ones(len(codes), dtype=np.bool_)  # searches try many values of a child beside the same parents
        np.any(codes[1:] != codes[:-1], axis=1, out=new[1:])
        found: Floats = self.of_parents(codes[new])[np.cumsum(new) - 1]
        return found

    def describe(self, space: FeatureSpace) -> dict[str, Any]:
        """Return a description as plain values; `r2` is on the background, null for a given function."""
        return {
            "child": space.names[self.child],
            "parents": [space.names[parent] for parent in self.parents],
            "structure": f"{self.name}, {self.structure.kind}" if self.name else self.structure.kind,
            "r2": float(self.arrays["r2"]) if "r2" in self.arrays else None,
        }


@dataclass(frozen=True, eq=False)
class _RestrictedScore:
    """A structure restricted to the parents, as a function of their codes."""

    structure: Structure

    def __call__(self, codes: Floats) -> Floats:
        """Return the raw scores (m,) of codes (m, p)."""
        encoded = [self.structure.encode(place, column) for place, column in enumerate(codes.T)]
        found: Floats = self.structure.sums(encoded)[:, 0]
        return found


def structural_functions(
    constraints: Constraints, space: FeatureSpace, background: Floats, kept: Sequence[Arrays] = ()
) -> tuple[StructuralFunction, ...]:
    """Return the functions of all causal equations of constraints; these are known to fit the features.

    Args:
        constraints: whose equations these are.
        space: the features.
        background: (n, d) rows to learn from.
        kept: the stored arrays of those with a model, in order; those without arrays are learned.

    Raises:
        InputError: nothing to learn one from, or an estimator that was not opened.
        KeyError, ValueError: the stored arrays belong to other equations.
    """
    known = iter(kept)
    functions = []
    for number, equation in enumerate(constraints.causal):
        if equation.model is None:
            functions.append(_given(equation, space, f"constraints.causal[{number}]"))
            continue
        arrays = next(known, None) or _learned(equation, space, background, f"constraints.causal[{number}].model")
        functions.append(_restored(equation, space, arrays))
    if next(known, None) is not None:
        raise ValueError("more functions than equations")
    return tuple(functions)


def by_equation(functions: Sequence[StructuralFunction]) -> dict[str, NDArray[Any]]:
    """Return the arrays of all functions in one mapping, keyed by the position of the equation and their own name."""
    learned = [(number, function.arrays) for number, function in enumerate(functions) if function.arrays]
    return {f"e{number}_{name}": array for number, arrays in learned for name, array in arrays.items()}


def of_equations(arrays: Arrays, numbers: Sequence[int]) -> tuple[Arrays, ...]:
    """Return the arrays of some equations from the mapping of `by_equation`.

    Raises:
        ValueError: there are others, or an equation has none.
    """
    found: dict[str, dict[str, NDArray[Any]]] = {f"e{number}": {} for number in numbers}
    for key, array in arrays.items():
        equation, _, name = key.partition("_")
        if equation not in found:
            raise ValueError("arrays of another equation")
        found[equation][name] = array
    if not all(found.values()):
        raise ValueError("an equation without arrays")
    return tuple(found.values())


def _parents(equation: CausalEquation, space: FeatureSpace) -> tuple[int, ...]:
    return tuple(space.index[name] for name in equation.parents)


def _given(equation: CausalEquation, space: FeatureSpace, path: str) -> StructuralFunction:
    structure: Structure | Additive | CausalFormula
    if equation.formula is not None:
        structure = CausalFormula.of(equation, equation.formula, space, f"{path}.formula")
    elif equation.network is not None:
        arrays = arrays_of_network(equation, equation.network, space)
        structure = restored(arrays, space, _parents(equation, space))
    else:
        coefficients = equation.coefficients or {}
        terms = tuple(term_of(space[name], coefficients[name]) for name in equation.parents)
        structure = Additive(float(equation.intercept), terms)
    return StructuralFunction.of(equation, space, structure, {})


def _learned(equation: CausalEquation, space: FeatureSpace, background: Floats, path: str) -> Arrays:
    """Return the parameters learned from the rows that have the child.

    Raises:
        InputError: there are no such rows; or the equation only names a fitted regressor.
    """
    if equation.model not in LEARNABLE:
        raise InputError(path, "names a function that another model stores", "pass the fitted estimator itself")
    known = background[~np.isnan(background[:, space.index[equation.child]])]
    if not len(known):
        raise InputError(path, f"no row has a value of {equation.child!r} to learn from", "give coefficients")
    columns = input_columns(space, _parents(equation, space))
    inputs = np.column_stack([column.encode(known[:, column.feature]) for column in columns])
    return fit(cast("Kind", equation.model), inputs, known[:, space.index[equation.child]])


def _restored(equation: CausalEquation, space: FeatureSpace, arrays: Arrays) -> StructuralFunction:
    """Return a learned or fitted function, restored from its arrays.

    Raises:
        KeyError, ValueError: the arrays do not fit these features.
    """
    if isinstance(equation.model, Stored):
        structure = restored(arrays, space, _parents(equation, space))
    else:
        structure = _of_kind(cast("Kind", equation.model), equation, space, arrays)
    return StructuralFunction.of(equation, space, structure, dict(arrays))


def _of_kind(kind: Kind, equation: CausalEquation, space: FeatureSpace, arrays: Arrays) -> Structure:
    """Return the structure of a learned function."""
    columns = input_columns(space, _parents(equation, space))
    layers = {"linear": 1, "mlp": 2}.get(kind, 0)
    names = [f"{name}_{at}" for at in range(layers) for name in ("weights", "bias")] or [*NODES]
    if set(arrays) != {*names, "r2"} or not all(np.isfinite(array).all() for array in arrays.values()):
        raise ValueError("other arrays than are learned")
    return _layers_of(columns, space, arrays, layers) if layers else _tree_of(columns, space, arrays)


def _layers_of(columns: list[Column], space: FeatureSpace, arrays: Arrays, layers: int) -> Structure:
    weights = [arrays[f"weights_{at}"] for at in range(layers)]
    biases = [arrays[f"bias_{at}"] for at in range(layers)]
    widths = [len(columns), *(bias.size for bias in biases)]
    if (
        [layer.shape for layer in weights] != [*pairwise(widths)]
        or widths[-1] != 1
        or any(bias.ndim != 1 for bias in biases)
    ):
        raise ValueError("layers of other inputs")
    return _layers(columns, space, weights, biases)


def _layers(columns: list[Column], space: FeatureSpace, weights: list[Floats], biases: list[Floats]) -> Structure:
    activation: Activation = "relu" if len(weights) > 1 else "identity"
    return Layers.compile(columns, space, weights, biases, activation, "identity")


def _tree_of(columns: list[Column], space: FeatureSpace, nodes: Arrays) -> Structure:
    _check_tree(nodes, len(columns))
    forest = Forest(
        roots=np.zeros(1, dtype=np.int32),
        outputs=np.zeros(1, dtype=np.int32),
        column=nodes["column"],
        threshold=nodes["threshold"],
        missing_left=np.zeros(len(nodes["column"]), dtype=np.bool_),  # nothing is missing once it is coded
        left=nodes["left"],
        right=nodes["right"],
        value=nodes["value"],
        rule="<= float32",
        base=np.zeros(1),
        link="identity",
    )
    return TreeEnsemble.compile(forest, columns, space)


def _check_tree(nodes: Mapping[str, np.ndarray], columns: int) -> None:
    """Raise a ValueError if nodes are no tree over so many inputs, in which children come after their parents."""
    column, count = nodes["column"], len(nodes["column"])
    inner = np.flatnonzero(column >= 0)
    sound = nodes["value"].shape == (count, 1) and all(nodes[name].shape == (count,) for name in NODES[:4])
    sound = sound and all(nodes[name].dtype == np.int32 for name in ("column", "left", "right"))
    sound = sound and all(nodes[name].dtype == np.float64 for name in ("threshold", "value"))
    for side in ("left", "right"):
        sound = sound and bool(((nodes[side][inner] > inner) & (nodes[side][inner] < count)).all())
    if not sound or not (column < columns).all():
        raise ValueError("nodes that are no tree")
