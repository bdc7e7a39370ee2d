"""What a counterfactual must be, once more and in the plainest way: nothing here uses mlflow_cf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Row = Mapping[str, Any]
Known = Mapping[str, set[Any]]
KEYS = {"immutable", "increasing"}


def known_values(background: pd.DataFrame) -> dict[str, set[Any]]:
    """Return the values every column has in the background: all that may be proposed."""
    return {name: set(background[name].tolist()) for name in map(str, background)}


def spreads(background: pd.DataFrame) -> dict[str, float]:
    """Return what a change of every column is divided by: largest minus smallest number, 0 for levels."""
    numbers = background.select_dtypes("number")
    return {name: float(np.ptp(numbers[name])) if name in numbers else 0.0 for name in map(str, background)}


def broken(constraints: Mapping[str, Sequence[str]], known: Known, x0: Row, row: Row) -> list[str]:
    """Return what `row` breaks as a counterfactual of `x0`; empty: nothing."""
    _only_known(constraints)
    changed = [name for name in x0 if row[name] != x0[name]]
    faults = [f"{name} is immutable" for name in constraints.get("immutable", ()) if name in changed]
    faults += [f"{name} fell" for name in constraints.get("increasing", ()) if row[name] < x0[name]]
    faults += [f"{name} has a value the background has not" for name in changed if row[name] not in known[name]]
    return faults if changed else ["nothing changed"]


def allowed(constraints: Mapping[str, Sequence[str]], name: str, own: Any, values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which of `values` (v,) a counterfactual of a row with value `own` may have in column `name`."""
    _only_known(constraints)
    if name in constraints.get("immutable", ()):
        return np.asarray(values == own)
    if name in constraints.get("increasing", ()):
        return np.asarray(values >= own)
    return np.ones(len(values), dtype=np.bool_)


def change(spread: float, own: Any, values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the scaled change (v,) from `own` to each of `values`: a share of the spread, or 1 for another level."""
    if not spread:
        return np.asarray(values != own, dtype=np.float64)
    return np.asarray(np.abs(values.astype(np.float64) - own) / spread)


def mean_change(spread: Mapping[str, float], x0: Row, row: Row) -> float:
    """Return the l1 distance of the paper: the mean of the scaled changes over all columns."""
    return float(np.mean([change(spread[name], x0[name], np.array([row[name]], dtype=object))[0] for name in x0]))


def _only_known(constraints: Mapping[str, Sequence[str]]) -> None:
    unknown = set(constraints) - KEYS
    if unknown:
        raise ValueError(f"the independent checker does not know the constraints {sorted(unknown)}")
