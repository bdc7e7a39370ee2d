"""The first step of a pipeline on a table of pandas, in less time: the same table to the last bit.

What an encoder makes of a cell depends on its value alone. It goes through tables cell by cell, in Python, which takes
longer than most models do; so it is asked about each of its categories once, at first. What scales or fills numbers
takes them as an array: going through a table's columns and names takes it five times as long as its own work. A
pipeline on Adult (7 columns of levels, 5 of numbers) needs 2.9 ms to prepare 10 rows, and .5 ms this way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from mlflow_cf.quiet import quietly
from mlflow_cf_flavors.answers import as_array
from mlflow_cf_flavors.sklearn.arrays import nameless
from mlflow_cf_flavors.sklearn.columns import one_hot_groups, picked
from mlflow_cf_flavors.sklearn.sources import is_missing

Transformer = Any  # scikit-learn carries no types
Table = NDArray[Any]
Columns = NDArray[np.intp]
Transform = Callable[[Any], Any]

MOST_CELLS: Final = 1 << 20  # of a table of categories, which are 8 MB; an encoder of more is asked about all rows
FEW: Final = 100  # cells that are looked up one by one; sorting out the distinct ones takes as long as this
MANY: Final = 4_096  # rows, for which looking where a table has zeros takes less than writing them
OTHER: Final = -1  # position of a value that is no category
# what makes the same of an array as of a table with its columns; all work on each column, or each cell, by itself
_OF_NUMBERS: Final = frozenset(
    {
        "Binarizer",
        "KBinsDiscretizer",
        "MaxAbsScaler",
        "MinMaxScaler",
        "PolynomialFeatures",
        "PowerTransformer",
        "QuantileTransformer",
        "RobustScaler",
        "SimpleImputer",
        "SplineTransformer",
        "StandardScaler",
    }
)


@dataclass(frozen=True, eq=False)
class Block:
    """Some of the prepared columns: ``table[rows]``, or `table` itself where `rows` is None."""

    table: Table
    rows: Columns | None

    def columns(self) -> Table:
        """Return the columns (n, width)."""
        return self.table if self.rows is None else self.table.take(self.rows, axis=0)

    def single(self) -> tuple[Table, Columns] | None:
        """Return for each row of the table its only value, as of categories that have a column each, and its column.

        All others are 0. None where a row has several, or where the columns are the table itself.
        """
        filled = (self.table != 0) | np.signbit(self.table)
        if self.rows is None or not filled.shape[1] or filled.sum(axis=1).max() > 1:
            return None
        where = filled.argmax(axis=1)
        return self.table[np.arange(len(where)), where], where

    def entries(self, start: int) -> tuple[Table, NDArray[np.int32]]:
        """Return values (n, e) and their columns (n, e) in a table where they begin at `start`; the rest is 0."""
        places, alone = np.arange(start, start + self.table.shape[1], dtype=np.int32), self.single()
        if alone is None or self.rows is None:
            values = self.columns()
            return values, np.broadcast_to(places, values.shape)
        values, where = alone
        return values[self.rows, None], places[where][self.rows, None]


@dataclass(frozen=True, eq=False)
class Part:
    """A transformer, `step`, of the columns at some `places`."""

    step: Transformer
    places: list[int]

    def blocks(self, rows: pd.DataFrame) -> Iterator[Block]:
        """Yield what it makes of rows (n, d)."""
        yield Block(dense(self.step.transform(self.given(rows))), None)

    def given(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return its columns of rows (n, d)."""
        whole = self.places == list(range(rows.shape[1]))  # picking takes longer than scaling what was picked
        return rows if whole else rows.iloc[:, self.places]


@dataclass(frozen=True, eq=False)
class OfNumbers(Part):
    """A transformer that takes an array as well as a table.

    Attributes:
        transforms: those of its steps, which know no names, so that none are missing.
    """

    transforms: tuple[Transform, ...]

    @classmethod
    def of(cls, part: Part) -> OfNumbers:
        """Return the same for arrays."""
        return cls(part.step, part.places, tuple(nameless(step).transform for step in steps_of(part.step)))

    def blocks(self, rows: pd.DataFrame) -> Iterator[Block]:
        """Yield what it makes of rows (n, d)."""
        given = self.given(rows)
        table = as_array(given)
        if table is None:  # tables have ways of their own for other types
            yield Block(dense(self.step.transform(given)), None)
            return
        for transform in self.transforms:
            table = transform(table)
        yield Block(dense(table), None)


@dataclass(frozen=True, eq=False)
class Encoder(Part):
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
    def of(cls, part: Part, names: Sequence[str], widths: Sequence[int]) -> Encoder | None:
        """Ask an encoder about its categories; None if there are too many.

        Args:
            part: the encoder, and which of the columns it takes.
            names: their names; widths: how many columns it makes of each of them.
        """
        last = steps_of(part.step)[-1]
        known = [[each for each in categories.tolist() if not is_missing(each)] for categories in last.categories_]
        most = max(map(len, known))
        if not min(map(len, known)) or most * sum(widths) > MOST_CELLS:
            return None
        asked = {
            name: np.resize(np.array(values, dtype=categories.dtype), most)
            for name, values, categories in zip(names, known, last.categories_, strict=True)
        }
        table = dense(part.step.transform(pd.DataFrame(asked)))
        positions = tuple({value: at for at, value in enumerate(values)} for values in known)
        return cls(part.step, part.places, positions, tuple(accumulate(widths, initial=0)), table)

    def blocks(self, rows: pd.DataFrame) -> Iterator[Block]:
        """Yield what it makes of rows (n, d); it is asked about those with other values than its categories."""
        given = self.given(rows)
        found = np.stack(
            [_looked_up(column, known) for (_, column), known in zip(given.items(), self.positions, strict=True)]
        )
        table = self.table
        others = np.flatnonzero((found == OTHER).any(axis=0))
        if len(others):
            found[:, others] = len(table) + np.arange(len(others))
            table = np.concatenate([table, dense(self.step.transform(given.iloc[others]))])
        for (start, end), positions in zip(pairwise(self.ends), found, strict=True):
            yield Block(table[:, start:end], positions)


@dataclass(frozen=True)
class FirstStep:
    """Rows -> the same table that a fitted step makes of them.

    Attributes:
        parts: the transformers of a ColumnTransformer in the order of their columns, or the step itself.
        order: how its tables lie in memory: by rows or by columns.
        kind: the class of its sparse tables; None: it makes arrays.
    """

    parts: tuple[Part, ...]
    order: Literal["C", "F"] = "C"
    kind: Callable[..., Any] | None = None

    def __call__(self, rows: pd.DataFrame) -> Any:
        """Return the prepared columns of rows (n, d), whose columns are in the order it was fitted on."""
        return self.joined([block for part in self.parts for block in part.blocks(rows)], len(rows))

    def joined(self, blocks: Sequence[Block], count: int) -> Any:
        """Return the table of `count` rows whose columns are those of all blocks."""
        if self.kind is not None:
            return _compressed(blocks, count, self.kind)
        dtype, ends = np.result_type(*(block.table.dtype for block in blocks)), _ends(blocks)
        if count >= MANY:
            return _scattered(blocks, np.zeros((count, ends[-1]), dtype, self.order))
        table = np.empty((count, ends[-1]), dtype, self.order)
        for block, (start, end) in zip(blocks, pairwise(ends), strict=True):
            table[:, start:end] = block.columns()
        return table


def _scattered(blocks: Sequence[Block], table: Table) -> Table:
    """Return a table of zeros with the columns of all blocks; of categories, the one value of each row is written."""
    alone: list[tuple[Table, Columns, Columns]] = []
    for block, (start, end) in zip(blocks, pairwise(_ends(blocks)), strict=True):
        if block.rows is None or (single := block.single()) is None:
            table[:, start:end] = block.columns()
        else:
            alone.append((single[0], single[1] + start, block.rows))
    if alone:  # all at once: threads wait for each other between steps
        values, columns, rows = zip(*alone, strict=True)
        first = list(accumulate(map(len, values[:-1]), initial=0))
        places = np.stack(rows) + np.array(first)[:, None]
        below, beside = np.array(table.strides) // table.itemsize
        cells = (np.concatenate(columns) * beside).take(places) + below * np.arange(len(table))
        table.reshape(-1, order="A")[cells] = np.concatenate(values).take(places)
    return table


def first_step(step: Transformer, rows: Any) -> Transform:
    """Return the `transform` of a fitted step, or what makes the same of tables in less time.

    Args:
        step: the first one of a pipeline.
        rows: some rows, its columns in the order it was fitted on, on which both are compared to the last bit.
    """
    transform: Transform = step.transform
    if not _of_sklearn(step) or getattr(step, "transformer_weights", None):
        return transform
    if not isinstance(rows, pd.DataFrame) or not hasattr(step, "feature_names_in_"):
        return transform
    try:
        with quietly():  # warnings of the rows that users ask about are told
            return _compared(step, rows) or transform
    except Exception:  # noqa: BLE001  of any transformer; whether it can answer at all is checked elsewhere
        return transform


def _compared(step: Transformer, rows: pd.DataFrame) -> FirstStep | None:
    """Return what makes the same table of `rows` as a fitted step; None where nothing does in less time."""
    parts = tuple(_parts(step, list(rows.columns)))
    if all(type(part) is Part for part in parts):
        return None
    expected = step.transform(rows)
    if sparse.issparse(expected):
        found = FirstStep(parts, kind=type(expected))
    elif isinstance(expected, np.ndarray) and expected.dtype.kind in "fiu":
        found = FirstStep(parts, "F" if expected.flags.fnc else "C")
    else:
        return None
    return found if _same(found(rows), expected) else None


def _parts(step: Transformer, names: Sequence[str]) -> Iterator[Part]:
    if type(step).__name__ != "ColumnTransformer":
        yield _part(Part(step, list(range(len(names)))), names)
        return
    for _, inner, chosen in step.transformers_:
        places = [] if isinstance(inner, str) else picked(chosen, names)
        if places:
            yield _part(Part(inner, places), names)


def _part(part: Part, names: Sequence[str]) -> Part:
    """Return the quickest way of a transformer of some columns; `names`: of all columns."""
    if all(map(_of_numbers, steps_of(part.step))):
        return OfNumbers.of(part)
    widths = _widths(part.step, len(part.places))
    return (Encoder.of(part, [names[at] for at in part.places], widths) if widths else None) or part


def _of_numbers(step: Transformer) -> bool:
    """Whether a step makes the same of an array as of a table with its columns."""
    if not _of_sklearn(step):
        return False
    if type(step).__name__ == "FunctionTransformer":
        return step.func is None or isinstance(step.func, np.ufunc)  # as "passthrough" does, or one of numpy's own
    return type(step).__name__ in _OF_NUMBERS and getattr(step, "copy", True)  # else it may write into the array


def steps_of(step: Transformer) -> list[Transformer]:
    """Return the steps of a pipeline, or the step itself."""
    return [one for _, one in step.steps] if type(step).__name__ == "Pipeline" else [step]


def _widths(part: Transformer, count: int) -> tuple[int, ...]:
    """Return how many columns an encoder makes of each of its `count`; nothing for other transformers."""
    kind = type(part).__name__
    if not _of_sklearn(part):
        return ()
    if kind == "Pipeline":
        *before, last = steps_of(part)
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


def _looked_up(column: pd.Series[Any], positions: Mapping[Any, int]) -> Columns:
    """Return the position (n,) of each cell's value; `OTHER` for missing ones, too, which may be of several kinds."""
    if len(column) <= FEW:
        return np.array([positions.get(value, OTHER) for value in column.tolist()], dtype=np.intp)
    codes, values = pd.factorize(column)
    return np.array([*(positions.get(value, OTHER) for value in values.tolist()), OTHER], dtype=np.intp)[codes]


def dense(table: Any) -> Table:
    """Return a table as an array."""
    return np.asarray(table.toarray() if sparse.issparse(table) else table)


def _ends(blocks: Sequence[Block]) -> list[int]:
    """Return (blocks + 1) where their columns begin and end in the whole table."""
    return list(accumulate((block.table.shape[1] for block in blocks), initial=0))


def _compressed(blocks: Sequence[Block], count: int, kind: Callable[..., Any]) -> Any:
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
