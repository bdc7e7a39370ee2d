"""Columns as a ColumnTransformer prepares them: its encoders are asked about each of their categories once, at first.

What an encoder makes of a cell depends on its value alone. It goes through tables cell by cell, in Python, which takes
longer than most models do. A pipeline on Adult (7 columns of levels, 5 of numbers) needs 4.7 ms to prepare 10 rows, and
28 ms for 16,384; where categories are looked up, it needs 2.4 and 11.5 ms.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from mlflow_cf_flavors.sklearn.columns import one_hot_groups, picked
from mlflow_cf_flavors.sklearn.sources import is_missing

Transformer = Any  # scikit-learn carries no types
Table = NDArray[Any]
Transform = Callable[[Any], Any]

COMPARED: Final = 500  # rows on which both ways are compared
MOST_CELLS: Final = 1 << 20  # of a table of categories, which are 8 MB; an encoder of more is asked about all rows
FEW: Final = 100  # cells that are looked up one by one; sorting out the distinct ones takes as long as this
OTHER: Final = -1  # position of a value that is no category


@dataclass(frozen=True, eq=False)
class _Block:
    """Some of the prepared columns: ``table[rows]``, or `table` itself where `rows` is None."""

    table: Table
    rows: NDArray[np.intp] | None

    def columns(self) -> Table:
        """Return the columns (n, width)."""
        return self.table if self.rows is None else self.table.take(self.rows, axis=0)

    def entries(self, start: int) -> tuple[Table, NDArray[np.int32]]:
        """Return values (n, e) and their columns (n, e) in a table where they begin at `start`; the rest is 0."""
        places = np.arange(start, start + self.table.shape[1], dtype=np.int32)
        filled = self.table != 0
        if self.rows is None or not filled.shape[1] or filled.sum(axis=1).max() > 1:
            values = self.columns()
            return values, np.broadcast_to(places, values.shape)
        where = filled.argmax(axis=1)  # the only one, as of categories that have a column each
        values = self.table[np.arange(len(where)), where]
        return values[self.rows, None], places[where][self.rows, None]


@dataclass(frozen=True, eq=False)
class _Part:
    """A transformer, `step`, of the columns at some `places`."""

    step: Transformer
    places: list[int]

    def blocks(self, rows: pd.DataFrame) -> Iterator[_Block]:
        """Yield what it makes of rows (n, d)."""
        yield _Block(_dense(self.step.transform(rows.iloc[:, self.places])), None)


@dataclass(frozen=True, eq=False)
class _Encoder(_Part):
    """A transformer that makes columns of the values of one column each.

    Attributes:
        positions: by category, its row in `table`, for each of its columns.
        ends: (columns + 1) where the columns begin and end that it makes of each.
        table: (categories, width) what it made of them; a column of fewer of them begins again.
    """

    positions: tuple[Mapping[Any, int], ...]
    ends: tuple[int, ...]
    table: Table

    @classmethod
    def of(cls, part: _Part, names: Sequence[str], widths: Sequence[int]) -> _Encoder | None:
        """Ask an encoder about its categories; None if there are too many.

        Args:
            part: the encoder, and which of the columns it takes.
            names: their names; widths: how many columns it makes of each of them.
        """
        last = part.step.steps[-1][1] if type(part.step).__name__ == "Pipeline" else part.step
        known = [[each for each in categories.tolist() if not is_missing(each)] for categories in last.categories_]
        most = max(map(len, known))
        if not min(map(len, known)) or most * sum(widths) > MOST_CELLS:
            return None
        asked = {
            name: np.resize(np.array(values, dtype=categories.dtype), most)
            for name, values, categories in zip(names, known, last.categories_, strict=True)
        }
        table = _dense(part.step.transform(pd.DataFrame(asked)))
        positions = tuple({value: at for at, value in enumerate(values)} for values in known)
        return cls(part.step, part.places, positions, tuple(accumulate(widths, initial=0)), table)

    def blocks(self, rows: pd.DataFrame) -> Iterator[_Block]:
        """Yield what it makes of rows (n, d); it is asked about those with other values than its categories."""
        given = rows.iloc[:, self.places]
        found = np.stack(
            [_looked_up(column, known) for (_, column), known in zip(given.items(), self.positions, strict=True)]
        )
        table = self.table
        others = np.flatnonzero((found == OTHER).any(axis=0))
        if len(others):
            found[:, others] = len(table) + np.arange(len(others))
            table = np.concatenate([table, _dense(self.step.transform(given.iloc[others]))])
        for (start, end), positions in zip(pairwise(self.ends), found, strict=True):
            yield _Block(table[:, start:end], positions)


@dataclass(frozen=True)
class ByValue:
    """Rows -> the same table that a fitted ColumnTransformer makes of them.

    Attributes:
        parts: its transformers in the order of their columns.
        order: how its tables lie in memory: by rows or by columns.
        kind: the class of its sparse tables; None: it makes arrays.
    """

    parts: tuple[_Part, ...]
    order: Literal["C", "F"] = "C"
    kind: Callable[..., Any] | None = None

    def __call__(self, rows: pd.DataFrame) -> Any:
        """Return the prepared columns of rows (n, d), whose columns are in the order it was fitted on."""
        blocks = [block for part in self.parts for block in part.blocks(rows)]
        if self.kind is not None:
            return _compressed(blocks, len(rows), self.kind)
        dtype, ends = np.result_type(*(block.table.dtype for block in blocks)), _ends(blocks)
        table = np.empty((len(rows), ends[-1]), dtype, self.order)
        for block, (start, end) in zip(blocks, pairwise(ends), strict=True):
            table[:, start:end] = block.columns()
        return table


def by_value(step: Transformer, rows: Any) -> Transform:
    """Return the `transform` of a fitted step, or what makes the same of tables in less time.

    Args:
        step: the first one of a pipeline.
        rows: some rows, its columns in the order it was fitted on, on which both are compared to the last bit.
    """
    transform: Transform = step.transform
    if type(step).__name__ != "ColumnTransformer" or not _of_sklearn(step) or step.transformer_weights:
        return transform
    if not isinstance(rows, pd.DataFrame) or not hasattr(step, "feature_names_in_"):
        return transform
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of the rows that users ask about are told
            return _compared(step, rows) or transform
    except Exception:  # noqa: BLE001  of any transformer; whether it can answer at all is checked elsewhere
        return transform


def _compared(step: Transformer, rows: pd.DataFrame) -> ByValue | None:
    """Return what makes the same table of `rows` as a ColumnTransformer; None where nothing does in less time."""
    parts = tuple(_parts(step, list(rows.columns)))
    if not any(isinstance(part, _Encoder) for part in parts):
        return None
    expected = step.transform(rows)
    if sparse.issparse(expected):
        found = ByValue(parts, kind=type(expected))
    elif isinstance(expected, np.ndarray) and expected.dtype.kind in "fiu":
        found = ByValue(parts, "F" if expected.flags.fnc else "C")
    else:
        return None
    return found if _same(found(rows), expected) else None


def _parts(step: Transformer, names: Sequence[str]) -> Iterator[_Part]:
    for _, inner, chosen in step.transformers_:
        places = [] if isinstance(inner, str) else picked(chosen, names)
        if places:
            part, widths = _Part(inner, places), _widths(inner, len(places))
            yield (_Encoder.of(part, [names[at] for at in places], widths) if widths else None) or part


def _widths(part: Transformer, count: int) -> tuple[int, ...]:
    """Return how many columns an encoder makes of each of its `count`; nothing for other transformers."""
    kind = type(part).__name__
    if not _of_sklearn(part):
        return ()
    if kind == "Pipeline":
        *before, last = [one for _, one in part.steps]
        return _widths(last, count) if all(map(_fills_alone, before)) else ()
    if kind == "OneHotEncoder":
        return tuple(len(one_hot_groups(part, number).kept) for number in range(count))
    if kind == "TargetEncoder":
        return (len(part.encodings_) // count,) * count
    return (1,) * count if kind == "OrdinalEncoder" else ()


def _fills_alone(step: Transformer) -> bool:
    """Whether a step fills missing cells, and makes no columns of its own."""
    return type(step).__name__ == "SimpleImputer" and _of_sklearn(step) and step.indicator_ is None


def _of_sklearn(step: Transformer) -> bool:
    return type(step).__module__.startswith("sklearn.")


def _looked_up(column: pd.Series[Any], positions: Mapping[Any, int]) -> NDArray[np.intp]:
    """Return the position (n,) of each cell's value; `OTHER` for missing ones, too, which may be of several kinds."""
    if len(column) <= FEW:
        return np.array([positions.get(value, OTHER) for value in column.tolist()], dtype=np.intp)
    codes, values = pd.factorize(column)
    return np.array([*(positions.get(value, OTHER) for value in values.tolist()), OTHER], dtype=np.intp)[codes]


def _dense(table: Any) -> Table:
    return np.asarray(table.toarray() if sparse.issparse(table) else table)


def _ends(blocks: Sequence[_Block]) -> list[int]:
    """Return (blocks + 1) where their columns begin and end in the whole table."""
    return list(accumulate((block.table.shape[1] for block in blocks), initial=0))


def _compressed(blocks: Sequence[_Block], count: int, kind: Callable[..., Any]) -> Any:
    """Return the sparse table of `count` rows."""
    ends = _ends(blocks)
    parts = [block.entries(start) for block, start in zip(blocks, ends[:-1], strict=True)]
    values, places = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
    kept = values != 0
    ends_of_rows = np.concatenate([[0], kept.sum(axis=1).cumsum()]).astype(np.int32)
    return kind((values[kept], places[kept], ends_of_rows), shape=(count, ends[-1]))


def _same(one: Any, other: Any) -> bool:
    """Whether two tables are equal to the last bit, stored alike too."""
    if sparse.issparse(one):
        stored = ("data", "indices", "indptr")
        return one.shape == other.shape and all(_same(getattr(one, name), getattr(other, name)) for name in stored)
    return bool(one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))
