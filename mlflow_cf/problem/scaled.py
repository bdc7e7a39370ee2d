"""The scaled change of one feature, d_i of GeCo's section 2, for kernels and whole arrays alike."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from mlflow_cf.kernel import kernel

Array = NDArray[Any]


class Scaled(NamedTuple):
    """How the changes of columns are measured.

    Attributes:
        scale: (n,) divisor of a numeric change; 0 where only [differs] counts.
        unknown_from: (n,) codes from here on have no rank; leaving one behind is a change of 1.
        least: no change of a number is less than this.
    """

    scale: Array
    unknown_from: Array
    least: float


@numba.njit(inline="always")
def scaled_change(value: Any, own: Any, at: Any, own_at: Any, scaled: Scaled, column: Any) -> Any:
    """Return the change from the query row's own value to another one, which stand at `at` and `own_at` on a line."""
    same = value == own or (np.isnan(value) and np.isnan(own))
    unknown_from = scaled.unknown_from[column]
    if scaled.scale[column] != 0 and own < unknown_from and value < unknown_from:  # not where one is missing
        change = abs(at - own_at) / scaled.scale[column]
        return change if same else max(change, scaled.least)
    return 0.0 if same else 1.0


@kernel
def measure_changes(values: Array, own: Array, at: Array, own_at: Array, scaled: Scaled, found: Array) -> None:
    """Write the changes (m, n) of values (m, n) or (1, n) from own ones (m, n) or (1, n)."""
    for row in range(found.shape[0]):
        mine, other = row if len(values) > 1 else 0, row if len(own) > 1 else 0
        for column in range(found.shape[1]):
            place, own_place = at[mine, column], own_at[other, column]
            found[row, column] = scaled_change(
                values[mine, column], own[other, column], place, own_place, scaled, column
            )
