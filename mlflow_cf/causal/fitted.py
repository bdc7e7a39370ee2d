"""Fitted regressors as causal functions: they are opened once, and stored as plain arrays."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.causal.function import StructuralFunction
from mlflow_cf.causal.opened import Arrays, arrays_of, arrays_of_network, restored
from mlflow_cf.constraints import CausalEquation, Constraints
from mlflow_cf.constraints.causal import equation_errors
from mlflow_cf.constraints.model import Stored
from mlflow_cf.errors import InputError, raise_all
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.model.flavors import open_native
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.structures import NotOpenedError

COMPARED: Final = 500  # rows on which the opened function is compared with the regressor


def with_arrays(
    constraints: Constraints, space: FeatureSpace, rows: pd.DataFrame, background: Floats
) -> tuple[Constraints, tuple[Arrays, ...]]:
    """Return constraints with marks in place of fitted regressors and networks, and these as arrays.

    Args:
        constraints: perhaps with estimators and networks.
        space: the features.
        rows: the background as a table; background: (n, d) its codes.

    Returns:
        The constraints, and per equation with a model its arrays, in order; none for those still to be learned.

    Raises:
        InputError: equations that do not fit the features, or a regressor that cannot be opened.
    """
    if all(_is_plain(equation) for equation in constraints.causal):
        return constraints, ()
    raise_all(equation_errors(constraints.causal, space, "policy", reveal=True))
    equations: list[CausalEquation] = []
    kept: list[Arrays] = []
    for number, equation in enumerate(constraints.causal):
        path = f"constraints.causal[{number}].model"
        if _is_plain(equation):
            equations.append(equation)
            kept += [] if equation.model is None else [{}]
            continue
        name = "network" if equation.network is not None else _name(equation.model)
        arrays = _arrays(equation, space, rows, path)
        equations.append(equation.model_copy(update={"model": Stored(stored=name), "network": None}))
        kept.append({**arrays, "r2": _r2(equations[-1], space, background, arrays)})
    return constraints.model_copy(update={"causal": tuple(equations)}), tuple(kept)


def _is_plain(equation: CausalEquation) -> bool:
    """Whether an equation is plain data: it has no fitted regressor and no network to store as arrays."""
    plain = equation.model is None or isinstance(equation.model, str | Stored)
    return plain and equation.network is None


def _name(model: Any) -> str:
    """Return the class of an estimator, or of the last one of a pipeline."""
    return _name(model.steps[-1][1]) if hasattr(model, "steps") else type(model).__name__


def _arrays(equation: CausalEquation, space: FeatureSpace, rows: pd.DataFrame, path: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a network, or of a regressor that is opened; its own predictions must be those of these."""
    if equation.network is not None:
        return arrays_of_network(equation, equation.network, space)
    parents = [space.index[name] for name in equation.parents]
    own = FeatureSpace(tuple(space.features[parent] for parent in parents))
    table = rows.loc[:, list(own.columns)].dropna()
    opened = _opened(equation, table, path)
    if opened.compile is None:
        raise _closed(equation, "its kind of model", path)
    try:
        arrays = arrays_of(opened.compile(own, table), own)
        structure = restored(arrays, space, parents)
    except NotOpenedError as error:
        raise _closed(equation, str(error), path) from error
    except ValueError as error:  # such as a level for which it has no number
        raise _closed(equation, "a number that is none", path) from error
    tried = table.iloc[:COMPARED]
    predicted = np.asarray(opened.decide(tried), dtype=np.float64)
    found = StructuralFunction.of(equation, space, structure, {}).of_parents(own.encode(tried))
    worst = float((np.abs(found - predicted) / np.maximum(1.0, np.abs(predicted))).max())
    if not worst <= opened.tolerance:
        fact = f"what was opened differs from its predictions by {worst:.1e}"
        raise InputError(path, fact, "give a formula, a network or coefficients")
    return arrays


def _opened(equation: CausalEquation, table: pd.DataFrame, path: str) -> OpenModel:
    """Return a regressor opened for the table of its parents."""
    if not len(table):
        raise InputError(path, "no row has values of all its parents to try it on", "give coefficients")
    try:
        opened = open_native(equation.model, rows=table)
    except InputError as error:
        fix = "list all that it reads as parents" if error.path == "data" else error.fix
        raise InputError(path, f"{error.path}: {error.fact}", fix) from error
    if not opened.regression:
        raise InputError(path, f"{_name(equation.model)} predicts labels", "pass a regressor")
    return opened


def _closed(equation: CausalEquation, obstacle: str, path: str) -> InputError:
    fact = f"{_name(equation.model)} cannot be opened ({obstacle})"
    return InputError(path, fact, "give a formula, a network or coefficients, or model: linear, tree or mlp")


def _r2(equation: CausalEquation, space: FeatureSpace, background: Floats, arrays: Arrays) -> NDArray[Any]:
    """Return the share of the child's variance that a function explains (R2), on the rows that have the child."""
    child, parents = space.index[equation.child], [space.index[name] for name in equation.parents]
    known = background[~np.isnan(background[:, child])]
    truth = known[:, child]
    found = StructuralFunction.of(equation, space, restored(arrays, space, parents), arrays).values(known)
    spread = float(((truth - truth.mean()) ** 2).sum()) if len(truth) else 0.0
    return np.array(1.0 - float(((truth - found) ** 2).sum()) / spread if spread else 1.0)
