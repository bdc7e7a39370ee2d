"""Long tables of numbers that are their own codes, read some rows at a time: when they are needed, not before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features.feature import Floats

# Rows of all columns that are read at once: whole columns take longer, and so does sharing them among threads.
READ_AT_ONCE: Final = 8_192


@dataclass(frozen=True, eq=False)
class PlainRows:
    """A table whose columns hold their codes as they are.

    Attributes:
        columns: the values (n,) of each; largest: (d,) the largest code of each.
    """

    columns: tuple[NDArray[Any], ...]
    largest: Floats

    def read(self, rows: slice, codes: Floats) -> NDArray[np.bool_] | None:
        """Write the codes of some rows into those of all (n, d); return which values have none (m, d), or None."""
        most, bad = self.largest.min(), None
        for start in range(rows.start, rows.stop, READ_AT_ONCE):
            now = slice(start, min(start + READ_AT_ONCE, rows.stop))
            some = codes[now]
            for column, values in enumerate(self.columns):
                some[:, column] = values[now]
            if not -most <= some.min() <= some.max() <= most:  # or one is missing
                bad = np.zeros((rows.stop - rows.start, len(self.columns)), dtype=np.bool_) if bad is None else bad
                bad[start - rows.start : now.stop - rows.start] = np.abs(some) > self.largest
        return bad if bad is not None and bad.any() else None
