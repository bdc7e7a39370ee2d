"""What the boosting libraries have in common: the table they take, the label of the largest score, what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.errors import InputError
from mlflow_cf.model.judge import Label, OpenModel, ScoreRows

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Columns:
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


@dataclass(frozen=True, eq=False)
class LargestScore:
    """Rows -> the label with the largest score, the first of equal ones; shape (n,)."""

    scores: ScoreRows
    classes: tuple[Label, ...]

    def __call__(self, rows: pd.DataFrame) -> NDArray[np.generic]:
        """Return the labels of `rows` (n, d)."""
        labels: NDArray[np.generic] = np.asarray(self.classes)[self.scores(rows).argmax(axis=1)]
        return labels


def two_columns(likelier: Floats) -> Floats:
    """Return the probability (n,) of the second class as one column per class."""
    return np.column_stack((1.0 - likelier, likelier))


def name_of(model: object) -> str:
    """Return the name of the model's class."""
    return type(model).__name__


def plain_labels(labels: Any) -> tuple[Label, ...]:
    """Return the labels of a classifier as plain Python values."""
    return tuple(label.item() if isinstance(label, np.generic) else label for label in labels)


def check_classes(model: object, classes: tuple[Label, ...]) -> None:
    """Refuse a classifier that was fitted on a single label."""
    if len(classes) < 2:
        raise InputError("model", f"{name_of(model)} knows a single label", "fit it on rows of two labels or more")


def check_output(model: object, output: str | None, *, regression: bool) -> None:
    """Refuse an `output` the model does not have."""
    allowed = ("value",) if regression else ("label", "score")
    if output is not None and output not in allowed:
        known = " or ".join(repr(word) for word in allowed)
        raise InputError("output", f"{output!r} does not fit {name_of(model)}", f"leave it out or use {known}")


def check_answers(opened: OpenModel, rows: pd.DataFrame | None) -> None:
    """Ask for two answers now, so that a wrong table is a clear error when wrapping."""
    if rows is None or not len(rows):
        return
    try:
        opened.decide(rows.iloc[:2])
    except Exception as error:
        raise _refusal(rows, error) from error


def check_columns(columns: Columns, rows: pd.DataFrame | None) -> None:
    """Refuse `rows` without columns the model was fitted on."""
    lost = [] if rows is None else [name for name in columns.names if name not in rows.columns]
    if lost:
        raise InputError("data", f"lacks the columns {lost} that the model was fitted on", "pass its raw input columns")


def _refusal(rows: pd.DataFrame, error: Exception) -> InputError:
    message = str(error).splitlines()[0] if str(error) else ""
    fact = f"the model cannot answer these rows ({type(error).__name__}: {message})"
    text = [str(name) for name, dtype in rows.dtypes.items() if dtype.kind == "O" and str(dtype) != "category"]
    fix = "pass the table with the columns the model was fitted on"
    return InputError("data", fact, f"{text} hold text: {_CATEGORY}" if text else fix)


_CATEGORY: Final = "give them the category dtype they had when the model was fitted, or leave them out"
