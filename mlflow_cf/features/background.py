"""The background: a sample of training rows, or rows that stand in for it where only single columns may be kept.

Also how many rows of the background lie below a value, feature by feature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.features.feature import Feature, Floats


class BackgroundRows(NamedTuple):
    """Rows of training data as a table, their labels (m,), if they are known, and their codes (m, d), if at hand."""

    rows: pd.DataFrame
    labels: NDArray[np.generic] | None
    codes: Floats | None = None


def stand_ins(codes: Floats) -> Floats:
    """Return rows (n, d) with the values of every column of `codes` (n, d) as often as there, and no row of it.

    Each column is sorted before it is shuffled, and the seed is fixed: the result depends on what is in the columns,
    and not on which values stood beside each other. Where columns have few values, rows may meet again by chance.
    """
    rng = np.random.default_rng(0)
    return np.column_stack([rng.permutation(np.sort(column)) for column in codes.T])


@dataclass(frozen=True, eq=False)
class Percentiles:
    """The background's distribution of every number and ordinal, as lines between known values.

    Below an observed value lie the rows whose value is smaller, and half of those that have it. Between two observed
    values the line is straight, and beyond the smallest and the largest one it goes on as if the background's rows were
    spread evenly over its range. So it rises everywhere: no two values have as many rows below them.

    Attributes:
        values: (k,) where lines begin or end, column after column, as complex numbers: column, and value.
        below: (k,) rows below each of these.
        first, last: (d,) the first and the last line of every column.
        rows: (d,) rows that have a value; 0 for levels, and for numbers without range: of these nothing is known.
    """

    values: NDArray[np.complex128]
    below: Floats
    first: NDArray[np.intp]
    last: NDArray[np.intp]
    rows: Floats

    @classmethod
    def of(cls, features: Sequence[Feature]) -> Percentiles:
        """Read the distributions off the active domains of features."""
        lines = [_lines(feature) for feature in features]
        sizes = np.array([values.size for values, _ in lines])
        start = sizes.cumsum() - sizes
        column, rows = np.arange(len(sizes)).repeat(sizes), [f.counts.sum() if _range(f) else 0.0 for f in features]
        values, below = (np.concatenate(side) for side in zip(*lines, strict=True))
        return cls(_keys(column, values), below, start, start + sizes - 2, np.array(rows))

    def rows_below(self, columns: NDArray[np.intp], values: Floats) -> Floats:
        """Return the rows below values (n,) or (m, n) of `columns` (n,); whatever for one that is missing or a level.

        Half rows are exact numbers, and so no line rises beyond the point where the next one begins.
        """
        # one column after the other: in large tables neighbours in search are neighbours in memory
        at = self.values.searchsorted(_keys(columns, values).T, side="right").T - 1
        at = at.clip(self.first[columns], self.last[columns])
        start, end = self.values.imag[at], self.values.imag[at + 1]
        below: Floats = self.below[at] + (values - start) / (end - start) * (self.below[at + 1] - self.below[at])
        return below


def _range(feature: Feature) -> float:
    """Return the range of what is observed and declared; 0 for levels, and where nothing is observed."""
    if not feature.has_order or not feature.values.size:
        return 0.0
    return float(max(feature.high, feature.values[-1]) - min(feature.low, feature.values[0]))


def _lines(feature: Feature) -> tuple[Floats, Floats]:
    """Return the values at which lines of a feature begin or end, and the rows below each.

    The first and the last one are a range outside of what is observed, with as many rows in between as there are.
    """
    values, counts, extent = feature.values, feature.counts, _range(feature)
    if not extent:
        return np.array([0.0, 1.0]), np.zeros(2)
    below, rows = counts.cumsum() - counts / 2, counts.sum()
    return (
        np.concatenate([values[:1] - extent, values, values[-1:] + extent]),
        np.concatenate([below[:1] - rows, below, below[-1:] + rows]),
    )


def _keys(columns: NDArray[np.intp], values: Floats) -> NDArray[np.complex128]:
    """Return columns and values as complex numbers, which are ordered by the real part first."""
    keys = np.empty(np.broadcast_shapes(columns.shape, values.shape), dtype=np.complex128)
    keys.real, keys.imag = columns, values
    return keys
