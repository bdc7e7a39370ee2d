"""A mixed-integer program while it is built: columns (variables) with bounds and costs, and rows (constraints).

Rows are linear expressions over the columns, with bounds that always hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from mlflow_cf.features import Floats

Columns = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Affine:
    """``constant + sum(coefficients * columns)``, and bounds `low` and `high` that hold for every solution.

    Attributes:
        columns, coefficients: (n,); a column may stand here more than once.
    """

    columns: Columns
    coefficients: Floats
    constant: float
    low: float
    high: float

    @classmethod
    def of(cls, constant: float) -> Affine:
        """Return an expression without columns."""
        return cls(np.empty(0, dtype=np.intp), np.empty(0), constant, constant, constant)

    @classmethod
    def chosen(cls, columns: Columns, values: Floats) -> Affine:
        """Return the sum of `values` (n,), n >= 1, weighted by binary columns (n,) of which exactly one is 1.

        Of a single value no column is needed.
        """
        if len(values) == 1:
            return cls.of(float(values[0]))
        base = float(values.min())  # fewer and smaller coefficients
        some = values != base
        return cls(columns[some], values[some] - base, base, base, float(values.max()))

    @property
    def fixed(self) -> bool:
        """Whether it is a constant."""
        return not len(self.columns)

    def times(self, factor: float) -> Affine:
        """Return the expression multiplied by a number."""
        ends = sorted((self.low * factor, self.high * factor))
        return Affine(self.columns, self.coefficients * factor, self.constant * factor, *ends)

    def plus(self, constant: float) -> Affine:
        """Return the expression with a number added."""
        low, high = self.low + constant, self.high + constant
        return Affine(self.columns, self.coefficients, self.constant + constant, low, high)

    def value(self, values: Floats) -> float:
        """Return its value in a solution, which has the values of all columns of the program."""
        return float(self.constant + self.coefficients @ values[self.columns])


def total(parts: Sequence[Affine]) -> Affine:
    """Return the sum of expressions."""
    if not parts:
        return Affine.of(0.0)
    return Affine(
        np.concatenate([part.columns for part in parts]),
        np.concatenate([part.coefficients for part in parts]),
        sum(part.constant for part in parts),
        sum(part.low for part in parts),
        sum(part.high for part in parts),
    )


def difference(left: Affine, right: Affine) -> Affine:
    """Return `left` minus `right`."""
    return total([left, right.times(-1.0)])


@dataclass(frozen=True, eq=False)
class Entries:
    """Sparse coefficients (e,): of each its row, counted from 0 within one call, its column, and its value.

    A single value stands for all.
    """

    row: Columns
    column: Columns
    value: Floats | float


@dataclass(frozen=True)
class Square:
    """The square of ``factor * (up + down)``, of which at most one is more than 0, and a column at most as large."""

    column: int
    up: int
    down: int
    factor: float


@dataclass(eq=False)
class Program:
    """Minimise `costs` over columns within bounds, subject to rows within bounds.

    Attributes:
        size: number of columns; height: number of rows.
        costs: expressions, the sum of which is minimised.
        squares: columns with a cost that stand for squares, and are bounded by tangents.
    """

    size: int = 0
    height: int = 0
    lower: list[Floats] = field(default_factory=list)
    upper: list[Floats] = field(default_factory=list)
    integer: list[NDArray[np.bool_]] = field(default_factory=list)
    row_lower: list[Floats] = field(default_factory=list)
    row_upper: list[Floats] = field(default_factory=list)
    entries: list[Entries] = field(default_factory=list)
    costs: list[Affine] = field(default_factory=list)
    squares: list[Square] = field(default_factory=list)

    def add_columns(
        self, count: int, low: ArrayLike = 0.0, high: ArrayLike = 1.0, *, integer: bool = False, cost: float = 0.0
    ) -> Columns:
        """Add columns with bounds, (count,) or one for all, and return their numbers (count,)."""
        columns = np.arange(self.size, self.size + count)
        self.size += count
        self.lower.append(np.full(count, low, dtype=np.float64))
        self.upper.append(np.full(count, high, dtype=np.float64))
        self.integer.append(np.full(count, integer))
        if cost:
            self.costs.append(Affine(columns, np.full(count, cost), 0.0, -np.inf, np.inf))
        return columns

    def add_column(self, low: float, high: float, *, integer: bool = False, cost: float = 0.0) -> Affine:
        """Add one column with bounds and return it as an expression."""
        return Affine(self.add_columns(1, low, high, integer=integer, cost=cost), np.ones(1), 0.0, low, high)

    def add_binary(self) -> Affine:
        """Add a column that is 0 or 1 and return it as an expression."""
        return self.add_column(0.0, 1.0, integer=True)

    def add_binaries(self, count: int) -> Columns:
        """Add columns that are 0 or 1 and return their numbers (count,)."""
        return self.add_columns(count, integer=True)

    def add_rows(self, count: int, lower: ArrayLike, upper: ArrayLike, *entries: Entries) -> None:
        """Add rows with bounds, (count,) or one for all, and the sum of `entries` as coefficients."""
        self.row_lower.append(np.full(count, lower, dtype=np.float64))
        self.row_upper.append(np.full(count, upper, dtype=np.float64))
        for part in entries:
            value = np.full(len(part.row), part.value, dtype=np.float64)
            self.entries.append(Entries(part.row + self.height, part.column, value))
        self.height += count

    def require(self, parts: Sequence[Affine], lower: ArrayLike, upper: ArrayLike, *more: Entries) -> None:
        """Add a row for each of m expressions that keeps it, plus `more`, within bounds, (m,) or one for all."""
        constant, whole = np.array([part.constant for part in parts]), total(parts)
        row = np.repeat(np.arange(len(parts)), [len(part.columns) for part in parts])
        lower, upper = np.asarray(lower) - constant, np.asarray(upper) - constant
        self.add_rows(len(parts), lower, upper, Entries(row, whole.columns, whole.coefficients), *more)

    @property
    def objective(self) -> Affine:
        """The objective as one expression."""
        return total(self.costs)

    def exact_cost(self, values: Floats) -> float:
        """Return the objective for the values of all columns, with exact squares instead of their tangents."""
        squares = [(one.factor * (values[one.up] + values[one.down])) ** 2 - values[one.column] for one in self.squares]
        return self.objective.value(values) + float(sum(squares))

    @property
    def matrix(self) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
        """All rows as a sparse matrix (starts, columns, values), with equal entries added up."""
        none = np.empty(0, dtype=np.intp)
        every = [Entries(none, none, np.empty(0)), *self.entries]
        places = np.concatenate([one.row for one in every]), np.concatenate([one.column for one in every])
        whole = csr_array((np.concatenate([one.value for one in every]), places), shape=(self.height, self.size))
        whole.sum_duplicates()
        whole.eliminate_zeros()
        return whole.indptr.astype(np.int32), whole.indices.astype(np.int32), whole.data


class NotLinearError(Exception):
    """Something that linear constraints cannot express exactly.

    Attributes:
        what: that is, in words.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
