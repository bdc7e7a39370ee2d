"""The table that an estimator takes, made of codes at once, to the last bit as of the rows that they stand for.

To make raw rows of codes, and of these the columns that an encoder makes of them, takes longer than most models do: of
two rows of Adult (7 columns of levels, 5 of numbers) 1.2 ms, and .16 ms this way. What becomes of a level is known
before: a code is its place in a table.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.features import CodedTable, FeatureSpace, Level, columns_with
from mlflow_cf_flavors.answers import Floats, Rows, as_array
from mlflow_cf_flavors.sklearn.arrays import Numbers, nameless
from mlflow_cf_flavors.sklearn.calls import Prepared
from mlflow_cf_flavors.sklearn.first_step import (
    MOST_CELLS,
    Block,
    Columns,
    Encoder,
    FirstStep,
    OfNumbers,
    Table,
    Transform,
    Transformer,
    dense,
    steps_of,
)
from mlflow_cf_flavors.sklearn.sources import is_missing

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class CodedNumbers:
    """Codes -> the numbers in some columns, as the array that a table of the rows gives.

    Attributes:
        columns: (k,) of the codes; dtype, order: of the array.
        zeros: (k,) what is added to codes: -0 of a whole number becomes 0, as in a table; no other number changes.
    """

    columns: Columns
    dtype: np.dtype[Any]
    order: Literal["C", "F"]
    zeros: Floats

    @classmethod
    def of(cls, columns: Columns, some: pd.DataFrame) -> CodedNumbers | None:
        """Return those of columns of codes, of which `some` rows are a table; None if it holds anything else."""
        table = as_array(some)
        if table is None or len(some) < 2:  # one row lies in memory either way
            return None
        zeros = np.array([0.0 if dtype.kind in "iu" else -0.0 for dtype in some.dtypes])
        return cls(columns, table.dtype, "C" if table.flags.c_contiguous else "F", zeros)

    def __call__(self, rows: CodedTable) -> Table:
        """Return the array of rows (n, d)."""
        return np.asarray(rows.codes.take(self.columns, axis=1) + self.zeros, dtype=self.dtype, order=self.order)


@dataclass(frozen=True, eq=False)
class _Standardized:
    """Numbers that are finite or missing -> what a StandardScaler makes of them.

    To check such an array takes the scaler five times as long as its own work; a call for one row of Adult takes 4 %
    longer with that.

    Attributes:
        mean: (k,) what is subtracted; None: nothing. scale: (k,) by what is divided; None: not.
    """

    mean: Floats | None
    scale: Floats | None

    def __call__(self, table: Table) -> Table:
        """Return what it makes of a table (n, k), in the table's precision."""
        made: Table = table.astype(table.dtype if table.dtype.kind == "f" else np.float64)
        if self.mean is not None:
            made -= self.mean.astype(made.dtype)
        if self.scale is not None:
            made /= self.scale.astype(made.dtype)
        return made


@dataclass(frozen=True, eq=False)
class _Filled:
    """Numbers that are finite or missing -> what a SimpleImputer makes of them; see `_Standardized`.

    Attributes:
        values: (k,) what missing ones become; averages: whether whole numbers become others, too.
    """

    values: Floats
    averages: bool

    def __call__(self, table: Table) -> Table:
        """Return what it makes of a table (n, k)."""
        made: Table = table.astype(np.float64 if self.averages and table.dtype.kind != "f" else table.dtype)
        if made.dtype.kind == "f":
            np.copyto(made, self.values, where=np.isnan(made), casting="same_kind")
        return made


def _unchecked(step: Transformer) -> Transform:
    """Return the `transform` of a step of numbers, or what makes the same of those that need not be checked."""
    if type(step).__name__ == "StandardScaler":
        return _Standardized(step.mean_ if step.with_mean else None, step.scale_ if step.with_std else None)
    if type(step).__name__ == "SimpleImputer" and is_missing(step.missing_values) and step.indicator_ is None:
        values = step.statistics_
        if values.dtype.kind == "f" and not np.isnan(values).any():  # columns without a value are left out
            return _Filled(values, step.strategy in ("mean", "median"))
    transform: Transform = nameless(step).transform
    return transform


@dataclass(frozen=True, eq=False)
class _Scaled:
    """Codes -> what transforms make of the numbers in some columns."""

    numbers: CodedNumbers
    transforms: tuple[Transform, ...]

    def blocks(self, rows: CodedTable) -> tuple[list[Block], Bools]:
        """Return their columns of rows (n, d), and of which (n,) they are not known: of none."""
        table: Any = self.numbers(rows)
        for transform in self.transforms:
            table = transform(table)
        return [Block(dense(table), None)], np.zeros(len(rows), dtype=np.bool_)


@dataclass(frozen=True, eq=False)
class _Levels:
    """Codes -> the columns that an encoder makes of some levels.

    Attributes:
        part: the encoder; columns: (k,) of the codes.
        tables: for each of them, (levels + 1, width) what becomes of every level, and of a missing one.
        missing: (k,) whether it takes missing ones.
        other: for each of them, (1, width) what becomes of text that is no category, or (0, width): not known.
    """

    part: Encoder
    columns: Columns
    tables: tuple[Table, ...]
    missing: Bools
    other: tuple[Table, ...]

    @classmethod
    def of(cls, part: Encoder, columns: Columns, space: FeatureSpace, select: Rows) -> _Levels | None:
        """Ask an encoder about all levels of some columns; None if they are too many, or numbers, or not known to it.

        Args:
            part: the encoder.
            columns: (k,) where the codes of its columns are; space: the features; select: rows -> those it was fitted
                on.
        """
        known = [space.features[column] for column in columns.tolist()]
        sizes = [len(feature.code_of) for feature in known]
        if (max(sizes) + 2) * part.ends[-1] > MOST_CELLS or any(feature.numeric for feature in known):
            return None
        wider, texts = _with_other_text(part, columns, space)
        nullable = np.array([feature.nullable for feature in known])
        learned = nullable & _learned_missing(part)
        ways = [(nullable, texts), (learned, []), (np.zeros_like(nullable), [])]
        if _warns(part):  # of levels that it does not know: where rows have them, it is asked about these rows
            if not all(one.code_of.keys() <= learnt.keys() for one, learnt in zip(known, part.positions, strict=True)):
                return None
            ways = ways[1:]
        for missing, text in ways:
            codes = np.zeros((max(sizes) + 2, len(space)))
            for at, (column, size) in enumerate(zip(columns.tolist(), sizes, strict=True)):
                levels = [*range(size), np.nan if missing[at] else 0, *text[at : at + 1]]
                codes[:, column] = np.resize(levels, len(codes))
            with suppress(ValueError):  # about levels that it does not know
                made = dense(part.step.transform(part.given(select(wider.decode(codes)))))
                ends = list(zip(sizes, pairwise(part.ends), strict=True))
                tables = tuple(made[: size + 1, start:end] for size, (start, end) in ends)
                other = tuple(made[size + 1 : size + 1 + bool(text), start:end] for size, (start, end) in ends)
                return cls(part, columns, tables, missing, other)
        return None

    def blocks(self, rows: CodedTable) -> tuple[list[Block], Bools]:
        """Return their columns of rows (n, d), and of which (n,) they are not known."""
        codes = rows.codes.take(self.columns, axis=1)
        if (codes < self._sizes).all():
            places = codes.T.astype(np.intp, order="C")
            return [Block(*known) for known in zip(self.tables, places, strict=True)], np.zeros(len(codes), np.bool_)
        gone, beyond = np.isnan(codes), codes >= self._sizes
        lost_too = gone & ~self.missing
        unknown = np.zeros(len(codes), dtype=np.bool_)
        if lost_too.any():
            unknown |= lost_too.any(axis=1)
        places = np.where(gone, self._sizes, codes + beyond).T.astype(np.intp, order="C")
        tables = list(self.tables)
        for at in columns_with(beyond):
            met = [self._met(at, level) for level in rows.space.features[self.columns[at]].known[self._sizes[at] :]]
            lost = np.array([row is None for row in met])
            tables[at] = np.vstack([tables[at], *(tables[at][0] if row is None else row for row in met)])
            unknown[beyond[:, at]] |= lost[places[at, beyond[:, at]] - self._sizes[at] - 1]
        return [Block(table, places) for table, places in zip(tables, places, strict=True)], unknown

    def _met(self, at: int, level: Level) -> Table | None:
        """Return what becomes of a level of a column that the background lacks (width,); None: not known."""
        place = self.part.positions[at].get(level)
        if place is not None:
            return self.part.table[place, self.part.ends[at] : self.part.ends[at + 1]]
        return self.other[at][0] if len(self.other[at]) and isinstance(level, str) else None

    @cached_property
    def _sizes(self) -> Columns:
        """How many levels (k,) are known."""
        return np.array([len(table) - 1 for table in self.tables])


def _with_other_text(part: Encoder, columns: Columns, space: FeatureSpace) -> tuple[FeatureSpace, list[int]]:
    """Return a space with text that is no category of an encoder, and its code in each of the columns, if all hold it.

    Imputers may take some text as a missing value: behind them, no text stands for others.
    """
    text, features = "?", list(space.features)
    while any(text in known for known in part.positions):
        text += "?"
    if len(steps_of(part.step)) > 1 or not all(features[column].can_hold(text) for column in columns.tolist()):
        return space, []
    for column in columns.tolist():
        features[column] = features[column].with_unseen((text,))
    return FeatureSpace(tuple(features)), [features[column].code_of[text] for column in columns.tolist()]


@dataclass(frozen=True, eq=False)
class CodedStep:
    """Codes -> the table that the last step of a pipeline takes.

    Attributes:
        prepared: makes it of rows.
        step: its first step, which joins what is made of columns; parts: make that of codes.
    """

    prepared: Prepared
    step: FirstStep
    parts: tuple[_Scaled | _Levels, ...]

    def __call__(self, rows: CodedTable) -> Any:
        """Return the table of rows (n, d); the first step is asked about those of which some columns are not known."""
        found = [part.blocks(rows) for part in self.parts]
        unknown = np.logical_or.reduce([lost for _, lost in found])
        others = np.flatnonzero(unknown)
        if len(others) and (self.step.kind is not None or unknown.all()):
            return self.prepared(rows.table)
        table = self.step.joined([block for blocks, _ in found for block in blocks], len(rows))
        if len(others):
            table[others] = self.step(self.prepared.select(CodedTable(rows.space, rows.codes[others]).table))
        for transform in self.prepared.transforms[1:]:
            table = transform(table)
        return table


def of_codes(select: Rows, space: FeatureSpace, rows: pd.DataFrame) -> CodedNumbers | CodedStep | None:
    """Return coded rows -> what an estimator takes, in less time than by their table; None where it is not.

    Args:
        select: rows -> what it takes.
        space: the features; rows: some rows.
    """
    try:
        if isinstance(select, Numbers):
            return CodedNumbers.of(_columns(select.select, space, rows), select.select(rows))
        if isinstance(select, Prepared) and isinstance(select.transforms[0], FirstStep):
            return _coded_step(select.transforms[0], select, space, rows)
    except Exception:  # noqa: BLE001  of any transformer: it is asked about rows, and fails there, or does not
        return None
    return None


def _coded_step(step: FirstStep, prepared: Prepared, space: FeatureSpace, rows: pd.DataFrame) -> CodedStep | None:
    columns, parts = _columns(prepared.select, space, rows), list[_Scaled | _Levels]()
    for part in step.parts:
        where = columns[part.places]
        found: _Scaled | _Levels | None = None
        if isinstance(part, Encoder):
            found = _Levels.of(part, where, space, prepared.select)
        elif isinstance(part, OfNumbers):
            numbers = CodedNumbers.of(where, part.given(prepared.select(rows)))
            found = None if numbers is None else _Scaled(numbers, tuple(map(_unchecked, steps_of(part.step))))
        if found is None:
            return None
        parts.append(found)
    return CodedStep(prepared, step, tuple(parts))


def _warns(part: Encoder) -> bool:
    """Whether an encoder of scikit-learn warns of levels that it does not know, and takes them."""
    last = steps_of(part.step)[-1]
    taken = getattr(last, "handle_unknown", "error")
    return taken == "warn" or (taken in ("ignore", "infrequent_if_exist") and getattr(last, "drop", None) is not None)


def _learned_missing(part: Encoder) -> Bools:
    """Return for each column of an encoder whether it learned what becomes of a missing level."""
    return np.array([any(map(is_missing, categories.tolist())) for categories in steps_of(part.step)[-1].categories_])


def _columns(select: Rows, space: FeatureSpace, rows: pd.DataFrame) -> Columns:
    """Return which columns of codes those are that are selected of rows."""
    return np.asarray(space.columns.get_indexer(select(rows).columns))
