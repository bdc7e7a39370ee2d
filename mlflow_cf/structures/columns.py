"""Encoded columns: how the numbers an estimator sees come from one raw feature each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mlflow_cf.features import Floats

Step = Callable[[Floats], Floats]


class NotOpenedError(Exception):
    """A part of a model that cannot be compiled; the message says which, for `describe()`."""


@dataclass(frozen=True, eq=False)
class NumberColumn:
    """A raw number after some element-wise steps that never reverse its order, such as scaling or imputing.

    Attributes:
        feature: raw column.
        steps: applied one after the other to values (n,), in the estimator's own arithmetic.
    """

    feature: int
    steps: tuple[Step, ...] = ()

    def encode(self, codes: Floats) -> Floats:
        """Return the encoded values (n,) of raw codes (n,)."""
        for step in self.steps:
            codes = step(codes)
        return codes


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


Column = NumberColumn | LevelColumn


def level_cells(codes: Floats, levels: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Return positions (n,) in the table of a `LevelColumn` with so many levels."""
    missing = np.isnan(codes)
    known = np.where(missing, 0, codes).astype(np.intp)
    return np.where(missing, levels + 1, np.minimum(known, levels))
