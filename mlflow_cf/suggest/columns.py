"""The sampled rows of a table as arrays of numbers, with what each column looks like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.features import Floats, Kind, Level, check_table
from mlflow_cf.features.codec import EXACT_INTEGER, plain
from mlflow_cf.features.feature import encode_dates
from mlflow_cf.features.tables import is_text

MOST_ROWS: Final = 100_000  # that are looked at
MOST_CELLS: Final = 50_000_000  # 400 MB
LONGEST_NAME: Final = 200  # characters

Codes = NDArray[np.int32]  # of sampled rows, and numbers of them
Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Column:
    """One column of the sample.

    Attributes:
        name: its name.
        kind: as the kinds of features.
        values: (n,) numbers, dates in days since 1970, or positions in `levels`; NaN where missing.
        levels: of a category, an ordinal or a boolean.
        codes: (n,) number of the distinct value of each row, a missing value being one of them.
        counts: (distinct,) rows of each code.
    """

    name: str
    kind: Kind
    values: Floats
    levels: tuple[Level, ...]
    codes: Codes
    counts: Counts

    @property
    def numeric(self) -> bool:
        """Whether it is a number or a date."""
        return self.kind in ("real", "integer", "date")

    @cached_property
    def missing(self) -> NDArray[np.bool_]:
        """(n,) where it has no value."""
        return np.isnan(self.values)

    @property
    def ascending(self) -> Floats:
        """Its values without missing ones, ascending."""
        return np.sort(self.values[~self.missing])

    @cached_property
    def binary(self) -> bool:
        """Whether it is 0 or 1, or false or true, in every row."""
        bits = self.kind in ("boolean", "integer") and self.distinct == 2
        return bits and bool(np.isin(self.values, (0.0, 1.0)).all())

    @property
    def distinct(self) -> int:
        """How many values it has, a missing one included."""
        return len(self.counts)

    @property
    def top(self) -> float:
        """Share of its most frequent value."""
        return float(self.counts.max() / self.counts.sum())


@dataclass(frozen=True, eq=False)
class Sample:
    """The rows that are looked at.

    Attributes:
        columns: those that can be looked at.
        rows: how many rows of how many are held; `total`: of the whole table.
        skipped: name of a column that is not looked at -> why.
        positions: (rows,) which rows of the table these are.
        spread: (m,) a few rows spread at random, to look at all pairs of columns first.
    """

    columns: tuple[Column, ...]
    rows: int
    total: int
    skipped: dict[str, str]
    positions: Counts
    spread: Counts


def sample_of(data: object, rng: np.random.Generator, few: int = 1_000) -> Sample:
    """Return a sample of a table.

    Args:
        data: the table.
        rng: draws the rows.
        few: how many rows `spread` has at most.

    Raises:
        InputError: no table, no rows, or two columns of one name.
    """
    names = check_table(data)
    if not isinstance(data, pd.DataFrame):  # check_table has refused it
        raise TypeError
    total, most = len(data), max(min(MOST_ROWS, MOST_CELLS // len(names)), 1)
    positions = np.sort(rng.choice(total, most, replace=False)) if total > most else np.arange(total)
    columns, skipped = [], {}
    for place, name in enumerate(names):
        series = data.iloc[:, place]
        found = _column(name, series if total <= most else series.iloc[positions])
        if isinstance(found, Column):
            columns.append(found)
        else:
            skipped[name] = found
    spread = rng.permutation(len(positions))[:few]
    return Sample(tuple(columns), len(positions), total, skipped, positions, spread)


def _column(name: str, series: pd.Series[Any]) -> Column | str:
    """Return a column, or why it is not looked at."""
    if len(name) > LONGEST_NAME:
        return f"its name has {len(name):,} characters"
    read = _values(series)
    if isinstance(read, str):
        return read
    kind, values, levels = read
    if np.isnan(values).all():
        return "it has no values"
    if np.isinf(values).any():
        return "it has infinite values"
    if kind == "real" and _whole(values):
        kind = "integer"
    codes, distinct = pd.factorize(values, use_na_sentinel=False)
    if len(distinct) < 2:
        return "it is constant"
    counts = np.bincount(codes, minlength=len(distinct))
    return Column(name, kind, values, levels, codes.astype(np.int32), counts.astype(np.int64))


Read = tuple[Kind, Floats, tuple[Level, ...]]


def _values(series: pd.Series[Any]) -> Read | str:
    """Return the kind, values and levels of a column; or why it is not looked at."""
    types, dtype = pd.api.types, series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        kind: Kind = "ordinal" if dtype.ordered else "category"
        return _leveled(kind, series.cat.codes.to_numpy(), series.cat.categories.tolist())
    if types.is_bool_dtype(dtype):
        return "boolean", series.to_numpy(dtype=np.float64, na_value=np.nan), (False, True)
    if types.is_datetime64_any_dtype(dtype):
        return "date", encode_dates(series), ()
    if types.is_complex_dtype(dtype) or types.is_timedelta64_dtype(dtype) or isinstance(dtype, pd.PeriodDtype):
        return f"columns of type {dtype} are not looked at"
    if types.is_numeric_dtype(dtype):
        return "real", series.to_numpy(dtype=np.float64, na_value=np.nan), ()
    return _objects(series)


def _objects(series: pd.Series[Any]) -> Read | str:
    """Return what a column of strings, or of mixed Python objects, holds."""
    try:
        codes, distinct = pd.factorize(series)
    except TypeError:
        return "its values are no numbers, dates or levels"
    levels = [plain(value) for value in distinct.tolist()]
    seen = {type(level) for level in levels}
    if seen == {bool}:
        place = np.array([float(level) for level in levels])
        return "boolean", np.where(codes < 0, np.nan, place[codes]), (False, True)
    if seen and seen <= {int, float}:
        numbers = np.array([float(level) for level in levels])
        return "real", np.where(codes < 0, np.nan, numbers[codes]), ()
    if not seen <= {str, int, float}:
        return f"values of type {min(kind.__name__ for kind in seen - {str})} are no levels"
    return _leveled("category", codes, levels)


def _leveled(kind: Kind, codes: NDArray[np.integer[Any]], levels: Sequence[Any]) -> Read | str:
    plain_levels = tuple(plain(level) for level in levels)
    if not all(isinstance(level, str | int | float | bool) for level in plain_levels):
        return "its levels are no strings, numbers or booleans"
    if not all(is_text(level) for level in plain_levels if isinstance(level, str)):
        return "a level holds half of a surrogate pair, which is no text"
    return kind, np.where(codes < 0, np.nan, codes.astype(np.float64)), plain_levels


def _whole(values: Floats) -> bool:
    with np.errstate(invalid="ignore"):
        return bool((np.isnan(values) | ((np.floor(values) == values) & (np.abs(values) <= EXACT_INTEGER))).all())
