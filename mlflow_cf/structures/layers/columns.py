"""Encoded columns: how the numbers an estimator sees come from one raw feature each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats

Operation = Callable[[NDArray[Any]], NDArray[Any]]
DOUBLE = np.dtype(np.float64)


class NotOpenedError(Exception):
    """A part of a model that cannot be compiled, or is not known.

    Attributes:
        what: that is, in words, for `describe()`.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


@dataclass(frozen=True)
class ClippedLine:
    """The formula ``min(max(slope * x + offset, low), high)``."""

    slope: float = 1.0
    offset: float = 0.0
    low: float = -math.inf
    high: float = math.inf

    def then(self, later: ClippedLine) -> ClippedLine:
        """Return the composition: `later` applied to the result of this one."""

        def clipped(end: float) -> float:
            return min(max(later.slope * end + later.offset, later.low), later.high)

        slope, offset = later.slope * self.slope, later.slope * self.offset + later.offset
        if not later.slope:
            return ClippedLine(0.0, clipped(0.0))
        ends = sorted((clipped(self.low), clipped(self.high)))
        return ClippedLine(slope, offset, *ends)


@dataclass(frozen=True, eq=False)
class MonotoneStep:
    """One element-wise operation on numbers that never reverses their order, such as scaling or imputing.

    Attributes:
        operation: values (n,) -> values (n,), in the estimator's own arithmetic.
        affine: the operation as a formula, up to rounding and missing values; None if it has none.
    """

    operation: Operation
    affine: ClippedLine | None = None


@dataclass(frozen=True, eq=False)
class NumberColumn:
    """A raw number after some element-wise steps that never reverse its order, such as scaling or imputing.

    Attributes:
        feature: raw column.
        steps: applied one after the other to values (n,), in the estimator's own arithmetic.
        dtype: what holds the result of the last step.
        gap: the estimator takes encoded values from the first to the second number as missing.
    """

    feature: int
    steps: tuple[MonotoneStep, ...] = ()
    dtype: np.dtype[Any] = DOUBLE
    gap: tuple[float, float] | None = None

    def monotone(self, codes: Floats) -> Floats:
        """Return the encoded values (n,) of raw codes (n,), ignoring the gap."""
        values: NDArray[Any] = codes
        for step in self.steps:
            values = step.operation(values)
        return values.astype(np.float64, copy=False)

    def encode(self, codes: Floats) -> Floats:
        """Return the encoded values (n,) of raw codes (n,)."""
        values = self.monotone(codes)
        if self.gap is None:
            return values
        low, high = self.gap
        return np.where((values >= low) & (values <= high), np.nan, values)

    @property
    def affine(self) -> ClippedLine | None:
        """The encoding as a formula, up to rounding and missing values; None if it has none."""
        whole = ClippedLine()
        for step in self.steps:
            if step.affine is None:
                return None
            whole = whole.then(step.affine)
        return whole if self.gap is None else None


@dataclass(frozen=True, eq=False)
class LevelColumn:
    """A number for every level of a raw feature, such as one column of a one-hot block.

    Attributes:
        feature: raw column.
        table: (levels + 2,) encoded value of every level, then of unseen levels, then of missing values.
    """

    feature: int
    table: Floats

    def encode(self, codes: Floats) -> Floats:
        """Return the encoded values (n,) of raw codes (n,)."""
        return np.asarray(self.table[level_cells(codes, len(self.table) - 2)])


@dataclass(frozen=True, eq=False)
class IntervalColumn:
    """A number for every interval of a raw number, such as one column of a one-hot block of bins.

    Attributes:
        number: the encoded number that is cut into intervals.
        cuts: ascending; an interval holds the values above one cut that are at most the next one.
        table: (cuts + 2,) encoded value of every interval, then of missing values.
    """

    number: NumberColumn
    cuts: Floats
    table: Floats

    @property
    def feature(self) -> int:
        """Raw column."""
        return self.number.feature

    def encode(self, codes: Floats) -> Floats:
        """Return the encoded values (n,) of raw codes (n,)."""
        values = self.number.encode(codes)
        return np.asarray(self.table[np.where(np.isnan(values), -1, self.cuts.searchsorted(values))])


@dataclass(frozen=True, eq=False)
class CurveColumn:
    """Any function of one raw feature, such as a power of a number; layers take it, trees do not.

    Between two numbers it may take any value, so that only listed values are bounded.

    Attributes:
        feature: raw column.
        function: raw codes (n,) -> encoded values (n,), in the estimator's own arithmetic.
        dtype: what holds the result.
    """

    feature: int
    function: Operation
    dtype: np.dtype[Any] = DOUBLE

    def encode(self, codes: Floats) -> Floats:
        """Return the encoded values (n,) of raw codes (n,)."""
        return self.function(codes).astype(np.float64, copy=False)


Column = NumberColumn | LevelColumn | IntervalColumn | CurveColumn


def value_of_missing(column: Column) -> float:
    """Return the encoded value of a missing raw one; NaN if it stays missing."""
    return float(column.encode(np.array([np.nan]))[0])


def level_cells(codes: Floats, levels: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Return positions (n,) in the table of a `LevelColumn` with so many levels."""
    missing = np.isnan(codes)
    known = np.where(missing, 0, codes).astype(np.intp)
    return np.where(missing, levels + 1, np.minimum(known, levels))
