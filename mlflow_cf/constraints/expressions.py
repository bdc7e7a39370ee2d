"""Expressions that rules compare: values of the query row ``x`` and of the counterfactual ``x_cf``, and arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Feature, Floats

Side = Literal["x", "x_cf"]
Arithmetic = Literal["+", "-", "*", "/"]
Function = Literal["abs", "min", "max", "floor", "exp"]


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
class Sum:
    """Arithmetic on two expressions; dividing by 0 gives something unknown."""

    sign: Arithmetic
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Apply:
    """A function of expressions; unknown where one of them is, or where it overflows."""

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


Expression = Const | Ref | Sum | Apply | Recoded | Changed | Computed
MISSING = Const(np.nan)
ARITHMETIC: Final = (Sum, Apply)  # no bare values: two unknown values of these are never equal


def level_table(source: Feature, into: Feature) -> tuple[float, ...]:
    """Return the codes in `into` of all levels of `source`; infinite, equal to nothing, for those it lacks."""
    return tuple(float(into.code_of.get(level, np.inf)) for level in source.known)


def rebuilt(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Return the expression with every part of it changed, the innermost first."""
    match expression:
        case Sum(sign, left, right):
            expression = Sum(sign, rebuilt(left, change), rebuilt(right, change))
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
        case Sum(_, left, right):
            yield from references(left)
            yield from references(right)
        case Recoded(of):
            yield from references(of)
        case Apply(_, several):
            yield from chain.from_iterable(map(references, several))
        case Changed(groups):
            for column in chain.from_iterable(groups):
                yield from (Ref("x", column), Ref("x_cf", column))
        case Computed(by):
            for column in by.columns:
                yield from (Ref("x", column), Ref("x_cf", column))


def evaluate(expression: Expression, Z: Floats, x0: Floats) -> Floats:
    """Return the values (m,) for candidates Z (m, d) of the query row x0 (d,), or of a query row each (m, d)."""
    match expression:
        case Const(value):
            return np.full(len(Z), value)
        case Ref(side, column):
            return np.full(len(Z), x0[..., column]) if side == "x" else Z[:, column]
        case Sum(sign, left, right):
            return _arithmetic(sign, evaluate(left, Z, x0), evaluate(right, Z, x0))
        case Apply(function, several):
            return _applied(function, [evaluate(of, Z, x0) for of in several])
        case Recoded(of):
            return _look_up(evaluate(of, Z, x0), expression.table)
        case Changed() | Computed():
            return _counted_or_computed(expression, Z, x0)


def _counted_or_computed(expression: Changed | Computed, Z: Floats, x0: Floats) -> Floats:
    return expression.by.values(Z, x0) if isinstance(expression, Computed) else _changed(expression.groups, Z, x0)


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


def _arithmetic(sign: Arithmetic, left: Floats, right: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        match sign:
            case "+":
                result = left + right
            case "-":
                result = left - right
            case "*":
                result = left * right
            case "/":
                result = left / right
    result[~np.isfinite(result)] = np.nan
    return result


def _applied(function: Function, values: Sequence[Floats]) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        match function:
            case "abs":
                result = np.abs(values[0])
            case "floor":
                result = np.floor(values[0])
            case "exp":
                result = np.exp(values[0])
            case "min":
                result = np.minimum.reduce(values)
            case "max":
                result = np.maximum.reduce(values)
    result[~np.isfinite(result)] = np.nan
    return result
