"""Structural functions of causal equations: the expected value of a number, given its parents.

They are given, restored from the arrays of a fitted regressor, or learned from the background (CE-OCL section 2.1,
causality).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.causal.forms import Additive, CausalFormula, input_columns, term_of, usual_code
from mlflow_cf.causal.opened import Arrays, arrays_of_network, restored
from mlflow_cf.constraints import CausalEquation, Constraints
from mlflow_cf.constraints.causal import formula_of
from mlflow_cf.constraints.model import LEARNABLE, Learnable, Stored
from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.quiet import quietly
from mlflow_cf.structures import Column, Forest, Layers, Structure, TreeEnsemble
from mlflow_cf.unlogged import unlogged

NODES: Final = ("column", "threshold", "left", "right", "value")
SEED: Final = 0  # fixed: causal functions do not depend on the seed of searches
DEPTH: Final = 5
LEAST_ROWS: Final = 5  # of a leaf
WIDTHS: Final = (10, 20, 50, 100)  # of the hidden layer, the best of which is kept
FOLDS: Final = 5
ROUNDS: Final = 500  # of lbfgs


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
        parents = _parents(equation, space)
        if isinstance(structure, Additive | CausalFormula):
            of_parents: Callable[[Floats], Floats] = structure.values
        else:
            unread = [structure.encode(column, np.zeros(1))[0] for column in range(len(space))]
            of_parents = partial(_raw_scores, structure.restrict(unread, parents))
        name = equation.model.stored if isinstance(equation.model, Stored) else ""
        return cls(space.index[equation.child], parents, structure, of_parents, arrays, name)

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


def _raw_scores(structure: Structure, codes: Floats) -> Floats:
    """Return the raw scores (m,) that a structure over p features has for codes (m, p)."""
    found: Floats = structure.sums([structure.encode(place, column) for place, column in enumerate(codes.T)])[:, 0]
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
        path = f"constraints.causal[{number}]"
        arrays: Arrays = {}
        structure: Structure | Additive | CausalFormula
        if equation.model is None:
            structure = _given(equation, space, path)
        else:
            arrays = next(known, {}) or _learned(equation, space, background, f"{path}.model")
            structure = _from_arrays(equation, space, arrays)
        functions.append(StructuralFunction.of(equation, space, structure, dict(arrays)))
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


def _given(equation: CausalEquation, space: FeatureSpace, path: str) -> Structure | Additive | CausalFormula:
    """Return what computes a function that the equation itself has."""
    if equation.formula is not None:
        usual = np.array([usual_code(space[name]) for name in equation.parents])
        return CausalFormula(formula_of(equation, equation.formula, space, f"{path}.formula"), usual, equation.formula)
    if equation.network is not None:
        arrays = arrays_of_network(equation, equation.network, space)
        return restored(arrays, space, _parents(equation, space))
    coefficients = equation.coefficients or {}
    terms = tuple(term_of(space[name], coefficients[name]) for name in equation.parents)
    return Additive(float(equation.intercept), terms)


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
    return fit(cast("Learnable", equation.model), inputs, known[:, space.index[equation.child]])


def _from_arrays(equation: CausalEquation, space: FeatureSpace, arrays: Arrays) -> Structure:
    """Return the structure of a learned or fitted function.

    Raises:
        KeyError, ValueError: the arrays do not fit these features.
    """
    parents = _parents(equation, space)
    if isinstance(equation.model, Stored):
        return restored(arrays, space, parents)
    columns = input_columns(space, parents)
    count = {"linear": 1, "mlp": 2}.get(cast("Learnable", equation.model), 0)
    names = [f"{name}_{at}" for at in range(count) for name in ("weights", "bias")] or [*NODES]
    if set(arrays) != {*names, "r2"} or not all(np.isfinite(array).all() for array in arrays.values()):
        raise ValueError("other arrays than are learned")
    if not count:
        return _tree_of(columns, space, arrays)
    weights, biases = ([arrays[f"{name}_{at}"] for at in range(count)] for name in ("weights", "bias"))
    widths = [len(columns), *(bias.size for bias in biases)]
    fits = [layer.shape for layer in weights] == [*pairwise(widths)] and widths[-1] == 1
    if not fits or any(bias.ndim != 1 for bias in biases):
        raise ValueError("layers of other inputs")
    return Layers.compile(columns, space, weights, biases, "relu" if count > 1 else "identity", "identity")


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


def fit(kind: Learnable, inputs: Floats, child: Floats) -> Arrays:
    """Fit a function of inputs (n, k) to a number (n,), and return its arrays.

    Returns:
        `r2` on these rows, and the layers (`weights_0` (k, width), `bias_0`, ...) or the nodes of the tree (`column`,
        `threshold`, `left`, `right`, `value`).
    """
    from sklearn.metrics import r2_score  # noqa: PLC0415  half a second that no server needs

    low, width = float(child.min()), float(np.ptp(child))
    scaled = (child - low) / width if width else np.zeros(len(child))
    learn = {"linear": _linear, "tree": _tree, "mlp": _mlp}[kind]
    fitted, arrays = learn(inputs, scaled)
    last = [*arrays][-1 if kind == "tree" else -2 :]  # the values of nodes, or the weights and the bias that come last
    for name in last:
        arrays[name] = arrays[name] * width
    arrays[last[-1]] = arrays[last[-1]] + low
    spread = width and len(child) > 1  # else there is nothing to learn
    return {**arrays, "r2": np.array(float(r2_score(scaled, fitted.predict(inputs))) if spread else 1.0)}


def _linear(inputs: Floats, child: Floats) -> tuple[Any, dict[str, NDArray[Any]]]:
    from sklearn.linear_model import LinearRegression  # noqa: PLC0415  as above

    fitted = unlogged(LinearRegression().fit, inputs, child)
    return fitted, {"weights_0": fitted.coef_[:, None].copy(), "bias_0": np.array([fitted.intercept_])}


def _tree(inputs: Floats, child: Floats) -> tuple[Any, dict[str, NDArray[Any]]]:
    from sklearn.tree import DecisionTreeRegressor  # noqa: PLC0415  as above

    tree = DecisionTreeRegressor(max_depth=DEPTH, min_samples_leaf=LEAST_ROWS, random_state=SEED)
    fitted = unlogged(tree.fit, inputs, child)
    nodes = fitted.tree_
    inner = nodes.feature >= 0
    return fitted, {
        "column": np.where(inner, nodes.feature, -1).astype(np.int32),
        "threshold": np.where(inner, nodes.threshold, 0.0),
        "left": np.where(inner, nodes.children_left, 0).astype(np.int32),
        "right": np.where(inner, nodes.children_right, 0).astype(np.int32),
        "value": nodes.value[:, 0, :1].copy(),
    }


def _mlp(inputs: Floats, child: Floats) -> tuple[Any, dict[str, NDArray[Any]]]:
    """Fit a network with one hidden layer of rectifiers; its width is the best one on held-out rows."""
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415  as above
    from sklearn.model_selection import KFold, cross_val_score  # noqa: PLC0415
    from sklearn.neural_network import MLPRegressor  # noqa: PLC0415

    def network(width: int) -> Any:
        return MLPRegressor(hidden_layer_sizes=(width,), solver="lbfgs", max_iter=ROUNDS, random_state=SEED)

    with quietly(ConvergenceWarning):  # more rounds would fit these rows better, not others
        best = WIDTHS[0]
        if len(child) >= 2 * FOLDS:
            folds = KFold(FOLDS, shuffle=True, random_state=SEED)
            scores = [cross_val_score(network(width), inputs, child, cv=folds, scoring="r2").mean() for width in WIDTHS]
            best = WIDTHS[int(np.argmax(scores))]
        fitted = unlogged(network(best).fit, inputs, child)
    arrays: dict[str, NDArray[Any]] = {}
    for at, (weights, bias) in enumerate(zip(fitted.coefs_, fitted.intercepts_, strict=True)):
        arrays |= {f"weights_{at}": weights, f"bias_{at}": bias}
    return fitted, arrays
