"""The table that the boosting libraries take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mlflow_cf_flavors.answers import Floats


@dataclass(frozen=True, eq=False)
class BoosterColumns:
    """The table a booster takes.

    Attributes:
        names: its columns in order; empty if it was fitted on an array, so that a table goes in as it comes.
        levels: column of pandas' category dtype -> the levels the booster numbers 0, 1, ...
    """

    names: tuple[str, ...]
    levels: Mapping[str, pd.Index[Any]]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the booster's columns of `rows`, in its order."""
        if not self.names or rows.columns.tolist() == list(self.names):
            return rows
        return rows.loc[:, list(self.names)]

    def numbers(self, table: pd.DataFrame) -> Floats | None:
        """Return the `table` (n, d) as the float64 array the booster sees, an order of magnitude faster to score.

        None if a column is no number, or a category column has not exactly the levels of the training rows: that is
        left to the library.
        """
        array = np.empty(table.shape)
        for position, (name, column) in enumerate(table.items()):
            numbers = self._column(str(name), column)
            if numbers is None:
                return None
            array[:, position] = numbers
        return array

    def _column(self, name: str, column: pd.Series[Any]) -> Floats | None:
        levels, dtype = self.levels.get(name), column.dtype
        if isinstance(dtype, pd.CategoricalDtype):
            if levels is None or not dtype.categories.equals(levels):
                return None
            codes = column.cat.codes.to_numpy(dtype=np.float64)
            return np.where(codes < 0, np.nan, codes)
        if levels is not None or dtype.kind not in "biuf":
            return None
        return column.to_numpy(dtype=np.float64, na_value=np.nan)


def wrong_types(rows: pd.DataFrame | None) -> str:
    """Return how to right a table that a library cannot take because of text in it; empty if there is none."""
    if rows is None:
        return ""
    text = [str(name) for name, dtype in rows.dtypes.items() if dtype.kind == "O" and str(dtype) != "category"]
    fix = "give them the category dtype they had when the model was fitted, or leave them out"
    return f"{text} hold text: {fix}" if text else ""
