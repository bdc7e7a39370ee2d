"""Linear expressions over the columns of a program, with bounds that always hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        """Return the sum of `values` (n,), n >= 1, weighted by binary columns (n,) of which exactly one is 1."""
        if len(columns) == 1:
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
