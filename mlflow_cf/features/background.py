"""The background: a sample of training rows, or rows that stand in for it where only single columns may be kept."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.features.feature import Floats


class Background(NamedTuple):
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
