"""Groups of numbers and dates: four bins of about equally many rows, named as people write ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.features import Floats

FEW_VALUES: Final = 10  # as many numbers or days are groups of their own
QUARTILES: Final = (0.25, 0.5, 0.75)
DIGITS: Final = 3  # significant ones of an edge between numbers with fractions, or as many as keep edges apart
LONG: Final = 1e15  # numbers from here on are written with an exponent
DAY: Final = "%Y-%m-%d"


class Grouper(Protocol):
    """Tells the group of a row by its value in one column."""

    def labels(self, column: pd.Series[Any]) -> pd.Series[Any]:
        """Return the group of every row (m,); what is missing has any label, or none."""
        ...


@dataclass(frozen=True)
class Values:
    """Every value is a group."""

    def labels(self, column: pd.Series[Any]) -> pd.Series[Any]:
        """Return the values as text (m,)."""
        return column.astype(object).map(str)


@dataclass(frozen=True)
class Days:
    """Every day is a group."""

    def labels(self, column: pd.Series[Any]) -> pd.Series[Any]:
        """Return the days of moments as text (m,)."""
        labels: pd.Series[Any] = days_of(column).dt.strftime(DAY)
        return labels


@dataclass(frozen=True)
class Bins:
    """Groups between edges.

    Attributes:
        edges: (k,) ascending; each is the first value of the next group.
        names: (k + 1,) of the groups.
        days: whether edges are days since 1970 and the column has moments.
    """

    edges: tuple[float, ...]
    names: tuple[str, ...]
    days: bool = False

    def labels(self, column: pd.Series[Any]) -> pd.Series[Any]:
        """Return the names of the groups that numbers, or moments, lie in (m,); what is missing has none."""
        values = day_numbers(column) if self.days else column.to_numpy(np.float64, na_value=np.nan)
        places: NDArray[np.intp] = np.searchsorted(self.edges, values, side="right")
        labels = np.array(self.names, dtype=object)[np.minimum(places, len(self.names) - 1)]
        return pd.Series(labels, index=column.index).mask(np.isnan(values))


class Spread(Protocol):
    """What bins need to know of finite numbers, of which at least two differ, wherever they are.

    Attributes:
        least, largest: of them.
        quartiles: (3,) of them: values that are there, the larger one between two.
        second: the least but one.
    """

    @property
    def least(self) -> float: ...  # noqa: D102
    @property
    def largest(self) -> float: ...  # noqa: D102
    @property
    def quartiles(self) -> Floats: ...  # noqa: D102
    @property
    def second(self) -> float: ...  # noqa: D102

    def filled(self, edges: Floats) -> bool:
        """Return whether no bin between these edges (k,) is empty."""
        ...


@dataclass(frozen=True, eq=False)
class Known:
    """The `Spread` of numbers (m,) in memory."""

    values: Floats

    @property
    def least(self) -> float:
        """The least one."""
        return float(self.values.min())

    @property
    def largest(self) -> float:
        """The largest one."""
        return float(self.values.max())

    @property
    def quartiles(self) -> Floats:
        """The values at the quartiles, or just above."""
        return np.asarray(np.quantile(self.values, QUARTILES, method="higher"))

    @property
    def second(self) -> float:
        """The least but one."""
        return float(self.values[self.values > self.least].min())

    def filled(self, edges: Floats) -> bool:
        """Return whether no bin between these edges (k,) is empty."""
        return len(np.unique(np.searchsorted(edges, self.values, side="right"))) == len(edges) + 1


def quartile_grouper(column: pd.Series[Any]) -> Grouper | None:
    """Return the bins of a column with more than ten different numbers or days; None for any other column.

    Bins begin at the column's quartiles, so that each has about a quarter of the rows; equal values are never parted,
    and a bin that this leaves empty is left out. Integers are named by both ends, which belong to the bin (``25-37``);
    other numbers by edges of three significant digits, of which the upper one belongs to the next bin (``1.25-3.5``);
    ``to`` stands between ends below 0. Dates are named by days (``2019-03-04 to 2020-05-01``). Of ten days or fewer
    each is a group.

    Args:
        column: (m,) numbers, or dates; what is missing or infinite has no say in the edges, and what is missing has
            no label.
    """
    if pd.api.types.is_datetime64_any_dtype(column):
        numbers = day_numbers(column)
        known = numbers[~np.isnan(numbers)]
        return Days() if len(np.unique(known)) <= FEW_VALUES else day_bins(Known(known))
    if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        return None
    if pd.api.types.is_complex_dtype(column) or column.nunique() <= FEW_VALUES:
        return None
    values = column.to_numpy(np.float64, na_value=np.nan)
    finite = values[np.isfinite(values)]
    if len(np.unique(finite)) < 2:
        return None
    return number_bins(Known(finite), whole=bool((finite == np.floor(finite)).all()))


def number_bins(values: Spread, *, whole: bool) -> Bins:
    """Return the bins of finite numbers, of which at least two differ, and which may all be whole."""
    if whole and max(abs(values.least), abs(values.largest)) < LONG:
        edges = _edges(values)
        return Bins(tuple(edges), tuple(_integer_names(edges, values)))
    edges = _rounded(_edges(values), values)
    return Bins(tuple(edges), tuple(_names(edges, values)))


def day_bins(days: Spread) -> Bins:
    """Return the bins of days since 1970, of which at least two differ."""
    edges = _edges(days)
    starts = [_day(days.least), *map(_day, edges)]
    ends = [*(start - np.timedelta64(1, "D") for start in starts[1:]), _day(days.largest)]
    names = [str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True)]
    return Bins(tuple(edges), tuple(names), days=True)


def days_of(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return the days of moments (m,), as they are called where the moments are."""
    days = column.dt.tz_localize(None) if column.dt.tz is not None else column
    floored: pd.Series[Any] = days.dt.floor("D")
    return floored


def day_numbers(column: pd.Series[Any]) -> Floats:
    """Return the days of moments (m,) since 1970; NaN for what is missing."""
    days = days_of(column)
    return np.where(days.isna(), np.nan, days.to_numpy("datetime64[D]").astype(np.float64))


def _day(number: float) -> np.datetime64:
    return np.datetime64(int(number), "D")


def _edges(values: Spread) -> Floats:
    """Return where the second and each further bin begins: at values, ascending, none at the least of all."""
    found = np.unique(values.quartiles)
    found = found[found > values.least]
    return found if len(found) else np.array([values.second])


def _rounded(edges: Floats, values: Spread) -> Floats:
    """Return edges with few digits; with more where fewer would empty a bin."""
    for digits in range(DIGITS, 17):
        found = np.unique([float(f"{edge:.{digits - 1}e}") for edge in edges])
        if len(found) == len(edges) and values.filled(found):
            return found
    return edges


def _integer_names(edges: Floats, values: Spread) -> Iterator[str]:
    lows, highs = [values.least, *edges], [*(edges - 1), values.largest]
    for low, high in zip(lows, highs, strict=True):
        first, last = _plain(low), _plain(high)
        yield first if first == last else _range(first, last)


def _names(edges: Floats, values: Spread) -> Iterator[str]:
    least = _shortened(values.least, lambda number: number < edges[0])
    largest = _shortened(values.largest, lambda number: number >= edges[-1])
    ends = [_plain(number) for number in (least, *edges, largest)]
    yield from (_range(low, high) for low, high in pairwise(ends))


def _range(low: str, high: str) -> str:
    return f"{low} to {high}" if "-" in low + high else f"{low}-{high}"


def _shortened(number: float, fits: Callable[[float], bool]) -> float:
    """Return a number with as few digits as still fit."""
    shown = (float(f"{number:.{digits - 1}e}") for digits in range(DIGITS, 18))
    return next((one for one in shown if fits(one)), number)


def _plain(number: float) -> str:
    """Return a number without marks that the name of a metric cannot have."""
    if number and not 1 / LONG < abs(number) < LONG:
        return f"{number:.{DIGITS}g}".replace("+", "")
    return np.format_float_positional(number + 0.0, trim="-")
