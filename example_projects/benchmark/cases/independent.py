"""What a counterfactual must be, once more and in the plainest way: nothing here uses mlflow_cf."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Row = Mapping[str, Any]
Known = Mapping[str, set[Any]]
ALONE = {"immutable", "increasing"}  # these speak of one feature at a time
LIMITS = {"ranges", "relative", "forbidden"}  # feature -> its limits
OPERATIONS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def known_values(background: pd.DataFrame) -> dict[str, set[Any]]:
    """Return the values every column has in the background: all that may be proposed."""
    return {name: set(background[name].tolist()) for name in map(str, background)}


def spreads(background: pd.DataFrame) -> dict[str, float]:
    """Return what a change of every column is divided by: largest minus smallest number, 0 for levels."""
    numbers = background.select_dtypes("number")
    return {name: float(np.ptp(numbers[name])) if name in numbers else 0.0 for name in map(str, background)}


def broken(constraints: Mapping[str, Any], x0: Row, row: Row) -> list[str]:
    """Return what `row` breaks as a counterfactual of `x0`; empty: nothing."""
    _only_known(constraints, {*ALONE, *LIMITS, "rules"})
    changed = [name for name in x0 if row[name] != x0[name]]
    faults = [f"{name} is immutable" for name in constraints.get("immutable", ()) if name in changed]
    faults += [f"{name} fell" for name in constraints.get("increasing", ()) if row[name] < x0[name]]
    faults += [f"against {rule}" for rule in constraints.get("rules", ()) if not meets(rule, x0, row)]
    faults += _beyond(constraints, x0, row, changed)
    return faults if changed else ["nothing changed"]


def _beyond(constraints: Mapping[str, Any], x0: Row, row: Row, changed: Sequence[str]) -> list[str]:
    """Return the changes that leave a feature's own limits."""
    faults = []
    for name, (low, high) in constraints.get("ranges", {}).items():
        if name in changed and not (low is None or row[name] >= low) & (high is None or row[name] <= high):
            faults.append(f"{name} leaves its range")
    for name, most in constraints.get("relative", {}).items():
        if not x0[name] - most.get("down", np.inf) <= row[name] <= x0[name] + most.get("up", np.inf):
            faults.append(f"{name} changes by too much")
    for name, pairs in constraints.get("forbidden", {}).items():
        if [x0[name], row[name]] in pairs:
            faults.append(f"{name} may not become {row[name]}")
    return faults


def unknown(known: Known, x0: Row, row: Row) -> list[str]:
    """Return what `row` proposes although the background has no such value."""
    return [f"{name} has a value the background has not" for name in x0 if row[name] not in {*known[name], x0[name]}]


def meets(rule: str, x0: Row, row: Row) -> bool:
    """Return whether `row` meets a rule ``IF condition THEN condition`` about itself (x_cf) and `x0` (x).

    The conditions of our rules happen to be Python expressions, so Python's own reader takes them apart.
    """
    parts = re.fullmatch(r"IF (.+) THEN (.+)", rule)
    if parts is None:
        raise ValueError(f"the independent checker cannot read the rule {rule!r}")
    rows = {"x": x0, "x_cf": row}
    given, needed = (_value(ast.parse(part, mode="eval").body, rows) for part in parts.groups())
    return bool(needed or not given)


def _value(node: ast.expr, rows: Mapping[str, Row]) -> Any:
    """Return the value of an expression; what our rules do not use is refused."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Attribute(value=ast.Name(id=row), attr=name):
            return rows[row][name]
        case ast.BoolOp(op=op, values=parts):
            return (all if isinstance(op, ast.And) else any)(_value(part, rows) for part in parts)
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
            return OPERATIONS[type(op)](_value(left, rows), _value(right, rows))
        case _:
            raise ValueError(f"the independent checker cannot read {ast.unparse(node)!r}")


def allowed(constraints: Mapping[str, Sequence[str]], name: str, own: Any, values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which of `values` (v,) a counterfactual of a row with value `own` may have in column `name`."""
    _only_known(constraints, ALONE)
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


def distance(weights: tuple[float, float], spread: Mapping[str, float], x0: Row, row: Row) -> float:
    """Return the distance by its formula.

    Args:
        weights: of the share of changed features, and of the mean scaled change over all features.
        spread: what a change of every column is divided by.
        x0, row: the row to explain and its counterfactual.
    """
    changes = [change(spread[name], x0[name], np.array([row[name]], dtype=object))[0] for name in x0]
    share = np.mean([row[name] != x0[name] for name in x0])
    return float(weights[0] * share + weights[1] * np.mean(changes))


def _only_known(constraints: Mapping[str, Any], keys: set[str]) -> None:
    unread = set(constraints) - keys
    if unread:
        raise ValueError(f"the independent checker does not know the constraints {sorted(unread)}")
