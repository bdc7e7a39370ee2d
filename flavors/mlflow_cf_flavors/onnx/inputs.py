"""What an ONNX graph takes: one tensor of all columns of a table, or one tensor per column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.errors import InputError
from mlflow_cf.features import ColumnName

_DTYPES: Final[dict[str, Any]] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.object_,
    **{f"tensor(int{bits})": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"tensor(uint{bits})": f"uint{bits}" for bits in (8, 16, 32, 64)},
}
One = TypeVar("One")


@dataclass(frozen=True)
class Tensor:
    """An input of a graph.

    Attributes:
        name: of it; dtype: of its elements, object for text.
        rank: how many axes it has, 2 or 1; width: its columns, None where the graph leaves that open.
        rows: how many rows it must have; None: any number.
    """

    name: str
    dtype: np.dtype[Any]
    rank: int
    width: int | None
    rows: int | None


@dataclass(frozen=True)
class Inputs:
    """How the tensors of a graph are filled from a table.

    Attributes:
        tensors: in the order of the graph.
        columns: the names of the table's columns in the order of the tensors; empty: the table goes in as it comes.
    """

    tensors: tuple[Tensor, ...]
    columns: tuple[ColumnName, ...]

    @property
    def rows(self) -> int | None:
        """How many rows the graph takes at a time; None: any number."""
        return next((tensor.rows for tensor in self.tensors if tensor.rows), None)

    def feed(self, rows: pd.DataFrame) -> dict[str, NDArray[Any]]:
        """Return every tensor for rows (n, d).

        Raises:
            ValueError: values that the tensor cannot hold.
        """
        table = rows.loc[:, list(self.columns)] if self.columns else rows
        columns = [table.iloc[:, place] for place in range(table.shape[1])]
        return {tensor.name: _filled(tensor, part) for tensor, part in self.parts(columns)}

    def parts(self, columns: Sequence[One]) -> Iterator[tuple[Tensor, Sequence[One]]]:
        """Yield every tensor with its part of the table's columns."""
        if len(self.tensors) == 1:
            yield self.tensors[0], columns
            return
        for place, tensor in enumerate(self.tensors):
            yield tensor, columns[place : place + 1]


def _filled(tensor: Tensor, columns: Sequence[pd.Series[Any]]) -> NDArray[Any]:
    """Return columns as a tensor, (n, columns) or (n,)."""
    whole = np.empty((len(columns[0]), len(columns)), dtype=tensor.dtype)
    for place, column in enumerate(columns):
        whole[:, place] = _texts(column) if tensor.dtype.kind == "O" else _numbers(column, tensor.dtype)
    return whole if tensor.rank == 2 else whole[:, 0]


def _texts(column: pd.Series[Any]) -> NDArray[Any]:
    texts = column.to_numpy(dtype=np.object_)
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{column.name} has missing values or numbers where the graph takes text")
    return texts


def _numbers(column: pd.Series[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a column in the precision of a tensor; whole numbers stay whole, also where they come as floats."""
    if isinstance(column.dtype, pd.CategoricalDtype | pd.StringDtype) or column.dtype.kind not in "biufO":
        raise ValueError(f"{column.name} has no numbers, which the graph takes")
    if dtype.kind in "iub":
        numbers = column.to_numpy()
        if numbers.dtype.kind not in "iub":
            numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
            if not np.array_equal(numbers, np.trunc(numbers)):
                raise ValueError(f"{column.name} has fractions or missing values where the graph takes whole numbers")
        return numbers.astype(dtype)
    with np.errstate(over="ignore"):
        return column.to_numpy(dtype=np.float64, na_value=np.nan).astype(dtype)


def inputs_of(session: Any, names: Sequence[ColumnName], rows: pd.DataFrame | None) -> Inputs:
    """Return how a session of onnxruntime is fed.

    Args:
        session: of the graph.
        names: the columns that the model was logged for, if it says so.
        rows: some rows, which must have the columns that the graph takes.

    Raises:
        InputError: it takes neither one tensor of all columns nor one for each column.
    """
    tensors = tuple(_tensor(one) for one in session.get_inputs())
    if len(tensors) == 1:
        return _whole(tensors[0], tuple(names), rows)
    wide = [tensor for tensor in tensors if tensor.width not in (None, 1)]
    if wide:
        fact = f"takes {len(tensors)} inputs, and {wide[0].name!r} among them has {wide[0].width} columns of a table"
        raise InputError("model", fact, "export it with one input for all columns, or one for each column")
    return Inputs(tensors, tuple(tensor.name for tensor in tensors))


def _whole(tensor: Tensor, names: tuple[ColumnName, ...], rows: pd.DataFrame | None) -> Inputs:
    """Return how one tensor is fed with all columns; with `names` if the table has them."""
    given = () if rows is None else tuple(rows.columns)
    columns = names if set(names) <= set(given) or rows is None else ()
    if tensor.width == 1 and tensor.name in given:
        columns = (tensor.name,)
    found = len(columns or given)
    if tensor.rank == 1 and found > 1:
        raise InputError("model", f"its input {tensor.name!r} has no columns", "export it with an input of two axes")
    if rows is not None and tensor.width is not None and tensor.width != found:
        fact = f"has {found} columns where the input {tensor.name!r} of the graph has {tensor.width}"
        raise InputError("data", fact, "pass the columns that it was exported for, in their order")
    return Inputs((tensor,), columns)


def _tensor(one: Any) -> Tensor:
    shape = list(one.shape) if one.shape is not None else [None, None]
    if one.type not in _DTYPES or len(shape) not in (0, 1, 2):
        fact = f"its input {one.name!r} is {one.type} of {len(shape)} axes"
        raise InputError("model", fact, "wrap a model of tables: rows of numbers or text")
    rank = 1 if len(shape) == 1 else 2
    width = shape[1] if len(shape) == 2 and isinstance(shape[1], int) else None
    rows = shape[0] if shape and isinstance(shape[0], int) else None
    return Tensor(one.name, np.dtype(_DTYPES[one.type]), rank, 1 if rank == 1 else width, rows)
