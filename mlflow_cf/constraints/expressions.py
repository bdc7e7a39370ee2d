"""Expressions that rules compare: values of the query row ``x`` and of the counterfactual ``x_cf``, and arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Feature, Floats
from mlflow_cf.plaf import Function

Side = Literal["x", "x_cf"]
SIDES: Final[tuple[Side, ...]] = ("x", "x_cf")
FUNCTIONS: Final[Mapping[Function, Callable[..., Any]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "abs": np.abs,
    "min": np.minimum,
    "max": np.maximum,
    "floor": np.floor,
    "exp": np.exp,
}


@dataclass(frozen=True)
class Const:
    """A number or the code of a level; NaN stands for missing, -1 for a level nobody knows."""

    value: float


@dataclass(frozen=True)
class Ref:
    """The value of one column of the query row (``x``) or of the counterfactual (``x_cf``)."""

    side: Side
    column: int


@dataclass(frozen=True)
class Apply:
    """Arithmetic on two expressions, or a function of some; unknown where one is, by division by 0, or by overflow.

    No bare value: two unknown values of it are never equal.
    """

    function: Function
    of: tuple[Expression, ...]


@dataclass(frozen=True)
class Recoded:
    """The level of one feature in the codes of another.

    Attributes:
        of: the level.
        source, into: columns of the two features.
        table: code in `source` -> code in `into`, infinite for a level that `into` lacks; see `recode`.
    """

    of: Expression
    source: int
    into: int
    table: tuple[float, ...]


@dataclass(frozen=True)
class Changed:
    """How many of some groups of columns differ from the query row; two missing values do not."""

    groups: tuple[tuple[int, ...], ...]


class Computation(Protocol):
    """A number that Python code computes: the error of a causal equation, or the result of a Python function."""

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns that it depends on, of the query row and of the counterfactual."""
        ...

    def values(self, Z: Floats, x0: Floats) -> Floats:
        """Return the numbers (m,) for candidates Z (m, d) of x0 (d,), or of a row each (m, d); NaN where unknown."""
        ...


@dataclass(frozen=True)
class Computed:
    """The expression of a `Computation`."""

    by: Computation


Expression = Const | Ref | Apply | Recoded | Changed | Computed
MISSING = Const(np.nan)


def level_table(source: Feature, into: Feature) -> tuple[float, ...]:
    """Return the codes in `into` of all levels of `source`; infinite, equal to nothing, for those it lacks."""
    return tuple(float(into.code_of.get(level, np.inf)) for level in source.known)


def rebuilt(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Return the expression with every part of it changed, the innermost first."""
    match expression:
        case Recoded(of):
            expression = replace(expression, of=rebuilt(of, change))
        case Apply(function, several):
            expression = Apply(function, tuple(rebuilt(of, change) for of in several))
    return change(expression)


def references(expression: Expression) -> Iterator[Ref]:
    """Yield every value of a row that the expression mentions."""
    match expression:
        case Ref():
            yield expression
        case Recoded(of):
            yield from references(of)
        case Apply(_, several):
            yield from chain.from_iterable(map(references, several))
        case Changed(groups):
            yield from (Ref(side, column) for column in chain.from_iterable(groups) for side in SIDES)
        case Computed(by):
            yield from (Ref(side, column) for column in by.columns for side in SIDES)


def evaluate(expression: Expression, Z: Floats, x0: Floats) -> Floats:
    """Return the values (m,) for candidates Z (m, d) of the query row x0 (d,), or of a query row each (m, d)."""
    match expression:
        case Const(value):
            return np.full(len(Z), value)
        case Ref(side, column):
            return np.full(len(Z), x0[..., column]) if side == "x" else Z[:, column]
        case Apply(function, several):
            return _applied(function, [evaluate(of, Z, x0) for of in several])
        case Recoded(of):
            return _look_up(evaluate(of, Z, x0), expression.table)
        case Changed(groups):
            return _changed(groups, Z, x0)
        case Computed(by):
            return by.values(Z, x0)


def _changed(groups: Sequence[Sequence[int]], Z: Floats, x0: Floats) -> Floats:
    differs = differing(Z, x0)
    singles = [columns[0] for columns in groups if len(columns) == 1]
    count: Floats = differs[:, singles].sum(axis=1, dtype=np.float64)
    for columns in groups:
        if len(columns) > 1:
            count += differs[:, columns].any(axis=1)
    return count


def differing(Z: Floats, x0: Floats) -> NDArray[np.bool_]:
    """Return (m, d) where rows Z (m, d) differ from the query row (d,), or from a query row each (m, d)."""
    differs: NDArray[np.bool_] = (x0 != Z) & ~(np.isnan(Z) & np.isnan(x0))
    return differs


def _look_up(codes: Floats, table: tuple[float, ...]) -> Floats:
    known = ~np.isnan(codes) & (codes < len(table))
    values = np.asarray(table)[np.where(known, codes, 0).astype(np.intp)]
    return np.where(known, values, np.where(np.isnan(codes), np.nan, np.inf))


def _applied(function: Function, values: Sequence[Floats]) -> Floats:
    compute = FUNCTIONS[function]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        result: Floats = reduce(compute, values) if len(values) > 1 else compute(values[0])
    result[~np.isfinite(result)] = np.nan
    return result
