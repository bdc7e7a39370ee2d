"""What users pass for a table, as a table: arrays, one row alone, columns that are numbered instead of named."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.errors import InputError

Table = pd.DataFrame | NDArray[Any]
Rows = Table | pd.Series | Mapping[str, Any]
ColumnName = str | int


def as_rows(rows: object, columns: pd.Index[Any], path: str = "rows") -> pd.DataFrame:
    """Return rows to explain as a table, whose columns have the background's own names.

    Args:
        rows: a table, an array (n, d), or one row as a Series or dict.
        columns: the background's columns (d,); ``0`` and ``"0"`` are the same name.
        path: what errors call them.

    Raises:
        InputError: anything else, or an array of another width.
    """
    if isinstance(rows, np.ndarray):
        return _from_array(path, rows, columns)
    if isinstance(rows, pd.Series):
        rows = rows.to_frame().T.infer_objects()
    elif isinstance(rows, Mapping):
        rows = _from_dict(rows, path)
    if not isinstance(rows, pd.DataFrame):
        fix = "pass a pandas DataFrame, an array of its values, or one row as a Series or dict"
        raise InputError(path, f"a {type(rows).__name__} is not a table", fix)
    if rows.columns.equals(columns):
        return rows
    known = {str(column): column for column in columns}
    names = [known.get(str(column), column) for column in rows.columns]
    return rows if names == list(rows.columns) else rows.set_axis(names, axis=1)


def as_background(data: object, named: Sequence[ColumnName], *, numbered: bool) -> pd.DataFrame:
    """Return the background as a table with the column names that the model takes.

    Args:
        data: a table, or an array (n, d) whose columns are those the model was fitted on.
        named: the model's own names, where it knows them.
        numbered: whether the model is shown the table as it is, so that columns 0, 1, ... must stay numbers.

    Raises:
        InputError: an array of another width, no table, no rows or columns, or two columns of one name.
    """
    if isinstance(data, np.ndarray):
        width = data.shape[1] if data.ndim == 2 else 0
        data = _from_array("data", data, named or range(width))
    if not isinstance(data, pd.DataFrame):
        raise InputError("data", f"a {type(data).__name__} is not a table", "pass a pandas DataFrame of raw features")
    check_table(data)
    names = [column if numbered and str(column) not in named else str(column) for column in data.columns]
    return data if names == list(data.columns) else data.set_axis(names, axis=1)


def check_table(frame: object) -> list[str]:
    """Return the column names of a background that has rows, columns, and a name of its own for every column."""
    if not isinstance(frame, pd.DataFrame):
        raise InputError("data", f"a {type(frame).__name__} is not a table", "pass a pandas DataFrame of raw features")
    if not len(frame) or not len(frame.columns):
        raise InputError("data", f"{len(frame)} rows and {len(frame.columns)} columns", "give at least two rows")
    names = [_name(column) for column in frame.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"data.{twice[0]}", "two columns have this name", "rename one of them")
    return names


def _name(column: object) -> str:
    if isinstance(column, bool) or not isinstance(column, str | int | np.integer):
        raise InputError(f"data.{column}", "column names must be strings or integers", _RENAME)
    if isinstance(column, str) and not is_text(column):
        raise InputError(f"data.{column!r}", "half of a surrogate pair is no text", _RENAME)
    return str(column)


def is_text(value: str) -> bool:
    """Whether a string can be written as UTF-8; half of a surrogate pair, which JSON can hold, cannot."""
    return not _HALF_PAIR.search(value)


def _from_array(path: str, array: NDArray[Any], columns: Collection[ColumnName]) -> pd.DataFrame:
    if array.ndim != 2 or array.shape[1] != len(columns):
        fact = f"an array of shape {array.shape} does not have one column for each feature"
        raise InputError(path, fact, f"pass one of shape (rows, {len(columns) or 'features'})")
    return pd.DataFrame(array, columns=list(columns)).infer_objects()


def _from_dict(row: Mapping[str, Any], path: str) -> pd.DataFrame:
    for name, value in row.items():
        if not pd.api.types.is_scalar(value):
            fix = "a dict is one row; pass several as a pandas DataFrame"
            raise InputError(f"{path}.{name}", f"a {type(value).__name__} is no single value", fix)
    return pd.DataFrame({name: pd.Series([value], dtype=object) for name, value in row.items()})


_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")
_RENAME: Final = "rename with frame.rename(columns=...)"
